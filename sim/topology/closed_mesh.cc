// ClosedMesh: building, queries, zones and the check of the whole mesh.
#include "sim/topology/closed_mesh.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <numeric>

#include <Eigen/Geometry>

#include "absl/strings/str_cat.h"
#include "gpu/base/status.h"

namespace palpate::sim {
namespace {

size_t At(int i) { return static_cast<size_t>(i); }

// The finaliser of splitmix64: every input bit reaches every output bit.
uint64_t Mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

uint64_t Chain(uint64_t seed, std::initializer_list<uint64_t> words) {
  for (const uint64_t word : words) seed = Mix(seed ^ word);
  return seed;
}

template <size_t n>
std::array<uint32_t, n> Sorted(std::array<uint32_t, n> values) {
  std::sort(values.begin(), values.end());
  return values;
}

}  // namespace

void MeshDelta::Clear() {
  removed_vertices.clear();
  added_vertices.clear();
  removed_tets.clear();
  added_tets.clear();
  removed_triangles.clear();
  added_triangles.clear();
  rehomed_triangles.clear();
  moved_tets.clear();
  moved_triangles.clear();
  added_components.clear();
  removed_components.clear();
  added_surfaces.clear();
  removed_surfaces.clear();
}

void MeshObserver::OnVertexAdded(const ClosedMesh&, const MeshDelta::AddedVertex&) {}
void MeshObserver::OnTetAdded(const ClosedMesh&, const MeshDelta::AddedTet&) {}
void MeshObserver::OnTetRemoved(const ClosedMesh&, TetId, const std::array<VertexId, 4>&) {}
void MeshObserver::OnVertexRemoved(const ClosedMesh&, VertexId) {}
void MeshObserver::OnSurfaceChanged(const ClosedMesh&, const MeshDelta&) {}
void MeshObserver::OnEdited(const ClosedMesh&, const MeshDelta&) {}

uint64_t MeshHashVertex(VertexId id, const Eigen::Vector3d& position_m) {
  return Chain(1, {static_cast<uint64_t>(id), std::bit_cast<uint64_t>(position_m.x()), std::bit_cast<uint64_t>(position_m.y()),
                   std::bit_cast<uint64_t>(position_m.z())});
}

uint64_t MeshHashTet(TetId id, const std::array<VertexId, 4>& vertices, TetZoneId zone) {
  return Chain(2, {static_cast<uint64_t>(id), static_cast<uint64_t>(vertices[0]), static_cast<uint64_t>(vertices[1]),
                   static_cast<uint64_t>(vertices[2]), static_cast<uint64_t>(vertices[3]), zone});
}

uint64_t MeshHashTriangle(TriangleId id, const std::array<VertexId, 3>& vertices, SurfaceZoneId zone, TetId tet) {
  return Chain(3, {static_cast<uint64_t>(id), static_cast<uint64_t>(vertices[0]), static_cast<uint64_t>(vertices[1]),
                   static_cast<uint64_t>(vertices[2]), zone, static_cast<uint64_t>(tet)});
}

uint64_t ClosedMesh::HashOf(const Vertex& vertex, uint32_t slot) const { return MeshHashVertex(IdOfVertex(slot), vertex.position_m); }

uint64_t ClosedMesh::HashOf(const Tet& tet, uint32_t slot) const {
  return MeshHashTet(IdOfTet(slot),
                     {IdOfVertex(tet.vertices[0]), IdOfVertex(tet.vertices[1]), IdOfVertex(tet.vertices[2]), IdOfVertex(tet.vertices[3])},
                     tet.zone);
}

uint64_t ClosedMesh::HashOf(const Triangle& triangle, uint32_t slot) const {
  return MeshHashTriangle(IdOfTriangle(slot),
                          {IdOfVertex(triangle.vertices[0]), IdOfVertex(triangle.vertices[1]), IdOfVertex(triangle.vertices[2])},
                          triangle.zone, IdOfTet(triangle.tet));
}

int64_t ClosedMesh::Counts::RealChi() const {
  return static_cast<int64_t>(vertices) - static_cast<int64_t>(edges) + static_cast<int64_t>(faces) - static_cast<int64_t>(tets);
}

int64_t ClosedMesh::Counts::SurfaceChi() const {
  return static_cast<int64_t>(virtual_edges) - static_cast<int64_t>(virtual_faces) + static_cast<int64_t>(virtual_tets);
}

int64_t ClosedMesh::Counts::ClosedChi() const { return RealChi() + static_cast<int64_t>(virtual_vertices) - SurfaceChi(); }

ClosedMesh::ClosedMesh() {
  tet_zones_.push_back({"tissue", 0});
  surface_zones_.push_back({"surface", {}});
}

absl::StatusOr<ClosedMesh> ClosedMesh::Build(const TetMesh& mesh, std::span<const TetZoneId> tet_zones) {
  PALPATE_RETURN_IF_ERROR(ValidateTetMesh(mesh));
  if (!tet_zones.empty() && tet_zones.size() != mesh.tets.size()) {
    return absl::InvalidArgumentError(absl::StrCat("zones of ", tet_zones.size(), " tets given for ", mesh.tets.size(), " tets"));
  }
  ClosedMesh closed;
  for (const TetZoneId zone : tet_zones) {
    while (zone >= closed.tet_zone_count()) {
      PALPATE_RETURN_IF_ERROR(closed.AddTetZone({absl::StrCat("zone ", closed.tet_zone_count()), 0}).status());
    }
  }
  MeshEdit edit;
  edit.vertices.reserve(mesh.vertices.size());
  for (const Eigen::Vector3d& position_m : mesh.vertices) edit.vertices.push_back({.position_m = position_m});
  edit.tets.reserve(mesh.tets.size());
  for (size_t t = 0; t < mesh.tets.size(); ++t) {
    const auto& v = mesh.tets[t];
    edit.tets.push_back({.vertices = {NewVertexId(v[0]), NewVertexId(v[1]), NewVertexId(v[2]), NewVertexId(v[3])},
                         .zone = tet_zones.empty() ? TetZoneId{0} : tet_zones[t]});
  }
  if (const absl::Status status = closed.Apply(edit); !status.ok()) {
    // What is wrong with a whole mesh is the argument's fault.
    return status.code() == absl::StatusCode::kFailedPrecondition ? absl::InvalidArgumentError(status.message()) : status;
  }
  return closed;
}

uint32_t ClosedMesh::Find(VertexId id) const {
  const uint32_t slot = SlotOf(id);
  return IsVertex(slot) && vertices_[slot].generation == GenerationOf(id) ? slot : kNoSlot;
}

uint32_t ClosedMesh::Find(TetId id) const {
  const uint32_t slot = SlotOf(id);
  return IsTet(slot) && tets_[slot].generation == GenerationOf(id) ? slot : kNoSlot;
}

uint32_t ClosedMesh::Find(TriangleId id) const {
  const uint32_t slot = SlotOf(id);
  return IsTriangle(slot) && triangles_[slot].generation == GenerationOf(id) ? slot : kNoSlot;
}

double ClosedMesh::RestVolume(uint32_t tet) const {
  const auto& v = tets_[tet].vertices;
  const Eigen::Vector3d& a = PositionOf(v[0]);
  return (PositionOf(v[1]) - a).cross(PositionOf(v[2]) - a).dot(PositionOf(v[3]) - a) / 6;
}

// --- neighbourhoods
// -----------------------------------------------------------------------------------------------------------------------

void ClosedMesh::TetsAroundVertexFrom(uint32_t first_tet, uint32_t vertex, std::vector<uint32_t>* out) const {
  query_mark_.resize(tets_.size(), 0);
  if (++query_epoch_ == 0) {
    std::fill(query_mark_.begin(), query_mark_.end(), 0);
    query_epoch_ = 1;
  }
  out->clear();
  out->push_back(first_tet);
  query_mark_[first_tet] = query_epoch_;
  for (size_t i = 0; i < out->size(); ++i) {
    const Tet& tet = tets_[(*out)[i]];
    for (size_t f = 0; f < 4; ++f) {
      const Neighbor n = tet.neighbors[f];
      if (tet.vertices[f] == vertex || n.is_virtual() || query_mark_[n.slot()] == query_epoch_) continue;
      query_mark_[n.slot()] = query_epoch_;
      out->push_back(n.slot());
    }
  }
}

void ClosedMesh::TetsAroundVertex(uint32_t vertex, std::vector<uint32_t>* out) const {
  TetsAroundVertexFrom(vertices_[vertex].tet, vertex, out);
}

void ClosedMesh::TetsAroundEdge(uint32_t tet, int edge, std::vector<uint32_t>* out) const {
  const uint32_t a = tets_[tet].vertices[At(kTetEdges[At(edge)][0])];
  const uint32_t b = tets_[tet].vertices[At(kTetEdges[At(edge)][1])];
  // Turns around the edge from `start`, leaving through the face opposite `leave`, until the surface or the start; returns whether closed.
  const auto turn = [&](uint32_t start, uint32_t leave) {
    out->clear();
    out->push_back(start);
    uint32_t enter = kNoSlot;
    for (uint32_t at = start;;) {
      const Tet& record = tets_[at];
      size_t face = 0;
      for (size_t c = 0; c < 4; ++c) {
        if (record.vertices[c] == leave) {
          face = c;
        } else if (record.vertices[c] != a && record.vertices[c] != b) {
          enter = record.vertices[c];
        }
      }
      const Neighbor next = record.neighbors[face];
      if (next.is_virtual() || next.slot() == start) return !next.is_virtual();
      at = next.slot();
      out->push_back(at);
      leave = enter;
    }
  };
  uint32_t others[2];
  int count = 0;
  for (const uint32_t v : tets_[tet].vertices) {
    if (v != a && v != b) others[count++] = v;
  }
  if (turn(tet, others[0])) return;
  // On the surface: `out` ends at one side; turn back from there.
  const uint32_t last = out->back();
  const Tet& record = tets_[last];
  uint32_t back[2];
  count = 0;
  for (size_t c = 0; c < 4; ++c) {
    if (record.vertices[c] != a && record.vertices[c] != b) back[count++] = static_cast<uint32_t>(c);
  }
  // The side to leave through: the one that is not on the surface, or either if the edge has this tet alone.
  const uint32_t leave = record.neighbors[back[0]].is_virtual() && !record.neighbors[back[1]].is_virtual() ? back[1] : back[0];
  turn(last, record.vertices[leave]);
}

void ClosedMesh::NeighborsOfVertex(uint32_t vertex, std::vector<uint32_t>* out) const {
  std::vector<uint32_t> tets;
  TetsAroundVertex(vertex, &tets);
  out->clear();
  for (const uint32_t tet : tets) {
    for (const uint32_t v : tets_[tet].vertices) {
      if (v != vertex) out->push_back(v);
    }
  }
  std::sort(out->begin(), out->end());
  out->erase(std::unique(out->begin(), out->end()), out->end());
}

void ClosedMesh::SurfaceFan(uint32_t vertex, std::vector<uint32_t>* out) const {
  out->clear();
  const uint32_t first = vertices_[vertex].triangle;
  if (first == kNoSlot) return;
  uint32_t triangle = first;
  do {
    out->push_back(triangle);
    const Triangle& record = triangles_[triangle];
    const size_t own = static_cast<size_t>(std::find(record.vertices.begin(), record.vertices.end(), vertex) - record.vertices.begin());
    // The edge from the vertex to the corner before it is the one the next triangle starts with.
    triangle = record.neighbors[(own + 1) % 3];
  } while (triangle != first);
}

// --- components
// ---------------------------------------------------------------------------------------------------------------------------

size_t ClosedMesh::ComponentTetCount(ComponentId component) const {
  const auto* found = tet_components_.Find(component);
  return found == nullptr ? 0 : found->cell_count;
}

size_t ClosedMesh::SurfaceTriangleCount(ComponentId surface) const {
  const auto* found = surface_components_.Find(surface);
  return found == nullptr ? 0 : found->cell_count;
}

void ClosedMesh::TetsOfComponent(ComponentId component, std::vector<uint32_t>* out) const {
  out->clear();
  const auto* found = tet_components_.Find(component);
  if (found == nullptr) return;
  query_mark_.resize(tets_.size(), 0);
  if (++query_epoch_ == 0) {
    std::fill(query_mark_.begin(), query_mark_.end(), 0);
    query_epoch_ = 1;
  }
  out->push_back(found->representative);
  query_mark_[found->representative] = query_epoch_;
  for (size_t i = 0; i < out->size(); ++i) {
    ForTetNeighbors((*out)[i], [&](uint32_t n) {
      if (query_mark_[n] == query_epoch_) return;
      query_mark_[n] = query_epoch_;
      out->push_back(n);
    });
  }
}

absl::StatusOr<ClosedMesh::DetachedPiece> ClosedMesh::Detach(ComponentId component) {
  if (tet_components_.Find(component) == nullptr) return absl::NotFoundError(absl::StrCat("component ", component, " does not exist"));
  std::vector<uint32_t> tets;
  TetsOfComponent(component, &tets);
  std::sort(tets.begin(), tets.end());
  DetachedPiece piece;
  piece.mesh.tet_zones_ = tet_zones_;
  piece.mesh.texture_period_ = texture_period_;
  piece.mesh.surface_zones_.clear();
  for (const SurfaceZone& zone : surface_zones_) piece.mesh.surface_zones_.push_back({zone.name, {}});
  absl::flat_hash_map<uint32_t, uint32_t> new_slot;
  MeshEdit copy;
  MeshEdit cut;
  for (const uint32_t tet : tets) {
    MeshEdit::NewTet added{.vertices = {}, .parent = kNoTet, .zone = tets_[tet].zone};
    for (size_t c = 0; c < 4; ++c) {
      const uint32_t v = tets_[tet].vertices[c];
      const auto [it, is_new] = new_slot.try_emplace(v, static_cast<uint32_t>(copy.vertices.size()));
      if (is_new) {
        copy.vertices.push_back({.position_m = vertices_[v].position_m});
        piece.source_vertices.push_back(IdOfVertex(v));
      }
      added.vertices[c] = NewVertexId(it->second);
    }
    copy.tets.push_back(added);
    cut.removed.push_back(IdOfTet(tet));
    piece.source_tets.push_back(IdOfTet(tet));
  }
  PALPATE_RETURN_IF_ERROR(piece.mesh.Apply(copy));
  for (uint32_t i = 0; i < tets.size(); ++i) {
    for (size_t f = 0; f < 4; ++f) {
      if (!tets_[tets[i]].neighbors[f].is_virtual()) continue;
      const Triangle& from = triangles_[tets_[tets[i]].neighbors[f].slot()];
      piece.mesh.SetTriangleZone(piece.mesh.tets_[i].neighbors[f].slot(), from.zone);
      for (const uint32_t v : from.vertices) {
        const SurfaceCorner* corner = FindSurfaceCorner(from.zone, v);
        if (corner->texture_coordinate) piece.mesh.SetTextureCoordinate(from.zone, new_slot[v], *corner->texture_coordinate);
      }
    }
  }
  PALPATE_RETURN_IF_ERROR(Apply(cut));
  return piece;
}

// --- zones
// --------------------------------------------------------------------------------------------------------------------------------

absl::StatusOr<TetZoneId> ClosedMesh::AddTetZone(TetZone zone) {
  if (tet_zones_.size() > 0xffff) return absl::ResourceExhaustedError("a mesh has at most 65536 zones of tets");
  if (zone.interior_surface_zone >= surface_zones_.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("interior surface zone ", zone.interior_surface_zone, " does not exist, there are ", surface_zones_.size()));
  }
  tet_zones_.push_back(std::move(zone));
  return static_cast<TetZoneId>(tet_zones_.size() - 1);
}

absl::StatusOr<SurfaceZoneId> ClosedMesh::AddSurfaceZone(std::string name) {
  if (surface_zones_.size() > 0xffff) return absl::ResourceExhaustedError("a mesh has at most 65536 surface zones");
  surface_zones_.push_back({std::move(name), {}});
  return static_cast<SurfaceZoneId>(surface_zones_.size() - 1);
}

void ClosedMesh::SetTetZone(uint32_t tet, TetZoneId zone) {
  delta_.hash -= HashOf(tets_[tet], tet);
  tets_[tet].zone = zone;
  delta_.hash += HashOf(tets_[tet], tet);
}

void ClosedMesh::SetTriangleZone(uint32_t triangle, SurfaceZoneId zone) {
  Triangle& record = triangles_[triangle];
  if (record.zone == zone) return;
  delta_.hash -= HashOf(record, triangle);
  for (const uint32_t v : record.vertices) {
    DropCorner(record.zone, v);
    ++surface_zones_[zone].corners[v].triangle_count;
  }
  record.zone = zone;
  delta_.hash += HashOf(record, triangle);
}

void ClosedMesh::SetInteriorSurfaceZone(TetZoneId zone, SurfaceZoneId interior) { tet_zones_[zone].interior_surface_zone = interior; }

const ClosedMesh::SurfaceCorner* ClosedMesh::FindSurfaceCorner(SurfaceZoneId zone, uint32_t vertex) const {
  const auto it = surface_zones_[zone].corners.find(vertex);
  return it == surface_zones_[zone].corners.end() ? nullptr : &it->second;
}

void ClosedMesh::SetTextureCoordinate(SurfaceZoneId zone, uint32_t vertex, const std::array<float, 2>& value) {
  surface_zones_[zone].corners.find(vertex)->second.texture_coordinate = value;
}

void ClosedMesh::AddObserver(MeshObserver* observer) { observers_.push_back(observer); }

void ClosedMesh::RemoveObserver(MeshObserver* observer) {
  observers_.erase(std::remove(observers_.begin(), observers_.end(), observer), observers_.end());
}

// --- whole mesh
// ---------------------------------------------------------------------------------------------------------------------------

TetMesh ClosedMesh::ToTetMesh(std::vector<uint32_t>* vertex_slots) const {
  TetMesh mesh;
  std::vector<uint32_t> index(vertices_.size(), kNoSlot);
  if (vertex_slots != nullptr) vertex_slots->clear();
  for (uint32_t v = 0; v < vertices_.size(); ++v) {
    if (!IsVertex(v)) continue;
    index[v] = static_cast<uint32_t>(mesh.vertices.size());
    mesh.vertices.push_back(vertices_[v].position_m);
    if (vertex_slots != nullptr) vertex_slots->push_back(v);
  }
  for (uint32_t t = 0; t < tets_.size(); ++t) {
    if (!IsTet(t)) continue;
    const auto& v = tets_[t].vertices;
    mesh.tets.push_back({index[v[0]], index[v[1]], index[v[2]], index[v[3]]});
  }
  return mesh;
}

ClosedMesh::Counts ClosedMesh::Count() const {
  Counts counts;
  counts.vertices = vertex_count();
  counts.tets = tet_count();
  counts.virtual_vertices = surface_components_.size();
  counts.virtual_tets = triangle_count();
  counts.virtual_faces = triangle_count() * 3 / 2;
  counts.faces = (4 * tet_count() + triangle_count()) / 2;
  for (uint32_t v = 0; v < vertices_.size(); ++v) counts.virtual_edges += IsVertex(v) && IsVertexOnSurface(v) ? 1 : 0;
  std::vector<uint64_t> edges;
  edges.reserve(6 * tet_count());
  for (uint32_t t = 0; t < tets_.size(); ++t) {
    if (!IsTet(t)) continue;
    for (const auto& [i, j] : kTetEdges) {
      const auto [low, high] = std::minmax(tets_[t].vertices[At(i)], tets_[t].vertices[At(j)]);
      edges.push_back(static_cast<uint64_t>(low) << 32 | high);
    }
  }
  std::sort(edges.begin(), edges.end());
  counts.edges = static_cast<size_t>(std::unique(edges.begin(), edges.end()) - edges.begin());
  return counts;
}

}  // namespace palpate::sim
