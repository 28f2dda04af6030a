#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "gpu/dynamics/tissue_solver.h"
#include "sim/haptics/build_model.h"
#include "sim/instrument/projection.h"
#include "sim/world/body_arrays.h"
#include "sim/world/scene_vertices.h"
#include "sim/world/solver_model.h"
#include "sim/world/tool_rack.h"
#include "sim/world/world_body.h"

namespace palpate::sim {

/// Tools whose response is the geometric projection: before a step the tissue's surface is moved out of where they will be, and what was
/// moved is kept there by one-sided anchors while the rest of the tissue follows; see docs/algorithms/projection.md.
class TissueProjection {
 public:
  /// Keeps references; `topology` is where the newest one is.
  TissueProjection(ToolRack& rack, const std::vector<std::unique_ptr<WorldBody>>& bodies, const SceneVertices& vertices,
                   const SolverModel& model, const std::shared_ptr<const WorldTopology>& topology)
      : rack_(rack),
        description_(rack.description()),
        tools_(rack.tools()),
        targets_(rack.targets()),
        tool_of_collider_(rack.tool_of_collider()),
        bodies_(bodies),
        vertices_(vertices),
        model_(model),
        topology_(topology) {}

  void Reset() { projected_.clear(); }  ///< nothing is kept away

  /// Moves the tissue out of the tools that respond by projection, and shortens the motion of driven ones where that cannot be.
  /// Precondition: tools are aimed, SceneVertices::state is up to date. `layout`: of the solver.
  void Project(const gpu::TissueLayout& layout);
  /// The anchors of what was projected. `contact_n_per_m`: stiffness of a contact of the solver.
  void AppendAnchors(double contact_n_per_m, std::vector<gpu::TissueAnchor>* anchors) const;
  /// Takes over the forces of a step; `reports` are those of these anchors.
  void Follow(const gpu::TissueStep& step, std::span<const gpu::AnchorReport> reports);

  /// What a station feels of the tissue that tool t keeps away: what pushes, and what comes near. `positions_m`: of the surface, by handle.
  using AddContact = std::function<void(const LocalContact&, uint32_t triangle_of_model, const std::array<double, 3>& weights)>;
  void ListLocalContacts(size_t t, std::span<const Eigen::Vector3d> positions_m, const AddContact& add_contact);

  /// What is kept away; the surface follows from the topology.
  template <typename Archive>
  void VisitState(Archive& archive) {
    [[maybe_unused]] auto& [rack, description, tools, targets, tool_of_collider, bodies, vertices, model, topology, projected, surface,
                            triangles, surface_version] = *this;
    archive.Enter("TissueProjection");
    archive(projected);
    for (const ProjectedContact& contact : projected) {
      archive.Check(contact.collider < tool_of_collider.size() && vertices.body.contains(contact.handle), "a contact of nothing");
    }
  }

  /// In the newest step; their anchors come last.
  const std::vector<ProjectedContact>& contacts() const { return projected_; }
  /// While a frame is made that is not of a step: contacts are put aside, and given back.
  std::vector<ProjectedContact> TakeContacts() { return std::exchange(projected_, {}); }
  void GiveBack(std::vector<ProjectedContact> contacts) { projected_ = std::move(contacts); }

 private:
  const ProjectionMesh& Surface();
  Eigen::Vector3d PredictLag(size_t t) const;

  ToolRack& rack_;
  const SceneDescription& description_;
  std::vector<ToolState>& tools_;
  const std::vector<gpu::ColliderTarget>& targets_;
  const std::vector<uint32_t>& tool_of_collider_;
  const std::vector<std::unique_ptr<WorldBody>>& bodies_;
  const SceneVertices& vertices_;
  const SolverModel& model_;
  const std::shared_ptr<const WorldTopology>& topology_;
  std::vector<ProjectedContact> projected_;
  ProjectionMesh tissue_surface_;
  std::vector<uint32_t> tissue_triangles_;  // [triangle of tissue_surface_] in the model
  uint64_t tissue_surface_version_ = 0;     // of topology_, 0: none yet
};

}  // namespace palpate::sim
