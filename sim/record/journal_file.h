#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "palpate/v1/journal.pb.h"
#include "sim/record/disk.h"

namespace palpate::record {

/// Version of journals and recordings. A file of another major version, or of a newer minor one, is refused by name.
inline constexpr uint16_t kJournalMajor = 1;
inline constexpr uint16_t kJournalMinor = 0;
inline constexpr size_t kFileHeaderBytes = 32;
inline constexpr size_t kEntryHeaderBytes = 8;
inline constexpr size_t kMaxEntryBytes = size_t{1} << 30;
inline constexpr std::string_view kJournalExtension = ".plj";      ///< in a folder of state
inline constexpr std::string_view kRecordingExtension = ".plrec";  ///< the usual one of recordings

/// The bytes that a journal file begins with: magic "PALPJRNL", major, minor, header's size (u16 each, then u16 0), 12 bytes of 0, CRC-32
/// of the 28 bytes before it. All numbers are little-endian.
std::string EncodeFileHeader();

/// Whether readers take an entry whose message has so many bytes. Errors: ResourceExhausted naming both.
absl::Status CheckEntrySize(size_t message_bytes, size_t max_bytes = kMaxEntryBytes);

/// An entry as it lies in a file, if CheckEntrySize takes it: size of the message (u32), CRC-32 of size and message (u32), message.
std::string EncodeEntry(const v1::JournalEntry& entry);

/// Reads the entries of one file from its begin, in order. Bounded by the size that the file had when it was opened, so a file may grow
/// meanwhile.
class JournalReader {
 public:
  /// Errors: those of opening; InvalidArgument (no journal; another version, which it names); DataLoss (a header that is cut off or
  /// damaged).
  static absl::StatusOr<JournalReader> Open(const std::filesystem::path& path);

  /// False: the end, all entries were read. Errors: DataLoss naming file, offset and what is wrong there: an entry that is cut off by the
  /// end of the file (torn), one whose checksum does not match (damaged), or that is no entry. After an error nothing more can be read.
  absl::StatusOr<bool> Next(v1::JournalEntry* entry);

  uint64_t offset() const { return offset_; }  ///< behind the newest entry that was good
  uint64_t size_bytes() const { return size_; }
  bool is_torn() const { return is_torn_; }  ///< the error was an entry cut off by the end of the file
  const std::filesystem::path& path() const { return path_; }

  /// Goes on behind an entry at an offset that was read before.
  void SeekTo(uint64_t offset) { offset_ = offset; }

 private:
  absl::Status Damage(std::string_view what);
  absl::Status Fill(uint64_t offset, size_t size);

  std::filesystem::path path_;
  Descriptor file_;
  uint64_t size_ = 0;
  uint64_t offset_ = 0;
  bool is_torn_ = false;
  std::string buffer_;  ///< bytes of the file from buffer_offset_
  uint64_t buffer_offset_ = 0;
};

}  // namespace palpate::record
