#include "sim/world/local_models.h"

#include <algorithm>
#include <utility>

#include "sim/world/world_values.h"

namespace palpate::sim {
namespace {

// What a hand feels of a body that does not yield; its device limits the stiffness anyway.
constexpr double kRigidYoungModulus_pa = 1e7;

}  // namespace

/// Where in a triangle of the model a point of the surface lies: barycentric weights, none of them negative.
std::array<double, 3> LocalModels::WeightsIn(uint32_t triangle, const Eigen::Vector3d& point_m, const Frame& frame) const {
  const uint32_t body = model_.BodyOf(triangle);
  const std::array<SurfaceSlot, 3>& corners = bodies_[body]->arrays()->surface_triangles[model_.SlotOf(triangle)];
  std::array<Eigen::Vector3d, 3> x;
  for (size_t c = 0; c < 3; ++c) {
    const float* const at = &frame.surface_positions_m[body][size_t{3} * ToNumber(corners[c])];
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

ContactSpread LocalModels::SpreadOn(uint32_t triangle, const std::array<double, 3>& weights) const {
  const WorldBody& body = *bodies_[model_.BodyOf(triangle)];
  const Material& material = body.MaterialAt(model_.SlotOf(triangle));
  ContactSpread spread;
  spread.vertices = model_.model().surface_triangles[triangle];
  spread.weights = weights;
  for (size_t c = 0; c < 3; ++c) spread.areas_m2[c] = model_.AreaAt(VertexHandle{spread.vertices[c]});
  spread.young_modulus_pa = body.kind() == BodyKind::kDeformable ? material.young_modulus_pa : kRigidYoungModulus_pa;
  spread.poisson_ratio = material.poisson_ratio;
  return spread;
}

/// Positions of surface vertices by handle, only where a tool projects: others need none.
std::vector<Eigen::Vector3d> LocalModels::SurfaceByHandle(const Frame& frame) const {
  std::vector<Eigen::Vector3d> surface_m(vertices_.size(), Eigen::Vector3d::Zero());
  for (size_t b = 0; b < bodies_.size(); ++b) {
    const auto& surface = bodies_[b]->arrays()->surface_vertices;
    for (const SurfaceSlot slot : surface.indices()) {
      if (surface[slot] == kNoSlot) continue;
      const float* const x = &frame.surface_positions_m[b][size_t{3} * ToNumber(slot)];
      surface_m[ToNumber(bodies_[b]->HandleOf(surface[slot]))] = {x[0], x[1], x[2]};
    }
  }
  return surface_m;
}

/// Contacts of a tool's capsules with surfaces, those without force included.
void LocalModels::ListContacts(size_t t, const gpu::TissueStep& step, const Frame& frame) {
  for (const gpu::ContactReport& report : step.contacts) {
    if (report.collider >= tool_of_collider_.size() || tool_of_collider_[report.collider] != t) continue;
    const WorldBody& body = *bodies_[model_.BodyOf(report.triangle)];
    const Material& material = body.MaterialAt(model_.SlotOf(report.triangle));
    LocalContact contact;
    contact.point_m = ToVector(report.point);
    contact.normal_W = -ToVector(report.normal);
    // The solver pushes from the margin on; for the hand the surface begins there too.
    contact.gap_m = static_cast<double>(report.gap_m) - description_.contact.margin_m;
    contact.normal_force_n = report.point.w;
    contact.damping_s = material.damping_s;
    contact.friction = description_.contact.friction;
    contacts_.push_back(contact);
    spreads_.push_back(SpreadOn(report.triangle, WeightsIn(report.triangle, contact.point_m, frame)));
  }
}

/// What the jaws hold pulls them as a contact of their size would push, along the line on which its force acts.
void LocalModels::AddGrasp(size_t t) {
  const InstrumentDescription& instrument = description_.tools[t].instrument;
  const ToolState& state = tools_[t];
  const double pull_n = state.grasp_force_n.norm();
  // An edit may just have taken what is held.
  const auto held = std::find_if(state.held.begin(), state.held.end(), [this](const HeldVertex& v) { return grasping_.IsAlive(v); });
  if (held == state.held.end() || !(pull_n > 0)) return;
  const Material& material = bodies_[vertices_.body[held->handle]]->zones().MaterialOf(0);
  LocalContact contact;
  contact.point_m = state.pose.position_m + state.grasp_force_n.cross(state.grasp_torque_n_m) / (pull_n * pull_n);
  contact.normal_W = state.grasp_force_n / pull_n;
  contact.normal_force_n = pull_n;
  contact.damping_s = material.damping_s;
  contacts_.push_back(contact);
  spreads_.push_back({.vertices = {kNoSlot, kNoSlot, kNoSlot},
                      .weights = {1, 0, 0},
                      .areas_m2 = {2 * instrument.jaw_radius_m * instrument.jaw_length_m, 0, 0},
                      .young_modulus_pa = material.young_modulus_pa,
                      .poisson_ratio = material.poisson_ratio});
}

void LocalModels::Build(const gpu::TissueStep& step, Frame* frame) {
  const HapticOptions& haptics = description_.haptics;
  std::vector<Eigen::Vector3d> surface_m;
  if (rack_.any_projection()) surface_m = SurfaceByHandle(*frame);
  for (size_t t = 0; t < frame->tools.size(); ++t) {
    const ToolDescription& tool = description_.tools[t];
    contacts_.clear();
    spreads_.clear();
    ListContacts(t, step, *frame);
    if (tool.response == ToolResponse::kProjection) {
      projection_.ListLocalContacts(t, surface_m,
                                    [&](const LocalContact& contact, uint32_t triangle, const std::array<double, 3>& weights) {
                                      contacts_.push_back(contact);
                                      spreads_.push_back(SpreadOn(triangle, weights));
                                    });
    }
    AddGrasp(t);
    ShareStiffness(spreads_, contacts_);
    LocalModelInput input;
    input.device_pose = frame->tools[t].device_pose;
    input.tool_pose = frame->tools[t].pose;
    if (tool.drive == ToolDrive::kCoupled) input.coupling_stiffness_n_per_m = tool.coupling_stiffness_n_per_m;
    input.device_max_stiffness_n_per_m = commands_[t].device_max_stiffness_n_per_m;
    input.max_constraints = haptics.max_constraints;
    input.contacts = contacts_;
    LocalModel model = BuildLocalModel(input);
    model.step = frame->step;
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
