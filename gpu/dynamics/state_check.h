#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "gpu/base/status.h"
#include "gpu/dynamics/tissue_buffers.h"
#include "gpu/dynamics/tissue_types.h"
#include "gpu/runtime/buffer.h"
#include "gpu/runtime/queue.h"
#include "gpu/shared/dynamics_types.h"

namespace palpate::gpu {

/// Sums over a state at the end of a step.
struct StateSums {
  uint64_t hash = 0;  ///< of positions and velocities; independent of the solver's vertex order
  double kinetic_energy_j = 0;
  double max_speed_m_per_s = 0;
  uint32_t bad_vertices = 0;  ///< non-finite or absurd
  uint32_t inverted_tets = 0;
  uint32_t inverted_elastic = 0;  ///< those whose energy pushes back
  uint32_t strained_tets = 0;     ///< beyond 1
};

/// Ends a step: velocities from positions, and the sums of the state, whose order is the same on every device.
class StateCheck {
 public:
  /// The program is that of tissue.cl. `old` (or null): one of the same program that is given up, whose kernels are used again.
  absl::Status Init(Queue& queue, const ProgramDefines& defines, uint32_t partials, StateCheck* old);
  absl::Status Bind(const TissueBuffers& tissue);

  absl::Status Finish(Queue& queue);   ///< enqueues the velocities of a step and its sums
  absl::Status Inspect(Queue& queue);  ///< enqueues the sums of the state as it is
  /// Of the newest Finish() or Inspect(). Blocking.
  absl::StatusOr<StateSums> Read(Queue& queue);
  /// The same in two parts: Take() after the next blocking call.
  absl::Status EnqueueRead(Queue& queue);
  StateSums Take() const;

  size_t device_bytes() const { return partials_.size_bytes(); }

 private:
  Range Partials() const { return {partials_host_.size(), partials_host_.size() % 64 == 0 ? 64U : 1U}; }  // exactly as many

  Kernel finish_step_, inspect_state_;
  DeviceBuffer<StepPartial> partials_;
  std::vector<StepPartial> partials_host_;
};

/// Positions of chosen vertices, read back after each step.
class GatheredPositions {
 public:
  /// The program is that of tissue.cl. `old` as above.
  absl::Status Init(Queue& queue, const ProgramDefines& defines, GatheredPositions* old);
  /// From now on the vertices in these slots.
  absl::Status Set(Queue& queue, const TissueBuffers& tissue, std::span<const uint32_t> slots);
  void Clear();

  absl::Status EnqueueRead(Queue& queue);                       ///< enqueues reading them into positions_m()
  std::span<const float> positions_m() const { return host_; }  ///< [count * 3]

  size_t device_bytes() const { return indices_.size_bytes() + packed_.size_bytes(); }

 private:
  uint32_t count_ = 0;
  Kernel gather_positions_;
  DeviceBuffer<uint32_t> indices_;
  DeviceBuffer<float> packed_;
  std::vector<float> host_;
};

}  // namespace palpate::gpu
