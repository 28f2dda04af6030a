#include "clients/cli/mesh_quality.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numbers>
#include <utility>

namespace palpate::cli {
namespace {

// Each edge with the two vertices of its tet that are not on it.
constexpr std::array<std::array<int, 4>, 6> kEdges = {{{0, 1, 2, 3}, {0, 2, 1, 3}, {0, 3, 1, 2}, {1, 2, 0, 3}, {1, 3, 0, 2}, {2, 3, 0, 1}}};

double DihedralDeg(const Eigen::Vector3d& a, const Eigen::Vector3d& b, const Eigen::Vector3d& c, const Eigen::Vector3d& d) {
  const Eigen::Vector3d axis = b - a;
  const Eigen::Vector3d n0 = axis.cross(c - a);
  const Eigen::Vector3d n1 = axis.cross(d - a);
  return std::atan2(n0.cross(n1).norm(), n0.dot(n1)) * 180 / std::numbers::pi;
}

// 3 r / R = 216 V^2 / (A * product), where A is the sum of the face areas and `product` is the root of the term of the three products of
// opposite edges in the circumradius formula R = sqrt(s (s - p)(s - q)(s - t)) / (6 V), 2 s = p + q + t.
double RadiusRatio(const std::array<Eigen::Vector3d, 4>& x, double volume_m3) {
  double area = 0;
  for (int omitted = 0; omitted < 4; ++omitted) {
    const Eigen::Vector3d& a = x[(omitted + 1) % 4];
    area += (x[(omitted + 2) % 4] - a).cross(x[(omitted + 3) % 4] - a).norm() / 2;
  }
  const double p = (x[1] - x[0]).norm() * (x[3] - x[2]).norm();
  const double q = (x[2] - x[0]).norm() * (x[3] - x[1]).norm();
  const double t = (x[3] - x[0]).norm() * (x[2] - x[1]).norm();
  const double s = (p + q + t) / 2;
  const double circumradius = std::sqrt(std::max(0.0, s * (s - p) * (s - q) * (s - t))) / (6 * volume_m3);
  const double inradius = 3 * volume_m3 / area;
  return 3 * inradius / circumradius;
}

}  // namespace

MeshQuality MeasureQuality(const sim::TetMesh& mesh) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  MeshQuality quality;
  quality.min_tet_volume_m3 = quality.min_edge_m = quality.min_radius_ratio = kInfinity;
  quality.min_dihedral_deg = 180;
  for (const auto& vertex : mesh.vertices) quality.bounds_m.extend(vertex);
  for (size_t t = 0; t < mesh.tets.size(); ++t) {
    std::array<Eigen::Vector3d, 4> x;
    for (size_t i = 0; i < 4; ++i) x[i] = mesh.vertices[mesh.tets[t][i]];
    const double volume_m3 = sim::TetVolume(mesh, t);
    quality.volume_m3 += volume_m3;
    quality.min_tet_volume_m3 = std::min(quality.min_tet_volume_m3, volume_m3);
    quality.max_tet_volume_m3 = std::max(quality.max_tet_volume_m3, volume_m3);
    const double ratio = RadiusRatio(x, volume_m3);
    quality.min_radius_ratio = std::min(quality.min_radius_ratio, ratio);
    quality.mean_radius_ratio += ratio;
    for (const auto& [a, b, c, d] : kEdges) {
      const double edge_m = (x[b] - x[a]).norm();
      quality.min_edge_m = std::min(quality.min_edge_m, edge_m);
      quality.max_edge_m = std::max(quality.max_edge_m, edge_m);
      quality.mean_edge_m += edge_m;
      const double angle_deg = DihedralDeg(x[a], x[b], x[c], x[d]);
      quality.min_dihedral_deg = std::min(quality.min_dihedral_deg, angle_deg);
      quality.max_dihedral_deg = std::max(quality.max_dihedral_deg, angle_deg);
    }
  }
  const auto count = static_cast<double>(mesh.tets.size());
  quality.mean_radius_ratio /= count;
  quality.mean_edge_m /= 6 * count;
  return quality;
}

}  // namespace palpate::cli
