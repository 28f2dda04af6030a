#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "gpu/base/status.h"
#include "gpu/dynamics/shape_clusters.h"
#include "gpu/runtime/buffer.h"
#include "gpu/runtime/queue.h"
#include "gpu/shared/shape_types.h"
#include "gpu/shared/types.h"

namespace palpate::gpu {

/// Where the vertices of shape-matched bodies are drawn to, on the device. A vertex has the energy  k / 2 |x - g|^2  with its goal g, the
/// mean of what its clusters want of it; see docs/algorithms/shape_matching.md, "Deformable bodies".
///
/// Guarantees: goals of a body that moved rigidly are the moved rest shape, to rounding, whatever the mode; forces of fresh goals add up to
/// no force and no moment, to rounding; every finite state has finite goals, folded, flat and collinear ones included.
/// Cost: an update is two launches, linear in the number of memberships (at most eight a vertex).
/// Thread: one at a time. Determinism: same input and group size, same bits.
class ShapeGoals {
 public:
  /// `group_size`: work-items that share a cluster, 1 or a power of two.
  static absl::StatusOr<std::unique_ptr<ShapeGoals>> Create(Queue& queue, const ShapeClusters& clusters, uint32_t group_size);

  /// Start of a step: notes the strains that damping works against. `x_start`: positions then. Nothing to do without damping.
  absl::Status Begin(Queue& queue, const DeviceBuffer<Float4>& x_start);

  /// Enqueues the goals at positions x; before the first Begin as if there were no strain to hold on to.
  absl::Status Update(Queue& queue, const DeviceBuffer<Float4>& x);

  /// [vertex_count] xyz [m], w = stiffness [N/m], 0 for vertices of other bodies. Solver order.
  const DeviceBuffer<Float4>& goals() const { return goals_; }
  /// [cluster]
  const DeviceBuffer<ShapePose>& poses() const { return poses_; }
  size_t device_bytes() const { return device_bytes_; }

 private:
  absl::Status Match(Queue& queue, const DeviceBuffer<Float4>& x);

  uint32_t cluster_count_ = 0;
  uint32_t vertex_count_ = 0;
  uint32_t group_size_ = 1;
  bool is_damped_ = false;
  size_t device_bytes_ = 0;
  DeviceBuffer<ShapeCluster> clusters_;
  DeviceBuffer<ShapePose> poses_;
  DeviceBuffer<uint32_t> member_vertex_, share_begin_;
  DeviceBuffer<Float4> member_linear_, member_quadratic_, strains_, goals_;
  DeviceBuffer<UInt2> shares_;
  Kernel match_clusters_, note_strains_, gather_goals_;
};

}  // namespace palpate::gpu
