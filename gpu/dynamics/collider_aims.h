#pragma once

#include <array>
#include <cstddef>
#include <limits>
#include <span>
#include <vector>

#include "gpu/dynamics/tissue_types.h"
#include "gpu/shared/dynamics_types.h"

namespace palpate::gpu {

/// Where colliders are sent in a step. A driven one that was cut short, because it would have passed through tissue that cannot yield,
/// closes the gap to its target a little faster than it managed before; what the target moves across that gap it follows as ever. So
/// tissue settles against where the tool is and not against where it is wanted. Capsules of one tool are held back together. Host only.
class ColliderAims {
 public:
  ColliderAims() = default;
  /// `margin_m`: of contact; a share of it is what a tool may always go.
  ColliderAims(size_t count, double margin_m) : margin_m_(margin_m), aims_(count), goals_(2 * count), blocked_m_(count) {}

  /// As after construction.
  void Reset();

  /// Tip and axis [m] of each collider at the end of the step, [2 count]; valid until the next call. A collider that nothing holds back
  /// goes to its target to the bit. `targets` is as long as `colliders`, their state before the step.
  std::span<const Float4> Aim(std::span<const Collider> colliders, std::span<const ColliderTarget> targets);

  /// The step is being certified: nothing has been cut short yet.
  void ForgetCuts();
  /// By how much the move of each collider was cut short, in one turn.
  void AddCuts(std::span<const float> cut_m);

  /// After a step that left `colliders`: how far each may go in the next.
  void Note(std::span<const Collider> colliders, std::span<const ColliderTarget> targets);
  /// See TissueStep::blocked_m.
  std::span<const double> blocked_m() const { return blocked_m_; }

  /// Goals are worked out in each step.
  template <typename Archive>
  void VisitState(Archive& archive) {
    [[maybe_unused]] auto& [margin_m, aims, goals, blocked_m] = *this;
    const size_t count = aims.size();
    archive.Enter("ColliderAims");
    archive(aims, blocked_m);
    archive.Check(aims.size() == count && blocked_m.size() == count, "another number of colliders");
  }

 private:
  struct State {
    float cut_m = 0;                                          // in the newest step
    std::array<double, 3> behind{};                           // unit: where its target was, seen from it
    double room_m = std::numeric_limits<double>::infinity();  // of the tip that way
    double turn_m = std::numeric_limits<double>::infinity();  // of the other end about the tip
    std::array<double, 3> tip_from{};                         // at the start of the step
    std::array<double, 3> axis_from{};
    bool is_short = false;  // it was not sent where it is wanted

    template <typename Archive>
    void VisitState(Archive& archive) {
      auto& [cut, seen_behind, room, turn, tip, axis, short_of] = *this;
      archive(cut, seen_behind, room, turn, tip, axis, short_of);
    }
  };

  double margin_m_ = 0;
  std::vector<State> aims_;
  std::vector<Float4> goals_;
  std::vector<double> blocked_m_;
};

}  // namespace palpate::gpu
