#include "gpu/dynamics/move_filter.h"

#include <array>
#include <bit>
#include <span>
#include <utility>
#include <vector>

#include "gpu/dynamics/surface_kernels.h"

namespace palpate::gpu {
namespace {

// Rounds that shorten the moves of what meets; rounds that give up those of what still does; then all moves end before the first impact.
constexpr int kLocalRounds = 8;
constexpr int kStopRounds = 24;
constexpr int kGlobalRounds = 3;
constexpr int kSpreadPasses = 4;  // even: the result is back in its buffer
constexpr float kBeforeImpact = 0.9F;

}  // namespace

absl::Status MoveFilter::Init(Queue& queue, const SurfaceOptions& options, MoveFilter* old) {
  const std::shared_ptr<Context>& context = queue.context();
  const uint32_t n = layout_.vertex_count;
  least_gap_m_ = static_cast<float>(options.least_gap_m());
  if (old != nullptr) {
    collisions_ = std::move(old->collisions_);
  } else {
    CcdDetectorOptions apart;
    apart.separation_m = least_gap_m_;
    PALPATE_ASSIGN_OR_RETURN(collisions_, ContinuousCollisions::Create(context, apart));
  }
  const std::vector<uint32_t> ones(n, std::bit_cast<uint32_t>(1.0F));
  PALPATE_ASSIGN_OR_RETURN(shares_, CreateBufferFrom(queue, std::span(ones), "surface shares"));
  PALPATE_ASSIGN_OR_RETURN(goal_, DeviceBuffer<Float4>::Create(context, n, "surface goal"));
  PALPATE_ASSIGN_OR_RETURN(kept_, DeviceBuffer<float>::Create(context, n, "surface kept"));
  PALPATE_ASSIGN_OR_RETURN(spread_, DeviceBuffer<float>::Create(context, n, "surface spread"));
  PALPATE_ASSIGN_OR_RETURN(found_, DeviceBuffer<uint32_t>::Create(context, 2, "surface hits found"));
  constexpr std::pair<Kernel MoveFilter::*, const char*> kKernels[] = {{&MoveFilter::shorten_moves_, "shorten_moves"},
                                                                       {&MoveFilter::keep_shares_, "keep_shares"},
                                                                       {&MoveFilter::spread_shares_, "spread_shares"},
                                                                       {&MoveFilter::apply_shares_, "apply_shares"}};
  for (const auto& [kernel, name] : kKernels) {
    PALPATE_RETURN_IF_ERROR(TakeOrCreate(queue, old == nullptr ? nullptr : &(old->*kernel), name, &(this->*kernel)));
  }
  return absl::OkStatus();
}

absl::Status MoveFilter::Detect(Queue& queue, const SurfaceReach& reach, const SurfacePairs& pairs, const DeviceBuffer<Float4>& from,
                                const DeviceBuffer<Float4>& x, Meeting meeting, int round) {
  ++rounds_;
  if (meeting == Meeting::kListed) return collisions_.RunListed(queue, pairs.contacts(), from, x);
  if (round > 0) return collisions_.RunAgain(queue, from, x);
  return meeting == Meeting::kBeyond ? collisions_.RunWanted(queue, from, x, reach.beyond()) : collisions_.Run(queue, from, x);
}

/// Neighbours of what was shortened are shortened less and less, so that no element is torn.
absl::Status MoveFilter::SpreadShares(Queue& queue, const DeviceBuffer<Float4>& from) {
  const uint32_t n = layout_.vertex_count;
  PALPATE_RETURN_IF_ERROR(
      queue.Launch(keep_shares_, {n, kSurfaceGroup}, Arg("vertex_count", n), Arg("shares", shares_), Arg("kept", kept_)));
  if (layout_.free_count == 0) return absl::OkStatus();  // others keep their own
  for (int pass = 0; pass < kSpreadPasses; ++pass) {
    PALPATE_RETURN_IF_ERROR(queue.Launch(spread_shares_, {n, kSurfaceGroup}, Arg("vertex_count", n), Arg("free_count", layout_.free_count),
                                         Arg("lanes", layout_.lanes), Arg("block_range", *scene_.block_range),
                                         Arg("corner_index", *scene_.corner_index), Arg("detected", from), Arg("goal", goal_),
                                         Arg("kept", pass % 2 == 0 ? kept_ : spread_), Arg("spread", pass % 2 == 0 ? spread_ : kept_)));
  }
  return absl::OkStatus();
}

absl::StatusOr<CertifiedPositions> MoveFilter::Run(Queue& queue, const SurfaceReach& reach, const SurfacePairs& pairs,
                                                   const DeviceBuffer<uint32_t>& tangled, const CertifiedPositions& from, From where,
                                                   const DeviceBuffer<Float4>& x, const DeviceBuffer<uint8_t>& touched, Meeting meeting) {
  const uint32_t n = layout_.vertex_count;
  PALPATE_RETURN_IF_ERROR(queue.Copy(x, goal_, n));
  PALPATE_RETURN_IF_ERROR(queue.Fill(kept_, 1.0F));
  if (follower_ != nullptr) PALPATE_RETURN_IF_ERROR(follower_->FilterBegins(queue));
  for (int round = 0;; ++round) {
    PALPATE_RETURN_IF_ERROR(Detect(queue, reach, pairs, from.x(), x, meeting, round));
    const uint32_t hits = collisions_.hit_count();
    std::array<uint32_t, 2> found{0, std::bit_cast<uint32_t>(1.0F)};  // moves to shorten; time of the first impact
    if (hits > 0) {
      PALPATE_RETURN_IF_ERROR(queue.Write(found_, std::span<const uint32_t>(found)));
      PALPATE_RETURN_IF_ERROR(queue.Launch(shorten_moves_, {hits, kSurfaceGroup}, Arg("count", hits),
                                           Arg("stop", static_cast<uint32_t>(round >= kLocalRounds)), Arg("least_gap_m", least_gap_m_),
                                           Arg("p", reach.params()), Arg("hits", collisions_.hits()), Arg("detected", from.x()),
                                           Arg("x", x), Arg("tangled", tangled), Arg("shares", shares_), Arg("found", found_)));
      PALPATE_RETURN_IF_ERROR(queue.ReadBlocking(found_, std::span<uint32_t>(found)));
    }
    if (found[0] == 0) break;
    float scale = 1;
    if (round < kLocalRounds + kStopRounds) {
      PALPATE_RETURN_IF_ERROR(SpreadShares(queue, from.x()));
    } else {
      // Up to the first impact of all nothing has met. Were rounding to spoil even that, the moves end up empty, which is certified.
      PALPATE_RETURN_IF_ERROR(queue.Fill(shares_, std::bit_cast<uint32_t>(1.0F)));
      scale = round < kLocalRounds + kStopRounds + kGlobalRounds ? kBeforeImpact * std::bit_cast<float>(found[1]) : 0.0F;
    }
    PALPATE_RETURN_IF_ERROR(queue.Launch(apply_shares_, {n, kSurfaceGroup}, Arg("vertex_count", n), Arg("scale", scale),
                                         Arg("detected", from.x()), Arg("goal", goal_), Arg("kept", kept_), Arg("x", x),
                                         Arg("touched", touched)));
    if (follower_ != nullptr) {
      PALPATE_RETURN_IF_ERROR(follower_->TakeBack(queue, where == From::kStepStart, kept_, pairs.entry_begins(), x, touched));
    }
    if (scale == 0) break;
  }
  return CertifiedPositions(x);
}

size_t MoveFilter::device_bytes() const {
  return goal_.size_bytes() + shares_.size_bytes() + found_.size_bytes() + kept_.size_bytes() + spread_.size_bytes();
}

}  // namespace palpate::gpu
