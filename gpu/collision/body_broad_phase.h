#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "gpu/base/status.h"
#include "gpu/collision/all_pairs.h"
#include "gpu/collision/box_hierarchy.h"
#include "gpu/collision/kdop.h"
#include "gpu/collision/pair_list.h"
#include "gpu/collision/principal_axis.h"
#include "gpu/collision/sweep_and_prune.h"
#include "gpu/runtime/buffer.h"
#include "gpu/runtime/queue.h"

namespace palpate::gpu {

/// How candidates are found. kAutomatic: all pairs while bodies are few, the sweep while it has few tiles a cluster, else the hierarchy of
/// boxes.
enum class BroadPhaseMethod { kAutomatic, kSweep, kHierarchy, kAllPairs };

struct BroadPhaseOptions {
  BoundingVolume volume = BoundingVolume::kDop18;
  BroadPhaseMethod method = BroadPhaseMethod::kAutomatic;  ///< kAllPairs: at most AllPairs::kMaxBodies bodies
  uint32_t axis_period = 30;     ///< runs after which axis and method are chosen again; 0 = only the first time and on drift
  double axis_drift = 1.5;       ///< > 1; they are also chosen again when the tiles have grown or shrunk by this factor since
  uint64_t max_pairs = 1 << 28;  ///< at most 2^31; bounds the memory, 32 bytes a pair
  bool measure_stages = false;   ///< wait after each stage and take its time
};

enum class BroadPhaseStage { kAxis, kStructure, kTests, kSort };
inline constexpr size_t kBroadPhaseStageCount = 4;

/// Of the last run, counts of changes since the beginning.
struct BroadPhaseStatistics {
  BroadPhaseMethod method = BroadPhaseMethod::kSweep;  ///< the one used, never kAutomatic
  uint32_t axis = 0;                                   ///< sweep axis, see SweepAxis
  uint32_t axis_changes = 0;
  uint32_t method_changes = 0;
  uint64_t tile_count = 0;  ///< pairs of clusters of 16 bodies whose bodies were compared
  uint32_t pair_count = 0;
  std::array<double, kBroadPhaseStageCount> stage_s = {};  ///< with measure_stages
};

/// Finds all pairs of bodies whose bounding volumes overlap.
///
/// Guarantee: pairs() holds each pair (a, b), a < b, of overlapping volumes (closed intervals: touching counts) that the filters allow
/// once, sorted by (a, b): the same list for every method and axis. Volumes come from VolumeBuilder (or elsewhere in the layout of
/// FloatsPerVolume). Thread: one at a time. Determinism: the result is unique.
class BodyBroadPhase {
 public:
  static constexpr uint32_t kMaxBodies = SweepAndPrune::kMaxBodies;

  /// Errors: InvalidArgument naming the option out of range.
  static absl::StatusOr<BodyBroadPhase> Create(const std::shared_ptr<Context>& context, const BroadPhaseOptions& options);

  /// Blocking (a few round trips). Finds the pairs among volumes[0, count). `filters` (or null): one word a body, see PALPATE_BODY_STATIC
  /// in gpu/shared/kdop.h. Errors: InvalidArgument (a volume that is NaN, infinite or inside out: the message names the smallest such body;
  /// a buffer too small; too many bodies), ResourceExhausted (more than max_pairs pairs, with their number; device memory). After an error
  /// there are no pairs, and the next run starts afresh.
  absl::Status Run(Queue& queue, BufferView<float> volumes, BufferView<uint32_t> filters, uint32_t count);

  /// Of the last run; valid until the next.
  BufferView<UInt2> pairs() const { return has_pairs_ ? list_.pairs() : BufferView<UInt2>(); }
  uint32_t pair_count() const { return has_pairs_ ? list_.count() : 0; }
  const BroadPhaseStatistics& statistics() const { return statistics_; }

 private:
  class StageClock;
  absl::Status Choose(Queue& queue, BufferView<float> volumes, uint32_t count, StageClock& clock, bool* is_prepared);
  absl::Status RunSweep(Queue& queue, BufferView<float> volumes, BufferView<uint32_t> filters, uint32_t count, bool is_prepared,
                        StageClock& clock);
  absl::Status RunHierarchy(Queue& queue, BufferView<float> volumes, BufferView<uint32_t> filters, uint32_t count, StageClock& clock);
  absl::Status RunAllPairs(Queue& queue, BufferView<float> volumes, BufferView<uint32_t> filters, uint32_t count, StageClock& clock);
  absl::Status CheckVolumes() const;

  std::shared_ptr<Context> context_;
  PrimitiveConfig config_;
  BroadPhaseOptions options_;
  BroadPhaseStatistics statistics_;
  bool has_pairs_ = false;
  bool has_chosen_ = false;
  uint32_t runs_since_choice_ = 0;
  uint64_t tiles_at_choice_ = 0;  // 0: not known yet
  Kernel boxes_kernel_, cluster_volumes_kernel_, cluster_tiles_kernel_;
  PairList list_;
  PrincipalAxis principal_axis_;
  AllPairs all_pairs_;
  SweepAndPrune sweep_;
  BoxHierarchy hierarchy_;
  ClusterPairs cluster_pairs_;
  DeviceBuffer<Box> boxes_;
  DeviceBuffer<float> cluster_volumes_;
};

}  // namespace palpate::gpu
