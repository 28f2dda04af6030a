#include <gmock/gmock.h>

#include <cmath>
#include <memory>
#include <numbers>
#include <string>
#include <vector>

#include "sim/world/world.h"
#include "tests/sim/world/world_builders.h"
#include "tests/support/device_test.h"

namespace palpate::sim::joints_test {
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

// A joint that stands at its limit is let go: nothing is left of the limit.
TEST_F(Joints, LetsGoAtItsLimit) {
  JointDescription hinge = Door(DriveKind::kMotor);
  hinge.axis = {0, 1, 0};
  hinge.drive.speed = 4;
  hinge.upper = 0.3;
  const std::unique_ptr<World> world = Create(Scene({RigidBox("flap", {0.15, 0, 0}, {0.2, 0.01, 0.1})}, {hinge}));
  ASSERT_NE(world, nullptr);
  const double height_m = Run(*world, 40).joints[0].point_m.z();
  EXPECT_NEAR(world->CurrentFrame()->joints[0].position, 0.3, 1e-4);
  PALPATE_ASSERT_OK(world->Apply(std::vector<Edit>{{.what = JointEdit{.is_released = true}}}).status());
  EXPECT_LT(Run(*world, 24).joints[0].point_m.z(), height_m - 0.1) << "it falls";
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

/// Of a body's mesh.
std::vector<uint32_t> VerticesAbove(const BodyDescription& body, double z_m) {
  std::vector<uint32_t> out;
  for (uint32_t v = 0; v < body.mesh.vertices.size(); ++v) {
    if (body.mesh.vertices[v].z() >= z_m - 1e-9) out.push_back(v);
  }
  return out;
}

/// A strap of tissue hangs from the world by its upper end, and a block from its lower end.
SceneDescription Strap() {
  SceneDescription scene;
  BodyDescription strap = BoxBody("strap", {0, 0, 0}, {3, 3, 13}, {0.02, 0.02, 0.12});
  strap.material.young_modulus_pa = 2e5;
  strap.material.mass_damping_per_s = 4;
  BodyDescription block = RigidBox("block", {0, 0, -0.09}, {0.05, 0.05, 0.04});
  JointDescription upper;
  upper.name = "upper";
  upper.kind = JointKind::kFixed;
  upper.body_b = 0;
  upper.vertices_b = VerticesAbove(strap, 0.05);
  upper.point_a_m = upper.point_b_m = {0, 0, 0.06};
  JointDescription lower;
  lower.name = "lower";
  lower.body_a = 0;
  lower.body_b = 1;
  for (uint32_t v = 0; v < strap.mesh.vertices.size(); ++v) {
    if (strap.mesh.vertices[v].z() < -0.045) lower.vertices_a.push_back(v);
  }
  lower.point_a_m = lower.point_b_m = {0, 0, -0.065};
  scene.bodies = {std::move(strap), std::move(block)};
  scene.joints = {upper, lower};
  return scene;
}

TEST_F(Joints, TissueHangsAndCarries) {
  const std::unique_ptr<World> world = Create(Strap());
  ASSERT_NE(world, nullptr);
  double worst_m = 0;
  for (int i = 0; i < 300; ++i) {
    const Frame& frame = Run(*world, 1);
    for (const FrameJoint& joint : frame.joints) worst_m = std::max(worst_m, joint.gap_m);
  }
  EXPECT_LT(worst_m, 2e-6);
  const Frame& frame = *world->CurrentFrame();
  const double block_n = 0.1 * kGravity, strap_n = 4.8e-5 * Strap().bodies[0].material.density_kg_per_m3 * kGravity;
  EXPECT_NEAR(frame.joints[1].force_n.z(), block_n, 0.01 * block_n);
  EXPECT_NEAR(frame.joints[0].force_n.z(), block_n + strap_n, 0.01 * (block_n + strap_n));
  EXPECT_LT(frame.max_speed_m_per_s, 2e-3);
}

// What is cut away of the tissue that a joint holds, and what is not.
TEST_F(Joints, EditsOfTissueLeaveJointsOrTakeThem) {
  SceneDescription scene = Strap();
  const std::unique_ptr<World> world = Create(scene);
  ASSERT_NE(world, nullptr);
  Run(*world, 60);
  const auto apply = [&](auto what) { return world->Apply(std::vector<Edit>{{.body = 0, .what = std::move(what)}}).status(); };
  // In the middle and at the lower end: the joints hold on, and the frames of the sets stay where they are.
  PALPATE_ASSERT_OK(apply(RefineEdit{.region = BallRegion{{0, 0, -0.05}, 0.02}, .max_edge_m = 0.008}));
  PALPATE_ASSERT_OK(apply(CarveEdit{.region = BallRegion{{0.012, 0, 0}, 0.008}}));
  const Frame& cut = Run(*world, 1);
  EXPECT_FALSE(cut.joints[1].is_broken);
  EXPECT_LT(cut.joints[1].gap_m, 1e-5);
  const Frame& hangs = Run(*world, 400);
  EXPECT_NEAR(hangs.joints[1].force_n.z(), 0.1 * kGravity, 0.02 * 0.1 * kGravity);
  EXPECT_LT(hangs.joints[1].gap_m, 2e-6);
  // All that the lower joint holds: it lets go, and the block falls.
  PALPATE_ASSERT_OK(apply(CarveEdit{.region = BallRegion{{0, 0, -0.06}, 0.03}}));
  EXPECT_TRUE(world->CurrentFrame()->joints[1].is_broken);
  EXPECT_FALSE(world->CurrentFrame()->joints[0].is_broken);
  const double height_m = world->CurrentFrame()->joints[1].point_m.z();
  const Frame& fallen = Run(*world, 24);
  EXPECT_LT(fallen.joints[1].point_m.z(), height_m - 0.15);
  EXPECT_EQ(fallen.joints[1].force_n.norm(), 0);
  // And all that the upper one holds: nothing is held any more.
  PALPATE_ASSERT_OK(apply(CarveEdit{.region = BallRegion{{0, 0, 0.06}, 0.03}}));
  EXPECT_TRUE(world->CurrentFrame()->joints[0].is_broken);
  EXPECT_EQ(Run(*world, 4).joints[0].force_n.norm(), 0);
  PALPATE_ASSERT_OK(world->Reset().status());
  EXPECT_FALSE(Run(*world, 2).joints[1].is_broken);
  EXPECT_LT(world->CurrentFrame()->joints[1].gap_m, 1e-6);
}

TEST_F(Joints, StatesOfHeldTissueGoOnWithTheSameBits) {
  const SceneDescription scene = Strap();
  const std::unique_ptr<World> world = Create(scene);
  ASSERT_NE(world, nullptr);
  Run(*world, 20);
  PALPATE_ASSERT_OK(world->Apply(std::vector<Edit>{{.body = 0, .what = CarveEdit{.region = BallRegion{{0.012, 0, 0}, 0.008}}}}).status());
  Run(*world, 5);
  const auto state = world->Capture();
  ASSERT_TRUE(state.ok()) << state.status();
  const uint64_t wanted = Run(*world, 10).state_hash;
  auto restored = World::Restore(context(), scene, **state);
  ASSERT_TRUE(restored.ok()) << restored.status();
  EXPECT_EQ(Run(**restored, 10).state_hash, wanted);
}

// A tool that a block or a strap of tissue hangs from; both drives, up and down.
TEST_F(Joints, ToolsCarryBodiesAndFeelThem) {
  for (const ToolDrive drive : {ToolDrive::kDirect, ToolDrive::kCoupled}) {
    for (const bool is_heavy : {false, true}) {
      SceneDescription scene;
      scene.tools = {test::ToolAt("hook", {0, 0, 0.1}, drive)};
      BodyDescription block = RigidBox("block", {0, 0, 0}, is_heavy ? Vector3d(0.06, 0.06, 0.06) : Vector3d(0.03, 0.03, 0.03));
      block.material.mass_damping_per_s = 3;
      scene.bodies = {block};
      JointDescription hook;
      hook.name = "hook";
      hook.kind = JointKind::kFixed;
      hook.tool_a = 0;
      hook.body_b = 0;
      hook.point_a_m = hook.point_b_m = {0, 0, 0.1};
      scene.joints = {hook};
      const std::unique_ptr<World> world = Create(scene);
      ASSERT_NE(world, nullptr);
      std::vector<ToolCommand> commands(1);
      commands[0].device_pose = scene.tools[0].rest_pose;
      double worst_m = 0;
      for (int i = 0; i < 480; ++i) {
        const double t = std::clamp((i - 60) / 180.0, 0.0, 1.0);
        commands[0].device_pose.position_m = {0.2 * t, 0, 0.1 + 0.1 * t * (1 - t)};
        commands[0].device_pose.rotation = Eigen::AngleAxisd(0.6 * t, Vector3d::UnitY()) * scene.tools[0].rest_pose.rotation;
        worst_m = std::max(worst_m, test::Step(*world, commands)->joints[0].gap_m);
      }
      const Frame& frame = *world->CurrentFrame();
      const double weight_n = (is_heavy ? 0.216 : 0.027) * kGravity;
      SCOPED_TRACE(testing::Message() << (drive == ToolDrive::kDirect ? "direct" : "coupled") << (is_heavy ? " heavy" : " light"));
      EXPECT_LT(worst_m, 2e-6);
      EXPECT_NEAR(frame.tools[0].force_n.z(), -weight_n, 0.01 * weight_n);
      // Its arm: the block is 10 cm below the tip, turned by 0.6 rad.
      EXPECT_NEAR(frame.tools[0].torque_n_m.y(), -0.1 * std::sin(0.6) * weight_n, 0.02 * 0.1 * weight_n);
      const double sag_m = drive == ToolDrive::kDirect ? 0 : weight_n / scene.tools[0].coupling_stiffness_n_per_m;
      EXPECT_NEAR(frame.tools[0].pose.position_m.z(), 0.1 - sag_m, 0.01 * sag_m + 2e-5) << "the coupling is stretched by the weight";
      ASSERT_EQ(frame.local_models.size(), 1U);
      EXPECT_GT(frame.local_models[0].constraints.size(), 0U) << "a station renders the pull";
      EXPECT_LT(frame.max_speed_m_per_s, 1e-3);
    }
  }
}

TEST_F(Joints, AToolPullsTissueByAJoint) {
  SceneDescription scene = Strap();
  scene.bodies.pop_back();
  scene.joints.pop_back();
  scene.tools = {test::ToolAt("clamp", {0, 0, -0.07})};
  scene.tools[0].rest_pose.rotation = Eigen::AngleAxisd(std::numbers::pi, Vector3d::UnitX());  // its shaft points down
  JointDescription clamp;
  clamp.name = "clamp";
  clamp.tool_b = 0;
  clamp.body_a = 0;
  for (uint32_t v = 0; v < scene.bodies[0].mesh.vertices.size(); ++v) {
    if (scene.bodies[0].mesh.vertices[v].z() < -0.045) clamp.vertices_a.push_back(v);
  }
  clamp.point_a_m = clamp.point_b_m = {0, 0, -0.065};
  scene.joints.push_back(clamp);
  const std::unique_ptr<World> world = Create(scene);
  ASSERT_NE(world, nullptr);
  std::vector<ToolCommand> commands(1);
  commands[0].device_pose = scene.tools[0].rest_pose;
  for (int i = 0; i < 300; ++i) {
    commands[0].device_pose.position_m.z() = -0.07 - 0.01 * std::min(i / 60.0, 1.0);
    const Frame& frame = *test::Step(*world, commands);
    ASSERT_LT(frame.joints[1].gap_m, 2e-6) << "step " << i;
    if (i != 150) continue;
    // Other tets in the middle and among those that are held: the tool goes on where it was.
    const double height_m = frame.tools[0].pose.position_m.z(), force_n = frame.tools[0].force_n.z();
    const RefineEdit refine = {.region = BallRegion{{0, 0, -0.045}, 0.02}, .max_edge_m = 0.008};
    PALPATE_ASSERT_OK(world->Apply(std::vector<Edit>{{.body = 0, .what = refine}}).status());
    const Frame& next = *test::Step(*world, commands);
    EXPECT_FALSE(next.joints[1].is_broken);
    EXPECT_NEAR(next.tools[0].pose.position_m.z(), height_m, 1e-5);
    EXPECT_NEAR(next.tools[0].force_n.z(), force_n, 0.05 * force_n);
  }
  const Frame& frame = *world->CurrentFrame();
  // E A strain over the free length, in line with the coupling: the tool gives way by F / k.
  const double k_strap = 2e5 * 4e-4 / 0.1, k = scene.tools[0].coupling_stiffness_n_per_m;
  EXPECT_NEAR(frame.tools[0].force_n.z(), 0.01 / (1 / k_strap + 1 / k), 0.15 * 0.01 / (1 / k_strap + 1 / k));
  EXPECT_NEAR(frame.tools[0].pose.position_m.z() - commands[0].device_pose.position_m.z(), frame.tools[0].force_n.z() / k, 2e-4);
}

// A bar in two hands, one of each drive, on balls at its ends.
TEST_F(Joints, TwoToolsCarryOneBody) {
  SceneDescription scene;
  scene.tools = {test::ToolAt("left", {-0.05, 0, 0.1}, ToolDrive::kDirect), test::ToolAt("right", {0.05, 0, 0.1})};
  BodyDescription bar = RigidBox("bar", {0.01, 0, 0}, {0.12, 0.03, 0.03});
  bar.material.mass_damping_per_s = 3;
  scene.bodies = {bar};
  for (uint32_t t = 0; t < 2; ++t) {
    JointDescription grip;
    grip.name = scene.tools[t].name;
    grip.body_a = 0;
    grip.tool_b = t;
    grip.point_a_m = grip.point_b_m = scene.tools[t].rest_pose.position_m;
    scene.joints.push_back(grip);
  }
  std::unique_ptr<World> world = Create(scene);
  ASSERT_NE(world, nullptr);
  std::vector<ToolCommand> commands(2);
  const auto go_on = [&](World& of, int from, int to) {
    for (int i = from; i < to; ++i) {
      const double t = std::clamp((i - 30) / 120.0, 0.0, 1.0);
      for (size_t hand = 0; hand < 2; ++hand) {
        commands[hand].device_pose = scene.tools[hand].rest_pose;
        commands[hand].device_pose.position_m += Vector3d(0, 0.1 * t, 0.05 * t);
      }
      const Frame& frame = *test::Step(of, commands);
      for (const FrameJoint& grip : frame.joints) EXPECT_LT(grip.gap_m, 2e-6) << "in step " << i;
    }
    return of.CurrentFrame()->state_hash;
  };
  go_on(*world, 0, 100);
  // In the middle of their way, a state goes on with the same bits.
  const auto state = world->Capture();
  ASSERT_TRUE(state.ok()) << state.status();
  const uint64_t wanted = go_on(*world, 100, 120);
  auto restored = World::Restore(context(), scene, **state);
  ASSERT_TRUE(restored.ok()) << restored.status();
  world = *std::move(restored);
  EXPECT_EQ(go_on(*world, 100, 120), wanted);

  go_on(*world, 120, 480);
  const Frame& frame = *world->CurrentFrame();
  const double weight_n = 0.108 * kGravity;
  // The middle of the bar is nearer to the right hand: 6 of 10 cm.
  EXPECT_NEAR(frame.tools[0].force_n.z(), -0.4 * weight_n, 0.02 * weight_n);
  EXPECT_NEAR(frame.tools[1].force_n.z(), -0.6 * weight_n, 0.02 * weight_n);
  EXPECT_NEAR((frame.tools[0].force_n + frame.tools[1].force_n).z(), -weight_n, 0.01 * weight_n);
  EXPECT_NEAR(frame.tools[1].pose.position_m.z(), 0.15 - 0.6 * weight_n / scene.tools[1].coupling_stiffness_n_per_m, 1e-4);
  EXPECT_LT(frame.max_speed_m_per_s, 1e-3);
}

TEST_F(Joints, RegionsOfFixedVerticesOrOfTwoJointsAreRefused) {
  const auto refusal = [&](const SceneDescription& scene) { return std::string(World::Create(context(), scene).status().message()); };
  SceneDescription scene = Strap();
  scene.bodies[0].fixed_vertices = {scene.joints[1].vertices_a[0]};
  EXPECT_THAT(refusal(scene), HasSubstr("joints[1] (lower): region_a: vertex"));
  EXPECT_THAT(refusal(scene), HasSubstr("is in a fixed region"));
  scene = Strap();
  scene.joints[1].vertices_a = scene.joints[0].vertices_b;
  const std::unique_ptr<World> shared = Create(scene);
  EXPECT_NE(shared, nullptr) << "two joints may hold the same region";
  scene.joints[1].vertices_a.pop_back();
  EXPECT_THAT(refusal(scene), HasSubstr("is held by upper too"));
}

TEST_F(Joints, ToolsThatCannotCarryAreRefused) {
  SceneDescription scene = Scene({RigidBox("a", {0, 0, 0}, {0.1, 0.1, 0.1})}, {JointDescription{}});
  scene.tools = {test::ToolAt("hook", {0, 0, 0.1}), test::ToolAt("probe", {0, 0, 0.2})};
  scene.tools[1].response = ToolResponse::kProjection;
  JointDescription& joint = scene.joints[0];
  joint.name = "j";
  joint.body_a = 0;
  const auto refusal = [&] { return std::string(World::Create(context(), scene).status().message()); };
  joint.tool_b = 2;
  EXPECT_THAT(refusal(), HasSubstr("joints[0] (j): tool_b: is outside [0, 2)"));
  joint.tool_b = 1;
  EXPECT_THAT(refusal(), HasSubstr("tool_b: probe responds by projection, and cannot carry joints"));
  joint.tool_b = 0;
  EXPECT_EQ(refusal(), "");
  joint.tool_a = 0;
  EXPECT_THAT(refusal(), HasSubstr("tool_a: is outside [0, 2), or in the place of a body that is given"));
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
  EXPECT_THAT(refusal(joint), HasSubstr("joints[0] (j): body_b: the joint holds 0 vertices of b; it needs three or more"));
  joint.vertices_b = {0, 1};
  EXPECT_THAT(refusal(joint), HasSubstr("holds 2 vertices of b"));
  joint.vertices_b = {0, 2, 1};
  EXPECT_THAT(refusal(joint), HasSubstr("vertex 1 is none of b, or not ascending"));
  joint.vertices_b = {0, 1, 8};
  EXPECT_THAT(refusal(joint), HasSubstr("vertex 8 is none of b"));
  joint.body_b = 0;
  EXPECT_THAT(refusal(joint), HasSubstr("body_b: a is neither rigid, nor deformable"));
  joint.body_b = JointDescription::kWorld;
  joint.body_a = 0;
  EXPECT_THAT(refusal(joint), HasSubstr("body_b: the world has no vertices"));
  joint.body_a = JointDescription::kWorld;
  joint.vertices_b.clear();
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
}  // namespace palpate::sim::joints_test
