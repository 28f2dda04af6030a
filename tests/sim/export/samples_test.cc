// Writes the files that vtk_reads_test.py and gltf_validator_test.mjs open; alone it checks that they are written.
#include <gtest/gtest.h>

#include <cstdlib>

#include "sim/export/frame_export.h"
#include "tests/sim/export/samples.h"

namespace palpate::sim::samples_test {
namespace {

// The smallest PNG: one pixel.
std::string OnePixel() {
  static constexpr unsigned char kBytes[] = {
      0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n', 0,    0,    0,    13, 'I', 'H', 'D', 'R', 0,   0,   0,   1,    0,    0,    0,
      1,    8,   2,   0,   0,    0,    0x90, 0x77, 0x53, 0xde, 0,    0,  0,   12,  'I', 'D', 'A', 'T', 8,   0xd7, 0x63, 0xf8, 0xcf,
      0xc0, 0,   0,   3,   1,    1,    0,    0x18, 0xdd, 0x8d, 0xb0, 0,  0,   0,   0,   'I', 'E', 'N', 'D', 0xae, 'B',  '`',  0x82};
  return {reinterpret_cast<const char*>(kBytes), sizeof(kBytes)};
}

TEST(Samples, AreWritten) {
  const char* wanted = std::getenv("PALPATE_EXPORT_SAMPLES");
  const std::filesystem::path folder = wanted != nullptr ? std::filesystem::path(wanted) : FreshFolder("samples");
  const TetMesh mesh = Bar({4, 2, 2});
  auto before = ArraysWithGaps(mesh, "bar <one> & \"two\"");
  before->texture_coordinates.assign(before->vertex_slot_count, {});
  for (size_t v = 0; v < mesh.vertices.size(); ++v) {
    before->texture_coordinates[v + 3] = {static_cast<float>(10 * mesh.vertices[v].x()), static_cast<float>(10 * mesh.vertices[v].y())};
  }
  auto after = std::make_shared<BodyArrays>(*before);
  after->surface_triangles[0] = kFreeTriangle;  // a hole, from the third moment on
  auto topology = std::make_shared<WorldTopology>();
  topology->bodies = {before};
  auto cut = std::make_shared<WorldTopology>();
  cut->bodies = {after};
  BodyExtras extras;
  extras.rest_positions_m.assign(before->vertex_slot_count, Eigen::Vector3d::Zero());
  extras.velocities_m_per_s.assign(size_t{3} * before->vertex_slot_count, 0);
  for (size_t v = 0; v < mesh.vertices.size(); ++v) {
    extras.rest_positions_m[v + 3] = mesh.vertices[v];
    extras.velocities_m_per_s[3 * (v + 3)] = static_cast<float>(kStretchPerSecond * mesh.vertices[v].x());
  }
  extras.tet_zones.assign(before->tets.size(), 0);
  for (size_t t = 0; t < before->tets.size(); ++t) extras.tet_zones[t] = before->tets[t][0] % 2;
  extras.image = std::make_shared<const GltfImage>(GltfImage{"pixel.png", "image/png", OnePixel()});

  absl::StatusOr<FrameSeries> series =
      FrameSeries::Create(folder / "bar", {.has_surface = true, .has_volume = true, .has_animation = true, .bodies = {}});
  ASSERT_TRUE(series.ok()) << series.status();
  for (uint64_t k = 0; k < 4; ++k) {
    const auto frame = StretchedFrame(mesh, k < 2 ? topology : cut, 10 * k, 0.25 * static_cast<double>(k));
    ASSERT_TRUE(series->Add(*frame, std::span<const BodyExtras>(&extras, 1)).ok());
    EXPECT_TRUE(std::filesystem::exists(folder / "bar.surface.pvd"));
  }
  const absl::Status finished = series->Finish();
  ASSERT_TRUE(finished.ok()) << finished;
  absl::StatusOr<FileSink> still = FileSink::Create(folder / "still.glb");
  ASSERT_TRUE(still.ok());
  ASSERT_TRUE(WriteFrameGlb(*StretchedFrame(mesh, topology, 0, 0), {}, &*still).ok());
  ASSERT_TRUE(still->Commit().ok());
  size_t files = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    EXPECT_EQ(entry.path().string().find(".part"), std::string::npos) << entry.path();
    files += entry.is_regular_file() ? 1 : 0;
  }
  EXPECT_EQ(files, 4 + 4 + 2 + 2);
}

}  // namespace
}  // namespace palpate::sim::samples_test
