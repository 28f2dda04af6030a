#pragma once

#include <cstdint>
#include <memory>

#include "gpu/base/status.h"
#include "gpu/collision/kdop.h"
#include "gpu/collision/pair_list.h"
#include "gpu/primitives/primitive_config.h"
#include "gpu/runtime/buffer.h"
#include "gpu/runtime/queue.h"

namespace palpate::gpu {

/// Compares all volumes with all, 16 at a time, in the order of the bodies: for few bodies quicker than the launches that sorting them
/// takes, and the pairs need no sorting either. docs/algorithms/sweep_and_prune.md. Thread: one at a time.
class AllPairs {
 public:
  static constexpr uint32_t kMaxBodies = 1U << 16;  ///< their pairs can be counted in 32 bits

  static absl::StatusOr<AllPairs> Create(const std::shared_ptr<Context>& context, BoundingVolume volume);

  /// Enqueues the pairs of the bodies [0, count), at most kMaxBodies, to list.sorted(); again after Complete() returned false. Arguments as
  /// of BodyBroadPhase::Run.
  absl::Status Emit(Queue& queue, BufferView<float> volumes, BufferView<uint32_t> filters, uint32_t count, PairList& list);

  /// Pairs of clusters that the last Emit compared.
  uint64_t tile_count() const { return uint64_t{cluster_count_} * (cluster_count_ + 1) / 2; }

 private:
  std::shared_ptr<Context> context_;
  PrimitiveConfig config_;
  BoundingVolume volume_ = BoundingVolume::kDop6;
  uint32_t cluster_count_ = 0;
  Kernel clusters_kernel_, masks_kernel_, write_kernel_;
  DeviceBuffer<float> clusters_;
  DeviceBuffer<uint16_t> masks_;
  DeviceBuffer<uint32_t> counts_;
};

}  // namespace palpate::gpu
