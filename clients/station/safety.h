#pragma once

#include <atomic>
#include <cstdint>
#include <limits>

#include <Eigen/Core>
#include <Eigen/Geometry>

#include "clients/station/haptic_device.h"

namespace palpate::station {

struct SafetyLimits {
  double peak_force_n = 0;
  double peak_torque_n_m = 0;  ///< 0: no torque leaves
  double force_slew_n_per_s = 0;
  double torque_slew_n_m_per_s = 0;
  double tick_s = 0.001;           ///< nominal time between calls; > 0
  double max_silence_s = 1.0;      ///< so long after the last model the force acts in full, longer where the scene's models come slowly
  double silence_fade_time_s = 2;  ///< from full force to none after that; > 0
  double ramp_time_s = 1.0;        ///< from zero to full force after a start
  bool passivity = true;
  double energy_allowance_j = 0.0015;  ///< given to the hand at most, beyond what it put in; > 0
  double power_allowance_w = 0.002;    ///< at which the allowance comes back when it is used up; > 0
};

/// Limits of a device: its peaks and its slew (torque: the full torque in 10 ms).
SafetyLimits LimitsOf(const DeviceCapabilities& capabilities);

/// How often each guard acted. One thread counts, any thread reads.
struct SafetyCounters {
  std::atomic<uint64_t> nan_ticks{0};
  std::atomic<uint64_t> stale_ticks{0};      ///< models had been missing for so long that the force faded
  std::atomic<uint64_t> stale_events{0};     ///< times that this began
  std::atomic<uint64_t> ramp_ticks{0};       ///< the ramp after a start
  std::atomic<uint64_t> passivity_ticks{0};  ///< the force was held below the models' because of its energy
  std::atomic<uint64_t> force_limited_ticks{0};
  std::atomic<uint64_t> slew_limited_ticks{0};
  std::atomic<double> min_energy_j{0};  ///< least value of the observed energy
};

struct SafetyInput {
  DeviceForce wanted;                                            ///< from the local models, in D
  double elastic_energy_j = 0;                                   ///< what the models' springs hold at this pose, in D
  double model_energy_j = 0;                                     ///< of that, what changes of models have put in since the last call
  double silence_s = std::numeric_limits<double>::infinity();    ///< since the newest model came; infinite: there is none
  double model_period_s = 0;                                     ///< time between models as they usually come
  Eigen::Vector3d position_m = Eigen::Vector3d::Zero();          ///< of the device, in D
  Eigen::Quaterniond rotation = Eigen::Quaterniond::Identity();  ///< of the device, in D
  sim::RigidVelocity velocity;                                   ///< in D
  double dt_s = 0;                                               ///< since the last call; > 0
};

/// What stands between a wanted force and a hand. In order:
/// 1 NaN guard: a force that is not finite counts as zero.
/// 2 One gain in [0, 1] on force and torque alike. It is a state with bounded rates, never a function that jumps:
///   - It follows the ramp after Restart, and fades smoothly when models stay away.
///   - Passivity. An observer adds up the work of the hand, E -= F . dx + tau . dtheta, with the forces that were held and the way that was
///     really gone. The part that friction and damping take is not kept, and never more than the springs of the rendered contact can give
///     back (with a tolerance for errors of their slope), so nothing is saved up for a wall that has become active. As E falls towards
///     minus the allowance the gain falls to zero with it and stays down: no energy is left to give, whatever the models say.
///   - It comes back slowly: by no more than the power allowance puts into the springs, so that a hand that has sunk in is lifted out
///     gently; at once where nothing is touched.
/// 3 Peak: force and torque are shortened to the device's limits, direction kept.
/// 4 Slew: the change from the last force is shortened likewise, to that of one nominal tick however long the call was in coming. Nothing
///   bypasses it, so every fault fades at the device's own rate.
/// The observer sees what came out of 4. Not thread-safe but for the counters. No allocation. Source: observer and the idea of the
/// controller Hannaford and Ryu 2002; gain in place of their damping, and what may be kept, are ours (docs/haptics.md).
class SafetyChain {
 public:
  explicit SafetyChain(const SafetyLimits& limits) : limits_(limits) {}

  /// The force to render: finite, within peaks and slew. Called once per tick.
  DeviceForce Apply(const SafetyInput& input) noexcept;

  /// Begins the ramp anew, from zero.
  void Restart() noexcept { ramp_s_ = 0; }

  /// The last force, brought nearer to zero by one tick's slew: called once per tick at the end, until it is zero. Apply is not called
  /// after.
  DeviceForce Release() noexcept;

  const SafetyCounters& counters() const { return counters_; }
  const SafetyLimits& limits() const { return limits_; }
  double energy_j() const { return energy_j_; }  ///< observed; negative = the hand was given energy
  double gain() const { return gain_; }

 private:
  void ObserveWork(const SafetyInput& input) noexcept;
  void UpdateGain(const SafetyInput& input, double target) noexcept;
  /// Share of the force that acts after so long without a model.
  double Freshness(const SafetyInput& input) const noexcept;
  void LimitSlew(double dt_s, DeviceForce* force) noexcept;

  SafetyLimits limits_;
  SafetyCounters counters_;
  DeviceForce last_;
  Eigen::Vector3d last_position_m_ = Eigen::Vector3d::Zero();
  Eigen::Quaterniond last_rotation_ = Eigen::Quaterniond::Identity();
  double last_elastic_energy_j_ = 0;
  bool has_last_ = false;
  bool stale_ = false;
  double ramp_s_ = 0;
  double gain_ = 1;
  bool is_lifting_ = false;  // the gain rises, no faster than energy allows
  double lift_left_j_ = 0;   // that a rising gain may give to the hand now
  double lift_power_w_ = 0;  // that a rising gain may put into the springs; 0 before the first contact
  double energy_j_ = 0;
};

}  // namespace palpate::station
