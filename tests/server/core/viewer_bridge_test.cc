#include "server/core/viewer_bridge.h"

#include <gmock/gmock.h>

#include <cmath>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "tests/server/core/server_fixture.h"

namespace palpate::server::viewer_bridge_test {
namespace {

using ::testing::HasSubstr;

/// A browser that keeps what it gets; its slot for frames is emptied by TakeFrame.
class FakeSink : public ViewerSink {
 public:
  void Send(v1::ViewerUpdate update) override {
    const std::lock_guard lock(mutex_);
    messages_.push_back(std::move(update));
  }
  void OfferFrame(FrameWriter writer) override {
    const std::lock_guard lock(mutex_);
    if (slot_) ++dropped_;
    slot_ = std::move(writer);
  }
  bool CanTakeFrame() const override {
    const std::lock_guard lock(mutex_);
    return !slot_;
  }
  void BeginStream() override {
    const std::lock_guard lock(mutex_);
    slot_ = nullptr;
    dropped_ = 0;
  }
  void Close() override {
    const std::lock_guard lock(mutex_);
    closed_ = true;
  }
  ViewerSinkStatistics statistics() const override { return {}; }

  std::optional<v1::ViewerUpdate> TakeMessage() {
    const std::lock_guard lock(mutex_);
    if (messages_.empty()) return std::nullopt;
    v1::ViewerUpdate out = std::move(messages_.front());
    messages_.pop_front();
    return out;
  }
  std::optional<v1::ViewerUpdate> TakeFrame() {
    FrameWriter writer;
    uint64_t dropped = 0;
    {
      const std::lock_guard lock(mutex_);
      writer = std::exchange(slot_, nullptr);
      dropped = dropped_;
    }
    if (!writer) return std::nullopt;
    v1::ViewerUpdate out;
    EXPECT_FALSE(writer(dropped, out));
    return out;
  }
  /// The messages of the waiting frame; false if there is none.
  bool TakeAll(std::vector<v1::ViewerUpdate>& updates) {
    FrameWriter writer;
    {
      const std::lock_guard lock(mutex_);
      writer = std::exchange(slot_, nullptr);
    }
    if (!writer) return false;
    while (writer(0, updates.emplace_back())) continue;
    return true;
  }
  bool closed() const {
    const std::lock_guard lock(mutex_);
    return closed_;
  }

 private:
  mutable std::mutex mutex_;
  std::deque<v1::ViewerUpdate> messages_;
  FrameWriter slot_;
  uint64_t dropped_ = 0;
  bool closed_ = false;
};

class ViewerBridgeTest : public ServerTest {
 protected:
  void SetUp() override {
    ServerTest::SetUp();
    bridge_ = std::make_unique<ViewerBridge>(server_->manager());
    sink_ = std::make_shared<FakeSink>();
    absl::StatusOr<std::unique_ptr<ViewerSession>> session = bridge_->OpenSession(sink_, "127.0.0.1:9");
    ASSERT_TRUE(session.ok());
    session_ = *std::move(session);
  }
  void TearDown() override {
    session_.reset();
    ServerTest::TearDown();
  }

  /// Sends a request and waits for the next message.
  v1::ViewerUpdate Ask(v1::ViewerRequest request) {
    request.set_request_id(++request_id_);
    session_->OnRequest(request);
    return NextMessage();
  }
  v1::ViewerUpdate NextMessage() {
    std::optional<v1::ViewerUpdate> update;
    EXPECT_TRUE(Eventually([&] { return (update = sink_->TakeMessage()).has_value(); }));
    return update.value_or(v1::ViewerUpdate());
  }
  v1::ViewerUpdate NextFrame() {
    std::optional<v1::ViewerUpdate> update;
    EXPECT_TRUE(Eventually([&] { return (update = sink_->TakeFrame()).has_value(); }));
    return update.value_or(v1::ViewerUpdate());
  }

  std::unique_ptr<ViewerBridge> bridge_;
  std::shared_ptr<FakeSink> sink_;
  std::unique_ptr<ViewerSession> session_;
  uint32_t request_id_ = 0;
};

/// Pongs and other requests come through the same thread: it must not wait for a scene.
TEST_F(ViewerBridgeTest, LongStepsHoldUpNothingElse) {
  const std::string id = CreateScene();
  v1::ViewerRequest steps;
  steps.set_request_id(7);
  steps.mutable_step()->set_scene_id(id);
  steps.mutable_step()->set_count(100000);
  session_->OnRequest(steps);
  v1::ViewerRequest list;
  list.mutable_list();
  EXPECT_TRUE(Ask(list).has_list()) << "before the answer to the steps";
  // What waits is bounded.
  steps.mutable_step()->set_count(1);
  for (uint32_t i = 0; i < 63; ++i) session_->OnRequest(steps);
  EXPECT_THAT(Ask(steps).error().message(), HasSubstr("64 requests of this browser wait"));
  // Who is gone waits for nothing.
  session_.reset();
  EXPECT_TRUE(Eventually([&] { return Step(id, 1).ok(); }));
  EXPECT_LT(Get(id).step(), 100000U);
}

TEST_F(ViewerBridgeTest, ControlsAnswerWithTheScene) {
  const std::string id = CreateScene(false, "a");
  v1::ViewerRequest request;
  request.mutable_list();
  v1::ViewerUpdate update = Ask(request);
  EXPECT_EQ(update.request_id(), request_id_);
  ASSERT_EQ(update.list().scenes_size(), 1);
  EXPECT_EQ(update.list().scenes(0).scene_id(), id);

  request.mutable_step()->set_scene_id(id);
  request.mutable_step()->set_count(3);
  EXPECT_EQ(Ask(request).scene().step(), 3U);
  request.mutable_reset()->set_scene_id(id);
  EXPECT_EQ(Ask(request).scene().step(), 0U);
  request.mutable_set_rate()->set_scene_id(id);
  request.mutable_set_rate()->mutable_rate()->set_speed(2);
  EXPECT_EQ(Ask(request).scene().rate().speed(), 2);
  request.mutable_play()->set_scene_id(id);
  EXPECT_EQ(Ask(request).scene().state(), v1::RUN_STATE_PLAYING);
  request.mutable_pause()->set_scene_id(id);
  EXPECT_EQ(Ask(request).scene().state(), v1::RUN_STATE_PAUSED);
  request.mutable_server_info();
  EXPECT_FALSE(Ask(request).server_info().version().empty());
}

TEST_F(ViewerBridgeTest, ErrorsCarryTheCodeAndTheRequest) {
  const std::string id = CreateScene(false, "a");
  v1::ViewerRequest request;
  v1::ViewerUpdate update = Ask(request);
  EXPECT_EQ(update.error().code(), static_cast<int>(absl::StatusCode::kInvalidArgument));
  EXPECT_EQ(update.request_id(), request_id_);
  request.mutable_play()->set_scene_id("none");
  EXPECT_EQ(Ask(request).error().code(), static_cast<int>(absl::StatusCode::kNotFound));
  request.mutable_step()->set_scene_id(id);
  EXPECT_THAT(Ask(request).error().message(), HasSubstr("count: 0 is outside [1, 100000]"));
  request.mutable_set_rate()->set_scene_id(id);
  request.mutable_set_rate()->mutable_rate()->set_speed(std::nan(""));
  EXPECT_THAT(Ask(request).error().message(), HasSubstr("rate.speed"));
  request.mutable_watch()->set_scene_id(id);
  request.mutable_watch()->set_max_rate_hz(-1);
  EXPECT_THAT(Ask(request).error().message(), HasSubstr("max_rate_hz"));
  request.mutable_pose();
  EXPECT_EQ(Ask(request).error().code(), static_cast<int>(absl::StatusCode::kFailedPrecondition));
}

TEST_F(ViewerBridgeTest, WatchSendsTheKeyframeThenOffersFrames) {
  const std::string id = CreateScene();
  v1::ViewerRequest request;
  request.mutable_watch()->set_scene_id(id);
  request.mutable_watch()->set_max_rate_hz(10000);
  request.mutable_watch()->set_positions(v1::POSITION_ENCODING_UINT16);
  session_->OnRequest(request);
  v1::ViewerUpdate update = NextFrame();
  EXPECT_EQ(update.request_id(), 0U);
  ASSERT_TRUE(update.watch().has_keyframe());
  EXPECT_EQ(update.watch().keyframe().bodies(0).vertex_count(), 26U);
  EXPECT_EQ(update.watch().keyframe().frame().bodies(0).positions().size(), 26U * 6);

  ASSERT_TRUE(Step(id, 1).ok());
  update = NextFrame();
  EXPECT_EQ(update.watch().frame().step(), 1U);
  EXPECT_EQ(update.watch().frame().dropped(), 0U);
  // A browser that does not take frames gets the newest, and the count of the others.
  ASSERT_TRUE(Step(id, 5).ok());
  ASSERT_TRUE(Eventually([&] { return !sink_->CanTakeFrame(); }));
  uint64_t step = 0;
  uint64_t dropped = 0;
  ASSERT_TRUE(Eventually([&] {
    if (const std::optional<v1::ViewerUpdate> frame = sink_->TakeFrame()) {
      step = frame->watch().frame().step();
      dropped = frame->watch().frame().dropped();
    }
    return step == 6;
  }));
  EXPECT_LE(dropped, 4U);

  // A second watch replaces the first.
  const std::string other = CreateScene();
  request.mutable_watch()->set_scene_id(other);
  session_->OnRequest(request);
  EXPECT_EQ(NextFrame().watch().keyframe().scene().scene_id(), other);
  EXPECT_TRUE(Eventually([&] { return Get(id).watchers() == 0; }));
  EXPECT_EQ(Get(other).watchers(), 1U);
  ASSERT_TRUE(Delete(other).ok());
  update = NextMessage();
  EXPECT_EQ(update.error().code(), static_cast<int>(absl::StatusCode::kAborted));
  EXPECT_EQ(update.request_id(), 0U);
}

TEST_F(ViewerBridgeTest, EditsAnswerAndTheWatchGetsADeltaAndAFrame) {
  const std::string id = CreateScene(false, "a");
  v1::ViewerRequest watch;
  watch.mutable_watch()->set_scene_id(id);
  session_->OnRequest(watch);
  ASSERT_TRUE(NextFrame().watch().has_keyframe());
  v1::ViewerRequest request;
  request.mutable_edit()->set_scene_id(id);
  EXPECT_THAT(Ask(request).error().message(), HasSubstr("edits: 0 entries"));
  v1::Edit& edit = *request.mutable_edit()->add_edits();
  edit.set_body("slab");
  v1::BallRegion& ball = *edit.mutable_carve()->mutable_region()->mutable_ball();
  ball.mutable_center_m()->set_z(0.05);
  ball.mutable_center_m()->set_x(0.05);
  ball.set_radius_m(0.03);
  const v1::ViewerUpdate answer = Ask(request);
  ASSERT_TRUE(answer.has_edit()) << answer.error().message();
  EXPECT_EQ(answer.edit().topology_version(), 2U);
  std::vector<v1::ViewerUpdate> updates;
  ASSERT_TRUE(Eventually([&] { return sink_->TakeAll(updates); }));
  // The delta of so small a mesh may be longer than a keyframe, which brings its frame with it.
  if (updates.size() == 2) {
    EXPECT_EQ(updates[0].watch().delta().to_version(), 2U);
    EXPECT_EQ(updates[1].watch().frame().topology_version(), 2U);
  } else {
    ASSERT_EQ(updates.size(), 1U);
    EXPECT_EQ(updates[0].watch().keyframe().frame().topology_version(), 2U);
  }
}

TEST_F(ViewerBridgeTest, TheMouseTakesAFreeTool) {
  const std::string id = CreateScene();
  v1::ViewerRequest request;
  request.mutable_attach()->set_scene_id(id);
  request.mutable_attach()->set_tool("probe");
  v1::ViewerUpdate update = Ask(request);
  ASSERT_TRUE(update.operate().has_attached());
  EXPECT_EQ(update.operate().attached().radius_m(), 0.005);
  EXPECT_EQ(Ask(request).error().code(), static_cast<int>(absl::StatusCode::kFailedPrecondition));

  v1::ViewerRequest pose;
  pose.mutable_pose()->set_sequence(1);
  pose.mutable_pose()->mutable_pose()->mutable_position_m()->set_x(0.3);
  pose.mutable_pose()->mutable_pose()->mutable_position_m()->set_z(0.3);
  session_->OnRequest(pose);
  EXPECT_FALSE(sink_->TakeMessage().has_value());  // no answer unless it fails
  v1::SceneInfo info;
  ASSERT_TRUE(Step(id, 1, &info).ok());
  EXPECT_EQ(server_->manager().List()[0]->Snapshot()->frame->tools[0].device_pose.position_m.x(), 0.3);
  pose.mutable_pose()->set_sequence(2);
  pose.mutable_pose()->mutable_pose()->mutable_position_m()->set_x(std::nan(""));
  EXPECT_EQ(Ask(pose).error().code(), static_cast<int>(absl::StatusCode::kInvalidArgument));

  // Two browsers, one tool.
  const auto second_sink = std::make_shared<FakeSink>();
  absl::StatusOr<std::unique_ptr<ViewerSession>> second = bridge_->OpenSession(second_sink, "127.0.0.1:10");
  ASSERT_TRUE(second.ok());
  (*second)->OnRequest(request);
  EXPECT_EQ(second_sink->TakeMessage()->error().code(), static_cast<int>(absl::StatusCode::kAlreadyExists));

  v1::ViewerRequest release;
  release.mutable_release();
  EXPECT_TRUE(Ask(release).has_released());
  (*second)->OnRequest(request);
  EXPECT_TRUE(second_sink->TakeMessage()->operate().has_attached());
  // A browser that goes gives its tool back.
  second->reset();
  EXPECT_TRUE(Get(id).operated_tools().empty());
}

TEST_F(ViewerBridgeTest, StopSaysWhyAndCloses) {
  server_->manager().ShutdownAndWait();
  const v1::ViewerUpdate update = NextMessage();
  EXPECT_EQ(update.error().code(), static_cast<int>(absl::StatusCode::kUnavailable));
  EXPECT_TRUE(sink_->closed());
}

}  // namespace
}  // namespace palpate::server::viewer_bridge_test
