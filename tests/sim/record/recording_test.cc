#include "sim/record/recording.h"

#include <filesystem>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/record/file_names.h"
#include "sim/record/past_files.h"
#include "sim/record/scene_journal.h"
#include "tests/sim/record/record_builders.h"

namespace palpate::record::recording_test {
namespace {

using test::BytesOf;
using test::HeadEntry;
using test::PutBytes;
using test::StepEntry;
using ::testing::HasSubstr;

void PutJournal(const std::filesystem::path& folder, uint64_t first, uint64_t last) {
  std::string bytes = EncodeFileHeader() + EncodeEntry(HeadEntry(first - 1, first - 1));
  for (uint64_t s = first; s <= last; ++s) bytes += EncodeEntry(StepEntry(s, s));
  PutBytes(folder / JournalName(first), bytes);
}

void PutState(const std::filesystem::path& folder, uint64_t sequence, size_t bytes = 10) {
  SceneCheckpoint state;
  state.scene.set_journal_sequence(sequence);
  state.scene.set_position(sequence);
  state.world = std::string(bytes, 'w');
  ASSERT_TRUE(WriteStateFile(SystemDisk(), folder / StateName(sequence, sequence), state).ok());
}

std::vector<uint64_t> SequencesAfter(const Recording& recording, uint64_t sequence, absl::Status* end) {
  std::vector<uint64_t> out;
  Recording::Cursor cursor = recording.EntriesAfter(sequence);
  v1::JournalEntry entry;
  while (true) {
    const absl::StatusOr<bool> has_entry = cursor.Next(&entry);
    *end = has_entry.status();
    if (!has_entry.ok() || !*has_entry) return out;
    out.push_back(entry.sequence());
  }
}

TEST(Recording, ReadsFilesOfAFolderAsOne) {
  const test::TestFolder folder;
  PutJournal(folder.path(), 1, 5);
  PutJournal(folder.path(), 6, 9);
  PutState(folder.path(), 4);
  const auto recording = Recording::OpenFolder(folder.path());
  ASSERT_TRUE(recording.ok()) << recording.status();
  EXPECT_TRUE((*recording)->has_begin());
  EXPECT_EQ((*recording)->end_position(), 9U);
  EXPECT_EQ((*recording)->states().size(), 1U);
  EXPECT_TRUE((*recording)->damages().empty());
  absl::Status end;
  EXPECT_EQ(SequencesAfter(**recording, 4, &end), (std::vector<uint64_t>{5, 6, 7, 8, 9}));
  EXPECT_TRUE(end.ok()) << end;
}

TEST(Recording, TornEndIsNamedAndLeftOut) {
  const test::TestFolder folder;
  PutJournal(folder.path(), 1, 5);
  const std::filesystem::path path = folder.path() / JournalName(1);
  PutBytes(path, BytesOf(path).substr(0, BytesOf(path).size() - 3));
  PutJournal(folder.path(), 5, 7);  // as the next start does it: behind the last good entry
  const auto recording = Recording::OpenFolder(folder.path());
  ASSERT_TRUE(recording.ok()) << recording.status();
  ASSERT_EQ((*recording)->damages().size(), 1U);
  EXPECT_THAT((*recording)->damages()[0], HasSubstr(JournalName(1)));
  absl::Status end;
  EXPECT_EQ(SequencesAfter(**recording, 0, &end), (std::vector<uint64_t>{1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ((*recording)->end_position(), 7U);
}

TEST(Recording, MissingFileIsAGap) {
  const test::TestFolder folder;
  PutJournal(folder.path(), 1, 3);
  PutJournal(folder.path(), 7, 9);
  PutState(folder.path(), 6);
  const auto recording = Recording::OpenFolder(folder.path());
  ASSERT_TRUE(recording.ok()) << recording.status();
  EXPECT_EQ((*recording)->damages().size(), 1U);
  absl::Status end;
  EXPECT_EQ(SequencesAfter(**recording, 0, &end), (std::vector<uint64_t>{1, 2, 3}));
  EXPECT_EQ(end.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(end.message()), HasSubstr("4 to 6"));
  EXPECT_EQ(SequencesAfter(**recording, 6, &end), (std::vector<uint64_t>{7, 8, 9}));
  EXPECT_EQ((*recording)->end_position(), 9U);
}

TEST(Recording, EventsAreInOrderAndBookmarksMove) {
  EventList events;
  v1::JournalEntry mark;
  mark.mutable_bookmark()->mutable_bookmark()->set_name("here");
  mark.mutable_bookmark()->mutable_bookmark()->set_position(8);
  events.Note(mark, 20, 20);
  v1::JournalEntry edit;
  edit.mutable_edit()->mutable_request()->add_edits()->mutable_carve();
  edit.mutable_edit()->mutable_request()->add_edits()->mutable_carve();
  edit.mutable_edit()->mutable_request()->add_edits()->mutable_incise();
  events.Note(edit, 5, 5);
  ASSERT_EQ(events.events().size(), 2U);
  EXPECT_EQ(events.events()[0].label(), "carve, incise");
  EXPECT_EQ(events.events()[1].position(), 8U);
  mark.mutable_bookmark()->mutable_bookmark()->set_position(2);
  events.Note(mark, 21, 21);
  ASSERT_EQ(events.events().size(), 2U);
  EXPECT_EQ(*events.FindBookmark("here"), 2U);
  mark.mutable_bookmark()->set_is_removed(true);
  events.Note(mark, 22, 22);
  EXPECT_FALSE(events.FindBookmark("here"));
}

TEST(SetAsideBehind, KeepsTheNewPastFromTheOldOne) {
  const test::TestFolder folder;
  PutJournal(folder.path(), 1, 5);
  PutJournal(folder.path(), 6, 9);
  PutJournal(folder.path(), 10, 20);
  PutState(folder.path(), 4);
  PutState(folder.path(), 12);
  PutBytes(folder.path() / JournalName(21), EncodeFileHeader() + EncodeEntry(HeadEntry(20, 20)));
  PutBytes(folder.path() / (StateName(15, 15) + ".part"), "PALP");
  // The scene came back at entry 5: nothing behind it could be read.
  const std::filesystem::path damaged = folder.path() / JournalName(6);
  std::string bytes = BytesOf(damaged);
  bytes[bytes.size() / 2] ^= 1;
  PutBytes(damaged, bytes);
  const auto aside = SetAsideBehind(folder.path(), 5);
  ASSERT_TRUE(aside.ok()) << aside.status();
  EXPECT_EQ(aside->size(), 3U) << "two journals and a state; a journal without entries and a part of a file are gone";
  EXPECT_EQ(BytesOf(damaged.string() + ".aside"), bytes) << "it can still be looked at";
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), std::filesystem::directory_iterator()), 5);
  // What happens next has the same numbers, but nothing to do with what is aside.
  PutJournal(folder.path(), 6, 11);
  const auto recording = Recording::OpenFolder(folder.path());
  ASSERT_TRUE(recording.ok()) << recording.status();
  EXPECT_TRUE((*recording)->damages().empty());
  EXPECT_EQ((*recording)->end_position(), 11U);
  EXPECT_EQ((*recording)->states().size(), 1U);
}

TEST(TrimFolder, ThinsOutOldStatesFirst) {
  const test::TestFolder folder;
  PutJournal(folder.path(), 1, 20);
  for (uint64_t s = 1; s <= 20; ++s) PutState(folder.path(), s, 10000);
  ASSERT_TRUE(TrimFolder(folder.path(), 80000).ok());
  const auto recording = Recording::OpenFolder(folder.path());
  ASSERT_TRUE(recording.ok());
  EXPECT_EQ((*recording)->end_position(), 20U) << "no entry went";
  const std::vector<StateRef>& states = (*recording)->states();
  ASSERT_EQ(states.size(), 7U);
  EXPECT_EQ(states.back().position, 20U);
  EXPECT_EQ(states[states.size() - 2].position, 19U);
  uint64_t gap = 100;
  for (size_t s = 1; s < states.size(); ++s) {
    EXPECT_LE(states[s].position - states[s - 1].position, gap + 1) << "the older, the rarer";
    gap = states[s].position - states[s - 1].position;
  }
}

TEST(TrimFolder, DropsOldJournalsButNeverWhatBringsTheSceneBack) {
  const test::TestFolder folder;
  for (uint64_t first = 1; first <= 91; first += 10) PutJournal(folder.path(), first, first + 9);
  for (uint64_t s = 5; s <= 95; s += 10) PutState(folder.path(), s, 5000);
  ASSERT_TRUE(TrimFolder(folder.path(), 1).ok());
  const auto recording = Recording::OpenFolder(folder.path());
  ASSERT_TRUE(recording.ok()) << recording.status();
  EXPECT_EQ((*recording)->end_position(), 100U);
  ASSERT_EQ((*recording)->states().size(), 2U);
  absl::Status end;
  EXPECT_EQ(SequencesAfter(**recording, (*recording)->states()[0].sequence, &end).size(), 100 - (*recording)->states()[0].sequence);
  EXPECT_TRUE(end.ok()) << "the older of the two newest states goes on to the end";
  EXPECT_EQ((*recording)->begin_position(), (*recording)->states()[0].position);
}

TEST(TrimFolder, TellsWhereThePastBeginsNow) {
  const test::TestFolder folder;
  for (uint64_t first = 1; first <= 91; first += 10) PutJournal(folder.path(), first, first + 9);
  for (uint64_t s = 5; s <= 95; s += 10) PutState(folder.path(), s, 5000);
  uint64_t begin = 7;
  ASSERT_TRUE(TrimFolder(folder.path(), 1 << 20, &begin).ok());
  EXPECT_EQ(begin, 7U) << "nothing went";
  // Journals go one after the other, and the time line with them.
  for (const uint64_t max_bytes : {12000, 11500, 11000, 1}) {
    ASSERT_TRUE(TrimFolder(folder.path(), max_bytes, &begin).ok());
    const auto recording = Recording::OpenFolder(folder.path());
    ASSERT_TRUE(recording.ok()) << recording.status();
    if (!(*recording)->has_begin()) {
      EXPECT_EQ(begin, (*recording)->begin_position()) << max_bytes;
    }
  }
  EXPECT_EQ(begin, 85U);
}

/// As a replay holds files: links in a folder of its own.
void LinkAll(const std::filesystem::path& folder, const std::filesystem::path& hold) {
  std::filesystem::create_directories(hold);
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    std::filesystem::create_hard_link(entry.path(), hold / entry.path().filename());
  }
}

TEST(TrimFolder, WhatAReplayHoldsTooDoesNotGoForNothing) {
  const test::TestFolder folder, hold;
  const std::vector<std::filesystem::path> holds = {hold.path()};
  for (uint64_t first = 1; first <= 91; first += 10) PutJournal(folder.path(), first, first + 9);
  for (uint64_t s = 5; s <= 95; s += 10) PutState(folder.path(), s, 5000);
  LinkAll(folder.path(), hold.path());
  const PastFiles before = ListPast(folder.path(), holds);
  EXPECT_EQ(before.held_bytes, 0U) << "the scene has them too";
  EXPECT_EQ(before.bytes, ListPast(folder.path(), {}).bytes);
  uint64_t begin = 0;
  ASSERT_TRUE(TrimFolder(folder.path(), 1, &begin, holds).ok());
  EXPECT_EQ(ListPast(folder.path(), holds).bytes, before.bytes) << "it would make no room";
  EXPECT_EQ(begin, 0U);
  // What comes behind is held by nobody. It goes where it can, with all that is before it.
  for (uint64_t first = 101; first <= 191; first += 10) PutJournal(folder.path(), first, first + 9);
  for (uint64_t s = 105; s <= 195; s += 10) PutState(folder.path(), s, 5000);
  ASSERT_TRUE(TrimFolder(folder.path(), 1, &begin, holds).ok());
  EXPECT_EQ(begin, 185U);
  const PastFiles after = ListPast(folder.path(), holds);
  EXPECT_EQ(after.held_bytes, before.bytes);
  EXPECT_EQ(after.states.size(), 2U);
  const auto recording = Recording::OpenFolder(folder.path());
  ASSERT_TRUE(recording.ok()) << recording.status();
  EXPECT_EQ((*recording)->begin_position(), 185U);
  EXPECT_EQ((*recording)->end_position(), 200U);
  const auto replayed = Recording::OpenFolder(hold.path());
  ASSERT_TRUE(replayed.ok()) << replayed.status();
  EXPECT_TRUE((*replayed)->has_begin());
  EXPECT_EQ((*replayed)->end_position(), 100U);
}

TEST(TrimFolder, WhatOnlyReplaysHaveCounts) {
  const test::TestFolder folder, hold;
  const std::vector<std::filesystem::path> holds = {hold.path()};
  for (uint64_t first = 101; first <= 191; first += 10) PutJournal(folder.path(), first, first + 9);
  for (uint64_t s = 105; s <= 195; s += 10) PutState(folder.path(), s, 5000);
  const uint64_t own = ListPast(folder.path(), holds).bytes;
  PutBytes(hold.path() / JournalName(1), std::string(3000, 'j'));
  ASSERT_TRUE(TrimFolder(folder.path(), own + 3000, nullptr, holds).ok());
  EXPECT_EQ(ListPast(folder.path(), holds).bytes, own);
  ASSERT_TRUE(TrimFolder(folder.path(), own + 2999, nullptr, holds).ok());
  const PastFiles after = ListPast(folder.path(), holds);
  EXPECT_LT(after.bytes, own);
  EXPECT_LE(after.bytes + after.held_bytes, own + 2999);
  EXPECT_EQ(after.held_bytes, 3000U);
}

}  // namespace
}  // namespace palpate::record::recording_test
