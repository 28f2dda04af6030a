// The elastic energy that a solver reports, against the double-precision reference, which shares no code with the kernels.
#include <gmock/gmock.h>

#include <Eigen/Dense>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "gpu/dynamics/tissue_solver.h"
#include "sim/reference/reference_body.h"
#include "sim/scene/material.h"
#include "tests/gpu/dynamics/tissue_models.h"
#include "tests/support/device_test.h"

namespace palpate::gpu::tissue_energy_test {
namespace {

using Eigen::Matrix3d;
using Eigen::Vector3d;

constexpr bool HasFibers(TissueEnergy energy) { return energy == TissueEnergy::kLinear || energy == TissueEnergy::kStVenantKirchhoff; }

TestMaterial MaterialOf(TissueEnergy energy) {
  TestMaterial material{.damping_s = 0.01, .energy = energy};
  if (HasFibers(energy)) material.fibers = {{0.48F, -0.6F, 0.64F}, 500, 8000, 300};
  return material;
}

class TissueEnergyTest : public test::DeviceTest {
 protected:
  std::unique_ptr<TissueSolver> Make(const TissueModel& model, TissueOptions options, const TissueTuning& tuning = {}) {
    options.gravity_m_per_s2 = {0, 0, 0};
    auto solver = TissueSolver::Create(context(), model, options, {}, {}, tuning);
    EXPECT_TRUE(solver.ok()) << solver.status();
    return solver.ok() ? *std::move(solver) : nullptr;
  }
  /// Of the positions that the solver holds, in double.
  double Expected(const TissueModel& model, TissueSolver& solver) {
    std::vector<float> flat(3 * model.rest_m.size());
    PALPATE_EXPECT_OK(solver.ReadPositions(flat));
    std::vector<Vector3d> rest;
    for (const auto& v : model.rest_m) rest.emplace_back(v[0], v[1], v[2]);
    std::vector<sim::ElasticTet> live;
    for (const TissueTet& tet : model.tets) {
      if (tet.vertices[0] != kNoTissueVertex) live.push_back(sim::ElasticTetOf(tet));
    }
    const auto body = sim::ReferenceBody::Create(rest, live, model.fixed);
    EXPECT_TRUE(body.ok()) << body.status();
    if (!body.ok()) return 0;
    Eigen::VectorXd x(static_cast<Eigen::Index>(flat.size()));
    for (size_t i = 0; i < flat.size(); ++i) x[static_cast<Eigen::Index>(i)] = flat[i];
    return body->Energy(x);
  }
  static std::vector<float> Pack(const std::vector<Vector3d>& vectors) {
    std::vector<float> flat;
    for (const Vector3d& v : vectors) {
      for (int axis = 0; axis < 3; ++axis) flat.push_back(static_cast<float>(v[axis]));
    }
    return flat;
  }
  /// Rest positions turned, and moved at random by up to `size_m`.
  std::vector<float> Turned(const TissueModel& model, double size_m) {
    const Matrix3d turn = Eigen::AngleAxisd(1.2, Vector3d(1, -2, 0.5).normalized()).toRotationMatrix();
    std::vector<Vector3d> x;
    for (const auto& v : model.rest_m) {
      x.push_back(turn * Vector3d(v[0], v[1], v[2]));
      for (int axis = 0; axis < 3; ++axis) x.back()[axis] += size_m * uniform_(random_);
    }
    return Pack(x);
  }

  std::mt19937_64 random_{5};
  std::uniform_real_distribution<double> uniform_{-1, 1};
};

TEST_F(TissueEnergyTest, EqualsTheReferenceInDoubleAndInFloat) {
  for (const TissueEnergy energy : kAllEnergies) {
    const TissueModel model = BoxModel({4, 3, 3}, {0.08, 0.06, 0.06}, {-0.04, -0.03, -0.03}, MaterialOf(energy));
    // That of GPUs takes other records; one energy with it is enough, each being a build of all kernels.
    for (const TissueTuning& tuning : {TissueTuning{}, TissueTuning{.lanes = 1, .team = 4, .group = 8, .list_group = 8, .partials = 64}}) {
      if (tuning.lanes == 1 && energy != TissueEnergy::kCorotated) continue;
      for (const bool in_double : {true, false}) {
        SCOPED_TRACE(testing::Message() << Name(energy) << (in_double ? ", double, " : ", float, ") << tuning.lanes << " lanes");
        auto solver = Make(model, {.dt_s = 0.01, .report_energy = true, .energy_in_double = in_double}, tuning);
        ASSERT_NE(solver, nullptr);
        // Of the float kernels each number is off by some 1e-7 of the edge over the size of the deformation, a tenth; rest gradients are
        // floats in both.
        for (const double jitter_m : {0.002, 0.012}) {
          PALPATE_ASSERT_OK(solver->WriteState(Turned(model, jitter_m)));
          PALPATE_TEST_ASSIGN(const TissueStep written, solver->Inspect());
          const double expected = Expected(model, *solver);
          ASSERT_TRUE(written.elastic_energy_j.has_value());
          EXPECT_GT(expected, 1e-4);
          EXPECT_NEAR(*written.elastic_energy_j, expected, (in_double ? 1e-6 : 5e-6) * expected) << "of " << jitter_m << " m";
        }
        PALPATE_TEST_ASSIGN(const TissueStep step, solver->Step({}));
        const double after = Expected(model, *solver);
        ASSERT_TRUE(step.elastic_energy_j.has_value());
        EXPECT_NEAR(*step.elastic_energy_j, after, (in_double ? 1e-6 : 5e-6) * after) << "after a step";
      }
    }
  }
}

TEST_F(TissueEnergyTest, IsZeroAtRestAndUnderRigidMotion) {
  for (const TissueEnergy energy : kAllEnergies) {
    for (const bool in_double : {true, false}) {
      SCOPED_TRACE(testing::Message() << Name(energy) << (in_double ? ", double" : ", float"));
      const TissueModel model = BoxModel({4, 3, 3}, {0.08, 0.06, 0.06}, {-0.04, -0.03, -0.03}, MaterialOf(energy));
      auto solver = Make(model, {.report_energy = true, .energy_in_double = in_double});
      ASSERT_NE(solver, nullptr);
      // Young's modulus times volume times the square of the rounding of a strain, some 1e-7 times the size over the edge.
      const double limit_j = 10000 * 0.08 * 0.06 * 0.06 * 1e-11;
      PALPATE_TEST_ASSIGN(const TissueStep rest, solver->Inspect());
      EXPECT_LT(std::abs(rest.elastic_energy_j.value_or(1)), limit_j);
      PALPATE_ASSERT_OK(solver->WriteState(Turned(model, 0)));
      PALPATE_TEST_ASSIGN(const TissueStep turned, solver->Inspect());
      if (energy == TissueEnergy::kLinear) {
        EXPECT_GT(turned.elastic_energy_j.value_or(0), 1e6 * limit_j) << "small strain is known to resist rotation";
      } else {
        // In float, terms of the size of the rotation cancel but for their rounding: to the first order, where the energy is not a square.
        const bool is_square = in_double || energy != TissueEnergy::kStableNeoHookean;
        EXPECT_LT(std::abs(turned.elastic_energy_j.value_or(1)), 10 * limit_j * (is_square ? 1 : 1e3));
      }
    }
  }
}

TEST_F(TissueEnergyTest, ChangesNothingAndIsLeftOutUnlessAskedFor) {
  const TissueModel model = BoxModel({4, 3, 3}, {0.08, 0.06, 0.06}, {-0.04, -0.03, -0.03}, MaterialOf(TissueEnergy::kCorotated));
  auto quiet = Make(model, {.dt_s = 0.01});
  auto telling = Make(model, {.dt_s = 0.01, .report_energy = true});
  auto again = Make(model, {.dt_s = 0.01, .report_energy = true});
  ASSERT_TRUE(quiet != nullptr && telling != nullptr && again != nullptr);
  EXPECT_LT(quiet->device_bytes(), telling->device_bytes());
  const std::vector<float> start = Turned(model, 0.006);
  for (TissueSolver* solver : {quiet.get(), telling.get(), again.get()}) PALPATE_ASSERT_OK(solver->WriteState(start));
  double before_j = 0;
  for (int i = 0; i < 20; ++i) {
    PALPATE_TEST_ASSIGN(const TissueStep a, quiet->Step({}));
    PALPATE_TEST_ASSIGN(const TissueStep b, telling->Step({}));
    PALPATE_TEST_ASSIGN(const TissueStep c, again->Step({}));
    EXPECT_FALSE(a.elastic_energy_j.has_value());
    EXPECT_EQ(a.hash, b.hash) << "step " << i;
    ASSERT_TRUE(b.elastic_energy_j.has_value() && c.elastic_energy_j.has_value());
    EXPECT_EQ(*b.elastic_energy_j, *c.elastic_energy_j) << "the same sum in the same order";
    const double total_j = *b.elastic_energy_j + b.kinetic_energy_j;
    if (i > 0) {
      EXPECT_LT(total_j, before_j * (1 + 1e-6)) << "backward Euler takes energy out, step " << i;
    }
    before_j = total_j;
  }
}

TEST_F(TissueEnergyTest, FollowsEdits) {
  TissueModel model = BoxModel({4, 3, 3}, {0.08, 0.06, 0.06}, {-0.04, -0.03, -0.03}, MaterialOf(TissueEnergy::kStableNeoHookean));
  for (size_t t = 0; t < model.tets.size(); t += 2) {
    model.tets[t].energy = TissueEnergy::kCorotated;
    model.tets[t].mu_pa *= 2;
  }
  model.triangle_body.assign(model.surface_triangles.size(), 0);
  model.body_triangle_begin.clear();
  model.self_collision = {0};
  auto solver = Make(model, {.report_energy = true});
  ASSERT_NE(solver, nullptr);
  PALPATE_ASSERT_OK(solver->WriteState(Turned(model, 0.004)));
  std::vector<TissueVertexState> states(model.rest_m.size());
  const auto check = [&](const std::string& what) -> double {
    const auto state = solver->Inspect();
    EXPECT_TRUE(state.ok()) << state.status();
    if (!state.ok() || !state->elastic_energy_j) return 0;
    const double expected = Expected(model, *solver);
    EXPECT_NEAR(*state->elastic_energy_j, expected, 1e-6 * expected) << what;
    return expected;
  };
  const double whole_j = check("before");
  PALPATE_ASSERT_OK(solver->ReadState(states));
  PALPATE_ASSERT_OK(solver->Rebuild(model, states));
  EXPECT_NEAR(check("laid out anew"), whole_j, 1e-12 * whole_j);
  // Another material and a tet less; the surface stays as it is, which the energy does not look at.
  TissueChange change;
  change.tets = {7, 20};
  for (const uint32_t t : change.tets)
    change.vertices.insert(change.vertices.end(), model.tets[t].vertices.begin(), model.tets[t].vertices.end());
  model.tets[7].vertices = kFreeTissueTet;
  model.tets[20].mu_pa *= 3;
  PALPATE_TEST_ASSIGN(const bool fits, solver->Update(model, change, states));
  EXPECT_TRUE(fits);
  EXPECT_GT(std::abs(check("after a delta") - whole_j), 1e-4 * whole_j);
}

}  // namespace
}  // namespace palpate::gpu::tissue_energy_test
