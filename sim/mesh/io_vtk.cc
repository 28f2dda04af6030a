// Legacy VTK unstructured grids and polydata. Source of the format: "VTK File Formats" (the VTK manual) and, for OFFSETS and CONNECTIVITY,
// version 5.1's notes.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "sim/mesh/io_cursor.h"
#include "sim/mesh/mesh_io.h"

namespace palpate::sim {
namespace {

constexpr uint64_t kTetCell = 10;
constexpr bool kIsLittleEndian = std::endian::native == std::endian::little;

enum class ValueType { kInt8, kUint8, kInt16, kUint16, kInt32, kUint32, kInt64, kUint64, kFloat, kDouble };

struct TypeName {
  const char* name;
  ValueType type;
  uint64_t bytes;
};

constexpr std::array<TypeName, 15> kTypeNames = {{
    {"char", ValueType::kInt8, 1},
    {"signed_char", ValueType::kInt8, 1},
    {"unsigned_char", ValueType::kUint8, 1},
    {"short", ValueType::kInt16, 2},
    {"unsigned_short", ValueType::kUint16, 2},
    {"int", ValueType::kInt32, 4},
    {"unsigned_int", ValueType::kUint32, 4},
    {"vtkidtype", ValueType::kInt32, 4},  // VTK writes ids as 32 bits under this name
    {"long", ValueType::kInt64, 8},
    {"unsigned_long", ValueType::kUint64, 8},
    {"vtktypeint64", ValueType::kInt64, 8},
    {"vtktypeuint64", ValueType::kUint64, 8},
    {"vtktypeint32", ValueType::kInt32, 4},
    {"float", ValueType::kFloat, 4},
    {"double", ValueType::kDouble, 8},
}};

// Cells without volume: points, lines, polygons and their higher-order forms.
bool HasNoVolume(uint64_t type) {
  constexpr std::array<uint64_t, 26> kTypes = {0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  21, 22, 23,
                                               28, 30, 34, 35, 36, 68, 69, 70, 75, 76, 77, 51, 52};
  return std::find(kTypes.begin(), kTypes.end(), type) != kTypes.end();
}

class VtkParser {
 public:
  VtkParser(std::string_view bytes, std::string_view name) : in_(bytes, name) {}

  absl::StatusOr<TetMesh> Parse(const ReadOptions& options) {
    PALPATE_ASSIGN_OR_RETURN(const bool is_surface, ReadHeader());
    if (is_surface) {
      return ErrorAt(in_.source(), dataset_begin_,
                     "the file holds a surface (DATASET POLYDATA) without tetrahedra; `palpate mesh from-surface` fills a closed one");
    }
    while (true) {
      in_.SkipSpace();
      if (in_.AtEnd()) break;
      const size_t begin = in_.offset();
      const std::vector<std::string_view> words = SplitWords(in_.Line());
      const std::string keyword = absl::AsciiStrToUpper(ToAbsl(words[0]));
      if (keyword == "POINT_DATA" || keyword == "CELL_DATA") {
        // Data on the mesh comes last.
        PALPATE_RETURN_IF_ERROR(ReadData(words, begin));
        break;
      }
      if (keyword == "POINTS") {
        PALPATE_RETURN_IF_ERROR(ReadPoints(words, begin));
      } else if (keyword == "CELLS") {
        PALPATE_RETURN_IF_ERROR(ReadCells(words, begin));
      } else if (keyword == "CELL_TYPES") {
        PALPATE_RETURN_IF_ERROR(ReadCellTypes(words, begin));
      } else if (keyword == "FIELD") {
        PALPATE_RETURN_IF_ERROR(SkipField(words, begin));
      } else if (keyword == "METADATA") {
        while (!in_.AtEnd() && !SplitWords(in_.Line()).empty()) {
        }
      } else {
        return ErrorAt(in_.source(), begin, absl::StrFormat("POINTS, CELLS or CELL_TYPES expected, found %s", Quoted(words[0])));
      }
    }
    if (!has_points_) return in_.Error("no POINTS");
    if (!has_cells_) return in_.Error("no CELLS");
    if (!has_types_) return in_.Error("no CELL_TYPES");
    PALPATE_RETURN_IF_ERROR(CollectTets());
    raw_.vertex_source = in_.source();
    raw_.tet_source = in_.source();
    return FinishTetMesh(std::move(raw_), options);
  }

  // Polydata: the polygons, cut into fans of triangles, and the triangles of the strips.
  absl::StatusOr<SurfaceMesh> ParseSurface() {
    PALPATE_ASSIGN_OR_RETURN(const bool is_surface, ReadHeader());
    if (!is_surface) {
      return ErrorAt(in_.source(), dataset_begin_,
                     "\"DATASET POLYDATA\" expected: the file holds a volume; `palpate mesh convert -o NAME.obj` writes its surface");
    }
    SurfaceMesh surface;
    while (true) {
      in_.SkipSpace();
      if (in_.AtEnd()) break;
      const size_t begin = in_.offset();
      const std::vector<std::string_view> words = SplitWords(in_.Line());
      const std::string keyword = absl::AsciiStrToUpper(ToAbsl(words[0]));
      if (keyword == "POINT_DATA" || keyword == "CELL_DATA") break;
      if (keyword == "POINTS") {
        PALPATE_RETURN_IF_ERROR(ReadPoints(words, begin));
      } else if (keyword == "POLYGONS" || keyword == "TRIANGLE_STRIPS" || keyword == "LINES" || keyword == "VERTICES") {
        has_cells_ = false;
        cell_starts_.clear();
        cell_offsets_.clear();
        cell_vertices_.clear();
        PALPATE_RETURN_IF_ERROR(ReadCells(words, begin));
        if (keyword == "POLYGONS") PALPATE_RETURN_IF_ERROR(AddPolygons(&surface));
        if (keyword == "TRIANGLE_STRIPS") PALPATE_RETURN_IF_ERROR(AddStrips(&surface));
      } else if (keyword == "FIELD") {
        PALPATE_RETURN_IF_ERROR(SkipField(words, begin));
      } else if (keyword == "METADATA") {
        while (!in_.AtEnd() && !SplitWords(in_.Line()).empty()) {
        }
      } else {
        return ErrorAt(in_.source(), begin, absl::StrFormat("POINTS, POLYGONS or TRIANGLE_STRIPS expected, found %s", Quoted(words[0])));
      }
    }
    for (size_t t = 0; t < surface.triangles.size(); ++t) {
      for (const uint32_t v : surface.triangles[t]) {
        if (v < raw_.mesh.vertices.size()) continue;
        return in_.Error(absl::StrFormat("triangle %d: vertex index %d, but there are %d points", t, v, raw_.mesh.vertices.size()));
      }
    }
    surface = Joined(surface);
    if (surface.triangles.empty()) return in_.Error("the file has no polygons");
    return surface;
  }

 private:
  // Vertices of equal coordinates become one, in the order of first use, as in the readers of other surfaces.
  SurfaceMesh Joined(const SurfaceMesh& surface) const {
    SurfaceMesh joined;
    std::map<std::array<double, 3>, uint32_t> vertex_at;
    for (const auto& triangle : surface.triangles) {
      std::array<uint32_t, 3> corners;
      for (size_t k = 0; k < 3; ++k) {
        const Eigen::Vector3d& p = raw_.mesh.vertices[triangle[k]];
        // Adding zero makes -0 and 0 the same key.
        const std::array<double, 3> key = {p.x() + 0.0, p.y() + 0.0, p.z() + 0.0};
        const auto [place, is_new] = vertex_at.try_emplace(key, static_cast<uint32_t>(joined.vertices.size()));
        if (is_new) joined.vertices.push_back(p);
        corners[k] = place->second;
      }
      AddTriangle(corners[0], corners[1], corners[2], &joined);
    }
    return joined;
  }

  // Triangles that repeat a vertex have no area.
  static void AddTriangle(uint32_t a, uint32_t b, uint32_t c, SurfaceMesh* surface) {
    if (a != b && b != c && c != a) surface->triangles.push_back({a, b, c});
  }

  absl::Status CheckPolygon(size_t cell) const {
    const uint64_t size = cell_starts_[cell + 1] - cell_starts_[cell];
    if (size >= 3) return absl::OkStatus();
    return ErrorAt(in_.source(), cell_offsets_[cell], absl::StrFormat("polygon %d has %d vertices, must have 3 or more", cell, size));
  }

  absl::Status AddPolygons(SurfaceMesh* surface) const {
    for (size_t cell = 0; cell + 1 < cell_starts_.size(); ++cell) {
      PALPATE_RETURN_IF_ERROR(CheckPolygon(cell));
      for (uint64_t k = cell_starts_[cell] + 2; k < cell_starts_[cell + 1]; ++k) {
        AddTriangle(cell_vertices_[cell_starts_[cell]], cell_vertices_[k - 1], cell_vertices_[k], surface);
      }
    }
    return absl::OkStatus();
  }

  // Every other triangle of a strip runs the other way round.
  absl::Status AddStrips(SurfaceMesh* surface) const {
    for (size_t cell = 0; cell + 1 < cell_starts_.size(); ++cell) {
      PALPATE_RETURN_IF_ERROR(CheckPolygon(cell));
      for (uint64_t k = cell_starts_[cell]; k + 2 < cell_starts_[cell + 1]; ++k) {
        const bool is_even = (k - cell_starts_[cell]) % 2 == 0;
        AddTriangle(cell_vertices_[is_even ? k : k + 1], cell_vertices_[is_even ? k + 1 : k], cell_vertices_[k + 2], surface);
      }
    }
    return absl::OkStatus();
  }

  // Whether the file holds polydata rather than an unstructured grid.
  absl::StatusOr<bool> ReadHeader() {
    constexpr std::string_view kMagic = "# vtk DataFile Version ";
    if (in_.Line().substr(0, kMagic.size()) != kMagic) {
      return ErrorAt(in_.source(), 0, "not a legacy VTK file: it does not start with \"# vtk DataFile Version\"");
    }
    in_.Line();  // title
    size_t begin = in_.offset();
    const std::vector<std::string_view> encoding = SplitWords(in_.Line());
    const bool is_binary = encoding.size() == 1 && absl::EqualsIgnoreCase(ToAbsl(encoding[0]), "BINARY");
    if (!is_binary && !(encoding.size() == 1 && absl::EqualsIgnoreCase(ToAbsl(encoding[0]), "ASCII"))) {
      return ErrorAt(in_.source(), begin, "ASCII or BINARY expected on the third line");
    }
    in_.SkipSpace();
    begin = in_.offset();
    const std::vector<std::string_view> dataset = SplitWords(in_.Line());
    const bool is_dataset = dataset.size() == 2 && absl::EqualsIgnoreCase(ToAbsl(dataset[0]), "DATASET");
    const bool is_surface = is_dataset && absl::EqualsIgnoreCase(ToAbsl(dataset[1]), "POLYDATA");
    if (!is_surface && !(is_dataset && absl::EqualsIgnoreCase(ToAbsl(dataset[1]), "UNSTRUCTURED_GRID"))) {
      return ErrorAt(in_.source(), begin, "\"DATASET UNSTRUCTURED_GRID\" expected: other data sets hold no tetrahedra");
    }
    dataset_begin_ = begin;
    if (is_binary) in_.SetBinary(kIsLittleEndian);
    return is_surface;
  }

  absl::Status OnlyOnce(bool& was_seen, std::string_view keyword, size_t begin) const {
    if (was_seen) return ErrorAt(in_.source(), begin, absl::StrFormat("a second %s", ToAbsl(keyword)));
    was_seen = true;
    return absl::OkStatus();
  }

  // Word `index` of a keyword line as a count.
  absl::StatusOr<uint64_t> Count(const std::vector<std::string_view>& words, size_t index, size_t begin) const {
    uint64_t count = 0;
    if (index < words.size() && ParseUnsigned(words[index], &count)) return count;
    return ErrorAt(in_.source(), begin,
                   absl::StrFormat("%s: a count of at least 0 expected, found %s", Quoted(words[0]),
                                   index < words.size() ? Quoted(words[index]) : "the end of the line"));
  }

  absl::StatusOr<TypeName> Type(const std::vector<std::string_view>& words, size_t index, size_t begin) const {
    if (index < words.size()) {
      for (const TypeName& type : kTypeNames) {
        if (absl::EqualsIgnoreCase(ToAbsl(words[index]), type.name)) return type;
      }
    }
    return ErrorAt(in_.source(), begin,
                   absl::StrFormat("%s: a data type (float, double, int...) expected, found %s", Quoted(words[0]),
                                   index < words.size() ? Quoted(words[index]) : "the end of the line"));
  }

  template <typename T>
  absl::StatusOr<double> RawReal(std::string_view what) {
    PALPATE_ASSIGN_OR_RETURN(const T value, in_.Raw<T>(what));
    return static_cast<double>(value);
  }

  absl::StatusOr<double> BinaryReal(ValueType type, std::string_view what) {
    switch (type) {
      case ValueType::kInt8:
        return RawReal<int8_t>(what);
      case ValueType::kUint8:
        return RawReal<uint8_t>(what);
      case ValueType::kInt16:
        return RawReal<int16_t>(what);
      case ValueType::kUint16:
        return RawReal<uint16_t>(what);
      case ValueType::kInt32:
        return RawReal<int32_t>(what);
      case ValueType::kUint32:
        return RawReal<uint32_t>(what);
      case ValueType::kInt64:
        return RawReal<int64_t>(what);
      case ValueType::kUint64:
        return RawReal<uint64_t>(what);
      case ValueType::kFloat:
        return RawReal<float>(what);
      case ValueType::kDouble:
        return RawReal<double>(what);
    }
    return absl::InternalError("unknown value type");
  }

  absl::StatusOr<double> Real(const TypeName& type, std::string_view what) {
    if (!in_.is_binary()) return in_.Real(what);
    PALPATE_ASSIGN_OR_RETURN(const double value, BinaryReal(type.type, what));
    if (!std::isfinite(value)) {
      return ErrorAt(in_.source(), in_.offset() - type.bytes, absl::StrFormat("%s: %g is not a finite number", ToAbsl(what), value));
    }
    return value;
  }

  // An integer of at least 0; in a binary file of 4 or 8 bytes.
  absl::StatusOr<uint64_t> Integer(uint64_t bytes, std::string_view what) {
    if (!in_.is_binary()) return in_.Unsigned(what);
    int64_t value = 0;
    if (bytes == 4) {
      PALPATE_ASSIGN_OR_RETURN(value, in_.Raw<int32_t>(what));
    } else {
      PALPATE_ASSIGN_OR_RETURN(value, in_.Raw<int64_t>(what));
    }
    if (value < 0) return ErrorAt(in_.source(), in_.offset() - bytes, absl::StrFormat("%s: %d is negative", ToAbsl(what), value));
    return static_cast<uint64_t>(value);
  }

  // A vertex index, as far as it can be checked before the points are known.
  absl::StatusOr<uint32_t> VertexIndex(uint64_t bytes) {
    const size_t begin = Here();
    PALPATE_ASSIGN_OR_RETURN(const uint64_t index, Integer(bytes, "a cell's vertex"));
    if (index < std::numeric_limits<uint32_t>::max()) return static_cast<uint32_t>(index);
    return ErrorAt(in_.source(), begin, absl::StrFormat("vertex index %d is more than 32 bits hold", index));
  }

  size_t Here() {
    if (!in_.is_binary()) in_.SkipSpace();
    return in_.offset();
  }
  uint64_t MinBytes(uint64_t text_count, uint64_t binary_bytes) const { return in_.is_binary() ? binary_bytes : 2 * text_count; }

  absl::Status ReadPoints(const std::vector<std::string_view>& words, size_t begin) {
    PALPATE_RETURN_IF_ERROR(OnlyOnce(has_points_, "POINTS", begin));
    PALPATE_ASSIGN_OR_RETURN(const uint64_t count, Count(words, 1, begin));
    PALPATE_ASSIGN_OR_RETURN(const TypeName type, Type(words, 2, begin));
    PALPATE_RETURN_IF_ERROR(in_.CheckCount(count, MinBytes(3, 3 * type.bytes), "points"));
    raw_.mesh.vertices.reserve(count);
    raw_.vertex_offsets.reserve(count);
    for (uint64_t i = 0; i < count; ++i) {
      raw_.vertex_offsets.push_back(Here());
      Eigen::Vector3d point;
      for (int k = 0; k < 3; ++k) {
        PALPATE_ASSIGN_OR_RETURN(point[k], Real(type, "a point's coordinate"));
      }
      raw_.mesh.vertices.push_back(point);
    }
    return absl::OkStatus();
  }

  absl::Status ReadCells(const std::vector<std::string_view>& words, size_t begin) {
    PALPATE_RETURN_IF_ERROR(OnlyOnce(has_cells_, words[0], begin));
    PALPATE_ASSIGN_OR_RETURN(const uint64_t first, Count(words, 1, begin));
    PALPATE_ASSIGN_OR_RETURN(const uint64_t second, Count(words, 2, begin));
    if (absl::StartsWithIgnoreCase(ToAbsl(in_.rest()), "OFFSETS")) return ReadOffsetCells(first, second);

    // Old form: for each cell its number of vertices and the vertices; `second` is the number of integers.
    PALPATE_RETURN_IF_ERROR(in_.CheckCount(second, MinBytes(1, 4), "integers of cells"));
    if (second < first)
      return ErrorAt(in_.source(), begin, absl::StrFormat("%s: %d cells cannot take only %d integers", Quoted(words[0]), first, second));
    cell_starts_.reserve(first + 1);
    cell_offsets_.reserve(first);
    cell_vertices_.reserve(second - first);
    cell_starts_.push_back(0);
    uint64_t left = second;
    for (uint64_t cell = 0; cell < first; ++cell) {
      const size_t cell_begin = Here();
      PALPATE_ASSIGN_OR_RETURN(const uint64_t size, left > 0 ? Integer(4, "a cell's number of vertices") : absl::StatusOr<uint64_t>(0));
      if (left == 0 || size > left - 1) {
        return ErrorAt(in_.source(), cell_begin,
                       absl::StrFormat("cell %d: its vertices do not fit into the %d integers announced", cell, second));
      }
      left -= 1 + size;
      for (uint64_t k = 0; k < size; ++k) {
        PALPATE_ASSIGN_OR_RETURN(const uint32_t index, VertexIndex(4));
        cell_vertices_.push_back(index);
      }
      cell_offsets_.push_back(cell_begin);
      cell_starts_.push_back(cell_vertices_.size());
    }
    if (left > 0)
      return in_.Error(absl::StrFormat("%s: %d integers announced, the %d cells take %d", Quoted(words[0]), second, first, second - left));
    return absl::OkStatus();
  }

  // New form: where each cell's vertices start and end in a second list.
  absl::Status ReadOffsetCells(uint64_t offset_count, uint64_t vertex_count) {
    size_t begin = in_.offset();
    std::vector<std::string_view> words = SplitWords(in_.Line());
    PALPATE_ASSIGN_OR_RETURN(const uint64_t offset_bytes, IndexBytes(words, begin));
    PALPATE_RETURN_IF_ERROR(in_.CheckCount(offset_count, MinBytes(1, offset_bytes), "cell offsets"));
    cell_starts_.reserve(offset_count);
    for (uint64_t i = 0; i < offset_count; ++i) {
      const size_t here = Here();
      PALPATE_ASSIGN_OR_RETURN(const uint64_t start, Integer(offset_bytes, "a cell offset"));
      const uint64_t lowest = i == 0 ? 0 : cell_starts_.back();
      const uint64_t highest = i == 0 ? 0 : vertex_count;
      if (start < lowest || start > highest) {
        return ErrorAt(in_.source(), here, absl::StrFormat("cell offset %d: %d is outside %d..%d", i, start, lowest, highest));
      }
      cell_starts_.push_back(start);
    }
    if (cell_starts_.empty()) cell_starts_.push_back(0);
    if (cell_starts_.back() != vertex_count) {
      return in_.Error(
          absl::StrFormat("the last cell offset is %d, but the connectivity has %d entries", cell_starts_.back(), vertex_count));
    }
    in_.SkipSpace();
    begin = in_.offset();
    words = SplitWords(in_.Line());
    if (words.empty() || !absl::EqualsIgnoreCase(ToAbsl(words[0]), "CONNECTIVITY")) {
      return ErrorAt(in_.source(), begin, "CONNECTIVITY expected after OFFSETS");
    }
    PALPATE_ASSIGN_OR_RETURN(const uint64_t index_bytes, IndexBytes(words, begin));
    PALPATE_RETURN_IF_ERROR(in_.CheckCount(vertex_count, MinBytes(1, index_bytes), "entries of the connectivity"));
    cell_vertices_.reserve(vertex_count);
    cell_offsets_.reserve(cell_starts_.size() - 1);
    for (size_t cell = 0; cell + 1 < cell_starts_.size(); ++cell) {
      cell_offsets_.push_back(Here());
      for (uint64_t k = cell_starts_[cell]; k < cell_starts_[cell + 1]; ++k) {
        PALPATE_ASSIGN_OR_RETURN(const uint32_t index, VertexIndex(index_bytes));
        cell_vertices_.push_back(index);
      }
    }
    return absl::OkStatus();
  }

  absl::StatusOr<uint64_t> IndexBytes(const std::vector<std::string_view>& words, size_t begin) const {
    PALPATE_ASSIGN_OR_RETURN(const TypeName type, Type(words, 1, begin));
    if (type.type == ValueType::kInt32 || type.type == ValueType::kInt64) return type.bytes;
    return ErrorAt(in_.source(), begin,
                   absl::StrFormat("%s: indices must be 32 or 64 bit signed integers, not %s", Quoted(words[0]), type.name));
  }

  absl::Status ReadCellTypes(const std::vector<std::string_view>& words, size_t begin) {
    PALPATE_RETURN_IF_ERROR(OnlyOnce(has_types_, "CELL_TYPES", begin));
    PALPATE_ASSIGN_OR_RETURN(const uint64_t count, Count(words, 1, begin));
    PALPATE_RETURN_IF_ERROR(in_.CheckCount(count, MinBytes(1, 4), "cell types"));
    types_begin_ = begin;
    cell_types_.reserve(count);
    for (uint64_t i = 0; i < count; ++i) {
      PALPATE_ASSIGN_OR_RETURN(const uint64_t type, Integer(4, "a cell's type"));
      cell_types_.push_back(static_cast<uint32_t>(std::min<uint64_t>(type, std::numeric_limits<uint32_t>::max())));
    }
    return absl::OkStatus();
  }

  // Everything from the first POINT_DATA or CELL_DATA on: texture coordinates are read, the rest is passed over as far as it can be made
  // out.
  absl::Status ReadData(std::vector<std::string_view> words, size_t begin) {
    uint64_t count = 0;
    bool is_of_points = false;
    bool is_of_cells = false;
    while (true) {
      const std::string keyword = absl::AsciiStrToUpper(ToAbsl(words[0]));
      if (keyword == "POINT_DATA" || keyword == "CELL_DATA") {
        const absl::StatusOr<uint64_t> stated = Count(words, 1, begin);
        if (!stated.ok()) return absl::OkStatus();
        count = *stated;
        is_of_points = keyword == "POINT_DATA";
        is_of_cells = !is_of_points;
      } else if (keyword == "SCALARS" && is_of_cells && words.size() > 2 && NamesGroups(words[1]) && cell_groups_.empty()) {
        if (!ReadGroups(words, count, begin).ok()) return absl::OkStatus();
      } else if (keyword == "TEXTURE_COORDINATES" && is_of_points) {
        PALPATE_RETURN_IF_ERROR(ReadTextureCoordinates(words, count, begin));
      } else if (keyword == "FIELD") {
        bool was_read = false;
        const absl::Status status = SkipField(words, begin, is_of_points ? &was_read : nullptr);
        if (was_read && !status.ok()) return status;
        if (!status.ok()) return absl::OkStatus();
      } else if (keyword == "METADATA") {
        while (!in_.AtEnd() && !SplitWords(in_.Line()).empty()) {
        }
      } else if (!SkipAttribute(keyword, words, count, begin).ok()) {
        return absl::OkStatus();
      }
      in_.SkipSpace();
      if (in_.AtEnd()) return absl::OkStatus();
      begin = in_.offset();
      words = SplitWords(in_.Line());
    }
  }

  // TEXTURE_COORDINATES name components type.
  absl::Status ReadTextureCoordinates(const std::vector<std::string_view>& words, uint64_t count, size_t begin) {
    PALPATE_ASSIGN_OR_RETURN(const uint64_t components, Count(words, 2, begin));
    PALPATE_ASSIGN_OR_RETURN(const TypeName type, Type(words, 3, begin));
    return ReadTextureValues("TEXTURE_COORDINATES", components, count, type, begin);
  }

  absl::Status ReadTextureValues(std::string_view what, uint64_t components, uint64_t count, const TypeName& type, size_t begin) {
    PALPATE_RETURN_IF_ERROR(OnlyOnce(has_texture_, "array of texture coordinates", begin));
    if (components != 2 && components != 3) {
      return ErrorAt(in_.source(), begin, absl::StrFormat("%s: %d components, must be 2 or 3", ToAbsl(what), components));
    }
    if (count != raw_.mesh.vertices.size()) {
      return ErrorAt(in_.source(), begin,
                     absl::StrFormat("%s: %d texture coordinates for %d points", ToAbsl(what), count, raw_.mesh.vertices.size()));
    }
    PALPATE_RETURN_IF_ERROR(in_.CheckCount(count, MinBytes(components, components * type.bytes), "texture coordinates"));
    raw_.mesh.texture_coordinates.reserve(count);
    for (uint64_t i = 0; i < count; ++i) {
      Eigen::Vector3d value;
      for (int k = 0; k < static_cast<int>(components); ++k) {
        PALPATE_ASSIGN_OR_RETURN(value[k], Real(type, "a texture coordinate"));
      }
      raw_.mesh.texture_coordinates.push_back(value.head<2>());
    }
    return absl::OkStatus();
  }

  // Passes over an attribute of VTK's that is not needed.
  absl::Status SkipAttribute(std::string_view keyword, const std::vector<std::string_view>& words, uint64_t count, size_t begin) {
    uint64_t components = 0;
    size_t type_at = 2;
    uint64_t bytes = 0;  // of each value; 0: the type says
    if (keyword == "SCALARS") {
      components = 1;
      if (words.size() > 3) {
        PALPATE_ASSIGN_OR_RETURN(components, Count(words, 3, begin));
      }
      const Cursor before = in_;
      in_.SkipSpace();
      const std::vector<std::string_view> table = SplitWords(in_.Line());
      if (table.empty() || !absl::EqualsIgnoreCase(ToAbsl(table[0]), "LOOKUP_TABLE")) in_ = before;
    } else if (keyword == "VECTORS" || keyword == "NORMALS") {
      components = 3;
    } else if (keyword == "TENSORS") {
      components = 9;
    } else if (keyword == "TENSORS6") {
      components = 6;
    } else if (keyword == "TEXTURE_COORDINATES") {  // of cells
      PALPATE_ASSIGN_OR_RETURN(components, Count(words, 2, begin));
      type_at = 3;
    } else if (keyword == "GLOBAL_IDS" || keyword == "PEDIGREE_IDS") {
      components = 1;
    } else if (keyword == "COLOR_SCALARS") {
      PALPATE_ASSIGN_OR_RETURN(components, Count(words, 2, begin));
      bytes = 1;
    } else if (keyword == "LOOKUP_TABLE") {
      PALPATE_ASSIGN_OR_RETURN(count, Count(words, 2, begin));
      components = 4;
      bytes = 1;
    } else {
      return ErrorAt(in_.source(), begin, "unknown data");
    }
    if (bytes == 0) {
      PALPATE_ASSIGN_OR_RETURN(const TypeName type, Type(words, type_at, begin));
      bytes = type.bytes;
    }
    return SkipValues(components, count, bytes, "data");
  }

  absl::Status SkipValues(uint64_t components, uint64_t tuples, uint64_t bytes, std::string_view what) {
    if (components == 0 || tuples == 0) return absl::OkStatus();
    PALPATE_RETURN_IF_ERROR(in_.CheckCount(components, 1, absl::StrCat("components of ", ToAbsl(what))));
    PALPATE_RETURN_IF_ERROR(in_.CheckCount(tuples, components, absl::StrCat("tuples of ", ToAbsl(what))));
    PALPATE_RETURN_IF_ERROR(in_.CheckCount(components * tuples, MinBytes(1, bytes), absl::StrCat("values of ", ToAbsl(what))));
    if (in_.is_binary()) {
      if (components * tuples * bytes > in_.remaining()) return in_.Truncated(what);
      in_.Advance(components * tuples * bytes);
      return absl::OkStatus();
    }
    for (uint64_t k = 0; k < components * tuples; ++k) {
      if (in_.Word().empty()) return in_.Truncated(what);
    }
    return absl::OkStatus();
  }

  static bool NamesGroups(std::string_view name) {
    const std::string lower = absl::AsciiStrToLower(ToAbsl(name));
    return lower == "label" || lower == "cellentityids";
  }

  // SCALARS name type [components], of cells. Values that are no numbers of groups are passed over like other data.
  absl::Status ReadGroups(const std::vector<std::string_view>& words, uint64_t count, size_t begin) {
    PALPATE_ASSIGN_OR_RETURN(const TypeName type, Type(words, 2, begin));
    uint64_t components = 1;
    if (words.size() > 3) {
      PALPATE_ASSIGN_OR_RETURN(components, Count(words, 3, begin));
    }
    const Cursor before = in_;
    in_.SkipSpace();
    const std::vector<std::string_view> table = SplitWords(in_.Line());
    if (table.empty() || !absl::EqualsIgnoreCase(ToAbsl(table[0]), "LOOKUP_TABLE")) in_ = before;
    if (components != 1 || count != cell_offsets_.size()) return SkipValues(components, count, type.bytes, "data");
    PALPATE_RETURN_IF_ERROR(in_.CheckCount(count, MinBytes(1, type.bytes), "groups of cells"));
    bool are_groups = true;
    cell_groups_.reserve(count);
    for (uint64_t i = 0; i < count; ++i) {
      PALPATE_ASSIGN_OR_RETURN(const double value, Real(type, "a cell's group"));
      are_groups = are_groups && value >= 0 && value < std::numeric_limits<int32_t>::max() && value == std::floor(value);
      cell_groups_.push_back(are_groups ? static_cast<uint32_t>(value) : 0);
    }
    if (!are_groups) cell_groups_.clear();
    return absl::OkStatus();
  }

  static bool NamesTexture(std::string_view name) {
    std::string letters = absl::AsciiStrToLower(ToAbsl(name));
    std::erase(letters, '_');
    return letters == "tcoords" || letters == "texturecoordinates" || letters == "texcoords" || letters == "uv";
  }

  // FIELD name count, then arrays "name components tuples type" with their values. With `was_read` texture coordinates among them are read,
  // and it tells whether that began.
  absl::Status SkipField(const std::vector<std::string_view>& words, size_t begin, bool* was_read = nullptr) {
    PALPATE_ASSIGN_OR_RETURN(const uint64_t array_count, Count(words, 2, begin));
    for (uint64_t i = 0; i < array_count; ++i) {
      in_.SkipSpace();
      const size_t array_begin = in_.offset();
      const std::vector<std::string_view> array = SplitWords(in_.Line());
      if (array.empty()) return in_.Truncated("a field's array");
      PALPATE_ASSIGN_OR_RETURN(const uint64_t components, Count(array, 1, array_begin));
      PALPATE_ASSIGN_OR_RETURN(const uint64_t tuples, Count(array, 2, array_begin));
      PALPATE_ASSIGN_OR_RETURN(const TypeName type, Type(array, 3, array_begin));
      if (was_read != nullptr && components == 2 && NamesTexture(array[0])) {
        *was_read = true;
        PALPATE_RETURN_IF_ERROR(ReadTextureValues(array[0], components, tuples, type, array_begin));
        *was_read = false;
        continue;
      }
      PALPATE_RETURN_IF_ERROR(SkipValues(components, tuples, type.bytes, "a field's array"));
    }
    return absl::OkStatus();
  }

  absl::Status CollectTets() {
    if (cell_types_.size() != cell_offsets_.size()) {
      return ErrorAt(in_.source(), types_begin_, absl::StrFormat("%d cell types for %d cells", cell_types_.size(), cell_offsets_.size()));
    }
    for (size_t cell = 0; cell < cell_types_.size(); ++cell) {
      const uint64_t size = cell_starts_[cell + 1] - cell_starts_[cell];
      if (HasNoVolume(cell_types_[cell])) continue;
      if (cell_types_[cell] != kTetCell) {
        return ErrorAt(in_.source(), cell_offsets_[cell],
                       absl::StrFormat("cell %d: type %d is not supported, volumes must be linear tetrahedra (type %d)", cell,
                                       cell_types_[cell], kTetCell));
      }
      if (size != 4)
        return ErrorAt(in_.source(), cell_offsets_[cell],
                       absl::StrFormat("cell %d: a tetrahedron with %d vertices, must be 4", cell, size));
      std::array<uint32_t, 4> tet;
      for (size_t k = 0; k < 4; ++k) {
        tet[k] = cell_vertices_[cell_starts_[cell] + k];
        if (tet[k] >= raw_.mesh.vertices.size()) {
          return ErrorAt(in_.source(), cell_offsets_[cell],
                         absl::StrFormat("cell %d: vertex index %d, but there are %d points", cell, tet[k], raw_.mesh.vertices.size()));
        }
      }
      raw_.mesh.tets.push_back(tet);
      if (cell_groups_.size() == cell_offsets_.size()) raw_.mesh.tet_groups.push_back(cell_groups_[cell]);
      raw_.tet_offsets.push_back(cell_offsets_[cell]);
    }
    return absl::OkStatus();
  }

  Cursor in_;
  bool has_points_ = false;
  bool has_cells_ = false;
  bool has_types_ = false;
  bool has_texture_ = false;
  size_t dataset_begin_ = 0;
  size_t types_begin_ = 0;
  RawTetMesh raw_;
  std::vector<uint64_t> cell_starts_;  // [cell_count + 1] into cell_vertices_
  std::vector<uint32_t> cell_vertices_;
  std::vector<size_t> cell_offsets_;  // [cell_count] bytes into the file
  std::vector<uint32_t> cell_types_;
  std::vector<uint32_t> cell_groups_;  // [cell_count] or empty
};

// Appends a value with its most significant byte first.
template <typename T>
void AppendBigEndian(T value, std::string* out) {
  char bytes[sizeof(T)];
  std::memcpy(bytes, &value, sizeof(T));
  if (kIsLittleEndian) std::reverse(bytes, bytes + sizeof(T));
  out->append(bytes, sizeof(T));
}

}  // namespace

absl::StatusOr<TetMesh> ParseVtk(std::string_view bytes, std::string_view name, const ReadOptions& options) {
  return VtkParser(bytes, name).Parse(options);
}

absl::StatusOr<SurfaceMesh> ParseVtkSurface(std::string_view bytes, std::string_view name) { return VtkParser(bytes, name).ParseSurface(); }

std::string FormatVtk(const TetMesh& mesh, VtkEncoding encoding) {
  const bool is_binary = encoding == VtkEncoding::kBinary;
  const size_t tet_count = mesh.tets.size();
  std::string out =
      absl::StrFormat("# vtk DataFile Version 3.0\nTetrahedral mesh in metres\n%s\nDATASET UNSTRUCTURED_GRID\nPOINTS %d double\n",
                      is_binary ? "BINARY" : "ASCII", mesh.vertices.size());
  out.reserve(out.size() + 64 * mesh.vertices.size() + 40 * tet_count);
  for (const Eigen::Vector3d& p : mesh.vertices) {
    if (is_binary) {
      for (int k = 0; k < 3; ++k) AppendBigEndian(p[k], &out);
    } else {
      AppendPoint(p, &out);
      out += '\n';
    }
  }
  absl::StrAppendFormat(&out, "%sCELLS %d %d\n", is_binary ? "\n" : "", tet_count, 5 * tet_count);
  for (const auto& tet : mesh.tets) {
    if (is_binary) {
      AppendBigEndian(int32_t{4}, &out);
      for (const uint32_t v : tet) AppendBigEndian(v, &out);
    } else {
      absl::StrAppend(&out, "4 ", tet[0], " ", tet[1], " ");
      absl::StrAppend(&out, tet[2], " ", tet[3], "\n");
    }
  }
  absl::StrAppendFormat(&out, "%sCELL_TYPES %d\n", is_binary ? "\n" : "", tet_count);
  for (size_t t = 0; t < tet_count; ++t) {
    if (is_binary) {
      AppendBigEndian(static_cast<int32_t>(kTetCell), &out);
    } else {
      absl::StrAppend(&out, kTetCell, "\n");
    }
  }
  if (is_binary) out += '\n';
  if (!mesh.tet_groups.empty()) {
    absl::StrAppendFormat(&out, "CELL_DATA %d\nSCALARS label int 1\nLOOKUP_TABLE default\n", tet_count);
    for (const uint32_t group : mesh.tet_groups) {
      if (is_binary) {
        AppendBigEndian(static_cast<int32_t>(group), &out);
      } else {
        absl::StrAppend(&out, group, "\n");
      }
    }
    if (is_binary) out += '\n';
  }
  if (mesh.texture_coordinates.empty()) return out;
  absl::StrAppendFormat(&out, "POINT_DATA %d\nTEXTURE_COORDINATES TCoords 2 double\n", mesh.vertices.size());
  for (const Eigen::Vector2d& uv : mesh.texture_coordinates) {
    if (is_binary) {
      for (int k = 0; k < 2; ++k) AppendBigEndian(uv[k], &out);
    } else {
      AppendReal(uv.x(), &out);
      out += ' ';
      AppendReal(uv.y(), &out);
      out += '\n';
    }
  }
  if (is_binary) out += '\n';
  return out;
}

}  // namespace palpate::sim
