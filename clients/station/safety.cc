#include "clients/station/safety.h"

#include <algorithm>
#include <cmath>

#include "clients/station/histogram.h"
#include "clients/station/rotation.h"

namespace palpate::station {
namespace {

using Eigen::Vector3d;

// A scene's models are missing only when several in a row did not come; a stop of the scene is not waited for without end.
constexpr double kSilencePeriods = 4;
constexpr double kLongestSilence_s = 3;
// Fastest rise of the gain. In contact: even the peak force of a strong device then changes by few hundredths of a newton a tick.
constexpr double kContactRise_per_s = 4;
constexpr double kFreeRise_per_s = 10;
// How fast the power of a rise is fitted to what the hand really gets of it: up and down.
constexpr double kLiftGrowthTime_s = 0.7;
constexpr double kLiftShrinkTime_s = 0.1;
constexpr double kMostLift = 50;  // times the power allowance
// A contact may give back so much more than its springs hold by the models' slopes.
constexpr double kSlopeTolerance = 2;
// Below this share of the allowance the gain falls; above it it may rise.
constexpr double kFallShare = 0.5;

/// Shortens v to `limit`. True if it was longer.
bool Shorten(Vector3d& v, double limit) noexcept {
  const double norm = v.norm();
  if (norm <= limit) return false;
  v *= limit / norm;
  return true;
}

bool IsUsable(const SafetyInput& input) noexcept {
  return input.wanted.force_n.allFinite() && input.wanted.torque_n_m.allFinite() && std::isfinite(input.elastic_energy_j) &&
         std::isfinite(input.model_energy_j) && input.position_m.allFinite() && input.rotation.coeffs().allFinite() &&
         input.velocity.linear_m_per_s.allFinite() && input.velocity.angular_rad_per_s.allFinite() && input.dt_s > 0 &&
         std::isfinite(input.dt_s);
}

}  // namespace

SafetyLimits LimitsOf(const DeviceCapabilities& capabilities) {
  SafetyLimits limits;
  limits.peak_force_n = capabilities.peak_force_n;
  limits.peak_torque_n_m = capabilities.degrees_of_freedom == 6 ? capabilities.peak_torque_n_m : 0;
  limits.force_slew_n_per_s = capabilities.force_slew_n_per_s;
  limits.torque_slew_n_m_per_s = limits.peak_torque_n_m / 0.01;
  return limits;
}

double SafetyChain::Freshness(const SafetyInput& input) const noexcept {
  const double acts_s = std::max(limits_.max_silence_s, std::min(kSilencePeriods * input.model_period_s, kLongestSilence_s));
  const double u = std::clamp((input.silence_s - acts_s) / limits_.silence_fade_time_s, 0.0, 1.0);
  return 1 - u * u * (3 - 2 * u);
}

void SafetyChain::ObserveWork(const SafetyInput& input) noexcept {
  if (!has_last_) return;
  const double work_j =
      -last_.force_n.dot(input.position_m - last_position_m_) - last_.torque_n_m.dot(RotationBetween(last_rotation_, input.rotation));
  energy_j_ += work_j;
  // A rise of the gain lifts the hand: also that the hand sank in at its own expense is no reason to throw it out again.
  if (is_lifting_) lift_left_j_ = std::max(0.0, lift_left_j_ + work_j);
  const double back_j = limits_.power_allowance_w * std::min(input.dt_s, limits_.tick_s);
  lift_left_j_ = std::min(limits_.energy_allowance_j, lift_left_j_ + back_j);
  // What the hand put in and the springs do not hold is gone: friction, damping. It must not pay for later activity.
  const double kept_j = gain_ * (input.elastic_energy_j - input.model_energy_j - last_elastic_energy_j_);
  if (energy_j_ > 0) energy_j_ -= std::clamp(work_j - kept_j, 0.0, energy_j_);
  if (energy_j_ < counters_.min_energy_j.load(std::memory_order_relaxed)) {
    counters_.min_energy_j.store(energy_j_, std::memory_order_relaxed);
  }
  if (energy_j_ < 0) energy_j_ = std::min(0.0, energy_j_ + back_j);
}

void SafetyChain::UpdateGain(const SafetyInput& input, double target) noexcept {
  const Vector3d& force_n = input.wanted.force_n;
  const Vector3d& torque_n_m = input.wanted.torque_n_m;
  const double tick_s = std::min(input.dt_s, limits_.tick_s);
  const bool is_free = force_n.isZero(0) && torque_n_m.isZero(0);
  double rise = (is_free ? kFreeRise_per_s : kContactRise_per_s) * tick_s;
  double ceiling = 1;
  if (limits_.passivity) {
    // What this tick and the slew on the way down will still take.
    const double power_w = last_.force_n.dot(input.velocity.linear_m_per_s) + last_.torque_n_m.dot(input.velocity.angular_rad_per_s);
    const double delay_s = limits_.tick_s + 0.5 * std::max(last_.force_n.norm() / limits_.force_slew_n_per_s,
                                                           last_.torque_n_m.norm() / std::max(limits_.torque_slew_n_m_per_s, 1e-9));
    const double left_j = limits_.energy_allowance_j + energy_j_ - std::max(0.0, power_w) * delay_s;
    const double fall_j = kFallShare * limits_.energy_allowance_j;
    ceiling = std::clamp(left_j / fall_j, 0.0, 1.0);
    const double spare = std::clamp((std::min(left_j, lift_left_j_) - fall_j) / (limits_.energy_allowance_j - fall_j), 0.0, 1.0);
    if (!is_free) {
      rise = std::min(rise, spare * lift_power_w_ * tick_s / std::max(input.elastic_energy_j, 1e-9));
      // Of what a rise puts into soft springs the hand gets little, of what it puts into stiff ones up to twice as much.
      const double trend = (2 * spare - 1) / (spare > 0.5 ? kLiftGrowthTime_s : kLiftShrinkTime_s);
      lift_power_w_ *= 1 + trend * tick_s;
    }
    is_lifting_ = !is_free && gain_ + rise < std::min(target, ceiling);
    lift_power_w_ = is_lifting_ ? std::clamp(lift_power_w_, limits_.power_allowance_w, kMostLift * limits_.power_allowance_w)
                                : limits_.power_allowance_w;
  }
  const double wanted = std::min(target, ceiling);
  if (!is_free && limits_.passivity && std::min(wanted, gain_ + rise) < target) AddRelaxed(counters_.passivity_ticks, uint64_t{1});
  gain_ = std::min(wanted, gain_ + rise);
  energy_j_ = std::min(energy_j_, kSlopeTolerance * gain_ * input.elastic_energy_j);
}

void SafetyChain::LimitSlew(double dt_s, DeviceForce* force) noexcept {
  Vector3d force_change_n = force->force_n - last_.force_n;
  Vector3d torque_change_n_m = force->torque_n_m - last_.torque_n_m;
  bool limited = Shorten(force_change_n, limits_.force_slew_n_per_s * dt_s);
  limited |= Shorten(torque_change_n_m, limits_.torque_slew_n_m_per_s * dt_s);
  if (!limited) return;
  AddRelaxed(counters_.slew_limited_ticks, uint64_t{1});
  force->force_n = last_.force_n + force_change_n;
  force->torque_n_m = last_.torque_n_m + torque_change_n_m;
}

DeviceForce SafetyChain::Apply(const SafetyInput& given) noexcept {
  SafetyInput input = given;
  if (!IsUsable(given)) {
    AddRelaxed(counters_.nan_ticks, uint64_t{1});
    input = SafetyInput{};
    input.silence_s = given.silence_s;
    input.position_m = last_position_m_;
    input.rotation = last_rotation_;
    input.dt_s = given.dt_s > 0 && std::isfinite(given.dt_s) ? given.dt_s : 0;
  }
  ObserveWork(input);

  const bool has_model = std::isfinite(input.silence_s);
  if (!has_model) input.wanted = DeviceForce{};
  double target = 1;
  const double freshness = has_model ? Freshness(input) : 1;
  const bool stale = freshness < 1;
  if (stale) AddRelaxed(counters_.stale_ticks, uint64_t{1});
  if (stale && !stale_) AddRelaxed(counters_.stale_events, uint64_t{1});
  stale_ = stale;
  target = std::min(target, freshness);
  ramp_s_ += std::min(input.dt_s, limits_.tick_s);
  if (ramp_s_ < limits_.ramp_time_s) {
    target = std::min(target, ramp_s_ / limits_.ramp_time_s);
    AddRelaxed(counters_.ramp_ticks, uint64_t{1});
  }
  UpdateGain(input, target);

  DeviceForce force = input.wanted;
  force.force_n *= gain_;
  force.torque_n_m *= gain_;
  bool limited = Shorten(force.force_n, limits_.peak_force_n);
  limited |= Shorten(force.torque_n_m, limits_.peak_torque_n_m) && limits_.peak_torque_n_m > 0;
  if (limited) AddRelaxed(counters_.force_limited_ticks, uint64_t{1});
  LimitSlew(std::min(input.dt_s, limits_.tick_s), &force);

  last_ = force;
  last_position_m_ = input.position_m;
  last_rotation_ = input.rotation;
  last_elastic_energy_j_ = input.elastic_energy_j;
  has_last_ = true;
  return force;
}

DeviceForce SafetyChain::Release() noexcept {
  DeviceForce force;
  LimitSlew(limits_.tick_s, &force);
  last_ = force;
  return force;
}

}  // namespace palpate::station
