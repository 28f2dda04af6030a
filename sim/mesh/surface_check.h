#pragma once

#include <cstdint>

#include "gpu/base/status.h"
#include "sim/mesh/tet_mesh.h"

namespace palpate::sim {

/// Checks that a surface bounds a solid, so that "inside" has one meaning everywhere.
///
/// Guarantee: OK means coordinates that are finite and within 1e30 of zero, indices in range, no triangle with a repeated vertex or (twice
/// the area below 1e-12 of the longest edge squared) without area; each edge shared by exactly two triangles that run along it in opposite
/// directions; no two triangles meet except in the vertices and edges they share by index (decided with exact arithmetic on the coordinates
/// as given; touching counts as meeting); normals point out of the solid, also for nested shells (a cavity must be turned inward, a shell
/// in a cavity outward again). Two parts may share a vertex; unused vertices are ignored. Vertices that coincide but have different indices
/// are not joined: an open edge. Up to `max_self_intersections` pairs of triangles may meet all the same; inside is then where the winding
/// number is positive. Errors: InvalidArgument naming the first defect, its triangles or edge, and a coordinate in the frame and unit of
/// the surface; of self-intersections also their number. Cost: O(n log n) for surfaces of reasonable triangles; about 0.3 s for 100,000
/// triangles. Deterministic.
absl::Status CheckClosedSurface(const SurfaceMesh& surface, uint64_t max_self_intersections = 0);

}  // namespace palpate::sim
