// Edits of a running world. All happen on the host's meshes first; then the arrays of the bodies, and with them the solver's model, take
// over what changed, once for all edits of a call. docs/surgery.md.
#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "sim/mesh/exact_predicates.h"
#include "sim/scene/material.h"
#include "sim/world/world_impl.h"

namespace palpate::sim {
namespace {

template <typename... T>
struct Overloaded : T... {
  using T::operator()...;
};
template <typename... T>
Overloaded(T...) -> Overloaded<T...>;

// Each side of a cut is drawn back by this share of the gap that the lips of a cut have; more than half of it, for normals at an angle.
constexpr double kOpenShare = 0.6;
// A vertex is drawn back only if it sees all triangles around it at least this steeply (sine).
constexpr double kLeastSine = 0.05;
// A tet at a vertex that is drawn back keeps this share of its volume.
constexpr double kLeastVolume = 0.5;
constexpr double kLeastVolumeAway = 0.1;  // of one that sees not all of them

absl::Status CheckRegion(const EditRegion& region, const WorldBody& body) {
  const auto positive = [](double radius_m) -> absl::Status {
    if (std::isfinite(radius_m) && radius_m > 0) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat("region: radius_m ", radius_m, " must be positive and finite"));
  };
  return std::visit(Overloaded{[&](const BallRegion& ball) -> absl::Status {
                                 if (!ball.center_m.allFinite()) return absl::InvalidArgumentError("region: center_m is not finite");
                                 return positive(ball.radius_m);
                               },
                               [&](const CapsuleRegion& capsule) -> absl::Status {
                                 if (!capsule.end0_m.allFinite() || !capsule.end1_m.allFinite()) {
                                   return absl::InvalidArgumentError("region: an end is not finite");
                                 }
                                 return positive(capsule.radius_m);
                               },
                               [](const TetListRegion&) -> absl::Status { return absl::OkStatus(); },
                               [&](const ZoneRegion& zone) -> absl::Status {
                                 if (body.FindZone(zone.zone) >= 0) return absl::OkStatus();
                                 return absl::NotFoundError(absl::StrCat("region: body ", body.name(), " has no zone \"", zone.zone, "\""));
                               }},
                    region);
}

absl::Status CheckMaterial(const Material& material) {
  PALPATE_RETURN_IF_ERROR(Annotate(CheckMaterialRanges(material), "material"));
  return Annotate(TissueOf(material).status(), "material");
}

/// The direction whose least fall against the planes of `normals` (unit, outwards) is large: into the solid, seen by all of them. Returns
/// the sine of that least fall.
double InwardDirection(const std::vector<Eigen::Vector3d>& normals, Eigen::Vector3d* best) {
  constexpr int kRounds = 40;
  Eigen::Vector3d u = Eigen::Vector3d::Zero();
  for (const Eigen::Vector3d& n : normals) u -= n;
  double best_fall = -1;
  for (int round = 0; round < kRounds; ++round) {
    if (!(u.norm() > 1e-9)) break;
    u.normalize();
    double fall = 2;
    const Eigen::Vector3d* worst = nullptr;
    for (const Eigen::Vector3d& n : normals) {
      if (-n.dot(u) < fall) {
        fall = -n.dot(u);
        worst = &n;
      }
    }
    if (fall > best_fall) {
      best_fall = fall;
      *best = u;
    }
    if (best_fall > 0.7 || worst == nullptr) break;
    u -= 0.3 * *worst;
  }
  return best_fall;
}

double Volume(const std::array<Eigen::Vector3d, 4>& x) { return (x[1] - x[0]).cross(x[2] - x[0]).dot(x[3] - x[0]) / 6; }

}  // namespace

absl::Status World::Impl::CheckEdit(const Edit& edit) const {
  const auto* const grasp = std::get_if<GraspEdit>(&edit.what);
  const auto* const release = std::get_if<ReleaseEdit>(&edit.what);
  if (grasp != nullptr || release != nullptr) {
    const size_t tool = grasp != nullptr ? grasp->tool : release->tool;
    if (tool >= tools_.size()) return absl::NotFoundError(absl::StrCat("tool ", tool, " is outside [0, ", tools_.size(), ")"));
    if (!description_.tools[tool].instrument.traits().has_jaws) {
      return absl::InvalidArgumentError(absl::StrCat("tool ", description_.tools[tool].name, " has no jaws"));
    }
    if (grasp != nullptr && !(grasp->radius_m >= 0 && std::isfinite(grasp->radius_m))) {
      return absl::InvalidArgumentError(absl::StrCat("radius_m ", grasp->radius_m, " must not be negative, and finite"));
    }
    return absl::OkStatus();
  }
  if (edit.body >= bodies_.size()) {
    return absl::NotFoundError(absl::StrCat("body ", edit.body, " is outside [0, ", bodies_.size(), ")"));
  }
  const WorldBody& body = *bodies_[edit.body];
  if (body.kind() != BodyKind::kDeformable) {
    return absl::InvalidArgumentError(absl::StrCat("body ", body.name(), " is not deformable: only tissue can be edited"));
  }
  if (!body.is_editable() && !std::holds_alternative<MaterialEdit>(edit.what)) {
    return absl::InvalidArgumentError(absl::StrCat("body ", body.name(), " cannot be edited: its mesh is not a manifold"));
  }
  if (!body.is_cuttable() && !std::holds_alternative<MaterialEdit>(edit.what)) {
    return absl::FailedPreconditionError(
        absl::StrCat("body ", body.name(), " is pre-computed: its mesh cannot change; a body that is to be cut is hybrid or dynamic"));
  }
  return std::visit(
      Overloaded{[&](const CarveEdit& carve) { return CheckRegion(carve.region, body); },
                 [&](const RefineEdit& refine) -> absl::Status {
                   if (!std::isfinite(refine.max_edge_m) || !(refine.max_edge_m > 0)) {
                     return absl::InvalidArgumentError(absl::StrCat("max_edge_m ", refine.max_edge_m, " must be positive and finite"));
                   }
                   return CheckRegion(refine.region, body);
                 },
                 [&](const InciseEdit& incise) -> absl::Status {
                   if (incise.edges_m.size() < 2) {
                     return absl::InvalidArgumentError(absl::StrCat("edges_m: ", incise.edges_m.size(), " places of the blade, needs 2"));
                   }
                   for (size_t i = 0; i < incise.edges_m.size(); ++i) {
                     if (!incise.edges_m[i][0].allFinite() || !incise.edges_m[i][1].allFinite()) {
                       return absl::InvalidArgumentError(absl::StrCat("edges_m[", i, "] is not finite"));
                     }
                   }
                   return absl::OkStatus();
                 },
                 [&](const MaterialEdit& material) -> absl::Status {
                   if (body.FindZone(material.zone) < 0) {
                     return absl::NotFoundError(absl::StrCat("zone: body ", body.name(), " has no zone \"", material.zone, "\""));
                   }
                   if (!material.of_zones.empty() && (!material.zone.empty() || material.of_zones.size() != body.zone_count())) {
                     return absl::InvalidArgumentError(absl::StrCat("of_zones: ", material.of_zones.size(), " materials for ",
                                                                    body.zone_count(), " zones of the whole body"));
                   }
                   for (const Material& one : material.of_zones.empty() ? std::vector{material.material} : material.of_zones) {
                     if (absl::Status valid = CheckMaterialFor(body.simulation(), one); !valid.ok()) return Annotate(valid, "material");
                     PALPATE_RETURN_IF_ERROR(CheckMaterial(one));
                   }
                   return absl::OkStatus();
                 },
                 [](const GraspEdit&) { return absl::OkStatus(); }, [](const ReleaseEdit&) { return absl::OkStatus(); }},
      edit.what);
}

/// Whether the tissue of a body may overlap itself or others beneath surfaces that do not cross, so that what is uncovered would. Without
/// inverted tets each point of a body is covered once.
bool World::Impl::IsFolded(const WorldBody& body) {
  if (!may_fold_ || !body.is_editable()) return false;
  is_folded_.resize(bodies_.size(), 0);
  uint8_t& known = is_folded_[body.index()];
  if (known == 0) known = body.HasInvertedTets() ? 2 : 1;
  any_folded_ |= known == 2;
  return known == 2;
}

absl::StatusOr<EditOutcome> World::Impl::ApplyTo(WorldBody& body, const Edit& edit) {
  EditOutcome told;                         // what the observer of the mesh cannot know
  size_t max_tets = description_.max_tets;  // of this body
  for (const auto& other : bodies_) max_tets -= other->index() == body.index() ? 0 : std::min(max_tets, other->tet_count());
  body.BeginEdit();
  if (body.is_editable()) {
    ExposureGuard guard;
    if (IsFolded(body)) {
      guard = [&](const UncoveredFaces& faces, std::vector<uint8_t>* is_refused) { return surface_.Refuse(body, faces, is_refused); };
    }
    body.SetGuard(guard);
  }
  if (const auto* carve = std::get_if<CarveEdit>(&edit.what)) {
    PALPATE_RETURN_IF_ERROR(body.Carve(carve->region, &told));
  } else if (const auto* refine = std::get_if<RefineEdit>(&edit.what)) {
    PALPATE_RETURN_IF_ERROR(body.Refine(refine->region, *refine, max_tets, &told));
  } else if (const auto* incise = std::get_if<InciseEdit>(&edit.what)) {
    PALPATE_RETURN_IF_ERROR(body.Incise(*incise, max_tets, &told));
  } else if (const auto* material = std::get_if<MaterialEdit>(&edit.what)) {
    for (size_t zone = 0; zone < body.zone_count(); ++zone) {
      if (material->zone.empty() || body.FindZone(material->zone) == static_cast<int>(zone)) {
        body.SetMaterial(static_cast<TetZoneId>(zone), material->of_zones.empty() ? material->material : material->of_zones[zone]);
      }
    }
    rematerialised_.push_back(body.index());
    statistics_known_.assign(bodies_.size(), 0);
  }
  const auto is_taken = [&](const std::string& name) {
    return std::any_of(bodies_.begin(), bodies_.end(), [&](const auto& other) { return other->name() == name; });
  };
  const auto first = static_cast<uint32_t>(bodies_.size());
  if (body.is_editable()) {
    PALPATE_ASSIGN_OR_RETURN(std::vector<std::unique_ptr<WorldBody>> pieces, body.DetachPieces(first, is_taken));
    if (!pieces.empty()) surface_.Forget(body.index());
    for (auto& piece : pieces) {
      told.new_bodies.push_back(piece->index());
      bodies_.push_back(std::move(piece));
    }
  }
  EditOutcome outcome = body.FinishEdit();
  // A released marker stays where the newest frame has it.
  for (const uint32_t marker : outcome.released_markers) {
    markers_[marker].is_released = true;
    markers_[marker].body_index = body.index();
  }
  outcome.new_bodies = std::move(told.new_bodies);
  outcome.unchanged_count = told.unchanged_count;
  outcome.is_refused = told.is_refused;
  outcome.note = std::move(told.note);
  return outcome;
}

absl::StatusOr<std::vector<EditOutcome>> World::Impl::Apply(std::span<const Edit> edits, const std::function<bool()>& is_enough) {
  if (failed_) return absl::FailedPreconditionError("the scene has failed and must be reset");
  for (size_t i = 0; i < edits.size(); ++i) {
    if (absl::Status valid = CheckEdit(edits[i]); !valid.ok()) return Annotate(valid, absl::StrCat("edits[", i, "]"));
  }
  std::vector<EditOutcome> outcomes;
  if (edits.empty()) return outcomes;
  is_edited_ = true;
  const absl::Status status = [&]() -> absl::Status {
    PALPATE_RETURN_IF_ERROR(solver_->ReadState(vertices_.state));
    quasi_static_.GiveVelocities(description_.dt_s, &vertices_);
    surface_.Forget();
    is_folded_.clear();
    may_fold_ = is_given_ || frame_->inverted_tets > 0;
    any_folded_ = false;
    bool has_changed = false;
    for (const Edit& edit : edits) {
      if (!outcomes.empty() && is_enough && is_enough()) break;
      if (const auto* grasp = std::get_if<GraspEdit>(&edit.what)) {
        outcomes.push_back(GraspByRequest(grasp->tool, grasp->radius_m));
        continue;
      }
      if (const auto* release = std::get_if<ReleaseEdit>(&edit.what)) {
        tools_[release->tool].held.clear();
        tools_[release->tool].closes_to_rad.reset();
        outcomes.emplace_back();
        continue;
      }
      PALPATE_ASSIGN_OR_RETURN(EditOutcome outcome, ApplyTo(*bodies_[edit.body], edit));
      outcomes.push_back(std::move(outcome));
      if (std::holds_alternative<MaterialEdit>(edit.what)) {
        has_changed = true;
        quasi_static_.ForgetModel(static_cast<uint32_t>(edit.body));
      }
    }
    FollowEdits(edits.first(outcomes.size()), outcomes);
    for (const auto& body : bodies_) has_changed |= body->has_changes();
    return has_changed ? CommitEdits() : absl::OkStatus();
  }();
  if (!status.ok()) {  // none that the checks let through is expected to
    failed_ = true;
    return Annotate(status, "the scene failed while it was edited and must be reset");
  }
  return outcomes;
}

/// Brings the arrays, the solver and the frame to the state of the meshes.
absl::Status World::Impl::CommitEdits() {
  std::vector<uint32_t> copied;
  for (const auto& body : bodies_) {
    const std::vector<uint32_t> of_body = body->TakeCopied();
    copied.insert(copied.end(), of_body.begin(), of_body.end());
  }
  std::sort(copied.begin(), copied.end());
  copied.erase(std::unique(copied.begin(), copied.end()), copied.end());
  OpenCopies(copied);

  auto topology = std::make_shared<WorldTopology>();
  topology->version = topology_->version + 1;
  topology->follows = true;
  statistics_known_.resize(bodies_.size(), 0);
  std::vector<BodyArraysChange> changes;
  bool has_changed = false;
  for (size_t b = 0; b < bodies_.size(); ++b) {
    WorldBody& body = *bodies_[b];
    if (body.has_changes()) {
      has_changed = true;
      statistics_known_[b] = 0;
      BodyArraysChange change = body.UpdateArrays();
      if (b < topology_->bodies.size()) changes.push_back(std::move(change));
    }
    topology->bodies.push_back(body.arrays());
  }
  topology->changes = changes;
  if (has_changed) topology_ = std::move(topology);

  // The layout of prescribed vertices is made anew as a whole.
  bool follows = quasi_static_.empty();
  PALPATE_RETURN_IF_ERROR(UpdateQuasiStatic(/*eager=*/false));
  if (follows) {
    const gpu::TissueChange change = UpdateModel(changes);
    PALPATE_ASSIGN_OR_RETURN(follows, solver_->Update(model_, change, vertices_.state));
  }
  if (!follows) {
    MakeModel();  // with everything in order again
    PALPATE_RETURN_IF_ERROR(solver_->Rebuild(model_, vertices_.state));
  }
  PALPATE_RETURN_IF_ERROR(UpdateGathered());
  PALPATE_ASSIGN_OR_RETURN(const gpu::TissueStep step, solver_->Inspect());
  // Contacts are of a step, and this frame is not of one; the next projection still starts from their forces.
  std::vector<ProjectedContact> projected = std::exchange(projected_, {});
  std::shared_ptr<Frame> frame = MakeFrame(step);
  projected_ = std::move(projected);
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

/// Copies and their originals lie in the same place, where nothing could keep them apart. Each is drawn back a little into its own solid:
/// as long as it sees all triangles around it from behind, what the solid loses it had before, so it cannot meet anything that way. Where
/// nothing sees them all, as in a saddle, the vertex goes away from its copies, as far as what is there leaves room.
void World::Impl::OpenCopies(std::span<const uint32_t> copied) {
  const double back_m = kOpenShare * PALPATE_LIP_SHARE * description_.contact.margin_m;
  std::vector<Eigen::Vector3d> places_m;
  for (const uint32_t handle : copied)
    places_m.push_back(vertices_.body[handle] == SceneVertices::kNoBody ? Eigen::Vector3d::Constant(NAN) : PositionOf(handle));
  std::vector<size_t> unopened;
  std::vector<uint32_t> fan;
  std::vector<Eigen::Vector3d> normals;
  for (size_t i = 0; i < copied.size(); ++i) {
    const uint32_t handle = copied[i];
    if (vertices_.body[handle] == SceneVertices::kNoBody) continue;
    const WorldBody& body = *bodies_[vertices_.body[handle]];
    const uint32_t vertex = vertices_.slot[handle];
    const auto inward = [&](const auto& position_of, Eigen::Vector3d* direction) {
      normals.clear();
      body.mesh().SurfaceFan(vertex, &fan);
      for (const uint32_t triangle : fan) {
        const auto& v = body.mesh().TriangleVertices(triangle);
        const Eigen::Vector3d n = (position_of(v[1]) - position_of(v[0])).cross(position_of(v[2]) - position_of(v[0]));
        if (n.norm() > 1e-16) normals.push_back(n.normalized());
      }
      if (normals.empty() || !(InwardDirection(normals, direction) > kLeastSine)) return false;
      if (vertices_.held[handle] == 0) return true;
      *direction = AlongFreeAxes(handle, *direction);
      return std::all_of(normals.begin(), normals.end(), [&](const Eigen::Vector3d& n) { return -n.dot(*direction) > kLeastSine; });
    };
    Eigen::Vector3d direction;
    if (!inward([&](uint32_t v) { return body.PositionOf(v); }, &direction)) {
      unopened.push_back(i);
      continue;
    }
    double way_m = back_m;
    bool is_open = false;
    std::vector<SceneSurface::Triangle> around;
    std::vector<SceneSurface::Triangle> near;
    if (any_folded_) ListAround(handle, back_m, &around, &near);
    for (int halving = 0; halving < 10 && !is_open; ++halving) {
      const Eigen::Vector3d to = places_m[i] + way_m * direction;
      is_open =
          KeepsVolume(handle, to, kLeastVolume) && !(any_folded_ && PassesThrough(handle, to.cast<float>().cast<double>(), around, near));
      if (is_open) MoveCopy(handle, to);
      if (!is_open) way_m /= 2;
    }
    if (!is_open && any_folded_) unopened.push_back(i);
    // A driven vertex goes where its place at rest is taken: there too the two must differ.
    Eigen::Vector3d at_rest;
    if (vertices_.driven[handle] == kNoSlot) continue;
    if (!inward([&](uint32_t v) { return vertices_.rest_m[body.HandleOf(v)]; }, &at_rest)) continue;
    vertices_.rest_m[handle] += way_m * at_rest;
    vertices_.changed.push_back(handle);
  }
  for (const size_t i : unopened) {
    std::vector<uint32_t> others;
    for (size_t k = 0; k < copied.size(); ++k) {
      if (k != i && places_m[k] == places_m[i]) others.push_back(copied[k]);
    }
    DrawAway(copied[i], others, back_m);
  }
}

Eigen::Vector3d World::Impl::PositionOf(uint32_t handle) const {
  const gpu::Float4& x = vertices_.state[handle].position_m;
  return {x.x, x.y, x.z};
}

/// A move of a vertex without what it is held along.
Eigen::Vector3d World::Impl::AlongFreeAxes(uint32_t handle, Eigen::Vector3d move) const {
  for (int axis = 0; axis < 3; ++axis) {
    if ((vertices_.held[handle] >> axis & 1) != 0) move[axis] = 0;
  }
  return move;
}

void World::Impl::MoveCopy(uint32_t handle, const Eigen::Vector3d& to_m) {
  const Eigen::Vector3f to = to_m.cast<float>();
  vertices_.state[handle].position_m = {to.x(), to.y(), to.z(), 0.0F};
  vertices_.changed.push_back(handle);
  surface_.FollowMove(handle);
}

/// Whether each tet around a vertex keeps this share of its volume if the vertex goes there.
bool World::Impl::KeepsVolume(uint32_t handle, const Eigen::Vector3d& to_m, double least_share) const {
  const WorldBody& body = *bodies_[vertices_.body[handle]];
  const uint32_t vertex = vertices_.slot[handle];
  std::vector<uint32_t> tets;
  body.mesh().TetsAroundVertex(vertex, &tets);
  return std::all_of(tets.begin(), tets.end(), [&](uint32_t tet) {
    std::array<Eigen::Vector3d, 4> x;
    std::array<Eigen::Vector3d, 4> moved;
    for (size_t c = 0; c < 4; ++c) {
      const uint32_t v = body.mesh().TetVertices(tet)[c];
      x[c] = body.PositionOf(v);
      moved[c] = v == vertex ? to_m : x[c];
    }
    const double volume_m3 = Volume(x);
    return !(volume_m3 > 0) || Volume(moved) >= least_share * volume_m3;
  });
}

/// Handles of the triangles around a vertex, it first, and of those that they may meet if it moves by way_m.
void World::Impl::ListAround(uint32_t handle, double way_m, std::vector<SceneSurface::Triangle>* fan,
                             std::vector<SceneSurface::Triangle>* near) {
  const WorldBody& body = *bodies_[vertices_.body[handle]];
  std::vector<uint32_t> list;
  Eigen::AlignedBox3d box(PositionOf(handle));
  fan->clear();
  body.mesh().SurfaceFan(vertices_.slot[handle], &list);
  for (const uint32_t triangle : list) {
    SceneSurface::Triangle& corners = fan->emplace_back();
    for (size_t c = 0; c < 3; ++c) {
      corners[c] = body.HandleOf(body.mesh().TriangleVertices(triangle)[c]);
      box.extend(PositionOf(corners[c]));
    }
    while (corners[0] != handle) std::rotate(corners.begin(), corners.begin() + 1, corners.end());
  }
  const Eigen::Vector3d way = Eigen::Vector3d::Constant(way_m);
  std::vector<SceneSurface::Near> found;
  surface_.ListNear({box.min() - way, box.max() + way}, &found);
  near->clear();
  for (const SceneSurface::Near& triangle : found) {
    if (std::find(triangle.corners.begin(), triangle.corners.end(), handle) == triangle.corners.end()) near->push_back(triangle.corners);
  }
}

/// Whether a triangle around a vertex would pass through one of `near` with the vertex there.
bool World::Impl::PassesThrough(uint32_t handle, const Eigen::Vector3d& to_m, std::span<const SceneSurface::Triangle> fan,
                                std::span<const SceneSurface::Triangle> near) const {
  const auto at = [&](uint32_t corner) { return corner == handle ? to_m : PositionOf(corner); };
  return std::any_of(fan.begin(), fan.end(), [&](const SceneSurface::Triangle& own) {
    return std::any_of(near.begin(), near.end(), [&](const SceneSurface::Triangle& other) {
      for (size_t c = 0; c < 3; ++c) {
        if (SceneSurface::Pierces(other[c], other[(c + 1) % 3], own, at)) return true;
      }
      return SceneSurface::Pierces(handle, own[1], other, at);
    });
  });
}

/// Moves a vertex away from others in the same place by way_m, or less, such that none of its tets turns over, it ends in no tet of the
/// others, and no triangle around it passes through another. O(surface triangles); few vertices need it.
void World::Impl::DrawAway(uint32_t handle, std::span<const uint32_t> others, double way_m) {
  const Eigen::Vector3d from = PositionOf(handle);
  std::vector<uint32_t> list;

  // Handles of the corners of what is around: of the tets of the others, of the own fan, and of triangles that this may meet.
  std::vector<std::array<uint32_t, 4>> tets;
  const auto toward_tets = [&](uint32_t at, std::vector<std::array<uint32_t, 4>>* corners) {
    Eigen::Vector3d sum = Eigen::Vector3d::Zero();
    const WorldBody& owner = *bodies_[vertices_.body[at]];
    owner.mesh().TetsAroundVertex(vertices_.slot[at], &list);
    for (const uint32_t tet : list) {
      std::array<uint32_t, 4> handles{};
      Eigen::Vector3d arm = Eigen::Vector3d::Zero();
      for (size_t c = 0; c < 4; ++c) {
        handles[c] = owner.HandleOf(owner.mesh().TetVertices(tet)[c]);
        arm += PositionOf(handles[c]) - PositionOf(at);
      }
      sum += arm.normalized();
      if (corners != nullptr) corners->push_back(handles);
    }
    return sum;
  };
  const Eigen::Vector3d own = toward_tets(handle, nullptr);
  Eigen::Vector3d away = own.normalized();
  for (const uint32_t other : others) away -= toward_tets(other, &tets).normalized();
  std::vector<SceneSurface::Triangle> fan;
  std::vector<SceneSurface::Triangle> near;
  ListAround(handle, way_m, &fan, &near);
  Eigen::Vector3d inward = Eigen::Vector3d::Zero();
  for (const SceneSurface::Triangle& corners : fan) {
    const Eigen::Vector3d normal = (PositionOf(corners[1]) - from).cross(PositionOf(corners[2]) - from);
    if (normal.norm() > 0) inward -= normal.normalized();
  }

  const auto is_free = [&](const Eigen::Vector3d& to) {
    const auto at = [&](uint32_t corner) { return corner == handle ? to : PositionOf(corner); };
    const auto is_inside = [&](const std::array<uint32_t, 4>& tet) {
      const Eigen::Vector3d x[] = {at(tet[0]), at(tet[1]), at(tet[2]), at(tet[3])};
      return Orient3d(to, x[1], x[2], x[3]) >= 0 && Orient3d(x[0], to, x[2], x[3]) >= 0 && Orient3d(x[0], x[1], to, x[3]) >= 0 &&
             Orient3d(x[0], x[1], x[2], to) >= 0;
    };
    return std::none_of(tets.begin(), tets.end(), is_inside) && !PassesThrough(handle, to, fan, near);
  };
  std::vector<Eigen::Vector3d> directions = {away, inward, own};
  for (int k = 0; k < 27; ++k) directions.emplace_back(k % 3 - 1, k / 3 % 3 - 1, k / 9 - 1);
  for (int halving = 0; halving < 4; ++halving, way_m /= 2) {
    for (const Eigen::Vector3d& direction : directions) {
      const Eigen::Vector3d free = AlongFreeAxes(handle, direction);
      if (!(free.norm() > 1e-6)) continue;
      const Eigen::Vector3d to = (from + way_m * free.normalized()).cast<float>().cast<double>();
      if (!KeepsVolume(handle, to, kLeastVolumeAway) || !is_free(to)) continue;
      MoveCopy(handle, to);
      return;
    }
  }
}

}  // namespace palpate::sim
