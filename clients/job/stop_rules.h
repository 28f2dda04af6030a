#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "palpate/v1/job.pb.h"
#include "sim/probe/probe_set.h"
#include "sim/scene/description.h"

namespace palpate::job {

/// Why a job is over.
struct StopReason {
  std::string kind;  ///< "duration", "condition", "equilibrium", "policy", "failure"
  std::string detail;
};

/// Steps in an interval: at least one.
uint64_t StepsIn(double interval_s, double dt_s);

/// When a job is over. It counts for how long conditions have held.
class StopRules {
 public:
  /// Precondition: ValidateJob. Errors: those of the probes, naming the condition.
  static absl::StatusOr<StopRules> Make(const v1::JobStop& stop, const sim::SceneDescription& scene);

  /// To be asked once for each frame, in order.
  std::optional<StopReason> Look(const sim::Frame& frame, const sim::World* world);
  uint64_t last_step() const { return last_step_; }

  /// For how many frames each rule has held.
  std::vector<uint64_t> held() const { return held_; }
  void set_held(std::vector<uint64_t> held) { held_ = std::move(held); }
  size_t rule_count() const { return held_.size(); }

 private:
  bool Holds(size_t rule, double time_s, double start_s, double hold_s, bool is_true);

  v1::JobStop stop_;
  double dt_s_ = 0;
  uint64_t last_step_ = 0;
  sim::ProbeSet probes_;  // one column a condition
  std::vector<double> values_;
  std::vector<uint64_t> held_;
};

}  // namespace palpate::job
