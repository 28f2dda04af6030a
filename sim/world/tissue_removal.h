#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <Eigen/Geometry>

#include "gpu/base/status.h"
#include "sim/scene/edit.h"
#include "sim/topology/ablation.h"
#include "sim/world/body_arrays.h"
#include "sim/world/scene_vertices.h"
#include "sim/world/tool_rack.h"
#include "sim/world/world_body.h"
#include "sim/world/world_values.h"

namespace palpate::sim {

/// What instruments take from tissue: power that removes, blades that cut. It asks for edits and never edits; the heat in the tissue, which
/// goes where its tissue goes, is its own. SceneVertices::state must be up to date.
class TissueRemoval {
 public:
  /// Keeps references; `topology` is where the newest one is.
  TissueRemoval(ToolRack& rack, const std::vector<std::unique_ptr<WorldBody>>& bodies, const SceneVertices& vertices,
                const std::shared_ptr<const WorldTopology>& topology)
      : description_(rack.description()),
        tools_(rack.tools()),
        commands_(rack.commands()),
        bodies_(bodies),
        vertices_(vertices),
        topology_(topology) {}

  void Reset() { ablations_.clear(); }  ///< no heat
  /// Gives the power of a tool to the tets within its reach for a step, and asks for those that have enough to be removed, and for coarse
  /// ones to be refined.
  absl::Status Ablate(size_t t, std::vector<Edit>* edits);
  /// Asks for the cut that the blade made since the last one.
  void Slice(size_t t, std::vector<Edit>* edits);
  /// After edits, with what they did: heat goes where its tissue goes.
  void FollowEdits(std::span<const Edit> edits, std::span<const EditOutcome> outcomes);

  /// Heat. Of a reader, bodies and tools must have been read before.
  template <typename Archive>
  void VisitState(Archive& archive) {
    [[maybe_unused]] auto& [description, tools, commands, bodies, vertices, topology, ablations] = *this;
    std::vector<uint8_t> is_heated;
    for (const auto& ablation : ablations) is_heated.push_back(ablation != nullptr ? 1 : 0);
    archive.Enter("TissueRemoval");
    archive(is_heated);
    archive.Check(is_heated.size() <= bodies.size(), "heat in bodies that are not there");
    for (size_t b = 0; b < is_heated.size() && archive.ok(); ++b) {
      if (is_heated[b] == 0) continue;
      if constexpr (Archive::kIsReader) {
        archive.Check((bodies[b]->is_editable() || bodies[b]->has_sheet()) && RootOf(b) < description.bodies.size(),
                      "heat in a body that has none");
        if (archive.ok()) archive.Check(AblationOf(b).status());
        if (!archive.ok()) return;
      }
      archive(*ablations[b]);
    }
    if constexpr (Archive::kIsReader) ablations.resize(is_heated.size());
  }

 private:
  Eigen::Vector3d PositionOf(VertexHandle handle) const { return ToVector(vertices_.state[handle].position_m); }
  bool SheetMeets(const WorldBody& body, const Eigen::AlignedBox3d& box) const;
  bool ListExposed(const WorldBody& body, const Eigen::Vector3d& tip_m, const ToolDescription& tool,
                   std::vector<AblationModel::Exposure>* exposures) const;
  size_t RootOf(size_t body) const;
  absl::StatusOr<AblationModel*> AblationOf(size_t body);
  bool IsBladeIdle(size_t t);

  const SceneDescription& description_;
  std::vector<ToolState>& tools_;
  const std::vector<ToolCommand>& commands_;
  const std::vector<std::unique_ptr<WorldBody>>& bodies_;
  const SceneVertices& vertices_;
  const std::shared_ptr<const WorldTopology>& topology_;
  std::vector<std::unique_ptr<AblationModel>> ablations_;  // per body; null: no heat yet
};

}  // namespace palpate::sim
