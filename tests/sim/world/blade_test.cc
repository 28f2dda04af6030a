// What a blade meets: tissue that is dragged along until it parts, and parts at the force of its toughness.
#include <gmock/gmock.h>

#include <Eigen/Dense>
#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "sim/haptics/evaluate.h"
#include "sim/mesh/surface_generators.h"
#include "sim/world/world.h"
#include "tests/sim/world/world_builders.h"
#include "tests/support/device_test.h"

namespace palpate::sim::blade_test {
namespace {

using Eigen::Vector3d;
using test::BoxBody;
using test::HeldSide;
using test::Step;

constexpr double kWidth_m = 0.04;
constexpr double kToughness_j_per_m2 = 100;
constexpr double kForce_n = kToughness_j_per_m2 * kWidth_m;

class WorldBladeTest : public test::DeviceTest {
 protected:
  /// A block that stands on its foot, 30 mm high about the origin, and an edge all across it along x.
  static SceneDescription Block(double young_modulus_pa, double toughness_j_per_m2, double blade_z_m,
                                ToolDrive drive = ToolDrive::kDirect) {
    SceneDescription scene;
    scene.dt_s = 1.0 / 120;
    scene.gravity_m_per_s2 = {0, 0, 0};
    scene.bodies = {BoxBody("block", {0, 0, 0}, {6, 6, 6}, {kWidth_m, 0.04, 0.03}, HeldSide::kLowZ)};
    scene.bodies[0].material.young_modulus_pa = young_modulus_pa;
    scene.bodies[0].material.fracture_toughness_j_per_m2 = toughness_j_per_m2;
    scene.contact.check_intersections = true;
    scene.tools = {test::ToolAt("scalpel", {-0.025, 0.003, blade_z_m}, drive)};
    scene.tools[0].radius_m = 0.003;
    scene.tools[0].instrument.kind = InstrumentKind::kScalpel;
    scene.tools[0].instrument.blade_length_m = 0.05;
    return scene;
  }

  /// Moves the hand along z, and returns what the tool felt in each step.
  std::vector<Vector3d> MoveTo(World& world, double z_m, double speed_m_per_s) {
    std::vector<Vector3d> forces_n;
    const double step_m = speed_m_per_s * world.description().dt_s;
    while (command_.device_pose.position_m.z() != z_m && !HasFailure()) {
      const double way_m = z_m - command_.device_pose.position_m.z();
      command_.device_pose.position_m.z() += std::clamp(way_m, -step_m, step_m);
      frame_ = Step(world, {command_});
      forces_n.push_back(frame_->tools[0].force_n);
      EXPECT_EQ(frame_->contact_statistics.intersection_count, 0U);
    }
    return forces_n;
  }
  std::unique_ptr<World> Start(const SceneDescription& scene) {
    auto world = World::Create(context(), scene);
    EXPECT_TRUE(world.ok()) << world.status();
    command_ = {};
    command_.device_pose = scene.tools[0].rest_pose;
    return world.ok() ? *std::move(world) : nullptr;
  }
  static Vector3d MeanOfLast(const std::vector<Vector3d>& values, size_t count) {
    Vector3d sum = Vector3d::Zero();
    for (size_t i = values.size() - count; i < values.size(); ++i) sum += values[i] / static_cast<double>(count);
    return sum;
  }

  ToolCommand command_;
  std::shared_ptr<const Frame> frame_;
};

TEST_F(WorldBladeTest, CutsAtTheForceOfTheToughness) {
  const auto world = Start(Block(20000, kToughness_j_per_m2, 0.02));
  ASSERT_NE(world, nullptr);
  const std::vector<Vector3d> forces_n = MoveTo(*world, 0, 0.1);
  ASSERT_GE(forces_n.size(), 20U);
  EXPECT_EQ(forces_n[0].norm(), 0) << "in the air";
  // The pressed block is some percent wider.
  for (const Vector3d& force_n : forces_n) EXPECT_LT(force_n.norm(), 1.06 * kForce_n);
  const Vector3d mean_n = MeanOfLast(forces_n, 8);
  EXPECT_NEAR(mean_n.z(), 1.02 * kForce_n, 0.04 * kForce_n) << "against the way of the blade";
  EXPECT_LT(std::hypot(mean_n.x(), mean_n.y()), 0.2 * kForce_n);
  EXPECT_TRUE(frame_->tools[0].is_cutting);
  EXPECT_FALSE(frame_->tools[0].is_touching) << "the flat of the blade does not push";
  // It stands still: tissue holds it, and nothing more is cut.
  const uint64_t version = frame_->topology_version;
  for (int i = 0; i < 60; ++i) frame_ = Step(*world, {command_});
  EXPECT_EQ(frame_->topology_version, version);
  EXPECT_GT(frame_->tools[0].force_n.z(), 0.5 * kForce_n);
  // On the way back it first goes with the tissue; out of it there is no force.
  const std::vector<Vector3d> back_n = MoveTo(*world, 0.04, 0.1);
  EXPECT_LT(std::ranges::min_element(back_n, {}, [](const Vector3d& f) { return f.z(); })->z(), -0.02 * kForce_n);
  EXPECT_EQ(back_n.back().norm(), 0);
}

TEST_F(WorldBladeTest, TissueGoesAlongUntilItParts) {
  for (const bool is_tough : {true, false}) {
    const auto world = Start(Block(3000, is_tough ? 1000 : 0, 0.018));
    ASSERT_NE(world, nullptr);
    frame_ = Step(*world, {command_});
    const uint64_t version = frame_->topology_version;
    const std::vector<Vector3d> forces_n = MoveTo(*world, 0.005, 0.05);
    if (is_tough) {
      EXPECT_EQ(frame_->topology_version, version) << "40 N would part it";
      EXPECT_GT(forces_n.back().z(), 0.5);
      EXPECT_LT(forces_n.back().z(), 30);
    } else {
      EXPECT_GT(frame_->topology_version, version);
      EXPECT_EQ(forces_n.back().norm(), 0);
    }
  }
}

TEST_F(WorldBladeTest, HalfTheEdgeInTissueIsHalfTheForce) {
  SceneDescription scene = Block(20000, kToughness_j_per_m2, 0.02);
  scene.tools[0].rest_pose.position_m.x() = 0;  // the block ends at 20 mm
  const auto world = Start(scene);
  ASSERT_NE(world, nullptr);
  const std::vector<Vector3d> forces_n = MoveTo(*world, 0, 0.1);
  EXPECT_NEAR(MeanOfLast(forces_n, 8).z(), kForce_n / 2, 0.08 * kForce_n);
}

TEST_F(WorldBladeTest, ACoupledToolStaysBehindTheHand) {
  SceneDescription scene = Block(20000, kToughness_j_per_m2, 0.02, ToolDrive::kCoupled);
  scene.tools[0].coupling_stiffness_n_per_m = 800;
  const auto world = Start(scene);
  ASSERT_NE(world, nullptr);
  const std::vector<Vector3d> forces_n = MoveTo(*world, -0.004, 0.05);
  EXPECT_NEAR(MeanOfLast(forces_n, 8).z(), kForce_n, 0.1 * kForce_n);
  const double lag_m = frame_->tools[0].pose.position_m.z() - command_.device_pose.position_m.z();
  EXPECT_NEAR(800 * lag_m, kForce_n, 0.35 * kForce_n) << "besides damping of the coupling and inertia";
}

TEST_F(WorldBladeTest, AStationFeelsWhatTheSolverFound) {
  const auto world = Start(Block(20000, kToughness_j_per_m2, 0.02));
  ASSERT_NE(world, nullptr);
  MoveTo(*world, 0.002, 0.1);
  ASSERT_EQ(frame_->local_models.size(), 1U);
  const LocalModel& model = frame_->local_models[0];
  ASSERT_EQ(model.constraint_count, 1);
  const LocalConstraint& constraint = model.constraints[0];
  EXPECT_NEAR((constraint.normal_W - frame_->tools[0].force_n.normalized()).norm(), 0, 1e-6);
  EXPECT_NEAR(constraint.stiffness_n_per_m * constraint.rest_penetration_m, frame_->tools[0].force_n.norm(), 1e-6);
  EXPECT_NEAR((model.force_n - frame_->tools[0].force_n).norm(), 0, 1e-9);
}

TEST_F(WorldBladeTest, AShellPartsAtToughnessTimesThickness) {
  constexpr double kThickness_m = 0.001;
  constexpr double kShellToughness_j_per_m2 = 400;
  PALPATE_TEST_ASSIGN(const SurfaceMesh sheet, GenerateSheetSurface(0.1, 0.1, 0.008));
  SceneDescription scene;
  scene.gravity_m_per_s2 = {0, 0, 0};
  BodyDescription body;
  body.name = "sheet";
  body.mesh.vertices = sheet.vertices;
  body.shell.emplace();
  body.shell->triangles = sheet.triangles;
  body.shell->thickness_m = kThickness_m;
  body.material.model = MaterialModel::kStVenantKirchhoff;
  body.material.young_modulus_pa = 2e5;
  body.material.density_kg_per_m3 = 1000;
  body.material.mass_damping_per_s = 20;
  body.material.fracture_toughness_j_per_m2 = kShellToughness_j_per_m2;
  for (uint32_t v = 0; v < sheet.vertices.size(); ++v) {
    if (std::abs(sheet.vertices[v].x()) > 0.045 || sheet.vertices[v].y() > 0.045) body.fixed_vertices.push_back(v);
  }
  scene.bodies = {body};
  scene.tools = {test::ToolAt("scalpel", {-0.0013, -0.055, 0.006}, ToolDrive::kDirect)};
  scene.tools[0].radius_m = 0.002;
  scene.tools[0].rest_pose.rotation = Eigen::AngleAxisd(M_PI / 2, Vector3d::UnitY());
  scene.tools[0].instrument.kind = InstrumentKind::kScalpel;
  scene.tools[0].instrument.blade_length_m = 0.012;
  const auto world = Start(scene);
  ASSERT_NE(world, nullptr);
  std::vector<double> along_n;
  for (int i = 0; i < 110; ++i) {
    command_.device_pose.position_m.y() = -0.055 + 0.0006 * i;
    frame_ = Step(*world, {command_});
    along_n.push_back(-frame_->tools[0].force_n.y());
  }
  EXPECT_GT(frame_->topology_version, 5U) << "it is cut";
  const double expected_n = kShellToughness_j_per_m2 * kThickness_m;
  EXPECT_LT(*std::ranges::max_element(along_n), 1.05 * expected_n);
  double mean_n = 0;
  for (size_t i = along_n.size() - 40; i < along_n.size(); ++i) mean_n += along_n[i] / 40;
  EXPECT_NEAR(mean_n, expected_n, 0.2 * expected_n);
}

TEST_F(WorldBladeTest, SameCallsGiveTheSameBits) {
  std::vector<uint64_t> hashes[2];
  for (auto& run : hashes) {
    const auto world = Start(Block(20000, kToughness_j_per_m2, 0.018));
    ASSERT_NE(world, nullptr);
    while (command_.device_pose.position_m.z() > 0.005) {
      command_.device_pose.position_m.z() -= 0.001;
      run.push_back(Step(*world, {command_})->state_hash);
    }
  }
  EXPECT_EQ(hashes[0], hashes[1]);
}

}  // namespace
}  // namespace palpate::sim::blade_test
