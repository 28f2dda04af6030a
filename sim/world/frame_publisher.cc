#include "sim/world/frame_publisher.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "sim/world/enclosed_volume.h"
#include "sim/world/world_values.h"

namespace palpate::sim {

void FramePublisher::ResetMarkers() {
  markers_.clear();
  for (size_t b = 0; b < description_.bodies.size(); ++b) {
    for (const MarkerDescription& marker : description_.bodies[b].markers) {
      markers_.push_back({marker.position_m, static_cast<uint32_t>(b), false});
    }
  }
}

void FramePublisher::ReleaseMarker(uint32_t marker, uint32_t body) {
  markers_[marker].is_released = true;
  markers_[marker].body_index = body;
}

std::vector<uint32_t> FramePublisher::ListGathered() {
  std::vector<uint32_t> vertices;
  for (const auto& body : bodies_) {
    for (const uint32_t v : body->arrays()->surface_vertices) {
      if (v != kNoSlot) vertices.push_back(ToNumber(body->HandleOf(v)));
    }
  }
  for (size_t b = 0; volume_wanted_ && b < bodies_.size(); ++b) {
    for (uint32_t v = 0; v < bodies_[b]->vertex_slot_count(); ++v) {
      if (bodies_[b]->HandleOf(v) != kNoHandle) vertices.push_back(ToNumber(bodies_[b]->HandleOf(v)));
    }
  }
  // Last, so that scenes without markers read back what they always did: the vertices around markers, each once.
  std::vector<std::pair<const WorldBody*, BodyMarkers::Marker>> markers;
  std::vector<uint32_t> around;
  for (const auto& body : bodies_) {
    for (const BodyMarkers::Marker& marker : body->Markers()) {
      markers.emplace_back(body.get(), marker);
      for (const uint32_t v : marker.vertices) around.push_back(ToNumber(body->HandleOf(v)));
    }
  }
  std::sort(around.begin(), around.end());
  around.erase(std::unique(around.begin(), around.end()), around.end());
  marker_places_.clear();
  for (const auto& [body, marker] : markers) {
    MarkerPlace& place = marker_places_.emplace_back(MarkerPlace{marker.index, {}, marker.weights});
    for (size_t c = 0; c < 4; ++c) {
      const auto at = std::lower_bound(around.begin(), around.end(), ToNumber(body->HandleOf(marker.vertices[c])));
      place.places[c] = static_cast<uint32_t>(at - around.begin());
    }
    markers_[marker.index].body_index = body->index();
  }
  vertices.insert(vertices.end(), around.begin(), around.end());
  volume_gathered_ = volume_wanted_;
  return vertices;
}

/// `gathered_m`: positions of the vertices around markers, in the order of ListGathered.
void FramePublisher::PlaceFrameMarkers(const float* gathered_m) {
  for (const MarkerPlace& place : marker_places_) {
    Eigen::Vector3d& position_m = markers_[place.index].position_m;
    position_m.setZero();
    for (size_t c = 0; c < 4; ++c) {
      position_m += place.weights[c] * Eigen::Map<const Eigen::Vector3f>(gathered_m + 3 * size_t{place.places[c]}).cast<double>();
    }
  }
}

/// Positions in the order of ListGathered; returns where those around markers begin.
const float* FramePublisher::TakePositions(const float* gathered_m, Frame* frame) const {
  const float* at = gathered_m;
  const auto take = [&](float* to) {
    std::copy(at, at + 3, to);
    at += 3;
  };
  for (const auto& body : bodies_) {
    const auto& vertices = body->arrays()->surface_vertices;
    std::vector<float>& positions = frame->surface_positions_m.emplace_back(vertices.size() * 3, 0.0F);
    for (const SurfaceSlot slot : vertices.indices()) {
      if (vertices[slot] != kNoSlot) take(&positions[size_t{3} * ToNumber(slot)]);
    }
  }
  frame->volume_positions_m.resize(bodies_.size());
  for (size_t b = 0; volume_gathered_ && b < bodies_.size(); ++b) {
    std::vector<float>& positions = frame->volume_positions_m[b];
    positions.resize(size_t{bodies_[b]->vertex_slot_count()} * 3);
    for (uint32_t v = 0; v < bodies_[b]->vertex_slot_count(); ++v) {
      if (bodies_[b]->HandleOf(v) != kNoHandle) take(&positions[size_t{v} * 3]);
    }
  }
  return at;
}

void FramePublisher::MeasureKeptPressures(Frame* frame) {
  if (kept_topology_ != topology_) {
    kept_topology_ = topology_;
    kept_at_rest_m3_.clear();
    for (size_t b = 0; b < bodies_.size(); ++b) {
      if (!(bodies_[b]->volume_stiffness_pa() > 0)) continue;
      kept_at_rest_m3_.resize(bodies_.size());
      kept_at_rest_m3_[b] = EnclosedAtRest_m3(*bodies_[b], vertices_);
    }
  }
  frame->kept_pressures_pa.resize(kept_at_rest_m3_.size());
  for (size_t b = 0; b < kept_at_rest_m3_.size(); ++b) {
    if (!(kept_at_rest_m3_[b] > 0)) continue;
    const float* x = frame->surface_positions_m[b].data();
    const double volume_m3 = EnclosedVolume_m3(*bodies_[b]->arrays(), [x](SurfaceSlot slot) {
      const float* place = x + size_t{3} * ToNumber(slot);
      return Eigen::Vector3d(place[0], place[1], place[2]);
    });
    frame->kept_pressures_pa[b] = bodies_[b]->volume_stiffness_pa() * (kept_at_rest_m3_[b] - volume_m3) / kept_at_rest_m3_[b];
  }
}

void FramePublisher::DescribeTool(size_t t, const gpu::TissueStep& step, Frame* frame) const {
  FrameTool& tool = frame->tools[t];
  tool.device_pose = commands_[t].device_pose;
  const ToolState& state = tools_[t];
  tool.pose = state.pose;
  tool.force_n = state.grasp_force_n + state.blade_force_n + state.joint_force_n;
  tool.torque_n_m = state.grasp_torque_n_m + state.blade_torque_n_m + state.joint_torque_n_m;
  tool.jaw_angle_rad = state.jaws.angle_rad();
  for (size_t i = 0; i < state.parts.size(); ++i) {
    const double stopped_m = step.blocked_m[state.first_collider + i];
    tool.blocked_m = std::max(tool.blocked_m, stopped_m);
  }
  tool.blocked_m += state.held_back_m;
  tool.is_grasping = !state.held.empty();
  tool.is_expired = commands_[t].is_energy_expired || commands_[t].is_hold_expired;
  tool.is_cutting = state.is_cutting;
  tool.is_blocked = tool.blocked_m > 0 || state.jaws.is_blocked();
  tool.grasped_vertices = static_cast<uint32_t>(state.held.size());
  if (tool.is_grasping) tool.grasped_body = vertices_.body[state.held[0].handle];
  tool.grasp_center_m = state.grasp_center_m;
  tool.grasp_force_n = state.grasp_force_n.norm();
  tool.removed_mass_kg = state.removed_mass_kg;
}

void FramePublisher::AddContact(const FrameContact& contact, const Eigen::Vector3d& point_m, const Eigen::Vector3d& force_n, Frame* frame) {
  frame->max_penetration_m = std::max(frame->max_penetration_m, -static_cast<double>(contact.separation_m));
  frame->contacts.push_back(contact);
  if (contact.tool_index == kObstacleContact) return;
  FrameTool& tool = frame->tools[contact.tool_index];
  tool.force_n -= force_n;
  tool.torque_n_m -= (point_m - tool.pose.position_m).cross(force_n);
  ++tool.contact_count;
  tool.is_touching = true;
}

/// Of tools and obstacles, by forces and by projection.
void FramePublisher::ListContacts(const gpu::TissueStep& step, Frame* frame) const {
  for (const gpu::ContactReport& report : step.contacts) {
    if (!(report.point.w > 0)) continue;
    FrameContact contact;
    const bool by_tool = report.collider < tool_of_collider_.size();
    contact.tool_index = by_tool ? tool_of_collider_[report.collider] : kObstacleContact;
    contact.body_index = report.collider == 0xffffffffU ? vertices_.body[VertexHandle{report.triangle}] : model_.BodyOf(report.triangle);
    contact.point_m = ToVector(report.point).cast<float>();
    contact.normal = ToVector(report.normal).cast<float>();
    contact.separation_m = report.gap_m;
    contact.force_n = ToVector(report.force).cast<float>();
    AddContact(contact, ToVector(report.point), ToVector(report.force), frame);
    if (frame->nurbs.poses.empty()) continue;
    frame->nurbs.places.push_back(
        report.collider == 0xffffffffU
            ? nurbs_.NearVertex(*frame, contact.body_index, vertices_.slot[VertexHandle{report.triangle}], ToVector(report.point))
            : nurbs_.NearTriangle(*frame, contact.body_index, model_.SlotOf(report.triangle), ToVector(report.point)));
  }
  for (const ProjectedContact& projected : projection_.contacts()) {
    if (!(projected.force_n > 0)) continue;
    FrameContact contact;
    contact.tool_index = tool_of_collider_[projected.collider];
    contact.body_index = vertices_.body[projected.handle];
    contact.point_m = projected.point_m.cast<float>();
    contact.normal = projected.normal.cast<float>();
    contact.separation_m = static_cast<float>(projected.separation_m);
    contact.force_n = (projected.force_n * projected.normal).cast<float>();
    AddContact(contact, projected.point_m, projected.force_n * projected.normal, frame);
    if (!frame->nurbs.poses.empty()) frame->nurbs.places.emplace_back();  // of deformable bodies only
  }
}

/// Of bodies with each other and themselves.
void FramePublisher::ListSurfaceContacts(const gpu::TissueStep& step, Frame* frame) const {
  const auto surface_slot = [&](VertexHandle handle) { return bodies_[vertices_.body[handle]]->SurfaceSlotOf(vertices_.slot[handle]); };
  frame->surface_contacts.reserve(step.surface_contacts.size());
  for (const gpu::SurfaceReport& report : step.surface_contacts) {
    FrameSurfaceContact contact;
    const bool edges = report.kind == PALPATE_EDGE_EDGE;
    contact.kind = edges ? SurfaceContactKind::kEdgeEdge : SurfaceContactKind::kVertexTriangle;
    const std::array<VertexHandle, 4> handles = HandlesOf(report);
    contact.body_a = vertices_.body[handles[0]];
    contact.body_b = vertices_.body[handles[3]];
    for (size_t i = 0; i < 4; ++i) contact.vertices[i] = surface_slot(handles[i]);
    contact.point_a_m = ToVector(report.point_a).cast<float>();
    contact.point_b_m = ToVector(report.point_b).cast<float>();
    contact.normal = ToVector(report.normal).cast<float>();
    contact.distance_m = report.point_a.w;
    contact.force_n = ToVector(report.force).cast<float>();
    frame->surface_contacts.push_back(contact);
    if (frame->nurbs.poses.empty()) continue;
    frame->nurbs.surface_places.push_back(
        {nurbs_.NearVertex(*frame, contact.body_a, vertices_.slot[handles[0]], ToVector(report.point_a)),
         nurbs_.NearVertex(*frame, contact.body_b, vertices_.slot[handles[3]], ToVector(report.point_b))});
  }
  FrameContactStatistics& statistics = frame->contact_statistics;
  statistics.contact_count = step.surface.contacts;
  statistics.acting_count = step.surface.acting;
  statistics.detection_count = step.surface.detections;
  statistics.filter_rounds = step.surface.filter_rounds;
  statistics.filtered_vertices = step.surface.filtered_vertices;
  statistics.truncated_vertices = step.surface.truncated_vertices;
  statistics.intersection_count = step.surface.intersections;
  statistics.self_searches = step.surface.self_searches;
  statistics.listed_searches = step.surface.listed_searches;
  statistics.renewed_lists = step.surface.renewed_lists;
  statistics.detect_ms = step.surface.detect_ms;
  statistics.filter_ms = step.surface.filter_ms;
  statistics.check_ms = step.surface.check_ms;
}

std::shared_ptr<Frame> FramePublisher::Make(const gpu::TissueStep& step, uint64_t step_number, double tools_ms) {
  auto mark = std::chrono::steady_clock::now();
  auto frame = std::make_shared<Frame>();
  frame->step = step_number;
  frame->sim_time_s = static_cast<double>(step_number) * description_.dt_s;
  frame->state_hash = step.hash;
  frame->kinetic_energy_j = step.kinetic_energy_j;
  frame->elastic_energy_j = step.elastic_energy_j;
  frame->max_speed_m_per_s = step.max_speed_m_per_s;
  frame->inverted_tets = step.inverted_tets;
  frame->sweeps = step.sweeps;
  frame->topology_version = topology_->version;
  frame->topology = topology_;
  PlaceFrameMarkers(TakePositions(step.gathered_m.data(), frame.get()));
  MeasureKeptPressures(frame.get());
  nurbs_.Place(step.control_points_m, frame.get());
  for (const gpu::NurbsSupportReport& support : step.nurbs_supports) {
    frame->nurbs.supports.push_back({.force_n = Eigen::Vector3d(support.force_n.data()),
                                     .torque_n_m = Eigen::Vector3d(support.torque_n_m.data()),
                                     .point_m = Eigen::Vector3d(support.point_m.data()),
                                     .is_released = support.is_released});
  }
  frame->markers = markers_;
  frame->tools.resize(description_.tools.size());
  for (size_t t = 0; t < frame->tools.size(); ++t) DescribeTool(t, step, frame.get());
  ListContacts(step, frame.get());
  ListSurfaceContacts(step, frame.get());
  frame->stage_ms[0] = tools_ms;
  frame->stage_ms[1] = step.times.detect_ms;
  frame->stage_ms[2] = step.times.solve_ms;
  frame->stage_ms[3] = step.times.forces_ms;
  frame->stage_ms[4] = step.times.readback_ms;
  frame->server_time_us =
      std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::system_clock::now().time_since_epoch()).count();
  models_.Build(step, frame.get());
  frame->stage_ms[5] = MillisecondsSince(&mark);
  for (const double ms : frame->stage_ms) frame->step_ms += ms;
  return frame;
}

}  // namespace palpate::sim
