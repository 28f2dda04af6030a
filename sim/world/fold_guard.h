#pragma once

#include <cstdint>
#include <vector>

#include "sim/topology/exposure_guard.h"
#include "sim/world/scene_surface.h"
#include "sim/world/world_body.h"

namespace palpate::sim {

/// Which bodies may overlap themselves or others beneath surfaces that do not cross, so that what an edit uncovers would. Without inverted
/// tets each point of a body is covered once. Of the edits of one call.
class FoldGuard {
 public:
  /// Keeps a reference.
  explicit FoldGuard(SceneSurface& surface) : surface_(surface) {}

  /// `may_fold`: a tet of the scene may be inverted.
  void Begin(bool may_fold) {
    known_.clear();
    may_fold_ = may_fold;
    any_ = false;
  }
  /// What refuses faces of a folded body that would pass through something; nothing for others. O(tets) once a body. Precondition: the body
  /// is editable. It must not outlive this or the body.
  ExposureGuard GuardOf(const WorldBody& body) {
    if (!IsFolded(body)) return {};
    return
        [this, &body](const UncoveredFaces& faces, std::vector<uint8_t>* is_refused) { return surface_.Refuse(body, faces, is_refused); };
  }
  bool any() const { return any_; }  ///< a body whose guard was asked for is folded

 private:
  enum class Fold : uint8_t { kUnknown, kNo, kYes };

  bool IsFolded(const WorldBody& body) {
    if (!may_fold_) return false;
    if (body.index() >= known_.size()) known_.resize(body.index() + 1, Fold::kUnknown);
    Fold& known = known_[body.index()];
    if (known == Fold::kUnknown) known = body.HasInvertedTets() ? Fold::kYes : Fold::kNo;
    any_ |= known == Fold::kYes;
    return known == Fold::kYes;
  }

  SceneSurface& surface_;
  std::vector<Fold> known_;  // [body]
  bool may_fold_ = false;
  bool any_ = false;
};

}  // namespace palpate::sim
