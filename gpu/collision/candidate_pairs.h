#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string_view>

#include "gpu/base/status.h"
#include "gpu/collision/surface_topology.h"
#include "gpu/runtime/buffer.h"
#include "gpu/runtime/queue.h"
#include "gpu/shared/box.h"

namespace palpate::gpu {

/// All elements of one kind, in clusters of up to 16 whose boxes lie side by side: what box_hierarchy.clh reads. Layouts as in
/// BoxHierarchy.
struct ElementClusters {
  BufferView<float> nodes;        ///< [count][6][16]
  BufferView<uint32_t> groups;    ///< [count][2][16]
  BufferView<uint32_t> elements;  ///< [count][16], BoxHierarchy::kNoElement in lanes without one
  uint32_t count = 0;
};

/// Clusters whose elements stay the same while the surface does, so that they are known before the boxes are.
struct FixedClusters {
  ElementClusters clusters;
  BufferView<Box> boxes;        ///< [count] of all elements of each cluster
  BufferView<uint32_t> begins;  ///< [body_count + 1] the clusters of each body
  BufferView<uint32_t> stale;   ///< the bodies whose boxes (`nodes` and `boxes`) are to be worked out, in any order
  uint64_t order = 0;           ///< changes when the elements of clusters do; not 0
};

/// Pairs of clusters that are found while the host goes on. `count`: how many there are, which may be more than `pairs` holds. A second
/// number behind it, if there is one, is not 0 where they are refused.
struct ClusterPairsOnDevice {
  BufferView<UInt2> pairs;
  const DeviceBuffer<uint32_t>* count = nullptr;
};

/// Finds the pairs of clusters that may hold elements which come near each other: the first stage of each detector of triangle surfaces
/// (proximity, continuous collisions, crossings). The detector gives the box of each element; what it gets are pairs of clusters, whose up
/// to 256 pairs of elements it tests itself.
///
/// Guarantee of every implementation: two elements whose boxes overlap (closed intervals), whose groups may meet, and which come nearer
/// than the distance of Begin() while both move straight, are in exactly one pair of clusters of Find(). How many pairs come besides, and
/// in which order, is the implementation's.
/// A run: Begin(), Add() of each kind that is needed, then Find() as often as wanted. Thread: one at a time.
class CandidatePairs {
 public:
  virtual ~CandidatePairs() = default;
  /// For statistics and messages.
  virtual std::string_view name() const = 0;

  /// Vertices move from `starts_m` to `ends_m` [vertex_count of the surface, m, w ignored]; elements that stay farther apart than
  /// `distance_m` are no candidates. `surface` must outlive the run. `wanted` [body], or a null view: pairs of two bodies for which it is 0
  /// may be left out.
  virtual absl::Status Begin(Queue& queue, const DeviceSurface& surface, BufferView<Float4> starts_m, BufferView<Float4> ends_m,
                             float distance_m, BufferView<uint32_t> wanted) = 0;
  /// Of surfaces at rest: elements of two bodies that are farther apart than the sum of their reaches [body, m] are no candidates. None is
  /// more than half of `distance_m`. A null view: all are that.
  virtual absl::Status BeginAtRest(Queue& queue, const DeviceSurface& surface, BufferView<Float4> positions_m, float distance_m,
                                   BufferView<float> /*reaches_m*/, BufferView<uint32_t> wanted) {
    return Begin(queue, surface, positions_m, positions_m, distance_m, wanted);
  }
  /// As Begin, with the surface, starts and distance of the last run: candidates of two bodies that both end where they did there may be
  /// left out.
  virtual absl::Status BeginAgain(Queue& queue, const DeviceSurface& surface, BufferView<Float4> starts_m, BufferView<Float4> ends_m,
                                  float distance_m) {
    return Begin(queue, surface, starts_m, ends_m, distance_m, {});
  }
  /// After Begin: there are no candidates, and nothing that a detector could have to refuse; the rest of the run may be left out.
  virtual bool is_empty() const { return false; }
  /// After Begin: false if the coordinates of all bodies are finite and below 1e8 m.
  virtual bool may_be_refused() const { return true; }
  /// Whether TakeTriangleGroups does anything.
  virtual bool takes_triangle_groups() const { return false; }
  /// After Begin, before Add: [triangle] groups that take the place of the surface's in this run; a null view: those of the surface.
  virtual void TakeTriangleGroups(BufferView<uint32_t> /*groups*/) {}
  /// After Begin: [body_count] 0 for a body none of whose elements is in a candidate, so that nothing about it need be worked
  /// out; its coordinates are finite and below 1e8 m. A null view: not known, all count.
  virtual BufferView<uint32_t> active_bodies() const { return {}; }

  /// Whether Fixed() may take the place of Add().
  virtual bool has_fixed_clusters() const { return false; }
  /// For detectors that fill in boxes themselves, all of them in all runs: those of stale bodies are wanted. What was worked out of other
  /// active bodies, in the run before, still holds. Valid until the next Begin.
  virtual FixedClusters Fixed(SurfaceElement /*kind*/) const { return {}; }

  /// Takes the boxes [m] of all elements of a kind; those of inactive bodies are not read. What it returns is valid until the next Begin.
  virtual absl::StatusOr<ElementClusters> Add(Queue& queue, SurfaceElement kind, BufferView<Box> boxes) = 0;

  /// Pairs (p, q) of clusters of the two kinds; where both are the same, each unordered pair once. One blocking read. Errors:
  /// ResourceExhausted naming max_cluster_pairs.
  virtual absl::Status Find(Queue& queue, SurfaceElement p, SurfaceElement q) = 0;
  /// Whether FindOnDevice does after Add().
  virtual bool finds_on_device() const { return false; }
  /// As Find, without waiting, where clusters are fixed, or finds_on_device(). What is beyond the buffer is left to Find, which makes it
  /// larger. Valid until the next search of this pair of kinds, Find included; another one of two kinds, or within one, takes its place.
  virtual absl::StatusOr<ClusterPairsOnDevice> FindOnDevice(Queue& /*queue*/, SurfaceElement /*p*/, SurfaceElement /*q*/) {
    return absl::UnimplementedError("candidates: their clusters are not fixed");
  }
  uint32_t count() const { return count_; }
  BufferView<UInt2> pairs() const { return pairs_; }  ///< of the last Find

 protected:
  uint32_t count_ = 0;
  BufferView<UInt2> pairs_;
};

/// Which implementation a detector uses. None changes what is found.
enum class CandidateStructure {
  kAutomatic,  ///< kBodies in scenes of many small bodies, else kTree
  kTree,       ///< one packed hierarchy over all elements of a kind: BoxHierarchy
  kBodies,     ///< pairs of bodies that no plane keeps apart, then their clusters: BodyCandidates
};
/// All but kAutomatic, in their order.
inline constexpr std::array kCandidateStructures = {CandidateStructure::kTree, CandidateStructure::kBodies};

/// The structures of one detector, made when they are first needed.
class CandidateStructures {
 public:
  /// `max_pairs` (below 2^32) bounds the memory: 8 bytes a pair.
  static CandidateStructures Create(std::shared_ptr<Context> context, uint64_t max_pairs, CandidateStructure wanted);
  /// What is best for a surface, if it was not prescribed.
  absl::StatusOr<CandidatePairs*> For(const DeviceSurface& surface) { return Get(Choose(surface)); }
  /// The tree, which needs no positions of vertices: for those in double.
  absl::StatusOr<CandidatePairs*> Tree() { return Get(CandidateStructure::kTree); }

 private:
  CandidateStructure Choose(const DeviceSurface& surface) const;
  absl::StatusOr<CandidatePairs*> Get(CandidateStructure structure);

  std::shared_ptr<Context> context_;
  uint64_t max_pairs_ = 0;
  CandidateStructure wanted_ = CandidateStructure::kAutomatic;
  std::array<std::unique_ptr<CandidatePairs>, kCandidateStructures.size()> made_;
};

}  // namespace palpate::gpu
