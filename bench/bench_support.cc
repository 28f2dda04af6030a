#include "bench/bench_support.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <fstream>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/flags/usage_config.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "palpate_commit.h"

ABSL_FLAG(std::string, json, "", "append the rows to this file, one JSON object a line");
ABSL_FLAG(std::string, device, "", "OpenCL device: an index, a part of its name, 'cpu', 'gpu' or 'auto'");
ABSL_FLAG(std::string, filter, "", "run only the cases whose name contains this text, or one of several with | between them");
ABSL_FLAG(bool, quick, false, "smaller and fewer cases");

namespace palpate::bench {
namespace {

absl::string_view Absl(std::string_view text) { return {text.data(), text.size()}; }

std::string JsonString(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      out += absl::StrFormat("\\u%04x", static_cast<int>(c));
    } else {
      out += c;
    }
  }
  return out + '"';
}

double ProcessCpuSeconds() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

double SecondsOf(const timeval& time) { return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec); }

double OwnAndChildrenCpuSeconds() {
  double total_s = 0;
  for (const int who : {RUSAGE_SELF, RUSAGE_CHILDREN}) {
    rusage usage{};
    getrusage(who, &usage);
    total_s += SecondsOf(usage.ru_utime) + SecondsOf(usage.ru_stime);
  }
  return total_s;
}

// Seconds of all cores that were spent on something since the start of the machine, those stolen by other guests included; -1 if not known.
double MachineBusySeconds() {
  std::ifstream file("/proc/stat");
  std::string label;
  double user = 0, nice = 0, system = 0, idle = 0, wait = 0, interrupt = 0, soft_interrupt = 0, steal = 0;
  if (!(file >> label >> user >> nice >> system >> idle >> wait >> interrupt >> soft_interrupt >> steal)) return -1;
  return (user + nice + system + interrupt + soft_interrupt + steal) / static_cast<double>(sysconf(_SC_CLK_TCK));
}

}  // namespace

Stopwatch::Stopwatch() : wall_begin_(std::chrono::steady_clock::now()), cpu_begin_s_(ProcessCpuSeconds()) {}

Times Stopwatch::Elapsed() const {
  const std::chrono::duration<double> wall = std::chrono::steady_clock::now() - wall_begin_;
  return {wall.count(), ProcessCpuSeconds() - cpu_begin_s_};
}

void Samples::Add(const Times& times) {
  wall_s.push_back(times.wall_s);
  cpu_s.push_back(times.cpu_s);
}

Samples TimeRepetitions(const std::function<void()>& run, const TimingOptions& options) {
  for (int i = 0; i < options.warmup_repetitions; ++i) run();
  Samples samples;
  double total_s = 0;
  while (static_cast<int>(samples.count()) < options.min_repetitions ||
         (total_s < options.min_total_time_s && static_cast<int>(samples.count()) < options.max_repetitions)) {
    const Stopwatch stopwatch;
    run();
    samples.Add(stopwatch.Elapsed());
    total_s += samples.wall_s.back();
  }
  return samples;
}

double Quantile(std::vector<double> values, double ratio) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const double position = std::clamp(ratio, 0.0, 1.0) * static_cast<double>(values.size() - 1);
  const auto below = static_cast<size_t>(position);
  const size_t above = std::min(below + 1, values.size() - 1);
  return values[below] + (position - static_cast<double>(below)) * (values[above] - values[below]);
}

Times MedianTimes(const std::function<void()>& run, const TimingOptions& options) {
  const Samples samples = TimeRepetitions(run, options);
  return {Quantile(samples.wall_s, 0.5), Quantile(samples.cpu_s, 0.5)};
}

void Initialize(int argc, char** argv, std::string_view description) {
  absl::SetProgramUsageMessage(Absl(description));
  absl::FlagsUsageConfig config;
  config.contains_help_flags = [](absl::string_view file) { return absl::StrContains(file, "bench/"); };
  absl::SetFlagsUsageConfig(config);
  const std::vector<char*> rest = absl::ParseCommandLine(argc, argv);
  if (rest.size() > 1) {
    std::fprintf(stderr, "unexpected argument '%s'; --help lists the flags\n", rest[1]);
    std::exit(2);
  }
}

std::string DeviceSelector() { return absl::GetFlag(FLAGS_device); }
bool IsQuick() { return absl::GetFlag(FLAGS_quick); }
bool IsSelected(std::string_view case_name) {
  for (const absl::string_view part : absl::StrSplit(absl::GetFlag(FLAGS_filter), '|')) {
    if (absl::StrContains(Absl(case_name), part)) return true;
  }
  return false;
}
std::string Commit() { return kCommit; }

Report::Report(std::string suite, std::string device)
    : suite_(std::move(suite)),
      device_(std::move(device)),
      begin_(std::chrono::steady_clock::now()),
      busy_begin_s_(MachineBusySeconds()),
      own_begin_s_(OwnAndChildrenCpuSeconds()) {}

void Report::Add(std::string_view case_name, std::string_view metric, double value, std::string_view unit) {
  rows_.push_back({std::string(case_name), std::string(metric), std::string(unit), value});
  const std::string path = absl::GetFlag(FLAGS_json);
  if (path.empty()) return;
  // JSON has no infinity and no NaN.
  const std::string number = std::isfinite(value) ? absl::StrFormat("%.9g", value) : "null";
  std::ofstream file(path, std::ios::app);
  file << "{\"suite\":" << JsonString(suite_) << ",\"case\":" << JsonString(case_name) << ",\"metric\":" << JsonString(metric)
       << ",\"value\":" << number << ",\"unit\":" << JsonString(unit) << ",\"device\":" << JsonString(device_)
       << ",\"commit\":" << JsonString(Commit()) << "}\n";
  file.close();
  if (!file) json_failed_ = true;
}

void Report::Note(std::string_view text) { notes_.emplace_back(text); }

int Report::Finish(const absl::Status& status) {
  const double elapsed_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
  if (status.ok() && !rows_.empty() && busy_begin_s_ >= 0 && elapsed_s > 0) {
    const double busy_s = MachineBusySeconds() - busy_begin_s_;
    const double own_s = OwnAndChildrenCpuSeconds() - own_begin_s_;
    Add("machine", "foreign_cores", std::max(0.0, (busy_s - own_s) / elapsed_s), "count");
  }
  size_t case_width = 4;
  size_t metric_width = 6;
  for (const Row& row : rows_) {
    case_width = std::max(case_width, row.case_name.size());
    metric_width = std::max(metric_width, row.metric.size());
  }
  absl::PrintF("suite %s, device %s, commit %s\n", suite_, device_, Commit());
  absl::PrintF("%-*s  %-*s  %12s  %s\n", static_cast<int>(case_width), "case", static_cast<int>(metric_width), "metric", "value", "unit");
  for (const Row& row : rows_) {
    absl::PrintF("%-*s  %-*s  %12.5g  %s\n", static_cast<int>(case_width), row.case_name, static_cast<int>(metric_width), row.metric,
                 row.value, row.unit);
  }
  for (const std::string& note : notes_) absl::PrintF("%s\n", note);
  std::fflush(stdout);
  if (!status.ok()) {
    absl::FPrintF(stderr, "%s\n", status.ToString());
    return 1;
  }
  if (json_failed_) {
    absl::FPrintF(stderr, "cannot write %s\n", absl::GetFlag(FLAGS_json));
    return 1;
  }
  if (rows_.empty()) {
    absl::FPrintF(stderr, "no case was run\n");
    return 1;
  }
  return 0;
}

}  // namespace palpate::bench
