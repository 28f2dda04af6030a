#include "server/core/tool_pose.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gpu/base/status.h"
#include "sim/scene/scene_spec.h"
#include "sim/scene/tool_spec.h"

namespace palpate::server {
namespace {

constexpr double kMaxToolSpeed_m_per_s = 1000;

absl::Status CheckRange(std::string_view path, std::string_view field, double value, double low, double high) {
  if (value >= low && value <= high) return absl::OkStatus();  // false for NaN
  return absl::InvalidArgumentError(absl::StrCat(absl::string_view(path.data(), path.size()), ".",
                                                 absl::string_view(field.data(), field.size()), ": ", value, " is outside [", low, ", ",
                                                 high, "]"));
}

}  // namespace

absl::StatusOr<sim::ToolCommand> ToolCommandFromProto(const v1::ToolPose& pose, const sim::ToolDescription& tool, std::string_view path) {
  sim::ToolCommand command;
  const std::string pose_path = absl::StrCat(absl::string_view(path.data(), path.size()), ".pose");
  PALPATE_ASSIGN_OR_RETURN(command.device_pose, scene::PoseFromProto(pose.pose(), pose_path));
  const v1::Vec3& v = pose.velocity_m_per_s();
  for (const auto& [axis, value] :
       {std::pair("velocity_m_per_s.x", v.x()), std::pair("velocity_m_per_s.y", v.y()), std::pair("velocity_m_per_s.z", v.z())}) {
    PALPATE_RETURN_IF_ERROR(CheckRange(path, axis, value, -kMaxToolSpeed_m_per_s, kMaxToolSpeed_m_per_s));
  }
  PALPATE_RETURN_IF_ERROR(CheckRange(path, "jaw_angle_rad", pose.jaw_angle_rad(), 0, scene::kMaxJawAngle_rad));
  PALPATE_RETURN_IF_ERROR(CheckRange(path, "power_w", pose.power_w(), 0, scene::kMaxPower_w));
  PALPATE_RETURN_IF_ERROR(CheckRange(path, "duty", pose.duty(), 0, 1));
  command.velocity_m_per_s = {v.x(), v.y(), v.z()};
  command.pose_sequence = pose.sequence();
  command.station_time_us = pose.station_time_us();
  command.jaw_angle_rad = std::min(pose.jaw_angle_rad(), tool.instrument.max_jaw_angle_rad);
  command.pedal = pose.pedal();
  command.power_w = std::min(pose.power_w(), tool.instrument.max_power_w);
  command.duty = pose.duty();
  return command;
}

}  // namespace palpate::server
