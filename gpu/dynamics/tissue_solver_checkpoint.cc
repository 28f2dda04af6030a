// The state as bytes and back: what a solver that is made of the same model needs to go on with the same bits.
#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gpu/dynamics/packed_types.h"
#include "gpu/dynamics/tissue_solver_impl.h"

namespace palpate::gpu {
namespace {

bool IsFinite(const Float4& v) { return std::isfinite(v.x) && std::isfinite(v.y) && std::isfinite(v.z) && std::isfinite(v.w); }

template <typename T>
absl::Status SaveBuffer(Queue& queue, const DeviceBuffer<T>& buffer, StateWriter& archive) {
  std::vector<T> values(buffer.count());
  if (!values.empty()) PALPATE_RETURN_IF_ERROR(queue.ReadBlocking(buffer, std::span<T>(values)));
  archive(values);
  return absl::OkStatus();
}

template <typename T>
absl::StatusOr<std::vector<T>> LoadBuffer(Queue& queue, const DeviceBuffer<T>& buffer, const char* what, StateReader& archive) {
  std::vector<T> values;
  archive(values);
  archive.Check(values.size() == buffer.count(), what);
  PALPATE_RETURN_IF_ERROR(archive.status());
  if (!values.empty()) PALPATE_RETURN_IF_ERROR(queue.Write(buffer, std::span<const T>(values)));
  return values;
}

}  // namespace

absl::Status TissueSolver::Impl::SaveState(StateWriter& archive) {
  // All members, so that a new one is not forgotten. Not saved: what the caller gives (queue, options, tuning, anchors, prescribed and
  // gathered vertices), what follows from the model and the layout (params, air, restitution, loads, driven, followers), kernels, and what
  // lives for one step (component_shifts, barrier, state_check, energy, reports, control_points, nurbs_supports).
  [[maybe_unused]] auto& [queue, options, tuning, layout, edits, params, tissue, steps, sweep_count, predict, air, restitution, loads,
                          driven, rigid, nurbs, followers, control_points, nurbs_supports, surface, surface_generation, surface_reports,
                          tools, aims, anchors, sweeps, correction, component_shifts, barrier, gate, runs_ahead, ahead, passing_colliders,
                          clock, state_check, gathered, recovery, energy] = *this;
  archive(LayoutToSave(), edits ? uint64_t{edits->delta_bytes} : uint64_t{0}, steps, passing_colliders, recovery, aims);
  PALPATE_RETURN_IF_ERROR(SaveBuffers(archive));
  PALPATE_RETURN_IF_ERROR(tools.SaveState(*queue, layout, archive));
  PALPATE_RETURN_IF_ERROR(sweeps.SaveState(*queue, archive));
  if (correction) PALPATE_RETURN_IF_ERROR(correction->SaveState(archive));
  if (rigid) PALPATE_RETURN_IF_ERROR(rigid->SaveState(*queue, archive));
  if (nurbs) PALPATE_RETURN_IF_ERROR(nurbs->SaveState(*queue, archive));
  return surface ? surface->SaveState(*queue, archive) : absl::OkStatus();
}

TissueSolver::Impl::SavedLayout TissueSolver::Impl::LayoutToSave() const {
  SavedLayout saved;
  saved.lanes = layout_.lanes;
  saved.option_stiffness_n_per_m = options_.stiffness_n_per_m;
  saved.stiffness_n_per_m = params_host_.stiffness_n_per_m;
  if (edits_) saved.skeleton = edits_->editor.Skeleton();
  return saved;
}

absl::Status TissueSolver::Impl::LoadState(StateReader& archive) {
  uint64_t delta_bytes = 0;
  archive(delta_bytes, steps_, passing_colliders_, recovery_, aims_);
  PALPATE_RETURN_IF_ERROR(archive.status());
  if (edits_) edits_->delta_bytes = delta_bytes;
  params_host_.lambda_cap = recovery_.lambda_cap();
  PALPATE_RETURN_IF_ERROR(WriteParams());
  PALPATE_RETURN_IF_ERROR(LoadBuffers(archive));
  PALPATE_RETURN_IF_ERROR(tools_.LoadState(*queue_, layout_, archive));
  PALPATE_RETURN_IF_ERROR(sweeps_.LoadState(*queue_, archive));
  if (correction_) PALPATE_RETURN_IF_ERROR(correction_->LoadState(*queue_, archive));
  if (rigid_) PALPATE_RETURN_IF_ERROR(rigid_->LoadState(*queue_, archive));
  if (nurbs_) PALPATE_RETURN_IF_ERROR(nurbs_->LoadState(*queue_, archive));
  if (surface_) PALPATE_RETURN_IF_ERROR(surface_->LoadState(*queue_, archive, tissue_.x));
  PALPATE_RETURN_IF_ERROR(state_check_.Inspect(*queue_));
  PALPATE_RETURN_IF_ERROR(archive.status());
  return queue_->FinishBlocking();
}

/// Of TissueBuffers what a step reads before it writes it, and is not the layout. The start of a step is where the one before ended.
absl::Status TissueSolver::Impl::SaveBuffers(StateWriter& archive) {
  [[maybe_unused]] auto& [params, x, x_start, y, velocity, velocity_before, x_before, x_before2, rest, u, u_start, touched, gate, mass,
                          mass_damping, original_index, held_axes, block_range, vertex_triangle_range, block_vertex, corner_index,
                          vertex_triangles, corner_real, corner_strain, tets, triangles, tet_rest, tet_moduli, rotations, corner_turns] =
      tissue_;
  archive.Enter("TissueBuffers");
  PALPATE_RETURN_IF_ERROR(SaveBuffer(*queue_, x, archive));
  PALPATE_RETURN_IF_ERROR(SaveBuffer(*queue_, velocity, archive));
  PALPATE_RETURN_IF_ERROR(SaveBuffer(*queue_, velocity_before, archive));
  if (u.count() > 0) PALPATE_RETURN_IF_ERROR(SaveBuffer(*queue_, u, archive));
  PALPATE_RETURN_IF_ERROR(SaveBuffer(*queue_, touched, archive));
  return SaveBuffer(*queue_, rotations, archive);
}

absl::Status TissueSolver::Impl::LoadBuffers(StateReader& archive) {
  archive.Enter("TissueBuffers");
  std::vector<Float4> positions;
  for (const DeviceBuffer<Float4>* buffer : {&tissue_.x, &tissue_.velocity, &tissue_.velocity_before}) {
    PALPATE_ASSIGN_OR_RETURN(std::vector<Float4> values, LoadBuffer(*queue_, *buffer, "another number of vertices", archive));
    archive.Check(std::all_of(values.begin(), values.end(), IsFinite), "a position or a velocity is not finite");
    if (buffer == &tissue_.x) positions = std::move(values);
  }
  if (layout_.IsDisplaced()) {
    PALPATE_ASSIGN_OR_RETURN(const std::vector<Float4> values, LoadBuffer(*queue_, tissue_.u, "another number of vertices", archive));
    archive.Check(std::all_of(values.begin(), values.end(), IsFinite), "a displacement is not finite");
  }
  PALPATE_RETURN_IF_ERROR(LoadBuffer(*queue_, tissue_.touched, "another number of vertices", archive).status());
  PALPATE_RETURN_IF_ERROR(LoadBuffer(*queue_, tissue_.rotations, "another number of tets", archive).status());
  PALPATE_RETURN_IF_ERROR(driven_.Hold(*queue_, layout_, positions));
  return queue_->Copy(tissue_.x, tissue_.x_start, layout_.vertex_count);
}

absl::Status TissueSolver::SaveState(StateWriter& archive) {
  archive(edit_counts_.deltas, edit_counts_.rebuilds, uint64_t{edit_counts_.delta_bytes});
  return impl_->SaveState(archive);
}

absl::StatusOr<bool> TissueSolver::LoadState(std::string_view state) {
  constexpr const char* kSection = "checkpoint: section solver";
  EditCounts counts;
  uint64_t delta_bytes = 0;
  StateReader head(state, kSection);
  head(counts.deltas, counts.rebuilds, delta_bytes);
  counts.delta_bytes = delta_bytes;
  StateWriter same;
  same(counts.deltas, counts.rebuilds, delta_bytes, impl_->LayoutToSave());
  if (!head.ok() || !state.starts_with(same.bytes())) return false;
  StateReader archive(state.substr(same.bytes().size()), kSection);
  PALPATE_RETURN_IF_ERROR(impl_->Reset());
  PALPATE_RETURN_IF_ERROR(impl_->LoadState(archive));
  PALPATE_RETURN_IF_ERROR(archive.Finish());
  edit_counts_ = counts;
  return true;
}

absl::StatusOr<std::unique_ptr<TissueSolver>> TissueSolver::Restore(std::shared_ptr<Context> context, const TissueModel& model,
                                                                    const TissueOptions& options,
                                                                    std::span<const ColliderDescription> colliders,
                                                                    std::span<const PlaneObstacle> planes, const TissueTuning& tuning,
                                                                    StateReader& archive, TissueSolver* old) {
  EditCounts counts;
  uint64_t delta_bytes = 0;
  Impl::SavedLayout saved;
  archive(counts.deltas, counts.rebuilds, delta_bytes, saved);
  counts.delta_bytes = delta_bytes;
  PALPATE_RETURN_IF_ERROR(archive.status());
  if (!(saved.stiffness_n_per_m > 0) || !std::isfinite(saved.stiffness_n_per_m) || !(saved.option_stiffness_n_per_m >= 0)) {
    return absl::InvalidArgumentError("the state has no contact stiffness");
  }
  if (saved.lanes != tuning.lanes || (saved.skeleton && saved.skeleton->lanes != saved.lanes)) {
    return absl::InvalidArgumentError(
        absl::StrCat("the state was laid out for a device of ", saved.lanes, " lanes, and this one is driven with ", tuning.lanes));
  }
  std::shared_ptr<Queue> queue;
  if (old != nullptr) {
    queue = old->impl_->queue();
  } else {
    PALPATE_ASSIGN_OR_RETURN(queue, Queue::Create(std::move(context)));
  }
  auto impl = std::make_unique<Impl>();
  PALPATE_RETURN_IF_ERROR(
      impl->Init(std::move(queue), model, options, colliders, planes, tuning, old == nullptr ? nullptr : old->impl_.get(), &saved));
  PALPATE_RETURN_IF_ERROR(impl->Reset());
  PALPATE_RETURN_IF_ERROR(impl->LoadState(archive));
  std::unique_ptr<TissueSolver> solver(new TissueSolver(std::move(impl)));
  solver->edit_counts_ = counts;
  return solver;
}

}  // namespace palpate::gpu
