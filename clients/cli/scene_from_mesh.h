#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "sim/mesh/mesh_io.h"

namespace palpate::cli {

struct FromMeshOptions {
  std::string input;                    ///< surface or tetrahedral mesh
  std::string output;                   ///< scene file; empty: the name of the input with .json, in the current folder
  double scale = 0;                     ///< metres per unit of the file; 0: 1, or the unit that gives an organ's size
  double tets = 2500;                   ///< about how many a surface is filled with
  double young_modulus_pa = 5000;       ///< of the tissue
  uint64_t max_self_intersections = 0;  ///< as of sim::MeshSurface
  sim::ReadOptions read;                ///< of a tetrahedral mesh
};

/// Writes a scene of one organ and, beside it, its mesh: scaled to metres, centred over the origin with its lowest point at height 0, the
/// lowest tenth fixed, a probe above its highest point, a zone for each group of the mesh that has a name. Says what it did. The scene is
/// one that the server accepts. Errors: those of the readers, the mesher and BuildSceneDescription, of the files; FailedPrecondition where
/// the mesh would replace its source.
absl::Status MakeSceneFromMesh(const FromMeshOptions& options, bool json);

}  // namespace palpate::cli
