#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <string_view>
#include <vector>

#include "gpu/base/status.h"

namespace palpate::sim {

/// One frame of a moving mesh of triangles, exactly as the file has it: no vertex is joined, moved or rounded.
struct MeshFrame {
  std::vector<std::array<double, 3>> positions_m;
  std::vector<std::array<uint32_t, 3>> triangles;
  bool has_double = false;  ///< the coordinates are doubles in the file, else floats
};

/// Parses a binary PLY file of either byte order with float or double coordinates; other properties and elements are skipped. Errors:
/// InvalidArgument naming the line or byte: an ASCII file, a face that is no triangle or has a vertex out of range, a coordinate that is
/// not finite, an announced count that the file is too short for, a file that is cut off.
absl::StatusOr<MeshFrame> ParsePlyFrame(std::string_view bytes, std::string_view name);

/// Reads a file of at most 4 GiB. Errors: those of ParsePlyFrame and ReadWholeFile.
absl::StatusOr<MeshFrame> ReadPlyFrame(const std::filesystem::path& path);

}  // namespace palpate::sim
