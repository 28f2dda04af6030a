#include "server/core/stream_writer.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <memory>
#include <thread>
#include <vector>

namespace palpate::server::stream_writer_test {
namespace {

std::shared_ptr<const SceneSnapshot> SnapshotOf(uint64_t serial) {
  auto snapshot = std::make_shared<SceneSnapshot>();
  snapshot->serial = serial;
  return snapshot;
}

/// The operations of a call whose writes the test completes.
struct FakeCall {
  using Writer = StreamWriter<uint64_t>;

  explicit FakeCall(WorkerPool& pool) {
    Writer::Operations operations;
    operations.encode = [this](const std::shared_ptr<const SceneSnapshot>& snapshot, uint64_t dropped, uint64_t& update) {
      update = snapshot->serial;
      dropped_at_encode = dropped;
      if (snapshot->serial == kNothingToSend) return Encoded::kNothing;
      return more_messages.fetch_sub(1) > 0 ? Encoded::kMore : Encoded::kLast;
    };
    operations.start_write = [this](const uint64_t* update) {
      EXPECT_FALSE(write_in_flight.exchange(true)) << "two writes at once";
      EXPECT_EQ(finish_count, 0) << "a write after the end";
      written = *update;
      ++write_count;
    };
    operations.finish = [this](const absl::Status& status) {
      EXPECT_FALSE(write_in_flight) << "the end during a write";
      ++finish_count;
      finished.set_value(status);
    };
    operations.cancel = [this] { ++cancel_count; };
    operations.on_dropped = [this] { ++dropped_count; };
    writer = std::make_shared<Writer>(pool, std::move(operations));
  }

  void WaitForWrite(int count) const {
    while (write_count < count) std::this_thread::yield();
  }
  void Complete(bool ok) {
    write_in_flight = false;
    writer->OnWriteDone(ok);
  }

  static constexpr uint64_t kNothingToSend = 1'000'000;
  std::shared_ptr<Writer> writer;
  std::atomic<bool> write_in_flight = false;
  std::atomic<int> write_count = 0;
  std::atomic<int> finish_count = 0;
  std::atomic<int> cancel_count = 0;
  std::atomic<int> dropped_count = 0;
  std::atomic<uint64_t> written = 0;
  std::atomic<uint64_t> dropped_at_encode = 0;
  std::atomic<int> more_messages = 0;
  std::promise<absl::Status> finished;
};

TEST(StreamWriter, TheLatestWinsAndDropsAreCounted) {
  WorkerPool pool("test", 2);
  FakeCall call(pool);
  call.writer->Offer(SnapshotOf(1));
  call.WaitForWrite(1);
  for (uint64_t serial = 2; serial <= 6; ++serial) call.writer->Offer(SnapshotOf(serial));
  EXPECT_EQ(call.written, 1U);
  call.Complete(true);
  call.WaitForWrite(2);
  EXPECT_EQ(call.written, 6U);
  EXPECT_EQ(call.dropped_at_encode, 4U);
  EXPECT_EQ(call.dropped_count, 4);
  EXPECT_EQ(call.writer->dropped(), 4U);
  call.Complete(true);
  call.writer->End(absl::OkStatus());
  EXPECT_TRUE(call.finished.get_future().get().ok());
}

TEST(StreamWriter, NothingToSendIsNoWrite) {
  WorkerPool pool("test", 1);
  FakeCall call(pool);
  call.writer->Offer(SnapshotOf(FakeCall::kNothingToSend));
  call.writer->Offer(SnapshotOf(7));
  call.WaitForWrite(1);
  EXPECT_EQ(call.written, 7U);
  call.Complete(true);
  call.writer->End(absl::OkStatus());
  call.finished.get_future().wait();
}

TEST(StreamWriter, ASnapshotOfSeveralMessagesIsSentToItsEnd) {
  WorkerPool pool("test", 2);
  FakeCall call(pool);
  call.more_messages = 2;
  call.writer->Offer(SnapshotOf(1));
  for (int message = 1; message <= 3; ++message) {
    call.WaitForWrite(message);
    EXPECT_EQ(call.written, 1U);
    call.writer->Offer(SnapshotOf(static_cast<uint64_t>(message) + 1));
    call.Complete(true);
  }
  call.WaitForWrite(4);
  EXPECT_EQ(call.written, 4U);
  EXPECT_EQ(call.writer->dropped(), 2U);
  call.Complete(true);
  call.writer->End(absl::OkStatus());
  EXPECT_TRUE(call.finished.get_future().get().ok());
}

TEST(StreamWriter, TheEndWaitsForTheWriteAndTheFirstReasonCounts) {
  WorkerPool pool("test", 2);
  FakeCall call(pool);
  call.writer->Offer(SnapshotOf(1));
  call.WaitForWrite(1);
  call.writer->Offer(SnapshotOf(2));
  call.writer->End(absl::AbortedError("deleted"));
  call.writer->End(absl::UnavailableError("stops"));
  call.writer->Offer(SnapshotOf(3));
  EXPECT_EQ(call.finish_count, 0);
  call.Complete(true);
  EXPECT_EQ(call.finished.get_future().get().code(), absl::StatusCode::kAborted);
  EXPECT_EQ(call.write_count, 1);
  EXPECT_EQ(call.finish_count, 1);
}

TEST(StreamWriter, AFailedWriteEndsTheStream) {
  WorkerPool pool("test", 2);
  FakeCall call(pool);
  call.writer->Offer(SnapshotOf(1));
  call.WaitForWrite(1);
  call.writer->Offer(SnapshotOf(2));
  call.Complete(false);
  EXPECT_EQ(call.finished.get_future().get().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(call.write_count, 1);
}

TEST(StreamWriter, AStuckReaderIsCancelledAfterTheGrace) {
  WorkerPool pool("test", 2);
  FakeCall call(pool);
  call.writer->Offer(SnapshotOf(1));
  call.WaitForWrite(1);
  call.writer->End(absl::AbortedError("deleted"));
  while (call.cancel_count == 0) std::this_thread::yield();
  EXPECT_EQ(call.finish_count, 0);
  call.Complete(false);
  EXPECT_EQ(call.finished.get_future().get().code(), absl::StatusCode::kAborted);
}

TEST(StreamWriter, FinishesOnceWhateverComesAtOnce) {
  for (int round = 0; round < 200; ++round) {
    WorkerPool pool("test", 2);
    FakeCall call(pool);
    std::vector<std::thread> threads;
    threads.emplace_back([&] {
      for (uint64_t serial = 1; serial <= 20; ++serial) call.writer->Offer(SnapshotOf(serial));
    });
    threads.emplace_back([&] { call.writer->End(absl::AbortedError("deleted")); });
    threads.emplace_back([&] { call.writer->End(absl::CancelledError("gone")); });
    std::future<absl::Status> finished = call.finished.get_future();
    while (finished.wait_for(std::chrono::microseconds(50)) != std::future_status::ready) {
      if (call.write_in_flight) call.Complete(true);
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(call.finish_count, 1);
  }
}

}  // namespace
}  // namespace palpate::server::stream_writer_test
