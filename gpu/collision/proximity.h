#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "gpu/base/status.h"
#include "gpu/collision/candidate_pairs.h"
#include "gpu/collision/proximity_key_list.h"
#include "gpu/collision/self_pairs.h"
#include "gpu/collision/surface_topology.h"
#include "gpu/primitives/scan.h"
#include "gpu/runtime/buffer.h"
#include "gpu/runtime/queue.h"
#include "gpu/shared/box.h"
#include "gpu/shared/collision_types.h"

namespace palpate::gpu {

/// Which contacts of those within the range are kept.
enum class ContactReduction {
  kAll,
  /// Of each vertex the contact with its nearest triangle, of each edge those that are nearest for at least one of their two edges; among
  /// equals the first.
  kNearest,
};

struct ProximityOptions {
  /// Two elements of one body whose distance in the rest shape is below this do not meet; 0: none. Choose it above the range, so that
  /// neighbours along the surface give no contacts. Parts that are this near at rest without being neighbours (a slit, fingers side by
  /// side) are then not kept apart.
  float rest_exclusion_m = 0;
  ContactReduction reduction = ContactReduction::kAll;
  uint64_t max_contacts = 1U << 24;       ///< bounds the memory, 88 bytes a contact; at most 2^28
  uint64_t max_cluster_pairs = 1U << 27;  ///< 8 bytes a pair

  // For measurements and tests; none changes the contacts.
  CandidateStructure candidates = CandidateStructure::kAutomatic;
  uint32_t lanes = 0;                 ///< 1, 8 or 16 distances at once in a work-item; 0: 1 on GPUs, else 16
  bool spheres = false;               ///< a triangle's volume is its bounding sphere instead of its box
  bool element_boxes = true;          ///< boxes of vertices and edges are tested before their distance
  bool counts_element_pairs = false;  ///< fills ProximityStats::element_pairs, which takes a while
  /// Clusters of 16 triangles that are patches (their normals in a cone of 60 degrees, their outline simple and clear of itself by the
  /// range) are not tested with themselves. Unlike the options above this drops contacts: pairs of elements that a path along the surface
  /// joins which is less than three times as long as they are apart. Folds, stacked sheets and slits lose nothing.
  bool normal_cones = false;
};

/// Bodies whose elements lie nearer to each other at rest than the range, as those of fine meshes about a thick sheet do: most of their
/// pairs neither act nor meet soon, and are left out. Of a body with a spare s > 0 two elements that are d apart now and r at rest are a
/// contact only if d < r / 2 + s. So while no vertex moves by more than s / 2, a pair that is left out stays farther apart than r / 2.
struct ProximityRest {
  BufferView<Float4> positions_m;  ///< [vertex_count] at rest; a null view: no body has a spare
  BufferView<float> spare_m;       ///< [body] s, or 0
};

/// What a run did, for measurements and metrics.
struct ProximityStats {
  uint64_t cluster_pairs = 0;
  uint64_t triangle_pairs = 0;   ///< with overlapping volumes
  uint64_t element_pairs = 0;    ///< on request: elementary tests of these triangle pairs by ownership, 3.25 each on closed surfaces
  uint64_t tests = 0;            ///< distances computed: less pairs that share a vertex, and those whose boxes are apart
  uint64_t rest_excluded = 0;    ///< within the range, but too near at rest
  uint64_t contacts_found = 0;   ///< before the reduction
  uint64_t patches = 0;          ///< clusters that normal cones kept from themselves
  uint32_t detect_launches = 0;  ///< 2 if the buffer of contacts had to grow
};

/// Finds all pairs (vertex, triangle) and (edge, edge) of triangle surfaces that are nearer than a range, between bodies and within those
/// that may meet themselves.
///
/// Guarantee: each pair whose distance, as computed by closest.clh, is below the range is reported exactly once, except pairs that share a
/// vertex, pairs of a body with itself if that is off or they are too near at rest, and what the reduction leaves out. Nothing is kept from
/// one run to the next, so any motion is right and a change of topology costs only SetTopology. Distances are unsigned: a crossing is not
/// recognised as such (see IntersectionCounter).
/// Method: pairs of clusters of triangles (CandidatePairs), elements owned by triangles, distances in lanes; docs/algorithms/proximity.md.
/// Thread: one at a time. Determinism: the contacts are unique for the input and in canonical order.
class ProximityDetector {
 public:
  /// Errors: InvalidArgument naming the option out of range.
  static absl::StatusOr<ProximityDetector> Create(const std::shared_ptr<Context>& context, const ProximityOptions& options = {});

  /// Sets the surfaces; `rest_positions_m` [vertex_count] is read only with rest_exclusion_m > 0 and may else be empty. Blocking upload.
  /// Errors: InvalidArgument (rest positions missing or, named, not finite).
  absl::Status SetTopology(Queue& queue, const SurfaceTopology& topology, std::span<const Float4> rest_positions_m);

  /// As SetTopology, with surfaces that are on the device already and that someone else may change between runs; then this must be called
  /// again. With rest_exclusion_m > 0 the rest positions of an earlier SetTopology must reach.
  absl::Status SetSurface(std::shared_ptr<const DeviceSurface> surface);

  /// Finds the contacts of `positions_m` [vertex_count, w ignored] below `range_m`. Two blocking reads. contacts() is complete in queue
  /// order on return. Errors: InvalidArgument (range not positive and finite, a buffer too small, a vertex of a triangle whose coordinates
  /// are not finite or beyond 1e8 m, which is named), FailedPrecondition before SetTopology, ResourceExhausted above max_contacts or
  /// max_cluster_pairs. After an error there are no contacts.
  ///
  /// With `reaches_m` [body] a pair of two bodies counts only below the sum of their reaches, each at most half the range: bodies that move
  /// little need not look far. A body's elements meet each other below twice its reach.
  ///
  /// With `self_pairs` (or null) what it knows of pairs within bodies is used and renewed. The contacts are the same; stats() are those of
  /// what was done. Its bodies must be those of the surface. Not with rest_exclusion_m, normal_cones or a reduction, nor on
  /// surfaces of more than SelfPairs::kMostTriangles or where candidates are found by pairs of bodies: then it is left alone.
  /// With `rest` it leaves out pairs within bodies, see ProximityRest.
  absl::Status Run(Queue& queue, BufferView<Float4> positions_m, float range_m, BufferView<float> reaches_m = {},
                   SelfPairs* self_pairs = nullptr, const ProximityRest& rest = {});

  /// As Run at other positions, where the pairs of the last Run, RunAgain or Refresh may still do: pairs of two bodies that are not stale
  /// are those, as Refresh has them. `stale` [body]: 1 or 0. Runs anew if there was none on this surface; with a reduction always.
  absl::Status RunAgain(Queue& queue, BufferView<Float4> positions_m, float range_m, BufferView<float> reaches_m,
                        BufferView<uint32_t> stale, const ProximityRest& rest = {});

  /// Works the contacts of the last Run out anew at other positions: the same pairs, also those that are beyond the range now. No pair that
  /// was left out is nearer than the range (or the sum of reaches) less twice the longest way of a vertex since. No blocking. Errors:
  /// InvalidArgument (a buffer too small), FailedPrecondition with a reduction, which may have dropped what is nearest now.
  absl::Status Refresh(Queue& queue, BufferView<Float4> positions_m);

  uint32_t contact_count() const { return contact_count_; }
  /// Sorted by (kind, a, b); valid until the next Run.
  BufferView<SurfaceContact> contacts() const { return {contacts_.handle(), contact_count_}; }
  const DeviceBuffer<SurfaceContact>& contact_buffer() const { return contacts_; }
  const ProximityStats& stats() const { return stats_; }
  const DeviceSurface& surface() const { return *surface_; }
  /// Of the triangles, in the last run.
  const ElementClusters& clusters() const { return clusters_; }

 private:
  /// What a search is for: all pairs, those of a list, or those that are not in a list.
  enum class Search : uint8_t { kAll, kList, kOthers };
  /// What Run and RunAgain were given. stale: a null view in Run. groups: those of the surface, or others.
  struct Task {
    BufferView<Float4> positions_m;
    float range_m = 0;
    BufferView<float> reaches_m;
    BufferView<uint32_t> stale;
    SelfPairs* self_pairs = nullptr;
    ProximityRest rest = {};
    float spare_more_m = 0;  // to be added to spares above 0
    Search search = Search::kAll;
    BufferView<uint32_t> groups;
  };
  /// Where keys are appended.
  struct KeysOf {
    BufferView<uint64_t> keys;
    const DeviceBuffer<uint32_t>& counters;
  };
  absl::Status RunTask(Queue& queue, const Task& task);
  absl::Status Check(const Task& task) const;
  absl::Status Find(Queue& queue, CandidatePairs& candidates, const Task& task);
  absl::Status FindWithSelfPairs(Queue& queue, CandidatePairs& candidates, const Task& task);
  absl::StatusOr<bool> RenewSelfPairs(Queue& queue, CandidatePairs& candidates, const Task& task);
  absl::StatusOr<bool> UseSelfPairs(Queue& queue, CandidatePairs& candidates, const Task& task);
  absl::Status Prepare(Queue& queue, CandidatePairs& candidates, const Task& task);
  absl::Status ListFeatures(Queue& queue, const CandidatePairs& candidates, const Task& task);
  absl::StatusOr<bool> FindKeys(Queue& queue, const Task& task, CandidatePairs& candidates, std::span<uint32_t> counters);
  absl::Status ReadCounters(Queue& queue, std::span<uint32_t> counters);
  absl::StatusOr<bool> TakeCandidates(Queue& queue, CandidatePairs& candidates, const Task& task, std::span<const uint32_t> counters);
  absl::Status MakeContacts(Queue& queue, const Task& task, std::span<const uint32_t> counters);
  absl::Status Keep(Queue& queue, BufferView<uint32_t> stale);
  absl::Status FindCandidates(Queue& queue, CandidatePairs& candidates, Search search, bool may_wait);
  absl::Status Launch(Queue& queue, const Task& task, const KeysOf& target);
  absl::Status LaunchListed(Queue& queue, const Task& task, uint32_t count, BufferView<uint32_t> bodies, const KeysOf& target);
  void SetShifts();
  absl::Status ReserveContacts(uint32_t count);
  absl::Status TooManyContacts(const Task& task) const;
  KeysOf contact_keys() const { return {keys_.keys().view(), counters_}; }
  static BufferView<float> SpareOf(const Task& task) {
    return task.rest.positions_m.handle != nullptr ? task.rest.spare_m : BufferView<float>{};
  }
  size_t LocalSize() const { return lanes_ == 1 ? 64 : 8; }
  absl::Status CheckPositions(BufferView<Float4> positions_m) const;
  absl::Status LaunchRecords(Queue& queue, uint32_t count, BufferView<Float4> positions_m);
  absl::Status Reduce(Queue& queue);

  std::shared_ptr<Context> context_;
  ProximityOptions options_;
  uint32_t lanes_ = 1;
  bool has_topology_ = false;
  bool has_keys_ = false;  // keys_.sorted() are those of contacts_, on this surface
  uint32_t contact_count_ = 0;
  uint32_t a_shift_ = 0, kind_shift_ = 0;  // of the keys of the last run
  ProximityStats stats_;
  std::shared_ptr<const DeviceSurface> surface_ = std::make_shared<const DeviceSurface>();
  CandidateStructures candidates_;
  ElementClusters clusters_;
  // Pairs of clusters of this run: as many are looked at, if they are no more on the device, where `on_device` says how many there are.
  struct Candidates {
    BufferView<UInt2> pairs;
    uint32_t count = 0;
    const DeviceBuffer<uint32_t>* on_device = nullptr;
  };
  Candidates found_;
  std::array<uint32_t, 2> found_host_{};               // what on_device held: pairs, and whether they are refused
  std::array<std::optional<uint32_t>, 3> last_found_;  // pairs of the last run, by what it was for
  ProximityKeyList keys_;
  StreamCompaction compaction_;
  Kernel boxes_kernel_, patches_kernel_, features_kernel_, detect_, keep_, listed_, records_, nearest_distance_, nearest_index_,
      nearest_flags_, gather_;
  DeviceBuffer<Float4> rest_positions_;
  DeviceBuffer<Box> boxes_;
  DeviceBuffer<Float4> spheres_;
  // Corners and edges by cluster, see Features in proximity.cl.
  struct Features {
    DeviceBuffer<float> boxes;
    DeviceBuffer<uint32_t> elements, lanes, counts;
  };
  Features features_;
  DeviceBuffer<uint32_t> counters_, listed_counters_, is_patch_;
  DeviceBuffer<SurfaceContact> contacts_, all_contacts_;
  DeviceBuffer<uint32_t> nearest_, nearest_contact_, flags_, kept_, kept_count_;
};

}  // namespace palpate::gpu
