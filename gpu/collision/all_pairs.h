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

/// The sweep for few bodies, where the number of launches is what counts: one group does all of it in one. It sorts the bodies along the
/// axis on which they spread the most, compares each with the clusters of 16 that begin before it ends, and keeps pairs as bits of a
/// matrix, from which they come out in their order. Memory: count^2 / 8 bytes. docs/algorithms/sweep_and_prune.md. Thread: one at a time.
class AllPairs {
 public:
  static constexpr uint32_t kMaxBodies = 1U << 16;  ///< their pairs can be counted in 32 bits

  static absl::StatusOr<AllPairs> Create(const std::shared_ptr<Context>& context, BoundingVolume volume);

  /// Enqueues the pairs of the bodies [0, count), at most kMaxBodies, to list.sorted(); again after Complete() returned false. Arguments as
  /// of BodyBroadPhase::Run.
  absl::Status Emit(Queue& queue, BufferView<float> volumes, BufferView<uint32_t> filters, uint32_t count, PairList& list);

 private:
  absl::Status Reserve(uint32_t count);

  std::shared_ptr<Context> context_;
  PrimitiveConfig config_;
  BoundingVolume volume_ = BoundingVolume::kDop6;
  Kernel kernel_;
  DeviceBuffer<float> clusters_, ends_;
  DeviceBuffer<uint32_t> keys_, keys_scratch_, order_scratch_, sorted_keys_, order_, bodies_, overlaps_, places_;
};

}  // namespace palpate::gpu
