// The state: set, read, carried on into the layout after an edit.
#include <algorithm>
#include <vector>

#include "gpu/dynamics/tissue_solver_impl.h"

namespace palpate::gpu {

/// Whether an edit reaches shape-matched bodies: tets of them changed, or slots that were theirs.
bool TissueSolver::Impl::TouchesShapes(const TissueModel& model, const TissueChange& change, const TissueLayoutDelta& delta) const {
  return std::any_of(delta.slots.begin(), delta.slots.end(), [&](uint32_t slot) { return has_goal_[slot] != 0; }) ||
         std::any_of(change.tets.begin(), change.tets.end(), [&](uint32_t t) {
           return t < model.tets.size() && !LayoutEntries::IsFree(model.tets[t]) && model.tets[t].energy == TissueEnergy::kShapeMatched;
         });
}

absl::Status TissueSolver::Impl::Reset() {
  recovery_.Stop();
  steps_ = 0;
  params_host_.lambda_cap = PALPATE_LAMBDA_UNCAPPED;
  PALPATE_RETURN_IF_ERROR(WriteParams());
  PALPATE_RETURN_IF_ERROR(queue_->Write(tissue_.x, std::span<const Float4>(rest_positions_)));
  if (rigid_) PALPATE_RETURN_IF_ERROR(rigid_->Reset(*queue_, tissue_.x, tissue_.touched));
  PALPATE_RETURN_IF_ERROR(queue_->Copy(tissue_.x, tissue_.x_start, layout_.vertex_count));
  PALPATE_RETURN_IF_ERROR(queue_->Fill(tissue_.velocity, Float4{}));
  PALPATE_RETURN_IF_ERROR(queue_->Fill(tissue_.velocity_before, FallenFromRest()));
  PALPATE_RETURN_IF_ERROR(queue_->Fill(triangle_colliders_, 0U));
  PALPATE_RETURN_IF_ERROR(queue_->Fill(list_, 0U));
  if (tissue_.rotations.count() > 0) PALPATE_RETURN_IF_ERROR(queue_->Fill(tissue_.rotations, Float4{0, 0, 0, 1}));
  if (volumes_) PALPATE_RETURN_IF_ERROR(volumes_->Reset(*queue_));
  PALPATE_RETURN_IF_ERROR(SetAnchors({}, 0));
  PALPATE_RETURN_IF_ERROR(driven_.Hold(*queue_, layout_, rest_positions_));
  if (!initial_colliders_.empty()) {
    PALPATE_RETURN_IF_ERROR(queue_->Write(colliders_, std::span<const Collider>(initial_colliders_)));
  }
  colliders_host_ = initial_colliders_;
  std::fill(blocked_m_.begin(), blocked_m_.end(), 0.0);
  std::fill(aims_.begin(), aims_.end(), ColliderAim{});
  if (surface_) {
    was_given_tangled_ = false;
    PALPATE_RETURN_IF_ERROR(surface_->SetSelfCollision(*queue_, true));
    PALPATE_RETURN_IF_ERROR(surface_->Reset(*queue_, tissue_.x));
  }
  PALPATE_RETURN_IF_ERROR(queue_->Enqueue(finish_step_, Partials()));
  return queue_->FinishBlocking();
}

absl::Status TissueSolver::Impl::CheckFloats(size_t count) const {
  if (count == layout_.solver_index.size() * 3) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(count, " floats for ", layout_.solver_index.size(), " vertices"));
}

/// From the solver's order to the caller's; absent vertices have zeros.
void TissueSolver::Impl::ScatterScratch(std::span<float> values) const {
  for (size_t v = 0; v < layout_.solver_index.size(); ++v) {
    const uint32_t slot = layout_.solver_index[v];
    const Float4 value = slot == kNoTissueVertex ? Float4{} : scratch_[slot];
    values[3 * v] = value.x;
    values[3 * v + 1] = value.y;
    values[3 * v + 2] = value.z;
  }
}

absl::Status TissueSolver::Impl::ReadPositions(std::span<float> positions_m) {
  PALPATE_RETURN_IF_ERROR(CheckFloats(positions_m.size()));
  PALPATE_RETURN_IF_ERROR(queue_->ReadBlocking(tissue_.x, std::span<Float4>(scratch_)));
  ScatterScratch(positions_m);
  return absl::OkStatus();
}

absl::Status TissueSolver::Impl::WriteState(std::span<const float> positions_m, std::span<const float> velocities) {
  const size_t n = layout_.vertex_count;
  PALPATE_RETURN_IF_ERROR(CheckFloats(positions_m.size()));
  if (!velocities.empty()) PALPATE_RETURN_IF_ERROR(CheckFloats(velocities.size()));
  const auto ordered = [&](std::span<const float> values) {
    for (size_t i = 0; i < n; ++i) {
      scratch_[i] = {};
      if (layout_.original_index[i] == kNoTissueVertex) continue;
      const float* const v = &values[size_t{layout_.original_index[i]} * 3];
      scratch_[i] = {v[0], v[1], v[2], 0.0F};
    }
    return std::span<const Float4>(scratch_);
  };
  PALPATE_RETURN_IF_ERROR(queue_->Write(tissue_.x, ordered(positions_m)));
  PALPATE_RETURN_IF_ERROR(driven_.Hold(*queue_, layout_, scratch_));
  if (rigid_) {
    const std::vector<Float4> positions = scratch_;
    std::vector<Float4> speeds;
    if (!velocities.empty()) {
      const auto given = ordered(velocities);
      speeds.assign(given.begin(), given.end());
    }
    PALPATE_RETURN_IF_ERROR(rigid_->Fit(*queue_, positions, speeds, tissue_.x, tissue_.touched));
  }
  if (volumes_) PALPATE_RETURN_IF_ERROR(volumes_->Reset(*queue_));
  PALPATE_RETURN_IF_ERROR(queue_->Copy(tissue_.x, tissue_.x_start, n));
  if (surface_) {
    // A mesh inside out must pass through itself to find its shape.
    PALPATE_RETURN_IF_ERROR(queue_->Enqueue(finish_step_, Partials()));
    PALPATE_RETURN_IF_ERROR(queue_->ReadBlocking(partials_, std::span<StepPartial>(partials_host_)));
    uint32_t inverted = 0;
    for (const StepPartial& partial : partials_host_) inverted += partial.inverted_tets;
    was_given_tangled_ = inverted > kTangledShare * static_cast<double>(layout_.live_tet_count);
    if (was_given_tangled_) {
      recovery_.Start();
      params_host_.lambda_cap = recovery_.lambda_cap();
      PALPATE_RETURN_IF_ERROR(WriteParams());
    }
    PALPATE_RETURN_IF_ERROR(surface_->SetSelfCollision(*queue_, !was_given_tangled_));
    PALPATE_RETURN_IF_ERROR(surface_->Reset(*queue_, tissue_.x));
  }
  if (velocities.empty()) {
    PALPATE_RETURN_IF_ERROR(queue_->Fill(tissue_.velocity, Float4{}));
    return queue_->Fill(tissue_.velocity_before, FallenFromRest());
  }
  ordered(velocities);
  for (size_t i = 0; i < n; ++i) {
    if (layout_.held_axes[i] & 1U) scratch_[i].x = 0;
    if (layout_.held_axes[i] & 2U) scratch_[i].y = 0;
    if (layout_.held_axes[i] & 4U) scratch_[i].z = 0;
  }
  PALPATE_RETURN_IF_ERROR(queue_->Write(tissue_.velocity, std::span<const Float4>(scratch_)));
  const Float4 before = FallenFromRest();
  for (size_t i = 0; i < n; ++i) {
    Float4& v = scratch_[i];
    const float braked = 1 + params_host_.dt_s * layout_.mass_damping_per_s[i];
    v = {braked * v.x + before.x, braked * v.y + before.y, braked * v.z + before.z, 0.0F};
  }
  return queue_->Write(tissue_.velocity_before, std::span<const Float4>(scratch_));
}

absl::Status TissueSolver::Impl::ReadState(std::span<TissueVertexState> states) {
  const size_t n = layout_.vertex_count;
  if (states.size() != layout_.solver_index.size()) {
    return absl::InvalidArgumentError(absl::StrCat(states.size(), " states for ", layout_.solver_index.size(), " vertices"));
  }
  std::vector<Float4> velocities(n);
  std::vector<Float4> velocities_before(n);
  PALPATE_RETURN_IF_ERROR(queue_->EnqueueRead(tissue_.x, std::span<Float4>(scratch_)));
  PALPATE_RETURN_IF_ERROR(queue_->EnqueueRead(tissue_.velocity, std::span<Float4>(velocities)));
  PALPATE_RETURN_IF_ERROR(queue_->ReadBlocking(tissue_.velocity_before, std::span<Float4>(velocities_before)));
  for (size_t v = 0; v < states.size(); ++v) {
    const uint32_t i = layout_.solver_index[v];
    states[v] = i == kNoTissueVertex ? TissueVertexState{} : TissueVertexState{scratch_[i], velocities[i], velocities_before[i]};
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<TissueSolver::Impl>> TissueSolver::Impl::Rebuilt(const TissueModel& model,
                                                                                std::span<const TissueVertexState> states) {
  if (states.size() != model.rest_m.size()) {
    return absl::InvalidArgumentError(absl::StrCat(states.size(), " states for ", model.rest_m.size(), " vertices"));
  }
  auto next = std::make_unique<Impl>();
  PALPATE_RETURN_IF_ERROR(next->Init(queue_, model, options_, collider_descriptions_, plane_obstacles_, tuning_, this));
  PALPATE_RETURN_IF_ERROR(next->GoOnFrom(*this, states));
  return next;
}

absl::Status TissueSolver::Impl::GoOnFrom(Impl& old, std::span<const TissueVertexState> states) {
  const uint32_t n = layout_.vertex_count;
  const float stiffness_n_per_m = old.params_host_.stiffness_n_per_m;
  params_host_.stiffness_n_per_m = stiffness_n_per_m;
  params_host_.lambda_cap = old.params_host_.lambda_cap;
  PALPATE_RETURN_IF_ERROR(WriteParams());
  steps_ = old.steps_;
  was_given_tangled_ = old.was_given_tangled_;
  recovery_ = old.recovery_;
  initial_colliders_ = old.initial_colliders_;
  PALPATE_RETURN_IF_ERROR(queue_->Copy(old.colliders_, colliders_, colliders_.count()));
  colliders_host_ = old.colliders_host_;
  blocked_m_ = old.blocked_m_;
  aims_ = old.aims_;
  passing_colliders_ = old.passing_colliders_;

  std::vector<Float4> positions(n);
  std::vector<Float4> velocities(n);
  std::vector<Float4> velocities_before(n);
  for (uint32_t i = 0; i < n; ++i) {
    if (layout_.original_index[i] == kNoTissueVertex) continue;
    const TissueVertexState& state = states[layout_.original_index[i]];
    positions[i] = state.position_m;
    velocities[i] = state.velocity_m_per_s;
    velocities_before[i] = state.velocity_before_m_per_s;
  }
  PALPATE_RETURN_IF_ERROR(queue_->Write(tissue_.x, std::span<const Float4>(positions)));
  PALPATE_RETURN_IF_ERROR(driven_.Hold(*queue_, layout_, positions));
  PALPATE_RETURN_IF_ERROR(queue_->Write(tissue_.velocity, std::span<const Float4>(velocities)));
  PALPATE_RETURN_IF_ERROR(queue_->Write(tissue_.velocity_before, std::span<const Float4>(velocities_before)));
  if (tissue_.rotations.count() > 0) PALPATE_RETURN_IF_ERROR(queue_->Fill(tissue_.rotations, Float4{0, 0, 0, 1}));
  PALPATE_RETURN_IF_ERROR(ForgetContacts());
  if (rigid_) PALPATE_RETURN_IF_ERROR(rigid_->GoOnFrom(*queue_, *old.rigid_));
  if (volumes_ && old.volumes_) PALPATE_RETURN_IF_ERROR(volumes_->GoOnFrom(*queue_, *old.volumes_));
  if (surface_) {
    PALPATE_RETURN_IF_ERROR(surface_->SetSelfCollision(*queue_, !was_given_tangled_));
    PALPATE_RETURN_IF_ERROR(surface_->Reset(*queue_, tissue_.x));
  }
  return queue_->FinishBlocking();
}

/// After an edit: the state is that of the end of a step in which nothing touched a tool.
absl::Status TissueSolver::Impl::ForgetContacts() {
  PALPATE_RETURN_IF_ERROR(queue_->Enqueue(inspect_state_, Partials()));
  PALPATE_RETURN_IF_ERROR(queue_->Copy(tissue_.x, tissue_.x_start, layout_.vertex_count));
  PALPATE_RETURN_IF_ERROR(queue_->Fill(triangle_colliders_, 0U));
  return queue_->Fill(list_, 0U, 1);
}

/// Hands the changed entries to writer_.
absl::Status TissueSolver::Impl::WriteDelta(const TissueLayoutDelta& delta, std::span<const TissueVertexState> states) {
  const size_t lanes = layout_.lanes;
  RunWriter& w = *writer_;
  PALPATE_RETURN_IF_ERROR(w.Add(tissue_.params, std::span<const StepParams>(&params_host_, 1), 0));
  PALPATE_RETURN_IF_ERROR(w.AddElements(tissue_.mass, layout_.mass_kg, delta.slots));
  PALPATE_RETURN_IF_ERROR(w.AddElements(tissue_.mass_damping, layout_.mass_damping_per_s, delta.slots));
  PALPATE_RETURN_IF_ERROR(w.AddElements(tissue_.held_axes, layout_.held_axes, delta.slots));
  PALPATE_RETURN_IF_ERROR(w.AddElements(tissue_.original_index, layout_.original_index, delta.slots));
  PALPATE_RETURN_IF_ERROR(w.AddElements(tissue_.block_range, layout_.block_range, delta.slots));
  PALPATE_RETURN_IF_ERROR(w.AddElements(tissue_.vertex_triangle_range, layout_.vertex_triangle_range, delta.slots));
  PALPATE_RETURN_IF_ERROR(w.AddElements(tissue_.vertex_triangles, layout_.vertex_triangles, delta.fan_places));
  PALPATE_RETURN_IF_ERROR(w.AddElements(tissue_.block_vertex, layout_.block_vertex, delta.blocks));
  PALPATE_RETURN_IF_ERROR(w.AddElements(tissue_.corner_real, layout_.corner_real, delta.blocks, layout_.corner_reals * lanes));
  PALPATE_RETURN_IF_ERROR(w.AddElements(tissue_.corner_index, layout_.corner_index, delta.blocks, 4 * lanes));
  PALPATE_RETURN_IF_ERROR(w.AddElements(tissue_.tets, layout_.tets, delta.tets));
  PALPATE_RETURN_IF_ERROR(w.AddElements(tissue_.tet_rest, layout_.tet_rest, delta.tets, 3));
  PALPATE_RETURN_IF_ERROR(w.AddElements(tissue_.triangles, layout_.triangles, delta.triangles));
  const Float4 identity{0, 0, 0, 1};
  for (const uint32_t t : delta.tets) {
    if (tissue_.rotations.count() > 0) PALPATE_RETURN_IF_ERROR(w.Add(tissue_.rotations, std::span<const Float4>(&identity, 1), t));
  }
  const auto write_state = [&](uint32_t slot, const TissueVertexState& state) -> absl::Status {
    PALPATE_RETURN_IF_ERROR(w.Add(tissue_.x, std::span<const Float4>(&state.position_m, 1), slot));
    PALPATE_RETURN_IF_ERROR(w.Add(tissue_.velocity, std::span<const Float4>(&state.velocity_m_per_s, 1), slot));
    return w.Add(tissue_.velocity_before, std::span<const Float4>(&state.velocity_before_m_per_s, 1), slot);
  };
  for (const uint32_t slot : delta.slots) {
    if (layout_.original_index[slot] == kNoTissueVertex) PALPATE_RETURN_IF_ERROR(write_state(slot, {}));
  }
  for (const uint32_t v : delta.state_vertices) PALPATE_RETURN_IF_ERROR(write_state(layout_.solver_index[v], states[v]));
  return absl::OkStatus();
}

absl::StatusOr<bool> TissueSolver::Impl::Update(const TissueModel& model, const TissueChange& change,
                                                std::span<const TissueVertexState> states) {
  if (states.size() != model.rest_m.size()) {
    return absl::InvalidArgumentError(absl::StrCat(states.size(), " states for ", model.rest_m.size(), " vertices"));
  }
  const bool had_surface_contact = layout_.has_surface_contact;
  const bool has_surface_contact = model.self_collision.size() > 1 || (!model.self_collision.empty() && model.self_collision[0] != 0);
  if (!editor_ || has_surface_contact != had_surface_contact) return false;
  if (driven_.prescribed_count() > 0 || !model.prescribed.vertices.empty()) return false;
  if ((volumes_ != nullptr) != KeepsVolumes(model)) return false;
  PALPATE_ASSIGN_OR_RETURN(const bool fits, editor_->Apply(model, change));
  if (!fits) return false;
  const TissueLayoutDelta& delta = editor_->delta();
  params_host_.triangle_count = layout_.triangle_count;
  params_host_.tet_count = layout_.tet_count;
  for (const uint32_t slot : delta.slots) rest_positions_[slot] = layout_.rest_m[slot];
  PALPATE_RETURN_IF_ERROR(WriteDelta(delta, states));
  if (surface_) {
    PALPATE_ASSIGN_OR_RETURN(const bool follows, surface_->Follow(delta, &*writer_));
    if (!follows) return false;
  }
  delta_bytes_ = writer_->pending_bytes();
  PALPATE_RETURN_IF_ERROR(writer_->Flush(*queue_));
  PALPATE_RETURN_IF_ERROR(start_strain_.Bind(Arg("block_count", layout_.block_count)));
  if (shapes_ && TouchesShapes(model, change, delta)) {
    PALPATE_RETURN_IF_ERROR(MakeShapes(model));
    PALPATE_RETURN_IF_ERROR(BindShapes());
  }
  if (volumes_) {
    PALPATE_ASSIGN_OR_RETURN(const VolumeLists volumes, ListVolumes(model, layout_));
    PALPATE_RETURN_IF_ERROR(volumes_->Follow(*queue_, volumes));
    PALPATE_RETURN_IF_ERROR(BindVolumes());
  }
  if (barrier_) barrier_->SetTriangleCount(layout_.triangle_count);
  PALPATE_RETURN_IF_ERROR(driven_.SetRegions(*queue_, model.driven, layout_));
  if (!loads_.empty()) PALPATE_RETURN_IF_ERROR(loads_.SetLoads(*queue_, model.loads, layout_));
  PALPATE_RETURN_IF_ERROR(SetAnchors({}, 0));
  gathered_count_ = 0;
  gathered_host_.clear();
  PALPATE_RETURN_IF_ERROR(ForgetContacts());
  if (surface_) {
    uint32_t inverted = 0;
    PALPATE_RETURN_IF_ERROR(queue_->ReadBlocking(partials_, std::span<StepPartial>(partials_host_)));
    for (const StepPartial& partial : partials_host_) inverted += partial.inverted_tets;
    PALPATE_RETURN_IF_ERROR(surface_->GoOn(*queue_, tissue_.x, inverted > 0));
  }
  PALPATE_RETURN_IF_ERROR(queue_->FinishBlocking());
  return true;
}

absl::Status TissueSolver::Impl::ReadForces(uint32_t parts, std::span<float> forces_n) {
  PALPATE_RETURN_IF_ERROR(CheckFloats(forces_n.size()));
  if (steps_ > 0) PALPATE_RETURN_IF_ERROR(loads_.Apply(*queue_, tissue_));
  PALPATE_RETURN_IF_ERROR(UpdateFollowed());
  if (volumes_) {
    PALPATE_RETURN_IF_ERROR(volumes_->Measure(*queue_, tissue_.triangles, tissue_.x, false));
    PALPATE_RETURN_IF_ERROR(volumes_->BalanceAsItIs(*queue_));
  }
  PALPATE_RETURN_IF_ERROR(vertex_forces_.Bind(Arg("parts", parts)));
  PALPATE_RETURN_IF_ERROR(queue_->Enqueue(vertex_forces_, Vertices()));
  PALPATE_RETURN_IF_ERROR(queue_->ReadBlocking(forces_, std::span<Float4>(scratch_)));
  ScatterScratch(forces_n);
  return absl::OkStatus();
}

}  // namespace palpate::gpu
