#include "gpu/collision/convex_mesh.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"

namespace palpate::gpu {
namespace {

constexpr uint32_t kNoRows = 0xffffffffU;
constexpr double kConvexTolerance = 1e-4;  // of the mesh's size: files round coordinates

absl::Status Refuse(size_t mesh, std::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("convex mesh ", mesh, ": ", std::string(what)));
}

double HeightAbove(const ConvexMesh& mesh, const UInt4& triangle, const Float4& point, double* area) {
  const Float4& a = mesh.vertices_m[triangle.x];
  const Float4& b = mesh.vertices_m[triangle.y];
  const Float4& c = mesh.vertices_m[triangle.z];
  const double u[3] = {double{b.x} - a.x, double{b.y} - a.y, double{b.z} - a.z};
  const double v[3] = {double{c.x} - a.x, double{c.y} - a.y, double{c.z} - a.z};
  const double n[3] = {u[1] * v[2] - u[2] * v[1], u[2] * v[0] - u[0] * v[2], u[0] * v[1] - u[1] * v[0]};
  *area = std::sqrt(n[0] * n[0] + n[1] * n[1] + n[2] * n[2]);
  if (*area == 0) return 0;
  return (n[0] * (double{point.x} - a.x) + n[1] * (double{point.y} - a.y) + n[2] * (double{point.z} - a.z)) / *area;
}

absl::Status Check(const ConvexMesh& mesh, size_t index) {
  if (mesh.vertices_m.empty()) return Refuse(index, "has no vertices");
  float low[3] = {INFINITY, INFINITY, INFINITY};
  float high[3] = {-INFINITY, -INFINITY, -INFINITY};
  for (const Float4& v : mesh.vertices_m) {
    const float p[3] = {v.x, v.y, v.z};
    for (int axis = 0; axis < 3; ++axis) {
      if (!std::isfinite(p[axis])) return Refuse(index, "a coordinate is not finite");
      low[axis] = std::min(low[axis], p[axis]);
      high[axis] = std::max(high[axis], p[axis]);
    }
  }
  if (mesh.triangles.empty()) return absl::OkStatus();
  const double size = std::hypot(double{high[0]} - low[0], double{high[1]} - low[1], double{high[2]} - low[2]);
  std::set<std::pair<uint32_t, uint32_t>> edges;
  std::vector<bool> used(mesh.vertices_m.size(), false);
  for (const UInt4& t : mesh.triangles) {
    const uint32_t corners[3] = {t.x, t.y, t.z};
    for (int i = 0; i < 3; ++i) {
      if (corners[i] >= mesh.vertices_m.size()) {
        return Refuse(index, absl::StrCat("vertex ", corners[i], " of a triangle is not one of the ", mesh.vertices_m.size()));
      }
      used[corners[i]] = true;
      if (!edges.emplace(corners[i], corners[(i + 1) % 3]).second) return Refuse(index, "two triangles have the same directed edge");
    }
    for (const Float4& v : mesh.vertices_m) {
      double area = 0;
      const double height = HeightAbove(mesh, t, v, &area);
      if (height > kConvexTolerance * size && area > 1e-12 * size * size) {
        return Refuse(index, absl::StrCat("is not convex: a vertex lies ", height, " m outside a face"));
      }
    }
  }
  for (const auto& [from, to] : edges) {
    if (!edges.contains({to, from})) return Refuse(index, "the triangles do not close");
  }
  if (std::find(used.begin(), used.end(), false) != used.end()) return Refuse(index, "a vertex belongs to no triangle");
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ConvexMeshes> ConvexMeshes::Create(Queue& queue, std::span<const ConvexMesh> meshes, uint32_t climb_from) {
  ConvexMeshes result;
  std::vector<float> vertices;
  std::vector<uint32_t> rows;
  std::vector<uint32_t> neighbors;
  for (size_t m = 0; m < meshes.size(); ++m) {
    const ConvexMesh& mesh = meshes[m];
    PALPATE_RETURN_IF_ERROR(Check(mesh, m));
    constexpr size_t kLanes = PALPATE_CONVEX_LANES;
    const size_t count = mesh.vertices_m.size();
    const size_t blocks = (count + kLanes - 1) / kLanes;
    const size_t begin = vertices.size() / (3 * kLanes);
    if (begin + blocks > INT32_MAX / kLanes) return absl::ResourceExhaustedError("convex meshes: more than 2^31 vertices");
    ConvexShape shape = {static_cast<uint32_t>(begin), static_cast<uint32_t>(blocks), static_cast<uint32_t>(count), kNoRows};
    vertices.resize((begin + blocks) * 3 * kLanes);
    for (size_t i = 0; i < blocks * kLanes; ++i) {
      const Float4& v = mesh.vertices_m[std::min(i, count - 1)];
      float* lane = &vertices[(begin + i / kLanes) * 3 * kLanes + i % kLanes];
      lane[0] = v.x;
      lane[kLanes] = v.y;
      lane[2 * kLanes] = v.z;
    }
    if (!mesh.triangles.empty() && count >= climb_from) {
      std::vector<std::set<uint32_t>> around(count);
      for (const UInt4& t : mesh.triangles) {
        around[t.x].insert({t.y, t.z});
        around[t.y].insert({t.z, t.x});
        around[t.z].insert({t.x, t.y});
      }
      shape.row_begin = static_cast<uint32_t>(rows.size());
      for (const std::set<uint32_t>& row : around) {
        rows.push_back(static_cast<uint32_t>(neighbors.size()));
        neighbors.insert(neighbors.end(), row.begin(), row.end());
      }
      rows.push_back(static_cast<uint32_t>(neighbors.size()));
    }
    result.host_shapes_.push_back(shape);
  }
  PALPATE_ASSIGN_OR_RETURN(result.shapes_, CreateBufferFrom<ConvexShape>(queue, result.host_shapes_, "convex shapes"));
  PALPATE_ASSIGN_OR_RETURN(result.vertices_, CreateBufferFrom<float>(queue, vertices, "convex vertices"));
  PALPATE_ASSIGN_OR_RETURN(result.rows_, CreateBufferFrom<uint32_t>(queue, rows, "convex rows"));
  PALPATE_ASSIGN_OR_RETURN(result.neighbors_, CreateBufferFrom<uint32_t>(queue, neighbors, "convex neighbors"));
  return result;
}

}  // namespace palpate::gpu
