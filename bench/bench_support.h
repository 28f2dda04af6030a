#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "gpu/base/status.h"

namespace palpate::bench {

/// How often a measurement is repeated. Repetitions end when both minima are reached, or at `max_repetitions`.
struct TimingOptions {
  int warmup_repetitions = 2;  ///< not counted
  int min_repetitions = 5;     ///< >= 1
  int max_repetitions = 1000;  ///< >= min_repetitions
  double min_total_time_s = 0.2;
};

/// Wall time on the monotonic clock, and processor time of all threads of this process, those of a CPU device included. Peers that use one
/// thread are compared by the second: a device with two cores may be sooner and still cost more.
struct Times {
  double wall_s = 0;
  double cpu_s = 0;
};

/// Runs from its construction.
class Stopwatch {
 public:
  Stopwatch();
  Times Elapsed() const;

 private:
  std::chrono::steady_clock::time_point wall_begin_;
  double cpu_begin_s_;
};

/// Times of several repetitions; of each kind as many as there were.
struct Samples {
  std::vector<double> wall_s;
  std::vector<double> cpu_s;
  void Add(const Times& times);
  size_t count() const { return wall_s.size(); }
};

/// Times of each counted repetition of `run`. `run` must wait for its own device work.
Samples TimeRepetitions(const std::function<void()>& run, const TimingOptions& options = {});

/// The value below which `ratio` (0..1) of the values lie, interpolated linearly; ratio 0.5 is the median. 0 for no values.
double Quantile(std::vector<double> values, double ratio);

/// Medians of one repetition of `run`.
Times MedianTimes(const std::function<void()>& run, const TimingOptions& options = {});

/// Parses the command line of a benchmark program; call it first in main. Flags every suite has: --json FILE, --device SELECTOR, --filter
/// TEXT (run only cases whose name contains it, or one of several with | between them), --quick (smaller and fewer cases). A suite adds its
/// own with ABSL_FLAG. Ends the program with a message on wrong usage and after --help.
void Initialize(int argc, char** argv, std::string_view description);

/// Values of the common flags.
std::string DeviceSelector();
bool IsQuick();
bool IsSelected(std::string_view case_name);

/// The commit this program was built from, "-dirty" behind it if files were changed; "unknown" outside a git checkout.
std::string Commit();

/// The rows of one suite: printed as a table when the suite ends, and appended to --json FILE as one JSON object a line with the keys
/// suite, case, metric, value, unit, device, commit. Each row is written to the file when it is added, so an interrupted run keeps what it
/// has. The last row is `machine/foreign_cores`: how many cores other processes (and, on a virtual machine, other guests) kept busy on
/// average while the suite ran. Times of a run with more than a tenth of a core are not those of a quiet machine.
class Report {
 public:
  /// `device`: what the suite ran on, e.g. gpu::DescribeDevice(context->device()).
  Report(std::string suite, std::string device);

  /// `metric` is a snake_case name without the unit; `unit` in SI or "ratio", "count", "bytes", "per_s".
  void Add(std::string_view case_name, std::string_view metric, double value, std::string_view unit);

  /// A line for people that belongs to no row (only on standard output).
  void Note(std::string_view text);

  /// Prints the table. Returns the exit status of the program: 0, or 1 if `status` is not OK (printed on standard error), no row was added
  /// or the JSON file could not be written.
  int Finish(const absl::Status& status = absl::OkStatus());

 private:
  struct Row {
    std::string case_name, metric, unit;
    double value = 0;
  };
  std::string suite_;
  std::string device_;
  std::vector<Row> rows_;
  std::vector<std::string> notes_;
  bool json_failed_ = false;
  std::chrono::steady_clock::time_point begin_;
  double busy_begin_s_;  ///< of all processes of the machine; negative: not known
  double own_begin_s_;   ///< of this process and those it has waited for
};

}  // namespace palpate::bench
