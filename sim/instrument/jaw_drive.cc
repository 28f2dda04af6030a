#include "sim/instrument/jaw_drive.h"

#include <algorithm>
#include <cmath>

namespace palpate::sim {
namespace {

// Contacts stiffen as they are pressed, so a secant underestimates what comes; and one step's secant is noise where nothing turned.
constexpr double kStiffening = 1.5;
constexpr double kForget = 0.7;
constexpr double kLeastTurn_rad = 1e-5;
constexpr double kHeld = 0.9;  // share of the largest torque from which on the jaws count as blocked

}  // namespace

double JawDrive::Advance(double wanted_rad, double resistance_n_m, double dt_s) {
  const double resistance = std::max(resistance_n_m, 0.0);
  const double most_rad = limits_.max_speed_rad_per_s * dt_s;
  double turn = std::clamp(std::clamp(wanted_rad, 0.0, limits_.max_angle_rad) - angle_rad_, -most_rad, most_rad);
  if (std::abs(last_turn_rad_) > kLeastTurn_rad) {
    const double secant = std::max((resistance - last_resistance_n_m_) / -last_turn_rad_, 0.0);
    stiffness_n_m_per_rad_ = std::max(secant, kForget * stiffness_n_m_per_rad_);
  }
  is_blocked_ = false;
  if (turn < 0 && resistance > 0) {
    // Before a secant is known: the limit would be reached within one turn at full speed.
    const double stiffness =
        std::max(kStiffening * stiffness_n_m_per_rad_, stiffness_n_m_per_rad_ > 0 ? 0 : limits_.max_torque_n_m / most_rad);
    const double least = (resistance - limits_.max_torque_n_m) / stiffness;
    is_blocked_ = resistance >= kHeld * limits_.max_torque_n_m && least > turn;
    turn = std::clamp(std::max(turn, least), -most_rad, most_rad);
  }
  last_turn_rad_ = turn;
  last_resistance_n_m_ = resistance;
  angle_rad_ = std::clamp(angle_rad_ + turn, 0.0, limits_.max_angle_rad);
  return angle_rad_;
}

}  // namespace palpate::sim
