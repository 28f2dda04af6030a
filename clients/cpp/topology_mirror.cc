#include "clients/cpp/topology_mirror.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"

namespace palpate::client {
namespace {

/// The finaliser of splitmix64.
uint64_t Mix(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  return z ^ (z >> 31);
}

/// One link of the chain over pairs of numbers.
uint64_t Chain(uint64_t hash, uint32_t low, uint32_t high) { return Mix(hash + 0x9e3779b97f4a7c15ULL + (low | uint64_t{high} << 32)); }

uint64_t HashOfSlot(uint32_t slot, const TopologyMirror::Triangle& triangle, uint32_t zone) {
  return triangle == TopologyMirror::kFreeTriangle ? 0 : HashOfTriangle(slot, triangle, zone);
}
uint64_t HashOfSlot(uint32_t slot, const TopologyMirror::Tet& tet) { return tet == TopologyMirror::kFreeTet ? 0 : HashOfTet(slot, tet); }

/// Sets the length of a triangle array and keeps the hash.
void Resize(size_t count, TopologyMirror::Body& body) {
  for (size_t slot = count; slot < body.triangles.size(); ++slot) {
    body.mesh_hash -= HashOfSlot(static_cast<uint32_t>(slot), body.triangles[slot], body.zones[slot]);
  }
  body.triangles.resize(count, TopologyMirror::kFreeTriangle);
  body.zones.resize(count, 0);
}
void ResizeTets(size_t count, TopologyMirror::Body& body) {
  for (size_t slot = count; slot < body.tets.size(); ++slot) body.mesh_hash -= HashOfSlot(static_cast<uint32_t>(slot), body.tets[slot]);
  body.tets.resize(count, TopologyMirror::kFreeTet);
}

void SetTriangle(uint32_t slot, const TopologyMirror::Triangle& triangle, uint32_t zone, TopologyMirror::Body& body) {
  body.mesh_hash += HashOfSlot(slot, triangle, zone) - HashOfSlot(slot, body.triangles[slot], body.zones[slot]);
  body.triangles[slot] = triangle;
  body.zones[slot] = zone;
}
void SetTet(uint32_t slot, const TopologyMirror::Tet& tet, TopologyMirror::Body& body) {
  body.mesh_hash += HashOfSlot(slot, tet) - HashOfSlot(slot, body.tets[slot]);
  body.tets[slot] = tet;
}

/// Sets the length of the texture coordinates and keeps the hash; gives some of them values, at `places`, or from the first on if there are
/// none.
absl::Status SetTexture(size_t count, const google::protobuf::RepeatedField<uint32_t>& places,
                        const google::protobuf::RepeatedField<float>& values, TopologyMirror::Body& body) {
  for (size_t place = count; place < body.texture_coordinates.size(); ++place) {
    body.mesh_hash -= HashOfTextureCoordinate(static_cast<uint32_t>(place), body.texture_coordinates[place]);
  }
  body.texture_coordinates.resize(count, {});
  for (int i = 0; i < values.size() / 2; ++i) {
    const uint32_t place = places.empty() ? static_cast<uint32_t>(i) : places[i];
    // Adding zero takes the sign off a negative one.
    const std::array<float, 2> value = {values[2 * i] + 0.0F, values[2 * i + 1] + 0.0F};
    if (place >= count) return absl::DataLossError(absl::StrCat("a texture coordinate of ", place, ", which is outside [0, ", count, ")"));
    if (!std::isfinite(value[0]) || !std::isfinite(value[1])) return absl::DataLossError("a texture coordinate is not finite");
    body.mesh_hash += HashOfTextureCoordinate(place, value) - HashOfTextureCoordinate(place, body.texture_coordinates[place]);
    body.texture_coordinates[place] = value;
  }
  return absl::OkStatus();
}

/// Sets the length of the texture coordinates of corners, as many as triangles, and keeps the hash; gives some of them values, at `slots`,
/// or from the first on if there are none.
absl::Status SetTextureCorners(size_t count, const google::protobuf::RepeatedField<uint32_t>* slots,
                               const google::protobuf::RepeatedField<float>& values, TopologyMirror::Body& body) {
  for (size_t slot = count; slot < body.texture_corners.size(); ++slot) {
    body.mesh_hash -= HashOfTextureCorners(static_cast<uint32_t>(slot), body.texture_corners[slot]);
  }
  body.texture_corners.resize(count, {});
  for (int i = 0; i < values.size() / 6; ++i) {
    const uint32_t slot = slots == nullptr ? static_cast<uint32_t>(i) : slots->Get(i);
    TopologyMirror::TextureCorners corners;
    for (int k = 0; k < 6; ++k) {
      const float value = values[6 * i + k] + 0.0F;  // takes the sign off a negative zero
      if (!std::isfinite(value)) return absl::DataLossError("a texture coordinate is not finite");
      corners[static_cast<size_t>(k / 2)][static_cast<size_t>(k % 2)] = value;
    }
    body.mesh_hash += HashOfTextureCorners(slot, corners) - HashOfTextureCorners(slot, body.texture_corners[slot]);
    body.texture_corners[slot] = corners;
  }
  return absl::OkStatus();
}

/// Elements of a flat list of indices.
template <size_t N, typename List>
std::array<uint32_t, N> ElementOf(const List& indices, int element) {
  std::array<uint32_t, N> out;
  for (size_t i = 0; i < N; ++i) out[i] = indices.Get(element * static_cast<int>(N) + static_cast<int>(i));
  return out;
}

absl::Status Broken(const std::string& body, const std::string& what) {
  return absl::DataLossError(absl::StrCat("topology of body \"", body, "\": ", what));
}

absl::Status CheckIndices(const TopologyMirror::Body& body, const google::protobuf::RepeatedField<uint32_t>& indices) {
  const bool is_inside = std::all_of(indices.begin(), indices.end(), [&body](uint32_t index) { return index < body.vertex_count; });
  // Free slots hold zeros, also in a body without a vertex.
  if (is_inside || body.vertex_count == 0) return absl::OkStatus();
  return Broken(body.name, absl::StrCat("an index is outside [0, ", body.vertex_count, ")"));
}

bool HasVertexTexture(const TopologyMirror::Body& body) { return body.has_texture && !body.texture.by_corner(); }

absl::Status CheckHash(const TopologyMirror::Body& body, uint64_t expected) {
  if (body.mesh_hash == expected) return absl::OkStatus();
  return Broken(body.name, absl::StrCat("the arrays have the hash ", absl::Hex(body.mesh_hash, absl::kZeroPad16), ", the server's ",
                                        absl::Hex(expected, absl::kZeroPad16)));
}

}  // namespace

uint64_t HashOfTriangle(uint32_t slot, const TopologyMirror::Triangle& triangle, uint32_t zone) {
  return Chain(Chain(Chain(0, slot, triangle[0]), triangle[1], triangle[2]), zone, 3);
}

uint64_t HashOfTet(uint32_t slot, const TopologyMirror::Tet& tet) {
  return Chain(Chain(Chain(0, slot, tet[0]), tet[1], tet[2]), tet[3], 4);
}

uint64_t HashOfTextureCoordinate(uint32_t place, const std::array<float, 2>& value) {
  if (value[0] == 0 && value[1] == 0) return 0;
  return Chain(Chain(0, place, std::bit_cast<uint32_t>(value[0])), std::bit_cast<uint32_t>(value[1]), 5);
}

uint64_t HashOfTextureCorners(uint32_t slot, const TopologyMirror::TextureCorners& corners) {
  if (corners == TopologyMirror::TextureCorners{}) return 0;
  uint64_t hash = 0;
  uint32_t low = slot;
  for (const auto& [u, v] : corners) {
    hash = Chain(hash, low, std::bit_cast<uint32_t>(u));
    low = std::bit_cast<uint32_t>(v);
  }
  return Chain(hash, low, 6);
}

size_t TopologyMirror::Body::triangle_count() const {
  return triangles.size() - static_cast<size_t>(std::count(triangles.begin(), triangles.end(), kFreeTriangle));
}

size_t TopologyMirror::Body::tet_count() const { return tets.size() - static_cast<size_t>(std::count(tets.begin(), tets.end(), kFreeTet)); }

absl::Status TopologyMirror::Apply(const v1::Keyframe& keyframe) {
  bodies_.clear();
  markers_.clear();
  version_ = keyframe.topology_version();
  for (const v1::MarkerInfo& marker : keyframe.markers()) markers_.push_back({marker.name(), marker.body()});
  for (const v1::BodyTopology& body : keyframe.bodies()) {
    if (absl::Status status = AddBody(body); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status TopologyMirror::Apply(const v1::TopologyDelta& delta) {
  if (delta.from_version() != version_ || delta.to_version() <= version_) {
    return absl::DataLossError(absl::StrCat("a change of topology from version ", delta.from_version(), " to ", delta.to_version(),
                                            " came at version ", version_));
  }
  version_ = delta.to_version();
  for (const v1::BodyDelta& body : delta.bodies()) {
    if (absl::Status status = ApplyBody(body); !status.ok()) return status;
  }
  for (const v1::BodyTopology& body : delta.new_bodies()) {
    if (absl::Status status = AddBody(body); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status TopologyMirror::Check(const v1::Frame& frame) const {
  if (frame.topology_version() != version_) {
    return absl::DataLossError(
        absl::StrCat("frame ", frame.step(), " is of topology version ", frame.topology_version(), ", the arrays are of ", version_));
  }
  if (static_cast<size_t>(frame.bodies_size()) != bodies_.size()) {
    return absl::DataLossError(absl::StrCat("frame ", frame.step(), " has ", frame.bodies_size(), " bodies of ", bodies_.size()));
  }
  if (static_cast<size_t>(frame.markers_size()) != markers_.size()) {
    return absl::DataLossError(absl::StrCat("frame ", frame.step(), " has ", frame.markers_size(), " markers of ", markers_.size()));
  }
  for (const v1::MarkerState& marker : frame.markers()) {
    if (marker.body_index() < bodies_.size()) continue;
    return absl::DataLossError(absl::StrCat("frame ", frame.step(), ": a marker is in body ", marker.body_index(),
                                            ", which is outside [0, ", bodies_.size(), ")"));
  }
  return absl::OkStatus();
}

absl::Status TopologyMirror::AddBody(const v1::BodyTopology& topology) {
  Body& body = bodies_.emplace_back();
  body.name = topology.name();
  body.parent = topology.parent();
  body.vertex_count = topology.vertex_count();
  body.fixed.assign(topology.fixed().begin(), topology.fixed().end());
  const int triangle_count = topology.triangles_size() / 3;
  const bool has_zones = !topology.triangle_zones().empty();
  if (topology.triangles_size() % 3 != 0 || topology.tets_size() % 4 != 0 ||
      (has_zones && topology.triangle_zones_size() != triangle_count)) {
    return Broken(body.name, absl::StrCat(topology.triangles_size(), " numbers of triangles, ", topology.triangle_zones_size(),
                                          " zones and ", topology.tets_size(), " numbers of tets do not fit together"));
  }
  if (absl::Status status = CheckIndices(body, topology.triangles()); !status.ok()) return status;
  if (absl::Status status = CheckIndices(body, topology.tets()); !status.ok()) return status;
  Resize(static_cast<size_t>(triangle_count), body);
  for (int t = 0; t < triangle_count; ++t) {
    SetTriangle(static_cast<uint32_t>(t), ElementOf<3>(topology.triangles(), t), has_zones ? topology.triangle_zones(t) : 0, body);
  }
  ResizeTets(static_cast<size_t>(topology.tets_size() / 4), body);
  for (int t = 0; t < topology.tets_size() / 4; ++t) SetTet(static_cast<uint32_t>(t), ElementOf<4>(topology.tets(), t), body);
  body.has_texture = topology.has_texture();
  body.texture = topology.texture();
  const auto& places = topology.texture_vertices();
  const auto& values = topology.texture_coordinates();
  if ((!body.has_texture && !values.empty()) || values.size() != (places.empty() ? values.size() / 2 : places.size()) * 2) {
    return Broken(body.name, absl::StrCat(values.size(), " numbers of texture coordinates do not fit ", places.size(), " vertices"));
  }
  if (absl::Status status = SetTexture(HasVertexTexture(body) ? body.vertex_count : 0, places, values, body); !status.ok()) {
    return Broken(body.name, std::string(status.message()));
  }
  const bool is_by_corner = body.has_texture && body.texture.by_corner();
  if (topology.texture_corners_size() != (is_by_corner ? 6 * triangle_count : 0)) {
    return Broken(body.name, absl::StrCat(topology.texture_corners_size(), " numbers of texture coordinates do not fit ", triangle_count,
                                          " triangles"));
  }
  if (absl::Status status = SetTextureCorners(is_by_corner ? body.triangles.size() : 0, nullptr, topology.texture_corners(), body);
      !status.ok()) {
    return Broken(body.name, std::string(status.message()));
  }
  return CheckHash(body, topology.mesh_hash());
}

absl::Status TopologyMirror::ApplyBody(const v1::BodyDelta& delta) {
  if (delta.body_index() >= bodies_.size()) {
    return absl::DataLossError(absl::StrCat("a change of body ", delta.body_index(), ", which is outside [0, ", bodies_.size(), ")"));
  }
  Body& body = bodies_[delta.body_index()];
  const int triangles = delta.triangle_slots_size();
  const int tets = delta.tet_slots_size();
  const auto in_range = [](const google::protobuf::RepeatedField<uint32_t>& slots, uint32_t count) {
    return std::all_of(slots.begin(), slots.end(), [count](uint32_t slot) { return slot < count; });
  };
  if (delta.triangles_size() != 3 * triangles || delta.triangle_zones_size() != triangles || delta.tets_size() != 4 * tets ||
      !in_range(delta.triangle_slots(), delta.triangle_count()) || !in_range(delta.tet_slots(), delta.tet_count())) {
    return Broken(body.name, "a change whose slots and contents do not fit together");
  }
  body.vertex_count = delta.vertex_count();
  if (absl::Status status = CheckIndices(body, delta.triangles()); !status.ok()) return status;
  if (absl::Status status = CheckIndices(body, delta.tets()); !status.ok()) return status;
  Resize(delta.triangle_count(), body);
  for (int i = 0; i < triangles; ++i)
    SetTriangle(delta.triangle_slots(i), ElementOf<3>(delta.triangles(), i), delta.triangle_zones(i), body);
  ResizeTets(delta.tet_count(), body);
  for (int i = 0; i < tets; ++i) SetTet(delta.tet_slots(i), ElementOf<4>(delta.tets(), i), body);
  const auto& places = delta.texture_vertices();
  const auto& values = delta.texture_coordinates();
  if ((!body.has_texture && !values.empty()) || values.size() != 2 * places.size()) {
    return Broken(body.name, absl::StrCat(values.size(), " numbers of texture coordinates do not fit ", places.size(), " vertices"));
  }
  if (absl::Status status = SetTexture(HasVertexTexture(body) ? body.vertex_count : 0, places, values, body); !status.ok()) {
    return Broken(body.name, std::string(status.message()));
  }
  const bool is_by_corner = body.has_texture && body.texture.by_corner();
  if (delta.texture_corners_size() != (is_by_corner ? 6 * triangles : 0)) {
    return Broken(body.name,
                  absl::StrCat(delta.texture_corners_size(), " numbers of texture coordinates do not fit ", triangles, " triangles"));
  }
  if (absl::Status status =
          SetTextureCorners(is_by_corner ? body.triangles.size() : 0, &delta.triangle_slots(), delta.texture_corners(), body);
      !status.ok()) {
    return Broken(body.name, std::string(status.message()));
  }
  if (delta.fixed_changed()) body.fixed.assign(delta.fixed().begin(), delta.fixed().end());
  return CheckHash(body, delta.mesh_hash());
}

}  // namespace palpate::client
