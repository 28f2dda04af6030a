#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <Eigen/Core>
#include <Eigen/Geometry>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "sim/nurbs/nurbs_curve.h"
#include "sim/nurbs/nurbs_surface.h"

namespace palpate::sim {

/// One curve of a trimming loop, in the (u, v) of its patch.
struct NurbsTrimDescription {
  NurbsCurveDescription<2> curve;
  bool is_reversed = false;  ///< the loop runs along it from its last parameter to its first
  uint32_t edge = 0;         ///< trims with the same number are one edge in space, with the same parameters along it; 0: not said
};

struct NurbsPatchDescription {
  std::string name;
  NurbsDescription surface;
  /// What is left of the surface lies to the left of its loops: the outer one runs counter-clockwise in (u, v), holes clockwise. None: all.
  std::vector<std::vector<NurbsTrimDescription>> loops;
};

/// An object of patches as files have it, in metres.
struct NurbsObjectDescription {
  std::string name;
  std::vector<NurbsPatchDescription> patches;
};

inline constexpr size_t kMaxNurbsPatches = size_t{1} << 16;
inline constexpr size_t kMaxNurbsObjectPoints = size_t{1} << 22;  ///< control points of surfaces and trims together
inline constexpr size_t kMaxNurbsCrossings = size_t{1} << 20;     ///< of all loops with lines of knots
inline constexpr double kMaxNurbsCoordinate_m = 1e6;
inline constexpr double kNurbsLoopGap = 1e-6;  ///< between curves of a loop, and beyond the domain: as a share of the domain's width

struct NurbsTrim {
  NurbsCurve<2> curve;
  bool is_reversed = false;
  uint32_t edge = 0;

  /// Where the loop enters and leaves it.
  Eigen::Vector2d start() const { return is_reversed ? curve.At(curve.domain().second) : curve.At(curve.domain().first); }
  Eigen::Vector2d end() const { return is_reversed ? curve.At(curve.domain().first) : curve.At(curve.domain().second); }
};

struct NurbsPatch {
  std::string name;
  NurbsSurface surface;
  std::vector<std::vector<NurbsTrim>> loops;  ///< as in NurbsPatchDescription

  /// The loops, or the four sides of the domain.
  std::vector<std::vector<NurbsTrim>> Boundary() const;
};

/// What trimming leaves of a patch's domain: where the winding number of its loops is positive. It is exactly that of polylines no part of
/// which is farther from a loop than `tolerance` of the domain's widths. Loops may be of any shape.
class NurbsTrimRegion {
 public:
  explicit NurbsTrimRegion(const NurbsPatch& patch, double tolerance = 1e-6);
  /// Points on a polyline count as inside. O(points of the polylines).
  bool Contains(const Eigen::Vector2d& uv) const;

 private:
  std::vector<std::vector<Eigen::Vector2d>> loops_;
};

/// A curve on the boundary of a patch, as a part of an edge in space.
struct NurbsTrimPlace {
  uint32_t patch = 0, loop = 0, curve = 0;
  bool is_opposed = false;  ///< its parameter runs against that of the first
};

/// An edge in space.
struct NurbsEdge {
  std::vector<NurbsTrimPlace> places;        ///< one: open. Two: joined
  bool is_point = false;                     ///< a pole: needs no second
  double gap_m = 0;                          ///< how far two places are from each other, at the most of some points
  Eigen::Vector3d start_m, middle_m, end_m;  ///< of the first place, along its parameter
};

/// Surfaces in space, trimmed and joined. Made by Create alone, so that its parts fit.
class NurbsObject {
 public:
  /// Checks all of it. Errors name patch and field: `patches[3] "lid", loops[0].curves[2]: weights[1]: ...`. InvalidArgument: bad knots or
  /// weights (parameters are at most 1e12, weights in [1e-9, 1e9]), values that are not finite, loops that do not close, have no area, run
  /// the wrong way round or leave the domain, edge numbers that are used more than twice; ResourceExhausted: too many patches or control
  /// points.
  static absl::StatusOr<NurbsObject> Create(const NurbsObjectDescription& description);
  /// Untrimmed surfaces.
  static absl::StatusOr<NurbsObject> FromSurfaces(std::string_view name, std::span<const NurbsSurface> surfaces);

  /// What Create takes. Control points are divided by their weights again, so they may differ from those given by one rounding.
  NurbsObjectDescription Describe() const;

  const std::string& name() const { return name_; }
  std::span<const NurbsPatch> patches() const { return patches_; }
  bool is_trimmed() const;
  Eigen::AlignedBox3d ControlBox_m() const;

  /// Edges, by the numbers that trims carry, and else where two curves have the same points at the same shares of their parameters,
  /// forwards or backwards. Places count as one within `tolerance_m`; 0: 1e-7 of the object's size. In the order of their first places.
  std::vector<NurbsEdge> Edges(double tolerance_m = 0) const;

  /// Whether the patches close and are turned the same way: each edge has two places, through which the loops run in opposite directions.
  /// Error: InvalidArgument with the number of edges that are not so, and patch, loop, curve and place of the first.
  absl::Status CheckClosed(double tolerance_m = 0) const;

  /// The same shape with every span between knots halved so often, in [0, 16]. Error: more control points than are allowed.
  absl::StatusOr<NurbsObject> Refined(int levels) const;
  /// The same shape with degrees of at least `least`, in [1, kMaxNurbsDegree]: what shells of planes and cylinders need.
  absl::StatusOr<NurbsObject> WithDegree(int least) const;
  /// The same shape with lines between two knots no longer than `span_m`: longer spans are cut into equal parts. Lengths are those of lines
  /// through knots and midway between them. Errors: a length that is not positive; more control points than are allowed.
  absl::StatusOr<NurbsObject> WithSpans(double span_m) const;
  /// The same shape with a knot in a patch.
  absl::StatusOr<NurbsObject> WithKnot(size_t patch, NurbsDirection direction, double t, int times) const;
  NurbsObject Transformed(const Eigen::Affine3d& map) const;
  /// With other control points, patch by patch as in NurbsSurface::WithControlPoints.
  NurbsObject WithControlPoints(std::span<const Eigen::Vector3d> control_m) const;

 private:
  NurbsObject() = default;

  std::string name_;
  std::vector<NurbsPatch> patches_;
};

/// "patches[3]" with the patch's name, if it has one, cleaned for messages.
std::string NurbsPatchPath(size_t index, std::string_view name);

/// Parameters inside the curve's domain where it crosses a line of knots inside the surface's domain, ascending. Found between points that
/// lie on different sides, 16 to a Bezier piece.
std::vector<double> CrossingsOfKnots(const NurbsCurve<2>& curve, const NurbsSurface& surface);

}  // namespace palpate::sim
