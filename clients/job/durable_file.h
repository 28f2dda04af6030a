#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace palpate::job {

/// Writes a file whole or not at all, and returns when it is on the disk: what was there before survives a crash at any moment. Errors:
/// name the file and the cause.
absl::Status WriteDurably(const std::filesystem::path& path, std::string_view bytes);

/// The whole content. Errors: NotFound, or another that names the file and the cause.
absl::StatusOr<std::string> ReadWholeFile(const std::filesystem::path& path);

/// SHA-256, lower-case hexadecimal.
std::string Sha256(std::string_view bytes);
absl::StatusOr<std::string> Sha256OfFile(const std::filesystem::path& path);

/// A file that grows at its end and can be cut back. Movable; closes with the object.
class GrowingFile {
 public:
  GrowingFile() = default;
  /// Opens or makes it, and cuts it to `size_bytes`. Errors: DataLoss (it is shorter), or those of opening.
  static absl::StatusOr<GrowingFile> Open(const std::filesystem::path& path, uint64_t size_bytes);
  GrowingFile(GrowingFile&& other) noexcept;
  GrowingFile& operator=(GrowingFile&& other) noexcept;
  ~GrowingFile();

  bool is_open() const { return descriptor_ >= 0; }
  uint64_t size_bytes() const { return size_bytes_ + buffer_.size(); }
  /// Kept in memory up to a size. Errors: of writing.
  absl::Status Append(std::string_view bytes);
  /// Hands all to the system, and with `durable` to the disk.
  absl::Status Flush(bool durable);

 private:
  GrowingFile(std::filesystem::path path, int descriptor, uint64_t size_bytes)
      : path_(std::move(path)), descriptor_(descriptor), size_bytes_(size_bytes) {}
  std::filesystem::path path_;
  int descriptor_ = -1;
  uint64_t size_bytes_ = 0;  ///< written
  std::string buffer_;
};

/// A folder that one process at a time works in. Released with the object, or with the process.
class FolderLock {
 public:
  /// Makes the folder if it is not there. Errors: FailedPrecondition (another process has it), those of the file system.
  static absl::StatusOr<FolderLock> Take(const std::filesystem::path& folder);
  FolderLock(FolderLock&& other) noexcept;
  FolderLock& operator=(FolderLock&&) = delete;
  ~FolderLock();

 private:
  explicit FolderLock(int descriptor) : descriptor_(descriptor) {}
  int descriptor_;
};

}  // namespace palpate::job
