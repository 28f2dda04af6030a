#pragma once

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace palpate::cli {

/// A program that this one started. It has its own process group, so that Ctrl-C reaches it only through us, and dies with us even if we
/// are killed. The destructor stops it. Start and use from one thread, which must outlive the object.
class ChildProcess {
 public:
  /// Starts `arguments[0]` (a path) with standard input closed and, unless `output_path` is empty, standard output and error appended to
  /// that file. Errors: NotFound (no such program), Internal (fork).
  static absl::StatusOr<ChildProcess> Start(const std::vector<std::string>& arguments, const std::string& output_path);
  ChildProcess(ChildProcess&& other) noexcept;
  ChildProcess& operator=(ChildProcess&& other) noexcept;
  ~ChildProcess();

  /// Its exit status once it has ended (128 + signal when a signal ended it). Does not wait.
  std::optional<int> ExitStatus();

  /// Waits for the end, at most so long. The exit status, or nothing if it still runs.
  std::optional<int> WaitFor(std::chrono::milliseconds limit);

  /// Asks it to end (SIGTERM), waits at most `patience`, then kills it. The exit status. Does nothing to one that has ended.
  int Stop(std::chrono::milliseconds patience);

 private:
  explicit ChildProcess(pid_t pid) : pid_(pid) {}
  pid_t pid_ = -1;  // -1: moved from
  std::optional<int> exit_status_;
};

}  // namespace palpate::cli
