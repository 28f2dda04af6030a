#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "sim/scene/description.h"
#include "sim/scene/edit.h"
#include "sim/topology/closed_mesh.h"
#include "sim/topology/exposure_guard.h"
#include "sim/topology/incision.h"
#include "sim/topology/refinement.h"
#include "sim/topology/sheet_incision.h"
#include "sim/topology/sheet_mesh.h"
#include "sim/topology/sheet_refinement.h"
#include "sim/world/body_arrays.h"
#include "sim/world/body_arrays_keeper.h"
#include "sim/world/body_markers.h"
#include "sim/world/body_surface.h"
#include "sim/world/body_zones.h"
#include "sim/world/edit_tally.h"
#include "sim/world/layered_carving.h"
#include "sim/world/scene_vertices.h"
#include "sim/world/sheet_tally.h"

namespace palpate::sim {

/// A body of a running world: its mesh, which edits change, and the arrays that clients and the solver's model are made of. As observer of
/// its mesh it names new vertices by handles, interpolates their state, and notes what the arrays must take over.
class WorldBody final : public MeshObserver, public SheetObserver {
 public:
  /// A body of the description, at rest, with handles from vertices->size() on. A deformable mesh that is no manifold can be simulated, but
  /// not edited.
  static absl::StatusOr<std::unique_ptr<WorldBody>> Create(const BodyDescription& description, uint32_t index, SceneVertices* vertices);
  ~WorldBody() override;
  WorldBody(const WorldBody&) = delete;
  WorldBody& operator=(const WorldBody&) = delete;

  const std::string& name() const { return arrays()->name; }
  BodyKind kind() const { return kind_; }
  uint32_t index() const { return index_; }
  bool self_collision() const { return traits_.self_collision; }
  TetElement tet_element() const { return traits_.tet_element; }
  /// 0: its volume is not kept, or no more. Of a shell O(triangles), as is the next.
  double volume_stiffness_pa() const { return has_released_volume() ? 0 : traits_.volume_stiffness_pa; }
  /// Whether its volume was kept until an edit opened it.
  bool has_released_volume() const {
    return traits_.volume_stiffness_pa > 0 && sheet_ && (sheet_->triangle_count() == 0 || !sheet_->IsClosed());
  }
  double restitution() const { return traits_.restitution; }
  double drag_coefficient() const { return traits_.drag_coefficient; }
  const ShapeMatchingOptions& shape_matching() const { return traits_.shape_matching; }
  Simulation simulation() const { return traits_.simulation; }
  bool is_editable() const { return mesh_ != nullptr; }
  /// Null: it is no shell of triangles. Its triangles are those of the sheet, if it has one.
  const ShellDescription* shell() const { return shell_ ? &*shell_ : nullptr; }
  /// Whether it is a shell of triangles that can be edited. Precondition of sheet().
  bool has_sheet() const { return sheet_ != nullptr; }
  const SheetMesh& sheet() const { return *sheet_; }
  bool is_shell() const { return shell_.has_value() || is_nurbs_shell_; }
  /// Whether its mesh may change: it can, and its responses were not computed for it as it is.
  bool is_cuttable() const { return (is_editable() && simulation() != Simulation::kPrecomputed) || has_sheet(); }
  /// Precondition of these: is_editable(), which a shell is not.
  ClosedMesh& mesh() { return *mesh_; }
  const ClosedMesh& mesh() const { return *mesh_; }
  const std::shared_ptr<const BodyArrays>& arrays() const { return keeper_.arrays(); }

  VertexHandle HandleOf(uint32_t vertex_slot) const { return handles_[vertex_slot]; }
  uint32_t vertex_slot_count() const { return static_cast<uint32_t>(handles_.size()); }
  SurfaceSlot SurfaceSlotOf(uint32_t vertex_slot) const { return keeper_.SurfaceSlotOf(vertex_slot); }  ///< of a vertex of the surface
  Eigen::Vector3d PositionOf(uint32_t vertex_slot) const;                                               ///< W, from SceneVertices::state
  size_t tet_count() const { return mesh_ ? mesh_->tet_count() : arrays()->tets.size(); }

  // The surface of a mesh or a sheet. Precondition: the body has one of them.
  uint64_t mesh_version() const { return mesh_ ? mesh_->version() : sheet_->version(); }
  uint32_t triangle_slot_count() const { return mesh_ ? mesh_->triangle_slot_count() : sheet_->triangle_slot_count(); }
  bool IsTriangle(uint32_t slot) const { return mesh_ ? mesh_->IsTriangle(slot) : sheet_->IsTriangle(slot); }
  const std::array<uint32_t, 3>& TriangleVertices(uint32_t slot) const {
    return mesh_ ? mesh_->TriangleVertices(slot) : sheet_->TriangleVertices(slot);
  }
  bool IsVertexOnSurface(uint32_t slot) const {
    return mesh_ ? mesh_->IsVertex(slot) && mesh_->IsVertexOnSurface(slot) : sheet_->IsVertex(slot);
  }
  /// Triangles at a vertex of the surface, of a sheet in no order.
  void SurfaceFan(uint32_t vertex, std::vector<uint32_t>* out) const;

  const BodyZones& zones() const { return zones_; }
  TetZoneId ZoneOf(uint32_t tet_slot) const {
    return mesh_ ? mesh_->TetZoneOf(tet_slot) : tet_zones_.empty() ? TetZoneId{0} : tet_zones_[tet_slot];
  }
  /// Of a triangle of a shell.
  TetZoneId ZoneOfShellAt(uint32_t triangle_slot) const {
    return sheet_ ? sheet_->MaterialZoneOf(triangle_slot) : tet_zones_.empty() ? TetZoneId{0} : tet_zones_[triangle_slot];
  }
  /// Behind a surface triangle, or its own.
  const Material& MaterialAt(uint32_t triangle_slot) const {
    if (mesh_) return zones_.MaterialOf(mesh_->TetZoneOf(mesh_->TriangleTet(triangle_slot)));
    return zones_.MaterialOf(shell_ ? ZoneOfShellAt(triangle_slot) : TetZoneId{0});
  }
  void SetMaterial(TetZoneId zone, const Material& material) { zones_.SetMaterial(zone, material); }
  /// Whether a zone's tets are quasi-static now.
  bool IsQuasiStatic(TetZoneId zone) const { return StartsQuasiStatic(simulation()) && !zones_.IsDynamic(zone); }
  /// False for a free slot.
  bool IsQuasiStaticTet(uint32_t slot) const { return arrays()->tets[slot] != kFreeTet && IsQuasiStatic(ZoneOf(slot)); }
  void MakeDynamic(TetZoneId zone) { zones_.MakeDynamic(zone); }
  /// Zones whose tets have changed since the last call, ascending.
  std::vector<TetZoneId> TakeChangedZones();
  /// Load `bit` of the scene acts on SurfaceZoneDescription k, also of pieces that come off.
  void AddLoadOn(size_t k, uint32_t bit) { zones_.AddLoadOn(NamedSurfaceZone(is_editable(), zones_.count(), k), bit); }

  /// Errors: as BodyMarkers::Take.
  absl::Status TakeMarkers(const BodyDescription& description, uint32_t first_index) {
    return markers_.Take(description, description.markers, mesh_.get(), sheet_.get(), first_index);
  }
  std::vector<BodyMarkers::Marker> Markers() const { return markers_.List(mesh_.get(), sheet_.get()); }
  /// Control points of NURBS shells that ride in the body as markers do, with their places in SceneMotions::bound. Errors: as of markers.
  absl::Status Carry(const BodyDescription& description, std::span<const MarkerDescription> points, uint32_t first_index) {
    return carried_.Take(description, points, mesh_.get(), sheet_.get(), first_index);
  }
  std::vector<BodyMarkers::Marker> Carried() const { return carried_.List(mesh_.get(), sheet_.get()); }

  /// Between Begin and Finish the body's edits are added up in an outcome.
  void BeginEdit() {
    tally_.Begin();
    sheet_tally_.Begin();
  }
  EditOutcome FinishEdit();
  /// What edits of this body ask before they uncover tissue, until told otherwise.
  void SetGuard(const ExposureGuard& guard);
  /// Whether a tet is inverted or flat as the vertices lie now. O(tets).
  bool HasInvertedTets() const;
  /// Takes the region's tets out from the surface inwards, of a shell its triangles. The outcome counts what stays.
  absl::Status Carve(const EditRegion& region, EditOutcome* outcome) {
    return sheet_ ? CarveSheet(region, outcome) : CarveMesh(region, outcome);
  }
  /// Of a ball or a capsule, tets that reach into it are refined, and of what they become what does. No more tets than max_tets will be in
  /// the body, nor than the edit allows. Of a shell triangles.
  absl::Status Refine(const EditRegion& region, const RefineEdit& edit, size_t max_tets, EditOutcome* outcome) {
    return sheet_ ? RefineSheet(region, edit, max_tets, outcome) : RefineMesh(region, edit, max_tets, outcome);
  }
  /// One stroke of a blade, or a part of one.
  absl::Status Incise(const InciseEdit& edit, size_t max_tets, EditOutcome* outcome) {
    return sheet_ ? InciseSheet(edit, max_tets, outcome) : InciseMesh(edit, max_tets, outcome);
  }
  void EndStroke();               ///< of a blade that leaves the body, or its hand
  bool IsStrokeUnderWay() const;  ///< a blade is in it

  /// Makes bodies of the components that came to be since the last call, indices from first_index on.
  /// Their names are this one's with a number that `is_taken` does not know.
  absl::StatusOr<std::vector<std::unique_ptr<WorldBody>>> DetachPieces(uint32_t first_index,
                                                                       const std::function<bool(const std::string&)>& is_taken);

  /// Vertices that were copied since the last call, and their originals, ascending.
  std::vector<VertexHandle> TakeCopied();

  bool has_changes() const { return is_new_ || keeper_.has_changes(); }
  /// Brings the arrays to the state of the mesh. O(changes), plus a copy of the arrays.
  BodyArraysChange UpdateArrays();

  // --- state

  /// A body that an edit cut off, to be read: without tissue yet. A piece of a shell must be given what its root has before Accept().
  static std::unique_ptr<WorldBody> MakeEmptyPiece(uint32_t index, SceneVertices* vertices);
  /// Index of the body of the description whose shell a piece is of.
  uint32_t shell_of() const { return shell_of_; }
  /// Material and thickness of a shell. Precondition: `root` is one.
  void TakeShellOf(const WorldBody& root);
  /// Of a reader, a body as described or an empty piece, into which this brings what edits did. `marker_count`, `carried_count`: of the
  /// scene. A reader must call Accept() when vertices have been read as well.
  template <typename Archive>
  void VisitState(Archive& archive, size_t marker_count, size_t carried_count) {
    [[maybe_unused]] auto& [vertices, index, kind, traits, zones, tet_zones, shell, shell_of, is_nurbs_shell, handles, mesh, carving,
                            refiner, incision, sheet, sheet_incision, markers, carried, keeper, tally, sheet_tally, pieces_made, is_new,
                            is_detaching, is_blank, new_components, copied, changed_zones] = *this;
    archive.Enter("WorldBody");
    archive(traits, zones, handles, pieces_made, new_components, copied, changed_zones, keeper);
    bool has_mesh = mesh != nullptr;
    bool has_sheet = sheet != nullptr;
    archive(has_mesh, has_sheet, shell_of);
    archive.Check(!is_blank || has_mesh != has_sheet, "a piece is neither of tissue nor of a shell, or both");
    if (is_blank && archive.ok()) MakeBlankMesh(has_sheet);
    archive.Check(has_mesh == (mesh != nullptr) && has_sheet == (sheet != nullptr), "it can be edited, or not, against its description");
    if (!archive.ok()) return;
    if (has_sheet) {
      archive(*sheet);
      if constexpr (Archive::kIsReader) {
        if (archive.ok()) archive.Check(sheet->Accept());
        if (!archive.ok()) return;
      }
      archive(*sheet_incision);
    }
    if (has_mesh) {
      archive(*mesh);
      if constexpr (Archive::kIsReader) {
        if (archive.ok()) archive.Check(mesh->Accept());
        if (!archive.ok()) return;
      }
      archive(*carving, *refiner, *incision);
    }
    markers_.VisitState(archive, mesh.get(), sheet.get(), marker_count);
    if (carried_count > 0) carried.VisitState(archive, mesh.get(), sheet.get(), carried_count);
  }
  /// After a read: takes over its arrays, and looks whether vertices, zones and arrays are of one body. Errors: InvalidArgument.
  absl::Status Accept(std::shared_ptr<const BodyArrays> arrays);

  // MeshObserver.
  void OnVertexAdded(const ClosedMesh& mesh, const MeshDelta::AddedVertex& vertex) override;
  void OnTetAdded(const ClosedMesh& mesh, const MeshDelta::AddedTet& tet) override;
  void OnTetRemoved(const ClosedMesh& mesh, TetId tet, const std::array<VertexId, 4>& vertices) override;
  void OnVertexRemoved(const ClosedMesh& mesh, VertexId vertex) override;
  void OnEdited(const ClosedMesh& mesh, const MeshDelta& delta) override;
  // SheetObserver.
  void OnSheetEdited(const SheetMesh& mesh, const SheetDelta& delta) override;

 private:
  /// What a piece that comes off has from this body.
  struct Traits {
    Simulation simulation = Simulation::kDynamic;
    ShapeMatchingOptions shape_matching;
    bool self_collision = true;
    double volume_stiffness_pa = 0;
    double restitution = 0;
    double drag_coefficient = 0;
    TetElement tet_element = TetElement::kLinear;

    template <typename Archive>
    void VisitState(Archive& archive) {
      auto& [how, matching, meets_itself, stiffness, bounce, drag, element] = *this;
      archive(how, matching, meets_itself, stiffness, bounce, drag, element);
    }
  };

  WorldBody() = default;
  absl::Status TakeVertices(const BodyDescription& description);
  absl::Status TakeMesh(const BodyDescription& description);
  absl::Status TakeSurface(const BodyDescription& description);
  void MakeEditors();
  void TakeSheet(const BodyDescription& description, const BodyArrays& arrays);
  void MakeSheetEditors();
  void MakeBlankMesh(bool has_sheet);
  double ShellMassPerArea(TetZoneId zone) const;
  static size_t RefineBudget(size_t asked, size_t count, size_t most);
  absl::Status CarveMesh(const EditRegion& region, EditOutcome* outcome);
  absl::Status RefineMesh(const EditRegion& region, const RefineEdit& edit, size_t max_tets, EditOutcome* outcome);
  absl::Status InciseMesh(const InciseEdit& edit, size_t max_tets, EditOutcome* outcome);
  void NoteReleasedVolume(bool was_kept, EditOutcome* outcome) const;
  absl::Status CarveSheet(const EditRegion& region, EditOutcome* outcome);
  absl::Status RefineSheet(const EditRegion& region, const RefineEdit& edit, size_t max_triangles, EditOutcome* outcome);
  absl::Status InciseSheet(const InciseEdit& edit, size_t max_triangles, EditOutcome* outcome);
  size_t ComponentSize(ComponentId component) const;
  std::vector<ComponentId> TakeDetachable();
  absl::Status AcceptZones() const;
  absl::StatusOr<std::unique_ptr<WorldBody>> Detach(ComponentId component, uint32_t index,
                                                    const std::function<bool(const std::string&)>& is_taken);
  absl::StatusOr<std::unique_ptr<WorldBody>> DetachSheet(ComponentId component, uint32_t index,
                                                         const std::function<bool(const std::string&)>& is_taken);
  std::unique_ptr<WorldBody> MakePiece(uint32_t index) const;
  void GiveVertex(uint32_t slot, WorldBody* piece);
  std::string NameOfPiece(const std::function<bool(const std::string&)>& is_taken);
  void AddVertex(const MeshDelta::AddedVertex& vertex);
  void BlendMotions(VertexHandle handle, const MeshDelta::AddedVertex& vertex);
  gpu::TissueVertexState MixStates(const MeshDelta::AddedVertex& vertex) const;
  bool IsFixed(uint32_t vertex_slot) const { return vertices_->is_fixed[handles_[vertex_slot]] != 0; }

  SceneVertices* vertices_ = nullptr;
  uint32_t index_ = 0;
  BodyKind kind_ = BodyKind::kDeformable;
  Traits traits_;
  BodyZones zones_;
  std::vector<TetZoneId> tet_zones_;       // [tet slot], or [triangle] of a shell, of a body that is not editable; empty: all 0
  std::optional<ShellDescription> shell_;  // as described; a piece has what its root has
  uint32_t shell_of_ = 0;                  // body of the description whose shell this is, or is a piece of
  bool is_nurbs_shell_ = false;            // which is not editable
  std::vector<VertexHandle> handles_;      // [vertex slot]
  std::unique_ptr<ClosedMesh> mesh_;       // null: not editable
  std::unique_ptr<LayeredCarving> carving_;
  std::unique_ptr<Refiner> refiner_;
  std::unique_ptr<Incision> incision_;
  std::unique_ptr<SheetMesh> sheet_;  // null: no shell, or not editable
  std::unique_ptr<SheetIncision> sheet_incision_;
  BodyMarkers markers_;
  BodyMarkers carried_;  // control points of NURBS shells
  BodyArraysKeeper keeper_;
  EditTally tally_;
  SheetTally sheet_tally_;
  uint32_t pieces_made_ = 0;   // for their names
  bool is_new_ = false;        // UpdateArrays has not been asked yet
  bool is_detaching_ = false;  // tets and vertices that go, go on in a piece
  bool is_blank_ = false;      // of a reader: what kind of mesh it has is not known yet
  // Since somebody asked.
  std::vector<ComponentId> new_components_;
  std::vector<VertexHandle> copied_;
  std::vector<TetZoneId> changed_zones_;
};

}  // namespace palpate::sim
