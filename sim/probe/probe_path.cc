#include "sim/probe/probe_path.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "gpu/base/status.h"

namespace palpate::sim {
namespace {

bool IsNameByte(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return byte > 127 || absl::ascii_isalnum(byte) || c == '_' || c == '-' || c == '/' || c == '*';
}

class PathParser {
 public:
  explicit PathParser(std::string_view text) : text_(text) {}

  absl::StatusOr<std::vector<PathPart>> Parse() {
    std::vector<PathPart> parts;
    while (true) {
      if (parts.empty() || !Take('[')) {
        if (!parts.empty() && !Take('.')) return Bad("expected '.', '[', '(' or the end");
        PathPart part{.name = {}, .position = at_};
        PALPATE_ASSIGN_OR_RETURN(part.name, Name());
        parts.push_back(std::move(part));
      } else {
        PathPart part{.name = {}, .position = at_, .is_index = true};
        PALPATE_ASSIGN_OR_RETURN(part.name, Name());
        if (!Take(']')) return Bad("expected ']'");
        parts.push_back(std::move(part));
      }
      if (Take('(')) PALPATE_RETURN_IF_ERROR(Arguments(&parts.back()));
      if (at_ == text_.size()) return parts;
    }
  }

 private:
  absl::Status Bad(std::string_view what) const {
    const std::string found = at_ < text_.size() ? absl::StrCat("byte ", at_) : "the end";
    return absl::InvalidArgumentError(absl::StrCat("at ", found, ": ", absl::string_view(what.data(), what.size())));
  }
  bool Take(char c) {
    if (at_ == text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  void SkipBlanks() {
    while (Take(' ')) {
    }
  }

  absl::StatusOr<std::string> Name() {
    if (Take('"')) return Quoted();
    const size_t begin = at_;
    while (at_ < text_.size() && IsNameByte(text_[at_])) ++at_;
    if (at_ == begin) return Bad("expected a name (letters, digits, _ - / *, or anything in double quotes)");
    return std::string(text_.substr(begin, at_ - begin));
  }

  absl::StatusOr<std::string> Quoted() {
    std::string name;
    while (!Take('"')) {
      Take('\\');
      if (at_ == text_.size()) return Bad("expected the closing double quote");
      name += text_[at_++];
    }
    if (name.empty()) return Bad("a name is empty");
    return name;
  }

  absl::Status Arguments(PathPart* part) {
    part->has_arguments = true;
    do {
      SkipBlanks();
      PALPATE_ASSIGN_OR_RETURN(std::string name, Name());
      part->arguments.push_back(std::move(name));
      SkipBlanks();
    } while (Take(','));
    return Take(')') ? absl::OkStatus() : Bad("expected ',' or ')'");
  }

  std::string_view text_;
  size_t at_ = 0;
};

}  // namespace

absl::StatusOr<std::vector<PathPart>> ParsePath(std::string_view path) { return PathParser(path).Parse(); }

std::string QuotedName(std::string_view name) {
  if (!name.empty() && std::all_of(name.begin(), name.end(), [](char c) { return IsNameByte(c) && c != '*'; })) return std::string(name);
  std::string text = "\"";
  for (const char c : name) {
    if (c == '"' || c == '\\') text += '\\';
    text += c;
  }
  return text + '"';
}

bool MatchesPattern(std::string_view pattern, std::string_view name) {
  // reaches[i]: the pattern so far reads as the first i characters.
  std::vector<bool> reaches(name.size() + 1);
  reaches[0] = true;
  for (const char c : pattern) {
    bool before = reaches[0];
    if (c != '*') reaches[0] = false;
    for (size_t i = 1; i <= name.size(); ++i) {
      const bool here = reaches[i];
      reaches[i] = c == '*' ? here || reaches[i - 1] : before && name[i - 1] == c;
      before = here;
    }
  }
  return reaches[name.size()];
}

}  // namespace palpate::sim
