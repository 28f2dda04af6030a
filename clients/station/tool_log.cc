#include "clients/station/tool_log.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"

namespace palpate::station {

void ToolLog::Attach(const v1::Attached& attached) {
  const std::lock_guard<std::mutex> lock(mutex_);
  dt_s_ = std::isfinite(attached.dt_s()) ? std::max(attached.dt_s(), 0.0) : 0;
  has_model_ = false;
  summary_.doing.clear();
}

void ToolLog::Add(const v1::LocalModel& model) {
  const std::lock_guard<std::mutex> lock(mutex_);
  // Time that does not advance: a first model, or the scene was reset.
  const bool goes_on = has_model_ && model.sim_time_s() > last_time_s_;
  const double time_s = goes_on ? model.sim_time_s() - last_time_s_ : dt_s_;
  summary_.doing.clear();
  const auto add = [&](double* sum_s, const char* name) {
    *sum_s += time_s;
    absl::StrAppend(&summary_.doing, summary_.doing.empty() ? "" : " ", name);
  };
  for (const int activity : model.activities()) {
    if (activity == v1::TOOL_ACTIVITY_TOUCHING) add(&summary_.touching_s, "touching");
    if (activity == v1::TOOL_ACTIVITY_GRASPING) add(&summary_.grasping_s, "grasping");
    if (activity == v1::TOOL_ACTIVITY_CUTTING) add(&summary_.cutting_s, "cutting");
    if (activity == v1::TOOL_ACTIVITY_BLOCKED) add(&summary_.blocked_s, "blocked");
    if (activity == v1::TOOL_ACTIVITY_COMMAND_EXPIRED) add(&summary_.expired_s, "command expired");
  }
  summary_.max_grasp_force_n = std::max(summary_.max_grasp_force_n, model.grasp_force_n());
  // What an earlier station removed is not ours; after a reset the server counts from zero.
  const double before_kg = !has_model_ ? model.removed_mass_kg() : model.removed_mass_kg() < last_removed_kg_ ? 0 : last_removed_kg_;
  summary_.removed_mass_kg += model.removed_mass_kg() - before_kg;
  last_removed_kg_ = model.removed_mass_kg();
  last_time_s_ = model.sim_time_s();
  has_model_ = true;
}

ToolSummary ToolLog::Summary() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return summary_;
}

}  // namespace palpate::station
