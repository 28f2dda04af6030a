#include <array>
#include <cstdlib>
#include <cstring>
#include <limits>

#include "sim/mesh/mesh_io.h"
#include "sim/mesh/surface_check.h"
#include "tests/sim/mesh/mesh_builders.h"

// The packaged assimp leaks a little when it refuses a text STL file.
extern "C" const char* __lsan_default_suppressions() { return "leak:libassimp"; }

namespace palpate::sim::io_surface_test {
namespace {

std::string TextStl(const SurfaceMesh& surface) {
  std::string out = "solid organ\n";
  for (const auto& t : surface.triangles) {
    out += "facet normal 0 0 0\nouter loop\n";
    for (const uint32_t v : t) {
      const auto& p = surface.vertices[v];
      out += "vertex " + std::to_string(p.x()) + " " + std::to_string(p.y()) + " " + std::to_string(p.z()) + "\n";
    }
    out += "endloop\nendfacet\n";
  }
  return out + "endsolid organ\n";
}

std::string BinaryStl(const SurfaceMesh& surface) {
  Bytes b;
  b.Text(std::string(80, ' ')).Value(static_cast<uint32_t>(surface.triangles.size()));
  for (const auto& t : surface.triangles) {
    b.Values<float>({0, 0, 0});
    for (const uint32_t v : t) {
      for (int k = 0; k < 3; ++k) b.Value(static_cast<float>(surface.vertices[v][k]));
    }
    b.Value<uint16_t>(0);
  }
  return b.str();
}

std::string Ply(const SurfaceMesh& surface, std::string_view format) {
  Bytes b(format == "binary_big_endian");
  b.Text("ply\nformat ").Text(format).Text(" 1.0\nelement vertex " + std::to_string(surface.vertices.size()));
  b.Text("\nproperty float x\nproperty float y\nproperty float z\nelement face " + std::to_string(surface.triangles.size()));
  b.Text("\nproperty list uchar int vertex_indices\nend_header\n");
  for (const auto& p : surface.vertices) {
    for (int k = 0; k < 3; ++k) {
      if (format == "ascii") {
        b.Text(std::to_string(p[k])).Text(k < 2 ? " " : "\n");
      } else {
        b.Value(static_cast<float>(p[k]));
      }
    }
  }
  for (const auto& t : surface.triangles) {
    if (format == "ascii") {
      b.Text("3 " + std::to_string(t[0]) + " " + std::to_string(t[1]) + " " + std::to_string(t[2]) + "\n");
    } else {
      b.Value<uint8_t>(3);
      for (const uint32_t v : t) b.Value(static_cast<int32_t>(v));
    }
  }
  return b.str();
}

void ExpectCube(const absl::StatusOr<SurfaceMesh>& surface) {
  ASSERT_TRUE(surface.ok()) << surface.status();
  EXPECT_EQ(surface->vertices.size(), 8U);
  EXPECT_EQ(surface->triangles.size(), 12U);
  EXPECT_TRUE(CheckClosedSurface(*surface).ok()) << CheckClosedSurface(*surface);
  EXPECT_NEAR(EnclosedVolume(*surface), 0.125, 1e-6);
}

const SurfaceMesh kCube = CubeSurface({0.25, -0.5, 0}, 0.5);

TEST(SurfaceIoTest, ReadsEveryFormatAsOneConnectedSurface) {
  ExpectCube(ParseSurface(FormatObj(kCube), ".obj", "cube.obj"));
  ExpectCube(ParseSurface(TextStl(kCube), ".stl", "cube.stl"));
  ExpectCube(ParseSurface(BinaryStl(kCube), ".STL", "cube.stl"));
  ExpectCube(ParseSurface(Ply(kCube, "ascii"), ".ply", "cube.ply"));
  ExpectCube(ParseSurface(Ply(kCube, "binary_little_endian"), ".ply", "cube.ply"));
  ExpectCube(ParseSurface(Ply(kCube, "binary_big_endian"), ".ply", "cube.ply"));
}

TEST(SurfaceIoTest, WrittenStlAndPlyAreRead) {
  ExpectCube(ParseSurface(FormatStl(kCube), ".stl", "cube.stl"));
  ExpectCube(ParseSurface(FormatPly(kCube), ".ply", "cube.ply"));
  EXPECT_EQ(FormatStl(kCube).size(), 84U + 50U * 12U);
  // Normals are unit and point out of the cube: each is along an axis, as far from the middle as its triangle is.
  const std::string stl = FormatStl(kCube);
  for (size_t t = 0; t < 12; ++t) {
    std::array<float, 6> values{};  // of the normal and the first vertex
    std::memcpy(values.data(), stl.data() + 84 + 50 * t, sizeof(values));
    const Eigen::Vector3d n(values[0], values[1], values[2]);
    EXPECT_EQ(n.norm(), 1);
    EXPECT_EQ(n.dot(Eigen::Vector3d(values[3], values[4], values[5]) - Eigen::Vector3d(0.5, -0.25, 0.25)), 0.25);
  }
  // The doubles of a PLY file are those of the mesh.
  const SurfaceMesh one{{{0.1, 1.0 / 3.0, -2e-30}, {1, 0, 0}, {0, 1, 0}}, {{0, 1, 2}}};
  const std::string ply = FormatPly(one);
  const size_t data = ply.find("end_header\n") + 11;
  EXPECT_EQ(ply.size(), data + 3 * 24 + 13);
  double y = 0;
  std::memcpy(&y, ply.data() + data + 8, sizeof(y));
  EXPECT_EQ(y, 1.0 / 3.0);
}

// Small organs keep their small distances: joining is by equal coordinates, not by a tolerance.
TEST(SurfaceIoTest, DoesNotJoinNearVertices) {
  const auto tiny = ParseSurface(FormatObj(CubeSurface({0.001, 0.001, 0.001}, 1e-6)), ".obj", "tiny.obj");
  ASSERT_TRUE(tiny.ok()) << tiny.status();
  EXPECT_EQ(tiny->vertices.size(), 8U);
  EXPECT_EQ(tiny->triangles.size(), 12U);
}

TEST(SurfaceIoTest, ReadsPolygonsGroupsAndIgnoresTheRest) {
  const auto surface = ParseSurface(
      "mtllib /etc/passwd\nv 0 0 0\nv 1 0 0\nv 1 1 0\nv 0 1 0\nv 0 0 1\nvn 0 0 1\nvt 0 0\nvt 1 1\n"
      "g base\nf 4/1/1 3/2/1 2/1/1 1/2/1\ng sides\nusemtl red\nf 1/2 2/2 5/1\nf 2 3 5\nf 3 4 5\nf 4 1 5\nl 1 3\n",
      ".obj", "pyramid.obj");
  ASSERT_TRUE(surface.ok()) << surface.status();
  EXPECT_EQ(surface->vertices.size(), 5U);
  EXPECT_EQ(surface->triangles.size(), 6U);
  EXPECT_TRUE(CheckClosedSurface(*surface).ok()) << CheckClosedSurface(*surface);
}

TEST(SurfaceIoTest, DropsTrianglesThatCollapse) {
  std::string text = FormatObj(kCube);
  text += "v 9 9 9\nv 0.25 -0.5 0\nf 1 2 10\nf 9 9 9\n";
  ExpectCube(ParseSurface(text, ".obj", "cube.obj"));
}

TEST(SurfaceIoTest, ObjIsReadBackAsWritten) {
  const SurfaceMesh torus = TorusSurface(16, 8);
  const auto read = ParseSurface(FormatObj(torus), ".obj", "torus.obj");
  ASSERT_TRUE(read.ok()) << read.status();
  ASSERT_EQ(read->vertices.size(), torus.vertices.size());
  ASSERT_EQ(read->triangles.size(), torus.triangles.size());
  for (size_t t = 0; t < torus.triangles.size(); ++t) {
    for (size_t k = 0; k < 3; ++k) {
      const Eigen::Vector3d& a = read->vertices[read->triangles[t][k]];
      const Eigen::Vector3d& b = torus.vertices[torus.triangles[t][k]];
      EXPECT_LT((a - b).norm(), 1e-6);
    }
  }
}

TEST(SurfaceIoTest, ObjTextIsExact) {
  const SurfaceMesh one{{{0.1, 1.0 / 3.0, -2e-30}, {1, 0, 0}, {0, 1, 0}}, {{0, 1, 2}}};
  EXPECT_EQ(FormatObj(one), "v 0.1 0.3333333333333333 -2e-30\nv 1 0 0\nv 0 1 0\nf 1 2 3\n");
}

TEST(SurfaceIoTest, RefusesBadFiles) {
  ExpectInvalid(ParseSurface("", ".obj", "a.obj"), {"a.obj"});
  ExpectInvalid(ParseSurface("", ".stl", "a.stl"), {"a.stl"});
  ExpectInvalid(ParseSurface("", ".ply", "a.ply"), {"a.ply"});
  ExpectInvalid(ParseSurface("v 0 0 0\nv 1 0 0\n", ".obj", "a.obj"), {"a.obj"});
  ExpectInvalid(ParseSurface("v 0 0 0\nv 1 0 0\nv 0 1 0\nf 1 2 9\n", ".obj", "a.obj"), {"a.obj"});
  ExpectInvalid(ParseSurface(FormatObj(kCube), ".fbx", "a.fbx"), {"a.fbx", "\".fbx\"", ".obj .stl .ply"});
  // The format is what the extension says, never guessed from the contents.
  ExpectInvalid(ParseSurface(Ply(kCube, "ascii"), ".stl", "a.stl"), {"a.stl"});
  // A count of 2^31 triangles in a file of 134 bytes.
  std::string stl = BinaryStl({kCube.vertices, {{0, 1, 2}}});
  stl[83] = '\x7f';
  ExpectInvalid(ParseSurface(stl, ".stl", "a.stl"), {"a.stl"});
  ExpectInvalid(ParseSurface("ply\nformat ascii 1.0\nelement vertex 4000000000\nproperty float x\nend_header\n", ".ply", "a.ply"),
                {"a.ply:3", "4000000000 elements announced"});
  ExpectInvalid(ParseSurface("ply\nformat ascii 1.0\nelement vertex -1\nproperty float x\nend_header\n", ".ply", "a.ply"), {"a.ply:3"});
  SurfaceMesh wrong = kCube;
  wrong.triangles[5][2] = 77;
  for (const std::string_view format : {"ascii", "binary_little_endian", "binary_big_endian"}) {
    ExpectInvalid(ParseSurface(Ply(wrong, format), ".ply", "a.ply"), {"a.ply"});
  }
  wrong = kCube;
  wrong.vertices[2].x() = std::numeric_limits<double>::quiet_NaN();
  ExpectInvalid(ParseSurface(BinaryStl(wrong), ".stl", "a.stl"), {"a.stl", "not finite"});
}

TEST(SurfaceIoTest, RefusesCutFiles) {
  const std::string text = TextStl(kCube);
  ExpectInvalid(ParseSurface(text.substr(0, text.find("facet", 500)), ".stl", "a.stl"), {"a.stl", "endsolid"});
  const std::string binary = BinaryStl(kCube);
  ExpectInvalid(ParseSurface(binary.substr(0, binary.size() - 50), ".stl", "a.stl"), {"a.stl"});
  for (const std::string_view format : {"ascii", "binary_little_endian", "binary_big_endian"}) {
    const std::string ply = Ply(kCube, format);
    const size_t last_face = format == "ascii" ? ply.rfind('\n', ply.size() - 2) + 1 : ply.size() - 13;
    ExpectInvalid(ParseSurface(ply.substr(0, last_face), ".ply", "a.ply"), {"a.ply"});
    ExpectInvalid(ParseSurface(ply.substr(0, ply.find("end_header") + 30), ".ply", "a.ply"), {"a.ply"});
  }
}

TEST(SurfaceIoTest, BeginningsOfFilesAreRefusedOrSound) {
  for (const auto& [extension, file] : std::vector<std::pair<std::string, std::string>>{{".obj", FormatObj(kCube)},
                                                                                        {".stl", TextStl(kCube)},
                                                                                        {".stl", BinaryStl(kCube)},
                                                                                        {".ply", Ply(kCube, "ascii")},
                                                                                        {".ply", Ply(kCube, "binary_little_endian")}}) {
    int refused = 0;
    for (size_t length = 0; length < file.size(); length += 7) {
      const auto surface = ParseSurface(std::string_view(file).substr(0, length), extension, "part");
      if (!surface.ok()) {
        ++refused;
        EXPECT_EQ(surface.status().code(), absl::StatusCode::kInvalidArgument);
        continue;
      }
      // What was read is in itself consistent; that it is not closed is another check's business.
      for (const auto& t : surface->triangles) {
        for (const uint32_t v : t) ASSERT_LT(v, surface->vertices.size());
      }
    }
    EXPECT_GT(refused, 0);
  }
}

TEST(SurfaceIoTest, ReadsTheBunny) {
  const char* const folder = std::getenv("PALPATE_DATA_DIR");
  if (folder == nullptr) GTEST_SKIP() << "PALPATE_DATA_DIR is not set";
  const auto bunny = ReadSurfaceMesh(std::filesystem::path(folder) / "mesh" / "bunny_10k.obj");
  ASSERT_TRUE(bunny.ok()) << bunny.status();
  EXPECT_EQ(bunny->vertices.size(), 5002U);
  EXPECT_EQ(bunny->triangles.size(), 10000U);
  const absl::Status closed = CheckClosedSurface(*bunny);
  EXPECT_TRUE(closed.ok()) << closed;
}

}  // namespace
}  // namespace palpate::sim::io_surface_test
