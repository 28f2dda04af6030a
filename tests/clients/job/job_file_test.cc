// Job files: good and bad input, overrides, and random damage.
#include "clients/job/job_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <random>
#include <string>

#include "clients/job/durable_file.h"
#include "clients/job/job_run.h"
#include "clients/job/sweep.h"
#include "tests/support/device_test.h"

namespace palpate::job::job_file_test {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

constexpr char kSmallJob[] = R"({
  "scene": {"bodies": [{"name": "box", "generator": {"slab": {}}, "material": {"young_modulus_pa": 3000}}],
            "tools": [{"name": "probe", "rest_pose": {"position_m": {"z": 0.1}}}]},
  "overrides": {"bodies[box].material.young_modulus_pa": 8000, "job.stop.steps": 7},
  "tools": [{"tool": "probe", "trajectory": {"keys": [{"time_s": 0.1}]}}],
  "edits": [{"time_s": 0.5, "edits": [{"body": "box", "carve": {"region": {"ball": {"radius_m": 0.01}}}}]}],
  "policy": {"program": {"command": ["true"]}, "observations": ["time"]},
  "stop": {"steps": 3, "conditions": [{"probe": "time", "above": 3}], "equilibrium": {"max_speed_m_per_s": 0.1}},
  "probes": ["time"],
  "outputs": {"probe_interval_s": 0.1, "geometry": {"interval_s": 0.1, "bodies": ["box"]}}
})";

absl::StatusOr<LoadedJob> Load(const std::string& json) {
  auto job = ParseJobJson(json, "job.json");
  if (!job.ok()) return job.status();
  return LoadJob(*std::move(job), "job.json");
}

/// The small job with one text in place of another, which it has to have.
std::string Changed(const std::string& from, const std::string& to) {
  std::string json = kSmallJob;
  const size_t at = json.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return at == std::string::npos ? json : json.replace(at, from.size(), to);
}

TEST(JobFileTest, OverridesAreInPlace) {
  PALPATE_TEST_ASSIGN(const LoadedJob loaded, Load(kSmallJob));
  EXPECT_EQ(loaded.scene.bodies(0).material().young_modulus_pa(), 8000);
  EXPECT_EQ(loaded.job.stop().steps(), 7U);
  EXPECT_TRUE(loaded.job.overrides().empty());
  PALPATE_TEST_ASSIGN(const JobPlan plan, PlanJob(loaded));
  EXPECT_EQ(plan.last_step, 7U);
  ASSERT_EQ(plan.columns.size(), 1U);
  EXPECT_EQ(plan.columns[0].name, "time");
}

TEST(JobFileTest, TheHashIsOfWhatTheResultDependsOn) {
  const auto hash = [](const std::string& json) {
    const auto loaded = Load(json);
    EXPECT_TRUE(loaded.ok()) << loaded.status();
    return loaded.ok() ? loaded->hash : "";
  };
  EXPECT_EQ(hash(kSmallJob), hash(kSmallJob));
  EXPECT_EQ(hash(kSmallJob).size(), 64U);
  EXPECT_NE(hash(kSmallJob), hash(Changed("8000", "8001")));
  EXPECT_NE(hash(kSmallJob), hash(Changed("\"above\": 3", "\"above\": 4")));
  EXPECT_EQ(hash(kSmallJob), hash(Changed("\"outputs\"", "\"checkpoints\": {\"interval_s\": 3}, \"outputs\"")));
}

TEST(JobFileTest, SaysWhatIsWrong) {
  const auto complaint = [](const std::string& from, const std::string& to) {
    const auto loaded = Load(Changed(from, to));
    return std::string((loaded.ok() ? PlanJob(*loaded).status() : loaded.status()).message());
  };
  EXPECT_THAT(complaint("\"stop\"", "\"halt\""), HasSubstr("halt"));
  EXPECT_THAT(complaint("\"steps\": 3", "\"steps\": \"many\""), HasSubstr("steps"));
  EXPECT_THAT(complaint("\"job.stop.steps\": 7", "\"job.stop.steps\": 0"), HasSubstr("job.json: stop.steps: 0 is outside [1, "));
  EXPECT_THAT(complaint("\"job.stop.steps\": 7", "\"job.scene.name\": \"x\""), HasSubstr("given without \"job.\""));
  EXPECT_THAT(complaint("bodies[box].material.young_modulus_pa", "bodies[bix].material.young_modulus_pa"),
              HasSubstr("there is no bodies[bix]"));
  EXPECT_THAT(complaint("8000", "1"), HasSubstr("bodies[0].material.young_modulus_pa: 1 is outside"));
  EXPECT_THAT(complaint("\"tool\": \"probe\"", "\"tool\": \"prob\""),
              HasSubstr("tools[0].tool: the scene has no tool \"prob\"; it has: probe"));
  EXPECT_THAT(complaint("{\"time_s\": 0.1}", "{\"time_s\": 0.1}, {\"time_s\": 0.1}"), HasSubstr("keys[1].time_s: 0.1 is not after"));
  EXPECT_THAT(complaint("\"time_s\": 0.5", "\"time_s\": -1"), HasSubstr("edits[0].time_s: -1 is outside"));
  EXPECT_THAT(complaint("\"radius_m\": 0.01", "\"radius_m\": 11"),
              HasSubstr("edits[0]: edits[0].carve.region.ball.radius_m: 11 is outside"));
  EXPECT_THAT(complaint("\"command\": [\"true\"]", "\"command\": []"), HasSubstr("policy.program.command: 0 entries"));
  EXPECT_THAT(complaint("\"observations\": [\"time\"]", "\"observations\": [\"tim\"]"), HasSubstr("policy.observations: probes[0]"));
  EXPECT_THAT(complaint("\"observations\": [\"time\"]", "\"tools\": [\"probe\"]"), HasSubstr("is moved by something else already"));
  EXPECT_THAT(complaint("\"probe\": \"time\"", "\"probe\": \"tool.probe.force\""), HasSubstr("has not one column"));
  EXPECT_THAT(complaint(", \"above\": 3", ""), HasSubstr("stop.conditions[0]: no bound is given"));
  EXPECT_THAT(complaint("{\"max_speed_m_per_s\": 0.1}", "{}"),
              HasSubstr("stop.equilibrium: max_speed_m_per_s or kinetic_energy_j is required"));
  EXPECT_THAT(complaint("\"probes\": [\"time\"]", "\"probes\": [\"tool.probe.weight\"]"), HasSubstr("probes[0]"));
  EXPECT_THAT(complaint("\"bodies\": [\"box\"]", "\"bodies\": [\"bix\"]"),
              HasSubstr("outputs.geometry.bodies[0]: the scene has no body \"bix\""));
  EXPECT_THAT(std::string(Load("{\"stop\": {\"steps\": 1}}").status().message()), HasSubstr("no scene is given"));
  EXPECT_THAT(std::string(Load("{\"scene_file\": \"nowhere.json\", \"stop\": {\"steps\": 1}}").status().message()),
              HasSubstr("nowhere.json"));
  std::string endless = kSmallJob;
  endless.replace(endless.find("\"steps\": 3, "), 12, "").replace(endless.find(", \"job.stop.steps\": 7"), 21, "");
  EXPECT_THAT(std::string(Load(endless).status().message()), HasSubstr("so that the job ends in any case"));
}

TEST(JobFileTest, SyntaxErrorsNameLineAndColumn) {
  const fs::path file = fs::path(::testing::TempDir()) / "broken.json";
  std::ofstream(file) << "{\n  \"stop\": {,}\n}\n";
  EXPECT_THAT(std::string(ReadJobFile(file).status().message()), HasSubstr("broken.json:2:12: not JSON"));
  EXPECT_TRUE(absl::IsNotFound(ReadJobFile(::testing::TempDir()).status()));
  fs::remove(file);
}

TEST(JobFileTest, TheExamplesAreValid) {
  size_t count = 0;
  for (const auto& entry : fs::directory_iterator(fs::path(PALPATE_SCENES) / "jobs")) {
    if (entry.path().extension() != ".json") continue;
    ++count;
    PALPATE_TEST_ASSIGN(v1::Job job, ReadJobFile(entry.path()));
    PALPATE_TEST_ASSIGN(const SweepPlan plan, PlanSweep(job, entry.path()));
    PALPATE_TEST_ASSIGN(const LoadedJob loaded, LoadJob(JobOfTask(job, plan, plan.tasks.size() - 1), entry.path()));
    PALPATE_TEST_ASSIGN(const JobPlan planned, PlanJob(loaded));
    EXPECT_GT(planned.columns.size(), 1U) << entry.path();
  }
  EXPECT_GE(count, 2U);
}

/// Whatever is done to a file's bytes: an answer, never a crash, and none takes long.
TEST(JobFileTest, RandomDamageIsAnError) {
  std::mt19937 random(11);
  const std::string pieces[] = {"[",     "]",    "{",    "}", "\"",        "*",       "-1",
                                "1e999", "null", "job.", ".", "bodies[0]", "\\u0000", "9223372036854775808"};
  int accepted = 0;
  for (int i = 0; i < 3000; ++i) {
    std::string json = kSmallJob;
    for (unsigned changes = 1 + random() % 3; changes > 0; --changes) {
      const size_t at = random() % json.size();
      if (random() % 2 == 0) {
        json[at] = static_cast<char>(random() % 256);
      } else {
        json.replace(at, random() % 12, pieces[random() % std::size(pieces)]);
      }
    }
    const auto loaded = Load(json);
    accepted += loaded.ok() ? 1 : 0;
    if (!loaded.ok()) {
      EXPECT_FALSE(loaded.status().message().empty());
    }
  }
  EXPECT_LT(accepted, 1500);
  EXPECT_GT(accepted, 0);
}

TEST(DurableFileTest, GrowingFilesAreCutBack) {
  const fs::path file = fs::path(::testing::TempDir()) / "growing.txt";
  fs::remove(file);
  {
    PALPATE_TEST_ASSIGN(GrowingFile growing, GrowingFile::Open(file, 0));
    PALPATE_ASSERT_OK(growing.Append("one\ntwo\n"));
    EXPECT_EQ(growing.size_bytes(), 8U);
    PALPATE_ASSERT_OK(growing.Flush(true));
  }
  {
    PALPATE_TEST_ASSIGN(GrowingFile growing, GrowingFile::Open(file, 4));
    PALPATE_ASSERT_OK(growing.Append("2\n"));
    PALPATE_ASSERT_OK(growing.Flush(false));
  }
  EXPECT_EQ(*record::ReadWholeFile(file, 100), "one\n2\n");
  EXPECT_TRUE(absl::IsDataLoss(GrowingFile::Open(file, 7).status()));
  fs::remove(file);
}

TEST(DurableFileTest, OneProcessAtATimeWorksInAFolder) {
  const fs::path folder = fs::path(::testing::TempDir()) / "locked";
  {
    PALPATE_TEST_ASSIGN(const FolderLock lock, FolderLock::Take(folder));
    EXPECT_TRUE(absl::IsFailedPrecondition(FolderLock::Take(folder).status()));
  }
  EXPECT_TRUE(FolderLock::Take(folder).ok());
  fs::remove_all(folder);
}

}  // namespace
}  // namespace palpate::job::job_file_test
