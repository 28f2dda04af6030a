// What acts on tissue from outside: anchors, and where tools are sent.
#include <algorithm>
#include <cmath>

#include "gpu/dynamics/tissue_solver_impl.h"

namespace palpate::gpu {
namespace {

// A driven tool that was cut short aims no farther beyond what it reached than this many times that way, and this share of the margin: so
// tissue that cannot yield settles against where the tool is and not against where it is wanted.
constexpr double kAimGrowth = 2;
constexpr double kAimShare = 0.25;

std::array<double, 3> ToArray(const Float4& v) { return {v.x, v.y, v.z}; }

double Distance(const std::array<double, 3>& a, const std::array<double, 3>& b) {
  return std::hypot(b[0] - a[0], b[1] - a[1], b[2] - a[2]);
}

/// How far b is beyond a along n.
double Along(const std::array<double, 3>& n, const std::array<double, 3>& a, const std::array<double, 3>& b) {
  return n[0] * (b[0] - a[0]) + n[1] * (b[1] - a[1]) + n[2] * (b[2] - a[2]);
}

}  // namespace

absl::Status TissueSolver::Impl::SetAnchors(std::span<const TissueAnchor> anchors, uint32_t clip_count) {
  PALPATE_ASSIGN_OR_RETURN(const bool is_other, anchors_.Set(*queue_, layout_, anchors, params_host_.collider_count, clip_count));
  return is_other ? BindAnchors() : absl::OkStatus();
}

/// Tools and clips go to where what acts on them balances.
absl::Status TissueSolver::Impl::SolveHolders() {
  if (any_coupled_) {
    PALPATE_RETURN_IF_ERROR(
        queue_->Enqueue(solve_colliders_, {size_t{params_host_.collider_count} * tuning_.list_group, tuning_.list_group}));
  }
  return anchors_.SolveClips(*queue_, tissue_, colliders_);
}

absl::Status TissueSolver::Impl::SetGathered(std::span<const uint32_t> vertices) {
  std::vector<uint32_t> indices;
  indices.reserve(vertices.size());
  for (const uint32_t v : vertices) {
    if (!HasVertex(v)) {
      return absl::InvalidArgumentError(absl::StrCat("vertex ", v, " is absent or outside [0, ", layout_.solver_index.size(), ")"));
    }
    indices.push_back(layout_.solver_index[v]);
  }
  gathered_count_ = static_cast<uint32_t>(indices.size());
  device_bytes_ -= gathered_index_.size_bytes() + gathered_.size_bytes();
  PALPATE_RETURN_IF_ERROR(Grow(queue_->context(), gathered_index_, std::max<size_t>(indices.size(), 1), "gathered_index"));
  PALPATE_RETURN_IF_ERROR(Grow(queue_->context(), gathered_, std::max<size_t>(indices.size(), 1) * 3, "gathered"));
  device_bytes_ += gathered_index_.size_bytes() + gathered_.size_bytes();
  PALPATE_RETURN_IF_ERROR(queue_->Write(gathered_index_, std::span<const uint32_t>(indices)));
  gathered_host_.assign(indices.size() * 3, 0.0F);
  return gather_positions_.Bind(Arg("count", static_cast<uint32_t>(indices.size())), Arg("x", tissue_.x), Arg("indices", gathered_index_),
                                Arg("packed", gathered_));
}

/// Where the colliders go in this step. A tool that was cut short closes the gap to its target a little faster than it managed before; what
/// the target moves across that gap it follows as ever. Capsules of one tool are held back together.
void TissueSolver::Impl::Aim(std::span<const ColliderTarget> targets) {
  for (size_t leader = 0, end = 0; leader < targets.size(); leader = end) {
    end = leader + colliders_host_[leader].members;
    double over_m = 0;
    double turn_share = 1;
    const std::array<double, 3>* behind = nullptr;
    for (size_t c = leader; c < end; ++c) {
      ColliderAim& aim = aims_[c];
      aim.tip_from = ToArray(colliders_host_[c].tip);
      aim.axis_from = ToArray(colliders_host_[c].axis);
      if (const double over = Along(aim.behind, aim.tip_from, targets[c].tip_m) - aim.room_m; over > over_m) {
        over_m = over;
        behind = &aim.behind;
      }
      const double turn_m = Distance(aim.axis_from, targets[c].axis_m);
      if (turn_m > aim.turn_m) turn_share = std::min(turn_share, aim.turn_m / turn_m);
    }
    std::array<double, 3> back{};
    for (size_t k = 0; behind != nullptr && k < 3; ++k) back[k] = over_m * (*behind)[k];
    for (size_t c = leader; c < end; ++c) {
      ColliderAim& aim = aims_[c];
      std::array<double, 3> tip = targets[leader].tip_m;
      std::array<double, 3> axis = targets[c].axis_m;
      for (size_t k = 0; k < 3; ++k) {
        const double offset_from = aim.tip_from[k] - aims_[leader].tip_from[k];
        const double offset = targets[c].tip_m[k] - targets[leader].tip_m[k];
        tip[k] += offset_from + turn_share * (offset - offset_from) - back[k];
        axis[k] = aim.axis_from[k] + turn_share * (axis[k] - aim.axis_from[k]);
      }
      aim.is_short = behind != nullptr || turn_share < 1;
      // Where nothing holds it back it goes to its target to the bit.
      targets_host_[2 * c] = ToFloat4(aim.is_short ? tip : targets[c].tip_m);
      targets_host_[2 * c + 1] = ToFloat4(aim.is_short ? axis : targets[c].axis_m);
    }
  }
}

/// After a step: how far each collider was stopped short, and how far it may go next.
void TissueSolver::Impl::NoteBlocked(std::span<const ColliderTarget> targets) {
  for (size_t c = 0; c < targets.size(); ++c) {
    ColliderAim& aim = aims_[c];
    aim.room_m = aim.turn_m = std::numeric_limits<double>::infinity();
    blocked_m_[c] = aim.cut_m;
    if (colliders_host_[c].device_tip.w > 0) continue;  // what drives a coupled tool yields by itself
    if (!(aim.cut_m > 0) && !aim.is_short) continue;
    const std::array<double, 3> tip = ToArray(colliders_host_[c].tip);
    const std::array<double, 3> axis = ToArray(colliders_host_[c].axis);
    const double gap_m = Distance(tip, targets[c].tip_m);
    std::array<double, 3> end = tip;
    std::array<double, 3> end_target = targets[c].tip_m;
    for (size_t k = 0; k < 3; ++k) {
      end[k] += axis[k];
      end_target[k] += targets[c].axis_m[k];
      aim.behind[k] = gap_m > 0 ? (targets[c].tip_m[k] - tip[k]) / gap_m : 0;
    }
    blocked_m_[c] = std::max(gap_m, Distance(end, end_target));
    const double least_m = kAimShare * options_.margin_m;
    aim.room_m = kAimGrowth * std::max(Along(aim.behind, aim.tip_from, tip), 0.0) + least_m;
    if (Distance(axis, targets[c].axis_m) > least_m) aim.turn_m = kAimGrowth * Distance(aim.axis_from, axis) + least_m;
  }
}

}  // namespace palpate::gpu
