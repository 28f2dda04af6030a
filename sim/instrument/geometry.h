#pragma once

#include <array>
#include <vector>

#include <Eigen/Core>

#include "sim/instrument/description.h"

namespace palpate::sim {

/// A part of an instrument that touches tissue: all points within radius_m of the segment from tip_m to tip_m + axis_m, in frame T.
struct InstrumentCapsule {
  Eigen::Vector3d tip_m{0, 0, 0};
  Eigen::Vector3d axis_m{0, 0, 0};
  double radius_m = 0;

  template <typename Archive>
  void VisitState(Archive& archive) {
    auto& [tip, axis, radius] = *this;
    archive(tip, axis, radius);
  }
};

/// Places of the parts in what CapsulesOf returns for instruments with jaws.
enum JawedPart : size_t { kShaftPart, kWristPart, kJawMinusPart, kJawPlusPart, kJawedPartCount };

/// The blunt parts of an instrument in T, the shaft first. Jaws open by half the angle each, in the x-z plane of T about hinges at
/// z = jaw_length_m, x = -+jaw_radius_m; closed, they touch along the z axis and end at z = 0 (Forest 2003, detailed tool model, with the
/// length of the jaws where the text prints their radius). Of a scalpel, only what lies blade_length_m or more behind the tip is blunt.
/// `length_m`, `radius_m`: of the tool. Precondition: length_m is larger than jaws or blade.
std::vector<InstrumentCapsule> CapsulesOf(const InstrumentDescription& instrument, double length_m, double radius_m, double jaw_angle_rad);

/// The cutting edge of a scalpel in T.
inline std::array<Eigen::Vector3d, 2> BladeOf(const InstrumentDescription& instrument) {
  return {Eigen::Vector3d::Zero(), Eigen::Vector3d(instrument.blade_length_m, 0, 0)};
}

/// A jaw as it stands at an angle, in T.
struct JawFrame {
  Eigen::Vector3d hinge_m;
  Eigen::Vector3d along;   ///< unit, from the hinge to the tip
  Eigen::Vector3d inward;  ///< unit, to the other jaw
};
/// `side`: 0 = the jaw at negative x, 1 = that at positive x.
JawFrame JawFrameOf(const InstrumentDescription& instrument, double jaw_angle_rad, size_t side);

/// Whether a point in T lies between the jaws, up to `slack_m` beside, before, behind or inside them.
bool LiesBetweenJaws(const InstrumentDescription& instrument, double jaw_angle_rad, const Eigen::Vector3d& point_m, double slack_m);

/// Distance from a point to a tetrahedron, 0 inside. `corners` in any orientation; a flat one counts as its faces.
double DistanceToTet(const Eigen::Vector3d& point_m, const std::array<Eigen::Vector3d, 4>& corners_m);

}  // namespace palpate::sim
