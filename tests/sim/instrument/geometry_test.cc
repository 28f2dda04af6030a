#include "sim/instrument/geometry.h"

#include <gtest/gtest.h>

#include <Eigen/Dense>
#include <algorithm>
#include <cmath>
#include <random>

namespace palpate::sim::geometry_test {
namespace {

using Eigen::Vector3d;

TEST(InstrumentGeometryTest, ForcepsIsAConnectedSkeletonAtEveryAngle) {
  const InstrumentDescription forceps{.kind = InstrumentKind::kForceps, .jaw_length_m = 0.025, .jaw_radius_m = 0.002};
  for (const double angle : {0.0, 0.3, 1.0}) {
    const auto capsules = CapsulesOf(forceps, 0.3, 0.005, angle);
    ASSERT_EQ(capsules.size(), 4U);
    EXPECT_EQ(capsules[kShaftPart].tip_m, Vector3d(0, 0, 0.025));
    EXPECT_LT((capsules[kShaftPart].tip_m + capsules[kShaftPart].axis_m - Vector3d(0, 0, 0.3)).norm(), 1e-15);
    const InstrumentCapsule& wrist = capsules[kWristPart];
    // The shaft ends in the middle of the wrist, and each jaw starts at one end of it.
    EXPECT_LT((wrist.tip_m + wrist.axis_m / 2 - capsules[kShaftPart].tip_m).norm(), 1e-15);
    EXPECT_LT((capsules[kJawMinusPart].tip_m + capsules[kJawMinusPart].axis_m - wrist.tip_m).norm(), 1e-15);
    EXPECT_LT((capsules[kJawPlusPart].tip_m + capsules[kJawPlusPart].axis_m - wrist.tip_m - wrist.axis_m).norm(), 1e-15);
    const Vector3d minus = capsules[kJawMinusPart].axis_m;
    const Vector3d plus = capsules[kJawPlusPart].axis_m;
    EXPECT_NEAR(minus.norm(), 0.025, 1e-12) << "the length of a jaw, not its radius";
    EXPECT_NEAR(std::acos(std::min(1.0, minus.normalized().dot(plus.normalized()))), angle, 1e-7);
    // Closed jaws touch, open ones do not.
    const double gap = (capsules[kJawPlusPart].tip_m - capsules[kJawMinusPart].tip_m).x() - 2 * forceps.jaw_radius_m;
    EXPECT_NEAR(gap, 2 * 0.025 * std::sin(angle / 2), 1e-12);
  }
}

TEST(InstrumentGeometryTest, OtherInstrumentsAreTheirShafts) {
  InstrumentDescription instrument{.kind = InstrumentKind::kScalpel, .blade_length_m = 0.012};
  auto capsules = CapsulesOf(instrument, 0.1, 0.004, 0);
  ASSERT_EQ(capsules.size(), 1U);
  EXPECT_EQ(capsules[0].tip_m.z(), 0.012) << "the blade itself pushes nothing";
  EXPECT_EQ(BladeOf(instrument)[1], Vector3d(0.012, 0, 0));
  for (const auto kind : {InstrumentKind::kProbe, InstrumentKind::kCauteryHook, InstrumentKind::kCavitron}) {
    instrument.kind = kind;
    capsules = CapsulesOf(instrument, 0.1, 0.004, 0);
    ASSERT_EQ(capsules.size(), 1U);
    EXPECT_EQ(capsules[0].tip_m, Vector3d::Zero());
    EXPECT_EQ(capsules[0].axis_m, Vector3d(0, 0, 0.1));
    EXPECT_EQ(capsules[0].radius_m, 0.004);
  }
}

TEST(InstrumentGeometryTest, BetweenTheJawsIsWhatClosingSweeps) {
  const InstrumentDescription forceps{.kind = InstrumentKind::kForceps};
  // Points of the segments that join the jaws, at any place along them, are between; beyond a jaw, beside it or before its tip they are
  // not.
  std::mt19937_64 random(3);
  std::uniform_real_distribution<double> unit(0, 1);
  const double angle = 0.8;
  for (int i = 0; i < 1000; ++i) {
    const JawFrame minus = JawFrameOf(forceps, angle, 0);
    const JawFrame plus = JawFrameOf(forceps, angle, 1);
    const double along = 0.02 * (0.02 + 0.97 * unit(random));
    const Vector3d a = minus.hinge_m + along * minus.along;
    const Vector3d b = plus.hinge_m + along * plus.along;
    const double share = unit(random);
    const Vector3d y(0, (2 * unit(random) - 1) * forceps.jaw_radius_m, 0);
    EXPECT_TRUE(LiesBetweenJaws(forceps, angle, a + share * (b - a) + y, 1e-9)) << i;
    EXPECT_FALSE(LiesBetweenJaws(forceps, angle, a - 0.001 * minus.inward, 1e-9));
    EXPECT_FALSE(LiesBetweenJaws(forceps, angle, b - 0.001 * plus.inward, 1e-9));
    EXPECT_FALSE(LiesBetweenJaws(forceps, angle, a + Vector3d(0, 0.002, 0), 1e-9));
    EXPECT_TRUE(LiesBetweenJaws(forceps, angle, a + Vector3d(0, 0.002, 0), 0.001));
    EXPECT_LT((a + 0.001 * minus.inward - b).norm(), (a - b).norm()) << "inward leads to the other jaw";
  }
  EXPECT_FALSE(LiesBetweenJaws(forceps, angle, {0, 0, -0.004}, 1e-9));
}

TEST(InstrumentGeometryTest, DistanceToTetIsThatOfADenseSearch) {
  std::mt19937_64 random(5);
  std::uniform_real_distribution<double> unit(-1, 1);
  const auto draw = [&] { return Vector3d(unit(random), unit(random), unit(random)); };
  int inside = 0;
  for (int i = 0; i < 200; ++i) {
    const std::array<Vector3d, 4> tet{draw(), draw(), draw(), draw()};
    const Vector3d p = 0.7 * draw();
    const double distance = DistanceToTet(p, tet);
    // Frank-Wolfe towards the corners with exact line search: an independent minimiser over the hull.
    Vector3d x = (tet[0] + tet[1] + tet[2] + tet[3]) / 4;
    double lower = 0;
    for (int k = 0; k < 20000; ++k) {
      const Vector3d g = x - p;
      size_t best = 0;
      for (size_t c = 1; c < 4; ++c) best = tet[c].dot(g) < tet[best].dot(g) ? c : best;
      const Vector3d d = tet[best] - x;
      if (g.norm() > 0) lower = std::max(lower, (tet[best] - p).dot(g) / g.norm());
      if (-d.dot(g) < 1e-9) break;
      x += std::min(1.0, -d.dot(g) / d.squaredNorm()) * d;
    }
    EXPECT_LE(distance, (x - p).norm() + 1e-9);
    EXPECT_GE(distance, lower - 1e-9);
    inside += distance == 0;
  }
  EXPECT_GT(inside, 3);
}

}  // namespace
}  // namespace palpate::sim::geometry_test
