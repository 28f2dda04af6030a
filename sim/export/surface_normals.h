#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace palpate::sim {

/// Unit normals of vertices: the mean of their triangles' normals, weighted by area. (0, 0, 1) where there is none.
/// Precondition: indices are in range.
std::vector<float> NormalsByArea(std::span<const float> positions_m, std::span<const std::array<uint32_t, 3>> triangles);

}  // namespace palpate::sim
