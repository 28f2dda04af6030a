#include "gpu/primitives/scan.h"

#include <algorithm>
#include <type_traits>

#include "gpu/runtime/kernel_source.h"

namespace palpate::gpu {
namespace kernels {
extern const KernelSource scan;
}
namespace {

absl::Status CheckInput(const char* primitive, size_t available, ItemCount count) {
  return CheckCapacity(primitive, "its input", std::min<size_t>(available, kMaxItems), count.capacity);
}

}  // namespace

absl::StatusOr<ScanKernels> ScanKernels::Create(const std::shared_ptr<Context>& context, const ProgramDefines& defines, size_t state_bytes,
                                                std::optional<PrimitiveConfig> config) {
  ScanKernels kernels;
  kernels.config_ = config.value_or(PrimitiveConfig::For(context->device()));
  PALPATE_RETURN_IF_ERROR(kernels.config_.Validate());
  ProgramDefines all = kernels.config_.Defines(kernels.config_.group_size == 1 ? 16 : 4);
  all.insert(defines.begin(), defines.end());
  kernels.needs_own_sum_ = kernels.config_.group_size == 1 && (defines.contains("SCAN_FLAGS") || defines.contains("SCAN_RUNS"));
  PALPATE_ASSIGN_OR_RETURN(kernels.sums_, context->CreateKernel(kernels::scan, "scan_chunk_sums", all));
  PALPATE_ASSIGN_OR_RETURN(kernels.scan_, context->CreateKernel(kernels::scan, "scan_chunks", all));
  PALPATE_ASSIGN_OR_RETURN(kernels.chunk_sums_,
                           DeviceBuffer<uint8_t>::Create(context, kernels.config_.max_groups * state_bytes, "scan chunk sums"));
  return kernels;
}

absl::Status ScanKernels::Run(Queue& queue, ItemCount count, const Arg& total, std::initializer_list<Arg> inputs,
                              std::initializer_list<Arg> outputs) {
  const Range range = config_.RangeFor(count.capacity);
  const Arg capacity("capacity", count.capacity), device_count("device_count", count.on_device);
  const Arg chunk_sums("chunk_sums", Opaque(chunk_sums_));  // of a type that depends on the variant
  if (needs_own_sum_ || config_.GroupsFor(count.capacity) > 1) {
    PALPATE_RETURN_IF_ERROR(sums_.Bind(inputs));
    PALPATE_RETURN_IF_ERROR(queue.Launch(sums_, range, capacity, device_count, chunk_sums));
  }
  PALPATE_RETURN_IF_ERROR(scan_.Bind(inputs));
  PALPATE_RETURN_IF_ERROR(scan_.Bind(outputs));
  return queue.Launch(scan_, range, capacity, device_count, chunk_sums, total);
}

absl::StatusOr<ExclusiveScan> ExclusiveScan::Create(const std::shared_ptr<Context>& context, std::optional<PrimitiveConfig> config) {
  ExclusiveScan scan;
  PALPATE_ASSIGN_OR_RETURN(scan.kernels_,
                           ScanKernels::Create(context, {{"SCAN_VALUES", "1"}, {"VALUE", "uint"}}, sizeof(uint32_t), config));
  PALPATE_ASSIGN_OR_RETURN(scan.own_total_, DeviceBuffer<uint32_t>::Create(context, 1, "scan total"));
  return scan;
}

absl::Status ExclusiveScan::Run(Queue& queue, BufferView<uint32_t> in, ItemCount count, BufferView<uint32_t> out,
                                BufferView<uint32_t> total) {
  PALPATE_RETURN_IF_ERROR(CheckInput("ExclusiveScan", in.count, count));
  PALPATE_RETURN_IF_ERROR(CheckCapacity("ExclusiveScan", "out", out.count, count.capacity));
  if (total.handle == nullptr) total = own_total_;
  PALPATE_RETURN_IF_ERROR(CheckCapacity("ExclusiveScan", "total", total.count, 1));
  return kernels_.Run(queue, count, Arg("total", total), {Arg("in", in)}, {Arg("out", out)});
}

template <typename T>
absl::StatusOr<SegmentedScan<T>> SegmentedScan<T>::Create(const std::shared_ptr<Context>& context, std::optional<PrimitiveConfig> config) {
  SegmentedScan scan;
  const char* type = std::is_same_v<T, float> ? "float" : "uint";
  PALPATE_ASSIGN_OR_RETURN(scan.kernels_,
                           ScanKernels::Create(context, {{"SCAN_SEGMENTS", "1"}, {"VALUE", type}}, sizeof(T) + sizeof(uint32_t), config));
  PALPATE_ASSIGN_OR_RETURN(scan.own_total_, DeviceBuffer<T>::Create(context, 1, "segmented scan total"));
  return scan;
}

template <typename T>
absl::Status SegmentedScan<T>::Run(Queue& queue, BufferView<T> in, BufferView<uint32_t> heads, ItemCount count, BufferView<T> out,
                                   BufferView<T> last_total) {
  PALPATE_RETURN_IF_ERROR(CheckInput("SegmentedScan", in.count, count));
  PALPATE_RETURN_IF_ERROR(CheckCapacity("SegmentedScan", "heads", heads.count, count.capacity));
  PALPATE_RETURN_IF_ERROR(CheckCapacity("SegmentedScan", "out", out.count, count.capacity));
  if (last_total.handle == nullptr) last_total = own_total_;
  PALPATE_RETURN_IF_ERROR(CheckCapacity("SegmentedScan", "last_total", last_total.count, 1));
  return kernels_.Run(queue, count, Arg("total", last_total), {Arg("in", in), Arg("heads", heads)}, {Arg("out", out)});
}

absl::StatusOr<StreamCompaction> StreamCompaction::Create(const std::shared_ptr<Context>& context, std::optional<PrimitiveConfig> config) {
  StreamCompaction compaction;
  PALPATE_ASSIGN_OR_RETURN(compaction.kernels_,
                           ScanKernels::Create(context, {{"SCAN_FLAGS", "1"}, {"VALUE", "uint"}}, sizeof(uint32_t), config));
  return compaction;
}

absl::Status StreamCompaction::Run(Queue& queue, BufferView<uint32_t> flags, ItemCount count, BufferView<uint32_t> indices,
                                   BufferView<uint32_t> kept) {
  PALPATE_RETURN_IF_ERROR(CheckInput("StreamCompaction", flags.count, count));
  PALPATE_RETURN_IF_ERROR(CheckCapacity("StreamCompaction", "indices", indices.count, count.capacity));
  PALPATE_RETURN_IF_ERROR(CheckCapacity("StreamCompaction", "kept", kept.count, 1));
  return kernels_.Run(queue, count, Arg("total", kept), {Arg("flags", flags)}, {Arg("out", indices)});
}

template <typename Key>
absl::StatusOr<RunLengthEncode<Key>> RunLengthEncode<Key>::Create(const std::shared_ptr<Context>& context,
                                                                  std::optional<PrimitiveConfig> config) {
  RunLengthEncode encode;
  const char* type = sizeof(Key) == 4 ? "uint" : "ulong";
  PALPATE_ASSIGN_OR_RETURN(encode.kernels_,
                           ScanKernels::Create(context, {{"SCAN_RUNS", "1"}, {"VALUE", "uint"}, {"KEY", type}}, sizeof(uint32_t), config));
  return encode;
}

template <typename Key>
absl::Status RunLengthEncode<Key>::Run(Queue& queue, BufferView<Key> keys, ItemCount count, BufferView<Key> run_keys,
                                       BufferView<uint32_t> run_begins, BufferView<uint32_t> run_count) {
  PALPATE_RETURN_IF_ERROR(CheckInput("RunLengthEncode", keys.count, count));
  PALPATE_RETURN_IF_ERROR(CheckCapacity("RunLengthEncode", "run_keys", run_keys.count, count.capacity));
  PALPATE_RETURN_IF_ERROR(CheckCapacity("RunLengthEncode", "run_begins", run_begins.count, size_t{count.capacity} + 1));
  PALPATE_RETURN_IF_ERROR(CheckCapacity("RunLengthEncode", "run_count", run_count.count, 1));
  return kernels_.Run(queue, count, Arg("total", run_count), {Arg("keys", keys)},
                      {Arg("run_keys", run_keys), Arg("run_begins", run_begins)});
}

template class SegmentedScan<uint32_t>;
template class SegmentedScan<float>;
template class RunLengthEncode<uint32_t>;
template class RunLengthEncode<uint64_t>;

}  // namespace palpate::gpu
