#include "sim/volume/voxel_field.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "gpu/base/status.h"

namespace palpate::sim {
namespace {

using Eigen::Vector3d;
using Eigen::Vector3i;

constexpr int kMargin = 4;  // voxels around each label's own
constexpr int kBlock = 4;   // voxels along an edge of a block
constexpr int kMaxPasses = 200;
constexpr uint64_t kMaxValues = uint64_t{400} << 20;

uint64_t Product(const Vector3i& v) { return static_cast<uint64_t>(v[0]) * static_cast<uint64_t>(v[1]) * static_cast<uint64_t>(v[2]); }

}  // namespace

absl::StatusOr<std::unique_ptr<VoxelField>> VoxelField::Create(const LabelVolume& volume, const std::vector<uint16_t>& labels, int passes) {
  if (passes < 0 || passes > kMaxPasses) {
    return absl::InvalidArgumentError(absl::StrFormat("%d smoothing passes, must be in [0, %d]", passes, kMaxPasses));
  }
  if (labels.empty() || labels.size() > 255) {
    return absl::InvalidArgumentError(absl::StrFormat("%d labels, must be in [1, 255]", labels.size()));
  }
  std::unique_ptr<VoxelField> field(new VoxelField);
  field->spacing_m_ = volume.spacing_m;
  field->transition_m_ = 2 * std::max(1.0, std::sqrt(0.5 * passes)) * volume.spacing_m.minCoeff();
  PALPATE_RETURN_IF_ERROR(field->Fill(volume, labels));
  for (Grid& grid : field->grids_) field->Filter(&grid, passes);
  return field;
}

absl::Status VoxelField::Fill(const LabelVolume& volume, const std::vector<uint16_t>& labels) {
  std::vector<uint8_t> index(1 << 16, 0);
  for (size_t l = 0; l < labels.size(); ++l) index[labels[l]] = static_cast<uint8_t>(l + 1);
  std::vector<Eigen::AlignedBox3i> boxes(labels.size() + 1);
  const Vector3i n(static_cast<int>(volume.size[0]), static_cast<int>(volume.size[1]), static_cast<int>(volume.size[2]));
  size_t at = 0;
  for (int k = 0; k < n[2]; ++k) {
    for (int j = 0; j < n[1]; ++j) {
      for (int i = 0; i < n[0]; ++i, ++at) {
        if (const uint8_t l = index[volume.voxels[at]]; l != 0) boxes[l].extend(Vector3i(i, j, k));
      }
    }
  }
  grids_.resize(labels.size());
  Eigen::AlignedBox3i all;
  uint64_t value_count = 0;
  for (size_t l = 0; l < labels.size(); ++l) {
    if (boxes[l + 1].isEmpty()) return absl::InvalidArgumentError(absl::StrFormat("label %d has no voxels", labels[l]));
    Grid& grid = grids_[l];
    grid.first = boxes[l + 1].min() - Vector3i::Constant(kMargin);
    grid.size = boxes[l + 1].sizes() + Vector3i::Constant(2 * kMargin + 1);
    grid.block_count = (grid.size + Vector3i::Constant(kBlock - 1)) / kBlock;
    all.extend(boxes[l + 1]);
    value_count += Product(grid.size);
  }
  first_ = all.min() - Vector3i::Constant(kMargin);
  size_ = all.sizes() + Vector3i::Constant(2 * kMargin + 1);
  value_count += 2 * Product(size_);
  if (value_count > kMaxValues) {
    return absl::ResourceExhaustedError(
        absl::StrFormat("the boxes of the %d labels hold %d values, more than the limit of %d; take fewer labels or a coarser volume",
                        labels.size(), value_count, kMaxValues));
  }
  own_.assign(Product(size_), 0);
  for (Grid& grid : grids_) {
    grid.values.assign(Product(grid.size), 0);
    grid.blocks.assign(Product(grid.block_count), 0);
  }
  for (int k = all.min()[2]; k <= all.max()[2]; ++k) {
    for (int j = all.min()[1]; j <= all.max()[1]; ++j) {
      for (int i = all.min()[0]; i <= all.max()[0]; ++i) {
        const uint8_t l = index[volume.voxels[(static_cast<size_t>(k) * n[1] + j) * n[0] + i]];
        if (l == 0) continue;
        const Vector3i here = Vector3i(i, j, k) - first_;
        own_[(static_cast<size_t>(here[2]) * size_[1] + here[1]) * size_[0] + here[0]] = l;
        Grid& grid = grids_[l - 1];
        const Vector3i local = Vector3i(i, j, k) - grid.first;
        grid.values[(static_cast<size_t>(local[2]) * grid.size[1] + local[1]) * grid.size[0] + local[0]] = 1;
        const Vector3i block = local / kBlock;
        grid.blocks[(static_cast<size_t>(block[2]) * grid.block_count[1] + block[1]) * grid.block_count[0] + block[0]] = 1;
      }
    }
  }
  return absl::OkStatus();
}

void VoxelField::Filter(Grid* grid, int passes) const {
  if (passes == 0) return;
  for (int pass = 0; pass < passes; ++pass) Smooth(grid);
  const std::vector<float> once = grid->values;
  for (int pass = 0; pass < passes; ++pass) Smooth(grid);
  for (size_t i = 0; i < once.size(); ++i) grid->values[i] = 2 * once[i] - grid->values[i];
}

void VoxelField::Smooth(Grid* grid) const {
  const std::array<size_t, 3> stride = {1, static_cast<size_t>(grid->size[0]), static_cast<size_t>(grid->size[0]) * grid->size[1]};
  float* const values = grid->values.data();
  // along i line by line; along j and k whole rows at a time, so that memory is read in order
  const int nx = grid->size[0];
  const Vector3d weight = 0.25 * spacing_m_.minCoeff() * spacing_m_.cwiseInverse();
  const auto side_i = static_cast<float>(weight[0]);
  const float middle_i = 1 - 2 * side_i;
  for (size_t row = 0; row < grid->values.size(); row += stride[1]) {
    float before = 0;
    for (int i = 0; i < nx; ++i) {
      const float here = values[row + i];
      const float after = i + 1 < nx ? values[row + i + 1] : 0;
      values[row + i] = side_i * (before + after) + middle_i * here;
      before = here;
    }
  }
  std::vector<float> before(nx);
  for (int axis = 1; axis < 3; ++axis) {
    const int other = 3 - axis;
    const auto side = static_cast<float>(weight[axis]);
    const float middle = 1 - 2 * side;
    for (int o = 0; o < grid->size[other]; ++o) {
      std::fill(before.begin(), before.end(), 0.0F);
      for (int a = 0; a < grid->size[axis]; ++a) {
        float* const here = values + o * stride[other] + a * stride[axis];
        const bool has_after = a + 1 < grid->size[axis];
        for (int i = 0; i < nx; ++i) {
          const float value = here[i];
          const float after = has_after ? here[i + stride[axis]] : 0.0F;
          here[i] = side * (before[i] + after) + middle * value;
          before[i] = value;
        }
      }
    }
  }
}

Eigen::AlignedBox3d VoxelField::bounds_m() const {
  // one voxel of the margin is enough: interfaces pass within one voxel of what has a label
  const Vector3i first = first_ + Vector3i::Constant(kMargin - 1);
  const Vector3i last = first_ + size_ - Vector3i::Constant(kMargin);
  return {first.cast<double>().cwiseProduct(spacing_m_), last.cast<double>().cwiseProduct(spacing_m_)};
}

double VoxelField::Sample(const Grid& grid, const Vector3d& x_m, Vector3d* gradient_per_m) const {
  const Vector3d at = x_m.cwiseQuotient(spacing_m_) - grid.first.cast<double>();
  if (gradient_per_m != nullptr) gradient_per_m->setZero();
  if ((at.array() < -1).any() || (at.array() > grid.size.cast<double>().array()).any()) return 0;
  const Vector3i cell = at.array().floor().cast<int>().matrix();
  const Vector3d t = at - cell.cast<double>();
  double corner[2][2][2];
  const bool is_inside = (cell.array() >= 0).all() && ((cell + Vector3i::Ones()).array() < grid.size.array()).all();
  if (is_inside) {
    const size_t row = grid.size[0];
    const size_t slice = row * grid.size[1];
    const float* v = &grid.values[cell[2] * slice + cell[1] * row + cell[0]];
    for (int c = 0; c < 8; ++c) corner[c >> 2][c >> 1 & 1][c & 1] = v[(c >> 2) * slice + (c >> 1 & 1) * row + (c & 1)];
  } else {
    for (int c = 0; c < 8; ++c) corner[c >> 2][c >> 1 & 1][c & 1] = grid.At(cell[0] + (c & 1), cell[1] + (c >> 1 & 1), cell[2] + (c >> 2));
  }
  double along_x[2][2];
  double slope_x[2][2];
  for (int k = 0; k < 2; ++k) {
    for (int j = 0; j < 2; ++j) {
      slope_x[k][j] = corner[k][j][1] - corner[k][j][0];
      along_x[k][j] = corner[k][j][0] + t[0] * slope_x[k][j];
    }
  }
  const double low = along_x[0][0] + t[1] * (along_x[0][1] - along_x[0][0]);
  const double high = along_x[1][0] + t[1] * (along_x[1][1] - along_x[1][0]);
  if (gradient_per_m != nullptr) {
    const double gx0 = slope_x[0][0] + t[1] * (slope_x[0][1] - slope_x[0][0]);
    const double gx1 = slope_x[1][0] + t[1] * (slope_x[1][1] - slope_x[1][0]);
    const double gy0 = along_x[0][1] - along_x[0][0];
    const double gy1 = along_x[1][1] - along_x[1][0];
    *gradient_per_m = Vector3d(gx0 + t[2] * (gx1 - gx0), gy0 + t[2] * (gy1 - gy0), high - low).cwiseQuotient(spacing_m_);
  }
  return low + t[2] * (high - low);
}

void VoxelField::Values(const Vector3d& x_m, std::vector<double>* values) const {
  values->resize(grids_.size() + 1);
  double sum = 0;
  for (size_t l = 0; l < grids_.size(); ++l) {
    const double value = Sample(grids_[l], x_m, nullptr);
    (*values)[l + 1] = value;
    sum += value;
  }
  (*values)[0] = 1 - sum;
}

double VoxelField::Value(int label, const Vector3d& x_m, Vector3d* gradient_per_m) const {
  if (label != 0) return Sample(grids_[label - 1], x_m, gradient_per_m);
  double value = 1;
  gradient_per_m->setZero();
  Vector3d gradient;
  for (const Grid& grid : grids_) {
    value -= Sample(grid, x_m, &gradient);
    *gradient_per_m -= gradient;
  }
  return value;
}

bool VoxelField::MayTouch(int label, const std::array<Vector3d, 4>& tet_m, double margin_m) const {
  const Grid& grid = grids_[label - 1];
  // A label takes no more than one voxel around the centres of its own.
  struct Plane {
    Vector3d normal;  // outwards, of a place in voxels
    double limit;
  };
  std::array<Plane, 4> planes;
  Eigen::AlignedBox3d box;
  for (int i = 0; i < 4; ++i) {
    const Vector3d &a = tet_m[(i + 1) % 4], &b = tet_m[(i + 2) % 4], &c = tet_m[(i + 3) % 4];
    Vector3d normal = (b - a).cross(c - a).normalized();
    if (normal.dot(tet_m[i] - a) > 0) normal = -normal;
    planes[i].normal = normal.cwiseProduct(spacing_m_);
    planes[i].limit = normal.dot(a) + margin_m + planes[i].normal.norm();
    box.extend(tet_m[i]);
  }
  const auto has = [&](const Vector3i& voxel) {  // index in own_
    if (own_[(static_cast<size_t>(voxel[2]) * size_[1] + voxel[1]) * size_[0] + voxel[0]] != label) return false;
    const Vector3d at = (voxel + first_).cast<double>();
    return std::all_of(planes.begin(), planes.end(), [&](const Plane& plane) { return plane.normal.dot(at) <= plane.limit; });
  };
  const Vector3d margin = margin_m * spacing_m_.cwiseInverse() + Vector3d::Ones();
  const Vector3d shift = grid.first.cast<double>();
  const Vector3d limit = grid.size.cast<double>() - Vector3d::Ones();
  const Vector3d low = box.min().cwiseQuotient(spacing_m_) - shift - margin;
  const Vector3d high = box.max().cwiseQuotient(spacing_m_) - shift + margin;
  const Vector3i first = low.array().ceil().max(0).min(limit.array() + 1).cast<int>();
  const Vector3i last = high.array().floor().min(limit.array()).max(-1).cast<int>();
  if ((first.array() > last.array()).any()) return false;
  const Vector3i to_own = grid.first - first_;
  for (int k = first[2] / kBlock; k <= last[2] / kBlock; ++k) {
    for (int j = first[1] / kBlock; j <= last[1] / kBlock; ++j) {
      for (int i = first[0] / kBlock; i <= last[0] / kBlock; ++i) {
        if (grid.blocks[(static_cast<size_t>(k) * grid.block_count[1] + j) * grid.block_count[0] + i] == 0) continue;
        const Vector3i block = kBlock * Vector3i(i, j, k);
        const Vector3i begin = block.cwiseMax(first) + to_own;
        const Vector3i end = (block + Vector3i::Constant(kBlock - 1)).cwiseMin(last) + to_own;
        for (int c = begin[2]; c <= end[2]; ++c) {
          for (int b = begin[1]; b <= end[1]; ++b) {
            for (int a = begin[0]; a <= end[0]; ++a) {
              if (has(Vector3i(a, b, c))) return true;
            }
          }
        }
      }
    }
  }
  return false;
}

}  // namespace palpate::sim
