#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include <Eigen/Core>

#include "gpu/base/state_archive.h"
#include "gpu/base/status.h"
#include "gpu/dynamics/rigid_joint_types.h"
#include "gpu/runtime/buffer.h"
#include "gpu/runtime/queue.h"
#include "gpu/shared/dynamics_types.h"
#include "gpu/shared/joint_types.h"
#include "gpu/shared/rigid_types.h"

namespace palpate::gpu {

/// What resists the motion of a pair of bodies together, beside their joints: the same block for both orders of the two.
struct JointCouplingBlock {
  uint32_t body = 0, other = 0;   ///< of the bodies with joints; may be the same
  Eigen::Matrix<double, 6, 6> h;  ///< [N/m], [N m] in W; rows: motion of `body`, columns: of `other`
};

/// Bodies that joints connect, in the order in which they and the joints are eliminated: see JointNode. Public for tests.
struct JointPlan {
  std::vector<uint32_t> members;  ///< bodies that have joints, ascending
  std::vector<JointGroup> groups;
  std::vector<JointNode> nodes;
  std::vector<UInt2> below;  ///< node, block
  std::vector<uint32_t> targets;
  std::vector<uint32_t> joint_order;     ///< group by group
  std::vector<JointPlace> places;        ///< of each joint
  std::vector<JointCoupling> couplings;  ///< group by group
  std::vector<uint32_t> coupling_order;  ///< of each of these, its place among those given
  uint32_t block_count = 0;

  /// Bodies from `body_count` on move by themselves: to the plan they are the world. Precondition: no joint has that at both ends, or one
  /// body twice.
  static JointPlan Of(std::span<const RigidJoint> joints, size_t body_count, std::span<const JointCouplingBlock> couplings = {});
  /// Its place among `members`; nothing: it has no joint.
  std::optional<uint32_t> MemberOf(uint32_t body) const;
  /// The joints of a member, in their order: twice the joint, plus 1 where it is body B.
  void AppendEnds(uint32_t member, std::vector<uint32_t>* ends) const;
};

/// Joints between rigid bodies, inside the sweeps of RigidBlocks. In each sweep all bodies and joints of a connected group are solved as
/// one system, by an exact factorisation in double: hard constraints with their efforts as unknowns, no penalties. So a joint holds
/// whatever it carries, at any ratio of masses, after as many sweeps as Newton's method needs; chains and closed loops too. Springs and
/// dampers are compliant rows of the same system. Limits and motors switch rows between sweeps.
///
/// What efforts do to the bodies is a mean of the Jacobians at three times (Newmark's average acceleration): swings keep their energy, and
/// no stiffness makes a step unstable. `dissipation` d in [0, 1] damps what is faster than steps can show: weights (1 + d)^2 / 4 and so on.
///
/// Where contact cuts the move of a body short, its whole group goes that share of the way, and efforts with it. Joints may be off until
/// later steps then; JointReport tells how far. The group is one work-item. Cost of a sweep: about 1,500 flops a body and joint where they
/// form trees. Sources: D. Baraff, "Linear-time dynamics using Lagrange multipliers", SIGGRAPH 1996 (ordering of the system); N. M.
/// Newmark, 1959, and Hilber, Hughes, Taylor, 1977 (weights); efforts as unknowns beside a primal block as in M. Macklin et al.,
/// "Primal/dual descent methods for dynamics", 2020; docs/algorithms/joints.md. Determinism: same input, same bits.
class RigidJoints {
 public:
  /// How many bodies of which kind there are, in this order.
  struct BodyCounts {
    size_t rigid = 0, sets = 0, coupled = 0, mounts = 0;  ///< mounts: those that nothing moves
  };
  static constexpr double kDefaultDissipation = 0.02;

  /// `states`: of the bodies at the start, rigid ones first, then those of JointFrames. Of bodies with `couplings` these are their blocks,
  /// and add to those of systems(). Errors: InvalidArgument naming the joint; Unimplemented (a device without double precision).
  static absl::StatusOr<std::unique_ptr<RigidJoints>> Create(Queue& queue, std::span<const RigidJoint> joints,
                                                             std::span<const RigidBlockState> states, double dissipation,
                                                             const BodyCounts& counts, std::span<const JointCouplingBlock> couplings = {});

  uint32_t count() const { return static_cast<uint32_t>(data_.size()); }
  const JointPlan& plan() const { return plan_; }
  size_t device_bytes() const { return device_bytes_; }
  const DeviceBuffer<JointBodySystem>& systems() const { return systems_; }
  /// [member]
  const DeviceBuffer<uint32_t>& group_of() const { return group_of_; }
  /// [group] bits of the share of their moves that its bodies may go: 1 after Solve, then the least that was found.
  const DeviceBuffer<uint32_t>& group_shares() const { return group_shares_; }
  const DeviceBuffer<uint32_t>& members() const { return members_; }
  const DeviceBuffer<JointScheme>& scheme() const { return scheme_; }
  const DeviceBuffer<JointPlace>& places() const { return places_; }
  const DeviceBuffer<double>& reals() const { return reals_; }              ///< see joint_rows.clh
  const DeviceBuffer<uint32_t>& row_states() const { return row_states_; }  ///< likewise

  /// From the next step on. Errors: InvalidArgument (no such joint; a row, by number and field).
  absl::Status SetRows(uint32_t joint, const std::array<RigidJointRow, 6>& rows);
  const std::array<RigidJointRow, 6>& rows(uint32_t joint) const { return rows_[joint]; }
  /// New blocks of the same couplings, from the next solve on.
  absl::Status SetCouplings(Queue& queue, std::span<const JointCouplingBlock> couplings);
  /// Rows as at Create, and no history.
  absl::Status Reset(Queue& queue);
  /// The next step has no step before it.
  void Forget() { has_history_ = false; }
  /// Takes over rows and history of the same joints.
  absl::Status GoOnFrom(Queue& queue, RigidJoints& old);
  absl::Status SaveState(Queue& queue, StateWriter& archive);
  absl::Status LoadState(Queue& queue, StateReader& archive);

  // Within a step; they enqueue only. `blocks`: of the bodies.
  absl::Status Begin(Queue& queue, const DeviceBuffer<StepParams>& params, const DeviceBuffer<RigidBlockState>& blocks);
  /// systems(): from blocks and forces to moves. group_shares(): 1.
  absl::Status Solve(Queue& queue, const DeviceBuffer<StepParams>& params, const DeviceBuffer<RigidBlockState>& blocks);

  /// End of the step, kept or rolled back: from here on GoOnFrom and SaveState find all that the next one needs.
  absl::Status Finish(Queue& queue, const DeviceBuffer<RigidBlockState>& blocks);

  /// The least of the shares [vertex] of a group's bodies becomes that of all of them.
  absl::Status ShareOfGroups(Queue& queue, const DeviceBuffer<RigidBlockState>& blocks, const DeviceBuffer<float>& shares);

  /// The least share of the bodies of a group, in systems(), becomes that of all of them, and the group's.
  absl::Status LeastOfGroups(Queue& queue);

  /// Of the newest step; changes nothing. Blocking.
  absl::StatusOr<std::span<const JointReport>> ReadReports(Queue& queue, const DeviceBuffer<RigidBlockState>& blocks);

  /// Locked coordinates that join a body to the world, as rows over (velocity of its centre, angular velocity) in world axes.
  std::vector<Eigen::Matrix<double, 6, 1>> WorldRows(uint32_t body, const RigidBlockState& state) const;

  /// Errors: InvalidArgument naming field and range.
  static absl::Status CheckRow(const RigidJointRow& row);

 private:
  RigidJoints() = default;
  absl::Status MakeBuffers(Queue& queue, std::span<const JointCouplingBlock> couplings);
  absl::Status MakeKernels(Queue& queue);
  absl::Status WriteData(Queue& queue);

  JointPlan plan_;
  std::vector<JointData> initial_, data_;
  std::vector<std::array<RigidJointRow, 6>> initial_rows_, rows_;
  JointScheme scheme_host_{};
  bool has_history_ = false;
  bool must_write_ = false;  // data_, before the next step
  std::vector<JointReport> reports_host_;
  uint32_t group_ = 1;  // work-items
  size_t device_bytes_ = 0;
  Kernel begin_, solve_, finish_, report_, share_, least_;
  DeviceBuffer<JointScheme> scheme_;
  DeviceBuffer<JointData> joints_;
  DeviceBuffer<JointPlace> places_;
  DeviceBuffer<JointGroup> groups_;
  DeviceBuffer<JointNode> nodes_;
  DeviceBuffer<UInt2> below_;
  DeviceBuffer<uint32_t> targets_, joint_order_, members_, row_states_;
  DeviceBuffer<double> reals_, diagonals_, blocks_, lower_, unknowns_;
  DeviceBuffer<JointCoupling> couplings_;
  DeviceBuffer<double> coupling_h_;  // [coupling][36]
  DeviceBuffer<JointBodySystem> systems_;
  DeviceBuffer<uint32_t> group_of_, group_shares_;
  DeviceBuffer<JointReport> reports_;
};

}  // namespace palpate::gpu
