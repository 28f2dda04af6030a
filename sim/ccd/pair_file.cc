#include "sim/ccd/pair_file.h"

#include <charconv>
#include <string>
#include <system_error>

#include "absl/strings/str_format.h"
#include "sim/ccd/whole_file.h"
#include "sim/mesh/io_cursor.h"

namespace palpate::sim {
namespace {

constexpr uint64_t kMaxFileBytes = uint64_t{1} << 32;

// The little of JSON that these files use.
class ArrayReader {
 public:
  ArrayReader(std::string_view text, std::string_view name) : in_(text, name) {}

  const Cursor& in() const { return in_; }

  bool Take(char c) {
    in_.SkipSpace();
    if (in_.AtEnd() || in_.rest()[0] != c) return false;
    in_.Advance(1);
    return true;
  }

  absl::Status Expect(char c) {
    if (Take(c)) return absl::OkStatus();
    return Unexpected(absl::StrFormat("'%c'", c));
  }

  bool TakeWord(std::string_view word) {
    in_.SkipSpace();
    if (!in_.rest().starts_with(word)) return false;
    in_.Advance(word.size());
    return true;
  }

  absl::StatusOr<uint32_t> Index() {
    in_.SkipSpace();
    uint32_t value = 0;
    const std::string_view rest = in_.rest();
    const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), value);
    if (error != std::errc()) return Unexpected("an integer from 0 to 4294967295");
    in_.Advance(static_cast<size_t>(end - rest.data()));
    return value;
  }

  absl::Status Unexpected(std::string_view expected) {
    if (in_.AtEnd()) return in_.Truncated(expected);
    return in_.Error(absl::StrFormat("%s where %s should be", Quoted(in_.rest().substr(0, 12)), ToAbsl(expected)));
  }

  // Calls `element` for each element of an array that is the whole text.
  template <typename Element>
  absl::Status WholeArray(Element&& element) {
    PALPATE_RETURN_IF_ERROR(Expect('['));
    if (!Take(']')) {
      do {
        PALPATE_RETURN_IF_ERROR(element());
      } while (Take(','));
      PALPATE_RETURN_IF_ERROR(Expect(']'));
    }
    in_.SkipSpace();
    return in_.AtEnd() ? absl::OkStatus() : Unexpected("the end");
  }

 private:
  Cursor in_;
};

}  // namespace

absl::StatusOr<std::vector<std::array<uint32_t, 2>>> ParsePairList(std::string_view text, std::string_view name) {
  ArrayReader reader(text, name);
  std::vector<std::array<uint32_t, 2>> pairs;
  const auto read_pair = [&]() -> absl::Status {
    std::array<uint32_t, 2> pair;
    PALPATE_RETURN_IF_ERROR(reader.Expect('['));
    PALPATE_ASSIGN_OR_RETURN(pair[0], reader.Index());
    PALPATE_RETURN_IF_ERROR(reader.Expect(','));
    PALPATE_ASSIGN_OR_RETURN(pair[1], reader.Index());
    PALPATE_RETURN_IF_ERROR(reader.Expect(']'));
    pairs.push_back(pair);
    return absl::OkStatus();
  };
  PALPATE_RETURN_IF_ERROR(reader.WholeArray(read_pair));
  return pairs;
}

absl::StatusOr<std::vector<bool>> ParseTruthList(std::string_view text, std::string_view name) {
  ArrayReader reader(text, name);
  std::vector<bool> truth;
  const auto read_answer = [&]() -> absl::Status {
    if (reader.TakeWord("true") || reader.TakeWord("1")) {
      truth.push_back(true);
    } else if (reader.TakeWord("false") || reader.TakeWord("0")) {
      truth.push_back(false);
    } else {
      return reader.Unexpected("true or false");
    }
    return absl::OkStatus();
  };
  PALPATE_RETURN_IF_ERROR(reader.WholeArray(read_answer));
  return truth;
}

absl::StatusOr<std::vector<std::array<uint32_t, 2>>> ReadPairList(const std::filesystem::path& path) {
  PALPATE_ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(path, kMaxFileBytes));
  return ParsePairList(text, path.string());
}

absl::StatusOr<std::vector<bool>> ReadTruthList(const std::filesystem::path& path) {
  PALPATE_ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(path, kMaxFileBytes));
  return ParseTruthList(text, path.string());
}

}  // namespace palpate::sim
