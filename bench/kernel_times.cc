#include "bench/kernel_times.h"

#include <algorithm>
#include <functional>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/str_format.h"

ABSL_FLAG(bool, kernels, false, "Print the device time of each kernel, summed over all cases (best with --filter).");

namespace palpate::bench {

uint32_t TimedLaunches() { return absl::GetFlag(FLAGS_kernels) ? 1U : 61U; }

void NoteKernels(const gpu::Context& context, Report* report) {
  if (!absl::GetFlag(FLAGS_kernels)) return;
  std::vector<gpu::KernelTime> times = context.KernelTimes();
  std::ranges::sort(times, std::greater<>(), &gpu::KernelTime::seconds);
  double sum_s = 0;
  for (const gpu::KernelTime& time : times) sum_s += time.seconds;
  report->Note(absl::StrFormat("%-28s %9s %10s %9s %6s", "kernel", "launches", "ms", "us each", "share"));
  for (const gpu::KernelTime& time : times) {
    if (time.launches == 0) continue;
    report->Note(absl::StrFormat("%-28s %9d %10.2f %9.1f %5.1f%%", time.name, time.launches, 1e3 * time.seconds,
                                 1e6 * time.seconds / static_cast<double>(time.launches), 100 * time.seconds / sum_s));
  }
}

}  // namespace palpate::bench
