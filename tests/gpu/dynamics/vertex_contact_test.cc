// Contact of capsules with vertices of shells.
#include <Eigen/Dense>
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "gpu/dynamics/tissue_solver.h"
#include "tests/gpu/dynamics/shell_models.h"
#include "tests/support/device_test.h"

namespace palpate::gpu::vertex_contact_test {
namespace {

using Eigen::Vector3d;

Vector3d ToVector(const Float4& v) { return {v.x, v.y, v.z}; }
Vector3d At(const std::vector<float>& flat, size_t v) { return {flat[3 * v], flat[3 * v + 1], flat[3 * v + 2]}; }

constexpr double kThickness_m = 0.001;

/// A sheet of 60 x 60 mm about the origin whose rim is held, in the plane z = 0. Next to no pressure is on it, so that it may have contacts
/// at its vertices.
TissueModel HeldSheet(uint32_t cells = 12, double pressure_pa = 1e-6) {
  TissueModel model;
  AddSheet(&model, cells, cells, {0.06, 0.06}, {-0.03, -0.03, 0},
           {.young_modulus_pa = 2e4, .thickness_m = kThickness_m, .mass_damping_per_s = 20});
  for (size_t v = 0; v < model.rest_m.size(); ++v) {
    const auto& [x, y, z] = model.rest_m[v];
    if (std::max(std::abs(x), std::abs(y)) > 0.0299) model.fixed[v] = 1;
  }
  TissueLoad load{.pressure_pa = pressure_pa, .duration_s = std::numeric_limits<double>::infinity()};
  for (uint32_t v = 0; v < model.rest_m.size(); ++v) load.vertices.push_back(v);
  model.loads = {load};
  model.triangle_loads.assign(model.surface_triangles.size(), 1);
  return model;
}

ColliderTarget TargetOf(const ColliderDescription& c) { return {c.tip_m, c.axis_m}; }

/// A capsule whose lowest point is `gap_m` above the sheet, lying askew.
ColliderDescription Above(double radius_m, double gap_m, double length_m = 0.01) {
  return {.radius_m = radius_m, .tip_m = {0.0013, -0.0021, radius_m + gap_m}, .axis_m = {0.8 * length_m, 0.6 * length_m, 0.1 * length_m}};
}

/// Of a contact [J]: the integral of the law of StepParams.
double ContactEnergy(const StepParams& p, double stiffness_n_per_m, double violation_m) {
  if (violation_m <= 0) return 0;
  const double m = p.margin_m, s = p.stiffening;
  const double u = std::min(violation_m / m, 2.0), rest = std::max(violation_m - 2 * m, 0.0);
  const double force = stiffness_n_per_m * m * (u + s * u * u * u), slope = stiffness_n_per_m * (1 + 3 * s * u * u);
  return stiffness_n_per_m * m * m * (u * u / 2 + s * u * u * u * u / 4) + force * rest + slope * rest * rest / 2;
}

double DistanceFromAxis(const Collider& c, const Vector3d& at) {
  const Vector3d tip = ToVector(c.tip), axis = ToVector(c.axis);
  const double s = std::clamp((at - tip).dot(axis) / axis.squaredNorm(), 0.0, 1.0);
  return (at - tip - s * axis).norm();
}

class VertexContactTest : public test::DeviceTest {
 protected:
  std::unique_ptr<TissueSolver> Make(const TissueModel& model, const TissueOptions& options, const ColliderDescription& tool) {
    auto solver = TissueSolver::Create(context(), model, options, std::vector{tool}, {}, TissueTuning::For(context()->device()));
    EXPECT_TRUE(solver.ok()) << solver.status();
    return solver.ok() ? *std::move(solver) : nullptr;
  }
  static std::vector<float> Positions(TissueSolver& solver, size_t vertices) {
    std::vector<float> flat(3 * vertices);
    PALPATE_EXPECT_OK(solver.ReadPositions(flat));
    return flat;
  }
  static std::vector<float> ContactForces(TissueSolver& solver, size_t vertices) {
    std::vector<float> flat(3 * vertices);
    PALPATE_EXPECT_OK(solver.ReadForces(kContactForces, flat));
    return flat;
  }
  /// Goes down by `way_m` in `steps` steps, and rests for as many. Returns the last step.
  static TissueStep Press(TissueSolver& solver, ColliderTarget target, double way_m, int steps, int rest) {
    TissueStep last;
    for (int i = 0; i < steps + rest; ++i) {
      if (i < steps) target.tip_m[2] -= way_m / steps;
      auto step = solver.Step(std::vector{target});
      EXPECT_TRUE(step.ok()) << step.status();
      if (!step.ok()) return last;
      last = *step;
    }
    return last;
  }
};

// A capsule so large that triangles do not sag into it: vertices alone push, by the gradient of an energy of their distances.
TEST_F(VertexContactTest, ForcesAreMinusTheGradientOfTheContactEnergy) {
  const TissueModel model = HeldSheet();
  const ColliderDescription tool = Above(0.06, 0.002);
  auto solver = Make(model, {.gravity_m_per_s2 = {0, 0, 0}, .iterations = 3, .friction = 0}, tool);
  ASSERT_NE(solver, nullptr);
  const TissueStep step = Press(*solver, TargetOf(tool), 0.006, 4, 0);  // fast and in few sweeps: forces of all sizes
  ASSERT_FALSE(step.colliders.empty());
  const StepParams& p = solver->step_params();
  const Collider collider = step.colliders[0];
  const std::vector<float> x = Positions(*solver, model.rest_m.size());
  const std::vector<float> forces = ContactForces(*solver, model.rest_m.size());
  const double touch_m = p.margin_m + 0.06 + kThickness_m / 2;
  double largest_n = 0, deepest_m = 0;
  for (const float f : forces) largest_n = std::max(largest_n, std::abs(static_cast<double>(f)));
  ASSERT_GT(largest_n, 0.01);
  int pushed = 0;
  for (size_t v = 0; v < model.rest_m.size(); ++v) {
    const auto energy_at = [&](const Vector3d& at) { return ContactEnergy(p, collider.axis.w, touch_m - DistanceFromAxis(collider, at)); };
    for (int axis = 0; axis < 3; ++axis) {
      constexpr double kStep_m = 1e-7;
      const Vector3d step_m = kStep_m * Vector3d::Unit(axis);
      const double gradient_n = (energy_at(At(x, v) + step_m) - energy_at(At(x, v) - step_m)) / (2 * kStep_m);
      ASSERT_NEAR(forces[3 * v + static_cast<size_t>(axis)], -gradient_n, 2e-4 * largest_n) << "vertex " << v << ", axis " << axis;
    }
    deepest_m = std::max(deepest_m, touch_m - DistanceFromAxis(collider, At(x, v)));
    pushed += At(forces, v).norm() > 0 ? 1 : 0;
  }
  EXPECT_GT(pushed, 8);
  EXPECT_GT(deepest_m, 0.5 * p.margin_m) << "the law is not only tried where it is linear";
}

// Whether vertices push, triangles, or both: what the sheet feels, what is reported and what a coupled tool feels is the same force.
TEST_F(VertexContactTest, SheetReportAndToolAgreeForToolsOfAnySize) {
  for (const double radius_m : {0.06, 0.014, 0.003}) {
    for (const double coupling_n_per_m : {0.0, 300.0}) {
      SCOPED_TRACE(testing::Message() << radius_m << " m, coupling " << coupling_n_per_m << " N/m");
      const TissueModel model = HeldSheet();
      ColliderDescription tool = Above(radius_m, 0.002);
      if (coupling_n_per_m > 0) {
        tool.coupling_n_per_m = coupling_n_per_m;
        tool.mass_kg = 0.05;
        tool.damping_n_s_per_m = 2 * std::sqrt(coupling_n_per_m * tool.mass_kg);
      }
      auto solver = Make(model, {.gravity_m_per_s2 = {0, 0, 0}, .iterations = 40, .friction = 0.2}, tool);
      ASSERT_NE(solver, nullptr);
      const TissueStep step = Press(*solver, TargetOf(tool), radius_m > 0.05 ? 0.008 : 0.012, 60, 200);
      ASSERT_FALSE(step.contacts.empty());
      Vector3d reported_n = Vector3d::Zero(), felt_n = Vector3d::Zero();
      for (const ContactReport& r : step.contacts) reported_n += ToVector(r.force);
      EXPECT_LT(reported_n.z(), -0.01);
      const std::vector<float> forces = ContactForces(*solver, model.rest_m.size());
      for (size_t v = 0; v < model.rest_m.size(); ++v) felt_n += At(forces, v);
      EXPECT_LT((felt_n - reported_n).norm(), 1e-4 * reported_n.norm());
      const std::vector<float> x = Positions(*solver, model.rest_m.size());
      int at_vertices = 0, on_triangles = 0;
      for (const ContactReport& r : step.contacts) {
        if (r.point.w == 0) continue;
        const Vector3d middle_m = ToVector(r.point) + kThickness_m / 2 * ToVector(r.normal);
        double nearest_m = 1;
        for (size_t v = 0; v < model.rest_m.size(); ++v) nearest_m = std::min(nearest_m, (At(x, v) - middle_m).norm());
        ++(nearest_m < 1e-7 ? at_vertices : on_triangles);
      }
      EXPECT_GT(at_vertices, radius_m > 0.05 ? 3 : radius_m > 0.005 ? 0 : -1);
      if (radius_m > 0.05) {
        EXPECT_EQ(on_triangles, 0) << "none sags into it";
      } else {
        EXPECT_GT(on_triangles, 3);
      }
      if (coupling_n_per_m > 0) {
        const Collider& c = step.colliders[0];
        const Vector3d spring_n = coupling_n_per_m * (ToVector(c.device_tip) - ToVector(c.tip));
        EXPECT_LT((spring_n - reported_n).norm(), 0.005 * reported_n.norm())
            << spring_n.transpose() << " instead of " << reported_n.transpose();
      }
    }
  }
}

// Pressure may be on some triangles of a vertex and not on others: here on every other one.
TEST_F(VertexContactTest, SheetAndReportAgreeWherePressureEnds) {
  for (const uint32_t first : {0U, 1U}) {
    TissueModel model = HeldSheet();
    model.loads[0].vertices.clear();
    for (uint32_t t = 0; t < model.triangle_loads.size(); ++t) model.triangle_loads[t] = (t + first) % 2;
    const ColliderDescription tool = Above(0.06, 0.002);
    auto solver = Make(model, {.gravity_m_per_s2 = {0, 0, 0}, .iterations = 40, .friction = 0.2}, tool);
    ASSERT_NE(solver, nullptr);
    const TissueStep step = Press(*solver, TargetOf(tool), 0.008, 60, 60);
    Vector3d reported_n = Vector3d::Zero(), felt_n = Vector3d::Zero();
    for (const ContactReport& r : step.contacts) reported_n += ToVector(r.force);
    const std::vector<float> forces = ContactForces(*solver, model.rest_m.size());
    for (size_t v = 0; v < model.rest_m.size(); ++v) felt_n += At(forces, v);
    EXPECT_LT(reported_n.z(), -0.01);
    EXPECT_LT((felt_n - reported_n).norm(), 1e-4 * reported_n.norm()) << felt_n.transpose() << " and " << reported_n.transpose();
  }
}

TEST_F(VertexContactTest, TheSameCallsGiveTheSameBits) {
  const TissueModel model = HeldSheet(6);
  ColliderDescription tool = Above(0.02, 0.001);
  tool.coupling_n_per_m = 300;
  tool.mass_kg = 0.05;
  auto solver = Make(model, {.iterations = 6, .friction = 0.2}, tool);
  ASSERT_NE(solver, nullptr);
  std::vector<uint64_t> hashes;
  std::vector<ContactReport> reports;
  for (int round = 0; round < 2; ++round) {
    PALPATE_ASSERT_OK(solver->Reset());
    const TissueStep step = Press(*solver, TargetOf(tool), 0.004, 8, 2);
    hashes.push_back(step.hash);
    if (round == 0) {
      reports.assign(step.contacts.begin(), step.contacts.end());
      ASSERT_GT(reports.size(), 5U);
      continue;
    }
    ASSERT_EQ(step.contacts.size(), reports.size());
    EXPECT_EQ(std::memcmp(step.contacts.data(), reports.data(), reports.size() * sizeof(ContactReport)), 0) << "also in their order";
  }
  EXPECT_EQ(hashes[0], hashes[1]);
}

// What no pressure presses on has contacts on its triangles alone, as tissue has.
TEST_F(VertexContactTest, WithoutPressureTrianglesAlonePush) {
  const TissueModel model = HeldSheet(12, 0);
  const ColliderDescription tool = Above(0.06, 0.002);
  auto solver = Make(model, {.gravity_m_per_s2 = {0, 0, 0}, .iterations = 40, .friction = 0.2}, tool);
  ASSERT_NE(solver, nullptr);
  const TissueStep step = Press(*solver, TargetOf(tool), 0.008, 60, 60);
  const std::vector<float> x = Positions(*solver, model.rest_m.size());
  int on_triangles = 0;
  for (const ContactReport& r : step.contacts) {
    if (r.point.w == 0) continue;
    const Vector3d middle_m = ToVector(r.point) + kThickness_m / 2 * ToVector(r.normal);
    double nearest_m = 1;
    for (size_t v = 0; v < model.rest_m.size(); ++v) nearest_m = std::min(nearest_m, (At(x, v) - middle_m).norm());
    on_triangles += nearest_m > 1e-5 ? 1 : 0;
  }
  EXPECT_GT(on_triangles, 0) << "under pressure there are none";
}

// A capsule may come from below, and go out again.
TEST_F(VertexContactTest, ItPushesFromEitherSideAndLetsGo) {
  for (const double side : {1.0, -1.0}) {
    const TissueModel model = HeldSheet();
    ColliderDescription tool = Above(0.06, 0.002);
    tool.tip_m[2] *= side;
    tool.axis_m[2] *= side;
    auto solver = Make(model, {.gravity_m_per_s2 = {0, 0, 0}, .friction = 0.1}, tool);
    ASSERT_NE(solver, nullptr);
    ColliderTarget target = TargetOf(tool);
    TissueStep step = Press(*solver, target, side * 0.01, 40, 10);
    double force_n = 0;
    for (const ContactReport& r : step.contacts) force_n += r.force.z;
    EXPECT_LT(side * force_n, -0.05);
    target.tip_m[2] -= side * 0.01;
    step = Press(*solver, target, -side * 0.012, 40, 60);
    for (const ContactReport& r : step.contacts) EXPECT_EQ(r.point.w, 0) << "it lets go";
    const std::vector<float> x = Positions(*solver, model.rest_m.size());
    for (size_t v = 0; v < model.rest_m.size(); ++v) EXPECT_LT(std::abs(x[3 * v + 2]), 0.001) << "vertex " << v;
  }
}

}  // namespace
}  // namespace palpate::gpu::vertex_contact_test
