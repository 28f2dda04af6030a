#pragma once

#include <cstdint>
#include <vector>

#include <Eigen/Core>

namespace palpate::sim {

/// Motion of fixed vertices, or held control points of a NURBS shell, as one rigid piece: from start_s for duration_s of simulated time
/// they turn with the angular velocity about center_m, which itself moves with the velocity; before and after they rest.
struct DrivenRegion {
  std::vector<uint32_t> vertices;  ///< indices into mesh.vertices, or of control points; each one held, and in no other region of its body
  Eigen::Vector3d velocity_m_per_s{0, 0, 0};
  Eigen::Vector3d angular_velocity_rad_per_s{0, 0, 0};
  Eigen::Vector3d center_m{0, 0, 0};  ///< at start_s, in W
  double start_s = 0;
  double duration_s = 0;
};

}  // namespace palpate::sim
