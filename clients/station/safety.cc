#include "clients/station/safety.h"

#include <algorithm>
#include <cmath>

#include "clients/station/histogram.h"

namespace palpate::station {
namespace {

using Eigen::Vector3d;

constexpr double kLeastScale = 1e-3;
constexpr double kFreeTime_s = 0.02;  // so long without force counts as free space

/// Shortens v to `limit`. True if it was longer.
bool Shorten(Vector3d& v, double limit) noexcept {
  const double norm = v.norm();
  if (norm <= limit) return false;
  v *= limit / norm;
  return true;
}

}  // namespace

SafetyLimits LimitsOf(const DeviceCapabilities& capabilities) {
  SafetyLimits limits;
  limits.peak_force_n = capabilities.peak_force_n;
  limits.peak_torque_n_m = capabilities.degrees_of_freedom == 6 ? capabilities.peak_torque_n_m : 0;
  limits.force_slew_n_per_s = capabilities.force_slew_n_per_s;
  limits.torque_slew_n_m_per_s = limits.peak_torque_n_m / 0.01;
  limits.max_damping_n_s_per_m = capabilities.max_damping_n_s_per_m;
  return limits;
}

DeviceForce SafetyChain::Apply(const SafetyInput& input) noexcept {
  DeviceForce force = input.wanted;
  Vector3d position_m = input.position_m;
  sim::RigidVelocity velocity = input.velocity;
  double dt_s = input.dt_s;

  if (!force.force_n.allFinite() || !force.torque_n_m.allFinite() || !position_m.allFinite() || !velocity.linear_m_per_s.allFinite() ||
      !velocity.angular_rad_per_s.allFinite() || !(dt_s > 0) || !std::isfinite(dt_s)) {
    AddRelaxed(counters_.nan_ticks, uint64_t{1});
    force = DeviceForce{};
    position_m = last_position_m_;
    velocity = sim::RigidVelocity{};
    if (!(dt_s > 0) || !std::isfinite(dt_s)) dt_s = 0;
  }

  // What the last force did while it was held. The torque's share uses the newest angular velocity.
  if (has_last_) energy_j_ -= last_.force_n.dot(position_m - last_position_m_) + last_.torque_n_m.dot(velocity.angular_rad_per_s) * dt_s;
  if (energy_j_ < counters_.min_energy_j.load(std::memory_order_relaxed)) {
    counters_.min_energy_j.store(energy_j_, std::memory_order_relaxed);
  }

  const bool stale = !(input.model_age_s <= limits_.max_model_age_s);  // also what is not a number
  if (stale) {
    double scale = 0;
    if (std::isfinite(input.model_age_s)) scale = std::exp((limits_.max_model_age_s - input.model_age_s) / limits_.age_decay_time_s);
    if (scale < kLeastScale) scale = 0;
    force.force_n *= scale;
    force.torque_n_m *= scale;
    if (std::isfinite(input.model_age_s)) AddRelaxed(counters_.stale_ticks, uint64_t{1});
    if (!stale_) AddRelaxed(counters_.stale_events, uint64_t{1});
  }
  stale_ = stale;

  ramp_s_ += dt_s;
  if (ramp_s_ < limits_.ramp_time_s) {
    const double scale = ramp_s_ / limits_.ramp_time_s;
    force.force_n *= scale;
    force.torque_n_m *= scale;
    AddRelaxed(counters_.ramp_ticks, uint64_t{1});
  }

  if (force.force_n.isZero(0) && force.torque_n_m.isZero(0)) {
    free_s_ += dt_s;
    if (free_s_ >= kFreeTime_s) energy_j_ = std::min(energy_j_, 0.0);
  } else {
    free_s_ = 0;
    const double speed_sq = velocity.linear_m_per_s.squaredNorm();
    const double expected_j =
        energy_j_ - (force.force_n.dot(velocity.linear_m_per_s) + force.torque_n_m.dot(velocity.angular_rad_per_s)) * dt_s;
    const double deficit_j = -limits_.energy_allowance_j - expected_j;
    if (limits_.passivity && deficit_j > 0 && speed_sq > 1e-12 && dt_s > 0) {
      const Vector3d& v = velocity.linear_m_per_s;
      const double driving_n_m_per_s = force.force_n.dot(v);
      if (driving_n_m_per_s > 0) {
        const double kept = limits_.energy_allowance_j > 0 ? std::max(0.0, 1 - deficit_j / limits_.energy_allowance_j) : 0;
        force.force_n -= (1 - kept) * driving_n_m_per_s / speed_sq * v;
      }
      force.force_n -= std::min(deficit_j / (speed_sq * dt_s), limits_.max_damping_n_s_per_m) * v;
      AddRelaxed(counters_.passivity_ticks, uint64_t{1});
    }
  }

  bool limited = Shorten(force.force_n, limits_.peak_force_n);
  limited |= Shorten(force.torque_n_m, limits_.peak_torque_n_m) && limits_.peak_torque_n_m > 0;
  if (limited) AddRelaxed(counters_.force_limited_ticks, uint64_t{1});

  Vector3d force_change_n = force.force_n - last_.force_n;
  Vector3d torque_change_n_m = force.torque_n_m - last_.torque_n_m;
  bool slew = Shorten(force_change_n, limits_.force_slew_n_per_s * dt_s);
  slew |= Shorten(torque_change_n_m, limits_.torque_slew_n_m_per_s * dt_s);
  if (slew) {
    AddRelaxed(counters_.slew_limited_ticks, uint64_t{1});
    force.force_n = last_.force_n + force_change_n;
    force.torque_n_m = last_.torque_n_m + torque_change_n_m;
  }

  last_ = force;
  last_position_m_ = position_m;
  has_last_ = true;
  return force;
}

}  // namespace palpate::station
