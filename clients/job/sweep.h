#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "palpate/v1/job.pb.h"

namespace palpate::job {

inline constexpr uint64_t kMaxTasks = 1'000'000;

/// The tasks of a sweep: which fields change, and what each task has in them. The same file gives the same tasks everywhere.
struct SweepPlan {
  std::vector<std::string> fields;
  struct Task {
    std::vector<google::protobuf::Value> values;  ///< of fields
    uint64_t seed = 0;
  };
  std::vector<Task> tasks;
};

/// Errors: InvalidArgument naming `sweep...` and what is wrong: a field that the job does not have, or that is set twice, a value that the
/// field does not take, a range the wrong way round; ResourceExhausted (more than kMaxTasks).
absl::StatusOr<SweepPlan> PlanSweep(const v1::Job& job, const std::filesystem::path& file);

/// The job of one task: with its values among the overrides, its seed, and without the sweep.
v1::Job JobOfTask(const v1::Job& job, const SweepPlan& plan, size_t task);

/// "task-000012".
std::string TaskId(uint64_t index);

/// "0-3,7" or "all", ascending and without repeats. Errors: InvalidArgument (syntax, a number that is not below `count`).
absl::StatusOr<std::vector<uint32_t>> ParseTaskList(const std::string& text, size_t count);

}  // namespace palpate::job
