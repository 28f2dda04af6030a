// Bodies whose simulation is shape matching, in a running scene.
#include <gmock/gmock.h>

#include <Eigen/Dense>
#include <cmath>
#include <string>
#include <vector>

#include "sim/mesh/generators.h"
#include "sim/world/world.h"
#include "tests/sim/world/topology_checks.h"
#include "tests/sim/world/world_builders.h"
#include "tests/support/device_test.h"

namespace palpate::sim::shape_matched_test {
namespace {

using Eigen::Vector3d;
using test::BoxBody;
using ::testing::HasSubstr;

class WorldShapeMatchedTest : public test::DeviceTest {
 protected:
  static BodyDescription Jelly(const std::string& name, const Vector3d& center_m, ShapeMode mode) {
    BodyDescription body = BoxBody(name, center_m, {5, 5, 4}, {0.06, 0.06, 0.045});
    body.simulation = Simulation::kShapeMatched;
    body.shape_matching = {.mode = mode, .cluster_size_m = 0.03};
    body.material.young_modulus_pa = 8000;
    body.material.poisson_ratio = 0.3;
    return body;
  }
  static SceneDescription Pile() {
    SceneDescription scene;
    scene.bodies = {Jelly("low", {0, 0, 0.025}, ShapeMode::kLinear), Jelly("high", {0.01, 0, 0.075}, ShapeMode::kQuadratic)};
    scene.obstacles.push_back({"floor", PlaneShape{}});
    scene.contact.check_intersections = true;
    return scene;
  }
  static void StepOften(World* world, int steps) {
    for (int i = 0; i < steps; ++i) {
      PALPATE_TEST_ASSIGN(const auto frame, world->Step({}));
      ASSERT_EQ(frame->contact_statistics.intersection_count, 0U) << "step " << i;
      ASSERT_TRUE(std::isfinite(frame->kinetic_energy_j));
    }
  }
};

TEST_F(WorldShapeMatchedTest, APileComesToRest) {
  PALPATE_TEST_ASSIGN(const auto world, World::Create(context(), Pile()));
  ASSERT_NO_FATAL_FAILURE(StepOften(world.get(), 150));
  const auto frame = world->CurrentFrame();
  EXPECT_LT(frame->max_speed_m_per_s, 0.05);
  // Both lie on top of each other with their heights nearly kept.
  for (size_t b = 0; b < 2; ++b) {
    PALPATE_TEST_ASSIGN(const std::vector<float> x, world->ReadVolumePositions(b));
    double low = 1, high = 0;
    for (size_t i = 2; i < x.size(); i += 3) {
      low = std::min<double>(low, x[i]);
      high = std::max<double>(high, x[i]);
    }
    EXPECT_GT(low, 0);
    EXPECT_GT(high - low, 0.03);
    EXPECT_LT(high - low, 0.065);  // one may lean on an edge
  }
}

TEST_F(WorldShapeMatchedTest, IsCarvedCutAndReset) {
  SceneDescription scene = Pile();
  scene.gravity_m_per_s2 = {0, 0, 0};
  scene.bodies.resize(1);
  PALPATE_TEST_ASSIGN(const auto world, World::Create(context(), scene));
  ASSERT_NO_FATAL_FAILURE(StepOften(world.get(), 3));
  const double mass_kg = world->body_statistics()[0].mass_kg;
  const std::vector<Edit> carve = {{.body = 0, .what = CarveEdit{BallRegion{{0.025, 0.025, 0.045}, 0.012}}}};
  PALPATE_TEST_ASSIGN(const auto carved, world->Apply(carve));
  EXPECT_GT(carved[0].removed_tets.size(), 3U);
  ASSERT_NO_FATAL_FAILURE(test::CheckTopology(*world, nullptr));
  ASSERT_NO_FATAL_FAILURE(StepOften(world.get(), 5));
  // A blade through all of it: two bodies of the same kind, which no cluster holds together.
  InciseEdit blade;
  for (const double y_m : {-0.1, 0.1}) blade.edges_m.push_back({Vector3d(-0.004, y_m, 0.1), Vector3d(-0.004, y_m, -0.1)});
  const std::vector<Edit> cut = {{.body = 0, .what = blade}};
  PALPATE_TEST_ASSIGN(const auto outcomes, world->Apply(cut));
  ASSERT_EQ(outcomes[0].new_bodies.size(), 1U);
  ASSERT_EQ(world->body_statistics().size(), 2U);
  EXPECT_NEAR(world->body_statistics()[0].mass_kg + world->body_statistics()[1].mass_kg + carved[0].removed_mass_kg, mass_kg,
              1e-9 * mass_kg);
  // One of them thrown aside leaves the other where it is, in its shape.
  PALPATE_TEST_ASSIGN(const std::vector<float> still, world->ReadVolumePositions(0));
  PALPATE_TEST_ASSIGN(std::vector<float> moved, world->ReadVolumePositions(1));
  for (size_t i = 0; i < moved.size(); i += 3) moved[i] += 0.2F;
  PALPATE_ASSERT_OK(world->WriteVolumePositions(1, moved));
  ASSERT_NO_FATAL_FAILURE(StepOften(world.get(), 60));
  PALPATE_TEST_ASSIGN(const std::vector<float> after, world->ReadVolumePositions(0));
  PALPATE_TEST_ASSIGN(const std::vector<float> moved_after, world->ReadVolumePositions(1));
  for (size_t i = 0; i < after.size(); ++i) ASSERT_NEAR(after[i], still[i], 1e-4) << i;
  for (size_t i = 0; i < moved.size(); ++i) ASSERT_NEAR(moved_after[i], moved[i], 1e-4) << i;
  // A softer material, finer tets: the clusters are made anew.
  Material soft = scene.bodies[0].material;
  soft.young_modulus_pa = 2000;
  const std::vector<Edit> others = {{.body = 0, .what = MaterialEdit{"", soft}},
                                    {.body = 1, .what = RefineEdit{BallRegion{{0.2, 0, 0.02}, 0.03}, 0.008, 0}}};
  PALPATE_TEST_ASSIGN(const auto refined, world->Apply(others));
  EXPECT_GT(refined[1].added_tets.size(), 100U) << refined[1].note;
  ASSERT_NO_FATAL_FAILURE(StepOften(world.get(), 20));
  PALPATE_TEST_ASSIGN(const auto reset, world->Reset());
  EXPECT_EQ(world->body_statistics().size(), 1U);
  EXPECT_NEAR(world->body_statistics()[0].mass_kg, mass_kg, 1e-12);
  EXPECT_EQ(reset->step, 0U);
}

TEST_F(WorldShapeMatchedTest, SameEditsGiveSameBits) {
  std::vector<uint64_t> hashes;
  for (int run = 0; run < 2; ++run) {
    PALPATE_TEST_ASSIGN(const auto world, World::Create(context(), Pile()));
    ASSERT_NO_FATAL_FAILURE(StepOften(world.get(), 20));
    const std::vector<Edit> carve = {{.body = 1, .what = CarveEdit{BallRegion{{0.03, 0.03, 0.1}, 0.02}}}};
    PALPATE_ASSERT_OK(world->Apply(carve).status());
    ASSERT_NO_FATAL_FAILURE(StepOften(world.get(), 20));
    hashes.push_back(world->CurrentFrame()->state_hash);
  }
  EXPECT_EQ(hashes[0], hashes[1]);
}

TEST_F(WorldShapeMatchedTest, RefusesWhatItCannotBe) {
  const auto error_of = [&](const auto& change) {
    SceneDescription scene = Pile();
    change(scene.bodies[1]);
    const auto world = World::Create(context(), scene);
    EXPECT_EQ(world.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(world.status().message());
  };
  EXPECT_THAT(error_of([](BodyDescription& b) { b.shape_matching.cluster_size_m = 0.002; }),
              HasSubstr("bodies[1] (high): shape_matching.cluster_size_m: 0.002 is outside [0.01"));
  EXPECT_THAT(error_of([](BodyDescription& b) { b.shape_matching.beta = 0.96; }), HasSubstr("shape_matching.beta: 0.96 is above 0.95"));
  EXPECT_THAT(error_of([](BodyDescription& b) { b.shape_matching = {.mode = ShapeMode::kRigid, .beta = 0.5}; }),
              HasSubstr("rigid do not deform"));
  EXPECT_THAT(error_of([](BodyDescription& b) { b.material.model = MaterialModel::kLinear; }), HasSubstr("material: model: "));
  EXPECT_THAT(error_of([](BodyDescription& b) {
                b.kind = BodyKind::kRigid;
                b.self_collision = false;
              }),
              HasSubstr("simulation: only a deformable body"));

  PALPATE_TEST_ASSIGN(const auto world, World::Create(context(), Pile()));
  Material fibered;
  fibered.fibers = FiberProperties{{1, 0, 0}, 10000, 0.3, 3000};
  const std::vector<Edit> bad = {{.body = 0, .what = MaterialEdit{"", fibered}}};
  const auto refused = world->Apply(bad);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("material: fibers: a shape-matched body has none"));
  ASSERT_NO_FATAL_FAILURE(StepOften(world.get(), 1));
}

}  // namespace
}  // namespace palpate::sim::shape_matched_test
