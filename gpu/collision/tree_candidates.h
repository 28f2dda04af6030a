#pragma once

#include <array>
#include <memory>

#include "gpu/collision/box_hierarchy.h"
#include "gpu/collision/candidate_pairs.h"

namespace palpate::gpu {

/// Candidates by one packed hierarchy a kind of element, over the whole scene and built from nothing in each run: it knows nothing of
/// bodies but their groups, so that a scene of one organ, of organs of any size, and of meshes that are cut are all the same to it.
/// docs/algorithms/hierarchy.md.
class TreeCandidates final : public CandidatePairs {
 public:
  static absl::StatusOr<std::unique_ptr<CandidatePairs>> Create(const std::shared_ptr<Context>& context, uint64_t max_pairs);

  std::string_view name() const override { return "tree"; }
  absl::Status Begin(Queue& queue, const DeviceSurface& surface, BufferView<Float4> starts_m, BufferView<Float4> ends_m, float distance_m,
                     BufferView<uint32_t> wanted) override;
  bool takes_triangle_groups() const override { return true; }
  void TakeTriangleGroups(BufferView<uint32_t> groups) override { triangle_groups_ = groups; }
  absl::StatusOr<ElementClusters> Add(Queue& queue, SurfaceElement kind, BufferView<Box> boxes) override;
  absl::Status Find(Queue& queue, SurfaceElement p, SurfaceElement q) override;
  bool finds_on_device() const override { return true; }
  /// All pairs, or none where they do not fit.
  absl::StatusOr<ClusterPairsOnDevice> FindOnDevice(Queue& queue, SurfaceElement p, SurfaceElement q) override;

 private:
  TreeCandidates() = default;

  const DeviceSurface* surface_ = nullptr;
  BufferView<uint32_t> triangle_groups_;  // or null
  std::array<BoxHierarchy, kSurfaceElementCount> trees_;
  ClusterPairs cluster_pairs_;
};

}  // namespace palpate::gpu
