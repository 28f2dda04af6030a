#pragma once

#include <cstdint>
#include <vector>

#include "sim/mesh/tet_mesh.h"
#include "sim/volume/label_volume.h"

namespace palpate::sim {

/// How many voxels of each of some labels have their centre in a tet of the same label: [labels.size()]. `mesh` is in frame G of
/// VoxelField, mesh_labels[t] = 1 + index into `labels`. O(tets + voxels that they cover).
std::vector<uint64_t> CountCoveredVoxels(const LabelVolume& volume, const std::vector<uint16_t>& labels, const TetMesh& mesh,
                                         const std::vector<uint32_t>& mesh_labels);

}  // namespace palpate::sim
