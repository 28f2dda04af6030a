#include "gpu/dynamics/surface_contact.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gpu/dynamics/surface_kernels.h"

namespace palpate::gpu {
namespace {

using Clock = std::chrono::steady_clock;

// Of the vertices with bounds: if more than this share were held back, it is worth looking again.
constexpr double kTruncatedShare = 0.01;
// What moves less than this in a step is not asked whether its own planes hold it back: that takes a wait.
constexpr double kCommonMoveMargins = 0.1;
// Spare of a body that lies near to itself at rest, by the harmonic mean of its edges: less, and it may go less far between detections;
// more, and more of its pairs are kept.
constexpr double kSpareEdges = 0.25;

double MillisecondsSince(Clock::time_point mark) { return std::chrono::duration<double, std::milli>(Clock::now() - mark).count(); }

absl::Status CheckOptions(const SurfaceOptions& options) {
  if (options.margin_m > 0 && options.stiffness_n_per_m >= 0 && options.friction >= 0 && options.reserve_m >= 0 &&
      options.max_detections >= 1) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat("surface contact: margin ", options.margin_m, " m, stiffness ", options.stiffness_n_per_m,
                                                 " N/m, friction ", options.friction, ", reserve ", options.reserve_m, " m, detections ",
                                                 options.max_detections));
}

}  // namespace

SurfaceContacts::SurfaceContacts(const TissueLayout& layout, const SurfaceOptions& options, const SurfaceSurroundings& scene,
                                 double slack_share)
    : layout_(layout),
      options_(options),
      vertex_count_(layout.vertex_count),
      surface_(layout, slack_share),
      reach_(options),
      filter_(layout, scene),
      pairs_(layout, scene, options),
      components_(layout, scene, options) {}

absl::StatusOr<std::unique_ptr<SurfaceContacts>> SurfaceContacts::Create(Queue& queue, const TissueLayout& layout,
                                                                         const SurfaceOptions& options, const SurfaceSurroundings& scene,
                                                                         uint32_t partials, double slack_share, SurfaceContacts* old) {
  PALPATE_RETURN_IF_ERROR(CheckOptions(options));
  std::unique_ptr<SurfaceContacts> contacts(new SurfaceContacts(layout, options, scene, slack_share));
  PALPATE_RETURN_IF_ERROR(contacts->Init(queue, partials, old));
  return contacts;
}

absl::Status SurfaceContacts::Init(Queue& queue, uint32_t partials, SurfaceContacts* old) {
  const std::shared_ptr<Context>& context = queue.context();
  if (old != nullptr) {
    detector_ = std::move(old->detector_);
    self_pairs_ = std::move(old->self_pairs_);
  } else {
    PALPATE_ASSIGN_OR_RETURN(detector_, ProximityDetector::Create(context));
    PALPATE_ASSIGN_OR_RETURN(self_pairs_, SelfPairs::Create(context, options_.self_pairs));
  }
  const auto part_of = [&](auto part) -> decltype(&(old->*part)) { return old == nullptr ? nullptr : &(old->*part); };
  PALPATE_RETURN_IF_ERROR(filter_.Init(queue, options_, part_of(&SurfaceContacts::filter_)));
  PALPATE_RETURN_IF_ERROR(BuildSurface(queue));
  PALPATE_RETURN_IF_ERROR(reach_.Init(queue, part_of(&SurfaceContacts::reach_)));
  PALPATE_RETURN_IF_ERROR(boxes_.Init(queue, part_of(&SurfaceContacts::boxes_)));
  PALPATE_RETURN_IF_ERROR(check_.Init(queue, vertex_count_, partials, part_of(&SurfaceContacts::check_)));
  PALPATE_RETURN_IF_ERROR(tangles_.Init(queue, vertex_count_, part_of(&SurfaceContacts::tangles_)));
  PALPATE_RETURN_IF_ERROR(components_.Init(queue, part_of(&SurfaceContacts::components_)));
  PALPATE_ASSIGN_OR_RETURN(x_sweep_, DeviceBuffer<Float4>::Create(context, vertex_count_, "surface sweep start"));
  PALPATE_ASSIGN_OR_RETURN(detected_, DeviceBuffer<Float4>::Create(context, vertex_count_, "surface detected"));
  PALPATE_ASSIGN_OR_RETURN(certified_, DeviceBuffer<Float4>::Create(context, vertex_count_, "surface certified"));
  PALPATE_ASSIGN_OR_RETURN(truncated_, DeviceBuffer<uint8_t>::Create(context, vertex_count_, "surface truncated"));
  return pairs_.Init(queue, surface_.vertex_groups(), part_of(&SurfaceContacts::pairs_));
}

absl::Status SurfaceContacts::BuildSurface(Queue& queue) {
  PALPATE_ASSIGN_OR_RETURN(const std::vector<UInt2> edges, surface_.Build(queue));
  if (reach_.SetEdges(edges, layout_.rest_m.values())) PALPATE_RETURN_IF_ERROR(reach_.Upload(queue));
  body_edge_m_.assign(layout_.self_collision.size(), 0);
  std::vector<double> sums_per_m(body_edge_m_.size(), 0), counts(body_edge_m_.size(), 0);
  for (const UInt2& e : edges) {
    const uint32_t group = surface_.vertex_groups()[e.x];
    if (group == SurfaceTopology::kNoGroup || (group & PALPATE_GROUP_SELF) == 0) continue;
    const Float4 &a = layout_.rest_m.values()[e.x], &b = layout_.rest_m.values()[e.y];
    sums_per_m[group & PALPATE_GROUP_MASK] += 1 / std::hypot(a.x - b.x, a.y - b.y, a.z - b.z);
    counts[group & PALPATE_GROUP_MASK] += 1;
  }
  for (size_t b = 0; b < counts.size(); ++b) body_edge_m_[b] = counts[b] > 0 ? counts[b] / sums_per_m[b] : 0;
  return SetDetectors();
}

absl::Status SurfaceContacts::SetDetectors() {
  boxes_.Invalidate();
  are_bodies_known_ = false;
  filter_.SetSurface(surface_.device());
  std::vector<uint8_t> meets_itself(layout_.self_collision.size(), 0), has_surface(layout_.self_collision.size(), 0);
  for (const uint32_t group : surface_.vertex_groups()) {
    if (group == SurfaceTopology::kNoGroup) continue;
    has_surface[group & PALPATE_GROUP_MASK] = 1;
    if ((group & PALPATE_GROUP_SELF) != 0) meets_itself[group & PALPATE_GROUP_MASK] = 1;
  }
  self_pairs_.SetBodies(std::move(meets_itself), std::move(has_surface));
  return detector_.SetSurface(surface_.device());
}

void SurfaceContacts::SetFollower(SurfaceFollower* follower) {
  follower_ = follower;
  are_bodies_known_ = false;
  filter_.SetFollower(follower);
}

absl::StatusOr<bool> SurfaceContacts::Follow(const TissueLayoutDelta& delta, RunWriter* writer) {
  PALPATE_ASSIGN_OR_RETURN(const bool fits, surface_.Follow(delta, writer));
  if (!fits) return false;
  PALPATE_RETURN_IF_ERROR(SetDetectors());
  if (reach_.FollowEdges(surface_.edges(), layout_.rest_m.values())) PALPATE_RETURN_IF_ERROR(reach_.AddTo(writer));
  PALPATE_RETURN_IF_ERROR(pairs_.Follow(delta, surface_.vertex_groups(), writer));
  PALPATE_RETURN_IF_ERROR(tangles_.Follow(delta.slots, writer));
  components_.Invalidate();
  return true;
}

absl::Status SurfaceContacts::ForgetStep(Queue& queue, const DeviceBuffer<Float4>& x) {
  statistics_ = {.intersections = tangles_.intersections()};
  PALPATE_RETURN_IF_ERROR(queue.Copy(x, detected_, vertex_count_));
  PALPATE_RETURN_IF_ERROR(queue.Copy(x, certified_, vertex_count_));
  PALPATE_RETURN_IF_ERROR(queue.Zero(truncated_));
  PALPATE_RETURN_IF_ERROR(components_.ForgetMoves(queue));
  return ClearPairs(queue);
}

absl::Status SurfaceContacts::GoOn(Queue& queue, const RunWriter::Written&, const DeviceBuffer<Float4>& x, bool may_cross) {
  PALPATE_RETURN_IF_ERROR(ForgetStep(queue, x));
  const bool look = may_cross || tangles_.intersections() > 0 || options_.check_intersections;
  return look ? FindTangles(queue, x) : absl::OkStatus();
}

absl::Status SurfaceContacts::Reset(Queue& queue, const DeviceBuffer<Float4>& x) {
  PALPATE_RETURN_IF_ERROR(tangles_.Forget(queue));
  PALPATE_RETURN_IF_ERROR(ForgetStep(queue, x));
  PALPATE_RETURN_IF_ERROR(LookAhead(queue, x, x));
  PALPATE_ASSIGN_OR_RETURN(const Moves moves, CheckMoves(queue, x, truncated_));
  // Positions beyond all bounds are for the step to report, which will not keep what becomes of them.
  return moves.bad == 0 ? FindTangles(queue, x) : absl::OkStatus();
}

absl::Status SurfaceContacts::SetSelfCollision(Queue& queue, bool on) {
  return surface_.SetSelfCollision(on) ? BuildSurface(queue) : absl::OkStatus();
}

absl::Status SurfaceContacts::SaveState(Queue& queue, StateWriter& archive) {
  // All members, so that a new one is not forgotten: what is not used here is of a step, an option, or keeps no state.
  [[maybe_unused]] auto& [layout, options, vertex_count, follower, statistics, is_idle, expects_detection, are_bodies_known, has_never_cut,
                          body_edge_m, surface, reach, boxes, check, filter, tangles, pairs, components, detector, self_pairs, x_sweep,
                          detected, certified, truncated] = *this;
  archive.Enter("SurfaceContacts");
  archive(statistics, reach);
  surface.SaveState(archive);
  PALPATE_RETURN_IF_ERROR(components.SaveState(queue, archive));
  PALPATE_RETURN_IF_ERROR(tangles.SaveState(queue, archive));
  return pairs.SaveState(queue, archive);
}

absl::Status SurfaceContacts::LoadState(Queue& queue, StateReader& archive, const DeviceBuffer<Float4>& x) {
  SurfaceStatistics statistics;
  archive.Enter("SurfaceContacts");
  archive(statistics, reach_);
  PALPATE_RETURN_IF_ERROR(archive.status());
  PALPATE_RETURN_IF_ERROR(surface_.LoadState(queue, archive));
  PALPATE_RETURN_IF_ERROR(SetDetectors());
  PALPATE_RETURN_IF_ERROR(reach_.Upload(queue));
  PALPATE_RETURN_IF_ERROR(ForgetStep(queue, x));
  PALPATE_RETURN_IF_ERROR(components_.LoadState(queue, archive));
  PALPATE_RETURN_IF_ERROR(tangles_.LoadState(queue, archive));
  PALPATE_RETURN_IF_ERROR(pairs_.LoadState(queue, archive));
  statistics_ = statistics;
  return absl::OkStatus();
}

absl::Status SurfaceContacts::MakePairs(Queue& queue, bool are_same) {
  statistics_.contacts = detector_.contact_count();
  return pairs_.Make(queue, detector_.contacts(), reach_.params(), detected_, tangles_.tangled(), follower_, are_same);
}

absl::Status SurfaceContacts::ClearPairs(Queue& queue) {
  statistics_.contacts = 0;
  return pairs_.Clear(queue);
}

absl::StatusOr<Moves> SurfaceContacts::CheckMoves(Queue& queue, const DeviceBuffer<Float4>& x, const DeviceBuffer<uint8_t>& touched) {
  return check_.Run(queue, reach_, surface_.device()->vertex_groups, certified_, x, touched);
}

absl::StatusOr<bool> SurfaceContacts::AreBodiesApart(Queue& queue, const CertifiedPositions& from, const DeviceBuffer<Float4>& to,
                                                     float distance_m) {
  return boxes_.AreApart(queue, surface_.vertex_groups(), layout_.self_collision.size(), from.x(), to, distance_m);
}

/// Of bodies that lie nearer to themselves at rest than a detection looks, by their edges. Not of those that cuts may part: lips are
/// near at rest, and act from farther on than half of that.
std::vector<float> SurfaceContacts::SparesOf(const std::vector<uint8_t>& is_never_cut) const {
  std::vector<float> spare_m(is_never_cut.size(), 0);
  for (size_t b = 0; b < std::min(spare_m.size(), body_edge_m_.size()); ++b) {
    const bool is_crowded = is_never_cut[b] != 0 && body_edge_m_[b] > 0 && body_edge_m_[b] < reach_.range_m();
    if (is_crowded) spare_m[b] = static_cast<float>(kSpareEdges * body_edge_m_[b]);
  }
  return spare_m;
}

ProximityRest SurfaceContacts::RestOfPairs() const {
  if (!reach_.has_spare()) return {};
  return {.positions_m = pairs_.rest().view(), .spare_m = reach_.spare().view()};
}

absl::Status SurfaceContacts::LookAhead(Queue& queue, const DeviceBuffer<Float4>& x_start, const DeviceBuffer<Float4>& x) {
  if (!are_bodies_known_) {
    std::vector<uint32_t> is_whole(layout_.self_collision.size(), 0);
    std::vector<uint8_t> is_never_cut(layout_.self_collision.size(), 0);
    const std::vector<uint32_t>& groups = surface_.vertex_groups();
    for (uint32_t v = 0; v < groups.size() && follower_ != nullptr; ++v) {
      if (groups[v] == SurfaceTopology::kNoGroup) continue;
      if (follower_->MovesAsWhole(v)) is_whole[groups[v] & PALPATE_GROUP_MASK] = 1;
      if (follower_->IsNeverCut(v)) is_never_cut[groups[v] & PALPATE_GROUP_MASK] = 1;
    }
    has_never_cut_ = std::ranges::count(is_never_cut, 1) > 0;
    PALPATE_RETURN_IF_ERROR(reach_.SetBodies(queue, is_whole, SparesOf(is_never_cut)));
    are_bodies_known_ = true;
  }
  return reach_.LookAhead(queue, *surface_.device(), x_start, x);
}

absl::Status SurfaceContacts::LookEverywhere(Queue& queue, const DeviceBuffer<Float4>& x) {
  const absl::Status status = detector_.Run(queue, x, reach_.range_m(), reach_.reaches(), &self_pairs_, RestOfPairs());
  statistics_.self_searches += self_pairs_.self_bodies();
  statistics_.listed_searches += self_pairs_.listed_bodies();
  statistics_.renewed_lists += self_pairs_.is_renewed() ? 1 : 0;
  return status;
}

absl::Status SurfaceContacts::Detect(Queue& queue, const CertifiedPositions& x, bool at_start, Look look) {
  const Clock::time_point mark = Clock::now();
  if (follower_ != nullptr && !at_start) PALPATE_RETURN_IF_ERROR(follower_->Detected(queue));
  if (look == Look::kAlreadyLooked) {
    ++statistics_.detections;
  } else if (look == Look::kKnownPairs) {
    PALPATE_RETURN_IF_ERROR(reach_.Spend(queue, *surface_.device(), certified_, x.x()));
    PALPATE_RETURN_IF_ERROR(detector_.Refresh(queue, x.x()));
  } else {
    ++statistics_.detections;
    PALPATE_RETURN_IF_ERROR(look == Look::kStaleBodies
                                ? detector_.RunAgain(queue, x.x(), reach_.range_m(), reach_.reaches(), reach_.stale(), RestOfPairs())
                                : LookEverywhere(queue, x.x()));
  }
  PALPATE_RETURN_IF_ERROR(queue.Copy(x.x(), detected_, vertex_count_));
  PALPATE_RETURN_IF_ERROR(queue.Copy(x.x(), certified_, vertex_count_));
  PALPATE_RETURN_IF_ERROR(components_.ForgetMoves(queue));
  PALPATE_RETURN_IF_ERROR(MakePairs(queue, /*are_same=*/look == Look::kKnownPairs));
  statistics_.detect_ms += MillisecondsSince(mark);
  return absl::OkStatus();
}

absl::StatusOr<CertifiedPositions> SurfaceContacts::Filter(Queue& queue, const CertifiedPositions& from, MoveFilter::From where,
                                                           const DeviceBuffer<Float4>& x, const DeviceBuffer<uint8_t>& touched,
                                                           Meeting meeting) {
  const Clock::time_point mark = Clock::now();
  if (meeting == Meeting::kBeyond) PALPATE_RETURN_IF_ERROR(reach_.MarkBeyond(queue, *surface_.device(), from.x(), x));
  const auto run = [&](Meeting what) { return filter_.Run(queue, reach_, pairs_, tangles_.tangled(), from, where, x, touched, what); };
  PALPATE_ASSIGN_OR_RETURN(CertifiedPositions filtered, run(meeting));
  if (meeting == Meeting::kListed && follower_ != nullptr) {
    // Rigid bodies that are taken back leave the straight line: a vertex may be farther on the way than at its end.
    PALPATE_ASSIGN_OR_RETURN(const Moves moves, CheckMoves(queue, x, touched));
    if (moves.beyond_cap > 0) {
      PALPATE_ASSIGN_OR_RETURN(filtered, run(Meeting::kAnything));
    }
  }
  statistics_.filter_rounds = filter_.rounds();
  statistics_.filter_ms += MillisecondsSince(mark);
  return filtered;
}

absl::Status SurfaceContacts::FindTangles(Queue& queue, const DeviceBuffer<Float4>& x) {
  const Clock::time_point mark = Clock::now();
  PALPATE_RETURN_IF_ERROR(tangles_.Look(queue, *surface_.device(), x));
  statistics_.intersections = tangles_.intersections();
  statistics_.check_ms += MillisecondsSince(mark);
  return absl::OkStatus();
}

absl::Status SurfaceContacts::LiftGuess(Queue& queue, std::span<const PlaneObstacle> planes,
                                        const DeviceBuffer<PlaneObstacle>& device_planes, const DeviceBuffer<Float4>& x_start,
                                        const DeviceBuffer<Float4>& x) {
  if (!pairs_.has_cuts() || planes.empty()) return absl::OkStatus();
  PALPATE_RETURN_IF_ERROR(components_.Find(queue));
  // The detection is about to be set anew, and no sweep has been made.
  return components_.Lift(queue, reach_.params(), planes, device_planes,
                          {.x = &x, .x_start = &x_start, .detected = &detected_, .x_before = &x_sweep_, .x_before2 = &x_sweep_});
}

absl::StatusOr<bool> SurfaceContacts::IsWithinPlanes(Queue& queue, const DeviceBuffer<Float4>& x) {
  PALPATE_RETURN_IF_ERROR(queue.Copy(x, x_sweep_, vertex_count_));
  PALPATE_RETURN_IF_ERROR(pairs_.BoundMoves(queue, detected_, x, truncated_));
  PALPATE_ASSIGN_OR_RETURN(const Moves bounded, CheckMoves(queue, x, truncated_));
  PALPATE_RETURN_IF_ERROR(queue.Copy(x_sweep_, x, vertex_count_));
  PALPATE_RETURN_IF_ERROR(queue.Zero(truncated_));
  return bounded.truncated == 0;
}

absl::Status SurfaceContacts::BoundGuess(Queue& queue, const DeviceBuffer<Float4>& x) {
  PALPATE_RETURN_IF_ERROR(pairs_.BoundMoves(queue, detected_, x, truncated_));
  if (follower_ == nullptr) return absl::OkStatus();
  return follower_->Bound(queue, surface_.device()->vertex_groups, reach_.caps(), detected_, pairs_.clear_m(), pairs_.entry_begins(),
                          pairs_.planes(), x, truncated_);
}

absl::StatusOr<std::optional<SweptSurfaces>> SurfaceContacts::Begin(Queue& queue, const DeviceBuffer<Float4>& x_start,
                                                                    const DeviceBuffer<Float4>& x, const DeviceBuffer<uint8_t>& touched) {
  statistics_ = {.intersections = statistics_.intersections};
  filter_.ResetRounds();
  PALPATE_RETURN_IF_ERROR(components_.Find(queue));
  PALPATE_RETURN_IF_ERROR(queue.Zero(truncated_));
  PALPATE_RETURN_IF_ERROR(queue.Copy(x_start, detected_, vertex_count_));
  PALPATE_RETURN_IF_ERROR(queue.Copy(x_start, certified_, vertex_count_));
  PALPATE_RETURN_IF_ERROR(LookAhead(queue, x_start, x));
  const CertifiedPositions start(x_start);  // the step before ended there
  const bool asks_for_boxes = !surface_.meets_itself();
  PALPATE_RETURN_IF_ERROR(check_.Enqueue(queue, reach_, surface_.device()->vertex_groups, certified_, x, truncated_));
  if (asks_for_boxes) {
    PALPATE_RETURN_IF_ERROR(boxes_.Enqueue(queue, surface_.vertex_groups(), layout_.self_collision.size(), start.x(), x));
  }
  // What has been asked for comes with the answer of the detection, which is not thrown away as long as steps are like the one before.
  const bool looks_ahead = expects_detection_;
  const Clock::time_point mark = Clock::now();
  const absl::Status looked = looks_ahead ? LookEverywhere(queue, start.x()) : queue.FinishBlocking();
  statistics_.detect_ms += looks_ahead ? MillisecondsSince(mark) : 0;
  const bool has_waited = looked.ok() && surface_.device()->triangle_count > 0;
  if (!has_waited) PALPATE_RETURN_IF_ERROR(queue.FinishBlocking());
  const Moves moves = check_.Take();
  is_idle_ = moves.bad > 0;
  if (!is_idle_ && asks_for_boxes) is_idle_ = boxes_.AreApart(reach_.range_m());
  expects_detection_ = !is_idle_ && moves.beyond_cap == 0;
  if (moves.bad > 0) {
    PALPATE_RETURN_IF_ERROR(ClearPairs(queue));
    return std::nullopt;
  }
  const SweptSurfaces swept(*this, x_start, x, touched);
  if (is_idle_) {
    PALPATE_RETURN_IF_ERROR(ClearPairs(queue));
    return swept;
  }
  const bool goes_beyond = moves.beyond_cap > 0;
  bool goes_far = goes_beyond;
  if (!goes_beyond) {
    PALPATE_RETURN_IF_ERROR(looked);
    PALPATE_RETURN_IF_ERROR(Detect(queue, start, /*at_start=*/true, looks_ahead ? Look::kAlreadyLooked : Look::kEverything));
    // The bounds are on moves in the world.
    if (pairs_.has_cuts()) {
      // Lips almost in touch would hold back the one that goes ahead of the other when both move.
      PALPATE_ASSIGN_OR_RETURN(const bool is_within, IsWithinPlanes(queue, x));
      goes_far = !is_within;
    } else if (has_never_cut_ && moves.longest_m > kCommonMoveMargins * options_.margin_m) {
      // A few vertices of a NURBS shell hold its control points, and all that lies between them. Of triangle shells and tissue they are
      // held alone.
      PALPATE_ASSIGN_OR_RETURN(goes_far, pairs_.AreCommonMovesHeldBack(queue, *surface_.device(), detected_, x));
    }
    if (!goes_far) PALPATE_RETURN_IF_ERROR(BoundGuess(queue, x));
  }
  if (goes_far) {
    // Nothing but what was detected can meet, and be near afterwards, if no vertex goes beyond its bound.
    PALPATE_ASSIGN_OR_RETURN(const CertifiedPositions guess, Filter(queue, CertifiedPositions(certified_), MoveFilter::From::kDetection, x,
                                                                    truncated_, goes_beyond ? Meeting::kAnything : Meeting::kListed));
    PALPATE_ASSIGN_OR_RETURN(const Moves filtered, CheckMoves(queue, x, truncated_));
    statistics_.filtered_vertices = filtered.truncated;
    const bool is_known = !goes_beyond && filtered.used_up == 0;
    PALPATE_RETURN_IF_ERROR(Detect(queue, guess, /*at_start=*/false, is_known ? Look::kKnownPairs : Look::kEverything));
  }
  return swept;
}

absl::Status SurfaceContacts::MayDetectAgain(Queue& queue, const DeviceBuffer<Float4>& x_start, const DeviceBuffer<Float4>& x,
                                             const DeviceBuffer<uint8_t>& touched, bool* restarted) {
  *restarted = false;
  if (is_idle_ || statistics_.detections >= options_.max_detections) return absl::OkStatus();
  PALPATE_ASSIGN_OR_RETURN(const Moves moves, CheckMoves(queue, x, touched));
  if (moves.bad > 0 || (moves.beyond_cap == 0 && moves.truncated <= TruncatedLimit())) return absl::OkStatus();
  *restarted = true;
  if (moves.within_cap() && moves.used_up == 0) return Detect(queue, CertifiedPositions(x), /*at_start=*/false, Look::kKnownPairs);
  if (moves.beyond_cap > 0) {
    PALPATE_RETURN_IF_ERROR(
        Filter(queue, CertifiedPositions(certified_), MoveFilter::From::kDetection, x, touched, Meeting::kBeyond).status());
  }
  if (follower_ != nullptr) {
    // Of many bodies few have gone far: the pairs of the others are known.
    PALPATE_RETURN_IF_ERROR(reach_.Renew(queue, *surface_.device(), certified_, x_start, x));
    return Detect(queue, CertifiedPositions(x), /*at_start=*/false, Look::kStaleBodies);
  }
  PALPATE_RETURN_IF_ERROR(LookAhead(queue, x_start, x));
  return Detect(queue, CertifiedPositions(x), /*at_start=*/false, Look::kEverything);
}

absl::Status SurfaceContacts::Certify(Queue& queue, const DeviceBuffer<Float4>& x_start, const DeviceBuffer<Float4>& x,
                                      const DeviceBuffer<uint8_t>& touched) {
  PALPATE_ASSIGN_OR_RETURN(const Moves moves, CheckMoves(queue, x, touched));
  statistics_.truncated_vertices = moves.truncated;
  if (moves.bad > 0) return absl::OkStatus();
  const CertifiedPositions from(certified_);
  bool is_safe = moves.beyond_cap == 0;
  if (is_idle_) {
    PALPATE_ASSIGN_OR_RETURN(is_safe, AreBodiesApart(queue, from, x, 0));
  }
  const Meeting meeting = is_idle_ ? Meeting::kAnything : Meeting::kBeyond;
  if (!is_safe) PALPATE_RETURN_IF_ERROR(Filter(queue, from, MoveFilter::From::kDetection, x, touched, meeting).status());
  return CloseStep(queue, x_start, x);
}

absl::StatusOr<bool> SurfaceContacts::CertifyFromStart(Queue& queue, const DeviceBuffer<Float4>& x_start, const DeviceBuffer<Float4>& x,
                                                       const DeviceBuffer<uint8_t>& touched) {
  const CertifiedPositions start(x_start);
  bool is_safe = false;  // the planes of the last detection do not tell: x may have come from behind them
  Meeting meeting = Meeting::kAnything;
  if (is_idle_) {
    PALPATE_ASSIGN_OR_RETURN(is_safe, AreBodiesApart(queue, start, x, 0));
  } else {
    // Moves whose start and end are within the cap of the detection are so all the way.
    PALPATE_ASSIGN_OR_RETURN(const Moves back, CheckMoves(queue, x_start, touched));
    PALPATE_ASSIGN_OR_RETURN(const Moves there, CheckMoves(queue, x, touched));
    if (back.within_cap() && there.within_cap()) meeting = Meeting::kListed;
  }
  const uint32_t rounds = statistics_.filter_rounds;
  if (!is_safe) PALPATE_RETURN_IF_ERROR(Filter(queue, start, MoveFilter::From::kStepStart, x, touched, meeting).status());
  PALPATE_RETURN_IF_ERROR(CloseStep(queue, x_start, x));
  return statistics_.filter_rounds > rounds + 1;
}

absl::Status SurfaceContacts::CloseStep(Queue& queue, const DeviceBuffer<Float4>& x_start, const DeviceBuffer<Float4>& x) {
  if (looks_for_tangles()) PALPATE_RETURN_IF_ERROR(FindTangles(queue, x));
  return pairs_.Linearize(queue, *surface_.device(), reach_.params(), x, x_start, follower_);
}

/// Vertices that may be held back before it is worth looking again.
uint32_t SurfaceContacts::TruncatedLimit() const {
  return static_cast<uint32_t>(kTruncatedShare * std::min<uint32_t>(vertex_count_, 4 * pairs_.count()));
}

size_t SurfaceContacts::device_bytes() const {
  return reach_.params().size_bytes() + boxes_.device_bytes() + check_.device_bytes() + filter_.device_bytes() + tangles_.device_bytes() +
         pairs_.device_bytes() + components_.device_bytes() + self_pairs_.device_bytes() + x_sweep_.size_bytes() + detected_.size_bytes() +
         certified_.size_bytes() + truncated_.size_bytes();
}

absl::Status SweptSurfaces::BeforeSweep(Queue& queue) {
  SurfaceContacts& c = *contacts_;
  if (c.pairs_.count() == 0) return absl::OkStatus();
  const bool reads_all = c.follower_ != nullptr && c.follower_->ReadsSweepStart();
  PALPATE_RETURN_IF_ERROR(queue.Copy(*x_, c.x_sweep_, reads_all ? c.vertex_count_ : c.layout_.free_count));
  return c.pairs_.Linearize(queue, *c.surface_.device(), c.reach_.params(), *x_, *x_start_, c.follower_);
}

absl::StatusOr<bool> SweptSurfaces::MayDetectAgain(Queue& queue) {
  bool restarted = false;
  PALPATE_RETURN_IF_ERROR(contacts_->MayDetectAgain(queue, *x_start_, *x_, *touched_, &restarted));
  return restarted;
}

absl::Status SweptSurfaces::ShiftComponents(Queue& queue, const DeviceBuffer<float>& sums, const FreeComponents::ShiftLimit& limit,
                                            const DeviceBuffer<Float4>& x_before, const DeviceBuffer<Float4>& x_before2,
                                            const DeviceBuffer<uint32_t>& gate) {
  SurfaceContacts& c = *contacts_;
  PALPATE_RETURN_IF_ERROR(c.pairs_.Linearize(queue, *c.surface_.device(), c.reach_.params(), *x_, *x_start_, c.follower_));
  return c.components_.Shift(queue, c.reach_.params(), c.pairs_, sums, limit,
                             {.x = x_, .x_start = x_start_, .detected = &c.detected_, .x_before = &x_before, .x_before2 = &x_before2},
                             gate);
}

bool SweptSurfaces::can_run_ahead() const { return !contacts_->is_idle_ && contacts_->follower_ == nullptr; }

absl::Status SweptSurfaces::CheckAhead(Queue& queue, StepGate& gate, const DeviceBuffer<uint32_t>& gate_buffer, uint32_t number) {
  SurfaceContacts& c = *contacts_;
  if (c.statistics_.detections >= c.options_.max_detections) return absl::OkStatus();
  PALPATE_RETURN_IF_ERROR(c.check_.Launch(queue, c.reach_, c.surface_.device()->vertex_groups, c.certified_, *x_, *touched_));
  return gate.JudgeMoves(queue, gate_buffer, c.check_.partials(), c.TruncatedLimit(), /*asks_for_bad=*/false, number);
}

absl::StatusOr<CertifiedSurfaces> SweptSurfaces::CertifyAhead(Queue& queue, StepGate& gate, const DeviceBuffer<uint32_t>& gate_buffer) {
  SurfaceContacts& c = *contacts_;
  PALPATE_RETURN_IF_ERROR(c.check_.Enqueue(queue, c.reach_, c.surface_.device()->vertex_groups, c.certified_, *x_, *touched_));
  PALPATE_RETURN_IF_ERROR(gate.JudgeMoves(queue, gate_buffer, c.check_.partials(), UINT32_MAX, /*asks_for_bad=*/true, StepGate::kEnd));
  PALPATE_RETURN_IF_ERROR(c.pairs_.Linearize(queue, *c.surface_.device(), c.reach_.params(), *x_, *x_start_, nullptr));
  if (c.looks_for_tangles()) PALPATE_RETURN_IF_ERROR(c.tangles_.EnqueueLook(queue, *c.surface_.device(), *x_));
  return CertifiedSurfaces(c, *x_start_, *x_, *touched_);
}

absl::Status CertifiedSurfaces::TakeChecks(Queue& queue) {
  SurfaceContacts& c = *contacts_;
  c.statistics_.truncated_vertices = c.check_.Take().truncated;
  if (!c.looks_for_tangles()) return absl::OkStatus();
  PALPATE_RETURN_IF_ERROR(c.tangles_.TakeLook(queue, *c.surface_.device(), *x_));
  c.statistics_.intersections = c.tangles_.intersections();
  return absl::OkStatus();
}

absl::StatusOr<CertifiedSurfaces> SweptSurfaces::Certify(Queue& queue) && {
  PALPATE_RETURN_IF_ERROR(contacts_->Certify(queue, *x_start_, *x_, *touched_));
  return CertifiedSurfaces(*contacts_, *x_start_, *x_, *touched_);
}

absl::StatusOr<bool> CertifiedSurfaces::CertifyFromStart(Queue& queue) {
  return contacts_->CertifyFromStart(queue, *x_start_, *x_, *touched_);
}

absl::Status CertifiedSurfaces::EnqueueReport(Queue& queue) {
  return contacts_->pairs_.EnqueueReport(queue, contacts_->reach_.params(), *x_, *x_start_);
}

absl::StatusOr<std::span<const SurfaceReport>> CertifiedSurfaces::TakeReport(Queue& queue) {
  SurfaceContacts& c = *contacts_;
  PALPATE_ASSIGN_OR_RETURN(const std::span<const SurfaceReport> reports, c.pairs_.TakeReport(queue, c.reach_.params(), *x_, *x_start_));
  c.statistics_.acting = static_cast<uint32_t>(reports.size());
  return reports;
}

}  // namespace palpate::gpu
