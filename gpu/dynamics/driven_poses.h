#pragma once

#include <span>

#include "gpu/base/status.h"
#include "gpu/dynamics/tissue_layout.h"

namespace palpate::gpu {

/// Where regions are at `time_s` since the last reset; poses: [region]. With s the seconds since start_s, cut to [0, duration_s], a region
/// is turned about its centre by angular_velocity s and then by the turn of its keys, and shifted by velocity s and the shift of its keys;
/// then its parent's pose moves it. Shifts and rotation vectors run through the keys along cubic Hermite curves with the slopes of Catmull
/// and Rom, cut so that no component leaves the range of its two keys (Fritsch and Carlson 1980). They are 0 at the first and last key
/// unless the keys repeat. So velocities are continuous. A ramp scales both by the smoothstep
/// of s / ramp_s.
void PosesOf(std::span<const TissueDrivenRegion> regions, double time_s, std::span<DrivenPose> poses);

/// Errors: InvalidArgument naming the region: keys whose times do not rise from 0 or that are not finite, a period that is not above the
/// last time or without keys, a negative ramp, a parent that is not before its region; blends that are not of each vertex, with regions
/// out of range, or with shares that fall below 0 or do not add up to 1.
absl::Status CheckMotions(std::span<const TissueDrivenRegion> regions);

}  // namespace palpate::gpu
