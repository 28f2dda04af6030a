// Jobs on a device: their tables, stop conditions, policies, interruptions that leave no trace, and tables of many tasks.
#include "clients/job/job_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "clients/job/durable_file.h"
#include "clients/job/job_state.h"
#include "clients/job/tasks.h"
#include "clients/job/tool_motion.h"
#include "sim/record/journal_entries.h"
#include "sim/record/player.h"
#include "sim/record/recording.h"
#include "sim/scene/scene_spec.h"
#include "tests/sim/record/record_builders.h"
#include "tests/support/device_test.h"

namespace palpate::job::job_run_test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::HasSubstr;

/// A small phantom under a probe that presses, with a carving while it does.
constexpr char kPress[] = R"({
  "scene": {"bodies": [{"name": "box", "generator": {"slab": {"size_m": {"x": 0.04, "y": 0.04, "z": 0.02}}, "edge_length_m": 0.01},
                        "fixed": [{"box": {"min_m": {"x": -1, "y": -1, "z": -0.011}, "max_m": {"x": 1, "y": 1, "z": -0.0099}}}]}],
            "tools": [{"name": "probe", "drive": "TOOL_DRIVE_DIRECT", "rest_pose": {"position_m": {"z": 0.016}}}]},
  TOOLS
  "edits": [{"time_s": 0.08, "edits": [{"body": "box", "carve": {"region": {"ball": {"center_m": {"x": 0.02, "y": 0.02, "z": 0.01}, "radius_m": 0.012}}}}]}],
  "probes": ["tool.probe.force", "body.box.volume", "body.box.max_displacement", "topology_version", "state_hash"],
  "stop": {"steps": 24 STOP},
  "outputs": {"geometry": {"interval_s": 0.03}, "final_state": true}
  MORE
})";
constexpr char kPath[] =
    R"("tools": [{"tool": "probe", "trajectory": {"relative": true, "keys": [{"time_s": 0}, {"time_s": 0.15, "pose": {"position_m": {"z": -0.004}}}]}}],)";

std::string Press(const std::string& tools = kPath, const std::string& stop = "", const std::string& more = "") {
  return absl::StrReplaceAll(kPress, {{"TOOLS", tools}, {" STOP", stop}, {"MORE", more}});
}

class JobRunTest : public test::DeviceTest {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    folder_ = fs::path(::testing::TempDir()) / absl::StrCat("jobs.", getpid());
    fs::create_directories(folder_);
  }
  void TearDown() override {
    fs::remove_all(folder_);
    DeviceTest::TearDown();
  }

  absl::StatusOr<LoadedJob> Load(const std::string& text) {
    PALPATE_ASSIGN_OR_RETURN(v1::Job job, ParseJobJson(text, "job"));
    return LoadJob(std::move(job), folder_ / "job.json");
  }

  /// Runs in a folder of this name; interrupted after so many steps of this call.
  absl::StatusOr<RunOutcome> Run(const std::string& text, const std::string& name, uint64_t interrupt_after = UINT64_MAX) {
    PALPATE_ASSIGN_OR_RETURN(const LoadedJob loaded, Load(text));
    uint64_t steps = 0;
    RunOptions options;
    options.folder = folder_ / name;
    options.context = context();
    options.on_progress = [&steps](const JobProgress&) { ++steps; };
    options.is_interrupted = [&steps, interrupt_after] { return steps >= interrupt_after; };
    return RunJob(loaded, options);
  }

  std::string Text(const fs::path& file) {
    const auto text = record::ReadWholeFile(folder_ / file, kMaxTextBytes);
    EXPECT_TRUE(text.ok()) << text.status();
    return text.value_or("");
  }
  json Summary(const std::string& name) { return json::parse(Text(fs::path(name) / "summary.json"), nullptr, false); }

  /// All files but the summary's provenance.
  std::map<std::string, std::string> Results(const std::string& name) {
    std::map<std::string, std::string> files;
    for (const auto& entry : fs::recursive_directory_iterator(folder_ / name)) {
      const std::string file = entry.path().lexically_relative(folder_ / name).string();
      if (!entry.is_regular_file() || file == ".lock" || file == "policy.log") continue;
      files[file] = Text(fs::path(name) / file);
    }
    json summary = json::parse(files["summary.json"], nullptr, false);
    summary.erase("provenance");
    // Of the state what the scene goes on from.
    const auto recording = record::Recording::OpenFile(folder_ / name / "state.plrec");
    EXPECT_TRUE(recording.ok()) << recording.status();
    const auto state = recording.ok() ? (*recording)->LoadState((*recording)->states().at(0)) : recording.status();
    EXPECT_TRUE(state.ok()) << state.status();
    files["state.plrec"] = state.ok() ? state->scene.SerializeAsString() : "";
    files["summary.json"] = summary.dump(2);
    return files;
  }
  void ExpectSameResults(const std::string& a, const std::string& b) {
    const auto first = Results(a), second = Results(b);
    std::vector<std::string> names, others;
    for (const auto& [file, text] : first) names.push_back(file);
    for (const auto& [file, text] : second) others.push_back(file);
    EXPECT_EQ(names, others);
    for (const auto& [file, text] : first) {
      const auto other = second.find(file);
      if (other != second.end()) {
        EXPECT_TRUE(text == other->second) << file << " differs";
      }
    }
  }

  fs::path folder_;
};

TEST_F(JobRunTest, LeavesTableGeometryStateAndSummary) {
  PALPATE_TEST_ASSIGN(const RunOutcome outcome, Run(Press(), "a"));
  PALPATE_ASSERT_OK(outcome.failure);
  EXPECT_EQ(outcome.end, RunEnd::kEnded);
  EXPECT_EQ(outcome.step, 24U);
  const std::string table = Text("a/probes.csv");
  const std::vector<std::string> lines = absl::StrSplit(table, '\n');
  ASSERT_EQ(lines.size(), 27U);  // header, steps 0 to 24, the end
  EXPECT_EQ(lines[0],
            "step,time [s],tool.probe.force.x [N],tool.probe.force.y [N],tool.probe.force.z [N],body.box.volume [m3],"
            "body.box.max_displacement [m],topology_version,state_hash.high,state_hash.low");
  const json summary = Summary("a");
  EXPECT_EQ(summary["status"], "ended");
  EXPECT_EQ(summary["reason"], "duration");
  EXPECT_EQ(summary["steps"], 24);
  EXPECT_EQ(summary["edits"], 1);
  EXPECT_GT(summary["mass_removed_by_edits_kg"].get<double>(), 0);
  // What the table has is what the summary says, number by number.
  for (size_t c = 0; c < summary["probes"].size(); ++c) {
    const json& probe = summary["probes"][c];
    double low = INFINITY, high = -INFINITY, last = NAN;
    for (size_t row = 1; row + 1 < lines.size(); ++row) {
      const std::vector<std::string> cells = absl::StrSplit(lines[row], ',');
      ASSERT_EQ(cells.size(), 10U);
      last = std::strtod(cells[c + 2].c_str(), nullptr);
      low = std::min(low, last);
      high = std::max(high, last);
    }
    EXPECT_EQ(probe["min"].get<double>(), low) << probe["name"];
    EXPECT_EQ(probe["max"].get<double>(), high) << probe["name"];
    EXPECT_EQ(probe["final"].get<double>(), last) << probe["name"];
  }
  EXPECT_GT(summary["probes"][2]["max"].get<double>(), 0.01) << "the probe is pushed up";
  EXPECT_GT(summary["probes"][5]["final"].get<double>(), 1) << "the topology was edited";
  EXPECT_TRUE(fs::exists(folder_ / "a/geometry.surface.pvd"));
  EXPECT_FALSE(HasJobState(folder_ / "a"));
  PALPATE_TEST_ASSIGN(const std::string hash, record::Sha256OfFile(folder_ / "a/probes.csv"));
  EXPECT_EQ(summary["outputs"][0]["sha256"], hash);
  // Once more there is nothing to do; another job does not get the folder.
  PALPATE_TEST_ASSIGN(const RunOutcome again, Run(Press(), "a"));
  EXPECT_EQ(again.end, RunEnd::kWasDone);
  EXPECT_THAT(std::string(Run(Press(kPath, "", ", \"seed\": 2"), "a").status().message()), HasSubstr("holds the results of another job"));
}

/// As a server opens it: with nothing but the file.
TEST_F(JobRunTest, TheFinalStateIsARecordingThatGoesOn) {
  // A cube of six tets in TetGen's two files, under a probe.
  PALPATE_ASSERT_OK(WriteDurably(
      folder_ / "cube.node", "8 3 0 0\n0 0 0 0\n1 .02 0 0\n2 .02 .02 0\n3 0 .02 0\n4 0 0 .02\n5 .02 0 .02\n6 .02 .02 .02\n7 0 .02 .02\n"));
  PALPATE_ASSERT_OK(WriteDurably(folder_ / "cube.ele", "6 4 0\n0 0 1 2 6\n1 0 2 3 6\n2 0 3 7 6\n3 0 7 4 6\n4 0 4 5 6\n5 0 5 1 6\n"));
  const std::string text = R"({
    "scene": {"bodies": [{"name": "cube", "mesh_file": "cube.ele"}], "tools": [{"name": "probe", "rest_pose": {"position_m": {"z": 0.1}}}]},
    "stop": {"steps": 3}, "outputs": {"final_state": true}})";
  PALPATE_TEST_ASSIGN(const RunOutcome outcome, Run(text, "cube"));
  PALPATE_ASSERT_OK(outcome.failure);
  const json summary = Summary("cube");
  ASSERT_EQ(summary["inputs"].size(), 2U) << "both halves of the mesh";
  fs::rename(folder_ / "cube.node", folder_ / "elsewhere.node");

  PALPATE_TEST_ASSIGN(const auto recording, record::Recording::OpenFile(folder_ / "cube/state.plrec"));
  EXPECT_THAT(recording->damages(), ::testing::IsEmpty());
  EXPECT_EQ(recording->begin_position(), 3U);
  EXPECT_EQ(recording->end_position(), 3U);
  const record::AssetStore store(folder_ / "store");
  PALPATE_ASSERT_OK(recording->UnpackAssets(store));
  PALPATE_TEST_ASSIGN(auto description,
                      scene::BuildSceneDescription(recording->head().request().spec(), record::StoredResolver(store, recording->head()),
                                                   scene::SceneLimits()));
  PALPATE_TEST_ASSIGN(const auto player, record::Player::CreateAtEnd(recording, context(), std::move(description)));
  EXPECT_EQ(absl::StrFormat("%016x", player->world().CurrentFrame()->state_hash), summary["state_hash"]);
  PALPATE_TEST_ASSIGN(const auto next, player->world().Step(std::vector<const sim::ToolCommand*>{nullptr}));
  EXPECT_EQ(next->step, 4U);

  // The half that the scene does not name counts too.
  PALPATE_TEST_ASSIGN(const std::string nodes, record::ReadWholeFile(folder_ / "elsewhere.node", kMaxTextBytes));
  PALPATE_ASSERT_OK(WriteDurably(folder_ / "cube.node", absl::StrReplaceAll(nodes, {{".02", ".03"}})));
  EXPECT_THAT(std::string(Run(text, "cube").status().message()), HasSubstr("or its files were changed"));
}

/// A tool does what a recorded one was told, to the bit.
TEST_F(JobRunTest, ARecordedSceneIsTheScript) {
  PALPATE_TEST_ASSIGN(const LoadedJob loaded, Load(Press()));
  PALPATE_TEST_ASSIGN(const sim::SceneDescription scene, BuildScene(loaded));
  PALPATE_TEST_ASSIGN(const auto path, MakeTrajectory(loaded.job.tools(0).trajectory(), scene.tools[0], "t"));
  v1::JournalEntry head = test::HeadEntry();
  head.mutable_head()->set_dt_s(scene.dt_s);
  head.mutable_head()->add_tools("other");
  head.mutable_head()->add_tools("stick");
  std::string bytes = record::EncodeFileHeader() + record::EncodeEntry(head);
  for (uint64_t step = 1; step <= 24; ++step) {
    sim::ToolCommand command = path->At(static_cast<double>(step) * scene.dt_s).value();
    const sim::ToolCommand before = path->At(static_cast<double>(step - 1) * scene.dt_s).value();
    command.velocity_m_per_s = (command.device_pose.position_m - before.device_pose.position_m) / scene.dt_s;
    v1::JournalEntry entry = test::StepEntry(step, step);
    record::EncodeCommands({std::nullopt, command}, entry.mutable_step()->mutable_commands());
    bytes += record::EncodeEntry(entry);
  }
  PALPATE_ASSERT_OK(WriteDurably(folder_ / "hour.plrec", bytes));
  const auto replay = [](const std::string& more) {
    return absl::StrCat(R"("tools": [{"tool": "probe", "replay": {"file": "hour.plrec")", more, "}}],");
  };
  PALPATE_TEST_ASSIGN(const RunOutcome told, Run(Press(), "told"));
  PALPATE_ASSERT_OK(told.failure);
  PALPATE_TEST_ASSIGN(const RunOutcome replayed, Run(Press(replay(R"(, "tool": "stick")")), "replayed"));
  PALPATE_ASSERT_OK(replayed.failure);
  EXPECT_EQ(Text("told/probes.csv"), Text("replayed/probes.csv"));
  EXPECT_EQ(Summary("replayed")["inputs"][0]["file"], "hour.plrec");

  EXPECT_THAT(std::string(Run(Press(replay("")), "no").status().message()),
              HasSubstr("tools[0].replay.tool: the recording has no tool \"probe\"; it has: other, stick"));
  EXPECT_THAT(std::string(Run(Press(replay(R"(, "start_s": -1)")), "no").status().message()), HasSubstr("tools[0].replay.start_s: -1"));
  bytes[bytes.size() - 30] ^= 1;
  PALPATE_ASSERT_OK(WriteDurably(folder_ / "hour.plrec", bytes));
  const absl::Status damaged = Run(Press(replay(R"(, "tool": "stick")")), "no").status();
  EXPECT_TRUE(absl::IsDataLoss(damaged)) << damaged;
  EXPECT_THAT(std::string(damaged.message()), HasSubstr("tools[0].replay.file: "));
}

TEST_F(JobRunTest, InterruptionsLeaveNoTrace) {
  PALPATE_TEST_ASSIGN(const RunOutcome whole, Run(Press(), "whole"));
  PALPATE_ASSERT_OK(whole.failure);
  RunOutcome outcome;
  int calls = 0;
  for (; calls == 0 || outcome.end == RunEnd::kInterrupted; ++calls) {
    ASSERT_LT(calls, 10);
    PALPATE_TEST_ASSIGN(outcome, Run(Press(), "parts", 5));
    PALPATE_ASSERT_OK(outcome.failure);
    if (outcome.end == RunEnd::kInterrupted) {
      EXPECT_EQ(outcome.step, 5U * static_cast<uint64_t>(calls + 1));
    }
  }
  EXPECT_EQ(calls, 5);
  ExpectSameResults("whole", "parts");
  EXPECT_EQ(Summary("parts")["provenance"]["interruptions"], 4);
}

/// kill -9 at any moment: what was written after the checkpoint is cut off.
TEST_F(JobRunTest, AKillLeavesNoTrace) {
  PALPATE_TEST_ASSIGN(const RunOutcome whole, Run(Press(), "whole"));
  const std::string text = Press(kPath, "", ", \"checkpoints\": {\"interval_steps\": 7}");
  PALPATE_TEST_ASSIGN(const LoadedJob loaded, Load(text));
  // Saved at step 7 and 14; then as a killed process leaves it: the table longer, files of geometry beyond.
  for (const uint64_t killed_after : {9U, 6U}) {
    uint64_t steps = 0;
    RunOptions options;
    options.folder = folder_ / "killed";
    options.context = context();
    options.on_progress = [&steps](const JobProgress&) { ++steps; };
    options.is_interrupted = [&] {
      if (steps < killed_after) return false;
      fs::remove_all(folder_ / "copy");
      fs::copy(options.folder, folder_ / "copy", fs::copy_options::recursive);
      return true;
    };
    PALPATE_TEST_ASSIGN(const RunOutcome outcome, RunJob(loaded, options));
    ASSERT_EQ(outcome.end, RunEnd::kInterrupted) << outcome.failure;
    // The copy was made before the interruption was saved.
    fs::remove_all(folder_ / "killed");
    fs::rename(folder_ / "copy", folder_ / "killed");
    std::ofstream(folder_ / "killed/probes.csv.part", std::ios::app) << "23,0.1,rub";
  }
  PALPATE_TEST_ASSIGN(const RunOutcome outcome, Run(text, "killed"));
  PALPATE_ASSERT_OK(outcome.failure);
  ExpectSameResults("whole", "killed");
}

/// What a process that was killed had begun to write goes, whatever its number was; files of others in the folder stay.
TEST_F(JobRunTest, PartsOfAKilledProcessGo) {
  PALPATE_TEST_ASSIGN(const RunOutcome part, Run(Press(), "killed", 6));
  const std::vector<std::string> left = {
      "checkpoint.palpate.4711.part", "checkpoint.palpate.part",        "summary.json.part",
      "state.plrec.12.part",          "geometry.surface.pvd.4711.part", "geometry.frames/box_00000003.vtp.4711.part"};
  const std::vector<std::string> others = {"notes.part", "mine/summary.json.part"};
  fs::create_directories(folder_ / "killed/mine");
  for (const std::string& file : left) std::ofstream(folder_ / "killed" / file) << "half";
  for (const std::string& file : others) std::ofstream(folder_ / "killed" / file) << "of somebody";
  PALPATE_TEST_ASSIGN(const RunOutcome outcome, Run(Press(), "killed"));
  PALPATE_ASSERT_OK(outcome.failure);
  for (const std::string& file : left) EXPECT_FALSE(fs::exists(folder_ / "killed" / file)) << file;
  for (const std::string& file : others) EXPECT_TRUE(fs::exists(folder_ / "killed" / file)) << file;
}

TEST_F(JobRunTest, ADamagedCheckpointIsNotGoneOnFrom) {
  PALPATE_TEST_ASSIGN(const RunOutcome whole, Run(Press(), "whole"));
  PALPATE_TEST_ASSIGN(const RunOutcome part, Run(Press(), "damaged", 6));
  std::string bytes = Text("damaged/checkpoint.palpate");
  bytes[bytes.size() / 2] ^= 1;
  PALPATE_ASSERT_OK(WriteDurably(folder_ / "damaged/checkpoint.palpate", bytes));
  EXPECT_THAT(std::string(ReadJobState(folder_ / "damaged").status().message()), HasSubstr("is damaged"));
  PALPATE_TEST_ASSIGN(const RunOutcome outcome, Run(Press(), "damaged"));
  PALPATE_ASSERT_OK(outcome.failure);
  ExpectSameResults("whole", "damaged");
}

TEST_F(JobRunTest, EndsWhenAConditionHasHeld) {
  const std::string condition = R"(, "conditions": [{"probe": "time", "above": 0.052, "hold_s": 0.03, "name": "late"}])";
  PALPATE_TEST_ASSIGN(const RunOutcome outcome, Run(Press(kPath, condition), "condition"));
  PALPATE_ASSERT_OK(outcome.failure);
  EXPECT_EQ(outcome.reason, "condition: late");
  // Time is above 0.052 s from step 7 on (7 / 120 s), and for 0.03 s at step 11.
  EXPECT_EQ(outcome.step, 11U);
  // What has held so far is a part of the checkpoint.
  PALPATE_TEST_ASSIGN(const RunOutcome part, Run(Press(kPath, condition), "parts", 9));
  EXPECT_EQ(part.end, RunEnd::kInterrupted);
  PALPATE_TEST_ASSIGN(const RunOutcome rest, Run(Press(kPath, condition), "parts"));
  EXPECT_EQ(rest.step, 11U);
}

TEST_F(JobRunTest, EndsInEquilibrium) {
  const std::string stop = R"(, "equilibrium": {"max_speed_m_per_s": 1000, "hold_s": 0.05})";
  PALPATE_TEST_ASSIGN(const RunOutcome outcome, Run(Press(kPath, stop), "rest"));
  PALPATE_ASSERT_OK(outcome.failure);
  EXPECT_EQ(outcome.reason, "equilibrium");
  EXPECT_EQ(outcome.step, 7U);  // the first of 7 frames, 6 steps apart, is that of step 1
}

TEST_F(JobRunTest, AnEditThatCannotBeDoneFailsTheJob) {
  const std::string text = absl::StrReplaceAll(
      Press(), {{"\"carve\": {\"region\"", "\"material\": {\"zone\": \"fat\", \"material\": {}}, \"carve\": {\"region\""}});
  const std::string no_zone =
      absl::StrReplaceAll(Press(), {{R"("carve": {"region": {"ball": {"center_m": {"x": 0.02, "y": 0.02, "z": 0.01}, "radius_m": 0.012}}})",
                                     R"("material": {"zone": "fat", "material": {"young_modulus_pa": 100}})"}});
  PALPATE_TEST_ASSIGN(const RunOutcome outcome, Run(no_zone, "failed"));
  EXPECT_EQ(outcome.end, RunEnd::kFailed);
  EXPECT_THAT(std::string(outcome.failure.message()), HasSubstr("edits[0]: edits[0].material.zone: the body has no zone \"fat\""));
  EXPECT_EQ(Summary("failed")["status"], "failed");
  EXPECT_FALSE(Load(text).ok()) << "two edits in one";
}

std::string LibraryPolicy(const std::string& options) {
  return absl::StrCat(R"(, "policy": {"library": {"file": ")", PALPATE_SAMPLE_POLICY, R"(", "options": ")", options,
                      R"("}, "tools": ["probe"], "observations": ["tool.probe.force.z"], "interval_s": 0.0166})");
}

TEST_F(JobRunTest, ALibraryIsThePolicy) {
  const std::string more = LibraryPolicy("force=0.02,speed=0.1");
  PALPATE_TEST_ASSIGN(const RunOutcome outcome, Run(Press("", "", more), "policy"));
  PALPATE_ASSERT_OK(outcome.failure);
  const json summary = Summary("policy");
  EXPECT_GT(summary["probes"][2]["max"].get<double>(), 0.01) << "it went down until it felt something";
  for (int call = 0; call < 3; ++call) PALPATE_ASSERT_OK(Run(Press("", "", more), "parts", 7).status());
  PALPATE_ASSERT_OK(Run(Press("", "", more), "parts").status());
  ExpectSameResults("policy", "parts");
  PALPATE_TEST_ASSIGN(const RunOutcome refused, Run(Press("", "", LibraryPolicy("force=-1")), "refused"));
  EXPECT_THAT(std::string(refused.failure.message()), HasSubstr("known are force in [0, 100]"));
}

/// A policy in Python. `body` sees `obs`, `line`, `step`, and sets `answer`.
std::string ProgramPolicy(const fs::path& folder, const std::string& name, const std::string& body, double timeout_s = 30) {
  std::ofstream(folder / name)
      << "import json, sys, time\nbegin = json.loads(sys.stdin.readline())\nz = begin['tools'][0]['position_m']['z']\n"
         "for text in sys.stdin:\n  line = json.loads(text)\n  if line['type'] == 'end': break\n"
         "  obs = line['observations']; step = line['step']; answer = {}\n"
      << body << "\n  print(json.dumps(answer), flush=True)\n";
  return absl::StrCat(R"(, "policy": {"program": {"command": [")", PALPATE_PYTHON, R"(", ")", name, R"("], "timeout_s": )", timeout_s,
                      R"(}, "tools": ["probe"], "observations": ["tool.probe.force.z", "energy.elastic"], "interval_s": 0.0166})");
}

constexpr char kPressDown[] =
    "  assert obs['energy.elastic'] is None\n"
    "  if obs['tool.probe.force.z'] < 0.02: z -= 0.002\n"
    "  answer['tools'] = [{'tool': 'probe', 'pose': {'position_m': {'z': z}}}]\n"
    "  if step == 8: answer['edits'] = [{'body': 'box', 'material': {'material': {'young_modulus_pa': 20000}}}]\n"
    "  if step >= 20: answer.update(stop=True, reason='twenty')";

TEST_F(JobRunTest, AProgramIsThePolicy) {
  const std::string more = ProgramPolicy(folder_, "press.py", kPressDown);
  PALPATE_TEST_ASSIGN(const RunOutcome outcome, Run(Press("", "", more), "policy"));
  PALPATE_ASSERT_OK(outcome.failure);
  EXPECT_EQ(outcome.reason, "policy: twenty");
  EXPECT_EQ(outcome.step, 20U);
  EXPECT_EQ(Summary("policy")["edits"], 2);
  EXPECT_EQ(Summary("policy")["inputs"].back()["file"], "press.py");
  PALPATE_ASSERT_OK(Run(Press("", "", more), "parts", 11).status());
  PALPATE_ASSERT_OK(Run(Press("", "", more), "parts").status());
  ExpectSameResults("policy", "parts");
}

TEST_F(JobRunTest, APolicyHasLastWords) {
  const auto failure = [this](const std::string& name, const std::string& body, double timeout_s = 30) {
    const auto outcome = Run(Press("", "", ProgramPolicy(folder_, name + ".py", body, timeout_s)), name);
    EXPECT_TRUE(outcome.ok()) << outcome.status();
    return outcome.ok() ? outcome->failure : outcome.status();
  };
  const absl::Status ended = failure("ends", "  if step == 4: raise RuntimeError('no more tissue')");
  EXPECT_THAT(std::string(ended.message()), HasSubstr("has ended without an answer at step 4 (exit status 1)"));
  EXPECT_THAT(std::string(ended.message()), HasSubstr("RuntimeError: no more tissue"));
  EXPECT_THAT(std::string(failure("babbles", "  print('hello')").message()), HasSubstr("it wrote: hello"));
  EXPECT_THAT(std::string(failure("unknown", "  answer['tool'] = []").message()), HasSubstr("tool"));
  EXPECT_THAT(std::string(failure("stranger", "  answer['tools'] = [{'tool': 'hook'}]").message()),
              HasSubstr("policy, step 0: tools[0].tool: \"hook\" is none of policy.tools"));
  EXPECT_TRUE(absl::IsDeadlineExceeded(failure("sleeps", "  time.sleep(60)", 0.3)));
  const auto outcome =
      Run(Press("", "", absl::StrReplaceAll(ProgramPolicy(folder_, "x.py", ""), {{PALPATE_PYTHON, "/no/such/program"}})), "none");
  ASSERT_TRUE(outcome.ok());
  EXPECT_THAT(std::string(outcome->failure.message()), HasSubstr("cannot be started"));
}

TEST_F(JobRunTest, RowsUntilAFailureAreKept) {
  const std::string more = ProgramPolicy(folder_, "ends.py", "  if step == 4: raise RuntimeError('no more tissue')");
  PALPATE_TEST_ASSIGN(const RunOutcome outcome, Run(Press("", "", more), "ends"));
  EXPECT_EQ(outcome.end, RunEnd::kFailed);
  std::vector<std::string> steps;
  const std::string table = Text("ends/probes.csv.part");
  for (const absl::string_view row : absl::StrSplit(table, '\n', absl::SkipEmpty())) {
    steps.emplace_back(row.substr(0, row.find(',')));
  }
  EXPECT_EQ(steps, (std::vector<std::string>{"step", "0", "1", "2", "3", "4"}));
}

TEST_F(JobRunTest, OfALongLogTheEndIsRead) {
  // 64 GiB, though it takes no room.
  const std::string more = ProgramPolicy(folder_, "long.py", "  import os\n  os.ftruncate(2, 1 << 36)\n  raise RuntimeError('full')");
  PALPATE_TEST_ASSIGN(const RunOutcome outcome, Run(Press("", "", more), "long"));
  EXPECT_EQ(outcome.end, RunEnd::kFailed);
  EXPECT_THAT(std::string(outcome.failure.message()), HasSubstr("RuntimeError: full"));
  EXPECT_LT(outcome.failure.message().size(), 10000U);
}

TEST_F(JobRunTest, APolicyThatForgetsCannotGoOn) {
  const std::string more = ProgramPolicy(folder_, "forgets.py",
                                         "  answer['tools'] = [{'tool': 'probe', 'velocity_m_per_s': {'x': 1e-6 * (time.time() % 100)}}]");
  PALPATE_TEST_ASSIGN(const RunOutcome part, Run(Press("", "", more), "forgets", 6));
  EXPECT_EQ(part.end, RunEnd::kInterrupted) << part.failure;
  PALPATE_TEST_ASSIGN(const RunOutcome rest, Run(Press("", "", more), "forgets"));
  EXPECT_THAT(std::string(rest.failure.message()), HasSubstr("does not answer as before at step 0"));
}

TEST_F(JobRunTest, TablesOfTasksAreTheSameInAnyOrder) {
  const std::string text =
      Press(kPath, "", R"(, "sweep": {"grid": [{"field": "bodies[box].material.young_modulus_pa", "values": [2000, 4000, 8000]}],
    "samples": {"count": 2, "dimensions": [{"field": "job.tools[probe].trajectory.keys[1].pose.position_m.z", "low": -0.005, "high": -0.002}]}})");
  PALPATE_TEST_ASSIGN(const v1::Job job, ParseJobJson(text, "job"));
  const auto run = [&](const std::string& name, const std::vector<uint32_t>& tasks, uint32_t workers) {
    const auto manifest = ExpandSweep(job, folder_ / "job.json", folder_ / name);
    EXPECT_TRUE(manifest.ok()) << manifest.status();
    TaskOptions options;
    options.run.folder = folder_ / name;
    options.run.context = context();
    options.workers = workers;
    return RunTasks(*manifest, tasks, options);
  };
  TaskOutcomes outcomes = run("one", {0, 1, 2, 3, 4, 5}, 1);
  EXPECT_EQ(outcomes.ended, 6U) << (outcomes.failures.empty() ? "" : outcomes.failures.begin()->second);
  EXPECT_EQ(run("two", {5, 3, 1}, 3).ended, 3U);
  PALPATE_TEST_ASSIGN(const Collection partial, CollectTasks(folder_ / "two"));
  EXPECT_THAT(partial.missing, ::testing::ElementsAre("task-000000", "task-000002", "task-000004"));
  outcomes = run("two", {4, 3, 2, 1, 0}, 2);
  EXPECT_EQ(outcomes.ended, 3U);
  EXPECT_EQ(outcomes.were_done, 2U);
  PALPATE_TEST_ASSIGN(const Collection one, CollectTasks(folder_ / "one"));
  PALPATE_TEST_ASSIGN(const Collection two, CollectTasks(folder_ / "two"));
  EXPECT_TRUE(two.missing.empty());
  EXPECT_EQ(one.csv, two.csv);
  const std::vector<std::string> lines = absl::StrSplit(one.csv, '\n');
  ASSERT_EQ(lines.size(), 8U);
  EXPECT_THAT(lines[0], HasSubstr("task,status,bodies[box].material.young_modulus_pa,"));
  EXPECT_THAT(lines[0], HasSubstr("tool.probe.force.z.max [N]"));
  EXPECT_THAT(lines[6], HasSubstr("task-000005,ended,8000,-0.00"));
  // A task that fails is named, and another sweep does not get the folder.
  PALPATE_ASSERT_OK(WriteDurably(folder_ / "two/task-000001/summary.json", R"({"status": "failed", "detail": "why", "probes": []})"));
  PALPATE_TEST_ASSIGN(const Collection failed, CollectTasks(folder_ / "two"));
  EXPECT_THAT(failed.failed, ::testing::ElementsAre("task-000001: why"));
  for (const char* bad : {R"({"status": "failed", "detail": 3, "probes": []})", R"({"status": "ended", "detail": "", "probes": [4]})",
                          R"({"status": "ended", "detail": "", "probes": [{"name": "x", "unit": 1}]})"}) {
    PALPATE_ASSERT_OK(WriteDurably(folder_ / "two/task-000001/summary.json", bad));
    EXPECT_THAT(std::string(CollectTasks(folder_ / "two").status().message()), HasSubstr("task-000001/summary.json: is not the summary"));
  }
  v1::Job other = job;
  other.mutable_sweep()->set_seed(9);
  EXPECT_THAT(std::string(ExpandSweep(other, folder_ / "job.json", folder_ / "two").status().message()),
              HasSubstr("holds the tasks of another sweep"));
  EXPECT_TRUE(absl::IsNotFound(CollectTasks(folder_ / "nowhere").status()));
}

}  // namespace
}  // namespace palpate::job::job_run_test
