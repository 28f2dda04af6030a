// Worlds whose searches use lists of the pairs within bodies do what they do without, bit for bit.
#include <array>
#include <memory>
#include <string>
#include <vector>

#include "sim/mesh/generators.h"
#include "sim/scene/solver_advice.h"
#include "sim/world/world.h"
#include "tests/sim/world/checkpoint_scenes.h"
#include "tests/sim/world/world_builders.h"
#include "tests/support/device_test.h"

namespace palpate::sim::self_pairs_test {
namespace {

using Eigen::Vector3d;
using gpu::SelfPairsUse;

constexpr std::array kUses = {SelfPairsUse::kNever, SelfPairsUse::kAutomatic, SelfPairsUse::kAlways};

/// What lists did, for each of kUses.
struct Tally {
  uint64_t searches = 0, listed = 0, renewed = 0;
  void Add(const Frame& frame) {
    searches += frame.contact_statistics.self_searches;
    listed += frame.contact_statistics.listed_searches;
    renewed += frame.contact_statistics.renewed_lists;
  }
};

class SelfPairsWorldTest : public test::DeviceTest {
 protected:
  /// A world for each of kUses.
  void Make(SceneDescription scene) {
    tallies_ = {};
    for (size_t u = 0; u < kUses.size(); ++u) {
      scene.contact.self_pairs = kUses[u];
      PALPATE_TEST_ASSIGN(worlds_[u], World::Create(context(), scene));
    }
  }
  void ExpectSame(const std::string& what) {
    const Frame& first = *worlds_[0]->CurrentFrame();
    for (size_t u = 0; u < kUses.size(); ++u) {
      const Frame& frame = *worlds_[u]->CurrentFrame();
      tallies_[u].Add(frame);
      ASSERT_EQ(frame.state_hash, first.state_hash) << what << " use " << u;
      ASSERT_EQ(frame.contact_statistics.contact_count, first.contact_statistics.contact_count) << what << " use " << u;
      ASSERT_EQ(frame.surface_contacts.size(), first.surface_contacts.size()) << what << " use " << u;
    }
  }
  void Step(const std::vector<ToolCommand>& commands, const std::string& what) {
    for (const auto& world : worlds_) test::Step(*world, commands);
    ExpectSame(what);
  }

  void TearDown() override {
    worlds_ = {};
    DeviceTest::TearDown();
  }

  std::array<std::unique_ptr<World>, kUses.size()> worlds_;
  std::array<Tally, kUses.size()> tallies_;
};

SceneDescription Liver(double tets, Vector3d* top_m) {
  SceneDescription scene;
  BodyDescription& body = scene.bodies.emplace_back();
  body.name = "liver";
  auto mesh = GenerateLiver(0.2, LiverEdgeLengthForTets(0.2, tets));
  EXPECT_TRUE(mesh.ok()) << mesh.status();
  if (!mesh.ok()) return scene;
  body.mesh = *std::move(mesh);
  body.material.damping_s = 0.05;
  double low_m = 1;
  for (const Vector3d& v : body.mesh.vertices) {
    low_m = std::min(low_m, v.z());
    if (v.z() > top_m->z()) *top_m = v;
  }
  for (uint32_t v = 0; v < body.mesh.vertices.size(); ++v) {
    if (body.mesh.vertices[v].z() < low_m + 0.4 * (top_m->z() - low_m)) body.fixed_vertices.push_back(v);
  }
  scene.tools = {test::ToolAt("probe", *top_m + Vector3d(0, 0, 0.01))};
  return scene;
}

TEST_F(SelfPairsWorldTest, ALiverUnderAToolUsesLists) {
  Vector3d top_m(0, 0, -1);
  ASSERT_NO_FATAL_FAILURE(Make(Liver(600, &top_m)));
  ToolCommand command;
  double deepest_m = 0;
  for (int i = 0; i < 200; ++i) {
    const double depth_m = 0.01 + 0.04 * std::min(1.0, i / 80.0) + (i > 100 ? 0.004 * std::sin(0.03 * (i - 100)) : 0);
    command.device_pose.position_m = top_m + Vector3d(0, 0, 0.01 - depth_m);
    ASSERT_NO_FATAL_FAILURE(Step({command}, "step " + std::to_string(i)));
    deepest_m = std::max(deepest_m, depth_m);
    if (i == 99) {
      tallies_ = {};
    }
  }
  ASSERT_GT(worlds_[0]->CurrentFrame()->tools[0].contact_count, 0U);
  EXPECT_EQ(tallies_[0].listed + tallies_[0].renewed, 0U);
  EXPECT_GT(tallies_[1].listed, tallies_[1].searches / 2);
  EXPECT_GE(tallies_[2].listed, tallies_[1].listed);
}

// One end of a strip is turned over until it lies on the other.
TEST_F(SelfPairsWorldTest, AStripThatIsFoldedOntoItselfLosesItsLists) {
  SceneDescription scene;
  scene.contact.check_intersections = true;
  scene.bodies = {test::BoxBody("strip", {0, 0, 0}, {25, 5, 2}, {0.2, 0.04, 0.004}, test::HeldSide::kLowX)};
  BodyDescription& strip = scene.bodies[0];
  strip.material.young_modulus_pa = 4e4;
  DrivenRegion region;
  region.vertices = strip.fixed_vertices;
  region.angular_velocity_rad_per_s = {0, 4, 0};
  region.center_m = {-0.01, 0, 0.0026};
  region.start_s = 0.1;
  region.duration_s = 0.785;
  strip.driven_regions = {region};
  scene.obstacles.push_back({"table", PlaneShape{.point_m = {0, 0, -0.0031}}});
  ASSERT_NO_FATAL_FAILURE(Make(scene));
  uint64_t pairs_at_first = 0, most_pairs = 0;
  for (int i = 0; i < 150; ++i) {
    ASSERT_NO_FATAL_FAILURE(Step({}, "step " + std::to_string(i)));
    const uint64_t pairs = worlds_[0]->CurrentFrame()->surface_contacts.size();
    if (i == 8) pairs_at_first = pairs;
    most_pairs = std::max(most_pairs, pairs);
  }
  EXPECT_GT(most_pairs, pairs_at_first + 10) << "it does not touch itself";
  EXPECT_EQ(worlds_[0]->CurrentFrame()->contact_statistics.intersection_count, 0U);
  EXPECT_GT(tallies_[2].renewed, 10U);
  EXPECT_GT(tallies_[1].listed, 0U);
}

// Cuts, refinements, materials and tools; several bodies; pieces that come off.
TEST_F(SelfPairsWorldTest, EditsAndToolsChangeNoBit) {
  for (const std::string name : {"instruments", "seams"}) {
    std::vector<std::unique_ptr<test::CheckpointScenario>> scenarios;
    for (size_t u = 0; u < kUses.size(); ++u) scenarios.push_back(test::MakeCheckpointScenario(name, 7));
    ASSERT_NO_FATAL_FAILURE(Make(scenarios[0]->scene()));
    const uint64_t version = worlds_[0]->CurrentFrame()->topology->version;
    for (uint64_t step = 0; step < 40; ++step) {
      for (size_t u = 0; u < kUses.size(); ++u) {
        const std::vector<Edit> edits = scenarios[u]->Edits(step, *worlds_[u]->CurrentFrame());
        const std::vector<ToolCommand> commands = scenarios[u]->Commands(step, *worlds_[u]->CurrentFrame());
        if (!edits.empty()) {
          PALPATE_ASSERT_OK(worlds_[u]->Apply(edits).status());
        }
        test::Step(*worlds_[u], commands);
      }
      ASSERT_NO_FATAL_FAILURE(ExpectSame(name + " step " + std::to_string(step)));
    }
    EXPECT_GT(worlds_[0]->CurrentFrame()->topology->version, version) << name;
    EXPECT_GT(tallies_[2].listed, 0U) << name;
  }
}

// No list is in a state: a world that had one goes on as one that never had.
TEST_F(SelfPairsWorldTest, ARestoredWorldGoesOnTheSame) {
  Vector3d top_m(0, 0, -1);
  SceneDescription scene = Liver(600, &top_m);
  ASSERT_NO_FATAL_FAILURE(Make(scene));
  ToolCommand command;
  const auto step = [&](int i) {
    command.device_pose.position_m = top_m + Vector3d(0, 0, 0.005 - 0.03 * std::min(1.0, i / 60.0));
    Step({command}, "step " + std::to_string(i));
  };
  for (int i = 0; i < 90; ++i) ASSERT_NO_FATAL_FAILURE(step(i));
  ASSERT_GT(tallies_[1].listed, 0U);
  PALPATE_TEST_ASSIGN(const std::shared_ptr<const WorldState> state, worlds_[2]->Capture());
  for (const size_t u : {size_t{0}, size_t{1}}) {
    scene.contact.self_pairs = kUses[u];
    PALPATE_TEST_ASSIGN(worlds_[u], World::Restore(context(), scene, *state));
  }
  tallies_ = {};
  for (int i = 90; i < 120; ++i) ASSERT_NO_FATAL_FAILURE(step(i));
  EXPECT_GT(tallies_[1].listed, 20U);
  EXPECT_GT(tallies_[2].listed, 20U);
}

}  // namespace
}  // namespace palpate::sim::self_pairs_test
