#pragma once

#include <cstdint>
#include <memory>

#include "gpu/base/status.h"
#include "gpu/collision/kdop.h"
#include "gpu/collision/pair_list.h"
#include "gpu/primitives/radix_sort.h"
#include "gpu/primitives/scan.h"
#include "gpu/runtime/buffer.h"
#include "gpu/runtime/queue.h"

namespace palpate::gpu {

/// -D macros of kernels that include volume_tile.clh.
ProgramDefines TileDefines(const Context& context, BoundingVolume volume);

/// Work-items among which the tiles are divided equally.
Range TileRange(const Context& context);

/// Sweep and prune on one axis: the bodies are sorted by where their interval on the axis begins; one can meet only those that begin before
/// its interval ends, and with these all axes are compared.
///
/// The sorted bodies are cut into clusters of 16. A tile is a pair of clusters; cluster p makes tiles with itself and those behind it that
/// begin before the longest interval of p ends (binary search), and in a tile only the bodies of p that reach the other cluster are
/// compared, each with 16 at once. The tiles of all clusters are numbered through by a scan, and each work-item takes an equal share of
/// them, so one interval over the whole world is tested by all work-items.
///
/// Guarantee: every pair of volumes that overlap (closed intervals on all axes; spheres: |ca - cb|^2 <= (ra + rb)^2 in float) is appended
/// once, on whichever axis. Cost: O(n log n + tiles); a uniform cloud in three dimensions has about n^(5/3) / 256 tiles.
/// Thread: one at a time. After: Amaral 2021 and Harada's balanced variant, see docs/algorithms/sweep_and_prune.md.
class SweepAndPrune {
 public:
  static constexpr uint32_t kMaxBodies = 1U << 26;

  static absl::StatusOr<SweepAndPrune> Create(const std::shared_ptr<Context>& context, BoundingVolume volume);

  /// Enqueues the sort of volumes[0, count) along `axis` and the division of work; list.bad_body() will name an invalid volume. `list` has
  /// been begun for `count` bodies. Errors: InvalidArgument (a buffer too small, count above kMaxBodies, no such axis), ResourceExhausted.
  absl::Status Prepare(Queue& queue, BufferView<float> volumes, uint32_t count, uint32_t axis, PairList& list);

  /// Enqueues the tests of the prepared order. `filters` (or null): see PALPATE_BODY_STATIC. May be repeated for a list that has grown.
  absl::Status Emit(Queue& queue, BufferView<uint32_t> filters, PairList& list);

  /// Tiles of the last Emit (rounded up to units of work), once a blocking call has followed it.
  uint64_t tile_count() const { return uint64_t{*units_} * unit_tiles_; }

  /// Blocking. Tiles that Emit would test, before it has been called.
  absl::StatusOr<uint64_t> ReadTileCount(Queue& queue);

 private:
  absl::Status Reserve(uint32_t count);

  std::shared_ptr<Context> context_;
  PrimitiveConfig config_;
  BoundingVolume volume_ = BoundingVolume::kDop6;
  uint32_t capacity_ = 0;
  uint32_t count_ = 0;
  uint32_t cluster_count_ = 0;
  uint32_t unit_tiles_ = 1;
  std::unique_ptr<uint32_t> units_;  // read from the device; its address must not change meanwhile
  Kernel keys_kernel_, clusters_kernel_, counts_kernel_, tiles_kernel_;
  RadixSort<float> sort_;
  ExclusiveScan scan_;
  DeviceBuffer<float> keys_, sorted_keys_, clusters_, ends_;
  DeviceBuffer<uint32_t> order_, bodies_, tile_ends_, unit_counts_, unit_offsets_, unit_total_;
};

}  // namespace palpate::gpu
