#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "gpu/base/status.h"
#include "gpu/collision/nurbs_objects.h"
#include "gpu/collision/nurbs_queries.h"

namespace palpate::gpu {

enum class NurbsContactKind : uint32_t {
  kCrossing,    ///< certified: the surfaces cross within `radius` of the parameters; at the edge of a patch perhaps that much beyond it
  kTangential,  ///< converged to a common point to 1e-10 of the size, and not certified: the normals are too near to parallel
  kUnresolved,  ///< nearest points that were found; neither a common point nor a proof that the parts are apart
};

/// A hit after Newton's iteration in double.
struct NurbsContact {
  uint32_t query = 0;
  uint32_t hit = 0;  ///< index of the hit
  NurbsContactKind kind = NurbsContactKind::kUnresolved;
  uint32_t surface_a = 0, surface_b = 0;
  std::array<double, 2> uv_a = {}, uv_b = {};
  std::array<double, 3> point_m = {};                  ///< of the first surface, in W
  std::array<double, 3> normal_a = {}, normal_b = {};  ///< of the surfaces there, along S_u x S_v, unit; 0 where that is 0, and of nodes
  double distance_m = 0;                               ///< of the two points
  double radius = 0;                                   ///< kCrossing: of the parameters, as a share of the intervals of the hit
};

struct NurbsPolishResult {
  std::vector<NurbsContact> contacts;  ///< in the order of the hits
  uint64_t dropped = 0;                ///< hits whose parts are proven to be apart
};

/// Takes hits to common points of the two surfaces, on the host in double.
///
/// Newton's iteration with the shortest step, from the middles, in units of the intervals. A common point inside the hit's intervals is
/// certified by the theorem of Newton and Kantorovich for the polynomial w_b X_a - w_a X_b, whose second derivatives are bounded by
/// differences of control points. What does not converge there is searched on in double; if all parts are apart, the hit is dropped.
/// Otherwise a common point that is at most the width of the intervals beside them is taken. So a dropped hit is no contact, and where
/// surfaces cross in the parts of a hit something is reported for it. Hits of nodes above patches are not polished: kUnresolved. Errors:
/// InvalidArgument (a hit that is not of these objects and queries). Source: L. V. Kantorovich, G. P. Akilov, Functional Analysis, chapter
/// XVIII.
absl::StatusOr<NurbsPolishResult> PolishNurbsHits(const NurbsObjects& objects, std::span<const NurbsQuery> queries,
                                                  std::span<const NurbsHit> hits);

}  // namespace palpate::gpu
