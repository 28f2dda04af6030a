#pragma once

#include <array>
#include <cstdint>

#include <Eigen/Core>

namespace palpate::sim {

/// How a tet falls into smaller ones when some of its edges get a vertex in the middle, for a tet whose vertices 0..3 ascend in an order of
/// all vertices of the mesh. Points 0..3 are the vertices, 4..9 the middles of the edges of kTetEdges.
struct Subdivision {
  std::array<std::array<uint8_t, 4>, 8> children;  ///< positive where the tet (0, 1, 2, 3) is; [0, count)
  int count = 0;                                   ///< 1..8
};

/// The pair of middles that the inner diagonal of a tet with six split edges joins.
enum class InnerDiagonal { k67, k49, k58 };

/// The subdivision for a set of split edges (bit e: edge e of kTetEdges), `mask` in [0, 63]. Conforming: what happens to a face depends on
/// its split edges and the order of its vertices alone (of a face with two split edges, the diagonal starts in the lower of the two
/// vertices that they do not share), so both tets at a face split it alike. `diagonal` counts for mask 63 only. Source: Forest 2003,
/// figure 3.18; the figure is not available, the table is a reconstruction.
const Subdivision& SubdivisionOf(uint32_t mask, InnerDiagonal diagonal = InnerDiagonal::k67);

/// The shortest of the three inner diagonals of a tet with these vertices; the first one of equals.
InnerDiagonal ShortestInnerDiagonal(const std::array<Eigen::Vector3d, 4>& points_m);

}  // namespace palpate::sim
