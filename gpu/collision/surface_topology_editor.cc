#include "gpu/collision/surface_topology_editor.h"

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

namespace palpate::gpu {
namespace {

constexpr uint32_t kNoEdge = 0xffffffffU;
constexpr uint32_t kVertexBits = 7;  // of a triangle's w
constexpr uint32_t kEdgeBits = 56;

void SortUnique(std::vector<uint32_t>* values) {
  std::sort(values->begin(), values->end());
  values->erase(std::unique(values->begin(), values->end()), values->end());
}

void InsertSorted(std::vector<uint32_t>* values, uint32_t value) {
  values->insert(std::lower_bound(values->begin(), values->end(), value), value);
}

void EraseSorted(std::vector<uint32_t>* values, uint32_t value) {
  const auto found = std::lower_bound(values->begin(), values->end(), value);
  if (found != values->end() && *found == value) values->erase(found);
}

/// Bit k is that of the k-th of three elements that is `element`.
uint32_t BitOf(const UInt4& elements, uint32_t element) { return elements.x == element ? 1U : elements.y == element ? 2U : 4U; }

}  // namespace

SurfaceTopologyEditor::SurfaceTopologyEditor(const SurfaceTopology& topology, const DeviceSurface& surface)
    : triangles_(topology.triangles),
      triangle_edges_(topology.triangle_edges),
      edges_(topology.edges),
      groups_(topology.groups),
      vertex_groups_(topology.vertex_groups),
      edge_groups_(topology.edge_groups),
      edge_places_(topology.edge_triangles),
      edge_lists_(topology.edges.size()),
      vertex_edges_(topology.vertex_count),
      vertex_triangles_(topology.vertex_count),
      places_(static_cast<uint32_t>(topology.edge_triangles.size()), static_cast<uint32_t>(surface.edge_triangles.count())) {
  edge_places_.resize(surface.edge_triangles.count());
  for (uint32_t e = 0; e < edges_.size(); ++e) {
    edge_ranges_.push_back({topology.edge_triangle_begin[e], topology.edge_triangle_begin[e + 1]});
    edge_lists_[e].assign(topology.edge_triangles.begin() + edge_ranges_[e].x, topology.edge_triangles.begin() + edge_ranges_[e].y);
    vertex_edges_[edges_[e].x].push_back(e);
    vertex_edges_[edges_[e].y].push_back(e);
  }
  for (uint32_t t = 0; t < triangles_.size(); ++t) {
    for (const uint32_t v : {triangles_[t].x, triangles_[t].y, triangles_[t].z}) vertex_triangles_[v].push_back(t);
  }
}

uint32_t SurfaceTopologyEditor::FindEdge(uint32_t a, uint32_t b) const {
  for (const uint32_t e : vertex_edges_[a]) {
    if (edges_[e].x == b || edges_[e].y == b) return e;
  }
  return kNoEdge;
}

void SurfaceTopologyEditor::RemoveTriangle(uint32_t t) {
  const UInt4 v = triangles_[t];
  const UInt4 e = triangle_edges_[t];
  for (const uint32_t vertex : {v.x, v.y, v.z}) {
    EraseSorted(&vertex_triangles_[vertex], t);
    dirty_vertices_.push_back(vertex);
  }
  for (const uint32_t edge : {e.x, e.y, e.z}) {
    EraseSorted(&edge_lists_[edge], t);
    dirty_edges_.push_back(edge);
    if (!edge_lists_[edge].empty()) continue;
    EraseSorted(&vertex_edges_[edges_[edge].x], edge);
    EraseSorted(&vertex_edges_[edges_[edge].y], edge);
    gaps_.push_back(edge);
  }
  triangles_[t].w = 0;
}

void SurfaceTopologyEditor::AddTriangle(uint32_t t, const UInt4& vertices, uint32_t group) {
  triangles_[t] = {vertices.x, vertices.y, vertices.z, 0};
  groups_[t] = group;
  const std::array<uint32_t, 3> v{vertices.x, vertices.y, vertices.z};
  std::array<uint32_t, 3> of_triangle{};
  for (size_t k = 0; k < 3; ++k) {
    InsertSorted(&vertex_triangles_[v[k]], t);
    dirty_vertices_.push_back(v[k]);
    const uint32_t a = std::min(v[k], v[(k + 1) % 3]);
    const uint32_t b = std::max(v[k], v[(k + 1) % 3]);
    uint32_t edge = FindEdge(a, b);
    if (edge == kNoEdge) {
      if (gaps_.empty()) {
        edge = static_cast<uint32_t>(edges_.size());
        edges_.emplace_back();
        edge_groups_.emplace_back();
        edge_ranges_.emplace_back();
        edge_lists_.emplace_back();
      } else {
        edge = gaps_.back();
        gaps_.pop_back();
      }
      edges_[edge] = {a, b};
      InsertSorted(&vertex_edges_[a], edge);
      InsertSorted(&vertex_edges_[b], edge);
    }
    edge_groups_[edge] = group;
    InsertSorted(&edge_lists_[edge], t);
    dirty_edges_.push_back(edge);
    of_triangle[k] = edge;
  }
  triangle_edges_[t] = {of_triangle[0], of_triangle[1], of_triangle[2], group};
}

/// The last edges take the places of those that are gone.
void SurfaceTopologyEditor::CloseGaps() {
  SortUnique(&gaps_);
  size_t first = 0;
  while (first < gaps_.size()) {
    const auto last = static_cast<uint32_t>(edges_.size() - 1);
    if (gaps_.back() == last) {
      gaps_.pop_back();
      places_.Give(edge_ranges_[last].x, edge_ranges_[last].y - edge_ranges_[last].x);
    } else {
      const uint32_t to = gaps_[first++];
      for (const uint32_t v : {edges_[last].x, edges_[last].y}) {
        EraseSorted(&vertex_edges_[v], last);
        InsertSorted(&vertex_edges_[v], to);
      }
      for (const uint32_t t : edge_lists_[last]) {
        UInt4& e = triangle_edges_[t];
        (e.x == last ? e.x : e.y == last ? e.y : e.z) = to;
        dirty_triangles_.push_back(t);
      }
      edges_[to] = edges_[last];
      edge_groups_[to] = edge_groups_[last];
      std::swap(edge_ranges_[to], edge_ranges_[last]);
      places_.Give(edge_ranges_[last].x, edge_ranges_[last].y - edge_ranges_[last].x);
      edge_lists_[to] = std::move(edge_lists_[last]);
      dirty_edges_.push_back(to);
    }
    edges_.pop_back();
    edge_groups_.pop_back();
    edge_ranges_.pop_back();
    edge_lists_.pop_back();
  }
  gaps_.clear();
}

/// Of elements around the changed triangles those that nobody owns.
void SurfaceTopologyEditor::AssignOwners() {
  const auto least_loaded = [&](const std::vector<uint32_t>& list, uint32_t kinds) {
    return *std::min_element(list.begin(), list.end(), [&](uint32_t a, uint32_t b) {
      return std::popcount(triangles_[a].w & kinds) < std::popcount(triangles_[b].w & kinds);
    });
  };
  for (const uint32_t v : dirty_vertices_) {
    const std::vector<uint32_t>& around = vertex_triangles_[v];
    vertex_groups_[v] = around.empty() ? SurfaceTopology::kNoGroup : groups_[around.front()];
    const auto owns = [&](uint32_t t) { return (triangles_[t].w & BitOf(triangles_[t], v)) != 0; };
    if (around.empty() || std::any_of(around.begin(), around.end(), owns)) continue;
    const uint32_t t = least_loaded(around, kVertexBits);
    triangles_[t].w |= BitOf(triangles_[t], v);
    dirty_triangles_.push_back(t);
  }
  for (const uint32_t e : dirty_edges_) {
    const std::vector<uint32_t>& around = edge_lists_[e];
    const auto owns = [&](uint32_t t) { return (triangles_[t].w & 8 * BitOf(triangle_edges_[t], e)) != 0; };
    if (std::any_of(around.begin(), around.end(), owns)) continue;
    const uint32_t t = least_loaded(around, kEdgeBits);
    triangles_[t].w |= 8 * BitOf(triangle_edges_[t], e);
    dirty_triangles_.push_back(t);
  }
}

/// The lists of triangles of the changed edges.
bool SurfaceTopologyEditor::PlaceEdges() {
  for (const uint32_t e : dirty_edges_) {
    UInt2& range = edge_ranges_[e];
    const auto length = static_cast<uint32_t>(edge_lists_[e].size());
    if (length != range.y - range.x) {
      places_.Give(range.x, range.y - range.x);
      const std::optional<uint32_t> begin = places_.Take(length);
      if (!begin) return false;
      range = {*begin, *begin + length};
    }
    std::copy(edge_lists_[e].begin(), edge_lists_[e].end(), edge_places_.begin() + range.x);
    for (uint32_t k = range.x; k < range.y; ++k) dirty_places_.push_back(k);
  }
  return true;
}

absl::StatusOr<bool> SurfaceTopologyEditor::Apply(std::span<const uint32_t> changed, std::span<const UInt4> triangles,
                                                  std::span<const uint32_t> groups, uint32_t body_count, DeviceSurface* surface,
                                                  RunWriter* writer) {
  for (std::vector<uint32_t>* list : {&dirty_triangles_, &dirty_edges_, &dirty_vertices_, &dirty_places_, &gaps_}) list->clear();
  const auto count = static_cast<uint32_t>(triangles.size());
  const auto old_count = static_cast<uint32_t>(triangles_.size());
  for (const uint32_t t : changed) {
    if (t < std::min(count, old_count)) RemoveTriangle(t);
  }
  for (uint32_t t = count; t < old_count; ++t) RemoveTriangle(t);
  triangles_.resize(count);
  triangle_edges_.resize(count);
  groups_.resize(count);
  std::sort(gaps_.begin(), gaps_.end(), std::greater<>());  // the lowest first
  for (size_t i = 0; i < changed.size() && changed[i] < count; ++i) {
    const uint32_t t = changed[i];
    const UInt4& v = triangles[t];
    if (v.x == v.y || v.y == v.z || v.z == v.x || std::max({v.x, v.y, v.z}) >= vertex_triangles_.size()) {
      return absl::InvalidArgumentError(absl::StrCat("surface triangle ", t, " (", v.x, ", ", v.y, ", ", v.z,
                                                     "): a vertex is repeated, or not below ", vertex_triangles_.size()));
    }
    AddTriangle(t, v, groups[i]);
    dirty_triangles_.push_back(t);
  }
  for (const uint32_t v : dirty_vertices_) {
    for (const uint32_t t : vertex_triangles_[v]) {
      if (groups_[t] == groups_[vertex_triangles_[v].front()]) continue;
      return absl::InvalidArgumentError(absl::StrCat("surface triangle ", t, ": vertex ", v, " is also of body ",
                                                     groups_[vertex_triangles_[v].front()] & PALPATE_GROUP_MASK));
    }
  }
  CloseGaps();
  for (std::vector<uint32_t>* list : {&dirty_vertices_, &dirty_edges_}) SortUnique(list);
  std::erase_if(dirty_edges_, [&](uint32_t e) { return e >= edges_.size(); });
  if (triangles_.size() > surface->triangles.count() || edges_.size() > surface->edges.count() || !PlaceEdges()) return false;
  AssignOwners();
  for (std::vector<uint32_t>* list : {&dirty_triangles_, &dirty_places_}) SortUnique(list);

  surface->triangle_count = count;
  surface->edge_count = static_cast<uint32_t>(edges_.size());
  surface->body_count = body_count;
  surface->largest_body += static_cast<uint32_t>(changed.size());
  surface->version = DeviceSurface::NewVersion();
  PALPATE_RETURN_IF_ERROR(writer->AddElements(surface->triangles, triangles_, dirty_triangles_));
  PALPATE_RETURN_IF_ERROR(writer->AddElements(surface->triangle_edges, triangle_edges_, dirty_triangles_));
  PALPATE_RETURN_IF_ERROR(writer->AddElements(surface->groups, groups_, dirty_triangles_));
  PALPATE_RETURN_IF_ERROR(writer->AddElements(surface->vertex_groups, vertex_groups_, dirty_vertices_));
  PALPATE_RETURN_IF_ERROR(writer->AddElements(surface->edges, edges_, dirty_edges_));
  PALPATE_RETURN_IF_ERROR(writer->AddElements(surface->edge_groups, edge_groups_, dirty_edges_));
  PALPATE_RETURN_IF_ERROR(writer->AddElements(surface->edge_triangle_range, edge_ranges_, dirty_edges_));
  PALPATE_RETURN_IF_ERROR(writer->AddElements(surface->edge_triangles, edge_places_, dirty_places_));
  return true;
}

// --- state

/// Of the members of the editor, groups and lists by vertex and edge follow from the triangles; what is left is below. Lists of an edit
/// that runs are empty, or of no use to the next.
struct SurfaceTopologyEditor::Saved {
  std::vector<uint8_t> owned;                           // [triangle] UInt4 w
  std::vector<std::array<uint32_t, 3>> triangle_edges;  // [triangle]
  std::vector<uint32_t> edge_begins;                    // [edge] in the lists of triangles
  RangePool places{0, 0};
  DeviceSurface::Room room;
  uint32_t body_count = 0, largest_body = 0;

  template <typename Archive>
  void VisitState(Archive& archive) {
    archive.Enter("SurfaceTopologyEditor");
    archive(owned, triangle_edges, edge_begins, places, room.vertices, room.triangles, room.edges, room.edge_triangles, body_count,
            largest_body);
  }
};

void SurfaceTopologyEditor::SaveState(const DeviceSurface& surface, StateWriter& archive) const {
  // All members, so that a new one is not forgotten; see Saved.
  [[maybe_unused]] const auto& [triangles, triangle_edges, edges, groups, vertex_groups, edge_groups, edge_ranges, edge_places, edge_lists,
                                vertex_edges, vertex_triangles, places, dirty_triangles, dirty_edges, dirty_vertices, dirty_places, gaps] =
      *this;
  Saved saved;
  for (const UInt4& triangle : triangles) saved.owned.push_back(static_cast<uint8_t>(triangle.w));
  for (const UInt4& e : triangle_edges) saved.triangle_edges.push_back({e.x, e.y, e.z});
  for (const UInt2& range : edge_ranges) saved.edge_begins.push_back(range.x);
  saved.places = places;
  saved.room = {.vertices = surface.vertex_groups.count(),
                .triangles = surface.triangles.count(),
                .edges = surface.edges.count(),
                .edge_triangles = surface.edge_triangles.count()};
  saved.body_count = surface.body_count;
  saved.largest_body = surface.largest_body;
  archive(saved);
}

namespace {

absl::Status OtherSurface(const char* what) {
  return absl::InvalidArgumentError(absl::StrCat("the state is that of another surface: ", what));
}

/// Edges, with the lists of their triangles, as the triangles name them.
absl::Status ListEdges(std::span<const std::array<uint32_t, 3>> triangle_edges, size_t edge_count, SurfaceTopology* topology) {
  constexpr UInt2 kUnknown = {kNoEdge, kNoEdge};
  topology->edges.assign(edge_count, kUnknown);
  topology->edge_groups.assign(edge_count, SurfaceTopology::kNoGroup);
  topology->edge_triangle_begin.assign(edge_count + 1, 0);
  for (size_t t = 0; t < triangle_edges.size(); ++t) {
    const UInt4& v = topology->triangles[t];
    const std::array<uint32_t, 3> corners{v.x, v.y, v.z};
    for (size_t k = 0; k < 3; ++k) {
      const uint32_t e = triangle_edges[t][k];
      if (e >= edge_count) return OtherSurface("an edge is out of range");
      const UInt2 edge = {std::min(corners[k], corners[(k + 1) % 3]), std::max(corners[k], corners[(k + 1) % 3])};
      if (topology->edges[e] != kUnknown && topology->edges[e] != edge) return OtherSurface("triangles differ about an edge");
      topology->edges[e] = edge;
      topology->edge_groups[e] = topology->groups[t];
      ++topology->edge_triangle_begin[e + 1];
    }
  }
  for (size_t e = 0; e < edge_count; ++e) {
    if (topology->edges[e] == kUnknown) return OtherSurface("an edge has no triangle");
    topology->edge_triangle_begin[e + 1] += topology->edge_triangle_begin[e];
  }
  topology->edge_triangles.resize(3 * triangle_edges.size());
  std::vector<uint32_t> next(topology->edge_triangle_begin.begin(), topology->edge_triangle_begin.end() - 1);
  for (uint32_t t = 0; t < triangle_edges.size(); ++t) {
    for (const uint32_t e : triangle_edges[t]) topology->edge_triangles[next[e]++] = t;
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status SurfaceTopologyEditor::TakePlaces(const Saved& saved) {
  std::fill(edge_places_.begin(), edge_places_.end(), 0U);
  for (uint32_t e = 0; e < edges_.size(); ++e) {
    const auto length = static_cast<uint32_t>(edge_lists_[e].size());
    const uint32_t begin = saved.edge_begins[e];
    if (begin > saved.places.end() || length > saved.places.end() - begin) return OtherSurface("a list of triangles is out of range");
    edge_ranges_[e] = {begin, begin + length};
    std::copy(edge_lists_[e].begin(), edge_lists_[e].end(), edge_places_.begin() + begin);
  }
  places_ = saved.places;
  return absl::OkStatus();
}

absl::StatusOr<SurfaceTopologyEditor::Loaded> SurfaceTopologyEditor::Load(Queue& queue, StateReader& archive,
                                                                          std::span<const UInt4> triangles,
                                                                          std::span<const uint32_t> groups, uint32_t vertex_count,
                                                                          uint32_t body_limit) {
  Saved saved;
  archive(saved);
  PALPATE_RETURN_IF_ERROR(archive.status());
  const size_t count = triangles.size();
  const size_t edge_count = saved.edge_begins.size();
  const DeviceSurface::Room& room = saved.room;
  const size_t most = 4 * (count + vertex_count) + 4096;  // of triangles that a surface of so many vertices ever had room for
  if (saved.owned.size() != count || saved.triangle_edges.size() != count) return OtherSurface("another number of triangles");
  if (room.triangles < count || room.triangles > most || room.edges < edge_count || room.edges > 3 * most ||
      room.edge_triangles > 6 * most || room.vertices < vertex_count || room.vertices > 2 * size_t{vertex_count} + 4096 ||
      saved.places.capacity() != room.edge_triangles || !saved.places.IsSound()) {
    return OtherSurface("its room does not fit");
  }
  if (saved.body_count > body_limit) return OtherSurface("another number of bodies");

  SurfaceTopology topology;
  topology.vertex_count = vertex_count;
  topology.body_count = body_limit;
  topology.groups.assign(groups.begin(), groups.end());
  topology.vertex_groups.assign(vertex_count, SurfaceTopology::kNoGroup);
  for (size_t t = 0; t < count; ++t) {
    const UInt4& v = triangles[t];
    const auto& e = saved.triangle_edges[t];
    topology.triangles.push_back({v.x, v.y, v.z, saved.owned[t]});
    topology.triangle_edges.push_back({e[0], e[1], e[2], groups[t]});
    for (const uint32_t vertex : {v.x, v.y, v.z}) {
      if (topology.vertex_groups[vertex] == SurfaceTopology::kNoGroup) topology.vertex_groups[vertex] = groups[t];
    }
  }
  PALPATE_RETURN_IF_ERROR(ListEdges(saved.triangle_edges, edge_count, &topology));
  Loaded loaded;
  PALPATE_ASSIGN_OR_RETURN(loaded.surface, DeviceSurface::Upload(queue, topology, room));
  loaded.surface.body_count = saved.body_count;
  loaded.surface.largest_body = saved.largest_body;
  loaded.editor = std::make_unique<SurfaceTopologyEditor>(topology, loaded.surface);
  PALPATE_RETURN_IF_ERROR(loaded.editor->TakePlaces(saved));
  PALPATE_RETURN_IF_ERROR(queue.Write(loaded.surface.edge_triangle_range, std::span<const UInt2>(loaded.editor->edge_ranges_)));
  PALPATE_RETURN_IF_ERROR(queue.Write(loaded.surface.edge_triangles, std::span<const uint32_t>(loaded.editor->edge_places_)));
  return loaded;
}

}  // namespace palpate::gpu
