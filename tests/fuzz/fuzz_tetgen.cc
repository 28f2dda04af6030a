#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "tests/fuzz/fuzz_mesh.h"

// The input is a .node text, an at sign and an .ele text.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace palpate::sim;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const size_t split = std::min(bytes.find('@'), size);
  const std::string_view nodes = bytes.substr(0, split);
  const std::string_view tets = bytes.substr(std::min(split + 1, size));
  CheckResult(ParseTetGen(nodes, "nodes", tets, "tets"));
  CheckResult(ParseTetGen(nodes, "nodes", tets, "tets", {.flip_inverted = true, .drop_unused_vertices = true}));
  return 0;
}
