#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "gpu/collision/nurbs_distance.h"
#include "gpu/collision/nurbs_objects.h"
#include "gpu/collision/nurbs_patch.h"
#include "gpu/collision/nurbs_queries.h"

namespace palpate::gpu::nurbs {

/// Where the distance of two patches is least nearby.
struct PatchMinimum {
  Parameters x = {};
  Vector point_a = {}, point_b = {};
  double distance_m = 0;
  double residual = 0;      ///< as in NurbsMinimum
  bool is_on_rim = false;   ///< an end of a parameter holds it, against a gradient that is none of rounding
  bool is_isolated = true;  ///< no direction along which the second derivatives vanish, but for rounding
  bool is_minimum = true;   ///< false at a saddle, or where the iteration did not come to rest
};

/// Moves `x`, in [0, 1]^4, to a local minimum of the distance by Newton's iteration on half its square. Parameters stay at the ends of the
/// patches while the gradient pushes outwards. Steps are damped until the second derivatives are positive and the distance falls; at the
/// end, where rounding hides how it falls, until the gradient does. `size_m`: of both patches, for what counts as rounding.
PatchMinimum MinimizeDistance(const Net& a, const Net& b, Parameters x, double size_m);

/// Balls around the patches of objects as they are, made when they are asked for. The objects must outlive it.
class PatchBalls {
 public:
  struct Ball {
    Vector centre_m = {};  ///< as the control points were given
    double radius_m = 0;
  };
  explicit PatchBalls(const NurbsObjects& objects) : objects_(objects) {}

  /// Around the control points of each patch of an object.
  std::span<const Ball> Loose(uint32_t object);
  /// Around the Bezier points of a patch of the object.
  const Ball& Tight(uint32_t object, uint32_t patch);

 private:
  const NurbsObjects& objects_;
  std::map<uint32_t, std::vector<Ball>> loose_;
  std::map<std::pair<uint32_t, uint32_t>, Ball> tight_;
};

/// Polishes pairs of parts of one query into minima. Objects and balls must outlive it.
class MinimumFinder {
 public:
  MinimumFinder(const NurbsObjects& objects, const NurbsQuery& query, PatchBalls& balls);

  /// The local minimum that an iteration from the middles of the parts leads to; of nodes, from their first patches. Nothing if it is no
  /// minimum on the patches around, or was returned before. Minima that are not isolated and equally far count as one.
  std::optional<NurbsMinimum> Polish(const NurbsPair& pair);
  /// As Polish, and where the patches around lead farther down, there.
  NurbsMinimum Descend(const NurbsPair& pair);

 private:
  struct Side {
    uint32_t object = 0;
    NurbsPose pose;
    double stretch = 0;            // no vector becomes longer by more
    std::map<uint32_t, Net> nets;  // by patch, made when they are asked for
  };
  struct Place {
    uint32_t patch = 0;
    std::array<double, 2> uv = {};  // in [0, 1]
  };
  const Net& NetOf(Side& side, uint32_t patch);
  NurbsMinimum Describe(uint32_t patch_a, uint32_t patch_b, const PatchMinimum& minimum);
  void AddPlaces(const Net& net, uint32_t patch, const Vector& point, std::vector<Place>& places) const;
  std::vector<Place> PlacesOf(Side& side, uint32_t patch, const Vector& point);
  struct Found {
    uint32_t patch_a = 0, patch_b = 0;
    PatchMinimum minimum;
  };
  struct Judged {
    Vector point_a = {}, point_b = {};
    double distance_m = 0;
    bool is_isolated = false;
    bool is_minimum = false;
  };
  Found Minimize(const NurbsPair& pair);
  struct Around {
    std::optional<Found> lower;  // a place that the patches around lead down to
    bool is_valley = false;      // they lead to others that are equally far
  };
  Around LookAround(const Found& from);

  const NurbsObjects& objects_;
  PatchBalls& balls_;
  std::array<Side, 2> sides_;
  Vector origin_m_ = {};
  double size_m_ = 0;
  std::vector<Judged> judged_;  // what iterations led to, and whether it is a minimum on the patches around
};

}  // namespace palpate::gpu::nurbs
