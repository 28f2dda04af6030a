#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <Eigen/Core>
#include <Eigen/Geometry>

#include "sim/nurbs/nurbs_object.h"

namespace palpate::sim {

/// A place on an object of patches.
struct NurbsPlace {
  uint32_t patch = 0;
  Eigen::Vector2d uv{0, 0};
  Eigen::Vector3d point_m{0, 0, 0};  ///< S(u, v)
};

/// Where a segment is nearest to an object, and how the distance changes when the segment is moved without turning.
struct NurbsApproach {
  NurbsPlace place;
  Eigen::Vector3d on_segment_m{0, 0, 0};
  double distance_m = 0;
  Eigen::Vector3d normal{0, 0, 1};                            ///< unit, from the surface to the segment: the first derivatives
  Eigen::Matrix3d curvature_per_m = Eigen::Matrix3d::Zero();  ///< the second ones; zero at an edge of the surface
};

/// Nearest points of the trimmed surfaces of an object, in double, by safeguarded Newton iterations. Keeps what it needs of the object.
/// Immutable after construction: any number of threads.
class NurbsNearest {
 public:
  explicit NurbsNearest(const NurbsObject& object);

  /// The best local minimum of the distance from `point_m` of those that Newton iterations find, one from the nearest of 25 points on each
  /// Bezier patch whose box is nearer than the best so far. That is the nearest point unless a Bezier patch has several minima.
  NurbsPlace Nearest(const Eigen::Vector3d& point_m) const;

  /// The local minimum that an iteration from `start` leads to; if that lies on the rim of its patch, the best of it and the minima of
  /// other patches that come nearer. Never farther from the point than the start.
  NurbsPlace NearestFrom(const NurbsPlace& start, const Eigen::Vector3d& point_m) const;

  /// Of the segment between two points, from a start near it. The segment does not meet the surface near there: its distance is above 0,
  /// else the normal is that of the surface and there is no curvature.
  NurbsApproach Approach(const NurbsPlace& start, const Eigen::Vector3d& end0_m, const Eigen::Vector3d& end1_m) const;

  /// Whether a place is inside its trimmed patch, not on its rim.
  bool IsInside(const NurbsPlace& place) const;

 private:
  static constexpr size_t kSamples = 5;  // a side of a Bezier patch
  struct Sample {
    Eigen::Vector2d uv;
    Eigen::Vector3d point_m;
  };
  struct Piece {
    uint32_t patch;
    Eigen::AlignedBox3d box_m;  // of control points, so around the piece
    std::vector<Sample> samples;
  };
  struct RimSample {
    uint32_t loop, curve;
    double t, step;  // along the curve; to the next sample
    Eigen::Vector3d point_m;
  };
  struct Patch {
    NurbsPatch patch;
    std::vector<NurbsTrimRegion> region;  // one, of a trimmed patch
    std::vector<RimSample> rim;           // of a trimmed patch
  };
  struct Found {
    NurbsPlace place;
    double distance_m;
    bool is_on_rim;
  };
  Found Descend(uint32_t patch, const Eigen::Vector2d& start, const Eigen::Vector3d& point_m) const;
  Found OnRim(uint32_t patch, const Eigen::Vector3d& point_m) const;
  void TryPieces(const Eigen::Vector3d& point_m, Found* best) const;

  std::vector<Patch> patches_;
  std::vector<Piece> pieces_;
};

}  // namespace palpate::sim
