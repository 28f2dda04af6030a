#include <limits>

#include "sim/mesh/mesh_io.h"
#include "tests/sim/mesh/mesh_builders.h"

namespace palpate::sim::io_vtk_test {
namespace {

const TetMesh kTwoTets = {{{0, 0, 0}, {1, 0, 0}, {0, 1, 0}, {0, 0, 1}, {1, 1, 1.5}}, {{0, 1, 2, 3}, {1, 2, 3, 4}}};

constexpr std::string_view kOldText = R"(# vtk DataFile Version 2.0
two tets, anything: CELLS
ASCII
DATASET UNSTRUCTURED_GRID
FIELD FieldData 1
TIME 1 1 double
0.5
POINTS 5 double
0 0 0 1 0 0
0 1 0
0 0 1
1 1 1.5
METADATA
INFORMATION 0

CELLS 3 14
3 0 2 1
4 0 1 2 3
4 1 2 3 4
CELL_TYPES 3
5
10
10
POINT_DATA 5
SCALARS whatever double 1
LOOKUP_TABLE default
)";

constexpr std::string_view kNewText = R"(# vtk DataFile Version 5.1
two tets
ASCII
DATASET UNSTRUCTURED_GRID
POINTS 5 float
0 0 0 1 0 0 0 1 0
0 0 1 1 1 1.5
CELLS 4 11
OFFSETS vtktypeint64
0 3 7 11
CONNECTIVITY vtktypeint64
0 2 1 0 1 2 3 1 2
3 4
CELL_TYPES 3
5
10
10
)";

template <typename Real>
std::string OldBinary() {
  Bytes b(/*is_big_endian=*/true);
  b.Text("# vtk DataFile Version 3.0\ntwo tets\nBINARY\nDATASET UNSTRUCTURED_GRID\nPOINTS 5 ")
      .Text(sizeof(Real) == 8 ? "double\n" : "float\n");
  for (const auto& v : kTwoTets.vertices) {
    for (int k = 0; k < 3; ++k) b.Value(static_cast<Real>(v[k]));
  }
  b.Text("\nFIELD FieldData 1\nids 2 2 unsigned_short\n").Values<uint16_t>({0x0a0a, 0x0a0a, 1, 2});
  b.Text("\nCELLS 3 14\n").Values<int32_t>({3, 0, 2, 1, 4, 0, 1, 2, 3, 4, 1, 2, 3, 4});
  return b.Text("\nCELL_TYPES 3\n").Values<int32_t>({5, 10, 10}).Text("\n").str();
}

template <typename Index>
std::string NewBinary() {
  const std::string type = sizeof(Index) == 8 ? "vtktypeint64\n" : "int\n";
  Bytes b(/*is_big_endian=*/true);
  b.Text("# vtk DataFile Version 5.1\ntwo tets\nBINARY\nDATASET UNSTRUCTURED_GRID\nPOINTS 5 double\n");
  for (const auto& v : kTwoTets.vertices) {
    for (int k = 0; k < 3; ++k) b.Value(v[k]);
  }
  b.Text("\nCELLS 4 11\nOFFSETS ").Text(type).Values<Index>({0, 3, 7, 11});
  b.Text("\nCONNECTIVITY ").Text(type).Values<Index>({0, 2, 1, 0, 1, 2, 3, 1, 2, 3, 4});
  return b.Text("\nCELL_TYPES 3\n").Values<int32_t>({5, 10, 10}).Text("\n").str();
}

std::vector<std::string> AllVariants() {
  return {std::string(kOldText), std::string(kNewText), OldBinary<double>(),
          OldBinary<float>(),    NewBinary<int64_t>(),  NewBinary<int32_t>()};
}

std::string Replaced(std::string_view text, std::string_view what, std::string_view by) {
  std::string result(text);
  const size_t at = result.find(what);
  EXPECT_NE(at, std::string::npos) << what;
  return result.replace(at, what.size(), by);
}

TEST(VtkTest, ReadsEveryVariant) {
  for (const std::string& file : AllVariants()) {
    const auto mesh = ParseVtk(file, "two.vtk");
    ASSERT_TRUE(mesh.ok()) << mesh.status();
    ExpectSameMesh(*mesh, kTwoTets);
  }
}

TEST(VtkTest, RoundTripKeepsEveryBit) {
  const TetMesh mesh = ShakenBox(4, 6);
  for (const VtkEncoding encoding : {VtkEncoding::kAscii, VtkEncoding::kBinary}) {
    const auto read = ParseVtk(FormatVtk(mesh, encoding), "box.vtk");
    ASSERT_TRUE(read.ok()) << read.status();
    ExpectSameMesh(*read, mesh);
  }
}

TEST(VtkTest, ReadsTextureCoordinates) {
  const std::vector<Eigen::Vector2d> expected = {{0, 0.5}, {1, -2}, {3, 4}, {5, 6}, {0.1, 1e-9}};
  const std::string values = "0 0.5\n1 -2 3 4\n5 6 0.1 1e-9\n";
  const std::string cells =
      "CELL_DATA 3\nSCALARS id int\nLOOKUP_TABLE default\n1 2 3\nSCALARS rgb float 3\n1 2 3 4 5 6 7 8 9\nTEXTURE_COORDINATES t 2 float\n1 "
      "2 3 4 5 6\n"
      "LOOKUP_TABLE mine 2\n0 0 0 1 1 1 1 1\n";
  const std::string points = "POINT_DATA 5\nVECTORS v double\n0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\nGLOBAL_IDS g vtkIdType\n0 1 2 3 4\n";
  for (const std::string& data :
       {"TEXTURE_COORDINATES TCoords 2 float\n" + values,
        cells + points + "TEXTURE_COORDINATES any 2 double\n" + values + "NORMALS broken\n",
        points + "METADATA\nINFORMATION 0\n\nFIELD FieldData 3\nage 1 5 int\n1 2 3 4 5\nTexture_Coordinates 2 5 double\n" + values +
            "uv 3 5 int\n1 2 3 4 5 1 2 3 4 5 1 2 3 4 5\n",
        points + "TEXTURE_COORDINATES three 3 float\n0 0.5 9 1 -2 9 3 4 9 5 6 9 0.1 1e-9 9\n"}) {
    const std::string file = std::string(kNewText) + (data.starts_with("TEXTURE") ? "POINT_DATA 5\n" : "") + data;
    const auto mesh = ParseVtk(file, "two.vtk");
    ASSERT_TRUE(mesh.ok()) << mesh.status() << file;
    ExpectSameMesh(*mesh, kTwoTets);
    EXPECT_EQ(mesh->texture_coordinates, expected) << file;
  }
  // Of cells, of another name, or after what cannot be made out: none.
  for (const std::string& data : {cells, points + "FIELD FieldData 1\nstrain 2 5 double\n" + values,
                                  "POINT_DATA 5\nWEIGHTS w\nTEXTURE_COORDINATES t 2 float\n" + values}) {
    const auto mesh = ParseVtk(std::string(kNewText) + data, "two.vtk");
    ASSERT_TRUE(mesh.ok()) << mesh.status();
    EXPECT_TRUE(mesh->texture_coordinates.empty()) << data;
  }
  const auto expect = [&](const std::string& data, std::initializer_list<std::string_view> parts) {
    ExpectInvalid(ParseVtk(std::string(kNewText) + data, "two.vtk"), parts);
  };
  expect("POINT_DATA 5\nTEXTURE_COORDINATES t 1 float\n1 2 3 4 5\n", {"two.vtk:19", "1 components, must be 2 or 3"});
  expect("POINT_DATA 4\nTEXTURE_COORDINATES t 2 float\n" + values, {"two.vtk:19", "4 texture coordinates for 5 points"});
  expect("POINT_DATA 5\nTEXTURE_COORDINATES t 2 string\n" + values, {"two.vtk:19", "\"string\""});
  expect("POINT_DATA 5\nTEXTURE_COORDINATES t 2 float\n0 0\n0 nan\n0 0 0 0 0 0", {"two.vtk:21", "a texture coordinate", "\"nan\""});
  expect("POINT_DATA 5\nTEXTURE_COORDINATES t 2 float\n0 0 1 1 2 2 3 3 4", {"texture coordinates announced"});
  expect("POINT_DATA 5\nTEXTURE_COORDINATES t 2 float\n" + values + "FIELD f 1\nUV 2 5 float\n" + values, {"two.vtk:24", "a second array"});

  TetMesh mesh = ShakenBox(4, 6);
  for (const auto& p : mesh.vertices) mesh.texture_coordinates.emplace_back(p.x() / 3, p.y() * p.z());
  for (const VtkEncoding encoding : {VtkEncoding::kAscii, VtkEncoding::kBinary}) {
    const auto read = ParseVtk(FormatVtk(mesh, encoding), "box.vtk");
    ASSERT_TRUE(read.ok()) << read.status();
    ExpectSameMesh(*read, mesh);
    EXPECT_EQ(read->texture_coordinates, mesh.texture_coordinates);
  }
  // A vertex that is left out takes its own along.
  TetMesh more = mesh;
  more.vertices.insert(more.vertices.begin(), Eigen::Vector3d(9, 9, 9));
  more.texture_coordinates.insert(more.texture_coordinates.begin(), Eigen::Vector2d(7, 7));
  for (auto& tet : more.tets) {
    for (uint32_t& v : tet) ++v;
  }
  const auto dropped = ParseVtk(FormatVtk(more), "more.vtk", {.drop_unused_vertices = true});
  ASSERT_TRUE(dropped.ok()) << dropped.status();
  EXPECT_EQ(dropped->texture_coordinates, mesh.texture_coordinates);
}

TEST(VtkTest, EveryBeginningIsRefused) {
  for (const std::string& file : AllVariants()) {
    const size_t types = file.find("CELL_TYPES 3\n") + 13;
    const bool is_text = file.find("ASCII") != std::string::npos;
    // In a text the type 10 cut to 1 is another type, so a cut there is a mesh with fewer tets or an unused vertex.
    ExpectBeginningsFail(file, types + (is_text ? 7 : 12), [](std::string_view part) { return ParseVtk(part, "part.vtk").status(); });
  }
}

TEST(VtkTest, AnyChangedByteIsSurvived) {
  for (const std::string& file : AllVariants()) {
    for (size_t i = 0; i < file.size(); ++i) {
      for (const int change : {1, 0x80, 0xff}) {
        std::string changed = file;
        changed[i] = static_cast<char>(changed[i] ^ change);
        const auto mesh = ParseVtk(changed, "changed.vtk");
        if (mesh.ok()) {
          EXPECT_TRUE(ValidateTetMesh(*mesh).ok());
          continue;
        }
        for (const char c : mesh.status().message()) EXPECT_TRUE(c >= ' ' && c <= '~') << mesh.status();
      }
    }
  }
}

TEST(VtkTest, NamesLineAndCellOfTextErrors) {
  const auto expect = [](std::string_view what, std::string_view by, std::initializer_list<std::string_view> parts) {
    ExpectInvalid(ParseVtk(Replaced(kOldText, what, by), "two.vtk"), parts);
  };
  expect("# vtk", "# VTX", {"two.vtk:1", "not a legacy VTK file"});
  expect("ASCII", "TEXT", {"two.vtk:3", "ASCII or BINARY"});
  expect("UNSTRUCTURED_GRID", "STRUCTURED_POINTS", {"two.vtk:4", "UNSTRUCTURED_GRID"});
  expect("UNSTRUCTURED_GRID", "POLYDATA", {"two.vtk:4", "surface", "palpate mesh from-surface"});
  expect("POINTS 5 double", "POINTS five double", {"two.vtk:8", "\"five\""});
  expect("POINTS 5 double", "POINTS -5 double", {"two.vtk:8", "\"-5\""});
  expect("POINTS 5 double", "POINTS 5", {"two.vtk:8", "data type", "end of the line"});
  expect("POINTS 5 double", "POINTS 5 string", {"two.vtk:8", "\"string\""});
  expect("POINTS 5 double", "POINTS 9000000000000000000 double", {"two.vtk:9", "9000000000000000000 points announced"});
  expect("0 1 0\n", "0 inf 0\n", {"two.vtk:10", "coordinate", "\"inf\""});
  expect("0 1 0\n", "0 METADATA 0\n", {"two.vtk:10", "\"METADATA\""});
  expect("CELLS 3 14", "CELLS 3 13", {"two.vtk:19", "cell 2", "13 integers"});
  expect("CELLS 3 14", "CELLS 3 15", {"two.vtk", "15 integers announced", "take 14"});
  expect("CELLS 3 14", "CELLS 3 2", {"two.vtk:16", "3 cells", "2 integers"});
  expect("CELLS 3 14", "CELLS 3 1000", {"two.vtk:17", "1000 integers of cells announced"});
  expect("4 1 2 3 4", "4 1 2 3 5", {"two.vtk:19", "cell 2", "index 5", "5 points"});
  expect("4 1 2 3 4", "4 1 2 3 5000000000", {"two.vtk:19", "5000000000", "32 bits"});
  expect("4 1 2 3 4", "4 1 2 3 -4", {"two.vtk:19", "\"-4\""});
  expect("4 1 2 3 4", "4 2 1 3 4", {"two.vtk:19", "tet 1", "inverted"});
  expect("4 1 2 3 4", "4 1 2 3 0", {"two.vtk:19", "tet 1"});
  expect("3 0 2 1\n4 0", "4 0 2 1 4\n3", {"two.vtk:18", "cell 1", "3 vertices"});
  expect("5\n10\n10", "5\n10\n12", {"two.vtk:19", "cell 2", "type 12"});
  expect("5\n10\n10", "5\n10\n5", {"two.vtk:12", "vertex 4", "no tet"});
  expect("5\n10\n10", "5\n5\n5", {"two.vtk", "no tets"});
  expect("CELL_TYPES 3\n5\n10\n10\n", "CELL_TYPES 2\n10\n10\n", {"two.vtk:20", "2 cell types for 3 cells"});
  expect("CELL_TYPES 3\n", "CELL_COLOURS 3\n", {"two.vtk:20", "\"CELL_COLOURS\""});
  expect("POINT_DATA 5", "CELL_TYPES 3", {"two.vtk:24", "a second CELL_TYPES"});
  expect("TIME 1 1 double", "TIME 1 99999 double", {"two.vtk:7", "99999 tuples"});
  ExpectInvalid(ParseVtk("", "empty.vtk"), {"empty.vtk:1", "not a legacy VTK"});
}

TEST(VtkTest, NamesLineOfOffsetErrors) {
  const auto expect = [](std::string_view what, std::string_view by, std::initializer_list<std::string_view> parts) {
    ExpectInvalid(ParseVtk(Replaced(kNewText, what, by), "two.vtk"), parts);
  };
  expect("0 3 7 11", "1 3 7 11", {"two.vtk:10", "cell offset 0", "0..0"});
  expect("0 3 7 11", "0 3 2 11", {"two.vtk:10", "cell offset 2", "2 is outside 3..11"});
  expect("0 3 7 11", "0 3 7 12", {"two.vtk:10", "cell offset 3", "12 is outside 7..11"});
  expect("0 3 7 11", "0 3 7 10", {"last cell offset is 10", "11 entries"});
  expect("OFFSETS vtktypeint64", "OFFSETS double", {"two.vtk:9", "signed integers, not double"});
  expect("CONNECTIVITY", "CONECTIVITY", {"two.vtk:11", "CONNECTIVITY expected"});
  expect("CELLS 4 11", "CELLS 4000000 11", {"two.vtk:10", "4000000 cell offsets announced"});
}

TEST(VtkTest, NamesByteOfBinaryErrors) {
  std::string file = OldBinary<double>();
  const size_t points = file.find("double\n") + 7;
  file[points] = '\x7f';
  file[points + 1] = '\xf0';
  ExpectInvalid(ParseVtk(file, "two.vtk"), {"two.vtk, byte " + std::to_string(points), "inf is not a finite number"});
  file = OldBinary<double>();
  const size_t cells = file.find("CELLS 3 14\n") + 11;
  file[cells + 16] = '\xff';
  ExpectInvalid(ParseVtk(file, "two.vtk"), {"two.vtk, byte " + std::to_string(cells + 16), "is negative"});
  file = OldBinary<double>();
  file[cells + 16 + 4 + 3] = 9;
  ExpectInvalid(ParseVtk(file, "two.vtk"), {"two.vtk, byte " + std::to_string(cells + 16), "cell 1", "index 9"});
}

constexpr std::string_view kPolydata = R"(# vtk DataFile Version 3.0
a pyramid
ASCII
DATASET POLYDATA
POINTS 6 float
0 0 0
1 0 0
1 1 0
0 1 0
0.5 0.5 1
0.5 0.5 1.0
POLYGONS 3 13
4 0 3 2 1
3 0 1 4
3 1 2 5
TRIANGLE_STRIPS 1 5
4 2 3 4 0
POINT_DATA 6
SCALARS whatever float
)";

TEST(VtkSurfaceTest, ReadsPolygonsAndStrips) {
  const auto surface = ParseVtkSurface(kPolydata, "pyramid.vtk");
  ASSERT_TRUE(surface.ok()) << surface.status();
  EXPECT_EQ(surface->vertices.size(), 5U) << "points of equal coordinates are one vertex";
  EXPECT_EQ(surface->triangles.size(), 6U);
  double volume_m3 = 0;
  for (const auto& [a, b, c] : surface->triangles) {
    volume_m3 += surface->vertices[a].dot(surface->vertices[b].cross(surface->vertices[c])) / 6;
  }
  EXPECT_NEAR(volume_m3, 1.0 / 3, 1e-15);
}

TEST(VtkSurfaceTest, TellsSurfacesAndVolumesApart) {
  ExpectInvalid(ParseVtk(kPolydata, "pyramid.vtk"), {"pyramid.vtk", "surface", "mesh from-surface"});
  ExpectInvalid(ParseVtkSurface(FormatVtk(UnitTet()), "tet.vtk"), {"tet.vtk", "POLYDATA", "volume", "mesh convert"});
}

TEST(VtkSurfaceTest, NamesWhatIsWrong) {
  const auto expect = [](std::string_view what, std::string_view by, std::initializer_list<std::string_view> parts) {
    std::string text(kPolydata);
    ExpectInvalid(ParseVtkSurface(text.replace(text.find(what), what.size(), by), "p.vtk"), parts);
  };
  expect("3 0 1 4", "3 0 1 6", {"p.vtk", "triangle 2", "index 6", "6 points"});
  expect("POLYGONS 3 13\n4 0 3 2 1\n3 0 1 4", "POLYGONS 3 12\n4 0 3 2 1\n2 0 1", {"p.vtk:14", "polygon 1", "2 vertices"});
  expect("POLYGONS 3 13", "POLYGONS 3 14", {"p.vtk", "POLYGONS", "14 integers announced"});
  expect("POINTS 6 float", "POINTS 600 float", {"p.vtk:6", "600 points announced"});
  expect("TRIANGLE_STRIPS", "STRIPES", {"p.vtk:16", "STRIPES"});
  ExpectBeginningsFail(kPolydata, kPolydata.find("3 1 2 5") + 7,
                       [](std::string_view part) { return ParseVtkSurface(part, "part.vtk").status(); });
}

TEST(VtkTest, LabelsOfCellsAreGroups) {
  TetMesh mesh = kTwoTets;
  mesh.tet_groups = {7, 300};
  for (const VtkEncoding encoding : {VtkEncoding::kAscii, VtkEncoding::kBinary}) {
    const auto read = ParseVtk(FormatVtk(mesh, encoding), "groups.vtk");
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(read->tets, mesh.tets);
    EXPECT_EQ(read->tet_groups, mesh.tet_groups);
  }
  // what is no number of a group is data like any other
  std::string file = FormatVtk(mesh);
  const size_t last = file.rfind("300");
  EXPECT_TRUE(ParseVtk(file.substr(0, last) + "0.5\n", "half.vtk")->tet_groups.empty());
  EXPECT_TRUE(ParseVtk(file.substr(0, last), "short.vtk").ok());
}

}  // namespace
}  // namespace palpate::sim::io_vtk_test
