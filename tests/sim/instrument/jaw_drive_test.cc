#include "sim/instrument/jaw_drive.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace palpate::sim::jaw_drive_test {
namespace {

TEST(JawDriveTest, FollowsWithinItsSpeedAndRange) {
  JawDrive jaws({.max_angle_rad = 0.8, .max_speed_rad_per_s = 3, .max_torque_n_m = 0.1});
  EXPECT_EQ(jaws.angle_rad(), 0);
  jaws.Advance(1, 0, 1);
  EXPECT_EQ(jaws.angle_rad(), 0.8);
  double before = jaws.angle_rad();
  for (int i = 0; i < 100; ++i) {
    const double now = jaws.Advance(-1, 0, 0.01);
    EXPECT_LE(std::abs(now - before), 0.03 + 1e-12);
    before = now;
  }
  EXPECT_EQ(jaws.angle_rad(), 0);
  EXPECT_FALSE(jaws.is_blocked());
  EXPECT_NEAR(jaws.Advance(5, 0, 0.1), 0.3, 1e-12);
  for (int i = 0; i < 10; ++i) jaws.Advance(5, 1000, 0.1);
  EXPECT_EQ(jaws.angle_rad(), 0.8) << "opening is not blocked";
}

TEST(JawDriveTest, StopsWhereTissueResistsWithItsTorque) {
  // Tissue as springs of very different stiffness, linear and stiffening.
  for (const double dt : {1.0 / 60, 1.0 / 120, 1.0 / 480}) {
    for (const double stiffness : {0.2, 2.0, 20.0}) {
      for (const double cubic : {0.0, 1e3}) {
        const auto resistance = [&](double angle) {
          const double in = std::max(0.0, 0.5 - angle);
          return stiffness * in + stiffness * cubic * in * in * in;
        };
        JawDrive jaws({.max_angle_rad = 1, .max_speed_rad_per_s = 4, .max_torque_n_m = 0.05});
        double most = 0;
        jaws.Advance(1, 0, 1);
        for (int i = 0; i < 3 / dt; ++i) {
          jaws.Advance(0, resistance(jaws.angle_rad()), dt);
          most = std::max(most, i * dt < 0.5 ? 0.0 : resistance(jaws.angle_rad()));
        }
        SCOPED_TRACE(testing::Message() << "dt " << dt << " stiffness " << stiffness << " cubic " << cubic);
        EXPECT_NEAR(resistance(jaws.angle_rad()), 0.05, 0.0025);
        EXPECT_LT(most, 0.055) << "it settles, it does not swing";
        EXPECT_TRUE(jaws.is_blocked());
        EXPECT_GT(jaws.Advance(1, resistance(jaws.angle_rad()), dt), 0);
        EXPECT_FALSE(jaws.is_blocked());
      }
    }
  }
}

}  // namespace
}  // namespace palpate::sim::jaw_drive_test
