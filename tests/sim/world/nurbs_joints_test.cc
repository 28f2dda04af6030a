// Joints that hold NURBS shells, at places of the exact surface or by their control points; and shells that are sewn to tissue.
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <numbers>
#include <string>
#include <utility>
#include <vector>

#include "gpu/dynamics/nurbs_shell_correction.h"
#include "sim/nurbs/nurbs_shapes.h"
#include "sim/scene/nurbs_shell_body.h"
#include "sim/world/world.h"
#include "tests/sim/world/nurbs_shells.h"
#include "tests/sim/world/world_builders.h"
#include "tests/support/device_test.h"
#include "tests/support/trimmed_sheets.h"

namespace palpate::sim::nurbs_joints_test {
namespace {

using Eigen::Vector3d;
using testing::HasSubstr;

constexpr double kGravity = 9.81;

class NurbsJoints : public test::DeviceTest {
 protected:
  void Make(const SceneDescription& scene) { PALPATE_TEST_ASSIGN(world_, World::Create(context(), scene)); }
  const Frame& Run(int steps) {
    for (int i = 0; i < steps; ++i) {
      frame_ = test::Step(*world_, commands_);
      for (const FrameJoint& joint : frame_->joints) worst_gap_m_ = std::max(worst_gap_m_, joint.gap_m);
      intersections_ += frame_->contact_statistics.intersection_count;
    }
    return *frame_;
  }
  void TearDown() override {
    world_.reset();
    DeviceTest::TearDown();
  }

  std::vector<ToolCommand> commands_;
  std::unique_ptr<World> world_;
  std::shared_ptr<const Frame> frame_;
  double worst_gap_m_ = 0;
  uint32_t intersections_ = 0;
};

JointDescription Joint(const std::string& name, JointKind kind, const Vector3d& at) {
  JointDescription joint;
  joint.name = name;
  joint.kind = kind;
  joint.point_a_m = joint.point_b_m = at;
  return joint;
}

/// B of a joint is the surface of a shell at (u, v), where the joint is then.
void HoldAt(const BodyDescription& shell, uint32_t body, double u, double v, JointDescription* joint) {
  joint->body_b = body;
  joint->control_b = JointControlPointsAt(shell, 0, u, v);
  joint->point_a_m = joint->point_b_m = JointOriginOf(shell, joint->control_b);
}

BodyDescription Plate(double young_modulus_pa, size_t count, double damping_s = 0.002) {
  return test::ShellBody("plate", test::FlatSheet(count, count, 0.2, 0.1), {0, 0, 0}, test::ShellMaterial(young_modulus_pa, 0.3, damping_s),
                         0.002);
}
constexpr double kPlateMass_kg = 0.2 * 0.1 * 0.002 * 1000;

BodyDescription RigidBox(const std::string& name, const Vector3d& center_m, const Vector3d& size_m, double mass_kg) {
  BodyDescription body = test::BoxBody(name, center_m, {2, 2, 2}, size_m);
  body.kind = BodyKind::kRigid;
  body.self_collision = false;
  body.material.density_kg_per_m3 = mass_kg / size_m.prod();
  return body;
}

/// Where the exact surface of body 0 is, at the place that a joint holds.
Vector3d SurfacePoint(const Frame& frame, const std::vector<JointControlPoint>& control) {
  Vector3d point = Vector3d::Zero();
  for (const JointControlPoint& part : control) {
    for (int axis = 0; axis < 3; ++axis) point[axis] += part.place * frame.nurbs.control_m[0][3 * part.control + static_cast<size_t>(axis)];
  }
  return point;
}

/// Of the control points, at their lumped masses.
Vector3d MomentumOf(const NurbsShellDescription& shell, const Frame& before, const Frame& after, double dt_s) {
  Vector3d sum = Vector3d::Zero();
  for (size_t j = 0; j < shell.model->control_count(); ++j) {
    for (size_t axis = 0; axis < 3; ++axis) {
      sum[static_cast<Eigen::Index>(axis)] +=
          shell.model->mass_kg[j] * (after.nurbs.control_m[0][3 * j + axis] - before.nurbs.control_m[0][3 * j + axis]) / dt_s;
    }
  }
  return sum;
}

double ForcesUp(const Frame& frame) {
  double sum = 0;
  for (const FrameJoint& joint : frame.joints) sum += joint.force_n.z();
  return sum;
}

TEST_F(NurbsJoints, APlateOnAHingeSwingsAsAPendulum) {
  SceneDescription scene;
  scene.bodies = {test::ShellBody("plate", test::FlatSheet(14, 5, 0.2, 0.1), {0, 0, 0}, test::ShellMaterial(1e8, 0.3), 0.002)};
  scene.gravity_m_per_s2 = kGravity * Vector3d(std::cos(0.1), 0, -std::sin(0.1));
  JointDescription hinge = Joint("hinge", JointKind::kHinge, {0, 0, 0});
  HoldAt(scene.bodies[0], 0, 0.1, 0.5, &hinge);
  hinge.axis = {0, 1, 0};
  scene.joints = {hinge};
  Make(scene);
  const double arm_m = -hinge.point_a_m.x();
  const double expected_s = 2 * std::numbers::pi * std::sqrt((0.2 * 0.2 / 12 + arm_m * arm_m) / (kGravity * arm_m));
  std::vector<double> down_s;  // where it passes the middle on its way back
  double before = 0;
  for (int i = 0; i < 280; ++i) {
    const double angle = Run(1).joints[0].position - 0.1;
    if (before < 0 && angle >= 0) down_s.push_back((i + before / (before - angle)) * scene.dt_s);
    before = angle;
  }
  ASSERT_GE(down_s.size(), 3U);
  const double period_s = (down_s.back() - down_s.front()) / static_cast<double>(down_s.size() - 1);
  EXPECT_NEAR(period_s, expected_s, 0.02 * expected_s);
  EXPECT_LT(worst_gap_m_, 1e-7);
}

/// A ball joint with the world at each corner of the first body.
void HangFromCorners(SceneDescription* scene) {
  for (const double v : {0.0, 1.0}) {
    for (const double u : {0.0, 1.0}) {
      JointDescription ball = Joint("ball" + std::to_string(scene->joints.size()), JointKind::kBall, {0, 0, 0});
      HoldAt(scene->bodies[0], 0, u, v, &ball);
      scene->joints.push_back(ball);
    }
  }
}

// At its four corners, where one control point alone is at the place.
TEST_F(NurbsJoints, ASheetHangsFromItsCorners) {
  SceneDescription scene;
  scene.bodies = {Plate(1e6, 8)};
  HangFromCorners(&scene);
  Make(scene);
  const Frame& frame = Run(150);
  EXPECT_NEAR(ForcesUp(frame), kPlateMass_kg * kGravity, 0.01 * kPlateMass_kg * kGravity);
  EXPECT_NEAR(frame.joints[0].force_n.z(), kPlateMass_kg * kGravity / 4, 0.01 * kPlateMass_kg * kGravity);
  EXPECT_LT(worst_gap_m_, 1e-7);
  for (const JointDescription& joint : scene.joints) {
    EXPECT_LT((SurfacePoint(frame, joint.control_b) - joint.point_a_m).norm(), 1e-7) << "the exact surface is at the joint";
  }
  EXPECT_LT(frame.max_speed_m_per_s, 1e-4);
}

// A disc that a loop cuts out of a square hangs by joints at places all along its rim: Kirchhoff's plate with a supported rim.
TEST_F(NurbsJoints, ATrimmedDiscSagsAsAPlateThatItsRimSupports) {
  SceneDescription scene;
  constexpr double kSide_m = 0.1, kRadius = 0.43, kThickness_m = 0.002, kModulus_pa = 5e7, kPoisson = 0.3;
  const NurbsObject disc = test::TrimmedSheet(3, 7, kSide_m, {{test::CircleTrim({0.5, 0.5}, kRadius)}});
  scene.bodies = {test::ShellBody("disc", disc, {0, 0, 0}, test::ShellMaterial(kModulus_pa, kPoisson, 0.02), kThickness_m)};
  constexpr int kJoints = 24;
  for (int i = 0; i < kJoints; ++i) {
    const double angle = 2 * std::numbers::pi * i / kJoints;
    scene.joints.push_back(Joint("rim " + std::to_string(i), JointKind::kBall, {}));
    HoldAt(scene.bodies[0], 0, 0.5 + kRadius * std::cos(angle), 0.5 + kRadius * std::sin(angle), &scene.joints.back());
  }
  Make(scene);
  const Frame& frame = Run(60);
  EXPECT_LT(worst_gap_m_, 1e-6);
  const double radius_m = kRadius * kSide_m;
  const double weight_n = 1000 * kThickness_m * std::numbers::pi * radius_m * radius_m * kGravity;
  EXPECT_NEAR(ForcesUp(frame), weight_n, 0.01 * weight_n);
  const double plate_n_m = kModulus_pa * std::pow(kThickness_m, 3) / (12 * (1 - kPoisson * kPoisson));
  const double load_pa = 1000 * kThickness_m * kGravity;
  const double sag_m = (5 + kPoisson) / (1 + kPoisson) * load_pa * std::pow(radius_m, 4) / (64 * plate_n_m);
  std::vector<Vector3d> net;
  for (size_t j = 0; j < frame.nurbs.control_m[0].size(); j += 3) {
    net.emplace_back(frame.nurbs.control_m[0][j], frame.nurbs.control_m[0][j + 1], frame.nurbs.control_m[0][j + 2]);
  }
  EXPECT_GT(net.size(), scene.bodies[0].nurbs_shell->model->control_count()) << "some are cut away";
  const double middle_m = -disc.WithControlPoints(net).patches()[0].surface.Point(0.5, 0.5).z();
  EXPECT_NEAR(middle_m, sag_m, 0.01 * sag_m);
}

// One of so many control points that its corrections are solved by a sparse factor.
TEST_F(NurbsJoints, ALargeSheetHangsFromItsCorners) {
  SceneDescription scene;
  scene.bodies = {Plate(1e6, 26)};
  scene.bodies[0].self_collision = false;
  ASSERT_GT(scene.bodies[0].nurbs_shell->model->control_count(), gpu::kMaxNurbsDense);
  HangFromCorners(&scene);
  Make(scene);
  const Frame& frame = Run(90);
  EXPECT_NEAR(ForcesUp(frame), kPlateMass_kg * kGravity, 0.01 * kPlateMass_kg * kGravity);
  EXPECT_LT(worst_gap_m_, 1e-7);
}

// 100 times its own weight; the sheet is bent by it and stretched.
TEST_F(NurbsJoints, ASheetCarriesAHeavyBodyAtItsMiddle) {
  const double mass_kg = 100 * kPlateMass_kg;
  SceneDescription scene;
  scene.bodies = {test::ShellBody("plate", test::FlatSheet(8, 8, 0.2, 0.1), {0, 0, 0}, test::ShellMaterial(3e8, 0.3, 0.01), 0.002,
                                  [](const Vector3d& p) { return std::abs(p.x()) > 0.085; }),
                  RigidBox("block", {0, 0, -0.05}, {0.04, 0.04, 0.04}, mass_kg)};
  scene.bodies[1].material.mass_damping_per_s = 3;
  JointDescription ball = Joint("ball", JointKind::kBall, {0, 0, 0});
  HoldAt(scene.bodies[0], 0, 0.4, 0.5, &ball);
  ball.body_a = 1;
  scene.joints = {ball};
  Make(scene);
  const Frame& frame = Run(240);
  EXPECT_NEAR(frame.joints[0].force_n.z(), -mass_kg * kGravity, 0.01 * mass_kg * kGravity) << "on the sheet";
  EXPECT_LT(frame.joints[0].point_m.z(), -0.005) << "it sags";
  EXPECT_LT(worst_gap_m_, 1e-4 * 0.2);
  EXPECT_LT(worst_gap_m_, 1e-7);
}

/// A plate with a block of 100 times its mass below it, welded to its middle, that moves along x; joints hold it at places of the plate.
SceneDescription Carriage(const Vector3d& velocity_m_per_s) {
  SceneDescription scene;
  scene.bodies = {Plate(1e9, 8, 0.01), RigidBox("block", {0, 0, -0.03}, {0.04, 0.04, 0.04}, 100 * kPlateMass_kg)};
  scene.bodies[1].material.mass_damping_per_s = 0;
  for (BodyDescription& body : scene.bodies) body.velocity_m_per_s = velocity_m_per_s;
  JointDescription weld = Joint("weld", JointKind::kFixed, {0, 0, 0});
  HoldAt(scene.bodies[0], 0, 0.5, 0.5, &weld);
  weld.body_a = 1;
  weld.ignores_contact = true;
  scene.joints = {weld};
  return scene;
}
constexpr double kCarriageMass_kg = 101 * kPlateMass_kg;

// Three places of a plate slide on a plane of the world, which bears it and a heavy block.
TEST_F(NurbsJoints, PlanesBearAPlateThatSlides) {
  SceneDescription scene = Carriage({0.1, 0.05, 0});
  for (const auto& [u, v] : {std::pair(0.4, 0.2), std::pair(0.4, 0.8), std::pair(0.65, 0.5)}) {
    JointDescription plane = Joint("plane" + std::to_string(scene.joints.size()), JointKind::kPlane, {0, 0, 0});
    HoldAt(scene.bodies[0], 0, u, v, &plane);
    plane.axis = {0, 0, 1};
    scene.joints.push_back(plane);
  }
  Make(scene);
  const Frame& frame = Run(120);
  const double load_n = ForcesUp(frame) - frame.joints[0].force_n.z();  // without the weld
  EXPECT_NEAR(load_n, kCarriageMass_kg * kGravity, 0.01 * kCarriageMass_kg * kGravity);
  EXPECT_LT(worst_gap_m_, 1e-6);
  for (size_t j = 1; j < scene.joints.size(); ++j) {
    const Vector3d moved = SurfacePoint(frame, scene.joints[j].control_b) - scene.joints[j].point_b_m;
    EXPECT_NEAR(moved.x(), 0.1, 0.002) << j;
    EXPECT_NEAR(moved.y(), 0.05, 0.002) << j;
    EXPECT_LT(std::abs(moved.z()), 1e-6) << j;
  }
}

// Two places on rails along x; the block below them keeps the plate level.
TEST_F(NurbsJoints, LinesBearAPlateThatSlides) {
  SceneDescription scene = Carriage({0.1, 0, 0});
  for (const double v : {0.0, 1.0}) {
    JointDescription line = Joint("line" + std::to_string(scene.joints.size()), JointKind::kLine, {0, 0, 0});
    HoldAt(scene.bodies[0], 0, 0.5, v, &line);
    line.axis = {1, 0, 0};
    scene.joints.push_back(line);
  }
  Make(scene);
  const Frame& frame = Run(120);
  EXPECT_NEAR(ForcesUp(frame) - frame.joints[0].force_n.z(), kCarriageMass_kg * kGravity, 0.01 * kCarriageMass_kg * kGravity);
  EXPECT_LT(worst_gap_m_, 1e-6);
  for (size_t j = 1; j < scene.joints.size(); ++j) {
    const Vector3d moved = SurfacePoint(frame, scene.joints[j].control_b) - scene.joints[j].point_b_m;
    EXPECT_NEAR(moved.x(), 0.1, 0.002) << j;
    EXPECT_LT(moved.tail<2>().norm(), 1e-6) << j;
    EXPECT_LT(std::abs(frame.joints[j].force_n.x()), 0.001 * kCarriageMass_kg * kGravity) << "nothing acts along the line";
  }
}

// On a slope the slider lets the plate go as far as its limit, which then bears what the slope leaves, and turns nowhere.
TEST_F(NurbsJoints, ASliderHoldsAPlateAtItsLimit) {
  SceneDescription scene = Carriage({0, 0, 0});
  scene.gravity_m_per_s2 = {2, 0, -9.6};
  JointDescription slider = Joint("slider", JointKind::kSlider, {0, 0, 0});
  HoldAt(scene.bodies[0], 0, 0.4, 0.5, &slider);
  slider.axis = {1, 0, 0};
  slider.lower = -0.02;
  slider.upper = 0.02;
  scene.joints.push_back(slider);
  Make(scene);
  EXPECT_NEAR(Run(12).joints[1].position, 0.5 * 2 * 0.01, 0.002) << "it falls along the slope";
  const Frame& frame = Run(150);
  EXPECT_NEAR(frame.joints[1].position, 0.02, 1e-5);
  EXPECT_NEAR(frame.joints[1].force_n.x(), -2 * kCarriageMass_kg, 0.02 * kCarriageMass_kg);
  EXPECT_NEAR(frame.joints[1].force_n.z(), 9.6 * kCarriageMass_kg, 0.01 * 9.6 * kCarriageMass_kg);
  EXPECT_LT(worst_gap_m_, 1e-6);
  EXPECT_LT(frame.joints[1].gap_rad, 1e-5);
}

// Welded, thrown and turning: nothing acts from outside.
TEST_F(NurbsJoints, JoinedBodiesKeepTheirMomentum) {
  SceneDescription scene;
  scene.gravity_m_per_s2 = Vector3d::Zero();
  scene.bodies = {Plate(1e6, 6), RigidBox("block", {0.14, 0, 0}, {0.04, 0.04, 0.04}, 0.1)};
  scene.bodies[1].velocity_m_per_s = {0, 0.1, 0.4};
  JointDescription weld = Joint("weld", JointKind::kFixed, {0, 0, 0});
  HoldAt(scene.bodies[0], 0, 1, 0.5, &weld);
  weld.body_a = 1;
  scene.joints = {weld};
  Make(scene);
  std::shared_ptr<const Frame> before = world_->CurrentFrame();
  const auto block_m = [](const Frame& frame) {
    Vector3d sum = Vector3d::Zero();
    for (size_t k = 0; k < frame.surface_positions_m[1].size(); ++k)
      sum[static_cast<Eigen::Index>(k % 3)] += frame.surface_positions_m[1][k];
    return Vector3d(3 * sum / static_cast<double>(frame.surface_positions_m[1].size()));
  };
  const Vector3d wanted(0, 0.01, 0.04);
  for (int i = 0; i < 100; ++i) {
    const Frame& frame = Run(1);
    const Vector3d momentum =
        MomentumOf(*scene.bodies[0].nurbs_shell, *before, frame, scene.dt_s) + 0.1 * (block_m(frame) - block_m(*before)) / scene.dt_s;
    before = frame_;
    const double off = (momentum - wanted).norm();
    EXPECT_LT(i > 1 ? off : 0, 0.002 * wanted.norm()) << "step " << i << ": " << momentum.transpose();
    EXPECT_LT(frame.joints[0].gap_rad, 1e-5);
  }
  EXPECT_LT(worst_gap_m_, 1e-7);
}

// What falls on a sheet that hangs from its corners: joints, contact and the sheet at once.
TEST_F(NurbsJoints, AHangingSheetCatchesABox) {
  SceneDescription scene;
  scene.contact.check_intersections = true;
  scene.bodies = {Plate(2e6, 8, 0.01), RigidBox("box", {0.01, 0, 0.025}, {0.04, 0.04, 0.04}, 0.08)};
  scene.bodies[1].material.mass_damping_per_s = 1;
  HangFromCorners(&scene);
  Make(scene);
  const Frame& frame = Run(300);
  const double weight_n = (kPlateMass_kg + 0.08) * kGravity;
  EXPECT_NEAR(ForcesUp(frame), weight_n, 0.02 * weight_n);
  EXPECT_EQ(intersections_, 0U);
  EXPECT_LT(worst_gap_m_, 1e-4 * 0.2);
  EXPECT_GT(frame.surface_positions_m[1][2], -0.1f);
}

// A sleeve's rim, held by its control points, goes with a tool; the rest hangs from it, as heavy as it is.
TEST_F(NurbsJoints, AToolCarriesARegionOfControlPoints) {
  for (const ToolDrive drive : {ToolDrive::kDirect, ToolDrive::kCoupled}) {
    SceneDescription scene;
    scene.bodies = {Plate(1e6, 7, 0.01)};
    scene.bodies[0].material.mass_damping_per_s = 2;
    scene.tools = {test::ToolAt("holder", {-0.1, 0, 0.05}, drive)};
    JointDescription grip = Joint("grip", JointKind::kFixed, {-0.1, 0, 0});
    grip.tool_a = 0;
    grip.body_b = 0;
    std::vector<uint32_t> rim;
    const auto& rest_m = scene.bodies[0].nurbs_shell->model->rest_m;
    for (uint32_t j = 0; j < rest_m.size(); ++j) {
      if (rest_m[j][0] < -0.07) rim.push_back(j);
    }
    grip.control_b = JointControlPointsOf(scene.bodies[0], rim);
    scene.joints = {grip};
    Make(scene);
    commands_.assign(1, {});
    commands_[0].device_pose = scene.tools[0].rest_pose;
    for (int i = 0; i < 300; ++i) {
      const double t = std::clamp((i - 30) / 120.0, 0.0, 1.0);
      commands_[0].device_pose.position_m = {-0.1, 0.05 * t, 0.05 + 0.03 * t};
      Run(1);
    }
    SCOPED_TRACE(drive == ToolDrive::kDirect ? "direct" : "coupled");
    EXPECT_NEAR(frame_->tools[0].force_n.z(), -kPlateMass_kg * kGravity, 0.02 * kPlateMass_kg * kGravity);
    EXPECT_LT(worst_gap_m_, 2e-6);
    EXPECT_NEAR(frame_->joints[0].point_m.y(), 0.05, 1e-3);
  }
}

// Motors, springs, release, breaking and states, on one sheet.
TEST_F(NurbsJoints, DrivesEditsAndStatesAreThoseOfOtherJoints) {
  SceneDescription scene;
  scene.bodies = {Plate(1e7, 7, 0.01)};
  scene.gravity_m_per_s2 = {0, 0, -1};
  JointDescription hinge = Joint("hinge", JointKind::kHinge, {0, 0, 0});
  HoldAt(scene.bodies[0], 0, 0, 0.5, &hinge);
  hinge.axis = {0, 1, 0};
  hinge.drive = {.kind = JointDriveDescription::Kind::kMotor, .speed = -1};
  hinge.upper = 0.5;
  scene.joints = {hinge};
  Make(scene);
  const auto apply = [&](JointEdit edit) { return world_->Apply(std::vector<Edit>{{.what = std::move(edit)}}).status(); };
  EXPECT_NEAR(Run(60).joints[0].position, -0.5, 1e-3);
  PALPATE_ASSERT_OK(apply({.drive = {.kind = JointDriveDescription::Kind::kMotor, .speed = 2}}));
  Run(20);
  const auto state = world_->Capture();
  ASSERT_TRUE(state.ok()) << state.status();
  EXPECT_NEAR(Run(60).joints[0].position, 0.5, 1e-3) << "at its limit";
  EXPECT_LT(worst_gap_m_, 1e-6);
  const uint64_t wanted = frame_->state_hash;
  PALPATE_TEST_ASSIGN(world_, World::Restore(context(), scene, **state));
  EXPECT_EQ(Run(60).state_hash, wanted);
  PALPATE_ASSERT_OK(apply({.is_released = true}));
  const double height_m = Run(1).joints[0].point_m.z();
  EXPECT_LT(Run(40).joints[0].point_m.z(), height_m - 0.04) << "it falls";
  EXPECT_EQ(frame_->joints[0].force_n.norm(), 0);
  PALPATE_ASSERT_OK(world_->Reset().status());
  EXPECT_NEAR(Run(60).joints[0].position, -0.5, 1e-3);
  // The plate weighs 0.04 N here.
  scene.joints[0].drive = {};
  scene.joints[0].break_force_n = 0.02;
  Make(scene);
  EXPECT_TRUE(Run(30).joints[0].is_broken);
}

TEST_F(NurbsJoints, WhatCannotBeHeldIsRefusedByName) {
  SceneDescription scene;
  scene.bodies = {test::ShellBody("plate", test::FlatSheet(6, 6, 0.2, 0.1), {0, 0, 0}, test::ShellMaterial(1e6, 0.3), 0.002,
                                  [](const Vector3d& p) { return p.x() < -0.09; }),
                  RigidBox("block", {0, 0, 1}, {0.1, 0.1, 0.1}, 1)};
  scene.joints = {Joint("j", JointKind::kBall, {0, 0, 0})};
  const auto refusal = [&] { return std::string(World::Create(context(), scene).status().message()); };
  JointDescription& joint = scene.joints[0];
  HoldAt(scene.bodies[0], 0, 0.6, 0.5, &joint);
  EXPECT_EQ(refusal(), "");
  joint.control_b.clear();
  EXPECT_THAT(refusal(), HasSubstr("joints[0] (j): body_b: the joint holds 0 control points of plate; it needs three or more"));
  joint.vertices_b = {0, 1, 9};
  EXPECT_THAT(refusal(), HasSubstr("body_b: plate is a NURBS shell: joints hold its control points, not vertices"));
  joint.vertices_b.clear();
  HoldAt(scene.bodies[0], 0, 0, 0.5, &joint);
  EXPECT_THAT(refusal(), HasSubstr("of plate is in a fixed region"));
  HoldAt(scene.bodies[0], 0, 0.6, 0.5, &joint);
  joint.control_b.back().control = 36;
  EXPECT_THAT(refusal(), HasSubstr("control point 36 is none of plate"));
  HoldAt(scene.bodies[0], 0, 0.6, 0.5, &joint);
  joint.body_b = 1;
  EXPECT_THAT(refusal(), HasSubstr("body_b: block is no NURBS shell, and has no control points"));
  joint.body_b = JointDescription::kWorld;
  joint.body_a = 1;
  EXPECT_THAT(refusal(), HasSubstr("body_b: the world has no control points"));
}

/// A strip of a NURBS shell under a block of tissue, sewn to it along one edge; it hangs from the tissue, which feels it.
TEST_F(NurbsJoints, AShellThatIsSewnToTissueFollowsItAndIsFelt) {
  SceneDescription scene;
  scene.contact.margin_m = 0.0005;
  scene.contact.check_intersections = true;
  BodyDescription block = test::BoxBody("block", {0, 0, 0.0125}, {5, 5, 3}, {0.04, 0.05, 0.02});
  block.material.young_modulus_pa = 20000;
  for (uint32_t v = 0; v < block.mesh.vertices.size(); ++v) {
    if (block.mesh.vertices[v].z() > 0.0224) block.fixed_vertices.push_back(v);
  }
  Material soft = test::ShellMaterial(1e5, 0.3, 0.01);
  soft.mass_damping_per_s = 5;
  BodyDescription strip = test::ShellBody("strip", test::FlatSheet(7, 5, 0.06, 0.03), {0.03, 0, 0}, soft, 0.0005);
  SutureDescription suture{.body_a = 0, .body_b = 1, .vertices = {}, .reach_m = 0.004};
  std::swap(suture.body_a, suture.body_b);
  for (uint32_t v = 0; v < strip.mesh.vertices.size(); ++v) {
    if (strip.mesh.vertices[v].x() < 1e-6) suture.vertices.push_back(v);
  }
  ASSERT_GT(suture.vertices.size(), 4U);
  scene.bodies = {block, strip};
  scene.sutures = {suture};
  Make(scene);
  Run(400);
  EXPECT_EQ(intersections_, 0U);
  ASSERT_EQ(frame_->stitches.size(), suture.vertices.size());
  double most_m = 0, lowest_m = 0;
  for (const FrameStitch& stitch : frame_->stitches) most_m = std::max(most_m, (stitch.point_b_m - stitch.point_a_m).norm());
  for (size_t k = 2; k < frame_->nurbs.control_m[1].size(); k += 3) lowest_m = std::min<double>(lowest_m, frame_->nurbs.control_m[1][k]);
  EXPECT_LT(most_m, 0.004);
  EXPECT_LT(lowest_m, -0.04) << "it hangs down";
  EXPECT_LT(frame_->max_speed_m_per_s, 2e-3);
  for (const FrameStitch& stitch : frame_->stitches) EXPECT_GT(stitch.point_a_m.z(), -0.004) << "the edge stays with the block";
}

}  // namespace
}  // namespace palpate::sim::nurbs_joints_test
