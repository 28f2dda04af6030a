// Edits of a running world. All happen on the host's meshes first; then the arrays of the bodies, and with them the solver's model, take
// over what changed, once for all edits of a call. docs/surgery.md.
#include <algorithm>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "sim/world/edit_checks.h"
#include "sim/world/world_impl.h"

namespace palpate::sim {

absl::StatusOr<EditOutcome> World::Impl::ApplyTo(WorldBody& body, const Edit& edit) {
  EditOutcome told;                         // what the observer of the mesh cannot know
  size_t max_tets = description_.max_tets;  // of this body; of a shell triangles
  for (const auto& other : bodies_) {
    const size_t count = !body.has_sheet() ? other->tet_count() : other->has_sheet() ? other->sheet().triangle_count() : 0;
    max_tets -= other->index() == body.index() ? 0 : std::min(max_tets, count);
  }
  body.BeginEdit();
  if (body.is_editable()) body.SetGuard(folds_.GuardOf(body));
  if (const auto* carve = std::get_if<CarveEdit>(&edit.what)) {
    PALPATE_RETURN_IF_ERROR(body.Carve(carve->region, &told));
  } else if (const auto* refine = std::get_if<RefineEdit>(&edit.what)) {
    PALPATE_RETURN_IF_ERROR(body.Refine(refine->region, *refine, max_tets, &told));
  } else if (const auto* incise = std::get_if<InciseEdit>(&edit.what)) {
    PALPATE_RETURN_IF_ERROR(body.Incise(*incise, max_tets, &told));
  } else if (const auto* material = std::get_if<MaterialEdit>(&edit.what)) {
    for (size_t zone = 0; zone < body.zones().count(); ++zone) {
      if (material->zone.empty() || body.zones().Find(material->zone) == static_cast<int>(zone)) {
        body.SetMaterial(static_cast<TetZoneId>(zone), material->of_zones.empty() ? material->material : material->of_zones[zone]);
      }
    }
    model_.MarkMaterials(body.index());
    scene_.ForgetStatistics();
  }
  const auto is_taken = [&](const std::string& name) { return scene_.HasName(name); };
  const auto first = static_cast<uint32_t>(bodies_.size());
  if (body.is_editable() || body.has_sheet()) {
    PALPATE_ASSIGN_OR_RETURN(std::vector<std::unique_ptr<WorldBody>> pieces, body.DetachPieces(first, is_taken));
    if (!pieces.empty()) surface_.Forget(body.index());
    for (auto& piece : pieces) {
      told.new_bodies.push_back(piece->index());
      bodies_.push_back(std::move(piece));
    }
  }
  EditOutcome outcome = body.FinishEdit();
  for (const uint32_t marker : outcome.released_markers) publisher_.ReleaseMarker(marker, body.index());
  outcome.new_bodies = std::move(told.new_bodies);
  outcome.unchanged_count = told.unchanged_count;
  outcome.is_refused = told.is_refused;
  outcome.note = std::move(told.note);
  return outcome;
}

absl::StatusOr<std::vector<EditOutcome>> World::Impl::Apply(std::span<const Edit> edits, const std::function<bool()>& is_enough) {
  if (failed_) return absl::FailedPreconditionError("the scene has failed and must be reset");
  for (size_t i = 0; i < edits.size(); ++i) {
    const absl::Status valid = CheckEdit(edits[i], bodies_, description_);
    if (!valid.ok()) return Annotate(valid, absl::StrCat("edits[", i, "]"));
  }
  std::vector<EditOutcome> outcomes;
  if (edits.empty()) return outcomes;
  is_edited_ = true;
  const absl::Status status = ApplyAll(edits, is_enough, &outcomes);
  if (!status.ok()) {  // none that the checks let through is expected to
    failed_ = true;
    return Annotate(status, "the scene failed while it was edited and must be reset");
  }
  return outcomes;
}

absl::Status World::Impl::ApplyAll(std::span<const Edit> edits, const std::function<bool()>& is_enough,
                                   std::vector<EditOutcome>* outcomes) {
  PALPATE_RETURN_IF_ERROR(solver_->ReadState(vertices_.state.values()));
  quasi_static_.GiveVelocities(description_.dt_s, &vertices_);
  surface_.Forget();
  folds_.Begin(is_given_ || frame_->inverted_tets > 0);
  bool has_changed = false;
  for (const Edit& edit : edits) {
    if (!outcomes->empty() && is_enough && is_enough()) break;
    if (const auto* grasp = std::get_if<GraspEdit>(&edit.what)) {
      outcomes->push_back(grasping_.GraspByRequest(grasp->tool, grasp->radius_m));
      continue;
    }
    if (const auto* release = std::get_if<ReleaseEdit>(&edit.what)) {
      grasping_.Release(release->tool);
      outcomes->emplace_back();
      continue;
    }
    if (const auto* joint = std::get_if<JointEdit>(&edit.what)) {
      joints_.Apply(*joint);
      outcomes->emplace_back();
      auto frame = std::make_shared<Frame>(*frame_);
      frame->joints = joints_.frame();
      frame_ = std::move(frame);
      continue;
    }
    PALPATE_ASSIGN_OR_RETURN(EditOutcome outcome, ApplyTo(*bodies_[edit.body], edit));
    outcomes->push_back(std::move(outcome));
    if (std::holds_alternative<MaterialEdit>(edit.what)) {
      has_changed = true;
      quasi_static_.ForgetModel(static_cast<uint32_t>(edit.body));
    }
  }
  removal_.FollowEdits(edits.first(outcomes->size()), *outcomes);
  for (const auto& body : bodies_) has_changed |= body->has_changes();
  return has_changed ? CommitEdits() : absl::OkStatus();
}

/// Brings the arrays, the solver and the frame to the state of the meshes.
absl::Status World::Impl::CommitEdits() {
  std::vector<VertexHandle> copied;
  for (const auto& body : bodies_) {
    const std::vector<VertexHandle> of_body = body->TakeCopied();
    copied.insert(copied.end(), of_body.begin(), of_body.end());
  }
  std::sort(copied.begin(), copied.end());
  copied.erase(std::unique(copied.begin(), copied.end()), copied.end());
  opening_.Open(copied, folds_.any());
  PALPATE_RETURN_IF_ERROR(UpdateSolver(UpdateTopology()));
  joints_.FollowEdits(model_.model());
  return PublishEdits();
}

/// Makes the next version, if anything changed. Returns what is different of bodies that were there before.
std::vector<BodyArraysChange> World::Impl::UpdateTopology() {
  auto topology = std::make_shared<WorldTopology>();
  topology->version = topology_->version + 1;
  topology->follows = true;
  std::vector<BodyArraysChange> changes;
  bool has_changed = false;
  for (size_t b = 0; b < bodies_.size(); ++b) {
    WorldBody& body = *bodies_[b];
    if (body.has_changes()) {
      has_changed = true;
      scene_.ForgetStatistics(b);
      BodyArraysChange change = body.UpdateArrays();
      if (b < topology_->bodies.size()) changes.push_back(std::move(change));
    }
    topology->bodies.push_back(body.arrays());
  }
  topology->changes = changes;
  if (has_changed) topology_ = std::move(topology);
  return changes;
}

absl::Status World::Impl::UpdateSolver(std::span<const BodyArraysChange> changes) {
  // The layout of prescribed vertices is made anew as a whole, and that of shells.
  const auto is_of_shell = [&](const BodyArraysChange& change) { return bodies_[change.body]->has_sheet(); };
  bool follows = quasi_static_.empty() && !model_.HasNewShellMaterials() && std::none_of(changes.begin(), changes.end(), is_of_shell);
  PALPATE_RETURN_IF_ERROR(UpdateQuasiStatic(/*eager=*/false));
  if (follows) {
    const gpu::TissueChange change = model_.Update(changes);
    PALPATE_ASSIGN_OR_RETURN(follows, solver_->Update(model_.model(), change, vertices_.state.values()));
  }
  if (follows) return absl::OkStatus();
  MakeModel();
  return solver_->Rebuild(model_.model(), vertices_.state.values());
}

/// A frame between two steps.
absl::Status World::Impl::PublishEdits() {
  PALPATE_RETURN_IF_ERROR(UpdateGathered());
  PALPATE_ASSIGN_OR_RETURN(const gpu::TissueStep step, solver_->Inspect());
  // Contacts are of a step, and this frame is not of one; the next projection still starts from their forces.
  std::vector<ProjectedContact> projected = projection_.TakeContacts();
  std::shared_ptr<Frame> frame = MakeFrame(step);
  projection_.GiveBack(std::move(projected));
  // What the newest step told of the tools holds until the next: a hand would feel a gap.
  for (size_t t = 0; t < frame->tools.size(); ++t) {
    const FrameTool& before = frame_->tools[t];
    frame->tools[t].force_n = before.force_n;
    frame->tools[t].torque_n_m = before.torque_n_m;
    frame->tools[t].contact_count = before.contact_count;
    frame->tools[t].is_touching = before.is_touching;
  }
  frame->local_models = frame_->local_models;
  frame_ = std::move(frame);
  return absl::OkStatus();
}

}  // namespace palpate::sim
