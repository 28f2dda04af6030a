// Bodies that are sewn to each other.
#include <gmock/gmock.h>

#include <Eigen/Dense>
#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "sim/mesh/surface_generators.h"
#include "sim/world/world.h"
#include "tests/sim/world/world_builders.h"
#include "tests/support/device_test.h"

namespace palpate::sim::sutures_test {
namespace {

using Eigen::Vector3d;
using test::BoxBody;
using ::testing::HasSubstr;

constexpr double kGap_m = 0.002;

class WorldSuturesTest : public test::DeviceTest {
 protected:
  /// A sheet beside (x > 0) and below a body whose lower side is the plane z = 0; its border at x = 0 lies a gap below that side.
  static BodyDescription Sheet(double length_m = 0.06) {
    const auto surface = GenerateSheetSurface(length_m, 0.04, 0.008);
    EXPECT_TRUE(surface.ok());
    BodyDescription body;
    body.name = "sheet";
    body.mesh.vertices = surface->vertices;
    for (Vector3d& v : body.mesh.vertices) v += Vector3d(length_m / 2, 0, -kGap_m);
    body.shell.emplace();
    body.shell->triangles = surface->triangles;
    body.shell->thickness_m = 0.0005;
    body.material.model = MaterialModel::kStVenantKirchhoff;
    body.material.young_modulus_pa = 1e5;
    body.material.poisson_ratio = 0.3;
    body.material.density_kg_per_m3 = 1000;
    body.material.mass_damping_per_s = 5;
    return body;
  }
  static std::vector<uint32_t> Border(const BodyDescription& sheet, double x_m) {
    std::vector<uint32_t> border;
    for (uint32_t v = 0; v < sheet.mesh.vertices.size(); ++v) {
      if (std::abs(sheet.mesh.vertices[v].x() - x_m) < 1e-6) border.push_back(v);
    }
    return border;
  }
  /// The sheet sewn by that border to the block, which is held at its top.
  static SceneDescription HangingSheet() {
    SceneDescription scene;
    scene.contact.margin_m = 0.0005;
    scene.contact.check_intersections = true;
    scene.bodies = {BoxBody("block", {0, 0, 0.01}, {5, 5, 3}, {0.04, 0.05, 0.02}), Sheet()};
    for (uint32_t v = 0; v < scene.bodies[0].mesh.vertices.size(); ++v) {
      if (scene.bodies[0].mesh.vertices[v].z() > 0.0199) scene.bodies[0].fixed_vertices.push_back(v);
    }
    scene.bodies[0].material.young_modulus_pa = 20000;
    scene.sutures = {{.body_a = 1, .body_b = 0, .vertices = Border(scene.bodies[1], 0), .reach_m = 0.004}};
    return scene;
  }
  std::unique_ptr<World> Start(const SceneDescription& scene) {
    auto world = World::Create(context(), scene);
    EXPECT_TRUE(world.ok()) << world.status();
    return world.ok() ? *std::move(world) : nullptr;
  }
  std::shared_ptr<const Frame> Run(World& world, int steps) {
    std::shared_ptr<const Frame> frame = world.CurrentFrame();
    for (int i = 0; i < steps && !HasFailure(); ++i) {
      frame = test::Step(world, {});
      EXPECT_EQ(frame->contact_statistics.intersection_count, 0U);
    }
    return frame;
  }
  static std::vector<Vector3d> Places(const Frame& frame, size_t body) {
    std::vector<Vector3d> places;
    const std::vector<float>& x = frame.surface_positions_m[body];
    for (size_t i = 0; i + 2 < x.size(); i += 3) places.emplace_back(x[i], x[i + 1], x[i + 2]);
    return places;
  }
  static Vector3d MeanOf(const std::vector<Vector3d>& places) {
    Vector3d sum = Vector3d::Zero();
    for (const Vector3d& place : places) sum += place / static_cast<double>(places.size());
    return sum;
  }
};

TEST_F(WorldSuturesTest, ASheetHangsFromTheTissueItIsSewnTo) {
  const SceneDescription scene = HangingSheet();
  ASSERT_GE(scene.sutures[0].vertices.size(), 5U);
  const auto world = Start(scene);
  ASSERT_NE(world, nullptr);
  const auto frame = Run(*world, 300);
  const std::vector<Vector3d> sheet = Places(*frame, 1);
  ASSERT_EQ(sheet.size(), scene.bodies[1].mesh.vertices.size()) << "all vertices of a sheet are of its surface, in their order";
  double lowest_m = 0;
  for (const Vector3d& place : sheet) lowest_m = std::min(lowest_m, place.z());
  EXPECT_LT(lowest_m, -0.045) << "it hangs down";
  EXPECT_GT(lowest_m, -0.08);
  for (const uint32_t v : scene.sutures[0].vertices) {
    EXPECT_LT((sheet[v] - scene.bodies[1].mesh.vertices[v]).norm(), 0.0015) << "vertex " << v;
  }
  EXPECT_LT(frame->max_speed_m_per_s, 0.05);
  // Frames say where each stitch is, from the start on.
  ASSERT_EQ(frame->stitches.size(), scene.sutures[0].vertices.size());
  EXPECT_TRUE(frame->clips.empty());
  PALPATE_TEST_ASSIGN(const auto at_start, world->Reset());
  ASSERT_EQ(at_start->stitches.size(), frame->stitches.size());
  for (size_t i = 0; i < frame->stitches.size(); ++i) {
    const uint32_t v = scene.sutures[0].vertices[i];
    const Vector3d& rest_m = scene.bodies[1].mesh.vertices[v];
    EXPECT_LT((frame->stitches[i].point_a_m - sheet[v]).norm(), 1e-6) << "the sewn vertex";
    EXPECT_LT((frame->stitches[i].point_b_m - rest_m - Vector3d(0, 0, kGap_m)).norm(), 0.0015) << "on the block, which hardly moves";
    EXPECT_LT((at_start->stitches[i].point_a_m - rest_m).norm(), 1e-6);
    EXPECT_LT((at_start->stitches[i].point_b_m - rest_m - Vector3d(0, 0, kGap_m)).norm(), 1e-6) << "right above it, on the lower side";
  }
  // The block bears it.
  const std::vector<Vector3d> block = Places(*frame, 0);
  EXPECT_LT(MeanOf(block).z(), 0.01);
}

TEST_F(WorldSuturesTest, WithoutThemItFalls) {
  SceneDescription scene = HangingSheet();
  scene.sutures.clear();
  const auto world = Start(scene);
  ASSERT_NE(world, nullptr);
  EXPECT_LT(MeanOf(Places(*Run(*world, 60), 1)).z(), -0.5);
}

TEST_F(WorldSuturesTest, WhereTheStitchesAreCutAwayItFalls) {
  const auto world = Start(HangingSheet());
  ASSERT_NE(world, nullptr);
  Run(*world, 60);
  const auto outcomes = world->Apply(std::vector<Edit>{{1, CarveEdit{CapsuleRegion{{0, -0.05, -kGap_m}, {0, 0.05, -kGap_m}, 0.012}}}});
  ASSERT_TRUE(outcomes.ok()) << outcomes.status();
  const auto frame = Run(*world, 60);
  EXPECT_LT(MeanOf(Places(*frame, 1)).z(), -0.5);
  EXPECT_TRUE(frame->stitches.empty());
}

TEST_F(WorldSuturesTest, ARigidBodyHangsFromASheetThatIsSewnToTissue) {
  SceneDescription scene = HangingSheet();
  scene.bodies[1] = Sheet(0.04);
  scene.bodies[1].material.young_modulus_pa = 1e6;
  scene.sutures[0].vertices = Border(scene.bodies[1], 0);
  // It lies on the sheet's other border.
  scene.bodies.push_back(BoxBody("stone", {0.04, 0, 0.01 - kGap_m + 0.002}, {2, 4, 2}, {0.016, 0.04, 0.02}));
  scene.bodies[2].kind = BodyKind::kRigid;
  scene.bodies[2].self_collision = false;
  scene.bodies[2].material.density_kg_per_m3 = 800;
  scene.sutures.push_back({.body_a = 1, .body_b = 2, .vertices = Border(scene.bodies[1], 0.04), .reach_m = 0.004});
  const auto world = Start(scene);
  ASSERT_NE(world, nullptr);
  const double stone_z_m = MeanOf(Places(*Run(*world, 400), 2)).z();
  EXPECT_LT(stone_z_m, -0.015) << "it swings down";
  EXPECT_GT(stone_z_m, -0.08) << "and is held";
  EXPECT_LT(world->CurrentFrame()->max_speed_m_per_s, 0.2);
}

TEST_F(WorldSuturesTest, ResetsAndCheckpointsHaveTheSameBits) {
  const SceneDescription scene = HangingSheet();
  const auto world = Start(scene);
  ASSERT_NE(world, nullptr);
  std::vector<uint64_t> hashes;
  for (int i = 0; i < 20; ++i) hashes.push_back(Run(*world, 1)->state_hash);
  // Edited, so that a reset builds the bodies anew.
  ASSERT_TRUE(world->Apply(std::vector<Edit>{{1, CarveEdit{BallRegion{{0.06, 0, -kGap_m}, 0.02}}}}).ok());
  ASSERT_TRUE(world->Reset().ok());
  std::shared_ptr<const WorldState> state;
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(Run(*world, 1)->state_hash, hashes[static_cast<size_t>(i)]) << i;
    if (i != 9) continue;
    PALPATE_TEST_ASSIGN(state, world->Capture());
  }
  PALPATE_TEST_ASSIGN(const auto restored, World::Restore(context(), scene, *state));
  EXPECT_EQ(restored->CurrentFrame()->stitches.size(), scene.sutures[0].vertices.size());
  for (size_t i = 10; i < 20; ++i) EXPECT_EQ(Run(*restored, 1)->state_hash, hashes[i]) << i;
  ASSERT_TRUE(restored->Reset().ok());
  for (size_t i = 0; i < 5; ++i) EXPECT_EQ(Run(*restored, 1)->state_hash, hashes[i]) << i;
}

TEST_F(WorldSuturesTest, WhatCannotBeSewnIsRefusedByName) {
  SceneDescription scene = HangingSheet();
  scene.sutures[0].reach_m = 0.001;
  auto world = World::Create(context(), scene);
  ASSERT_FALSE(world.ok());
  EXPECT_THAT(std::string(world.status().message()), HasSubstr("of sheet is 2.0 mm from the surface of block, and reach_m is 0.001"));
  scene = HangingSheet();
  scene.sutures[0] = {.body_a = 0, .body_b = 1, .vertices = {}, .reach_m = 0.05};
  for (uint32_t v = 0; v < scene.bodies[0].mesh.vertices.size(); ++v) {  // one that is inside
    const Vector3d& x = scene.bodies[0].mesh.vertices[v];
    if (std::abs(x.x()) < 0.005 && std::abs(x.y()) < 0.005 && std::abs(x.z() - 0.01) < 0.005) scene.sutures[0].vertices = {v};
  }
  ASSERT_EQ(scene.sutures[0].vertices.size(), 1U);
  world = World::Create(context(), scene);
  ASSERT_FALSE(world.ok());
  EXPECT_THAT(std::string(world.status().message()), HasSubstr("sutures[0]: no vertex of the region is on the surface of block"));
}

}  // namespace
}  // namespace palpate::sim::sutures_test
