#include "sim/world/grasping.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <utility>

#include <Eigen/SVD>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "sim/mesh/signed_distance.h"
#include "sim/world/world_values.h"

namespace palpate::sim {
namespace {

using Eigen::Vector3d;

constexpr double kPinchShare = 0.02;   // of the largest grasp force, on both jaws: then there is something to hold
constexpr double kInner = 0.3;         // cosine to the direction inwards from which on a contact is on the inner side
constexpr double kLetGo_rad = 0.05;    // wanted beyond the angle at which they took hold
constexpr double kGraspRatio = 20;     // a coupled tool's grasp is at most this much stiffer than what drives it
constexpr double kClipForce_n = 1000;  // a clip holds whatever tissue can pull

bool IsGraspable(const WorldBody& body) { return body.kind() != BodyKind::kStatic; }

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

bool Grasping::IsAlive(const HeldVertex& held) const {
  return vertices_.body.contains(held.handle) && vertices_.IsAlive(held.handle) && vertices_.rest_m[held.handle] == held.rest_m;
}

Vector3d Grasping::StateOf(VertexHandle handle) const { return ToVector(vertices_.state[handle].position_m); }

/// Surface vertices that lie between the jaws, or within radius_m of the tip if it is positive. SceneVertices::state must be up to date.
std::vector<VertexHandle> Grasping::ListGraspable(size_t t, double radius_m) const {
  const InstrumentDescription& instrument = description_.tools[t].instrument;
  const ToolState& state = tools_[t];
  const Eigen::Quaterniond to_tool = state.pose.rotation.conjugate();
  std::vector<VertexHandle> handles;
  for (const auto& body : bodies_) {
    if (!IsGraspable(*body)) continue;
    const auto look_at = [&](uint32_t vertex) {
      const Vector3d in_tool = to_tool * (StateOf(body->HandleOf(vertex)) - state.pose.position_m);
      if (radius_m > 0 ? in_tool.norm() <= radius_m
                       : LiesBetweenJaws(instrument, state.jaws.angle_rad(), in_tool, instrument.jaw_radius_m)) {
        handles.push_back(body->HandleOf(vertex));
      }
    };
    if (!body->is_editable() && !body->has_sheet()) {
      for (const uint32_t vertex : body->arrays()->surface_vertices) look_at(vertex);
      continue;
    }
    // The mesh, not the arrays: edits before this one in the same request are in it already.
    for (uint32_t vertex = 0; vertex < body->vertex_slot_count(); ++vertex) {
      if (body->IsVertexOnSurface(vertex)) look_at(vertex);
    }
  }
  return handles;
}

/// Takes hold of vertices, and lets go of others. SceneVertices::state must be up to date.
void Grasping::Hold(size_t t, std::vector<VertexHandle> handles) {
  const InstrumentDescription& instrument = description_.tools[t].instrument;
  ToolState& state = tools_[t];
  const double angle = state.jaws.angle_rad();
  const Eigen::Quaterniond to_tool = state.pose.rotation.conjugate();
  std::sort(handles.begin(), handles.end());
  handles.erase(std::unique(handles.begin(), handles.end()), handles.end());
  state.held.clear();
  state.closes_to_rad.reset();
  for (const VertexHandle handle : handles) {
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
  if (HoldsRigid(state)) state.closes_to_rad = angle;
}

bool Grasping::HoldsRigid(const ToolState& state) const {
  return std::any_of(state.held.begin(), state.held.end(),
                     [&](const HeldVertex& held) { return bodies_[vertices_.body[held.handle]]->kind() == BodyKind::kRigid; });
}

/// Jaws that have closed on a body take hold of it.
void Grasping::GraspBetweenJaws(size_t t) {
  std::vector<VertexHandle> handles = ListGraspable(t, 0);
  std::copy_if(tools_[t].pinched.begin(), tools_[t].pinched.end(), std::back_inserter(handles),
               [this](VertexHandle handle) { return vertices_.IsAlive(handle); });
  Hold(t, std::move(handles));
}

/// As GraspEdit says. surface_ must be up to date too.
EditOutcome Grasping::GraspByRequest(size_t t, double radius_m) {
  const ToolDescription& tool = description_.tools[t];
  ToolState& state = tools_[t];
  EditOutcome outcome;
  std::vector<VertexHandle> handles = ListGraspable(t, radius_m);
  if (!(radius_m > 0)) {
    std::copy_if(state.pinched.begin(), state.pinched.end(), std::back_inserter(handles),
                 [this](VertexHandle handle) { return vertices_.IsAlive(handle); });
  }
  // The triangle nearest to the tip: a body may be within reach where no vertex is.
  const Vector3d& tip_m = state.pose.position_m;
  std::vector<SceneSurface::Near> triangles;
  constexpr double kEverywhere_m = 1e6;
  surface_.ListNear(Eigen::AlignedBox3d(Vector3d::Constant(-kEverywhere_m), Vector3d::Constant(kEverywhere_m)), &triangles);
  const SceneSurface::Near* nearest = nullptr;
  double distance_m = std::numeric_limits<double>::infinity();
  for (const SceneSurface::Near& triangle : triangles) {
    if (!IsGraspable(*bodies_[triangle.body])) continue;
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
    outcome.note = absl::StrCat(tool.name, " holds nothing: the scene has nothing to hold");
  } else {
    outcome.note = absl::StrFormat(
        "%s holds nothing: the nearest surface, of %s, is %.1f mm from its tip and its reach is %.1f mm; bring the tip "
        "nearer, or grasp with a radius_m of at least %.4f",
        tool.name, bodies_[nearest->body]->name(), 1e3 * distance_m, 1e3 * reach_m, std::ceil(1e4 * distance_m) / 1e4);
  }
  return outcome;
}

/// The angle at which the jaws, which are open at least as far, lie on what the tool holds.
double Grasping::AngleOnHeld(size_t t) const {
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
absl::Status Grasping::MoveJaws(size_t t) {
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
    PALPATE_RETURN_IF_ERROR(solver_->ReadState(vertices_.state.values()));
    GraspBetweenJaws(t);
  }
  if (state.held.empty()) state.closes_to_rad.reset();
  const double before_rad = state.jaws.angle_rad();
  const std::vector<InstrumentCapsule> before = state.parts;
  // What is rigid gives the jaws no way: going on they would only squeeze it out.
  const double least_rad = HoldsRigid(state) ? state.closes_to_rad.value_or(0) : 0;
  state.jaws.Advance(std::max(std::min(wanted_rad, state.closes_to_rad.value_or(wanted_rad)), least_rad), state.resistance_n_m,
                     description_.dt_s);
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
  PALPATE_RETURN_IF_ERROR(solver_->ReadState(vertices_.state.values()));
  Clip clip;
  clip.held = state.held;
  Vector3d center = Vector3d::Zero();
  for (const HeldVertex& held : clip.held) center += StateOf(held.handle) / static_cast<double>(clip.held.size());
  for (HeldVertex& held : clip.held) held.target_m = StateOf(held.handle) - center;
  clip.applied = state.pose.rotation;
  clip.length_m = tool.instrument.jaw_length_m;
  clips_.push_back(std::move(clip));
  return absl::OkStatus();
}

void Grasping::Reset() {
  clips_ = stitches_;
  anchors_.clear();
  frame_clips_.clear();
  frame_stitches_.clear();
  std::vector<Vector3d> at_rest;
  for (const Clip& stitch : stitches_) {
    at_rest.clear();
    for (const HeldVertex& held : stitch.held) at_rest.push_back(held.rest_m);
    PlaceClip(stitch, at_rest);
  }
}

/// Tells the solver what is held, and where: tools' vertices first, then clips'.
absl::Status Grasping::SetAnchors(const TissueProjection& projection, std::span<const gpu::TissueAnchor> blades) {
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
      anchors.push_back({.vertex = ToNumber(held.handle),
                         .holder = state.first_collider + held.part,
                         .target_m = ToArray(offset),
                         .stiffness_n_per_m = stiffness_n_per_m,
                         .max_force_n = tool.instrument.max_grasp_force_n / count});
    }
  }
  std::erase_if(clips_, [&](const Clip& clip) { return clip.is_stitch && !IsAlive(clip.held.front()); });
  for (Clip& clip : clips_) {
    std::erase_if(clip.held, [&](const HeldVertex& held) { return !IsAlive(held); });
  }
  std::erase_if(clips_, [](const Clip& clip) { return clip.held.size() < 2; });
  const auto collider_count = static_cast<uint32_t>(targets_.size());
  for (uint32_t c = 0; c < clips_.size(); ++c) {
    for (const HeldVertex& held : clips_[c].held) {
      anchors.push_back({.vertex = ToNumber(held.handle),
                         .holder = collider_count + c,
                         .target_m = ToArray(clips_[c].rotation * held.target_m),
                         .stiffness_n_per_m = contact_n_per_m,
                         .max_force_n = kClipForce_n});
    }
  }
  projection.AppendAnchors(contact_n_per_m, &anchors);
  anchors.insert(anchors.end(), blades.begin(), blades.end());
  anchors_ = std::move(anchors);
  return solver_->SetAnchors(anchors_, static_cast<uint32_t>(clips_.size()));
}

void Grasping::TurnJaw(size_t t, uint32_t part, const Vector3d& point, const Vector3d& force_on_jaw) {
  ToolState& state = tools_[t];
  const JawFrame jaw = JawFrameOf(description_.tools[t].instrument, state.jaws.angle_rad(), part - kJawMinusPart);
  const Vector3d in_tool = state.pose.rotation.conjugate() * (point - state.pose.position_m);
  const Vector3d force = state.pose.rotation.conjugate() * force_on_jaw;
  state.resistance_n_m -= (in_tool - jaw.hinge_m).dot(jaw.along) * force.dot(jaw.inward) / 2;
}

/// Whether a contact presses the inner side of a jaw.
bool Grasping::Press(uint32_t collider, const Vector3d& point, const Vector3d& normal, const Vector3d& force_on_tool, double normal_n) {
  const size_t t = tool_of_collider_[collider];
  ToolState& state = tools_[t];
  const uint32_t part = collider - state.first_collider;
  if (!description_.tools[t].instrument.traits().has_jaws || part < kJawMinusPart) return false;
  TurnJaw(t, part, point, force_on_tool);
  const JawFrame jaw = JawFrameOf(description_.tools[t].instrument, state.jaws.angle_rad(), part - kJawMinusPart);
  if ((state.pose.rotation * jaw.inward).dot(normal) < kInner) return false;
  state.pinch_n[part - kJawMinusPart] += normal_n;
  return true;
}

/// What presses on the jaws, and what lies between them.
void Grasping::FollowContacts(const gpu::TissueStep& step) {
  for (const gpu::ContactReport& report : step.contacts) {
    if (report.collider >= tool_of_collider_.size() || !(report.point.w > 0)) continue;
    ToolState& state = tools_[tool_of_collider_[report.collider]];
    state.tissue_force_n -= ToVector(report.force);
    const WorldBody& body = *bodies_[model_.BodyOf(report.triangle)];
    const double normal_n = IsGraspable(body) ? report.point.w : 0;
    if (!Press(report.collider, ToVector(report.point), ToVector(report.normal), -ToVector(report.force), normal_n)) continue;
    if (!IsGraspable(body)) continue;
    for (const SurfaceSlot surface_slot : body.arrays()->surface_triangles[model_.SlotOf(report.triangle)]) {
      state.pinched.push_back(body.HandleOf(body.arrays()->surface_vertices[surface_slot]));
    }
  }
}

void Grasping::FollowProjected(std::span<const ProjectedContact> projected) {
  for (const ProjectedContact& contact : projected) {
    if (!(contact.force_n > 0)) continue;
    if (Press(contact.collider, contact.point_m, contact.normal, -contact.force_n * contact.normal, contact.force_n)) {
      tools_[tool_of_collider_[contact.collider]].pinched.push_back(contact.handle);
    }
  }
}

void Grasping::FollowAnchors(const gpu::TissueStep& step) {
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
      if (held.part >= kJawMinusPart) TurnJaw(t, held.part, point, on_tool);
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
  frame_clips_.clear();
  frame_stitches_.clear();
  for (Clip& clip : clips_) {
    from.clear();
    to.clear();
    for (const HeldVertex& held : clip.held) {
      from.push_back(held.target_m);
      to.push_back(ToVector(step.anchors[i++].point));
    }
    // Less than three points say nothing about a rotation.
    if (from.size() >= 3) clip.rotation = BestRotation(from, to);
    PlaceClip(clip, to);
  }
}

/// `points_m`: where what it holds is.
void Grasping::PlaceClip(const Clip& clip, const std::vector<Vector3d>& points_m) {
  // A stitch is one only with all four: edits may have taken corners of its triangle away.
  if (clip.is_stitch && points_m.size() == 4) {
    frame_stitches_.push_back({points_m[0], clip.foot[0] * points_m[1] + clip.foot[1] * points_m[2] + clip.foot[2] * points_m[3]});
  }
  if (clip.is_stitch) return;
  Vector3d center_m = Vector3d::Zero();
  for (const Vector3d& point_m : points_m) center_m += point_m / static_cast<double>(points_m.size());
  frame_clips_.push_back({center_m, clip.rotation * clip.applied, clip.length_m});
}

void Grasping::ListFasteners(Frame* frame) const {
  frame->clips = frame_clips_;
  frame->stitches = frame_stitches_;
}

}  // namespace palpate::sim
