#include "sim/world/world_body.h"

#include <algorithm>
#include <cmath>

#include <Eigen/Geometry>

#include "absl/strings/str_cat.h"
#include "sim/instrument/geometry.h"
#include "sim/topology/quality.h"
#include "sim/world/world_values.h"

namespace palpate::sim {
namespace {

constexpr size_t kDefaultGrowth = 10;  // of a body that is refined without a budget
constexpr uint8_t kAllAxes = 7;

template <typename T>
void SortUnique(std::vector<T>* values) {
  std::sort(values->begin(), values->end());
  values->erase(std::unique(values->begin(), values->end()), values->end());
}

double SquaredDistance(const CapsuleRegion& capsule, const Eigen::Vector3d& point) {
  const Eigen::Vector3d axis = capsule.end1_m - capsule.end0_m;
  const double length_sq = axis.squaredNorm();
  const double t = length_sq > 0 ? std::clamp((point - capsule.end0_m).dot(axis) / length_sq, 0.0, 1.0) : 0.0;
  return (point - capsule.end0_m - t * axis).squaredNorm();
}

bool Meets(const std::array<Eigen::Vector3d, 4>& tet_m, const CapsuleRegion& capsule) {
  const Eigen::AlignedBox3d box(capsule.end0_m.cwiseMin(capsule.end1_m).array() - capsule.radius_m,
                                capsule.end0_m.cwiseMax(capsule.end1_m).array() + capsule.radius_m);
  Eigen::AlignedBox3d tet_box;
  for (const Eigen::Vector3d& corner_m : tet_m) tet_box.extend(corner_m);
  if (!box.intersects(tet_box)) return false;
  const Eigen::Vector3d axis = capsule.end1_m - capsule.end0_m;
  const auto distance_m = [&](double t) { return DistanceToTet(capsule.end0_m + t * axis, tet_m); };
  if (axis.isZero(0)) return distance_m(0) <= capsule.radius_m;
  // The distance to a convex body is convex along a line: thirds.
  double from = 0;
  double to = 1;
  for (int i = 0; i < 40; ++i) {
    const double a = from + (to - from) / 3;
    const double b = to - (to - from) / 3;
    const double at_a_m = distance_m(a);
    const double at_b_m = distance_m(b);
    if (std::min(at_a_m, at_b_m) <= capsule.radius_m) return true;
    (at_a_m < at_b_m ? to : from) = at_a_m < at_b_m ? b : a;
  }
  return std::min(distance_m(from), distance_m(to)) <= capsule.radius_m;
}

}  // namespace

absl::StatusOr<std::unique_ptr<WorldBody>> WorldBody::Create(const BodyDescription& description, uint32_t index, SceneVertices* vertices) {
  std::unique_ptr<WorldBody> body(new WorldBody);
  body->vertices_ = vertices;
  body->index_ = index;
  body->kind_ = description.kind;
  body->simulation_ = description.simulation;
  body->shape_matching_ = description.shape_matching;
  body->self_collision_ = description.self_collision;
  body->volume_stiffness_pa_ = description.volume_stiffness_pa;
  body->is_dynamic_.assign(description.zones.size() + 1, 0);
  body->materials_ = {description.material};
  body->zone_names_ = {""};
  for (const ZoneDescription& zone : description.zones) {
    body->materials_.push_back(zone.material);
    body->zone_names_.push_back(zone.name);
  }
  const bool is_deformable = description.kind == BodyKind::kDeformable;
  for (uint32_t v = 0; v < description.mesh.vertices.size(); ++v) {
    const VertexHandle handle = vertices->Add();
    vertices->rest_m[handle] = description.mesh.vertices[v];
    vertices->is_fixed[handle] = is_deformable ? 0 : 1;
    vertices->origin[handle] = index << 1;
    vertices->body[handle] = index;
    vertices->slot[handle] = v;
    body->handles_.push_back(handle);
  }
  for (const uint32_t v : description.fixed_vertices) {
    if (v >= description.mesh.vertices.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat(".fixed_vertices: ", v, " is outside [0, ", description.mesh.vertices.size() - 1, "]"));
    }
    vertices->is_fixed[body->handles_[v]] = 1;
  }
  for (const SlidingVertex& sliding : description.sliding_vertices) {
    if (sliding.vertex >= description.mesh.vertices.size() || sliding.held < 1 || sliding.held > 6) {
      return absl::InvalidArgumentError(absl::StrCat(".sliding_vertices: vertex ", sliding.vertex, " is outside [0, ",
                                                     description.mesh.vertices.size() - 1, "], or its axes ", sliding.held,
                                                     " outside [1, 6]"));
    }
    const VertexHandle handle = body->handles_[sliding.vertex];
    if (vertices->is_fixed[handle] != 0 || vertices->held[handle] != 0) {
      return absl::InvalidArgumentError(absl::StrCat(".sliding_vertices: vertex ", sliding.vertex, " is fixed or given twice"));
    }
    vertices->held[handle] = sliding.held;
  }
  if (!description.tet_zones.empty() && description.tet_zones.size() != description.mesh.tets.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat(".tet_zones: ", description.tet_zones.size(), " entries for ", description.mesh.tets.size(), " tets"));
  }
  for (const uint16_t zone : description.tet_zones) {
    if (zone > description.zones.size()) {
      return absl::InvalidArgumentError(absl::StrCat(".tet_zones: ", zone, " is outside [0, ", description.zones.size(), "]"));
    }
  }
  if (is_deformable) PALPATE_RETURN_IF_ERROR(body->TakeMesh(description));
  if (body->mesh_ != nullptr) {
    auto arrays = std::make_shared<BodyArrays>();
    arrays->surface_zones.push_back({"surface", description.color});
    arrays->surface_zones.push_back({"inside", description.interior_color, true});
    for (const ZoneDescription& zone : description.zones) {
      arrays->surface_zones.push_back({absl::StrCat("inside ", zone.name), zone.interior_color, true});
    }
    PALPATE_RETURN_IF_ERROR(body->NameSurfaceZones(description, arrays.get()));
    PALPATE_RETURN_IF_ERROR(body->TakeTexture(description, arrays.get()));
    body->arrays_ = std::move(arrays);
    body->MakeEditors();
    body->MakeArrays(description.name, "");
  } else {
    PALPATE_RETURN_IF_ERROR(body->MakeArraysOf(description.mesh, description));
  }
  return body;
}

WorldBody::~WorldBody() {
  if (mesh_) mesh_->RemoveObserver(this);
}

/// Of a mesh that is no manifold, mesh_ stays null.
absl::Status WorldBody::TakeMesh(const BodyDescription& description) {
  absl::StatusOr<ClosedMesh> mesh = ClosedMesh::Build(description.mesh, description.tet_zones);
  if (!mesh.ok()) {
    tet_zones_ = description.tet_zones;
    return mesh.status().code() == absl::StatusCode::kInvalidArgument ? absl::OkStatus() : mesh.status();
  }
  mesh_ = std::make_unique<ClosedMesh>(*std::move(mesh));
  while (mesh_->tet_zone_count() < materials_.size()) {
    PALPATE_RETURN_IF_ERROR(mesh_->AddTetZone({zone_names_[mesh_->tet_zone_count()], 0}).status());
  }
  for (size_t zone = 0; zone < materials_.size(); ++zone) {
    PALPATE_ASSIGN_OR_RETURN(const SurfaceZoneId inside, mesh_->AddSurfaceZone(absl::StrCat("inside ", zone_names_[zone])));
    mesh_->SetInteriorSurfaceZone(static_cast<TetZoneId>(zone), inside);
  }
  return absl::OkStatus();
}

/// Adds the zones that the description names to the arrays, and puts their triangles, of the mesh or of the arrays, into them.
absl::Status WorldBody::NameSurfaceZones(const BodyDescription& description, BodyArrays* arrays) {
  if (description.surface_zones.empty()) return absl::OkStatus();
  const auto key = [](std::array<uint32_t, 3> corners) {
    std::sort(corners.begin(), corners.end());
    return corners;
  };
  absl::flat_hash_map<std::array<uint32_t, 3>, uint32_t> slots;
  for (uint32_t t = 0; mesh_ && t < mesh_->triangle_slot_count(); ++t) slots[key(mesh_->TriangleVertices(t))] = t;
  for (uint32_t t = 0; !mesh_ && t < arrays->surface_triangles.size(); ++t) {
    std::array<uint32_t, 3> corners{};
    for (size_t c = 0; c < 3; ++c) corners[c] = arrays->surface_vertices[arrays->surface_triangles[t][c]];
    slots[key(corners)] = t;
  }
  for (size_t k = 0; k < description.surface_zones.size(); ++k) {
    const SurfaceZoneDescription& zone = description.surface_zones[k];
    arrays->surface_zones.push_back({zone.name, zone.color});
    if (mesh_) PALPATE_RETURN_IF_ERROR(mesh_->AddSurfaceZone(zone.name).status());
    if (zone.triangles.empty()) return absl::InvalidArgumentError(absl::StrCat(".surface_zones[", k, "]: has no triangle"));
    for (size_t i = 0; i < zone.triangles.size(); ++i) {
      const auto found = slots.find(key(zone.triangles[i]));
      if (found == slots.end()) {
        return absl::InvalidArgumentError(absl::StrCat(".surface_zones[", k, "].triangles[", i, "]: is none of the surface"));
      }
      if (mesh_) {
        mesh_->SetTriangleZone(found->second, NamedSurfaceZone(k));
      } else {
        arrays->triangle_zones[found->second] = NamedSurfaceZone(k);
      }
    }
  }
  return absl::OkStatus();
}

/// Gives the texture coordinates to the surface of the mesh, or of the arrays, whose zones are final.
absl::Status WorldBody::TakeTexture(const BodyDescription& description, BodyArrays* arrays) {
  const std::vector<std::array<float, 2>>& given = description.texture.coordinates;
  if (given.empty()) return absl::OkStatus();
  const double period = description.texture.u_period;
  if (!std::isfinite(period) || period < 0) {
    return absl::InvalidArgumentError(absl::StrCat(".texture.u_period: ", period, " is negative or not finite"));
  }
  if (given.size() != description.mesh.vertices.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat(".texture.coordinates: ", given.size(), " entries for ", description.mesh.vertices.size(), " vertices"));
  }
  for (size_t v = 0; v < given.size(); ++v) {
    const auto& [u, w] = given[v];
    if (!std::isfinite(u) || !std::isfinite(w) || (period > 0 && !(u >= 0 && u < period))) {
      return absl::InvalidArgumentError(
          absl::StrCat(".texture.coordinates[", v, "]: (", u, ", ", w, ") is not finite or does not lie within the period"));
    }
  }
  // Adding zero takes the sign off a negative one.
  const auto value = [&given](uint32_t vertex) { return std::array<float, 2>{given[vertex][0] + 0.0F, given[vertex][1] + 0.0F}; };
  arrays->texture_coordinates.assign(given.size(), {});
  if (mesh_ == nullptr) {
    for (const uint32_t v : arrays->surface_vertices) arrays->texture_coordinates[v] = value(v);
    return absl::OkStatus();
  }
  mesh_->SetTexturePeriod(period);
  for (uint32_t t = 0; t < mesh_->triangle_slot_count(); ++t) {
    for (const uint32_t v : mesh_->TriangleVertices(t)) mesh_->SetTextureCoordinate(mesh_->TriangleZoneOf(t), v, value(v));
  }
  return absl::OkStatus();
}

void WorldBody::MakeEditors() {
  carver_ = std::make_unique<Carver>(mesh_.get());
  refiner_ = std::make_unique<Refiner>(mesh_.get());
  incision_ = std::make_unique<Incision>(mesh_.get());
  mesh_->AddObserver(this);
}

int WorldBody::FindZone(const std::string& name) const {
  const auto found = std::find(zone_names_.begin(), zone_names_.end(), name);
  return found == zone_names_.end() ? -1 : static_cast<int>(found - zone_names_.begin());
}

Eigen::Vector3d WorldBody::PositionOf(uint32_t vertex_slot) const {
  const gpu::Float4& x = vertices_->state[handles_[vertex_slot]].position_m;
  return {x.x, x.y, x.z};
}

// --- markers

absl::Status WorldBody::TakeMarkers(const BodyDescription& description, uint32_t first_index) {
  if (description.markers.empty()) return absl::OkStatus();
  if (kind_ != BodyKind::kDeformable) return absl::InvalidArgumentError(".markers: only a deformable body has markers");
  if (mesh_ != nullptr) points_ = std::make_unique<EmbeddedPoints>(mesh_.get());
  for (uint32_t m = 0; m < description.markers.size(); ++m) {
    const MarkerDescription& marker = description.markers[m];
    if (marker.tet >= description.mesh.tets.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat(".markers[", m, "].tet: ", marker.tet, " is outside [0, ", description.mesh.tets.size() - 1, "]"));
    }
    if (mesh_ != nullptr) {
      const absl::StatusOr<uint32_t> point = points_->Embed(mesh_->IdOfTet(marker.tet), marker.position_m);
      if (!point.ok()) return Annotate(point.status(), absl::StrCat(".markers[", m, "].position_m"));
      marker_of_point_.push_back(first_index + m);
    } else {
      const auto& v = description.mesh.tets[marker.tet];
      std::array<Eigen::Vector3d, 4> corners_m;
      for (size_t c = 0; c < 4; ++c) corners_m[c] = description.mesh.vertices[v[c]];
      markers_.push_back({first_index + m, v, BarycentricWeights(corners_m, marker.position_m)});
    }
  }
  return absl::OkStatus();
}

std::vector<WorldBody::Marker> WorldBody::Markers() const {
  if (points_ == nullptr) return markers_;
  std::vector<Marker> out;
  for (uint32_t i = 0; i < points_->size(); ++i) {
    const EmbeddedPoints::Point& point = points_->point(i);
    if (point.tet != kNoTet) out.push_back({marker_of_point_[i], mesh_->TetVertices(SlotOf(point.tet)), point.weights});
  }
  return out;
}

// --- arrays

SurfaceSlot WorldBody::TakeSurfaceSlot(BodyArrays* arrays, uint32_t vertex) {
  if (surface_slots_[vertex] != kNoSurfaceSlot) return surface_slots_[vertex];
  SurfaceSlot slot = arrays->surface_vertices.end_index();
  if (free_surface_slots_.empty()) {
    arrays->surface_vertices.push_back(vertex);
  } else {
    slot = free_surface_slots_.top();
    free_surface_slots_.pop();
    arrays->surface_vertices[slot] = vertex;
  }
  surface_slots_[vertex] = slot;
  return slot;
}

/// Of a vertex of the mesh: the same in all zones that have one there, since zones of the skin share what they were given.
std::array<float, 2> WorldBody::TextureCoordinateOf(const BodyArrays& arrays, uint32_t vertex) const {
  if (!mesh_->IsVertex(vertex) || !mesh_->IsVertexOnSurface(vertex)) return {};
  for (size_t zone = 0; zone < arrays.surface_zones.size(); ++zone) {
    if (arrays.surface_zones[zone].is_interior) continue;
    const auto* corner = mesh_->FindSurfaceCorner(static_cast<SurfaceZoneId>(zone), vertex);
    if (corner != nullptr && corner->texture_coordinate) return *corner->texture_coordinate;
  }
  return {};
}

/// Brings the texture coordinates of `next`, which has its triangles, and the hashes to the state of the mesh. Only the triangles that
/// changed can have changed any.
void WorldBody::UpdateTexture(BodyArrays* next, BodyArraysChange* change) const {
  if (next->texture_coordinates.empty()) return;
  next->texture_coordinates.resize(mesh_->vertex_slot_count());
  for (const BodyArrays* arrays : {arrays_.get(), static_cast<const BodyArrays*>(next)}) {
    for (const uint32_t t : change->triangles) {
      if (t >= arrays->surface_triangles.size() || arrays->surface_triangles[t] == kFreeTriangle) continue;
      for (const SurfaceSlot slot : arrays->surface_triangles[t]) {
        change->texture_places.push_back(slot);
        change->texture_vertices.push_back(arrays->surface_vertices[slot]);
      }
    }
  }
  SortUnique(&change->texture_places);
  SortUnique(&change->texture_vertices);
  std::erase_if(change->texture_vertices, [&](uint32_t v) {
    std::array<float, 2>& held = next->texture_coordinates[v];
    const std::array<float, 2> value = TextureCoordinateOf(*next, v);
    if (held == value) return true;
    next->volume_hash += HashOfTextureCoordinate(v, value) - HashOfTextureCoordinate(v, held);
    held = value;
    return false;
  });
  const auto at = [](const BodyArrays& arrays, SurfaceSlot slot) {
    const uint32_t vertex = arrays.surface_vertices.contains(slot) ? arrays.surface_vertices[slot] : kNoSlot;
    return vertex < arrays.texture_coordinates.size() ? arrays.texture_coordinates[vertex] : std::array<float, 2>{};
  };
  std::erase_if(change->texture_places, [&](SurfaceSlot slot) {
    const std::array<float, 2> before = at(*arrays_, slot);
    const std::array<float, 2> value = at(*next, slot);
    next->surface_hash += HashOfTextureCoordinate(slot, value) - HashOfTextureCoordinate(slot, before);
    return before == value;
  });
}

/// From the whole mesh. The surface zones stay as they are in arrays_.
void WorldBody::MakeArrays(std::string name, std::string parent) {
  auto arrays = std::make_shared<BodyArrays>();
  arrays->name = std::move(name);
  arrays->parent = std::move(parent);
  arrays->surface_zones = arrays_->surface_zones;
  arrays->texture_coordinates.assign(arrays_->texture_coordinates.empty() ? 0 : mesh_->vertex_slot_count(), {});
  arrays_ = std::move(arrays);
  surface_slots_.assign(mesh_->vertex_slot_count(), kNoSurfaceSlot);
  auto next = std::make_shared<BodyArrays>(*arrays_);
  for (uint32_t v = 0; v < mesh_->vertex_slot_count(); ++v) {
    if (mesh_->IsVertex(v) && mesh_->IsVertexOnSurface(v)) TakeSurfaceSlot(next.get(), v);
  }
  arrays_ = std::move(next);
  for (uint32_t t = 0; t < mesh_->tet_slot_count(); ++t) dirty_tets_.push_back(t);
  for (uint32_t t = 0; t < mesh_->triangle_slot_count(); ++t) dirty_triangles_.push_back(t);
  fixed_changed_ = true;
  UpdateArrays();
}

/// Of a body that is not editable.
absl::Status WorldBody::MakeArraysOf(const TetMesh& mesh, const BodyDescription& description) {
  auto arrays = std::make_shared<BodyArrays>();
  arrays->name = description.name;
  const BoundarySurface surface = ExtractBoundary(mesh);
  arrays->surface_vertices.values() = surface.vertices;
  for (const auto& [a, b, c] : surface.triangles) {
    arrays->surface_triangles.push_back({SurfaceSlot{a}, SurfaceSlot{b}, SurfaceSlot{c}});
  }
  arrays->triangle_zones.assign(surface.triangles.size(), 0);
  arrays->vertex_slot_count = static_cast<uint32_t>(mesh.vertices.size());
  arrays->tets = mesh.tets;
  arrays->fixed_vertices = description.fixed_vertices;
  arrays->surface_zones.push_back({"surface", description.color});
  surface_slots_.assign(mesh.vertices.size(), kNoSurfaceSlot);
  for (const SurfaceSlot slot : arrays->surface_vertices.indices()) surface_slots_[arrays->surface_vertices[slot]] = slot;
  PALPATE_RETURN_IF_ERROR(NameSurfaceZones(description, arrays.get()));
  PALPATE_RETURN_IF_ERROR(TakeTexture(description, arrays.get()));
  for (const SurfaceSlot slot : arrays->surface_vertices.indices()) {
    if (arrays->texture_coordinates.empty()) break;
    const uint32_t v = arrays->surface_vertices[slot];
    arrays->surface_hash += HashOfTextureCoordinate(slot, arrays->texture_coordinates[v]);
    arrays->volume_hash += HashOfTextureCoordinate(v, arrays->texture_coordinates[v]);
  }
  for (uint32_t t = 0; t < surface.triangles.size(); ++t) {
    arrays->surface_hash += HashOfTriangle(t, arrays->surface_triangles[t], arrays->triangle_zones[t]);
  }
  for (uint32_t t = 0; t < mesh.tets.size(); ++t) arrays->volume_hash += HashOfTet(t, mesh.tets[t]);
  arrays_ = std::move(arrays);
  return absl::OkStatus();
}

BodyArraysChange WorldBody::UpdateArrays() {
  SortUnique(&dirty_tets_);
  SortUnique(&dirty_triangles_);
  auto next = std::make_shared<BodyArrays>(*arrays_);
  next->vertex_slot_count = mesh_->vertex_slot_count();
  next->tets.resize(mesh_->tet_slot_count());
  next->surface_triangles.resize(mesh_->triangle_slot_count());
  next->triangle_zones.resize(mesh_->triangle_slot_count());
  surface_slots_.resize(mesh_->vertex_slot_count(), kNoSurfaceSlot);

  for (const uint32_t t : dirty_triangles_) {
    auto& triangle = next->surface_triangles[t];
    if (triangle == kFreeTriangle) continue;
    next->surface_hash -= HashOfTriangle(t, triangle, next->triangle_zones[t]);
    for (const SurfaceSlot slot : triangle) {
      const uint32_t vertex = next->surface_vertices[slot];
      if (vertex == kNoSlot || (mesh_->IsVertex(vertex) && mesh_->IsVertexOnSurface(vertex))) continue;
      next->surface_vertices[slot] = kNoSlot;
      surface_slots_[vertex] = kNoSurfaceSlot;
      free_surface_slots_.push(slot);
    }
    triangle = kFreeTriangle;
    next->triangle_zones[t] = 0;
  }
  for (const uint32_t t : dirty_triangles_) {
    if (!mesh_->IsTriangle(t)) continue;
    std::array<SurfaceSlot, 3> corners{};
    for (size_t c = 0; c < 3; ++c) corners[c] = TakeSurfaceSlot(next.get(), mesh_->TriangleVertices(t)[c]);
    next->surface_triangles[t] = corners;
    next->triangle_zones[t] = mesh_->TriangleZoneOf(t);
    next->surface_hash += HashOfTriangle(t, corners, next->triangle_zones[t]);
  }
  for (const uint32_t t : dirty_tets_) {
    auto& tet = next->tets[t];
    if (tet != kFreeTet) next->volume_hash -= HashOfTet(t, tet);
    tet = mesh_->IsTet(t) ? mesh_->TetVertices(t) : kFreeTet;
    if (tet != kFreeTet) next->volume_hash += HashOfTet(t, tet);
  }
  if (fixed_changed_) {
    next->fixed_vertices.clear();
    for (uint32_t v = 0; v < mesh_->vertex_slot_count(); ++v) {
      if (mesh_->IsVertex(v) && vertices_->is_fixed[handles_[v]] != 0) next->fixed_vertices.push_back(v);
    }
  }
  BodyArraysChange change;
  change.body = index_;
  change.triangles = std::exchange(dirty_triangles_, {});
  change.tets = std::exchange(dirty_tets_, {});
  change.fixed_changed = fixed_changed_;
  UpdateTexture(next.get(), &change);
  fixed_changed_ = false;
  is_new_ = false;
  arrays_ = std::move(next);
  return change;
}

// --- edits

void WorldBody::BeginEdit() {
  outcome_ = {};
  touched_mass_kg_ = 0;
  first_parent_.clear();
  added_vertices_.clear();
}

// Of a tet that this edit has added, at rest.
void WorldBody::JudgeAdded(const ClosedMesh& mesh, uint32_t slot) {
  const auto& v = mesh.TetVertices(slot);
  const std::array<Eigen::Vector3d, 4> x = {mesh.PositionOf(v[0]), mesh.PositionOf(v[1]), mesh.PositionOf(v[2]), mesh.PositionOf(v[3])};
  outcome_.min_mean_ratio = std::min(outcome_.min_mean_ratio, MeanRatio(x));
  outcome_.min_edge_ratio = std::min(outcome_.min_edge_ratio, EdgeRatio(x));
}

EditOutcome WorldBody::FinishEdit() {
  for (const auto& [tet, parent] : first_parent_) {
    outcome_.added_tets.push_back(tet);
    if (const uint32_t slot = mesh_->Find(tet); slot != kNoSlot) JudgeAdded(*mesh_, slot);
    if (parent != kNoTet) outcome_.remapped_tets.emplace_back(parent, tet);
  }
  std::sort(outcome_.added_tets.begin(), outcome_.added_tets.end());
  std::sort(outcome_.remapped_tets.begin(), outcome_.remapped_tets.end());
  std::sort(outcome_.removed_tets.begin(), outcome_.removed_tets.end());
  outcome_.added_vertices = std::exchange(added_vertices_, {});
  std::sort(outcome_.added_vertices.begin(), outcome_.added_vertices.end());
  std::sort(outcome_.removed_vertices.begin(), outcome_.removed_vertices.end());
  first_parent_.clear();
  // What is refined or cut weighs what it did, but for rounding.
  if (std::abs(outcome_.removed_mass_kg) < 1e-12 * touched_mass_kg_) outcome_.removed_mass_kg = 0;
  if (points_ != nullptr) {
    for (const uint32_t point : points_->TakeReleased()) outcome_.released_markers.push_back(marker_of_point_[point]);
    SortUnique(&outcome_.released_markers);
  }
  return std::exchange(outcome_, {});
}

/// Live tets of a region, ascending slots; of a list also those that are gone.
std::vector<TetId> WorldBody::TetsIn(const EditRegion& region) const {
  if (const auto* list = std::get_if<TetListRegion>(&region)) return list->tets;
  std::vector<TetId> tets;
  const auto* ball = std::get_if<BallRegion>(&region);
  const auto* capsule = std::get_if<CapsuleRegion>(&region);
  const auto* named = std::get_if<ZoneRegion>(&region);
  const int zone = named == nullptr ? -1 : FindZone(named->zone);
  for (uint32_t t = 0; t < mesh_->tet_slot_count(); ++t) {
    if (!mesh_->IsTet(t)) continue;
    bool is_inside = false;
    if (named != nullptr) {
      is_inside = mesh_->TetZoneOf(t) == zone;
    } else {
      Eigen::Vector3d center_m = Eigen::Vector3d::Zero();
      for (const uint32_t v : mesh_->TetVertices(t)) center_m += PositionOf(v) / 4;
      is_inside = ball != nullptr ? (center_m - ball->center_m).squaredNorm() <= ball->radius_m * ball->radius_m
                                  : SquaredDistance(*capsule, center_m) <= capsule->radius_m * capsule->radius_m;
    }
    if (is_inside) tets.push_back(mesh_->IdOfTet(t));
  }
  return tets;
}

void WorldBody::SetGuard(const ExposureGuard& guard) {
  carver_->SetGuard(guard, [this](uint32_t tet) { return tet < is_wanted_.size() && is_wanted_[tet] != 0; });
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

absl::Status WorldBody::Carve(const EditRegion& region, EditOutcome* outcome) {
  is_wanted_.assign(mesh_->tet_slot_count(), 0);
  wanted_.clear();
  for (const TetId id : TetsIn(region)) {
    const uint32_t tet = mesh_->Find(id);
    if (tet == kNoSlot) {
      ++outcome->unchanged_count;
    } else if (is_wanted_[tet] == 0) {
      is_wanted_[tet] = 1;
      wanted_.push_back(tet);
    }
  }
  const auto surface_faces = [&](uint32_t tet) {
    int count = 0;
    for (int f = 0; f < 4; ++f) count += mesh_->IsFaceOnSurface(tet, f) ? 1 : 0;
    return count;
  };
  std::vector<uint32_t> layer;
  while (true) {
    std::erase_if(wanted_, [&](uint32_t tet) { return is_wanted_[tet] == 0; });
    SortUnique(&wanted_);
    layer.clear();
    std::copy_if(wanted_.begin(), wanted_.end(), std::back_inserter(layer), [&](uint32_t tet) { return surface_faces(tet) > 0; });
    bool has_removed = false;
    for (const uint32_t tet : layer) {
      if (is_wanted_[tet] == 0) continue;
      PALPATE_ASSIGN_OR_RETURN(const Carver::Outcome removed, carver_->Remove(mesh_->IdOfTet(tet)));
      has_removed |= removed.is_removed;
    }
    if (has_removed) continue;
    // Nothing goes from the surface: what is left and touches it nowhere may open a cavity.
    for (size_t i = 0; i < wanted_.size() && !has_removed; ++i) {
      const uint32_t tet = wanted_[i];
      if (surface_faces(tet) > 0 || carver_->Classify(tet) != CarveClass::kRemovable) continue;
      PALPATE_ASSIGN_OR_RETURN(const Carver::Outcome removed, carver_->Remove(mesh_->IdOfTet(tet)));
      has_removed = removed.is_removed;
    }
    if (!has_removed) break;
  }
  outcome->unchanged_count += static_cast<uint32_t>(wanted_.size());
  is_wanted_.clear();
  wanted_.clear();
  return absl::OkStatus();
}

bool WorldBody::Meets(uint32_t tet, const EditRegion& region) const {
  const auto& v = mesh_->TetVertices(tet);
  const std::array<Eigen::Vector3d, 4> x = {PositionOf(v[0]), PositionOf(v[1]), PositionOf(v[2]), PositionOf(v[3])};
  if (const auto* ball = std::get_if<BallRegion>(&region)) return sim::Meets(x, {ball->center_m, ball->center_m, ball->radius_m});
  if (const auto* capsule = std::get_if<CapsuleRegion>(&region)) return sim::Meets(x, *capsule);
  return true;
}

absl::Status WorldBody::Refine(const EditRegion& region, const RefineEdit& edit, size_t max_tets, EditOutcome* outcome) {
  std::vector<TetId> zone;
  if (std::holds_alternative<BallRegion>(region) || std::holds_alternative<CapsuleRegion>(region)) {
    for (uint32_t t = 0; t < mesh_->tet_slot_count(); ++t) {
      if (mesh_->IsTet(t) && Meets(t, region)) zone.push_back(mesh_->IdOfTet(t));
    }
  } else {
    zone = TetsIn(region);
  }
  const size_t given = zone.size();
  std::erase_if(zone, [&](TetId id) { return mesh_->Find(id) == kNoSlot; });
  outcome->unchanged_count = static_cast<uint32_t>(given - zone.size());
  RefineOptions options;
  options.max_edge_m = edit.max_edge_m;
  options.tet_budget = std::min(edit.tet_budget > 0 ? edit.tet_budget : kDefaultGrowth * mesh_->tet_count(), max_tets);
  const absl::StatusOr<RefineResult> result = refiner_->Refine(zone, options, [&](TetId tet) { return Meets(SlotOf(tet), region); });
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

absl::Status WorldBody::Incise(const InciseEdit& edit, size_t max_tets, EditOutcome* outcome) {
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

absl::StatusOr<std::vector<std::unique_ptr<WorldBody>>> WorldBody::DetachPieces(uint32_t first_index,
                                                                                const std::function<bool(const std::string&)>& is_taken) {
  std::vector<std::unique_ptr<WorldBody>> pieces;
  std::vector<ComponentId> components = std::exchange(new_components_, {});
  std::sort(components.begin(), components.end());
  components.erase(std::unique(components.begin(), components.end()), components.end());
  const std::vector<ComponentId> live = mesh_->Components();
  std::erase_if(components, [&](ComponentId c) { return mesh_->ComponentTetCount(c) == 0; });
  if (components.size() == live.size() && !components.empty()) {
    // Nothing of old is left: the largest goes on as this body.
    components.erase(std::max_element(components.begin(), components.end(), [&](ComponentId a, ComponentId b) {
      return mesh_->ComponentTetCount(a) < mesh_->ComponentTetCount(b);
    }));
  }
  for (const TetZoneId zone : changed_zones_) is_dynamic_[zone] = 1;  // of pieces too
  for (const ComponentId component : components) {
    std::vector<std::pair<uint32_t, EmbeddedPoints::Point>> riders;  // with the index of their marker
    for (const uint32_t point : points_ == nullptr ? std::vector<uint32_t>() : points_->PointsOf(component)) {
      riders.emplace_back(marker_of_point_[point], points_->point(point));
      points_->Withdraw(point);
    }
    is_detaching_ = true;
    absl::StatusOr<ClosedMesh::DetachedPiece> detached = mesh_->Detach(component);
    is_detaching_ = false;
    if (!detached.ok()) return detached.status();
    std::unique_ptr<WorldBody> piece(new WorldBody);
    piece->vertices_ = vertices_;
    piece->index_ = first_index + static_cast<uint32_t>(pieces.size());
    piece->simulation_ = simulation_;
    piece->shape_matching_ = shape_matching_;
    piece->is_dynamic_ = is_dynamic_;
    piece->self_collision_ = self_collision_;
    piece->volume_stiffness_pa_ = volume_stiffness_pa_;
    piece->materials_ = materials_;
    piece->zone_names_ = zone_names_;
    piece->zone_loads_ = zone_loads_;
    piece->mesh_ = std::make_unique<ClosedMesh>(std::move(detached->mesh));
    for (uint32_t v = 0; v < detached->source_vertices.size(); ++v) {
      const VertexHandle handle = std::exchange(handles_[SlotOf(detached->source_vertices[v])], kNoHandle);
      piece->handles_.push_back(handle);
      vertices_->body[handle] = piece->index_;
      vertices_->slot[handle] = v;
    }
    MovedTissue& moved = outcome_.moved.emplace_back();
    moved.body = piece->index_;
    for (uint32_t v = 0; v < detached->source_vertices.size(); ++v) {
      moved.vertices.emplace_back(detached->source_vertices[v], piece->mesh_->IdOfVertex(v));
    }
    for (uint32_t t = 0; t < detached->source_tets.size(); ++t) {
      moved.tets.emplace_back(detached->source_tets[t], piece->mesh_->IdOfTet(t));
      if (first_parent_.contains(detached->source_tets[t])) JudgeAdded(*piece->mesh_, t);
    }
    piece->MakeEditors();
    if (!riders.empty()) piece->points_ = std::make_unique<EmbeddedPoints>(piece->mesh_.get());
    for (const auto& [marker, rider] : riders) {
      const auto tet = std::lower_bound(detached->source_tets.begin(), detached->source_tets.end(), SlotOf(rider.tet),
                                        [](TetId source, uint32_t slot) { return SlotOf(source) < slot; });
      const auto slot = static_cast<uint32_t>(tet - detached->source_tets.begin());
      piece->points_->Adopt(rider, piece->mesh_->IdOfTet(slot));
      piece->marker_of_point_.push_back(marker);
    }
    piece->arrays_ = arrays_;
    std::string name;
    do {
      name = absl::StrCat(arrays_->name, ".", ++pieces_made_);
    } while (is_taken(name));
    piece->MakeArrays(std::move(name), arrays_->name);
    piece->is_new_ = true;
    pieces.push_back(std::move(piece));
  }
  return pieces;
}

std::vector<TetZoneId> WorldBody::TakeChangedZones() {
  std::sort(changed_zones_.begin(), changed_zones_.end());
  changed_zones_.erase(std::unique(changed_zones_.begin(), changed_zones_.end()), changed_zones_.end());
  return std::exchange(changed_zones_, {});
}

std::vector<VertexHandle> WorldBody::TakeCopied() {
  SortUnique(&copied_);
  return std::exchange(copied_, {});
}

// --- observer

void WorldBody::OnVertexAdded(const ClosedMesh&, const MeshDelta::AddedVertex& vertex) {
  const VertexHandle handle = vertices_->Add();
  const uint32_t slot = SlotOf(vertex.id);
  if (slot >= handles_.size()) handles_.resize(slot + 1, kNoHandle);
  handles_[slot] = handle;
  gpu::TissueVertexState state;
  uint8_t held = kAllAxes;  // what all sources are held along; a driven one does not stay
  uint32_t on_cut = 1;
  std::array<double, 9> sums{};
  uint32_t region = kNoSlot;
  uint32_t loads = 0xffffffffU;
  for (uint32_t s = 0; s < vertex.source_count; ++s) {
    const VertexHandle source = handles_[SlotOf(vertex.sources[s].vertex)];
    if (s == 0) region = vertices_->driven[source];
    loads &= vertices_->loads[source];
    held &= vertices_->driven[source] != region ? uint8_t{0} : vertices_->is_fixed[source] != 0 ? kAllAxes : vertices_->held[source];
    if (vertex.source_count == 1) {
      vertices_->origin[source] |= 1;
      vertices_->changed.push_back(source);
      copied_.push_back(source);
      copied_.push_back(handle);
    }
    on_cut &= vertices_->origin[source];
    const gpu::TissueVertexState& from = vertices_->state[source];
    const double w = vertex.sources[s].weight;
    const std::array<float, 9> values = {from.position_m.x,
                                         from.position_m.y,
                                         from.position_m.z,
                                         from.velocity_m_per_s.x,
                                         from.velocity_m_per_s.y,
                                         from.velocity_m_per_s.z,
                                         from.velocity_before_m_per_s.x,
                                         from.velocity_before_m_per_s.y,
                                         from.velocity_before_m_per_s.z};
    for (size_t k = 0; k < 9; ++k) sums[k] += w * values[k];
  }
  const auto float4 = [&](size_t k) {
    return gpu::Float4{static_cast<float>(sums[k]), static_cast<float>(sums[k + 1]), static_cast<float>(sums[k + 2]), 0.0F};
  };
  state = {float4(0), float4(3), float4(6)};
  vertices_->state[handle] = state;
  vertices_->rest_m[handle] = vertex.position_m;
  const bool is_fixed = held == kAllAxes;
  vertices_->is_fixed[handle] = is_fixed ? 1 : 0;
  vertices_->held[handle] = is_fixed ? uint8_t{0} : held;
  vertices_->driven[handle] = is_fixed ? region : kNoSlot;
  vertices_->loads[handle] = loads;
  vertices_->origin[handle] = (vertices_->origin[handles_[SlotOf(vertex.sources[0].vertex)]] & ~1U) | on_cut;
  vertices_->body[handle] = index_;
  vertices_->slot[handle] = slot;
  fixed_changed_ |= is_fixed;
  added_vertices_.push_back(vertex.id);
}

void WorldBody::OnTetAdded(const ClosedMesh& mesh, const MeshDelta::AddedTet& tet) {
  const uint32_t slot = SlotOf(tet.id);
  dirty_tets_.push_back(slot);
  const auto parent = first_parent_.find(tet.parent);
  const TetId first = parent == first_parent_.end() ? tet.parent : parent->second;
  first_parent_[tet.id] = first;
  changed_zones_.push_back(tet.zone);
  const double mass_kg = materials_[tet.zone].density_kg_per_m3 * mesh.RestVolume(slot);
  outcome_.removed_mass_kg -= mass_kg;
  touched_mass_kg_ += mass_kg;
  if (is_wanted_.empty()) return;
  if (slot >= is_wanted_.size()) is_wanted_.resize(slot + 1, 0);
  is_wanted_[slot] = tet.parent != kNoTet && is_wanted_[SlotOf(tet.parent)] != 0 ? 1 : 0;
  if (is_wanted_[slot] != 0) wanted_.push_back(slot);
}

void WorldBody::OnTetRemoved(const ClosedMesh& mesh, TetId tet, const std::array<VertexId, 4>& vertices) {
  const uint32_t slot = SlotOf(tet);
  dirty_tets_.push_back(slot);
  if (slot < is_wanted_.size()) is_wanted_[slot] = 0;
  if (is_detaching_) return;  // it goes on in a piece
  if (first_parent_.erase(tet) == 0) outcome_.removed_tets.push_back(tet);
  changed_zones_.push_back(mesh.TetZoneOf(slot));
  std::array<Eigen::Vector3d, 4> x;
  for (size_t c = 0; c < 4; ++c) x[c] = mesh.PositionOf(SlotOf(vertices[c]));
  const double volume_m3 = (x[1] - x[0]).cross(x[2] - x[0]).dot(x[3] - x[0]) / 6;
  const double mass_kg = materials_[mesh.TetZoneOf(slot)].density_kg_per_m3 * volume_m3;
  outcome_.removed_mass_kg += mass_kg;
  touched_mass_kg_ += mass_kg;
}

void WorldBody::OnVertexRemoved(const ClosedMesh&, VertexId vertex) {
  const uint32_t slot = SlotOf(vertex);
  fixed_changed_ |= vertices_->is_fixed[handles_[slot]] != 0;
  if (is_detaching_) return;  // the piece takes the handle over
  const auto added = std::find(added_vertices_.begin(), added_vertices_.end(), vertex);
  if (added == added_vertices_.end()) {
    outcome_.removed_vertices.push_back(vertex);
  } else {
    added_vertices_.erase(added);
  }
  vertices_->Release(std::exchange(handles_[slot], kNoHandle));
}

void WorldBody::OnEdited(const ClosedMesh&, const MeshDelta& delta) {
  for (const TriangleId id : delta.removed_triangles) dirty_triangles_.push_back(SlotOf(id));
  for (const MeshDelta::AddedTriangle& triangle : delta.added_triangles) dirty_triangles_.push_back(SlotOf(triangle.id));
  if (!is_detaching_) new_components_.insert(new_components_.end(), delta.added_components.begin(), delta.added_components.end());
}

}  // namespace palpate::sim
