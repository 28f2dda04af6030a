#pragma once

#include <cstdint>
#include <span>

#include "gpu/collision/surface_topology.h"
#include "gpu/shared/types.h"

namespace palpate::gpu {

/// Marks the edges that lie inside flat faces of bodies that do not deform, such as the diagonals of a box: SurfaceTopology::kFlatEdge in
/// `triangles`, no group in `edge_groups`. Proximity and continuous detection then leave them out; intersections do not.
///
/// Guarantee: a face is a connected set of triangles, turned the same way, whose vertices all lie within `tolerance_m` of one
/// plane. What comes to touch such a face from one side touches it first with a vertex, with an edge at the face's outline, or at one of
/// the face's own vertices: an edge that reaches the inside of a flat edge alone would lie along the face there, up to where it ends or
/// leaves the face. So where the pairs that are left stay farther apart than the tolerance, no flat edge is crossed
/// (docs/algorithms/proximity.md, "Flat faces").
///
/// positions: [vertex_count], w unused, in which each such body has the shape that it keeps. keeps_shape: [body], bodies beyond it do not.
/// Edges with one or more than two triangles are left as they are. Returns the number of edges marked. O(n log n) on the host.
uint32_t MarkFlatEdges(std::span<const Float4> positions, std::span<const uint8_t> keeps_shape, double tolerance_m,
                       SurfaceTopology* topology);

}  // namespace palpate::gpu
