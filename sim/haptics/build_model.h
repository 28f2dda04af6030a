#pragma once

#include <limits>
#include <span>

#include <Eigen/Core>

#include "sim/haptics/local_model.h"

namespace palpate::sim {

/// One place where tissue touches a tool, or will soon; what contact detection and the solver know about it after a step.
struct LocalContact {
  Eigen::Vector3d point_m;         ///< on the tissue's surface, in W
  Eigen::Vector3d normal_W;        ///< unit, from tissue to tool
  double gap_m = 0;                ///< from the tissue's to the tool's surface along normal_W; negative = penetration
  double normal_force_n = 0;       ///< on the tool along normal_W, from the solver; >= 0
  double area_m2 = 0;              ///< tissue surface that this contact stands for (a vertex: a third of its triangles' area); > 0
  double young_modulus_pa = 5000;  ///< of the body; > 0
  double poisson_ratio = 0.45;     ///< of the body; [0, 0.5)
  double damping_s = 0;            ///< of the body, stiffness-proportional; >= 0
  double friction = 0;             ///< Coulomb coefficient; >= 0
};

struct LocalModelInput {
  RigidPose device_pose;  ///< X_WT that the station sent; becomes LocalModel::pose_at_build
  RigidPose tool_pose;    ///< X_WT of the simulated tool, to which the contacts belong; equals device_pose when the tool is driven directly
  double coupling_stiffness_n_per_m = std::numeric_limits<double>::infinity();  ///< between device and tool; infinite = driven directly
  double device_max_stiffness_n_per_m = 0;                                      ///< 0 = no limit
  int max_constraints = 16;                ///< [1, kMaxLocalConstraints]; outside it is brought to the nearest end
  std::span<const LocalContact> contacts;  ///< those with normal_force_n > 0 or gap_m <= 0 are active, the others are near
};

/// Turns the contacts of a step into a local model. Fills pose_at_build, constraints and constraint_count; the caller fills the rest.
///
/// Guarantees, to rounding (see docs/haptics.md for the formulas and their limits):
/// - Force: at pose_at_build, at rest and without friction, the model's force is the sum of normal_force_n * normal_W over all contacts,
/// also after merging.
/// - Stiffness: the active constraints together are as stiff as a rigid punch on an elastic half-space, k = 2 a E / (1 - nu^2), a =
/// sqrt(sum of area_m2 / pi),
///   in series with the coupling; near constraints add what the larger patch would add. All constraints together never exceed
///   device_max_stiffness_n_per_m: above it all are scaled down alike, and the rest penetrations grow so that the force stays.
/// - A near contact exerts nothing at pose_at_build and touches when the tool has moved by its gap (of a merged group: the smallest gap).
/// - Merging (only when there are more contacts than max_constraints): deterministic for the same order of contacts. Active contacts are
/// merged only with active
///   ones. A group's force is the sum of its forces; its torque keeps all but the part along that force, if the group's normals agree
///   within about 60 degrees. With both kinds present, near contacts get at least a quarter of the slots (none if max_constraints is 1).
/// Contacts with a value that is not finite or outside its range are left out.
/// Cost: O(contacts * max_constraints), times max_constraints when merging. No allocation, no locks. Determinism: RUN_TO_RUN.
/// Source: half-space punch: Sneddon 1965; the local model: seed thesis Forest 2003, section 8.3.
LocalModel BuildLocalModel(const LocalModelInput& input) noexcept;

}  // namespace palpate::sim
