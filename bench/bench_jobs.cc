// Many small jobs: tasks of one sweep in one process, and in a process each, two at a time. Both do the same work, which is checked: the
// tables of the two are equal, byte for byte.
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "bench/bench_support.h"
#include "gpu/base/status.h"
#include "gpu/runtime/device.h"

ABSL_FLAG(int, tasks, 64, "tasks of each case");
ABSL_FLAG(int, at_a_time, 2, "processes that run at the same time, and threads of the one process");

extern char** environ;

namespace palpate::bench {
namespace {

namespace fs = std::filesystem;

/// Programs are built into one folder.
std::string Palpate() { return (fs::read_symlink("/proc/self/exe").parent_path() / "palpate").string(); }

absl::StatusOr<pid_t> Start(const std::vector<std::string>& arguments) {
  std::vector<char*> argv;
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, "/dev/null", 1 /* O_WRONLY */, 0);
  posix_spawn_file_actions_addopen(&files, STDERR_FILENO, "/dev/null", 1, 0);
  pid_t pid = 0;
  const int error = posix_spawn(&pid, argv[0], &files, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&files);
  if (error != 0) return absl::NotFoundError(absl::StrCat(arguments[0], " cannot be started: ", std::strerror(error)));
  return pid;
}

absl::Status WaitForOne() {
  int status = 0;
  while (wait(&status) < 0) {
    if (errno != EINTR) return absl::InternalError("wait");
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("a palpate ended with status ", WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status)));
}

absl::Status Call(const std::vector<std::string>& arguments) {
  PALPATE_RETURN_IF_ERROR(Start(arguments).status());
  return WaitForOne();
}

struct Case {
  std::string name;
  double edge_length_m;
  int steps;
};

/// A phantom under a probe that presses, in `tasks` stiffnesses.
std::string JobOf(const Case& of, int tasks) {
  return absl::StrCat(
      R"({"name": "bench", "scene": {"bodies": [{"name": "box", "generator": {"slab": {"size_m": {"x": 0.05, "y": 0.05, "z": 0.02}}, "edge_length_m": )",
      of.edge_length_m,
      R"(}, "fixed": [{"box": {"min_m": {"x": -1, "y": -1, "z": -0.011}, "max_m": {"x": 1, "y": 1, "z": -0.0099}}}]}],
      "tools": [{"name": "probe", "drive": "TOOL_DRIVE_DIRECT", "rest_pose": {"position_m": {"z": 0.016}}}]},
      "tools": [{"tool": "probe", "trajectory": {"relative": true, "keys": [{"time_s": 0}, {"time_s": 0.2, "pose": {"position_m": {"z": -0.004}}}]}}],
      "probes": ["tool.probe.force", "body.box.volume"], "stop": {"steps": )",
      of.steps, R"(}, "sweep": {"samples": {"count": )", tasks,
      R"(, "dimensions": [{"field": "bodies[box].material.young_modulus_pa", "low": 2000, "high": 20000}]}}})");
}

class JobBench {
 public:
  JobBench(fs::path folder, Report& report) : folder_(std::move(folder)), report_(report) {}

  absl::Status Measure(const Case& of) {
    const int tasks = absl::GetFlag(FLAGS_tasks);
    const std::string file = (folder_ / (of.name + ".json")).string();
    std::ofstream(file) << JobOf(of, tasks);
    const fs::path one = folder_ / (of.name + ".one"), many = folder_ / (of.name + ".many"), warm = folder_ / (of.name + ".warm");
    for (const fs::path& folder : {one, many, warm})
      PALPATE_RETURN_IF_ERROR(Call({Palpate(), "job", "expand", file, "-o", folder.string()}));
    // Kernels that are in no cache yet are compiled here, and count for neither.
    PALPATE_RETURN_IF_ERROR(Call(RunCall(warm, "--task", "0")));
    const Stopwatch single;
    std::vector<std::string> call = RunCall(one, "--tasks", "all");
    call.insert(call.end(), {"--workers", absl::StrCat(absl::GetFlag(FLAGS_at_a_time))});
    PALPATE_RETURN_IF_ERROR(Call(call));
    const Times in_one = single.Elapsed();
    const Stopwatch separate;
    PALPATE_RETURN_IF_ERROR(RunSeparately(many, tasks));
    const Times in_many = separate.Elapsed();
    PALPATE_RETURN_IF_ERROR(CompareTables(one, many));
    report_.Add(of.name, "one_process", in_one.wall_s, "s");
    report_.Add(of.name, "process_each", in_many.wall_s, "s");
    report_.Add(of.name, "tasks_per_second", tasks / in_one.wall_s, "per_s");
    report_.Add(of.name, "tasks_per_second_process_each", tasks / in_many.wall_s, "per_s");
    report_.Add(of.name, "speedup", in_many.wall_s / in_one.wall_s, "ratio");
    return absl::OkStatus();
  }

 private:
  std::vector<std::string> RunCall(const fs::path& folder, const std::string& option, const std::string& tasks) const {
    std::vector<std::string> call = {Palpate(), "job", "run", folder.string(), option, tasks};
    if (!DeviceSelector().empty()) call.insert(call.end(), {"--device", DeviceSelector()});
    return call;
  }

  absl::Status RunSeparately(const fs::path& folder, int tasks) {
    int running = 0;
    for (int task = 0; task < tasks; ++task) {
      if (running == absl::GetFlag(FLAGS_at_a_time)) {
        PALPATE_RETURN_IF_ERROR(WaitForOne());
        --running;
      }
      PALPATE_RETURN_IF_ERROR(Start(RunCall(folder, "--task", absl::StrCat(task))).status());
      ++running;
    }
    for (; running > 0; --running) PALPATE_RETURN_IF_ERROR(WaitForOne());
    return absl::OkStatus();
  }

  absl::Status CompareTables(const fs::path& one, const fs::path& many) {
    std::vector<std::string> tables;
    for (const fs::path& folder : {one, many}) {
      const std::string table = (folder / "table.csv").string();
      PALPATE_RETURN_IF_ERROR(Call({Palpate(), "job", "collect", folder.string(), "-o", table}));
      std::ifstream stream(table, std::ios::binary);
      tables.emplace_back(std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>());
    }
    return tables[0] == tables[1] ? absl::OkStatus() : absl::InternalError("the tables of the two ways differ");
  }

  fs::path folder_;
  Report& report_;
};

int Main() {
  const auto device = gpu::SelectDevice(DeviceSelector());
  Report report("jobs", device.ok() ? gpu::DescribeDevice(*device) : "");
  if (!device.ok()) return report.Finish(device.status());
  const fs::path folder = fs::temp_directory_path() / absl::StrCat("palpate-bench-jobs.", getpid());
  fs::create_directories(folder);
  JobBench bench(folder, report);
  absl::Status status;
  // The longer a task, the less its start counts; the shortest is what a start costs.
  std::vector<Case> cases = {{"start", 0.01, 1}, {"small", 0.01, 30}, {"longer", 0.01, 240}};
  if (IsQuick()) cases.pop_back();
  for (const Case& of : cases) {
    if (status.ok() && IsSelected(of.name)) status = bench.Measure(of);
  }
  fs::remove_all(folder);
  return report.Finish(status);
}

}  // namespace
}  // namespace palpate::bench

int main(int argc, char** argv) {
  palpate::bench::Initialize(argc, argv, "Many small jobs in one process, and in a process each, two at a time.");
  return palpate::bench::Main();
}
