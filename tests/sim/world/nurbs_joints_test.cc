// Joints that hold NURBS shells, at places of the exact surface or by their control points; and shells that are sewn to tissue.
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <numbers>
#include <string>
#include <utility>
#include <vector>

#include "sim/nurbs/nurbs_shapes.h"
#include "sim/scene/nurbs_shell_body.h"
#include "sim/world/world.h"
#include "tests/sim/world/nurbs_shells.h"
#include "tests/sim/world/world_builders.h"
#include "tests/support/device_test.h"

namespace palpate::sim {
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
  for (int i = 0; i < 600; ++i) {
    const double angle = Run(1).joints[0].position - 0.1;
    if (i % 20 == 0)
      std::printf("%d %.5f gap %.2e f %.3f %.3f %.3f\n", i, angle, frame_->joints[0].gap_m, frame_->joints[0].force_n.x(),
                  frame_->joints[0].force_n.y(), frame_->joints[0].force_n.z());
    if (before < 0 && angle >= 0) down_s.push_back((i + before / (before - angle)) * scene.dt_s);
    before = angle;
  }
  ASSERT_GE(down_s.size(), 4U);
  const double period_s = (down_s.back() - down_s.front()) / static_cast<double>(down_s.size() - 1);
  std::printf("period %.5f expected %.5f gap %.2e\n", period_s, expected_s, worst_gap_m_);
  EXPECT_NEAR(period_s, expected_s, 0.02 * expected_s);
  EXPECT_LT(worst_gap_m_, 2e-6);
}

TEST_F(NurbsJoints, ASheetHangsFromBalls) {
  SceneDescription scene;
  scene.bodies = {Plate(1e6, 8)};
  for (const double v : {0.0, 1.0}) {
    for (const double u : {0.0, 1.0}) {
      JointDescription ball = Joint("ball" + std::to_string(scene.joints.size()), JointKind::kBall, {0, 0, 0});
      HoldAt(scene.bodies[0], 0, u, v, &ball);
      scene.joints.push_back(ball);
    }
  }
  Make(scene);
  for (int i = 0; i < 24; ++i) {
    const Frame& frame = Run(10);
    double sum = 0;
    for (const FrameJoint& joint : frame.joints) sum += joint.force_n.z();
    std::printf("%d sum/weight %.5f gap %.2e speed %.2e\n", i, sum / (kPlateMass_kg * kGravity), worst_gap_m_, frame.max_speed_m_per_s);
  }
  double sum = 0;
  for (const FrameJoint& joint : frame_->joints) sum += joint.force_n.z();
  EXPECT_NEAR(sum, kPlateMass_kg * kGravity, 0.01 * kPlateMass_kg * kGravity);
  EXPECT_LT(worst_gap_m_, 2e-6);
}

TEST_F(NurbsJoints, ASheetCarriesAHeavyBodyAtItsMiddle) {
  SceneDescription scene;
  scene.bodies = {test::ShellBody("plate", test::FlatSheet(8, 8, 0.2, 0.1), {0, 0, 0}, test::ShellMaterial(3e8, 0.3, 0.01), 0.002,
                                  [](const Vector3d& p) { return std::abs(p.x()) > 0.085; })};
  BodyDescription block = test::BoxBody("block", {0, 0, -0.05}, {2, 2, 2}, {0.04, 0.04, 0.04});
  block.kind = BodyKind::kRigid;
  block.self_collision = false;
  block.material.density_kg_per_m3 = 100 * kPlateMass_kg / std::pow(0.04, 3);
  block.material.mass_damping_per_s = 3;
  scene.bodies.push_back(block);
  JointDescription ball = Joint("ball", JointKind::kBall, {0, 0, 0});
  HoldAt(scene.bodies[0], 0, 0.4, 0.5, &ball);
  ball.body_a = 1;
  scene.joints = {ball};
  Make(scene);
  for (int i = 0; i < 30; ++i) {
    const Frame& frame = Run(10);
    std::printf("%d force/weight %.5f gap %.2e speed %.2e z %.5f\n", i, frame.joints[0].force_n.z() / (100 * kPlateMass_kg * kGravity),
                worst_gap_m_, frame.max_speed_m_per_s, frame.joints[0].point_m.z());
  }
  EXPECT_NEAR(frame_->joints[0].force_n.z(), -100 * kPlateMass_kg * kGravity, 0.01 * 100 * kPlateMass_kg * kGravity);
  EXPECT_LT(worst_gap_m_, 2e-5);
}

}  // namespace
}  // namespace palpate::sim
