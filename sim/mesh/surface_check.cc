#include "sim/mesh/surface_check.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numbers>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <Eigen/Geometry>

#include "absl/strings/str_format.h"
#include "sim/mesh/exact_predicates.h"

namespace palpate::sim {
namespace {

using Eigen::Vector2d;
using Eigen::Vector3d;
using Triangle = std::array<uint32_t, 3>;

constexpr double kMaxCoordinate = 1e30;       // cubes of it stay far from overflow, so the predicates are exact
constexpr double kMinRelativeArea = 1e-12;    // twice the area over the longest edge squared
constexpr double kMinRelativeVolume = 1e-13;  // of the sum of what its terms could be: less is rounding, and has any sign
constexpr uint32_t kLeafSize = 4;

std::string FormatPoint(const Vector3d& p) { return absl::StrFormat("(%.9g, %.9g, %.9g)", p.x(), p.y(), p.z()); }

std::string FormatTriangle(const SurfaceMesh& surface, size_t t) {
  const Triangle& v = surface.triangles[t];
  return absl::StrFormat("triangle %d (vertices %d %d %d)", t, v[0], v[1], v[2]);
}

Vector3d Centroid(const SurfaceMesh& surface, size_t t) {
  const Triangle& v = surface.triangles[t];
  return (surface.vertices[v[0]] + surface.vertices[v[1]] + surface.vertices[v[2]]) / 3.0;
}

// Twice the area vector of a triangle.
Vector3d AreaVector(const SurfaceMesh& surface, size_t t) {
  const Triangle& v = surface.triangles[t];
  return (surface.vertices[v[1]] - surface.vertices[v[0]]).cross(surface.vertices[v[2]] - surface.vertices[v[0]]);
}

absl::Status CheckElements(const SurfaceMesh& surface) {
  constexpr size_t kMaxCount = std::numeric_limits<uint32_t>::max();
  if (surface.triangles.empty()) return absl::InvalidArgumentError("the surface has no triangles");
  if (surface.vertices.size() > kMaxCount || surface.triangles.size() > kMaxCount / 3) {
    return absl::InvalidArgumentError(absl::StrFormat("%d vertices and %d triangles are more than 32-bit indices hold",
                                                      surface.vertices.size(), surface.triangles.size()));
  }
  for (size_t v = 0; v < surface.vertices.size(); ++v) {
    const Vector3d& p = surface.vertices[v];
    if (!p.allFinite() || p.cwiseAbs().maxCoeff() > kMaxCoordinate) {
      return absl::InvalidArgumentError(
          absl::StrFormat("vertex %d at %s is not finite or beyond %g of zero", v, FormatPoint(p), kMaxCoordinate));
    }
  }
  for (size_t t = 0; t < surface.triangles.size(); ++t) {
    const Triangle& v = surface.triangles[t];
    for (const uint32_t index : v) {
      if (index >= surface.vertices.size()) {
        return absl::InvalidArgumentError(
            absl::StrFormat("%s: vertex index %d, but there are %d vertices", FormatTriangle(surface, t), index, surface.vertices.size()));
      }
    }
    if (v[0] == v[1] || v[1] == v[2] || v[2] == v[0]) {
      return absl::InvalidArgumentError(
          absl::StrFormat("%s uses a vertex twice, at %s", FormatTriangle(surface, t), FormatPoint(surface.vertices[v[0]])));
    }
    double longest_sq_m2 = 0.0;
    for (int k = 0; k < 3; ++k) {
      longest_sq_m2 = std::max(longest_sq_m2, (surface.vertices[v[k]] - surface.vertices[v[(k + 1) % 3]]).squaredNorm());
    }
    if (!(AreaVector(surface, t).norm() > kMinRelativeArea * longest_sq_m2)) {
      return absl::InvalidArgumentError(absl::StrFormat("%s at %s is degenerate: its corners lie on a line", FormatTriangle(surface, t),
                                                        FormatPoint(Centroid(surface, t))));
    }
  }
  return absl::OkStatus();
}

struct HalfEdge {
  uint32_t low;
  uint32_t high;
  uint32_t triangle;
  bool is_upward;  // the triangle runs from low to high
};

// Joins triangles that share an edge; Find gives one number per connected part.
class Components {
 public:
  explicit Components(size_t count) : parents_(count) { std::iota(parents_.begin(), parents_.end(), 0U); }
  uint32_t Find(uint32_t i) {
    while (parents_[i] != i) i = parents_[i] = parents_[parents_[i]];
    return i;
  }
  // The smaller number stays, so the representative of a part is its first triangle.
  void Join(uint32_t a, uint32_t b) {
    a = Find(a);
    b = Find(b);
    parents_[std::max(a, b)] = std::min(a, b);
  }

 private:
  std::vector<uint32_t> parents_;
};

absl::Status CheckEdges(const SurfaceMesh& surface, Components& components) {
  std::vector<HalfEdge> edges;
  edges.reserve(3 * surface.triangles.size());
  for (uint32_t t = 0; t < surface.triangles.size(); ++t) {
    for (int k = 0; k < 3; ++k) {
      const uint32_t a = surface.triangles[t][k];
      const uint32_t b = surface.triangles[t][(k + 1) % 3];
      edges.push_back({std::min(a, b), std::max(a, b), t, a < b});
    }
  }
  std::sort(edges.begin(), edges.end(), [](const HalfEdge& a, const HalfEdge& b) {
    if (a.low != b.low) return a.low < b.low;
    if (a.high != b.high) return a.high < b.high;
    return a.triangle < b.triangle;
  });
  for (size_t i = 0; i < edges.size();) {
    size_t end = i + 1;
    while (end < edges.size() && edges[end].low == edges[i].low && edges[end].high == edges[i].high) ++end;
    const HalfEdge& edge = edges[i];
    const std::string where = end - i == 2 && edge.is_upward != edges[i + 1].is_upward
                                  ? std::string()
                                  : absl::StrFormat("edge %d-%d at %s", edge.low, edge.high,
                                                    FormatPoint((surface.vertices[edge.low] + surface.vertices[edge.high]) / 2.0));
    if (end - i == 1) {
      return absl::InvalidArgumentError(absl::StrFormat("open: %s belongs to triangle %d alone", where, edge.triangle));
    }
    if (end - i > 2) {
      return absl::InvalidArgumentError(absl::StrFormat("not a manifold: %s belongs to %d triangles (%d, %d, %d...), must be 2", where,
                                                        end - i, edge.triangle, edges[i + 1].triangle, edges[i + 2].triangle));
    }
    if (edge.is_upward == edges[i + 1].is_upward) {
      return absl::InvalidArgumentError(absl::StrFormat("inconsistent orientation: triangles %d and %d run along %s in the same direction",
                                                        edge.triangle, edges[i + 1].triangle, where));
    }
    components.Join(edge.triangle, edges[i + 1].triangle);
    i = end;
  }
  return absl::OkStatus();
}

struct Box {
  Vector3d min = Vector3d::Constant(std::numeric_limits<double>::infinity());
  Vector3d max = Vector3d::Constant(-std::numeric_limits<double>::infinity());

  void Extend(const Vector3d& p) {
    min = min.cwiseMin(p);
    max = max.cwiseMax(p);
  }
  void Extend(const Box& box) {
    min = min.cwiseMin(box.min);
    max = max.cwiseMax(box.max);
  }
  bool Contains(const Vector3d& p) const { return (min.array() <= p.array()).all() && (p.array() <= max.array()).all(); }
  bool Overlaps(const Box& box) const { return (min.array() <= box.max.array()).all() && (box.min.array() <= max.array()).all(); }
};

Box TriangleBox(const SurfaceMesh& surface, size_t t) {
  Box box;
  for (const uint32_t v : surface.triangles[t]) box.Extend(surface.vertices[v]);
  return box;
}

// Meeting of a segment and a plane triangle, both closed, in a common plane of normal `normal`.
bool SegmentMeetsTriangleInPlane(const Vector3d& p, const Vector3d& q, const std::array<Vector3d, 3>& triangle, const Vector3d& normal) {
  int axis = 0;
  normal.cwiseAbs().maxCoeff(&axis);
  const auto flat = [axis](const Vector3d& x) { return Vector2d(x[(axis + 1) % 3], x[(axis + 2) % 3]); };
  const Vector2d p2 = flat(p);
  const Vector2d q2 = flat(q);
  std::array<Vector2d, 3> corners = {flat(triangle[0]), flat(triangle[1]), flat(triangle[2])};
  if (Orient2d(corners[0], corners[1], corners[2]) < 0) std::swap(corners[1], corners[2]);
  // If they are apart, an edge of the triangle or the segment itself separates them: these are the directions of the Minkowski difference.
  for (int k = 0; k < 3; ++k) {
    if (Orient2d(corners[k], corners[(k + 1) % 3], p2) < 0 && Orient2d(corners[k], corners[(k + 1) % 3], q2) < 0) return false;
  }
  const std::array<int, 3> sides = {Orient2d(p2, q2, corners[0]), Orient2d(p2, q2, corners[1]), Orient2d(p2, q2, corners[2])};
  return *std::min_element(sides.begin(), sides.end()) <= 0 && *std::max_element(sides.begin(), sides.end()) >= 0;
}

// The middle of the part of a segment that lies in a triangle of its plane, rounded.
Vector3d MiddleInTriangle(const Vector3d& p, const Vector3d& q, const std::array<Vector3d, 3>& triangle, const Vector3d& normal) {
  double first = 0.0;
  double last = 1.0;
  for (int k = 0; k < 3; ++k) {
    const Vector3d inward = normal.cross(triangle[(k + 1) % 3] - triangle[k]);
    const double inside_p = inward.dot(p - triangle[k]);
    const double inside_q = inward.dot(q - triangle[k]);
    if (inside_p < 0.0 && inside_q > inside_p) first = std::max(first, inside_p / (inside_p - inside_q));
    if (inside_q < 0.0 && inside_p > inside_q) last = std::min(last, inside_p / (inside_p - inside_q));
  }
  return p + std::clamp((first + last) / 2.0, 0.0, 1.0) * (q - p);
}

// A point where the closed segment pq meets the closed triangle, if it does. Which is decided exactly, the point is rounded.
std::optional<Vector3d> SegmentMeetsTriangle(const Vector3d& p, const Vector3d& q, const std::array<Vector3d, 3>& triangle) {
  const auto& [a, b, c] = triangle;
  const int side_p = Orient3d(a, b, c, p);
  const int side_q = Orient3d(a, b, c, q);
  if (side_p * side_q > 0) return std::nullopt;
  const Vector3d normal = (b - a).cross(c - a);
  if (side_p == 0 && side_q == 0) {
    if (!SegmentMeetsTriangleInPlane(p, q, triangle, normal)) return std::nullopt;
    return MiddleInTriangle(p, q, triangle, normal);
  }
  const int ab = Orient3d(p, q, a, b);
  const int bc = Orient3d(p, q, b, c);
  const int ca = Orient3d(p, q, c, a);
  if ((ab < 0 || bc < 0 || ca < 0) && (ab > 0 || bc > 0 || ca > 0)) return std::nullopt;
  const double height_p = std::abs(normal.dot(p - a));
  const double height_q = std::abs(normal.dot(q - a));
  const double t = height_p + height_q > 0.0 ? height_p / (height_p + height_q) : 0.5;
  return p + t * (q - p);
}

class SelfIntersection {
 public:
  explicit SelfIntersection(const SurfaceMesh& surface) : surface_(surface), order_(surface.triangles.size()) {
    std::iota(order_.begin(), order_.end(), 0U);
    boxes_.reserve(order_.size());
    for (size_t t = 0; t < order_.size(); ++t) boxes_.push_back(TriangleBox(surface, t));
    nodes_.reserve(2 * order_.size() / kLeafSize + 1);
    Build(0, static_cast<uint32_t>(order_.size()));
  }

  uint64_t count() const { return count_; }

  // Whether no more than `allowed` pairs meet.
  absl::Status Check(uint64_t allowed) {
    // Far more than a repair by tolerance is for; a surface that is folded all over would have a square of pairs.
    limit_ = std::max(allowed, kMaxCounted);
    CountWithin(0);
    if (count_ <= allowed) return absl::OkStatus();
    const std::string tail = count_ > limit_
                                 ? absl::StrFormat("more than %d pairs of triangles do", limit_)
                                 : absl::StrFormat(
                                       "%d such pair(s) in all; `palpate mesh from-surface --allow-self-intersections %d` fills what "
                                       "the surface encloses as a whole",
                                       count_, count_);
    return absl::InvalidArgumentError(absl::StrFormat("%s; %s", first_, tail));
  }

 private:
  static constexpr uint64_t kMaxCounted = 1000;

  struct Node {
    Box box;
    uint32_t first = 0;  // leaf: range of order_; else the two children
    uint32_t second = 0;
    bool is_leaf = false;
  };

  uint32_t Build(uint32_t begin, uint32_t end) {
    const auto index = static_cast<uint32_t>(nodes_.size());
    nodes_.emplace_back();
    Node node;
    Box centers;
    for (uint32_t i = begin; i < end; ++i) {
      node.box.Extend(boxes_[order_[i]]);
      centers.Extend(Center(order_[i]));
    }
    if (end - begin <= kLeafSize) {
      node.first = begin;
      node.second = end;
      node.is_leaf = true;
    } else {
      int axis = 0;
      (centers.max - centers.min).maxCoeff(&axis);
      const uint32_t middle = begin + (end - begin) / 2;
      std::nth_element(order_.begin() + begin, order_.begin() + middle, order_.begin() + end, [this, axis](uint32_t a, uint32_t b) {
        const double center_a = Center(a)[axis];
        const double center_b = Center(b)[axis];
        return center_a != center_b ? center_a < center_b : a < b;
      });
      node.first = Build(begin, middle);
      node.second = Build(middle, end);
    }
    nodes_[index] = node;
    return index;
  }

  Vector3d Center(uint32_t t) const { return boxes_[t].min + boxes_[t].max; }

  // The counts end one above the limit.
  void CountWithin(uint32_t index) {
    if (count_ > limit_) return;
    const Node& node = nodes_[index];
    if (!node.is_leaf) {
      CountWithin(node.first);
      CountWithin(node.second);
      CountBetween(node.first, node.second);
      return;
    }
    for (uint32_t i = node.first; i < node.second; ++i) {
      for (uint32_t k = i + 1; k < node.second; ++k) CountPair(order_[i], order_[k]);
    }
  }

  void CountBetween(uint32_t a_index, uint32_t b_index) {
    const Node& a = nodes_[a_index];
    const Node& b = nodes_[b_index];
    if (count_ > limit_ || !a.box.Overlaps(b.box)) return;
    if (a.is_leaf && b.is_leaf) {
      for (uint32_t i = a.first; i < a.second; ++i) {
        for (uint32_t k = b.first; k < b.second; ++k) CountPair(order_[i], order_[k]);
      }
      return;
    }
    if (b.is_leaf || (!a.is_leaf && (a.box.max - a.box.min).squaredNorm() > (b.box.max - b.box.min).squaredNorm())) {
      CountBetween(a.first, b_index);
      CountBetween(a.second, b_index);
      return;
    }
    CountBetween(a_index, b.first);
    CountBetween(a_index, b.second);
  }

  void CountPair(uint32_t s, uint32_t t) {
    if (!boxes_[s].Overlaps(boxes_[t])) return;
    const auto where = Meeting(s, t);
    if (!where) return;
    if (count_++ > 0) return;
    first_ = absl::StrFormat("self-intersection at %s: %s meets %s", FormatPoint(*where), FormatTriangle(surface_, std::min(s, t)),
                             FormatTriangle(surface_, std::max(s, t)));
  }

  std::array<Vector3d, 3> Corners(uint32_t t) const {
    const Triangle& v = surface_.triangles[t];
    return {surface_.vertices[v[0]], surface_.vertices[v[1]], surface_.vertices[v[2]]};
  }

  // A common point of two triangles other than the vertices and the edge that they share by index.
  std::optional<Vector3d> Meeting(uint32_t s, uint32_t t) const {
    // Rotations of the corners that bring the shared ones to the front.
    std::array<int, 3> shared_s = {};
    std::array<int, 3> shared_t = {};
    int shared = 0;
    for (int i = 0; i < 3; ++i) {
      for (int k = 0; k < 3; ++k) {
        if (surface_.triangles[s][i] != surface_.triangles[t][k]) continue;
        shared_s[shared] = i;
        shared_t[shared] = k;
        ++shared;
      }
    }
    const std::array<Vector3d, 3> a = Corners(s);
    const std::array<Vector3d, 3> b = Corners(t);
    if (shared == 3) return (a[0] + a[1] + a[2]) / 3.0;
    if (shared == 2) return FoldedMeeting(a, 3 - shared_s[0] - shared_s[1], b[3 - shared_t[0] - shared_t[1]]);
    if (shared == 1) {
      // What the triangles have in common besides the corner reaches the edge opposite it in one of them.
      const auto& p = a[(shared_s[0] + 1) % 3];
      const auto& q = a[(shared_s[0] + 2) % 3];
      if (const auto where = SegmentMeetsTriangle(p, q, b)) return where;
      return SegmentMeetsTriangle(b[(shared_t[0] + 1) % 3], b[(shared_t[0] + 2) % 3], a);
    }
    if (IsOnOneSide(a, b) || IsOnOneSide(b, a)) return std::nullopt;
    for (int k = 0; k < 3; ++k) {
      if (const auto where = SegmentMeetsTriangle(a[k], a[(k + 1) % 3], b)) return where;
      if (const auto where = SegmentMeetsTriangle(b[k], b[(k + 1) % 3], a)) return where;
    }
    return std::nullopt;
  }

  static bool IsOnOneSide(const std::array<Vector3d, 3>& plane, const std::array<Vector3d, 3>& points) {
    const int side = Orient3d(plane[0], plane[1], plane[2], points[0]);
    return side != 0 && Orient3d(plane[0], plane[1], plane[2], points[1]) == side &&
           Orient3d(plane[0], plane[1], plane[2], points[2]) == side;
  }

  // Two triangles on a common edge meet elsewhere only if one is folded flat onto the other.
  static std::optional<Vector3d> FoldedMeeting(const std::array<Vector3d, 3>& a, int apex, const Vector3d& other_apex) {
    if (Orient3d(a[0], a[1], a[2], other_apex) != 0) return std::nullopt;
    int axis = 0;
    (a[1] - a[0]).cross(a[2] - a[0]).cwiseAbs().maxCoeff(&axis);
    const auto flat = [axis](const Vector3d& x) { return Vector2d(x[(axis + 1) % 3], x[(axis + 2) % 3]); };
    const Vector2d p = flat(a[(apex + 1) % 3]);
    const Vector2d q = flat(a[(apex + 2) % 3]);
    if (Orient2d(p, q, flat(a[apex])) * Orient2d(p, q, flat(other_apex)) <= 0) return std::nullopt;
    return (a[(apex + 1) % 3] + a[(apex + 2) % 3]) / 2.0;
  }

  const SurfaceMesh& surface_;
  std::vector<uint32_t> order_;  // triangles, a leaf's next to each other
  std::vector<Box> boxes_;
  std::vector<Node> nodes_;
  uint64_t limit_ = 0;
  uint64_t count_ = 0;
  std::string first_;  // the first meeting, for people
};

// Solid angle of a triangle seen from a point, positive from the inside. Source: Van Oosterom and Strackee 1983.
double SolidAngle(const Vector3d& a, const Vector3d& b, const Vector3d& c) {
  const double la = a.norm();
  const double lb = b.norm();
  const double lc = c.norm();
  return 2.0 * std::atan2(a.dot(b.cross(c)), la * lb * lc + a.dot(b) * lc + b.dot(c) * la + c.dot(a) * lb);
}

// With `may_overlap` the parts of a surface that meets itself may lie in each other as they like, as long as none takes away from nothing.
absl::Status CheckOrientation(const SurfaceMesh& surface, Components& components, bool may_overlap) {
  struct Part {
    Box box;
    std::vector<uint32_t> triangles;
    double volume = 0.0;
    double most_volume = 0.0;
    uint32_t largest = 0;
    double largest_area = 0.0;
  };
  std::vector<Part> parts;
  std::vector<uint32_t> part_of(surface.triangles.size());
  for (uint32_t t = 0; t < surface.triangles.size(); ++t) {
    const uint32_t root = components.Find(t);
    if (root == t) {
      part_of[t] = static_cast<uint32_t>(parts.size());
      parts.emplace_back();
    }
    part_of[t] = part_of[root];
    Part& part = parts[part_of[t]];
    part.triangles.push_back(t);
    part.box.Extend(TriangleBox(surface, t));
    // Relative to a corner of the part, so that a part far from the origin keeps its digits.
    const Vector3d& origin = surface.vertices[surface.triangles[root][0]];
    const Triangle& v = surface.triangles[t];
    const Vector3d a = surface.vertices[v[0]] - origin, b = surface.vertices[v[1]] - origin, c = surface.vertices[v[2]] - origin;
    part.volume += a.cross(b).dot(c) / 6.0;
    part.most_volume += a.norm() * b.norm() * c.norm() / 6.0;
    const double area = AreaVector(surface, t).norm();
    if (area > part.largest_area) {
      part.largest = t;
      part.largest_area = area;
    }
  }
  for (size_t i = 0; i < parts.size(); ++i) {
    const Part& part = parts[i];
    if (!(std::abs(part.volume) > kMinRelativeVolume * part.most_volume)) {
      return absl::InvalidArgumentError(absl::StrFormat("the part with %s encloses no volume", FormatTriangle(surface, part.triangles[0])));
    }
    // How many other parts this one is inside of, counted with their signs; a part whose box does not hold the point adds nothing.
    const Vector3d point = Centroid(surface, part.largest);
    double angle = 0.0;
    for (size_t k = 0; k < parts.size(); ++k) {
      if (k == i || !parts[k].box.Contains(point)) continue;
      for (const uint32_t t : parts[k].triangles) {
        const Triangle& v = surface.triangles[t];
        angle += SolidAngle(surface.vertices[v[0]] - point, surface.vertices[v[1]] - point, surface.vertices[v[2]] - point);
      }
    }
    const auto depth = std::lround(angle / (4.0 * std::numbers::pi));
    const long wanted = part.volume > 0.0 ? 0 : 1;
    if (depth == wanted || (may_overlap && depth >= wanted)) continue;
    const std::string what = absl::StrFormat("%s at %s", FormatTriangle(surface, part.largest), FormatPoint(point));
    if (wanted == 1) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "inward orientation: normals point into the solid, e.g. of %s (enclosed volume %.6g, must be positive)", what, part.volume));
    }
    return absl::InvalidArgumentError(absl::StrFormat(
        "nested parts: the closed part with %s lies inside another one and is turned outward as well; a cavity must be turned inward",
        what));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckClosedSurface(const SurfaceMesh& surface, uint64_t max_self_intersections) {
  PALPATE_RETURN_IF_ERROR(CheckElements(surface));
  Components components(surface.triangles.size());
  PALPATE_RETURN_IF_ERROR(CheckEdges(surface, components));
  SelfIntersection intersections(surface);
  PALPATE_RETURN_IF_ERROR(intersections.Check(max_self_intersections));
  return CheckOrientation(surface, components, /*may_overlap=*/intersections.count() > 0);
}

}  // namespace palpate::sim
