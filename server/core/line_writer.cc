#include "server/core/line_writer.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>

#include "absl/strings/str_cat.h"

namespace palpate::server {
namespace {

constexpr std::string_view kCut = "...\n";

}  // namespace

LineWriter::~LineWriter() {
  if (pipe_fd_ >= 0) close(pipe_fd_);
}

bool LineWriter::Write(std::string_view line) {
  if (line.size() <= kMaxLineBytes) return WriteWhole(line);
  std::string cut(line.substr(0, kMaxLineBytes - kCut.size()));
  cut += kCut;
  return WriteWhole(cut);
}

bool LineWriter::WriteWhole(std::string_view line) {
  struct stat status {};
  if (fstat(fd_, &status) != 0) return false;
  if (S_ISSOCK(status.st_mode)) {
    return send(fd_, line.data(), line.size(), MSG_DONTWAIT | MSG_NOSIGNAL) == static_cast<ssize_t>(line.size());
  }
  if (S_ISFIFO(status.st_mode)) return WriteToPipe(line, status.st_dev, status.st_ino);
  // A file always has room; a terminal that was halted has not.
  pollfd ready{fd_, POLLOUT, 0};
  return poll(&ready, 1, 0) == 1 && (ready.revents & POLLOUT) != 0 &&
         write(fd_, line.data(), line.size()) == static_cast<ssize_t>(line.size());
}

bool LineWriter::WriteToPipe(std::string_view line, dev_t device, ino_t inode) {
  if (pipe_fd_ < 0 || pipe_device_ != device || pipe_inode_ != inode) {
    if (pipe_fd_ >= 0) close(pipe_fd_);
    pipe_fd_ = open(absl::StrCat("/proc/self/fd/", fd_).c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC);
    pipe_device_ = device;
    pipe_inode_ = inode;
  }
  if (pipe_fd_ >= 0) return write(pipe_fd_, line.data(), line.size()) == static_cast<ssize_t>(line.size());
  // The pipe is another user's, or has no reader. Ready means room for a line of this length, unless another writer takes it first.
  pollfd ready{fd_, POLLOUT, 0};
  return poll(&ready, 1, 0) == 1 && (ready.revents & POLLOUT) != 0 &&
         write(fd_, line.data(), line.size()) == static_cast<ssize_t>(line.size());
}

}  // namespace palpate::server
