#pragma once

#include <cstddef>
#include <vector>

#include "absl/status/statusor.h"
#include "sim/mesh/tet_mesh.h"
#include "sim/nurbs/nurbs_grid_tessellation.h"
#include "sim/nurbs/nurbs_object.h"

namespace palpate::sim {

/// Triangles for an object, with the orientation of its patches. No point of its trimmed patches is farther than `tolerance_m` from them;
/// where two patches share an edge their common vertices lie on the first, so for the second the edge's gap is added. Loops are followed to
/// kNurbsLoopGap of the domain. Edges have one row of vertices, so an object that is closed by NurbsObject::CheckClosed gives a mesh whose
/// edges are each shared by two triangles in opposite directions. `join_tolerance_m` as in NurbsObject::Edges.
///
/// The domain of each patch is cut along its knots and its loops by a constrained Delaunay triangulation, and halved until it is fine
/// enough: over a triangle in (u, v) on which S is smooth, its distance from the plane triangle is at most a sixth of L^2, where L is the
/// longest side measured by bounds of the second derivatives of the Bezier patch (BoundNurbsDerivatives).
///
/// `places` (or null): becomes [vertex]. `least_cells`: sides of triangles are no longer than about a span between knots by so many; of
/// spans that a loop cuts, what is left is as fine. Vertices that all but coincide become one then, where an edge between them is shorter
/// than an eighth of the tolerance and a sixteenth of those beside it; triangles may be off by that much more.
///
/// Errors: InvalidArgument (a tolerance that is not positive; loops that cross, naming the patch and a place in (u, v)), ResourceExhausted
/// (more than `max_triangles`, found out before most of the work). Deterministic.
absl::StatusOr<SurfaceMesh> TessellateNurbsObject(const NurbsObject& object, double tolerance_m, double join_tolerance_m = 0,
                                                  std::vector<NurbsGridPlace>* places = nullptr, size_t least_cells = 1,
                                                  size_t max_triangles = kMaxTessellationTriangles);

}  // namespace palpate::sim
