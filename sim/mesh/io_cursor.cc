#include "sim/mesh/io_cursor.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>
#include <system_error>
#include <utility>

#include "absl/strings/charconv.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace palpate::sim {
namespace {

constexpr size_t kMaxQuoted = 40;

bool IsSpace(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\v' || c == '\f'; }

// from_chars takes no plus sign, which some programs write.
std::string_view WithoutPlus(std::string_view word) {
  if (word.size() > 1 && word[0] == '+' && word[1] != '-') word.remove_prefix(1);
  return word;
}

template <typename T>
std::errc ParseInteger(std::string_view word, T* value) {
  word = WithoutPlus(word);
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), *value);
  if (error != std::errc()) return error;
  return end == word.data() + word.size() ? std::errc() : std::errc::invalid_argument;
}

}  // namespace

std::string SourceText::Where(size_t offset) const {
  if (is_binary) return absl::StrCat(ToAbsl(name), ", byte ", offset);
  const auto end = bytes.begin() + static_cast<ptrdiff_t>(std::min(offset, bytes.size()));
  return absl::StrCat(ToAbsl(name), ":", 1 + std::count(bytes.begin(), end, '\n'));
}

absl::Status ErrorAt(const SourceText& source, size_t offset, std::string_view message) {
  return absl::InvalidArgumentError(absl::StrCat(source.Where(offset), ": ", ToAbsl(message)));
}

std::string Quoted(std::string_view text) {
  const std::string printable = absl::CHexEscape(ToAbsl(text.substr(0, kMaxQuoted)));
  return absl::StrCat("\"", printable, text.size() > kMaxQuoted ? "...\"" : "\"");
}

void Cursor::SkipSpace() {
  while (offset_ < source_.bytes.size() && IsSpace(source_.bytes[offset_])) ++offset_;
}

std::string_view Cursor::Word() {
  SkipSpace();
  const size_t begin = offset_;
  while (offset_ < source_.bytes.size() && !IsSpace(source_.bytes[offset_])) ++offset_;
  return source_.bytes.substr(begin, offset_ - begin);
}

std::string_view Cursor::Line() {
  const size_t begin = offset_;
  const size_t end = std::min(source_.bytes.find('\n', begin), source_.bytes.size());
  offset_ = std::min(end + 1, source_.bytes.size());
  std::string_view line = source_.bytes.substr(begin, end - begin);
  if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
  return line;
}

template <typename T>
absl::StatusOr<T> Cursor::Integer(std::string_view what, std::string_view kind) {
  SkipSpace();
  const size_t begin = offset_;
  const std::string_view word = Word();
  if (word.empty()) return Truncated(what);
  T value = 0;
  const std::errc error = ParseInteger(word, &value);
  if (error == std::errc()) return value;
  return ErrorAt(source_, begin,
                 absl::StrFormat("%s: %s is not %s%s", ToAbsl(what), Quoted(word), ToAbsl(kind),
                                 error == std::errc::result_out_of_range ? " and below 2^64" : ""));
}

absl::StatusOr<uint64_t> Cursor::Unsigned(std::string_view what) { return Integer<uint64_t>(what, "an integer of at least 0"); }

absl::StatusOr<int64_t> Cursor::Signed(std::string_view what) { return Integer<int64_t>(what, "an integer"); }

absl::StatusOr<double> Cursor::Real(std::string_view what) {
  SkipSpace();
  const size_t begin = offset_;
  const std::string_view word = Word();
  if (word.empty()) return Truncated(what);
  double value = 0.0;
  if (ParseReal(word, &value)) return value;
  return ErrorAt(source_, begin, absl::StrFormat("%s: %s is not a finite number", ToAbsl(what), Quoted(word)));
}

absl::Status Cursor::CheckCount(uint64_t count, uint64_t bytes_each, std::string_view what) const {
  if (count <= (remaining() + 1) / bytes_each) return absl::OkStatus();
  return Error(absl::StrFormat("%d %s announced, but the file has only %d more bytes", count, ToAbsl(what), remaining()));
}

absl::Status Cursor::Truncated(std::string_view what) const {
  return ErrorAt(source_, source_.bytes.size(), absl::StrCat("the file ends where ", ToAbsl(what), " should follow"));
}

std::vector<std::string_view> SplitWords(std::string_view line) {
  std::vector<std::string_view> words;
  for (size_t i = 0; i < line.size();) {
    if (IsSpace(line[i])) {
      ++i;
      continue;
    }
    const size_t begin = i;
    while (i < line.size() && !IsSpace(line[i])) ++i;
    words.push_back(line.substr(begin, i - begin));
  }
  return words;
}

bool ParseUnsigned(std::string_view word, uint64_t* value) { return ParseInteger(word, value) == std::errc(); }

bool ParseReal(std::string_view word, double* value) {
  word = WithoutPlus(word);
  if (word.find_first_of("xX") != std::string_view::npos) return false;  // hexadecimal, which absl would take
  const char* const end = word.data() + word.size();
  const absl::from_chars_result result = absl::from_chars(word.data(), end, *value);
  if (result.ptr != end || word.empty()) return false;
  // Out of range with a small value is an underflow: the nearest double (zero) is right.
  if (result.ec == std::errc::result_out_of_range) return std::abs(*value) < 1.0;
  return result.ec == std::errc() && std::isfinite(*value);
}

void AppendReal(double value, std::string* out) {
  char buffer[32];
  const auto result = std::to_chars(buffer, buffer + sizeof(buffer), value);
  out->append(buffer, result.ptr);
}

void AppendPoint(const Eigen::Vector3d& point, std::string* out) {
  for (int k = 0; k < 3; ++k) {
    if (k > 0) *out += ' ';
    AppendReal(point[k], out);
  }
}

absl::StatusOr<TetMesh> FinishTetMesh(RawTetMesh raw, const ReadOptions& options) {
  TetMesh& mesh = raw.mesh;
  if (mesh.tets.empty()) return absl::InvalidArgumentError(absl::StrCat(ToAbsl(raw.tet_source.name), ": the file has no tets"));
  size_t inverted = 0;
  for (size_t t = 0; t < mesh.tets.size(); ++t) {
    if (!(TetVolume(mesh, t) < 0.0)) continue;
    ++inverted;
    if (options.flip_inverted) std::swap(mesh.tets[t][2], mesh.tets[t][3]);
  }
  // One that does not fit is a defect, which is found below.
  const bool has_texture = !mesh.texture_coordinates.empty() && mesh.texture_coordinates.size() == mesh.vertices.size();
  if (options.drop_unused_vertices) {
    constexpr uint32_t kUnused = std::numeric_limits<uint32_t>::max();
    std::vector<uint32_t> new_index(mesh.vertices.size(), kUnused);
    for (const auto& tet : mesh.tets) {
      for (const uint32_t v : tet) new_index[v] = 0;
    }
    uint32_t count = 0;
    for (size_t v = 0; v < mesh.vertices.size(); ++v) {
      if (new_index[v] == kUnused) continue;
      new_index[v] = count;
      mesh.vertices[count] = mesh.vertices[v];
      raw.vertex_offsets[count] = raw.vertex_offsets[v];
      if (has_texture) mesh.texture_coordinates[count] = mesh.texture_coordinates[v];
      ++count;
    }
    mesh.vertices.resize(count);
    if (has_texture) mesh.texture_coordinates.resize(count);
    for (auto& tet : mesh.tets) {
      for (uint32_t& v : tet) v = new_index[v];
    }
  }
  const std::optional<TetMeshDefect> defect = FindTetMeshDefect(mesh);
  if (!defect) return std::move(mesh);
  switch (defect->element) {
    case TetMeshDefect::Element::kVertex: {
      const auto has = [&](const std::array<uint32_t, 4>& tet) { return std::find(tet.begin(), tet.end(), defect->index) != tet.end(); };
      std::string message = defect->message;
      if (std::none_of(mesh.tets.begin(), mesh.tets.end(), has))
        absl::StrAppend(&message, "; `palpate mesh convert --drop-unused` leaves such vertices out");
      return ErrorAt(raw.vertex_source, raw.vertex_offsets[defect->index], message);
    }
    case TetMeshDefect::Element::kTet: {
      std::string message = defect->message;
      if (defect->is_inverted && inverted == mesh.tets.size())
        absl::StrAppend(&message, "; so are all ", inverted, " tets of the file: it lists the vertices of a tet in the other order");
      if (defect->is_inverted)
        absl::StrAppend(&message, "; `palpate mesh convert --flip-inverted` turns all ", inverted, " such tets of ", mesh.tets.size(),
                        " round");
      return ErrorAt(raw.tet_source, raw.tet_offsets[defect->index], message);
    }
    case TetMeshDefect::Element::kMesh:
      break;
  }
  return absl::InvalidArgumentError(absl::StrCat(ToAbsl(raw.tet_source.name), ": ", defect->message));
}

}  // namespace palpate::sim
