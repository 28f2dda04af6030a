#pragma once

#include "gpu/runtime/buffer.h"
#include "gpu/shared/types.h"

namespace palpate::gpu {

/// Positions of all vertices that were reached without two elements passing through each other, except those that did so at first. What
/// relies on that takes this type: a detection puts planes between elements by which side they are on now, and a move may only be checked
/// from where nothing has been crossed. Only those who made sure of it make one. It holds until the buffer is written to.
class CertifiedPositions {
 public:
  const DeviceBuffer<Float4>& x() const { return *x_; }  ///< [slot], m

 private:
  friend class MoveFilter;       // after its last round
  friend class SurfaceContacts;  // the start of a step; moves within all bounds; bodies apart
  explicit CertifiedPositions(const DeviceBuffer<Float4>& x) : x_(&x) {}

  const DeviceBuffer<Float4>* x_;
};

}  // namespace palpate::gpu
