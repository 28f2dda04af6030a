#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <vector>

#include <Eigen/Core>

#include "gpu/shared/dynamics_types.h"
#include "sim/scene/description.h"
#include "sim/world/indices.h"

namespace palpate::sim {

// Small things that the parts of a world share.

inline std::array<double, 3> ToArray(const Eigen::Vector3d& v) { return {v.x(), v.y(), v.z()}; }
inline Eigen::Vector3d ToVector(const gpu::Float4& v) { return {v.x, v.y, v.z}; }
inline std::array<VertexHandle, 4> HandlesOf(const gpu::SurfaceReport& report) {
  const auto& v = report.vertices;
  return {VertexHandle{v.x}, VertexHandle{v.y}, VertexHandle{v.z}, VertexHandle{v.w}};
}

/// Straight between values at times, which ascend, and constant beyond. Both of one size, not empty.
template <typename T>
T ValueAt(const std::vector<double>& times_s, const std::vector<T>& values, double time_s) {
  const auto after = std::upper_bound(times_s.begin(), times_s.end(), time_s);
  if (after == times_s.begin()) return values.front();
  if (after == times_s.end()) return values.back();
  const auto i = static_cast<size_t>(after - times_s.begin());
  const double share = (time_s - times_s[i - 1]) / (times_s[i] - times_s[i - 1]);
  return values[i - 1] + share * (values[i] - values[i - 1]);
}

inline double MillisecondsSince(std::chrono::steady_clock::time_point* mark) {
  const auto now = std::chrono::steady_clock::now();
  const double ms = std::chrono::duration<double, std::milli>(now - *mark).count();
  *mark = now;
  return ms;
}

inline double CouplingDamping(const ToolDescription& tool) {
  return tool.coupling_damping_n_s_per_m >= 0 ? tool.coupling_damping_n_s_per_m
                                              : 2 * std::sqrt(tool.coupling_stiffness_n_per_m * tool.mass_kg);
}

}  // namespace palpate::sim
