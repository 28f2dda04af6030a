// The state: set, read, carried on into the layout after an edit.
#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gpu/dynamics/float4.h"
#include "gpu/dynamics/tissue_solver_impl.h"

namespace palpate::gpu {

absl::Status TissueSolver::Impl::SetAnchors(std::span<const TissueAnchor> anchors, uint32_t clip_count) {
  PALPATE_ASSIGN_OR_RETURN(const bool is_other, anchors_.Set(*queue_, layout_, anchors, tools_.collider_count(), clip_count));
  if (!is_other) return absl::OkStatus();
  PALPATE_RETURN_IF_ERROR(sweeps_.BindAnchors(anchors_));
  if (nurbs_) PALPATE_RETURN_IF_ERROR(nurbs_->BindAnchors(anchors_));
  return tools_.BindAnchors(anchors_);
}

absl::Status TissueSolver::Impl::SetJointMount(uint32_t mount, const std::array<double, 3>& center_m, const std::array<double, 4>& rotation,
                                               const std::array<double, 3>& force_n) {
  const uint32_t count = rigid_ && rigid_->frames() != nullptr ? rigid_->frames()->mount_count() : 0;
  if (mount >= count) return absl::InvalidArgumentError(absl::StrCat("there is no mount ", mount, ", of ", count));
  double square = 0;
  for (const double c : rotation) square += c * c;
  const auto is_finite = [](const std::array<double, 3>& v) {
    return std::all_of(v.begin(), v.end(), [](double c) { return std::isfinite(c); });
  };
  if (!is_finite(center_m) || !is_finite(force_n) || !(std::abs(square - 1) < 1e-6)) {
    return absl::InvalidArgumentError(absl::StrCat("mount ", mount, ": is no pose"));
  }
  const Float4 turn = {static_cast<float>(rotation[0]), static_cast<float>(rotation[1]), static_cast<float>(rotation[2]),
                       static_cast<float>(rotation[3])};
  rigid_->frames()->SetMount(mount, center_m, turn, force_n);
  return absl::OkStatus();
}

absl::Status TissueSolver::Impl::SetGathered(std::span<const uint32_t> vertices) {
  std::vector<uint32_t> slots;
  slots.reserve(vertices.size());
  for (const uint32_t v : vertices) {
    if (!HasVertex(v)) {
      return absl::InvalidArgumentError(absl::StrCat("vertex ", v, " is absent or outside [0, ", layout_.solver_index.size(), ")"));
    }
    slots.push_back(ToNumber(layout_.solver_index[v]));
  }
  return gathered_.Set(*queue_, tissue_, slots);
}

absl::Status TissueSolver::Impl::Reset() {
  recovery_.Stop();
  steps_ = 0;
  params_host_.lambda_cap = PALPATE_LAMBDA_UNCAPPED;
  PALPATE_RETURN_IF_ERROR(WriteParams());
  PALPATE_RETURN_IF_ERROR(queue_->Write(tissue_.x, std::span<const Float4>(layout_.rest_m.values())));
  if (rigid_) PALPATE_RETURN_IF_ERROR(rigid_->Reset(*queue_, tissue_.x, tissue_.touched));
  if (nurbs_) PALPATE_RETURN_IF_ERROR(nurbs_->Reset(*queue_, tissue_.x));
  PALPATE_RETURN_IF_ERROR(sweeps_.TakePositions(*queue_));
  PALPATE_RETURN_IF_ERROR(queue_->Copy(tissue_.x, tissue_.x_start, layout_.vertex_count));
  PALPATE_RETURN_IF_ERROR(queue_->Fill(tissue_.velocity, Float4{}));
  PALPATE_RETURN_IF_ERROR(queue_->Fill(tissue_.velocity_before, FallenFromRest()));
  PALPATE_RETURN_IF_ERROR(ForgetRotations());
  PALPATE_RETURN_IF_ERROR(sweeps_.Reset(*queue_));
  PALPATE_RETURN_IF_ERROR(SetAnchors({}, 0));
  PALPATE_RETURN_IF_ERROR(driven_.Hold(*queue_, layout_, layout_.rest_m.values()));
  PALPATE_RETURN_IF_ERROR(tools_.Reset(*queue_));
  aims_.Reset();
  if (surface_) {
    PALPATE_RETURN_IF_ERROR(surface_->SetSelfCollision(*queue_, true));
    PALPATE_RETURN_IF_ERROR(surface_->Reset(*queue_, tissue_.x));
  }
  PALPATE_RETURN_IF_ERROR(state_check_.Finish(*queue_));
  return queue_->FinishBlocking();
}

absl::Status TissueSolver::Impl::CheckFloats(size_t count) const {
  if (count == layout_.solver_index.size() * 3) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(count, " floats for ", layout_.solver_index.size(), " vertices"));
}

/// From the solver's order to the caller's; absent vertices have zeros.
void TissueSolver::Impl::Scatter(std::span<const Float4> by_slot, std::span<float> values) const {
  for (size_t v = 0; v < layout_.solver_index.size(); ++v) {
    const SolverSlot slot = layout_.solver_index[v];
    const Float4 value = slot == kNoSolverSlot ? Float4{} : by_slot[ToNumber(slot)];
    values[3 * v] = value.x;
    values[3 * v + 1] = value.y;
    values[3 * v + 2] = value.z;
  }
}

/// The other way; slots without vertex have zeros.
std::vector<Float4> TissueSolver::Impl::BySlot(std::span<const float> values) const {
  std::vector<Float4> by_slot(layout_.vertex_count);
  for (const SolverSlot slot : layout_.original_index.indices()) {
    if (layout_.original_index[slot] == kNoTissueVertex) continue;
    const float* const v = &values[size_t{layout_.original_index[slot]} * 3];
    by_slot[ToNumber(slot)] = {v[0], v[1], v[2], 0.0F};
  }
  return by_slot;
}

absl::Status TissueSolver::Impl::ReadPositions(std::span<float> positions_m) {
  PALPATE_RETURN_IF_ERROR(CheckFloats(positions_m.size()));
  std::vector<Float4> by_slot(layout_.vertex_count);
  PALPATE_RETURN_IF_ERROR(queue_->ReadBlocking(tissue_.x, std::span<Float4>(by_slot)));
  Scatter(by_slot, positions_m);
  return absl::OkStatus();
}

/// The search for the rotations of tets begins at the newest ones, so what comes after a state must not depend on those before.
absl::Status TissueSolver::Impl::ForgetRotations() {
  if (sweeps_.smoothing() != nullptr) PALPATE_RETURN_IF_ERROR(sweeps_.smoothing()->ForgetRotations(*queue_));
  return tissue_.rotations.count() > 0 ? queue_->Fill(tissue_.rotations, Float4{0, 0, 0, 1}) : absl::OkStatus();
}

absl::Status TissueSolver::Impl::WriteState(std::span<const float> positions_m, std::span<const float> velocities_m_per_s) {
  PALPATE_RETURN_IF_ERROR(CheckFloats(positions_m.size()));
  if (!velocities_m_per_s.empty()) PALPATE_RETURN_IF_ERROR(CheckFloats(velocities_m_per_s.size()));
  const std::vector<Float4> positions = BySlot(positions_m);
  std::vector<Float4> velocities;
  if (!velocities_m_per_s.empty()) velocities = BySlot(velocities_m_per_s);
  PALPATE_RETURN_IF_ERROR(queue_->Write(tissue_.x, std::span<const Float4>(positions)));
  PALPATE_RETURN_IF_ERROR(driven_.Hold(*queue_, layout_, positions));
  if (rigid_) PALPATE_RETURN_IF_ERROR(rigid_->Fit(*queue_, positions, velocities, tissue_.x, tissue_.touched));
  if (nurbs_) PALPATE_RETURN_IF_ERROR(nurbs_->Fit(*queue_, positions, velocities, tissue_.x));
  PALPATE_RETURN_IF_ERROR(sweeps_.TakePositions(*queue_));
  PALPATE_RETURN_IF_ERROR(sweeps_.Reset(*queue_));
  PALPATE_RETURN_IF_ERROR(ForgetRotations());
  PALPATE_RETURN_IF_ERROR(queue_->Copy(tissue_.x, tissue_.x_start, layout_.vertex_count));
  if (surface_) PALPATE_RETURN_IF_ERROR(GiveToSurface());
  return WriteVelocities(std::move(velocities));
}

/// A mesh inside out must pass through itself to find its shape.
absl::Status TissueSolver::Impl::GiveToSurface() {
  PALPATE_RETURN_IF_ERROR(state_check_.Finish(*queue_));
  PALPATE_ASSIGN_OR_RETURN(const StateSums sums, state_check_.Read(*queue_));
  recovery_.ForgetGiven();
  if (sums.inverted_tets > kTangledShare * static_cast<double>(layout_.live_tet_count)) {
    recovery_.StartGivenTangled();
    params_host_.lambda_cap = recovery_.lambda_cap();
    PALPATE_RETURN_IF_ERROR(WriteParams());
  }
  PALPATE_RETURN_IF_ERROR(surface_->SetSelfCollision(*queue_, !recovery_.was_given_tangled()));
  return surface_->Reset(*queue_, tissue_.x);
}

/// [slot], or empty: at rest.
absl::Status TissueSolver::Impl::WriteVelocities(std::vector<Float4> velocities) {
  const Float4 before = FallenFromRest();
  if (velocities.empty()) {
    PALPATE_RETURN_IF_ERROR(queue_->Fill(tissue_.velocity, Float4{}));
    return queue_->Fill(tissue_.velocity_before, before);
  }
  for (uint32_t i = 0; i < velocities.size(); ++i) velocities[i] = AlongFreeAxes(layout_.held_axes[SolverSlot{i}], velocities[i]);
  PALPATE_RETURN_IF_ERROR(queue_->Write(tissue_.velocity, std::span<const Float4>(velocities)));
  for (uint32_t i = 0; i < velocities.size(); ++i) {
    Float4& v = velocities[i];
    const float braked = 1 + params_host_.dt_s * layout_.mass_damping_per_s[SolverSlot{i}];
    v = {braked * v.x + before.x, braked * v.y + before.y, braked * v.z + before.z, 0.0F};
  }
  return queue_->Write(tissue_.velocity_before, std::span<const Float4>(velocities));
}

absl::Status TissueSolver::Impl::ReadState(std::span<TissueVertexState> states) {
  const size_t n = layout_.vertex_count;
  if (states.size() != layout_.solver_index.size()) {
    return absl::InvalidArgumentError(absl::StrCat(states.size(), " states for ", layout_.solver_index.size(), " vertices"));
  }
  std::vector<Float4> positions(n);
  std::vector<Float4> velocities(n);
  std::vector<Float4> velocities_before(n);
  PALPATE_RETURN_IF_ERROR(queue_->ReadBlocking(tissue_.x, std::span<Float4>(positions)));
  PALPATE_RETURN_IF_ERROR(queue_->ReadBlocking(tissue_.velocity, std::span<Float4>(velocities)));
  PALPATE_RETURN_IF_ERROR(queue_->ReadBlocking(tissue_.velocity_before, std::span<Float4>(velocities_before)));
  for (size_t v = 0; v < states.size(); ++v) {
    if (layout_.solver_index[v] == kNoSolverSlot) {
      states[v] = {};
      continue;
    }
    const uint32_t i = ToNumber(layout_.solver_index[v]);
    states[v] = {positions[i], velocities[i], velocities_before[i]};
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<TissueSolver::Impl>> TissueSolver::Impl::Rebuilt(const TissueModel& model,
                                                                                std::span<const TissueVertexState> states) {
  if (states.size() != model.rest_m.size()) {
    return absl::InvalidArgumentError(absl::StrCat(states.size(), " states for ", model.rest_m.size(), " vertices"));
  }
  auto next = std::make_unique<Impl>();
  PALPATE_RETURN_IF_ERROR(next->Init(queue_, model, options_, tools_.descriptions(), tools_.planes_host(), tuning_, this));
  PALPATE_RETURN_IF_ERROR(next->GoOnFrom(*this, states));
  return next;
}

absl::Status TissueSolver::Impl::GoOnFrom(Impl& old, std::span<const TissueVertexState> states) {
  const uint32_t n = layout_.vertex_count;
  params_host_.stiffness_n_per_m = old.params_host_.stiffness_n_per_m;
  params_host_.lambda_cap = old.params_host_.lambda_cap;
  PALPATE_RETURN_IF_ERROR(WriteParams());
  steps_ = old.steps_;
  recovery_ = old.recovery_;
  aims_ = old.aims_;
  passing_colliders_ = old.passing_colliders_;
  PALPATE_RETURN_IF_ERROR(tools_.GoOnFrom(*queue_, old.tools_));

  std::vector<Float4> positions(n);
  std::vector<Float4> velocities(n);
  std::vector<Float4> velocities_before(n);
  for (uint32_t i = 0; i < n; ++i) {
    const uint32_t vertex = layout_.original_index[SolverSlot{i}];
    if (vertex == kNoTissueVertex) continue;
    const TissueVertexState& state = states[vertex];
    positions[i] = state.position_m;
    velocities[i] = state.velocity_m_per_s;
    velocities_before[i] = state.velocity_before_m_per_s;
  }
  PALPATE_RETURN_IF_ERROR(queue_->Write(tissue_.x, std::span<const Float4>(positions)));
  PALPATE_RETURN_IF_ERROR(driven_.Hold(*queue_, layout_, positions));
  PALPATE_RETURN_IF_ERROR(queue_->Write(tissue_.velocity, std::span<const Float4>(velocities)));
  PALPATE_RETURN_IF_ERROR(queue_->Write(tissue_.velocity_before, std::span<const Float4>(velocities_before)));
  PALPATE_RETURN_IF_ERROR(ForgetContacts());
  if (rigid_) PALPATE_RETURN_IF_ERROR(rigid_->GoOnFrom(*queue_, *old.rigid_));
  if (nurbs_) PALPATE_RETURN_IF_ERROR(nurbs_->GoOnFrom(*queue_, *old.nurbs_));
  PALPATE_RETURN_IF_ERROR(sweeps_.GoOnFrom(*queue_, old.sweeps_));
  if (surface_) {
    PALPATE_RETURN_IF_ERROR(surface_->SetSelfCollision(*queue_, !recovery_.was_given_tangled()));
    PALPATE_RETURN_IF_ERROR(surface_->Reset(*queue_, tissue_.x));
  }
  return queue_->FinishBlocking();
}

/// After an edit: the state is that of the end of a step in which nothing touched a tool.
absl::Status TissueSolver::Impl::ForgetContacts() {
  PALPATE_RETURN_IF_ERROR(state_check_.Inspect(*queue_));
  PALPATE_RETURN_IF_ERROR(queue_->Copy(tissue_.x, tissue_.x_start, layout_.vertex_count));
  return tools_.ForgetContacts(*queue_);
}

absl::StatusOr<bool> TissueSolver::Impl::Update(const TissueModel& model, const TissueChange& change,
                                                std::span<const TissueVertexState> states) {
  if (states.size() != model.rest_m.size()) {
    return absl::InvalidArgumentError(absl::StrCat(states.size(), " states for ", model.rest_m.size(), " vertices"));
  }
  const bool surfaces_meet = model.self_collision.size() > 1 || (!model.self_collision.empty() && model.self_collision[0] != 0);
  if (!edits_ || surfaces_meet != layout_.has_surface_contact) return false;
  if (driven_.prescribed_count() > 0 || !model.prescribed.vertices.empty()) return false;
  if (sweeps_.keeps_volumes() != KeepsVolumes(model)) return false;
  if (nurbs_ && layout_.apart != BodiesApart(model)) return false;
  PALPATE_ASSIGN_OR_RETURN(const bool fits, edits_->editor.Apply(model, change));
  if (!fits) return false;
  const TissueLayoutDelta& delta = edits_->editor.delta();
  RunWriter& writer = edits_->writer;
  params_host_.triangle_count = layout_.triangle_count;
  params_host_.tet_count = layout_.tet_count;
  PALPATE_RETURN_IF_ERROR(tissue_.Follow(layout_, delta, params_host_, states, &writer));
  if (surface_) {
    PALPATE_ASSIGN_OR_RETURN(const bool follows, surface_->Follow(delta, &writer));
    if (!follows) return false;
  }
  edits_->delta_bytes = writer.pending_bytes();
  PALPATE_ASSIGN_OR_RETURN(const RunWriter::Written written, writer.Flush(*queue_));
  PALPATE_RETURN_IF_ERROR(sweeps_.Follow(*queue_, tissue_, model, change, delta));
  if (correction_) PALPATE_RETURN_IF_ERROR(correction_->Follow(*queue_, model, change));
  if (barrier_) barrier_->SetTriangleCount(layout_.triangle_count);
  PALPATE_RETURN_IF_ERROR(driven_.SetRegions(*queue_, model.driven, layout_));
  if (!restitution_.empty()) PALPATE_RETURN_IF_ERROR(SetRestitution(model));
  if (!air_.empty()) PALPATE_RETURN_IF_ERROR(air_.SetSurface(*queue_, model, layout_));
  if (!loads_.empty()) PALPATE_RETURN_IF_ERROR(loads_.SetLoads(*queue_, model.loads, layout_));
  if (nurbs_) {
    PALPATE_ASSIGN_OR_RETURN(const bool is_same, nurbs_->SetBound(*queue_, model.nurbs_shells, layout_));
    if (!is_same) return false;
  }
  if (!model.joint_sets.empty()) PALPATE_RETURN_IF_ERROR(rigid_->SetJointSets(*queue_, JointSetsOf(model, layout_, options_.dt_s)));
  PALPATE_RETURN_IF_ERROR(SetAnchors({}, 0));
  gathered_.Clear();
  PALPATE_RETURN_IF_ERROR(ForgetContacts());
  if (surface_) {
    PALPATE_ASSIGN_OR_RETURN(const StateSums sums, state_check_.Read(*queue_));
    PALPATE_RETURN_IF_ERROR(surface_->GoOn(*queue_, written, tissue_.x, sums.inverted_tets > 0));
  }
  PALPATE_RETURN_IF_ERROR(queue_->FinishBlocking());
  return true;
}

absl::StatusOr<std::vector<Float4>> TissueSolver::Impl::ReadBoundForces() {
  return nurbs_ ? nurbs_->ReadBoundForces(*queue_) : std::vector<Float4>();
}

absl::Status TissueSolver::Impl::ReadForces(uint32_t parts, std::span<float> forces_n) {
  PALPATE_RETURN_IF_ERROR(CheckFloats(forces_n.size()));
  if (steps_ > 0) PALPATE_RETURN_IF_ERROR(ApplyLoads());
  PALPATE_RETURN_IF_ERROR(sweeps_.Update(*queue_, tissue_));
  std::vector<Float4> by_slot(layout_.vertex_count);
  PALPATE_RETURN_IF_ERROR(sweeps_.ReadForces(*queue_, tissue_, parts, by_slot));
  Scatter(by_slot, forces_n);
  return absl::OkStatus();
}

}  // namespace palpate::gpu
