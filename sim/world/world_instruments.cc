// What instruments do to tissue between and during steps: jaws that close and hold, power that removes, blades that cut, clips.
#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <utility>

#include <Eigen/SVD>

#include "absl/strings/str_format.h"
#include "sim/instrument/trocar.h"
#include "sim/mesh/signed_distance.h"
#include "sim/world/world_impl.h"

namespace palpate::sim {
namespace {

using Eigen::Vector3d;

constexpr double kJawSpeed_rad_per_s = 4;
constexpr double kPinchShare = 0.02;    // of the largest grasp force, on both jaws: then there is something to hold
constexpr double kInner = 0.3;          // cosine to the direction inwards from which on a contact is on the inner side
constexpr double kLetGo_rad = 0.05;     // wanted beyond the angle at which they took hold
constexpr double kGraspRatio = 20;      // a coupled tool's grasp is at most this much stiffer than what drives it
constexpr double kClipForce_n = 1000;   // a clip holds whatever tissue can pull
constexpr size_t kRefinedGrowth = 8;    // tets of a body that is refined by power, to those of its description
constexpr double kBladeStep_m = 0.001;  // way of a blade between cuts: less would only make slivers

/// Corners of a box around points.
struct Bounds {
  Vector3d low = Vector3d::Constant(std::numeric_limits<double>::infinity());
  Vector3d high = -low;
  void Add(const Vector3d& x) {
    low = low.cwiseMin(x);
    high = high.cwiseMax(x);
  }
  bool Meets(const Bounds& other) const { return (low.array() <= other.high.array()).all() && (other.low.array() <= high.array()).all(); }
};

/// At rest.
double LongestEdge(const ClosedMesh& mesh, uint32_t tet) {
  const auto& v = mesh.TetVertices(tet);
  double longest_sq = 0;
  for (const auto& [a, b] : kTetEdges) {
    const Vector3d edge = mesh.PositionOf(v[static_cast<size_t>(a)]) - mesh.PositionOf(v[static_cast<size_t>(b)]);
    longest_sq = std::max(longest_sq, edge.squaredNorm());
  }
  return std::sqrt(longest_sq);
}

}  // namespace

Eigen::Matrix3d PartFrame(const InstrumentDescription& instrument, double jaw_angle_rad, uint32_t part) {
  if (!instrument.traits().has_jaws || part < kJawMinusPart) return Eigen::Matrix3d::Identity();
  const JawFrame jaw = JawFrameOf(instrument, jaw_angle_rad, part - kJawMinusPart);
  Eigen::Matrix3d frame;
  frame << jaw.along, jaw.inward, jaw.along.cross(jaw.inward);
  return frame;
}

Eigen::Quaterniond BestRotation(const std::vector<Vector3d>& from, const std::vector<Vector3d>& to) {
  Vector3d from_mean = Vector3d::Zero();
  Vector3d to_mean = Vector3d::Zero();
  for (size_t i = 0; i < from.size(); ++i) {
    from_mean += from[i] / static_cast<double>(from.size());
    to_mean += to[i] / static_cast<double>(from.size());
  }
  Eigen::Matrix3d covariance = Eigen::Matrix3d::Zero();
  for (size_t i = 0; i < from.size(); ++i) covariance += (to[i] - to_mean) * (from[i] - from_mean).transpose();
  const Eigen::JacobiSVD<Eigen::Matrix3d> svd(covariance, Eigen::ComputeFullU | Eigen::ComputeFullV);
  Vector3d signs = Vector3d::Ones();
  if ((svd.matrixU() * svd.matrixV().transpose()).determinant() < 0) signs.z() = -1;
  return Eigen::Quaterniond(Eigen::Matrix3d(svd.matrixU() * signs.asDiagonal() * svd.matrixV().transpose())).normalized();
}

/// Tools as at rest, their capsules together and one tool after the other.
void World::Impl::ResetTools() {
  tools_.clear();
  tool_of_collider_.clear();
  clips_.clear();
  anchors_.clear();
  projected_.clear();
  any_projection_ = false;
  for (size_t t = 0; t < description_.tools.size(); ++t) {
    const ToolDescription& tool = description_.tools[t];
    ToolState& state = tools_.emplace_back();
    state.first_collider = static_cast<uint32_t>(tool_of_collider_.size());
    state.jaws = JawDrive({.max_angle_rad = tool.instrument.max_jaw_angle_rad,
                           .max_speed_rad_per_s = kJawSpeed_rad_per_s,
                           .max_torque_n_m = tool.instrument.max_grasp_force_n * tool.instrument.jaw_length_m / 2});
    state.parts = CapsulesOf(tool.instrument, tool.length_m, tool.radius_m, state.jaws.angle_rad());
    state.aim = tool.trocar ? ConstrainToTrocar(*tool.trocar, tool.rest_pose) : tool.rest_pose;
    state.pose = state.aim;
    for (const InstrumentCapsule& part : state.parts) {
      state.capsules_m.push_back({state.pose.position_m + state.pose.rotation * part.tip_m, state.pose.rotation * part.axis_m});
    }
    state.wanted_tip_m = state.capsules_m[0][0];
    any_projection_ = any_projection_ || tool.response == ToolResponse::kProjection;
    tool_of_collider_.insert(tool_of_collider_.end(), state.parts.size(), static_cast<uint32_t>(t));
  }
}

/// Resets the tools, and appends their capsules to `colliders` and to targets_.
absl::Status World::Impl::MakeTools(std::vector<gpu::ColliderDescription>* colliders) {
  ResetTools();
  for (size_t t = 0; t < description_.tools.size(); ++t) {
    const ToolDescription& tool = description_.tools[t];
    const InstrumentDescription& instrument = tool.instrument;
    const double end_m = instrument.tip_length_m();
    if (!(end_m < tool.length_m)) {
      return absl::InvalidArgumentError(absl::StrCat("tools[", t, "] (", tool.name, "): length_m ", tool.length_m,
                                                     " must be more than that of its jaws or blade, ", end_m, " m"));
    }
    for (size_t b = 0; tool.response == ToolResponse::kProjection && b < description_.bodies.size(); ++b) {
      if (!StartsQuasiStatic(description_.bodies[b].simulation)) continue;
      return absl::InvalidArgumentError(absl::StrCat("tools[", t, "] (", tool.name,
                                                     "): the response by projection needs bodies with dynamics, and bodies[", b, "] (",
                                                     description_.bodies[b].name, ") is pre-computed or hybrid"));
    }
    const ToolState& state = tools_[t];
    for (size_t i = 0; i < state.parts.size(); ++i) {
      gpu::ColliderDescription collider;
      collider.radius_m = state.parts[i].radius_m;
      collider.places_after_leader = static_cast<uint32_t>(i);
      collider.skips_tissue = tool.response == ToolResponse::kProjection;
      collider.tip_m = ToArray(state.pose.position_m + state.pose.rotation * state.parts[i].tip_m);
      collider.axis_m = ToArray(state.pose.rotation * state.parts[i].axis_m);
      if (tool.drive == ToolDrive::kCoupled) {
        collider.coupling_n_per_m = tool.coupling_stiffness_n_per_m;
        collider.damping_n_s_per_m = CouplingDamping(tool);
        collider.mass_kg = tool.mass_kg;
      }
      colliders->push_back(collider);
      targets_.push_back({collider.tip_m, collider.axis_m});
    }
  }
  return absl::OkStatus();
}

/// Where the tool's capsules are wanted at the end of the step.
void World::Impl::AimTool(size_t t) {
  const ToolDescription& tool = description_.tools[t];
  ToolState& state = tools_[t];
  RigidPose aim = commands_[t].device_pose;
  if (tool.trocar) {
    aim = ConstrainToTrocar(*tool.trocar, aim);
    // Where tissue holds the tip back, the shaft still passes through the pivot.
    const RigidPose held{state.pose.position_m + (aim.position_m - state.aim.position_m), aim.rotation};
    if (tool.drive == ToolDrive::kCoupled) aim.rotation = ConstrainToTrocar(*tool.trocar, held).rotation;
  }
  state.aim = aim;
  SetTargets(t);
}

/// Tells the capsules of a tool to go where it is aimed.
void World::Impl::SetTargets(size_t t) {
  const ToolState& state = tools_[t];
  const RigidPose& aim = state.aim;
  for (size_t i = 0; i < state.parts.size(); ++i) {
    targets_[state.first_collider + i] = {ToArray(aim.position_m + aim.rotation * state.parts[i].tip_m),
                                          ToArray(aim.rotation * state.parts[i].axis_m)};
  }
}

bool World::Impl::IsAlive(const HeldVertex& held) const {
  return held.handle < vertices_.size() && vertices_.body[held.handle] != SceneVertices::kNoBody &&
         vertices_.rest_m[held.handle] == held.rest_m;
}

Vector3d World::Impl::StateOf(uint32_t handle) const { return ToVector(vertices_.state[handle].position_m); }

/// Surface vertices that lie between the jaws, or within radius_m of the tip if it is positive. SceneVertices::state must be up to date.
std::vector<uint32_t> World::Impl::ListGraspable(size_t t, double radius_m) const {
  const InstrumentDescription& instrument = description_.tools[t].instrument;
  const ToolState& state = tools_[t];
  const Eigen::Quaterniond to_tool = state.pose.rotation.conjugate();
  std::vector<uint32_t> handles;
  for (const auto& body : bodies_) {
    if (body->kind() != BodyKind::kDeformable) continue;
    const auto look_at = [&](uint32_t vertex) {
      const Vector3d in_tool = to_tool * (StateOf(body->HandleOf(vertex)) - state.pose.position_m);
      if (radius_m > 0 ? in_tool.norm() <= radius_m
                       : LiesBetweenJaws(instrument, state.jaws.angle_rad(), in_tool, instrument.jaw_radius_m)) {
        handles.push_back(body->HandleOf(vertex));
      }
    };
    if (!body->is_editable()) {
      for (const uint32_t vertex : body->arrays()->surface_vertices) look_at(vertex);
      continue;
    }
    // The mesh, not the arrays: edits before this one in the same request are in it already.
    for (uint32_t vertex = 0; vertex < body->mesh().vertex_slot_count(); ++vertex) {
      if (body->mesh().IsVertex(vertex) && body->mesh().IsVertexOnSurface(vertex)) look_at(vertex);
    }
  }
  return handles;
}

/// Takes hold of vertices, and lets go of others. SceneVertices::state must be up to date.
void World::Impl::Hold(size_t t, std::vector<uint32_t> handles) {
  const InstrumentDescription& instrument = description_.tools[t].instrument;
  ToolState& state = tools_[t];
  const double angle = state.jaws.angle_rad();
  const Eigen::Quaterniond to_tool = state.pose.rotation.conjugate();
  std::sort(handles.begin(), handles.end());
  handles.erase(std::unique(handles.begin(), handles.end()), handles.end());
  state.held.clear();
  state.closes_to_rad.reset();
  for (const uint32_t handle : handles) {
    const Vector3d in_tool = to_tool * (StateOf(handle) - state.pose.position_m);
    // Rigid with the nearer jaw, so that closing further presses what is between.
    double depth_m[2];
    for (const size_t side : {0, 1}) {
      const JawFrame jaw = JawFrameOf(instrument, angle, side);
      depth_m[side] = std::abs((in_tool - jaw.hinge_m).dot(jaw.inward));
    }
    HeldVertex held;
    held.handle = handle;
    held.rest_m = vertices_.rest_m[handle];
    held.part = depth_m[0] <= depth_m[1] ? kJawMinusPart : kJawPlusPart;
    held.target_m = PartFrame(instrument, angle, held.part).transpose() * (in_tool - state.parts[held.part].tip_m);
    state.held.push_back(held);
  }
  state.grasp_angle_rad = angle;
}

/// Jaws that have closed on tissue take hold of it.
void World::Impl::GraspBetweenJaws(size_t t) {
  std::vector<uint32_t> handles = ListGraspable(t, 0);
  std::copy_if(tools_[t].pinched.begin(), tools_[t].pinched.end(), std::back_inserter(handles),
               [this](uint32_t handle) { return vertices_.body[handle] != SceneVertices::kNoBody; });
  Hold(t, std::move(handles));
}

/// As GraspEdit says. surface_ must be up to date too.
EditOutcome World::Impl::GraspByRequest(size_t t, double radius_m) {
  const ToolDescription& tool = description_.tools[t];
  ToolState& state = tools_[t];
  EditOutcome outcome;
  std::vector<uint32_t> handles = ListGraspable(t, radius_m);
  if (!(radius_m > 0)) {
    std::copy_if(state.pinched.begin(), state.pinched.end(), std::back_inserter(handles),
                 [this](uint32_t handle) { return vertices_.body[handle] != SceneVertices::kNoBody; });
  }
  // The triangle nearest to the tip: tissue may be within reach where no vertex is.
  const Vector3d& tip_m = state.pose.position_m;
  std::vector<SceneSurface::Near> triangles;
  constexpr double kEverywhere_m = 1e6;
  surface_.ListNear(Eigen::AlignedBox3d(Vector3d::Constant(-kEverywhere_m), Vector3d::Constant(kEverywhere_m)), &triangles);
  const SceneSurface::Near* nearest = nullptr;
  double distance_m = std::numeric_limits<double>::infinity();
  for (const SceneSurface::Near& triangle : triangles) {
    if (bodies_[triangle.body]->kind() != BodyKind::kDeformable) continue;
    const Vector3d closest_m =
        ClosestOnTriangle(tip_m, StateOf(triangle.corners[0]), StateOf(triangle.corners[1]), StateOf(triangle.corners[2]));
    if (!((closest_m - tip_m).norm() < distance_m)) continue;
    distance_m = (closest_m - tip_m).norm();
    nearest = &triangle;
  }
  double reach_m = radius_m;
  if (nearest != nullptr) {
    double edge_m = 0;
    for (size_t c = 0; c < 3; ++c) {
      edge_m = std::max(edge_m, (StateOf(nearest->corners[c]) - StateOf(nearest->corners[(c + 1) % 3])).norm());
    }
    if (!(radius_m > 0)) reach_m = std::max(tool.instrument.jaw_radius_m, edge_m);
    outcome.tissue_distance_m = distance_m;
    if (handles.empty() && distance_m <= reach_m) handles.assign(nearest->corners.begin(), nearest->corners.end());
  }
  outcome.grasp_reach_m = reach_m;
  Hold(t, std::move(handles));
  outcome.grasped_vertices = static_cast<uint32_t>(state.held.size());
  if (!state.held.empty()) {
    state.closes_to_rad = AngleOnHeld(t);
    // The hand may keep its jaws open all the while, or the jaws may still be on their way to where it wants them.
    state.grasp_angle_rad = std::max(state.jaws.angle_rad(), std::min(commands_[t].jaw_angle_rad, tool.instrument.max_jaw_angle_rad));
  } else if (nearest == nullptr) {
    outcome.note = absl::StrCat(tool.name, " holds nothing: the scene has no tissue to hold");
  } else {
    outcome.note = absl::StrFormat(
        "%s holds nothing: the nearest tissue, of %s, is %.1f mm from its tip and its reach is %.1f mm; bring the tip "
        "nearer, or grasp with a radius_m of at least %.4f",
        tool.name, bodies_[nearest->body]->name(), 1e3 * distance_m, 1e3 * reach_m, std::ceil(1e4 * distance_m) / 1e4);
  }
  return outcome;
}

/// The angle at which the jaws, which are open at least as far, lie on what the tool holds.
double World::Impl::AngleOnHeld(size_t t) const {
  const InstrumentDescription& instrument = description_.tools[t].instrument;
  const ToolState& state = tools_[t];
  double half_rad = 0;
  for (const HeldVertex& held : state.held) {
    const Vector3d in_tool = state.parts[held.part].tip_m + PartFrame(instrument, state.jaws.angle_rad(), held.part) * held.target_m;
    const double sign = held.part == kJawMinusPart ? -1 : 1;
    const Vector3d from_hinge = in_tool - JawFrameOf(instrument, 0, held.part - kJawMinusPart).hinge_m;
    const double to_m = std::hypot(from_hinge.x(), from_hinge.z());
    if (!(to_m > instrument.jaw_radius_m)) continue;
    half_rad = std::max(half_rad, std::atan2(sign * from_hinge.x(), -from_hinge.z()) + std::asin(instrument.jaw_radius_m / to_m));
  }
  return std::min(2 * half_rad, state.jaws.angle_rad());
}

/// Jaws turn, take hold and let go; a clip applier leaves its clip.
absl::Status World::Impl::MoveJaws(size_t t) {
  const ToolDescription& tool = description_.tools[t];
  const ToolCommand& command = commands_[t];
  ToolState& state = tools_[t];
  // Without a hand jaws stay as a ratchet leaves them: what they hold is neither dropped nor pressed further.
  const double wanted_rad =
      command.is_hold_expired ? state.jaws.angle_rad() : std::clamp(command.jaw_angle_rad, 0.0, tool.instrument.max_jaw_angle_rad);
  std::erase_if(state.held, [&](const HeldVertex& held) { return !IsAlive(held); });
  if (wanted_rad > state.grasp_angle_rad + kLetGo_rad) state.held.clear();
  // Once the hand has closed the jaws as well, opening them lets go.
  if (state.closes_to_rad) state.grasp_angle_rad = std::min(state.grasp_angle_rad, std::max(wanted_rad, *state.closes_to_rad));
  const double least_n = kPinchShare * tool.instrument.max_grasp_force_n;
  if (state.held.empty() && wanted_rad < state.jaws.angle_rad() && state.pinch_n[0] > least_n && state.pinch_n[1] > least_n) {
    PALPATE_RETURN_IF_ERROR(solver_->ReadState(vertices_.state));
    GraspBetweenJaws(t);
  }
  if (state.held.empty()) state.closes_to_rad.reset();
  const double before_rad = state.jaws.angle_rad();
  const std::vector<InstrumentCapsule> before = state.parts;
  state.jaws.Advance(std::min(wanted_rad, state.closes_to_rad.value_or(wanted_rad)), state.resistance_n_m, description_.dt_s);
  const double angle_rad = state.jaws.angle_rad();
  state.parts = CapsulesOf(tool.instrument, tool.length_m, tool.radius_m, angle_rad);
  // Jaws that come down on what a request gave them to hold move past it, until they lie on it.
  for (HeldVertex& held : state.held) {
    if (!state.closes_to_rad || angle_rad == before_rad || angle_rad < *state.closes_to_rad) break;
    const Vector3d in_tool = before[held.part].tip_m + PartFrame(tool.instrument, before_rad, held.part) * held.target_m;
    held.target_m = PartFrame(tool.instrument, angle_rad, held.part).transpose() * (in_tool - state.parts[held.part].tip_m);
  }
  const bool is_pressed = command.pedal && !state.was_pedal_down;
  state.was_pedal_down = command.pedal;
  if (!tool.instrument.traits().leaves_clips || !is_pressed || state.held.empty() || clips_.size() >= gpu::TissueSolver::kMaxClips) {
    return absl::OkStatus();
  }
  PALPATE_RETURN_IF_ERROR(solver_->ReadState(vertices_.state));
  Clip clip;
  clip.held = state.held;
  Vector3d center = Vector3d::Zero();
  for (const HeldVertex& held : clip.held) center += StateOf(held.handle) / static_cast<double>(clip.held.size());
  for (HeldVertex& held : clip.held) held.target_m = StateOf(held.handle) - center;
  clips_.push_back(std::move(clip));
  return absl::OkStatus();
}

/// The body of the description that a body is, or was cut off from.
size_t World::Impl::RootOf(size_t body) const {
  while (body >= description_.bodies.size()) {
    const std::string& parent = bodies_[body]->arrays()->parent;
    const auto found = std::find_if(bodies_.begin(), bodies_.end(), [&](const auto& other) { return other->name() == parent; });
    body = static_cast<size_t>(found - bodies_.begin());
  }
  return body;
}

/// Heat in the tissue of a body.
absl::StatusOr<AblationModel*> World::Impl::AblationOf(size_t body) {
  ablations_.resize(std::max(ablations_.size(), body + 1));
  if (ablations_[body] == nullptr) {
    const BodyDescription& root = description_.bodies[RootOf(body)];
    std::vector<AblationTissue> tissues;
    for (size_t zone = 0; zone < bodies_[body]->zone_count(); ++zone) {
      const AblationProperties& properties = zone == 0 || zone > root.zones.size() ? root.ablation : root.zones[zone - 1].ablation;
      tissues.push_back({.density_kg_per_m3 = bodies_[body]->MaterialOf(static_cast<TetZoneId>(zone)).density_kg_per_m3,
                         .energy_j_per_kg = properties.energy_j_per_kg,
                         .cooling_time_s = properties.cooling_time_s});
    }
    PALPATE_ASSIGN_OR_RETURN(AblationModel model, AblationModel::Create(std::move(tissues)));
    ablations_[body] = std::make_unique<AblationModel>(std::move(model));
  }
  return ablations_[body].get();
}

/// Gives the power of a tool to the tets within its reach, and asks for those that have enough to be removed, and for coarse ones to be
/// refined.
absl::Status World::Impl::Ablate(size_t t, std::vector<Edit>* edits) {
  const ToolDescription& tool = description_.tools[t];
  const ToolCommand& command = commands_[t];
  ToolState& state = tools_[t];
  const double power_w = command.power_w > 0 ? std::min(command.power_w, tool.instrument.max_power_w) : tool.instrument.max_power_w;
  const double duty = command.duty > 0 ? std::min(command.duty, 1.0) : 1;
  const Vector3d tip = state.pose.position_m;
  const double far_m = tool.radius_m + tool.instrument.reach_m;
  Bounds reach;
  reach.Add(tip - Vector3d::Constant(far_m));
  reach.Add(tip + Vector3d::Constant(far_m));
  std::vector<std::vector<AblationModel::Exposure>> exposures(bodies_.size());
  std::vector<double> weights(bodies_.size(), 0);
  double total_weight = 0;
  std::vector<Edit> refinements;
  for (size_t b = 0; b < bodies_.size(); ++b) {
    const WorldBody& body = *bodies_[b];
    if (body.kind() != BodyKind::kDeformable || !body.is_cuttable()) continue;
    const std::vector<std::array<uint32_t, 4>>& tets = body.arrays()->tets;
    bool is_coarse = false;
    for (uint32_t slot = 0; slot < tets.size(); ++slot) {
      if (tets[slot] == kFreeTet) continue;
      std::array<Vector3d, 4> x;
      Bounds bounds;
      for (size_t c = 0; c < 4; ++c) {
        x[c] = StateOf(body.HandleOf(tets[slot][c]));
        bounds.Add(x[c]);
      }
      if (!bounds.Meets(reach)) continue;
      const double gap_m = std::max(DistanceToTet(tip, x) - tool.radius_m, 0.0);
      if (gap_m >= tool.instrument.reach_m) continue;
      AblationModel::Exposure exposure;
      exposure.tet = body.mesh().IdOfTet(slot);
      exposure.volume_m3 = body.mesh().RestVolume(slot);
      exposure.zone = body.ZoneOf(slot);
      exposure.weight = 1 - gap_m / tool.instrument.reach_m;
      if (!(exposure.volume_m3 > 0)) continue;
      weights[b] += exposure.weight;
      total_weight += exposure.weight;
      exposures[b].push_back(exposure);
      if (tool.instrument.refine_to_m > 0 && LongestEdge(body.mesh(), slot) > tool.instrument.refine_to_m) {
        is_coarse = true;
      }
    }
    if (is_coarse) {
      const size_t budget = kRefinedGrowth * description_.bodies[RootOf(b)].mesh.tets.size();
      refinements.push_back({.body = b, .what = RefineEdit{BallRegion{tip, far_m}, tool.instrument.refine_to_m, budget}});
    }
  }
  // What a budget has refused once is not asked for again before the mesh is another.
  const bool is_refining = !refinements.empty() && state.refined_version != topology_->version;
  std::vector<TetId> all_due;
  std::vector<Edit> carvings;
  for (size_t b = 0; b < bodies_.size(); ++b) {
    if (exposures[b].empty()) continue;
    state.is_cutting = true;
    PALPATE_ASSIGN_OR_RETURN(AblationModel* const ablation, AblationOf(b));
    PALPATE_ASSIGN_OR_RETURN(std::vector<TetId> due,
                             ablation->Deposit(power_w * weights[b] / total_weight, duty, description_.dt_s, exposures[b]));
    if (is_refining) {  // a coarse tet's parts go, not all of it
      std::erase_if(due, [&](TetId tet) { return LongestEdge(bodies_[b]->mesh(), SlotOf(tet)) > tool.instrument.refine_to_m; });
    }
    all_due.insert(all_due.end(), due.begin(), due.end());
    if (!due.empty()) carvings.push_back({.body = b, .what = CarveEdit{TetListRegion{std::move(due)}}});
  }
  // What could not go as the mesh is, cannot go before it is another.
  if (!all_due.empty() && (all_due != state.due || state.due_version != topology_->version)) {
    state.due = std::move(all_due);
    state.due_version = topology_->version;
    edits->insert(edits->end(), carvings.begin(), carvings.end());
  }
  if (is_refining) {
    state.refined_version = topology_->version;
    edits->insert(edits->end(), refinements.begin(), refinements.end());
  }
  return absl::OkStatus();
}

/// Whether a blade cuts nothing in this step: while nobody leads it, and then until it has come to where the hand is by now. Otherwise the
/// way there, which no hand has made, would be cut.
bool World::Impl::IsBladeIdle(size_t t) {
  ToolState& state = tools_[t];
  if (!state.is_blade_led) {
    state.blade_lag_m = std::numeric_limits<double>::infinity();
    return true;
  }
  if (state.blade_lag_m == 0) return false;
  const double lag_m = (commands_[t].device_pose.position_m - state.pose.position_m).norm();
  const bool is_coming = lag_m > kBladeStep_m && lag_m < state.blade_lag_m;
  state.blade_lag_m = is_coming ? lag_m : 0;
  return is_coming;
}

/// Asks for the cut that the blade made since the last one.
void World::Impl::Slice(size_t t, std::vector<Edit>* edits) {
  ToolState& state = tools_[t];
  std::array<Vector3d, 2> blade = BladeOf(description_.tools[t].instrument);
  for (Vector3d& end : blade) end = state.pose.position_m + state.pose.rotation * end;
  if (IsBladeIdle(t)) {
    for (const size_t b : state.cut_bodies) bodies_[b]->incision().EndStroke();
    state.cut_bodies.clear();
    state.blade_m.reset();
    return;
  }
  if (!state.blade_m) state.blade_m = blade;
  const std::array<Vector3d, 2> before = *state.blade_m;
  if (std::max((blade[0] - before[0]).norm(), (blade[1] - before[1]).norm()) < kBladeStep_m) return;
  Bounds sweep;
  for (const auto& edge : {before, blade}) {
    for (const Vector3d& end : edge) sweep.Add(end);
  }
  for (size_t b = 0; b < bodies_.size(); ++b) {
    const WorldBody& body = *bodies_[b];
    if (body.kind() != BodyKind::kDeformable || !body.is_cuttable()) continue;
    const bool is_met = std::any_of(body.arrays()->tets.begin(), body.arrays()->tets.end(), [&](const std::array<uint32_t, 4>& tet) {
      Bounds bounds;
      for (const uint32_t v : tet) {
        if (tet != kFreeTet) bounds.Add(StateOf(body.HandleOf(v)));
      }
      return bounds.Meets(sweep);
    });
    const auto in_it = std::find(state.cut_bodies.begin(), state.cut_bodies.end(), b);
    if (is_met) {
      edits->push_back({.body = b, .what = InciseEdit{.edges_m = {before, blade}, .goes_on = true}});
      if (in_it == state.cut_bodies.end()) state.cut_bodies.push_back(b);
    } else if (in_it != state.cut_bodies.end()) {
      bodies_[b]->incision().EndStroke();
      state.cut_bodies.erase(in_it);
    }
  }
  state.blade_m = blade;
}

/// Everything that instruments do before a step: turn, take hold, let go, remove, cut; then where they and what they hold go.
absl::Status World::Impl::PrepareInstruments() {
  std::vector<Edit> edits;
  std::vector<size_t> owners;
  bool has_state = false;
  for (size_t t = 0; t < tools_.size(); ++t) {
    const InstrumentTraits& traits = description_.tools[t].instrument.traits();
    tools_[t].is_cutting = false;
    if (traits.has_jaws) PALPATE_RETURN_IF_ERROR(MoveJaws(t));
    const bool is_burning = traits.has_power && commands_[t].pedal;
    if (!is_burning && !traits.has_blade) continue;
    if (!std::exchange(has_state, true)) PALPATE_RETURN_IF_ERROR(solver_->ReadState(vertices_.state));
    if (is_burning) PALPATE_RETURN_IF_ERROR(Ablate(t, &edits));
    if (traits.has_blade) Slice(t, &edits);
    owners.resize(edits.size(), t);
  }
  if (!edits.empty()) {
    PALPATE_ASSIGN_OR_RETURN(const std::vector<EditOutcome> outcomes, Apply(edits));
    for (size_t i = 0; i < outcomes.size(); ++i) {
      ToolState& state = tools_[owners[i]];
      state.removed_mass_kg += std::max(outcomes[i].removed_mass_kg, 0.0);
      // Between two elements a blade in tissue changes nothing in the mesh, and cuts all the same.
      const bool is_in_stroke = std::holds_alternative<InciseEdit>(edits[i].what) && bodies_[edits[i].body]->incision().IsUnderWay();
      state.is_cutting = state.is_cutting || is_in_stroke || !outcomes[i].removed_tets.empty() || !outcomes[i].added_vertices.empty();
    }
  }
  for (size_t t = 0; t < tools_.size(); ++t) AimTool(t);
  if (any_projection_) {
    PALPATE_RETURN_IF_ERROR(solver_->ReadState(vertices_.state));
    ProjectTissue();
  }
  return SetAnchors();
}

/// Tells the solver what is held, and where: tools' vertices first, then clips'.
absl::Status World::Impl::SetAnchors() {
  std::vector<gpu::TissueAnchor> anchors;
  const double contact_n_per_m = solver_->contact_stiffness_n_per_m();
  for (size_t t = 0; t < tools_.size(); ++t) {
    const ToolDescription& tool = description_.tools[t];
    ToolState& state = tools_[t];
    std::erase_if(state.held, [&](const HeldVertex& held) { return !IsAlive(held); });
    const double count = static_cast<double>(state.held.size());
    double stiffness_n_per_m = contact_n_per_m;
    if (tool.drive == ToolDrive::kCoupled) {
      const double dt = description_.dt_s;
      const double impedance_n_per_m = tool.mass_kg / (dt * dt) + CouplingDamping(tool) / dt + tool.coupling_stiffness_n_per_m;
      stiffness_n_per_m = std::min(stiffness_n_per_m, kGraspRatio * impedance_n_per_m / count);
    }
    for (const HeldVertex& held : state.held) {
      const Vector3d offset = state.aim.rotation * (PartFrame(tool.instrument, state.jaws.angle_rad(), held.part) * held.target_m);
      anchors.push_back({.vertex = held.handle,
                         .holder = state.first_collider + held.part,
                         .target_m = ToArray(offset),
                         .stiffness_n_per_m = stiffness_n_per_m,
                         .max_force_n = tool.instrument.max_grasp_force_n / count});
    }
  }
  for (Clip& clip : clips_) {
    std::erase_if(clip.held, [&](const HeldVertex& held) { return !IsAlive(held); });
  }
  std::erase_if(clips_, [](const Clip& clip) { return clip.held.size() < 2; });
  const auto collider_count = static_cast<uint32_t>(targets_.size());
  for (uint32_t c = 0; c < clips_.size(); ++c) {
    for (const HeldVertex& held : clips_[c].held) {
      anchors.push_back({.vertex = held.handle,
                         .holder = collider_count + c,
                         .target_m = ToArray(clips_[c].rotation * held.target_m),
                         .stiffness_n_per_m = contact_n_per_m,
                         .max_force_n = kClipForce_n});
    }
  }
  AppendProjected(&anchors);
  anchors_ = std::move(anchors);
  return solver_->SetAnchors(anchors_, static_cast<uint32_t>(clips_.size()));
}

/// What a step did to the instruments: where they are, what presses on the jaws, what slipped.
void World::Impl::FollowInstruments(const gpu::TissueStep& step) {
  for (size_t t = 0; t < tools_.size(); ++t) {
    ToolState& state = tools_[t];
    state.pose.rotation = state.aim.rotation;
    state.pose.position_m = ToVector(step.colliders[state.first_collider].tip) - state.pose.rotation * state.parts[0].tip_m;
    state.resistance_n_m = 0;
    state.pinch_n = {};
    state.pinched.clear();
    state.grasp_force_n.setZero();
    state.grasp_center_m.setZero();
    state.grasp_torque_n_m.setZero();
    state.tissue_force_n.setZero();
    for (size_t i = 0; i < state.parts.size(); ++i) {
      const gpu::Collider& collider = step.colliders[state.first_collider + i];
      state.capsules_m[i] = {ToVector(collider.tip), ToVector(collider.axis)};
    }
    state.velocity_m_per_s = ToVector(step.colliders[state.first_collider].velocity);
    const auto& wanted = targets_[state.first_collider].tip_m;
    state.wanted_tip_m = {wanted[0], wanted[1], wanted[2]};
  }
  const auto turn_jaw = [&](size_t t, uint32_t part, const Vector3d& point, const Vector3d& force_on_jaw) {
    ToolState& state = tools_[t];
    const JawFrame jaw = JawFrameOf(description_.tools[t].instrument, state.jaws.angle_rad(), part - kJawMinusPart);
    const Vector3d in_tool = state.pose.rotation.conjugate() * (point - state.pose.position_m);
    const Vector3d force = state.pose.rotation.conjugate() * force_on_jaw;
    state.resistance_n_m -= (in_tool - jaw.hinge_m).dot(jaw.along) * force.dot(jaw.inward) / 2;
  };
  // Whether a contact presses the inner side of a jaw.
  const auto press = [&](uint32_t collider, const Vector3d& point, const Vector3d& normal, const Vector3d& force_on_tool, double normal_n) {
    const size_t t = tool_of_collider_[collider];
    ToolState& state = tools_[t];
    const uint32_t part = collider - state.first_collider;
    if (!description_.tools[t].instrument.traits().has_jaws || part < kJawMinusPart) return false;
    turn_jaw(t, part, point, force_on_tool);
    const JawFrame jaw = JawFrameOf(description_.tools[t].instrument, state.jaws.angle_rad(), part - kJawMinusPart);
    if ((state.pose.rotation * jaw.inward).dot(normal) < kInner) return false;
    state.pinch_n[part - kJawMinusPart] += normal_n;
    return true;
  };
  for (const gpu::ContactReport& report : step.contacts) {
    if (report.collider >= tool_of_collider_.size() || !(report.point.w > 0)) continue;
    ToolState& state = tools_[tool_of_collider_[report.collider]];
    state.tissue_force_n -= ToVector(report.force);
    const WorldBody& body = *bodies_[BodyOfTriangle(report.triangle)];
    const double normal_n = body.kind() == BodyKind::kDeformable ? report.point.w : 0;
    if (!press(report.collider, ToVector(report.point), ToVector(report.normal), -ToVector(report.force), normal_n)) continue;
    if (body.kind() != BodyKind::kDeformable) continue;
    for (const uint32_t surface_slot : body.arrays()->surface_triangles[triangle_slots_[report.triangle]]) {
      state.pinched.push_back(body.HandleOf(body.arrays()->surface_vertices[surface_slot]));
    }
  }
  FollowProjected(step, step.anchors.subspan(anchors_.size() - projected_.size()));
  for (const ProjectedContact& contact : projected_) {
    if (!(contact.force_n > 0)) continue;
    if (press(contact.collider, contact.point_m, contact.normal, -contact.force_n * contact.normal, contact.force_n)) {
      tools_[tool_of_collider_[contact.collider]].pinched.push_back(contact.handle);
    }
  }

  size_t i = 0;
  for (size_t t = 0; t < tools_.size(); ++t) {
    ToolState& state = tools_[t];
    const InstrumentDescription& instrument = description_.tools[t].instrument;
    for (HeldVertex& held : state.held) {
      const gpu::TissueAnchor& anchor = anchors_[i];
      const Vector3d point = ToVector(step.anchors[i].point);
      const Vector3d on_tool = -ToVector(step.anchors[i].force);
      ++i;
      state.grasp_center_m += point / static_cast<double>(state.held.size());
      state.grasp_force_n += on_tool;
      state.tissue_force_n += on_tool;
      state.grasp_torque_n_m += (point - state.pose.position_m).cross(on_tool);
      if (held.part >= kJawMinusPart) turn_jaw(t, held.part, point, on_tool);
      // What pulls with more than it is held with slips: its target comes after it.
      const Vector3d holder = ToVector(step.colliders[anchor.holder].tip);
      const Vector3d stretch = point - holder - Vector3d(anchor.target_m[0], anchor.target_m[1], anchor.target_m[2]);
      const double slip_m = stretch.norm() - anchor.max_force_n / anchor.stiffness_n_per_m;
      if (slip_m <= 0) continue;
      const Eigen::Matrix3d frame = PartFrame(instrument, state.jaws.angle_rad(), held.part);
      held.target_m += frame.transpose() * (state.pose.rotation.conjugate() * (slip_m / stretch.norm() * stretch));
      held.slipped_m += slip_m;
    }
    std::erase_if(state.held, [&](const HeldVertex& held) { return held.slipped_m > instrument.jaw_length_m; });
  }
  std::vector<Vector3d> from;
  std::vector<Vector3d> to;
  for (Clip& clip : clips_) {
    from.clear();
    to.clear();
    for (const HeldVertex& held : clip.held) {
      from.push_back(held.target_m);
      to.push_back(ToVector(step.anchors[i++].point));
    }
    // Less than three points say nothing about a rotation.
    if (from.size() >= 3) clip.rotation = BestRotation(from, to);
  }
}

/// Heat goes where its tissue goes.
void World::Impl::FollowEdits(std::span<const Edit> edits, std::span<const EditOutcome> outcomes) {
  for (size_t i = 0; i < edits.size(); ++i) {
    if (edits[i].body >= ablations_.size() || ablations_[edits[i].body] == nullptr) continue;
    AblationModel& ablation = *ablations_[edits[i].body];
    const ClosedMesh& mesh = bodies_[edits[i].body]->mesh();
    const auto& remapped = outcomes[i].remapped_tets;
    for (size_t begin = 0, end = 0; begin < remapped.size(); begin = end) {
      std::vector<AblationModel::Child> children;
      double volume_m3 = 0;
      for (end = begin; end < remapped.size() && remapped[end].first == remapped[begin].first; ++end) {
        const uint32_t slot = mesh.Find(remapped[end].second);
        if (slot == kNoSlot) continue;
        children.push_back({remapped[end].second, mesh.RestVolume(slot)});
        volume_m3 += children.back().share;
      }
      for (AblationModel::Child& child : children) child.share /= volume_m3;
      if (!children.empty()) ablation.Replace(remapped[begin].first, children);
    }
    for (const TetId tet : outcomes[i].removed_tets) ablation.Remove(tet);
  }
}

}  // namespace palpate::sim
