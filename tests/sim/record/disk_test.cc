#include "sim/record/disk.h"

#include <array>
#include <filesystem>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/sim/record/record_builders.h"

namespace palpate::record::disk_test {
namespace {

using ::testing::HasSubstr;

TEST(Disk, HashesAreThoseOfTheStandard) {
  EXPECT_EQ(Sha256("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(Sha256(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

TEST(Disk, HashOfAFileIsThatOfItsBytes) {
  const test::TestFolder folder;
  const std::filesystem::path file = folder.path() / "file";
  // Around the size of a piece.
  for (const size_t size : {size_t{0}, size_t{65535}, size_t{65536}, size_t{65537}, size_t{200000}}) {
    const std::string bytes(size, 'x');
    test::PutBytes(file, bytes);
    EXPECT_EQ(*Sha256OfFile(file), Sha256(bytes)) << size;
  }
  EXPECT_EQ(Sha256OfFile(folder.path() / "none").status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(Sha256OfFile(folder.path()).status().message()), HasSubstr("is not a regular file"));
}

TEST(Disk, ReadsNoMoreThanItIsAllowed) {
  const test::TestFolder folder;
  const std::filesystem::path file = folder.path() / "file";
  test::PutBytes(file, "0123456789");
  EXPECT_EQ(*ReadWholeFile(file, 10), "0123456789");
  EXPECT_EQ(ReadWholeFile(file, 9).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(*ReadTail(file, 3), "789");
  EXPECT_EQ(*ReadTail(file, 100), "0123456789");
}

TEST(Disk, AWholeFileTakesThePlaceOfWhatAKillHasLeft) {
  const test::TestFolder folder;
  const std::filesystem::path file = folder.path() / "file";
  test::PutBytes(file, "old");
  test::PutBytes(file.string() + std::string(kPartExtension), "of a process that was killed");
  const std::array<std::string_view, 2> parts = {"ne", "w"};
  ASSERT_TRUE(WriteWholeFile(SystemDisk(), file, parts, kUsualMode).ok());
  EXPECT_EQ(test::BytesOf(file), "new");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), std::filesystem::directory_iterator()), 1);
}

}  // namespace
}  // namespace palpate::record::disk_test
