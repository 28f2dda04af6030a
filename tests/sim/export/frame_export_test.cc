#include "sim/export/frame_export.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "tests/sim/export/samples.h"

namespace palpate::sim::frame_export_test {
namespace {

using ::testing::HasSubstr;

class FrameExportTest : public ::testing::Test {
 protected:
  const TetMesh mesh_ = Bar({2, 1, 1});
  std::shared_ptr<BodyArrays> arrays_ = ArraysWithGaps(mesh_, "bar");
};

TEST_F(FrameExportTest, LayoutsLeaveFreeSlotsOut) {
  const VolumeLayout volume(*arrays_);
  EXPECT_EQ(volume.tets().size(), mesh_.tets.size());
  EXPECT_EQ(volume.vertex_slots().size(), mesh_.vertices.size());
  EXPECT_EQ(volume.tets(), mesh_.tets);
  EXPECT_EQ(volume.tet_slots().front(), 1U);
  const SurfaceLayout surface(*arrays_);
  EXPECT_EQ(surface.triangles().size(), ExtractBoundary(mesh_).triangles.size());
  EXPECT_EQ(surface.vertex_slots().front(), 2U);
  EXPECT_TRUE(surface.texture_coordinates().empty());
}

TEST_F(FrameExportTest, TheSeamOfAPeriodHasTwoSides) {
  // u goes around the bar's axis, which is that of x.
  arrays_->texture_coordinates.assign(arrays_->vertex_slot_count, {});
  const double period = 4;
  for (size_t v = 0; v < mesh_.vertices.size(); ++v) {
    const Eigen::Vector3d& p = mesh_.vertices[v];
    double turns = std::atan2(p.z() - 0.05, p.y() - 0.05) / (2 * M_PI) + 0.1;
    turns -= std::floor(turns);
    arrays_->texture_coordinates[v + 3] = {static_cast<float>(period * turns), static_cast<float>(p.x())};
  }
  const SurfaceLayout plain(*arrays_), split(*arrays_, period);
  EXPECT_GT(split.vertex_count(), plain.vertex_count());
  for (const auto& [a, b, c] : split.triangles()) {
    const auto [low, high] =
        std::minmax({split.texture_coordinates()[a][0], split.texture_coordinates()[b][0], split.texture_coordinates()[c][0]});
    EXPECT_LE(high - low, period / 2);
  }
  // The copies lie where their originals do, with the same normal.
  auto topology = std::make_shared<WorldTopology>();
  topology->bodies = {arrays_};
  const auto frame = StretchedFrame(mesh_, topology, 0, 0);
  const std::vector<float> normals = split.Normals(frame->surface_positions_m[0]);
  for (size_t v = plain.vertex_count(); v < split.vertex_count(); ++v) {
    for (size_t w = 0; w < plain.vertex_count(); ++w) {
      if (split.vertex_slots()[v] != split.vertex_slots()[w]) continue;
      for (size_t k = 0; k < 3; ++k) EXPECT_EQ(normals[3 * v + k], normals[3 * w + k]);
    }
  }
}

TEST_F(FrameExportTest, SeamsByCornerSplitVertices) {
  arrays_->has_texture_corners = true;
  arrays_->texture_corners.assign(arrays_->surface_triangles.size(), {});
  for (size_t t = 0; t < arrays_->surface_triangles.size(); ++t) {
    for (auto& corner : arrays_->texture_corners[t]) corner = {static_cast<float>(t / 2), 0.5F};
  }
  const SurfaceLayout layout(*arrays_);
  std::set<std::pair<uint32_t, float>> seen;
  size_t live = 0;
  for (size_t t = 0; t < arrays_->surface_triangles.size(); ++t) {
    if (arrays_->surface_triangles[t] == kFreeTriangle) continue;
    for (size_t c = 0; c < 3; ++c) {
      const uint32_t v = layout.triangles()[live][c];
      EXPECT_EQ(layout.vertex_slots()[v], ToNumber(arrays_->surface_triangles[t][c]));
      EXPECT_EQ(layout.texture_coordinates()[v], arrays_->texture_corners[t][c]);
      seen.insert({layout.vertex_slots()[v], layout.texture_coordinates()[v][0]});
    }
    ++live;
  }
  EXPECT_EQ(layout.vertex_count(), seen.size()) << "no vertex twice";
}

TEST_F(FrameExportTest, PiecesGoWithTheirBody) {
  auto piece = std::make_shared<BodyArrays>(*arrays_);
  piece->name = "bar.1";
  piece->parent = "bar";
  auto other = std::make_shared<BodyArrays>(*arrays_);
  other->name = "other";
  auto topology = std::make_shared<WorldTopology>();
  topology->bodies = {arrays_, other, piece};
  auto frame = StretchedFrame(mesh_, topology, 7, 0.5);
  frame->surface_positions_m.assign(3, frame->surface_positions_m[0]);
  const std::filesystem::path folder = FreshFolder("pieces");
  absl::StatusOr<FrameSeries> series = FrameSeries::Create(folder / "run", {.bodies = {"bar"}});
  ASSERT_TRUE(series.ok());
  ASSERT_TRUE(series->Add(*frame).ok());
  EXPECT_TRUE(std::filesystem::exists(folder / "run.frames" / "bar_00000007.vtp"));
  EXPECT_TRUE(std::filesystem::exists(folder / "run.frames" / "bar.1_00000007.vtp"));
  EXPECT_FALSE(std::filesystem::exists(folder / "run.frames" / "other_00000007.vtp"));
  const std::vector<BodyExtras> few(2);
  EXPECT_THAT(std::string(series->Add(*frame, few).message()), HasSubstr("extras of 2 bodies, but the frame has 3"));
}

TEST_F(FrameExportTest, BodiesOfLikeNamesHaveFilesOfTheirOwn) {
  auto topology = std::make_shared<WorldTopology>();
  for (const char* name : {"a-b", "a b", "a/b"}) {
    auto arrays = std::make_shared<BodyArrays>(*arrays_);
    arrays->name = name;
    topology->bodies.push_back(arrays);
  }
  auto frame = StretchedFrame(mesh_, topology, 7, 0.5);
  frame->surface_positions_m.assign(3, frame->surface_positions_m[0]);
  const std::filesystem::path folder = FreshFolder("like_names");
  absl::StatusOr<FrameSeries> series = FrameSeries::Create(folder / "run", {});
  ASSERT_TRUE(series.ok());
  ASSERT_TRUE(series->Add(*frame).ok());
  std::set<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder / "run.frames")) files.insert(entry.path().filename().string());
  EXPECT_EQ(files, (std::set<std::string>{"a-b_00000007.vtp", "a-b~1_00000007.vtp", "a-b~2_00000007.vtp"}));
}

TEST_F(FrameExportTest, WithoutItsInsideThereIsNoVolume) {
  auto topology = std::make_shared<WorldTopology>();
  topology->bodies = {arrays_};
  auto frame = StretchedFrame(mesh_, topology, 0, 0);
  frame->volume_positions_m.clear();
  StringSink sink;
  EXPECT_TRUE(absl::IsFailedPrecondition(WriteBodyVtu(*frame, 0, {}, &sink)));
  BodyExtras extras;
  extras.tet_zones = {1, 2};
  EXPECT_THAT(std::string(WriteBodyVtp(*frame, 0, extras, &sink).message()), HasSubstr("tet_zones has 2 values"));
  EXPECT_FALSE(WriteBodyVtp(*frame, 1, {}, &sink).ok());
}

}  // namespace
}  // namespace palpate::sim::frame_export_test
