#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "gpu/dynamics/tissue_solver.h"
#include "sim/world/frame.h"
#include "sim/world/grasping.h"
#include "sim/world/local_models.h"
#include "sim/world/nurbs_follower.h"
#include "sim/world/scene_vertices.h"
#include "sim/world/solver_model.h"
#include "sim/world/tissue_projection.h"
#include "sim/world/tool_rack.h"
#include "sim/world/world_body.h"

namespace palpate::sim {

/// Makes frames, which is all that clients see of a scene. It says which vertices the solver must read back, knows their order, and lets
/// markers ride in tissue.
class FramePublisher {
 public:
  /// Keeps references; `topology` is where the newest one is.
  FramePublisher(const ToolRack& rack, const Grasping& grasping, TissueProjection& projection,
                 const std::vector<std::unique_ptr<WorldBody>>& bodies, const SceneVertices& vertices, const SolverModel& model,
                 const std::shared_ptr<const WorldTopology>& topology)
      : description_(rack.description()),
        tools_(rack.tools()),
        commands_(rack.commands()),
        tool_of_collider_(rack.tool_of_collider()),
        projection_(projection),
        bodies_(bodies),
        vertices_(vertices),
        model_(model),
        topology_(topology),
        nurbs_(rack.description(), bodies),
        models_(rack, grasping, projection, bodies, vertices, model, nurbs_) {}

  /// Markers are where the description has them.
  void ResetMarkers();
  /// Its tissue is gone: a marker stays where the newest frame has it, and counts to this body.
  void ReleaseMarker(uint32_t marker, uint32_t body);

  /// Whether frames have the positions of all vertices, not only those of surfaces.
  void SetVolumeWanted(bool wanted) { volume_wanted_ = wanted; }
  bool must_gather_anew() const { return volume_wanted_ != volume_gathered_; }
  /// Handles of the vertices whose positions frames need from now on, after edits too.
  std::vector<uint32_t> ListGathered();

  /// Where markers are. Which positions are read back is told again by whoever goes on.
  template <typename Archive>
  void VisitState(Archive& archive) {
    [[maybe_unused]] auto& [description, tools, commands, tool_of_collider, projection, bodies, vertices, model, topology, nurbs, models,
                            kept_topology, kept_at_rest_m3, volume_wanted, volume_gathered, markers, marker_places] = *this;
    const size_t count = markers.size();
    archive.Enter("FramePublisher");
    uint64_t read_count = count;
    archive(read_count);
    archive.Check(read_count == count, "another number of markers");
    for (FrameMarker& marker : markers) {
      archive(marker.position_m, marker.body_index, marker.is_released);
      archive.Check(marker.body_index < bodies.size(), "a marker is in no body");
    }
  }

  /// The frame of the newest step; `tools_ms`: time that its preparation took. Moves markers.
  std::shared_ptr<Frame> Make(const gpu::TissueStep& step, uint64_t step_number, double tools_ms);

 private:
  // Of the markers that ride in tissue: where their vertices are among those that are read back for markers.
  struct MarkerPlace {
    uint32_t index = 0;
    std::array<uint32_t, 4> places{};
    std::array<double, 4> weights{};
  };
  void PlaceFrameMarkers(const float* gathered_m);
  void MeasureKeptPressures(Frame* frame);
  const float* TakePositions(const float* gathered_m, Frame* frame) const;
  void DescribeTool(size_t t, const gpu::TissueStep& step, Frame* frame) const;
  static void AddContact(const FrameContact& contact, const Eigen::Vector3d& point_m, const Eigen::Vector3d& force_n, Frame* frame);
  void ListContacts(const gpu::TissueStep& step, Frame* frame) const;
  void ListSurfaceContacts(const gpu::TissueStep& step, Frame* frame) const;

  const SceneDescription& description_;
  const std::vector<ToolState>& tools_;
  const std::vector<ToolCommand>& commands_;
  const std::vector<uint32_t>& tool_of_collider_;
  TissueProjection& projection_;
  const std::vector<std::unique_ptr<WorldBody>>& bodies_;
  const SceneVertices& vertices_;
  const SolverModel& model_;
  const std::shared_ptr<const WorldTopology>& topology_;
  NurbsFollower nurbs_;
  LocalModels models_;
  std::shared_ptr<const WorldTopology> kept_topology_;  // to which the next belongs
  std::vector<double> kept_at_rest_m3_;                 // [body] 0: nothing keeps its volume; empty: of no body
  bool volume_wanted_ = false;
  bool volume_gathered_ = false;
  std::vector<FrameMarker> markers_;  // as they are in the newest frame
  std::vector<MarkerPlace> marker_places_;
};

}  // namespace palpate::sim
