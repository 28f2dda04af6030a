#pragma once

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "clients/station/haptic_loop.h"
#include "palpate/v1/haptics.pb.h"

namespace palpate::station {

/// How buttons and grip of a device act on the instrument. Buttons are bits of DeviceState.buttons, 0 to 31.
struct ControlOptions {
  std::optional<int> pedal_button = {};      ///< held: the pedal is down; empty: it never is
  std::optional<int> jaw_button = {};        ///< held: the jaws are to close; empty: the grip decides, and without one they are closed
  std::optional<double> jaw_angle_rad = {};  ///< between open jaws, > 0; empty: the instrument's largest
  std::optional<double> power_w = {};        ///< while the pedal is down, > 0; empty: the instrument's largest
  std::optional<double> duty = {};           ///< share of the time that power flows, (0, 1]; empty: 1
};

/// Whether the options make sense by themselves. Errors: InvalidArgument naming the option.
absl::Status CheckControls(const ControlOptions& options);

/// What was sent. Counted per pose that left.
struct ControlStatistics {
  uint64_t pedal_poses = 0;    ///< with the pedal down
  uint64_t pedal_presses = 0;  ///< times it went down
  uint64_t jaw_closings = 0;   ///< times the wanted angle went below half of the open one
  double min_jaw_angle_rad = 0;
  double max_jaw_angle_rad = 0;
  double power_w = 0;  ///< with the newest pedal down, what the server makes of 0 filled in
  double duty = 0;     ///< likewise
};

/// Makes jaw angle, pedal, power and duty of poses from buttons and grip. Attach and Apply do not run at the same time.
class ControlMap {
 public:
  explicit ControlMap(const ControlOptions& options) : options_(options) {}

  /// The tool is ours. Errors: FailedPrecondition naming the option that its instrument has no use for, or the instrument's limit; nothing
  /// must be sent then.
  absl::Status Attach(const v1::Attached& attached);

  /// Precondition: Attach was OK.
  void Apply(const PoseSample& sample, v1::ToolPose* message);

  const ControlStatistics& statistics() const { return statistics_; }

 private:
  const ControlOptions options_;
  ControlStatistics statistics_;
  bool has_jaws_ = false;
  double open_rad_ = 0;
  double max_power_w_ = 0;
  bool has_sent_ = false;
  bool was_down_ = false;
  bool was_closed_ = false;
};

}  // namespace palpate::station
