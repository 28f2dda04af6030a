#include "sim/mesh/io_obj.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "sim/mesh/generators.h"
#include "sim/mesh/mesh_io.h"
#include "sim/mesh/texture_transfer.h"
#include "tests/sim/mesh/mesh_builders.h"

namespace palpate::sim::io_obj_test {
namespace {

using ::testing::HasSubstr;

absl::StatusOr<std::string> NoLibrary(const std::string& file) { return absl::NotFoundError("no " + file); }

absl::StatusOr<TexturedSurface> Parse(std::string_view text, const MaterialSource& libraries = NoLibrary) {
  return ParseTexturedObj(text, "a.obj", libraries);
}

std::string Refusal(std::string_view text, const MaterialSource& libraries = NoLibrary) {
  return std::string(Parse(text, libraries).status().message());
}

// Two triangles of a square that meet in a seam, and a polygon.
constexpr std::string_view kSquare = R"(# a square
mtllib looks/all.mtl
v 0 0 0
v 1 0 0 0.5 0.5 0.5
v 1 1 0
v 0 1 0
v 9 9 9
vt 0 0
vt 1 0 0
vt 1 1
vt 0.25 0.75
o square
usemtl skin of it
f 1/1 2/2/1 3/3
usemtl red
s off
f -5/-4 3/-1 4/4
vn 0 0 1
f 1//1 2//1 3//1 4//1
)";

absl::StatusOr<std::string> Library(const std::string& file) {
  EXPECT_EQ(file, "looks/all.mtl");
  return std::string("newmtl red\nKd 0.5 0.25 0\nNs 20\nnewmtl skin of it\nKd 1\nmap_Kd  pictures\\the skin.png \r\n");
}

TEST(TexturedObj, HasCornersAndMaterials) {
  const absl::StatusOr<TexturedSurface> read = Parse(kSquare, Library);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->surface.vertices.size(), 4U) << "the fifth has no triangle";
  ASSERT_EQ(read->surface.triangles.size(), 4U);
  EXPECT_EQ(read->surface.triangles[1], (std::array<uint32_t, 3>{0, 2, 3}));
  EXPECT_EQ(read->texture_corners[0][2], Eigen::Vector2d(1, 1));
  EXPECT_EQ(read->texture_corners[1][0], Eigen::Vector2d(0, 0));
  EXPECT_EQ(read->texture_corners[1][1], Eigen::Vector2d(0.25, 0.75)) << "a seam at vertex 3";
  EXPECT_EQ(read->texture_corners[2][0], Eigen::Vector2d(0, 0)) << "none";
  ASSERT_EQ(read->materials.size(), 2U);
  EXPECT_EQ(read->materials[0].name, "skin of it");
  EXPECT_EQ(read->materials[0].color, (std::array<float, 3>{1, 1, 1}));
  EXPECT_EQ(read->materials[0].image_file, "looks/pictures/the skin.png");
  EXPECT_EQ(read->materials[1].color, (std::array<float, 3>{0.5F, 0.25F, 0}));
  EXPECT_EQ(read->triangle_materials, (std::vector<uint32_t>{0, 1, 1, 1}));
}

TEST(TexturedObj, PlainSurfacesAreThoseOfTheOtherReader) {
  const SurfaceMesh surface = TorusSurface(12, 8);
  const std::string text = FormatObj(surface);
  const absl::StatusOr<TexturedSurface> read = Parse(text);
  ASSERT_TRUE(read.ok()) << read.status();
  const absl::StatusOr<SurfaceMesh> other = ParseSurface(text, ".obj", "a.obj");
  ASSERT_TRUE(other.ok());
  EXPECT_EQ(read->surface.triangles.size(), other->triangles.size());
  EXPECT_EQ(read->surface.vertices.size(), other->vertices.size());
  EXPECT_TRUE(read->texture_corners.empty());
  for (size_t t = 0; t < other->triangles.size(); ++t) {
    for (size_t c = 0; c < 3; ++c) {
      // The other reader's numbers may be off by the last bit.
      EXPECT_LT((read->surface.vertices[read->surface.triangles[t][c]] - other->vertices[other->triangles[t][c]]).norm(), 1e-6);
    }
  }
}

TEST(TexturedObj, ErrorsNameTheLine) {
  EXPECT_THAT(Refusal(""), HasSubstr("a.obj: the file has no triangles"));
  EXPECT_THAT(Refusal("v 0 0\n"), HasSubstr("a.obj:1: a coordinate: nothing is not a finite number"));
  EXPECT_THAT(Refusal("\nv 0 nan 0\n"), HasSubstr("a.obj:2: a coordinate: \"nan\""));
  EXPECT_THAT(Refusal("v 0 1e300 0\n"), HasSubstr("beyond single precision"));
  EXPECT_THAT(Refusal("vt 0 1e7\n"), HasSubstr("a.obj:1: texture coordinate"));
  const std::string three = "v 0 0 0\nv 1 0 0\nv 0 1 0\nvt 0 0\n";
  EXPECT_THAT(Refusal(three + "f 1 2\n"), HasSubstr("a.obj:5: a face of 2 vertices"));
  EXPECT_THAT(Refusal(three + "f 1 2 4\n"), HasSubstr("a.obj:5: index \"4\" of a vertex, of which there are 3 so far"));
  EXPECT_THAT(Refusal(three + "f 1 2 0\n"), HasSubstr("index \"0\""));
  EXPECT_THAT(Refusal(three + "f 1 2 -4\n"), HasSubstr("index \"-4\""));
  EXPECT_THAT(Refusal(three + "f 1/1 2/2 3/1\n"), HasSubstr("index \"2\" of a texture coordinate, of which there are 1"));
  EXPECT_THAT(Refusal(three + "f 1/x 2 3\n"), HasSubstr("index \"x\""));
  EXPECT_THAT(Refusal("mtllib none.mtl\n"), HasSubstr("a.obj:1: no none.mtl"));
  for (const char* name : {"/etc/passwd", "../a.mtl", "b/../../a.mtl", "C:\\a.mtl", "..\\a.mtl", ""}) {
    EXPECT_THAT(Refusal(std::string("mtllib ") + name), HasSubstr("must be a name below the file's folder")) << name;
  }
  std::string many;
  for (int i = 0; i < 65; ++i) many += "mtllib a.mtl\n";
  EXPECT_THAT(Refusal(many, [](const std::string&) { return std::string(); }), HasSubstr("a.obj:65: more than 64 material libraries"));
}

TEST(TexturedObj, ErrorsOfLibrariesNameTheirLine) {
  const auto refusal = [](const std::string& text) { return std::string(ParseMtl(text, "a.mtl").status().message()); };
  EXPECT_THAT(refusal("Kd 1 1 1\n"), HasSubstr("a.mtl:1: \"Kd\" before the first newmtl"));
  EXPECT_THAT(refusal("newmtl a\nKd 1 2 1\n"), HasSubstr("a.mtl:2: Kd: \"2\" is not a number in [0, 1]"));
  EXPECT_THAT(refusal("newmtl a\nKd 1 1\n"), HasSubstr("nothing is not a number"));
  EXPECT_THAT(refusal("newmtl a\nKd spectral x.rfl\n"), HasSubstr("not supported"));
  EXPECT_THAT(refusal("newmtl a\nmap_Kd -s 2 2 2 x.png\n"), HasSubstr("a.mtl:2: map_Kd with options"));
  EXPECT_THAT(refusal("newmtl a\nmap_Kd ../x.png\n"), HasSubstr("must be a name below"));
}

TEST(TexturedObj, LibrariesLieBesideTheFile) {
  namespace fs = std::filesystem;
  const fs::path folder = fs::path(::testing::TempDir()) / "palpate_textured_obj";
  fs::remove_all(folder);
  fs::create_directories(folder / "in" / "looks");
  std::ofstream(folder / "in" / "square.obj") << kSquare;
  std::ofstream(folder / "outside.mtl") << "newmtl red\n";
  EXPECT_TRUE(absl::IsNotFound(ReadTexturedObj(folder / "in" / "square.obj").status()));
  fs::create_symlink(folder / "outside.mtl", folder / "in" / "looks" / "all.mtl");
  EXPECT_THAT(std::string(ReadTexturedObj(folder / "in" / "square.obj").status().message()),
              HasSubstr("leads outside the surface's folder"));
  fs::remove(folder / "in" / "looks" / "all.mtl");
  std::ofstream(folder / "in" / "looks" / "all.mtl") << *Library("looks/all.mtl");
  const auto read = ReadTexturedObj(folder / "in" / "square.obj");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->materials[0].image_file, "looks/pictures/the skin.png");
  fs::remove_all(folder);
}

/// A box whose sides are six islands side by side in the picture.
TexturedSurface UnfoldedBox(const TetMesh& mesh) {
  TexturedSurface out;
  const BoundarySurface boundary = ExtractBoundary(mesh);
  for (const uint32_t v : boundary.vertices) out.surface.vertices.push_back(mesh.vertices[v]);
  out.surface.triangles = boundary.triangles;
  for (const auto& t : boundary.triangles) {
    std::array<Eigen::Vector3d, 3> p;
    for (size_t c = 0; c < 3; ++c) p[c] = out.surface.vertices[t[c]];
    const Eigen::Vector3d normal = (p[1] - p[0]).cross(p[2] - p[0]);
    Eigen::Index axis = 0;
    normal.cwiseAbs().maxCoeff(&axis);
    const double place = static_cast<double>(axis) + (normal[axis] < 0 ? 3 : 0);
    auto& corners = out.texture_corners.emplace_back();
    for (size_t c = 0; c < 3; ++c) corners[c] = {place + p[c][(axis + 1) % 3], p[c][(axis + 2) % 3]};
    out.triangle_materials.push_back(normal[2] > 0 && axis == 2 ? 1 : 0);
  }
  out.materials.resize(2);
  return out;
}

TEST(TextureTransfer, IslandsStayApart) {
  const TexturedSurface coarse = UnfoldedBox(*BoxMesh({3, 3, 3}, {0.2, 0.1, 0.1}));
  const TetMesh fine = *BoxMesh({9, 6, 4}, {0.2, 0.1, 0.1});
  const TransferredTexture got = TransferTexture(coarse, fine, ExtractBoundary(fine));
  const TexturedSurface expected = UnfoldedBox(fine);
  ASSERT_EQ(got.corners.size(), expected.texture_corners.size());
  for (size_t t = 0; t < got.corners.size(); ++t) {
    EXPECT_EQ(got.materials[t], expected.triangle_materials[t]);
    for (size_t c = 0; c < 3; ++c) EXPECT_LT((got.corners[t][c] - expected.texture_corners[t][c]).norm(), 1e-7) << t << " " << c;
  }
}

}  // namespace
}  // namespace palpate::sim::io_obj_test
