#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "gpu/base/state_archive.h"
#include "gpu/base/status.h"
#include "gpu/dynamics/tissue_anchors.h"
#include "gpu/dynamics/tissue_buffers.h"
#include "gpu/dynamics/tissue_layout.h"
#include "gpu/dynamics/tissue_types.h"
#include "gpu/runtime/buffer.h"
#include "gpu/runtime/queue.h"
#include "gpu/shared/dynamics_types.h"

namespace palpate::gpu {

/// Colliders (tools, and capsules that never move) and planes, with what of the tissue they touch, as a stage of the solver's step.
/// Triangles near a capsule are found once at the start of a step, for a capsule's whole way; their contacts are worked out anew before
/// each sweep. Clips, which anchors alone hold, stand behind the colliders.
class ToolContacts {
 public:
  /// `stiffness_n_per_m`: of one contact. Errors: InvalidArgument (a follower without leader), ResourceExhausted (more colliders than a
  /// triangle has bits for).
  absl::Status Init(Queue& queue, const TissueLayout& layout, const TissueOptions& options, const TissueTuning& tuning,
                    std::span<const ColliderDescription> colliders, std::span<const PlaneObstacle> planes, double stiffness_n_per_m);
  /// `old` (or null): one that is given up, whose kernels are used again where they are the same.
  absl::Status MakeKernels(Context& context, ToolContacts* old);
  /// What the program was built with.
  ProgramDefines defines() const {
    return {{"PALPATE_LIST_GROUP", std::to_string(list_group_)}, {"PALPATE_TOOL_GROUP", std::to_string(tool_group_)}};
  }
  absl::Status Bind(const TissueBuffers& tissue, const TissueAnchors& anchors);
  absl::Status BindAnchors(const TissueAnchors& anchors);  ///< when their buffer became another

  /// As at the start: colliders where they were, nothing touched.
  absl::Status Reset(Queue& queue);
  /// The state is that of the end of a step in which nothing touched a tool.
  absl::Status ForgetContacts(Queue& queue);
  /// Takes over the state of the same colliders.
  absl::Status GoOnFrom(Queue& queue, const ToolContacts& old);

  /// Where the colliders and clips are, what drives them, and which side of a capsule the triangles near it belong on, which the next step
  /// asks for where one has passed through the other. All else of contacts is of a step. Blocking.
  absl::Status SaveState(Queue& queue, const TissueLayout& layout, StateWriter& archive) const;
  absl::Status LoadState(Queue& queue, const TissueLayout& layout, StateReader& archive);

  /// Start of a step: colliders go towards `goals` (ColliderAims::Aim), and what is near is found.
  absl::Status Begin(Queue& queue, uint32_t triangle_count, std::span<const Float4> goals);
  /// A coupled tool was moved as if nothing touched it, which may be far into the tissue. The sweeps start from where it rests against the
  /// tissue as that stands, or few of them could not bring it out again: so many sweeps of the tools alone come before those of tissue and
  /// tools, if any is coupled. SolveAlone makes them.
  static constexpr uint32_t kSweepsAlone = 8;
  absl::Status SolveAlone(Queue& queue, const TissueBuffers& tissue);
  bool any_coupled() const { return any_coupled_; }
  /// Start of a sweep: contacts at x.
  absl::Status Update(Queue& queue, const TissueBuffers& tissue);
  /// Contacts at positions [slot] that may be given up again: nothing is learned of the sides that tissue is on. Until the next Update.
  absl::Status Try(Queue& queue, const DeviceBuffer<Float4>& positions);
  /// End of a sweep: coupled colliders go to where what acts on them balances.
  absl::Status Solve(Queue& queue);
  /// End of a step.
  absl::Status Finish(Queue& queue, const TissueBuffers& tissue);

  /// Enqueues the report of contacts at x, which CollectReport() completes when the queue has finished.
  absl::Status EnqueueReport(Queue& queue, const TissueBuffers& tissue);
  /// Contacts in canonical order, planes with the caller's vertices; valid until the next report. Blocks where there were more than ever.
  absl::Status CollectReport(Queue& queue, const TissueBuffers& tissue, const TissueLayout& layout);
  void ForgetReport() { reports_host_.clear(); }
  std::span<const ContactReport> reports() const { return reports_host_; }

  /// Enqueues reading the colliders' state into states().
  absl::Status EnqueueRead(Queue& queue);
  std::span<const Collider> states() const { return states_; }

  uint32_t collider_count() const { return static_cast<uint32_t>(descriptions_.size()); }
  bool empty() const { return descriptions_.empty() && planes_host_.empty(); }
  const std::vector<ColliderDescription>& descriptions() const { return descriptions_; }
  const std::vector<PlaneObstacle>& planes_host() const { return planes_host_; }
  const DeviceBuffer<Collider>& colliders() const { return colliders_; }  ///< colliders, then clips
  const DeviceBuffer<PlaneObstacle>& planes() const { return planes_; }
  const DeviceBuffer<uint32_t>& triangle_colliders() const { return triangle_colliders_; }  ///< [triangle] bit c: near collider c
  const DeviceBuffer<ToolContact>& contacts() const { return contacts_; }                   ///< [collider][triangle]
  const DeviceBuffer<uint32_t>& list() const { return list_; }                              ///< how many of them are near, then which
  size_t device_bytes() const;

 private:
  /// A triangle near a collider, and on which side of it: as ToolContact::side.
  struct KnownSide {
    uint32_t triangle = 0;
    uint32_t collider = 0;
    Float4 side{};

    template <typename Archive>
    void VisitState(Archive& archive) {
      auto& [of_triangle, of_collider, seen] = *this;
      archive(of_triangle, of_collider, seen);
    }
  };

  absl::StatusOr<std::vector<KnownSide>> ReadSides(Queue& queue, uint32_t triangle_count) const;
  absl::Status WriteSides(Queue& queue, uint32_t triangle_count, std::span<const KnownSide> sides);
  absl::StatusOr<Collider> MakeCollider(std::span<const ColliderDescription> colliders, size_t index, double dt_s,
                                        double stiffness_n_per_m);
  Range Contacts() const { return {list_group_ * size_t{4}, list_group_}; }
  Range Colliders() const { return {size_t{collider_count()} * tool_group_, tool_group_}; }

  uint32_t list_group_ = 1;
  uint32_t tool_group_ = 1;
  bool any_coupled_ = false;
  uint32_t report_count_host_ = 0;
  std::vector<ColliderDescription> descriptions_;
  std::vector<PlaneObstacle> planes_host_;
  std::vector<Collider> initial_, states_;
  std::vector<ContactReport> reports_host_;
  DeviceBuffer<Collider> colliders_;
  DeviceBuffer<Float4> targets_;
  DeviceBuffer<PlaneObstacle> planes_;
  DeviceBuffer<ToolContact> contacts_;
  DeviceBuffer<uint32_t> triangle_colliders_, list_, report_count_;
  DeviceBuffer<ContactReport> reports_;
  Kernel move_colliders_, find_contacts_, list_contacts_, update_contacts_, solve_colliders_, finish_colliders_, report_contacts_;
};

}  // namespace palpate::gpu
