// OBJ with MTL: the input is both.
#include <cstddef>
#include <cstdint>

#include "sim/mesh/io_obj.h"
#include "tests/fuzz/fuzz_mesh.h"

namespace palpate::sim {
namespace {

void CheckError(const absl::Status& status) {
  Require(status.code() == absl::StatusCode::kInvalidArgument, "a parser's error is InvalidArgument");
  for (const char c : status.message()) Require(c >= ' ' && c <= '~', "an error message is printable ASCII");
}

void CheckName(const std::string& name) {
  Require(name.empty() || name[0] != '/', "a picture's name is relative");
  Require(("/" + name + "/").find("/../") == std::string::npos, "a picture's name does not lead out of its folder");
}

}  // namespace
}  // namespace palpate::sim

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace palpate::sim;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const auto materials = ParseMtl(bytes, "input");
  if (!materials.ok()) CheckError(materials.status());
  const auto surface = ParseTexturedObj(bytes, "input", [bytes](const std::string& file) -> absl::StatusOr<std::string> {
    CheckName(file);
    return std::string(bytes);
  });
  if (!surface.ok()) {
    CheckError(surface.status());
    return 0;
  }
  const size_t count = surface->surface.triangles.size();
  Require(count > 0, "a surface has triangles");
  for (const auto& triangle : surface->surface.triangles) {
    for (const uint32_t v : triangle) Require(v < surface->surface.vertices.size(), "a triangle's vertices exist");
  }
  Require(surface->texture_corners.empty() || surface->texture_corners.size() == count, "coordinates are of triangles");
  Require(surface->triangle_materials.size() == count, "each triangle has a material");
  for (const uint32_t m : surface->triangle_materials) Require(m < surface->materials.size(), "a triangle's material exists");
  for (const SurfaceMaterial& material : surface->materials) CheckName(material.image_file);
  return 0;
}
