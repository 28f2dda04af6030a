#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <string>

#include "clients/station/haptic_device.h"
#include "clients/station/plugin_device.h"
#include "sim/instrument/laparoscopic_device.h"

namespace palpate::station {

struct EncoderState {
  sim::LaparoscopicDevice::Counts counts{};
  uint32_t buttons = 0;
  bool has_grip = false;
  double grip = 0;  ///< as DeviceState
};

/// What a laparoscopic device is below its kinematics. Rules of calls as of HapticDevice.
class LaparoscopicHardware {
 public:
  virtual ~LaparoscopicHardware() = default;
  virtual std::string name() const = 0;
  virtual DeviceResult Read(double now_s, EncoderState* state) noexcept = 0;
  /// Voltages of tilt about y, tilt about x, insertion.
  virtual DeviceResult Write(const std::array<double, 3>& motor_v) noexcept = 0;
  virtual void SetEngaged(bool /*engaged*/) noexcept {}
  virtual const char* error() const noexcept = 0;
};

/// A mechanism without hardware: the hand, another device, holds the tip of the tool, whose joints, encoders and motors are computed. The
/// hand's origin lies where the tip is at `start_m` of insertion. Beyond the stops of the mechanism a spring pushes the hand back.
class SimulatedMechanism final : public LaparoscopicHardware {
 public:
  static constexpr double kStop_n_per_m = 2000;

  SimulatedMechanism(const sim::LaparoscopicDeviceDescription& description, double start_m, std::unique_ptr<HapticDevice> hand)
      : device_(description), start_m_(start_m), hand_(std::move(hand)) {}

  std::string name() const override { return hand_->capabilities().name; }
  DeviceResult Read(double now_s, EncoderState* state) noexcept override;
  DeviceResult Write(const std::array<double, 3>& motor_v) noexcept override;
  void SetEngaged(bool engaged) noexcept override { hand_->SetEngaged(engaged); }
  const char* error() const noexcept override { return hand_->error(); }

 private:
  sim::LaparoscopicDevice device_;
  double start_m_;
  std::unique_ptr<HapticDevice> hand_;
  sim::LaparoscopicDevice::Joints joints_;
  Eigen::Vector3d stop_force_n_ = Eigen::Vector3d::Zero();
};

/// A plug-in that gives its encoders away. Precondition: has_encoders.
class PluginHardware final : public LaparoscopicHardware {
 public:
  explicit PluginHardware(std::unique_ptr<PluginDevice> plugin) : plugin_(std::move(plugin)) {}
  std::string name() const override { return plugin_->capabilities().name; }
  DeviceResult Read(double now_s, EncoderState* state) noexcept override;
  DeviceResult Write(const std::array<double, 3>& motor_v) noexcept override { return plugin_->WriteMotors(motor_v); }
  const char* error() const noexcept override { return plugin_->error(); }

 private:
  std::unique_ptr<PluginDevice> plugin_;
};

/// A laparoscopic device for the station: counts in, pose of the tip out; force at the tip in, voltages out. D is the frame of
/// sim::LaparoscopicDevice: its origin the fixed point, +z out of the patient. Three forces and no torque; the rotation follows the shaft
/// and its roll. A force beyond the motors is scaled as a whole and counted.
class LaparoscopicStationDevice final : public HapticDevice {
 public:
  /// Parses "KEY=VALUE,...,inner=SPEC". Keys: start (of the simulated mechanism: insertion at which the hand begins, m, within the range of
  /// insertion, default 0.02), stiffness (rendered stably at 1 kHz, N/m, [1, 1e5], default 1000), damping (N s/m, [0, 1e3], default 5).
  /// SPEC: plugin:LIBRARY[,OPTIONS] with encoders, or any other device, which then is the hand of a simulated mechanism; default sim.
  /// Errors: InvalidArgument naming key, value and range; FailedPrecondition (a plug-in without encoders); those of SPEC.
  static absl::StatusOr<std::unique_ptr<LaparoscopicStationDevice>> Open(const std::string& spec);

  LaparoscopicStationDevice(const sim::LaparoscopicDeviceDescription& description, double stiffness_n_per_m, double damping_n_s_per_m,
                            std::unique_ptr<LaparoscopicHardware> hardware);

  const DeviceCapabilities& capabilities() const override { return capabilities_; }
  DeviceResult Read(double now_s, DeviceState* state) noexcept override;
  DeviceResult Write(const DeviceForce& force) noexcept override;
  void SetEngaged(bool engaged) noexcept override { hardware_->SetEngaged(engaged); }
  uint64_t limited_ticks() const noexcept override { return limited_ticks_.load(std::memory_order_relaxed); }
  const char* error() const noexcept override { return hardware_->error(); }

 private:
  sim::LaparoscopicDevice device_;
  std::unique_ptr<LaparoscopicHardware> hardware_;
  DeviceCapabilities capabilities_;
  sim::LaparoscopicDevice::Joints joints_;  // of the newest Read
  std::atomic<uint64_t> limited_ticks_{0};
};

}  // namespace palpate::station
