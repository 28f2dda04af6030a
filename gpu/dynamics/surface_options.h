#pragma once

#include <cstdint>

#include "gpu/collision/self_pairs_use.h"
#include "gpu/runtime/buffer.h"
#include "gpu/shared/types.h"

namespace palpate::gpu {

/// How bodies meet each other and themselves.
struct SurfaceOptions {
  double dt_s = 1.0 / 120.0;
  double margin_m = 0.001;       ///< pairs of elements push each other from this distance on
  double stiffness_n_per_m = 0;  ///< of one pair at the margin; 0: twice that of the softest of its vertices
  double friction = 0.1;
  double reserve_m = 0;  ///< detections look this much beyond the margin; 0: the larger of the margin and 0.4 mean edges less it
  /// Mean edge that the reserve went by before an edit, or 0. It is kept until edges are another size, see SurfaceReach.
  double reach_edge_m = 0;
  uint32_t max_detections = 4;                         ///< in one step, at least 1
  bool check_intersections = false;                    ///< count them after every step, not only while there are some
  SelfPairsUse self_pairs = SelfPairsUse::kAutomatic;  ///< see SelfPairs; never changes the motion

  /// Distance that pairs keep, unless they were nearer before. So near that rounding hides which side is which, a pair could only stay
  /// where it is, whatever pulls it apart.
  double least_gap_m() const { return 0.001 * margin_m; }
};

/// Arrays of the solver, as in tissue.cl, which it keeps up to date.
struct SurfaceSurroundings {
  const DeviceBuffer<UInt2>* block_range = nullptr;
  const DeviceBuffer<uint32_t>* corner_index = nullptr;
  const DeviceBuffer<UInt2>* vertex_triangle_range = nullptr;
  const DeviceBuffer<uint32_t>* vertex_triangles = nullptr;
  const DeviceBuffer<uint32_t>* held_axes = nullptr;  ///< TissueLayout::held_axes
};

}  // namespace palpate::gpu
