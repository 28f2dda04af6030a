#include "gpu/collision/box_hierarchy.h"

#include <algorithm>
#include <array>
#include <bit>
#include <string>

#include "absl/strings/str_cat.h"
#include "gpu/runtime/kernel_source.h"

namespace palpate::gpu {
namespace kernels {
extern const KernelSource box_hierarchy;
}
namespace {

constexpr uint32_t kMaxElements = 1U << 26;
constexpr uint32_t kFloatsPerNode = 6 * BoxHierarchy::kWidth;
constexpr uint32_t kGroupsPerNode = 2 * BoxHierarchy::kWidth;
// Up to this many bodies, each has a curve of its own. More would leave too few key bits for the place along it.
constexpr uint32_t kMaxCurves = 256;
// Partners that the counting visit keeps for each cluster: most have fewer, so that they are visited once.
constexpr uint32_t kSlots = 32;

uint32_t CeilDivide(uint32_t a, uint32_t b) { return a / b + (a % b != 0 ? 1 : 0); }

// Work-items that handle a whole node each.
Range NodeRange(const PrimitiveConfig& config, uint32_t count) { return {count, config.group_size == 1 ? size_t{8} : size_t{64}}; }

// Nodes of each level over `count` elements, level 0 first; at least two levels unless count is 0.
std::vector<uint32_t> LevelCounts(uint32_t count) {
  std::vector<uint32_t> counts;
  if (count == 0) return counts;
  do {
    count = CeilDivide(count, BoxHierarchy::kWidth);
    counts.push_back(count);
  } while (count > 1 || counts.size() < 2);
  return counts;
}

std::array<uint32_t, BoxHierarchy::kMaxLevels> Begins(const BoxHierarchy& tree) {
  std::array<uint32_t, BoxHierarchy::kMaxLevels> begins = {};
  std::copy_n(tree.level_begins().begin(), std::min(tree.level_begins().size(), begins.size()), begins.begin());
  return begins;
}

}  // namespace

absl::StatusOr<BoxHierarchy> BoxHierarchy::Create(const std::shared_ptr<Context>& context) {
  BoxHierarchy tree;
  tree.context_ = context;
  tree.config_ = PrimitiveConfig::For(context->device());
  const auto& source = kernels::box_hierarchy;
  PALPATE_ASSIGN_OR_RETURN(tree.bounds_kernel_, context->CreateKernel(source, "hierarchy_bounds"));
  PALPATE_ASSIGN_OR_RETURN(tree.frames_kernel_, context->CreateKernel(source, "hierarchy_frames"));
  PALPATE_ASSIGN_OR_RETURN(tree.keys_kernel_, context->CreateKernel(source, "hierarchy_keys"));
  PALPATE_ASSIGN_OR_RETURN(tree.clusters_kernel_, context->CreateKernel(source, "hierarchy_clusters"));
  PALPATE_ASSIGN_OR_RETURN(tree.level_kernel_, context->CreateKernel(source, "hierarchy_level"));
  return tree;
}

absl::Status BoxHierarchy::Reserve(uint32_t count, uint32_t curve_count) {
  PALPATE_RETURN_IF_ERROR(Grow(context_, bounds_, size_t{6} * curve_count, "hierarchy bounds"));
  PALPATE_RETURN_IF_ERROR(Grow(context_, frames_, curve_count, "hierarchy frames"));
  if (capacity_ >= count && capacity_ > 0) return absl::OkStatus();
  const uint32_t target = capacity_ == 0 ? std::max(count, kWidth) : std::min(count + count / 2, kMaxElements);
  capacity_ = 0;
  PALPATE_ASSIGN_OR_RETURN(sort_, RadixSort<uint32_t>::Create(context_, target));
  keys_ = {};
  sorted_keys_ = {};
  order_ = {};
  nodes_ = {};
  node_groups_ = {};
  elements_ = {};
  size_t node_capacity = 0;
  for (const uint32_t level : LevelCounts(target)) node_capacity += level;
  PALPATE_ASSIGN_OR_RETURN(keys_, DeviceBuffer<uint32_t>::Create(context_, target, "hierarchy keys"));
  PALPATE_ASSIGN_OR_RETURN(sorted_keys_, DeviceBuffer<uint32_t>::Create(context_, target, "hierarchy sorted keys"));
  PALPATE_ASSIGN_OR_RETURN(order_, DeviceBuffer<uint32_t>::Create(context_, target, "hierarchy order"));
  PALPATE_ASSIGN_OR_RETURN(nodes_, DeviceBuffer<float>::Create(context_, node_capacity * kFloatsPerNode, "hierarchy nodes"));
  PALPATE_ASSIGN_OR_RETURN(node_groups_, DeviceBuffer<uint32_t>::Create(context_, node_capacity * kGroupsPerNode, "hierarchy groups"));
  const size_t slots = size_t{CeilDivide(target, kWidth)} * kWidth;
  PALPATE_ASSIGN_OR_RETURN(elements_, DeviceBuffer<uint32_t>::Create(context_, slots, "hierarchy elements"));
  capacity_ = target;
  return absl::OkStatus();
}

absl::Status BoxHierarchy::Build(Queue& queue, BufferView<Box> boxes, BufferView<uint32_t> groups, uint32_t count, uint32_t group_count) {
  if (count > kMaxElements) return absl::InvalidArgumentError(absl::StrCat("box hierarchy: ", count, " elements, at most ", kMaxElements));
  PALPATE_RETURN_IF_ERROR(CheckCapacity("BoxHierarchy", "boxes", boxes.count, count));
  if (groups.handle != nullptr) PALPATE_RETURN_IF_ERROR(CheckCapacity("BoxHierarchy", "groups", groups.count, count));
  count_ = 0;
  cluster_count_ = 0;
  level_begins_.clear();

  const bool by_body = groups.handle != nullptr && group_count > 1 && group_count <= kMaxCurves;
  const uint32_t curve_count = by_body ? group_count : 1;
  PALPATE_RETURN_IF_ERROR(Reserve(count, curve_count));
  if (count == 0) return absl::OkStatus();

  // A sort pass takes 8 bits of the key. Small meshes make do with 24, which still gives some cells to each element of a surface.
  const uint32_t body_bits = std::bit_width(curve_count - 1);
  const uint32_t key_bits = count <= 1U << 16 ? 24 : 32;
  const uint32_t bits_per_axis = std::min(10U, (key_bits - body_bits) / 3);
  const BitRange bits = {0, 3 * bits_per_axis + body_bits};

  PALPATE_RETURN_IF_ERROR(queue.Fill(bounds_, UINT32_MAX, size_t{6} * curve_count));
  const uint32_t run_length = config_.group_size == 1 ? std::max(1024U, CeilDivide(count, config_.max_groups)) : 16;
  const size_t bounds_local = config_.group_size == 1 ? 1 : 64;
  PALPATE_RETURN_IF_ERROR(queue.Launch(bounds_kernel_, {CeilDivide(count, run_length), bounds_local}, Arg("boxes", boxes),
                                       Arg("groups", groups), Arg("is_by_body", Int{by_body}), Arg("count", count),
                                       Arg("run_length", run_length), Arg("bounds", bounds_)));
  PALPATE_RETURN_IF_ERROR(queue.Launch(frames_kernel_, {curve_count, 1}, Arg("bounds", bounds_), Arg("curve_count", curve_count),
                                       Arg("bits_per_axis", bits_per_axis), Arg("frames", frames_)));
  PALPATE_RETURN_IF_ERROR(queue.Launch(keys_kernel_, NodeRange(config_, CeilDivide(count, kWidth)), Arg("boxes", boxes),
                                       Arg("groups", groups), Arg("is_by_body", Int{by_body}), Arg("count", count),
                                       Arg("bits_per_axis", bits_per_axis), Arg("frames", frames_), Arg("keys", keys_)));
  PALPATE_RETURN_IF_ERROR(sort_.Run(queue, keys_, {}, count, sorted_keys_, order_, bits));

  const std::vector<uint32_t> level_counts = LevelCounts(count);
  level_begins_.assign(1, 0);
  for (const uint32_t level_count : level_counts) level_begins_.push_back(level_begins_.back() + level_count);
  PALPATE_RETURN_IF_ERROR(queue.Launch(clusters_kernel_, NodeRange(config_, level_counts[0]), Arg("boxes", boxes), Arg("groups", groups),
                                       Arg("count", count), Arg("order", order_), Arg("cluster_count", level_counts[0]),
                                       Arg("nodes", nodes_), Arg("node_groups", node_groups_), Arg("elements", elements_)));
  for (size_t level = 1; level < level_counts.size(); ++level) {
    PALPATE_RETURN_IF_ERROR(queue.Launch(level_kernel_, {size_t{level_counts[level]} * kWidth, 16},
                                         Arg("child_begin", level_begins_[level - 1]), Arg("child_count", level_counts[level - 1]),
                                         Arg("begin", level_begins_[level]), Arg("count", level_counts[level]), Arg("nodes", nodes_),
                                         Arg("node_groups", node_groups_)));
  }
  count_ = count;
  cluster_count_ = level_counts[0];
  return absl::OkStatus();
}

absl::StatusOr<ClusterPairs> ClusterPairs::Create(const std::shared_ptr<Context>& context, uint64_t max_pairs) {
  if (max_pairs > UINT32_MAX) return absl::InvalidArgumentError(absl::StrCat("cluster pairs: max_pairs ", max_pairs, " is not below 2^32"));
  ClusterPairs pairs;
  pairs.context_ = context;
  pairs.max_pairs_ = max_pairs;
  pairs.config_ = PrimitiveConfig::For(context->device());
  const auto& source = kernels::box_hierarchy;
  PALPATE_ASSIGN_OR_RETURN(pairs.count_kernel_, context->CreateKernel(source, "hierarchy_count_pairs"));
  PALPATE_ASSIGN_OR_RETURN(pairs.write_kernel_, context->CreateKernel(source, "hierarchy_write_pairs"));
  PALPATE_ASSIGN_OR_RETURN(pairs.scan_, ExclusiveScan::Create(context));
  PALPATE_ASSIGN_OR_RETURN(pairs.total_, DeviceBuffer<uint32_t>::Create(context, 2, "cluster pair total"));
  PALPATE_ASSIGN_OR_RETURN(pairs.pairs_, DeviceBuffer<UInt2>::Create(context, 0, "cluster pairs"));
  return pairs;
}

absl::Status ClusterPairs::FindWithin(Queue& queue, const BoxHierarchy& tree) { return Find(queue, tree, tree, true); }

absl::Status ClusterPairs::FindBetween(Queue& queue, const BoxHierarchy& a, const BoxHierarchy& b) { return Find(queue, a, b, false); }

absl::Status ClusterPairs::Find(Queue& queue, const BoxHierarchy& a, const BoxHierarchy& b, bool within) {
  count_ = 0;
  if (a.element_count() == 0 || b.element_count() == 0) return absl::OkStatus();
  PALPATE_RETURN_IF_ERROR(Count(queue, a, b, within));
  std::array<uint32_t, 2> total = {};  // pairs, and whether there are too many
  PALPATE_RETURN_IF_ERROR(queue.ReadBlocking(total_, total));
  if (total[1] != 0) {
    return absl::ResourceExhaustedError(
        absl::StrCat("box hierarchy: more than max_cluster_pairs = ", max_pairs_, " pairs of clusters; too many boxes overlap each other"));
  }
  PALPATE_RETURN_IF_ERROR(Grow(context_, pairs_, total[0], "cluster pairs"));
  PALPATE_RETURN_IF_ERROR(Write(queue, a, b, within));
  count_ = total[0];
  return absl::OkStatus();
}

absl::Status ClusterPairs::FindOnDevice(Queue& queue, const BoxHierarchy& a, const BoxHierarchy& b, bool within) {
  count_ = 0;
  if (a.element_count() == 0 || b.element_count() == 0) return queue.Zero(total_);
  PALPATE_RETURN_IF_ERROR(Count(queue, a, b, within));
  return Write(queue, a, b, within);
}

/// To counts_, offsets_, first_pairs_ and total_.
absl::Status ClusterPairs::Count(Queue& queue, const BoxHierarchy& a, const BoxHierarchy& b, bool within) {
  const uint32_t clusters = a.cluster_count();
  PALPATE_RETURN_IF_ERROR(Grow(context_, counts_, clusters, "cluster pair counts"));
  PALPATE_RETURN_IF_ERROR(Grow(context_, offsets_, clusters, "cluster pair offsets"));
  PALPATE_RETURN_IF_ERROR(Grow(context_, first_pairs_, size_t{clusters} * kSlots, "first cluster pairs"));

  PALPATE_RETURN_IF_ERROR(queue.Zero(total_));
  PALPATE_RETURN_IF_ERROR(queue.Launch(count_kernel_, NodeRange(config_, clusters), Arg("a_nodes", a.nodes()),
                                       Arg("a_groups", a.node_groups()), Arg("a_level_1", a.level_begins()[1]), Arg("a_clusters", clusters),
                                       Arg("b_nodes", b.nodes()), Arg("b_groups", b.node_groups()), Arg("b_begins", Begins(b)),
                                       Arg("b_top", static_cast<uint32_t>(b.level_begins().size()) - 2), Arg("is_within", Int{within}),
                                       Arg("slots", kSlots), Arg("limit", static_cast<uint32_t>(max_pairs_)),
                                       Arg("first_pairs", first_pairs_), Arg("counts", counts_), Arg("total", total_)));
  return scan_.Run(queue, counts_, clusters, offsets_);
}

/// What Count found, if it fits into pairs_.
absl::Status ClusterPairs::Write(Queue& queue, const BoxHierarchy& a, const BoxHierarchy& b, bool within) {
  const uint32_t clusters = a.cluster_count();
  return queue.Launch(write_kernel_, NodeRange(config_, clusters), Arg("a_nodes", a.nodes()), Arg("a_groups", a.node_groups()),
                      Arg("a_level_1", a.level_begins()[1]), Arg("a_clusters", clusters), Arg("b_nodes", b.nodes()),
                      Arg("b_groups", b.node_groups()), Arg("b_begins", Begins(b)),
                      Arg("b_top", static_cast<uint32_t>(b.level_begins().size()) - 2), Arg("is_within", Int{within}), Arg("slots", kSlots),
                      Arg("first_pairs", first_pairs_), Arg("counts", counts_), Arg("offsets", offsets_), Arg("total", total_),
                      Arg("capacity", static_cast<uint32_t>(pairs_.count())), Arg("pairs", pairs_));
}

}  // namespace palpate::gpu
