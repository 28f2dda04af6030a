#include "clients/job/tasks.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <thread>
#include <utility>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "clients/job/build_info.h"
#include "clients/job/durable_file.h"
#include "clients/job/job_state.h"
#include "clients/job/json_text.h"
#include "clients/job/results.h"
#include "clients/job/sweep.h"
#include "gpu/base/status.h"

namespace palpate::job {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

constexpr uint32_t kManifestFormat = 1;
constexpr const char* kManifest = "manifest.json";
constexpr const char* kTaskFile = "job.json";

/// Writes a file unless it has this content.
absl::Status KeepFile(const fs::path& path, const std::string& content) {
  const auto present = record::ReadWholeFile(path, kMaxTextBytes);
  if (present.ok() && *present == content) return absl::OkStatus();
  return WriteDurably(path, content);
}

/// The path from one folder to another, for files that are moved together.
std::string PathBetween(const fs::path& from, const fs::path& to) {
  const fs::path target = fs::weakly_canonical(to.empty() ? fs::path(".") : to);
  const std::string path = target.lexically_relative(fs::weakly_canonical(from)).string();
  return path.empty() ? target.string() : path;
}

}  // namespace

absl::StatusOr<v1::SweepManifest> ExpandSweep(const v1::Job& job, const fs::path& file, const fs::path& folder) {
  PALPATE_ASSIGN_OR_RETURN(const SweepPlan plan, PlanSweep(job, file));
  v1::SweepManifest manifest;
  manifest.set_format(kManifestFormat);
  manifest.set_name(NameOf(job, file));
  manifest.set_version(kVersion);
  for (const std::string& field : plan.fields) manifest.add_fields(field);
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) return absl::FailedPreconditionError(absl::StrCat(folder.string(), ": cannot be made: ", error.message()));
  std::vector<std::string> texts;
  for (size_t t = 0; t < plan.tasks.size(); ++t) {
    v1::Job own = JobOfTask(job, plan, t);
    own.set_name(manifest.name());
    own.set_folder(PathBetween(folder / TaskId(t), FolderOf(job, file)));
    texts.push_back(JsonOfMessage(own));
    v1::SweepTask& task = *manifest.add_tasks();
    task.set_index(static_cast<uint32_t>(t));
    task.set_id(TaskId(t));
    task.mutable_values()->Add(plan.tasks[t].values.begin(), plan.tasks[t].values.end());
    task.set_seed(plan.tasks[t].seed);
    task.set_hash(record::Sha256(texts.back()));
  }
  const std::string text = JsonOfMessage(manifest);
  const auto present = record::ReadWholeFile(folder / kManifest, kMaxTextBytes);
  if (present.ok() && *present != text) {
    return absl::FailedPreconditionError(
        absl::StrCat(folder.string(), ": holds the tasks of another sweep, or of this one before it was changed; give another folder"));
  }
  for (size_t t = 0; t < texts.size(); ++t) {
    const fs::path own = folder / TaskId(t);
    fs::create_directories(own, error);
    if (error) return absl::FailedPreconditionError(absl::StrCat(own.string(), ": cannot be made: ", error.message()));
    PALPATE_RETURN_IF_ERROR(KeepFile(own / kTaskFile, texts[t]));
  }
  // Last: where it is, all tasks are.
  PALPATE_RETURN_IF_ERROR(KeepFile(folder / kManifest, text));
  return manifest;
}

absl::StatusOr<v1::SweepManifest> ReadManifest(const fs::path& folder) {
  const fs::path file = folder / kManifest;
  auto text = ReadJsonFile(file, "a manifest");
  if (!text.ok()) return Annotate(text.status(), "no tasks (`palpate job expand` makes them)");
  v1::SweepManifest manifest;
  PALPATE_RETURN_IF_ERROR(ParseJsonMessage(*text, file.string(), &manifest));
  if (manifest.format() != kManifestFormat) {
    return absl::FailedPreconditionError(absl::StrCat(file.string(), ": format: ", manifest.format(), " is not ", kManifestFormat));
  }
  for (int t = 0; t < manifest.tasks_size(); ++t) {
    if (manifest.tasks(t).id() == TaskId(static_cast<uint64_t>(t)) && manifest.tasks(t).values_size() == manifest.fields_size()) continue;
    return absl::InvalidArgumentError(absl::StrCat(file.string(), ": tasks[", t, "]: does not belong there"));
  }
  return manifest;
}

namespace {

/// Threads that take tasks from one list.
class TaskCrew {
 public:
  TaskCrew(const v1::SweepManifest& manifest, const std::vector<uint32_t>& tasks, const TaskOptions& options)
      : manifest_(manifest), tasks_(tasks), options_(options) {}

  TaskOutcomes Run() {
    std::vector<std::thread> threads;
    const size_t count = std::min<size_t>(std::max(1U, options_.workers), tasks_.size());
    for (size_t w = 1; w < count; ++w) threads.emplace_back([this] { Work(); });
    Work();
    for (std::thread& thread : threads) thread.join();
    outcomes_.not_begun = tasks_.size() - done_;
    return outcomes_;
  }

 private:
  void Work() {
    while (!options_.run.is_interrupted || !options_.run.is_interrupted()) {
      const size_t at = next_.fetch_add(1);
      if (at >= tasks_.size()) return;
      Finish(tasks_[at], RunOne(tasks_[at]));
    }
  }

  absl::StatusOr<RunOutcome> RunOne(uint32_t task) {
    const v1::SweepTask& entry = manifest_.tasks(static_cast<int>(task));
    const fs::path folder = options_.run.folder / entry.id();
    const fs::path file = folder / kTaskFile;
    PALPATE_ASSIGN_OR_RETURN(const std::string text, record::ReadWholeFile(file, kMaxTextBytes));
    if (record::Sha256(text) != entry.hash()) return absl::DataLossError(absl::StrCat(file.string(), ": is not the file of the manifest"));
    PALPATE_ASSIGN_OR_RETURN(v1::Job job, ReadJobFile(file));
    PALPATE_ASSIGN_OR_RETURN(const LoadedJob loaded, LoadJob(std::move(job), file));
    RunOptions run = options_.run;
    run.folder = folder;
    if (run.on_note) {
      run.on_note = [this, &entry](const std::string& note) {
        const std::lock_guard lock(mutex_);
        options_.run.on_note(absl::StrCat(entry.id(), ": ", note));
      };
    }
    if (run.on_progress) {
      run.on_progress = [this](const JobProgress& progress) {
        const std::lock_guard lock(mutex_);
        options_.run.on_progress(progress);
      };
    }
    return RunJob(loaded, run);
  }

  void Finish(uint32_t task, const absl::StatusOr<RunOutcome>& outcome) {
    const std::lock_guard lock(mutex_);
    ++done_;
    const absl::Status failure = outcome.ok() ? outcome->failure : outcome.status();
    std::string told;
    if (!failure.ok()) {
      ++outcomes_.failed;
      told = absl::StrCat("failed: ", failure.message());
      outcomes_.failures[task] = std::string(failure.message());
    } else if (outcome->end == RunEnd::kEnded) {
      ++outcomes_.ended;
      told = absl::StrCat("ended at step ", outcome->step, " (", outcome->reason, ")");
    } else if (outcome->end == RunEnd::kWasDone) {
      ++outcomes_.were_done;
      told = "was done";
    } else {
      ++outcomes_.interrupted;
      told = absl::StrCat("interrupted at step ", outcome->step);
    }
    if (options_.on_task) options_.on_task(task, told, done_, tasks_.size());
  }

  const v1::SweepManifest& manifest_;
  const std::vector<uint32_t>& tasks_;
  const TaskOptions& options_;
  std::atomic<size_t> next_{0};
  std::mutex mutex_;  // of those below, and of what the options call
  size_t done_ = 0;
  TaskOutcomes outcomes_;
};

/// A cell of the table: texts as they are, everything else as JSON.
std::string Cell(const ordered_json& value) {
  if (value.is_null()) return "";
  if (value.is_number_float()) return NumberText(value.get<double>());
  return CsvField(value.is_string() ? value.get<std::string>() : value.dump());
}

/// Puts tasks together, row by row.
class TableMaker {
 public:
  explicit TableMaker(const v1::SweepManifest& manifest) : manifest_(manifest) {}

  absl::Status Read(const fs::path& folder, Collection* collection) {
    for (const v1::SweepTask& task : manifest_.tasks()) {
      const fs::path file = folder / task.id() / "summary.json";
      const auto text = record::ReadWholeFile(file, kMaxTextBytes);
      ordered_json summary;
      if (text.ok()) {
        summary = ordered_json::parse(*text, nullptr, /*allow_exceptions=*/false);
        if (!IsSummary(summary)) return absl::DataLossError(absl::StrCat(file.string(), ": is not the summary of a job"));
        if (summary["status"] != "ended") collection->failed.push_back(absl::StrCat(task.id(), ": ", summary["detail"].get<std::string>()));
      } else if (!absl::IsNotFound(text.status())) {
        return text.status();
      } else {
        collection->missing.push_back(task.id() + (HasJobState(folder / task.id()) ? " (interrupted)" : ""));
      }
      NoteColumns(summary);
      summaries_.push_back(std::move(summary));
    }
    return absl::OkStatus();
  }

  std::string Write() const {
    std::string csv = "task,status";
    for (const std::string& field : manifest_.fields()) absl::StrAppend(&csv, ",", CsvField(field));
    csv += ",seed,reason,steps,time [s],state_hash";
    for (const sim::ProbeColumn& column : columns_) {
      for (const char* kind : {"final", "min", "max", "mean"}) {
        const sim::ProbeColumn titled{absl::StrCat(column.name, ".", kind), column.unit, false};
        absl::StrAppend(&csv, ",", CsvField(ColumnTitle(titled)));
      }
    }
    csv += "\n";
    for (int t = 0; t < manifest_.tasks_size(); ++t) AddRow(manifest_.tasks(t), summaries_[static_cast<size_t>(t)], &csv);
    return csv;
  }

 private:
  static bool IsSummary(const ordered_json& json) {
    const auto has_text = [](const ordered_json& object, const char* key) { return object.contains(key) && object[key].is_string(); };
    if (!json.is_object() || !has_text(json, "status") || !has_text(json, "detail")) return false;
    if (!json.contains("probes") || !json["probes"].is_array()) return false;
    return std::all_of(json["probes"].begin(), json["probes"].end(), [&has_text](const ordered_json& probe) {
      return probe.is_object() && has_text(probe, "name") && has_text(probe, "unit") &&
             (!probe.contains("wall_clock") || probe["wall_clock"].is_boolean());
    });
  }

  void NoteColumns(const ordered_json& summary) {
    if (!summary.is_object()) return;
    for (const ordered_json& probe : summary["probes"]) {
      if (probe.value("wall_clock", false)) continue;
      const std::string name = probe.value("name", "");
      if (places_.emplace(name, columns_.size()).second) columns_.push_back({name, probe.value("unit", ""), false});
    }
  }

  void AddRow(const v1::SweepTask& task, const ordered_json& summary, std::string* csv) const {
    const bool is_there = summary.is_object();
    absl::StrAppend(csv, task.id(), ",", is_there ? Cell(summary["status"]) : "missing");
    for (const google::protobuf::Value& value : task.values()) {
      absl::StrAppend(csv, ",", Cell(ordered_json::parse(JsonOfMessage(value), nullptr, false)));
    }
    absl::StrAppend(csv, ",", task.seed());
    for (const char* key : {"reason", "steps", "sim_time_s", "state_hash"}) {
      absl::StrAppend(csv, ",", is_there && summary.contains(key) ? Cell(summary[key]) : "");
    }
    std::vector<std::string> cells(4 * columns_.size());
    if (is_there) {
      for (const ordered_json& probe : summary["probes"]) {
        const auto place = places_.find(probe.value("name", ""));
        if (place == places_.end()) continue;
        size_t at = 4 * place->second;
        for (const char* kind : {"final", "min", "max", "mean"}) {
          if (probe.contains(kind)) cells[at] = Cell(probe[kind]);
          ++at;
        }
      }
    }
    for (const std::string& cell : cells) absl::StrAppend(csv, ",", cell);
    *csv += "\n";
  }

  const v1::SweepManifest& manifest_;
  std::vector<ordered_json> summaries_;
  std::vector<sim::ProbeColumn> columns_;
  std::map<std::string, size_t> places_;
};

}  // namespace

TaskOutcomes RunTasks(const v1::SweepManifest& manifest, const std::vector<uint32_t>& tasks, const TaskOptions& options) {
  return TaskCrew(manifest, tasks, options).Run();
}

absl::StatusOr<Collection> CollectTasks(const fs::path& folder) {
  PALPATE_ASSIGN_OR_RETURN(const v1::SweepManifest manifest, ReadManifest(folder));
  Collection collection;
  TableMaker maker(manifest);
  PALPATE_RETURN_IF_ERROR(maker.Read(folder, &collection));
  collection.csv = maker.Write();
  return collection;
}

}  // namespace palpate::job
