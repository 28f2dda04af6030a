#include "sim/topology/mesh_mirror.h"

#include "absl/strings/str_cat.h"

namespace palpate::sim {
namespace {

uint64_t HashOf(const MeshMirror::Vertex& vertex) { return MeshHashVertex(vertex.id, vertex.position_m); }
uint64_t HashOf(const MeshMirror::Tet& tet) { return MeshHashTet(tet.id, tet.vertices, tet.zone); }
uint64_t HashOf(const MeshMirror::Triangle& triangle) {
  return MeshHashTriangle(triangle.id, triangle.vertices, triangle.zone, triangle.tet);
}

template <typename Record, typename Id>
bool Erase(std::vector<Record>* records, Id id, uint64_t* hash) {
  if (SlotOf(id) >= records->size() || (*records)[SlotOf(id)].id != id) return false;
  Record& record = (*records)[SlotOf(id)];
  *hash -= HashOf(record);
  record = {};
  return true;
}

template <typename Record>
bool Insert(std::vector<Record>* records, const Record& added, uint64_t* hash) {
  const uint32_t slot = SlotOf(added.id);
  // A slot far beyond the end means a delta that is not of this mesh; slots are given out without gaps.
  if (slot > records->size()) return false;
  if (slot == records->size()) records->emplace_back();
  if ((*records)[slot].id != decltype(added.id){}) return false;
  (*records)[slot] = added;
  *hash += HashOf(added);
  return true;
}

}  // namespace

MeshMirror::MeshMirror(const ClosedMesh& mesh) : version_(mesh.version()), hash_(mesh.hash()) {
  vertices_.resize(mesh.vertex_slot_count());
  for (uint32_t v = 0; v < mesh.vertex_slot_count(); ++v) {
    if (mesh.IsVertex(v)) vertices_[v] = {mesh.IdOfVertex(v), mesh.PositionOf(v)};
  }
  tets_.resize(mesh.tet_slot_count());
  for (uint32_t t = 0; t < mesh.tet_slot_count(); ++t) {
    if (!mesh.IsTet(t)) continue;
    const auto& v = mesh.TetVertices(t);
    tets_[t] = {mesh.IdOfTet(t),
                {mesh.IdOfVertex(v[0]), mesh.IdOfVertex(v[1]), mesh.IdOfVertex(v[2]), mesh.IdOfVertex(v[3])},
                mesh.TetZoneOf(t),
                mesh.ComponentOfTet(t)};
  }
  triangles_.resize(mesh.triangle_slot_count());
  for (uint32_t t = 0; t < mesh.triangle_slot_count(); ++t) {
    if (!mesh.IsTriangle(t)) continue;
    const auto& v = mesh.TriangleVertices(t);
    triangles_[t] = {mesh.IdOfTriangle(t),
                     {mesh.IdOfVertex(v[0]), mesh.IdOfVertex(v[1]), mesh.IdOfVertex(v[2])},
                     mesh.IdOfTet(mesh.TriangleTet(t)),
                     mesh.TriangleZoneOf(t),
                     mesh.SurfaceOfTriangle(t)};
  }
}

absl::Status MeshMirror::Apply(const MeshDelta& delta) {
  if (delta.version != version_ + 1) {
    return absl::FailedPreconditionError(absl::StrCat("delta of version ", delta.version, " cannot follow version ", version_));
  }
  bool is_good = true;
  for (const TriangleId id : delta.removed_triangles) is_good = is_good && Erase(&triangles_, id, &hash_);
  for (const TetId id : delta.removed_tets) is_good = is_good && Erase(&tets_, id, &hash_);
  for (const VertexId id : delta.removed_vertices) is_good = is_good && Erase(&vertices_, id, &hash_);
  for (const auto& v : delta.added_vertices) is_good = is_good && Insert(&vertices_, {v.id, v.position_m}, &hash_);
  for (const auto& t : delta.added_tets) is_good = is_good && Insert(&tets_, {t.id, t.vertices, t.zone, t.component}, &hash_);
  for (const auto& t : delta.added_triangles)
    is_good = is_good && Insert(&triangles_, {t.id, t.vertices, t.tet, t.zone, t.surface}, &hash_);
  for (const auto& rehomed : delta.rehomed_triangles) {
    const uint32_t slot = SlotOf(rehomed.id);
    is_good = is_good && slot < triangles_.size() && triangles_[slot].id == rehomed.id;
    if (!is_good) break;
    hash_ -= HashOf(triangles_[slot]);
    triangles_[slot].tet = rehomed.tet;
    hash_ += HashOf(triangles_[slot]);
  }
  for (const auto& move : delta.moved_tets) {
    is_good = is_good && move.slot < tets_.size() && tets_[move.slot].component == move.from;
    if (is_good) tets_[move.slot].component = move.to;
  }
  for (const auto& move : delta.moved_triangles) {
    is_good = is_good && move.slot < triangles_.size() && triangles_[move.slot].surface == move.from;
    if (is_good) triangles_[move.slot].surface = move.to;
  }
  version_ = delta.version;
  if (!is_good || hash_ != delta.hash) {
    return absl::DataLossError(absl::StrCat("the copy does not match version ", delta.version, " of the mesh; take a full copy"));
  }
  return absl::OkStatus();
}

uint64_t MeshMirror::ComputeHash() const {
  uint64_t hash = 0;
  for (const Vertex& vertex : vertices_) hash += vertex.id == kNoVertex ? 0 : HashOf(vertex);
  for (const Tet& tet : tets_) hash += tet.id == kNoTet ? 0 : HashOf(tet);
  for (const Triangle& triangle : triangles_) hash += triangle.id == kNoTriangle ? 0 : HashOf(triangle);
  return hash;
}

}  // namespace palpate::sim
