#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <vector>

#include <Eigen/Core>
#include <Eigen/Geometry>

#include "absl/status/statusor.h"

namespace palpate::sim {

/// Tets of a body-centred cubic lattice, halved where that is wanted. Conforming: two tets meet in a face, an edge, a vertex or not at all.
struct GradedLattice {
  Eigen::Vector3d origin_m = Eigen::Vector3d::Zero();
  double unit_m = 0;                          ///< an eighth of the finest long edge
  std::vector<Eigen::Vector3i> nodes;         ///< [node_count], in units
  std::vector<std::array<uint32_t, 4>> tets;  ///< [tet_count] positively oriented

  Eigen::Vector3d Position(uint32_t node) const { return origin_m + unit_m * nodes[node].cast<double>(); }
};

struct GradedLatticeOptions {
  Eigen::AlignedBox3d bounds_m;  ///< what is meshed; the lattice is centred on it, with a coarse cell of margin
  double finest_edge_m = 0;      ///< long edges of the finest tets, > 0
  int levels = 0;                ///< 0 = uniform; the coarsest long edges are finest_edge_m * 2^levels; at most 10
  uint64_t max_tets = 20'000'000;

  /// How often a tet is to be halved, 0 to `levels`, for what lies within a margin of it; -1 where nothing is meshed: such tets are left
  /// out.
  std::function<int(const std::array<Eigen::Vector3d, 4>& tet_m, double margin_m)> wanted_level;
};

/// Red-green refinement of the lattice (N. Molino, R. Bridson, J. Teran and R. Fedkiw, "A Crystalline, Red Green Strategy for Meshing
/// Highly Deformable Objects with Tetrahedra", 12th International Meshing Roundtable, 2003). Red children are similar to their parent;
/// green tets join a coarse tet to finer neighbours and are never refined. Unlike there, green tets fit any set of split edges but all six,
/// so that refinement does not spread. Deterministic. Errors: ResourceExhausted (names edge length and count).
absl::StatusOr<GradedLattice> MakeGradedLattice(const GradedLatticeOptions& options);

}  // namespace palpate::sim
