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

}  // namespace

MeshQuality MeasureQuality(const sim::TetMesh& mesh) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  MeshQuality quality;
  quality.min_tet_volume_m3 = quality.min_edge_m = kInfinity;
  quality.min_dihedral_deg = 180;
  for (const auto& vertex : mesh.vertices) quality.bounds_m.extend(vertex);
  for (size_t t = 0; t < mesh.tets.size(); ++t) {
    std::array<Eigen::Vector3d, 4> x;
    for (size_t i = 0; i < 4; ++i) x[i] = mesh.vertices[mesh.tets[t][i]];
    const double volume_m3 = sim::TetVolume(mesh, t);
    quality.volume_m3 += volume_m3;
    quality.min_tet_volume_m3 = std::min(quality.min_tet_volume_m3, volume_m3);
    quality.max_tet_volume_m3 = std::max(quality.max_tet_volume_m3, volume_m3);
    const sim::TetQuality measured = sim::MeasureTet(x);
    for (ShapeMeasure& measure : quality.shape) {
      measure.min = std::min(measure.min, measured.*measure.member);
      measure.mean += measured.*measure.member;
    }
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
  for (ShapeMeasure& measure : quality.shape) measure.mean /= count;
  quality.mean_edge_m /= 6 * count;
  return quality;
}

}  // namespace palpate::cli
