#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>
#include <thread>
#include <utility>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "clients/job/json_text.h"
#include "clients/job/policy.h"
#include "gpu/base/status.h"
#include "sim/record/disk.h"

namespace palpate::job {
namespace {

using Clock = std::chrono::steady_clock;
using nlohmann::ordered_json;

constexpr size_t kMaxAnswerBytes = 64 << 20;
constexpr size_t kLastWordsBytes = 2000;
constexpr std::chrono::milliseconds kPoll{10};
constexpr std::chrono::seconds kPatience{2};  // for the end of a program that has been told

using record::Descriptor;

struct ChildFiles {
  int standard_input, standard_output, standard_error, failure;
};

// Runs in the child between fork and exec: only calls that are safe there.
[[noreturn]] void Become(char* const* arguments, const char* folder, ChildFiles files, pid_t parent) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(127);  // the parent died before the line above
  struct sigaction action = {};
  action.sa_handler = SIG_DFL;
  for (const int number : {SIGINT, SIGTERM, SIGUSR1, SIGPIPE}) sigaction(number, &action, nullptr);
  dup2(files.standard_input, STDIN_FILENO);
  dup2(files.standard_output, STDOUT_FILENO);
  dup2(files.standard_error, STDERR_FILENO);
  if (chdir(folder) == 0) execvp(arguments[0], arguments);
  const int error = errno;
  (void)!write(files.failure, &error, sizeof(error));
  _exit(127);
}

class ProgramPolicy final : public Policy {
 public:
  ProgramPolicy(std::string name, double timeout_s, std::filesystem::path log_file, const PolicySetup& setup)
      : where_(absl::StrCat("policy '", name, "'")), timeout_s_(timeout_s), log_file_(std::move(log_file)), columns_(setup.observations) {}

  ~ProgramPolicy() override {
    to_child_ = Descriptor();
    if (pid_ <= 0) return;
    const auto patient_until = Clock::now() + kPatience;
    while (!HasEnded() && Clock::now() < patient_until) std::this_thread::sleep_for(kPoll);
    if (!HasEnded()) kill(-pid_, SIGKILL);
    while (!HasEnded()) std::this_thread::sleep_for(kPoll);
  }

  absl::Status Start(const v1::PolicyProgram& program, const std::filesystem::path& folder) {
    std::vector<std::string> arguments(program.command().begin(), program.command().end());
    std::vector<char*> pointers;
    for (std::string& argument : arguments) pointers.push_back(argument.data());
    pointers.push_back(nullptr);
    const std::string working_folder = folder.empty() ? "." : folder.string();
    // Sockets rather than pipes: a write to a program that is gone is an error of the call, and no signal.
    int in[2], out[2], failure[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, in) != 0)
      return absl::InternalError(absl::StrCat("socketpair: ", std::strerror(errno)));
    to_child_ = Descriptor(in[0]);
    const Descriptor child_in(in[1]);
    if (pipe2(out, O_CLOEXEC) != 0) return absl::InternalError(absl::StrCat("pipe: ", std::strerror(errno)));
    from_child_ = Descriptor(out[0]);
    Descriptor child_out(out[1]);
    if (pipe2(failure, O_CLOEXEC) != 0) return absl::InternalError(absl::StrCat("pipe: ", std::strerror(errno)));
    const Descriptor failure_read(failure[0]);
    Descriptor failure_write(failure[1]);
    const Descriptor log(open(log_file_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
    if (log.get() < 0)
      return absl::FailedPreconditionError(absl::StrCat(log_file_.string(), ": cannot be written: ", std::strerror(errno)));
    const pid_t parent = getpid();
    const pid_t pid = fork();
    if (pid == 0)
      Become(pointers.data(), working_folder.c_str(), {child_in.get(), child_out.get(), log.get(), failure_write.get()}, parent);
    if (pid < 0) return absl::InternalError(absl::StrCat("fork: ", std::strerror(errno)));
    pid_ = pid;
    failure_write = Descriptor();
    child_out = Descriptor();
    int error = 0;
    // Closed by a successful exec: then nothing can be read.
    if (read(failure_read.get(), &error, sizeof(error)) == sizeof(error)) {
      return absl::NotFoundError(absl::StrCat(where_, ": cannot be started in ", working_folder, ": ", std::strerror(error)));
    }
    return absl::OkStatus();
  }

  absl::Status Begin(const PolicySetup& setup) {
    ordered_json begin = {{"type", "begin"},
                          {"protocol", kPolicyProtocol},
                          {"job", setup.job},
                          {"dt_s", setup.dt_s},
                          {"interval_s", setup.interval_s},
                          {"seed", setup.seed},
                          {"observations", ordered_json::array()},
                          {"tools", ordered_json::array()}};
    for (const sim::ProbeColumn& column : setup.observations)
      begin["observations"].push_back({{"name", column.name}, {"unit", column.unit}});
    for (const sim::ToolDescription& tool : setup.tools) {
      const Eigen::Vector3d& p = tool.rest_pose.position_m;
      const Eigen::Quaterniond& q = tool.rest_pose.rotation;
      begin["tools"].push_back({{"name", tool.name},
                                {"kind", v1::InstrumentKind_Name(static_cast<int>(tool.instrument.kind) + 1)},
                                {"position_m", {{"x", p.x()}, {"y", p.y()}, {"z", p.z()}}},
                                {"rotation", {{"w", q.w()}, {"x", q.x()}, {"y", q.y()}, {"z", q.z()}}},
                                {"max_jaw_angle_rad", tool.instrument.traits().has_jaws ? tool.instrument.max_jaw_angle_rad : 0},
                                {"max_power_w", tool.instrument.traits().has_power ? tool.instrument.max_power_w : 0}});
    }
    return Send(begin, Deadline());
  }

  absl::StatusOr<v1::PolicyAnswer> Decide(uint64_t step, double time_s, std::span<const double> observations) override {
    ordered_json line = {{"type", "step"}, {"step", step}, {"time_s", time_s}, {"observations", ordered_json::object()}};
    // Unlike null, NaN is no JSON.
    for (size_t i = 0; i < observations.size(); ++i) {
      line["observations"][columns_[i].name] = std::isfinite(observations[i]) ? ordered_json(observations[i]) : ordered_json(nullptr);
    }
    const Clock::time_point deadline = Deadline();
    PALPATE_RETURN_IF_ERROR(Send(line, deadline));
    PALPATE_ASSIGN_OR_RETURN(const std::string text, ReadLine(deadline, step));
    v1::PolicyAnswer answer;
    absl::Status status = CheckJsonSyntax(text, absl::StrCat(where_, ", answer at step ", step));
    if (status.ok()) status = ParseJsonMessage(text, absl::StrCat(where_, ", answer at step ", step), &answer);
    if (!status.ok())
      return WithLastWords(absl::Status(status.code(), absl::StrCat(status.message(), "; it wrote: ", text.substr(0, 200))));
    return answer;
  }

  void End(const std::string& reason) override {
    (void)Send({{"type", "end"}, {"reason", reason}}, Clock::now() + kPatience);  // it may be gone already
    to_child_ = Descriptor();
  }

 private:
  Clock::time_point Deadline() const {
    return Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(timeout_s_));
  }

  bool HasEnded() {
    if (pid_ <= 0) return true;
    int status = 0;
    if (waitpid(pid_, &status, WNOHANG) != pid_) return false;
    end_ = WIFSIGNALED(status) ? absl::StrCat("killed by signal ", WTERMSIG(status)) : absl::StrCat("exit status ", WEXITSTATUS(status));
    pid_ = -1;
    return true;
  }

  /// What the program said of it, if anything.
  absl::Status WithLastWords(const absl::Status& status) const {
    const auto words = record::ReadTail(log_file_, kLastWordsBytes);
    if (!words.ok() || words->empty()) return status;
    return absl::Status(status.code(), absl::StrCat(status.message(), "; its last words (", log_file_.string(), "):\n", *words));
  }

  absl::Status Ended(const char* when) {
    for (const auto until = Clock::now() + kPatience; !HasEnded() && Clock::now() < until;) std::this_thread::sleep_for(kPoll);
    return WithLastWords(absl::FailedPreconditionError(
        absl::StrCat(where_, ": has ended ", when, end_.empty() ? " (it closed its output)" : absl::StrCat(" (", end_, ")"))));
  }

  absl::Status WaitFor(int descriptor, short events, Clock::time_point deadline) {
    pollfd wait = {descriptor, events, 0};
    while (true) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
      const int ready = poll(&wait, 1, static_cast<int>(std::clamp<int64_t>(left, 0, 1000)));
      if (ready > 0) return absl::OkStatus();
      if (ready < 0 && errno != EINTR) return absl::InternalError(absl::StrCat("poll: ", std::strerror(errno)));
      if (left <= 0) return WithLastWords(absl::DeadlineExceededError(absl::StrCat(where_, ": no answer within ", timeout_s_, " s")));
    }
  }

  absl::Status Send(const ordered_json& message, Clock::time_point deadline) {
    const std::string line = message.dump(-1, ' ', false, ordered_json::error_handler_t::replace) + '\n';
    for (std::string_view rest = line; !rest.empty();) {
      const ssize_t count = send(to_child_.get(), rest.data(), rest.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (count > 0) {
        rest.remove_prefix(static_cast<size_t>(count));
      } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
        PALPATE_RETURN_IF_ERROR(WaitFor(to_child_.get(), POLLOUT, deadline));
      } else if (errno != EINTR) {
        return Ended("before it was asked");
      }
    }
    return absl::OkStatus();
  }

  absl::StatusOr<std::string> ReadLine(Clock::time_point deadline, uint64_t step) {
    std::array<char, 4096> chunk;
    while (true) {
      if (const size_t end = received_.find('\n'); end != std::string::npos) {
        std::string line = received_.substr(0, end);
        received_.erase(0, end + 1);
        return line;
      }
      if (received_.size() > kMaxAnswerBytes) {
        return absl::ResourceExhaustedError(
            absl::StrCat(where_, ": the answer at step ", step, " is longer than ", kMaxAnswerBytes, " bytes"));
      }
      PALPATE_RETURN_IF_ERROR(WaitFor(from_child_.get(), POLLIN, deadline));
      const ssize_t count = read(from_child_.get(), chunk.data(), chunk.size());
      if (count == 0) return Ended(absl::StrCat("without an answer at step ", step).c_str());
      if (count > 0) received_.append(chunk.data(), static_cast<size_t>(count));
    }
  }

  std::string where_;
  double timeout_s_;
  std::filesystem::path log_file_;
  std::vector<sim::ProbeColumn> columns_;
  pid_t pid_ = -1;
  Descriptor to_child_, from_child_;
  std::string received_;
  std::string end_;  // how it ended
};

}  // namespace

absl::StatusOr<std::unique_ptr<Policy>> StartPolicyProgram(const v1::PolicyProgram& program, const std::filesystem::path& folder,
                                                           const std::filesystem::path& log_file, const PolicySetup& setup) {
  const double timeout_s = program.has_timeout_s() ? program.timeout_s() : kDefaultPolicyTimeout_s;
  auto policy =
      std::make_unique<ProgramPolicy>(absl::StrJoin(program.command(), " "), timeout_s, std::filesystem::absolute(log_file), setup);
  PALPATE_RETURN_IF_ERROR(policy->Start(program, folder));
  PALPATE_RETURN_IF_ERROR(policy->Begin(setup));
  return policy;
}

}  // namespace palpate::job
