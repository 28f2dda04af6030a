#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <queue>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "sim/topology/closed_mesh.h"
#include "sim/topology/sheet_mesh.h"
#include "sim/world/body_arrays.h"

namespace palpate::sim {

/// Brings the arrays of a body, which clients have, to the state of its mesh: O(changes) and a copy of the arrays. `Mesh` is ClosedMesh, or
/// SheetMesh, which has triangles alone.
class BodyArraysKeeper {
 public:
  /// Whether a vertex of the mesh is fixed.
  using IsFixed = std::function<bool(uint32_t vertex_slot)>;

  const std::shared_ptr<const BodyArrays>& arrays() const { return arrays_; }
  /// Of a vertex of the surface.
  SurfaceSlot SurfaceSlotOf(uint32_t vertex_slot) const { return surface_slots_[vertex_slot]; }

  /// Of a mesh that never changes: `arrays` are complete but for the hashes.
  void Take(BodyArrays arrays);
  /// From the whole mesh. Of `like` the surface zones are taken, and whether there are texture coordinates, by vertex or by corner.
  template <typename Mesh>
  void Make(const Mesh& mesh, std::string name, std::string parent, const BodyArrays& like, uint32_t body, const IsFixed& is_fixed);

  // What has changed in the mesh since the last Update(); may repeat.
  void MarkTet(uint32_t slot) { dirty_tets_.push_back(slot); }
  void MarkTriangle(uint32_t slot) { dirty_triangles_.push_back(slot); }
  void MarkFixed() { fixed_changed_ = true; }
  bool has_changes() const { return !dirty_tets_.empty() || !dirty_triangles_.empty(); }

  /// The arrays themselves are part of the topology. What they do not tell of the slots of the surface is empty between edits.
  template <typename Archive>
  void VisitState(Archive& archive) {
    [[maybe_unused]] auto& [arrays, surface_slots, free_surface_slots, dirty_tets, dirty_triangles, fixed_changed] = *this;
    archive.Enter("BodyArraysKeeper");
    archive(dirty_tets, dirty_triangles, fixed_changed);
  }
  /// Goes on with arrays that were kept before. `mesh`: null for one that never changes. Errors: InvalidArgument (arrays of another mesh).
  template <typename Mesh>
  absl::Status Restore(std::shared_ptr<const BodyArrays> arrays, const Mesh* mesh);

  /// `body`: index that the change names.
  template <typename Mesh>
  BodyArraysChange Update(const Mesh& mesh, uint32_t body, const IsFixed& is_fixed);

 private:
  SurfaceSlot TakeSurfaceSlot(BodyArrays* arrays, uint32_t vertex);
  template <typename Mesh>
  void RemoveTriangles(const Mesh& mesh, BodyArrays* next);
  template <typename Mesh>
  void AddTriangles(const Mesh& mesh, BodyArrays* next);
  template <typename Mesh>
  void UpdateTets(const Mesh& mesh, BodyArrays* next) const;
  void UpdateTexture(const ClosedMesh& mesh, BodyArrays* next, BodyArraysChange* change) const;

  std::shared_ptr<const BodyArrays> arrays_;
  std::vector<SurfaceSlot> surface_slots_;  // [vertex slot] kNoSurfaceSlot: not on the surface
  std::priority_queue<SurfaceSlot, std::vector<SurfaceSlot>, std::greater<>> free_surface_slots_;
  std::vector<uint32_t> dirty_tets_, dirty_triangles_;
  bool fixed_changed_ = false;
};

}  // namespace palpate::sim
