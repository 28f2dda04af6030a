#pragma once

#include <array>

#include "gpu/shared/types.h"

namespace palpate::gpu {

/// As kernels take it.
inline Float4 ToFloat4(const std::array<double, 3>& v, double w = 0) {
  return {static_cast<float>(v[0]), static_cast<float>(v[1]), static_cast<float>(v[2]), static_cast<float>(w)};
}
inline std::array<double, 3> ToArray(const Float4& v) { return {v.x, v.y, v.z}; }

}  // namespace palpate::gpu
