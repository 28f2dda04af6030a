#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <Eigen/Core>

#include "absl/status/statusor.h"
#include "sim/nurbs/nurbs_surface.h"

namespace palpate::sim {

/// A box with orthonormal axes.
struct TurnedBox {
  Eigen::Vector3d center_m;
  Eigen::Vector3d half_m;  ///< along the axes, not negative
  Eigen::Matrix3d axes;    ///< columns

  /// Along the principal axes of the covariance of the control points, around all of them and so around the surface, drawn out by
  /// rounding. Points in one place, on a line or in a plane give a box without that extent. O(control points). Source: the thesis named in
  /// docs/algorithms/nurbs.md, chapter 2.
  static TurnedBox Around(const NurbsSurface& surface);
  double diagonal_m() const { return 2 * half_m.norm(); }
};

/// False only if one of the 15 axes keeps the boxes apart by more than rounding; boxes that touch overlap. Symmetric.
/// S. Gottschalk, M. C. Lin and D. Manocha, OBBTree, SIGGRAPH 1996.
bool DoOverlap(const TurnedBox& a, const TurnedBox& b);

struct NurbsQueryOptions {
  double tolerance_m = 0;             ///< parts are cut until their boxes have no longer diagonal; positive
  int max_level = 80;                 ///< cuts of both surfaces together until parts count as they are; [0, 200]
  bool first_only = false;            ///< return the first hit
  size_t max_hits = size_t{1} << 20;  ///< more are an error
};

/// Two parts whose boxes overlap.
struct NurbsHit {
  uint32_t patch_a = 0, patch_b = 0;
  Eigen::Vector2d middle_a, middle_b;  ///< (u, v)
  Eigen::Vector2d half_a, half_b;      ///< half the parts' parameter intervals
  Eigen::Vector3d point_m;             ///< mean of the boxes' middles
  double size_m = 0;                   ///< longer diagonal of the two boxes: at most the tolerance, unless max_level ended the cutting
};

struct NurbsQueryResult {
  std::vector<NurbsHit> hits;  ///< in the order of patches, and then of parameters
  uint64_t box_tests = 0;
  uint64_t cuts = 0;
};

/// Where two objects of patches meet, by cutting the parts that may: the larger box of a pair is cut, in the middle of the interval that is
/// wider as a share of the patch's domain.
/// Conservative: if S_a(u) = S_b(v), the intervals of some hit contain u and v (with first_only: there is a hit). A hit says no more than
/// that its two boxes overlap, so no point of the one part is farther than twice size_m from any of the other.
/// Errors: InvalidArgument for an option outside its range, ResourceExhausted for too many hits.
/// A host reference in double precision, O(control points) a cut. Source: the thesis named in docs/algorithms/nurbs.md, chapter 2, without
/// its mistakes.
absl::StatusOr<NurbsQueryResult> FindNurbsContacts(std::span<const NurbsSurface> a, std::span<const NurbsSurface> b,
                                                   const NurbsQueryOptions& options);

}  // namespace palpate::sim
