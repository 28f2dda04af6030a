#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "palpate/v1/scene.pb.h"
#include "sim/mesh/io_obj.h"
#include "sim/mesh/tet_mesh.h"
#include "sim/scene/asset_resolver.h"
#include "sim/scene/checker.h"
#include "sim/scene/description.h"

namespace palpate::scene {

/// Looks at the fields of a body's texture alone; nothing to say where there is none.
void CheckTexture(Checker& check, const std::string& path, const v1::BodySpec& body);

/// What files give to the look of a body; all its copies have the same.
struct BodyLook {
  std::shared_ptr<const sim::TextureImage> image;  ///< null: none
  std::vector<sim::CornerCoordinates> corners;     ///< of TextureSpec.surface_file, [triangle of the boundary], or empty
  std::vector<sim::SurfaceMaterial> materials;     ///< of that file
  std::vector<uint32_t> triangle_materials;        ///< [triangle of the boundary] indices into materials, or empty
};

/// Reads the files that textures of a scene name, each picture once.
class LookLoader {
 public:
  explicit LookLoader(const AssetResolver& assets) : assets_(assets) {}
  /// `mesh` and its `surface`: as the body has them before scale and pose. Errors: those of the files, behind the field path;
  /// ResourceExhausted (pictures of more than kMaxSceneImageBytes).
  absl::StatusOr<BodyLook> Load(const v1::BodySpec& body, const std::string& path, const sim::TetMesh& mesh,
                                const sim::BoundarySurface& surface);

 private:
  absl::StatusOr<std::shared_ptr<const sim::TextureImage>> LoadImage(const std::string& name, const std::string& field);
  absl::Status LoadAtlas(const v1::BodySpec& body, const std::string& field, const sim::TetMesh& mesh, const sim::BoundarySurface& surface,
                         BodyLook* look);

  const AssetResolver& assets_;
  std::map<std::filesystem::path, std::shared_ptr<const sim::TextureImage>> images_;
  uint64_t total_bytes_ = 0;
};

/// Fills the texture: of a shell by corner. `mesh` and its `surface`: as the body has them before scale and pose; the mesh's texture
/// coordinates count where there is no projection.
/// Precondition: CheckTexture has passed. Errors: InvalidArgument (the mesh has none and there is no projection, or both are there; a
/// projection has more tiles than 1e6 from its origin).
absl::Status BuildTexture(const v1::BodySpec& body, const std::string& path, const sim::TetMesh& mesh, const sim::BoundarySurface& surface,
                          const BodyLook& look, sim::TextureDescription* out);

/// Makes a surface zone of each material of the look, with its colour, where there are several: of the triangles that no zone has yet.
/// Rigid and static bodies, which have no such zones, stay as they are. Precondition: out->surface_zones has those of the spec.
void AddMaterialZones(const BodyLook& look, sim::BodyDescription* out);

v1::TexturePattern EncodeTexturePattern(sim::TexturePattern pattern);

}  // namespace palpate::scene
