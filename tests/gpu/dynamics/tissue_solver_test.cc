#include "gpu/dynamics/tissue_solver.h"

#include <gmock/gmock.h>

#include <Eigen/Dense>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <string>

#include "tests/gpu/dynamics/tissue_models.h"
#include "tests/support/device_test.h"

namespace palpate::gpu::tissue_solver_test {
namespace {

using Eigen::Vector3d;
using ::testing::HasSubstr;

class TissueSolverTest : public test::DeviceTest {
 protected:
  std::unique_ptr<TissueSolver> Make(const TissueModel& model, const TissueOptions& options,
                                     const std::vector<ColliderDescription>& colliders = {}, const std::vector<PlaneObstacle>& planes = {},
                                     const TissueTuning& tuning = {}) {
    model_ = model;
    auto solver = TissueSolver::Create(context(), model, options, colliders, planes, tuning);
    EXPECT_TRUE(solver.ok()) << solver.status();
    return solver.ok() ? *std::move(solver) : nullptr;
  }

  std::vector<Vector3d> Positions(TissueSolver& solver) {
    std::vector<float> flat(model_.rest_m.size() * 3);
    PALPATE_EXPECT_OK(solver.ReadPositions(flat));
    return Unpack(flat);
  }
  std::vector<Vector3d> Forces(TissueSolver& solver, uint32_t parts) {
    std::vector<float> flat(model_.rest_m.size() * 3);
    PALPATE_EXPECT_OK(solver.ReadForces(parts, flat));
    return Unpack(flat);
  }
  Vector3d Rest(size_t v) const { return {model_.rest_m[v][0], model_.rest_m[v][1], model_.rest_m[v][2]}; }
  /// The nearest vector of floats, as the device holds it.
  static Vector3d Rounded(const Vector3d& v) { return Unpack(Pack({v})).front(); }
  std::vector<double> Masses(const TissueSolver& solver) const {
    std::vector<double> mass;
    for (const SolverSlot i : solver.layout().solver_index) mass.push_back(solver.layout().mass_kg[i]);
    return mass;
  }

  static ColliderTarget TargetOf(const ColliderDescription& c) { return {c.tip_m, c.axis_m}; }
  static Vector3d ContactForce(const TissueStep& step) {
    Vector3d sum = Vector3d::Zero();
    for (const ContactReport& r : step.contacts) sum += Vector3d(r.force.x, r.force.y, r.force.z);
    return sum;
  }
  /// Steps until nothing moves faster than `speed`; the last step.
  TissueStep Settle(TissueSolver& solver, const std::vector<ColliderTarget>& targets, int max_steps, double speed = 1e-4) {
    TissueStep last;
    for (int i = 0; i < max_steps; ++i) {
      const auto step = solver.Step(targets);
      EXPECT_TRUE(step.ok()) << step.status();
      if (!step.ok()) return last;
      last = *step;
      EXPECT_EQ(last.bad_vertices, 0U);
      if (i > 10 && last.max_speed_m_per_s < speed) return last;
    }
    ADD_FAILURE() << "still moving at " << last.max_speed_m_per_s << " m/s after " << max_steps << " steps";
    return last;
  }

  TissueModel model_;
};

TEST_F(TissueSolverTest, FreeFallFollowsBackwardEuler) {
  for (const TissueEnergy energy : kAllEnergies) {
    SCOPED_TRACE(Name(energy));
    // Viscosity and stiffness must not act on a body that moves rigidly.
    auto solver = Make(BoxModel({3, 2, 2}, {0.06, 0.04, 0.04}, {0, 0, 0}, {.damping_s = 0.05, .energy = energy}),
                       {.dt_s = 0.01, .gravity_m_per_s2 = {1, 0, -9.81}, .iterations = 4});
    ASSERT_NE(solver, nullptr);
    const Vector3d v0(0.3, -0.2, 1.5);
    const Vector3d g(1, 0, -9.81);
    std::vector<Vector3d> rest;
    for (size_t v = 0; v < model_.rest_m.size(); ++v) rest.push_back(Rest(v));
    PALPATE_ASSERT_OK(solver->WriteState(Pack(rest), Pack(std::vector<Vector3d>(rest.size(), v0))));
    for (int n = 1; n <= 50; ++n) {
      PALPATE_TEST_ASSIGN(const TissueStep step, solver->Step({}));
      const Vector3d shift = 0.01 * n * v0 + 0.01 * 0.01 * n * (n + 1) / 2 * g;
      const std::vector<Vector3d> x = Positions(*solver);
      // Each step rounds positions of about a metre, of which velocities are differences.
      for (size_t v = 0; v < x.size(); ++v) ASSERT_LT((x[v] - rest[v] - shift).norm(), 2e-6 + 3e-7 * n) << "step " << n << ", vertex " << v;
      EXPECT_EQ(step.inverted_tets, 0U);
    }
    const double mass = 0.06 * 0.04 * 0.04 * 1000;
    const Vector3d velocity = v0 + 0.5 * g;
    PALPATE_TEST_ASSIGN(const TissueStep state, solver->Step({}));
    EXPECT_NEAR(state.kinetic_energy_j, mass * (velocity + 0.01 * g).squaredNorm() / 2, 1e-3 * mass * velocity.squaredNorm());
  }
}

TEST_F(TissueSolverTest, RotationLosesOnlyWhatBackwardEulerLoses) {
  for (const double damping : {0.0, 0.05}) {
    SCOPED_TRACE(testing::Message() << "damping " << damping << " s");
    constexpr double kDt = 0.01;
    auto solver = Make(BoxModel({3, 3, 3}, {0.06, 0.06, 0.06}, {-0.03, -0.03, -0.03}, {.young_modulus_pa = 20000, .damping_s = damping}),
                       {.dt_s = kDt, .gravity_m_per_s2 = {0, 0, 0}, .iterations = 80});
    ASSERT_NE(solver, nullptr);
    const std::vector<double> mass = Masses(*solver);
    const Vector3d omega(0.5, -1, 4);
    std::vector<Vector3d> x, v;
    for (size_t i = 0; i < mass.size(); ++i) {
      x.push_back(Rest(i));
      v.push_back(omega.cross(x.back()));
    }
    PALPATE_ASSERT_OK(solver->WriteState(Pack(x), Pack(v)));
    const auto momentum = [&](const std::vector<Vector3d>& at, const std::vector<Vector3d>& velocity) {
      Vector3d sum = Vector3d::Zero();
      for (size_t i = 0; i < mass.size(); ++i) sum += mass[i] * at[i].cross(velocity[i]);
      return sum;
    };
    const Vector3d start = momentum(x, v);
    Vector3d predicted = start;
    for (int n = 0; n < 20; ++n) {
      PALPATE_TEST_ASSIGN(const TissueStep step, solver->Step({}));
      EXPECT_EQ(step.bad_vertices, 0U);
      const std::vector<Vector3d> x1 = Positions(*solver);
      std::vector<Vector3d> v1;
      for (size_t i = 0; i < x1.size(); ++i) v1.push_back((x1[i] - x[i]) / kDt);
      // x1 = x + h v1, and internal forces have no torque about x1: L1 = sum m x1 cross v.
      predicted = momentum(x1, v);
      EXPECT_LT((momentum(x1, v1) - predicted).norm(), 2e-3 * start.norm()) << "step " << n;
      x = x1;
      v = v1;
    }
    const double lost = 1 - momentum(x, v).norm() / start.norm();
    const double theta = omega.norm() * kDt;
    EXPECT_GT(lost, 0);
    EXPECT_LT(lost, 20 * theta * theta * 1.5) << "about theta^2 a step";
  }
}

TEST_F(TissueSolverTest, MassDampingBrakesLikeBackwardEuler) {
  constexpr double kDt = 0.01;
  for (const double rate_per_s : {0.5, 30.0}) {
    SCOPED_TRACE(testing::Message() << "damping " << rate_per_s << " 1/s");
    auto solver = Make(BoxModel({2, 2, 2}, {0.04, 0.04, 0.04}, {0, 0, 0}, {.mass_damping_per_s = rate_per_s}),
                       {.dt_s = kDt, .gravity_m_per_s2 = {0, 0, -9.81}, .iterations = 4});
    ASSERT_NE(solver, nullptr);
    std::vector<Vector3d> rest;
    for (size_t v = 0; v < model_.rest_m.size(); ++v) rest.push_back(Rest(v));
    Vector3d velocity(0.4, -0.1, 0.2);
    PALPATE_ASSERT_OK(solver->WriteState(Pack(rest), Pack(std::vector<Vector3d>(rest.size(), velocity))));
    Vector3d shift = Vector3d::Zero();
    for (int n = 0; n < 40; ++n) {
      PALPATE_ASSERT_OK(solver->Step({}).status());
      velocity = (velocity + kDt * Vector3d(0, 0, -9.81)) / (1 + rate_per_s * kDt);
      shift += kDt * velocity;
      const std::vector<Vector3d> x = Positions(*solver);
      for (size_t v = 0; v < x.size(); ++v) ASSERT_LT((x[v] - rest[v] - shift).norm(), 2e-6 + 2e-7 * n) << "step " << n << ", vertex " << v;
    }
  }
}

TEST_F(TissueSolverTest, LoadsAccelerateAFreeBodyForAsLongAsTheyLast) {
  constexpr double kDt = 0.01;
  constexpr double kLargestForce_n = 0.1;  // of all loads together
  TissueModel model = BoxModel({2, 2, 2}, {0.04, 0.04, 0.04}, {0, 0, 0}, {.young_modulus_pa = 5000, .mass_damping_per_s = 2});
  TissueLoad top{.force_n = {0.02, 0, 0.05}, .start_s = 0.05, .duration_s = 0.1};  // on the faces of the top
  TissueLoad bottom{.pressure_pa = 30, .duration_s = 0.12};
  for (uint32_t v = 0; v < model.rest_m.size(); ++v) {
    if (model.rest_m[v][2] > 0.039) top.vertices.push_back(v);
    if (model.rest_m[v][2] < 0.001) bottom.vertices.push_back(v);
  }
  // No triangle has all its vertices on these: spread by mass.
  const TissueLoad inside{.vertices = {0, 13}, .force_n = {0, 0.03, 0}, .duration_s = 1e9};
  model.loads = {top, bottom, inside};
  auto solver = Make(model, {.dt_s = kDt, .gravity_m_per_s2 = {0, 0, 0}, .iterations = 200});
  ASSERT_NE(solver, nullptr);
  const std::vector<double> mass = Masses(*solver);
  const double total = std::accumulate(mass.begin(), mass.end(), 0.0);
  for (int pass = 0; pass < 2; ++pass) {
    std::vector<Vector3d> before;
    for (size_t v = 0; v < mass.size(); ++v) before.push_back(Rest(v));
    Vector3d velocity = Vector3d::Zero();
    for (int n = 0; n < 20; ++n) {
      Vector3d force(0, 0.03, 0);
      if (n >= 5 && n < 15) force += Vector3d(0.02, 0, 0.05);
      if (n < 12) force.z() += 30 * 0.04 * 0.04;  // the area changes little
      PALPATE_ASSERT_OK(solver->Step({}).status());
      const std::vector<Vector3d> x = Positions(*solver);
      Vector3d momentum = Vector3d::Zero();
      for (size_t v = 0; v < x.size(); ++v) momentum += mass[v] * (x[v] - before[v]) / kDt;
      velocity = (velocity + kDt * force / total) / (1 + 2 * kDt);
      ASSERT_LT((momentum / total - velocity).norm(), 0.01 * kDt * kLargestForce_n / total * (n + 1)) << "step " << n;
      before = x;
    }
    EXPECT_GT(velocity.norm(), 0.05);
    PALPATE_ASSERT_OK(solver->Reset());
  }
}

TEST_F(TissueSolverTest, ALoadOnTrianglesActsOnThoseAlone) {
  constexpr double kDt = 0.001;
  TissueModel model = BoxModel({2, 2, 2}, {0.04, 0.04, 0.04}, {0, 0, 0}, {.young_modulus_pa = 20000});
  // All vertices of the top but one half of its triangles; the force is spread over the other half.
  double area_m2 = 0;
  size_t named = 0;
  for (const auto& t : model.surface_triangles) {
    double x = 0;
    double z = 1;
    for (const uint32_t v : t) {
      x += model.rest_m[v][0] / 3;
      z = std::min(z, model.rest_m[v][2]);
    }
    const bool is_top = z > 0.039;
    model.triangle_loads.push_back(!is_top ? 0 : x < 0.02 ? 1 : 2);
    if (is_top && x < 0.02) area_m2 += 0.02 * 0.02 / 2;
    named += is_top ? 1 : 0;
  }
  ASSERT_EQ(named, 8U);
  model.loads = {{.pressure_pa = 40, .duration_s = 1e9}, {.force_n = {0.01, 0.02, 0}, .duration_s = 1e9}};
  auto solver = Make(model, {.dt_s = kDt, .gravity_m_per_s2 = {0, 0, 0}, .iterations = 60});
  ASSERT_NE(solver, nullptr);
  const std::vector<double> mass = Masses(*solver);
  PALPATE_ASSERT_OK(solver->Step({}).status());
  const std::vector<Vector3d> x = Positions(*solver);
  Vector3d momentum = Vector3d::Zero();
  for (size_t v = 0; v < x.size(); ++v) momentum += mass[v] * (x[v] - Rest(v)) / kDt;
  const Vector3d force(0.01, 0.02, -40 * area_m2);
  EXPECT_LT((momentum / kDt - force).norm(), 0.01 * force.norm());
  model.triangle_loads.pop_back();
  const auto refused = TissueSolver::Create(context(), model, {}, {}, {}, {});
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("triangle_loads: 47 entries for 48 triangles"));
}

/// A bar on three planes at its lowest x, y and z, along which it slides; the corner that all three have is fixed.
TissueModel SlidingBar(const TestMaterial& material) {
  TissueModel model = BoxModel({4, 3, 3}, {0.08, 0.03, 0.03}, {0, 0, 0}, material);
  for (const auto& x : model.rest_m) {
    model.held_axes.push_back(static_cast<uint8_t>((x[0] == 0 ? 1 : 0) | (x[1] == 0 ? 2 : 0) | (x[2] == 0 ? 4 : 0)));
    if (model.held_axes.back() == 7) model.fixed[model.held_axes.size() - 1] = kFixedVertex;
  }
  return model;
}
TissueLoad PressOnTheEnd(const TissueModel& model, double pressure_pa) {
  TissueLoad load{.pressure_pa = pressure_pa, .duration_s = 1e9};
  for (uint32_t v = 0; v < model.rest_m.size(); ++v) {
    if (model.rest_m[v][0] > 0.0799) load.vertices.push_back(v);
  }
  return load;
}

TEST_F(TissueSolverTest, SlidingSupportsLeaveABarInUniaxialStress) {
  const double e = 10000, nu = 0.4, pressure = 150;
  for (const double acceleration : {0.0, 0.9}) {
    SCOPED_TRACE(acceleration);
    TissueModel model = SlidingBar({.young_modulus_pa = e, .poisson_ratio = nu, .damping_s = 0.02, .energy = TissueEnergy::kLinear});
    model.loads = {PressOnTheEnd(model, pressure)};
    auto solver = Make(model, {.gravity_m_per_s2 = {0, 0, 0}, .iterations = 40, .acceleration = acceleration});
    ASSERT_NE(solver, nullptr);
    for (int n = 0; n < 200; ++n) PALPATE_ASSERT_OK(solver->Step({}).status());
    const std::vector<Vector3d> x = Positions(*solver);
    // The pressure acts on the area as it is.
    double across = 0;
    for (int k = 0; k < 50; ++k) across = nu * pressure / e * (1 + across) * (1 + across);
    const Vector3d stretch(1 - across / nu, 1 + across, 1 + across);
    for (size_t v = 0; v < x.size(); ++v) {
      const Vector3d expected = stretch.cwiseProduct(Rest(v));
      EXPECT_LT((x[v] - expected).norm(), 2e-3 * across / nu * 0.08) << "vertex " << v;
      for (int axis = 0; axis < 3; ++axis) {
        if (model.held_axes[v] >> axis & 1) {
          EXPECT_EQ(std::bit_cast<uint32_t>(static_cast<float>(x[v][axis])), std::bit_cast<uint32_t>(static_cast<float>(Rest(v)[axis])));
        }
      }
    }
    // What the supports bear: the pressure along x, nothing across.
    Vector3d support = Vector3d::Zero();
    const std::vector<Vector3d> forces = Forces(*solver, kAllForces);
    for (size_t v = 0; v < x.size(); ++v) {
      for (int axis = 0; axis < 3; ++axis) {
        if (model.held_axes[v] >> axis & 1) support[axis] += forces[v][axis];
      }
    }
    const double pressed_n = pressure * 0.03 * 0.03 * (1 + across) * (1 + across);
    EXPECT_NEAR(support.x(), -pressed_n, 5e-3 * pressed_n);
    EXPECT_NEAR(support.y(), 0, 5e-3 * pressed_n);
    EXPECT_NEAR(support.z(), 0, 5e-3 * pressed_n);
    PALPATE_TEST_ASSIGN(const std::vector<double> residuals, solver->StepMeasuringResidual({}));
    EXPECT_LT(residuals.back(), 1e-3 * pressed_n) << "what supports bear is no residual";
  }
}

TEST_F(TissueSolverTest, ABodyOnASlidingPlaneFallsFreelyAlongIt) {
  constexpr double kDt = 0.01;
  TissueModel model = BoxModel({3, 2, 2}, {0.06, 0.04, 0.04}, {0, 0, 0.01}, {.young_modulus_pa = 20000, .mass_damping_per_s = 0});
  for (const auto& x : model.rest_m) model.held_axes.push_back(x[2] == 0.01 ? 4 : 0);
  auto solver = Make(model, {.dt_s = kDt, .gravity_m_per_s2 = {2, -1, 0}, .iterations = 10});
  ASSERT_NE(solver, nullptr);
  std::vector<Vector3d> rest;
  std::vector<Vector3d> velocity;
  for (size_t v = 0; v < model_.rest_m.size(); ++v) {
    rest.push_back(Rest(v));
    velocity.emplace_back(0.1, 0, model.held_axes[v] != 0 ? -3 : 0);  // what a support takes does not count
  }
  PALPATE_ASSERT_OK(solver->WriteState(Pack(rest), Pack(velocity)));
  for (int n = 1; n <= 40; ++n) {
    PALPATE_TEST_ASSIGN(const TissueStep step, solver->Step({}));
    const double speed_sq = (Vector3d(0.1, 0, 0) + kDt * n * Vector3d(2, -1, 0)).squaredNorm();
    EXPECT_NEAR(step.kinetic_energy_j, 0.06 * 0.04 * 0.04 * 1000 * speed_sq / 2, 1e-3 * 0.048 * speed_sq);
    const Vector3d shift = kDt * n * Vector3d(0.1, 0, 0) + kDt * kDt * n * (n + 1) / 2 * Vector3d(2, -1, 0);
    const std::vector<Vector3d> x = Positions(*solver);
    for (size_t v = 0; v < x.size(); ++v) {
      ASSERT_LT((x[v] - Rest(v) - shift).norm(), 2e-6 + 3e-7 * n) << "step " << n << ", vertex " << v;
      if (model.held_axes[v] != 0) {
        ASSERT_EQ(static_cast<float>(x[v].z()), 0.01F);
      }
    }
  }
}

/// Bodies of the model's triangles that keep their volume: all of it one body.
void KeepVolume(TissueModel* model, double stiffness_pa) {
  model->triangle_body.assign(model->surface_triangles.size(), 0);
  model->self_collision = {0};
  model->volume_stiffness_pa = {stiffness_pa};
}

/// m^3, of all tets.
double VolumeAt(const TissueModel& model, const std::vector<Vector3d>& x) {
  double sum = 0;
  for (const TissueTet& tet : model.tets) {
    const auto& v = tet.vertices;
    sum += (x[v[1]] - x[v[0]]).cross(x[v[2]] - x[v[0]]).dot(x[v[3]] - x[v[0]]) / 6;
  }
  return sum;
}

TEST_F(TissueSolverTest, PressureOfAKeptVolumeIsTheGradientOfItsEnergy) {
  constexpr double kStiffness_pa = 3e5;
  TissueModel model = BoxModel({3, 2, 2}, {0.06, 0.04, 0.03}, {0.2, -0.1, 0.3}, {.young_modulus_pa = 1000});
  model.fixed[0] = kFixedVertex;  // what a support bears counts, too
  std::mt19937_64 random(4);
  std::uniform_real_distribution<double> shift(-0.003, 0.003);
  std::vector<Vector3d> x;
  for (const auto& r : model.rest_m)
    x.push_back(Rounded(1.03 * Vector3d(r[0] + shift(random), r[1] + shift(random), r[2] + shift(random))));
  std::vector<std::vector<Vector3d>> forces;
  for (const double k : {0.0, kStiffness_pa}) {
    KeepVolume(&model, k);
    auto solver = Make(model, {});
    ASSERT_NE(solver, nullptr);
    PALPATE_ASSERT_OK(solver->WriteState(Pack(x)));
    forces.push_back(Forces(*solver, kElasticForces));
  }
  std::vector<Vector3d> rest;
  for (size_t v = 0; v < x.size(); ++v) rest.push_back(Rest(v));
  const double rest_m3 = VolumeAt(model, rest);
  const auto energy = [&](const std::vector<Vector3d>& at) {
    const double excess = VolumeAt(model, at) - rest_m3;
    return kStiffness_pa * excess * excess / (2 * rest_m3);
  };
  EXPECT_GT(std::abs(VolumeAt(model, x) / rest_m3 - 1), 0.01);
  double largest = 0;
  double error = 0;
  for (size_t v = 0; v < x.size(); ++v) {
    Vector3d gradient;
    for (int axis = 0; axis < 3; ++axis) {
      std::vector<Vector3d> moved = x;
      moved[v][axis] += 1e-5;
      const double above = energy(moved);
      moved[v][axis] -= 2e-5;
      gradient[axis] = (above - energy(moved)) / 2e-5;
    }
    largest = std::max(largest, gradient.norm());
    error = std::max(error, (forces[1][v] - forces[0][v] + gradient).norm());
  }
  EXPECT_GT(largest, 1);
  EXPECT_LT(error, 1e-4 * largest);
}

// For a uniform strain the energy is k tr(e)^2 / 2 per volume: lambda + k in place of lambda.
TEST_F(TissueSolverTest, APressedBlockKeepsItsVolumeAsTheClosedFormSays) {
  const double e = 10000, nu = 0.3, pressure = 300;
  const double mu = e / (2 * (1 + nu)), lambda = e * nu / ((1 + nu) * (1 - 2 * nu));
  double lost_without = 0;
  for (const double k : {0.0, 1e4, 1e5, 1e7}) {
    SCOPED_TRACE(k);
    TissueModel model = SlidingBar({.young_modulus_pa = e, .poisson_ratio = nu, .damping_s = 0.02, .energy = TissueEnergy::kLinear});
    if (k > 0) KeepVolume(&model, k);
    model.loads = {PressOnTheEnd(model, pressure)};
    auto solver = Make(model, {.dt_s = 1.0 / 60, .gravity_m_per_s2 = {0, 0, 0}, .iterations = 40});
    ASSERT_NE(solver, nullptr);
    for (int n = 0; n < 150; ++n) PALPATE_ASSERT_OK(solver->Step({}).status());
    const std::vector<Vector3d> x = Positions(*solver);
    // V / V0 - 1 is the trace of the strain but for terms of second order, which the stiffness of the volume counts and the tets' does not.
    const auto stress = [&](double along, double across, int axis) {
      const double volume = (1 + along) * (1 + across) * (1 + across) - 1;
      const double areas = axis == 0 ? (1 + across) * (1 + across) : (1 + along) * (1 + across);
      return lambda * (along + 2 * across) + 2 * mu * (axis == 0 ? along : across) + k * volume * areas +
             (axis == 0 ? pressure * areas : 0);
    };
    double along = 0, across = 0;
    for (int newton = 0; newton < 30; ++newton) {
      constexpr double kStep = 1e-6;
      Eigen::Matrix2d slope;
      const Eigen::Vector2d at(stress(along, across, 0), stress(along, across, 1));
      slope.col(0) = (Eigen::Vector2d(stress(along + kStep, across, 0), stress(along + kStep, across, 1)) - at) / kStep;
      slope.col(1) = (Eigen::Vector2d(stress(along, across + kStep, 0), stress(along, across + kStep, 1)) - at) / kStep;
      const Eigen::Vector2d move = slope.inverse() * at;
      along -= move.x();
      across -= move.y();
    }
    const Vector3d stretch(1 + along, 1 + across, 1 + across);
    for (size_t v = 0; v < x.size(); ++v) {
      EXPECT_LT((x[v] - stretch.cwiseProduct(Rest(v))).norm(), 0.01 * std::abs(along) * 0.08) << "vertex " << v;
    }
    std::vector<Vector3d> rest;
    for (size_t v = 0; v < x.size(); ++v) rest.push_back(Rest(v));
    const double lost = 1 - VolumeAt(model, x) / VolumeAt(model, rest);
    EXPECT_NEAR(lost, 1 - stretch.prod(), 0.02 * std::abs(1 - stretch.prod()) + 2e-6);
    if (k == 0) lost_without = lost;
    if (k == 1e5) {
      EXPECT_LT(lost, 0.1 * lost_without);
    }
    if (k == 1e7) {
      EXPECT_LT(lost, 1.5e-3 * lost_without);
    }
  }
  EXPECT_GT(lost_without, 0.01);
}

// The stiffest case at the longest usual step: a soft block that is thrown, with a volume far off at the start.
TEST_F(TissueSolverTest, AStiffVolumeIsStable) {
  for (const auto& [iterations, coarse_nodes] : {std::pair(3U, 0U), {20U, 0U}, {3U, 60U}, {20U, 60U}}) {
    SCOPED_TRACE(testing::Message() << iterations << " sweeps, " << coarse_nodes << " nodes");
    TissueModel model = BoxModel({4, 3, 3}, {0.08, 0.06, 0.06}, {0, 0, 0}, {.young_modulus_pa = 5000, .poisson_ratio = 0.3});
    for (uint32_t v = 0; v < model.rest_m.size(); ++v) model.fixed[v] = model.rest_m[v][0] == 0 ? kFixedVertex : kFreeVertex;
    KeepVolume(&model, 1e7);
    auto solver = Make(model, {.dt_s = 1.0 / 60, .iterations = iterations, .coarse_nodes = coarse_nodes});
    ASSERT_NE(solver, nullptr);
    std::vector<Vector3d> x, rest, speed;
    for (size_t v = 0; v < model.rest_m.size(); ++v) {
      rest.push_back(Rest(v));
      x.push_back(model.fixed[v] != 0 ? Rest(v) : Rest(v).cwiseProduct(Vector3d(1, 1.05, 1.05)));
      speed.emplace_back(0, 10 * Rest(v).x(), -5 * Rest(v).x());
    }
    PALPATE_ASSERT_OK(solver->WriteState(Pack(x), Pack(speed)));
    double peak_j = 0, last_j = 0;
    for (int n = 0; n < 240; ++n) {
      PALPATE_TEST_ASSIGN(const TissueStep step, solver->Step({}));
      ASSERT_EQ(step.bad_vertices, 0U) << n;
      if (iterations > 3 || n > 60) {
        ASSERT_EQ(step.inverted_tets, 0U) << n;
      }
      peak_j = std::max(peak_j, step.kinetic_energy_j);
      last_j = step.kinetic_energy_j;
    }
    // It starts with 0.045 J, and sinks by less than 5 cm, which gives 0.07 J; the energy of its volume would be 14 J.
    EXPECT_LT(peak_j, 0.08);
    EXPECT_LT(last_j, 0.01 * peak_j);
    EXPECT_NEAR(VolumeAt(model, Positions(*solver)) / VolumeAt(model, rest), 1, 1e-4);
  }
}

TEST_F(TissueSolverTest, ResidualFallsWithAStiffVolumeToo) {
  TissueModel model = BoxModel({4, 3, 3}, {0.08, 0.06, 0.06}, {0, 0, 0}, {.young_modulus_pa = 5000, .poisson_ratio = 0.3});
  for (uint32_t v = 0; v < model.rest_m.size(); ++v) model.fixed[v] = model.rest_m[v][0] == 0 ? kFixedVertex : kFreeVertex;
  for (const double k : {0.0, 1e6}) {
    KeepVolume(&model, k);
    auto solver = Make(model, {.dt_s = 1.0 / 60, .iterations = 60});
    ASSERT_NE(solver, nullptr);
    for (int n = 0; n < 5; ++n) PALPATE_ASSERT_OK(solver->Step({}).status());
    PALPATE_TEST_ASSIGN(const std::vector<double> residuals, solver->StepMeasuringResidual({}));
    EXPECT_LT(residuals.back(), 1e-2 * residuals.front()) << k;
  }
}

TEST_F(TissueSolverTest, PressureKeepsAHydrostaticBodyInPlaceAndFollowsIt) {
  // E / (3 (1 - 2 nu)) is the bulk modulus: a pressure all around shrinks every length alike, however the body is turned.
  const double e = 5000, nu = 0.4, pressure = 50;
  TissueModel model = BoxModel({3, 2, 2}, {0.06, 0.04, 0.04}, {0, 0, 0}, {.young_modulus_pa = e, .poisson_ratio = nu, .damping_s = 0.02});
  TissueLoad load{.pressure_pa = pressure, .duration_s = 1e9};
  for (uint32_t v = 0; v < model.rest_m.size(); ++v) load.vertices.push_back(v);
  model.loads = {load};
  auto solver = Make(model, {.gravity_m_per_s2 = {0, 0, 0}, .iterations = 40});
  ASSERT_NE(solver, nullptr);
  const Eigen::Matrix3d turn = Eigen::AngleAxisd(1.1, Vector3d(1, 2, -1).normalized()).toRotationMatrix();
  std::vector<Vector3d> start;
  for (size_t v = 0; v < model_.rest_m.size(); ++v) start.push_back(turn * Rest(v));
  PALPATE_ASSERT_OK(solver->WriteState(Pack(start)));
  for (int n = 0; n < 150; ++n) PALPATE_ASSERT_OK(solver->Step({}).status());
  const std::vector<Vector3d> x = Positions(*solver);
  const double strain = -pressure * (1 - 2 * nu) / e;
  for (const size_t v : {size_t{3}, x.size() - 1}) {
    const Vector3d expected = (1 + strain) * (start[v] - start[0]);
    EXPECT_NEAR((x[v] - x[0]).norm(), expected.norm(), 0.02 * std::abs(strain) * expected.norm()) << "vertex " << v;
    EXPECT_LT((x[v] - x[0]).cross(expected).norm(), 1e-3 * expected.squaredNorm()) << "vertex " << v << ": the body does not turn";
  }
}

TEST_F(TissueSolverTest, PressureAllAroundDoesNotSpinAFreeBody) {
  // Torque that lags behind the rotation would let a spin grow at 2 p V dt over the moment of inertia, 88 1/s.
  const double pressure = 1500, spin_rad_per_s = 0.5, side_m = 0.04;
  TissueModel model = BoxModel({3, 3, 3}, {side_m, side_m, side_m}, {-0.02, -0.02, -0.02}, {.young_modulus_pa = 20000, .damping_s = 0.01});
  TissueLoad load{.pressure_pa = pressure, .duration_s = 1e9};
  for (uint32_t v = 0; v < model.rest_m.size(); ++v) load.vertices.push_back(v);
  model.loads = {load};
  auto solver = Make(model, {.gravity_m_per_s2 = {0, 0, 0}, .iterations = 40});
  ASSERT_NE(solver, nullptr);
  std::vector<Vector3d> rest;
  std::vector<Vector3d> velocity;
  for (size_t v = 0; v < model_.rest_m.size(); ++v) {
    rest.push_back(Rest(v));
    velocity.push_back(Vector3d(0, 0, spin_rad_per_s).cross(Rest(v)));
  }
  PALPATE_ASSERT_OK(solver->WriteState(Pack(rest), Pack(velocity)));
  std::vector<Vector3d> before = rest;
  for (int n = 0; n < 240; ++n) {
    PALPATE_ASSERT_OK(solver->Step({}).status());
    if (n == 238) before = Positions(*solver);
  }
  const std::vector<Vector3d> x = Positions(*solver);
  double turn = 0, inertia = 0;
  for (size_t v = 0; v < x.size(); ++v) {
    turn += before[v].cross(x[v] - before[v]).z() * 120;
    inertia += before[v].head<2>().squaredNorm();
  }
  EXPECT_LT(turn / inertia, 1.1 * spin_rad_per_s);
  EXPECT_GT(turn / inertia, 0.5 * spin_rad_per_s) << "nor does it brake it";
}

TEST_F(TissueSolverTest, FixedVerticesNeverMove) {
  TissueModel model = BoxModel({4, 2, 2}, {0.08, 0.04, 0.04}, {0, 0, 0}, {.young_modulus_pa = 1000, .damping_s = 0.01});
  for (size_t v = 0; v < model.fixed.size(); v += 5) model.fixed[v] = 1;
  const ColliderDescription tool{.radius_m = 0.01, .tip_m = {0.04, 0.02, 0.02}, .axis_m = {0, 0, 0.05}};
  auto solver = Make(model, {}, {tool});
  ASSERT_NE(solver, nullptr);
  const std::vector<ColliderTarget> targets{TargetOf(tool)};
  for (int i = 0; i < 30; ++i) {
    PALPATE_TEST_ASSIGN(const TissueStep step, solver->Step(targets));
    EXPECT_EQ(step.bad_vertices, 0U);
  }
  std::vector<float> x(model.rest_m.size() * 3);
  PALPATE_ASSERT_OK(solver->ReadPositions(x));
  double moved = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const auto rest = static_cast<float>(model.rest_m[i / 3][i % 3]);
    if (model.fixed[i / 3]) {
      EXPECT_EQ(x[i], rest) << "vertex " << i / 3;
    }
    moved = std::max(moved, static_cast<double>(std::abs(x[i] - rest)));
  }
  EXPECT_GT(moved, 0.001) << "the others must feel the tool";
}

/// Every energy in turn, with and without fibres.
void MixEnergies(size_t t, TissueTet* tet) {
  tet->energy = kAllEnergies[t % kAllEnergies.size()];
  const double e = tet->mu_pa * (3.0 * tet->lambda_pa + 2.0 * tet->mu_pa) / (static_cast<double>(tet->lambda_pa) + tet->mu_pa);
  if (tet->energy == TissueEnergy::kMassSpring) tet->mu_pa = tet->lambda_pa = static_cast<float>(0.4 * e);
  const bool has_fibers = tet->energy == TissueEnergy::kLinear || tet->energy == TissueEnergy::kStVenantKirchhoff;
  if (has_fibers && t % 2 == 0) {
    tet->fibers = {{0.48F, -0.6F, 0.64F}, static_cast<float>(0.1 * e), static_cast<float>(2 * e), static_cast<float>(0.1 * e)};
  }
}

/// First Piola-Kirchhoff stress of an upright tet of any energy but springs.
Eigen::Matrix3d FirstStress(const TissueTet& tet, const Eigen::Matrix3d& f) {
  const Eigen::Matrix3d unit = Eigen::Matrix3d::Identity();
  const double j = f.determinant();
  const double mu = tet.mu_pa, lambda = tet.lambda_pa;
  if (tet.energy == TissueEnergy::kStableNeoHookean) return mu * f + ((lambda + mu) * (j - 1) - mu) * j * f.inverse().transpose();
  if (tet.energy == TissueEnergy::kCorotated) {
    const Eigen::JacobiSVD<Eigen::Matrix3d> svd(f, Eigen::ComputeFullU | Eigen::ComputeFullV);
    const Eigen::Matrix3d r = svd.matrixU() * svd.matrixV().transpose();
    return 2 * mu * (f - r) + lambda * ((r.transpose() * f).trace() - 3) * r;
  }
  const bool is_linear = tet.energy == TissueEnergy::kLinear;
  const Eigen::Matrix3d e = is_linear ? Eigen::Matrix3d((f + f.transpose()) / 2 - unit) : Eigen::Matrix3d((f.transpose() * f - unit) / 2);
  const Vector3d a(tet.fibers.direction[0], tet.fibers.direction[1], tet.fibers.direction[2]);
  const Eigen::Matrix3d dyad = a * a.transpose();
  const double along = a.dot(e * a);
  const Eigen::Matrix3d s = 2 * mu * e + lambda * e.trace() * unit + tet.fibers.coupling_pa * (along * unit + e.trace() * dyad) +
                            tet.fibers.stiffness_pa * along * dyad + 2 * tet.fibers.shear_pa * (dyad * e + e * dyad);
  return is_linear ? s : Eigen::Matrix3d(f * s);
}

/// A scene with every feature: all energies, viscosity, plane, direct and coupled tool, friction.
struct BusyScene {
  TissueModel model;
  TissueOptions options;
  std::vector<ColliderDescription> colliders;
  std::vector<PlaneObstacle> planes;

  BusyScene() : model(BoxModel({5, 4, 3}, {0.1, 0.08, 0.06}, {-0.05, -0.04, 0}, {.young_modulus_pa = 5000, .damping_s = 0.01})) {
    for (size_t t = 0; t < model.tets.size(); ++t) MixEnergies(t, &model.tets[t]);
    options.iterations = 10;
    options.friction = 0.3;
    colliders.push_back({.radius_m = 0.01, .tip_m = {0, 0, 0.075}, .axis_m = {0, 0.02, 0.05}});
    colliders.push_back({.radius_m = 0.008,
                         .tip_m = {0.035, 0, 0.072},
                         .axis_m = {0, 0, 0.05},
                         .coupling_n_per_m = 300,
                         .damping_n_s_per_m = 2 * std::sqrt(300 * 0.05),
                         .mass_kg = 0.05});
    planes.push_back({{0, 0, 1, -0.0005F}});
  }
  std::vector<ColliderTarget> Targets(int step) const {
    std::vector<ColliderTarget> targets;
    for (const ColliderDescription& c : colliders) targets.push_back({c.tip_m, c.axis_m});
    targets[0].tip_m[2] -= 0.001 * step;
    targets[0].tip_m[0] += 0.0005 * step;
    targets[1].tip_m[2] -= 0.0008 * step;
    return targets;
  }
};

TEST_F(TissueSolverTest, SameCallsGiveSameBits) {
  const BusyScene scene;
  auto a = Make(scene.model, scene.options, scene.colliders, scene.planes);
  auto b = Make(scene.model, scene.options, scene.colliders, scene.planes);
  ASSERT_TRUE(a != nullptr && b != nullptr);
  std::vector<uint64_t> hashes;
  std::vector<std::vector<ContactReport>> contacts;
  size_t contact_count = 0;
  for (int i = 0; i < 30; ++i) {
    PALPATE_TEST_ASSIGN(const TissueStep sa, a->Step(scene.Targets(i)));
    PALPATE_TEST_ASSIGN(const TissueStep sb, b->Step(scene.Targets(i)));
    ASSERT_EQ(sa.hash, sb.hash) << "step " << i;
    EXPECT_EQ(sa.kinetic_energy_j, sb.kinetic_energy_j);
    ASSERT_EQ(sa.contacts.size(), sb.contacts.size());
    contact_count += sa.contacts.size();
    for (size_t k = 0; k < sa.contacts.size(); ++k) {
      EXPECT_EQ(sa.contacts[k].triangle, sb.contacts[k].triangle);
      EXPECT_EQ(sa.contacts[k].force, sb.contacts[k].force);
    }
    if (!hashes.empty()) {
      EXPECT_NE(hashes.back(), sa.hash);
    }
    hashes.push_back(sa.hash);
  }
  EXPECT_GT(contact_count, 100U);
  PALPATE_ASSERT_OK(a->Reset());
  for (int i = 0; i < 30; ++i) {
    PALPATE_TEST_ASSIGN(const TissueStep step, a->Step(scene.Targets(i)));
    ASSERT_EQ(step.hash, hashes[static_cast<size_t>(i)]) << "after Reset, step " << i;
  }
}

TEST_F(TissueSolverTest, TuningsAgree) {
  BusyScene scene;
  scene.options.iterations = 30;
  std::vector<Vector3d> reference;
  Vector3d reference_force = Vector3d::Zero();
  double moved = 0;
  for (const TissueTuning& tuning : std::vector<TissueTuning>{{},
                                                              {.lanes = 1, .team = 1, .group = 8, .partials = 1},
                                                              {.lanes = 16, .team = 1, .group = 4, .list_group = 16},
                                                              {.lanes = 1, .team = 8, .group = 64, .list_group = 16, .partials = 256},
                                                              {.lanes = 4, .team = 4, .group = 16, .list_group = 4}}) {
    SCOPED_TRACE(testing::Message() << "lanes " << tuning.lanes << ", team " << tuning.team << ", group " << tuning.group << ", list group "
                                    << tuning.list_group);
    auto solver = Make(scene.model, scene.options, scene.colliders, scene.planes, tuning);
    ASSERT_NE(solver, nullptr);
    Vector3d force = Vector3d::Zero();
    size_t contacts = 0;
    for (int i = 0; i < 12; ++i) {
      PALPATE_TEST_ASSIGN(const TissueStep step, solver->Step(scene.Targets(i)));
      force = ContactForce(step);
      contacts = step.contacts.size();
    }
    EXPECT_GT(contacts, 10U);
    const std::vector<Vector3d> x = Positions(*solver);
    if (reference.empty()) {
      reference = x;
      reference_force = force;
      for (size_t v = 0; v < x.size(); ++v) moved = std::max(moved, (x[v] - Rest(v)).norm());
      EXPECT_GT(moved, 0.003);
      continue;
    }
    double worst = 0;
    for (size_t v = 0; v < x.size(); ++v) worst = std::max(worst, (x[v] - reference[v]).norm());
    EXPECT_LT(worst, 2e-3 * moved);
    EXPECT_LT((force - reference_force).norm(), 5e-3 * reference_force.norm());
  }
}

TEST_F(TissueSolverTest, ResidualFallsToRounding) {
  for (const TissueEnergy energy : kAllEnergies) {
    for (const double acceleration : {0.0, 0.9}) {
      SCOPED_TRACE(testing::Message() << Name(energy) << ", acceleration " << acceleration);
      TissueModel model =
          BoxModel({6, 3, 3}, {0.12, 0.06, 0.06}, {0, 0, 0}, {.young_modulus_pa = 5000, .damping_s = 0.005, .energy = energy});
      for (uint32_t v = 0; v < model.fixed.size(); ++v) model.fixed[v] = model.rest_m[v][0] == 0;
      auto solver = Make(model, {.iterations = 160, .acceleration = acceleration});
      ASSERT_NE(solver, nullptr);
      for (int i = 0; i < 3; ++i) PALPATE_ASSERT_OK(solver->Step({}).status());
      PALPATE_TEST_ASSIGN(const std::vector<double> residual, solver->StepMeasuringResidual({}));
      ASSERT_EQ(residual.size(), 161U);
      // Rounding of positions of 0.1 m, seen through the stiffest block.
      const double noise = 3e-4 * residual[0];
      EXPECT_LT(residual.back(), noise);
      if (acceleration > 0) continue;
      size_t at = 0;
      while (at + 1 < residual.size() && residual[at] > 2 * noise) {
        EXPECT_LT(residual[at + 1], residual[at] * 1.02) << "sweep " << at + 1;
        ++at;
      }
      RecordProperty("sweeps_to_noise", static_cast<int>(at));
    }
  }
}

// Estimates of the spectral radius that are too high for a stiff body would let the sweeps swing ever farther.
TEST_F(TissueSolverTest, AccelerationDoesNotBlowUpStiffBodies) {
  for (const TissueEnergy energy : kAllEnergies) {
    for (const uint32_t iterations : {20U, 100U}) {
      if (iterations > 20 && energy != TissueEnergy::kStableNeoHookean) continue;
      double plain_m = 0;
      for (const double acceleration : {0.0, 0.9, 0.95, 0.99}) {
        SCOPED_TRACE(testing::Message() << Name(energy) << ", " << iterations << " sweeps, acceleration " << acceleration);
        TissueModel model =
            BoxModel({9, 3, 3}, {0.16, 0.04, 0.04}, {0, 0, 0}, {.young_modulus_pa = 2e6, .damping_s = 0.01, .energy = energy});
        for (uint32_t v = 0; v < model.fixed.size(); ++v) model.fixed[v] = model.rest_m[v][0] == 0;
        auto solver = Make(model, {.dt_s = 0.02, .iterations = iterations, .acceleration = acceleration});
        ASSERT_NE(solver, nullptr);
        double most_m = 0;
        for (int i = 0; i < 50; ++i) {
          PALPATE_TEST_ASSIGN(const TissueStep step, solver->Step({}));
          ASSERT_EQ(step.bad_vertices, 0U);
          const std::vector<Vector3d> x = Positions(*solver);
          for (size_t v = 0; v < x.size(); ++v) most_m = std::max(most_m, (x[v] - Rest(v)).norm());
        }
        if (acceleration == 0) plain_m = most_m;
        EXPECT_GT(most_m, 0.3 * plain_m);
        EXPECT_LT(most_m, 1.3 * plain_m);
      }
    }
  }
}

TEST_F(TissueSolverTest, AbsurdStatesAreRolledBackAndReported) {
  for (const TissueEnergy energy : kAllEnergies) {
    auto solver = Make(BoxModel({2, 2, 2}, {0.04, 0.04, 0.04}, {0, 0, 0}, {.damping_s = 0.01, .energy = energy}), {});
    ASSERT_NE(solver, nullptr);
    std::vector<Vector3d> rest;
    for (size_t v = 0; v < model_.rest_m.size(); ++v) rest.push_back(Rounded(Rest(v)));
    std::vector<Vector3d> velocity(rest.size(), Vector3d::Zero());
    for (const double bad : {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity(), 1e9, 1e30}) {
      SCOPED_TRACE(bad);
      velocity[13] = {bad, 0, 0};
      PALPATE_ASSERT_OK(solver->WriteState(Pack(rest), Pack(velocity)));
      PALPATE_TEST_ASSIGN(const TissueStep step, solver->Step({}));
      EXPECT_GT(step.bad_vertices, 0U);
      EXPECT_EQ(Positions(*solver), rest) << "the step was rolled back";
      // A good state afterwards must be simulated as if nothing had happened.
      PALPATE_ASSERT_OK(solver->WriteState(Pack(rest)));
      for (int i = 0; i < 3; ++i) {
        PALPATE_TEST_ASSIGN(const TissueStep good, solver->Step({}));
        EXPECT_EQ(good.bad_vertices, 0U);
        EXPECT_NEAR(good.max_speed_m_per_s, 9.81 / 120 * (i + 1), 1e-4);
      }
    }
  }
}

TEST_F(TissueSolverTest, ManyContactsAreAllReported) {
  // 31 x 31 vertices lie on the plane at once: more than the list holds at first.
  TissueModel model = BoxModel({30, 30, 1}, {0.3, 0.3, 0.01}, {0, 0, 0.0004}, {.damping_s = 0.02});
  for (uint32_t v = 31 * 31; v < model.fixed.size(); ++v) model.fixed[v] = 1;
  auto solver = Make(model, {.iterations = 6, .stiffness_n_per_m = 20}, {}, {{{0, 0, 1, 0}}});
  ASSERT_NE(solver, nullptr);
  size_t on_plane = 0;
  for (int i = 0; i < 3; ++i) {
    PALPATE_TEST_ASSIGN(const TissueStep step, solver->Step({}));
    on_plane = step.contacts.size();
    EXPECT_EQ(on_plane, 31U * 31U);
    uint32_t last = 0;
    Vector3d from_reports = Vector3d::Zero();
    for (const ContactReport& r : step.contacts) {
      EXPECT_EQ(r.collider, 0xffffffffU);
      EXPECT_LT(r.triangle, 31U * 31U) << "the vertices of the lowest layer, in the caller's order";
      from_reports += Vector3d(r.force.x, r.force.y, r.force.z);
      last = std::max(last, r.triangle);
    }
    EXPECT_EQ(last, 31U * 31U - 1);
    Vector3d from_vertices = Vector3d::Zero();
    for (const Vector3d& f : Forces(*solver, kContactForces)) from_vertices += f;
    EXPECT_LT((from_reports - from_vertices).norm(), 1e-4 * from_vertices.norm());
  }
}

TEST_F(TissueSolverTest, ContactForceCarriesTheWeight) {
  const double weight = 0.05 * 0.05 * 0.04 * 1000 * 9.81;
  const TestMaterial material{.young_modulus_pa = 8000, .damping_s = 0.02};
  const TissueOptions options{.iterations = 30, .friction = 0.5};
  {
    SCOPED_TRACE("on a plane");
    auto solver = Make(BoxModel({4, 4, 3}, {0.05, 0.05, 0.04}, {-0.025, -0.025, 0.001}, material), options, {}, {{{0, 0, 1, 0}}});
    ASSERT_NE(solver, nullptr);
    const Vector3d force = ContactForce(Settle(*solver, {}, 400));
    EXPECT_NEAR(force.z(), weight, 2e-3 * weight);
    EXPECT_LT(force.head<2>().norm(), 1e-3 * weight);
    Vector3d elastic = Vector3d::Zero();
    for (const Vector3d& f : Forces(*solver, kElasticForces)) elastic += f;
    EXPECT_LT(elastic.norm(), 1e-3 * weight) << "internal forces cancel";
    for (const Vector3d& x : Positions(*solver)) EXPECT_GT(x.z(), -1e-4);
  }
  {
    SCOPED_TRACE("on a large fixed sphere");
    const ColliderDescription sphere{.radius_m = 0.5, .tip_m = {0, 0, -0.5}};
    auto solver = Make(BoxModel({4, 4, 3}, {0.05, 0.05, 0.04}, {-0.025, -0.025, 0.001}, material), options, {sphere});
    ASSERT_NE(solver, nullptr);
    const Vector3d force = ContactForce(Settle(*solver, {TargetOf(sphere)}, 400));
    EXPECT_NEAR(force.z(), weight, 5e-3 * weight);
    EXPECT_LT(force.head<2>().norm(), 5e-3 * weight);
  }
}

/// Strain presses the bottom of a block on a floor, and something has lifted it off by the least. No sweep may then let it go as deep as
/// the strain takes it where there is no floor.
TEST_F(TissueSolverTest, APressedBlockThatIsLiftedOffStaysOnTheFloor) {
  constexpr double kHeight = 0.04;
  constexpr double kPressed = 0.9;
  constexpr double kLift = 5e-6;
  struct Case {
    uint32_t cells;
    double young_modulus_pa;
    bool is_displaced;
  };
  for (const auto& [cells, young_modulus_pa, is_displaced] : {Case{2, 3e3, false}, Case{4, 1e5, true}}) {
    for (const double acceleration : {0.0, 0.9}) {
      for (const uint32_t sweeps : {1U, 2U, 20U}) {
        SCOPED_TRACE(testing::Message() << cells << " cells, " << sweeps << " sweeps, acceleration " << acceleration);
        TissueModel model = BoxModel({cells, cells, cells}, {kHeight, kHeight, kHeight}, {0, 0, 0}, {.young_modulus_pa = young_modulus_pa});
        for (size_t v = 0; v < model.rest_m.size(); ++v) model.fixed[v] = model.rest_m[v][2] > 0.999 * kHeight ? kFixedVertex : kFreeVertex;
        const TissueOptions options{.gravity_m_per_s2 = {0, 0, 0}, .iterations = sweeps, .acceleration = acceleration};
        const double bottom_m = (1 - kPressed) * kHeight;
        auto solver = Make(model, options, {}, {{{0, 0, 1, static_cast<float>(bottom_m - options.margin_m)}}});
        ASSERT_NE(solver, nullptr);
        ASSERT_EQ(solver->layout().IsDisplaced(), is_displaced);
        std::vector<Vector3d> x;
        for (size_t v = 0; v < model.rest_m.size(); ++v) {
          x.push_back(Rest(v));
          x.back().z() = kHeight - (kPressed - kLift / kHeight) * (kHeight - x.back().z());
        }
        PALPATE_ASSERT_OK(solver->WriteState(Pack(x), Pack(std::vector<Vector3d>(x.size(), Vector3d::Zero()))));
        PALPATE_ASSERT_OK(solver->Step({}).status());
        double lowest_m = kHeight;
        for (const Vector3d& at : Positions(*solver)) lowest_m = std::min(lowest_m, at.z());
        EXPECT_GT(lowest_m, bottom_m - 0.2 * options.margin_m);
      }
    }
  }
}

TEST_F(TissueSolverTest, RailsAlongTheFacesCarryTheWeight) {
  // The nearest point of a rail and a flat face is not unique; the contact must settle all the same.
  const double weight = 0.05 * 0.05 * 0.04 * 1000 * 9.81;
  const TestMaterial material{.young_modulus_pa = 8000, .damping_s = 0.02};
  const TissueOptions options{.iterations = 30, .friction = 0.5};
  std::vector<ColliderDescription> rails;
  for (const double x : {-0.015, 0.015}) rails.push_back({.radius_m = 0.004, .tip_m = {x, -0.05, -0.004}, .axis_m = {0, 0.1, 0}});
  auto solver = Make(BoxModel({4, 4, 3}, {0.05, 0.05, 0.04}, {-0.025, -0.025, 0.001}, material), options, rails);
  ASSERT_NE(solver, nullptr);
  const Vector3d force = ContactForce(Settle(*solver, {TargetOf(rails[0]), TargetOf(rails[1])}, 800, 1e-3));
  EXPECT_NEAR(force.z(), weight, 0.02 * weight);
  EXPECT_LT(force.head<2>().norm(), 0.02 * weight);
}

TEST_F(TissueSolverTest, PressedToolFeelsWhatTheTissueFeels) {
  for (const double coupling : {0.0, 400.0}) {
    SCOPED_TRACE(testing::Message() << "coupling " << coupling << " N/m");
    TissueModel model = BoxModel({6, 6, 4}, {0.09, 0.09, 0.06}, {-0.045, -0.045, 0}, {.young_modulus_pa = 6000, .damping_s = 0.02});
    for (uint32_t v = 0; v < model.fixed.size(); ++v) model.fixed[v] = model.rest_m[v][2] == 0;
    ColliderDescription tool{.radius_m = 0.01, .tip_m = {0, 0, 0.075}, .axis_m = {0.02, 0, 0.06}};
    if (coupling > 0) {
      tool.coupling_n_per_m = coupling;
      tool.mass_kg = 0.05;
      tool.damping_n_s_per_m = 2 * std::sqrt(coupling * tool.mass_kg);
    }
    auto solver = Make(model, {.iterations = 40, .friction = 0.2}, {tool});
    ASSERT_NE(solver, nullptr);
    std::vector<ColliderTarget> targets{TargetOf(tool)};
    for (int i = 0; i < 30; ++i) {
      targets[0].tip_m[2] -= 0.0005;
      PALPATE_ASSERT_OK(solver->Step(targets).status());
    }
    const TissueStep step = Settle(*solver, targets, 300, 3e-4);
    const Vector3d on_tissue = ContactForce(step);
    EXPECT_LT(on_tissue.z(), -0.3) << "pressed down";

    Vector3d from_vertices = Vector3d::Zero();
    for (const Vector3d& f : Forces(*solver, kContactForces)) from_vertices += f;
    EXPECT_LT((from_vertices - on_tissue).norm(), 1e-4 * on_tissue.norm());

    // Statics of the free part: contact + weight + pull of the fixed part = 0; the fixed vertices feel the opposite of that pull.
    const std::vector<double> mass = Masses(*solver);
    const std::vector<Vector3d> elastic = Forces(*solver, kElasticForces);
    Vector3d pull = Vector3d::Zero();
    double free_mass = 0;
    for (size_t v = 0; v < mass.size(); ++v) {
      if (model.fixed[v]) {
        pull += elastic[v];
      } else {
        free_mass += mass[v];
      }
    }
    const Vector3d expected = on_tissue + free_mass * Vector3d(0, 0, -9.81);
    EXPECT_LT((pull - expected).norm(), 0.005 * expected.norm()) << pull.transpose() << " instead of " << expected.transpose();

    if (coupling > 0) {
      const Collider& c = step.colliders[0];
      const Vector3d spring = coupling * (Vector3d(c.device_tip.x, c.device_tip.y, c.device_tip.z) - Vector3d(c.tip.x, c.tip.y, c.tip.z));
      EXPECT_LT((spring - on_tissue).norm(), 0.005 * on_tissue.norm()) << spring.transpose() << " instead of " << on_tissue.transpose();
    } else {
      EXPECT_FLOAT_EQ(step.colliders[0].tip.z, static_cast<float>(targets[0].tip_m[2]));
    }
    for (const ContactReport& r : step.contacts) EXPECT_GT(r.gap_m, -0.001) << "no deeper than the margin";
  }
}

TEST_F(TissueSolverTest, FrictionHoldsUpToItsCoefficient) {
  // Gravity is tilted instead of the plane.
  constexpr double kFriction = 0.5;
  constexpr double kDt = 0.01;
  for (const double slope : {0.4, 0.6}) {
    SCOPED_TRACE(testing::Message() << "tan(theta) = " << slope);
    const double angle = std::atan(slope);
    auto solver = Make(
        BoxModel({3, 3, 1}, {0.04, 0.04, 0.01}, {0, 0, 0.0008}, {.young_modulus_pa = 5000, .damping_s = 0.01}),
        {.dt_s = kDt, .gravity_m_per_s2 = {9.81 * std::sin(angle), 0, -9.81 * std::cos(angle)}, .iterations = 150, .friction = kFriction},
        {}, {{{0, 0, 1, 0}}});
    ASSERT_NE(solver, nullptr);
    const std::vector<double> mass = Masses(*solver);
    const auto center = [&] {
      const std::vector<Vector3d> x = Positions(*solver);
      double sum = 0, total = 0;
      for (size_t v = 0; v < x.size(); ++v) {
        sum += mass[v] * x[v].x();
        total += mass[v];
      }
      return sum / total;
    };
    for (int i = 0; i < 30; ++i) PALPATE_ASSERT_OK(solver->Step({}).status());
    const double x0 = center();
    PALPATE_ASSERT_OK(solver->Step({}).status());
    const double v0 = (center() - x0) / kDt;
    for (int i = 0; i < 29; ++i) PALPATE_ASSERT_OK(solver->Step({}).status());
    const double x1 = center();
    PALPATE_TEST_ASSIGN(const TissueStep step, solver->Step({}));
    const double v1 = (center() - x1) / kDt;
    Vector3d force = ContactForce(step);
    if (slope < kFriction) {
      // Friction is viscous below 1 mm/s: the cube creeps with that share of it that balances the pull.
      EXPECT_LT(std::abs(v1), 0.001);
      EXPECT_NEAR(force.x() / force.z(), -slope, 0.02);
    } else {
      const double expected = 9.81 * (std::sin(angle) - kFriction * std::cos(angle));
      EXPECT_NEAR((v1 - v0) / 0.3, expected, 0.05 * 9.81 * std::cos(angle) * kFriction);
      EXPECT_NEAR(force.x() / force.z(), -kFriction, 0.01);
    }
  }
}

/// Distance from the axis p + s d, s in [0, 1], to a point.
double DistanceToAxis(const Vector3d& x, const Vector3d& p, const Vector3d& d) {
  const double s = std::clamp((x - p).dot(d) / std::max(d.squaredNorm(), 1e-300), 0.0, 1.0);
  return (x - p - s * d).norm();
}

/// Whether the axis passes through a surface triangle.
bool AxisCrossesSurface(const TissueModel& model, const std::vector<Vector3d>& x, const Vector3d& p, const Vector3d& d) {
  for (const auto& t : model.surface_triangles) {
    const Vector3d &a = x[t[0]], &b = x[t[1]], &c = x[t[2]];
    const Vector3d n = (b - a).cross(c - a);
    const double h0 = n.dot(p - a), h1 = n.dot(p + d - a);
    if (h0 * h1 > 0 || h0 == h1) continue;
    const Vector3d q = p + h0 / (h0 - h1) * d;
    if (n.dot((b - a).cross(q - a)) >= 0 && n.dot((c - b).cross(q - b)) >= 0 && n.dot((a - c).cross(q - c)) >= 0) return true;
  }
  return false;
}

TEST_F(TissueSolverTest, FastToolDoesNotJumpThroughASlab) {
  constexpr double kMargin = 0.001;
  struct Sweep {
    const char* name;
    ColliderDescription tool;
    Vector3d motion;
  };
  for (const double radius : {0.002, 0.005}) {
    for (const Sweep& sweep : std::vector<Sweep>{
             {"lying across", {.radius_m = radius, .tip_m = {-0.08, 0.003, 0.02}, .axis_m = {0.16, 0, 0}}, {0, 0, -0.05}},
             {"tip first", {.radius_m = radius, .tip_m = {0.004, 0.003, 0.02}, .axis_m = {0, 0, 0.08}}, {0, 0, -0.05}},
             {"from below", {.radius_m = radius, .tip_m = {0.004, 0.003, -0.02}, .axis_m = {0.02, 0, -0.08}}, {0, 0, 0.05}}}) {
      SCOPED_TRACE(testing::Message() << sweep.name << ", radius " << radius << " m");
      // 6 mm thick, held at its rim.
      TissueModel model = BoxModel({12, 12, 1}, {0.12, 0.12, 0.006}, {-0.06, -0.06, -0.003}, {.young_modulus_pa = 5000, .damping_s = 0.01});
      for (uint32_t v = 0; v < model.fixed.size(); ++v) {
        model.fixed[v] = std::max(std::abs(model.rest_m[v][0]), std::abs(model.rest_m[v][1])) > 0.0599 && sweep.tool.axis_m[0] < 0.1;
        // A tool that lies across touches the rim too, so only the two sides along it are held.
        if (sweep.tool.axis_m[0] > 0.1) model.fixed[v] = std::abs(model.rest_m[v][1]) > 0.0599;
      }
      auto solver = Make(model, {.gravity_m_per_s2 = {0, 0, 0}, .iterations = 30, .acceleration = 0.9, .margin_m = kMargin}, {sweep.tool});
      ASSERT_NE(solver, nullptr);
      std::vector<ColliderTarget> targets{TargetOf(sweep.tool)};
      PALPATE_ASSERT_OK(solver->Step(targets).status());
      for (int axis = 0; axis < 3; ++axis) targets[0].tip_m[axis] += sweep.motion[axis];
      PALPATE_ASSERT_OK(solver->Step(targets).status());
      const Vector3d p(targets[0].tip_m[0], targets[0].tip_m[1], targets[0].tip_m[2]);
      const Vector3d d(targets[0].axis_m[0], targets[0].axis_m[1], targets[0].axis_m[2]);
      for (int i = 0; i < 60; ++i) PALPATE_ASSERT_OK(solver->Step(targets).status());
      PALPATE_TEST_ASSIGN(const TissueStep step, solver->Step(targets));
      const std::vector<Vector3d> x = Positions(*solver);
      EXPECT_GT(std::abs(ContactForce(step).z()), 0.01) << "the slab holds the tool up";
      EXPECT_FALSE(AxisCrossesSurface(model, x, p, d)) << "the slab stayed on its side";
      for (const Vector3d& v : x) EXPECT_GT(DistanceToAxis(v, p, d), radius - kMargin);
      double deflection = 0;
      for (size_t v = 0; v < x.size(); ++v) deflection = std::max(deflection, (x[v].z() - Rest(v).z()) * (sweep.motion.z() > 0 ? 1 : -1));
      EXPECT_GT(deflection, 0.02) << "it was carried along";

      // Pulled back as fast, the slab is free again.
      PALPATE_ASSERT_OK(solver->Step(std::vector<ColliderTarget>{TargetOf(sweep.tool)}).status());
      for (int i = 0; i < 300; ++i) PALPATE_ASSERT_OK(solver->Step(std::vector<ColliderTarget>{TargetOf(sweep.tool)}).status());
      const std::vector<Vector3d> after = Positions(*solver);
      double worst = 0;
      for (size_t v = 0; v < after.size(); ++v) worst = std::max(worst, (after[v] - Rest(v)).norm());
      EXPECT_LT(worst, 0.001);
    }
  }
}

TEST_F(TissueSolverTest, ElasticForcesMatchADirectSum) {
  // Single-tet forces on a random deformation, summed on the host in double precision.
  {
    TissueModel model = BoxModel({2, 2, 2}, {0.1, 0.1, 0.1}, {0, 0, 0}, {.young_modulus_pa = 5000, .poisson_ratio = 0.4});
    for (size_t t = 0; t < model.tets.size(); ++t) MixEnergies(t, &model.tets[t]);
    auto solver = Make(model, {});
    ASSERT_NE(solver, nullptr);
    std::mt19937_64 random(7);
    std::uniform_real_distribution<double> jitter(-0.01, 0.01);
    std::vector<Vector3d> x;
    for (size_t v = 0; v < model_.rest_m.size(); ++v)
      x.push_back(Rounded(Rest(v) + Vector3d(jitter(random), jitter(random), jitter(random))));
    PALPATE_ASSERT_OK(solver->WriteState(Pack(x)));
    const std::vector<Vector3d> forces = Forces(*solver, kElasticForces);
    std::vector<Vector3d> expected(x.size(), Vector3d::Zero());
    for (const TissueTet& tet : model_.tets) {
      Eigen::Matrix3d rest, now;
      for (int k = 0; k < 3; ++k) {
        rest.col(k) = Rest(tet.vertices[k + 1]) - Rest(tet.vertices[0]);
        now.col(k) = x[tet.vertices[k + 1]] - x[tet.vertices[0]];
      }
      const Eigen::Matrix3d f = now * rest.inverse();
      Eigen::Matrix3d h;
      if (tet.energy == TissueEnergy::kMassSpring) {
        h.setZero();
        for (int i = 0; i < 4; ++i) {
          for (int k = i + 1; k < 4; ++k) {
            const Vector3d edge = Rest(tet.vertices[k]) - Rest(tet.vertices[i]);
            const Vector3d d = x[tet.vertices[k]] - x[tet.vertices[i]];
            const double stiffness = 2.5 * tet.mu_pa * rest.determinant() / 6 / edge.squaredNorm();
            const Vector3d pull = stiffness * (d.norm() - edge.norm()) * d.normalized();
            expected[tet.vertices[i]] += pull;
            expected[tet.vertices[k]] -= pull;
          }
        }
        continue;
      }
      h = -rest.determinant() / 6 * FirstStress(tet, f) * rest.inverse().transpose();
      for (int k = 0; k < 3; ++k) {
        expected[tet.vertices[k + 1]] += h.col(k);
        expected[tet.vertices[0]] -= h.col(k);
      }
    }
    for (size_t v = 0; v < x.size(); ++v) EXPECT_LT((forces[v] - expected[v]).norm(), 1e-4 + 1e-4 * expected[v].norm()) << "vertex " << v;
  }
}

TEST_F(TissueSolverTest, RefusesBadCallsAndGivesMemoryBack) {
  const BusyScene scene;
  const size_t before = context()->allocated_bytes();
  auto solver = Make(scene.model, scene.options, scene.colliders, scene.planes);
  ASSERT_NE(solver, nullptr);
  const size_t bytes = solver->device_bytes();
  EXPECT_GT(bytes, scene.model.rest_m.size() * sizeof(Float4) * 5);
  EXPECT_LE(bytes, context()->allocated_bytes() - before);
  const std::vector<uint32_t> some{3, 0, 17};
  for (int i = 0; i < 3; ++i) PALPATE_ASSERT_OK(solver->SetGathered(some));
  const size_t gathered = solver->device_bytes();
  PALPATE_ASSERT_OK(solver->SetGathered(some));
  EXPECT_EQ(solver->device_bytes(), gathered);
  PALPATE_TEST_ASSIGN(const TissueStep step, solver->Inspect());
  ASSERT_EQ(step.gathered_m.size(), 9U);
  for (size_t i = 0; i < some.size(); ++i) {
    for (size_t axis = 0; axis < 3; ++axis) EXPECT_EQ(step.gathered_m[3 * i + axis], static_cast<float>(scene.model.rest_m[some[i]][axis]));
  }
  EXPECT_EQ(step.bad_vertices, 0U);

  EXPECT_EQ(solver->Step({}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(solver->Step({}).status().message()), HasSubstr("0 collider targets for 2 colliders"));
  const std::vector<uint32_t> outside{static_cast<uint32_t>(scene.model.rest_m.size())};
  EXPECT_EQ(solver->SetGathered(outside).code(), absl::StatusCode::kInvalidArgument);
  std::vector<float> short_buffer(5);
  EXPECT_EQ(solver->ReadPositions(short_buffer).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(solver->ReadForces(kAllForces, short_buffer).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(solver->WriteState(short_buffer).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(TissueSolver::Create(context(), scene.model, scene.options, std::vector<ColliderDescription>(33), {}, {}).status().code(),
            absl::StatusCode::kInvalidArgument);
  TissueModel bad = scene.model;
  bad.tets[0].vertices[0] = 0xffffffffU;
  EXPECT_EQ(TissueSolver::Create(context(), bad, scene.options, {}, {}, {}).status().code(), absl::StatusCode::kInvalidArgument);
  solver.reset();
  EXPECT_EQ(context()->allocated_bytes(), before);
}

}  // namespace
}  // namespace palpate::gpu::tissue_solver_test
