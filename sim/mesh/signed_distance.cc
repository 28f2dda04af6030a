#include "sim/mesh/signed_distance.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "sim/mesh/surface_check.h"

namespace palpate::sim {
namespace {

using Eigen::Vector3d;

constexpr uint32_t kLeafSize = 4;

// Closest point of triangle a b c to x by Voronoi regions (Ericson, "Real-Time Collision Detection", 5.1.5). Feature: 0..2 vertex, 3..5
// edge, 6 face.
std::pair<Vector3d, int> ClosestFeature(const Vector3d& x, const Vector3d& a, const Vector3d& b, const Vector3d& c) {
  const Vector3d ab = b - a;
  const Vector3d ac = c - a;
  const Vector3d ax = x - a;
  const double d1 = ab.dot(ax);
  const double d2 = ac.dot(ax);
  if (d1 <= 0 && d2 <= 0) return {a, 0};
  const Vector3d bx = x - b;
  const double d3 = ab.dot(bx);
  const double d4 = ac.dot(bx);
  if (d3 >= 0 && d4 <= d3) return {b, 1};
  const double vc = d1 * d4 - d3 * d2;
  if (vc <= 0 && d1 >= 0 && d3 <= 0) return {a + d1 / (d1 - d3) * ab, 3};
  const Vector3d cx = x - c;
  const double d5 = ab.dot(cx);
  const double d6 = ac.dot(cx);
  if (d6 >= 0 && d5 <= d6) return {c, 2};
  const double vb = d5 * d2 - d1 * d6;
  if (vb <= 0 && d2 >= 0 && d6 <= 0) return {a + d2 / (d2 - d6) * ac, 5};
  const double va = d3 * d6 - d5 * d4;
  if (va <= 0 && d4 - d3 >= 0 && d5 - d6 >= 0) return {b + (d4 - d3) / ((d4 - d3) + (d5 - d6)) * (c - b), 4};
  const double scale = 1 / (va + vb + vc);
  return {a + vb * scale * ab + vc * scale * ac, 6};
}

}  // namespace

Vector3d ClosestOnTriangle(const Vector3d& x, const Vector3d& a, const Vector3d& b, const Vector3d& c) {
  return ClosestFeature(x, a, b, c).first;
}

SignedDistance::SignedDistance(const SurfaceMesh& surface) : surface_(surface) {
  const auto count = static_cast<uint32_t>(surface_.triangles.size());
  face_normals_.resize(count);
  edge_normals_.assign(count, {Vector3d::Zero(), Vector3d::Zero(), Vector3d::Zero()});
  vertex_normals_.assign(surface_.vertices.size(), Vector3d::Zero());
  std::vector<Vector3d> centroids(count);
  std::map<std::pair<uint32_t, uint32_t>, std::pair<uint32_t, int>> half_edges;
  for (uint32_t t = 0; t < count; ++t) {
    const auto& triangle = surface_.triangles[t];
    const std::array<Vector3d, 3> p = {surface_.vertices[triangle[0]], surface_.vertices[triangle[1]], surface_.vertices[triangle[2]]};
    face_normals_[t] = (p[1] - p[0]).cross(p[2] - p[0]).normalized();
    centroids[t] = (p[0] + p[1] + p[2]) / 3;
    for (int i = 0; i < 3; ++i) {
      const Vector3d u = p[(i + 1) % 3] - p[i];
      const Vector3d v = p[(i + 2) % 3] - p[i];
      vertex_normals_[triangle[i]] += std::atan2(u.cross(v).norm(), u.dot(v)) * face_normals_[t];
      half_edges[{triangle[i], triangle[(i + 1) % 3]}] = {t, i};
    }
  }
  for (const auto& [ends, place] : half_edges) {
    edge_normals_[place.first][place.second] += face_normals_[place.first];
    const auto twin = half_edges.find({ends.second, ends.first});
    if (twin != half_edges.end()) edge_normals_[place.first][place.second] += face_normals_[twin->second.first];
  }
  order_.resize(count);
  std::iota(order_.begin(), order_.end(), 0U);
  nodes_.reserve(count);
  if (count > 0) Build(0, count, centroids);
}

void SignedDistance::Build(uint32_t first, uint32_t count, const std::vector<Vector3d>& centroids) {
  const size_t self = nodes_.size();
  nodes_.emplace_back();
  Eigen::AlignedBox3d middles;
  for (uint32_t s = first; s < first + count; ++s) {
    for (const uint32_t v : surface_.triangles[order_[s]]) nodes_[self].box.extend(surface_.vertices[v]);
    middles.extend(centroids[order_[s]]);
  }
  if (count <= kLeafSize) {
    nodes_[self].first = first;
    nodes_[self].count = count;
    return;
  }
  Eigen::Index axis = 0;
  middles.sizes().maxCoeff(&axis);
  const uint32_t half = count / 2;
  std::nth_element(order_.begin() + first, order_.begin() + first + half, order_.begin() + first + count, [&](uint32_t a, uint32_t b) {
    const double ca = centroids[a][axis];
    const double cb = centroids[b][axis];
    return ca != cb ? ca < cb : a < b;
  });
  Build(first, half, centroids);
  nodes_[self].first = static_cast<uint32_t>(nodes_.size());
  Build(first + half, count - half, centroids);
}

SignedDistance::Hit SignedDistance::Closest(const Vector3d& x) const {
  Hit best{std::numeric_limits<double>::infinity(), Vector3d::Zero(), 0, 6};
  if (nodes_.empty()) return best;
  // median splits of 2^32 triangles nest 32 deep, and each level leaves one node behind
  std::array<std::pair<uint32_t, double>, 64> stack;
  size_t depth = 0;
  stack[depth++] = {0, nodes_[0].box.squaredExteriorDistance(x)};
  while (depth > 0) {
    const auto [index, box_dist_sq_m2] = stack[--depth];
    if (box_dist_sq_m2 >= best.dist_sq_m2) continue;
    const Node& node = nodes_[index];
    if (node.count > 0) {
      for (uint32_t s = node.first; s < node.first + node.count; ++s) {
        const auto& triangle = surface_.triangles[order_[s]];
        const auto [point, feature] =
            ClosestFeature(x, surface_.vertices[triangle[0]], surface_.vertices[triangle[1]], surface_.vertices[triangle[2]]);
        const double dist_sq_m2 = (x - point).squaredNorm();
        if (dist_sq_m2 < best.dist_sq_m2) best = {dist_sq_m2, point, order_[s], feature};
      }
      continue;
    }
    const uint32_t left = index + 1;
    const uint32_t right = node.first;
    const double left_sq_m2 = nodes_[left].box.squaredExteriorDistance(x);
    const double right_sq_m2 = nodes_[right].box.squaredExteriorDistance(x);
    // the nearer child is looked at first
    if (left_sq_m2 <= right_sq_m2) {
      stack[depth++] = {right, right_sq_m2};
      stack[depth++] = {left, left_sq_m2};
    } else {
      stack[depth++] = {left, left_sq_m2};
      stack[depth++] = {right, right_sq_m2};
    }
  }
  return best;
}

double SignedDistance::operator()(const Vector3d& x_m) const {
  const Hit hit = Closest(x_m);
  const auto& triangle = surface_.triangles[hit.triangle];
  const Vector3d& normal = hit.feature == 6   ? face_normals_[hit.triangle]
                           : hit.feature >= 3 ? edge_normals_[hit.triangle][hit.feature - 3]
                                              : vertex_normals_[triangle[hit.feature]];
  const double distance = std::sqrt(hit.dist_sq_m2);
  return (x_m - hit.point).dot(normal) < 0 ? -distance : distance;
}

Vector3d SignedDistance::ClosestPoint(const Vector3d& x_m) const { return Closest(x_m).point; }

absl::StatusOr<TetMesh> MeshSurface(const SurfaceMesh& surface, const StuffingOptions& options) {
  PALPATE_RETURN_IF_ERROR(CheckClosedSurface(surface));
  if (surface.triangles.empty()) return absl::InvalidArgumentError("surface: has no triangles, there is nothing to fill");
  Eigen::AlignedBox3d bounds;
  for (const auto& triangle : surface.triangles) {
    for (const uint32_t v : triangle) bounds.extend(surface.vertices[v]);
  }
  const SignedDistance distance(surface);
  StuffingOptions with_distance = options;
  with_distance.is_distance = true;
  return StuffIsosurface([&distance](const Vector3d& x) { return distance(x); }, bounds, with_distance);
}

}  // namespace palpate::sim
