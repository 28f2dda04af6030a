#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "sim/mesh/tet_mesh.h"
#include "sim/nurbs/nurbs_object.h"
#include "sim/nurbs/nurbs_tessellation.h"

namespace palpate::sim {

/// Where a vertex of triangles is on the surface: one of its places, if patches share it.
struct NurbsGridPlace {
  uint32_t patch = 0;
  double u = 0, v = 0;
};

/// Triangles for an object of whole patches that fit edge to edge, as few as grids allow: rows and columns between knots are as many as
/// each ring of patches needs. No point of a patch is farther than `tolerance_m` from its triangles, nor they from it; along an edge the
/// gap between two patches is added. Closed objects give closed meshes. Nothing if a patch is trimmed, or if patches meet that have knots
/// at other shares of their common edge: TessellateNurbsObject takes these.
///
/// A cell of the grid is a rational Bezier patch. The surface is a mean of its control points. So it is no farther from the tetrahedron of
/// its corners than the mean of their distances from the bilinear patch on the corners, which lies in it. That mean is a scalar Bezier
/// patch over the weights; its control points, once it is halved, bound it. A point of the tetrahedron a b c d is no farther from the
/// triangles than the edges ac and bd are from each other where they cross, or half of |a + c - b - d|.
///
/// `places` (or null): becomes [vertex]. `least_cells`: rows and columns between two knots, at least.
/// Errors: InvalidArgument (a tolerance that is not positive), ResourceExhausted (more than `max_triangles`, found out before most of the
/// work). Deterministic.
absl::StatusOr<std::optional<SurfaceMesh>> TessellateNurbsGrids(const NurbsObject& object, double tolerance_m, double join_tolerance_m = 0,
                                                                std::vector<NurbsGridPlace>* places = nullptr, size_t least_cells = 1,
                                                                size_t max_triangles = kMaxTessellationTriangles);

}  // namespace palpate::sim
