#include "sim/export/pvd_series.h"

#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <memory>
#include <optional>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "sim/export/byte_sink.h"
#include "sim/export/xml_text.h"

namespace palpate::sim {
namespace {

constexpr uint64_t kMaxBytes = uint64_t{256} << 20;
constexpr std::string_view kHead = "<?xml version=\"1.0\"?>\n<VTKFile type=\"Collection\" version=\"0.1\">\n  <Collection>\n";
constexpr std::string_view kTail = "  </Collection>\n</VTKFile>\n";

/// Takes `before`, a value and the quotation mark that ends it from the front of a line.
std::optional<std::string_view> TakeAttribute(std::string_view before, std::string_view* line) {
  if (!line->starts_with(before)) return std::nullopt;
  line->remove_prefix(before.size());
  const size_t end = line->find('"');
  if (end == std::string_view::npos) return std::nullopt;
  const std::string_view value = line->substr(0, end);
  line->remove_prefix(end + 1);
  return value;
}

template <typename T>
bool ParseNumber(std::string_view text, T* value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value);
  return error == std::errc() && end == text.data() + text.size();
}

absl::StatusOr<PvdSeries::Entry> ParseEntry(std::string_view line) {
  const auto time = TakeAttribute("    <DataSet timestep=\"", &line);
  const auto part = TakeAttribute(" group=\"\" part=\"", &line);
  const auto name = TakeAttribute(" name=\"", &line);
  const auto file = TakeAttribute(" file=\"", &line);
  if (!time || !part || !name || !file || line != "/>") {
    return absl::InvalidArgumentError("not an entry as this program writes them");
  }
  PvdSeries::Entry entry;
  if (!ParseNumber(*time, &entry.time_s) || !std::isfinite(entry.time_s))
    return absl::InvalidArgumentError("timestep is not a finite number");
  if (!ParseNumber(*part, &entry.part)) return absl::InvalidArgumentError("part is not a 32-bit number");
  PALPATE_ASSIGN_OR_RETURN(entry.name, FromXmlText(*name));
  PALPATE_ASSIGN_OR_RETURN(entry.file, FromXmlText(*file));
  return entry;
}

absl::StatusOr<std::string> ReadAll(const std::filesystem::path& path) {
  std::error_code error;
  const uintmax_t size = std::filesystem::file_size(path, error);
  if (error) return absl::ErrnoToStatus(error.value(), absl::StrCat("cannot read ", path.string()));
  if (size > kMaxBytes) {
    return absl::ResourceExhaustedError(absl::StrFormat("%s: %d bytes are more than the limit of %d", path.string(), size, kMaxBytes));
  }
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"), &std::fclose);
  if (file == nullptr) return absl::ErrnoToStatus(errno, absl::StrCat("cannot read ", path.string()));
  std::string bytes(size, '\0');
  bytes.resize(std::fread(bytes.data(), 1, bytes.size(), file.get()));
  return bytes;
}

}  // namespace

absl::StatusOr<PvdSeries> PvdSeries::Create(std::filesystem::path path) {
  PvdSeries series(std::move(path));
  PALPATE_RETURN_IF_ERROR(series.Write());
  return series;
}

absl::StatusOr<PvdSeries> PvdSeries::Resume(std::filesystem::path path, double before_s) {
  PALPATE_ASSIGN_OR_RETURN(const std::string text, ReadAll(path));
  PALPATE_ASSIGN_OR_RETURN(const std::vector<Entry> entries, Parse(text, path.string()));
  PvdSeries series(std::move(path));
  for (const Entry& entry : entries) {
    if (entry.time_s >= before_s) break;
    series.Append(entry);
  }
  PALPATE_RETURN_IF_ERROR(series.Write());
  return series;
}

absl::Status PvdSeries::Add(double time_s, std::span<const PvdPart> parts) {
  if (!std::isfinite(time_s) || time_s <= last_s_) {
    return absl::InvalidArgumentError(
        absl::StrCat(path_.string(), ": time ", time_s, " s is not finite or not above the last one, ", last_s_));
  }
  // A moment without files leaves no trace in the collection.
  if (parts.empty()) return absl::OkStatus();
  const size_t size_before = entries_.size();
  const double last_before_s = last_s_;
  for (uint32_t p = 0; p < parts.size(); ++p) Append({time_s, p, parts[p].name, parts[p].file.generic_string()});
  absl::Status status = Write();
  if (!status.ok()) {
    entries_.resize(size_before);
    last_s_ = last_before_s;
    --moment_count_;
  }
  return status;
}

absl::StatusOr<std::vector<PvdSeries::Entry>> PvdSeries::Parse(std::string_view text, std::string_view name) {
  if (!text.starts_with(kHead)) return absl::InvalidArgumentError(absl::StrCat(ToAbsl(name), ":1: not a collection of this program"));
  if (!text.ends_with(kTail) || text.size() < kHead.size() + kTail.size()) {
    return absl::InvalidArgumentError(absl::StrCat(ToAbsl(name), ": the end is missing, the file is cut off"));
  }
  std::string_view rest = text.substr(kHead.size(), text.size() - kHead.size() - kTail.size());
  std::vector<Entry> entries;
  for (size_t number = 4; !rest.empty(); ++number) {
    const size_t end = rest.find('\n');
    const std::string where = absl::StrCat(ToAbsl(name), ":", number);
    if (end == std::string_view::npos) return absl::InvalidArgumentError(absl::StrCat(where, ": the line has no end"));
    absl::StatusOr<Entry> entry = ParseEntry(rest.substr(0, end));
    if (!entry.ok()) return Annotate(entry.status(), where);
    if (!entries.empty() && entry->time_s < entries.back().time_s) {
      return absl::InvalidArgumentError(
          absl::StrCat(where, ": timestep ", entry->time_s, " is below the one before, ", entries.back().time_s));
    }
    entries.push_back(*std::move(entry));
    rest.remove_prefix(end + 1);
  }
  return entries;
}

void PvdSeries::Append(const Entry& entry) {
  if (entry.time_s > last_s_) ++moment_count_;
  last_s_ = entry.time_s;
  absl::StrAppend(&entries_, "    <DataSet timestep=\"", RealText(entry.time_s), "\" group=\"\" part=\"", entry.part, "\" name=\"");
  absl::StrAppend(&entries_, XmlText(entry.name), "\" file=\"", XmlText(entry.file), "\"/>\n");
}

absl::Status PvdSeries::Write() const {
  PALPATE_ASSIGN_OR_RETURN(FileSink file, FileSink::Create(path_));
  for (const std::string_view text : {kHead, std::string_view(entries_), kTail}) PALPATE_RETURN_IF_ERROR(file.Append(text));
  return file.Commit();
}

}  // namespace palpate::sim
