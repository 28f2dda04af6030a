#include "gpu/collision/all_pairs.h"

#include "absl/strings/str_cat.h"
#include "gpu/collision/box_hierarchy.h"
#include "gpu/collision/sweep_and_prune.h"
#include "gpu/runtime/kernel_source.h"

namespace palpate::gpu {
namespace kernels {
extern const KernelSource all_pairs;
}

absl::StatusOr<AllPairs> AllPairs::Create(const std::shared_ptr<Context>& context, BoundingVolume volume) {
  AllPairs all;
  all.context_ = context;
  all.config_ = PrimitiveConfig::For(context->device());
  all.volume_ = volume;
  const ProgramDefines defines = TileDefines(*context, volume);
  PALPATE_ASSIGN_OR_RETURN(all.clusters_kernel_, context->CreateKernel(kernels::all_pairs, "all_pairs_clusters", defines));
  PALPATE_ASSIGN_OR_RETURN(all.masks_kernel_, context->CreateKernel(kernels::all_pairs, "all_pairs_masks", defines));
  PALPATE_ASSIGN_OR_RETURN(all.write_kernel_, context->CreateKernel(kernels::all_pairs, "all_pairs_write", defines));
  return all;
}

absl::Status AllPairs::Emit(Queue& queue, BufferView<float> volumes, BufferView<uint32_t> filters, uint32_t count, PairList& list) {
  if (count > kMaxBodies) return absl::InvalidArgumentError(absl::StrCat("AllPairs: ", count, " bodies, at most ", kMaxBodies));
  constexpr uint32_t kLanes = BoxHierarchy::kWidth;
  cluster_count_ = (count + kLanes - 1) / kLanes;
  PALPATE_RETURN_IF_ERROR(Grow(context_, clusters_, size_t{cluster_count_} * kLanes * FloatsPerVolume(volume_), "all pairs clusters"));
  PALPATE_RETURN_IF_ERROR(Grow(context_, masks_, size_t{cluster_count_} * kLanes * cluster_count_, "all pairs masks"));
  PALPATE_RETURN_IF_ERROR(Grow(context_, counts_, cluster_count_, "all pairs counts"));
  const bool is_cpu = config_.group_size == 1;
  PALPATE_RETURN_IF_ERROR(queue.Launch(clusters_kernel_, {cluster_count_, is_cpu ? size_t{16} : size_t{64}}, Arg("count", count),
                                       Arg("cluster_count", cluster_count_), Arg("volumes", volumes), Arg("clusters", clusters_),
                                       Arg("counters", list.counters())));
  // One by one: the first have the most to do.
  const Range by_cluster = {cluster_count_, is_cpu ? size_t{1} : size_t{64}};
  PALPATE_RETURN_IF_ERROR(queue.Launch(masks_kernel_, by_cluster, Arg("cluster_count", cluster_count_), Arg("clusters", clusters_),
                                       Arg("filters", filters), Arg("masks", masks_), Arg("counts", counts_)));
  return queue.Launch(write_kernel_, by_cluster, Arg("cluster_count", cluster_count_), Arg("masks", masks_), Arg("counts", counts_),
                      Arg("capacity", list.capacity()), Arg("pairs", list.sorted()), Arg("counters", list.counters()));
}

}  // namespace palpate::gpu
