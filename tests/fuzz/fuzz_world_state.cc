// Checkpoints from anywhere: bytes as they are, and as sections behind a head whose checksums are right. What is accepted is written back
// as the same bytes.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "sim/world/world_state.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using palpate::sim::DecodeWorldState;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  (void)DecodeWorldState(input);
  (void)palpate::sim::ReadWorldStateInfo(input);
  if (size < 2) return 0;
  // The first two bytes: how much of the rest is the topology.
  const std::string_view rest = input.substr(2);
  const size_t topology = (size_t{data[0]} | size_t{data[1]} << 8) % (rest.size() + 1);
  const std::string packed = palpate::sim::PackWorldState({}, {rest.substr(0, topology), rest.substr(topology), "scene", "solver"});
  const auto state = DecodeWorldState(packed);
  if (state.ok() && palpate::sim::EncodeWorldState(**state) != packed) std::abort();
  return 0;
}
