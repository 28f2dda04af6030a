#include "sim/record/journal_file.h"

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gpu/base/status.h"
#include "sim/record/little_endian.h"

namespace palpate::record {
namespace {

constexpr std::string_view kMagic = "PALPJRNL";
constexpr size_t kReadBytes = size_t{256} << 10;

}  // namespace

std::string EncodeFileHeader() {
  std::string out(kMagic);
  AppendU16(kJournalMajor, &out);
  AppendU16(kJournalMinor, &out);
  AppendU16(static_cast<uint16_t>(kFileHeaderBytes), &out);
  out.resize(kFileHeaderBytes - 4, '\0');
  const std::array<std::string_view, 1> parts = {out};
  AppendU32(Crc32(parts), &out);
  return out;
}

absl::Status CheckEntrySize(size_t message_bytes, size_t max_bytes) {
  if (message_bytes <= max_bytes) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat("an entry of a journal would have ", message_bytes, " bytes, allowed are ", max_bytes));
}

std::string EncodeEntry(const v1::JournalEntry& entry) {
  const size_t size = entry.ByteSizeLong();
  std::string out;
  out.reserve(kEntryHeaderBytes + size);
  AppendU32(static_cast<uint32_t>(size), &out);
  out.resize(kEntryHeaderBytes);
  entry.AppendToString(&out);
  const std::string_view bytes = out;
  const std::array<std::string_view, 2> parts = {bytes.substr(0, 4), bytes.substr(kEntryHeaderBytes)};
  std::string crc;
  AppendU32(Crc32(parts), &crc);
  out.replace(4, 4, crc);
  return out;
}

absl::StatusOr<JournalReader> JournalReader::Open(const std::filesystem::path& path) {
  JournalReader reader;
  reader.path_ = path;
  PALPATE_ASSIGN_OR_RETURN(reader.file_, OpenFile(path));
  struct stat info {};
  if (fstat(reader.file_.get(), &info) != 0) return FileError(path, "cannot be read", errno);
  if (!S_ISREG(info.st_mode)) return absl::InvalidArgumentError(absl::StrCat("\"", path.string(), "\" is not a regular file"));
  reader.size_ = static_cast<uint64_t>(info.st_size);
  std::string header;
  PALPATE_RETURN_IF_ERROR(ReadAt(reader.file_, 0, kFileHeaderBytes, &header, path));
  const std::string_view bytes = header;
  if (bytes.substr(0, std::min(bytes.size(), kMagic.size())) != kMagic.substr(0, std::min(bytes.size(), kMagic.size()))) {
    return absl::InvalidArgumentError(absl::StrCat("\"", path.string(), "\" is no journal or recording of Palpate"));
  }
  if (bytes.size() < kFileHeaderBytes) return reader.Damage("the header is cut off");
  const uint16_t major = ReadU16(bytes, 8);
  const uint16_t minor = ReadU16(bytes, 10);
  const std::array<std::string_view, 1> parts = {bytes.substr(0, kFileHeaderBytes - 4)};
  if (ReadU32(bytes, kFileHeaderBytes - 4) != Crc32(parts)) return reader.Damage("the checksum of the header does not match");
  if (major != kJournalMajor || minor > kJournalMinor) {
    return absl::InvalidArgumentError(absl::StrCat("\"", path.string(), "\" has format version ", major, ".", minor,
                                                   "; this program reads ", kJournalMajor, ".0 to ", kJournalMajor, ".", kJournalMinor));
  }
  reader.offset_ = kFileHeaderBytes;
  return reader;
}

absl::Status JournalReader::Damage(std::string_view what) {
  return absl::DataLossError(absl::StrCat("\"", path_.string(), "\", byte ", offset_, ": ", absl::string_view(what.data(), what.size())));
}

absl::Status JournalReader::Fill(uint64_t offset, size_t size) {
  if (offset >= buffer_offset_ && offset + size <= buffer_offset_ + buffer_.size()) return absl::OkStatus();
  buffer_offset_ = offset;
  const uint64_t wanted = std::max<uint64_t>(size, kReadBytes);
  return ReadAt(file_, offset, static_cast<size_t>(std::min(wanted, size_ - offset)), &buffer_, path_);
}

absl::StatusOr<bool> JournalReader::Next(v1::JournalEntry* entry) {
  if (offset_ == size_) return false;
  const auto torn = [this](uint64_t missing) {
    is_torn_ = true;
    return Damage(absl::StrCat("an entry is cut off by the end of the file, at least ", missing, " bytes are missing"));
  };
  if (size_ - offset_ < kEntryHeaderBytes) return torn(kEntryHeaderBytes - (size_ - offset_));
  PALPATE_RETURN_IF_ERROR(Fill(offset_, kEntryHeaderBytes));
  const std::string_view header = std::string_view(buffer_).substr(offset_ - buffer_offset_, kEntryHeaderBytes);
  if (header.size() < kEntryHeaderBytes) return torn(kEntryHeaderBytes - header.size());  // the file has shrunk
  const uint32_t size = ReadU32(header, 0);
  const uint32_t crc = ReadU32(header, 4);
  if (size > kMaxEntryBytes) return Damage(absl::StrCat("an entry claims to have ", size, " bytes"));
  const uint64_t end = offset_ + kEntryHeaderBytes + size;
  if (end > size_) return torn(end - size_);
  PALPATE_RETURN_IF_ERROR(Fill(offset_, kEntryHeaderBytes + size));
  const std::string_view bytes = std::string_view(buffer_).substr(offset_ - buffer_offset_, kEntryHeaderBytes + size);
  if (bytes.size() < kEntryHeaderBytes + size) return torn(kEntryHeaderBytes + size - bytes.size());
  const std::array<std::string_view, 2> parts = {bytes.substr(0, 4), bytes.substr(kEntryHeaderBytes)};
  if (Crc32(parts) != crc) return Damage("the checksum of an entry does not match its bytes");
  if (!entry->ParseFromArray(parts[1].data(), static_cast<int>(size))) return Damage("the bytes are no journal entry");
  offset_ = end;
  return true;
}

}  // namespace palpate::record
