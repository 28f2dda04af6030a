#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "gpu/base/status.h"
#include "gpu/dynamics/tissue_layout.h"
#include "gpu/dynamics/tissue_layout_editor.h"
#include "gpu/dynamics/tissue_types.h"
#include "gpu/primitives/run_writer.h"
#include "gpu/runtime/buffer.h"
#include "gpu/runtime/queue.h"
#include "gpu/shared/dynamics_types.h"

namespace palpate::gpu {

/// The state of a tissue solver and its layout on the device, which all stages of a step read. Slots, blocks and places are those of
/// TissueLayout, where the arrays of the same names are described; lengths are in metres.
struct TissueBuffers {
  DeviceBuffer<StepParams> params;  ///< [1]

  DeviceBuffer<Float4> x;                    ///< [slot] positions
  DeviceBuffer<Float4> x_start;              ///< [slot] at the start of the step
  DeviceBuffer<Float4> y;                    ///< [slot] inertial targets, with what loads and drives add
  DeviceBuffer<Float4> velocity;             ///< [slot] [m/s]
  DeviceBuffer<Float4> velocity_before;      ///< [slot] of the step before: the first guess needs the acceleration
  DeviceBuffer<Float4> x_before, x_before2;  ///< [slot] in the sweeps before, for acceleration, or displacements; empty without
  DeviceBuffer<Float4> rest, u, u_start;  ///< [slot] displacements x - rest, now and at the start; empty if not TissueLayout::IsDisplaced
  DeviceBuffer<uint8_t> touched;          ///< [slot] 1: something stopped its move, Chebyshev must not carry it on
  DeviceBuffer<uint32_t> gate;            ///< [1] not 0: kernels of sweeps, and of the end of a step, do nothing; see StepGate

  DeviceBuffer<float> mass, mass_damping;
  DeviceBuffer<uint32_t> original_index, held_axes;
  DeviceBuffer<UInt2> block_range, vertex_triangle_range;
  DeviceBuffer<uint32_t> block_vertex, corner_index, vertex_triangles;
  DeviceBuffer<float> corner_real;
  DeviceBuffer<float> corner_strain;  ///< at the start of the step, for viscosity; empty without
  DeviceBuffer<UInt4> tets, triangles;
  DeviceBuffer<Float4> tet_rest, tet_moduli;
  DeviceBuffer<Float4> rotations;    ///< [tet] quaternions of corotated tets; empty without
  DeviceBuffer<float> corner_turns;  ///< those of corners, which follow the sweeps of a step; empty without

  /// All of a layout, at rest. `has_history`: there are x_before and x_before2. Errors: ResourceExhausted.
  static absl::StatusOr<TissueBuffers> Create(Queue& queue, const TissueLayout& layout, const StepParams& params, bool has_history);
  /// After an edit of the layout: hands the changed entries to `writer`, and the state of vertices that are new; `states` are in the
  /// caller's order.
  absl::Status Follow(const TissueLayout& layout, const TissueLayoutDelta& delta, const StepParams& params,
                      std::span<const TissueVertexState> states, RunWriter* writer) const;
  size_t device_bytes() const;
};

}  // namespace palpate::gpu
