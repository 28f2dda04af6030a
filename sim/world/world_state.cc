#include "sim/world/world_state.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "sim/scene/description_state.h"

namespace palpate::sim {

// --- topology and frames, field by field

template <typename Archive>
void VisitState(Archive& archive, BodyArrays::SurfaceZone& value) {
  auto& [name, color, is_interior] = value;
  archive(name, color, is_interior);
}

template <typename Archive>
void VisitState(Archive& archive, BodyArrays& value) {
  auto& [name, parent, surface_vertices, surface_triangles, triangle_zones, vertex_slot_count, tets, fixed_vertices, surface_zones,
         texture_coordinates, has_texture_corners, texture_corners, chart_zones, surface_hash, volume_hash] = value;
  archive.Enter("BodyArrays");
  archive(name, parent, surface_vertices, surface_triangles, triangle_zones, vertex_slot_count, tets, fixed_vertices, surface_zones,
          texture_coordinates, has_texture_corners, texture_corners, chart_zones, surface_hash, volume_hash);
}

template <typename Archive>
void VisitState(Archive& archive, BodyArraysChange& value) {
  auto& [body, triangles, tets, fixed_changed, texture_places, texture_vertices] = value;
  archive(body, triangles, tets, fixed_changed, texture_places, texture_vertices);
}

template <typename Archive>
void VisitState(Archive& archive, FrameContact& value) {
  auto& [tool, body, point, normal, separation, force] = value;
  archive(tool, body, point, normal, separation, force);
}

template <typename Archive>
void VisitState(Archive& archive, FrameSurfaceContact& value) {
  auto& [kind, body_a, body_b, vertices, point_a, point_b, normal, distance, force] = value;
  archive(kind, body_a, body_b, vertices, point_a, point_b, normal, distance, force);
}

template <typename Archive>
void VisitState(Archive& archive, FrameContactStatistics& value) {
  // How near pairs were found is no part of the state.
  [[maybe_unused]] auto& [contacts, acting, detections, rounds, filtered, truncated, intersections, detect_ms, filter_ms, check_ms,
                          self_searches, listed_searches, renewed_lists] = value;
  archive(contacts, acting, detections, rounds, filtered, truncated, intersections, detect_ms, filter_ms, check_ms);
}

template <typename Archive>
void VisitState(Archive& archive, FrameTool& value) {
  auto& [pose, device_pose, force, torque, contact_count, jaw_angle, is_touching, is_grasping, is_cutting, is_blocked, is_expired, blocked,
         grasped_vertices, grasped_body, grasp_center, grasp_force, removed_mass] = value;
  archive(pose, device_pose, force, torque, contact_count, jaw_angle, is_touching, is_grasping, is_cutting, is_blocked, is_expired, blocked,
          grasped_vertices, grasped_body, grasp_center, grasp_force, removed_mass);
}

template <typename Archive>
void VisitState(Archive& archive, FrameMarker& value) {
  auto& [position, body, is_released] = value;
  archive(position, body, is_released);
}

template <typename Archive>
void VisitState(Archive& archive, LocalConstraint& value) {
  [[maybe_unused]] auto& [arm, normal, penetration, stiffness, friction, damping, curvature] = value;  // see VisitFrame
  archive(arm, normal, penetration, stiffness, friction, damping);
}

template <typename Archive>
void VisitState(Archive& archive, LocalModel& value) {
  auto& [step, sim_time, server_time, pose_sequence, station_time, pose, count, constraints, validity_radius, blend_time, force, torque] =
      value;
  archive(step, sim_time, server_time, pose_sequence, station_time, pose, count, validity_radius, blend_time, force, torque);
  archive.Check(count >= 0 && count <= kMaxLocalConstraints, "a local model has too many constraints");
  for (int i = 0; i < count && archive.ok(); ++i) archive(constraints[static_cast<size_t>(i)]);
}

template <typename Archive>
void VisitState(Archive& archive, FrameNurbsPlace& value) {
  auto& [patch, u, v, point] = value;
  archive(patch, u, v, point);
}

template <typename Archive>
void VisitState(Archive& archive, FrameNurbs& value) {
  auto& [poses, control, places, surface_places, supports] = value;
  archive.Enter("FrameNurbs");
  archive(poses, control, places, surface_places, supports);
}

/// But for `topology`, which is in a section of its own, and what only frames with exact surfaces have.
template <typename Archive>
void VisitState(Archive& archive, Frame& value) {
  [[maybe_unused]] auto& [step, sim_time, server_time, state_hash, topology_version, topology, surface_positions, volume_positions,
                          kept_pressures, contacts, surface_contacts, statistics, tools, nurbs, markers, joints, clips, stitches,
                          local_models, step_ms, stage_ms, kinetic_energy, elastic_energy, max_speed, inverted_tets, sweeps,
                          max_penetration] = value;
  archive.Enter("Frame");
  archive(step, sim_time, server_time, state_hash, topology_version, surface_positions, kept_pressures, contacts, surface_contacts,
          statistics, tools, markers, joints, clips, stitches, local_models, step_ms, stage_ms, kinetic_energy, elastic_energy, max_speed,
          inverted_tets, sweeps, max_penetration);
}

template <typename Archive>
void VisitState(Archive& archive, WorldStateInfo& value) {
  auto& [description_hash, step, sim_time, state_hash, topology_version, device, driver] = value;
  archive.Enter("WorldStateInfo");
  archive(description_hash, step, sim_time, state_hash, topology_version, device, driver);
}

namespace {

// --- the file

constexpr std::string_view kMagic = "PALPCKPT";
constexpr size_t kSectionCount = std::tuple_size_v<WorldStateSections>;
constexpr std::array<std::string_view, kSectionCount> kSectionNames = {"topology", "frame", "scene", "solver"};

struct Section {
  uint64_t size_bytes = 0;
  uint32_t crc = 0;

  template <typename Archive>
  void VisitState(Archive& archive) {
    archive(size_bytes, crc);
  }
};

/// What stands between the magic and the sections; its own checksum follows it.
struct Head {
  uint16_t major = kWorldStateMajor, minor = kWorldStateMinor;
  uint32_t size_bytes = 0;  // of what follows, without the checksum
};
constexpr size_t kFixedBytes = kMagic.size() + 2 + 2 + 4;

absl::Status NotCheckpoint(absl::string_view what) { return absl::InvalidArgumentError(absl::StrCat("checkpoint: ", what)); }

struct Parsed {
  WorldStateInfo info;
  std::array<Section, kSectionCount> sections;
  std::string_view rest;  // the sections' bytes
};

absl::StatusOr<Parsed> ParseHead(std::string_view bytes) {
  if (bytes.size() < kFixedBytes || !bytes.starts_with(kMagic)) return NotCheckpoint("is none: it does not begin with PALPCKPT");
  StateReader fixed(bytes.substr(kMagic.size(), kFixedBytes - kMagic.size()), "checkpoint: head");
  Head head;
  fixed(head.major, head.minor, head.size_bytes);
  if (head.major != kWorldStateMajor || head.minor > kWorldStateMinor) {
    return NotCheckpoint(absl::StrCat("has version ", head.major, ".", head.minor, ", and this program reads ", kWorldStateMajor, ".0 to ",
                                      kWorldStateMajor, ".", kWorldStateMinor));
  }
  const size_t left = bytes.size() - kFixedBytes;
  if (left < 4 || head.size_bytes > left - 4) return NotCheckpoint(absl::StrCat("ends within its head, after ", bytes.size(), " bytes"));
  const size_t end = kFixedBytes + head.size_bytes;
  StateReader checksum(bytes.substr(end, 4), "checkpoint: head");
  uint32_t crc = 0;
  checksum(crc);
  if (crc != Crc32c(bytes.substr(0, end))) return NotCheckpoint("its head is damaged: the checksum does not match");
  Parsed parsed;
  StateReader reader(bytes.substr(kFixedBytes, head.size_bytes), "checkpoint: head");
  reader(parsed.info, parsed.sections);
  PALPATE_RETURN_IF_ERROR(reader.Finish());
  parsed.rest = bytes.substr(end + 4);
  return parsed;
}

/// The bytes of the sections, if all are there and undamaged.
absl::StatusOr<WorldStateSections> SplitSections(const Parsed& parsed) {
  WorldStateSections sections;
  size_t at = 0;
  for (size_t i = 0; i < kSectionCount; ++i) {
    const absl::string_view name(kSectionNames[i].data(), kSectionNames[i].size());
    const uint64_t size = parsed.sections[i].size_bytes;
    if (size > parsed.rest.size() - at) {
      return NotCheckpoint(absl::StrCat("section ", name, " ends ", size - (parsed.rest.size() - at), " bytes early"));
    }
    sections[i] = parsed.rest.substr(at, size);
    if (Crc32c(sections[i]) != parsed.sections[i].crc) {
      return NotCheckpoint(absl::StrCat("section ", name, " is damaged: the checksum does not match"));
    }
    at += size;
  }
  if (at != parsed.rest.size()) return NotCheckpoint(absl::StrCat(parsed.rest.size() - at, " bytes follow its last section"));
  return sections;
}

// --- what arrays may hold

/// Whether all indices lie within their arrays.
bool IsSound(const BodyArrays& arrays) {
  const auto is_vertex = [&](uint32_t v) { return v < arrays.vertex_slot_count; };
  const auto is_corner = [&](SurfaceSlot s) { return arrays.surface_vertices.contains(s) && arrays.surface_vertices[s] != kNoSlot; };
  if (arrays.triangle_zones.size() != arrays.surface_triangles.size()) return false;
  if (!arrays.texture_coordinates.empty() && arrays.texture_coordinates.size() != arrays.vertex_slot_count) return false;
  if (arrays.has_texture_corners ? arrays.texture_corners.size() != arrays.surface_triangles.size() : !arrays.texture_corners.empty()) {
    return false;
  }
  if (!std::all_of(arrays.chart_zones.begin(), arrays.chart_zones.end(),
                   [&](SurfaceZoneId z) { return z < arrays.surface_zones.size(); })) {
    return false;
  }
  for (const auto& tet : arrays.tets) {
    if (tet != kFreeTet && !std::all_of(tet.begin(), tet.end(), is_vertex)) return false;
  }
  for (size_t t = 0; t < arrays.surface_triangles.size(); ++t) {
    const auto& triangle = arrays.surface_triangles[t];
    if (triangle == kFreeTriangle) continue;
    if (!std::all_of(triangle.begin(), triangle.end(), is_corner) || arrays.triangle_zones[t] >= arrays.surface_zones.size()) return false;
  }
  return std::all_of(arrays.fixed_vertices.begin(), arrays.fixed_vertices.end(), is_vertex) &&
         std::all_of(arrays.surface_vertices.begin(), arrays.surface_vertices.end(),
                     [&](uint32_t v) { return v == kNoSlot || is_vertex(v); });
}

/// Whether a change names what is in the arrays that it led to.
bool IsSound(const BodyArraysChange& change, const WorldTopology& topology) {
  if (change.body >= topology.bodies.size()) return false;
  const BodyArrays& arrays = *topology.bodies[change.body];
  const auto below = [](const std::vector<uint32_t>& values, size_t count) {
    return std::all_of(values.begin(), values.end(), [&](uint32_t v) { return v < count; });
  };
  return below(change.triangles, arrays.surface_triangles.size()) && below(change.tets, arrays.tets.size()) &&
         below(change.texture_vertices, arrays.vertex_slot_count) &&
         std::all_of(change.texture_places.begin(), change.texture_places.end(),
                     [&](SurfaceSlot slot) { return arrays.surface_vertices.contains(slot); });
}

void WriteTopology(const WorldTopology& topology, StateWriter& archive) {
  const auto& [version, bodies, changes, follows] = topology;
  archive.Enter("WorldTopology");
  archive(version, static_cast<uint64_t>(bodies.size()));
  for (const auto& body : bodies) archive(*body);
  archive(changes, follows);
}

absl::StatusOr<std::shared_ptr<const WorldTopology>> ReadTopology(std::string_view bytes) {
  auto topology = std::make_shared<WorldTopology>();
  StateReader archive(bytes, "checkpoint: section topology");
  uint64_t body_count = 0;
  archive.Enter("WorldTopology");
  archive(topology->version, body_count);
  for (uint64_t b = 0; b < body_count && archive.ok(); ++b) {
    auto body = std::make_shared<BodyArrays>();
    archive(*body);
    archive.Check(!archive.ok() || IsSound(*body), "an index of a body is out of range");
    topology->bodies.push_back(std::move(body));
  }
  archive(topology->changes, topology->follows);
  for (const BodyArraysChange& change : topology->changes) archive.Check(IsSound(change, *topology), "a change is out of range");
  PALPATE_RETURN_IF_ERROR(archive.Finish());
  return topology;
}

/// A frame, which begins with its exact surfaces if there are any: frames of other scenes have the bytes that they always had.
template <typename Archive>
void VisitFrame(Archive& archive, bool has_nurbs, Frame& frame) {
  if (has_nurbs) archive(frame.nurbs);
  archive(frame);
  if (!has_nurbs) return;
  for (LocalModel& model : frame.local_models) {
    for (int i = 0; i < model.constraint_count && archive.ok(); ++i) archive(model.constraints[static_cast<size_t>(i)].curvature_per_m);
  }
}

absl::StatusOr<std::shared_ptr<const Frame>> ReadFrame(std::string_view bytes, const std::shared_ptr<const WorldTopology>& topology) {
  auto frame = std::make_shared<Frame>();
  StateReader archive(bytes, "checkpoint: section frame");
  uint32_t tag = 0;
  std::memcpy(&tag, bytes.data(), std::min(sizeof(tag), bytes.size()));
  VisitFrame(archive, tag == StateTag("FrameNurbs"), *frame);
  PALPATE_RETURN_IF_ERROR(archive.Finish());
  const std::vector<std::shared_ptr<const BodyArrays>>& bodies = topology->bodies;
  bool is_sound = frame->topology_version == topology->version && frame->surface_positions_m.size() == bodies.size() &&
                  frame->local_models.size() == frame->tools.size() &&
                  (frame->kept_pressures_pa.empty() || frame->kept_pressures_pa.size() == bodies.size());
  for (size_t b = 0; b < bodies.size() && is_sound; ++b) {
    is_sound = frame->surface_positions_m[b].size() == 3 * bodies[b]->surface_vertices.size();
  }
  for (const FrameContact& contact : frame->contacts) {
    is_sound = is_sound && contact.body_index < bodies.size() &&
               (contact.tool_index == kObstacleContact || contact.tool_index < frame->tools.size());
  }
  for (const FrameSurfaceContact& contact : frame->surface_contacts) {
    is_sound = is_sound && contact.body_a < bodies.size() && contact.body_b < bodies.size();
  }
  for (const FrameMarker& marker : frame->markers) is_sound = is_sound && marker.body_index < bodies.size();
  for (const FrameTool& tool : frame->tools) is_sound = is_sound && (!tool.is_grasping || tool.grasped_body < bodies.size());
  const FrameNurbs& nurbs = frame->nurbs;
  if (!nurbs.poses.empty()) {
    is_sound = is_sound && nurbs.poses.size() == bodies.size() && nurbs.control_m.size() == bodies.size() &&
               nurbs.places.size() == frame->contacts.size() && nurbs.surface_places.size() == frame->surface_contacts.size();
  }
  if (!is_sound) return NotCheckpoint("section frame: it is not of the topology");
  frame->topology = topology;
  frame->volume_positions_m.resize(bodies.size());
  return frame;
}

}  // namespace

bool IsSameTopology(const WorldTopology& a, const WorldTopology& b) {
  if (a.version != b.version || a.bodies.size() != b.bodies.size()) return false;
  StateWriter of_a, of_b;
  WriteTopology(a, of_a);
  WriteTopology(b, of_b);
  return of_a.bytes() == of_b.bytes();
}

std::string EncodeWorldState(const WorldState& state) {
  StateWriter topology;
  WriteTopology(*state.topology, topology);
  StateWriter frame;
  Frame with_nurbs;  // a copy only where it is needed
  if (state.frame->nurbs.poses.empty()) {
    frame(*state.frame);
  } else {
    with_nurbs = *state.frame;
    VisitFrame(frame, true, with_nurbs);
  }
  const std::string topology_bytes = topology.Take();
  const std::string frame_bytes = frame.Take();
  return PackWorldState(state.info, {topology_bytes, frame_bytes, state.scene, state.solver});
}

std::string PackWorldState(const WorldStateInfo& info, const WorldStateSections& sections) {
  std::array<Section, kSectionCount> table;
  size_t size = 0;
  for (size_t i = 0; i < kSectionCount; ++i) {
    table[i] = {sections[i].size(), Crc32c(sections[i])};
    size += sections[i].size();
  }
  StateWriter head;
  head(info, table);
  const std::string head_bytes = head.Take();
  StateWriter out;
  out.Reserve(kFixedBytes + head_bytes.size() + 4 + size);
  out.Bytes(kMagic.data(), kMagic.size());
  out(kWorldStateMajor, kWorldStateMinor, static_cast<uint32_t>(head_bytes.size()));
  out.Bytes(head_bytes.data(), head_bytes.size());
  out(Crc32c(out.bytes()));
  for (const std::string_view section : sections) out.Bytes(section.data(), section.size());
  return out.Take();
}

absl::StatusOr<std::shared_ptr<const WorldState>> DecodeWorldState(std::string_view bytes) {
  PALPATE_ASSIGN_OR_RETURN(const Parsed parsed, ParseHead(bytes));
  PALPATE_ASSIGN_OR_RETURN(const auto sections, SplitSections(parsed));
  auto state = std::make_shared<WorldState>();
  state->info = parsed.info;
  PALPATE_ASSIGN_OR_RETURN(state->topology, ReadTopology(sections[0]));
  PALPATE_ASSIGN_OR_RETURN(state->frame, ReadFrame(sections[1], state->topology));
  state->scene = sections[2];
  state->solver = sections[3];
  return state;
}

absl::StatusOr<WorldStateInfo> ReadWorldStateInfo(std::string_view bytes) {
  PALPATE_ASSIGN_OR_RETURN(Parsed parsed, ParseHead(bytes));
  return std::move(parsed.info);
}

uint64_t HashOfDescription(const SceneDescription& description) {
  StateWriter archive;
  archive(description);
  const std::string bytes = archive.Take();
  uint64_t hash = bytes.size();
  for (size_t at = 0; at < bytes.size(); at += 8) {
    uint64_t word = 0;
    std::memcpy(&word, bytes.data() + at, std::min<size_t>(8, bytes.size() - at));
    hash = MixWord(hash + 0x9e3779b97f4a7c15ULL + word);
  }
  return hash;
}

}  // namespace palpate::sim
