#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include <Eigen/Core>
#include <Eigen/Geometry>

#include "absl/status/statusor.h"
#include "sim/mesh/label_field.h"
#include "sim/volume/label_volume.h"

namespace palpate::sim {

/// The labels of a volume as a field without steps. In frame G: x_G = (i, j, k) * spacing_m, axes along those of the grid.
///
/// Each label's indicator (1 in its voxels, 0 elsewhere) is smoothed by passes of the kernel (w, 1 - 2 w, w) along each axis, w = 1/4 times
/// the least spacing over that of the axis. With S the result of all passes the value is 2 S - S(S): "twicing" (J. Tukey, Exploratory Data
/// Analysis, 1977), a filter whose second moment is zero, so that round shapes do not shrink as they do under S alone. The sum of all
/// values with that of outside is 1. Between centres of voxels values are trilinear. What the volume's border cuts off is closed there,
/// half a voxel outside the last centres.
class VoxelField final : public LabelField {
 public:
  /// `labels`: those that count, in the order of the field's labels 1, 2, ...; all others are outside. At most 255, each with voxels.
  /// `passes`: 0 to 200. Errors: InvalidArgument; ResourceExhausted (names count and limit).
  static absl::StatusOr<std::unique_ptr<VoxelField>> Create(const LabelVolume& volume, const std::vector<uint16_t>& labels, int passes);

  int label_count() const override { return static_cast<int>(grids_.size()); }
  Eigen::AlignedBox3d bounds_m() const override;
  double transition_m() const override { return transition_m_; }
  void Values(const Eigen::Vector3d& x_m, std::vector<double>* values) const override;
  double Value(int label, const Eigen::Vector3d& x_m, Eigen::Vector3d* gradient_per_m) const override;
  bool MayTouch(int label, const std::array<Eigen::Vector3d, 4>& tet_m, double margin_m) const override;

 private:
  /// Values of one label in a box of voxels; 0 elsewhere.
  struct Grid {
    Eigen::Vector3i first = Eigen::Vector3i::Zero();  // index of values[0] in the volume; may be negative
    Eigen::Vector3i size = Eigen::Vector3i::Zero();
    std::vector<float> values;
    Eigen::Vector3i block_count = Eigen::Vector3i::Zero();
    std::vector<uint8_t> blocks;  // 1 where a block of voxels has the label

    float At(int i, int j, int k) const {
      if (i < 0 || j < 0 || k < 0 || i >= size[0] || j >= size[1] || k >= size[2]) return 0;
      return values[(static_cast<size_t>(k) * size[1] + j) * size[0] + i];
    }
  };
  VoxelField() = default;
  absl::Status Fill(const LabelVolume& volume, const std::vector<uint16_t>& labels);
  void Smooth(Grid* grid) const;
  void Filter(Grid* grid, int passes) const;
  double Sample(const Grid& grid, const Eigen::Vector3d& x_m, Eigen::Vector3d* gradient_per_m) const;

  Eigen::Vector3d spacing_m_ = Eigen::Vector3d::Ones();
  double transition_m_ = 1;
  Eigen::Vector3i first_ = Eigen::Vector3i::Zero();  // of the box of all labels with its margin
  Eigen::Vector3i size_ = Eigen::Vector3i::Zero();
  std::vector<uint8_t> own_;  // [size_] label of each voxel, 1 to label_count() or 0
  std::vector<Grid> grids_;   // [label_count]
};

}  // namespace palpate::sim
