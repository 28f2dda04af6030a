// What a step asks of the device. A GPU pays for each command, and for each wait a round trip: neither may grow unseen, with a scene's size
// or with its age. Counts do not depend on the machine; budgets are what was counted, and a little.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "sim/mesh/generators.h"
#include "sim/world/world.h"
#include "tests/sim/world/world_builders.h"
#include "tests/support/device_test.h"

namespace palpate::sim::command_budget_test {
namespace {

using Eigen::Vector3d;

/// A step at most, in the mean of several.
struct Budget {
  double commands = 0;
  double transfers = 0;
  double waits = 0;
};

// Where sweeps cannot be phases of a launch (DeviceInfo::has_device_fence), each colour is one, and the host waits at each check.
constexpr Budget kWithoutPhases{390, 24, 12};

class CommandBudgetTest : public test::DeviceTest {
 protected:
  /// A liver that is held below, and a probe above it.
  void MakeLiver(double tets, gpu::SelfPairsUse lists) {
    SceneDescription scene;
    scene.contact.self_pairs = lists;
    BodyDescription body;
    body.name = "liver";
    PALPATE_TEST_ASSIGN(body.mesh, GenerateLiver(0.2, LiverEdgeLengthForTets(0.2, tets)));
    const auto by_height = [](const Vector3d& a, const Vector3d& b) { return a.z() < b.z(); };
    const auto [low, high] = std::minmax_element(body.mesh.vertices.begin(), body.mesh.vertices.end(), by_height);
    highest_m_ = *high;
    const double held_m = low->z() + 0.4 * (high->z() - low->z());
    for (uint32_t v = 0; v < body.mesh.vertices.size(); ++v) {
      if (body.mesh.vertices[v].z() < held_m) body.fixed_vertices.push_back(v);
    }
    scene.bodies = {std::move(body)};
    scene.tools = {test::ToolAt("probe", {-0.04, 0, highest_m_.z() + 0.02})};
    PALPATE_TEST_ASSIGN(world_, World::Create(context(), scene));
  }

  /// Steps with the probe `depth_m` below its start, and a little to and fro.
  void Press(int steps, const std::function<double(int)>& depth_m) {
    ToolCommand command;
    for (int i = 0; i < steps; ++i) {
      command.device_pose.position_m = {-0.04, 0, highest_m_.z() + 0.02 - depth_m(i)};
      frame_ = test::Step(*world_, {command});
    }
  }

  /// Of the mean of `steps` steps that `run` makes.
  Budget Count(int steps, const std::function<void()>& run) {
    const gpu::CommandCounts before = context()->commands();
    run();
    const gpu::CommandCounts counts = context()->commands() - before;
    const auto a_step = [&](uint64_t count) { return static_cast<double>(count) / steps; };
    return {a_step(counts.commands()), a_step(counts.transfers), a_step(counts.waits)};
  }

  void ExpectWithin(const Budget& counted, Budget budget, const char* what) {
    if (!context()->device().has_device_fence && budget.commands < kWithoutPhases.commands) budget = kWithoutPhases;
    std::printf("%s: %.1f commands, %.1f transfers, %.1f waits a step\n", what, counted.commands, counted.transfers, counted.waits);
    EXPECT_LE(counted.commands, budget.commands) << what;
    EXPECT_LE(counted.transfers, budget.transfers) << what;
    EXPECT_LE(counted.waits, budget.waits) << what;
  }

  void TearDown() override {
    world_.reset();
    DeviceTest::TearDown();
  }

  std::unique_ptr<World> world_;
  std::shared_ptr<const Frame> frame_;
  Vector3d highest_m_;
};

TEST_F(CommandBudgetTest, TissueUnderATool) {
  const auto down = [](int i) { return 0.05 * std::min(1.0, i / 60.0); };
  const auto to_and_fro = [](int i) { return 0.05 + 0.01 * std::sin(0.05 * i); };
  const auto held = [](int) { return 0.05; };
  // Searches for near pairs without lists first: with them they take no more than that, however large the liver.
  std::optional<Budget> small;
  for (const gpu::SelfPairsUse lists : {gpu::SelfPairsUse::kNever, gpu::SelfPairsUse::kAutomatic}) {
    for (const double tets : {600.0, 2500.0, 10000.0}) {
      if (tets > 2500 && !context()->device().has_device_fence) continue;  // a CPU that is taken for a GPU takes long
      ASSERT_NO_FATAL_FAILURE(MakeLiver(tets, lists));
      Press(80, down);
      Press(160, held);
      const Budget steady = Count(20, [&] { Press(20, held); });
      ASSERT_GT(frame_->tools[0].contact_count, 0U);
      ExpectWithin(steady, {80, 16, 2.1}, "liver under a tool");
      const Budget later = Count(20, [&] { Press(20, held); });
      EXPECT_LE(later.commands, 1.05 * steady.commands) << "more with each step";
      if (!small) small = steady;
      EXPECT_LE(steady.commands, 1.15 * small->commands) << "more with the size";
      if (tets > 2500) continue;
      // Steps whose moves are held back, or go far, wait for what comes of it.
      ExpectWithin(Count(60, [&] { Press(60, to_and_fro); }), {80, 16, 2.2}, "liver under a tool that moves");
    }
  }
}

TEST_F(CommandBudgetTest, TissueAfterCuts) {
  const auto down = [](int i) { return 0.05 * std::min(1.0, i / 60.0); };
  const auto to_and_fro = [](int i) { return 0.05 + 0.01 * std::sin(0.05 * i); };
  ASSERT_NO_FATAL_FAILURE(MakeLiver(2500, gpu::SelfPairsUse::kAutomatic));
  Press(80, down);
  const Vector3d place = highest_m_ + Vector3d(0.02, 0, -0.01);
  InciseEdit cut;
  for (const double at : {-1.0, 0.0, 1.0}) {
    const Vector3d end_m = place + Vector3d(0.01, 0.02 * at, -0.01);
    cut.edges_m.push_back({end_m, end_m + Vector3d(0, 0, 0.05)});
  }
  const std::vector<Edit> edits = {{.body = 0, .what = CarveEdit{BallRegion{place, 0.012}}}, {.body = 0, .what = cut}};
  PALPATE_TEST_ASSIGN(const auto outcomes, world_->Apply(edits));
  ASSERT_GT(outcomes[0].removed_tets.size(), 0U);
  Press(20, to_and_fro);
  ExpectWithin(Count(60, [&] { Press(60, to_and_fro); }), {105, 21, 6}, "liver after cuts");
}

// scenes/hepatectomy.json with its edits: the left lobe is cut off and lies on a table.
TEST_F(CommandBudgetTest, AFreePieceOnATable) {
  SceneDescription scene;
  scene.contact.check_intersections = true;
  BodyDescription body;
  body.name = "liver";
  PALPATE_TEST_ASSIGN(body.mesh, GenerateLiver(0.2, 0.017));
  body.material.young_modulus_pa = 5000;
  body.material.poisson_ratio = 0.45;
  body.material.damping_s = 0.01;
  for (uint32_t v = 0; v < body.mesh.vertices.size(); ++v) {
    if (body.mesh.vertices[v].x() > 0.04) body.fixed_vertices.push_back(v);
  }
  scene.bodies = {std::move(body)};
  scene.obstacles = {{"table", PlaneShape{.point_m = {0, 0, -0.09}}}};
  PALPATE_TEST_ASSIGN(world_, World::Create(context(), scene));
  std::vector<Edit> edits;
  for (int i = 0; i < 15; ++i) {
    const double z = 0.07 - 0.01 * i;
    edits.push_back({.body = 0, .what = CarveEdit{CapsuleRegion{{-0.035, -0.12, z}, {-0.035, 0.12, z}, 0.0115}}});
  }
  PALPATE_ASSERT_OK(world_->Apply(edits).status());
  const auto step = [&](int steps) {
    for (int i = 0; i < steps; ++i) frame_ = test::Step(*world_, {});
  };
  step(100);
  ASSERT_EQ(frame_->topology->bodies.size(), 2U);
  ExpectWithin(Count(30, [&] { step(30); }), {170, 18, 4.1}, "hepatectomy after cuts");
}

TEST_F(CommandBudgetTest, RigidBodiesInAPile) {
  SceneDescription scene;
  scene.solver.iterations = 8;
  scene.bodies = {test::BoxBody("floor", {0, 0, -0.02}, {2, 2, 2}, {0.4, 0.4, 0.04})};
  scene.bodies[0].kind = BodyKind::kStatic;
  scene.bodies[0].self_collision = false;
  for (int i = 0; i < 27; ++i) {
    BodyDescription box =
        test::BoxBody("box", {0.05 * (i % 3) + 0.004 * (i / 9), 0.05 * (i / 3 % 3), 0.03 + 0.035 * (i / 9)}, {2, 2, 2}, {0.04, 0.03, 0.02});
    box.name += std::to_string(i);
    box.kind = BodyKind::kRigid;
    box.self_collision = false;
    scene.bodies.push_back(std::move(box));
  }
  PALPATE_TEST_ASSIGN(world_, World::Create(context(), scene));
  const auto step = [&](int steps) {
    for (int i = 0; i < steps; ++i) frame_ = test::Step(*world_, {});
  };
  ExpectWithin(Count(60, [&] { step(60); }), {95, 12, 5.5}, "boxes that fall on each other");
  step(60);
  ExpectWithin(Count(60, [&] { step(60); }), {95, 12, 5.5}, "boxes at rest");
  ASSERT_GT(frame_->contact_statistics.acting_count, 27U);
}

}  // namespace
}  // namespace palpate::sim::command_budget_test
