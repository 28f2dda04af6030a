// States of a running world, restored: what goes on from them does the same, bit for bit, whatever was going on.
#include <gmock/gmock.h>

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "gpu/base/state_archive.h"
#include "sim/world/world.h"
#include "tests/sim/world/checkpoint_scenes.h"
#include "tests/support/device_test.h"

namespace palpate::sim::checkpoint_test {
namespace {

using test::CheckpointScenario;
using test::MakeCheckpointScenario;
using ::testing::HasSubstr;

std::vector<const ToolCommand*> Pointers(const std::vector<ToolCommand>& commands) {
  std::vector<const ToolCommand*> pointers;
  for (const ToolCommand& command : commands) pointers.push_back(&command);
  return pointers;
}

/// A frame and its topology as bytes, without what a clock says.
std::string BytesOf(const Frame& frame) {
  auto copy = std::make_shared<Frame>(frame);
  copy->server_time_us = 0;
  copy->step_ms = 0;
  copy->stage_ms = {};
  copy->contact_statistics.detect_ms = copy->contact_statistics.filter_ms = copy->contact_statistics.check_ms = 0;
  for (LocalModel& model : copy->local_models) model.server_time_us = 0;
  WorldState state;
  state.topology = frame.topology;
  state.frame = copy;
  return EncodeWorldState(state);
}

std::string Describe(const EditOutcome& outcome) {
  const auto ids = [](const auto& list) {
    return absl::StrJoin(list, ",", [](std::string* out, auto id) { absl::StrAppend(out, static_cast<uint64_t>(id)); });
  };
  std::string text = absl::StrCat(ids(outcome.removed_tets), "|", ids(outcome.added_tets), "|", ids(outcome.removed_vertices), "|",
                                  ids(outcome.added_vertices), "|", ids(outcome.new_bodies), "|", ids(outcome.released_markers), "|",
                                  outcome.unchanged_count, "|", outcome.is_refused, "|", outcome.note, "|", outcome.grasped_vertices);
  absl::StrAppend(&text, absl::StrFormat("|%a|%a|%a|%a|%a", outcome.removed_mass_kg, outcome.grasp_reach_m, outcome.tissue_distance_m,
                                         outcome.min_mean_ratio, outcome.min_edge_ratio));
  for (const auto& [from, to] : outcome.remapped_tets) {
    absl::StrAppend(&text, "|", static_cast<uint64_t>(from), ">", static_cast<uint64_t>(to));
  }
  for (const MovedTissue& moved : outcome.moved) {
    absl::StrAppend(&text, "|", moved.body, ":", moved.tets.size(), ":", moved.vertices.size());
    for (const auto& [from, to] : moved.tets) absl::StrAppend(&text, ",", static_cast<uint64_t>(from), ">", static_cast<uint64_t>(to));
  }
  return text;
}

class CheckpointTest : public test::DeviceTest {
 protected:
  /// The outcomes.
  static std::string Apply(World& world, const std::vector<Edit>& edits) {
    std::string told;
    if (edits.empty()) return told;
    const auto outcomes = world.Apply(edits);
    EXPECT_TRUE(outcomes.ok()) << outcomes.status();
    for (size_t i = 0; outcomes.ok() && i < outcomes->size(); ++i) absl::StrAppend(&told, Describe((*outcomes)[i]), "\n");
    return told;
  }
  /// One step with what the scenario wants before it.
  static void Advance(World& world, CheckpointScenario& scenario) {
    const uint64_t step = world.CurrentFrame()->step;
    const std::vector<Edit> edits = scenario.Edits(step, *world.CurrentFrame());
    const std::vector<ToolCommand> commands = scenario.Commands(step, *world.CurrentFrame());
    Apply(world, edits);
    PALPATE_EXPECT_OK(world.Step(Pointers(commands)).status());
  }

  static void ExpectSameState(World& a, World& b) {
    PALPATE_TEST_ASSIGN(const auto of_a, a.Capture());
    PALPATE_TEST_ASSIGN(const auto of_b, b.Capture());
    EXPECT_TRUE(of_a->scene == of_b->scene) << FirstDifference(of_a->scene, of_b->scene);
    EXPECT_TRUE(of_a->solver == of_b->solver) << FirstDifference(of_a->solver, of_b->solver);
    EXPECT_EQ(a.edit_counts().deltas, b.edit_counts().deltas);
    EXPECT_EQ(a.edit_counts().rebuilds, b.edit_counts().rebuilds);
    EXPECT_EQ(a.edit_counts().delta_bytes, b.edit_counts().delta_bytes);
    EXPECT_EQ(a.color_count(), b.color_count());
    ASSERT_EQ(a.body_statistics().size(), b.body_statistics().size());
    for (size_t body = 0; body < a.body_statistics().size(); ++body) {
      EXPECT_EQ(a.body_statistics()[body].mass_kg, b.body_statistics()[body].mass_kg);
      EXPECT_EQ(a.body_statistics()[body].quasi_static_tets, b.body_statistics()[body].quasi_static_tets);
      EXPECT_EQ(a.RestPositions(body), b.RestPositions(body));
    }
  }
  static std::string FirstDifference(const std::string& a, const std::string& b) {
    const size_t at = static_cast<size_t>(
        std::mismatch(a.begin(), a.begin() + static_cast<std::ptrdiff_t>(std::min(a.size(), b.size())), b.begin()).first - a.begin());
    return absl::StrCat("first difference at byte ", at, " of ", a.size(), " and ", b.size());
  }

  /// Both do what the scenario wants of `a`, and must agree in all that they tell.
  static void GoOn(World& a, World& b, CheckpointScenario& scenario, int steps) {
    for (int i = 0; i < steps; ++i) {
      const std::shared_ptr<const Frame> frame = a.CurrentFrame();
      const std::vector<Edit> edits = scenario.Edits(frame->step, *frame);
      const std::vector<ToolCommand> commands = scenario.Commands(frame->step, *frame);
      ASSERT_EQ(Apply(a, edits), Apply(b, edits));
      if (!edits.empty()) ExpectSameState(a, b);
      for (World* world : {&a, &b}) PALPATE_ASSERT_OK(world->Step(Pointers(commands)).status());
      ASSERT_FALSE(HasFailure());
      ASSERT_EQ(a.CurrentFrame()->state_hash, b.CurrentFrame()->state_hash) << "step " << frame->step + 1;
      ASSERT_EQ(a.CurrentFrame()->topology_version, b.CurrentFrame()->topology_version);
      ASSERT_TRUE(BytesOf(*a.CurrentFrame()) == BytesOf(*b.CurrentFrame())) << "step " << frame->step + 1;
      if (i % 20 == 19 || i + 1 == steps) ExpectSameState(a, b);
    }
  }

  std::unique_ptr<World> RestoreFrom(const std::string& bytes, const SceneDescription& scene) {
    const auto state = DecodeWorldState(bytes);
    EXPECT_TRUE(state.ok()) << state.status();
    if (!state.ok()) return nullptr;
    auto world = World::Restore(context(), scene, **state);
    EXPECT_TRUE(world.ok()) << world.status();
    return world.ok() ? *std::move(world) : nullptr;
  }

  /// A world of the scenario after `steps`, of which the scrambled body of the projection scenario is new.
  std::unique_ptr<World> Run(CheckpointScenario& scenario, int steps) {
    auto made = World::Create(context(), scenario.scene());
    EXPECT_TRUE(made.ok()) << made.status();
    if (!made.ok()) return nullptr;
    std::unique_ptr<World> world = *std::move(made);
    for (int i = 0; i < steps; ++i) {
      if (scenario.scene().name == "projection" && i == steps - 10) Scramble(*world, 1);
      Advance(*world, scenario);
    }
    return world;
  }
  static void Scramble(World& world, size_t body) {
    std::mt19937 random(7);
    std::uniform_real_distribution<float> place(-0.02F, 0.02F);
    PALPATE_TEST_ASSIGN(std::vector<float> positions, world.ReadVolumePositions(body));
    for (size_t i = 0; i < positions.size(); ++i) positions[i] = place(random) + (i % 3 == 0 ? 0.1F : 0.0F);
    PALPATE_EXPECT_OK(world.WriteVolumePositions(body, positions));
  }

  /// What is restored after `before` steps, and `last` if there are any, goes on as the world that it is of does.
  void CheckTwins(const std::string& name, uint32_t seed, int before, int after, const std::vector<Edit>& last = {}) {
    SCOPED_TRACE(absl::StrCat(name, " ", seed));
    const auto scenario = MakeCheckpointScenario(name, seed);
    const std::unique_ptr<World> a = Run(*scenario, before);
    ASSERT_NE(a, nullptr);
    const uint64_t version = a->CurrentFrame()->topology_version;
    Apply(*a, last);
    ASSERT_EQ(a->CurrentFrame()->topology_version > version, !last.empty());
    if (name == "bodies" && before > 40) {
      EXPECT_TRUE(a->CurrentFrame()->tools[1].is_blocked) << "nothing holds the rod back";
    }
    PALPATE_TEST_ASSIGN(const auto state, a->Capture());
    const std::string bytes = EncodeWorldState(*state);
    PALPATE_TEST_ASSIGN(const auto again, a->Capture());
    EXPECT_TRUE(EncodeWorldState(*again) == bytes) << "a capture changes what it captures, or bytes are not unique";
    const std::unique_ptr<World> b = RestoreFrom(bytes, scenario->scene());
    ASSERT_NE(b, nullptr);
    PALPATE_TEST_ASSIGN(const auto of_b, b->Capture());
    ASSERT_TRUE(EncodeWorldState(*of_b) == bytes)
        << "scene: " << FirstDifference(state->scene, of_b->scene) << "; solver: " << FirstDifference(state->solver, of_b->solver);
    GoOn(*a, *b, *scenario, after);
    if (HasFailure()) return;
    CheckOldWorlds(name, seed, *state);
    if (HasFailure()) return;
    PALPATE_ASSERT_OK(a->Reset().status());
    PALPATE_ASSERT_OK(b->Reset().status());
    ASSERT_TRUE(BytesOf(*a->CurrentFrame()) == BytesOf(*b->CurrentFrame()));
    GoOn(*a, *b, *scenario, 15);
  }

  /// Going to a state in the world at hand, or else with what a world that is given up has, is as making a world of it: before the state
  /// was reached, behind it, and again.
  void CheckOldWorlds(const std::string& name, uint32_t seed, const WorldState& state) {
    const std::string bytes = EncodeWorldState(state);
    const auto scenario = MakeCheckpointScenario(name, seed);
    std::unique_ptr<World> world = Run(*scenario, 3);
    ASSERT_NE(world, nullptr);
    for (int round = 0; round < 3; ++round) {
      PALPATE_TEST_ASSIGN(const bool is_there, world->GoTo(state));
      if (!is_there) {
        PALPATE_TEST_ASSIGN(std::unique_ptr<World> next, World::Restore(context(), scenario->scene(), state, world.get()));
        world = std::move(next);
      }
      PALPATE_TEST_ASSIGN(const auto captured, world->Capture());
      ASSERT_TRUE(EncodeWorldState(*captured) == bytes) << "round " << round << ", scene: " << FirstDifference(state.scene, captured->scene)
                                                        << "; solver: " << FirstDifference(state.solver, captured->solver);
      const std::unique_ptr<World> anew = RestoreFrom(bytes, scenario->scene());
      ASSERT_NE(anew, nullptr);
      const auto wishes = MakeCheckpointScenario(name, seed + 10);
      GoOn(*anew, *world, *wishes, 4 + 6 * round);
      if (HasFailure()) return;
    }
  }
};

TEST_F(CheckpointTest, PlainTissueGoesOn) {
  SceneDescription scene;
  scene.bodies = {test::Ridge()};
  scene.tools = {test::ToolAt("probe", {0, 0, 0.016})};
  PALPATE_TEST_ASSIGN(const auto a, World::Create(context(), scene));
  ToolCommand command;
  command.device_pose.position_m = {0.002, 0, 0.008};
  for (int i = 0; i < 20; ++i) test::Step(*a, {command});
  PALPATE_TEST_ASSIGN(const auto state, a->Capture());
  const auto b = RestoreFrom(EncodeWorldState(*state), scene);
  ASSERT_NE(b, nullptr);
  ASSERT_TRUE(BytesOf(*a->CurrentFrame()) == BytesOf(*b->CurrentFrame()));
  for (int i = 0; i < 40; ++i) {
    ASSERT_EQ(test::Step(*a, {command})->state_hash, test::Step(*b, {command})->state_hash);
    ASSERT_TRUE(BytesOf(*a->CurrentFrame()) == BytesOf(*b->CurrentFrame()));
  }
  ExpectSameState(*a, *b);
}

/// Back and forth in one world: as long as tissue is the same, in the world itself.
TEST_F(CheckpointTest, GoesToMomentsOfItsOwn) {
  SceneDescription scene;
  scene.bodies = {test::Ridge()};
  scene.tools = {test::ToolAt("probe", {0, 0, 0.016})};
  PALPATE_TEST_ASSIGN(const auto world, World::Create(context(), scene));
  const auto command = [](size_t step) {
    ToolCommand out;
    out.device_pose.position_m = {0.002, 0.0001 * static_cast<double>(step), 0.009};
    return out;
  };
  const Edit carve = {.body = 0, .what = CarveEdit{BallRegion{{0, 0.01, 0.009}, 0.005}}};
  std::vector<std::shared_ptr<const WorldState>> states;
  std::vector<uint64_t> hashes;
  for (size_t i = 0; i < 40; ++i) {
    if (i == 20) {
      PALPATE_ASSERT_OK(world->Apply({&carve, 1}).status());
    }
    PALPATE_TEST_ASSIGN(auto state, world->Capture());
    // Half of them as from a file: then nothing is shared with the world.
    if (i % 2 == 0) {
      PALPATE_TEST_ASSIGN(state, DecodeWorldState(EncodeWorldState(*state)));
    }
    states.push_back(state);
    hashes.push_back(test::Step(*world, {command(i)})->state_hash);
  }
  ASSERT_GT(states[20]->info.topology_version, states[19]->info.topology_version) << "nothing was carved";
  for (const size_t i : {39, 24, 38, 20, 33, 21}) {
    PALPATE_TEST_ASSIGN(const bool is_there, world->GoTo(*states[i]));
    ASSERT_TRUE(is_there) << i;
    EXPECT_EQ(world->CurrentFrame()->state_hash, states[i]->info.state_hash);
    for (size_t k = i; k < std::min<size_t>(i + 4, 40); ++k)
      ASSERT_EQ(test::Step(*world, {command(k)})->state_hash, hashes[k]) << i << " " << k;
  }
  const uint64_t now = world->CurrentFrame()->state_hash;
  PALPATE_TEST_ASSIGN(const bool is_there, world->GoTo(*states[7]));
  EXPECT_FALSE(is_there) << "nothing was carved then";
  EXPECT_EQ(world->CurrentFrame()->state_hash, now);
  PALPATE_TEST_ASSIGN(const auto early, World::Restore(context(), scene, *states[7], world.get()));
  for (const size_t i : {19, 0, 7, 18, 3}) {
    PALPATE_TEST_ASSIGN(const bool is_early, early->GoTo(*states[i]));
    ASSERT_TRUE(is_early) << i;
    for (size_t k = i; k < std::min<size_t>(i + 4, 20); ++k)
      ASSERT_EQ(test::Step(*early, {command(k)})->state_hash, hashes[k]) << i << " " << k;
  }
  // The edit once more: it leads to what it led to.
  PALPATE_TEST_ASSIGN(const bool is_before, early->GoTo(*states[19]));
  ASSERT_TRUE(is_before);
  ASSERT_EQ(test::Step(*early, {command(19)})->state_hash, hashes[19]);
  PALPATE_ASSERT_OK(early->Apply({&carve, 1}).status());
  EXPECT_EQ(early->CurrentFrame()->state_hash, states[20]->info.state_hash);
  for (size_t k = 20; k < 24; ++k) ASSERT_EQ(test::Step(*early, {command(k)})->state_hash, hashes[k]) << k;
  PALPATE_ASSERT_OK(early->Reset().status());
  PALPATE_TEST_ASSIGN(const bool is_reset, early->GoTo(*states[22]));
  EXPECT_FALSE(is_reset);
}

TEST_F(CheckpointTest, AStateThatCannotBeLeavesAFailedWorld) {
  const auto scenario = MakeCheckpointScenario("instruments", 2);
  const std::unique_ptr<World> world = Run(*scenario, 32);
  ASSERT_NE(world, nullptr);
  const uint64_t rest = [&] {
    const auto fresh = World::Create(context(), scenario->scene());
    EXPECT_TRUE(fresh.ok()) << fresh.status();
    return fresh.ok() ? (*fresh)->CurrentFrame()->state_hash : 0;
  }();
  PALPATE_TEST_ASSIGN(const auto state, world->Capture());
  WorldState damaged = *state;
  damaged.solver.resize(damaged.solver.size() - 1);
  const auto is_there = world->GoTo(damaged);
  ASSERT_FALSE(is_there.ok());
  EXPECT_EQ(is_there.status().code(), absl::StatusCode::kInvalidArgument) << is_there.status();
  EXPECT_TRUE(world->has_failed());
  PALPATE_TEST_ASSIGN(const bool is_failed, world->GoTo(*state));
  EXPECT_FALSE(is_failed) << "of a world that has failed nothing is used";
  PALPATE_ASSERT_OK(world->Reset().status());
  EXPECT_EQ(world->CurrentFrame()->state_hash, rest);
}

TEST_F(CheckpointTest, InstrumentsGoOn) {
  CheckTwins("instruments", 1, 27, 90);
  CheckTwins("instruments", 2, 61, 40);
}
TEST_F(CheckpointTest, BodiesOfAllKindsGoOn) {
  CheckTwins("bodies", 1, 9, 50);
  CheckTwins("bodies", 2, 48, 80);
}
TEST_F(CheckpointTest, QuasiStaticBodiesGoOn) {
  CheckTwins("quasistatic", 1, 12, 40);
  CheckTwins("quasistatic", 2, 42, 60);
}
TEST_F(CheckpointTest, ProjectionAndRecoveryGoOn) {
  CheckTwins("projection", 1, 26, 200);
  CheckTwins("projection", 2, 47, 60);
}

/// Where tissue has passed a capsule, the next step pushes it back the way it came, which the step before knows.
TEST_F(CheckpointTest, ToolsDeepInTissueGoOn) {
  for (const uint32_t seed : {1U, 2U}) {
    SCOPED_TRACE(seed);
    const auto scenario = MakeCheckpointScenario("pierced", seed);
    const std::unique_ptr<World> world = Run(*scenario, 0);
    ASSERT_NE(world, nullptr);
    for (int i = 0; i < 40; ++i) {
      Apply(*world, scenario->Edits(world->CurrentFrame()->step, *world->CurrentFrame()));
      const std::vector<ToolCommand> commands = scenario->Commands(world->CurrentFrame()->step, *world->CurrentFrame());
      PALPATE_TEST_ASSIGN(const auto state, world->Capture());
      PALPATE_TEST_ASSIGN(const auto restored, World::Restore(context(), scenario->scene(), *state));
      for (World* one : {world.get(), restored.get()}) PALPATE_ASSERT_OK(one->Step(Pointers(commands)).status());
      ASSERT_EQ(world->CurrentFrame()->state_hash, restored->CurrentFrame()->state_hash) << "step " << i + 1;
      ASSERT_TRUE(BytesOf(*world->CurrentFrame()) == BytesOf(*restored->CurrentFrame())) << "step " << i + 1;
    }
  }
}

TEST_F(CheckpointTest, GoesOnBetweenAnEditAndAStep) {
  const auto carved = [](size_t body, const Eigen::Vector3d& center_m) {
    return std::vector<Edit>{{.body = body, .what = CarveEdit{BallRegion{center_m, 0.006}}}};
  };
  CheckTwins("bodies", 3, 20, 8, carved(0, {0.025, 0.025, 0.01}));
  CheckTwins("instruments", 3, 20, 8, carved(1, {0.04, 0.01, 0.01}));
}

/// Texture corners and the zones of the mesh that keep them apart, from before and after edits.
TEST_F(CheckpointTest, TextureWithSeamsGoesOn) {
  CheckTwins("seams", 1, 24, 40);
  CheckTwins("seams", 2, 40, 40);
  const auto scenario = MakeCheckpointScenario("seams", 3);
  const std::unique_ptr<World> world = Run(*scenario, 30);
  ASSERT_NE(world, nullptr);
  PALPATE_TEST_ASSIGN(const auto state, world->Capture());
  size_t bare = 0;
  for (const auto& body : state->topology->bodies) {
    EXPECT_TRUE(body->has_texture_corners);
    EXPECT_FALSE(body->chart_zones.empty());
    EXPECT_EQ(body->texture_corners.size(), body->surface_triangles.size());
    for (size_t t = 0; t < body->triangle_zones.size(); ++t) {
      bare += body->surface_triangles[t] != kFreeTriangle && body->surface_zones[body->triangle_zones[t]].is_interior ? 1 : 0;
    }
  }
  EXPECT_GT(bare, 100U);
  EXPECT_GT(state->topology->bodies.size(), 2U) << "nothing was cut off";

  // Corners are part of the scene.
  SceneDescription other = scenario->scene();
  other.bodies[0].texture.corners[5][1][0] += 0.25F;
  EXPECT_NE(HashOfDescription(other), HashOfDescription(scenario->scene()));
  // Zones of the mesh that no zone of the arrays stands for would be looked up beyond their end.
  auto body = std::make_shared<BodyArrays>(*state->topology->bodies[0]);
  body->chart_zones.pop_back();
  auto topology = std::make_shared<WorldTopology>(*state->topology);
  topology->bodies[0] = body;
  WorldState damaged = *state;
  damaged.topology = topology;
  const auto refused = World::Restore(context(), scenario->scene(), damaged);
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("numbers of surface zones"));
}

/// What a process that restores $PALPATE_TEST_CHECKPOINT has to say of its steps.
void PrintSteps(World& world, CheckpointScenario& scenario, int steps, std::string* out) {
  for (int i = 0; i < steps; ++i) {
    const uint64_t step = world.CurrentFrame()->step;
    const auto edits = scenario.Edits(step, *world.CurrentFrame());
    if (!edits.empty()) {
      const auto outcomes = world.Apply(edits);
      ASSERT_TRUE(outcomes.ok()) << outcomes.status();
      for (const EditOutcome& outcome : *outcomes) absl::StrAppend(out, "edit ", Describe(outcome), "\n");
    }
    const auto frame = world.Step(Pointers(scenario.Commands(step, *world.CurrentFrame())));
    ASSERT_TRUE(frame.ok()) << frame.status();
    absl::StrAppend(out, absl::StrFormat("step %d %016x frame %08x\n", (*frame)->step, (*frame)->state_hash, Crc32c(BytesOf(**frame))));
  }
}

TEST_F(CheckpointTest, AnotherProcessGoesOn) {
  const auto scenario = MakeCheckpointScenario("instruments", 3);
  const std::unique_ptr<World> a = Run(*scenario, 40);
  ASSERT_NE(a, nullptr);
  PALPATE_TEST_ASSIGN(const auto state, a->Capture());
  const std::filesystem::path file = std::filesystem::path(::testing::TempDir()) / absl::StrCat("palpate_checkpoint_", getpid());
  std::ofstream(file, std::ios::binary) << EncodeWorldState(*state);
  const auto next = MakeCheckpointScenario("instruments", 4);
  std::string expected;
  PrintSteps(*a, *next, 60, &expected);

  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  // Not a shard of this program's tests, even if this is.
  const std::string command =
      absl::StrFormat("env -u GTEST_TOTAL_SHARDS -u GTEST_SHARD_INDEX PALPATE_TEST_CHECKPOINT='%s' '%s' --gtest_filter=*PrintsSteps 2>&1",
                      file.string(), program.string());
  std::FILE* pipe = popen(command.c_str(), "r");
  ASSERT_NE(pipe, nullptr);
  std::string output;
  char buffer[512];
  while (std::fgets(buffer, sizeof(buffer), pipe) != nullptr) output += buffer;
  EXPECT_EQ(pclose(pipe), 0) << output;
  std::vector<absl::string_view> told;
  for (const absl::string_view line : absl::StrSplit(output, '\n')) {
    if (absl::StartsWith(line, "step ") || absl::StartsWith(line, "edit ")) told.push_back(line);
  }
  const std::vector<absl::string_view> wanted = absl::StrSplit(expected, '\n', absl::SkipEmpty());
  EXPECT_EQ(told.size(), wanted.size());
  // Lines of edits are long: the first that differs is enough.
  for (size_t i = 0; i < std::min(told.size(), wanted.size()); ++i) {
    ASSERT_EQ(told[i].substr(0, 400), wanted[i].substr(0, 400)) << "line " << i;
    ASSERT_TRUE(told[i] == wanted[i]) << "line " << i << ", behind its first 400 bytes";
  }
  std::filesystem::remove(file, error);
}

TEST_F(CheckpointTest, PrintsSteps) {
  const char* const path = std::getenv("PALPATE_TEST_CHECKPOINT");
  if (path == nullptr) GTEST_SKIP() << "runs as a part of AnotherProcessGoesOn";
  std::ifstream file(path, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  const auto scenario = MakeCheckpointScenario("instruments", 4);
  const std::unique_ptr<World> world = RestoreFrom(bytes, scenario->scene());
  ASSERT_NE(world, nullptr);
  std::string told;
  PrintSteps(*world, *scenario, 60, &told);
  std::fputs(told.c_str(), stdout);
}

/// Whoever can write checkpoints can make their checksums right: then what is in them must do no harm.
TEST_F(CheckpointTest, DamagedStatesDoNoHarm) {
  const auto scenario = MakeCheckpointScenario("instruments", 2);
  const std::unique_ptr<World> world = Run(*scenario, 32);
  ASSERT_NE(world, nullptr);
  PALPATE_TEST_ASSIGN(const auto state, world->Capture());
  std::mt19937 random(3);
  int refused = 0;
  for (int i = 0; i < 40; ++i) {
    WorldState damaged = *state;
    std::string& section = i % 2 == 0 ? damaged.scene : damaged.solver;
    if (i % 10 == 9) {
      section.resize(random() % section.size());
    } else {
      for (int k = 0; k < 3; ++k) section[random() % section.size()] = static_cast<char>(random());
    }
    const auto restored = World::Restore(context(), scenario->scene(), damaged);
    if (restored.ok()) continue;
    ++refused;
    EXPECT_EQ(restored.status().code(), absl::StatusCode::kInvalidArgument) << restored.status();
  }
  EXPECT_GT(refused, 10);
}

TEST_F(CheckpointTest, RefusesWhatIsNotOfThisScene) {
  const auto scenario = MakeCheckpointScenario("instruments", 1);
  const std::unique_ptr<World> world = Run(*scenario, 20);
  ASSERT_NE(world, nullptr);
  PALPATE_TEST_ASSIGN(const auto state, world->Capture());
  SceneDescription other = scenario->scene();
  other.bodies[0].material.density_kg_per_m3 += 1;
  const auto refused = World::Restore(context(), other, *state);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("another scene"));

  const std::string bytes = EncodeWorldState(*state);
  PALPATE_TEST_ASSIGN(const WorldStateInfo info, ReadWorldStateInfo(bytes));
  EXPECT_EQ(info.step, 20U);
  EXPECT_EQ(info.state_hash, world->CurrentFrame()->state_hash);
  EXPECT_EQ(info.description_hash, HashOfDescription(scenario->scene()));
  EXPECT_EQ(info.description_hash, HashOfDescription(world->description())) << "where markers were placed does not count";
  EXPECT_TRUE(IsSameDevice(info, context()->device()));
  std::string newer = bytes;
  newer[8] = 99;  // the major version
  EXPECT_THAT(std::string(DecodeWorldState(newer).status().message()), HasSubstr("version 99.0"));
  EXPECT_THAT(std::string(DecodeWorldState("no").status().message()), HasSubstr("PALPCKPT"));
}

}  // namespace
}  // namespace palpate::sim::checkpoint_test
