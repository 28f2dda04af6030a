#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace palpate::sim {

/// Faces inside a mesh that an edit would uncover.
struct UncoveredFaces {
  std::vector<std::array<uint32_t, 3>> faces;  ///< vertex slots
  std::vector<uint32_t> gone;                  ///< slots of the surface triangles that the same edit takes away
};

/// Says which faces may not become surface as the tissue lies now, because they pass through it or through each other: sets
/// (*is_refused)[i] of `faces.faces[i]` and returns whether it set any. An empty guard refuses nothing.
using ExposureGuard = std::function<bool(const UncoveredFaces& faces, std::vector<uint8_t>* is_refused)>;

}  // namespace palpate::sim
