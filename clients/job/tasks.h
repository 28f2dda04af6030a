#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "clients/job/job_run.h"
#include "palpate/v1/job.pb.h"

namespace palpate::job {

/// Makes the folder of a sweep: manifest.json, and FOLDER/task-000012/job.json for each task, whose files are named relative to the job
/// file's folder: the two are moved together. Once more it changes nothing, so that many processes may do it at the same time.
/// Errors: as PlanSweep and ValidateJob; FailedPrecondition (the folder has another sweep).
absl::StatusOr<v1::SweepManifest> ExpandSweep(const v1::Job& job, const std::filesystem::path& file, const std::filesystem::path& folder);

/// Errors: NotFound (no manifest.json: nothing was expanded there), InvalidArgument.
absl::StatusOr<v1::SweepManifest> ReadManifest(const std::filesystem::path& folder);

struct TaskOutcomes {
  uint64_t ended = 0, were_done = 0, interrupted = 0, failed = 0, not_begun = 0;
  std::map<uint32_t, std::string> failures;  ///< by task
};

struct TaskOptions {
  RunOptions run;        ///< its folder is that of the sweep; called by all workers, never two at a time
  uint32_t workers = 1;  ///< threads, each with a world of its own
  /// After each task; `done` of `count`.
  std::function<void(uint32_t task, const std::string& told, size_t done, size_t count)> on_task;
};

/// Runs tasks of an expanded sweep on one device. A task that fails is told in the outcome and stops no other.
TaskOutcomes RunTasks(const v1::SweepManifest& manifest, const std::vector<uint32_t>& tasks, const TaskOptions& options);

/// The table of all tasks.
struct Collection {
  std::string csv;
  std::vector<std::string> missing;  ///< ids of tasks that have no result yet
  std::vector<std::string> failed;   ///< "task-000003: what it said"
};

/// One row a task, in order: id, status, what the sweep sets, how the task ended, and of each probe the last, least, largest and mean
/// value. Only what is the same in each run: the table is too, whatever the order and the number of workers. Errors: those of ReadManifest;
/// DataLoss (a summary that cannot be read, naming the file).
absl::StatusOr<Collection> CollectTasks(const std::filesystem::path& folder);

}  // namespace palpate::job
