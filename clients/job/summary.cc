#include "clients/job/summary.h"

#include <unistd.h>

#include <array>
#include <cmath>

#include <nlohmann/json.hpp>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "clients/job/build_info.h"
#include "gpu/base/status.h"

namespace palpate::job {
namespace {

using nlohmann::ordered_json;

ordered_json Number(double value) { return std::isfinite(value) ? ordered_json(value) : ordered_json(nullptr); }

ordered_json ColumnJson(const sim::ProbeColumn& column, const v1::JobColumn& statistics) {
  ordered_json json = {{"name", column.name}, {"unit", column.unit}, {"final", Number(statistics.last())}, {"count", statistics.count()}};
  if (column.is_wall_clock) json["wall_clock"] = true;
  if (statistics.count() == 0) return json;
  json["min"] = statistics.min();
  json["min_time_s"] = statistics.min_time_s();
  json["max"] = statistics.max();
  json["max_time_s"] = statistics.max_time_s();
  json["mean"] = Number((statistics.sum() + statistics.compensation()) / static_cast<double>(statistics.count()));
  return json;
}

ordered_json ProvenanceOf(const SummaryFacts& facts) {
  std::array<char, 256> host{};
  (void)gethostname(host.data(), host.size() - 1);
  return {{"program", "palpate"},
          {"version", kVersion},
          {"commit", kBuildCommit},
          {"command", facts.command},
          {"host", host.data()},
          {"devices", facts.devices},
          {"begun", facts.begun},
          {"ended", facts.ended},
          {"wall_s", facts.wall_s},
          {"interruptions", facts.interruptions},
          {"programs_compiled", facts.programs_compiled}};
}

}  // namespace

std::string UtcNow() { return absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", absl::Now(), absl::UTCTimeZone()); }

absl::StatusOr<std::string> MakeSummary(const LoadedJob& loaded, const SummaryFacts& facts, const JobResults& results,
                                        const sim::World* world, const std::filesystem::path& folder) {
  ordered_json summary = {{"format", 1},
                          {"name", NameOf(loaded.job, loaded.file)},
                          {"status", facts.status},
                          {"reason", facts.reason},
                          {"detail", facts.detail}};
  if (world != nullptr) {
    const std::shared_ptr<const sim::Frame> frame = world->CurrentFrame();
    summary["steps"] = frame->step;
    summary["sim_time_s"] = frame->sim_time_s;
    summary["state_hash"] = absl::StrFormat("%016x", frame->state_hash);
    summary["topology_version"] = frame->topology_version;
    summary["bodies"] = frame->topology->bodies.size();
  }
  summary["edits"] = facts.edit_count;
  summary["mass_removed_by_edits_kg"] = facts.removed_mass_kg;
  summary["seed"] = loaded.job.seed();
  summary["job_hash"] = loaded.hash;
  summary["inputs"] = ordered_json::array();
  for (const InputFile& input : loaded.inputs) {
    summary["inputs"].push_back({{"file", input.name}, {"bytes", input.size_bytes}, {"sha256", input.hash}});
  }
  summary["outputs"] = ordered_json::array();
  for (const std::string& file : results.files()) {
    PALPATE_ASSIGN_OR_RETURN(const std::string hash, record::Sha256OfFile(folder / file));
    summary["outputs"].push_back({{"file", file}, {"sha256", hash}});
  }
  summary["probes"] = ordered_json::array();
  for (size_t c = 0; c < results.columns().size(); ++c) {
    summary["probes"].push_back(ColumnJson(results.columns()[c], results.statistics()[c]));
  }
  summary["provenance"] = ProvenanceOf(facts);
  return summary.dump(2, ' ', false, ordered_json::error_handler_t::replace) + '\n';
}

}  // namespace palpate::job
