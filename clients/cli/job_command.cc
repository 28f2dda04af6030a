#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "clients/cli/commands.h"
#include "clients/cli/console.h"
#include "clients/job/job_file.h"
#include "clients/job/job_run.h"
#include "clients/job/stop_rules.h"
#include "clients/job/sweep.h"
#include "clients/job/tasks.h"
#include "gpu/base/status.h"
#include "gpu/runtime/context.h"
#include "sim/probe/probe_set.h"

namespace palpate::cli {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr uint32_t kMaxDefaultWorkers = 8;
constexpr size_t kListedTasks = 20;                // in messages
constexpr std::chrono::seconds kLineInterval{10};  // of progress in logs
constexpr const char* kGoOn = "; the same command goes on";

struct JobOptions {
  std::string path;    ///< of a job file, or of the folder of a sweep
  std::string folder;  ///< of the results; empty: named after the file
  std::string tasks;   ///< empty: not given
  uint32_t workers = 0;
  std::string device;
  bool fresh = false;
  std::string output;  ///< of `collect`
};

/// How this process was called.
std::string CommandLine() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);  // the system says that it is empty
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  while (!text.empty() && text.back() == '\0') text.pop_back();
  std::replace(text.begin(), text.end(), '\0', ' ');
  return text;
}

fs::path DefaultFolder(const fs::path& file) { return file.stem().string() + ".out"; }

/// Progress for whoever looks: a bar on a terminal, now and then a line in a log.
class ProgressTeller {
 public:
  explicit ProgressTeller(std::string name) : name_(std::move(name)), bar_(name_) {}
  void Tell(const job::JobProgress& progress) {
    bar_.Update(static_cast<double>(progress.step) / static_cast<double>(std::max<uint64_t>(1, progress.last_step)));
    ++steps_;
    const auto now = Clock::now();
    if (IsTerminal(STDERR_FILENO) || now - told_ < kLineInterval) return;
    const double rate = static_cast<double>(steps_) / std::chrono::duration<double>(now - told_).count();
    absl::FPrintF(stderr, "%s: step %d of %d, %.3f s, %.0f steps a second\n", name_, progress.step, progress.last_step, progress.time_s,
                  rate);
    told_ = now;
    steps_ = 0;
  }

 private:
  std::string name_;
  ProgressBar bar_;
  Clock::time_point told_ = Clock::now();
  uint64_t steps_ = 0;
};

job::RunOptions MakeRunOptions(const JobOptions& options, std::shared_ptr<gpu::Context> context) {
  job::RunOptions run;
  run.context = std::move(context);
  run.begin_anew = options.fresh;
  run.is_interrupted = IsInterrupted;
  run.on_note = [](const std::string& note) { absl::FPrintF(stderr, "palpate: %s\n", note); };
  run.command = CommandLine();
  return run;
}

const char* NameOf(job::RunEnd end) {
  switch (end) {
    case job::RunEnd::kEnded:
      return "ended";
    case job::RunEnd::kWasDone:
      return "was_done";
    case job::RunEnd::kInterrupted:
      return "interrupted";
    case job::RunEnd::kFailed:
      break;
  }
  return "failed";
}

absl::Status RunSingle(v1::Job job, const JobOptions& options, Session& session) {
  session.failure = kExitUsage;
  PALPATE_ASSIGN_OR_RETURN(const job::LoadedJob loaded, job::LoadJob(std::move(job), options.path));
  const fs::path folder = options.folder.empty() ? DefaultFolder(options.path) : fs::path(options.folder);
  session.failure = kExitFailed;
  PALPATE_ASSIGN_OR_RETURN(auto context, gpu::Context::Create({.device = options.device}));
  session.failure = kExitUsage;
  job::RunOptions run = MakeRunOptions(options, std::move(context));
  run.folder = folder;
  const std::string name = job::NameOf(loaded.job, loaded.file);
  absl::StatusOr<job::RunOutcome> outcome;
  {
    ProgressTeller teller(name);
    run.on_progress = [&teller](const job::JobProgress& progress) { teller.Tell(progress); };
    outcome = job::RunJob(loaded, run);
  }
  PALPATE_RETURN_IF_ERROR(outcome.status());
  session.failure = kExitFailed;
  PALPATE_RETURN_IF_ERROR(outcome->failure);
  if (session.json) {
    const nlohmann::ordered_json line = {{"job", name},
                                         {"outcome", NameOf(outcome->end)},
                                         {"reason", outcome->reason},
                                         {"step", outcome->step},
                                         {"folder", folder.string()}};
    absl::PrintF("%s\n", line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  }
  if (outcome->end == job::RunEnd::kInterrupted) {
    session.failure = kExitInterrupted;
    return absl::CancelledError(absl::StrCat(name, ": interrupted at step ", outcome->step, ", saved in ", folder.string(), kGoOn));
  }
  if (session.json) return absl::OkStatus();
  if (outcome->end == job::RunEnd::kWasDone) {
    absl::PrintF("%s: was done; its results are in %s\n", name, folder.string());
  } else {
    absl::PrintF("%s: ended at step %d (%s); its results are in %s\n", name, outcome->step, outcome->reason, folder.string());
  }
  return absl::OkStatus();
}

/// What became of many tasks, as one status.
absl::Status Judge(const v1::SweepManifest& manifest, const job::TaskOutcomes& outcomes, Session& session) {
  const size_t left = outcomes.interrupted + outcomes.not_begun;
  std::string failures;
  if (outcomes.failed > 0) {
    failures = absl::StrCat(outcomes.failed, " tasks failed");
    size_t listed = 0;
    for (const auto& [task, failure] : outcomes.failures) {
      if (++listed > kListedTasks) break;
      absl::StrAppend(&failures, "\n  ", manifest.tasks(static_cast<int>(task)).id(), ": ", failure);
    }
  }
  if (left == 0 && failures.empty()) return absl::OkStatus();
  session.failure = left > 0 ? kExitInterrupted : kExitFailed;
  if (left == 0) return absl::InternalError(failures);
  // Before failures: an engine that is told of these would not start again what is left.
  return absl::CancelledError(absl::StrCat("interrupted: ", outcomes.interrupted, " tasks are saved, ", outcomes.not_begun,
                                           " have not begun", kGoOn, failures.empty() ? "" : "; ", failures));
}

absl::Status RunMany(const v1::SweepManifest& manifest, const fs::path& folder, const JobOptions& options, Session& session) {
  session.failure = kExitUsage;
  PALPATE_ASSIGN_OR_RETURN(const std::vector<uint32_t> tasks,
                           job::ParseTaskList(options.tasks, static_cast<size_t>(manifest.tasks_size())));
  session.failure = kExitFailed;
  PALPATE_ASSIGN_OR_RETURN(auto context, gpu::Context::Create({.device = options.device}));
  job::TaskOptions crew;
  crew.run = MakeRunOptions(options, std::move(context));
  crew.run.folder = folder;
  crew.workers = options.workers > 0 ? options.workers : std::clamp(std::thread::hardware_concurrency(), 1U, kMaxDefaultWorkers);
  job::TaskOutcomes outcomes;
  {
    ProgressBar bar(manifest.name());
    const bool shows_bar = IsTerminal(STDERR_FILENO);
    crew.on_task = [&](uint32_t task, const std::string& told, size_t done, size_t count) {
      bar.Update(static_cast<double>(done) / static_cast<double>(count));
      if (!shows_bar) absl::FPrintF(stderr, "%s: %s (%d of %d)\n", manifest.tasks(static_cast<int>(task)).id(), told, done, count);
    };
    outcomes = job::RunTasks(manifest, tasks, crew);
  }
  if (session.json) {
    const nlohmann::ordered_json line = {{"folder", folder.string()},       {"ended", outcomes.ended},
                                         {"were_done", outcomes.were_done}, {"interrupted", outcomes.interrupted},
                                         {"failed", outcomes.failed},       {"not_begun", outcomes.not_begun}};
    absl::PrintF("%s\n", line.dump());
  } else if (outcomes.ended + outcomes.were_done > 0) {
    absl::PrintF("%s: %d tasks have ended, %d of them before; their results are in %s\n", manifest.name(),
                 outcomes.ended + outcomes.were_done, outcomes.were_done, folder.string());
  }
  return Judge(manifest, outcomes, session);
}

absl::Status Run(const JobOptions& options, Session& session) {
  InstallInterruptHandler({SIGINT, SIGTERM, SIGUSR1});
  session.failure = kExitUsage;
  std::error_code error;
  if (fs::is_directory(options.path, error)) {
    if (!options.folder.empty()) return absl::InvalidArgumentError("-o is not used with the folder of a sweep, which has its own results");
    if (options.tasks.empty()) return absl::InvalidArgumentError(absl::StrCat(options.path, ": is a folder; say which --task or --tasks"));
    PALPATE_ASSIGN_OR_RETURN(const v1::SweepManifest manifest, job::ReadManifest(options.path));
    return RunMany(manifest, options.path, options, session);
  }
  PALPATE_ASSIGN_OR_RETURN(v1::Job job, job::ReadJobFile(options.path));
  if (!job.has_sweep()) {
    if (!options.tasks.empty())
      return absl::InvalidArgumentError(absl::StrCat(options.path, ": has no sweep, so --task and --tasks mean nothing"));
    return RunSingle(std::move(job), options, session);
  }
  if (options.tasks.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(options.path, ": has a sweep; say which --task or --tasks (all, 0-63, ...)"));
  }
  const fs::path folder = options.folder.empty() ? DefaultFolder(options.path) : fs::path(options.folder);
  PALPATE_ASSIGN_OR_RETURN(const v1::SweepManifest manifest, job::ExpandSweep(job, options.path, folder));
  return RunMany(manifest, folder, options, session);
}

absl::Status Expand(const JobOptions& options, Session& session) {
  session.failure = kExitUsage;
  PALPATE_ASSIGN_OR_RETURN(const v1::Job job, job::ReadJobFile(options.path));
  const fs::path folder = options.folder.empty() ? DefaultFolder(options.path) : fs::path(options.folder);
  PALPATE_ASSIGN_OR_RETURN(const v1::SweepManifest manifest, job::ExpandSweep(job, options.path, folder));
  if (session.json) {
    const nlohmann::ordered_json line = {{"folder", folder.string()}, {"tasks", manifest.tasks_size()}};
    absl::PrintF("%s\n", line.dump());
  } else {
    absl::PrintF("%s: %d tasks in %s\n", manifest.name(), manifest.tasks_size(), folder.string());
  }
  return absl::OkStatus();
}

std::string Listed(const std::vector<std::string>& names) {
  std::string text;
  for (size_t i = 0; i < names.size() && i < kListedTasks; ++i) absl::StrAppend(&text, "\n  ", names[i]);
  if (names.size() > kListedTasks) absl::StrAppend(&text, "\n  and ", names.size() - kListedTasks, " more");
  return text;
}

absl::Status Collect(const JobOptions& options, Session& session) {
  session.failure = kExitUsage;
  PALPATE_ASSIGN_OR_RETURN(const job::Collection collection, job::CollectTasks(options.path));
  session.failure = kExitFailed;
  PALPATE_RETURN_IF_ERROR(WriteFile(options.output, collection.csv));
  if (collection.missing.empty() && collection.failed.empty()) return absl::OkStatus();
  std::string text = absl::StrCat(options.path, ": the table is not complete");
  if (!collection.missing.empty())
    absl::StrAppend(&text, "\n", collection.missing.size(), " tasks are missing:", Listed(collection.missing));
  if (!collection.failed.empty()) absl::StrAppend(&text, "\n", collection.failed.size(), " tasks failed:", Listed(collection.failed));
  return absl::FailedPreconditionError(text);
}

/// Reads a job to the end without running it.
absl::StatusOr<job::LoadedJob> LoadWhole(const JobOptions& options, std::optional<size_t>* task_count) {
  PALPATE_ASSIGN_OR_RETURN(v1::Job job, job::ReadJobFile(options.path));
  if (job.has_sweep()) {
    PALPATE_ASSIGN_OR_RETURN(const job::SweepPlan plan, job::PlanSweep(job, options.path));
    *task_count = plan.tasks.size();
    if (!plan.tasks.empty()) job = job::JobOfTask(job, plan, 0);
  }
  return job::LoadJob(std::move(job), options.path);
}

absl::Status Check(const JobOptions& options, Session& session) {
  session.failure = kExitUsage;
  std::optional<size_t> task_count;
  PALPATE_ASSIGN_OR_RETURN(const job::LoadedJob loaded, LoadWhole(options, &task_count));
  PALPATE_ASSIGN_OR_RETURN(const job::JobPlan plan, job::PlanJob(loaded));
  if (session.json) {
    nlohmann::ordered_json line = {
        {"job", job::NameOf(loaded.job, loaded.file)}, {"last_step", plan.last_step}, {"columns", plan.columns.size()}};
    if (task_count) line["tasks"] = *task_count;
    absl::PrintF("%s\n", line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
    return absl::OkStatus();
  }
  absl::PrintF("%s: valid\njob        \"%s\", at most %d steps\n", options.path, job::NameOf(loaded.job, loaded.file), plan.last_step);
  if (task_count) absl::PrintF("tasks      %d, of which the first was looked at\n", *task_count);
  absl::PrintF("columns    %d\n", plan.columns.size());
  for (const sim::ProbeColumn& column : plan.columns) absl::PrintF("  %s [%s]\n", column.name, column.unit);
  return absl::OkStatus();
}

absl::Status Probes(const JobOptions& options, Session& session) {
  session.failure = kExitUsage;
  std::optional<size_t> task_count;
  PALPATE_ASSIGN_OR_RETURN(const job::LoadedJob loaded, LoadWhole(options, &task_count));
  PALPATE_ASSIGN_OR_RETURN(const sim::SceneDescription scene, job::BuildScene(loaded));
  for (const sim::ProbeColumn& probe : sim::ListProbes(scene)) {
    absl::PrintF("%-50s %s%s\n", probe.name, probe.unit, probe.is_wall_clock ? " (differs from run to run)" : "");
  }
  return absl::OkStatus();
}

void AddRun(CLI::App& jobs, Session& session) {
  CLI::App& command = *jobs.add_subcommand("run", "Runs a job, or tasks of a sweep. Interrupted, the same command goes on.");
  auto options = std::make_shared<JobOptions>();
  command.add_option("job", options->path, "job file, or the folder of an expanded sweep")->required()->check(CLI::ExistingPath);
  command.add_option("-o,--output", options->folder, "folder of the results; default: the file's name with .out, here");
  auto* task = command.add_option("--task", options->tasks, "number of one task of a sweep")->check(CLI::NonNegativeNumber);
  command.add_option("--tasks", options->tasks, "tasks of a sweep: all, 0-63, 3,5,7-9")->excludes(task);
  command.add_option("--workers", options->workers, "threads that run tasks, each a scene of its own; default: one a processor, at most 8")
      ->check(CLI::Range(1U, 1024U));
  command.add_option("--device", options->device, "OpenCL device: auto, gpu, cpu, an index or a part of the name")->default_str("auto");
  command.add_flag("--fresh", options->fresh, "begin anew, whatever is in the folder");
  command.callback([options, &session] { session.action = [options, &session] { return Run(*options, session); }; });
}

void AddOthers(CLI::App& jobs, Session& session) {
  const auto add = [&jobs, &session](const char* name, const char* what, absl::Status (*action)(const JobOptions&, Session&)) {
    CLI::App* command = jobs.add_subcommand(name, what);
    auto options = std::make_shared<JobOptions>();
    command->callback([options, action, &session] { session.action = [=, &session] { return action(*options, session); }; });
    return std::pair(command, options);
  };
  const auto [expand, expanded] = add("expand", "Makes the tasks of a sweep: a manifest, and a folder for each.", Expand);
  expand->add_option("file", expanded->path, "job file with a sweep")->required();
  expand->add_option("-o,--output", expanded->folder, "folder of the tasks; default: the file's name with .out, here");
  const auto [collect, collected] = add("collect", "Makes one table of all tasks; names those that are missing or failed.", Collect);
  collect->add_option("folder", collected->path, "folder of a sweep")->required()->check(CLI::ExistingDirectory);
  collected->output = "-";
  collect->add_option("-o,--output", collected->output, "CSV file; - is standard output")->capture_default_str();
  const auto [check, checked] = add("check", "Reads a job to the end without running it.", Check);
  check->add_option("file", checked->path, "job file")->required();
  const auto [probes, probed] = add("probes", "Lists what can be measured in a job's scene.", Probes);
  probes->add_option("file", probed->path, "job file")->required();
}

}  // namespace

void AddJobCommands(CLI::App& app, Session& session) {
  CLI::App& jobs = *app.add_subcommand("job", "Computations without people, in this process: see docs/jobs.md.");
  jobs.require_subcommand(1);
  AddRun(jobs, session);
  AddOthers(jobs, session);
  AddJobSubmitCommand(jobs, session);
}

}  // namespace palpate::cli
