#pragma once

#include <array>

#include <Eigen/Core>

#include "sim/haptics/local_model.h"

namespace palpate::sim {

/// Velocity of the tool frame T: of its origin, the tip, and of its rotation, both expressed in W.
struct RigidVelocity {
  Eigen::Vector3d linear_m_per_s = Eigen::Vector3d::Zero();
  Eigen::Vector3d angular_rad_per_s = Eigen::Vector3d::Zero();
};

/// What tissue does to the tool.
struct ContactForce {
  Eigen::Vector3d force_n = Eigen::Vector3d::Zero();     ///< in W
  Eigen::Vector3d torque_n_m = Eigen::Vector3d::Zero();  ///< about the tip, in W
  int active_count = 0;                                  ///< constraints that push
  double max_penetration_m = 0;                          ///< deepest constraint; 0 = none
};

/// Ratio of tangential to normal contact stiffness, Mindlin 1949: 2 (1 - nu) / (2 - nu), at nu = 1/2 (soft tissue hardly changes its
/// volume).
inline constexpr double kTangentialStiffnessRatio = 2.0 / 3.0;

/// Memory of the stick-slip friction of one tool. Default: out of contact.
struct FrictionState {
  Eigen::Vector3d deflection_m = Eigen::Vector3d::Zero();  ///< how far the contact has been dragged since it last stuck, in W
  RigidPose last_pose;
  bool in_contact = false;
};

/// Force of a local model at a tool pose.
///
/// Normal: each constraint has penetration = rest_penetration - n . (X a - X_build a) and pushes with max(0, k penetration - b v_n) while
/// penetration > 0; v_n is the velocity of the contact point along n. It never pulls. Friction: a spring of stiffness 2/3 k per constraint
/// holds the place where the tool stuck; each constraint's friction is at most mu times its normal force, and when all have reached that
/// bound the place follows. One call is one step of the memory in `friction`: call it once per tick, poses in time order. Preconditions:
/// finite input, unit rotations, unit normals. No allocation. Determinism: RUN_TO_RUN. Source: seed thesis Forest 2003, section 8.3, in
/// newtons; friction after the elasto-plastic view of Dupont et al. 2002.
ContactForce EvaluateLocalModel(const LocalModel& model, const RigidPose& tool_pose, const RigidVelocity& velocity,
                                FrictionState& friction) noexcept;

/// The newest models of one tool, blended so that a new one does not make the force jump.
///
/// After a push the new model's weight grows from 0 to 1 over its blend_time_s while the weights of the earlier models shrink alike; all
/// are evaluated at the current pose. When models come slower than the blend time these are the two newest (section 8.3 of the thesis).
/// When they come faster, up to kSlots models are held; then the oldest hands its weight to the next one, which is the only place where a
/// jump is left (its weight is stated by dropped_weight). Not thread-safe. No allocation.
class ModelBlend {
 public:
  static constexpr int kSlots = 4;

  /// Takes a copy of `model` as the newest from `now_s` on. Its friction memory starts as a copy of the previous newest model's.
  /// The first model after construction or Clear blends in from zero force.
  void Push(const LocalModel& model, double now_s) noexcept;

  /// Forgets all models: the force is zero.
  void Clear() noexcept;

  /// Blended force at `tool_pose`. Call once per tick, `now_s` not decreasing.
  ContactForce Evaluate(const RigidPose& tool_pose, const RigidVelocity& velocity, double now_s) noexcept;

  /// The newest model; nullptr before the first push.
  const LocalModel* newest() const noexcept { return count_ > 0 ? &slots_[newest_].model : nullptr; }

  /// Largest weight that a model had when it was dropped, since Clear.
  double dropped_weight() const noexcept { return dropped_weight_; }

 private:
  struct Slot {
    LocalModel model;
    FrictionState friction;
    double weight = 0;  ///< share at the time of the last push
  };
  double NewestWeight(double now_s) const noexcept;
  int SlotIndex(int age) const noexcept { return (newest_ + kSlots - age) % kSlots; }

  std::array<Slot, kSlots> slots_;
  int newest_ = 0;
  int count_ = 0;
  double pushed_at_s_ = 0;
  double dropped_weight_ = 0;
};

}  // namespace palpate::sim
