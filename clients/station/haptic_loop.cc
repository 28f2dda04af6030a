#include "clients/station/haptic_loop.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "clients/station/rotation.h"

namespace palpate::station {
namespace {

using Eigen::Quaterniond;
using Eigen::Vector3d;

SafetyLimits AtRate(SafetyLimits limits, double rate_hz) {
  limits.tick_s = 1 / rate_hz;
  return limits;
}

sim::BlendLimits BlendLimitsOf(const LoopOptions& options) {
  return {.force_step_n = options.model_force_rate_n_per_s / options.rate_hz,
          .torque_step_n_m = options.model_torque_rate_n_m_per_s / options.rate_hz};
}

}  // namespace

HapticLoop::HapticLoop(HapticDevice* device, const LoopOptions& options)
    : device_(device), options_(options), safety_(AtRate(options.limits, options.rate_hz)), blend_(BlendLimitsOf(options)) {}

void HapticLoop::Attach(const sim::RigidPose& tool_pose) noexcept {
  ++link_to_send_.attachment;
  link_to_send_.attached = true;
  link_to_send_.tool_pose = tool_pose;
  links_.Write(link_to_send_);
}

void HapticLoop::Detach() noexcept {
  link_to_send_.attached = false;
  links_.Write(link_to_send_);
}

void HapticLoop::PublishModel(int64_t now_us) noexcept {
  Arrival& arrival = models_.back();
  arrival.attachment = link_to_send_.attachment;
  arrival.arrived_us = now_us;
  models_.Publish();
}

bool HapticLoop::NextPose(PoseSample* sample) noexcept {
  if (!poses_.Update()) return false;
  *sample = poses_.front();
  return true;
}

void HapticLoop::TakeLink(const DeviceState& state, double now_s) noexcept {
  if (!links_.Update()) return;
  const Link& link = links_.front();
  const bool is_new = link.attached && link.attachment != link_.attachment;
  if (!link.attached || is_new) {
    blend_.Clear();
    has_model_ = false;
  }
  if (is_new) {
    safety_.Restart();
    device_at_attach_ = state.pose;
    attached_at_s_ = now_s;
  }
  if (link.attached != link_.attached) device_->SetEngaged(link.attached);
  link_ = link;
}

sim::RigidPose HapticLoop::ToWorld(const sim::RigidPose& device_pose, double now_s) const noexcept {
  const Placement& placement = options_.placement;
  const Quaterniond& R_WD = placement.rotation;
  sim::RigidPose pose;
  if (!placement.origin_m) {
    pose.position_m = link_.tool_pose.position_m + R_WD * (placement.scale * (device_pose.position_m - device_at_attach_.position_m));
    pose.rotation =
        (R_WD * device_pose.rotation * device_at_attach_.rotation.conjugate() * R_WD.conjugate() * link_.tool_pose.rotation).normalized();
    return pose;
  }
  pose.position_m = *placement.origin_m + R_WD * (placement.scale * device_pose.position_m);
  pose.rotation = (R_WD * device_pose.rotation).normalized();
  const double share = options_.align_time_s > 0 ? (now_s - attached_at_s_) / options_.align_time_s : 1;
  if (share < 1) {
    const double s = std::max(share, 0.0);
    pose.position_m = s * pose.position_m + (1 - s) * link_.tool_pose.position_m;
    pose.rotation = link_.tool_pose.rotation.slerp(s, pose.rotation).normalized();
  }
  return pose;
}

void HapticLoop::UpdateVelocity(const DeviceState& state, double dt_s) noexcept {
  if (state.has_velocity) {
    velocity_D_ = state.velocity;
    return;
  }
  if (!has_last_ || !(dt_s > 0)) {
    velocity_D_ = sim::RigidVelocity{};
    return;
  }
  const double share = dt_s / (options_.velocity_filter_s + dt_s);
  velocity_D_.linear_m_per_s += share * ((state.pose.position_m - last_device_pose_.position_m) / dt_s - velocity_D_.linear_m_per_s);
  velocity_D_.angular_rad_per_s +=
      share * (RotationBetween(last_device_pose_.rotation, state.pose.rotation) / dt_s - velocity_D_.angular_rad_per_s);
}

DeviceResult HapticLoop::Tick(int64_t now_us) noexcept {
  if (!has_last_) first_us_ = now_us;
  const double now_s = static_cast<double>(now_us - first_us_) * 1e-6;
  // Two ticks within a microsecond, after a missed one, still have a time between them.
  const double dt_s = has_last_ ? static_cast<double>(std::max<int64_t>(now_us - last_us_, 1)) * 1e-6 : 1 / options_.rate_hz;

  DeviceState state;
  const DeviceResult read = device_->Read(now_s, &state);
  if (read != DeviceResult::kOk) return read;
  // A pose that is not finite must reach neither server nor models; the safety chain then sees it and lets the force go.
  const bool finite = state.pose.position_m.allFinite() && state.pose.rotation.coeffs().allFinite() &&
                      state.velocity.linear_m_per_s.allFinite() && state.velocity.angular_rad_per_s.allFinite();
  SafetyInput input;
  input.dt_s = dt_s;
  if (finite) {
    TakeLink(state, now_s);
    UpdateVelocity(state, dt_s);
    input.position_m = state.pose.position_m;
    input.rotation = state.pose.rotation;
    input.velocity = velocity_D_;
    last_device_pose_ = state.pose;
  } else {
    input.position_m.setConstant(std::numeric_limits<double>::quiet_NaN());
  }

  if (models_.Update()) {
    const Arrival& arrival = models_.front();
    if (link_.attached && arrival.attachment == link_.attachment) {
      blend_.Push(arrival.model, now_s);
      has_model_ = true;
      // Until a pose has made the round trip the age runs from the arrival.
      model_time_us_ = arrival.model.station_time_us > 0 ? std::min(arrival.model.station_time_us, arrival.arrived_us) : arrival.arrived_us;
      model_arrived_us_ = arrival.arrived_us;
      AddRelaxed(statistics_.models_taken, uint64_t{1});
    }
  }
  if (has_model_) {
    // A late network is no silence: the newest model is evaluated where the hand is now. But when only old poses are answered, ours are
    // lost.
    const double age_s = std::max(0.0, static_cast<double>(now_us - model_time_us_) * 1e-6);
    const double quiet_s = std::max(0.0, static_cast<double>(now_us - model_arrived_us_) * 1e-6);
    input.silence_s = std::max(quiet_s, age_s - options_.max_round_trip_s);
    input.model_period_s = blend_.period_s();
    statistics_.model_age_ms.Add(age_s * 1e3);
    if (quiet_s > statistics_.silence_max_s.load(std::memory_order_relaxed)) {
      statistics_.silence_max_s.store(quiet_s, std::memory_order_relaxed);
    }
  }

  if (link_.attached && finite) {
    const Quaterniond& R_WD = options_.placement.rotation;
    PoseSample& sample = poses_.back();
    sample.sequence = ++sequence_;
    sample.station_time_us = now_us;
    sample.pose = ToWorld(state.pose, now_s);
    sim::RigidVelocity velocity_W;
    velocity_W.linear_m_per_s = R_WD * (options_.placement.scale * velocity_D_.linear_m_per_s);
    velocity_W.angular_rad_per_s = R_WD * velocity_D_.angular_rad_per_s;
    sample.velocity_m_per_s = velocity_W.linear_m_per_s;
    sample.buttons = state.buttons;
    sample.has_grip = state.has_grip && std::isfinite(state.grip);
    sample.grip = sample.has_grip ? state.grip : 0;
    const sim::RigidPose pose_W = sample.pose;
    poses_.Publish();

    if (has_model_) {
      const sim::ContactForce contact = blend_.Evaluate(pose_W, velocity_W, now_s);
      const Quaterniond R_DW = R_WD.conjugate();
      input.wanted.force_n = R_DW * contact.force_n;
      // A metre of the device is `scale` metres of the world: so force times way and torque times angle are the same work.
      input.wanted.torque_n_m = R_DW * contact.torque_n_m / options_.placement.scale;
      input.elastic_energy_j = contact.elastic_energy_j / options_.placement.scale;
      input.model_energy_j = contact.model_energy_j / options_.placement.scale;
      const sim::LocalModel& newest = *blend_.newest();
      if (newest.validity_radius_m > 0 && (pose_W.position_m - newest.pose_at_build.position_m).norm() > newest.validity_radius_m) {
        AddRelaxed(statistics_.outside_validity, uint64_t{1});
      }
    }
  }

  const DeviceForce force = safety_.Apply(input);
  const DeviceResult written = device_->Write(force);
  const double force_n = force.force_n.norm();
  statistics_.force_now_n.store(force_n, std::memory_order_relaxed);
  if (force_n > 0) {
    AddRelaxed(statistics_.contact_cycles, uint64_t{1});
    AddRelaxed(statistics_.force_sum_n, force_n);
    if (force_n > statistics_.force_max_n.load(std::memory_order_relaxed))
      statistics_.force_max_n.store(force_n, std::memory_order_relaxed);
  }
  AddRelaxed(statistics_.cycles, uint64_t{1});
  has_last_ = true;
  last_us_ = now_us;
  return written;
}

bool HapticLoop::Release() noexcept {
  DeviceForce force = safety_.Release();
  if (++release_ticks_ >= kReleaseTicks) force = DeviceForce{};
  if (device_->Write(force) != DeviceResult::kOk) return true;
  return force.force_n.isZero(0) && force.torque_n_m.isZero(0);
}

}  // namespace palpate::station
