#pragma once

#include <array>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <Eigen/Geometry>

#include "gpu/dynamics/tissue_solver.h"
#include "sim/haptics/build_model.h"
#include "sim/haptics/patch_stiffness.h"
#include "sim/instrument/projection.h"
#include "sim/topology/ablation.h"
#include "sim/world/quasi_static.h"
#include "sim/world/scene_surface.h"
#include "sim/world/scene_vertices.h"
#include "sim/world/tool_state.h"
#include "sim/world/world.h"
#include "sim/world/world_body.h"

namespace palpate::sim {

// Shared by the parts of World: world_build.cc makes the device state, world_frame.cc what clients see of it, world_tools.cc what clients
// want of their tools and feel through them, world_instruments.cc what instruments do to tissue, world_projection.cc how tissue is kept
// out of some of them, world_edit.cc what edits do, world.cc the steps, world_quasi_static.cc what moves without inertia.

inline std::array<double, 3> ToArray(const Eigen::Vector3d& v) { return {v.x(), v.y(), v.z()}; }
inline Eigen::Vector3d ToVector(const gpu::Float4& v) { return {v.x, v.y, v.z}; }

inline double MillisecondsSince(std::chrono::steady_clock::time_point* mark) {
  const auto now = std::chrono::steady_clock::now();
  const double ms = std::chrono::duration<double, std::milli>(now - *mark).count();
  *mark = now;
  return ms;
}

inline double CouplingDamping(const ToolDescription& tool) {
  return tool.coupling_damping_n_s_per_m >= 0 ? tool.coupling_damping_n_s_per_m
                                              : 2 * std::sqrt(tool.coupling_stiffness_n_per_m * tool.mass_kg);
}

/// Contents of free slots of BodyArrays.
inline constexpr std::array<uint32_t, 3> kFreeTriangle = {};
inline constexpr std::array<uint32_t, 4> kFreeTet = {};

class World::Impl {
 public:
  absl::Status Init(std::shared_ptr<gpu::Context> context, SceneDescription description);
  absl::StatusOr<std::shared_ptr<const Frame>> Step(std::span<const ToolCommand* const> commands,
                                                    const std::function<void()>& before_tools);
  absl::StatusOr<std::vector<EditOutcome>> Apply(std::span<const Edit> edits, const std::function<bool()>& is_enough = {});
  absl::StatusOr<std::shared_ptr<const Frame>> Reset();
  absl::Status UpdateGathered();
  absl::StatusOr<std::vector<float>> ReadVolumePositions(size_t body_index);
  std::vector<Eigen::Vector3d> RestPositions(size_t body_index) const;
  absl::Status WriteVolumePositions(size_t body_index, std::span<const float> positions_m);

  std::shared_ptr<gpu::Context> context_;
  SceneDescription description_;
  bool has_failed() const { return failed_; }
  std::vector<ZoneMaterial> MaterialsOf(size_t body) const;
  const std::vector<BodyStatistics>& Statistics();
  std::vector<BoundarySurface> surfaces_;
  std::unique_ptr<gpu::TissueSolver> solver_;
  std::shared_ptr<const Frame> frame_;
  bool volume_wanted_ = false;
  bool volume_gathered_ = false;

 private:
  absl::Status TakeCommands(std::span<const ToolCommand* const> commands);
  void TakeNewerPoses(std::span<const ToolCommand* const> commands);
  std::shared_ptr<Frame> MakeFrame(const gpu::TissueStep& step);
  void BuildLocalModels(const gpu::TissueStep& step, Frame* frame);
  absl::Status BuildBodies();
  void PlaceFrameMarkers(const float* gathered_m);
  absl::Status CreateSolver();
  void MakeModel();
  gpu::TissueChange UpdateModel(std::span<const BodyArraysChange> changes);
  void ListDrivenAndLoads();
  uint8_t KindOf(uint32_t handle) const;
  void PlaceTet(uint32_t body, uint32_t slot, const std::vector<gpu::TissueTet>& of_zone, gpu::TissueChange* change);
  void PlaceTriangle(uint32_t place, uint32_t body, uint32_t slot);
  void ListShapes();
  std::vector<gpu::TissueTet> TissueOfZones(const WorldBody& body) const;
  BodyStatistics StatisticsOf(const WorldBody& body) const;
  uint32_t BodyOfTriangle(uint32_t triangle) const { return model_.triangle_body[triangle]; }
  uint32_t SurfaceSlotOf(uint32_t vertex) const;
  absl::Status CheckBody(size_t body_index) const;
  absl::Status CheckEdit(const Edit& edit) const;
  absl::StatusOr<EditOutcome> ApplyTo(WorldBody& body, const Edit& edit);
  bool IsFolded(const WorldBody& body);
  void OpenCopies(std::span<const uint32_t> copied);
  Eigen::Vector3d PositionOf(uint32_t handle) const;
  Eigen::Vector3d AlongFreeAxes(uint32_t handle, Eigen::Vector3d move) const;
  void MoveCopy(uint32_t handle, const Eigen::Vector3d& to_m);
  bool KeepsVolume(uint32_t handle, const Eigen::Vector3d& to_m, double least_share) const;
  void ListAround(uint32_t handle, double way_m, std::vector<SceneSurface::Triangle>* fan, std::vector<SceneSurface::Triangle>* near);
  bool PassesThrough(uint32_t handle, const Eigen::Vector3d& to_m, std::span<const SceneSurface::Triangle> fan,
                     std::span<const SceneSurface::Triangle> near) const;
  void DrawAway(uint32_t handle, std::span<const uint32_t> others, double way_m);
  absl::Status CommitEdits();
  void ResetTools();
  absl::Status MakeTools(std::vector<gpu::ColliderDescription>* colliders);
  void AimTool(size_t t);
  void SetTargets(size_t t);
  const ProjectionMesh& TissueSurface();
  Eigen::Vector3d PredictLag(size_t t) const;
  void ProjectTissue();
  void AppendProjected(std::vector<gpu::TissueAnchor>* anchors) const;
  void FollowProjected(const gpu::TissueStep& step, std::span<const gpu::AnchorReport> reports);
  void AppendLocalContacts(size_t t, std::span<const Eigen::Vector3d> positions_m, std::vector<LocalContact>* contacts,
                           std::vector<ContactSpread>* spreads);
  ContactSpread SpreadOn(uint32_t triangle, const std::array<double, 3>& weights) const;
  std::array<double, 3> WeightsIn(uint32_t triangle, const Eigen::Vector3d& point_m, const Frame& frame) const;
  void AddVertexAreas(uint32_t triangle, double sign);
  bool IsAlive(const HeldVertex& held) const;
  Eigen::Vector3d StateOf(uint32_t handle) const;
  std::vector<uint32_t> ListGraspable(size_t t, double radius_m) const;
  void Hold(size_t t, std::vector<uint32_t> handles);
  void GraspBetweenJaws(size_t t);
  EditOutcome GraspByRequest(size_t t, double radius_m);
  double AngleOnHeld(size_t t) const;
  absl::Status MoveJaws(size_t t);
  size_t RootOf(size_t body) const;
  absl::StatusOr<AblationModel*> AblationOf(size_t body);
  absl::Status Ablate(size_t t, std::vector<Edit>* edits);
  bool IsBladeIdle(size_t t);
  void Slice(size_t t, std::vector<Edit>* edits);
  absl::Status PrepareInstruments();
  absl::Status SetAnchors();
  void FollowInstruments(const gpu::TissueStep& step);
  absl::Status UpdateQuasiStatic(bool eager);
  absl::Status PrescribeQuasiStatic();
  absl::Status FollowQuasiStatic(const gpu::TissueStep& step);
  void FollowEdits(std::span<const Edit> edits, std::span<const EditOutcome> outcomes);

  std::vector<std::unique_ptr<WorldBody>> bodies_;  // those of the description, then pieces
  SceneVertices vertices_;
  std::vector<gpu::TissueDrivenRegion> driven_;  // vertices apart
  std::vector<gpu::TissueLoad> loads_;           // likewise
  std::vector<gpu::TissueRigidBody> rigid_;
  QuasiStatic quasi_static_;
  // Of the edits that run.
  SceneSurface surface_{bodies_, vertices_};
  std::vector<uint8_t> is_folded_;  // [body] 0: not looked at, 1: no, 2: yes
  bool may_fold_ = false;           // a tet of the scene may be inverted
  bool any_folded_ = false;         // a body that is edited has such
  bool is_given_ = false;           // positions came from outside since the newest step
  std::shared_ptr<const WorldTopology> topology_;
  std::vector<BodyStatistics> statistics_;
  std::vector<uint8_t> statistics_known_;  // per body: as the body is now
  // The solver's model, which follows edits entry by entry: vertices have their handles, tets and triangles have places. Triangles of
  // bodies that cannot be edited come first, and those of the others have no gaps between them.
  gpu::TissueModel model_;
  std::vector<std::vector<uint32_t>> tet_places_;       // [body][slot], kNoSlot: free
  std::vector<std::vector<uint32_t>> triangle_places_;  // likewise
  std::vector<uint32_t> free_tets_;                     // places
  std::vector<uint32_t> rematerialised_;                // bodies, since the model was brought up to date
  std::vector<uint32_t> triangle_slots_;                // [triangle of the model] in the body's arrays
  bool moves_at_start_ = false;                         // a body has a velocity
  std::vector<double> triangle_area_m2_;                // [triangle of the model] at rest
  std::vector<double> vertex_area_m2_;                  // [handle] a third of its triangles, at rest
  std::vector<ToolCommand> commands_;                   // newest per tool
  std::vector<gpu::ColliderTarget> targets_;
  std::vector<ToolState> tools_;
  std::vector<uint32_t> tool_of_collider_;  // of those of tools, which come first
  std::vector<Clip> clips_;
  std::vector<gpu::TissueAnchor> anchors_;   // as the solver has them
  bool any_projection_ = false;              // is the response of a tool
  std::vector<ProjectedContact> projected_;  // in the newest step; their anchors come last
  ProjectionMesh tissue_surface_;
  std::vector<uint32_t> tissue_triangles_;                 // [triangle of tissue_surface_] in the model
  uint64_t tissue_surface_version_ = 0;                    // of topology_, 0: none yet
  std::vector<std::unique_ptr<AblationModel>> ablations_;  // per body; null: no heat yet
  // Of the markers that ride in tissue: where their vertices are among those that are read back for markers.
  struct MarkerPlace {
    uint32_t index = 0;
    std::array<uint32_t, 4> places{};
    std::array<double, 4> weights{};
  };
  std::vector<FrameMarker> markers_;  // as they are in the newest frame
  std::vector<MarkerPlace> marker_places_;
  uint64_t step_ = 0;
  bool failed_ = false;
  bool is_edited_ = false;  // since the last reset
  double tools_ms_ = 0;
};

}  // namespace palpate::sim
