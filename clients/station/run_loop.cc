#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "clients/station/haptic_loop.h"

namespace palpate::station {
namespace {

constexpr int64_t kNanosecondsPerSecond = 1'000'000'000;
constexpr int kPriority = 80;  // above everything but the kernel's own threads
constexpr size_t kStackBytes = size_t{256} << 10;

int64_t Now_ns() noexcept {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * kNanosecondsPerSecond + now.tv_nsec;
}

void SleepUntil(int64_t time_ns) noexcept {
  const timespec until{time_ns / kNanosecondsPerSecond, time_ns % kNanosecondsPerSecond};
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr) == EINTR) {
  }
}

/// Touches the stack that the loop may use, so that its pages exist and can be locked.
[[gnu::noinline]] void LockStack(bool* locked) {
  volatile char stack[kStackBytes];
  for (size_t i = 0; i < kStackBytes; i += 1024) stack[i] = 0;
  *locked = mlock(const_cast<const char*>(stack), kStackBytes) == 0;
}

std::string LockMemory(HapticLoop* loop) {
  rlimit limit{};
  // With a finite limit a lock on future pages could make a later allocation anywhere in the process fail.
  if (getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur == RLIM_INFINITY && mlockall(MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT) == 0) {
    return "all";
  }
  bool stack_locked = false;
  LockStack(&stack_locked);
  return mlock(loop, sizeof(*loop)) == 0 && stack_locked ? "loop" : "none";
}

void RequestPriority(RealTimeReport* report) {
  sched_param parameters{};
  parameters.sched_priority = kPriority;
  const int error = pthread_setschedparam(pthread_self(), SCHED_FIFO, &parameters);
  report->priority = error == 0;
  if (error != 0)
    report->priority_note = absl::StrCat("SCHED_FIFO refused: ", std::strerror(error), "; allow it with 'ulimit -r' or CAP_SYS_NICE");
}

}  // namespace

int64_t MonotonicNow_us() noexcept { return Now_ns() / 1000; }

DeviceResult RunLoop(HapticLoop* loop, absl::FunctionRef<bool()> should_stop, RealTimeReport* report) {
  report->memory = LockMemory(loop);
  RequestPriority(report);
  LoopStatistics& statistics = loop->statistics();
  const auto period_ns = static_cast<int64_t>(static_cast<double>(kNanosecondsPerSecond) / loop->options().rate_hz);
  int64_t deadline_ns = Now_ns() + period_ns;
  DeviceResult result = DeviceResult::kOk;
  while (!should_stop()) {
    SleepUntil(deadline_ns);
    const int64_t begin_ns = Now_ns();
    statistics.lateness_us.Add(static_cast<double>(begin_ns - deadline_ns) * 1e-3);
    result = loop->Tick(begin_ns / 1000);
    if (result != DeviceResult::kOk) break;
    const int64_t end_ns = Now_ns();
    statistics.cycle_us.Add(static_cast<double>(end_ns - begin_ns) * 1e-3);
    deadline_ns += period_ns;
    if (end_ns >= deadline_ns + period_ns) {
      const int64_t skipped = (end_ns - deadline_ns) / period_ns;
      AddRelaxed(statistics.missed, static_cast<uint64_t>(skipped));
      deadline_ns += skipped * period_ns;
    }
  }
  // Each step a period after the last, whenever that was: a burst would be a drop.
  while (!loop->Release()) SleepUntil(Now_ns() + period_ns);
  return result;
}

}  // namespace palpate::station
