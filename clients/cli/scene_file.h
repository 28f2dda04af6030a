#pragma once

#include <filesystem>

#include "absl/status/statusor.h"
#include "palpate/v1/edit.pb.h"
#include "palpate/v1/scene.pb.h"
#include "sim/mesh/tet_mesh.h"

namespace palpate::cli {

/// Reads a scene file: the JSON form of SceneSpec, strictly JSON. Values are not checked; sim/scene does that. Errors: NotFound (cannot be
/// read), InvalidArgument naming the file and line and column (syntax) or the path of the field (unknown field, wrong type).
absl::StatusOr<v1::SceneSpec> ReadSceneFile(const std::filesystem::path& path);

/// Reads a file of edits: the JSON form of EditSceneRequest, strictly JSON; the scene is not part of it. Errors: as ReadSceneFile.
absl::StatusOr<v1::EditSceneRequest> ReadEditFile(const std::filesystem::path& path);

/// Replaces each `mesh_file` of the bodies, taken relative to `folder`, by the mesh it names, and each `nurbs.file` likewise, so that a
/// server elsewhere can build the scene. Errors: those of sim::ReadTetMesh and scene::ParseNurbsJson, with the path of the field.
absl::Status InlineMeshFiles(const std::filesystem::path& folder, v1::SceneSpec& spec);

/// Gives a body the mesh itself in place of whatever geometry it had.
void SetInlineMesh(const sim::TetMesh& mesh, v1::BodySpec& body);

}  // namespace palpate::cli
