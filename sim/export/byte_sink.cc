#include "sim/export/byte_sink.h"

#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "absl/strings/str_cat.h"

namespace palpate::sim {
namespace {

absl::Status Unwritable(int error, const std::filesystem::path& path) {
  return absl::ErrnoToStatus(error, absl::StrCat(path.string(), ": cannot be written"));
}

}  // namespace

absl::StatusOr<FileSink> FileSink::Create(const std::filesystem::path& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) return Unwritable(EISDIR, path);
  if (std::filesystem::exists(path, error) && !std::filesystem::is_regular_file(path, error)) {
    return absl::InvalidArgumentError(absl::StrCat(path.string(), ": not a regular file"));
  }
  std::filesystem::path temporary = path;
  temporary += absl::StrCat(".", getpid(), ".part");
  std::FILE* file = std::fopen(temporary.c_str(), "wb");
  if (file == nullptr) return Unwritable(errno, path);
  return FileSink(path, std::move(temporary), file);
}

FileSink::~FileSink() {
  if (file_ == nullptr) return;
  file_.reset();
  std::remove(temporary_.c_str());
}

absl::Status FileSink::Append(std::string_view bytes) {
  if (bytes.empty() || std::fwrite(bytes.data(), 1, bytes.size(), file_.get()) == bytes.size()) return absl::OkStatus();
  return Unwritable(errno, path_);
}

absl::Status FileSink::Commit() {
  // Closing writes what is left in the buffer, so it can fail too.
  int error = std::fclose(file_.release()) == 0 ? 0 : errno;
  if (error == 0 && std::rename(temporary_.c_str(), path_.c_str()) != 0) error = errno;
  if (error == 0) return absl::OkStatus();
  std::remove(temporary_.c_str());
  return Unwritable(error, path_);
}

}  // namespace palpate::sim
