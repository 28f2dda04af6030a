#include <cstddef>
#include <cstdint>

#include "tests/fuzz/fuzz_mesh.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace palpate::sim;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  CheckResult(ParseVtk(bytes, "input"));
  CheckResult(ParseVtk(bytes, "input", {.flip_inverted = true, .drop_unused_vertices = true}));
  return 0;
}
