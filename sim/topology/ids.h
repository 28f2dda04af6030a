#pragma once

#include <cstdint>

namespace palpate::sim {

/// Names of mesh elements that outlive them: a slot (the index into every per-element array, also on a device) in the low 32 bits and the
/// slot's generation above. Slots are used again, ids never are: an id kept by a tool finds nothing once its element is gone. 0 names
/// nothing.
enum class VertexId : uint64_t {};
enum class TetId : uint64_t {};
enum class TriangleId : uint64_t {};

inline constexpr VertexId kNoVertex{0};
inline constexpr TetId kNoTet{0};
inline constexpr TriangleId kNoTriangle{0};
/// No slot.
inline constexpr uint32_t kNoSlot = 0xffffffffU;

template <typename Id>
constexpr uint32_t SlotOf(Id id) {
  return static_cast<uint32_t>(static_cast<uint64_t>(id));
}
template <typename Id>
constexpr uint32_t GenerationOf(Id id) {
  return static_cast<uint32_t>(static_cast<uint64_t>(id) >> 32);
}
template <typename Id>
constexpr Id MakeId(uint32_t slot, uint32_t generation) {
  return static_cast<Id>(static_cast<uint64_t>(generation) << 32 | slot);
}

/// Zones are numbered from 0 in the order in which they were added; zone 0 always exists.
using TetZoneId = uint16_t;
using SurfaceZoneId = uint16_t;
/// Number of a connected component (of the tets, or of the surface: its virtual vertex); never reused within a mesh, 0 names nothing.
using ComponentId = uint32_t;

}  // namespace palpate::sim
