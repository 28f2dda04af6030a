// The same scene in two processes, with one and with two threads of the OpenCL CPU driver: the same bits.
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "tests/sim/world/world_builders.h"
#include "tests/support/device_test.h"

namespace palpate::sim::threads_test {
namespace {

using Eigen::Vector3d;

constexpr int kSteps = 60;
// Before these steps.
constexpr int kCarveStep = 15, kInciseStep = 25, kRefineStep = 35;

class ThreadsTest : public test::DeviceTest {};

/// What a process has to say of its run.
struct Outcome {
  int exit_status = -1;
  uint32_t compute_units = 0;
  std::vector<std::string> steps;
  std::string output;
};

/// This program again, in PoCL with a limit to its threads. PoCL 3 reads POCL_MAX_PTHREAD_COUNT, later versions POCL_CPU_MAX_CU_COUNT.
Outcome RunWithThreads(uint32_t threads) {
  Outcome run;
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  const std::string command = absl::StrFormat(
      "POCL_MAX_PTHREAD_COUNT=%1$d POCL_CPU_MAX_CU_COUNT=%1$d PALPATE_TEST_DEVICE=cpu PALPATE_TEST_PRINT_STEPS=1 '%2$s' "
      "--gtest_filter=*PrintsEachStep 2>&1",
      threads, program.string());
  std::FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return run;
  char buffer[512];
  while (std::fgets(buffer, sizeof(buffer), pipe) != nullptr) run.output += buffer;
  run.exit_status = pclose(pipe);
  for (const absl::string_view line : absl::StrSplit(run.output, '\n')) {
    absl::string_view rest = line;
    if (absl::ConsumePrefix(&rest, "units ")) run.compute_units = static_cast<uint32_t>(std::atoi(std::string(rest).c_str()));
    if (absl::StartsWith(line, "step ")) run.steps.emplace_back(line);
  }
  return run;
}

TEST_F(ThreadsTest, NumberOfThreadsDoesNotChangeABit) {
  const auto devices = gpu::ListDevices();
  ASSERT_TRUE(devices.ok()) << devices.status();
  const auto cpu = gpu::SelectDevice("cpu");
  if (!cpu.ok() || cpu->platform_name != "Portable Computing Language") GTEST_SKIP() << "only PoCL's threads can be limited";
  if (cpu->compute_units < 2) GTEST_SKIP() << "this machine has one core";
  const Outcome one = RunWithThreads(1), two = RunWithThreads(2);
  ASSERT_EQ(one.exit_status, 0) << one.output;
  ASSERT_EQ(two.exit_status, 0) << two.output;
  ASSERT_EQ(one.compute_units, 1U) << "the driver does not know the limit";
  ASSERT_EQ(two.compute_units, 2U);
  ASSERT_EQ(one.steps.size(), static_cast<size_t>(kSteps));
  ASSERT_EQ(two.steps.size(), one.steps.size());
  for (size_t i = 0; i < one.steps.size(); ++i) ASSERT_EQ(one.steps[i], two.steps[i]);
}

/// Two bodies on a floor, one on the other, and a tool that presses: contact of all kinds. One is carved, incised and refined.
TEST_F(ThreadsTest, PrintsEachStep) {
  if (std::getenv("PALPATE_TEST_PRINT_STEPS") == nullptr) GTEST_SKIP() << "runs as a part of NumberOfThreadsDoesNotChangeABit";
  SceneDescription scene;
  scene.gravity_m_per_s2 = {0, 0, -9.81};
  scene.contact.check_intersections = true;
  const Vector3d block_m(0, 0, 0.0495), tip_m = block_m + Vector3d(0.005, -0.01, 0.02);
  scene.bodies = {test::BoxBody("slab", {0, 0, 0.0165}, {9, 9, 4}, {0.1, 0.1, 0.03}),
                  test::BoxBody("block", block_m, {7, 7, 6}, {0.05, 0.05, 0.03})};
  scene.obstacles = {{"floor", PlaneShape{}}};
  scene.tools = {test::ToolAt("probe", tip_m, ToolDrive::kDirect)};
  PALPATE_TEST_ASSIGN(const auto world, World::Create(context(), scene));
  std::printf("units %u\n", context()->device().compute_units);
  ToolCommand command;
  command.device_pose = scene.tools[0].rest_pose;
  size_t surface_contacts = 0, contacts = 0;
  double largest_force_n = 0;
  for (int i = 0; i < kSteps; ++i) {
    std::vector<Edit> edits;
    if (i == kCarveStep) edits.push_back({.body = 1, .what = CarveEdit{BallRegion{block_m + Vector3d(0.025, 0.025, 0.015), 0.015}}});
    if (i == kInciseStep) {
      InciseEdit cut;
      for (int k = 0; k < 4; ++k) {
        const double x = -0.03 + 0.01 * k;
        cut.edges_m.push_back({block_m + Vector3d(x, 0.0013, 0.02), block_m + Vector3d(x, 0.0013, 0)});
      }
      edits.push_back({.body = 1, .what = cut});
    }
    if (i == kRefineStep) edits.push_back({.body = 1, .what = RefineEdit{BallRegion{block_m, 0.01}, 0.004, 0}});
    if (!edits.empty()) {
      const BodyStatistics before = world->body_statistics()[1];
      PALPATE_ASSERT_OK(world->Apply(edits).status());
      const BodyStatistics& after = world->body_statistics()[1];
      EXPECT_TRUE(after.tet_count != before.tet_count || after.vertex_count != before.vertex_count) << "step " << i << ": no change";
    }
    command.device_pose.position_m = tip_m - Vector3d(0, 0, 0.0003 * i);
    const std::shared_ptr<const Frame> frame = test::Step(*world, {command});
    surface_contacts = std::max(surface_contacts, frame->surface_contacts.size());
    contacts = std::max(contacts, frame->contacts.size());
    largest_force_n = std::max(largest_force_n, frame->tools[0].force_n.norm());
    absl::PrintF("step %d hash %016x version %u energy %a force %a %a %a contacts %u %u\n", i, frame->state_hash, frame->topology_version,
                 frame->kinetic_energy_j, frame->tools[0].force_n.x(), frame->tools[0].force_n.y(), frame->tools[0].force_n.z(),
                 frame->contacts.size(), frame->surface_contacts.size());
  }
  EXPECT_GT(surface_contacts, 10U);
  EXPECT_GT(contacts, 10U);
  EXPECT_GT(largest_force_n, 0.1);
}

}  // namespace
}  // namespace palpate::sim::threads_test
