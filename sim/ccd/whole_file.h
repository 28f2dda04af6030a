#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "gpu/base/status.h"

namespace palpate::sim {

/// The bytes of a regular file. Errors: NotFound (no such file, or it cannot be opened), InvalidArgument (not a regular file),
/// ResourceExhausted (more than `max_bytes`), Unknown (it cannot be read to its end).
absl::StatusOr<std::string> ReadWholeFile(const std::filesystem::path& path, uint64_t max_bytes);

}  // namespace palpate::sim
