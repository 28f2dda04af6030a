#include "sim/world/scene_joints.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include <Eigen/Geometry>

#include "absl/strings/str_cat.h"
#include "gpu/base/status.h"
#include "gpu/dynamics/joint_frames.h"
#include "gpu/dynamics/nurbs_shell_correction.h"
#include "gpu/dynamics/nurbs_shell_model.h"
#include "sim/world/world_values.h"

namespace palpate::sim {
namespace {

using Kind = JointDriveDescription::Kind;

constexpr size_t kTwist = 5;  // row of a hinge's angle
constexpr size_t kShift = 2;  // of a slider's place

gpu::RigidJointRow Locked(double target = 0) { return {.drive = gpu::JointDrive::kLocked, .target = target}; }

gpu::RigidJointRow RowOf(const JointDriveDescription& drive, double lower, double upper, double time_s) {
  gpu::RigidJointRow row{.lower = lower, .upper = upper};
  switch (drive.kind) {
    case Kind::kFree:
      break;
    case Kind::kMotor:
      row.drive = gpu::JointDrive::kMotor;
      row.speed = drive.speed;
      row.max_effort = drive.max_effort;
      break;
    case Kind::kSpring:
      row.drive = gpu::JointDrive::kSpring;
      row.target = drive.target;
      row.stiffness = drive.stiffness;
      row.damping = drive.damping;
      break;
    case Kind::kMotion:
      return Locked(ValueAt(drive.times_s, drive.targets, time_s));
  }
  return row;
}

bool HasCoordinate(JointKind kind) {
  return kind == JointKind::kHinge || kind == JointKind::kSlider || kind == JointKind::kDistance || kind == JointKind::kSpring;
}

/// What a joint holds of a NURBS shell. Messages begin with what is wrong.
absl::Status CheckControl(const BodyDescription& body, const std::vector<JointControlPoint>& control) {
  const gpu::NurbsShellModel& model = *body.nurbs_shell->model;
  const std::vector<uint32_t>& held = body.nurbs_shell->held;
  std::vector<std::array<double, 3>> rest_m;
  for (size_t i = 0; i < control.size(); ++i) {
    const uint32_t j = control[i].control;
    if (j >= model.control_count() || (i > 0 && control[i - 1].control >= j)) {
      return absl::InvalidArgumentError(absl::StrCat("control point ", j, " is none of ", body.name, ", or not ascending"));
    }
    if (std::ranges::binary_search(held, j)) {
      return absl::InvalidArgumentError(absl::StrCat("control point ", j, " of ", body.name, " is in a fixed region"));
    }
    if (body.nurbs_shell->IsBound(j)) {
      return absl::InvalidArgumentError(absl::StrCat("control point ", j, " of ", body.name, " is bound to a body"));
    }
    if (control[i].turning > 0) rest_m.push_back(model.rest_m[j]);
  }
  if (model.control_count() > gpu::kMaxNurbsCorrected) {
    return absl::InvalidArgumentError(absl::StrCat(body.name, " has ", model.control_count(),
                                                   " control points; joints hold NURBS shells of at most ", gpu::kMaxNurbsCorrected));
  }
  if (gpu::SpanAPlane(rest_m)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the joint holds ", rest_m.size(), " control points of ", body.name, "; it needs three or more that are not on a line"));
}

struct EndOfJoint {
  uint32_t body;
  const std::vector<uint32_t>& vertices;
  const std::vector<JointControlPoint>& control;
};

absl::Status CheckEnd(const SceneDescription& scene, const EndOfJoint& end, const char* side) {
  const std::vector<uint32_t>& vertices = end.vertices;
  const auto error = [&](const std::string& what) { return absl::InvalidArgumentError(absl::StrCat(side, ": ", what)); };
  if (end.body == JointDescription::kWorld) {
    if (!end.control.empty()) return error("the world has no control points");
    return vertices.empty() ? absl::OkStatus() : error("the world has no vertices");
  }
  if (end.body >= scene.bodies.size()) return error(absl::StrCat(end.body, " is outside [0, ", scene.bodies.size(), ")"));
  const BodyDescription& of = scene.bodies[end.body];
  if (of.nurbs_shell && vertices.empty()) return Annotate(CheckControl(of, end.control), side);
  if (!end.control.empty()) return error(absl::StrCat(of.name, " is no NURBS shell, and has no control points"));
  if (of.kind == BodyKind::kRigid && vertices.empty()) return absl::OkStatus();
  if (of.nurbs_shell) return error(absl::StrCat(of.name, " is a NURBS shell: joints hold its control points, not vertices"));
  if (of.kind != BodyKind::kDeformable || of.nurbs != nullptr || StartsQuasiStatic(of.simulation)) {
    return error(absl::StrCat(of.name, " is neither rigid, nor deformable and dynamic or shape-matched"));
  }
  std::vector<std::array<double, 3>> rest_m;
  for (size_t i = 0; i < vertices.size(); ++i) {
    const bool is_ascending = i == 0 || vertices[i - 1] < vertices[i];
    if (vertices[i] >= of.mesh.vertices.size() || !is_ascending) {
      return error(absl::StrCat("vertex ", vertices[i], " is none of ", of.name, ", or not ascending"));
    }
    rest_m.push_back(ToArray(of.mesh.vertices[vertices[i]]));
  }
  if (gpu::SpanAPlane(rest_m)) return absl::OkStatus();
  return error(
      absl::StrCat("the joint holds ", vertices.size(), " vertices of ", of.name, "; it needs three or more that are not on a line"));
}

absl::Status CheckJoint(const SceneDescription& scene, const JointDescription& joint) {
  PALPATE_RETURN_IF_ERROR(CheckEnd(scene, {joint.body_a, joint.vertices_a, joint.control_a}, "body_a"));
  PALPATE_RETURN_IF_ERROR(CheckEnd(scene, {joint.body_b, joint.vertices_b, joint.control_b}, "body_b"));
  if (joint.body_a == joint.body_b && joint.vertices_a == joint.vertices_b && joint.control_a == joint.control_b) {
    return absl::InvalidArgumentError("body_b: is the same as body_a, and one end must be a body");
  }
  for (const bool is_a : {true, false}) {
    const uint32_t tool = is_a ? joint.tool_a : joint.tool_b;
    if (tool == JointDescription::kNoTool) continue;
    if (tool >= scene.tools.size() || (is_a ? joint.body_a : joint.body_b) != JointDescription::kWorld) {
      return absl::InvalidArgumentError(
          absl::StrCat(is_a ? "tool_a" : "tool_b", ": is outside [0, ", scene.tools.size(), "), or in the place of a body that is given"));
    }
    if (scene.tools[tool].response == ToolResponse::kProjection) {
      return absl::InvalidArgumentError(
          absl::StrCat(is_a ? "tool_a" : "tool_b", ": ", scene.tools[tool].name, " responds by projection, and cannot carry joints"));
    }
  }
  if (!joint.point_a_m.allFinite() || !joint.point_b_m.allFinite()) return absl::InvalidArgumentError("a point is not finite");
  if (!(std::abs(joint.axis.norm() - 1) < 1e-6)) return absl::InvalidArgumentError("axis: is not of unit length");
  if (joint.ignores_contact && (joint.body_a == JointDescription::kWorld || joint.body_b == JointDescription::kWorld)) {
    return absl::InvalidArgumentError("ignores_contact: one end is the world");
  }
  if (!(joint.break_force_n > 0) || !(joint.break_torque_n_m > 0)) return absl::InvalidArgumentError("break_force_n: not above 0");
  return CheckJointCoordinate(joint);
}

/// Tools that carry joints, each once: those on couplings first, as the solver wants them.
std::vector<uint32_t> MountsOf(const SceneDescription& description) {
  std::vector<uint32_t> out;
  for (const ToolDrive drive : {ToolDrive::kCoupled, ToolDrive::kDirect}) {
    for (uint32_t t = 0; t < description.tools.size(); ++t) {
      const bool carries =
          std::ranges::any_of(description.joints, [&](const JointDescription& j) { return j.tool_a == t || j.tool_b == t; });
      if (carries && description.tools[t].drive == drive) out.push_back(t);
    }
  }
  return out;
}

/// Makes the ends of joints on NURBS shells, which count from `first` on, each of what they hold once.
void HoldShells(const SceneDescription& description, uint32_t first, JointModel* model) {
  std::vector<uint32_t> shell_of_body(description.bodies.size(), 0);
  uint32_t shells = 0;
  for (size_t b = 0; b < description.bodies.size(); ++b) {
    if (description.bodies[b].nurbs_shell) shell_of_body[b] = shells++;
  }
  std::vector<std::pair<uint32_t, const std::vector<JointControlPoint>*>> known;  // of which body
  for (size_t j = 0; j < description.joints.size(); ++j) {
    const JointDescription& joint = description.joints[j];
    for (const bool is_a : {true, false}) {
      const std::vector<JointControlPoint>& control = is_a ? joint.control_a : joint.control_b;
      const uint32_t body = is_a ? joint.body_a : joint.body_b;
      if (control.empty()) continue;
      const auto at = std::ranges::find_if(known, [&](const auto& set) { return set.first == body && *set.second == control; });
      const auto place = static_cast<uint32_t>(at - known.begin());
      (is_a ? model->joints[j].body_a : model->joints[j].body_b) = first + place;
      if (at != known.end()) continue;
      known.emplace_back(body, &control);
      gpu::TissueNurbsJointSet& set = model->shell_sets.emplace_back();
      set.body = body;
      set.shell = shell_of_body[body];
      for (const JointControlPoint& point : control) {
        set.parts.push_back({.control = point.control, .place = point.place, .turning = point.turning});
      }
    }
  }
}

gpu::TissueJointMount MountOf(const ToolDescription& tool) {
  gpu::TissueJointMount out;
  out.center_m = ToArray(ToolRack::RestPose(tool).position_m);
  if (tool.drive == ToolDrive::kDirect) return out;
  out.coupling_n_per_m = tool.coupling_stiffness_n_per_m;
  out.damping_n_s_per_m = CouplingDamping(tool);
  out.mass_kg = tool.mass_kg;
  return out;
}

}  // namespace

absl::Status CheckJointCoordinate(const JointDescription& joint) {
  const JointDriveDescription& drive = joint.drive;
  const auto is_size = [](double v) { return v >= 0 && std::isfinite(v); };
  if (!(joint.lower <= joint.upper))
    return absl::InvalidArgumentError(absl::StrCat("upper: ", joint.upper, " is below lower = ", joint.lower));
  if (!std::isfinite(drive.speed) || !std::isfinite(drive.target)) return absl::InvalidArgumentError("drive: a value is not finite");
  if (!(drive.max_effort >= 0)) return absl::InvalidArgumentError(absl::StrCat("drive.max_effort: ", drive.max_effort, " is below 0"));
  if (!is_size(drive.stiffness))
    return absl::InvalidArgumentError(absl::StrCat("drive.stiffness: ", drive.stiffness, " is not in [0, inf)"));
  if (!is_size(drive.damping)) return absl::InvalidArgumentError(absl::StrCat("drive.damping: ", drive.damping, " is not in [0, inf)"));
  const bool may_drive = joint.kind == JointKind::kHinge || joint.kind == JointKind::kSlider || drive.kind == Kind::kFree ||
                         (drive.kind == Kind::kSpring && (joint.kind == JointKind::kBall || joint.kind == JointKind::kSpring));
  if (!may_drive) {
    return absl::InvalidArgumentError(
        absl::StrCat("drive: a ", kJointKindNames[static_cast<size_t>(joint.kind)], " joint has none of this kind"));
  }
  if (drive.kind != Kind::kMotion) return absl::OkStatus();
  if (drive.times_s.empty() || drive.times_s.size() != drive.targets.size()) {
    return absl::InvalidArgumentError(absl::StrCat("drive: ", drive.times_s.size(), " times for ", drive.targets.size(), " targets"));
  }
  for (size_t i = 0; i < drive.times_s.size(); ++i) {
    if (!std::isfinite(drive.times_s[i]) || !std::isfinite(drive.targets[i]) || (i > 0 && !(drive.times_s[i] > drive.times_s[i - 1]))) {
      return absl::InvalidArgumentError(absl::StrCat("drive.times_s[", i, "]: is not after the one before, or not finite"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<JointModel> SceneJoints::ModelOf(const SceneDescription& description) {
  std::vector<uint32_t> rigid_of_body(description.bodies.size(), gpu::RigidJoint::kWorld);
  uint32_t count = 0;
  for (size_t b = 0; b < description.bodies.size(); ++b) {
    if (description.bodies[b].kind == BodyKind::kRigid) rigid_of_body[b] = count++;
  }
  JointModel out;
  const auto set_of = [&](size_t j, bool is_a) {
    const JointDescription& joint = description.joints[j];
    const uint32_t body = is_a ? joint.body_a : joint.body_b;
    const std::vector<uint32_t>& vertices = is_a ? joint.vertices_a : joint.vertices_b;
    const auto known = std::ranges::find_if(
        out.sets, [&](const JointSetDescription& set) { return set.body == body && std::ranges::equal(set.vertices, vertices); });
    const auto place = static_cast<uint32_t>(known - out.sets.begin());
    if (known == out.sets.end()) out.sets.push_back({.body = body, .vertices = vertices, .joint = j, .is_a = is_a});
    return count + place;
  };
  const auto end = [&](size_t j, bool is_a) {
    const JointDescription& joint = description.joints[j];
    const uint32_t body = is_a ? joint.body_a : joint.body_b;
    if (body == JointDescription::kWorld || description.bodies[body].nurbs_shell) return gpu::RigidJoint::kWorld;
    return (is_a ? joint.vertices_a : joint.vertices_b).empty() ? rigid_of_body[body] : set_of(j, is_a);
  };
  for (size_t j = 0; j < description.joints.size(); ++j) {
    const JointDescription& joint = description.joints[j];
    if (absl::Status valid = CheckJoint(description, joint); !valid.ok()) {
      return Annotate(valid, absl::StrCat("joints[", j, "] (", joint.name, ")"));
    }
    gpu::RigidJoint& made = out.joints.emplace_back();
    made.body_a = end(j, true);
    made.body_b = end(j, false);
    made.point_a_m = ToArray(joint.point_a_m);
    made.point_b_m = ToArray(joint.point_b_m);
    const Eigen::Quaterniond frame = Eigen::Quaterniond::FromTwoVectors(Eigen::Vector3d::UnitZ(), joint.axis).normalized();
    made.frame = {frame.x(), frame.y(), frame.z(), frame.w()};
    if (joint.kind == JointKind::kDistance || joint.kind == JointKind::kSpring) made.along = gpu::RigidJoint::Along::kDistance;
    if (joint.kind == JointKind::kHinge) made.about = gpu::RigidJoint::About::kTwist;
    if (joint.kind == JointKind::kSlider || joint.kind == JointKind::kFixed ||
        (joint.kind == JointKind::kBall && joint.drive.kind == Kind::kSpring)) {
      made.about = gpu::RigidJoint::About::kTurn;
    }
    made.ignores_contact = joint.ignores_contact;
    made.rows = RowsOf(joint, {.drive = joint.drive, .lower = joint.lower, .upper = joint.upper}, 0);
  }
  // Sets of NURBS shells come after all others, and then mounts.
  HoldShells(description, static_cast<uint32_t>(count + out.sets.size()), &out);
  const auto first_mount = static_cast<uint32_t>(count + out.sets.size() + out.shell_sets.size());
  const std::vector<uint32_t> mounts = MountsOf(description);
  for (const uint32_t tool : mounts) out.mounts.push_back(MountOf(description.tools[tool]));
  const auto mount_of = [&](uint32_t tool) {
    return first_mount + static_cast<uint32_t>(std::ranges::find(mounts, tool) - mounts.begin());
  };
  for (size_t j = 0; j < out.joints.size(); ++j) {
    const JointDescription& joint = description.joints[j];
    if (joint.tool_a != JointDescription::kNoTool) out.joints[j].body_a = mount_of(joint.tool_a);
    if (joint.tool_b != JointDescription::kNoTool) out.joints[j].body_b = mount_of(joint.tool_b);
  }
  return out;
}

std::array<gpu::RigidJointRow, 6> SceneJoints::RowsOf(const JointDescription& joint, const State& state, double time_s) {
  std::array<gpu::RigidJointRow, 6> rows{};
  if (state.is_released) return rows;
  const auto lock = [&](std::initializer_list<size_t> which) {
    for (const size_t r : which) rows[r] = Locked();
  };
  const gpu::RigidJointRow driven = RowOf(state.drive, state.lower, state.upper, time_s);
  switch (joint.kind) {
    case JointKind::kBall:
      lock({0, 1, 2});
      for (size_t r = 3; r < 6 && state.drive.kind == Kind::kSpring; ++r) rows[r] = driven;
      break;
    case JointKind::kHinge:
      lock({0, 1, 2, 3, 4});
      rows[kTwist] = driven;
      break;
    case JointKind::kSlider:
      lock({0, 1, 3, 4, 5});
      rows[kShift] = driven;
      break;
    case JointKind::kFixed:
      lock({0, 1, 2, 3, 4, 5});
      break;
    case JointKind::kDistance:
      rows[0] = state.lower == state.upper ? Locked(state.lower) : driven;
      break;
    case JointKind::kPlane:
      lock({2});
      break;
    case JointKind::kLine:
      lock({0, 1});
      break;
    case JointKind::kSpring:
      rows[0] = driven;
      break;
  }
  return rows;
}

void SceneJoints::Reset() {
  mounts_ = MountsOf(description_);
  states_.clear();
  for (const JointDescription& joint : description_.joints) {
    states_.push_back({.drive = joint.drive, .lower = joint.lower, .upper = joint.upper});
  }
  frame_.clear();
  for (const JointDescription& joint : description_.joints) {
    frame_.push_back({.point_m = joint.point_b_m, .point_a_m = joint.point_a_m, .axis = joint.axis});
  }
}

void SceneJoints::Apply(const JointEdit& edit) {
  State& state = states_[edit.joint];
  if (edit.is_released) {
    state.is_released = frame_[edit.joint].is_broken = true;
    return;
  }
  state.drive = edit.drive;
  if (!edit.limits) return;
  state.lower = (*edit.limits)[0];
  state.upper = (*edit.limits)[1];
}

void SceneJoints::FollowEdits(const gpu::TissueModel& model) {
  std::vector<bool> is_lost;
  for (const gpu::TissueJointSet& set : model.joint_sets) {
    std::vector<std::array<double, 3>> points;
    for (const uint32_t v : set.vertices) points.push_back(model.rest_m[v]);
    is_lost.push_back(!gpu::SpanAPlane(points));
  }
  const auto has_lost = [&](uint32_t body) {
    const size_t set = body - model.rigid.size();
    return body >= model.rigid.size() && set < is_lost.size() && is_lost[set];
  };
  for (size_t j = 0; j < model.joints.size(); ++j) {
    if (has_lost(model.joints[j].body_a) || has_lost(model.joints[j].body_b)) states_[j].is_released = frame_[j].is_broken = true;
  }
}

absl::Status SceneJoints::Drive(gpu::TissueSolver& solver, double end_s, const ToolRack& rack) {
  for (size_t m = 0; m < mounts_.size(); ++m) {
    const ToolState& state = rack.tools()[mounts_[m]];
    const RigidPose rest = ToolRack::RestPose(description_.tools[mounts_[m]]);
    const Eigen::Quaterniond turn = (state.aim.rotation * rest.rotation.conjugate()).normalized();
    PALPATE_RETURN_IF_ERROR(solver.SetJointMount(static_cast<uint32_t>(m), ToArray(state.aim.position_m),
                                                 {turn.x(), turn.y(), turn.z(), turn.w()},
                                                 ToArray(state.tissue_force_n - state.joint_force_n)));
  }
  for (size_t j = 0; j < states_.size(); ++j) {
    PALPATE_RETURN_IF_ERROR(solver.SetJointRows(static_cast<uint32_t>(j), RowsOf(description_.joints[j], states_[j], end_s)));
  }
  return absl::OkStatus();
}

void SceneJoints::PushTools(ToolRack* rack) const {
  for (const uint32_t t : mounts_) {
    ToolState& state = rack->tools()[t];
    for (size_t j = 0; j < frame_.size(); ++j) {
      const JointDescription& joint = description_.joints[j];
      const bool is_a = joint.tool_a == t;
      if (!is_a && joint.tool_b != t) continue;
      const double sign = is_a ? -1 : 1;  // reports are of B
      const Eigen::Vector3d force_n = sign * frame_[j].force_n;
      state.joint_force_n += force_n;
      state.joint_torque_n_m += sign * frame_[j].torque_n_m + (frame_[j].point_m - state.pose.position_m).cross(force_n);
      state.joint_body = is_a ? joint.body_b : joint.body_a;
    }
    state.tissue_force_n += state.joint_force_n;
    rack->FollowJoints(t);
  }
}

void SceneJoints::Follow(std::span<const gpu::JointReport> reports) {
  for (size_t j = 0; j < std::min(states_.size(), reports.size()); ++j) {
    const JointDescription& joint = description_.joints[j];
    const gpu::JointReport& report = reports[j];
    FrameJoint& out = frame_[j];
    out.force_n = ToVector(report.force);
    out.torque_n_m = ToVector(report.torque);
    out.point_m = ToVector(report.point);
    out.point_a_m = ToVector(report.point_a);
    out.axis = ToVector(report.axis);
    out.gap_m = report.force.w;
    out.gap_rad = report.torque.w;
    const size_t row = joint.kind == JointKind::kHinge ? kTwist : joint.kind == JointKind::kSlider ? kShift : 0;
    out.position = HasCoordinate(joint.kind) ? report.coordinates[row] : 0;
    // Efforts of the solver draw a coordinate back; of a distance that is a pull.
    const double sign = joint.kind == JointKind::kHinge || joint.kind == JointKind::kSlider ? -1 : 1;
    out.effort = HasCoordinate(joint.kind) ? sign * report.efforts[row] : 0;
    if (out.force_n.norm() > joint.break_force_n || out.torque_n_m.norm() > joint.break_torque_n_m) states_[j].is_released = true;
    out.is_broken = states_[j].is_released;
  }
}

}  // namespace palpate::sim
