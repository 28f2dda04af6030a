#include "sim/haptics/evaluate.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "sim/haptics/curved_gap.h"

namespace palpate::sim {

using Eigen::Vector3d;

namespace {

// How fast the estimated time between models follows what is seen.
constexpr double kPeriodGrowth = 1.25;
constexpr double kPeriodShrink = 0.8;

}  // namespace

ContactForce EvaluateLocalModel(const LocalModel& model, const RigidPose& tool_pose, const RigidVelocity& velocity,
                                FrictionState& friction) noexcept {
  ContactForce result;
  std::array<double, kMaxLocalConstraints> normal_force_n;
  std::array<Vector3d, kMaxLocalConstraints> normals_W;
  Vector3d weighted_arm_W_m = Vector3d::Zero();
  Vector3d weighted_normal = Vector3d::Zero();
  double force_sum_n = 0;
  const Eigen::Matrix3d R_WT = tool_pose.rotation.toRotationMatrix();
  const Eigen::Matrix3d R_build = model.pose_at_build.rotation.toRotationMatrix();
  const Vector3d travel_m = tool_pose.position_m - model.pose_at_build.position_m;
  for (int i = 0; i < model.constraint_count; ++i) {
    const LocalConstraint& constraint = model.constraints[i];
    const Vector3d arm_W_m = R_WT * constraint.arm_T_m;
    const Vector3d way_m = travel_m + arm_W_m - R_build * constraint.arm_T_m;
    Vector3d& normal_W = normals_W[i];
    normal_W = constraint.normal_W;
    double penetration_m = constraint.rest_penetration_m;
    if (constraint.is_curved()) {
      const CurvedGap gap = FollowGap(constraint.normal_W, constraint.curvature_per_m, way_m);
      penetration_m -= gap.change_m;
      normal_W = gap.normal;
    } else {
      penetration_m -= constraint.normal_W.dot(way_m);
    }
    normal_force_n[i] = 0;
    if (penetration_m <= 0) continue;
    const double normal_velocity_m_per_s = normal_W.dot(velocity.linear_m_per_s + velocity.angular_rad_per_s.cross(arm_W_m));
    const double force_n =
        std::max(0.0, constraint.stiffness_n_per_m * penetration_m - constraint.damping_n_s_per_m * normal_velocity_m_per_s);
    normal_force_n[i] = force_n;
    ++result.active_count;
    result.max_penetration_m = std::max(result.max_penetration_m, penetration_m);
    result.elastic_energy_j += 0.5 * constraint.stiffness_n_per_m * penetration_m * penetration_m;
    result.force_n += force_n * normal_W;
    result.torque_n_m += arm_W_m.cross(force_n * normal_W);
    weighted_arm_W_m += force_n * arm_W_m;
    weighted_normal += force_n * normal_W;
    force_sum_n += force_n;
  }

  if (force_sum_n <= 0) {
    friction = FrictionState{.last_pose = tool_pose};
    return result;
  }
  const Vector3d centre_T_m = R_WT.transpose() * (weighted_arm_W_m / force_sum_n);
  if (friction.in_contact) {
    friction.deflection_m +=
        tool_pose.position_m + R_WT * centre_T_m - friction.last_pose.position_m - friction.last_pose.rotation * centre_T_m;
  }
  friction.in_contact = true;
  friction.last_pose = tool_pose;
  // Pressing in is not sliding. Between opposed walls there is no common normal, and motion along any wall is sliding.
  const double normal_norm_n = weighted_normal.norm();
  if (normal_norm_n > 0.5 * force_sum_n) {
    const Vector3d normal = weighted_normal / normal_norm_n;
    friction.deflection_m -= normal * normal.dot(friction.deflection_m);
  }

  // How far the deflection exceeds what the best-holding constraint can hold.
  double least_excess = std::numeric_limits<double>::infinity();
  for (int i = 0; i < model.constraint_count; ++i) {
    if (normal_force_n[i] <= 0) continue;
    const LocalConstraint& constraint = model.constraints[i];
    const double bound_n = constraint.friction * normal_force_n[i];
    const Vector3d tangential_m = friction.deflection_m - normals_W[i] * normals_W[i].dot(friction.deflection_m);
    const double wanted_n = kTangentialStiffnessRatio * constraint.stiffness_n_per_m * tangential_m.norm();
    least_excess = std::min(least_excess, bound_n > 0 ? wanted_n / bound_n : std::numeric_limits<double>::infinity());
    if (wanted_n <= 0 || bound_n <= 0) continue;
    const Vector3d force_n = -kTangentialStiffnessRatio * constraint.stiffness_n_per_m * std::min(1.0, bound_n / wanted_n) * tangential_m;
    result.force_n += force_n;
    result.torque_n_m += (R_WT * constraint.arm_T_m).cross(force_n);
    result.elastic_energy_j -= 0.5 * force_n.dot(tangential_m);
  }
  if (least_excess > 1) friction.deflection_m /= least_excess;  // infinite without friction: nothing sticks
  return result;
}

void ModelBlend::MergeNearest() noexcept {
  // The older of the pair hands its weight to the younger. The newest has no weight yet, neither to give nor to add to.
  int best = 2;
  double best_step_n = std::numeric_limits<double>::infinity();
  for (int age = 1; age + 1 < count_; ++age) {
    const double step_n = SlotOfAge(age + 1).weight * (SlotOfAge(age + 1).force.force_n - SlotOfAge(age).force.force_n).norm();
    if (step_n < best_step_n) {
      best_step_n = step_n;
      best = age + 1;
    }
  }
  Slot& older = SlotOfAge(best);
  Slot& younger = SlotOfAge(best - 1);
  merge_step_n_ = std::max(merge_step_n_, best_step_n);
  merge_energy_j_ += older.weight * (younger.force.elastic_energy_j - older.force.elastic_energy_j);
  younger.weight += older.weight;
  const int freed = order_[best];
  for (int age = best; age + 1 < count_; ++age) order_[age] = order_[age + 1];
  order_[--count_] = freed;
}

void ModelBlend::Push(const LocalModel& model, double now_s) noexcept {
  const double gap_s = now_s - pushed_at_s_;
  period_s_ = count_ == 0 ? model.blend_time_s : std::clamp(gap_s, kPeriodShrink * period_s_, kPeriodGrowth * period_s_);
  period_s_ = std::max(period_s_, model.blend_time_s);
  FrictionState friction;
  ContactForce force;
  if (count_ > 0) {
    friction = SlotOfAge(0).friction;
    force = SlotOfAge(0).force;
    SlotOfAge(0).weight = share_;
    for (int age = 1; age < count_; ++age) SlotOfAge(age).weight *= 1 - share_;
    while (count_ > 1 && SlotOfAge(count_ - 1).weight <= 0) --count_;
  }
  const int free = order_[count_];  // there always is one, see below
  for (int age = count_++; age > 0; --age) order_[age] = order_[age - 1];
  order_[0] = free;
  Slot& slot = slots_[free];
  slot.model = model;
  slot.friction = friction;
  slot.force = force;
  slot.weight = 0;
  share_ = 0;
  pushed_at_s_ = now_s;
  evaluated_at_s_ = now_s;
  if (count_ == kSlots) MergeNearest();
}

void ModelBlend::Clear() noexcept {
  count_ = 0;
  share_ = 0;
  period_s_ = 0;
  merge_energy_j_ = 0;
  merge_step_n_ = 0;
}

ContactForce ModelBlend::Evaluate(const RigidPose& tool_pose, const RigidVelocity& velocity, double now_s) noexcept {
  ContactForce blended;
  if (count_ == 0) return blended;
  ContactForce earlier;  // what the models before the newest say together
  for (int age = 0; age < count_; ++age) {
    Slot& slot = SlotOfAge(age);
    slot.force = EvaluateLocalModel(slot.model, tool_pose, velocity, slot.friction);
    if (age == 0) continue;
    earlier.force_n += slot.weight * slot.force.force_n;
    earlier.torque_n_m += slot.weight * slot.force.torque_n_m;
    earlier.elastic_energy_j += slot.weight * slot.force.elastic_energy_j;
    if (slot.weight > 0) {
      earlier.active_count = std::max(earlier.active_count, slot.force.active_count);
      earlier.max_penetration_m = std::max(earlier.max_penetration_m, slot.force.max_penetration_m);
    }
  }
  const ContactForce& newest = SlotOfAge(0).force;
  const double blend_time_s = SlotOfAge(0).model.blend_time_s > 0 ? period_s_ : 0;
  double growth = 1 - share_;
  if (blend_time_s > 0) growth = std::clamp((now_s - evaluated_at_s_) / blend_time_s, 0.0, growth);
  evaluated_at_s_ = now_s;
  if (blend_time_s > 0) {
    const double force_step_n = (newest.force_n - earlier.force_n).norm();
    const double torque_step_n_m = (newest.torque_n_m - earlier.torque_n_m).norm();
    if (growth * force_step_n > limits_.force_step_n) growth = limits_.force_step_n / force_step_n;
    if (growth * torque_step_n_m > limits_.torque_step_n_m) growth = limits_.torque_step_n_m / torque_step_n_m;
  }
  // Rounding must not leave an earlier model alive for ever.
  share_ = share_ + growth > 1 - 1e-12 ? 1 : share_ + growth;
  blended.force_n = share_ * newest.force_n + (1 - share_) * earlier.force_n;
  blended.torque_n_m = share_ * newest.torque_n_m + (1 - share_) * earlier.torque_n_m;
  blended.elastic_energy_j = share_ * newest.elastic_energy_j + (1 - share_) * earlier.elastic_energy_j;
  blended.model_energy_j = growth * (newest.elastic_energy_j - earlier.elastic_energy_j) + merge_energy_j_;
  merge_energy_j_ = 0;
  if (share_ > 0) {
    blended.active_count = newest.active_count;
    blended.max_penetration_m = newest.max_penetration_m;
  }
  if (share_ < 1) {
    blended.active_count = std::max(blended.active_count, earlier.active_count);
    blended.max_penetration_m = std::max(blended.max_penetration_m, earlier.max_penetration_m);
  }
  if (share_ >= 1) count_ = 1;  // the earlier ones will not come back
  return blended;
}

}  // namespace palpate::sim
