#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "gpu/base/status.h"
#include "gpu/collision/nurbs_objects.h"
#include "gpu/primitives/scan.h"
#include "gpu/runtime/buffer.h"
#include "gpu/runtime/queue.h"
#include "gpu/shared/nurbs_types.h"

namespace palpate::gpu {

/// What is put around a part of a patch. Nodes of the tree above patches have boxes along principal axes; around these, placed, the others
/// are put.
enum class NurbsVolume : uint32_t {
  kTangentBox,    ///< turned box along the chords of the net and across them
  kPrincipalBox,  ///< turned box along the principal axes of the control points, as published
  kAlignedBox,
  kSphere,
  kDop14,
  kDop18,
  kDop26,
};

/// What is cut next of a pair of parts that may meet. In a patch the direction is cut in which the net is longer.
enum class NurbsSplit : uint32_t {
  kLarger,     ///< the part with the larger volume, in two
  kAlternate,  ///< the one and the other in turn, in two, as published
  kBoth,       ///< both in two: 4 pairs
  kSixteen,    ///< both in four: 16 pairs; nodes above patches in two
};

struct NurbsQueryOptions {
  NurbsVolume volume = NurbsVolume::kTangentBox;
  NurbsSplit split = NurbsSplit::kLarger;
  bool first_only = false;  ///< of each query one hit, if there is any
  /// Where a surface meets itself. Queries name one object of one surface twice, in one pose; volume and split are the first ones.
  bool is_self = false;
  double tolerance_m = 0;         ///< parts with no larger diagonal are not cut; >= 0, with 0 the levels end the search
  uint32_t max_level = 80;        ///< cuts of both objects together, at most 200
  uint32_t max_pairs = 1U << 22;  ///< of one level, in memory at a time (100 bytes each), at most 2^27
  uint32_t max_hits = 1U << 24;   ///< of one Run, at most 2^27; more are an error

  /// InvalidArgument naming the field out of range.
  absl::Status Validate() const;
};

/// p_W = linear * p + offset_m for a point p of an object.
struct NurbsPose {
  std::array<double, 9> linear = {1, 0, 0, 0, 1, 0, 0, 0, 1};  ///< rows
  std::array<double, 3> offset_m = {0, 0, 0};
};

struct NurbsQuery {
  uint32_t object_a = 0, object_b = 0;
  NurbsPose pose_a, pose_b;
};

/// A part of an object.
struct NurbsPart {
  uint32_t surface = 0;                     ///< of its object
  uint32_t patch = 0;                       ///< of all objects
  std::array<double, 2> u = {}, v = {};     ///< parameter intervals
  std::array<double, 3> point_m = {};       ///< of the surface at their middles, in W; in float
  uint32_t u_interval = 0, v_interval = 0;  ///< of the patch: [i, i + 1] / 2^level, i | level << 24
  bool is_node = false;  ///< all patches of a node of the tree, from `patch` on: the levels or the tolerance ended the search there
  double mid_u() const { return 0.5 * (u[0] + u[1]); }
  double mid_v() const { return 0.5 * (v[0] + v[1]); }
};

/// Two parts that are not known to be apart.
struct NurbsHit {
  uint32_t query = 0;
  NurbsPart a, b;
  double distance_m = 0;  ///< of the two points
  double size_m = 0;      ///< longer diagonal of the two volumes
};

struct NurbsQueryResult {
  std::vector<NurbsHit> hits;  ///< sorted by query, patches and intervals
  uint64_t pair_tests = 0;     ///< of volumes
  uint32_t levels = 0;         ///< launches of the search over all queries; 0 with first_only
  /// Device memory that the largest batch needed at a time, beside its objects. With first_only that of one query: its stack and records.
  uint64_t peak_bytes = 0;
};

/// Where pairs of NURBS objects meet, for many pairs at a time, by cutting the parts that may until they are small.
///
/// Conservative: if points of the two surfaces coincide in exact arithmetic, their parameters are in the intervals of some hit (with
/// first_only: the query has a hit). A hit says that the volumes of its parts are not apart by more than the bound on rounding (slack_m):
/// no point of the one is farther from the other than twice size_m and that bound. Hits of patches that both end at a knot touch there, so
/// parameters of a shared end may be in several.
/// Nothing is prepared for a query, and its two poses may be any (rigid ones give tighter volumes; singular ones give flat ones).
/// With is_self: if points of two places (u, v) of a surface coincide, a hit has them, in either order. A pair of parts is left out if the
/// rectangle of parameters around both is proven to map one to one, by cones around its tangents. Where that cannot be proven there are
/// hits without a contact, of parts side by side or of one part twice: at poles and cusps, and at seams, since there the surface does meet
/// itself. All hits: breadth first, one launch a level for all queries; memory follows the count of pairs, which is known before they are
/// written. If it passes max_pairs, the queries are searched in halves. First hits: in depth, one work-item a query, nearest pair first.
/// Thread: one at a time. Determinism: run to run on one device.
/// Source: the thesis named in docs/algorithms/nurbs.md, chapter 2, without its mistakes.
class NurbsQueries {
 public:
  static absl::StatusOr<NurbsQueries> Create(const std::shared_ptr<Context>& context, const NurbsQueryOptions& options);

  /// Blocking. Errors: InvalidArgument (a query's object or pose), ResourceExhausted (one query alone has more than max_pairs, or all more
  /// than max_hits).
  absl::StatusOr<NurbsQueryResult> Run(Queue& queue, const NurbsObjects& objects, std::span<const NurbsQuery> queries);

  /// Bound on all rounding of a query: points that are farther apart are not taken for the same.
  static double SlackMetres(const NurbsObjects& objects, const NurbsQuery& query);
  /// How far rounding in double may move points of the two objects against each other on their way to W [m].
  static double LostInDouble(const NurbsObjects& objects, const NurbsQuery& query);

 private:
  NurbsQueries() = default;
  absl::Status MakeKernels(const NurbsObjects& objects, uint32_t stack);
  absl::Status RunFirst(Queue& queue, const NurbsObjects& objects, std::span<const NurbsQuery> queries, NurbsQueryResult& result);
  /// False if there were too many pairs. `first`: index of the first of them.
  absl::StatusOr<bool> RunAll(Queue& queue, const NurbsObjects& objects, std::span<const NurbsQuery> queries, size_t first,
                              NurbsQueryResult& result);
  absl::Status AppendHits(Queue& queue, const NurbsObjects& objects, std::span<const NurbsQuery> queries, uint32_t count,
                          NurbsQueryResult& result);

  std::shared_ptr<Context> context_;
  NurbsQueryOptions options_;
  size_t group_ = 1;
  uint32_t children_ = 2;
  ProgramDefines defines_;
  Kernel roots_, expand_, emit_, first_, middles_;
  ExclusiveScan scan_;
  DeviceBuffer<NurbsPlacement> placements_;
  DeviceBuffer<NurbsPair> pairs_, next_, found_;
  DeviceBuffer<uint8_t> codes_;
  DeviceBuffer<uint32_t> live_, hits_, tests_, live_total_, hit_total_;
  DeviceBuffer<NurbsMiddles> middles_out_;
};

}  // namespace palpate::gpu
