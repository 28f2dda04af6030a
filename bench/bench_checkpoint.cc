// What keeping a running scene costs: checkpoints, and the journal of its steps. Of a liver with a probe on it, before and after it was
// cut.
#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "bench/bench_support.h"
#include "gpu/runtime/context.h"
#include "sim/mesh/generators.h"
#include "sim/record/journal_entries.h"
#include "sim/record/journal_file.h"
#include "sim/record/scene_journal.h"
#include "sim/record/state_folder.h"
#include "sim/world/world.h"

namespace palpate::bench {
namespace {

using Eigen::Vector3d;

constexpr double kLength_m = 0.2;
constexpr int kStepsBefore = 30;

absl::StatusOr<sim::SceneDescription> Liver(double tet_count) {
  sim::SceneDescription scene;
  sim::BodyDescription body;
  body.name = "liver";
  PALPATE_ASSIGN_OR_RETURN(body.mesh, sim::GenerateLiver(kLength_m, sim::LiverEdgeLengthForTets(kLength_m, tet_count)));
  double low = 1e9;
  double high = -1e9;
  for (const Vector3d& v : body.mesh.vertices) {
    low = std::min(low, v.z());
    high = std::max(high, v.z());
  }
  for (uint32_t v = 0; v < body.mesh.vertices.size(); ++v) {
    if (body.mesh.vertices[v].z() < low + 0.4 * (high - low)) body.fixed_vertices.push_back(v);
  }
  scene.bodies.push_back(std::move(body));
  sim::ToolDescription probe;
  probe.name = "probe";
  probe.rest_pose.position_m = {0, 0.03, high + 0.002};
  scene.tools.push_back(probe);
  return scene;
}

absl::Status Steps(sim::World& world, int count) {
  sim::ToolCommand command;
  command.device_pose = world.description().tools[0].rest_pose;
  command.device_pose.position_m.z() -= 0.008;
  const sim::ToolCommand* const commands[] = {&command};
  for (int i = 0; i < count; ++i) PALPATE_RETURN_IF_ERROR(world.Step(commands).status());
  return absl::OkStatus();
}

/// Steps as the server makes them when it keeps state: what a step was told and came to goes to a journal, whose threads write to disk.
class KeptSteps {
 public:
  static absl::StatusOr<std::unique_ptr<KeptSteps>> Begin(sim::World* world) {
    std::unique_ptr<KeptSteps> out(new KeptSteps(world));
    PALPATE_ASSIGN_OR_RETURN(out->folder_, record::TemporaryFolder::Create());
    PALPATE_ASSIGN_OR_RETURN(out->journal_, record::SceneJournal::Open({.folder = out->folder_->path()}, v1::JournalHead(), 0, 0));
    return out;
  }

  absl::Status Step() {
    sim::ToolCommand command;
    command.device_pose = world_->description().tools[0].rest_pose;
    command.device_pose.position_m.z() -= 0.008;
    const sim::ToolCommand* const commands[] = {&command};
    const record::ToolCommands at_start = record::CopyCommands(commands);
    PALPATE_RETURN_IF_ERROR(world_->Step(commands).status());
    Keep(at_start);
    return absl::OkStatus();
  }

  /// What the scene's thread does for one step besides the step.
  void Keep(const record::ToolCommands& commands) {
    v1::JournalEntry entry;
    entry.set_sequence(++sequence_);
    *entry.mutable_step() = record::EncodeStep(commands, commands, *world_->CurrentFrame());
    journal_->Append(std::make_shared<const std::string>(record::EncodeEntry(entry)), sequence_, sequence_, sequence_);
  }

 private:
  explicit KeptSteps(sim::World* world) : world_(world) {}
  sim::World* world_;
  std::unique_ptr<record::TemporaryFolder> folder_;
  std::unique_ptr<record::SceneJournal> journal_;
  uint64_t sequence_ = 0;
};

absl::Status Measure(const std::shared_ptr<gpu::Context>& context, const std::string& name, sim::World& world, Report* report) {
  absl::Status status;
  std::shared_ptr<const sim::WorldState> state;
  std::string bytes;
  const Times capture = MedianTimes([&] {
    auto captured = world.Capture();
    status.Update(captured.status());
    if (captured.ok()) state = *captured;
  });
  PALPATE_RETURN_IF_ERROR(status);
  const Times encode = MedianTimes([&] { bytes = sim::EncodeWorldState(*state); });
  const Times decode = MedianTimes([&] { status.Update(sim::DecodeWorldState(bytes).status()); });
  const Times restore = MedianTimes([&] { status.Update(sim::World::Restore(context, world.description(), *state).status()); },
                                    {.warmup_repetitions = 1, .min_repetitions = 3, .min_total_time_s = 0});
  // As a replay goes back: with what a world that is given up has, or in the world itself.
  std::unique_ptr<sim::World> replayed;
  const Times with_old = MedianTimes(
      [&] {
        auto next = sim::World::Restore(context, world.description(), *state, replayed.get());
        status.Update(next.status());
        if (next.ok()) replayed = *std::move(next);
      },
      {.warmup_repetitions = 2, .min_repetitions = 5, .min_total_time_s = 0});
  PALPATE_RETURN_IF_ERROR(status);
  const Times go_to = MedianTimes([&] {
    const absl::StatusOr<bool> is_there = replayed->GoTo(*state);
    status.Update(is_there.status());
    if (is_there.ok() && !*is_there) status.Update(absl::InternalError("tissue is not as in its own state"));
  });
  const Times step = MedianTimes([&] { status.Update(Steps(world, 1)); }, {.min_repetitions = 30});
  PALPATE_ASSIGN_OR_RETURN(const std::unique_ptr<KeptSteps> kept, KeptSteps::Begin(&world));
  const Times kept_step = MedianTimes([&] { status.Update(kept->Step()); }, {.min_repetitions = 30});
  const record::ToolCommands commands(1, sim::ToolCommand());
  const Times entry = MedianTimes([&] { kept->Keep(commands); });
  PALPATE_RETURN_IF_ERROR(status);
  report->Add(name, "capture", capture.wall_s, "s");
  report->Add(name, "encode", encode.wall_s, "s");
  report->Add(name, "decode", decode.wall_s, "s");
  report->Add(name, "restore", restore.wall_s, "s");
  report->Add(name, "restore_with_old", with_old.wall_s, "s");
  report->Add(name, "go_to", go_to.wall_s, "s");
  report->Add(name, "step", step.wall_s, "s");
  report->Add(name, "size", static_cast<double>(bytes.size()), "bytes");
  report->Add(name, "kept_step", kept_step.wall_s, "s");
  report->Add(name, "entry", entry.wall_s, "s");
  // What keeping state takes of a step on the scene's thread, with a checkpoint every ten seconds, as is the server's default.
  report->Add(name, "share_of_step", entry.wall_s / step.wall_s + capture.wall_s / 10, "ratio");
  return absl::OkStatus();
}

absl::Status Run(Report* report, const std::shared_ptr<gpu::Context>& context) {
  for (const double tets : {2500.0, 10000.0}) {
    if (IsQuick() && tets > 2500) continue;
    const int count = static_cast<int>(tets);
    const std::string whole = absl::StrFormat("whole_%d", count);
    const std::string cut = absl::StrFormat("cut_%d", count);
    if (!IsSelected(whole) && !IsSelected(cut)) continue;
    PALPATE_ASSIGN_OR_RETURN(const sim::SceneDescription scene, Liver(tets));
    PALPATE_ASSIGN_OR_RETURN(const std::unique_ptr<sim::World> world, sim::World::Create(context, scene));
    PALPATE_RETURN_IF_ERROR(Steps(*world, kStepsBefore));
    if (IsSelected(whole)) PALPATE_RETURN_IF_ERROR(Measure(context, whole, *world, report));
    if (!IsSelected(cut)) continue;
    const double top_m = scene.tools[0].rest_pose.position_m.z();
    sim::InciseEdit incision;
    for (const double x : {-0.05, 0.0, 0.05}) incision.edges_m.push_back({Vector3d(x, 0, top_m - 0.03), Vector3d(x, 0, top_m + 0.01)});
    const std::vector<sim::Edit> edits = {{.body = 0, .what = incision},
                                          {.body = 0, .what = sim::CarveEdit{sim::BallRegion{{0.03, -0.02, top_m - 0.01}, 0.015}}}};
    PALPATE_RETURN_IF_ERROR(world->Apply(std::span(edits).first(1)).status());
    PALPATE_RETURN_IF_ERROR(Steps(*world, 5));
    PALPATE_RETURN_IF_ERROR(world->Apply(std::span(edits).last(1)).status());
    PALPATE_RETURN_IF_ERROR(Steps(*world, 5));
    PALPATE_RETURN_IF_ERROR(Measure(context, cut, *world, report));
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace palpate::bench

int main(int argc, char** argv) {
  palpate::bench::Initialize(argc, argv, "Checkpoints of a liver, whole and cut.");
  auto context = palpate::gpu::Context::Create({.device = palpate::bench::DeviceSelector()});
  palpate::bench::Report report("checkpoint", context.ok() ? palpate::gpu::DescribeDevice((*context)->device()) : "none");
  if (!context.ok()) return report.Finish(context.status());
  return report.Finish(palpate::bench::Run(&report, *context));
}
