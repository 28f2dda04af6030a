#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string_view>
#include <vector>

#include "gpu/base/status.h"

namespace palpate::sim {

/// Single queries of continuous collision detection, as gpu::CcdQueries takes them.
struct CcdQuerySet {
  static constexpr size_t kCoordinates = 24;
  std::vector<double> coordinates;  ///< 24 a query: x, y, z of its four points at time 0, then at time 1
  std::vector<double> errors;       ///< one a query: what a coordinate may be off because its ratio is no double; 0: all are exact
  std::vector<bool> truth;          ///< one a query whether it truly collides; empty for a file of 6 columns
  size_t count() const { return errors.size(); }
};

/// Parses the public CSV format: 8 rows a query, a row is a point as numerator and denominator of x, y and z (integers of any size), and in
/// files of 7 columns whether the query collides, 0 or 1, the same in its 8 rows. Empty lines are allowed at the end. The rows are
/// edge-edge a0 a1 b0 b1 or vertex-triangle v t0 t1 t2, at time 0 and then at time 1. Errors: InvalidArgument naming line and cause, also
/// for a file that ends within a query and one without any.
absl::StatusOr<CcdQuerySet> ParseCcdQueries(std::string_view text, std::string_view name);

/// Reads a file of at most 4 GiB. Errors: those of ParseCcdQueries and ReadWholeFile.
absl::StatusOr<CcdQuerySet> ReadCcdQueries(const std::filesystem::path& path);

}  // namespace palpate::sim
