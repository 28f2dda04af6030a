#pragma once

#include <array>
#include <cstdint>
#include <numbers>

#include <Eigen/Core>

#include "sim/haptics/local_model.h"

namespace palpate::sim {

/// Sizes of a laparoscopic force-feedback device: a handle on a rod through a fixed point, four encoders (two tilts, insertion, roll) and
/// three motors (all but roll). Defaults: the Laparoscopic Impulse Engine (Forest 2003, chapter on the device).
struct LaparoscopicDeviceDescription {
  std::array<double, 4> counts{5000, 5000, 5800, 1024};                                                 ///< over the range of each joint
  std::array<double, 4> range{std::numbers::pi / 3, std::numbers::pi / 3, 0.08, 2 * std::numbers::pi};  ///< rad, rad, m, rad
  double rest_length_m = 0.02;  ///< from the fixed point to the tip when fully withdrawn
  double motor_n_m_per_v = 0.010;
  double max_motor_v = 3.5;      ///< of the amplifier
  double tilt_gear = 14;         ///< torque of a tilt axis over that of its motor
  double capstan_arm_m = 0.005;  ///< of the motor that drives insertion

  double max_tilt_torque_n_m() const { return max_motor_v * motor_n_m_per_v * tilt_gear; }
  double max_insertion_force_n() const { return max_motor_v * motor_n_m_per_v / capstan_arm_m; }
};

/// The kinematics of such a device in its frame D, whose origin is the fixed point, with +z out of the patient: at rest the tip is at
/// -rest_length_m z. Poses are those of frame T: +z of T from the tip to the fixed point, +y of T the axis about which the handle opens.
class LaparoscopicDevice {
 public:
  using Counts = std::array<int32_t, 4>;  ///< tilt about y, tilt about x, insertion, roll (of several turns)

  struct Joints {
    double tilt_y_rad = 0;
    double tilt_x_rad = 0;
    double insertion_m = 0;
    double roll_rad = 0;
  };
  /// What the motors are told and what that makes at the joints.
  struct Drive {
    std::array<double, 3> motor_v{};  ///< tilt about y, tilt about x, insertion; within +-max_motor_v
    double tilt_y_torque_n_m = 0;
    double tilt_x_torque_n_m = 0;
    double insertion_force_n = 0;  ///< inwards
    bool is_limited = false;       ///< the force asked for is more than the motors can
  };

  explicit LaparoscopicDevice(const LaparoscopicDeviceDescription& description) : description_(description) {}

  Joints JointsOf(const Counts& counts) const;
  /// The nearest counts. JointsOf(CountsOf(joints)) is at most half a count away.
  Counts CountsOf(const Joints& joints) const;

  /// Precondition: tilts within (-pi/2, pi/2).
  RigidPose PoseOf(const Joints& joints) const;
  /// The inverse of PoseOf; roll in (-pi, pi]. Only the direction of the shaft, the distance of the tip and the roll of `pose` count.
  Joints JointsOf(const RigidPose& pose) const;

  /// Torques and force that let the hand feel `force_n` at the tip (D), by the principle of virtual work. A force beyond what the motors
  /// can is scaled as a whole, so that its direction in joint space stays.
  Drive DriveOf(const Joints& joints, const Eigen::Vector3d& force_n) const;

  /// The force at the tip (D) that the hand feels from motors at these voltages: the inverse of DriveOf where nothing is limited. The power
  /// of the motors' joints is that of the force at the tip, for every motion but roll, in which there is none. Precondition: as PoseOf.
  Eigen::Vector3d ForceOf(const Joints& joints, const std::array<double, 3>& motor_v) const;

  /// The nearest joints between the mechanism's stops: tilts to half of their range on either side, insertion over its range; roll turns
  /// on.
  Joints BetweenStops(const Joints& joints) const;

  const LaparoscopicDeviceDescription& description() const { return description_; }

 private:
  LaparoscopicDeviceDescription description_;
};

}  // namespace palpate::sim
