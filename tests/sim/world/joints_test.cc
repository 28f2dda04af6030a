#include <gmock/gmock.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "sim/world/world.h"
#include "tests/sim/world/world_builders.h"
#include "tests/support/device_test.h"

namespace palpate::sim {
namespace {

using Eigen::Vector3d;
using test::BoxBody;
using testing::HasSubstr;
using DriveKind = JointDriveDescription::Kind;

constexpr double kGravity = 9.81;

BodyDescription RigidBox(const std::string& name, const Vector3d& center_m, const Vector3d& size_m) {
  BodyDescription body = BoxBody(name, center_m, {2, 2, 2}, size_m);
  body.kind = BodyKind::kRigid;
  body.self_collision = false;
  body.material.density_kg_per_m3 = 1000;
  return body;
}

class Joints : public test::DeviceTest {
 protected:
  static SceneDescription Scene(std::vector<BodyDescription> bodies, std::vector<JointDescription> joints) {
    SceneDescription scene;
    scene.bodies = std::move(bodies);
    scene.joints = std::move(joints);
    return scene;
  }
  std::unique_ptr<World> Create(const SceneDescription& scene) {
    auto world = World::Create(context(), scene);
    EXPECT_TRUE(world.ok()) << world.status();
    return world.ok() ? *std::move(world) : nullptr;
  }
  static const Frame& Run(World& world, int steps) {
    for (int i = 0; i < steps; ++i) {
      const auto frame = world.Step({});
      EXPECT_TRUE(frame.ok()) << frame.status();
      if (!frame.ok()) break;
    }
    return *world.CurrentFrame();
  }
};

JointDescription Door(DriveKind kind) {
  JointDescription joint;
  joint.name = "hinge";
  joint.kind = JointKind::kHinge;
  joint.body_b = 0;
  joint.drive.kind = kind;
  return joint;
}

// A body far away stays what it is.
TEST_F(Joints, AMotionOpensADoorInTime) {
  JointDescription hinge = Door(DriveKind::kMotion);
  hinge.drive.times_s = {0.1, 0.3, 0.4};
  hinge.drive.targets = {0, 1, 0.5};
  const std::unique_ptr<World> world = Create(Scene({RigidBox("door", {0.15, 0, 0}, {0.2, 0.01, 0.3})}, {hinge}));
  ASSERT_NE(world, nullptr);
  EXPECT_NEAR(Run(*world, 12).joints[0].position, 0, 1e-5);
  EXPECT_NEAR(Run(*world, 12).joints[0].position, 0.5, 1e-4);
  EXPECT_NEAR(Run(*world, 12).joints[0].position, 1, 1e-4);
  const Frame& frame = Run(*world, 24);
  EXPECT_NEAR(frame.joints[0].position, 0.5, 1e-4);
  EXPECT_LT(frame.joints[0].gap_m, 1e-6);
  // It carries the door: its weight, and its moment about the point.
  EXPECT_NEAR(frame.joints[0].force_n.z(), 0.6 * kGravity, 0.01 * 0.6 * kGravity);
  EXPECT_NEAR(frame.joints[0].torque_n_m.head<2>().norm(), 0.15 * 0.6 * kGravity, 0.01 * 0.15 * 0.6 * kGravity);
  EXPECT_LT(frame.joints[0].point_m.norm(), 1e-6);
}

// What edits do to a joint, and that a reset undoes it.
TEST_F(Joints, EditsDriveReleaseAndAreUndoneByAReset) {
  const std::unique_ptr<World> world = Create(Scene({RigidBox("door", {0.15, 0, 0}, {0.2, 0.01, 0.3})}, {Door(DriveKind::kFree)}));
  ASSERT_NE(world, nullptr);
  EXPECT_NEAR(Run(*world, 10).joints[0].position, 0, 1e-5);
  const auto apply = [&](JointEdit edit) { return world->Apply(std::vector<Edit>{{.what = std::move(edit)}}).status(); };
  PALPATE_ASSERT_OK(apply({.drive = {.kind = DriveKind::kMotor, .speed = 2}}));
  EXPECT_NEAR(Run(*world, 60).joints[0].position, 1, 1e-3);
  PALPATE_ASSERT_OK(apply({.drive = {.kind = DriveKind::kSpring, .target = 0.2, .stiffness = 20, .damping = 2}}));
  EXPECT_NEAR(Run(*world, 240).joints[0].position, 0.2, 1e-3);
  PALPATE_ASSERT_OK(apply({.is_released = true}));
  EXPECT_TRUE(world->CurrentFrame()->joints[0].is_broken);
  const double height = world->CurrentFrame()->surface_positions_m[0][2];
  const Frame& fallen = Run(*world, 24);
  EXPECT_TRUE(fallen.joints[0].is_broken);
  EXPECT_NEAR(fallen.surface_positions_m[0][2], height - kGravity / 2 * 0.2 * (0.2 + 1.0 / 120), 1e-3);
  EXPECT_EQ(fallen.joints[0].force_n.norm(), 0);
  PALPATE_ASSERT_OK(world->Reset().status());
  EXPECT_EQ(world->CurrentFrame()->joints[0].force_n.norm(), 0) << "of no step";
  const Frame& again = Run(*world, 24);
  EXPECT_FALSE(again.joints[0].is_broken);
  EXPECT_NEAR(again.joints[0].position, 0, 1e-5);
  EXPECT_LT(again.joints[0].gap_m, 1e-6);

  EXPECT_EQ(apply({.joint = 1}).code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(apply({.drive = {.kind = DriveKind::kSpring, .stiffness = -1}}).message()),
              HasSubstr("edits[0]: joint hinge: drive.stiffness: -1"));
  EXPECT_THAT(std::string(apply({.drive = {.kind = DriveKind::kMotion, .times_s = {1, 1}, .targets = {0, 1}}}).message()),
              HasSubstr("drive.times_s[1]"));
}

// A joint that bears too much lets go, for good.
TEST_F(Joints, BreaksBeyondItsLoad) {
  JointDescription hook;
  hook.name = "hook";
  hook.body_b = 0;
  hook.break_force_n = 5;
  JointDescription ball = hook;
  ball.name = "ball";
  ball.body_a = 0;
  ball.body_b = 1;
  ball.point_a_m = ball.point_b_m = {0, 0, -0.15};
  ball.break_force_n = 1e9;
  // 0.27 kg and, falling on the rope's end, 0.64 kg: the upper hook bears 8.9 N and breaks, the lower does not.
  const std::unique_ptr<World> world = Create(
      Scene({RigidBox("rod", {0, 0, -0.07}, {0.05, 0.045, 0.12}), RigidBox("weight", {0, 0, -0.21}, {0.08, 0.08, 0.1})}, {hook, ball}));
  ASSERT_NE(world, nullptr);
  const Frame& frame = Run(*world, 30);
  EXPECT_TRUE(frame.joints[0].is_broken);
  EXPECT_FALSE(frame.joints[1].is_broken);
  EXPECT_LT(frame.joints[1].gap_m, 1e-6);
  EXPECT_LT(frame.surface_positions_m[0][2], -0.2) << "both fall";
}

// Contact acts on bodies that are held by joints: a hanging plate carries what falls onto it, and nothing passes.
TEST_F(Joints, ASwingCarriesWhatFallsOnIt) {
  std::vector<JointDescription> ropes;
  for (const double x : {-0.09, 0.09}) {
    for (const double y : {-0.09, 0.09}) {
      JointDescription rope;
      rope.name = "rope" + std::to_string(ropes.size());
      rope.kind = JointKind::kSpring;
      rope.body_b = 0;
      rope.point_a_m = {x, y, 0.3};
      rope.point_b_m = {x, y, 0.005};
      rope.drive = {.kind = DriveKind::kSpring, .target = 0.27, .stiffness = 200, .damping = 4};
      ropes.push_back(rope);
    }
  }
  SceneDescription scene =
      Scene({RigidBox("plate", {0, 0, 0}, {0.2, 0.2, 0.01}), RigidBox("stone", {0.02, 0.01, 0.06}, {0.05, 0.05, 0.05})}, ropes);
  scene.contact.check_intersections = true;
  scene.contact.surface_friction = 0.5;
  scene.bodies[0].material.mass_damping_per_s = 2;
  scene.bodies[1].material.mass_damping_per_s = 2;
  const std::unique_ptr<World> world = Create(scene);
  ASSERT_NE(world, nullptr);
  for (int i = 0; i < 360; ++i) {
    const Frame& frame = Run(*world, 1);
    ASSERT_EQ(frame.contact_statistics.intersection_count, 0U) << "step " << i;
  }
  const Frame& frame = *world->CurrentFrame();
  Vector3d pull = Vector3d::Zero();
  for (const FrameJoint& rope : frame.joints) {
    EXPECT_GT(rope.effort, 0) << "it pulls";
    EXPECT_NEAR(rope.effort, 200 * (rope.position - 0.27), 0.02 * rope.effort + 0.02);
    pull += rope.force_n;
  }
  EXPECT_NEAR(pull.z(), (0.4 + 0.125) * kGravity, 0.03 * 0.525 * kGravity);
  EXPECT_GT(frame.surface_positions_m[1][2], frame.surface_positions_m[0][2]);
}

TEST_F(Joints, AreRefusedByName) {
  const auto refusal = [&](const JointDescription& joint) {
    SceneDescription scene =
        Scene({RigidBox("a", {0, 0, 0}, {0.1, 0.1, 0.1}), BoxBody("b", {1, 0, 0}, {2, 2, 2}, {0.1, 0.1, 0.1})}, {joint});
    return std::string(World::Create(context(), scene).status().message());
  };
  JointDescription joint;
  joint.name = "j";
  joint.body_b = 1;
  EXPECT_THAT(refusal(joint), HasSubstr("joints[0] (j): body_b: b is not rigid"));
  joint.body_b = 2;
  EXPECT_THAT(refusal(joint), HasSubstr("body_b: 2 is outside [0, 2)"));
  joint.body_b = 0;
  joint.axis = {0, 0, 2};
  EXPECT_THAT(refusal(joint), HasSubstr("axis: is not of unit length"));
  joint.axis = {0, 0, 1};
  joint.drive = {.kind = DriveKind::kMotor};
  EXPECT_THAT(refusal(joint), HasSubstr("drive: a ball joint has none of this kind"));
}

}  // namespace
}  // namespace palpate::sim
