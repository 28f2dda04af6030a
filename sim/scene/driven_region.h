#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include <Eigen/Core>

namespace palpate::gpu {
struct TissueDrivenRegion;
}

namespace palpate::sim {

/// A place on the way of a driven region, beyond where its velocities take it.
struct MotionKey {
  double time_s = 0;  ///< since start_s
  Eigen::Vector3d shift_m{0, 0, 0};
  Eigen::Vector3d turn_rad{0, 0, 0};  ///< rotation vector about center_m
};

/// What a vertex follows if not one region alone: regions of its body, the largest share first. Shares add up to 1.
struct DrivenBlend {
  static constexpr uint32_t kRests = 0xffffffffU;  ///< in place of a region: this share rests
  std::array<uint32_t, 4> regions{kRests, kRests, kRests, kRests};
  std::array<float, 4> shares{};
};

/// Motion of fixed vertices, or held control points of a NURBS shell, as one rigid piece: from start_s for duration_s of simulated time
/// they turn with the angular velocity about center_m, which itself moves with the velocity, and on a smooth way through the keys; before
/// and after they rest. The law is that of gpu::PosesOf.
struct DrivenRegion {
  std::vector<uint32_t> vertices;  ///< indices into mesh.vertices, or of control points; each one held, and in no other region of its body
  Eigen::Vector3d velocity_m_per_s{0, 0, 0};
  Eigen::Vector3d angular_velocity_rad_per_s{0, 0, 0};
  Eigen::Vector3d center_m{0, 0, 0};  ///< at start_s, in W
  double start_s = 0;
  double duration_s = 0;
  std::vector<MotionKey> keys{};      ///< times rise from 0
  double period_s = 0;                ///< keys begin again after it; 0: they do not
  double ramp_s = 0;                  ///< in which what keys add grows from nothing
  std::optional<uint32_t> parent{};   ///< region of the body before this one, whose motion carries this one
  std::vector<DrivenBlend> blends{};  ///< of each vertex, or empty: all follow this region alone. Not of control points
};

/// As the solver takes it, without vertices and blends; the regions of the body come after `first_region` others.
gpu::TissueDrivenRegion TissueDrivenRegionOf(const DrivenRegion& region, uint32_t first_region);

}  // namespace palpate::sim
