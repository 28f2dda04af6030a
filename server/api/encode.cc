#include "server/api/encode.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "sim/scene/tool_spec.h"

namespace palpate::server {
namespace {

static_assert(std::endian::native == std::endian::little, "positions are copied as little-endian");

template <typename T>
void AppendLittleEndian(const T* values, size_t count, std::string& out) {
  out.append(reinterpret_cast<const char*>(values), count * sizeof(T));
}

constexpr int kMaxContactBodies = 1024;

}  // namespace

void EncodeVec3(const Eigen::Vector3d& v, v1::Vec3& out) {
  out.set_x(v.x());
  out.set_y(v.y());
  out.set_z(v.z());
}

void EncodePose(const sim::RigidPose& pose, v1::Pose& out) {
  EncodeVec3(pose.position_m, *out.mutable_position_m());
  v1::Quaternion& q = *out.mutable_rotation();
  q.set_w(pose.rotation.w());
  q.set_x(pose.rotation.x());
  q.set_y(pose.rotation.y());
  q.set_z(pose.rotation.z());
}

v1::ToolShape EncodeToolShape(const sim::ToolDescription& tool) {
  v1::ToolShape out;
  out.set_name(tool.name);
  out.set_radius_m(tool.radius_m);
  out.set_length_m(tool.length_m);
  const sim::InstrumentDescription& instrument = tool.instrument;
  const sim::InstrumentTraits& traits = instrument.traits();
  out.set_kind(scene::EncodeInstrumentKind(instrument.kind));
  scene::EncodeInstrumentTraits(traits, *out.mutable_traits());
  if (traits.has_jaws) {
    out.set_jaw_length_m(instrument.jaw_length_m);
    out.set_jaw_radius_m(instrument.jaw_radius_m);
    out.set_max_jaw_angle_rad(instrument.max_jaw_angle_rad);
  }
  if (traits.has_power) {
    out.set_max_power_w(instrument.max_power_w);
    out.set_reach_m(instrument.reach_m);
  }
  if (traits.has_blade) out.set_blade_length_m(instrument.blade_length_m);
  return out;
}

absl::StatusOr<FrameOptions> FrameOptionsFromProto(const v1::WatchRequest& request, const SceneTopology& topology) {
  if (!v1::PositionEncoding_IsValid(request.positions())) {
    return absl::InvalidArgumentError(absl::StrCat("positions: ", static_cast<int>(request.positions()), " is outside [0, 3]"));
  }
  if (request.has_max_rate_hz() && !(request.max_rate_hz() >= 0.1 && request.max_rate_hz() <= 10000)) {
    return absl::InvalidArgumentError(absl::StrCat("max_rate_hz: ", request.max_rate_hz(), " is outside [0.1, 10000]"));
  }
  FrameOptions out;
  if (request.positions() != v1::POSITION_ENCODING_UNSPECIFIED) out.positions = request.positions();
  out.with_contacts = !request.without_contacts();
  out.with_tools = !request.without_tools();
  out.with_volume = request.with_volume();
  out.with_nurbs = request.with_nurbs();
  if (request.contact_bodies_size() > kMaxContactBodies) {
    return absl::InvalidArgumentError(
        absl::StrCat("contact_bodies: ", request.contact_bodies_size(), " entries are outside [0, ", kMaxContactBodies, "]"));
  }
  const auto is_body = [&topology](const std::string& name) {
    return std::any_of(topology.world->bodies.begin(), topology.world->bodies.end(),
                       [&name](const auto& body) { return body->name == name; });
  };
  for (int i = 0; i < request.contact_bodies_size(); ++i) {
    const std::string& name = request.contact_bodies(i);
    if (!out.contact_bodies.contains(name) && !is_body(name)) {
      return absl::NotFoundError(absl::StrCat("contact_bodies[", i, "]: the scene has no body \"", name, "\""));
    }
    out.contact_bodies.insert(name);
  }
  return out;
}

double MaxRateFromProto(const v1::WatchRequest& request) { return request.has_max_rate_hz() ? request.max_rate_hz() : 60; }

void EncodePositions(std::span<const float> positions_m, v1::PositionEncoding encoding, v1::BodyFrame& out,
                     std::span<const uint32_t> places) {
  std::string& bytes = *out.mutable_positions();
  bytes.clear();
  if (encoding == v1::POSITION_ENCODING_NONE) return;
  if (encoding != v1::POSITION_ENCODING_UINT16) {
    bytes.reserve(positions_m.size() * sizeof(float));
    AppendLittleEndian(positions_m.data(), positions_m.size(), bytes);
    return;
  }

  constexpr double kLevels = 65535;
  Eigen::Array3d low = Eigen::Array3d::Zero();
  Eigen::Array3d high = Eigen::Array3d::Zero();
  bool is_first = true;
  for (size_t i = 0; i + 2 < positions_m.size(); i += 3) {
    if (i / 3 < places.size() && places[i / 3] == sim::kNoSlot) continue;
    const Eigen::Array3d p(positions_m[i], positions_m[i + 1], positions_m[i + 2]);
    low = is_first ? p : low.min(p).eval();
    high = is_first ? p : high.max(p).eval();
    is_first = false;
  }
  const Eigen::Array3d scale = (high - low) / kLevels;
  Eigen::Array3d inverse;
  for (int axis = 0; axis < 3; ++axis) inverse[axis] = scale[axis] > 0 ? 1 / scale[axis] : 0;

  std::vector<uint16_t> values(positions_m.size() / 3 * 3);
  for (size_t i = 0; i < values.size(); ++i) {
    const int axis = static_cast<int>(i % 3);
    const double level = (static_cast<double>(positions_m[i]) - low[axis]) * inverse[axis];
    values[i] = static_cast<uint16_t>(std::clamp(level + 0.5, 0.0, kLevels));
  }
  bytes.reserve(values.size() * sizeof(uint16_t));
  AppendLittleEndian(values.data(), values.size(), bytes);
  EncodeVec3(low.matrix(), *out.mutable_origin_m());
  EncodeVec3(scale.matrix(), *out.mutable_scale_m());
  // Half a level, and the rounding of the few double operations on either side.
  const double magnitude = std::max(low.abs().maxCoeff(), high.abs().maxCoeff());
  out.set_max_error_m(0.5 * scale.maxCoeff() * (1 + 1e-9) + 8 * std::numeric_limits<double>::epsilon() * magnitude);
}

bool HasVolume(const sim::Frame& frame) {
  return !frame.volume_positions_m.empty() && std::none_of(frame.volume_positions_m.begin(), frame.volume_positions_m.end(),
                                                           [](const std::vector<float>& body) { return body.empty(); });
}

namespace {

void EncodeSurfaceContact(const sim::FrameSurfaceContact& contact, const SceneTopology& topology, bool in_volume, v1::SurfaceContact& out) {
  const bool is_edge_edge = contact.kind == sim::SurfaceContactKind::kEdgeEdge;
  out.set_kind(is_edge_edge ? v1::SURFACE_CONTACT_KIND_EDGE_EDGE : v1::SURFACE_CONTACT_KIND_VERTEX_TRIANGLE);
  out.set_body_a(contact.body_a);
  out.set_body_b(contact.body_b);
  const size_t of_a = is_edge_edge ? 2 : 1;
  for (size_t i = 0; i < contact.vertices.size(); ++i) {
    const uint32_t body = i < of_a ? contact.body_a : contact.body_b;
    out.add_vertices(in_volume ? topology.world->bodies[body]->surface_vertices[contact.vertices[i]] : ToNumber(contact.vertices[i]));
  }
  EncodeVec3(contact.point_a_m.cast<double>(), *out.mutable_point_a_m());
  EncodeVec3(contact.point_b_m.cast<double>(), *out.mutable_point_b_m());
  EncodeVec3(contact.normal.cast<double>(), *out.mutable_normal());
  out.set_distance_m(contact.distance_m);
  EncodeVec3(contact.force_n.cast<double>(), *out.mutable_force_n());
}

void EncodePlace(const sim::FrameNurbsPlace& place, v1::NurbsPlace& out) {
  out.set_patch(place.patch);
  out.set_u(place.u);
  out.set_v(place.v);
  EncodeVec3(place.point_m, *out.mutable_point_m());
}

void EncodeContactStatistics(const sim::FrameContactStatistics& statistics, bool intersections_checked, v1::ContactStats& out) {
  out.set_contact_count(statistics.contact_count);
  out.set_acting_count(statistics.acting_count);
  out.set_detection_count(statistics.detection_count);
  out.set_filter_rounds(statistics.filter_rounds);
  out.set_filtered_vertices(statistics.filtered_vertices);
  out.set_truncated_vertices(statistics.truncated_vertices);
  out.set_intersection_count(statistics.intersection_count);
  out.set_intersections_checked(intersections_checked);
  out.set_detect_ms(statistics.detect_ms);
  out.set_filter_ms(statistics.filter_ms);
  out.set_check_ms(statistics.check_ms);
  out.set_self_search_count(statistics.self_searches);
  out.set_listed_search_count(statistics.listed_searches);
  out.set_renewed_list_count(statistics.renewed_lists);
}

/// [body] whether its contacts are wanted; empty: all.
std::vector<bool> WantedBodies(const SceneTopology& topology, const FrameOptions& options) {
  std::vector<bool> wanted;
  for (size_t b = 0; !options.contact_bodies.empty() && b < topology.world->bodies.size(); ++b) {
    const uint32_t parent = topology.parents[b];
    wanted.push_back((parent != sim::kNoSlot && wanted[parent]) || options.contact_bodies.contains(topology.world->bodies[b]->name));
  }
  return wanted;
}

/// `Message`: v1::ToolState or v1::LocalModel.
template <typename Message>
void EncodeActivities(const sim::FrameTool& tool, Message& out) {
  if (tool.is_touching) out.add_activities(v1::TOOL_ACTIVITY_TOUCHING);
  if (tool.is_grasping) out.add_activities(v1::TOOL_ACTIVITY_GRASPING);
  if (tool.is_cutting) out.add_activities(v1::TOOL_ACTIVITY_CUTTING);
  if (tool.is_blocked) out.add_activities(v1::TOOL_ACTIVITY_BLOCKED);
  if (tool.is_expired) out.add_activities(v1::TOOL_ACTIVITY_COMMAND_EXPIRED);
}

}  // namespace

void EncodeFrame(const sim::Frame& frame, const SceneTopology& topology, const FrameStatus& status, const FrameOptions& options,
                 uint64_t dropped, v1::Frame& out) {
  out.Clear();
  out.set_step(frame.step);
  out.set_sim_time_s(frame.sim_time_s);
  out.set_server_time_us(frame.server_time_us);
  out.set_state_hash(frame.state_hash);
  out.set_topology_version(frame.topology_version);
  out.set_dropped(dropped);
  out.set_state(status.state);
  out.set_failure(status.failure);

  const std::vector<std::vector<float>>& positions = options.with_volume ? frame.volume_positions_m : frame.surface_positions_m;
  for (size_t b = 0; b < positions.size(); ++b) {
    v1::BodyFrame& body = *out.add_bodies();
    if (b < frame.kept_pressures_pa.size() && frame.kept_pressures_pa[b]) body.set_pressure_pa(*frame.kept_pressures_pa[b]);
    if (options.with_nurbs && b < frame.nurbs.poses.size() && frame.nurbs.poses[b]) {
      EncodePose(*frame.nurbs.poses[b], *body.mutable_pose());
      continue;
    }
    if (options.with_nurbs && b < frame.nurbs.control_m.size() && !frame.nurbs.control_m[b].empty()) {
      EncodePositions(frame.nurbs.control_m[b], options.positions, body, {});
      continue;
    }
    const std::span<const uint32_t> places =
        options.with_volume ? std::span<const uint32_t>() : std::span<const uint32_t>(topology.world->bodies[b]->surface_vertices.values());
    EncodePositions(positions[b], options.positions, body, places);
  }

  for (const sim::FrameSupport& support : frame.nurbs.supports) {
    v1::SupportState& s = *out.add_supports();
    EncodeVec3(support.force_n, *s.mutable_force_n());
    EncodeVec3(support.torque_n_m, *s.mutable_torque_n_m());
    EncodeVec3(support.point_m, *s.mutable_point_m());
    s.set_is_released(support.is_released);
  }
  for (const sim::FrameJoint& joint : frame.joints) {
    v1::JointState& j = *out.add_joints();
    j.set_position(joint.position);
    j.set_effort(joint.effort);
    EncodeVec3(joint.force_n, *j.mutable_force_n());
    EncodeVec3(joint.torque_n_m, *j.mutable_torque_n_m());
    EncodeVec3(joint.point_m, *j.mutable_point_m());
    EncodeVec3(joint.point_a_m, *j.mutable_point_a_m());
    EncodeVec3(joint.axis, *j.mutable_axis());
    j.set_gap_m(joint.gap_m);
    j.set_gap_rad(joint.gap_rad);
    j.set_is_broken(joint.is_broken);
  }
  for (const sim::FrameClip& clip : frame.clips) {
    v1::ClipState& c = *out.add_clips();
    EncodePose({clip.position_m, clip.rotation}, *c.mutable_pose());
    c.set_length_m(clip.length_m);
  }
  for (const sim::FrameStitch& stitch : frame.stitches) {
    for (const Eigen::Vector3d& point_m : {stitch.point_a_m, stitch.point_b_m}) {
      for (const double x : point_m) out.add_stitches_m(static_cast<float>(x));
    }
  }
  for (const sim::FrameMarker& marker : frame.markers) {
    v1::MarkerState& m = *out.add_markers();
    EncodeVec3(marker.position_m, *m.mutable_position_m());
    m.set_body_index(marker.body_index);
    m.set_is_released(marker.is_released);
  }

  if (options.with_contacts) {
    const std::vector<bool> wanted = WantedBodies(topology, options);
    const auto is_wanted = [&wanted](uint32_t body) { return wanted.empty() || wanted[body]; };
    for (size_t i = 0; i < frame.surface_contacts.size(); ++i) {
      const sim::FrameSurfaceContact& contact = frame.surface_contacts[i];
      if (!is_wanted(contact.body_a) && !is_wanted(contact.body_b)) continue;
      v1::SurfaceContact& c = *out.add_surface_contacts();
      EncodeSurfaceContact(contact, topology, options.with_volume, c);
      if (i >= frame.nurbs.surface_places.size()) continue;
      const auto& [of_a, of_b] = frame.nurbs.surface_places[i];
      if (of_a) EncodePlace(*of_a, *c.mutable_place_a());
      if (of_b) EncodePlace(*of_b, *c.mutable_place_b());
    }
    for (size_t i = 0; i < frame.contacts.size(); ++i) {
      const sim::FrameContact& contact = frame.contacts[i];
      if (!is_wanted(contact.body_index)) continue;
      v1::Contact& c = *out.add_contacts();
      c.set_tool_index(contact.tool_index);
      c.set_body_index(contact.body_index);
      EncodeVec3(contact.point_m.cast<double>(), *c.mutable_point_m());
      EncodeVec3(contact.normal.cast<double>(), *c.mutable_normal());
      c.set_separation_m(contact.separation_m);
      EncodeVec3(contact.force_n.cast<double>(), *c.mutable_force_n());
      if (i < frame.nurbs.places.size() && frame.nurbs.places[i]) EncodePlace(*frame.nurbs.places[i], *c.mutable_place());
    }
  }
  if (options.with_tools) {
    for (size_t t = 0; t < frame.tools.size(); ++t) {
      const sim::FrameTool& tool = frame.tools[t];
      v1::ToolState& s = *out.add_tools();
      EncodePose(tool.pose, *s.mutable_pose());
      EncodePose(tool.device_pose, *s.mutable_device_pose());
      EncodeVec3(tool.force_n, *s.mutable_force_n());
      EncodeVec3(tool.torque_n_m, *s.mutable_torque_n_m());
      s.set_operated(t < status.operated.size() && status.operated[t]);
      s.set_contact_count(tool.contact_count);
      s.set_jaw_angle_rad(tool.jaw_angle_rad);
      EncodeActivities(tool, s);
      s.set_blocked_m(tool.blocked_m);
      s.set_grasped_vertices(tool.grasped_vertices);
      s.set_grasp_force_n(tool.grasp_force_n);
      if (tool.grasped_vertices > 0) {
        s.set_grasped_body(tool.grasped_body);
        EncodeVec3(tool.grasp_center_m, *s.mutable_grasp_center_m());
      }
      s.set_removed_mass_kg(tool.removed_mass_kg);
    }
  }

  v1::StepStats& stats = *out.mutable_stats();
  stats.set_step_ms(frame.step_ms);
  for (size_t i = 0; i < sim::kStageNames.size(); ++i) {
    v1::StageTime& stage = *stats.add_stages();
    stage.set_stage(std::string(sim::kStageNames[i]));
    stage.set_ms(frame.stage_ms[i]);
  }
  stats.set_steps_per_s(status.steps_per_s);
  stats.set_overruns(status.overruns);
  stats.set_kinetic_energy_j(frame.kinetic_energy_j);
  if (frame.elastic_energy_j) stats.set_elastic_energy_j(*frame.elastic_energy_j);
  stats.set_max_speed_m_per_s(frame.max_speed_m_per_s);
  stats.set_inverted_tets(frame.inverted_tets);
  stats.set_sweeps(frame.sweeps);
  stats.set_max_penetration_m(frame.max_penetration_m);
  EncodeContactStatistics(frame.contact_statistics, topology.statics->checks_intersections, *stats.mutable_contact());
}

void EncodeAttached(const sim::ToolDescription& tool, v1::Attached& out) {
  const sim::InstrumentDescription& instrument = tool.instrument;
  out.set_radius_m(tool.radius_m);
  out.set_length_m(tool.length_m);
  out.set_kind(scene::EncodeInstrumentKind(instrument.kind));
  scene::EncodeInstrumentTraits(instrument.traits(), *out.mutable_traits());
  out.set_max_jaw_angle_rad(instrument.traits().has_jaws ? instrument.max_jaw_angle_rad : 0);
  out.set_max_power_w(instrument.traits().has_power ? instrument.max_power_w : 0);
}

void EncodeLocalModel(const sim::LocalModel& model, const sim::FrameTool& tool, v1::LocalModel& out) {
  out.Clear();
  out.set_step(model.step);
  out.set_sim_time_s(model.sim_time_s);
  out.set_server_time_us(model.server_time_us);
  out.set_pose_sequence(model.pose_sequence);
  out.set_station_time_us(model.station_time_us);
  EncodePose(model.pose_at_build, *out.mutable_pose_at_build());
  const int count = std::clamp(model.constraint_count, 0, sim::kMaxLocalConstraints);
  for (int i = 0; i < count; ++i) {
    const sim::LocalConstraint& constraint = model.constraints[static_cast<size_t>(i)];
    v1::ContactConstraint& c = *out.add_constraints();
    EncodeVec3(constraint.arm_T_m, *c.mutable_arm_m());
    EncodeVec3(constraint.normal_W, *c.mutable_normal());
    if (constraint.is_curved()) c.mutable_curvature_per_m()->Assign(constraint.curvature_per_m.begin(), constraint.curvature_per_m.end());
    c.set_rest_penetration_m(constraint.rest_penetration_m);
    c.set_stiffness_n_per_m(constraint.stiffness_n_per_m);
    c.set_friction(constraint.friction);
    c.set_damping_n_s_per_m(constraint.damping_n_s_per_m);
  }
  out.set_validity_radius_m(model.validity_radius_m);
  out.set_blend_time_s(model.blend_time_s);
  EncodeVec3(model.force_n, *out.mutable_force_n());
  EncodeVec3(model.torque_n_m, *out.mutable_torque_n_m());
  EncodeActivities(tool, out);
  out.set_jaw_angle_rad(tool.jaw_angle_rad);
  out.set_grasp_force_n(tool.grasp_force_n);
  out.set_blocked_m(tool.blocked_m);
  out.set_removed_mass_kg(tool.removed_mass_kg);
}

}  // namespace palpate::server
