#include "sim/volume/label_overlap.h"

#include <algorithm>
#include <array>
#include <cmath>

#include <Eigen/Dense>

namespace palpate::sim {

using Eigen::Vector3d;

std::vector<uint64_t> CountCoveredVoxels(const LabelVolume& volume, const std::vector<uint16_t>& labels, const TetMesh& mesh,
                                         const std::vector<uint32_t>& mesh_labels) {
  constexpr double kOnFace = 1e-9;  // a centre on a face belongs to both tets, and is counted once
  std::vector<uint64_t> counts(labels.size(), 0);
  std::vector<bool> is_counted(volume.voxel_count(), false);
  const Vector3d last(volume.size[0] - 1.0, volume.size[1] - 1.0, volume.size[2] - 1.0);
  for (size_t t = 0; t < mesh.tets.size(); ++t) {
    std::array<Vector3d, 4> x;  // in voxels
    for (int i = 0; i < 4; ++i) x[i] = mesh.vertices[mesh.tets[t][i]].cwiseQuotient(volume.spacing_m);
    const Vector3d low = x[0].cwiseMin(x[1]).cwiseMin(x[2]).cwiseMin(x[3]).array().ceil().max(0).matrix();
    const Vector3d high = x[0].cwiseMax(x[1]).cwiseMax(x[2]).cwiseMax(x[3]).array().floor().min(last.array()).matrix();
    if ((low.array() > high.array()).any()) continue;
    Eigen::Matrix3d edges;
    edges << x[1] - x[0], x[2] - x[0], x[3] - x[0];
    const Eigen::Matrix3d inverse = edges.inverse();
    const uint16_t label = labels[mesh_labels[t] - 1];
    for (auto k = static_cast<uint32_t>(low[2]); k <= high[2]; ++k) {
      for (auto j = static_cast<uint32_t>(low[1]); j <= high[1]; ++j) {
        for (auto i = static_cast<uint32_t>(low[0]); i <= high[0]; ++i) {
          const size_t at = (size_t{k} * volume.size[1] + j) * volume.size[0] + i;
          if (volume.voxels[at] != label || is_counted[at]) continue;
          const Vector3d weight = inverse * (Vector3d(i, j, k) - x[0]);
          if (weight.minCoeff() < -kOnFace || weight.sum() > 1 + kOnFace) continue;
          is_counted[at] = true;
          ++counts[mesh_labels[t] - 1];
        }
      }
    }
  }
  return counts;
}

}  // namespace palpate::sim
