#pragma once

#include <array>

namespace palpate::sim {

/// u v of the corners of a triangle.
using TextureCorners = std::array<std::array<float, 2>, 3>;

}  // namespace palpate::sim
