#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include <Eigen/Core>

#include "gpu/base/status.h"

namespace palpate::sim {

/// A surface of triangles, counter-clockwise seen from outside. Metres, frame of the caller.
struct SurfaceMesh {
  std::vector<Eigen::Vector3d> vertices;                 ///< [vertex_count], m
  std::vector<std::array<uint32_t, 3>> triangles;        ///< [triangle_count] indices into vertices
};

/// A volume of tetrahedra with positive orientation: (v1-v0) x (v2-v0) . (v3-v0) > 0. Metres, frame of the caller.
struct TetMesh {
  std::vector<Eigen::Vector3d> vertices;                 ///< [vertex_count], m
  std::vector<std::array<uint32_t, 4>> tets;             ///< [tet_count] indices into vertices
};

/// The boundary of a tetrahedral mesh.
struct BoundarySurface {
  std::vector<uint32_t> vertices;                        ///< [surface_vertex_count] indices into TetMesh::vertices, ascending
  std::vector<std::array<uint32_t, 3>> triangles;        ///< [surface_triangle_count] indices into `vertices` above, outward orientation
};

/// Signed volume of tet `t` in m^3: positive for the orientation above.
double TetVolume(const TetMesh& mesh, size_t t);

/// Checks that a mesh can be simulated: finite coordinates, indices in range, no repeated vertex in a tet, no vertex without a tet, each tet's volume
/// positive and not degenerate (relative to its longest edge cubed, at least 1e-9), each triangle shared by at most two tets, at least one tet.
/// Errors: InvalidArgument naming the first bad element, its vertices and the value found.
absl::Status ValidateTetMesh(const TetMesh& mesh);

/// The triangles that belong to exactly one tet. Precondition: ValidateTetMesh. O(tets). Order: that of the tets, so the same mesh gives the same surface.
BoundarySurface ExtractBoundary(const TetMesh& mesh);

}  // namespace palpate::sim
