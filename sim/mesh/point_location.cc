#include "sim/mesh/point_location.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include <Eigen/Geometry>

#include "sim/mesh/signed_distance.h"

namespace palpate::sim {
namespace {

using Eigen::Vector3d;

constexpr double kInsideTolerance = 1e-6;  // of a weight

/// Points by their first coordinate, to be looked up by boxes.
class SortedPoints {
 public:
  explicit SortedPoints(std::span<const Vector3d> points_m) : points_m_(points_m) {
    for (uint32_t i = 0; i < points_m.size(); ++i) order_.emplace_back(points_m[i].x(), i);
    std::sort(order_.begin(), order_.end());
  }
  template <typename F>
  void ForEachIn(const Eigen::AlignedBox3d& box, const F& f) const {
    auto at = std::lower_bound(order_.begin(), order_.end(), std::pair(box.min().x(), uint32_t{0}));
    for (; at != order_.end() && at->first <= box.max().x(); ++at) {
      if (box.contains(points_m_[at->second])) f(at->second);
    }
  }

 private:
  std::span<const Vector3d> points_m_;
  std::vector<std::pair<double, uint32_t>> order_;
};

/// The least barycentric weight of a point in a tet.
double LeastWeight(const std::array<Vector3d, 4>& x, const Vector3d& p) {
  const double volume = (x[1] - x[0]).cross(x[2] - x[0]).dot(x[3] - x[0]);
  double least = std::numeric_limits<double>::infinity();
  for (size_t k = 0; k < 4; ++k) {
    std::array<Vector3d, 4> y = x;
    y[k] = p;
    least = std::min(least, (y[1] - y[0]).cross(y[2] - y[0]).dot(y[3] - y[0]) / volume);
  }
  return least;
}

/// The tet behind each triangle of the surface, whose order is that of the tets.
std::vector<uint32_t> TetsBehind(const TetMesh& mesh, const BoundarySurface& surface) {
  std::vector<uint32_t> tets;
  uint32_t tet = 0;
  for (const auto& triangle : surface.triangles) {
    const auto holds = [&](uint32_t corner) {
      return std::find(mesh.tets[tet].begin(), mesh.tets[tet].end(), surface.vertices[corner]) != mesh.tets[tet].end();
    };
    while (!std::all_of(triangle.begin(), triangle.end(), holds)) ++tet;
    tets.push_back(tet);
  }
  return tets;
}

}  // namespace

std::vector<PointPlace> LocatePoints(const TetMesh& mesh, std::span<const Vector3d> points_m, double reach_m) {
  std::vector<PointPlace> places(points_m.size());
  std::vector<double> depth(points_m.size(), -kInsideTolerance);
  const SortedPoints sorted(points_m);
  for (uint32_t t = 0; t < mesh.tets.size(); ++t) {
    std::array<Vector3d, 4> x;
    Eigen::AlignedBox3d box;
    for (size_t c = 0; c < 4; ++c) {
      x[c] = mesh.vertices[mesh.tets[t][c]];
      box.extend(x[c]);
    }
    const Vector3d slack = Vector3d::Constant(kInsideTolerance * box.diagonal().norm());
    sorted.ForEachIn({box.min() - slack, box.max() + slack}, [&](uint32_t i) {
      const double least = LeastWeight(x, points_m[i]);
      if (!(least > depth[i] || (least == depth[i] && places[i].tet == PointPlace::kNone))) return;
      depth[i] = least;
      places[i] = {t, points_m[i], 0};
    });
  }
  if (std::all_of(places.begin(), places.end(), [](const PointPlace& place) { return place.tet != PointPlace::kNone; })) return places;

  const BoundarySurface surface = ExtractBoundary(mesh);
  const std::vector<uint32_t> behind = TetsBehind(mesh, surface);
  std::vector<double> nearest_m(points_m.size(), std::numeric_limits<double>::infinity());
  for (size_t i = 0; i < places.size(); ++i) {
    if (places[i].tet != PointPlace::kNone) nearest_m[i] = -1;
  }
  for (size_t t = 0; t < surface.triangles.size(); ++t) {
    std::array<Vector3d, 3> x;
    Eigen::AlignedBox3d box;
    for (size_t c = 0; c < 3; ++c) {
      x[c] = mesh.vertices[surface.vertices[surface.triangles[t][c]]];
      box.extend(x[c]);
    }
    const Vector3d reach = Vector3d::Constant(reach_m);
    sorted.ForEachIn({box.min() - reach, box.max() + reach}, [&](uint32_t i) {
      if (nearest_m[i] < 0) return;
      const Vector3d on = ClosestOnTriangle(points_m[i], x[0], x[1], x[2]);
      const double distance_m = (on - points_m[i]).norm();
      if (!(distance_m < nearest_m[i]) || distance_m > reach_m) return;
      nearest_m[i] = distance_m;
      places[i] = {behind[t], on, distance_m};
    });
  }
  return places;
}

double DistanceToSurface(const TetMesh& mesh, const Vector3d& point_m) {
  const BoundarySurface surface = ExtractBoundary(mesh);
  double least_m = std::numeric_limits<double>::infinity();
  for (const auto& triangle : surface.triangles) {
    const auto at = [&](size_t c) -> const Vector3d& { return mesh.vertices[surface.vertices[triangle[c]]]; };
    least_m = std::min(least_m, (ClosestOnTriangle(point_m, at(0), at(1), at(2)) - point_m).norm());
  }
  return least_m;
}

}  // namespace palpate::sim
