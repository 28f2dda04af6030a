#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <Eigen/Core>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "sim/haptics/evaluate.h"
#include "sim/haptics/local_model.h"

namespace palpate::station {

/// What a device can do; limits that the station keeps.
struct DeviceCapabilities {
  std::string name;
  int degrees_of_freedom = 3;        ///< 3: position only; 6: position and rotation
  double peak_force_n = 0;           ///< > 0
  double peak_torque_n_m = 0;        ///< 0 = renders no torque
  double max_stiffness_n_per_m = 0;  ///< that it renders stably at 1 kHz; > 0
  double max_damping_n_s_per_m = 0;  ///< >= 0
  double workspace_radius_m = 0;     ///< > 0
  double force_slew_n_per_s = 0;     ///< fastest change of force; > 0
};

/// Capabilities of well-known devices, to give a simulated hand their limits. nullptr for an unknown name.
const DeviceCapabilities* FindDeviceProfile(std::string_view name);
std::vector<std::string> DeviceProfileNames();

/// OK if every number is finite and in the range stated above; else InvalidArgument naming the first that is not.
absl::Status ValidateCapabilities(const DeviceCapabilities& capabilities);

struct DeviceState {
  sim::RigidPose pose;          ///< X_DT: the tool frame in the device's base frame D, right-handed, z up
  sim::RigidVelocity velocity;  ///< in D
  bool has_velocity = false;    ///< false: the station derives it from positions
  uint32_t buttons = 0;         ///< one bit each
  bool has_grip = false;        ///< the handle opens and closes
  double grip = 0;              ///< 0 = closed to 1 = open
};

/// Force on the hand at the tip and torque about it, in D.
struct DeviceForce {
  Eigen::Vector3d force_n = Eigen::Vector3d::Zero();
  Eigen::Vector3d torque_n_m = Eigen::Vector3d::Zero();
};

enum class DeviceResult {
  kOk,
  kEnded,   ///< a recording is over
  kFailed,  ///< error() says why
};

/// A haptic device. Opened by its factory, closed by its destructor (which leaves it without force). After that only the device loop's
/// thread calls it: Read once per tick, then Write; both must not block, allocate or throw.
class HapticDevice {
 public:
  virtual ~HapticDevice() = default;
  virtual const DeviceCapabilities& capabilities() const = 0;

  /// The state now. `now_s` is the station's clock, never decreasing.
  virtual DeviceResult Read(double now_s, DeviceState* state) noexcept = 0;

  /// The force to render until the next call.
  virtual DeviceResult Write(const DeviceForce& force) noexcept = 0;

  /// Tells whether the device moves a tool: simulated hands rest while it does not.
  virtual void SetEngaged(bool /*engaged*/) noexcept {}

  /// Writes whose force was beyond what the device could render, so that less was. Any thread.
  virtual uint64_t limited_ticks() const noexcept { return 0; }

  /// Why Read or Write failed; "" if they did not.
  virtual const char* error() const noexcept { return ""; }
};

/// Makes a device from SPEC = KIND[:KEY=VALUE[,KEY=VALUE...]]:
///   sim[:script=palpate|sweep|poke|grasp,...]  a simulated hand, see simulated_hand.h for its keys
///   replay:FILE                          the poses of a recording, see recording.h
///   record:FILE,inner=SPEC               writes all that goes to and from the device SPEC into FILE (inner must come last)
///   plugin:LIBRARY[,OPTIONS]             a vendor's device, see plugin/palpate_device.h
///   controller:PATH[,profile=NAME]       another process plays the hand, see controller_device.h
///   lie[:KEY=VALUE,...,inner=SPEC]      a laparoscopic device, see laparoscopic_station_device.h (inner must come last)
/// Errors: InvalidArgument naming the part of SPEC that is wrong and what is allowed; those of the device otherwise.
absl::StatusOr<std::unique_ptr<HapticDevice>> MakeDevice(const std::string& spec);

/// The text that --help shows about SPEC.
std::string DeviceSpecHelp();

}  // namespace palpate::station
