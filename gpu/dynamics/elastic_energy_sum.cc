#include "gpu/dynamics/elastic_energy_sum.h"

#include <span>

namespace palpate::gpu {

namespace kernels {
extern const KernelSource tissue;
extern const KernelSource tissue_energy;
}  // namespace kernels

absl::Status ElasticEnergySum::Init(Queue& queue, const TissueLayout& layout, const ProgramDefines& defines, uint32_t partials,
                                    bool in_double) {
  const std::shared_ptr<Context>& context = queue.context();
  range_ = {partials, partials % 64 == 0 ? 64U : 1U};
  partials_host_.resize(partials);
  PALPATE_ASSIGN_OR_RETURN(partials_, DeviceBuffer<Float2>::Create(context, partials, "energy_partials"));
  const size_t rotations = layout.HasRotatedEnergies() ? layout.tets.size() : 0;
  PALPATE_ASSIGN_OR_RETURN(rotations_, DeviceBuffer<Float4>::Create(context, rotations, "energy_rotations"));
  PALPATE_ASSIGN_OR_RETURN(sum_, context->CreateKernel(kernels::tissue_energy, "sum_elastic_energy",
                                                       {{"PALPATE_DOUBLE", in_double && context->device().has_fp64 ? "1" : "0"}}));
  PALPATE_ASSIGN_OR_RETURN(extract_rotations_, context->CreateKernel(kernels::tissue, "extract_rotations", defines));
  return absl::OkStatus();
}

absl::StatusOr<double> ElasticEnergySum::At(Queue& queue, const TissueBuffers& tissue, const TissueLayout& layout) {
  if (layout.HasRotatedEnergies()) {
    PALPATE_RETURN_IF_ERROR(queue.Copy(tissue.rotations, rotations_, layout.tet_count));
    PALPATE_RETURN_IF_ERROR(queue.Launch(extract_rotations_, {layout.BatchesOfTets(), 0}, Arg("gate", BufferView<uint32_t>{}),
                                         Arg("p", tissue.params), Arg("x", tissue.x), Arg("tets", tissue.tets),
                                         Arg("tet_rest", tissue.tet_rest), Arg("rotations", rotations_)));
  }
  PALPATE_RETURN_IF_ERROR(queue.Launch(sum_, range_, Arg("p", tissue.params), Arg("lanes", layout.lanes),
                                       Arg("corner_reals", layout.corner_reals), Arg("x", tissue.x), Arg("block_range", tissue.block_range),
                                       Arg("corner_real", tissue.corner_real), Arg("corner_index", tissue.corner_index),
                                       Arg("rotations", rotations_), Arg("partials", partials_)));
  PALPATE_RETURN_IF_ERROR(queue.ReadBlocking(partials_, std::span<Float2>(partials_host_)));
  double sum = 0;
  for (const Float2& partial : partials_host_) sum += static_cast<double>(partial.x) + partial.y;
  return sum;
}

}  // namespace palpate::gpu
