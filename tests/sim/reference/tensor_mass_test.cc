#include "sim/reference/tensor_mass.h"

#include <gmock/gmock.h>

#include <Eigen/Dense>
#include <cmath>
#include <vector>

#include "sim/mesh/generators.h"
#include "sim/reference/newton.h"
#include "tests/support/device_test.h"

namespace palpate::sim {
namespace {

using Eigen::Vector3d;
using ::testing::ElementsAre;

constexpr UpdateOrder kOrders[] = {UpdateOrder::kSynchronous, UpdateOrder::kRandom, UpdateOrder::kBreadthFirst, UpdateOrder::kPriority};

struct Bar {
  std::vector<Vector3d> rest_m;
  std::vector<gpu::TissueTet> tets;
  std::vector<uint8_t> fixed;
  std::vector<Vector3d> loads_n;
};

/// A bar along x, its end at low x held, a force down on the other end.
Bar MakeBar() {
  Bar bar;
  auto mesh = BoxMesh({7, 3, 3}, {0.12, 0.04, 0.04});
  EXPECT_TRUE(mesh.ok()) << mesh.status();
  bar.rest_m = mesh->vertices;
  gpu::TissueTet tet;
  tet.mu_pa = 2000;
  tet.lambda_pa = 3000;
  tet.density_kg_per_m3 = 1000;
  tet.energy = gpu::TissueEnergy::kLinear;
  for (const auto& vertices : mesh->tets) {
    tet.vertices = vertices;
    bar.tets.push_back(tet);
  }
  for (const Vector3d& v : bar.rest_m) {
    bar.fixed.push_back(v.x() < -0.0599 ? 1 : 0);
    bar.loads_n.push_back(v.x() > 0.0599 ? Vector3d(0, 0, -0.002) : Vector3d::Zero());
  }
  return bar;
}

TEST(PriorityQueueTest, ExampleOfTheThesis) {
  PriorityQueue queue(4, 3);
  EXPECT_THAT(queue.queue(), ElementsAre(0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3));
  queue.Set(0, 4);
  EXPECT_THAT(queue.queue(), ElementsAre(0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3, 0));
  queue.Set(1, 1);
  EXPECT_THAT(queue.queue(), ElementsAre(0, 0, 0, 1, 3, 0, 2, 2, 2, 3, 3));
  EXPECT_EQ(queue.priority(0), 4U);
  EXPECT_EQ(queue.priority(1), 1U);
  EXPECT_EQ(queue.priority(3), 3U);
}

TEST(PriorityQueueTest, ChancesOfBeingMissed) {
  // n draws miss a vertex of priority p with probability exp(-p / L), L the mean priority.
  constexpr uint32_t kVertices = 500;
  constexpr int kSteps = 4000;
  PriorityQueue queue(kVertices, 2);
  for (const auto& [vertex, priority] : {std::pair(0U, 1U), {1U, 2U}, {2U, 4U}, {3U, 6U}}) queue.Set(vertex, priority);
  std::mt19937_64 random(3);
  std::vector<int> missed(4, 0);
  for (int step = 0; step < kSteps; ++step) {
    std::vector<uint8_t> drawn(kVertices, 0);
    for (uint32_t draw = 0; draw < kVertices; ++draw) drawn[queue.Draw(random)] = 1;
    for (size_t v = 0; v < 4; ++v) missed[v] += drawn[v] == 0 ? 1 : 0;
  }
  const double expected[] = {0.61, 0.37, 0.14, 0.050};  // the table of the thesis
  for (size_t v = 0; v < 4; ++v)
    EXPECT_NEAR(missed[v] / static_cast<double>(kSteps), expected[v], 0.025) << "priority " << queue.priority(v);
}

TEST(TensorMassTest, ForcesAreThoseOfTheEnergy) {
  const Bar bar = MakeBar();
  PALPATE_TEST_ASSIGN(const TensorMass model, TensorMass::Create(bar.rest_m, bar.tets, bar.fixed));
  PALPATE_TEST_ASSIGN(const ReferenceBody body, ReferenceBody::Create(bar.rest_m, bar.tets, bar.fixed));
  std::mt19937_64 random(5);
  std::uniform_real_distribution<double> uniform(-0.01, 0.01);
  std::vector<Vector3d> u;
  Eigen::VectorXd x = body.Rest();
  for (size_t v = 0; v < bar.rest_m.size(); ++v) {
    u.emplace_back(uniform(random), uniform(random), uniform(random));
    x.segment<3>(static_cast<Eigen::Index>(3 * v)) += u.back();
  }
  const std::vector<Vector3d> forces = model.Forces(u);
  const Eigen::VectorXd expected = body.Forces(x);
  for (size_t v = 0; v < forces.size(); ++v) {
    EXPECT_LT((forces[v] - expected.segment<3>(static_cast<Eigen::Index>(3 * v))).norm(), 1e-9 * expected.norm());
  }
  const std::vector<Vector3d> moved(u.size(), Vector3d(0.1, -0.2, 0.3));
  for (const Vector3d& force : model.Forces(moved)) EXPECT_LT(force.norm(), 1e-9) << "a translation has no force";
}

TEST(TensorMassTest, EveryOrderFindsTheSameEquilibriumAndBreadthFirstSooner) {
  const Bar bar = MakeBar();
  PALPATE_TEST_ASSIGN(const TensorMass model, TensorMass::Create(bar.rest_m, bar.tets, bar.fixed));
  PALPATE_TEST_ASSIGN(const ReferenceBody body, ReferenceBody::Create(bar.rest_m, bar.tets, bar.fixed));
  NewtonProblem problem;
  problem.load_n = Eigen::VectorXd::Zero(body.Rest().size());
  for (size_t v = 0; v < bar.loads_n.size(); ++v) problem.load_n.segment<3>(static_cast<Eigen::Index>(3 * v)) = bar.loads_n[v];
  PALPATE_TEST_ASSIGN(const NewtonResult exact, MinimizeByNewton(body, problem, body.Rest(), {}));
  std::vector<double> early;
  for (const UpdateOrder order : kOrders) {
    SCOPED_TRACE(testing::Message() << "order " << static_cast<int>(order));
    std::vector<Vector3d> u(bar.rest_m.size(), Vector3d::Zero());
    const auto worst_error_m = [&] {
      double worst = 0;
      for (size_t v = 0; v < u.size(); ++v) {
        worst = std::max(worst, (bar.rest_m[v] + u[v] - exact.x.segment<3>(static_cast<Eigen::Index>(3 * v))).norm());
      }
      return worst;
    };
    double halfway = 0;
    int pass = 0;
    model.Relax(bar.loads_n, order, 60000, 9, &u, [&] {
      if (++pass == 2000) halfway = worst_error_m();
    });
    EXPECT_LT(worst_error_m(), 1e-6);
    EXPECT_LT(model.Residual(u, bar.loads_n), 1e-6 * model.Residual(std::vector<Vector3d>(u.size(), Vector3d::Zero()), bar.loads_n));
    early.push_back(halfway);
  }
  EXPECT_LT(early[2], early[0]) << "breadth first beats all at once";
}

TEST(TensorMassTest, ExplicitStepIsStableUpToItsLimit) {
  const Bar bar = MakeBar();
  PALPATE_TEST_ASSIGN(const TensorMass model, TensorMass::Create(bar.rest_m, bar.tets, bar.fixed));
  const double limit_s = model.StableStep();
  EXPECT_GT(limit_s, 1e-5);
  const auto largest_after = [&](double dt_s) {
    std::vector<Vector3d> now(bar.rest_m.size(), Vector3d::Zero()), before = now;
    for (int step = 0; step < 2000; ++step) model.StepExplicitly(bar.loads_n, dt_s, 0, &now, &before);
    double largest = 0;
    for (const Vector3d& u : now) largest = u.allFinite() ? std::max(largest, u.norm()) : std::numeric_limits<double>::infinity();
    return largest;
  };
  EXPECT_LT(largest_after(0.97 * limit_s), 0.1);
  EXPECT_FALSE(largest_after(1.05 * limit_s) < 10);
}

}  // namespace
}  // namespace palpate::sim
