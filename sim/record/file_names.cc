#include "sim/record/file_names.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "sim/record/journal_file.h"
#include "sim/record/state_file.h"

namespace palpate::record {
namespace {

constexpr size_t kDigits = 16;

std::optional<uint64_t> NumberOf(absl::string_view text) {
  uint64_t out = 0;
  if (text.size() != kDigits || !absl::SimpleAtoi(text, &out)) return std::nullopt;
  return out;
}

absl::string_view View(std::string_view text) { return {text.data(), text.size()}; }

}  // namespace

std::string JournalName(uint64_t sequence) { return absl::StrFormat("journal-%016d%s", sequence, View(kJournalExtension)); }

std::string StateName(uint64_t sequence, uint64_t position) {
  return absl::StrFormat("state-%016d-%016d%s", sequence, position, View(kStateExtension));
}

std::optional<uint64_t> SequenceOfJournal(const std::filesystem::path& path) {
  const std::string name = path.filename().string();
  absl::string_view text = name;
  if (!absl::ConsumePrefix(&text, "journal-") || !absl::ConsumeSuffix(&text, View(kJournalExtension))) return std::nullopt;
  return NumberOf(text);
}

std::optional<StateFileName> StateOfFile(const std::filesystem::path& path) {
  const std::string name = path.filename().string();
  absl::string_view text = name;
  if (!absl::ConsumePrefix(&text, "state-") || !absl::ConsumeSuffix(&text, View(kStateExtension))) return std::nullopt;
  if (text.size() != 2 * kDigits + 1 || text[kDigits] != '-') return std::nullopt;
  const std::optional<uint64_t> sequence = NumberOf(text.substr(0, kDigits));
  const std::optional<uint64_t> position = NumberOf(text.substr(kDigits + 1));
  if (!sequence || !position) return std::nullopt;
  return StateFileName{*sequence, *position};
}

}  // namespace palpate::record
