#include <algorithm>
#include <utility>
#include <vector>

#include "sim/haptics/build_model.h"
#include "sim/world/world_impl.h"

namespace palpate::sim {
namespace {

// What a hand feels of a body that does not yield; its device limits the stiffness anyway.
constexpr double kRigidYoungModulus_pa = 1e7;

bool IsPose(const RigidPose& pose) {
  return pose.position_m.allFinite() && pose.rotation.coeffs().allFinite() && pose.rotation.norm() >= 1e-6;
}

}  // namespace

absl::Status World::Impl::TakeCommands(std::span<const ToolCommand* const> commands) {
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
void World::Impl::TakeNewerPoses(std::span<const ToolCommand* const> commands) {
  if (!quasi_static_.empty()) return;
  for (size_t t = 0; t < commands.size(); ++t) {
    const ToolDescription& tool = description_.tools[t];
    const bool is_bound =
        tool.trocar || tool.response == ToolResponse::kProjection || !tools_[t].held.empty() || tool.instrument.traits().has_blade;
    if (commands[t] == nullptr || is_bound || !IsPose(commands[t]->device_pose)) continue;
    commands_[t].device_pose = commands[t]->device_pose;
    commands_[t].device_pose.rotation.normalize();
    commands_[t].velocity_m_per_s = commands[t]->velocity_m_per_s;
    commands_[t].pose_sequence = commands[t]->pose_sequence;
    commands_[t].station_time_us = commands[t]->station_time_us;
    AimTool(t);
  }
}

/// Where in a triangle of the model a point of the surface lies: barycentric weights, none of them negative.
std::array<double, 3> World::Impl::WeightsIn(uint32_t triangle, const Eigen::Vector3d& point_m, const Frame& frame) const {
  const uint32_t body = BodyOfTriangle(triangle);
  const std::array<uint32_t, 3>& corners = bodies_[body]->arrays()->surface_triangles[triangle_slots_[triangle]];
  std::array<Eigen::Vector3d, 3> x;
  for (size_t c = 0; c < 3; ++c) {
    const float* const at = &frame.surface_positions_m[body][size_t{3} * corners[c]];
    x[c] = {at[0], at[1], at[2]};
  }
  const Eigen::Vector3d across = (x[1] - x[0]).cross(x[2] - x[0]);
  std::array<double, 3> weights{};
  double sum = 0;
  for (size_t c = 0; c < 3; ++c) {
    weights[c] = std::max(0.0, (x[(c + 1) % 3] - point_m).cross(x[(c + 2) % 3] - point_m).dot(across));
    sum += weights[c];
  }
  if (!(sum > 0)) return {1.0 / 3, 1.0 / 3, 1.0 / 3};  // a triangle without an area
  for (double& weight : weights) weight /= sum;
  return weights;
}

ContactSpread World::Impl::SpreadOn(uint32_t triangle, const std::array<double, 3>& weights) const {
  const WorldBody& body = *bodies_[BodyOfTriangle(triangle)];
  const Material& material = body.MaterialAt(triangle_slots_[triangle]);
  ContactSpread spread;
  spread.vertices = model_.surface_triangles[triangle];
  spread.weights = weights;
  for (size_t c = 0; c < 3; ++c) spread.areas_m2[c] = vertex_area_m2_[spread.vertices[c]];
  spread.young_modulus_pa = body.kind() == BodyKind::kDeformable ? material.young_modulus_pa : kRigidYoungModulus_pa;
  spread.poisson_ratio = material.poisson_ratio;
  return spread;
}

void World::Impl::BuildLocalModels(const gpu::TissueStep& step, Frame* frame) {
  const HapticOptions& haptics = description_.haptics;
  std::vector<LocalContact> contacts;
  std::vector<ContactSpread> spreads;
  std::vector<Eigen::Vector3d> surface_m;  // by handle
  if (any_projection_) surface_m.resize(vertices_.size(), Eigen::Vector3d::Zero());
  for (size_t b = 0; any_projection_ && b < bodies_.size(); ++b) {
    const std::vector<uint32_t>& surface = bodies_[b]->arrays()->surface_vertices;
    for (size_t i = 0; i < surface.size(); ++i) {
      if (surface[i] == kNoSlot) continue;
      const float* const x = &frame->surface_positions_m[b][3 * i];
      surface_m[bodies_[b]->HandleOf(surface[i])] = {x[0], x[1], x[2]};
    }
  }
  for (size_t t = 0; t < frame->tools.size(); ++t) {
    contacts.clear();
    spreads.clear();
    for (const gpu::ContactReport& report : step.contacts) {
      if (report.collider >= tool_of_collider_.size() || tool_of_collider_[report.collider] != t) continue;
      const WorldBody& body = *bodies_[BodyOfTriangle(report.triangle)];
      const Material& material = body.MaterialAt(triangle_slots_[report.triangle]);
      LocalContact contact;
      contact.point_m = ToVector(report.point);
      contact.normal_W = -ToVector(report.normal);
      // The solver pushes from the margin on; for the hand the surface begins there too.
      contact.gap_m = static_cast<double>(report.gap_m) - description_.contact.margin_m;
      contact.normal_force_n = report.point.w;
      contact.damping_s = material.damping_s;
      contact.friction = description_.contact.friction;
      contacts.push_back(contact);
      spreads.push_back(SpreadOn(report.triangle, WeightsIn(report.triangle, contact.point_m, *frame)));
    }
    const ToolDescription& tool = description_.tools[t];
    const ToolState& state = tools_[t];
    if (tool.response == ToolResponse::kProjection) AppendLocalContacts(t, surface_m, &contacts, &spreads);
    const double pull_n = state.grasp_force_n.norm();
    // An edit may just have taken what is held.
    const auto held = std::find_if(state.held.begin(), state.held.end(), [this](const HeldVertex& vertex) { return IsAlive(vertex); });
    if (held != state.held.end() && pull_n > 0) {
      // What the jaws hold pulls them as a contact of their size would push, along the line on which its force acts.
      const WorldBody& body = *bodies_[vertices_.body[held->handle]];
      const Material& material = body.MaterialOf(0);
      LocalContact contact;
      contact.point_m = state.pose.position_m + state.grasp_force_n.cross(state.grasp_torque_n_m) / (pull_n * pull_n);
      contact.normal_W = state.grasp_force_n / pull_n;
      contact.normal_force_n = pull_n;
      contact.damping_s = material.damping_s;
      contacts.push_back(contact);
      spreads.push_back({.vertices = {kNoSlot, kNoSlot, kNoSlot},
                         .weights = {1, 0, 0},
                         .areas_m2 = {2 * tool.instrument.jaw_radius_m * tool.instrument.jaw_length_m, 0, 0},
                         .young_modulus_pa = material.young_modulus_pa,
                         .poisson_ratio = material.poisson_ratio});
    }
    ShareStiffness(spreads, contacts);
    LocalModelInput input;
    input.device_pose = frame->tools[t].device_pose;
    input.tool_pose = frame->tools[t].pose;
    if (tool.drive == ToolDrive::kCoupled) input.coupling_stiffness_n_per_m = tool.coupling_stiffness_n_per_m;
    input.device_max_stiffness_n_per_m = commands_[t].device_max_stiffness_n_per_m;
    input.max_constraints = haptics.max_constraints;
    input.contacts = contacts;
    LocalModel model = BuildLocalModel(input);
    model.step = step_;
    model.sim_time_s = frame->sim_time_s;
    model.server_time_us = frame->server_time_us;
    model.pose_sequence = commands_[t].pose_sequence;
    model.station_time_us = commands_[t].station_time_us;
    model.validity_radius_m = haptics.range_m;
    model.blend_time_s = haptics.blend_time_s >= 0 ? haptics.blend_time_s : description_.dt_s;
    model.force_n = frame->tools[t].force_n;
    model.torque_n_m = frame->tools[t].torque_n_m;
    frame->local_models.push_back(model);
  }
}

}  // namespace palpate::sim
