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

bool IsFinite(const DeviceState& state) {
  return state.pose.position_m.allFinite() && state.pose.rotation.coeffs().allFinite() && state.velocity.linear_m_per_s.allFinite() &&
         state.velocity.angular_rad_per_s.allFinite();
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
  const TickTime time = TimeOf(now_us);
  DeviceState state;
  const DeviceResult read = device_->Read(time.now_s, &state);
  if (read != DeviceResult::kOk) return read;
  SafetyInput input;
  input.dt_s = time.dt_s;
  const bool is_finite = IsFinite(state);
  if (is_finite) {
    TakeState(state, time, &input);
  } else {
    // A pose that is not finite must reach neither server nor models; the safety chain then sees it and lets the force go.
    input.position_m.setConstant(std::numeric_limits<double>::quiet_NaN());
  }
  TakeModel(time.now_s);
  if (has_model_) NoteAge(now_us, &input);
  if (link_.attached && is_finite) {
    const ToolMotion motion = {.pose = ToWorld(state.pose, time.now_s), .velocity = VelocityInWorld()};
    PublishPose(state, motion, now_us);
    if (has_model_) EvaluateModels(motion, time.now_s, &input);
  }
  const DeviceForce force = safety_.Apply(input);
  const DeviceResult written = device_->Write(force);
  CountForce(force.force_n.norm());
  has_last_ = true;
  last_us_ = now_us;
  return written;
}

HapticLoop::TickTime HapticLoop::TimeOf(int64_t now_us) noexcept {
  if (!has_last_) first_us_ = now_us;
  // Two ticks within a microsecond, after a missed one, still have a time between them.
  return {.now_s = static_cast<double>(now_us - first_us_) * 1e-6,
          .dt_s = has_last_ ? static_cast<double>(std::max<int64_t>(now_us - last_us_, 1)) * 1e-6 : 1 / options_.rate_hz};
}

void HapticLoop::TakeState(const DeviceState& state, const TickTime& time, SafetyInput* input) noexcept {
  TakeLink(state, time.now_s);
  UpdateVelocity(state, time.dt_s);
  input->position_m = state.pose.position_m;
  input->rotation = state.pose.rotation;
  input->velocity = velocity_D_;
  last_device_pose_ = state.pose;
}

void HapticLoop::TakeModel(double now_s) noexcept {
  if (!models_.Update()) return;
  const Arrival& arrival = models_.front();
  if (!link_.attached || arrival.attachment != link_.attachment) return;
  blend_.Push(arrival.model, now_s);
  has_model_ = true;
  // Until a pose has made the round trip the age runs from the arrival.
  model_time_us_ = arrival.model.station_time_us > 0 ? std::min(arrival.model.station_time_us, arrival.arrived_us) : arrival.arrived_us;
  model_arrived_us_ = arrival.arrived_us;
  AddRelaxed(statistics_.models_taken, uint64_t{1});
}

void HapticLoop::NoteAge(int64_t now_us, SafetyInput* input) noexcept {
  // A late network is no silence: the newest model is evaluated where the hand is now. But when only old poses are answered, ours are lost.
  const double age_s = std::max(0.0, static_cast<double>(now_us - model_time_us_) * 1e-6);
  const double quiet_s = std::max(0.0, static_cast<double>(now_us - model_arrived_us_) * 1e-6);
  input->silence_s = std::max(quiet_s, age_s - options_.max_round_trip_s);
  input->model_period_s = blend_.period_s();
  statistics_.model_age_ms.Add(age_s * 1e3);
  RaiseRelaxed(statistics_.silence_max_s, quiet_s);
}

sim::RigidVelocity HapticLoop::VelocityInWorld() const noexcept {
  const Quaterniond& R_WD = options_.placement.rotation;
  sim::RigidVelocity velocity_W;
  velocity_W.linear_m_per_s = R_WD * (options_.placement.scale * velocity_D_.linear_m_per_s);
  velocity_W.angular_rad_per_s = R_WD * velocity_D_.angular_rad_per_s;
  return velocity_W;
}

void HapticLoop::PublishPose(const DeviceState& state, const ToolMotion& motion, int64_t now_us) noexcept {
  PoseSample& sample = poses_.back();
  sample.sequence = ++sequence_;
  sample.station_time_us = now_us;
  sample.pose = motion.pose;
  sample.velocity_m_per_s = motion.velocity.linear_m_per_s;
  sample.buttons = state.buttons;
  sample.has_grip = state.has_grip && std::isfinite(state.grip);
  sample.grip = sample.has_grip ? state.grip : 0;
  poses_.Publish();
}

void HapticLoop::EvaluateModels(const ToolMotion& motion, double now_s, SafetyInput* input) noexcept {
  const Placement& placement = options_.placement;
  const sim::ContactForce contact = blend_.Evaluate(motion.pose, motion.velocity, now_s);
  const Quaterniond R_DW = placement.rotation.conjugate();
  input->wanted.force_n = R_DW * contact.force_n;
  // A metre of the device is `scale` metres of the world: so force times way and torque times angle are the same work.
  input->wanted.torque_n_m = R_DW * contact.torque_n_m / placement.scale;
  input->elastic_energy_j = contact.elastic_energy_j / placement.scale;
  input->model_energy_j = contact.model_energy_j / placement.scale;
  const sim::LocalModel& newest = *blend_.newest();
  if (newest.validity_radius_m > 0 && (motion.pose.position_m - newest.pose_at_build.position_m).norm() > newest.validity_radius_m) {
    AddRelaxed(statistics_.outside_validity, uint64_t{1});
  }
}

void HapticLoop::CountForce(double force_n) noexcept {
  statistics_.force_now_n.store(force_n, std::memory_order_relaxed);
  if (force_n > 0) {
    AddRelaxed(statistics_.contact_cycles, uint64_t{1});
    AddRelaxed(statistics_.force_sum_n, force_n);
    RaiseRelaxed(statistics_.force_max_n, force_n);
  }
  AddRelaxed(statistics_.cycles, uint64_t{1});
}

bool HapticLoop::Release() noexcept {
  DeviceForce force = safety_.Release();
  if (++release_ticks_ >= kReleaseTicks) force = DeviceForce{};
  if (device_->Write(force) != DeviceResult::kOk) return true;
  return force.force_n.isZero(0) && force.torque_n_m.isZero(0);
}

}  // namespace palpate::station
