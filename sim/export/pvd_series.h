#pragma once

#include <filesystem>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gpu/base/status.h"

namespace palpate::sim {

/// One file of a moment of a series.
struct PvdPart {
  std::string name;            ///< of the part, for instance a body's
  std::filesystem::path file;  ///< as the collection names it: relative to the folder of the collection
};

/// A collection of files by time (.pvd), which ParaView opens as one animation. The file is complete after each call, and replaced as a
/// whole: a process that is killed leaves one that opens. Writing costs O(entries), memory about 100 bytes an entry.
class PvdSeries {
 public:
  /// Writes an empty collection. Errors: as FileSink.
  static absl::StatusOr<PvdSeries> Create(std::filesystem::path path);
  /// Goes on with a collection that this class wrote, without its moments from `before_s` on. Errors: NotFound, InvalidArgument (not such a
  /// file; names the line), ResourceExhausted (over 256 MiB).
  static absl::StatusOr<PvdSeries> Resume(std::filesystem::path path, double before_s = std::numeric_limits<double>::infinity());

  /// A moment with its files, which exist by now. Errors: InvalidArgument (a time that is not finite or not above the last), as FileSink.
  absl::Status Add(double time_s, std::span<const PvdPart> parts);

  const std::filesystem::path& path() const { return path_; }
  size_t moment_count() const { return moment_count_; }

  /// The entries of a collection in memory. `name` appears in errors.
  struct Entry {
    double time_s = 0;
    uint32_t part = 0;
    std::string name, file;
    bool operator==(const Entry&) const = default;
  };
  static absl::StatusOr<std::vector<Entry>> Parse(std::string_view text, std::string_view name);

 private:
  explicit PvdSeries(std::filesystem::path path) : path_(std::move(path)) {}
  void Append(const Entry& entry);
  absl::Status Write() const;

  std::filesystem::path path_;
  std::string entries_;  // as text
  double last_s_ = -std::numeric_limits<double>::infinity();
  size_t moment_count_ = 0;
};

}  // namespace palpate::sim
