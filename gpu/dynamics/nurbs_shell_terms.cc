#include "gpu/dynamics/nurbs_shell_terms.h"

#include <span>
#include <string>

namespace palpate::gpu {

namespace kernels {
extern const KernelSource nurbs_shell_energy;
extern const KernelSource nurbs_shell_terms;
}  // namespace kernels

absl::Status NurbsShellTerms::Init(Queue& queue) {
  Context& context = *queue.context();
  PALPATE_ASSIGN_OR_RETURN(control_range_, CreateBufferFrom<UInt2>(queue, layout_.control_range, "nurbs ranges"));
  PALPATE_ASSIGN_OR_RETURN(block_range_, CreateBufferFrom<UInt2>(queue, layout_.block_range, "nurbs block ranges"));
  PALPATE_ASSIGN_OR_RETURN(entry_block_, CreateBufferFrom<uint32_t>(queue, layout_.entry_block, "nurbs entries"));
  PALPATE_ASSIGN_OR_RETURN(block_slot_, CreateBufferFrom<uint32_t>(queue, layout_.block_slot, "nurbs block slots"));
  PALPATE_ASSIGN_OR_RETURN(block_entry_, CreateBufferFrom<uint32_t>(queue, layout_.block_entry, "nurbs block entries"));
  PALPATE_ASSIGN_OR_RETURN(entry_basis_, CreateBufferFrom<float>(queue, layout_.entry_basis, "nurbs basis"));
  PALPATE_ASSIGN_OR_RETURN(rest_, CreateBufferFrom<float>(queue, layout_.rest_real, "nurbs rest"));
  const size_t points = size_t{layout_.block_count} * layout_.lanes;
  PALPATE_ASSIGN_OR_RETURN(vectors_,
                           CreateBufferFrom<float>(queue, std::vector<float>(points * PALPATE_NURBS_VECTOR_REALS, 0.0F), "nurbs vectors"));
  const size_t starts = layout_.is_viscous ? points * PALPATE_NURBS_START_REALS : 1;  // kernels take a buffer all the same
  PALPATE_ASSIGN_OR_RETURN(start_, CreateBufferFrom<float>(queue, std::vector<float>(starts, 0.0F), "nurbs strains"));
  const ProgramDefines defines = {{"PALPATE_LANES", std::to_string(layout_.lanes)}};
  PALPATE_ASSIGN_OR_RETURN(gather_, context.CreateKernel(kernels::nurbs_shell_terms, "nurbs_strains", defines));
  PALPATE_RETURN_IF_ERROR(gather_.Bind(Arg("block_count", layout_.block_count), Arg("block_range", block_range_),
                                       Arg("block_slot", block_slot_), Arg("block_entry", block_entry_), Arg("nurbs_basis", entry_basis_),
                                       Arg("nurbs_vectors", vectors_)));
  PALPATE_ASSIGN_OR_RETURN(start_strains_, context.CreateKernel(kernels::nurbs_shell_terms, "start_nurbs", defines));
  return start_strains_.Bind(Arg("block_count", layout_.block_count), Arg("nurbs_vectors", vectors_), Arg("nurbs_start", start_));
}

absl::Status NurbsShellTerms::Bind(Kernel& kernel) const {
  return kernel.Bind(Arg("nurbs_range", control_range_), Arg("nurbs_block", entry_block_), Arg("nurbs_basis", entry_basis_),
                     Arg("nurbs_rest", rest_), Arg("nurbs_vectors", vectors_), Arg("nurbs_start", start_));
}

absl::Status NurbsShellTerms::Gather(Queue& queue, const DeviceBuffer<Float4>& x) {
  return queue.Launch(gather_, {layout_.block_count, 0}, Arg("x", x));
}

absl::Status NurbsShellTerms::Begin(Queue& queue) {
  return layout_.is_viscous ? queue.Enqueue(start_strains_, {layout_.block_count, 0}) : absl::OkStatus();
}

absl::StatusOr<double> NurbsShellTerms::Energy(Queue& queue, const DeviceBuffer<Float4>& x, uint32_t partials, bool in_double) {
  if (partials_.count() == 0) {
    const bool is_double = in_double && queue.context()->device().has_fp64;
    PALPATE_ASSIGN_OR_RETURN(partials_, DeviceBuffer<Float2>::Create(queue.context(), partials, "nurbs energy partials"));
    PALPATE_ASSIGN_OR_RETURN(sum_energy_, queue.context()->CreateKernel(kernels::nurbs_shell_energy, "sum_nurbs_energy",
                                                                        {{"PALPATE_DOUBLE", is_double ? "1" : "0"}}));
    PALPATE_RETURN_IF_ERROR(sum_energy_.Bind(Arg("block_count", layout_.block_count), Arg("lanes", layout_.lanes),
                                             Arg("block_range", block_range_), Arg("block_slot", block_slot_),
                                             Arg("block_entry", block_entry_), Arg("nurbs_basis", entry_basis_), Arg("nurbs_rest", rest_),
                                             Arg("partials", partials_)));
    partials_host_.resize(partials);
  }
  const Range range = {partials, partials % 64 == 0 ? 64U : 1U};
  PALPATE_RETURN_IF_ERROR(queue.Launch(sum_energy_, range, Arg("x", x)));
  PALPATE_RETURN_IF_ERROR(queue.ReadBlocking(partials_, std::span<Float2>(partials_host_)));
  double sum = 0;
  for (const Float2& partial : partials_host_) sum += static_cast<double>(partial.x) + partial.y;
  return sum;
}

size_t NurbsShellTerms::device_bytes() const {
  size_t sum = 0;
  const auto add = [&](const auto&... buffers) { sum += (buffers.size_bytes() + ...); };
  add(control_range_, block_range_, entry_block_, block_slot_, block_entry_, entry_basis_, rest_, vectors_, start_, partials_);
  return sum;
}

}  // namespace palpate::gpu
