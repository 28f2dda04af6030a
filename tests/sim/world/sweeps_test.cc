// The rule for the number of sweeps against the solver itself.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "sim/mesh/generators.h"
#include "sim/scene/solver_advice.h"
#include "sim/world/world.h"
#include "tests/support/device_test.h"

namespace palpate::sim::sweeps_test {
namespace {

using Eigen::Vector3d;

class SweepsTest : public test::DeviceTest {
 protected:
  /// A liver held at one lobe that swings down for half a second: way of its other end, and how far it is with the advised number of
  /// sweeps, and with `fewer` (0: nobody asks), from where it is with `many`. kept_pa: with which it keeps its volume.
  void Swing(double tets, double young_modulus_pa, int coarse_nodes, int fewer, int many, Vector3d* error_m, double kept_pa = 0) {
    SceneDescription scene;
    BodyDescription body;
    body.name = "liver";
    body.self_collision = false;
    if (!livers_.contains(tets)) {
      PALPATE_TEST_ASSIGN(livers_[tets], GenerateLiver(0.2, LiverEdgeLengthForTets(0.2, tets)));
    }
    body.mesh = livers_[tets];
    body.material.young_modulus_pa = young_modulus_pa;
    body.volume_stiffness_pa = kept_pa;
    uint32_t tip = 0;
    for (uint32_t v = 0; v < body.mesh.vertices.size(); ++v) {
      if (body.mesh.vertices[v].x() < -0.05) body.fixed_vertices.push_back(v);
      if (body.mesh.vertices[v].x() > body.mesh.vertices[tip].x()) tip = v;
    }
    const Vector3d rest_m = body.mesh.vertices[tip];
    scene.bodies = {std::move(body)};
    scene.solver.coarse_nodes = coarse_nodes;
    if (coarse_nodes > 0) scene.solver.acceleration = 0.85;
    const int advised = AdvisedSweeps(scene, 0);
    std::vector<Vector3d> tips_m;
    for (const int sweeps : {many, advised, fewer}) {
      if (sweeps == 0) continue;
      scene.solver.iterations = sweeps;
      PALPATE_TEST_ASSIGN(const auto world, World::Create(context(), scene));
      for (int i = 0; i < 60; ++i) PALPATE_ASSERT_OK(world->Step({}).status());
      PALPATE_TEST_ASSIGN(const std::vector<float> x, world->ReadVolumePositions(0));
      tips_m.emplace_back(x[3 * tip], x[3 * tip + 1], x[3 * tip + 2]);
    }
    *error_m = {(tips_m[0] - rest_m).norm(), (tips_m[1] - tips_m[0]).norm(), (tips_m.back() - tips_m[0]).norm()};
    std::printf("%zu tets, %g Pa, volume kept by %g Pa, %d nodes: way %.1f mm; error %.4f mm with %d sweeps, %.4f mm with %d\n",
                scene.bodies[0].mesh.tets.size(), young_modulus_pa, kept_pa, coarse_nodes, 1e3 * (*error_m)[0], 1e3 * (*error_m)[1],
                advised, 1e3 * (*error_m)[2], fewer);
  }

 private:
  std::map<double, TetMesh> livers_;  ///< by their number of tets, about
};

TEST_F(SweepsTest, AdvisedNumberFollowsTheMotion) {
  Vector3d error_m;
  ASSERT_NO_FATAL_FAILURE(Swing(600, 5000, 0, 0, 200, &error_m));
  EXPECT_LT(error_m[1], 1e-3);
  ASSERT_NO_FATAL_FAILURE(Swing(2500, 30000, 0, 20, 300, &error_m));
  EXPECT_LT(error_m[1], 1e-3);
  EXPECT_GT(error_m[2], 5e-3) << "the default is too few here, or the rule asks for too many";
}

// With corrections few sweeps do, whatever the size and the stiffness.
TEST_F(SweepsTest, AdvisedNumberWithCorrectionsFollowsTheMotion) {
  Vector3d error_m;
  for (const double young_modulus_pa : {1000.0, 30000.0, 1e6}) {
    ASSERT_NO_FATAL_FAILURE(Swing(2500, young_modulus_pa, 4096, 20, 60, &error_m));
    EXPECT_LT(error_m[1], std::max(5e-5, 5e-3 * error_m[0]));
    EXPECT_LT(error_m[2], 5e-5);
  }
  ASSERT_NO_FATAL_FAILURE(Swing(10000, 30000, 4096, 20, 60, &error_m));
  EXPECT_LT(error_m[1], std::max(5e-5, 5e-3 * error_m[0]));
  EXPECT_LT(error_m[2], 5e-5);
}

// Likewise where the volume is kept, which couples all of the surface.
TEST_F(SweepsTest, AdvisedNumberFollowsTheMotionOfBodiesThatKeepTheirVolume) {
  Vector3d error_m;
  for (const double kept_pa : {1e5, 1e7}) {
    ASSERT_NO_FATAL_FAILURE(Swing(2500, 30000, 4096, 20, 60, &error_m, kept_pa));
    EXPECT_LT(error_m[1], std::max(5e-5, 5e-3 * error_m[0]));
    EXPECT_LT(error_m[2], 5e-5);
  }
}

TEST_F(SweepsTest, SlowAdvisedNumberFollowsTheMotionOfFineBodies) {
  Vector3d error_m;
  // The softer, the fewer sweeps until those that follow change next to nothing.
  for (const auto& [young_modulus_pa, many] : {std::pair(1000.0, 200), std::pair(5000.0, 320)}) {
    ASSERT_NO_FATAL_FAILURE(Swing(10000, young_modulus_pa, 0, 0, many, &error_m));
    EXPECT_LT(error_m[1], std::max(1e-3, 0.01 * error_m[0]));
  }
  // The ends of the range; 10,000 tets are between them above.
  for (const double young_modulus_pa : {1000.0, 1e6}) {
    ASSERT_NO_FATAL_FAILURE(Swing(50000, young_modulus_pa, 4096, 20, 60, &error_m));
    EXPECT_LT(error_m[1], std::max(1e-4, 1e-2 * error_m[0]));
    EXPECT_LT(error_m[2], std::max(1e-4, 1e-3 * error_m[0]));
  }
}

// Bodies that are not swept over have no number.
TEST_F(SweepsTest, OnlyDynamicBodiesNeedSweeps) {
  SceneDescription scene;
  scene.bodies.resize(1);
  BodyDescription& body = scene.bodies[0];
  PALPATE_TEST_ASSIGN(body.mesh, GenerateSlab({0.1, 0.1, 0.02}, 0.01));
  EXPECT_EQ(AdvisedSweeps(scene, 0), 30);
  scene.dt_s = 1.0 / 240;
  EXPECT_EQ(AdvisedSweeps(scene, 0), 20);
  scene.dt_s = 1.0 / 120;
  scene.solver.coarse_nodes = 100;
  EXPECT_EQ(AdvisedSweeps(scene, 0), 17);
  body.volume_stiffness_pa = 1e4;
  EXPECT_EQ(AdvisedSweeps(scene, 0), 17) << "bodies that keep their volume are corrected as well";
  body.kind = BodyKind::kRigid;
  EXPECT_EQ(AdvisedSweeps(scene, 0), 0);
  body.kind = BodyKind::kDeformable;
  body.simulation = Simulation::kShapeMatched;
  EXPECT_EQ(AdvisedSweeps(scene, 0), 0);
}

}  // namespace
}  // namespace palpate::sim::sweeps_test
