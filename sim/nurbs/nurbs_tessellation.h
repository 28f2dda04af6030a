#pragma once

#include <algorithm>
#include <cstddef>
#include <span>

#include "absl/status/statusor.h"
#include "sim/mesh/tet_mesh.h"
#include "sim/nurbs/nurbs_surface.h"

namespace palpate::sim {

inline constexpr size_t kMaxTessellationTriangles = size_t{1} << 24;
/// How many may be counted before they are made: those at poles fall away, half of them at most, here with room to spare.
constexpr size_t MostCounted(size_t max_triangles) { return 4 * std::min(kMaxTessellationTriangles / 4, max_triangles); }

/// Triangles for an object of patches, with their orientation. No point of the surface is farther than `tolerance_m` from them. All
/// patches are cut into the same power of two of rows and columns between knots, so that edges which two patches share, knots and all, get
/// the same vertices; these become one, and triangles without an area at poles are left out. Error: a tolerance that is not positive, or
/// that would need more than kMaxTessellationTriangles.
absl::StatusOr<SurfaceMesh> TessellateNurbs(std::span<const NurbsSurface> patches, double tolerance_m);

}  // namespace palpate::sim
