#pragma once

#include <cstdint>

#include "gpu/base/indexed_vector.h"

namespace palpate::sim {

// Vertices have four numbers, of which no two have one type:
//   uint32_t          slot in the mesh of a body (ClosedMesh, BodyArrays::tets)
//   SurfaceSlot       place in the surface that clients see
//   VertexHandle      vertex of the scene; the solver's model is in this order
//   gpu::SolverSlot   place on the device

/// A vertex of a scene, which keeps it for as long as it lives, whatever becomes of the mesh around it and of the body it belongs to.
enum class VertexHandle : uint32_t {};
inline constexpr VertexHandle kNoHandle{0xffffffffU};

/// A vertex of a body's surface: its place in BodyArrays::surface_vertices and Frame::surface_positions_m.
enum class SurfaceSlot : uint32_t {};
inline constexpr SurfaceSlot kNoSurfaceSlot{0xffffffffU};

}  // namespace palpate::sim
