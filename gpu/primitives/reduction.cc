#include "gpu/primitives/reduction.h"

#include <string>
#include <type_traits>

#include "gpu/runtime/kernel_source.h"

namespace palpate::gpu {
namespace kernels {
extern const KernelSource reduce;
}
namespace {

// Accumulators of one work-item: for floats enough to fill the vector units of a CPU and to hide the latency of an addition. Operations on
// integers may be reordered, so the compiler does that by itself.
template <typename T>
uint32_t Lanes(const PrimitiveConfig& config) {
  if (!std::is_same_v<T, float>) return 1;
  return config.group_size == 1 ? 32 : 4;
}

template <typename T>
ProgramDefines OpDefines(ReductionOp op) {
  constexpr bool is_float = std::is_same_v<T, float>;
  const std::string type = is_float ? "float" : sizeof(T) == 4 ? "uint" : "ulong";
  ProgramDefines defines = {{"VALUE", type}, {"ELEMENT", type}};
  switch (op) {
    case ReductionOp::kSum:
      defines.emplace("REDUCE_SUM", "1");
      defines.emplace("IDENTITY", "0");
      break;
    case ReductionOp::kMin:
      defines.emplace("REDUCE_MIN", "1");
      defines.emplace("MIN_FUNCTION", is_float ? "fmin" : "min");
      defines.emplace("IDENTITY", is_float ? "INFINITY" : sizeof(T) == 4 ? "UINT_MAX" : "ULONG_MAX");
      break;
    case ReductionOp::kMax:
      defines.emplace("REDUCE_MAX", "1");
      defines.emplace("MAX_FUNCTION", is_float ? "fmax" : "max");
      defines.emplace("IDENTITY", is_float ? "(-INFINITY)" : "0");
      break;
  }
  return defines;
}

// One launch for an input of one chunk, else two.
template <typename Element, typename Value>
absl::Status Reduce(Queue& queue, const PrimitiveConfig& config, Kernel& chunks, Kernel& partials_kernel, BufferView<Element> in,
                    ItemCount count, BufferView<Value> partials, BufferView<Value> out, const char* name) {
  PALPATE_RETURN_IF_ERROR(CheckCapacity(name, "in", std::min<size_t>(in.count, kMaxItems), count.capacity));
  PALPATE_RETURN_IF_ERROR(CheckCapacity(name, "out", out.count, 1));
  const uint32_t groups = config.GroupsFor(count.capacity);
  PALPATE_RETURN_IF_ERROR(queue.Launch(chunks, config.RangeFor(count.capacity), Arg("capacity", count.capacity),
                                       Arg("device_count", count.on_device), Arg("in", in), Arg("partials", groups == 1 ? out : partials)));
  if (groups == 1) return absl::OkStatus();
  return queue.Launch(partials_kernel, {config.group_size, config.group_size}, Arg("partial_count", groups), Arg("partials", partials),
                      Arg("out", out));
}

}  // namespace

template <typename T>
absl::StatusOr<Reduction<T>> Reduction<T>::Create(const std::shared_ptr<Context>& context, ReductionOp op,
                                                  std::optional<PrimitiveConfig> config) {
  Reduction reduction;
  reduction.config_ = config.value_or(PrimitiveConfig::For(context->device()));
  PALPATE_RETURN_IF_ERROR(reduction.config_.Validate());
  ProgramDefines defines = reduction.config_.Defines(Lanes<T>(reduction.config_));
  defines.merge(OpDefines<T>(op));
  PALPATE_ASSIGN_OR_RETURN(reduction.chunks_, context->CreateKernel(kernels::reduce, "reduce_chunks", defines));
  PALPATE_ASSIGN_OR_RETURN(reduction.partials_kernel_, context->CreateKernel(kernels::reduce, "reduce_partials", defines));
  PALPATE_ASSIGN_OR_RETURN(reduction.partials_, DeviceBuffer<T>::Create(context, reduction.config_.max_groups, "reduction partials"));
  return reduction;
}

template <typename T>
absl::Status Reduction<T>::Run(Queue& queue, BufferView<T> in, ItemCount count, BufferView<T> out) {
  return Reduce(queue, config_, chunks_, partials_kernel_, in, count, partials_.view(), out, "Reduction");
}

absl::StatusOr<BoundingBox> BoundingBox::Create(const std::shared_ptr<Context>& context, std::optional<PrimitiveConfig> config) {
  BoundingBox box;
  box.config_ = config.value_or(PrimitiveConfig::For(context->device()));
  PALPATE_RETURN_IF_ERROR(box.config_.Validate());
  ProgramDefines defines = box.config_.Defines(box.config_.group_size == 1 ? 4 : 1);
  defines.merge(ProgramDefines{{"VALUE", "Box"}, {"ELEMENT", "Float4"}, {"REDUCE_BOX", "1"}});
  PALPATE_ASSIGN_OR_RETURN(box.chunks_, context->CreateKernel(kernels::reduce, "reduce_chunks", defines));
  PALPATE_ASSIGN_OR_RETURN(box.partials_kernel_, context->CreateKernel(kernels::reduce, "reduce_partials", defines));
  PALPATE_ASSIGN_OR_RETURN(box.partials_, DeviceBuffer<Box>::Create(context, box.config_.max_groups, "bounding box partials"));
  return box;
}

absl::Status BoundingBox::Run(Queue& queue, BufferView<Float4> points, ItemCount count, BufferView<Box> out) {
  return Reduce(queue, config_, chunks_, partials_kernel_, points, count, partials_.view(), out, "BoundingBox");
}

template class Reduction<float>;
template class Reduction<uint32_t>;
template class Reduction<uint64_t>;

}  // namespace palpate::gpu
