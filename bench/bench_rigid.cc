// Rigid bodies: the scene of Amaral 2021 for each bounding volume, and the narrow phase by itself.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "bench/bench_support.h"
#include "gpu/collision/convex_narrow_phase.h"
#include "gpu/dynamics/rigid_bodies.h"

ABSL_FLAG(int, frames, 0, "frames of the scene; 0 = 7000, or 700 with --quick");
ABSL_FLAG(int, bodies, 511, "bodies of the scene");
ABSL_FLAG(std::string, volumes, "sphere,6-dop,14-dop,18-dop,26-dop,obb", "bounding volumes, with commas between them");
ABSL_FLAG(std::string, response, "corrected",
          "corrected: positions and velocities, with friction; plain: matches that leave velocities; volumes: as corrected, with "
          "contacts of the bounding volumes alone");
ABSL_FLAG(double, full_distance, 10, "of the cases 'detail': up to this far [m] from where the column lands a body gets all iterations");
ABSL_FLAG(double, reduced_distance, 30, "of the cases 'detail': from here on 2 iterations");
ABSL_FLAG(int, pairs, 0, "random pairs of the iteration study; 0 = 2^20, or 2^17 with --quick");

namespace palpate::bench {
namespace {

using gpu::BoundingVolume;
using gpu::ConvexMesh;
using gpu::DeviceBuffer;
using gpu::Float4;
using gpu::RigidStage;

// A cube with bevelled edges and corners: 24 vertices, 26 faces.
ConvexMesh BevelledCube() {
  ConvexMesh mesh;
  for (int axis = 0; axis < 3; ++axis) {
    for (int signs = 0; signs < 8; ++signs) {
      float p[3];
      for (int i = 0; i < 3; ++i) p[i] = (signs >> i & 1 ? -1.0F : 1.0F) * (i == axis ? 1.0F : 0.179303F);
      mesh.vertices_m.push_back({p[0], p[1], p[2], 0});
    }
  }
  return mesh;
}

// A sphere with its triangles: each face of an octahedron has `parts` rows of triangles; 4 parts^2 + 2 vertices.
ConvexMesh Sphere(int parts) {
  ConvexMesh mesh;
  std::vector<std::array<int, 3>> places;
  const auto vertex = [&](int x, int y, int z) {
    const std::array<int, 3> place = {x, y, z};
    const auto found = std::find(places.begin(), places.end(), place);
    if (found != places.end()) return static_cast<uint32_t>(found - places.begin());
    places.push_back(place);
    const double length = std::sqrt(double(x) * x + double(y) * y + double(z) * z);
    mesh.vertices_m.push_back({static_cast<float>(x / length), static_cast<float>(y / length), static_cast<float>(z / length), 0});
    return static_cast<uint32_t>(places.size() - 1);
  };
  for (int octant = 0; octant < 8; ++octant) {
    const int sx = octant & 1 ? -1 : 1, sy = octant & 2 ? -1 : 1, sz = octant & 4 ? -1 : 1;
    const bool mirrored = sx * sy * sz < 0;
    const auto at = [&](int i, int j) { return vertex(sx * i, sy * j, sz * (parts - i - j)); };
    const auto add = [&](uint32_t a, uint32_t b, uint32_t c) {
      mesh.triangles.push_back(mirrored ? gpu::UInt4{a, c, b, 0} : gpu::UInt4{a, b, c, 0});
    };
    for (int i = 0; i < parts; ++i) {
      for (int j = 0; i + j < parts; ++j) {
        add(at(i, j), at(i + 1, j), at(i, j + 1));
        if (i + j + 1 < parts) add(at(i + 1, j), at(i + 1, j + 1), at(i, j + 1));
      }
    }
  }
  return mesh;
}

struct Pairs {
  uint32_t count = 0;
  DeviceBuffer<uint32_t> meshes;
  DeviceBuffer<Float4> positions, rotations, scales;
  DeviceBuffer<gpu::UInt2> pairs;
  DeviceBuffer<gpu::ConvexContact> contacts;
  gpu::ConvexBodies bodies() const { return {2 * count, meshes, positions, rotations, scales}; }
};

class Suite {
 public:
  Suite(gpu::Queue& queue, Report& report) : queue_(queue), report_(report) {}

  // Pairs of random orientation whose bounding spheres meet: the second body's centre is uniform in the ball of twice the radius.
  absl::StatusOr<Pairs> RandomPairs(uint32_t count, std::array<float, 3> scale, double radius, uint64_t seed) {
    std::mt19937_64 random(seed);
    std::normal_distribution<double> normal;
    std::uniform_real_distribution<double> uniform(-1, 1);
    std::vector<Float4> positions, rotations;
    std::vector<gpu::UInt2> pairs;
    for (uint32_t i = 0; i < 2 * count; ++i) {
      double x = 0, y = 0, z = 0;
      while (i % 2 == 1) {
        x = uniform(random), y = uniform(random), z = uniform(random);
        if (x * x + y * y + z * z <= 1) break;
      }
      positions.push_back({static_cast<float>(2 * radius * x), static_cast<float>(2 * radius * y), static_cast<float>(2 * radius * z), 0});
      const double a = normal(random), b = normal(random), c = normal(random), d = normal(random);
      const double length = std::sqrt(a * a + b * b + c * c + d * d);
      rotations.push_back(
          {static_cast<float>(a / length), static_cast<float>(b / length), static_cast<float>(c / length), static_cast<float>(d / length)});
      if (i % 2 == 0) pairs.push_back({i, i + 1});
    }
    Pairs p;
    p.count = count;
    PALPATE_ASSIGN_OR_RETURN(p.meshes, gpu::CreateBufferFrom<uint32_t>(queue_, std::vector<uint32_t>(2 * size_t{count}, 0), "meshes"));
    PALPATE_ASSIGN_OR_RETURN(p.positions, gpu::CreateBufferFrom<Float4>(queue_, positions, "positions"));
    PALPATE_ASSIGN_OR_RETURN(p.rotations, gpu::CreateBufferFrom<Float4>(queue_, rotations, "rotations"));
    PALPATE_ASSIGN_OR_RETURN(p.scales, gpu::CreateBufferFrom<Float4>(
                                           queue_, std::vector<Float4>(2 * size_t{count}, {scale[0], scale[1], scale[2], 0}), "scales"));
    PALPATE_ASSIGN_OR_RETURN(p.pairs, gpu::CreateBufferFrom<gpu::UInt2>(queue_, pairs, "pairs"));
    PALPATE_ASSIGN_OR_RETURN(p.contacts, DeviceBuffer<gpu::ConvexContact>::Create(queue_.context(), count, "contacts"));
    return p;
  }

  // Distances and depths of random pairs; Amaral 2021 counted 10 million of them.
  absl::Status Iterations(const std::string& name, std::array<float, 3> scale, double radius) {
    const uint32_t total = absl::GetFlag(FLAGS_pairs) > 0 ? static_cast<uint32_t>(absl::GetFlag(FLAGS_pairs))
                           : IsQuick()                    ? 1U << 17
                                                          : 1U << 20;
    const uint32_t batch = std::min(total, 1U << 16);
    PALPATE_ASSIGN_OR_RETURN(const gpu::ConvexMeshes meshes, gpu::ConvexMeshes::Create(queue_, std::vector<ConvexMesh>{BevelledCube()}));
    for (const bool with_distance : {true, false}) {
      gpu::ConvexStatistics statistics;
      Samples samples;
      for (uint32_t done = 0; done < total; done += batch) {
        PALPATE_ASSIGN_OR_RETURN(const Pairs pairs, RandomPairs(batch, scale, radius, done + 1));
        PALPATE_RETURN_IF_ERROR(queue_.FinishBlocking());
        absl::Status status;
        const Stopwatch stopwatch;
        status.Update(phase_.Run(queue_, meshes, pairs.bodies(), pairs.pairs, batch, with_distance ? INFINITY : 0.0F, pairs.contacts));
        status.Update(queue_.FinishBlocking());
        const Times times = stopwatch.Elapsed();
        samples.Add({times.wall_s / batch, times.cpu_s / batch});
        PALPATE_RETURN_IF_ERROR(status);
        PALPATE_RETURN_IF_ERROR(phase_.AddStatistics(queue_, pairs.contacts, batch, &statistics));
      }
      const std::string full_name = absl::StrCat(name, with_distance ? "/distance" : "/overlap");
      report_.Add(full_name, "pairs", static_cast<double>(gpu::ConvexStatistics::Count(statistics.gjk)), "count");
      report_.Add(full_name, "pair_time_min", Quantile(samples.wall_s, 0), "s");
      report_.Add(full_name, "pair_time_median", Quantile(samples.wall_s, 0.5), "s");
      report_.Add(full_name, "pair_time_cpu_median", Quantile(samples.cpu_s, 0.5), "s");
      AddStatistics(full_name, statistics);
      report_.Note(absl::StrCat(full_name, ": GJK supports ", Histogram(statistics.gjk), "; EPA supports ", Histogram(statistics.epa)));
    }
    return absl::OkStatus();
  }

  void AddStatistics(const std::string& name, const gpu::ConvexStatistics& s) {
    report_.Add(name, "overlapping", static_cast<double>(s.by_status[PALPATE_CONVEX_OVERLAPPING]), "count");
    report_.Add(name, "not_converged", static_cast<double>(s.by_status[PALPATE_CONVEX_NOT_CONVERGED]), "count");
    report_.Add(name, "gjk_supports_mean", gpu::ConvexStatistics::Mean(s.gjk), "count");
    report_.Add(name, "gjk_supports_max", gpu::ConvexStatistics::Max(s.gjk), "count");
    report_.Add(name, "epa_supports_mean", gpu::ConvexStatistics::Mean(s.epa), "count");
    report_.Add(name, "epa_supports_max", gpu::ConvexStatistics::Max(s.epa), "count");
    report_.Add(name, "degenerate_tetrahedra", static_cast<double>(s.degenerate_tetrahedra), "count");
  }

  static std::string Histogram(const std::array<uint64_t, gpu::ConvexStatistics::kBins>& bins) {
    std::vector<std::string> parts;
    for (uint32_t i = 0; i < bins.size(); ++i) {
      if (bins[i] > 0) parts.push_back(absl::StrCat(i, ":", bins[i]));
    }
    return absl::StrJoin(parts, " ");
  }

  // Scan and climb of the same spheres, one pair in eight overlapping: where kClimbFrom comes from.
  absl::Status Support(int parts) {
    const ConvexMesh sphere = Sphere(parts);
    const uint32_t count = IsQuick() ? 2048 : 16384;
    PALPATE_ASSIGN_OR_RETURN(const Pairs pairs, RandomPairs(count, {1, 1, 1}, 2, 7));
    for (const bool climbs : {false, true}) {
      PALPATE_ASSIGN_OR_RETURN(const gpu::ConvexMeshes meshes,
                               gpu::ConvexMeshes::Create(queue_, std::vector<ConvexMesh>{sphere}, climbs ? 0 : UINT32_MAX));
      absl::Status status;
      const Times times = MedianTimes([&] {
        status.Update(phase_.Run(queue_, meshes, pairs.bodies(), pairs.pairs, count, INFINITY, pairs.contacts));
        status.Update(queue_.FinishBlocking());
      });
      PALPATE_RETURN_IF_ERROR(status);
      gpu::ConvexStatistics statistics;
      PALPATE_RETURN_IF_ERROR(phase_.AddStatistics(queue_, pairs.contacts, count, &statistics));
      const std::string name = absl::StrCat("support/", sphere.vertices_m.size(), climbs ? "/climb" : "/scan");
      report_.Add(name, "pair_time", times.wall_s / count, "s");
      report_.Add(name, "pair_time_cpu", times.cpu_s / count, "s");
      report_.Add(name, "not_converged", static_cast<double>(statistics.by_status[PALPATE_CONVEX_NOT_CONVERGED]), "count");
    }
    return absl::OkStatus();
  }

  absl::Status Scene(const std::string& name, double y_scale, BoundingVolume volume, bool has_detail) {
    const int frames = absl::GetFlag(FLAGS_frames) > 0 ? absl::GetFlag(FLAGS_frames) : IsQuick() ? 700 : 7000;
    std::mt19937 random(20211227);
    std::uniform_real_distribution<double> angle(0, 1);
    std::vector<gpu::RigidBodyDescription> bodies;
    for (int i = 0; i < absl::GetFlag(FLAGS_bodies); ++i) {
      gpu::RigidBodyDescription body;
      body.position_m = {0, 16.0 * i + 10, 0};
      const double half[3] = {angle(random) / 2, angle(random) / 2, angle(random) / 2};
      if (i > 0) body.rotation_wxyz = Euler(half);
      body.scale = {2, 2 * y_scale, 2};
      body.mass_kg = 1.1;
      bodies.push_back(body);
    }
    const bool is_plain = absl::GetFlag(FLAGS_response) == "plain";
    gpu::RigidBodiesOptions options;
    options.integrator = gpu::RigidIntegrator::kVerlet;
    options.dt_s = 0.09;
    options.damping = 0.95;
    options.gravity_m_per_s2 = {0, -9.8 / 1.1, 0};
    options.ground = {0, 1, 0, 0};
    options.correct_velocities = !is_plain;
    options.line_search = !is_plain;
    options.friction = is_plain ? 0 : 0.3;
    if (absl::GetFlag(FLAGS_response) == "volumes") options.narrow_phase = gpu::RigidNarrowPhase::kVolumes;
    if (has_detail) {
      options.level_of_detail = {.point_m = {0, 0, 0},
                                 .full_distance_m = absl::GetFlag(FLAGS_full_distance),
                                 .reduced_distance_m = absl::GetFlag(FLAGS_reduced_distance),
                                 .reduced_iterations = 2};
    }
    options.broad_phase.volume = volume;
    options.broad_phase.method = gpu::BroadPhaseMethod::kSweep;
    options.broad_phase.measure_stages = true;
    options.measure_stages = true;
    options.collect_statistics = true;
    PALPATE_ASSIGN_OR_RETURN(const auto world,
                             gpu::RigidBodies::Create(queue_.context(), std::vector<ConvexMesh>{BevelledCube()}, bodies, options));

    std::array<double, gpu::kRigidStageCount> stages{};
    std::array<double, gpu::kBroadPhaseStageCount> broad_stages{};
    std::vector<double> frame_s;
    double cpu_s = 0;
    uint64_t candidates = 0, contacts = 0, solved = 0;
    uint32_t most_candidates = 0;
    gpu::RigidCounters counters{};
    const std::vector<Float4> vertices = BevelledCube().vertices_m;
    double lowest_m = INFINITY, farthest_m = 0, first_rest_frame = -1;
    for (int frame = 0; frame < frames; ++frame) {
      const Stopwatch stopwatch;
      PALPATE_ASSIGN_OR_RETURN(const gpu::RigidStep step, world->Step());
      cpu_s += stopwatch.Elapsed().cpu_s;
      candidates += step.pair_count;
      contacts += step.overlapping_pairs;
      solved += step.solved_pairs;
      most_candidates = std::max(most_candidates, step.pair_count);
      counters.unresolved_pairs += step.counters.unresolved_pairs;
      counters.failed_matches += step.counters.failed_matches;
      counters.limited_rotations += step.counters.limited_rotations;
      counters.limited_corrections += step.counters.limited_corrections;
      counters.restored_bodies += step.counters.restored_bodies;
      double total = 0;
      for (size_t i = 0; i < stages.size(); ++i) {
        stages[i] += step.stage_s[i];
        total += step.stage_s[i];
      }
      frame_s.push_back(total);
      for (size_t i = 0; i < broad_stages.size(); ++i) broad_stages[i] += world->broad_phase_statistics().stage_s[i];
      if (frame % 100 == 99 || frame + 1 == frames) {
        PALPATE_ASSIGN_OR_RETURN(const auto states, world->ReadState());
        double highest = 0;
        for (const gpu::RigidBodyState& state : states) {
          const std::array<double, 3>& p = state.position_m;
          if (!std::isfinite(p[0] + p[1] + p[2] + state.velocity_m_per_s[0] + state.velocity_m_per_s[1] + state.velocity_m_per_s[2])) {
            return absl::InternalError(absl::StrCat(name, ": the state is not finite after frame ", frame));
          }
          for (const Float4& v : vertices)
            lowest_m = std::min(lowest_m, p[1] + HeightAboveCenter(state.rotation_wxyz, {2 * v.x, 2 * y_scale * v.y, 2 * v.z}));
          farthest_m = std::max(farthest_m, std::hypot(p[0], p[2]));
          highest = std::max(highest, p[1]);
        }
        if (first_rest_frame < 0 && highest < 100) first_rest_frame = frame + 1;
      }
    }
    if (!is_plain && lowest_m < -1e-3) return absl::InternalError(absl::StrFormat("%s: a body is %g m below the ground", name, -lowest_m));
    const double n = frames;
    report_.Add(name, "frames", n, "count");
    report_.Add(name, "candidates_mean", static_cast<double>(candidates) / n, "count");
    report_.Add(name, "candidates_max", most_candidates, "count");
    report_.Add(name, "contacts_mean", static_cast<double>(contacts) / n, "count");
    report_.Add(name, "false_positive_ratio", candidates > 0 ? 1 - static_cast<double>(contacts) / static_cast<double>(candidates) : 0,
                "ratio");
    report_.Add(name, "solved_pairs_mean", static_cast<double>(solved) / n, "count");
    report_.Add(name, "frame_time_mean", std::accumulate(frame_s.begin(), frame_s.end(), 0.0) / n, "s");
    report_.Add(name, "frame_time_cpu_mean", cpu_s / n, "s");
    report_.Add(name, "frame_time_median", Quantile(frame_s, 0.5), "s");
    const auto stage = [&](RigidStage s) { return stages[static_cast<size_t>(s)] / n; };
    const auto broad = [&](gpu::BroadPhaseStage s) { return broad_stages[static_cast<size_t>(s)] / n; };
    report_.Add(name, "integrate_time_mean", stage(RigidStage::kIntegrate), "s");
    report_.Add(name, "transform_time_mean", stage(RigidStage::kTransform), "s");
    report_.Add(name, "volumes_time_mean", stage(RigidStage::kVolumes), "s");
    report_.Add(name, "broad_phase_time_mean", stage(RigidStage::kBroadPhase), "s");
    report_.Add(name, "axis_time_mean", broad(gpu::BroadPhaseStage::kAxis), "s");
    report_.Add(name, "sort_time_mean", broad(gpu::BroadPhaseStage::kStructure), "s");
    report_.Add(name, "sweep_time_mean", broad(gpu::BroadPhaseStage::kTests), "s");
    report_.Add(name, "pair_sort_time_mean", broad(gpu::BroadPhaseStage::kSort), "s");
    report_.Add(name, "narrow_phase_time_mean", stage(RigidStage::kNarrowPhase), "s");
    report_.Add(name, "response_time_mean", stage(RigidStage::kResponse), "s");
    report_.Add(name, "velocities_time_mean", stage(RigidStage::kVelocities), "s");
    report_.Add(name, "axis_changes", world->broad_phase_statistics().axis_changes, "count");
    AddStatistics(name, world->narrow_phase_statistics());
    report_.Add(name, "skipped_pairs", counters.unresolved_pairs, "count");
    report_.Add(name, "failed_matches", counters.failed_matches, "count");
    report_.Add(name, "limited_rotations", counters.limited_rotations, "count");
    report_.Add(name, "limited_corrections", counters.limited_corrections, "count");
    report_.Add(name, "restored_bodies", counters.restored_bodies, "count");
    report_.Add(name, "lowest_vertex", lowest_m, "m");
    report_.Add(name, "farthest_center", farthest_m, "m");
    report_.Add(name, "landed_after_frames", first_rest_frame, "count");
    return absl::OkStatus();
  }

  absl::Status Run() {
    PALPATE_ASSIGN_OR_RETURN(phase_, gpu::ConvexNarrowPhase::Create(queue_.context()));
    if (IsSelected("iterations/unscaled")) PALPATE_RETURN_IF_ERROR(Iterations("iterations/unscaled", {2, 2, 2}, 2.063));
    if (IsSelected("iterations/y3")) PALPATE_RETURN_IF_ERROR(Iterations("iterations/y3", {2, 6, 2}, 6.021));
    for (const int parts : {3, 5, 8, 12, 20}) {
      if (IsSelected("support")) PALPATE_RETURN_IF_ERROR(Support(parts));
    }
    const std::string response = absl::GetFlag(FLAGS_response);
    if (response != "corrected" && response != "plain" && response != "volumes") {
      return absl::InvalidArgumentError("--response is 'corrected', 'plain' or 'volumes'");
    }
    const std::vector<std::string> names = absl::StrSplit(absl::GetFlag(FLAGS_volumes), ',');
    for (const std::string& name : names) {
      const auto volume = std::find_if(gpu::kBoundingVolumes.begin(), gpu::kBoundingVolumes.end(),
                                       [&](BoundingVolume v) { return name == gpu::BoundingVolumeName(v); });
      if (volume == gpu::kBoundingVolumes.end())
        return absl::InvalidArgumentError(absl::StrCat("--volumes: no volume is called '", name, "'"));
      for (const auto& [shape, y_scale] : {std::pair("unscaled", 1.0), std::pair("y3", 3.0)}) {
        const std::string full_name = absl::StrCat(response, "/", shape, "/", name);
        if (IsSelected(full_name)) PALPATE_RETURN_IF_ERROR(Scene(full_name, y_scale, *volume, false));
        // Of one volume: what level of detail saves does not depend on it.
        if (*volume == BoundingVolume::kDop18 && response == "corrected" && IsSelected(full_name + "/detail")) {
          PALPATE_RETURN_IF_ERROR(Scene(full_name + "/detail", y_scale, *volume, true));
        }
      }
    }
    return absl::OkStatus();
  }

 private:
  // Turns by twice these angles about x, then y, then z; (w, x, y, z).
  static std::array<double, 4> Euler(const double (&half)[3]) {
    const double cx = std::cos(half[0]), sx = std::sin(half[0]), cy = std::cos(half[1]), sy = std::sin(half[1]), cz = std::cos(half[2]),
                 sz = std::sin(half[2]);
    return {cx * cy * cz + sx * sy * sz, sx * cy * cz - cx * sy * sz, cx * sy * cz + sx * cy * sz, cx * cy * sz - sx * sy * cz};
  }

  // y of a point of the body after the rotation.
  static double HeightAboveCenter(const std::array<double, 4>& q, const std::array<double, 3>& p) {
    return 2 * (q[1] * q[2] + q[0] * q[3]) * p[0] + (1 - 2 * (q[1] * q[1] + q[3] * q[3])) * p[1] + 2 * (q[2] * q[3] - q[0] * q[1]) * p[2];
  }

  gpu::Queue& queue_;
  Report& report_;
  gpu::ConvexNarrowPhase phase_;
};

int Main() {
  auto context = gpu::Context::Create({.device = DeviceSelector(), .time_one_in = 0});
  absl::StatusOr<std::unique_ptr<gpu::Queue>> queue =
      context.ok() ? gpu::Queue::Create(*context) : absl::StatusOr<std::unique_ptr<gpu::Queue>>(context.status());
  Report report("rigid", context.ok() ? gpu::DescribeDevice((*context)->device()) : "none");
  if (!queue.ok()) return report.Finish(queue.status());
  Suite suite(**queue, report);
  const absl::Status status = suite.Run();
  report.Note(
      "scene: a column of bodies, 24 vertices each, falls onto the ground; times are wall means over the frames with a wait after each "
      "stage.");
  report.Note(
      "candidates: pairs of the broad phase; contacts: those of them that overlap before the response; narrow phase: 10 iterations.");
  return report.Finish(status);
}

}  // namespace
}  // namespace palpate::bench

int main(int argc, char** argv) {
  palpate::bench::Initialize(argc, argv, "Rigid bodies: the scene of Amaral 2021 for each bounding volume, iterations of GJK and EPA.");
  return palpate::bench::Main();
}
