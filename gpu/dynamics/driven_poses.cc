#include "gpu/dynamics/driven_poses.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include <Eigen/Geometry>

#include "absl/strings/str_cat.h"
#include "gpu/dynamics/float4.h"

namespace palpate::gpu {
namespace {

using Eigen::Quaterniond;
using Eigen::Vector3d;

Vector3d ToVector(const std::array<double, 3>& v) { return {v[0], v[1], v[2]}; }

/// A turn by |v| about v.
Quaterniond ToRotation(const Vector3d& v) {
  const double angle = v.norm();
  const double share = angle > 0 ? std::sin(angle / 2) / angle : 0;
  return {std::cos(angle / 2), v.x() * share, v.y() * share, v.z() * share};
}

using Place = Eigen::Matrix<double, 6, 1>;  // shift, turn

/// The curve through the keys of a region. Keys that repeat have their neighbours beyond the ends a period away.
class KeyCurve {
 public:
  explicit KeyCurve(const TissueDrivenRegion& region) : region_(region), count_(static_cast<int>(region.keys.size())) {}

  Place At(double time_s) const {
    if (region_.period_s > 0) time_s -= region_.period_s * std::floor(time_s / region_.period_s);
    const auto& keys = region_.keys;
    const auto next =
        std::upper_bound(keys.begin(), keys.end(), time_s, [](double t, const TissueMotionKey& key) { return t < key.time_s; });
    const int from = static_cast<int>(next - keys.begin()) - 1;
    if (from + 1 == count_ && region_.period_s == 0) return PlaceOf(from);
    const double span_s = TimeOf(from + 1) - TimeOf(from);
    const double u = (time_s - TimeOf(from)) / span_s;
    const double rise = u * u * (3 - 2 * u);
    return (1 - rise) * PlaceOf(from) + rise * PlaceOf(from + 1) + u * (1 - u) * span_s * ((1 - u) * SlopeAt(from) - u * SlopeAt(from + 1));
  }

 private:
  double TimeOf(int i) const {
    const int turns = i >= count_ ? 1 : i < 0 ? -1 : 0;
    return region_.keys[static_cast<size_t>(i - turns * count_)].time_s + turns * region_.period_s;
  }
  Place PlaceOf(int i) const {
    const TissueMotionKey& key = region_.keys[static_cast<size_t>((i + count_) % count_)];
    Place place;
    place << ToVector(key.shift_m), ToVector(key.turn_rad);
    return place;
  }
  Place SlopeAt(int i) const {
    if (region_.period_s == 0 && (i == 0 || i + 1 == count_)) return Place::Zero();
    if (i == count_) i = 0;
    const Place before = (PlaceOf(i) - PlaceOf(i - 1)) / (TimeOf(i) - TimeOf(i - 1));
    const Place after = (PlaceOf(i + 1) - PlaceOf(i)) / (TimeOf(i + 1) - TimeOf(i));
    Place slope = (PlaceOf(i + 1) - PlaceOf(i - 1)) / (TimeOf(i + 1) - TimeOf(i - 1));
    for (int k = 0; k < slope.size(); ++k) {
      const double most = before[k] * after[k] > 0 ? 3 * std::min(std::abs(before[k]), std::abs(after[k])) : 0;
      slope[k] = std::clamp(slope[k], -most, most);
    }
    return slope;
  }

  const TissueDrivenRegion& region_;
  int count_;
};

struct Pose {
  Quaterniond rotation;
  Vector3d center_start, center;
};

Pose OwnPose(const TissueDrivenRegion& region, double time_s) {
  const double moved_s = std::clamp(time_s - region.start_s, 0.0, region.duration_s);
  const Vector3d center = ToVector(region.center_m);
  Pose pose = {ToRotation(moved_s * ToVector(region.angular_velocity_rad_per_s)), center,
               center + moved_s * ToVector(region.velocity_m_per_s)};
  if (region.keys.empty()) return pose;
  const double ramp = region.ramp_s > 0 ? std::min(moved_s / region.ramp_s, 1.0) : 1;
  const Place by = ramp * ramp * (3 - 2 * ramp) * KeyCurve(region).At(moved_s);
  pose.center += by.head<3>();
  pose.rotation = ToRotation(by.tail<3>()) * pose.rotation;
  return pose;
}

bool IsFinite(const std::array<double, 3>& v) { return std::isfinite(v[0]) && std::isfinite(v[1]) && std::isfinite(v[2]); }

absl::Status CheckKeys(const TissueDrivenRegion& region, const std::string& name) {
  const auto error = [&](auto... what) { return absl::InvalidArgumentError(absl::StrCat(name, what...)); };
  for (size_t k = 0; k < region.keys.size(); ++k) {
    const TissueMotionKey& key = region.keys[k];
    if (!IsFinite(key.shift_m) || !IsFinite(key.turn_rad)) return error(": key ", k, " is not finite");
    if (k == 0 ? key.time_s != 0 : !(key.time_s > region.keys[k - 1].time_s)) {
      return error(": key ", k, " has the time ", key.time_s, " s; times rise from 0");
    }
  }
  if (!(region.ramp_s >= 0)) return error(": the ramp is ", region.ramp_s, " s");
  if (region.period_s != 0 && (region.keys.empty() || !(region.period_s > region.keys.back().time_s))) {
    return error(": the period of ", region.period_s, " s does not end after the last key");
  }
  return absl::OkStatus();
}

absl::Status CheckBlends(const TissueDrivenRegion& region, size_t region_count, const std::string& name) {
  const auto error = [&](auto... what) { return absl::InvalidArgumentError(absl::StrCat(name, what...)); };
  if (!region.blends.empty() && region.blends.size() != region.vertices.size()) {
    return error(": ", region.blends.size(), " blends for ", region.vertices.size(), " vertices");
  }
  for (size_t i = 0; i < region.blends.size(); ++i) {
    double sum = 0;
    for (size_t k = 0; k < 4; ++k) {
      const uint32_t other = region.blends[i].regions[k];
      const float share = region.blends[i].shares[k];
      if (other >= region_count && other != TissueDrivenBlend::kRests) return error(": blend ", i, " has region ", other);
      if (!(share >= 0) || (k > 0 && share > region.blends[i].shares[k - 1])) return error(": blend ", i, " has the share ", share);
      sum += share;
    }
    if (!(std::abs(sum - 1) < 1e-5)) return error(": shares of blend ", i, " add up to ", sum);
  }
  return absl::OkStatus();
}

}  // namespace

void PosesOf(std::span<const TissueDrivenRegion> regions, double time_s, std::span<DrivenPose> poses) {
  std::vector<Pose> all;
  all.reserve(regions.size());
  for (size_t r = 0; r < regions.size(); ++r) {
    Pose pose = OwnPose(regions[r], time_s);
    if (regions[r].parent != TissueDrivenRegion::kNoParent) {
      const Pose& parent = all[regions[r].parent];
      pose.center = parent.center + parent.rotation * (pose.center - parent.center_start);
      pose.rotation = parent.rotation * pose.rotation;
    }
    const auto to_float4 = [](const Vector3d& v, double w = 0) { return ToFloat4({v.x(), v.y(), v.z()}, w); };
    poses[r].rotation = to_float4(pose.rotation.vec(), pose.rotation.w());
    poses[r].center_start = to_float4(pose.center_start);
    poses[r].center = to_float4(pose.center);
    all.push_back(pose);
  }
}

absl::Status CheckMotions(std::span<const TissueDrivenRegion> regions) {
  for (size_t r = 0; r < regions.size(); ++r) {
    const std::string name = absl::StrCat("driven region ", r);
    PALPATE_RETURN_IF_ERROR(CheckKeys(regions[r], name));
    PALPATE_RETURN_IF_ERROR(CheckBlends(regions[r], regions.size(), name));
    if (regions[r].parent != TissueDrivenRegion::kNoParent && regions[r].parent >= r) {
      return absl::InvalidArgumentError(absl::StrCat(name, ": its parent, ", regions[r].parent, ", is not before it"));
    }
  }
  return absl::OkStatus();
}

}  // namespace palpate::gpu
