#include "sim/world/tool_rack.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "sim/instrument/trocar.h"
#include "sim/world/world_values.h"

namespace palpate::sim {
namespace {

constexpr double kJawSpeed_rad_per_s = 4;
constexpr double kJointShare = 0.5;  // of what a joint changes of its pull, in a step

bool IsPose(const RigidPose& pose) {
  return pose.position_m.allFinite() && pose.rotation.coeffs().allFinite() && pose.rotation.norm() >= 1e-6;
}

}  // namespace

/// Tools as at rest, their capsules together and one tool after the other.
void ToolRack::Reset() {
  tools_.clear();
  tool_of_collider_.clear();
  any_projection_ = false;
  carries_joint_.assign(description_.tools.size(), false);
  for (const JointDescription& joint : description_.joints) {
    if (joint.tool_a < carries_joint_.size()) carries_joint_[joint.tool_a] = true;
    if (joint.tool_b < carries_joint_.size()) carries_joint_[joint.tool_b] = true;
  }
  for (size_t t = 0; t < description_.tools.size(); ++t) {
    const ToolDescription& tool = description_.tools[t];
    ToolState& state = tools_.emplace_back();
    state.first_collider = static_cast<uint32_t>(tool_of_collider_.size());
    state.jaws = JawDrive({.max_angle_rad = tool.instrument.max_jaw_angle_rad,
                           .max_speed_rad_per_s = kJawSpeed_rad_per_s,
                           .max_torque_n_m = tool.instrument.max_grasp_force_n * tool.instrument.jaw_length_m / 2});
    state.parts = CapsulesOf(tool.instrument, tool.length_m, tool.radius_m, state.jaws.angle_rad());
    state.aim = RestPose(tool);
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
absl::Status ToolRack::Make(std::vector<gpu::ColliderDescription>* colliders) {
  targets_.clear();
  Reset();
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

RigidPose ToolRack::RestPose(const ToolDescription& tool) {
  return tool.trocar ? ConstrainToTrocar(*tool.trocar, tool.rest_pose) : tool.rest_pose;
}

void ToolRack::FollowJoints(size_t t) {
  ToolState& state = tools_[t];
  if (description_.tools[t].drive == ToolDrive::kCoupled) state.joint_pull_n += kJointShare * (state.joint_force_n - state.joint_pull_n);
}

/// Where the tool's capsules are wanted at the end of the step.
void ToolRack::Aim(size_t t) {
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
void ToolRack::SetTargets(size_t t) {
  const ToolState& state = tools_[t];
  const RigidPose& aim = state.aim;
  const Eigen::Vector3d drawn_m = state.joint_pull_n / description_.tools[t].coupling_stiffness_n_per_m;
  for (size_t i = 0; i < state.parts.size(); ++i) {
    targets_[state.first_collider + i] = {ToArray(aim.position_m + drawn_m + aim.rotation * state.parts[i].tip_m),
                                          ToArray(aim.rotation * state.parts[i].axis_m)};
  }
}

absl::Status ToolRack::TakeCommands(std::span<const ToolCommand* const> commands) {
  if (commands.size() != description_.tools.size()) {
    return absl::InvalidArgumentError(absl::StrCat(commands.size(), " tool commands for ", description_.tools.size(), " tools"));
  }
  for (size_t t = 0; t < commands.size(); ++t) {
    if (commands[t] == nullptr) {
      // It keeps its target, but nobody's foot is on the pedal, and nobody leads the blade.
      commands_[t].pedal = false;
      commands_[t].is_energy_expired = false;
      commands_[t].is_hold_expired = false;
      tools_[t].is_blade_led = false;
      continue;
    }
    if (!IsPose(commands[t]->device_pose)) {
      return absl::InvalidArgumentError(absl::StrCat("tool ", description_.tools[t].name, ": the pose is not finite"));
    }
    const ToolCommand& command = *commands[t];
    if (!std::isfinite(command.jaw_angle_rad) || !std::isfinite(command.power_w) || !std::isfinite(command.duty)) {
      return absl::InvalidArgumentError(absl::StrCat("tool ", description_.tools[t].name, ": jaw_angle_rad ", command.jaw_angle_rad,
                                                     ", power_w ", command.power_w, " and duty ", command.duty, " must be finite"));
    }
    commands_[t] = *commands[t];
    commands_[t].device_pose.rotation.normalize();
    tools_[t].is_blade_led = !command.is_hold_expired;
  }
  return absl::OkStatus();
}

/// In the middle of a step: of tools for which nothing has been worked out from the pose that they had at its begin.
void ToolRack::TakeNewerPoses(std::span<const ToolCommand* const> commands) {
  for (size_t t = 0; t < commands.size(); ++t) {
    const ToolDescription& tool = description_.tools[t];
    const bool is_bound = tool.trocar || tool.response == ToolResponse::kProjection || !tools_[t].held.empty() ||
                          tool.instrument.traits().has_blade || carries_joint_[t];
    if (commands[t] == nullptr || is_bound || !IsPose(commands[t]->device_pose)) continue;
    commands_[t].device_pose = commands[t]->device_pose;
    commands_[t].device_pose.rotation.normalize();
    commands_[t].velocity_m_per_s = commands[t]->velocity_m_per_s;
    commands_[t].pose_sequence = commands[t]->pose_sequence;
    commands_[t].station_time_us = commands[t]->station_time_us;
    Aim(t);
  }
}

void ToolRack::ResetCommands() {
  commands_.assign(description_.tools.size(), {});
  for (size_t t = 0; t < commands_.size(); ++t) commands_[t].device_pose = description_.tools[t].rest_pose;
}

void ToolRack::AddFixed(const gpu::ColliderDescription& collider) { targets_.push_back({collider.tip_m, collider.axis_m}); }

void ToolRack::Follow(const gpu::TissueStep& step) {
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
    state.blade_force_n.setZero();
    state.blade_torque_n_m.setZero();
    state.joint_force_n.setZero();
    state.joint_torque_n_m.setZero();
    for (size_t i = 0; i < state.parts.size(); ++i) {
      const gpu::Collider& collider = step.colliders[state.first_collider + i];
      state.capsules_m[i] = {ToVector(collider.tip), ToVector(collider.axis)};
    }
    state.velocity_m_per_s = ToVector(step.colliders[state.first_collider].velocity);
    const auto& wanted = targets_[state.first_collider].tip_m;
    state.wanted_tip_m = {wanted[0], wanted[1], wanted[2]};
  }
}

}  // namespace palpate::sim
