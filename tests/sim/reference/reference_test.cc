#include <gmock/gmock.h>

#include <Eigen/Dense>
#include <Eigen/SparseCore>
#include <random>
#include <string>
#include <vector>

#include "gpu/dynamics/tissue_solver.h"
#include "sim/mesh/generators.h"
#include "sim/reference/newton.h"
#include "sim/scene/material.h"
#include "tests/support/device_test.h"

namespace palpate::sim::reference_test {
namespace {

using Eigen::Vector3d;
using Eigen::VectorXd;
using ::testing::HasSubstr;

constexpr gpu::TissueEnergy kEnergies[] = {
#define PALPATE_ENERGY(name, Name, api, code, text) gpu::TissueEnergy::k##Name,
    PALPATE_ELASTIC_ENERGIES(PALPATE_ENERGY)
#undef PALPATE_ENERGY
};

gpu::TissueTet Tissue(gpu::TissueEnergy energy) {
  gpu::TissueTet tet;
  tet.vertices = {};
  tet.mu_pa = 2000;
  tet.lambda_pa = energy == gpu::TissueEnergy::kMassSpring ? 2000 : 5000;
  tet.density_kg_per_m3 = 1000;
  tet.energy = energy;
  if (energy == gpu::TissueEnergy::kLinear || energy == gpu::TissueEnergy::kStVenantKirchhoff) {
    tet.fibers = {{0.48F, -0.6F, 0.64F}, 500, 8000, 300};
  }
  return tet;
}

/// A bar along x, its end at low x held.
gpu::TissueModel Bar(gpu::TissueEnergy energy) {
  auto mesh = BoxMesh({7, 3, 3}, {0.12, 0.04, 0.04});
  EXPECT_TRUE(mesh.ok()) << mesh.status();
  gpu::TissueModel model;
  for (const Vector3d& v : mesh->vertices) {
    model.rest_m.push_back({v.x(), v.y(), v.z()});
    model.fixed.push_back(v.x() < -0.0599 ? 1 : 0);
  }
  gpu::TissueTet tet = Tissue(energy);
  for (const auto& vertices : mesh->tets) {
    tet.vertices = vertices;
    model.tets.push_back(tet);
  }
  return model;
}

absl::StatusOr<ReferenceBody> BodyOf(const gpu::TissueModel& model) {
  std::vector<Vector3d> rest;
  for (const auto& v : model.rest_m) rest.emplace_back(v[0], v[1], v[2]);
  std::vector<ElasticTet> tets;
  for (const gpu::TissueTet& tet : model.tets) tets.push_back(ElasticTetOf(tet));
  return ReferenceBody::Create(rest, tets, model.fixed);
}

class ReferenceTest : public test::DeviceTest {
 protected:
  VectorXd Jittered(const VectorXd& x, double size) {
    VectorXd y = x;
    for (Eigen::Index i = 0; i < y.size(); ++i) y[i] += size * uniform_(random_);
    return y;
  }
  std::mt19937_64 random_{11};
  std::uniform_real_distribution<double> uniform_{-1, 1};
};

TEST_F(ReferenceTest, ForcesAndStiffnessAreDerivatives) {
  for (const gpu::TissueEnergy energy : kEnergies) {
    SCOPED_TRACE(testing::Message() << "energy " << static_cast<int>(energy));
    PALPATE_TEST_ASSIGN(const ReferenceBody body, BodyOf(Bar(energy)));
    const VectorXd x = Jittered(body.Rest(), 0.003);
    const VectorXd forces = body.Forces(x);
    VectorXd direction = Jittered(VectorXd::Zero(x.size()), 1);
    for (size_t v = 0; v < body.vertex_count(); ++v) {
      if (body.is_fixed(v)) direction.segment<3>(static_cast<Eigen::Index>(3 * v)).setZero();
    }
    constexpr double kStep_m = 1e-6;
    const VectorXd plus = x + kStep_m * direction, minus = x - kStep_m * direction;
    EXPECT_NEAR(-(body.Energy(plus) - body.Energy(minus)) / (2 * kStep_m), forces.dot(direction), 1e-6 * forces.norm() * direction.norm());
    const VectorXd expected = -(body.Forces(plus) - body.Forces(minus)) / (2 * kStep_m);
    const VectorXd product = body.Stiffness(x, false) * direction;
    double worst = 0;
    for (size_t v = 0; v < body.vertex_count(); ++v) {
      if (body.is_fixed(v)) continue;
      worst = std::max(worst, (product - expected).segment<3>(static_cast<Eigen::Index>(3 * v)).norm());
    }
    EXPECT_LT(worst, 1e-6 * expected.norm());
    // The projected one has no negative curvature and bounds the exact one.
    EXPECT_GE(direction.dot(body.Stiffness(x, true) * direction), direction.dot(product) - 1e-9 * std::abs(direction.dot(product)));
  }
}

TEST_F(ReferenceTest, DirectAndIterativeFindTheSameStaticShape) {
  for (const gpu::TissueEnergy energy : kEnergies) {
    SCOPED_TRACE(testing::Message() << "energy " << static_cast<int>(energy));
    PALPATE_TEST_ASSIGN(const ReferenceBody body, BodyOf(Bar(energy)));
    NewtonProblem problem;
    problem.load_n = VectorXd::Zero(static_cast<Eigen::Index>(3 * body.vertex_count()));
    for (size_t v = 0; v < body.vertex_count(); ++v) problem.load_n[static_cast<Eigen::Index>(3 * v + 2)] = -3 * body.mass_kg()[v];
    PALPATE_TEST_ASSIGN(const NewtonResult direct, MinimizeByNewton(body, problem, body.Rest(), {}));
    EXPECT_GT((direct.x - body.Rest()).cwiseAbs().maxCoeff(), 0.002);
    for (const NewtonSolver solver : {NewtonSolver::kConjugateGradient, NewtonSolver::kIncompleteCholesky}) {
      for (const bool always_projects : {true, false}) {
        PALPATE_TEST_ASSIGN(const NewtonResult iterative,
                            MinimizeByNewton(body, problem, body.Rest(), {solver, 1e-10, 200, always_projects}));
        EXPECT_LT((direct.x - iterative.x).cwiseAbs().maxCoeff(), 1e-7);
      }
    }
    EXPECT_LT(direct.residual_n.back(), 1e-10);
  }
}

TEST_F(ReferenceTest, DeviceStepsAsTheReference) {
  // One implicit step of a bar that bends under its weight and flies upwards at its end, solved to convergence on both sides.
  constexpr double kDt_s = 1.0 / 60;
  for (const gpu::TissueEnergy energy : kEnergies) {
    SCOPED_TRACE(testing::Message() << "energy " << static_cast<int>(energy));
    const gpu::TissueModel model = Bar(energy);
    PALPATE_TEST_ASSIGN(const ReferenceBody body, BodyOf(model));
    PALPATE_TEST_ASSIGN(auto solver,
                        gpu::TissueSolver::Create(context(), model, {.dt_s = kDt_s, .iterations = 200, .acceleration = 0.9}, {}, {}, {}));
    VectorXd x = body.Rest();
    VectorXd v = VectorXd::Zero(x.size());
    for (size_t i = 0; i < body.vertex_count(); ++i) {
      if (!body.is_fixed(i)) v[static_cast<Eigen::Index>(3 * i + 2)] = 5 * (body.Rest()[static_cast<Eigen::Index>(3 * i)] + 0.06);
    }
    const auto floats = [](const VectorXd& values) {
      const Eigen::VectorXf rounded = values.cast<float>();
      return std::vector<float>(rounded.data(), rounded.data() + rounded.size());
    };
    PALPATE_ASSERT_OK(solver->WriteState(floats(x), floats(v)));
    for (int step = 0; step < 5; ++step) {
      NewtonProblem problem;
      problem.inv_dt_sq = 1 / (kDt_s * kDt_s);
      problem.load_n = VectorXd::Zero(x.size());
      problem.target_m = x + kDt_s * v;
      for (size_t i = 0; i < body.vertex_count(); ++i) problem.target_m[static_cast<Eigen::Index>(3 * i + 2)] -= kDt_s * kDt_s * 9.81;
      PALPATE_TEST_ASSIGN(const NewtonResult result, MinimizeByNewton(body, problem, x, {}));
      v = (result.x - x) / kDt_s;
      x = result.x;
      PALPATE_ASSERT_OK(solver->Step({}).status());
    }
    std::vector<float> got(static_cast<size_t>(x.size()));
    PALPATE_ASSERT_OK(solver->ReadPositions(got));
    double worst = 0;
    for (size_t i = 0; i < got.size(); ++i)
      worst = std::max(worst, std::abs(static_cast<double>(got[i]) - x[static_cast<Eigen::Index>(i)]));
    const double moved = (x - body.Rest()).cwiseAbs().maxCoeff();
    EXPECT_GT(moved, 0.008);
    EXPECT_LT(worst, 1e-3 * moved);
  }
}

TEST_F(ReferenceTest, RefusesBadInput) {
  gpu::TissueModel model = Bar(gpu::TissueEnergy::kLinear);
  model.tets[3].vertices[1] = 4000;
  EXPECT_THAT(std::string(BodyOf(model).status().message()), HasSubstr("tet 3: vertex 4000 is outside [0, 63)"));
  model = Bar(gpu::TissueEnergy::kLinear);
  std::swap(model.tets[5].vertices[0], model.tets[5].vertices[1]);
  EXPECT_THAT(std::string(BodyOf(model).status().message()), HasSubstr("tet 5: volume"));
  PALPATE_TEST_ASSIGN(const ReferenceBody body, BodyOf(Bar(gpu::TissueEnergy::kLinear)));
  EXPECT_EQ(MinimizeByNewton(body, {}, body.Rest(), {}).status().code(), absl::StatusCode::kInvalidArgument);
  NewtonProblem problem;
  problem.load_n = VectorXd::Constant(body.Rest().size(), 0.01);
  EXPECT_EQ(MinimizeByNewton(body, problem, body.Rest(), {NewtonSolver::kConjugateGradient, 1e-12, 0}).status().code(),
            absl::StatusCode::kDeadlineExceeded);
}

}  // namespace
}  // namespace palpate::sim::reference_test
