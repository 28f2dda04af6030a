#include "sim/world/world_body.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "sim/scene/material.h"
#include "sim/scene/nurbs_description.h"
#include "sim/world/edit_region.h"

namespace palpate::sim {
namespace {

constexpr size_t kDefaultGrowth = 10;  // of a body that is refined without a budget
constexpr uint8_t kAllAxes = 7;

template <typename T>
std::vector<T> TakeSorted(std::vector<T>* values) {
  std::sort(values->begin(), values->end());
  values->erase(std::unique(values->begin(), values->end()), values->end());
  return std::exchange(*values, {});
}

absl::Status CheckTetZones(const BodyDescription& description) {
  const size_t count = description.shell ? description.shell->triangles.size() : description.mesh.tets.size();
  if (!description.tet_zones.empty() && description.tet_zones.size() != count) {
    return absl::InvalidArgumentError(
        absl::StrCat(".tet_zones: ", description.tet_zones.size(), " entries for ", count, description.shell ? " triangles" : " tets"));
  }
  for (const uint16_t zone : description.tet_zones) {
    if (zone > description.zones.size()) {
      return absl::InvalidArgumentError(absl::StrCat(".tet_zones: ", zone, " is outside [0, ", description.zones.size(), "]"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<WorldBody>> WorldBody::Create(const BodyDescription& description, uint32_t index, SceneVertices* vertices) {
  std::unique_ptr<WorldBody> body(new WorldBody);
  body->vertices_ = vertices;
  body->index_ = index;
  body->kind_ = description.kind;
  body->traits_ = {description.simulation,  description.shape_matching,   description.self_collision, description.volume_stiffness_pa,
                   description.restitution, description.drag_coefficient, description.tet_element};
  body->zones_ = BodyZones(description);
  body->shell_ = description.shell;
  body->shell_of_ = index;
  body->is_nurbs_shell_ = description.nurbs_shell.has_value();
  PALPATE_RETURN_IF_ERROR(body->TakeVertices(description));
  PALPATE_RETURN_IF_ERROR(CheckTetZones(description));
  if (description.kind == BodyKind::kDeformable && !body->is_shell()) PALPATE_RETURN_IF_ERROR(body->TakeMesh(description));
  PALPATE_RETURN_IF_ERROR(body->TakeSurface(description));
  return body;
}

WorldBody::~WorldBody() {
  if (mesh_) mesh_->RemoveObserver(this);
}

/// Names the vertices of the description, and notes what holds them.
absl::Status WorldBody::TakeVertices(const BodyDescription& description) {
  for (uint32_t v = 0; v < description.mesh.vertices.size(); ++v) {
    const VertexHandle handle = vertices_->Add();
    vertices_->rest_m[handle] = description.mesh.vertices[v];
    vertices_->is_fixed[handle] = kind_ == BodyKind::kDeformable && !is_nurbs_shell_ ? 0 : 1;  // vertices of NURBS follow
    vertices_->origin[handle] = index_ << 1;
    vertices_->body[handle] = index_;
    vertices_->slot[handle] = v;
    handles_.push_back(handle);
  }
  for (const uint32_t v : description.fixed_vertices) {
    if (v >= description.mesh.vertices.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat(".fixed_vertices: ", v, " is outside [0, ", description.mesh.vertices.size() - 1, "]"));
    }
    vertices_->is_fixed[handles_[v]] = 1;
  }
  for (const SlidingVertex& sliding : description.sliding_vertices) {
    if (sliding.vertex >= description.mesh.vertices.size() || sliding.held < 1 || sliding.held > 6) {
      return absl::InvalidArgumentError(absl::StrCat(".sliding_vertices: vertex ", sliding.vertex, " is outside [0, ",
                                                     description.mesh.vertices.size() - 1, "], or its axes ", sliding.held,
                                                     " outside [1, 6]"));
    }
    const VertexHandle handle = handles_[sliding.vertex];
    if (vertices_->is_fixed[handle] != 0 || vertices_->held[handle] != 0) {
      return absl::InvalidArgumentError(absl::StrCat(".sliding_vertices: vertex ", sliding.vertex, " is fixed or given twice"));
    }
    vertices_->held[handle] = sliding.held;
  }
  return absl::OkStatus();
}

/// Of a mesh that is no manifold, mesh_ stays null.
absl::Status WorldBody::TakeMesh(const BodyDescription& description) {
  absl::StatusOr<ClosedMesh> mesh = ClosedMesh::Build(description.mesh, description.tet_zones);
  if (!mesh.ok()) {
    tet_zones_ = description.tet_zones;
    return mesh.status().code() == absl::StatusCode::kInvalidArgument ? absl::OkStatus() : mesh.status();
  }
  mesh_ = std::make_unique<ClosedMesh>(*std::move(mesh));
  while (mesh_->tet_zone_count() < zones_.count()) {
    PALPATE_RETURN_IF_ERROR(mesh_->AddTetZone({zones_.name(static_cast<TetZoneId>(mesh_->tet_zone_count())), 0}).status());
  }
  for (size_t zone = 0; zone < zones_.count(); ++zone) {
    PALPATE_ASSIGN_OR_RETURN(const SurfaceZoneId inside,
                             mesh_->AddSurfaceZone(absl::StrCat("inside ", zones_.name(static_cast<TetZoneId>(zone)))));
    mesh_->SetInteriorSurfaceZone(static_cast<TetZoneId>(zone), inside);
  }
  return absl::OkStatus();
}

/// Zones and texture of the surface, and the arrays.
absl::Status WorldBody::TakeSurface(const BodyDescription& description) {
  BodyArrays arrays;
  if (mesh_ == nullptr) {
    const BoundarySurface surface = SurfaceOf(description);
    arrays.name = description.name;
    arrays.surface_vertices.values() = surface.vertices;
    for (const auto& [a, b, c] : surface.triangles) arrays.surface_triangles.push_back({SurfaceSlot{a}, SurfaceSlot{b}, SurfaceSlot{c}});
    arrays.triangle_zones.assign(surface.triangles.size(), 0);
    arrays.vertex_slot_count = static_cast<uint32_t>(description.mesh.vertices.size());
    arrays.tets = description.mesh.tets;
    arrays.fixed_vertices = description.fixed_vertices;
  }
  PALPATE_RETURN_IF_ERROR(MakeSurfaceZones(description, mesh_.get(), &arrays));
  PALPATE_RETURN_IF_ERROR(TakeTexture(description, mesh_.get(), &arrays));
  const auto is_fixed = [this](uint32_t v) { return IsFixed(v); };
  if (shell_) TakeSheet(description, arrays);
  if (mesh_ != nullptr) {
    MakeEditors();
    keeper_.Make(*mesh_, description.name, "", arrays, index_, is_fixed);
  } else if (sheet_ != nullptr) {
    keeper_.Make(*sheet_, description.name, "", arrays, index_, is_fixed);
  } else {
    keeper_.Take(std::move(arrays));
  }
  return absl::OkStatus();
}

void WorldBody::MakeEditors() {
  carving_ = std::make_unique<LayeredCarving>(mesh_.get());
  refiner_ = std::make_unique<Refiner>(mesh_.get());
  incision_ = std::make_unique<Incision>(mesh_.get());
  mesh_->AddObserver(this);
}

Eigen::Vector3d WorldBody::PositionOf(uint32_t vertex_slot) const {
  const gpu::Float4& x = vertices_->state[handles_[vertex_slot]].position_m;
  return {x.x, x.y, x.z};
}

BodyArraysChange WorldBody::UpdateArrays() {
  is_new_ = false;
  const auto is_fixed = [this](uint32_t v) { return IsFixed(v); };
  return sheet_ ? keeper_.Update(*sheet_, index_, is_fixed) : keeper_.Update(*mesh_, index_, is_fixed);
}

// --- edits

EditOutcome WorldBody::FinishEdit() {
  EditOutcome outcome = sheet_ ? sheet_tally_.Finish(*sheet_) : tally_.Finish(*mesh_);
  outcome.released_markers = markers_.TakeReleased();
  carried_.TakeReleased();  // they are free again
  return outcome;
}

void WorldBody::SetGuard(const ExposureGuard& guard) {
  carving_->SetGuard(guard);
  incision_->SetGuard(guard);
}

bool WorldBody::HasInvertedTets() const {
  for (uint32_t t = 0; t < mesh_->tet_slot_count(); ++t) {
    if (!mesh_->IsTet(t)) continue;
    const auto& v = mesh_->TetVertices(t);
    const Eigen::Vector3d o = PositionOf(v[0]);
    // Float positions: the signs of all but flat tets are sure in double, and those that are not count.
    if (!((PositionOf(v[1]) - o).cross(PositionOf(v[2]) - o).dot(PositionOf(v[3]) - o) > 1e-24)) return true;
  }
  return false;
}

absl::Status WorldBody::CarveMesh(const EditRegion& region, EditOutcome* outcome) {
  return carving_->Carve(TetsIn(*this, region), &outcome->unchanged_count);
}

/// Of cells afterwards; `asked`: 0 if the edit says nothing.
size_t WorldBody::RefineBudget(size_t asked, size_t count, size_t most) {
  return std::min(asked > 0 ? asked : kDefaultGrowth * count, most);
}

absl::Status WorldBody::RefineMesh(const EditRegion& region, const RefineEdit& edit, size_t max_tets, EditOutcome* outcome) {
  std::vector<TetId> zone = TetsMeeting(*this, region);
  const size_t given = zone.size();
  std::erase_if(zone, [&](TetId id) { return mesh_->Find(id) == kNoSlot; });
  outcome->unchanged_count = static_cast<uint32_t>(given - zone.size());
  RefineOptions options;
  options.max_edge_m = edit.max_edge_m;
  options.tet_budget = RefineBudget(edit.tet_budget, mesh_->tet_count(), max_tets);
  const absl::StatusOr<RefineResult> result =
      refiner_->Refine(zone, options, [&](TetId tet) { return MeetsRegion(*this, SlotOf(tet), region); });
  if (!result.ok()) {
    // The mesh is as the last pass that it took left it.
    outcome->is_refused = true;
    outcome->note = std::string(result.status().message());
    return absl::OkStatus();
  }
  outcome->is_refused = result->is_refused;
  if (result->is_refused) outcome->note = absl::StrCat("more than ", options.tet_budget, " tets would be needed");
  if (!result->is_refused && !result->is_done) outcome->note = absl::StrCat("edges are still longer after ", result->pass_count, " passes");
  return absl::OkStatus();
}

absl::Status WorldBody::InciseMesh(const InciseEdit& edit, size_t max_tets, EditOutcome* outcome) {
  size_t joined_faces = 0;
  IncisionOptions options;
  options.tet_budget = max_tets;
  for (size_t i = 0; i + 1 < edit.edges_m.size() && !outcome->is_refused; ++i) {
    std::vector<Eigen::Vector3d> positions(mesh_->vertex_slot_count());
    for (uint32_t v = 0; v < positions.size(); ++v) positions[v] = mesh_->IsVertex(v) ? PositionOf(v) : Eigen::Vector3d::Zero();
    const absl::StatusOr<IncisionResult> result = incision_->Cut(positions, edit.edges_m[i], edit.edges_m[i + 1], options);
    if (!result.ok()) {
      // The mesh is as the last part of the sweep that it took left it.
      outcome->is_refused = true;
      outcome->note = std::string(result.status().message());
      break;
    }
    joined_faces = result->joined_faces;
    outcome->is_refused = result->is_refused;
    if (result->is_refused) outcome->note = "the budget of tets stopped the blade";
  }
  if (joined_faces > 0) absl::StrAppend(&outcome->note, joined_faces, " faces of the cut stay joined");
  if (!edit.goes_on) incision_->EndStroke();
  return absl::OkStatus();
}

void WorldBody::EndStroke() {
  if (sheet_) {
    sheet_incision_->EndStroke();
  } else {
    incision_->EndStroke();
  }
}

bool WorldBody::IsStrokeUnderWay() const { return sheet_ ? sheet_incision_->IsUnderWay() : incision_->IsUnderWay(); }

/// Tets, of a shell triangles.
size_t WorldBody::ComponentSize(ComponentId component) const {
  return sheet_ ? sheet_->ComponentTriangleCount(component) : mesh_->ComponentTetCount(component);
}

/// Components that came to be since the last call and are to leave this body, ascending.
std::vector<ComponentId> WorldBody::TakeDetachable() {
  std::vector<ComponentId> components = TakeSorted(&new_components_);
  const std::vector<ComponentId> live = sheet_ ? sheet_->Components() : mesh_->Components();
  std::erase_if(components, [&](ComponentId c) { return ComponentSize(c) == 0; });
  if (components.size() == live.size() && !components.empty()) {
    // Nothing of old is left: the largest goes on as this body.
    components.erase(std::max_element(components.begin(), components.end(),
                                      [&](ComponentId a, ComponentId b) { return ComponentSize(a) < ComponentSize(b); }));
  }
  return components;
}

absl::StatusOr<std::vector<std::unique_ptr<WorldBody>>> WorldBody::DetachPieces(uint32_t first_index,
                                                                                const std::function<bool(const std::string&)>& is_taken) {
  std::vector<std::unique_ptr<WorldBody>> pieces;
  const std::vector<ComponentId> components = TakeDetachable();
  for (const TetZoneId zone : changed_zones_) zones_.MakeDynamic(zone);  // of pieces too
  for (const ComponentId component : components) {
    const auto index = first_index + static_cast<uint32_t>(pieces.size());
    PALPATE_ASSIGN_OR_RETURN(pieces.emplace_back(), sheet_ ? DetachSheet(component, index, is_taken) : Detach(component, index, is_taken));
  }
  return pieces;
}

absl::StatusOr<std::unique_ptr<WorldBody>> WorldBody::Detach(ComponentId component, uint32_t index,
                                                             const std::function<bool(const std::string&)>& is_taken) {
  const std::vector<BodyMarkers::Rider<EmbeddedPoints::Point>> riders = markers_.Withdraw(component);
  const std::vector<BodyMarkers::Rider<EmbeddedPoints::Point>> carried = carried_.Withdraw(component);
  is_detaching_ = true;
  absl::StatusOr<ClosedMesh::DetachedPiece> detached = mesh_->Detach(component);
  is_detaching_ = false;
  if (!detached.ok()) return detached.status();
  std::unique_ptr<WorldBody> piece = MakePiece(index);
  piece->mesh_ = std::make_unique<ClosedMesh>(std::move(detached->mesh));
  for (const VertexId source : detached->source_vertices) GiveVertex(SlotOf(source), piece.get());
  tally_.OnDetached(*piece->mesh_, index, *detached);
  piece->MakeEditors();
  piece->markers_.Adopt(riders, piece->mesh_.get(), detached->source_tets);
  piece->carried_.Adopt(carried, piece->mesh_.get(), detached->source_tets);
  piece->keeper_.Make(*piece->mesh_, NameOfPiece(is_taken), name(), *arrays(), index, [&piece](uint32_t v) { return piece->IsFixed(v); });
  return piece;
}

/// A body for what comes off this one, without its mesh.
std::unique_ptr<WorldBody> WorldBody::MakePiece(uint32_t index) const {
  std::unique_ptr<WorldBody> piece(new WorldBody);
  piece->vertices_ = vertices_;
  piece->index_ = index;
  piece->traits_ = traits_;
  piece->zones_ = zones_;
  piece->is_new_ = true;
  return piece;
}

/// The next vertex of a piece is this one.
void WorldBody::GiveVertex(uint32_t slot, WorldBody* piece) {
  const VertexHandle handle = std::exchange(handles_[slot], kNoHandle);
  vertices_->body[handle] = piece->index_;
  vertices_->slot[handle] = static_cast<uint32_t>(piece->handles_.size());
  piece->handles_.push_back(handle);
}

std::string WorldBody::NameOfPiece(const std::function<bool(const std::string&)>& is_taken) {
  std::string piece;
  do {
    piece = absl::StrCat(name(), ".", ++pieces_made_);
  } while (is_taken(piece));
  return piece;
}

std::vector<TetZoneId> WorldBody::TakeChangedZones() { return TakeSorted(&changed_zones_); }

std::vector<VertexHandle> WorldBody::TakeCopied() { return TakeSorted(&copied_); }

// --- state

std::unique_ptr<WorldBody> WorldBody::MakeEmptyPiece(uint32_t index, SceneVertices* vertices) {
  std::unique_ptr<WorldBody> piece(new WorldBody);
  piece->vertices_ = vertices;
  piece->index_ = index;
  piece->is_blank_ = true;
  return piece;
}

void WorldBody::MakeBlankMesh(bool has_sheet) {
  is_blank_ = false;
  if (has_sheet) {
    sheet_ = std::make_unique<SheetMesh>();
    MakeSheetEditors();
  } else {
    mesh_ = std::make_unique<ClosedMesh>();
    MakeEditors();
  }
}

absl::Status WorldBody::AcceptZones() const {
  const size_t zone_count = mesh_ ? mesh_->tet_zone_count() : sheet_ ? sheet_->MaterialZoneEnd() : zones_.count();
  if (zone_count > zones_.count()) return absl::InvalidArgumentError("a zone has no material");
  if (traits_.simulation < Simulation::kDynamic || traits_.simulation > Simulation::kShapeMatched ||
      traits_.shape_matching.mode < ShapeMode::kRigid || traits_.shape_matching.mode > ShapeMode::kQuadratic ||
      !(traits_.volume_stiffness_pa >= 0 && std::isfinite(traits_.volume_stiffness_pa)) ||
      !(traits_.restitution >= 0 && traits_.restitution <= 1) ||
      !(traits_.drag_coefficient >= 0 && std::isfinite(traits_.drag_coefficient))) {
    return absl::InvalidArgumentError("a way to simulate that there is not");
  }
  PALPATE_RETURN_IF_ERROR(CheckElementFor(traits_.tet_element, kind_, traits_.simulation, !is_shell()));
  if (shell_.has_value() != zones_.are_of_shell()) return absl::InvalidArgumentError("zones of a shell have its properties, others none");
  for (size_t zone = 0; zone < zones_.count() && shell_; ++zone) {
    const auto id = static_cast<TetZoneId>(zone);
    PALPATE_RETURN_IF_ERROR(ShellTriangleOf(zones_.ShellOf(id), zones_.MaterialOf(id)).status());
  }
  for (size_t zone = 0; zone < zones_.count() && kind_ == BodyKind::kDeformable && !is_shell(); ++zone) {
    const Material& material = zones_.MaterialOf(static_cast<TetZoneId>(zone));
    if (static_cast<uint32_t>(material.model) >= PALPATE_ENERGY_CODES) return absl::InvalidArgumentError("an energy that there is not");
    PALPATE_RETURN_IF_ERROR(CheckMaterialFor(traits_.simulation, traits_.tet_element, material));
    PALPATE_RETURN_IF_ERROR(TissueOf(material).status());
  }
  return absl::OkStatus();
}

absl::Status WorldBody::Accept(std::shared_ptr<const BodyArrays> arrays) {
  PALPATE_RETURN_IF_ERROR(AcceptZones());
  PALPATE_RETURN_IF_ERROR(sheet_ ? keeper_.Restore(std::move(arrays), sheet_.get()) : keeper_.Restore(std::move(arrays), mesh_.get()));
  const SceneVertices& vertices = *vertices_;
  if (handles_.size() != this->arrays()->vertex_slot_count) return absl::InvalidArgumentError("another number of vertices");
  for (uint32_t v = 0; v < handles_.size(); ++v) {
    const VertexHandle handle = handles_[v];
    const bool is_there = mesh_ ? mesh_->IsVertex(v) : sheet_ ? sheet_->IsVertex(v) : true;
    if (is_there != (handle != kNoHandle)) return absl::InvalidArgumentError("a vertex has no handle, or need not");
    if (is_there && (!vertices.body.contains(handle) || vertices.body[handle] != index_ || vertices.slot[handle] != v)) {
      return absl::InvalidArgumentError("a vertex has the handle of another");
    }
  }
  for (const VertexHandle handle : copied_) {
    if (!vertices.body.contains(handle)) return absl::InvalidArgumentError("a copied vertex is out of range");
  }
  for (const TetZoneId zone : changed_zones_) {
    if (zone >= zones_.count()) return absl::InvalidArgumentError("a changed zone is out of range");
  }
  return absl::OkStatus();
}

// --- observer

/// The weighted sum of the states of a new vertex's sources.
gpu::TissueVertexState WorldBody::MixStates(const MeshDelta::AddedVertex& vertex) const {
  std::array<double, 9> sums{};
  for (uint32_t s = 0; s < vertex.source_count; ++s) {
    const gpu::TissueVertexState& from = vertices_->state[handles_[SlotOf(vertex.sources[s].vertex)]];
    size_t k = 0;
    for (const gpu::Float4& value : {from.position_m, from.velocity_m_per_s, from.velocity_before_m_per_s}) {
      for (const float component : {value.x, value.y, value.z}) sums[k++] += vertex.sources[s].weight * component;
    }
  }
  const auto float4 = [&](size_t k) {
    return gpu::Float4{static_cast<float>(sums[k]), static_cast<float>(sums[k + 1]), static_cast<float>(sums[k + 2]), 0.0F};
  };
  return {float4(0), float4(3), float4(6)};
}

void WorldBody::OnVertexAdded(const ClosedMesh&, const MeshDelta::AddedVertex& vertex) {
  AddVertex(vertex);
  tally_.OnVertexAdded(vertex.id);
}

/// A handle for a new vertex, and what it has from its sources.
void WorldBody::AddVertex(const MeshDelta::AddedVertex& vertex) {
  const VertexHandle handle = vertices_->Add();
  const uint32_t slot = SlotOf(vertex.id);
  if (slot >= handles_.size()) handles_.resize(slot + 1, kNoHandle);
  handles_[slot] = handle;
  // It is held, driven, jointed and loaded as far as all its sources are; where these are driven apart, it is free.
  uint8_t held = kAllAxes;
  uint32_t on_cut = 1;
  uint32_t loads = 0xffffffffU;
  const VertexHandle first = handles_[SlotOf(vertex.sources[0].vertex)];
  const uint32_t region = vertices_->driven[first];
  uint32_t joint_set = vertices_->joint_set[first];
  for (uint32_t s = 0; s < vertex.source_count; ++s) {
    const VertexHandle source = handles_[SlotOf(vertex.sources[s].vertex)];
    loads &= vertices_->loads[source];
    if (vertices_->joint_set[source] != joint_set) joint_set = kNoSlot;
    held &= vertices_->driven[source] != region ? uint8_t{0} : vertices_->is_fixed[source] != 0 ? kAllAxes : vertices_->held[source];
    if (vertex.source_count == 1) {
      vertices_->origin[source] |= 1;
      vertices_->changed.push_back(source);
      copied_.push_back(source);
      copied_.push_back(handle);
    }
    on_cut &= vertices_->origin[source];
  }
  vertices_->state[handle] = MixStates(vertex);
  vertices_->rest_m[handle] = vertex.position_m;
  const bool is_fixed = held == kAllAxes;
  vertices_->is_fixed[handle] = is_fixed ? 1 : 0;
  vertices_->held[handle] = is_fixed ? uint8_t{0} : held;
  vertices_->driven[handle] = is_fixed ? region : kNoSlot;
  if (is_fixed && region != kNoSlot) BlendMotions(handle, vertex);
  vertices_->joint_set[handle] = is_fixed ? kNoSlot : joint_set;
  vertices_->loads[handle] = loads;
  vertices_->origin[handle] = (vertices_->origin[first] & ~1U) | on_cut;
  vertices_->body[handle] = index_;
  vertices_->slot[handle] = slot;
  if (is_fixed) keeper_.MarkFixed();
}

/// A new vertex of a region follows what its sources follow, by their weights: up to four regions, those with the largest shares.
void WorldBody::BlendMotions(VertexHandle handle, const MeshDelta::AddedVertex& vertex) {
  std::map<uint32_t, float> shares;
  bool is_blended = false;
  for (uint32_t s = 0; s < vertex.source_count; ++s) {
    const auto weight = static_cast<float>(vertex.sources[s].weight);
    const VertexHandle source = handles_[SlotOf(vertex.sources[s].vertex)];
    const auto blend = vertices_->blends.find(source);
    if (blend == vertices_->blends.end()) {
      shares[vertices_->driven[source]] += weight;
      continue;
    }
    is_blended = true;
    for (size_t k = 0; k < 4; ++k) shares[blend->second.regions[k]] += weight * blend->second.shares[k];
  }
  if (!is_blended) return;
  std::vector<std::pair<float, uint32_t>> parts;
  for (const auto& [region, share] : shares) parts.emplace_back(share, region);
  std::stable_sort(parts.begin(), parts.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  parts.resize(std::min<size_t>(parts.size(), 4));
  const float sum = std::accumulate(parts.begin(), parts.end(), 0.0F, [](float total, const auto& part) { return total + part.first; });
  gpu::TissueDrivenBlend blend;
  for (size_t k = 0; k < parts.size(); ++k) {
    blend.regions[k] = parts[k].second;
    blend.shares[k] = parts[k].first / sum;
  }
  vertices_->blends.insert_or_assign(handle, blend);
}

void WorldBody::OnTetAdded(const ClosedMesh& mesh, const MeshDelta::AddedTet& tet) {
  keeper_.MarkTet(SlotOf(tet.id));
  changed_zones_.push_back(tet.zone);
  tally_.OnTetAdded(mesh, tet, zones_.MaterialOf(tet.zone).density_kg_per_m3);
  carving_->OnTetAdded(SlotOf(tet.id), tet.parent);
}

void WorldBody::OnTetRemoved(const ClosedMesh& mesh, TetId tet, const std::array<VertexId, 4>& vertices) {
  const uint32_t slot = SlotOf(tet);
  keeper_.MarkTet(slot);
  carving_->OnTetRemoved(slot);
  if (is_detaching_) return;  // it goes on in a piece
  changed_zones_.push_back(mesh.TetZoneOf(slot));
  tally_.OnTetRemoved(mesh, tet, vertices, zones_.MaterialOf(mesh.TetZoneOf(slot)).density_kg_per_m3);
}

void WorldBody::OnVertexRemoved(const ClosedMesh&, VertexId vertex) {
  const uint32_t slot = SlotOf(vertex);
  if (IsFixed(slot)) keeper_.MarkFixed();
  if (is_detaching_) return;  // the piece takes the handle over
  tally_.OnVertexRemoved(vertex);
  vertices_->Release(std::exchange(handles_[slot], kNoHandle));
}

void WorldBody::OnEdited(const ClosedMesh&, const MeshDelta& delta) {
  for (const TriangleId id : delta.removed_triangles) keeper_.MarkTriangle(SlotOf(id));
  for (const MeshDelta::AddedTriangle& triangle : delta.added_triangles) keeper_.MarkTriangle(SlotOf(triangle.id));
  if (!is_detaching_) new_components_.insert(new_components_.end(), delta.added_components.begin(), delta.added_components.end());
}

}  // namespace palpate::sim
