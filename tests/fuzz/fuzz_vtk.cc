#include <cstddef>
#include <cstdint>

#include "tests/fuzz/fuzz_mesh.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace palpate::sim;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  CheckResult(ParseVtk(bytes, "input"));
  CheckResult(ParseVtk(bytes, "input", {.flip_inverted = true, .drop_unused_vertices = true}));
  const auto surface = ParseVtkSurface(bytes, "input");
  if (!surface.ok()) {
    CheckResult(surface.status());
    return 0;
  }
  for (const auto& triangle : surface->triangles) {
    for (const uint32_t v : triangle) Require(v < surface->vertices.size(), "a triangle's vertices exist");
  }
  return 0;
}
