#include "clients/station/controls.h"

#include <limits>
#include <optional>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace palpate::station::controls_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

v1::Attached Instrument(v1::InstrumentKind kind, double max_jaw_angle_rad, double max_power_w) {
  v1::Attached attached;
  attached.set_kind(kind);
  attached.set_max_jaw_angle_rad(max_jaw_angle_rad);
  attached.set_max_power_w(max_power_w);
  attached.mutable_traits()->set_has_jaws(max_jaw_angle_rad > 0);
  attached.mutable_traits()->set_has_power(max_power_w > 0);
  attached.mutable_traits()->set_leaves_clips(kind == v1::INSTRUMENT_KIND_CLIP_APPLIER);
  return attached;
}
v1::Attached Probe() { return Instrument(v1::INSTRUMENT_KIND_PROBE, 0, 0); }
v1::Attached Forceps() { return Instrument(v1::INSTRUMENT_KIND_FORCEPS, 1.2, 0); }
v1::Attached Hook() { return Instrument(v1::INSTRUMENT_KIND_CAUTERY_HOOK, 0, 50); }
v1::Attached ClipApplier() { return Instrument(v1::INSTRUMENT_KIND_CLIP_APPLIER, 0.8, 0); }

v1::ToolPose Sent(ControlMap& map, uint32_t buttons, std::optional<double> grip = {}) {
  PoseSample sample;
  sample.buttons = buttons;
  sample.has_grip = grip.has_value();
  sample.grip = grip.value_or(0);
  v1::ToolPose message;
  map.Apply(sample, &message);
  return message;
}

TEST(ControlMap, APedalButtonSendsPedalPowerAndDuty) {
  ControlMap map({.pedal_button = 3, .power_w = 20, .duty = 0.25});
  ASSERT_TRUE(map.Attach(Hook()).ok());
  v1::ToolPose pose = Sent(map, 0b0111);
  EXPECT_FALSE(pose.pedal()) << "other buttons are no pedal";
  EXPECT_EQ(pose.power_w(), 20);
  EXPECT_EQ(pose.duty(), 0.25);
  EXPECT_EQ(map.statistics().power_w, 0) << "none flowed";
  EXPECT_TRUE(Sent(map, 0b1000).pedal());
  EXPECT_TRUE(Sent(map, 0b1001).pedal());
  EXPECT_FALSE(Sent(map, 0).pedal());
  EXPECT_TRUE(Sent(map, 0b1000).pedal());
  EXPECT_EQ(map.statistics().pedal_poses, 3U);
  EXPECT_EQ(map.statistics().pedal_presses, 2U);
  EXPECT_EQ(map.statistics().power_w, 20);
  EXPECT_EQ(map.statistics().duty, 0.25);
}

TEST(ControlMap, WithoutPowerAndDutyTheInstrumentGivesAllItHas) {
  ControlMap map({.pedal_button = 31});
  ASSERT_TRUE(map.Attach(Hook()).ok());
  const v1::ToolPose pose = Sent(map, 1U << 31);
  EXPECT_TRUE(pose.pedal());
  EXPECT_EQ(pose.power_w(), 0);
  EXPECT_EQ(pose.duty(), 0);
  EXPECT_EQ(map.statistics().power_w, 50);
  EXPECT_EQ(map.statistics().duty, 1);
}

TEST(ControlMap, AJawButtonClosesWhileItIsHeld) {
  ControlMap map({.jaw_button = 1});
  ASSERT_TRUE(map.Attach(Forceps()).ok());
  EXPECT_EQ(Sent(map, 0, 0.0).jaw_angle_rad(), 1.2) << "the button, not the grip";
  EXPECT_EQ(Sent(map, 0b10).jaw_angle_rad(), 0);
  EXPECT_EQ(Sent(map, 0b10).jaw_angle_rad(), 0);
  EXPECT_EQ(Sent(map, 0b01).jaw_angle_rad(), 1.2);
  EXPECT_EQ(map.statistics().jaw_closings, 1U);
  EXPECT_EQ(map.statistics().min_jaw_angle_rad, 0);
  EXPECT_EQ(map.statistics().max_jaw_angle_rad, 1.2);
}

TEST(ControlMap, AGripOpensInProportion) {
  ControlMap map({.jaw_angle_rad = 0.5});
  ASSERT_TRUE(map.Attach(ClipApplier()).ok());
  EXPECT_EQ(Sent(map, 0, 1.0).jaw_angle_rad(), 0.5);
  EXPECT_EQ(Sent(map, 0, 0.5).jaw_angle_rad(), 0.25);
  EXPECT_EQ(Sent(map, 0, 1.7).jaw_angle_rad(), 0.5) << "a grip beyond its range is at its end";
  EXPECT_EQ(Sent(map, 0, -0.1).jaw_angle_rad(), 0);
  EXPECT_EQ(Sent(map, 0).jaw_angle_rad(), 0) << "no grip, no button: closed";
  ControlMap on_probe({});
  ASSERT_TRUE(on_probe.Attach(Probe()).ok()) << "a grip that has nothing to do is no error";
  EXPECT_EQ(Sent(on_probe, 0, 1.0).jaw_angle_rad(), 0);
}

TEST(ControlMap, RefusesWhatTheInstrumentHasNoUseFor) {
  const auto error = [](const ControlOptions& options, const v1::Attached& attached) {
    const absl::Status status = ControlMap(options).Attach(attached);
    EXPECT_TRUE(status.ok() || status.code() == absl::StatusCode::kFailedPrecondition);
    return std::string(status.message());
  };
  EXPECT_THAT(error({.pedal_button = 0}, Probe()), AllOf(HasSubstr("--pedal-button"), HasSubstr("a probe")));
  EXPECT_THAT(error({.pedal_button = 0}, Forceps()), AllOf(HasSubstr("--pedal-button"), HasSubstr("a forceps")));
  EXPECT_EQ(error({.pedal_button = 0}, ClipApplier()), "") << "it leaves a clip";
  EXPECT_THAT(error({.pedal_button = 0, .power_w = 5}, ClipApplier()), AllOf(HasSubstr("--power"), HasSubstr("a clip applier")));
  EXPECT_THAT(error({.pedal_button = 0, .duty = 0.5}, ClipApplier()), HasSubstr("--duty"));
  EXPECT_THAT(error({.jaw_button = 0}, Hook()), AllOf(HasSubstr("--jaw-button"), HasSubstr("a cautery hook")));
  EXPECT_THAT(error({.jaw_angle_rad = 0.2}, Hook()), HasSubstr("--jaw-angle"));
  EXPECT_THAT(error({.jaw_angle_rad = 1.3}, Forceps()), AllOf(HasSubstr("--jaw-angle 1.3"), HasSubstr("1.2")));
  EXPECT_THAT(error({.pedal_button = 0, .power_w = 51}, Hook()), AllOf(HasSubstr("--power 51"), HasSubstr("50 W")));
  EXPECT_EQ(error({.pedal_button = 0, .power_w = 50, .duty = 1}, Hook()), "");
  // A server that does not say what the tool is.
  EXPECT_THAT(error({.pedal_button = 0}, v1::Attached()), HasSubstr("a probe"));
}

TEST(CheckControls, NamesWhatIsWrong) {
  const auto error = [](const ControlOptions& options) { return std::string(CheckControls(options).message()); };
  EXPECT_EQ(error({}), "");
  EXPECT_EQ(error({.pedal_button = 0, .jaw_button = 31, .jaw_angle_rad = 3, .power_w = 1000, .duty = 1}), "");
  EXPECT_THAT(error({.pedal_button = 32}), AllOf(HasSubstr("--pedal-button 32"), HasSubstr("[0, 31]")));
  EXPECT_THAT(error({.jaw_button = -1}), HasSubstr("--jaw-button -1"));
  EXPECT_THAT(error({.pedal_button = 0, .power_w = 0}), HasSubstr("--power 0"));
  EXPECT_THAT(error({.pedal_button = 0, .duty = 1.5}), AllOf(HasSubstr("--duty 1.5"), HasSubstr("(0, 1]")));
  EXPECT_THAT(error({.pedal_button = 0, .duty = std::numeric_limits<double>::quiet_NaN()}), HasSubstr("--duty"));
  EXPECT_THAT(error({.jaw_angle_rad = 3.5}), HasSubstr("--jaw-angle"));
  EXPECT_THAT(error({.power_w = 5}), HasSubstr("--pedal-button"));
}

}  // namespace
}  // namespace palpate::station::controls_test
