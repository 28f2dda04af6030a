#include "sim/ccd/frame_file.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <optional>
#include <string>

#include "absl/strings/str_format.h"
#include "sim/ccd/whole_file.h"
#include "sim/mesh/io_cursor.h"

namespace palpate::sim {
namespace {

constexpr uint64_t kMaxFileBytes = uint64_t{1} << 32;

enum class Type { kInt8, kUint8, kInt16, kUint16, kInt32, kUint32, kFloat, kDouble };

std::optional<Type> TypeNamed(std::string_view name) {
  static constexpr struct {
    std::string_view name;
    Type type;
  } kNames[] = {{"char", Type::kInt8},   {"int8", Type::kInt8},     {"uchar", Type::kUint8},   {"uint8", Type::kUint8},
                {"short", Type::kInt16}, {"int16", Type::kInt16},   {"ushort", Type::kUint16}, {"uint16", Type::kUint16},
                {"int", Type::kInt32},   {"int32", Type::kInt32},   {"uint", Type::kUint32},   {"uint32", Type::kUint32},
                {"float", Type::kFloat}, {"float32", Type::kFloat}, {"double", Type::kDouble}, {"float64", Type::kDouble}};
  for (const auto& entry : kNames) {
    if (entry.name == name) return entry.type;
  }
  return std::nullopt;
}

uint64_t SizeOf(Type type) {
  switch (type) {
    case Type::kInt8:
    case Type::kUint8:
      return 1;
    case Type::kInt16:
    case Type::kUint16:
      return 2;
    case Type::kDouble:
      return 8;
    default:
      return 4;
  }
}

// Names go into messages.
bool IsPrintable(std::string_view name) {
  return std::all_of(name.begin(), name.end(), [](char c) { return c >= '!' && c <= '~'; });
}

struct Property {
  std::string_view name;
  Type type = Type::kFloat;        // of the value, or of the values of a list
  std::optional<Type> count_type;  // of a list
};

struct Element {
  std::string_view name;
  uint64_t count = 0;
  std::vector<Property> properties;
};

// Every number of these types is a double.
absl::StatusOr<double> ReadValue(Cursor& in, Type type, std::string_view what) {
  const auto as_double = [](const auto& value) -> absl::StatusOr<double> {
    if (!value.ok()) return value.status();
    return static_cast<double>(*value);
  };
  switch (type) {
    case Type::kInt8:
      return as_double(in.Raw<int8_t>(what));
    case Type::kUint8:
      return as_double(in.Raw<uint8_t>(what));
    case Type::kInt16:
      return as_double(in.Raw<int16_t>(what));
    case Type::kUint16:
      return as_double(in.Raw<uint16_t>(what));
    case Type::kInt32:
      return as_double(in.Raw<int32_t>(what));
    case Type::kUint32:
      return as_double(in.Raw<uint32_t>(what));
    case Type::kFloat:
      return as_double(in.Raw<float>(what));
    case Type::kDouble:
      return as_double(in.Raw<double>(what));
  }
  return in.Error("unknown type");
}

absl::StatusOr<Property> ParseProperty(const std::vector<std::string_view>& words) {
  Property property;
  const bool is_list = words.size() > 1 && words[1] == "list";
  if (words.size() != (is_list ? 5 : 3))
    return absl::InvalidArgumentError("\"property type name\" or \"property list type type name\" expected");
  property.name = words.back();
  if (!IsPrintable(property.name)) return absl::InvalidArgumentError("the name of a property is not printable");
  const std::optional<Type> type = TypeNamed(words[words.size() - 2]);
  if (is_list) property.count_type = TypeNamed(words[2]);
  if (!type || (is_list && !property.count_type)) return absl::InvalidArgumentError("unknown type of a property");
  property.type = *type;
  if (is_list && (*property.count_type == Type::kFloat || *property.count_type == Type::kDouble)) {
    return absl::InvalidArgumentError("the count of a list is no integer");
  }
  return property;
}

absl::StatusOr<std::vector<Element>> ParseHeader(Cursor& in) {
  std::vector<Element> elements;
  if (in.Line() != "ply") return ErrorAt(in.source(), 0, "the file does not begin with the line \"ply\"");
  std::optional<bool> is_big_endian;
  while (!in.AtEnd()) {
    const size_t begin = in.offset();
    const std::vector<std::string_view> words = SplitWords(in.Line());
    if (words.empty() || words[0] == "comment" || words[0] == "obj_info") continue;
    if (words[0] == "end_header") {
      if (!is_big_endian) return ErrorAt(in.source(), begin, "the header names no format");
      in.SetBinary(*is_big_endian != (std::endian::native == std::endian::big));
      return elements;
    }
    if (words[0] == "format") {
      if (words.size() != 3 || (words[1] != "binary_little_endian" && words[1] != "binary_big_endian")) {
        return ErrorAt(in.source(), begin, "the format is not binary_little_endian or binary_big_endian");
      }
      is_big_endian = words[1] == "binary_big_endian";
    } else if (words[0] == "element") {
      Element element;
      if (words.size() != 3 || !ParseUnsigned(words[2], &element.count)) {
        return ErrorAt(in.source(), begin, "\"element name count\" expected");
      }
      element.name = words[1];
      if (!IsPrintable(element.name)) return ErrorAt(in.source(), begin, "the name of an element is not printable");
      elements.push_back(element);
    } else if (words[0] == "property") {
      if (elements.empty()) return ErrorAt(in.source(), begin, "a property before any element");
      const absl::StatusOr<Property> property = ParseProperty(words);
      if (!property.ok()) {
        const absl::string_view why = property.status().message();
        return ErrorAt(in.source(), begin, std::string_view(why.data(), why.size()));
      }
      elements.back().properties.push_back(*property);
    } else {
      return ErrorAt(in.source(), begin, absl::StrCat("unknown line of the header: ", Quoted(words[0])));
    }
  }
  return in.Truncated("end_header");
}

}  // namespace

absl::StatusOr<MeshFrame> ParsePlyFrame(std::string_view bytes, std::string_view name) {
  Cursor in(bytes, name);
  PALPATE_ASSIGN_OR_RETURN(const std::vector<Element> elements, ParseHeader(in));
  MeshFrame frame;
  bool has_vertices = false;
  bool has_faces = false;
  for (const Element& element : elements) {
    uint64_t least_bytes = 0;
    for (const Property& property : element.properties) least_bytes += SizeOf(property.count_type.value_or(property.type));
    if (least_bytes == 0) return in.Error(absl::StrCat("element ", Quoted(element.name), " has no properties"));
    PALPATE_RETURN_IF_ERROR(in.CheckCount(element.count, least_bytes, element.name));
    const bool is_vertex = element.name == "vertex";
    const bool is_face = element.name == "face";
    if ((is_vertex && has_vertices) || (is_face && has_faces)) return in.Error(absl::StrCat("element ", Quoted(element.name), " twice"));
    has_vertices |= is_vertex;
    has_faces |= is_face;
    std::array<bool, 3> has_axis{};
    for (const Property& property : element.properties) {
      for (size_t axis = 0; axis < 3; ++axis) {
        if (!is_vertex || property.name != std::string_view("xyz").substr(axis, 1)) continue;
        if (property.count_type || has_axis[axis] || (property.type != Type::kFloat && property.type != Type::kDouble)) {
          return in.Error("a coordinate of the vertices is no float or double, or comes twice");
        }
        has_axis[axis] = true;
        frame.has_double |= property.type == Type::kDouble;
      }
    }
    if (is_vertex && !(has_axis[0] && has_axis[1] && has_axis[2])) return in.Error("the vertices have no x, y and z");
    if (element.count > std::numeric_limits<uint32_t>::max()) return in.Error("more elements than 32-bit indices hold");
    if (is_vertex) frame.positions_m.reserve(element.count);
    if (is_face) frame.triangles.reserve(element.count);
    for (uint64_t i = 0; i < element.count; ++i) {
      std::array<double, 3> position{};
      bool has_triangle = false;
      for (const Property& property : element.properties) {
        const bool is_corners = is_face && (property.name == "vertex_indices" || property.name == "vertex_index");
        if (!property.count_type) {
          if (is_corners) return in.Error("the vertices of the faces are no list");
          const size_t begin = in.offset();
          PALPATE_ASSIGN_OR_RETURN(const double value, ReadValue(in, property.type, property.name));
          if (!is_vertex || property.name.size() != 1 || property.name[0] < 'x' || property.name[0] > 'z') continue;
          if (!std::isfinite(value)) {
            return ErrorAt(in.source(), begin, absl::StrFormat("vertex %d: %s is not finite", i, ToAbsl(property.name)));
          }
          position[static_cast<size_t>(property.name[0] - 'x')] = value;
          continue;
        }
        const size_t begin = in.offset();
        PALPATE_ASSIGN_OR_RETURN(const double count, ReadValue(in, *property.count_type, property.name));
        if (count < 0 || (is_corners && count != 3)) {
          return ErrorAt(
              in.source(), begin,
              absl::StrFormat("%s %d: a list of %d; 3 are expected of a face", ToAbsl(element.name), i, static_cast<int64_t>(count)));
        }
        const auto length = static_cast<uint64_t>(count);
        PALPATE_RETURN_IF_ERROR(in.CheckCount(length, SizeOf(property.type), property.name));
        if (!is_corners) {
          if (in.remaining() < length * SizeOf(property.type)) return in.Truncated(property.name);
          in.Advance(length * SizeOf(property.type));
          continue;
        }
        if (has_triangle) return in.Error("two lists of vertices in a face");
        has_triangle = true;
        std::array<uint32_t, 3> triangle{};
        for (uint32_t& corner : triangle) {
          const size_t at = in.offset();
          PALPATE_ASSIGN_OR_RETURN(const double index, ReadValue(in, property.type, property.name));
          if (!(index >= 0 && index <= std::numeric_limits<uint32_t>::max() && index == std::floor(index))) {
            return ErrorAt(in.source(), at, absl::StrFormat("face %d: %g is no vertex", i, index));
          }
          corner = static_cast<uint32_t>(index);
        }
        frame.triangles.push_back(triangle);
      }
      if (is_vertex) frame.positions_m.push_back(position);
      if (is_face && !has_triangle) return in.Error("the faces have no list vertex_indices");
    }
  }
  if (!has_vertices) return in.Error("the file has no vertices");
  for (size_t f = 0; f < frame.triangles.size(); ++f) {
    for (const uint32_t corner : frame.triangles[f]) {
      if (corner >= frame.positions_m.size()) {
        return in.Error(absl::StrFormat("face %d: there is no vertex %d, only %d", f, corner, frame.positions_m.size()));
      }
    }
  }
  return frame;
}

absl::StatusOr<MeshFrame> ReadPlyFrame(const std::filesystem::path& path) {
  PALPATE_ASSIGN_OR_RETURN(const std::string bytes, ReadWholeFile(path, kMaxFileBytes));
  return ParsePlyFrame(bytes, path.string());
}

}  // namespace palpate::sim
