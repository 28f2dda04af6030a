#pragma once

#include <string>

#include "absl/status/status.h"
#include "palpate/v1/scene.pb.h"
#include "sim/mesh/tet_mesh.h"
#include "sim/scene/checker.h"
#include "sim/scene/description.h"

namespace palpate::scene {

/// Looks at the fields of a body's texture alone; nothing to say where there is none.
void CheckTexture(Checker& check, const std::string& path, const v1::BodySpec& body);

/// Fills the texture. `mesh`: as the body has it before scale and pose, whose texture coordinates count where there is no projection.
/// Precondition: CheckTexture has passed. Errors: InvalidArgument (the mesh has none and there is no projection, or both are there; a
/// projection has more tiles than 1e6 from its origin).
absl::Status BuildTexture(const v1::BodySpec& body, const std::string& path, const sim::TetMesh& mesh, sim::TextureDescription* out);

v1::TexturePattern EncodeTexturePattern(sim::TexturePattern pattern);

}  // namespace palpate::scene
