// NURBS shells in the solver, small and for few steps: what their kernels do, one by one. Longer motions: tests/sim/world.
#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "gpu/base/state_archive.h"
#include "gpu/dynamics/tissue_solver.h"
#include "tests/gpu/dynamics/nurbs_models.h"
#include "tests/sim/world/nurbs_shells.h"
#include "tests/support/device_test.h"

namespace palpate::gpu::nurbs_shell_solver_test {
namespace {

using Eigen::Vector3d;
constexpr auto ModelOf = test::NurbsModelOf;

sim::BodyDescription Sheet(const Vector3d& place_m, double modulus_pa = 1e5, size_t count = 5,
                           const std::function<bool(const Vector3d&)>& is_held = {}) {
  return test::ShellBody("sheet", test::FlatSheet(count, count, 0.06, 0.06), place_m, test::ShellMaterial(modulus_pa, 0.3, 0.005), 0.001,
                         is_held, 5e-4, 2);
}

class NurbsShellSolverTest : public test::DeviceTest {
 protected:
  void Make(const TissueModel& model, std::span<const ColliderDescription> colliders = {}, std::span<const PlaneObstacle> planes = {}) {
    PALPATE_TEST_ASSIGN(solver_,
                        TissueSolver::Create(context(), model, options_, colliders, planes, TissueTuning::For(context()->device())));
    vertex_count_ = model.rest_m.size();
  }
  void Step(std::span<const ColliderTarget> targets = {}) {
    const auto step = solver_->Step(targets);
    ASSERT_TRUE(step.ok()) << step.status();
    hash_ = step->hash;
    control_.assign(step->control_points_m.begin(), step->control_points_m.end());
    intersections_ += step->surface.intersections;
    forces_n_ = Vector3d::Zero();
    for (const ContactReport& c : step->contacts) forces_n_ += Vector3d(c.force.x, c.force.y, c.force.z);
  }
  std::vector<float> Positions() {
    std::vector<float> out(3 * vertex_count_);
    EXPECT_TRUE(solver_->ReadPositions(out).ok());
    return out;
  }
  void TearDown() override {
    solver_.reset();
    DeviceTest::TearDown();
  }

  TissueOptions options_{.iterations = 6};
  std::unique_ptr<TissueSolver> solver_;
  size_t vertex_count_ = 0;
  uint64_t hash_ = 0;
  uint32_t intersections_ = 0;
  std::vector<Float4> control_;
  Vector3d forces_n_{0, 0, 0};
};

/// Vertices are the means of control points that they are made of.
TEST_F(NurbsShellSolverTest, VerticesStayOnTheSurface) {
  const TissueModel model = ModelOf({Sheet({0, 0, 0.01}), Sheet({0.02, 0.01, 0.0135}, 1e5, 6)});
  const std::vector<PlaneObstacle> planes = {PlaneObstacle{.normal_offset = {0, 0, 1, 0}}};
  options_.check_intersections = true;
  Make(model, {}, planes);
  for (int i = 0; i < 4; ++i) Step();
  const std::vector<float> positions = Positions();
  size_t first = 0;
  for (const TissueNurbsShell& shell : model.nurbs_shells) {
    for (uint32_t v = shell.vertices[0]; v < shell.vertices[1]; ++v) {
      Vector3d mean = Vector3d::Zero();
      for (uint32_t k = shell.begins[v - shell.vertices[0]]; k < shell.begins[v - shell.vertices[0] + 1]; ++k) {
        const Float4& q = control_[first + shell.controls[k]];
        mean += double{shell.weights[k]} * Vector3d(q.x, q.y, q.z);
      }
      EXPECT_LT((Vector3d(positions[3 * v], positions[3 * v + 1], positions[3 * v + 2]) - mean).norm(), 1e-7) << v;
    }
    first += shell.model->control_count();
  }
  EXPECT_EQ(intersections_, 0U);
}

TEST_F(NurbsShellSolverTest, HeldControlPointsStay) {
  const TissueModel model = ModelOf({Sheet({0, 0, 0}, 1e5, 5, [](const Vector3d& p) { return p.x() < -0.015; })});
  Make(model);
  for (int i = 0; i < 3; ++i) Step();
  const NurbsShellModel& shell = *model.nurbs_shells[0].model;
  size_t moved = 0;
  for (size_t j = 0; j < shell.control_count(); ++j) {
    const bool is_held = shell.rest_m[j][0] < -0.015;
    const double gone_m = std::abs(control_[j].z - shell.rest_m[j][2]);
    EXPECT_TRUE(!is_held || gone_m == 0) << j;
    moved += gone_m > 0 ? 1 : 0;
  }
  EXPECT_EQ(moved, 15U);
}

/// An edge that is driven is where its motion has it, to rounding, and the rest of the sheet comes along.
TEST_F(NurbsShellSolverTest, DrivenControlPointsFollowTheirMotion) {
  TissueModel model = ModelOf({Sheet({0.1, 0, 0}, 1e5, 5, [](const Vector3d& p) { return p.x() < 0.085; })});
  TissueNurbsShell& shell = model.nurbs_shells[0];
  options_.gravity_m_per_s2 = {0, 0, 0};
  const Vector3d velocity(0.1, -0.2, 0.3), center(0.07, 0.01, 0);
  const double turn = 3, start_s = 2 * options_.dt_s, duration_s = 3 * options_.dt_s;
  shell.driven.push_back({shell.held, {0.1, -0.2, 0.3}, {0, 0, turn}, {0.07, 0.01, 0}, start_s, duration_s});
  Make(model);
  for (int i = 1; i <= 7; ++i) {
    Step();
    const double moved_s = std::clamp(i * options_.dt_s - start_s, 0.0, duration_s);
    const Eigen::AngleAxisd turned(turn * moved_s, Vector3d::UnitZ());
    for (const uint32_t j : shell.held) {
      const Vector3d rest = Vector3d::Map(shell.model->rest_m[j].data());
      const Vector3d expected = center + moved_s * velocity + turned * (rest - center);
      EXPECT_LT((Vector3d(control_[j].x, control_[j].y, control_[j].z) - expected).norm(), 3e-8) << "step " << i << ", " << j;
    }
  }
  double most_m = 0;
  for (size_t j = 0; j < shell.model->control_count(); ++j) most_m = std::max(most_m, std::abs(double{control_[j].z}));
  EXPECT_GT(most_m, 0.9 * 0.3 * duration_s);
}

/// Towards a wall they come as near as planes between surfaces let them, and no further.
TEST_F(NurbsShellSolverTest, DrivenControlPointsDoNotPassThroughOtherSheets) {
  TissueModel model = ModelOf({Sheet({0, 0, 0.01}, 1e5, 5, [](const Vector3d&) { return true; }),
                               Sheet({0.003, 0.002, 0}, 1e5, 6, [](const Vector3d& p) { return p.x() < 0.03; })});
  TissueNurbsShell& shell = model.nurbs_shells[0];
  shell.held.pop_back();
  options_.gravity_m_per_s2 = {0, 0, 0};
  options_.check_intersections = true;
  shell.driven.push_back({shell.held, {0, 0, -0.5}, {0, 0, 0}, {0, 0, 0}, 0, 1});
  Make(model);
  for (int i = 0; i < 6; ++i) Step();
  EXPECT_EQ(intersections_, 0U);
  EXPECT_LT(control_[0].z, 0.01) << "it has moved";
  EXPECT_GT(control_[0].z, 0) << "but not through the other";
}

/// m dv/dt = k A (w - v)^2 has the solution v = w^2 s t / (1 + w s t) with s = k A / m.
TEST_F(NurbsShellSolverTest, AirTakesASheetAlong) {
  TissueModel model = ModelOf({Sheet({0, 0, 0}, 1e8)});  // a soft one bends in it
  model.drag_kg_per_m3 = {2};
  options_.gravity_m_per_s2 = {0, 0, 0};
  Make(model);
  solver_->SetWind({1, 0, 6});
  const NurbsShellModel& shell = *model.nurbs_shells[0].model;
  double mass_kg = 0;
  for (const double m : shell.mass_kg) mass_kg += m;
  const double wind = 6, s = 2 * 0.06 * 0.06 / mass_kg;
  const int steps = 12;
  for (int i = 0; i < steps; ++i) Step();
  const double t = steps * options_.dt_s;
  const double way_m = wind * t - std::log1p(wind * s * t) / s;
  Vector3d moment = Vector3d::Zero();
  for (size_t j = 0; j < shell.control_count(); ++j) {
    const Vector3d rest = Vector3d::Map(shell.rest_m[j].data());
    moment += shell.mass_kg[j] * (Vector3d(control_[j].x, control_[j].y, control_[j].z) - rest);
  }
  EXPECT_NEAR(moment.z() / mass_kg, way_m, 0.05 * way_m);
  EXPECT_LT(moment.head<2>().norm() / mass_kg, 0.01 * way_m) << "along its surface air has no hold";
}

/// What is left of forces at control points falls from sweep to sweep.
TEST_F(NurbsShellSolverTest, ResidualsAreThoseOfControlPoints) {
  const TissueModel model = ModelOf({Sheet({0, 0, 0}, 1e5, 5, [](const Vector3d& p) { return p.x() < -0.015; })});
  options_.iterations = 12;
  Make(model);
  PALPATE_TEST_ASSIGN(const std::vector<double> residuals, solver_->StepMeasuringResidual({}));
  ASSERT_EQ(residuals.size(), 13U);
  // The first guess is that of a body that falls freely: only what is held holds it back, and at first nothing is bent.
  const auto most = *std::max_element(residuals.begin(), residuals.end());
  EXPECT_GT(most, 0);
  EXPECT_LT(residuals.back(), 0.05 * most);
}

/// A pressure on all of a free sheet moves its middle as its force over its mass does.
TEST_F(NurbsShellSolverTest, LoadsActOnControlPoints) {
  TissueModel model = ModelOf({Sheet({0, 0, 0})});
  options_.gravity_m_per_s2 = {0, 0, 0};
  TissueLoad load;
  load.pressure_pa = 10;
  load.duration_s = 1;
  for (uint32_t v = 0; v < model.rest_m.size(); ++v) load.vertices.push_back(v);
  model.loads = {load};
  Make(model);
  Step();
  const NurbsShellModel& shell = *model.nurbs_shells[0].model;
  double mass_kg = 0, moment = 0;
  for (size_t j = 0; j < shell.control_count(); ++j) {
    mass_kg += shell.mass_kg[j];
    moment += shell.mass_kg[j] * control_[j].z;
  }
  const double expected_m = -10 * 0.06 * 0.06 / mass_kg * options_.dt_s * options_.dt_s;
  EXPECT_NEAR(moment / mass_kg, expected_m, 1e-3 * std::abs(expected_m));
}

/// What a tool feels, the sheet does: it changes its momentum by that.
TEST_F(NurbsShellSolverTest, ToolForceIsTheChangeOfMomentum) {
  const TissueModel model = ModelOf({Sheet({0, 0, 0})});
  options_.gravity_m_per_s2 = {0, 0, 0};
  options_.check_intersections = true;
  options_.iterations = 20;
  ColliderDescription tool;
  tool.radius_m = 0.005;
  tool.tip_m = {0, 0, 0.0066};
  tool.axis_m = {0, 0, 0.05};
  Make(model, std::span(&tool, 1));
  const NurbsShellModel& shell = *model.nurbs_shells[0].model;
  Vector3d before = Vector3d::Zero();
  double most_n = 0;
  std::vector<Float4> last;
  for (const auto& [x, y, z] : shell.rest_m) last.push_back({static_cast<float>(x), static_cast<float>(y), static_cast<float>(z), 0});
  for (int i = 1; i <= 4; ++i) {
    const ColliderTarget target{{0, 0, 0.0066 - 0.0004 * i}, {0, 0, 0.05}};
    Step(std::span(&target, 1));
    Vector3d momentum = Vector3d::Zero();
    for (size_t j = 0; j < shell.control_count(); ++j) {
      momentum +=
          shell.mass_kg[j] / options_.dt_s * Vector3d(control_[j].x - last[j].x, control_[j].y - last[j].y, control_[j].z - last[j].z);
    }
    const Vector3d force_n = (momentum - before) / options_.dt_s;
    EXPECT_LT((force_n - forces_n_).norm(), 0.02 * forces_n_.norm() + 1e-5)
        << "step " << i << ": " << force_n.transpose() << " for " << forces_n_.transpose();
    most_n = std::max(most_n, forces_n_.norm());
    before = momentum;
    last = control_;
  }
  EXPECT_GT(most_n, 3e-3);
  EXPECT_EQ(intersections_, 0U);
}

/// Fast enough that the filter has to take control points back, and the barrier of obstacles too.
TEST_F(NurbsShellSolverTest, FastSheetsDoNotPass) {
  std::vector<sim::BodyDescription> bodies = {Sheet({0, 0, 0.03}), Sheet({0.01, 0.01, 0.05}, 1e5, 6)};
  bodies[0].velocity_m_per_s = {0, 0, 4};
  bodies[1].velocity_m_per_s = {0, 0, -6};
  const std::vector<PlaneObstacle> planes = {PlaneObstacle{.normal_offset = {0, 0, 1, 0}}};
  ColliderDescription rod;
  rod.radius_m = 0.004;
  rod.tip_m = {0, -0.05, 0.015};
  rod.axis_m = {0, 0.1, 0};
  options_.check_intersections = true;
  const TissueModel model = ModelOf(bodies);
  Make(model, std::span(&rod, 1), planes);
  const ColliderTarget target{rod.tip_m, rod.axis_m};
  for (int i = 0; i < 6; ++i) Step(std::span(&target, 1));
  EXPECT_EQ(intersections_, 0U);
  for (size_t v = 0; v < vertex_count_; ++v) EXPECT_GT(Positions()[3 * v + 2], -1e-6);
}

TEST_F(NurbsShellSolverTest, SameCallsSameBitsAndStatesGoOn) {
  const TissueModel model = ModelOf({Sheet({0, 0, 0.004})});
  const std::vector<PlaneObstacle> planes = {PlaneObstacle{.normal_offset = {0, 0, 1, 0}}};
  Make(model, {}, planes);
  for (int i = 0; i < 2; ++i) Step();
  StateWriter writer;
  PALPATE_ASSERT_OK(solver_->SaveState(writer));
  const std::string state = writer.Take();
  for (int i = 0; i < 2; ++i) Step();
  const uint64_t expected = hash_;
  PALPATE_TEST_ASSIGN(const bool is_same, solver_->LoadState(state));
  ASSERT_TRUE(is_same);
  for (int i = 0; i < 2; ++i) Step();
  EXPECT_EQ(hash_, expected);
  PALPATE_ASSERT_OK(solver_->Reset());
  for (int i = 0; i < 4; ++i) Step();
  EXPECT_EQ(hash_, expected);
}

/// Positions and velocities that a sheet can have are taken over by its control points.
TEST_F(NurbsShellSolverTest, ControlPointsAreFittedToVertices) {
  const TissueModel model = ModelOf({Sheet({0, 0, 0})});
  options_.gravity_m_per_s2 = {0, 0, 0};
  Make(model);
  std::vector<float> positions, velocities;
  for (const auto& [x, y, z] : model.rest_m) {
    positions.insert(positions.end(), {static_cast<float>(0.1 - y), static_cast<float>(x), static_cast<float>(z + 0.2)});
    velocities.insert(velocities.end(), {0, 0, 0.5F});
  }
  PALPATE_ASSERT_OK(solver_->WriteState(positions, velocities));
  const std::vector<float> written = Positions();
  for (size_t i = 0; i < written.size(); ++i) EXPECT_NEAR(written[i], positions[i], 2e-7) << i;
  Step();
  const std::vector<float> moved = Positions();
  for (size_t v = 0; v < vertex_count_; ++v) EXPECT_NEAR(moved[3 * v + 2] - positions[3 * v + 2], 0.5 * options_.dt_s, 2e-6) << v;
}

TEST_F(NurbsShellSolverTest, AbsurdStepsAreRolledBack) {
  Make(ModelOf({Sheet({0, 0, 0.004})}));
  const std::vector<float> rest = Positions();
  for (const float bad : {1e9F, 1e30F}) {
    std::vector<float> velocities(rest.size(), 0.0F);
    velocities[3 * (vertex_count_ / 2)] = bad;
    PALPATE_ASSERT_OK(solver_->WriteState(rest, velocities));
    const std::vector<float> before = Positions();
    PALPATE_TEST_ASSIGN(const TissueStep step, solver_->Step({}));
    EXPECT_GT(step.bad_vertices, 0U);
    EXPECT_EQ(Positions(), before);
    // What comes next falls as if nothing had happened.
    PALPATE_ASSERT_OK(solver_->WriteState(rest));
    PALPATE_TEST_ASSIGN(const TissueStep good, solver_->Step({}));
    EXPECT_EQ(good.bad_vertices, 0U);
    EXPECT_NEAR(good.max_speed_m_per_s, 9.81 * options_.dt_s, 1e-3);
  }
}

TEST_F(NurbsShellSolverTest, WhatDoesNotFitIsRefused) {
  const TissueModel good = ModelOf({Sheet({0, 0, 0})});
  const auto expect_refused = [&](const std::function<void(TissueModel&)>& spoil, const char* what) {
    TissueModel model = good;
    spoil(model);
    const auto made = TissueSolver::Create(context(), model, options_, {}, {}, TissueTuning::For(context()->device()));
    ASSERT_FALSE(made.ok()) << what;
    EXPECT_EQ(made.status().code(), absl::StatusCode::kInvalidArgument) << made.status();
    EXPECT_NE(made.status().message().find(what), std::string::npos) << made.status();
  };
  expect_refused([](TissueModel& m) { m.fixed[3] = kFreeVertex; }, "vertex 3");
  expect_refused([](TissueModel& m) { m.nurbs_shells[0].weights[0] = 5; }, "weights of vertex 0");
  expect_refused([](TissueModel& m) { m.nurbs_shells[0].controls[0] = 1000; }, "control point 1000");
  expect_refused([](TissueModel& m) { m.nurbs_shells[0].held = {3, 2}; }, "held[1]");
  expect_refused([](TissueModel& m) { m.nurbs_shells[0].begins.pop_back(); }, "do not fit");
  expect_refused([](TissueModel& m) { m.nurbs_shells[0].body = 7; }, "body 7");
}

}  // namespace
}  // namespace palpate::gpu::nurbs_shell_solver_test
