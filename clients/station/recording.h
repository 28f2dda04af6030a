#pragma once

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include "clients/station/haptic_device.h"

namespace palpate::station {

/// One tick of a device. Written to disk as it is: little-endian, 8-byte fields, no padding, 192 bytes.
struct RecordingTick {
  double time_s = 0;  ///< station clock of the Read
  double position_m[3] = {};
  double rotation_wxyz[4] = {1, 0, 0, 0};
  double velocity_m_per_s[3] = {};
  double angular_velocity_rad_per_s[3] = {};
  uint32_t buttons = 0;
  uint32_t flags = 0;      ///< bit 0: has_velocity; bit 1: has_grip
  double force_n[3] = {};  ///< what the station then wrote
  double torque_n_m[3] = {};
  double grip = 0;  ///< recordings of before there were grips hold 0, without bit 1
  double reserved[2] = {};
};
static_assert(sizeof(RecordingTick) == 192 && std::is_trivially_copyable_v<RecordingTick>);

/// What a recording file begins with: 192 bytes too.
struct RecordingHeader {
  char magic[8] = {'P', 'A', 'L', 'P', 'R', 'E', 'C', '1'};
  uint32_t header_bytes = 192;
  uint32_t tick_bytes = 192;
  uint32_t degrees_of_freedom = 3;
  uint32_t reserved0 = 0;
  double peak_force_n = 0, peak_torque_n_m = 0, max_stiffness_n_per_m = 0, max_damping_n_s_per_m = 0, workspace_radius_m = 0,
         force_slew_n_per_s = 0;
  char device_name[64] = {};  ///< zero-terminated
  char reserved1[56] = {};
};
static_assert(sizeof(RecordingHeader) == 192 && std::is_trivially_copyable_v<RecordingHeader>);

struct Recording {
  DeviceCapabilities capabilities;
  std::vector<RecordingTick> ticks;
};

/// Reads a recording. Errors: NotFound (cannot be opened), InvalidArgument naming file, byte offset and what is wrong: magic, sizes,
/// capabilities, a tick that is cut off at the end, a value that is not finite, a rotation that is not a unit quaternion, time that runs
/// backwards.
absl::StatusOr<Recording> ReadRecording(const std::string& file);

/// Gives the recorded states back, one per Read, bit for bit; ends after the last. Forces written to it go nowhere.
class ReplayDevice final : public HapticDevice {
 public:
  static absl::StatusOr<std::unique_ptr<ReplayDevice>> Open(const std::string& file);
  const DeviceCapabilities& capabilities() const override { return recording_.capabilities; }
  DeviceResult Read(double now_s, DeviceState* state) noexcept override;
  DeviceResult Write(const DeviceForce& force) noexcept override;

 private:
  explicit ReplayDevice(Recording recording) : recording_(std::move(recording)) {}
  Recording recording_;
  size_t next_ = 0;
};

/// Passes everything through to another device and writes it to a file. The device loop only fills a ring; a thread of its own writes. When
/// the disk is slower than the loop for longer than the ring lasts (8 s at 1 kHz), ticks are lost, and lost() counts them.
class RecordingDevice final : public HapticDevice {
 public:
  /// Errors: those of opening the file for writing (naming it).
  static absl::StatusOr<std::unique_ptr<RecordingDevice>> Open(const std::string& file, std::unique_ptr<HapticDevice> inner);
  ~RecordingDevice() override;  ///< Writes what is left and closes the file.

  const DeviceCapabilities& capabilities() const override { return inner_->capabilities(); }
  DeviceResult Read(double now_s, DeviceState* state) noexcept override;
  DeviceResult Write(const DeviceForce& force) noexcept override;
  void SetEngaged(bool engaged) noexcept override { inner_->SetEngaged(engaged); }
  uint64_t limited_ticks() const noexcept override { return inner_->limited_ticks(); }
  const char* error() const noexcept override;

  uint64_t lost() const { return lost_.load(); }

 private:
  static constexpr size_t kCapacity = 8192;

  RecordingDevice(std::FILE* file, std::unique_ptr<HapticDevice> inner);
  void WriteLoop();
  bool Drain();

  std::FILE* file_;
  std::unique_ptr<HapticDevice> inner_;
  std::vector<RecordingTick> ring_;
  std::atomic<uint64_t> produced_{0};
  std::atomic<uint64_t> consumed_{0};
  std::atomic<uint64_t> lost_{0};
  std::atomic<bool> stopping_{false};
  std::atomic<bool> disk_failed_{false};
  RecordingTick current_;
  bool has_current_ = false;
  std::thread writer_;
};

}  // namespace palpate::station
