// Many small scenes stepped together, as BatchService steps them: steps of environments a second against how many there are, with one
// thread and with two. What clients add to it (gRPC, Python) is a few tenths of a millisecond a request.
#include <algorithm>
#include <future>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "bench/bench_support.h"
#include "gpu/runtime/context.h"
#include "server/core/batch.h"
#include "sim/scene/asset_resolver.h"

namespace palpate::bench {
namespace {

constexpr double kRadius_m = 0.004, kTop_m = 0.01, kDepth_m = 0.003;

/// A slab under a probe that is pressed in; 360 tets with edges of 1 cm.
v1::SceneSpec Phantom(double edge_length_m) {
  v1::SceneSpec spec;
  v1::BodySpec& body = *spec.add_bodies();
  body.set_name("slab");
  body.mutable_generator()->set_edge_length_m(edge_length_m);
  v1::Vec3& size_m = *body.mutable_generator()->mutable_slab()->mutable_size_m();
  size_m.set_x(0.06);
  size_m.set_y(0.06);
  size_m.set_z(2 * kTop_m);
  v1::Box& base = *body.add_fixed()->mutable_box();
  for (v1::Vec3* corner : {base.mutable_min_m(), base.mutable_max_m()}) {
    const double sign = corner == base.mutable_min_m() ? -1 : 1;
    corner->set_x(sign);
    corner->set_y(sign);
    corner->set_z(sign < 0 ? -1 : -kTop_m + 1e-4);
  }
  v1::ToolSpec& tool = *spec.add_tools();
  tool.set_name("probe");
  tool.set_radius_m(kRadius_m);
  tool.set_drive(v1::TOOL_DRIVE_DIRECT);
  tool.mutable_rest_pose()->mutable_position_m()->set_z(0.03);
  return spec;
}

absl::StatusOr<v1::BatchResponse> Ask(server::Batch& batch, const v1::BatchRequest& request) {
  std::promise<absl::StatusOr<v1::BatchResponse>> answer;
  batch.Handle(request, [&answer](absl::StatusOr<v1::BatchResponse> response) { answer.set_value(std::move(response)); });
  return answer.get_future().get();
}

v1::BatchRequest PressAll(int count) {
  v1::BatchRequest request;
  request.mutable_step()->set_steps(1);
  for (int e = 0; e < count; ++e) {
    v1::BatchAction& action = *request.mutable_step()->add_actions();
    action.set_environment(static_cast<uint32_t>(e));
    action.add_tools()->mutable_pose()->mutable_pose()->mutable_position_m()->set_z(kTop_m + kRadius_m - kDepth_m);
  }
  return request;
}

absl::Status Run(const std::shared_ptr<gpu::Context>& context, double edge_length_m, int count, int threads, Report* report) {
  server::WorkerPool pool("batch", threads);
  server::BatchBudget budget;
  server::Batch::Options options;
  options.context = context;
  options.assets = std::make_shared<scene::AssetRootResolver>("");
  options.budget = &budget;
  options.pool = &pool;
  const auto batch = std::make_shared<server::Batch>(options);
  v1::BatchRequest open;
  *open.mutable_open()->mutable_spec() = Phantom(edge_length_m);
  open.mutable_open()->set_count(static_cast<uint32_t>(count));
  open.mutable_open()->add_probes("tool.probe.force.z");
  const Stopwatch opening;
  PALPATE_RETURN_IF_ERROR(Ask(*batch, open).status());
  const double opening_s = opening.Elapsed().wall_s;

  const v1::BatchRequest press = PressAll(count);
  const int requests = std::max(4, (IsQuick() ? 60 : 480) / count);
  double least_force_n = std::numeric_limits<double>::infinity();
  for (int i = 0; i < 3; ++i) PALPATE_RETURN_IF_ERROR(Ask(*batch, press).status());
  const Stopwatch stepping;
  for (int i = 0; i < requests; ++i) {
    PALPATE_ASSIGN_OR_RETURN(const v1::BatchResponse response, Ask(*batch, press));
    for (const double force_n : response.result().observations()) least_force_n = std::min(least_force_n, force_n);
  }
  const Times spent = stepping.Elapsed();
  if (!(least_force_n > 0.001)) return absl::InternalError("a probe does not touch its phantom");
  const int steps = requests * count;
  const std::string name = absl::StrFormat("slab_%g_mm/n%d/threads%d", 1000 * edge_length_m, count, threads);
  report->Add(name, "env_steps", steps / spent.wall_s, "per_s");
  report->Add(name, "env_step_cpu", spent.cpu_s / steps, "s");
  report->Add(name, "open_each", opening_s / count, "s");
  return absl::OkStatus();
}

absl::Status RunAll(const std::shared_ptr<gpu::Context>& context, Report* report) {
  for (const double edge_length_m : {0.01, 0.005}) {
    for (const int threads : {1, 2}) {
      for (const int count : {1, 2, 4, 8, 16, 32, 64}) {
        if (IsQuick() && (count > 8 || edge_length_m < 0.01)) continue;
        if (!IsSelected(absl::StrFormat("slab_%g_mm/n%d/threads%d", 1000 * edge_length_m, count, threads))) continue;
        PALPATE_RETURN_IF_ERROR(Run(context, edge_length_m, count, threads, report));
      }
    }
  }
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  Initialize(argc, argv, "Batches of scenes: steps of environments a second against their number.");
  gpu::ContextOptions options;
  options.device = DeviceSelector();
  const absl::StatusOr<std::shared_ptr<gpu::Context>> context = gpu::Context::Create(options);
  Report report("batch", context.ok() ? gpu::DescribeDevice((*context)->device()) : "none");
  if (!context.ok()) return report.Finish(context.status());
  return report.Finish(RunAll(*context, &report));
}

}  // namespace
}  // namespace palpate::bench

int main(int argc, char** argv) { return palpate::bench::Main(argc, argv); }
