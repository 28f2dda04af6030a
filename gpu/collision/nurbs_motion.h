#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "gpu/base/status.h"
#include "gpu/collision/nurbs_objects.h"
#include "gpu/collision/nurbs_queries.h"
#include "gpu/runtime/buffer.h"
#include "gpu/runtime/queue.h"
#include "gpu/shared/nurbs_types.h"

namespace palpate::gpu {

struct NurbsMotionOptions {
  double tolerance_m = 1e-3;    ///< parts that, with their way in the interval of time, are no larger are not cut; positive
  uint32_t max_level = 160;     ///< cuts of both objects and of time together, at most 200
  uint32_t max_tests = 200000;  ///< of a query, of pairs of parts; positive

  /// InvalidArgument naming the field out of range.
  absl::Status Validate() const;
};

/// Each control point of both objects goes straight, at its own speed, from where the start puts it at time 0 to where the end does at 1.
struct NurbsMotionQuery {
  NurbsQuery start, end;  ///< of the same objects
};

/// What is known of the first contact of a query.
struct NurbsImpact {
  double lower = 0;         ///< there is no contact at times before this; above 1: none at all. Certified, rounding included
  bool is_complete = true;  ///< max_tests did not end the search. If it did, the bound stands, and there are no places
  bool may_meet = false;    ///< two parts are not known to be apart between `lower` and `upper`
  double upper = 0;         ///< end of the interval of time
  uint32_t surface_a = 0, surface_b = 0;
  std::array<double, 2> uv_a = {}, uv_b = {};  ///< middles of the parts; with a time, the places that meet
  /// Of the first contact near these parts, in double: there the distance falls to 0. Nothing where it does not, as when surfaces graze, or
  /// are in contact from the start.
  std::optional<double> time;
  uint32_t tests = 0;  ///< pairs of parts looked at
};

/// First contacts of moving NURBS objects, for many pairs at a time.
///
/// The third dimension of the search is time: a pair of parts in an interval of time is left out if boxes around the hulls of both ends of
/// the interval are apart. One work-item a query goes in depth into the earlier half first, and leaves out what begins after the earliest
/// pair that it could not cut on. So `lower` is the earliest time at which parts of the size of the tolerance are not known to be apart.
/// Blocking. Thread: one at a time. Determinism: run to run on one device.
class NurbsMotions {
 public:
  static absl::StatusOr<NurbsMotions> Create(const std::shared_ptr<Context>& context, const NurbsMotionOptions& options);

  /// One result a query. `start` and `end` were made from the same nets, and got other control points since by SetControl alone, or are the
  /// same: only poses change then. Errors: InvalidArgument (an object or pose of a query, surfaces or weights that differ).
  absl::StatusOr<std::vector<NurbsImpact>> Run(Queue& queue, const NurbsObjects& start, const NurbsObjects& end,
                                               std::span<const NurbsMotionQuery> queries);

 private:
  NurbsMotions() = default;
  absl::Status MakeKernel(const NurbsObjects& objects, uint32_t stack);
  absl::Status Place(Queue& queue, const NurbsObjects& start, const NurbsObjects& end, std::span<const NurbsMotionQuery> queries);

  std::shared_ptr<Context> context_;
  NurbsMotionOptions options_;
  size_t group_ = 1;
  ProgramDefines defines_;
  Kernel search_;
  DeviceBuffer<NurbsPlacement> start_placements_, end_placements_;
  DeviceBuffer<NurbsPair> found_;
  DeviceBuffer<float> lower_;
  DeviceBuffer<uint32_t> tests_;
};

}  // namespace palpate::gpu
