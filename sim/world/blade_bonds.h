#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include <Eigen/Geometry>

#include "gpu/dynamics/tissue_solver.h"
#include "sim/world/scene_vertices.h"
#include "sim/world/tool_rack.h"
#include "sim/world/world_body.h"

namespace palpate::sim {

/// What blades have to overcome. Tissue at the edge of a blade is dragged along, by springs between the tool and the vertices around the
/// edge, until these pull with what it takes to part it: toughness times the length of the edge in tissue (of a shell its thickness). From
/// then on the blade goes ahead at that force, and what it has gone ahead is what it cuts. So the work of a stroke is toughness times the
/// area of the cut, besides what tissue stores, and a blade that stands still cuts nothing.
///
/// The pull and its drag have one direction, against the way of the blade: the flat of it slides as badly as its edge cuts. Material
/// without toughness does not resist. After: Chanthasopeephan, Desai, Lau 2007 and Mahvash, Voo, Kim, Jeung, Wainer, Okamura 2008 (cutting
/// as fracture: loading, then cutting at the force of the toughness). docs/instruments.md, "Blade".
class BladeBonds {
 public:
  /// Keeps references.
  BladeBonds(ToolRack& rack, const std::vector<std::unique_ptr<WorldBody>>& bodies, const SceneVertices& vertices)
      : description_(rack.description()), tools_(rack.tools()), bodies_(bodies), vertices_(vertices) {}

  /// Before a step, after its edits, when tools know where they are to go: what each blade pulls with in it. SceneVertices::state must be
  /// up to date. `contact_n_per_m`: no spring between tool and tissue should be stiffer.
  void Prepare(double contact_n_per_m);
  /// The springs, for the step that was prepared.
  std::span<const gpu::TissueAnchor> anchors() const { return anchors_; }
  /// After the step, with what became of the springs: forces on tools, and where their cuts end.
  void Follow(const gpu::TissueStep& step, std::span<const gpu::AnchorReport> reports);
  void Reset() {
    anchors_.clear();
    bonds_.clear();
  }

 private:
  /// Of one tool in one step.
  struct Bond {
    size_t tool = 0;
    size_t first = 0, count = 0;  // of the anchors
    double yield_n = 0;           // their forces together
    double yield_m = 0;           // at this drag
  };
  /// What holds a point of the edge, by barycentric weights.
  struct Hold {
    double depth = 0;  // the least of the weights
    double force_n = 0;
    std::array<VertexHandle, 4> handles{};
    std::array<double, 4> weights{};
    size_t count = 0;
  };
  /// Force of each vertex at which tissue holds the blade.
  struct Share {
    VertexHandle handle = kNoHandle;
    double force_n = 0;
  };

  Eigen::Vector3d PositionOf(VertexHandle handle) const;
  void HoldInTets(const WorldBody& body, std::span<const Eigen::Vector3d> points_m, double part_m, std::vector<Hold>* holds) const;
  void HoldInSheet(const WorldBody& body, const std::array<Eigen::Vector3d, 2>& edge_m, std::vector<Hold>* holds) const;
  std::vector<Share> ListShares(const std::array<Eigen::Vector3d, 2>& edge_m) const;
  void AddBond(size_t t, std::span<const Share> shares, double contact_n_per_m);

  const SceneDescription& description_;
  std::vector<ToolState>& tools_;
  const std::vector<std::unique_ptr<WorldBody>>& bodies_;
  const SceneVertices& vertices_;
  std::vector<Bond> bonds_;
  std::vector<gpu::TissueAnchor> anchors_;
};

}  // namespace palpate::sim
