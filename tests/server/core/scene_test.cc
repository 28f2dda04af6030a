#include "server/core/scene.h"

#include <gmock/gmock.h>

#include <atomic>
#include <chrono>
#include <future>
#include <limits>
#include <mutex>
#include <set>
#include <thread>
#include <tuple>
#include <vector>

#include "sim/scene/scene_spec.h"
#include "tests/server/core/server_fixture.h"

namespace palpate::server::scene_test {
namespace {

using ::testing::HasSubstr;

class Recorder : public SnapshotListener {
 public:
  void OnSnapshot(const std::shared_ptr<const SceneSnapshot>& snapshot) override {
    const std::lock_guard lock(mutex_);
    snapshots_.push_back(snapshot);
  }
  void OnSceneEnd(const absl::Status& reason) override {
    const std::lock_guard lock(mutex_);
    ends_.push_back(reason);
  }
  std::vector<std::shared_ptr<const SceneSnapshot>> snapshots() const {
    const std::lock_guard lock(mutex_);
    return snapshots_;
  }
  std::vector<absl::Status> ends() const {
    const std::lock_guard lock(mutex_);
    return ends_;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<std::shared_ptr<const SceneSnapshot>> snapshots_;
  std::vector<absl::Status> ends_;
};

class SceneTest : public ::testing::Test {
 protected:
  void SetUp() override { ConfigureLog(LogLevel::kOff, false); }

  std::unique_ptr<sim::World> NewWorld() {
    absl::StatusOr<sim::SceneDescription> description = scene::BuildSceneDescription(TinyScene(), scene::AssetRootResolver(""), {});
    EXPECT_TRUE(description.ok()) << description.status();
    absl::StatusOr<std::unique_ptr<sim::World>> world = sim::World::Create(TestContext(), *std::move(description));
    EXPECT_TRUE(world.ok()) << world.status();
    return *std::move(world);
  }
  std::shared_ptr<Scene> NewScene(std::unique_ptr<sim::World> world) {
    return Scene::Start(StartOf("test", TinyScene(), std::move(world)), pool_, metrics_);
  }
  static SceneStart StartOf(const std::string& id, const v1::SceneSpec& spec, std::unique_ptr<sim::World> world) {
    SceneStart start;
    start.id = id;
    start.spec = spec;
    start.world = std::move(world);
    start.rate = *NormalizeRate({});
    return start;
  }
  /// Runs an asynchronous call and waits for its answer.
  template <typename Call>
  absl::StatusOr<v1::SceneInfo> Await(Call call) {
    std::promise<absl::StatusOr<v1::SceneInfo>> promise;
    call([&promise](absl::StatusOr<v1::SceneInfo> info) { promise.set_value(std::move(info)); });
    return promise.get_future().get();
  }
  absl::StatusOr<v1::SceneInfo> Step(Scene& scene, uint32_t count) {
    return Await([&](Done<v1::SceneInfo> done) { scene.Step(count, {}, nullptr, std::move(done)); });
  }

  Metrics metrics_{nullptr};
  WorkerPool pool_{"test", 2};
};

TEST_F(SceneTest, ListenersSeeEveryStepInOrderAndTheEndLast) {
  const std::shared_ptr<Scene> scene = NewScene(NewWorld());
  const auto recorder = std::make_shared<Recorder>();
  ASSERT_TRUE(scene->AddListener(recorder, false).ok());
  ASSERT_TRUE(Step(*scene, 10).ok());
  std::vector<std::shared_ptr<const SceneSnapshot>> snapshots = recorder->snapshots();
  ASSERT_EQ(snapshots.size(), 11U);  // the present one first
  for (size_t i = 0; i < snapshots.size(); ++i) {
    EXPECT_EQ(snapshots[i]->frame->step, i);
    if (i > 0) {
      EXPECT_EQ(snapshots[i]->serial, snapshots[i - 1]->serial + 1);
    }
  }
  std::promise<void> stopped;
  scene->Stop(absl::AbortedError("deleted"), [&] { stopped.set_value(); });
  stopped.get_future().wait();
  ASSERT_EQ(recorder->ends().size(), 1U);
  EXPECT_EQ(recorder->ends()[0].code(), absl::StatusCode::kAborted);
  EXPECT_EQ(recorder->snapshots().size(), 11U);
  // After the end everything is refused with the reason.
  EXPECT_EQ(Step(*scene, 1).status().code(), absl::StatusCode::kAborted);
  EXPECT_EQ(scene->AddListener(recorder, false).code(), absl::StatusCode::kAborted);
}

TEST_F(SceneTest, RemovedListenersAreNotCalled) {
  const std::shared_ptr<Scene> scene = NewScene(NewWorld());
  const auto recorder = std::make_shared<Recorder>();
  ASSERT_TRUE(scene->AddListener(recorder, false).ok());
  scene->RemoveListener(recorder.get());
  ASSERT_TRUE(Step(*scene, 3).ok());
  EXPECT_EQ(recorder->snapshots().size(), 1U);
}

TEST_F(SceneTest, AShowWaitsForItsFirstViewerOrStation) {
  v1::SceneSpec spec = TinyScene();
  spec.set_start(v1::START_WHEN_WATCHED);
  v1::Rate rate;
  rate.set_mode(v1::RATE_MODE_AS_FAST_AS_POSSIBLE);
  const auto start = [&] {
    SceneStart begin = StartOf("test", spec, NewWorld());
    begin.rate = *NormalizeRate(rate);
    begin.play = true;
    return Scene::Start(std::move(begin), pool_, metrics_);
  };
  // Its thread performs a command, and then a step if one is due, before it comes to the next command.
  const auto round_trips = [&](Scene& scene) {
    absl::StatusOr<v1::SceneInfo> info;
    for (int i = 0; i < 20; ++i) info = Await([&](Done<v1::SceneInfo> done) { scene.SetRate(rate, std::move(done)); });
    return info->step();
  };
  const auto wait_for_step = [&](Scene& scene) {
    while (scene.Info().step() == 0) std::this_thread::yield();
  };
  const std::shared_ptr<Scene> watched = start();
  EXPECT_EQ(round_trips(*watched), 0U);
  EXPECT_EQ(watched->Info().state(), v1::RUN_STATE_PLAYING);
  watched->OnWatcherOpened();
  wait_for_step(*watched);
  // It goes on when the viewer leaves, and waits again after a reset.
  watched->OnWatcherClosed();
  const uint64_t then = watched->Info().step();
  while (watched->Info().step() <= then) std::this_thread::yield();
  ASSERT_TRUE(Await([&](Done<v1::SceneInfo> done) { watched->Reset("", "", nullptr, std::move(done)); }).ok());
  EXPECT_EQ(round_trips(*watched), 0U);

  const std::shared_ptr<Scene> operated = start();
  EXPECT_EQ(round_trips(*operated), 0U);
  v1::Attach attach;
  attach.set_tool(spec.tools(0).name());
  const auto lease = operated->AcquireTool(attach);
  ASSERT_TRUE(lease.ok()) << lease.status();
  wait_for_step(*operated);

  spec.set_start(v1::START_AT_ONCE);
  const std::shared_ptr<Scene> at_once = start();
  wait_for_step(*at_once);
}

TEST_F(SceneTest, VolumeIsGivenOnlyWhileSomebodyWantsIt) {
  const std::shared_ptr<Scene> scene = NewScene(NewWorld());
  const auto recorder = std::make_shared<Recorder>();
  ASSERT_TRUE(scene->AddListener(recorder, true).ok());
  ASSERT_TRUE(Step(*scene, 1).ok());
  ASSERT_TRUE(HasVolume(*scene->Snapshot()->frame));
  EXPECT_EQ(scene->Snapshot()->frame->volume_positions_m[0].size(), 27U * 3);
  scene->RemoveListener(recorder.get());
  ASSERT_TRUE(Step(*scene, 1).ok());
  EXPECT_FALSE(HasVolume(*scene->Snapshot()->frame));
}

TEST_F(SceneTest, AFailedSceneStopsAloneSaysWhyAndRecoversByReset) {
  std::unique_ptr<sim::World> world = NewWorld();
  // Positions whose squares overflow: the next step cannot be finite.
  std::vector<float> positions(27 * 3);
  for (size_t i = 0; i < positions.size(); ++i) positions[i] = (i % 2 == 0 ? 1.0F : -1.0F) * std::numeric_limits<float>::max() / 4;
  ASSERT_TRUE(world->WriteVolumePositions(0, positions).ok());
  const std::shared_ptr<Scene> scene = NewScene(std::move(world));
  const auto recorder = std::make_shared<Recorder>();
  ASSERT_TRUE(scene->AddListener(recorder, false).ok());

  const absl::Status failed = Step(*scene, 5).status();
  EXPECT_EQ(failed.code(), absl::StatusCode::kDataLoss) << failed;
  const v1::SceneInfo info = scene->Info();
  EXPECT_EQ(info.state(), v1::RUN_STATE_FAILED);
  EXPECT_FALSE(info.failure().empty());
  EXPECT_EQ(recorder->snapshots().back()->status.state, v1::RUN_STATE_FAILED);
  EXPECT_EQ(recorder->snapshots().back()->status.failure, info.failure());
  EXPECT_TRUE(recorder->ends().empty());  // the stream goes on: somebody may reset the scene

  const absl::Status play = Await([&](Done<v1::SceneInfo> done) { scene->Play(std::move(done)); }).status();
  EXPECT_EQ(play.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(play.message()), HasSubstr("needs a reset"));
  EXPECT_EQ(Step(*scene, 1).status().code(), absl::StatusCode::kFailedPrecondition);

  const std::shared_ptr<Scene> healthy = Scene::Start(StartOf("healthy", TinyScene(), NewWorld()), pool_, metrics_);
  EXPECT_TRUE(Step(*healthy, 2).ok());

  const absl::StatusOr<v1::SceneInfo> reset = Await([&](Done<v1::SceneInfo> done) { scene->Reset("", "", nullptr, std::move(done)); });
  ASSERT_TRUE(reset.ok()) << reset.status();
  EXPECT_EQ(reset->state(), v1::RUN_STATE_PAUSED);
  EXPECT_TRUE(reset->failure().empty());
  const absl::StatusOr<v1::SceneInfo> stepped = Step(*scene, 2);
  ASSERT_TRUE(stepped.ok()) << stepped.status();
  EXPECT_EQ(stepped->state_hash(), healthy->Info().state_hash());
}

TEST_F(SceneTest, CommandsFromManyThreadsAreAllAnswered) {
  const std::shared_ptr<Scene> scene = NewScene(NewWorld());
  std::atomic<int> answers = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 25; ++i) {
        const Done<v1::SceneInfo> done = [&answers](const absl::StatusOr<v1::SceneInfo>&) { ++answers; };
        switch ((t + i) % 5) {
          case 0:
            scene->Play(done);
            break;
          case 1:
            scene->Pause(done);
            break;
          case 2:
            scene->Step(3, {}, nullptr, done);
            break;
          case 3:
            scene->Reset("", "", nullptr, done);
            break;
          default:
            scene->SetRate(*NormalizeRate({}), done);
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  // Step requests that wait behind a pause or a reset are ended by it; the last may still step.
  std::promise<void> stopped;
  scene->Stop(absl::AbortedError("deleted"), [&] { stopped.set_value(); });
  stopped.get_future().wait();
  EXPECT_TRUE(Eventually([&] { return answers == 100; })) << answers;
}

TEST_F(SceneTest, EditsThatWaitTogetherHoldUpNoMoreThanOneStep) {
  const std::shared_ptr<Scene> scene = NewScene(NewWorld());
  v1::Rate rate;
  rate.set_mode(v1::RATE_MODE_AS_FAST_AS_POSSIBLE);
  ASSERT_TRUE(Await([&](Done<v1::SceneInfo> done) { scene->SetRate(*NormalizeRate(rate), std::move(done)); }).ok());
  ASSERT_TRUE(Await([&](Done<v1::SceneInfo> done) { scene->Play(std::move(done)); }).ok());
  v1::EditSceneRequest request;
  request.set_scene_id("test");
  request.add_edits()->set_body("slab");
  request.mutable_edits(0)->mutable_material()->mutable_material()->set_density_kg_per_m3(1000);
  std::vector<std::promise<absl::StatusOr<v1::EditSceneResponse>>> answers(12);
  for (auto& answer : answers) {
    scene->Edit(request, nullptr, [&answer](absl::StatusOr<v1::EditSceneResponse> response) { answer.set_value(std::move(response)); });
  }
  uint64_t last = 0;
  for (size_t i = 0; i < answers.size(); ++i) {
    const absl::StatusOr<v1::EditSceneResponse> response = answers[i].get_future().get();
    ASSERT_TRUE(response.ok()) << response.status();
    if (i > 0) {
      EXPECT_GT(response->step(), last);
    }
    last = response->step();
  }
}

TEST_F(SceneTest, OneLongRequestHoldsUpNoMoreThanOneStep) {
  const std::shared_ptr<Scene> scene = NewScene(NewWorld());
  v1::EditSceneRequest request;
  request.set_scene_id("test");
  for (int i = 0; i < 200; ++i) {
    v1::Edit& edit = *request.add_edits();
    edit.set_body("slab");
    edit.mutable_carve()->mutable_region()->mutable_ball()->set_radius_m(1e-5);
    edit.mutable_carve()->mutable_region()->mutable_ball()->mutable_center_m()->set_x(0.049 - 1e-5 * i);
  }
  const auto edit = [&](const v1::EditSceneRequest& what, std::function<bool()> is_cancelled) {
    std::promise<absl::StatusOr<v1::EditSceneResponse>> answer;
    scene->Edit(what, std::move(is_cancelled),
                [&](absl::StatusOr<v1::EditSceneResponse> response) { answer.set_value(std::move(response)); });
    return answer.get_future().get();
  };
  // Stepped by request: all at once, whatever the machine.
  absl::StatusOr<v1::EditSceneResponse> response = edit(request, nullptr);
  ASSERT_TRUE(response.ok()) << response.status();
  EXPECT_EQ(response->outcomes_size(), 200);
  EXPECT_EQ(response->step(), 0U);

  // While it plays, the request goes on between steps.
  v1::Rate rate;
  rate.set_mode(v1::RATE_MODE_AS_FAST_AS_POSSIBLE);
  ASSERT_TRUE(Await([&](Done<v1::SceneInfo> done) { scene->SetRate(*NormalizeRate(rate), std::move(done)); }).ok());
  ASSERT_TRUE(Await([&](Done<v1::SceneInfo> done) { scene->Play(std::move(done)); }).ok());
  uint64_t asked_count = 0;
  std::set<uint64_t> steps;
  response = edit(request, [&] {
    ++asked_count;
    steps.insert(scene->Snapshot()->frame->step);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));  // an edit that takes its time
    return false;
  });
  ASSERT_TRUE(response.ok()) << response.status();
  EXPECT_EQ(response->outcomes_size(), 200);
  EXPECT_EQ(response->left_out_count(), 0U);
  EXPECT_GE(asked_count, 200U) << "asked before each edit";
  EXPECT_GE(steps.size(), 10U) << "200 ms in pieces of 10";

  // Given up by its caller: what was done is told to who asks again.
  request.set_key("long");
  int asked = 0;
  response = edit(request, [&] { return ++asked > 5; });
  EXPECT_EQ(response.status().code(), absl::StatusCode::kCancelled);
  EXPECT_THAT(std::string(response.status().message()), HasSubstr("of 200 edits"));
  response = edit(request, nullptr);
  ASSERT_TRUE(response.ok()) << response.status();
  EXPECT_TRUE(response->is_repeat());
  EXPECT_GT(response->outcomes_size(), 0);
  EXPECT_EQ(response->outcomes_size() + static_cast<int>(response->left_out_count()), 200);
  EXPECT_GT(response->left_out_count(), 0U);
  // Given up before it began: nothing to remember.
  request.set_key("never");
  EXPECT_EQ(edit(request, [] { return true; }).status().code(), absl::StatusCode::kCancelled);
  response = edit(request, nullptr);
  ASSERT_TRUE(response.ok()) << response.status();
  EXPECT_FALSE(response->is_repeat());
  // The scene stops in the middle.
  request.set_key("stopped");
  std::promise<absl::StatusOr<v1::EditSceneResponse>> answer;
  std::promise<void> begun;
  int calls = 0;
  scene->Edit(
      request,
      [&] {
        if (++calls == 2) begun.set_value();
        return false;
      },
      [&](absl::StatusOr<v1::EditSceneResponse> late) { answer.set_value(std::move(late)); });
  begun.get_future().wait();
  scene->Stop(absl::UnavailableError("the server is stopping"), nullptr);
  const absl::StatusOr<v1::EditSceneResponse> late = answer.get_future().get();
  if (!late.ok()) {
    EXPECT_EQ(late.status().code(), absl::StatusCode::kUnavailable);
  }
}

TEST_F(SceneTest, ResetsThatWaitTogetherAreOneAndStepsGoOn) {
  const std::shared_ptr<Scene> scene = NewScene(NewWorld());
  // A command that waits holds the scene's thread until all resets are there.
  std::promise<void> all_there;
  const std::shared_future<void> gate = all_there.get_future().share();
  ASSERT_TRUE(Step(*scene, 3).ok());
  std::promise<void> held;
  std::atomic<bool> is_held = false;
  scene->Step(
      5, {},
      [&] {
        if (!is_held.exchange(true)) {
          held.set_value();
          gate.wait();
        }
        return false;
      },
      nullptr);
  held.get_future().wait();
  const auto recorder = std::make_shared<Recorder>();
  ASSERT_TRUE(scene->AddListener(recorder, false).ok());
  std::vector<std::promise<absl::StatusOr<v1::SceneInfo>>> answers(64);
  for (size_t i = 0; i < answers.size(); ++i) {
    scene->Reset(
        "", "", [i] { return i == 10; }, [&answers, i](absl::StatusOr<v1::SceneInfo> info) { answers[i].set_value(std::move(info)); });
  }
  all_there.set_value();
  for (size_t i = 0; i < answers.size(); ++i) {
    const absl::StatusOr<v1::SceneInfo> info = answers[i].get_future().get();
    EXPECT_EQ(info.status().code(), i == 10 ? absl::StatusCode::kCancelled : absl::StatusCode::kOk) << i;
  }
  int resets = 0;
  uint64_t last = 1;
  for (const auto& snapshot : recorder->snapshots()) {
    resets += snapshot->frame->step == 0 && last != 0 ? 1 : 0;
    last = snapshot->frame->step;
  }
  EXPECT_EQ(resets, 1);
}

TEST_F(SceneTest, TooManyWaitingRequestsAreRefused) {
  const std::shared_ptr<Scene> scene = NewScene(NewWorld());
  std::promise<void> all_there;
  const std::shared_future<void> gate = all_there.get_future().share();
  std::promise<void> held;
  std::atomic<bool> is_held = false;
  scene->Step(
      1, {},
      [&] {
        if (!is_held.exchange(true)) {
          held.set_value();
          gate.wait();
        }
        return false;
      },
      nullptr);
  held.get_future().wait();
  std::atomic<int> refused = 0;
  std::atomic<int> done = 0;
  for (size_t i = 0; i < Scene::kMaxQueuedCommands + 5; ++i) {
    scene->Pause([&](const absl::StatusOr<v1::SceneInfo>& info) {
      refused += info.status().code() == absl::StatusCode::kResourceExhausted ? 1 : 0;
      ++done;
    });
  }
  all_there.set_value();
  EXPECT_TRUE(Eventually([&] { return done == static_cast<int>(Scene::kMaxQueuedCommands + 5); })) << done;
  EXPECT_EQ(refused, 5);
}

TEST(ExpireCommand, ThePedalGoesBeforeTheRest) {
  const sim::ToolDescription tool;
  const std::tuple<double, bool, bool> cases[] = {{0.0, true, false}, {0.1, true, false}, {0.11, false, false}, {0.26, false, true}};
  for (const auto& [silence_s, pedal, hold] : cases) {
    sim::ToolCommand command;
    command.pedal = true;
    ExpireCommand(tool, silence_s, &command);
    EXPECT_EQ(command.pedal, pedal) << silence_s;
    EXPECT_EQ(command.is_energy_expired, !pedal) << silence_s;
    EXPECT_EQ(command.is_hold_expired, hold) << silence_s;
  }
}

TEST_F(SceneTest, PosesArriveWhileTheSceneSteps) {
  const std::shared_ptr<Scene> scene = NewScene(NewWorld());
  v1::Attach attach;
  attach.set_tool("probe");
  absl::StatusOr<std::unique_ptr<ToolLease>> lease = scene->AcquireTool(attach);
  ASSERT_TRUE(lease.ok()) << lease.status();
  std::atomic<bool> stop = false;
  uint64_t sequence = 0;
  std::thread station([&] {
    while (!stop) {
      v1::ToolPose pose;
      pose.set_sequence(++sequence);
      pose.mutable_pose()->mutable_position_m()->set_x(1e-6 * static_cast<double>(sequence));
      pose.mutable_pose()->mutable_position_m()->set_z(0.5);
      EXPECT_TRUE((*lease)->SetPose(pose).ok());
    }
  });
  uint64_t last = 0;
  for (int i = 0; i < 50; ++i) {
    ASSERT_TRUE(Step(*scene, 1).ok());
    const std::shared_ptr<const sim::Frame> frame = scene->Snapshot()->frame;
    const sim::LocalModel& model = frame->local_models[0];
    EXPECT_GE(model.pose_sequence, last);
    last = model.pose_sequence;
    if (last > 0) {
      EXPECT_NEAR(model.pose_at_build.position_m.x(), 1e-6 * static_cast<double>(last), 1e-12);
    }
  }
  stop = true;
  station.join();
  EXPECT_TRUE(Eventually([&] { return Step(*scene, 1).ok() && scene->Snapshot()->frame->local_models[0].pose_sequence == sequence; }));
}

TEST_F(SceneTest, ALeaseKeepsTheSceneAliveButNotRunning) {
  std::unique_ptr<ToolLease> lease;
  {
    const std::shared_ptr<Scene> scene = NewScene(NewWorld());
    v1::Attach attach;
    attach.set_tool("probe");
    absl::StatusOr<std::unique_ptr<ToolLease>> acquired = scene->AcquireTool(attach);
    ASSERT_TRUE(acquired.ok()) << acquired.status();
    lease = *std::move(acquired);
    scene->Stop(absl::AbortedError("deleted"), nullptr);
  }
  v1::ToolPose pose;
  EXPECT_TRUE(lease->SetPose(pose).ok());  // harmless
}

}  // namespace
}  // namespace palpate::server::scene_test
