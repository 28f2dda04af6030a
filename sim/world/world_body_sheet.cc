// Edits of a body that is a shell of triangles, whose mesh is a sheet.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "sim/world/edit_region.h"
#include "sim/world/world_body.h"

namespace palpate::sim {

/// A surface that is no manifold, or has vertices of no triangle, can be simulated, but not edited: sheet_ stays null.
void WorldBody::TakeSheet(const BodyDescription& description, const BodyArrays& arrays) {
  absl::StatusOr<SheetMesh> sheet =
      SheetMesh::Build(description.mesh.vertices, description.shell->triangles, arrays.triangle_zones, description.tet_zones);
  if (!sheet.ok() || sheet->vertex_count() != description.mesh.vertices.size()) {
    tet_zones_ = description.tet_zones;
    return;
  }
  sheet_ = std::make_unique<SheetMesh>(*std::move(sheet));
  for (uint32_t t = 0; t < arrays.texture_corners.size(); ++t) sheet_->SetTextureCorners(t, arrays.texture_corners[t]);
  MakeSheetEditors();
}

void WorldBody::MakeSheetEditors() {
  sheet_incision_ = std::make_unique<SheetIncision>(sheet_.get());
  sheet_->SetObserver(this);
}

void WorldBody::TakeShellOf(const WorldBody& root) {
  shell_ = root.shell_;
  zones_.TakeShellsOf(root.zones_);
  shell_of_ = root.index_;
}

double WorldBody::ShellMassPerArea(TetZoneId zone) const { return zones_.ThicknessOf(zone) * zones_.MaterialOf(zone).density_kg_per_m3; }

void WorldBody::SurfaceFan(uint32_t vertex, std::vector<uint32_t>* out) const {
  if (mesh_) {
    mesh_->SurfaceFan(vertex, out);
    return;
  }
  const std::span<const uint32_t> around = sheet_->TrianglesAround(vertex);
  out->assign(around.begin(), around.end());
}

/// Says so where an edit has opened a shell whose volume was kept.
void WorldBody::NoteReleasedVolume(bool was_kept, EditOutcome* outcome) const {
  if (was_kept && has_released_volume()) outcome->note = "the shell is open now, and its volume is no longer kept";
}

absl::Status WorldBody::CarveSheet(const EditRegion& region, EditOutcome* outcome) {
  const bool was_kept = volume_stiffness_pa() > 0;
  SheetEdit edit;
  for (const TriangleId id : TrianglesIn(*this, region)) {
    if (sheet_->Find(id) == kNoSlot) {
      ++outcome->unchanged_count;
    } else {
      edit.removed.push_back(id);
    }
  }
  std::sort(edit.removed.begin(), edit.removed.end());
  edit.removed.erase(std::unique(edit.removed.begin(), edit.removed.end()), edit.removed.end());
  if (edit.removed.empty()) return absl::OkStatus();
  PALPATE_RETURN_IF_ERROR(sheet_->Apply(edit));
  NoteReleasedVolume(was_kept, outcome);
  return absl::OkStatus();
}

absl::Status WorldBody::RefineSheet(const EditRegion& region, const RefineEdit& edit, size_t max_triangles, EditOutcome* outcome) {
  std::vector<TriangleId> wanted = TrianglesMeeting(*this, region);
  const size_t given = wanted.size();
  std::erase_if(wanted, [&](TriangleId id) { return sheet_->Find(id) == kNoSlot; });
  outcome->unchanged_count = static_cast<uint32_t>(given - wanted.size());
  SheetRefineOptions options;
  options.max_edge_m = edit.max_edge_m;
  options.triangle_budget = RefineBudget(edit.triangle_budget, sheet_->triangle_count(), max_triangles);
  const absl::StatusOr<SheetRefineResult> result = sim::RefineSheet(
      sheet_.get(), wanted, options, [&](TriangleId triangle) { return TriangleMeetsRegion(*this, SlotOf(triangle), region); });
  if (!result.ok()) {
    outcome->is_refused = true;
    outcome->note = std::string(result.status().message());
    return absl::OkStatus();
  }
  outcome->is_refused = result->is_refused;
  if (result->is_refused) outcome->note = absl::StrCat("more than ", options.triangle_budget, " triangles would be needed");
  return absl::OkStatus();
}

absl::Status WorldBody::InciseSheet(const InciseEdit& edit, size_t max_triangles, EditOutcome* outcome) {
  const bool was_kept = volume_stiffness_pa() > 0;
  SheetIncisionOptions options;
  options.triangle_budget = max_triangles;
  for (size_t i = 0; i + 1 < edit.edges_m.size() && !outcome->is_refused; ++i) {
    std::vector<Eigen::Vector3d> positions(sheet_->vertex_slot_count(), Eigen::Vector3d::Zero());
    for (uint32_t v = 0; v < positions.size(); ++v) {
      if (sheet_->IsVertex(v)) positions[v] = PositionOf(v);
    }
    const absl::StatusOr<SheetIncisionResult> result = sheet_incision_->Cut(positions, edit.edges_m[i], edit.edges_m[i + 1], options);
    if (!result.ok()) {
      outcome->is_refused = true;
      outcome->note = std::string(result.status().message());
      break;
    }
    outcome->is_refused = result->is_refused;
    if (result->is_refused) outcome->note = "the budget of triangles stopped the blade";
  }
  if (!edit.goes_on) sheet_incision_->EndStroke();
  if (!outcome->is_refused) NoteReleasedVolume(was_kept, outcome);
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<WorldBody>> WorldBody::DetachSheet(ComponentId component, uint32_t index,
                                                                  const std::function<bool(const std::string&)>& is_taken) {
  const std::vector<BodyMarkers::Rider<SheetPoints::Point>> riders = markers_.WithdrawFromSheet(component);
  is_detaching_ = true;
  absl::StatusOr<SheetMesh::DetachedPiece> detached = sheet_->Detach(component);
  is_detaching_ = false;
  if (!detached.ok()) return detached.status();
  std::unique_ptr<WorldBody> piece = MakePiece(index);
  piece->TakeShellOf(*this);
  piece->shell_of_ = shell_of_;
  piece->sheet_ = std::make_unique<SheetMesh>(std::move(detached->mesh));
  for (uint32_t v = 0; v < detached->source_vertices.size(); ++v) GiveVertex(SlotOf(detached->source_vertices[v]), piece.get());
  sheet_tally_.OnDetached(*piece->sheet_, index, *detached);
  piece->MakeSheetEditors();
  piece->markers_.Adopt(riders, piece->sheet_.get(), detached->source_triangles);
  piece->keeper_.Make(*piece->sheet_, NameOfPiece(is_taken), name(), *arrays(), index, [&piece](uint32_t v) { return piece->IsFixed(v); });
  return piece;
}

void WorldBody::OnSheetEdited(const SheetMesh& mesh, const SheetDelta& delta) {
  for (const MeshDelta::AddedVertex& vertex : delta.added_vertices) AddVertex(vertex);
  for (const SheetDelta::AddedTriangle& triangle : delta.added_triangles) keeper_.MarkTriangle(SlotOf(triangle.id));
  for (const SheetDelta::RemovedTriangle& triangle : delta.removed_triangles) keeper_.MarkTriangle(SlotOf(triangle.id));
  for (const VertexId vertex : delta.removed_vertices) {
    if (IsFixed(SlotOf(vertex))) keeper_.MarkFixed();
  }
  if (is_detaching_) return;  // it goes on in a piece
  markers_.OnSheetEdited(delta);
  sheet_tally_.OnEdited(
      delta, [this](TetZoneId zone) { return ShellMassPerArea(zone); }, mesh);
  for (const VertexId vertex : delta.removed_vertices) vertices_->Release(std::exchange(handles_[SlotOf(vertex)], kNoHandle));
  new_components_.insert(new_components_.end(), delta.added_components.begin(), delta.added_components.end());
}

}  // namespace palpate::sim
