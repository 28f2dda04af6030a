#include "gpu/dynamics/coarse_correction.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "gpu/dynamics/tissue_solver.h"
#include "gpu/runtime/kernel_source.h"

namespace palpate::gpu {
namespace kernels {
extern const KernelSource coarse_correction;
}
namespace {

constexpr double kStaleShare = 0.1;  // of the tets: when as many have changed the inverse is made anew

template <typename T>
absl::Status Set(Queue& queue, DeviceBuffer<T>& buffer, const std::vector<T>& values, const char* name) {
  PALPATE_RETURN_IF_ERROR(Grow(queue.context(), buffer, std::max<size_t>(values.size(), 1), name));
  return values.empty() ? absl::OkStatus() : queue.Write(buffer, std::span<const T>(values));
}

}  // namespace

absl::StatusOr<std::unique_ptr<CoarseCorrection>> CoarseCorrection::Create(Queue& queue, const TissueModel& model,
                                                                           const TissueLayout& layout, const TissueOptions& options,
                                                                           const TissueTuning& tuning) {
  std::unique_ptr<CoarseCorrection> made(new CoarseCorrection(layout, options, tuning));
  made->lattice_ = BuildCoarseLattice(model, layout, options.dt_s, options.coarse_nodes);
  const std::shared_ptr<Context>& context = queue.context();
  const ProgramDefines defines = {{"PALPATE_COARSE_GROUP", std::to_string(tuning.list_group)}};
  constexpr std::pair<Kernel CoarseCorrection::*, const char*> kKernels[] = {
      {&CoarseCorrection::turn_nodes_, "turn_nodes"},   {&CoarseCorrection::gather_forces_, "gather_forces"},
      {&CoarseCorrection::solve_nodes_, "solve_nodes"}, {&CoarseCorrection::spread_moves_, "spread_moves"},
      {&CoarseCorrection::sum_along_, "sum_along"},     {&CoarseCorrection::find_share_, "find_share"}};
  for (const auto& [kernel, name] : kKernels) {
    PALPATE_ASSIGN_OR_RETURN((*made).*kernel, context->CreateKernel(kernels::coarse_correction, name, defines));
  }
  for (const auto& [buffer, name] : {std::pair{&CoarseCorrection::forces_, "coarse forces"},
                                     {&CoarseCorrection::trial_forces_, "coarse trial forces"},
                                     {&CoarseCorrection::moves_, "coarse moves"},
                                     {&CoarseCorrection::trial_, "coarse trial"}}) {
    PALPATE_ASSIGN_OR_RETURN((*made).*buffer, DeviceBuffer<Float4>::Create(context, layout.vertex_count, name));
  }
  PALPATE_ASSIGN_OR_RETURN(made->sums_start_, DeviceBuffer<float>::Create(context, made->items_, "coarse sums"));
  PALPATE_ASSIGN_OR_RETURN(made->sums_end_, DeviceBuffer<float>::Create(context, made->items_, "coarse trial sums"));
  PALPATE_ASSIGN_OR_RETURN(made->share_, DeviceBuffer<float>::Create(context, 1, "coarse share"));
  PALPATE_RETURN_IF_ERROR(made->GiveLattice(queue));
  PALPATE_RETURN_IF_ERROR(made->GiveWeights(queue));
  return made;
}

/// The lattice to the device.
absl::Status CoarseCorrection::GiveLattice(Queue& queue) {
  const std::shared_ptr<Context>& context = queue.context();
  const size_t node_count = lattice_.cells.size();
  std::vector<UInt4> node_part(node_count);
  std::vector<uint32_t> node_place(node_count);
  uint32_t place = 0;
  for (const CoarsePart& part : lattice_.parts) {
    for (uint32_t n = part.node_begin; n < part.node_begin + part.node_count; ++n) {
      node_part[n] = {part.node_begin, part.row_floats, static_cast<uint32_t>(part.inverse_begin / kCoarseRowUnit), 0};
      node_place[n] = place + 3 * (n - part.node_begin);
    }
    place += part.row_floats;
  }
  PALPATE_RETURN_IF_ERROR(Set(queue, node_part_, node_part, "coarse node parts"));
  PALPATE_RETURN_IF_ERROR(Set(queue, node_place_, node_place, "coarse node places"));
  PALPATE_RETURN_IF_ERROR(Set(queue, inverse_, lattice_.inverse, "coarse inverse"));
  PALPATE_RETURN_IF_ERROR(Grow(context, node_force_, place, "coarse node forces"));
  PALPATE_RETURN_IF_ERROR(Grow(context, node_move_, node_count, "coarse node moves"));
  PALPATE_RETURN_IF_ERROR(Grow(context, rotations_, node_count, "coarse rotations"));
  return queue.Zero(node_force_);  // what pads the parts stays zero
}

/// The weights of the layout as it is to the device.
absl::Status CoarseCorrection::GiveWeights(Queue& queue) {
  weights_ = WeighCoarse(lattice_, layout_);
  PALPATE_RETURN_IF_ERROR(Set(queue, vertex_nodes_, weights_.vertex_nodes, "coarse vertex nodes"));
  PALPATE_RETURN_IF_ERROR(Set(queue, vertex_weights_, weights_.vertex_weights, "coarse vertex weights"));
  PALPATE_RETURN_IF_ERROR(Set(queue, node_begins_, weights_.node_begins, "coarse node begins"));
  PALPATE_RETURN_IF_ERROR(Set(queue, entry_vertex_, weights_.entry_vertex, "coarse entries"));
  PALPATE_RETURN_IF_ERROR(Set(queue, entry_weight_, weights_.entry_weight, "coarse entry weights"));
  PALPATE_RETURN_IF_ERROR(Set(queue, node_frame_, weights_.node_frame, "coarse frames"));
  std::vector<Float4> rest(layout_.vertex_count);
  for (uint32_t s = 0; s < layout_.vertex_count; ++s) rest[s] = layout_.rest_m[SolverSlot{s}];
  return Set(queue, rest_, rest, "coarse rest positions");
}

absl::Status CoarseCorrection::Follow(Queue& queue, const TissueModel& model, const TissueChange& change) {
  changed_tets_ += change.tets.size();
  if (static_cast<double>(changed_tets_) > kStaleShare * layout_.live_tet_count) {
    lattice_ = BuildCoarseLattice(model, layout_, dt_s_, max_nodes_);
    changed_tets_ = 0;
    PALPATE_RETURN_IF_ERROR(GiveLattice(queue));
  } else {
    FollowCoarseParts(model, change.tets, &lattice_);
  }
  return GiveWeights(queue);
}

absl::Status CoarseCorrection::SaveState(StateWriter& archive) {
  archive.Enter("CoarseCorrection");
  archive(changed_tets_);
  if (changed_tets_ > 0) archive(lattice_);
  return absl::OkStatus();
}

absl::Status CoarseCorrection::LoadState(Queue& queue, StateReader& archive) {
  archive.Enter("CoarseCorrection");
  archive(changed_tets_);
  PALPATE_RETURN_IF_ERROR(archive.status());
  if (changed_tets_ == 0) return absl::OkStatus();
  archive(lattice_);
  PALPATE_RETURN_IF_ERROR(archive.status());
  size_t floats = 0;
  size_t nodes = 0;
  bool fits = lattice_.vertex_part.size() == layout_.solver_index.size();
  for (const CoarsePart& part : lattice_.parts) {
    fits = fits && part.node_begin == nodes && part.inverse_begin == floats && part.spacing_m > 0 &&
           part.row_floats % kCoarseRowUnit == 0 && part.row_floats >= uint64_t{3} * part.node_count &&
           part.row_floats <= lattice_.inverse.size();
    nodes += part.node_count;
    floats += size_t{3} * part.node_count * part.row_floats;
  }
  fits = fits && nodes == lattice_.cells.size() && floats == lattice_.inverse.size();
  for (const uint32_t part : lattice_.vertex_part) fits = fits && (part == kNoCoarsePart || part < lattice_.parts.size());
  archive.Check(fits, "a coarse lattice of another mesh");
  PALPATE_RETURN_IF_ERROR(archive.status());
  PALPATE_RETURN_IF_ERROR(GiveLattice(queue));
  return GiveWeights(queue);
}

absl::Status CoarseCorrection::Begin(Queue& queue, const TissueBuffers& tissue) {
  const auto node_count = static_cast<uint32_t>(lattice_.cells.size());
  return queue.Launch(turn_nodes_, {node_count, 0}, Arg("node_count", node_count), Arg("node_begins", node_begins_),
                      Arg("entry_vertex", entry_vertex_), Arg("entry_weight", entry_weight_), Arg("rest", rest_), Arg("x", tissue.x),
                      Arg("rotations", rotations_));
}

absl::Status CoarseCorrection::Correct(Queue& queue, const TissueBuffers& tissue, TissueSweeps& sweeps) {
  const auto node_count = static_cast<uint32_t>(lattice_.cells.size());
  if (node_count == 0) return absl::OkStatus();
  const uint32_t vertex_count = layout_.vertex_count;
  PALPATE_RETURN_IF_ERROR(sweeps.Update(queue, tissue));
  PALPATE_RETURN_IF_ERROR(sweeps.EnqueueForces(queue, kAllForces, tissue.x, forces_));
  PALPATE_RETURN_IF_ERROR(queue.Launch(gather_forces_, {node_count, 0}, Arg("node_count", node_count), Arg("node_begins", node_begins_),
                                       Arg("entry_vertex", entry_vertex_), Arg("entry_weight", entry_weight_),
                                       Arg("node_frame", node_frame_), Arg("node_place", node_place_), Arg("rotations", rotations_),
                                       Arg("forces", forces_), Arg("node_force", node_force_)));
  PALPATE_RETURN_IF_ERROR(queue.Launch(solve_nodes_, {size_t{node_count} * group_size_, group_size_}, Arg("node_part", node_part_),
                                       Arg("node_frame", node_frame_), Arg("node_place", node_place_), Arg("rotations", rotations_),
                                       Arg("inverse", inverse_), Arg("node_force", node_force_), Arg("node_move", node_move_)));
  PALPATE_RETURN_IF_ERROR(queue.Launch(spread_moves_, {items_, 0}, Arg("vertex_count", vertex_count), Arg("vertex_nodes", vertex_nodes_),
                                       Arg("vertex_weights", vertex_weights_), Arg("node_move", node_move_), Arg("forces", forces_),
                                       Arg("x", tissue.x), Arg("moves", moves_), Arg("trial", trial_), Arg("sums", sums_start_)));
  PALPATE_RETURN_IF_ERROR(sweeps.EnqueueForces(queue, kAllForces, trial_, trial_forces_));
  PALPATE_RETURN_IF_ERROR(queue.Launch(sum_along_, {items_, 0}, Arg("vertex_count", vertex_count), Arg("forces", trial_forces_),
                                       Arg("moves", moves_), Arg("sums", sums_end_)));
  PALPATE_RETURN_IF_ERROR(queue.Launch(find_share_, {1, 1}, Arg("count", items_), Arg("sums_start", sums_start_),
                                       Arg("sums_end", sums_end_), Arg("share", share_)));
  return sweeps.MoveAlong(queue, moves_, share_);
}

size_t CoarseCorrection::device_bytes() const {
  return node_part_.size_bytes() + node_place_.size_bytes() + node_begins_.size_bytes() + node_frame_.size_bytes() +
         entry_vertex_.size_bytes() + vertex_nodes_.size_bytes() + inverse_.size_bytes() + entry_weight_.size_bytes() +
         vertex_weights_.size_bytes() + node_force_.size_bytes() + sums_start_.size_bytes() + sums_end_.size_bytes() + share_.size_bytes() +
         rest_.size_bytes() + rotations_.size_bytes() + node_move_.size_bytes() + forces_.size_bytes() + trial_forces_.size_bytes() +
         moves_.size_bytes() + trial_.size_bytes();
}

}  // namespace palpate::gpu
