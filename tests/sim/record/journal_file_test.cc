#include "sim/record/journal_file.h"

#include <random>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/record/state_file.h"
#include "tests/sim/record/record_builders.h"

namespace palpate::record::journal_file_test {
namespace {

using test::BytesOf;
using test::HeadEntry;
using test::PutBytes;
using test::StepEntry;
using ::testing::HasSubstr;

std::string TenSteps() {
  std::string bytes = EncodeFileHeader() + EncodeEntry(HeadEntry());
  for (uint64_t s = 1; s <= 10; ++s) bytes += EncodeEntry(StepEntry(s, s));
  return bytes;
}

/// Entries that can be read, and what ended them.
std::pair<std::vector<uint64_t>, absl::Status> ReadAll(const std::filesystem::path& path) {
  std::vector<uint64_t> sequences;
  absl::StatusOr<JournalReader> reader = JournalReader::Open(path);
  if (!reader.ok()) return {sequences, reader.status()};
  v1::JournalEntry entry;
  while (true) {
    const absl::StatusOr<bool> has_entry = reader->Next(&entry);
    if (!has_entry.ok()) return {sequences, has_entry.status()};
    if (!*has_entry) return {sequences, absl::OkStatus()};
    sequences.push_back(entry.sequence());
  }
}

TEST(JournalFile, GivesBackWhatWasWritten) {
  const test::TestFolder folder;
  PutBytes(folder.path() / "a.plj", TenSteps());
  const auto [sequences, status] = ReadAll(folder.path() / "a.plj");
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(sequences, (std::vector<uint64_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10}));
}

TEST(JournalFile, CutAnywhereGivesTheEntriesBeforeTheCut) {
  const test::TestFolder folder;
  const std::string bytes = TenSteps();
  for (size_t size = 0; size < bytes.size(); ++size) {
    PutBytes(folder.path() / "a.plj", bytes.substr(0, size));
    const auto [sequences, status] = ReadAll(folder.path() / "a.plj");
    for (size_t s = 0; s < sequences.size(); ++s) EXPECT_EQ(sequences[s], s);
    if (status.ok()) {
      EXPECT_EQ(EncodeFileHeader().size() <= size, true) << size;  // between two entries nothing is missing that one could see
    } else if (size >= kFileHeaderBytes) {
      EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << size;
      EXPECT_THAT(std::string(status.message()), HasSubstr("cut off")) << size;
    }
  }
}

TEST(JournalFile, EveryFlippedByteIsFoundAndNamed) {
  const test::TestFolder folder;
  const std::string bytes = TenSteps();
  const auto count = ReadAll(folder.path() / "none").first.size();
  EXPECT_EQ(count, 0U);
  for (size_t at = 0; at < bytes.size(); ++at) {
    std::string damaged = bytes;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x10);
    PutBytes(folder.path() / "a.plj", damaged);
    const auto [sequences, status] = ReadAll(folder.path() / "a.plj");
    EXPECT_FALSE(status.ok()) << "byte " << at;
    EXPECT_LT(sequences.size(), 11U) << "byte " << at;
    EXPECT_THAT(std::string(status.message()), HasSubstr("a.plj")) << status;
  }
}

TEST(JournalFile, AnEntryThatNoReaderTakesIsToldOf) {
  EXPECT_TRUE(CheckEntrySize(kMaxEntryBytes).ok());
  const absl::Status status = CheckEntrySize(kMaxEntryBytes + 1);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(status.message(), "an entry of a journal would have 1073741825 bytes, allowed are 1073741824");
}

TEST(JournalFile, AnotherVersionIsRefusedByName) {
  const test::TestFolder folder;
  std::string bytes = TenSteps();
  bytes[8] = 9;  // major
  // With a right checksum, so that the version is what is wrong.
  std::string header = bytes.substr(0, kFileHeaderBytes - 4);
  const std::array<std::string_view, 1> parts = {header};
  const uint32_t crc = Crc32(parts);
  for (int b = 0; b < 4; ++b) bytes[kFileHeaderBytes - 4 + static_cast<size_t>(b)] = static_cast<char>((crc >> (8 * b)) & 0xff);
  PutBytes(folder.path() / "a.plj", bytes);
  const absl::Status status = JournalReader::Open(folder.path() / "a.plj").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("9.0"));
}

TEST(JournalFile, RandomBytesDoNoHarm) {
  const test::TestFolder folder;
  std::mt19937 random(5);
  for (int round = 0; round < 200; ++round) {
    std::string bytes = EncodeFileHeader();
    for (int b = 0; b < 200; ++b) bytes.push_back(static_cast<char>(random() & 0xff));
    PutBytes(folder.path() / "a.plj", bytes);
    EXPECT_FALSE(ReadAll(folder.path() / "a.plj").second.ok());
  }
}

TEST(StateFile, EveryFlippedAndMissingByteIsFound) {
  SceneCheckpoint state;
  state.scene.set_scene_id("liver");
  state.scene.set_position(77);
  state.world = "the world";
  const std::string bytes = EncodeState(state);
  const absl::StatusOr<SceneCheckpoint> same = DecodeState(bytes, "state");
  ASSERT_TRUE(same.ok()) << same.status();
  EXPECT_EQ(same->world, state.world);
  EXPECT_EQ(same->scene.position(), 77U);
  for (size_t at = 0; at < bytes.size(); ++at) {
    std::string damaged = bytes;
    damaged[at] = static_cast<char>(damaged[at] ^ 1);
    EXPECT_FALSE(DecodeState(damaged, "state").ok()) << at;
    EXPECT_FALSE(DecodeState(bytes.substr(0, at), "state").ok()) << at;
  }
  EXPECT_FALSE(DecodeState(bytes + "x", "state").ok());
}

}  // namespace
}  // namespace palpate::record::journal_file_test
