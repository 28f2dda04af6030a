#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "gpu/base/status.h"
#include "sim/export/byte_sink.h"

namespace palpate::sim {

/// What a program that shows a file takes an array for.
enum class FieldRole { kPlain, kScalars, kVectors, kNormals, kTextureCoordinates };

/// A named array with as many values for each point or cell as it has components. Does not own them.
struct Field {
  using Values = std::variant<std::span<const float>, std::span<const double>, std::span<const uint8_t>, std::span<const uint16_t>,
                              std::span<const int32_t>, std::span<const uint32_t>>;
  std::string name;         ///< not empty, unique among the fields of its kind
  uint32_t components = 1;  ///< 1 to 9
  Values values;            ///< [count * components]
  FieldRole role = FieldRole::kPlain;
};

/// Tetrahedra with fields. Does not own its arrays.
struct UnstructuredGrid {
  std::span<const float> points_m;                ///< [point_count * 3]
  std::span<const std::array<uint32_t, 4>> tets;  ///< indices of points, positively oriented
  std::vector<Field> point_fields, cell_fields;
  std::optional<double> time_s;  ///< when the state was; readers know it as TimeValue
};

/// Triangles with fields. Does not own its arrays.
struct PolyData {
  std::span<const float> points_m;                     ///< [point_count * 3]
  std::span<const std::array<uint32_t, 3>> triangles;  ///< indices of points, counter-clockwise from outside
  std::vector<Field> point_fields, cell_fields;
  std::optional<double> time_s;
};

/// VTK's XML files with the arrays appended as raw bytes: .vtu and .vtp, as ParaView and VTK read them. Arrays go from their spans to the
/// sink; no copy of the file is made.
/// Errors: InvalidArgument (a field of another size, without a name or with the name of another; an index that no point has; more than 2^31
/// corners), naming the field or cell; those of the sink.
absl::Status WriteVtu(const UnstructuredGrid& grid, ByteSink* sink);
absl::Status WriteVtp(const PolyData& surface, ByteSink* sink);
/// To a file, which takes its place when it is complete (FileSink). Errors name the path.
absl::Status WriteVtu(const UnstructuredGrid& grid, const std::filesystem::path& path);
absl::Status WriteVtp(const PolyData& surface, const std::filesystem::path& path);

}  // namespace palpate::sim
