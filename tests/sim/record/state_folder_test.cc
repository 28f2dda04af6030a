#include "sim/record/state_folder.h"

#include <algorithm>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/record/file_names.h"
#include "tests/sim/record/record_builders.h"

namespace palpate::record::state_folder_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(StateFolder, BelongsToOneServerAtATime) {
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

TEST(StateFolder, OpensWhatAStartThatWasKilledHasLeft) {
  const test::TestFolder folder;
  test::PutBytes(folder.path() / "lock", "");
  test::PutBytes(folder.path() / "version.part", "palp");
  const absl::Status opened = StateFolder::Open(folder.path()).status();
  EXPECT_TRUE(opened.ok()) << opened;
  EXPECT_EQ(test::BytesOf(folder.path() / "version"), "palpate state 1\n");
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

TEST(StateFolder, AHeldPastStaysWhenTheSceneGoes) {
  const test::TestFolder parent;
  const auto folder = StateFolder::Open(parent.path() / "state");
  ASSERT_TRUE(folder.ok()) << folder.status();
  EXPECT_EQ((*folder)->HoldPast("s").status().code(), absl::StatusCode::kNotFound);
  ASSERT_TRUE((*folder)->AddScene("s").ok());
  const std::filesystem::path scene = (*folder)->SceneFolder("s");
  test::PutBytes(scene / JournalName(1), "first");
  test::PutBytes(scene / StateName(3, 2), "state");
  test::PutBytes(scene / (JournalName(9) + ".part"), "not yet");
  auto held = (*folder)->HoldPast("s");
  ASSERT_TRUE(held.ok()) << held.status();
  ASSERT_TRUE((*folder)->RemoveScene("s").ok());
  ASSERT_TRUE((*folder)->AddScene("s").ok());
  test::PutBytes(scene / JournalName(1), "second");
  const std::filesystem::path kept = (*held)->path();
  EXPECT_EQ(test::BytesOf(kept / JournalName(1)), "first");
  EXPECT_EQ(test::BytesOf(kept / StateName(3, 2)), "state");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(kept), std::filesystem::directory_iterator()), 2);
  held->reset();
  EXPECT_FALSE(std::filesystem::exists(kept));
  EXPECT_EQ(test::BytesOf(scene / JournalName(1)), "second");
}

TEST(StateFolder, WhatOnlyReplaysHaveCounts) {
  const test::TestFolder parent;
  const auto folder = StateFolder::Open(parent.path() / "state");
  ASSERT_TRUE(folder.ok()) << folder.status();
  for (const std::string id : {"s", "s-2"}) {
    ASSERT_TRUE((*folder)->AddScene(id).ok());
    test::PutBytes((*folder)->SceneFolder(id) / JournalName(1), std::string(1000, 'j'));
  }
  const auto other = (*folder)->HoldPast("s-2", 1);
  auto first = (*folder)->HoldPast("s", 1);
  ASSERT_TRUE(other.ok() && first.ok()) << "they cost no room so far";
  EXPECT_THAT((*folder)->HoldFolders("s"), ElementsAre((*first)->path()));
  std::filesystem::remove((*folder)->SceneFolder("s") / JournalName(1));
  test::PutBytes((*folder)->SceneFolder("s") / JournalName(5), std::string(500, 'j'));
  EXPECT_TRUE((*folder)->HoldPast("s", 1500).ok());
  const absl::Status refused = (*folder)->HoldPast("s", 1499).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("1 replay or recording under way holds 1000 bytes"));
  EXPECT_TRUE((*folder)->HoldPast("s-2", 1).ok()) << "each scene by itself";
  first->reset();
  EXPECT_TRUE((*folder)->HoldPast("s", 1).ok());
}

TEST(StateFolder, AHeldPastHasNoGap) {
  const test::TestFolder parent;
  const auto folder = StateFolder::Open(parent.path() / "state");
  ASSERT_TRUE(folder.ok()) << folder.status();
  ASSERT_TRUE((*folder)->AddScene("s").ok());
  const std::filesystem::path scene = (*folder)->SceneFolder("s");
  constexpr uint64_t kFiles = 300;
  for (int round = 0; round < 10; ++round) {
    for (uint64_t s = 1; s <= kFiles; ++s) test::PutBytes(scene / JournalName(s), "entries");
    std::thread trimmer([&] {
      for (uint64_t s = 1; s < kFiles; ++s) std::filesystem::remove(scene / JournalName(s));
    });
    uint64_t first = 0;
    while (first < kFiles) {
      const auto held = (*folder)->HoldPast("s");
      ASSERT_TRUE(held.ok()) << held.status();
      first = kFiles;
      uint64_t count = 0;
      for (const auto& entry : std::filesystem::directory_iterator((*held)->path())) {
        first = std::min(first, *SequenceOfJournal(entry.path()));
        ++count;
      }
      EXPECT_EQ(count, kFiles - first + 1) << "behind " << first;
    }
    trimmer.join();
  }
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
  test::PutBytes(store.folder() / one->front().hash() / "mesh.msh", "a mash");
  ASSERT_TRUE(store.Put({{"liver.msh", "a mesh"}}).ok());
  EXPECT_TRUE(store.PathOf(*one).ok()) << "damage of the same size goes when the file comes again";
}

TEST(AssetStore, ReadsNothingOutsideItself) {
  const test::TestFolder folder;
  test::PutBytes(folder.path() / "mesh.msh", "secret");
  const AssetStore store(folder.path() / "assets");
  ASSERT_TRUE(store.Put({{"liver.msh", "a mesh"}}).ok());
  for (const std::string& hash : {std::string(".."), folder.path().string(), std::string(62, 'a') + "/.", std::string()}) {
    v1::AssetReference reference;
    reference.set_name("liver.msh");
    reference.set_hash(hash);
    EXPECT_EQ(store.PathOf({reference}).status().code(), absl::StatusCode::kInvalidArgument) << hash;
  }
}

}  // namespace
}  // namespace palpate::record::state_folder_test
