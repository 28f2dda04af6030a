#include "server/core/line_writer.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <string>

namespace palpate::server::line_writer_test {
namespace {

/// Everything that can be read without waiting.
std::string Drain(int fd) {
  fcntl(fd, F_SETFL, O_NONBLOCK);
  std::string out;
  std::array<char, 4096> buffer{};
  for (ssize_t count = 0; (count = read(fd, buffer.data(), buffer.size())) > 0;) out.append(buffer.data(), static_cast<size_t>(count));
  return out;
}

class LineWriterTest : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override { ASSERT_EQ(GetParam() ? pipe(fds_.data()) : socketpair(AF_UNIX, SOCK_STREAM, 0, fds_.data()), 0); }
  void TearDown() override {
    for (const int fd : fds_) close(fd);
  }
  std::array<int, 2> fds_{};
};

TEST_P(LineWriterTest, NeverWaitsAndWritesWholeLines) {
  LineWriter writer(fds_[1]);
  const std::string line = std::string(1000, 'a') + "\n";
  size_t written = 0;
  while (writer.Write(line)) ASSERT_LT(++written, 100000u);
  EXPECT_FALSE(writer.Write(line));  // and returns
  // Whoever shares the descriptor still has one that waits.
  EXPECT_EQ(fcntl(fds_[1], F_GETFL) & O_NONBLOCK, 0);
  const std::string read = Drain(fds_[0]);
  EXPECT_GT(written, 0u);
  EXPECT_EQ(read.size(), written * line.size());
  EXPECT_TRUE(writer.Write("again\n"));
  EXPECT_EQ(Drain(fds_[0]), "again\n");
}

TEST_P(LineWriterTest, CutsLongLines) {
  LineWriter writer(fds_[1]);
  EXPECT_TRUE(writer.Write(std::string(100000, 'a') + "\n"));
  const std::string read = Drain(fds_[0]);
  EXPECT_EQ(read.size(), LineWriter::kMaxLineBytes);
  EXPECT_EQ(read.substr(read.size() - 5), "a...\n");
}

INSTANTIATE_TEST_SUITE_P(PipeAndSocket, LineWriterTest, ::testing::Bool(), [](const auto& test) { return test.param ? "Pipe" : "Socket"; });

TEST(LineWriter, AppendsToFiles) {
  const std::string path = ::testing::TempDir() + "line_writer_" + std::to_string(getpid());
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC, 0600);
  ASSERT_GE(fd, 0);
  ASSERT_EQ(write(fd, "before\n", 7), 7);
  LineWriter writer(fd);
  EXPECT_TRUE(writer.Write("one\n"));
  EXPECT_TRUE(writer.Write("two\n"));
  lseek(fd, 0, SEEK_SET);
  EXPECT_EQ(Drain(fd), "before\none\ntwo\n");
  close(fd);
  unlink(path.c_str());
}

}  // namespace
}  // namespace palpate::server::line_writer_test
