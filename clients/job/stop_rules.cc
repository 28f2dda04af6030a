#include "clients/job/stop_rules.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "clients/job/job_file.h"
#include "gpu/base/status.h"

namespace palpate::job {
namespace {

/// Times of steps are sums of rounded numbers.
constexpr double kTimeTolerance = 1e-6;

}  // namespace

uint64_t StepsIn(double interval_s, double dt_s) { return static_cast<uint64_t>(std::max(1.0, std::round(interval_s / dt_s))); }

absl::StatusOr<StopRules> StopRules::Make(const v1::JobStop& stop, const sim::SceneDescription& scene) {
  StopRules rules;
  rules.stop_ = stop;
  rules.dt_s_ = scene.dt_s;
  rules.last_step_ = kMaxSteps;
  if (stop.has_duration_s()) rules.last_step_ = std::min(rules.last_step_, StepsIn(stop.duration_s(), scene.dt_s));
  if (stop.has_steps()) rules.last_step_ = std::min(rules.last_step_, stop.steps());
  std::vector<std::string> paths;
  for (const v1::JobCondition& condition : stop.conditions()) paths.push_back(condition.probe());
  auto probes = sim::ProbeSet::Parse(paths, scene);
  if (!probes.ok()) return Annotate(probes.status(), "stop.conditions");
  for (size_t c = 0; c < paths.size(); ++c) {
    const auto alone = sim::ProbeSet::Parse(std::span(&paths[c], 1), scene);
    if (alone.ok() && alone->columns().size() == 1) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("stop.conditions[", c, "].probe: \"", paths[c], "\" has not one column; add a component such as .norm"));
  }
  rules.probes_ = *std::move(probes);
  rules.values_.resize(paths.size());
  rules.held_.resize(paths.size() + (stop.has_equilibrium() ? 1 : 0));
  return rules;
}

bool StopRules::Holds(size_t rule, double time_s, double start_s, double hold_s, bool is_true) {
  const bool counts = is_true && time_s >= start_s - kTimeTolerance * dt_s_;
  held_[rule] = counts ? held_[rule] + 1 : 0;
  return counts && static_cast<double>(held_[rule] - 1) * dt_s_ >= hold_s - kTimeTolerance * dt_s_;
}

std::optional<StopReason> StopRules::Look(const sim::Frame& frame, const sim::World* world) {
  std::optional<StopReason> reason;
  if (!values_.empty()) probes_.Evaluate(frame, values_, world);
  for (int c = 0; c < stop_.conditions_size(); ++c) {
    const v1::JobCondition& condition = stop_.conditions(c);
    const auto at = static_cast<size_t>(c);
    const bool is_above = condition.has_above();
    const double bound = is_above ? condition.above() : condition.below();
    const bool is_true = is_above ? values_[at] > bound : values_[at] < bound;
    // Each is asked, since each counts.
    if (!Holds(at, frame.sim_time_s, condition.start_s(), condition.hold_s(), is_true) || reason) continue;
    reason = StopReason{"condition",
                        condition.name().empty() ? absl::StrCat(condition.probe(), is_above ? " > " : " < ", bound) : condition.name()};
  }
  if (stop_.has_equilibrium()) {
    const v1::JobEquilibrium& rest = stop_.equilibrium();
    // At step 0 nothing has moved yet.
    const bool is_true = frame.step > 0 && (!rest.has_max_speed_m_per_s() || frame.max_speed_m_per_s < rest.max_speed_m_per_s()) &&
                         (!rest.has_kinetic_energy_j() || frame.kinetic_energy_j < rest.kinetic_energy_j());
    const double hold_s = rest.hold_s() > 0 ? rest.hold_s() : 0.1;
    if (Holds(held_.size() - 1, frame.sim_time_s, rest.start_s(), hold_s, is_true) && !reason) reason = StopReason{"equilibrium", ""};
  }
  if (!reason && frame.step >= last_step_) reason = StopReason{"duration", ""};
  return reason;
}

}  // namespace palpate::job
