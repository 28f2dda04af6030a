#include "sim/haptics/evaluate.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace palpate::sim {

using Eigen::Vector3d;

ContactForce EvaluateLocalModel(const LocalModel& model, const RigidPose& tool_pose, const RigidVelocity& velocity,
                                FrictionState& friction) noexcept {
  ContactForce result;
  std::array<double, kMaxLocalConstraints> normal_force_n;
  Vector3d weighted_arm_W_m = Vector3d::Zero();
  Vector3d weighted_normal = Vector3d::Zero();
  double force_sum_n = 0;
  const Eigen::Matrix3d R_WT = tool_pose.rotation.toRotationMatrix();
  const Eigen::Matrix3d R_build = model.pose_at_build.rotation.toRotationMatrix();
  const Vector3d travel_m = tool_pose.position_m - model.pose_at_build.position_m;
  for (int i = 0; i < model.constraint_count; ++i) {
    const LocalConstraint& constraint = model.constraints[i];
    const Vector3d arm_W_m = R_WT * constraint.arm_T_m;
    const double penetration_m = constraint.rest_penetration_m - constraint.normal_W.dot(travel_m + arm_W_m - R_build * constraint.arm_T_m);
    normal_force_n[i] = 0;
    if (penetration_m <= 0) continue;
    const double normal_velocity_m_per_s = constraint.normal_W.dot(velocity.linear_m_per_s + velocity.angular_rad_per_s.cross(arm_W_m));
    const double force_n =
        std::max(0.0, constraint.stiffness_n_per_m * penetration_m - constraint.damping_n_s_per_m * normal_velocity_m_per_s);
    normal_force_n[i] = force_n;
    ++result.active_count;
    result.max_penetration_m = std::max(result.max_penetration_m, penetration_m);
    result.force_n += force_n * constraint.normal_W;
    result.torque_n_m += arm_W_m.cross(force_n * constraint.normal_W);
    weighted_arm_W_m += force_n * arm_W_m;
    weighted_normal += force_n * constraint.normal_W;
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
    const Vector3d tangential_m = friction.deflection_m - constraint.normal_W * constraint.normal_W.dot(friction.deflection_m);
    const double wanted_n = kTangentialStiffnessRatio * constraint.stiffness_n_per_m * tangential_m.norm();
    least_excess = std::min(least_excess, bound_n > 0 ? wanted_n / bound_n : std::numeric_limits<double>::infinity());
    if (wanted_n <= 0 || bound_n <= 0) continue;
    const Vector3d force_n = -kTangentialStiffnessRatio * constraint.stiffness_n_per_m * std::min(1.0, bound_n / wanted_n) * tangential_m;
    result.force_n += force_n;
    result.torque_n_m += (R_WT * constraint.arm_T_m).cross(force_n);
  }
  if (least_excess > 1) friction.deflection_m /= least_excess;  // infinite without friction: nothing sticks
  return result;
}

double ModelBlend::NewestWeight(double now_s) const noexcept {
  const double blend_time_s = slots_[newest_].model.blend_time_s;
  if (!(blend_time_s > 0)) return 1;
  return std::clamp((now_s - pushed_at_s_) / blend_time_s, 0.0, 1.0);
}

void ModelBlend::Push(const LocalModel& model, double now_s) noexcept {
  FrictionState friction;
  if (count_ > 0) {
    friction = slots_[newest_].friction;
    const double newest_weight = NewestWeight(now_s);
    for (int age = 0; age < count_; ++age) {
      double& weight = slots_[SlotIndex(age)].weight;
      weight = age == 0 ? newest_weight : weight * (1 - newest_weight);
    }
    while (count_ > 1 && slots_[SlotIndex(count_ - 1)].weight <= 0) --count_;
    if (count_ == kSlots) {
      const double weight = slots_[SlotIndex(count_ - 1)].weight;
      dropped_weight_ = std::max(dropped_weight_, weight);
      slots_[SlotIndex(count_ - 2)].weight += weight;
      --count_;
    }
  }
  newest_ = (newest_ + 1) % kSlots;
  Slot& slot = slots_[newest_];
  slot.model = model;
  slot.friction = friction;
  slot.weight = 0;
  pushed_at_s_ = now_s;
  ++count_;
}

void ModelBlend::Clear() noexcept {
  count_ = 0;
  dropped_weight_ = 0;
}

ContactForce ModelBlend::Evaluate(const RigidPose& tool_pose, const RigidVelocity& velocity, double now_s) noexcept {
  ContactForce blended;
  if (count_ == 0) return blended;
  const double newest_weight = NewestWeight(now_s);
  for (int age = 0; age < count_; ++age) {
    Slot& slot = slots_[SlotIndex(age)];
    const double weight = age == 0 ? newest_weight : slot.weight * (1 - newest_weight);
    const ContactForce force = EvaluateLocalModel(slot.model, tool_pose, velocity, slot.friction);
    blended.force_n += weight * force.force_n;
    blended.torque_n_m += weight * force.torque_n_m;
    if (weight > 0) {
      blended.active_count = std::max(blended.active_count, force.active_count);
      blended.max_penetration_m = std::max(blended.max_penetration_m, force.max_penetration_m);
    }
  }
  if (newest_weight >= 1) count_ = 1;  // the earlier ones will not come back
  return blended;
}

}  // namespace palpate::sim
