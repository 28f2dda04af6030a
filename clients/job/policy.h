#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "palpate/v1/job.pb.h"
#include "sim/probe/probe_set.h"
#include "sim/scene/description.h"

namespace palpate::job {

inline constexpr uint32_t kPolicyProtocol = 1;         ///< of programs
inline constexpr double kDefaultPolicyTimeout_s = 60;  ///< wall time for one answer

/// What a policy is told at the beginning.
struct PolicySetup {
  std::string job;
  double dt_s = 0;
  double interval_s = 0;
  uint64_t seed = 0;
  std::vector<sim::ProbeColumn> observations;
  std::vector<sim::ToolDescription> tools;
};

/// Decides what tools do. Used by one thread.
class Policy {
 public:
  virtual ~Policy() = default;
  /// Errors: those of the policy, with its own words; InvalidArgument (an answer that is not one), DeadlineExceeded.
  virtual absl::StatusOr<v1::PolicyAnswer> Decide(uint64_t step, double time_s, std::span<const double> observations) = 0;
  /// The job is over.
  virtual void End(const std::string& /*reason*/) {}
};

/// A shared object with the C interface of plugin/palpate_policy.h. Errors, all naming the library: NotFound (cannot be loaded, with the
/// linker's reason), FailedPrecondition (no entry point, other version, incomplete table), InvalidArgument (the policy's own text).
absl::StatusOr<std::unique_ptr<Policy>> OpenPolicyLibrary(const std::filesystem::path& library, const std::string& options,
                                                          PolicySetup setup);

/// A program that gets a line of JSON for each decision on its standard input and answers with a line on its standard output
/// (docs/jobs.md). What it writes on standard error is added to `log_file`, whose end is part of errors. It has its own process group, and
/// dies with the calling thread. Errors: NotFound (no such program), Internal (fork).
absl::StatusOr<std::unique_ptr<Policy>> StartPolicyProgram(const v1::PolicyProgram& program, const std::filesystem::path& folder,
                                                           const std::filesystem::path& log_file, const PolicySetup& setup);

}  // namespace palpate::job
