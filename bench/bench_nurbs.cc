// Queries between NURBS surfaces: the four-surface scene of the source (four random cubic height fields, all six pairs, random places),
// against levels, rates, sizes, volumes and rules of cutting; beside the host reference, and libfcl on triangles of the same accuracy.
#include <Eigen/Geometry>
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <numbers>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "bench/bench_support.h"
#include "bench/nurbs_planted_pairs.h"
#include "gpu/collision/intersections.h"
#include "gpu/collision/nurbs_distance.h"
#include "gpu/collision/nurbs_polish.h"
#include "gpu/collision/nurbs_queries.h"
#include "gpu/runtime/queue.h"
#include "sim/nurbs/nurbs_nets.h"
#include "sim/nurbs/nurbs_query.h"
#include "sim/nurbs/nurbs_shapes.h"
#include "sim/nurbs/nurbs_tessellation.h"
#ifdef PALPATE_HAS_FCL
#include "bench/bench_nurbs_fcl.h"
#endif
#ifdef PALPATE_HAS_OCCT
#include "bench/bench_nurbs_occt.h"
#endif

namespace palpate::bench {
namespace {

using gpu::NurbsObjects;
using gpu::NurbsQueries;
using gpu::NurbsQuery;
using gpu::NurbsQueryOptions;
using gpu::NurbsQueryResult;
using gpu::NurbsSplit;
using gpu::NurbsVolume;
using sim::NurbsSurface;

constexpr std::pair<NurbsVolume, const char*> kVolumes[] = {{NurbsVolume::kTangentBox, "tangent_box"},
                                                            {NurbsVolume::kPrincipalBox, "principal_box"},
                                                            {NurbsVolume::kAlignedBox, "aligned_box"},
                                                            {NurbsVolume::kSphere, "sphere"},
                                                            {NurbsVolume::kDop14, "dop14"},
                                                            {NurbsVolume::kDop18, "dop18"},
                                                            {NurbsVolume::kDop26, "dop26"}};
constexpr std::pair<NurbsSplit, const char*> kSplits[] = {
    {NurbsSplit::kLarger, "larger"}, {NurbsSplit::kAlternate, "alternate"}, {NurbsSplit::kBoth, "both"}, {NurbsSplit::kSixteen, "sixteen"}};

// A cubic height field over [0, 1]^2 with random heights.
NurbsSurface HeightField(int rows, int columns, double height_m, std::mt19937* random) {
  std::uniform_real_distribution<double> uniform(-1, 1);
  sim::NurbsDescription out{.degree_u = 3, .degree_v = 3, .knots_u = {}, .knots_v = {}, .control_m = {}, .weights = {}};
  const auto knots = [](int count) {
    std::vector<double> k(4, 0.0);
    for (int i = 1; i < count - 3; ++i) k.push_back(static_cast<double>(i) / (count - 3));
    k.insert(k.end(), 4, 1.0);
    return k;
  };
  out.knots_u = knots(rows);
  out.knots_v = knots(columns);
  for (int i = 0; i < rows; ++i) {
    for (int j = 0; j < columns; ++j) {
      out.control_m.emplace_back(static_cast<double>(i) / (rows - 1) - 0.5, static_cast<double>(j) / (columns - 1) - 0.5,
                                 height_m * uniform(*random));
    }
  }
  return *NurbsSurface::Create(out);
}

// Two poses in a cube.
struct Placed {
  uint32_t a = 0, b = 0;
  Eigen::Isometry3d pose_a, pose_b;
};

Eigen::Isometry3d RandomPose(double cube_m, std::mt19937* random) {
  std::uniform_real_distribution<double> uniform(-0.5, 0.5);
  std::normal_distribution<double> normal;
  const Eigen::Quaterniond q(normal(*random), normal(*random), normal(*random), normal(*random));
  Eigen::Isometry3d pose(q.normalized());
  pose.pretranslate(Eigen::Vector3d(cube_m * uniform(*random), cube_m * uniform(*random), cube_m * uniform(*random)));
  return pose;
}

// All pairs of `count` surfaces, `trials` times.
std::vector<Placed> Place(uint32_t count, size_t trials, double cube_m, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<Placed> out;
  for (size_t t = 0; t < trials; ++t) {
    for (uint32_t a = 0; a < count; ++a) {
      for (uint32_t b = a + 1; b < count; ++b) out.push_back({a, b, RandomPose(cube_m, &random), RandomPose(cube_m, &random)});
    }
  }
  return out;
}

std::vector<NurbsQuery> QueriesOf(const std::vector<Placed>& placed) {
  std::vector<NurbsQuery> out;
  for (const Placed& p : placed) {
    out.push_back({.object_a = p.a,
                   .object_b = p.b,
                   .pose_a = sim::PoseOf(Eigen::Affine3d(p.pose_a)),
                   .pose_b = sim::PoseOf(Eigen::Affine3d(p.pose_b))});
  }
  return out;
}

class Suite {
 public:
  Suite(gpu::Queue& queue, Report& report) : queue_(queue), report_(report) {}

  absl::Status Run() {
    std::mt19937 random(1);
    surfaces_ = {HeightField(5, 5, 0.2, &random), HeightField(30, 25, 0.2, &random), HeightField(70, 21, 0.2, &random),
                 HeightField(15, 14, 0.2, &random)};
    PALPATE_ASSIGN_OR_RETURN(NurbsObjects objects, Make(surfaces_));
    trials_ = IsQuick() ? 50 : 500;
    PALPATE_ASSIGN_OR_RETURN(const double cube_m, CubeFor(objects, 0.5));
    const std::vector<Placed> half = Place(4, trials_, cube_m, 2);
    for (const uint32_t level : {10U, 18U, 26U, 30U, 42U, 54U, 66U}) {
      PALPATE_RETURN_IF_ERROR(Time(absl::StrFormat("levels/%u", level), objects, half, {.first_only = true, .max_level = level}));
    }
    for (const auto& [volume, name] : kVolumes) {
      PALPATE_RETURN_IF_ERROR(Time(absl::StrCat("volumes/", name), objects, half, {.volume = volume, .first_only = true, .max_level = 30}));
    }
    for (const auto& [split, name] : kSplits) {
      PALPATE_RETURN_IF_ERROR(Time(absl::StrCat("splits/", name), objects, half, {.split = split, .first_only = true, .max_level = 30}));
    }
    for (const double rate : {0.01, 0.1, 0.25, 0.75, 0.99}) {
      const std::string name = absl::StrFormat("rates/%.0f_percent", 100 * rate);
      if (!IsSelected(name)) continue;
      PALPATE_ASSIGN_OR_RETURN(const double cube, CubeFor(objects, rate));
      PALPATE_RETURN_IF_ERROR(Time(name, objects, Place(4, trials_, cube, 3), {.first_only = true, .max_level = 30}));
    }
    PALPATE_RETURN_IF_ERROR(TimeAll(objects, half));
    PALPATE_RETURN_IF_ERROR(TimeHost(half));
    PALPATE_RETURN_IF_ERROR(TimeTriangles(half));
    PALPATE_RETURN_IF_ERROR(TimeFcl(half));
    PALPATE_RETURN_IF_ERROR(TimeDeforming(objects));
    PALPATE_RETURN_IF_ERROR(TimeSizes());
    PALPATE_RETURN_IF_ERROR(TimeParallel());
    PALPATE_RETURN_IF_ERROR(TimeDistances(objects));
    PALPATE_RETURN_IF_ERROR(CheckPairs());
    PALPATE_RETURN_IF_ERROR(Precision());
    return PrecisionOfFalls();
  }

 private:
  absl::StatusOr<NurbsObjects> Make(const std::vector<NurbsSurface>& surfaces) {
    std::vector<std::vector<gpu::NurbsNet>> nets;
    for (const NurbsSurface& surface : surfaces) nets.push_back({sim::NetOf(surface)});
    return NurbsObjects::Create(queue_, nets);
  }

  // The side of a cube in which so many queries hit, to a few in a thousand.
  absl::StatusOr<double> CubeFor(const NurbsObjects& objects, double rate) {
    PALPATE_ASSIGN_OR_RETURN(NurbsQueries search, NurbsQueries::Create(queue_.context(), {.first_only = true, .max_level = 30}));
    double low = 0;
    double high = 16;
    for (int i = 0; i < 14; ++i) {
      const double cube_m = 0.5 * (low + high);
      const std::vector<NurbsQuery> queries = QueriesOf(Place(objects.object_count(), 200, cube_m, 4));
      PALPATE_ASSIGN_OR_RETURN(const NurbsQueryResult result, search.Run(queue_, objects, queries));
      (static_cast<double>(result.hits.size()) > rate * static_cast<double>(queries.size()) ? low : high) = cube_m;
    }
    return 0.5 * (low + high);
  }

  absl::Status Time(const std::string& name, const NurbsObjects& objects, const std::vector<Placed>& placed,
                    const NurbsQueryOptions& options) {
    if (!IsSelected(name)) return absl::OkStatus();
    PALPATE_ASSIGN_OR_RETURN(NurbsQueries search, NurbsQueries::Create(queue_.context(), options));
    const std::vector<NurbsQuery> queries = QueriesOf(placed);
    const auto count = static_cast<double>(queries.size());
    NurbsQueryResult result;
    absl::Status status;
    const Times times = MedianTimes([&] {
      auto run = search.Run(queue_, objects, queries);
      if (run.ok()) {
        result = *std::move(run);
      } else {
        status = run.status();
      }
    });
    PALPATE_RETURN_IF_ERROR(status);
    size_t hit_queries = 0;
    for (size_t i = 0; i < result.hits.size(); ++i) hit_queries += i == 0 || result.hits[i].query != result.hits[i - 1].query ? 1 : 0;
    report_.Add(name, "queries", count / times.wall_s, "per_s");
    report_.Add(name, "query_cpu", times.cpu_s / count, "s");
    report_.Add(name, "hitting", static_cast<double>(hit_queries) / count, "ratio");
    report_.Add(name, "box_tests", static_cast<double>(result.pair_tests) / count, "count");
    report_.Add(name, "peak_memory", static_cast<double>(result.peak_bytes), "bytes");
    if (!options.first_only) report_.Add(name, "hits", static_cast<double>(result.hits.size()) / count, "count");
    return absl::OkStatus();
  }

  absl::Status TimeAll(const NurbsObjects& objects, const std::vector<Placed>& placed) {
    const std::vector<Placed> some(placed.begin(), placed.begin() + static_cast<std::ptrdiff_t>(std::min<size_t>(placed.size(), 120)));
    for (const auto& [split, name] : kSplits) {
      if (split == NurbsSplit::kAlternate) continue;  // millions of hits: a small part stays with a large one
      PALPATE_RETURN_IF_ERROR(Time(absl::StrCat("all_hits/", name), objects, some, {.split = split, .tolerance_m = 0.01}));
    }
    return absl::OkStatus();
  }

  // The reference on one thread, in double, boxes by principal axes.
  absl::Status TimeHost(const std::vector<Placed>& placed) {
    if (!IsSelected("host/level_30")) return absl::OkStatus();
    const size_t count = IsQuick() ? 30 : 300;
    size_t hits = 0;
    uint64_t tests = 0;
    const Stopwatch stopwatch;
    for (size_t i = 0; i < count; ++i) {
      const Placed& p = placed[i];
      const std::array<NurbsSurface, 1> a = {surfaces_[p.a].Transformed(Eigen::Affine3d(p.pose_a))};
      const std::array<NurbsSurface, 1> b = {surfaces_[p.b].Transformed(Eigen::Affine3d(p.pose_b))};
      PALPATE_ASSIGN_OR_RETURN(const sim::NurbsQueryResult result,
                               sim::FindNurbsContacts(a, b, {.tolerance_m = 1e-9, .max_level = 30, .first_only = true}));
      hits += result.hits.size();
      tests += result.box_tests;
    }
    const double each_s = stopwatch.Elapsed().wall_s / static_cast<double>(count);
    report_.Add("host/level_30", "queries", 1 / each_s, "per_s");
    report_.Add("host/level_30", "hitting", static_cast<double>(hits) / static_cast<double>(count), "ratio");
    report_.Add("host/level_30", "box_tests", static_cast<double>(tests) / static_cast<double>(count), "count");
    return absl::OkStatus();
  }

  // Whether triangles of the same accuracy cross, by our own detection: what a user of triangles would take. One query at a time.
  absl::Status TimeTriangles(const std::vector<Placed>& placed) {
    for (const double tolerance_m : {1e-2, 3e-3}) {
      const std::string name = absl::StrFormat("own_triangles/within_%g_mm", 1000 * tolerance_m);
      if (!IsSelected(name)) continue;
      std::vector<sim::SurfaceMesh> meshes;
      size_t triangles = 0;
      const Stopwatch making;
      for (const NurbsSurface& surface : surfaces_) {
        const std::array<NurbsSurface, 1> patches = {surface};
        PALPATE_ASSIGN_OR_RETURN(sim::SurfaceMesh mesh, sim::TessellateNurbs(patches, tolerance_m));
        triangles += mesh.triangles.size();
        meshes.push_back(std::move(mesh));
      }
      report_.Add(name, "tessellate", making.Elapsed().wall_s, "s");
      struct Pair {
        std::shared_ptr<const gpu::DeviceSurface> surface;
        gpu::DeviceBuffer<gpu::Float4> positions;
      };
      std::map<std::pair<uint32_t, uint32_t>, Pair> pairs;
      PALPATE_ASSIGN_OR_RETURN(gpu::IntersectionCounter counter, gpu::IntersectionCounter::Create(queue_.context()));
      size_t hits = 0, done = 0;
      double wall_s = 0, cpu_s = 0;
      const size_t count = std::min<size_t>(placed.size(), 300);
      for (; done < count; ++done) {
        const Placed& p = placed[done];
        const sim::SurfaceMesh &a = meshes[p.a], &b = meshes[p.b];
        Pair& pair = pairs[{p.a, p.b}];
        if (pair.surface == nullptr) {
          std::vector<std::array<uint32_t, 3>> of_b = b.triangles;
          for (auto& triangle : of_b) {
            for (uint32_t& v : triangle) v += static_cast<uint32_t>(a.vertices.size());
          }
          const std::vector<gpu::SurfaceBody> bodies = {{a.triangles, 0, false}, {of_b, 1, false}};
          const auto vertices = static_cast<uint32_t>(a.vertices.size() + b.vertices.size());
          PALPATE_ASSIGN_OR_RETURN(const gpu::SurfaceTopology topology, gpu::SurfaceTopology::Build(vertices, bodies));
          PALPATE_ASSIGN_OR_RETURN(gpu::DeviceSurface surface, gpu::DeviceSurface::Upload(queue_, topology));
          pair.surface = std::make_shared<const gpu::DeviceSurface>(std::move(surface));
          PALPATE_ASSIGN_OR_RETURN(pair.positions, gpu::DeviceBuffer<gpu::Float4>::Create(queue_.context(), vertices, "positions"));
        }
        const Stopwatch stopwatch;
        std::vector<gpu::Float4> positions;
        for (const auto& [mesh, pose] : {std::pair(&a, &p.pose_a), std::pair(&b, &p.pose_b)}) {
          for (const Eigen::Vector3d& v : mesh->vertices) {
            const Eigen::Vector3f x = (*pose * v).cast<float>();
            positions.push_back({x.x(), x.y(), x.z(), 0});
          }
        }
        PALPATE_RETURN_IF_ERROR(queue_.Write(pair.positions, std::span<const gpu::Float4>(positions)));
        PALPATE_RETURN_IF_ERROR(counter.Run(queue_, *pair.surface, pair.positions));
        hits += counter.crossing_count() > 0 ? 1 : 0;
        const Times times = stopwatch.Elapsed();
        wall_s += times.wall_s;
        cpu_s += times.cpu_s;
      }
      report_.Add(name, "queries", static_cast<double>(done) / wall_s, "per_s");
      report_.Add(name, "query_cpu", cpu_s / static_cast<double>(done), "s");
      report_.Add(name, "hitting", static_cast<double>(hits) / static_cast<double>(done), "ratio");
      report_.Add(name, "triangles", static_cast<double>(triangles), "count");
    }
    return absl::OkStatus();
  }

  absl::Status TimeFcl([[maybe_unused]] const std::vector<Placed>& placed) {
#ifdef PALPATE_HAS_FCL
    // Boxes of level 30 are some 5 mm wide and less than 1 mm thick; finer triangles than these take minutes to be made.
    for (const double tolerance_m : {1e-2, 3e-3}) {
      const std::string name = absl::StrFormat("fcl/within_%g_mm", 1000 * tolerance_m);
      if (!IsSelected(name)) continue;
      std::vector<std::unique_ptr<FclMesh>> meshes;
      size_t triangles = 0;
      const Stopwatch making;
      for (const NurbsSurface& surface : surfaces_) {
        const std::array<NurbsSurface, 1> patches = {surface};
        PALPATE_ASSIGN_OR_RETURN(const sim::SurfaceMesh mesh, sim::TessellateNurbs(patches, tolerance_m));
        triangles += mesh.triangles.size();
        meshes.push_back(FclMesh::Create(mesh));
      }
      report_.Add(name, "tessellate_and_build", making.Elapsed().wall_s, "s");
      size_t hits = 0;
      const Stopwatch stopwatch;
      for (const Placed& p : placed) hits += meshes[p.a]->Meets(p.pose_a, *meshes[p.b], p.pose_b) ? 1 : 0;
      const auto count = static_cast<double>(placed.size());
      report_.Add(name, "queries", count / stopwatch.Elapsed().wall_s, "per_s");
      report_.Add(name, "hitting", static_cast<double>(hits) / count, "ratio");
      report_.Add(name, "triangles", static_cast<double>(triangles), "count");
    }
#endif
    return absl::OkStatus();
  }

  absl::Status TimeDeforming(NurbsObjects& objects) {
    for (uint32_t i = 0; i < surfaces_.size(); ++i) {
      const gpu::NurbsNet net = sim::NetOf(surfaces_[i]);
      const std::string name = absl::StrFormat("deform/%u_points", net.control.size() / 4);
      if (!IsSelected(name)) continue;
      absl::Status status;
      const Times times = MedianTimes([&] {
        status = objects.SetControl(queue_, i, net.control);
        if (status.ok()) status = queue_.FinishBlocking();
      });
      PALPATE_RETURN_IF_ERROR(status);
      report_.Add(name, "new_control_points", times.wall_s, "s");
    }
    return absl::OkStatus();
  }

  // One shape with more and more control points, two copies of it.
  absl::Status TimeSizes() {
    std::mt19937 random(5);
    const NurbsSurface shape = HeightField(4, 4, 0.3, &random);
    for (const size_t size : {4U, 10U, 15U, 20U}) {
      const std::string name = absl::StrFormat("sizes/%ux%u", size, size);
      if (!IsSelected(name)) continue;
      const NurbsSurface refined = shape.Refined(size, size);
      PALPATE_ASSIGN_OR_RETURN(NurbsObjects objects, Make({refined, refined}));
      PALPATE_ASSIGN_OR_RETURN(const double cube_m, CubeFor(objects, 0.5));
      PALPATE_RETURN_IF_ERROR(Time(name, objects, Place(2, 10 * trials_, cube_m, 6), {.first_only = true, .max_level = 30}));
    }
    return absl::OkStatus();
  }

  // Parallel surfaces that do not touch: all of both has to be cut.
  absl::Status TimeParallel() {
    std::mt19937 random(7);
    const NurbsSurface shape = HeightField(15, 14, 0.2, &random);
    PALPATE_ASSIGN_OR_RETURN(NurbsObjects objects, Make({shape, shape}));
    for (const double gap_m : {0.05, 0.01, 0.002}) {
      std::vector<Placed> placed;
      for (int i = 0; i < 20; ++i) {
        Placed p{0, 1, RandomPose(1, &random), {}};
        p.pose_b = p.pose_a * Eigen::Translation3d(0, 0, gap_m);
        placed.push_back(p);
      }
      PALPATE_RETURN_IF_ERROR(
          Time(absl::StrFormat("parallel/gap_%g_mm", 1000 * gap_m), objects, placed, {.first_only = true, .max_level = 60}));
    }
    return absl::OkStatus();
  }

  // Queries of the scene in a wider cube, where few meet: the least distance, and whether they meet to a tolerance. Beside it OpenCASCADE,
  // on as many of the same queries as it can do in some seconds.
  absl::Status TimeDistances(const NurbsObjects& objects) {
    const double tolerance_m = 1e-3;
    const std::vector<Placed> placed = Place(4, IsQuick() ? 5 : 50, 3, 9);
    const std::vector<NurbsQuery> queries = QueriesOf(placed);
    PALPATE_RETURN_IF_ERROR(Time("first_hits/within_1_mm", objects, placed, {.first_only = true, .tolerance_m = tolerance_m}));
    if (!IsSelected("distances/least") && !IsSelected("occt/distances") && !IsSelected("occt/intersections")) return absl::OkStatus();
    PALPATE_ASSIGN_OR_RETURN(gpu::NurbsDistances search, gpu::NurbsDistances::Create(queue_.context(), {.tolerance_m = tolerance_m}));
    std::vector<gpu::NurbsDistance> found;
    absl::Status status;
    const Times times = MedianTimes([&] {
      auto run = search.Run(queue_, objects, queries);
      if (run.ok()) {
        found = *std::move(run);
      } else {
        status = run.status();
      }
    });
    PALPATE_RETURN_IF_ERROR(status);
    const auto count = static_cast<double>(queries.size());
    double widest_m = 0;
    for (const gpu::NurbsDistance& distance : found) {
      widest_m = std::max(widest_m, distance.minima[0].distance_m - distance.lower_bound_m);
    }
    report_.Add("distances/least", "queries", count / times.wall_s, "per_s");
    report_.Add("distances/least", "query_cpu", times.cpu_s / count, "s");
    report_.Add("distances/least", "widest_certificate", widest_m, "m");
    return TimeOcct(placed, found, tolerance_m);
  }

  absl::Status TimeOcct([[maybe_unused]] const std::vector<Placed>& placed, [[maybe_unused]] const std::vector<gpu::NurbsDistance>& found,
                        [[maybe_unused]] double tolerance_m) {
#ifdef PALPATE_HAS_OCCT
    const double patience_s = IsQuick() ? 5 : 60;
    std::vector<std::unique_ptr<OcctSurface>> surfaces;
    for (const NurbsSurface& surface : surfaces_) surfaces.push_back(OcctSurface::Create(surface));
    for (const bool is_distance : {true, false}) {
      const std::string name = is_distance ? "occt/distances" : "occt/intersections";
      if (!IsSelected(name)) continue;
      size_t done = 0;
      size_t hits = 0;
      double above_m = 0;
      double below_m = 0;
      const Stopwatch stopwatch;
      for (; done < placed.size() && stopwatch.Elapsed().wall_s < patience_s; ++done) {
        const Placed& p = placed[done];
        if (!is_distance) {
          hits += surfaces[p.a]->Meets(p.pose_a, *surfaces[p.b], p.pose_b, tolerance_m) ? 1 : 0;
          continue;
        }
        const double off_m = surfaces[p.a]->Distance(p.pose_a, *surfaces[p.b], p.pose_b, tolerance_m) - found[done].minima[0].distance_m;
        above_m = std::max(above_m, off_m);
        below_m = std::max(below_m, -off_m);
      }
      report_.Add(name, "queries", static_cast<double>(done) / stopwatch.Elapsed().wall_s, "per_s");
      report_.Add(name, "done", static_cast<double>(done), "count");
      if (is_distance) {
        report_.Add(name, "farthest_above_ours", above_m, "m");
        report_.Add(name, "farthest_below_ours", below_m, "m");
      } else {
        report_.Add(name, "hitting", static_cast<double>(hits) / static_cast<double>(std::max<size_t>(done, 1)), "ratio");
      }
    }
#endif
    return absl::OkStatus();
  }

  // Random pairs of small patches that are known to meet at a place: in each second one they only touch there. None may be missed.
  absl::Status CheckPairs() {
    if (!IsSelected("pairs/planted")) return absl::OkStatus();
    const size_t total = IsQuick() ? 200'000 : 10'000'000;
    constexpr size_t kBatch = 20'000;
    PlantedPairs source(256, 10);
    PALPATE_ASSIGN_OR_RETURN(NurbsObjects objects, NurbsObjects::Create(queue_, source.Nets()));
    PALPATE_ASSIGN_OR_RETURN(NurbsQueries search, NurbsQueries::Create(queue_.context(), {.max_level = 10}));
    size_t missed = 0;
    size_t tangential = 0;
    uint64_t hits = 0;
    const Stopwatch stopwatch;
    for (size_t begin = 0; begin < total; begin += kBatch) {
      std::vector<PlantedPair> pairs;
      std::vector<NurbsQuery> queries;
      for (size_t i = begin; i < std::min(begin + kBatch, total); ++i) {
        pairs.push_back(source.Next());
        queries.push_back(pairs.back().query);
        tangential += pairs.back().is_tangential ? 1 : 0;
      }
      PALPATE_ASSIGN_OR_RETURN(const NurbsQueryResult result, search.Run(queue_, objects, queries));
      missed += PlantedPairs::CountMissed(pairs, result.hits);
      hits += result.hits.size();
    }
    const double wall_s = stopwatch.Elapsed().wall_s;
    report_.Add("pairs/planted", "pairs", static_cast<double>(total), "count");
    report_.Add("pairs/planted", "tangential", static_cast<double>(tangential), "count");
    report_.Add("pairs/planted", "missed", static_cast<double>(missed), "count");
    report_.Add("pairs/planted", "hits", static_cast<double>(hits) / static_cast<double>(total), "count");
    report_.Add("pairs/planted", "time", wall_s, "s");
    if (missed > 0) return absl::InternalError(absl::StrCat("pairs/planted: ", missed, " of ", total, " known contacts were missed"));
    return absl::OkStatus();
  }

  // The six contacts of the source that are known: spheres of eight octants, and planes.
  struct Contact {
    Eigen::Vector3d contact_m;  // of a sphere about the origin
    bool is_plane;
    Eigen::Matrix3d turned;

    // The other object, `apart_m` away from where they touch.
    Eigen::Affine3d Other(double apart_m) const {
      Eigen::Affine3d other = Eigen::Affine3d::Identity();
      other.translation() = (is_plane ? 1 : 2) * contact_m + apart_m * contact_m;
      if (is_plane) other.linear() = turned;
      return other;
    }
  };
  static std::vector<Contact> Contacts() {
    const double turn = std::numbers::pi / 6;
    const Eigen::Matrix3d about_x = Eigen::AngleAxisd(turn, Eigen::Vector3d::UnitX()).toRotationMatrix();
    const Eigen::Matrix3d both = Eigen::AngleAxisd(turn, Eigen::Vector3d::UnitZ()).toRotationMatrix() * about_x;
    return {{Eigen::Vector3d::UnitZ(), false, {}},
            {Eigen::Vector3d(1, 1, 0).normalized(), false, {}},
            {Eigen::Vector3d(1, 1, 1).normalized(), false, {}},
            {-Eigen::Vector3d::UnitZ(), true, Eigen::Matrix3d::Identity()},
            {-about_x.col(2), true, about_x},
            {-both.col(2), true, both}};
  }
  absl::StatusOr<NurbsObjects> SphereAndPlane() {
    std::mt19937 random(8);
    Eigen::Affine3d grow = Eigen::Affine3d::Identity();
    grow.linear() *= 4;
    const NurbsSurface plane = HeightField(4, 4, 0, &random).Transformed(grow);
    const std::vector<NurbsSurface> sphere = sim::NurbsSphere(1);
    const std::vector<std::vector<gpu::NurbsNet>> nets = {sim::NetsOf(sphere), {sim::NetOf(plane)}};
    return NurbsObjects::Create(queue_, nets);
  }
  static NurbsQuery QueryOf(const Contact& contact, double apart_m) {
    return {.object_a = 0, .object_b = contact.is_plane ? 1U : 0U, .pose_a = {}, .pose_b = sim::PoseOf(contact.Other(apart_m))};
  }

  // How far the first hit is from the contact.
  absl::Status Precision() {
    PALPATE_ASSIGN_OR_RETURN(const NurbsObjects objects, SphereAndPlane());
    const std::vector<Contact> cases = Contacts();
    for (size_t i = 0; i < cases.size(); ++i) {
      const std::vector<NurbsQuery> queries = {QueryOf(cases[i], 0)};
      for (const uint32_t level : {16U, 24U, 32U, 40U, 48U, 60U}) {
        const std::string name = absl::StrFormat("precision/case_%d/level_%u", static_cast<int>(i) + 1, level);
        if (!IsSelected(name)) continue;
        PALPATE_ASSIGN_OR_RETURN(NurbsQueries search, NurbsQueries::Create(queue_.context(), {.first_only = true, .max_level = level}));
        PALPATE_ASSIGN_OR_RETURN(const NurbsQueryResult result, search.Run(queue_, objects, queries));
        if (result.hits.size() != 1) return absl::InternalError(absl::StrCat(name, ": the contact was missed"));
        const auto& p = result.hits[0].a.point_m;
        report_.Add(name, "error", (Eigen::Vector3d(p[0], p[1], p[2]) - cases[i].contact_m).norm(), "m");
        PALPATE_ASSIGN_OR_RETURN(const gpu::NurbsPolishResult polished, gpu::PolishNurbsHits(objects, queries, result.hits));
        if (polished.contacts.empty()) continue;  // this hit was none
        const auto& q = polished.contacts[0].point_m;
        report_.Add(name, "error_polished", (Eigen::Vector3d(q[0], q[1], q[2]) - cases[i].contact_m).norm(), "m");
      }
    }
    return absl::OkStatus();
  }

  // The same where the other object falls onto the sphere, from rest along the normal, in steps of 0.1 ms: the first hit of the first step
  // that has one.
  absl::Status PrecisionOfFalls() {
    constexpr double kStep_s = 1e-4, kHeight_m = 0.4, kGravity_m_per_s2 = 9.81;
    PALPATE_ASSIGN_OR_RETURN(const NurbsObjects objects, SphereAndPlane());
    const std::vector<Contact> cases = Contacts();
    const double contact_s = std::sqrt(2 * kHeight_m / kGravity_m_per_s2);
    const auto steps = static_cast<size_t>(contact_s / kStep_s) + 2;
    const auto apart_m = [&](size_t k) { return kHeight_m - 0.5 * kGravity_m_per_s2 * std::pow(kStep_s * static_cast<double>(k), 2); };
    for (size_t i = 0; i < cases.size(); ++i) {
      std::vector<NurbsQuery> queries;
      for (size_t k = 0; k <= steps; ++k) queries.push_back(QueryOf(cases[i], apart_m(k)));
      for (const uint32_t level : {16U, 24U, 32U, 40U, 48U, 60U}) {
        const std::string name = absl::StrFormat("falls/case_%d/level_%u", static_cast<int>(i) + 1, level);
        if (!IsSelected(name)) continue;
        PALPATE_ASSIGN_OR_RETURN(NurbsQueries search, NurbsQueries::Create(queue_.context(), {.first_only = true, .max_level = level}));
        PALPATE_ASSIGN_OR_RETURN(const NurbsQueryResult result, search.Run(queue_, objects, queries));
        if (result.hits.empty()) return absl::InternalError(absl::StrCat(name, ": the contact was missed"));
        const auto& p = result.hits[0].a.point_m;
        report_.Add(name, "error", (Eigen::Vector3d(p[0], p[1], p[2]) - cases[i].contact_m).norm(), "m");
        report_.Add(name, "early", contact_s - kStep_s * static_cast<double>(result.hits[0].query), "s");
      }
    }
    return absl::OkStatus();
  }

  gpu::Queue& queue_;
  Report& report_;
  std::vector<NurbsSurface> surfaces_;
  size_t trials_ = 0;
};

int Main() {
  auto context = gpu::Context::Create({.device = DeviceSelector()});
  absl::StatusOr<std::unique_ptr<gpu::Queue>> queue =
      context.ok() ? gpu::Queue::Create(*context) : absl::StatusOr<std::unique_ptr<gpu::Queue>>(context.status());
  Report report("nurbs", context.ok() ? gpu::DescribeDevice((*context)->device()) : "none");
  if (!queue.ok()) return report.Finish(queue.status());
  Suite suite(**queue, report);
  const absl::Status status = suite.Run();
  report.Note("Queries of the four-surface scene, first hit unless all_hits; half of them hit unless rates. query_cpu: of all threads.");
  report.Note("host: the reference in double, one thread. fcl: triangles no farther from the surface than named, one thread.");
  report.Note("own_triangles: the same triangles, whether any cross, by our own detection, one query at a time on all threads.");
  report.Note("distances: certified to 1 mm, as many threads as the device has. occt: OpenCASCADE at the same tolerance, one thread.");
#ifndef PALPATE_HAS_OCCT
  report.Note("OpenCASCADE was not found when this program was built: no comparison.");
#endif
#ifndef PALPATE_HAS_FCL
  report.Note("libfcl was not found when this program was built: no comparison.");
#endif
  return report.Finish(status);
}

}  // namespace
}  // namespace palpate::bench

int main(int argc, char** argv) {
  palpate::bench::Initialize(argc, argv, "Queries between NURBS surfaces, beside the host reference and libfcl on triangles.");
  return palpate::bench::Main();
}
