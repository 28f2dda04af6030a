#include "sim/ccd/query_file.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_format.h"
#include "sim/ccd/exact_ratio.h"
#include "sim/ccd/whole_file.h"
#include "sim/mesh/io_cursor.h"

namespace palpate::sim {
namespace {

constexpr size_t kRows = 8;
constexpr uint64_t kMaxFileBytes = uint64_t{1} << 32;

std::string_view Stripped(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t");
  return begin == std::string_view::npos ? "" : text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

std::vector<std::string_view> SplitColumns(std::string_view line) {
  std::vector<std::string_view> columns;
  for (size_t begin = 0;;) {
    const size_t end = std::min(line.find(',', begin), line.size());
    columns.push_back(Stripped(line.substr(begin, end - begin)));
    if (end == line.size()) return columns;
    begin = end + 1;
  }
}

}  // namespace

absl::StatusOr<CcdQuerySet> ParseCcdQueries(std::string_view text, std::string_view name) {
  Cursor in(text, name);
  CcdQuerySet queries;
  size_t row_count = 0;
  size_t column_count = 0;
  size_t empty_at = std::string_view::npos;
  while (!in.AtEnd()) {
    const size_t begin = in.offset();
    const std::string_view line = Stripped(in.Line());
    if (line.empty()) {
      empty_at = std::min(empty_at, begin);
      continue;
    }
    if (empty_at != std::string_view::npos) return ErrorAt(in.source(), empty_at, "an empty line between rows");
    const std::vector<std::string_view> columns = SplitColumns(line);
    if (row_count == 0) column_count = columns.size();
    if ((columns.size() != 6 && columns.size() != 7) || columns.size() != column_count) {
      return ErrorAt(
          in.source(), begin,
          absl::StrFormat("%d columns; 6 or 7 are expected, the same in every row (the first has %d)", columns.size(), column_count));
    }
    if (row_count % kRows == 0) queries.errors.push_back(0);
    for (size_t axis = 0; axis < 3; ++axis) {
      const absl::StatusOr<RoundedReal> coordinate = RoundRatio(columns[2 * axis], columns[2 * axis + 1]);
      if (!coordinate.ok()) {
        const absl::string_view why = coordinate.status().message();
        return ErrorAt(in.source(), begin, absl::StrFormat("%c: %s", "xyz"[axis], why));
      }
      queries.coordinates.push_back(coordinate->value);
      queries.errors.back() = std::max(queries.errors.back(), coordinate->error);
    }
    if (column_count == 7) {
      if (columns[6] != "0" && columns[6] != "1") {
        return ErrorAt(in.source(), begin, absl::StrFormat("column 7 is %s, not 0 or 1", Quoted(columns[6])));
      }
      const bool collides = columns[6] == "1";
      if (row_count % kRows == 0) {
        queries.truth.push_back(collides);
      } else if (queries.truth.back() != collides) {
        return ErrorAt(in.source(), begin, "column 7 differs from the row before it in the same query");
      }
    }
    ++row_count;
  }
  if (row_count % kRows != 0) {
    return in.Error(absl::StrFormat("the file ends in the middle of a query: %d rows are no multiple of %d", row_count, kRows));
  }
  if (row_count == 0) return in.Error("the file has no queries");
  return queries;
}

absl::StatusOr<CcdQuerySet> ReadCcdQueries(const std::filesystem::path& path) {
  PALPATE_ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(path, kMaxFileBytes));
  return ParseCcdQueries(text, path.string());
}

}  // namespace palpate::sim
