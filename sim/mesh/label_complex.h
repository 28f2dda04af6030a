#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "sim/mesh/graded_lattice.h"
#include "sim/mesh/label_field.h"
#include "sim/mesh/tet_mesh.h"

namespace palpate::sim {

/// Tets with a label each; those of label 0 lie around the others, as far as they share a vertex with them.
struct LabelComplex {
  TetMesh mesh;
  std::vector<uint32_t> labels;  ///< [tet_count]
};

/// Cuts a lattice along the interfaces of a field, each tet of the result having one label: isosurface stuffing (see
/// isosurface_stuffing.h) with both sides of a surface kept, as lattice cleaving does it (J. Bronson, J. Levine and R. Whitaker, "Lattice
/// Cleaving: A Multimaterial Tetrahedral Meshing Algorithm with Guarantees", IEEE TVCG 20(2), 2014). Where three labels meet in a tet
/// there are no cuts: points are assigned to the interface without being moved, until two labels are left. Conforming for every
/// field, all tets positive. Deterministic. `offsets`: [label_count + 1], added to the values.
LabelComplex CutLattice(const GradedLattice& lattice, const LabelField& field, const std::vector<double>& offsets);

}  // namespace palpate::sim
