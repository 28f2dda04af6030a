#include "clients/cli/console.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <utility>
#include <vector>

#include <google/protobuf/util/json_util.h>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "sim/export/byte_sink.h"

namespace palpate::cli {

std::atomic<bool> g_interrupted{false};

namespace {
extern "C" void OnInterrupt(int /*signal*/) { g_interrupted.store(true, std::memory_order_relaxed); }
static_assert(std::atomic<bool>::is_always_lock_free, "the handler may only touch a lock-free flag");

/// Whatever the cause, files that cannot be written are one kind of failure of a command.
absl::Status Unwritable(const absl::Status& status) { return absl::FailedPreconditionError(status.message()); }
}  // namespace

std::string FormatBytes(uint64_t bytes) {
  static constexpr std::array<const char*, 5> kUnits = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < kUnits.size()) {
    value /= 1024;
    ++unit;
  }
  return unit == 0 ? absl::StrFormat("%d B", bytes) : absl::StrFormat("%.1f %s", value, kUnits[unit]);
}

std::string Table::ToString() const {
  std::vector<size_t> widths;
  for (const auto& row : rows_) {
    widths.resize(std::max(widths.size(), row.size()), 0);
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const auto& row : rows_) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      const std::string padding(widths[i] - row[i].size(), ' ');
      absl::StrAppend(&line, i == 0 ? "" : "  ", i == 0 ? row[i] : padding, i == 0 ? padding : row[i]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    absl::StrAppend(&text, line, "\n");
  }
  return text;
}

ProgressBar::ProgressBar(std::string label) : label_(std::move(label)), enabled_(IsTerminal(STDERR_FILENO)) {}

ProgressBar::~ProgressBar() {
  if (enabled_ && drawn_percent_ >= 0) std::fputc('\n', stderr);
}

void ProgressBar::Update(double fraction) {
  const int percent = static_cast<int>(100 * std::clamp(fraction, 0.0, 1.0));
  if (!enabled_ || percent == drawn_percent_) return;
  drawn_percent_ = percent;
  constexpr int kWidth = 40;
  const int filled = percent * kWidth / 100;
  absl::FPrintF(stderr, "\r%s [%s%s] %3d %%", label_, std::string(static_cast<size_t>(filled), '#'),
                std::string(static_cast<size_t>(kWidth - filled), ' '), percent);
  std::fflush(stderr);
}

void PrintJson(const google::protobuf::Message& message) {
  google::protobuf::util::JsonPrintOptions options;
  options.always_print_primitive_fields = true;
  options.preserve_proto_field_names = true;
  std::string text;
  // Every message of ours has a JSON form: no Any, no unknown type.
  if (google::protobuf::util::MessageToJsonString(message, &text, options).ok()) std::puts(text.c_str());
}

void PrintError(const absl::Status& status, bool json) {
  if (json) {
    const nlohmann::ordered_json error = {
        {"error", {{"code", absl::StatusCodeToString(status.code())}, {"message", std::string(status.message())}}}};
    absl::FPrintF(stderr, "%s\n", error.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  } else {
    absl::FPrintF(stderr, "palpate: %s\n", status.message());
  }
}

absl::Status WriteFile(const std::string& path, std::string_view content) {
  if (path == "-") {
    if (std::fwrite(content.data(), 1, content.size(), stdout) == content.size() && std::fflush(stdout) == 0) return absl::OkStatus();
    return Unwritable(absl::ErrnoToStatus(errno, "-: cannot be written"));
  }
  absl::StatusOr<sim::FileSink> file = sim::FileSink::Create(path);
  if (!file.ok()) return Unwritable(file.status());
  if (const absl::Status status = file->Append(content); !status.ok()) return Unwritable(status);
  if (const absl::Status status = file->Commit(); !status.ok()) return Unwritable(status);
  return absl::OkStatus();
}

absl::Status CheckWritable(const std::string& path) {
  if (path == "-") return absl::OkStatus();
  const absl::StatusOr<sim::FileSink> file = sim::FileSink::Create(path);
  return file.ok() ? absl::OkStatus() : Unwritable(file.status());
}

bool IsTerminal(int file_descriptor) { return isatty(file_descriptor) == 1; }

namespace {

std::vector<int>& HandledSignals() {
  static std::vector<int> signals;
  return signals;
}

void HandleSignals() {
  struct sigaction action = {};
  action.sa_handler = OnInterrupt;
  for (const int number : HandledSignals()) sigaction(number, &action, nullptr);
}

}  // namespace

void InstallInterruptHandler(std::initializer_list<int> signals) {
  HandledSignals().assign(signals);
  HandleSignals();
}

bool IsInterrupted() {
  HandleSignals();
  return g_interrupted.load(std::memory_order_relaxed);
}

}  // namespace palpate::cli
