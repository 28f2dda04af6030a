#pragma once

#include <cstdio>
#include <cstdlib>
#include <string>

#include "sim/mesh/mesh_io.h"

// What every fuzz target of a mesh reader asks of a result.
namespace palpate::sim {

inline void Require(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "violated: %s\n", what);
  std::abort();
}

inline bool IsSame(const absl::StatusOr<TetMesh>& read, const TetMesh& mesh) {
  return read.ok() && read->vertices == mesh.vertices && read->tets == mesh.tets;
}

/// A mesh must be valid and survive every writer; an error must be InvalidArgument with a printable message.
inline void CheckResult(const absl::StatusOr<TetMesh>& result) {
  if (!result.ok()) {
    Require(result.status().code() == absl::StatusCode::kInvalidArgument, "a parser's error is InvalidArgument");
    for (const char c : result.status().message()) Require(c >= ' ' && c <= '~', "an error message is printable ASCII");
    return;
  }
  Require(ValidateTetMesh(*result).ok(), "a parsed mesh is valid");
  Require(IsSame(ParseMsh(FormatMsh(*result, MshVersion::k22), "again"), *result), "MSH 2.2 round trip");
  Require(IsSame(ParseMsh(FormatMsh(*result, MshVersion::k41), "again"), *result), "MSH 4.1 round trip");
  Require(IsSame(ParseVtk(FormatVtk(*result, VtkEncoding::kAscii), "again"), *result), "VTK text round trip");
  Require(IsSame(ParseVtk(FormatVtk(*result, VtkEncoding::kBinary), "again"), *result), "VTK binary round trip");
  const BoundarySurface boundary = ExtractBoundary(*result);
  Require(!boundary.triangles.empty(), "a mesh has a boundary");
}

}  // namespace palpate::sim
