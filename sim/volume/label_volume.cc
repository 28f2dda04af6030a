#include "sim/volume/label_volume.h"

#include <algorithm>
#include <numeric>

#include <Eigen/Dense>

#include "absl/strings/str_format.h"

namespace palpate::sim {
namespace {

constexpr double kMinSpacing_m = 1e-7;
constexpr double kMaxSpacing_m = 1;
constexpr double kMaxSkew = 1e-3;  // files store directions with few digits

// Parts of equal labels, over runs of voxels along i: a run has one label, runs of neighbouring rows that touch are joined.
class RunParts {
 public:
  explicit RunParts(const LabelVolume& volume) : volume_(volume), nx_(volume.size[0]) {
    const size_t rows = size_t{volume.size[1]} * volume.size[2];
    first_.reserve(rows + 1);
    for (size_t row = 0; row < rows; ++row) {
      first_.push_back(runs_.size());
      AddRow(row);
      const size_t j = row % volume.size[1];
      if (j > 0) JoinRows(row - 1, row);
      if (row >= volume.size[1]) JoinRows(row - volume.size[1], row);
    }
  }

  void Count(std::map<uint16_t, LabelSummary>* summaries) {
    for (uint32_t r = 0; r < runs_.size(); ++r) {
      if (Find(r) == r) ++(*summaries)[runs_[r].label].part_count;
    }
  }

 private:
  struct Run {
    uint32_t begin;
    uint32_t end;
    uint16_t label;
    uint32_t parent;
  };

  void AddRow(size_t row) {
    const uint16_t* voxels = volume_.voxels.data() + row * nx_;
    for (uint32_t i = 0; i < nx_;) {
      uint32_t end = i + 1;
      while (end < nx_ && voxels[end] == voxels[i]) ++end;
      if (voxels[i] != 0) runs_.push_back({i, end, voxels[i], static_cast<uint32_t>(runs_.size())});
      i = end;
    }
  }
  void JoinRows(size_t a, size_t b) {
    size_t r = first_[a];
    const size_t r_end = first_[a + 1];
    for (size_t s = first_[b]; s < runs_.size(); ++s) {
      while (r < r_end && runs_[r].end <= runs_[s].begin) ++r;
      for (size_t q = r; q < r_end && runs_[q].begin < runs_[s].end; ++q) {
        if (runs_[q].label == runs_[s].label) Join(static_cast<uint32_t>(q), static_cast<uint32_t>(s));
      }
    }
  }
  uint32_t Find(uint32_t r) {
    while (runs_[r].parent != r) r = runs_[r].parent = runs_[runs_[r].parent].parent;
    return r;
  }
  void Join(uint32_t a, uint32_t b) {
    a = Find(a);
    b = Find(b);
    runs_[std::max(a, b)].parent = std::min(a, b);
  }

  const LabelVolume& volume_;
  uint32_t nx_;
  std::vector<size_t> first_;  // [row] run
  std::vector<Run> runs_;
};

// See LabelSummary::thickness_m.
void MeasureThickness(const LabelVolume& volume, std::map<uint16_t, LabelSummary>* summaries) {
  std::vector<float> shortest(volume.voxels.size(), 1e9F);
  const std::array<size_t, 3> stride = {1, volume.size[0], size_t{volume.size[0]} * volume.size[1]};
  for (int axis = 0; axis < 3; ++axis) {
    const int u = (axis + 1) % 3;
    const int v = (axis + 2) % 3;
    const auto spacing_m = static_cast<float>(volume.spacing_m[axis]);
    for (size_t b = 0; b < volume.size[v]; ++b) {
      for (size_t a = 0; a < volume.size[u]; ++a) {
        const size_t line = a * stride[u] + b * stride[v];
        for (size_t i = 0; i < volume.size[axis];) {
          const uint16_t label = volume.voxels[line + i * stride[axis]];
          size_t end = i + 1;
          while (end < volume.size[axis] && volume.voxels[line + end * stride[axis]] == label) ++end;
          if (label != 0) {
            const float length_m = static_cast<float>(end - i) * spacing_m;
            for (size_t k = i; k < end; ++k) shortest[line + k * stride[axis]] = std::min(shortest[line + k * stride[axis]], length_m);
          }
          i = end;
        }
      }
    }
  }
  for (size_t i = 0; i < volume.voxels.size(); ++i) {
    if (volume.voxels[i] == 0) continue;
    double& thickness_m = (*summaries)[volume.voxels[i]].thickness_m;
    thickness_m = std::max(thickness_m, static_cast<double>(shortest[i]));
  }
}

}  // namespace

std::vector<LabelSummary> SummarizeLabels(const LabelVolume& volume) {
  std::map<uint16_t, LabelSummary> summaries;
  for (const auto& [label, name] : volume.names) {
    if (label != 0) summaries[label].name = name;
  }
  size_t at = 0;
  LabelSummary* summary = nullptr;
  uint16_t last = 0;
  for (uint32_t k = 0; k < volume.size[2]; ++k) {
    for (uint32_t j = 0; j < volume.size[1]; ++j) {
      for (uint32_t i = 0; i < volume.size[0]; ++i, ++at) {
        const uint16_t label = volume.voxels[at];
        if (label == 0) continue;
        if (summary == nullptr || label != last) summary = &summaries[label];
        last = label;
        const std::array<uint32_t, 3> index = {i, j, k};
        for (int axis = 0; axis < 3; ++axis) {
          summary->first[axis] = summary->voxel_count == 0 ? index[axis] : std::min(summary->first[axis], index[axis]);
          summary->last[axis] = std::max(summary->last[axis], index[axis]);
        }
        ++summary->voxel_count;
      }
    }
  }
  RunParts(volume).Count(&summaries);
  MeasureThickness(volume, &summaries);
  std::vector<LabelSummary> out;
  for (auto& [label, of_label] : summaries) {
    of_label.label = label;
    of_label.volume_m3 = static_cast<double>(of_label.voxel_count) * volume.voxel_volume_m3();
    out.push_back(std::move(of_label));
  }
  return out;
}

Eigen::Vector3d ExtentOf(const LabelVolume& volume, const LabelSummary& summary) {
  Eigen::Vector3d extent_m = Eigen::Vector3d::Zero();
  if (summary.voxel_count == 0) return extent_m;
  for (int axis = 0; axis < 3; ++axis) extent_m[axis] = (summary.last[axis] - summary.first[axis] + 1) * volume.spacing_m[axis];
  return extent_m;
}

absl::Status CheckLabelGrid(const LabelVolume& volume, const std::string& name) {
  for (int axis = 0; axis < 3; ++axis) {
    if (volume.size[axis] < 1 || volume.size[axis] > (1U << 16)) {
      return absl::InvalidArgumentError(
          absl::StrFormat("%s: %d voxels along axis %d, must be in [1, %d]", name, volume.size[axis], axis, 1 << 16));
    }
    const double spacing_m = volume.spacing_m[axis];
    if (!(spacing_m >= kMinSpacing_m && spacing_m <= kMaxSpacing_m)) {
      return absl::InvalidArgumentError(absl::StrFormat("%s: spacing %g mm along axis %d, must be in [%g, %g]", name, 1000 * spacing_m,
                                                        axis, 1000 * kMinSpacing_m, 1000 * kMaxSpacing_m));
    }
  }
  if (volume.voxel_count() > kMaxVoxels) {
    return absl::ResourceExhaustedError(absl::StrFormat("%s: %d x %d x %d = %d voxels are more than the limit of %d", name, volume.size[0],
                                                        volume.size[1], volume.size[2], volume.voxel_count(), kMaxVoxels));
  }
  const Eigen::Matrix3d product = volume.direction.transpose() * volume.direction;
  if (!product.allFinite() || !volume.origin_m.allFinite()) {
    return absl::InvalidArgumentError(absl::StrFormat("%s: orientation or origin is not finite", name));
  }
  if (!((product - Eigen::Matrix3d::Identity()).cwiseAbs().maxCoeff() <= kMaxSkew)) {
    return absl::InvalidArgumentError(absl::StrFormat("%s: the axes of the grid are not orthogonal: the cosines between them reach %.4g",
                                                      name, (product - Eigen::Matrix3d::Identity()).cwiseAbs().maxCoeff()));
  }
  return absl::OkStatus();
}

}  // namespace palpate::sim
