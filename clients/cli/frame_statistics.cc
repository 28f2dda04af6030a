#include "clients/cli/frame_statistics.h"

#include <algorithm>
#include <cmath>

namespace palpate::cli {

double Quantile(std::vector<double>& samples, double q) {
  if (samples.empty()) return 0;
  const auto rank = static_cast<size_t>(std::ceil(q * static_cast<double>(samples.size())));
  const auto nth = samples.begin() + static_cast<std::ptrdiff_t>(std::clamp<size_t>(rank, 1, samples.size()) - 1);
  std::nth_element(samples.begin(), nth, samples.end());
  return *nth;
}

nlohmann::ordered_json Percentiles(std::vector<double> samples) {
  return {{"p50", Quantile(samples, 0.5)}, {"p99", Quantile(samples, 0.99)}, {"max", Quantile(samples, 1)}};
}

void FrameStatistics::Add(const v1::Frame& frame, size_t bytes, Clock::time_point now) {
  const std::lock_guard lock(mutex_);
  const bool is_new_step = state_.frames == 0 || frame.step() != state_.last_step;
  if (state_.frames == 0) {
    first_time_ = now;
    state_.first_step = frame.step();
  }
  ++state_.frames;
  state_.bytes += bytes;
  state_.dropped = frame.dropped();
  state_.last_step = frame.step();
  state_.span_s = std::chrono::duration<double>(now - first_time_).count();
  state_.failure = frame.failure();
  state_.last = frame;
  for (auto& body : *state_.last.mutable_bodies()) body.clear_positions();
  if (!is_new_step || frame.step() == 0) return;
  step_ms_.push_back(frame.stats().step_ms());
  for (const auto& stage : frame.stats().stages()) {
    auto [entry, added] = stage_ms_.try_emplace(stage.stage());
    if (added) stage_order_.push_back(stage.stage());
    entry->second.push_back(stage.ms());
  }
}

FrameStatistics::Snapshot FrameStatistics::snapshot() const {
  const std::lock_guard lock(mutex_);
  return state_;
}

double FrameStatistics::StepsPerSecond() const {
  const std::lock_guard lock(mutex_);
  if (state_.span_s <= 0 || state_.last_step <= state_.first_step) return 0;
  return static_cast<double>(state_.last_step - state_.first_step) / state_.span_s;
}

nlohmann::ordered_json FrameStatistics::StepTimes() const {
  const std::lock_guard lock(mutex_);
  nlohmann::ordered_json times = {{"samples", step_ms_.size()}};
  times.update(Percentiles(step_ms_));
  auto& stages = times["stages"] = nlohmann::ordered_json::object();
  for (const auto& name : stage_order_) stages[name] = Percentiles(stage_ms_.at(name));
  return times;
}

}  // namespace palpate::cli
