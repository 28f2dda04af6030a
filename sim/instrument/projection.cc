#include "sim/instrument/projection.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <utility>

#include <Eigen/Geometry>

namespace palpate::sim {
namespace {

using Eigen::Matrix3d;
using Eigen::Vector2d;
using Eigen::Vector3d;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kFree_m = 1e-9;       // deeper than this is inside
constexpr double kBeyond = 1e-4;       // pushes end this share of the radius beyond it: so rounds that go back and forth come to an end
constexpr double kPartTurn_rad = 0.2;  // in the frame of a capsule that turns farther, straight lines are no longer good
constexpr double kLeastWeight = 1e-3;  // sum of squared weights below which vertices cannot move the point between them
constexpr double kFacing = 0.5;        // cosine from which on a surface counts as facing an end of the skeleton
constexpr int kMaxFloods = 1000;       // each carries at least one vertex more

/// Positions as a capsule sees them: its skeleton at rest along +z from the origin, as it is at the end of its motion.
class CapsuleFrame {
 public:
  explicit CapsuleFrame(const ProjectionCapsule& capsule) : capsule_(capsule), length_m_(capsule.axis_to_m.norm()) {
    if (!(length_m_ > 0)) return;
    to_axis_ = Eigen::Quaterniond::FromTwoVectors(capsule.axis_to_m, Vector3d::UnitZ()).toRotationMatrix();
    if (capsule.axis_from_m.norm() > 0) {
      turn_ = Eigen::Quaterniond::FromTwoVectors(capsule.axis_from_m, capsule.axis_to_m).toRotationMatrix();
    }
  }
  double length_m() const { return length_m_; }
  Vector3d Start(const Vector3d& x) const { return to_axis_ * (turn_ * (x - capsule_.tip_from_m)); }
  Vector3d End(const Vector3d& x) const { return to_axis_ * (x - capsule_.tip_to_m); }
  Vector3d World(const Vector3d& in_frame) const { return capsule_.tip_to_m + to_axis_.transpose() * in_frame; }
  /// Where a point of the start would be now had it moved along.
  Vector3d Carried(const Vector3d& x) const { return capsule_.tip_to_m + turn_ * (x - capsule_.tip_from_m); }

 private:
  const ProjectionCapsule& capsule_;
  double length_m_;
  Matrix3d to_axis_ = Matrix3d::Identity();
  Matrix3d turn_ = Matrix3d::Identity();
};

/// The pose after a share of the motion: the tip on a straight line, the axis turned the shortest way.
void PoseAt(const ProjectionCapsule& capsule, double share, Vector3d* tip, Vector3d* axis) {
  *tip = capsule.tip_from_m + share * (capsule.tip_to_m - capsule.tip_from_m);
  const double from_m = capsule.axis_from_m.norm();
  const double to_m = capsule.axis_to_m.norm();
  if (share >= 1) {
    *tip = capsule.tip_to_m;
    *axis = capsule.axis_to_m;
  } else if (from_m > 0 && to_m > 0) {
    const auto turn = Eigen::Quaterniond::FromTwoVectors(capsule.axis_from_m, capsule.axis_to_m);
    *axis = Eigen::Quaterniond::Identity().slerp(share, turn) * capsule.axis_from_m * ((1 - share) + share * to_m / from_m);
  } else {
    *axis = capsule.axis_from_m + share * (capsule.axis_to_m - capsule.axis_from_m);
  }
}

double TurnOf(const ProjectionCapsule& capsule) {
  if (!(capsule.axis_from_m.norm() > 0) || !(capsule.axis_to_m.norm() > 0)) return 0;
  return std::atan2(capsule.axis_from_m.cross(capsule.axis_to_m).norm(), capsule.axis_from_m.dot(capsule.axis_to_m));
}

Vector3d ClosestOnSegment(const Vector3d& p, const Vector3d& d, const Vector3d& x, double* s) {
  const double dd = d.squaredNorm();
  *s = dd > 0 ? std::clamp((x - p).dot(d) / dd, 0.0, 1.0) : 0.0;
  return p + *s * d;
}

/// Places s on p + s d and t on q + t e of the nearest points of two segments (Ericson 2005, 5.1.9).
std::pair<double, double> ClosestSegments(const Vector3d& p, const Vector3d& d, const Vector3d& q, const Vector3d& e) {
  const Vector3d r = p - q;
  const double a = d.squaredNorm();
  const double c = d.dot(r);
  const double ee = e.squaredNorm();
  const double f = e.dot(r);
  if (!(ee > 0)) return {a > 0 ? std::clamp(-c / a, 0.0, 1.0) : 0.0, 0.0};
  if (!(a > 0)) return {0.0, std::clamp(f / ee, 0.0, 1.0)};
  const double b = d.dot(e);
  const double denominator = a * ee - b * b;
  double s = denominator > 1e-14 * a * ee ? std::clamp((b * f - c * ee) / denominator, 0.0, 1.0) : 0.5;
  double t = (b * s + f) / ee;
  if (t < 0) {
    t = 0;
    s = std::clamp(-c / a, 0.0, 1.0);
  } else if (t > 1) {
    t = 1;
    s = std::clamp((b - c) / a, 0.0, 1.0);
  }
  return {s, t};
}

/// Weights of the point of a triangle nearest to x (Ericson 2005, 5.1.5).
Vector3d ClosestOnTriangle(const std::array<Vector3d, 3>& tri, const Vector3d& x) {
  const Vector3d ab = tri[1] - tri[0];
  const Vector3d ac = tri[2] - tri[0];
  const Vector3d ap = x - tri[0];
  const double d1 = ab.dot(ap);
  const double d2 = ac.dot(ap);
  if (d1 <= 0 && d2 <= 0) return {1, 0, 0};
  const Vector3d bp = x - tri[1];
  const double d3 = ab.dot(bp);
  const double d4 = ac.dot(bp);
  if (d3 >= 0 && d4 <= d3) return {0, 1, 0};
  const double vc = d1 * d4 - d3 * d2;
  if (vc <= 0 && d1 >= 0 && d3 <= 0 && d1 > d3) return {1 - d1 / (d1 - d3), d1 / (d1 - d3), 0};
  const Vector3d cp = x - tri[2];
  const double d5 = ab.dot(cp);
  const double d6 = ac.dot(cp);
  if (d6 >= 0 && d5 <= d6) return {0, 0, 1};
  const double vb = d5 * d2 - d1 * d6;
  if (vb <= 0 && d2 >= 0 && d6 <= 0 && d2 > d6) return {1 - d2 / (d2 - d6), 0, d2 / (d2 - d6)};
  const double va = d3 * d6 - d5 * d4;
  if (va <= 0 && d4 - d3 >= 0 && d5 - d6 >= 0 && d4 - d3 + d5 - d6 > 0) {
    const double w = (d4 - d3) / (d4 - d3 + d5 - d6);
    return {0, 1 - w, w};
  }
  const double sum = va + vb + vc;
  if (!(sum > 0)) return {1, 0, 0};
  return {va / sum, vb / sum, vc / sum};
}

Vector3d PointOf(const std::array<Vector3d, 3>& tri, const Vector3d& weights) {
  return weights[0] * tri[0] + weights[1] * tri[1] + weights[2] * tri[2];
}

double Cross(const Vector3d& a, const Vector3d& b) { return a.x() * b.y() - a.y() * b.x(); }

struct Box {
  Vector3d low = Vector3d::Constant(kInfinity);
  Vector3d high = Vector3d::Constant(-kInfinity);
  void Add(const Vector3d& x) {
    low = low.cwiseMin(x);
    high = high.cwiseMax(x);
  }
  void Grow(double by_m) {
    low.array() -= by_m;
    high.array() += by_m;
  }
};

/// Bit k: x is on the outer side of plane k of the box. A convex set whose corners have a bit in common does not meet the box.
uint8_t OutcodeOf(const Vector3d& x, const Box& box) {
  unsigned code = 0;
  for (int axis = 0; axis < 3; ++axis) {
    code |= (x[axis] < box.low[axis] ? 1U : 0U) << (2 * axis);
    code |= (x[axis] > box.high[axis] ? 1U : 0U) << (2 * axis + 1);
  }
  return static_cast<uint8_t>(code);
}

/// Triangles whose corners have no outcode in common; `code_of` is called once a vertex.
template <typename CodeOf>
std::vector<uint32_t> Cull(const ProjectionMesh& mesh, const CodeOf& code_of) {
  std::vector<uint8_t> codes(mesh.vertex_count());
  for (uint32_t v = 0; v < codes.size(); ++v) codes[v] = mesh.TrianglesAt(v).empty() ? 0 : code_of(v);
  std::vector<uint32_t> found;
  const auto triangles = mesh.triangles();
  for (uint32_t t = 0; t < triangles.size(); ++t) {
    if ((codes[triangles[t][0]] & codes[triangles[t][1]] & codes[triangles[t][2]]) == 0) found.push_back(t);
  }
  return found;
}

/// The box around a capsule in its own frame.
Box CapsuleBox(double length_m, double radius_m) {
  Box box;
  box.Add(Vector3d::Zero());
  box.Add({0, 0, length_m});
  box.Grow(radius_m);
  return box;
}

/// Whether min over [t0, t1] of the distance is at most `radius_m`, up to `resolution_m`; the distance changes by at most `speed_m` a unit.
bool ComesNear(const std::array<Vector3d, 3>& from, const std::array<Vector3d, 3>& to, double length_m, double radius_m, double speed_m,
               double resolution_m, double t0, double t1) {
  const double t = (t0 + t1) / 2;
  std::array<Vector3d, 3> tri;
  for (size_t k = 0; k < 3; ++k) tri[k] = from[k] + t * (to[k] - from[k]);
  const double gap_m = DistanceToSkeleton(Vector3d::Zero(), {0, 0, length_m}, tri).distance_m - radius_m;
  if (gap_m <= 0) return true;
  const double half_way_m = speed_m * (t1 - t0) / 2;
  if (gap_m > half_way_m || half_way_m < resolution_m) return false;
  return ComesNear(from, to, length_m, radius_m, speed_m, resolution_m, t0, t) ||
         ComesNear(from, to, length_m, radius_m, speed_m, resolution_m, t, t1);
}

}  // namespace

ProjectionMesh::ProjectionMesh(std::vector<std::array<uint32_t, 3>> triangles, size_t vertex_count) : triangles_(std::move(triangles)) {
  std::vector<std::pair<std::array<uint32_t, 2>, uint32_t>> sides;  // and 3 triangle + k
  sides.reserve(3 * triangles_.size());
  vertex_triangle_begin_.assign(vertex_count + 1, 0);
  for (uint32_t t = 0; t < triangles_.size(); ++t) {
    for (uint32_t k = 0; k < 3; ++k) {
      const uint32_t a = triangles_[t][k];
      const uint32_t b = triangles_[t][(k + 1) % 3];
      sides.push_back({{std::min(a, b), std::max(a, b)}, 3 * t + k});
      ++vertex_triangle_begin_[a + 1];
    }
  }
  for (size_t v = 0; v < vertex_count; ++v) vertex_triangle_begin_[v + 1] += vertex_triangle_begin_[v];
  vertex_triangles_.resize(3 * triangles_.size());
  std::vector<uint32_t> next(vertex_triangle_begin_.begin(), vertex_triangle_begin_.end() - 1);
  for (uint32_t t = 0; t < triangles_.size(); ++t) {
    for (const uint32_t v : triangles_[t]) vertex_triangles_[next[v]++] = t;
  }
  std::sort(sides.begin(), sides.end());
  triangle_edges_.resize(triangles_.size());
  for (const auto& [edge, side] : sides) {
    if (edges_.empty() || edges_.back() != edge) edges_.push_back(edge);
    triangle_edges_[side / 3][side % 3] = static_cast<uint32_t>(edges_.size() - 1);
  }
}

SkeletonDistance DistanceToSkeleton(const Vector3d& tip_m, const Vector3d& axis_m, const std::array<Vector3d, 3>& corners_m) {
  // The minimum lies at an end over the face, or between the skeleton and a side, or is zero where it pierces the face.
  SkeletonDistance best;
  best.distance_m = kInfinity;
  const auto offer = [&](double s, const Vector3d& weights) {
    const double distance_m = (PointOf(corners_m, weights) - tip_m - s * axis_m).norm();
    if (distance_m < best.distance_m) best = {distance_m, s, weights, false};
  };
  offer(0, ClosestOnTriangle(corners_m, tip_m));
  offer(1, ClosestOnTriangle(corners_m, tip_m + axis_m));
  for (int k = 0; k < 3; ++k) {
    const int next = (k + 1) % 3;
    const auto& from = corners_m[static_cast<size_t>(k)];
    const auto [s, t] = ClosestSegments(tip_m, axis_m, from, corners_m[static_cast<size_t>(next)] - from);
    Vector3d weights = Vector3d::Zero();
    weights[k] = 1 - t;
    weights[next] = t;
    offer(s, weights);
  }
  const Vector3d normal = (corners_m[1] - corners_m[0]).cross(corners_m[2] - corners_m[0]);
  const double h0 = normal.dot(tip_m - corners_m[0]);
  const double h1 = normal.dot(tip_m + axis_m - corners_m[0]);
  if ((h0 < 0) != (h1 < 0) && h0 != h1) {
    const double s = h0 / (h0 - h1);
    const Vector3d x = tip_m + s * axis_m;
    const double area_sq = normal.squaredNorm();
    const double wb = (x - corners_m[0]).cross(corners_m[2] - corners_m[0]).dot(normal) / area_sq;
    const double wc = (corners_m[1] - corners_m[0]).cross(x - corners_m[0]).dot(normal) / area_sq;
    if (wb >= 0 && wc >= 0 && wb + wc <= 1) return {0, s, {1 - wb - wc, wb, wc}, true};
  }
  return best;
}

std::vector<uint32_t> FindTouching(const ProjectionMesh& mesh, std::span<const Vector3d> positions_m, const ProjectionCapsule& capsule) {
  const CapsuleFrame frame(capsule);
  const Box box = CapsuleBox(frame.length_m(), capsule.radius_m);
  std::vector<uint32_t> found = Cull(mesh, [&](uint32_t v) { return OutcodeOf(frame.End(positions_m[v]), box); });
  std::erase_if(found, [&](uint32_t t) {
    const auto& v = mesh.triangles()[t];
    return !(
        DistanceToSkeleton(capsule.tip_to_m, capsule.axis_to_m, {positions_m[v[0]], positions_m[v[1]], positions_m[v[2]]}).distance_m <=
        capsule.radius_m);
  });
  return found;
}

std::vector<uint32_t> FindSwept(const ProjectionMesh& mesh, std::span<const Vector3d> from_m, std::span<const Vector3d> to_m,
                                const ProjectionCapsule& capsule) {
  const CapsuleFrame frame(capsule);
  const Box box = CapsuleBox(frame.length_m(), capsule.radius_m);
  std::vector<uint32_t> found = Cull(
      mesh, [&](uint32_t v) { return static_cast<uint8_t>(OutcodeOf(frame.Start(from_m[v]), box) & OutcodeOf(frame.End(to_m[v]), box)); });
  std::erase_if(found, [&](uint32_t t) {
    std::array<Vector3d, 3> from;
    std::array<Vector3d, 3> to;
    double speed_m = 0;
    for (size_t k = 0; k < 3; ++k) {
      from[k] = frame.Start(from_m[mesh.triangles()[t][k]]);
      to[k] = frame.End(to_m[mesh.triangles()[t][k]]);
      speed_m = std::max(speed_m, (to[k] - from[k]).norm());
    }
    const double end_gap_m = DistanceToSkeleton(Vector3d::Zero(), {0, 0, frame.length_m()}, to).distance_m - capsule.radius_m;
    return !(end_gap_m <= 0 || ComesNear(from, to, frame.length_m(), capsule.radius_m, speed_m, 1e-6 * capsule.radius_m, 0, 1));
  });
  return found;
}

int FindCrossings(const EdgeMotion& edge, double length_m, std::array<EdgeCrossing, 2>* crossings) {
  // The edge meets the line x = y = 0 where its projections a(t), b(t) on the plane z = 0 and the origin are on one line: the
  // quadratic of Forest 2003 without its factors of Z.
  const double c2 = Cross(edge.move_a, edge.move_b);
  const double c1 = Cross(edge.a, edge.move_b) + Cross(edge.move_a, edge.b);
  const double c0 = Cross(edge.a, edge.b);
  const double discriminant = c1 * c1 - 4 * c2 * c0;
  if (!(discriminant >= 0)) return 0;
  const double half = -(c1 + std::copysign(std::sqrt(discriminant), c1)) / 2;  // without cancellation
  std::array<double, 2> roots = {half / c2, c0 / half};
  if (roots[0] > roots[1]) std::swap(roots[0], roots[1]);
  int count = 0;
  for (double t : roots) {
    if (!std::isfinite(t)) continue;
    if (const double slope = 2 * c2 * t + c1; slope != 0) t -= ((c2 * t + c1) * t + c0) / slope;
    const Vector3d a = edge.a + t * edge.move_a;
    const Vector3d along = edge.b + t * edge.move_b - a;
    const double flat_sq = along.head<2>().squaredNorm();
    if (!(flat_sq > 0)) continue;  // along the skeleton: its neighbours cross in its place
    EdgeCrossing crossing;
    crossing.time = t;
    crossing.on_edge = -a.head<2>().dot(along.head<2>()) / flat_sq;
    const double z = a.z() + crossing.on_edge * along.z();
    crossing.on_axis = length_m > 0 ? z / length_m : 0;
    crossing.is_hit = t >= 0 && t <= 1 && crossing.on_edge >= 0 && crossing.on_edge <= 1 && z >= 0 && z <= length_m;
    (*crossings)[static_cast<size_t>(count++)] = crossing;
  }
  return count;
}

bool HasCrossed(const EdgeMotion& edge, double length_m, EdgeCrossing* crossing) {
  std::array<EdgeCrossing, 2> crossings;
  const int count = FindCrossings(edge, length_m, &crossings);
  int hits = 0;
  for (int k = count - 1; k >= 0; --k) {
    if (!crossings[static_cast<size_t>(k)].is_hit) continue;
    ++hits;
    if (crossing != nullptr) *crossing = crossings[static_cast<size_t>(k)];
  }
  return hits == 1;
}

bool AcceptanceIntervals::Block(const EdgeMotion& edge, double length_m, const EdgeCrossing& crossing, size_t a, size_t b) {
  const auto normal_at = [&](double time_a, double time_b) {
    const Vector3d along = edge.b + time_b * edge.move_b - edge.a - time_a * edge.move_a;
    return Vector3d(-along.y(), along.x(), 0);  // Z x (B - A): of the plane through the skeleton and the edge as it meets it
  };
  const Vector3d normal = normal_at(crossing.time, crossing.time);
  const double speed_a = normal.dot(edge.move_a);
  const double speed_b = normal.dot(edge.move_b);
  const double speed = (1 - crossing.on_edge) * speed_a + crossing.on_edge * speed_b;  // of the point that crosses
  // A vertex that moves through the plane with the crossing must stay before it, one that moves against it must have passed it: then both
  // ends, and so the edge, are on the side of the plane where the edge came from. (The test as printed compares with the start of the
  // vertex and is true of every vertex that moves.)
  const auto allowed = [&](const Interval& now, double speed_of, double time) {
    return speed_of * speed > 0 ? Interval{now.low, std::min(now.high, time)} : Interval{std::max(now.low, time), now.high};
  };
  const Interval new_a = allowed(intervals_[a], speed_a, crossing.time);
  const Interval new_b = allowed(intervals_[b], speed_b, crossing.time);
  const bool fits_a = new_a.low <= new_a.high;
  const bool fits_b = new_b.low <= new_b.high;
  if (fits_a && fits_b) {
    intervals_[a] = new_a;
    intervals_[b] = new_b;
    return false;
  }
  // One is held where it was; the edge then crosses at another time, at which the other one must stop.
  const bool holds_a = !fits_a;
  Interval& held = intervals_[holds_a ? a : b];
  Interval& other = intervals_[holds_a ? b : a];
  const double time = (holds_a ? speed_a : speed_b) * speed > 0 ? held.low : held.high;
  held = {time, time};
  EdgeMotion rest = edge;
  Vector3d& x = holds_a ? rest.a : rest.b;
  Vector3d& move = holds_a ? rest.move_a : rest.move_b;
  x += time * move;
  move.setZero();
  EdgeCrossing again;
  if (HasCrossed(rest, length_m, &again)) other = {other.low, std::max(other.low, std::min(other.high, again.time))};
  return true;
}

BlockedMotion BlockCrossings(std::span<const VertexMotion> vertices, std::span<const std::array<size_t, 2>> edges, double length_m) {
  BlockedMotion out;
  out.share.assign(vertices.size(), 1.0);
  const auto motion_of = [&](const std::array<size_t, 2>& edge) {
    const auto& [a, b] = edge;
    return EdgeMotion{vertices[a].at, out.share[a] * vertices[a].move, vertices[b].at, out.share[b] * vertices[b].move};
  };
  AcceptanceIntervals intervals(vertices.size());
  for (const std::array<size_t, 2>& edge : edges) {
    EdgeCrossing crossing;
    const EdgeMotion motion = motion_of(edge);
    if (!HasCrossed(motion, length_m, &crossing)) continue;
    ++out.crossed_edges;
    out.held_vertices += intervals.Block(motion, length_m, crossing, edge[0], edge[1]) ? 1 : 0;
  }
  if (out.crossed_edges == 0) return out;
  // A vertex of no crossed edge has still the whole interval.
  for (size_t v = 0; v < vertices.size(); ++v) {
    const auto& interval = intervals.at(v);
    out.share[v] = interval.low > 0 || interval.high < 1 ? interval.low : 1;
  }
  for (bool is_left = true; is_left;) {
    is_left = false;
    for (const std::array<size_t, 2>& edge : edges) {
      if (!HasCrossed(motion_of(edge), length_m, nullptr)) continue;
      is_left = true;
      for (const size_t v : edge) {
        out.taken_back += out.share[v] > 0 ? 1 : 0;
        out.share[v] = 0;
      }
    }
  }
  return out;
}

namespace {

/// One part of the motion.
class Part {
 public:
  Part(const ProjectionInput& input, const ProjectionOptions& options, const std::vector<Vector3d>& from, std::vector<Vector3d>* at,
       const std::vector<ProjectionCapsule>& capsules)
      : mesh_(*input.mesh), is_fixed_(input.is_fixed), options_(options), from_(from), at_(*at), capsules_(capsules) {
    for (const ProjectionCapsule& capsule : capsules_) frames_.emplace_back(capsule);
    is_active_triangle_.resize(mesh_.triangles().size());
    is_active_edge_.resize(mesh_.edges().size());
    is_active_vertex_.resize(mesh_.vertex_count());
  }

  struct Push {
    Vector3d sum_m = Vector3d::Zero();
    Vector3d contact_m = Vector3d::Zero();  // sum over pushes, each by its length
    double weight = 0;
  };

  void Activate(uint32_t triangle) {
    if (std::exchange(is_active_triangle_[triangle], uint8_t{1}) != 0) return;
    triangles_.push_back(triangle);
    for (size_t k = 0; k < 3; ++k) {
      const uint32_t edge = mesh_.EdgesOf(triangle)[k];
      const uint32_t vertex = mesh_.triangles()[triangle][k];
      if (std::exchange(is_active_edge_[edge], uint8_t{1}) == 0) edges_.push_back(edge);
      if (std::exchange(is_active_vertex_[vertex], uint8_t{1}) == 0) vertices_.push_back(vertex);
    }
  }

  void Run();

  const std::map<std::pair<uint32_t, uint32_t>, Push>& pushes() const { return pushes_; }
  const std::vector<uint32_t>& vertices() const { return vertices_; }
  const std::vector<uint32_t>& triangles() const { return triangles_; }
  int rounds() const { return rounds_; }
  uint32_t crossed_edges() const { return crossed_edges_; }
  uint32_t carried_vertices() const { return carried_count_; }
  double least_gap_m() const { return least_gap_m_; }
  bool is_free() const { return is_free_; }
  bool is_apart() const { return is_apart_; }

 private:
  bool IsFixed(uint32_t v) const { return !is_fixed_.empty() && is_fixed_[v] != 0; }
  std::array<Vector3d, 3> CornersOf(uint32_t t) const {
    const auto& v = mesh_.triangles()[t];
    return {at_[v[0]], at_[v[1]], at_[v[2]]};
  }
  /// Whether a ball around points misses a capsule.
  template <size_t kCount>
  bool IsFar(uint32_t c, const std::array<Vector3d, kCount>& x) const {
    Vector3d center = Vector3d::Zero();
    for (const Vector3d& p : x) center += p / static_cast<double>(kCount);
    double extent_sq = 0;
    for (const Vector3d& p : x) extent_sq = std::max(extent_sq, (p - center).squaredNorm());
    double s = 0;
    const Vector3d on_axis = ClosestOnSegment(capsules_[c].tip_to_m, capsules_[c].axis_to_m, center, &s);
    const double reach_m = capsules_[c].radius_m + std::sqrt(extent_sq);
    return (center - on_axis).squaredNorm() > reach_m * reach_m;
  }
  void Move(uint32_t c, uint32_t v, const Vector3d& by_m, const Vector3d& contact_m) {
    at_[v] += by_m;
    Push& push = pushes_[{v, c}];
    const double length_m = by_m.norm();
    push.sum_m += by_m;
    push.contact_m += length_m * contact_m;
    push.weight += length_m;
    for (const uint32_t t : mesh_.TrianglesAt(v)) Activate(t);
  }
  /// Moves the point with these weights by `by_m` along `direction`, with the least sum of squares of the vertices' moves.
  template <size_t kCount>
  bool PushPoint(uint32_t c, const std::array<uint32_t, kCount>& vertices, const std::array<double, kCount>& weights,
                 const Vector3d& point_m, const Vector3d& direction, double by_m) {
    double sum = 0;
    for (size_t k = 0; k < kCount; ++k) sum += IsFixed(vertices[k]) ? 0 : weights[k] * weights[k];
    if (sum < kLeastWeight) return false;
    for (size_t k = 0; k < kCount; ++k) {
      if (!IsFixed(vertices[k]) && weights[k] != 0) Move(c, vertices[k], weights[k] / sum * by_m * direction, point_m);
    }
    return true;
  }
  EdgeMotion MotionOf(uint32_t c, uint32_t edge) const {
    const auto [a, b] = mesh_.edges()[edge];
    EdgeMotion motion;
    motion.a = frames_[c].Start(from_[a]);
    motion.b = frames_[c].Start(from_[b]);
    motion.move_a = frames_[c].End(at_[a]) - motion.a;
    motion.move_b = frames_[c].End(at_[b]) - motion.b;
    return motion;
  }
  bool HasCrossedNow(uint32_t c, uint32_t edge, EdgeMotion* motion, EdgeCrossing* crossing) const {
    *motion = MotionOf(c, edge);
    // Most edges stay on one side.
    unsigned common = 63;
    const Box line{Vector3d::Zero(), Vector3d(0, 0, frames_[c].length_m())};
    for (const Vector3d& x : {motion->a, motion->b, Vector3d(motion->a + motion->move_a), Vector3d(motion->b + motion->move_b)}) {
      common &= OutcodeOf(x, line);
    }
    return common == 0 && HasCrossed(*motion, frames_[c].length_m(), crossing);
  }
  bool WasPierced(uint32_t c, uint32_t t) const {
    const auto& v = mesh_.triangles()[t];
    return DistanceToSkeleton(capsules_[c].tip_from_m, capsules_[c].axis_from_m, {from_[v[0]], from_[v[1]], from_[v[2]]}).is_pierced;
  }
  bool Carry(uint32_t c, uint32_t v);
  bool Block(uint32_t c);
  bool Uncross(uint32_t c);
  bool ClearEnds(uint32_t c);
  bool ClearEnd(uint32_t c, int end, uint32_t triangle, const Vector3d& weights, bool is_inside);
  bool ClearVolume(uint32_t c);
  void CarryRest();
  void Check();

  const ProjectionMesh& mesh_;
  std::span<const uint8_t> is_fixed_;
  const ProjectionOptions& options_;
  const std::vector<Vector3d>& from_;
  std::vector<Vector3d>& at_;
  const std::vector<ProjectionCapsule>& capsules_;
  std::vector<CapsuleFrame> frames_;
  std::vector<uint8_t> is_active_triangle_, is_active_edge_, is_active_vertex_;
  std::vector<uint32_t> triangles_, edges_, vertices_;  // grow with what moves
  std::map<std::pair<uint32_t, uint32_t>, Push> pushes_;
  int rounds_ = 0;
  uint32_t crossed_edges_ = 0;
  uint32_t carried_count_ = 0;
  double least_gap_m_ = kInfinity;
  bool is_free_ = true;
  bool is_apart_ = true;  // free, or where not, as the start was
};

/// To where the vertex was at the start, as seen from the capsule. Returns whether it moved.
bool Part::Carry(uint32_t c, uint32_t v) {
  if (IsFixed(v)) return false;
  const Vector3d by_m = frames_[c].Carried(from_[v]) - at_[v];
  if (!(by_m.norm() > kFree_m)) return false;
  double s = 0;
  Move(c, v, by_m, ClosestOnSegment(capsules_[c].tip_to_m, capsules_[c].axis_to_m, frames_[c].Carried(from_[v]), &s));
  ++carried_count_;
  return true;
}

/// Stages (a) and (b).
bool Part::Block(uint32_t c) {
  const double length_m = frames_[c].length_m();
  if (!(length_m > 0)) return false;  // nothing to cross
  const Box line{Vector3d::Zero(), Vector3d(0, 0, length_m)};
  std::vector<uint32_t> sorted = vertices_;
  std::sort(sorted.begin(), sorted.end());
  std::vector<VertexMotion> motions;
  std::vector<uint8_t> codes;
  for (const uint32_t v : sorted) {
    const Vector3d start = frames_[c].Start(from_[v]);
    const Vector3d end = frames_[c].End(at_[v]);
    motions.push_back({start, end - start});
    codes.push_back(static_cast<uint8_t>(OutcodeOf(start, line) & OutcodeOf(end, line)));
  }
  const auto place_of = [&](uint32_t v) { return static_cast<size_t>(std::lower_bound(sorted.begin(), sorted.end(), v) - sorted.begin()); };
  // Most edges stay on one side. Those of vertices that stop earlier than they would are still on it.
  std::vector<std::array<size_t, 2>> edges;
  std::vector<uint32_t> edge_order = edges_;
  std::sort(edge_order.begin(), edge_order.end());
  for (const uint32_t edge : edge_order) {
    const auto [a, b] = mesh_.edges()[edge];
    if (const std::array<size_t, 2> places = {place_of(a), place_of(b)}; (codes[places[0]] & codes[places[1]]) == 0)
      edges.push_back(places);
  }
  const BlockedMotion blocked = BlockCrossings(motions, edges, length_m);
  if (blocked.crossed_edges == 0) return false;
  crossed_edges_ += blocked.crossed_edges;
  for (size_t i = 0; i < sorted.size(); ++i) {
    if (blocked.share[i] == 1 || IsFixed(sorted[i])) continue;
    const Vector3d to = motions[i].at + blocked.share[i] * motions[i].move;
    const Vector3d on_axis(0, 0, std::clamp(to.z(), 0.0, length_m));
    Move(c, sorted[i], frames_[c].World(to) - at_[sorted[i]], frames_[c].World(on_axis));
  }
  return true;
}

/// What has crossed since: edges beside those that were blocked, or by pushes of other capsules. Their vertices move along.
bool Part::Uncross(uint32_t c) {
  bool moved = false;
  EdgeMotion motion;
  EdgeCrossing crossing;
  for (int flood = 0; flood < kMaxFloods; ++flood) {
    bool moves = false;
    for (size_t i = 0; i < edges_.size(); ++i) {
      if (!HasCrossedNow(c, edges_[i], &motion, &crossing)) continue;
      for (const uint32_t v : mesh_.edges()[edges_[i]]) moves |= Carry(c, v);
    }
    if (!moves) break;
    moved = true;
  }
  return moved;
}

/// Brings the point of a triangle with these weights onto the tip plane of an end of the skeleton, or farther.
bool Part::ClearEnd(uint32_t c, int end, uint32_t triangle, const Vector3d& weights, bool is_inside) {
  const auto& vertices = mesh_.triangles()[triangle];
  const std::array<Vector3d, 3> corners = CornersOf(triangle);
  const Vector3d tip = capsules_[c].tip_to_m + end * capsules_[c].axis_to_m;
  const Vector3d point = PointOf(corners, weights);
  const Vector3d face = (corners[1] - corners[0]).cross(corners[2] - corners[0]);
  Vector3d normal = Vector3d::Zero();
  for (size_t k = 0; k < 3; ++k) {
    Vector3d of_vertex = Vector3d::Zero();
    for (const uint32_t t : mesh_.TrianglesAt(vertices[k])) {
      const std::array<Vector3d, 3> x = CornersOf(t);
      of_vertex += (x[1] - x[0]).cross(x[2] - x[0]);
    }
    normal += weights[static_cast<int>(k)] * of_vertex.normalized();
  }
  const Vector3d outwards = end == 0 ? capsules_[c].axis_to_m : Vector3d(-capsules_[c].axis_to_m);  // from an end that is inside
  if (!(normal.norm() > 1e-6) || !(normal.dot(face) > 0) || (is_inside && !(normal.dot(outwards) > 0))) normal = face;
  if (!(normal.norm() > 0)) return false;
  normal.normalize();
  if (!is_inside && normal.dot(tip - point) < kFacing * (tip - point).norm()) return false;  // beside it: left to stage (d)
  const double radius_m = capsules_[c].radius_m * (1 + kBeyond);
  const auto height = [&](const Vector3d& x) { return normal.dot(x - tip) + radius_m; };  // above the tip plane
  // Nothing that was outside can be deeper than the motion: so it did not come in at this end, and goes back to where it was.
  const double motion_m = (capsules_[c].tip_to_m - capsules_[c].tip_from_m).norm() + capsules_[c].axis_to_m.norm() * TurnOf(capsules_[c]);
  if (is_inside && height(point) > 2 * (capsules_[c].radius_m + motion_m) && !WasPierced(c, triangle)) {
    bool moved = false;
    for (const uint32_t v : vertices) moved |= Carry(c, v);
    if (moved) return true;
  }
  if (options_.tip_rule == TipRule::kLeastMotion) {
    return PushPoint<3>(c, vertices, {weights[0], weights[1], weights[2]}, point, -normal, height(point));
  }
  std::map<uint32_t, double> shares;
  for (size_t k = 0; k < 3; ++k) {
    std::vector<uint32_t> around;
    for (const uint32_t t : mesh_.TrianglesAt(vertices[k]))
      around.insert(around.end(), mesh_.triangles()[t].begin(), mesh_.triangles()[t].end());
    std::sort(around.begin(), around.end());
    around.erase(std::unique(around.begin(), around.end()), around.end());
    for (const uint32_t v : around) shares[v] += weights[static_cast<int>(k)];
  }
  for (const uint32_t v : vertices) shares[v] = 1;
  bool moved = false;
  for (const auto& [v, share] : shares) {
    const double above_m = height(at_[v]);
    if (IsFixed(v) || !(above_m > 0) || !(share > 0)) continue;
    Move(c, v, -std::min(share, 1.0) * above_m * normal, point);
    moved = true;
  }
  return moved;
}

/// Stage (c), for both ends of the skeleton.
bool Part::ClearEnds(uint32_t c) {
  const ProjectionCapsule& capsule = capsules_[c];
  struct Nearest {
    double distance_m = kInfinity;
    uint32_t triangle = 0;
    Vector3d weights;
  };
  std::array<Nearest, 2> inside;  // where the skeleton leaves the surface, seen from each end
  std::array<Nearest, 2> outside;
  const double length_m = frames_[c].length_m();
  for (const uint32_t t : triangles_) {
    const std::array<Vector3d, 3> corners = CornersOf(t);
    if (IsFar(c, corners)) continue;
    const SkeletonDistance distance = DistanceToSkeleton(capsule.tip_to_m, capsule.axis_to_m, corners);
    if (distance.is_pierced) {
      const Vector3d face = (corners[1] - corners[0]).cross(corners[2] - corners[0]);
      const size_t end = face.dot(capsule.axis_to_m) > 0 ? 0 : 1;
      const double way_m = end == 0 ? distance.along * length_m : (1 - distance.along) * length_m;
      if (way_m < inside[end].distance_m) inside[end] = {way_m, t, distance.weights};
    }
    for (size_t end = 0; end < 2; ++end) {
      const Vector3d tip = capsule.tip_to_m + static_cast<double>(end) * capsule.axis_to_m;
      const Vector3d weights = ClosestOnTriangle(corners, tip);
      const Vector3d to_point = PointOf(corners, weights) - tip;
      // Beside the skeleton its ends have no say.
      if (to_point.dot(capsule.axis_to_m) * (end == 0 ? -1 : 1) < 0) continue;
      if (to_point.norm() < outside[end].distance_m) outside[end] = {to_point.norm(), t, weights};
    }
  }
  bool moved = false;
  for (size_t end = 0; end < (length_m > 0 ? 2U : 1U); ++end) {
    if (inside[end].distance_m < kInfinity) {
      moved |= ClearEnd(c, static_cast<int>(end), inside[end].triangle, inside[end].weights, true);
    } else if (outside[end].distance_m < capsule.radius_m - kFree_m) {
      moved |= ClearEnd(c, static_cast<int>(end), outside[end].triangle, outside[end].weights, false);
    }
  }
  return moved;
}

/// Stage (d).
bool Part::ClearVolume(uint32_t c) {
  const ProjectionCapsule& capsule = capsules_[c];
  const double goal_m = capsule.radius_m * (1 + kBeyond);
  bool moved = false;
  // Away from the skeleton; a point on it goes back to the side on which it was.
  const auto away = [&](const Vector3d& from_axis, const Vector3d& at_start, const Vector3d& on_axis) {
    if (from_axis.norm() > 1e-3 * capsule.radius_m) return Vector3d(from_axis.normalized());
    const Vector3d back = at_start - on_axis;
    return back.norm() > 0 ? Vector3d(back.normalized()) : Vector3d(capsule.axis_to_m.unitOrthogonal());
  };
  for (size_t i = 0; i < vertices_.size(); ++i) {
    const uint32_t v = vertices_[i];
    double s = 0;
    const Vector3d on_axis = ClosestOnSegment(capsule.tip_to_m, capsule.axis_to_m, at_[v], &s);
    const Vector3d d = at_[v] - on_axis;
    if (!(d.norm() < capsule.radius_m - kFree_m)) continue;
    const Vector3d direction = away(d, frames_[c].Carried(from_[v]), on_axis);
    moved |= PushPoint<1>(c, {v}, {1.0}, on_axis + capsule.radius_m * direction, direction, goal_m - d.dot(direction));
  }
  for (size_t i = 0; i < edges_.size(); ++i) {
    const auto [a, b] = mesh_.edges()[edges_[i]];
    if (IsFar(c, std::array<Vector3d, 2>{at_[a], at_[b]})) continue;
    const auto [s, t] = ClosestSegments(capsule.tip_to_m, capsule.axis_to_m, at_[a], at_[b] - at_[a]);
    const Vector3d on_axis = capsule.tip_to_m + s * capsule.axis_to_m;
    const Vector3d d = (1 - t) * at_[a] + t * at_[b] - on_axis;
    if (!(d.norm() < capsule.radius_m - kFree_m)) continue;
    const Vector3d at_start = (1 - t) * frames_[c].Carried(from_[a]) + t * frames_[c].Carried(from_[b]);
    const Vector3d direction = away(d, at_start, on_axis);
    moved |= PushPoint<2>(c, {a, b}, {1 - t, t}, on_axis + capsule.radius_m * direction, direction, goal_m - d.dot(direction));
  }
  return moved;
}

/// What the rounds left inside moves along with its capsule: in its frame the start, which was free.
void Part::CarryRest() {
  for (int flood = 0; flood < kMaxFloods; ++flood) {
    bool moves = false;
    for (uint32_t c = 0; c < capsules_.size(); ++c) {
      for (size_t i = 0; i < triangles_.size(); ++i) {
        const std::array<Vector3d, 3> corners = CornersOf(triangles_[i]);
        if (IsFar(c, corners)) continue;
        const SkeletonDistance distance = DistanceToSkeleton(capsules_[c].tip_to_m, capsules_[c].axis_to_m, corners);
        if (!(distance.distance_m < capsules_[c].radius_m - kFree_m)) continue;
        for (const uint32_t v : mesh_.triangles()[triangles_[i]]) moves |= Carry(c, v);
      }
      moves |= Uncross(c);
    }
    if (!moves) return;
  }
}

void Part::Check() {
  least_gap_m_ = kInfinity;
  is_free_ = is_apart_ = true;
  EdgeMotion motion;
  for (uint32_t c = 0; c < capsules_.size(); ++c) {
    const ProjectionCapsule& capsule = capsules_[c];
    for (const uint32_t t : triangles_) {
      const double gap_m = DistanceToSkeleton(capsule.tip_to_m, capsule.axis_to_m, CornersOf(t)).distance_m - capsule.radius_m;
      least_gap_m_ = std::min(least_gap_m_, gap_m);
      if (gap_m >= -kFree_m) continue;
      is_free_ = false;
      const auto& v = mesh_.triangles()[t];
      const double start_gap_m =
          DistanceToSkeleton(capsule.tip_from_m, capsule.axis_from_m, {from_[v[0]], from_[v[1]], from_[v[2]]}).distance_m -
          capsule.radius_m;
      if (gap_m < start_gap_m - kFree_m) is_apart_ = false;
    }
    for (const uint32_t edge : edges_) {
      if (HasCrossedNow(c, edge, &motion, nullptr)) is_free_ = is_apart_ = false;
    }
  }
}

void Part::Run() {
  const auto count = static_cast<uint32_t>(capsules_.size());
  for (uint32_t c = 0; c < count; ++c) Block(c);
  bool moved = true;
  for (rounds_ = 0; moved && rounds_ < options_.max_rounds; ++rounds_) {
    moved = false;
    for (uint32_t c = 0; c < count; ++c) {
      moved |= Uncross(c);
      if (capsules_[c].clears_tip) moved |= ClearEnds(c);
      moved |= ClearVolume(c);
    }
  }
  Check();
  if (is_apart_) return;
  CarryRest();
  Check();
}

/// What may be met: triangles in the boxes of the capsules' motions, the longest edge there, and how far tool and tissue move at most.
struct Reach {
  std::vector<uint32_t> triangles;
  double length_m = 0;
  double motion_m = 0;
};

Reach FindReach(const ProjectionInput& input, const ProjectionOptions& options) {
  const ProjectionMesh& mesh = *input.mesh;
  Reach reach;
  for (const ProjectionCapsule& capsule : input.capsules) {
    Box box;
    for (int k = 0; k <= 8; ++k) {
      Vector3d tip;
      Vector3d axis;
      PoseAt(capsule, k / 8.0, &tip, &axis);
      box.Add(tip);
      box.Add(tip + axis);
    }
    // Between the poses an end of the axis is at most this much farther out than the chord.
    const double turn = TurnOf(capsule) / 8;
    box.Grow(capsule.radius_m + options.reach_m +
             std::max(capsule.axis_from_m.norm(), capsule.axis_to_m.norm()) * (1 - std::cos(turn / 2)));
    const std::vector<uint32_t> found =
        Cull(mesh, [&](uint32_t v) { return static_cast<uint8_t>(OutcodeOf(input.from_m[v], box) & OutcodeOf(input.to_m[v], box)); });
    reach.triangles.insert(reach.triangles.end(), found.begin(), found.end());
    reach.motion_m = std::max({reach.motion_m, (capsule.tip_to_m - capsule.tip_from_m).norm(),
                               (capsule.tip_to_m + capsule.axis_to_m - capsule.tip_from_m - capsule.axis_from_m).norm()});
  }
  if (reach.triangles.empty()) return reach;
  std::sort(reach.triangles.begin(), reach.triangles.end());
  reach.triangles.erase(std::unique(reach.triangles.begin(), reach.triangles.end()), reach.triangles.end());
  double tissue_m = 0;
  for (const uint32_t t : reach.triangles) {
    for (size_t k = 0; k < 3; ++k) {
      const uint32_t v = mesh.triangles()[t][k];
      tissue_m = std::max(tissue_m, (input.to_m[v] - input.from_m[v]).norm());
      reach.length_m = std::max(reach.length_m, (input.from_m[mesh.triangles()[t][(k + 1) % 3]] - input.from_m[v]).norm());
    }
  }
  reach.motion_m += tissue_m;
  return reach;
}

/// Parts of the motion. A skeleton that could pass through the inside of a triangle as a whole must not do so unseen.
int PartsOf(const ProjectionInput& input, const ProjectionOptions& options, const Reach& reach, double share) {
  int parts = 1;
  for (const ProjectionCapsule& capsule : input.capsules) {
    const double axis_m = std::min(capsule.axis_from_m.norm(), capsule.axis_to_m.norm());
    const double step_m = axis_m > reach.length_m ? std::max(axis_m / 2, capsule.radius_m) : capsule.radius_m / 2;
    parts = std::max({parts, static_cast<int>(std::min(std::ceil(share * TurnOf(capsule) / kPartTurn_rad), 1e6)),
                      static_cast<int>(std::min(std::ceil(reach.motion_m / step_m), 1e6))});
  }
  return std::min(parts, std::max(options.max_parts, 1));
}

/// What the last part of a motion leaves: vertices that were moved, and limits of all that are near.
void CollectLimits(const ProjectionInput& input, const ProjectionOptions& options, const Part& part,
                   std::span<const ProjectionCapsule> capsules, std::span<const Vector3d> at, ProjectionResult* result) {
  std::vector<uint32_t> vertices = part.vertices();
  std::sort(vertices.begin(), vertices.end());
  for (const uint32_t v : vertices) {
    if ((at[v] - input.to_m[v]).norm() > kFree_m) result->moved.push_back({v, at[v]});
    for (uint32_t c = 0; c < capsules.size(); ++c) {
      ProjectionLimit limit;
      limit.vertex = v;
      limit.capsule = c;
      limit.limit_m = at[v];
      const auto found = part.pushes().find({v, c});
      if (found != part.pushes().end() && found->second.sum_m.norm() > kFree_m) {
        limit.pushed_m = found->second.sum_m.norm();
        limit.normal = found->second.sum_m / limit.pushed_m;
        limit.contact_m = found->second.contact_m / found->second.weight;
      } else {
        double s = 0;
        const Vector3d on_axis = ClosestOnSegment(capsules[c].tip_to_m, capsules[c].axis_to_m, at[v], &s);
        const double distance_m = (at[v] - on_axis).norm();
        if (!(distance_m < capsules[c].radius_m + options.reach_m) || !(distance_m > 0)) continue;
        limit.normal = (at[v] - on_axis) / distance_m;
        limit.limit_m -= std::max(distance_m - capsules[c].radius_m, 0.0) * limit.normal;
        limit.contact_m = limit.limit_m;
      }
      result->limits.push_back(limit);
    }
  }
}

}  // namespace

ProjectionResult ProjectOut(const ProjectionInput& input, const ProjectionOptions& options) {
  ProjectionResult result;
  result.least_gap_m = kInfinity;
  Reach reach = FindReach(input, options);
  if (reach.triangles.empty()) return result;
  const size_t n = input.mesh->vertex_count();
  std::vector<Vector3d> from(n);
  std::vector<Vector3d> at(n);
  std::vector<ProjectionCapsule> capsules(input.capsules.size());
  for (int shortening = 0;; ++shortening) {
    const double share = shortening == 0 ? 1 : shortening > options.max_shortenings ? 0 : std::pow(0.5, shortening);
    const int parts = PartsOf(input, options, reach, share);
    std::copy(input.from_m.begin(), input.from_m.end(), at.begin());
    result.share = share;
    result.parts = parts;
    result.rounds = 0;
    result.crossed_edges = result.carried_vertices = 0;
    result.moved.clear();
    result.limits.clear();
    bool is_apart = true;
    for (int p = 0; p < parts; ++p) {
      from = at;
      for (size_t v = 0; v < n; ++v) at[v] += (input.to_m[v] - input.from_m[v]) / parts;
      for (size_t c = 0; c < capsules.size(); ++c) {
        capsules[c] = input.capsules[c];
        PoseAt(input.capsules[c], share * p / parts, &capsules[c].tip_from_m, &capsules[c].axis_from_m);
        PoseAt(input.capsules[c], share * (p + 1) / parts, &capsules[c].tip_to_m, &capsules[c].axis_to_m);
      }
      Part part(input, options, from, &at, capsules);
      for (const uint32_t t : reach.triangles) part.Activate(t);
      part.Run();
      result.rounds = std::max(result.rounds, part.rounds());
      result.crossed_edges += part.crossed_edges();
      result.carried_vertices += part.carried_vertices();
      result.is_free = part.is_free();
      result.least_gap_m = part.least_gap_m();
      is_apart = part.is_apart();
      // What was carried on stays in view.
      reach.triangles = part.triangles();
      if (!is_apart && share > 0) break;
      if (p + 1 == parts) CollectLimits(input, options, part, capsules, at, &result);
    }
    if (is_apart || share == 0) break;
  }
  return result;
}

}  // namespace palpate::sim
