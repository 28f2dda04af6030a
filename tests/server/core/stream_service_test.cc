#include <gmock/gmock.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "tests/server/core/server_fixture.h"

namespace palpate::server::stream_service_test {
namespace {

using ::testing::HasSubstr;

/// One Watch call.
class Watcher {
 public:
  Watcher(v1::StreamService::Stub& stub, const v1::WatchRequest& request) : reader_(stub.Watch(&context_, request)) {}
  ~Watcher() {
    if (!finished_) {
      context_.TryCancel();
      v1::WatchUpdate update;
      while (reader_->Read(&update)) {
      }
      reader_->Finish();
    }
  }
  bool Read(v1::WatchUpdate* update) { return reader_->Read(update); }
  grpc::Status Finish() {
    finished_ = true;
    return reader_->Finish();
  }
  grpc::Status ReadToTheEnd() {
    v1::WatchUpdate update;
    while (reader_->Read(&update)) {
    }
    return Finish();
  }

 private:
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReader<v1::WatchUpdate>> reader_;
  bool finished_ = false;
};

v1::WatchRequest WatchOf(const std::string& id, double max_rate_hz = 10000) {
  v1::WatchRequest request;
  request.set_scene_id(id);
  request.set_max_rate_hz(max_rate_hz);
  return request;
}

class StreamServiceTest : public ServerTest {};

TEST_F(StreamServiceTest, SendsAKeyframeFirstThenFramesInOrder) {
  const std::string id = CreateScene();
  Watcher watcher(*streams_, WatchOf(id));
  v1::WatchUpdate update;
  ASSERT_TRUE(watcher.Read(&update));
  ASSERT_TRUE(update.has_keyframe());
  const v1::Keyframe keyframe = update.keyframe();
  EXPECT_EQ(keyframe.scene().scene_id(), id);
  EXPECT_EQ(keyframe.topology_version(), 1U);
  ASSERT_EQ(keyframe.bodies_size(), 1);
  EXPECT_EQ(keyframe.bodies(0).vertex_count(), 26U);
  EXPECT_EQ(keyframe.bodies(0).triangles_size(), 48 * 3);
  EXPECT_EQ(keyframe.bodies(0).tets_size(), 0);
  EXPECT_EQ(keyframe.bodies(0).fixed_size(), 9);
  EXPECT_EQ(keyframe.tools_size(), 2);
  EXPECT_EQ(keyframe.frame().step(), 0U);
  EXPECT_EQ(keyframe.frame().bodies(0).positions().size(), 26U * 12);
  EXPECT_EQ(keyframe.frame().state(), v1::RUN_STATE_PAUSED);
  EXPECT_EQ(Get(id).watchers(), 1U);

  // Step by step, so that none can be missed.
  for (uint64_t step = 1; step <= 5; ++step) {
    v1::SceneInfo info;
    ASSERT_TRUE(Step(id, 1, &info).ok());
    ASSERT_TRUE(watcher.Read(&update));
    ASSERT_TRUE(update.has_frame());
    EXPECT_EQ(update.frame().step(), step);
    EXPECT_EQ(update.frame().state_hash(), info.state_hash());
    EXPECT_EQ(update.frame().dropped(), 0U);
    EXPECT_GT(update.frame().stats().step_ms(), 0);
    EXPECT_EQ(update.frame().tools_size(), 2);
  }
  EXPECT_GE(Metric("palpate_frames_total{scene=\"" + id + "\"}"), 6);
  EXPECT_GT(Metric("palpate_stream_bytes_total{kind=\"watch\"}"), 26 * 12);
}

TEST_F(StreamServiceTest, AChangeOfStateIsAFrame) {
  const std::string id = CreateScene(true);
  Watcher watcher(*streams_, WatchOf(id));
  v1::WatchUpdate update;
  ASSERT_TRUE(watcher.Read(&update));
  ASSERT_TRUE(Pause(id).ok());
  bool paused = false;
  while (!paused && watcher.Read(&update)) paused = update.has_frame() && update.frame().state() == v1::RUN_STATE_PAUSED;
  EXPECT_TRUE(paused);
}

TEST_F(StreamServiceTest, ContentIsWhatWasAskedFor) {
  const std::string id = CreateScene();
  ASSERT_TRUE(Step(id, 2).ok());
  v1::WatchRequest request = WatchOf(id);
  request.set_positions(v1::POSITION_ENCODING_NONE);
  request.set_without_tools(true);
  request.set_without_contacts(true);
  v1::WatchUpdate update;
  {
    Watcher watcher(*streams_, request);
    ASSERT_TRUE(watcher.Read(&update));
    EXPECT_TRUE(update.keyframe().frame().bodies(0).positions().empty());
    EXPECT_EQ(update.keyframe().frame().tools_size(), 0);
  }
  // The volume of a scene that does not step.
  request = WatchOf(id);
  request.set_with_volume(true);
  Watcher watcher(*streams_, request);
  ASSERT_TRUE(watcher.Read(&update));
  EXPECT_EQ(update.keyframe().bodies(0).vertex_count(), 27U);
  EXPECT_EQ(update.keyframe().bodies(0).tets_size(), 40 * 4);
  EXPECT_EQ(update.keyframe().frame().bodies(0).positions().size(), 27U * 12);
  EXPECT_EQ(update.keyframe().frame().step(), 2U);
  ASSERT_TRUE(Step(id, 1).ok());
  ASSERT_TRUE(watcher.Read(&update));
  while (update.frame().step() < 3) ASSERT_TRUE(watcher.Read(&update));
  EXPECT_EQ(update.frame().bodies(0).positions().size(), 27U * 12);
}

TEST_F(StreamServiceTest, QuantisedPositionsAreWithinTheStatedError) {
  const std::string id = CreateScene();
  ASSERT_TRUE(Step(id, 10).ok());
  v1::WatchRequest exact_request = WatchOf(id);
  v1::WatchRequest coarse_request = WatchOf(id);
  coarse_request.set_positions(v1::POSITION_ENCODING_UINT16);
  Watcher exact_watcher(*streams_, exact_request);
  Watcher coarse_watcher(*streams_, coarse_request);
  v1::WatchUpdate exact;
  v1::WatchUpdate coarse;
  ASSERT_TRUE(exact_watcher.Read(&exact));
  ASSERT_TRUE(coarse_watcher.Read(&coarse));
  ASSERT_EQ(exact.keyframe().frame().state_hash(), coarse.keyframe().frame().state_hash());
  const v1::BodyFrame& e = exact.keyframe().frame().bodies(0);
  const v1::BodyFrame& c = coarse.keyframe().frame().bodies(0);
  ASSERT_EQ(c.positions().size() * 2, e.positions().size());
  EXPECT_GT(c.max_error_m(), 0);
  EXPECT_LT(c.max_error_m(), 1e-6);
  const double origin[] = {c.origin_m().x(), c.origin_m().y(), c.origin_m().z()};
  const double scale[] = {c.scale_m().x(), c.scale_m().y(), c.scale_m().z()};
  for (size_t i = 0; i < c.positions().size() / 2; ++i) {
    float exact_value = 0;
    uint16_t level = 0;
    std::memcpy(&exact_value, e.positions().data() + 4 * i, 4);
    std::memcpy(&level, c.positions().data() + 2 * i, 2);
    EXPECT_LE(std::abs(origin[i % 3] + level * scale[i % 3] - exact_value), c.max_error_m());
  }
}

TEST_F(StreamServiceTest, BadRequestsAreRefused) {
  const std::string id = CreateScene();
  v1::WatchRequest request = WatchOf(id);
  request.set_max_rate_hz(std::nan(""));
  EXPECT_EQ(Watcher(*streams_, request).ReadToTheEnd().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  request = WatchOf(id);
  request.set_positions(static_cast<v1::PositionEncoding>(77));
  EXPECT_EQ(Watcher(*streams_, request).ReadToTheEnd().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(Watcher(*streams_, WatchOf("none")).ReadToTheEnd().error_code(), grpc::StatusCode::NOT_FOUND);
}

TEST_F(StreamServiceTest, AStalledReaderCostsNobodyAStepAndGetsTheLatest) {
  // Frames large enough that a few fill the connection's windows.
  v1::SceneSpec spec = TinyScene();
  spec.mutable_solver()->set_iterations(1);
  spec.mutable_bodies(0)->mutable_generator()->set_edge_length_m(0.01);
  const std::string id = CreateScene(false, "", spec);
  ASSERT_TRUE(SetRate(id, v1::RATE_MODE_AS_FAST_AS_POSSIBLE).ok());
  const std::unique_ptr<v1::StreamService::Stub> stalled_stub = v1::StreamService::NewStub(NewChannel());
  Watcher stalled(*stalled_stub, WatchOf(id));
  v1::WatchUpdate update;
  ASSERT_TRUE(stalled.Read(&update));
  ASSERT_TRUE(Play(id).ok());

  // Nobody reads from it. The scene goes on, and so does another reader.
  Watcher lively(*streams_, WatchOf(id));
  uint64_t lively_step = 0;
  const std::string dropped = "palpate_frames_dropped_total{scene=\"" + id + "\"}";
  bool has_dropped = false;
  for (int i = 0; i < 100000 && (!has_dropped || lively_step < 50); ++i) {
    ASSERT_TRUE(lively.Read(&update));
    if (update.has_frame()) {
      EXPECT_GE(update.frame().step(), lively_step);
      lively_step = update.frame().step();
    }
    if (i % 20 == 0) has_dropped = Metric(dropped) >= 20;
  }
  EXPECT_TRUE(has_dropped);
  v1::SceneInfo info;
  ASSERT_TRUE(Pause(id, &info).ok());

  // What the stalled reader then finds: some old frames of the connection's windows, then a jump to the newest, with the drops counted.
  uint64_t last_step = 0;
  uint64_t counted = 0;
  while (last_step < info.step()) {
    ASSERT_TRUE(stalled.Read(&update));
    if (!update.has_frame()) continue;
    EXPECT_GE(update.frame().step(), last_step);
    EXPECT_GE(update.frame().dropped(), counted);
    last_step = update.frame().step();
    counted = update.frame().dropped();
  }
  EXPECT_GT(counted, 0U);
}

TEST_F(StreamServiceTest, TheMaximumRateThinsOut) {
  const std::string id = CreateScene();
  ASSERT_TRUE(SetRate(id, v1::RATE_MODE_AS_FAST_AS_POSSIBLE).ok());
  Watcher watcher(*streams_, WatchOf(id, 5));
  v1::WatchUpdate update;
  ASSERT_TRUE(watcher.Read(&update));
  const auto start = std::chrono::steady_clock::now();
  ASSERT_TRUE(Play(id).ok());
  int frames = 0;
  while (frames < 4 && watcher.Read(&update)) ++frames;
  const double elapsed_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  EXPECT_LE(frames, elapsed_s * 5 + 2);
  // What the reader did not ask for is not a drop.
  EXPECT_EQ(update.frame().dropped(), 0U);
}

TEST_F(StreamServiceTest, DeletingTheSceneEndsItsStreamsWithAborted) {
  const std::string id = CreateScene(true);
  const std::string other = CreateScene(true);
  Watcher watcher(*streams_, WatchOf(id));
  Watcher other_watcher(*streams_, WatchOf(other));
  v1::WatchUpdate update;
  ASSERT_TRUE(watcher.Read(&update));
  ASSERT_TRUE(other_watcher.Read(&update));
  ASSERT_TRUE(Delete(id).ok());
  const grpc::Status status = watcher.ReadToTheEnd();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::ABORTED);
  EXPECT_THAT(status.error_message(), HasSubstr(id));
  EXPECT_TRUE(other_watcher.Read(&update));
  EXPECT_TRUE(Eventually([&] { return Metric("palpate_streams{kind=\"watch\"}") == 1; }));
  EXPECT_EQ(server_->metrics().Text().find("\"" + id + "\""), std::string::npos);
}

TEST_F(StreamServiceTest, ReadersThatVanishAreForgotten) {
  const std::string id = CreateScene(true);
  for (int i = 0; i < 10; ++i) {
    Watcher watcher(*streams_, WatchOf(id));
    v1::WatchUpdate update;
    if (i % 2 == 0) {
      ASSERT_TRUE(watcher.Read(&update));
    }
  }
  EXPECT_TRUE(Eventually([&] { return Get(id).watchers() == 0; }));
  EXPECT_TRUE(Eventually([&] { return Metric("palpate_streams{kind=\"watch\"}") == 0; }));
  const uint64_t step = Get(id).step();
  EXPECT_TRUE(Eventually([&] { return Get(id).step() > step; }));
}

TEST_F(StreamServiceTest, StopEndsOpenStreamsWithUnavailable) {
  const std::string id = CreateScene(true);
  Watcher reading(*streams_, WatchOf(id));
  v1::WatchUpdate update;
  ASSERT_TRUE(reading.Read(&update));
  grpc::Status status;
  std::thread reader([&] { status = reading.ReadToTheEnd(); });
  server_->Stop();
  reader.join();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE) << status.error_message();
}

TEST_F(StreamServiceTest, StopDoesNotWaitForAReaderThatDoesNotRead) {
  v1::SceneSpec spec = TinyScene();
  spec.mutable_bodies(0)->mutable_generator()->set_edge_length_m(0.01);
  const std::string id = CreateScene(false, "", spec);
  ASSERT_TRUE(SetRate(id, v1::RATE_MODE_AS_FAST_AS_POSSIBLE).ok());
  const std::unique_ptr<v1::StreamService::Stub> stub = v1::StreamService::NewStub(NewChannel());
  Watcher stalled(*stub, WatchOf(id));
  v1::WatchUpdate update;
  ASSERT_TRUE(stalled.Read(&update));
  ASSERT_TRUE(Play(id).ok());
  ASSERT_TRUE(Eventually([&] { return Metric("palpate_frames_dropped_total{scene=\"" + id + "\"}") > 0; }));
  server_->Stop();  // the test's time limit is the check
}

}  // namespace
}  // namespace palpate::server::stream_service_test
