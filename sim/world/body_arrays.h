#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <Eigen/Core>

#include "sim/topology/ids.h"
#include "sim/topology/texture_corners.h"
#include "sim/world/indices.h"

namespace palpate::sim {

/// Contents of free slots of BodyArrays.
inline constexpr std::array<SurfaceSlot, 3> kFreeTriangle = {};
inline constexpr std::array<uint32_t, 4> kFreeTet = {};

/// The topology of one body as clients hold it: arrays by slot, in which an edit changes few places.
struct BodyArrays {
  std::string name;
  std::string parent;  ///< of a piece that was cut off: name of the body it came from
  // The surface: places of positions in Frame::surface_positions_m.
  IndexedVector<SurfaceSlot, uint32_t> surface_vertices;      ///< vertex slot of the mesh, kNoSlot: free
  std::vector<std::array<SurfaceSlot, 3>> surface_triangles;  ///< [triangle slot]
  std::vector<SurfaceZoneId> triangle_zones;                  ///< [triangle slot]
  // The volume: places in Frame::volume_positions_m are the vertex slots of the mesh.
  uint32_t vertex_slot_count = 0;
  std::vector<std::array<uint32_t, 4>> tets;  ///< [tet slot] vertex slots
  std::vector<uint32_t> fixed_vertices;       ///< vertex slots, ascending
  struct SurfaceZone {
    std::string name;
    Eigen::Vector3f color;
    bool is_interior = false;  ///< uncovered by cuts
  };
  std::vector<SurfaceZone> surface_zones;
  /// [vertex slot] u v, or empty: the body has no texture coordinates. All corners of triangles have some, but for interior zones; (0, 0)
  /// where there are none. How they are meant is in the TextureDescription of the body that all pieces come from.
  std::vector<std::array<float, 2>> texture_coordinates;
  /// Whether texture coordinates belong to corners of triangles, since there are seams; texture_coordinates is empty then.
  bool has_texture_corners = false;
  std::vector<TextureCorners> texture_corners;  ///< [triangle slot] if there are any; zeros in free slots and in interior zones
  /// [surface zone of the mesh - surface_zones.size()] zone that it is a part of: on the mesh, a vertex has one coordinate a zone, so that
  /// zones with seams are several there.
  std::vector<SurfaceZoneId> chart_zones;
  uint64_t surface_hash =
      0;  ///< sum of HashOfTriangle over live triangles and of the hashes of texture coordinates over surface slots in use
  uint64_t volume_hash = 0;  ///< sum of HashOfTet over live tets and of the hashes of texture coordinates over vertex slots

  bool has_texture() const { return has_texture_corners || !texture_coordinates.empty(); }
  SurfaceZoneId ZoneOnMesh(SurfaceZoneId mesh_zone) const {
    return mesh_zone < surface_zones.size() ? mesh_zone : chart_zones[mesh_zone - surface_zones.size()];
  }
};

/// What an edit changed in the arrays of one body; the new contents are in the arrays of that version.
struct BodyArraysChange {
  uint32_t body = 0;
  /// Slots, ascending: those whose corners or zone differ, and those with a corner whose place now holds another vertex.
  std::vector<uint32_t> triangles;
  std::vector<uint32_t> tets;  ///< slots, ascending
  bool fixed_changed = false;
  std::vector<SurfaceSlot> texture_places;  ///< ascending, whose texture coordinate differs
  std::vector<uint32_t> texture_vertices;   ///< vertex slots likewise
};

/// The arrays of all bodies at one version: immutable, shared; bodies that an edit does not touch are shared between versions.
struct WorldTopology {
  uint64_t version = 1;
  std::vector<std::shared_ptr<const BodyArrays>> bodies;
  /// From the version before to this one; bodies beyond its count are new. Empty for version 1 and after a reset.
  std::vector<BodyArraysChange> changes;
  bool follows = false;  ///< `changes` leads here from version - 1
};

/// The finaliser of splitmix64 (Steele, Lea, Flood 2014): a bijection of 64-bit words, all arithmetic modulo 2^64.
constexpr uint64_t MixWord(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  return z ^ (z >> 31);
}

/// Hashes of one live slot of the arrays, whose sums modulo 2^64 are the hashes of arrays; every client computes the same
/// (docs/streaming.md). A chain h = MixWord(h + 0x9e3779b97f4a7c15 + low + 2^32 high), from h = 0, over pairs (low, high) of 32-bit
/// numbers: triangle (slot, v0), (v1, v2), (zone, 3); tet (slot, v0), (v1, v2), (v3, 4); texture coordinate (place, u), (v, 5) with the
/// bits of the floats, and 0 for (0, 0); texture coordinates of corners (slot, u0), (v0, u1), (v1, u2), (v2, 6), and 0 for zeros.
/// `Corner`: SurfaceSlot, or uint32_t where a client also holds the volume.
template <typename Corner>
constexpr uint64_t HashOfTriangle(uint32_t slot, const std::array<Corner, 3>& corners, uint32_t zone) {
  constexpr uint64_t kGolden = 0x9e3779b97f4a7c15ULL;
  uint64_t h = MixWord(kGolden + (uint64_t{slot} | static_cast<uint64_t>(corners[0]) << 32));
  h = MixWord(h + kGolden + (static_cast<uint64_t>(corners[1]) | static_cast<uint64_t>(corners[2]) << 32));
  return MixWord(h + kGolden + (uint64_t{zone} | uint64_t{3} << 32));
}
constexpr uint64_t HashOfTet(uint32_t slot, const std::array<uint32_t, 4>& vertices) {
  constexpr uint64_t kGolden = 0x9e3779b97f4a7c15ULL;
  uint64_t h = MixWord(kGolden + (uint64_t{slot} | uint64_t{vertices[0]} << 32));
  h = MixWord(h + kGolden + (uint64_t{vertices[1]} | uint64_t{vertices[2]} << 32));
  return MixWord(h + kGolden + (uint64_t{vertices[3]} | uint64_t{4} << 32));
}
/// Precondition: no negative zero. `Place` as `Corner` above.
template <typename Place>
constexpr uint64_t HashOfTextureCoordinate(Place place, const std::array<float, 2>& value) {
  constexpr uint64_t kGolden = 0x9e3779b97f4a7c15ULL;
  if (value[0] == 0 && value[1] == 0) return 0;
  const uint64_t h = MixWord(kGolden + (static_cast<uint64_t>(place) | uint64_t{std::bit_cast<uint32_t>(value[0])} << 32));
  return MixWord(h + kGolden + (uint64_t{std::bit_cast<uint32_t>(value[1])} | uint64_t{5} << 32));
}
/// Precondition: no negative zero.
constexpr uint64_t HashOfTextureCorners(uint32_t slot, const TextureCorners& corners) {
  constexpr uint64_t kGolden = 0x9e3779b97f4a7c15ULL;
  if (corners == TextureCorners{}) return 0;
  uint64_t h = 0;
  uint64_t low = slot;
  for (const auto& [u, v] : corners) {
    h = MixWord(h + kGolden + (low | uint64_t{std::bit_cast<uint32_t>(u)} << 32));
    low = std::bit_cast<uint32_t>(v);
  }
  return MixWord(h + kGolden + (low | uint64_t{6} << 32));
}

}  // namespace palpate::sim
