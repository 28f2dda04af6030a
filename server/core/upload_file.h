#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "sim/record/disk.h"

namespace palpate::server {

/// A file that comes by the network. It is removed when nobody wants it any more. One thread at a time.
class UploadFile {
 public:
  static constexpr uint64_t kMaxBytes = uint64_t{8} << 30;

  static absl::StatusOr<std::shared_ptr<UploadFile>> Create(const std::filesystem::path& folder);
  ~UploadFile();
  UploadFile(const UploadFile&) = delete;
  UploadFile& operator=(const UploadFile&) = delete;

  /// Errors: ResourceExhausted (kMaxBytes, the disk).
  absl::Status Append(std::string_view bytes);
  absl::Status Close();
  const std::filesystem::path& path() const { return path_; }

 private:
  UploadFile(std::filesystem::path path, record::Descriptor file) : path_(std::move(path)), file_(std::move(file)) {}

  const std::filesystem::path path_;
  record::Descriptor file_;
  uint64_t bytes_ = 0;
};

}  // namespace palpate::server
