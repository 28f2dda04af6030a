#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "sim/scene/description.h"

namespace palpate::scene {

inline constexpr uint64_t kMaxImageBytes = uint64_t{16} << 20;       ///< of one file
inline constexpr uint64_t kMaxSceneImageBytes = uint64_t{64} << 20;  ///< of all files of a scene
inline constexpr uint32_t kMaxImageSide = 8192;                      ///< pixels

/// What the header of a picture says.
struct ImageHeader {
  std::string_view media_type;  ///< image/png or image/jpeg
  uint32_t width = 0, height = 0;
};

/// Looks at the structure of a PNG (PNG specification, 2nd edition: chunks with their lengths and the CRC of the header) or JPEG file
/// (ITU-T T.81: marker segments up to the scan), from memory. No pixel is decoded. O(bytes), allocates nothing of the file's choosing.
/// Errors: InvalidArgument naming `name`, the byte and what is wrong: neither format, cut off, a side outside [1, kMaxImageSide].
absl::StatusOr<ImageHeader> ParseImageHeader(std::string_view bytes, std::string_view name);

/// Reads a picture whole. `name`: as the scene has it. Errors: as ParseImageHeader, naming the path; NotFound, PermissionDenied;
/// ResourceExhausted (more than kMaxImageBytes).
absl::StatusOr<std::shared_ptr<const sim::TextureImage>> ReadImageFile(const std::filesystem::path& path, std::string name);

}  // namespace palpate::scene
