#include "sim/export/vtk_xml.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "tests/sim/export/samples.h"

namespace palpate::sim::vtk_xml_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class VtkXmlTest : public ::testing::Test {
 protected:
  std::string Refusal() {
    StringSink sink;
    return std::string(WriteVtu(grid_, &sink).message());
  }

  std::vector<float> points_ = {0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1};
  std::vector<std::array<uint32_t, 4>> tets_ = {{0, 1, 2, 3}};
  std::vector<float> values_ = {1, 2, 3, 4};
  UnstructuredGrid grid_ = [this] {
    UnstructuredGrid grid;
    grid.points_m = points_;
    grid.tets = tets_;
    return grid;
  }();
};

TEST_F(VtkXmlTest, RefusesWhatDoesNotFit) {
  grid_.point_fields = {{"temperature", 2, std::span<const float>(values_), FieldRole::kPlain}};
  EXPECT_THAT(Refusal(), AllOf(HasSubstr("point_fields[0] \"temperature\""), HasSubstr("4 values, must be 8")));
  grid_.point_fields = {{"a", 1, std::span<const float>(values_), FieldRole::kPlain},
                        {"a", 1, std::span<const float>(values_), FieldRole::kPlain}};
  EXPECT_THAT(Refusal(), HasSubstr("point_fields[1] \"a\": is there twice"));
  grid_.point_fields = {{"", 1, std::span<const float>(values_), FieldRole::kPlain}};
  EXPECT_THAT(Refusal(), HasSubstr("has no name"));
  grid_.point_fields = {{"b", 0, std::span<const float>(), FieldRole::kPlain}};
  EXPECT_THAT(Refusal(), HasSubstr("0 components"));
  grid_.point_fields.clear();
  tets_[0][2] = 4;
  EXPECT_THAT(Refusal(), HasSubstr("cell 0: point 4, but there are 4"));
  grid_.points_m = std::span<const float>(points_).subspan(1);
  EXPECT_THAT(Refusal(), HasSubstr("11 values"));
}

TEST_F(VtkXmlTest, AFileAppearsWholeOrNotAtAll) {
  const std::filesystem::path folder = FreshFolder("vtu");
  std::ofstream(folder / "tet.vtu") << "before";
  tets_[0][2] = 4;
  EXPECT_THAT(std::string(WriteVtu(grid_, folder / "tet.vtu").message()), HasSubstr((folder / "tet.vtu").string()));
  EXPECT_EQ(std::filesystem::file_size(folder / "tet.vtu"), 6U);
  tets_[0][2] = 2;
  ASSERT_TRUE(WriteVtu(grid_, folder / "tet.vtu").ok());
  EXPECT_GT(std::filesystem::file_size(folder / "tet.vtu"), 500U);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder), std::filesystem::directory_iterator()), 1);
  const absl::Status missing = WriteVtu(grid_, folder / "none" / "tet.vtu");
  EXPECT_TRUE(absl::IsNotFound(missing)) << missing;
  EXPECT_THAT(std::string(missing.message()), HasSubstr("none/tet.vtu"));
  // What is no file must not become one.
  std::filesystem::create_symlink("/dev/null", folder / "device.vtu");
  EXPECT_THAT(std::string(WriteVtu(grid_, folder / "device.vtu").message()), HasSubstr("device.vtu: not a regular file"));
  EXPECT_TRUE(std::filesystem::is_symlink(folder / "device.vtu"));
}

TEST_F(VtkXmlTest, AnEmptyMeshIsAFile) {
  UnstructuredGrid none;
  StringSink sink;
  ASSERT_TRUE(WriteVtu(none, &sink).ok());
  EXPECT_THAT(std::move(sink).Take(), HasSubstr("NumberOfPoints=\"0\" NumberOfCells=\"0\""));
}

}  // namespace
}  // namespace palpate::sim::vtk_xml_test
