// Files that scenes name are kept with the recording, and with them those that these name.
#include "sim/record/asset_store.h"

#include <filesystem>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/scene/scene_spec.h"
#include "tests/sim/record/record_builders.h"

namespace palpate::record::asset_store_test {
namespace {

using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

constexpr char kSurface[] =
    "mtllib looks/all.mtl\nv -1 -1 1\nv 1 -1 1\nv 1 1 1\nv -1 1 1\nvt 0 0\nvt 1 0\nvt 1 1\nvt 0 1\n"
    "usemtl left\nf 1/1 2/2 3/3\nusemtl right\nf 1/1 3/3 4/4\n";

v1::SceneSpec SceneWithAtlas() {
  v1::SceneSpec spec;
  v1::BodySpec& body = *spec.add_bodies();
  v1::Vec3& size = *body.mutable_generator()->mutable_slab()->mutable_size_m();
  size.set_x(0.1);
  size.set_y(0.08);
  size.set_z(0.04);
  body.mutable_generator()->set_edge_length_m(0.02);
  body.mutable_texture()->set_surface_file("organs/slab.obj");
  return spec;
}

TEST(AssetStore, AnAtlasIsKeptWithItsMaterials) {
  const test::TestFolder folder;
  std::filesystem::create_directories(folder.path() / "root" / "organs" / "looks");
  test::PutBytes(folder.path() / "root" / "organs" / "slab.obj", kSurface);
  test::PutBytes(folder.path() / "root" / "organs" / "looks" / "all.mtl", "newmtl left\nKd 0.1 0.2 0.3\nnewmtl right\nKd 0.4 0.5 0.6\n");
  const AssetStore store(folder.path() / "store");
  const scene::AssetRootResolver root(folder.path() / "root");
  const KeepingResolver keeping(root, store);
  const auto built = scene::BuildSceneDescription(SceneWithAtlas(), keeping, {});
  ASSERT_TRUE(built.ok()) << built.status();
  std::vector<std::string> names;
  v1::JournalHead head;
  for (const v1::AssetReference& reference : keeping.references()) {
    names.push_back(reference.name());
    *head.add_assets() = reference;
  }
  EXPECT_THAT(names, UnorderedElementsAre("organs/slab.obj", "organs/looks/all.mtl"));

  // From the copies alone.
  std::filesystem::remove_all(folder.path() / "root");
  const auto again = scene::BuildSceneDescription(SceneWithAtlas(), StoredResolver(store, head), {});
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->bodies[0].texture.corners, built->bodies[0].texture.corners);
  ASSERT_FALSE(built->bodies[0].surface_zones.empty());
  ASSERT_EQ(again->bodies[0].surface_zones.size(), built->bodies[0].surface_zones.size());
  EXPECT_EQ(again->bodies[0].surface_zones[0].color, built->bodies[0].surface_zones[0].color);
}

TEST(AssetStore, AMissingLibraryIsNamedAsTheSceneHasIt) {
  const test::TestFolder folder;
  std::filesystem::create_directories(folder.path() / "root" / "organs");
  test::PutBytes(folder.path() / "root" / "organs" / "slab.obj", kSurface);
  const AssetStore store(folder.path() / "store");
  const scene::AssetRootResolver root(folder.path() / "root");
  const absl::Status status = scene::BuildSceneDescription(SceneWithAtlas(), KeepingResolver(root, store), {}).status();
  EXPECT_TRUE(absl::IsNotFound(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("organs/slab.obj:1: "));
  EXPECT_THAT(std::string(status.message()), HasSubstr("all.mtl"));
  EXPECT_THAT(std::string(status.message()), ::testing::Not(HasSubstr(folder.path().string())));
}

}  // namespace
}  // namespace palpate::record::asset_store_test
