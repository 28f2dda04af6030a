#pragma once

#include <Eigen/Core>

#include "sim/haptics/local_model.h"
#include "sim/instrument/description.h"

namespace palpate::sim {

/// What a trocar leaves of a tool's motion: the direction of the shaft, how far it is in, and its roll, which is kept in the pose.
/// The admissible pose next to `pose`: the shaft's line passes through the pivot, the tip lies min_insertion_m to max_insertion_m beyond
/// it, and the shaft is tilted from the trocar's axis by max_tilt_rad at most. An admissible pose stays what it is, to rounding. Rotations
/// turn by the shortest way, so the roll is that of the device. Near the pivot, where the tip's place says little about the direction, the
/// direction of the shaft decides; the map is continuous.
RigidPose ConstrainToTrocar(const TrocarDescription& trocar, const RigidPose& pose);

/// Forces along the motions that a trocar leaves, for an admissible pose.
struct TrocarForces {
  Eigen::Vector3d tilt_torque_n_m;  ///< about the pivot, perpendicular to the shaft, in W
  double insertion_force_n = 0;     ///< inwards
  double roll_torque_n_m = 0;       ///< about +z of T
};
/// Rates of those motions.
struct TrocarRates {
  Eigen::Vector3d tilt_rad_per_s;  ///< angular velocity perpendicular to the shaft, in W
  double insertion_m_per_s = 0;
  double roll_rad_per_s = 0;
};

/// What a force and a torque at the tip are for the hand behind the wall. Guarantee: force . v + torque . omega of the tip (TipVelocity)
/// equals the sum of these times their rates, for every motion.
TrocarForces ThroughTrocar(const TrocarDescription& trocar, const RigidPose& pose, const Eigen::Vector3d& force_n,
                           const Eigen::Vector3d& torque_n_m);

/// Velocity of the tip and angular velocity of the tool, in W.
struct TipTwist {
  Eigen::Vector3d velocity_m_per_s;
  Eigen::Vector3d angular_velocity_rad_per_s;
};
TipTwist TipVelocity(const TrocarDescription& trocar, const RigidPose& pose, const TrocarRates& rates);

/// The force that a hand feels at a place on the shaft `handle_m` from the tip, outside the wall: across the shaft it is turned around and
/// scaled by the lever. Precondition: handle_m is larger than the insertion.
Eigen::Vector3d HandleForce(const TrocarDescription& trocar, const RigidPose& pose, const TrocarForces& forces, double handle_m);

}  // namespace palpate::sim
