#include "gpu/collision/surface_topology_editor.h"

#include <algorithm>
#include <bit>

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

}  // namespace palpate::gpu
