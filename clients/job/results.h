#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "clients/job/durable_file.h"
#include "clients/job/job_file.h"
#include "palpate/v1/job.pb.h"
#include "sim/export/frame_export.h"
#include "sim/probe/probe_set.h"

namespace palpate::job {

/// The shortest text that is read back to the same number; independent of the locale. NaN and infinities are empty.
std::string NumberText(double value);
/// A field of a CSV file (RFC 4180).
std::string CsvField(std::string_view text);
/// Name and unit of a column.
std::string ColumnTitle(const sim::ProbeColumn& column);

/// What a job writes while it runs: the table of probes, files of geometry; and what it knows of each column at the end.
class JobResults {
 public:
  /// Errors: those of the probes; NotFound (a body of the geometry).
  static absl::StatusOr<JobResults> Make(const LoadedJob& loaded, const sim::SceneDescription& scene);

  /// Begins anew in a folder; what an earlier job left there goes.
  absl::Status Begin(const std::filesystem::path& folder);
  /// Goes on: files are cut back to where they were. Errors: DataLoss (they are shorter), those of files.
  absl::Status Resume(const std::filesystem::path& folder, const v1::JobState& state, double time_s);
  /// A frame, the world's newest. Only those that are due leave something.
  absl::Status Add(const sim::Frame& frame, sim::World& world);
  /// Where this is. All that was written so far is on the disk then.
  absl::Status Save(v1::JobState* state);
  /// The job has failed: rows and frames so far are on the disk, the table as kPartialTable.
  absl::Status Keep();
  static constexpr const char* kPartialTable = "probes.csv.part";
  /// The files in their places. `frame`: the last one.
  absl::Status Finish(const sim::Frame& frame, sim::World& world);

  const std::vector<sim::ProbeColumn>& columns() const { return probes_.columns(); }
  /// [column], with the last frame's value after Finish.
  const std::vector<v1::JobColumn>& statistics() const { return statistics_; }
  /// Names of the files in the folder that do not change from run to run.
  const std::vector<std::string>& files() const { return files_; }

 private:
  struct Geometry {
    sim::FrameSeries::Options options;
    uint64_t interval_steps = 1;
    std::optional<sim::FrameSeries> series;
    uint32_t count = 0;
  };
  absl::Status AddRow(const sim::Frame& frame, const sim::World& world);
  absl::Status AddGeometry(const sim::Frame& frame, sim::World& world);
  std::filesystem::path PartialTable() const { return folder_ / kPartialTable; }

  sim::ProbeSet probes_;
  std::vector<double> values_;
  std::vector<v1::JobColumn> statistics_;
  uint64_t interval_steps_ = 1;
  std::optional<Geometry> geometry_;
  std::filesystem::path folder_;
  GrowingFile table_;
  std::vector<std::string> files_;
};

}  // namespace palpate::job
