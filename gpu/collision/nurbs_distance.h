#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "gpu/base/status.h"
#include "gpu/collision/nurbs_objects.h"
#include "gpu/collision/nurbs_queries.h"
#include "gpu/primitives/scan.h"
#include "gpu/runtime/buffer.h"
#include "gpu/runtime/queue.h"
#include "gpu/shared/nurbs_types.h"

namespace palpate::gpu {

enum class NurbsDistanceMode : uint32_t {
  kLeast,   ///< the least distance of the two objects
  kMinima,  ///< all local minima of the distance within a range
};

struct NurbsDistanceOptions {
  NurbsDistanceMode mode = NurbsDistanceMode::kLeast;
  /// kLeast: how far below the result the lower bound may be. Never less than four times the query's slack, and 2e-5 of the distance.
  double tolerance_m = 1e-4;  ///< positive
  double range_m = 0;         ///< kMinima: how far minima may be; positive
  double leaf_m = 0;          ///< kMinima: parts with no larger diagonal are not cut, but polished; positive
  uint32_t max_level = 120;   ///< cuts of both objects together, at most 200
  /// kLeast: cuts of the search in depth that each query begins with, at most 2^20. 0: what suits the device.
  uint32_t depth_cuts = 0;
  /// A query with more pairs than this on a level is not searched on: surfaces that are parallel to the tolerance. At most max_pairs / 2.
  uint32_t max_pairs_of_query = 1U << 16;
  uint32_t max_pairs = 1U << 22;  ///< of one level, in memory at a time (150 bytes each), at most 2^26

  /// InvalidArgument naming the field out of range.
  absl::Status Validate() const;
};

/// Two places at which the distance of two surfaces has a local minimum, in W.
struct NurbsMinimum {
  uint32_t surface_a = 0, surface_b = 0;       ///< of their objects
  uint32_t patch_a = 0, patch_b = 0;           ///< of all objects
  std::array<double, 2> uv_a = {}, uv_b = {};  ///< parameters of the surfaces
  std::array<double, 3> point_a_m = {}, point_b_m = {};
  std::array<double, 3> normal_a = {}, normal_b = {};  ///< unit, along S_u x S_v before the pose; zero where there is none (at a pole)
  double distance_m = 0;
  /// Of the largest product of a unit tangent and the unit vector between the points, along which both are free to move. 0 if they meet.
  double residual = 0;
  bool is_on_rim = false;  ///< the end of a patch holds it: a rim or a crease of the object
  /// The second derivatives are positive along all free parameters. If not, it is a place in a valley, and the only one of its distance.
  bool is_isolated = true;
};

struct NurbsDistance {
  /// kLeast: the nearest places. kMinima: all that were found, nearest first, each once, also where patches share an edge.
  std::vector<NurbsMinimum> minima;
  /// No points of the two objects are nearer to each other; kMinima: or range_m, if that is less. Certified, rounding included.
  double lower_bound_m = 0;
  bool is_complete = true;  ///< max_pairs_of_query did not end the search. If it did, the bound stands, and minima may be missing
};

/// Distances of pairs of NURBS objects, for many pairs at a time, by branch and bound on pairs of parts.
///
/// For kLeast each query first goes in depth, by itself, nearest parts first. On a CPU most of them end there. What remains goes breadth
/// first, all queries together, from the bounds that were found. Bounds from below are gaps of boxes around control points, bounds from
/// above distances of corners. kMinima goes breadth first only, and drops pairs, too, in which the distance grows or falls throughout along
/// a parameter, by cones around tangents. The host polishes what is left in double: Newton's iteration on the four parameters, kept in the
/// patches. A minimum at a side that patches share counts only if it is one on all of them.
///
/// Guarantees: lower_bound_m; kLeast: the result is above the least distance by no more than its difference from lower_bound_m. kMinima:
/// each local minimum within the range is in a pair that was polished. The iteration from there finds it if its basin reaches the pair's
/// middle, so smaller leaves are surer. Surfaces that meet have no isolated minima: ask NurbsQueries where they do. Blocking. Thread: one
/// at a time. Determinism: run to run on one device.
class NurbsDistances {
 public:
  static absl::StatusOr<NurbsDistances> Create(const std::shared_ptr<Context>& context, const NurbsDistanceOptions& options);

  /// One result a query. Errors: InvalidArgument (a query's object or pose).
  absl::StatusOr<std::vector<NurbsDistance>> Run(Queue& queue, const NurbsObjects& objects, std::span<const NurbsQuery> queries);

 private:
  NurbsDistances() = default;
  absl::Status MakeKernels(const NurbsObjects& objects);
  NurbsRule Rule(uint32_t count) const;
  float range_m() const;
  /// False if there were too many pairs.
  absl::StatusOr<bool> RunSome(Queue& queue, const NurbsObjects& objects, std::span<const NurbsQuery> queries,
                               std::span<NurbsDistance> results);
  absl::Status Prepare(Queue& queue, const NurbsObjects& objects, std::span<const NurbsQuery> queries);
  absl::Status Bound(Queue& queue, const NurbsObjects& objects, uint32_t count, uint32_t query_count);
  absl::Status GrowFound(Queue& queue, size_t kept, size_t needed);
  absl::Status Finish(Queue& queue, const NurbsObjects& objects, std::span<const NurbsQuery> queries, uint32_t hit_count,
                      std::span<NurbsDistance> results);

  std::shared_ptr<Context> context_;
  NurbsDistanceOptions options_;
  size_t group_ = 1;
  ProgramDefines defines_;
  Kernel roots_, in_depth_, bounds_, count_, emit_, next_level_;
  ExclusiveScan scan_;
  DeviceBuffer<NurbsPlacement> placements_;
  DeviceBuffer<NurbsPair> pairs_, next_, found_;
  DeviceBuffer<NurbsDistanceBest> bests_;
  DeviceBuffer<uint8_t> codes_;
  DeviceBuffer<float> lowers_, uppers_;
  DeviceBuffer<uint32_t> live_, hits_, live_of_query_, live_total_, hit_total_;
};

}  // namespace palpate::gpu
