#pragma once

#include <array>
#include <limits>
#include <optional>
#include <span>

#include <Eigen/Core>

#include "sim/haptics/local_model.h"

namespace palpate::sim {

/// One place where tissue touches a tool, or will soon; what contact detection and the solver know about it after a step.
struct LocalContact {
  Eigen::Vector3d point_m;       ///< on the tissue's surface, in W
  Eigen::Vector3d normal_W;      ///< unit, from tissue to tool
  double gap_m = 0;              ///< from the tissue's to the tool's surface along normal_W; negative = penetration
  double normal_force_n = 0;     ///< on the tool along normal_W, from the solver; >= 0
  double stiffness_n_per_m = 0;  ///< of the tissue behind it, its share of that of all contacts: ShareStiffness; > 0
  double damping_s = 0;          ///< of the body, stiffness-proportional; >= 0
  double friction = 0;           ///< Coulomb coefficient; >= 0
  /// Of a contact with an exact surface: then gap, normal and these are those at the pose of the device, not at that of the tool, and the
  /// gap alone says how deep it is.
  struct Exact {
    Eigen::Vector3d axis_point_m;             ///< of the tool's axis, nearest to the surface, in W
    std::array<double, 6> curvature_per_m{};  ///< as LocalConstraint::curvature_per_m
  };
  std::optional<Exact> exact = std::nullopt;
};

struct LocalModelInput {
  RigidPose device_pose;  ///< X_WT that the station sent; becomes LocalModel::pose_at_build
  RigidPose tool_pose;    ///< X_WT of the simulated tool, to which the contacts belong; equals device_pose when the tool is driven directly
  double coupling_stiffness_n_per_m = std::numeric_limits<double>::infinity();  ///< between device and tool; infinite = driven directly
  double device_max_stiffness_n_per_m = 0;                                      ///< 0 = no limit
  int max_constraints = 16;                ///< [1, kMaxLocalConstraints]; outside it is brought to the nearest end
  std::span<const LocalContact> contacts;  ///< those with normal_force_n > 0 are active, the others are near
};

/// Turns the contacts of a step into a local model. Fills pose_at_build, constraints and constraint_count; the caller fills the rest.
///
/// Guarantees, to rounding (see docs/haptics.md for the formulas and their limits):
/// - Force: at pose_at_build, at rest and without friction, the model's force is the sum of normal_force_n * normal_W over all contacts,
/// also after merging.
/// - Stiffness: the active constraints share that of their contacts, and so do the near ones, each kind in series with the coupling along
/// the
///   resultant of the active contacts (the mean normal of the near ones). All constraints together never exceed
///   device_max_stiffness_n_per_m: above it all are scaled down alike, and the rest penetrations grow so that the force stays.
/// - A near contact exerts nothing at pose_at_build and touches when the tool has moved by its gap (of a merged group: the smallest gap);
///   at once if the gap is not positive.
/// - Merging (only when there are more contacts than max_constraints): deterministic for the same order of contacts. Active contacts are
/// merged only with active
///   ones. A group's force is the sum of its forces; its torque keeps all but the part along that force, if the group's normals agree
///   within about 60 degrees. With both kinds present, near contacts get at least a quarter of the slots (none if max_constraints is 1).
/// - Exact contacts that are merged with none: penetration and normal at pose_at_build, and the second derivatives, are those given.
/// Contacts with a value that is not finite or outside its range are left out.
/// Cost: O(contacts * max_constraints), times max_constraints when merging. No allocation, no locks. Determinism: RUN_TO_RUN.
/// Source: Forest 2003, section 8.3.
LocalModel BuildLocalModel(const LocalModelInput& input) noexcept;

}  // namespace palpate::sim
