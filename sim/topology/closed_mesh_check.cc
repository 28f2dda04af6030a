// Whether a closed mesh is one, looked at as a whole; for tests, after every edit of random ones.
#include <algorithm>
#include <array>
#include <cmath>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gpu/base/status.h"
#include "sim/topology/closed_mesh.h"

namespace palpate::sim {
namespace {

template <typename... Parts>
absl::Status Wrong(const Parts&... parts) {
  return absl::InternalError(absl::StrCat("mesh check: ", parts...));
}

size_t At(int i) { return static_cast<size_t>(i); }

template <size_t n>
std::array<uint32_t, n> Sorted(std::array<uint32_t, n> values) {
  std::sort(values.begin(), values.end());
  return values;
}

uint64_t EdgeKey(uint32_t a, uint32_t b) { return static_cast<uint64_t>(std::min(a, b)) << 32 | std::max(a, b); }

/// Every label belongs to exactly one flood.
template <typename IsLive, typename ForNeighbors>
absl::Status CheckComponents(const ComponentTracker& tracker, size_t slot_count, const IsLive& is_live, const ForNeighbors& for_neighbors,
                             const char* what) {
  std::vector<bool> is_seen(slot_count, false);
  std::vector<ComponentId> labels;
  std::vector<uint32_t> queue;
  for (uint32_t first = 0; first < slot_count; ++first) {
    if (!is_live(first) || is_seen[first]) continue;
    queue.assign(1, first);
    is_seen[first] = true;
    const ComponentId label = tracker.at(first);
    for (size_t i = 0; i < queue.size(); ++i) {
      if (tracker.at(queue[i]) != label)
        return Wrong(what, " ", queue[i], " is in component ", tracker.at(queue[i]), ", joined to ", label);
      for_neighbors(queue[i], [&](uint32_t n) {
        if (is_seen[n]) return;
        is_seen[n] = true;
        queue.push_back(n);
      });
    }
    const auto* component = tracker.Find(label);
    if (component == nullptr || component->cell_count != queue.size()) return Wrong(what, " component ", label, " has a wrong size");
    if (!is_live(component->representative) || tracker.at(component->representative) != label)
      return Wrong(what, " component ", label, " has a wrong start");
    labels.push_back(label);
  }
  std::sort(labels.begin(), labels.end());
  if (labels != tracker.Ids())
    return Wrong("the list of ", what, " components is not that of the mesh (", labels.size(), " pieces, ", tracker.size(), " listed)");
  return absl::OkStatus();
}

}  // namespace

struct ClosedMesh::CheckState {
  struct Face {
    std::array<uint32_t, 3> key;
    uint32_t tet;
    int face;
  };
  uint64_t hash = 0;
  size_t live[3] = {0, 0, 0};  // vertices, tets, triangles
  std::vector<Face> faces;     // of all tets
  size_t surface_faces = 0;
  std::vector<uint32_t> tets_of_vertex, triangles_of_vertex;
  std::vector<std::array<uint64_t, 2>> edge_bits;  // (edge, mark of the surface)
  std::vector<uint64_t> surface_edges;             // of all triangles
  std::vector<std::array<uint32_t, 2>> corners;    // (zone, vertex)
};

absl::Status ClosedMesh::Check() const {
  CheckState state;
  PALPATE_RETURN_IF_ERROR(CheckVertices(&state));
  PALPATE_RETURN_IF_ERROR(CheckTets(&state));
  PALPATE_RETURN_IF_ERROR(CheckFaces(&state));
  PALPATE_RETURN_IF_ERROR(CheckTriangles(&state));
  PALPATE_RETURN_IF_ERROR(CheckCounts(&state));
  PALPATE_RETURN_IF_ERROR(CheckSurfaceEdges(&state));
  PALPATE_RETURN_IF_ERROR(CheckSurfaceZones(&state));
  PALPATE_RETURN_IF_ERROR(CheckLinks(&state));
  PALPATE_RETURN_IF_ERROR(CheckComponents(
      tet_components_, tets_.size(), [&](uint32_t t) { return IsTet(t); }, [&](uint32_t t, const auto& f) { ForTetNeighbors(t, f); },
      "tet"));
  PALPATE_RETURN_IF_ERROR(CheckComponents(
      surface_components_, triangles_.size(), [&](uint32_t t) { return IsTriangle(t); },
      [&](uint32_t t, const auto& f) { ForTriangleNeighbors(t, f); }, "surface"));
  if (state.hash != delta_.hash) return Wrong("the hash is ", delta_.hash, ", that of the elements is ", state.hash);
  return absl::OkStatus();
}

/// They refer to live tets and triangles that contain them.
absl::Status ClosedMesh::CheckVertices(CheckState* s) const {
  for (uint32_t v = 0; v < vertices_.size(); ++v) {
    const Vertex& vertex = vertices_[v];
    if (!IsVertex(v)) continue;
    ++s->live[0];
    s->hash += HashOf(vertex, v);
    if (!IsTet(vertex.tet)) return Wrong("vertex ", v, " refers to tet ", vertex.tet, ", which does not exist");
    const auto& tv = tets_[vertex.tet].vertices;
    if (std::find(tv.begin(), tv.end(), v) == tv.end())
      return Wrong("vertex ", v, " refers to tet ", vertex.tet, ", which does not contain it");
    if (vertex.triangle == kNoSlot) continue;
    if (!IsTriangle(vertex.triangle)) return Wrong("vertex ", v, " refers to triangle ", vertex.triangle, ", which does not exist");
    const auto& corners = triangles_[vertex.triangle].vertices;
    if (std::find(corners.begin(), corners.end(), v) == corners.end()) {
      return Wrong("vertex ", v, " refers to triangle ", vertex.triangle, ", which does not contain it");
    }
  }
  return absl::OkStatus();
}

/// They refer to live vertices, neighbours and triangles, in the order that the conventions ask for.
absl::Status ClosedMesh::CheckTets(CheckState* s) const {
  s->faces.reserve(4 * tet_count());
  s->edge_bits.reserve(6 * tet_count());
  s->tets_of_vertex.assign(vertices_.size(), 0);
  for (uint32_t t = 0; t < tets_.size(); ++t) {
    const Tet& tet = tets_[t];
    if (!IsTet(t)) continue;
    ++s->live[1];
    s->hash += HashOf(tet, t);
    if (tet.zone >= tet_zones_.size()) return Wrong("tet ", t, " is in zone ", tet.zone, ", which does not exist");
    const auto sorted = Sorted(tet.vertices);
    if (std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end()) return Wrong("tet ", t, " uses a vertex twice");
    for (const uint32_t v : tet.vertices) {
      if (!IsVertex(v)) return Wrong("tet ", t, " refers to vertex ", v, ", which does not exist");
      ++s->tets_of_vertex[v];
    }
    for (int e = 0; e < 6; ++e) {
      s->edge_bits.push_back(
          {EdgeKey(tet.vertices[At(kTetEdges[At(e)][0])], tet.vertices[At(kTetEdges[At(e)][1])]), uint64_t{IsEdgeOnSurface(t, e)}});
    }
    for (int f = 0; f < 4; ++f) {
      const auto& c = kTetFaces[At(f)];
      const std::array<uint32_t, 3> corners = {tet.vertices[At(c[0])], tet.vertices[At(c[1])], tet.vertices[At(c[2])]};
      s->faces.push_back({Sorted(corners), t, f});
      const Neighbor n = tet.neighbors[At(f)];
      if (!n.is_virtual()) {
        if (!IsTet(n.slot())) return Wrong("tet ", t, " has neighbour ", n.slot(), ", which does not exist");
        continue;
      }
      if (!IsTriangle(n.slot())) return Wrong("tet ", t, " has triangle ", n.slot(), ", which does not exist");
      // Same corners, same direction: one of three rotations.
      auto rotated = triangles_[n.slot()].vertices;
      for (int turn = 0; turn < 3 && rotated != corners; ++turn) std::rotate(rotated.begin(), rotated.begin() + 1, rotated.end());
      if (rotated != corners) return Wrong("triangle ", n.slot(), " is not face ", f, " of tet ", t, " seen from outside");
      if (triangles_[n.slot()].tet != t)
        return Wrong("triangle ", n.slot(), " refers to tet ", triangles_[n.slot()].tet, " instead of ", t);
    }
  }
  return absl::OkStatus();
}

/// Every face has one tet and a triangle, or two tets on opposite sides that know each other.
absl::Status ClosedMesh::CheckFaces(CheckState* s) const {
  std::sort(s->faces.begin(), s->faces.end(),
            [](const CheckState::Face& a, const CheckState::Face& b) { return std::tie(a.key, a.tet) < std::tie(b.key, b.tet); });
  s->surface_faces = 0;
  for (size_t i = 0; i < s->faces.size();) {
    size_t end = i + 1;
    while (end < s->faces.size() && s->faces[end].key == s->faces[i].key) ++end;
    const auto describe = [&] {
      return absl::StrCat("face of vertices ", s->faces[i].key[0], ", ", s->faces[i].key[1], ", ", s->faces[i].key[2]);
    };
    if (end - i > 2) return Wrong(describe(), " has ", end - i, " tets");
    const Neighbor first = tets_[s->faces[i].tet].neighbors[At(s->faces[i].face)];
    if (end - i == 1) {
      ++s->surface_faces;
      if (!first.is_virtual()) return Wrong(describe(), " has one tet, which has a neighbour there");
    } else {
      const Neighbor second = tets_[s->faces[i + 1].tet].neighbors[At(s->faces[i + 1].face)];
      if (first != Neighbor::Tet(s->faces[i + 1].tet) || second != Neighbor::Tet(s->faces[i].tet))
        return Wrong(describe(), ": its tets are not neighbours");
      const auto is_even = [&](const CheckState::Face& face) { return MakeOpenFace(face.tet, face.face, false).is_even; };
      if (is_even(s->faces[i]) == is_even(s->faces[i + 1])) return Wrong(describe(), ": its tets have different orientations");
    }
    i = end;
  }
  return absl::OkStatus();
}

/// Triangles, their neighbours, zones.
absl::Status ClosedMesh::CheckTriangles(CheckState* s) const {
  s->triangles_of_vertex.assign(vertices_.size(), 0);
  for (uint32_t t = 0; t < triangles_.size(); ++t) {
    const Triangle& triangle = triangles_[t];
    if (!IsTriangle(t)) continue;
    ++s->live[2];
    if (!IsTet(triangle.tet)) return Wrong("triangle ", t, " refers to tet ", triangle.tet, ", which does not exist");
    if (triangle.zone >= surface_zones_.size()) return Wrong("triangle ", t, " is in zone ", triangle.zone, ", which does not exist");
    s->hash += HashOf(triangle, t);
    for (size_t c = 0; c < 3; ++c) {
      const uint32_t v = triangle.vertices[c];
      ++s->triangles_of_vertex[v];
      s->corners.push_back({triangle.zone, v});
      const uint32_t a = triangle.vertices[(c + 1) % 3];
      const uint32_t b = triangle.vertices[(c + 2) % 3];
      s->surface_edges.push_back(EdgeKey(a, b));
      if (!IsTriangle(triangle.neighbors[c]))
        return Wrong("triangle ", t, " has neighbour ", triangle.neighbors[c], ", which does not exist");
      const Triangle& other = triangles_[triangle.neighbors[c]];
      bool is_mutual = false;
      for (size_t k = 0; k < 3; ++k) {
        is_mutual = is_mutual || (other.neighbors[k] == t && other.vertices[(k + 1) % 3] == b && other.vertices[(k + 2) % 3] == a);
      }
      if (!is_mutual) return Wrong("triangles ", t, " and ", triangle.neighbors[c], " do not agree about the edge they share");
    }
  }
  return absl::OkStatus();
}

absl::Status ClosedMesh::CheckCounts(CheckState* s) const {
  if (s->live[2] != s->surface_faces) return Wrong(s->live[2], " triangles on ", s->surface_faces, " surface faces");
  const size_t counts[3] = {vertex_count_, tet_count_, triangle_count_};
  for (int k = 0; k < 3; ++k) {
    if (s->live[k] != counts[k]) return Wrong("count of elements is ", counts[k], ", found ", s->live[k]);
  }
  return absl::OkStatus();
}

/// Each has two triangles, and tets know which of their edges they are.
absl::Status ClosedMesh::CheckSurfaceEdges(CheckState* s) const {
  std::sort(s->surface_edges.begin(), s->surface_edges.end());
  for (size_t i = 0; i < s->surface_edges.size(); i += 2) {
    if (i + 1 >= s->surface_edges.size() || s->surface_edges[i] != s->surface_edges[i + 1] ||
        (i + 2 < s->surface_edges.size() && s->surface_edges[i + 2] == s->surface_edges[i])) {
      return Wrong("surface edge of vertices ", s->surface_edges[i] >> 32, ", ", s->surface_edges[i] & 0xffffffffU,
                   " does not have two triangles");
    }
  }
  for (const auto& [edge, bit] : s->edge_bits) {
    if (std::binary_search(s->surface_edges.begin(), s->surface_edges.end(), edge) != (bit != 0)) {
      return Wrong("edge of vertices ", edge >> 32, ", ", edge & 0xffffffffU, ": wrong mark of the surface");
    }
  }
  return absl::OkStatus();
}

absl::Status ClosedMesh::CheckSurfaceZones(CheckState* s) const {
  std::sort(s->corners.begin(), s->corners.end());
  size_t corner_count = 0;
  for (size_t i = 0; i < s->corners.size();) {
    size_t end = i + 1;
    while (end < s->corners.size() && s->corners[end] == s->corners[i]) ++end;
    const SurfaceCorner* corner = FindSurfaceCorner(static_cast<SurfaceZoneId>(s->corners[i][0]), s->corners[i][1]);
    if (corner == nullptr || corner->triangle_count != end - i)
      return Wrong("surface zone ", s->corners[i][0], ": wrong entry of vertex ", s->corners[i][1]);
    ++corner_count;
    i = end;
  }
  size_t stored_corners = 0;
  for (const SurfaceZone& zone : surface_zones_) stored_corners += zone.corners.size();
  if (stored_corners != corner_count) return Wrong("surface zones hold ", stored_corners, " vertices instead of ", corner_count);
  return absl::OkStatus();
}

/// What the iterators find around a vertex is all there is, and it is a ball or half a ball.
absl::Status ClosedMesh::CheckLinks(CheckState* s) const {
  std::vector<uint32_t> found;
  std::vector<uint32_t> link;
  for (uint32_t v = 0; v < vertices_.size(); ++v) {
    if (!IsVertex(v)) continue;
    TetsAroundVertex(v, &found);
    if (found.size() != s->tets_of_vertex[v])
      return Wrong("vertex ", v, " has ", s->tets_of_vertex[v], " tets, of which ", found.size(), " are joined");
    int64_t border = 0;
    link.clear();
    for (const uint32_t t : found) {
      for (size_t c = 0; c < 4; ++c) {
        if (tets_[t].vertices[c] == v) continue;
        link.push_back(tets_[t].vertices[c]);
        border += tets_[t].neighbors[c].is_virtual() ? 1 : 0;
      }
    }
    std::sort(link.begin(), link.end());
    const int64_t link_vertices = std::unique(link.begin(), link.end()) - link.begin();
    const auto link_triangles = static_cast<int64_t>(found.size());
    if (link_vertices - (3 * link_triangles + border) / 2 + link_triangles != (border > 0 ? 1 : 2))
      return Wrong("the link of vertex ", v, " is no sphere or disc");
    if ((border > 0) != IsVertexOnSurface(v)) return Wrong("vertex ", v, ": wrong mark of the surface");
    if (border == 0) continue;
    SurfaceFan(v, &found);
    if (found.size() != s->triangles_of_vertex[v])
      return Wrong("vertex ", v, " has ", s->triangles_of_vertex[v], " triangles, of which ", found.size(), " in its fan");
  }
  return absl::OkStatus();
}

// --- what was read

/// Whether every index lies within its array, so that what follows may use them.
bool ClosedMesh::HasSoundIndices() const {
  const auto below = [](uint32_t index, size_t count) { return index < count; };
  for (const TetZone& zone : tet_zones_) {
    if (!below(zone.interior_surface_zone, surface_zones_.size())) return false;
  }
  for (const Vertex& vertex : vertices_) {
    if (vertex.tet != kNoSlot && (!below(vertex.tet, tets_.size()) || !IsTet(vertex.tet))) return false;
    if (vertex.triangle != kNoSlot && (!below(vertex.triangle, triangles_.size()) || !IsTriangle(vertex.triangle))) return false;
    if (!vertex.position_m.allFinite()) return false;
  }
  for (uint32_t t = 0; t < tets_.size(); ++t) {
    const Tet& tet = tets_[t];
    if (!IsTet(t)) continue;
    if (!below(tet.zone, tet_zones_.size())) return false;
    for (size_t i = 0; i < 4; ++i) {
      const Neighbor n = tet.neighbors[i];
      if (!IsVertex(tet.vertices[i]) || !(n.is_virtual() ? IsTriangle(n.slot()) : IsTet(n.slot()))) return false;
    }
  }
  for (uint32_t t = 0; t < triangles_.size(); ++t) {
    const Triangle& triangle = triangles_[t];
    if (!IsTriangle(t)) continue;
    if (!below(triangle.zone, surface_zones_.size()) || !IsTet(triangle.tet)) return false;
    for (size_t i = 0; i < 3; ++i) {
      if (!IsVertex(triangle.vertices[i]) || !IsTriangle(triangle.neighbors[i])) return false;
    }
  }
  return true;
}

/// Whether the lists of free slots name each of them once.
bool ClosedMesh::HasSoundFreeSlots() const {
  const auto is_sound = [](const std::vector<uint32_t>& free, size_t slot_count, const auto& is_live) {
    std::vector<uint8_t> is_free(slot_count, 0);
    for (const uint32_t slot : free) {
      if (slot >= slot_count || is_live(slot) || is_free[slot] != 0) return false;
      is_free[slot] = 1;
    }
    for (uint32_t slot = 0; slot < slot_count; ++slot) {
      if (is_live(slot) == (is_free[slot] != 0)) return false;
    }
    return true;
  };
  return is_sound(free_vertices_, vertices_.size(), [this](uint32_t v) { return IsVertex(v); }) &&
         is_sound(free_tets_, tets_.size(), [this](uint32_t t) { return IsTet(t); }) &&
         is_sound(free_triangles_, triangles_.size(), [this](uint32_t t) { return IsTriangle(t); });
}

absl::Status ClosedMesh::Accept() {
  if (tet_zones_.empty() || surface_zones_.empty() || !std::isfinite(texture_period_) || !HasSoundIndices() || !HasSoundFreeSlots()) {
    return absl::InvalidArgumentError("the mesh names elements that are not there");
  }
  vertex_count_ = vertices_.size() - free_vertices_.size();
  tet_count_ = tets_.size() - free_tets_.size();
  triangle_count_ = triangles_.size() - free_triangles_.size();
  if (!tet_components_.IsSound(tet_slot_count(), [this](uint32_t t) { return IsTet(t); }) ||
      !surface_components_.IsSound(triangle_slot_count(), [this](uint32_t t) { return IsTriangle(t); })) {
    return absl::InvalidArgumentError("the components of the mesh are not those of its elements");
  }
  const absl::Status sound = Check();
  return sound.ok() ? sound : absl::InvalidArgumentError(absl::StrCat("the mesh: ", sound.message()));
}

}  // namespace palpate::sim
