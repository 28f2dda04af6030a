#include "sim/reference/tensor_mass.h"

#include <gmock/gmock.h>

#include <Eigen/Dense>
#include <algorithm>
#include <cmath>
#include <random>
#include <set>
#include <vector>

#include "sim/mesh/generators.h"
#include "sim/reference/newton.h"
#include "tests/support/device_test.h"

namespace palpate::sim::tensor_mass_test {
namespace {

using Eigen::Vector3d;
using ::testing::ElementsAre;

constexpr UpdateOrder kOrders[] = {UpdateOrder::kSynchronous, UpdateOrder::kRandom, UpdateOrder::kBreadthFirst, UpdateOrder::kPriority};

struct Bar {
  std::vector<Vector3d> rest_m;
  std::vector<ElasticTet> tets;
  std::vector<uint8_t> fixed;
  std::vector<Vector3d> loads_n;
};

/// A bar along x, its end at low x held, a force down on the other end.
Bar MakeBar() {
  Bar bar;
  auto mesh = BoxMesh({7, 3, 3}, {0.12, 0.04, 0.04});
  EXPECT_TRUE(mesh.ok()) << mesh.status();
  bar.rest_m = mesh->vertices;
  ElasticTet tet;
  tet.mu_pa = 2000;
  tet.lambda_pa = 3000;
  tet.density_kg_per_m3 = 1000;
  tet.model = MaterialModel::kLinear;
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

// The example of Forest 2003, section 3.
TEST(PriorityQueueTest, SetAppendsPlacesAndFillsFreedOnesFromTheEnd) {
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

TEST(PriorityQueueTest, ChancesOfBeingMissedFallWithThePriority) {
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
  const double expected[] = {0.61, 0.37, 0.14, 0.050};  // the table in Forest 2003
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
    Relaxation relaxation(&model, {.order = order, .seed = 9});
    relaxation.Run(bar.loads_n, 2000 * model.free_count(), &u);
    early.push_back(worst_error_m());
    relaxation.Run(bar.loads_n, 58000 * model.free_count(), &u);
    EXPECT_LT(worst_error_m(), 1e-6);
    EXPECT_LT(model.Residual(u, bar.loads_n), 1e-6 * model.Residual(std::vector<Vector3d>(u.size(), Vector3d::Zero()), bar.loads_n));
  }
  EXPECT_LT(early[2], early[0]) << "breadth first beats all at once";
}

// A slab that lies on a table, a push on one vertex in the middle of its top: what moves much is near the push.
Bar MakePushedSlab() {
  Bar slab = MakeBar();
  auto mesh = BoxMesh({13, 13, 4}, {0.24, 0.24, 0.06});
  EXPECT_TRUE(mesh.ok()) << mesh.status();
  slab.rest_m = mesh->vertices;
  ElasticTet tet = slab.tets[0];
  slab.tets.clear();
  for (const auto& vertices : mesh->tets) {
    tet.vertices = vertices;
    slab.tets.push_back(tet);
  }
  slab.fixed.clear();
  slab.loads_n.clear();
  for (const Vector3d& v : slab.rest_m) {
    slab.fixed.push_back(v.z() < -0.0299 ? 1 : 0);
    slab.loads_n.push_back((v - Vector3d(0, 0, 0.03)).norm() < 1e-6 ? Vector3d(0, 0, -0.02) : Vector3d::Zero());
  }
  return slab;
}

// Updates until what is left of the push is `ratio` of it, looked at after each tenth of a pass.
size_t UpdatesTo(double ratio, UpdateOrder order, uint64_t seed) {
  const Bar bar = MakePushedSlab();
  auto model = TensorMass::Create(bar.rest_m, bar.tets, bar.fixed);
  EXPECT_TRUE(model.ok()) << model.status();
  std::vector<Vector3d> u(bar.rest_m.size(), Vector3d::Zero());
  const double end_n = ratio * model->Residual(u, bar.loads_n);
  Relaxation relaxation(&*model, {.order = order, .seed = seed});
  size_t count = 0;
  while (model->Residual(u, bar.loads_n) > end_n && count < 1000000) {
    const size_t some = (model->free_count() + 9) / 10;
    relaxation.Run(bar.loads_n, some, &u);
    count += some;
  }
  return count;
}

TEST(RelaxationTest, PriorityNeedsFewerUpdatesThanRandomAfterALocalLoad) {
  for (const double ratio : {0.1, 0.03, 0.01}) {
    // Mean of some seeds: both orders draw.
    double random = 0, priority = 0;
    for (uint64_t seed = 1; seed <= 8; ++seed) {
      random += static_cast<double>(UpdatesTo(ratio, UpdateOrder::kRandom, seed)) / 8;
      priority += static_cast<double>(UpdatesTo(ratio, UpdateOrder::kPriority, seed)) / 8;
    }
    EXPECT_LT(priority, random) << "to " << ratio;
  }
}

TEST(RelaxationTest, BreadthFirstGoesOutwardsFromTheLoadedVertices) {
  Bar bar = MakeBar();
  const auto n = static_cast<uint32_t>(bar.rest_m.size());
  // Loads in two places, one of them on a fixed vertex, which cannot move and so starts nothing.
  const uint32_t loaded = n - 1;
  bar.loads_n.assign(n, Vector3d::Zero());
  bar.loads_n[loaded].z() = -0.002;
  ASSERT_EQ(bar.fixed[0], 1);
  bar.loads_n[0].z() = -0.002;
  // A second bar next to the first that no edge joins to it: out of reach.
  const auto tet_count = bar.tets.size();
  for (size_t t = 0; t < tet_count; ++t) {
    ElasticTet tet = bar.tets[t];
    for (uint32_t& v : tet.vertices) v += n;
    bar.tets.push_back(tet);
  }
  for (uint32_t v = 0; v < n; ++v) {
    bar.rest_m.push_back(bar.rest_m[v] + Vector3d(0, 1, 0));
    bar.fixed.push_back(bar.fixed[v]);
    bar.loads_n.emplace_back(0, 0, 0);
  }
  PALPATE_TEST_ASSIGN(const TensorMass model, TensorMass::Create(bar.rest_m, bar.tets, bar.fixed));
  // Distances by relaxing all edges until nothing changes.
  constexpr uint32_t kFar = 1000000;
  std::vector<uint32_t> distance(2 * n, kFar);
  distance[loaded] = 0;
  std::set<std::pair<uint32_t, uint32_t>> edges;
  for (const ElasticTet& tet : bar.tets) {
    for (const uint32_t a : tet.vertices) {
      for (const uint32_t b : tet.vertices) {
        if (a != b && bar.fixed[a] == 0 && bar.fixed[b] == 0) edges.insert({a, b});
      }
    }
  }
  for (uint32_t round = 0; round < 2 * n; ++round) {
    for (const auto& [a, b] : edges) distance[b] = std::min(distance[b], distance[a] + 1);
  }
  std::vector<uint32_t> visits;
  Relaxation relaxation(&model, {.order = UpdateOrder::kBreadthFirst, .on_update = [&](uint32_t v) { visits.push_back(v); }});
  std::vector<Vector3d> u(2 * n, Vector3d::Zero());
  relaxation.Run(bar.loads_n, model.free_count(), &u);
  ASSERT_EQ(visits.size(), model.free_count());
  EXPECT_EQ(std::set<uint32_t>(visits.begin(), visits.end()).size(), visits.size()) << "each vertex once";
  EXPECT_EQ(visits.front(), loaded);
  EXPECT_LT(distance[visits[n / 2]], kFar);
  EXPECT_EQ(distance[visits.back()], kFar);
  std::vector<uint32_t> first_finder(2 * n, 0);  // place of the first visited neighbour that is one edge closer
  for (size_t k = 1; k < visits.size(); ++k) {
    const uint32_t v = visits[k], before = visits[k - 1];
    EXPECT_LE(distance[before], distance[v]) << "visit " << k;
    if (distance[v] == kFar) {
      if (distance[before] == kFar) {
        EXPECT_LT(before, v) << "out of reach: by number";
      }
      continue;
    }
    while (edges.count({visits[first_finder[v]], v}) == 0) ++first_finder[v];
    EXPECT_EQ(distance[visits[first_finder[v]]] + 1, distance[v]);
    EXPECT_LE(first_finder[before], first_finder[v]) << "visit " << k << ": those found first come first";
  }

  // A budget need not be a whole pass; the order goes on where it stopped, and stays when the load is gone.
  const std::vector<uint32_t> pass = visits;
  visits.clear();
  relaxation.Run(bar.loads_n, 10, &u);
  bar.loads_n.assign(2 * n, Vector3d::Zero());
  relaxation.Run(bar.loads_n, model.free_count() - 10, &u);
  EXPECT_EQ(visits, pass);
  // Another loaded vertex: a new order, from its start.
  visits.clear();
  relaxation.Run(bar.loads_n, 7, &u);
  const uint32_t other = 2 * n - 1;
  bar.loads_n[other].x() = 0.001;
  relaxation.Run(bar.loads_n, 1, &u);
  EXPECT_EQ(visits.back(), other);
}

// Vertices under other numbers, everything else the same.
TEST(RelaxationTest, OnlySynchronousUpdatesDoNotDependOnNumbers) {
  const Bar bar = MakeBar();
  const auto n = static_cast<uint32_t>(bar.rest_m.size());
  std::vector<uint32_t> number(n);
  for (uint32_t v = 0; v < n; ++v) number[v] = v;
  std::shuffle(number.begin(), number.end(), std::mt19937_64(4));
  Bar renumbered = bar;
  for (uint32_t v = 0; v < n; ++v) {
    renumbered.rest_m[number[v]] = bar.rest_m[v];
    renumbered.fixed[number[v]] = bar.fixed[v];
    renumbered.loads_n[number[v]] = bar.loads_n[v];
  }
  for (ElasticTet& tet : renumbered.tets) {
    for (uint32_t& v : tet.vertices) v = number[v];
  }
  PALPATE_TEST_ASSIGN(const TensorMass model, TensorMass::Create(bar.rest_m, bar.tets, bar.fixed));
  PALPATE_TEST_ASSIGN(const TensorMass other, TensorMass::Create(renumbered.rest_m, renumbered.tets, renumbered.fixed));
  for (const UpdateOrder order : kOrders) {
    std::vector<Vector3d> u(n, Vector3d::Zero()), w = u;
    Relaxation relaxation(&model, {.order = order, .seed = 3}), other_relaxation(&other, {.order = order, .seed = 3});
    relaxation.Run(bar.loads_n, 20 * model.free_count(), &u);
    other_relaxation.Run(renumbered.loads_n, 20 * model.free_count(), &w);
    double largest_m = 0, difference_m = 0;
    for (uint32_t v = 0; v < n; ++v) {
      largest_m = std::max(largest_m, u[v].norm());
      difference_m = std::max(difference_m, (u[v] - w[number[v]]).norm());
    }
    if (order == UpdateOrder::kSynchronous) {
      EXPECT_LT(difference_m, 1e-12 * largest_m);
    } else {
      EXPECT_GT(difference_m, 1e-6 * largest_m) << "order " << static_cast<int>(order) << " does depend on numbers, so the check sees it";
    }
  }
}

TEST(RelaxationTest, SynchronousSpendsABudgetInWholePasses) {
  const Bar bar = MakeBar();
  PALPATE_TEST_ASSIGN(const TensorMass model, TensorMass::Create(bar.rest_m, bar.tets, bar.fixed));
  size_t updates = 0;
  Relaxation relaxation(&model, {.order = UpdateOrder::kSynchronous, .on_update = [&](uint32_t) { ++updates; }});
  std::vector<Vector3d> u(bar.rest_m.size(), Vector3d::Zero());
  relaxation.Run(bar.loads_n, model.free_count() - 1, &u);
  EXPECT_EQ(updates, 0U);
  relaxation.Run(bar.loads_n, 1, &u);
  EXPECT_EQ(updates, model.free_count());
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
}  // namespace palpate::sim::tensor_mass_test
