// Shells in the solver: its energy and forces, and sheets and strips against plates, beams and cables.
#include <gmock/gmock.h>

#include <Eigen/Dense>
#include <cmath>
#include <numbers>
#include <random>
#include <string>
#include <vector>

#include "gpu/dynamics/tissue_solver.h"
#include "tests/gpu/dynamics/shell_models.h"
#include "tests/support/device_test.h"

namespace palpate::gpu::shell_solver_test {
namespace {

using Eigen::Vector3d;

class ShellSolverTest : public test::DeviceTest {
 protected:
  std::unique_ptr<TissueSolver> Make(const TissueModel& model, const TissueOptions& options) {
    auto solver = TissueSolver::Create(context(), model, options, {}, {}, TissueTuning::For(context()->device()));
    EXPECT_TRUE(solver.ok()) << solver.status();
    return solver.ok() ? *std::move(solver) : nullptr;
  }
  static std::vector<float> Positions(TissueSolver& solver, size_t vertices) {
    std::vector<float> flat(3 * vertices);
    PALPATE_EXPECT_OK(solver.ReadPositions(flat));
    return flat;
  }
  /// Steps until the fastest vertex is slower than a limit, at most `steps`.
  void Settle(TissueSolver& solver, int steps, double speed_m_per_s) {
    for (int i = 0; i < steps; ++i) {
      const auto step = solver.Step({});
      ASSERT_TRUE(step.ok()) << step.status();
      if (i > 50 && step->max_speed_m_per_s < speed_m_per_s) return;
    }
    ADD_FAILURE() << "still moves after " << steps << " steps";
  }

  /// Three sheets side by side with every term there is, turned and crumpled.
  static TissueModel Sheets(double damping_s = 0) {
    TissueModel model;
    AddSheet(&model, 3, 4, {0.06, 0.05}, {0, 0, 0}, {.weft_ratio = 0.4, .damping_s = damping_s, .strain_limit = 0.02});
    AddSheet(&model, 3, 4, {0.06, 0.05}, {0.1, 0, 0},
             {.damping_s = damping_s, .membrane = ShellMembrane::kStableNeoHookean, .bending = ShellBending::kQuadratic});
    AddSheet(&model, 3, 4, {0.06, 0.05}, {0.2, 0, 0}, {.membrane = ShellMembrane::kStableNeoHookean, .bending = ShellBending::kNone});
    return model;
  }
};

TEST_F(ShellSolverTest, ForcesAreMinusTheGradientOfTheReportedEnergy) {
  const TissueModel model = Sheets();
  std::mt19937_64 random(3);
  std::uniform_real_distribution<double> uniform(-1, 1);
  const Eigen::Matrix3d turn = Eigen::AngleAxisd(1.1, Vector3d(1, 2, -1).normalized()).toRotationMatrix();
  std::vector<float> x;
  for (const auto& r : model.rest_m) {
    const Vector3d at = turn * Vector3d(r[0], r[1], r[2]) + 0.004 * Vector3d(uniform(random), uniform(random), uniform(random));
    for (int axis = 0; axis < 3; ++axis) x.push_back(static_cast<float>(at[axis]));
  }
  {
    auto solver = Make(model, {.gravity_m_per_s2 = {0, 0, 0}, .report_energy = true});
    ASSERT_NE(solver, nullptr);
    const auto energy_at = [&](const std::vector<float>& at) {
      PALPATE_EXPECT_OK(solver->WriteState(at));
      const auto step = solver->Inspect();
      EXPECT_TRUE(step.ok()) << step.status();
      return step.ok() ? step->elastic_energy_j.value_or(0) : 0;
    };
    EXPECT_GT(energy_at(x), 1e-4);
    std::vector<float> forces(x.size());
    PALPATE_ASSERT_OK(solver->ReadForces(kElasticForces, forces));
    double largest = 0;
    for (const float f : forces) largest = std::max(largest, static_cast<double>(std::abs(f)));
    for (size_t v = 0; v < model.rest_m.size(); ++v) {
      for (size_t axis = 0; axis < 3; ++axis) {
        constexpr float kStep = 2e-5F;
        std::vector<float> moved = x;
        moved[3 * v + axis] = x[3 * v + axis] + kStep;
        const double plus = energy_at(moved);
        const double up = moved[3 * v + axis];
        moved[3 * v + axis] = x[3 * v + axis] - kStep;
        const double minus = energy_at(moved);
        const double gradient = (plus - minus) / (up - static_cast<double>(moved[3 * v + axis]));
        ASSERT_NEAR(forces[3 * v + axis], -gradient, 2e-3 * largest) << "vertex " << v << ", axis " << axis;
      }
    }
  }
}

/// m^3, within the surface of a model of one body.
double EnclosedVolume(const TissueModel& model, const std::vector<float>& x) {
  double sum = 0;
  for (const auto& triangle : model.surface_triangles) {
    std::array<Vector3d, 3> at;
    for (size_t c = 0; c < 3; ++c) at[c] = Vector3d(x[3 * triangle[c]], x[3 * triangle[c] + 1], x[3 * triangle[c] + 2]);
    sum += at[0].dot(at[1].cross(at[2])) / 6;
  }
  return sum;
}

std::vector<float> RestOf(const TissueModel& model) {
  std::vector<float> x;
  for (const auto& r : model.rest_m) {
    for (const double coordinate : r) x.push_back(static_cast<float>(coordinate));
  }
  return x;
}

TEST_F(ShellSolverTest, PressureOfAFillingIsTheGradientOfItsEnergy) {
  constexpr double kStiffness_pa = 3e5;
  TissueModel model;
  AddBall(&model, 3, 0.03, {.young_modulus_pa = 1e4, .membrane = ShellMembrane::kStableNeoHookean});
  model.self_collision = {0};
  model.fixed[0] = kFixedVertex;  // what a support bears counts, too
  std::mt19937_64 random(4);
  std::uniform_real_distribution<float> shift(-0.002F, 0.002F);
  std::vector<float> x = RestOf(model);
  for (float& coordinate : x) coordinate = 1.03F * coordinate + shift(random);
  std::vector<std::vector<float>> forces;
  for (const double k : {0.0, kStiffness_pa}) {
    model.volume_stiffness_pa = {k};
    auto solver = Make(model, {});
    ASSERT_NE(solver, nullptr);
    PALPATE_ASSERT_OK(solver->WriteState(x));
    PALPATE_ASSERT_OK(solver->ReadForces(kElasticForces, forces.emplace_back(x.size())));
  }
  const double rest_m3 = EnclosedVolume(model, RestOf(model));
  const auto energy = [&](const std::vector<float>& at) {
    const double excess_m3 = EnclosedVolume(model, at) - rest_m3;
    return kStiffness_pa * excess_m3 * excess_m3 / (2 * rest_m3);
  };
  EXPECT_GT(std::abs(EnclosedVolume(model, x) / rest_m3 - 1), 0.01);
  double largest = 0, error = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    std::vector<float> moved = x;
    moved[i] = x[i] + 1e-5F;
    const double above = energy(moved), up = moved[i];
    moved[i] = x[i] - 1e-5F;
    const double gradient = (above - energy(moved)) / (up - moved[i]);
    largest = std::max(largest, std::abs(gradient));
    error = std::max(error, std::abs(forces[1][i] - forces[0][i] + gradient));
  }
  EXPECT_GT(largest, 0.1);
  EXPECT_LT(error, 1e-4 * largest);
}

// A light ball that is thrown flat, with a filling far stiffer than its membrane: it rings, and comes to rest.
TEST_F(ShellSolverTest, AStiffFillingIsStableAndItsVolumeIsKept) {
  for (const uint32_t iterations : {5U, 20U}) {
    SCOPED_TRACE(iterations);
    TissueModel model;
    AddBall(&model, 8, 0.03,
            {.young_modulus_pa = 2e5, .thickness_m = 0.0005, .damping_s = 0.002, .membrane = ShellMembrane::kStableNeoHookean});
    model.self_collision = {0};
    model.volume_stiffness_pa = {1e7};
    auto solver = Make(model, {.dt_s = 1.0 / 120, .gravity_m_per_s2 = {0, 0, 0}, .iterations = iterations});
    ASSERT_NE(solver, nullptr);
    const double rest_m3 = EnclosedVolume(model, RestOf(model));
    std::vector<float> x = RestOf(model);
    for (size_t v = 0; 3 * v < x.size(); ++v) x[3 * v + 2] *= 0.9F;
    PALPATE_ASSERT_OK(solver->WriteState(x));
    double peak_j = 0, last_j = 0;
    for (int n = 0; n < 150; ++n) {
      PALPATE_TEST_ASSIGN(const auto step, solver->Step({}));
      ASSERT_EQ(step.bad_vertices, 0U) << n;
      peak_j = std::max(peak_j, step.kinetic_energy_j);
      last_j = step.kinetic_energy_j;
    }
    const std::vector<float> now = Positions(*solver, model.rest_m.size());
    EXPECT_NEAR(EnclosedVolume(model, now) / rest_m3, 1, 3e-4);
    EXPECT_LT(last_j, 0.05 * peak_j);
    std::array<float, 3> low = {1, 1, 1}, high = {-1, -1, -1};
    for (size_t i = 0; i < now.size(); ++i) {
      low[i % 3] = std::min(low[i % 3], now[i]);
      high[i % 3] = std::max(high[i % 3], now[i]);
    }
    for (size_t k = 0; k < 3; ++k) EXPECT_NEAR(high[k] - low[k], 0.06, 0.001) << "it is round again, axis " << k;
  }
}

TEST_F(ShellSolverTest, TheSameCallsGiveTheSameBitsAndRestIsRest) {
  const TissueModel model = Sheets(0.01);
  const TissueOptions options{.gravity_m_per_s2 = {0, 0, 0}, .iterations = 8, .report_energy = true};
  auto solver = Make(model, options);
  ASSERT_NE(solver, nullptr);
  PALPATE_TEST_ASSIGN(const TissueStep rest, solver->Step({}));
  EXPECT_LT(rest.max_speed_m_per_s, 1e-5);
  EXPECT_LT(std::abs(rest.elastic_energy_j.value_or(1)), 1e-9);
  std::vector<float> x;
  for (const auto& r : model.rest_m) {
    for (size_t axis = 0; axis < 3; ++axis) x.push_back(static_cast<float>(r[axis] * (axis == 0 ? 1.1 : 0.95) + 0.01 * r[0] * r[1]));
  }
  std::vector<uint64_t> hashes;
  for (int round = 0; round < 2; ++round) {
    PALPATE_ASSERT_OK(solver->Reset());
    PALPATE_ASSERT_OK(solver->WriteState(x));
    double before = 1e9;
    for (int i = 0; i < 4; ++i) {
      PALPATE_TEST_ASSIGN(const TissueStep step, solver->Step({}));
      hashes.push_back(step.hash);
      const double now = step.kinetic_energy_j + step.elastic_energy_j.value_or(0);
      EXPECT_LT(now, before) << "nothing gives it energy";
      before = now;
    }
  }
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(hashes[i], hashes[i + 4]);
}

/// Where the end of a horizontal beam is that hangs by its own weight: x, z over the length. load = weight per length times length^3 over
/// the bending stiffness. theta'' = -load (1 - s) cos theta by shooting (classical Runge-Kutta, bisection).
std::pair<double, double> ElasticaEnd(double load) {
  const auto shoot = [&](double slope, double* x, double* z) {
    constexpr int kSteps = 400;
    constexpr double h = 1.0 / kSteps;
    std::array<double, 4> y = {0, slope, 0, 0};  // angle below horizontal, curvature, x, z
    const auto rate = [&](double s, const std::array<double, 4>& at) {
      return std::array<double, 4>{at[1], -load * (1 - s) * std::cos(at[0]), std::cos(at[0]), -std::sin(at[0])};
    };
    for (int i = 0; i < kSteps; ++i) {
      const double s = i * h;
      const auto ahead = [&](const std::array<double, 4>& k, double by) {
        std::array<double, 4> out = y;
        for (size_t c = 0; c < 4; ++c) out[c] += by * k[c];
        return out;
      };
      const auto k1 = rate(s, y);
      const auto k2 = rate(s + h / 2, ahead(k1, h / 2));
      const auto k3 = rate(s + h / 2, ahead(k2, h / 2));
      const auto k4 = rate(s + h, ahead(k3, h));
      for (size_t c = 0; c < 4; ++c) y[c] += h / 6 * (k1[c] + 2 * k2[c] + 2 * k3[c] + k4[c]);
    }
    *x = y[2];
    *z = y[3];
    return y[1];
  };
  double low = 0;
  double high = load;
  double x = 0;
  double z = 0;
  for (int i = 0; i < 60; ++i) {
    const double middle = (low + high) / 2;
    (shoot(middle, &x, &z) > 0 ? high : low) = middle;
  }
  return {x, z};
}

TEST_F(ShellSolverTest, ACantileverBendsAsTheElasticaAndRefinementConverges) {
  EXPECT_NEAR(ElasticaEnd(0.1).second, -0.1 / 8, 1e-5) << "small loads bend as a linear beam";
  // With a Poisson's ratio of 1/3 the plate's stiffness, and what hinges make of it in a narrow strip, give E h^3 / 12 per width.
  constexpr double kLoad = 3;
  constexpr double kLength_m = 0.1;
  const TestShell shell{.young_modulus_pa = 1e5, .poisson_ratio = 1.0 / 3, .thickness_m = 0.003, .mass_damping_per_s = 5};
  const double stiffness_n_m = shell.young_modulus_pa * std::pow(shell.thickness_m, 3) / 12;
  const double g = kLoad * stiffness_n_m / (shell.density_kg_per_m3 * shell.thickness_m * std::pow(kLength_m, 3));
  const auto [x_end, z_end] = ElasticaEnd(kLoad);
  for (const ShellBending bending : {ShellBending::kDiscreteShells, ShellBending::kQuadratic}) {
    double coarse_error = 0;
    for (const uint32_t columns : {6U, 12U}) {
      TestShell strip = shell;
      strip.bending = bending;
      TissueModel model;
      const uint32_t rows = columns / 3;
      // One cell behind the clamp.
      const double cell_m = kLength_m / columns;
      AddSheet(&model, columns + 1, rows, {kLength_m + cell_m, rows * cell_m * std::sqrt(3) / 2}, {-cell_m, 0, 0}, strip);
      std::vector<uint32_t> end;
      for (uint32_t v = 0; v < model.rest_m.size(); ++v) {
        if (model.rest_m[v][0] < 1e-9) model.fixed[v] = kFixedVertex;
        if (model.rest_m[v][0] > kLength_m - 1e-9) end.push_back(v);
      }
      auto solver = Make(model, {.dt_s = 0.02, .gravity_m_per_s2 = {0, 0, -g}, .iterations = 40});
      ASSERT_NE(solver, nullptr);
      Settle(*solver, 250, 2e-4);
      const std::vector<float> x = Positions(*solver, model.rest_m.size());
      Vector3d mean = Vector3d::Zero();
      for (const uint32_t v : end) mean += Vector3d(x[3 * v], x[3 * v + 1], x[3 * v + 2]) / static_cast<double>(end.size());
      const double error = std::hypot(mean.x() / kLength_m - x_end, mean.z() / kLength_m - z_end);
      EXPECT_LT(error, columns == 6 ? 0.08 : 0.03)
          << columns << " cells: (" << mean.x() / kLength_m << ", " << mean.z() / kLength_m << ") for (" << x_end << ", " << z_end << ")";
      if (columns == 6)
        coarse_error = error;
      else
        EXPECT_LT(error, coarse_error) << "refinement must converge";
    }
  }
}

TEST_F(ShellSolverTest, AHangingSheetIsACatenary) {
  constexpr double kLength_m = 0.1;
  constexpr double kSpan_m = 0.08;
  double a = kSpan_m;  // 2 a sinh(span / 2 a) = length
  for (double low = 0.005, high = 1; high - low > 1e-9;) {
    a = (low + high) / 2;
    (2 * a * std::sinh(kSpan_m / (2 * a)) > kLength_m ? low : high) = a;
  }
  TissueModel model;
  AddSheet(&model, 14, 2, {kLength_m, 0.012}, {-kLength_m / 2, 0, 0},
           {.young_modulus_pa = 4e5, .mass_damping_per_s = 25, .bending = ShellBending::kNone});
  std::vector<float> x;
  for (size_t v = 0; v < model.rest_m.size(); ++v) {
    const double s = 2 * model.rest_m[v][0] / kLength_m;
    if (std::abs(s) > 1 - 1e-9) model.fixed[v] = kFixedVertex;
    for (const double value : {s * kSpan_m / 2, model.rest_m[v][1], -0.02 * (1 - s * s)}) x.push_back(static_cast<float>(value));
  }
  auto solver = Make(model, {.dt_s = 0.01, .iterations = 40});
  ASSERT_NE(solver, nullptr);
  PALPATE_ASSERT_OK(solver->WriteState(x));
  Settle(*solver, 150, 1e-3);
  x = Positions(*solver, model.rest_m.size());
  for (size_t v = 0; v < model.rest_m.size(); ++v) {
    const double z = a * (std::cosh(x[3 * v] / a) - std::cosh(kSpan_m / (2 * a)));
    EXPECT_NEAR(x[3 * v + 2], z, 0.01 * kLength_m) << "at x = " << x[3 * v];
  }
}

TEST_F(ShellSolverTest, AStripBucklesFromEulersLoadOn) {
  constexpr double kLength_m = 0.1;
  const TestShell shell{.young_modulus_pa = 1e5, .poisson_ratio = 1.0 / 3, .thickness_m = 0.003, .mass_damping_per_s = 4};
  constexpr double kWidth_m = 0.0173;
  // Pinned ends, a narrow strip as in the cantilever.
  const double critical_n = std::numbers::pi * std::numbers::pi * shell.young_modulus_pa * std::pow(shell.thickness_m, 3) / 12 /
                            (kLength_m * kLength_m) * kWidth_m;
  for (const double share : {0.8, 1.2}) {
    TissueModel model;
    AddSheet(&model, 10, 2, {kLength_m, kWidth_m}, {0, 0, 0}, shell);
    TissueLoad load;
    load.force_n = {-share * critical_n, 0, 0};
    load.duration_s = 1e9;
    std::vector<float> x;
    double start = 0;
    for (uint32_t v = 0; v < model.rest_m.size(); ++v) {
      const double place = model.rest_m[v][0];
      model.held_axes.push_back(0);
      if (place < 1e-9) model.fixed[v] = kFixedVertex;
      if (place > kLength_m - 1e-9) {
        model.held_axes[v] = 6;
        load.vertices.push_back(v);
      }
      const double z = place < 1e-9 || place > kLength_m - 1e-9 ? 0 : 0.001 * std::sin(std::numbers::pi * place / kLength_m);
      start = std::max(start, z);
      for (const double value : {place, model.rest_m[v][1], z}) x.push_back(static_cast<float>(value));
    }
    model.loads = {load};
    auto solver = Make(model, {.dt_s = 0.02, .gravity_m_per_s2 = {0, 0, 0}, .iterations = 40});
    ASSERT_NE(solver, nullptr);
    PALPATE_ASSERT_OK(solver->WriteState(x));
    for (int i = 0; i < 100; ++i) PALPATE_ASSERT_OK(solver->Step({}).status());
    x = Positions(*solver, model.rest_m.size());
    double end = 0;
    for (size_t v = 0; v < model.rest_m.size(); ++v) end = std::max(end, static_cast<double>(x[3 * v + 2]));
    if (share < 1) {
      EXPECT_LT(end, 0.6 * start) << "it straightens";
    } else {
      EXPECT_GT(end, 2 * start) << "it gives way";
    }
  }
}

TEST_F(ShellSolverTest, BeyondItsLimitASheetHardlyStretches) {
  constexpr double kLength_m = 0.06;
  constexpr double kWidth_m = 0.03;
  for (const double limit : {0.0, 0.05}) {
    const TestShell shell{.poisson_ratio = 0, .damping_s = 0.2, .strain_limit = limit, .bending = ShellBending::kNone};
    const double pull = 0.3 * shell.young_modulus_pa;  // force over width and thickness
    TissueModel model;
    AddSheet(&model, 6, 4, {kLength_m, kWidth_m}, {0, 0, 0}, shell);
    TissueLoad load;
    load.force_n = {pull * shell.thickness_m * kWidth_m, 0, 0};
    load.duration_s = 1e9;
    for (uint32_t v = 0; v < model.rest_m.size(); ++v) {
      if (model.rest_m[v][0] < 1e-9) model.fixed[v] = kFixedVertex;
      if (model.rest_m[v][0] > kLength_m - 1e-9) load.vertices.push_back(v);
    }
    model.loads = {load};
    auto solver = Make(model, {.dt_s = 0.02, .gravity_m_per_s2 = {0, 0, 0}, .iterations = 20});
    ASSERT_NE(solver, nullptr);
    Settle(*solver, 120, 1e-4);
    const std::vector<float> x = Positions(*solver, model.rest_m.size());
    double stretch = 0;
    for (const uint32_t v : load.vertices) stretch += x[3 * v] / kLength_m / static_cast<double>(load.vertices.size());
    // lambda (E e + 20 E max(e - l, 0)) = pull with the Green strains e of the stretch and l of the limit.
    double low = 1;
    double high = 2;
    const auto green = [](double lambda) { return (lambda * lambda - 1) / 2; };
    for (int i = 0; i < 60; ++i) {
      const double lambda = (low + high) / 2;
      const double beyond = limit > 0 ? std::max(green(lambda) - green(1 + limit), 0.0) : 0.0;
      (lambda * (green(lambda) + 20 * beyond) > 0.3 ? high : low) = lambda;
    }
    EXPECT_NEAR(stretch - 1, low - 1, 0.06 * (low - 1)) << "limit " << limit;
  }
}

TEST(ShellLayout, DefectsAreNamed) {
  TissueModel model;
  AddSheet(&model, 2, 2, {0.02, 0.02}, {0, 0, 0}, {});
  const auto refuse = [&](const auto& change, const std::string& text) {
    TissueModel changed = model;
    change(changed);
    const auto layout = LayOutTissue(changed, 0.01, 4);
    ASSERT_FALSE(layout.ok()) << text;
    EXPECT_THAT(std::string(layout.status().message()), testing::HasSubstr(text));
  };
  ASSERT_TRUE(LayOutTissue(model, 0.01, 4).ok());
  refuse([](TissueModel& m) { m.shells[0].vertices[1] = 99; }, "shell triangle 0: vertex 99 is outside");
  refuse([](TissueModel& m) { m.shells[0].thickness_m = 0; }, "shell triangle 0: thickness 0 m");
  refuse([](TissueModel& m) { m.shells[1].moduli_pa[1] = 1e9F; }, "shell triangle 1: its moduli");
  refuse([](TissueModel& m) { m.shells[1].warp = {0, 0, 1}; }, "shell triangle 1: the warp is along its normal");
  refuse([](TissueModel& m) { m.rest_m[m.shells[2].vertices[0]] = m.rest_m[m.shells[2].vertices[1]]; }, "is not positive");
  refuse([](TissueModel& m) { std::swap(m.shells[0].vertices[0], m.shells[0].vertices[1]); }, "in the same direction");
  refuse([](TissueModel& m) { m.shells.push_back(m.shells[0]); }, "in the same direction");
  refuse(
      [](TissueModel& m) {
        m.rest_m[0][2] = 0.005;
        for (ShellTriangle& t : m.shells) t.bending = ShellBending::kQuadratic;
      },
      "quadratic bending needs a surface that is flat at rest");
}

TEST(ShellLayout, NoColourHoldsTwoVerticesOfAHinge) {
  TissueModel model;
  AddSheet(&model, 7, 6, {0.07, 0.05}, {0, 0, 0}, {});
  const auto layout = LayOutTissue(model, 0.01, 8);
  ASSERT_TRUE(layout.ok()) << layout.status();
  const auto hinges = FindHinges(model.shells, model.rest_m.size());
  ASSERT_TRUE(hinges.ok()) << hinges.status();
  const auto color_of = [&](uint32_t v) {
    const uint32_t slot = ToNumber(layout->solver_index[v]);
    return std::upper_bound(layout->color_begin.begin(), layout->color_begin.end(), slot) - layout->color_begin.begin();
  };
  for (const ShellHinge& hinge : *hinges) {
    for (size_t a = 0; a < 4; ++a) {
      for (size_t b = a + 1; b < 4; ++b) EXPECT_NE(color_of(hinge.vertices[a]), color_of(hinge.vertices[b]));
    }
  }
  double mass = 0;
  for (const float m : layout->mass_kg) mass += m;
  EXPECT_NEAR(mass, 0.07 * 0.05 * 0.001 * 500, 1e-8);
}

}  // namespace
}  // namespace palpate::gpu::shell_solver_test
