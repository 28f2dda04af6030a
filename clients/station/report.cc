#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "clients/station/station.h"

namespace palpate::station {
namespace {

double MeanForce(const LoopStatistics& statistics) {
  const uint64_t cycles = statistics.contact_cycles.load();
  return cycles == 0 ? 0 : statistics.force_sum_n.load() / static_cast<double>(cycles);
}

}  // namespace

std::string ReportToJson(const StationReport& report) {
  const LoopStatistics& statistics = *report.statistics;
  const SafetyCounters& safety = report.safety->counters();
  const uint64_t cycles = statistics.cycles.load();
  nlohmann::ordered_json json;
  json["cycles"] = cycles;
  json["rate_hz"] = report.elapsed_s > 0 ? static_cast<double>(cycles) / report.elapsed_s : 0;
  json["jitter_us"] = {{"p50", statistics.lateness_us.Percentile(0.5)},
                       {"p99", statistics.lateness_us.Percentile(0.99)},
                       {"p999", statistics.lateness_us.Percentile(0.999)},
                       {"max", statistics.lateness_us.max()}};
  json["missed"] = statistics.missed.load();
  json["model_age_ms"] = {{"p50", statistics.model_age_ms.Percentile(0.5)},
                          {"p99", statistics.model_age_ms.Percentile(0.99)},
                          {"max", statistics.model_age_ms.max()}};
  json["silence_max_s"] = statistics.silence_max_s.load();
  json["contact_cycles"] = statistics.contact_cycles.load();
  json["force_n"] = {{"mean", MeanForce(statistics)}, {"max", statistics.force_max_n.load()}};
  json["cycle_us"] = {
      {"p50", statistics.cycle_us.Percentile(0.5)}, {"p99", statistics.cycle_us.Percentile(0.99)}, {"max", statistics.cycle_us.max()}};
  json["elapsed_s"] = report.elapsed_s;
  json["device"] = report.device;
  json["models_received"] = report.models_received;
  json["models_refused"] = report.models_refused;
  json["models_taken"] = statistics.models_taken.load();
  json["outside_validity_cycles"] = statistics.outside_validity.load();
  json["poses_sent"] = report.poses_sent;
  json["attachments"] = report.attachments;
  json["reconnects"] = report.attachments > 0 ? report.attachments - 1 : 0;
  json["tool"] = {{"touching_s", report.tool.touching_s},
                  {"grasping_s", report.tool.grasping_s},
                  {"cutting_s", report.tool.cutting_s},
                  {"blocked_s", report.tool.blocked_s},
                  {"expired_s", report.tool.expired_s},
                  {"removed_mass_kg", report.tool.removed_mass_kg},
                  {"max_grasp_force_n", report.tool.max_grasp_force_n}};
  json["sent"] = {{"pedal_poses", report.sent.pedal_poses},
                  {"pedal_presses", report.sent.pedal_presses},
                  {"power_w", report.sent.power_w},
                  {"duty", report.sent.duty},
                  {"jaw_closings", report.sent.jaw_closings},
                  {"jaw_angle_rad", {{"min", report.sent.min_jaw_angle_rad}, {"max", report.sent.max_jaw_angle_rad}}}};
  json["device_limited_ticks"] = report.device_limited_ticks;
  json["real_time"] = {
      {"priority", report.real_time.priority}, {"note", report.real_time.priority_note}, {"memory", report.real_time.memory}};
  json["safety"] = {{"nan_ticks", safety.nan_ticks.load()},
                    {"stale_ticks", safety.stale_ticks.load()},
                    {"stale_events", safety.stale_events.load()},
                    {"ramp_ticks", safety.ramp_ticks.load()},
                    {"passivity_ticks", safety.passivity_ticks.load()},
                    {"force_limited_ticks", safety.force_limited_ticks.load()},
                    {"slew_limited_ticks", safety.slew_limited_ticks.load()},
                    {"min_energy_j", safety.min_energy_j.load()}};
  return json.dump(2) + "\n";
}

std::string LiveLine(const StationReport& report, double rate_hz, double models_per_s, bool attached) {
  const LoopStatistics& statistics = *report.statistics;
  std::string tool;
  if (!report.tool.doing.empty()) absl::StrAppend(&tool, "  ", report.tool.doing);
  if (report.tool.removed_mass_kg > 0) absl::StrAppendFormat(&tool, "  removed %.2f g", report.tool.removed_mass_kg * 1e3);
  return absl::StrFormat(
      "%6.0f s  %s  loop %6.1f Hz  jitter p50 %.0f p99 %.0f max %.0f us  missed %d  models %.0f/s  age p50 %.1f p99 %.1f ms  force %.2f N "
      "(max %.2f)%s",
      report.elapsed_s, attached ? "attached" : "waiting ", rate_hz, statistics.lateness_us.Percentile(0.5),
      statistics.lateness_us.Percentile(0.99), statistics.lateness_us.max(), statistics.missed.load(), models_per_s,
      statistics.model_age_ms.Percentile(0.5), statistics.model_age_ms.Percentile(0.99), statistics.force_now_n.load(),
      statistics.force_max_n.load(), tool);
}

}  // namespace palpate::station
