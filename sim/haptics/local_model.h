#pragma once

#include <array>
#include <cstdint>

#include <Eigen/Core>
#include <Eigen/Geometry>

namespace palpate::sim {

/// A rigid pose X_WT: p_W = rotation * p_T + position_m.
struct RigidPose {
  Eigen::Vector3d position_m = Eigen::Vector3d::Zero();
  Eigen::Quaterniond rotation = Eigen::Quaterniond::Identity();
};

/// One unilateral contact of a local model; see proto/palpate/v1/haptics.proto, ContactConstraint.
struct LocalConstraint {
  Eigen::Vector3d arm_T_m;        ///< contact point fixed to the tool, in T
  Eigen::Vector3d normal_W;       ///< unit, from tissue to tool
  double rest_penetration_m = 0;  ///< at LocalModel::pose_at_build; negative = gap
  double stiffness_n_per_m = 0;
  double friction = 0;           ///< Coulomb coefficient
  double damping_n_s_per_m = 0;  ///< along the normal
  /// Second derivatives H of the gap by the place of the arm, in W: xx xy xz yy yz zz; H normal_W = 0. Zeros: a plane.
  std::array<double, 6> curvature_per_m{};

  bool is_curved() const { return curvature_per_m != std::array<double, 6>{}; }
};

inline constexpr int kMaxLocalConstraints = 64;

/// The contact mechanics around one tool, valid near pose_at_build. A fixed-size value: copying it allocates nothing.
/// Source: Forest 2003, section 8.3 (planes evaluated at the current pose, two newest models blended), extended by stiffness in
/// N/m.
struct LocalModel {
  uint64_t step = 0;
  double sim_time_s = 0;
  int64_t server_time_us = 0;
  uint64_t pose_sequence = 0;
  int64_t station_time_us = 0;
  RigidPose pose_at_build;
  int constraint_count = 0;
  std::array<LocalConstraint, kMaxLocalConstraints> constraints;
  double validity_radius_m = 0;
  double blend_time_s = 0;
  Eigen::Vector3d force_n = Eigen::Vector3d::Zero();     ///< of the tissue on the tool at pose_at_build, from the solver, in W
  Eigen::Vector3d torque_n_m = Eigen::Vector3d::Zero();  ///< about the tip, in W
};

}  // namespace palpate::sim
