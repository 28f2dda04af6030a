#pragma once

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "gpu/base/status.h"
#include "sim/mesh/mesh_io.h"

namespace palpate::sim {

/// absl's view of the same characters: the distribution's absl::string_view is a type of its own.
inline absl::string_view ToAbsl(std::string_view text) { return {text.data(), text.size()}; }

/// The bytes of a file, for messages that say where something stands in it. Does not own them.
struct SourceText {
  std::string_view bytes;
  std::string_view name;
  bool is_binary = false;

  /// "name:line" of a text, "name, byte N" of a binary file.
  std::string Where(size_t offset) const;
};

/// InvalidArgument "where: message".
absl::Status ErrorAt(const SourceText& source, size_t offset, std::string_view message);

/// A short printable form of a piece of a file for messages.
std::string Quoted(std::string_view text);

/// Reads a file front to back: words and numbers of a text, or raw values. Never reads outside the bytes; every failure says where.
class Cursor {
 public:
  Cursor(std::string_view bytes, std::string_view name) : source_{bytes, name} {}

  const SourceText& source() const { return source_; }
  size_t offset() const { return offset_; }
  size_t remaining() const { return source_.bytes.size() - offset_; }
  std::string_view rest() const { return source_.bytes.substr(offset_); }
  void Advance(size_t count) { offset_ += count; }  ///< Precondition: count <= remaining().

  bool is_binary() const { return source_.is_binary; }
  bool is_swapped() const { return is_swapped_; }
  /// From here on Raw is used; `is_swapped`: the file's byte order is not that of this machine.
  void SetBinary(bool is_swapped) {
    source_.is_binary = true;
    is_swapped_ = is_swapped;
  }

  /// The next word (up to white space), empty at the end.
  std::string_view Word();
  /// The rest of the line without its end; empty at the end.
  std::string_view Line();
  void SkipSpace();
  bool AtEnd() const { return remaining() == 0; }

  /// The next word as a number. `what` names it in errors. Reals must be finite.
  absl::StatusOr<uint64_t> Unsigned(std::string_view what);
  absl::StatusOr<int64_t> Signed(std::string_view what);
  absl::StatusOr<double> Real(std::string_view what);

  /// The next sizeof(T) bytes as a value.
  template <typename T>
  absl::StatusOr<T> Raw(std::string_view what) {
    if (remaining() < sizeof(T)) return Truncated(what);
    char bytes[sizeof(T)];
    for (size_t i = 0; i < sizeof(T); ++i) bytes[is_swapped_ ? sizeof(T) - 1 - i : i] = source_.bytes[offset_ + i];
    T value;
    std::memcpy(&value, bytes, sizeof(T));
    offset_ += sizeof(T);
    return value;
  }

  /// Fails if `count` things of at least `bytes_each` bytes cannot be left in the file: so a small file cannot ask for much memory.
  /// The last number of a text needs no separator, hence one byte of slack.
  absl::Status CheckCount(uint64_t count, uint64_t bytes_each, std::string_view what) const;

  absl::Status Error(std::string_view message) const { return ErrorAt(source_, offset_, message); }
  absl::Status Truncated(std::string_view what) const;

 private:
  template <typename T>
  absl::StatusOr<T> Integer(std::string_view what, std::string_view kind);

  SourceText source_;
  size_t offset_ = 0;
  bool is_swapped_ = false;
};

/// The words of a line.
std::vector<std::string_view> SplitWords(std::string_view line);

/// Numbers from words, as in Cursor: false if the word is not a number of the type (for a real: or not finite).
bool ParseUnsigned(std::string_view word, uint64_t* value);
bool ParseReal(std::string_view word, double* value);

/// Appends the shortest decimal number that reads as the same double, or the three of a point with spaces between. Independent of the
/// locale.
void AppendReal(double value, std::string* out);
void AppendPoint(const Eigen::Vector3d& point, std::string* out);

/// A mesh as a file has it, before the rules are checked, with the place of each element in the file. Indices are in range.
struct RawTetMesh {
  TetMesh mesh;
  std::vector<size_t> vertex_offsets;  ///< [vertex_count] bytes into vertex_source
  std::vector<size_t> tet_offsets;     ///< [tet_count] bytes into tet_source
  SourceText vertex_source;
  SourceText tet_source;
};

/// Applies the options and validates. Errors name the place in the file.
absl::StatusOr<TetMesh> FinishTetMesh(RawTetMesh raw, const ReadOptions& options);

}  // namespace palpate::sim
