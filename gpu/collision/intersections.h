#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>

#include "gpu/base/status.h"
#include "gpu/collision/candidate_pairs.h"
#include "gpu/collision/proximity_key_list.h"
#include "gpu/collision/surface_topology.h"
#include "gpu/runtime/buffer.h"
#include "gpu/runtime/queue.h"
#include "gpu/shared/box.h"
#include "gpu/shared/collision_types.h"

namespace palpate::gpu {

struct IntersectionOptions {
  uint64_t max_crossings = 1U << 22;                               ///< bounds the memory, 36 bytes each; at most 2^28
  uint64_t max_cluster_pairs = 1U << 27;                           ///< 8 bytes a pair
  CandidateStructure candidates = CandidateStructure::kAutomatic;  ///< changes no result
};

/// Counts where surfaces cross: edges that pierce triangles with which they share no vertex, between bodies and within those that may meet
/// themselves. Two triangles without a common vertex cross exactly if an edge of one pierces the other; with one common vertex, exactly if
/// the edge opposite it does, so that neighbours are no special case.
///
/// Guarantee: the orientation of four points is decided in double (float where the device has no double) with a bound on its rounding
/// (Shewchuk, "Adaptive precision floating-point arithmetic and fast robust geometric predicates", 1997, bound A). A crossing is reported
/// only if it is certain, and each that lies deeper than the bound is. Where a sign is not certain although no certain one excludes the
/// crossing, the pair is counted as touching: an edge through an edge or a vertex, an end on the face. An edge that lies in the plane of
/// the triangle is neither. Thread: one at a time. Determinism: results are unique for the input and in canonical order.
class IntersectionCounter {
 public:
  static constexpr uint32_t kPierced = 1;   ///< triangle flag: an edge goes through it
  static constexpr uint32_t kPiercing = 2;  ///< triangle flag: one of its edges goes through another

  static absl::StatusOr<IntersectionCounter> Create(const std::shared_ptr<Context>& context, const IntersectionOptions& options = {});

  /// Tests `positions_m` [vertex_count, w ignored]. Two blocking reads. Errors: InvalidArgument (a buffer too small, a vertex of a triangle
  /// whose coordinates are not finite or beyond 1e8 m, which is named), ResourceExhausted above max_crossings or max_cluster_pairs.
  absl::Status Run(Queue& queue, const DeviceSurface& surface, BufferView<Float4> positions_m);
  /// The same in two parts with the same arguments, the second after the next blocking call. It blocks as Run does where anything crosses
  /// or something else is new; else not.
  absl::Status Enqueue(Queue& queue, const DeviceSurface& surface, BufferView<Float4> positions_m);
  absl::Status Take(Queue& queue, const DeviceSurface& surface, BufferView<Float4> positions_m);

  uint32_t crossing_count() const { return crossing_count_; }
  uint32_t touching_count() const { return touching_count_; }
  /// Edge and triangle of each crossing, sorted; valid until the next Run.
  const DeviceBuffer<UInt2>& crossings() const { return crossings_; }
  /// [triangle_count] kPierced | kPiercing of each triangle; valid until the next Run.
  const DeviceBuffer<uint32_t>& triangle_flags() const { return flags_; }

 private:
  static constexpr uint32_t kCounters = 3;
  absl::StatusOr<CandidatePairs*> Begin(Queue& queue, const DeviceSurface& surface, BufferView<Float4> positions_m);
  absl::Status LaunchDetect(Queue& queue, const DeviceSurface& surface, BufferView<Float4> positions_m, BufferView<UInt2> pairs,
                            uint32_t pair_count, BufferView<uint32_t> found);

  std::shared_ptr<Context> context_;
  IntersectionOptions options_;
  ElementClusters clusters_;
  bool is_enqueued_ = false;
  std::optional<uint32_t> last_found_;         // pairs of clusters of the run before
  uint32_t room_ = 0;                          // of Enqueue: pairs of clusters that are looked at, if they are no more
  std::array<uint32_t, 2> found_host_{};       // how many they are, and whether they are refused
  std::array<uint32_t, kCounters> counted_{};  // by Enqueue
  uint32_t crossing_count_ = 0;
  uint32_t touching_count_ = 0;
  CandidateStructures candidates_;
  ProximityKeyList keys_;
  Kernel boxes_kernel_, detect_, records_;
  DeviceBuffer<Box> boxes_;
  DeviceBuffer<uint32_t> counters_;
  DeviceBuffer<UInt2> crossings_;
  DeviceBuffer<uint32_t> flags_;
};

}  // namespace palpate::gpu
