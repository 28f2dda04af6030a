// Bodies that are shells, in running scenes.
#include <Eigen/Dense>
#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>

#include "sim/mesh/surface_generators.h"
#include "sim/world/world.h"
#include "tests/sim/world/world_builders.h"
#include "tests/support/device_test.h"

namespace palpate::sim {
namespace {

using Eigen::Vector3d;

/// A shell of cotton-like material on a surface that has been moved.
BodyDescription Shell(const std::string& name, const absl::StatusOr<SurfaceMesh>& surface, const Vector3d& shift_m = {0, 0, 0}) {
  BodyDescription body;
  body.name = name;
  EXPECT_TRUE(surface.ok()) << surface.status();
  if (!surface.ok()) return body;
  for (const Vector3d& x : surface->vertices) body.mesh.vertices.push_back(x + shift_m);
  body.shell.emplace();
  body.shell->triangles = surface->triangles;
  body.shell->thickness_m = 0.0005;
  body.material.young_modulus_pa = 2e5;
  body.material.poisson_ratio = 0.3;
  body.material.density_kg_per_m3 = 300;
  return body;
}

Vector3d At(const std::vector<float>& positions, size_t vertex) {
  return {positions[3 * vertex], positions[3 * vertex + 1], positions[3 * vertex + 2]};
}

class WorldShellTest : public test::DeviceTest {
 protected:
  /// The frame after some steps; with_contact: none of them has an intersection.
  std::shared_ptr<const Frame> Run(World& world, int steps) {
    std::shared_ptr<const Frame> frame = world.CurrentFrame();
    for (int i = 0; i < steps; ++i) {
      const auto next = world.Step({});
      EXPECT_TRUE(next.ok()) << next.status();
      if (!next.ok()) return frame;
      frame = *next;
      EXPECT_EQ(frame->contact_statistics.intersection_count, 0U) << "step " << i;
      if (testing::Test::HasFailure()) return frame;
    }
    return frame;
  }
};

TEST_F(WorldShellTest, ASheetFallsOnABallAndFolds) {
  SceneDescription scene;
  scene.bodies = {Shell("gauze", GenerateSheetSurface(0.16, 0.12, 0.008), {0.004, 0.002, 0.045})};
  scene.obstacles = {{"ball", SphereShape{{0, 0, 0}, 0.04}}, {"floor", PlaneShape{{0, 0, -0.04}, {0, 0, 1}}}};
  scene.contact.check_intersections = true;
  PALPATE_TEST_ASSIGN(auto world, World::Create(context(), scene));
  const auto frame = Run(*world, 150);
  const std::vector<float>& x = frame->surface_positions_m[0];
  double lowest = 1;
  double nearest = 1;
  for (size_t v = 0; 3 * v < x.size(); ++v) {
    lowest = std::min(lowest, At(x, v).z());
    nearest = std::min(nearest, At(x, v).norm() - 0.04);
  }
  EXPECT_LT(lowest, 0.0) << "its corners hang down";
  EXPECT_GT(lowest, -0.0401);
  EXPECT_GT(nearest, 0.00025) << "half of its thickness stays between";
}

TEST_F(WorldShellTest, SheetsLieOnEachOtherWithTheirThicknessBetween) {
  SceneDescription scene;
  scene.gravity_m_per_s2 = {0, 0, -9.81};
  scene.contact.margin_m = 0.001;
  scene.obstacles = {{"floor", PlaneShape{{0, 0, 0}, {0, 0, 1}}}};
  for (int k = 0; k < 2; ++k) {
    scene.bodies.push_back(Shell(k == 0 ? "felt" : "gauze", GenerateDiscSurface(0.03, 0.01), {0, 0.002 * k, 0.0015 + 0.0025 * k}));
    scene.bodies.back().shell->thickness_m = k == 0 ? 0.001 : 0.0005;
    scene.bodies.back().material.mass_damping_per_s = 5;
  }
  scene.contact.check_intersections = true;
  PALPATE_TEST_ASSIGN(auto world, World::Create(context(), scene));
  const auto frame = Run(*world, 90);
  double lower_m = 0;
  double upper_m = 0;
  const size_t count = scene.bodies[0].mesh.vertices.size();
  for (size_t v = 0; v < count; ++v) {
    lower_m += At(frame->surface_positions_m[0], v).z() / static_cast<double>(count);
    upper_m += At(frame->surface_positions_m[1], v).z() / static_cast<double>(count);
  }
  ASSERT_FALSE(frame->surface_contacts.empty());
  // So light, they begin to push and no more: at the margin and half of each thickness.
  EXPECT_NEAR(lower_m, 0.001 + 0.0005, 0.0001);
  EXPECT_NEAR(upper_m - lower_m, 0.001 + 0.0005 + 0.00025, 0.0001);
  // 2 pi R^2 / 2 of both.
  EXPECT_NEAR(world->body_statistics()[0].mass_kg, 300 * 0.001 * std::numbers::pi * 0.03 * 0.03, 0.06 * 300 * 0.001 * 0.0028);
}

TEST_F(WorldShellTest, ToolsPushAMembraneFromEitherSide) {
  for (const double side : {1.0, -1.0}) {
    SceneDescription scene;
    scene.gravity_m_per_s2.setZero();
    scene.bodies = {Shell("membrane", GenerateDiscSurface(0.05, 0.01))};
    BodyDescription& body = scene.bodies[0];
    for (uint32_t v = 0; v < body.mesh.vertices.size(); ++v) {
      if (body.mesh.vertices[v].norm() > 0.049) body.fixed_vertices.push_back(v);
    }
    ToolDescription tool = test::ToolAt("probe", {0.003, 0.002, side * 0.012}, ToolDrive::kDirect);
    if (side < 0) tool.rest_pose.rotation = Eigen::Quaterniond(0, 1, 0, 0);  // from below
    tool.radius_m = 0.005;
    scene.tools = {tool};
    PALPATE_TEST_ASSIGN(auto world, World::Create(context(), scene));
    std::shared_ptr<const Frame> frame;
    ToolCommand command;
    command.device_pose = tool.rest_pose;
    for (int i = 0; i < 50; ++i) {
      command.device_pose.position_m.z() -= side * 0.0004;
      frame = test::Step(*world, {command});
    }
    const double depth_m = -side * At(frame->surface_positions_m[0], 0).z();
    EXPECT_GT(depth_m, 0.008) << "the tool is at " << frame->tools[0].pose.position_m.transpose();
    EXPECT_GT(side * frame->tools[0].force_n.z(), 0.05) << "the membrane pushes it back";
    for (size_t v = 0; 3 * v < frame->surface_positions_m[0].size(); ++v) {
      const Vector3d x = At(frame->surface_positions_m[0], v);
      const Vector3d tip_m = frame->tools[0].pose.position_m;
      EXPECT_TRUE(x.head<2>().norm() > 0.02 || (x - tip_m).norm() > 0.005 + 0.0001) << "vertex " << v << " at " << x.transpose();
    }
    // And out again: nothing sticks.
    for (int i = 0; i < 50; ++i) {
      command.device_pose.position_m.z() += side * 0.0004;
      frame = test::Step(*world, {command});
    }
    EXPECT_LT(frame->tools[0].force_n.norm(), 1e-3);
    EXPECT_LT(std::abs(At(frame->surface_positions_m[0], 0).z()), 0.003);
  }
}

TEST_F(WorldShellTest, ASphereUnderPressureGrowsAsTheMembraneSays) {
  constexpr double kRadius_m = 0.03;
  SceneDescription scene;
  scene.gravity_m_per_s2.setZero();
  scene.bodies = {Shell("balloon", GenerateSphereSurface(kRadius_m, 0.01))};
  BodyDescription& body = scene.bodies[0];
  body.material.mass_damping_per_s = 40;
  body.material.model = MaterialModel::kStVenantKirchhoff;
  LoadDescription pressure;
  for (uint32_t v = 0; v < body.mesh.vertices.size(); ++v) pressure.vertices.push_back(v);
  pressure.pressure_pa = -100;
  body.loads = {pressure};
  body.self_collision = false;
  PALPATE_TEST_ASSIGN(auto world, World::Create(context(), scene));
  const auto frame = Run(*world, 100);
  double radius_m = 0;
  const size_t count = body.mesh.vertices.size();
  for (size_t v = 0; v < count; ++v) radius_m += At(frame->surface_positions_m[0], v).norm() / static_cast<double>(count);
  // p pi r^2 = 2 pi R h S lambda with S = E / (1 - nu) (lambda^2 - 1) / 2 of the reference stress, lambda = r / R.
  const double modulus = body.material.young_modulus_pa / (1 - body.material.poisson_ratio);
  double stretch = 1;
  for (int i = 0; i < 50; ++i) {
    stretch = std::sqrt(1 + 2 * 100 * kRadius_m * stretch / (2 * body.shell->thickness_m * modulus));
  }
  EXPECT_GT(stretch, 1.009);
  EXPECT_NEAR(radius_m / kRadius_m - 1, stretch - 1, 0.08 * (stretch - 1));
}

TEST_F(WorldShellTest, RunsAreTheSameAgainAndFromACheckpoint) {
  SceneDescription scene;
  scene.bodies = {Shell("gauze", GenerateSheetSurface(0.08, 0.06, 0.01), {0, 0, 0.02}),
                  test::BoxBody("tissue", {0, 0, -0.011}, {4, 4, 3}, {0.05, 0.05, 0.02}, test::HeldSide::kLowZ)};
  scene.bodies[0].shell->strain_limit = 0.05;
  PALPATE_TEST_ASSIGN(auto world, World::Create(context(), scene));
  Run(*world, 20);
  PALPATE_TEST_ASSIGN(const auto state, world->Capture());
  const uint64_t at_twenty = world->CurrentFrame()->state_hash;
  const uint64_t at_thirty = Run(*world, 10)->state_hash;
  PALPATE_TEST_ASSIGN(auto restored, World::Restore(context(), scene, *state));
  EXPECT_EQ(restored->CurrentFrame()->state_hash, at_twenty);
  EXPECT_EQ(Run(*restored, 10)->state_hash, at_thirty);
  PALPATE_ASSERT_OK(world->Reset().status());
  EXPECT_EQ(Run(*world, 20)->state_hash, at_twenty);
}

TEST_F(WorldShellTest, TissueBesideAShellIsCutAndTheShellIsNot) {
  SceneDescription scene;
  scene.bodies = {Shell("gauze", GenerateSheetSurface(0.08, 0.06, 0.01), {0, 0, 0.006}),
                  test::BoxBody("tissue", {0, 0, -0.011}, {5, 5, 4}, {0.05, 0.05, 0.02}, test::HeldSide::kLowZ)};
  scene.contact.check_intersections = true;
  PALPATE_TEST_ASSIGN(auto world, World::Create(context(), scene));
  Run(*world, 15);
  double removed_kg = 0;
  for (const double x : {-0.01, 0.012, 0.0}) {
    const std::vector<Edit> edits = {{.body = 1, .what = CarveEdit{BallRegion{{x, 0, -0.002}, 0.008}}}};
    PALPATE_TEST_ASSIGN(const auto done, world->Apply(edits));
    removed_kg += done[0].removed_mass_kg;
    Run(*world, 5);
  }
  EXPECT_GT(removed_kg, 0);
  PALPATE_TEST_ASSIGN(const auto state, world->Capture());
  const uint64_t now = world->CurrentFrame()->state_hash;
  PALPATE_TEST_ASSIGN(auto restored, World::Restore(context(), scene, *state));
  EXPECT_EQ(restored->CurrentFrame()->state_hash, now);
  EXPECT_EQ(Run(*restored, 5)->state_hash, Run(*world, 5)->state_hash);
}

}  // namespace
}  // namespace palpate::sim
