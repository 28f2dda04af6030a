#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "gpu/base/status.h"
#include "gpu/runtime/buffer.h"
#include "gpu/runtime/queue.h"
#include "gpu/shared/convex_types.h"

namespace palpate::gpu {

/// A convex polytope: the hull of its vertices. Any set of points is one; flat, straight and single-point sets too.
struct ConvexMesh {
  std::vector<Float4> vertices_m;  ///< at least one; w unused
  std::vector<UInt4> triangles;    ///< of the hull's surface (w unused); may be empty, then every support query looks at all vertices
};

/// Convex meshes in device memory, shared by any number of bodies. Immutable.
class ConvexMeshes {
 public:
  /// Meshes with triangles and at least this many vertices are climbed, others scanned: the scan takes 8 vertices at once and does not wait
  /// for memory (see docs/algorithms/convex.md for the measurement).
  static constexpr uint32_t kClimbFrom = 1024;

  /// Errors: InvalidArgument naming the mesh: no vertices, a coordinate that is not finite, a triangle with a wrong index; triangles that
  /// are not a closed surface, that leave out a vertex or do not bound a convex set (a vertex more than 1e-4 of the mesh's size outside a
  /// face).
  static absl::StatusOr<ConvexMeshes> Create(Queue& queue, std::span<const ConvexMesh> meshes, uint32_t climb_from = kClimbFrom);

  uint32_t count() const { return static_cast<uint32_t>(shapes_.count()); }
  const DeviceBuffer<ConvexShape>& shapes() const { return shapes_; }
  /// [block][x, y, z][PALPATE_CONVEX_LANES], see ConvexShape.
  const DeviceBuffer<float>& vertices() const { return vertices_; }
  const DeviceBuffer<uint32_t>& rows() const { return rows_; }
  const DeviceBuffer<uint32_t>& neighbors() const { return neighbors_; }
  /// What the device holds in shapes().
  const std::vector<ConvexShape>& host_shapes() const { return host_shapes_; }

 private:
  std::vector<ConvexShape> host_shapes_;
  DeviceBuffer<ConvexShape> shapes_;
  DeviceBuffer<float> vertices_;
  DeviceBuffer<uint32_t> rows_;
  DeviceBuffer<uint32_t> neighbors_;
};

/// Bodies as the kernels see them: body i is mesh meshes[i], its vertices taken to the world by position + rotate(rotation, scale * v).
/// A body of world vertices has a mesh of its own, unit rotation and scale.
struct ConvexBodies {
  uint32_t count = 0;
  BufferView<uint32_t> meshes;   ///< index into ConvexMeshes
  BufferView<Float4> positions;  ///< xyz [m]; w unused
  BufferView<Float4> rotations;  ///< unit quaternions: xyz = vector part, w = scalar part
  BufferView<Float4> scales;     ///< xyz, not zero; w unused
};

}  // namespace palpate::gpu
