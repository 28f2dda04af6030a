#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "gpu/base/status.h"
#include "gpu/dynamics/tissue_buffers.h"
#include "gpu/dynamics/tissue_layout.h"
#include "gpu/dynamics/tissue_types.h"
#include "gpu/runtime/queue.h"

namespace palpate::gpu {

/// Springs between vertices and tools or clips, and the clips themselves, which are held by nothing else.
class TissueAnchors {
 public:
  /// The program is that of tools.cl. `old` (or null): one of the same program that is given up, whose kernels are used again.
  absl::Status MakeKernels(Context& context, const ProgramDefines& defines, TissueAnchors* old);
  absl::Status Init(Queue& queue, const TissueLayout& layout);

  /// See TissueSolver::SetAnchors. True: anchors() is another buffer now.
  absl::StatusOr<bool> Set(Queue& queue, const TissueLayout& layout, std::span<const TissueAnchor> anchors, uint32_t collider_count,
                           uint32_t clip_count);

  /// Clips go to where their anchors balance. `colliders`: tools first, then clips.
  absl::Status SolveClips(Queue& queue, const TissueBuffers& tissue, const DeviceBuffer<Collider>& colliders);

  /// End of a step: what each anchor pulls with; reports() has it once the queue has finished and TakeReports was called.
  absl::Status EnqueueReports(Queue& queue, const TissueBuffers& tissue, const DeviceBuffer<Collider>& colliders);
  void TakeReports();
  std::span<const AnchorReport> reports() const { return reports_host_; }  ///< in the caller's order

  bool empty() const { return anchors_host_.empty(); }
  uint32_t clip_count() const { return clip_count_; }
  const DeviceBuffer<uint32_t>& begins() const { return begins_; }  ///< [slot + 1] in anchors()
  const DeviceBuffer<Anchor>& anchors() const { return anchors_; }  ///< by slot
  size_t device_bytes() const { return begins_.size_bytes() + anchors_.size_bytes() + reports_.size_bytes(); }

 private:
  uint32_t clip_count_ = 0;
  std::vector<uint32_t> begins_host_;
  std::vector<Anchor> anchors_host_;  // as on the device
  std::vector<uint32_t> place_;       // of each of the caller's
  std::vector<AnchorReport> reports_host_, reports_by_slot_;
  DeviceBuffer<uint32_t> begins_;
  DeviceBuffer<Anchor> anchors_;
  DeviceBuffer<AnchorReport> reports_;
  Kernel solve_clips_, report_;
};

}  // namespace palpate::gpu
