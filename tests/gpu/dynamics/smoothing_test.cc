// Node-smoothed tets: mean deformation gradients around vertices, their forces, and sweeps that go down.
#include <gtest/gtest.h>

#include <Eigen/Dense>
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "gpu/dynamics/smoothing_domains.h"
#include "gpu/dynamics/tissue_solver.h"
#include "tests/gpu/dynamics/tissue_models.h"
#include "tests/support/device_test.h"
#include "tests/support/newton_statics.h"

namespace palpate::gpu::smoothing_test {
namespace {

using Eigen::Matrix3d;
using Eigen::Vector3d;
using test::NewtonStatics;
using test::OracleBody;
using test::OracleModel;

constexpr TissueEnergy kSmoothedEnergies[] = {TissueEnergy::kStableNeoHookean, TissueEnergy::kCorotated, TissueEnergy::kLinear,
                                              TissueEnergy::kStVenantKirchhoff};

void Smooth(TissueModel* model) {
  for (TissueTet& tet : model->tets) tet.is_smoothed = 1;
}

TissueModel SmoothedBox(const std::array<uint32_t, 3>& cells, const TestMaterial& material) {
  TissueModel model = BoxModel(cells, {0.01 * cells[0], 0.01 * cells[1], 0.01 * cells[2]}, {0, 0, 0}, material);
  Smooth(&model);
  return model;
}

/// Places at rest, turned, sheared and shaken by up to `noise_m`.
std::vector<Vector3d> Deformed(const TissueModel& model, double noise_m) {
  const Matrix3d turn = Eigen::AngleAxisd(0.7, Vector3d(1, 2, -1).normalized()).toRotationMatrix();
  Matrix3d stretch = Matrix3d::Identity();
  stretch(0, 1) = 0.2;
  stretch(2, 2) = 1.15;
  std::mt19937 random(3);
  const auto noise = [&] { return noise_m * (2 * static_cast<double>(random()) / 4294967295.0 - 1); };
  std::vector<Vector3d> x;
  for (const auto& r : model.rest_m) x.push_back(turn * stretch * Vector3d(r[0], r[1], r[2]) + Vector3d(noise(), noise(), noise()));
  return x;
}

class Smoothing : public test::DeviceTest {
 protected:
  std::unique_ptr<TissueSolver> Make(const TissueModel& model, const TissueOptions& options) {
    auto solver = TissueSolver::Create(context(), model, options, {}, {}, {});
    EXPECT_TRUE(solver.ok()) << solver.status();
    return std::move(*solver);
  }
  double EnergyAt(TissueSolver& solver, const std::vector<Vector3d>& x) {
    PALPATE_EXPECT_OK(solver.WriteState(Pack(x)));
    const auto step = solver.Inspect();
    EXPECT_TRUE(step.ok() && step->elastic_energy_j.has_value());
    return step->elastic_energy_j.value_or(0);
  }
};

TEST(SmoothingLists, DomainsCoverTheBodyAndTheirGradientsAreThoseOfLinearMaps) {
  const TissueModel model = SmoothedBox({3, 2, 2}, {});
  auto layout = LayOutTissue(model, 0.01, 8);
  ASSERT_TRUE(layout.ok()) << layout.status();
  EXPECT_TRUE(layout->has_smoothing);
  const SmoothingLists lists = ListSmoothing(model, *layout, 0.01);
  ASSERT_EQ(lists.domain_count(), model.rest_m.size()) << "one material: a domain a vertex";
  double mu_j = 0;
  for (uint32_t i = 0; i < lists.domain_count(); ++i) {
    mu_j += lists.states[size_t{3} * i].w;
    Matrix3d f = Matrix3d::Zero();
    Vector3d sum = Vector3d::Zero();
    for (uint32_t k = lists.begins[i]; k < lists.begins[i + 1]; ++k) {
      const Vector3d g(lists.gradients[k].x, lists.gradients[k].y, lists.gradients[k].z);
      const Float4& r = layout->rest_m[SolverSlot{lists.slots[k]}];
      f += Vector3d(r.x, r.y, r.z) * g.transpose();
      sum += g;
    }
    EXPECT_LT((f - Matrix3d::Identity()).norm(), 1e-5) << "domain " << i;
    EXPECT_LT(sum.norm(), 1e-4);
  }
  const double mu_pa = 10000 / (2 * 1.4);
  EXPECT_NEAR(mu_j, (1 - PALPATE_SMOOTHING_SHARE) * mu_pa * 0.03 * 0.02 * 0.02, 1e-6 * mu_pa * 1.2e-5 * 10);
}

TEST(SmoothingLists, AMaterialIsADomainOfItsOwn) {
  TissueModel model = SmoothedBox({2, 1, 1}, {});
  for (size_t t = 0; t < 6; ++t) model.tets[t].mu_pa *= 100;  // the first cube
  auto layout = LayOutTissue(model, 0.01, 1);
  ASSERT_TRUE(layout.ok()) << layout.status();
  const SmoothingLists lists = ListSmoothing(model, *layout, 0.01);
  EXPECT_EQ(lists.domain_count(), 12U + 4U) << "two at the vertices of the common face";
}

TEST(SmoothingLists, SpringsAndFibresAreRefused) {
  TissueModel springs = SmoothedBox({1, 1, 1}, {.energy = TissueEnergy::kMassSpring});
  EXPECT_EQ(LayOutTissue(springs, 0.01, 1).status().code(), absl::StatusCode::kInvalidArgument);
  TissueModel fibers = SmoothedBox({1, 1, 1}, {.energy = TissueEnergy::kLinear, .fibers = {.direction = {1, 0, 0}, .stiffness_pa = 100}});
  EXPECT_EQ(LayOutTissue(fibers, 0.01, 1).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(Smoothing, ForcesAreTheSlopesOfTheEnergyThatAStepReports) {
  for (const TissueEnergy energy : kSmoothedEnergies) {
    SCOPED_TRACE(Name(energy));
    const TissueModel model = SmoothedBox({2, 2, 1}, {.poisson_ratio = 0.45, .energy = energy});
    const auto solver = Make(model, {.report_energy = true});
    const std::vector<Vector3d> x = Deformed(model, 1e-3);
    PALPATE_ASSERT_OK(solver->WriteState(Pack(x)));
    std::vector<float> flat(3 * x.size());
    PALPATE_ASSERT_OK(solver->ReadForces(kElasticForces, flat));
    const std::vector<Vector3d> forces = Unpack(flat);
    double largest = 0;
    for (const Vector3d& f : forces) largest = std::max(largest, f.norm());
    constexpr double kStep_m = 2e-5;
    for (const size_t v : {size_t{0}, size_t{4}, size_t{8}, size_t{13}}) {
      for (int axis = 0; axis < 3; ++axis) {
        std::vector<Vector3d> to = x;
        to[v][axis] += kStep_m;
        const double up = EnergyAt(*solver, to), at_up = static_cast<float>(to[v][axis]);
        to[v][axis] -= 2 * kStep_m;
        const double down = EnergyAt(*solver, to), at_down = static_cast<float>(to[v][axis]);
        EXPECT_NEAR(-(up - down) / (at_up - at_down), forces[v][axis], 2e-3 * largest) << "vertex " << v << ", axis " << axis;
      }
    }
  }
}

TEST_F(Smoothing, AffineMapsHaveTheEnergyAndForcesOfPlainTets) {
  for (const TissueEnergy energy : kSmoothedEnergies) {
    SCOPED_TRACE(Name(energy));
    const TestMaterial material{.poisson_ratio = 0.45, .energy = energy};
    const TissueModel smoothed = SmoothedBox({3, 2, 2}, material);
    TissueModel plain = smoothed;
    for (TissueTet& tet : plain.tets) tet.is_smoothed = 0;
    const std::vector<Vector3d> x = Deformed(smoothed, 0);
    const auto of_smoothed = Make(smoothed, {.report_energy = true});
    const auto of_plain = Make(plain, {.report_energy = true});
    const double energy_j = EnergyAt(*of_plain, x);
    EXPECT_NEAR(EnergyAt(*of_smoothed, x), energy_j, 1e-5 * energy_j);
    std::vector<float> expected(3 * x.size());
    std::vector<float> forces(3 * x.size());
    PALPATE_ASSERT_OK(of_plain->ReadForces(kElasticForces, expected));
    PALPATE_ASSERT_OK(of_smoothed->ReadForces(kElasticForces, forces));
    const float largest = *std::max_element(expected.begin(), expected.end());
    EXPECT_GT(largest, 0.0F);
    for (size_t i = 0; i < forces.size(); ++i) EXPECT_NEAR(forces[i], expected[i], 1e-4 * largest) << "coordinate " << i;
  }
}

TEST_F(Smoothing, SweepsGoDown) {
  // A step of sweeps without acceleration from a shaken start: what is left falls from sweep to sweep to the rounding.
  for (const TissueEnergy energy : kSmoothedEnergies) {
    SCOPED_TRACE(Name(energy));
    TissueModel model = SmoothedBox({5, 3, 3}, {.young_modulus_pa = 5000, .poisson_ratio = 0.45, .damping_s = 0.01, .energy = energy});
    for (size_t v = 0; v < model.rest_m.size(); ++v) model.fixed[v] = model.rest_m[v][0] == 0 ? 1 : 0;
    const auto solver = Make(model, {.iterations = 40, .acceleration = 0});
    std::vector<Vector3d> x;
    for (const auto& r : model.rest_m) x.emplace_back(r[0] * 1.05, r[1] + 0.05 * r[0], r[2]);
    PALPATE_ASSERT_OK(solver->WriteState(Pack(x)));
    PALPATE_TEST_ASSIGN(const std::vector<double> residuals, solver->StepMeasuringResidual({}));
    ASSERT_EQ(residuals.size(), 41U);
    EXPECT_LT(residuals[10], 0.5 * residuals[1]);
    EXPECT_LT(residuals[40], 0.1 * residuals[1]);
  }
}

TEST_F(Smoothing, LaunchesForEachColorAndPhasesGiveTheSameBits) {
  TissueModel model = SmoothedBox({5, 2, 2}, {.young_modulus_pa = 5000, .poisson_ratio = 0.49, .damping_s = 0.005});
  for (size_t v = 0; v < model.rest_m.size(); ++v) model.fixed[v] = model.rest_m[v][0] == 0 ? 1 : 0;
  std::vector<uint64_t> hashes;
  for (const uint32_t groups : {0U, 2U}) {
    TissueTuning tuning = TissueTuning::For(context()->device());
    tuning.phase_groups = groups;
    PALPATE_TEST_ASSIGN(auto solver, TissueSolver::Create(context(), model, {.iterations = 8, .coarse_nodes = 64}, {}, {}, tuning));
    TissueStep step;
    for (int i = 0; i < 4; ++i) {
      PALPATE_TEST_ASSIGN(step, solver->Step({}));
    }
    hashes.push_back(step.hash);
  }
  EXPECT_EQ(hashes[0], hashes[1]);
}

TEST_F(Smoothing, ABodyOfHighPoissonRatioHangsAsNewtonsMethodFindsIt) {
  TissueModel model = SmoothedBox({6, 2, 2}, {.young_modulus_pa = 20000, .poisson_ratio = 0.49, .damping_s = 0.01});
  OracleBody body;
  body.young_modulus_pa = 20000;
  body.poisson_ratio = 0.49;
  body.density_kg_per_m3 = 1000;
  body.is_smoothed = true;
  for (const auto& r : model.rest_m) body.rest_m.emplace_back(r[0], r[1], r[2]);
  for (const TissueTet& tet : model.tets) body.tets.push_back(tet.vertices);
  NewtonStatics oracle(body);
  for (size_t v = 0; v < model.rest_m.size(); ++v) {
    model.fixed[v] = model.rest_m[v][0] == 0 ? 1 : 0;
    oracle.load_n[v] = {0, 0, -9.81 * oracle.mass_kg[v]};
    for (int axis = 0; axis < 3; ++axis) oracle.held[3 * v + axis] = model.fixed[v];
  }
  EXPECT_LT(oracle.Solve(60, 1e-9), 1e-9);
  const auto solver = Make(model, {.dt_s = 1.0 / 30, .iterations = 100, .acceleration = 0.95});
  for (int i = 0; i < 100; ++i) PALPATE_ASSERT_OK(solver->Step({}).status());
  std::vector<float> flat(3 * model.rest_m.size());
  PALPATE_ASSERT_OK(solver->ReadPositions(flat));
  const std::vector<Vector3d> x = Unpack(flat);
  double worst = 0, sag = 0;
  for (size_t v = 0; v < x.size(); ++v) {
    worst = std::max(worst, (x[v] - oracle.x_m[v]).norm());
    sag = std::max(sag, body.rest_m[v].z() - oracle.x_m[v].z());
  }
  std::printf("smoothed cantilever, nu 0.49: sag %.4f mm, farthest vertex %.6f mm off\n", sag * 1e3, worst * 1e3);
  EXPECT_LT(worst, 0.005 * sag);
}

}  // namespace
}  // namespace palpate::gpu::smoothing_test
