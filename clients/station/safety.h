#pragma once

#include <atomic>
#include <cstdint>
#include <limits>

#include <Eigen/Core>

#include "clients/station/haptic_device.h"

namespace palpate::station {

struct SafetyLimits {
  double peak_force_n = 0;
  double peak_torque_n_m = 0;  ///< 0: no torque leaves
  double force_slew_n_per_s = 0;
  double torque_slew_n_m_per_s = 0;
  double max_damping_n_s_per_m = 0;  ///< of the passivity controller
  double max_model_age_s = 0.05;     ///< up to this age a model acts in full
  double age_decay_time_s = 0.1;     ///< beyond it the force falls by 1/e per this time; below 1/1000 it is zero
  double ramp_time_s = 1.0;          ///< from zero to full force after a start
  bool passivity = true;
  double energy_allowance_j = 0.002;  ///< given to the hand before the passivity controller acts; at twice it no more is given
};

/// Limits of a device: its peaks, its slew (torque: the full torque in 10 ms), its damping.
SafetyLimits LimitsOf(const DeviceCapabilities& capabilities);

/// How often each guard acted. One thread counts, any thread reads.
struct SafetyCounters {
  std::atomic<uint64_t> nan_ticks{0};
  std::atomic<uint64_t> stale_ticks{0};   ///< there was a model, too old
  std::atomic<uint64_t> stale_events{0};  ///< times it became too old
  std::atomic<uint64_t> ramp_ticks{0};
  std::atomic<uint64_t> passivity_ticks{0};  ///< damping was added
  std::atomic<uint64_t> force_limited_ticks{0};
  std::atomic<uint64_t> slew_limited_ticks{0};
  std::atomic<double> min_energy_j{0};  ///< least value of the observed energy
};

struct SafetyInput {
  DeviceForce wanted;                                            ///< from the local models, in D
  double model_age_s = std::numeric_limits<double>::infinity();  ///< infinite: no model
  Eigen::Vector3d position_m = Eigen::Vector3d::Zero();          ///< of the device, in D
  sim::RigidVelocity velocity;                                   ///< in D
  double dt_s = 0;                                               ///< since the last call; > 0
};

/// What stands between a wanted force and a hand. In order:
/// 1 NaN guard: a force that is not finite counts as zero.
/// 2 Age: see SafetyLimits; a force from a model that no longer tells the truth fades.
/// 3 Ramp after Restart.
/// 4 Passivity, in the time domain (Hannaford and Ryu 2002): the observer adds up the work that the rendered forces have done on the hand,
///   exactly for a force held over a tick, E -= F . dx. When the energy, with what the next tick is expected to add, falls below minus the
///   allowance, damping is added along the velocity, just enough, at most what the device renders. Damping that is bounded cannot stop
///   tissue that drives the hand slowly, so the part of the force that drives the hand also fades, to nothing at minus twice the
///   allowance: beyond that no energy is given. In free space surplus is forgotten (it must not pay for later activity), deficit is kept,
///   and nothing is damped.
/// 5 Peak: force and torque are shortened to the device's limits, direction kept.
/// 6 Slew: the change from the last force is shortened likewise. Nothing bypasses it, so every fault fades at the device's own rate.
/// The observer sees what came out of 6. Not thread-safe but for the counters. No allocation.
class SafetyChain {
 public:
  explicit SafetyChain(const SafetyLimits& limits) : limits_(limits) {}

  /// The force to render: finite, within peaks and slew. Called once per tick.
  DeviceForce Apply(const SafetyInput& input) noexcept;

  /// Begins the ramp anew, from zero.
  void Restart() noexcept { ramp_s_ = 0; }

  const SafetyCounters& counters() const { return counters_; }
  const SafetyLimits& limits() const { return limits_; }
  double energy_j() const { return energy_j_; }  ///< observed; negative = the hand was given energy

 private:
  SafetyLimits limits_;
  SafetyCounters counters_;
  DeviceForce last_;
  Eigen::Vector3d last_position_m_ = Eigen::Vector3d::Zero();
  bool has_last_ = false;
  bool stale_ = true;  // before the first model nothing became stale
  double ramp_s_ = 0;
  double energy_j_ = 0;
  double free_s_ = 0;
};

}  // namespace palpate::station
