// Tools, capsules and planes against tissue: whatever is asked of a step, nothing passes through anything. Checked on the host in double,
// after every step.
#include "gpu/dynamics/obstacle_barrier.h"

#include <Eigen/Dense>
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "gpu/dynamics/tissue_solver.h"
#include "tests/gpu/dynamics/surface_models.h"
#include "tests/support/device_test.h"

namespace palpate::gpu::obstacle_barrier_test {
namespace {

using Eigen::Vector3d;

constexpr double kDt = 1.0 / 120;
constexpr double kMargin = 0.001;
constexpr double kTolerance = 1e-6;  // [m], of the guarantee at these sizes

Vector3d ToVector(const Float4& v) { return {v.x, v.y, v.z}; }

double PointTriangle(const Vector3d& p, const Vector3d& a, const Vector3d& b, const Vector3d& c) {
  const Vector3d n = (b - a).cross(c - a);
  if (n.dot((b - a).cross(p - a)) >= 0 && n.dot((c - b).cross(p - b)) >= 0 && n.dot((a - c).cross(p - c)) >= 0) {
    return std::abs(n.dot(p - a)) / n.norm();
  }
  const auto edge = [&](const Vector3d& u, const Vector3d& v) {
    const double s = std::clamp((p - u).dot(v - u) / std::max((v - u).squaredNorm(), 1e-300), 0.0, 1.0);
    return (p - u - s * (v - u)).norm();
  };
  return std::min({edge(a, b), edge(b, c), edge(c, a)});
}

/// The distance of two segments is convex in the place on one of them.
double SegmentSegment(const Vector3d& p, const Vector3d& d, const Vector3d& a, const Vector3d& b) {
  const auto at = [&](double s) {
    const Vector3d q = p + s * d;
    const double t = std::clamp((q - a).dot(b - a) / std::max((b - a).squaredNorm(), 1e-300), 0.0, 1.0);
    return (q - a - t * (b - a)).norm();
  };
  double low = 0, high = 1;
  for (int i = 0; i < 80; ++i) {
    const double u = low + (high - low) / 3, v = high - (high - low) / 3;
    (at(u) < at(v) ? high : low) = at(u) < at(v) ? v : u;
  }
  return std::min({at(0), at(1), at((low + high) / 2)});
}

bool Crosses(const Vector3d& p, const Vector3d& d, const Vector3d& a, const Vector3d& b, const Vector3d& c) {
  const Vector3d n = (b - a).cross(c - a);
  const double h0 = n.dot(p - a), h1 = n.dot(p + d - a);
  if (h0 * h1 > 0 || h0 == h1) return false;
  const Vector3d q = p + h0 / (h0 - h1) * d;
  return n.dot((b - a).cross(q - a)) >= 0 && n.dot((c - b).cross(q - b)) >= 0 && n.dot((a - c).cross(q - c)) >= 0;
}

double AxisTriangle(const Vector3d& p, const Vector3d& d, const Vector3d& a, const Vector3d& b, const Vector3d& c) {
  if (Crosses(p, d, a, b, c)) return 0;
  return std::min({PointTriangle(p, a, b, c), PointTriangle(p + d, a, b, c), SegmentSegment(p, d, a, b), SegmentSegment(p, d, b, c),
                   SegmentSegment(p, d, c, a)});
}

class ObstacleBarrierTest : public test::DeviceTest {
 protected:
  void TearDown() override {
    solver_.reset();
    DeviceTest::TearDown();
  }

  void Make(const TissueModel& model, const TissueOptions& options, const std::vector<ColliderDescription>& colliders,
            const std::vector<PlaneObstacle>& planes = {}) {
    model_ = model;
    colliders_ = colliders;
    planes_ = planes;
    targets_.clear();
    for (const ColliderDescription& c : colliders) targets_.push_back({c.tip_m, c.axis_m});
    solver_.reset();
    PALPATE_TEST_ASSIGN(solver_,
                        TissueSolver::Create(context(), model, options, colliders, planes, TissueTuning::For(context()->device())));
    most_blocked_m_ = 0;
    nearest_m_ = std::numeric_limits<double>::infinity();
  }

  void Throw(const Vector3d& velocity) {
    std::vector<float> x, v;
    for (const auto& r : model_.rest_m) {
      for (int axis = 0; axis < 3; ++axis) {
        x.push_back(static_cast<float>(r[static_cast<size_t>(axis)]));
        v.push_back(static_cast<float>(velocity[axis]));
      }
    }
    PALPATE_ASSERT_OK(solver_->WriteState(x, v));
  }

  /// One step and what must hold after it.
  void Step(uint32_t passing = 0) {
    PALPATE_TEST_ASSIGN(step_, solver_->Step(targets_));
    ASSERT_EQ(step_.bad_vertices, 0U);
    ASSERT_EQ(step_.passing_colliders, passing);
    std::vector<float> flat(model_.rest_m.size() * 3);
    PALPATE_ASSERT_OK(solver_->ReadPositions(flat));
    x_ = Unpack(flat);
    for (size_t c = 0; c < colliders_.size(); ++c) {
      most_blocked_m_ = std::max(most_blocked_m_, step_.blocked_m[c]);
      if (passing > 0) continue;
      const double gap = Distance(c) - static_cast<float>(colliders_[c].radius_m);
      ASSERT_GT(gap, -kTolerance) << "collider " << c;
      nearest_m_ = std::min(nearest_m_, gap);
    }
    for (const PlaneObstacle& plane : planes_) {
      for (const auto& t : model_.surface_triangles) {
        for (const uint32_t v : t) ASSERT_GT(ToVector(plane.normal_offset).dot(x_[v]) - plane.normal_offset.w, -kTolerance);
      }
    }
    if (!model_.body_triangle_begin.empty()) {
      ASSERT_EQ(CountIntersections(model_.surface_triangles, x_), 0U);
    }
  }

  Vector3d Tip(size_t c) const { return ToVector(step_.colliders[c].tip); }
  Vector3d Axis(size_t c) const { return ToVector(step_.colliders[c].axis); }

  /// From the axis to the nearest surface triangle.
  double Distance(size_t c) const {
    double least = std::numeric_limits<double>::infinity();
    for (const auto& t : model_.surface_triangles) {
      const Vector3d &a = x_[t[0]], &b = x_[t[1]], &e = x_[t[2]];
      // Most are far away.
      const Vector3d center = (a + b + e) / 3;
      const double extent = std::max({(a - center).norm(), (b - center).norm(), (e - center).norm()});
      const double s = std::clamp((center - Tip(c)).dot(Axis(c)) / std::max(Axis(c).squaredNorm(), 1e-300), 0.0, 1.0);
      if ((Tip(c) + s * Axis(c) - center).norm() - extent > least) continue;
      least = std::min(least, AxisTriangle(Tip(c), Axis(c), a, b, e));
    }
    return least;
  }

  /// Whether the tool is on the side of a sheet, side = 1 for z > 0, that it came from: seen that way from its axis, the faces of the
  /// sheet's side are crossed as often outwards as inwards, however the sheet is folded.
  bool IsOnItsSide(size_t c, int side) const {
    for (const double s : {0.35, 0.45, 0.5, 0.55, 0.65}) {
      int count = 0;
      for (const auto& t : model_.surface_triangles) {
        const auto rest_z = [&](size_t k) { return side * model_.rest_m[t[k]][2]; };
        if (rest_z(0) < 0 || rest_z(1) < 0 || rest_z(2) < 0) continue;
        const Vector3d &a = x_[t[0]], &b = x_[t[1]], &e = x_[t[2]];
        if (Crosses(Tip(c) + s * Axis(c), {0, 0, 0.3 * side}, a, b, e)) count += (b - a).cross(e - a).z() > 0 ? 1 : -1;
      }
      if (count != 0) return false;
    }
    return true;
  }

  TissueModel model_;
  std::vector<ColliderDescription> colliders_;
  std::vector<PlaneObstacle> planes_;
  std::vector<ColliderTarget> targets_;
  std::unique_ptr<TissueSolver> solver_;
  TissueStep step_;
  std::vector<Vector3d> x_;
  double most_blocked_m_ = 0;
  double nearest_m_ = 0;  // surface of a capsule to tissue, over all steps
};

/// A sheet in the plane z = 0, held at its two sides in y.
TissueModel Sheet(double thickness_m, const TestMaterial& material) {
  TissueModel model = BoxModel({12, 12, 1}, {0.12, 0.12, thickness_m}, {-0.06, -0.06, -thickness_m / 2}, material);
  for (size_t v = 0; v < model.rest_m.size(); ++v) model.fixed[v] = std::abs(model.rest_m[v][1]) > 0.0599;
  return model;
}

TEST_F(ObstacleBarrierTest, FastToolsNeverEnterTissue) {
  const ColliderDescription across{.radius_m = 0.002, .tip_m = {-0.08, 0.003, 0.02}, .axis_m = {0.16, 0.005, 0}};
  const ColliderDescription tip_first{.radius_m = 0.002, .tip_m = {0.004, 0.003, 0.02}, .axis_m = {0.01, 0, 0.08}};
  for (const double speed : {5.0, 20.0}) {
    for (const double thickness : {0.006, 0.001}) {
      for (const ColliderDescription& tool : {across, tip_first}) {
        for (const bool coupled : {false, true}) {
          SCOPED_TRACE(testing::Message() << speed << " m/s, " << thickness << " m thick, " << (tool.axis_m[2] > 0 ? "tip first" : "across")
                                          << (coupled ? ", coupled" : ""));
          ColliderDescription driven = tool;
          if (coupled) {
            driven.coupling_n_per_m = 2000;
            driven.mass_kg = 0.05;
            driven.damping_n_s_per_m = 20;
          }
          ASSERT_NO_FATAL_FAILURE(
              Make(Sheet(thickness, {.young_modulus_pa = 20000, .damping_s = 0.005}), {.gravity_m_per_s2 = {0, 0, 0}}, {driven}));
          constexpr double kDepth = 0.06;
          const auto go_to = [&](double z) {
            double& at = targets_[0].tip_m[2];
            while (at != z) {
              at = z < at ? std::max(z, at - speed * kDt) : std::min(z, at + speed * kDt);
              ASSERT_NO_FATAL_FAILURE(Step());
              ASSERT_TRUE(IsOnItsSide(0, 1)) << "the tool stays on its side";
            }
          };
          ASSERT_NO_FATAL_FAILURE(go_to(-kDepth));
          for (int i = 0; i < 12; ++i) {
            ASSERT_NO_FATAL_FAILURE(Step());
            ASSERT_TRUE(IsOnItsSide(0, 1)) << "the tool stays on its side";
          }
          EXPECT_LT(Tip(0).z(), -0.01) << "it takes the sheet along";
          ASSERT_NO_FATAL_FAILURE(go_to(0.05));
          // A thin sheet has wrapped itself around the tool; a coupled one goes by its spring.
          const double tolerance_m = coupled || thickness < 0.002 ? 0.02 : 1e-6;
          const auto is_free = [&] { return step_.blocked_m[0] == 0 && std::abs(Tip(0).z() - 0.05) < tolerance_m; };
          for (int i = 0; i < 60 && (i < 8 || !is_free()); ++i) ASSERT_NO_FATAL_FAILURE(Step());
          EXPECT_NEAR(Tip(0).z(), 0.05, tolerance_m) << "free again";
        }
      }
    }
  }
  EXPECT_GT(most_blocked_m_, 0);
}

TEST_F(ObstacleBarrierTest, AWhippedLigamentStaysAheadOfTheTool) {
  // As scenes/whip.json: 42 mm a step, twenty sweeps, a ligament of 8 mm.
  TissueModel model =
      BoxModel({2, 20, 4}, {0.008, 0.2, 0.03}, {-0.004, -0.1, -0.015}, {.young_modulus_pa = 40000, .density_kg_per_m3 = 1060});
  for (size_t v = 0; v < model.rest_m.size(); ++v) model.fixed[v] = std::abs(model.rest_m[v][1]) > 0.0949;
  ASSERT_NO_FATAL_FAILURE(Make(model, {.gravity_m_per_s2 = {0, 0, 0}, .iterations = 20},
                               {{.radius_m = 0.002, .tip_m = {-0.06, 0, -0.06}, .axis_m = {0, 0, 0.2}}}));
  const auto whip_to = [&](double x) {
    double& at = targets_[0].tip_m[0];
    while (at != x) {
      at = x > at ? std::min(x, at + 5 * kDt) : std::max(x, at - 5 * kDt);
      ASSERT_NO_FATAL_FAILURE(Step());
    }
  };
  const auto expect_ahead = [&] {
    for (size_t v = 0; v < x_.size(); ++v) {
      if (std::abs(model_.rest_m[v][1]) < 0.006) {
        ASSERT_GT(x_[v].x(), Tip(0).x());
      }
    }
  };
  ASSERT_NO_FATAL_FAILURE(whip_to(0.03));
  for (int i = 0; i < 40; ++i) {
    ASSERT_NO_FATAL_FAILURE(Step());
    ASSERT_NO_FATAL_FAILURE(expect_ahead()) << "step " << i;
  }
  EXPECT_NEAR(Tip(0).x(), 0.03, 1e-6) << "it has caught up";
  EXPECT_EQ(step_.blocked_m[0], 0);
  ASSERT_NO_FATAL_FAILURE(whip_to(-0.06));
  for (int i = 0; i < 5; ++i) ASSERT_NO_FATAL_FAILURE(Step());
  EXPECT_NEAR(Tip(0).x(), -0.06, 1e-6);
}

TEST_F(ObstacleBarrierTest, TissueOnAWallBlocksTheTool) {
  for (const std::string wall : {"static body", "capsule", "plane"}) {
    SCOPED_TRACE(wall);
    const TissueModel slab =
        BoxModel({6, 6, 2}, {0.09, 0.09, 0.02}, {-0.045, -0.045, 0.0005}, {.young_modulus_pa = 5000, .damping_s = 0.01});
    TissueModel model = slab;
    std::vector<ColliderDescription> colliders{{.radius_m = 0.005, .tip_m = {0, 0, 0.035}, .axis_m = {0, 0.02, 0.08}}};
    std::vector<PlaneObstacle> planes;
    if (wall == "static body") {
      TissueModel box = BoxModel({1, 1, 1}, {0.3, 0.3, 0.05}, {-0.15, -0.15, -0.05}, {});
      box.tets.clear();
      box.fixed.assign(box.rest_m.size(), 1);
      model = SceneOf({slab, box}, true);
    } else if (wall == "capsule") {
      for (size_t v = 0; v < model.rest_m.size(); ++v) model.fixed[v] = std::abs(model.rest_m[v][0]) > 0.0449;
      // Two rods: on a single one nothing rests for long.
      for (const double side : {-1.0, 1.0})
        colliders.push_back({.radius_m = 0.05, .tip_m = {-0.2, 0.02 * side, -0.051}, .axis_m = {0.4, 0, 0}});
    } else {
      planes.push_back({{0, 0, 1, 0}});
    }
    ASSERT_NO_FATAL_FAILURE(Make(model, {.check_intersections = true}, colliders, planes));
    for (int i = 0; i < 10; ++i) {
      targets_[0].tip_m[2] -= 0.01;  // 1.2 m/s, to 65 mm below the wall
      ASSERT_NO_FATAL_FAILURE(Step());
    }
    for (int i = 0; i < 90; ++i) ASSERT_NO_FATAL_FAILURE(Step());
    const Vector3d stopped = Tip(0);
    EXPECT_GT(stopped.z(), wall == "capsule" ? 0 : 0.0039) << "above the wall";
    EXPECT_LT(stopped.z(), 0.02) << "the tissue is squeezed";
    EXPECT_GT(step_.blocked_m[0], 0.065 + stopped.z() - 1e-4);
    EXPECT_LT(step_.blocked_m[0], 0.065 + stopped.z() + 0.02) << "it may slip sideways";
    for (int i = 0; i < 10; ++i) ASSERT_NO_FATAL_FAILURE(Step());
    EXPECT_LT((Tip(0) - stopped).norm(), 5e-4) << "it stands";
    double force_n = 0;
    for (const ContactReport& r : step_.contacts) force_n += r.collider == 0 ? -r.force.z : 0;
    EXPECT_GT(force_n, 0.5);
    EXPECT_LT(step_.max_speed_m_per_s, 1.0) << "the tissue does not fight with a tool that is not there";
    // Pulled out, it catches up with its target.
    targets_[0].tip_m = {0.01, 0, 0.06};
    for (int i = 0; i < 20; ++i) ASSERT_NO_FATAL_FAILURE(Step());
    EXPECT_LT((Tip(0) - Vector3d(0.01, 0, 0.06)).norm(), 1e-6);
    EXPECT_EQ(step_.blocked_m[0], 0);
  }
}

TEST_F(ObstacleBarrierTest, ABlockedToolSlidesAlong) {
  // Two static bodies, so that nothing yields: a floor and a step on it.
  TissueModel floor = BoxModel({4, 4, 1}, {0.2, 0.2, 0.02}, {-0.1, -0.1, -0.02}, {});
  floor.tets.clear();
  floor.fixed.assign(floor.rest_m.size(), 1);
  TissueModel tissue = BoxModel({1, 1, 1}, {0.01, 0.01, 0.01}, {0.2, 0.2, 0.2}, {});
  ASSERT_NO_FATAL_FAILURE(Make(SceneOf({tissue, floor}, false), {.gravity_m_per_s2 = {0, 0, 0}},
                               {{.radius_m = 0.004, .tip_m = {-0.05, 0, 0.01}, .axis_m = {0, 0.01, 0.05}}}));
  targets_[0].tip_m[2] = -0.03;
  for (int i = 0; i < 30; ++i) {
    targets_[0].tip_m[0] += 0.003;
    ASSERT_NO_FATAL_FAILURE(Step());
  }
  EXPECT_NEAR(Tip(0).z(), 0.004, 1e-4);
  EXPECT_NEAR(Tip(0).x(), targets_[0].tip_m[0], 0.01) << "it follows along the floor";
  EXPECT_NEAR(step_.blocked_m[0], 0.034, 0.002);
}

TEST_F(ObstacleBarrierTest, AToolOfSeveralCapsulesStaysInOnePiece) {
  // A shaft and two jaws that open below its tip, driven fast into a slab, at a slant and turning: the jaws meet it first.
  for (const double coupling_n_per_m : {0.0, 500.0}) {
    SCOPED_TRACE(coupling_n_per_m);
    TissueModel slab = BoxModel({6, 6, 2}, {0.09, 0.09, 0.02}, {-0.045, -0.045, -0.02}, {.young_modulus_pa = 8000, .damping_s = 0.01});
    for (size_t v = 0; v < slab.rest_m.size(); ++v) slab.fixed[v] = slab.rest_m[v][2] < -0.0199;
    const Vector3d hinge(-0.02, 0, 0.05);
    const std::array<Vector3d, 3> axes{Vector3d(0, 0, 0.1), Vector3d(0.006, 0, -0.02), Vector3d(-0.006, 0, -0.02)};
    std::vector<ColliderDescription> tool;
    for (uint32_t c = 0; c < 3; ++c) {
      tool.push_back({.radius_m = 0.002,
                      .tip_m = {hinge.x(), hinge.y(), hinge.z()},
                      .axis_m = {axes[c].x(), axes[c].y(), axes[c].z()},
                      .coupling_n_per_m = c == 0 ? coupling_n_per_m : 0,
                      .damping_n_s_per_m = c == 0 ? 10.0 : 0,
                      .mass_kg = c == 0 ? 0.05 : 0,
                      .places_after_leader = c});
    }
    ASSERT_NO_FATAL_FAILURE(Make(slab, {.gravity_m_per_s2 = {0, 0, 0}}, tool));
    double most_apart_m = 0;
    for (int i = 0; i < 50; ++i) {
      const int driven = std::min(i + 1, 12);
      const Vector3d at = hinge + driven * Vector3d(0.002, 0.0005, -0.008);  // 1 m/s, the jaws' tips to 65 mm below the surface
      const Eigen::AngleAxisd turn(0.05 * driven, Vector3d::UnitY());
      for (size_t c = 0; c < 3; ++c) {
        const Vector3d axis = turn * axes[c];
        targets_[c] = {{at.x(), at.y(), at.z()}, {axis.x(), axis.y(), axis.z()}};
      }
      ASSERT_NO_FATAL_FAILURE(Step());
      for (size_t c = 1; c < 3; ++c) most_apart_m = std::max(most_apart_m, (Tip(c) - Tip(0)).norm());
    }
    EXPECT_LT(most_apart_m, 1e-6) << "the hinge of jaws and shaft";
    if (coupling_n_per_m == 0) {
      EXPECT_GT(step_.blocked_m[0], 0.01) << "the shaft is stopped by what stops its jaws";
      EXPECT_GT(step_.blocked_m[1], 0.01);
    }
  }
}

TEST_F(ObstacleBarrierTest, TwoToolsPinchASheet) {
  // Crosswise, so that neither slips past the other.
  const std::vector<ColliderDescription> tools{{.radius_m = 0.003, .tip_m = {-0.07, 0, 0.01}, .axis_m = {0.14, 0, 0}},
                                               {.radius_m = 0.003, .tip_m = {0.001, -0.04, -0.01}, .axis_m = {0, 0.08, 0}}};
  ASSERT_NO_FATAL_FAILURE(Make(Sheet(0.003, {.young_modulus_pa = 20000, .damping_s = 0.005}), {.gravity_m_per_s2 = {0, 0, 0}}, tools));
  for (int i = 0; i < 30; ++i) {
    if (i < 10) {
      targets_[0].tip_m[2] -= 0.002;  // each to the other's side
      targets_[1].tip_m[2] += 0.002;
    }
    ASSERT_NO_FATAL_FAILURE(Step());
    ASSERT_TRUE(IsOnItsSide(0, 1));
    ASSERT_TRUE(IsOnItsSide(1, -1));
    ASSERT_GT(SegmentSegment(Tip(0), Axis(0), Tip(1), Tip(1) + Axis(1)), 0.006) << "the sheet is between";
  }
  EXPECT_GT(step_.blocked_m[0] + step_.blocked_m[1], 0.01);
}

TEST_F(ObstacleBarrierTest, ThrownTissueStopsAtObstacles) {
  for (const bool rigid : {false, true}) {
    for (const bool plane : {false, true}) {
      SCOPED_TRACE(testing::Message() << (rigid ? "rigid" : "tissue") << " on a " << (plane ? "plane" : "sphere and a thin rod"));
      TissueModel box = BoxModel({3, 3, 3}, {0.04, 0.04, 0.04}, {-0.02, -0.021, 0.03}, {.young_modulus_pa = 10000, .damping_s = 0.002});
      TissueModel other = BoxModel({2, 2, 2}, {0.03, 0.03, 0.03}, {-0.01, -0.01, 0.08}, {.young_modulus_pa = 10000, .damping_s = 0.002});
      if (rigid) {
        box.tets.clear();
        box.fixed.assign(box.rest_m.size(), 1);
      }
      TissueModel model = SceneOf({box, other}, true);
      if (rigid) {
        model.self_collision[0] = 0;
        TissueRigidBody body;
        body.vertices = {0, static_cast<uint32_t>(box.rest_m.size())};
        body.mass_kg = 0.064;
        body.center_m = {0, -0.001, 0.05};
        const double moment = 0.064 / 6 * 0.04 * 0.04;
        body.inertia_kg_m2 = {moment, 0, 0, 0, moment, 0, 0, 0, moment};
        model.rigid.push_back(body);
      }
      std::vector<ColliderDescription> colliders;
      std::vector<PlaneObstacle> planes;
      if (plane) {
        planes = {{{0, 0, 1, 0}}, {{0.6F, 0, 0.8F, -0.02F}}};
      } else {
        colliders = {{.radius_m = 0.01, .tip_m = {0.005, 0, 0}}, {.radius_m = 0.001, .tip_m = {-0.1, -0.012, 0.02}, .axis_m = {0.2, 0, 0}}};
      }
      ASSERT_NO_FATAL_FAILURE(Make(model, {.check_intersections = true}, colliders, planes));
      ASSERT_NO_FATAL_FAILURE(Throw({0.5, 0, -20}));
      for (int i = 0; i < 20; ++i) ASSERT_NO_FATAL_FAILURE(Step());
      if (rigid) {
        EXPECT_NEAR((x_[0] - x_[63]).norm(), 0.04 * std::sqrt(3.0), 1e-5);
      }
    }
  }
}

TEST_F(ObstacleBarrierTest, AToolThatStartsInsideComesFree) {
  ColliderDescription tool{.radius_m = 0.003, .tip_m = {0.004, 0.003, -0.03}, .axis_m = {0, 0, 0.08}};
  ASSERT_NO_FATAL_FAILURE(Make(Sheet(0.006, {.young_modulus_pa = 20000, .damping_s = 0.01}), {.gravity_m_per_s2 = {0, 0, 0}}, {tool}));
  ASSERT_NO_FATAL_FAILURE(Step(1));
  for (int i = 0; i < 30; ++i) {
    targets_[0].tip_m[2] += 0.003;
    PALPATE_TEST_ASSIGN(step_, solver_->Step(targets_));
    EXPECT_EQ(step_.blocked_m[0], 0) << "nothing holds it";
  }
  EXPECT_EQ(step_.passing_colliders, 0U);
  // From here on it is outside, and stays there.
  targets_[0].tip_m[2] = -0.03;
  for (int i = 0; i < 10; ++i) {
    ASSERT_NO_FATAL_FAILURE(Step());
    ASSERT_TRUE(IsOnItsSide(0, 1));
  }
}

TEST_F(ObstacleBarrierTest, SameCallsGiveTheSameBits) {
  const std::vector<ColliderDescription> tools{{.radius_m = 0.002, .tip_m = {-0.08, 0.003, 0.02}, .axis_m = {0.16, 0.005, 0}},
                                               {.radius_m = 0.01, .tip_m = {0, 0, -0.03}}};
  std::vector<uint64_t> hashes[2];
  double tips[2] = {};
  for (int run = 0; run < 2; ++run) {
    ASSERT_NO_FATAL_FAILURE(Make(Sheet(0.003, {.young_modulus_pa = 20000}), {}, tools, {{{0, 0, 1, -0.04F}}}));
    for (int i = 0; i < 8; ++i) {
      targets_[0].tip_m[2] -= 0.02;
      ASSERT_NO_FATAL_FAILURE(Step());
      hashes[run].push_back(step_.hash);
    }
    tips[run] = Tip(0).z();
    EXPECT_GT(most_blocked_m_, 0);
  }
  EXPECT_EQ(hashes[0], hashes[1]);
  EXPECT_EQ(tips[0], tips[1]);
}

}  // namespace
}  // namespace palpate::gpu::obstacle_barrier_test
