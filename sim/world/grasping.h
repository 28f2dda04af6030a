#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "gpu/base/status.h"
#include "gpu/dynamics/tissue_solver.h"
#include "sim/scene/edit.h"
#include "sim/world/frame.h"
#include "sim/world/scene_surface.h"
#include "sim/world/scene_vertices.h"
#include "sim/world/solver_model.h"
#include "sim/world/tissue_projection.h"
#include "sim/world/tool_rack.h"
#include "sim/world/world_body.h"

namespace palpate::sim {

/// Jaws that turn, take hold and let go, and clips. What they hold are anchors of the solver: those of tools' vertices first, then clips',
/// then those of the projection and of blades. A handle that is held names the vertex that was at that place at rest; of another it is let
/// go.
class Grasping {
 public:
  /// Keeps references; `solver` is where the newest one is.
  Grasping(ToolRack& rack, const std::vector<std::unique_ptr<WorldBody>>& bodies, SceneVertices& vertices, SceneSurface& surface,
           const SolverModel& model, const std::unique_ptr<gpu::TissueSolver>& solver)
      : description_(rack.description()),
        tools_(rack.tools()),
        commands_(rack.commands()),
        targets_(rack.targets()),
        tool_of_collider_(rack.tool_of_collider()),
        bodies_(bodies),
        vertices_(vertices),
        surface_(surface),
        model_(model),
        solver_(solver) {}

  /// What the scene's sutures hold from the start on, which Reset() gives back.
  void SetStitches(std::vector<Clip> stitches) { stitches_ = std::move(stitches); }
  /// Nothing is held but what sutures hold, and there are no clips.
  void Reset();
  /// Before a step: jaws turn, take hold and let go; a clip applier leaves its clip.
  absl::Status MoveJaws(size_t t);
  /// As GraspEdit says. SceneVertices::state must be up to date.
  EditOutcome GraspByRequest(size_t t, double radius_m);
  /// As ReleaseEdit says.
  void Release(size_t t) {
    tools_[t].held.clear();
    tools_[t].closes_to_rad.reset();
  }
  /// Tells the solver what is held, and where. `blades`: anchors that come last.
  absl::Status SetAnchors(const TissueProjection& projection, std::span<const gpu::TissueAnchor> blades);

  /// After a step, in this order: what presses on the jaws, what slipped, where clips are.
  void FollowContacts(const gpu::TissueStep& step);
  void FollowProjected(std::span<const ProjectedContact> projected);
  void FollowAnchors(const gpu::TissueStep& step);

  /// What holds tissue together after that, or after Reset().
  void ListFasteners(Frame* frame) const;

  /// What clips hold; anchors are told to the solver before each step.
  template <typename Archive>
  void VisitState(Archive& archive) {
    [[maybe_unused]] auto& [description, tools, commands, targets, tool_of_collider, bodies, vertices, surface, model, solver, clips,
                            stitches, anchors, frame_clips, frame_stitches] = *this;
    archive.Enter("Grasping");
    archive(clips);
    archive.Check(clips.size() <= gpu::TissueSolver::kMaxClips, "too many clips");
  }

  bool IsAlive(const HeldVertex& held) const;
  const std::vector<gpu::TissueAnchor>& anchors() const { return anchors_; }  ///< as the solver has them

 private:
  Eigen::Vector3d StateOf(VertexHandle handle) const;
  std::vector<VertexHandle> ListGraspable(size_t t, double radius_m) const;
  void PlaceClip(const Clip& clip, const std::vector<Eigen::Vector3d>& points_m);
  void Hold(size_t t, std::vector<VertexHandle> handles);
  bool HoldsRigid(const ToolState& state) const;
  void GraspBetweenJaws(size_t t);
  double AngleOnHeld(size_t t) const;
  void TurnJaw(size_t t, uint32_t part, const Eigen::Vector3d& point, const Eigen::Vector3d& force_on_jaw);
  bool Press(uint32_t collider, const Eigen::Vector3d& point, const Eigen::Vector3d& normal, const Eigen::Vector3d& force_on_tool,
             double normal_n);

  const SceneDescription& description_;
  std::vector<ToolState>& tools_;
  const std::vector<ToolCommand>& commands_;
  const std::vector<gpu::ColliderTarget>& targets_;
  const std::vector<uint32_t>& tool_of_collider_;
  const std::vector<std::unique_ptr<WorldBody>>& bodies_;
  SceneVertices& vertices_;
  SceneSurface& surface_;
  const SolverModel& model_;
  const std::unique_ptr<gpu::TissueSolver>& solver_;
  std::vector<Clip> clips_;
  std::vector<Clip> stitches_;  // follow from the description
  std::vector<gpu::TissueAnchor> anchors_;
  std::vector<FrameClip> frame_clips_;       // of the newest step; state of frames
  std::vector<FrameStitch> frame_stitches_;  // likewise
};

}  // namespace palpate::sim
