#include "server/api/encode.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace palpate::server {
namespace {

static_assert(std::endian::native == std::endian::little, "positions are copied as little-endian");

template <typename T>
void AppendLittleEndian(const T* values, size_t count, std::string& out) {
  out.append(reinterpret_cast<const char*>(values), count * sizeof(T));
}

constexpr int kMaxContactBodies = 1024;

v1::BodyTopology TopologyHead(const sim::BodyDescription& body) {
  v1::BodyTopology out;
  out.set_name(body.name);
  out.mutable_color()->set_r(body.color.x());
  out.mutable_color()->set_g(body.color.y());
  out.mutable_color()->set_b(body.color.z());
  return out;
}

v1::ObstacleSpec EncodeObstacle(const sim::ObstacleDescription& obstacle) {
  v1::ObstacleSpec out;
  out.set_name(obstacle.name);
  if (const auto* plane = std::get_if<sim::PlaneShape>(&obstacle.shape)) {
    EncodeVec3(plane->point_m, *out.mutable_plane()->mutable_point_m());
    EncodeVec3(plane->normal, *out.mutable_plane()->mutable_normal());
  } else if (const auto* sphere = std::get_if<sim::SphereShape>(&obstacle.shape)) {
    EncodeVec3(sphere->center_m, *out.mutable_sphere()->mutable_center_m());
    out.mutable_sphere()->set_radius_m(sphere->radius_m);
  } else if (const auto* capsule = std::get_if<sim::CapsuleShape>(&obstacle.shape)) {
    EncodeVec3(capsule->end0_m, *out.mutable_capsule()->mutable_end0_m());
    EncodeVec3(capsule->end1_m, *out.mutable_capsule()->mutable_end1_m());
    out.mutable_capsule()->set_radius_m(capsule->radius_m);
  }
  return out;
}

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

std::shared_ptr<const SceneTopology> BuildTopology(const sim::SceneDescription& description, std::span<const sim::BoundarySurface> surfaces,
                                                   uint64_t version) {
  auto out = std::make_shared<SceneTopology>();
  out->version = version;
  for (size_t b = 0; b < description.bodies.size(); ++b) {
    const sim::BodyDescription& body = description.bodies[b];
    const sim::BoundarySurface& surface = surfaces[b];

    v1::BodyTopology on_surface = TopologyHead(body);
    on_surface.set_vertex_count(static_cast<uint32_t>(surface.vertices.size()));
    v1::BodyTopology in_volume = TopologyHead(body);
    in_volume.set_vertex_count(static_cast<uint32_t>(body.mesh.vertices.size()));
    for (const std::array<uint32_t, 3>& triangle : surface.triangles) {
      for (const uint32_t v : triangle) {
        on_surface.add_triangles(v);
        in_volume.add_triangles(surface.vertices[v]);
      }
    }
    for (const std::array<uint32_t, 4>& tet : body.mesh.tets) {
      for (const uint32_t v : tet) in_volume.add_tets(v);
    }
    for (const uint32_t fixed : body.fixed_vertices) {
      in_volume.add_fixed(fixed);
      const auto at = std::lower_bound(surface.vertices.begin(), surface.vertices.end(), fixed);
      if (at != surface.vertices.end() && *at == fixed) on_surface.add_fixed(static_cast<uint32_t>(at - surface.vertices.begin()));
    }
    out->surface_bodies.push_back(std::move(on_surface));
    out->volume_bodies.push_back(std::move(in_volume));
  }
  for (const sim::ToolDescription& tool : description.tools) {
    v1::ToolShape shape;
    shape.set_name(tool.name);
    shape.set_radius_m(tool.radius_m);
    shape.set_length_m(tool.length_m);
    out->tools.push_back(std::move(shape));
  }
  for (const sim::BoundarySurface& surface : surfaces) out->surface_vertices.push_back(surface.vertices);
  out->checks_intersections = description.contact.check_intersections;
  for (const sim::ObstacleDescription& obstacle : description.obstacles) out->obstacles.push_back(EncodeObstacle(obstacle));
  EncodeVec3(description.gravity_m_per_s2, out->gravity_m_per_s2);
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
  if (request.contact_bodies_size() > kMaxContactBodies) {
    return absl::InvalidArgumentError(
        absl::StrCat("contact_bodies: ", request.contact_bodies_size(), " entries are outside [0, ", kMaxContactBodies, "]"));
  }
  if (!request.contact_bodies().empty()) out.contact_bodies.assign(topology.surface_bodies.size(), false);
  for (int i = 0; i < request.contact_bodies_size(); ++i) {
    bool is_known = false;
    for (size_t b = 0; b < topology.surface_bodies.size(); ++b) {
      if (topology.surface_bodies[b].name() != request.contact_bodies(i)) continue;
      out.contact_bodies[b] = true;
      is_known = true;
    }
    if (!is_known)
      return absl::NotFoundError(absl::StrCat("contact_bodies[", i, "]: the scene has no body \"", request.contact_bodies(i), "\""));
  }
  return out;
}

double MaxRateFromProto(const v1::WatchRequest& request) { return request.has_max_rate_hz() ? request.max_rate_hz() : 60; }

void EncodePositions(std::span<const float> positions_m, v1::PositionEncoding encoding, v1::BodyFrame& out) {
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
  for (size_t i = 0; i + 2 < positions_m.size(); i += 3) {
    const Eigen::Array3d p(positions_m[i], positions_m[i + 1], positions_m[i + 2]);
    low = i == 0 ? p : low.min(p).eval();
    high = i == 0 ? p : high.max(p).eval();
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
    out.add_vertices(in_volume ? topology.surface_vertices[body][contact.vertices[i]] : contact.vertices[i]);
  }
  EncodeVec3(contact.point_a_m.cast<double>(), *out.mutable_point_a_m());
  EncodeVec3(contact.point_b_m.cast<double>(), *out.mutable_point_b_m());
  EncodeVec3(contact.normal.cast<double>(), *out.mutable_normal());
  out.set_distance_m(contact.distance_m);
  EncodeVec3(contact.force_n.cast<double>(), *out.mutable_force_n());
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
  for (const std::vector<float>& body : positions) EncodePositions(body, options.positions, *out.add_bodies());

  if (options.with_contacts) {
    const auto is_wanted = [&](uint32_t body) {
      return options.contact_bodies.empty() || (body < options.contact_bodies.size() && options.contact_bodies[body]);
    };
    for (const sim::FrameSurfaceContact& contact : frame.surface_contacts) {
      if (!is_wanted(contact.body_a) && !is_wanted(contact.body_b)) continue;
      EncodeSurfaceContact(contact, topology, options.with_volume, *out.add_surface_contacts());
    }
    for (const sim::FrameContact& contact : frame.contacts) {
      if (!is_wanted(contact.body_index)) continue;
      v1::Contact& c = *out.add_contacts();
      c.set_tool_index(contact.tool_index);
      c.set_body_index(contact.body_index);
      EncodeVec3(contact.point_m.cast<double>(), *c.mutable_point_m());
      EncodeVec3(contact.normal.cast<double>(), *c.mutable_normal());
      c.set_separation_m(contact.separation_m);
      EncodeVec3(contact.force_n.cast<double>(), *c.mutable_force_n());
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
  stats.set_max_speed_m_per_s(frame.max_speed_m_per_s);
  stats.set_inverted_tets(frame.inverted_tets);
  stats.set_max_penetration_m(frame.max_penetration_m);
  EncodeContactStatistics(frame.contact_statistics, topology.checks_intersections, *stats.mutable_contact());
}

void EncodeTopology(const SceneTopology& topology, bool with_volume, v1::Keyframe& out) {
  out.set_topology_version(topology.version);
  for (const v1::BodyTopology& body : with_volume ? topology.volume_bodies : topology.surface_bodies) *out.add_bodies() = body;
  for (const v1::ToolShape& tool : topology.tools) *out.add_tools() = tool;
  for (const v1::ObstacleSpec& obstacle : topology.obstacles) *out.add_obstacles() = obstacle;
  *out.mutable_gravity_m_per_s2() = topology.gravity_m_per_s2;
}

void EncodeLocalModel(const sim::LocalModel& model, v1::LocalModel& out) {
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
    c.set_rest_penetration_m(constraint.rest_penetration_m);
    c.set_stiffness_n_per_m(constraint.stiffness_n_per_m);
    c.set_friction(constraint.friction);
    c.set_damping_n_s_per_m(constraint.damping_n_s_per_m);
  }
  out.set_validity_radius_m(model.validity_radius_m);
  out.set_blend_time_s(model.blend_time_s);
  EncodeVec3(model.force_n, *out.mutable_force_n());
  EncodeVec3(model.torque_n_m, *out.mutable_torque_n_m());
}

}  // namespace palpate::server
