// Scenes that outlive their server, recordings, replays and branches, over gRPC.
#include <filesystem>
#include <fstream>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "clients/cpp/record_client.h"
#include "clients/cpp/scene_client.h"
#include "clients/cpp/watch_stream.h"
#include "server/core/recording_feed.h"
#include "server/core/scene_manager.h"
#include "sim/record/file_names.h"
#include "sim/record/state_file.h"
#include "tests/server/core/server_fixture.h"
#include "tests/sim/record/record_builders.h"

namespace palpate::server::record_service_test {
namespace {

using ::testing::HasSubstr;

class RecordServiceTest : public ServerTest {
 protected:
  ServerOptions Options() override {
    ServerOptions options = ServerTest::Options();
    if (keeps_state_) options.state.folder = folder_.path() / "state";
    options.state.checkpoint_interval = std::chrono::duration<double>(0);
    options.state.checkpoint_steps = checkpoint_steps_;
    if (max_scenes_ != 0) options.limits.max_scenes = max_scenes_;
    if (max_state_bytes_ != 0) options.state.max_state_bytes = max_state_bytes_;
    if (max_entry_bytes_ != 0) options.state.max_entry_bytes = max_entry_bytes_;
    return options;
  }
  /// All below `folder`, in order; what goes meanwhile may lack.
  static std::vector<std::filesystem::path> FilesIn(const std::filesystem::path& folder) {
    std::vector<std::filesystem::path> files;
    std::error_code gone;
    for (std::filesystem::recursive_directory_iterator it(folder, gone), end; !gone && it != end; it.increment(gone))
      files.push_back(it->path());
    std::sort(files.begin(), files.end());
    return files;
  }
  /// As a crash of the process would leave it: a copy of the folder at this moment, without the end of the server.
  void RestartFromCopy() {
    namespace fs = std::filesystem;
    client::SceneClient scenes = Scenes();
    EXPECT_TRUE(Eventually([&] {
      const auto list = scenes.List();
      return std::all_of(list->begin(), list->end(),
                         [](const v1::SceneInfo& scene) { return scene.is_replay() || scene.durable_step() == scene.step(); });
    }));
    // What is written and renamed while it is copied would be of two moments: then once more.
    EXPECT_TRUE(Eventually([&] {
      fs::remove_all(folder_.path() / "copy");
      const std::vector<fs::path> before = FilesIn(folder_.path() / "state");
      std::error_code error;
      fs::copy(folder_.path() / "state", folder_.path() / "copy", fs::copy_options::recursive, error);
      return !error && FilesIn(folder_.path() / "state") == before && FilesIn(folder_.path() / "copy").size() == before.size();
    }));
    StopServer();
    fs::remove_all(folder_.path() / "state");
    fs::rename(folder_.path() / "copy", folder_.path() / "state");
    StartServer();
  }
  client::RecordClient Records() const { return client::RecordClient(client::Connection::FromChannel(NewChannel())); }
  client::SceneClient Scenes() const { return client::SceneClient(client::Connection::FromChannel(NewChannel())); }

  v1::EditSceneRequest Carve(const std::string& key, double x_m) const {
    v1::EditSceneRequest request;
    request.set_scene_id("s");
    request.set_key(key);
    v1::Edit& edit = *request.add_edits();
    edit.set_body(TinyScene().bodies(0).name());
    edit.mutable_carve()->mutable_region()->mutable_ball()->mutable_center_m()->set_x(x_m);
    edit.mutable_carve()->mutable_region()->mutable_ball()->mutable_center_m()->set_z(0.05);
    edit.mutable_carve()->mutable_region()->mutable_ball()->set_radius_m(0.03);
    return request;
  }
  v1::StepSceneRequest Push(uint32_t count, double z_m) const {
    v1::StepSceneRequest request;
    request.set_scene_id("s");
    request.set_count(count);
    v1::StepTool& tool = *request.add_tools();
    tool.set_tool("probe");
    tool.mutable_pose()->mutable_pose()->mutable_position_m()->set_z(z_m);
    tool.mutable_pose()->mutable_pose()->mutable_rotation()->set_w(1);
    return request;
  }
  v1::SceneInfo StepPushed(uint32_t count, double z_m) {
    grpc::ClientContext context;
    v1::StepSceneResponse response;
    const grpc::Status status = scenes_->StepScene(&context, Push(count, z_m), &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response.scene();
  }
  /// Steps with a tool, edits, a reset and more of it; hashes by place on the time line.
  std::vector<uint64_t> Live() {
    CreateScene(false, "s");
    std::vector<uint64_t> hashes = {Get("s").state_hash()};
    client::SceneClient scenes = Scenes();
    for (int i = 0; i < 30; ++i) {
      if (i == 10) {
        EXPECT_TRUE(scenes.Edit(Carve("one", 0)).ok());
      }
      if (i == 17) {
        EXPECT_TRUE(scenes.Reset("s").ok());
      }
      if (i == 22) {
        EXPECT_TRUE(scenes.Edit(Carve("two", 0.03)).ok());
      }
      hashes.push_back(StepPushed(1, 0.06 - 0.001 * i).state_hash());
    }
    return hashes;
  }
  std::string Recorded(const v1::RecordSceneRequest& request) {
    std::string bytes;
    const absl::Status status = Records().Record(request)->Run([&bytes](std::string_view data) {
      bytes += data;
      return absl::OkStatus();
    });
    EXPECT_TRUE(status.ok()) << status;
    return bytes;
  }
  absl::StatusOr<v1::OpenRecordingResponse> Open(const std::string& bytes, const std::string& id) {
    v1::OpenRecording open;
    open.set_scene_id(id);
    size_t at = 0;
    return Records().Open(open, [&]() -> absl::StatusOr<std::string> {
      std::string part = bytes.substr(std::min(at, bytes.size()), 1000);
      at += part.size();
      return part;
    });
  }
  absl::StatusOr<v1::ReplaySceneResponse> Replay(const std::string& id, const std::string& replay_id, bool temporary = false) {
    v1::ReplaySceneRequest replay;
    replay.set_scene_id(id);
    replay.set_replay_id(replay_id);
    replay.set_temporary(temporary);
    return Records().Replay(replay);
  }
  uint64_t BytesOnDisk(const std::string& id) {
    uint64_t bytes = 0;
    for (const auto& entry : std::filesystem::directory_iterator(folder_.path() / "state" / "scenes" / id)) {
      std::error_code gone;
      const uint64_t size = entry.file_size(gone);
      if (!gone) bytes += size;
    }
    return bytes;
  }
  uint64_t SeekTo(const std::string& id, uint64_t position) {
    v1::SeekSceneRequest seek;
    seek.set_scene_id(id);
    seek.set_position(position);
    const absl::StatusOr<v1::SceneInfo> info = Records().Seek(seek);
    EXPECT_TRUE(info.ok()) << info.status();
    return info.ok() ? info->state_hash() : 0;
  }

  test::TestFolder folder_;
  bool keeps_state_ = true;
  uint64_t checkpoint_steps_ = 7;
  uint32_t max_scenes_ = 0;
  uint64_t max_state_bytes_ = 0;
  size_t max_entry_bytes_ = 0;
};

TEST_F(RecordServiceTest, ScenesComeBackBitForBitAfterACrash) {
  const std::vector<uint64_t> hashes = Live();
  const v1::SceneInfo before = Get("s");
  RestartFromCopy();
  const v1::SceneInfo after = Get("s");
  EXPECT_EQ(after.step(), before.step());
  EXPECT_EQ(after.state_hash(), before.state_hash());
  EXPECT_EQ(after.resets(), 1U);
  EXPECT_EQ(after.bodies(0).tet_count(), before.bodies(0).tet_count());
  // Both go on alike: this one, and one that never crashed.
  const uint64_t here = StepPushed(20, 0.04).state_hash();
  EXPECT_TRUE(Delete("s").ok());
  Live();
  EXPECT_EQ(StepPushed(20, 0.04).state_hash(), here);
}

TEST_F(RecordServiceTest, AnAnsweredEditIsNeitherLostNorDoneTwice) {
  CreateScene(false, "s");
  const absl::StatusOr<v1::EditSceneResponse> first = Scenes().Edit(Carve("key", 0));
  ASSERT_TRUE(first.ok()) << first.status();
  RestartFromCopy();
  const absl::StatusOr<v1::EditSceneResponse> again = Scenes().Edit(Carve("key", 0));
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_TRUE(again->is_repeat());
  EXPECT_EQ(again->topology_version(), first->topology_version());
  EXPECT_EQ(again->outcomes(0).removed_tets_size(), first->outcomes(0).removed_tets_size());
  EXPECT_EQ(Scenes().Edit(Carve("key", 0.01)).status().code(), absl::StatusCode::kInvalidArgument) << "the key of another request";
}

TEST_F(RecordServiceTest, DeletedScenesStayDeleted) {
  CreateScene(false, "s");
  CreateScene(false, "t");
  EXPECT_TRUE(Delete("s").ok());
  RestartFromCopy();
  const auto scenes = Scenes().List();
  ASSERT_EQ(scenes->size(), 1U);
  EXPECT_EQ((*scenes)[0].scene_id(), "t");
}

TEST_F(RecordServiceTest, NewestGoodStateIsUsedWhenFilesAreDamaged) {
  const std::vector<uint64_t> hashes = Live();
  const std::filesystem::path scene = folder_.path() / "state" / "scenes" / "s";
  StopServer();
  // The newest checkpoint is flipped, the end of the journal torn off.
  std::vector<std::filesystem::path> states, journals;
  for (const auto& entry : std::filesystem::directory_iterator(scene)) {
    (record::StateOfFile(entry.path()) ? states : journals).push_back(entry.path());
  }
  std::sort(states.begin(), states.end());
  ASSERT_GE(states.size(), 2U);
  std::string bytes = test::BytesOf(states.back());
  bytes[bytes.size() / 2] ^= 1;
  test::PutBytes(states.back(), bytes);
  ASSERT_EQ(journals.size(), 1U);
  bytes = test::BytesOf(journals[0]);
  test::PutBytes(journals[0], bytes.substr(0, bytes.size() - 5));
  StartServer();
  const v1::SceneInfo info = Get("s");
  EXPECT_EQ(info.step(), 12U) << "13 steps after the reset, of which the last is torn";
  EXPECT_EQ(info.state_hash(), hashes[29]);
}

TEST_F(RecordServiceTest, ARecordingGivesEveryMomentAgain) {
  const std::vector<uint64_t> hashes = Live();
  v1::RecordSceneRequest request;
  request.set_scene_id("s");
  request.set_from_begin(true);
  request.set_until_step(14);
  std::string bytes;
  std::thread recorder([&] { bytes = Recorded(request); });
  while (Metric("palpate_streams{kind=\"record\"}") != 1) std::this_thread::yield();
  StepPushed(1, 0.04);
  recorder.join();
  const auto opened = Open(bytes, "r");
  ASSERT_TRUE(opened.ok()) << opened.status();
  EXPECT_TRUE(opened->scene().is_replay());
  EXPECT_EQ(opened->timeline().begin(), 0U);
  EXPECT_EQ(opened->timeline().end(), 31U);
  for (const uint64_t position : {31, 3, 29, 15, 16, 17, 8, 30, 1}) {
    const uint64_t hash = SeekTo("r", position);
    // A seek also takes in what was done behind the step.
    if (position != 10 && position != 17 && position != 22 && position < 31) {
      EXPECT_EQ(hash, hashes[position]) << position;
    }
  }
  const auto timeline = Records().GetTimeline("r");
  ASSERT_TRUE(timeline.ok());
  EXPECT_EQ(timeline->divergences(), 0U);
  EXPECT_EQ(timeline->position(), 1U);
  int edits = 0, resets = 0;
  for (const auto& event : timeline->events()) {
    edits += event.kind() == "edit";
    resets += event.kind() == "reset";
  }
  EXPECT_EQ(edits, 2);
  EXPECT_EQ(resets, 1);
}

TEST_F(RecordServiceTest, AReplayRefusesWhatWouldChangeIt) {
  Live();
  v1::ReplaySceneRequest replay;
  replay.set_scene_id("s");
  replay.set_replay_id("r");
  ASSERT_TRUE(Records().Replay(replay).ok());
  v1::EditSceneRequest edit = Carve("x", 0);
  edit.set_scene_id("r");
  const absl::Status refused = Scenes().Edit(edit).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("branch off"));
  EXPECT_EQ(SeekTo("r", 30), Get("s").state_hash());
  v1::SeekSceneRequest beyond;
  beyond.set_scene_id("r");
  beyond.set_position(31);
  EXPECT_EQ(Records().Seek(beyond).status().code(), absl::StatusCode::kInvalidArgument);
  beyond.set_scene_id("s");
  EXPECT_EQ(Records().Seek(beyond).status().code(), absl::StatusCode::kFailedPrecondition) << "a live scene goes forward only";
  SeekTo("r", 29);
  EXPECT_TRUE(Step("r", 1).ok()) << "the last step of the recording counts";
  EXPECT_EQ(Step("r", 1).error_code(), grpc::StatusCode::OUT_OF_RANGE);
}

TEST_F(RecordServiceTest, ABranchGoesOnAsTheSceneWouldHave) {
  const std::vector<uint64_t> hashes = Live();
  v1::ReplaySceneRequest replay;
  replay.set_scene_id("s");
  replay.set_replay_id("r");
  ASSERT_TRUE(Records().Replay(replay).ok());
  SeekTo("r", 25);
  v1::BranchSceneRequest branch;
  branch.set_scene_id("r");
  branch.set_branch_id("b");
  const absl::StatusOr<v1::SceneInfo> info = Records().Branch(branch);
  ASSERT_TRUE(info.ok()) << info.status();
  EXPECT_FALSE(info->is_replay());
  EXPECT_EQ(info->state_hash(), hashes[25]);
  const auto go_on = [&](int from) {
    uint64_t hash = 0;
    for (int i = from; i < 30; ++i) {
      v1::StepSceneRequest request = Push(1, 0.06 - 0.001 * i);
      request.set_scene_id("b");
      grpc::ClientContext context;
      v1::StepSceneResponse response;
      EXPECT_TRUE(scenes_->StepScene(&context, request, &response).ok());
      hash = response.scene().state_hash();
    }
    return hash;
  };
  EXPECT_EQ(go_on(25), hashes[30]);
  // It is a scene like others: it outlives the server, and its key of an edit is known.
  RestartFromCopy();
  EXPECT_EQ(Get("b").state_hash(), hashes[30]);
  v1::EditSceneRequest edit = Carve("two", 0.03);
  edit.set_scene_id("b");
  EXPECT_EQ(Scenes().Edit(edit).status().code(), absl::StatusCode::kInvalidArgument) << "a request for another scene";
}

TEST_F(RecordServiceTest, BookmarksAreKept) {
  Live();
  v1::SetBookmarkRequest mark;
  mark.set_scene_id("s");
  mark.set_name("before the second cut");
  mark.set_position(21);
  ASSERT_TRUE(Records().SetBookmark(mark).ok());
  const auto marked = Records().GetTimeline("s");
  ASSERT_TRUE(marked.ok()) << marked.status();
  const auto event = std::find_if(marked->events().begin(), marked->events().end(), [](const auto& e) { return e.kind() == "bookmark"; });
  ASSERT_NE(event, marked->events().end());
  EXPECT_EQ(event->step(), 4U) << "the scene was reset at place 17";
  mark.set_name("too late");
  mark.set_position(31);
  EXPECT_EQ(Records().SetBookmark(mark).status().code(), absl::StatusCode::kInvalidArgument);
  mark.set_name("a\nb");
  EXPECT_EQ(Records().SetBookmark(mark).status().code(), absl::StatusCode::kInvalidArgument);
  RestartFromCopy();
  v1::ReplaySceneRequest replay;
  replay.set_scene_id("s");
  replay.set_replay_id("r");
  ASSERT_TRUE(Records().Replay(replay).ok());
  v1::SeekSceneRequest seek;
  seek.set_scene_id("r");
  seek.set_bookmark("before the second cut");
  ASSERT_TRUE(Records().Seek(seek).ok());
  EXPECT_EQ(Records().GetTimeline("r")->position(), 21U);
}

TEST_F(RecordServiceTest, ABranchComesBackAsItWasMade) {
  Live();
  v1::BranchSceneRequest branch;
  branch.set_scene_id("s");
  branch.set_branch_id("b");
  branch.set_play(true);
  ASSERT_TRUE(Records().Branch(branch).ok());
  // Nothing of the branch itself: only what made it.
  const std::filesystem::path folder = folder_.path() / "state" / "scenes" / "b";
  std::string first;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const auto state = record::StateOfFile(entry.path());
    if (state && (first.empty() || entry.path().filename() < first)) first = entry.path().filename();
  }
  const auto state = record::ReadStateFile(folder / first);
  ASSERT_TRUE(state.ok()) << state.status();
  EXPECT_EQ(state->scene.run_state(), v1::RUN_STATE_PLAYING) << "though the scene that it comes from is paused";
}

TEST_F(RecordServiceTest, ScenesBeyondTheLimitStayOnDiskWithTheirFiles) {
  CreateScene(false, "s");
  CreateScene(false, "t");
  const std::filesystem::path asset = folder_.path() / "state" / "assets" / "of-t";
  std::filesystem::create_directories(asset);
  StopServer();
  max_scenes_ = 1;
  StartServer();
  EXPECT_EQ(Scenes().List()->size(), 1U);
  EXPECT_TRUE(std::filesystem::exists(asset)) << "nobody has looked what t needs";
  StopServer();
  max_scenes_ = 2;
  StartServer();
  EXPECT_EQ(Scenes().List()->size(), 2U);
  EXPECT_FALSE(std::filesystem::exists(asset)) << "now it is known that nobody needs it";
}

TEST_F(RecordServiceTest, APastEndsWhereItWasAskedTo) {
  Live();  // at step 13 since the reset at place 17
  v1::RecordSceneRequest request;
  request.set_scene_id("s");
  request.set_from_step(2);
  request.set_until_step(9);
  const auto opened = Open(Recorded(request), "r");
  ASSERT_TRUE(opened.ok()) << opened.status();
  EXPECT_EQ(opened->timeline().end(), 26U);
  const auto refused = [&] { return Records().Record(request)->Run([](std::string_view) { return absl::OkStatus(); }); };
  request.set_from_step(10);
  EXPECT_EQ(refused().code(), absl::StatusCode::kInvalidArgument) << "the end before the begin";
  request.set_from_step(14);
  request.set_until_step(20);
  EXPECT_THAT(std::string(refused().message()), HasSubstr("from_step: 14 is not done yet: the scene is at step 13"));
  request.set_until_step(9);
  request.clear_from_step();
  EXPECT_EQ(refused().code(), absl::StatusCode::kInvalidArgument) << "a step that is done, from now on";
  request.set_scene_id("r");
  request.clear_until_step();
  EXPECT_EQ(refused().code(), absl::StatusCode::kFailedPrecondition) << "a replay has no input of its own";
}

TEST_F(RecordServiceTest, AnUploadThatWasGivenUpMakesNoScene) {
  Live();
  std::string bytes;
  const auto keep = [&bytes](std::string_view data) {
    bytes += data;
    return absl::OkStatus();
  };
  ASSERT_TRUE(Records().Save("s", keep).ok());
  v1::OpenRecording open;
  open.set_scene_id("r");
  bool is_sent = false;
  const auto result = Records().Open(open, [&]() -> absl::StatusOr<std::string> {
    if (std::exchange(is_sent, true)) return absl::CancelledError("enough");
    return bytes;
  });
  EXPECT_FALSE(result.ok());
  EXPECT_TRUE(Eventually([&] { return Metric("palpate_streams{kind=\"record\"}") == 0; }));
  EXPECT_TRUE(Eventually([&] { return Scenes().List()->size() == 1; }));
}

TEST_F(RecordServiceTest, WatchersFollowAReplayBackAndForth) {
  Live();
  v1::ReplaySceneRequest replay;
  replay.set_scene_id("s");
  replay.set_replay_id("r");
  ASSERT_TRUE(Records().Replay(replay).ok());
  v1::WatchRequest request;
  request.set_scene_id("r");
  request.set_with_volume(true);
  request.set_max_rate_hz(10000);
  client::WatchStream stream(client::Connection::FromChannel(NewChannel()), request);
  for (const uint64_t position : {30, 5, 24, 12, 26, 1}) {
    const uint64_t hash = SeekTo("r", position);
    v1::WatchUpdate update;
    uint64_t seen = 0;
    while (seen != hash && stream.Read(&update)) {
      if (update.has_frame()) seen = update.frame().state_hash();
      if (update.has_keyframe()) seen = update.keyframe().frame().state_hash();
    }
    EXPECT_EQ(seen, hash) << position << ": " << stream.Finish();  // each update is checked against the arrays
    if (seen != hash) return;
  }
}

TEST_F(RecordServiceTest, WithoutAFolderTheMomentCanBeRecorded) {
  keeps_state_ = false;
  StopServer();
  StartServer();
  Live();
  EXPECT_EQ(Records().GetTimeline("s").status().code(), absl::StatusCode::kFailedPrecondition);
  v1::RecordSceneRequest request;
  request.set_scene_id("s");
  request.set_from_begin(true);
  const absl::Status past = Records().Record(request)->Run([](std::string_view) { return absl::OkStatus(); });
  EXPECT_EQ(past.code(), absl::StatusCode::kFailedPrecondition);
  std::string bytes;
  ASSERT_TRUE(Records()
                  .Save("s",
                        [&bytes](std::string_view data) {
                          bytes += data;
                          return absl::OkStatus();
                        })
                  .ok());
  const auto opened = Open(bytes, "r");
  ASSERT_TRUE(opened.ok()) << opened.status();
  EXPECT_EQ(opened->scene().state_hash(), Get("s").state_hash());
  EXPECT_EQ(opened->timeline().begin(), 30U);
}

TEST_F(RecordServiceTest, DamagedRecordingsAreRefusedWithWhere) {
  Live();
  std::string bytes;
  ASSERT_TRUE(Records()
                  .Save("s",
                        [&bytes](std::string_view data) {
                          bytes += data;
                          return absl::OkStatus();
                        })
                  .ok());
  EXPECT_EQ(Open("", "r").status().code(), absl::StatusCode::kDataLoss);
  const absl::Status letter = Open("hello, this is a letter and no recording", "r").status();
  EXPECT_EQ(letter.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(letter.message(), "the recording is no journal or recording of Palpate");
  EXPECT_EQ(Open(bytes.substr(0, 40), "r").status().code(), absl::StatusCode::kDataLoss);
  std::string flipped = bytes;
  flipped[bytes.size() - 100] ^= 1;
  const absl::Status status = Open(flipped, "r").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
  EXPECT_TRUE(Open(bytes, "r").ok()) << "what was refused has left nothing behind";
}

TEST_F(RecordServiceTest, AReplayKeepsItsPastWhenTheSceneIsMadeAnew) {
  const std::vector<uint64_t> hashes = Live();
  ASSERT_TRUE(Replay("s", "r").ok());
  ASSERT_TRUE(Delete("s").ok());
  const auto deleted = [&] { return SeekTo("r", 5); };
  EXPECT_EQ(deleted(), hashes[5]);
  // Another past under the same id, with files of the same names.
  CreateScene(false, "s");
  for (int i = 0; i < 30; ++i) StepPushed(1, 0.055);
  ASSERT_TRUE(Records().GetTimeline("s").ok());
  for (const uint64_t position : {3, 15, 26, 8}) EXPECT_EQ(SeekTo("r", position), hashes[position]) << position;
  EXPECT_EQ(Records().GetTimeline("r")->divergences(), 0U);
  const std::filesystem::path held = folder_.path() / "state" / "replays";
  EXPECT_FALSE(std::filesystem::is_empty(held));
  EXPECT_TRUE(Delete("r").ok());
  EXPECT_TRUE(std::filesystem::is_empty(held)) << "what it held goes with it";
}

TEST_F(RecordServiceTest, WhatAnEarlierProcessHeldIsGone) {
  const std::filesystem::path left = folder_.path() / "state" / "replays" / "palpate-of-a-crash";
  StopServer();
  std::filesystem::create_directories(left);
  test::PutBytes(left / "journal-0000000000000001.plj", "old");
  StartServer();
  EXPECT_FALSE(std::filesystem::exists(left));
}

TEST_F(RecordServiceTest, ATemporaryReplayGoesWhenNobodyUsesIt) {
  using std::chrono::minutes;
  Live();
  ASSERT_TRUE(Replay("s", "kept").ok());
  ASSERT_TRUE(Replay("s", "left", true).ok());
  ASSERT_TRUE(Replay("s", "asked", true).ok());
  ASSERT_TRUE(Replay("s", "watched", true).ok());
  v1::OpenRecording open;
  open.set_scene_id("sent");
  open.set_temporary(true);
  std::string bytes;
  ASSERT_TRUE(Records()
                  .Save("s",
                        [&bytes](std::string_view data) {
                          bytes += data;
                          return absl::OkStatus();
                        })
                  .ok());
  ASSERT_TRUE(Records().Open(open, [&bytes] { return absl::StatusOr<std::string>(std::exchange(bytes, "")); }).ok());
  EXPECT_TRUE(Scenes().Get("left")->scene().is_temporary());
  EXPECT_TRUE(Scenes().Get("sent")->scene().is_temporary());
  EXPECT_FALSE(Scenes().Get("kept")->scene().is_temporary());
  v1::WatchRequest request;
  request.set_scene_id("watched");
  auto stream = std::make_unique<client::WatchStream>(client::Connection::FromChannel(NewChannel()), request);
  v1::WatchUpdate update;
  ASSERT_TRUE(stream->Read(&update));
  const auto ids = [&] {
    std::vector<std::string> out;
    const auto list = Scenes().List();
    for (const v1::SceneInfo& scene : *list) out.push_back(scene.scene_id());
    return out;
  };
  // The time of the manager's own looks is long before this.
  const auto begin = std::chrono::steady_clock::now() + std::chrono::hours(24);
  server_->manager().DeleteIdleReplays(begin);
  server_->manager().DeleteIdleReplays(begin + minutes(9));
  SeekTo("asked", 3);
  EXPECT_THAT(ids(), testing::UnorderedElementsAre("s", "kept", "left", "asked", "watched", "sent"));
  server_->manager().DeleteIdleReplays(begin + minutes(10));
  EXPECT_TRUE(Eventually([&] { return ids().size() == 4; }));
  EXPECT_THAT(ids(), testing::UnorderedElementsAre("s", "kept", "asked", "watched"));
  stream.reset();
  EXPECT_TRUE(Eventually([&] { return Get("watched").watchers() == 0; }));
  server_->manager().DeleteIdleReplays(begin + minutes(19));
  EXPECT_THAT(ids(), testing::UnorderedElementsAre("s", "kept", "asked", "watched")) << "asked 9 minutes ago, watched until just now";
  server_->manager().DeleteIdleReplays(begin + minutes(40));
  server_->manager().DeleteIdleReplays(begin + minutes(50));
  EXPECT_TRUE(Eventually([&] { return ids().size() == 2; }));
  EXPECT_THAT(ids(), testing::UnorderedElementsAre("s", "kept"));
}

TEST_F(RecordServiceTest, TheTimeLineOffersNoMomentThatIsGone) {
  StopServer();
  max_state_bytes_ = 1;  // no more than what brings the scene back
  StartServer();
  CreateScene(false, "s");
  StepPushed(3, 0.05);
  v1::SetBookmarkRequest mark;
  mark.set_scene_id("s");
  mark.set_name("early");
  ASSERT_TRUE(Records().SetBookmark(mark).ok());
  ASSERT_TRUE(Replay("s", "old").ok());
  ASSERT_TRUE(Scenes().Reset("s").ok());
  // Files end when they are brought to disk, and only whole ones go.
  ASSERT_TRUE(Eventually([&] {
    StepPushed(7, 0.05);
    return Records().GetTimeline("s")->begin() > 3;
  }));
  const v1::Timeline timeline = *Records().GetTimeline("s");
  ASSERT_EQ(timeline.events_size(), 1) << timeline.DebugString();
  EXPECT_EQ(timeline.events(0).kind(), "reset") << "steps count from it";
  mark.set_name("too early");
  mark.set_position(3);
  EXPECT_EQ(Records().SetBookmark(mark).status().code(), absl::StatusCode::kInvalidArgument);
  // One that began before they went still has them, and their room.
  SeekTo("old", 1);
  const absl::Status refused = Replay("s", "r").status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("1 replay or recording under way holds "));
  EXPECT_TRUE(Delete("old").ok());
  const absl::StatusOr<v1::ReplaySceneResponse> replay = Replay("s", "r");
  ASSERT_TRUE(replay.ok()) << replay.status();
  EXPECT_GT(replay->timeline().begin(), 3U);
  v1::SeekSceneRequest seek;
  seek.set_scene_id("r");
  seek.set_position(3);
  absl::Status gone = Records().Seek(seek).status();
  EXPECT_EQ(gone.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(gone.message()), HasSubstr("position: 3 is outside ["));
  EXPECT_TRUE(Delete("r").ok());
  v1::RecordSceneRequest request;
  request.set_scene_id("s");
  request.set_from_step(0);
  gone = Records().Record(request)->Run([](std::string_view) { return absl::OkStatus(); });
  EXPECT_EQ(gone.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(gone.message()), HasSubstr("from_step: 0 is not kept any more; the oldest step that is kept is "));
}

TEST_F(RecordServiceTest, NoStepIsLostWhereReplaysHoldTheRoom) {
  StopServer();
  max_state_bytes_ = 1;
  StartServer();
  CreateScene(false, "s");
  const uint64_t first = StepPushed(7, 0.055).state_hash();
  ASSERT_TRUE(Replay("s", "r").ok());
  ASSERT_TRUE(Eventually([&] {
    StepPushed(7, 0.05);
    const absl::Status status = Replay("s", "other").status();
    if (status.ok()) Delete("other").ok();
    return status.code() == absl::StatusCode::kResourceExhausted;
  }));
  ASSERT_TRUE(Scenes().Edit(Carve("one", 0)).ok());
  const v1::SceneInfo info = StepPushed(3, 0.05);
  EXPECT_EQ(SeekTo("r", 7), first);
  RestartFromCopy();
  EXPECT_EQ(Get("s").state_hash(), info.state_hash());
  EXPECT_EQ(Get("s").step(), info.step());
}

TEST_F(RecordServiceTest, ARecordingIsWholeThoughTheSceneTrimsItMeanwhile) {
  StopServer();
  max_state_bytes_ = 1;  // each checkpoint takes files away
  StartServer();
  CreateScene(false, "s");
  std::vector<uint64_t> hashes = {Get("s").state_hash()};
  for (int i = 0; i < 5; ++i) hashes.push_back(StepPushed(1, 0.055 - 0.001 * i).state_hash());
  const std::shared_ptr<Scene> scene = *server_->manager().Find("s");
  std::promise<absl::StatusOr<BranchPoint>> forked;
  scene->WhenDurable([&](const absl::Status& status) {
    EXPECT_TRUE(status.ok()) << status;
    scene->Fork(nullptr, [&](absl::StatusOr<BranchPoint> point) { forked.set_value(std::move(point)); });
  });
  absl::StatusOr<BranchPoint> point = forked.get_future().get();
  ASSERT_TRUE(point.ok()) << point.status();
  ChunkSource source = RecordingOfPast(
      std::make_shared<const BranchPoint>(*std::move(point)), [this] { return server_->manager().store().HoldPast("s"); }, PastSpan());
  std::string bytes;
  bool has_trimmed = false;
  while (true) {
    const absl::StatusOr<std::optional<std::string>> piece = source();
    ASSERT_TRUE(piece.ok()) << piece.status();
    if (!*piece) break;
    bytes += **piece;
    if (std::exchange(has_trimmed, true)) continue;
    ASSERT_TRUE(Eventually([&] {
      StepPushed(7, 0.05);
      return Records().GetTimeline("s")->begin() > 5;
    }));
  }
  source = nullptr;
  EXPECT_TRUE(std::filesystem::is_empty(folder_.path() / "state" / "replays")) << "what was read is held no longer";
  const auto opened = Open(bytes, "r");
  ASSERT_TRUE(opened.ok()) << opened.status();
  EXPECT_EQ(opened->timeline().begin(), 0U);
  EXPECT_EQ(opened->timeline().end(), 5U);
  for (const uint64_t position : {4, 1, 5}) EXPECT_EQ(SeekTo("r", position), hashes[position]) << position;
}

TEST_F(RecordServiceTest, TheBoundHoldsWithoutCheckpoints) {
  StopServer();
  checkpoint_steps_ = 0;
  max_state_bytes_ = 400'000;
  StartServer();
  CreateScene(false, "s");
  v1::SetBookmarkRequest mark;
  mark.set_scene_id("s");
  mark.set_name(std::string(64, 'b'));
  for (int round = 0; round < 40; ++round) {
    for (int i = 0; i < 200; ++i) ASSERT_TRUE(Records().SetBookmark(mark).ok());
    StepPushed(1, 0.05);
    EXPECT_LE(BytesOnDisk("s"), max_state_bytes_) << round;
  }
  RestartFromCopy();
  EXPECT_EQ(Get("s").step(), 40U);
}

TEST_F(RecordServiceTest, AnEntryThatNoReaderTakesIsRefusedBeforeItIsPerformed) {
  StopServer();
  max_entry_bytes_ = 8000;
  StartServer();
  CreateScene(false, "s");
  v1::EditSceneRequest request = Carve("long", 0);
  while (request.ByteSizeLong() < max_entry_bytes_) *request.add_edits() = request.edits(0);
  const uint32_t tets = Get("s").bodies(0).tet_count();
  const absl::Status refused = Scenes().Edit(request).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr("allowed are 8000"));
  EXPECT_EQ(Get("s").bodies(0).tet_count(), tets) << "nothing was performed";
  v1::EditSceneRequest shorter = Carve("short", 0);
  shorter.mutable_edits(0)->mutable_carve()->mutable_region()->mutable_ball()->set_radius_m(0.06);
  ASSERT_TRUE(Scenes().Edit(shorter).ok());
  RestartFromCopy();
  EXPECT_LT(Get("s").bodies(0).tet_count(), tets);
  EXPECT_TRUE(Scenes().Edit(shorter)->is_repeat());
  // A scene whose spec is too long is none at all.
  StopServer();
  max_entry_bytes_ = TinyScene().ByteSizeLong();
  StartServer();
  v1::CreateSceneRequest create;
  create.set_scene_id("t");
  *create.mutable_spec() = TinyScene();
  grpc::ClientContext context;
  v1::CreateSceneResponse response;
  const grpc::Status scene = scenes_->CreateScene(&context, create, &response);
  EXPECT_EQ(scene.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED) << scene.error_message();
  EXPECT_FALSE(std::filesystem::exists(folder_.path() / "state" / "scenes" / "t"));
}

TEST_F(RecordServiceTest, MetricsOfAPausedSceneFollowTheDisk) {
  CreateScene(false, "s");
  StepPushed(1, 0.05);
  EXPECT_TRUE(Eventually([&] { return Metric("palpate_undurable_steps{scene=\"s\"}") == 0; })) << "no step comes that would tell";
  const double bytes = Metric("palpate_journal_written_bytes{scene=\"s\"}");
  ASSERT_TRUE(Scenes().Edit(Carve("one", 0)).ok());
  EXPECT_TRUE(Eventually([&] { return Metric("palpate_journal_written_bytes{scene=\"s\"}") > bytes; }));
}

TEST_F(RecordServiceTest, DamageThatAReplayMeetsIsTold) {
  Live();
  StopServer();
  const std::filesystem::path scene = folder_.path() / "state" / "scenes" / "s";
  std::vector<std::filesystem::path> states;
  for (const auto& entry : std::filesystem::directory_iterator(scene)) {
    if (record::StateOfFile(entry.path())) states.push_back(entry.path());
  }
  std::sort(states.begin(), states.end());
  StartServer();
  std::string bytes = test::BytesOf(states.front());
  bytes[bytes.size() / 2] ^= 1;
  test::PutBytes(states.front(), bytes);
  ASSERT_TRUE(Replay("s", "r").ok());
  EXPECT_EQ(Records().GetTimeline("r")->damages_size(), 0) << "nothing needed that state so far";
  for (int i = 0; i < 3; ++i) SeekTo("r", record::StateOfFile(states.front())->position + 1), SeekTo("r", 1);
  const v1::Timeline timeline = *Records().GetTimeline("r");
  ASSERT_EQ(timeline.damages_size(), 1) << "each kind once";
  EXPECT_THAT(timeline.damages(0), HasSubstr(states.front().filename().string()));
}

TEST_F(RecordServiceTest, DamageWithoutEndIsListedInPart) {
  Live();
  for (uint64_t i = 0; i < 100; ++i) {
    test::PutBytes(folder_.path() / "state" / "scenes" / "s" / record::StateName(1000 + i, 30), "no state");
  }
  ASSERT_TRUE(Replay("s", "r").ok());
  SeekTo("r", 1);
  SeekTo("r", 30);
  const v1::Timeline timeline = *Records().GetTimeline("r");
  ASSERT_EQ(timeline.damages_size(), 64);
  EXPECT_EQ(timeline.damages(63), "there is more damage, which is not listed");
}

}  // namespace
}  // namespace palpate::server::record_service_test
