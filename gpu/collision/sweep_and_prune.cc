#include "gpu/collision/sweep_and_prune.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "gpu/runtime/kernel_source.h"

namespace palpate::gpu {
namespace kernels {
extern const KernelSource sweep_and_prune;
}
namespace {

constexpr uint32_t kLanes = 16;

// Tiles of one unit of work: 1, unless the number of units of `clusters` clusters that all meet could pass 2^32.
uint32_t UnitTiles(uint32_t clusters) {
  uint32_t tiles = 1;
  while (clusters + uint64_t{clusters} * (clusters + 1) / 2 / tiles > UINT32_MAX) tiles *= 2;
  return tiles;
}

}  // namespace

ProgramDefines TileDefines(const Context& context, BoundingVolume volume) {
  ProgramDefines defines = VolumeDefines(volume);
  defines.emplace("STAGE", PrimitiveConfig::For(context.device()).group_size == 1 ? "64" : "4");
  return defines;
}

Range TileRange(const Context& context) {
  const size_t units = std::max(context.device().compute_units, 1U);
  // On a CPU enough shares that a core that is busy with something else does not hold up the rest.
  if (PrimitiveConfig::For(context.device()).group_size == 1) return {units * 16, 1};
  return {units * 1024, 64};
}

absl::StatusOr<SweepAndPrune> SweepAndPrune::Create(const std::shared_ptr<Context>& context, BoundingVolume volume) {
  SweepAndPrune sweep;
  sweep.context_ = context;
  sweep.config_ = PrimitiveConfig::For(context->device());
  sweep.volume_ = volume;
  sweep.units_ = std::make_unique<uint32_t>(0);
  const auto& source = kernels::sweep_and_prune;
  const ProgramDefines defines = TileDefines(*context, volume);
  PALPATE_ASSIGN_OR_RETURN(sweep.keys_kernel_, context->CreateKernel(source, "sweep_keys", defines));
  PALPATE_ASSIGN_OR_RETURN(sweep.clusters_kernel_, context->CreateKernel(source, "sweep_clusters", defines));
  PALPATE_ASSIGN_OR_RETURN(sweep.counts_kernel_, context->CreateKernel(source, "sweep_tile_counts", defines));
  PALPATE_ASSIGN_OR_RETURN(sweep.tiles_kernel_, context->CreateKernel(source, "sweep_tiles", defines));
  PALPATE_ASSIGN_OR_RETURN(sweep.scan_, ExclusiveScan::Create(context));
  PALPATE_ASSIGN_OR_RETURN(sweep.unit_total_, DeviceBuffer<uint32_t>::Create(context, 1, "sweep unit total"));
  return sweep;
}

absl::Status SweepAndPrune::Reserve(uint32_t count) {
  if (capacity_ >= count && capacity_ > 0) return absl::OkStatus();
  capacity_ = 0;
  for (DeviceBuffer<float>* buffer : {&keys_, &sorted_keys_, &clusters_, &ends_}) *buffer = {};
  for (DeviceBuffer<uint32_t>* buffer : {&order_, &bodies_, &tile_ends_, &unit_counts_, &unit_offsets_}) *buffer = {};
  const uint32_t clusters = std::max((count + kLanes - 1) / kLanes, 1U);
  const size_t slots = size_t{clusters} * kLanes;
  PALPATE_ASSIGN_OR_RETURN(sort_, RadixSort<float>::Create(context_, count));
  PALPATE_ASSIGN_OR_RETURN(keys_, DeviceBuffer<float>::Create(context_, count, "sweep keys"));
  PALPATE_ASSIGN_OR_RETURN(sorted_keys_, DeviceBuffer<float>::Create(context_, count, "sweep sorted keys"));
  PALPATE_ASSIGN_OR_RETURN(clusters_, DeviceBuffer<float>::Create(context_, slots * FloatsPerVolume(volume_), "sweep clusters"));
  PALPATE_ASSIGN_OR_RETURN(ends_, DeviceBuffer<float>::Create(context_, slots, "sweep interval ends"));
  PALPATE_ASSIGN_OR_RETURN(order_, DeviceBuffer<uint32_t>::Create(context_, count, "sweep order"));
  PALPATE_ASSIGN_OR_RETURN(bodies_, DeviceBuffer<uint32_t>::Create(context_, slots, "sweep bodies"));
  PALPATE_ASSIGN_OR_RETURN(tile_ends_, DeviceBuffer<uint32_t>::Create(context_, clusters, "sweep tile ends"));
  PALPATE_ASSIGN_OR_RETURN(unit_counts_, DeviceBuffer<uint32_t>::Create(context_, clusters, "sweep unit counts"));
  PALPATE_ASSIGN_OR_RETURN(unit_offsets_, DeviceBuffer<uint32_t>::Create(context_, clusters, "sweep unit offsets"));
  capacity_ = std::max(count, 1U);
  return absl::OkStatus();
}

absl::Status SweepAndPrune::Prepare(Queue& queue, BufferView<float> volumes, uint32_t count, uint32_t axis, PairList& list) {
  if (count > kMaxBodies) return absl::InvalidArgumentError(absl::StrCat("SweepAndPrune: ", count, " bodies, at most ", kMaxBodies));
  if (axis >= SweepAxisCount(volume_)) {
    return absl::InvalidArgumentError(
        absl::StrCat("SweepAndPrune: axis ", axis, ", a ", BoundingVolumeName(volume_), " has ", SweepAxisCount(volume_)));
  }
  PALPATE_RETURN_IF_ERROR(CheckCapacity("SweepAndPrune", "volumes", volumes.count, size_t{count} * FloatsPerVolume(volume_)));
  PALPATE_RETURN_IF_ERROR(Reserve(count));
  count_ = count;
  cluster_count_ = (count + kLanes - 1) / kLanes;
  unit_tiles_ = UnitTiles(cluster_count_);
  const bool is_cpu = config_.group_size == 1;
  const Range by_cluster = {cluster_count_, is_cpu ? size_t{16} : size_t{64}};
  PALPATE_RETURN_IF_ERROR(queue.Launch(keys_kernel_, {count, is_cpu ? size_t{128} : size_t{64}}, Arg("count", count),
                                       Arg("volumes", volumes), Arg("axis", axis), Arg("keys", keys_), Arg("counters", list.counters())));
  PALPATE_RETURN_IF_ERROR(sort_.Run(queue, keys_, {}, count, sorted_keys_, order_));
  PALPATE_RETURN_IF_ERROR(queue.Launch(clusters_kernel_, by_cluster, Arg("count", count), Arg("cluster_count", cluster_count_),
                                       Arg("volumes", volumes), Arg("axis", axis), Arg("order", order_), Arg("clusters", clusters_),
                                       Arg("bodies", bodies_), Arg("ends", ends_)));
  PALPATE_RETURN_IF_ERROR(queue.Launch(counts_kernel_, by_cluster, Arg("cluster_count", cluster_count_), Arg("sorted_keys", sorted_keys_),
                                       Arg("ends", ends_), Arg("unit_tiles", unit_tiles_), Arg("tile_ends", tile_ends_),
                                       Arg("unit_counts", unit_counts_)));
  return scan_.Run(queue, unit_counts_, cluster_count_, unit_offsets_, unit_total_);
}

absl::Status SweepAndPrune::Emit(Queue& queue, BufferView<uint32_t> filters, PairList& list) {
  if (filters.handle != nullptr) PALPATE_RETURN_IF_ERROR(CheckCapacity("SweepAndPrune", "filters", filters.count, count_));
  *units_ = 0;
  if (count_ == 0) return absl::OkStatus();
  PALPATE_RETURN_IF_ERROR(queue.EnqueueRead(unit_total_, {units_.get(), 1}));
  return queue.Launch(tiles_kernel_, TileRange(*context_), Arg("cluster_count", cluster_count_), Arg("unit_tiles", unit_tiles_),
                      Arg("unit_total", unit_total_), Arg("unit_offsets", unit_offsets_), Arg("tile_ends", tile_ends_),
                      Arg("sorted_keys", sorted_keys_), Arg("ends", ends_), Arg("volumes", clusters_), Arg("bodies", bodies_),
                      Arg("filters", filters), Arg("counters", list.counters()), Arg("capacity", list.capacity()),
                      Arg("first", list.first()), Arg("second", list.second()));
}

absl::StatusOr<uint64_t> SweepAndPrune::ReadTileCount(Queue& queue) {
  *units_ = 0;
  if (count_ > 0) PALPATE_RETURN_IF_ERROR(queue.ReadBlocking(unit_total_, {units_.get(), 1}));
  return tile_count();
}

}  // namespace palpate::gpu
