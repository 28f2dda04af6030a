#include "server/core/worker_pool.h"

#include <pthread.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <utility>

namespace palpate::server {

WorkerPool::WorkerPool(const std::string& name, int thread_count, int niceness) {
  threads_.reserve(static_cast<size_t>(thread_count));
  for (int i = 0; i < thread_count; ++i) threads_.emplace_back([this, name, niceness] { Run(name, niceness); });
}

WorkerPool::~WorkerPool() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void WorkerPool::Post(std::function<void()> job) {
  {
    const std::lock_guard lock(mutex_);
    if (stopping_) return;
    jobs_.push_back(std::move(job));
  }
  wake_.notify_one();
}

void WorkerPool::PostAt(Clock::time_point time, std::function<void()> job) {
  {
    const std::lock_guard lock(mutex_);
    if (stopping_) return;
    timers_.emplace(time, std::move(job));
  }
  wake_.notify_one();
}

void WorkerPool::Run(const std::string& name, int niceness) {
  pthread_setname_np(pthread_self(), name.substr(0, 15).c_str());
  if (niceness != 0) {
    const auto thread_id = static_cast<id_t>(syscall(SYS_gettid));
    setpriority(PRIO_PROCESS, thread_id, getpriority(PRIO_PROCESS, thread_id) + niceness);
  }
  std::unique_lock lock(mutex_);
  while (true) {
    while (!timers_.empty() && timers_.begin()->first <= Clock::now()) {
      jobs_.push_back(std::move(timers_.begin()->second));
      timers_.erase(timers_.begin());
    }
    if (!jobs_.empty()) {
      std::function<void()> job = std::move(jobs_.front());
      jobs_.pop_front();
      // Others look after the rest of the queue while this thread is busy.
      if (!jobs_.empty() || !timers_.empty()) wake_.notify_one();
      lock.unlock();
      job();
      job = nullptr;
      lock.lock();
    } else if (stopping_) {
      return;
    } else if (timers_.empty()) {
      wake_.wait(lock);
    } else {
      const Clock::time_point next = timers_.begin()->first;
      wake_.wait_until(lock, next);
    }
  }
}

}  // namespace palpate::server
