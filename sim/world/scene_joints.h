#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "gpu/dynamics/tissue_solver.h"
#include "sim/scene/description.h"
#include "sim/scene/edit.h"
#include "sim/world/frame.h"
#include "sim/world/tool_rack.h"

namespace palpate::sim {

/// Whether drive and limits of a joint are in range and such as its kind has. Errors: InvalidArgument naming the field.
absl::Status CheckJointCoordinate(const JointDescription& joint);

/// Vertices of deformable bodies that joints hold, each set once.
struct JointSetDescription {
  uint32_t body = 0;                   ///< place in SceneDescription::bodies
  std::span<const uint32_t> vertices;  ///< of its mesh, as the description has them
  size_t joint = 0;                    ///< the first that holds it, for messages
  bool is_a = false;                   ///< as its A
};

/// What the solver has of joints.
struct JointModel {
  std::vector<gpu::RigidJoint> joints;
  std::vector<JointSetDescription> sets;             ///< in the order in which `joints` counts them, after the rigid bodies
  std::vector<gpu::TissueNurbsJointSet> shell_sets;  ///< of NURBS shells, after the sets
  std::vector<gpu::TissueJointMount> mounts;         ///< of tools, after these
};

/// The joints of a scene: what they hold and how they are driven, as described and as edits leave it; which ones broke.
class SceneJoints {
 public:
  /// Keeps a reference.
  explicit SceneJoints(const SceneDescription& description) : description_(description) {}

  /// The solver's joints as described, which must outlive it. Errors: InvalidArgument naming joint and field.
  static absl::StatusOr<JointModel> ModelOf(const SceneDescription& description);

  void Reset();
  /// From the next step on. Precondition: CheckJointCoordinate passes with the change.
  void Apply(const JointEdit& edit);
  /// After an edit of the meshes: joints of sets of which too little is left hold no more until the scene is reset.
  void FollowEdits(const gpu::TissueModel& model);
  /// Before a step that ends at `end_s`: drives and motions go to the solver, and where tools carry joints. Errors: those of
  /// TissueSolver::SetJointRows and SetJointMount.
  absl::Status Drive(gpu::TissueSolver& solver, double end_s, const ToolRack& rack);
  /// After a step: what the joints did; those that bore more than they can let go in the next one.
  void Follow(std::span<const gpu::JointReport> reports);
  /// Gives tools what Follow found, after ToolRack::Follow.
  void PushTools(ToolRack* rack) const;
  const std::vector<FrameJoint>& frame() const { return frame_; }

  template <typename Archive>
  void VisitState(Archive& archive) {
    [[maybe_unused]] auto& [description, mounts, states, frame] = *this;
    archive.Enter("SceneJoints");
    archive(states, frame);
    archive.Check(states.size() == description.joints.size() && frame.size() == states.size(), "another number of joints");
  }

 private:
  struct State {
    JointDriveDescription drive;
    double lower = 0, upper = 0;
    bool is_released = false;

    template <typename Archive>
    void VisitState(Archive& archive) {
      auto& [kind, speed, max_effort, target, stiffness, damping, times, targets] = drive;
      archive(kind, speed, max_effort, target, stiffness, damping, times, targets, lower, upper, is_released);
    }
  };
  static std::array<gpu::RigidJointRow, 6> RowsOf(const JointDescription& joint, const State& state, double time_s);

  const SceneDescription& description_;
  std::vector<uint32_t> mounts_;  // tools, as JointModel has them
  std::vector<State> states_;
  std::vector<FrameJoint> frame_;
};

}  // namespace palpate::sim
