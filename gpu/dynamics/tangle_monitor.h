#pragma once

#include <cstdint>
#include <span>

#include "gpu/base/state_archive.h"
#include "gpu/base/status.h"
#include "gpu/collision/intersections.h"
#include "gpu/primitives/run_writer.h"
#include "gpu/runtime/buffer.h"
#include "gpu/runtime/queue.h"

namespace palpate::gpu {

/// Knows which surfaces pass through each other: vertices of an edge that passes through a triangle, and of that triangle, are marked.
/// Their pairs neither push nor are held back, until a later look finds them apart.
class TangleMonitor {
 public:
  /// `old` (or null): one that is given up, whose kernels and working memory are used again.
  absl::Status Init(Queue& queue, uint32_t vertex_count, TangleMonitor* old);

  /// Looks at the positions x. Some blocking reads.
  /// As Look, in two parts: the second, with the same arguments, after the next blocking call.
  absl::Status EnqueueLook(Queue& queue, const DeviceSurface& surface, const DeviceBuffer<Float4>& x);
  absl::Status TakeLook(Queue& queue, const DeviceSurface& surface, const DeviceBuffer<Float4>& x);
  absl::Status Look(Queue& queue, const DeviceSurface& surface, const DeviceBuffer<Float4>& x);
  /// Marks no vertex.
  absl::Status Forget(Queue& queue);
  /// After an edit: the vertices `slots` are others than before.
  absl::Status Follow(std::span<const uint32_t> slots, RunWriter* writer);

  /// Which vertices are marked. Blocking.
  absl::Status SaveState(Queue& queue, StateWriter& archive) const;
  absl::Status LoadState(Queue& queue, StateReader& archive);

  uint32_t intersections() const { return intersections_; }           ///< edges through triangles, at the last look
  const DeviceBuffer<uint32_t>& tangled() const { return tangled_; }  ///< [slot] 1: marked
  size_t device_bytes() const { return tangled_.size_bytes(); }

 private:
  absl::Status Mark(Queue& queue, const DeviceSurface& surface);

  uint32_t intersections_ = 0;
  IntersectionCounter counter_;
  Kernel mark_tangled_;
  DeviceBuffer<uint32_t> tangled_;
};

}  // namespace palpate::gpu
