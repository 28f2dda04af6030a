#include "sim/haptics/build_model.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

namespace palpate::sim {
namespace {

using Eigen::Vector3d;

// A contact across the resultant takes part in it with at least this share of its stiffness.
constexpr double kLeastShareAlong = 0.25;

bool IsUsable(const LocalContact& contact) {
  return contact.point_m.allFinite() && contact.normal_W.allFinite() && std::abs(contact.normal_W.squaredNorm() - 1) < 1e-3 &&
         std::isfinite(contact.gap_m) && std::isfinite(contact.normal_force_n) && contact.normal_force_n >= 0 &&
         std::isfinite(contact.stiffness_n_per_m) && contact.stiffness_n_per_m > 0 && std::isfinite(contact.damping_s) &&
         contact.damping_s >= 0 && std::isfinite(contact.friction) && contact.friction >= 0 &&
         (!contact.exact || (contact.exact->axis_point_m.allFinite() &&
                             std::all_of(contact.exact->curvature_per_m.begin(), contact.exact->curvature_per_m.end(),
                                         [](double value) { return std::isfinite(value); })));
}

bool IsActive(const LocalContact& contact) { return contact.normal_force_n > 0; }

/// Where the contact sits on the tool's surface, in W.
Vector3d PointOnTool(const LocalContact& contact) { return contact.point_m + contact.gap_m * contact.normal_W; }

/// Sums over the contacts that stand for one constraint.
struct Group {
  int count = 0;
  const LocalContact* newest = nullptr;
  double stiffness_n_per_m = 0;
  double min_gap_m = std::numeric_limits<double>::infinity();
  double damping_n_s_per_m = 0;  ///< sum of damping_s * stiffness_n_per_m
  double friction_weight = 0;    ///< sum of friction * weight
  double weight = 0;             ///< of active groups the force [N], of near ones the stiffness [N/m]
  double force_sum_n = 0;        ///< of magnitudes
  Vector3d force_n = Vector3d::Zero();
  Vector3d torque_n_m = Vector3d::Zero();  ///< about the tool's tip
  Vector3d weighted_normal = Vector3d::Zero();
  Vector3d weighted_point_m = Vector3d::Zero();  ///< relative to the tip
  Vector3d nearest_point_m = Vector3d::Zero();   ///< relative to the tip, of the contact with the smallest gap

  void Add(const LocalContact& contact, const Vector3d& tip_m) {
    const Vector3d point_m = PointOnTool(contact) - tip_m;
    const Vector3d contact_force_n = contact.normal_force_n * contact.normal_W;
    const double contact_weight = IsActive(contact) ? contact.normal_force_n : contact.stiffness_n_per_m;
    if (contact.gap_m < min_gap_m) {
      min_gap_m = contact.gap_m;
      nearest_point_m = point_m;
    }
    ++count;
    newest = &contact;
    stiffness_n_per_m += contact.stiffness_n_per_m;
    damping_n_s_per_m += contact.damping_s * contact.stiffness_n_per_m;
    friction_weight += contact.friction * contact_weight;
    weight += contact_weight;
    force_sum_n += contact.normal_force_n;
    force_n += contact_force_n;
    torque_n_m += point_m.cross(contact_force_n);
    weighted_normal += contact_weight * contact.normal_W;
    weighted_point_m += contact_weight * point_m;
  }
};

/// Squared distance between two contacts for grouping: apart in place, or in direction (a right angle counts as four tool lengths of
/// contact patch).
double DistanceSq(const LocalContact& a, const LocalContact& b, double length_m) {
  return (PointOnTool(a) - PointOnTool(b)).squaredNorm() + 4 * length_m * length_m * (1 - a.normal_W.dot(b.normal_W));
}

/// Sums groups of one kind of contact (active or near) into `groups`, at most `slots`. Returns how many.
int MakeGroups(std::span<const LocalContact> contacts, bool active, int count, int slots, double length_m, const Vector3d& tip_m,
               std::array<Group, kMaxLocalConstraints>& groups) {
  const auto wanted = [&](const LocalContact& contact) { return IsUsable(contact) && IsActive(contact) == active; };
  if (count <= slots) {
    int n = 0;
    for (const LocalContact& contact : contacts) {
      if (wanted(contact)) groups[n++].Add(contact, tip_m);
    }
    return n;
  }
  // Seeds: the most important contact, then always the one farthest from all seeds. Ties go to the lowest index.
  std::array<const LocalContact*, kMaxLocalConstraints> seeds{};
  int seed_count = 0;
  const auto nearest_seed = [&](const LocalContact& contact, double* distance_sq) {
    int best = 0;
    *distance_sq = std::numeric_limits<double>::infinity();
    for (int s = 0; s < seed_count; ++s) {
      const double d = DistanceSq(contact, *seeds[s], length_m);
      if (d < *distance_sq) {
        *distance_sq = d;
        best = s;
      }
    }
    return best;
  };
  while (seed_count < slots) {
    const LocalContact* best = nullptr;
    double best_score = -std::numeric_limits<double>::infinity();
    for (const LocalContact& contact : contacts) {
      if (!wanted(contact)) continue;
      double score = active ? contact.normal_force_n : -contact.gap_m;
      if (seed_count > 0) nearest_seed(contact, &score);
      if (score > best_score) {
        best_score = score;
        best = &contact;
      }
    }
    seeds[seed_count++] = best;
  }
  for (const LocalContact& contact : contacts) {
    if (!wanted(contact)) continue;
    double distance_sq = 0;
    groups[nearest_seed(contact, &distance_sq)].Add(contact, tip_m);
  }
  // Contacts in the same place leave seeds without a group.
  const auto end = std::remove_if(groups.begin(), groups.begin() + slots, [](const Group& group) { return group.count == 0; });
  return static_cast<int>(end - groups.begin());
}

/// Contact point of a group relative to the tip, in W: the weighted mean, moved so that the group's torque is kept where one force can keep
/// it.
Vector3d GroupPoint(const Group& group) {
  const Vector3d mean_m = group.weighted_point_m / group.weight;
  const double force_sq = group.force_n.squaredNorm();
  if (group.count == 1 || force_sq < 0.25 * group.force_sum_n * group.force_sum_n || force_sq == 0) return mean_m;
  return mean_m + group.force_n.cross(group.torque_n_m - mean_m.cross(group.force_n)) / force_sq;
}

/// Contacts that push, or those that are near.
struct Kind {
  int count = 0;
  double sum_n_per_m = 0;            ///< stiffness of the tissue in all
  Vector3d push = Vector3d::Zero();  ///< direction in which they push, of any length
  double along_n_per_m = 0;          ///< stiffness along it
  double scale = 1;                  ///< stiffness of constraints over that of the tissue
};

/// All usable contacts of a model.
struct Patch {
  Kind active, near;
  double length_m = 0;  ///< root mean square distance from their middle

  Kind& Of(const LocalContact& contact) { return IsActive(contact) ? active : near; }
  int count() const { return active.count + near.count; }
};

Patch Measure(std::span<const LocalContact> contacts) {
  Patch patch;
  Vector3d mean_m = Vector3d::Zero();
  for (const LocalContact& contact : contacts) {
    if (!IsUsable(contact)) continue;
    Kind& kind = patch.Of(contact);
    ++kind.count;
    kind.sum_n_per_m += contact.stiffness_n_per_m;
    kind.push += (IsActive(contact) ? contact.normal_force_n : contact.stiffness_n_per_m) * contact.normal_W;
    mean_m += PointOnTool(contact);
  }
  if (patch.count() == 0) return patch;
  mean_m /= patch.count();
  double spread_sq_m2 = 0;
  for (const LocalContact& contact : contacts) {
    if (!IsUsable(contact)) continue;
    Kind& kind = patch.Of(contact);
    const double along = kind.push.isZero(0) ? 1 : contact.normal_W.dot(kind.push.normalized());
    kind.along_n_per_m += contact.stiffness_n_per_m * along * along;
    spread_sq_m2 += (PointOnTool(contact) - mean_m).squaredNorm();
  }
  patch.length_m = std::sqrt(spread_sq_m2 / patch.count());
  return patch;
}

/// Puts the tissue in series with the coupling, and keeps all of it below what the device can render.
void Scale(double coupling_n_per_m, double device_max_n_per_m, Patch* patch) {
  Kind& active = patch->active;
  Kind& near = patch->near;
  const auto behind_coupling = [&](double tissue_n_per_m) { return 1 / (1 / tissue_n_per_m + 1 / coupling_n_per_m); };
  // Contacts all around leave no resultant; a part of them stands for what resists.
  for (Kind* kind : {&active, &near}) kind->along_n_per_m = std::max(kind->along_n_per_m, kLeastShareAlong * kind->sum_n_per_m);
  const double active_n_per_m = active.count > 0 ? behind_coupling(active.along_n_per_m) : 0;
  if (active.count > 0) active.scale = active_n_per_m / active.along_n_per_m;
  // Near contacts get what the larger patch would add.
  if (near.count > 0) near.scale = (behind_coupling(active.along_n_per_m + near.along_n_per_m) - active_n_per_m) / near.along_n_per_m;
  const double total_n_per_m = active.scale * active.sum_n_per_m + near.scale * near.sum_n_per_m;
  if (device_max_n_per_m > 0 && total_n_per_m > device_max_n_per_m) {
    for (Kind* kind : {&active, &near}) kind->scale *= device_max_n_per_m / total_n_per_m;
  }
}

/// How many constraints the active contacts get. Near ones get the rest, and a quarter at least.
int ActiveSlots(const Patch& patch, int slots) {
  const int active_slots = std::min(patch.active.count, slots);
  if (patch.active.count == 0 || patch.near.count == 0) return active_slots;
  const int reserved = std::min(patch.near.count, slots / 4);
  return std::min(patch.near.count, slots - active_slots) < reserved ? std::min(patch.active.count, slots - reserved) : active_slots;
}

/// Nothing if there is no force to keep and no direction to feel: opposed normals that cancel.
std::optional<LocalConstraint> ConstraintOf(const Group& group, bool is_active, double scale, const LocalModelInput& input) {
  const Eigen::Quaterniond world_to_tool = input.tool_pose.rotation.conjugate();
  LocalConstraint constraint;
  constraint.stiffness_n_per_m = scale * group.stiffness_n_per_m;
  constraint.friction = group.friction_weight / group.weight;
  constraint.damping_n_s_per_m = constraint.stiffness_n_per_m * group.damping_n_s_per_m / group.stiffness_n_per_m;
  if (group.count == 1 && group.newest->exact) {
    const LocalContact& contact = *group.newest;
    constraint.normal_W = contact.normal_W;
    constraint.arm_T_m = input.device_pose.rotation.conjugate() * (contact.exact->axis_point_m - input.device_pose.position_m);
    constraint.rest_penetration_m = -contact.gap_m;
    constraint.curvature_per_m = contact.exact->curvature_per_m;
    return constraint;
  }
  const double force_n = group.force_n.norm();
  const double normal_norm = group.weighted_normal.norm();
  if (force_n > 0) {
    constraint.normal_W = group.force_n / force_n;
  } else if (normal_norm > 1e-12 * group.weight) {
    constraint.normal_W = group.weighted_normal / normal_norm;
  } else {
    return std::nullopt;
  }
  constraint.arm_T_m = world_to_tool * (is_active ? GroupPoint(group) : group.nearest_point_m);
  constraint.rest_penetration_m = is_active ? force_n / constraint.stiffness_n_per_m : std::min(0.0, -group.min_gap_m);
  return constraint;
}

}  // namespace

LocalModel BuildLocalModel(const LocalModelInput& input) noexcept {
  LocalModel model;
  model.pose_at_build = input.device_pose;
  Patch patch = Measure(input.contacts);
  if (patch.count() == 0) return model;
  Scale(input.coupling_stiffness_n_per_m, input.device_max_stiffness_n_per_m, &patch);
  const int slots = std::clamp(input.max_constraints, 1, kMaxLocalConstraints);
  const int active_slots = ActiveSlots(patch, slots);

  const Vector3d& tip_m = input.tool_pose.position_m;
  for (const bool is_active : {true, false}) {
    const Kind& kind = is_active ? patch.active : patch.near;
    const int kind_slots = is_active ? active_slots : std::min(kind.count, slots - active_slots);
    if (kind_slots == 0) continue;
    std::array<Group, kMaxLocalConstraints> groups{};
    const int group_count = MakeGroups(input.contacts, is_active, kind.count, kind_slots, patch.length_m, tip_m, groups);
    for (int g = 0; g < group_count; ++g) {
      const std::optional<LocalConstraint> constraint = ConstraintOf(groups[g], is_active, kind.scale, input);
      if (constraint) model.constraints[model.constraint_count++] = *constraint;
    }
  }
  return model;
}

}  // namespace palpate::sim
