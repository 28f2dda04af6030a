#pragma once

namespace palpate::sim {

/// The motor of a pair of jaws: turns towards the wanted angle at a limited speed, and closes with a limited torque, so that it stops where
/// tissue resists. The resistance is that of the step before; how it will grow is extrapolated from how it grew (a secant), so that the
/// torque approaches its limit from below instead of swinging about it. Pure bookkeeping, without clock.
class JawDrive {
 public:
  struct Limits {
    double max_angle_rad = 1;
    double max_speed_rad_per_s = 4;
    double max_torque_n_m = 0.1;  ///< of each jaw, closing
  };

  /// Starts closed.
  explicit JawDrive(const Limits& limits) : limits_(limits) {}

  double angle_rad() const { return angle_rad_; }
  bool is_blocked() const { return is_blocked_; }

  /// One step. `wanted_rad` is clamped to [0, max_angle_rad]. `resistance_n_m`: torque with which tissue pushed each jaw open in the step
  /// before, on average; negative counts as 0. Returns the new angle.
  double Advance(double wanted_rad, double resistance_n_m, double dt_s);

  /// Limits are as described.
  template <typename Archive>
  void VisitState(Archive& archive) {
    [[maybe_unused]] auto& [limits, angle_rad, last_turn_rad, last_resistance_n_m, stiffness_n_m_per_rad, is_blocked] = *this;
    archive.Enter("JawDrive");
    archive(angle_rad, last_turn_rad, last_resistance_n_m, stiffness_n_m_per_rad, is_blocked);
  }

 private:
  Limits limits_;
  double angle_rad_ = 0;
  double last_turn_rad_ = 0;
  double last_resistance_n_m_ = 0;
  double stiffness_n_m_per_rad_ = 0;  // of what resists, as far as known
  bool is_blocked_ = false;
};

}  // namespace palpate::sim
