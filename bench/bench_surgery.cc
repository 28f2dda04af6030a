// A liver that is operated on while it runs: a groove carved along a line, and a scalpel drawn through at 0.1 m/s, both at the surface as
// it is then. How fast the scene goes on meanwhile, edits included, with self-collision and a tool on the organ.
#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "bench/bench_support.h"
#include "gpu/runtime/context.h"
#include "sim/instrument/projection.h"
#include "sim/mesh/generators.h"
#include "sim/world/world.h"

namespace palpate::bench {
namespace {

using Clock = std::chrono::steady_clock;
using Eigen::Vector3d;

constexpr double kLength_m = 0.2;
constexpr double kTravel_m = 0.1;  // of the instrument, along x about the middle
constexpr double kBladeSpeed_m_per_s = 0.1;
constexpr double kGrooveDepth_m = 0.015;
constexpr double kCutDepth_m = 0.03;  // more than two elements of 2,500 tets
constexpr double kProbeBeside_m = 0.03, kProbeDepth_m = 0.006;
constexpr int kStepsBefore = 60;  // to settle, to press, and to compare with
constexpr int kStepsAfter = 120;  // with the cut there, and no more edits

double Milliseconds(Clock::time_point since) { return std::chrono::duration<double, std::milli>(Clock::now() - since).count(); }

struct Operation {
  sim::SceneDescription scene;
  double top_m = 0;     // highest vertex
  double bottom_m = 0;  // lowest
  double edge_m = 0;    // of the mesh, mean
};

absl::StatusOr<Operation> Liver(double tet_count) {
  Operation operation;
  operation.edge_m = sim::LiverEdgeLengthForTets(kLength_m, tet_count);
  sim::BodyDescription body;
  body.name = "liver";
  PALPATE_ASSIGN_OR_RETURN(body.mesh, sim::GenerateLiver(kLength_m, operation.edge_m));
  operation.bottom_m = operation.top_m = body.mesh.vertices[0].z();
  for (const Vector3d& v : body.mesh.vertices) {
    operation.bottom_m = std::min(operation.bottom_m, v.z());
    operation.top_m = std::max(operation.top_m, v.z());
  }
  for (uint32_t v = 0; v < body.mesh.vertices.size(); ++v) {
    if (body.mesh.vertices[v].z() < operation.bottom_m + 0.4 * (operation.top_m - operation.bottom_m)) body.fixed_vertices.push_back(v);
  }
  operation.scene.bodies.push_back(std::move(body));
  sim::ToolDescription probe;  // presses the organ beside the cut
  probe.name = "probe";
  probe.rest_pose.position_m = {0, kProbeBeside_m, operation.top_m + 0.02};
  operation.scene.tools.push_back(probe);
  return operation;
}

/// Height of the organ's surface near (x, y); y = 0 is the instrument's way.
double TopAt(const sim::Frame& frame, double x, double y, double reach_m) {
  double top_m = -1e9;
  for (const std::vector<float>& positions : frame.surface_positions_m) {
    for (size_t i = 0; i + 2 < positions.size(); i += 3) {
      if (std::abs(positions[i] - x) < reach_m && std::abs(positions[i + 1] - y) < reach_m)
        top_m = std::max<double>(top_m, positions[i + 2]);
    }
  }
  return top_m;
}

/// Area of what cuts have uncovered, m^2, all sides.
double UncoveredArea(const sim::Frame& frame) {
  double area_m2 = 0;
  for (size_t b = 0; b < frame.topology->bodies.size(); ++b) {
    const sim::BodyArrays& body = *frame.topology->bodies[b];
    const auto at = [&](sim::SurfaceSlot slot) {
      return Eigen::Map<const Eigen::Vector3f>(&frame.surface_positions_m[b][size_t{3} * ToNumber(slot)]);
    };
    for (size_t i = 0; i < body.surface_triangles.size(); ++i) {
      const auto& [v0, v1, v2] = body.surface_triangles[i];
      if (v0 == v1 || body.triangle_zones[i] == 0) continue;
      area_m2 += 0.5 * double{(at(v1) - at(v0)).cross(at(v2) - at(v0)).norm()};
    }
  }
  return area_m2;
}

/// Ages of the newest local model as a station would see them that looks once a millisecond: a step answers the pose that it found when it
/// came to the tools, and its model is there at its end.
struct ModelAges {
  std::vector<double> asked_ms, ready_ms;  // of each step

  std::vector<double> Sample() const {
    std::vector<double> ages_ms;
    size_t newest = 0;
    for (double t = ready_ms.front(); t < ready_ms.back(); t += 1) {
      while (newest + 1 < ready_ms.size() && ready_ms[newest + 1] <= t) ++newest;
      ages_ms.push_back(t - asked_ms[newest]);
    }
    return ages_ms;
  }
};

using EditsOfStep = std::function<std::vector<sim::Edit>(int, const sim::Frame&)>;

using StageTimes = std::array<double, sim::kStageNames.size()>;

/// What a run of an operation showed.
struct RunFigures {
  std::vector<double> before_ms, step_ms, after_ms;  // of steps: pressed, with their edits, and with what was cut
  std::vector<double> edited_step_ms;                // of step_ms those whose edits changed something
  std::vector<double> edit_ms, empty_edit_ms;        // of edits that changed something, and nothing
  ModelAges ages_before, ages;
  size_t removed = 0, added = 0;
  int contact_models = 0;
  double uncovered_m2 = 0;
  StageTimes stage_before_ms{}, stage_ms{}, stage_after_ms{};  // means
  uint64_t intersections = 0;                                  // after all steps, if the scene checks them
  size_t bodies = 0;
};

void AddStages(const sim::Frame& frame, int steps, StageTimes* mean_ms) {
  for (size_t s = 0; s < mean_ms->size(); ++s) (*mean_ms)[s] += frame.stage_ms[s] / steps;
}

// `edits_of_step(i, frame)`: what the instrument does before step i, after `frame`.
absl::StatusOr<RunFigures> RunOperation(const std::shared_ptr<gpu::Context>& context, const sim::SceneDescription& scene,
                                        const Operation& operation, int steps, const EditsOfStep& edits_of_step) {
  PALPATE_ASSIGN_OR_RETURN(std::unique_ptr<sim::World> world, sim::World::Create(context, scene));
  RunFigures figures;
  sim::ToolCommand press;
  press.device_pose = scene.tools[0].rest_pose;
  const sim::ToolCommand* const commands[] = {&press};
  const Clock::time_point begin = Clock::now();
  for (int i = 0; i < 3 * kStepsBefore; ++i) {
    if (i == kStepsBefore) {
      press.device_pose.position_m.z() =
          TopAt(*world->CurrentFrame(), 0, kProbeBeside_m, operation.edge_m) + scene.tools[0].radius_m - kProbeDepth_m;
    }
    const double start_ms = Milliseconds(begin);
    double asked_ms = 0;
    const auto take_pose = [&] { asked_ms = Milliseconds(begin); };
    PALPATE_ASSIGN_OR_RETURN(const std::shared_ptr<const sim::Frame> frame, world->Step(commands, take_pose));
    if (i < 2 * kStepsBefore) continue;
    AddStages(*frame, kStepsBefore, &figures.stage_before_ms);
    figures.ages_before.asked_ms.push_back(asked_ms);
    figures.ages_before.ready_ms.push_back(Milliseconds(begin));
    figures.before_ms.push_back(figures.ages_before.ready_ms.back() - start_ms);
  }
  for (int i = 0; i < steps + kStepsAfter; ++i) {
    const Clock::time_point start = Clock::now();
    const std::vector<sim::Edit> edits = i < steps ? edits_of_step(i, *world->CurrentFrame()) : std::vector<sim::Edit>{};
    size_t changed = 0;
    if (!edits.empty()) {
      PALPATE_ASSIGN_OR_RETURN(const std::vector<sim::EditOutcome> outcomes, world->Apply(edits));
      for (const sim::EditOutcome& outcome : outcomes) {
        figures.removed += outcome.removed_tets.size();
        figures.added += outcome.added_tets.size();
        changed += outcome.removed_tets.size() + outcome.added_tets.size();
      }
      (changed > 0 ? figures.edit_ms : figures.empty_edit_ms).push_back(Milliseconds(start));
    }
    double asked_ms = 0;
    const auto take_pose = [&] { asked_ms = Milliseconds(begin); };
    PALPATE_ASSIGN_OR_RETURN(const std::shared_ptr<const sim::Frame> frame, world->Step(commands, take_pose));
    figures.intersections += frame->contact_statistics.intersection_count;
    AddStages(*frame, i < steps ? steps : kStepsAfter, i < steps ? &figures.stage_ms : &figures.stage_after_ms);
    if (i >= steps) {
      figures.after_ms.push_back(Milliseconds(start));
      continue;
    }
    figures.ages.asked_ms.push_back(asked_ms);
    figures.ages.ready_ms.push_back(Milliseconds(begin));
    const sim::LocalModel& model = frame->local_models[0];
    if (model.step != frame->step) return absl::InternalError(absl::StrFormat("step %d has no model of its own", frame->step));
    if (model.constraint_count > 0) ++figures.contact_models;
    figures.step_ms.push_back(Milliseconds(start));
    if (changed > 0) figures.edited_step_ms.push_back(figures.step_ms.back());
  }
  figures.uncovered_m2 = UncoveredArea(*world->CurrentFrame());
  figures.bodies = world->CurrentFrame()->surface_positions_m.size();
  return figures;
}

double Sum(const std::vector<double>& values) { return std::accumulate(values.begin(), values.end(), 0.0); }

/// Runs the operation twice: for its times, and with a count of intersections after each step. `least_uncovered_m2`: an operation that
/// uncovers less did not do what its figures claim.
absl::Status Measure(const std::shared_ptr<gpu::Context>& context, const std::string& name, const Operation& operation, int steps,
                     double least_uncovered_m2, const EditsOfStep& edits_of_step, Report* report) {
  PALPATE_ASSIGN_OR_RETURN(const RunFigures figures, RunOperation(context, operation.scene, operation, steps, edits_of_step));
  sim::SceneDescription checked_scene = operation.scene;
  checked_scene.contact.check_intersections = true;
  PALPATE_ASSIGN_OR_RETURN(const RunFigures checked, RunOperation(context, checked_scene, operation, steps, edits_of_step));
  if (figures.uncovered_m2 < least_uncovered_m2) {
    return absl::InternalError(
        absl::StrFormat("%s: %.3g m^2 uncovered, at least %.3g m^2 would be a cut", name, figures.uncovered_m2, least_uncovered_m2));
  }
  if (2 * figures.contact_models < steps) return absl::InternalError(name + ": the probe does not touch the organ");
  const double total_ms = Sum(figures.step_ms);
  const double before_ms = Sum(figures.before_ms);
  report->Add(name, "tets", static_cast<double>(operation.scene.bodies[0].mesh.tets.size()), "count");
  report->Add(name, "steps_per_second", 1000 * steps / total_ms, "per_s");
  report->Add(name, "step_p50", Quantile(figures.step_ms, 0.5) / 1000, "s");
  report->Add(name, "step_p99", Quantile(figures.step_ms, 0.99) / 1000, "s");
  report->Add(name, "step_max", Quantile(figures.step_ms, 1.0) / 1000, "s");
  report->Add(name, "edited_step_p50", Quantile(figures.edited_step_ms, 0.5) / 1000, "s");
  report->Add(name, "edited_step_p99", Quantile(figures.edited_step_ms, 0.99) / 1000, "s");
  report->Add(name, "steps_per_second_before", 1000 * kStepsBefore / before_ms, "per_s");
  report->Add(name, "steps_per_second_after", 1000 * kStepsAfter / Sum(figures.after_ms), "per_s");
  report->Add(name, "step_after_p99", Quantile(figures.after_ms, 0.99) / 1000, "s");
  for (const auto& [suffix, mean_ms] :
       {std::pair("_before", figures.stage_before_ms), std::pair("", figures.stage_ms), std::pair("_after", figures.stage_after_ms)}) {
    for (size_t s = 0; s < mean_ms.size(); ++s) {
      report->Add(name, absl::StrFormat("stage_%s%s", sim::kStageNames[s], suffix), mean_ms[s] / 1000, "s");
    }
  }
  report->Add(name, "edits", static_cast<double>(figures.edit_ms.size()), "count");
  report->Add(name, "edit_p50", Quantile(figures.edit_ms, 0.5) / 1000, "s");
  report->Add(name, "edit_p99", Quantile(figures.edit_ms, 0.99) / 1000, "s");
  report->Add(name, "empty_edit_p50", Quantile(figures.empty_edit_ms, 0.5) / 1000, "s");
  const std::vector<double> ages_ms = figures.ages.Sample();
  for (const auto& [suffix, share] : {std::pair("p50", 0.5), std::pair("p99", 0.99), std::pair("max", 1.0)}) {
    const double age_ms = Quantile(ages_ms, share);
    report->Add(name, absl::StrFormat("model_age_%s", suffix), age_ms / 1000, "s");
    report->Add(name, absl::StrFormat("model_age_in_steps_%s", suffix), age_ms * steps / total_ms, "ratio");  // of the mean step
  }
  const double before_p99_ms = Quantile(figures.ages_before.Sample(), 0.99);
  report->Add(name, "model_age_before_p99", before_p99_ms / 1000, "s");
  report->Add(name, "model_age_in_steps_before_p99", before_p99_ms * kStepsBefore / before_ms, "ratio");
  report->Add(name, "models_in_contact", static_cast<double>(figures.contact_models) / steps, "ratio");
  report->Add(name, "removed_tets", static_cast<double>(figures.removed), "count");
  report->Add(name, "added_tets", static_cast<double>(figures.added), "count");
  report->Add(name, "uncovered_area", figures.uncovered_m2, "m^2");
  report->Add(name, "bodies", static_cast<double>(figures.bodies), "count");
  report->Add(name, "intersections", static_cast<double>(checked.intersections), "count");
  return absl::OkStatus();
}

absl::Status Carve(const std::shared_ptr<gpu::Context>& context, const std::string& name, double tet_count, Report* report) {
  PALPATE_ASSIGN_OR_RETURN(const Operation operation, Liver(tet_count));
  const int steps = IsQuick() ? 60 : 480;  // 2.5 cm/s
  return Measure(
      context, name, operation, steps, 0.5 * kTravel_m * kGrooveDepth_m,
      [&, top_m = -1.0](int i, const sim::Frame& frame) mutable {
        const double x = kTravel_m * ((i + 0.5) / steps - 0.5);
        if (i == 0) top_m = TopAt(frame, 0, 0, kTravel_m / 2);
        sim::CapsuleRegion groove;
        groove.end0_m = {x, 0, top_m + 0.01};
        groove.end1_m = {x, 0, top_m - kGrooveDepth_m};
        groove.radius_m = 0.6 * operation.edge_m;
        return std::vector<sim::Edit>{{.body = 0, .what = sim::CarveEdit{groove}}};
      },
      report);
}

absl::Status Incise(const std::shared_ptr<gpu::Context>& context, const std::string& name, double tet_count, Report* report) {
  PALPATE_ASSIGN_OR_RETURN(const Operation operation, Liver(tet_count));
  const double step_m = kBladeSpeed_m_per_s * operation.scene.dt_s;
  const int steps = static_cast<int>(kTravel_m / step_m);
  const auto blade_at = [&](double x, double top_m) {
    return std::array<Vector3d, 2>{Vector3d(x, 0, top_m + 0.02), Vector3d(x, 0, top_m - kCutDepth_m)};
  };
  // What one long stroke through the pressed organ uncovers: many short ones, each a request of its own, must come near it.
  PALPATE_ASSIGN_OR_RETURN(const RunFigures one_stroke,
                           RunOperation(context, operation.scene, operation, 1, [&](int, const sim::Frame& frame) {
                             const double top_m = TopAt(frame, 0, 0, kTravel_m / 2);
                             return std::vector<sim::Edit>{
                                 {.body = 0, .what = sim::InciseEdit{{blade_at(-kTravel_m / 2, top_m), blade_at(kTravel_m / 2, top_m)}}}};
                           }));
  return Measure(
      context, name, operation, steps, 0.8 * one_stroke.uncovered_m2,
      [&, top_m = -1.0](int i, const sim::Frame& frame) mutable {
        if (i == 0) top_m = TopAt(frame, 0, 0, kTravel_m / 2);
        const auto edge_at = [&](int k) { return blade_at(k * step_m - kTravel_m / 2, top_m); };
        return std::vector<sim::Edit>{{.body = 0, .what = sim::InciseEdit{{edge_at(i), edge_at(i + 1)}}}};
      },
      report);
}

/// The two responses of a tool side by side: the same probe pressed 1 cm deep and drawn over the organ, and the projection's own parts on
/// the host, on the surface that the run ends with.
absl::Status Project(const std::shared_ptr<gpu::Context>& context, const std::string& name, double tet_count, Report* report) {
  PALPATE_ASSIGN_OR_RETURN(Operation operation, Liver(tet_count));
  operation.scene.gravity_m_per_s2.setZero();
  sim::ToolDescription& probe = operation.scene.tools[0];
  probe.drive = sim::ToolDrive::kDirect;
  double top_m = -1;  // where the probe is
  for (const Vector3d& v : operation.scene.bodies[0].mesh.vertices) {
    if (v.head<2>().norm() < operation.edge_m) top_m = std::max(top_m, v.z());
  }
  probe.rest_pose.position_m = {0, 0, top_m + probe.radius_m + 0.001};
  const int steps = IsQuick() ? 120 : 360;
  for (const sim::ToolResponse response : {sim::ToolResponse::kEnergy, sim::ToolResponse::kProjection}) {
    probe.response = response;
    const std::string label = response == sim::ToolResponse::kEnergy ? "energy" : "projection";
    PALPATE_ASSIGN_OR_RETURN(std::unique_ptr<sim::World> world, sim::World::Create(context, operation.scene));
    sim::ToolCommand command;
    command.device_pose = probe.rest_pose;
    const sim::ToolCommand* const commands[] = {&command};
    std::vector<double> step_ms;
    std::vector<double> tools_ms;
    std::shared_ptr<const sim::Frame> frame;
    for (int i = 0; i < steps; ++i) {
      const double depth_m = 0.01 * std::min(1.0, 3.0 * i / steps);
      command.device_pose.position_m = {i < 2 * steps / 3 ? 0 : 0.00005 * (i - 2 * steps / 3), 0, top_m + probe.radius_m - depth_m};
      PALPATE_ASSIGN_OR_RETURN(frame, world->Step(commands));
      step_ms.push_back(frame->step_ms);
      tools_ms.push_back(frame->stage_ms[0]);
      if (i == 2 * steps / 3 - 1) report->Add(name, label + "_force_at_1cm", frame->tools[0].force_n.z(), "N");
    }
    if (!frame->tools[0].is_touching) return absl::InternalError(name + ": the probe never touched the organ");
    report->Add(name, label + "_step_p50", Quantile(step_ms, 0.5) / 1000, "s");
    report->Add(name, label + "_step_p99", Quantile(step_ms, 0.99) / 1000, "s");
    report->Add(name, label + "_stage_tools", Quantile(tools_ms, 0.5) / 1000, "s");
    if (response != sim::ToolResponse::kProjection) continue;
    std::vector<Vector3d> positions;
    const std::vector<float>& x = frame->surface_positions_m[0];
    for (size_t i = 0; i < x.size(); i += 3) positions.emplace_back(x[i], x[i + 1], x[i + 2]);
    std::vector<std::array<uint32_t, 3>> triangles;
    for (const auto& [a, b, c] : frame->topology->bodies[0]->surface_triangles)
      triangles.push_back({ToNumber(a), ToNumber(b), ToNumber(c)});
    const sim::ProjectionMesh mesh(std::move(triangles), positions.size());
    sim::ProjectionCapsule capsule;
    capsule.tip_from_m = frame->tools[0].pose.position_m;
    capsule.axis_from_m = capsule.axis_to_m = {0, 0, probe.length_m};
    capsule.tip_to_m = capsule.tip_from_m + Vector3d(0.0005, 0, -0.001);
    capsule.radius_m = probe.radius_m;
    report->Add(name, "triangles", static_cast<double>(mesh.triangles().size()), "count");
    report->Add(name, "find_touching", MedianTimes([&] { sim::FindTouching(mesh, positions, capsule); }).wall_s, "s");
    report->Add(name, "find_swept", MedianTimes([&] { sim::FindSwept(mesh, positions, positions, capsule); }).wall_s, "s");
    const sim::ProjectionInput input{.mesh = &mesh, .from_m = positions, .to_m = positions, .is_fixed = {}, .capsules = {&capsule, 1}};
    report->Add(name, "project_out", MedianTimes([&] { sim::ProjectOut(input, {.reach_m = 0.002}); }).wall_s, "s");
    report->Add(name, "projected_vertices", static_cast<double>(sim::ProjectOut(input).moved.size()), "count");
  }
  return absl::OkStatus();
}

absl::Status Run(Report* report, const std::shared_ptr<gpu::Context>& context) {
  for (const double tets : IsQuick() ? std::vector<double>{2500} : std::vector<double>{2500, 10000}) {
    const int count = static_cast<int>(tets);
    if (const std::string name = absl::StrFormat("carve_%d", count); IsSelected(name)) {
      PALPATE_RETURN_IF_ERROR(Carve(context, name, tets, report));
    }
    if (const std::string name = absl::StrFormat("incise_%d", count); IsSelected(name)) {
      PALPATE_RETURN_IF_ERROR(Incise(context, name, tets, report));
    }
    if (const std::string name = absl::StrFormat("project_%d", count); IsSelected(name)) {
      PALPATE_RETURN_IF_ERROR(Project(context, name, tets, report));
    }
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace palpate::bench

int main(int argc, char** argv) {
  palpate::bench::Initialize(argc, argv, "A liver that is cut while it runs.");
  auto context = palpate::gpu::Context::Create({.device = palpate::bench::DeviceSelector()});
  palpate::bench::Report report("surgery", context.ok() ? palpate::gpu::DescribeDevice((*context)->device()) : "none");
  if (!context.ok()) return report.Finish(context.status());
  return report.Finish(palpate::bench::Run(&report, *context));
}
