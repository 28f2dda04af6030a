#include "server/api/topology.h"

#include <algorithm>
#include <array>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "server/api/encode.h"
#include "sim/nurbs/nurbs_body_shape.h"
#include "sim/scene/joint_spec.h"
#include "sim/scene/marker_spec.h"
#include "sim/scene/nurbs_body_spec.h"
#include "sim/scene/nurbs_file.h"
#include "sim/scene/texture_spec.h"
#include "sim/scene/tool_spec.h"

namespace palpate::server {
namespace {

using sim::BodyArrays;
using sim::kFreeTriangle;
using sim::SurfaceSlot;
using SurfaceTriangle = std::array<SurfaceSlot, 3>;
using VolumeTriangle = std::array<uint32_t, 3>;  // vertex slots
using Tet = std::array<uint32_t, 4>;

template <typename T>
T SlotOr(const std::vector<T>& slots, uint32_t slot, T otherwise) {
  return slot < slots.size() ? slots[slot] : otherwise;
}

/// A triangle among the positions of all vertices; a free one stays free.
VolumeTriangle InVolume(const BodyArrays& arrays, const SurfaceTriangle& triangle) {
  if (triangle == kFreeTriangle) return {};
  return {arrays.surface_vertices[triangle[0]], arrays.surface_vertices[triangle[1]], arrays.surface_vertices[triangle[2]]};
}

uint64_t VolumeHashOfTriangle(const BodyArrays& arrays, uint32_t slot) {
  const SurfaceTriangle triangle = SlotOr(arrays.surface_triangles, slot, kFreeTriangle);
  if (triangle == kFreeTriangle) return 0;
  return sim::HashOfTriangle(slot, InVolume(arrays, triangle), SlotOr(arrays.triangle_zones, slot, sim::SurfaceZoneId{0}));
}

uint64_t VolumeHash(const BodyArrays& arrays) {
  uint64_t hash = arrays.volume_hash;
  for (uint32_t slot = 0; slot < arrays.surface_triangles.size(); ++slot) hash += VolumeHashOfTriangle(arrays, slot);
  return hash;
}

/// Parents of the bodies from `first` on. Only pieces have one, and it comes before them.
void AddParents(const sim::WorldTopology& world, size_t first, std::vector<uint32_t>& parents) {
  std::unordered_map<std::string, uint32_t> by_name;
  for (size_t b = 0; b < world.bodies.size(); ++b) {
    const BodyArrays& body = *world.bodies[b];
    if (b >= first) {
      const auto parent = body.parent.empty() ? by_name.end() : by_name.find(body.parent);
      parents.push_back(parent == by_name.end() ? sim::kNoSlot : parent->second);
    }
    by_name.emplace(body.name, static_cast<uint32_t>(b));
  }
}

/// A triangle as a client has it, who holds the surface or the volume.
VolumeTriangle Streamed(const BodyArrays& arrays, const SurfaceTriangle& triangle, bool with_volume) {
  if (with_volume) return InVolume(arrays, triangle);
  return {ToNumber(triangle[0]), ToNumber(triangle[1]), ToNumber(triangle[2])};
}

uint32_t VertexAt(const BodyArrays& arrays, SurfaceSlot slot) {
  return arrays.surface_vertices.contains(slot) ? arrays.surface_vertices[slot] : sim::kNoSlot;
}

bool IsFixed(const BodyArrays& arrays, SurfaceSlot slot) {
  const uint32_t vertex = VertexAt(arrays, slot);
  return vertex != sim::kNoSlot && std::binary_search(arrays.fixed_vertices.begin(), arrays.fixed_vertices.end(), vertex);
}

bool TouchesFixed(const BodyArrays& arrays, uint32_t triangle_slot) {
  const SurfaceTriangle triangle = SlotOr(arrays.surface_triangles, triangle_slot, kFreeTriangle);
  return triangle != kFreeTriangle && std::any_of(triangle.begin(), triangle.end(), [&](SurfaceSlot v) { return IsFixed(arrays, v); });
}

template <typename Message>
void EncodeFixed(const BodyArrays& arrays, bool with_volume, Message& out) {
  if (with_volume) {
    out.mutable_fixed()->Add(arrays.fixed_vertices.begin(), arrays.fixed_vertices.end());
    return;
  }
  if (arrays.fixed_vertices.empty()) return;
  for (const SurfaceSlot slot : arrays.surface_vertices.indices()) {
    if (IsFixed(arrays, slot)) out.add_fixed(ToNumber(slot));
  }
}

uint32_t PositionCount(const BodyArrays& arrays, bool with_volume) {
  return with_volume ? arrays.vertex_slot_count : static_cast<uint32_t>(arrays.surface_vertices.size());
}

uint64_t MeshHash(const SceneTopology& topology, size_t body, bool with_volume) {
  return with_volume ? topology.volume_hashes[body] : topology.world->bodies[body]->surface_hash;
}

std::array<float, 2> TextureCoordinateAt(const BodyArrays& arrays, uint32_t place, bool with_volume) {
  const uint32_t vertex = with_volume ? place : VertexAt(arrays, SurfaceSlot{place});
  return SlotOr(arrays.texture_coordinates, vertex, std::array<float, 2>{});
}

/// Of the whole body: of all vertices only those on the surface have any.
void EncodeTextureCoordinates(const BodyArrays& arrays, bool with_volume, v1::BodyTopology& out) {
  for (uint32_t place = 0; place < PositionCount(arrays, with_volume); ++place) {
    const std::array<float, 2> value = TextureCoordinateAt(arrays, place, with_volume);
    if (with_volume && value == std::array<float, 2>{}) continue;
    if (with_volume) out.add_texture_vertices(place);
    for (const float coordinate : value) out.add_texture_coordinates(coordinate);
  }
}

template <typename Message>
void EncodeCorners(const sim::TextureCorners& corners, Message& out) {
  for (const auto& [u, v] : corners) {
    out.add_texture_corners(u);
    out.add_texture_corners(v);
  }
}

void EncodeBody(const SceneTopology& topology, size_t b, bool with_volume, bool with_nurbs, v1::BodyTopology& out) {
  const BodyArrays& arrays = *topology.world->bodies[b];
  out.set_name(arrays.name);
  out.set_parent(arrays.parent);
  for (const BodyArrays::SurfaceZone& zone : arrays.surface_zones) {
    v1::SurfaceZone& z = *out.add_surface_zones();
    z.set_name(zone.name);
    z.mutable_color()->set_r(zone.color.x());
    z.mutable_color()->set_g(zone.color.y());
    z.mutable_color()->set_b(zone.color.z());
    z.set_is_interior(zone.is_interior);
  }
  size_t root = b;
  while (topology.parents[root] != sim::kNoSlot) root = topology.parents[root];
  if (root < topology.statics->body_colors.size()) *out.mutable_color() = topology.statics->body_colors[root];
  if (with_nurbs && b < topology.statics->body_nurbs.size() && topology.statics->body_nurbs[b] != nullptr) {
    *out.mutable_nurbs() = *topology.statics->body_nurbs[b];
    return;
  }
  out.set_vertex_count(PositionCount(arrays, with_volume));
  out.mutable_triangles()->Reserve(static_cast<int>(3 * arrays.surface_triangles.size()));
  for (const SurfaceTriangle& triangle : arrays.surface_triangles) {
    for (const uint32_t v : Streamed(arrays, triangle, with_volume)) out.add_triangles(v);
  }
  if (std::any_of(arrays.triangle_zones.begin(), arrays.triangle_zones.end(), [](sim::SurfaceZoneId zone) { return zone != 0; })) {
    out.mutable_triangle_zones()->Add(arrays.triangle_zones.begin(), arrays.triangle_zones.end());
  }
  if (with_volume) {
    out.mutable_tets()->Reserve(static_cast<int>(4 * arrays.tets.size()));
    for (const Tet& tet : arrays.tets) {
      for (const uint32_t v : tet) out.add_tets(v);
    }
  }
  EncodeFixed(arrays, with_volume, out);
  if (arrays.has_texture() && root < topology.statics->body_textures.size()) {
    *out.mutable_texture() = topology.statics->body_textures[root];
    if (arrays.has_texture_corners) {
      for (const sim::TextureCorners& corners : arrays.texture_corners) EncodeCorners(corners, out);
    } else {
      EncodeTextureCoordinates(arrays, with_volume, out);
    }
  }
  out.set_mesh_hash(MeshHash(topology, b, with_volume));
}

void EncodeBodyDelta(const SceneTopology& topology, const BodySlots& change, bool with_volume, v1::BodyDelta& out) {
  const BodyArrays& arrays = *topology.world->bodies[change.body];
  out.set_body_index(change.body);
  out.set_vertex_count(PositionCount(arrays, with_volume));
  out.set_triangle_count(static_cast<uint32_t>(arrays.surface_triangles.size()));
  for (const uint32_t slot : change.triangles) {
    if (slot >= arrays.surface_triangles.size()) continue;  // gone with the end of the array
    out.add_triangle_slots(slot);
    for (const uint32_t v : Streamed(arrays, arrays.surface_triangles[slot], with_volume)) out.add_triangles(v);
    out.add_triangle_zones(SlotOr(arrays.triangle_zones, slot, sim::SurfaceZoneId{0}));
    if (arrays.has_texture_corners) EncodeCorners(arrays.texture_corners[slot], out);
  }
  if (with_volume) {
    out.set_tet_count(static_cast<uint32_t>(arrays.tets.size()));
    for (const uint32_t slot : change.tets) {
      if (slot >= arrays.tets.size()) continue;
      out.add_tet_slots(slot);
      for (const uint32_t v : arrays.tets[slot]) out.add_tets(v);
    }
  }
  const auto add_texture = [&](uint32_t place) {
    out.add_texture_vertices(place);
    for (const float coordinate : TextureCoordinateAt(arrays, place, with_volume)) out.add_texture_coordinates(coordinate);
  };
  for (const uint32_t vertex : change.texture_vertices) {
    if (with_volume) add_texture(vertex);
  }
  for (const SurfaceSlot slot : change.texture_places) {
    if (!with_volume) add_texture(ToNumber(slot));
  }
  if (with_volume ? change.fixed_changed : change.surface_fixed_changed) {
    out.set_fixed_changed(true);
    EncodeFixed(arrays, with_volume, out);
  }
  out.set_mesh_hash(MeshHash(topology, change.body, with_volume));
}

/// Numbers in the messages, which is what their lengths grow with.
size_t KeyframeNumbers(const BodyArrays& arrays, bool with_volume) {
  return 4 * arrays.surface_triangles.size() + (with_volume ? 4 * arrays.tets.size() : 0) +
         (arrays.texture_coordinates.empty() ? 0 : 2 * arrays.surface_vertices.size()) + 6 * arrays.texture_corners.size();
}
size_t DeltaNumbers(const BodyArrays& arrays, const BodySlots& change, bool with_volume) {
  return (arrays.has_texture_corners ? 11 : 5) * change.triangles.size() + (with_volume ? 5 * change.tets.size() : 0) +
         3 * (with_volume ? change.texture_vertices.size() : change.texture_places.size());
}

template <typename Slot>
void SortUnique(std::vector<Slot>& slots) {
  std::sort(slots.begin(), slots.end());
  slots.erase(std::unique(slots.begin(), slots.end()), slots.end());
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

/// Exact surfaces as streams have them; copies of a body share one.
class NurbsEncoder {
 public:
  std::shared_ptr<const v1::NurbsShape> ShapeOf(const sim::BodyDescription& body) {
    if (body.nurbs == nullptr) return nullptr;
    std::shared_ptr<const v1::NurbsShape>& known = known_[body.nurbs.get()];
    if (known == nullptr) {
      auto shape = std::make_shared<v1::NurbsShape>();
      *shape->mutable_object() = scene::NurbsToProto(body.nurbs->object.Describe());
      shape->set_tolerance_m(body.nurbs->tolerance_m);
      shape->set_is_deformable(body.nurbs_shell.has_value());
      known = std::move(shape);
    }
    return known;
  }

 private:
  absl::flat_hash_map<const sim::NurbsBodyShape*, std::shared_ptr<const v1::NurbsShape>> known_;
};

std::shared_ptr<const SceneStatics> BuildStatics(const sim::SceneDescription& description) {
  auto out = std::make_shared<SceneStatics>();
  NurbsEncoder nurbs;
  for (const sim::BodyDescription& body : description.bodies) {
    v1::Color& color = out->body_colors.emplace_back();
    color.set_r(body.color.x());
    color.set_g(body.color.y());
    color.set_b(body.color.z());
    v1::SurfaceTexture& texture = out->body_textures.emplace_back();
    texture.set_pattern(scene::EncodeTexturePattern(body.texture.pattern));
    texture.set_u_period(body.texture.u_period);
    texture.set_by_corner(!body.texture.corners.empty());
    out->body_nurbs.push_back(nurbs.ShapeOf(body));
    if (body.texture.image == nullptr) continue;
    texture.set_image(absl::StrCat("images/", body.texture.image->id));
    if (std::find(out->images.begin(), out->images.end(), body.texture.image) == out->images.end())
      out->images.push_back(body.texture.image);
  }
  for (const sim::ToolDescription& tool : description.tools) out->tools.push_back(EncodeToolShape(tool));
  for (const sim::ObstacleDescription& obstacle : description.obstacles) out->obstacles.push_back(EncodeObstacle(obstacle));
  EncodeVec3(description.gravity_m_per_s2, out->gravity_m_per_s2);
  out->markers = scene::EncodeMarkerInfos(description);
  out->joints = scene::EncodeJointInfos(description);
  out->supports = scene::EncodeSupportInfos(description);
  out->checks_intersections = description.contact.check_intersections;
  return out;
}

std::shared_ptr<SceneTopology> FromScratch(std::shared_ptr<const SceneStatics> statics, std::shared_ptr<const sim::WorldTopology> world) {
  auto out = std::make_shared<SceneTopology>();
  out->version = world->version;
  out->statics = std::move(statics);
  AddParents(*world, 0, out->parents);
  for (const auto& body : world->bodies) out->volume_hashes.push_back(VolumeHash(*body));
  out->world = std::move(world);
  return out;
}

bool Follows(const SceneTopology& before, const sim::WorldTopology& after) {
  return after.follows && after.version == before.version + 1 && after.bodies.size() >= before.world->bodies.size();
}

}  // namespace

std::shared_ptr<const SceneTopology> BuildTopology(const sim::SceneDescription& description,
                                                   std::shared_ptr<const sim::WorldTopology> world) {
  return FromScratch(BuildStatics(description), std::move(world));
}

std::shared_ptr<const SceneTopology> AdvanceTopology(const SceneTopology& before, std::shared_ptr<const sim::WorldTopology> world) {
  if (!Follows(before, *world)) return FromScratch(before.statics, std::move(world));
  auto out = std::make_shared<SceneTopology>();
  out->version = world->version;
  out->statics = before.statics;
  out->parents = before.parents;
  out->volume_hashes = before.volume_hashes;
  const size_t known = before.world->bodies.size();
  for (const sim::BodyArraysChange& change : world->changes) {
    if (change.body >= known) continue;
    const BodyArrays& old_arrays = *before.world->bodies[change.body];
    const BodyArrays& new_arrays = *world->bodies[change.body];
    uint64_t& hash = out->volume_hashes[change.body];
    hash += new_arrays.volume_hash - old_arrays.volume_hash;
    for (const uint32_t slot : change.triangles) hash += VolumeHashOfTriangle(new_arrays, slot) - VolumeHashOfTriangle(old_arrays, slot);
  }
  if (world->bodies.size() > known) AddParents(*world, known, out->parents);
  for (size_t b = known; b < world->bodies.size(); ++b) out->volume_hashes.push_back(VolumeHash(*world->bodies[b]));
  out->world = std::move(world);
  return out;
}

void TopologyHistory::Append(const SceneTopology& before, const SceneTopology& after) {
  Step step;
  step.version = after.version;
  step.body_count = static_cast<uint32_t>(before.world->bodies.size());
  const bool follows = Follows(before, *after.world);
  for (size_t i = 0; follows && i < after.world->changes.size(); ++i) {
    const sim::BodyArraysChange& change = after.world->changes[i];
    if (change.body >= step.body_count) continue;
    const BodyArrays& old_arrays = *before.world->bodies[change.body];
    const BodyArrays& new_arrays = *after.world->bodies[change.body];
    BodySlots slots{change.body,           change.triangles,       change.tets, change.fixed_changed, change.fixed_changed,
                    change.texture_places, change.texture_vertices};
    for (const uint32_t slot : change.triangles) {
      slots.surface_fixed_changed = slots.surface_fixed_changed || TouchesFixed(old_arrays, slot) || TouchesFixed(new_arrays, slot);
    }
    step.bytes += sizeof(BodySlots) + sizeof(uint32_t) * (slots.triangles.size() + slots.tets.size() + slots.texture_places.size() +
                                                          slots.texture_vertices.size());
    step.bodies.push_back(std::move(slots));
  }
  step.bytes += sizeof(Step);
  const std::lock_guard lock(mutex_);
  if (!follows) {
    steps_.clear();
    bytes_ = 0;
    return;
  }
  bytes_ += step.bytes;
  steps_.push_back(std::move(step));
  while (steps_.size() > max_versions_ || bytes_ > kMaxBytes) {
    bytes_ -= steps_.front().bytes;
    steps_.pop_front();
  }
}

std::optional<TopologyChange> TopologyHistory::Between(uint64_t from, uint64_t to) const {
  const std::lock_guard lock(mutex_);
  if (from >= to || steps_.empty() || from + 1 < steps_.front().version || to > steps_.back().version) return std::nullopt;
  const size_t first = static_cast<size_t>(from + 1 - steps_.front().version);
  const size_t last = static_cast<size_t>(to - steps_.front().version);
  TopologyChange out;
  out.from_version = from;
  out.body_count = steps_[first].body_count;
  for (size_t i = first; i <= last; ++i) {
    for (const BodySlots& step : steps_[i].bodies) {
      if (step.body >= out.body_count) continue;
      auto merged = std::find_if(out.bodies.begin(), out.bodies.end(), [&step](const BodySlots& slots) { return slots.body == step.body; });
      if (merged == out.bodies.end()) {
        out.bodies.push_back(step);
        continue;
      }
      merged->triangles.insert(merged->triangles.end(), step.triangles.begin(), step.triangles.end());
      merged->tets.insert(merged->tets.end(), step.tets.begin(), step.tets.end());
      merged->texture_places.insert(merged->texture_places.end(), step.texture_places.begin(), step.texture_places.end());
      merged->texture_vertices.insert(merged->texture_vertices.end(), step.texture_vertices.begin(), step.texture_vertices.end());
      merged->fixed_changed = merged->fixed_changed || step.fixed_changed;
      merged->surface_fixed_changed = merged->surface_fixed_changed || step.surface_fixed_changed;
    }
  }
  std::sort(out.bodies.begin(), out.bodies.end(), [](const BodySlots& a, const BodySlots& b) { return a.body < b.body; });
  for (BodySlots& slots : out.bodies) {
    SortUnique(slots.triangles);
    SortUnique(slots.tets);
    SortUnique(slots.texture_places);
    SortUnique(slots.texture_vertices);
  }
  return out;
}

void EncodeTopology(const SceneTopology& topology, bool with_volume, v1::Keyframe& out, bool with_nurbs) {
  out.set_topology_version(topology.version);
  for (size_t b = 0; b < topology.world->bodies.size(); ++b) EncodeBody(topology, b, with_volume, with_nurbs, *out.add_bodies());
  for (const v1::ToolShape& tool : topology.statics->tools) *out.add_tools() = tool;
  for (const v1::ObstacleSpec& obstacle : topology.statics->obstacles) *out.add_obstacles() = obstacle;
  for (const v1::MarkerInfo& marker : topology.statics->markers) *out.add_markers() = marker;
  for (const v1::JointInfo& joint : topology.statics->joints) *out.add_joints() = joint;
  for (const v1::SupportInfo& support : topology.statics->supports) *out.add_supports() = support;
  *out.mutable_gravity_m_per_s2() = topology.statics->gravity_m_per_s2;
}

bool EncodeDelta(const SceneTopology& topology, const TopologyChange& change, bool with_volume, v1::TopologyDelta& out) {
  // Those of new bodies are in both.
  size_t delta_numbers = 0;
  size_t keyframe_numbers = 0;
  for (const BodySlots& slots : change.bodies) delta_numbers += DeltaNumbers(*topology.world->bodies[slots.body], slots, with_volume);
  for (uint32_t b = 0; b < change.body_count; ++b) keyframe_numbers += KeyframeNumbers(*topology.world->bodies[b], with_volume);
  if (delta_numbers > keyframe_numbers) return false;
  out.Clear();
  out.set_from_version(change.from_version);
  out.set_to_version(topology.version);
  for (const BodySlots& slots : change.bodies) EncodeBodyDelta(topology, slots, with_volume, *out.add_bodies());
  for (size_t b = change.body_count; b < topology.world->bodies.size(); ++b)
    EncodeBody(topology, b, with_volume, /*with_nurbs=*/false, *out.add_new_bodies());
  return true;
}

}  // namespace palpate::server
