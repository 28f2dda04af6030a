#include "server/core/frame_pacer.h"

#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <thread>
#include <vector>

namespace palpate::server::frame_pacer_test {
namespace {

std::shared_ptr<const SceneSnapshot> SnapshotOf(uint64_t step, bool with_volume = false) {
  auto frame = std::make_shared<sim::Frame>();
  frame->step = step;
  if (with_volume) frame->volume_positions_m.push_back({0, 0, 0});
  auto snapshot = std::make_shared<SceneSnapshot>();
  snapshot->frame = frame;
  return snapshot;
}

/// Collects the steps that pass.
class Collected {
 public:
  FramePacer::Deliver deliver() {
    return [this](const std::shared_ptr<const SceneSnapshot>& snapshot) {
      const std::lock_guard lock(mutex_);
      steps_.push_back(snapshot->frame->step);
    };
  }
  std::vector<uint64_t> steps() const {
    const std::lock_guard lock(mutex_);
    return steps_;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<uint64_t> steps_;
};

TEST(FramePacer, TheFirstPassesAtOnceAndTheLastAlwaysArrives) {
  WorkerPool pool("test", 1);
  Collected collected;
  const auto pacer = FramePacer::Create(20, false, pool, collected.deliver(), [](const absl::Status&) {});
  for (uint64_t step = 1; step <= 50; ++step) pacer->OnSnapshot(SnapshotOf(step));
  ASSERT_FALSE(collected.steps().empty());
  EXPECT_EQ(collected.steps().front(), 1U);
  // Nothing more comes: the timer brings the newest.
  for (int i = 0; i < 1000 && collected.steps().back() != 50; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_EQ(collected.steps().back(), 50U);
}

TEST(FramePacer, KeepsToTheRateOverTime) {
  WorkerPool pool("test", 1);
  Collected collected;
  constexpr double kRate_hz = 100;
  const auto pacer = FramePacer::Create(kRate_hz, false, pool, collected.deliver(), [](const absl::Status&) {});
  const auto start = std::chrono::steady_clock::now();
  uint64_t step = 0;
  while (std::chrono::steady_clock::now() - start < std::chrono::milliseconds(500)) {
    pacer->OnSnapshot(SnapshotOf(++step));
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  const double elapsed_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  pacer->Stop();
  // An upper bound only: a busy machine may deliver fewer, never more.
  EXPECT_LE(static_cast<double>(collected.steps().size()), elapsed_s * kRate_hz + 2);
  const std::vector<uint64_t> steps = collected.steps();
  for (size_t i = 1; i < steps.size(); ++i) EXPECT_GT(steps[i], steps[i - 1]);
}

TEST(FramePacer, WaitsForVolume) {
  WorkerPool pool("test", 1);
  Collected collected;
  const auto pacer = FramePacer::Create(10000, true, pool, collected.deliver(), [](const absl::Status&) {});
  pacer->OnSnapshot(SnapshotOf(1, false));
  EXPECT_TRUE(collected.steps().empty());
  pacer->OnSnapshot(SnapshotOf(2, true));
  EXPECT_EQ(collected.steps(), std::vector<uint64_t>{2});
}

TEST(FramePacer, NothingAfterTheEndOrStop) {
  WorkerPool pool("test", 1);
  Collected collected;
  absl::Status end;
  const auto pacer = FramePacer::Create(10000, false, pool, collected.deliver(), [&](const absl::Status& reason) { end = reason; });
  pacer->OnSceneEnd(absl::AbortedError("deleted"));
  EXPECT_EQ(end.code(), absl::StatusCode::kAborted);
  pacer->OnSnapshot(SnapshotOf(1));
  EXPECT_TRUE(collected.steps().empty());

  const auto stopped = FramePacer::Create(10000, false, pool, collected.deliver(), [&](const absl::Status& reason) { end = reason; });
  stopped->Stop();
  stopped->OnSnapshot(SnapshotOf(1));
  end = absl::OkStatus();
  stopped->OnSceneEnd(absl::AbortedError("deleted"));
  EXPECT_TRUE(end.ok());
  EXPECT_TRUE(collected.steps().empty());
}

}  // namespace
}  // namespace palpate::server::frame_pacer_test
