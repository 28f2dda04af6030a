// TetGen .node and .ele. Source of the format: the chapter on file formats of the TetGen manual.
#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "sim/mesh/io_cursor.h"
#include "sim/mesh/mesh_io.h"

namespace palpate::sim {
namespace {

// A line with something on it besides white space and a comment.
struct DataLine {
  size_t begin = 0;
  std::vector<std::string_view> words;
};

class LineReader {
 public:
  LineReader(std::string_view text, std::string_view name) : in_(text, name) {}

  const Cursor& cursor() const { return in_; }

  std::optional<DataLine> Next() {
    while (!in_.AtEnd()) {
      const size_t begin = in_.offset();
      std::string_view line = in_.Line();
      line = line.substr(0, line.find('#'));
      std::vector<std::string_view> words = SplitWords(line);
      if (!words.empty()) return DataLine{begin, std::move(words)};
    }
    return std::nullopt;
  }

  // The first line: unsigned integers, those missing at the end are 0.
  absl::StatusOr<std::vector<uint64_t>> Header(size_t least, size_t most, std::string_view form) {
    const std::optional<DataLine> line = Next();
    if (!line) return in_.Truncated(absl::StrFormat("\"%s\"", ToAbsl(form)));
    std::vector<uint64_t> values(most, 0);
    bool is_good = line->words.size() >= least && line->words.size() <= most;
    for (size_t i = 0; is_good && i < line->words.size(); ++i) is_good = ParseUnsigned(line->words[i], &values[i]);
    if (is_good) return values;
    return ErrorAt(in_.source(), line->begin,
                   absl::StrFormat("\"%s\" (integers) expected, found %s...", ToAbsl(form), Quoted(line->words[0])));
  }

  // The next line, which must have `word_count` words and start with number `index` counted from the first line's.
  absl::StatusOr<DataLine> Numbered(uint64_t index, uint64_t word_count, std::string_view what) {
    std::optional<DataLine> line = Next();
    if (!line) return in_.Truncated(absl::StrFormat("%s %d", ToAbsl(what), index));
    if (line->words.size() != word_count) {
      return ErrorAt(in_.source(), line->begin,
                     absl::StrFormat("%s %d: %d values expected, found %d", ToAbsl(what), index, word_count, line->words.size()));
    }
    uint64_t number = 0;
    const bool is_number = ParseUnsigned(line->words[0], &number);
    if (index == 0 && is_number && number <= 1) base_ = number;
    if (!is_number || number != base_ + index) {
      return ErrorAt(in_.source(), line->begin,
                     absl::StrFormat("%s %d: its number is %s, must be %s", ToAbsl(what), index, Quoted(line->words[0]),
                                     index == 0 ? "0 or 1" : absl::StrFormat("%d", base_ + index)));
    }
    return *std::move(line);
  }

  absl::Status ExpectEnd(uint64_t count, std::string_view what) {
    const std::optional<DataLine> line = Next();
    if (!line) return absl::OkStatus();
    return ErrorAt(in_.source(), line->begin, absl::StrFormat("more than the %d %s announced", count, ToAbsl(what)));
  }

  uint64_t base() const { return base_; }

 private:
  Cursor in_;
  uint64_t base_ = 0;  // number of the first element: 0 or 1
};

}  // namespace

absl::StatusOr<TetMesh> ParseTetGen(std::string_view node_text, std::string_view node_name, std::string_view ele_text,
                                    std::string_view ele_name, const ReadOptions& options) {
  constexpr uint64_t kMaxColumns = 1000;
  constexpr uint64_t kMaxCount = std::numeric_limits<uint32_t>::max();
  RawTetMesh raw;

  LineReader nodes(node_text, node_name);
  raw.vertex_source = nodes.cursor().source();
  PALPATE_ASSIGN_OR_RETURN(const std::vector<uint64_t> node_header, nodes.Header(2, 4, "node-count dimension attribute-count marker-flag"));
  const uint64_t node_count = node_header[0];
  if (node_header[1] != 3) return nodes.cursor().Error(absl::StrFormat("dimension %d, must be 3", node_header[1]));
  if (node_header[2] > kMaxColumns || node_header[3] > 1) {
    return nodes.cursor().Error(
        absl::StrFormat("%d attributes (at most %d) and marker flag %d (0 or 1)", node_header[2], kMaxColumns, node_header[3]));
  }
  const uint64_t node_words = 4 + node_header[2] + node_header[3];
  PALPATE_RETURN_IF_ERROR(nodes.cursor().CheckCount(node_count, 2 * node_words, "nodes"));
  if (node_count > kMaxCount) return nodes.cursor().Error(absl::StrFormat("%d nodes are more than %d", node_count, kMaxCount));
  raw.mesh.vertices.reserve(node_count);
  raw.vertex_offsets.reserve(node_count);
  for (uint64_t i = 0; i < node_count; ++i) {
    PALPATE_ASSIGN_OR_RETURN(const DataLine line, nodes.Numbered(i, node_words, "node"));
    Eigen::Vector3d point;
    for (int k = 0; k < 3; ++k) {
      const std::string_view word = line.words[static_cast<size_t>(k) + 1];
      if (!ParseReal(word, &point[k])) {
        return ErrorAt(raw.vertex_source, line.begin, absl::StrFormat("node %d: coordinate %s is not a finite number", i, Quoted(word)));
      }
    }
    raw.mesh.vertices.push_back(point);
    raw.vertex_offsets.push_back(line.begin);
  }
  PALPATE_RETURN_IF_ERROR(nodes.ExpectEnd(node_count, "nodes"));

  LineReader tets(ele_text, ele_name);
  raw.tet_source = tets.cursor().source();
  PALPATE_ASSIGN_OR_RETURN(const std::vector<uint64_t> tet_header, tets.Header(1, 3, "tet-count nodes-per-tet attribute-count"));
  const uint64_t tet_count = tet_header[0];
  const uint64_t tet_size = tet_header[1] == 0 ? 4 : tet_header[1];
  if (tet_size != 4) return tets.cursor().Error(absl::StrFormat("%d nodes per tet, must be 4: other tets are not supported", tet_size));
  if (tet_header[2] > kMaxColumns) return tets.cursor().Error(absl::StrFormat("%d attributes, at most %d", tet_header[2], kMaxColumns));
  const uint64_t tet_words = 5 + tet_header[2];
  PALPATE_RETURN_IF_ERROR(tets.cursor().CheckCount(tet_count, 2 * tet_words, "tets"));
  raw.mesh.tets.reserve(tet_count);
  raw.tet_offsets.reserve(tet_count);
  for (uint64_t t = 0; t < tet_count; ++t) {
    PALPATE_ASSIGN_OR_RETURN(const DataLine line, tets.Numbered(t, tet_words, "tet"));
    std::array<uint32_t, 4> tet;
    for (size_t k = 0; k < 4; ++k) {
      uint64_t number = 0;
      // Below the base the difference wraps around and is out of range too.
      if (!ParseUnsigned(line.words[k + 1], &number) || number - nodes.base() >= node_count) {
        return ErrorAt(raw.tet_source, line.begin,
                       absl::StrFormat("tet %d: node %s is outside %d..%d", t, Quoted(line.words[k + 1]), nodes.base(),
                                       static_cast<int64_t>(nodes.base() + node_count) - 1));
      }
      tet[k] = static_cast<uint32_t>(number - nodes.base());
    }
    raw.mesh.tets.push_back(tet);
    raw.tet_offsets.push_back(line.begin);
  }
  PALPATE_RETURN_IF_ERROR(tets.ExpectEnd(tet_count, "tets"));
  return FinishTetMesh(std::move(raw), options);
}

}  // namespace palpate::sim
