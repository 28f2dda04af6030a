// Restitution, air, and bodies that ignore each other, in live scenes.
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <numbers>
#include <string>
#include <vector>

#include "sim/mesh/generators.h"
#include "sim/world/world.h"
#include "tests/sim/world/world_builders.h"
#include "tests/support/device_test.h"

namespace palpate::sim::forces_test {
namespace {

using Eigen::Vector3d;
using test::BoxBody;
using testing::HasSubstr;

constexpr double kGravity = 9.81;
constexpr double kDt = 1.0 / 120;

BodyDescription RigidBox(const std::string& name, const Vector3d& center_m, const Vector3d& size_m) {
  BodyDescription body = BoxBody(name, center_m, {2, 2, 2}, size_m);
  body.kind = BodyKind::kRigid;
  body.self_collision = false;
  body.material.density_kg_per_m3 = 1000;
  return body;
}

BodyDescription RigidBall(const std::string& name, const Vector3d& center_m, double radius_m, double edge_m) {
  BodyDescription body = RigidBox(name, center_m, {1, 1, 1});
  body.mesh = *GenerateSphere(radius_m, edge_m);
  for (Vector3d& v : body.mesh.vertices) v += center_m;
  return body;
}

class Forces : public test::DeviceTest {
 protected:
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
  /// Mean of the surface, which of these bodies is the centre of mass.
  static Vector3d CenterOf(const Frame& frame, size_t body) {
    const auto& positions = frame.surface_positions_m[body];
    Vector3d sum = Vector3d::Zero();
    for (size_t i = 0; i + 2 < positions.size(); i += 3) sum += Vector3d(positions[i], positions[i + 1], positions[i + 2]);
    return sum / (static_cast<double>(positions.size()) / 3);
  }
};

// How high a body comes after its fall is e^2 of the height it fell from: onto a plane, a static body and a heavy one.
TEST_F(Forces, ABodyBouncesToTheSquareOfItsRestitution) {
  for (const std::string floor : {"plane", "static", "heavy"}) {
    for (const double e : {0.5, 0.9}) {
      SceneDescription scene;
      scene.contact.friction = scene.contact.surface_friction = 0;
      BodyDescription box = RigidBox("box", {0, 0, 0.52}, {0.04, 0.04, 0.04});
      box.restitution = e;
      scene.bodies = {box};
      const double top_m = 0;
      if (floor == "plane") scene.obstacles.push_back({.name = "floor", .shape = PlaneShape{}});
      if (floor != "plane") {
        BodyDescription under = RigidBox("floor", {0, 0, -0.05}, {0.6, 0.6, 0.1});
        if (floor == "static") under.kind = BodyKind::kStatic;
        under.material.density_kg_per_m3 = 2e5;
        scene.bodies.push_back(under);
        if (floor == "heavy") {
          JointDescription hold;  // to the world
          hold.name = "hold";
          hold.kind = JointKind::kFixed;
          hold.body_b = 1;
          scene.joints = {hold};
        }
      }
      const std::unique_ptr<World> world = Create(scene);
      ASSERT_NE(world, nullptr);
      double highest_m = 0;
      bool has_landed = false;
      for (int i = 0; i < 110; ++i) {
        const double bottom_m = CenterOf(Run(*world, 1), 0).z() - 0.02 - top_m;
        has_landed |= bottom_m < 0.02;
        if (has_landed) highest_m = std::max(highest_m, bottom_m);
      }
      EXPECT_NEAR(highest_m, e * e * 0.5, 0.07 * 0.5) << floor << " " << e;
    }
  }
}

// Five blocks on rods, which hit each other straight with their faces: the last one swings as high as the first came from, the others stay,
// and it goes on so.
TEST_F(Forces, NewtonsCradleHandsTheSwingOn) {
  constexpr double kHalf_m = 0.02, kLength_m = 0.3;
  SceneDescription scene;
  scene.contact.friction = scene.contact.surface_friction = 0;
  scene.contact.margin_m = 2e-4;
  const double space_m = 2 * kHalf_m + 3e-4;
  const double angle = 0.5;
  for (int i = 0; i < 5; ++i) {
    const Vector3d hook{i * space_m, 0, kLength_m};
    const Vector3d rope = i == 0 ? Vector3d(-std::sin(angle), 0, -std::cos(angle)) : Vector3d(0, 0, -1);
    BodyDescription block = RigidBox("block" + std::to_string(i), hook + kLength_m * rope, Vector3d::Constant(2 * kHalf_m));
    block.restitution = 1;
    scene.bodies.push_back(block);
    for (const double y : {-0.1, 0.1}) {
      JointDescription rod;
      rod.name = "rod" + std::to_string(i) + (y < 0 ? "a" : "b");
      rod.kind = JointKind::kDistance;
      rod.body_b = static_cast<uint32_t>(i);
      rod.point_a_m = hook + Vector3d(0, y, 0);
      rod.point_b_m = hook + kLength_m * rope;
      rod.lower = rod.upper = (rod.point_a_m - rod.point_b_m).norm();
      scene.joints.push_back(rod);
    }
  }
  const std::unique_ptr<World> world = Create(scene);
  ASSERT_NE(world, nullptr);
  const double height_m = kLength_m * (1 - std::cos(angle));
  double first_m = 0, last_m = 0, between_m = 0, back_m = 0;
  const double period_s = 2 * std::numbers::pi * std::sqrt(kLength_m / kGravity) * (1 + angle * angle / 16);
  const auto height = [&](const Frame& frame, size_t block) { return CenterOf(frame, block).z(); };
  for (int i = 0; i < static_cast<int>(period_s / kDt); ++i) {
    const Frame& frame = Run(*world, 1);
    const double t = i * kDt;
    if (t > 0.3 * period_s && t < 0.7 * period_s) {
      last_m = std::max(last_m, height(frame, 4));
      first_m = std::max(first_m, height(frame, 0));
      for (size_t k = 1; k < 4; ++k) between_m = std::max(between_m, height(frame, k));
    }
    if (t > 0.8 * period_s) back_m = std::max(back_m, height(frame, 0));
  }
  EXPECT_NEAR(last_m, height_m, 0.1 * height_m);
  EXPECT_LT(first_m, 0.05 * height_m);
  EXPECT_LT(between_m, 0.05 * height_m);
  EXPECT_GT(back_m, 0.2 * height_m) << "not all at once any more: blocks begin to turn, but the swing comes back";
  EXPECT_LT(back_m, 1.02 * height_m);
}

// A ball falls as fast as its weight is the drag, C A rho v^2 / 2 with its cross section; a plate with its area, on both sides.
TEST_F(Forces, AirBearsAFallAtItsFinalSpeed) {
  constexpr double kRadius_m = 0.05, kDensity = 20, kDrag = 0.8;
  SceneDescription scene;
  scene.wind.density_kg_per_m3 = 5;
  BodyDescription ball = RigidBall("ball", {0, 0, 0}, kRadius_m, 0.012);
  ball.material.density_kg_per_m3 = kDensity;
  ball.drag_coefficient = kDrag;
  BodyDescription plate = RigidBox("plate", {1, 0, 0}, {0.2, 0.1, 0.004});
  plate.material.density_kg_per_m3 = 500;
  plate.drag_coefficient = kDrag;
  BodyDescription sponge = BoxBody("sponge", {2, 0, 0}, {4, 4, 2}, {0.2, 0.2, 0.02});
  sponge.material.density_kg_per_m3 = 30;
  sponge.material.mass_damping_per_s = 0;
  sponge.drag_coefficient = kDrag;
  BodyDescription stone = RigidBox("stone", {3, 0, 0}, {0.1, 0.1, 0.1});
  scene.bodies = {ball, plate, sponge, stone};
  const std::unique_ptr<World> world = Create(scene);
  ASSERT_NE(world, nullptr);
  Run(*world, 480);
  const std::vector<Vector3d> from = {CenterOf(*world->CurrentFrame(), 0), CenterOf(*world->CurrentFrame(), 1),
                                      CenterOf(*world->CurrentFrame(), 2), CenterOf(*world->CurrentFrame(), 3)};
  Run(*world, 60);
  const auto speed = [&](size_t body) { return (from[body] - CenterOf(*world->CurrentFrame(), body)).z() / 0.5; };
  const double of_ball = std::sqrt(4.0 / 3 * kRadius_m * kDensity * kGravity / (0.5 * kDrag * 5));
  EXPECT_NEAR(speed(0), of_ball, 0.02 * of_ball);
  const double of_plate = std::sqrt(500 * 0.004 * kGravity / (2 * 0.5 * kDrag * 5));
  EXPECT_NEAR(speed(1), of_plate, 0.01 * of_plate);
  const double of_sponge = std::sqrt(30 * 0.02 * kGravity / (2 * 0.5 * kDrag * 5));
  EXPECT_NEAR(speed(2), of_sponge, 0.02 * of_sponge);
  EXPECT_NEAR(speed(3), kGravity * 4.25, 0.01 * kGravity * 4.25) << "without a coefficient nothing is felt";
  EXPECT_NEAR(CenterOf(*world->CurrentFrame(), 1).x(), 1, 1e-3);
}

// The wind takes a body along until it moves as the air does; its times are those of the scene.
TEST_F(Forces, WindTakesBodiesAlong) {
  SceneDescription scene;
  scene.gravity_m_per_s2 = Vector3d::Zero();
  scene.wind.times_s = {1, 2};
  scene.wind.velocities_m_per_s = {{0, 0, 0}, {3, 0, 0}};
  scene.wind.density_kg_per_m3 = 50;
  BodyDescription box = RigidBox("box", {0, 0, 0}, {0.1, 0.1, 0.1});
  box.material.density_kg_per_m3 = 20;
  box.drag_coefficient = 1;
  scene.bodies = {box};
  const std::unique_ptr<World> world = Create(scene);
  ASSERT_NE(world, nullptr);
  EXPECT_LT(CenterOf(Run(*world, 120), 0).norm(), 1e-6);
  Run(*world, 360);
  const double before_m = CenterOf(*world->CurrentFrame(), 0).x();
  EXPECT_NEAR((CenterOf(Run(*world, 60), 0).x() - before_m) / 0.5, 3, 0.15);
  PALPATE_ASSERT_OK(world->Reset().status());
  EXPECT_LT(CenterOf(Run(*world, 120), 0).norm(), 1e-6) << "from the start";
}

// A pin through a plate: only where both are said to ignore each other nothing pushes, and other bodies still meet them.
TEST_F(Forces, JoinedBodiesIgnoreEachOtherAndNothingElse) {
  SceneDescription scene;
  scene.contact.check_intersections = true;
  scene.bodies = {RigidBox("plate", {0, 0, 0}, {0.2, 0.2, 0.02}), RigidBox("pin", {0, 0, 0}, {0.02, 0.02, 0.2}),
                  RigidBox("stone", {0.06, 0, 0.06}, {0.04, 0.04, 0.04})};
  JointDescription wheel;
  wheel.name = "wheel";
  wheel.kind = JointKind::kHinge;
  wheel.body_a = 1;
  wheel.body_b = 0;
  wheel.drive = {.kind = JointDriveDescription::Kind::kMotor, .speed = 1};
  JointDescription hold;
  hold.name = "hold";
  hold.kind = JointKind::kFixed;
  hold.body_b = 1;
  scene.joints = {wheel, hold};
  scene.joints[0].ignores_contact = true;
  const std::unique_ptr<World> world = Create(scene);
  ASSERT_NE(world, nullptr);
  double weight_n = 0;
  for (int i = 0; i < 60; ++i) {
    const Frame& frame = Run(*world, 1);
    EXPECT_EQ(frame.contact_statistics.intersection_count, 0U);
    weight_n = 0;
    for (const FrameSurfaceContact& contact : frame.surface_contacts) {
      EXPECT_EQ(contact.body_a == 2 || contact.body_b == 2, true) << contact.body_a << " " << contact.body_b;
      weight_n += std::abs(contact.force_n.z());
    }
  }
  EXPECT_NEAR(world->CurrentFrame()->joints[0].position, 0.5, 0.01);
  EXPECT_NEAR(weight_n, 0.064 * kGravity, 0.2 * 0.064 * kGravity) << "the stone lies on the plate";
  EXPECT_LT(world->CurrentFrame()->joints[0].gap_m, 1e-6);

  scene.joints[0].body_a = JointDescription::kWorld;
  EXPECT_THAT(std::string(World::Create(context(), scene).status().message()), HasSubstr("ignores_contact: one end is the world"));
}

TEST_F(Forces, BadValuesAreRefusedByName) {
  SceneDescription scene;
  scene.bodies = {RigidBox("box", {0, 0, 0}, {0.1, 0.1, 0.1})};
  const auto complaint = [&](const auto& change) {
    SceneDescription bad = scene;
    change(bad);
    return std::string(World::Create(context(), bad).status().message());
  };
  EXPECT_THAT(complaint([](auto& s) { s.bodies[0].restitution = 1.5; }), HasSubstr("restitution: 1.5"));
  EXPECT_THAT(complaint([](auto& s) { s.bodies[0].drag_coefficient = -1; }), HasSubstr("drag_coefficient: -1"));
  EXPECT_THAT(complaint([](auto& s) { s.wind.times_s = {1, 1}; }), HasSubstr("2 times for 1 velocities"));
  EXPECT_THAT(complaint([](auto& s) { s.wind.density_kg_per_m3 = -1; }), HasSubstr("wind.density_kg_per_m3: -1"));
}

}  // namespace
}  // namespace palpate::sim::forces_test
