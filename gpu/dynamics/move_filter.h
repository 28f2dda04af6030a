#pragma once

#include <cstdint>

#include "gpu/base/status.h"
#include "gpu/collision/ccd.h"
#include "gpu/dynamics/certified_positions.h"
#include "gpu/dynamics/surface_follower.h"
#include "gpu/dynamics/surface_options.h"
#include "gpu/dynamics/surface_pairs.h"
#include "gpu/dynamics/surface_reach.h"
#include "gpu/dynamics/tissue_layout.h"
#include "gpu/runtime/buffer.h"
#include "gpu/runtime/queue.h"
#include "gpu/shared/types.h"

namespace palpate::gpu {

/// What the filter looks at. kListed: nothing but the pairs can meet, because no vertex goes beyond the cap on the way. kBeyond: bodies of
/// which none goes beyond do not meet each other, because their vertices stayed behind the planes of their pairs (SurfaceReach::beyond).
enum class Meeting : uint8_t { kAnything, kListed, kBeyond };

/// Shortens straight moves of vertices until no two elements meet on the way: by continuous collision detection, in rounds. First what
/// meets is shortened, with its neighbours by shares that fade away; then given up; then all moves end before the first impact.
class MoveFilter {
 public:
  /// Keeps references to `layout` and what `scene` names.
  MoveFilter(const TissueLayout& layout, const SurfaceSurroundings& scene) : layout_(layout), scene_(scene) {}
  /// `old` (or null): one that is given up, whose kernels and working memory are used again.
  absl::Status Init(Queue& queue, const SurfaceOptions& options, MoveFilter* old);
  void SetSurface(std::shared_ptr<const DeviceSurface> surface) { collisions_.SetSurface(std::move(surface)); }
  /// Vertices that `follower` (or null) moves are taken back only together. It must outlive this.
  void SetFollower(SurfaceFollower* follower) { follower_ = follower; }

  /// Where the moves of a step begin: at its start, or at its last detection. What follower reckons with.
  enum class From : uint8_t { kStepStart, kDetection };

  /// Shortens the moves from `from` to x, which is then certified, and marks what was shortened in `touched`. Pairs with marked
  /// (`tangled`) vertices may pass. With a follower and kListed, whose bodies leave the straight line when they are taken back, the caller
  /// must look whether vertices went beyond the cap. Some blocking reads.
  absl::StatusOr<CertifiedPositions> Run(Queue& queue, const SurfaceReach& reach, const SurfacePairs& pairs,
                                         const DeviceBuffer<uint32_t>& tangled, const CertifiedPositions& from, From where,
                                         const DeviceBuffer<Float4>& x, const DeviceBuffer<uint8_t>& touched, Meeting meeting);

  uint32_t rounds() const { return rounds_; }  ///< since Count was begun anew
  void ResetRounds() { rounds_ = 0; }
  size_t device_bytes() const;

 private:
  absl::Status Detect(Queue& queue, const SurfaceReach& reach, const SurfacePairs& pairs, const DeviceBuffer<Float4>& from,
                      const DeviceBuffer<Float4>& x, Meeting meeting, int round);
  absl::Status SpreadShares(Queue& queue, const DeviceBuffer<Float4>& from);

  const TissueLayout& layout_;
  SurfaceSurroundings scene_;
  float least_gap_m_ = 0;
  uint32_t rounds_ = 0;
  SurfaceFollower* follower_ = nullptr;
  ContinuousCollisions collisions_;
  Kernel shorten_moves_, keep_shares_, spread_shares_, apply_shares_;
  DeviceBuffer<Float4> goal_;
  DeviceBuffer<uint32_t> shares_, found_;
  DeviceBuffer<float> kept_, spread_;
};

}  // namespace palpate::gpu
