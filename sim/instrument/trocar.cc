#include "sim/instrument/trocar.h"

#include <algorithm>
#include <cmath>

namespace palpate::sim {
namespace {

using Eigen::Vector3d;

constexpr double kNear_m = 0.005;  // of the pivot

Vector3d ShaftOf(const RigidPose& pose) { return pose.rotation * Vector3d::UnitZ(); }

}  // namespace

RigidPose ConstrainToTrocar(const TrocarDescription& trocar, const RigidPose& pose) {
  const Vector3d axis = trocar.axis.normalized();
  const Vector3d from_pivot = pose.position_m - trocar.pivot_m;
  const Vector3d along_shaft = -ShaftOf(pose);
  // How far the tip is beyond the pivot; what is behind it or near it says little about the direction.
  const double own = std::clamp(1 - from_pivot.dot(along_shaft) / kNear_m, 0.0, 1.0);
  Vector3d inwards = own * along_shaft;
  if (own < 1) inwards += (1 - own) * from_pivot.normalized();
  inwards = inwards.norm() > 1e-6 ? Vector3d(inwards.normalized()) : axis;
  const double tilt = std::atan2(axis.cross(inwards).norm(), axis.dot(inwards));
  if (tilt > trocar.max_tilt_rad) {
    Vector3d across = inwards - inwards.dot(axis) * axis;
    across = across.norm() > 1e-9 ? Vector3d(across.normalized()) : axis.unitOrthogonal();
    inwards = std::cos(trocar.max_tilt_rad) * axis + std::sin(trocar.max_tilt_rad) * across;
  }
  RigidPose out;
  out.position_m = trocar.pivot_m + std::clamp(from_pivot.dot(inwards), trocar.min_insertion_m, trocar.max_insertion_m) * inwards;
  out.rotation = (Eigen::Quaterniond::FromTwoVectors(along_shaft, inwards) * pose.rotation).normalized();
  return out;
}

TrocarForces ThroughTrocar(const TrocarDescription& trocar, const RigidPose& pose, const Vector3d& force_n, const Vector3d& torque_n_m) {
  const Vector3d shaft = ShaftOf(pose);
  const Vector3d about_pivot = (pose.position_m - trocar.pivot_m).cross(force_n) + torque_n_m;
  return {about_pivot - about_pivot.dot(shaft) * shaft, -force_n.dot(shaft), torque_n_m.dot(shaft)};
}

TipTwist TipVelocity(const TrocarDescription& trocar, const RigidPose& pose, const TrocarRates& rates) {
  const Vector3d shaft = ShaftOf(pose);
  const Vector3d tilt = rates.tilt_rad_per_s - rates.tilt_rad_per_s.dot(shaft) * shaft;
  return {tilt.cross(pose.position_m - trocar.pivot_m) - rates.insertion_m_per_s * shaft, tilt + rates.roll_rad_per_s * shaft};
}

Vector3d HandleForce(const TrocarDescription& trocar, const RigidPose& pose, const TrocarForces& forces, double handle_m) {
  const Vector3d shaft = ShaftOf(pose);
  const double lever_m = handle_m - (pose.position_m - trocar.pivot_m).norm();
  return -forces.insertion_force_n * shaft + forces.tilt_torque_n_m.cross(shaft) / lever_m;
}

}  // namespace palpate::sim
