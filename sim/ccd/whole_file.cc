#include "sim/ccd/whole_file.h"

#include <fstream>
#include <system_error>

#include "absl/strings/str_format.h"

namespace palpate::sim {

absl::StatusOr<std::string> ReadWholeFile(const std::filesystem::path& path, uint64_t max_bytes) {
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(path, error);
  if (!std::filesystem::exists(status)) return absl::NotFoundError(absl::StrCat(path.string(), ": no such file"));
  // A pipe or a device might never end.
  if (!std::filesystem::is_regular_file(status)) return absl::InvalidArgumentError(absl::StrCat(path.string(), ": not a regular file"));
  const uintmax_t size = std::filesystem::file_size(path, error);
  if (error) return absl::UnknownError(absl::StrCat(path.string(), ": ", error.message()));
  if (size > max_bytes) {
    return absl::ResourceExhaustedError(absl::StrFormat("%s: %d bytes are more than the limit of %d", path.string(), size, max_bytes));
  }
  std::ifstream file(path, std::ios::binary);
  if (!file) return absl::NotFoundError(absl::StrCat(path.string(), ": cannot be opened"));
  std::string bytes(size, '\0');
  file.read(bytes.data(), static_cast<std::streamsize>(size));
  if (static_cast<uintmax_t>(file.gcount()) != size) return absl::UnknownError(absl::StrCat(path.string(), ": cannot be read to its end"));
  return bytes;
}

}  // namespace palpate::sim
