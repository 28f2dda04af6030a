#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "gpu/base/status.h"
#include "gpu/collision/candidate_pairs.h"
#include "gpu/collision/self_pairs_use.h"
#include "gpu/collision/surface_topology.h"
#include "gpu/runtime/buffer.h"
#include "gpu/runtime/queue.h"
#include "gpu/shared/types.h"

namespace palpate::gpu {

/// What is known of the pairs of elements within each body from an earlier search, so that later searches look at these pairs only.
///
/// A list holds all pairs (vertex, triangle) and (edge, edge) of a body that were nearer than a list range D. If none of the others has
/// come nearer by more than s since, they are farther apart than D - s. So a search with a range of at most D - s needs no other pairs of
/// this body with itself: the list is a certificate for all of them. What bounds s are boxes around the moves of parts of the body (its
/// spread).
///
/// Guarantee: ProximityDetector finds the same contacts, to the bit, with lists and without. Where a list does not reach, the search is
/// done anew without it. docs/algorithms/self_pairs.md.
///
/// It belongs to a ProximityDetector, which fills and reads the list; this class knows which bodies it serves, and when a new one is due.
/// Thread: one at a time. Determinism: what is decided follows from positions and counts alone, never from time.
class SelfPairs {
 public:
  /// On surfaces with more triangles pairs of their parts would take as long as a search.
  static constexpr uint32_t kMostTriangles = 32768;

  static absl::StatusOr<SelfPairs> Create(const std::shared_ptr<Context>& context, SelfPairsUse use);

  /// Nothing is known of the surface. `meets_itself` and `has_surface`, [body]: elements of the body may meet each other; it has triangles.
  void SetBodies(std::vector<uint8_t> meets_itself, std::vector<uint8_t> has_surface);

  /// What a search is to do. kNothing: no lists. kUse: pairs within the bodies of in_use() come from the list. kRenew: everything is sought
  /// up to list_range_m(), within the bodies of in_use(); what is found is the new list.
  enum class Plan : uint8_t { kNothing, kUse, kRenew };
  /// Of the next search, with this range. Once a search, and again if the list did not reach.
  Plan MakePlan(float range_m);

  /// kUse: enqueues how far the vertices of each body have moved against each other since the list, which TakeSpreads() reads after the
  /// next blocking call. That returns whether the list reaches for all bodies in use; those for which it does not have lost it.
  absl::Status EnqueueSpreads(Queue& queue, const DeviceSurface& surface, BufferView<Float4> positions_m);
  bool TakeSpreads(float range_m);
  /// kUse, after EnqueueSpreads(): [triangle] groups of the surface, in which bodies in use do not meet themselves.
  absl::StatusOr<BufferView<uint32_t>> Groups(Queue& queue, const DeviceSurface& surface);
  /// kUse: whether pairs are left that are in no list.
  bool has_others() const;

  /// kRenew: [body] reaches of the search for the list: half the list range for bodies in use, else `reaches_m` (null: half the range).
  absl::StatusOr<BufferView<float>> Reaches(Queue& queue, const DeviceSurface& surface, BufferView<float> reaches_m, float range_m);
  /// kRenew: keeps where everything is. `clusters`: of the surface's triangles, body by body.
  absl::Status KeepPlaces(Queue& queue, const DeviceSurface& surface, const ElementClusters& clusters, BufferView<Float4> positions_m);
  /// kRenew: the list has `count` pairs; or there is none, because it would be too long.
  void Renewed(uint32_t count);
  void GiveUp();
  /// Room for so many pairs; the list is lost if it grows.
  absl::Status Reserve(uint32_t count);

  float list_range_m() const { return list_range_m_; }
  const DeviceBuffer<uint64_t>& keys() const { return keys_; }
  uint32_t count() const { return count_; }
  const DeviceBuffer<uint32_t>& in_use() const { return used_; }  ///< [body] 1 or 0; up to date after EnqueueSpreads() or Reaches()

  /// Of the last search: bodies that meet themselves, and of these, such whose pairs came from the list.
  uint32_t self_bodies() const { return self_bodies_; }
  uint32_t listed_bodies() const { return listed_bodies_; }
  bool is_renewed() const { return is_renewed_; }  ///< it made a new list
  size_t device_bytes() const;

 private:
  struct Body {
    bool meets_itself = false;
    bool has_list = false;
    bool is_used = false;  // in this search
    bool is_near = false;  // the list reached at the last one
    float spread_m = 0;    // then
    float growth_m = 0;    // of the spread in the last search
    uint32_t rest = 0;     // searches that it is left alone for from now on
    uint32_t next_rest = 1;
  };
  float SlackFor(float range_m) const;
  absl::Status EnqueueBoxes(Queue& queue, const DeviceSurface& surface, BufferView<Float4> from, BufferView<Float4> to,
                            const DeviceBuffer<float>& boxes);
  void Expire(Body& body, float range_m);
  absl::Status WriteUsed(Queue& queue);

  std::shared_ptr<Context> context_;
  SelfPairsUse use_ = SelfPairsUse::kAutomatic;
  Kernel begin_kernel_, boxes_kernel_, spreads_kernel_, groups_kernel_, reaches_kernel_, keep_kernel_;
  std::vector<Body> bodies_;
  uint32_t surface_bodies_ = 0;  // with triangles
  uint32_t self_bodies_ = 0, listed_bodies_ = 0;
  bool is_renewed_ = false;
  float list_range_m_ = 0;
  uint32_t served_ = 0;  // searches since the list was made
  uint32_t count_ = 0;
  uint32_t cluster_count_ = 0, stride_ = 0;  // parts of the surface: clusters, and one a body; rounded up
  bool are_groups_known_ = false;
  std::vector<uint32_t> used_host_, used_written_;
  std::vector<float> spreads_host_;
  DeviceBuffer<uint64_t> keys_;
  DeviceBuffer<Float4> positions_;
  DeviceBuffer<uint32_t> used_, groups_, elements_, part_bodies_;
  DeviceBuffer<float> spreads_, reaches_, moves_, places_;
};

}  // namespace palpate::gpu
