#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "sim/mesh/isosurface_stuffing.h"
#include "sim/mesh/label_field.h"
#include "sim/mesh/tet_mesh.h"

namespace palpate::sim {

struct LabelMesherOptions {
  /// Longest edge wanted in each label, as in StuffingOptions: [label_count], > 0. The smallest is met exactly, others are halved down from
  /// the next that is a power of two times it. [m]
  std::vector<double> edge_length_m;

  /// Volume that each label is to have: [label_count], > 0; the interfaces are shifted until it does. Empty: they stay. [m^3]
  std::vector<double> volume_m3;

  uint64_t max_tets = 20'000'000;
  ProgressCallback progress;  ///< may be empty
};

/// What became of one label.
struct LabelOutcome {
  double edge_length_m = 0;  ///< lattice constant that was taken
  double volume_m3 = 0;      ///< of its tets
  uint64_t tet_count = 0;
  uint32_t part_count = 0;  ///< parts that faces join
};

struct LabelMesh {
  TetMesh mesh;
  std::vector<uint32_t> labels;        ///< [tet_count] 1 to label_count
  std::vector<LabelOutcome> outcomes;  ///< [label_count]
  uint32_t part_count = 0;             ///< of the whole mesh
  double worst_quality_rad = 0;        ///< least BoundQuality
  double interface_rms_m = 0;          ///< of vertices on interfaces and the surface, distance from those of the field
  double interface_max_m = 0;
};

/// Fills all labels of a field with tets: one conforming mesh in which each tet has a label. See docs/labels.md.
///
/// Guarantees, for every field: the result passes ValidateTetMesh; labels share the faces between them; the boundary of the whole is a
/// closed 2-manifold that does not meet itself; the same input gives the same bits on the same build. Dihedral angles: as StuffIsosurface,
/// verified by test, not proven.
///
/// Errors: InvalidArgument (an option out of range); ResourceExhausted (lattice or tet limit); Cancelled. A label without any tet is not
/// an error: its outcome says so.
absl::StatusOr<LabelMesh> MeshLabels(const LabelField& field, const LabelMesherOptions& options);

}  // namespace palpate::sim
