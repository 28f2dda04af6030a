#include "gpu/primitives/radix_sort.h"

#include <algorithm>
#include <string>
#include <type_traits>

#include "gpu/runtime/kernel_source.h"

namespace palpate::gpu {
namespace kernels {
extern const KernelSource radix_sort;
}
namespace {

// Most bits of a digit. Groups of many work-items keep a mask of them for each digit; one work-item alone has the counts in its caches, and
// fewer passes are what counts.
constexpr uint32_t kGroupBits = 8;
constexpr uint32_t kSingleBits = 11;
uint32_t MostBits(const PrimitiveConfig& config) { return config.group_size > 1 ? kGroupBits : kSingleBits; }

// Up to so many elements one group sorts them in one launch: quicker than three or four launches a pass.
constexpr uint32_t kFewItems = 2048;

}  // namespace

template <typename Key>
ProgramDefines RadixDefines(const PrimitiveConfig& config) {
  ProgramDefines defines = config.Defines(1);
  defines.emplace("KEY", sizeof(Key) == 4 ? "uint" : "ulong");
  defines.emplace("FLOAT_KEYS", std::is_same_v<Key, float> ? "1" : "0");
  defines.emplace("RADIX_BITS", std::to_string(MostBits(config)));
  return defines;
}
template ProgramDefines RadixDefines<float>(const PrimitiveConfig& config);

template <typename Key>
absl::StatusOr<RadixSort<Key>> RadixSort<Key>::Create(const std::shared_ptr<Context>& context, uint32_t capacity,
                                                      std::optional<PrimitiveConfig> config) {
  if (capacity > kMaxItems) return absl::InvalidArgumentError(absl::StrCat("RadixSort: capacity ", capacity, " is above ", kMaxItems));
  RadixSort sort;
  sort.capacity_ = capacity;
  sort.config_ = config.value_or(PrimitiveConfig::For(context->device()));
  PALPATE_RETURN_IF_ERROR(sort.config_.Validate());
  const ProgramDefines defines = RadixDefines<Key>(sort.config_);
  PALPATE_ASSIGN_OR_RETURN(sort.count_, context->CreateKernel(kernels::radix_sort, "radix_count", defines));
  PALPATE_ASSIGN_OR_RETURN(sort.scatter_, context->CreateKernel(kernels::radix_sort, "radix_scatter", defines));
  PALPATE_ASSIGN_OR_RETURN(sort.few_, context->CreateKernel(kernels::radix_sort, "radix_sort_few", defines));
  PALPATE_ASSIGN_OR_RETURN(sort.scan_, ExclusiveScan::Create(context, sort.config_));
  PALPATE_ASSIGN_OR_RETURN(
      sort.counts_,
      DeviceBuffer<uint32_t>::Create(context, (size_t{1} << MostBits(sort.config_)) * sort.config_.max_groups, "radix sort counts"));
  PALPATE_ASSIGN_OR_RETURN(sort.keys_, DeviceBuffer<Key>::Create(context, capacity, "radix sort keys"));
  PALPATE_ASSIGN_OR_RETURN(sort.values_, DeviceBuffer<uint32_t>::Create(context, capacity, "radix sort values"));
  return sort;
}

template <typename Key>
absl::Status RadixSort<Key>::Run(Queue& queue, BufferView<Key> keys_in, BufferView<uint32_t> values_in, ItemCount count,
                                 BufferView<Key> keys_out, BufferView<uint32_t> values_out, BitRange bits) {
  const size_t needed = count.capacity;
  const bool values_are_indices = values_in.handle == nullptr;
  PALPATE_RETURN_IF_ERROR(CheckCapacity("RadixSort", "its capacity", capacity_, needed));
  PALPATE_RETURN_IF_ERROR(CheckCapacity("RadixSort", "keys_in", keys_in.count, needed));
  if (!values_are_indices) PALPATE_RETURN_IF_ERROR(CheckCapacity("RadixSort", "values_in", values_in.count, needed));
  PALPATE_RETURN_IF_ERROR(CheckCapacity("RadixSort", "keys_out", keys_out.count, needed));
  PALPATE_RETURN_IF_ERROR(CheckCapacity("RadixSort", "values_out", values_out.count, needed));
  if (bits.begin > bits.end || bits.end > kAllBits.end) {
    return absl::InvalidArgumentError(
        absl::StrCat("RadixSort: bits [", bits.begin, ", ", bits.end, ") are not a range within [0, ", kAllBits.end, ")"));
  }
  if (keys_in.handle == keys_out.handle || (!values_are_indices && values_in.handle == values_out.handle)) {
    return absl::InvalidArgumentError("RadixSort: inputs and outputs must be different buffers");
  }
  if (count.capacity == 0) return absl::OkStatus();

  using Bits = std::conditional_t<sizeof(Key) == 4, uint32_t, uint64_t>;  // what the kernels see
  if (count.capacity <= kFewItems) {
    return queue.Launch(few_, {config_.group_size, config_.group_size}, Arg("capacity", count.capacity),
                        Arg("device_count", count.on_device), Arg("keys_in", As<Bits>(keys_in)), Arg("values_in", values_in),
                        Arg("values_are_indices", static_cast<uint32_t>(values_are_indices)), Arg("bit_begin", bits.begin),
                        Arg("bit_end", bits.end), Arg("keys_scratch", As<Bits>(keys_.view())), Arg("values_scratch", values_),
                        Arg("keys_out", As<Bits>(keys_out)), Arg("values_out", values_out));
  }
  const uint32_t groups = config_.GroupsFor(count.capacity);
  const Range range = config_.RangeFor(count.capacity);
  // With no bits to compare, one pass over no bits copies the pairs.
  const uint32_t most_bits = MostBits(config_);
  const uint32_t passes = std::max((bits.end - bits.begin + most_bits - 1) / most_bits, 1U);
  uint32_t done = 0;
  for (uint32_t pass = 0; pass < passes; ++pass) {
    const uint32_t left = bits.end - bits.begin - done;
    const uint32_t pass_bits = (left + passes - pass - 1) / (passes - pass);  // about as many each
    const uint32_t shift = std::min(bits.begin + done, kAllBits.end - 1);
    const uint32_t mask = (1U << pass_bits) - 1;
    done += pass_bits;
    // Passes alternate between the scratch and the output so that the last one writes the output.
    const bool to_output = (passes - 1 - pass) % 2 == 0;
    const BufferView<Key> key_target = to_output ? keys_out : keys_.view();
    const BufferView<uint32_t> value_target = to_output ? values_out : values_.view();
    PALPATE_RETURN_IF_ERROR(queue.Launch(count_, range, Arg("capacity", count.capacity), Arg("device_count", count.on_device),
                                         Arg("keys", As<Bits>(keys_in)), Arg("shift", shift), Arg("mask", mask), Arg("counts", counts_)));
    PALPATE_RETURN_IF_ERROR(scan_.Run(queue, counts_, (mask + 1) * groups, counts_));
    PALPATE_RETURN_IF_ERROR(queue.Launch(
        scatter_, range, Arg("capacity", count.capacity), Arg("device_count", count.on_device), Arg("keys_in", As<Bits>(keys_in)),
        Arg("values_in", values_in), Arg("values_are_indices", static_cast<uint32_t>(values_are_indices && pass == 0)), Arg("shift", shift),
        Arg("mask", mask), Arg("offsets", counts_), Arg("keys_out", As<Bits>(key_target)), Arg("values_out", value_target)));
    keys_in = key_target;
    values_in = value_target;
  }
  return absl::OkStatus();
}

template class RadixSort<uint32_t>;
template class RadixSort<uint64_t>;
template class RadixSort<float>;

}  // namespace palpate::gpu
