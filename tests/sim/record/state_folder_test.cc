#include "sim/record/state_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/sim/record/record_builders.h"

namespace palpate::record {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(StateFolder, OneServerAtATime) {
  const test::TestFolder folder;
  auto first = StateFolder::Open(folder.path() / "state");
  ASSERT_TRUE(first.ok()) << first.status();
  const absl::Status second = StateFolder::Open(folder.path() / "state").status();
  EXPECT_EQ(second.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(second.message()), HasSubstr("another server"));
  first->reset();
  EXPECT_TRUE(StateFolder::Open(folder.path() / "state").ok());
}

TEST(StateFolder, RefusesAFolderOfSomethingElse) {
  const test::TestFolder folder;
  test::PutBytes(folder.path() / "letter.txt", "dear");
  EXPECT_EQ(StateFolder::Open(folder.path()).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(test::BytesOf(folder.path() / "letter.txt"), "dear");
  test::PutBytes(folder.path() / "version", "palpate state 2\n");
  EXPECT_THAT(std::string(StateFolder::Open(folder.path()).status().message()), HasSubstr("palpate state 2"));
}

TEST(StateFolder, ScenesComeAndGo) {
  const test::TestFolder folder;
  const auto state = StateFolder::Open(folder.path());
  ASSERT_TRUE(state.ok()) << state.status();
  EXPECT_TRUE((*state)->AddScene("b").ok());
  EXPECT_TRUE((*state)->AddScene("a").ok());
  EXPECT_EQ((*state)->AddScene("a").code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(*(*state)->SceneIds(), ElementsAre("a", "b"));
  EXPECT_TRUE((*state)->RemoveScene("a").ok());
  EXPECT_THAT(*(*state)->SceneIds(), ElementsAre("b"));
}

TEST(AssetStore, FindsContentByWhatItIsAndNamesDamage) {
  const test::TestFolder folder;
  const AssetStore store(folder.path());
  const auto one = store.Put({{"liver.msh", "a mesh"}});
  ASSERT_TRUE(one.ok()) << one.status();
  const auto pair = store.Put({{"organ.node", "nodes"}, {"organ.ele", "tets"}});
  ASSERT_TRUE(pair.ok()) << pair.status();
  const auto path = store.PathOf(*pair);
  ASSERT_TRUE(path.ok()) << path.status();
  EXPECT_EQ(path->extension(), ".node");
  EXPECT_EQ(test::BytesOf(*path), "nodes");
  EXPECT_EQ(test::BytesOf(std::filesystem::path(*path).replace_extension(".ele")), "tets") << "the reader looks for it there";
  test::PutBytes(*store.PathOf(*one), "another mesh");
  EXPECT_EQ(store.PathOf(*one).status().code(), absl::StatusCode::kDataLoss);
}

}  // namespace
}  // namespace palpate::record
