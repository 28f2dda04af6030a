#include "sim/scene/joint_spec.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <optional>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "gpu/base/status.h"
#include "gpu/dynamics/nurbs_shell_model.h"
#include "sim/scene/body_spec.h"
#include "sim/scene/nurbs_description.h"
#include "sim/scene/nurbs_shell_body.h"
#include "sim/scene/scene_spec.h"

namespace palpate::scene {
namespace {

using sim::JointDescription;
using sim::JointDriveDescription;
using sim::JointKind;

constexpr double kMaxStep = 1e6;    // of a parameter of a patch
constexpr double kMaxEffort = 1e9;  // N, N m, and per m and rad
constexpr double kMaxBreak = 1e12;  // N, N m
constexpr double kMaxTurn_rad = 1e4;
constexpr double kMaxTurnSpeed_rad_per_s = 1e4;
constexpr double kMaxShift_m = 200;
constexpr double kMaxShiftSpeed_m_per_s = 100;
constexpr double kMinAxisDistance_m = 1e-9;
constexpr double kMostApart_m = 1e-6;  // of two places on surfaces that are one

std::string JointName(const v1::SceneSpec& spec, int index) {
  const std::string& name = spec.joints(index).name();
  return name.empty() ? absl::StrCat("joint", index) : name;
}

Region RegionOf(const v1::JointRegion& r) {
  return {r.has_box() ? &r.box() : nullptr, r.has_ball() ? &r.ball() : nullptr, r.has_vertices() ? &r.vertices() : nullptr};
}

bool HasTwoPoints(const v1::JointSpec& joint) { return joint.has_distance() || joint.has_spring(); }

uint64_t CopyCount(const v1::JointSpec& joint) { return joint.has_array() ? joint.array().count() : 1; }

void CheckAxis(Checker& check, const std::string& path, bool is_given, const v1::Vec3& axis) {
  check.Finite(At(path, "x"), axis.x());
  check.Finite(At(path, "y"), axis.y());
  check.Finite(At(path, "z"), axis.z());
  if (check.ok() && is_given && ToEigen(axis).isZero(0)) check.Invalid(path, "is zero");
}

void CheckMotion(Checker& check, const std::string& path, const google::protobuf::RepeatedField<double>& times, const char* targets_name,
                 const google::protobuf::RepeatedField<double>& targets, double most) {
  check.Times(path, "times_s", times, targets_name, targets.size());
  for (int i = 0; i < times.size() && check.ok(); ++i) {
    check.Range(At(At(path, targets_name), i), targets[i], -most, most);
  }
}

void CheckDrive(Checker& check, const std::string& path, const v1::TurnDrive& drive) {
  if (drive.has_motor()) {
    check.Range(At(path, "motor.speed_rad_per_s"), drive.motor().speed_rad_per_s(), -kMaxTurnSpeed_rad_per_s, kMaxTurnSpeed_rad_per_s);
    if (drive.motor().has_max_torque_n_m()) check.Range(At(path, "motor.max_torque_n_m"), drive.motor().max_torque_n_m(), 0, kMaxEffort);
  } else if (drive.has_spring()) {
    check.Range(At(path, "spring.angle_rad"), drive.spring().angle_rad(), -kMaxTurn_rad, kMaxTurn_rad);
    check.Range(At(path, "spring.stiffness_n_m_per_rad"), drive.spring().stiffness_n_m_per_rad(), 0, kMaxEffort);
    check.Range(At(path, "spring.damping_n_m_s_per_rad"), drive.spring().damping_n_m_s_per_rad(), 0, kMaxEffort);
  } else if (drive.has_motion()) {
    CheckMotion(check, At(path, "motion"), drive.motion().times_s(), "angles_rad", drive.motion().angles_rad(), kMaxTurn_rad);
  }
}

void CheckDrive(Checker& check, const std::string& path, const v1::ShiftDrive& drive) {
  if (drive.has_motor()) {
    check.Range(At(path, "motor.speed_m_per_s"), drive.motor().speed_m_per_s(), -kMaxShiftSpeed_m_per_s, kMaxShiftSpeed_m_per_s);
    if (drive.motor().has_max_force_n()) check.Range(At(path, "motor.max_force_n"), drive.motor().max_force_n(), 0, kMaxEffort);
  } else if (drive.has_spring()) {
    check.Range(At(path, "spring.position_m"), drive.spring().position_m(), -kMaxShift_m, kMaxShift_m);
    check.Range(At(path, "spring.stiffness_n_per_m"), drive.spring().stiffness_n_per_m(), 0, kMaxEffort);
    check.Range(At(path, "spring.damping_n_s_per_m"), drive.spring().damping_n_s_per_m(), 0, kMaxEffort);
  } else if (drive.has_motion()) {
    CheckMotion(check, At(path, "motion"), drive.motion().times_s(), "positions_m", drive.motion().positions_m(), kMaxShift_m);
  }
}

void CheckSpring(Checker& check, const std::string& path, const v1::SpringJoint& spring) {
  if (spring.has_rest_length_m()) check.Range(At(path, "rest_length_m"), spring.rest_length_m(), 0, kMaxShift_m);
  check.Range(At(path, "stiffness_n_per_m"), spring.stiffness_n_per_m(), 0, kMaxEffort);
  check.Range(At(path, "damping_n_s_per_m"), spring.damping_n_s_per_m(), 0, kMaxEffort);
}

/// An upper limit below the lower one is refused.
void CheckLimits(Checker& check, const std::string& path, const char* lower_name, std::optional<double> lower, const char* upper_name,
                 std::optional<double> upper, double low, double high) {
  if (lower) check.Range(At(path, lower_name), *lower, low, high);
  if (upper) check.Range(At(path, upper_name), *upper, low, high);
  if (lower && upper && check.ok() && *upper < *lower) {
    check.Invalid(At(path, upper_name), absl::StrCat(*upper, " is below ", lower_name, " = ", *lower));
  }
}

template <typename Get>
std::optional<double> If(bool is_given, Get value) {
  return is_given ? std::optional<double>(value) : std::nullopt;
}

void CheckDistance(Checker& check, const std::string& path, const v1::DistanceJoint& distance) {
  CheckLimits(check, path, "min_m", If(distance.has_min_m(), distance.min_m()), "max_m", If(distance.has_max_m(), distance.max_m()), 0,
              kMaxShift_m);
}

void CheckKind(Checker& check, const std::string& path, const v1::JointSpec& joint) {
  switch (joint.kind_case()) {
    case v1::JointSpec::kBall:
      check.Range(At(path, "ball.stiffness_n_m_per_rad"), joint.ball().stiffness_n_m_per_rad(), 0, kMaxEffort);
      check.Range(At(path, "ball.damping_n_m_s_per_rad"), joint.ball().damping_n_m_s_per_rad(), 0, kMaxEffort);
      break;
    case v1::JointSpec::kHinge: {
      const v1::HingeJoint& hinge = joint.hinge();
      CheckAxis(check, At(path, "hinge.axis"), hinge.has_axis(), hinge.axis());
      CheckLimits(check, At(path, "hinge"), "lower_rad", If(hinge.has_lower_rad(), hinge.lower_rad()), "upper_rad",
                  If(hinge.has_upper_rad(), hinge.upper_rad()), -kMaxTurn_rad, kMaxTurn_rad);
      CheckDrive(check, At(path, "hinge.drive"), hinge.drive());
      break;
    }
    case v1::JointSpec::kSlider: {
      const v1::SliderJoint& slider = joint.slider();
      CheckAxis(check, At(path, "slider.axis"), slider.has_axis(), slider.axis());
      CheckLimits(check, At(path, "slider"), "lower_m", If(slider.has_lower_m(), slider.lower_m()), "upper_m",
                  If(slider.has_upper_m(), slider.upper_m()), -kMaxShift_m, kMaxShift_m);
      CheckDrive(check, At(path, "slider.drive"), slider.drive());
      break;
    }
    case v1::JointSpec::kFixed:
      break;
    case v1::JointSpec::kDistance:
      CheckDistance(check, At(path, "distance"), joint.distance());
      break;
    case v1::JointSpec::kPlane:
      CheckAxis(check, At(path, "plane.normal"), joint.plane().has_normal(), joint.plane().normal());
      break;
    case v1::JointSpec::kLine:
      CheckAxis(check, At(path, "line.axis"), joint.line().has_axis(), joint.line().axis());
      break;
    case v1::JointSpec::kSpring:
      CheckSpring(check, At(path, "spring"), joint.spring());
      break;
    case v1::JointSpec::KIND_NOT_SET:
      check.Invalid(path, "no kind is given; one of ball, hinge, slider, fixed, distance, plane, line, spring is needed");
      break;
  }
}

void CheckPatchPoint(Checker& check, const std::string& path, const v1::PatchPoint& point) {
  check.Finite(At(path, "u"), point.u());
  check.Finite(At(path, "v"), point.v());
  check.Range(At(path, "step_u"), point.step_u(), -kMaxStep, kMaxStep);
  check.Range(At(path, "step_v"), point.step_v(), -kMaxStep, kMaxStep);
}

/// Places on surfaces, which say where the joint is.
void CheckPatchPoints(Checker& check, const std::string& path, const v1::JointSpec& joint) {
  if (joint.has_patch_a()) CheckPatchPoint(check, At(path, "patch_a"), joint.patch_a());
  if (joint.has_patch_b()) CheckPatchPoint(check, At(path, "patch_b"), joint.patch_b());
  if (joint.has_patch_a() && joint.has_region_a()) check.Invalid(At(path, "patch_a"), "region_a is given too");
  if (joint.has_patch_b() && joint.has_region_b()) check.Invalid(At(path, "patch_b"), "region_b is given too");
  if (joint.has_patch_a() && joint.body_a().empty())
    check.Invalid(At(path, "patch_a"), "body_a is not given, and the world has no patches");
  if (joint.has_patch_b() && joint.body_b().empty())
    check.Invalid(At(path, "patch_b"), "body_b is not given, and the world has no patches");
  const bool says_where = joint.has_patch_a() || (joint.has_patch_b() && !HasTwoPoints(joint));
  if (says_where && joint.has_point_m()) {
    check.Invalid(At(path, "point_m"), absl::StrCat(joint.has_patch_a() ? "patch_a" : "patch_b", " says where the point is"));
  }
  if (joint.has_patch_b() && joint.has_point_b_m()) check.Invalid(At(path, "point_b_m"), "patch_b says where the point is");
}

void CheckJoint(Checker& check, const std::string& path, const v1::JointSpec& joint) {
  check.Name(At(path, "name"), joint.name(), kMaxNameBytes);
  check.Name(At(path, "body_a"), joint.body_a(), kMaxNameBytes);
  check.Name(At(path, "body_b"), joint.body_b(), kMaxNameBytes);
  check.RangeVec(At(path, "point_m"), joint.point_m(), -kMaxCoordinate_m, kMaxCoordinate_m);
  check.RangeVec(At(path, "point_b_m"), joint.point_b_m(), -kMaxCoordinate_m, kMaxCoordinate_m);
  if (joint.has_point_b_m() && !HasTwoPoints(joint)) {
    check.Invalid(At(path, "point_b_m"), "only distance and spring joints have two points");
  }
  if (joint.has_region_a()) CheckRegion(check, At(path, "region_a"), RegionOf(joint.region_a()), "box, ball, vertices");
  if (joint.has_region_b()) CheckRegion(check, At(path, "region_b"), RegionOf(joint.region_b()), "box, ball, vertices");
  CheckPatchPoints(check, path, joint);
  check.Name(At(path, "instrument_a"), joint.instrument_a(), kMaxNameBytes);
  check.Name(At(path, "instrument_b"), joint.instrument_b(), kMaxNameBytes);
  if (!joint.instrument_a().empty() && !joint.body_a().empty()) check.Invalid(At(path, "instrument_a"), "body_a is given too");
  if (!joint.instrument_b().empty() && !joint.body_b().empty()) check.Invalid(At(path, "instrument_b"), "body_b is given too");
  const bool has_two_regions =
      (joint.has_region_a() || joint.has_patch_a()) && (joint.has_region_b() || joint.has_patch_b()) && !joint.body_a().empty();
  if (check.ok() && joint.body_a() == joint.body_b() && !has_two_regions) {
    const bool has_instrument = !joint.instrument_a().empty() || !joint.instrument_b().empty();
    check.Invalid(At(path, "body_b"), !joint.body_b().empty() ? "is body_a too"
                                      : has_instrument        ? "is missing, as body_a is: one end must be a body"
                                                              : "is the world, as body_a is");
  }
  if (joint.ignores_contact() && (joint.body_a().empty() || joint.body_b().empty() || joint.body_a() == joint.body_b())) {
    check.Invalid(At(path, "ignores_contact"), "is of two bodies, and one end is the world, or both are of one body");
  }
  if (joint.has_break_force_n()) check.RangeAbove(At(path, "break_force_n"), joint.break_force_n(), 0, kMaxBreak);
  if (joint.has_break_torque_n_m()) check.RangeAbove(At(path, "break_torque_n_m"), joint.break_torque_n_m(), 0, kMaxBreak);
  if (joint.has_array()) {
    check.Range(At(path, "array.count"), joint.array().count(), 1, static_cast<double>(sim::kMaxJoints));
    check.RangeVec(At(path, "array.step_m"), joint.array().step_m(), -kMaxCoordinate_m, kMaxCoordinate_m);
  }
  if (check.ok()) CheckKind(check, path, joint);
}

JointDriveDescription DriveFrom(const v1::TurnDrive& drive) {
  JointDriveDescription out;
  if (drive.has_motor()) {
    out.kind = JointDriveDescription::Kind::kMotor;
    out.speed = drive.motor().speed_rad_per_s();
    if (drive.motor().has_max_torque_n_m()) out.max_effort = drive.motor().max_torque_n_m();
  } else if (drive.has_spring()) {
    out.kind = JointDriveDescription::Kind::kSpring;
    out.target = drive.spring().angle_rad();
    out.stiffness = drive.spring().stiffness_n_m_per_rad();
    out.damping = drive.spring().damping_n_m_s_per_rad();
  } else if (drive.has_motion()) {
    out.kind = JointDriveDescription::Kind::kMotion;
    out.times_s.assign(drive.motion().times_s().begin(), drive.motion().times_s().end());
    out.targets.assign(drive.motion().angles_rad().begin(), drive.motion().angles_rad().end());
  }
  return out;
}

JointDriveDescription DriveFrom(const v1::ShiftDrive& drive) {
  JointDriveDescription out;
  if (drive.has_motor()) {
    out.kind = JointDriveDescription::Kind::kMotor;
    out.speed = drive.motor().speed_m_per_s();
    if (drive.motor().has_max_force_n()) out.max_effort = drive.motor().max_force_n();
  } else if (drive.has_spring()) {
    out.kind = JointDriveDescription::Kind::kSpring;
    out.target = drive.spring().position_m();
    out.stiffness = drive.spring().stiffness_n_per_m();
    out.damping = drive.spring().damping_n_s_per_m();
  } else if (drive.has_motion()) {
    out.kind = JointDriveDescription::Kind::kMotion;
    out.times_s.assign(drive.motion().times_s().begin(), drive.motion().times_s().end());
    out.targets.assign(drive.motion().positions_m().begin(), drive.motion().positions_m().end());
  }
  return out;
}

JointDriveDescription DriveFrom(const v1::SpringJoint& spring, double length_m) {
  JointDriveDescription out;
  out.kind = JointDriveDescription::Kind::kSpring;
  out.target = spring.has_rest_length_m() ? spring.rest_length_m() : length_m;
  out.stiffness = spring.stiffness_n_per_m();
  out.damping = spring.damping_n_s_per_m();
  return out;
}

std::array<double, 2> LimitsFrom(const v1::DistanceJoint& distance, double length_m) {
  constexpr double kNone = std::numeric_limits<double>::infinity();
  if (!distance.has_min_m() && !distance.has_max_m()) return {length_m, length_m};
  return {distance.has_min_m() ? distance.min_m() : 0, distance.has_max_m() ? distance.max_m() : kNone};
}

Eigen::Vector3d AxisFrom(bool is_given, const v1::Vec3& axis) { return is_given ? Direction(ToEigen(axis)) : Eigen::Vector3d(0, 0, 1); }

void FillKind(const v1::JointSpec& spec, JointDescription* out) {
  const double length_m = (out->point_b_m - out->point_a_m).norm();
  if (spec.has_ball()) {
    out->kind = JointKind::kBall;
    out->drive.stiffness = spec.ball().stiffness_n_m_per_rad();
    out->drive.damping = spec.ball().damping_n_m_s_per_rad();
    if (out->drive.stiffness > 0 || out->drive.damping > 0) out->drive.kind = JointDriveDescription::Kind::kSpring;
  } else if (spec.has_hinge()) {
    out->kind = JointKind::kHinge;
    out->axis = AxisFrom(spec.hinge().has_axis(), spec.hinge().axis());
    if (spec.hinge().has_lower_rad()) out->lower = spec.hinge().lower_rad();
    if (spec.hinge().has_upper_rad()) out->upper = spec.hinge().upper_rad();
    out->drive = DriveFrom(spec.hinge().drive());
  } else if (spec.has_slider()) {
    out->kind = JointKind::kSlider;
    out->axis = AxisFrom(spec.slider().has_axis(), spec.slider().axis());
    if (spec.slider().has_lower_m()) out->lower = spec.slider().lower_m();
    if (spec.slider().has_upper_m()) out->upper = spec.slider().upper_m();
    out->drive = DriveFrom(spec.slider().drive());
  } else if (spec.has_fixed()) {
    out->kind = JointKind::kFixed;
  } else if (spec.has_distance()) {
    out->kind = JointKind::kDistance;
    const std::array<double, 2> limits = LimitsFrom(spec.distance(), length_m);
    out->lower = limits[0];
    out->upper = limits[1];
  } else if (spec.has_plane()) {
    out->kind = JointKind::kPlane;
    out->axis = AxisFrom(spec.plane().has_normal(), spec.plane().normal());
  } else if (spec.has_line()) {
    out->kind = JointKind::kLine;
    out->axis = AxisFrom(spec.line().has_axis(), spec.line().axis());
  } else {
    out->kind = JointKind::kSpring;
    out->drive = DriveFrom(spec.spring(), length_m);
  }
}

/// "link7", 3: "link10". A name without a number at its end stays.
std::string NameAfter(const std::string& name, uint64_t copies) {
  size_t begin = name.size();
  while (begin > 0 && std::isdigit(static_cast<unsigned char>(name[begin - 1])) != 0) --begin;
  uint64_t number = 0;
  if (begin == name.size() || !absl::SimpleAtoi(name.substr(begin), &number)) return name;
  return absl::StrCat(name.substr(0, begin), number + copies);
}

/// An end of a joint as its spec has it; `side`: "a" or "b".
struct EndSpec {
  std::string body, side;
  const v1::JointRegion* region = nullptr;  // null: none
  const v1::PatchPoint* patch = nullptr;    // likewise
  uint64_t copy = 0;
  Eigen::Vector3d shift_m{0, 0, 0};  // of the copy
};

struct BuiltEnd {
  uint32_t body = JointDescription::kWorld;
  std::vector<uint32_t> vertices;
  std::vector<sim::JointControlPoint> control;
  std::optional<Eigen::Vector3d> point_m;  // of a place on a surface
};

/// Why a body cannot be held in the way that this end says; nothing: it can.
std::optional<std::string> WhyNotHeld(const sim::BodyDescription& body, const EndSpec& end) {
  const bool has_region = end.region != nullptr;
  if (body.kind == sim::BodyKind::kStatic) return "is static; joints hold bodies that move, and static ones are the world";
  if (end.patch != nullptr && body.nurbs == nullptr)
    return absl::StrCat("has no exact surface, and patch_", end.side, " is a place on one");
  if (body.kind == sim::BodyKind::kRigid) {
    return has_region
               ? std::optional<std::string>(absl::StrCat("is rigid and moves as a whole; region_", end.side, " is of deformable bodies"))
               : std::nullopt;
  }
  if (body.nurbs != nullptr) {
    if (has_region && end.region->has_vertices()) {
      return absl::StrCat("is a NURBS shell, which has control points: region_", end.side, " is a box or a ball");
    }
    if (has_region || end.patch != nullptr) return std::nullopt;
    return absl::StrCat("is a NURBS shell: patch_", end.side, " or region_", end.side, " must say where the joint holds it");
  }
  if (sim::StartsQuasiStatic(body.simulation)) return "is pre-computed or hybrid; joints hold bodies with dynamics";
  if (!has_region) return absl::StrCat("is deformable: region_", end.side, " must say which of its vertices move with the joint");
  return std::nullopt;
}

/// The region in a copy.
v1::JointRegion MovedRegion(const v1::JointRegion& region, const Eigen::Vector3d& shift_m) {
  v1::JointRegion moved = region;
  const auto shift = [&](v1::Vec3* v) {
    v->set_x(v->x() + shift_m.x());
    v->set_y(v->y() + shift_m.y());
    v->set_z(v->z() + shift_m.z());
  };
  if (moved.has_box()) {
    shift(moved.mutable_box()->mutable_min_m());
    shift(moved.mutable_box()->mutable_max_m());
  } else if (moved.has_ball()) {
    shift(moved.mutable_ball()->mutable_center_m());
  }
  return moved;
}

/// Control points of a NURBS shell in a region.
absl::StatusOr<std::vector<uint32_t>> ControlPointsInside(const v1::JointRegion& region, const std::string& path,
                                                          const sim::BodyDescription& body) {
  std::vector<Eigen::Vector3d> points;
  for (const auto& [x, y, z] : body.nurbs_shell->model->rest_m) points.emplace_back(x, y, z);
  points.resize(body.nurbs_shell->model->surface_control_count());
  return PointsInside(RegionOf(region), path, points, "control point");
}

absl::Status HoldPatchPoint(const EndSpec& end, const std::string& path, const sim::BodyDescription& body, BuiltEnd* out) {
  const auto& patches = body.nurbs->object.patches();
  if (end.patch->patch() >= patches.size()) {
    return absl::InvalidArgumentError(absl::StrCat(At(path, "patch"), ": ", end.patch->patch(), " is outside [0, ", patches.size(), ")"));
  }
  const sim::NurbsSurface& surface = patches[end.patch->patch()].surface;
  const double u = end.patch->u() + static_cast<double>(end.copy) * end.patch->step_u();
  const double v = end.patch->v() + static_cast<double>(end.copy) * end.patch->step_v();
  for (const bool is_u : {true, false}) {
    const auto [low, high] = surface.domain(is_u ? sim::NurbsDirection::kU : sim::NurbsDirection::kV);
    const double at = is_u ? u : v;
    if (at >= low && at <= high) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(At(path, is_u ? "u" : "v"), ": ", at, " is outside the knots of the patch, [", low, ", ", high, "]"));
  }
  const bool is_trimmed = body.nurbs_shell && !patches[end.patch->patch()].loops.empty();
  if (is_trimmed && !sim::NurbsTrimRegion(patches[end.patch->patch()]).Contains({u, v})) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": (u, v) = (", u, ", ", v, ") is in what is trimmed away of patch ",
                                                   end.patch->patch(), " of \"", body.name, "\""));
  }
  if (body.nurbs_shell) {
    out->control = sim::JointControlPointsAt(body, end.patch->patch(), u, v);
    out->point_m = sim::JointOriginOf(body, out->control);
  } else {
    out->point_m = body.nurbs_pose.rotation * surface.Point(u, v) + body.nurbs_pose.position_m;
  }
  return absl::OkStatus();
}

/// kNoTool for an empty name.
absl::StatusOr<uint32_t> FindTool(const sim::SceneDescription& scene, const std::string& name, const std::string& path) {
  if (name.empty()) return JointDescription::kNoTool;
  const auto at = std::ranges::find(scene.tools, name, &sim::ToolDescription::name);
  if (at == scene.tools.end()) return absl::InvalidArgumentError(absl::StrCat(path, ": the scene has no tool \"", name, "\""));
  return static_cast<uint32_t>(at - scene.tools.begin());
}

absl::StatusOr<BuiltEnd> BuildEnd(const EndSpec& end, const std::string& path, const sim::SceneDescription& scene) {
  BuiltEnd out;
  if (end.body.empty() && end.region != nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(At(path, "region_" + end.side), ": the world has no vertices"));
  }
  if (end.body.empty()) return out;
  const std::string body_path = At(path, "body_" + end.side);
  const auto at = std::ranges::find(scene.bodies, end.body, &sim::BodyDescription::name);
  if (at == scene.bodies.end()) return absl::InvalidArgumentError(absl::StrCat(body_path, ": the scene has no body \"", end.body, "\""));
  if (const auto why = WhyNotHeld(*at, end)) {
    return absl::InvalidArgumentError(absl::StrCat(body_path, ": \"", end.body, "\" ", *why));
  }
  out.body = static_cast<uint32_t>(at - scene.bodies.begin());
  if (end.patch != nullptr) {
    PALPATE_RETURN_IF_ERROR(HoldPatchPoint(end, At(path, "patch_" + end.side), *at, &out));
    return out;
  }
  if (end.region == nullptr) return out;
  const v1::JointRegion region = MovedRegion(*end.region, end.shift_m);
  const std::string region_path = At(path, "region_" + end.side);
  if (at->nurbs_shell) {
    PALPATE_ASSIGN_OR_RETURN(const std::vector<uint32_t> control, ControlPointsInside(region, region_path, *at));
    out.control = sim::JointControlPointsOf(*at, control);
    return out;
  }
  PALPATE_ASSIGN_OR_RETURN(out.vertices, RegionVertices(RegionOf(region), region_path, at->mesh));
  return out;
}

/// Where the two points of a joint are. Errors: InvalidArgument (two places that must be one are not).
absl::Status PlacePoints(const v1::JointSpec& joint, const std::string& path, const Eigen::Vector3d& shift_m, const BuiltEnd& a,
                         const BuiltEnd& b, JointDescription* out) {
  const Eigen::Vector3d given = ToEigen(joint.point_m()) + shift_m;
  out->point_a_m = a.point_m ? *a.point_m : b.point_m && !HasTwoPoints(joint) ? *b.point_m : given;
  out->point_b_m = b.point_m ? *b.point_m : joint.has_point_b_m() ? Eigen::Vector3d(ToEigen(joint.point_b_m()) + shift_m) : out->point_a_m;
  const double apart_m = (out->point_b_m - out->point_a_m).norm();
  if (HasTwoPoints(joint)) {
    if (apart_m > kMinAxisDistance_m) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(At(path, "point_b_m"), ": is where point_m is; a ",
                                                   joint.has_spring() ? "spring" : "distance", " joint needs two places"));
  }
  if (apart_m <= kMostApart_m) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(At(path, "patch_b"), ": is ", apart_m, " m from patch_a; only distance and spring joints have two places"));
}

absl::StatusOr<JointDescription> BuildCopy(const v1::JointSpec& joint, const std::string& path, uint64_t copy,
                                           const sim::SceneDescription& scene) {
  JointDescription built;
  const Eigen::Vector3d shift_m = static_cast<double>(copy) * ToEigen(joint.array().step_m());
  PALPATE_ASSIGN_OR_RETURN(BuiltEnd a, BuildEnd({.body = NameAfter(joint.body_a(), copy),
                                                 .side = "a",
                                                 .region = joint.has_region_a() ? &joint.region_a() : nullptr,
                                                 .patch = joint.has_patch_a() ? &joint.patch_a() : nullptr,
                                                 .copy = copy,
                                                 .shift_m = shift_m},
                                                path, scene));
  PALPATE_ASSIGN_OR_RETURN(BuiltEnd b, BuildEnd({.body = NameAfter(joint.body_b(), copy),
                                                 .side = "b",
                                                 .region = joint.has_region_b() ? &joint.region_b() : nullptr,
                                                 .patch = joint.has_patch_b() ? &joint.patch_b() : nullptr,
                                                 .copy = copy,
                                                 .shift_m = shift_m},
                                                path, scene));
  PALPATE_ASSIGN_OR_RETURN(built.tool_a, FindTool(scene, joint.instrument_a(), At(path, "instrument_a")));
  PALPATE_ASSIGN_OR_RETURN(built.tool_b, FindTool(scene, joint.instrument_b(), At(path, "instrument_b")));
  PALPATE_RETURN_IF_ERROR(PlacePoints(joint, path, shift_m, a, b, &built));
  built.body_a = a.body;
  built.body_b = b.body;
  built.vertices_a = std::move(a.vertices);
  built.vertices_b = std::move(b.vertices);
  built.control_a = std::move(a.control);
  built.control_b = std::move(b.control);
  if (built.body_a == built.body_b && built.vertices_a == built.vertices_b && built.control_a == built.control_b) {
    return absl::InvalidArgumentError(absl::StrCat(At(path, "body_b"), ": is the same as body_a in copy ", copy));
  }
  FillKind(joint, &built);
  built.ignores_contact = joint.ignores_contact();
  if (joint.has_break_force_n()) built.break_force_n = joint.break_force_n();
  if (joint.has_break_torque_n_m()) built.break_torque_n_m = joint.break_torque_n_m();
  return built;
}

}  // namespace

void CheckJoints(Checker& check, const v1::SceneSpec& spec) {
  for (int i = 0; i < spec.joints_size() && check.ok(); ++i) CheckJoint(check, At("joints", i), spec.joints(i));
  if (!check.ok()) return;
  uint64_t copies = 0;
  for (const v1::JointSpec& joint : spec.joints()) copies += CopyCount(joint);
  if (copies > sim::kMaxJoints) check.Invalid("joints", absl::StrCat(copies, " in all exceed ", sim::kMaxJoints));
  std::unordered_set<std::string> names;
  for (int i = 0; i < spec.joints_size() && check.ok(); ++i) {
    const std::string path = At("joints", i);
    for (uint64_t copy = 0; copy < CopyCount(spec.joints(i)) && check.ok(); ++copy) {
      check.Unique(At(path, "name"), spec.joints(i).has_array() ? absl::StrCat(JointName(spec, i), copy) : JointName(spec, i), names);
    }
  }
}

absl::Status BuildJoints(const v1::SceneSpec& spec, sim::SceneDescription* out) {
  for (int i = 0; i < spec.joints_size(); ++i) {
    const v1::JointSpec& joint = spec.joints(i);
    for (uint64_t copy = 0; copy < CopyCount(joint); ++copy) {
      PALPATE_ASSIGN_OR_RETURN(JointDescription built, BuildCopy(joint, At("joints", i), copy, *out));
      built.name = JointName(spec, i);
      if (joint.has_array()) absl::StrAppend(&built.name, copy);
      out->joints.push_back(std::move(built));
    }
  }
  return absl::OkStatus();
}

void CheckJointEdit(Checker& check, const std::string& path, const v1::JointEdit& edit) {
  check.RequiredName(At(path, "joint"), edit.joint(), kMaxNameBytes);
  switch (edit.change_case()) {
    case v1::JointEdit::kTurn:
      CheckDrive(check, At(path, "turn"), edit.turn());
      break;
    case v1::JointEdit::kShift:
      CheckDrive(check, At(path, "shift"), edit.shift());
      break;
    case v1::JointEdit::kSpring:
      CheckSpring(check, At(path, "spring"), edit.spring());
      break;
    case v1::JointEdit::kDistance:
      CheckDistance(check, At(path, "distance"), edit.distance());
      break;
    case v1::JointEdit::kRelease:
      break;
    case v1::JointEdit::CHANGE_NOT_SET:
      check.Invalid(path, "no change is given; one of turn, shift, spring, distance, release is needed");
      break;
  }
}

absl::StatusOr<sim::JointEdit> BuildJointEdit(const v1::JointEdit& edit, const std::string& path,
                                              std::span<const JointDescription> joints) {
  const auto at = std::find_if(joints.begin(), joints.end(), [&](const JointDescription& joint) { return joint.name == edit.joint(); });
  if (at == joints.end()) return absl::NotFoundError(absl::StrCat(At(path, "joint"), ": the scene has no joint \"", edit.joint(), "\""));
  sim::JointEdit out{.joint = static_cast<size_t>(at - joints.begin())};
  out.is_released = edit.has_release();
  if (out.is_released) return out;
  const JointKind needed = edit.has_turn()     ? JointKind::kHinge
                           : edit.has_shift()  ? JointKind::kSlider
                           : edit.has_spring() ? JointKind::kSpring
                                               : JointKind::kDistance;
  if (at->kind != needed) {
    return absl::InvalidArgumentError(absl::StrCat(At(path, edit.has_turn()     ? "turn"
                                                            : edit.has_shift()  ? "shift"
                                                            : edit.has_spring() ? "spring"
                                                                                : "distance"),
                                                   ": \"", edit.joint(), "\" is a ", sim::kJointKindNames[static_cast<size_t>(at->kind)],
                                                   " joint, not a ", sim::kJointKindNames[static_cast<size_t>(needed)]));
  }
  const double length_m = (at->point_b_m - at->point_a_m).norm();
  if (edit.has_turn()) {
    out.drive = DriveFrom(edit.turn());
  } else if (edit.has_shift()) {
    out.drive = DriveFrom(edit.shift());
  } else if (edit.has_spring()) {
    out.drive = DriveFrom(edit.spring(), length_m);
  } else {
    out.limits = LimitsFrom(edit.distance(), length_m);
  }
  return out;
}

std::vector<v1::JointInfo> EncodeJointInfos(const sim::SceneDescription& description) {
  std::vector<v1::JointInfo> out;
  const auto name_of = [&](uint32_t body) { return body == JointDescription::kWorld ? std::string() : description.bodies[body].name; };
  for (const JointDescription& joint : description.joints) {
    v1::JointInfo& info = out.emplace_back();
    info.set_name(joint.name);
    info.set_kind(sim::kJointKindNames[static_cast<size_t>(joint.kind)]);
    info.set_body_a(name_of(joint.body_a));
    info.set_body_b(name_of(joint.body_b));
    if (joint.tool_a != JointDescription::kNoTool) info.set_instrument_a(description.tools[joint.tool_a].name);
    if (joint.tool_b != JointDescription::kNoTool) info.set_instrument_b(description.tools[joint.tool_b].name);
  }
  return out;
}

}  // namespace palpate::scene
