#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "gpu/base/status.h"
#include "gpu/runtime/buffer.h"
#include "gpu/runtime/queue.h"
#include "gpu/shared/collision_types.h"

namespace palpate::gpu {

/// The triangles of one body, as indices into the vertices of the whole scene.
struct SurfaceBody {
  std::span<const std::array<uint32_t, 3>> triangles;
  uint32_t body = 0;           ///< at most PALPATE_GROUP_MASK - 1, any order, need not be dense; one entry a body
  bool self_collision = true;  ///< elements of this body may meet each other
};

/// What a triangle surface is made of.
enum class SurfaceElement { kVertex, kEdge, kTriangle };
inline constexpr size_t kSurfaceElementCount = 3;

/// What proximity, continuous and intersection tests need to know of the connectivity of a scene's surfaces, in plain arrays. Triangles
/// keep the order in which they were given (body after body); edges are numbered by rising (smaller vertex, larger vertex).
///
/// Each vertex and each edge is owned by exactly one triangle that has it, so that a test over pairs of triangles sees each pair of
/// elements once. Ownership is spread evenly: a pair of triangles of closed surfaces has 3.25 elementary tests on average instead of 15.
/// Edges may have one, two or more triangles; a vertex belongs to one body. After a change of topology, build it again: O(n), 51,200
/// triangles take some milliseconds on the host.
struct SurfaceTopology {
  uint32_t vertex_count = 0;
  uint32_t body_count = 0;                      ///< largest body index + 1
  std::vector<UInt4> triangles;                 ///< v0, v1, v2; w: owned elements, bit k = vertex k, bit 3 + k = edge (k, k+1)
  std::vector<UInt4> triangle_edges;            ///< edges (v0, v1), (v1, v2), (v2, v0); w: group of the triangle
  std::vector<UInt2> edges;                     ///< smaller vertex, larger vertex
  std::vector<uint32_t> groups;                 ///< [triangle_count] body, with PALPATE_GROUP_SELF if it may meet itself
  std::vector<uint32_t> vertex_groups;          ///< [vertex_count] likewise; kNoGroup for a vertex without triangles
  std::vector<uint32_t> edge_groups;            ///< [edge_count] likewise
  std::vector<uint32_t> vertex_triangle_begin;  ///< [vertex_count + 1], rising triangles of vertex v: [begin[v], begin[v + 1])
  std::vector<uint32_t> vertex_triangles;
  std::vector<uint32_t> vertex_edge_begin;  ///< [vertex_count + 1]
  std::vector<uint32_t> vertex_edges;
  std::vector<uint32_t> edge_triangle_begin;  ///< [edge_count + 1]
  std::vector<uint32_t> edge_triangles;

  static constexpr uint32_t kNoGroup = 0xffffffffU;
  /// Largest vertex, edge and triangle count.
  static constexpr uint32_t kMaxElements = 1U << 26;

  /// Errors: InvalidArgument naming the body and the triangle (vertex out of range, repeated vertex in a triangle, vertex of another body,
  /// body given twice or out of range), ResourceExhausted above kMaxElements.
  static absl::StatusOr<SurfaceTopology> Build(uint32_t vertex_count, std::span<const SurfaceBody> bodies);
  /// The same of triangles of any bodies in any order; `groups`: body of each triangle, with PALPATE_GROUP_SELF if it may meet itself.
  static absl::StatusOr<SurfaceTopology> Build(uint32_t vertex_count, std::span<const std::array<uint32_t, 3>> triangles,
                                               std::span<const uint32_t> groups);
};

/// The arrays of a SurfaceTopology that kernels read, on the device. Buffers may be longer than the counts say.
struct DeviceSurface {
  uint32_t vertex_count = 0;
  uint32_t triangle_count = 0;
  uint32_t edge_count = 0;
  uint32_t body_count = 0;
  uint32_t largest_body = 0;  ///< no body has more triangles
  uint64_t version = 0;       ///< another one after each change; no two surfaces have the same
  DeviceBuffer<UInt4> triangles;
  DeviceBuffer<UInt4> triangle_edges;
  DeviceBuffer<UInt2> edges;
  DeviceBuffer<uint32_t> groups;
  DeviceBuffer<uint32_t> vertex_groups;
  DeviceBuffer<uint32_t> edge_groups;
  DeviceBuffer<UInt2> edge_triangle_range;  ///< [edge_count] begin and end in edge_triangles
  DeviceBuffer<uint32_t> edge_triangles;
  /// Bodies that do not meet each other, or null: all do. [0] a count n of bodies, the others meet all; [1, n + 2) begins of each one's
  /// list in this buffer, and where the last one ends; then the lists.
  DeviceBuffer<uint32_t> apart;

  /// `slack_share` > 0: buffers get room for this share of their elements more, and some, for edits.
  static absl::StatusOr<DeviceSurface> Upload(Queue& queue, const SurfaceTopology& topology, double slack_share = 0);
  /// Elements that the buffers hold.
  struct Room {
    uint64_t vertices = 0, triangles = 0, edges = 0, edge_triangles = 0;
  };
  static absl::StatusOr<DeviceSurface> Upload(Queue& queue, const SurfaceTopology& topology, const Room& room);
  /// For whoever changes one.
  static uint64_t NewVersion();

  uint32_t CountOf(SurfaceElement kind) const {
    return kind == SurfaceElement::kVertex ? vertex_count : kind == SurfaceElement::kEdge ? edge_count : triangle_count;
  }
  const DeviceBuffer<uint32_t>& GroupsOf(SurfaceElement kind) const {
    return kind == SurfaceElement::kVertex ? vertex_groups : kind == SurfaceElement::kEdge ? edge_groups : groups;
  }
};

}  // namespace palpate::gpu
