#include "server/core/worker_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <vector>

namespace palpate::server::worker_pool_test {
namespace {

using Clock = WorkerPool::Clock;

TEST(WorkerPool, RunsEverythingThatIsQueuedBeforeItEnds) {
  std::atomic<int> done = 0;
  {
    WorkerPool pool("test", 3);
    for (int i = 0; i < 1000; ++i) pool.Post([&] { ++done; });
  }
  EXPECT_EQ(done, 1000);
}

TEST(WorkerPool, OneThreadKeepsTheOrder) {
  std::vector<int> order;
  {
    WorkerPool pool("test", 1);
    for (int i = 0; i < 100; ++i) pool.Post([&order, i] { order.push_back(i); });
  }
  ASSERT_EQ(order.size(), 100U);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(order[static_cast<size_t>(i)], i);
}

TEST(WorkerPool, TimersComeInOrderOfTimeAndNotEarly) {
  WorkerPool pool("test", 1);
  std::promise<void> all;
  std::vector<int> order;
  std::vector<bool> early;
  const Clock::time_point start = Clock::now();
  const auto add = [&](int id, int delay_ms) {
    const Clock::time_point due = start + std::chrono::milliseconds(delay_ms);
    pool.PostAt(due, [&, id, due] {
      order.push_back(id);
      early.push_back(Clock::now() < due);
      if (order.size() == 3) all.set_value();
    });
  };
  add(3, 60);
  add(1, 5);
  add(2, 30);
  all.get_future().wait();
  EXPECT_EQ(order, (std::vector<int>{1, 2, 3}));
  EXPECT_EQ(early, (std::vector<bool>{false, false, false}));
}

TEST(WorkerPool, ForgetsTimersAtTheEndWithoutWaitingForThem) {
  std::atomic<bool> ran = false;
  {
    WorkerPool pool("test", 2);
    pool.PostAt(Clock::now() + std::chrono::hours(1), [&] { ran = true; });
  }
  EXPECT_FALSE(ran);
}

TEST(WorkerPool, ATimerRunsWhileAnotherThreadIsBusy) {
  WorkerPool pool("test", 2);
  std::promise<void> timer_ran;
  std::promise<void> busy_done;
  pool.Post([&] {
    timer_ran.get_future().wait();
    busy_done.set_value();
  });
  pool.PostAt(Clock::now() + std::chrono::milliseconds(20), [&] { timer_ran.set_value(); });
  busy_done.get_future().wait();
}

}  // namespace
}  // namespace palpate::server::worker_pool_test
