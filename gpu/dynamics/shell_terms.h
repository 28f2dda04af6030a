#pragma once

#include <cstdint>
#include <vector>

#include "gpu/base/status.h"
#include "gpu/dynamics/shell_layout.h"
#include "gpu/dynamics/tissue_buffers.h"
#include "gpu/runtime/buffer.h"
#include "gpu/runtime/queue.h"

namespace palpate::gpu {

/// Shells on the device: what the kernels of the sweeps read of them (shell_terms.clh), and their elastic energy.
class ShellTerms {
 public:
  /// Keeps a reference; precondition: it is not empty.
  explicit ShellTerms(const ShellLayout& layout) : layout_(layout) {}

  /// `defines`: of the solver's program (tissue.cl). Errors: ResourceExhausted.
  absl::Status Init(Queue& queue, uint32_t lanes, const ProgramDefines& defines, const TissueBuffers& tissue);
  /// Gives a kernel its SHELL_ARGS.
  absl::Status Bind(Kernel& kernel) const;
  /// Start of a step: strains and angles that damping works against.
  absl::Status Begin(Queue& queue);

  /// Elastic energy [J] at positions tissue.x, the parts of `partials` work-items in order; in double where `in_double` and the device has
  /// it. Blocking; leaves everything else as it is.
  absl::StatusOr<double> Energy(Queue& queue, const TissueBuffers& tissue, uint32_t partials, bool in_double);

  size_t device_bytes() const;

 private:
  bool has_hinges() const { return (layout_.mask & PALPATE_SHELL_HINGES) != 0; }

  const ShellLayout& layout_;
  uint32_t lanes_ = 1;
  DeviceBuffer<UInt2> ranges_;
  DeviceBuffer<uint32_t> membrane_vertex_, membrane_index_, hinge_index_, quadratic_index_;
  DeviceBuffer<float> membrane_real_, membrane_start_, hinge_real_, hinge_start_, quadratic_real_;
  Kernel start_shells_, sum_energy_;
  DeviceBuffer<Float2> partials_;
  std::vector<Float2> partials_host_;
};

}  // namespace palpate::gpu
