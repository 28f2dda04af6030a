#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "gpu/shared/types.h"

namespace palpate::bench {

/// libfcl's bounding volume hierarchies on the same frames: a model for each body, refitted to each frame, then all pairs of triangles
/// below the range. A body is met with itself once for each pair of triangles.
class FclScene {
 public:
  enum class Volume { kObbRss, kAabb };  ///< refitted from the top, as libfcl does for it, or from the leaves

  virtual ~FclScene() = default;
  /// Pairs of triangles without a common vertex and nearer than `range_m`: of bodies 0 and 1, or of body 0 with itself if it is alone.
  /// Takes the new positions into account first.
  virtual uint64_t Run(std::span<const gpu::Float4> positions_m, double range_m) = 0;
  /// The pairs themselves, at the positions of the last Run: indices within the lists of triangles of their bodies, of one body alone the
  /// smaller one first. Sorted.
  virtual std::vector<std::array<uint32_t, 2>> Pairs(double range_m) const = 0;

  /// How often a pair of triangles is looked at that was looked at before. 0, or the comparison would be unfair.
  virtual uint64_t CountRepeatedVisits(double range_m) const = 0;

  static std::unique_ptr<FclScene> Create(Volume volume, std::span<const gpu::Float4> positions_m,
                                          const std::vector<std::vector<std::array<uint32_t, 3>>>& bodies);
};

}  // namespace palpate::bench
