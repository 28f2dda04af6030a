#pragma once

#include <cstdint>
#include <vector>

#include "gpu/base/status.h"
#include "gpu/runtime/buffer.h"
#include "gpu/runtime/queue.h"
#include "gpu/shared/box.h"
#include "gpu/shared/types.h"

namespace palpate::gpu {

/// Boxes around the straight moves of whole bodies: where none are near each other, and none meets itself, there is nothing to detect.
class BodyBoxes {
 public:
  /// `old` (or null): one that is given up, whose kernel is used again.
  absl::Status Init(Queue& queue, BodyBoxes* old);

  /// Which vertices are on the surface of which body has changed.
  void Invalidate() { are_bodies_listed_ = false; }

  /// Whether the boxes of all bodies' straight moves are more than distance_m apart. `vertex_groups`: ContactSurface::vertex_groups(),
  /// read after Invalidate() only, in O(vertices). One blocking read.
  absl::StatusOr<bool> AreApart(Queue& queue, const std::vector<uint32_t>& vertex_groups, size_t body_count,
                                const DeviceBuffer<Float4>& from, const DeviceBuffer<Float4>& to, float distance_m);

  /// The same in two parts: AreApart(distance_m) after the next blocking call, once.
  absl::Status Enqueue(Queue& queue, const std::vector<uint32_t>& vertex_groups, size_t body_count, const DeviceBuffer<Float4>& from,
                       const DeviceBuffer<Float4>& to);
  bool AreApart(float distance_m);

  size_t device_bytes() const { return begin_.size_bytes() + vertices_.size_bytes() + boxes_.size_bytes(); }

 private:
  absl::Status ListBodies(Queue& queue, const std::vector<uint32_t>& vertex_groups, size_t body_count);

  bool are_bodies_listed_ = false;
  std::vector<uint32_t> begin_host_;
  std::vector<Box> boxes_host_;
  Kernel body_boxes_;
  DeviceBuffer<uint32_t> begin_, vertices_;  // of each body's surface
  DeviceBuffer<Box> boxes_;                  // [body][part]
};

}  // namespace palpate::gpu
