#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "gpu/base/status.h"
#include "gpu/collision/ccd.h"
#include "gpu/runtime/queue.h"

namespace palpate::cli {

/// The files of one check. Ids in the lists of pairs: vertices, then edges, then faces of the frame; edges are numbered by their larger
/// vertex, then by the smaller one.
struct MeshPairFiles {
  std::string frames[2];                ///< PLY, the same triangles in both
  std::optional<std::string> boxes[2];  ///< by kind: JSON list of pairs that the candidates must contain
  std::optional<std::string> truth[2];  ///< by kind: JSON list whether each of these pairs collides
};

/// What a check of two frames found, by kind (PALPATE_VERTEX_TRIANGLE, PALPATE_EDGE_EDGE).
struct MeshPairVerdict {
  uint64_t vertices = 0, edges = 0, faces = 0;
  bool is_double = false;         ///< the frames have coordinates in double
  gpu::CcdStatistics statistics;  ///< of the fastest of three runs
  uint64_t required[2] = {};      ///< pairs of the list
  uint64_t missing[2] = {};       ///< of them, no candidates
  uint64_t colliding[2] = {};     ///< in truth
  uint64_t missed[2] = {};        ///< of them, no hits
  uint64_t false_hits[2] = {};    ///< hits that do not collide; only known with the truth
};

/// Runs the detector on the motion from one frame to the next. Errors: InvalidArgument (contents, frames that do not fit together, ids out
/// of range, lengths that differ, a truth without its pairs), NotFound, ResourceExhausted.
absl::StatusOr<MeshPairVerdict> VerifyMeshPair(gpu::Queue& queue, const gpu::CcdDetectorOptions& options, const MeshPairFiles& files);

}  // namespace palpate::cli
