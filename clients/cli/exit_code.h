#pragma once

#include "absl/status/status.h"

namespace palpate::cli {

/// Exit statuses of the program; the help text states them.
enum ExitCode : int {
  kExitOk = 0,
  kExitFailed = 1,             ///< the input is bad or the server refused
  kExitUsage = 2,              ///< wrong arguments; `verify`, `job`: also a file it cannot use
  kExitServerUnreachable = 3,  ///< no server answers at the address
  kExitInterrupted = 4,        ///< a job was interrupted and saved; the same command goes on
};

/// The exit status for the status of a command: a server that cannot be reached is `Unavailable`, which nothing local returns; `failure`
/// for any other error.
inline ExitCode ToExitCode(const absl::Status& status, ExitCode failure) {
  if (status.ok()) return kExitOk;
  return absl::IsUnavailable(status) ? kExitServerUnreachable : failure;
}

}  // namespace palpate::cli
