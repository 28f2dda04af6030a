#pragma once

#include <cstdint>

#include "gpu/dynamics/tissue_layout.h"
#include "gpu/runtime/buffer.h"
#include "gpu/shared/dynamics_types.h"

namespace palpate::gpu {

/// The state of a tissue solver and its layout on the device, which all stages of a step read. Slots, blocks and places are those of
/// TissueLayout, where the arrays of the same names are described; lengths are in metres.
struct TissueBuffers {
  DeviceBuffer<StepParams> params;  ///< [1]

  DeviceBuffer<Float4> x;                ///< [slot] positions
  DeviceBuffer<Float4> x_start;          ///< [slot] at the start of the step
  DeviceBuffer<Float4> y;                ///< [slot] inertial targets, with what loads and drives add
  DeviceBuffer<Float4> velocity;         ///< [slot] [m/s]
  DeviceBuffer<Float4> velocity_before;  ///< [slot] of the step before: the first guess needs the acceleration
  DeviceBuffer<uint8_t> touched;         ///< [slot] 1: something stopped its move, Chebyshev must not carry it on

  DeviceBuffer<float> mass, mass_damping;
  DeviceBuffer<uint32_t> original_index, held_axes;
  DeviceBuffer<UInt2> block_range, vertex_triangle_range;
  DeviceBuffer<uint32_t> block_vertex, corner_index, vertex_triangles;
  DeviceBuffer<float> corner_real;
  DeviceBuffer<float> corner_strain;  ///< at the start of the step, for viscosity; empty without
  DeviceBuffer<UInt4> tets, triangles;
  DeviceBuffer<Float4> tet_rest;
  DeviceBuffer<Float4> rotations;  ///< [tet] quaternions of corotated tets; empty without
};

}  // namespace palpate::gpu
