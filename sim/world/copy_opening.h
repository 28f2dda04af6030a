#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <Eigen/Geometry>

#include "sim/world/scene_surface.h"
#include "sim/world/scene_vertices.h"
#include "sim/world/world_body.h"

namespace palpate::sim {

/// Opens cuts. Copies of vertices and their originals lie in the same place, where nothing could keep them apart. Each is drawn back a
/// little into its own solid: as long as it sees all triangles around it from behind, what the solid loses it had before, so it cannot meet
/// anything that way. Where nothing sees them all, as in a saddle, the vertex goes away from its copies, as far as what is there leaves
/// room. A copy of a shell goes back into its own part of the sheet. Positions are those of SceneVertices::state; docs/surgery.md.
class CopyOpening {
 public:
  /// Keeps references. `margin_m`: of contact, of which lips are opened by a share.
  CopyOpening(const std::vector<std::unique_ptr<WorldBody>>& bodies, SceneVertices& vertices, SceneSurface& surface)
      : bodies_(bodies), vertices_(vertices), surface_(surface) {}
  void SetMargin(double margin_m) { margin_m_ = margin_m; }

  /// `copied`: handles of copies and their originals, each once; some may be gone. `any_folded`: a body that was edited overlaps itself,
  /// so that even a move into the own solid may meet something.
  void Open(std::span<const VertexHandle> copied, bool any_folded);

 private:
  void OpenSheet(VertexHandle handle);
  bool KeepsArea(VertexHandle handle, const Eigen::Vector3d& to_m, std::span<const SceneSurface::Triangle> fan) const;
  template <typename At>
  static Eigen::Vector3d TowardsFan(std::span<const SceneSurface::Triangle> fan, const At& at);
  Eigen::Vector3d AlongFreeAxes(VertexHandle handle, Eigen::Vector3d move) const;
  void MoveCopy(VertexHandle handle, const Eigen::Vector3d& to_m);
  bool KeepsVolume(VertexHandle handle, const Eigen::Vector3d& to_m, double least_share) const;
  void ListAround(VertexHandle handle, double way_m, std::vector<SceneSurface::Triangle>* fan, std::vector<SceneSurface::Triangle>* near);
  bool PassesThrough(VertexHandle handle, const Eigen::Vector3d& to_m, std::span<const SceneSurface::Triangle> fan,
                     std::span<const SceneSurface::Triangle> near) const;
  void DrawAway(VertexHandle handle, std::span<const VertexHandle> others, double way_m);

  const std::vector<std::unique_ptr<WorldBody>>& bodies_;
  SceneVertices& vertices_;
  SceneSurface& surface_;
  double margin_m_ = 0;
};

}  // namespace palpate::sim
