#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "sim/record/disk.h"

namespace palpate::job {

inline constexpr uint64_t kMaxTextBytes = uint64_t{256} << 20;  ///< of files that a job writes and reads again

/// Writes a file whole or not at all, and returns when it is on the disk: what was there before survives a crash at any moment. What a
/// process that was killed has left beside it goes. Errors: name the file and the cause.
absl::Status WriteDurably(const std::filesystem::path& path, std::string_view bytes);

/// A file that grows at its end and can be cut back. Movable; closes with the object.
class GrowingFile {
 public:
  GrowingFile() = default;
  /// Opens or makes it, and cuts it to `size_bytes`. Errors: DataLoss (it is shorter), or those of opening.
  static absl::StatusOr<GrowingFile> Open(const std::filesystem::path& path, uint64_t size_bytes);

  bool is_open() const { return file_.is_open(); }
  uint64_t size_bytes() const { return size_bytes_ + buffer_.size(); }
  /// Kept in memory up to a size. Errors: of writing.
  absl::Status Append(std::string_view bytes);
  /// Hands all to the system, and with `durable` to the disk.
  absl::Status Flush(bool durable);

 private:
  GrowingFile(std::filesystem::path path, record::Descriptor file, uint64_t size_bytes)
      : path_(std::move(path)), file_(std::move(file)), size_bytes_(size_bytes) {}
  std::filesystem::path path_;
  record::Descriptor file_;
  uint64_t size_bytes_ = 0;  ///< written
  std::string buffer_;
};

/// A folder that one process at a time works in. Released with the object, or with the process.
class FolderLock {
 public:
  /// Makes the folder if it is not there. Errors: FailedPrecondition (another process has it), those of the file system.
  static absl::StatusOr<FolderLock> Take(const std::filesystem::path& folder);

 private:
  explicit FolderLock(record::Descriptor file) : file_(std::move(file)) {}
  record::Descriptor file_;
};

}  // namespace palpate::job
