#include "sim/mesh/tet_mesh.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include <Eigen/Geometry>

#include "absl/strings/str_format.h"

namespace palpate::sim {
namespace {

constexpr double kMinRelativeVolume = 1e-9;

// Triangle i is opposite vertex i and counter-clockwise seen from outside a positive tet.
constexpr std::array<std::array<int, 3>, 4> kTriangles = {{{1, 2, 3}, {0, 3, 2}, {0, 1, 3}, {0, 2, 1}}};

// A triangle of a tet as an unordered set of vertices plus the side from which it is counter-clockwise.
struct TetTriangle {
  uint32_t middle;
  uint32_t largest;
  uint32_t tet;
  uint8_t corner;
  bool is_even;  // the tet's order of the vertices is an even permutation of the ascending one

  bool SameVertices(const TetTriangle& other) const { return middle == other.middle && largest == other.largest; }
};

// All triangles in groups of equal smallest vertex; in a group sorted by the other two vertices, then by tet.
struct TriangleGroups {
  std::vector<size_t> starts;  // [vertex_count + 1]
  std::vector<TetTriangle> triangles;
};

TriangleGroups GroupTriangles(const TetMesh& mesh) {
  TriangleGroups groups;
  groups.starts.assign(mesh.vertices.size() + 1, 0);
  for (const auto& tet : mesh.tets) {
    for (const auto& local : kTriangles) ++groups.starts[std::min({tet[local[0]], tet[local[1]], tet[local[2]]}) + size_t{1}];
  }
  for (size_t v = 1; v < groups.starts.size(); ++v) groups.starts[v] += groups.starts[v - 1];
  std::vector<size_t> next(groups.starts.begin(), groups.starts.end() - 1);
  groups.triangles.resize(4 * mesh.tets.size());
  for (size_t t = 0; t < mesh.tets.size(); ++t) {
    for (uint8_t corner = 0; corner < 4; ++corner) {
      std::array<uint32_t, 3> v;
      for (int k = 0; k < 3; ++k) v[k] = mesh.tets[t][kTriangles[corner][k]];
      // Rotating keeps the parity, so after it only the order of the last two matters.
      std::rotate(v.begin(), std::min_element(v.begin(), v.end()), v.end());
      groups.triangles[next[v[0]]++] = {std::min(v[1], v[2]), std::max(v[1], v[2]), static_cast<uint32_t>(t), corner, v[1] < v[2]};
    }
  }
  for (size_t v = 0; v + 1 < groups.starts.size(); ++v) {
    std::sort(groups.triangles.begin() + static_cast<ptrdiff_t>(groups.starts[v]),
              groups.triangles.begin() + static_cast<ptrdiff_t>(groups.starts[v + 1]), [](const TetTriangle& a, const TetTriangle& b) {
                if (a.middle != b.middle) return a.middle < b.middle;
                if (a.largest != b.largest) return a.largest < b.largest;
                return a.tet < b.tet;
              });
  }
  return groups;
}

double LongestEdge(const TetMesh& mesh, size_t t) {
  double longest_sq_m2 = 0.0;
  for (int i = 0; i < 4; ++i) {
    for (int k = 0; k < i; ++k) {
      longest_sq_m2 = std::max(longest_sq_m2, (mesh.vertices[mesh.tets[t][i]] - mesh.vertices[mesh.tets[t][k]]).squaredNorm());
    }
  }
  return std::sqrt(longest_sq_m2);
}

TetMeshDefect MeshDefect(std::string message) { return {TetMeshDefect::Element::kMesh, 0, false, std::move(message)}; }

TetMeshDefect VertexDefect(size_t v, const std::string& message) {
  return {TetMeshDefect::Element::kVertex, static_cast<uint32_t>(v), false, absl::StrFormat("vertex %d: %s", v, message)};
}

TetMeshDefect TetDefect(const TetMesh& mesh, size_t t, const std::string& message, bool is_inverted = false) {
  const auto& v = mesh.tets[t];
  return {TetMeshDefect::Element::kTet, static_cast<uint32_t>(t), is_inverted,
          absl::StrFormat("tet %d (vertices %d %d %d %d): %s", t, v[0], v[1], v[2], v[3], message)};
}

std::optional<TetMeshDefect> FindTetDefect(const TetMesh& mesh, size_t t) {
  const auto& tet = mesh.tets[t];
  for (const uint32_t v : tet) {
    if (v >= mesh.vertices.size()) {
      return TetDefect(mesh, t, absl::StrFormat("vertex index %d is outside 0..%d", v, mesh.vertices.size() - 1));
    }
  }
  for (int i = 0; i < 4; ++i) {
    for (int k = 0; k < i; ++k) {
      if (tet[i] == tet[k]) return TetDefect(mesh, t, absl::StrFormat("vertex %d is used twice", tet[i]));
    }
  }
  const double volume_m3 = TetVolume(mesh, t);
  const double longest_m = LongestEdge(mesh, t);
  const double smallest_m3 = kMinRelativeVolume * longest_m * longest_m * longest_m;
  if (!std::isfinite(volume_m3) || !std::isfinite(smallest_m3)) {
    return TetDefect(mesh, t, "its volume is not a finite number: the coordinates are too large");
  }
  if (volume_m3 < -smallest_m3) {
    return TetDefect(mesh, t, absl::StrFormat("inverted: its volume %.6g m^3 is negative, must be positive", volume_m3),
                     /*is_inverted=*/true);
  }
  if (volume_m3 <= 0.0 || volume_m3 < smallest_m3) {
    return TetDefect(mesh, t,
                     absl::StrFormat("degenerate: its volume %.6g m^3 is below %g of its longest edge (%.6g m) cubed", volume_m3,
                                     kMinRelativeVolume, longest_m));
  }
  return std::nullopt;
}

}  // namespace

double TetVolume(const TetMesh& mesh, size_t t) {
  const auto& [a, b, c, d] = mesh.tets[t];
  const Eigen::Vector3d& origin = mesh.vertices[a];
  return (mesh.vertices[b] - origin).cross(mesh.vertices[c] - origin).dot(mesh.vertices[d] - origin) / 6.0;
}

std::optional<TetMeshDefect> FindTetMeshDefect(const TetMesh& mesh) {
  constexpr size_t kMaxCount = std::numeric_limits<uint32_t>::max();
  if (mesh.tets.empty()) return MeshDefect("the mesh has no tets, needs at least one");
  if (mesh.vertices.size() > kMaxCount) return MeshDefect(absl::StrFormat("%d vertices are more than %d", mesh.vertices.size(), kMaxCount));
  if (mesh.tets.size() > kMaxCount) return MeshDefect(absl::StrFormat("%d tets are more than %d", mesh.tets.size(), kMaxCount));
  if (mesh.vertices.empty()) return MeshDefect("the mesh has no vertices");

  for (size_t v = 0; v < mesh.vertices.size(); ++v) {
    const Eigen::Vector3d& p = mesh.vertices[v];
    if (!p.allFinite()) return VertexDefect(v, absl::StrFormat("coordinate (%g, %g, %g) is not finite", p.x(), p.y(), p.z()));
  }
  if (!mesh.tet_groups.empty() && mesh.tet_groups.size() != mesh.tets.size()) {
    return MeshDefect(absl::StrFormat("groups of %d tets, but there are %d", mesh.tet_groups.size(), mesh.tets.size()));
  }
  if (!mesh.texture_coordinates.empty() && mesh.texture_coordinates.size() != mesh.vertices.size()) {
    return MeshDefect(absl::StrFormat("%d texture coordinates for %d vertices", mesh.texture_coordinates.size(), mesh.vertices.size()));
  }
  for (size_t v = 0; v < mesh.texture_coordinates.size(); ++v) {
    const Eigen::Vector2d& uv = mesh.texture_coordinates[v];
    if (!uv.allFinite()) return VertexDefect(v, absl::StrFormat("texture coordinate (%g, %g) is not finite", uv.x(), uv.y()));
  }
  for (size_t t = 0; t < mesh.tets.size(); ++t) {
    if (auto defect = FindTetDefect(mesh, t)) return defect;
  }

  std::vector<bool> is_used(mesh.vertices.size(), false);
  for (const auto& tet : mesh.tets) {
    for (const uint32_t v : tet) is_used[v] = true;
  }
  if (const auto unused = std::find(is_used.begin(), is_used.end(), false); unused != is_used.end()) {
    return VertexDefect(static_cast<size_t>(unused - is_used.begin()), "belongs to no tet");
  }

  const TriangleGroups groups = GroupTriangles(mesh);
  for (size_t v = 0; v < mesh.vertices.size(); ++v) {
    for (size_t i = groups.starts[v] + 1; i < groups.starts[v + 1]; ++i) {
      const TetTriangle& a = groups.triangles[i - 1];
      const TetTriangle& b = groups.triangles[i];
      if (!a.SameVertices(b)) continue;
      const std::string triangle = absl::StrFormat("triangle %d %d %d", v, a.middle, a.largest);
      if (i + 1 < groups.starts[v + 1] && b.SameVertices(groups.triangles[i + 1])) {
        const uint32_t c = groups.triangles[i + 1].tet;
        return TetDefect(mesh, c,
                         absl::StrFormat("%s also belongs to tets %d and %d, at most two tets may share it", triangle, a.tet, b.tet));
      }
      if (a.is_even == b.is_even) {
        return TetDefect(mesh, b.tet, absl::StrFormat("overlaps tet %d: both lie on the same side of their common %s", a.tet, triangle));
      }
    }
  }
  return std::nullopt;
}

absl::Status ValidateTetMesh(const TetMesh& mesh) {
  if (const auto defect = FindTetMeshDefect(mesh)) return absl::InvalidArgumentError(defect->message);
  return absl::OkStatus();
}

BoundarySurface ExtractBoundary(const TetMesh& mesh) {
  const TriangleGroups groups = GroupTriangles(mesh);
  std::vector<bool> is_boundary(4 * mesh.tets.size(), false);
  for (size_t v = 0; v < mesh.vertices.size(); ++v) {
    const size_t end = groups.starts[v + 1];
    for (size_t i = groups.starts[v]; i < end;) {
      size_t next = i + 1;
      while (next < end && groups.triangles[i].SameVertices(groups.triangles[next])) ++next;
      if (next == i + 1) is_boundary[4 * size_t{groups.triangles[i].tet} + groups.triangles[i].corner] = true;
      i = next;
    }
  }

  BoundarySurface surface;
  std::vector<bool> is_on_surface(mesh.vertices.size(), false);
  for (size_t f = 0; f < is_boundary.size(); ++f) {
    if (!is_boundary[f]) continue;
    std::array<uint32_t, 3> triangle;
    for (int k = 0; k < 3; ++k) {
      triangle[k] = mesh.tets[f / 4][kTriangles[f % 4][k]];
      is_on_surface[triangle[k]] = true;
    }
    surface.triangles.push_back(triangle);
  }
  std::vector<uint32_t> surface_index(mesh.vertices.size(), 0);
  for (uint32_t v = 0; v < mesh.vertices.size(); ++v) {
    if (!is_on_surface[v]) continue;
    surface_index[v] = static_cast<uint32_t>(surface.vertices.size());
    surface.vertices.push_back(v);
  }
  for (auto& triangle : surface.triangles) {
    for (uint32_t& v : triangle) v = surface_index[v];
  }
  return surface;
}

}  // namespace palpate::sim
