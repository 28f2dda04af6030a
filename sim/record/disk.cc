#include "sim/record/disk.h"

#include <fcntl.h>
#include <openssl/evp.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "gpu/base/status.h"

namespace palpate::record {
namespace {

class Digest {
 public:
  Digest() : context_(EVP_MD_CTX_new()) { EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr); }
  void Add(std::string_view bytes) { EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size()); }
  /// Lower-case hexadecimal. Ends the digest.
  std::string Take() {
    std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
    unsigned int size = 0;
    EVP_DigestFinal_ex(context_.get(), digest.data(), &size);
    return absl::BytesToHexString(absl::string_view(reinterpret_cast<const char*>(digest.data()), size));
  }

 private:
  struct Free {
    void operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }
  };
  std::unique_ptr<EVP_MD_CTX, Free> context_;
};

absl::StatusOr<Descriptor> OpenRegular(const std::filesystem::path& path, uint64_t* size) {
  PALPATE_ASSIGN_OR_RETURN(Descriptor file, OpenFile(path));
  struct stat info {};
  if (fstat(file.get(), &info) != 0) return FileError(path, "cannot be read", errno);
  if (!S_ISREG(info.st_mode)) return absl::InvalidArgumentError(absl::StrCat("\"", path.string(), "\" is not a regular file"));
  *size = static_cast<uint64_t>(info.st_size);
  return file;
}

}  // namespace

Descriptor::~Descriptor() {
  if (fd_ >= 0) close(fd_);
}

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  if (this == &other) return *this;
  if (fd_ >= 0) close(fd_);
  fd_ = std::exchange(other.fd_, -1);
  return *this;
}

ssize_t Disk::Write(int fd, const void* data, size_t size) { return write(fd, data, size); }
int Disk::Sync(int fd) { return fdatasync(fd); }

Disk& SystemDisk() {
  static Disk disk;
  return disk;
}

absl::Status FileError(const std::filesystem::path& path, const char* what, int error_number) {
  const std::string message = absl::StrCat("\"", path.string(), "\" ", what, ": ", std::strerror(error_number));
  switch (error_number) {
    case ENOENT:
      return absl::NotFoundError(message);
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
    case EMFILE:
    case ENFILE:
      return absl::ResourceExhaustedError(message);
    case EACCES:
    case EPERM:
    case EROFS:
      return absl::PermissionDeniedError(message);
    case EEXIST:
      return absl::AlreadyExistsError(message);
    default:
      return absl::UnavailableError(message);
  }
}

absl::StatusOr<Descriptor> CreateFile(const std::filesystem::path& path, mode_t mode) {
  Descriptor file(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, mode));
  if (!file.is_open()) return FileError(path, "cannot be created", errno);
  return file;
}

absl::StatusOr<Descriptor> OpenForAppending(const std::filesystem::path& path) {
  Descriptor file(open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC));
  if (!file.is_open()) return FileError(path, "cannot be opened", errno);
  return file;
}

absl::StatusOr<Descriptor> OpenFile(const std::filesystem::path& path) {
  Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.is_open()) return FileError(path, "cannot be opened", errno);
  return file;
}

absl::Status WriteAll(Disk& disk, const Descriptor& file, std::span<const std::string_view> parts, const std::filesystem::path& path) {
  for (std::string_view part : parts) {
    while (!part.empty()) {
      const ssize_t written = disk.Write(file.get(), part.data(), part.size());
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) return FileError(path, "cannot be written", errno);
      if (written == 0) return FileError(path, "cannot be written", ENOSPC);
      part.remove_prefix(static_cast<size_t>(written));
    }
  }
  return absl::OkStatus();
}

absl::Status WriteWholeFile(Disk& disk, const std::filesystem::path& path, std::span<const std::string_view> parts, mode_t mode) {
  const std::filesystem::path temporary = path.string() + std::string(kPartExtension);
  const auto write = [&]() -> absl::Status {
    std::error_code ignored;
    std::filesystem::remove(temporary, ignored);  // of a process that was killed
    PALPATE_ASSIGN_OR_RETURN(const Descriptor file, CreateFile(temporary, mode));
    PALPATE_RETURN_IF_ERROR(WriteAll(disk, file, parts, temporary));
    if (disk.Sync(file.get()) != 0) return FileError(temporary, "cannot be written", errno);
    if (rename(temporary.c_str(), path.c_str()) != 0) return FileError(path, "cannot be written", errno);
    return SyncFolder(path.parent_path());
  };
  absl::Status status = write();
  if (!status.ok()) {
    std::error_code ignored;
    std::filesystem::remove(temporary, ignored);
  }
  return status;
}

absl::Status SyncFolder(const std::filesystem::path& folder) {
  const Descriptor opened(open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!opened.is_open()) return FileError(folder, "cannot be written", errno);
  // Some file systems, of clusters for example, refuse and need none.
  if (fsync(opened.get()) != 0 && errno != EINVAL && errno != ENOTSUP) return FileError(folder, "cannot be written", errno);
  return absl::OkStatus();
}

absl::Status ReadAt(const Descriptor& file, uint64_t offset, size_t size, std::string* out, const std::filesystem::path& path) {
  out->resize(size);
  size_t done = 0;
  while (done < size) {
    const ssize_t got = pread(file.get(), out->data() + done, size - done, static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return FileError(path, "cannot be read", errno);
    if (got == 0) break;
    done += static_cast<size_t>(got);
  }
  out->resize(done);
  return absl::OkStatus();
}

absl::StatusOr<std::string> ReadWholeFile(const std::filesystem::path& path, uint64_t max_bytes) {
  uint64_t size = 0;
  PALPATE_ASSIGN_OR_RETURN(const Descriptor file, OpenRegular(path, &size));
  if (size > max_bytes) {
    return absl::InvalidArgumentError(absl::StrCat("\"", path.string(), "\" has ", size, " bytes, allowed are ", max_bytes));
  }
  std::string out;
  PALPATE_RETURN_IF_ERROR(ReadAt(file, 0, size, &out, path));
  return out;
}

absl::StatusOr<std::string> ReadTail(const std::filesystem::path& path, uint64_t max_bytes) {
  uint64_t size = 0;
  PALPATE_ASSIGN_OR_RETURN(const Descriptor file, OpenRegular(path, &size));
  const uint64_t wanted = std::min(size, max_bytes);
  std::string out;
  PALPATE_RETURN_IF_ERROR(ReadAt(file, size - wanted, wanted, &out, path));
  return out;
}

uint32_t Crc32(std::span<const std::string_view> parts) {
  uLong crc = crc32_z(0, nullptr, 0);
  for (const std::string_view part : parts) crc = crc32_z(crc, reinterpret_cast<const Bytef*>(part.data()), part.size());
  return static_cast<uint32_t>(crc);
}

std::string Sha256(std::string_view bytes) {
  Digest digest;
  digest.Add(bytes);
  return digest.Take();
}

absl::StatusOr<std::string> Sha256OfFile(const std::filesystem::path& path) {
  constexpr size_t kPieceBytes = size_t{64} << 10;
  uint64_t size = 0;
  PALPATE_ASSIGN_OR_RETURN(const Descriptor file, OpenRegular(path, &size));
  Digest digest;
  std::string piece;
  uint64_t at = 0;
  do {
    PALPATE_RETURN_IF_ERROR(ReadAt(file, at, kPieceBytes, &piece, path));
    digest.Add(piece);
    at += piece.size();
  } while (piece.size() == kPieceBytes);
  return digest.Take();
}

}  // namespace palpate::record
