#include "gpu/collision/body_broad_phase.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gpu/runtime/kernel_source.h"

namespace palpate::gpu {
namespace kernels {
extern const KernelSource body_broad_phase;
}
namespace {

constexpr uint32_t kNone = 0xffffffffU;
// A cluster of the sweep may have this many tiles before the hierarchy, which takes longer to build, is faster (measured on PoCL, uniform
// clouds of 1K to 64K bodies).
constexpr uint64_t kSweepTilesPerCluster = 14;
// Up to so many bodies pairs are bits of a matrix: quicker than the launches that sorting them takes (measured likewise).
constexpr uint32_t kFewBodies = 2048;

}  // namespace

// Times stages where that was asked for; without it, nothing waits.
class BodyBroadPhase::StageClock {
 public:
  StageClock(Queue& queue, bool is_on, BroadPhaseStatistics& statistics) : queue_(queue), is_on_(is_on), statistics_(statistics) {
    statistics_.stage_s = {};
    begin_ = std::chrono::steady_clock::now();
  }

  // What was enqueued since the last call belongs to `stage`.
  absl::Status End(BroadPhaseStage stage) {
    if (!is_on_) return absl::OkStatus();
    PALPATE_RETURN_IF_ERROR(queue_.FinishBlocking());
    const auto now = std::chrono::steady_clock::now();
    statistics_.stage_s[static_cast<size_t>(stage)] += std::chrono::duration<double>(now - begin_).count();
    begin_ = now;
    return absl::OkStatus();
  }

 private:
  Queue& queue_;
  bool is_on_;
  BroadPhaseStatistics& statistics_;
  std::chrono::steady_clock::time_point begin_;
};

absl::StatusOr<BodyBroadPhase> BodyBroadPhase::Create(const std::shared_ptr<Context>& context, const BroadPhaseOptions& options) {
  if (!(options.axis_drift > 1)) {
    return absl::InvalidArgumentError(absl::StrCat("BroadPhaseOptions.axis_drift is ", options.axis_drift, ", allowed: above 1"));
  }
  BodyBroadPhase phase;
  phase.context_ = context;
  phase.config_ = PrimitiveConfig::For(context->device());
  phase.options_ = options;
  const auto& source = kernels::body_broad_phase;
  const ProgramDefines defines = TileDefines(*context, options.volume);
  PALPATE_ASSIGN_OR_RETURN(phase.boxes_kernel_, context->CreateKernel(source, "volume_boxes", defines));
  PALPATE_ASSIGN_OR_RETURN(phase.cluster_volumes_kernel_, context->CreateKernel(source, "cluster_volumes", defines));
  PALPATE_ASSIGN_OR_RETURN(phase.cluster_tiles_kernel_, context->CreateKernel(source, "cluster_tiles", defines));
  PALPATE_ASSIGN_OR_RETURN(phase.list_, PairList::Create(context, options.max_pairs));
  PALPATE_ASSIGN_OR_RETURN(phase.principal_axis_, PrincipalAxis::Create(context, options.volume));
  PALPATE_ASSIGN_OR_RETURN(phase.all_pairs_, AllPairs::Create(context, options.volume));
  PALPATE_ASSIGN_OR_RETURN(phase.sweep_, SweepAndPrune::Create(context, options.volume));
  PALPATE_ASSIGN_OR_RETURN(phase.hierarchy_, BoxHierarchy::Create(context));
  PALPATE_ASSIGN_OR_RETURN(phase.cluster_pairs_, ClusterPairs::Create(context));
  if (options.method == BroadPhaseMethod::kHierarchy) phase.statistics_.method = BroadPhaseMethod::kHierarchy;
  return phase;
}

absl::Status BodyBroadPhase::CheckVolumes() const {
  if (list_.bad_body() == kNone) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("broad phase: the ", BoundingVolumeName(options_.volume), " of body ", list_.bad_body(),
                                                 " is not finite or inside out; its vertices must be finite"));
}

absl::Status BodyBroadPhase::Run(Queue& queue, BufferView<float> volumes, BufferView<uint32_t> filters, uint32_t count) {
  has_pairs_ = false;
  if (count > kMaxBodies) return absl::InvalidArgumentError(absl::StrCat("broad phase: ", count, " bodies, at most ", kMaxBodies));
  PALPATE_RETURN_IF_ERROR(CheckCapacity("BodyBroadPhase", "volumes", volumes.count, size_t{count} * FloatsPerVolume(options_.volume)));
  if (filters.handle != nullptr) PALPATE_RETURN_IF_ERROR(CheckCapacity("BodyBroadPhase", "filters", filters.count, count));
  StageClock clock(queue, options_.measure_stages, statistics_);
  PALPATE_RETURN_IF_ERROR(list_.Begin(queue, count));

  if (options_.method == BroadPhaseMethod::kAllPairs || (options_.method == BroadPhaseMethod::kAutomatic && count <= kFewBodies)) {
    return RunAllPairs(queue, volumes, filters, count, clock);
  }
  bool is_prepared = false;
  const bool is_due = !has_chosen_ || (options_.axis_period > 0 && runs_since_choice_ >= options_.axis_period);
  has_chosen_ = false;  // after an error the next run chooses again
  if (is_due) {
    if (options_.method != BroadPhaseMethod::kHierarchy) PALPATE_RETURN_IF_ERROR(Choose(queue, volumes, count, clock, &is_prepared));
    runs_since_choice_ = 0;
    tiles_at_choice_ = 0;
  }
  ++runs_since_choice_;

  if (statistics_.method == BroadPhaseMethod::kHierarchy) {
    const absl::Status status = RunHierarchy(queue, volumes, filters, count, clock);
    if (absl::IsResourceExhausted(status) && options_.method == BroadPhaseMethod::kAutomatic) {
      // Too many pairs of clusters to store: the sweep stores none.
      PALPATE_RETURN_IF_ERROR(list_.Begin(queue, count));
      statistics_.method = BroadPhaseMethod::kSweep;
      ++statistics_.method_changes;
      PALPATE_RETURN_IF_ERROR(RunSweep(queue, volumes, filters, count, false, clock));
    } else {
      PALPATE_RETURN_IF_ERROR(status);
    }
  } else {
    PALPATE_RETURN_IF_ERROR(RunSweep(queue, volumes, filters, count, is_prepared, clock));
  }
  PALPATE_RETURN_IF_ERROR(list_.Sort(queue));
  PALPATE_RETURN_IF_ERROR(clock.End(BroadPhaseStage::kSort));

  const auto tiles = static_cast<double>(statistics_.tile_count);
  if (tiles_at_choice_ == 0) tiles_at_choice_ = statistics_.tile_count;
  const auto reference = static_cast<double>(tiles_at_choice_);
  has_chosen_ = tiles <= options_.axis_drift * reference && reference <= options_.axis_drift * tiles;
  statistics_.pair_count = list_.count();
  has_pairs_ = true;
  return absl::OkStatus();
}

absl::Status BodyBroadPhase::RunAllPairs(Queue& queue, BufferView<float> volumes, BufferView<uint32_t> filters, uint32_t count,
                                         StageClock& clock) {
  has_chosen_ = false;  // whatever was chosen of others before
  if (statistics_.method != BroadPhaseMethod::kAllPairs) {
    statistics_.method = BroadPhaseMethod::kAllPairs;
    ++statistics_.method_changes;
  }
  for (bool is_complete = false; !is_complete;) {
    PALPATE_RETURN_IF_ERROR(all_pairs_.Emit(queue, volumes, filters, count, list_));
    const absl::StatusOr<bool> complete = list_.Complete(queue);
    PALPATE_RETURN_IF_ERROR(CheckVolumes());
    PALPATE_ASSIGN_OR_RETURN(is_complete, complete);
  }
  statistics_.tile_count = (list_.row_tiles() + BoxHierarchy::kWidth - 1) / BoxHierarchy::kWidth;
  statistics_.pair_count = list_.count();
  has_pairs_ = true;
  return clock.End(BroadPhaseStage::kTests);
}

absl::Status BodyBroadPhase::Choose(Queue& queue, BufferView<float> volumes, uint32_t count, StageClock& clock, bool* is_prepared) {
  PALPATE_ASSIGN_OR_RETURN(const std::optional<uint32_t> axis, principal_axis_.Find(queue, volumes, count));
  if (axis.has_value() && *axis != statistics_.axis) {
    statistics_.axis = *axis;
    ++statistics_.axis_changes;
  }
  PALPATE_RETURN_IF_ERROR(clock.End(BroadPhaseStage::kAxis));
  if (options_.method == BroadPhaseMethod::kSweep) return absl::OkStatus();
  PALPATE_RETURN_IF_ERROR(sweep_.Prepare(queue, volumes, count, statistics_.axis, list_));
  PALPATE_ASSIGN_OR_RETURN(const uint64_t tiles, sweep_.ReadTileCount(queue));
  const uint64_t clusters = (uint64_t{count} + BoxHierarchy::kWidth - 1) / BoxHierarchy::kWidth;
  const BroadPhaseMethod method = tiles <= kSweepTilesPerCluster * clusters ? BroadPhaseMethod::kSweep : BroadPhaseMethod::kHierarchy;
  if (method != statistics_.method) {
    statistics_.method = method;
    ++statistics_.method_changes;
  }
  *is_prepared = method == BroadPhaseMethod::kSweep;
  return clock.End(BroadPhaseStage::kStructure);
}

absl::Status BodyBroadPhase::RunSweep(Queue& queue, BufferView<float> volumes, BufferView<uint32_t> filters, uint32_t count,
                                      bool is_prepared, StageClock& clock) {
  if (!is_prepared) PALPATE_RETURN_IF_ERROR(sweep_.Prepare(queue, volumes, count, statistics_.axis, list_));
  PALPATE_RETURN_IF_ERROR(clock.End(BroadPhaseStage::kStructure));
  for (bool is_complete = false; !is_complete;) {
    PALPATE_RETURN_IF_ERROR(sweep_.Emit(queue, filters, list_));
    const absl::StatusOr<bool> complete = list_.Complete(queue);
    PALPATE_RETURN_IF_ERROR(CheckVolumes());
    PALPATE_ASSIGN_OR_RETURN(is_complete, complete);
  }
  statistics_.tile_count = sweep_.tile_count();
  return clock.End(BroadPhaseStage::kTests);
}

absl::Status BodyBroadPhase::RunHierarchy(Queue& queue, BufferView<float> volumes, BufferView<uint32_t> filters, uint32_t count,
                                          StageClock& clock) {
  PALPATE_RETURN_IF_ERROR(Grow(context_, boxes_, count, "broad phase boxes"));
  const bool is_cpu = config_.group_size == 1;
  PALPATE_RETURN_IF_ERROR(queue.Launch(boxes_kernel_, {count, is_cpu ? size_t{128} : size_t{64}}, Arg("count", count),
                                       Arg("volumes", volumes), Arg("boxes", boxes_), Arg("counters", list_.counters())));
  PALPATE_RETURN_IF_ERROR(hierarchy_.Build(queue, boxes_, {}, count, 1));
  const absl::Status found = cluster_pairs_.FindWithin(queue, hierarchy_);
  if (!found.ok()) {
    PALPATE_RETURN_IF_ERROR(list_.Complete(queue).status());
    PALPATE_RETURN_IF_ERROR(CheckVolumes());
    return found;
  }
  const uint32_t clusters = hierarchy_.cluster_count();
  // The nodes of the hierarchy hold boxes as a cluster of 6-DOPs does.
  BufferView<float> cluster_volumes = hierarchy_.nodes();
  if (options_.volume != BoundingVolume::kDop6) {
    const size_t floats = size_t{clusters} * BoxHierarchy::kWidth * FloatsPerVolume(options_.volume);
    PALPATE_RETURN_IF_ERROR(Grow(context_, cluster_volumes_, floats, "cluster volumes"));
    PALPATE_RETURN_IF_ERROR(queue.Launch(cluster_volumes_kernel_, {clusters, is_cpu ? size_t{16} : size_t{64}},
                                         Arg("cluster_count", clusters), Arg("bodies", hierarchy_.elements()), Arg("volumes", volumes),
                                         Arg("clusters", cluster_volumes_)));
    cluster_volumes = cluster_volumes_.view();
  }
  PALPATE_RETURN_IF_ERROR(clock.End(BroadPhaseStage::kStructure));
  statistics_.tile_count = cluster_pairs_.count();
  for (bool is_complete = false; !is_complete;) {
    if (clusters > 0) {
      PALPATE_RETURN_IF_ERROR(queue.Launch(cluster_tiles_kernel_, TileRange(*context_), Arg("tile_count", cluster_pairs_.count()),
                                           Arg("tiles", cluster_pairs_.pairs()), Arg("nodes", hierarchy_.nodes()),
                                           Arg("level_1", hierarchy_.level_begins()[1]), Arg("volumes", cluster_volumes),
                                           Arg("bodies", hierarchy_.elements()), Arg("filters", filters), Arg("counters", list_.counters()),
                                           Arg("capacity", list_.capacity()), Arg("first", list_.first()), Arg("second", list_.second())));
    }
    const absl::StatusOr<bool> complete = list_.Complete(queue);
    PALPATE_RETURN_IF_ERROR(CheckVolumes());
    PALPATE_ASSIGN_OR_RETURN(is_complete, complete);
  }
  return clock.End(BroadPhaseStage::kTests);
}

}  // namespace palpate::gpu
