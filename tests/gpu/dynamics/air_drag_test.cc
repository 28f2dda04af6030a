#include "gpu/dynamics/air_drag.h"

#include <gmock/gmock.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "gpu/dynamics/tissue_solver.h"
#include "tests/gpu/dynamics/surface_models.h"
#include "tests/support/device_test.h"

namespace palpate::gpu::air_drag_test {
namespace {

using Eigen::Vector3d;

constexpr double kDt = 1.0 / 120;
constexpr double kDrag = 2;  // half the density times the coefficient [kg/m^3]
constexpr double kSide_m = 0.1;

class AirDragTest : public test::DeviceTest {
 protected:
  /// A cube, of tissue or rigid, in the order of BoxModel; without gravity.
  static TissueModel Cube(bool is_rigid, double mass_kg) {
    TestMaterial material;
    material.young_modulus_pa = 2000;  // as soft as 20 sweeps are enough for
    material.density_kg_per_m3 = mass_kg / std::pow(kSide_m, 3);
    TissueModel model = BoxModel({2, 2, 2}, Vector3d::Constant(kSide_m), Vector3d::Constant(-kSide_m / 2), material);
    model.body_triangle_begin = {0, static_cast<uint32_t>(model.surface_triangles.size())};
    model.self_collision = {0};
    model.drag_kg_per_m3 = {kDrag};
    model.fixed.assign(model.rest_m.size(), is_rigid ? kFixedVertex : kFreeVertex);
    if (!is_rigid) return model;
    model.tets.clear();
    const double moment = mass_kg * kSide_m * kSide_m / 6;
    model.rigid = {{.body = 0, .vertices = {0, static_cast<uint32_t>(model.rest_m.size())}, .mass_kg = mass_kg}};
    for (size_t i = 0; i < 3; ++i) model.rigid[0].inertia_kg_m2[4 * i] = moment;
    return model;
  }

  std::unique_ptr<TissueSolver> Make(const TissueModel& model) {
    TissueOptions options;
    options.gravity_m_per_s2 = {0, 0, 0};
    auto solver = TissueSolver::Create(context(), model, options, {}, {}, TissueTuning::For(context()->device()));
    EXPECT_TRUE(solver.ok()) << solver.status();
    return solver.ok() ? *std::move(solver) : nullptr;
  }

  Vector3d Middle(TissueSolver& solver, size_t count) {
    std::vector<float> flat(3 * count);
    PALPATE_EXPECT_OK(solver.ReadPositions(flat));
    Vector3d sum = Vector3d::Zero();
    for (size_t i = 0; i < flat.size(); i += 3) sum += Vector3d(flat[i], flat[i + 1], flat[i + 2]);
    return sum / static_cast<double>(count);
  }
};

// A cube that meets the wind with two of its faces: m dv/dt = 2 c A (w - v)^2 has the solution v = w^2 k t / (1 + w k t), k = 2 c A / m.
TEST_F(AirDragTest, AFaceMeetsTheWindAsItsClosedFormSays) {
  constexpr double kMass_kg = 0.05, kWind = 6;
  for (const bool is_rigid : {false, true}) {
    const TissueModel model = Cube(is_rigid, kMass_kg);
    const std::unique_ptr<TissueSolver> solver = Make(model);
    ASSERT_NE(solver, nullptr);
    solver->SetWind({kWind, 0, 0});
    const double k = 2 * kDrag * kSide_m * kSide_m / kMass_kg;
    const int steps = 24;
    for (int i = 0; i < steps; ++i) {
      const auto step = solver->Step({});
      ASSERT_TRUE(step.ok()) << step.status();
    }
    const double t = steps * kDt;
    const double way_m = kWind * t - std::log1p(kWind * k * t) / k;
    const Vector3d middle = Middle(*solver, model.rest_m.size());
    EXPECT_NEAR(middle.x(), way_m, (is_rigid ? 0.03 : 0.05) * way_m)
        << is_rigid << ": tissue is bent by it, and the middle of its vertices is not that of mass";
    EXPECT_LT(middle.tail<2>().norm(), 0.01 * way_m) << "nothing across: " << is_rigid;
  }
}

// However light a body and strong a wind, it never goes faster than the air does.
TEST_F(AirDragTest, NothingOvershoots) {
  for (const bool is_rigid : {false, true}) {
    const TissueModel model = Cube(is_rigid, 1e-5);
    const std::unique_ptr<TissueSolver> solver = Make(model);
    ASSERT_NE(solver, nullptr);
    solver->SetWind({0, 40, 0});
    double before_m = 0;
    for (int i = 0; i < 6; ++i) {
      const auto step = solver->Step({});
      ASSERT_TRUE(step.ok()) << step.status();
      const double at_m = Middle(*solver, model.rest_m.size()).y();
      EXPECT_GT(at_m, before_m) << is_rigid << " " << i;
      EXPECT_LT(at_m - before_m, 40.01 * kDt) << is_rigid << " " << i;
      before_m = at_m;
    }
  }
}

// Turning is braked by both halves of a face alike.
TEST_F(AirDragTest, ATurningBodyIsBraked) {
  TissueModel model = Cube(true, 0.05);
  model.rigid[0].angular_velocity_rad_per_s = {0, 0, 10};
  const std::unique_ptr<TissueSolver> solver = Make(model);
  ASSERT_NE(solver, nullptr);
  double energy_j = 0.5 * 0.05 * kSide_m * kSide_m / 6 * 100;
  for (int i = 0; i < 20; ++i) {
    const auto step = solver->Step({});
    ASSERT_TRUE(step.ok()) << step.status();
    EXPECT_LT(step->kinetic_energy_j, energy_j) << i;
    energy_j = step->kinetic_energy_j;
  }
  EXPECT_LT(Middle(*solver, model.rest_m.size()).norm(), 1e-5) << "and stays where it is";
}

TEST_F(AirDragTest, BadCoefficientsAreRefused) {
  TissueModel model = Cube(false, 1);
  const auto complaint = [&] {
    return std::string(TissueSolver::Create(context(), model, {}, {}, {}, TissueTuning::For(context()->device())).status().message());
  };
  model.drag_kg_per_m3 = {-1};
  EXPECT_THAT(complaint(), testing::HasSubstr("drag_kg_per_m3[0]: -1"));
  model.drag_kg_per_m3 = {1, 1};
  EXPECT_THAT(complaint(), testing::HasSubstr("2 entries for 1 bodies"));
}

}  // namespace
}  // namespace palpate::gpu::air_drag_test
