#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "gpu/base/status.h"
#include "gpu/collision/surface_topology.h"
#include "gpu/dynamics/surface_options.h"
#include "gpu/primitives/run_writer.h"
#include "gpu/runtime/buffer.h"
#include "gpu/runtime/queue.h"
#include "gpu/shared/dynamics_types.h"
#include "gpu/shared/types.h"

namespace palpate::gpu {

/// How far a detection looks around each body, and how far its vertices may go then. A pair of two bodies is known after it if it is nearer
/// than the sum of their reaches; so as long as no vertex goes farther than PALPATE_CAP_SHARE of its body's cap, which is at most the
/// reach, nothing that is not known can have met, and what goes farther needs continuous detection. A body with a spare leaves out pairs
/// with itself (ProximityRest), and its cap is at most half of that. Any reach is safe. That of tissue is half the range; bodies that move
/// as wholes look as far as they move in a step, at least a margin and at most half the range: a heap at rest has a fraction of the pairs
/// of one that falls.
class SurfaceReach {
 public:
  SurfaceReach() = default;
  explicit SurfaceReach(const SurfaceOptions& options);
  /// After SetEdges. `old` (or null): one that is given up, whose kernels are used again.
  absl::Status Init(Queue& queue, SurfaceReach* old);

  /// The range for surfaces with these edges at rest [m]. It goes by their mean, unless the reserve was given, and follows edits where that
  /// has become another by three tenths: a range of many elements would find pairs by the square of that number, and a shorter one is as
  /// safe. Host only; returns whether it changed.
  bool SetEdges(std::span<const UInt2> edges, const std::vector<Float4>& rest);
  /// The same after an edit, if enough edges have come or gone.
  bool FollowEdges(std::span<const UInt2> edges, const std::vector<Float4>& rest);

  absl::Status Upload(Queue& queue);  ///< creates the buffer, or writes to it
  absl::Status AddTo(RunWriter* writer) const { return writer->Add(params_, std::span<const SurfaceParams>(&host_, 1), 0); }

  /// Of each body (PALPATE_GROUP_MASK of a surface's groups) 1 if it moves as a whole, and its spare [m] or 0.
  absl::Status SetBodies(Queue& queue, const std::vector<uint32_t>& is_whole, const std::vector<float>& spare_m);

  /// Before a detection of everything: reaches by the way from the `start` of the step to x. Enqueues only.
  absl::Status LookAhead(Queue& queue, const DeviceSurface& surface, const DeviceBuffer<Float4>& start, const DeviceBuffer<Float4>& x);
  /// Where the same pairs go on at other positions: what is known reaches less far by what each body moved. Enqueues only.
  absl::Status Spend(Queue& queue, const DeviceSurface& surface, const DeviceBuffer<Float4>& from, const DeviceBuffer<Float4>& to);

  /// As Spend, and then as LookAhead for the bodies of which too little is known after that: stale().
  absl::Status Renew(Queue& queue, const DeviceSurface& surface, const DeviceBuffer<Float4>& from, const DeviceBuffer<Float4>& start,
                     const DeviceBuffer<Float4>& x);

  /// Marks the bodies of which a vertex goes farther than the cap: beyond(). Enqueues only.
  absl::Status MarkBeyond(Queue& queue, const DeviceSurface& surface, const DeviceBuffer<Float4>& from, const DeviceBuffer<Float4>& to);

  float range_m() const { return host_.range_m; }  ///< twice the largest reach
  const DeviceBuffer<float>& reaches() const { return reaches_; }
  const DeviceBuffer<float>& caps() const { return caps_; }
  const DeviceBuffer<float>& spare() const { return spare_; }
  bool has_spare() const { return has_spare_; }
  const DeviceBuffer<uint32_t>& stale() const { return stale_; }    ///< [body] 1 or 0, after Spend
  const DeviceBuffer<uint32_t>& beyond() const { return beyond_; }  ///< [body] 1 or 0, after MarkBeyond
  double edge_m() const { return edge_m_; }                         ///< mean edge that the range goes by

  /// Of what is read, the device knows after Upload.
  template <typename Archive>
  void VisitState(Archive& archive) {
    [[maybe_unused]] auto& [margin_m, reserve_m, edge_m, edge_count, host, body_count, has_whole, has_spare, are_full, body_moves,
                            look_ahead, spend, mark_beyond, params, is_whole, moves, stale, beyond, reaches, caps, spare] = *this;
    archive.Enter("SurfaceReach");
    float cap_m = 0.49F * host.range_m;  // in the format, though reaches are worked out anew at the start of each step
    archive(edge_m, edge_count, host.range_m, cap_m);
    archive.Check(host.range_m > 0 && cap_m > 0, "a range is not positive");
    are_full = false;
  }
  const DeviceBuffer<SurfaceParams>& params() const { return params_; }

 private:
  absl::Status Measure(Queue& queue, const DeviceSurface& surface, const DeviceBuffer<Float4>& from, const DeviceBuffer<Float4>& to);

  double margin_m_ = 0;
  double reserve_m_ = 0;
  double edge_m_ = 0;
  size_t edge_count_ = 0;  // when it was last looked at
  SurfaceParams host_{};
  uint32_t body_count_ = 0;
  bool has_whole_ = false;
  bool has_spare_ = false;
  bool are_full_ = false;  // all reaches are half the range
  Kernel body_moves_, look_ahead_, spend_reaches_, mark_beyond_;
  DeviceBuffer<SurfaceParams> params_;
  DeviceBuffer<uint32_t> is_whole_;  // [body]
  DeviceBuffer<uint32_t> moves_;     // [body] bits of the longest way; 0 between calls
  DeviceBuffer<uint32_t> stale_;     // [body]
  DeviceBuffer<uint32_t> beyond_;    // [body]
  DeviceBuffer<float> reaches_;      // [body]
  DeviceBuffer<float> caps_;         // [body]
  DeviceBuffer<float> spare_;        // [body]
};

}  // namespace palpate::gpu
