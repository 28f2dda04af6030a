// Contact between bodies as a scene's description asks for it and its frames report it.
#include <Eigen/Dense>
#include <algorithm>
#include <array>
#include <string>

#include "gpu/dynamics/driven_poses.h"
#include "sim/mesh/generators.h"
#include "sim/world/world.h"
#include "tests/sim/world/world_builders.h"
#include "tests/support/device_test.h"

namespace palpate::sim::surface_contact_test {
namespace {

using Eigen::Vector3d;
using Eigen::Vector3f;

class WorldSurfaceContactTest : public test::DeviceTest {
 protected:
  /// A cube of 4 cm whose lower face is at z.
  static BodyDescription Cube(const std::string& name, const Vector3d& corner_m) {
    BodyDescription body;
    body.name = name;
    constexpr int kCells = 2;
    constexpr double kCell_m = 0.02;
    const auto index = [](int i, int j, int k) { return static_cast<uint32_t>(i + (kCells + 1) * (j + (kCells + 1) * k)); };
    for (int k = 0; k <= kCells; ++k) {
      for (int j = 0; j <= kCells; ++j) {
        for (int i = 0; i <= kCells; ++i) body.mesh.vertices.push_back(corner_m + kCell_m * Vector3d(i, j, k));
      }
    }
    constexpr int kPaths[6][3] = {{0, 1, 2}, {1, 2, 0}, {2, 0, 1}, {0, 2, 1}, {2, 1, 0}, {1, 0, 2}};
    for (int cell = 0; cell < kCells * kCells * kCells; ++cell) {
      for (int path = 0; path < 6; ++path) {
        int at[3] = {cell % kCells, cell / kCells % kCells, cell / kCells / kCells};
        std::array<uint32_t, 4> tet{index(at[0], at[1], at[2])};
        for (size_t s = 0; s < 3; ++s) {
          ++at[kPaths[path][s]];
          tet[s + 1] = index(at[0], at[1], at[2]);
        }
        if (path >= 3) std::swap(tet[2], tet[3]);
        body.mesh.tets.push_back(tet);
      }
    }
    return body;
  }
};

TEST_F(WorldSurfaceContactTest, FramesTellWhoPushesWhom) {
  SceneDescription scene;
  scene.bodies = {Cube("below", {0, 0, 0}), Cube("above", {0.003, 0.002, 0.0412})};
  for (uint32_t v = 0; v < scene.bodies[0].mesh.vertices.size(); ++v) {
    if (scene.bodies[0].mesh.vertices[v].z() < 0.001) scene.bodies[0].fixed_vertices.push_back(v);
  }
  scene.contact.check_intersections = true;
  PALPATE_TEST_ASSIGN(auto world, World::Create(context(), scene));
  std::shared_ptr<const Frame> frame;
  for (int i = 0; i < 100; ++i) {
    PALPATE_TEST_ASSIGN(frame, world->Step({}));
    ASSERT_EQ(frame->contact_statistics.intersection_count, 0U);
  }
  ASSERT_FALSE(frame->surface_contacts.empty());
  EXPECT_EQ(frame->contact_statistics.acting_count, frame->surface_contacts.size());
  EXPECT_GE(frame->contact_statistics.contact_count, frame->contact_statistics.acting_count);
  EXPECT_GE(frame->contact_statistics.detection_count, 1U);
  double on_above = 0;
  for (const FrameSurfaceContact& c : frame->surface_contacts) {
    ASSERT_NE(c.body_a, c.body_b);
    on_above += c.body_b == 1 ? c.force_n.z() : -c.force_n.z();
    // The vertices are places in the surfaces of the frame: A's and B's points are mixtures of theirs.
    const size_t of_a = c.kind == SurfaceContactKind::kVertexTriangle ? 1 : 2;
    for (const bool side_b : {false, true}) {
      Eigen::AlignedBox3f box;
      for (size_t k = side_b ? of_a : 0; k < (side_b ? 4 : of_a); ++k) {
        const auto& positions = frame->surface_positions_m[side_b ? c.body_b : c.body_a];
        const size_t at = size_t{3} * ToNumber(c.vertices[k]);
        ASSERT_LT(at + 2, positions.size());
        box.extend(Vector3f(positions[at], positions[at + 1], positions[at + 2]));
      }
      EXPECT_LT(box.exteriorDistance(side_b ? c.point_b_m : c.point_a_m), 1e-5F);
    }
    EXPECT_NEAR(c.distance_m, (c.point_b_m - c.point_a_m).norm(), 1e-6);
    EXPECT_NEAR(c.normal.norm(), 1, 1e-4);
  }
  const double weight_n = 0.04 * 0.04 * 0.04 * 1060 * 9.81;
  EXPECT_NEAR(on_above, weight_n, 0.1 * weight_n);
}

TEST_F(WorldSurfaceContactTest, DrivenRegionsMoveAndInitialVelocitiesAreTaken) {
  SceneDescription scene;
  scene.gravity_m_per_s2.setZero();
  scene.bodies = {Cube("driven", {0, 0, 0}), Cube("thrown", {0.2, 0, 0})};
  BodyDescription& driven = scene.bodies[0];
  DrivenRegion region;
  for (uint32_t v = 0; v < driven.mesh.vertices.size(); ++v) {
    if (driven.mesh.vertices[v].z() < 0.001) {
      driven.fixed_vertices.push_back(v);
      region.vertices.push_back(v);
    }
  }
  region.velocity_m_per_s = {0, 0.1, 0};
  region.angular_velocity_rad_per_s = {0, 0, 2};
  region.center_m = {0.02, 0.02, 0};
  region.start_s = 0.1;
  region.duration_s = 0.2;
  driven.driven_regions = {region};
  scene.bodies[1].velocity_m_per_s = {0.5, 0, 0};
  PALPATE_TEST_ASSIGN(auto world, World::Create(context(), scene));
  for (int round = 0; round < 2; ++round) {
    std::shared_ptr<const Frame> frame;
    for (int i = 1; i <= 60; ++i) {
      PALPATE_TEST_ASSIGN(frame, world->Step({}));
      const double moved_s = std::clamp(frame->sim_time_s - region.start_s, 0.0, region.duration_s);
      PALPATE_TEST_ASSIGN(const std::vector<float> x, world->ReadVolumePositions(0));
      for (const uint32_t v : region.vertices) {
        const Vector3d target = region.center_m + moved_s * region.velocity_m_per_s +
                                Eigen::AngleAxisd(2 * moved_s, Vector3d::UnitZ()) * (driven.mesh.vertices[v] - region.center_m);
        ASSERT_LT((Vector3d(x[3 * v], x[3 * v + 1], x[3 * v + 2]) - target).norm(), 1e-6) << "step " << i;
      }
    }
    PALPATE_TEST_ASSIGN(const std::vector<float> x, world->ReadVolumePositions(1));
    EXPECT_NEAR(x[0], 0.2 + 0.5 * frame->sim_time_s, 1e-4);
    PALPATE_ASSERT_OK(world->Reset().status());
  }
}

// A bar, all of it driven: one end rests, the other swings about a hinge that moves, and what lies between follows the mean of both.
TEST_F(WorldSurfaceContactTest, BlendedRegionsFollowTheMeanOfTheirMotions) {
  SceneDescription scene;
  scene.gravity_m_per_s2.setZero();
  scene.bodies = {test::BoxBody("bar", {0, 0, 0}, {9, 3, 3}, {0.08, 0.02, 0.02}), Cube("free", {0.2, 0, 0})};
  BodyDescription& bar = scene.bodies[0];
  DrivenRegion hip{
      .vertices = {}, .center_m = {0, 0, 0.1}, .duration_s = 10, .keys = {{}, {0.25, {0, 0.01, 0}, {0.4, 0, 0}}}, .period_s = 0.5};
  DrivenRegion knee{
      .vertices = {}, .center_m = {0.04, 0, 0}, .duration_s = 10, .keys = {{}, {0.1, {}, {0, 0.5, 0.1}}}, .period_s = 0.5, .parent = 0};
  const auto share_of = [](double x) { return std::clamp(0.5 + x / 0.05, 0.0, 1.0); };
  for (uint32_t v = 0; v < bar.mesh.vertices.size(); ++v) {
    bar.fixed_vertices.push_back(v);
    const auto share = static_cast<float>(share_of(bar.mesh.vertices[v].x()));
    DrivenRegion& region = share > 0.5F ? knee : hip;
    region.vertices.push_back(v);
    region.blends.push_back({.regions = {share > 0.5F ? 1U : 0U, share > 0.5F ? 0U : 1U, DrivenBlend::kRests, DrivenBlend::kRests},
                             .shares = {std::max(share, 1 - share), std::min(share, 1 - share), 0, 0}});
  }
  bar.driven_regions = {hip, knee};
  PALPATE_TEST_ASSIGN(auto world, World::Create(context(), scene));
  std::vector<gpu::TissueDrivenRegion> laws = {TissueDrivenRegionOf(hip, 0), TissueDrivenRegionOf(knee, 0)};
  for (int i = 1; i <= 90; ++i) {
    PALPATE_TEST_ASSIGN(const auto frame, world->Step({}));
    PALPATE_TEST_ASSIGN(const std::vector<float> x, world->ReadVolumePositions(0));
    std::array<gpu::DrivenPose, 2> poses;
    gpu::PosesOf(laws, frame->sim_time_s, poses);
    for (uint32_t v = 0; v < bar.mesh.vertices.size(); ++v) {
      Vector3d target(0, 0, 0);
      for (size_t r = 0; r < 2; ++r) {
        const Eigen::Quaterniond turn(poses[r].rotation.w, poses[r].rotation.x, poses[r].rotation.y, poses[r].rotation.z);
        const Vector3d center(poses[r].center.x, poses[r].center.y, poses[r].center.z);
        const Vector3d start(poses[r].center_start.x, poses[r].center_start.y, poses[r].center_start.z);
        const double share = share_of(bar.mesh.vertices[v].x());
        target += (r == 1 ? share : 1 - share) * (center + turn * (bar.mesh.vertices[v] - start));
      }
      ASSERT_LT((Vector3d(x[3 * v], x[3 * v + 1], x[3 * v + 2]) - target).norm(), 1e-6) << "step " << i << ", vertex " << v;
    }
  }
}

TEST_F(WorldSurfaceContactTest, RefusesDrivenVerticesThatAreFree) {
  SceneDescription scene;
  scene.bodies = {Cube("driven", {0, 0, 0})};
  // Regions are those of the body, though the scene has more.
  scene.bodies.push_back(Cube("other", {0.2, 0, 0}));
  for (BodyDescription& body : scene.bodies) {
    body.fixed_vertices = {3};
    body.driven_regions = {
        {.vertices = {3},
         .blends = {{.regions = {0, DrivenBlend::kRests, DrivenBlend::kRests, DrivenBlend::kRests}, .shares = {1, 0, 0, 0}}}}};
  }
  PALPATE_EXPECT_OK(World::Create(context(), scene).status());
  scene.bodies[0].driven_regions[0].blends[0].regions[0] = 1;
  EXPECT_THAT(std::string(World::Create(context(), scene).status().message()), testing::HasSubstr("driven region 0: blend 0 has region 1"));
  scene.bodies[0].driven_regions[0].blends.clear();
  scene.bodies[1].driven_regions[0].parent = 0;
  EXPECT_THAT(std::string(World::Create(context(), scene).status().message()), testing::HasSubstr("its parent, 0, is not before it"));
  scene.bodies.pop_back();
  scene.bodies[0].fixed_vertices.clear();
  scene.bodies[0].driven_regions = {{.vertices = {3}}};
  const auto world = World::Create(context(), scene);
  ASSERT_FALSE(world.ok());
  EXPECT_EQ(world.status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace palpate::sim::surface_contact_test
