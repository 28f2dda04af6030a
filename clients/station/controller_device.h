#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>

#include "clients/station/haptic_device.h"

namespace palpate::station {

/// What a controller sends: where its hand is. Little-endian, 8-byte fields, no padding, 120 bytes.
struct ControllerPose {
  static constexpr uint32_t kHasVelocity = 1, kHasGrip = 2, kEnded = 4;

  double position_m[3] = {};               ///< of the tool tip, in the device's base frame D
  double rotation_wxyz[4] = {1, 0, 0, 0};  ///< takes vectors of the tool to vectors of D
  double velocity_m_per_s[3] = {};         ///< in D, with kHasVelocity; else the station derives it
  double angular_velocity_rad_per_s[3] = {};
  double grip = 0;  ///< 0 = closed to 1 = open, with kHasGrip
  uint32_t buttons = 0;
  uint32_t flags = 0;
};
static_assert(sizeof(ControllerPose) == 120 && std::is_trivially_copyable_v<ControllerPose>);

/// What the station answers in each tick: the force on that hand. Likewise, 80 bytes.
struct ControllerForce {
  static constexpr uint32_t kEngaged = 1;

  uint64_t tick = 0;          ///< counts the station's ticks from 1
  double time_s = 0;          ///< its clock
  double force_n[3] = {};     ///< in D
  double torque_n_m[3] = {};  ///< about the tip
  uint64_t pose = 0;          ///< number of the controller's pose that it was worked out for, from 1
  uint32_t flags = 0;         ///< kEngaged: it moves a tool
  uint32_t reserved = 0;
};
static_assert(sizeof(ControllerForce) == 80 && std::is_trivially_copyable_v<ControllerForce>);

/// A hand that another process plays, in any language: the controller listens at a Unix socket of kind SOCK_SEQPACKET, the station
/// connects. Messages are whole, so that nobody sees half a pose, and a side that is gone is noticed. The station never waits for the
/// controller: of several poses the newest counts, and without a new one the hand stands still where it was. After kSilence_s its buttons
/// are let go. Forces that a slow controller does not fetch are lost.
class ControllerDevice final : public HapticDevice {
 public:
  static constexpr double kStale_s = 0.005;  ///< a velocity is not believed for longer
  static constexpr double kSilence_s = 0.1;

  /// SPEC = PATH[,profile=NAME][,patience=SECONDS]: the limits of FindDeviceProfile (omega.3), and how long to wait for the first pose
  /// (10). Errors: InvalidArgument (SPEC, first pose), Unavailable (nobody listens), DeadlineExceeded (no pose came).
  static absl::StatusOr<std::unique_ptr<ControllerDevice>> Open(const std::string& spec);

  ~ControllerDevice() override;
  ControllerDevice(const ControllerDevice&) = delete;
  ControllerDevice& operator=(const ControllerDevice&) = delete;

  const DeviceCapabilities& capabilities() const override { return capabilities_; }
  /// Ends when the controller closes its socket or says so.
  DeviceResult Read(double now_s, DeviceState* state) noexcept override;
  DeviceResult Write(const DeviceForce& force) noexcept override;
  void SetEngaged(bool engaged) noexcept override { is_engaged_ = engaged; }
  const char* error() const noexcept override { return error_; }

 private:
  ControllerDevice(int socket, DeviceCapabilities capabilities) : socket_(socket), capabilities_(std::move(capabilities)) {}
  DeviceResult Fetch(double now_s) noexcept;
  /// nullptr, or what is wrong.
  static const char* Fault(const ControllerPose& pose, size_t bytes) noexcept;

  const int socket_;
  DeviceCapabilities capabilities_;
  ControllerPose pose_;
  uint64_t pose_count_ = 0;
  double pose_at_s_ = 0;
  double now_s_ = 0;
  uint64_t tick_ = 0;
  bool is_engaged_ = false;
  const char* error_ = "";
};

}  // namespace palpate::station
