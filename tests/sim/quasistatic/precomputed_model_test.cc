// Pre-computed responses against Newton's method on the whole body, which knows nothing of columns or of condensation.
#include "sim/quasistatic/precomputed_model.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

#include "sim/mesh/generators.h"
#include "sim/reference/newton.h"
#include "tests/support/device_test.h"

namespace palpate::sim::precomputed_model_test {
namespace {

using Eigen::Index;
using Eigen::Vector3d;
using Eigen::VectorXd;
using ::testing::HasSubstr;

constexpr double kLength_m = 0.12;

Index At(size_t vertex) { return static_cast<Index>(3 * vertex); }

struct Body {
  std::vector<Vector3d> rest_m;
  std::vector<ElasticTet> tets;
  std::vector<uint8_t> fixed;
  std::vector<uint32_t> surface;  // those that can move
};

/// A bar along x, held at its low end; beyond the middle three times as stiff.
Body Bar(MaterialModel energy = MaterialModel::kLinear) {
  auto mesh = BoxMesh({7, 3, 4}, {kLength_m, 0.04, 0.05});
  EXPECT_TRUE(mesh.ok()) << mesh.status();
  Body body;
  body.rest_m = mesh->vertices;
  for (const Vector3d& v : mesh->vertices) body.fixed.push_back(v.x() < -0.4999 * kLength_m ? 1 : 0);
  for (const auto& vertices : mesh->tets) {
    ElasticTet tet;
    tet.vertices = vertices;
    double x = 0;
    for (const uint32_t v : vertices) x += mesh->vertices[v].x() / 4;
    tet.mu_pa = x > 0 ? 6000 : 2000;
    tet.lambda_pa = x > 0 ? 15000 : 5000;
    tet.density_kg_per_m3 = 1000;
    tet.damping_s = 0.02F;
    tet.model = energy;
    body.tets.push_back(tet);
  }
  for (const uint32_t v : ExtractBoundary(*mesh).vertices) {
    if (body.fixed[v] == 0) body.surface.push_back(v);
  }
  std::sort(body.surface.begin(), body.surface.end());
  return body;
}

absl::StatusOr<std::unique_ptr<PrecomputedModel>> ModelOf(const Body& body, double dt_s = 0, std::span<const StiffnessBlock> extra = {}) {
  return PrecomputedModel::Create(body.rest_m, body.tets, body.fixed, body.surface, extra, {.dt_s = dt_s});
}

/// The body of linear elasticity at rest under loads, with more vertices held, and moved from rest.
absl::StatusOr<VectorXd> SolveWhole(const Body& body, const std::vector<uint32_t>& held, const std::vector<Vector3d>& moves_m,
                                    const VectorXd& load_n) {
  std::vector<uint8_t> fixed = body.fixed;
  for (const uint32_t v : held) fixed[v] = 1;
  PALPATE_ASSIGN_OR_RETURN(const ReferenceBody reference, ReferenceBody::Create(body.rest_m, body.tets, fixed));
  VectorXd start = reference.Rest();
  for (size_t i = 0; i < held.size(); ++i) start.segment<3>(At(held[i])) += moves_m[i];
  PALPATE_ASSIGN_OR_RETURN(const NewtonResult result,
                           MinimizeByNewton(reference, {.inv_dt_sq = 0, .target_m = {}, .load_n = load_n}, start, {.tolerance_n = 1e-11}));
  return VectorXd(result.x - reference.Rest());
}

class PrecomputedModelTest : public ::testing::Test {
 protected:
  Vector3d Random() { return {uniform_(random_), uniform_(random_), uniform_(random_)}; }
  std::vector<uint32_t> Choose(std::vector<uint32_t> from, size_t count) {
    for (size_t i = from.size(); i > 1; --i) std::swap(from[i - 1], from[random_() % i]);
    from.resize(count);
    return from;
  }
  std::mt19937_64 random_{5};
  std::uniform_real_distribution<double> uniform_{-1, 1};
};

TEST_F(PrecomputedModelTest, ContactsMoveTheBodyAsTheWholeModelSays) {
  const Body body = Bar();
  PALPATE_TEST_ASSIGN(const auto model, ModelOf(body));
  for (const size_t count : {1UL, 2UL, 3UL, 5UL, 8UL, 13UL, 21UL}) {
    SCOPED_TRACE(testing::Message() << count << " contacts");
    const std::vector<uint32_t> held = Choose(body.surface, count);
    std::vector<Vector3d> moves;
    for (size_t i = 0; i < count; ++i) moves.push_back(0.004 * Random());
    PALPATE_TEST_ASSIGN(const std::vector<Vector3d> forces, model->ForcesFor(held, moves));
    const VectorXd nothing = VectorXd::Zero(At(body.rest_m.size()));
    PALPATE_TEST_ASSIGN(const VectorXd whole, SolveWhole(body, held, moves, nothing));
    // From the columns, and by a solve.
    VectorXd load = nothing;
    for (size_t i = 0; i < count; ++i) load.segment<3>(At(held[i])) = forces[i];
    const VectorXd solved = model->Displace(load);
    const double size_m = whole.cwiseAbs().maxCoeff();
    EXPECT_LT((solved - whole).cwiseAbs().maxCoeff(), 1e-6 * size_m);
    for (const uint32_t v : body.surface) {
      Vector3d u = Vector3d::Zero();
      for (size_t i = 0; i < count; ++i) u += model->Response(model->ChosenIndex(v), model->ChosenIndex(held[i])) * forces[i];
      EXPECT_LT((u - whole.segment<3>(At(v))).norm(), 1e-6 * size_m) << "vertex " << v;
    }
    // What the tissue does to what holds it.
    PALPATE_TEST_ASSIGN(const ReferenceBody reference, ReferenceBody::Create(body.rest_m, body.tets, body.fixed));
    const VectorXd internal = reference.Forces(reference.Rest() + whole);
    for (size_t i = 0; i < count; ++i) EXPECT_LT((forces[i] + internal.segment<3>(At(held[i]))).norm(), 1e-6 * load.norm());
  }
}

TEST_F(PrecomputedModelTest, EveryEnergyIsTakenAtSmallStrain) {
  for (const MaterialModel energy : {MaterialModel::kStableNeoHookean, MaterialModel::kCorotated, MaterialModel::kStVenantKirchhoff}) {
    SCOPED_TRACE(testing::Message() << "energy " << static_cast<int>(energy));
    PALPATE_TEST_ASSIGN(const auto linear, ModelOf(Bar()));
    PALPATE_TEST_ASSIGN(const auto other, ModelOf(Bar(energy)));
    VectorXd load(At(linear->vertex_count()));
    for (Index i = 0; i < load.size(); ++i) load[i] = uniform_(random_);
    const VectorXd expected = linear->Displace(load);
    EXPECT_LT((other->Displace(load) - expected).norm(), 1e-9 * expected.norm());
  }
}

TEST_F(PrecomputedModelTest, ResponsesAreSymmetricAndComputedOnceForAll) {
  const Body body = Bar();
  PALPATE_TEST_ASSIGN(const auto lazy, ModelOf(body));
  PALPATE_TEST_ASSIGN(const auto eager, ModelOf(body));
  eager->ComputeColumns();
  const size_t count = lazy->chosen_count();
  double size = 0;
  for (size_t i = 0; i < count; i += 3) {
    for (size_t j = count; j-- > 0;) {
      const Eigen::Matrix3d response = lazy->Response(i, j);
      size = std::max(size, response.norm());
      EXPECT_LT((response - lazy->Response(j, i).transpose()).norm(), 1e-12 * size);
      // The order in which they are asked for makes no difference.
      EXPECT_EQ(response, Eigen::Matrix3d(eager->Response(i, j)));
    }
  }
}

TEST_F(PrecomputedModelTest, CondensedPartBalancesWhatIsJoinedToIt) {
  // The bar is sawn through in the middle: one half becomes the stiffness that it shows at the interface, the other stays whole. The
  // halves under their loads end where the whole bar does.
  const Body whole = Bar();
  Body held = whole, free = whole;
  const auto is_beyond = [&](const ElasticTet& tet) {
    return std::accumulate(tet.vertices.begin(), tet.vertices.end(), 0.0,
                           [&](double sum, uint32_t v) { return sum + whole.rest_m[v].x(); }) > 0;
  };
  std::erase_if(held.tets, [&](const ElasticTet& tet) { return is_beyond(tet); });
  std::erase_if(free.tets, [&](const ElasticTet& tet) { return !is_beyond(tet); });
  std::vector<uint32_t> interface;
  for (uint32_t v = 0; v < whole.rest_m.size(); ++v) {
    const auto is_in = [&](const ElasticTet& tet) { return std::find(tet.vertices.begin(), tet.vertices.end(), v) != tet.vertices.end(); };
    if (std::any_of(held.tets.begin(), held.tets.end(), is_in) && std::any_of(free.tets.begin(), free.tets.end(), is_in)) {
      interface.push_back(v);
    }
  }
  ASSERT_GE(interface.size(), 12U);
  held.surface = interface;
  PALPATE_TEST_ASSIGN(const auto held_model, ModelOf(held));
  PALPATE_TEST_ASSIGN(const Eigen::MatrixXd condensed, held_model->CondenseTo(interface));
  EXPECT_LT((condensed - condensed.transpose()).norm(), 1e-9 * condensed.norm());
  std::vector<StiffnessBlock> extra;
  for (size_t i = 0; i < interface.size(); ++i) {
    for (size_t j = 0; j < interface.size(); ++j) extra.push_back({interface[i], interface[j], condensed.block<3, 3>(At(i), At(j))});
  }
  // Alone the second half floats.
  EXPECT_EQ(ModelOf(free).status().code(), absl::StatusCode::kFailedPrecondition);
  PALPATE_TEST_ASSIGN(const auto joined, ModelOf(free, 0, extra));

  VectorXd load = VectorXd::Zero(At(whole.rest_m.size()));
  std::vector<uint8_t> is_free(whole.rest_m.size(), 0);
  for (const ElasticTet& tet : free.tets) {
    for (const uint32_t v : tet.vertices) is_free[v] = 1;
  }
  VectorXd on_held = load, on_free = load;
  for (size_t v = 0; v < whole.rest_m.size(); ++v) {
    load.segment<3>(At(v)) = 0.01 * Random();
    (is_free[v] != 0 ? on_free : on_held).segment<3>(At(v)) = load.segment<3>(At(v));
  }
  // Loads on the condensed half reach the interface as the forces with which it would hold still.
  const VectorXd unheld = held_model->Displace(on_held);
  VectorXd moves(At(interface.size()));
  for (size_t i = 0; i < interface.size(); ++i) moves.segment<3>(At(i)) = unheld.segment<3>(At(interface[i]));
  const VectorXd pushed = condensed * moves;
  for (size_t i = 0; i < interface.size(); ++i) on_free.segment<3>(At(interface[i])) += pushed.segment<3>(At(i));
  const VectorXd halves = joined->Displace(on_free);
  PALPATE_TEST_ASSIGN(const VectorXd expected, SolveWhole(whole, {}, {}, load));
  for (size_t v = 0; v < whole.rest_m.size(); ++v) {
    if (is_free[v] == 0) continue;
    EXPECT_LT((halves - expected).segment<3>(At(v)).norm(), 1e-8 * expected.norm());
  }
  // The other half follows its interface, and what each does to the other there sums to nothing.
  std::vector<Vector3d> followed;
  for (size_t i = 0; i < interface.size(); ++i) followed.emplace_back(halves.segment<3>(At(interface[i])) - moves.segment<3>(At(i)));
  PALPATE_TEST_ASSIGN(const std::vector<Vector3d> from_free, held_model->ForcesFor(interface, followed));
  VectorXd both = on_held;
  for (size_t i = 0; i < interface.size(); ++i) both.segment<3>(At(interface[i])) += from_free[i];
  EXPECT_LT((held_model->Displace(both) - expected)
                .cwiseProduct(VectorXd(on_held.array().unaryExpr([](double f) { return f != 0 ? 1.0 : 0.0; })))
                .norm(),
            1e-8 * expected.norm());
}

TEST_F(PrecomputedModelTest, ViscosityDelaysWithoutChangingTheEnd) {
  constexpr double kDt_s = 0.01;
  const Body body = Bar();
  PALPATE_TEST_ASSIGN(const auto statics, ModelOf(body));
  PALPATE_TEST_ASSIGN(const auto stepped, ModelOf(body, kDt_s));
  VectorXd load(At(body.rest_m.size()));
  for (Index i = 0; i < load.size(); ++i) load[i] = uniform_(random_);
  const VectorXd end = statics->Displace(load);
  EXPECT_LT((statics->Apply(end).squaredNorm() - statics->Apply(end).dot(load)), 1e-9 * load.squaredNorm());
  // Kelvin and Voigt with one damping everywhere: each step of backward Euler leaves 1 / (1 + dt / damping) of the way.
  VectorXd u = VectorXd::Zero(load.size());
  double left = 1;
  for (int step = 0; step < 5; ++step) {
    u = stepped->Displace(load + stepped->ApplyViscosity(u));
    left /= 1 + kDt_s / body.tets.front().damping_s;
    EXPECT_LT((u - (1 - left) * end).norm(), 1e-6 * end.norm()) << "step " << step;
  }
  EXPECT_EQ(statics->ApplyViscosity(u).norm(), 0);
}

TEST_F(PrecomputedModelTest, RefusesWhatItCannotHoldOrKeep) {
  Body body = Bar();
  const auto expect = [&](const Body& given, const PrecomputedOptions& options, absl::StatusCode code, const std::string& what) {
    const absl::Status status = PrecomputedModel::Create(given.rest_m, given.tets, given.fixed, given.surface, {}, options).status();
    EXPECT_EQ(status.code(), code);
    EXPECT_THAT(std::string(status.message()), HasSubstr(what));
  };
  Body floating = body;
  std::fill(floating.fixed.begin(), floating.fixed.end(), uint8_t{0});
  expect(floating, {}, absl::StatusCode::kFailedPrecondition, "do not hold");
  floating.fixed[0] = floating.fixed[7] = 1;  // it can still turn about a line
  expect(floating, {}, absl::StatusCode::kFailedPrecondition, "the 2 fixed vertices");
  expect(body, {.dt_s = 0, .max_bytes = 100 << 10}, absl::StatusCode::kResourceExhausted, "MiB");
  expect(body, {.dt_s = -1}, absl::StatusCode::kInvalidArgument, "dt_s -1");
  Body wrong = body;
  wrong.surface = {3, 2};
  expect(wrong, {}, absl::StatusCode::kInvalidArgument, "chosen[1]: 2 does not follow 3");
  wrong.surface = {84};
  expect(wrong, {}, absl::StatusCode::kInvalidArgument, "outside [0, 84)");
  wrong = body;
  wrong.fixed.pop_back();
  expect(wrong, {}, absl::StatusCode::kInvalidArgument, "fixed: 83 entries for 84");

  PALPATE_TEST_ASSIGN(const auto model, ModelOf(body));
  const uint32_t v = body.surface[4];
  const std::vector<Vector3d> moves(2, Vector3d(0.001, 0, 0));
  EXPECT_THAT(std::string(model->ForcesFor(std::vector<uint32_t>{v, v}, moves).status().message()), HasSubstr("given twice"));
  EXPECT_THAT(std::string(model->ForcesFor(std::vector<uint32_t>{v, 0}, moves).status().message()), HasSubstr("0 was not chosen"));
  EXPECT_THAT(std::string(model->ForcesFor(std::vector<uint32_t>{v}, moves).status().message()), HasSubstr("2 displacements for 1"));
  Body with_fixed = body;
  with_fixed.surface.insert(with_fixed.surface.begin(), 0U);
  PALPATE_TEST_ASSIGN(const auto other, ModelOf(with_fixed));
  EXPECT_THAT(std::string(other->ForcesFor(std::vector<uint32_t>{v, 0}, moves).status().message()), HasSubstr("0 does not move"));
}

}  // namespace
}  // namespace palpate::sim::precomputed_model_test
