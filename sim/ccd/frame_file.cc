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

bool IsVertex(const Element& element) { return element.name == "vertex"; }
bool IsFace(const Element& element) { return element.name == "face"; }
bool IsCorners(const Element& element, const Property& property) {
  return IsFace(element) && (property.name == "vertex_indices" || property.name == "vertex_index");
}

/// Vertices need x, y and z as numbers, each once. Sets `has_double` where one of them is double.
absl::Status CheckCoordinates(const Cursor& in, const Element& vertices, bool* has_double) {
  std::array<bool, 3> has_axis{};
  for (const Property& property : vertices.properties) {
    for (size_t axis = 0; axis < 3; ++axis) {
      if (property.name != std::string_view("xyz").substr(axis, 1)) continue;
      if (property.count_type || has_axis[axis] || (property.type != Type::kFloat && property.type != Type::kDouble)) {
        return in.Error("a coordinate of the vertices is no float or double, or comes twice");
      }
      has_axis[axis] = true;
      *has_double |= property.type == Type::kDouble;
    }
  }
  if (!(has_axis[0] && has_axis[1] && has_axis[2])) return in.Error("the vertices have no x, y and z");
  return absl::OkStatus();
}

/// A number of item i; coordinates of a vertex go to `position`.
absl::Status ReadNumber(Cursor& in, const Element& element, const Property& property, uint64_t i, std::array<double, 3>* position) {
  if (IsCorners(element, property)) return in.Error("the vertices of the faces are no list");
  const size_t begin = in.offset();
  PALPATE_ASSIGN_OR_RETURN(const double value, ReadValue(in, property.type, property.name));
  if (!IsVertex(element) || property.name.size() != 1 || property.name[0] < 'x' || property.name[0] > 'z') return absl::OkStatus();
  if (!std::isfinite(value)) {
    return ErrorAt(in.source(), begin, absl::StrFormat("vertex %d: %s is not finite", i, ToAbsl(property.name)));
  }
  (*position)[static_cast<size_t>(property.name[0] - 'x')] = value;
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> ReadLength(Cursor& in, const Element& element, const Property& list, uint64_t i) {
  const size_t begin = in.offset();
  PALPATE_ASSIGN_OR_RETURN(const double count, ReadValue(in, *list.count_type, list.name));
  if (count < 0 || (IsCorners(element, list) && count != 3)) {
    return ErrorAt(in.source(), begin,
                   absl::StrFormat("%s %d: a list of %d; 3 are expected of a face", ToAbsl(element.name), i, static_cast<int64_t>(count)));
  }
  const auto length = static_cast<uint64_t>(count);
  PALPATE_RETURN_IF_ERROR(in.CheckCount(length, SizeOf(list.type), list.name));
  return length;
}

absl::StatusOr<std::array<uint32_t, 3>> ReadTriangle(Cursor& in, const Property& corners, uint64_t face) {
  std::array<uint32_t, 3> triangle{};
  for (uint32_t& corner : triangle) {
    const size_t at = in.offset();
    PALPATE_ASSIGN_OR_RETURN(const double index, ReadValue(in, corners.type, corners.name));
    if (!(index >= 0 && index <= std::numeric_limits<uint32_t>::max() && index == std::floor(index))) {
      return ErrorAt(in.source(), at, absl::StrFormat("face %d: %g is no vertex", face, index));
    }
    corner = static_cast<uint32_t>(index);
  }
  return triangle;
}

/// Item i of an element; what the frame has no use for is skipped.
absl::Status ReadItem(Cursor& in, const Element& element, uint64_t i, MeshFrame* frame) {
  std::array<double, 3> position{};
  bool has_triangle = false;
  for (const Property& property : element.properties) {
    if (!property.count_type) {
      PALPATE_RETURN_IF_ERROR(ReadNumber(in, element, property, i, &position));
      continue;
    }
    PALPATE_ASSIGN_OR_RETURN(const uint64_t length, ReadLength(in, element, property, i));
    if (!IsCorners(element, property)) {
      if (in.remaining() < length * SizeOf(property.type)) return in.Truncated(property.name);
      in.Advance(length * SizeOf(property.type));
      continue;
    }
    if (has_triangle) return in.Error("two lists of vertices in a face");
    has_triangle = true;
    PALPATE_ASSIGN_OR_RETURN(frame->triangles.emplace_back(), ReadTriangle(in, property, i));
  }
  if (IsVertex(element)) frame->positions_m.push_back(position);
  if (IsFace(element) && !has_triangle) return in.Error("the faces have no list vertex_indices");
  return absl::OkStatus();
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
    const bool is_repeated = (IsVertex(element) && has_vertices) || (IsFace(element) && has_faces);
    if (is_repeated) return in.Error(absl::StrCat("element ", Quoted(element.name), " twice"));
    has_vertices |= IsVertex(element);
    has_faces |= IsFace(element);
    if (IsVertex(element)) PALPATE_RETURN_IF_ERROR(CheckCoordinates(in, element, &frame.has_double));
    if (element.count > std::numeric_limits<uint32_t>::max()) return in.Error("more elements than 32-bit indices hold");
    if (IsVertex(element)) frame.positions_m.reserve(element.count);
    if (IsFace(element)) frame.triangles.reserve(element.count);
    for (uint64_t i = 0; i < element.count; ++i) PALPATE_RETURN_IF_ERROR(ReadItem(in, element, i, &frame));
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
