#pragma once

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "palpate/v1/journal.pb.h"
#include "sim/record/journal_file.h"

namespace palpate::test {

/// A folder that goes away with the object.
class TestFolder {
 public:
  TestFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "palpate-record-test-XXXXXX").string();
    if (mkdtemp(name.data()) != nullptr) path_ = name;
  }
  ~TestFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TestFolder(const TestFolder&) = delete;
  TestFolder& operator=(const TestFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

inline std::string BytesOf(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
}
inline void PutBytes(const std::filesystem::path& path, const std::string& bytes) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << bytes;
}

inline v1::JournalEntry HeadEntry(uint64_t sequence = 0, uint64_t position = 0) {
  v1::JournalEntry entry;
  entry.set_sequence(sequence);
  entry.mutable_head()->set_scene_id("test");
  entry.mutable_head()->set_dt_s(0.01);
  entry.mutable_head()->set_begin_position(position);
  return entry;
}
inline v1::JournalEntry StepEntry(uint64_t sequence, uint64_t step) {
  v1::JournalEntry entry;
  entry.set_sequence(sequence);
  entry.mutable_step()->set_step(step);
  entry.mutable_step()->set_state_hash(1000 + step);
  return entry;
}

}  // namespace palpate::test
