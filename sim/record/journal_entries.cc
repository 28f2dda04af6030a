#include "sim/record/journal_entries.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "gpu/base/status.h"

namespace palpate::record {
namespace {

void Encode(const Eigen::Vector3d& v, v1::Vec3* out) {
  out->set_x(v.x());
  out->set_y(v.y());
  out->set_z(v.z());
}
Eigen::Vector3d Decode(const v1::Vec3& v) { return {v.x(), v.y(), v.z()}; }

/// By their bits: zeros of two signs may lead to two results.
bool IsSame(double a, double b) { return std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b); }
template <int kSize>
bool IsSame(const Eigen::Matrix<double, kSize, 1>& a, const Eigen::Matrix<double, kSize, 1>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), [](double x, double y) { return IsSame(x, y); });
}

bool IsSame(const sim::ToolCommand& a, const sim::ToolCommand& b) {
  return IsSame<3>(a.device_pose.position_m, b.device_pose.position_m) &&
         IsSame<4>(a.device_pose.rotation.coeffs(), b.device_pose.rotation.coeffs()) && IsSame<3>(a.velocity_m_per_s, b.velocity_m_per_s) &&
         a.pose_sequence == b.pose_sequence && a.station_time_us == b.station_time_us &&
         IsSame(a.device_max_stiffness_n_per_m, b.device_max_stiffness_n_per_m) && IsSame(a.jaw_angle_rad, b.jaw_angle_rad) &&
         a.pedal == b.pedal && IsSame(a.power_w, b.power_w) && IsSame(a.duty, b.duty) && a.is_energy_expired == b.is_energy_expired &&
         a.is_hold_expired == b.is_hold_expired;
}

bool IsSame(const ToolCommands& a, const ToolCommands& b) {
  for (size_t t = 0; t < a.size(); ++t) {
    if (a[t].has_value() != b[t].has_value() || (a[t] && !IsSame(*a[t], *b[t]))) return false;
  }
  return true;
}

void Encode(const sim::ToolCommand& command, v1::ToolInput* out) {
  v1::ToolPose& pose = *out->mutable_pose();
  Encode(command.device_pose.position_m, pose.mutable_pose()->mutable_position_m());
  v1::Quaternion& rotation = *pose.mutable_pose()->mutable_rotation();
  rotation.set_w(command.device_pose.rotation.w());
  rotation.set_x(command.device_pose.rotation.x());
  rotation.set_y(command.device_pose.rotation.y());
  rotation.set_z(command.device_pose.rotation.z());
  if (!IsSame<3>(command.velocity_m_per_s, Eigen::Vector3d::Zero())) Encode(command.velocity_m_per_s, pose.mutable_velocity_m_per_s());
  pose.set_sequence(command.pose_sequence);
  pose.set_station_time_us(command.station_time_us);
  pose.set_jaw_angle_rad(command.jaw_angle_rad);
  pose.set_pedal(command.pedal);
  pose.set_power_w(command.power_w);
  pose.set_duty(command.duty);
  out->set_device_max_stiffness_n_per_m(command.device_max_stiffness_n_per_m);
  out->set_is_energy_expired(command.is_energy_expired);
  out->set_is_hold_expired(command.is_hold_expired);
}

/// Bit for bit: a rotation is not normalised again.
sim::ToolCommand Decode(const v1::ToolInput& input) {
  sim::ToolCommand out;
  const v1::ToolPose& pose = input.pose();
  const v1::Quaternion& rotation = pose.pose().rotation();
  out.device_pose.position_m = Decode(pose.pose().position_m());
  out.device_pose.rotation.coeffs() = Eigen::Vector4d(rotation.x(), rotation.y(), rotation.z(), rotation.w());
  out.velocity_m_per_s = Decode(pose.velocity_m_per_s());
  out.pose_sequence = pose.sequence();
  out.station_time_us = pose.station_time_us();
  out.device_max_stiffness_n_per_m = input.device_max_stiffness_n_per_m();
  out.jaw_angle_rad = pose.jaw_angle_rad();
  out.pedal = pose.pedal();
  out.power_w = pose.power_w();
  out.duty = pose.duty();
  out.is_energy_expired = input.is_energy_expired();
  out.is_hold_expired = input.is_hold_expired();
  return out;
}

bool IsFinite(const sim::ToolCommand& c) {
  return c.device_pose.position_m.allFinite() && c.velocity_m_per_s.allFinite() && std::isfinite(c.device_max_stiffness_n_per_m) &&
         std::isfinite(c.jaw_angle_rad) && std::isfinite(c.power_w) && std::isfinite(c.duty);
}

}  // namespace

ToolCommands CopyCommands(std::span<const sim::ToolCommand* const> commands) {
  ToolCommands out(commands.size());
  for (size_t t = 0; t < commands.size(); ++t) {
    if (commands[t] != nullptr) out[t] = *commands[t];
  }
  return out;
}

void EncodeCommands(const ToolCommands& commands, google::protobuf::RepeatedPtrField<v1::ToolInput>* out) {
  for (size_t t = 0; t < commands.size(); ++t) {
    if (!commands[t]) continue;
    v1::ToolInput& input = *out->Add();
    input.set_tool_index(static_cast<uint32_t>(t));
    Encode(*commands[t], &input);
  }
}

absl::StatusOr<ToolCommands> DecodeCommands(const google::protobuf::RepeatedPtrField<v1::ToolInput>& commands, size_t tool_count) {
  ToolCommands out(tool_count);
  for (int c = 0; c < commands.size(); ++c) {
    const v1::ToolInput& input = commands[c];
    const auto wrong = [c](auto... what) { return absl::InvalidArgumentError(absl::StrCat("commands[", c, "]: ", what...)); };
    if (input.tool_index() >= tool_count) return wrong("tool ", input.tool_index(), " of ", tool_count);
    if (out[input.tool_index()]) return wrong("tool ", input.tool_index(), " has two commands");
    const sim::ToolCommand command = Decode(input);
    if (!IsFinite(command)) return wrong("a number is not finite");
    if (!(std::abs(command.device_pose.rotation.norm() - 1) < 1e-6)) return wrong("the rotation is not a unit quaternion");
    out[input.tool_index()] = command;
  }
  return out;
}

uint32_t HashOfPositions(std::span<const float> positions_m) {
  // Four chains side by side: one would wait for its own multiplications.
  std::array<uint64_t, 4> lanes = {1, 2, 3, 4};
  size_t p = 0;
  const auto word = [&positions_m](size_t at) {
    return uint64_t{std::bit_cast<uint32_t>(positions_m[at])} | uint64_t{std::bit_cast<uint32_t>(positions_m[at + 1])} << 32;
  };
  for (; p + 8 <= positions_m.size(); p += 8) {
    for (size_t lane = 0; lane < 4; ++lane) lanes[lane] = sim::MixWord(lanes[lane] + word(p + 2 * lane));
  }
  for (; p < positions_m.size(); ++p) lanes[0] = sim::MixWord(lanes[0] + std::bit_cast<uint32_t>(positions_m[p]));
  const uint64_t hash = sim::MixWord(lanes[0] + sim::MixWord(lanes[1] + sim::MixWord(lanes[2] + sim::MixWord(lanes[3]))));
  return static_cast<uint32_t>(hash ^ (hash >> 32));
}

v1::JournalStep EncodeStep(const ToolCommands& at_start, const ToolCommands& late, const sim::Frame& frame) {
  v1::JournalStep out;
  out.set_step(frame.step);
  out.set_state_hash(frame.state_hash);
  out.set_time_us(frame.server_time_us);
  EncodeCommands(at_start, out.mutable_commands());
  if (!IsSame(at_start, late)) {
    out.set_has_late_commands(true);
    EncodeCommands(late, out.mutable_late_commands());
  }
  if (frame.surface_positions_m.size() <= kMaxHashedBodies) {
    for (const std::vector<float>& positions_m : frame.surface_positions_m) out.add_body_hashes(HashOfPositions(positions_m));
  }
  return out;
}

scene::EditTargets EditTargetsOf(const sim::World& world) {
  scene::EditTargets out;
  const sim::WorldTopology& topology = *world.CurrentFrame()->topology;
  for (size_t b = 0; b < topology.bodies.size(); ++b) {
    out.bodies.push_back(topology.bodies[b]->name);
    out.materials.push_back(world.MaterialsOf(b));
  }
  for (const sim::ToolDescription& tool : world.description().tools) out.tools.push_back(tool.name);
  out.joints = world.description().joints;
  return out;
}

}  // namespace palpate::record
