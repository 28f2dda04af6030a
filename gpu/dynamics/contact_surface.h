#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "gpu/base/state_archive.h"
#include "gpu/base/status.h"
#include "gpu/collision/surface_topology.h"
#include "gpu/collision/surface_topology_editor.h"
#include "gpu/dynamics/tissue_layout.h"
#include "gpu/dynamics/tissue_layout_editor.h"
#include "gpu/primitives/run_writer.h"
#include "gpu/runtime/queue.h"

namespace palpate::gpu {

/// The triangles of a layout as the surface that detectors look at, with who may meet whom: bodies each other but for those that
/// the layout keeps apart, themselves if they are said to and self collision is on. It follows edits of the layout.
class ContactSurface {
 public:
  /// Keeps a reference to `layout`. `slack_share` > 0: room for edits.
  ContactSurface(const TissueLayout& layout, double slack_share) : layout_(layout), slack_share_(slack_share) {}

  /// Builds it anew from the layout; returns its edges. Errors: InvalidArgument (surfaces), ResourceExhausted.
  absl::StatusOr<std::vector<UInt2>> Build(Queue& queue);
  /// After an edit of the layout; hands what changed to `writer`. False: it does not fit. Errors: InvalidArgument (surfaces).
  absl::StatusOr<bool> Follow(const TissueLayoutDelta& delta, RunWriter* writer);

  /// Whether bodies may meet themselves; on at first. Returns whether that is new: then it must be built anew.
  bool SetSelfCollision(bool on);

  /// How edits left it; without room for edits it follows from the layout.
  void SaveState(StateWriter& archive) const;
  absl::Status LoadState(Queue& queue, StateReader& archive);

  const std::shared_ptr<DeviceSurface>& device() const { return surface_; }
  std::span<const UInt2> edges() const { return editor_->edges(); }  ///< with room for edits only
  /// [slot] body with PALPATE_GROUP_SELF, or SurfaceTopology::kNoGroup inside bodies
  const std::vector<uint32_t>& vertex_groups() const { return editor_ ? editor_->vertex_groups() : vertex_groups_; }
  bool meets_itself() const { return meets_itself_; }  ///< some body does

 private:
  uint32_t GroupOf(uint32_t body) const;
  void FindWhoMeetsItself();
  absl::Status KeepApart(Queue& queue, DeviceSurface* surface) const;

  const TissueLayout& layout_;
  double slack_share_ = 0;
  bool self_collision_on_ = true;
  bool meets_itself_ = false;
  std::shared_ptr<DeviceSurface> surface_;
  std::unique_ptr<SurfaceTopologyEditor> editor_;  // null: no room for edits
  std::vector<uint32_t> vertex_groups_;            // without editor
};

}  // namespace palpate::gpu
