#include "sim/export/vtk_xml.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "sim/export/xml_text.h"

namespace palpate::sim {
namespace {

constexpr uint64_t kMaxCorners = std::numeric_limits<int32_t>::max();
constexpr size_t kChunkValues = 16384;  // of what is made while it is written
constexpr uint32_t kMaxComponents = 9;
constexpr uint8_t kTetCell = 10;

template <typename T>
std::string_view BytesOf(std::span<const T> values) {
  return {reinterpret_cast<const char*>(values.data()), values.size_bytes()};
}

struct TypeOf {
  const char* operator()(std::span<const float> /*values*/) const { return "Float32"; }
  const char* operator()(std::span<const double> /*values*/) const { return "Float64"; }
  const char* operator()(std::span<const uint8_t> /*values*/) const { return "UInt8"; }
  const char* operator()(std::span<const uint16_t> /*values*/) const { return "UInt16"; }
  const char* operator()(std::span<const int32_t> /*values*/) const { return "Int32"; }
  const char* operator()(std::span<const uint32_t> /*values*/) const { return "UInt32"; }
};

std::string_view BytesOfField(const Field& field) {
  return std::visit([](auto values) { return BytesOf(values); }, field.values);
}

size_t ValueCount(const Field& field) {
  return std::visit([](auto values) { return values.size(); }, field.values);
}

absl::Status CheckFields(const std::vector<Field>& fields, size_t count, std::string_view kind) {
  for (size_t i = 0; i < fields.size(); ++i) {
    const Field& field = fields[i];
    const std::string where = absl::StrCat(ToAbsl(kind), "_fields[", i, "] \"", field.name, "\": ");
    if (field.name.empty()) return absl::InvalidArgumentError(absl::StrCat(where, "has no name"));
    if (field.components < 1 || field.components > kMaxComponents) {
      return absl::InvalidArgumentError(absl::StrCat(where, field.components, " components are outside [1, ", kMaxComponents, "]"));
    }
    if (ValueCount(field) != count * field.components) {
      return absl::InvalidArgumentError(absl::StrFormat("%s%d values, must be %d (%d for each %s)", where, ValueCount(field),
                                                        count * field.components, field.components, ToAbsl(kind)));
    }
    if (std::any_of(fields.begin(), fields.begin() + static_cast<std::ptrdiff_t>(i),
                    [&](const Field& f) { return f.name == field.name; })) {
      return absl::InvalidArgumentError(absl::StrCat(where, "is there twice"));
    }
  }
  return absl::OkStatus();
}

/// Writes a file of one piece: what its header says comes after it in the same order.
class PieceWriter {
 public:
  explicit PieceWriter(ByteSink* sink) : sink_(*sink) {}

  template <size_t N>
  absl::Status Write(const char* type, std::span<const float> points_m, std::span<const std::array<uint32_t, N>> cells,
                     const std::vector<Field>& point_fields, const std::vector<Field>& cell_fields, const std::optional<double>& time_s) {
    PALPATE_RETURN_IF_ERROR(Check(points_m, cells));
    const size_t point_count = points_m.size() / 3;
    PALPATE_RETURN_IF_ERROR(CheckFields(point_fields, point_count, "point"));
    PALPATE_RETURN_IF_ERROR(CheckFields(cell_fields, cells.size(), "cell"));
    PALPATE_RETURN_IF_ERROR(sink_.Append(Header<N>(type, points_m, cells.size(), point_fields, cell_fields, time_s)));
    for (const Field& field : point_fields) PALPATE_RETURN_IF_ERROR(AppendBlock(BytesOfField(field)));
    for (const Field& field : cell_fields) PALPATE_RETURN_IF_ERROR(AppendBlock(BytesOfField(field)));
    PALPATE_RETURN_IF_ERROR(AppendBlock(BytesOf(points_m)));
    // The indices are below 2^31, so that their bits mean the same signed and unsigned.
    PALPATE_RETURN_IF_ERROR(AppendBlock({reinterpret_cast<const char*>(cells.data()), cells.size_bytes()}));
    PALPATE_RETURN_IF_ERROR(AppendMade<int32_t>(cells.size(), [](size_t i) { return static_cast<int32_t>((i + 1) * N); }));
    if (N == 4) PALPATE_RETURN_IF_ERROR(AppendMade<uint8_t>(cells.size(), [](size_t) { return kTetCell; }));
    return sink_.Append(absl::StrCat("\n  </AppendedData>\n</VTKFile>\n"));
  }

 private:
  template <size_t N>
  static absl::Status Check(std::span<const float> points_m, std::span<const std::array<uint32_t, N>> cells) {
    if (points_m.size() % 3 != 0)
      return absl::InvalidArgumentError(absl::StrCat("points_m: ", points_m.size(), " values, not three a point"));
    const size_t point_count = points_m.size() / 3;
    if (cells.size() > kMaxCorners / N || point_count > kMaxCorners) {
      return absl::InvalidArgumentError(
          absl::StrCat(cells.size(), " cells and ", point_count, " points are more than 32-bit offsets hold"));
    }
    for (size_t c = 0; c < cells.size(); ++c) {
      for (const uint32_t v : cells[c]) {
        if (v >= point_count) return absl::InvalidArgumentError(absl::StrFormat("cell %d: point %d, but there are %d", c, v, point_count));
      }
    }
    return absl::OkStatus();
  }

  template <size_t N>
  std::string Header(const char* type, std::span<const float> points_m, size_t cell_count, const std::vector<Field>& point_fields,
                     const std::vector<Field>& cell_fields, const std::optional<double>& time_s) {
    std::string out =
        absl::StrFormat("<?xml version=\"1.0\"?>\n<VTKFile type=\"%s\" version=\"1.0\" byte_order=\"%s\" header_type=\"UInt64\">\n  <%s>\n",
                        type, std::endian::native == std::endian::little ? "LittleEndian" : "BigEndian", type);
    if (time_s) {
      absl::StrAppend(&out, "    <FieldData>\n      <DataArray type=\"Float64\" Name=\"TimeValue\" NumberOfTuples=\"1\" format=\"ascii\">",
                      RealText(*time_s), "</DataArray>\n    </FieldData>\n");
    }
    absl::StrAppend(&out, "    <Piece NumberOfPoints=\"", points_m.size() / 3,
                    N == 4 ? "\" NumberOfCells=\"" : "\" NumberOfVerts=\"0\" NumberOfLines=\"0\" NumberOfStrips=\"0\" NumberOfPolys=\"",
                    cell_count, "\">\n");
    DeclareFields("PointData", point_fields, &out);
    DeclareFields("CellData", cell_fields, &out);
    absl::StrAppend(&out, "      <Points>\n");
    Declare("Float32", "Points", 3, points_m.size_bytes(), &out);
    absl::StrAppend(&out, "      </Points>\n      <", N == 4 ? "Cells" : "Polys", ">\n");
    Declare("Int32", "connectivity", 1, cell_count * N * sizeof(int32_t), &out);
    Declare("Int32", "offsets", 1, cell_count * sizeof(int32_t), &out);
    if (N == 4) Declare("UInt8", "types", 1, cell_count, &out);
    absl::StrAppend(&out, "      </", N == 4 ? "Cells" : "Polys", ">\n    </Piece>\n  </", type, ">\n  <AppendedData encoding=\"raw\">\n_");
    return out;
  }

  void DeclareFields(const char* element, const std::vector<Field>& fields, std::string* out) {
    absl::StrAppend(out, "      <", element);
    constexpr std::array<std::pair<FieldRole, const char*>, 4> kRoles = {{{FieldRole::kScalars, "Scalars"},
                                                                          {FieldRole::kVectors, "Vectors"},
                                                                          {FieldRole::kNormals, "Normals"},
                                                                          {FieldRole::kTextureCoordinates, "TCoords"}}};
    for (const auto& [role, attribute] : kRoles) {
      const auto first = std::find_if(fields.begin(), fields.end(), [&, role = role](const Field& f) { return f.role == role; });
      if (first != fields.end()) absl::StrAppend(out, " ", attribute, "=\"", XmlText(first->name), "\"");
    }
    absl::StrAppend(out, ">\n");
    for (const Field& field : fields) {
      Declare(std::visit(TypeOf(), field.values), field.name, field.components, BytesOfField(field).size(), out);
    }
    absl::StrAppend(out, "      </", element, ">\n");
  }

  void Declare(const char* type, const std::string& name, uint32_t components, size_t size_bytes, std::string* out) {
    absl::StrAppend(out, "        <DataArray type=\"", type, "\" Name=\"", XmlText(name), "\" NumberOfComponents=\"", components);
    absl::StrAppend(out, "\" format=\"appended\" offset=\"", offset_bytes_, "\"/>\n");
    offset_bytes_ += sizeof(uint64_t) + size_bytes;
  }

  absl::Status AppendSize(uint64_t size_bytes) { return sink_.Append({reinterpret_cast<const char*>(&size_bytes), sizeof(size_bytes)}); }

  absl::Status AppendBlock(std::string_view bytes) {
    PALPATE_RETURN_IF_ERROR(AppendSize(bytes.size()));
    return sink_.Append(bytes);
  }

  template <typename T, typename Make>
  absl::Status AppendMade(size_t count, Make make) {
    PALPATE_RETURN_IF_ERROR(AppendSize(count * sizeof(T)));
    std::vector<T> chunk;
    for (size_t begin = 0; begin < count; begin += kChunkValues) {
      chunk.clear();
      for (size_t i = begin; i < std::min(count, begin + kChunkValues); ++i) chunk.push_back(make(i));
      PALPATE_RETURN_IF_ERROR(sink_.Append(BytesOf(std::span<const T>(chunk))));
    }
    return absl::OkStatus();
  }

  ByteSink& sink_;
  uint64_t offset_bytes_ = 0;  // of the next block to declare
};

template <typename Mesh>
absl::Status ToFile(const Mesh& mesh, const std::filesystem::path& path, absl::Status (*write)(const Mesh&, ByteSink*)) {
  PALPATE_ASSIGN_OR_RETURN(FileSink file, FileSink::Create(path));
  if (absl::Status status = write(mesh, &file); !status.ok()) {
    return absl::IsInvalidArgument(status) ? Annotate(status, path.string()) : status;
  }
  return file.Commit();
}

}  // namespace

absl::Status WriteVtu(const UnstructuredGrid& grid, ByteSink* sink) {
  return PieceWriter(sink).Write("UnstructuredGrid", grid.points_m, grid.tets, grid.point_fields, grid.cell_fields, grid.time_s);
}

absl::Status WriteVtp(const PolyData& surface, ByteSink* sink) {
  return PieceWriter(sink).Write("PolyData", surface.points_m, surface.triangles, surface.point_fields, surface.cell_fields,
                                 surface.time_s);
}

absl::Status WriteVtu(const UnstructuredGrid& grid, const std::filesystem::path& path) {
  return ToFile<UnstructuredGrid>(grid, path, [](const UnstructuredGrid& mesh, ByteSink* sink) { return WriteVtu(mesh, sink); });
}

absl::Status WriteVtp(const PolyData& surface, const std::filesystem::path& path) {
  return ToFile<PolyData>(surface, path, [](const PolyData& mesh, ByteSink* sink) { return WriteVtp(mesh, sink); });
}

}  // namespace palpate::sim
