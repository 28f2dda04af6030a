#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "gpu/dynamics/tissue_solver.h"
#include "sim/world/blade_bonds.h"
#include "sim/world/copy_opening.h"
#include "sim/world/fold_guard.h"
#include "sim/world/frame_publisher.h"
#include "sim/world/grasping.h"
#include "sim/world/quasi_static.h"
#include "sim/world/scene_bodies.h"
#include "sim/world/scene_joints.h"
#include "sim/world/scene_surface.h"
#include "sim/world/scene_vertices.h"
#include "sim/world/solver_model.h"
#include "sim/world/tissue_projection.h"
#include "sim/world/tissue_removal.h"
#include "sim/world/tool_rack.h"
#include "sim/world/world.h"
#include "sim/world/world_body.h"

namespace palpate::sim {

/// What world.h hides: the parts of a running scene, and the order in which they work. Each part is a class that keeps what it alone
/// changes and is given references to what it reads. world_build.cc makes the solver, world.cc does the steps, world_edit.cc what edits do,
/// world_quasi_static.cc what moves without inertia, world_checkpoint.cc states to go on from.
class World::Impl {
 public:
  absl::Status Init(std::shared_ptr<gpu::Context> context, SceneDescription description);
  absl::StatusOr<std::shared_ptr<const WorldState>> Capture();
  absl::Status Restore(std::shared_ptr<gpu::Context> context, SceneDescription description, const WorldState& state, Impl* old);
  absl::StatusOr<bool> GoTo(const WorldState& state);
  absl::StatusOr<std::shared_ptr<const Frame>> Step(std::span<const ToolCommand* const> commands,
                                                    const std::function<void()>& before_tools);
  absl::StatusOr<std::vector<EditOutcome>> Apply(std::span<const Edit> edits, const std::function<bool()>& is_enough = {});
  absl::StatusOr<std::shared_ptr<const Frame>> Reset();
  absl::StatusOr<std::vector<float>> ReadVolumePositions(size_t body_index);
  absl::StatusOr<std::vector<float>> ReadVolumeVelocities(size_t body_index);
  absl::Status WriteVolumePositions(size_t body_index, std::span<const float> positions_m);

  const SceneDescription& description() const { return description_; }
  SceneBodies& scene() { return scene_; }
  const gpu::TissueSolver& solver() const { return *solver_; }
  const std::shared_ptr<const Frame>& frame() const { return frame_; }
  bool has_failed() const { return failed_; }
  void SetVolumeWanted(bool wanted) { publisher_.SetVolumeWanted(wanted); }

 private:
  /// What the solver takes of a description.
  struct SolverSetup {
    gpu::TissueOptions options;
    std::vector<gpu::ColliderDescription> colliders;
    std::vector<gpu::PlaneObstacle> planes;
    gpu::TissueTuning tuning;
  };
  absl::Status TakeDescription(std::shared_ptr<gpu::Context> context, SceneDescription description);
  absl::Status PlaceBindings();
  absl::Status BuildBodies();
  absl::Status Sew();
  absl::StatusOr<SolverSetup> SetUpSolver();
  absl::Status CreateSolver();
  absl::Status UpdateGathered() { return solver_->SetGathered(publisher_.ListGathered()); }
  void MakeModel();
  void ResetTools();

  // A step: what instruments do before it, and what it did to them.
  absl::Status PrepareInstruments();
  std::shared_ptr<Frame> MakeFrame(const gpu::TissueStep& step);
  absl::Status ApplyOfInstruments(std::span<const Edit> edits, std::span<const size_t> owners);
  void FollowInstruments(const gpu::TissueStep& step);
  absl::Status UpdateQuasiStatic(bool eager);
  absl::Status PrescribeQuasiStatic();
  absl::Status FollowQuasiStatic(const gpu::TissueStep& step);
  using PlacesOfVertices = SceneVertices::Array<Eigen::Vector3f>;  // of all surfaces
  PlacesOfVertices TakeReached(const gpu::TissueStep& step);
  std::optional<QuasiStatic::Contact> OnPlane(const gpu::ContactReport& report) const;
  QuasiStatic::Contact OnCollider(const gpu::ContactReport& report, const PlacesOfVertices& places) const;
  std::optional<QuasiStatic::Contact> BetweenSurfaces(const gpu::SurfaceReport& report, const PlacesOfVertices& places) const;

  // Edits: all happen on the meshes first, then the arrays, the solver and the frame take over what changed.
  absl::Status ApplyAll(std::span<const Edit> edits, const std::function<bool()>& is_enough, std::vector<EditOutcome>* outcomes);
  absl::StatusOr<EditOutcome> ApplyTo(WorldBody& body, const Edit& edit);
  absl::Status CommitEdits();
  std::vector<BodyArraysChange> UpdateTopology();
  absl::Status UpdateSolver(std::span<const BodyArraysChange> changes);
  absl::Status PublishEdits();

  // A state to go on from: each goes through all parts in the same order.
  struct SceneCounts {
    uint64_t step = 0;
    bool is_edited = false;
    bool is_given = false;
    uint64_t bodies = 0;
  };
  void SaveScene(StateWriter& archive);
  static void SaveCounts(const SceneCounts& counts, StateWriter& archive);
  void SaveTissue(StateWriter& archive);
  absl::Status LoadScene(StateReader& archive);
  static SceneCounts LoadCounts(StateReader& archive);
  absl::Status LoadInstruments(const SceneCounts& counts, StateReader& archive);
  absl::StatusOr<bool> LoadIntoThis(const WorldState& state);
  absl::Status LoadBodies(uint64_t body_count, StateReader& archive);

  std::shared_ptr<gpu::Context> context_;
  SceneDescription description_;
  uint64_t description_hash_ = 0;
  std::unique_ptr<gpu::TissueSolver> solver_;
  std::shared_ptr<const WorldTopology> topology_;
  std::shared_ptr<const Frame> frame_;
  uint64_t step_ = 0;
  bool failed_ = false;
  bool is_edited_ = false;  // since the last reset
  bool is_given_ = false;   // positions came from outside since the newest step
  double tools_ms_ = 0;     // that the preparation of the newest step took

  SceneBodies scene_{description_};
  std::vector<std::unique_ptr<WorldBody>>& bodies_ = scene_.bodies();
  SceneVertices& vertices_ = scene_.vertices();
  SolverModel model_{bodies_, scene_.motions(), vertices_};
  SceneSurface surface_{bodies_, vertices_};
  FoldGuard folds_{surface_};
  CopyOpening opening_{bodies_, vertices_, surface_};
  ToolRack rack_{description_};
  TissueProjection projection_{rack_, bodies_, vertices_, model_, topology_};
  Grasping grasping_{rack_, bodies_, vertices_, surface_, model_, solver_};
  TissueRemoval removal_{rack_, bodies_, vertices_, topology_};
  BladeBonds blades_{rack_, bodies_, vertices_};
  SceneJoints joints_{description_};
  FramePublisher publisher_{rack_, grasping_, projection_, bodies_, vertices_, model_, topology_};
  QuasiStatic quasi_static_;
};

}  // namespace palpate::sim
