#include "gpu/dynamics/shell_terms.h"

#include <algorithm>
#include <span>

namespace palpate::gpu {

namespace kernels {
extern const KernelSource shell_energy;
extern const KernelSource tissue;
}  // namespace kernels

namespace {

template <typename T>
absl::Status Upload(Queue& queue, DeviceBuffer<T>* buffer, std::vector<T> data, const char* name) {
  if (data.empty()) data.emplace_back();  // kernels take a buffer all the same
  PALPATE_ASSIGN_OR_RETURN(*buffer, CreateBufferFrom<T>(queue, data, name));
  return absl::OkStatus();
}

}  // namespace

absl::Status ShellTerms::Init(Queue& queue, uint32_t lanes, const ProgramDefines& defines, const TissueBuffers& tissue) {
  lanes_ = lanes;
  PALPATE_RETURN_IF_ERROR(Upload(queue, &ranges_, layout_.ranges, "shell ranges"));
  PALPATE_RETURN_IF_ERROR(Upload(queue, &membrane_vertex_, layout_.membrane_vertex, "membrane vertices"));
  PALPATE_RETURN_IF_ERROR(Upload(queue, &membrane_real_, layout_.membrane_real, "membrane reals"));
  PALPATE_RETURN_IF_ERROR(Upload(queue, &membrane_index_, layout_.membrane_index, "membrane indices"));
  PALPATE_RETURN_IF_ERROR(Upload(queue, &hinge_real_, layout_.hinge_real, "hinge reals"));
  PALPATE_RETURN_IF_ERROR(Upload(queue, &hinge_index_, layout_.hinge_index, "hinge indices"));
  PALPATE_RETURN_IF_ERROR(Upload(queue, &quadratic_real_, layout_.quadratic_real, "quadratic hinge reals"));
  PALPATE_RETURN_IF_ERROR(Upload(queue, &quadratic_index_, layout_.quadratic_index, "quadratic hinge indices"));
  const bool is_viscous = (layout_.mask & PALPATE_SHELL_VISCOUS) != 0;
  const size_t strains = is_viscous ? size_t{layout_.membrane_blocks} * PALPATE_MEMBRANE_STARTS * lanes : 0;
  const size_t angles = is_viscous && has_hinges() ? size_t{layout_.membrane_blocks} * PALPATE_HINGE_STARTS * lanes : 0;
  PALPATE_RETURN_IF_ERROR(Upload(queue, &membrane_start_, std::vector<float>(strains, 0.0F), "membrane strains"));
  PALPATE_RETURN_IF_ERROR(Upload(queue, &hinge_start_, std::vector<float>(angles, 0.0F), "hinge angles"));
  if (!is_viscous) return absl::OkStatus();
  Context& context = *queue.context();
  PALPATE_ASSIGN_OR_RETURN(start_shells_, context.CreateKernel(kernels::tissue, "start_shells", defines));
  return start_shells_.Bind(Arg("block_count", layout_.membrane_blocks), Arg("x_start", tissue.x_start),
                            Arg("membrane_vertex", membrane_vertex_), Arg("membrane_real", membrane_real_),
                            Arg("membrane_index", membrane_index_), Arg("membrane_start", membrane_start_),
                            Arg("hinge_index", hinge_index_), Arg("hinge_start", hinge_start_));
}

absl::Status ShellTerms::Bind(Kernel& kernel) const {
  return kernel.Bind(Arg("shell_range", ranges_), Arg("membrane_real", membrane_real_), Arg("membrane_index", membrane_index_),
                     Arg("membrane_start", membrane_start_), Arg("hinge_real", hinge_real_), Arg("hinge_index", hinge_index_),
                     Arg("hinge_start", hinge_start_), Arg("quadratic_real", quadratic_real_), Arg("quadratic_index", quadratic_index_));
}

absl::Status ShellTerms::Begin(Queue& queue) {
  if ((layout_.mask & PALPATE_SHELL_VISCOUS) == 0) return absl::OkStatus();
  return queue.Enqueue(start_shells_, {layout_.membrane_blocks, 0});
}

absl::StatusOr<double> ShellTerms::Energy(Queue& queue, const TissueBuffers& tissue, uint32_t partials, bool in_double) {
  if (partials_.count() == 0) {
    const bool is_double = in_double && queue.context()->device().has_fp64;
    PALPATE_ASSIGN_OR_RETURN(partials_, DeviceBuffer<Float2>::Create(queue.context(), partials, "shell energy partials"));
    PALPATE_ASSIGN_OR_RETURN(
        sum_energy_, queue.context()->CreateKernel(kernels::shell_energy, "sum_shell_energy", {{"PALPATE_DOUBLE", is_double ? "1" : "0"}}));
    partials_host_.resize(partials);
  }
  const Range range = {partials, partials % 64 == 0 ? 64U : 1U};
  PALPATE_RETURN_IF_ERROR(
      queue.Launch(sum_energy_, range, Arg("p", tissue.params), Arg("lanes", lanes_), Arg("has_hinges", has_hinges() ? 1U : 0U),
                   Arg("x", tissue.x), Arg("shell_range", ranges_), Arg("membrane_real", membrane_real_),
                   Arg("membrane_index", membrane_index_), Arg("hinge_real", hinge_real_), Arg("hinge_index", hinge_index_),
                   Arg("quadratic_real", quadratic_real_), Arg("quadratic_index", quadratic_index_), Arg("partials", partials_)));
  PALPATE_RETURN_IF_ERROR(queue.ReadBlocking(partials_, std::span<Float2>(partials_host_)));
  double sum = 0;
  for (const Float2& partial : partials_host_) sum += static_cast<double>(partial.x) + partial.y;
  return sum;
}

size_t ShellTerms::device_bytes() const {
  size_t sum = 0;
  const auto add = [&](const auto&... buffers) { sum += (buffers.size_bytes() + ...); };
  add(ranges_, membrane_vertex_, membrane_index_, hinge_index_, quadratic_index_, membrane_real_, membrane_start_, hinge_real_);
  add(hinge_start_, quadratic_real_, partials_);
  return sum;
}

}  // namespace palpate::gpu
