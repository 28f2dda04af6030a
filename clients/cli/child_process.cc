#include "clients/cli/child_process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <thread>
#include <utility>

#include "absl/strings/str_format.h"

namespace palpate::cli {
namespace {

constexpr std::chrono::milliseconds kPoll{10};

// Runs in the child between fork and exec: only calls that are safe there.
[[noreturn]] void Become(char* const* arguments, const char* output_path, pid_t parent, int error_pipe) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent) _exit(127);  // the parent died before the line above
  struct sigaction action = {};
  action.sa_handler = SIG_DFL;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  const int null = open("/dev/null", O_RDONLY);
  if (null >= 0) dup2(null, STDIN_FILENO);
  if (output_path != nullptr) {
    const int output = open(output_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (output >= 0) {
      dup2(output, STDOUT_FILENO);
      dup2(output, STDERR_FILENO);
    }
  }
  execv(arguments[0], arguments);
  const int error = errno;
  (void)!write(error_pipe, &error, sizeof(error));
  _exit(127);
}

}  // namespace

absl::StatusOr<ChildProcess> ChildProcess::Start(const std::vector<std::string>& arguments, const std::string& output_path) {
  std::vector<char*> pointers;
  for (const std::string& argument : arguments) pointers.push_back(const_cast<char*>(argument.c_str()));
  pointers.push_back(nullptr);
  int error_pipe[2];
  if (pipe2(error_pipe, O_CLOEXEC) != 0) return absl::InternalError(absl::StrFormat("pipe: %s", std::strerror(errno)));
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid == 0) Become(pointers.data(), output_path.empty() ? nullptr : output_path.c_str(), parent, error_pipe[1]);
  const int fork_error = errno;
  close(error_pipe[1]);
  int error = 0;
  // Closed by a successful exec: then nothing can be read.
  const bool failed = pid < 0 || read(error_pipe[0], &error, sizeof(error)) == sizeof(error);
  close(error_pipe[0]);
  if (pid < 0) return absl::InternalError(absl::StrFormat("fork: %s", std::strerror(fork_error)));
  if (failed) {
    waitpid(pid, nullptr, 0);
    return absl::NotFoundError(absl::StrFormat("%s: cannot be started: %s", arguments[0], std::strerror(error)));
  }
  return ChildProcess(pid);
}

ChildProcess::ChildProcess(ChildProcess&& other) noexcept : pid_(std::exchange(other.pid_, -1)), exit_status_(other.exit_status_) {}

ChildProcess& ChildProcess::operator=(ChildProcess&& other) noexcept {
  std::swap(pid_, other.pid_);
  std::swap(exit_status_, other.exit_status_);
  return *this;
}

ChildProcess::~ChildProcess() {
  if (pid_ > 0) Stop(std::chrono::seconds(2));
}

std::optional<int> ChildProcess::ExitStatus() {
  if (exit_status_.has_value() || pid_ <= 0) return exit_status_;
  int status = 0;
  if (waitpid(pid_, &status, WNOHANG) == pid_) exit_status_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return exit_status_;
}

std::optional<int> ChildProcess::WaitFor(std::chrono::milliseconds limit) {
  const auto end = std::chrono::steady_clock::now() + limit;
  while (!ExitStatus().has_value() && std::chrono::steady_clock::now() < end) std::this_thread::sleep_for(kPoll);
  return ExitStatus();
}

int ChildProcess::Stop(std::chrono::milliseconds patience) {
  if (pid_ <= 0) return exit_status_.value_or(0);  // moved from: kill() of -1 would reach every process
  if (!ExitStatus().has_value()) kill(pid_, SIGTERM);
  if (!WaitFor(patience).has_value()) kill(-pid_, SIGKILL);
  while (!ExitStatus().has_value()) std::this_thread::sleep_for(kPoll);
  return *ExitStatus();
}

}  // namespace palpate::cli
