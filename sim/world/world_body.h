#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <queue>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "sim/scene/description.h"
#include "sim/scene/edit.h"
#include "sim/topology/carving.h"
#include "sim/topology/closed_mesh.h"
#include "sim/topology/embedded_points.h"
#include "sim/topology/exposure_guard.h"
#include "sim/topology/incision.h"
#include "sim/topology/refinement.h"
#include "sim/world/body_arrays.h"
#include "sim/world/scene_vertices.h"

namespace palpate::sim {

/// A body of a running world: its mesh, which edits change, and the arrays that clients and the solver's model are made of. As observer of
/// its mesh it names new vertices by handles, interpolates their state, and notes what the arrays must take over.
class WorldBody final : public MeshObserver {
 public:
  /// A body of the description, at rest, with handles from vertices->size() on. A deformable mesh that is no manifold can be simulated, but
  /// not edited.
  static absl::StatusOr<std::unique_ptr<WorldBody>> Create(const BodyDescription& description, uint32_t index, SceneVertices* vertices);
  ~WorldBody() override;
  WorldBody(const WorldBody&) = delete;
  WorldBody& operator=(const WorldBody&) = delete;

  const std::string& name() const { return arrays_->name; }
  BodyKind kind() const { return kind_; }
  uint32_t index() const { return index_; }
  bool self_collision() const { return self_collision_; }
  double volume_stiffness_pa() const { return volume_stiffness_pa_; }
  const ShapeMatchingOptions& shape_matching() const { return shape_matching_; }
  bool is_editable() const { return mesh_ != nullptr; }
  /// Whether its mesh may change: it can, and its responses were not computed for it as it is.
  bool is_cuttable() const { return is_editable() && simulation_ != Simulation::kPrecomputed; }
  Simulation simulation() const { return simulation_; }
  /// Whether a zone's tets are quasi-static now.
  bool IsQuasiStatic(TetZoneId zone) const { return StartsQuasiStatic(simulation_) && is_dynamic_[zone] == 0; }
  void MakeDynamic(TetZoneId zone) { is_dynamic_[zone] = 1; }
  /// Zones whose tets have changed since the last call, ascending.
  std::vector<TetZoneId> TakeChangedZones();
  /// Precondition of both: is_editable().
  ClosedMesh& mesh() { return *mesh_; }
  const ClosedMesh& mesh() const { return *mesh_; }
  Carver& carver() { return *carver_; }
  Incision& incision() { return *incision_; }
  const std::shared_ptr<const BodyArrays>& arrays() const { return arrays_; }
  VertexHandle HandleOf(uint32_t vertex_slot) const { return handles_[vertex_slot]; }
  uint32_t vertex_slot_count() const { return static_cast<uint32_t>(handles_.size()); }
  /// Of a vertex of the surface.
  SurfaceSlot SurfaceSlotOf(uint32_t vertex_slot) const { return surface_slots_[vertex_slot]; }
  TetZoneId ZoneOf(uint32_t tet_slot) const {
    return mesh_ ? mesh_->TetZoneOf(tet_slot) : tet_zones_.empty() ? TetZoneId{0} : tet_zones_[tet_slot];
  }
  size_t zone_count() const { return materials_.size(); }
  const std::string& zone_name(TetZoneId zone) const { return zone_names_[zone]; }
  size_t tet_count() const { return mesh_ ? mesh_->tet_count() : arrays_->tets.size(); }
  const Material& MaterialOf(TetZoneId zone) const { return materials_[zone]; }
  /// The surface zone of SurfaceZoneDescription `k`.
  SurfaceZoneId NamedSurfaceZone(size_t k) const { return static_cast<SurfaceZoneId>((mesh_ ? 1 + materials_.size() : 1) + k); }
  /// Bit k: load k of the scene acts on the triangles of the zone, also of pieces that come off.
  uint32_t LoadsOn(SurfaceZoneId zone) const { return zone < zone_loads_.size() ? zone_loads_[zone] : 0; }
  void AddLoadOn(SurfaceZoneId zone, uint32_t bit) {
    if (zone >= zone_loads_.size()) zone_loads_.resize(zone + size_t{1}, 0);
    zone_loads_[zone] |= bit;
  }
  /// Behind a surface triangle.
  const Material& MaterialAt(uint32_t triangle_slot) const {
    return materials_[mesh_ ? mesh_->TetZoneOf(mesh_->TriangleTet(triangle_slot)) : TetZoneId{0}];
  }
  void SetMaterial(TetZoneId zone, const Material& material) { materials_[zone] = material; }
  /// 0 for an empty name is the body itself; -1: unknown.
  int FindZone(const std::string& name) const;
  Eigen::Vector3d PositionOf(uint32_t vertex_slot) const;  ///< W, from SceneVertices::state

  /// A marker that rides in this body: its position is the sum of the weights times the positions of four vertices (slots).
  struct Marker {
    uint32_t index = 0;  ///< in Frame::markers
    std::array<uint32_t, 4> vertices{};
    std::array<double, 4> weights{};
  };
  /// Takes up the markers of a description, all placed; their indices run from first_index on. Errors: InvalidArgument, with a message that
  /// begins with the field.
  absl::Status TakeMarkers(const BodyDescription& description, uint32_t first_index);
  std::vector<Marker> Markers() const;

  /// Between Begin and Finish the body's edits are added up in an outcome.
  void BeginEdit();
  EditOutcome FinishEdit();
  /// What edits of this body ask before they uncover tissue, until told otherwise.
  void SetGuard(const ExposureGuard& guard);
  /// Whether a tet is inverted or flat as the vertices lie now. O(tets).
  bool HasInvertedTets() const;
  /// Takes the region's tets out from the surface inwards. The outcome counts what stays.
  absl::Status Carve(const EditRegion& region, EditOutcome* outcome);
  /// Of a ball or a capsule, tets that reach into it are refined, and of what they become what does. No more tets than max_tets will be in
  /// the body, nor than the edit allows.
  absl::Status Refine(const EditRegion& region, const RefineEdit& edit, size_t max_tets, EditOutcome* outcome);
  /// One stroke of a blade, or a part of one.
  absl::Status Incise(const InciseEdit& edit, size_t max_tets, EditOutcome* outcome);

  /// Makes bodies of the components that came to be since the last call, indices from first_index on.
  /// Their names are this one's with a number that `is_taken` does not know.
  absl::StatusOr<std::vector<std::unique_ptr<WorldBody>>> DetachPieces(uint32_t first_index,
                                                                       const std::function<bool(const std::string&)>& is_taken);

  /// Vertices that were copied since the last call, and their originals, ascending.
  std::vector<VertexHandle> TakeCopied();

  bool has_changes() const { return is_new_ || !dirty_tets_.empty() || !dirty_triangles_.empty(); }
  /// Brings the arrays to the state of the mesh. O(changes), plus a copy of the arrays.
  BodyArraysChange UpdateArrays();

  // MeshObserver.
  void OnVertexAdded(const ClosedMesh& mesh, const MeshDelta::AddedVertex& vertex) override;
  void OnTetAdded(const ClosedMesh& mesh, const MeshDelta::AddedTet& tet) override;
  void OnTetRemoved(const ClosedMesh& mesh, TetId tet, const std::array<VertexId, 4>& vertices) override;
  void OnVertexRemoved(const ClosedMesh& mesh, VertexId vertex) override;
  void OnEdited(const ClosedMesh& mesh, const MeshDelta& delta) override;

 private:
  WorldBody() = default;
  absl::Status TakeMesh(const BodyDescription& description);
  absl::Status NameSurfaceZones(const BodyDescription& description, BodyArrays* arrays);
  absl::Status TakeTexture(const BodyDescription& description, BodyArrays* arrays);
  void MakeEditors();
  void JudgeAdded(const ClosedMesh& mesh, uint32_t slot);
  void MakeArrays(std::string name, std::string parent);
  absl::Status MakeArraysOf(const TetMesh& mesh, const BodyDescription& description);
  std::vector<TetId> TetsIn(const EditRegion& region) const;
  bool Meets(uint32_t tet, const EditRegion& region) const;  ///< a ball or a capsule; true of others
  SurfaceSlot TakeSurfaceSlot(BodyArrays* arrays, uint32_t vertex);
  std::array<float, 2> TextureCoordinateOf(const BodyArrays& arrays, uint32_t vertex) const;
  void UpdateTexture(BodyArrays* next, BodyArraysChange* change) const;

  SceneVertices* vertices_ = nullptr;
  uint32_t index_ = 0;
  BodyKind kind_ = BodyKind::kDeformable;
  Simulation simulation_ = Simulation::kDynamic;
  ShapeMatchingOptions shape_matching_;
  bool self_collision_ = true;
  double volume_stiffness_pa_ = 0;
  std::vector<uint8_t> is_dynamic_;      // by zone, unless simulation_ is
  std::vector<Material> materials_;      // by zone
  std::vector<std::string> zone_names_;  // by zone; the first is empty
  std::vector<uint32_t> zone_loads_;     // by surface zone; those beyond its end have none
  std::unique_ptr<ClosedMesh> mesh_;     // null: not editable
  std::unique_ptr<Carver> carver_;
  std::unique_ptr<Refiner> refiner_;
  std::unique_ptr<Incision> incision_;
  std::unique_ptr<EmbeddedPoints> points_;  // null: none, or not editable
  std::vector<uint32_t> marker_of_point_;   // [point]
  std::vector<Marker> markers_;             // of a body that is not editable
  std::vector<TetZoneId> tet_zones_;        // [tet slot] of a body that is not editable; empty: all 0
  std::vector<VertexHandle> handles_;       // [vertex slot]
  std::vector<SurfaceSlot> surface_slots_;  // [vertex slot] kNoSurfaceSlot: not on the surface
  std::priority_queue<SurfaceSlot, std::vector<SurfaceSlot>, std::greater<>> free_surface_slots_;
  std::shared_ptr<const BodyArrays> arrays_;
  uint32_t pieces_made_ = 0;  // for their names

  // Since the last UpdateArrays.
  bool is_new_ = false;
  bool fixed_changed_ = false;
  std::vector<uint32_t> dirty_tets_, dirty_triangles_;
  std::vector<ComponentId> new_components_;
  std::vector<VertexHandle> copied_;
  std::vector<TetZoneId> changed_zones_;

  // Of the edit that runs.
  bool is_detaching_ = false;
  EditOutcome outcome_;
  double touched_mass_kg_ = 0;                      // of all tets that came and went
  absl::flat_hash_map<TetId, TetId> first_parent_;  // of tets added by this edit: the tet before it that they come from, or kNoTet
  std::vector<uint8_t> is_wanted_;                  // [tet slot] of a carving
  std::vector<uint32_t> wanted_;
  std::vector<VertexId> added_vertices_;
};

}  // namespace palpate::sim
