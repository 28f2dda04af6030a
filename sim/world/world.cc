#include "sim/world/world.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "sim/world/world_impl.h"
#include "sim/world/world_values.h"

namespace palpate::sim {

absl::StatusOr<std::shared_ptr<const Frame>> World::Impl::Step(std::span<const ToolCommand* const> commands,
                                                               const std::function<void()>& before_tools) {
  if (failed_) return absl::FailedPreconditionError("the scene has failed and must be reset");
  auto mark = std::chrono::steady_clock::now();
  if (publisher_.must_gather_anew()) PALPATE_RETURN_IF_ERROR(UpdateGathered());
  PALPATE_RETURN_IF_ERROR(rack_.TakeCommands(commands));
  PALPATE_RETURN_IF_ERROR(PrepareInstruments());
  PALPATE_RETURN_IF_ERROR(PrescribeQuasiStatic());
  const double end_s = static_cast<double>(step_ + 1) * description_.dt_s;
  PALPATE_RETURN_IF_ERROR(joints_.Drive(*solver_, end_s, rack_));
  solver_->SetWind(ToArray(ValueAt(description_.wind.times_s, description_.wind.velocities_m_per_s, end_s)));
  tools_ms_ = MillisecondsSince(&mark);
  std::function<void()> take_newer_poses;
  if (before_tools) {
    take_newer_poses = [&] {
      before_tools();
      if (quasi_static_.empty()) rack_.TakeNewerPoses(commands);
    };
  }
  PALPATE_ASSIGN_OR_RETURN(const gpu::TissueStep step, solver_->Step(rack_.targets(), take_newer_poses));
  if (step.bad_vertices > 0) {
    failed_ = true;
    return absl::DataLossError(absl::StrCat(
        "step ", step_ + 1, ": ", step.bad_vertices, " of ", vertices_.size(), " vertices left the finite range; the scene stays at step ",
        step_, " (fastest vertex before: ", frame_->max_speed_m_per_s, " m/s, inverted tets: ", frame_->inverted_tets, ")"));
  }
  ++step_;
  is_given_ = false;
  FollowInstruments(step);
  PALPATE_RETURN_IF_ERROR(FollowQuasiStatic(step));
  joints_.Follow(step.joints);
  joints_.PushTools(&rack_);
  frame_ = MakeFrame(step);
  return frame_;
}

/// Everything that instruments do before a step: turn, take hold, let go, remove, cut; then where they and what they hold go.
absl::Status World::Impl::PrepareInstruments() {
  std::vector<ToolState>& tools = rack_.tools();
  std::vector<Edit> edits;
  std::vector<size_t> owners;
  bool has_state = false;
  bool has_blade = false;
  for (size_t t = 0; t < tools.size(); ++t) {
    const InstrumentTraits& traits = description_.tools[t].instrument.traits();
    tools[t].is_cutting = false;
    if (traits.has_jaws) PALPATE_RETURN_IF_ERROR(grasping_.MoveJaws(t));
    const bool is_burning = traits.has_power && rack_.commands()[t].pedal;
    if (!is_burning && !traits.has_blade) continue;
    if (!std::exchange(has_state, true)) PALPATE_RETURN_IF_ERROR(solver_->ReadState(vertices_.state.values()));
    if (is_burning) PALPATE_RETURN_IF_ERROR(removal_.Ablate(t, &edits));
    if (traits.has_blade) removal_.Slice(t, &edits);
    has_blade |= traits.has_blade;
    owners.resize(edits.size(), t);
  }
  PALPATE_RETURN_IF_ERROR(ApplyOfInstruments(edits, owners));
  for (size_t t = 0; t < tools.size(); ++t) rack_.Aim(t);
  if (rack_.any_projection()) {
    PALPATE_RETURN_IF_ERROR(solver_->ReadState(vertices_.state.values()));
    projection_.Project(solver_->layout());
  }
  if (has_blade) blades_.Prepare(solver_->contact_stiffness_n_per_m());
  return grasping_.SetAnchors(projection_, blades_.anchors());
}

/// `owners`: the tool that asked for each edit.
absl::Status World::Impl::ApplyOfInstruments(std::span<const Edit> edits, std::span<const size_t> owners) {
  if (edits.empty()) return absl::OkStatus();
  PALPATE_ASSIGN_OR_RETURN(const std::vector<EditOutcome> outcomes, Apply(edits));
  for (size_t i = 0; i < outcomes.size(); ++i) {
    ToolState& state = rack_.tools()[owners[i]];
    state.removed_mass_kg += std::max(outcomes[i].removed_mass_kg, 0.0);
    // Between two elements a blade in tissue changes nothing in the mesh, and cuts all the same.
    const bool is_in_stroke = std::holds_alternative<InciseEdit>(edits[i].what) && bodies_[edits[i].body]->IsStrokeUnderWay();
    state.is_cutting = state.is_cutting || is_in_stroke || !outcomes[i].removed_tets.empty() || !outcomes[i].removed_triangles.empty() ||
                       !outcomes[i].added_vertices.empty();
  }
  return absl::OkStatus();
}

/// Where a step left instruments, what presses on jaws, what slipped.
void World::Impl::FollowInstruments(const gpu::TissueStep& step) {
  rack_.Follow(step);
  grasping_.FollowContacts(step);
  const size_t blade_count = blades_.anchors().size();
  const size_t projected = projection_.contacts().size();
  projection_.Follow(step, step.anchors.subspan(grasping_.anchors().size() - blade_count - projected, projected));
  grasping_.FollowProjected(projection_.contacts());
  grasping_.FollowAnchors(step);
  blades_.Follow(step, step.anchors.subspan(grasping_.anchors().size() - blade_count));
}

absl::StatusOr<std::shared_ptr<const Frame>> World::Impl::Reset() {
  if (is_edited_) {
    is_edited_ = false;
    PALPATE_RETURN_IF_ERROR(BuildBodies());
    PALPATE_RETURN_IF_ERROR(CreateSolver());
  } else {
    ResetTools();
  }
  removal_.Reset();
  rack_.ResetCommands();
  step_ = 0;
  failed_ = false;
  PALPATE_RETURN_IF_ERROR(solver_->Reset());
  if (const SceneBodies::Start start = scene_.StartOfMotion(); !start.positions_m.empty()) {
    PALPATE_RETURN_IF_ERROR(solver_->WriteState(start.positions_m, start.velocities_m_per_s));
  }
  PALPATE_RETURN_IF_ERROR(UpdateGathered());
  PALPATE_ASSIGN_OR_RETURN(const gpu::TissueStep step, solver_->Inspect());
  quasi_static_.Reset(vertices_, step.colliders);
  tools_ms_ = 0;
  joints_.Follow(step.joints);
  frame_ = MakeFrame(step);
  return frame_;
}

std::shared_ptr<Frame> World::Impl::MakeFrame(const gpu::TissueStep& step) {
  std::shared_ptr<Frame> frame = publisher_.Make(step, step_, tools_ms_);
  frame->joints = joints_.frame();
  grasping_.ListFasteners(frame.get());
  return frame;
}

void World::Impl::ResetTools() {
  rack_.Reset();
  grasping_.Reset();
  projection_.Reset();
  blades_.Reset();
  joints_.Reset();
}

absl::StatusOr<std::vector<float>> World::Impl::ReadVolumePositions(size_t body_index) {
  PALPATE_RETURN_IF_ERROR(scene_.CheckIndex(body_index));
  std::vector<float> all(vertices_.size() * 3);
  PALPATE_RETURN_IF_ERROR(solver_->ReadPositions(all));
  const WorldBody& body = *bodies_[body_index];
  std::vector<float> positions(size_t{body.vertex_slot_count()} * 3);
  for (uint32_t v = 0; v < body.vertex_slot_count(); ++v) {
    if (body.HandleOf(v) == kNoHandle) continue;
    for (size_t axis = 0; axis < 3; ++axis) positions[size_t{v} * 3 + axis] = all[size_t{ToNumber(body.HandleOf(v))} * 3 + axis];
  }
  return positions;
}

absl::StatusOr<std::vector<float>> World::Impl::ReadVolumeVelocities(size_t body_index) {
  PALPATE_RETURN_IF_ERROR(scene_.CheckIndex(body_index));
  std::vector<gpu::TissueVertexState> states(vertices_.size());
  PALPATE_RETURN_IF_ERROR(solver_->ReadState(states));
  const WorldBody& body = *bodies_[body_index];
  std::vector<float> velocities(size_t{body.vertex_slot_count()} * 3);
  for (uint32_t v = 0; v < body.vertex_slot_count(); ++v) {
    if (body.HandleOf(v) == kNoHandle) continue;
    const gpu::Float4& velocity = states[ToNumber(body.HandleOf(v))].velocity_m_per_s;
    velocities[size_t{v} * 3] = velocity.x;
    velocities[size_t{v} * 3 + 1] = velocity.y;
    velocities[size_t{v} * 3 + 2] = velocity.z;
  }
  return velocities;
}

absl::Status World::Impl::WriteVolumePositions(size_t body_index, std::span<const float> positions_m) {
  PALPATE_RETURN_IF_ERROR(scene_.CheckIndex(body_index));
  const WorldBody& body = *bodies_[body_index];
  if (positions_m.size() != size_t{body.vertex_slot_count()} * 3) {
    return absl::InvalidArgumentError(absl::StrCat(positions_m.size(), " floats for ", body.vertex_slot_count(), " vertices"));
  }
  if (StartsQuasiStatic(body.simulation())) {
    return absl::FailedPreconditionError(
        absl::StrCat("body ", body.name(), " is quasi-static: its shape follows from what acts on it and cannot be given"));
  }
  if (!std::all_of(positions_m.begin(), positions_m.end(), [](float v) { return std::isfinite(v); })) {
    return absl::InvalidArgumentError("a position is not finite");
  }
  std::vector<float> all(vertices_.size() * 3);
  PALPATE_RETURN_IF_ERROR(solver_->ReadPositions(all));
  for (uint32_t v = 0; v < body.vertex_slot_count(); ++v) {
    const VertexHandle handle = body.HandleOf(v);
    if (handle == kNoHandle || (body.kind() == BodyKind::kDeformable && vertices_.is_fixed[handle] != 0)) continue;
    for (size_t axis = 0; axis < 3; ++axis) all[size_t{ToNumber(handle)} * 3 + axis] = positions_m[size_t{v} * 3 + axis];
  }
  is_given_ = true;
  return solver_->WriteState(all);
}

World::World(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
World::~World() = default;

absl::StatusOr<std::unique_ptr<World>> World::Create(std::shared_ptr<gpu::Context> context, SceneDescription description) {
  auto impl = std::make_unique<Impl>();
  PALPATE_RETURN_IF_ERROR(impl->Init(std::move(context), std::move(description)));
  return std::unique_ptr<World>(new World(std::move(impl)));
}

absl::StatusOr<std::shared_ptr<const WorldState>> World::Capture() { return impl_->Capture(); }

absl::StatusOr<std::unique_ptr<World>> World::Restore(std::shared_ptr<gpu::Context> context, SceneDescription description,
                                                      const WorldState& state, World* old) {
  auto impl = std::make_unique<Impl>();
  PALPATE_RETURN_IF_ERROR(impl->Restore(std::move(context), std::move(description), state, old == nullptr ? nullptr : old->impl_.get()));
  return std::unique_ptr<World>(new World(std::move(impl)));
}

absl::StatusOr<bool> World::GoTo(const WorldState& state) { return impl_->GoTo(state); }

absl::StatusOr<std::shared_ptr<const Frame>> World::Step(std::span<const ToolCommand* const> commands,
                                                         const std::function<void()>& before_tools) {
  return impl_->Step(commands, before_tools);
}
absl::StatusOr<std::vector<EditOutcome>> World::Apply(std::span<const Edit> edits, const std::function<bool()>& is_enough) {
  return impl_->Apply(edits, is_enough);
}
absl::StatusOr<std::shared_ptr<const Frame>> World::Reset() { return impl_->Reset(); }
std::shared_ptr<const Frame> World::CurrentFrame() const { return impl_->frame(); }
void World::SetVolumeWanted(bool wanted) { impl_->SetVolumeWanted(wanted); }
absl::StatusOr<std::vector<float>> World::ReadVolumePositions(size_t body_index) { return impl_->ReadVolumePositions(body_index); }
std::vector<Eigen::Vector3d> World::RestPositions(size_t body_index) const { return impl_->scene().RestPositions(body_index); }
absl::StatusOr<std::vector<float>> World::ReadVolumeVelocities(size_t body_index) { return impl_->ReadVolumeVelocities(body_index); }
std::vector<uint16_t> World::TetZones(size_t body_index) const { return impl_->scene().TetZones(body_index); }
absl::Status World::WriteVolumePositions(size_t body_index, std::span<const float> positions_m) {
  return impl_->WriteVolumePositions(body_index, positions_m);
}
bool World::has_failed() const { return impl_->has_failed(); }
std::vector<ZoneMaterial> World::MaterialsOf(size_t body) const { return impl_->scene().MaterialsOf(body); }
const SceneDescription& World::description() const { return impl_->description(); }
const std::vector<BodyStatistics>& World::body_statistics() const { return impl_->scene().Statistics(); }
const std::vector<BoundarySurface>& World::surfaces() const { return impl_->scene().surfaces(); }
World::EditCounts World::edit_counts() const {
  const gpu::TissueSolver::EditCounts& counts = impl_->solver().edit_counts();
  return {counts.deltas, counts.rebuilds, counts.delta_bytes};
}
size_t World::device_bytes() const { return impl_->solver().device_bytes(); }
uint32_t World::color_count() const { return impl_->solver().color_count(); }

}  // namespace palpate::sim
