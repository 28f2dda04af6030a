#pragma once

#include <filesystem>
#include <optional>

#include "absl/status/statusor.h"
#include "palpate/v1/job.pb.h"

namespace palpate::job {

inline constexpr uint32_t kJobStateFormat = 1;

/// Where an interrupted job stands, in its folder: checkpoint.palpate, replaced as a whole and on the disk afterwards. Errors:
/// ResourceExhausted (more than 2 GiB), those of writing.
absl::Status WriteJobState(const std::filesystem::path& folder, const v1::JobState& state);

/// Nothing if there is none. Errors: DataLoss naming the file (damaged, cut short), FailedPrecondition (of another format).
absl::StatusOr<std::optional<v1::JobState>> ReadJobState(const std::filesystem::path& folder);

void RemoveJobState(const std::filesystem::path& folder);
bool HasJobState(const std::filesystem::path& folder);

}  // namespace palpate::job
