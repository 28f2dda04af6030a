#include "sim/instrument/trocar.h"

#include <gtest/gtest.h>

#include <Eigen/Dense>
#include <cmath>
#include <random>

namespace palpate::sim::trocar_test {
namespace {

using Eigen::Vector3d;

class TrocarTest : public testing::Test {
 protected:
  RigidPose DrawPose(double spread_m) {
    std::normal_distribution<double> normal;
    RigidPose pose;
    pose.position_m = trocar_.pivot_m + spread_m * Vector3d(normal(random_), normal(random_), normal(random_));
    pose.rotation = Eigen::Quaterniond(normal(random_), normal(random_), normal(random_), normal(random_)).normalized();
    return pose;
  }
  std::mt19937_64 random_{17};
  const TrocarDescription trocar_{.pivot_m = {0.1, -0.2, 0.3},
                                  .axis = Vector3d(0.2, 0.1, -1).normalized(),
                                  .min_insertion_m = 0.01,
                                  .max_insertion_m = 0.15,
                                  .max_tilt_rad = 0.9};
};

TEST_F(TrocarTest, EveryPoseBecomesAdmissible) {
  for (int i = 0; i < 2000; ++i) {
    const RigidPose pose = ConstrainToTrocar(trocar_, DrawPose(i % 3 == 0 ? 0.004 : 0.1));
    const Vector3d shaft = pose.rotation * Vector3d::UnitZ();
    const Vector3d from_pivot = pose.position_m - trocar_.pivot_m;
    EXPECT_LT(from_pivot.cross(shaft).norm(), 1e-12) << "the shaft passes through the pivot";
    EXPECT_GE(-from_pivot.dot(shaft), 0.01 - 1e-12);
    EXPECT_LE(-from_pivot.dot(shaft), 0.15 + 1e-12);
    EXPECT_LE(std::acos(std::min(1.0, -shaft.dot(trocar_.axis))), 0.9 + 1e-9);
    const RigidPose again = ConstrainToTrocar(trocar_, pose);
    EXPECT_LT((again.position_m - pose.position_m).norm(), 1e-12);
    EXPECT_LT(again.rotation.angularDistance(pose.rotation), 1e-7);
  }
}

TEST_F(TrocarTest, SmallMotionsOfTheDeviceMakeSmallMotions) {
  // Along straight paths past the pivot, tip before and behind it, with the shaft roughly along the trocar's axis.
  std::uniform_real_distribution<double> unit(-1, 1);
  for (int path = 0; path < 200; ++path) {
    const Vector3d from = trocar_.pivot_m + 0.02 * trocar_.axis + 0.02 * Vector3d(unit(random_), unit(random_), unit(random_));
    const Vector3d to = trocar_.pivot_m - 0.01 * trocar_.axis + 0.02 * Vector3d(unit(random_), unit(random_), unit(random_));
    const Eigen::Quaterniond rotation = Eigen::Quaterniond::FromTwoVectors(Vector3d::UnitZ(), -trocar_.axis) *
                                        Eigen::Quaterniond(Eigen::AngleAxisd(unit(random_), Vector3d::UnitZ()));
    RigidPose before;
    for (int i = 0; i <= 4000; ++i) {
      const RigidPose now = ConstrainToTrocar(trocar_, {from + (to - from) * i / 4000.0, rotation});
      if (i > 0) {
        EXPECT_LT((now.position_m - before.position_m).norm(), 2e-4);
        EXPECT_LT(now.rotation.angularDistance(before.rotation), 0.02);
      }
      before = now;
    }
  }
}

TEST_F(TrocarTest, RollIsThatOfTheDevice) {
  const RigidPose pose = ConstrainToTrocar(trocar_, DrawPose(0.1));
  for (const double roll : {-2.0, 0.5, 3.0}) {
    RigidPose rolled = pose;
    rolled.rotation = pose.rotation * Eigen::AngleAxisd(roll, Vector3d::UnitZ());
    const RigidPose got = ConstrainToTrocar(trocar_, rolled);
    EXPECT_LT(got.rotation.angularDistance(rolled.rotation), 1e-7);
    EXPECT_LT((got.position_m - pose.position_m).norm(), 1e-12);
  }
}

TEST_F(TrocarTest, PowerIsTheSameOnBothSidesOfTheWall) {
  for (int i = 0; i < 500; ++i) {
    const RigidPose pose = ConstrainToTrocar(trocar_, DrawPose(0.1));
    const Vector3d shaft = pose.rotation * Vector3d::UnitZ();
    const Vector3d force = 5 * Vector3d::Random();
    const Vector3d torque = 0.1 * Vector3d::Random();
    const Vector3d tilt = Vector3d::Random();
    const TrocarRates rates{tilt - tilt.dot(shaft) * shaft, Vector3d::Random().x(), Vector3d::Random().x()};
    const TipTwist twist = TipVelocity(trocar_, pose, rates);
    const TrocarForces forces = ThroughTrocar(trocar_, pose, force, torque);
    EXPECT_NEAR(force.dot(twist.velocity_m_per_s) + torque.dot(twist.angular_velocity_rad_per_s),
                forces.tilt_torque_n_m.dot(rates.tilt_rad_per_s) + forces.insertion_force_n * rates.insertion_m_per_s +
                    forces.roll_torque_n_m * rates.roll_rad_per_s,
                1e-12);

    // The velocity is that of the admissible motion: checked by differences.
    const double h = 1e-6;
    RigidPose moved = pose;
    moved.position_m += h * twist.velocity_m_per_s;
    moved.rotation =
        Eigen::Quaterniond(Eigen::AngleAxisd(h * twist.angular_velocity_rad_per_s.norm(), twist.angular_velocity_rad_per_s.normalized())) *
        pose.rotation;
    EXPECT_LT((moved.position_m - trocar_.pivot_m).cross(moved.rotation * Vector3d::UnitZ()).norm(), 1e-10);

    // The hand at the other end does the same work as the tip, in tilt and insertion.
    const double handle_m = 0.3;
    const Vector3d hand = HandleForce(trocar_, pose, ThroughTrocar(trocar_, pose, force, Vector3d::Zero()), handle_m);
    const Vector3d handle_velocity = twist.velocity_m_per_s + twist.angular_velocity_rad_per_s.cross(handle_m * shaft);
    EXPECT_NEAR(hand.dot(handle_velocity), force.dot(twist.velocity_m_per_s), 1e-11);
  }
}

}  // namespace
}  // namespace palpate::sim::trocar_test
