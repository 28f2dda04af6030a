#include "bench/bench_view_peers.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>

namespace palpate::bench {
namespace {

using Vector = std::array<double, 3>;

// Axes of the 16-DOP: coordinates, then five diagonals.
constexpr float kAxes[8][3] = {{1, 0, 0}, {0, 1, 0}, {0, 0, 1}, {1, 1, 0}, {1, -1, 0}, {1, 0, 1}, {1, 0, -1}, {0, 1, 1}};

Vector Corner(const std::vector<float>& positions, uint32_t v) { return {positions[3 * v], positions[3 * v + 1], positions[3 * v + 2]}; }
Vector Sub(const Vector& a, const Vector& b) { return {a[0] - b[0], a[1] - b[1], a[2] - b[2]}; }
Vector Add(const Vector& a, const Vector& b) { return {a[0] + b[0], a[1] + b[1], a[2] + b[2]}; }
double Dot(const Vector& a, const Vector& b) { return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]; }
Vector Cross(const Vector& a, const Vector& b) { return {a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]}; }
Vector Unit(const Vector& a) {
  const double length = std::sqrt(Dot(a, a));
  return length > 0 ? Vector{a[0] / length, a[1] / length, a[2] / length} : Vector{};
}

}  // namespace

TriangleTree::TriangleTree(Volume volume, Culling culling, const std::vector<std::array<uint32_t, 3>>& triangles,
                           const std::vector<float>& positions_m)
    : volume_(volume), culling_(culling), sides_(volume == Volume::kAabb ? 6 : 16), triangles_(triangles), order_(triangles.size()) {
  std::iota(order_.begin(), order_.end(), 0U);
  nodes_.reserve(2 * triangles.size());
  nodes_.push_back({.first = 0, .last = static_cast<uint32_t>(triangles.size()), .left = 0, .contour = {}});
  Split(0, positions_m);
  volumes_.resize(nodes_.size() * sides_);
  if (culling_ == Culling::kNormalCones) {
    cones_.resize(nodes_.size());
    FindContours();
  }
}

void TriangleTree::Split(uint32_t node, const std::vector<float>& positions_m) {
  const uint32_t first = nodes_[node].first, last = nodes_[node].last;
  if (last - first <= 1) return;
  const auto centre = [&](uint32_t t, size_t k) {
    float sum = 0;
    for (const uint32_t v : triangles_[t]) sum += positions_m[3 * v + k];
    return sum;
  };
  size_t axis = 0;
  float longest = -1;
  for (size_t k = 0; k < 3; ++k) {
    float least = std::numeric_limits<float>::infinity(), most = -least;
    for (uint32_t i = first; i < last; ++i) {
      least = std::min(least, centre(order_[i], k));
      most = std::max(most, centre(order_[i], k));
    }
    if (most - least > longest) {
      longest = most - least;
      axis = k;
    }
  }
  const uint32_t middle = (first + last) / 2;
  std::nth_element(order_.begin() + first, order_.begin() + middle, order_.begin() + last,
                   [&](uint32_t a, uint32_t b) { return centre(a, axis) < centre(b, axis); });
  const auto left = static_cast<uint32_t>(nodes_.size());
  nodes_[node].left = left;
  nodes_.push_back({.first = first, .last = middle, .left = 0, .contour = {}});
  nodes_.push_back({.first = middle, .last = last, .left = 0, .contour = {}});
  Split(left, positions_m);
  Split(left + 1, positions_m);
}

void TriangleTree::FindContours() {
  for (size_t n = nodes_.size(); n-- > 0;) {
    Node& node = nodes_[n];
    std::map<std::array<uint32_t, 2>, int> edges;
    const auto add = [&](uint32_t a, uint32_t b) { ++edges[{std::min(a, b), std::max(a, b)}]; };
    if (node.left == 0) {
      const auto& t = triangles_[order_[node.first]];
      for (size_t k = 0; k < 3; ++k) add(t[k], t[(k + 1) % 3]);
    } else {
      for (const uint32_t child : {node.left, node.left + 1}) {
        for (const auto& edge : nodes_[child].contour) add(edge[0], edge[1]);
      }
    }
    for (const auto& [edge, count] : edges) {
      if (count == 1) node.contour.push_back(edge);
    }
  }
}

void TriangleTree::Refit(const std::vector<float>& starts_m, const std::vector<float>& ends_m) {
  for (size_t n = nodes_.size(); n-- > 0;) {
    const Node& node = nodes_[n];
    float* volume = &volumes_[n * sides_];
    if (node.left != 0) {
      const float* left = &volumes_[size_t{node.left} * sides_];
      const float* right = left + sides_;
      for (uint32_t k = 0; k < sides_; k += 2) {
        volume[k] = std::min(left[k], right[k]);
        volume[k + 1] = std::max(left[k + 1], right[k + 1]);
      }
    } else {
      for (uint32_t k = 0; k < sides_; k += 2) {
        volume[k] = std::numeric_limits<float>::infinity();
        volume[k + 1] = -volume[k];
      }
      for (const uint32_t v : triangles_[order_[node.first]]) {
        for (const float* p : {&starts_m[size_t{3} * v], &ends_m[size_t{3} * v]}) {
          for (uint32_t k = 0; k < sides_; k += 2) {
            const float* axis = kAxes[k / 2];
            const float value = axis[0] * p[0] + axis[1] * p[1] + axis[2] * p[2];
            volume[k] = std::min(volume[k], value);
            volume[k + 1] = std::max(volume[k + 1], value);
          }
        }
      }
    }
    if (culling_ != Culling::kNormalCones) continue;
    Cone& cone = cones_[n];
    if (node.left == 0) {
      // Bernstein coefficients of the normal span it over the step.
      const auto& t = triangles_[order_[node.first]];
      const Vector a0 = Corner(starts_m, t[0]), a1 = Corner(ends_m, t[0]);
      const Vector x0 = Sub(Corner(starts_m, t[1]), a0), x1 = Sub(Corner(ends_m, t[1]), a1);
      const Vector y0 = Sub(Corner(starts_m, t[2]), a0), y1 = Sub(Corner(ends_m, t[2]), a1);
      const Vector normals[3] = {Unit(Cross(x0, y0)), Unit(Add(Cross(x0, y1), Cross(x1, y0))), Unit(Cross(x1, y1))};
      cone.axis = Unit(Add(Add(normals[0], normals[1]), normals[2]));
      cone.cosine = 1;
      for (const Vector& normal : normals) cone.cosine = std::min(cone.cosine, Dot(normal, cone.axis));
    } else {
      const Cone &left = cones_[node.left], &right = cones_[node.left + 1];
      cone.cosine = -1;
      if (left.cosine > 0 && right.cosine > 0) {
        cone.axis = Unit(Add(left.axis, right.axis));
        const auto angle = [&](const Cone& c) {
          return std::acos(std::clamp(Dot(c.axis, cone.axis), -1.0, 1.0)) + std::acos(std::clamp(c.cosine, -1.0, 1.0));
        };
        cone.cosine = std::cos(std::min(std::max(angle(left), angle(right)), 3.0));
      }
    }
  }
}

bool TriangleTree::Overlap(uint32_t a, uint32_t b) {
  ++counts_.overlap_tests;
  const float* p = &volumes_[size_t{a} * sides_];
  const float* q = &volumes_[size_t{b} * sides_];
  for (uint32_t k = 0; k < sides_; k += 2) {
    if (p[k] > q[k + 1] || q[k] > p[k + 1]) return false;
  }
  return true;
}

// The normals lie in a half space, and no two edges of the contour that share no vertex come together in projection along the axis.
bool TriangleTree::IsFlat(uint32_t node, const std::vector<float>& starts_m, const std::vector<float>& ends_m) {
  const Cone& cone = cones_[node];
  if (!(cone.cosine > 0.02)) return false;
  if (nodes_[node].last - nodes_[node].first == 1) return true;
  const Vector side = Unit(std::abs(cone.axis[0]) < 0.6 ? Cross(cone.axis, {1, 0, 0}) : Cross(cone.axis, {0, 1, 0}));
  const Vector up = Cross(cone.axis, side);
  struct Swept {
    double x0, x1, y0, y1;
    std::array<uint32_t, 2> edge;
  };
  std::vector<Swept> swept;
  for (const auto& edge : nodes_[node].contour) {
    Swept s = {1e300, -1e300, 1e300, -1e300, edge};
    for (const uint32_t v : edge) {
      for (const auto* positions : {&starts_m, &ends_m}) {
        const Vector p = Corner(*positions, v);
        const double x = Dot(p, side), y = Dot(p, up);
        s.x0 = std::min(s.x0, x);
        s.x1 = std::max(s.x1, x);
        s.y0 = std::min(s.y0, y);
        s.y1 = std::max(s.y1, y);
      }
    }
    swept.push_back(s);
  }
  std::sort(swept.begin(), swept.end(), [](const Swept& a, const Swept& b) { return a.x0 < b.x0; });
  for (size_t i = 0; i < swept.size(); ++i) {
    for (size_t j = i + 1; j < swept.size() && swept[j].x0 <= swept[i].x1; ++j) {
      const auto &a = swept[i].edge, &b = swept[j].edge;
      if (a[0] == b[0] || a[0] == b[1] || a[1] == b[0] || a[1] == b[1]) continue;
      if (swept[j].y0 <= swept[i].y1 && swept[i].y0 <= swept[j].y1) return false;
    }
  }
  return true;
}

void TriangleTree::Within(uint32_t node, const std::vector<float>& starts_m, const std::vector<float>& ends_m) {
  if (nodes_[node].left == 0) return;
  if (culling_ == Culling::kNormalCones && IsFlat(node, starts_m, ends_m)) {
    ++counts_.cones;
    return;
  }
  const uint32_t left = nodes_[node].left;
  Within(left, starts_m, ends_m);
  Within(left + 1, starts_m, ends_m);
  Between(left, left + 1);
}

void TriangleTree::Between(uint32_t a, uint32_t b) {
  if (!Overlap(a, b)) return;
  if (nodes_[a].left == 0 && nodes_[b].left == 0) {
    const auto &s = triangles_[order_[nodes_[a].first]], &t = triangles_[order_[nodes_[b].first]];
    int shared = 0;
    for (const uint32_t v : s) shared += v == t[0] || v == t[1] || v == t[2] ? 1 : 0;
    counts_.pairs += shared < 2 ? 1 : 0;
    return;
  }
  // The larger one is opened.
  const bool opens_a = nodes_[b].left == 0 || (nodes_[a].left != 0 && nodes_[a].last - nodes_[a].first >= nodes_[b].last - nodes_[b].first);
  const uint32_t left = nodes_[opens_a ? a : b].left;
  for (const uint32_t child : {left, left + 1}) opens_a ? Between(child, b) : Between(a, child);
}

TriangleTree::Counts TriangleTree::Step(const std::vector<float>& starts_m, const std::vector<float>& ends_m) {
  counts_ = {};
  Refit(starts_m, ends_m);
  Within(0, starts_m, ends_m);
  return counts_;
}

}  // namespace palpate::bench
