#include "gpu/collision/surface_topology.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <string>

namespace palpate::gpu {
namespace {

constexpr size_t kLeastSlack = 256;  // elements

/// Turns counts in begin[1...] into begins.
void Accumulate(std::vector<uint32_t>& begin) {
  for (size_t i = 1; i < begin.size(); ++i) begin[i] += begin[i - 1];
}

/// For each target, the sources that name it, rising: begin[target]... in `list`. `corner(i, k)` is the k-th target of source i.
template <typename Corner>
void Invert(size_t source_count, uint32_t corner_count, size_t target_count, Corner corner, std::vector<uint32_t>* begin,
            std::vector<uint32_t>* list) {
  begin->assign(target_count + 1, 0);
  for (size_t i = 0; i < source_count; ++i) {
    for (uint32_t k = 0; k < corner_count; ++k) ++(*begin)[corner(i, k) + 1];
  }
  Accumulate(*begin);
  list->resize(source_count * corner_count);
  std::vector<uint32_t> next(begin->begin(), begin->end() - 1);
  for (size_t i = 0; i < source_count; ++i) {
    for (uint32_t k = 0; k < corner_count; ++k) (*list)[next[corner(i, k)]++] = static_cast<uint32_t>(i);
  }
}

uint32_t Corner(const UInt4& v, uint32_t k) { return k == 0 ? v.x : k == 1 ? v.y : v.z; }

/// The triangle of [begin, end) that owns fewest elements of `kinds`, the first of them; each is given to it by the caller.
uint32_t LeastLoaded(const std::vector<UInt4>& triangles, const uint32_t* begin, const uint32_t* end, uint32_t kinds) {
  uint32_t best = *begin;
  for (const uint32_t* t = begin + 1; t != end; ++t) {
    if (std::popcount(triangles[*t].w & kinds) < std::popcount(triangles[best].w & kinds)) best = *t;
  }
  return best;
}

/// Triangles with the groups of their vertices. Errors: InvalidArgument naming body and triangle.
absl::Status TakeTriangles(std::span<const std::array<uint32_t, 3>> triangles, std::span<const uint32_t> groups, SurfaceTopology* out) {
  out->triangles.reserve(triangles.size());
  out->groups.assign(groups.begin(), groups.end());
  out->vertex_groups.assign(out->vertex_count, SurfaceTopology::kNoGroup);
  uint32_t of_body = 0;  // place among the triangles of its body, which messages name
  for (size_t i = 0; i < triangles.size(); ++i) {
    const auto& t = triangles[i];
    const uint32_t group = groups[i];
    const uint32_t body = group & PALPATE_GROUP_MASK;
    of_body = i > 0 && (groups[i - 1] & PALPATE_GROUP_MASK) == body ? of_body + 1 : 0;
    out->body_count = std::max(out->body_count, body + 1);
    const auto error = [&](const std::string& what) {
      return absl::InvalidArgumentError(
          absl::StrCat("surface: body ", body, ", triangle ", of_body, " (", t[0], ", ", t[1], ", ", t[2], "): ", what));
    };
    for (const uint32_t v : t) {
      if (v >= out->vertex_count) return error(absl::StrCat("there are only ", out->vertex_count, " vertices"));
      if (out->vertex_groups[v] != SurfaceTopology::kNoGroup && out->vertex_groups[v] != group) {
        return error(absl::StrCat("vertex ", v, " is also of body ", out->vertex_groups[v] & PALPATE_GROUP_MASK));
      }
      out->vertex_groups[v] = group;
    }
    if (t[0] == t[1] || t[1] == t[2] || t[2] == t[0]) return error("a vertex is repeated");
    out->triangles.push_back({t[0], t[1], t[2], 0});
  }
  return absl::OkStatus();
}

/// Edges by their smaller vertex, then the larger one; those of each triangle and the triangles of each.
void FindEdges(SurfaceTopology* out) {
  const size_t triangle_count = out->triangles.size();
  const uint32_t vertex_count = out->vertex_count;
  // Half-edges by smaller vertex, then sorted by larger vertex within each (few) and numbered.
  struct HalfEdge {
    uint32_t larger, triangle, corner;
  };
  std::vector<uint32_t> begin(size_t{vertex_count} + 1, 0);
  for (size_t t = 0; t < triangle_count; ++t) {
    for (uint32_t k = 0; k < 3; ++k) {
      const UInt4& v = out->triangles[t];
      ++begin[std::min(Corner(v, k), Corner(v, (k + 1) % 3)) + 1];
    }
  }
  Accumulate(begin);
  std::vector<HalfEdge> half_edges(3 * triangle_count);
  std::vector<uint32_t> next(begin.begin(), begin.end() - 1);
  for (uint32_t t = 0; t < triangle_count; ++t) {
    for (uint32_t k = 0; k < 3; ++k) {
      const uint32_t a = Corner(out->triangles[t], k);
      const uint32_t b = Corner(out->triangles[t], (k + 1) % 3);
      half_edges[next[std::min(a, b)]++] = {std::max(a, b), t, k};
    }
  }
  out->triangle_edges.resize(triangle_count);
  for (size_t t = 0; t < triangle_count; ++t) out->triangle_edges[t].w = out->groups[t];
  for (uint32_t v = 0; v < vertex_count; ++v) {
    const auto first = half_edges.begin() + begin[v];
    const auto last = half_edges.begin() + begin[v + 1];
    std::sort(first, last,
              [](const HalfEdge& a, const HalfEdge& b) { return a.larger != b.larger ? a.larger < b.larger : a.triangle < b.triangle; });
    for (auto h = first; h != last; ++h) {
      if (h == first || h->larger != (h - 1)->larger) {
        out->edges.push_back({v, h->larger});
        out->edge_groups.push_back(out->groups[h->triangle]);
        out->edge_triangle_begin.push_back(static_cast<uint32_t>(out->edge_triangles.size()));
      }
      out->edge_triangles.push_back(h->triangle);
      const auto edge = static_cast<uint32_t>(out->edges.size() - 1);
      UInt4& edges = out->triangle_edges[h->triangle];
      (h->corner == 0 ? edges.x : h->corner == 1 ? edges.y : edges.z) = edge;
    }
  }
  out->edge_triangle_begin.push_back(static_cast<uint32_t>(out->edge_triangles.size()));
}

/// Each vertex and each edge is owned by one of its triangles, the one that owns fewest.
void ShareOut(SurfaceTopology* out) {
  for (uint32_t v = 0; v < out->vertex_count; ++v) {
    const uint32_t* incident = out->vertex_triangles.data();
    if (out->vertex_triangle_begin[v] == out->vertex_triangle_begin[v + 1]) continue;
    UInt4& owner = out->triangles[LeastLoaded(out->triangles, incident + out->vertex_triangle_begin[v],
                                              incident + out->vertex_triangle_begin[v + 1], 7)];
    owner.w |= owner.x == v ? 1U : owner.y == v ? 2U : 4U;
  }
  for (uint32_t e = 0; e < out->edges.size(); ++e) {
    const uint32_t* incident = out->edge_triangles.data();
    const uint32_t t = LeastLoaded(out->triangles, incident + out->edge_triangle_begin[e], incident + out->edge_triangle_begin[e + 1], 56);
    const UInt4& edges = out->triangle_edges[t];
    out->triangles[t].w |= edges.x == e ? 8U : edges.y == e ? 16U : 32U;
  }
}

}  // namespace

absl::StatusOr<SurfaceTopology> SurfaceTopology::Build(uint32_t vertex_count, std::span<const SurfaceBody> bodies) {
  std::vector<uint32_t> body_indices;
  std::vector<std::array<uint32_t, 3>> triangles;
  std::vector<uint32_t> groups;
  uint32_t body_count = 0;
  for (const SurfaceBody& body : bodies) {
    if (body.body >= PALPATE_GROUP_MASK) {
      return absl::InvalidArgumentError(absl::StrCat("surface: body ", body.body, " is not below ", PALPATE_GROUP_MASK));
    }
    body_indices.push_back(body.body);
    body_count = std::max(body_count, body.body + 1);
    triangles.insert(triangles.end(), body.triangles.begin(), body.triangles.end());
    groups.insert(groups.end(), body.triangles.size(), body.body | (body.self_collision ? PALPATE_GROUP_SELF : 0U));
  }
  std::sort(body_indices.begin(), body_indices.end());
  if (const auto twice = std::adjacent_find(body_indices.begin(), body_indices.end()); twice != body_indices.end()) {
    return absl::InvalidArgumentError(absl::StrCat("surface: body ", *twice, " is given twice"));
  }
  PALPATE_ASSIGN_OR_RETURN(SurfaceTopology out, Build(vertex_count, triangles, groups));
  out.body_count = body_count;
  return out;
}

absl::StatusOr<SurfaceTopology> SurfaceTopology::Build(uint32_t vertex_count, std::span<const std::array<uint32_t, 3>> triangles,
                                                       std::span<const uint32_t> groups) {
  SurfaceTopology out;
  out.vertex_count = vertex_count;
  const size_t triangle_count = triangles.size();
  if (groups.size() != triangle_count) {
    return absl::InvalidArgumentError(absl::StrCat("surface: ", groups.size(), " groups for ", triangle_count, " triangles"));
  }
  // A triangle brings at most three edges.
  if (vertex_count > kMaxElements || triangle_count > kMaxElements / 3) {
    return absl::ResourceExhaustedError(absl::StrCat("surface: ", vertex_count, " vertices and ", triangle_count, " triangles; at most ",
                                                     kMaxElements, " vertices and ", kMaxElements / 3, " triangles are possible"));
  }

  PALPATE_RETURN_IF_ERROR(TakeTriangles(triangles, groups, &out));
  FindEdges(&out);
  Invert(
      triangle_count, 3, vertex_count, [&](size_t t, uint32_t k) { return Corner(out.triangles[t], k); }, &out.vertex_triangle_begin,
      &out.vertex_triangles);
  Invert(
      out.edges.size(), 2, vertex_count, [&](size_t e, uint32_t k) { return k == 0 ? out.edges[e].x : out.edges[e].y; },
      &out.vertex_edge_begin, &out.vertex_edges);
  ShareOut(&out);
  return out;
}

uint64_t DeviceSurface::NewVersion() {
  static std::atomic<uint64_t> last = 0;  // tells surfaces apart; reaches no state
  return ++last;
}

absl::StatusOr<DeviceSurface> DeviceSurface::Upload(Queue& queue, const SurfaceTopology& topology, double slack_share) {
  const auto room = [&](size_t count) {
    return count + (slack_share > 0 ? static_cast<size_t>(slack_share * static_cast<double>(count)) + kLeastSlack : 0);
  };
  return Upload(queue, topology,
                Room{.vertices = room(topology.vertex_groups.size()),
                     .triangles = room(topology.triangles.size()),
                     .edges = room(topology.edges.size()),
                     .edge_triangles = room(topology.edge_triangles.size())});
}

absl::StatusOr<DeviceSurface> DeviceSurface::Upload(Queue& queue, const SurfaceTopology& topology, const Room& room) {
  DeviceSurface surface;
  surface.vertex_count = topology.vertex_count;
  surface.triangle_count = static_cast<uint32_t>(topology.triangles.size());
  surface.edge_count = static_cast<uint32_t>(topology.edges.size());
  surface.body_count = topology.body_count;
  std::vector<uint32_t> of_body(topology.body_count, 0);
  for (const uint32_t group : topology.groups) surface.largest_body = std::max(surface.largest_body, ++of_body[group & PALPATE_GROUP_MASK]);
  surface.version = NewVersion();
  const auto upload = [&]<typename T>(const std::vector<T>& values, DeviceBuffer<T>* buffer, const char* name, size_t count) {
    absl::StatusOr<DeviceBuffer<T>> made = DeviceBuffer<T>::Create(queue.context(), count, name);
    if (!made.ok()) return made.status();
    *buffer = *std::move(made);
    return queue.Write(*buffer, std::span<const T>(values));
  };
  std::vector<UInt2> ranges;
  ranges.reserve(topology.edges.size());
  for (size_t e = 0; e < topology.edges.size(); ++e) {
    ranges.push_back({topology.edge_triangle_begin[e], topology.edge_triangle_begin[e + 1]});
  }
  PALPATE_RETURN_IF_ERROR(upload(topology.triangles, &surface.triangles, "surface triangles", room.triangles));
  PALPATE_RETURN_IF_ERROR(upload(topology.triangle_edges, &surface.triangle_edges, "surface triangle edges", room.triangles));
  PALPATE_RETURN_IF_ERROR(upload(topology.edges, &surface.edges, "surface edges", room.edges));
  PALPATE_RETURN_IF_ERROR(upload(topology.groups, &surface.groups, "surface groups", room.triangles));
  PALPATE_RETURN_IF_ERROR(upload(topology.vertex_groups, &surface.vertex_groups, "surface vertex groups", room.vertices));
  PALPATE_RETURN_IF_ERROR(upload(topology.edge_groups, &surface.edge_groups, "surface edge groups", room.edges));
  PALPATE_RETURN_IF_ERROR(upload(ranges, &surface.edge_triangle_range, "surface edge triangle ranges", room.edges));
  PALPATE_RETURN_IF_ERROR(upload(topology.edge_triangles, &surface.edge_triangles, "surface edge triangles", room.edge_triangles));
  return surface;
}

}  // namespace palpate::gpu
