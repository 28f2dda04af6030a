#include "gpu/collision/pair_list.h"

#include <algorithm>
#include <bit>

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
  if (max_pairs > kMaxItems)
    return absl::InvalidArgumentError(absl::StrCat("pair list: max_pairs is ", max_pairs, ", at most ", kMaxItems));
  PairList list;
  list.context_ = context;
  list.config_ = PrimitiveConfig::For(context->device());
  list.max_pairs_ = max_pairs;
  PALPATE_ASSIGN_OR_RETURN(list.zip_, context->CreateKernel(kernels::pair_list, "pair_zip"));
  PALPATE_ASSIGN_OR_RETURN(list.counters_, DeviceBuffer<PairCounters>::Create(context, 1, "pair counters"));
  return list;
}

absl::Status PairList::Reserve(uint32_t capacity) {
  capacity_ = 0;
  for (DeviceBuffer<uint32_t>* buffer : {&first_, &second_, &first_by_second_, &second_sorted_}) *buffer = {};
  sorted_ = {};
  sort_ = {};
  PALPATE_ASSIGN_OR_RETURN(sort_, RadixSort<uint32_t>::Create(context_, capacity));
  PALPATE_ASSIGN_OR_RETURN(first_, DeviceBuffer<uint32_t>::Create(context_, capacity, "first bodies of pairs"));
  PALPATE_ASSIGN_OR_RETURN(second_, DeviceBuffer<uint32_t>::Create(context_, capacity, "second bodies of pairs"));
  PALPATE_ASSIGN_OR_RETURN(first_by_second_, DeviceBuffer<uint32_t>::Create(context_, capacity, "first bodies by second"));
  PALPATE_ASSIGN_OR_RETURN(second_sorted_, DeviceBuffer<uint32_t>::Create(context_, capacity, "second bodies sorted"));
  PALPATE_ASSIGN_OR_RETURN(sorted_, DeviceBuffer<UInt2>::Create(context_, capacity, "sorted pairs"));
  capacity_ = capacity;
  return absl::OkStatus();
}

absl::Status PairList::Begin(Queue& queue, uint32_t body_count) { return Reset(queue, body_count, kNone); }

absl::Status PairList::Reset(Queue& queue, uint32_t body_count, uint32_t bad_body) {
  body_count_ = body_count;
  result_ = {.pair_count = 0, .wraps = 0, .bad_body = bad_body, .row_tiles = 0};
  if (capacity_ == 0) PALPATE_RETURN_IF_ERROR(Reserve(static_cast<uint32_t>(std::min(uint64_t{2} * body_count + 1, max_pairs_ + 1))));
  return queue.Fill(counters_, result_);
}

absl::StatusOr<bool> PairList::Complete(Queue& queue) {
  PALPATE_RETURN_IF_ERROR(queue.ReadBlocking(counters_, {&result_, 1}));
  const uint64_t total = (uint64_t{result_.wraps} << 32) + result_.pair_count;
  if (total > max_pairs_) {
    result_.pair_count = 0;
    return absl::ResourceExhaustedError(absl::StrCat("broad phase: ", total, " pairs of bodies, at most ", max_pairs_, " are allowed"));
  }
  if (total <= capacity_) return true;
  // A quarter more than needed, so that a slowly growing pile does not do it each step.
  PALPATE_RETURN_IF_ERROR(Reserve(static_cast<uint32_t>(std::min(total + total / 4, max_pairs_))));
  PALPATE_RETURN_IF_ERROR(Reset(queue, body_count_, result_.bad_body));
  return false;
}

absl::Status PairList::Sort(Queue& queue) {
  if (count() == 0) return absl::OkStatus();
  const BitRange bits = {0, static_cast<uint32_t>(std::bit_width(body_count_ - 1))};
  PALPATE_RETURN_IF_ERROR(sort_.Run(queue, second_, first_, count(), second_sorted_, first_by_second_, bits));
  PALPATE_RETURN_IF_ERROR(sort_.Run(queue, first_by_second_, second_sorted_, count(), first_, second_, bits));
  return queue.Launch(zip_, {count(), config_.group_size == 1 ? size_t{256} : size_t{64}}, Arg("count", count()), Arg("first", first_),
                      Arg("second", second_), Arg("out", sorted_));
}

}  // namespace palpate::gpu
