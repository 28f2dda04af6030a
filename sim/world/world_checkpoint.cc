// A state to go on from: what a world is made of, part by part, in an order in which each can be checked against those before it.
#include <algorithm>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gpu/dynamics/packed_types.h"
#include "sim/scene/description_state.h"
#include "sim/world/world_impl.h"

namespace palpate::sim {
namespace {

std::string DeviceName(const gpu::DeviceInfo& device) { return absl::StrCat(device.platform_name, " / ", device.name); }
std::string DriverName(const gpu::DeviceInfo& device) { return absl::StrCat(device.platform_version, " / ", device.driver_version); }

absl::Status CannotBe(absl::string_view what) { return absl::InvalidArgumentError(absl::StrCat("checkpoint: ", what)); }

}  // namespace

bool IsSameDevice(const WorldStateInfo& info, const gpu::DeviceInfo& device) {
  return info.device == DeviceName(device) && info.driver == DriverName(device);
}

absl::StatusOr<std::shared_ptr<const WorldState>> World::Impl::Capture() {
  if (failed_) return absl::FailedPreconditionError("the scene has failed and must be reset");
  for (size_t b = 0; b < bodies_.size(); ++b) {
    if (bodies_.size() != topology_->bodies.size() || topology_->bodies[b] != bodies_[b]->arrays())
      return absl::InternalError("the topology is not that of the bodies");
  }
  auto state = std::make_shared<WorldState>();
  state->info.description_hash = description_hash_;
  state->info.step = step_;
  state->info.sim_time_s = frame_->sim_time_s;
  state->info.state_hash = frame_->state_hash;
  state->info.topology_version = topology_->version;
  state->info.device = DeviceName(context_->device());
  state->info.driver = DriverName(context_->device());
  state->topology = topology_;
  state->frame = frame_;
  StateWriter scene;
  SaveScene(scene);
  state->scene = scene.Take();
  StateWriter solver;
  PALPATE_RETURN_IF_ERROR(solver_->SaveState(solver));
  state->solver = solver.Take();
  return state;
}

void World::Impl::SaveScene(StateWriter& archive) {
  // All members, so that a new one is not forgotten. Not here: what the caller gives (context, description), what is in the other sections
  // (solver, topology, frame), times, and what lives for one call (surface, folds, opening) or one step (blades).
  [[maybe_unused]] auto& [context, description, description_hash, solver, topology, frame, step, failed, is_edited, is_given, tools_ms,
                          scene, bodies, vertices, model, surface, folds, opening, rack, projection, grasping, removal, blades, joints,
                          publisher, quasi_static] = *this;
  SaveCounts({step, is_edited, is_given, static_cast<uint64_t>(bodies.size())}, archive);
  SaveTissue(archive);
  archive(rack, grasping, projection, removal, joints, publisher);
  quasi_static.SaveState(archive);
}

void World::Impl::SaveCounts(const SceneCounts& counts, StateWriter& archive) {
  archive.Enter("World");
  archive(counts.step, counts.is_edited, counts.is_given, counts.bodies);
}

void World::Impl::SaveTissue(StateWriter& archive) {
  for (const auto& body : bodies_) body->VisitState(archive, frame_->markers.size(), scene_.motions().bound.size());
  archive(vertices_, model_);
}

absl::Status World::Impl::Restore(std::shared_ptr<gpu::Context> context, SceneDescription description, const WorldState& state, Impl* old) {
  PALPATE_RETURN_IF_ERROR(TakeDescription(std::move(context), std::move(description)));
  if (state.info.description_hash != description_hash_) {
    return CannotBe(absl::StrCat("is of another scene than ", description_.name, ": its description has the hash ",
                                 absl::Hex(state.info.description_hash, absl::kZeroPad16), ", this one ",
                                 absl::Hex(description_hash_, absl::kZeroPad16)));
  }
  PALPATE_RETURN_IF_ERROR(scene_.Build());
  PALPATE_RETURN_IF_ERROR(Sew());
  publisher_.ResetMarkers();
  topology_ = state.topology;
  frame_ = state.frame;
  PALPATE_ASSIGN_OR_RETURN(const SolverSetup setup, SetUpSolver());
  rack_.ResetCommands();
  StateReader archive(state.scene, "checkpoint: section scene");
  PALPATE_RETURN_IF_ERROR(LoadScene(archive));
  PALPATE_RETURN_IF_ERROR(archive.Finish());
  if (frame_->step != step_ || frame_->tools.size() != description_.tools.size()) return CannotBe("its frame is of another scene");

  StateReader solver(state.solver, "checkpoint: section solver");
  PALPATE_ASSIGN_OR_RETURN(solver_, gpu::TissueSolver::Restore(context_, model_.model(), setup.options, setup.colliders, setup.planes,
                                                               setup.tuning, solver, old == nullptr ? nullptr : old->solver_.get()));
  PALPATE_RETURN_IF_ERROR(solver.Finish());
  return UpdateGathered();
}

absl::StatusOr<bool> World::Impl::GoTo(const WorldState& state) {
  if (failed_ || !quasi_static_.empty() || state.info.description_hash != description_hash_) return false;
  if (state.topology != topology_ && !IsSameTopology(*state.topology, *topology_)) return false;
  absl::StatusOr<bool> is_there = LoadIntoThis(state);
  if (!is_there.ok()) failed_ = is_edited_ = true;  // so that Reset makes all of it anew
  return is_there;
}

absl::StatusOr<bool> World::Impl::LoadIntoThis(const WorldState& state) {
  constexpr const char* kSection = "checkpoint: section scene";
  const std::string_view scene = state.scene;
  StateReader head(scene, kSection);
  const SceneCounts counts = LoadCounts(head);
  StateWriter same;
  SaveCounts(counts, same);
  SaveTissue(same);
  if (!head.ok() || !scene.starts_with(same.bytes())) return false;
  StateReader archive(scene.substr(same.bytes().size()), kSection);
  PALPATE_ASSIGN_OR_RETURN(const bool is_same, solver_->LoadState(state.solver));
  if (!is_same) return false;
  ResetTools();
  rack_.ResetCommands();
  removal_.Reset();
  publisher_.ResetMarkers();
  publisher_.SetVolumeWanted(false);
  auto frame = std::make_shared<Frame>(*state.frame);
  frame->topology = topology_;
  frame_ = std::move(frame);
  PALPATE_RETURN_IF_ERROR(LoadInstruments(counts, archive));
  PALPATE_RETURN_IF_ERROR(archive.Finish());
  if (frame_->step != step_ || frame_->tools.size() != description_.tools.size()) return CannotBe("its frame is of another scene");
  PALPATE_RETURN_IF_ERROR(UpdateGathered());
  return true;
}

World::Impl::SceneCounts World::Impl::LoadCounts(StateReader& archive) {
  SceneCounts counts;
  archive.Enter("World");
  archive(counts.step, counts.is_edited, counts.is_given, counts.bodies);
  return counts;
}

absl::Status World::Impl::LoadScene(StateReader& archive) {
  const SceneCounts counts = LoadCounts(archive);
  PALPATE_RETURN_IF_ERROR(LoadBodies(counts.bodies, archive));
  archive(model_);
  archive.Check(!archive.ok() || model_.IsSound(), "the solver's model is not that of the bodies");
  return LoadInstruments(counts, archive);
}

/// What follows the tissue.
absl::Status World::Impl::LoadInstruments(const SceneCounts& counts, StateReader& archive) {
  step_ = counts.step;
  is_edited_ = counts.is_edited;
  is_given_ = counts.is_given;
  archive(rack_, grasping_, projection_, removal_, joints_, publisher_);
  for (const ToolState& tool : rack_.tools()) {
    for (const size_t body : tool.cut_bodies) {
      archive.Check(body < bodies_.size() && (bodies_[body]->is_editable() || bodies_[body]->has_sheet()), "a blade is in no body");
    }
    for (const VertexHandle handle : tool.pinched) archive.Check(vertices_.body.contains(handle), "a pinched vertex is out of range");
  }
  PALPATE_RETURN_IF_ERROR(archive.status());
  return quasi_static_.LoadState(vertices_, bodies_.size(), archive);
}

/// Bodies of the description are there, as at rest; pieces are made. Then their vertices.
absl::Status World::Impl::LoadBodies(uint64_t body_count, StateReader& archive) {
  archive.Check(body_count >= bodies_.size() && body_count == topology_->bodies.size(), "another number of bodies");
  PALPATE_RETURN_IF_ERROR(archive.status());
  const size_t described = bodies_.size();
  while (bodies_.size() < body_count) bodies_.push_back(WorldBody::MakeEmptyPiece(static_cast<uint32_t>(bodies_.size()), &vertices_));
  for (const auto& body : bodies_) body->VisitState(archive, frame_->markers.size(), scene_.motions().bound.size());
  archive(vertices_);
  PALPATE_RETURN_IF_ERROR(archive.status());
  for (size_t b = described; b < bodies_.size(); ++b) {
    if (!bodies_[b]->has_sheet()) continue;
    const uint32_t root = bodies_[b]->shell_of();
    if (root >= described || bodies_[root]->shell() == nullptr) return CannotBe("section scene: a piece is of no shell");
    if (bodies_[root]->zones().count() != bodies_[b]->zones().count()) return CannotBe("section scene: a piece has other zones");
    bodies_[b]->TakeShellOf(*bodies_[root]);
  }
  size_t alive = 0;
  for (size_t b = 0; b < bodies_.size(); ++b) {
    const absl::Status accepted = bodies_[b]->Accept(topology_->bodies[b]);
    if (!accepted.ok()) return CannotBe(absl::StrCat("section scene: body ", b, ": ", accepted.message()));
    for (uint32_t v = 0; v < bodies_[b]->vertex_slot_count(); ++v) alive += bodies_[b]->HandleOf(v) != kNoHandle ? 1 : 0;
  }
  const size_t regions = scene_.motions().driven.size();
  const size_t joint_sets = scene_.motions().joint_sets.size();
  for (const VertexHandle v : vertices_.handles()) {
    alive -= vertices_.IsAlive(v) ? 1 : 0;
    if (vertices_.driven[v] != kNoSlot && vertices_.driven[v] >= regions) return CannotBe("section scene: a vertex is driven by no region");
    if (vertices_.joint_set[v] != kNoSlot && vertices_.joint_set[v] >= joint_sets) {
      return CannotBe("section scene: a vertex is of no joint");
    }
  }
  return alive == 0 ? absl::OkStatus() : CannotBe("section scene: a vertex is of no body");
}

}  // namespace palpate::sim
