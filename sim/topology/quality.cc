#include "sim/topology/quality.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include <Eigen/Geometry>

#include "sim/topology/closed_mesh.h"

namespace palpate::sim {
namespace {

using Points = std::array<Eigen::Vector3d, 4>;

double VolumeOf(const Points& p) { return (p[1] - p[0]).cross(p[2] - p[0]).dot(p[3] - p[0]) / 6; }

std::array<double, 6> EdgeLengths(const Points& p) {
  std::array<double, 6> lengths;
  for (size_t e = 0; e < 6; ++e) lengths[e] = (p[static_cast<size_t>(kTetEdges[e][0])] - p[static_cast<size_t>(kTetEdges[e][1])]).norm();
  return lengths;
}

// Sines of half the solid angles at the four vertices.
std::array<double, 4> HalfSolidAngleSines(const Points& p) {
  // By both ends: where the compiler unrolls all, it warns of edges that TetEdgeBetween cannot return.
  std::array<std::array<double, 4>, 4> l{};
  for (size_t i = 0; i < 4; ++i) {
    for (size_t j = 0; j < 4; ++j) l[i][j] = (p[i] - p[j]).norm();
  }
  const double volume = VolumeOf(p);
  std::array<double, 4> sines;
  for (size_t i = 0; i < 4; ++i) {
    double product = 1;
    for (size_t j = 0; j < 4; ++j) {
      for (size_t k = j + 1; k < 4; ++k) {
        if (j == i || k == i) continue;
        const double sum = l[i][j] + l[i][k];
        product *= sum * sum - l[j][k] * l[j][k];
      }
    }
    sines[i] = std::min(1.0, 12 * volume / std::sqrt(product));
  }
  return sines;
}

}  // namespace

double MeanRatio(const Points& p) {
  double sum_sq = 0;
  for (const double l : EdgeLengths(p)) sum_sq += l * l;
  const double volume = VolumeOf(p);
  return 12 * std::cbrt(9 * volume * volume) / sum_sq;
}

double EdgeRatio(const Points& p) {
  const auto lengths = EdgeLengths(p);
  const auto [low, high] = std::minmax_element(lengths.begin(), lengths.end());
  return *low / *high;
}

double MinHalfSolidAngleSine(const Points& p) {
  const auto sines = HalfSolidAngleSines(p);
  // Of the regular tet: 2 sqrt(6) / 18.
  return *std::min_element(sines.begin(), sines.end()) / (2 * std::numbers::sqrt3 * std::numbers::sqrt2 / 18);
}

TetQuality MeasureTet(const Points& p) {
  TetQuality quality;
  const std::array<double, 6> l = EdgeLengths(p);
  const double volume = VolumeOf(p);
  const auto [low, high] = std::minmax_element(l.begin(), l.end());
  std::array<Eigen::Vector3d, 4> normals;  // outward, length: twice the area
  double area = 0;
  for (size_t f = 0; f < 4; ++f) {
    const auto& c = kTetFaces[f];
    const Eigen::Vector3d& a = p[static_cast<size_t>(c[0])];
    normals[f] = (p[static_cast<size_t>(c[1])] - a).cross(p[static_cast<size_t>(c[2])] - a);
    area += normals[f].norm() / 2;
  }
  const double inradius = 3 * volume / area;
  // Products of opposite edges: the sides of a triangle whose area gives the circumscribed sphere.
  const double a = l[0] * l[5];
  const double b = l[1] * l[4];
  const double c = l[2] * l[3];
  const double circumradius = std::sqrt((a + b + c) * (a + b - c) * (a - b + c) * (b + c - a)) / (24 * volume);
  quality.radius_ratio = 3 * inradius / circumradius;
  quality.mean_ratio = MeanRatio(p);
  const auto sines = HalfSolidAngleSines(p);
  // The half angle may exceed a right angle only where another one is small, so the smallest sine is that of the smallest angle.
  quality.min_solid_angle =
      2 * std::asin(*std::min_element(sines.begin(), sines.end())) / (6 * std::asin(std::numbers::sqrt3 / 3) - std::numbers::pi);
  double dihedral = std::numbers::pi;
  for (size_t f = 0; f < 4; ++f) {
    for (size_t g = f + 1; g < 4; ++g) {
      // atan2 keeps its digits for angles near 0 and pi.
      const double angle = std::numbers::pi - std::atan2(normals[f].cross(normals[g]).norm(), normals[f].dot(normals[g]));
      dihedral = std::min(dihedral, angle);
    }
  }
  quality.min_dihedral = dihedral / std::acos(1.0 / 3);
  quality.edge_ratio = *low / *high;
  quality.inradius_per_edge = 2 * std::numbers::sqrt2 * std::numbers::sqrt3 * inradius / *high;
  return quality;
}

}  // namespace palpate::sim
