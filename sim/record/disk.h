#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace palpate::record {

/// An open file, closed by the destructor.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor();
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept;
  int get() const { return fd_; }
  bool is_open() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

/// The calls by which state reaches the disk. Tests give one that fails when they want it to. Thread-safe.
class Disk {
 public:
  virtual ~Disk() = default;
  /// As write(2) and fdatasync(2).
  virtual ssize_t Write(int fd, const void* data, size_t size);
  virtual int Sync(int fd);
};

/// The one of this machine.
Disk& SystemDisk();

/// Errors of these functions name the file: NotFound, ResourceExhausted (the disk or the quota is full), PermissionDenied, Unavailable (the
/// rest).
absl::Status FileError(const std::filesystem::path& path, const char* what, int error_number);

inline constexpr mode_t kPrivateMode = 0640;  ///< of state, which only the server reads
inline constexpr mode_t kUsualMode = 0666;    ///< of results; the process's mask narrows it

/// Creates a file that must not exist, for writing at its end.
absl::StatusOr<Descriptor> CreateFile(const std::filesystem::path& path, mode_t mode = kPrivateMode);
absl::StatusOr<Descriptor> OpenForAppending(const std::filesystem::path& path);
absl::StatusOr<Descriptor> OpenFile(const std::filesystem::path& path);

/// Writes all of `parts` or fails; then the file may hold a part of them at its end.
absl::Status WriteAll(Disk& disk, const Descriptor& file, std::span<const std::string_view> parts, const std::filesystem::path& path);

/// A whole file, on disk when this returns OK: under another name first (with kPartExtension behind it), so that the file is never seen in
/// part.
inline constexpr std::string_view kPartExtension = ".part";
absl::Status WriteWholeFile(Disk& disk, const std::filesystem::path& path, std::span<const std::string_view> parts,
                            mode_t mode = kPrivateMode);

/// Makes the names of a folder durable, where the file system does not do so by itself.
absl::Status SyncFolder(const std::filesystem::path& folder);

/// Reads `size` bytes from `offset`, fewer only at the end of the file.
absl::Status ReadAt(const Descriptor& file, uint64_t offset, size_t size, std::string* out, const std::filesystem::path& path);
absl::StatusOr<std::string> ReadWholeFile(const std::filesystem::path& path, uint64_t max_bytes);
/// The last `max_bytes` of a file, all of it if it is shorter.
absl::StatusOr<std::string> ReadTail(const std::filesystem::path& path, uint64_t max_bytes);

/// CRC-32 (IEEE 802.3) of the parts, one after the other.
uint32_t Crc32(std::span<const std::string_view> parts);

/// SHA-256, lower-case hexadecimal.
std::string Sha256(std::string_view bytes);
/// The same of a file, read piece by piece.
absl::StatusOr<std::string> Sha256OfFile(const std::filesystem::path& path);

}  // namespace palpate::record
