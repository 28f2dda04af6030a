#include "sim/instrument/projection.h"

#include <gtest/gtest.h>

#include <Eigen/Geometry>
#include <algorithm>
#include <cmath>
#include <random>

#include "sim/instrument/geometry.h"
#include "sim/mesh/generators.h"
#include "sim/topology/carving.h"
#include "sim/topology/closed_mesh.h"

namespace palpate::sim::projection_test {
namespace {

using Eigen::Vector3d;

class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}
  double Uniform(double low, double high) { return std::uniform_real_distribution<double>(low, high)(engine_); }
  Vector3d InCube(double half) { return {Uniform(-half, half), Uniform(-half, half), Uniform(-half, half)}; }
  Vector3d Direction() {
    for (;;) {
      const Vector3d v = InCube(1);
      if (v.norm() > 0.1 && v.norm() < 1) return v.normalized();
    }
  }

 private:
  std::mt19937_64 engine_;
};

struct Surface {
  ProjectionMesh mesh;
  std::vector<Vector3d> positions_m;
};

Surface SurfaceOf(const ClosedMesh& closed) {
  Surface surface;
  std::vector<std::array<uint32_t, 3>> triangles;
  for (uint32_t t = 0; t < closed.triangle_slot_count(); ++t) {
    if (closed.IsTriangle(t)) triangles.push_back(closed.TriangleVertices(t));
  }
  for (uint32_t v = 0; v < closed.vertex_slot_count(); ++v) {
    surface.positions_m.push_back(closed.IsVertex(v) ? closed.PositionOf(v) : Vector3d(Vector3d::Zero()));
  }
  surface.mesh = ProjectionMesh(std::move(triangles), surface.positions_m.size());
  return surface;
}

ClosedMesh Ball(double radius_m, double edge_m) {
  auto mesh = GenerateSphere(radius_m, edge_m);
  EXPECT_TRUE(mesh.ok()) << mesh.status();
  auto closed = ClosedMesh::Build(*mesh);
  EXPECT_TRUE(closed.ok()) << closed.status();
  return *std::move(closed);
}

Surface SmoothBall() { return SurfaceOf(Ball(0.05, 0.01)); }

/// A ball with a ragged hollow at its top, as a cavitron leaves one.
Surface JaggedBall(uint64_t seed) {
  ClosedMesh closed = Ball(0.05, 0.01);
  Carver carver(&closed);
  Random random(seed);
  std::vector<TetId> wanted;
  for (uint32_t t = 0; t < closed.tet_slot_count(); ++t) {
    if (!closed.IsTet(t)) continue;
    Vector3d center = Vector3d::Zero();
    for (const uint32_t v : closed.TetVertices(t)) center += closed.PositionOf(v) / 4;
    if ((center - Vector3d(0, 0, 0.05)).norm() < 0.03 && random.Uniform(0, 1) < 0.7) wanted.push_back(closed.IdOfTet(t));
  }
  for (int round = 0; round < 10; ++round) {
    for (const TetId id : wanted) {
      if (closed.Find(id) != kNoSlot) {
        EXPECT_TRUE(carver.Remove(id).ok());
      }
    }
  }
  EXPECT_GT(carver.statistics().removed_tets, 20U);
  EXPECT_TRUE(closed.Check().ok());
  return SurfaceOf(closed);
}

/// Least distance of any triangle from a segment, from formulas of its own: ternary search along the segment of the convex distance to the
/// triangle, which is that to its plane or its sides.
double DistanceToTriangle(const Vector3d& p, const std::array<Vector3d, 3>& x) {
  const Vector3d n = (x[1] - x[0]).cross(x[2] - x[0]);
  bool over = true;
  double nearest = std::numeric_limits<double>::infinity();
  for (size_t k = 0; k < 3; ++k) {
    const Vector3d side = x[(k + 1) % 3] - x[k];
    over = over && n.dot(side.cross(p - x[k])) >= 0;
    const double t = std::clamp((p - x[k]).dot(side) / side.squaredNorm(), 0.0, 1.0);
    nearest = std::min(nearest, (p - x[k] - t * side).norm());
  }
  return over && n.norm() > 0 ? std::min(nearest, std::abs(n.normalized().dot(p - x[0]))) : nearest;
}
double BruteDistance(const Vector3d& tip, const Vector3d& axis, const std::array<Vector3d, 3>& x) {
  double low = 0;
  double high = 1;
  for (int i = 0; i < 100; ++i) {
    const double a = low + (high - low) / 3;
    const double b = high - (high - low) / 3;
    if (DistanceToTriangle(tip + a * axis, x) < DistanceToTriangle(tip + b * axis, x)) {
      high = b;
    } else {
      low = a;
    }
  }
  return DistanceToTriangle(tip + (low + high) / 2 * axis, x);
}

std::array<Vector3d, 3> CornersOf(const ProjectionMesh& mesh, const std::vector<Vector3d>& x, uint32_t t) {
  const auto& v = mesh.triangles()[t];
  return {x[v[0]], x[v[1]], x[v[2]]};
}

std::vector<Vector3d> PositionsOf(const ProjectionResult& result, std::vector<Vector3d> positions_m) {
  for (const ProjectedVertex& v : result.moved) positions_m[v.vertex] = v.position_m;
  return positions_m;
}

/// Least distance of the surface from a capsule, as far as it is below 5 mm.
double LeastGap(const Surface& surface, const std::vector<Vector3d>& x, const Vector3d& tip, const Vector3d& axis, double radius_m) {
  double least = 0.005;
  for (uint32_t t = 0; t < surface.mesh.triangles().size(); ++t) {
    const std::array<Vector3d, 3> corners = CornersOf(surface.mesh, x, t);
    const double extent_m = std::max((corners[1] - corners[0]).norm(), (corners[2] - corners[0]).norm());
    const double along = axis.norm() > 0 ? std::clamp((corners[0] - tip).dot(axis) / axis.squaredNorm(), 0.0, 1.0) : 0;
    if ((corners[0] - tip - along * axis).norm() - extent_m - radius_m > least) continue;
    least = std::min(least, BruteDistance(tip, axis, corners) - radius_m);
  }
  return least;
}

ProjectionCapsule Moved(const Vector3d& tip, const Vector3d& axis, const Vector3d& by, double radius_m) {
  return {.tip_from_m = tip, .axis_from_m = axis, .tip_to_m = tip + by, .axis_to_m = axis, .radius_m = radius_m};
}

/// Solid angle of the surface around a point over 4 pi: 1 inside, 0 outside.
double WindingNumber(const Surface& surface, const std::vector<Vector3d>& x, const Vector3d& p) {
  double sum = 0;
  for (uint32_t t = 0; t < surface.mesh.triangles().size(); ++t) {
    auto [a, b, c] = CornersOf(surface.mesh, x, t);
    a -= p;
    b -= p;
    c -= p;
    sum +=
        2 * std::atan2(a.cross(b).dot(c), a.norm() * b.norm() * c.norm() + a.dot(b) * c.norm() + b.dot(c) * a.norm() + c.dot(a) * b.norm());
  }
  return sum / (4 * EIGEN_PI);
}

TEST(ProjectionTest, DistanceIsThatOfBruteForce) {
  Random random(1);
  int pierced = 0;
  for (int i = 0; i < 2000; ++i) {
    const Vector3d tip = random.InCube(1);
    const Vector3d axis = i % 10 == 0 ? Vector3d(Vector3d::Zero()) : random.InCube(2);
    const std::array<Vector3d, 3> x = {random.InCube(1), random.InCube(1), random.InCube(1)};
    const SkeletonDistance distance = DistanceToSkeleton(tip, axis, x);
    EXPECT_NEAR(distance.distance_m, BruteDistance(tip, axis, x), 1e-9);
    EXPECT_NEAR((distance.weights[0] * x[0] + distance.weights[1] * x[1] + distance.weights[2] * x[2] - tip - distance.along * axis).norm(),
                distance.distance_m, 1e-12);
    EXPECT_NEAR(distance.weights.sum(), 1, 1e-12);
    pierced += distance.is_pierced ? 1 : 0;
  }
  EXPECT_GT(pierced, 50);
}

TEST(ProjectionTest, DetectionIsThatOfBruteForce) {
  const Surface surface = SmoothBall();
  Random random(2);
  size_t found_static = 0;
  size_t found_swept = 0;
  for (int i = 0; i < 40; ++i) {
    ProjectionCapsule capsule =
        Moved(0.06 * random.Direction(), 0.1 * random.Direction(), random.InCube(0.02), random.Uniform(0.002, 0.006));
    capsule.axis_to_m = Eigen::AngleAxisd(random.Uniform(-0.2, 0.2), random.Direction()) * capsule.axis_from_m;
    std::vector<Vector3d> to = surface.positions_m;
    for (Vector3d& x : to) x += random.InCube(0.004);

    std::vector<uint32_t> brute;
    for (uint32_t t = 0; t < surface.mesh.triangles().size(); ++t) {
      if (BruteDistance(capsule.tip_to_m, capsule.axis_to_m, CornersOf(surface.mesh, to, t)) <= capsule.radius_m) brute.push_back(t);
    }
    EXPECT_EQ(FindTouching(surface.mesh, to, capsule), brute);
    found_static += brute.size();

    // In the frame of the capsule: everything turned and moved as it does, by times.
    const auto turn = Eigen::Quaterniond::FromTwoVectors(capsule.axis_from_m, capsule.axis_to_m);
    const std::vector<uint32_t> swept = FindSwept(surface.mesh, surface.positions_m, to, capsule);
    std::vector<uint8_t> is_found(surface.mesh.triangles().size(), 0);
    for (const uint32_t t : swept) is_found[t] = 1;
    for (uint32_t t = 0; t < surface.mesh.triangles().size(); ++t) {
      double least = std::numeric_limits<double>::infinity();
      double speed = 0;
      constexpr int kTimes = 300;
      for (int k = 0; k <= kTimes; ++k) {
        std::array<Vector3d, 3> x;
        for (size_t c = 0; c < 3; ++c) {
          const uint32_t v = surface.mesh.triangles()[t][c];
          const Vector3d start = capsule.tip_to_m + turn * (surface.positions_m[v] - capsule.tip_from_m);
          x[c] = start + k / static_cast<double>(kTimes) * (to[v] - start);
          speed = std::max(speed, (to[v] - start).norm());
        }
        least = std::min(least, DistanceToSkeleton(capsule.tip_to_m, capsule.axis_to_m, x).distance_m);
      }
      if (least <= capsule.radius_m) {
        EXPECT_TRUE(is_found[t]);
      }
      if (is_found[t]) {
        EXPECT_LE(least, capsule.radius_m * (1 + 1e-6) + speed / kTimes);
      }
      found_swept += is_found[t];
    }
    EXPECT_TRUE(std::is_sorted(swept.begin(), swept.end()));
  }
  EXPECT_GT(found_static, 200U);
  EXPECT_GT(found_swept, found_static);
}

EdgeMotion RandomEdge(Random& random) {
  EdgeMotion edge;
  edge.a = random.InCube(1);
  edge.b = random.InCube(1);
  edge.move_a = random.InCube(2);
  edge.move_b = random.InCube(2);
  return edge;
}

TEST(ProjectionTest, CrossingsSolveTheQuadraticAndCountByParity) {
  Random random(3);
  int crossed = 0;
  int back = 0;
  for (int i = 0; i < 20000; ++i) {
    EdgeMotion edge = RandomEdge(random);
    if (i % 7 == 0) edge.move_b = edge.move_a;  // the linear case
    const double length = random.Uniform(0.2, 1.5);
    std::array<EdgeCrossing, 2> crossings;
    const int count = FindCrossings(edge, length, &crossings);
    int hits = 0;
    for (int k = 0; k < count; ++k) {
      const EdgeCrossing& c = crossings[static_cast<size_t>(k)];
      const Vector3d z = Vector3d::UnitZ();
      const Vector3d along = edge.b - edge.a;
      const Vector3d turn = edge.move_b - edge.move_a;
      // As Forest 2003 writes it, EndP = 0.
      const double q2 = edge.move_a.dot(turn.cross(z));
      const double q1 = edge.move_a.dot(along.cross(z)) + edge.a.dot(turn.cross(z));
      const double q0 = edge.a.dot(along.cross(z));
      const double scale = std::abs(q2) * c.time * c.time + std::abs(q1 * c.time) + std::abs(q0);
      if (std::abs(c.time) < 100) {
        EXPECT_LT(std::abs((q2 * c.time + q1) * c.time + q0), 1e-10 * scale) << i;
      }
      if (!c.is_hit) continue;
      ++hits;
      const Vector3d point = edge.a + c.time * edge.move_a + c.on_edge * (along + c.time * turn);
      EXPECT_LT((point - Vector3d(0, 0, c.on_axis * length)).norm(), 1e-9) << "the two points are one";
    }
    crossed += HasCrossed(edge, length, nullptr) ? 1 : 0;
    back += hits == 2 ? 1 : 0;
    EXPECT_EQ(HasCrossed(edge, length, nullptr), hits == 1);
    // By times: the edge's line changes sides of the skeleton while it is beside it.
    int changes = 0;
    const auto side = [&](double t) {
      const Vector3d a = edge.a + t * edge.move_a;
      const Vector3d b = edge.b + t * edge.move_b;
      return a.x() * b.y() - a.y() * b.x();
    };
    constexpr int kTimes = 400;
    bool is_close = false;  // to a limit of a range, where times do not tell
    for (int k = 0; k < count; ++k) {
      const EdgeCrossing& c = crossings[static_cast<size_t>(k)];
      for (const double place : {c.on_edge, c.on_axis}) is_close |= std::min(std::abs(place), std::abs(place - 1)) < 0.2;
      if (count == 2) is_close |= std::abs(crossings[0].time - crossings[1].time) < 0.01;
    }
    if (is_close) continue;
    for (int k = 0; k < kTimes; ++k) {
      const double t0 = k / static_cast<double>(kTimes);
      const double t1 = (k + 1) / static_cast<double>(kTimes);
      if ((side(t0) < 0) == (side(t1) < 0)) continue;
      const double t = (t0 + t1) / 2;
      const Vector3d a = edge.a + t * edge.move_a;
      const Vector3d b = edge.b + t * edge.move_b;
      const Eigen::Vector2d along = (b - a).head<2>();
      const double u = -a.head<2>().dot(along) / along.squaredNorm();
      const double height = a.z() + u * (b.z() - a.z());
      changes += u >= 0 && u <= 1 && height >= 0 && height <= length ? 1 : 0;
    }
    EXPECT_EQ(changes, hits) << i;
  }
  EXPECT_GT(crossed, 500);
  EXPECT_GT(back, 20) << "some edges go through and come back";
}

/// Vertices in motion past a skeleton of length 1 along z, and edges between them.
struct Fan {
  std::vector<Vector3d> at, move;
  std::vector<std::array<size_t, 2>> edges;
  EdgeMotion MotionOf(size_t e, const std::vector<double>& share) const {
    const auto [a, b] = edges[e];
    return {at[a], share[a] * move[a], at[b], share[b] * move[b]};
  }
};

int Remaining(const Fan& fan, const std::vector<double>& share) {
  int crossed = 0;
  for (size_t e = 0; e < fan.edges.size(); ++e) crossed += HasCrossed(fan.MotionOf(e, share), 1, nullptr) ? 1 : 0;
  return crossed;
}

TEST(ProjectionTest, IntervalsBlockWhereStoppingAtTheFirstHitDoesNot) {
  Random random(4);
  int cases = 0;
  int naive_fails = 0;
  uint32_t blocked_edges = 0;
  uint32_t held = 0;
  uint32_t taken_back = 0;
  for (int i = 0; i < 40000; ++i) {
    Fan fan;
    const size_t count = 3 + static_cast<size_t>(i % 2);
    std::vector<VertexMotion> vertices;
    for (size_t v = 0; v < count; ++v) {
      // Every other one moves as tissue does past a tool, the rest at random.
      fan.at.push_back(random.InCube(1) + Vector3d(i % 4 < 2 ? 1.2 : 0, 0, 0.5));
      fan.move.push_back(i % 4 < 2 ? Vector3d(random.InCube(0.5) - Vector3d(1.5, 0, 0)) : random.InCube(1));
      vertices.push_back({fan.at[v], fan.move[v]});
    }
    // A fan of two edges, or all six of a tetrahedron.
    if (count == 3) fan.edges = {{0, 1}, {0, 2}};
    if (count == 4) fan.edges = {{0, 1}, {0, 2}, {0, 3}, {1, 2}, {1, 3}, {2, 3}};
    const std::vector<double> whole(count, 1.0);
    std::vector<double> first_hit(count, 1.0);
    uint32_t crossed = 0;
    for (size_t e = 0; e < fan.edges.size(); ++e) {
      EdgeCrossing crossing;
      if (!HasCrossed(fan.MotionOf(e, whole), 1, &crossing)) continue;
      ++crossed;
      for (const size_t v : fan.edges[e]) first_hit[v] = std::min(first_hit[v], crossing.time);
    }
    const BlockedMotion blocked = BlockCrossings(vertices, fan.edges, 1);
    EXPECT_EQ(blocked.crossed_edges, crossed);
    EXPECT_EQ(Remaining(fan, blocked.share), 0) << i;
    if (crossed == 0) {
      EXPECT_EQ(blocked.share, whole);
    }
    if (crossed < 2) continue;
    ++cases;
    blocked_edges += crossed;
    held += blocked.held_vertices;
    taken_back += blocked.taken_back;
    // A hair before the first hit, or the edge that hit there would be on the skeleton.
    for (double& share : first_hit) share -= 1e-9;
    naive_fails += Remaining(fan, first_hit) > 0 ? 1 : 0;
  }
  EXPECT_GT(cases, 2000);
  EXPECT_GT(naive_fails, 100);
  EXPECT_GT(held, 50U) << "also with empty intervals";
  EXPECT_LT(taken_back, blocked_edges / 20) << "it is the intervals that block";
}

TEST(ProjectionTest, AnEmptyIntervalMakesTheOtherVertexYield) {
  // A turns away while B drags the edge across: A must have passed at the time of the crossing.
  EdgeMotion edge;
  edge.a = {-0.1, 1, 0.5};
  edge.move_a = {0.1, 0, 0};  // against B
  edge.b = {0.5, -1, 0.5};
  edge.move_b = {-2, 0, 0};
  EdgeCrossing crossing;
  ASSERT_TRUE(HasCrossed(edge, 1, &crossing));
  {
    AcceptanceIntervals intervals(2);
    EXPECT_FALSE(intervals.Block(edge, 1, crossing, 0, 1));
    EXPECT_DOUBLE_EQ(intervals.at(0).low, crossing.time);
    EXPECT_DOUBLE_EQ(intervals.at(1).high, crossing.time);
  }
  AcceptanceIntervals intervals(2);
  intervals.Restrict(0, {0, crossing.time / 2});  // by another edge
  EXPECT_TRUE(intervals.Block(edge, 1, crossing, 0, 1));
  EXPECT_DOUBLE_EQ(intervals.at(0).low, crossing.time / 2);
  EXPECT_DOUBLE_EQ(intervals.at(0).high, crossing.time / 2);
  const double limit = intervals.at(1).high;
  EXPECT_LT(limit, crossing.time);
  EXPECT_GT(limit, 0);
  for (const double share : {0.0, limit / 2, limit - 1e-9}) {
    EXPECT_FALSE(HasCrossed({edge.a, crossing.time / 2 * edge.move_a, edge.b, share * edge.move_b}, 1, nullptr));
  }
  EXPECT_TRUE(HasCrossed({edge.a, crossing.time / 2 * edge.move_a, edge.b, (limit + 1e-6) * edge.move_b}, 1, nullptr))
      << "no more than needed";
}

TEST(ProjectionTest, SurfacesAreFreeOfAToolAfterwards) {
  int crossed = 0;
  int not_free = 0;
  int most_rounds = 0;
  for (uint64_t seed = 0; seed < 6; ++seed) {
    const Surface surface = seed < 2 ? SmoothBall() : JaggedBall(seed);
    Random random(10 + seed);
    for (int i = 0; i < 60; ++i) {
      SCOPED_TRACE(testing::Message() << "seed " << seed << ", motion " << i);
      // Outside at first, then up to 25 mm into the ball near its top, tip ahead, askew, or with the shaft across.
      const double radius_m = random.Uniform(0.002, 0.006);
      const Vector3d target = Vector3d(0, 0, 0.045) + random.InCube(0.02);
      const Vector3d direction = (Vector3d(0, 0, 1) + 0.7 * random.InCube(1)).normalized();
      Vector3d axis = 0.12 * direction;
      if (i % 3 == 1) axis = 0.12 * (Vector3d(direction.y(), -direction.x(), 0.2)).normalized();
      Vector3d tip = target + 0.02 * direction - (i % 3 == 1 ? Vector3d(0.5 * axis) : Vector3d::Zero());
      const Vector3d by = -random.Uniform(0.005, 0.03) * direction;
      while (LeastGap(surface, surface.positions_m, tip, axis, radius_m) < 1e-4) tip += 0.005 * direction;
      ProjectionCapsule capsule = Moved(tip, axis, by, radius_m);
      if (i % 4 == 0) capsule.axis_to_m = Eigen::AngleAxisd(random.Uniform(-0.3, 0.3), random.Direction()) * axis;
      std::vector<Vector3d> to = surface.positions_m;
      for (Vector3d& x : to) x += random.InCube(i % 5 == 0 ? 0.002 : 0);
      ProjectionInput input{.mesh = &surface.mesh, .from_m = surface.positions_m, .to_m = to, .is_fixed = {}, .capsules = {&capsule, 1}};
      ProjectionOptions options;
      options.tip_rule = i % 2 == 0 ? TipRule::kLeastMotion : TipRule::kNeighborWeights;
      const ProjectionResult result = ProjectOut(input, options);
      const std::vector<Vector3d> after = PositionsOf(result, to);
      EXPECT_EQ(result.share, 1);
      const double gap_m = LeastGap(surface, after, capsule.tip_to_m, capsule.axis_to_m, radius_m);
      if (!result.is_free) ++not_free;
      EXPECT_GE(gap_m, -1e-8);
      for (const double s : {0.0, 0.5, 1.0}) {
        EXPECT_NEAR(WindingNumber(surface, after, capsule.tip_to_m + s * capsule.axis_to_m), 0, 1e-6) << "the skeleton is outside";
      }
      // Every vertex that moved says which capsule moved it, and stays on its side of it.
      for (const ProjectedVertex& v : result.moved) {
        const auto found =
            std::find_if(result.limits.begin(), result.limits.end(), [&](const auto& limit) { return limit.vertex == v.vertex; });
        if (result.parts > 1) continue;
        ASSERT_NE(found, result.limits.end());
        EXPECT_EQ(found->capsule, 0U);
        EXPECT_NEAR(found->normal.norm(), 1, 1e-12);
        EXPECT_GE((v.position_m - found->limit_m).dot(found->normal), -1e-12);
        EXPECT_GT(found->pushed_m, 0);
      }
      crossed += result.crossed_edges > 0 ? 1 : 0;
      most_rounds = std::max(most_rounds, result.rounds);
      // The same again, bit for bit.
      const ProjectionResult again = ProjectOut(input, options);
      ASSERT_EQ(again.moved.size(), result.moved.size());
      for (size_t k = 0; k < again.moved.size(); ++k) EXPECT_EQ(again.moved[k].position_m, result.moved[k].position_m);
    }
  }
  EXPECT_EQ(not_free, 0);
  EXPECT_GT(crossed, 50) << "the stages of crossed edges were needed";
  RecordProperty("most_rounds", most_rounds);
}

TEST(ProjectionTest, NothingMovesWhereNothingIsTouched) {
  const Surface surface = SmoothBall();
  const ProjectionCapsule capsule = Moved({0, 0, 0.07}, {0, 0, 0.1}, {0, 0, -0.01}, 0.004);
  const ProjectionInput input{
      .mesh = &surface.mesh, .from_m = surface.positions_m, .to_m = surface.positions_m, .is_fixed = {}, .capsules = {&capsule, 1}};
  const ProjectionResult result = ProjectOut(input);
  EXPECT_TRUE(result.moved.empty());
  EXPECT_TRUE(result.limits.empty());
  EXPECT_TRUE(result.is_free);
  // Within reach, a limit without a push.
  const ProjectionResult near = ProjectOut(input, {.reach_m = 0.012});
  EXPECT_TRUE(near.moved.empty());
  ASSERT_FALSE(near.limits.empty());
  for (const ProjectionLimit& limit : near.limits) {
    EXPECT_EQ(limit.pushed_m, 0);
    const Vector3d from_tip = limit.limit_m - Vector3d(0, 0, 0.06);
    EXPECT_NEAR(from_tip.norm(), 0.004, 1e-9) << "a plane that touches the tip";
    EXPECT_GT((surface.positions_m[limit.vertex] - limit.limit_m).dot(limit.normal), 0);
  }
}

/// A flat and a curved lattice of triangles, 10 mm apart, under a tip.
Surface Lattice(double curvature_per_m) {
  Surface surface;
  constexpr uint32_t kSide = 21;
  std::vector<std::array<uint32_t, 3>> triangles;
  for (uint32_t j = 0; j < kSide; ++j) {
    for (uint32_t i = 0; i < kSide; ++i) {
      const double x = 0.01 * (static_cast<double>(i) - 10);
      const double y = 0.01 * (static_cast<double>(j) - 10);
      surface.positions_m.emplace_back(x, y, -curvature_per_m * (x * x + y * y) / 2);
      if (i + 1 == kSide || j + 1 == kSide) continue;
      const uint32_t v = j * kSide + i;
      triangles.push_back({v, v + 1, v + kSide + 1});
      triangles.push_back({v, v + kSide + 1, v + kSide});
    }
  }
  surface.mesh = ProjectionMesh(std::move(triangles), surface.positions_m.size());
  return surface;
}

TEST(ProjectionTest, NothingPopsWhenAnotherTriangleComesNext) {
  constexpr double kRadius_m = 0.003;
  constexpr double kDepth_m = 0.004;
  constexpr double kSlide_m = 1e-5;
  for (const double curvature : {0.0, 5.0}) {
    const Surface surface = Lattice(curvature);
    for (const TipRule rule : {TipRule::kLeastMotion, TipRule::kNeighborWeights}) {
      std::vector<Vector3d> before;
      std::vector<Vector3d> naive_before;
      double largest = 0;
      double naive_largest = 0;
      for (int i = 0; i < 2500; ++i) {
        const Vector3d place(-0.012 + i * kSlide_m, 0.001 + 0.4 * i * kSlide_m, 0);
        const double surface_z = -curvature * place.squaredNorm() / 2;
        const Vector3d tip = place + Vector3d(0, 0, surface_z + kRadius_m + 1e-4);
        const ProjectionCapsule capsule = Moved(tip, {0, 0, 0.1}, {0, 0, -kDepth_m}, kRadius_m);
        const ProjectionInput input{
            .mesh = &surface.mesh, .from_m = surface.positions_m, .to_m = surface.positions_m, .is_fixed = {}, .capsules = {&capsule, 1}};
        ProjectionOptions options;
        options.tip_rule = rule;
        const std::vector<Vector3d> now = PositionsOf(ProjectOut(input, options), surface.positions_m);
        // Without shares: the triangle next to the tip goes onto the plane, whichever it is.
        std::vector<Vector3d> naive = surface.positions_m;
        double nearest = 1;
        uint32_t triangle = 0;
        for (uint32_t t = 0; t < surface.mesh.triangles().size(); ++t) {
          const double distance = DistanceToTriangle(tip - Vector3d(0, 0, kDepth_m), CornersOf(surface.mesh, surface.positions_m, t));
          if (distance < nearest) {
            nearest = distance;
            triangle = t;
          }
        }
        for (const uint32_t v : surface.mesh.triangles()[triangle]) naive[v].z() = std::min(naive[v].z(), tip.z() - kDepth_m - kRadius_m);
        for (size_t v = 0; i > 0 && v < now.size(); ++v) {
          largest = std::max(largest, (now[v] - before[v]).norm());
          naive_largest = std::max(naive_largest, (naive[v] - naive_before[v]).norm());
        }
        before = now;
        naive_before = naive;
      }
      EXPECT_LT(largest, 30 * kSlide_m) << "curvature " << curvature << ", rule " << static_cast<int>(rule);
      EXPECT_GT(naive_largest, 0.5 * kDepth_m);
    }
  }
}

TEST(ProjectionTest, SeveralToolsAreAllFree) {
  int shortened = 0;
  for (uint64_t seed = 0; seed < 4; ++seed) {
    const Surface surface = seed % 2 == 0 ? SmoothBall() : JaggedBall(seed);
    Random random(50 + seed);
    for (int i = 0; i < 40; ++i) {
      SCOPED_TRACE(testing::Message() << "seed " << seed << ", case " << i);
      // Two probes side by side or against each other, and jaws that close astride of the top.
      std::vector<ProjectionCapsule> capsules;
      const double radius_m = 0.004;
      const auto add = [&](Vector3d tip, const Vector3d& axis, const Vector3d& by) {
        while (LeastGap(surface, surface.positions_m, tip, axis, radius_m) < 1e-4) tip -= 0.003 * by.normalized();
        capsules.push_back(Moved(tip, axis, by, radius_m));
      };
      const Vector3d left = (Vector3d(-0.6, 0, 1) + 0.2 * random.InCube(1)).normalized();
      const Vector3d right = (Vector3d(0.6, 0, 1) + 0.2 * random.InCube(1)).normalized();
      add(0.06 * left, 0.1 * left, -random.Uniform(0.005, 0.02) * left);
      add(0.06 * right, 0.1 * right, -random.Uniform(0.005, 0.02) * right);
      if (i % 2 == 1) add(Vector3d(-0.05, 0, 0.06) + random.InCube(0.005), {0.1, 0, 0}, {0, 0, -0.015});
      const ProjectionInput input{
          .mesh = &surface.mesh, .from_m = surface.positions_m, .to_m = surface.positions_m, .is_fixed = {}, .capsules = capsules};
      const ProjectionResult result = ProjectOut(input);
      EXPECT_TRUE(result.is_free);
      shortened += result.share < 1 ? 1 : 0;
      const std::vector<Vector3d> after = PositionsOf(result, surface.positions_m);
      for (const ProjectionCapsule& capsule : capsules) {
        const Vector3d tip = capsule.tip_from_m + result.share * (capsule.tip_to_m - capsule.tip_from_m);
        EXPECT_GE(LeastGap(surface, after, tip, capsule.axis_to_m, radius_m), -1e-8);
        EXPECT_NEAR(WindingNumber(surface, after, tip), 0, 1e-6);
      }
    }
  }
  EXPECT_LT(shortened, 16) << "tissue that is not held seldom stops tools";
}

TEST(ProjectionTest, ToolsThatLeaveNoPlaceGoOnlyPartOfTheWay) {
  const Surface surface = SmoothBall();
  // Every vertex held: the tool must stay out.
  const std::vector<uint8_t> fixed(surface.positions_m.size(), 1);
  const ProjectionCapsule capsule = Moved({0, 0, 0.06}, {0, 0, 0.1}, {0, 0, -0.02}, 0.004);
  ProjectionInput input{
      .mesh = &surface.mesh, .from_m = surface.positions_m, .to_m = surface.positions_m, .is_fixed = fixed, .capsules = {&capsule, 1}};
  const ProjectionResult result = ProjectOut(input);
  EXPECT_TRUE(result.moved.empty());
  EXPECT_TRUE(result.is_free);
  EXPECT_GT(result.share, 0) << "there are 6 mm of room";
  EXPECT_LE(result.share, 0.3);
  // With none of the motion left to give up, the start is the answer.
  const ProjectionCapsule at_once = Moved({0, 0, 0.0541}, {0, 0, 0.1}, {0, 0, -0.04}, 0.004);
  input.capsules = {&at_once, 1};
  const ProjectionResult stopped = ProjectOut(input, {.max_shortenings = 2});
  EXPECT_EQ(stopped.share, 0);
  EXPECT_TRUE(stopped.is_free);
}

TEST(ProjectionTest, ClosingJawsSqueezeWhatIsBetween) {
  const Surface surface = SmoothBall();
  InstrumentDescription forceps{.kind = InstrumentKind::kForceps, .jaw_length_m = 0.03, .jaw_radius_m = 0.002};
  const auto open = CapsulesOf(forceps, 0.2, 0.004, 1.2);
  const auto closed = CapsulesOf(forceps, 0.2, 0.004, 0.9);
  // Tips beside the ball at half height of the cap, hinges above it.
  const Vector3d origin(0, 0.047, 0);
  const Eigen::Matrix3d upright = Eigen::AngleAxisd(-EIGEN_PI / 2, Vector3d::UnitX()).toRotationMatrix();
  std::vector<ProjectionCapsule> capsules;
  for (size_t k = 0; k < open.size(); ++k) {
    ProjectionCapsule capsule;
    capsule.tip_from_m = origin + upright * open[k].tip_m;
    capsule.axis_from_m = upright * open[k].axis_m;
    capsule.tip_to_m = origin + Vector3d(0, -0.003, 0) + upright * closed[k].tip_m;
    capsule.axis_to_m = upright * closed[k].axis_m;
    capsule.radius_m = open[k].radius_m;
    capsules.push_back(capsule);
  }
  const ProjectionInput input{
      .mesh = &surface.mesh, .from_m = surface.positions_m, .to_m = surface.positions_m, .is_fixed = {}, .capsules = capsules};
  const ProjectionResult result = ProjectOut(input);
  EXPECT_TRUE(result.is_free);
  const std::vector<Vector3d> after = PositionsOf(result, surface.positions_m);
  EXPECT_EQ(result.share, 1);
  EXPECT_FALSE(result.moved.empty());
  for (const ProjectionCapsule& capsule : capsules) {
    EXPECT_GE(LeastGap(surface, after, capsule.tip_to_m, capsule.axis_to_m, capsule.radius_m), -1e-8);
  }
}

}  // namespace
}  // namespace palpate::sim::projection_test
