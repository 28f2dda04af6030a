#include "sim/mesh/mass_properties.h"

namespace palpate::sim {

MassProperties ComputeMassProperties(const TetMesh& mesh, double density_kg_per_m3) {
  // Sums are taken about a vertex: the second moments of a small body far from the origin would cancel.
  const Eigen::Vector3d origin = mesh.vertices[mesh.tets.front()[0]];
  double volume = 0;
  Eigen::Vector3d first = Eigen::Vector3d::Zero();
  Eigen::Matrix3d second = Eigen::Matrix3d::Zero();
  for (size_t t = 0; t < mesh.tets.size(); ++t) {
    const double v = TetVolume(mesh, t);
    Eigen::Vector3d sum = Eigen::Vector3d::Zero();
    Eigen::Matrix3d squares = Eigen::Matrix3d::Zero();
    for (const uint32_t i : mesh.tets[t]) {
      const Eigen::Vector3d x = mesh.vertices[i] - origin;
      sum += x;
      squares += x * x.transpose();
    }
    volume += v;
    first += v / 4 * sum;
    second += v / 20 * (squares + sum * sum.transpose());
  }
  const Eigen::Vector3d center = first / volume;
  const Eigen::Matrix3d central = second - volume * center * center.transpose();
  MassProperties out;
  out.mass_kg = density_kg_per_m3 * volume;
  out.center_m = origin + center;
  out.inertia_kg_m2 = density_kg_per_m3 * (central.trace() * Eigen::Matrix3d::Identity() - central);
  return out;
}

}  // namespace palpate::sim
