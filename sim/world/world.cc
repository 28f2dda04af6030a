#include "sim/world/world.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "sim/mesh/mass_properties.h"
#include "sim/world/world_impl.h"

namespace palpate::sim {

absl::StatusOr<std::shared_ptr<const Frame>> World::Impl::Reset() {
  if (is_edited_) {
    is_edited_ = false;
    PALPATE_RETURN_IF_ERROR(BuildBodies());
    PALPATE_RETURN_IF_ERROR(CreateSolver());
  } else {
    ResetTools();
  }
  ablations_.clear();
  commands_.assign(description_.tools.size(), {});
  for (size_t t = 0; t < commands_.size(); ++t) commands_[t].device_pose = description_.tools[t].rest_pose;
  step_ = 0;
  failed_ = false;
  PALPATE_RETURN_IF_ERROR(solver_->Reset());
  if (moves_at_start_) {
    std::vector<float> positions;
    std::vector<float> velocities;
    for (const BodyDescription& body : description_.bodies) {
      const Eigen::Vector3d center = body.kind == BodyKind::kRigid ? ComputeMassProperties(body.mesh, 1).center_m : Eigen::Vector3d::Zero();
      for (const Eigen::Vector3d& x : body.mesh.vertices) {
        for (int axis = 0; axis < 3; ++axis) positions.push_back(static_cast<float>(x[axis]));
        const Eigen::Vector3f velocity = (body.velocity_m_per_s + body.angular_velocity_rad_per_s.cross(x - center)).cast<float>();
        velocities.insert(velocities.end(), velocity.data(), velocity.data() + 3);
      }
    }
    PALPATE_RETURN_IF_ERROR(solver_->WriteState(positions, velocities));
  }
  PALPATE_RETURN_IF_ERROR(UpdateGathered());
  PALPATE_ASSIGN_OR_RETURN(const gpu::TissueStep step, solver_->Inspect());
  quasi_static_.Reset(vertices_, step.colliders);
  tools_ms_ = 0;
  frame_ = MakeFrame(step);
  return frame_;
}

absl::StatusOr<std::shared_ptr<const Frame>> World::Impl::Step(std::span<const ToolCommand* const> commands,
                                                               const std::function<void()>& before_tools) {
  if (failed_) return absl::FailedPreconditionError("the scene has failed and must be reset");
  auto mark = std::chrono::steady_clock::now();
  if (volume_wanted_ != volume_gathered_) PALPATE_RETURN_IF_ERROR(UpdateGathered());
  PALPATE_RETURN_IF_ERROR(TakeCommands(commands));
  PALPATE_RETURN_IF_ERROR(PrepareInstruments());
  PALPATE_RETURN_IF_ERROR(PrescribeQuasiStatic());
  tools_ms_ = MillisecondsSince(&mark);
  std::function<void()> take_newer_poses;
  if (before_tools) {
    take_newer_poses = [&] {
      before_tools();
      TakeNewerPoses(commands);
    };
  }
  PALPATE_ASSIGN_OR_RETURN(const gpu::TissueStep step, solver_->Step(targets_, take_newer_poses));
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
  frame_ = MakeFrame(step);
  return frame_;
}

absl::Status World::Impl::CheckBody(size_t body_index) const {
  if (body_index < bodies_.size()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("body ", body_index, " is outside [0, ", bodies_.size(), ")"));
}

absl::StatusOr<std::vector<float>> World::Impl::ReadVolumePositions(size_t body_index) {
  PALPATE_RETURN_IF_ERROR(CheckBody(body_index));
  std::vector<float> all(vertices_.size() * 3);
  PALPATE_RETURN_IF_ERROR(solver_->ReadPositions(all));
  const WorldBody& body = *bodies_[body_index];
  std::vector<float> positions(size_t{body.vertex_slot_count()} * 3);
  for (uint32_t v = 0; v < body.vertex_slot_count(); ++v) {
    if (body.HandleOf(v) == kNoSlot) continue;
    for (size_t axis = 0; axis < 3; ++axis) positions[size_t{v} * 3 + axis] = all[size_t{body.HandleOf(v)} * 3 + axis];
  }
  return positions;
}

std::vector<Eigen::Vector3d> World::Impl::RestPositions(size_t body_index) const {
  const WorldBody& body = *bodies_[body_index];
  std::vector<Eigen::Vector3d> positions_m(body.vertex_slot_count(), Eigen::Vector3d::Zero());
  for (uint32_t v = 0; v < body.vertex_slot_count(); ++v) {
    if (body.HandleOf(v) == kNoSlot) continue;
    // A driven copy has a solver's place at rest beside its original's (OpenCopies); the mesh has the material's.
    positions_m[v] = body.is_editable() ? body.mesh().PositionOf(v) : vertices_.rest_m[body.HandleOf(v)];
  }
  return positions_m;
}

absl::Status World::Impl::WriteVolumePositions(size_t body_index, std::span<const float> positions_m) {
  PALPATE_RETURN_IF_ERROR(CheckBody(body_index));
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
    const uint32_t handle = body.HandleOf(v);
    if (handle == kNoSlot || (body.kind() == BodyKind::kDeformable && vertices_.is_fixed[handle] != 0)) continue;
    for (size_t axis = 0; axis < 3; ++axis) all[size_t{handle} * 3 + axis] = positions_m[size_t{v} * 3 + axis];
  }
  is_given_ = true;
  return solver_->WriteState(all);
}

std::vector<ZoneMaterial> World::Impl::MaterialsOf(size_t body) const {
  const WorldBody& of = *bodies_[body];
  std::vector<ZoneMaterial> materials;
  for (TetZoneId zone = 0; zone < of.zone_count(); ++zone) materials.push_back({of.zone_name(zone), of.MaterialOf(zone)});
  return materials;
}

World::World(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
World::~World() = default;

absl::StatusOr<std::unique_ptr<World>> World::Create(std::shared_ptr<gpu::Context> context, SceneDescription description) {
  auto impl = std::make_unique<Impl>();
  PALPATE_RETURN_IF_ERROR(impl->Init(std::move(context), std::move(description)));
  return std::unique_ptr<World>(new World(std::move(impl)));
}

absl::StatusOr<std::shared_ptr<const Frame>> World::Step(std::span<const ToolCommand* const> commands,
                                                         const std::function<void()>& before_tools) {
  return impl_->Step(commands, before_tools);
}
absl::StatusOr<std::vector<EditOutcome>> World::Apply(std::span<const Edit> edits, const std::function<bool()>& is_enough) {
  return impl_->Apply(edits, is_enough);
}
absl::StatusOr<std::shared_ptr<const Frame>> World::Reset() { return impl_->Reset(); }
std::shared_ptr<const Frame> World::CurrentFrame() const { return impl_->frame_; }
void World::SetVolumeWanted(bool wanted) { impl_->volume_wanted_ = wanted; }
absl::StatusOr<std::vector<float>> World::ReadVolumePositions(size_t body_index) { return impl_->ReadVolumePositions(body_index); }
std::vector<Eigen::Vector3d> World::RestPositions(size_t body_index) const { return impl_->RestPositions(body_index); }
absl::Status World::WriteVolumePositions(size_t body_index, std::span<const float> positions_m) {
  return impl_->WriteVolumePositions(body_index, positions_m);
}
bool World::has_failed() const { return impl_->has_failed(); }
std::vector<ZoneMaterial> World::MaterialsOf(size_t body) const { return impl_->MaterialsOf(body); }
const SceneDescription& World::description() const { return impl_->description_; }
const std::vector<BodyStatistics>& World::body_statistics() const { return impl_->Statistics(); }
const std::vector<BoundarySurface>& World::surfaces() const { return impl_->surfaces_; }
World::EditCounts World::edit_counts() const {
  const gpu::TissueSolver::EditCounts& counts = impl_->solver_->edit_counts();
  return {counts.deltas, counts.rebuilds, counts.delta_bytes};
}
size_t World::device_bytes() const { return impl_->solver_->device_bytes(); }
uint32_t World::color_count() const { return impl_->solver_->color_count(); }

}  // namespace palpate::sim
