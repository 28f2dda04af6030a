// Rigid and static bodies with exact surfaces in running scenes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "sim/haptics/evaluate.h"
#include "sim/mesh/generators.h"
#include "sim/nurbs/nurbs_body_shape.h"
#include "sim/nurbs/nurbs_shapes.h"
#include "sim/scene/nurbs_description.h"
#include "sim/world/world.h"
#include "sim/world/world_state.h"
#include "tests/sim/world/nurbs_shells.h"
#include "tests/sim/world/world_builders.h"
#include "tests/support/device_test.h"

namespace palpate::sim::nurbs_body_test {
namespace {

using Eigen::Vector3d;

constexpr double kRadius_m = 0.02;
constexpr double kTolerance_m = 5e-4;

class NurbsBodyTest : public test::DeviceTest {
 protected:
  /// A ball falls on a ring that does not move, and a hand is near.
  static SceneDescription BallOnRing() {
    SceneDescription scene;
    scene.bodies = {test::SolidNurbsBody("ball", NurbsSphere(kRadius_m),
                                         {{0.001, 0.0005, 0.0182}, Eigen::Quaterniond(0.9, 0.1, -0.3, 0.2).normalized()}, BodyKind::kRigid),
                    test::SolidNurbsBody("ring", NurbsTorus(0.02, 0.006), {}, BodyKind::kStatic)};
    scene.bodies[0].angular_velocity_rad_per_s = {0, 0, 1};
    scene.contact.surface_friction = 0.3;
    scene.contact.check_intersections = true;
    return scene;
  }
};

Vector3d PositionOf(const Frame& frame, size_t body, size_t vertex) {
  return Eigen::Map<const Eigen::Vector3f>(&frame.surface_positions_m[body][3 * vertex]).cast<double>();
}

TEST_F(NurbsBodyTest, ContactsNameTheNearestPlacesOfBothSurfaces) {
  const SceneDescription scene = BallOnRing();
  PALPATE_TEST_ASSIGN(auto world, World::Create(context(), scene));
  std::shared_ptr<const Frame> frame;
  bool has_touched = false;
  for (int i = 0; i < 150; ++i) {
    PALPATE_TEST_ASSIGN(frame, world->Step({}));
    ASSERT_EQ(frame->contact_statistics.intersection_count, 0U) << i;
    ASSERT_EQ(frame->nurbs.poses.size(), 2U);
    ASSERT_EQ(frame->nurbs.surface_places.size(), frame->surface_contacts.size());
    const RigidPose& ball = *frame->nurbs.poses[0];
    const RigidPose& ring = *frame->nurbs.poses[1];
    EXPECT_EQ(ring.position_m, Vector3d(0, 0, 0));
    // The pose is that of all vertices.
    for (size_t v = 0; v < scene.bodies[0].nurbs->vertices.size(); ++v) {
      ASSERT_LT((ball.rotation * scene.bodies[0].nurbs->vertices[v] + ball.position_m - PositionOf(*frame, 0, v)).norm(), 2e-8);
    }
    for (size_t c = 0; c < frame->surface_contacts.size(); ++c) {
      has_touched = true;
      const FrameSurfaceContact& contact = frame->surface_contacts[c];
      for (const size_t side : {size_t{0}, size_t{1}}) {
        ASSERT_TRUE(frame->nurbs.surface_places[c][side].has_value());
        const FrameNurbsPlace& place = *frame->nurbs.surface_places[c][side];
        const uint32_t body = side == 0 ? contact.body_a : contact.body_b;
        const Vector3d point_m = (side == 0 ? contact.point_a_m : contact.point_b_m).cast<double>();
        const RigidPose& pose = body == 0 ? ball : ring;
        const NurbsSurface& patch = scene.bodies[body].nurbs->object.patches()[place.patch].surface;
        EXPECT_LT((pose.rotation * patch.Point(place.u, place.v) + pose.position_m - place.point_m).norm(), 1e-14);
        // On the surface, as near to the contact as the surface comes.
        const Vector3d x = pose.rotation.conjugate() * (point_m - pose.position_m);
        const double distance_m =
            body == 0 ? std::abs(x.norm() - kRadius_m) : std::abs(std::hypot(std::hypot(x.x(), x.y()) - 0.02, x.z()) - 0.006);
        EXPECT_NEAR((place.point_m - point_m).norm(), distance_m, 1e-12);
        EXPECT_LT(distance_m, kTolerance_m);
      }
    }
  }
  EXPECT_TRUE(has_touched);
  // It rests: the ring carries its exact weight.
  const double weight_n = 4.0 / 3 * M_PI * std::pow(kRadius_m, 3) * 1060 * 9.81;
  double up_n = 0;
  for (const FrameSurfaceContact& contact : frame->surface_contacts)
    up_n += contact.body_b == 0 ? contact.force_n.z() : -contact.force_n.z();
  EXPECT_NEAR(up_n, weight_n, 0.02 * weight_n);
  const std::vector<BodyStatistics> statistics = world->body_statistics();
  EXPECT_NEAR(statistics[0].mass_kg, weight_n / 9.81, 1e-9);
  EXPECT_EQ(statistics[0].tet_count, 0U);
}

TEST_F(NurbsBodyTest, CheckpointsGoOnWithTheSameBits) {
  SceneDescription scene = BallOnRing();
  scene.tools = {test::ToolAt("probe", {0, 0, 0.046})};
  PALPATE_TEST_ASSIGN(auto world, World::Create(context(), scene));
  ToolCommand command;
  const auto step = [&](World& of, int i) {
    command.device_pose.position_m = {0.004, 0.002, 0.046 - 0.0002 * i};
    return test::Step(of, {command});
  };
  for (int i = 0; i < 40; ++i) step(*world, i);
  PALPATE_TEST_ASSIGN(const auto state, world->Capture());
  const std::string bytes = EncodeWorldState(*state);
  PALPATE_TEST_ASSIGN(const auto read, DecodeWorldState(bytes));
  EXPECT_EQ(EncodeWorldState(*read), bytes);
  ASSERT_FALSE(read->frame->contacts.empty()) << "the hand touches it";
  ASSERT_EQ(read->frame->nurbs.places.size(), read->frame->contacts.size());
  ASSERT_TRUE(read->frame->nurbs.places[0].has_value());
  ASSERT_TRUE(read->frame->local_models[0].constraints[0].is_curved());
  PALPATE_TEST_ASSIGN(auto again, World::Restore(context(), scene, *read));
  for (int i = 40; i < 60; ++i) {
    const auto a = step(*world, i);
    const auto b = step(*again, i);
    ASSERT_EQ(a->state_hash, b->state_hash);
    ASSERT_EQ(a->nurbs.poses[0]->position_m, b->nurbs.poses[0]->position_m);
  }
  // Another control point is another scene.
  SceneDescription other = scene;
  std::vector<NurbsSurface> octants = NurbsSphere(kRadius_m * 1.000001);
  other.bodies[0] = test::SolidNurbsBody("ball", octants, scene.bodies[0].nurbs_pose, BodyKind::kRigid);
  EXPECT_NE(HashOfDescription(other), HashOfDescription(scene));
}

/// Force on a hand that slides over a ball without friction, with models at the scene's rate and forces a thousand times a second.
class Slide {
 public:
  static constexpr double kBall_m = 0.05;
  static constexpr double kTip_m = 0.005;
  static constexpr double kDepth_m = 0.004;  // of the hand in the ball, behind the coupling

  static void Measure(const std::shared_ptr<gpu::Context>& context, BodyDescription ball, double* rms_share, double* jump_share) {
    SceneDescription scene;
    scene.gravity_m_per_s2.setZero();
    // A scene needs a body that moves.
    scene.bodies = {std::move(ball), test::BoxBody("far", {0.5, 0, 0}, {2, 2, 2}, {0.01, 0.01, 0.01})};
    scene.contact.friction = 0;
    scene.tools = {test::ToolAt("probe", At(0))};
    scene.tools[0].radius_m = kTip_m;
    scene.haptics.blend_time_s = 0;
    auto made = World::Create(context, scene);
    ASSERT_TRUE(made.ok()) << made.status();
    World& world = **made;
    ToolCommand command;
    double sum_sq = 0, largest_jump_n = 0, mean_n = 0;
    std::vector<Vector3d> errors;
    std::vector<double> along_n;
    std::vector<Vector3d> across_n;
    constexpr int kSteps = 90;
    constexpr int kSettle = 30;
    constexpr int kForces = 8;
    for (int i = 0; i < kSteps; ++i) {
      const double angle = kSpeed_rad * std::max(0, i - kSettle);
      command.device_pose.position_m = At(angle);
      const auto frame = test::Step(world, {command});
      if (i < kSettle) continue;
      FrictionState friction;
      for (int k = 0; k < kForces; ++k) {
        RigidPose pose;
        const double at = angle + kSpeed_rad * k / kForces;
        pose.position_m = At(at);
        const Vector3d force_n = EvaluateLocalModel(frame->local_models[0], pose, {}, friction).force_n;
        const Vector3d radial = At(at).normalized();
        along_n.push_back(force_n.dot(radial));
        across_n.push_back(force_n - force_n.dot(radial) * radial);
        if (along_n.size() > 1) largest_jump_n = std::max(largest_jump_n, std::abs(along_n.back() - along_n[along_n.size() - 2]));
      }
    }
    for (const double f : along_n) mean_n += f / static_cast<double>(along_n.size());
    for (size_t i = 0; i < along_n.size(); ++i) sum_sq += std::pow(along_n[i] - mean_n, 2) + across_n[i].squaredNorm();
    ASSERT_GT(mean_n, 0.5);
    *rms_share = std::sqrt(sum_sq / static_cast<double>(along_n.size())) / mean_n;
    *jump_share = largest_jump_n / mean_n;
  }

 private:
  static constexpr double kSpeed_rad = 0.02;  // a step: 0.1 m/s
  /// Of the hand, whose tip is to be this far inside the ball.
  static Vector3d At(double angle) {
    return (kBall_m + kTip_m - kDepth_m) * Vector3d(0.3 + std::sin(angle), 0.2, std::cos(angle)).normalized();
  }
};

TEST_F(NurbsBodyTest, TheForceOnAHandIsThatOfTheExactBall) {
  BodyDescription exact = test::SolidNurbsBody("ball", NurbsSphere(Slide::kBall_m), {}, BodyKind::kStatic);
  BodyDescription mesh;
  mesh.name = "ball";
  mesh.kind = BodyKind::kStatic;
  mesh.self_collision = false;
  // The edge that makes a surface of a thousand triangles.
  PALPATE_TEST_ASSIGN(mesh.mesh, GenerateSphere(Slide::kBall_m, 0.0105));
  const size_t triangles = ExtractBoundary(mesh.mesh).triangles.size();
  EXPECT_NEAR(static_cast<double>(triangles), 1000, 300);
  double of_exact = 1, of_mesh = 0, jump_of_exact = 1, jump_of_mesh = 0;
  Slide::Measure(context(), std::move(exact), &of_exact, &jump_of_exact);
  Slide::Measure(context(), std::move(mesh), &of_mesh, &jump_of_mesh);
  std::printf("force error, share of the force: exact %.3g (jumps %.3g), mesh of %zu triangles %.3g (jumps %.3g)\n", of_exact,
              jump_of_exact, triangles, of_mesh, jump_of_mesh);
  EXPECT_LT(10 * of_exact, of_mesh);
  EXPECT_LT(10 * jump_of_exact, jump_of_mesh);
}

}  // namespace
}  // namespace palpate::sim::nurbs_body_test
