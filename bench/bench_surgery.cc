// A liver that is operated on while it runs: a groove carved along a line, and a scalpel drawn through at 0.1 m/s, both at the surface as
// it is then. How fast the scene goes on meanwhile, edits included, with self-collision and a tool on the organ.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "bench/bench_support.h"
#include "gpu/runtime/context.h"
#include "sim/mesh/generators.h"
#include "sim/world/world.h"

namespace palpate::bench {
namespace {

using Clock = std::chrono::steady_clock;
using Eigen::Vector3d;

constexpr double kLength_m = 0.2;
constexpr double kTravel_m = 0.1;  // of the instrument, along x about the middle
constexpr double kBladeSpeed_m_per_s = 0.1;
constexpr double kDepth_m = 0.015;  // of groove and cut

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
  sim::ToolDescription probe;  // rests on the organ beside the cut
  probe.name = "probe";
  probe.rest_pose.position_m = {0, 0.03, operation.top_m - 0.002};
  operation.scene.tools.push_back(probe);
  return operation;
}

/// Height of the organ's surface along the instrument's way, near x.
double TopAt(const sim::Frame& frame, double x, double reach_m) {
  double top_m = -1e9;
  for (const std::vector<float>& positions : frame.surface_positions_m) {
    for (size_t i = 0; i + 2 < positions.size(); i += 3) {
      if (std::abs(positions[i] - x) < reach_m && std::abs(positions[i + 1]) < reach_m) top_m = std::max<double>(top_m, positions[i + 2]);
    }
  }
  return top_m;
}

// `edits_of_step(i, frame)`: what the instrument does before step i, after `frame`.
absl::Status Measure(const std::shared_ptr<gpu::Context>& context, const std::string& name, const Operation& operation, int steps,
                     const std::function<std::vector<sim::Edit>(int, const sim::Frame&)>& edits_of_step, Report* report) {
  PALPATE_ASSIGN_OR_RETURN(std::unique_ptr<sim::World> world, sim::World::Create(context, operation.scene));
  const sim::ToolCommand* const commands[] = {nullptr};
  for (int i = 0; i < 60; ++i) PALPATE_RETURN_IF_ERROR(world->Step(commands).status());
  std::vector<double> step_ms;
  std::vector<double> edit_ms;
  size_t removed = 0;
  size_t added = 0;
  double total_ms = 0;
  uint32_t intersections = 0;
  for (int i = 0; i < steps; ++i) {
    const Clock::time_point start = Clock::now();
    const std::vector<sim::Edit> edits = edits_of_step(i, *world->CurrentFrame());
    if (!edits.empty()) {
      PALPATE_ASSIGN_OR_RETURN(const std::vector<sim::EditOutcome> outcomes, world->Apply(edits));
      size_t changed = 0;
      for (const sim::EditOutcome& outcome : outcomes) {
        removed += outcome.removed_tets.size();
        added += outcome.added_tets.size();
        changed += outcome.removed_tets.size() + outcome.added_tets.size();
      }
      if (changed > 0) edit_ms.push_back(Milliseconds(start));
    }
    PALPATE_ASSIGN_OR_RETURN(const std::shared_ptr<const sim::Frame> frame, world->Step(commands));
    step_ms.push_back(Milliseconds(start));
    total_ms += step_ms.back();
    intersections += frame->contact_statistics.intersection_count;
  }
  if (removed == 0) return absl::InternalError(name + ": nothing was cut, so the figures would mean nothing");
  report->Add(name, "tets", static_cast<double>(operation.scene.bodies[0].mesh.tets.size()), "count");
  report->Add(name, "steps_per_second", 1000 * steps / total_ms, "per_s");
  report->Add(name, "step_p50", Quantile(step_ms, 0.5) / 1000, "s");
  report->Add(name, "step_p99", Quantile(step_ms, 0.99) / 1000, "s");
  report->Add(name, "step_max", Quantile(step_ms, 1.0) / 1000, "s");
  report->Add(name, "edits", static_cast<double>(edit_ms.size()), "count");
  report->Add(name, "edit_p50", Quantile(edit_ms, 0.5) / 1000, "s");
  report->Add(name, "edit_p99", Quantile(edit_ms, 0.99) / 1000, "s");
  report->Add(name, "removed_tets", static_cast<double>(removed), "count");
  report->Add(name, "added_tets", static_cast<double>(added), "count");
  report->Add(name, "bodies", static_cast<double>(world->CurrentFrame()->surface_positions_m.size()), "count");
  report->Add(name, "intersections", intersections, "count");
  return absl::OkStatus();
}

absl::Status Carve(const std::shared_ptr<gpu::Context>& context, const std::string& name, double tet_count, Report* report) {
  PALPATE_ASSIGN_OR_RETURN(const Operation operation, Liver(tet_count));
  const int steps = IsQuick() ? 60 : 480;  // 2.5 cm/s
  return Measure(
      context, name, operation, steps,
      [&, top_m = -1.0](int i, const sim::Frame& frame) mutable {
        const double x = kTravel_m * ((i + 0.5) / steps - 0.5);
        if (i == 0) top_m = TopAt(frame, 0, kTravel_m / 2);
        sim::CapsuleRegion groove;
        groove.end0_m = {x, 0, top_m + 0.01};
        groove.end1_m = {x, 0, top_m - kDepth_m};
        groove.radius_m = 0.6 * operation.edge_m;
        return std::vector<sim::Edit>{{.body = 0, .what = sim::CarveEdit{groove}}};
      },
      report);
}

absl::Status Incise(const std::shared_ptr<gpu::Context>& context, const std::string& name, double tet_count, Report* report) {
  PALPATE_ASSIGN_OR_RETURN(const Operation operation, Liver(tet_count));
  const double step_m = kBladeSpeed_m_per_s * operation.scene.dt_s;
  const int steps = static_cast<int>(kTravel_m / step_m);
  return Measure(
      context, name, operation, steps,
      [&, top_m = -1.0](int i, const sim::Frame& frame) mutable {
        if (i == 0) top_m = TopAt(frame, 0, kTravel_m / 2);
        const auto edge_at = [&](int k) {
          const double x = k * step_m - kTravel_m / 2;
          return std::array<Vector3d, 2>{Vector3d(x, 0, top_m + 0.02), Vector3d(x, 0, top_m - kDepth_m)};
        };
        return std::vector<sim::Edit>{{.body = 0, .what = sim::InciseEdit{{edge_at(i), edge_at(i + 1)}}}};
      },
      report);
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
