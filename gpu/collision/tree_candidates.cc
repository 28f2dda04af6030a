#include "gpu/collision/tree_candidates.h"

namespace palpate::gpu {

absl::StatusOr<std::unique_ptr<CandidatePairs>> TreeCandidates::Create(const std::shared_ptr<Context>& context, uint64_t max_pairs) {
  std::unique_ptr<TreeCandidates> candidates(new TreeCandidates());
  for (BoxHierarchy& tree : candidates->trees_) {
    PALPATE_ASSIGN_OR_RETURN(tree, BoxHierarchy::Create(context));
  }
  PALPATE_ASSIGN_OR_RETURN(candidates->cluster_pairs_, ClusterPairs::Create(context, max_pairs));
  return candidates;
}

absl::Status TreeCandidates::Begin(Queue& /*queue*/, const DeviceSurface& surface, BufferView<Float4> /*starts_m*/,
                                   BufferView<Float4> /*ends_m*/, float /*distance_m*/, BufferView<uint32_t> /*wanted*/) {
  surface_ = &surface;
  triangle_groups_ = {};
  count_ = 0;
  return absl::OkStatus();
}

absl::StatusOr<ElementClusters> TreeCandidates::Add(Queue& queue, SurfaceElement kind, BufferView<Box> boxes) {
  BoxHierarchy& tree = trees_[static_cast<size_t>(kind)];
  const bool has_groups = kind == SurfaceElement::kTriangle && triangle_groups_.handle != nullptr;
  PALPATE_RETURN_IF_ERROR(tree.Build(queue, boxes, has_groups ? triangle_groups_ : surface_->GroupsOf(kind).view(), surface_->CountOf(kind),
                                     surface_->body_count));
  return ElementClusters{tree.nodes(), tree.node_groups(), tree.elements(), tree.cluster_count()};
}

absl::Status TreeCandidates::Find(Queue& queue, SurfaceElement p, SurfaceElement q) {
  count_ = 0;
  const BoxHierarchy& a = trees_[static_cast<size_t>(p)];
  const BoxHierarchy& b = trees_[static_cast<size_t>(q)];
  PALPATE_RETURN_IF_ERROR(p == q ? cluster_pairs_.FindWithin(queue, a) : cluster_pairs_.FindBetween(queue, a, b));
  count_ = cluster_pairs_.count();
  pairs_ = cluster_pairs_.pairs();
  return absl::OkStatus();
}

absl::StatusOr<ClusterPairsOnDevice> TreeCandidates::FindOnDevice(Queue& queue, SurfaceElement p, SurfaceElement q) {
  count_ = 0;
  PALPATE_RETURN_IF_ERROR(cluster_pairs_.FindOnDevice(queue, trees_[static_cast<size_t>(p)], trees_[static_cast<size_t>(q)], p == q));
  return ClusterPairsOnDevice{.pairs = cluster_pairs_.room(), .count = &cluster_pairs_.total()};
}

}  // namespace palpate::gpu
