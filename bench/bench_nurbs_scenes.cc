// How fast the example scenes with exact surfaces and joints run, for the nine seconds of the source of docs/algorithms/nurbs.md: the whole
// step of a world, without a server. Above 1 they keep up with the clock.
#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "bench/bench_support.h"
#include "bench/kernel_times.h"
#include "gpu/runtime/context.h"
#include "sim/scene/asset_resolver.h"
#include "sim/scene/scene_spec.h"
#include "sim/world/world.h"

ABSL_FLAG(std::string, scenes, "scenes", "folder of the scenes");
ABSL_FLAG(double, seconds, 9, "simulated time of each scene");

namespace palpate::bench {
namespace {

constexpr const char* kScenes[] = {"nurbs-drop", "nurbs-swing",   "nurbs-sheet", "nurbs-drape", "nurbs-bladder", "nurbs-vessel",
                                   "nurbs-sewn", "nurbs-hammock", "cradle",      "door",        "chain"};

absl::StatusOr<sim::SceneDescription> Load(const std::filesystem::path& folder, const std::string& name) {
  const std::filesystem::path path = folder / absl::StrCat(name, ".json");
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  if (!file) return absl::NotFoundError(absl::StrCat(path.string(), ": cannot be read"));
  PALPATE_ASSIGN_OR_RETURN(const v1::SceneSpec spec, scene::ParseSceneJson(text.str(), path.string()));
  return scene::BuildSceneDescription(spec, scene::SceneFolderResolver(folder), {});
}

absl::Status Measure(const std::shared_ptr<gpu::Context>& context, const std::string& name, Report& report) {
  PALPATE_ASSIGN_OR_RETURN(const sim::SceneDescription scene, Load(absl::GetFlag(FLAGS_scenes), name));
  PALPATE_ASSIGN_OR_RETURN(const std::unique_ptr<sim::World> world, sim::World::Create(context, scene));
  const std::vector<const sim::ToolCommand*> idle(scene.tools.size(), nullptr);
  const double seconds = IsQuick() ? 1 : absl::GetFlag(FLAGS_seconds);
  const auto steps = static_cast<uint64_t>(seconds / scene.dt_s);
  Samples samples;
  double kinetic_j = 0;
  uint64_t late = 0;
  for (uint64_t i = 0; i < steps; ++i) {
    const Stopwatch stopwatch;
    PALPATE_ASSIGN_OR_RETURN(const std::shared_ptr<const sim::Frame> frame, world->Step(idle));
    const Times times = stopwatch.Elapsed();
    samples.Add(times);
    kinetic_j = std::max(kinetic_j, frame->kinetic_energy_j);
    late += times.wall_s > scene.dt_s ? 1 : 0;
  }
  double wall_s = 0;
  for (const double s : samples.wall_s) wall_s += s;
  report.Add(name, "speed", static_cast<double>(steps) * scene.dt_s / wall_s, "ratio");
  report.Add(name, "step_p50", Quantile(samples.wall_s, 0.5), "s");
  report.Add(name, "step_p99", Quantile(samples.wall_s, 0.99), "s");
  report.Add(name, "step_cpu_p50", Quantile(samples.cpu_s, 0.5), "s");
  report.Add(name, "late_steps", static_cast<double>(late) / static_cast<double>(steps), "ratio");
  report.Add(name, "kinetic_energy_most", kinetic_j, "J");
  report.Add(name, "kinetic_energy_end", world->CurrentFrame()->kinetic_energy_j, "J");
  report.Add(name, "max_speed_end", world->CurrentFrame()->max_speed_m_per_s, "m/s");
  return absl::OkStatus();
}

int Main() {
  auto context = gpu::Context::Create({.device = DeviceSelector(), .time_one_in = TimedLaunches()});
  Report report("nurbs_scenes", context.ok() ? gpu::DescribeDevice((*context)->device()) : "none");
  if (!context.ok()) return report.Finish(context.status());
  absl::Status status;
  for (const char* const name : kScenes) {
    if (status.ok() && IsSelected(name)) status = Measure(*context, name, report);
  }
  report.Note("speed: simulated time over wall time; late_steps: share of steps that took longer than they simulate. Tools rest.");
  NoteKernels(**context, &report);
  return report.Finish(status);
}

}  // namespace
}  // namespace palpate::bench

int main(int argc, char** argv) {
  palpate::bench::Initialize(argc, argv, "How fast the example scenes with exact surfaces and joints run.");
  return palpate::bench::Main();
}
