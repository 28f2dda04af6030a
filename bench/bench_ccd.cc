// Continuous collision detection: the whole pipeline (boxes, hierarchy, candidates, decision) between two frames of the public scenes,
// where PALPATE_DATA_DIR has them, and of a generated one: a sheet that falls onto another and through it. And single queries with known
// answers: the public files, and the pairs of the scenes.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bench/bench_support.h"
#include "gpu/collision/ccd.h"
#include "gpu/collision/ccd_queries.h"
#include "gpu/collision/surface_topology.h"
#include "gpu/runtime/queue.h"
#include "sim/ccd/frame_file.h"
#include "sim/ccd/pair_file.h"
#include "sim/ccd/query_file.h"

namespace palpate::bench {
namespace {

namespace fs = std::filesystem;
using gpu::DeviceBuffer;
using gpu::Float4;

struct Scene {
  std::string name;
  sim::MeshFrame start, end;
  std::vector<std::array<uint32_t, 2>> required[2];  // by kind, ids as in the public data; empty if not known
  std::vector<bool> truth[2];
};

// Triangles of a grid of n x n vertices, the first of which is `first`.
void AddGrid(uint32_t n, uint32_t first, std::vector<std::array<uint32_t, 3>>* triangles) {
  for (uint32_t i = 0; i + 1 < n; ++i) {
    for (uint32_t j = 0; j + 1 < n; ++j) {
      const uint32_t a = first + i * n + j;
      triangles->push_back({a, a + n, a + 1});
      triangles->push_back({a + 1, a + n, a + n + 1});
    }
  }
}

// Two wavy sheets of n x n vertices, 10 mm apart; the upper one falls by 30 mm and slides.
Scene Sheets(uint32_t n) {
  Scene scene;
  scene.name = absl::StrCat("sheets/", 4 * (n - 1) * (n - 1));
  for (int sheet = 0; sheet < 2; ++sheet) {
    const auto first = static_cast<uint32_t>(scene.start.positions_m.size());
    AddGrid(n, first, &scene.start.triangles);
    for (uint32_t i = 0; i < n; ++i) {
      for (uint32_t j = 0; j < n; ++j) {
        const double x = static_cast<double>(i) / n, y = static_cast<double>(j) / n;
        const double z = 0.02 * std::sin(9 * x) * std::cos(7 * y) + 0.01 * sheet;
        scene.start.positions_m.push_back({x, y, z});
        scene.end.positions_m.push_back({x + 0.005 * sheet, y + 0.003 * sheet, z - 0.03 * sheet * (1 + 0.2 * std::sin(5 * (x + y)))});
      }
    }
  }
  scene.end.triangles = scene.start.triangles;
  return scene;
}

absl::StatusOr<Scene> Load(const fs::path& folder, const std::string& name, const char* start, const char* end, const char* step) {
  Scene scene;
  scene.name = name;
  PALPATE_ASSIGN_OR_RETURN(scene.start, sim::ReadPlyFrame(folder / "frames" / start));
  PALPATE_ASSIGN_OR_RETURN(scene.end, sim::ReadPlyFrame(folder / "frames" / end));
  for (const uint32_t kind : {PALPATE_VERTEX_TRIANGLE, PALPATE_EDGE_EDGE}) {
    const std::string stem = absl::StrCat(step, kind == PALPATE_VERTEX_TRIANGLE ? "vf" : "ee");
    PALPATE_ASSIGN_OR_RETURN(scene.required[kind], sim::ReadPairList(folder / "boxes" / (stem + ".json")));
    PALPATE_ASSIGN_OR_RETURN(scene.truth[kind], sim::ReadTruthList(folder / "mma_bool" / (stem + "_mma_bool.json")));
    if (scene.truth[kind].size() != scene.required[kind].size()) return absl::InvalidArgumentError(name + ": truth and pairs differ");
  }
  return scene;
}

uint64_t KeyOf(uint32_t a, uint32_t b) { return uint64_t{a} << 32 | b; }

// The required pairs of one kind as the detector numbers their elements.
std::vector<std::array<uint32_t, 2>> RequiredElements(const Scene& scene, const gpu::SurfaceTopology& topology, uint32_t kind) {
  // The public data number edges by their larger vertex, then by the smaller one.
  std::vector<uint32_t> edge_of_rank(topology.edges.size());
  for (uint32_t e = 0; e < edge_of_rank.size(); ++e) edge_of_rank[e] = e;
  std::sort(edge_of_rank.begin(), edge_of_rank.end(), [&](uint32_t a, uint32_t b) {
    const gpu::UInt2 x = topology.edges[a], y = topology.edges[b];
    return x.y != y.y ? x.y < y.y : x.x < y.x;
  });
  const uint32_t vertices = topology.vertex_count;
  const auto edges_end = static_cast<uint32_t>(vertices + topology.edges.size());
  std::vector<std::array<uint32_t, 2>> elements;
  for (const auto& ids : scene.required[kind]) {
    const auto [low, high] = std::minmax(ids[0], ids[1]);
    if (kind == PALPATE_EDGE_EDGE) {
      const uint32_t x = edge_of_rank.at(low - vertices), y = edge_of_rank.at(high - vertices);
      elements.push_back({std::min(x, y), std::max(x, y)});
    } else {
      elements.push_back({low, high - edges_end});
    }
  }
  return elements;
}

// Collisions of the truth that are no hits.
uint64_t CountMissed(const Scene& scene, const gpu::SurfaceTopology& topology, const std::vector<gpu::CcdHit>& hits) {
  uint64_t missed = 0;
  for (const uint32_t kind : {PALPATE_VERTEX_TRIANGLE, PALPATE_EDGE_EDGE}) {
    std::vector<uint64_t> keys;
    for (const gpu::CcdHit& hit : hits) {
      if (hit.kind == kind) keys.push_back(KeyOf(hit.a, hit.b));
    }
    const auto elements = RequiredElements(scene, topology, kind);
    for (size_t i = 0; i < elements.size(); ++i) {
      if (!scene.truth[kind][i]) continue;
      missed += std::binary_search(keys.begin(), keys.end(), KeyOf(elements[i][0], elements[i][1])) ? 0 : 1;
    }
  }
  return missed;
}

// The required pairs of one kind as single queries, with the coordinates of the frames.
sim::CcdQuerySet QueriesOf(const Scene& scene, const gpu::SurfaceTopology& topology, uint32_t kind) {
  sim::CcdQuerySet set;
  set.truth = scene.truth[kind];
  for (const auto& [a, b] : RequiredElements(scene, topology, kind)) {
    std::array<uint32_t, 4> vertices;
    if (kind == PALPATE_EDGE_EDGE) {
      vertices = {topology.edges[a].x, topology.edges[a].y, topology.edges[b].x, topology.edges[b].y};
    } else {
      vertices = {a, topology.triangles[b].x, topology.triangles[b].y, topology.triangles[b].z};
    }
    for (const auto* frame : {&scene.start, &scene.end}) {
      for (const uint32_t v : vertices) {
        set.coordinates.insert(set.coordinates.end(), frame->positions_m[v].begin(), frame->positions_m[v].end());
      }
    }
    set.errors.push_back(0);
  }
  return set;
}

class Suite {
 public:
  Suite(gpu::Queue& queue, Report& report) : queue_(queue), report_(report) {}

  absl::Status Run(const Scene& scene) {
    const gpu::SurfaceBody body = {.triangles = scene.start.triangles};
    PALPATE_ASSIGN_OR_RETURN(const auto topology,
                             gpu::SurfaceTopology::Build(static_cast<uint32_t>(scene.start.positions_m.size()), std::span(&body, 1)));
    const bool use_double = scene.start.has_double && queue_.context()->device().has_fp64;
    std::vector<double> doubles[2];
    std::vector<Float4> floats[2];
    for (size_t f = 0; f < 2; ++f) {
      for (const auto& p : (f == 0 ? scene.start : scene.end).positions_m) {
        doubles[f].insert(doubles[f].end(), p.begin(), p.end());
        floats[f].push_back({static_cast<float>(p[0]), static_cast<float>(p[1]), static_cast<float>(p[2]), 0});
      }
    }
    PALPATE_ASSIGN_OR_RETURN(const auto start_d, gpu::CreateBufferFrom(queue_, std::span<const double>(doubles[0]), "start"));
    PALPATE_ASSIGN_OR_RETURN(const auto end_d, gpu::CreateBufferFrom(queue_, std::span<const double>(doubles[1]), "end"));
    PALPATE_ASSIGN_OR_RETURN(const auto start_f, gpu::CreateBufferFrom(queue_, std::span<const Float4>(floats[0]), "start"));
    PALPATE_ASSIGN_OR_RETURN(const auto end_f, gpu::CreateBufferFrom(queue_, std::span<const Float4>(floats[1]), "end"));
    const auto run = [&](gpu::ContinuousCollisions& detector) -> absl::Status {
      return use_double ? detector.RunDouble(queue_, start_d, end_d) : detector.Run(queue_, start_f, end_f);
    };

    PALPATE_ASSIGN_OR_RETURN(auto detector, gpu::ContinuousCollisions::Create(queue_.context()));
    PALPATE_RETURN_IF_ERROR(detector.SetTopology(queue_, topology));
    PALPATE_RETURN_IF_ERROR(run(detector));
    std::vector<gpu::CcdHit> hits(detector.hit_count());
    if (!hits.empty()) PALPATE_RETURN_IF_ERROR(queue_.ReadBlocking(detector.hit_buffer(), hits));
    if (!scene.required[0].empty()) {
      const uint64_t missed = CountMissed(scene, topology, hits);
      if (missed > 0) return absl::InternalError(absl::StrCat(scene.name, ": ", missed, " collisions missed"));
      report_.Add(scene.name, "missed", 0, "count");
    }
    const gpu::CcdStatistics counts = detector.statistics();
    for (size_t kind = 0; kind < 2; ++kind) {
      const std::string suffix = kind == PALPATE_VERTEX_TRIANGLE ? "_vf" : "_ee";
      report_.Add(scene.name, "candidates" + suffix, static_cast<double>(counts.candidates[kind]), "count");
      report_.Add(scene.name, "undecided" + suffix, static_cast<double>(counts.pairs[kind]), "count");
      report_.Add(scene.name, "hits" + suffix, static_cast<double>(counts.hits[kind]), "count");
    }

    absl::Status status;
    const Samples samples = TimeRepetitions(
        [&] {
          status.Update(run(detector));
          status.Update(queue_.FinishBlocking());
        },
        {.warmup_repetitions = 0, .min_repetitions = IsQuick() ? 3 : 11, .max_repetitions = 200, .min_total_time_s = 0.5});
    PALPATE_RETURN_IF_ERROR(status);
    report_.Add(scene.name, "time", Quantile(samples.wall_s, 0.5), "s");
    report_.Add(scene.name, "time_cpu", Quantile(samples.cpu_s, 0.5), "s");
    report_.Add(scene.name, "time_min", Quantile(samples.wall_s, 0), "s");
    report_.Add(scene.name, "time_p90", Quantile(samples.wall_s, 0.9), "s");

    gpu::CcdDetectorOptions options;
    options.measure_stages = true;
    PALPATE_ASSIGN_OR_RETURN(auto staged, gpu::ContinuousCollisions::Create(queue_.context(), options));
    PALPATE_RETURN_IF_ERROR(staged.SetTopology(queue_, topology));
    std::vector<double> build, find, decide;
    for (int i = 0; i < (IsQuick() ? 4 : 8); ++i) {
      PALPATE_RETURN_IF_ERROR(run(staged));
      if (i == 0) continue;
      build.push_back(staged.statistics().build_seconds);
      find.push_back(staged.statistics().find_seconds);
      decide.push_back(staged.statistics().decide_seconds);
    }
    report_.Add(scene.name, "build_time", Quantile(build, 0.5), "s");
    report_.Add(scene.name, "find_time", Quantile(find, 0.5), "s");
    report_.Add(scene.name, "decide_time", Quantile(decide, 0.5), "s");
    PALPATE_RETURN_IF_ERROR(ReportMemory(scene.name, topology, use_double, doubles, floats));
    for (const uint32_t kind : {PALPATE_VERTEX_TRIANGLE, PALPATE_EDGE_EDGE}) {
      if (scene.required[kind].empty()) continue;
      const char* const suffix = kind == PALPATE_EDGE_EDGE ? "/ee_queries" : "/vf_queries";
      PALPATE_RETURN_IF_ERROR(RunQueries(scene.name + suffix, kind, QueriesOf(scene, topology, kind)));
    }
    return absl::OkStatus();
  }

  // Peak of the device memory of one detector with its input, in a context that has seen nothing else.
  absl::Status ReportMemory(const std::string& name, const gpu::SurfaceTopology& topology, bool use_double,
                            const std::vector<double> (&doubles)[2], const std::vector<Float4> (&floats)[2]) {
    PALPATE_ASSIGN_OR_RETURN(const auto context, gpu::Context::Create({.device = DeviceSelector()}));
    PALPATE_ASSIGN_OR_RETURN(const auto queue, gpu::Queue::Create(context));
    PALPATE_ASSIGN_OR_RETURN(auto detector, gpu::ContinuousCollisions::Create(context));
    PALPATE_RETURN_IF_ERROR(detector.SetTopology(*queue, topology));
    if (use_double) {
      PALPATE_ASSIGN_OR_RETURN(const auto start, gpu::CreateBufferFrom(*queue, std::span<const double>(doubles[0]), "start"));
      PALPATE_ASSIGN_OR_RETURN(const auto end, gpu::CreateBufferFrom(*queue, std::span<const double>(doubles[1]), "end"));
      PALPATE_RETURN_IF_ERROR(detector.RunDouble(*queue, start, end));
      PALPATE_RETURN_IF_ERROR(queue->FinishBlocking());
    } else {
      PALPATE_ASSIGN_OR_RETURN(const auto start, gpu::CreateBufferFrom(*queue, std::span<const Float4>(floats[0]), "start"));
      PALPATE_ASSIGN_OR_RETURN(const auto end, gpu::CreateBufferFrom(*queue, std::span<const Float4>(floats[1]), "end"));
      PALPATE_RETURN_IF_ERROR(detector.Run(*queue, start, end));
      PALPATE_RETURN_IF_ERROR(queue->FinishBlocking());
    }
    report_.Add(name, "memory", static_cast<double>(context->peak_allocated_bytes()), "bytes");
    return absl::OkStatus();
  }

  // Single queries with their exact answers. Missed ones are an error.
  absl::Status RunQueries(const std::string& name, uint32_t kind, const sim::CcdQuerySet& set) {
    PALPATE_ASSIGN_OR_RETURN(auto queries, gpu::CcdQueries::Create(queue_.context()));
    PALPATE_ASSIGN_OR_RETURN(const std::vector<gpu::CcdAnswer> answers, queries.Run(queue_, kind, set.coordinates, set.errors));
    uint64_t colliding = 0, missed = 0, false_hits = 0;
    for (size_t i = 0; i < answers.size(); ++i) {
      colliding += set.truth[i] ? 1 : 0;
      missed += set.truth[i] && answers[i].is_hit == 0 ? 1 : 0;
      false_hits += !set.truth[i] && answers[i].is_hit != 0 ? 1 : 0;
    }
    report_.Add(name, "queries", static_cast<double>(set.count()), "count");
    report_.Add(name, "colliding", static_cast<double>(colliding), "count");
    report_.Add(name, "missed", static_cast<double>(missed), "count");
    report_.Add(name, "false", static_cast<double>(false_hits), "count");
    if (missed > 0) return absl::InternalError(absl::StrCat(name, ": ", missed, " collisions missed"));
    absl::Status status;
    const Samples samples =
        TimeRepetitions([&] { status.Update(queries.Run(queue_, kind, set.coordinates, set.errors).status()); },
                        {.warmup_repetitions = 0, .min_repetitions = IsQuick() ? 3 : 11, .max_repetitions = 1000, .min_total_time_s = 0.1});
    PALPATE_RETURN_IF_ERROR(status);
    report_.Add(name, "time_per_query", Quantile(samples.wall_s, 0.5) / static_cast<double>(set.count()), "s");
    report_.Add(name, "time_per_query_cpu", Quantile(samples.cpu_s, 0.5) / static_cast<double>(set.count()), "s");
    return absl::OkStatus();
  }

  // Files of single queries below `folder`: SUITE/edge-edge/*.csv and SUITE/vertex-face/*.csv, with their answers in column 7.
  absl::Status RunQueryFiles(const fs::path& folder) {
    if (!fs::is_directory(folder)) {
      report_.Note("no ccd/queries in PALPATE_DATA_DIR");
      return absl::OkStatus();
    }
    std::vector<fs::path> files;
    for (const auto& entry : fs::recursive_directory_iterator(folder)) {
      if (entry.path().extension() == ".csv") files.push_back(entry.path());
    }
    std::sort(files.begin(), files.end());
    for (const fs::path& file : files) {
      const std::string kind_name = file.parent_path().filename().string();
      const std::string name =
          absl::StrCat(file.parent_path().parent_path().filename().string(), "/", kind_name, "/", file.stem().string());
      if (!IsSelected(name)) continue;
      if (kind_name != "edge-edge" && kind_name != "vertex-face") {
        return absl::InvalidArgumentError(absl::StrCat(file.string(), ": is in no folder named edge-edge or vertex-face"));
      }
      PALPATE_ASSIGN_OR_RETURN(const sim::CcdQuerySet set, sim::ReadCcdQueries(file));
      if (set.truth.empty()) return absl::InvalidArgumentError(absl::StrCat(file.string(), ": has no answers in a 7th column"));
      PALPATE_RETURN_IF_ERROR(RunQueries(name, kind_name == "edge-edge" ? PALPATE_EDGE_EDGE : PALPATE_VERTEX_TRIANGLE, set));
    }
    return absl::OkStatus();
  }

  absl::Status RunAll() {
    for (const uint32_t n : {64U, 160U}) {
      if (IsQuick() && n > 100) continue;
      const Scene scene = Sheets(n);
      if (IsSelected(scene.name)) PALPATE_RETURN_IF_ERROR(Run(scene));
    }
    const char* const data = std::getenv("PALPATE_DATA_DIR");
    if (data == nullptr) {
      report_.Note("PALPATE_DATA_DIR is not set: without the public scenes");
      return absl::OkStatus();
    }
    const fs::path scenes = fs::path(data) / "ccd" / "scenes";
    const struct {
      const char *name, *start, *end, *step;
    } kScenes[] = {{"cloth-funnel", "227.ply", "228.ply", "227"},
                   {"cloth-ball", "cloth_ball92.ply", "cloth_ball93.ply", "92"},
                   {"n-body-simulation", "balls16_18.ply", "balls16_19.ply", "18"}};
    for (const auto& entry : kScenes) {
      if (!IsSelected(entry.name)) continue;
      if (!fs::exists(scenes / entry.name)) {
        report_.Note(absl::StrCat("no ", entry.name, " in PALPATE_DATA_DIR"));
        continue;
      }
      PALPATE_ASSIGN_OR_RETURN(const Scene scene, Load(scenes / entry.name, entry.name, entry.start, entry.end, entry.step));
      PALPATE_RETURN_IF_ERROR(Run(scene));
    }
    return RunQueryFiles(fs::path(data) / "ccd" / "queries");
  }

 private:
  gpu::Queue& queue_;
  Report& report_;
};

int Main() {
  auto context = gpu::Context::Create({.device = DeviceSelector()});
  absl::StatusOr<std::unique_ptr<gpu::Queue>> queue =
      context.ok() ? gpu::Queue::Create(*context) : absl::StatusOr<std::unique_ptr<gpu::Queue>>(context.status());
  Report report("ccd", context.ok() ? gpu::DescribeDevice((*context)->device()) : "none");
  if (!queue.ok()) return report.Finish(queue.status());
  Suite suite(**queue, report);
  const absl::Status status = suite.RunAll();
  report.Note(
      "time: median wall time of the whole pipeline, positions on the device; time_cpu: of all threads together. candidates: pairs whose "
      "swept boxes overlap;");
  report.Note(
      "undecided: those the float filter leaves to the march in double. *_time of the stages: with a wait after each. memory: peak "
      "of the device memory of one detector with its input, in a context of its own.");
  report.Note(
      "time_per_query: median wall time of a file divided by its queries, with their upload and that of the answers; "
      "time_per_query_cpu: of all threads together. A scene's *_queries are the pairs whose exact answers are known.");
  return report.Finish(status);
}

}  // namespace
}  // namespace palpate::bench

int main(int argc, char** argv) {
  palpate::bench::Initialize(argc, argv, "Continuous collision detection between two frames");
  return palpate::bench::Main();
}
