#include "sim/mesh/mesh_io.h"

#include <clocale>
#include <cstdlib>
#include <fstream>

#include "tests/sim/mesh/mesh_builders.h"

namespace palpate::sim::mesh_io_test {
namespace {

class MeshFileTest : public testing::Test {
 protected:
  void SetUp() override {
    const std::string name = testing::UnitTest::GetInstance()->current_test_info()->name();
    folder_ = std::filesystem::path(testing::TempDir()) / ("palpate_mesh_io_" + name);
    std::filesystem::remove_all(folder_);
    ASSERT_TRUE(std::filesystem::create_directories(folder_));
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::filesystem::path Put(const std::string& name, std::string_view bytes) const {
    std::ofstream(folder_ / name, std::ios::binary) << bytes;
    return folder_ / name;
  }

  std::filesystem::path folder_;
};

TEST_F(MeshFileTest, WrittenFilesReadTheSame) {
  const TetMesh mesh = ShakenBox(3, 9);
  ASSERT_TRUE(WriteMsh(mesh, folder_ / "a.msh").ok());
  ASSERT_TRUE(WriteMsh(mesh, folder_ / "b.MSH", MshVersion::k22).ok());
  ASSERT_TRUE(WriteVtk(mesh, folder_ / "c.vtk").ok());
  ASSERT_TRUE(WriteVtk(mesh, folder_ / "d.vtk", VtkEncoding::kBinary).ok());
  for (const char* name : {"a.msh", "b.MSH", "c.vtk", "d.vtk"}) {
    const auto read = ReadTetMesh(folder_ / name);
    ASSERT_TRUE(read.ok()) << read.status();
    ExpectSameMesh(*read, mesh);
  }
  const SurfaceMesh cube = CubeSurface();
  ASSERT_TRUE(WriteObj(cube, folder_ / "e.obj").ok());
  const auto surface = ReadSurfaceMesh(folder_ / "e.obj");
  ASSERT_TRUE(surface.ok()) << surface.status();
  EXPECT_EQ(surface->triangles.size(), cube.triangles.size());
}

TEST_F(MeshFileTest, WritingReplacesAFile) {
  ASSERT_TRUE(WriteMsh(BoxMesh(5, 5, 5), folder_ / "a.msh").ok());
  ASSERT_TRUE(WriteMsh(UnitTet(), folder_ / "a.msh").ok());
  const auto read = ReadTetMesh(folder_ / "a.msh");
  ASSERT_TRUE(read.ok()) << read.status();
  ExpectSameMesh(*read, UnitTet());
}

TEST_F(MeshFileTest, TetGenFindsTheSibling) {
  Put("t.node", "4 3 0 0\n1 0 0 0\n2 1 0 0\n3 0 1 0\n4 0 0 1\n");
  Put("t.ele", "1 4 0\n1 1 2 3 4\n");
  for (const char* name : {"t.node", "t.ele"}) {
    const auto read = ReadTetMesh(folder_ / name);
    ASSERT_TRUE(read.ok()) << read.status();
    ExpectSameMesh(*read, UnitTet());
  }
  std::filesystem::remove(folder_ / "t.node");
  ExpectError(ReadTetMesh(folder_ / "t.ele"), absl::StatusCode::kNotFound, {"t.node"});
}

TEST_F(MeshFileTest, NamesThePath) {
  ExpectError(ReadTetMesh(folder_ / "none.msh"), absl::StatusCode::kNotFound, {"none.msh"});
  ExpectError(ReadSurfaceMesh(folder_ / "none.stl"), absl::StatusCode::kNotFound, {"none.stl"});
  ExpectInvalid(ReadTetMesh(folder_ / "mesh.stl"), {"mesh.stl", "\".stl\"", ".msh .vtk .node .ele"});
  ExpectInvalid(ReadTetMesh(folder_ / "mesh"), {"mesh", "\"\""});
  ExpectInvalid(ReadSurfaceMesh(folder_ / "mesh.msh"), {"mesh.msh", ".obj .stl .ply"});
  ExpectInvalid(ReadTetMesh(Put("bad.msh", "hello")), {"bad.msh:1", "\"hello\""});
  ExpectInvalid(ReadTetMesh(Put("bad.vtk", "hello")), {"bad.vtk:1"});
  std::filesystem::create_directory(folder_ / "folder.msh");
  ExpectInvalid(ReadTetMesh(folder_ / "folder.msh"), {"folder.msh", "not a regular file"});
  ExpectError(WriteMsh(UnitTet(), folder_ / "none" / "a.msh"), absl::StatusCode::kNotFound, {"none"});
  EXPECT_FALSE(WriteVtk(UnitTet(), folder_ / "folder.msh").ok());
}

TEST_F(MeshFileTest, WritingToAFullDeviceFails) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "there is no /dev/full";
  ExpectError(WriteMsh(UnitTet(), "/dev/full"), absl::StatusCode::kResourceExhausted, {"/dev/full"});
  ExpectError(WriteObj(TorusSurface(200, 50), "/dev/full"), absl::StatusCode::kResourceExhausted, {"/dev/full"});
}

TEST_F(MeshFileTest, DoesNotDependOnTheLocale) {
  const std::string before = std::setlocale(LC_ALL, nullptr);
  bool has_comma = false;
  for (const char* name : {"de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8", "pt_BR.UTF-8"})
    has_comma = has_comma || std::setlocale(LC_ALL, name) != nullptr;
  const TetMesh mesh = ShakenBox(2, 4);
  const std::string text = FormatMsh(mesh);
  const auto read = ParseMsh(text, "box.msh");
  std::setlocale(LC_ALL, before.c_str());
  EXPECT_EQ(text, FormatMsh(mesh));
  ASSERT_TRUE(read.ok()) << read.status();
  ExpectSameMesh(*read, mesh);
  if (!has_comma) GTEST_SKIP() << "no locale with a decimal comma is installed: checked the current one only";
}

struct DataFile {
  const char* name;
  size_t vertices;
  size_t tets;
};

TEST(MeshDataTest, ReadsPublicMeshes) {
  const char* const folder = std::getenv("PALPATE_DATA_DIR");
  if (folder == nullptr) GTEST_SKIP() << "PALPATE_DATA_DIR is not set";
  for (const DataFile& file : {DataFile{"ditto.vtk", 2580, 10415}, DataFile{"torus.vtk", 1036, 4436}, DataFile{"tube.vtk", 600, 2221},
                               DataFile{"armadillo_4k.node", 1180, 3717}, DataFile{"armadillo_4k.ele", 1180, 3717}}) {
    const auto mesh = ReadTetMesh(std::filesystem::path(folder) / "mesh" / file.name);
    ASSERT_TRUE(mesh.ok()) << mesh.status();
    EXPECT_EQ(mesh->vertices.size(), file.vertices) << file.name;
    EXPECT_EQ(mesh->tets.size(), file.tets) << file.name;
    EXPECT_TRUE(ValidateTetMesh(*mesh).ok());
    for (const MshVersion version : {MshVersion::k22, MshVersion::k41}) {
      const auto again = ParseMsh(FormatMsh(*mesh, version), "again.msh");
      ASSERT_TRUE(again.ok()) << again.status();
      ExpectSameMesh(*again, *mesh);
    }
  }
}

}  // namespace
}  // namespace palpate::sim::mesh_io_test
