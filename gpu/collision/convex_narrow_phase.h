#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "gpu/base/status.h"
#include "gpu/collision/convex_mesh.h"
#include "gpu/primitives/primitive_config.h"
#include "gpu/primitives/scan.h"
#include "gpu/runtime/buffer.h"
#include "gpu/runtime/queue.h"
#include "gpu/shared/convex_types.h"

namespace palpate::gpu {

/// How many support queries pairs took; index = count, the last bin holds all above.
struct ConvexStatistics {
  static constexpr uint32_t kBins = 64;
  std::array<uint64_t, kBins> gjk = {};
  std::array<uint64_t, kBins> epa = {};    ///< only pairs that GJK left to EPA
  std::array<uint64_t, 4> by_status = {};  ///< by PALPATE_CONVEX_*
  uint64_t degenerate_tetrahedra = 0;

  static uint64_t Count(const std::array<uint64_t, kBins>& bins);
  static double Mean(const std::array<uint64_t, kBins>& bins);
  static uint32_t Max(const std::array<uint64_t, kBins>& bins);
};

/// Distance and penetration of pairs of convex bodies: GJK, then EPA for the pairs that it cannot part. See docs/algorithms/convex.md.
///
/// Results (ConvexContact, one per pair, in the order of the pairs): with size = the largest coordinate of {a - b} of the pair [m],
/// - separated: the distance to about 1e-6 size, closest points, the direction between them;
/// - overlapping: the depth, which is exact for its normal to rounding (moving B by depth along the normal parts the two) and least among
/// all
///   normals to about 2e-6 size;
/// - not converged (iteration cap, or input that is not finite): best estimate, marked. Never NaN.
/// Cost: 4 to 5 launches, no host round trip. Thread: one at a time. Determinism: the result is unique for the input.
class ConvexNarrowPhase {
 public:
  static absl::StatusOr<ConvexNarrowPhase> Create(const std::shared_ptr<Context>& context);

  /// Enqueues contacts[i] = bodies pairs[i].x (A) against pairs[i].y (B) for the first `count` pairs. Pairs farther apart than range_m are
  /// only shown to be so, which is faster; INFINITY: every distance is wanted. Scratch grows with the capacity of `count`. Errors:
  /// InvalidArgument (a buffer is too small, range_m negative or NaN), ResourceExhausted. Indices of bodies and meshes are trusted.
  absl::Status Run(Queue& queue, const ConvexMeshes& meshes, const ConvexBodies& bodies, BufferView<UInt2> pairs, ItemCount count,
                   float range_m, BufferView<ConvexContact> contacts);

  /// Enqueues contacts[body * planes.count + plane] = the deepest vertex of each body over each plane (xyz unit normal, w = offset [m];
  /// solid where normal . x < offset). Errors: InvalidArgument (a buffer is too small).
  absl::Status RunPlanes(Queue& queue, const ConvexMeshes& meshes, const ConvexBodies& bodies, BufferView<Float4> planes,
                         BufferView<ConvexContact> contacts);

  /// Blocking. Adds the iterations of these contacts to `statistics`.
  absl::Status AddStatistics(Queue& queue, BufferView<ConvexContact> contacts, ItemCount count, ConvexStatistics* statistics);

 private:
  static constexpr uint32_t kStatisticsValues = 2 * ConvexStatistics::kBins + 5;

  std::shared_ptr<Context> context_;
  size_t group_ = 1;
  Kernel gjk_, epa_, planes_, statistics_;
  StreamCompaction compaction_;
  uint32_t capacity_ = 0;
  DeviceBuffer<UInt4> simplex_a_, simplex_b_;
  DeviceBuffer<uint32_t> overlaps_, overlapping_, overlapping_count_, bins_;
};

}  // namespace palpate::gpu
