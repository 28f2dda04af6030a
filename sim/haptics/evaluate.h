#pragma once

#include <array>
#include <limits>

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
  double elastic_energy_j = 0;                           ///< in the springs of walls and friction: what the contact can give back
  double model_energy_j = 0;  ///< of that, what the change of models put in at this call, the tool standing still; only from ModelBlend
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
/// finite input, unit rotations, unit normals. No allocation. Determinism: RUN_TO_RUN. Source: Forest 2003, section 8.3, in
/// newtons; friction after the elasto-plastic view of Dupont et al. 2002.
ContactForce EvaluateLocalModel(const LocalModel& model, const RigidPose& tool_pose, const RigidVelocity& velocity,
                                FrictionState& friction) noexcept;

/// Largest change that new models may make to the blended force from one call of ModelBlend::Evaluate to the next; > 0.
struct BlendLimits {
  double force_step_n = std::numeric_limits<double>::infinity();
  double torque_step_n_m = std::numeric_limits<double>::infinity();
};

/// The newest models of one tool, blended so that a new one does not make the force jump.
///
/// After a push the new model's share grows from 0 to 1 over its blend_time_s, or over the time in which models really come if that is
/// longer; the weights of the earlier models shrink alike. All are evaluated at the current pose, so the force follows the hand at once.
/// When models come slower than the blend time these are the two newest (Forest 2003, section 8.3). The share grows slower still where a
/// step of it would change the force by more than BlendLimits: the limit holds for what models change, not for the hand's own motion.
/// When models come before a blend is over, up to kSlots are held; then the two neighbours that differ least become one, which is the
/// only place where a jump is left (stated by merge_step_n). A blend time of 0 switches blending off. Not thread-safe. No allocation.
class ModelBlend {
 public:
  static constexpr int kSlots = 6;

  explicit ModelBlend(const BlendLimits& limits = {}) noexcept : limits_(limits) {}

  /// Takes a copy of `model` as the newest from `now_s` on. Its friction memory starts as a copy of the previous newest model's.
  /// The first model after construction or Clear blends in from zero force.
  void Push(const LocalModel& model, double now_s) noexcept;

  /// Forgets all models: the force is zero.
  void Clear() noexcept;

  /// Blended force at `tool_pose`. Call once per tick, `now_s` not decreasing.
  ContactForce Evaluate(const RigidPose& tool_pose, const RigidVelocity& velocity, double now_s) noexcept;

  /// The newest model; nullptr before the first push.
  const LocalModel* newest() const noexcept { return count_ > 0 ? &slots_[order_[0]].model : nullptr; }

  /// Time between models as they come; at least the newest one's blend time. One late model changes it by a quarter, so an outage does
  /// not pass for a slow scene. 0 before the first push.
  double period_s() const noexcept { return period_s_; }

  /// Largest change of the force that the merging of two models has made, since Clear.
  double merge_step_n() const noexcept { return merge_step_n_; }

 private:
  struct Slot {
    LocalModel model;
    FrictionState friction;
    double weight = 0;   ///< among the earlier models; of the newest: unused, its share is share_
    ContactForce force;  ///< at the last Evaluate
  };
  Slot& SlotOfAge(int age) noexcept { return slots_[order_[age]]; }
  void MergeNearest() noexcept;

  BlendLimits limits_;
  std::array<Slot, kSlots> slots_;
  std::array<int, kSlots> order_ = {0, 1, 2, 3, 4, 5};  ///< slots by age, newest first; free ones behind count_
  int count_ = 0;
  double share_ = 0;  ///< of the newest model
  double evaluated_at_s_ = 0;
  double pushed_at_s_ = 0;
  double period_s_ = 0;
  double merge_energy_j_ = 0;  ///< since the last Evaluate
  double merge_step_n_ = 0;
};

}  // namespace palpate::sim
