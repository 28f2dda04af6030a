#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "gpu/base/state_archive.h"
#include "gpu/base/status.h"
#include "gpu/collision/surface_topology.h"
#include "gpu/dynamics/surface_follower.h"
#include "gpu/dynamics/surface_options.h"
#include "gpu/dynamics/tissue_layout.h"
#include "gpu/dynamics/tissue_layout_editor.h"
#include "gpu/primitives/radix_sort.h"
#include "gpu/primitives/run_writer.h"
#include "gpu/runtime/buffer.h"
#include "gpu/runtime/queue.h"
#include "gpu/shared/collision_types.h"
#include "gpu/shared/dynamics_types.h"

namespace palpate::gpu {

/// The pairs of surface elements of the newest detection: how each pushes, a plane between its two elements, and for each vertex the list
/// of its planes. Pairs, their order and their planes are unique for the detection.
class SurfacePairs {
 public:
  /// Keeps references to `layout` and what `scene` names. `vertex_groups`: ContactSurface::vertex_groups(). `old` (or null): one that is
  /// given up, whose kernels are used again.
  SurfacePairs(const TissueLayout& layout, const SurfaceSurroundings& scene, const SurfaceOptions& options)
      : layout_(layout), scene_(scene), options_(options) {}
  absl::Status Init(Queue& queue, const std::vector<uint32_t>& vertex_groups, SurfacePairs* old);
  /// After an edit of the layout: hands what changed of its vertices to `writer`.
  absl::Status Follow(const TissueLayoutDelta& delta, const std::vector<uint32_t>& vertex_groups, RunWriter* writer);

  /// Takes `contacts`, detected at `detected`, as the pairs; the buffers must live until the next call. Pairs with marked (`tangled`)
  /// vertices neither push nor hold back. `follower`: of the scene, or null. `are_same`: they are
  /// those of the last call, in that order, at other positions; then their entries are known. Enqueues only. Errors: Internal (as many as
  /// others are said to be the same), ResourceExhausted.
  absl::Status Make(Queue& queue, BufferView<SurfaceContact> contacts, const DeviceBuffer<SurfaceParams>& params,
                    const DeviceBuffer<Float4>& detected, const DeviceBuffer<uint32_t>& tangled, const SurfaceFollower* follower,
                    bool are_same);
  absl::Status Clear(Queue& queue);

  /// Enqueues: nearest points of all pairs at x, and which may push. `follower`: of the scene, or null; where it has one, x differs from
  /// the last call since Make by the ways that it knows, or null is given.
  absl::Status Linearize(Queue& queue, const DeviceSurface& surface, const DeviceBuffer<SurfaceParams>& params,
                         const DeviceBuffer<Float4>& x, const DeviceBuffer<Float4>& x_start, const SurfaceFollower* follower);
  /// Where bodies follow: room for the rows of all pairs. Linearize sees to it itself.
  absl::Status ReserveRows(Queue& queue) { return Grow(queue.context(), rows_, pairs_.count(), "surface pair rows"); }
  /// Enqueues: takes moves x since the detection back behind the planes, and marks their vertices in `touched`.
  absl::Status BoundMoves(Queue& queue, const DeviceBuffer<Float4>& detected, const DeviceBuffer<Float4>& x,
                          const DeviceBuffer<uint8_t>& touched);
  /// Whether planes stand in the way of what both sides of a pair of one body do together: x is beyond one, and would not be if it moved
  /// along. Blocking.
  absl::StatusOr<bool> AreCommonMovesHeldBack(Queue& queue, const DeviceSurface& surface, const DeviceBuffer<Float4>& detected,
                                              const DeviceBuffer<Float4>& x);
  /// Pairs that push at x, as they were linearised, in canonical order; valid until the next call. Enqueues the report.
  absl::Status EnqueueReport(Queue& queue, const DeviceBuffer<SurfaceParams>& params, const DeviceBuffer<Float4>& x,
                             const DeviceBuffer<Float4>& x_start);
  /// After the next blocking call, with the same arguments. Blocks where there were many more than in the report before.
  absl::StatusOr<std::span<const SurfaceReport>> TakeReport(Queue& queue, const DeviceBuffer<SurfaceParams>& params,
                                                            const DeviceBuffer<Float4>& x, const DeviceBuffer<Float4>& x_start);

  /// What is left of the pairs of the step before: rigid bodies ask which vertices had some while the next detection runs. Blocking.
  absl::Status SaveState(Queue& queue, StateWriter& archive) const;
  absl::Status LoadState(Queue& queue, StateReader& archive);

  uint32_t count() const { return count_; }
  bool has_cuts() const { return has_cuts_; }          ///< lips of which lie almost in touch
  uint32_t generation() const { return generation_; }  ///< counts how often the buffers became others
  uint64_t edition() const { return edition_; }        ///< counts how often the pairs or their planes became others
  uint64_t listing() const { return listing_; }        ///< counts how often the pairs became others
  BufferView<SurfaceContact> contacts() const { return contacts_; }
  const DeviceBuffer<SurfacePair>& pairs() const { return pairs_; }
  const DeviceBuffer<PairWay>& ways() const { return ways_; }             ///< [pair] where bodies follow
  const DeviceBuffer<PairRow>& rows() const { return rows_; }             ///< [pair] where is_near() says so
  const DeviceBuffer<uint8_t>& is_near() const { return is_near_; }       ///< [pair] bits of PALPATE_PAIR_NEAR
  const DeviceBuffer<uint32_t>& entry_begins() const { return begins_; }  ///< [slot + 1] in entries() and planes()
  const DeviceBuffer<uint32_t>& entries() const { return entries_; }
  const DeviceBuffer<Float4>& planes() const { return planes_; }
  const DeviceBuffer<float>& clear_m() const { return clear_; }  ///< [slot] how far it may go before its planes matter
  const DeviceBuffer<Float4>& rest() const { return rest_; }     ///< [slot] positions at rest
  size_t device_bytes() const;

 private:
  uint32_t OriginOf(SolverSlot slot, const std::vector<uint32_t>& vertex_groups) const;
  float StiffnessOf(SolverSlot slot) const;
  absl::Status Reserve(Queue& queue, uint32_t count);

  const TissueLayout& layout_;
  SurfaceSurroundings scene_;
  SurfaceOptions options_;
  uint32_t count_ = 0;
  uint32_t generation_ = 0;
  uint64_t edition_ = 0;
  uint64_t listing_ = 0;
  bool has_cuts_ = false;
  BufferView<SurfaceContact> contacts_;
  std::vector<uint32_t> vertex_origins_host_;
  std::vector<float> vertex_stiffness_host_;
  std::vector<SurfaceReport> reports_host_;
  uint32_t report_count_ = 0;  // of the last report

  RadixSort<uint32_t> sort_;
  Kernel make_pairs_, bound_entries_, linearize_pairs_, bound_moves_, report_pairs_, clear_ways_, find_common_moves_;
  DeviceBuffer<Float4> rest_;
  DeviceBuffer<Float4> role_planes_;  // [4 pair + role]
  DeviceBuffer<Float4> planes_;       // by vertex, as entries_
  DeviceBuffer<uint32_t> vertex_origins_, keys_, sorted_keys_, entries_, begins_, counter_;
  DeviceBuffer<float> vertex_stiffness_;
  DeviceBuffer<float> thinner_;  // see make_pairs; empty without shells
  DeviceBuffer<float> clear_;
  DeviceBuffer<uint8_t> is_near_;
  DeviceBuffer<SurfacePair> pairs_;
  DeviceBuffer<PairWay> ways_;
  DeviceBuffer<PairRow> rows_;
  DeviceBuffer<SurfaceReport> reports_;
};

}  // namespace palpate::gpu
