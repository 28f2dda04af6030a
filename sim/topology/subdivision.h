#pragma once

#include <array>
#include <cstdint>

#include <Eigen/Core>

namespace palpate::sim {

/// How a tet falls into smaller ones when some of its edges get a vertex in the middle. Points 0..3 are the vertices, 4..9 the middles of
/// the edges of kTetEdges.
struct Subdivision {
  std::array<std::array<uint8_t, 4>, 8> children;  ///< positive where the tet (0, 1, 2, 3) is; [0, count)
  int count = 0;                                   ///< 1..8; 0: there is none
};

/// The pair of middles that the inner diagonal of a tet with six split edges joins.
enum class InnerDiagonal { k67, k49, k58 };

/// The subdivision for a set of split edges (bit e: edge e of kTetEdges), `mask` in [0, 63]. What happens to a face without, with one and
/// with three split edges is always the same. In one with two, the diagonal starts in the lower-numbered of the two vertices that they do
/// not share or, where bit f of `higher` is set for the face opposite vertex f, in the higher-numbered one; other bits are ignored. A mesh
/// stays conforming if the two tets at a face choose alike. `higher` is 0 in all tets whose vertices ascend in an order of all vertices of
/// the mesh. For some choices there is no subdivision without another point (count 0), never for those that compare a face's split edges by
/// an order of all edges. `diagonal` counts for mask 63 only. Source: Forest 2003, figure 3.18; the figure is not available, the table is a
/// reconstruction.
const Subdivision& SubdivisionOf(uint32_t mask, InnerDiagonal diagonal = InnerDiagonal::k67, uint32_t higher = 0);

/// The shortest of the three inner diagonals of a tet with these vertices; the first one of equals.
InnerDiagonal ShortestInnerDiagonal(const std::array<Eigen::Vector3d, 4>& points_m);

/// The tet's face opposite vertex f: its vertices, ascending.
inline constexpr std::array<std::array<int, 3>, 4> kOppositeFaces = {{{1, 2, 3}, {0, 2, 3}, {0, 1, 3}, {0, 1, 2}}};

}  // namespace palpate::sim
