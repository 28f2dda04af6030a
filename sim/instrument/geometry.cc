#include "sim/instrument/geometry.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <Eigen/Geometry>

namespace palpate::sim {
namespace {

using Eigen::Vector3d;

/// Nearest point of a triangle: over the face if the foot lies inside, else on the nearest edge.
double SquaredDistanceToTriangle(const Vector3d& p, const Vector3d& a, const Vector3d& b, const Vector3d& c) {
  const Vector3d normal = (b - a).cross(c - a);
  const double area_sq = normal.squaredNorm();
  if (area_sq > 0) {
    const double wa = (b - p).cross(c - p).dot(normal);
    const double wb = (c - p).cross(a - p).dot(normal);
    const double wc = (a - p).cross(b - p).dot(normal);
    if (wa >= 0 && wb >= 0 && wc >= 0) {
      const double height = (p - a).dot(normal);
      return height * height / area_sq;
    }
  }
  double nearest = std::numeric_limits<double>::infinity();
  for (const auto& [from, to] : {std::pair{&a, &b}, std::pair{&b, &c}, std::pair{&c, &a}}) {
    const Vector3d edge = *to - *from;
    const double length_sq = edge.squaredNorm();
    const double s = length_sq > 0 ? std::clamp((p - *from).dot(edge) / length_sq, 0.0, 1.0) : 0;
    nearest = std::min(nearest, (*from + s * edge - p).squaredNorm());
  }
  return nearest;
}

}  // namespace

JawFrame JawFrameOf(const InstrumentDescription& instrument, double jaw_angle_rad, size_t side) {
  const double sign = side == 0 ? -1 : 1;
  const double half = jaw_angle_rad / 2;
  JawFrame frame;
  frame.hinge_m = {sign * instrument.jaw_radius_m, 0, instrument.jaw_length_m};
  frame.along = {sign * std::sin(half), 0, -std::cos(half)};
  frame.inward = {-sign * std::cos(half), 0, -std::sin(half)};
  return frame;
}

std::vector<InstrumentCapsule> CapsulesOf(const InstrumentDescription& instrument, double length_m, double radius_m, double jaw_angle_rad) {
  const auto shaft_from = [&](double z) { return InstrumentCapsule{{0, 0, z}, {0, 0, length_m - z}, radius_m}; };
  if (!instrument.traits().has_jaws) return {shaft_from(instrument.tip_length_m())};
  std::vector<InstrumentCapsule> capsules(kJawedPartCount);
  capsules[kShaftPart] = shaft_from(instrument.jaw_length_m);
  const JawFrame minus = JawFrameOf(instrument, jaw_angle_rad, 0);
  const JawFrame plus = JawFrameOf(instrument, jaw_angle_rad, 1);
  // The source joins the hinges so that the axes form one connected skeleton.
  capsules[kWristPart] = {minus.hinge_m, plus.hinge_m - minus.hinge_m, instrument.jaw_radius_m};
  for (const auto& [part, jaw] : {std::pair{kJawMinusPart, minus}, std::pair{kJawPlusPart, plus}}) {
    const Vector3d end = jaw.hinge_m + instrument.jaw_length_m * jaw.along;
    capsules[part] = {end, jaw.hinge_m - end, instrument.jaw_radius_m};
  }
  return capsules;
}

bool LiesBetweenJaws(const InstrumentDescription& instrument, double jaw_angle_rad, const Vector3d& point_m, double slack_m) {
  if (std::abs(point_m.y()) > instrument.jaw_radius_m + slack_m || point_m.z() > instrument.jaw_length_m + slack_m) return false;
  for (const size_t side : {0, 1}) {
    const JawFrame jaw = JawFrameOf(instrument, jaw_angle_rad, side);
    const Vector3d from_hinge = point_m - jaw.hinge_m;
    if (from_hinge.dot(jaw.along) > instrument.jaw_length_m + slack_m || from_hinge.dot(jaw.inward) < -slack_m) return false;
  }
  return true;
}

double DistanceToTet(const Vector3d& point_m, const std::array<Vector3d, 4>& corners_m) {
  const auto& [a, b, c, d] = corners_m;
  const auto volume = [](const Vector3d& o, const Vector3d& p, const Vector3d& q, const Vector3d& r) {
    return (p - o).cross(q - o).dot(r - o);
  };
  const double whole = volume(a, b, c, d);
  const double parts[4] = {volume(point_m, b, c, d), volume(a, point_m, c, d), volume(a, b, point_m, d), volume(a, b, c, point_m)};
  if (whole != 0 && std::all_of(std::begin(parts), std::end(parts), [&](double part) { return part * whole >= 0; })) return 0;
  return std::sqrt(std::min(std::min(SquaredDistanceToTriangle(point_m, a, b, c), SquaredDistanceToTriangle(point_m, a, b, d)),
                            std::min(SquaredDistanceToTriangle(point_m, a, c, d), SquaredDistanceToTriangle(point_m, b, c, d))));
}

}  // namespace palpate::sim
