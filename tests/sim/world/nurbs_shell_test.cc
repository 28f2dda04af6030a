// Deformable NURBS bodies in worlds: their motion against closed forms, and that nothing passes through them.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <memory>
#include <numbers>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "sim/nurbs/nurbs_shapes.h"
#include "sim/reference/reference_nurbs_shell.h"
#include "sim/world/world.h"
#include "tests/sim/world/nurbs_shells.h"
#include "tests/sim/world/world_builders.h"
#include "tests/support/device_test.h"
#include "tests/support/trimmed_sheets.h"

namespace palpate::sim::nurbs_shell_test {
namespace {

using Eigen::Vector3d;

class NurbsShellTest : public test::DeviceTest {
 protected:
  void Make(SceneDescription scene) {
    scene.contact.check_intersections = true;
    PALPATE_TEST_ASSIGN(world_, World::Create(context(), scene));
    frame_ = world_->CurrentFrame();
  }
  void Run(int steps, const std::vector<ToolCommand>& commands = {}) {
    for (int i = 0; i < steps; ++i) {
      frame_ = test::Step(*world_, commands);
      worst_intersections_ = std::max(worst_intersections_, frame_->contact_statistics.intersection_count);
    }
  }
  /// The bodies of `scene` fall on a rod: from a state in between, and from the start again, to the same bits.
  void ExpectTheSameBitsFromAState(SceneDescription scene) {
    scene.contact.check_intersections = true;
    scene.obstacles.push_back({"rod", CapsuleShape{{0, -0.1, 0}, {0, 0.1, 0}, 0.01}});
    Make(scene);
    Run(40);
    PALPATE_TEST_ASSIGN(const std::shared_ptr<const WorldState> state, world_->Capture());
    Run(40);
    const uint64_t expected = frame_->state_hash;
    PALPATE_TEST_ASSIGN(world_, World::Restore(context(), scene, *state));
    Run(40);
    EXPECT_EQ(frame_->state_hash, expected);
    PALPATE_ASSERT_OK(world_->Reset().status());
    Run(80);
    EXPECT_EQ(frame_->state_hash, expected);
  }
  Vector3d Vertex(size_t body, size_t v) const {
    const float* const p = &frame_->surface_positions_m[body][3 * v];
    return {p[0], p[1], p[2]};
  }
  Vector3d Control(size_t body, size_t j) const {
    const float* const p = &frame_->nurbs.control_m[body][3 * j];
    return {p[0], p[1], p[2]};
  }
  /// How far body 0 sags, and how far it is from where its weight and Newton's method, in double precision, put it.
  void CompareWithNewton(const SceneDescription& scene, double* most_m, double* worst_m) {
    const NurbsShellDescription& description = *scene.bodies[0].nurbs_shell;
    const gpu::NurbsShellModel& model = *description.model;
    const ReferenceNurbsShell shell(model);
    NurbsShellLoad load{.dead_n = Eigen::VectorXd::Zero(shell.size())};
    std::vector<int> groups;
    int free = 0;
    for (uint32_t j = 0; j < model.control_count(); ++j) {
      load.dead_n[3 * j + 2] = scene.gravity_m_per_s2[2] * model.mass_kg[j];
      for (int axis = 0; axis < 3; ++axis) {
        groups.push_back(std::binary_search(description.held.begin(), description.held.end(), j) ? -1 : free++);
      }
    }
    PALPATE_TEST_ASSIGN(const Eigen::VectorXd x, SolveNurbsShell(shell, load, groups, shell.Rest(), 1e-9, 50));
    std::vector<Vector3d> net;
    for (size_t n = 0; n + 1 < model.net_part_begin.size(); ++n) {
      Vector3d& at_m = net.emplace_back(Vector3d::Zero());
      for (uint32_t k = model.net_part_begin[n]; k < model.net_part_begin[n + 1]; ++k) {
        at_m += model.net_parts[k].weight * x.segment<3>(3 * static_cast<Eigen::Index>(model.net_parts[k].control));
      }
    }
    const NurbsBodyShape& shape = *scene.bodies[0].nurbs;
    const NurbsObject expected = shape.object.WithControlPoints(net);
    for (size_t v = 0; v < shape.vertices.size(); ++v) {
      const NurbsGridPlace& place = shape.vertex_places[v];
      *most_m = std::max(*most_m, scene.bodies[0].mesh.vertices[v].z() - Vertex(0, v).z());
      *worst_m = std::max(*worst_m, (expected.patches()[place.patch].surface.Point(place.u, place.v) - Vertex(0, v)).norm());
    }
  }
  void TearDown() override {
    world_.reset();
    DeviceTest::TearDown();
  }

  std::unique_ptr<World> world_;
  std::shared_ptr<const Frame> frame_;
  uint32_t worst_intersections_ = 0;
};

TEST_F(NurbsShellTest, FallsAsAPiece) {
  SceneDescription scene;
  scene.bodies = {test::ShellBody("sheet", test::FlatSheet(6, 7, 0.1, 0.12), {0, 0, 1}, test::ShellMaterial(1e5, 0.3), 0.001)};
  scene.bodies[0].velocity_m_per_s = {0.2, 0, 0};
  Make(scene);
  const size_t vertices = scene.bodies[0].mesh.vertices.size();
  Run(60);
  const double n = 60, dt = scene.dt_s;
  const Vector3d fall_m(0.2 * n * dt, 0, -9.81 * dt * dt * n * (n + 1) / 2);
  for (size_t v = 0; v < vertices; ++v) {
    EXPECT_LT((Vertex(0, v) - scene.bodies[0].mesh.vertices[v] - fall_m).norm(), 2e-5) << v;
  }
}

/// A strip of 5 cm, clamped at one end by two rows of control points.
TEST_F(NurbsShellTest, CantileverSagsAsAPlate) {
  SceneDescription scene;
  const double length_m = 0.05, thickness_m = 0.001, modulus_pa = 1e8;
  scene.bodies = {test::ShellBody("strip", test::FlatSheet(9, 4, length_m, 0.01), {length_m / 2, 0, 0},
                                  test::ShellMaterial(modulus_pa, 0, 0.05), thickness_m, [](const Vector3d& p) { return p.x() < 0.003; })};
  Make(scene);
  Run(120);
  const double plate_n_m = modulus_pa * std::pow(thickness_m, 3) / 12;
  const double expected_m = 1000 * 9.81 * thickness_m * std::pow(length_m, 4) / (8 * plate_n_m);
  double most_m = 0;
  for (size_t v = 0; v < scene.bodies[0].mesh.vertices.size(); ++v) most_m = std::max(most_m, -Vertex(0, v).z());
  EXPECT_NEAR(most_m, expected_m, 0.005 * expected_m);
  EXPECT_LT(frame_->max_speed_m_per_s, 1e-4);
}

/// m g = C rho / 2 A v^2.
TEST_F(NurbsShellTest, FallsInAirAtItsFinalSpeed) {
  SceneDescription scene;
  scene.wind.density_kg_per_m3 = 5;
  // Stiff: a soft one droops at its edges, which the air holds less then.
  scene.bodies = {test::ShellBody("sheet", test::FlatSheet(6, 6, 0.1, 0.12), {0, 0, 0}, test::ShellMaterial(1e8, 0.3, 0.01), 0.002),
                  test::ShellBody("stone", test::FlatSheet(6, 6, 0.1, 0.12), {1, 0, 0}, test::ShellMaterial(1e8, 0.3, 0.01), 0.002)};
  scene.bodies[0].drag_coefficient = 0.8;
  scene.bodies[0].velocity_m_per_s = {0, 0, -1};
  Make(scene);
  Run(240);
  const double before_m = Vertex(0, 0).z();
  Run(30);
  const double expected = std::sqrt(1000 * 0.002 * 9.81 / (0.8 * 5 / 2));
  EXPECT_NEAR((before_m - Vertex(0, 0).z()) / (30 * scene.dt_s), expected, 0.01 * expected);
  const double t = 270 * scene.dt_s;
  EXPECT_NEAR(Vertex(1, 0).z(), -9.81 * t * t / 2, 0.01 * 9.81 * t * t / 2) << "without a coefficient nothing is felt";
}

/// A strip whose one edge is turned ends as that edge does, and goes on from a state with the same bits.
TEST_F(NurbsShellTest, ADrivenEdgeTakesAStripAlong) {
  SceneDescription scene;
  scene.contact.check_intersections = true;
  scene.gravity_m_per_s2 = Vector3d::Zero();
  scene.bodies = {test::ShellBody("strip", test::FlatSheet(8, 4, 0.05, 0.02), {0.025, 0, 0}, test::ShellMaterial(1e7, 0.3, 0.02), 0.001,
                                  [](const Vector3d& p) { return p.x() < 0.004; })};
  NurbsShellDescription& shell = *scene.bodies[0].nurbs_shell;
  DrivenRegion& region = shell.driven.emplace_back();
  region.vertices = shell.held;
  region.velocity_m_per_s = {0, 0, 0.1};
  region.angular_velocity_rad_per_s = {0, -1, 0};
  region.start_s = 0.1;
  region.duration_s = 0.5;
  Make(scene);
  Run(40);
  PALPATE_TEST_ASSIGN(const std::shared_ptr<const WorldState> state, world_->Capture());
  Run(120);
  const uint64_t expected = frame_->state_hash;
  const Eigen::AngleAxisd turned(0.5, -Vector3d::UnitY());
  const size_t count = scene.bodies[0].mesh.vertices.size();
  for (size_t v = 0; v < count; ++v) {
    const Vector3d at = turned * scene.bodies[0].mesh.vertices[v] + Vector3d(0, 0, 0.05);
    EXPECT_LT((Vertex(0, v) - at).norm(), 2e-4) << v << ": without weight it comes to rest as it was";
  }
  PALPATE_TEST_ASSIGN(world_, World::Restore(context(), scene, *state));
  Run(120);
  EXPECT_EQ(frame_->state_hash, expected);
}

/// A sheet on two edges, the one wide and the other narrow: together they bear its weight, and its moment.
TEST_F(NurbsShellTest, SupportsTellWhatTheyCarry) {
  SceneDescription scene;
  scene.bodies = {test::ShellBody("sheet", test::FlatSheet(9, 7, 0.1, 0.06), {0.03, -0.02, 0.05}, test::ShellMaterial(5e5, 0.3, 0.02),
                                  0.001, [](const Vector3d& p) { return p.x() < -0.01 || p.x() > 0.079; })};
  scene.bodies[0].material.mass_damping_per_s = 4;
  scene.solver.iterations = 40;
  NurbsShellDescription& shell = *scene.bodies[0].nurbs_shell;
  shell.supports = {{.name = "left", .region = 0, .control = {}}, {.name = "right", .region = 1, .control = {}}};
  double weight_n = 0;
  for (uint32_t j = 0; j < shell.model->control_count(); ++j) {
    const Vector3d at(shell.model->rest_m[j].data());
    weight_n += 9.81 * shell.model->mass_kg[j];
    if (std::ranges::binary_search(shell.held, j)) shell.supports[at.x() < 0.03 ? 0 : 1].control.push_back(j);
  }
  ASSERT_GT(shell.supports[0].control.size(), shell.supports[1].control.size());
  scene.contact.check_intersections = true;
  Make(scene);
  ASSERT_EQ(frame_->nurbs.supports.size(), 2U);
  EXPECT_EQ(frame_->nurbs.supports[0].force_n.norm(), 0) << "nothing was computed yet";
  EXPECT_LT((frame_->nurbs.supports[1].point_m - Vector3d(0.08, -0.02, 0.05)).norm(), 1e-6);
  Run(240);
  Vector3d force_n = Vector3d::Zero(), torque_n_m = Vector3d::Zero(), moment_n_m = Vector3d::Zero();  // of the weight about the origin
  for (uint32_t j = 0; j < shell.model->control_count(); ++j) {
    moment_n_m += Control(0, j).cross(Vector3d(0, 0, -9.81 * shell.model->mass_kg[j]));
  }
  for (const FrameSupport& support : frame_->nurbs.supports) {
    EXPECT_FALSE(support.is_released);
    EXPECT_LT(support.force_n.z(), -0.2 * weight_n);
    force_n += support.force_n;
    torque_n_m += support.torque_n_m + support.point_m.cross(support.force_n);
  }
  EXPECT_LT((force_n + Vector3d(0, 0, weight_n)).norm(), 1e-3 * weight_n);
  EXPECT_LT((torque_n_m - moment_n_m).norm(), 2e-3 * moment_n_m.norm()) << torque_n_m.transpose();
  // Frames keep them, through states and their bytes.
  PALPATE_TEST_ASSIGN(const std::shared_ptr<const WorldState> state, world_->Capture());
  PALPATE_TEST_ASSIGN(const std::shared_ptr<const WorldState> decoded, DecodeWorldState(EncodeWorldState(*state)));
  PALPATE_TEST_ASSIGN(world_, World::Restore(context(), scene, *decoded));
  ASSERT_EQ(world_->CurrentFrame()->nurbs.supports.size(), 2U);
  EXPECT_EQ(world_->CurrentFrame()->nurbs.supports[0].force_n, frame_->nurbs.supports[0].force_n);
  EXPECT_EQ(world_->CurrentFrame()->nurbs.supports[1].torque_n_m, frame_->nurbs.supports[1].torque_n_m);
  const double before_n = frame_->nurbs.supports[0].force_n.z();
  Run(1);
  EXPECT_NEAR(frame_->nurbs.supports[0].force_n.z(), before_n, 1e-3 * weight_n);
  scene.bodies[0].nurbs_shell->supports[0].control.pop_back();
  EXPECT_FALSE(World::Restore(context(), scene, *decoded).ok()) << "another scene";
}

/// What drives an edge feels the change of momentum of all that hangs there, in each step.
TEST_F(NurbsShellTest, ADrivenSupportFeelsTheChangeOfMomentum) {
  SceneDescription scene;
  scene.bodies = {test::ShellBody("strip", test::FlatSheet(8, 4, 0.05, 0.02), {0.025, 0, 0}, test::ShellMaterial(1e6, 0.3, 0.02), 0.002,
                                  [](const Vector3d& p) { return p.x() < 0.004; })};
  scene.solver.iterations = 60;
  NurbsShellDescription& shell = *scene.bodies[0].nurbs_shell;
  DrivenRegion& region = shell.driven.emplace_back();
  region.vertices = shell.held;
  region.velocity_m_per_s = {0.1, 0, 0.8};
  region.start_s = 0.05;
  shell.supports = {{.name = "hand", .region = 0, .kind = NurbsSupportKind::kDriven, .control = shell.held}};
  Make(scene);
  const size_t count = shell.model->control_count();
  const auto momentum = [&](const Frame& before, const Frame& after) {
    Vector3d sum = Vector3d::Zero();
    for (size_t j = 0; j < count; ++j) {
      const float* const a = &before.nurbs.control_m[0][3 * j];
      const float* const b = &after.nurbs.control_m[0][3 * j];
      sum += shell.model->mass_kg[j] / scene.dt_s * (Vector3d(b[0], b[1], b[2]) - Vector3d(a[0], a[1], a[2]));
    }
    return sum;
  };
  double mass_kg = 0;
  for (const double m : shell.model->mass_kg) mass_kg += m;
  Vector3d last = Vector3d::Zero();
  double most_n = 0, worst_n = 0;
  for (int i = 0; i < 60; ++i) {
    const std::shared_ptr<const Frame> before = frame_;
    Run(1);
    const Vector3d now = momentum(*before, *frame_);
    const Vector3d expected_n = mass_kg * Vector3d(0, 0, -9.81) - (now - last) / scene.dt_s;
    last = now;
    ASSERT_EQ(frame_->nurbs.supports.size(), 1U);
    most_n = std::max(most_n, expected_n.norm());
    worst_n = std::max(worst_n, (frame_->nurbs.supports[0].force_n - expected_n).norm());
  }
  EXPECT_GT(most_n, 1.15 * 9.81 * mass_kg) << "it was set into motion";
  EXPECT_LT(worst_n, 0.02 * most_n);
  std::printf("at most %.3g N, off by at most %.3g N\n", most_n, worst_n);
}

/// Eight patches that meet in poles and along seams.
TEST_F(NurbsShellTest, SphereUnderPressureGrowsAsAThinShell) {
  SceneDescription scene;
  scene.gravity_m_per_s2 = Vector3d::Zero();
  const double radius_m = 0.05, thickness_m = 0.001, modulus_pa = 1e6, nu = 0.4, pressure_pa = 100;
  const auto ball = NurbsObject::FromSurfaces("ball", NurbsSphere(radius_m));
  ASSERT_TRUE(ball.ok());
  scene.bodies = {test::ShellBody("ball", *ball->Refined(1), {0, 0, 0}, test::ShellMaterial(modulus_pa, nu, 0.05), thickness_m)};
  LoadDescription load;
  load.pressure_pa = -pressure_pa;
  for (uint32_t v = 0; v < scene.bodies[0].mesh.vertices.size(); ++v) load.vertices.push_back(v);
  scene.bodies[0].loads = {load};
  Make(scene);
  Run(120);
  const double growth = pressure_pa * radius_m * (1 - nu) / (2 * modulus_pa * thickness_m);
  double sum_m = 0;
  const size_t count = scene.bodies[0].mesh.vertices.size();
  for (size_t v = 0; v < count; ++v) sum_m += Vertex(0, v).norm() / static_cast<double>(count);
  EXPECT_NEAR(sum_m / radius_m - 1, growth, 0.03 * growth);
}

TEST_F(NurbsShellTest, CarriesABoxAtItsWeight) {
  SceneDescription scene;
  scene.bodies = {test::ShellBody("sheet", test::FlatSheet(9, 9, 0.2, 0.2), {0, 0, 0.1}, test::ShellMaterial(2e5, 0.4, 0.01), 0.001,
                                  [](const Vector3d& p) { return std::abs(p.x()) > 0.085; })};
  BodyDescription box = test::BoxBody("box", {0, 0, 0.14}, {3, 3, 3}, {0.03, 0.03, 0.03});
  box.kind = BodyKind::kRigid;
  box.self_collision = false;
  scene.bodies.push_back(box);
  Make(scene);
  Run(180);
  EXPECT_EQ(worst_intersections_, 0U);
  Vector3d force_n = Vector3d::Zero();
  ASSERT_FALSE(frame_->surface_contacts.empty());
  for (size_t i = 0; i < frame_->surface_contacts.size(); ++i) {
    const FrameSurfaceContact& c = frame_->surface_contacts[i];
    force_n += (c.body_b == 1 ? 1.0 : -1.0) * c.force_n.cast<double>();
    // On the surface as it is bent now, which its triangles are near.
    const auto& place = frame_->nurbs.surface_places[i][c.body_a == 0 ? 0 : 1];
    ASSERT_TRUE(place.has_value());
    EXPECT_LT((place->point_m - (c.body_a == 0 ? c.point_a_m : c.point_b_m).cast<double>()).norm(), 5e-4);
  }
  const double weight_n = 1060 * 9.81 * 2.7e-5;
  EXPECT_NEAR(force_n.z(), weight_n, 0.01 * weight_n);
  EXPECT_LT(force_n.head<2>().norm(), 0.01 * weight_n);
}

/// What a sheet is reported to push two falling bodies with is what their motion shows, from the first touch to rest.
TEST_F(NurbsShellTest, ForcesOnBodiesAreTheirChangesOfMomentum) {
  SceneDescription scene;
  scene.contact.surface_friction = 0.3;
  const auto is_held = [](const Vector3d& p) { return std::min(std::abs(p.x()), std::abs(p.y())) > 0.1; };
  scene.bodies = {
      test::ShellBody("sheet", test::FlatSheet(8, 8, 0.24, 0.24), {0, 0, 0}, test::ShellMaterial(2.5e5, 0.4, 0.01), 0.0015, is_held),
      test::SolidNurbsBody("ball", NurbsSphere(0.02), {{0.03, -0.01, 0.05}, Eigen::Quaterniond::Identity()}, BodyKind::kRigid),
      test::SolidNurbsBody("torus", NurbsTorus(0.024, 0.008), {{-0.03, 0.01, 0.03}, Eigen::Quaterniond(0.92, 0.3, 0.25, 0).normalized()},
                           BodyKind::kRigid)};
  Make(scene);
  const std::vector<BodyStatistics> statistics = world_->body_statistics();
  const auto center_m = [&](size_t b) { return frame_->nurbs.poses[b]->position_m; };
  std::array<Vector3d, 3> velocity{Vector3d::Zero(), Vector3d::Zero(), Vector3d::Zero()};
  int steps_off = 0;
  double most_n = 0;  // in weights
  for (int i = 0; i < 240; ++i) {
    const std::array<Vector3d, 3> before_m{Vector3d::Zero(), center_m(1), center_m(2)};
    Run(1);
    for (const size_t b : {1, 2}) {
      const Vector3d after = (center_m(b) - before_m[b]) / scene.dt_s;
      const double weight_n = 9.81 * statistics[b].mass_kg;
      const Vector3d force_n = statistics[b].mass_kg / scene.dt_s * (after - velocity[b]) + Vector3d(0, 0, weight_n);
      velocity[b] = after;
      Vector3d reported_n = Vector3d::Zero();
      for (const FrameSurfaceContact& c : frame_->surface_contacts) {
        if (c.body_a == b || c.body_b == b) reported_n += (c.body_b == b ? 1.0 : -1.0) * c.force_n.cast<double>();
      }
      const double off = (force_n - reported_n).norm() / std::max(weight_n, force_n.norm());
      steps_off += off > 0.05 ? 1 : 0;
      most_n = std::max(most_n, reported_n.norm() / weight_n);
      EXPECT_LT(i < 160 ? 0 : off, 0.02) << "step " << i << ": " << force_n.transpose() << " for " << reported_n.transpose();
    }
  }
  EXPECT_GT(most_n, 1.5) << "they fall";
  EXPECT_LT(steps_off, 24) << "of 480; steps whose moves are cut short push with more than is left of contact at their end";
  EXPECT_EQ(worst_intersections_, 0U);
}

/// A soft sheet falls over a thin rod and folds about it, onto itself and onto the floor.
TEST_F(NurbsShellTest, FoldsOntoItselfWithoutPassing) {
  SceneDescription scene;
  scene.bodies = {
      test::ShellBody("sheet", test::FlatSheet(10, 8, 0.16, 0.1), {0.01, 0, 0.06}, test::ShellMaterial(3e4, 0.3, 0.002), 0.0008)};
  scene.obstacles.push_back({"rod", CapsuleShape{{0, -0.1, 0.04}, {0, 0.1, 0.04}, 0.004}});
  scene.obstacles.push_back({"floor", PlaneShape{{0, 0, 0}, {0, 0, 1}}});
  Make(scene);
  size_t most_self = 0;
  double least_z_m = 1;
  for (int i = 0; i < 40; ++i) {
    Run(6);
    size_t self = 0;
    for (const FrameSurfaceContact& c : frame_->surface_contacts) self += c.body_a == c.body_b ? 1 : 0;
    most_self = std::max(most_self, self);
    for (size_t v = 0; v < scene.bodies[0].mesh.vertices.size(); ++v) least_z_m = std::min(least_z_m, Vertex(0, v).z());
  }
  EXPECT_EQ(worst_intersections_, 0U);
  EXPECT_GT(most_self, 0U);
  EXPECT_GT(least_z_m, 0);
}

/// A tube whose wall is thicker than its triangles are wide. Two rods pinch it until its walls meet; at rest they touch nowhere.
TEST_F(NurbsShellTest, ATubeOfThickWallIsPinchedOntoItself) {
  SceneDescription scene;
  scene.gravity_m_per_s2 = Vector3d::Zero();
  scene.contact.margin_m = 0.001;
  const double radius_m = 0.007, thickness_m = 0.0015;
  const auto wall = [&] {  // four quarters of a revolution about x
    std::vector<NurbsSurface> quarters;
    for (int k = 0; k < 4; ++k) {
      NurbsDescription quarter{
          .degree_u = 2, .degree_v = 2, .knots_u = {0, 0, 0, 1, 1, 1}, .knots_v = {0, 0, 0, 1, 1, 1}, .control_m = {}, .weights = {}};
      for (int i = 0; i < 3; ++i) {
        const double angle = std::numbers::pi / 4 * (2 * k + i), r = i == 1 ? radius_m * std::numbers::sqrt2 : radius_m;
        for (int j = 0; j < 3; ++j) {
          quarter.control_m.emplace_back(0.02 * (j - 1), r * std::cos(angle), r * std::sin(angle));
          quarter.weights.push_back(i == 1 ? std::numbers::sqrt2 / 2 : 1);
        }
      }
      quarters.push_back(*NurbsSurface::Create(quarter));
    }
    return *NurbsObject::FromSurfaces("tube", quarters)->Refined(2);
  }();
  scene.bodies = {test::ShellBody("tube", wall, {0, 0, 0}, test::ShellMaterial(2e5, 0.3, 0.02), thickness_m)};
  scene.bodies[0].material.mass_damping_per_s = 4;
  scene.obstacles = {};
  for (const double side : {1.0, -1.0}) {
    ToolDescription rod;
    rod.name = side > 0 ? "upper" : "lower";
    rod.radius_m = 0.003;
    rod.length_m = 0.06;
    rod.drive = ToolDrive::kDirect;
    rod.rest_pose.rotation = Eigen::Quaterniond::FromTwoVectors(Vector3d::UnitZ(), Vector3d::UnitY());
    rod.rest_pose.position_m = {0, -0.03, side * 0.014};
    scene.tools.push_back(rod);
  }
  double edge_m = 0;
  const auto& triangles = scene.bodies[0].nurbs->triangles;
  for (const auto& t : triangles) {
    edge_m += (scene.bodies[0].mesh.vertices[t[0]] - scene.bodies[0].mesh.vertices[t[1]]).norm() / static_cast<double>(triangles.size());
  }
  ASSERT_LT(edge_m, thickness_m + scene.contact.margin_m) << "neighbours are nearer than contact looks";
  Make(scene);
  std::vector<ToolCommand> commands(2);
  for (const size_t t : {0U, 1U}) commands[t].device_pose = scene.tools[t].rest_pose;
  Run(3, commands);
  EXPECT_TRUE(frame_->surface_contacts.empty()) << "what is near at rest does not push";
  EXPECT_LT(frame_->contact_statistics.contact_count, 8 * scene.bodies[0].mesh.vertices.size()) << "and little of it is looked at";
  size_t most = 0;
  for (int i = 0; i < 120; ++i) {
    for (const size_t t : {0U, 1U}) {
      commands[t].device_pose.position_m.z() = (t == 0 ? 1 : -1) * std::max(0.014 - 0.0001 * i, 0.005);
    }
    Run(1, commands);
    most = std::max(most, frame_->surface_contacts.size());
  }
  EXPECT_GT(most, 0U) << "the walls press on each other";
  EXPECT_EQ(worst_intersections_, 0U);
  // They stay the thickness apart, less what contact gives way by: the inner faces of the two sides in the middle.
  double least_m = 1;
  const size_t count = scene.bodies[0].mesh.vertices.size();
  for (size_t a = 0; a < count; ++a) {
    for (size_t b = 0; b < count; ++b) {
      const bool faces = scene.bodies[0].mesh.vertices[a].z() > 0.004 && scene.bodies[0].mesh.vertices[b].z() < -0.004;
      if (faces) least_m = std::min(least_m, (Vertex(0, a) - Vertex(0, b)).norm());
    }
  }
  EXPECT_LT(least_m, thickness_m + scene.contact.margin_m);
  EXPECT_GT(least_m, 0.25 * thickness_m);
}

TEST_F(NurbsShellTest, MeetsATool) {
  SceneDescription scene;
  scene.bodies = {test::ShellBody("sheet", test::FlatSheet(9, 9, 0.1, 0.1), {0, 0, 0}, test::ShellMaterial(1e6, 0.4, 0.02), 0.001,
                                  [](const Vector3d& p) { return std::max(std::abs(p.x()), std::abs(p.y())) > 0.043; })};
  scene.gravity_m_per_s2 = Vector3d::Zero();
  scene.tools = {test::ToolAt("probe", {0, 0, 0.02}, ToolDrive::kDirect)};
  scene.tools[0].rest_pose.rotation = Eigen::Quaterniond(Eigen::AngleAxisd(0, Vector3d::UnitX()));
  Make(scene);
  ToolCommand command;
  double force_n = 0;
  for (int i = 0; i < 120; ++i) {
    command.device_pose.position_m = {0, 0, std::max(-0.005, 0.02 - 0.0003 * i)};
    Run(1, {command});
    force_n = frame_->tools[0].force_n.z();
  }
  EXPECT_EQ(worst_intersections_, 0U);
  EXPECT_GT(force_n, 0.05);
  // What the tool feels the supports bear: nothing else pushes a body at rest.
  EXPECT_LT(frame_->max_speed_m_per_s, 1e-3);
  ASSERT_FALSE(frame_->nurbs.places.empty());
  ASSERT_TRUE(frame_->nurbs.places[0].has_value());
  ASSERT_EQ(frame_->local_models.size(), 1U);
  EXPECT_GT(frame_->local_models[0].constraint_count, 0);
}

TEST_F(NurbsShellTest, GoesOnFromAStateWithTheSameBits) {
  SceneDescription scene;
  scene.bodies = {test::ShellBody("sheet", test::FlatSheet(7, 7, 0.1, 0.1), {0, 0, 0.03}, test::ShellMaterial(1e5, 0.3, 0.01), 0.001)};
  ExpectTheSameBitsFromAState(scene);
}

/// A disc with a hole beside its middle, cut out of a square.
NurbsObject HoledDisc(size_t spans, double side_m) {
  return test::TrimmedSheet(3, spans, side_m, {{test::CircleTrim({0.5, 0.5}, 0.47)}, {test::CircleTrim({0.56, 0.52}, 0.12, true)}});
}

TEST_F(NurbsShellTest, ATrimmedSheetFallsAsAPiece) {
  SceneDescription scene;
  scene.bodies = {test::ShellBody("disc", HoledDisc(5, 0.1), {0, 0, 1}, test::ShellMaterial(1e5, 0.3), 0.001)};
  scene.bodies[0].velocity_m_per_s = {0.2, 0, 0};
  Make(scene);
  const double kept = 3.14159265358979 * (0.47 * 0.47 - 0.12 * 0.12) * 0.01;
  EXPECT_NEAR(world_->body_statistics()[0].mass_kg, 1000 * 0.001 * kept, 1e-7 * kept);
  Run(60);
  const double n = 60, dt = scene.dt_s;
  const Vector3d fall_m(0.2 * n * dt, 0, -9.81 * dt * dt * n * (n + 1) / 2);
  for (size_t v = 0; v < scene.bodies[0].mesh.vertices.size(); ++v) {
    EXPECT_LT((Vertex(0, v) - scene.bodies[0].mesh.vertices[v] - fall_m).norm(), 2e-5) << v;
  }
  // What viewers draw: the control points of the net, those that are cut away too.
  const NurbsSurface& surface = scene.bodies[0].nurbs->object.patches()[0].surface;
  ASSERT_EQ(frame_->nurbs.control_m[0].size(), 3 * surface.control().size());
  for (size_t j = 0; j < surface.control().size(); ++j) {
    const Vector3d rest = Vector3d(surface.control()[j].hnormalized()) + Vector3d(0, 0, 1);
    EXPECT_LT((Control(0, j) - rest - fall_m).norm(), 5e-5) << j;
  }
}

/// Planes between its own parts stand in the world while it moves on, and its triangles are narrow along the trims.
TEST_F(NurbsShellTest, AThrownSheetKeepsItsMomentum) {
  for (const double speed_m_per_s : {0.01, 0.1, 0.2}) {
    for (const double angle : {0.8, 1.3}) {
      SceneDescription scene;
      scene.bodies = {test::ShellBody("disc", HoledDisc(5, 0.1), {0, 0, 1}, test::ShellMaterial(1e5, 0.3), 0.001)};
      scene.bodies[0].velocity_m_per_s = {speed_m_per_s * std::cos(angle), speed_m_per_s * std::sin(angle), 0};
      scene.gravity_m_per_s2 = {0, 0, 0};
      Make(scene);
      if (HasFatalFailure()) return;
      Run(60);
      const Vector3d way_m = 60 * scene.dt_s * Vector3d(scene.bodies[0].velocity_m_per_s);
      for (size_t v = 0; v < scene.bodies[0].mesh.vertices.size(); ++v) {
        ASSERT_LT((Vertex(0, v) - scene.bodies[0].mesh.vertices[v] - way_m).norm(), 2e-5)
            << "vertex " << v << ", " << speed_m_per_s << " m/s, " << angle << " rad";
      }
    }
  }
}

/// The strip of CantileverSagsAsAPlate, cut slantwise out of a sheet whose knots know nothing of it.
TEST_F(NurbsShellTest, ATrimmedCantileverSagsAsAPlate) {
  SceneDescription scene;
  const double side_m = 0.06, length_m = 0.05, half_width_m = 0.006, thickness_m = 0.001, modulus_pa = 1e8;
  // Along (4, 3) / 5 through the middle, from beyond the clamped corner.
  const Eigen::Vector2d along(0.8, 0.6), across(-0.6, 0.8), middle(0.5, 0.5);
  const auto at = [&](double x_m, double y_m) -> Eigen::Vector2d { return middle + (x_m * along + y_m * across) / side_m; };
  const double tip_m = 0.028;
  const NurbsObject sheet = test::TrimmedSheet(
      3, 9, side_m,
      {test::PolygonTrims({at(-0.03, -half_width_m), at(tip_m, -half_width_m), at(tip_m, half_width_m), at(-0.03, half_width_m)})});
  // Held are the control points before a line across the strip. Their basis functions reach a little beyond it.
  const auto place_m = [&](const Vector3d& p) { return p.head<2>().dot(along); };
  scene.bodies = {test::ShellBody("strip", sheet, {0, 0, 0}, test::ShellMaterial(modulus_pa, 0, 0.05), thickness_m,
                                  [&](const Vector3d& p) { return place_m(p) < tip_m - length_m; })};
  Make(scene);
  Run(100);
  EXPECT_LT(frame_->max_speed_m_per_s, 1e-3);
  double most_m = 0, worst_m = 0;
  CompareWithNewton(scene, &most_m, &worst_m);
  EXPECT_LT(worst_m, 0.005 * most_m);
  // The clamp is a staircase of control points, somewhere about the line.
  const double plate_n_m = modulus_pa * std::pow(thickness_m, 3) / 12;
  const auto sag_m = [&](double length) { return 1000 * 9.81 * thickness_m * std::pow(length, 4) / (8 * plate_n_m); };
  EXPECT_GT(most_m, sag_m(length_m - 1.5 * side_m / 9));
  EXPECT_LT(most_m, sag_m(length_m + 1.5 * side_m / 9));
}

/// A soft disc falls over a ball and the rim of a rod, which goes through its hole.
TEST_F(NurbsShellTest, ATrimmedSheetDrapesWithoutPassing) {
  SceneDescription scene;
  scene.bodies = {test::ShellBody("disc", HoledDisc(8, 0.16), {0, 0, 0.06}, test::ShellMaterial(3e4, 0.3, 0.002), 0.0008),
                  test::SolidNurbsBody("ball", NurbsSphere(0.015), {{-0.03, 0, 0.0151}, Eigen::Quaterniond::Identity()}, BodyKind::kRigid)};
  // The hole is about (0.0096, 0.0032), 0.0192 wide.
  scene.obstacles.push_back({"peg", CapsuleShape{{0.01, 0.003, 0}, {0.01, 0.003, 0.05}, 0.006}});
  scene.obstacles.push_back({"floor", PlaneShape{{0, 0, 0}, {0, 0, 1}}});
  Make(scene);
  bool touches_ball = false;
  for (int i = 0; i < 240; ++i) {
    Run(1);
    for (const FrameSurfaceContact& c : frame_->surface_contacts) touches_ball = touches_ball || c.body_a != c.body_b;
  }
  EXPECT_EQ(worst_intersections_, 0U);
  EXPECT_TRUE(touches_ball);
  // It hangs around the peg, whose top is above all of it, and vertices are where the control points have the surface.
  double highest_m = 0, lowest_m = 1;
  for (size_t v = 0; v < scene.bodies[0].mesh.vertices.size(); ++v) {
    highest_m = std::max(highest_m, Vertex(0, v).z());
    lowest_m = std::min(lowest_m, Vertex(0, v).z());
    EXPECT_GT((Vertex(0, v) - Vector3d(0.01, 0.003, Vertex(0, v).z())).head<2>().norm(), 0.006) << "around the peg";
  }
  EXPECT_LT(highest_m, 0.05);
  EXPECT_GT(lowest_m, 0);
  std::vector<Vector3d> net;
  for (size_t j = 0; j < frame_->nurbs.control_m[0].size() / 3; ++j) net.push_back(Control(0, j));
  const NurbsBodyShape& shape = *scene.bodies[0].nurbs;
  const NurbsSurface now = shape.object.WithControlPoints(net).patches()[0].surface;
  for (size_t v = 0; v < shape.vertices.size(); ++v) {
    EXPECT_LT((now.Point(shape.vertex_places[v].u, shape.vertex_places[v].v) - Vertex(0, v)).norm(), 2e-5) << v;
  }
}

/// The weight of a ball that lies in the hole of a sheet, which is smaller.
TEST_F(NurbsShellTest, ATrimmedSheetCarriesABallAtItsWeight) {
  SceneDescription scene;
  const NurbsObject sheet = test::TrimmedSheet(3, 6, 0.2, {test::WholeLoop(), {test::CircleTrim({0.52, 0.5}, 0.07, true)}});
  scene.bodies = {test::ShellBody("sheet", sheet, {0, 0, 0}, test::ShellMaterial(2e5, 0.4, 0.01), 0.001,
                                  [](const Vector3d& p) { return std::abs(p.x()) > 0.085; }),
                  test::SolidNurbsBody("ball", NurbsSphere(0.025), {{0, 0, 0.028}, Eigen::Quaterniond::Identity()}, BodyKind::kRigid)};
  scene.contact.surface_friction = 0.5;
  Make(scene);
  Run(300);
  EXPECT_EQ(worst_intersections_, 0U);
  Vector3d force_n = Vector3d::Zero();
  for (const FrameSurfaceContact& c : frame_->surface_contacts) force_n += (c.body_b == 1 ? 1.0 : -1.0) * c.force_n.cast<double>();
  const double weight_n = 9.81 * world_->body_statistics()[1].mass_kg;
  EXPECT_NEAR(force_n.z(), weight_n, 0.05 * weight_n);
}

TEST_F(NurbsShellTest, ATrimmedSheetGoesOnFromAStateWithTheSameBits) {
  SceneDescription scene;
  scene.bodies = {test::ShellBody("disc", HoledDisc(5, 0.1), {0, 0, 0.03}, test::ShellMaterial(1e5, 0.3, 0.01), 0.001)};
  ExpectTheSameBitsFromAState(scene);
}

/// Two patches that meet along a curve through the sheet, of other knots: 60 mm wide, in the plane z = 0, and held as a region.
BodyDescription CoupledSheet(double modulus_pa, const std::function<bool(const Vector3d&)>& is_held = {}) {
  const auto object = NurbsObject::Create(test::SplitSheet(3, 6, 7, 0.06, 0.55, 0.4, 0.6));
  EXPECT_TRUE(object.ok()) << object.status();
  return test::ShellBody("sheet", *object, {0, 0, 0}, test::ShellMaterial(modulus_pa, 0.3, 0.02), 0.001, is_held);
}

std::shared_ptr<const gpu::NurbsShellModel> WithMassDamping(gpu::NurbsShellModel model, double damping_per_s) {
  std::ranges::fill(model.mass_damping_per_s, damping_per_s);
  return std::make_shared<const gpu::NurbsShellModel>(std::move(model));
}

/// Holds rims of body 0 by a frame, which lies where its surface does.
void HoldRims(bool is_clamped, const std::function<bool(const Vector3d&)>& is_held, SceneDescription* scene) {
  BodyDescription& body = scene->bodies[0];
  gpu::NurbsShellModel model = *body.nurbs_shell->model;
  const auto frame = HoldNurbsRims(body.nurbs->object, body.material, body.nurbs_shell->thickness_m, 0, is_clamped, is_held, &model);
  ASSERT_TRUE(frame.ok()) << frame.status();
  body.nurbs_shell->held = *frame;
  body.nurbs_shell->supports = {{.name = "rim", .region = 0, .control = *frame}};
  body.nurbs_shell->model = std::make_shared<const gpu::NurbsShellModel>(std::move(model));
}

TEST_F(NurbsShellTest, CoupledPatchesFallAsAPiece) {
  SceneDescription scene;
  scene.bodies = {CoupledSheet(1e5)};
  scene.bodies[0].velocity_m_per_s = {0.2, 0, 0};
  Make(scene);
  Run(60);
  const double n = 60, dt = scene.dt_s;
  const Vector3d fall_m(0.2 * n * dt, 0, -9.81 * dt * dt * n * (n + 1) / 2);
  for (size_t v = 0; v < scene.bodies[0].mesh.vertices.size(); ++v) {
    EXPECT_LT((Vertex(0, v) - scene.bodies[0].mesh.vertices[v] - fall_m).norm(), 2e-5) << v;
  }
}

TEST_F(NurbsShellTest, CoupledPatchesSagAsOne) {
  SceneDescription scene;
  scene.bodies = {CoupledSheet(1e8, [](const Vector3d& p) { return p.x() < -0.021; })};
  Make(scene);
  Run(100);
  EXPECT_LT(frame_->max_speed_m_per_s, 1e-3);
  double most_m = 0, worst_m = 0;
  CompareWithNewton(scene, &most_m, &worst_m);
  EXPECT_GT(most_m, 2e-4);
  EXPECT_LT(worst_m, 0.01 * most_m);
  // A plate of one piece, held alike.
  const double plate_n_m = 1e8 * 1e-9 / (12 * (1 - 0.09));
  EXPECT_NEAR(most_m, 9.81 * std::pow(0.06, 4) / (8 * plate_n_m), 0.05 * most_m) << "two rows clamp the edge";
}

TEST_F(NurbsShellTest, ADiscClampedAtItsRimSagsAndHandsOnItsWeight) {
  for (const bool is_clamped : {true, false}) {
    SceneDescription scene;
    const double side_m = 0.1, radius_m = 0.043, thickness_m = 0.004, modulus_pa = 6e5;
    const NurbsObject disc = test::TrimmedSheet(3, 8, side_m, {{test::CircleTrim({0.5, 0.5}, 0.43)}});
    scene.bodies = {test::ShellBody("disc", disc, {0, 0, 0}, test::ShellMaterial(modulus_pa, 0.3, 0.02), thickness_m)};
    scene.bodies[0].self_collision = false;  // the wall is thicker than its triangles are wide
    HoldRims(
        is_clamped, [](const Vector3d&) { return true; }, &scene);
    if (HasFatalFailure()) return;
    Make(scene);
    Run(120);
    double most_m = 0, worst_m = 0, rim_m = 0;
    CompareWithNewton(scene, &most_m, &worst_m);
    EXPECT_LT(worst_m, 0.02 * most_m) << is_clamped;
    for (size_t v = 0; v < scene.bodies[0].mesh.vertices.size(); ++v) {
      const Vector3d& rest = scene.bodies[0].mesh.vertices[v];
      if (rest.norm() > radius_m - 1e-5) rim_m = std::max(rim_m, (Vertex(0, v) - rest).norm());
    }
    EXPECT_LT(rim_m, 0.01 * most_m);
    const double plate_n_m = modulus_pa * std::pow(thickness_m, 3) / (12 * (1 - 0.09));
    const double clamped_m = 1000 * 9.81 * thickness_m * std::pow(radius_m, 4) / (64 * plate_n_m);
    if (is_clamped) {
      EXPECT_NEAR(most_m, clamped_m, 0.03 * most_m) << "Kirchhoff's plate";
    } else {
      EXPECT_GT(most_m, 2 * clamped_m) << "it turns about the rim";
    }
    ASSERT_EQ(frame_->nurbs.supports.size(), 1U);
    const double weight_n = 9.81 * world_->body_statistics()[0].mass_kg;
    EXPECT_LT((frame_->nurbs.supports[0].force_n + Vector3d(0, 0, weight_n)).norm(), 0.03 * weight_n);
  }
}

TEST_F(NurbsShellTest, ADrivenRimTakesAPairOfPatchesAlong) {
  SceneDescription scene;
  scene.bodies = {CoupledSheet(1e6)};
  scene.bodies[0].self_collision = false;
  scene.gravity_m_per_s2 = Vector3d::Zero();
  scene.bodies[0].material.mass_damping_per_s = 10;
  scene.bodies[0].nurbs_shell->model = WithMassDamping(*scene.bodies[0].nurbs_shell->model, 10);
  HoldRims(
      true, [](const Vector3d& p) { return p.x() < -0.0299; }, &scene);
  if (HasFatalFailure()) return;
  NurbsShellDescription& shell = *scene.bodies[0].nurbs_shell;
  DrivenRegion& region = shell.driven.emplace_back();
  region.vertices = shell.held;
  region.velocity_m_per_s = {0, 0, 0.1};
  region.angular_velocity_rad_per_s = {0, -1, 0};
  region.center_m = {-0.03, 0, 0};
  region.start_s = 0.1;
  region.duration_s = 0.5;
  shell.supports[0].kind = NurbsSupportKind::kDriven;
  scene.contact.check_intersections = true;
  Make(scene);
  Run(40);
  PALPATE_TEST_ASSIGN(const std::shared_ptr<const WorldState> state, world_->Capture());
  Run(260);
  const uint64_t expected = frame_->state_hash;
  const Eigen::AngleAxisd turned(0.5, -Vector3d::UnitY());
  for (size_t v = 0; v < scene.bodies[0].mesh.vertices.size(); ++v) {
    const Vector3d rest = scene.bodies[0].mesh.vertices[v] - region.center_m;
    EXPECT_LT((Vertex(0, v) - (turned * rest + region.center_m + Vector3d(0, 0, 0.05))).norm(), 3e-4)
        << v << ": it comes to rest as it was";
  }
  PALPATE_TEST_ASSIGN(world_, World::Restore(context(), scene, *state));
  Run(260);
  EXPECT_EQ(frame_->state_hash, expected);
}

TEST_F(NurbsShellTest, CoupledPatchesGoOnFromAStateWithTheSameBits) {
  SceneDescription scene;
  scene.bodies = {CoupledSheet(1e5)};
  for (Vector3d& p : scene.bodies[0].mesh.vertices) p.z() += 0.03;
  scene.bodies[0].nurbs_pose.position_m.z() = 0.03;
  scene.bodies[0].nurbs_shell->model = std::make_shared<const gpu::NurbsShellModel>(
      MovedNurbsShell(*scene.bodies[0].nurbs_shell->model, {{0, 0, 0.03}, Eigen::Quaterniond::Identity()}));
  ExpectTheSameBitsFromAState(scene);
  EXPECT_EQ(worst_intersections_, 0U);
}

}  // namespace
}  // namespace palpate::sim::nurbs_shell_test
