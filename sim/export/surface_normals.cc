#include "sim/export/surface_normals.h"

#include <Eigen/Geometry>

namespace palpate::sim {

std::vector<float> NormalsByArea(std::span<const float> positions_m, std::span<const std::array<uint32_t, 3>> triangles) {
  std::vector<Eigen::Vector3d> sums(positions_m.size() / 3, Eigen::Vector3d::Zero());
  const auto place = [&](uint32_t v) { return Eigen::Map<const Eigen::Vector3f>(&positions_m[size_t{3} * v]).cast<double>(); };
  for (const auto& [a, b, c] : triangles) {
    const Eigen::Vector3d start = place(a);
    const Eigen::Vector3d twice_area = (place(b) - start).cross(place(c) - start);
    for (const uint32_t v : {a, b, c}) sums[v] += twice_area;
  }
  std::vector<float> normals;
  normals.reserve(positions_m.size());
  for (const Eigen::Vector3d& sum : sums) {
    const double length = sum.norm();
    const Eigen::Vector3f normal = (length > 0 ? Eigen::Vector3d(sum / length) : Eigen::Vector3d(Eigen::Vector3d::UnitZ())).cast<float>();
    normals.insert(normals.end(), normal.data(), normal.data() + 3);
  }
  return normals;
}

}  // namespace palpate::sim
