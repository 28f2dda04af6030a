#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace palpate::server {

/// A few threads that run small jobs in order of arrival, and jobs at a later time. Thread-safe. The destructor runs what is queued,
/// forgets what is scheduled for later, and joins.
class WorkerPool {
 public:
  using Clock = std::chrono::steady_clock;

  /// `name`: of the threads, for debuggers; at most 15 bytes. `niceness`: added to the threads' scheduling niceness (0 = as the process).
  WorkerPool(const std::string& name, int thread_count, int niceness = 0);
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  /// Runs `job` on a pool thread. After the destructor began: dropped.
  void Post(std::function<void()> job);

  /// Runs `job` on a pool thread at `time` or soon after.
  void PostAt(Clock::time_point time, std::function<void()> job);

 private:
  void Run(const std::string& name, int niceness);

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> jobs_;
  std::multimap<Clock::time_point, std::function<void()>> timers_;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace palpate::server
