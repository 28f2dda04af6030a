#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>

#include <Eigen/Core>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "palpate/v1/edit.grpc.pb.h"
#include "tests/server/core/server_fixture.h"

namespace palpate::server::haptic_service_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// One Operate call.
class Station {
 public:
  explicit Station(v1::HapticService::Stub& stub) : stream_(stub.Operate(&context_)) {}
  ~Station() {
    if (!finished_) {
      context_.TryCancel();
      Finish();
    }
  }
  bool Attach(const std::string& scene, const std::string& tool, double max_stiffness_n_per_m = 0) {
    v1::OperateRequest request;
    request.mutable_attach()->set_scene_id(scene);
    request.mutable_attach()->set_tool(tool);
    request.mutable_attach()->set_station("test");
    request.mutable_attach()->set_device_max_stiffness_n_per_m(max_stiffness_n_per_m);
    return stream_->Write(request);
  }
  bool SendPose(uint64_t sequence, double x_m, double y_m, double z_m, int64_t time_us = 0) {
    v1::OperateRequest request;
    v1::ToolPose& pose = *request.mutable_pose();
    pose.set_sequence(sequence);
    pose.set_station_time_us(time_us);
    pose.mutable_pose()->mutable_position_m()->set_x(x_m);
    pose.mutable_pose()->mutable_position_m()->set_y(y_m);
    pose.mutable_pose()->mutable_position_m()->set_z(z_m);
    return stream_->Write(request);
  }
  /// A pose upright at the place, with what the hand does to the instrument.
  bool SendControls(uint64_t sequence, double z_m, const std::function<void(v1::ToolPose&)>& set) {
    v1::OperateRequest request;
    request.mutable_pose()->set_sequence(sequence);
    request.mutable_pose()->mutable_pose()->mutable_position_m()->set_z(z_m);
    set(*request.mutable_pose());
    return stream_->Write(request);
  }
  bool Write(const v1::OperateRequest& request) { return stream_->Write(request); }
  bool Read(v1::OperateUpdate* update) { return stream_->Read(update); }
  void WritesDone() { stream_->WritesDone(); }
  grpc::Status Finish() {
    finished_ = true;
    v1::OperateUpdate update;
    while (stream_->Read(&update)) {
    }
    return stream_->Finish();
  }

 private:
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::OperateRequest, v1::OperateUpdate>> stream_;
  bool finished_ = false;
};

class HapticServiceTest : public ServerTest {
 protected:
  /// Attaches and reads the answer.
  std::unique_ptr<Station> Attached(const std::string& scene, const std::string& tool, v1::Attached* attached = nullptr) {
    auto station = std::make_unique<Station>(*haptics_);
    EXPECT_TRUE(station->Attach(scene, tool));
    v1::OperateUpdate update;
    EXPECT_TRUE(station->Read(&update));
    EXPECT_TRUE(update.has_attached());
    if (attached != nullptr) *attached = update.attached();
    return station;
  }

  /// Steps the scene until a model that used the pose with this sequence comes.
  v1::LocalModel ModelFor(const std::string& scene, Station& station, uint64_t sequence) {
    for (int i = 0; i < 1000; ++i) {
      EXPECT_TRUE(Step(scene, 1).ok());
      v1::OperateUpdate update;
      if (!station.Read(&update)) break;
      if (update.has_model() && update.model().pose_sequence() == sequence) return update.model();
    }
    ADD_FAILURE() << "no model used pose " << sequence;
    return {};
  }
};

bool Does(const v1::LocalModel& model, v1::ToolActivity activity) {
  return std::find(model.activities().begin(), model.activities().end(), activity) != model.activities().end();
}

/// A block of tissue around the origin, held at its lower face, under one tool that rests above it.
v1::SceneSpec BlockUnder(v1::InstrumentKind kind, const Eigen::Vector3d& size_m, double edge_m, double tool_z_m) {
  v1::SceneSpec spec;
  spec.set_dt_s(1.0 / 120);
  v1::BodySpec& body = *spec.add_bodies();
  body.set_name("block");
  v1::Vec3& size = *body.mutable_generator()->mutable_slab()->mutable_size_m();
  size.set_x(size_m.x());
  size.set_y(size_m.y());
  size.set_z(size_m.z());
  body.mutable_generator()->set_edge_length_m(edge_m);
  body.mutable_material()->set_young_modulus_pa(10000);
  v1::Box& box = *body.add_fixed()->mutable_box();
  for (auto set : {&v1::Vec3::set_x, &v1::Vec3::set_y, &v1::Vec3::set_z}) {
    (box.mutable_min_m()->*set)(-1);
    (box.mutable_max_m()->*set)(1);
  }
  box.mutable_max_m()->set_z(-size_m.z() / 2 + 5e-4);
  v1::ToolSpec& tool = *spec.add_tools();
  tool.set_name("tool");
  tool.set_radius_m(0.003);
  tool.set_drive(v1::TOOL_DRIVE_DIRECT);
  tool.mutable_rest_pose()->mutable_position_m()->set_z(tool_z_m);
  tool.mutable_instrument()->set_kind(kind);
  return spec;
}

TEST_F(HapticServiceTest, AttachedSaysWhatTheInstrumentIsAndCan) {
  v1::SceneSpec spec = BlockUnder(v1::INSTRUMENT_KIND_FORCEPS, {0.02, 0.02, 0.02}, 0.02, 0.1);
  spec.mutable_tools(0)->mutable_instrument()->set_max_jaw_angle_rad(0.7);
  v1::ToolSpec& cavitron = *spec.add_tools();
  cavitron.set_name("cavitron");
  cavitron.mutable_instrument()->set_kind(v1::INSTRUMENT_KIND_CAVITRON);
  cavitron.mutable_instrument()->set_max_power_w(35);
  spec.add_tools()->set_name("probe");
  const std::string id = CreateScene(false, "", spec);
  v1::Attached attached;
  Attached(id, "tool", &attached);
  EXPECT_EQ(attached.kind(), v1::INSTRUMENT_KIND_FORCEPS);
  EXPECT_EQ(attached.max_jaw_angle_rad(), 0.7);
  EXPECT_EQ(attached.max_power_w(), 0);
  Attached(id, "cavitron", &attached);
  EXPECT_EQ(attached.kind(), v1::INSTRUMENT_KIND_CAVITRON);
  EXPECT_EQ(attached.max_jaw_angle_rad(), 0);
  EXPECT_EQ(attached.max_power_w(), 35);
  Attached(id, "probe", &attached);
  EXPECT_EQ(attached.kind(), v1::INSTRUMENT_KIND_PROBE);
  EXPECT_EQ(attached.max_jaw_angle_rad(), 0);
  EXPECT_EQ(attached.max_power_w(), 0);
}

TEST_F(HapticServiceTest, ModelsSayThatTheToolTouchesAndIsBlocked) {
  const std::string id = CreateScene(false, "", BlockUnder(v1::INSTRUMENT_KIND_PROBE, {0.04, 0.04, 0.02}, 0.01, 0.03));
  const std::unique_ptr<Station> station = Attached(id, "tool");
  uint64_t sequence = 0;
  ASSERT_TRUE(station->SendPose(++sequence, 0, 0, 0.03));
  v1::LocalModel model = ModelFor(id, *station, sequence);
  EXPECT_THAT(model.activities(), IsEmpty()) << "moving freely";
  EXPECT_EQ(model.blocked_m(), 0);
  for (int i = 1; i <= 40; ++i) {
    ASSERT_TRUE(station->SendPose(++sequence, 0, 0, 0.03 - 0.02 * i / 40));
    model = ModelFor(id, *station, sequence);
  }
  EXPECT_THAT(model.activities(), ElementsAre(v1::TOOL_ACTIVITY_TOUCHING)) << "slow enough for the tissue to give way";
  // A jump through the block is stopped short.
  ASSERT_TRUE(station->SendPose(++sequence, 0, 0, -0.02));
  model = ModelFor(id, *station, sequence);
  EXPECT_TRUE(Does(model, v1::TOOL_ACTIVITY_BLOCKED));
  EXPECT_GT(model.blocked_m(), 0.005);
  EXPECT_LT(model.blocked_m(), 0.03);
  EXPECT_NEAR(model.pose_at_build().position_m().z(), -0.02, 1e-9);
}

TEST_F(HapticServiceTest, ModelsSayThatJawsGraspAndHowHard) {
  v1::SceneSpec spec = BlockUnder(v1::INSTRUMENT_KIND_FORCEPS, {0.012, 0.04, 0.02}, 0.004, 0.05);
  spec.mutable_tools(0)->mutable_instrument()->set_max_jaw_angle_rad(1.2);
  spec.mutable_tools(0)->mutable_instrument()->set_max_grasp_force_n(2);
  const std::string id = CreateScene(false, "", spec);
  const std::unique_ptr<Station> station = Attached(id, "tool");
  uint64_t sequence = 0;
  v1::LocalModel model;
  const auto go = [&](int steps, double from_m, double to_m, double jaw_rad) {
    for (int i = 1; i <= steps; ++i) {
      ASSERT_TRUE(
          station->SendControls(++sequence, from_m + (to_m - from_m) * i / steps, [&](v1::ToolPose& p) { p.set_jaw_angle_rad(jaw_rad); }));
      model = ModelFor(id, *station, sequence);
    }
  };
  ASSERT_NO_FATAL_FAILURE(go(50, 0.05, 0.05, 1.2));
  EXPECT_NEAR(model.jaw_angle_rad(), 1.2, 1e-6);
  ASSERT_NO_FATAL_FAILURE(go(60, 0.05, 0.003, 1.2));
  EXPECT_FALSE(Does(model, v1::TOOL_ACTIVITY_GRASPING)) << "astride";
  ASSERT_NO_FATAL_FAILURE(go(80, 0.003, 0.003, 0));
  EXPECT_TRUE(Does(model, v1::TOOL_ACTIVITY_GRASPING));
  EXPECT_TRUE(Does(model, v1::TOOL_ACTIVITY_TOUCHING));
  EXPECT_GT(model.jaw_angle_rad(), 0.1) << "there is tissue between";
  ASSERT_NO_FATAL_FAILURE(go(40, 0.003, 0.008, 0));
  EXPECT_GT(model.grasp_force_n(), 0.1);
  EXPECT_LE(model.grasp_force_n(), 2 * (1 + 1e-4));
  EXPECT_LT(model.force_n().z(), -0.1) << "what is held pulls back";
  ASSERT_NO_FATAL_FAILURE(go(60, 0.008, 0.008, 1.2));
  EXPECT_FALSE(Does(model, v1::TOOL_ACTIVITY_GRASPING));
  EXPECT_EQ(model.grasp_force_n(), 0);
}

TEST_F(HapticServiceTest, PedalPowerAndDutyDecideHowFastTissueGoes) {
  constexpr double kEnergy_j_per_kg = 5e3;
  v1::SceneSpec spec = BlockUnder(v1::INSTRUMENT_KIND_CAVITRON, {0.04, 0.04, 0.024}, 0.004, 0.016);
  spec.mutable_bodies(0)->mutable_ablation()->set_energy_j_per_kg(kEnergy_j_per_kg);
  spec.mutable_tools(0)->mutable_instrument()->set_max_power_w(40);
  spec.mutable_tools(0)->mutable_instrument()->set_reach_m(0.005);
  /// Mass removed in so many steps with the pedal down, by a tool that goes 10 mm into the tissue meanwhile. Nothing if a pose came after
  /// the step that it was sent for, as it may on a busy machine: that is another way into the tissue.
  const auto try_removed_kg = [&](int steps, double power_w, double duty, absl::Duration head_start) -> std::optional<double> {
    const std::string id = CreateScene(false, "", spec);
    const std::unique_ptr<Station> station = Attached(id, "tool");
    const auto controls = [&](bool pedal) {
      return [=](v1::ToolPose& pose) {
        pose.set_pedal(pedal);
        pose.set_power_w(power_w);
        pose.set_duty(duty);
      };
    };
    uint64_t step = Get(id).step();
    v1::LocalModel model;
    const auto send = [&](uint64_t sequence, double z_m, bool pedal) {
      EXPECT_TRUE(station->SendControls(sequence, z_m, controls(pedal)));
      absl::SleepFor(head_start);
      model = ModelFor(id, *station, sequence);
      return model.step() == ++step;
    };
    bool is_on_time = send(1, 0.016, false);
    EXPECT_FALSE(Does(model, v1::TOOL_ACTIVITY_CUTTING)) << "the pedal is up";
    EXPECT_EQ(model.removed_mass_kg(), 0);
    for (int i = 0; i < steps && is_on_time; ++i) is_on_time = send(static_cast<uint64_t>(i) + 2, 0.016 - 0.01 * i / steps, true);
    if (!is_on_time) {
      EXPECT_TRUE(Delete(id).ok());
      return std::nullopt;
    }
    EXPECT_TRUE(Does(model, v1::TOOL_ACTIVITY_CUTTING));
    double left_kg = 0;
    const v1::SceneInfo info = Get(id);
    for (const v1::BodyInfo& body : info.bodies()) left_kg += body.mass_kg();
    const double whole_kg = 0.04 * 0.04 * 0.024 * 1060;
    EXPECT_NEAR(whole_kg - left_kg, model.removed_mass_kg(), 1e-6) << "what the model says is gone is gone";
    EXPECT_TRUE(Delete(id).ok());
    return model.removed_mass_kg();
  };
  const auto removed_kg = [&](int steps, double power_w, double duty) {
    for (const int head_start_ms : {0, 1, 2, 5, 10, 20, 50, 100}) {
      const std::optional<double> kg = try_removed_kg(steps, power_w, duty, absl::Milliseconds(head_start_ms));
      if (kg.has_value()) return *kg;
    }
    ADD_FAILURE() << "poses come late however long before the step they are sent";
    return 0.0;
  };
  constexpr int kSteps = 60;  // 0.5 s
  const double full_kg = removed_kg(kSteps, 40, 1);
  const double expected_kg = 40 * kSteps / 120.0 / kEnergy_j_per_kg;
  // Part of the energy is still in tets that are not due, and a manifold surface makes some go along.
  EXPECT_NEAR(full_kg, expected_kg, 0.25 * expected_kg);
  EXPECT_EQ(removed_kg(kSteps, 0, 0), full_kg) << "0: the largest power, all of the time";
  // Half the duty or half the power: the same in twice the time on the same way, and half in the same time but for what is only warm.
  EXPECT_NEAR(removed_kg(2 * kSteps, 40, 0.5), full_kg, 0.03 * full_kg);
  EXPECT_NEAR(removed_kg(2 * kSteps, 20, 1), full_kg, 0.03 * full_kg);
  EXPECT_NEAR(removed_kg(kSteps, 40, 0.5), 0.5 * full_kg, 0.15 * full_kg);
}

TEST_F(HapticServiceTest, EnergyEndsWithASilentStationUntilThePedalIsLetGo) {
  // In real time the silence is measured by the clock, otherwise by the scene's own time: the same everywhere.
  for (const v1::RateMode mode : {v1::RATE_MODE_REAL_TIME, v1::RATE_MODE_AS_FAST_AS_POSSIBLE}) {
    SCOPED_TRACE(v1::RateMode_Name(mode));
    v1::SceneSpec spec = BlockUnder(v1::INSTRUMENT_KIND_CAVITRON, {0.04, 0.04, 0.024}, 0.008, 0.012);
    spec.mutable_bodies(0)->mutable_ablation()->set_energy_j_per_kg(1e6);  // hardly anything goes: it is about the power
    spec.mutable_tools(0)->mutable_instrument()->set_reach_m(0.01);
    const std::string id = CreateScene(false, "", spec);
    ASSERT_TRUE(SetRate(id, mode).ok());
    const std::unique_ptr<Station> station = Attached(id, "tool");
    v1::LocalModel model;
    // Models come until one fits; every one in between is looked at.
    const auto read_until = [&](const std::function<bool()>& fits) {
      v1::OperateUpdate update;
      while (station->Read(&update)) {
        if (!update.has_model()) continue;
        model = update.model();
        if (fits()) return;
      }
      FAIL() << "the stream ended";
    };
    const auto pedal = [](bool down) { return [down](v1::ToolPose& pose) { pose.set_pedal(down); }; };
    const auto is_cutting = [&] { return Does(model, v1::TOOL_ACTIVITY_CUTTING); };
    const auto is_expired = [&] { return Does(model, v1::TOOL_ACTIVITY_COMMAND_EXPIRED); };
    uint64_t sequence = 0;
    // A foot that is down from the first pose on may be what was left of an interrupted stream.
    ASSERT_TRUE(station->SendControls(++sequence, 0.012, pedal(true)));
    ASSERT_TRUE(Play(id).ok());
    ASSERT_NO_FATAL_FAILURE(read_until([&] { return model.pose_sequence() == sequence; }));
    EXPECT_FALSE(is_cutting());
    for (int press = 0; press < 2; ++press) {
      ASSERT_TRUE(station->SendControls(++sequence, 0.012, pedal(false)));
      ASSERT_NO_FATAL_FAILURE(read_until([&] { return model.pose_sequence() == sequence && !is_expired(); }));
      EXPECT_FALSE(is_cutting());
      ASSERT_TRUE(station->SendControls(++sequence, 0.012, pedal(true)));
      ASSERT_NO_FATAL_FAILURE(read_until(is_cutting));
      const double from_s = model.sim_time_s();
      ASSERT_NO_FATAL_FAILURE(read_until(is_expired));
      EXPECT_FALSE(is_cutting());
      if (mode == v1::RATE_MODE_AS_FAST_AS_POSSIBLE) {
        EXPECT_NEAR(model.sim_time_s() - from_s, 0.1, 2.5 * spec.dt_s());
      }
      // The station is back, with the foot still down.
      for (int i = 0; i < 10; ++i) {
        ASSERT_TRUE(station->SendControls(++sequence, 0.012, pedal(true)));
        ASSERT_NO_FATAL_FAILURE(read_until([&] { return model.pose_sequence() == sequence; }));
        EXPECT_FALSE(is_cutting());
        EXPECT_TRUE(is_expired());
      }
    }
    EXPECT_TRUE(Delete(id).ok());
  }
}

TEST_F(HapticServiceTest, ControlsOutOfRangeEndTheStreamAndNameTheField) {
  const std::string id = CreateScene();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const struct {
    const char* field;
    void (v1::ToolPose::*set)(double);
    std::vector<double> bad;
  } cases[] = {
      {"pose.jaw_angle_rad", &v1::ToolPose::set_jaw_angle_rad, {nan, -0.1, 3.2}},
      {"pose.power_w", &v1::ToolPose::set_power_w, {nan, -1, 1e9}},
      {"pose.duty", &v1::ToolPose::set_duty, {nan, -0.5, 2}},
  };
  for (const auto& c : cases) {
    for (const double bad : c.bad) {
      ASSERT_TRUE(Eventually([&] { return Get(id).operated_tools().empty(); }));
      const std::unique_ptr<Station> station = Attached(id, "probe");
      ASSERT_TRUE(station->SendControls(1, 0.1, [&](v1::ToolPose& pose) { (pose.*c.set)(bad); }));
      const grpc::Status status = station->Finish();
      EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << c.field << " = " << bad;
      EXPECT_THAT(status.error_message(), HasSubstr(c.field));
    }
  }
  EXPECT_EQ(Get(id).state(), v1::RUN_STATE_PAUSED) << "the scene goes on";
}

TEST_F(HapticServiceTest, AttachThenOneModelPerStep) {
  const std::string id = CreateScene();
  v1::Attached attached;
  const std::unique_ptr<Station> station = Attached(id, "probe", &attached);
  EXPECT_EQ(attached.tool_index(), 0U);
  EXPECT_EQ(attached.radius_m(), 0.005);
  EXPECT_EQ(attached.length_m(), 0.1);
  EXPECT_NEAR(attached.dt_s(), 1.0 / 120, 1e-12);
  EXPECT_NEAR(attached.pose().position_m().z(), 0.1, 1e-6);
  EXPECT_THAT(Get(id).operated_tools(), ElementsAre("probe"));
  for (uint64_t step = 1; step <= 4; ++step) {
    ASSERT_TRUE(Step(id, 1).ok());
    v1::OperateUpdate update;
    ASSERT_TRUE(station->Read(&update));
    ASSERT_TRUE(update.has_model());
    EXPECT_EQ(update.model().step(), step);
    EXPECT_EQ(update.model().station_time_us(), 0);  // no pose yet
  }
  EXPECT_EQ(Metric("palpate_haptic_models_total{scene=\"" + id + "\"}"), 4);
  EXPECT_EQ(Metric("palpate_haptic_model_age_seconds_count{scene=\"" + id + "\"}"), 4);
  EXPECT_EQ(Metric("palpate_streams{kind=\"operate\"}"), 1);
}

TEST_F(HapticServiceTest, TheNewestPoseMovesTheTool) {
  const std::string id = CreateScene();
  const std::unique_ptr<Station> station = Attached(id, "probe");
  ASSERT_TRUE(station->SendPose(1, 0, 0, 0.09, 111));
  ASSERT_TRUE(station->SendPose(2, 0, 0, 0.08, 222));
  const v1::LocalModel model = ModelFor(id, *station, 2);
  EXPECT_EQ(model.station_time_us(), 222);
  EXPECT_NEAR(model.pose_at_build().position_m().z(), 0.08, 1e-9);
  // Late poses are ignored.
  ASSERT_TRUE(station->SendPose(1, 0, 0, 0.5, 333));
  ASSERT_TRUE(station->SendPose(3, 0, 0, 0.07, 444));
  EXPECT_EQ(ModelFor(id, *station, 3).station_time_us(), 444);
  EXPECT_EQ(Metric("palpate_haptic_poses_total{scene=\"" + id + "\"}"), 3);
}

TEST_F(HapticServiceTest, PressingOnTheTissueGivesConstraintsAndForce) {
  const std::string id = CreateScene();
  const std::unique_ptr<Station> station = Attached(id, "probe");
  // The slab's top is at 0.05 m; the tip's surface goes down to 1 cm below it.
  uint64_t sequence = 0;
  v1::LocalModel model;
  for (double z_m = 0.06; z_m >= 0.045; z_m -= 0.0005) {
    ASSERT_TRUE(station->SendPose(++sequence, 0, 0, z_m));
    model = ModelFor(id, *station, sequence);
  }
  for (int i = 0; i < 30; ++i) {
    ASSERT_TRUE(station->SendPose(++sequence, 0, 0, 0.045));
    model = ModelFor(id, *station, sequence);
  }
  EXPECT_GT(model.constraints_size(), 0);
  EXPECT_GT(model.force_n().z(), 0);  // the tissue pushes back up
  EXPECT_GT(Metric("palpate_contacts{scene=\"" + id + "\"}"), 0);
}

TEST_F(HapticServiceTest, ModelsOfEveryStepGoOnWhileTissueIsCarved) {
  v1::SceneSpec spec = TinyScene();
  spec.mutable_bodies(0)->mutable_generator()->set_edge_length_m(0.025);
  const std::string id = CreateScene(false, "", spec);
  const std::unique_ptr<Station> station = Attached(id, "probe");
  uint64_t sequence = 0;
  v1::LocalModel model;
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(station->SendPose(++sequence, -0.02, 0, 0.045));
    model = ModelFor(id, *station, sequence);
  }
  ASSERT_GT(model.constraints_size(), 0);
  const std::unique_ptr<v1::EditService::Stub> edits = v1::EditService::NewStub(NewChannel());
  int removed = 0;
  for (int i = 0; i < 20; ++i) {
    v1::EditSceneRequest request;
    request.set_scene_id(id);
    v1::Edit& edit = *request.add_edits();
    edit.set_body("slab");
    v1::BallRegion& ball = *edit.mutable_carve()->mutable_region()->mutable_ball();
    ball.mutable_center_m()->set_x(0.04);
    ball.mutable_center_m()->set_y(-0.05 + 0.005 * i);
    ball.mutable_center_m()->set_z(0.05);
    ball.set_radius_m(0.015);
    grpc::ClientContext context;
    v1::EditSceneResponse response;
    ASSERT_TRUE(edits->EditScene(&context, request, &response).ok());
    removed += response.outcomes(0).removed_tets_size();
    ASSERT_TRUE(Step(id, 1).ok());
    // The next thing the station hears is the model of that step: none is left out, comes twice or is empty.
    v1::OperateUpdate update;
    ASSERT_TRUE(station->Read(&update));
    ASSERT_TRUE(update.has_model());
    EXPECT_EQ(update.model().step(), model.step() + 1);
    EXPECT_GT(update.model().constraints_size(), 0);
    EXPECT_GT(update.model().force_n().z(), 0);
    model = update.model();
  }
  EXPECT_GT(removed, 0);
}

TEST_F(HapticServiceTest, ASecondStationOnTheSameToolIsRefused) {
  const std::string id = CreateScene();
  {
    const std::unique_ptr<Station> first = Attached(id, "probe");
    Station second(*haptics_);
    ASSERT_TRUE(second.Attach(id, "probe"));
    const grpc::Status status = second.Finish();
    EXPECT_EQ(status.error_code(), grpc::StatusCode::ALREADY_EXISTS);
    EXPECT_THAT(status.error_message(), HasSubstr("\"test\""));
    // Another tool is free.
    const std::unique_ptr<Station> other = Attached(id, "second");
    EXPECT_THAT(Get(id).operated_tools(), ElementsAre("probe", "second"));
    // The first was not disturbed.
    ASSERT_TRUE(first->SendPose(1, 0, 0, 0.09));
    ModelFor(id, *first, 1);
  }
  EXPECT_TRUE(Eventually([&] { return Get(id).operated_tools().empty(); }));
  Attached(id, "probe");
}

TEST_F(HapticServiceTest, APoseThatIsNotFiniteOrTooFarEndsOnlyThatStream) {
  const std::string id = CreateScene();
  const std::unique_ptr<Station> bystander = Attached(id, "second");
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double infinity = std::numeric_limits<double>::infinity();
  for (const double bad : {nan, infinity, 101.0}) {
    const v1::SceneInfo before = Get(id);
    std::unique_ptr<Station> station;
    ASSERT_TRUE(Eventually([&] { return Get(id).operated_tools_size() == 1; }));
    station = Attached(id, "probe");
    ASSERT_TRUE(station->SendPose(1, bad, 0, 0));
    const grpc::Status status = station->Finish();
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
    EXPECT_THAT(status.error_message(), HasSubstr("pose.pose.position_m.x"));
    ASSERT_TRUE(bystander->SendPose(before.step() + 1, 0, 0, 0.9));
    const v1::LocalModel model = ModelFor(id, *bystander, before.step() + 1);
    EXPECT_TRUE(std::isfinite(model.pose_at_build().position_m().z()));
    EXPECT_EQ(Get(id).state(), v1::RUN_STATE_PAUSED);
  }
  // The rotation and the velocity count as well.
  for (const bool rotation : {true, false}) {
    ASSERT_TRUE(Eventually([&] { return Get(id).operated_tools_size() == 1; }));
    const std::unique_ptr<Station> station = Attached(id, "probe");
    v1::OperateRequest request;
    if (rotation) {
      request.mutable_pose()->mutable_pose()->mutable_rotation();  // zero
    } else {
      request.mutable_pose()->mutable_velocity_m_per_s()->set_y(nan);
    }
    ASSERT_TRUE(station->Write(request));
    EXPECT_EQ(station->Finish().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  }
}

TEST_F(HapticServiceTest, TheOrderOfRequestsIsChecked) {
  const std::string id = CreateScene();
  const auto status_of = [&](const std::function<void(Station&)>& talk) {
    Station station(*haptics_);
    talk(station);
    return station.Finish();
  };
  grpc::Status status = status_of([](Station& s) { s.SendPose(1, 0, 0, 0); });
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("attach"));
  EXPECT_EQ(status_of([](Station& s) { s.Write({}); }).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(status_of([&](Station& s) {
              s.Attach(id, "probe");
              s.Attach(id, "probe");
            }).error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(status_of([](Station& s) { s.Attach("none", "probe"); }).error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(status_of([&](Station& s) { s.Attach(id, "none"); }).error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(status_of([&](Station& s) { s.Attach(id, "second", -1); }).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_TRUE(status_of([](Station& s) { s.WritesDone(); }).ok());
}

TEST_F(HapticServiceTest, AStationThatVanishesLeavesTheToolWhereItIs) {
  const std::string id = CreateScene();
  {
    const std::unique_ptr<Station> station = Attached(id, "probe");
    uint64_t sequence = 0;
    for (int i = 0; i < 60; ++i) {
      ASSERT_TRUE(station->SendPose(++sequence, 0.2, 0, 0.3));
      ModelFor(id, *station, sequence);
    }
  }  // cancelled in mid-stream
  ASSERT_TRUE(Eventually([&] { return Get(id).operated_tools().empty(); }));
  ASSERT_TRUE(Step(id, 60).ok());
  v1::Attached attached;
  const std::unique_ptr<Station> next = Attached(id, "probe", &attached);
  EXPECT_NEAR(attached.pose().position_m().x(), 0.2, 0.02);
  EXPECT_NEAR(attached.pose().position_m().z(), 0.3, 0.02);
  // The next station's sequence begins anew, and nothing of the first one's poses is used.
  ASSERT_TRUE(next->SendPose(1, 0.25, 0, 0.3, 5));
  EXPECT_EQ(ModelFor(id, *next, 1).station_time_us(), 5);
}

TEST_F(HapticServiceTest, HalfClosingReleasesTheTool) {
  const std::string id = CreateScene();
  const std::unique_ptr<Station> station = Attached(id, "probe");
  station->WritesDone();
  EXPECT_TRUE(station->Finish().ok());
  EXPECT_TRUE(Eventually([&] { return Get(id).operated_tools().empty(); }));
}

TEST_F(HapticServiceTest, DeletionAndStopEndTheStream) {
  const std::string id = CreateScene(true);
  const std::string other = CreateScene(true);
  const std::unique_ptr<Station> station = Attached(id, "probe");
  const std::unique_ptr<Station> survivor = Attached(other, "probe");
  Station silent(*haptics_);  // has not attached
  ASSERT_TRUE(Eventually([&] { return Metric("palpate_streams{kind=\"operate\"}") == 3; }));
  ASSERT_TRUE(Delete(id).ok());
  EXPECT_EQ(station->Finish().error_code(), grpc::StatusCode::ABORTED);
  server_->Stop();
  EXPECT_EQ(survivor->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(silent.Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
}

TEST_F(HapticServiceTest, AStationThatDoesNotReadCostsNobodyAStep) {
  const std::string id = CreateScene();
  ASSERT_TRUE(SetRate(id, v1::RATE_MODE_AS_FAST_AS_POSSIBLE).ok());
  const std::unique_ptr<Station> station = Attached(id, "probe");
  ASSERT_TRUE(Play(id).ok());
  const uint64_t step = Get(id).step();
  EXPECT_TRUE(Eventually([&] { return Get(id).step() > step + 200; }));
}

}  // namespace
}  // namespace palpate::server::haptic_service_test
