#include "clients/job/job_state.h"

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "clients/job/durable_file.h"
#include "gpu/base/status.h"

namespace palpate::job {
namespace {

// The file: this line, the hash of the rest in hexadecimal, a line feed, an encoded JobState.
constexpr std::string_view kMagic = "palpate job checkpoint 1\n";
constexpr size_t kHashBytes = 64;
constexpr size_t kMaxStateBytes = INT32_MAX;  // of a message of protobuf

std::filesystem::path FileIn(const std::filesystem::path& folder) { return folder / "checkpoint.palpate"; }

}  // namespace

absl::Status WriteJobState(const std::filesystem::path& folder, const v1::JobState& state) {
  if (state.ByteSizeLong() > kMaxStateBytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat(FileIn(folder).string(), ": a state of ", state.ByteSizeLong(), " bytes is larger than ", kMaxStateBytes));
  }
  const std::string bytes = state.SerializeAsString();
  return WriteDurably(FileIn(folder), absl::StrCat(std::string(kMagic), record::Sha256(bytes), "\n", bytes));
}

absl::StatusOr<std::optional<v1::JobState>> ReadJobState(const std::filesystem::path& folder) {
  const std::filesystem::path file = FileIn(folder);
  const auto content = record::ReadWholeFile(file, kMagic.size() + kHashBytes + 1 + kMaxStateBytes);
  if (absl::IsNotFound(content.status())) return std::optional<v1::JobState>();
  if (!content.ok()) return content.status();
  const std::string_view bytes = *content;
  if (bytes.substr(0, kMagic.size()) != kMagic) return absl::DataLossError(absl::StrCat(file.string(), ": is not the checkpoint of a job"));
  const size_t begin = kMagic.size() + kHashBytes + 1;
  if (bytes.size() < begin) return absl::DataLossError(absl::StrCat(file.string(), ": is cut short"));
  const std::string_view body = bytes.substr(begin);
  v1::JobState state;
  if (record::Sha256(body) != bytes.substr(kMagic.size(), kHashBytes) ||
      !state.ParseFromArray(body.data(), static_cast<int>(body.size()))) {
    return absl::DataLossError(absl::StrCat(file.string(), ": is damaged: its hash is not that of its content"));
  }
  if (state.format() != kJobStateFormat) {
    return absl::FailedPreconditionError(
        absl::StrCat(file.string(), ": has format ", state.format(), ", but this program knows ", kJobStateFormat));
  }
  return std::optional<v1::JobState>(std::move(state));
}

void RemoveJobState(const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::remove(FileIn(folder), error);
}

bool HasJobState(const std::filesystem::path& folder) {
  std::error_code error;
  return std::filesystem::exists(FileIn(folder), error);
}

}  // namespace palpate::job
