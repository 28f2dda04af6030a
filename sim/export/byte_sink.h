#pragma once

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "gpu/base/status.h"

namespace palpate::sim {

/// Where a writer puts the bytes of a file, front to back.
class ByteSink {
 public:
  virtual ~ByteSink() = default;
  virtual absl::Status Append(std::string_view bytes) = 0;
};

/// In memory.
class StringSink final : public ByteSink {
 public:
  absl::Status Append(std::string_view bytes) override {
    text_.append(bytes);
    return absl::OkStatus();
  }
  std::string Take() && { return std::move(text_); }

 private:
  std::string text_;
};

/// A file that appears under its name when it is complete: a temporary beside it takes the bytes and is renamed by Commit. Without Commit
/// the temporary goes with this object. A process that is killed leaves the file as it was, and at most a temporary NAME.PID.part.
/// Errors name the path: InvalidArgument (what is there is no regular file), NotFound, PermissionDenied, ResourceExhausted (no space) or
/// Unknown.
class FileSink final : public ByteSink {
 public:
  static absl::StatusOr<FileSink> Create(const std::filesystem::path& path);
  FileSink(FileSink&& other) = default;
  FileSink& operator=(FileSink&& other) = default;
  ~FileSink() override;

  absl::Status Append(std::string_view bytes) override;
  /// Puts the file in its place. The system writes it to the disk when it likes. Nothing may be appended afterwards.
  absl::Status Commit();

 private:
  struct Closer {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  FileSink(std::filesystem::path path, std::filesystem::path temporary, std::FILE* file)
      : path_(std::move(path)), temporary_(std::move(temporary)), file_(file) {}

  std::filesystem::path path_, temporary_;
  std::unique_ptr<std::FILE, Closer> file_;  // null: committed, or moved from
};

}  // namespace palpate::sim
