#include "gpu/collision/candidate_pairs.h"

#include <array>
#include <utility>

#include "gpu/collision/body_candidates.h"
#include "gpu/collision/tree_candidates.h"

namespace palpate::gpu {
namespace {

// From so many bodies on it pays to compare bodies first ...
constexpr uint32_t kManyBodies = 32;
// ... if none has so many triangles that its clusters are better found in a tree than one by one.
constexpr uint32_t kSmallBodyTriangles = 1024;

using Maker = absl::StatusOr<std::unique_ptr<CandidatePairs>> (*)(const std::shared_ptr<Context>& context, uint64_t max_pairs);
constexpr auto kMakers = std::to_array<Maker>({TreeCandidates::Create, BodyCandidates::Create});
static_assert(kMakers.size() == kCandidateStructures.size());

}  // namespace

CandidateStructures CandidateStructures::Create(std::shared_ptr<Context> context, uint64_t max_pairs, CandidateStructure wanted) {
  CandidateStructures structures;
  structures.context_ = std::move(context);
  structures.max_pairs_ = max_pairs;
  structures.wanted_ = wanted;
  return structures;
}

CandidateStructure CandidateStructures::Choose(const DeviceSurface& surface) const {
  if (wanted_ != CandidateStructure::kAutomatic) return wanted_;
  const bool is_many_small = surface.body_count >= kManyBodies && surface.largest_body <= kSmallBodyTriangles;
  return is_many_small ? CandidateStructure::kBodies : CandidateStructure::kTree;
}

absl::StatusOr<CandidatePairs*> CandidateStructures::Get(CandidateStructure structure) {
  const auto i = static_cast<size_t>(structure) - static_cast<size_t>(kCandidateStructures.front());
  if (made_[i] == nullptr) {
    PALPATE_ASSIGN_OR_RETURN(made_[i], kMakers[i](context_, max_pairs_));
  }
  return made_[i].get();
}

}  // namespace palpate::gpu
