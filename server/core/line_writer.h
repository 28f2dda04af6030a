#pragma once

#include <sys/types.h>

#include <cstddef>
#include <string_view>

namespace palpate::server {

/// Writes lines to a descriptor, for instance that of stderr, without ever waiting for whoever reads it. Not thread-safe.
class LineWriter {
 public:
  /// Longer lines are cut. A pipe takes a line of this length whole or not at all.
  static constexpr size_t kMaxLineBytes = 4096;

  /// `fd` stays the caller's.
  explicit LineWriter(int fd) : fd_(fd) {}
  ~LineWriter();
  LineWriter(const LineWriter&) = delete;
  LineWriter& operator=(const LineWriter&) = delete;

  /// `line` ends with a line feed. False: there was no room at once, nothing was written.
  bool Write(std::string_view line);

 private:
  bool WriteWhole(std::string_view line);
  bool WriteToPipe(std::string_view line, dev_t device, ino_t inode);

  const int fd_;
  int pipe_fd_ = -1;  ///< the pipe behind fd_, opened anew: without waiting, while others who share fd_ go on as before
  dev_t pipe_device_ = 0;
  ino_t pipe_inode_ = 0;
};

}  // namespace palpate::server
