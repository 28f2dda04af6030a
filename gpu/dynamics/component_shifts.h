#pragma once

#include "gpu/base/status.h"
#include "gpu/dynamics/surface_contact.h"
#include "gpu/dynamics/tissue_anchors.h"
#include "gpu/dynamics/tissue_buffers.h"
#include "gpu/dynamics/tool_contacts.h"
#include "gpu/runtime/buffer.h"
#include "gpu/runtime/queue.h"

namespace palpate::gpu {

/// Between sweeps: components that nothing holds go as wholes to where the forces on them balance, as far as tools and planes let them.
class ComponentShifts {
 public:
  /// The program is that of tissue.cl. `old` (or null): one of the same program that is given up, whose kernels are used again.
  absl::Status MakeKernels(Context& context, const ProgramDefines& defines, ComponentShifts* old);

  /// See SweptSurfaces::ShiftComponents. Some blocking reads.
  absl::Status Shift(Queue& queue, const SurfaceContacts& surface, const TissueBuffers& tissue, const ToolContacts& tools,
                     const TissueAnchors& anchors, SweptSurfaces& swept);

  size_t device_bytes() const { return sums_.size_bytes(); }

 private:
  Kernel component_sums_, component_shares_;
  DeviceBuffer<float> sums_;  // of forces, then shares of shifts
};

}  // namespace palpate::gpu
