#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <Eigen/Core>

#include "absl/status/status.h"

namespace palpate::sim {

/// A grid of voxels with a label each; 0 is background. Frame P is that of the patient as DICOM and ITK have it: x to the left, y to the
/// back, z to the head (LPS). The centre of voxel (i, j, k) is at origin_m + direction * (i, j, k) * spacing_m in P.
struct LabelVolume {
  std::array<uint32_t, 3> size{};                           ///< voxels along i, j, k
  Eigen::Vector3d spacing_m = Eigen::Vector3d::Ones();      ///< between centres, > 0
  Eigen::Matrix3d direction = Eigen::Matrix3d::Identity();  ///< columns: unit vectors of i, j, k in P; orthogonal, may be left-handed
  Eigen::Vector3d origin_m = Eigen::Vector3d::Zero();       ///< centre of voxel (0, 0, 0) in P
  std::vector<uint16_t> voxels;                             ///< [size[0] * size[1] * size[2]], i runs fastest
  std::map<uint16_t, std::string> names;                    ///< of labels, as far as the file has them
  uint64_t overlap_count = 0;                               ///< voxels that the file gives to several labels

  uint64_t voxel_count() const { return uint64_t{size[0]} * size[1] * size[2]; }
  double voxel_volume_m3() const { return spacing_m.prod(); }
};

/// What a volume has of one label.
struct LabelSummary {
  uint16_t label = 0;
  std::string name;  ///< "" if the file has none
  uint64_t voxel_count = 0;
  double volume_m3 = 0;
  std::array<uint32_t, 3> first{};  ///< least and greatest indices of its voxels
  std::array<uint32_t, 3> last{};
  uint32_t part_count = 0;  ///< parts joined by faces of voxels
  double thickness_m = 0;   ///< of its thickest place: the shortest of the three runs of its voxels through a voxel, greatest over all [m]
};

/// All labels of a volume but 0, ascending; of those that have a name also such without voxels. O(voxels).
std::vector<LabelSummary> SummarizeLabels(const LabelVolume& volume);

/// Extent of a label along i, j, k. [m]
Eigen::Vector3d ExtentOf(const LabelVolume& volume, const LabelSummary& summary);

/// Most voxels of a volume that is read.
inline constexpr uint64_t kMaxVoxels = uint64_t{1} << 28;

/// Checks sizes, spacing and orientation: InvalidArgument or ResourceExhausted naming `name` and the value.
absl::Status CheckLabelGrid(const LabelVolume& volume, const std::string& name);

}  // namespace palpate::sim
