#include "gpu/dynamics/obstacle_barrier.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <tuple>
#include <utility>

namespace palpate::gpu {

namespace kernels {
extern const KernelSource obstacle_barrier;
extern const KernelSource surface_contact;
}  // namespace kernels

namespace {

constexpr size_t kGroup = 64;
// Rounds that shorten the moves of what meets; then all moves end before the first impact of all; then nothing moves.
constexpr int kLocalRounds = 8;
constexpr int kGlobalRounds = 3;
constexpr int kSpreadPasses = 4;  // even: the result is back in its buffer
constexpr int kSlides = 2;        // of a capsule along what it meets
// Share of the margin that is left when a move is cut short: far below what the contact force needs, far above rounding.
constexpr double kAheadShare = 0.02;

using Vec3 = std::array<float, 3>;

Vec3 ToVec3(const Float4& v) { return {v.x, v.y, v.z}; }
Vec3 operator+(const Vec3& a, const Vec3& b) { return {a[0] + b[0], a[1] + b[1], a[2] + b[2]}; }
Vec3 operator-(const Vec3& a, const Vec3& b) { return {a[0] - b[0], a[1] - b[1], a[2] - b[2]}; }
Vec3 operator*(float s, const Vec3& a) { return {s * a[0], s * a[1], s * a[2]}; }
float Dot(const Vec3& a, const Vec3& b) { return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]; }
float Length(const Vec3& a) { return std::sqrt(Dot(a, a)); }

struct CapsulePose {
  Vec3 tip{};
  Vec3 axis{};
};

/// How far the farther end of the axis goes.
float MoveOf(const CapsulePose& from, const CapsulePose& to) {
  const Vec3 tip = to.tip - from.tip;
  return std::max(Length(tip), Length(tip + (to.axis - from.axis)));
}

CapsulePose Between(const CapsulePose& from, const CapsulePose& to, float share) {
  return {from.tip + share * (to.tip - from.tip), from.axis + share * (to.axis - from.axis)};
}

void SetXyz(const Vec3& v, Float4* out) { *out = {v[0], v[1], v[2], out->w}; }

CapsuleLeg LegOf(float radius_m, const CapsulePose& from, const CapsulePose& to) {
  CapsuleLeg leg{};
  SetXyz(from.tip, &leg.tip_from);
  leg.tip_from.w = radius_m;
  SetXyz(from.axis, &leg.axis_from);
  leg.axis_from.w = 1;
  SetXyz(to.tip, &leg.tip_to);
  SetXyz(to.axis, &leg.axis_to);
  return leg;
}

}  // namespace

absl::StatusOr<std::unique_ptr<ObstacleBarrier>> ObstacleBarrier::Create(Queue& queue, const TissueLayout& layout, uint32_t collider_count,
                                                                         uint32_t plane_count, double margin_m) {
  std::unique_ptr<ObstacleBarrier> barrier(new ObstacleBarrier);
  barrier->collider_count_ = collider_count;
  barrier->plane_count_ = plane_count;
  barrier->ahead_m_ = static_cast<float>(kAheadShare * margin_m);
  PALPATE_RETURN_IF_ERROR(barrier->Init(queue, layout));
  return barrier;
}

absl::Status ObstacleBarrier::Init(Queue& queue, const TissueLayout& layout) {
  vertex_count_ = layout.vertex_count;
  free_count_ = layout.free_count;
  triangle_count_ = layout.triangle_count;
  lanes_ = layout.lanes;
  cut_m_.resize(collider_count_);
  colliders_host_.resize(collider_count_);
  legs_host_.resize(collider_count_);
  const std::shared_ptr<Context>& context = queue.context();
  const size_t before = context->allocated_bytes();
  const std::vector<uint32_t> ones(vertex_count_, std::bit_cast<uint32_t>(1.0F));
  PALPATE_ASSIGN_OR_RETURN(shares_, CreateBufferFrom(queue, std::span<const uint32_t>(ones), "obstacle shares"));
  PALPATE_ASSIGN_OR_RETURN(goal_, DeviceBuffer<Float4>::Create(context, vertex_count_, "obstacle goal"));
  PALPATE_ASSIGN_OR_RETURN(kept_, DeviceBuffer<float>::Create(context, vertex_count_, "obstacle kept"));
  PALPATE_ASSIGN_OR_RETURN(spread_, DeviceBuffer<float>::Create(context, vertex_count_, "obstacle spread"));
  PALPATE_ASSIGN_OR_RETURN(legs_, DeviceBuffer<CapsuleLeg>::Create(context, collider_count_, "obstacle legs"));
  PALPATE_ASSIGN_OR_RETURN(counters_, DeviceBuffer<ObstacleCounters>::Create(context, 1, "obstacle counters"));
  PALPATE_ASSIGN_OR_RETURN(meetings_, DeviceBuffer<CapsuleMeeting>::Create(context, 256, "obstacle meetings"));
  device_bytes_ = context->allocated_bytes() - before;
  const ProgramDefines precision = {{"CCD_DOUBLE", context->device().has_fp64 ? "1" : "0"}};
  PALPATE_ASSIGN_OR_RETURN(make_legs_, context->CreateKernel(kernels::obstacle_barrier, "obstacle_legs", precision));
  PALPATE_ASSIGN_OR_RETURN(find_meetings_, context->CreateKernel(kernels::obstacle_barrier, "obstacle_meetings", precision));
  PALPATE_ASSIGN_OR_RETURN(find_behind_, context->CreateKernel(kernels::obstacle_barrier, "plane_meetings", precision));
  PALPATE_ASSIGN_OR_RETURN(keep_shares_, context->CreateKernel(kernels::surface_contact, "keep_shares"));
  PALPATE_ASSIGN_OR_RETURN(spread_shares_, context->CreateKernel(kernels::surface_contact, "spread_shares"));
  PALPATE_ASSIGN_OR_RETURN(apply_shares_, context->CreateKernel(kernels::surface_contact, "apply_shares"));
  return absl::OkStatus();
}

/// To counters_ and meetings_.
absl::Status ObstacleBarrier::LaunchMeetings(Queue& queue, const ObstacleScene& scene, const DeviceBuffer<Float4>& from, bool marks,
                                             bool planes) {
  const ObstacleCounters none{0, 0, 0, std::bit_cast<uint32_t>(1.0F)};
  PALPATE_RETURN_IF_ERROR(queue.Write(counters_, std::span<const ObstacleCounters>(&none, 1)));
  PALPATE_RETURN_IF_ERROR(queue.Launch(
      find_meetings_, {collider_count_ > 0 ? triangle_count_ : 0, kGroup}, Arg("triangle_count", triangle_count_),
      Arg("collider_count", collider_count_), Arg("marks", uint32_t{marks}), Arg("ahead_m", ahead_m_), Arg("triangles", *scene.triangles),
      Arg("x0", from), Arg("x1", *scene.x), Arg("legs", legs_), Arg("capacity", static_cast<uint32_t>(meetings_.count())),
      Arg("counters", counters_), Arg("meetings", meetings_), Arg("shares", shares_)));
  return queue.Launch(find_behind_, {planes && plane_count_ > 0 ? vertex_count_ : 0, kGroup}, Arg("vertex_count", vertex_count_),
                      Arg("plane_count", plane_count_), Arg("ahead_m", ahead_m_), Arg("planes", *scene.planes),
                      Arg("vertex_triangle_range", *scene.vertex_triangle_range), Arg("x0", from), Arg("x1", *scene.x),
                      Arg("counters", counters_), Arg("shares", shares_));
}

absl::Status ObstacleBarrier::CertifyAhead(Queue& queue, const ObstacleScene& scene, StepGate& gate,
                                           const DeviceBuffer<uint32_t>& gate_buffer) {
  PALPATE_RETURN_IF_ERROR(queue.Launch(make_legs_, {collider_count_, 0}, Arg("count", collider_count_), Arg("colliders", *scene.colliders),
                                       Arg("legs", legs_)));
  PALPATE_RETURN_IF_ERROR(LaunchMeetings(queue, scene, *scene.x_start, false, true));
  return gate.JudgeObstacles(queue, gate_buffer, counters_, StepGate::kEnd);
}

absl::Status ObstacleBarrier::FindMeetings(Queue& queue, const ObstacleScene& scene, const DeviceBuffer<Float4>& from, bool marks,
                                           bool planes) {
  for (;;) {
    PALPATE_RETURN_IF_ERROR(LaunchMeetings(queue, scene, from, marks, planes));
    PALPATE_RETURN_IF_ERROR(queue.ReadBlocking(counters_, std::span<ObstacleCounters>(&counters_host_, 1)));
    if (counters_host_.meetings <= meetings_.count()) break;
    device_bytes_ -= meetings_.size_bytes();  // the marks of this run stay, those of the next are the same
    PALPATE_RETURN_IF_ERROR(Grow(queue.context(), meetings_, counters_host_.meetings, "obstacle meetings"));
    device_bytes_ += meetings_.size_bytes();
  }
  meetings_host_.resize(counters_host_.meetings);
  if (meetings_host_.empty()) return absl::OkStatus();
  PALPATE_RETURN_IF_ERROR(queue.ReadBlocking(meetings_, std::span<CapsuleMeeting>(meetings_host_)));
  std::sort(meetings_host_.begin(), meetings_host_.end(), [](const CapsuleMeeting& a, const CapsuleMeeting& b) {
    return std::tie(a.collider, a.toi, a.triangle) < std::tie(b.collider, b.toi, b.triangle);
  });
  return absl::OkStatus();
}

absl::Status ObstacleBarrier::ShortenTissue(Queue& queue, const ObstacleScene& scene, int round) {
  const Range vertices{vertex_count_, kGroup};
  if (round == 0) {
    PALPATE_RETURN_IF_ERROR(queue.Copy(*scene.x, goal_, vertex_count_));
    PALPATE_RETURN_IF_ERROR(queue.Fill(kept_, 1.0F));
    if (scene.follower != nullptr) PALPATE_RETURN_IF_ERROR(scene.follower->FilterBegins(queue));
  }
  float scale = 1;
  if (round < kLocalRounds) {
    PALPATE_RETURN_IF_ERROR(
        queue.Launch(keep_shares_, vertices, Arg("vertex_count", vertex_count_), Arg("shares", shares_), Arg("kept", kept_)));
    for (int pass = 0; free_count_ > 0 && pass < kSpreadPasses; ++pass) {
      PALPATE_RETURN_IF_ERROR(queue.Launch(spread_shares_, vertices, Arg("vertex_count", vertex_count_), Arg("free_count", free_count_),
                                           Arg("lanes", lanes_), Arg("block_range", *scene.block_range),
                                           Arg("corner_index", *scene.corner_index), Arg("detected", *scene.x_start), Arg("goal", goal_),
                                           Arg("kept", pass % 2 == 0 ? kept_ : spread_), Arg("spread", pass % 2 == 0 ? spread_ : kept_)));
    }
  } else {
    PALPATE_RETURN_IF_ERROR(queue.Fill(shares_, std::bit_cast<uint32_t>(1.0F)));
    scale = round < kLocalRounds + kGlobalRounds ? 0.9F * std::bit_cast<float>(counters_host_.earliest_toi) : 0.0F;
  }
  PALPATE_RETURN_IF_ERROR(queue.Launch(apply_shares_, vertices, Arg("vertex_count", vertex_count_), Arg("scale", scale),
                                       Arg("detected", *scene.x_start), Arg("goal", goal_), Arg("kept", kept_), Arg("x", *scene.x),
                                       Arg("touched", *scene.touched)));
  return scene.follower == nullptr ? absl::OkStatus() : scene.follower->TakeBackFromStart(queue, kept_, *scene.x, *scene.touched);
}

absl::Status ObstacleBarrier::MoveCapsules(Queue& queue, const ObstacleScene& scene, std::span<const uint8_t> is_met,
                                           std::span<const uint8_t> passes) {
  std::vector<CapsulePose> at(collider_count_), to(collider_count_);
  std::vector<uint8_t> is_moving(collider_count_);  // of leaders: the tool has some way to go
  const auto end_of = [&](uint32_t leader) { return leader + colliders_host_[leader].members; };
  const auto set_legs = [&](uint32_t leader) {
    for (uint32_t c = leader; c < end_of(leader); ++c) {
      const bool is_certified = is_moving[leader] != 0 && passes[c] == 0;
      legs_host_[c] = is_certified ? LegOf(colliders_host_[c].tip_start.w, at[c], to[c]) : CapsuleLeg{};
    }
  };
  for (uint32_t leader = 0; leader < collider_count_; leader = end_of(leader)) {
    for (uint32_t c = leader; c < end_of(leader); ++c) {
      const Collider& k = colliders_host_[c];
      at[c] = {ToVec3(k.tip_start), ToVec3(k.axis_start)};
      to[c] = {ToVec3(k.tip), ToVec3(k.axis)};
      is_moving[leader] |= is_met[c];
    }
    set_legs(leader);
  }
  const std::vector<uint8_t> was_moved = is_moving;
  for (int slide = 0; slide <= kSlides; ++slide) {
    PALPATE_RETURN_IF_ERROR(queue.Write(legs_, std::span<const CapsuleLeg>(legs_host_)));
    PALPATE_RETURN_IF_ERROR(FindMeetings(queue, scene, *scene.x, false, false));
    size_t next = 0;
    bool any = false;
    for (uint32_t leader = 0; leader < collider_count_; leader = end_of(leader)) {
      float share = 1;
      const CapsuleMeeting* stop = nullptr;  // the meeting that lets the tool go least far
      for (uint32_t c = leader; c < end_of(leader); ++c) {
        const size_t first = next;
        while (next < meetings_host_.size() && meetings_host_[next].collider == c) ++next;
        if (first == next) continue;
        const float toi = meetings_host_[first].toi;  // the capsule's earliest
        const float its_share = std::max({toi - ahead_m_ / MoveOf(at[c], to[c]), 0.5F * toi, 0.0F});
        if (stop != nullptr && its_share >= share) continue;
        share = its_share;
        stop = &meetings_host_[first];
      }
      if (is_moving[leader] == 0) continue;
      for (uint32_t c = leader; c < end_of(leader); ++c) at[c] = stop == nullptr ? to[c] : Between(at[c], to[c], share);
      is_moving[leader] = 0;
      if (stop != nullptr && slide < kSlides) {
        const Vec3 normal = ToVec3(stop->normal);
        Vec3 rest = to[leader].tip - at[leader].tip;
        rest = rest - std::max(Dot(rest, normal), 0.0F) * normal;
        is_moving[leader] = Length(rest) > ahead_m_;
        for (uint32_t c = leader; c < end_of(leader); ++c) to[c] = {at[c].tip + rest, at[c].axis};
        any |= is_moving[leader] != 0;
      }
      set_legs(leader);
    }
    if (!any) break;
  }
  for (uint32_t leader = 0; leader < collider_count_; leader = end_of(leader)) {
    if (was_moved[leader] == 0) continue;
    for (uint32_t c = leader; c < end_of(leader); ++c) {
      Collider& k = colliders_host_[c];
      cut_m_[c] = MoveOf(at[c], {ToVec3(k.tip), ToVec3(k.axis)});
      SetXyz(at[c].tip, &k.tip);
      SetXyz(at[c].axis, &k.axis);
      SetXyz(at[c].tip - at[leader].tip, &k.offset);
    }
  }
  return queue.Write(*scene.colliders, std::span<const Collider>(colliders_host_));
}

absl::StatusOr<ObstacleOutcome> ObstacleBarrier::Certify(Queue& queue, const ObstacleScene& scene) {
  ObstacleOutcome outcome;
  std::fill(cut_m_.begin(), cut_m_.end(), 0.0F);
  outcome.cut_m = cut_m_;
  std::vector<uint8_t> is_met(collider_count_), passes(collider_count_);
  for (int round = 0;; ++round) {
    PALPATE_RETURN_IF_ERROR(queue.Launch(make_legs_, {collider_count_, 0}, Arg("count", collider_count_),
                                         Arg("colliders", *scene.colliders), Arg("legs", legs_)));
    PALPATE_RETURN_IF_ERROR(FindMeetings(queue, scene, *scene.x_start, false, true));
    if (counters_host_.bad > 0) {  // the step will be rolled back
      PALPATE_RETURN_IF_ERROR(queue.Fill(shares_, std::bit_cast<uint32_t>(1.0F)));
      return outcome;
    }
    const uint32_t behind = counters_host_.behind;
    const uint32_t earliest = counters_host_.earliest_toi;
    std::fill(is_met.begin(), is_met.end(), 0);
    std::fill(passes.begin(), passes.end(), 0);
    for (const CapsuleMeeting& m : meetings_host_) (m.toi < 0 ? passes : is_met)[m.collider] = 1;
    outcome.passing = 0;
    bool any_met = false;
    for (uint32_t c = 0; c < collider_count_; ++c) {
      outcome.passing += passes[c];
      is_met[c] = is_met[c] && !passes[c];
      any_met |= is_met[c] != 0;
    }
    if (behind == 0 && !any_met) return outcome;
    bool tissue_meets = behind > 0;
    if (any_met) {
      // Does the tissue alone, on its way, meet these capsules where they were?
      PALPATE_RETURN_IF_ERROR(queue.ReadBlocking(*scene.colliders, std::span<Collider>(colliders_host_)));
      for (uint32_t c = 0; c < collider_count_; ++c) {
        const CapsulePose start{ToVec3(colliders_host_[c].tip_start), ToVec3(colliders_host_[c].axis_start)};
        legs_host_[c] = is_met[c] ? LegOf(colliders_host_[c].tip_start.w, start, start) : CapsuleLeg{};
      }
      PALPATE_RETURN_IF_ERROR(queue.Write(legs_, std::span<const CapsuleLeg>(legs_host_)));
      PALPATE_RETURN_IF_ERROR(FindMeetings(queue, scene, *scene.x_start, true, false));
      tissue_meets |= counters_host_.meetings > 0;
    }
    if (!tissue_meets) {
      PALPATE_RETURN_IF_ERROR(MoveCapsules(queue, scene, is_met, passes));
      return outcome;
    }
    if (round > kLocalRounds + kGlobalRounds) {
      PALPATE_RETURN_IF_ERROR(TakeAllBack(queue, scene));
      outcome.tissue_moved = true;
      return outcome;
    }
    counters_host_.earliest_toi = std::min(counters_host_.earliest_toi, earliest);
    PALPATE_RETURN_IF_ERROR(ShortenTissue(queue, scene, round));
    outcome.tissue_moved = true;
  }
}

absl::Status ObstacleBarrier::TakeAllBack(Queue& queue, const ObstacleScene& scene) {
  PALPATE_RETURN_IF_ERROR(queue.Copy(*scene.x_start, *scene.x, vertex_count_));
  if (scene.follower != nullptr) PALPATE_RETURN_IF_ERROR(scene.follower->RollBack(queue));
  if (collider_count_ == 0) return absl::OkStatus();
  PALPATE_RETURN_IF_ERROR(queue.ReadBlocking(*scene.colliders, std::span<Collider>(colliders_host_)));
  for (uint32_t c = 0; c < collider_count_; ++c) {
    Collider& k = colliders_host_[c];
    const CapsulePose start{ToVec3(k.tip_start), ToVec3(k.axis_start)};
    cut_m_[c] += MoveOf(start, {ToVec3(k.tip), ToVec3(k.axis)});
    SetXyz(start.tip, &k.tip);
    SetXyz(start.axis, &k.axis);
    SetXyz(start.tip - ToVec3(colliders_host_[k.leader].tip_start), &k.offset);
  }
  return queue.Write(*scene.colliders, std::span<const Collider>(colliders_host_));
}

}  // namespace palpate::gpu
