#pragma once

#include <signal.h>

#include <atomic>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include <google/protobuf/message.h>

#include "absl/status/status.h"

namespace palpate::cli {

/// Bytes for people, binary multiples: "12.3 MiB".
std::string FormatBytes(uint64_t bytes);

/// Columns of text, aligned: the first to the left, the others to the right. Rows may be shorter than the header.
class Table {
 public:
  explicit Table(std::vector<std::string> header) : rows_{std::move(header)} {}
  void AddRow(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  /// Ends with a line feed.
  std::string ToString() const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

/// A line on standard error that fills as work proceeds; silent where standard error is no terminal.
class ProgressBar {
 public:
  explicit ProgressBar(std::string label);
  /// Ends the line.
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;
  /// `fraction` in [0, 1]; redraws only when the picture changes.
  void Update(double fraction);

 private:
  std::string label_;
  bool enabled_;
  int drawn_percent_ = -1;
};

/// Prints a message in the JSON form of protobuf, field names as in the proto, all fields, on one line.
void PrintJson(const google::protobuf::Message& message);

/// Prints "palpate: <message>" to standard error, or with `json` {"error": {"code": "...", "message": "..."}}.
void PrintError(const absl::Status& status, bool json);

/// Writes a file whole or not at all (temporary file beside it, then rename). "-" is standard output. Errors: names the file and the cause.
absl::Status WriteFile(const std::string& path, std::string_view content);

/// Whether WriteFile finds a place to write to; leaves nothing behind. Errors: those of WriteFile.
absl::Status CheckWritable(const std::string& path);

bool IsTerminal(int file_descriptor);

/// Set by the signals that InstallInterruptHandler was given, once it has run; the handler stays quiet so that loops can end in order.
extern std::atomic<bool> g_interrupted;
void InstallInterruptHandler(std::initializer_list<int> signals = {SIGINT, SIGTERM});
/// Whether one of these has come, for loops that run kernels. LLVM, which compiles them, puts handlers of its own before ours, and a second
/// signal that comes while the first is handled then kills the process: this puts ours back. A few system calls. Main thread.
bool IsInterrupted();

}  // namespace palpate::cli
