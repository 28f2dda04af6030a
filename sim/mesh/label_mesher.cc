#include "sim/mesh/label_mesher.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numbers>
#include <numeric>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "gpu/base/status.h"
#include "sim/mesh/graded_lattice.h"
#include "sim/mesh/label_complex.h"
#include "sim/mesh/label_fit.h"
#include "sim/mesh/mesh_repair.h"

namespace palpate::sim {
namespace {

using Eigen::Vector3d;

constexpr int kMaxLevels = 6;
constexpr int kCuts = 3;  // before the last
constexpr int kRounds = 8;
constexpr double kVolumeGoal = 0.001;  // relative
constexpr double kGoodQuality_rad = 18 * std::numbers::pi / 180;
constexpr double kLeastQuality_rad = 1.1 * kStuffingMinDihedralDeg * std::numbers::pi / 180;
constexpr uint32_t kNone = std::numeric_limits<uint32_t>::max();

// Joins numbers; the smallest stands for all.
class UnionFind {
 public:
  explicit UnionFind(size_t count) : parent_(count) { std::iota(parent_.begin(), parent_.end(), 0U); }
  uint32_t Find(uint32_t i) {
    while (parent_[i] != i) i = parent_[i] = parent_[parent_[i]];
    return i;
  }
  void Join(uint32_t a, uint32_t b) {
    a = Find(a);
    b = Find(b);
    parent_[std::max(a, b)] = std::min(a, b);
  }

 private:
  std::vector<uint32_t> parent_;
};

class Mesher {
 public:
  Mesher(const LabelField& field, const LabelMesherOptions& options) : field_(field), options_(options) {}

  absl::StatusOr<LabelMesh> Run() {
    PALPATE_RETURN_IF_ERROR(ChooseLevels());
    PALPATE_RETURN_IF_ERROR(Report(0));
    GradedLatticeOptions lattice_options{
        .bounds_m = field_.bounds_m(),
        .finest_edge_m = finest_m_,
        .levels = *std::max_element(level_.begin(), level_.end()),
        .max_tets = options_.max_tets,
        .wanted_level = [this](const auto& tet_m, double margin_m) { return WantedLevel(tet_m, margin_m); }};
    PALPATE_ASSIGN_OR_RETURN(const GradedLattice lattice, MakeGradedLattice(lattice_options));
    PALPATE_RETURN_IF_ERROR(Report(0.2));
    PALPATE_RETURN_IF_ERROR(Cut(lattice));
    MakeSurfaceManifold();
    PALPATE_RETURN_IF_ERROR(Fit());
    Finish();
    CountParts();
    PALPATE_RETURN_IF_ERROR(Report(1));
    return std::move(out_);
  }

 private:
  absl::Status Report(double fraction) const {
    if (options_.progress && !options_.progress(fraction)) return absl::CancelledError("meshing was cancelled");
    return absl::OkStatus();
  }
  absl::Status ChooseLevels();
  int WantedLevel(const std::array<Vector3d, 4>& tet_m, double margin_m) const;
  absl::Status Cut(const GradedLattice& lattice);
  void MakeSurfaceManifold();
  absl::Status Fit();
  void Finish();
  void CountParts();

  const LabelField& field_;
  const LabelMesherOptions& options_;
  double finest_m_ = 0;
  std::vector<int> level_;  // [label_count] how often the coarsest lattice is halved
  LabelComplex complex_;
  std::vector<double> offsets_;  // [label_count + 1]
  std::vector<uint8_t> frozen_;
  LabelMesh out_;
};

absl::Status Mesher::ChooseLevels() {
  const auto count = static_cast<size_t>(field_.label_count());
  if (count == 0 || options_.edge_length_m.size() != count) {
    return absl::InvalidArgumentError(absl::StrFormat("edge_length_m: %d values for %d labels", options_.edge_length_m.size(), count));
  }
  for (const double edge_m : options_.edge_length_m) {
    if (!(edge_m > 0) || !std::isfinite(edge_m)) {
      return absl::InvalidArgumentError(absl::StrFormat("edge_length_m: %g must be positive and finite", edge_m));
    }
  }
  if (!options_.volume_m3.empty() && options_.volume_m3.size() != count) {
    return absl::InvalidArgumentError(absl::StrFormat("volume_m3: %d values for %d labels", options_.volume_m3.size(), count));
  }
  finest_m_ = *std::min_element(options_.edge_length_m.begin(), options_.edge_length_m.end());
  const double coarsest_m = *std::max_element(options_.edge_length_m.begin(), options_.edge_length_m.end());
  const int levels = std::min(kMaxLevels, static_cast<int>(std::floor(std::log2(coarsest_m / finest_m_) + 1e-9)));
  out_.outcomes.resize(count);
  level_.resize(count);
  for (size_t i = 0; i < count; ++i) {
    const int above = std::min(levels, static_cast<int>(std::floor(std::log2(options_.edge_length_m[i] / finest_m_) + 1e-9)));
    level_[i] = levels - above;
    out_.outcomes[i].edge_length_m = finest_m_ * (1 << above);
  }
  return absl::OkStatus();
}

int Mesher::WantedLevel(const std::array<Vector3d, 4>& tet_m, double margin_m) const {
  int level = -1;
  for (int i = 0; i < field_.label_count(); ++i) {
    if (level_[i] > level && field_.MayTouch(i + 1, tet_m, margin_m)) level = level_[i];
  }
  return level;
}

// Cuts, and cuts again with the offsets that give the right volumes: later the vertices have less far to go.
absl::Status Mesher::Cut(const GradedLattice& lattice) {
  offsets_.assign(field_.label_count() + 1, 0.0);
  for (int cut = 0; cut <= kCuts; ++cut) {
    complex_ = CutLattice(lattice, field_, offsets_);
    PALPATE_RETURN_IF_ERROR(Report(0.2 + 0.2 * (cut + 1) / (kCuts + 1)));
    if (cut == kCuts || options_.volume_m3.empty()) break;
    LabelFit fit(&complex_, field_, offsets_, std::vector<uint8_t>(complex_.mesh.vertices.size(), 0));
    fit.AdjustVolumes(options_.volume_m3);
    offsets_ = fit.offsets();
  }
  return absl::OkStatus();
}

// Of the tets that have a label. Those of label 0 keep the vertices they have.
void Mesher::MakeSurfaceManifold() {
  LabelComplex solid;
  std::vector<std::array<uint32_t, 4>> air;
  for (size_t t = 0; t < complex_.labels.size(); ++t) {
    if (complex_.labels[t] == 0) {
      air.push_back(complex_.mesh.tets[t]);
    } else {
      solid.mesh.tets.push_back(complex_.mesh.tets[t]);
      solid.labels.push_back(complex_.labels[t]);
    }
  }
  solid.mesh.vertices = std::move(complex_.mesh.vertices);
  const size_t count = solid.mesh.vertices.size();
  std::vector<uint8_t> suspect(count, 0);
  for (const auto& tet : air) {
    for (const uint32_t v : tet) suspect[v] = 1;
  }
  MakeManifold(&solid.mesh, &suspect, &solid.labels);
  // Twins lie where their vertex lies: all of them move a little into their own tets, and stay there.
  const size_t twin_count = solid.mesh.vertices.size() - count;
  frozen_.assign(solid.mesh.vertices.size(), 0);
  std::fill(frozen_.end() - static_cast<std::ptrdiff_t>(twin_count), frozen_.end(), 1);
  const auto less = [&](uint32_t a, uint32_t b) {
    const Vector3d &x = solid.mesh.vertices[a], &y = solid.mesh.vertices[b];
    return std::lexicographical_compare(x.begin(), x.end(), y.begin(), y.end());
  };
  std::vector<uint32_t> twins(twin_count);
  std::iota(twins.begin(), twins.end(), static_cast<uint32_t>(count));
  std::sort(twins.begin(), twins.end(), less);
  for (uint32_t v = 0; v < count; ++v) {
    if (suspect[v] != 0 && std::binary_search(twins.begin(), twins.end(), v, less)) frozen_[v] = 1;
  }
  if (twin_count > 0) {
    std::vector<Vector3d> sum(frozen_.size(), Vector3d::Zero());
    std::vector<double> weight(frozen_.size(), 0);
    for (const auto& tet : solid.mesh.tets) {
      const Vector3d middle =
          (solid.mesh.vertices[tet[0]] + solid.mesh.vertices[tet[1]] + solid.mesh.vertices[tet[2]] + solid.mesh.vertices[tet[3]]) / 4;
      for (const uint32_t v : tet) {
        sum[v] += middle;
        weight[v] += 1;
      }
    }
    constexpr double kInset = 0.05;
    for (size_t v = 0; v < frozen_.size(); ++v) {
      if (frozen_[v] != 0 && weight[v] > 0) solid.mesh.vertices[v] += kInset * (sum[v] / weight[v] - solid.mesh.vertices[v]);
    }
  }
  for (const auto& tet : air) solid.mesh.tets.push_back(tet);
  solid.labels.resize(solid.mesh.tets.size(), 0);
  complex_ = std::move(solid);
}

absl::Status Mesher::Fit() {
  LabelFit fit(&complex_, field_, offsets_, frozen_);
  for (int round = 0; round < kRounds; ++round) {
    fit.MoveToInterfaces();
    fit.ImproveShapes(kGoodQuality_rad, /*may_leave_interfaces=*/false);
    fit.MoveToInterfaces();
    PALPATE_RETURN_IF_ERROR(Report(0.4 + 0.5 * (round + 1) / kRounds));
    if (options_.volume_m3.empty()) {
      if (round >= 2) break;
      continue;
    }
    const std::vector<double> volumes = fit.Volumes();
    bool is_right = round > 0;
    for (size_t i = 0; i < volumes.size(); ++i) is_right &= std::abs(volumes[i] / options_.volume_m3[i] - 1) < kVolumeGoal;
    if (is_right) break;
    if (round + 1 < kRounds) fit.AdjustVolumes(options_.volume_m3);
  }
  if (fit.WorstQuality() < kLeastQuality_rad) fit.ImproveShapes(kLeastQuality_rad, /*may_leave_interfaces=*/true);
  const auto [rms_m, max_m] = fit.Deviation();
  out_.interface_rms_m = rms_m;
  out_.interface_max_m = max_m;
  out_.worst_quality_rad = fit.WorstQuality();
  return absl::OkStatus();
}

void Mesher::Finish() {
  const TetMesh& from = complex_.mesh;
  std::vector<uint32_t> renumbered(from.vertices.size(), kNone);
  for (size_t t = 0; t < from.tets.size(); ++t) {
    if (complex_.labels[t] == 0) continue;
    for (const uint32_t v : from.tets[t]) renumbered[v] = 0;
  }
  for (size_t v = 0; v < renumbered.size(); ++v) {
    if (renumbered[v] == kNone) continue;
    renumbered[v] = static_cast<uint32_t>(out_.mesh.vertices.size());
    out_.mesh.vertices.push_back(from.vertices[v]);
  }
  for (size_t t = 0; t < from.tets.size(); ++t) {
    const uint32_t label = complex_.labels[t];
    if (label == 0) continue;
    std::array<uint32_t, 4> tet;
    for (int i = 0; i < 4; ++i) tet[i] = renumbered[from.tets[t][i]];
    out_.mesh.tets.push_back(tet);
    out_.labels.push_back(label);
    out_.outcomes[label - 1].volume_m3 += TetVolume(from, t);
    ++out_.outcomes[label - 1].tet_count;
  }
}

void Mesher::CountParts() {
  struct Face {
    std::array<uint32_t, 3> corner;
    uint32_t tet;
  };
  std::vector<Face> faces;
  faces.reserve(4 * out_.mesh.tets.size());
  for (uint32_t t = 0; t < out_.mesh.tets.size(); ++t) {
    for (int skip = 0; skip < 4; ++skip) {
      Face face{{}, t};
      for (int i = 0, k = 0; i < 4; ++i) {
        if (i != skip) face.corner[k++] = out_.mesh.tets[t][i];
      }
      std::sort(face.corner.begin(), face.corner.end());
      faces.push_back(face);
    }
  }
  std::sort(faces.begin(), faces.end(),
            [](const Face& a, const Face& b) { return a.corner != b.corner ? a.corner < b.corner : a.tet < b.tet; });
  UnionFind whole(out_.mesh.tets.size());
  UnionFind of_label(out_.mesh.tets.size());
  for (size_t f = 0; f + 1 < faces.size(); ++f) {
    if (faces[f].corner != faces[f + 1].corner) continue;
    whole.Join(faces[f].tet, faces[f + 1].tet);
    if (out_.labels[faces[f].tet] == out_.labels[faces[f + 1].tet]) of_label.Join(faces[f].tet, faces[f + 1].tet);
  }
  for (uint32_t t = 0; t < out_.mesh.tets.size(); ++t) {
    if (whole.Find(t) == t) ++out_.part_count;
    if (of_label.Find(t) == t) ++out_.outcomes[out_.labels[t] - 1].part_count;
  }
}

}  // namespace

absl::StatusOr<LabelMesh> MeshLabels(const LabelField& field, const LabelMesherOptions& options) { return Mesher(field, options).Run(); }

}  // namespace palpate::sim
