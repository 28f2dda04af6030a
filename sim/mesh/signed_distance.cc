#include "sim/mesh/signed_distance.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <numbers>
#include <numeric>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "sim/mesh/exact_predicates.h"
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

SignedDistance::SignedDistance(const SurfaceMesh& surface, SideRule rule) : rule_(rule), surface_(surface) {
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
  if (rule_ == SideRule::kWindingNumber) return distance > 0 && WindingNumber(x_m) > 0 ? -distance : distance;
  return (x_m - hit.point).dot(normal) < 0 ? -distance : distance;
}

SignedDistance::Nearest SignedDistance::NearestTo(const Vector3d& x_m) const {
  const Hit hit = Closest(x_m);
  return {hit.point, hit.triangle};
}

Vector3d SignedDistance::ClosestPoint(const Vector3d& x_m) const { return Closest(x_m).point; }

std::optional<int> SignedDistance::Crossings(const Vector3d& x, const Vector3d& end) const {
  int crossings = 0;
  const Vector3d low = x.cwiseMin(end);
  const Vector3d high = x.cwiseMax(end);
  const Eigen::AlignedBox3d reach(low, high);
  const Vector3d direction = end - x;
  std::array<uint32_t, 64> stack;  // as in Closest
  size_t depth = 0;
  if (!nodes_.empty()) stack[depth++] = 0;
  while (depth > 0) {
    const uint32_t index = stack[--depth];
    const Node& node = nodes_[index];
    if (!node.box.intersects(reach)) continue;
    // A box that lies on one side of the segment's line, seen along an axis, is not met; a margin covers the rounding.
    bool is_apart = false;
    const Vector3d middle = node.box.center() - x;
    const Vector3d half = 0.5 * node.box.sizes();
    for (int axis = 0; axis < 3 && !is_apart; ++axis) {
      const int u = (axis + 1) % 3;
      const int v = (axis + 2) % 3;
      const double reach_u = half[u] * std::abs(direction[v]) + half[v] * std::abs(direction[u]);
      const double scale =
          (std::abs(middle[u]) + half[u]) * std::abs(direction[v]) + (std::abs(middle[v]) + half[v]) * std::abs(direction[u]);
      is_apart = std::abs(middle[u] * direction[v] - middle[v] * direction[u]) > reach_u + 1e-12 * scale;
    }
    if (is_apart) continue;
    if (node.count == 0) {
      stack[depth++] = node.first;
      stack[depth++] = index + 1;
      continue;
    }
    for (uint32_t s = node.first; s < node.first + node.count; ++s) {
      const auto& [i, j, k] = surface_.triangles[order_[s]];
      const Vector3d &a = surface_.vertices[i], &b = surface_.vertices[j], &c = surface_.vertices[k];
      const int ab = Orient3d(x, end, a, b);
      const int bc = Orient3d(x, end, b, c);
      const int ca = Orient3d(x, end, c, a);
      if ((ab < 0 || bc < 0 || ca < 0) && (ab > 0 || bc > 0 || ca > 0)) continue;
      const int side_x = Orient3d(a, b, c, x);
      const int side_end = Orient3d(a, b, c, end);
      if (side_x * side_end > 0) continue;
      if (ab == 0 || bc == 0 || ca == 0 || side_x == 0 || side_end == 0) return std::nullopt;
      crossings += side_x < 0 ? 1 : -1;  // behind the face: the segment leaves here
    }
  }
  return crossings;
}

int SignedDistance::WindingNumber(const Vector3d& x_m) const {
  if (nodes_.empty() || !nodes_[0].box.contains(x_m)) return 0;
  // No two of these are parallel to a plane that modelling programs like.
  constexpr std::array<std::array<double, 3>, 6> kDirections = {{{0.8137, 0.4713, 0.3401},
                                                                 {-0.2909, 0.7019, 0.6503},
                                                                 {0.3571, -0.6143, 0.7039},
                                                                 {-0.6101, -0.5519, 0.5687},
                                                                 {0.1877, 0.2473, -0.9507},
                                                                 {-0.9203, 0.1301, -0.3691}}};
  const double reach_m = 2 * nodes_[0].box.diagonal().norm();
  for (const auto& d : kDirections) {
    if (const auto crossings = Crossings(x_m, x_m + reach_m * Vector3d(d[0], d[1], d[2]))) return *crossings;
  }
  // Every ray meets an edge: the sum of the solid angles (Van Oosterom and Strackee 1983) is slow and rounded, but needs no ray.
  double angle = 0;
  for (const auto& [i, j, k] : surface_.triangles) {
    const Vector3d a = surface_.vertices[i] - x_m;
    const Vector3d b = surface_.vertices[j] - x_m;
    const Vector3d c = surface_.vertices[k] - x_m;
    const double la = a.norm();
    const double lb = b.norm();
    const double lc = c.norm();
    angle += 2 * std::atan2(a.dot(b.cross(c)), la * lb * lc + a.dot(b) * lc + b.dot(c) * la + c.dot(a) * lb);
  }
  return static_cast<int>(std::lround(angle / (4 * std::numbers::pi)));
}

absl::StatusOr<TetMesh> MeshSurface(const SurfaceMesh& surface, const StuffingOptions& options, uint64_t max_self_intersections) {
  PALPATE_RETURN_IF_ERROR(CheckClosedSurface(surface, max_self_intersections));
  if (surface.triangles.empty()) return absl::InvalidArgumentError("surface: has no triangles, there is nothing to fill");
  Eigen::AlignedBox3d bounds;
  for (const auto& triangle : surface.triangles) {
    for (const uint32_t v : triangle) bounds.extend(surface.vertices[v]);
  }
  const SignedDistance distance(surface, max_self_intersections > 0 ? SideRule::kWindingNumber : SideRule::kPseudoNormal);
  StuffingOptions with_distance = options;
  with_distance.is_distance = true;
  return StuffIsosurface([&distance](const Vector3d& x) { return distance(x); }, bounds, with_distance);
}

}  // namespace palpate::sim
