#include "sim/instrument/laparoscopic_device.h"

#include <algorithm>
#include <cmath>

#include <Eigen/Geometry>
#include <Eigen/LU>

namespace palpate::sim {
namespace {

using Eigen::Vector3d;

/// Axes of the two nested tilts. The source prints the norm of z1 where it divides by it.
struct TiltFrame {
  Vector3d x1, y1, z1;
  Vector3d z1_by_tilt_y, z1_by_tilt_x;  ///< derivatives
};

TiltFrame TiltFrameOf(double tilt_y_rad, double tilt_x_rad) {
  const double ca = std::cos(tilt_y_rad), sa = std::sin(tilt_y_rad);
  const double cb = std::cos(tilt_x_rad), sb = std::sin(tilt_x_rad);
  const Vector3d unscaled(cb * sa, -ca * sb, ca * cb);
  const double norm = unscaled.norm();
  TiltFrame frame;
  frame.z1 = unscaled / norm;
  frame.y1 = {0, cb, sb};
  frame.x1 = frame.y1.cross(frame.z1);
  const auto derivative = [&](const Vector3d& d) { return Vector3d((d - d.dot(frame.z1) * frame.z1) / norm); };
  frame.z1_by_tilt_y = derivative({cb * ca, sa * sb, -sa * cb});
  frame.z1_by_tilt_x = derivative({-sb * sa, -ca * cb, -ca * sb});
  return frame;
}

}  // namespace

LaparoscopicDevice::Joints LaparoscopicDevice::JointsOf(const Counts& counts) const {
  const auto value = [&](size_t i) { return counts[i] * description_.range[i] / description_.counts[i]; };
  return {value(0), value(1), value(2), value(3)};
}

LaparoscopicDevice::Counts LaparoscopicDevice::CountsOf(const Joints& joints) const {
  const std::array<double, 4> values{joints.tilt_y_rad, joints.tilt_x_rad, joints.insertion_m, joints.roll_rad};
  Counts counts{};
  for (size_t i = 0; i < 4; ++i) counts[i] = static_cast<int32_t>(std::lround(values[i] * description_.counts[i] / description_.range[i]));
  return counts;
}

RigidPose LaparoscopicDevice::PoseOf(const Joints& joints) const {
  const TiltFrame frame = TiltFrameOf(joints.tilt_y_rad, joints.tilt_x_rad);
  const Vector3d opening = std::sin(joints.roll_rad) * frame.x1 + std::cos(joints.roll_rad) * frame.y1;
  Eigen::Matrix3d axes;
  axes << opening.cross(frame.z1), opening, frame.z1;
  RigidPose pose;
  pose.position_m = -(joints.insertion_m + description_.rest_length_m) * frame.z1;
  pose.rotation = Eigen::Quaterniond(axes);
  return pose;
}

LaparoscopicDevice::Joints LaparoscopicDevice::JointsOf(const RigidPose& pose) const {
  const Vector3d z1 = pose.rotation * Vector3d::UnitZ();
  Joints joints;
  joints.tilt_y_rad = std::atan2(z1.x(), z1.z());
  joints.tilt_x_rad = std::atan2(-z1.y(), z1.z());
  joints.insertion_m = pose.position_m.norm() - description_.rest_length_m;
  const TiltFrame frame = TiltFrameOf(joints.tilt_y_rad, joints.tilt_x_rad);
  const Vector3d opening = pose.rotation * Vector3d::UnitY();
  joints.roll_rad = std::atan2(opening.dot(frame.x1), opening.dot(frame.y1));
  return joints;
}

LaparoscopicDevice::Drive LaparoscopicDevice::DriveOf(const Joints& joints, const Vector3d& force_n) const {
  const TiltFrame frame = TiltFrameOf(joints.tilt_y_rad, joints.tilt_x_rad);
  const double length_m = joints.insertion_m + description_.rest_length_m;
  Drive drive;
  drive.tilt_y_torque_n_m = -length_m * force_n.dot(frame.z1_by_tilt_y);
  drive.tilt_x_torque_n_m = -length_m * force_n.dot(frame.z1_by_tilt_x);
  drive.insertion_force_n = -force_n.dot(frame.z1);
  const double share = std::max({std::abs(drive.tilt_y_torque_n_m) / description_.max_tilt_torque_n_m(),
                                 std::abs(drive.tilt_x_torque_n_m) / description_.max_tilt_torque_n_m(),
                                 std::abs(drive.insertion_force_n) / description_.max_insertion_force_n()});
  if (share > 1) {
    drive.is_limited = true;
    drive.tilt_y_torque_n_m /= share;
    drive.tilt_x_torque_n_m /= share;
    drive.insertion_force_n /= share;
  }
  drive.motor_v = {drive.tilt_y_torque_n_m / description_.tilt_gear / description_.motor_n_m_per_v,
                   drive.tilt_x_torque_n_m / description_.tilt_gear / description_.motor_n_m_per_v,
                   drive.insertion_force_n * description_.capstan_arm_m / description_.motor_n_m_per_v};
  return drive;
}

Eigen::Vector3d LaparoscopicDevice::ForceOf(const Joints& joints, const std::array<double, 3>& motor_v) const {
  const TiltFrame frame = TiltFrameOf(joints.tilt_y_rad, joints.tilt_x_rad);
  const double length_m = joints.insertion_m + description_.rest_length_m;
  Eigen::Matrix3d tip_by_joints;  // columns: derivatives of the tip
  tip_by_joints << -length_m * frame.z1_by_tilt_y, -length_m * frame.z1_by_tilt_x, -frame.z1;
  const Vector3d at_joints(motor_v[0] * description_.motor_n_m_per_v * description_.tilt_gear,
                           motor_v[1] * description_.motor_n_m_per_v * description_.tilt_gear,
                           motor_v[2] * description_.motor_n_m_per_v / description_.capstan_arm_m);
  return tip_by_joints.transpose().inverse() * at_joints;
}

LaparoscopicDevice::Joints LaparoscopicDevice::BetweenStops(const Joints& joints) const {
  const auto& range = description_.range;
  return {std::clamp(joints.tilt_y_rad, -range[0] / 2, range[0] / 2), std::clamp(joints.tilt_x_rad, -range[1] / 2, range[1] / 2),
          std::clamp(joints.insertion_m, 0.0, range[2]), joints.roll_rad};
}

}  // namespace palpate::sim
