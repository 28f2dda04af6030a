#include "gpu/dynamics/coarse_correction.h"

#include <algorithm>
#include <array>
#include <numeric>
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

constexpr double kStaleShare = 0.1;        // of the tets: when as many have changed the inverse is made anew
constexpr double kSmoothedFrom = 1.0 / 6;  // of the spectrum: what is below is left to the solved nodes

struct SmoothingStep {
  double keep = 0, add = 0;
};

/// Chebyshev's iteration on [kSmoothedFrom, 1]; Saad 2003, section 12.3.
constexpr std::array<SmoothingStep, 3> SmoothingSteps() {
  constexpr double kMiddle = (1 + kSmoothedFrom) / 2;
  constexpr double kHalf = (1 - kSmoothedFrom) / 2;
  std::array<SmoothingStep, 3> steps{};
  steps[0].add = 1 / kMiddle;
  double rho = kHalf / kMiddle;
  for (size_t k = 1; k < steps.size(); ++k) {
    const double next = 1 / (2 * kMiddle / kHalf - rho);
    steps[k] = {next * rho, 2 * next / kHalf};
    rho = next;
  }
  return steps;
}

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
  constexpr std::pair<Kernel CoarseCorrection::*, const char*> kKernels[] = {{&CoarseCorrection::turn_nodes_, "turn_nodes"},
                                                                             {&CoarseCorrection::gather_forces_, "gather_forces"},
                                                                             {&CoarseCorrection::solve_nodes_, "solve_nodes"},
                                                                             {&CoarseCorrection::spread_moves_, "spread_moves"},
                                                                             {&CoarseCorrection::sum_along_, "sum_along"},
                                                                             {&CoarseCorrection::find_share_, "find_share"},
                                                                             {&CoarseCorrection::sum_left_, "sum_left"},
                                                                             {&CoarseCorrection::relax_nodes_, "relax_nodes"},
                                                                             {&CoarseCorrection::restrict_residual_, "restrict_residual"},
                                                                             {&CoarseCorrection::prolong_moves_, "prolong_moves"},
                                                                             {&CoarseCorrection::try_share_, "try_share"},
                                                                             {&CoarseCorrection::judge_share_, "judge_share"},
                                                                             {&CoarseCorrection::give_way_, "give_way"}};
  for (const auto& [kernel, name] : kKernels) {
    PALPATE_ASSIGN_OR_RETURN((*made).*kernel, context->CreateKernel(kernels::coarse_correction, name, defines));
  }
  for (const auto& [buffer, name] : {std::pair{&CoarseCorrection::forces_, "coarse forces"},
                                     {&CoarseCorrection::trial_forces_, "coarse trial forces"},
                                     {&CoarseCorrection::moves_, "coarse moves"},
                                     {&CoarseCorrection::trial_, "coarse trial"}}) {
    PALPATE_ASSIGN_OR_RETURN((*made).*buffer, DeviceBuffer<Float4>::Create(context, layout.vertex_count, name));
  }
  const size_t kept_count = KeepsVolumes(model) ? layout.vertex_count : 1;
  PALPATE_ASSIGN_OR_RETURN(made->gradients_, DeviceBuffer<Float4>::Create(context, kept_count, "coarse volume gradients"));
  PALPATE_ASSIGN_OR_RETURN(made->yields_, DeviceBuffer<Float4>::Create(context, kept_count, "coarse yields"));
  PALPATE_ASSIGN_OR_RETURN(made->sums_start_, DeviceBuffer<float>::Create(context, made->items_, "coarse sums"));
  PALPATE_ASSIGN_OR_RETURN(made->sums_end_, DeviceBuffer<float>::Create(context, made->items_, "coarse trial sums"));
  PALPATE_ASSIGN_OR_RETURN(made->tet_sums_, DeviceBuffer<float>::Create(context, made->items_, "coarse sums of tets"));
  PALPATE_ASSIGN_OR_RETURN(made->share_, DeviceBuffer<float>::Create(context, 2, "coarse share"));
  PALPATE_RETURN_IF_ERROR(made->GiveLattice(queue));
  PALPATE_RETURN_IF_ERROR(made->GiveWeights(queue));
  return made;
}

/// The lattice to the device.
absl::Status CoarseCorrection::GiveLattice(Queue& queue) {
  const std::shared_ptr<Context>& context = queue.context();
  const size_t node_count = lattice_.cells.size();
  const uint32_t solved_count = lattice_.SolvedCount();
  std::vector<UInt2> node_slot(node_count, UInt2{kNoCoarseNode, kNoCoarseNode});
  std::vector<UInt4> solved_part(solved_count);
  std::vector<uint32_t> solved_node(solved_count, kNoCoarseNode);
  uint32_t place = 0;
  for (const CoarsePart& part : lattice_.parts) {
    for (uint32_t i = 0; i < part.solved_count; ++i) {
      solved_part[part.solved_begin + i] = {part.solved_begin, part.row_floats, static_cast<uint32_t>(part.inverse_begin / kCoarseRowUnit),
                                            place};
      if (part.has_stencils) continue;
      solved_node[part.solved_begin + i] = part.node_begin + i;
      node_slot[part.node_begin + i].x = place + 3 * i;
    }
    place += part.row_floats;
  }
  for (uint32_t i = 0; i < lattice_.stencils.nodes.size(); ++i) node_slot[lattice_.stencils.nodes[i]].y = i;
  PALPATE_RETURN_IF_ERROR(Set(queue, node_slot_, node_slot, "coarse node slots"));
  PALPATE_RETURN_IF_ERROR(Set(queue, solved_part_, solved_part, "coarse parts"));
  PALPATE_RETURN_IF_ERROR(Set(queue, solved_node_, solved_node, "coarse solved nodes"));
  PALPATE_RETURN_IF_ERROR(Set(queue, inverse_, lattice_.inverse, "coarse inverse"));
  const std::pair<DeviceBuffer<Float4>*, size_t> sizes[] = {
      {&node_move_, node_count}, {&rotations_, node_count}, {&solved_move_, solved_count}};
  for (const auto& [buffer, count] : sizes) PALPATE_RETURN_IF_ERROR(Grow(context, *buffer, std::max<size_t>(count, 1), "coarse nodes"));
  PALPATE_RETURN_IF_ERROR(Grow(context, node_force_, std::max(place, 1U), "coarse node forces"));
  PALPATE_RETURN_IF_ERROR(queue.Zero(node_force_));  // what pads the parts stays zero
  return GiveStencils(queue);
}

absl::Status CoarseCorrection::GiveStencils(Queue& queue) {
  const CoarseStencils& s = lattice_.stencils;
  PALPATE_RETURN_IF_ERROR(Set(queue, fine_nodes_, s.nodes, "coarse fine nodes"));
  PALPATE_RETURN_IF_ERROR(Set(queue, row_begins_, s.row_begins, "coarse rows"));
  PALPATE_RETURN_IF_ERROR(Set(queue, columns_, s.columns, "coarse columns"));
  PALPATE_RETURN_IF_ERROR(Set(queue, blocks_, s.blocks, "coarse blocks"));
  PALPATE_RETURN_IF_ERROR(Set(queue, inverse_diagonal_, s.inverse_diagonal, "coarse diagonal"));
  PALPATE_RETURN_IF_ERROR(Set(queue, parents_, s.parents, "coarse parents"));
  PALPATE_RETURN_IF_ERROR(Set(queue, parent_weights_, s.parent_weights, "coarse parent weights"));
  PALPATE_RETURN_IF_ERROR(Set(queue, child_begins_, s.child_begins, "coarse children begins"));
  PALPATE_RETURN_IF_ERROR(Set(queue, children_, s.children, "coarse children"));
  PALPATE_RETURN_IF_ERROR(Set(queue, child_weights_, s.child_weights, "coarse child weights"));
  for (DeviceBuffer<Float4>* buffer : {&residual_, &direction_, &next_direction_, &solution_}) {
    PALPATE_RETURN_IF_ERROR(Grow(queue.context(), *buffer, std::max<size_t>(s.nodes.size(), 1), "coarse fine values"));
  }
  return absl::OkStatus();
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
  corrected_mass_kg_ = 0;
  for (uint32_t s = 0; s < layout_.free_count; ++s) {
    const float* weights = &weights_.vertex_weights[size_t{s} * kCoarseCorners];
    if (std::any_of(weights, weights + kCoarseCorners, [](float w) { return w > 0; })) corrected_mass_kg_ += layout_.mass_kg[SolverSlot{s}];
  }
  std::vector<Float4> rest(layout_.vertex_count);
  for (uint32_t s = 0; s < layout_.vertex_count; ++s) rest[s] = layout_.rest_m[SolverSlot{s}];
  PALPATE_RETURN_IF_ERROR(Set(queue, rest_, rest, "coarse rest positions"));
  return BindNodes();
}

/// The arguments that stay until the lattice or the weights change.
absl::Status CoarseCorrection::BindNodes() {
  PALPATE_RETURN_IF_ERROR(gather_forces_.Bind(
      Arg("node_begins", node_begins_), Arg("entry_vertex", entry_vertex_), Arg("entry_weight", entry_weight_),
      Arg("node_frame", node_frame_), Arg("node_slot", node_slot_), Arg("rotations", rotations_), Arg("node_force", node_force_),
      Arg("inverse_diagonal", inverse_diagonal_), Arg("residual", residual_), Arg("solution", solution_)));
  PALPATE_RETURN_IF_ERROR(relax_nodes_.Bind(
      Arg("fine_count", static_cast<uint32_t>(lattice_.stencils.nodes.size())), Arg("row_begins", row_begins_), Arg("columns", columns_),
      Arg("blocks", blocks_), Arg("inverse_diagonal", inverse_diagonal_), Arg("fine_nodes", fine_nodes_), Arg("node_frame", node_frame_),
      Arg("rotations", rotations_), Arg("residual", residual_), Arg("solution", solution_), Arg("node_move", node_move_)));
  PALPATE_RETURN_IF_ERROR(restrict_residual_.Bind(Arg("child_begins", child_begins_), Arg("children", children_),
                                                  Arg("child_weights", child_weights_), Arg("solved_part", solved_part_),
                                                  Arg("residual", residual_), Arg("node_force", node_force_)));
  PALPATE_RETURN_IF_ERROR(prolong_moves_.Bind(Arg("parents", parents_), Arg("parent_weights", parent_weights_),
                                              Arg("solved_move", solved_move_), Arg("solution", solution_)));
  return solve_nodes_.Bind(Arg("solved_part", solved_part_), Arg("solved_node", solved_node_), Arg("node_frame", node_frame_),
                           Arg("rotations", rotations_), Arg("inverse", inverse_), Arg("node_force", node_force_),
                           Arg("solved_move", solved_move_), Arg("node_move", node_move_));
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
  archive.Check(IsConsistent(lattice_, layout_.solver_index.size()), "a coarse lattice of another mesh");
  PALPATE_RETURN_IF_ERROR(archive.status());
  PALPATE_RETURN_IF_ERROR(GiveLattice(queue));
  return GiveWeights(queue);
}

absl::Status CoarseCorrection::Begin(Queue& queue, const TissueBuffers& tissue) {
  const auto node_count = static_cast<uint32_t>(lattice_.cells.size());
  if (node_count == 0) return absl::OkStatus();
  return queue.Launch(turn_nodes_, {node_count, 0}, Arg("node_count", node_count), Arg("node_begins", node_begins_),
                      Arg("entry_vertex", entry_vertex_), Arg("entry_weight", entry_weight_), Arg("rest", rest_), Arg("x", tissue.x),
                      Arg("rotations", rotations_));
}

/// One step of smoothing; `keep` and `add` as of relax_nodes.
absl::Status CoarseCorrection::Relax(Queue& queue, double keep, double add) {
  const auto fine_count = static_cast<uint32_t>(lattice_.stencils.nodes.size());
  PALPATE_RETURN_IF_ERROR(queue.Launch(relax_nodes_, {fine_count, 0}, Arg("keep", static_cast<float>(keep)),
                                       Arg("add", static_cast<float>(add)), Arg("direction", direction_),
                                       Arg("next_direction", next_direction_)));
  std::swap(direction_, next_direction_);
  return absl::OkStatus();
}

/// From `forces` by slot to node_move_: a V-cycle of two levels where parts have stencils.
absl::Status CoarseCorrection::SolveNodes(Queue& queue, const DeviceBuffer<Float4>& forces) {
  const auto node_count = static_cast<uint32_t>(lattice_.cells.size());
  const auto fine_count = static_cast<uint32_t>(lattice_.stencils.nodes.size());
  const uint32_t solved_count = lattice_.SolvedCount();
  constexpr auto kSteps = SmoothingSteps();
  PALPATE_RETURN_IF_ERROR(queue.Launch(gather_forces_, {node_count, 0}, Arg("node_count", node_count), Arg("forces", forces),
                                       Arg("first", static_cast<float>(kSteps[0].add)), Arg("direction", direction_)));
  if (fine_count > 0) {
    for (size_t k = 1; k < kSteps.size(); ++k) PALPATE_RETURN_IF_ERROR(Relax(queue, kSteps[k].keep, kSteps[k].add));
    PALPATE_RETURN_IF_ERROR(Relax(queue, 0, 0));  // what the last direction leaves
    PALPATE_RETURN_IF_ERROR(queue.Launch(restrict_residual_, {solved_count, 0}, Arg("solved_count", solved_count)));
  }
  PALPATE_RETURN_IF_ERROR(queue.Enqueue(solve_nodes_, {size_t{solved_count} * group_size_, group_size_}));
  if (fine_count == 0) return absl::OkStatus();
  PALPATE_RETURN_IF_ERROR(queue.Launch(prolong_moves_, {fine_count, 0}, Arg("fine_count", fine_count), Arg("direction", direction_)));
  for (const SmoothingStep& step : kSteps) PALPATE_RETURN_IF_ERROR(Relax(queue, step.keep, step.add));
  return absl::OkStatus();
}

/// Whether the forces at the start of a correction are within the tolerance. Blocking.
absl::StatusOr<bool> CoarseCorrection::IsEnough(Queue& queue, const TissueBuffers& tissue) {
  PALPATE_RETURN_IF_ERROR(queue.Launch(sum_left_, Partials(), Arg("free_count", layout_.free_count), Arg("vertex_weights", vertex_weights_),
                                       Arg("forces", forces_), Arg("mass", tissue.mass), Arg("sums", sums_start_)));
  std::vector<float> sums(items_);
  PALPATE_RETURN_IF_ERROR(queue.ReadBlocking(sums_start_, std::span<float>(sums)));
  const double sum = std::accumulate(sums.begin(), sums.end(), 0.0);
  return sum <= tolerance_m_per_s2_ * tolerance_m_per_s2_ * corrected_mass_kg_;
}

/// From node_move_ to moves by slot, of vertices that nothing holds; to trial_ where they lead, and to sums_start_ what `forces` do along
/// them.
absl::Status CoarseCorrection::SpreadMoves(Queue& queue, const TissueBuffers& tissue, const DeviceBuffer<Float4>& forces,
                                           const DeviceBuffer<Float4>& moves) {
  return queue.Launch(spread_moves_, Partials(), Arg("vertex_count", layout_.vertex_count), Arg("free_count", layout_.free_count),
                      Arg("vertex_nodes", vertex_nodes_), Arg("vertex_weights", vertex_weights_), Arg("node_move", node_move_),
                      Arg("forces", forces), Arg("x", tissue.x), Arg("moves", moves), Arg("trial", trial_), Arg("sums", sums_start_));
}

/// The moves that moves_ become where bodies keep their volume, which the lattice's matrix does not know of: it grows by a matrix of rank
/// one for each body.
absl::Status CoarseCorrection::KeepVolumes(Queue& queue, const TissueBuffers& tissue, TissueSweeps& sweeps) {
  VolumeKeeper& volumes = *sweeps.volumes();
  PALPATE_RETURN_IF_ERROR(sweeps.EnqueueVolumeGradients(queue, forces_, gradients_));
  PALPATE_RETURN_IF_ERROR(SolveNodes(queue, gradients_));
  PALPATE_RETURN_IF_ERROR(SpreadMoves(queue, tissue, gradients_, yields_));
  PALPATE_RETURN_IF_ERROR(volumes.ShareYields(queue, gradients_, moves_, yields_));
  return queue.Launch(give_way_, Partials(), Arg("free_count", layout_.free_count), Arg("slot_body", volumes.slot_body()),
                      Arg("shares", volumes.shares()), Arg("yields", yields_), Arg("forces", forces_), Arg("x", tissue.x),
                      Arg("moves", moves_), Arg("trial", trial_), Arg("sums", sums_start_));
}

/// To sums_end_ and, where tets have stresses, tet_sums_: the force along the moves at the positions trial_, with the contacts there. These
/// are where the moves lead, or with `has_share` their share.
absl::Status CoarseCorrection::SumAtTrial(Queue& queue, const TissueBuffers& tissue, bool has_share, ToolContacts& tools,
                                          TissueSweeps& sweeps) {
  PALPATE_RETURN_IF_ERROR(tools.Try(queue, trial_));
  PALPATE_RETURN_IF_ERROR(sweeps.Press(queue, tissue, trial_, KeptPressure::kOfThisSweep));
  uint32_t parts = kAllForces;
  if (sweeps.HasStresses()) {
    parts = (parts & ~uint32_t{kElasticForces}) | kPressureForces;
    PALPATE_RETURN_IF_ERROR(has_share ? sweeps.WorkOnLine(queue, Partials(), share_, tet_sums_)
                                      : sweeps.BeginLine(queue, Partials(), tissue, moves_, tet_sums_));
  }
  PALPATE_RETURN_IF_ERROR(sweeps.EnqueueForces(queue, layout_.free_count, parts, trial_, trial_forces_));
  return queue.Launch(sum_along_, Partials(), Arg("free_count", layout_.free_count), Arg("forces", trial_forces_), Arg("moves", moves_),
                      Arg("sums", sums_end_));
}

absl::StatusOr<bool> CoarseCorrection::Correct(Queue& queue, const TissueBuffers& tissue, ToolContacts& tools, TissueSweeps& sweeps) {
  const auto node_count = static_cast<uint32_t>(lattice_.cells.size());
  if (node_count == 0) return true;
  const auto has_tets = Arg("has_tets", uint32_t{sweeps.HasStresses() ? 1U : 0U});
  PALPATE_RETURN_IF_ERROR(tools.Update(queue, tissue));
  PALPATE_RETURN_IF_ERROR(sweeps.Update(queue, tissue));
  const bool is_judged = tolerance_m_per_s2_ > 0;
  if (is_judged) {  // by pressures that differ as long as multipliers follow
    PALPATE_RETURN_IF_ERROR(sweeps.Press(queue, tissue, tissue.x, KeptPressure::kOfNextSweep));
    PALPATE_RETURN_IF_ERROR(sweeps.EnqueueForces(queue, layout_.free_count, kAllForces, tissue.x, forces_));
    PALPATE_ASSIGN_OR_RETURN(const bool is_enough, IsEnough(queue, tissue));
    if (is_enough) return false;
  }
  if (!is_judged || sweeps.keeps_volumes()) {
    PALPATE_RETURN_IF_ERROR(sweeps.Press(queue, tissue, tissue.x, KeptPressure::kOfThisSweep));
    PALPATE_RETURN_IF_ERROR(sweeps.EnqueueForces(queue, layout_.free_count, kAllForces, tissue.x, forces_));
  }
  PALPATE_RETURN_IF_ERROR(SolveNodes(queue, forces_));
  PALPATE_RETURN_IF_ERROR(SpreadMoves(queue, tissue, forces_, moves_));
  if (sweeps.keeps_volumes()) PALPATE_RETURN_IF_ERROR(KeepVolumes(queue, tissue, sweeps));
  PALPATE_RETURN_IF_ERROR(SumAtTrial(queue, tissue, /*has_share=*/false, tools, sweeps));
  PALPATE_RETURN_IF_ERROR(queue.Launch(find_share_, {1, 1}, Arg("count", items_), Arg("sums_start", sums_start_),
                                       Arg("sums_end", sums_end_), has_tets, Arg("tet_sums", tet_sums_), Arg("share", share_)));
  PALPATE_RETURN_IF_ERROR(queue.Launch(try_share_, {layout_.free_count, 0}, Arg("free_count", layout_.free_count), Arg("x", tissue.x),
                                       Arg("moves", moves_), Arg("share", share_), Arg("trial", trial_)));
  PALPATE_RETURN_IF_ERROR(SumAtTrial(queue, tissue, /*has_share=*/true, tools, sweeps));
  PALPATE_RETURN_IF_ERROR(queue.Launch(judge_share_, {1, 1}, Arg("count", items_), Arg("sums_start", sums_start_),
                                       Arg("sums_end", sums_end_), has_tets, Arg("tet_sums", tet_sums_), Arg("share", share_)));
  PALPATE_RETURN_IF_ERROR(sweeps.MoveAlong(queue, moves_, share_));
  PALPATE_RETURN_IF_ERROR(tools.Update(queue, tissue));  // no longer those of a trial
  return true;
}

size_t CoarseCorrection::device_bytes() const {
  size_t bytes = node_slot_.size_bytes() + solved_part_.size_bytes();
  for (const DeviceBuffer<uint32_t>* buffer : {&node_begins_, &node_frame_, &entry_vertex_, &vertex_nodes_, &solved_node_, &fine_nodes_,
                                               &row_begins_, &columns_, &parents_, &child_begins_, &children_}) {
    bytes += buffer->size_bytes();
  }
  for (const DeviceBuffer<float>* buffer : {&inverse_, &entry_weight_, &vertex_weights_, &node_force_, &sums_start_, &sums_end_, &tet_sums_,
                                            &share_, &parent_weights_, &child_weights_}) {
    bytes += buffer->size_bytes();
  }
  for (const DeviceBuffer<Float4>* buffer :
       {&rest_, &rotations_, &node_move_, &solved_move_, &forces_, &trial_forces_, &moves_, &trial_, &blocks_, &inverse_diagonal_,
        &residual_, &direction_, &next_direction_, &solution_, &gradients_, &yields_}) {
    bytes += buffer->size_bytes();
  }
  return bytes;
}

}  // namespace palpate::gpu
