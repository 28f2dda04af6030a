#include "bench/bench_step_lists.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "gpu/collision/proximity.h"
#include "gpu/collision/surface_topology.h"
#include "gpu/collision/view_certificate.h"
#include "gpu/runtime/queue.h"
#include "sim/mesh/generators.h"
#include "sim/scene/asset_resolver.h"
#include "sim/scene/scene_spec.h"
#include "sim/scene/solver_advice.h"
#include "sim/world/world.h"

ABSL_FLAG(std::string, scenes_dir, "scenes", "Folder of organs.json, sheet.json and dress.json.");

namespace palpate::bench {
namespace {

constexpr double kLength_m = 0.2;

/// What the view certificate says of the last frame: the share of triangles of bodies that may meet themselves which are certified at rest,
/// without a distance, and with the range of searches and a quarter of it. And how many pairs within bodies are within the range, which
/// excludes a certificate with it.
absl::Status AddViewCertificate(const std::shared_ptr<gpu::Context>& context, const std::string& name,
                                const sim::SceneDescription& description, const sim::Frame& frame, Report* report) {
  std::vector<gpu::Float4> positions;
  std::vector<std::array<uint32_t, 3>> triangles;
  std::vector<uint32_t> groups;
  double sum_m = 0;
  for (uint32_t b = 0; b < frame.topology->bodies.size(); ++b) {
    const auto first = static_cast<uint32_t>(positions.size());
    const std::vector<float>& x = frame.surface_positions_m[b];
    for (size_t i = 0; i + 2 < x.size(); i += 3) positions.push_back({x[i], x[i + 1], x[i + 2], 0});
    for (const auto& t : frame.topology->bodies[b]->surface_triangles) {
      std::array<uint32_t, 3>& corners = triangles.emplace_back();
      for (size_t k = 0; k < 3; ++k) corners[k] = first + static_cast<uint32_t>(t[k]);
      groups.push_back(b | (description.bodies[b].self_collision ? PALPATE_GROUP_SELF : 0U));
      for (size_t k = 0; k < 3; ++k) {
        const gpu::Float4 &p = positions[corners[k]], &q = positions[corners[(k + 1) % 3]];
        sum_m += std::hypot(p.x - q.x, p.y - q.y, p.z - q.z) / 3;
      }
    }
  }
  // As SurfaceReach has it.
  const double margin_m = description.contact.margin_m, edge_m = sum_m / static_cast<double>(triangles.size());
  const double reserve_m =
      description.contact.surface_reserve_m > 0 ? description.contact.surface_reserve_m : std::max(margin_m, 0.4 * edge_m - margin_m);
  const double range_m = margin_m + reserve_m;
  PALPATE_ASSIGN_OR_RETURN(const gpu::SurfaceTopology topology,
                           gpu::SurfaceTopology::Build(static_cast<uint32_t>(positions.size()), triangles, groups));
  PALPATE_ASSIGN_OR_RETURN(const std::unique_ptr<gpu::Queue> own_queue, gpu::Queue::Create(context));
  gpu::Queue& queue = *own_queue;
  PALPATE_ASSIGN_OR_RETURN(const auto device, gpu::CreateBufferFrom(queue, std::span<const gpu::Float4>(positions), "bench positions"));
  for (const auto& [what, share] : {std::pair("none", 0.0), {"quarter", 0.25}, {"range", 1.0}}) {
    PALPATE_ASSIGN_OR_RETURN(gpu::ViewCertificate certificate, gpu::ViewCertificate::Create(context, {.margin_m = share * range_m}));
    PALPATE_RETURN_IF_ERROR(certificate.SetSurface(queue, topology));
    PALPATE_RETURN_IF_ERROR(certificate.Run(queue, device, device));
    uint32_t all = 0;
    for (const gpu::ViewComponent& component : certificate.components()) all += component.triangle_count;
    report->Add(name, absl::StrCat("view_certified_distance_", what), all == 0 ? 0.0 : double{1.0} * certificate.certified_count() / all,
                "ratio");
  }
  PALPATE_ASSIGN_OR_RETURN(gpu::ProximityDetector detector, gpu::ProximityDetector::Create(context));
  PALPATE_RETURN_IF_ERROR(detector.SetTopology(queue, topology, {}));
  PALPATE_RETURN_IF_ERROR(detector.Run(queue, device, static_cast<float>(range_m)));
  std::vector<gpu::SurfaceContact> contacts(detector.contact_count());
  if (!contacts.empty()) PALPATE_RETURN_IF_ERROR(queue.ReadBlocking(detector.contact_buffer(), contacts));
  const auto is_within = [&](const gpu::SurfaceContact& c) {
    return (topology.vertex_groups[c.vertices.x] & PALPATE_GROUP_MASK) == (topology.vertex_groups[c.vertices.w] & PALPATE_GROUP_MASK);
  };
  report->Add(name, "near_pairs_within_bodies", static_cast<double>(std::count_if(contacts.begin(), contacts.end(), is_within)), "count");
  return absl::OkStatus();
}

/// The same world twice: with lists where they pay, and without.
class Pair {
 public:
  absl::Status Create(const std::shared_ptr<gpu::Context>& context, sim::SceneDescription scene) {
    context_ = context;
    description_ = scene;
    for (const auto use : {gpu::SelfPairsUse::kAutomatic, gpu::SelfPairsUse::kNever}) {
      scene.contact.self_pairs = use;
      PALPATE_ASSIGN_OR_RETURN(worlds_[use == gpu::SelfPairsUse::kNever ? 1 : 0], sim::World::Create(context, scene));
    }
    return absl::OkStatus();
  }

  /// Steps of both, of which `name` tells; `command` (or null): of the only tool, step by step.
  absl::Status Run(const std::string& name, int steps, const std::function<sim::ToolCommand(int)>& command, Report* report) {
    std::array<std::vector<double>, 2> cpu_s, wall_s, detect_s;
    uint64_t searches = 0, listed = 0, renewed = 0;
    for (int i = 0; i < steps; ++i) {
      std::array<uint64_t, 2> hashes{};
      // Each is first in turn.
      for (const size_t w : {static_cast<size_t>(i % 2), static_cast<size_t>(1 - i % 2)}) {
        const sim::ToolCommand tool = command ? command(i) : sim::ToolCommand{};
        const sim::ToolCommand* const commands[] = {&tool};
        const Stopwatch watch;
        PALPATE_ASSIGN_OR_RETURN(
            const std::shared_ptr<const sim::Frame> frame,
            worlds_[w]->Step(command ? std::span<const sim::ToolCommand* const>(commands) : std::span<const sim::ToolCommand* const>()));
        const Times times = watch.Elapsed();
        cpu_s[w].push_back(times.cpu_s);
        wall_s[w].push_back(times.wall_s);
        detect_s[w].push_back(frame->contact_statistics.detect_ms / 1000);
        hashes[w] = frame->state_hash;
        if (w == 1) continue;
        searches += frame->contact_statistics.self_searches;
        listed += frame->contact_statistics.listed_searches;
        renewed += frame->contact_statistics.renewed_lists;
      }
      if (hashes[0] != hashes[1]) return absl::InternalError(absl::StrCat(name, ": states differ at step ", i));
    }
    const auto mean = [](const std::vector<double>& values) {
      double sum = 0;
      for (const double value : values) sum += value;
      return sum / static_cast<double>(values.size());
    };
    report->Add(name, "listed_share_of_searches", searches == 0 ? 0.0 : static_cast<double>(listed) / static_cast<double>(searches),
                "ratio");
    report->Add(name, "lists", static_cast<double>(renewed), "count");
    for (const size_t w : {size_t{0}, size_t{1}}) {
      const std::string which = w == 0 ? "with" : "without";
      report->Add(name, "step_cpu_mean_" + which, mean(cpu_s[w]), "s");
      report->Add(name, "step_cpu_p50_" + which, Quantile(cpu_s[w], 0.5), "s");
      report->Add(name, "step_p50_" + which, Quantile(wall_s[w], 0.5), "s");
      report->Add(name, "proximity_mean_" + which, mean(detect_s[w]), "s");
      report->Add(name, "proximity_p50_" + which, Quantile(detect_s[w], 0.5), "s");
    }
    return AddViewCertificate(context_, name, description_, *worlds_[0]->CurrentFrame(), report);
  }

 private:
  std::shared_ptr<gpu::Context> context_;
  sim::SceneDescription description_;
  std::array<std::unique_ptr<sim::World>, 2> worlds_;
};

absl::Status MeasureLiver(const std::shared_ptr<gpu::Context>& context, double tets, Report* report) {
  PALPATE_ASSIGN_OR_RETURN(const sim::TetMesh mesh, sim::GenerateLiver(kLength_m, sim::LiverEdgeLengthForTets(kLength_m, tets)));
  sim::SceneDescription scene;
  sim::BodyDescription& body = scene.bodies.emplace_back();
  body.name = "liver";
  body.mesh = mesh;
  double low = 1e9, high = -1e9;
  for (const Eigen::Vector3d& v : mesh.vertices) {
    low = std::min(low, v.z());
    high = std::max(high, v.z());
  }
  for (uint32_t v = 0; v < mesh.vertices.size(); ++v) {
    if (mesh.vertices[v].z() < low + 0.4 * (high - low)) body.fixed_vertices.push_back(v);
  }
  sim::ToolDescription& tool = scene.tools.emplace_back();
  tool.name = "probe";
  tool.rest_pose.position_m = {-0.2 * kLength_m, 0, high + 0.02};
  sim::ToolCommand command;
  command.device_pose = tool.rest_pose;
  Pair pair;
  PALPATE_RETURN_IF_ERROR(pair.Create(context, scene));
  const auto at = [&](double depth_m) {
    command.device_pose.position_m.z() = high + 0.02 - depth_m;
    return command;
  };
  const std::string name = absl::StrFormat("lists_liver_%d", static_cast<int>(tets));
  const int steps = IsQuick() ? 40 : 250;
  PALPATE_RETURN_IF_ERROR(pair.Run(
      name + "_pressed", 120, [&](int i) { return at(0.05 * std::min(1.0, i / 120.0)); }, report));
  PALPATE_RETURN_IF_ERROR(pair.Run(
      name + "_moving", steps, [&](int i) { return at(0.05 + 0.01 * std::sin(0.05 * i)); }, report));
  PALPATE_RETURN_IF_ERROR(pair.Run(
      name + "_slow", steps, [&](int i) { return at(0.05 + 0.005 * std::sin(0.01 * i)); }, report));
  return pair.Run(
      name + "_held", steps, [&](int) { return at(0.05); }, report);
}

absl::Status MeasureScene(const std::shared_ptr<gpu::Context>& context, const std::string& stem, int steps, Report* report) {
  const std::filesystem::path folder = absl::GetFlag(FLAGS_scenes_dir);
  const std::filesystem::path file = folder / (stem + ".json");
  std::ifstream stream(file);
  if (!stream) return absl::NotFoundError(absl::StrCat(file.string(), ": cannot be read; --scenes_dir says where it is"));
  std::stringstream text;
  text << stream.rdbuf();
  PALPATE_ASSIGN_OR_RETURN(const v1::SceneSpec spec, scene::ParseSceneJson(text.str(), file.string()));
  PALPATE_ASSIGN_OR_RETURN(sim::SceneDescription description, scene::BuildSceneDescription(spec, scene::AssetRootResolver(folder), {}));
  description.tools.clear();
  Pair pair;
  PALPATE_RETURN_IF_ERROR(pair.Create(context, std::move(description)));
  const std::string name = "lists_" + stem;
  PALPATE_RETURN_IF_ERROR(pair.Run(name + "_first", steps, nullptr, report));
  return pair.Run(name + "_then", steps, nullptr, report);
}

}  // namespace

absl::Status MeasureLists(const std::shared_ptr<gpu::Context>& context, Report* report) {
  for (const double tets : {2500.0, 10000.0}) {
    if (IsQuick() && tets > 2500) continue;
    if (IsSelected(absl::StrFormat("lists_liver_%d", static_cast<int>(tets)))) PALPATE_RETURN_IF_ERROR(MeasureLiver(context, tets, report));
  }
  for (const auto& [stem, steps] : {std::pair("organs", 150), {"sheet", 120}, {"dress", 60}}) {
    if (IsQuick() && stem != std::string("organs")) continue;
    if (IsSelected(absl::StrCat("lists_", stem))) PALPATE_RETURN_IF_ERROR(MeasureScene(context, stem, steps, report));
  }
  return absl::OkStatus();
}

}  // namespace palpate::bench
