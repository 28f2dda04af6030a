#include "sim/world/local_models.h"

#include <algorithm>
#include <numbers>
#include <utility>

#include "sim/haptics/curved_gap.h"
#include "sim/world/world_values.h"

namespace palpate::sim {
namespace {

// What a hand feels of a body that does not yield; its device limits the stiffness anyway.
constexpr double kRigidYoungModulus_pa = 1e7;

// Of one capsule with one exact surface: where a line touches, several.
constexpr size_t kMaxExactContacts = 8;

std::array<double, 6> SymmetricOf(const Eigen::Matrix3d& m) { return {m(0, 0), m(0, 1), m(0, 2), m(1, 1), m(1, 2), m(2, 2)}; }

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
    if (nurbs_.IsNurbs(model_.BodyOf(report.triangle))) continue;
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

/// Contacts with exact surfaces: not the triangles that the solver found, but the nearest points of the surface itself, as they are for the
/// device. The triangles only say where to look, and how hard the solver pushes.
void LocalModels::ListExactContacts(size_t t, const gpu::TissueStep& step, const Frame& frame) {
  if (frame.nurbs.poses.empty()) return;
  std::vector<const gpu::ContactReport*> reports;
  for (const gpu::ContactReport& report : step.contacts) {
    if (report.collider >= tool_of_collider_.size() || tool_of_collider_[report.collider] != t) continue;
    if (nurbs_.IsNurbs(model_.BodyOf(report.triangle))) reports.push_back(&report);
  }
  std::stable_sort(reports.begin(), reports.end(), [](const auto* a, const auto* b) { return a->gap_m < b->gap_m; });
  struct Found {
    uint32_t collider, body;
    Eigen::Vector3d point_m;  // at the tool's pose
    size_t contact;
  };
  std::vector<Found> found;
  const ToolState& state = tools_[t];
  const RigidPose& device = frame.tools[t].device_pose;
  for (const gpu::ContactReport* report : reports) {
    const uint32_t body = model_.BodyOf(report->triangle);
    const InstrumentCapsule& part = state.parts[report->collider - state.first_collider];
    const Eigen::Vector3d point_m = ToVector(report->point);
    Found* nearest = nullptr;
    size_t of_pair = 0;
    for (Found& other : found) {
      if (other.collider != report->collider || other.body != body) continue;
      ++of_pair;
      if (nearest == nullptr || (other.point_m - point_m).norm() < (nearest->point_m - point_m).norm()) nearest = &other;
    }
    const bool is_near = nearest != nullptr && (of_pair >= kMaxExactContacts || (nearest->point_m - point_m).norm() < part.radius_m);
    if (!is_near) {
      const auto& [tip_m, axis_m] = state.capsules_m[report->collider - state.first_collider];
      const uint32_t triangle = model_.SlotOf(report->triangle);
      const NurbsApproach of_tool = nurbs_.Approach(frame, body, triangle, tip_m, tip_m + axis_m);
      const auto same = std::find_if(found.begin(), found.end(), [&](const Found& other) {
        return other.collider == report->collider && other.body == body &&
               (other.point_m - of_tool.place.point_m).norm() < 0.1 * part.radius_m;
      });
      if (same != found.end()) {
        nearest = &*same;
      } else {
        // The device may be inside the body, where there is no nearest point to find: from outside above it the way in is along the normal.
        const Eigen::Vector3d device_tip_m = device.position_m + device.rotation * part.tip_m;
        const Eigen::Vector3d device_axis_m = device.rotation * part.axis_m;
        const Eigen::Vector3d out_m = std::max(0.0, of_tool.normal.dot(tip_m - device_tip_m)) * of_tool.normal;
        const NurbsApproach outside = nurbs_.Approach(frame, body, triangle, device_tip_m + out_m, device_tip_m + out_m + device_axis_m);
        const std::array<double, 6> curvature = SymmetricOf(outside.curvature_per_m);
        const CurvedGap at_device = FollowGap(outside.normal, curvature, -out_m);
        const Eigen::Matrix3d across = Eigen::Matrix3d::Identity() - at_device.normal * at_device.normal.transpose();
        const Material& material = bodies_[body]->zones().MaterialOf(0);
        LocalContact contact;
        contact.normal_W = at_device.normal;
        // The solver pushes from the margin on; for the hand the surface begins there too.
        const double half_m = nurbs_.IsShell(body) ? description_.bodies[body].nurbs_shell->thickness_m / 2 : 0;
        contact.gap_m = outside.distance_m - half_m - part.radius_m - description_.contact.margin_m + at_device.change_m;
        contact.exact =
            LocalContact::Exact{outside.on_segment_m - out_m, SymmetricOf(across * outside.curvature_per_m * across / at_device.stretch)};
        contact.point_m = contact.exact->axis_point_m - (part.radius_m + contact.gap_m) * contact.normal_W;
        contact.damping_s = material.damping_s;
        contact.friction = description_.contact.friction;
        found.push_back({report->collider, body, of_tool.place.point_m, contacts_.size()});
        contacts_.push_back(contact);
        // A rigid body is as stiff as a patch of the tool's size, wherever the triangles lie.
        spreads_.push_back(nurbs_.IsShell(body) ? SpreadOn(report->triangle, WeightsIn(report->triangle, point_m, frame))
                                                : ContactSpread{.vertices = {kNoSlot, kNoSlot, kNoSlot},
                                                                .weights = {1, 0, 0},
                                                                .areas_m2 = {std::numbers::pi * part.radius_m * part.radius_m, 0, 0},
                                                                .young_modulus_pa = kRigidYoungModulus_pa,
                                                                .poisson_ratio = material.poisson_ratio});
        nearest = &found.back();
      }
    }
    contacts_[nearest->contact].normal_force_n += std::max(0.0, static_cast<double>(report->point.w));
  }
}

/// What pulls a tool along the line on which this force acts, as a contact of this size would push.
void LocalModels::AddPull(const ToolState& state, const Eigen::Vector3d& force_n, const Eigen::Vector3d& torque_n_m,
                          const Material& material, double area_m2) {
  const double pull_n = force_n.norm();
  LocalContact contact;
  contact.point_m = state.pose.position_m + force_n.cross(torque_n_m) / (pull_n * pull_n);
  contact.normal_W = force_n / pull_n;
  contact.normal_force_n = pull_n;
  contact.damping_s = material.damping_s;
  contacts_.push_back(contact);
  spreads_.push_back({.vertices = {kNoSlot, kNoSlot, kNoSlot},
                      .weights = {1, 0, 0},
                      .areas_m2 = {area_m2, 0, 0},
                      .young_modulus_pa = material.young_modulus_pa,
                      .poisson_ratio = material.poisson_ratio});
}

/// What the jaws hold.
void LocalModels::AddGrasp(size_t t) {
  const InstrumentDescription& instrument = description_.tools[t].instrument;
  const ToolState& state = tools_[t];
  // An edit may just have taken what is held.
  const auto held = std::find_if(state.held.begin(), state.held.end(), [this](const HeldVertex& v) { return grasping_.IsAlive(v); });
  if (held == state.held.end() || !(state.grasp_force_n.norm() > 0)) return;
  AddPull(state, state.grasp_force_n, state.grasp_torque_n_m, bodies_[vertices_.body[held->handle]]->zones().MaterialOf(0),
          2 * instrument.jaw_radius_m * instrument.jaw_length_m);
}

/// What a blade has to overcome: as stiff as a patch of the size of its edge.
void LocalModels::AddBlade(size_t t) {
  const ToolState& state = tools_[t];
  if (!(state.blade_force_n.norm() > 0) || state.blade_body >= bodies_.size()) return;
  const double length_m = description_.tools[t].instrument.blade_length_m;
  AddPull(state, state.blade_force_n, state.blade_torque_n_m, bodies_[state.blade_body]->zones().MaterialOf(0),
          std::numbers::pi / 4 * length_m * length_m);
}

/// What joints hold: as stiff as a patch of the tool's size.
void LocalModels::AddJoint(size_t t) {
  const ToolState& state = tools_[t];
  if (!(state.joint_force_n.norm() > 0) || state.joint_body >= bodies_.size()) return;
  AddPull(state, state.joint_force_n, state.joint_torque_n_m, bodies_[state.joint_body]->zones().MaterialOf(0),
          std::numbers::pi * state.parts[0].radius_m * state.parts[0].radius_m);
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
    ListExactContacts(t, step, *frame);
    if (tool.response == ToolResponse::kProjection) {
      projection_.ListLocalContacts(t, surface_m,
                                    [&](const LocalContact& contact, uint32_t triangle, const std::array<double, 3>& weights) {
                                      contacts_.push_back(contact);
                                      spreads_.push_back(SpreadOn(triangle, weights));
                                    });
    }
    AddGrasp(t);
    AddBlade(t);
    AddJoint(t);
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
