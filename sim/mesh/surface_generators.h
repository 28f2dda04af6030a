#pragma once

#include "absl/status/statusor.h"
#include "sim/mesh/tet_mesh.h"

namespace palpate::sim {

/// Surfaces of nearly regular triangles, centred at the origin of the caller's frame (z up), without unused vertices. An edge length of 0
/// means the default, a kDefaultEdgesPerSurface-th of the largest extent; it must otherwise lie between a kMaxEdgesPerSurface-th of that
/// extent and the extent. Sizes are in [0.001, 10] m; a value outside is InvalidArgument naming the parameter, the value and the range.
/// Deterministic.
inline constexpr double kDefaultEdgesPerSurface = 20;
inline constexpr double kMaxEdgesPerSurface = 400;

/// A rectangle in the plane z = 0, normal +z: rows along x, every second one shifted by half an edge.
absl::StatusOr<SurfaceMesh> GenerateSheetSurface(double length_m = 0.2, double width_m = 0.2, double edge_length_m = 0);

/// A disc in the plane z = 0, normal +z: a vertex in the middle and rings of 6, 12, 18... around it.
absl::StatusOr<SurfaceMesh> GenerateDiscSurface(double radius_m = 0.1, double edge_length_m = 0);

/// A cylinder about z, open at both ends, outwards; every second ring is turned by half an edge. At least six vertices around.
absl::StatusOr<SurfaceMesh> GenerateTubeSurface(double radius_m = 0.02, double length_m = 0.1, double edge_length_m = 0);

/// A closed sphere, outwards: the faces of an icosahedron in triangles, pushed out onto the sphere.
absl::StatusOr<SurfaceMesh> GenerateSphereSurface(double radius_m = 0.05, double edge_length_m = 0);

/// Checks that a surface can be a shell: finite coordinates, indices in range, no triangle with a repeated vertex or (twice the area below
/// 1e-6 of the longest edge squared) without area, no vertex without a triangle; each edge of one triangle, or of two that run along it in
/// opposite directions; the triangles around a vertex are one fan. Open or closed, of any number of parts. Errors: InvalidArgument naming
/// the first defect, its triangles or edge and a coordinate in the frame and unit of the surface. O(triangles log triangles).
absl::Status CheckShellSurface(const SurfaceMesh& surface);

/// That a surface which can be a shell encloses a volume: it is closed, and its triangles are turned outwards. Errors: InvalidArgument
/// naming an edge of its border and where it is in the frame and unit of the surface, or the volume. O(triangles log triangles).
absl::Status CheckEnclosesVolume(const SurfaceMesh& surface);

}  // namespace palpate::sim
