#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "sim/mesh/isosurface_stuffing.h"
#include "sim/mesh/tet_mesh.h"
#include "sim/volume/label_volume.h"

namespace palpate::cli {

struct FromLabelsOptions {
  std::string input;         ///< volume of labels
  std::string labels;        ///< "1=liver,2=tumor": which, and their names; empty: all of the file
  double edge_length_m = 0;  ///< 0: a twentieth of the largest extent
  std::string edge_lengths;  ///< "tumor=0.002,3=0.004": of single labels, by name or number
  int smoothing_passes = 6;  ///< as of sim::VoxelField
  uint64_t max_tets = 20'000'000;
  sim::ProgressCallback progress;
};

/// One label of a mesh that was made, against its voxels.
struct MeshedLabel {
  sim::LabelSummary voxels;  ///< `name` is the one that was given, or the file's, or "label N"
  double edge_length_m = 0;
  double volume_m3 = 0;
  uint64_t tet_count = 0;
  uint32_t part_count = 0;
  double covered = 0;  ///< share of its voxels' centres that lie in its tets
};

struct MeshedLabels {
  sim::TetMesh mesh;  ///< in metres, in the frame of LabelVolume; a group for each label, with its number and name
  std::vector<MeshedLabel> labels;
  uint32_t part_count = 0;
  double interface_rms_m = 0;
  std::vector<std::string> warnings;  ///< sentences for people: what is not as accurate as promised, and why
};

/// Reads a volume and fills its labels. Errors: those of sim::ReadLabelVolume, VoxelField and MeshLabels; InvalidArgument for options that
/// name what the volume does not have, and for a label that no tet fits into (named, with its thickness and the edge length).
absl::StatusOr<MeshedLabels> MeshFromLabels(const FromLabelsOptions& options);

}  // namespace palpate::cli
