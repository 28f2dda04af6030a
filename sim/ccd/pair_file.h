#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <string_view>
#include <vector>

#include "gpu/base/status.h"

namespace palpate::sim {

/// Parses a JSON array of pairs of non-negative integers below 2^32: [[0,1],[2,5]]. The parsers below and this one need memory in
/// proportion to the text. Errors: InvalidArgument naming `name`, line and cause.
absl::StatusOr<std::vector<std::array<uint32_t, 2>>> ParsePairList(std::string_view text, std::string_view name);

/// Parses a JSON array of true and false (or 1 and 0). Errors: as ParsePairList.
absl::StatusOr<std::vector<bool>> ParseTruthList(std::string_view text, std::string_view name);

/// Read a file of at most 4 GiB. Errors: those of the parsers and ReadWholeFile.
absl::StatusOr<std::vector<std::array<uint32_t, 2>>> ReadPairList(const std::filesystem::path& path);
absl::StatusOr<std::vector<bool>> ReadTruthList(const std::filesystem::path& path);

}  // namespace palpate::sim
