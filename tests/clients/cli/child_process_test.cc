#include "clients/cli/child_process.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <gtest/gtest.h>

namespace palpate::cli::child_process_test {
namespace {

using namespace std::chrono_literals;

absl::StatusOr<ChildProcess> StartShell(const std::string& script, const std::string& output = "") {
  return ChildProcess::Start({"/bin/sh", "-c", script}, output);
}

class TemporaryFile {
 public:
  TemporaryFile() {
    const int file = mkstemp(path_.data());
    if (file >= 0) close(file);
  }
  ~TemporaryFile() { std::filesystem::remove(path_); }
  const std::string& path() const { return path_; }
  std::string content() const {
    std::ostringstream text;
    text << std::ifstream(path_).rdbuf();
    return text.str();
  }

 private:
  std::string path_ = (std::filesystem::temp_directory_path() / "palpate-child-XXXXXX").string();
};

TEST(ChildProcess, GivesTheExitStatus) {
  auto child = StartShell("exit 7");
  ASSERT_TRUE(child.ok());
  EXPECT_EQ(child->WaitFor(30s), 7);
  EXPECT_EQ(child->ExitStatus(), 7);
  EXPECT_EQ(child->Stop(1ms), 7);
}

TEST(ChildProcess, OutputGoesToTheFile) {
  const TemporaryFile log;
  auto child = StartShell("echo out; echo err >&2; cat", log.path());
  ASSERT_TRUE(child.ok());
  // `cat` ends because standard input is closed.
  EXPECT_EQ(child->WaitFor(30s), 0);
  EXPECT_EQ(log.content(), "out\nerr\n");
}

TEST(ChildProcess, AMissingProgramIsAnError) {
  const auto child = ChildProcess::Start({"/nonexistent/program"}, "");
  EXPECT_EQ(child.status().code(), absl::StatusCode::kNotFound);
  EXPECT_NE(child.status().message().find("/nonexistent/program"), absl::string_view::npos);
}

TEST(ChildProcess, StopAsksFirst) {
  const TemporaryFile log;
  auto child = StartShell("trap 'echo asked; exit 3' TERM; echo ready; while :; do sleep 0.05; done", log.path());
  ASSERT_TRUE(child.ok());
  while (log.content().empty()) ASSERT_FALSE(child->WaitFor(10ms).has_value());
  EXPECT_EQ(child->Stop(30s), 3);
  EXPECT_EQ(log.content(), "ready\nasked\n");
}

TEST(ChildProcess, StopKillsWhatDoesNotListen) {
  const TemporaryFile log;
  auto child = StartShell("trap '' TERM; echo ready; while :; do sleep 0.05; done", log.path());
  ASSERT_TRUE(child.ok());
  while (log.content().empty()) ASSERT_FALSE(child->WaitFor(10ms).has_value());
  EXPECT_EQ(child->Stop(100ms), 128 + SIGKILL);
}

TEST(ChildProcess, DestructionLeavesNoProcess) {
  const TemporaryFile log;
  pid_t pid = 0;
  {
    auto child = StartShell("echo $$; exec sleep 1000", log.path());
    ASSERT_TRUE(child.ok());
    ChildProcess moved = *std::move(child);
    while (log.content().find('\n') == std::string::npos) ASSERT_FALSE(moved.WaitFor(10ms).has_value());
    pid = std::atoi(log.content().c_str());
    ASSERT_EQ(kill(pid, 0), 0);
  }
  EXPECT_EQ(kill(pid, 0), -1);
}

// A parent that is killed cannot clean up; the kernel does it.
TEST(ChildProcess, DiesWithItsParent) {
  const TemporaryFile log;
  const pid_t parent = fork();
  ASSERT_GE(parent, 0);
  if (parent == 0) {
    auto child = StartShell("echo $$; exec sleep 1000", log.path());
    while (true) pause();
  }
  while (log.content().find('\n') == std::string::npos) usleep(10000);
  const pid_t child = std::atoi(log.content().c_str());
  ASSERT_EQ(kill(child, 0), 0);
  kill(parent, SIGKILL);
  waitpid(parent, nullptr, 0);
  // Its new parent has to reap it; a zombie is dead too.
  const auto alive = [child] {
    std::ifstream file("/proc/" + std::to_string(child) + "/stat");
    std::string unused;
    std::string state;
    return (file >> unused >> unused >> state) && state != "Z";
  };
  for (int i = 0; i < 3000 && alive(); ++i) usleep(10000);
  EXPECT_FALSE(alive());
}

}  // namespace
}  // namespace palpate::cli::child_process_test
