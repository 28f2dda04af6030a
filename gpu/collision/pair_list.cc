#include "gpu/collision/pair_list.h"

#include <algorithm>
#include <bit>
#include <string>

#include "absl/strings/str_cat.h"
#include "gpu/runtime/kernel_source.h"

namespace palpate::gpu {
namespace kernels {
extern const KernelSource pair_list;
}
namespace {

constexpr uint32_t kNone = 0xffffffffU;

}  // namespace

absl::StatusOr<PairList> PairList::Create(const std::shared_ptr<Context>& context, uint64_t max_pairs) {
  if (max_pairs > UINT32_MAX) return absl::InvalidArgumentError(absl::StrCat("pair list: max_pairs ", max_pairs, " is not below 2^32"));
  PairList list;
  list.context_ = context;
  list.config_ = PrimitiveConfig::For(context->device());
  list.max_pairs_ = max_pairs;
  const auto& source = kernels::pair_list;
  const ProgramDefines defines = {{"LONG_SEGMENT", absl::StrCat(kLongSegment, "u")}};
  PALPATE_ASSIGN_OR_RETURN(list.scatter_, context->CreateKernel(source, "pair_scatter", defines));
  PALPATE_ASSIGN_OR_RETURN(list.sort_segments_, context->CreateKernel(source, "pair_sort_segments", defines));
  PALPATE_ASSIGN_OR_RETURN(list.find_long_, context->CreateKernel(source, "pair_find_long", defines));
  PALPATE_ASSIGN_OR_RETURN(list.long_keys_, context->CreateKernel(source, "pair_long_keys", defines));
  PALPATE_ASSIGN_OR_RETURN(list.store_long_, context->CreateKernel(source, "pair_store_long", defines));
  PALPATE_ASSIGN_OR_RETURN(list.scan_, ExclusiveScan::Create(context));
  PALPATE_ASSIGN_OR_RETURN(list.compaction_, StreamCompaction::Create(context));
  PALPATE_ASSIGN_OR_RETURN(list.counters_, DeviceBuffer<PairCounters>::Create(context, 1, "pair counters"));
  PALPATE_ASSIGN_OR_RETURN(list.long_count_, DeviceBuffer<uint32_t>::Create(context, 1, "long segment pair count"));
  return list;
}

absl::Status PairList::Begin(Queue& queue, uint32_t body_count) { return Reset(queue, body_count, kNone); }

absl::Status PairList::Reset(Queue& queue, uint32_t body_count, uint32_t bad_body) {
  body_count_ = body_count;
  result_ = {.pair_count = 0, .wraps = 0, .long_pairs = 0, .bad_body = bad_body};
  if (!partner_counts_ || partner_counts_.count() < body_count) {
    partner_counts_ = {};
    offsets_ = {};
    PALPATE_ASSIGN_OR_RETURN(partner_counts_, DeviceBuffer<uint32_t>::Create(context_, body_count, "partner counts"));
    PALPATE_ASSIGN_OR_RETURN(offsets_, DeviceBuffer<uint32_t>::Create(context_, body_count, "partner offsets"));
  }
  if (!emitted_) {
    const auto first_capacity = static_cast<uint32_t>(std::clamp<uint64_t>(uint64_t{2} * body_count, 1, std::max<uint64_t>(max_pairs_, 1)));
    PALPATE_ASSIGN_OR_RETURN(emitted_, DeviceBuffer<UInt2>::Create(context_, first_capacity, "emitted pairs"));
    PALPATE_ASSIGN_OR_RETURN(ranks_, DeviceBuffer<uint32_t>::Create(context_, first_capacity, "pair ranks"));
    PALPATE_ASSIGN_OR_RETURN(sorted_, DeviceBuffer<UInt2>::Create(context_, first_capacity, "sorted pairs"));
    capacity_ = first_capacity;
  }
  PALPATE_RETURN_IF_ERROR(queue.Fill(counters_, result_));
  return body_count == 0 ? absl::OkStatus() : queue.Fill(partner_counts_, 0, body_count);
}

absl::StatusOr<bool> PairList::Complete(Queue& queue) {
  PALPATE_RETURN_IF_ERROR(queue.ReadBlocking(counters_, {&result_, 1}));
  const uint64_t total = (uint64_t{result_.wraps} << 32) + result_.pair_count;
  if (total <= capacity_) return true;
  if (total > max_pairs_) {
    result_.pair_count = 0;
    return absl::ResourceExhaustedError(absl::StrCat("broad phase: ", total, " pairs of bodies, at most ", max_pairs_, " are allowed"));
  }
  // A quarter more than needed, so that a slowly growing pile does not do it each step.
  capacity_ = 0;
  const auto target = static_cast<uint32_t>(std::min(total + total / 4, max_pairs_));
  emitted_ = {};
  ranks_ = {};
  sorted_ = {};
  PALPATE_ASSIGN_OR_RETURN(DeviceBuffer<UInt2> emitted, DeviceBuffer<UInt2>::Create(context_, target, "emitted pairs"));
  PALPATE_ASSIGN_OR_RETURN(ranks_, DeviceBuffer<uint32_t>::Create(context_, target, "pair ranks"));
  PALPATE_ASSIGN_OR_RETURN(sorted_, DeviceBuffer<UInt2>::Create(context_, target, "sorted pairs"));
  emitted_ = std::move(emitted);
  capacity_ = target;
  PALPATE_RETURN_IF_ERROR(Reset(queue, body_count_, result_.bad_body));
  return false;
}

absl::Status PairList::Sort(Queue& queue) {
  if (count() == 0) return absl::OkStatus();
  const size_t local = config_.group_size == 1 ? 128 : 64;
  PALPATE_RETURN_IF_ERROR(scan_.Run(queue, partner_counts_, body_count_, offsets_));
  PALPATE_RETURN_IF_ERROR(queue.Launch(scatter_, {count(), local}, count(), emitted_, ranks_, offsets_, sorted_));
  PALPATE_RETURN_IF_ERROR(queue.Launch(sort_segments_, {body_count_, local}, body_count_, partner_counts_, offsets_, sorted_));
  return result_.long_pairs == 0 ? absl::OkStatus() : SortLongSegments(queue);
}

absl::Status PairList::SortLongSegments(Queue& queue) {
  const uint32_t pair_count = count();
  if (long_capacity_ < pair_count) {
    long_capacity_ = 0;
    is_long_ = {};
    places_ = {};
    long_values_ = {};
    keys_ = {};
    sorted_keys_ = {};
    PALPATE_ASSIGN_OR_RETURN(RadixSort<uint64_t> sort, RadixSort<uint64_t>::Create(context_, capacity_));
    long_sort_ = std::make_unique<RadixSort<uint64_t>>(std::move(sort));
    PALPATE_ASSIGN_OR_RETURN(is_long_, DeviceBuffer<uint32_t>::Create(context_, capacity_, "long segment flags"));
    PALPATE_ASSIGN_OR_RETURN(places_, DeviceBuffer<uint32_t>::Create(context_, capacity_, "long segment places"));
    PALPATE_ASSIGN_OR_RETURN(long_values_, DeviceBuffer<uint32_t>::Create(context_, capacity_, "long segment values"));
    PALPATE_ASSIGN_OR_RETURN(keys_, DeviceBuffer<uint64_t>::Create(context_, capacity_, "long segment keys"));
    PALPATE_ASSIGN_OR_RETURN(sorted_keys_, DeviceBuffer<uint64_t>::Create(context_, capacity_, "long segment sorted keys"));
    long_capacity_ = capacity_;
  }
  const Range range = {pair_count, config_.group_size == 1 ? size_t{128} : size_t{64}};
  const uint32_t body_bits = std::max<uint32_t>(std::bit_width(body_count_ - 1), 1);
  PALPATE_RETURN_IF_ERROR(queue.Launch(find_long_, range, pair_count, sorted_, partner_counts_, is_long_));
  PALPATE_RETURN_IF_ERROR(compaction_.Run(queue, is_long_, pair_count, places_, long_count_));
  PALPATE_RETURN_IF_ERROR(queue.Launch(long_keys_, range, pair_count, long_count_, places_, sorted_, body_bits, keys_));
  PALPATE_RETURN_IF_ERROR(
      long_sort_->Run(queue, keys_, {}, ItemCount(pair_count, long_count_.view()), sorted_keys_, long_values_, {0, 2 * body_bits}));
  return queue.Launch(store_long_, range, pair_count, long_count_, places_, sorted_keys_, body_bits, sorted_);
}

}  // namespace palpate::gpu
