#include "clients/station/convert.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"

namespace palpate::station {
namespace {

using Eigen::Vector3d;

Vector3d ToEigen(const v1::Vec3& v) { return {v.x(), v.y(), v.z()}; }

absl::Status NotFinite(const std::string& field) {
  return absl::InvalidArgumentError(absl::StrCat(field, " holds a number that is not finite"));
}

absl::Status CheckNotNegative(const std::string& field, double value) {
  if (std::isfinite(value) && value >= 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(field, " = ", value, " is not in [0, infinity)"));
}

}  // namespace

absl::Status FromProto(const v1::Pose& message, const char* field, sim::RigidPose* pose) {
  *pose = sim::RigidPose{};
  pose->position_m = ToEigen(message.position_m());
  if (message.has_rotation()) {
    const v1::Quaternion& q = message.rotation();
    pose->rotation = Eigen::Quaterniond(q.w(), q.x(), q.y(), q.z());
  }
  if (!pose->position_m.allFinite() || !pose->rotation.coeffs().allFinite()) return NotFinite(field);
  const double norm = pose->rotation.norm();
  if (!(norm > 1e-12) || !std::isfinite(norm))
    return absl::InvalidArgumentError(absl::StrCat(field, ".rotation has length ", norm, "; it must not be zero"));
  pose->rotation.coeffs() /= norm;
  return absl::OkStatus();
}

absl::Status FromProto(const v1::LocalModel& message, sim::LocalModel* model) {
  if (message.constraints_size() > sim::kMaxLocalConstraints) {
    return absl::InvalidArgumentError(
        absl::StrCat("constraints: ", message.constraints_size(), " of them; at most ", sim::kMaxLocalConstraints, " are allowed"));
  }
  absl::Status status = FromProto(message.pose_at_build(), "pose_at_build", &model->pose_at_build);
  if (status.ok()) status = CheckNotNegative("validity_radius_m", message.validity_radius_m());
  if (status.ok()) status = CheckNotNegative("blend_time_s", message.blend_time_s());
  if (status.ok()) status = CheckNotNegative("sim_time_s", message.sim_time_s());
  if (status.ok()) status = CheckNotNegative("jaw_angle_rad", message.jaw_angle_rad());
  if (status.ok()) status = CheckNotNegative("grasp_force_n", message.grasp_force_n());
  if (status.ok()) status = CheckNotNegative("blocked_m", message.blocked_m());
  if (status.ok()) status = CheckNotNegative("removed_mass_kg", message.removed_mass_kg());
  if (!status.ok()) return status;
  model->step = message.step();
  model->sim_time_s = message.sim_time_s();
  model->server_time_us = message.server_time_us();
  model->pose_sequence = message.pose_sequence();
  model->station_time_us = message.station_time_us();
  model->validity_radius_m = message.validity_radius_m();
  model->blend_time_s = message.blend_time_s();
  model->force_n = ToEigen(message.force_n());
  model->torque_n_m = ToEigen(message.torque_n_m());
  if (!model->force_n.allFinite() || !model->torque_n_m.allFinite()) return NotFinite("force_n or torque_n_m");
  model->constraint_count = message.constraints_size();
  for (int i = 0; i < message.constraints_size(); ++i) {
    const v1::ContactConstraint& from = message.constraints(i);
    sim::LocalConstraint& to = model->constraints[i];
    to.arm_T_m = ToEigen(from.arm_m());
    to.normal_W = ToEigen(from.normal());
    to.rest_penetration_m = from.rest_penetration_m();
    to.stiffness_n_per_m = from.stiffness_n_per_m();
    to.friction = from.friction();
    to.damping_n_s_per_m = from.damping_n_s_per_m();
    to.curvature_per_m = {};
    const auto& curvature = from.curvature_per_m();
    if (!curvature.empty() &&
        (curvature.size() != 6 || !std::all_of(curvature.begin(), curvature.end(), [](double v) { return std::isfinite(v); }))) {
      return absl::InvalidArgumentError(absl::StrCat("constraints[", i, "].curvature_per_m: six finite numbers are wanted, or none"));
    }
    std::copy(curvature.begin(), curvature.end(), to.curvature_per_m.begin());
    const double norm = to.normal_W.norm();
    if (to.arm_T_m.allFinite() && std::isfinite(norm) && norm > 1e-6 && std::isfinite(to.rest_penetration_m) && to.stiffness_n_per_m >= 0 &&
        std::isfinite(to.stiffness_n_per_m) && to.friction >= 0 && std::isfinite(to.friction) && to.damping_n_s_per_m >= 0 &&
        std::isfinite(to.damping_n_s_per_m)) {
      to.normal_W /= norm;
      continue;
    }
    // Something is wrong; say what.
    const std::string field = absl::StrCat("constraints[", i, "]");
    if (!to.arm_T_m.allFinite() || !to.normal_W.allFinite() || !std::isfinite(to.rest_penetration_m)) return NotFinite(field);
    if (!(norm > 1e-6)) return absl::InvalidArgumentError(absl::StrCat(field, ".normal has length ", norm, "; it must be unit"));
    status = CheckNotNegative(field + ".stiffness_n_per_m", to.stiffness_n_per_m);
    if (status.ok()) status = CheckNotNegative(field + ".friction", to.friction);
    if (status.ok()) status = CheckNotNegative(field + ".damping_n_s_per_m", to.damping_n_s_per_m);
    return status.ok() ? NotFinite(field) : status;
  }
  return absl::OkStatus();
}

void ToProto(const PoseSample& sample, v1::ToolPose* message) {
  message->set_sequence(sample.sequence);
  message->set_station_time_us(sample.station_time_us);
  const auto set = [](v1::Vec3* to, const Vector3d& from) {
    to->set_x(from.x());
    to->set_y(from.y());
    to->set_z(from.z());
  };
  set(message->mutable_pose()->mutable_position_m(), sample.pose.position_m);
  v1::Quaternion* q = message->mutable_pose()->mutable_rotation();
  q->set_w(sample.pose.rotation.w());
  q->set_x(sample.pose.rotation.x());
  q->set_y(sample.pose.rotation.y());
  q->set_z(sample.pose.rotation.z());
  set(message->mutable_velocity_m_per_s(), sample.velocity_m_per_s);
}

}  // namespace palpate::station
