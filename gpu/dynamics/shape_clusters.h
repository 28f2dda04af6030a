#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "gpu/base/status.h"
#include "gpu/dynamics/tissue_layout.h"
#include "gpu/shared/shape_types.h"
#include "gpu/shared/types.h"

namespace palpate::gpu {

/// The shape-matched bodies of a model as gpu/dynamics/shape_goals.cl reads them: clusters of vertices that overlap, each with the
/// whitened rest coordinates of its members. Vertices are slots of the solver.
struct ShapeClusters {
  std::vector<ShapeCluster> clusters;
  std::vector<uint32_t> member_vertex;   ///< [member]
  std::vector<Float4> member_linear;     ///< [member] xyz = phi, w = stiffness [N/m]
  std::vector<Float4> member_quadratic;  ///< [2 * member] psi, or empty if no cluster is quadratic
  std::vector<uint32_t> share_begin;     ///< [slot_count + 1]
  std::vector<UInt2> shares;             ///< memberships of each vertex: cluster, member
  bool is_damped = false;                ///< a cluster has damping
};

/// Divides each shape-matched body of the model (docs/algorithms/shape_matching.md, "Deformable bodies"). Around the centres of a grid of
/// cells as large as TissueShape::cluster_size_m lie clusters twice as wide, whose weights are linear hats that add up to 1. Parts of a
/// cluster that no tet within it joins are clusters of their own, so the sides of a cut do not hold each other. Every two vertices of a tet
/// are joined by clusters, if need be by one of that tet alone. Deterministic: the same model gives the same clusters.
///
/// A vertex has the stiffness  sum over its tets of  c E V / 4 [J], c = 1, or (3 - beta) / 3 where volume is kept, divided by (1 - beta)
/// r^2 with the mean square extent r of the cluster along an axis: so an affine deformation meets Young's modulus E, whatever the clusters.
/// Errors: InvalidArgument naming the shape (more than 2^20 cells). A size below the edges of the tets makes clusters of single tets.
absl::StatusOr<ShapeClusters> BuildShapeClusters(const TissueModel& model, std::span<const SolverSlot> solver_index, uint32_t slot_count,
                                                 double dt_s);

}  // namespace palpate::gpu
