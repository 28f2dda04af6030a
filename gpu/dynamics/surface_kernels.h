#pragma once

#include <cstddef>
#include <utility>

#include "gpu/base/status.h"
#include "gpu/runtime/queue.h"

namespace palpate::gpu {

namespace kernels {
extern const KernelSource surface_contact;
}  // namespace kernels

/// Of launches over pairs, whose number changes: drivers may compile a kernel anew for each size of work-group.
inline constexpr size_t kSurfaceGroup = 64;

/// A kernel of surface_contact.cl: `old` (or null), whose owner is given up, or a new one.
inline absl::Status TakeOrCreate(Queue& queue, Kernel* old, const char* name, Kernel* kernel) {
  if (old != nullptr && *old) {
    *kernel = std::move(*old);
    return absl::OkStatus();
  }
  PALPATE_ASSIGN_OR_RETURN(*kernel, queue.context()->CreateKernel(kernels::surface_contact, name));
  return absl::OkStatus();
}

}  // namespace palpate::gpu
