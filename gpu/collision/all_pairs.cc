#include "gpu/collision/all_pairs.h"

#include "absl/strings/str_cat.h"
#include "gpu/collision/box_hierarchy.h"
#include "gpu/collision/sweep_and_prune.h"
#include "gpu/primitives/radix_sort.h"
#include "gpu/runtime/kernel_source.h"

namespace palpate::gpu {
namespace kernels {
extern const KernelSource all_pairs;
}
namespace {

constexpr uint32_t kLanes = BoxHierarchy::kWidth;
constexpr uint32_t kWordBits = 32;

uint32_t ClustersOf(uint32_t count) { return (count + kLanes - 1) / kLanes; }
uint32_t WordsOf(uint32_t count) { return (count + kWordBits - 1) / kWordBits; }

}  // namespace

absl::StatusOr<AllPairs> AllPairs::Create(const std::shared_ptr<Context>& context, BoundingVolume volume) {
  AllPairs all;
  all.context_ = context;
  all.config_ = PrimitiveConfig::For(context->device());
  all.volume_ = volume;
  ProgramDefines defines = TileDefines(*context, volume);
  for (const auto& [name, value] : RadixDefines<float>(all.config_)) defines.emplace(name, value);
  PALPATE_ASSIGN_OR_RETURN(all.kernel_, context->CreateKernel(kernels::all_pairs, "all_pairs", defines));
  return all;
}

absl::Status AllPairs::Reserve(uint32_t count) {
  const size_t slots = size_t{ClustersOf(count)} * kLanes;
  for (DeviceBuffer<uint32_t>* buffer : {&keys_, &keys_scratch_, &order_scratch_, &sorted_keys_, &order_, &bodies_, &places_}) {
    PALPATE_RETURN_IF_ERROR(Grow(context_, *buffer, slots, "all pairs order"));
  }
  PALPATE_RETURN_IF_ERROR(Grow(context_, ends_, slots, "all pairs interval ends"));
  PALPATE_RETURN_IF_ERROR(Grow(context_, clusters_, slots * FloatsPerVolume(volume_), "all pairs clusters"));
  return Grow(context_, overlaps_, slots * WordsOf(count), "all pairs overlaps");
}

absl::Status AllPairs::Emit(Queue& queue, BufferView<float> volumes, BufferView<uint32_t> filters, uint32_t count, PairList& list) {
  if (count > kMaxBodies) return absl::InvalidArgumentError(absl::StrCat("AllPairs: ", count, " bodies, at most ", kMaxBodies));
  if (count == 0) return absl::OkStatus();
  PALPATE_RETURN_IF_ERROR(Reserve(count));
  return queue.Launch(kernel_, {config_.group_size, config_.group_size}, Arg("count", count), Arg("cluster_count", ClustersOf(count)),
                      Arg("words", WordsOf(count)), Arg("volumes", volumes), Arg("filters", filters), Arg("keys", keys_),
                      Arg("keys_scratch", keys_scratch_), Arg("order_scratch", order_scratch_), Arg("sorted_keys", sorted_keys_),
                      Arg("order", order_), Arg("clusters", clusters_), Arg("bodies", bodies_), Arg("ends", ends_),
                      Arg("overlaps", overlaps_), Arg("places", places_), Arg("capacity", list.capacity()), Arg("pairs", list.sorted()),
                      Arg("counters", list.counters()));
}

}  // namespace palpate::gpu
