#pragma once

// Measurements on tetrahedral meshes, written independently of the library under test.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <numbers>
#include <numeric>
#include <set>
#include <utility>
#include <vector>

#include <Eigen/Core>
#include <Eigen/Geometry>

#include "sim/mesh/tet_mesh.h"

namespace palpate::sim {

struct AngleRange {
  double min_deg = 180;
  double max_deg = 0;
};

/// Smallest and largest dihedral angle of all tets, by projecting along each edge.
inline AngleRange DihedralAngles(const TetMesh& mesh) {
  AngleRange range;
  for (const auto& tet : mesh.tets) {
    for (int i = 0; i < 4; ++i) {
      for (int j = i + 1; j < 4; ++j) {
        const int k = i == 0 ? (j == 1 ? 2 : 1) : 0;
        const int l = 6 - i - j - k;
        const Eigen::Vector3d& origin = mesh.vertices[tet[i]];
        const Eigen::Vector3d axis = (mesh.vertices[tet[j]] - origin).normalized();
        Eigen::Vector3d u = mesh.vertices[tet[k]] - origin;
        Eigen::Vector3d v = mesh.vertices[tet[l]] - origin;
        u -= u.dot(axis) * axis;
        v -= v.dot(axis) * axis;
        const double angle_deg = std::atan2(u.cross(v).norm(), u.dot(v)) * 180 / std::numbers::pi;
        range.min_deg = std::min(range.min_deg, angle_deg);
        range.max_deg = std::max(range.max_deg, angle_deg);
      }
    }
  }
  return range;
}

struct Shape {
  double tet_volume_m3 = 0;  ///< sum of the tets
  double enclosed_volume_m3 =
      0;  ///< by the divergence theorem from the boundary: equal to the above if and only if nothing overlaps or is missing
  double smallest_tet_m3 = 1e300;
  long euler = 0;  ///< of the boundary
  int pieces = 0;  ///< face-connected sets of tets
  int boundary_pieces = 0;
  size_t crowded_faces = 0;   ///< triangles in more than two tets
  size_t bad_edges = 0;       ///< boundary edges that are not in two boundary triangles in opposite directions
  size_t bad_vertices = 0;    ///< boundary vertices whose triangles are not one fan
  size_t loose_vertices = 0;  ///< vertices in no tet
  std::vector<std::array<uint32_t, 3>> boundary;
  std::set<uint32_t> boundary_vertices;
};

class UnionFind {
 public:
  explicit UnionFind(size_t count) : parent_(count) { std::iota(parent_.begin(), parent_.end(), size_t{0}); }
  size_t Root(size_t a) {
    while (parent_[a] != a) a = parent_[a] = parent_[parent_[a]];
    return a;
  }
  void Join(size_t a, size_t b) { parent_[Root(a)] = Root(b); }

 private:
  std::vector<size_t> parent_;
};

inline Shape Measure(const TetMesh& mesh) {
  constexpr std::array<std::array<int, 3>, 4> kFaces = {{{1, 2, 3}, {0, 3, 2}, {0, 1, 3}, {0, 2, 1}}};
  Shape shape;
  struct Face {
    std::array<uint32_t, 3> key{};
    size_t tet = 0;
    std::array<uint32_t, 3> outward{};
  };
  std::vector<Face> faces;
  UnionFind pieces(mesh.tets.size());
  std::vector<uint8_t> used(mesh.vertices.size(), 0);
  for (size_t t = 0; t < mesh.tets.size(); ++t) {
    const auto& tet = mesh.tets[t];
    const Eigen::Vector3d& x = mesh.vertices[tet[0]];
    const double volume = (mesh.vertices[tet[1]] - x).cross(mesh.vertices[tet[2]] - x).dot(mesh.vertices[tet[3]] - x) / 6;
    shape.tet_volume_m3 += volume;
    shape.smallest_tet_m3 = std::min(shape.smallest_tet_m3, volume);
    for (const uint32_t v : tet) used[v] = 1;
    for (const auto& corner : kFaces) {
      const std::array<uint32_t, 3> outward = {tet[corner[0]], tet[corner[1]], tet[corner[2]]};
      std::array<uint32_t, 3> key = outward;
      std::sort(key.begin(), key.end());
      faces.push_back({key, t, outward});
    }
  }
  std::sort(faces.begin(), faces.end(), [](const Face& a, const Face& b) { return a.key < b.key; });
  std::vector<Face> single;
  for (size_t begin = 0, end = 0; begin < faces.size(); begin = end) {
    for (end = begin; end < faces.size() && faces[end].key == faces[begin].key; ++end) pieces.Join(faces[begin].tet, faces[end].tet);
    if (end - begin > 2) ++shape.crowded_faces;
    if (end - begin == 1) single.push_back(faces[begin]);
  }
  for (size_t t = 0; t < mesh.tets.size(); ++t) shape.pieces += pieces.Root(t) == t ? 1 : 0;
  for (const uint8_t u : used) shape.loose_vertices += u == 0 ? 1 : 0;
  std::map<std::pair<uint32_t, uint32_t>, int> edges;
  std::map<uint32_t, std::map<uint32_t, uint32_t>> fans;  // vertex -> successor of each neighbour
  UnionFind sheets(mesh.vertices.size());
  for (const Face& face : single) {
    const auto& f = face.outward;
    shape.boundary.push_back(f);
    shape.enclosed_volume_m3 += mesh.vertices[f[0]].dot(mesh.vertices[f[1]].cross(mesh.vertices[f[2]])) / 6;
    for (int i = 0; i < 3; ++i) {
      ++edges[{f[i], f[(i + 1) % 3]}];
      fans[f[i]][f[(i + 1) % 3]] = f[(i + 2) % 3];
      sheets.Join(f[i], f[(i + 1) % 3]);
      shape.boundary_vertices.insert(f[i]);
    }
  }
  for (const auto& [ends, count] : edges) {
    const auto twin = edges.find({ends.second, ends.first});
    if (count != 1 || twin == edges.end()) ++shape.bad_edges;
  }
  for (const auto& [v, fan] : fans) {
    size_t length = 0;
    uint32_t at = fan.begin()->first;
    do {
      const auto next = fan.find(at);
      if (next == fan.end()) break;
      at = next->second;
      ++length;
    } while (at != fan.begin()->first && length <= fan.size());
    if (length != fan.size()) ++shape.bad_vertices;
  }
  for (const uint32_t v : shape.boundary_vertices) shape.boundary_pieces += sheets.Root(v) == v ? 1 : 0;
  shape.euler =
      static_cast<long>(shape.boundary_vertices.size()) - static_cast<long>(edges.size() / 2) + static_cast<long>(shape.boundary.size());
  return shape;
}

/// The boundary as a surface of its own.
inline SurfaceMesh BoundaryOf(const TetMesh& mesh) {
  const Shape shape = Measure(mesh);
  std::map<uint32_t, uint32_t> index;
  SurfaceMesh surface;
  for (const uint32_t v : shape.boundary_vertices) {
    index[v] = static_cast<uint32_t>(surface.vertices.size());
    surface.vertices.push_back(mesh.vertices[v]);
  }
  for (const auto& f : shape.boundary) surface.triangles.push_back({index[f[0]], index[f[1]], index[f[2]]});
  return surface;
}

}  // namespace palpate::sim

/// What every mesh of the mesher promises: valid, watertight, manifold, no overlap.
#define EXPECT_SOUND(mesh)                                                                                           \
  do {                                                                                                               \
    const ::palpate::sim::Shape shape_of_mesh = ::palpate::sim::Measure(mesh);                                       \
    EXPECT_TRUE(::palpate::sim::ValidateTetMesh(mesh).ok()) << ::palpate::sim::ValidateTetMesh(mesh).message();      \
    EXPECT_GT(shape_of_mesh.smallest_tet_m3, 0);                                                                     \
    EXPECT_EQ(shape_of_mesh.crowded_faces, 0U);                                                                      \
    EXPECT_EQ(shape_of_mesh.bad_edges, 0U);                                                                          \
    EXPECT_EQ(shape_of_mesh.bad_vertices, 0U);                                                                       \
    EXPECT_EQ(shape_of_mesh.loose_vertices, 0U);                                                                     \
    EXPECT_NEAR(shape_of_mesh.enclosed_volume_m3, shape_of_mesh.tet_volume_m3, 1e-10 * shape_of_mesh.tet_volume_m3); \
  } while (false)
