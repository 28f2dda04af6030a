// What holds and pushes a body: supports that slide, named zones of the surface, loads on them, a volume that is kept; also through edits.
#include <gmock/gmock.h>

#include <Eigen/Dense>
#include <algorithm>
#include <bit>
#include <cmath>
#include <string>
#include <vector>

#include "sim/mesh/generators.h"
#include "sim/world/world.h"
#include "tests/sim/world/topology_checks.h"
#include "tests/sim/world/world_builders.h"
#include "tests/support/device_test.h"

namespace palpate::sim::support_test {
namespace {

using Eigen::Vector3d;
using test::BoxBody;
using ::testing::HasSubstr;

class WorldSupportTest : public test::DeviceTest {
 protected:
  /// A block 60 x 60 x 40 mm about the origin.
  static SceneDescription Block() {
    SceneDescription scene;
    scene.bodies = {BoxBody("block", {0, 0, 0}, {7, 7, 5}, {0.06, 0.06, 0.04})};
    scene.contact.check_intersections = true;
    return scene;
  }
  /// Triangles of a side of the block at rest, those that `wanted` takes by their centroid.
  template <typename F>
  static std::vector<std::array<uint32_t, 3>> SideOf(const TetMesh& mesh, int axis, double at, const F& wanted) {
    std::vector<std::array<uint32_t, 3>> out;
    const BoundarySurface surface = ExtractBoundary(mesh);
    for (const auto& t : surface.triangles) {
      Vector3d center = Vector3d::Zero();
      double off = 0;
      for (const uint32_t v : t) {
        const Vector3d& x = mesh.vertices[surface.vertices[v]];
        center += x / 3;
        off = std::max(off, std::abs(x[axis] - at));
      }
      if (off < 1e-6 && wanted(center)) out.push_back({surface.vertices[t[0]], surface.vertices[t[1]], surface.vertices[t[2]]});
    }
    return out;
  }
  static std::vector<Vector3d> Volume(World& world, size_t body) {
    auto flat = world.ReadVolumePositions(body);
    EXPECT_TRUE(flat.ok()) << flat.status();
    std::vector<Vector3d> out;
    for (size_t i = 0; flat.ok() && i < flat->size(); i += 3) out.emplace_back((*flat)[i], (*flat)[i + 1], (*flat)[i + 2]);
    return out;
  }
  static double VolumeOf(World& world, size_t body) {
    const std::vector<Vector3d> x = Volume(world, body);
    double sum = 0;
    for (const auto& t : world.CurrentFrame()->topology->bodies[body]->tets) {
      if (t == std::array<uint32_t, 4>{}) continue;
      sum += (x[t[1]] - x[t[0]]).cross(x[t[2]] - x[t[0]]).dot(x[t[3]] - x[t[0]]) / 6;
    }
    return sum;
  }
  static uint32_t BitsOf(double value) { return std::bit_cast<uint32_t>(static_cast<float>(value)); }
};

// Gravity pulls the block off the plane that it slides on: a vertex of the plane that no longer knew of it would leave it at once.
TEST_F(WorldSupportTest, SlidingVerticesStayOnTheirPlaneThroughEdits) {
  SceneDescription scene = Block();
  BodyDescription& block = scene.bodies[0];
  for (uint32_t v = 0; v < block.mesh.vertices.size(); ++v) {
    if (block.mesh.vertices[v].z() > -0.0199) continue;
    if (block.mesh.vertices[v].head<2>().norm() < 0.001) {
      block.fixed_vertices.push_back(v);
    } else {
      block.sliding_vertices.push_back({v, 4});
    }
  }
  ASSERT_EQ(block.sliding_vertices.size(), 48U);
  scene.gravity_m_per_s2 = {3, 0, 30};
  ToolDescription probe;  // pushes from the side, so that planes bound moves of the vertices that slide
  probe.name = "probe";
  probe.drive = ToolDrive::kDirect;
  probe.rest_pose.position_m = {0.03 + 0.004, 0, -0.018};
  scene.tools = {probe};
  PALPATE_TEST_ASSIGN(const auto world, World::Create(context(), scene));
  EXPECT_EQ(world->body_statistics()[0].fixed_vertex_count, 1U);
  const ToolCommand* const commands[] = {nullptr};
  const auto on_plane = [&] {
    std::vector<size_t> slots;
    const std::vector<Vector3d> x = Volume(*world, 0);
    for (size_t v = 0; v < x.size(); ++v) {
      if (BitsOf(x[v].z()) == BitsOf(block.mesh.vertices[0].z())) slots.push_back(v);
    }
    return slots;
  };
  size_t vertices = on_plane().size();
  EXPECT_EQ(vertices, 49U);
  const auto run = [&](int steps, const char* what) {
    const std::vector<size_t> slots = on_plane();
    EXPECT_GE(slots.size(), vertices) << what;
    for (int n = 0; n < steps; ++n) {
      PALPATE_TEST_ASSIGN(const auto frame, world->Step(commands));
      ASSERT_EQ(frame->contact_statistics.intersection_count, 0U) << what << ", step " << n;
    }
    EXPECT_EQ(on_plane(), slots) << what;
  };
  ASSERT_NO_FATAL_FAILURE(run(60, "at first"));
  const std::vector<Vector3d> pulled = Volume(*world, 0);
  EXPECT_GT(std::abs(pulled[block.sliding_vertices[0].vertex].x() - block.mesh.vertices[block.sliding_vertices[0].vertex].x()), 1e-4)
      << "it slides";
  const std::vector<Edit> refine = {{.body = 0, .what = RefineEdit{BallRegion{{0.01, 0.01, -0.02}, 0.015}, 0.008, 0}}};
  PALPATE_TEST_ASSIGN(const auto refined, world->Apply(refine));
  EXPECT_GT(refined[0].added_vertices.size(), 5U);
  vertices += 3;
  ASSERT_NO_FATAL_FAILURE(run(70, "refined"));
  InciseEdit incise;  // all the way down, beside the fixed vertex
  for (const double z : {0.05, -0.05}) incise.edges_m.push_back({Vector3d(-0.0153, -0.05, z), Vector3d(-0.0153, 0.0, z)});
  const std::vector<Edit> cut = {{.body = 0, .what = incise}};
  PALPATE_TEST_ASSIGN(const auto outcome, world->Apply(cut));
  EXPECT_GT(outcome[0].added_vertices.size(), 10U);
  vertices += 3;
  ASSERT_NO_FATAL_FAILURE(run(70, "cut"));
  ASSERT_NO_FATAL_FAILURE(test::CheckTopology(*world, nullptr));
  PALPATE_ASSERT_OK(world->Reset().status());
  vertices = 49;
  ASSERT_NO_FATAL_FAILURE(run(20, "reset"));
  EXPECT_EQ(on_plane().size(), 49U);
}

TEST_F(WorldSupportTest, RefusesBadSupportsAndZones) {
  const auto expect = [&](const SceneDescription& scene, const std::string& part) {
    const auto world = World::Create(context(), scene);
    EXPECT_EQ(world.status().code(), absl::StatusCode::kInvalidArgument) << part;
    EXPECT_THAT(std::string(world.status().message()), HasSubstr(part));
  };
  SceneDescription scene = Block();
  scene.bodies[0].sliding_vertices = {{3, 7}};
  expect(scene, "bodies[0] (block).sliding_vertices: vertex 3");
  scene.bodies[0].sliding_vertices = {{3, 4}};
  scene.bodies[0].fixed_vertices = {3};
  expect(scene, "vertex 3 is fixed or given twice");
  scene = Block();
  scene.bodies[0].kind = BodyKind::kRigid;
  scene.bodies[0].self_collision = false;
  scene.bodies[0].sliding_vertices = {{3, 4}};
  expect(scene, "need a deformable body");
  scene = Block();
  scene.bodies[0].surface_zones.emplace_back();
  expect(scene, ".surface_zones[0]: has no triangle");
  scene.bodies[0].surface_zones[0].triangles = {{0, 1, 200}};
  expect(scene, ".surface_zones[0].triangles[0]: is none of the surface");
  scene = Block();
  scene.bodies[0].loads.emplace_back();
  scene.bodies[0].loads[0].surface_zone = 0;
  expect(scene, ".loads[0].surface_zone: 0 is outside [0, 0)");
}

// The load goes with its triangles: those that are refined, those that a piece takes along; not those that cuts uncover.
TEST_F(WorldSupportTest, ALoadOnASurfaceZoneFollowsEdits) {
  SceneDescription scene = Block();
  BodyDescription& block = scene.bodies[0];
  scene.gravity_m_per_s2.setZero();
  scene.dt_s = 0.002;
  scene.solver.iterations = 60;
  block.material.young_modulus_pa = 200000;
  block.material.damping_s = 0.02;
  SurfaceZoneDescription top{.name = "top", .color = {0, 0, 1}, .triangles = {}};
  top.triangles = SideOf(block.mesh, 2, 0.02, [](const Vector3d& c) { return c.x() < 0; });
  SurfaceZoneDescription side{.name = "side", .color = {0, 1, 0}, .triangles = {}};
  side.triangles = SideOf(block.mesh, 0, 0.03, [](const Vector3d&) { return true; });
  block.surface_zones = {top, side};
  LoadDescription load;
  load.surface_zone = 0;
  load.pressure_pa = 20;
  block.loads = {load};
  PALPATE_TEST_ASSIGN(const auto world, World::Create(context(), scene));
  // Of a body: triangles, and area at rest, of a zone; those of the zone face up.
  const auto zone_of = [&](size_t body, const std::string& name, double* area_m2) {
    const BodyArrays& arrays = *world->CurrentFrame()->topology->bodies[body];
    const auto& x = world->CurrentFrame()->surface_positions_m[body];
    const auto found =
        std::find_if(arrays.surface_zones.begin(), arrays.surface_zones.end(), [&](const auto& z) { return z.name == name; });
    EXPECT_NE(found, arrays.surface_zones.end());
    size_t count = 0;
    *area_m2 = 0;
    for (size_t t = 0; t < arrays.surface_triangles.size(); ++t) {
      const auto& v = arrays.surface_triangles[t];
      if (v == kFreeTriangle || arrays.triangle_zones[t] != found - arrays.surface_zones.begin()) continue;
      std::array<Vector3d, 3> p;
      for (size_t c = 0; c < 3; ++c) {
        const float* const at = &x[size_t{3} * ToNumber(v[c])];
        p[c] = {at[0], at[1], at[2]};
      }
      *area_m2 += (p[1] - p[0]).cross(p[2] - p[0]).z() / 2;
      ++count;
    }
    return count;
  };
  const auto center = [&](size_t body) {
    const std::vector<Vector3d> x = Volume(*world, body);
    Vector3d sum = Vector3d::Zero();
    double volume = 0;
    for (const auto& t : world->CurrentFrame()->topology->bodies[body]->tets) {
      if (t == std::array<uint32_t, 4>{}) continue;
      const double v = (x[t[1]] - x[t[0]]).cross(x[t[2]] - x[t[0]]).dot(x[t[3]] - x[t[0]]) / 6;
      sum += v * (x[t[0]] + x[t[1]] + x[t[2]] + x[t[3]]) / 4;
      volume += v;
    }
    return Vector3d(sum / volume);
  };
  /// Change of the velocity of the body's centre in a few steps, times its mass: the force that acts.
  const auto force_on = [&](size_t body) {
    constexpr int kSteps = 20;
    const Vector3d c0 = center(body);
    EXPECT_TRUE(world->Step({}).ok());
    const Vector3d v0 = (center(body) - c0) / scene.dt_s;
    for (int n = 0; n < kSteps - 1; ++n) EXPECT_TRUE(world->Step({}).ok());
    const Vector3d c1 = center(body);
    EXPECT_TRUE(world->Step({}).ok());
    const Vector3d v1 = (center(body) - c1) / scene.dt_s;
    return Vector3d(world->body_statistics()[body].mass_kg * (v1 - v0) / (kSteps * scene.dt_s));
  };
  double area_m2 = 0;
  EXPECT_EQ(zone_of(0, "top", &area_m2), top.triangles.size());
  EXPECT_NEAR(area_m2, 0.03 * 0.06, 1e-6);
  EXPECT_EQ(zone_of(0, "side", &area_m2), side.triangles.size());
  EXPECT_EQ(world->CurrentFrame()->topology->bodies[0]->surface_zones.size(), 4U);
  EXPECT_NEAR(force_on(0).z(), -20 * 0.03 * 0.06, 0.02 * 20 * 0.03 * 0.06);

  const auto before = world->CurrentFrame();
  const std::vector<Edit> refine = {{.body = 0, .what = RefineEdit{BallRegion{center(0) + Vector3d(-0.02, 0, 0.02), 0.012}, 0.008, 0}}};
  PALPATE_ASSERT_OK(world->Apply(refine).status());
  EXPECT_GT(zone_of(0, "top", &area_m2), top.triangles.size() + 5);
  EXPECT_NEAR(area_m2, 0.03 * 0.06, 1e-5);
  ASSERT_NO_FATAL_FAILURE(test::CheckTopology(*world, before->topology.get()));
  EXPECT_NEAR(force_on(0).z(), -20 * 0.03 * 0.06, 0.02 * 20 * 0.03 * 0.06);

  // What the hollow uncovers is in no named zone.
  const std::vector<Edit> carve = {{.body = 0, .what = CarveEdit{BallRegion{center(0) + Vector3d(-0.03, 0, 0.02), 0.016}}}};
  PALPATE_TEST_ASSIGN(const auto carved, world->Apply(carve));
  EXPECT_GT(carved[0].removed_tets.size(), 20U);
  zone_of(0, "top", &area_m2);
  EXPECT_LT(area_m2, 0.8 * 0.03 * 0.06);
  EXPECT_GT(area_m2, 0.4 * 0.03 * 0.06);
  EXPECT_NEAR(force_on(0).z(), -20 * area_m2, 0.03 * 20 * area_m2);

  // Cut in two across the zone: each part has its own.
  const double x = center(0).x() - 0.0148;
  InciseEdit incise;
  for (const double z : {0.08, -0.08}) incise.edges_m.push_back({Vector3d(x, -0.08, z), Vector3d(x, 0.08, z)});
  const std::vector<Edit> cut = {{.body = 0, .what = incise}};
  PALPATE_TEST_ASSIGN(const auto outcome, world->Apply(cut));
  ASSERT_EQ(outcome[0].new_bodies.size(), 1U);
  double sum_m2 = 0;
  for (const size_t body : {size_t{0}, size_t{1}}) {
    zone_of(body, "top", &area_m2);
    EXPECT_GT(area_m2, 1e-4) << "body " << body;
    sum_m2 += area_m2;
  }
  const double both_n = force_on(0).z();  // the other goes on meanwhile
  zone_of(0, "top", &area_m2);
  EXPECT_NEAR(both_n, -20 * area_m2, 0.05 * 20 * sum_m2);
}

// Pressed between a plane that it slides on and a zone of its top, whole, hollowed and in two pieces: each keeps the volume of its tissue.
TEST_F(WorldSupportTest, AKeptVolumeFollowsEdits) {
  for (const auto& [k, coarse_nodes] : {std::pair(0.0, 0), {1e6, 0}, {1e6, 500}}) {
    SCOPED_TRACE(testing::Message() << k << " Pa, " << coarse_nodes << " nodes");
    SceneDescription scene = Block();
    scene.solver.coarse_nodes = coarse_nodes;
    BodyDescription& block = scene.bodies[0];
    scene.gravity_m_per_s2.setZero();
    scene.dt_s = 1.0 / 60;
    block.material.poisson_ratio = 0.3;
    block.material.damping_s = 0.02;
    block.volume_stiffness_pa = k;
    for (uint32_t v = 0; v < block.mesh.vertices.size(); ++v) {
      if (block.mesh.vertices[v].z() > -0.0199) continue;
      if (block.mesh.vertices[v].head<2>().norm() < 0.001) {
        block.fixed_vertices.push_back(v);  // or a slanted top would push it along the plane
      } else {
        block.sliding_vertices.push_back({v, 4});
      }
    }
    SurfaceZoneDescription top{.name = "top", .color = {0, 0, 1}, .triangles = {}};
    top.triangles = SideOf(block.mesh, 2, 0.02, [](const Vector3d&) { return true; });
    block.surface_zones = {top};
    LoadDescription load;
    load.surface_zone = 0;
    load.pressure_pa = 600;
    block.loads = {load};
    PALPATE_TEST_ASSIGN(const auto world, World::Create(context(), scene));
    const auto run = [&](int steps) {
      for (int n = 0; n < steps; ++n) {
        PALPATE_TEST_ASSIGN(const auto frame, world->Step({}));
        ASSERT_EQ(frame->contact_statistics.intersection_count, 0U) << "step " << n;
      }
    };
    // Share of its volume at rest that a body has lost.
    const auto lost = [&](size_t body) { return 1 - VolumeOf(*world, body) / world->body_statistics()[body].volume_m3; };
    ASSERT_NO_FATAL_FAILURE(run(60));
    if (k == 0) {
      EXPECT_GT(lost(0), 0.03);
      continue;
    }
    EXPECT_NEAR(lost(0), 0, 1e-3);
    const double whole_m3 = world->body_statistics()[0].volume_m3;
    const std::vector<Edit> carve = {{.body = 0, .what = CarveEdit{BallRegion{{-0.03, 0, 0.015}, 0.018}}}};
    PALPATE_ASSERT_OK(world->Apply(carve).status());
    EXPECT_LT(world->body_statistics()[0].volume_m3, 0.97 * whole_m3);
    ASSERT_NO_FATAL_FAILURE(run(60));
    EXPECT_NEAR(lost(0), 0, 1e-3);
    InciseEdit incise;
    for (const double z : {0.05, -0.05}) incise.edges_m.push_back({Vector3d(0.0153, -0.06, z), Vector3d(0.0153, 0.06, z)});
    const std::vector<Edit> cut = {{.body = 0, .what = incise}};
    PALPATE_TEST_ASSIGN(const auto outcome, world->Apply(cut));
    ASSERT_EQ(outcome[0].new_bodies.size(), 1U) << outcome[0].note;
    ASSERT_NO_FATAL_FAILURE(run(60));
    EXPECT_NEAR(lost(0), 0, 1e-3);
    EXPECT_NEAR(lost(1), 0, 1e-3);
    // All of one piece goes: nothing is left of its volume, and the other goes on.
    const std::vector<Edit> all = {{.body = 1, .what = CarveEdit{BallRegion{{0, 0, 0}, 1}}}};
    PALPATE_ASSERT_OK(world->Apply(all).status());
    ASSERT_NO_FATAL_FAILURE(run(20));
    EXPECT_NEAR(lost(0), 0, 1e-3);
  }
}

}  // namespace
}  // namespace palpate::sim::support_test
