#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "gpu/base/state_archive.h"
#include "gpu/base/status.h"
#include "gpu/dynamics/nurbs_joint_frames.h"
#include "gpu/dynamics/rigid_joints.h"
#include "gpu/dynamics/tissue_layout.h"
#include "gpu/runtime/buffer.h"
#include "gpu/runtime/queue.h"
#include "gpu/shared/dynamics_types.h"
#include "gpu/shared/joint_types.h"
#include "gpu/shared/rigid_types.h"

namespace palpate::gpu {

struct RigidSurroundings;

/// Whether points tell how what carries them turns: three or more that do not lie on a line, to 1e-3 of their extent.
bool SpanAPlane(std::span<const std::array<double, 3>> points);

/// Vertices of tissue or of a shell that joints hold, as the solver has them.
struct JointSetVertices {
  struct Vertex {
    uint32_t slot = 0;
    std::array<double, 3> rest_m{};             ///< from the frame's origin
    double mass_kg = 0;                         ///< above 0
    std::array<double, 9> stiffness_n_per_m{};  ///< what resists its move in a sweep: inertia and elasticity at rest; symmetric, row by row
  };
  std::array<double, 3> origin_m{};  ///< of the frame at rest, whose axes are those of the world then
  std::vector<Vertex> vertices;

  bool CanBeFitted() const;  ///< SpanAPlane, at rest
};

/// The sets of `model` in its layout.
std::vector<JointSetVertices> JointSetsOf(const TissueModel& model, const TissueLayout& layout, double dt_s);

/// Ends of joints that are no rigid bodies. To RigidJoints they look like bodies: after the last rigid one come the sets, then those of
/// NURBS shells (NurbsJointFrames), then the mounts.
///
/// A set of vertices has the frame that fits them best (weights: their masses). In a sweep, vertices first go where their own energies are
/// least under the efforts of the joints so far. Then the joints are solved with the sets as bodies, whose blocks are the sums of those of
/// the vertices, and each set moves as a whole. So joints hold to rounding, whatever the tissue does, and efforts converge with the sweeps:
/// an augmented Lagrangian method whose penalty is the stiffness of the vertices. Efforts act as forces on the vertices that work on
/// the motion of the frame alone, by virtual work. Where planes stop vertices, these stay behind, and efforts grow by the mean share.
/// A mount has a pose that is given for the end of each step: an instrument. One on a coupling is a body in the joints' systems, with the
/// mass, spring and damper of the tool, whose own copy in ToolContacts gets the forces from the caller.
///
/// The set is one work-item. Determinism: same input, same bits. docs/algorithms/joints.md, "Tissue and instruments".
class JointFrames {
 public:
  /// States for the places after `rigid_count` bodies. Sets that cannot be fitted stay where they are.
  static std::vector<RigidBlockState> States(std::span<const JointSetVertices> sets, std::span<const std::array<double, 3>> shell_origins_m,
                                             std::span<const TissueJointMount> mounts);
  /// How many of the mounts joints can move. Errors: InvalidArgument (a mount, by number and field).
  static absl::StatusOr<size_t> CountCoupled(std::span<const TissueJointMount> mounts);

  static absl::StatusOr<std::unique_ptr<JointFrames>> Create(Queue& queue, std::span<const JointSetVertices> sets,
                                                             std::span<const TissueJointMount> mounts, uint32_t rigid_count,
                                                             std::unique_ptr<NurbsJointFrames> shells = nullptr);
  /// After RigidJoints were made, and after each edit of the layout, with as many sets.
  absl::Status SetVertices(Queue& queue, std::span<const JointSetVertices> sets, const RigidJoints& joints);

  uint32_t set_count() const { return static_cast<uint32_t>(sets_host_.size()); }
  /// Null: no joint holds a NURBS shell.
  NurbsJointFrames* shells() { return shells_.get(); }
  uint32_t mount_count() const { return static_cast<uint32_t>(mounts_host_.size()); }

  /// Of a mount at the end of the next step: centre [m], rotation (x y z w), and what force [N] else acts on one with a coupling. To be
  /// given before each step.
  void SetMount(size_t mount, const std::array<double, 3>& center_m, const Float4& rotation, const std::array<double, 3>& force_n);
  /// Mounts as at the start.
  void Reset() { mounts_host_ = initial_mounts_; }
  void GoOnFrom(const JointFrames& old) { mounts_host_ = old.mounts_host_; }
  void SaveState(StateWriter& archive) const;
  absl::Status LoadState(StateReader& archive);

  // Within a step; they enqueue only. `blocks`: of all bodies.
  /// Before the free flights: frames and motion of sets at the start.
  absl::Status Begin(Queue& queue, const RigidSurroundings& scene, const DeviceBuffer<RigidBlockState>& blocks);
  /// Around the first guess, which moves sets to where joints want them before their vertices could answer: efforts stay as they were.
  absl::Status KeepEfforts(Queue& queue, const RigidJoints& joints, bool is_back);
  /// After the free flights: mounts to their poses.
  absl::Status PlaceMounts(Queue& queue, const RigidSurroundings& scene, const DeviceBuffer<RigidBlockState>& blocks);
  /// Frames of sets at x, and with `systems` their blocks and those of mounts, after those of rigid bodies and before RigidJoints::Solve.
  absl::Status Fit(Queue& queue, const RigidSurroundings& scene, const DeviceBuffer<Float4>& x, const DeviceBuffer<RigidBlockState>& blocks,
                   const DeviceBuffer<JointBodySystem>* systems);
  /// After RigidJoints::Solve: shares that planes leave, if scene has any.
  absl::Status Share(Queue& queue, const RigidSurroundings& scene, const DeviceBuffer<Float4>& x,
                     const DeviceBuffer<JointBodySystem>& systems);
  /// After the shares of groups are known.
  absl::Status Move(Queue& queue, const RigidSurroundings& scene, const DeviceBuffer<Float4>& x, const DeviceBuffer<uint8_t>& touched,
                    const DeviceBuffer<JointBodySystem>& systems);
  /// The inertial targets of scene.y are those without joints.
  absl::Status Note(Queue& queue, const RigidSurroundings& scene);
  /// Adds what joints do to them; after Fit.
  absl::Status Push(Queue& queue, const RigidSurroundings& scene, const RigidJoints& joints);

 private:
  JointFrames() = default;
  Range Sets() const { return {sets_host_.size(), group_}; }
  Range Vertices() const { return {vertex_count_, group_}; }
  uint32_t first_mount() const { return rigid_count_ + set_count() + (shells_ ? shells_->count() : 0); }

  uint32_t group_ = 1;  // work-items
  uint32_t rigid_count_ = 0;
  uint32_t vertex_count_ = 0;
  std::vector<JointSet> sets_host_;
  std::vector<JointMount> initial_mounts_, mounts_host_;
  std::unique_ptr<NurbsJointFrames> shells_;  // null: none
  Kernel fit_, share_, move_, note_, push_, efforts_, place_mounts_, mount_systems_;
  DeviceBuffer<JointSet> sets_;
  DeviceBuffer<uint32_t> vertices_, owners_, ends_;
  DeviceBuffer<Float4> rest_, y_free_;
  DeviceBuffer<JointMount> mounts_;
  DeviceBuffer<double> fits_, kept_;
};

}  // namespace palpate::gpu
