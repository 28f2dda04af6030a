// ClosedMesh::Apply: an edit is joined to the mesh, checked, and then either undone or made complete.
#include <algorithm>
#include <cmath>
#include <cstddef>

#include "gpu/base/status.h"
#include "sim/mesh/exact_predicates.h"
#include "sim/topology/closed_mesh.h"

namespace palpate::sim {
namespace {

constexpr uint32_t kMaxSlots = 0x7fffffffU;
constexpr double kWeightTolerance = 1e-9;

size_t At(int i) { return static_cast<size_t>(i); }

std::string NameOf(VertexId id) { return absl::StrCat("vertex ", SlotOf(id), " (generation ", GenerationOf(id), ")"); }
std::string NameOf(TetId id) { return absl::StrCat("tet ", SlotOf(id), " (generation ", GenerationOf(id), ")"); }

// Sorts three slots; returns whether the permutation was even.
bool SortKey(std::array<uint32_t, 3>* key) {
  bool is_even = true;
  const auto order = [&](size_t a, size_t b) {
    if ((*key)[a] > (*key)[b]) {
      std::swap((*key)[a], (*key)[b]);
      is_even = !is_even;
    }
  };
  order(0, 1);
  order(1, 2);
  order(0, 1);
  return is_even;
}

// A free slot, or a new one at the end.
template <typename Record>
uint32_t Allocate(std::vector<Record>* records, std::vector<uint32_t>* free) {
  if (!free->empty()) {
    const uint32_t slot = free->back();
    free->pop_back();
    return slot;
  }
  records->emplace_back();
  return static_cast<uint32_t>(records->size() - 1);
}

// Takes back the last Allocate, which gave `slot`, when there were `old_size` records.
template <typename Record>
void Release(uint32_t slot, size_t old_size, std::vector<Record>* records, std::vector<uint32_t>* free) {
  if (slot >= old_size) {
    records->pop_back();
  } else {
    free->push_back(slot);
  }
}

}  // namespace

void ClosedMesh::NextEpoch() {
  if (++epoch_ == 0) {
    for (auto* marks : {&dying_mark_, &near_mark_, &vertex_mark_}) std::fill(marks->begin(), marks->end(), 0);
    epoch_ = 1;
  }
  dying_mark_.resize(tets_.size(), 0);
  vertex_mark_.resize(vertices_.size(), 0);
  touched_index_.resize(vertices_.size(), 0);
  dying_.clear();
  near_.clear();
  touched_.clear();
  new_vertices_.clear();
  new_tets_.clear();
  parents_.clear();
  undo_.clear();
  glued_triangles_.clear();
  open_faces_.clear();
}

void ClosedMesh::Touch(uint32_t vertex) {
  if (vertex_mark_[vertex] == epoch_) return;
  vertex_mark_[vertex] = epoch_;
  touched_index_[vertex] = static_cast<uint32_t>(touched_.size());
  touched_.push_back({.slot = vertex});
}

absl::Status ClosedMesh::ResolveEdit(const MeshEdit& edit) {
  NextEpoch();
  for (const TetId id : edit.removed) {
    const uint32_t tet = Find(id);
    if (tet == kNoSlot) return absl::NotFoundError(absl::StrCat("removed ", NameOf(id), " does not exist"));
    if (IsDying(tet)) return absl::InvalidArgumentError(absl::StrCat("removed ", NameOf(id), " is named twice"));
    dying_mark_[tet] = epoch_;
    dying_.push_back(tet);
    for (const uint32_t v : tets_[tet].vertices) Touch(v);
  }
  for (size_t i = 0; i < edit.vertices.size(); ++i) {
    const MeshEdit::NewVertex& vertex = edit.vertices[i];
    if (!vertex.position_m.allFinite()) return absl::InvalidArgumentError(absl::StrCat("new vertex ", i, ": a coordinate is not finite"));
    if (vertex.source_count > vertex.sources.size()) {
      return absl::InvalidArgumentError(absl::StrCat("new vertex ", i, ": ", vertex.source_count, " sources, at most 4 are allowed"));
    }
    double sum = 0;
    for (uint32_t s = 0; s < vertex.source_count; ++s) {
      if (Find(vertex.sources[s].vertex) == kNoSlot) {
        return absl::NotFoundError(absl::StrCat("new vertex ", i, ": source ", NameOf(vertex.sources[s].vertex), " does not exist"));
      }
      sum += vertex.sources[s].weight;
    }
    if (vertex.source_count > 0 && !(std::abs(sum - 1) <= kWeightTolerance)) {
      return absl::InvalidArgumentError(absl::StrCat("new vertex ", i, ": weights sum to ", sum, ", must be 1"));
    }
  }
  std::vector<bool> is_used(edit.vertices.size(), false);
  for (size_t i = 0; i < edit.tets.size(); ++i) {
    const MeshEdit::NewTet& tet = edit.tets[i];
    std::array<const Eigen::Vector3d*, 4> corners;
    for (size_t c = 0; c < 4; ++c) {
      const VertexId id = tet.vertices[c];
      if (GenerationOf(id) == kNewVertexGeneration) {
        if (SlotOf(id) >= edit.vertices.size()) {
          return absl::NotFoundError(
              absl::StrCat("new tet ", i, ": new vertex ", SlotOf(id), " does not exist, the edit has ", edit.vertices.size()));
        }
        is_used[SlotOf(id)] = true;
        corners[c] = &edit.vertices[SlotOf(id)].position_m;
      } else {
        const uint32_t slot = Find(id);
        if (slot == kNoSlot) return absl::NotFoundError(absl::StrCat("new tet ", i, ": ", NameOf(id), " does not exist"));
        Touch(slot);
        corners[c] = &vertices_[slot].position_m;
      }
      for (size_t d = 0; d < c; ++d) {
        if (tet.vertices[d] == id) return absl::InvalidArgumentError(absl::StrCat("new tet ", i, ": a vertex is used twice"));
      }
    }
    if (tet.parent == kNoTet) {
      if (tet.zone >= tet_zones_.size()) {
        return absl::InvalidArgumentError(
            absl::StrCat("new tet ", i, ": zone ", tet.zone, " does not exist, there are ", tet_zones_.size()));
      }
    } else if (const uint32_t parent = Find(tet.parent); parent == kNoSlot || !IsDying(parent)) {
      return absl::InvalidArgumentError(absl::StrCat("new tet ", i, ": its parent, ", NameOf(tet.parent), ", is not removed by the edit"));
    }
    if (Orient3d(*corners[0], *corners[1], *corners[2], *corners[3]) <= 0) {
      return absl::InvalidArgumentError(absl::StrCat("new tet ", i, ": its orientation at rest is not positive"));
    }
  }
  if (const auto unused = std::find(is_used.begin(), is_used.end(), false); unused != is_used.end()) {
    return absl::InvalidArgumentError(absl::StrCat("new vertex ", unused - is_used.begin(), " belongs to no new tet"));
  }
  if (vertices_.size() + edit.vertices.size() > kMaxSlots || tets_.size() + edit.tets.size() > kMaxSlots ||
      triangles_.size() + 4 * (edit.tets.size() + edit.removed.size()) > kMaxSlots) {
    return absl::ResourceExhaustedError(absl::StrCat("a mesh holds at most ", kMaxSlots, " elements of a kind"));
  }
  return absl::OkStatus();
}

ClosedMesh::OpenFace ClosedMesh::MakeOpenFace(uint32_t tet, int face, bool is_added) const {
  const auto& corners = kTetFaces[At(face)];
  const auto& v = tets_[tet].vertices;
  OpenFace open{.key = {v[At(corners[0])], v[At(corners[1])], v[At(corners[2])]},
                .tet = tet,
                .face = static_cast<uint8_t>(face),
                .is_even = false,
                .is_added = is_added};
  open.is_even = SortKey(&open.key);
  return open;
}

int ClosedMesh::FaceBehind(uint32_t tet, uint32_t neighbor) const {
  const auto& neighbors = tets_[tet].neighbors;
  return static_cast<int>(std::find(neighbors.begin(), neighbors.end(), Neighbor::Tet(neighbor)) - neighbors.begin());
}

// Creates the records of the edit and connects them with their neighbours. Everything it does to existing records is in undo_.
absl::Status ClosedMesh::Join(const MeshEdit& edit) {
  // Tets around touched vertices are collected before the connections change.
  near_mark_.resize(tets_.size() + edit.tets.size(), 0);
  const size_t old_touched = touched_.size();
  cost_ = {};
  for (size_t i = 0; i < old_touched; ++i) {
    TetsAroundVertex(touched_[i].slot, &scratch_);
    cost_.tets_read += scratch_.size();
    for (const uint32_t tet : scratch_) {
      if (IsDying(tet) || near_mark_[tet] == epoch_) continue;
      near_mark_[tet] = epoch_;
      near_.push_back(tet);
    }
  }
  for (const MeshEdit::NewVertex& vertex : edit.vertices) {
    const uint32_t slot = Allocate(&vertices_, &free_vertices_);
    new_vertices_.push_back(slot);
    vertices_[slot].position_m = vertex.position_m;
    vertex_mark_.resize(vertices_.size(), 0);
    touched_index_.resize(vertices_.size(), 0);
    Touch(slot);
    touched_.back().is_new = true;
  }
  for (const MeshEdit::NewTet& tet : edit.tets) {
    const uint32_t slot = Allocate(&tets_, &free_tets_);
    new_tets_.push_back(slot);
    const uint32_t parent = tet.parent == kNoTet ? kNoSlot : SlotOf(tet.parent);
    parents_.push_back(parent);
    Tet& record = tets_[slot];
    for (size_t c = 0; c < 4; ++c) {
      const VertexId id = tet.vertices[c];
      record.vertices[c] = GenerationOf(id) == kNewVertexGeneration ? new_vertices_[SlotOf(id)] : SlotOf(id);
    }
    record.neighbors = {};
    record.surface_edges = 0;
    record.zone = parent == kNoSlot ? tet.zone : tets_[parent].zone;
  }
  // The tets at each touched vertex after the edit.
  const auto for_corners = [&](const auto& f) {
    for (const auto* list : {&near_, &new_tets_}) {
      for (const uint32_t tet : *list) {
        for (const uint32_t v : tets_[tet].vertices) {
          if (vertex_mark_[v] == epoch_) f(touched_[touched_index_[v]], tet);
        }
      }
    }
  };
  for_corners([](TouchedVertex& vertex, uint32_t) { ++vertex.expected; });
  uint32_t end = 0;
  for (TouchedVertex& vertex : touched_) {
    vertex.begin = vertex.end = end;
    end += vertex.expected;
  }
  star_.resize(end);
  for_corners([&](TouchedVertex& vertex, uint32_t tet) { star_[vertex.end++] = tet; });
  return MatchFaces();
}

absl::Status ClosedMesh::MatchFaces() {
  faces_.clear();
  for (const uint32_t tet : dying_) {
    ForTetNeighbors(tet, [&](uint32_t neighbor) {
      if (!IsDying(neighbor)) faces_.push_back(MakeOpenFace(neighbor, FaceBehind(neighbor, tet), false));
    });
  }
  for (const uint32_t tet : new_tets_) {
    for (int f = 0; f < 4; ++f) faces_.push_back(MakeOpenFace(tet, f, true));
  }
  if (!new_tets_.empty()) {
    std::stable_sort(faces_.begin(), faces_.end(), [](const OpenFace& a, const OpenFace& b) { return a.key < b.key; });
  }
  const auto connect = [&](const OpenFace& face, Neighbor behind) {
    Neighbor& neighbor = tets_[face.tet].neighbors[face.face];
    if (!face.is_added) undo_.push_back({{face.tet, face.face}, neighbor});
    neighbor = behind;
  };
  const auto name = [&](const OpenFace& face) {
    return absl::StrCat("face of vertices ", face.key[0], ", ", face.key[1], ", ", face.key[2]);
  };
  for (size_t i = 0; i < faces_.size();) {
    size_t end = i + 1;
    while (end < faces_.size() && faces_[end].key == faces_[i].key) ++end;
    const OpenFace& face = faces_[i];
    if (end - i > 2) return absl::InvalidArgumentError(absl::StrCat(name(face), ": more than two tets"));
    if (end - i == 2) {
      const OpenFace& other = faces_[i + 1];
      if (face.is_even == other.is_even) {
        return absl::InvalidArgumentError(
            absl::StrCat(name(face), ": the tets on it lie on the same side (a tet twice, or wrong orientation)"));
      }
      connect(face, Neighbor::Tet(other.tet));
      connect(other, Neighbor::Tet(face.tet));
    } else {
      connect(face, Neighbor());
      const bool is_old = std::all_of(face.key.begin(), face.key.end(), [&](uint32_t v) { return !touched_[touched_index_[v]].is_new; });
      if (face.is_added && is_old) {
        PALPATE_RETURN_IF_ERROR(GlueToSurface(face));
      } else {
        open_faces_.push_back(face);
      }
    }
    i = end;
  }
  return absl::OkStatus();
}

// A face of a new tet may lie on the surface of what was there before.
absl::Status ClosedMesh::GlueToSurface(const OpenFace& face) {
  const TouchedVertex& vertex = touched_[touched_index_[face.key[0]]];
  for (uint32_t s = vertex.begin; s < vertex.end; ++s) {
    const uint32_t tet = star_[s];
    if (near_mark_[tet] != epoch_) continue;
    const auto& v = tets_[tet].vertices;
    int opposite = -1;
    int shared = 0;
    for (int c = 0; c < 4; ++c) {
      if (std::find(face.key.begin(), face.key.end(), v[At(c)]) == face.key.end()) {
        opposite = c;
      } else {
        ++shared;
      }
    }
    if (shared < 3) continue;
    const Neighbor behind = opposite < 0 ? Neighbor() : tets_[tet].neighbors[At(opposite)];
    if (!behind.is_virtual()) {
      return absl::InvalidArgumentError(
          absl::StrCat("face of vertices ", face.key[0], ", ", face.key[1], ", ", face.key[2], ": more than two tets"));
    }
    if (opposite < 0 || MakeOpenFace(tet, opposite, false).is_even == face.is_even) {
      return absl::InvalidArgumentError(absl::StrCat("face of vertices ", face.key[0], ", ", face.key[1], ", ", face.key[2],
                                                     ": the tets on it lie on the same side (a tet twice, or wrong orientation)"));
    }
    undo_.push_back({{tet, opposite}, behind});
    glued_triangles_.push_back(behind.slot());
    tets_[tet].neighbors[At(opposite)] = Neighbor::Tet(face.tet);
    tets_[face.tet].neighbors[face.face] = Neighbor::Tet(tet);
    return absl::OkStatus();
  }
  open_faces_.push_back(face);
  return absl::OkStatus();
}

// The link of each touched vertex must be one sphere or one disc: connected, with the Euler characteristic of such. (A surface with
// handles, more than one border or points that coincide has a smaller one.)
bool ClosedMesh::CheckLinks(uint32_t* bad_vertex) {
  fan_mark_.resize(vertices_.size(), 0);
  query_mark_.resize(tets_.size(), 0);
  for (const TouchedVertex& vertex : touched_) {
    if (vertex.expected == 0) continue;
    if (++fan_epoch_ == 0) {
      std::fill(fan_mark_.begin(), fan_mark_.end(), 0);
      fan_epoch_ = 1;
    }
    TetsAroundVertexFrom(star_[vertex.begin], vertex.slot, &scratch_);
    bool is_good = scratch_.size() == vertex.expected;
    int64_t link_vertices = 0;
    int64_t border = 0;
    for (size_t s = 0; is_good && s < scratch_.size(); ++s) {
      const Tet& tet = tets_[scratch_[s]];
      for (size_t c = 0; c < 4; ++c) {
        const uint32_t v = tet.vertices[c];
        if (v == vertex.slot) continue;
        if (tet.neighbors[c].is_virtual()) ++border;
        if (fan_mark_[v] != fan_epoch_) {
          fan_mark_[v] = fan_epoch_;
          ++link_vertices;
        }
      }
    }
    const auto triangles = static_cast<int64_t>(scratch_.size());
    const int64_t chi = link_vertices - (3 * triangles + border) / 2 + triangles;
    if (!is_good || chi != (border > 0 ? 1 : 2)) {
      *bad_vertex = vertex.slot;
      return false;
    }
  }
  return true;
}

void ClosedMesh::Undo() {
  for (auto it = undo_.rbegin(); it != undo_.rend(); ++it) tets_[it->first.first].neighbors[At(it->first.second)] = it->second;
  for (auto it = new_tets_.rbegin(); it != new_tets_.rend(); ++it) {
    tets_[*it].vertices.fill(kNoSlot);
    Release(*it, old_tet_count_, &tets_, &free_tets_);
  }
  for (auto it = new_vertices_.rbegin(); it != new_vertices_.rend(); ++it) Release(*it, old_vertex_count_, &vertices_, &free_vertices_);
}

absl::Status ClosedMesh::Apply(const MeshEdit& edit) {
  if (edit.removed.empty() && edit.vertices.empty() && edit.tets.empty()) return absl::OkStatus();
  const EditCost old_cost = cost_;
  PALPATE_RETURN_IF_ERROR(ResolveEdit(edit));
  old_tet_count_ = tets_.size();
  old_vertex_count_ = vertices_.size();
  absl::Status status = Join(edit);
  if (uint32_t bad = kNoSlot; status.ok() && !CheckLinks(&bad)) {
    status =
        absl::FailedPreconditionError(touched_[touched_index_[bad]].is_new
                                          ? absl::StrCat("the mesh would not be a manifold at new vertex ",
                                                         std::find(new_vertices_.begin(), new_vertices_.end(), bad) - new_vertices_.begin())
                                          : absl::StrCat("the mesh would not be a manifold at vertex ", bad));
  }
  if (!status.ok()) {
    Undo();
    cost_ = old_cost;
    return status;
  }
  Commit(edit);
  return absl::OkStatus();
}

bool ClosedMesh::CanRemove(std::span<const uint32_t> tets) {
  NextEpoch();
  for (const uint32_t tet : tets) {
    dying_mark_[tet] = epoch_;
    dying_.push_back(tet);
    for (const uint32_t v : tets_[tet].vertices) Touch(v);
  }
  const EditCost old_cost = cost_;
  old_tet_count_ = tets_.size();
  old_vertex_count_ = vertices_.size();
  uint32_t bad;
  const bool is_good = Join({}).ok() && CheckLinks(&bad);
  Undo();
  cost_ = old_cost;
  return is_good;
}

SurfaceZoneId ClosedMesh::ZoneOfNewTriangle(const OpenFace& face, const MeshEdit& edit) const {
  const SurfaceZoneId interior = tet_zones_[tets_[face.tet].zone].interior_surface_zone;
  if (!face.is_added) return interior;
  const size_t index = new_tet_index_[face.tet];
  const uint32_t parent = parents_[index];
  if (parent == kNoSlot) return 0;
  // On which faces of the parent each corner lies: those opposite the parent's vertices that it does not come from.
  uint32_t shared = 0xF;
  for (const uint32_t v : face.key) {
    uint32_t carried = 0xF;
    const auto take = [&](uint32_t source) {
      const auto& pv = tets_[parent].vertices;
      const auto at = std::find(pv.begin(), pv.end(), source);
      carried &= at == pv.end() ? 0 : ~(1U << (at - pv.begin()));
    };
    const TouchedVertex& touched = touched_[touched_index_[v]];
    if (!touched.is_new) {
      take(v);
    } else {
      const MeshEdit::NewVertex& vertex = edit.vertices[touched_index_[v] - touched_index_[new_vertices_.front()]];
      if (vertex.source_count == 0) carried = 0;
      for (uint32_t s = 0; s < vertex.source_count; ++s) take(SlotOf(vertex.sources[s].vertex));
    }
    shared &= carried;
  }
  for (int f = 0; f < 4; ++f) {
    const Neighbor behind = tets_[parent].neighbors[At(f)];
    if ((shared >> f & 1) != 0 && behind.is_virtual()) return triangles_[behind.slot()].zone;
  }
  return interior;
}

void ClosedMesh::AddCorner(SurfaceZoneId zone, uint32_t vertex, const MeshEdit& edit) {
  auto& corners = surface_zones_[zone].corners;
  const auto [it, is_inserted] = corners.try_emplace(vertex);
  ++it->second.triangle_count;
  if (!is_inserted || vertex_mark_[vertex] != epoch_ || !touched_[touched_index_[vertex]].is_new) return;
  const MeshEdit::NewVertex& source = edit.vertices[touched_index_[vertex] - touched_index_[new_vertices_.front()]];
  if (source.source_count == 0) return;
  std::array<double, 2> sum = {0, 0};
  double first_u = 0;
  for (uint32_t s = 0; s < source.source_count; ++s) {
    const auto from = corners.find(SlotOf(source.sources[s].vertex));
    if (from == corners.end() || !from->second.texture_coordinate) return;
    std::array<double, 2> value = {(*from->second.texture_coordinate)[0], (*from->second.texture_coordinate)[1]};
    if (s == 0) first_u = value[0];
    if (texture_period_ > 0) value[0] -= texture_period_ * std::round((value[0] - first_u) / texture_period_);
    for (size_t k = 0; k < 2; ++k) sum[k] += source.sources[s].weight * value[k];
  }
  if (texture_period_ > 0) sum[0] -= texture_period_ * std::floor(sum[0] / texture_period_);
  // Adding zero takes the sign off one that a tiny negative number becomes.
  std::array<float, 2> value = {static_cast<float>(sum[0]) + 0.0F, static_cast<float>(sum[1]) + 0.0F};
  if (texture_period_ > 0 && value[0] >= texture_period_) value[0] = 0;  // by rounding
  it->second.texture_coordinate = value;
}

void ClosedMesh::DropCorner(SurfaceZoneId zone, uint32_t vertex) {
  auto& corners = surface_zones_[zone].corners;
  const auto it = corners.find(vertex);
  if (--it->second.triangle_count == 0) corners.erase(it);
}

// Triangles of removed tets go, unless a new tet has the same face; the faces left open get new ones.
void ClosedMesh::UpdateTriangles(const MeshEdit& edit) {
  old_triangles_ = glued_triangles_;
  for (const uint32_t tet : dying_) {
    for (const Neighbor n : tets_[tet].neighbors) {
      if (n.is_virtual()) old_triangles_.push_back(n.slot());
    }
  }
  std::vector<std::pair<std::array<uint32_t, 3>, uint32_t>> by_key;
  if (!new_tets_.empty()) {
    by_key.reserve(old_triangles_.size());
    for (const uint32_t triangle : old_triangles_) {
      auto key = triangles_[triangle].vertices;
      SortKey(&key);
      by_key.emplace_back(key, triangle);
    }
    std::sort(by_key.begin(), by_key.end());
    new_tet_index_.resize(tets_.size());
    for (uint32_t i = 0; i < new_tets_.size(); ++i) new_tet_index_[new_tets_[i]] = i;
  }
  added_triangles_.clear();
  for (const OpenFace& face : open_faces_) {
    const auto it =
        std::lower_bound(by_key.begin(), by_key.end(), face.key, [](const auto& entry, const auto& key) { return entry.first < key; });
    if (it != by_key.end() && it->first == face.key) {
      Triangle& triangle = triangles_[it->second];
      auto key = triangle.vertices;
      if (SortKey(&key) == face.is_even) {
        delta_.hash -= HashOf(triangle, it->second);
        triangle.tet = face.tet;
        delta_.hash += HashOf(triangle, it->second);
        tets_[face.tet].neighbors[face.face] = Neighbor::Triangle(it->second);
        delta_.rehomed_triangles.push_back({IdOfTriangle(it->second), IdOfTet(face.tet)});
        continue;
      }
    }
    const uint32_t slot = Allocate(&triangles_, &free_triangles_);
    added_triangles_.push_back(slot);
    Triangle& triangle = triangles_[slot];
    const auto& corners = kTetFaces[face.face];
    for (size_t c = 0; c < 3; ++c) triangle.vertices[c] = tets_[face.tet].vertices[At(corners[c])];
    triangle.tet = face.tet;
    triangle.zone = ZoneOfNewTriangle(face, edit);
    for (const uint32_t v : triangle.vertices) AddCorner(triangle.zone, v, edit);
    tets_[face.tet].neighbors[face.face] = Neighbor::Triangle(slot);
    delta_.hash += HashOf(triangle, slot);
  }
  dead_triangles_.clear();
  triangle_mark_.resize(triangles_.size(), 0);
  for (const auto& rehomed : delta_.rehomed_triangles) triangle_mark_[SlotOf(rehomed.id)] = 1;
  for (const uint32_t slot : old_triangles_) {
    if (triangle_mark_[slot] != 0) continue;
    dead_triangles_.push_back(slot);
    delta_.hash -= HashOf(triangles_[slot], slot);
    delta_.removed_triangles.push_back(IdOfTriangle(slot));
    for (const uint32_t v : triangles_[slot].vertices) DropCorner(triangles_[slot].zone, v);
  }
  for (const auto& rehomed : delta_.rehomed_triangles) triangle_mark_[SlotOf(rehomed.id)] = 0;
}

// Finds the triangles across the edges by turning around each edge through the tets.
void ClosedMesh::LinkTriangle(uint32_t triangle) {
  const std::array<uint32_t, 3> corners = triangles_[triangle].vertices;
  for (size_t i = 0; i < 3; ++i) {
    const uint32_t a = corners[(i + 1) % 3];
    const uint32_t b = corners[(i + 2) % 3];
    uint32_t tet = triangles_[triangle].tet;
    uint32_t leave_opposite = corners[i];  // the face to leave through is opposite this vertex
    for (;;) {
      const Tet& record = tets_[tet];
      size_t face = 0;
      uint32_t rest = kNoSlot;
      for (size_t c = 0; c < 4; ++c) {
        const uint32_t v = record.vertices[c];
        if (v == leave_opposite) {
          face = c;
        } else if (v != a && v != b) {
          rest = v;
        }
      }
      const Neighbor next = record.neighbors[face];
      if (next.is_virtual()) {
        Triangle& other = triangles_[next.slot()];
        triangles_[triangle].neighbors[i] = next.slot();
        for (size_t c = 0; c < 3; ++c) {
          if (other.vertices[c] != a && other.vertices[c] != b) other.neighbors[c] = triangle;
        }
        break;
      }
      tet = next.slot();
      leave_opposite = rest;
    }
  }
}

void ClosedMesh::UpdateTouchedVertices() {
  for (const TouchedVertex& vertex : touched_) {
    if (vertex.expected == 0) continue;
    Vertex& record = vertices_[vertex.slot];
    record.tet = star_[vertex.begin];
    record.triangle = kNoSlot;
    for (uint32_t s = vertex.begin; s < vertex.end && record.triangle == kNoSlot; ++s) {
      const Tet& tet = tets_[star_[s]];
      for (size_t c = 0; c < 4; ++c) {
        if (tet.vertices[c] != vertex.slot && tet.neighbors[c].is_virtual()) record.triangle = tet.neighbors[c].slot();
      }
    }
  }
  for (const uint32_t triangle : added_triangles_) LinkTriangle(triangle);
  for (const TouchedVertex& vertex : touched_) {
    if (vertex.expected == 0) continue;
    if (++fan_epoch_ == 0) {
      std::fill(fan_mark_.begin(), fan_mark_.end(), 0);
      fan_epoch_ = 1;
    }
    for (uint32_t s = vertex.begin; s < vertex.end; ++s) {
      const Tet& tet = tets_[star_[s]];
      for (size_t f = 0; f < 4; ++f) {
        if (tet.vertices[f] == vertex.slot || !tet.neighbors[f].is_virtual()) continue;
        for (const int c : kTetFaces[f]) fan_mark_[tet.vertices[At(c)]] = fan_epoch_;
      }
    }
    for (uint32_t s = vertex.begin; s < vertex.end; ++s) {
      Tet& tet = tets_[star_[s]];
      const auto own = static_cast<int>(std::find(tet.vertices.begin(), tet.vertices.end(), vertex.slot) - tet.vertices.begin());
      for (int c = 0; c < 4; ++c) {
        if (c == own) continue;
        const auto bit = static_cast<uint8_t>(1U << TetEdgeBetween(own, c));
        tet.surface_edges =
            static_cast<uint8_t>(fan_mark_[tet.vertices[At(c)]] == fan_epoch_ ? tet.surface_edges | bit : tet.surface_edges & ~bit);
      }
    }
  }
}

void ClosedMesh::UpdateComponents() {
  for (const uint32_t tet : dying_) tet_components_.Remove(tet);
  seeds_.clear();
  for (const uint32_t tet : new_tets_) {
    tet_components_.Add(tet);
    seeds_.push_back(tet);
  }
  for (const auto& entry : undo_) seeds_.push_back(entry.first.first);
  cost_.component_visits += tet_components_.Update(
      seeds_, [this](uint32_t tet, const auto& f) { ForTetNeighbors(tet, f); }, &delta_.moved_tets, &delta_.added_components,
      &delta_.removed_components);

  for (const uint32_t triangle : dead_triangles_) surface_components_.Remove(triangle);
  seeds_.clear();
  for (const uint32_t triangle : added_triangles_) {
    surface_components_.Add(triangle);
    seeds_.push_back(triangle);
  }
  for (const uint32_t triangle : added_triangles_) {
    for (const uint32_t n : triangles_[triangle].neighbors) seeds_.push_back(n);
  }
  cost_.component_visits += surface_components_.Update(
      seeds_, [this](uint32_t triangle, const auto& f) { ForTriangleNeighbors(triangle, f); }, &delta_.moved_triangles,
      &delta_.added_surfaces, &delta_.removed_surfaces);
}

void ClosedMesh::Commit(const MeshEdit& edit) {
  delta_.Clear();
  ++delta_.version;
  for (const uint32_t slot : new_vertices_) {
    vertices_[slot].tet = star_[touched_[touched_index_[slot]].begin];
    delta_.hash += HashOf(vertices_[slot], slot);
  }
  for (const uint32_t slot : new_tets_) delta_.hash += HashOf(tets_[slot], slot);
  UpdateTriangles(edit);
  removed_tet_vertices_.clear();
  for (const uint32_t slot : dying_) {
    const auto& v = tets_[slot].vertices;
    removed_tet_vertices_.push_back({IdOfVertex(v[0]), IdOfVertex(v[1]), IdOfVertex(v[2]), IdOfVertex(v[3])});
    delta_.removed_tets.push_back(IdOfTet(slot));
    delta_.hash -= HashOf(tets_[slot], slot);
  }
  for (const TouchedVertex& vertex : touched_) {
    if (vertex.expected > 0) continue;
    delta_.removed_vertices.push_back(IdOfVertex(vertex.slot));
    delta_.hash -= HashOf(vertices_[vertex.slot], vertex.slot);
  }
  UpdateTouchedVertices();
  UpdateComponents();

  for (size_t i = 0; i < new_vertices_.size(); ++i) {
    const MeshEdit::NewVertex& vertex = edit.vertices[i];
    delta_.added_vertices.push_back({IdOfVertex(new_vertices_[i]), vertex.position_m, vertex.sources, vertex.source_count});
  }
  for (size_t i = 0; i < new_tets_.size(); ++i) {
    const uint32_t slot = new_tets_[i];
    const Tet& tet = tets_[slot];
    delta_.added_tets.push_back(
        {IdOfTet(slot),
         {IdOfVertex(tet.vertices[0]), IdOfVertex(tet.vertices[1]), IdOfVertex(tet.vertices[2]), IdOfVertex(tet.vertices[3])},
         edit.tets[i].parent,
         tet.zone,
         tet_components_.at(slot)});
  }
  for (const uint32_t slot : added_triangles_) {
    const Triangle& triangle = triangles_[slot];
    delta_.added_triangles.push_back(
        {IdOfTriangle(slot),
         {IdOfVertex(triangle.vertices[0]), IdOfVertex(triangle.vertices[1]), IdOfVertex(triangle.vertices[2])},
         IdOfTet(triangle.tet),
         triangle.zone,
         surface_components_.at(slot)});
  }
  // Only now the slots are free: nothing above may get one that this edit gave up. A generation that has run out retires its slot.
  const auto retire = [](uint32_t slot, uint32_t* generation, std::vector<uint32_t>* free) {
    if (++*generation != kNewVertexGeneration) free->push_back(slot);
  };
  vertex_count_ += new_vertices_.size() - delta_.removed_vertices.size();
  tet_count_ += new_tets_.size() - dying_.size();
  triangle_count_ += added_triangles_.size() - dead_triangles_.size();
  for (const uint32_t slot : dying_) {
    tets_[slot].vertices.fill(kNoSlot);
    retire(slot, &tets_[slot].generation, &free_tets_);
  }
  for (const TouchedVertex& vertex : touched_) {
    if (vertex.expected > 0) continue;
    vertices_[vertex.slot].tet = vertices_[vertex.slot].triangle = kNoSlot;
    retire(vertex.slot, &vertices_[vertex.slot].generation, &free_vertices_);
  }
  for (const uint32_t slot : dead_triangles_) {
    triangles_[slot].tet = kNoSlot;
    retire(slot, &triangles_[slot].generation, &free_triangles_);
  }
  cost_.records_written = dying_.size() + undo_.size() + new_tets_.size() + touched_.size() + added_triangles_.size() +
                          dead_triangles_.size() + delta_.rehomed_triangles.size() + delta_.moved_tets.size() +
                          delta_.moved_triangles.size();
  Notify();
}

void ClosedMesh::Notify() {
  for (MeshObserver* observer : observers_) {
    for (const auto& vertex : delta_.added_vertices) observer->OnVertexAdded(*this, vertex);
    for (const auto& tet : delta_.added_tets) observer->OnTetAdded(*this, tet);
    for (size_t i = 0; i < delta_.removed_tets.size(); ++i) observer->OnTetRemoved(*this, delta_.removed_tets[i], removed_tet_vertices_[i]);
    for (const VertexId vertex : delta_.removed_vertices) observer->OnVertexRemoved(*this, vertex);
    if (!delta_.added_triangles.empty() || !delta_.removed_triangles.empty() || !delta_.rehomed_triangles.empty()) {
      observer->OnSurfaceChanged(*this, delta_);
    }
    observer->OnEdited(*this, delta_);
  }
}

}  // namespace palpate::sim
