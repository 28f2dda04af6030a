#include "clients/job/results.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "clients/job/stop_rules.h"
#include "gpu/base/status.h"

namespace palpate::job {
namespace {

constexpr double kDefaultGeometryInterval_s = 1.0 / 30;
constexpr const char* kTable = "probes.csv";
constexpr const char* kGeometryStem = "geometry";

/// A value of the column at this time.
void Count(double value, double time_s, v1::JobColumn* column) {
  column->set_last(value);
  if (!std::isfinite(value)) return;
  if (column->count() == 0 || value < column->min()) {
    column->set_min(value);
    column->set_min_time_s(time_s);
  }
  if (column->count() == 0 || value > column->max()) {
    column->set_max(value);
    column->set_max_time_s(time_s);
  }
  column->set_count(column->count() + 1);
  // Neumaier's sum: the rounding errors are summed up on their own.
  const double sum = column->sum() + value;
  const bool is_small = std::abs(value) <= std::abs(column->sum());
  column->set_compensation(column->compensation() + (is_small ? (column->sum() - sum) + value : (value - sum) + column->sum()));
  column->set_sum(sum);
}

/// A frame that has the positions of all vertices, whatever the world was told before the step.
absl::StatusOr<std::shared_ptr<const sim::Frame>> WithVolumes(const sim::Frame& frame, sim::World& world) {
  auto copy = std::make_shared<sim::Frame>(frame);
  copy->volume_positions_m.clear();
  for (size_t b = 0; b < frame.topology->bodies.size(); ++b) {
    PALPATE_ASSIGN_OR_RETURN(std::vector<float> positions_m, world.ReadVolumePositions(b));
    copy->volume_positions_m.push_back(std::move(positions_m));
  }
  return copy;
}

}  // namespace

std::string NumberText(double value) {
  if (!std::isfinite(value)) return "";
  std::array<char, 32> text;
  const auto [end, error] = std::to_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() ? std::string(text.data(), end) : "";
}

std::string CsvField(std::string_view text) {
  if (text.find_first_of(",\"\r\n") == std::string_view::npos) return std::string(text);
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"') quoted += '"';
    quoted += c;
  }
  return quoted + '"';
}

std::string ColumnTitle(const sim::ProbeColumn& column) {
  return column.unit == "1" ? column.name : absl::StrCat(column.name, " [", column.unit, "]");
}

absl::StatusOr<JobResults> JobResults::Make(const LoadedJob& loaded, const sim::SceneDescription& scene) {
  JobResults results;
  const std::vector<std::string> paths(loaded.job.probes().begin(), loaded.job.probes().end());
  PALPATE_ASSIGN_OR_RETURN(results.probes_, sim::ProbeSet::Parse(paths, scene));
  results.values_.resize(results.columns().size());
  results.statistics_.resize(results.columns().size());
  const v1::JobOutputs& outputs = loaded.job.outputs();
  if (outputs.has_probe_interval_s()) results.interval_steps_ = StepsIn(outputs.probe_interval_s(), scene.dt_s);
  if (!outputs.has_geometry()) return results;
  Geometry& geometry = results.geometry_.emplace();
  geometry.interval_steps =
      StepsIn(outputs.geometry().has_interval_s() ? outputs.geometry().interval_s() : kDefaultGeometryInterval_s, scene.dt_s);
  geometry.options.has_volume = outputs.geometry().kind() == v1::JOB_GEOMETRY_KIND_VOLUME;
  geometry.options.has_surface = !geometry.options.has_volume;
  for (int b = 0; b < outputs.geometry().bodies_size(); ++b) {
    const std::string& name = outputs.geometry().bodies(b);
    if (std::none_of(scene.bodies.begin(), scene.bodies.end(), [&name](const auto& body) { return body.name == name; })) {
      return absl::NotFoundError(absl::StrCat("outputs.geometry.bodies[", b, "]: the scene has no body \"", name, "\""));
    }
    geometry.options.bodies.push_back(name);
  }
  return results;
}

absl::Status JobResults::Begin(const std::filesystem::path& folder) {
  folder_ = folder;
  std::error_code error;
  for (const char* old : {kTable, "policy.log"}) std::filesystem::remove(folder / old, error);
  if (!columns().empty()) {
    PALPATE_ASSIGN_OR_RETURN(table_, GrowingFile::Open(PartialTable(), 0));
    std::string header = "step,time [s]";
    for (const sim::ProbeColumn& column : columns()) absl::StrAppend(&header, ",", CsvField(ColumnTitle(column)));
    PALPATE_RETURN_IF_ERROR(table_.Append(header + "\n"));
  }
  if (geometry_) {
    PALPATE_ASSIGN_OR_RETURN(geometry_->series, sim::FrameSeries::Create(folder / kGeometryStem, geometry_->options));
  }
  return absl::OkStatus();
}

absl::Status JobResults::Resume(const std::filesystem::path& folder, const v1::JobState& state, double time_s) {
  folder_ = folder;
  if (!columns().empty()) {
    // Killed between the end of the table and that of the job.
    std::error_code error;
    if (!std::filesystem::exists(PartialTable(), error)) std::filesystem::rename(folder / kTable, PartialTable(), error);
    PALPATE_ASSIGN_OR_RETURN(table_, GrowingFile::Open(PartialTable(), state.table_bytes()));
  }
  if (static_cast<size_t>(state.columns_size()) != statistics_.size()) return absl::DataLossError("the checkpoint has other columns");
  std::copy(state.columns().begin(), state.columns().end(), statistics_.begin());
  if (!geometry_) return absl::OkStatus();
  geometry_->count = state.geometry_count();
  // Those of the checkpoint's own time stay.
  const double before_s = std::nextafter(time_s, std::numeric_limits<double>::infinity());
  PALPATE_ASSIGN_OR_RETURN(geometry_->series, sim::FrameSeries::Resume(folder / kGeometryStem, geometry_->options, before_s));
  return absl::OkStatus();
}

absl::Status JobResults::AddRow(const sim::Frame& frame, const sim::World& world) {
  probes_.Evaluate(frame, values_, &world);
  std::string row = absl::StrCat(frame.step, ",", NumberText(frame.sim_time_s));
  for (size_t c = 0; c < values_.size(); ++c) {
    Count(values_[c], frame.sim_time_s, &statistics_[c]);
    absl::StrAppend(&row, ",", NumberText(values_[c]));
  }
  return table_.Append(row + "\n");
}

absl::Status JobResults::AddGeometry(const sim::Frame& frame, sim::World& world) {
  std::shared_ptr<const sim::Frame> with_volumes;
  const sim::Frame* written = &frame;
  if (geometry_->options.has_volume) {
    PALPATE_ASSIGN_OR_RETURN(with_volumes, WithVolumes(frame, world));
    written = with_volumes.get();
  }
  std::vector<sim::BodyExtras> extras(frame.topology->bodies.size());
  for (size_t b = 0; b < extras.size(); ++b) extras[b].rest_positions_m = world.RestPositions(b);
  ++geometry_->count;
  return geometry_->series->Add(*written, extras);
}

absl::Status JobResults::Add(const sim::Frame& frame, sim::World& world) {
  if (!columns().empty() && frame.step % interval_steps_ == 0) PALPATE_RETURN_IF_ERROR(AddRow(frame, world));
  if (geometry_ && frame.step % geometry_->interval_steps == 0) PALPATE_RETURN_IF_ERROR(AddGeometry(frame, world));
  return absl::OkStatus();
}

absl::Status JobResults::Save(v1::JobState* state) {
  if (table_.is_open()) {
    PALPATE_RETURN_IF_ERROR(table_.Flush(true));
    state->set_table_bytes(table_.size_bytes());
  }
  for (const v1::JobColumn& column : statistics_) *state->add_columns() = column;
  if (geometry_) state->set_geometry_count(geometry_->count);
  return absl::OkStatus();
}

absl::Status JobResults::Keep() {
  absl::Status status;
  if (table_.is_open()) status = table_.Flush(true);
  if (geometry_ && geometry_->series) status.Update(geometry_->series->Finish());
  return status;
}

absl::Status JobResults::Finish(const sim::Frame& frame, sim::World& world) {
  if (!columns().empty()) {
    probes_.Evaluate(frame, values_, &world);
    for (size_t c = 0; c < values_.size(); ++c) statistics_[c].set_last(values_[c]);
    PALPATE_RETURN_IF_ERROR(table_.Flush(true));
    std::error_code error;
    std::filesystem::rename(PartialTable(), folder_ / kTable, error);
    if (error) return absl::FailedPreconditionError(absl::StrCat((folder_ / kTable).string(), ": ", error.message()));
    files_.emplace_back(kTable);
  }
  if (geometry_) {
    PALPATE_RETURN_IF_ERROR(geometry_->series->Finish());
    files_.push_back(absl::StrCat(kGeometryStem, geometry_->options.has_volume ? ".volume.pvd" : ".surface.pvd"));
  }
  return absl::OkStatus();
}

}  // namespace palpate::job
