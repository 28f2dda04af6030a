#include <gmock/gmock.h>

#include <cmath>
#include <limits>
#include <memory>
#include <string>

#include "palpate/v1/edit.grpc.pb.h"
#include "tests/server/core/server_fixture.h"

namespace palpate::server {
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
}  // namespace palpate::server
