#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "sim/nurbs/nurbs_object.h"

namespace palpate::sim {

inline constexpr size_t kMaxCadFileBytes = size_t{512} << 20;

/// Reads a STEP (.step, .stp) or IGES (.iges, .igs) file through OpenCASCADE: all faces of all its parts, where their assembly puts them,
/// as NURBS patches with trimming loops, normals outwards. Lengths become metres by the file's unit. Edges that faces share get a number.
/// Patches have the names of their faces, else that of what the face is part of, where the file has them.
/// Elementary surfaces become NURBS exactly, their trims as well as OpenCASCADE makes them: NurbsObject::Edges says how well.
///
/// Errors: NotFound, PermissionDenied (file), InvalidArgument (extension, damaged, no faces, what NURBS here cannot be; with the face),
/// ResourceExhausted (a file above kMaxCadFileBytes, too many faces). Not safe from several threads: OpenCASCADE keeps global state. It may
/// also crash on a damaged file, so callers run it in a process of its own (palpate-cad).
/// `warnings`, if given, tells of what was left out, as faces are that OpenCASCADE cannot make.
absl::StatusOr<NurbsObjectDescription> ReadCadFile(const std::filesystem::path& path, std::vector<std::string>* warnings = nullptr);

/// Writes a file of these formats in millimetres, replacing it. Patches that share edges are sewn together and become a solid where they
/// close. Names of patches are not written. Errors: InvalidArgument (extension, what OpenCASCADE cannot make; with the patch), NotFound,
/// PermissionDenied or Unknown (file). Threads: as ReadCadFile.
absl::Status WriteCadFile(const NurbsObject& object, const std::filesystem::path& path);

}  // namespace palpate::sim
