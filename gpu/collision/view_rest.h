#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "gpu/base/status.h"
#include "gpu/collision/surface_topology.h"
#include "gpu/primitives/scan.h"
#include "gpu/runtime/buffer.h"
#include "gpu/runtime/queue.h"
#include "gpu/shared/collision_types.h"

namespace palpate::gpu {

/// What a view certificate leaves of a surface, with all that may meet it, as a smaller surface: the triangles without a label, and those
/// whose swept boxes overlap boxes around runs of them. Elements keep their order and their groups.
///
/// Guarantee: two elements whose swept boxes come within the pad, and one of which is of no triangle with a label, are both in the rest.
/// Thread: one at a time.
class ViewRest {
 public:
  static absl::StatusOr<ViewRest> Create(const std::shared_ptr<Context>& context);

  /// Fills the rest of `whole`, whose groups it takes, for a step from `starts_m` to `ends_m` [m]. `labels`: [triangle] as `device_labels`
  /// has them, with at least one 0. False if more than most_share of the triangles are in it: then there is no rest. One blocking read.
  absl::StatusOr<bool> Build(Queue& queue, const DeviceSurface& whole, std::span<const uint32_t> labels,
                             const DeviceBuffer<uint32_t>& device_labels, BufferView<Float4> starts_m, BufferView<Float4> ends_m,
                             float pad_m, double most_share);

  /// Of the last Build; the next one changes it.
  const std::shared_ptr<const DeviceSurface>& surface() const { return shared_; }
  BufferView<Float4> starts_m() const { return {starts_.handle(), surface_->vertex_count}; }
  BufferView<Float4> ends_m() const { return {ends_.handle(), surface_->vertex_count}; }

  /// Gives elements and vertices of hits between elements of the rest their numbers in the whole surface.
  absl::Status NameHits(Queue& queue, BufferView<CcdHit> hits);

 private:
  // Vertices, edges or triangles.
  struct Kept {
    DeviceBuffer<uint32_t> keep, places, ids;
  };

  std::shared_ptr<Context> context_;
  ExclusiveScan scan_;
  Kernel boxes_kernel_, select_kernel_, vertices_kernel_, edges_kernel_, triangles_kernel_, hits_kernel_;
  std::shared_ptr<DeviceSurface> surface_;
  std::shared_ptr<const DeviceSurface> shared_;
  std::array<Kept, kSurfaceElementCount> kept_;
  std::array<DeviceBuffer<uint32_t>, kSurfaceElementCount> totals_;
  DeviceBuffer<uint32_t> begins_, list_;
  DeviceBuffer<float> nodes_;
  DeviceBuffer<Float4> starts_, ends_;
};

}  // namespace palpate::gpu
