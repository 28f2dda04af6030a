#pragma once

#include <array>
#include <cstdint>

#include "gpu/shared/types.h"

namespace palpate::gpu {

/// As kernels take it.
inline Float4 ToFloat4(const std::array<double, 3>& v, double w = 0) {
  return {static_cast<float>(v[0]), static_cast<float>(v[1]), static_cast<float>(v[2]), static_cast<float>(w)};
}
inline std::array<double, 3> ToArray(const Float4& v) { return {v.x, v.y, v.z}; }

/// Without the coordinates that a vertex is held along (TissueLayout::held_axes).
inline Float4 AlongFreeAxes(uint32_t held_axes, const Float4& v) {
  return {held_axes & 1U ? 0.0F : v.x, held_axes & 2U ? 0.0F : v.y, held_axes & 4U ? 0.0F : v.z, v.w};
}

}  // namespace palpate::gpu
