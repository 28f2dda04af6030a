#include "clients/station/laparoscopic_station_device.h"

#include <algorithm>
#include <utility>
#include <vector>

#include <Eigen/Geometry>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace palpate::station {
namespace {

using Eigen::Vector3d;

constexpr double kFullForceTime_s = 0.01;  // ours: how fast the motors take their full force up

absl::StatusOr<std::unique_ptr<LaparoscopicHardware>> OpenHardware(const sim::LaparoscopicDeviceDescription& description, double start_m,
                                                                   const std::string& inner) {
  const std::string plugin = "plugin:";
  if (absl::StartsWith(inner, "lie")) return absl::InvalidArgumentError("device lie: inner must not be a laparoscopic device itself");
  if (!absl::StartsWith(inner, plugin)) {
    absl::StatusOr<std::unique_ptr<HapticDevice>> hand = MakeDevice(inner);
    if (!hand.ok()) return hand.status();
    return std::make_unique<SimulatedMechanism>(description, start_m, *std::move(hand));
  }
  const std::string rest = inner.substr(plugin.size());
  const size_t comma = rest.find(',');
  if (rest.empty() || comma == 0) return absl::InvalidArgumentError("device plugin: no library; give plugin:LIBRARY[,OPTIONS]");
  const std::string library = rest.substr(0, comma);
  absl::StatusOr<std::unique_ptr<PluginDevice>> device =
      PluginDevice::Open(library, comma == std::string::npos ? "" : rest.substr(comma + 1));
  if (!device.ok()) return device.status();
  if (!(*device)->has_encoders()) {
    return absl::FailedPreconditionError(
        absl::StrCat("device lie: plug-in '", library, "' has no read_encoders and write_motors; use it as --device plugin:", library));
  }
  return std::make_unique<PluginHardware>(*std::move(device));
}

}  // namespace

DeviceResult SimulatedMechanism::Read(double now_s, EncoderState* state) noexcept {
  DeviceState hand;
  const DeviceResult result = hand_->Read(now_s, &hand);
  if (result != DeviceResult::kOk) return result;
  const double rest_m = device_.description().rest_length_m;
  const Vector3d tip_m = hand.pose.position_m - Vector3d(0, 0, rest_m + start_m_);
  // The tip stays on the inner side of the fixed point; what pulls it out meets the stop.
  Vector3d inside_m = tip_m;
  inside_m.z() = std::min(inside_m.z(), -0.5 * rest_m);
  sim::RigidPose pose;
  pose.position_m = inside_m;
  pose.rotation = (Eigen::Quaterniond::FromTwoVectors(hand.pose.rotation * Vector3d::UnitZ(), -inside_m) * hand.pose.rotation).normalized();
  joints_ = device_.BetweenStops(device_.JointsOf(pose));
  stop_force_n_ = kStop_n_per_m * (device_.PoseOf(joints_).position_m - tip_m);
  // Off the stops nothing but rounding is left.
  if (stop_force_n_.norm() < 1e-9 * kStop_n_per_m) stop_force_n_.setZero();
  *state = EncoderState{.counts = device_.CountsOf(joints_), .buttons = hand.buttons, .has_grip = hand.has_grip, .grip = hand.grip};
  return DeviceResult::kOk;
}

DeviceResult SimulatedMechanism::Write(const std::array<double, 3>& motor_v) noexcept {
  std::array<double, 3> amplified_v{};
  const double max_v = device_.description().max_motor_v;
  for (size_t i = 0; i < 3; ++i) amplified_v[i] = std::clamp(motor_v[i], -max_v, max_v);
  return hand_->Write({.force_n = device_.ForceOf(joints_, amplified_v) + stop_force_n_});
}

DeviceResult PluginHardware::Read(double now_s, EncoderState* state) noexcept {
  PalpateDeviceEncoders raw{};
  const DeviceResult result = plugin_->ReadEncoders(now_s, &raw);
  if (result != DeviceResult::kOk) return result;
  for (size_t i = 0; i < 4; ++i) state->counts[i] = raw.counts[i];
  state->buttons = raw.buttons;
  state->has_grip = raw.has_grip != 0;
  state->grip = raw.grip;
  return DeviceResult::kOk;
}

absl::StatusOr<std::unique_ptr<LaparoscopicStationDevice>> LaparoscopicStationDevice::Open(const std::string& spec) {
  const sim::LaparoscopicDeviceDescription description;
  std::string inner = "sim";
  std::string options = spec;
  const std::string key = "inner=";
  const size_t at = absl::StartsWith(spec, key) ? 0 : spec.find("," + key);
  if (at != std::string::npos) {
    inner = spec.substr(at + key.size() + (at == 0 ? 0 : 1));
    options = spec.substr(0, at);
  }
  struct Key {
    const char* name;
    double value, min, max;
  };
  Key keys[] = {{"start", 0.02, 0, description.range[2]}, {"stiffness", 1000, 1, 1e5}, {"damping", 5, 0, 1e3}};
  const std::vector<std::string> items = absl::StrSplit(options, ',', absl::SkipEmpty());
  for (const std::string& item : items) {
    const std::pair<std::string, std::string> parts = absl::StrSplit(item, absl::MaxSplits('=', 1));
    const auto known = std::find_if(std::begin(keys), std::end(keys), [&](const Key& k) { return parts.first == k.name; });
    if (known == std::end(keys)) {
      return absl::InvalidArgumentError(
          absl::StrCat("device lie: unknown key '", parts.first, "'; known: start, stiffness, damping, and inner, which comes last"));
    }
    if (!absl::SimpleAtod(parts.second, &known->value) || !(known->value >= known->min && known->value <= known->max)) {
      return absl::InvalidArgumentError(
          absl::StrCat("device lie: ", parts.first, " = '", parts.second, "' is not a number in [", known->min, ", ", known->max, "]"));
    }
  }
  absl::StatusOr<std::unique_ptr<LaparoscopicHardware>> hardware = OpenHardware(description, keys[0].value, inner);
  if (!hardware.ok()) return hardware.status();
  return std::make_unique<LaparoscopicStationDevice>(description, keys[1].value, keys[2].value, *std::move(hardware));
}

LaparoscopicStationDevice::LaparoscopicStationDevice(const sim::LaparoscopicDeviceDescription& description, double stiffness_n_per_m,
                                                     double damping_n_s_per_m, std::unique_ptr<LaparoscopicHardware> hardware)
    : device_(description), hardware_(std::move(hardware)) {
  capabilities_.name = absl::StrCat("laparoscopic device: ", hardware_->name());
  capabilities_.degrees_of_freedom = 6;
  capabilities_.peak_force_n = description.max_insertion_force_n();
  capabilities_.max_stiffness_n_per_m = stiffness_n_per_m;
  capabilities_.max_damping_n_s_per_m = damping_n_s_per_m;
  capabilities_.workspace_radius_m = description.range[2];
  capabilities_.force_slew_n_per_s = description.max_insertion_force_n() / kFullForceTime_s;
}

DeviceResult LaparoscopicStationDevice::Read(double now_s, DeviceState* state) noexcept {
  EncoderState encoders;
  const DeviceResult result = hardware_->Read(now_s, &encoders);
  if (result != DeviceResult::kOk) return result;
  joints_ = device_.JointsOf(encoders.counts);
  *state = DeviceState{};
  state->pose = device_.PoseOf(joints_);
  state->buttons = encoders.buttons;
  state->has_grip = encoders.has_grip;
  state->grip = encoders.grip;
  return DeviceResult::kOk;
}

DeviceResult LaparoscopicStationDevice::Write(const DeviceForce& force) noexcept {
  const sim::LaparoscopicDevice::Drive drive = device_.DriveOf(joints_, force.force_n);
  if (drive.is_limited) limited_ticks_.fetch_add(1, std::memory_order_relaxed);
  return hardware_->Write(drive.motor_v);
}

}  // namespace palpate::station
