#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "clients/job/job_file.h"
#include "gpu/runtime/context.h"
#include "sim/probe/probe_set.h"

namespace palpate::job {

struct JobProgress {
  uint64_t step = 0;
  uint64_t last_step = 0;  ///< at which it ends if nothing ends it earlier
  double time_s = 0;
};

struct RunOptions {
  std::filesystem::path folder;                         ///< of the results
  std::shared_ptr<gpu::Context> context;                ///< shared by all jobs of a process
  bool begin_anew = false;                              ///< whatever is in the folder
  std::function<bool()> is_interrupted;                 ///< asked after each step; may be empty
  std::function<void(const JobProgress&)> on_progress;  ///< after each step; may be empty
  std::function<void(const std::string&)> on_note;      ///< what a person should know; may be empty
  std::string command;                                  ///< for provenance
};

enum class RunEnd {
  kEnded,
  kWasDone,      ///< its results were there already
  kInterrupted,  ///< the same call goes on
  kFailed,
};

struct RunOutcome {
  RunEnd end = RunEnd::kEnded;
  std::string reason;    ///< of an end
  absl::Status failure;  ///< kFailed
  uint64_t step = 0;
};

/// What a job will do, without a device.
struct JobPlan {
  uint64_t last_step = 0;  ///< at which it ends if nothing ends it earlier
  std::vector<sim::ProbeColumn> columns;
};

/// Looks at all of a job before it begins: makes the scene's meshes, reads probes, motions and conditions. A policy is not opened. Errors:
/// as RunJob.
absl::StatusOr<JobPlan> PlanJob(const LoadedJob& loaded);

/// Runs a job, or goes on with one that was interrupted, in this thread. In the folder are afterwards summary.json and what the job asks
/// for (docs/jobs.md). Guarantee: whenever and however often it is interrupted, or killed, the results are those of an undisturbed run, bit
/// for bit, on the same device and driver; of summary.json all but its provenance, of the final state all that the scene goes on from.
/// Errors: what is wrong with the job, found before it begins: InvalidArgument, NotFound, ResourceExhausted naming the file and field;
/// FailedPrecondition (another process works in the folder, or it holds another job's results).
absl::StatusOr<RunOutcome> RunJob(const LoadedJob& loaded, const RunOptions& options);

}  // namespace palpate::job
