#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "gpu/base/range_pool.h"
#include "gpu/base/state_archive.h"
#include "gpu/base/status.h"
#include "gpu/collision/surface_topology.h"
#include "gpu/primitives/run_writer.h"

namespace palpate::gpu {

/// Lets the connectivity of surfaces follow edits, on the host and on the device, at the cost of what changed: edges, their triangles, and
/// who owns what. Triangles and edges stay without gaps: the last edge takes the place of one that is gone.
///
/// Guarantee: after Apply() every vertex and edge is owned by exactly one of its triangles, and each edge is there once, as if built anew.
/// Edges are in another order than SurfaceTopology::Build gives them, and ownership may be spread less evenly.
/// Determinism: same edits, same order.
class SurfaceTopologyEditor {
 public:
  /// Of a topology that was just built, and uploaded with slack.
  explicit SurfaceTopologyEditor(const SurfaceTopology& topology, const DeviceSurface& surface);

  /// What the triangles of a surface do not tell of how edits left it: the places of edges, who owns what, and the room of its buffers.
  void SaveState(const DeviceSurface& surface, StateWriter& archive) const;
  /// An editor that goes on from such a state, and its surface. `triangles` (xyz) and `groups` are those of the surface, [triangle];
  /// there are `body_limit` bodies at most. Errors: InvalidArgument (a state of another surface), ResourceExhausted.
  struct Loaded;
  static absl::StatusOr<Loaded> Load(Queue& queue, StateReader& archive, std::span<const UInt4> triangles, std::span<const uint32_t> groups,
                                     uint32_t vertex_count, uint32_t body_limit);

  /// `changed`: rising indices of triangles that differ or are new; those from `triangles.size()` on are gone, in any case. `triangles`:
  /// all, xyz vertices; `groups`: of each of `changed`, as SurfaceTopology::groups. Hands what changed to `writer` and sets the counts of
  /// `surface`. False: no room, build it anew. Errors: InvalidArgument naming a triangle with a repeated vertex or one of another group.
  absl::StatusOr<bool> Apply(std::span<const uint32_t> changed, std::span<const UInt4> triangles, std::span<const uint32_t> groups,
                             uint32_t body_count, DeviceSurface* surface, RunWriter* writer);

  const std::vector<UInt4>& triangles() const { return triangles_; }            ///< w: owned elements
  const std::vector<UInt4>& triangle_edges() const { return triangle_edges_; }  ///< w: group
  const std::vector<UInt2>& edges() const { return edges_; }
  const std::vector<uint32_t>& edge_groups() const { return edge_groups_; }
  const std::vector<uint32_t>& vertex_groups() const { return vertex_groups_; }
  const std::vector<uint32_t>& TrianglesOfEdge(uint32_t edge) const { return edge_lists_[edge]; }

 private:
  // How a state says it.
  struct Saved;
  absl::Status TakePlaces(const Saved& saved);

  uint32_t FindEdge(uint32_t a, uint32_t b) const;
  void RemoveTriangle(uint32_t t);
  void AddTriangle(uint32_t t, const UInt4& vertices, uint32_t group);
  void CloseGaps();
  void AssignOwners();
  bool PlaceEdges();

  std::vector<UInt4> triangles_, triangle_edges_;
  std::vector<UInt2> edges_;
  std::vector<uint32_t> groups_, vertex_groups_, edge_groups_;
  std::vector<UInt2> edge_ranges_;                       // in edge_places_
  std::vector<uint32_t> edge_places_;                    // as on the device
  std::vector<std::vector<uint32_t>> edge_lists_;        // triangles of each edge, rising
  std::vector<std::vector<uint32_t>> vertex_edges_;      // of each vertex
  std::vector<std::vector<uint32_t>> vertex_triangles_;  // likewise
  RangePool places_;
  // Of the edit that runs.
  std::vector<uint32_t> dirty_triangles_, dirty_edges_, dirty_vertices_, dirty_places_, gaps_;
};

struct SurfaceTopologyEditor::Loaded {
  std::unique_ptr<SurfaceTopologyEditor> editor;
  DeviceSurface surface;
};

}  // namespace palpate::gpu
