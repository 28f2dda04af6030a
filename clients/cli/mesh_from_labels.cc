#include "clients/cli/mesh_from_labels.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <string_view>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "gpu/base/status.h"
#include "sim/mesh/label_mesher.h"
#include "sim/volume/label_overlap.h"
#include "sim/volume/volume_file.h"
#include "sim/volume/voxel_field.h"

namespace palpate::cli {
namespace {

constexpr double kVolumeAccuracy = 0.01;
constexpr double kLeastCovered = 0.9;
constexpr double kEdgesPerExtent = 20;
constexpr size_t kMaxNameBytes = 64;  // as of a scene's zones

std::string Describe(const sim::LabelSummary& label) { return absl::StrFormat("label %d (%s)", label.label, label.name); }

std::string List(const std::vector<sim::LabelSummary>& labels) {
  constexpr size_t kMaxListed = 30;
  std::string text;
  for (size_t i = 0; i < labels.size() && i < kMaxListed; ++i) {
    absl::StrAppendFormat(&text, "%s%d%s%s", i == 0 ? "" : ", ", labels[i].label, labels[i].name.empty() ? "" : " = ", labels[i].name);
  }
  if (labels.size() > kMaxListed) absl::StrAppendFormat(&text, " and %d more", labels.size() - kMaxListed);
  return text.empty() ? "none" : text;
}

/// The label of a number or of a name, or null.
sim::LabelSummary* Find(std::vector<sim::LabelSummary>& labels, std::string_view key) {
  const std::string word(key);
  uint32_t number = 0;
  const bool is_number = absl::SimpleAtoi(word, &number);
  for (sim::LabelSummary& label : labels) {
    if (is_number ? label.label == number : label.name == word) return &label;
  }
  return nullptr;
}

std::vector<std::string> Items(const std::string& list) {
  std::vector<std::string> items;
  for (const auto item : absl::StrSplit(list, ',')) {
    const std::string word(absl::StripAsciiWhitespace(item));
    if (!word.empty()) items.push_back(word);
  }
  return items;
}

/// The labels to mesh, with names.
absl::StatusOr<std::vector<sim::LabelSummary>> Select(const FromLabelsOptions& options, std::vector<sim::LabelSummary> all,
                                                      std::vector<std::string>* warnings) {
  std::vector<sim::LabelSummary> chosen;
  if (options.labels.empty()) {
    for (sim::LabelSummary& label : all) {
      if (label.voxel_count > 0) {
        chosen.push_back(std::move(label));
      } else {
        warnings->push_back(absl::StrFormat("%s has no voxels and is left out", Describe(label)));
      }
    }
  }
  for (const std::string& item : Items(options.labels)) {
    const size_t equals = item.find('=');
    const sim::LabelSummary* label = Find(all, item.substr(0, equals));
    if (label == nullptr) {
      return absl::InvalidArgumentError(absl::StrFormat("--labels: %s: no voxel has this label; the volume has %s", item, List(all)));
    }
    chosen.push_back(*label);
    if (equals != std::string::npos) chosen.back().name = item.substr(equals + 1);
    if (chosen.back().voxel_count == 0) {
      return absl::InvalidArgumentError(absl::StrFormat("--labels: %s has no voxels", Describe(chosen.back())));
    }
  }
  if (chosen.empty()) return absl::InvalidArgumentError("the volume has no labels: all voxels are 0");
  std::set<std::string> names;
  std::set<uint16_t> numbers;
  for (sim::LabelSummary& label : chosen) {
    if (label.name.empty()) label.name = absl::StrFormat("label %d", label.label);
    if (label.name.size() > kMaxNameBytes) label.name.resize(kMaxNameBytes);
    if (!numbers.insert(label.label).second) return absl::InvalidArgumentError(absl::StrFormat("--labels: %d is given twice", label.label));
    if (!names.insert(label.name).second) {
      return absl::InvalidArgumentError(absl::StrFormat("two labels have the name \"%s\"; give them others with --labels", label.name));
    }
  }
  return chosen;
}

/// Of each label, in metres.
absl::StatusOr<std::vector<double>> EdgeLengths(const FromLabelsOptions& options, const sim::LabelVolume& volume,
                                                std::vector<sim::LabelSummary> labels) {
  double common_m = options.edge_length_m;
  if (!(common_m > 0)) {
    for (const sim::LabelSummary& label : labels) common_m = std::max(common_m, sim::ExtentOf(volume, label).maxCoeff() / kEdgesPerExtent);
  }
  std::vector<double> edges_m(labels.size(), common_m);
  for (const std::string& item : Items(options.edge_lengths)) {
    const size_t equals = item.rfind('=');
    const sim::LabelSummary* label = equals == std::string::npos ? nullptr : Find(labels, item.substr(0, equals));
    double edge_m = 0;
    if (label == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrFormat("--edge-lengths: %s: LABEL=LENGTH expected, of a label that is meshed: %s", item, List(labels)));
    }
    if (!absl::SimpleAtod(item.substr(equals + 1), &edge_m) || !(edge_m > 0) || !std::isfinite(edge_m)) {
      return absl::InvalidArgumentError(absl::StrFormat("--edge-lengths: %s: the length must be a number above 0", item));
    }
    edges_m[static_cast<size_t>(label - labels.data())] = edge_m;
  }
  return edges_m;
}

/// From the axes of the grid to the frame of the file.
void Place(const sim::LabelVolume& volume, sim::TetMesh* mesh) {
  for (Eigen::Vector3d& x : mesh->vertices) x = volume.origin_m + volume.direction * x;
  if (volume.direction.determinant() > 0) return;
  for (auto& tet : mesh->tets) std::swap(tet[2], tet[3]);
}

/// What of a result is not as promised. An error where a label is lost.
absl::Status Judge(const MeshedLabel& label, std::vector<std::string>* warnings) {
  const std::string name = Describe(label.voxels);
  const double relative = label.volume_m3 / label.voxels.volume_m3 - 1;
  const std::string thickness = absl::StrFormat("it is at most %.3g mm thick, its edges are %.3g mm long", 1000 * label.voxels.thickness_m,
                                                1000 * label.edge_length_m);
  if (label.tet_count == 0) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%s is lost: no tetrahedron fits into it; %s. Take a shorter --edge-lengths", name, thickness));
  }
  if (std::abs(relative) > kVolumeAccuracy) {
    warnings->push_back(absl::StrFormat("%s: its volume is %.1f %% off that of its voxels (%.4g of %.4g ml); %s", name, 100 * relative,
                                        1e6 * label.volume_m3, 1e6 * label.voxels.volume_m3, thickness));
  }
  if (label.covered < kLeastCovered) {
    warnings->push_back(absl::StrFormat("%s: only %.1f %% of its voxels lie in its tetrahedra; %s", name, 100 * label.covered, thickness));
  }
  if (label.part_count != label.voxels.part_count) {
    warnings->push_back(absl::StrFormat("%s: %d parts, its voxels have %d", name, label.part_count, label.voxels.part_count));
  } else if (label.part_count > 1) {
    warnings->push_back(absl::StrFormat("%s: %d parts", name, label.part_count));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<MeshedLabels> MeshFromLabels(const FromLabelsOptions& options) {
  PALPATE_ASSIGN_OR_RETURN(const sim::LabelVolume volume, sim::ReadLabelVolume(options.input));
  MeshedLabels out;
  if (volume.overlap_count > 0) {
    out.warnings.push_back(
        absl::StrFormat("%d voxels belong to several segments; the one of the highest number has them", volume.overlap_count));
  }
  PALPATE_ASSIGN_OR_RETURN(const std::vector<sim::LabelSummary> chosen, Select(options, sim::SummarizeLabels(volume), &out.warnings));
  sim::LabelMesherOptions mesher;
  mesher.max_tets = options.max_tets;
  mesher.progress = options.progress;
  PALPATE_ASSIGN_OR_RETURN(mesher.edge_length_m, EdgeLengths(options, volume, chosen));
  std::vector<uint16_t> numbers;
  for (const sim::LabelSummary& label : chosen) {
    numbers.push_back(label.label);
    mesher.volume_m3.push_back(label.volume_m3);
  }
  PALPATE_ASSIGN_OR_RETURN(const auto field, sim::VoxelField::Create(volume, numbers, options.smoothing_passes));
  PALPATE_ASSIGN_OR_RETURN(sim::LabelMesh meshed, sim::MeshLabels(*field, mesher));
  const std::vector<uint64_t> covered = sim::CountCoveredVoxels(volume, numbers, meshed.mesh, meshed.labels);
  for (size_t i = 0; i < chosen.size(); ++i) {
    const sim::LabelOutcome& outcome = meshed.outcomes[i];
    out.labels.push_back({.voxels = chosen[i],
                          .edge_length_m = outcome.edge_length_m,
                          .volume_m3 = outcome.volume_m3,
                          .tet_count = outcome.tet_count,
                          .part_count = outcome.part_count,
                          .covered = static_cast<double>(covered[i]) / static_cast<double>(chosen[i].voxel_count)});
    PALPATE_RETURN_IF_ERROR(Judge(out.labels.back(), &out.warnings));
    meshed.mesh.groups.push_back({chosen[i].label, chosen[i].name});
  }
  std::sort(meshed.mesh.groups.begin(), meshed.mesh.groups.end(), [](const auto& a, const auto& b) { return a.number < b.number; });
  for (const uint32_t label : meshed.labels) meshed.mesh.tet_groups.push_back(numbers[label - 1]);
  if (meshed.part_count > 1) out.warnings.push_back(absl::StrFormat("the mesh has %d parts that do not hang together", meshed.part_count));
  Place(volume, &meshed.mesh);
  PALPATE_RETURN_IF_ERROR(sim::ValidateTetMesh(meshed.mesh));
  out.mesh = std::move(meshed.mesh);
  out.part_count = meshed.part_count;
  out.interface_rms_m = meshed.interface_rms_m;
  return out;
}

}  // namespace palpate::cli
