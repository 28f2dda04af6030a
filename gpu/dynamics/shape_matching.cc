#include "gpu/dynamics/shape_matching.h"

#include "gpu/primitives/primitive_config.h"
#include "gpu/runtime/kernel_source.h"

namespace palpate::gpu {
namespace kernels {
extern const KernelSource shape_matching;
}

absl::StatusOr<ShapeMatching> ShapeMatching::Create(const std::shared_ptr<Context>& context) {
  ShapeMatching matching;
  PALPATE_ASSIGN_OR_RETURN(matching.match_, context->CreateKernel(kernels::shape_matching, "shape_match"));
  return matching;
}

absl::Status ShapeMatching::Run(Queue& queue, BufferView<uint32_t> begins, uint32_t set_count, BufferView<Float4> rest,
                                BufferView<Float4> current, BufferView<ShapeMatch> matches, BufferView<Float4> goals) {
  PALPATE_RETURN_IF_ERROR(CheckCapacity("ShapeMatching", "begins", begins.count, size_t{set_count} + 1));
  PALPATE_RETURN_IF_ERROR(CheckCapacity("ShapeMatching", "matches", matches.count, set_count));
  PALPATE_RETURN_IF_ERROR(CheckCapacity("ShapeMatching", "current", current.count, rest.count));
  PALPATE_RETURN_IF_ERROR(CheckCapacity("ShapeMatching", "goals", goals.count, rest.count));
  return queue.Launch(match_, {set_count, 0}, Arg("set_count", set_count), Arg("begins", begins), Arg("rest", rest),
                      Arg("current", current), Arg("matches", matches), Arg("goals", goals));
}

}  // namespace palpate::gpu
