#include "clients/station/simulated_hand.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace palpate::station::simulated_hand_test {
namespace {

using Eigen::Vector3d;

/// Lets a hand work on a wall that pushes up with k below wall_z for some time; calls `each` after every tick.
template <typename Each>
void WorkOnWall(SimulatedHand* hand, double stiffness_n_per_m, double wall_z_m, double seconds, const Each& each, double start_s = 0) {
  hand->SetEngaged(true);
  for (int tick = 0; tick < static_cast<int>(seconds * 1000); ++tick) {
    DeviceState state;
    ASSERT_EQ(hand->Read(start_s + 0.001 * tick, &state), DeviceResult::kOk);
    DeviceForce force;
    force.force_n.z() = stiffness_n_per_m * std::max(0.0, wall_z_m - state.pose.position_m.z());
    hand->Write(force);
    each(state, force);
  }
}

TEST(SimulatedHand, RestsUntilItIsEngaged) {
  SimulatedHand hand(*ParseHandOptions(""));
  DeviceState state;
  for (int tick = 0; tick < 500; ++tick) hand.Read(0.001 * tick, &state);
  EXPECT_EQ(state.pose.position_m, Vector3d::Zero());
}

TEST(SimulatedHand, IsPushedBackByItsSpringBalance) {
  // At rest a force displaces the hand by F / K.
  SimulatedHand hand(*ParseHandOptions("stiffness=250"));
  DeviceState state;
  for (int tick = 0; tick < 3000; ++tick) {
    hand.Read(0.001 * tick, &state);
    hand.Write({.force_n = Vector3d(0.5, -1, 2)});
  }
  EXPECT_NEAR((state.pose.position_m - Vector3d(0.5, -1, 2) / 250).norm(), 0, 1e-9);
}

TEST(SimulatedHand, SettlesWhereArmAndWallBalance) {
  // Holding long after a push: K (ref - x) + k (wall - x) = 0, with a dwell that moves the reference by up to 1.5 mm.
  const double arm = 400;
  const double wall = 250;
  SimulatedHand hand(*ParseHandOptions("stiffness=400,dwell=60,depth=0.01,max_force=50"));
  double error_m = 1;
  double force_error_n = 1;
  WorkOnWall(&hand, wall, -0.02, 8, [&](const DeviceState& state, const DeviceForce& force) {
    const double balance_z_m = (arm * hand.reference_m().z() + wall * -0.02) / (arm + wall);
    // The dwell is slow against the hand's own dynamics, so the balance holds to its viscous lag.
    error_m = std::abs(state.pose.position_m.z() - balance_z_m);
    force_error_n = std::abs(force.force_n.z() - wall * (-0.02 - balance_z_m));
  });
  EXPECT_LT(error_m, 4e-4);
  EXPECT_LT(force_error_n, 0.1);
}

TEST(SimulatedHand, PalpatesSeveralSpotsToTheWantedDepth) {
  SimulatedHand hand(*ParseHandOptions("depth=0.015,spots=4,dwell=0.3"));
  double deepest_m = 0;
  int touches = 0;
  bool was_touching = false;
  std::set<std::pair<long, long>> spots;
  WorkOnWall(&hand, 200, -0.03, 25, [&](const DeviceState& state, const DeviceForce& force) {
    const bool touching = force.force_n.z() > 0;
    touches += touching && !was_touching ? 1 : 0;
    was_touching = touching;
    const double depth_m = -0.03 - state.pose.position_m.z();
    deepest_m = std::max(deepest_m, depth_m);
    if (depth_m > 0.01) spots.insert({std::lround(state.pose.position_m.x() * 1e3), std::lround(state.pose.position_m.y() * 1e3)});
    ASSERT_LE(force.force_n.z(), 4.5);
  });
  EXPECT_GE(touches, 6);
  EXPECT_EQ(hand.pushes() == touches || hand.pushes() == touches - 1, true) << hand.pushes() << " of " << touches;
  EXPECT_NEAR(deepest_m, 0.015, 0.003);
  EXPECT_GE(spots.size(), 4U);
}

TEST(SimulatedHand, EndsAPushAtTheForceThatHurts) {
  SimulatedHand hand(*ParseHandOptions("max_force=2,depth=0.05"));
  double largest_n = 0;
  WorkOnWall(&hand, 2000, -0.01, 10,
             [&](const DeviceState&, const DeviceForce& force) { largest_n = std::max(largest_n, force.force_n.z()); });
  EXPECT_GT(largest_n, 1.9);
  EXPECT_LT(largest_n, 3.2);  // the arm's spring and the dwell add a little
  EXPECT_GT(hand.pushes(), 2);
}

TEST(SimulatedHand, SweepsToBothSidesUnderPressure) {
  SimulatedHand hand(*ParseHandOptions("script=sweep,spacing=0.02,max_force=10"));
  double least_x_m = 0;
  double largest_x_m = 0;
  WorkOnWall(&hand, 200, -0.02, 8, [&](const DeviceState& state, const DeviceForce& force) {
    if (force.force_n.z() < 1) return;
    least_x_m = std::min(least_x_m, state.pose.position_m.x());
    largest_x_m = std::max(largest_x_m, state.pose.position_m.x());
  });
  EXPECT_LT(least_x_m, -0.018);
  EXPECT_GT(largest_x_m, 0.018);
}

TEST(SimulatedHand, PokesInASine) {
  SimulatedHand hand(*ParseHandOptions("script=poke,rate=2,depth=0.01"));
  int touches = 0;
  bool was_touching = false;
  WorkOnWall(&hand, 200, -0.02, 10, [&](const DeviceState&, const DeviceForce& force) {
    const bool touching = force.force_n.z() > 0.3;
    touches += touching && !was_touching ? 1 : 0;
    was_touching = touching;
  });
  EXPECT_NEAR(touches, 19, 2);
}

TEST(SimulatedHand, PressesThePedalWhileItPushesAndOnlyIfAsked) {
  for (const bool asked : {true, false}) {
    SimulatedHand hand(*ParseHandOptions(asked ? "pedal=push,spots=1" : "spots=1"));
    int with_force = 0;
    int pressed_in_the_air = 0;
    int pressed = 0;
    WorkOnWall(&hand, 200, -0.02, 6, [&](const DeviceState& state, const DeviceForce& force) {
      const bool is_down = (state.buttons & 1U << kHandPedalButton) != 0;
      pressed += is_down ? 1 : 0;
      with_force += is_down && force.force_n.z() > 0.3 ? 1 : 0;
      pressed_in_the_air += is_down && force.force_n.z() == 0 ? 1 : 0;
      EXPECT_FALSE(state.has_grip);
    });
    EXPECT_EQ(pressed > 500, asked);
    EXPECT_GT(with_force, asked ? 0.8 * pressed : -1);
    EXPECT_EQ(pressed_in_the_air, 0);
  }
}

TEST(SimulatedHand, GraspsAtTheEndOfItsWayPullsAndOpens) {
  SimulatedHand hand(*ParseHandOptions("script=grasp,pedal=push,travel=0.03,clearance=0.005,dwell=0.4,speed=0.1,spots=1"));
  double closed_low_m = 1;
  double closed_high_m = -1;
  double last_grip = 1;
  int closings = 0;
  bool was_closed = false;
  WorkOnWall(&hand, 0, -1, 8, [&](const DeviceState& state, const DeviceForce&) {
    const bool is_closed = (state.buttons & 1U << kHandClosedButton) != 0;
    ASSERT_TRUE(state.has_grip);
    ASSERT_LE(std::abs(state.grip - last_grip), 0.001 / 0.3 + 1e-9) << "fingers take their time";
    last_grip = state.grip;
    closings += is_closed && !was_closed ? 1 : 0;
    was_closed = is_closed;
    if (state.grip == 0) {
      closed_low_m = std::min(closed_low_m, state.pose.position_m.z());
      closed_high_m = std::max(closed_high_m, state.pose.position_m.z());
    }
    if ((state.buttons & 1U << kHandPedalButton) != 0) {
      EXPECT_EQ(state.grip, 0) << "the pedal is for what is held";
    }
  });
  EXPECT_GE(hand.pushes(), 2);
  EXPECT_GE(closings, hand.pushes());
  EXPECT_NEAR(closed_low_m, -0.03, 0.001);
  EXPECT_NEAR(closed_high_m, -0.025, 0.002) << "the arm overshoots a little";
}

TEST(SimulatedHand, LooksElsewhereWhereThereIsNothing) {
  SimulatedHand hand(*ParseHandOptions("travel=0.03,speed=0.1"));
  double least_z_m = 0;
  double largest_z_m = -1;
  WorkOnWall(&hand, 200, -1, 10, [&](const DeviceState& state, const DeviceForce&) {
    least_z_m = std::min(least_z_m, state.pose.position_m.z());
    largest_z_m = state.pose.position_m.z() > largest_z_m ? state.pose.position_m.z() : largest_z_m;
  });
  EXPECT_NEAR(least_z_m, -0.03, 0.003);
  EXPECT_NEAR(largest_z_m, 0, 0.003);
  EXPECT_EQ(hand.pushes(), 0);
}

TEST(SimulatedHand, IsStableForAnyStiffnessAndDeterministic) {
  for (const char* options : {"stiffness=100000,damping=0,mass=0.01", "stiffness=100000,damping=10000", "mass=20,stiffness=1,damping=0"}) {
    SimulatedHand a(*ParseHandOptions(options));
    SimulatedHand b(*ParseHandOptions(options));
    a.SetEngaged(true);
    b.SetEngaged(true);
    DeviceState state_a;
    DeviceState state_b;
    for (int tick = 0; tick < 5000; ++tick) {
      a.Read(0.001 * tick, &state_a);
      b.Read(0.001 * tick, &state_b);
      ASSERT_EQ(state_a.pose.position_m, state_b.pose.position_m);
      ASSERT_LT(state_a.pose.position_m.norm(), 1.0) << options;
    }
  }
}

TEST(ParseHandOptions, NamesWhatIsWrong) {
  using ::testing::AllOf;
  using ::testing::HasSubstr;
  const auto message = [](const char* text) { return std::string(ParseHandOptions(text).status().message()); };
  EXPECT_THAT(message("depth=1"), AllOf(HasSubstr("depth"), HasSubstr("'1'"), HasSubstr("[0.0005, 0.1]")));
  EXPECT_THAT(message("depth=nan"), HasSubstr("depth"));
  EXPECT_THAT(message("depth"), HasSubstr("KEY=VALUE"));
  EXPECT_THAT(message("deep=1"), AllOf(HasSubstr("'deep'"), HasSubstr("depth")));
  EXPECT_THAT(message("script=dance"), AllOf(HasSubstr("'dance'"), HasSubstr("sweep")));
  EXPECT_THAT(message("pedal=kick"), AllOf(HasSubstr("'kick'"), HasSubstr("push")));
  EXPECT_THAT(message("profile=x"), AllOf(HasSubstr("'x'"), HasSubstr("omega.3")));
  EXPECT_THAT(message("spots=0"), HasSubstr("[1, 64]"));
  EXPECT_EQ(ParseHandOptions("profile=touch")->capabilities.peak_force_n, 3.3);
}

TEST(MakeDevice, NamesWhatIsWrong) {
  using ::testing::HasSubstr;
  const auto message = [](const char* spec) { return std::string(MakeDevice(spec).status().message()); };
  EXPECT_THAT(message("joystick"), HasSubstr("one of sim, replay, record, plugin, controller, lie"));
  EXPECT_THAT(message("replay"), HasSubstr("replay:FILE"));
  EXPECT_THAT(message("record:file"), HasSubstr("FILE,inner=SPEC"));
  EXPECT_THAT(message("record:a,inner=record:b,inner=sim"), HasSubstr("recorder itself"));
  EXPECT_THAT(message("record:a,inner=what"), HasSubstr("'what'"));
  EXPECT_THAT(message("plugin"), HasSubstr("plugin:LIBRARY"));
  EXPECT_TRUE(MakeDevice("sim").ok());
  EXPECT_TRUE(MakeDevice("sim:script=sweep,profile=touch").ok());
}

}  // namespace
}  // namespace palpate::station::simulated_hand_test
