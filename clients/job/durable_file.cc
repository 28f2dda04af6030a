#include "clients/job/durable_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gpu/base/status.h"

namespace palpate::job {
namespace {

constexpr size_t kBufferBytes = 64 << 10;

}  // namespace

absl::Status WriteDurably(const std::filesystem::path& path, std::string_view bytes) {
  const std::array<std::string_view, 1> parts = {bytes};
  return record::WriteWholeFile(record::SystemDisk(), path, parts, record::kUsualMode);
}

absl::StatusOr<GrowingFile> GrowingFile::Open(const std::filesystem::path& path, uint64_t size_bytes) {
  record::Descriptor opened(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, record::kUsualMode));
  if (!opened.is_open()) return record::FileError(path, "cannot be written", errno);
  GrowingFile file(path, std::move(opened), size_bytes);
  const int descriptor = file.file_.get();
  const off_t end = lseek(descriptor, 0, SEEK_END);
  if (end < 0) return record::FileError(path, "cannot be read", errno);
  if (static_cast<uint64_t>(end) < size_bytes) {
    return absl::DataLossError(absl::StrCat(path.string(), ": has ", end, " bytes, but had ", size_bytes, " at the checkpoint"));
  }
  if (ftruncate(descriptor, static_cast<off_t>(size_bytes)) != 0) return record::FileError(path, "cannot be written", errno);
  if (lseek(descriptor, static_cast<off_t>(size_bytes), SEEK_SET) < 0) return record::FileError(path, "cannot be written", errno);
  return file;
}

absl::Status GrowingFile::Append(std::string_view bytes) {
  buffer_.append(bytes);
  return buffer_.size() < kBufferBytes ? absl::OkStatus() : Flush(false);
}

absl::Status GrowingFile::Flush(bool durable) {
  if (!buffer_.empty()) {
    const std::array<std::string_view, 1> parts = {buffer_};
    PALPATE_RETURN_IF_ERROR(record::WriteAll(record::SystemDisk(), file_, parts, path_));
    size_bytes_ += buffer_.size();
    buffer_.clear();
  }
  if (durable && record::SystemDisk().Sync(file_.get()) != 0) return record::FileError(path_, "cannot be written", errno);
  return absl::OkStatus();
}

absl::StatusOr<FolderLock> FolderLock::Take(const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) return record::FileError(folder, "cannot be made", error.value());
  const std::filesystem::path file = folder / ".lock";
  record::Descriptor opened(open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, record::kUsualMode));
  if (!opened.is_open()) return record::FileError(file, "cannot be written", errno);
  if (flock(opened.get(), LOCK_EX | LOCK_NB) == 0) return FolderLock(std::move(opened));
  if (errno == EWOULDBLOCK) return absl::FailedPreconditionError(absl::StrCat(folder.string(), ": another process works in this folder"));
  return record::FileError(file, "cannot be locked", errno);
}

}  // namespace palpate::job
