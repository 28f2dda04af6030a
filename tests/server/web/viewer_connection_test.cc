#include "server/web/viewer_connection.h"

#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace palpate::server::viewer_connection_test {
namespace {

using Opcode = ViewerConnection::Opcode;
using ::testing::ElementsAre;
constexpr auto kPatience = std::chrono::seconds(20);

v1::ViewerUpdate Answer(uint32_t id, size_t padding_bytes = 0) {
  v1::ViewerUpdate update;
  update.set_request_id(id);
  update.mutable_error()->set_message(std::string(padding_bytes, 'x'));
  return update;
}

ViewerSink::FrameWriter FrameOf(uint64_t step) {
  return [step](uint64_t dropped, v1::ViewerUpdate& update) {
    v1::Frame& frame = *update.mutable_watch()->mutable_frame();
    frame.set_step(step);
    frame.set_dropped(dropped);
    return false;
  };
}

// Runs a connection against a socket that notes what is written, as "a7" (answer 7), "f3/2" (frame of step 3, two dropped before), "ping
// 1", "close 1000".
class Harness {
 public:
  explicit Harness(ViewerConnection::Limits limits = {}, bool answer_pings = true) : connection(limits), answer_pings_(answer_pings) {
    thread_ = std::thread([this] { connection.Run([this](Opcode opcode, std::string_view payload) { return OnWrite(opcode, payload); }); });
  }
  ~Harness() {
    Open();
    connection.End();
    thread_.join();
  }

  // The socket takes nothing until Open.
  void Block() {
    const std::lock_guard lock(mutex_);
    blocked_ = true;
  }
  void Open() {
    const std::lock_guard lock(mutex_);
    blocked_ = false;
    changed_.notify_all();
  }
  // Waits until `count` writes have begun.
  bool WaitForWrites(size_t count) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, kPatience, [&] { return log_.size() >= count; });
  }
  std::vector<std::string> log() {
    const std::lock_guard lock(mutex_);
    return log_;
  }
  void FailWrites() {
    const std::lock_guard lock(mutex_);
    broken_ = true;
  }

  ViewerConnection connection;

 private:
  bool OnWrite(Opcode opcode, std::string_view payload) {
    std::unique_lock lock(mutex_);
    switch (opcode) {
      case Opcode::kBinary: {
        v1::ViewerUpdate update;
        if (!update.ParseFromArray(payload.data(), static_cast<int>(payload.size()))) {
          log_.push_back("garbage");
        } else if (update.has_watch()) {
          log_.push_back("f" + std::to_string(update.watch().frame().step()) + "/" + std::to_string(update.watch().frame().dropped()));
        } else {
          log_.push_back("a" + std::to_string(update.request_id()));
        }
        break;
      }
      case Opcode::kPing:
        if (!answer_pings_) log_.push_back("ping " + std::string(payload));
        break;
      case Opcode::kPong:
        log_.push_back("pong " + std::string(payload));
        break;
      case Opcode::kClose:
        log_.push_back("close " + std::to_string(static_cast<unsigned char>(payload[0]) << 8 | static_cast<unsigned char>(payload[1])));
        break;
    }
    changed_.notify_all();
    changed_.wait(lock, [this] { return !blocked_; });
    const bool ok = !broken_;
    lock.unlock();
    if (opcode == Opcode::kPing && answer_pings_) connection.OnPong(payload);
    return ok;
  }

  const bool answer_pings_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool blocked_ = false, broken_ = false;
  std::vector<std::string> log_;
  std::thread thread_;
};

TEST(ViewerConnection, AnswersLeaveInOrderAndBeforeFrames) {
  Harness harness;
  harness.Block();
  harness.connection.Send(Answer(1));
  ASSERT_TRUE(harness.WaitForWrites(1));
  harness.connection.OfferFrame(FrameOf(10));
  harness.connection.Send(Answer(2));
  harness.connection.Send(Answer(3));
  harness.Open();
  ASSERT_TRUE(harness.WaitForWrites(4));
  EXPECT_THAT(harness.log(), ElementsAre("a1", "a2", "a3", "f10/0"));
}

TEST(ViewerConnection, ABlockedSocketGetsTheNewestFrameAndTheCountOfTheOthers) {
  Harness harness;
  harness.Block();
  harness.connection.Send(Answer(1));
  ASSERT_TRUE(harness.WaitForWrites(1));
  EXPECT_TRUE(harness.connection.CanTakeFrame());
  for (uint64_t step = 1; step <= 100; ++step) harness.connection.OfferFrame(FrameOf(step));
  EXPECT_FALSE(harness.connection.CanTakeFrame());
  harness.Open();
  ASSERT_TRUE(harness.WaitForWrites(2));
  EXPECT_THAT(harness.log(), ElementsAre("a1", "f100/99"));
  EXPECT_EQ(harness.connection.statistics().frames_dropped, 99u);
}

TEST(ViewerConnection, NothingComesBetweenTheMessagesOfAFrame) {
  Harness harness;
  harness.Block();
  harness.connection.Send(Answer(1));
  ASSERT_TRUE(harness.WaitForWrites(1));
  int left = 2;
  harness.connection.OfferFrame([&left, &harness](uint64_t dropped, v1::ViewerUpdate& update) {
    harness.connection.Send(Answer(static_cast<uint32_t>(10 - left)));
    harness.connection.OfferFrame(FrameOf(9));
    update.mutable_watch()->mutable_frame()->set_step(static_cast<uint64_t>(5 - left));
    update.mutable_watch()->mutable_frame()->set_dropped(dropped);
    return --left > 0;
  });
  harness.Open();
  ASSERT_TRUE(harness.WaitForWrites(6));
  std::vector<std::string> log = harness.log();
  std::erase_if(log, [](const std::string& entry) { return entry.substr(0, 4) == "ping"; });
  log.resize(std::min<size_t>(log.size(), 5));
  EXPECT_THAT(log, ElementsAre("a1", "f3/0", "f4/0", "a8", "a9"));
}

TEST(ViewerConnection, ANewStreamForgetsTheOldOne) {
  Harness harness;
  harness.Block();
  harness.connection.Send(Answer(1));
  ASSERT_TRUE(harness.WaitForWrites(1));
  harness.connection.OfferFrame(FrameOf(1));
  harness.connection.OfferFrame(FrameOf(2));
  harness.connection.BeginStream();
  harness.connection.OfferFrame(FrameOf(7));
  harness.Open();
  ASSERT_TRUE(harness.WaitForWrites(2));
  EXPECT_THAT(harness.log(), ElementsAre("a1", "f7/0"));
}

TEST(ViewerConnection, FramesWaitForConfirmation) {
  ViewerConnection::Limits limits;
  limits.max_frames_in_flight = 2;
  Harness harness(limits, /*answer_pings=*/false);
  for (uint64_t step = 1; step <= 2; ++step) {
    harness.connection.OfferFrame(FrameOf(step));
    ASSERT_TRUE(harness.WaitForWrites(2 * step));
  }
  harness.connection.OfferFrame(FrameOf(3));
  EXPECT_FALSE(harness.connection.CanTakeFrame());
  harness.connection.Send(Answer(9));  // answers do not wait
  ASSERT_TRUE(harness.WaitForWrites(5));
  for (const char* meaningless : {"", "x", "0", "3", "1x", "99999999999999999999999", "-1"}) harness.connection.OnPong(meaningless);
  harness.connection.Send(Answer(10));
  ASSERT_TRUE(harness.WaitForWrites(6));
  EXPECT_THAT(harness.log(), ElementsAre("f1/0", "ping 1", "f2/0", "ping 2", "a9", "a10"));
  harness.connection.OnPong("1");
  ASSERT_TRUE(harness.WaitForWrites(8));
  EXPECT_EQ(harness.log()[6], "f3/0");
}

TEST(ViewerConnection, SilenceAfterAPingEndsTheConnection) {
  ViewerConnection::Limits limits;
  limits.stall_timeout = std::chrono::milliseconds(50);
  Harness harness(limits, /*answer_pings=*/false);
  harness.connection.OfferFrame(FrameOf(1));
  EXPECT_TRUE(harness.connection.WaitUntilEnded(kPatience));
  EXPECT_FALSE(harness.connection.CanTakeFrame());
}

TEST(ViewerConnection, AnIdleConnectionIsPinged) {
  ViewerConnection::Limits limits;
  limits.ping_interval = std::chrono::milliseconds(20);
  Harness harness(limits, /*answer_pings=*/false);
  ASSERT_TRUE(harness.WaitForWrites(1));
  EXPECT_EQ(harness.log()[0], "ping 1");
  harness.connection.OnPong("1");
  ASSERT_TRUE(harness.WaitForWrites(2));
  EXPECT_EQ(harness.log()[1], "ping 2");
}

TEST(ViewerConnection, TooManyUnreadAnswersCloseTheConnection) {
  ViewerConnection::Limits limits;
  limits.max_queued_messages = 3;
  Harness harness(limits);
  harness.Block();
  harness.connection.Send(Answer(1));
  ASSERT_TRUE(harness.WaitForWrites(1));
  for (uint32_t id = 2; id <= 5; ++id) harness.connection.Send(Answer(id));
  harness.Open();
  EXPECT_TRUE(harness.connection.WaitUntilEnded(kPatience));
  EXPECT_THAT(harness.log(), ElementsAre("a1", "close 1008"));
}

TEST(ViewerConnection, TooManyUnreadBytesCloseTheConnectionButOneLargeMessagePasses) {
  ViewerConnection::Limits limits;
  limits.max_queued_bytes = 1000;
  Harness harness(limits);
  harness.Block();
  harness.connection.Send(Answer(1));
  ASSERT_TRUE(harness.WaitForWrites(1));
  harness.connection.Send(Answer(2, 5000));
  harness.Open();
  ASSERT_TRUE(harness.WaitForWrites(2));
  harness.Block();
  harness.connection.Send(Answer(3, 700));
  ASSERT_TRUE(harness.WaitForWrites(3));
  harness.connection.Send(Answer(4, 700));
  harness.connection.Send(Answer(5, 700));
  harness.Open();
  EXPECT_TRUE(harness.connection.WaitUntilEnded(kPatience));
  EXPECT_THAT(harness.log(), ElementsAre("a1", "a2", "a3", "close 1008"));
}

TEST(ViewerConnection, CloseLetsAnswersLeaveAndTakesNothingNew) {
  Harness harness;
  harness.Block();
  harness.connection.Send(Answer(1));
  ASSERT_TRUE(harness.WaitForWrites(1));
  harness.connection.Send(Answer(2));
  harness.connection.CloseWith(WebSocketClose::kTooBig, std::string(500, 'r'));
  harness.connection.CloseWith(WebSocketClose::kNormal, "too late");
  harness.connection.Send(Answer(3));
  harness.connection.OfferFrame(FrameOf(1));
  harness.Open();
  EXPECT_TRUE(harness.connection.WaitUntilEnded(kPatience));
  EXPECT_THAT(harness.log(), ElementsAre("a1", "a2", "close 1009"));
}

TEST(ViewerConnection, ABrokenSocketEndsIt) {
  Harness harness;
  harness.FailWrites();
  harness.connection.Send(Answer(1));
  EXPECT_TRUE(harness.connection.WaitUntilEnded(kPatience));
  harness.connection.Send(Answer(2));
  EXPECT_THAT(harness.log(), ElementsAre("a1"));
  EXPECT_EQ(harness.connection.statistics().bytes_sent, 0u);
}

TEST(ViewerConnection, PingsOfTheBrowserAreAnswered) {
  Harness harness;
  harness.connection.OnPing("hello");
  ASSERT_TRUE(harness.WaitForWrites(1));
  EXPECT_THAT(harness.log(), ElementsAre("pong hello"));
}

TEST(ViewerConnection, SurvivesManyThreadsAtOnce) {
  ViewerConnection::Limits limits;
  limits.max_queued_messages = 100000;
  Harness harness(limits);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&harness, t] {
      for (uint32_t i = 0; i < 500; ++i) {
        if (t % 2 == 0) {
          harness.connection.Send(Answer(i));
        } else {
          harness.connection.OfferFrame(FrameOf(i));
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  harness.connection.Close();
  EXPECT_TRUE(harness.connection.WaitUntilEnded(kPatience));
  const std::vector<std::string> log = harness.log();
  EXPECT_EQ(std::count_if(log.begin(), log.end(), [](const std::string& entry) { return entry[0] == 'a'; }), 1000);
  EXPECT_EQ(log.back(), "close 1000");
}

}  // namespace
}  // namespace palpate::server::viewer_connection_test
