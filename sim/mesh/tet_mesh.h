#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <Eigen/Core>

#include "gpu/base/status.h"

namespace palpate::sim {

/// A surface of triangles, counter-clockwise seen from outside. Metres, frame of the caller.
struct SurfaceMesh {
  std::vector<Eigen::Vector3d> vertices;           ///< [vertex_count], m
  std::vector<std::array<uint32_t, 3>> triangles;  ///< [triangle_count] indices into vertices
};

/// A part of a mesh that its file names: the tets that have its number.
struct MeshGroup {
  uint32_t number = 0;
  std::string name;
};

/// A volume of tetrahedra with positive orientation: (v1-v0) x (v2-v0) . (v3-v0) > 0. Metres, frame of the caller.
struct TetMesh {
  std::vector<Eigen::Vector3d> vertices;                  ///< [vertex_count], m
  std::vector<std::array<uint32_t, 4>> tets;              ///< [tet_count] indices into vertices
  std::vector<Eigen::Vector2d> texture_coordinates = {};  ///< [vertex_count] u v in tiles, or empty
  std::vector<uint32_t> tet_groups = {};                  ///< [tet_count] number of the group of each tet, 0 = none; or empty
  std::vector<MeshGroup> groups = {};                     ///< names of groups, by ascending number; not all need to have one
};

/// The boundary of a tetrahedral mesh.
struct BoundarySurface {
  std::vector<uint32_t> vertices;                  ///< [surface_vertex_count] indices into TetMesh::vertices, ascending
  std::vector<std::array<uint32_t, 3>> triangles;  ///< [surface_triangle_count] indices into `vertices` above, outward orientation
};

/// Signed volume of tet `t` in m^3: positive for the orientation above.
double TetVolume(const TetMesh& mesh, size_t t);

/// The first reason why a mesh cannot be simulated.
struct TetMeshDefect {
  enum class Element { kMesh, kVertex, kTet };
  Element element = Element::kMesh;
  uint32_t index = 0;        ///< of the vertex or tet; 0 for kMesh
  bool is_inverted = false;  ///< the defect is a tet of negative volume, as a file of the other vertex order has
  std::string message;       ///< the element, its vertices, the value found and the allowed range
};

/// Looks for what ValidateTetMesh forbids; nothing found means a valid mesh. O(tets) expected.
std::optional<TetMeshDefect> FindTetMeshDefect(const TetMesh& mesh);

/// Checks that a mesh can be simulated: finite coordinates, indices in range, no repeated vertex in a tet, no vertex without a tet, each
/// tet's volume positive and not degenerate (relative to its longest edge cubed, at least 1e-9), each triangle shared by at most two tets
/// that lie on opposite sides of it, at least one tet, counts that 32-bit indices hold; texture coordinates, if any, one for each vertex
/// and finite. Errors: InvalidArgument naming the first bad element, its vertices and the value found.
absl::Status ValidateTetMesh(const TetMesh& mesh);

/// The triangles that belong to exactly one tet. Precondition: ValidateTetMesh. O(tets) expected. Order: that of the tets (in a tet: the
/// triangles opposite its vertices 0, 1, 2, 3), so the same mesh gives the same surface.
BoundarySurface ExtractBoundary(const TetMesh& mesh);

}  // namespace palpate::sim
