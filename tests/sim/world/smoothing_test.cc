// Node-smoothed bodies in a running scene: pressed, with a stiff zone, carved, cut in two, kept in volume, and restored from a checkpoint.
#include <gtest/gtest.h>

#include <Eigen/Dense>
#include <cmath>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "sim/world/world.h"
#include "sim/world/world_state.h"
#include "tests/sim/world/world_builders.h"
#include "tests/support/device_test.h"

namespace palpate::sim::smoothing_test {
namespace {

using Eigen::Vector3d;
using test::BoxBody;

class WorldSmoothingTest : public test::DeviceTest {
 protected:
  /// A bar 80 x 30 x 30 mm held at one end, of which half is ten times as stiff.
  static SceneDescription Bar(MaterialModel model) {
    SceneDescription scene;
    scene.bodies = {BoxBody("bar", {0, 0, 0}, {9, 4, 4}, {0.08, 0.03, 0.03}, test::HeldSide::kLowX)};
    BodyDescription& bar = scene.bodies[0];
    bar.tet_element = TetElement::kNodeSmoothed;
    bar.material.model = model;
    bar.material.young_modulus_pa = 20000;
    bar.material.poisson_ratio = 0.49;
    bar.material.damping_s = 0.01;
    ZoneDescription stiff;
    stiff.name = "stiff";
    stiff.material = bar.material;
    stiff.material.young_modulus_pa = 200000;
    bar.zones = {stiff};
    for (const auto& tet : bar.mesh.tets) {
      Vector3d center = Vector3d::Zero();
      for (const uint32_t v : tet) center += bar.mesh.vertices[v] / 4;
      bar.tet_zones.push_back(center.x() < 0 ? 1 : 0);
    }
    scene.contact.check_intersections = true;
    return scene;
  }
  static std::vector<Edit> Carve() { return {{.body = 0, .what = CarveEdit{BallRegion{{0.03, 0, 0.015}, 0.012}}}}; }
  static std::vector<Edit> CutOff() {
    InciseEdit incise;
    for (const double z : {0.08, -0.08}) incise.edges_m.push_back({Vector3d(0.0153, -0.06, z), Vector3d(0.0153, 0.06, z)});
    return {{.body = 0, .what = incise}};
  }
  static double Height(World& world) {
    double sum = 0;
    const auto positions = world.ReadVolumePositions(0);
    EXPECT_TRUE(positions.ok()) << positions.status();
    for (size_t i = 2; positions.ok() && i < positions->size(); i += 3) sum += (*positions)[i];
    return sum;
  }
};

TEST_F(WorldSmoothingTest, BodiesAreCarvedAndCutAndKeepTheirElement) {
  SceneDescription scene = Bar(MaterialModel::kStableNeoHookean);
  PALPATE_TEST_ASSIGN(const auto world, World::Create(context(), scene));
  const auto run = [&](int steps) {
    for (int n = 0; n < steps; ++n) {
      PALPATE_TEST_ASSIGN(const auto frame, world->Step({}));
      ASSERT_EQ(frame->contact_statistics.intersection_count, 0U) << "step " << n;
    }
  };
  ASSERT_NO_FATAL_FAILURE(run(10));
  EXPECT_LT(Height(*world), 0) << "it hangs";
  PALPATE_ASSERT_OK(world->Apply(Carve()).status());
  ASSERT_NO_FATAL_FAILURE(run(10));
  PALPATE_TEST_ASSIGN(const auto outcome, world->Apply(CutOff()));
  ASSERT_EQ(outcome[0].new_bodies.size(), 1U) << outcome[0].note;
  ASSERT_NO_FATAL_FAILURE(run(10));
  // A material that cannot be smoothed is refused of the body and of its piece.
  Material springs;
  springs.model = MaterialModel::kMassSpring;
  springs.poisson_ratio = 0.25;
  for (const uint32_t body : {0U, 1U}) {
    const std::vector<Edit> edit = {{.body = body, .what = MaterialEdit{{}, springs}}};
    EXPECT_EQ(world->Apply(edit).status().code(), absl::StatusCode::kInvalidArgument);
  }
}

TEST_F(WorldSmoothingTest, ARestoredSceneGoesOnWithTheSameBits) {
  for (const MaterialModel model : {MaterialModel::kStableNeoHookean, MaterialModel::kCorotated}) {
    SceneDescription scene = Bar(model);
    scene.solver.report_energy = true;
    PALPATE_TEST_ASSIGN(const auto world, World::Create(context(), scene));
    for (int n = 0; n < 5; ++n) PALPATE_ASSERT_OK(world->Step({}).status());
    PALPATE_ASSERT_OK(world->Apply(Carve()).status());
    for (int n = 0; n < 5; ++n) PALPATE_ASSERT_OK(world->Step({}).status());
    PALPATE_TEST_ASSIGN(const auto captured, world->Capture());
    const std::string bytes = EncodeWorldState(*captured);
    PALPATE_TEST_ASSIGN(const auto state, DecodeWorldState(bytes));
    PALPATE_TEST_ASSIGN(const auto restored, World::Restore(context(), scene, *state));
    for (int n = 0; n < 5; ++n) {
      PALPATE_TEST_ASSIGN(const auto a, world->Step({}));
      PALPATE_TEST_ASSIGN(const auto b, restored->Step({}));
      ASSERT_EQ(a->state_hash, b->state_hash) << "step " << n;
    }
  }
}

TEST_F(WorldSmoothingTest, AKeptVolumeIsKept) {
  // Hung up by one end and soft against compression, so that its weight makes it larger where nothing keeps its volume.
  const auto growth = [&](double stiffness_pa) {
    SceneDescription scene = Bar(MaterialModel::kStableNeoHookean);
    scene.gravity_m_per_s2 = {40, 0, 0};
    BodyDescription& bar = scene.bodies[0];
    bar.zones.clear();
    bar.tet_zones.clear();
    bar.material.young_modulus_pa = 5000;
    bar.material.poisson_ratio = 0.2;
    bar.material.mass_damping_per_s = 10;
    bar.volume_stiffness_pa = stiffness_pa;
    const auto world = World::Create(context(), scene);
    EXPECT_TRUE(world.ok()) << world.status();
    for (int n = 0; world.ok() && n < 60; ++n) EXPECT_TRUE((*world)->Step({}).ok());
    const auto x = (*world)->ReadVolumePositions(0);
    EXPECT_TRUE(x.ok()) << x.status();
    double now_m3 = 0;
    double rest_m3 = 0;
    for (const auto& tet : bar.mesh.tets) {
      const auto volume = [&tet](const auto& at) {
        return (at(tet[1]) - at(tet[0])).cross(at(tet[2]) - at(tet[0])).dot(at(tet[3]) - at(tet[0])) / 6;
      };
      now_m3 += volume([&x](uint32_t v) { return Vector3d((*x)[3 * v], (*x)[3 * v + 1], (*x)[3 * v + 2]); });
      rest_m3 += volume([&bar](uint32_t v) { return bar.mesh.vertices[v]; });
    }
    return now_m3 / rest_m3 - 1;
  };
  const double free = growth(0);
  const double kept = growth(1e5);
  std::printf("grows by %g, where its volume is kept by %g\n", free, kept);
  EXPECT_GT(free, 0.02);
  EXPECT_LT(std::abs(kept), 0.1 * free);
}

}  // namespace
}  // namespace palpate::sim::smoothing_test
