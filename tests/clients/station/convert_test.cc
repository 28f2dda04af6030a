#include "clients/station/convert.h"

#include <limits>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace palpate::station::convert_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

v1::LocalModel GoodModel() {
  v1::LocalModel message;
  message.set_step(7);
  message.set_station_time_us(123);
  message.mutable_pose_at_build()->mutable_position_m()->set_x(1);
  message.mutable_pose_at_build()->mutable_rotation()->set_w(2);
  message.set_blend_time_s(0.01);
  message.set_validity_radius_m(0.02);
  message.mutable_force_n()->set_z(3);
  for (int i = 0; i < 2; ++i) {
    v1::ContactConstraint* constraint = message.add_constraints();
    constraint->mutable_arm_m()->set_y(0.1);
    constraint->mutable_normal()->set_z(1.00001);
    constraint->set_rest_penetration_m(-0.001);
    constraint->set_stiffness_n_per_m(200);
    constraint->set_friction(0.3);
    constraint->set_damping_n_s_per_m(1);
  }
  return message;
}

TEST(FromProto, TakesAGoodModelOver) {
  sim::LocalModel model;
  ASSERT_TRUE(FromProto(GoodModel(), &model).ok());
  EXPECT_EQ(model.step, 7U);
  EXPECT_EQ(model.station_time_us, 123);
  EXPECT_EQ(model.pose_at_build.position_m.x(), 1);
  EXPECT_EQ(model.pose_at_build.rotation.w(), 1);
  EXPECT_EQ(model.constraint_count, 2);
  EXPECT_EQ(model.constraints[1].arm_T_m, Eigen::Vector3d(0, 0.1, 0));
  EXPECT_EQ(model.constraints[1].normal_W, Eigen::Vector3d::UnitZ());
  EXPECT_EQ(model.constraints[1].rest_penetration_m, -0.001);
  EXPECT_EQ(model.constraints[1].stiffness_n_per_m, 200);
  EXPECT_EQ(model.constraints[1].friction, 0.3);
  EXPECT_EQ(model.constraints[1].damping_n_s_per_m, 1);
  EXPECT_EQ(model.force_n.z(), 3);
}

TEST(FromProto, CurvaturesAreSixNumbersOrNone) {
  sim::LocalModel model;
  v1::LocalModel message = GoodModel();
  for (const double value : {10, 1, 2, 20, 3, 30}) message.mutable_constraints(0)->add_curvature_per_m(value);
  ASSERT_TRUE(FromProto(message, &model).ok());
  EXPECT_EQ(model.constraints[0].curvature_per_m, (std::array<double, 6>{10, 1, 2, 20, 3, 30}));
  EXPECT_FALSE(model.constraints[1].is_curved());
  // Nothing stays of the model before.
  ASSERT_TRUE(FromProto(GoodModel(), &model).ok());
  EXPECT_FALSE(model.constraints[0].is_curved());
  message.mutable_constraints(0)->add_curvature_per_m(1);
  EXPECT_NE(std::string(FromProto(message, &model).message()).find("constraints[0].curvature_per_m"), std::string::npos);
  message.mutable_constraints(0)->mutable_curvature_per_m()->Resize(6, 0);
  message.mutable_constraints(0)->set_curvature_per_m(5, kNan);
  EXPECT_FALSE(FromProto(message, &model).ok());
}

TEST(FromProto, NamesWhatIsWrongWithAModel) {
  sim::LocalModel model;
  const auto error = [&](auto damage) {
    v1::LocalModel message = GoodModel();
    damage(&message);
    return std::string(FromProto(message, &model).message());
  };
  EXPECT_EQ(error([](v1::LocalModel*) {}), "");
  EXPECT_THAT(error([](v1::LocalModel* m) {
                for (int i = 0; i < 63; ++i) m->add_constraints();
              }),
              AllOf(HasSubstr("65"), HasSubstr("64")));
  EXPECT_THAT(error([](v1::LocalModel* m) { m->mutable_pose_at_build()->mutable_position_m()->set_y(kNan); }), HasSubstr("pose_at_build"));
  EXPECT_THAT(error([](v1::LocalModel* m) { m->mutable_pose_at_build()->mutable_rotation()->set_w(0); }), HasSubstr("rotation"));
  EXPECT_THAT(error([](v1::LocalModel* m) { m->set_blend_time_s(-1); }), AllOf(HasSubstr("blend_time_s"), HasSubstr("-1")));
  EXPECT_THAT(error([](v1::LocalModel* m) { m->set_validity_radius_m(kNan); }), HasSubstr("validity_radius_m"));
  EXPECT_THAT(error([](v1::LocalModel* m) { m->mutable_force_n()->set_x(kNan); }), HasSubstr("force_n"));
  EXPECT_THAT(error([](v1::LocalModel* m) { m->set_removed_mass_kg(kNan); }), HasSubstr("removed_mass_kg"));
  EXPECT_THAT(error([](v1::LocalModel* m) { m->set_grasp_force_n(-1); }), HasSubstr("grasp_force_n = -1"));
  EXPECT_THAT(error([](v1::LocalModel* m) { m->set_sim_time_s(kNan); }), HasSubstr("sim_time_s"));
  EXPECT_THAT(error([](v1::LocalModel* m) { m->mutable_constraints(1)->clear_normal(); }), HasSubstr("constraints[1].normal"));
  EXPECT_THAT(error([](v1::LocalModel* m) { m->mutable_constraints(1)->mutable_arm_m()->set_x(kNan); }), HasSubstr("constraints[1]"));
  EXPECT_THAT(error([](v1::LocalModel* m) { m->mutable_constraints(0)->set_stiffness_n_per_m(-5); }),
              HasSubstr("constraints[0].stiffness_n_per_m = -5"));
  EXPECT_THAT(error([](v1::LocalModel* m) { m->mutable_constraints(0)->set_friction(kNan); }), HasSubstr("constraints[0].friction"));
  EXPECT_THAT(error([](v1::LocalModel* m) { m->mutable_constraints(0)->set_damping_n_s_per_m(-1); }), HasSubstr("damping"));
}

TEST(ToProto, CarriesAPose) {
  PoseSample sample{.sequence = 9, .station_time_us = 77};
  sample.pose.position_m = Eigen::Vector3d(1, 2, 3);
  sample.pose.rotation = Eigen::Quaterniond(0.5, 0.5, -0.5, 0.5);
  sample.velocity_m_per_s = Eigen::Vector3d(4, 5, 6);
  v1::ToolPose message;
  ToProto(sample, &message);
  EXPECT_EQ(message.sequence(), 9U);
  EXPECT_EQ(message.station_time_us(), 77);
  EXPECT_EQ(message.velocity_m_per_s().z(), 6);
  sim::RigidPose back;
  ASSERT_TRUE(FromProto(message.pose(), "pose", &back).ok());
  EXPECT_EQ(back.position_m, sample.pose.position_m);
  EXPECT_EQ(back.rotation.coeffs(), sample.pose.rotation.coeffs());
}

}  // namespace
}  // namespace palpate::station::convert_test
