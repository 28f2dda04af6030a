#include "sim/record/scene_journal.h"

#include <atomic>
#include <cerrno>
#include <filesystem>
#include <future>
#include <memory>
#include <semaphore>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/record/file_names.h"
#include "sim/record/recording.h"
#include "tests/sim/record/record_builders.h"

namespace palpate::record::scene_journal_test {
namespace {

using test::StepEntry;

/// A disk with so many bytes of room, and perhaps no will to bring anything to rest.
class SmallDisk : public Disk {
 public:
  ssize_t Write(int fd, const void* data, size_t size) override {
    if (size >= kWorldBytes) worlds_.acquire(), worlds_.release();
    const int64_t room = room_;
    if (room <= 0) {
      errno = ENOSPC;
      return -1;
    }
    // As a disk that fills up: a part of what was wanted.
    const ssize_t written = Disk::Write(fd, data, std::min(size, static_cast<size_t>(room)));
    room_ -= written;
    return written;
  }
  int Sync(int fd) override {
    if (!syncs_) {
      errno = EIO;
      return -1;
    }
    return Disk::Sync(fd);
  }
  static constexpr size_t kWorldBytes = 100000;
  std::atomic<int64_t> room_{1 << 30};
  std::counting_semaphore<> worlds_{1};  ///< none: checkpoints have to wait
  std::atomic<bool> syncs_{true};
};

class SceneJournalTest : public ::testing::Test {
 protected:
  std::unique_ptr<SceneJournal> Open(uint64_t sequence = 0) {
    JournalOptions options;
    options.folder = folder_.path();
    options.sync_interval = std::chrono::duration<double>(0.001);
    options.retry_interval = std::chrono::duration<double>(0.001);
    options.max_wait = std::chrono::duration<double>(max_wait_s_);
    options.max_waiting_bytes = 20000;
    options.max_file_bytes = max_file_bytes_;
    options.disk = &disk_;
    v1::JournalHead head;
    head.set_scene_id(scene_id_);
    absl::StatusOr<std::unique_ptr<SceneJournal>> journal = SceneJournal::Open(options, head, sequence, sequence);
    EXPECT_TRUE(journal.ok()) << journal.status();
    return journal.ok() ? *std::move(journal) : nullptr;
  }
  void Append(SceneJournal& journal, uint64_t sequence, SceneJournal::Durable durable = {}) {
    journal.Append(std::make_shared<const std::string>(EncodeEntry(StepEntry(sequence, sequence))), sequence, sequence, sequence,
                   std::move(durable));
  }
  static bool AppendState(SceneJournal& journal, uint64_t sequence) {
    v1::SceneState scene;
    scene.set_journal_sequence(sequence);
    scene.set_position(sequence);
    scene.set_step(sequence);
    auto world = std::make_shared<sim::WorldState>();
    world->topology = std::make_shared<const sim::WorldTopology>();
    world->frame = std::make_shared<const sim::Frame>();
    world->scene = std::string(SmallDisk::kWorldBytes, 'w');
    return journal.AppendState(scene, std::move(world));
  }
  /// Until the disk, which has no room, has made the journal give up; the number of the last entry.
  uint64_t FillUntilGap(SceneJournal& journal) {
    disk_.room_ = 0;
    uint64_t s = 0;
    while (!journal.needs_state()) Append(journal, ++s);
    return s;
  }
  static absl::Status Wait(SceneJournal& journal) {
    std::promise<absl::Status> done;
    journal.WhenDurable([&done](const absl::Status& status) { done.set_value(status); });
    return done.get_future().get();
  }
  /// Number of the last entry that can be read in order from the first.
  uint64_t EndOnDisk() {
    const auto recording = Recording::OpenFolder(folder_.path());
    EXPECT_TRUE(recording.ok()) << recording.status();
    if (!recording.ok()) return 0;
    for (const std::string& damage : (*recording)->damages()) ADD_FAILURE() << damage;
    Recording::Cursor cursor = (*recording)->EntriesAfter(0);
    v1::JournalEntry entry;
    while (true) {
      const absl::StatusOr<bool> has_entry = cursor.Next(&entry);
      EXPECT_TRUE(has_entry.ok()) << has_entry.status();
      if (!has_entry.ok() || !*has_entry) return cursor.sequence();
    }
  }

  test::TestFolder folder_;
  SmallDisk disk_;
  uint64_t max_file_bytes_ = 1 << 20;
  double max_wait_s_ = 60;
  std::string scene_id_ = "test";
};

TEST_F(SceneJournalTest, KeepsEveryEntryInOrder) {
  max_file_bytes_ = 2000;
  {
    const std::unique_ptr<SceneJournal> journal = Open();
    for (uint64_t s = 1; s <= 500; ++s) {
      Append(*journal, s);
      if (s % 100 == 0) {
        EXPECT_TRUE(Wait(*journal).ok());
        EXPECT_GE(journal->progress().sequence, s);
      }
    }
  }
  EXPECT_EQ(EndOnDisk(), 500U);
  EXPECT_GT(std::distance(std::filesystem::directory_iterator(folder_.path()), std::filesystem::directory_iterator()), 3)
      << "files end when they are long enough";
}

TEST_F(SceneJournalTest, GoesOnWhenAFullDiskHasRoomAgain) {
  const std::unique_ptr<SceneJournal> journal = Open();
  for (uint64_t s = 1; s <= 20; ++s) Append(*journal, s);
  ASSERT_TRUE(Wait(*journal).ok());
  for (int round = 0; round < 20; ++round) {
    disk_.room_ = 17 + round;  // in the middle of an entry
    const uint64_t first = 21 + static_cast<uint64_t>(round) * 5;
    std::promise<absl::Status> done;
    for (uint64_t s = first; s < first + 4; ++s) Append(*journal, s);
    Append(*journal, first + 4, [&done](const absl::Status& status) { done.set_value(status); });
    while (journal->progress().trouble.empty()) std::this_thread::yield();
    EXPECT_LT(journal->progress().sequence, first + 4) << "nothing is promised that is not on disk";
    disk_.room_ = 1 << 30;
    EXPECT_TRUE(done.get_future().get().ok());
    EXPECT_TRUE(journal->progress().trouble.empty());
  }
  EXPECT_EQ(journal->progress().sequence, 120U);
  EXPECT_EQ(EndOnDisk(), 120U);
}

TEST_F(SceneJournalTest, WritesAgainWhatADiskDidNotBringToRest) {
  const std::unique_ptr<SceneJournal> journal = Open();
  disk_.syncs_ = false;
  for (uint64_t s = 1; s <= 50; ++s) Append(*journal, s);
  while (journal->progress().trouble.empty()) std::this_thread::yield();
  EXPECT_EQ(journal->progress().sequence, 0U);
  disk_.syncs_ = true;
  EXPECT_TRUE(Wait(*journal).ok());
  EXPECT_EQ(journal->progress().sequence, 50U);
  EXPECT_EQ(EndOnDisk(), 50U) << "each once";
}

TEST_F(SceneJournalTest, GivesUpWhatIsTooMuchAndSaysSo) {
  const std::unique_ptr<SceneJournal> journal = Open();
  disk_.room_ = 0;
  std::promise<absl::Status> done;
  Append(*journal, 1, [&done](const absl::Status& status) { done.set_value(status); });
  uint64_t s = 2;
  while (!journal->needs_state()) Append(*journal, s++);
  EXPECT_EQ(done.get_future().get().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(Wait(*journal).code(), absl::StatusCode::kResourceExhausted) << "nothing is durable until a state is";
}

TEST_F(SceneJournalTest, NothingBehindAGapIsDurableBeforeItsState) {
  const std::unique_ptr<SceneJournal> journal = Open();
  const uint64_t lost = FillUntilGap(*journal);
  EXPECT_FALSE(journal->progress().trouble.empty());
  disk_.worlds_.acquire();
  disk_.room_ = 1 << 30;
  ASSERT_TRUE(AppendState(*journal, lost));
  std::atomic<bool> is_durable = false;
  std::promise<absl::Status> done;
  Append(*journal, lost + 1, [&](const absl::Status& status) {
    is_durable = true;
    done.set_value(status);
  });
  std::this_thread::yield();
  EXPECT_FALSE(is_durable) << "a crash now would lose it";
  EXPECT_FALSE(journal->progress().trouble.empty());
  disk_.worlds_.release();
  EXPECT_TRUE(done.get_future().get().ok());
  EXPECT_TRUE(journal->progress().trouble.empty());
  EXPECT_EQ(journal->progress().sequence, lost + 1);
  EXPECT_TRUE(std::filesystem::exists(folder_.path() / StateName(lost, lost)));
  EXPECT_TRUE(std::filesystem::exists(folder_.path() / JournalName(lost + 1))) << "the journal begins anew behind the state";
}

TEST_F(SceneJournalTest, WhoWaitsForAFailingDiskIsToldAndEntriesAreKept) {
  max_wait_s_ = 0.005;
  const std::unique_ptr<SceneJournal> journal = Open();
  disk_.room_ = 0;
  Append(*journal, 1);
  EXPECT_EQ(Wait(*journal).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_FALSE(journal->needs_state());
  std::promise<absl::Status> done;
  Append(*journal, 2, [&done](const absl::Status& status) { done.set_value(status); });
  EXPECT_EQ(done.get_future().get().code(), absl::StatusCode::kResourceExhausted);
  disk_.room_ = 1 << 30;
  while (!journal->progress().trouble.empty()) std::this_thread::yield();
  EXPECT_TRUE(Wait(*journal).ok());
  EXPECT_EQ(journal->progress().sequence, 2U);
  EXPECT_EQ(EndOnDisk(), 2U);
}

TEST_F(SceneJournalTest, AStateIsWrittenAfterTheEntriesBeforeIt) {
  const std::unique_ptr<SceneJournal> journal = Open();
  disk_.syncs_ = false;
  for (uint64_t s = 1; s <= 5; ++s) Append(*journal, s);
  ASSERT_TRUE(AppendState(*journal, 5));
  while (journal->progress().trouble.empty()) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_FALSE(AppendState(*journal, 5)) << "the first one waits";
  EXPECT_FALSE(std::filesystem::exists(folder_.path() / StateName(5, 5)));
  EXPECT_EQ(journal->progress().state_trouble, "") << "nothing of it was tried";
  disk_.syncs_ = true;
  while (journal->progress().states == 0 && journal->progress().state_trouble.empty()) std::this_thread::yield();
  EXPECT_EQ(journal->progress().states, 1U);
  EXPECT_EQ(journal->progress().sequence, 5U);
  EXPECT_TRUE(std::filesystem::exists(folder_.path() / StateName(5, 5)));
}

TEST_F(SceneJournalTest, AStateWhoseEntriesAreGivenUpMakesRoomForTheNext) {
  const std::unique_ptr<SceneJournal> journal = Open();
  disk_.room_ = 0;
  Append(*journal, 1);
  ASSERT_TRUE(AppendState(*journal, 1));
  uint64_t s = 1;
  while (!journal->needs_state()) Append(*journal, ++s);
  disk_.room_ = 1 << 30;
  while (!AppendState(*journal, s)) std::this_thread::yield();
  while (journal->progress().states == 0) std::this_thread::yield();
  EXPECT_FALSE(std::filesystem::exists(folder_.path() / StateName(1, 1)));
  EXPECT_EQ(journal->progress().sequence, s);
  EXPECT_TRUE(Wait(*journal).ok());
}

TEST_F(SceneJournalTest, AStateIsDurableByItself) {
  const std::unique_ptr<SceneJournal> journal = Open();
  const uint64_t lost = FillUntilGap(*journal);
  disk_.room_ = 1 << 30;
  ASSERT_TRUE(AppendState(*journal, lost));
  while (journal->progress().states == 0) std::this_thread::yield();
  EXPECT_EQ(journal->progress().step, lost) << "a paused scene appends nothing more";
  EXPECT_TRUE(journal->progress().trouble.empty());
  EXPECT_TRUE(Wait(*journal).ok());
}

TEST_F(SceneJournalTest, BehindAGapTheOldFileTakesNothing) {
  const std::unique_ptr<SceneJournal> journal = Open();
  const uint64_t lost = FillUntilGap(*journal);
  const auto bridge = [&] {
    disk_.room_ = SmallDisk::kWorldBytes + 1000;  // for the state, and not for the head behind it
    return AppendState(*journal, lost);
  };
  ASSERT_TRUE(bridge());
  while (journal->progress().states == 0) {
    if (journal->needs_state()) bridge();  // entries that were on their way to the disk took the room
    std::this_thread::yield();
  }
  disk_.room_ = 10;
  std::promise<absl::Status> done;
  Append(*journal, lost + 1, [&done](const absl::Status& status) { done.set_value(status); });
  while (journal->progress().trouble.empty()) std::this_thread::yield();
  disk_.room_ = 1 << 30;
  EXPECT_TRUE(done.get_future().get().ok());
  const auto recording = Recording::OpenFolder(folder_.path());
  ASSERT_TRUE(recording.ok()) << recording.status();
  v1::JournalEntry entry;
  Recording::Cursor cursor = (*recording)->EntriesAfter(lost);
  const absl::StatusOr<bool> next = cursor.Next(&entry);
  ASSERT_TRUE(next.ok() && *next) << next.status();
  EXPECT_EQ(entry.sequence(), lost + 1);
  EXPECT_EQ((*recording)->end_position(), lost + 1) << "places count the entries that are lost";
}

TEST_F(SceneJournalTest, FilesAreNotMadeOfHeads) {
  max_file_bytes_ = 2000;
  scene_id_ = std::string(100000, 's');  // as a spec with its meshes
  {
    const std::unique_ptr<SceneJournal> journal = Open();
    for (uint64_t s = 1; s <= 50; ++s) {
      Append(*journal, s);
      ASSERT_TRUE(Wait(*journal).ok());
    }
  }
  EXPECT_EQ(EndOnDisk(), 50U);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_.path()), std::filesystem::directory_iterator()), 1);
}

TEST_F(SceneJournalTest, DestructorWritesWhatWaits) {
  {
    const std::unique_ptr<SceneJournal> journal = Open();
    for (uint64_t s = 1; s <= 30; ++s) Append(*journal, s);
  }
  EXPECT_EQ(EndOnDisk(), 30U);
}

}  // namespace
}  // namespace palpate::record::scene_journal_test
