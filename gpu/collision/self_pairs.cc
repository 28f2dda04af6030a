#include "gpu/collision/self_pairs.h"

#include <algorithm>
#include <utility>

#include "gpu/collision/box_hierarchy.h"
#include "gpu/runtime/kernel_source.h"

namespace palpate::gpu {
namespace kernels {
extern const KernelSource self_pairs;
}
namespace {

constexpr uint32_t kWidth = BoxHierarchy::kWidth;
constexpr size_t kMostBodies = 256;  // beyond it clusters are not made body by body
// A search for a list tests up to three times as many pairs as one without, and one with a list a fifth: so a list pays from some uses on.
constexpr uint32_t kLeastUses = 4;
constexpr uint32_t kMaxRest = 16;
// What a list reaches beyond the range, as a share of it: for so many uses, as fast as spreads grew.
constexpr float kLeastSlackShare = 0.25F, kMostSlackShare = 1;
constexpr float kWantedUses = 8;
// Spreads are expected to grow by half as much again as they did.
constexpr float kExpectedGrowth = 1.5F;

}  // namespace

absl::StatusOr<SelfPairs> SelfPairs::Create(const std::shared_ptr<Context>& context, SelfPairsUse use) {
  SelfPairs pairs;
  pairs.context_ = context;
  pairs.use_ = use;
  const KernelSource& source = kernels::self_pairs;
  PALPATE_ASSIGN_OR_RETURN(pairs.boxes_kernel_, context->CreateKernel(source, "self_boxes"));
  PALPATE_ASSIGN_OR_RETURN(pairs.spreads_kernel_, context->CreateKernel(source, "self_spreads"));
  PALPATE_ASSIGN_OR_RETURN(pairs.groups_kernel_, context->CreateKernel(source, "self_groups"));
  PALPATE_ASSIGN_OR_RETURN(pairs.reaches_kernel_, context->CreateKernel(source, "self_reaches"));
  PALPATE_ASSIGN_OR_RETURN(pairs.keep_kernel_, context->CreateKernel(source, "self_keep"));
  PALPATE_ASSIGN_OR_RETURN(pairs.begin_kernel_, context->CreateKernel(source, "self_begin"));
  return pairs;
}

void SelfPairs::SetBodies(std::vector<uint8_t> meets_itself, std::vector<uint8_t> has_surface) {
  bodies_.assign(meets_itself.size(), {});
  surface_bodies_ = self_bodies_ = listed_bodies_ = 0;
  for (size_t b = 0; b < bodies_.size(); ++b) {
    bodies_[b].meets_itself = meets_itself[b] != 0 && has_surface[b] != 0;
    surface_bodies_ += has_surface[b] != 0 ? 1 : 0;
    self_bodies_ += bodies_[b].meets_itself ? 1 : 0;
  }
  count_ = served_ = 0;
  are_groups_known_ = false;
  used_written_.clear();
}

/// The largest spread with which the list reaches. Distances then and now may each be off by some roundings of the range.
float SelfPairs::SlackFor(float range_m) const { return list_range_m_ * (1 - 4e-5F) - range_m * (1 + 4e-5F); }

/// A body has lost its list. It gets none for a while if no list would last, or the one that it had did not though it should have.
void SelfPairs::Expire(Body& body, float range_m) {
  body.has_list = false;
  if (use_ == SelfPairsUse::kAlways) return;
  const float needed_m = kLeastUses * body.growth_m;
  const bool can_last = needed_m <= kMostSlackShare * range_m;
  const bool was_too_short = needed_m > list_range_m_ - range_m;
  if (can_last && (served_ >= kLeastUses || was_too_short)) {
    if (served_ >= kLeastUses) body.next_rest = 1;
    return;
  }
  if (!can_last) body.growth_m = 0;  // then it is tried with the cheapest list
  body.rest = body.next_rest;
  body.next_rest = std::min(2 * body.next_rest, kMaxRest);
}

SelfPairs::Plan SelfPairs::MakePlan(float range_m) {
  listed_bodies_ = 0;
  is_renewed_ = false;
  if (use_ == SelfPairsUse::kNever || self_bodies_ == 0 || bodies_.size() > kMostBodies) return Plan::kNothing;
  const float slack_m = SlackFor(range_m);
  uint32_t used = 0;
  bool is_due = false;
  for (Body& body : bodies_) {
    body.is_used = false;
    if (!body.meets_itself) continue;
    if (body.has_list) {
      const float expected_m = body.spread_m + kExpectedGrowth * body.growth_m;
      if (body.is_near && expected_m <= slack_m) {
        body.is_used = true;
        ++used;
        continue;
      }
      Expire(body, range_m);
    }
    if (body.rest > 0) {
      --body.rest;
    } else {
      is_due = true;
    }
  }
  if (is_due) {
    float share = kLeastSlackShare;
    for (const Body& body : bodies_) {
      if (body.meets_itself && body.rest == 0) share = std::max(share, kWantedUses * body.growth_m / range_m);
    }
    list_range_m_ = (1 + std::min(share, kMostSlackShare)) * range_m;
    for (Body& body : bodies_) {
      body.is_used = body.meets_itself && body.rest == 0;
      if (kExpectedGrowth * body.growth_m > SlackFor(range_m)) body.growth_m = 0;  // no list is that long: it is tried once
    }
    return Plan::kRenew;
  }
  if (used == 0) return Plan::kNothing;
  listed_bodies_ = used;
  ++served_;
  return Plan::kUse;
}

/// Boxes of all parts.
absl::Status SelfPairs::EnqueueBoxes(Queue& queue, const DeviceSurface& surface, BufferView<Float4> from, BufferView<Float4> to,
                                     const DeviceBuffer<float>& boxes) {
  const auto body_count = static_cast<uint32_t>(bodies_.size());
  PALPATE_RETURN_IF_ERROR(queue.Launch(begin_kernel_, {stride_ - cluster_count_, 0}, Arg("cluster_count", cluster_count_),
                                       Arg("stride", stride_), Arg("body_count", body_count), Arg("part_bodies", part_bodies_),
                                       Arg("boxes", boxes), Arg("spreads", As<uint32_t>(spreads_))));
  return queue.Launch(boxes_kernel_, {cluster_count_, 0}, Arg("cluster_count", cluster_count_), Arg("stride", stride_),
                      Arg("elements", elements_), Arg("triangles", surface.triangles), Arg("groups", surface.groups), Arg("from", from),
                      Arg("to", to), Arg("part_bodies", part_bodies_), Arg("boxes", boxes), Arg("spreads", As<uint32_t>(spreads_)));
}

absl::Status SelfPairs::EnqueueSpreads(Queue& queue, const DeviceSurface& surface, BufferView<Float4> positions_m) {
  PALPATE_RETURN_IF_ERROR(WriteUsed(queue));
  PALPATE_RETURN_IF_ERROR(EnqueueBoxes(queue, surface, positions_, positions_m, moves_));
  const uint32_t part_count = cluster_count_ + static_cast<uint32_t>(bodies_.size());
  PALPATE_RETURN_IF_ERROR(queue.Launch(spreads_kernel_, {part_count, 0}, Arg("part_count", part_count), Arg("stride", stride_),
                                       Arg("part_bodies", part_bodies_), Arg("moves", moves_), Arg("places", places_),
                                       Arg("list_range_m", list_range_m_), Arg("spreads", As<uint32_t>(spreads_))));
  spreads_host_.resize(spreads_.count());
  return queue.EnqueueRead(spreads_, spreads_host_);
}

bool SelfPairs::TakeSpreads(float range_m) {
  const float slack_m = SlackFor(range_m);
  bool reaches = true;
  for (size_t b = 0; b < bodies_.size(); ++b) {
    Body& body = bodies_[b];
    if (!body.is_used) continue;
    body.is_near = spreads_host_[b] <= slack_m;  // false for what is not a number
    reaches = reaches && body.is_near;
    body.growth_m = std::max(0.0F, spreads_host_[b] - body.spread_m);
    body.spread_m = spreads_host_[b];
  }
  if (!reaches) --served_;
  return reaches;
}

absl::Status SelfPairs::WriteUsed(Queue& queue) {
  used_host_.resize(bodies_.size());
  for (size_t b = 0; b < bodies_.size(); ++b) used_host_[b] = bodies_[b].is_used ? 1 : 0;
  if (used_host_ == used_written_) return absl::OkStatus();
  are_groups_known_ = false;
  used_written_ = used_host_;
  PALPATE_RETURN_IF_ERROR(Grow(context_, used_, bodies_.size(), "bodies with known pairs"));
  return queue.Write(used_, used_written_);
}

absl::StatusOr<BufferView<uint32_t>> SelfPairs::Groups(Queue& queue, const DeviceSurface& surface) {
  if (!are_groups_known_) {
    PALPATE_RETURN_IF_ERROR(Grow(context_, groups_, surface.triangle_count, "groups of triangles"));
    PALPATE_RETURN_IF_ERROR(queue.Launch(groups_kernel_, {surface.triangle_count, 0}, Arg("triangle_count", surface.triangle_count),
                                         Arg("groups", surface.groups), Arg("used", used_), Arg("changed", groups_)));
    are_groups_known_ = true;
  }
  return groups_.view();
}

bool SelfPairs::has_others() const { return surface_bodies_ > 1; }

absl::StatusOr<BufferView<float>> SelfPairs::Reaches(Queue& queue, const DeviceSurface& surface, BufferView<float> reaches_m,
                                                     float range_m) {
  const auto body_count = static_cast<uint32_t>(bodies_.size());
  PALPATE_RETURN_IF_ERROR(WriteUsed(queue));
  PALPATE_RETURN_IF_ERROR(Grow(context_, reaches_, std::max(body_count, surface.body_count), "reaches of lists"));
  PALPATE_RETURN_IF_ERROR(queue.Launch(reaches_kernel_, {body_count, 0}, Arg("body_count", body_count), Arg("used", used_),
                                       Arg("own_reaches", reaches_m), Arg("reach_m", 0.5F * range_m),
                                       Arg("list_reach_m", 0.5F * list_range_m_), Arg("reaches", reaches_)));
  return reaches_.view();
}

absl::Status SelfPairs::KeepPlaces(Queue& queue, const DeviceSurface& surface, const ElementClusters& clusters,
                                   BufferView<Float4> positions_m) {
  const uint32_t element_count = kWidth * clusters.count;
  cluster_count_ = clusters.count;
  stride_ = (cluster_count_ + static_cast<uint32_t>(bodies_.size()) + kWidth - 1) / kWidth * kWidth;
  PALPATE_RETURN_IF_ERROR(Grow(context_, positions_, surface.vertex_count, "positions of a list"));
  PALPATE_RETURN_IF_ERROR(Grow(context_, elements_, element_count, "clusters of a list"));
  PALPATE_RETURN_IF_ERROR(Grow(context_, part_bodies_, stride_, "bodies of parts"));
  PALPATE_RETURN_IF_ERROR(Grow(context_, moves_, size_t{6} * stride_, "moves of parts"));
  PALPATE_RETURN_IF_ERROR(Grow(context_, places_, size_t{6} * stride_, "places of parts"));
  PALPATE_RETURN_IF_ERROR(Grow(context_, spreads_, bodies_.size(), "moves within bodies"));
  PALPATE_RETURN_IF_ERROR(queue.Launch(keep_kernel_, {std::max(surface.vertex_count, element_count), 0},
                                       Arg("vertex_count", surface.vertex_count), Arg("element_count", element_count),
                                       Arg("positions", positions_m), Arg("elements", clusters.elements), Arg("kept_positions", positions_),
                                       Arg("kept_elements", elements_)));
  return EnqueueBoxes(queue, surface, {}, positions_m, places_);
}

void SelfPairs::Renewed(uint32_t count) {
  count_ = count;
  served_ = 0;
  is_renewed_ = true;
  for (Body& body : bodies_) {
    body.has_list = body.is_near = body.is_used;
    body.spread_m = 0;
  }
}

void SelfPairs::GiveUp() {
  count_ = served_ = 0;
  for (Body& body : bodies_) {
    body.rest = body.is_used ? kMaxRest : body.rest;
    body.has_list = body.is_used = false;
  }
}

absl::Status SelfPairs::Reserve(uint32_t count) {
  if (keys_.count() >= count) return absl::OkStatus();
  return Grow(context_, keys_, std::max<size_t>(count, 4096), "list of pairs");
}

size_t SelfPairs::device_bytes() const {
  return keys_.size_bytes() + positions_.size_bytes() + used_.size_bytes() + groups_.size_bytes() + elements_.size_bytes() +
         part_bodies_.size_bytes() + spreads_.size_bytes() + reaches_.size_bytes() + moves_.size_bytes() + places_.size_bytes();
}

}  // namespace palpate::gpu
