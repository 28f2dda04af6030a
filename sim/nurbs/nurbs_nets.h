#pragma once

#include <span>
#include <vector>

#include <Eigen/Geometry>

#include "gpu/collision/nurbs_queries.h"
#include "sim/nurbs/nurbs_surface.h"

namespace palpate::sim {

/// Surfaces and poses as queries on the device take them. Nets refer to the surface.
inline gpu::NurbsNet NetOf(const NurbsSurface& surface) {
  return {.degree_u = static_cast<uint32_t>(surface.degree(NurbsDirection::kU)),
          .degree_v = static_cast<uint32_t>(surface.degree(NurbsDirection::kV)),
          .knots_u = surface.knots(NurbsDirection::kU),
          .knots_v = surface.knots(NurbsDirection::kV),
          .control = {surface.control().data()->data(), 4 * surface.control().size()}};
}

inline std::vector<gpu::NurbsNet> NetsOf(std::span<const NurbsSurface> patches) {
  std::vector<gpu::NurbsNet> nets;
  for (const NurbsSurface& patch : patches) nets.push_back(NetOf(patch));
  return nets;
}

inline gpu::NurbsPose PoseOf(const Eigen::Affine3d& map) {
  gpu::NurbsPose pose;
  for (int i = 0; i < 3; ++i) {
    for (int k = 0; k < 3; ++k) pose.linear[static_cast<size_t>(3 * i + k)] = map.linear()(i, k);
    pose.offset_m[static_cast<size_t>(i)] = map.translation()[i];
  }
  return pose;
}

}  // namespace palpate::sim
