#include "sim/world/body_arrays_keeper.h"

#include <algorithm>
#include <array>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"

namespace palpate::sim {
namespace {

template <typename T>
void SortUnique(std::vector<T>* values) {
  std::sort(values->begin(), values->end());
  values->erase(std::unique(values->begin(), values->end()), values->end());
}

template <typename Mesh>
constexpr bool kHasTets = std::is_same_v<Mesh, ClosedMesh>;

template <typename Mesh>
size_t TetSlotsOf(const Mesh* mesh) {
  if constexpr (kHasTets<Mesh>) return mesh == nullptr ? 0 : mesh->tet_slot_count();
  return 0;
}

/// Of a vertex of the mesh: the same in all zones that have one there, since zones of the skin share what they were given.
std::array<float, 2> TextureCoordinateOf(const ClosedMesh& mesh, const BodyArrays& arrays, uint32_t vertex) {
  if (!mesh.IsVertex(vertex) || !mesh.IsVertexOnSurface(vertex)) return {};
  for (size_t zone = 0; zone < arrays.surface_zones.size(); ++zone) {
    if (arrays.surface_zones[zone].is_interior) continue;
    const auto* corner = mesh.FindSurfaceCorner(static_cast<SurfaceZoneId>(zone), vertex);
    if (corner != nullptr && corner->texture_coordinate) return *corner->texture_coordinate;
  }
  return {};
}

/// Zeros where there are none, as in what edits uncover.
TextureCorners TextureCornersOf(const ClosedMesh& mesh, uint32_t triangle) {
  TextureCorners out{};
  for (size_t c = 0; c < 3; ++c) {
    const auto* corner = mesh.FindSurfaceCorner(mesh.TriangleZoneOf(triangle), mesh.TriangleVertices(triangle)[c]);
    if (corner != nullptr && corner->texture_coordinate) out[c] = *corner->texture_coordinate;
  }
  return out;
}

TextureCorners TextureCornersOf(const SheetMesh& mesh, uint32_t triangle) { return mesh.TextureCornersOf(triangle); }

void SetTextureCorners(uint32_t triangle, const TextureCorners& value, BodyArrays* arrays) {
  TextureCorners& held = arrays->texture_corners[triangle];
  const uint64_t change = HashOfTextureCorners(triangle, value) - HashOfTextureCorners(triangle, held);
  arrays->surface_hash += change;
  arrays->volume_hash += change;
  held = value;
}

/// (0, 0) where a place has none.
std::array<float, 2> TextureCoordinateAt(const BodyArrays& arrays, SurfaceSlot slot) {
  const uint32_t vertex = arrays.surface_vertices.contains(slot) ? arrays.surface_vertices[slot] : kNoSlot;
  return vertex < arrays.texture_coordinates.size() ? arrays.texture_coordinates[vertex] : std::array<float, 2>{};
}

}  // namespace

void BodyArraysKeeper::Take(BodyArrays arrays) {
  surface_slots_.assign(arrays.vertex_slot_count, kNoSurfaceSlot);
  for (const SurfaceSlot slot : arrays.surface_vertices.indices()) {
    const uint32_t v = arrays.surface_vertices[slot];
    surface_slots_[v] = slot;
    if (arrays.texture_coordinates.empty()) continue;
    arrays.surface_hash += HashOfTextureCoordinate(slot, arrays.texture_coordinates[v]);
    arrays.volume_hash += HashOfTextureCoordinate(v, arrays.texture_coordinates[v]);
  }
  for (uint32_t t = 0; t < arrays.surface_triangles.size(); ++t) {
    arrays.surface_hash += HashOfTriangle(t, arrays.surface_triangles[t], arrays.triangle_zones[t]);
    if (!arrays.has_texture_corners) continue;
    arrays.surface_hash += HashOfTextureCorners(t, arrays.texture_corners[t]);
    arrays.volume_hash += HashOfTextureCorners(t, arrays.texture_corners[t]);
  }
  for (uint32_t t = 0; t < arrays.tets.size(); ++t) arrays.volume_hash += HashOfTet(t, arrays.tets[t]);
  arrays_ = std::make_shared<const BodyArrays>(std::move(arrays));
}

template <typename Mesh>
void BodyArraysKeeper::Make(const Mesh& mesh, std::string name, std::string parent, const BodyArrays& like, uint32_t body,
                            const IsFixed& is_fixed) {
  BodyArrays arrays;
  arrays.name = std::move(name);
  arrays.parent = std::move(parent);
  arrays.surface_zones = like.surface_zones;
  arrays.chart_zones = like.chart_zones;
  arrays.has_texture_corners = like.has_texture_corners;
  arrays.texture_coordinates.assign(like.texture_coordinates.empty() ? 0 : mesh.vertex_slot_count(), {});
  surface_slots_.assign(mesh.vertex_slot_count(), kNoSurfaceSlot);
  for (uint32_t v = 0; v < mesh.vertex_slot_count(); ++v) {
    if (mesh.IsVertex(v) && mesh.IsVertexOnSurface(v)) TakeSurfaceSlot(&arrays, v);
  }
  arrays_ = std::make_shared<const BodyArrays>(std::move(arrays));
  if constexpr (kHasTets<Mesh>) {
    for (uint32_t t = 0; t < mesh.tet_slot_count(); ++t) MarkTet(t);
  }
  for (uint32_t t = 0; t < mesh.triangle_slot_count(); ++t) MarkTriangle(t);
  MarkFixed();
  Update(mesh, body, is_fixed);
}

SurfaceSlot BodyArraysKeeper::TakeSurfaceSlot(BodyArrays* arrays, uint32_t vertex) {
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

/// Those that are gone or differ; what their vertices leave is free.
template <typename Mesh>
void BodyArraysKeeper::RemoveTriangles(const Mesh& mesh, BodyArrays* next) {
  for (const uint32_t t : dirty_triangles_) {
    auto& triangle = next->surface_triangles[t];
    if (triangle == kFreeTriangle) continue;
    next->surface_hash -= HashOfTriangle(t, triangle, next->triangle_zones[t]);
    for (const SurfaceSlot slot : triangle) {
      const uint32_t vertex = next->surface_vertices[slot];
      if (vertex == kNoSlot || (mesh.IsVertex(vertex) && mesh.IsVertexOnSurface(vertex))) continue;
      next->surface_vertices[slot] = kNoSlot;
      surface_slots_[vertex] = kNoSurfaceSlot;
      free_surface_slots_.push(slot);
    }
    triangle = kFreeTriangle;
    next->triangle_zones[t] = 0;
    if (next->has_texture_corners) SetTextureCorners(t, {}, next);
  }
}

template <typename Mesh>
void BodyArraysKeeper::AddTriangles(const Mesh& mesh, BodyArrays* next) {
  for (const uint32_t t : dirty_triangles_) {
    if (!mesh.IsTriangle(t)) continue;
    std::array<SurfaceSlot, 3> corners{};
    for (size_t c = 0; c < 3; ++c) corners[c] = TakeSurfaceSlot(next, mesh.TriangleVertices(t)[c]);
    next->surface_triangles[t] = corners;
    next->triangle_zones[t] = next->ZoneOnMesh(mesh.TriangleZoneOf(t));
    next->surface_hash += HashOfTriangle(t, corners, next->triangle_zones[t]);
    if (next->has_texture_corners) SetTextureCorners(t, TextureCornersOf(mesh, t), next);
  }
}

template <typename Mesh>
void BodyArraysKeeper::UpdateTets(const Mesh& mesh, BodyArrays* next) const {
  if constexpr (kHasTets<Mesh>) {
    next->tets.resize(mesh.tet_slot_count());
    for (const uint32_t t : dirty_tets_) {
      auto& tet = next->tets[t];
      if (tet != kFreeTet) next->volume_hash -= HashOfTet(t, tet);
      tet = mesh.IsTet(t) ? mesh.TetVertices(t) : kFreeTet;
      if (tet != kFreeTet) next->volume_hash += HashOfTet(t, tet);
    }
  }
}

template <typename Mesh>
BodyArraysChange BodyArraysKeeper::Update(const Mesh& mesh, uint32_t body, const IsFixed& is_fixed) {
  SortUnique(&dirty_tets_);
  SortUnique(&dirty_triangles_);
  auto next = std::make_shared<BodyArrays>(*arrays_);
  next->vertex_slot_count = mesh.vertex_slot_count();
  next->surface_triangles.resize(mesh.triangle_slot_count());
  next->triangle_zones.resize(mesh.triangle_slot_count());
  if (next->has_texture_corners) next->texture_corners.resize(mesh.triangle_slot_count());
  surface_slots_.resize(mesh.vertex_slot_count(), kNoSurfaceSlot);
  RemoveTriangles(mesh, next.get());
  AddTriangles(mesh, next.get());
  UpdateTets(mesh, next.get());
  if (fixed_changed_) {
    next->fixed_vertices.clear();
    for (uint32_t v = 0; v < mesh.vertex_slot_count(); ++v) {
      if (mesh.IsVertex(v) && is_fixed(v)) next->fixed_vertices.push_back(v);
    }
  }
  BodyArraysChange change;
  change.body = body;
  change.triangles = std::exchange(dirty_triangles_, {});
  change.tets = std::exchange(dirty_tets_, {});
  change.fixed_changed = std::exchange(fixed_changed_, false);
  if constexpr (kHasTets<Mesh>) UpdateTexture(mesh, next.get(), &change);
  arrays_ = std::move(next);
  return change;
}

/// Brings the texture coordinates of `next`, which has its triangles, and the hashes to the state of the mesh. Only the triangles that
/// changed can have changed any.
void BodyArraysKeeper::UpdateTexture(const ClosedMesh& mesh, BodyArrays* next, BodyArraysChange* change) const {
  if (next->texture_coordinates.empty()) return;
  next->texture_coordinates.resize(mesh.vertex_slot_count());
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
    const std::array<float, 2> value = TextureCoordinateOf(mesh, *next, v);
    if (held == value) return true;
    next->volume_hash += HashOfTextureCoordinate(v, value) - HashOfTextureCoordinate(v, held);
    held = value;
    return false;
  });
  std::erase_if(change->texture_places, [&](SurfaceSlot slot) {
    const std::array<float, 2> before = TextureCoordinateAt(*arrays_, slot);
    const std::array<float, 2> value = TextureCoordinateAt(*next, slot);
    next->surface_hash += HashOfTextureCoordinate(slot, value) - HashOfTextureCoordinate(slot, before);
    return before == value;
  });
}

template <typename Mesh>
absl::Status BodyArraysKeeper::Restore(std::shared_ptr<const BodyArrays> arrays, const Mesh* mesh) {
  const auto other = [](const char* what) {
    return absl::InvalidArgumentError(absl::StrCat("the arrays of a body are of another mesh: ", what));
  };
  const auto all_below = [](const std::vector<uint32_t>& slots, size_t count) {
    return std::all_of(slots.begin(), slots.end(), [count](uint32_t slot) { return slot < count; });
  };
  if (!all_below(dirty_tets_, TetSlotsOf(mesh)) || !all_below(dirty_triangles_, mesh == nullptr ? 0 : mesh->triangle_slot_count())) {
    return other("a changed slot is out of range");
  }
  const BodyArrays& a = *arrays;
  if (mesh == nullptr) {
    const BodyArrays& made = *arrays_;
    if (a.tets != made.tets || a.surface_triangles != made.surface_triangles || a.surface_vertices != made.surface_vertices ||
        a.vertex_slot_count != made.vertex_slot_count) {
      return other("it cannot be edited");
    }
  } else {
    if (a.vertex_slot_count != mesh->vertex_slot_count() || a.tets.size() != TetSlotsOf(mesh) ||
        a.surface_triangles.size() != mesh->triangle_slot_count()) {
      return other("numbers of slots");
    }
    if constexpr (kHasTets<Mesh>) {
      if (a.surface_zones.size() + a.chart_zones.size() != mesh->surface_zone_count()) return other("numbers of surface zones");
      for (uint32_t t = 0; t < a.tets.size(); ++t) {
        if (a.tets[t] != (mesh->IsTet(t) ? mesh->TetVertices(t) : kFreeTet)) return other("a tet");
      }
    }
    for (uint32_t t = 0; t < a.surface_triangles.size(); ++t) {
      if ((a.surface_triangles[t] == kFreeTriangle) == mesh->IsTriangle(t)) return other("a triangle");
      for (size_t c = 0; c < 3 && mesh->IsTriangle(t); ++c) {
        if (a.surface_vertices[a.surface_triangles[t][c]] != mesh->TriangleVertices(t)[c]) return other("a corner");
      }
    }
  }
  surface_slots_.assign(a.vertex_slot_count, kNoSurfaceSlot);
  free_surface_slots_ = {};
  for (const SurfaceSlot slot : a.surface_vertices.indices()) {
    if (a.surface_vertices[slot] == kNoSlot) {
      free_surface_slots_.push(slot);
    } else if (std::exchange(surface_slots_[a.surface_vertices[slot]], slot) != kNoSurfaceSlot) {
      return other("a vertex is there twice");
    }
  }
  arrays_ = std::move(arrays);
  return absl::OkStatus();
}

template void BodyArraysKeeper::Make(const ClosedMesh&, std::string, std::string, const BodyArrays&, uint32_t, const IsFixed&);
template void BodyArraysKeeper::Make(const SheetMesh&, std::string, std::string, const BodyArrays&, uint32_t, const IsFixed&);
template BodyArraysChange BodyArraysKeeper::Update(const ClosedMesh&, uint32_t, const IsFixed&);
template BodyArraysChange BodyArraysKeeper::Update(const SheetMesh&, uint32_t, const IsFixed&);
template absl::Status BodyArraysKeeper::Restore(std::shared_ptr<const BodyArrays>, const ClosedMesh*);
template absl::Status BodyArraysKeeper::Restore(std::shared_ptr<const BodyArrays>, const SheetMesh*);

}  // namespace palpate::sim
