#include "server/core/upload_file.h"

#include <array>

#include "absl/strings/str_cat.h"
#include "gpu/base/status.h"
#include "sim/record/journal_file.h"

namespace palpate::server {

absl::StatusOr<std::shared_ptr<UploadFile>> UploadFile::Create(const std::filesystem::path& folder) {
  static std::atomic<uint64_t> next{1};
  const std::filesystem::path path =
      folder / absl::StrCat("upload-", next++, absl::string_view(record::kRecordingExtension.data(), record::kRecordingExtension.size()));
  PALPATE_ASSIGN_OR_RETURN(record::Descriptor file, record::CreateFile(path));
  return std::shared_ptr<UploadFile>(new UploadFile(path, std::move(file)));
}

UploadFile::~UploadFile() {
  std::error_code ignored;
  std::filesystem::remove(path_, ignored);
}

absl::Status UploadFile::Append(std::string_view bytes) {
  bytes_ += bytes.size();
  if (bytes_ > kMaxBytes) return absl::ResourceExhaustedError(absl::StrCat("a recording may have ", kMaxBytes, " bytes at most"));
  const std::array<std::string_view, 1> parts = {bytes};
  return record::WriteAll(record::SystemDisk(), file_, parts, path_);
}

absl::Status UploadFile::Close() {
  file_ = record::Descriptor();
  return absl::OkStatus();
}

}  // namespace palpate::server
