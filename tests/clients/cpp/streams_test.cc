// The client library against services of our own on a loopback port.
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "clients/cpp/operate_stream.h"
#include "clients/cpp/scene_client.h"
#include "clients/cpp/watch_stream.h"
#include "tests/clients/station/fake_haptic_server.h"

namespace palpate::client::streams_test {
namespace {

using ::palpate::testing::FakeHapticServer;
using ::testing::HasSubstr;

Connection ConnectTo(const std::string& address) {
  ConnectionOptions options;
  options.target = address;
  return *Connection::Open(options);
}

/// Waits up to 20 s for a condition.
template <typename Condition>
bool Eventually(const Condition& condition) {
  for (int i = 0; i < 2000; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

OperateOptions ForScene(const std::string& scene_id) {
  OperateOptions options;
  options.attach.set_scene_id(scene_id);
  options.attach.set_tool("tool");
  options.first_backoff = std::chrono::milliseconds(20);
  return options;
}

TEST(OperateStream, SendsTheNewestPoseAndReceivesModels) {
  const FakeHapticServer server({.rate_hz = 200});
  std::atomic<uint64_t> produced{0};
  std::atomic<uint64_t> newest_echoed{0};
  std::atomic<int> models{0};
  OperateOptions options = ForScene("scene");
  options.next_pose = [&](v1::ToolPose* pose) {
    pose->set_sequence(produced.fetch_add(3) + 3);  // some poses are overtaken
    pose->mutable_pose()->mutable_rotation()->set_w(1);
    return true;
  };
  options.on_model = [&](const v1::LocalModel& model) {
    newest_echoed.store(model.pose_sequence());
    models.fetch_add(1);
  };
  OperateStream stream(ConnectTo(server.address()), options);
  EXPECT_TRUE(Eventually([&] { return models.load() > 20 && newest_echoed.load() > 30; }));
  stream.Stop();
  EXPECT_EQ(server.out_of_order_poses(), 0U);
  EXPECT_LE(newest_echoed.load(), produced.load());
  EXPECT_EQ(stream.attachments(), 1U);
  EXPECT_TRUE(stream.done());
}

TEST(OperateStream, AttachesAgainWhenItsStreamBreaks) {
  const FakeHapticServer server({.rate_hz = 500, .models_per_stream = 5});
  std::atomic<int> attached{0};
  std::atomic<int> detached{0};
  OperateOptions options = ForScene("scene");
  options.on_attached = [&](const v1::Attached&) { attached.fetch_add(1); };
  options.on_detached = [&](const absl::Status&, std::chrono::milliseconds) { detached.fetch_add(1); };
  OperateStream stream(ConnectTo(server.address()), options);
  EXPECT_TRUE(Eventually([&] { return attached.load() >= 4; }));
  stream.Stop();
  EXPECT_GE(detached.load(), 3);
  EXPECT_EQ(stream.attachments(), static_cast<uint64_t>(attached.load()));
}

TEST(OperateStream, GivesUpOnARefusalForGood) {
  const FakeHapticServer server({.attach_status = grpc::Status(grpc::StatusCode::PERMISSION_DENIED, "not you")});
  std::atomic<bool> final{false};
  std::string why;
  OperateOptions options = ForScene("scene");
  options.on_detached = [&](const absl::Status& status, std::chrono::milliseconds retry_in) {
    why = std::string(status.message());
    final.store(retry_in.count() == 0);
  };
  OperateStream stream(ConnectTo(server.address()), options);
  EXPECT_TRUE(Eventually([&] { return stream.done(); }));
  stream.Stop();
  EXPECT_TRUE(final.load());
  EXPECT_EQ(why, "not you");
  EXPECT_EQ(stream.attachments(), 0U);
}

TEST(OperateStream, TriesAMissingSceneForAWhile) {
  const FakeHapticServer server({});
  std::atomic<int> retries{0};
  OperateOptions options = ForScene("elsewhere");
  options.missing_scene_patience = std::chrono::milliseconds(300);
  options.on_detached = [&](const absl::Status& status, std::chrono::milliseconds retry_in) {
    EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
    if (retry_in.count() > 0) retries.fetch_add(1);
  };
  OperateStream stream(ConnectTo(server.address()), options);
  EXPECT_TRUE(Eventually([&] { return stream.done(); }));
  EXPECT_GE(retries.load(), 2);
}

TEST(OperateStream, CarriesTheToken) {
  const FakeHapticServer server({.wanted_token = "secret"});
  OperateStream stream(ConnectTo(server.address()), ForScene("scene"));
  EXPECT_TRUE(Eventually([&] { return stream.done(); }));
  EXPECT_EQ(stream.attachments(), 0U);
}

TEST(OperateStream, StopsWhileNobodyAnswers) {
  std::atomic<int> attempts = 0;
  OperateOptions options = ForScene("scene");
  options.on_detached = [&](const absl::Status&, std::chrono::milliseconds) { ++attempts; };
  OperateStream stream(ConnectTo("127.0.0.1:9"), std::move(options));
  EXPECT_TRUE(Eventually([&] { return attempts > 1; }));
  stream.Stop();
  EXPECT_TRUE(stream.done());
}

/// Scenes and frames that are made up.
class FakeScenes final : public v1::SceneService::Service, public v1::StreamService::Service {
 public:
  FakeScenes() {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(static_cast<v1::SceneService::Service*>(this));
    builder.RegisterService(static_cast<v1::StreamService::Service*>(this));
    server_ = builder.BuildAndStart();
  }
  ~FakeScenes() override { server_->Shutdown(std::chrono::system_clock::now()); }
  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }

  grpc::Status ListScenes(grpc::ServerContext*, const v1::ListScenesRequest*, v1::ListScenesResponse* response) override {
    response->add_scenes()->set_scene_id("a");
    response->add_scenes()->set_scene_id("b");
    return grpc::Status::OK;
  }
  grpc::Status StepScene(grpc::ServerContext*, const v1::StepSceneRequest* request, v1::StepSceneResponse* response) override {
    if (request->count() == 0) return grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "count");
    response->mutable_scene()->set_step(request->count());
    return grpc::Status::OK;
  }
  grpc::Status DeleteScene(grpc::ServerContext*, const v1::DeleteSceneRequest* request, v1::DeleteSceneResponse*) override {
    return request->scene_id() == "a" ? grpc::Status::OK : grpc::Status(grpc::StatusCode::NOT_FOUND, "no scene " + request->scene_id());
  }
  grpc::Status ResetScene(grpc::ServerContext* context, const v1::ResetSceneRequest*, v1::ResetSceneResponse*) override {
    while (!context->IsCancelled()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    return grpc::Status::CANCELLED;
  }
  grpc::Status Watch(grpc::ServerContext* context, const v1::WatchRequest* request, grpc::ServerWriter<v1::WatchUpdate>* writer) override {
    v1::WatchUpdate update;
    update.mutable_keyframe()->set_topology_version(1);
    writer->Write(update);
    const bool endless = request->scene_id() == "endless";
    for (uint64_t step = 1; endless ? !context->IsCancelled() : step <= 3; ++step) {
      update.mutable_frame()->set_step(step);
      update.mutable_frame()->set_topology_version(request->scene_id() == "torn" && step == 2 ? 2 : 1);
      if (!writer->Write(update)) break;
      if (endless) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return grpc::Status(grpc::StatusCode::ABORTED, "the scene was deleted");
  }

 private:
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

TEST(SceneClient, CallsAndPassesErrorsOn) {
  const FakeScenes scenes;
  SceneClient client(ConnectTo(scenes.address()));
  const auto list = client.List();
  ASSERT_TRUE(list.ok()) << list.status();
  ASSERT_EQ(list->size(), 2U);
  EXPECT_EQ((*list)[1].scene_id(), "b");
  EXPECT_EQ(client.Step("a", 5)->step(), 5U);
  EXPECT_EQ(client.Step("a", 0).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(client.Delete("a").ok());
  EXPECT_THAT(std::string(client.Delete("b").message()), HasSubstr("no scene b"));
  EXPECT_EQ(client.ServerInfo().status().code(), absl::StatusCode::kUnimplemented);
}

TEST(SceneClient, DoesNotWaitForEver) {
  const FakeScenes scenes;
  SceneClient client(ConnectTo(scenes.address()), std::chrono::milliseconds(200));
  EXPECT_EQ(client.Reset("a").status().code(), absl::StatusCode::kDeadlineExceeded);
}

TEST(WatchStream, ReadsToTheEndAndSaysWhyItEnded) {
  const FakeScenes scenes;
  WatchStream stream(ConnectTo(scenes.address()), {});
  v1::WatchUpdate update;
  ASSERT_TRUE(stream.Read(&update));
  EXPECT_TRUE(update.has_keyframe());
  for (uint64_t step = 1; step <= 3; ++step) {
    ASSERT_TRUE(stream.Read(&update));
    EXPECT_EQ(update.frame().step(), step);
  }
  EXPECT_FALSE(stream.Read(&update));
  const absl::Status status = stream.Finish();
  EXPECT_EQ(status.code(), absl::StatusCode::kAborted);
  EXPECT_EQ(std::string(status.message()), "the scene was deleted");
}

TEST(WatchStream, EndsWhenAnUpdateDoesNotFit) {
  const FakeScenes scenes;
  v1::WatchRequest request;
  request.set_scene_id("torn");
  WatchStream stream(ConnectTo(scenes.address()), request);
  v1::WatchUpdate update;
  EXPECT_TRUE(stream.Read(&update));
  EXPECT_TRUE(stream.Read(&update));
  EXPECT_FALSE(stream.Read(&update));
  EXPECT_FALSE(stream.Read(&update));
  const absl::Status status = stream.Finish();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(std::string(status.message()), "frame 2 is of topology version 2, the arrays are of 1");
}

TEST(WatchStream, CanBeCancelledFromAnotherThread) {
  const FakeScenes scenes;
  v1::WatchRequest request;
  request.set_scene_id("endless");
  WatchStream stream(ConnectTo(scenes.address()), request);
  v1::WatchUpdate update;
  ASSERT_TRUE(stream.Read(&update));
  std::thread canceller([&] { stream.Cancel(); });
  while (stream.Read(&update)) {
  }
  canceller.join();
  EXPECT_EQ(stream.Finish().code(), absl::StatusCode::kCancelled);
}

TEST(WatchStream, MayBeLeftInTheMiddle) {
  const FakeScenes scenes;
  v1::WatchRequest request;
  request.set_scene_id("endless");
  WatchStream stream(ConnectTo(scenes.address()), request);
  v1::WatchUpdate update;
  EXPECT_TRUE(stream.Read(&update));
}

}  // namespace
}  // namespace palpate::client::streams_test
