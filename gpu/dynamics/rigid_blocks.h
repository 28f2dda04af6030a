#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "gpu/base/state_archive.h"
#include "gpu/base/status.h"
#include "gpu/dynamics/joint_frames.h"
#include "gpu/dynamics/rigid_joints.h"
#include "gpu/dynamics/surface_follower.h"
#include "gpu/runtime/buffer.h"
#include "gpu/runtime/queue.h"
#include "gpu/shared/dynamics_types.h"
#include "gpu/shared/rigid_types.h"

namespace palpate::gpu {

/// A rigid body: mass properties, motion at the start, and which vertices of the scene it carries. World frame.
struct RigidBlock {
  uint32_t vertex_begin = 0;  ///< vertices [begin, end) in solver order; fixed ones without tets; rising from block to block
  uint32_t vertex_end = 0;
  uint32_t triangle_begin = 0;  ///< surface triangles [begin, end)
  uint32_t triangle_end = 0;
  double mass_kg = 0;
  std::array<double, 3> center_m{};          ///< of mass
  std::array<double, 9> inertia_kg_m2{};     ///< about the centre of mass, world axes, row by row
  std::array<double, 3> velocity_m_per_s{};  ///< of the centre of mass
  std::array<double, 3> angular_velocity_rad_per_s{};
  double damping_per_s = 0;          ///< d of a force -d m v, at least 0
  double angular_damping_per_s = 0;  ///< d of a moment -d L, at least 0
};

/// What the kernels read of the solver's state; see tissue.cl. The fields about pairs are null where surfaces do not meet.
struct RigidSurroundings {
  const DeviceBuffer<StepParams>* params = nullptr;
  const DeviceBuffer<Float4>* x_start = nullptr;
  const DeviceBuffer<Float4>* y = nullptr;         ///< of vertices that joints hold; null: there are none
  const DeviceBuffer<Float4>* velocity = nullptr;  ///< likewise
  const DeviceBuffer<float>* mass = nullptr;       ///< likewise
  const DeviceBuffer<UInt4>* triangles = nullptr;
  const DeviceBuffer<uint32_t>* triangle_colliders = nullptr;
  const DeviceBuffer<ToolContact>* tool_contacts = nullptr;
  const DeviceBuffer<Collider>* colliders = nullptr;
  const DeviceBuffer<PlaneObstacle>* planes = nullptr;
  const DeviceBuffer<uint32_t>* anchor_begins = nullptr;  ///< null: nothing is held
  const DeviceBuffer<Anchor>* anchors = nullptr;
  const DeviceBuffer<SurfaceParams>* surface_params = nullptr;
  const DeviceBuffer<Float4>* detected = nullptr;
  const DeviceBuffer<float>* clear_m = nullptr;
  const DeviceBuffer<uint32_t>* entry_begins = nullptr;
  const DeviceBuffer<uint32_t>* entries = nullptr;
  const DeviceBuffer<SurfacePair>* pairs = nullptr;
  const DeviceBuffer<PairRow>* rows = nullptr;
  const DeviceBuffer<uint8_t>* is_near = nullptr;
  const DeviceBuffer<Float4>* bounds = nullptr;
  uint64_t pairs_edition = 0;     ///< SurfacePairs::edition()
  uint64_t pairs_listing = 0;     ///< SurfacePairs::listing()
  bool moves_only_rigid = false;  ///< no other vertex moves between the linearisation of the pairs and the bodies' turn
};

/// Rigid bodies in the implicit step of TissueSolver: each is one block of six unknowns that takes Newton steps on the energy of the step
///
///     m / (2 h^2) |c - c*|^2 + 1 / (2 h^2) t^T J t + contact energy,   t = log(R R*^T),
///
/// where (c*, R*) is the pose after free flight and J the inertia there. The angular momentum L is a state: R* turns by it, and a step adds
/// J t / h, the moment of the contacts; so free flight keeps L to rounding, and what two bodies exchange is equal and opposite. All bodies
/// take a step at once and read the others where they were; the block of a pair of two rigid bodies counts double, which bounds its energy
/// from above. Momentum carries a body on from sweep to sweep while forces are along its way. A move is cut short as a whole where a vertex
/// meets one of its separating planes (displacement_bounds.clh), so certified positions stay certified and the body stays rigid. Rotation
/// by incremental angles as in Ferguson et al., "Intersection-free Rigid Body Dynamics", 2021; blocks as in Chen et al., "Vertex Block
/// Descent", 2024; momentum after Nesterov 1983, with the restart of O'Donoghue and Candes 2015; docs/algorithms/rigid_blocks.md.
///
/// Thread: one at a time. Determinism: same input, same bits.
class RigidBlocks final : public SurfaceFollower {
 public:
  /// `rest_m` [vertex_count] in solver order, positions at the start. `frames`: what joints hold besides the bodies, JointFrames::States.
  /// `has_momentum`: sweeps carry bodies without joints on (Nesterov), as long as forces are along the way.
  /// Errors: InvalidArgument naming the block (mass or inertia not positive and finite, ranges, inertia not symmetric), or if there are
  /// neither blocks nor frames.
  static absl::StatusOr<std::unique_ptr<RigidBlocks>> Create(Queue& queue, std::span<const RigidBlock> blocks,
                                                             std::span<const Float4> rest_m, std::span<const RigidBlockState> frames = {},
                                                             bool has_momentum = false);

  /// What joints hold besides rigid bodies, in the order of the frames given to Create.
  struct JointEnds {
    std::span<const JointSetVertices> sets = {};
    std::span<const TissueNurbsJointSet> shell_sets = {};
    std::span<const TissueJointMount> mounts = {};
    std::span<const TissueNurbsShell> shell_models = {};  ///< where there are shell_sets
    NurbsShells* shells = nullptr;                        ///< likewise; a reference is kept
    double dt_s = 0;                                      ///< likewise
  };
  /// Joins bodies, once, before the first step. Errors: those of RigidJoints::Create.
  absl::Status SetJoints(Queue& queue, std::span<const RigidJoint> joints, double dissipation = RigidJoints::kDefaultDissipation) {
    return SetJoints(queue, joints, dissipation, JointEnds{});
  }
  absl::Status SetJoints(Queue& queue, std::span<const RigidJoint> joints, double dissipation, const JointEnds& ends);
  /// After an edit of the layout: the same sets, of other vertices. Precondition: there are joints.
  absl::Status SetJointSets(Queue& queue, std::span<const JointSetVertices> sets) {
    return frames_ ? frames_->SetVertices(queue, sets, *joints_) : absl::OkStatus();
  }
  /// Null: none.
  RigidJoints* joints() { return joints_.get(); }
  /// What joints did in the newest step; empty: there are none. Blocking.
  absl::StatusOr<std::span<const JointReport>> ReadJoints(Queue& queue) {
    return joints_ ? joints_->ReadReports(queue, states_) : std::span<const JointReport>();
  }

  /// Whether joints hold NURBS shells: then these come first, in Predict and in Sweep.
  bool holds_shells() const { return frames_ && frames_->shells() != nullptr; }
  /// Null: joints hold rigid bodies and the world alone.
  JointFrames* frames() { return frames_.get(); }

  uint32_t count() const { return rigid_count_; }  ///< of rigid bodies
  uint32_t vertex_begin() const { return first_vertex_; }
  /// The body that carries the vertex in this slot, if one does.
  std::optional<uint32_t> BlockOf(uint32_t slot) const;
  uint32_t vertex_count() const { return vertex_count_; }
  size_t device_bytes() const { return device_bytes_; }

  /// Back to the state after Create; the vertices as well.
  absl::Status Reset(Queue& queue, const DeviceBuffer<Float4>& x, const DeviceBuffer<uint8_t>& touched);

  /// Takes over poses and motion of the same bodies, whose vertices and triangles may have had other places.
  absl::Status GoOnFrom(Queue& queue, RigidBlocks& old);

  /// Poses and motion. Blocking.
  absl::Status SaveState(Queue& queue, StateWriter& archive);
  absl::Status LoadState(Queue& queue, StateReader& archive);

  /// Sets poses and velocities from vertices: `positions_m` and `velocities_m_per_s` (or empty: at rest) in solver order [vertex_count of
  /// the scene]. The pose is the best fit (Horn 1987), the motion that of least squares; x follows. Host work; for restoring states.
  absl::Status Fit(Queue& queue, std::span<const Float4> positions_m, std::span<const Float4> velocities_m_per_s,
                   const DeviceBuffer<Float4>& x, const DeviceBuffer<uint8_t>& touched);

  /// Before Predict: what the air gives each body in the step. `triangle_drag` [triangle]: AirDrag.
  absl::Status PushByAir(Queue& queue, const RigidSurroundings& scene, const Float4& wind_m_per_s, const DeviceBuffer<float>& triangle_drag,
                         const DeviceBuffer<Float4>& x);

  /// Start of a step: first guess of poses and vertices. Like all calls below, enqueues only.
  absl::Status Predict(Queue& queue, const RigidSurroundings& scene, const DeviceBuffer<Float4>& x, const DeviceBuffer<uint8_t>& touched);

  // SurfaceFollower.
  bool MovesAsWhole(uint32_t slot) const override { return BlockOf(slot).has_value(); }
  FollowedWays ways() const override { return {.movers = movers_, .way_m = way_}; }
  absl::Status Detected(Queue& queue) override;
  absl::Status FilterBegins(Queue& queue) override;
  absl::Status TakeBack(Queue& queue, bool from_start, const DeviceBuffer<float>& shares, const DeviceBuffer<uint32_t>& entry_begins,
                        const DeviceBuffer<Float4>& x, const DeviceBuffer<uint8_t>& touched) override;
  absl::Status TakeBackFromStart(Queue& queue, const DeviceBuffer<float>& shares, const DeviceBuffer<Float4>& x,
                                 const DeviceBuffer<uint8_t>& touched) override {
    return TakeBack(queue, true, shares, no_entries_, x, touched);
  }
  absl::Status RollBack(Queue& queue) override;
  absl::Status Bound(Queue& queue, const DeviceBuffer<uint32_t>& vertex_groups, const DeviceBuffer<float>& reaches,
                     const DeviceBuffer<Float4>& detected, const DeviceBuffer<float>& clear_m, const DeviceBuffer<uint32_t>& entry_begins,
                     const DeviceBuffer<Float4>& bounds, const DeviceBuffer<Float4>& x, const DeviceBuffer<uint8_t>& touched) override;

  /// One Newton step of each body; x follows.
  absl::Status Sweep(Queue& queue, const RigidSurroundings& scene, const DeviceBuffer<Float4>& x, const DeviceBuffer<uint8_t>& touched);
  /// Whether sweeps can have bodies move in the launch that moves tissue (TissueSweeps::RunPhases), with the same bits.
  bool CanMoveInPhases() const { return !joints_ && !frames_ && team_ == 1 && !iterates_; }
  /// Before that: lists of the newest pairs, and what the kernel takes of bodies. Precondition: CanMoveInPhases; surfaces meet.
  absl::Status PreparePhases(Queue& queue, const RigidSurroundings& scene, Kernel& run_phases);
  /// The inertial targets of scene.y were worked out anew: what joints do to them is added again.
  absl::Status PushAgain(Queue& queue, const RigidSurroundings& scene);
  /// End of a step that is kept, at x.
  absl::Status Finish(Queue& queue, const RigidSurroundings& scene, const DeviceBuffer<Float4>& x);

  /// States at the end of the newest step. Blocking.
  absl::StatusOr<std::span<const RigidBlockState>> ReadStates(Queue& queue);
  /// Of rigid bodies, as read last or given since.
  std::span<const RigidBlockState> states() const { return std::span(states_host_).first(rigid_count_); }
  /// Changes velocities and momenta at the end of a step, after ReadStates.
  absl::Status TakeMotion(Queue& queue, std::span<const RigidBlockState> states);

 private:
  RigidBlocks() = default;
  absl::Status ListPairs(Queue& queue, const RigidSurroundings& scene);
  absl::Status GuessJointed(Queue& queue, const RigidSurroundings& scene, const DeviceBuffer<Float4>& x,
                            const DeviceBuffer<uint8_t>& touched);
  absl::Status MoveJointed(Queue& queue, const RigidSurroundings& scene, const DeviceBuffer<Float4>& x,
                           const DeviceBuffer<uint8_t>& touched);
  absl::Status TakeStates(Queue& queue, const std::vector<RigidBlockState>& states);
  absl::Status Place(Queue& queue, const DeviceBuffer<uint32_t>& begins, const DeviceBuffer<Float4>& x,
                     const DeviceBuffer<uint8_t>& touched);
  Range Bodies() const { return {states_host_.size(), body_group_}; }
  /// Of kernels that give a group to each body.
  Range Groups(size_t bodies) const { return {bodies * team_, team_}; }
  uint32_t body_count() const { return static_cast<uint32_t>(states_host_.size()); }  // with frames

  uint32_t rigid_count_ = 0;
  uint32_t first_vertex_ = 0;
  uint32_t vertex_count_ = 0;
  uint32_t vertex_group_ = 1;
  uint32_t body_group_ = 1;
  uint32_t team_ = 1;  // work-items of a body, body_group.clh
  size_t device_bytes_ = 0;
  std::vector<RigidBlockState> initial_, states_host_;              // rigid bodies, then frames
  std::vector<Float4> local_m_;                                     // [vertex_count_], frame B
  uint64_t listed_edition_ = std::numeric_limits<uint64_t>::max();  // of the planes in own_; the largest: none
  uint64_t listing_ = std::numeric_limits<uint64_t>::max();         // of the pairs in own_pairs_; the largest: none
  Kernel push_by_air_, predict_, place_, detected_, goal_, take_back_, bound_, list_pairs_, solve_, move_jointed_, share_jointed_,
      bound_jointed_, inertia_jointed_, finish_, roll_back_;
  std::unique_ptr<RigidJoints> joints_;  // null: none
  std::unique_ptr<JointFrames> frames_;  // null: none
  DeviceBuffer<RigidBlockState> states_;
  DeviceBuffer<uint32_t> block_of_;
  DeviceBuffer<uint32_t> movers_;        // [vertices of the scene] 1 + body, 0: none
  DeviceBuffer<float> way_;              // [1 + body]
  DeviceBuffer<uint32_t> own_pairs_;     // see rigid_list_pairs
  DeviceBuffer<RigidPairs> own_;         // [body]
  DeviceBuffer<uint32_t> no_entries_;    // begins of no pairs, where surfaces do not meet
  DeviceBuffer<Float4> local_;           // [vertices of the scene]
  DeviceBuffer<RigidIterate> iterates_;  // [body] of this step; empty without momentum
};

}  // namespace palpate::gpu
