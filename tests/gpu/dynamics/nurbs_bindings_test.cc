// Control points of NURBS shells that tissue carries: where they are, and what they do to it.
#include "gpu/dynamics/nurbs_bindings.h"

#include <gmock/gmock.h>

#include <Eigen/Dense>
#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <vector>

#include "gpu/dynamics/tissue_solver.h"
#include "tests/gpu/dynamics/nurbs_models.h"
#include "tests/gpu/dynamics/tissue_models.h"
#include "tests/sim/world/nurbs_shells.h"
#include "tests/support/device_test.h"

namespace palpate::gpu::nurbs_bindings_test {
namespace {

using Eigen::Vector3d;

Vector3d At(const std::vector<std::array<double, 3>>& points, uint32_t i) { return Vector3d(points[i].data()); }
Vector3d At(const std::vector<float>& positions, uint32_t v) { return {positions[3 * v], positions[3 * v + 1], positions[3 * v + 2]}; }
Vector3d Vec(const Float4& v) { return {v.x, v.y, v.z}; }

/// A block of tissue, body 0, and behind it a shell, body 1, whose control points in the block are bound to it where `is_bound` says so.
TissueModel Scene(const TissueModel& block, const sim::BodyDescription& sheet, const std::function<bool(const Vector3d&)>& is_bound) {
  TissueModel model = test::NurbsModelOf({sheet});
  const auto shift = static_cast<uint32_t>(block.rest_m.size());
  model.rest_m.insert(model.rest_m.begin(), block.rest_m.begin(), block.rest_m.end());
  model.fixed.insert(model.fixed.begin(), block.fixed.begin(), block.fixed.end());
  for (auto& triangle : model.surface_triangles) {
    for (uint32_t& v : triangle) v += shift;
  }
  model.surface_triangles.insert(model.surface_triangles.begin(), block.surface_triangles.begin(), block.surface_triangles.end());
  model.triangle_body.assign(model.surface_triangles.size(), 1);
  std::fill_n(model.triangle_body.begin(), block.surface_triangles.size(), 0);
  model.self_collision = {0, 0};
  model.tets = block.tets;
  TissueNurbsShell& shell = model.nurbs_shells[0];
  shell.body = 1;
  shell.apart = {0};
  for (uint32_t& v : shell.vertices) v += shift;
  for (uint32_t j = 0; j < shell.model->control_count(); ++j) {
    const Vector3d q = At(shell.model->rest_m, j);
    if (!is_bound(q)) continue;
    for (const TissueTet& tet : block.tets) {
      Eigen::Matrix4d corners;
      for (int c = 0; c < 4; ++c) corners.col(c) << At(block.rest_m, tet.vertices[static_cast<size_t>(c)]), 1;
      const Eigen::Vector4d weights = corners.inverse() * Eigen::Vector4d(q.x(), q.y(), q.z(), 1);
      if (weights.minCoeff() < -1e-9) continue;
      TissueNurbsShell::Bound& bound = shell.bound.emplace_back();
      bound.control = j;
      bound.vertices = tet.vertices;
      for (int c = 0; c < 4; ++c) bound.weights[static_cast<size_t>(c)] = std::max(weights[c], 0.0);
      break;
    }
  }
  return model;
}

TissueModel Block(const TestMaterial& material) { return BoxModel({6, 6, 3}, {0.06, 0.06, 0.03}, {-0.03, -0.03, -0.03}, material); }

class NurbsBindingsTest : public test::DeviceTest {
 protected:
  void Make(const TissueModel& model) {
    model_ = model;
    PALPATE_TEST_ASSIGN(solver_, TissueSolver::Create(context(), model, options_, {}, {}, TissueTuning::For(context()->device())));
  }
  void Step(int count = 1) {
    for (int i = 0; i < count; ++i) {
      const auto step = solver_->Step({});
      ASSERT_TRUE(step.ok()) << step.status();
      hash_ = step->hash;
      energy_j_ = step->kinetic_energy_j + step->elastic_energy_j.value_or(0);
      control_.assign(step->control_points_m.begin(), step->control_points_m.end());
    }
  }
  std::vector<float> Positions() {
    std::vector<float> out(3 * model_.rest_m.size());
    EXPECT_TRUE(solver_->ReadPositions(out).ok());
    return out;
  }
  const TissueNurbsShell& shell() const { return model_.nurbs_shells[0]; }
  /// How far a bound control point is from where the tissue has it, at most.
  double LargestGap_m() {
    const std::vector<float> x = Positions();
    double gap_m = 0;
    for (const TissueNurbsShell::Bound& bound : shell().bound) {
      Vector3d mean = Vector3d::Zero();
      for (size_t k = 0; k < 4; ++k) mean += bound.weights[k] * At(x, bound.vertices[k]);
      gap_m = std::max(gap_m, (Vec(control_[bound.control]) - mean).norm());
    }
    return gap_m;
  }
  Vector3d BoundForce_n() {
    Vector3d sum = Vector3d::Zero();
    const auto forces_n = solver_->ReadBoundForces();
    EXPECT_TRUE(forces_n.ok()) << forces_n.status();
    for (const Float4& f : *forces_n) sum += Vec(f);
    return sum;
  }
  double ShellMass_kg() const {
    double sum = 0;
    for (const double m : shell().model->mass_kg) sum += m;
    return sum;
  }
  void TearDown() override {
    solver_.reset();
    DeviceTest::TearDown();
  }

  TissueOptions options_{.iterations = 20};
  TissueModel model_;
  std::unique_ptr<TissueSolver> solver_;
  uint64_t hash_ = 0;
  double energy_j_ = 0;
  std::vector<Float4> control_;
};

/// Half a sheet sticks in a block, and half of it hangs out. The block stands on its base.
TissueModel Flag(double tissue_pa, double sheet_pa, double damping_s = 0.02, double mass_damping_per_s = 4) {
  TissueModel block = Block({.young_modulus_pa = tissue_pa,
                             .poisson_ratio = 0.4,
                             .density_kg_per_m3 = 1000,
                             .damping_s = damping_s,
                             .mass_damping_per_s = mass_damping_per_s});
  for (size_t v = 0; v < block.rest_m.size(); ++v) block.fixed[v] = block.rest_m[v][2] < -0.0299 ? kFixedVertex : kFreeVertex;
  sim::Material material = test::ShellMaterial(sheet_pa, 0.3, damping_s);
  material.mass_damping_per_s = mass_damping_per_s;
  const sim::BodyDescription sheet =
      test::ShellBody("sheet", test::FlatSheet(9, 7, 0.06, 0.04), {0.03, 0.001, -0.011}, material, 0.002, {}, 5e-4, 2);
  return Scene(block, sheet, [](const Vector3d& q) { return q.x() < 0.028; });
}

constexpr uint32_t kBlockVertices = 7 * 7 * 4;

TEST_F(NurbsBindingsTest, ControlPointsStayAtTheirPlacesAndTheTissueCarriesTheWeight) {
  for (const double sheet_pa : {1e5, 1e6}) {
    Make(Flag(2e4, sheet_pa));
    ASSERT_GT(shell().bound.size(), 20U);
    ASSERT_LT(shell().bound.size(), shell().model->control_count());
    Step(240);
    EXPECT_LT(LargestGap_m(), 1e-8);
    const double weight_n = 9.81 * ShellMass_kg();
    EXPECT_LT((BoundForce_n() + Vector3d(0, 0, weight_n)).norm(), 0.002 * weight_n);
    // The base bears all that is free: by the elastic forces of the tissue alone.
    std::vector<float> forces_n(3 * model_.rest_m.size());
    ASSERT_TRUE(solver_->ReadForces(1, forces_n).ok());
    double base_n = 0, free_kg = 0;
    for (uint32_t v = 0; v < kBlockVertices; ++v) {
      const bool is_fixed = model_.fixed[v] == kFixedVertex;
      base_n += is_fixed ? -At(forces_n, v).z() : 0;
      free_kg += is_fixed ? 0 : solver_->layout().mass_kg[solver_->layout().solver_index[v]];
    }
    EXPECT_NEAR(base_n - 9.81 * free_kg, weight_n, 0.01 * weight_n);
  }
}

TEST_F(NurbsBindingsTest, ControlPointsFollowInEachStepOfAMotion) {
  Make(Flag(2e4, 1e5, 0.0));
  double largest_m = 0;
  for (int k = 0; k < 10; ++k) {
    Step();
    EXPECT_LT(LargestGap_m(), 1e-8) << k;
    for (const TissueNurbsShell::Bound& bound : shell().bound) {
      largest_m = std::max(largest_m, (Vec(control_[bound.control]) - At(shell().model->rest_m, bound.control)).norm());
    }
  }
  EXPECT_GT(largest_m, 5e-5);  // they did move
}

/// A block that is thrown takes a sheet at rest along: what one gains the other loses.
TEST_F(NurbsBindingsTest, MomentumStays) {
  options_.gravity_m_per_s2 = {0, 0, 0};
  options_.iterations = 40;
  TissueModel model = Flag(2e4, 1e5, 0.0, 0);
  std::fill_n(model.fixed.begin(), kBlockVertices, kFreeVertex);
  Make(model);
  std::vector<float> before = Positions(), velocities(before.size());
  for (uint32_t v = 0; v < kBlockVertices; ++v) {
    velocities[3 * v] = 0.2F;
    velocities[3 * v + 2] = 0.5F;
  }
  ASSERT_TRUE(solver_->WriteState(before, velocities).ok());
  std::vector<Float4> control_before;
  for (const auto& q : shell().model->rest_m)
    control_before.push_back({static_cast<float>(q[0]), static_cast<float>(q[1]), static_cast<float>(q[2]), 0});
  const auto momentum = [&] {
    Step();
    const std::vector<float> after = Positions();
    std::array<Vector3d, 2> sums = {Vector3d::Zero(), Vector3d::Zero()};  // of the block, of the sheet
    for (uint32_t v = 0; v < kBlockVertices; ++v) {
      sums[0] += solver_->layout().mass_kg[solver_->layout().solver_index[v]] * (At(after, v) - At(before, v)) / options_.dt_s;
    }
    for (uint32_t j = 0; j < control_.size(); ++j) {
      sums[1] += shell().model->mass_kg[j] * (Vec(control_[j]) - Vec(control_before[j])) / options_.dt_s;
    }
    before = after;
    control_before = control_;
    return sums;
  };
  double block_kg = 0;
  for (uint32_t v = 0; v < kBlockVertices; ++v) block_kg += solver_->layout().mass_kg[solver_->layout().solver_index[v]];
  const Vector3d given = block_kg * Vector3d(0.2, 0, 0.5);
  std::array<Vector3d, 2> sums;
  for (int k = 0; k < 40; ++k) {
    sums = momentum();
    EXPECT_LT((sums[0] + sums[1] - given).norm(), 0.001 * given.norm()) << k;
  }
  EXPECT_GT(sums[1].norm(), 0.04 * given.norm());
}

/// A shell with no control point of its own is a layer of the tissue, whose edges then go down less.
TEST_F(NurbsBindingsTest, AllOfAShellMayBeBound) {
  std::array<double, 2> sag_m{};
  for (const double sheet_pa : {1e2, 1e6}) {
    TissueModel block =
        Block({.young_modulus_pa = 2e4, .poisson_ratio = 0.4, .density_kg_per_m3 = 1000, .damping_s = 0.02, .mass_damping_per_s = 4});
    for (size_t v = 0; v < block.rest_m.size(); ++v) block.fixed[v] = block.rest_m[v][0] < -0.0299 ? kFixedVertex : kFreeVertex;
    const sim::BodyDescription sheet = test::ShellBody("sheet", test::FlatSheet(9, 7, 0.058, 0.056), {0, 0, -0.004},
                                                       test::ShellMaterial(sheet_pa, 0.3, 0.02), 0.002, {}, 5e-4, 2);
    Make(Scene(block, sheet, [](const Vector3d& /*q*/) { return true; }));
    ASSERT_EQ(shell().bound.size(), shell().model->control_count());
    Step(150);
    EXPECT_LT(LargestGap_m(), 1e-8);
    EXPECT_LT((BoundForce_n() + Vector3d(0, 0, 9.81 * ShellMass_kg())).norm(), 0.01 * 9.81 * ShellMass_kg());
    sag_m[sheet_pa > 1e3 ? 1 : 0] = -control_.back().z - 0.004;
  }
  EXPECT_GT(sag_m[0], 1e-4);
  EXPECT_LT(sag_m[1], 0.9 * sag_m[0]);
}

TEST_F(NurbsBindingsTest, SameCallsSameBits) {
  uint64_t first = 0;
  for (int run = 0; run < 2; ++run) {
    Make(Flag(2e4, 1e5));
    Step(3);
    if (run == 0) first = hash_;
  }
  EXPECT_EQ(hash_, first);
}

/// One that is let go is free again, where it is and as fast as it is.
TEST_F(NurbsBindingsTest, WhatIsLetGoMovesOn) {
  TissueModel model = Flag(2e4, 1e5);
  Make(model);
  Step(4);
  const std::vector<Float4> before = control_;
  std::vector<TissueVertexState> states(model.rest_m.size());
  ASSERT_TRUE(solver_->ReadState(states).ok());
  model.nurbs_shells[0].bound.clear();
  ASSERT_TRUE(solver_->Rebuild(model, states).ok());
  model_ = model;
  Step();
  for (size_t j = 0; j < before.size(); ++j) EXPECT_LT((Vec(control_[j]) - Vec(before[j])).norm(), 5e-3) << j;  // 5 g dt^2 is 3.4 mm
  EXPECT_EQ(BoundForce_n(), Vector3d(0, 0, 0));
  Step(20);
  const Vector3d mean = [&] {
    Vector3d sum = Vector3d::Zero();
    for (size_t j = 0; j < before.size(); ++j) sum += Vec(control_[j]) - Vec(before[j]);
    return Vector3d(sum / static_cast<double>(before.size()));
  }();
  EXPECT_LT(mean.z(), -0.05);  // it falls: 20 steps make 0.13 m
}

TEST_F(NurbsBindingsTest, WhatIsWrongIsNamed) {
  const TissueModel good = Flag(2e4, 1e5);
  const auto refused = [&](const std::function<void(TissueNurbsShell&)>& change) {
    TissueModel model = good;
    change(model.nurbs_shells[0]);
    const auto solver = TissueSolver::Create(context(), model, options_, {}, {}, TissueTuning::For(context()->device()));
    return solver.ok() ? std::string() : std::string(solver.status().message());
  };
  using testing::HasSubstr;
  EXPECT_THAT(refused([](TissueNurbsShell& s) { s.bound[3].control = 999; }), HasSubstr("bound[3]: control point 999 is out of range"));
  EXPECT_THAT(refused([](TissueNurbsShell& s) { s.bound[1].control = s.bound[0].control; }), HasSubstr("not after the one before"));
  EXPECT_THAT(refused([](TissueNurbsShell& s) { s.held = {s.bound[0].control}; }), HasSubstr("is held"));
  EXPECT_THAT(refused([](TissueNurbsShell& s) { s.bound[2].vertices[1] = 100000; }), HasSubstr("there is no vertex 100000"));
  EXPECT_THAT(refused([](TissueNurbsShell& s) { s.bound[2].vertices[1] = s.vertices[0]; }), HasSubstr("is of the shell itself"));
  EXPECT_THAT(refused([](TissueNurbsShell& s) { s.bound[2].weights[0] += 0.1; }), HasSubstr("weights add up to"));
  EXPECT_THAT(refused([](TissueNurbsShell& s) { s.apart = {1}; }), HasSubstr("apart: body 1"));
}

}  // namespace
}  // namespace palpate::gpu::nurbs_bindings_test
