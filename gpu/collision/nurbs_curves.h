#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "gpu/base/status.h"
#include "gpu/collision/nurbs_objects.h"
#include "gpu/collision/nurbs_polish.h"
#include "gpu/collision/nurbs_queries.h"

namespace palpate::gpu {

struct NurbsCurveOptions {
  double tolerance_m = 0;          ///< how far a curve may be from its polyline, as its tangents tell; positive
  uint32_t max_points = 1U << 20;  ///< of all curves; more are an error
};

/// A point of both surfaces.
struct NurbsCurvePoint {
  uint32_t surface_a = 0, surface_b = 0;
  std::array<double, 2> uv_a = {}, uv_b = {};
  std::array<double, 3> point_m = {};  ///< of the first surface, in W
};

/// A line along which two objects cross. Where it goes over to another patch its point is there once, with its place on the patch before.
struct NurbsCurve {
  uint32_t query = 0;
  bool is_closed = false;  ///< the last point is joined to the first
  std::vector<NurbsCurvePoint> points;
};

/// The lines along which objects cross, as polylines, from certified crossings of a search for all hits.
///
/// From a crossing a line is followed both ways: a step along the tangent, and Newton's iteration back onto both surfaces in the plane
/// across it. All points are on both surfaces to 1e-11 of their size. Steps are as long as the angles between chord and tangents allow for
/// the tolerance. At the end of a patch the line ends exactly there, and goes on in the next patch where one begins there. What no line
/// passes is where the next one begins, so each crossing is on a line. A line ends, and is not closed, at the rim of an object, and where
/// the surfaces become tangential.
/// Host work in double, O(points). Determinism: same input, same bits. Errors: InvalidArgument (an option; contacts that are not of these
/// hits and queries), ResourceExhausted (more than max_points).
absl::StatusOr<std::vector<NurbsCurve>> TraceNurbsCurves(const NurbsObjects& objects, std::span<const NurbsQuery> queries,
                                                         std::span<const NurbsHit> hits, std::span<const NurbsContact> contacts,
                                                         const NurbsCurveOptions& options);

}  // namespace palpate::gpu
