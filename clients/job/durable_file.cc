#include "clients/job/durable_file.h"

#include <fcntl.h>
#include <openssl/evp.h>
#include <sys/file.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <memory>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "gpu/base/status.h"

namespace palpate::job {
namespace {

constexpr size_t kBufferBytes = 64 << 10;

absl::Status Failed(const std::filesystem::path& path, std::string_view what, int error) {
  const std::string message = absl::StrCat(path.string(), ": ", absl::string_view(what.data(), what.size()), ": ", std::strerror(error));
  if (error == ENOENT) return absl::NotFoundError(message);
  if (error == EACCES || error == EPERM || error == EROFS) return absl::PermissionDeniedError(message);
  if (error == ENOSPC || error == EDQUOT) return absl::ResourceExhaustedError(message);
  return absl::FailedPreconditionError(message);
}

absl::Status WriteAll(const std::filesystem::path& path, int descriptor, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t count = write(descriptor, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return Failed(path, "cannot be written", errno);
    bytes.remove_prefix(static_cast<size_t>(count));
  }
  return absl::OkStatus();
}

/// So that the name of a new file survives a crash too.
void SyncFolder(const std::filesystem::path& folder) {
  const int descriptor = open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return;
  fsync(descriptor);  // some file systems refuse, and need none
  close(descriptor);
}

struct DigestFree {
  void operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }
};

class Digest {
 public:
  Digest() : context_(EVP_MD_CTX_new()) { EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr); }
  void Add(std::string_view bytes) { EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size()); }
  std::string Take() {
    std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
    unsigned int size = 0;
    EVP_DigestFinal_ex(context_.get(), digest.data(), &size);
    return absl::BytesToHexString({reinterpret_cast<const char*>(digest.data()), size});
  }

 private:
  std::unique_ptr<EVP_MD_CTX, DigestFree> context_;
};

}  // namespace

absl::Status WriteDurably(const std::filesystem::path& path, std::string_view bytes) {
  const std::string temporary = absl::StrCat(path.string(), ".", getpid(), ".part");
  const int descriptor = open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (descriptor < 0) return Failed(path, "cannot be written", errno);
  absl::Status status = WriteAll(path, descriptor, bytes);
  if (status.ok() && fsync(descriptor) != 0) status = Failed(path, "cannot be written", errno);
  if (close(descriptor) != 0 && status.ok()) status = Failed(path, "cannot be written", errno);
  if (status.ok() && std::rename(temporary.c_str(), path.c_str()) != 0) status = Failed(path, "cannot be written", errno);
  if (!status.ok()) {
    unlink(temporary.c_str());
    return status;
  }
  SyncFolder(path.parent_path());
  return absl::OkStatus();
}

absl::StatusOr<std::string> ReadWholeFile(const std::filesystem::path& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) return Failed(path, "cannot be read", EISDIR);
  std::ifstream file(path, std::ios::binary);
  if (!file) return Failed(path, "cannot be read", errno);
  std::string text;
  std::array<char, kBufferBytes> buffer;
  while (file.read(buffer.data(), buffer.size()), file.gcount() > 0) text.append(buffer.data(), static_cast<size_t>(file.gcount()));
  if (file.bad()) return Failed(path, "cannot be read", errno);
  return text;
}

std::string Sha256(std::string_view bytes) {
  Digest digest;
  digest.Add(bytes);
  return digest.Take();
}

absl::StatusOr<std::string> Sha256OfFile(const std::filesystem::path& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) return Failed(path, "cannot be read", EISDIR);
  std::ifstream file(path, std::ios::binary);
  if (!file) return Failed(path, "cannot be read", errno);
  Digest digest;
  std::array<char, kBufferBytes> buffer;
  while (file.read(buffer.data(), buffer.size()), file.gcount() > 0) digest.Add({buffer.data(), static_cast<size_t>(file.gcount())});
  if (file.bad()) return Failed(path, "cannot be read", errno);
  return digest.Take();
}

absl::StatusOr<GrowingFile> GrowingFile::Open(const std::filesystem::path& path, uint64_t size_bytes) {
  const int descriptor = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (descriptor < 0) return Failed(path, "cannot be written", errno);
  GrowingFile file(path, descriptor, size_bytes);
  const off_t end = lseek(descriptor, 0, SEEK_END);
  if (end < 0) return Failed(path, "cannot be read", errno);
  if (static_cast<uint64_t>(end) < size_bytes) {
    return absl::DataLossError(absl::StrCat(path.string(), ": has ", end, " bytes, but had ", size_bytes, " at the checkpoint"));
  }
  if (ftruncate(descriptor, static_cast<off_t>(size_bytes)) != 0) return Failed(path, "cannot be written", errno);
  if (lseek(descriptor, static_cast<off_t>(size_bytes), SEEK_SET) < 0) return Failed(path, "cannot be written", errno);
  return file;
}

GrowingFile::GrowingFile(GrowingFile&& other) noexcept
    : path_(std::move(other.path_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      size_bytes_(other.size_bytes_),
      buffer_(std::move(other.buffer_)) {}

GrowingFile& GrowingFile::operator=(GrowingFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(descriptor_, other.descriptor_);
  std::swap(size_bytes_, other.size_bytes_);
  std::swap(buffer_, other.buffer_);
  return *this;
}

GrowingFile::~GrowingFile() {
  if (descriptor_ >= 0) close(descriptor_);
}

absl::Status GrowingFile::Append(std::string_view bytes) {
  buffer_.append(bytes);
  return buffer_.size() < kBufferBytes ? absl::OkStatus() : Flush(false);
}

absl::Status GrowingFile::Flush(bool durable) {
  if (!buffer_.empty()) {
    PALPATE_RETURN_IF_ERROR(WriteAll(path_, descriptor_, buffer_));
    size_bytes_ += buffer_.size();
    buffer_.clear();
  }
  if (durable && fsync(descriptor_) != 0) return Failed(path_, "cannot be written", errno);
  return absl::OkStatus();
}

absl::StatusOr<FolderLock> FolderLock::Take(const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) return Failed(folder, "cannot be made", error.value());
  const std::filesystem::path file = folder / ".lock";
  const int descriptor = open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (descriptor < 0) return Failed(file, "cannot be written", errno);
  FolderLock lock(descriptor);
  if (flock(descriptor, LOCK_EX | LOCK_NB) == 0) return lock;
  if (errno == EWOULDBLOCK) return absl::FailedPreconditionError(absl::StrCat(folder.string(), ": another process works in this folder"));
  return Failed(file, "cannot be locked", errno);
}

FolderLock::FolderLock(FolderLock&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}

FolderLock::~FolderLock() {
  if (descriptor_ >= 0) close(descriptor_);
}

}  // namespace palpate::job
