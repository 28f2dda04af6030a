#include "sim/scene/driven_region.h"

#include "gpu/dynamics/tissue_layout.h"

namespace palpate::sim {

gpu::TissueDrivenRegion TissueDrivenRegionOf(const DrivenRegion& region, uint32_t first_region) {
  const auto array = [](const Eigen::Vector3d& v) { return std::array<double, 3>{v.x(), v.y(), v.z()}; };
  gpu::TissueDrivenRegion out;
  out.velocity_m_per_s = array(region.velocity_m_per_s);
  out.angular_velocity_rad_per_s = array(region.angular_velocity_rad_per_s);
  out.center_m = array(region.center_m);
  out.start_s = region.start_s;
  out.duration_s = region.duration_s;
  for (const MotionKey& key : region.keys) out.keys.push_back({key.time_s, array(key.shift_m), array(key.turn_rad)});
  out.period_s = region.period_s;
  out.ramp_s = region.ramp_s;
  if (region.parent) out.parent = *region.parent + first_region;
  return out;
}

}  // namespace palpate::sim
