#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace palpate::record {

/// Names of files in a scene's folder of state. Numbers have 16 digits, so that names sort as numbers do.
/// journal-SEQUENCE.plj: SEQUENCE of the first input that it may hold.
std::string JournalName(uint64_t sequence);
/// state-SEQUENCE-POSITION.plckpt: SEQUENCE of the last entry that is in it, POSITION on the time line.
std::string StateName(uint64_t sequence, uint64_t position);

struct StateFileName {
  uint64_t sequence = 0;
  uint64_t position = 0;
};

/// Nothing if a file is none.
std::optional<uint64_t> SequenceOfJournal(const std::filesystem::path& path);
std::optional<StateFileName> StateOfFile(const std::filesystem::path& path);

}  // namespace palpate::record
