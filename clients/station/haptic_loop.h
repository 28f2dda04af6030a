#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/functional/function_ref.h"
#include "clients/station/haptic_device.h"
#include "clients/station/histogram.h"
#include "clients/station/safety.h"
#include "clients/station/triple_buffer.h"
#include "sim/haptics/evaluate.h"
#include "sim/haptics/local_model.h"

namespace palpate::station {

/// How the device's workspace lies in the world. Lengths grow by `scale`; forces are not scaled, so what is felt is `scale` times as stiff.
struct Placement {
  double scale = 1;                                              ///< world metres per device metre, > 0
  Eigen::Quaterniond rotation = Eigen::Quaterniond::Identity();  ///< R_WD
  /// Where the origin of D lies, in W. Empty: wherever makes the device's pose at attachment the tool's pose, so that nothing jumps.
  std::optional<Eigen::Vector3d> origin_m;
};

struct LoopOptions {
  double rate_hz = 1000;
  Placement placement;
  SafetyLimits limits;
  double align_time_s = 1.0;                 ///< with a fixed origin: how long the tool takes from where it is to where the device is
  double velocity_filter_s = 0.003;          ///< time constant of the velocity that is derived from positions
  double model_force_rate_n_per_s = 30;      ///< fastest change of force that new models may make, not the hand's own motion; > 0
  double model_torque_rate_n_m_per_s = 0.6;  ///< the same for torque; > 0
  double max_round_trip_s = 1;               ///< models that answer older poses than this count as missing
};

/// A pose for the server.
struct PoseSample {
  uint64_t sequence = 0;
  int64_t station_time_us = 0;
  sim::RigidPose pose = {};  ///< X_WT
  Eigen::Vector3d velocity_m_per_s = Eigen::Vector3d::Zero();
  uint32_t buttons = 0;   ///< as the device's, see DeviceState
  bool has_grip = false;  ///< false too while the device gives no number
  double grip = 0;
};

/// What the loop has done. The loop's thread writes, any thread reads.
struct LoopStatistics {
  std::atomic<uint64_t> cycles{0};
  std::atomic<uint64_t> missed{0};          ///< ticks whose deadline had passed by a whole period: skipped
  std::atomic<uint64_t> contact_cycles{0};  ///< ticks with a force
  std::atomic<uint64_t> models_taken{0};
  std::atomic<uint64_t> outside_validity{0};  ///< ticks farther from the model's pose than its validity radius
  std::atomic<double> force_sum_n{0};         ///< over contact cycles
  std::atomic<double> force_max_n{0};
  std::atomic<double> force_now_n{0};
  Histogram<10000> lateness_us{1.0};     ///< of the wake-ups
  Histogram<5000> cycle_us{1.0};         ///< time that a tick takes
  Histogram<20000> model_age_ms{0.1};    ///< since the pose that the newest model answers, each tick that has one
  std::atomic<double> silence_max_s{0};  ///< longest time without a new model, once there was one
};

/// The loop between a device and the newest local models. Three threads meet here and never wait for each other:
/// - the device thread calls Tick at the loop's rate: no allocation, no lock, no system call but the device's own;
/// - the receiving thread calls Attach, Detach and TakeModel as messages come;
/// - the sending thread calls NextPose.
/// `now_us` is one monotonic clock for all.
class HapticLoop {
 public:
  HapticLoop(HapticDevice* device, const LoopOptions& options);

  // Receiving thread.

  /// The tool is ours and is at `tool_pose`: the device takes it up from there, with a force ramp from zero.
  void Attach(const sim::RigidPose& tool_pose) noexcept;
  /// The tool is no longer ours: the force goes to zero within the device's slew.
  void Detach() noexcept;
  /// A slot to fill; then PublishModel. Models of an earlier attachment are dropped.
  sim::LocalModel& ModelSlot() noexcept { return models_.back().model; }
  void PublishModel(int64_t now_us) noexcept;

  // Sending thread.

  /// The newest pose, if there is one since the last call.
  bool NextPose(PoseSample* sample) noexcept;

  // Device thread.

  /// One cycle. kOk, or why the loop must end.
  DeviceResult Tick(int64_t now_us) noexcept;
  /// The last act of a loop: brings the force to zero within the device's slew, one step a call. Call it once per tick until it is true:
  /// then nothing is rendered, or the device cannot be reached. At most kReleaseTicks calls.
  bool Release() noexcept;
  static constexpr int kReleaseTicks = 1000;

  LoopStatistics& statistics() { return statistics_; }
  const LoopStatistics& statistics() const { return statistics_; }
  const SafetyChain& safety() const { return safety_; }
  const LoopOptions& options() const { return options_; }

 private:
  struct Link {
    uint64_t attachment = 0;  // counts attachments
    bool attached = false;
    sim::RigidPose tool_pose;
  };
  struct Arrival {
    uint64_t attachment = 0;
    int64_t arrived_us = 0;
    sim::LocalModel model;
  };

  /// Of one tick.
  struct TickTime {
    double now_s = 0;  // since the first tick
    double dt_s = 0;   // since the last one; > 0
  };
  /// Of the tool, in W.
  struct ToolMotion {
    sim::RigidPose pose;
    sim::RigidVelocity velocity;
  };

  TickTime TimeOf(int64_t now_us) noexcept;
  /// Precondition: the state is finite.
  void TakeState(const DeviceState& state, const TickTime& time, SafetyInput* input) noexcept;
  void TakeLink(const DeviceState& state, double now_s) noexcept;
  void UpdateVelocity(const DeviceState& state, double dt_s) noexcept;
  /// The newest model, if it is of this attachment.
  void TakeModel(double now_s) noexcept;
  void NoteAge(int64_t now_us, SafetyInput* input) noexcept;
  sim::RigidPose ToWorld(const sim::RigidPose& device_pose, double now_s) const noexcept;
  sim::RigidVelocity VelocityInWorld() const noexcept;
  void PublishPose(const DeviceState& state, const ToolMotion& motion, int64_t now_us) noexcept;
  void EvaluateModels(const ToolMotion& motion, double now_s, SafetyInput* input) noexcept;
  void CountForce(double force_n) noexcept;

  HapticDevice* device_;
  const LoopOptions options_;
  SafetyChain safety_;
  LoopStatistics statistics_;

  TripleBuffer<Link> links_;
  TripleBuffer<Arrival> models_;
  TripleBuffer<PoseSample> poses_;
  Link link_to_send_;  // receiving thread

  // Device thread.
  sim::ModelBlend blend_;
  Link link_;
  bool has_model_ = false;
  int64_t model_time_us_ = 0;     // when the pose that the newest model answers was read
  int64_t model_arrived_us_ = 0;  // when the newest model came
  int release_ticks_ = 0;
  bool has_last_ = false;
  int64_t first_us_ = 0;
  int64_t last_us_ = 0;
  sim::RigidPose last_device_pose_;
  sim::RigidVelocity velocity_D_;
  sim::RigidPose device_at_attach_;
  double attached_at_s_ = 0;
  uint64_t sequence_ = 0;
};

/// How a loop was run.
struct RealTimeReport {
  bool priority = false;      ///< SCHED_FIFO was granted
  std::string priority_note;  ///< why not
  std::string memory;         ///< "all", "loop" (only what the loop touches) or "none", locked against paging
};

/// Runs the loop on the calling thread until `should_stop` says so or the device ends: absolute-time sleep on CLOCK_MONOTONIC, real-time
/// priority and locked memory where the system allows. A tick that would begin a period late or more is skipped and counted as missed:
/// time is not stretched, and no burst follows. At the end the force goes to zero within the device's slew, at the loop's rate; on return
/// the device renders none. `should_stop` is asked once per tick and must not block.
DeviceResult RunLoop(HapticLoop* loop, absl::FunctionRef<bool()> should_stop, RealTimeReport* report);

/// Microseconds of CLOCK_MONOTONIC.
int64_t MonotonicNow_us() noexcept;

}  // namespace palpate::station
