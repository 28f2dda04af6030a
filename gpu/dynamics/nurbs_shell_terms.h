#pragma once

#include <cstdint>
#include <vector>

#include "gpu/base/status.h"
#include "gpu/dynamics/nurbs_shell_layout.h"
#include "gpu/runtime/buffer.h"
#include "gpu/runtime/queue.h"

namespace palpate::gpu {

/// NURBS shells on the device: what kernels over control points read and write of them (nurbs_shell_terms.clh), and their elastic energy.
/// Positions are those of control points by slot: x, y, z [m], the fourth is not read.
class NurbsShellTerms {
 public:
  /// Keeps a reference; precondition: it is not empty. Errors: ResourceExhausted.
  explicit NurbsShellTerms(const NurbsShellLayout& layout) : layout_(layout) {}
  absl::Status Init(Queue& queue);

  /// Gives a kernel its NURBS_SHELL_ARGS.
  absl::Status Bind(Kernel& kernel) const;
  /// Gauss points at these positions: before sweeps, and after anything else than move_nurbs_vectors has moved control points.
  absl::Status Gather(Queue& queue, const DeviceBuffer<Float4>& x);
  /// Start of a step, after Gather: strains and curvatures that damping works against.
  absl::Status Begin(Queue& queue);

  /// Elastic energy [J], the parts of `partials` work-items in order, as many in each call; in double where `in_double` and the device has
  /// it. Blocking; leaves everything else as it is.
  absl::StatusOr<double> Energy(Queue& queue, const DeviceBuffer<Float4>& x, uint32_t partials, bool in_double);

  /// Vectors of Gauss points as they are (nurbs_shell_terms.clh).
  const DeviceBuffer<float>& vectors() const { return vectors_; }
  size_t device_bytes() const;

 private:
  const NurbsShellLayout& layout_;
  DeviceBuffer<UInt2> control_range_, block_range_;
  DeviceBuffer<uint32_t> entry_block_, block_slot_, block_entry_;
  DeviceBuffer<float> entry_basis_, rest_, vectors_, start_;
  Kernel gather_, start_strains_, sum_energy_;
  DeviceBuffer<Float2> partials_;
  std::vector<Float2> partials_host_;
};

}  // namespace palpate::gpu
