// Proximity contacts on scripted scenes: two tori pressed together, a trefoil knot that swells, an organ over a floor of two triangles;
// next to libfcl's bounding volume hierarchies refitted to the same frames.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <map>
#include <numbers>
#include <set>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bench/bench_support.h"
#include "gpu/collision/box_hierarchy.h"
#include "gpu/collision/proximity.h"
#include "gpu/primitives/radix_sort.h"
#include "gpu/runtime/queue.h"
#ifdef PALPATE_HAS_FCL
#include "bench/bench_proximity_fcl.h"
#endif

namespace palpate::bench {
namespace {

using gpu::Float4;
using Triangles = std::vector<std::array<uint32_t, 3>>;
using Vec = std::array<double, 3>;
constexpr double kPi = std::numbers::pi;

Float4 Point(const Vec& p) { return {static_cast<float>(p[0]), static_cast<float>(p[1]), static_cast<float>(p[2]), 0}; }
Vec Cross(const Vec& a, const Vec& b) { return {a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]}; }
Vec Unit(const Vec& a) {
  const double l = std::sqrt(a[0] * a[0] + a[1] * a[1] + a[2] * a[2]);
  return {a[0] / l, a[1] / l, a[2] / l};
}

// A scene: bodies, and the positions of all vertices in each frame.
struct Scene {
  std::string name;
  std::vector<Triangles> bodies;
  bool self = false;
  float range_m = 0;
  float rest_exclusion_m = 0;
  std::vector<std::vector<Float4>> frames;

  uint32_t vertex_count() const { return static_cast<uint32_t>(frames.front().size()); }
  size_t triangle_count() const {
    size_t count = 0;
    for (const Triangles& body : bodies) count += body.size();
    return count;
  }
};

// Triangles of a grid of n x m vertices that closes in both directions.
Triangles ClosedGrid(uint32_t n, uint32_t m, uint32_t first) {
  Triangles triangles;
  for (uint32_t i = 0; i < n; ++i) {
    for (uint32_t j = 0; j < m; ++j) {
      const uint32_t a = first + i * m + j;
      const uint32_t b = first + i * m + (j + 1) % m;
      const uint32_t c = first + (i + 1) % n * m + j;
      const uint32_t d = first + (i + 1) % n * m + (j + 1) % m;
      triangles.push_back({a, d, b});
      triangles.push_back({a, c, d});
    }
  }
  return triangles;
}

// Two tori (ring radius 10 m, tube 4 m) of 2 n m triangles. The upper one, shifted to the side, comes down on the lower one; where they
// would overlap both are flattened against planes 0.05 m apart that move with it.
Scene Tori(uint32_t n, uint32_t m, int frame_count) {
  Scene scene;
  scene.name = absl::StrCat("tori/", 4 * n * m);
  scene.range_m = 0.2F;
  scene.bodies = {ClosedGrid(n, m, 0), ClosedGrid(n, m, n * m)};
  for (int f = 0; f < frame_count; ++f) {
    const double press_m = 0.75 * std::pow(std::sin(kPi * f / frame_count), 2);
    std::vector<Float4> positions;
    for (const int body : {0, 1}) {
      for (uint32_t i = 0; i < n; ++i) {
        for (uint32_t j = 0; j < m; ++j) {
          const double a = 2 * kPi * i / n;
          const double b = 2 * kPi * j / m;
          Vec p = {(10 + 4 * std::cos(b)) * std::cos(a), (10 + 4 * std::cos(b)) * std::sin(a), 4 * std::sin(b)};
          if (body == 1) {
            p[0] += 6 + 0.01 * f;
            p[1] += 1;
            p[2] += 8.1 - press_m;
          }
          // The smooth part of the deformation keeps the surfaces from being exactly flat.
          const double bump = 0.01 * std::sin(2.1 * p[0]) * std::cos(1.7 * p[1]);
          const double plane = 4.05 - 0.5 * press_m + bump;
          if (body == 0) p[2] = std::min(p[2], plane - 0.025);
          if (body == 1) p[2] = std::max(p[2], plane + 0.025);
          positions.push_back(Point(p));
        }
      }
    }
    scene.frames.push_back(std::move(positions));
  }
  return scene;
}

// Tube of 198 rings of 10 vertices along a trefoil knot, 3,960 triangles, that swells until its strands almost touch.
Scene Knot(int frame_count) {
  Scene scene;
  scene.name = "knot/3960";
  scene.self = true;
  scene.range_m = 0.1F;
  scene.rest_exclusion_m = 0.4F;
  constexpr uint32_t kRings = 198;
  constexpr uint32_t kSides = 10;
  scene.bodies = {ClosedGrid(kRings, kSides, 0)};
  const auto centre = [](double a) { return Vec{std::sin(a) + 2 * std::sin(2 * a), std::cos(a) - 2 * std::cos(2 * a), -std::sin(3 * a)}; };
  for (int f = 0; f < frame_count; ++f) {
    const double radius = 0.3 + 0.37 * f / (frame_count - 1);
    std::vector<Float4> positions;
    for (uint32_t i = 0; i < kRings; ++i) {
      const double a = 2 * kPi * i / kRings;
      const Vec c = centre(a);
      const Vec ahead = centre(a + 1e-4);
      const Vec tangent = Unit({ahead[0] - c[0], ahead[1] - c[1], ahead[2] - c[2]});
      const Vec side = Unit(Cross(tangent, {0.02, 0.01, 1}));
      const Vec up = Cross(side, tangent);
      for (uint32_t j = 0; j < kSides; ++j) {
        const double s = radius * std::cos(2 * kPi * j / kSides);
        const double t = radius * std::sin(2 * kPi * j / kSides);
        positions.push_back(Point({c[0] + s * side[0] + t * up[0], c[1] + s * side[1] + t * up[1], c[2] + s * side[2] + t * up[2]}));
      }
    }
    scene.frames.push_back(std::move(positions));
  }
  return scene;
}

// A closed organ of 49,928 triangles that settles on a floor of two triangles, 40 m wide.
Scene Floor(int frame_count) {
  Scene scene;
  scene.name = "floor/49930";
  scene.range_m = 0.05F;
  constexpr uint32_t kSize = 158;
  scene.bodies = {ClosedGrid(kSize, kSize, 0), {}};
  constexpr uint32_t kFirst = kSize * kSize;
  scene.bodies[1] = {{kFirst, kFirst + 1, kFirst + 2}, {kFirst, kFirst + 2, kFirst + 3}};
  for (int f = 0; f < frame_count; ++f) {
    const double sink_m = 0.3 * std::pow(std::sin(kPi * f / frame_count), 2);
    std::vector<Float4> positions;
    for (uint32_t i = 0; i < kSize; ++i) {
      for (uint32_t j = 0; j < kSize; ++j) {
        const double a = 2 * kPi * i / kSize;
        const double b = 2 * kPi * j / kSize;
        const double r = 3 + 0.3 * std::sin(3 * a);
        Vec p = {(5 + r * std::cos(b)) * std::cos(a), (5 + r * std::cos(b)) * std::sin(a), 2 * std::sin(b) + 2.02 - sink_m};
        p[2] = std::max(p[2], 0.02 + 0.005 * std::sin(3 * p[0]));
        positions.push_back(Point(p));
      }
    }
    for (const Vec& corner : {Vec{-20, -20, 0}, Vec{20, -20, 0}, Vec{20, 20, 0}, Vec{-20, 20, 0}}) positions.push_back(Point(corner));
    scene.frames.push_back(std::move(positions));
  }
  return scene;
}

// Times of the frames of a scene over some rounds. On a machine that others use, too, the best of the rounds and the CPU time tell more
// than the wall time.
class FrameTimes {
 public:
  explicit FrameTimes(size_t frame_count) : best_(frame_count, 1e30) {}
  size_t frame_count() const { return best_.size(); }

  void Add(size_t frame, const Stopwatch& begin) {
    const Times times = begin.Elapsed();
    samples_.Add(times);
    best_[frame] = std::min(best_[frame], times.wall_s);
  }

  void AddTo(Report& report, const std::string& name) const {
    report.Add(name, "time_p50", Quantile(samples_.wall_s, 0.5), "s");
    report.Add(name, "time_p99", Quantile(samples_.wall_s, 0.99), "s");
    report.Add(name, "best_time_p50", Quantile(best_, 0.5), "s");
    report.Add(name, "time_cpu_p50", Quantile(samples_.cpu_s, 0.5), "s");
  }

 private:
  Samples samples_;
  std::vector<double> best_;
};

// What per-cluster normal cones would do: the test of Leonard 2021 on each cluster of 16 triangles, for its pairs with itself.
struct ConeResult {
  uint64_t culled_clusters = 0;
  uint64_t clusters = 0;
  uint64_t lost_contacts = 0;
};

class Suite {
 public:
  Suite(gpu::Queue& queue, Report& report) : queue_(queue), report_(report) {}

  absl::Status Run() {
    const int frames = IsQuick() ? 20 : 100;
    std::vector<Scene> scenes;
    const auto add = [&](const std::string& name, auto make) {
      if (IsSelected(name)) scenes.push_back(make());
    };
    add("tori/3200", [&] { return Tori(40, 20, frames); });
    add("tori/12800", [&] { return Tori(80, 40, frames); });
    add("tori/51200", [&] { return Tori(160, 80, frames); });
    add("knot/3960", [&] { return Knot(frames); });
    add("floor/49930", [&] { return Floor(frames); });
    for (const Scene& scene : scenes) PALPATE_RETURN_IF_ERROR(RunScene(scene));
    return absl::OkStatus();
  }

 private:
  absl::Status RunScene(const Scene& scene) {
    std::vector<gpu::SurfaceBody> bodies;
    for (uint32_t b = 0; b < scene.bodies.size(); ++b) bodies.push_back({scene.bodies[b], b, scene.self});
    PALPATE_ASSIGN_OR_RETURN(const gpu::SurfaceTopology surface, gpu::SurfaceTopology::Build(scene.vertex_count(), bodies));
    report_.Add(scene.name, "topology_time", MedianTimes([&] { (void)gpu::SurfaceTopology::Build(scene.vertex_count(), bodies); }).wall_s,
                "s");
    std::vector<gpu::DeviceBuffer<Float4>> frames;
    for (const auto& frame : scene.frames) {
      PALPATE_ASSIGN_OR_RETURN(frames.emplace_back(), gpu::CreateBufferFrom(queue_, std::span<const Float4>(frame), "frame"));
    }
    uint64_t first_contacts = UINT64_MAX;
    for (const bool spheres : {false, true}) {
      for (const bool element_boxes : {true, false}) {
        const gpu::ProximityOptions options = {
            .rest_exclusion_m = scene.rest_exclusion_m, .spheres = spheres, .element_boxes = element_boxes};
        const std::string name = absl::StrCat(scene.name, spheres ? "/spheres" : "/boxes", element_boxes ? "" : "/no_element_boxes");
        uint64_t contacts = 0;
        PALPATE_RETURN_IF_ERROR(RunDetector(scene, surface, frames, name, options, !spheres && element_boxes, &contacts));
        if (first_contacts == UINT64_MAX) first_contacts = contacts;
        if (contacts != first_contacts) return absl::InternalError(absl::StrCat(name, ": other contacts than with boxes"));
      }
    }
    const gpu::ProximityOptions cones = {.rest_exclusion_m = scene.rest_exclusion_m, .normal_cones = true};
    uint64_t contacts = 0;
    PALPATE_RETURN_IF_ERROR(RunDetector(scene, surface, frames, absl::StrCat(scene.name, "/boxes/cones"), cones, false, &contacts));
    report_.Add(absl::StrCat(scene.name, "/boxes/cones"), "contacts_dropped",
                static_cast<double>(first_contacts - contacts) / static_cast<double>(frames.size()), "count");
#ifdef PALPATE_HAS_FCL
    PALPATE_RETURN_IF_ERROR(CompareWithFcl(scene, surface, frames));
    RunFcl(scene);
#endif
    return absl::OkStatus();
  }

  /// What is done over all frames.
  absl::StatusOr<gpu::ProximityStats> CountPairs(const Scene& scene, const gpu::SurfaceTopology& surface,
                                                 const std::vector<gpu::DeviceBuffer<Float4>>& frames, gpu::ProximityOptions options) {
    options.counts_element_pairs = true;
    PALPATE_ASSIGN_OR_RETURN(gpu::ProximityDetector detector, gpu::ProximityDetector::Create(queue_.context(), options));
    PALPATE_RETURN_IF_ERROR(detector.SetTopology(queue_, surface, scene.frames.front()));
    gpu::ProximityStats sum;
    for (const auto& frame : frames) {
      PALPATE_RETURN_IF_ERROR(detector.Run(queue_, frame, scene.range_m));
      sum.cluster_pairs += detector.stats().cluster_pairs;
      sum.triangle_pairs += detector.stats().triangle_pairs;
      sum.element_pairs += detector.stats().element_pairs;
      sum.tests += detector.stats().tests;
      sum.patches += detector.stats().patches;
      sum.contacts_found += detector.contact_count();
    }
    return sum;
  }

  absl::Status RunDetector(const Scene& scene, const gpu::SurfaceTopology& surface, const std::vector<gpu::DeviceBuffer<Float4>>& frames,
                           const std::string& name, const gpu::ProximityOptions& options, bool details, uint64_t* contacts) {
    PALPATE_ASSIGN_OR_RETURN(const gpu::ProximityStats sum, CountPairs(scene, surface, frames, options));
    const size_t bytes_before = queue_.context()->allocated_bytes();
    PALPATE_ASSIGN_OR_RETURN(gpu::ProximityDetector detector, gpu::ProximityDetector::Create(queue_.context(), options));
    PALPATE_RETURN_IF_ERROR(detector.SetTopology(queue_, surface, scene.frames.front()));
    FrameTimes times(frames.size());
    *contacts = sum.contacts_found;
    queue_.set_timing(false);
    for (int round = 0; round < 6; ++round) {
      for (size_t f = 0; f < frames.size(); ++f) {
        const Stopwatch stopwatch;
        PALPATE_RETURN_IF_ERROR(detector.Run(queue_, frames[f], scene.range_m));
        PALPATE_RETURN_IF_ERROR(queue_.FinishBlocking());
        if (round > 0) times.Add(f, stopwatch);  // before that kernels are loaded and buffers grow
      }
    }
    times.AddTo(report_, name);
    const auto count = static_cast<double>(frames.size());
    const auto add_mean = [&](const char* metric, uint64_t value) {
      report_.Add(name, metric, static_cast<double>(value) / count, "count");
    };
    add_mean("cluster_pairs", sum.cluster_pairs);
    add_mean("triangle_pairs", sum.triangle_pairs);
    add_mean("element_pairs", sum.element_pairs);
    add_mean("distance_tests", sum.tests);
    add_mean("contacts", *contacts);
    if (options.normal_cones) add_mean("patches", sum.patches);
    report_.Add(name, "element_pairs_per_triangle_pair",
                static_cast<double>(sum.element_pairs) / std::max<double>(1, static_cast<double>(sum.triangle_pairs)), "ratio");
    report_.Add(name, "memory", static_cast<double>(queue_.context()->allocated_bytes() - bytes_before), "bytes");
    if (!details) return absl::OkStatus();

    // Time of each stage, from the device's clock, in a round of its own.
    queue_.set_timing(true);
    const std::map<std::string, double> before = StageSeconds();
    for (const auto& frame : frames) {
      PALPATE_RETURN_IF_ERROR(detector.Run(queue_, frame, scene.range_m));
      PALPATE_RETURN_IF_ERROR(queue_.FinishBlocking());
    }
    for (const auto& [stage, total] : StageSeconds()) {
      const auto old = before.find(stage);
      report_.Add(name, absl::StrCat("stage_", stage), (total - (old == before.end() ? 0 : old->second)) / count, "s");
    }
    return scene.self ? RunCones(scene, surface, frames, name, &detector) : absl::OkStatus();
  }

  std::map<std::string, double> StageSeconds() {
    std::map<std::string, double> stages;
    for (const gpu::KernelTime& kernel : queue_.context()->KernelTimes()) {
      const std::string& k = kernel.name;
      const auto starts = [&](const char* prefix) { return k.rfind(prefix, 0) == 0; };
      const char* stage = starts("proximity_boxes")                                      ? "boxes"
                          : starts("hierarchy_count_pairs") || starts("hierarchy_write") ? "cluster_pairs"
                          : starts("hierarchy")                                          ? "build"
                          : starts("proximity_detect")                                   ? "detect"
                          : starts("proximity_records")                                  ? "records"
                                                                                         : "sorts_and_scans";
      stages[stage] += kernel.seconds;
    }
    return stages;
  }

  // Normal cones as in Leonard 2021, on the clusters of the hierarchy: how many pairs of a cluster with itself they would drop, and which
  // contacts that would lose.
  absl::Status RunCones(const Scene& scene, const gpu::SurfaceTopology& surface, const std::vector<gpu::DeviceBuffer<Float4>>& frames,
                        const std::string& name, gpu::ProximityDetector* detector) {
    ConeResult result;
    uint64_t pairs = 0;
    for (size_t f = 0; f < frames.size(); ++f) {
      PALPATE_RETURN_IF_ERROR(detector->Run(queue_, frames[f], scene.range_m));
      pairs += detector->stats().cluster_pairs;
      std::vector<gpu::SurfaceContact> contacts(detector->contact_count());
      PALPATE_RETURN_IF_ERROR(queue_.ReadBlocking(detector->contact_buffer(), contacts));
      std::vector<uint32_t> elements;
      PALPATE_ASSIGN_OR_RETURN(elements, ReadElements(*detector));
      std::vector<uint32_t> cluster_of(surface.triangles.size());
      std::vector<bool> is_culled(elements.size() / 16);
      for (size_t c = 0; c < is_culled.size(); ++c) {
        std::vector<Vec> normals;
        for (size_t lane = 0; lane < 16; ++lane) {
          const uint32_t t = elements[16 * c + lane];
          if (t == gpu::BoxHierarchy::kNoElement) continue;
          cluster_of[t] = static_cast<uint32_t>(c);
          normals.push_back(Normal(surface.triangles[t], scene.frames[f]));
        }
        const double half_angle = Cone(normals).second;
        is_culled[c] = half_angle < kPi / 2;
        result.culled_clusters += is_culled[c] ? 1 : 0;
        ++result.clusters;
      }
      for (const gpu::SurfaceContact& contact : contacts) {
        const auto [a, b] = Owners(surface, contact);
        if (cluster_of[a] == cluster_of[b] && is_culled[cluster_of[a]]) ++result.lost_contacts;
      }
    }
    const auto count = static_cast<double>(frames.size());
    report_.Add(name, "cones_culled_clusters", static_cast<double>(result.culled_clusters) / static_cast<double>(result.clusters), "ratio");
    report_.Add(name, "cones_culled_cluster_pairs", static_cast<double>(result.culled_clusters) / static_cast<double>(pairs), "ratio");
    report_.Add(name, "cones_lost_contacts", static_cast<double>(result.lost_contacts) / count, "count");
    return absl::OkStatus();
  }

  absl::StatusOr<std::vector<uint32_t>> ReadElements(const gpu::ProximityDetector& detector) {
    // A sort by no bits is a copy.
    const auto view = detector.clusters().elements;
    const auto count = detector.clusters().count * gpu::BoxHierarchy::kWidth;
    PALPATE_ASSIGN_OR_RETURN(auto sort, gpu::RadixSort<uint32_t>::Create(queue_.context(), count));
    PALPATE_ASSIGN_OR_RETURN(const auto copy, gpu::DeviceBuffer<uint32_t>::Create(queue_.context(), count, "elements"));
    PALPATE_ASSIGN_OR_RETURN(const auto order, gpu::DeviceBuffer<uint32_t>::Create(queue_.context(), count, "order"));
    PALPATE_RETURN_IF_ERROR(sort.Run(queue_, view, {}, count, copy, order, {0, 0}));
    std::vector<uint32_t> elements(count);
    PALPATE_RETURN_IF_ERROR(queue_.ReadBlocking(copy, elements));
    return elements;
  }

  static Vec Normal(const gpu::UInt4& t, const std::vector<Float4>& x) {
    const auto sub = [&](uint32_t a, uint32_t b) {
      return Vec{double{x[a].x} - double{x[b].x}, double{x[a].y} - double{x[b].y}, double{x[a].z} - double{x[b].z}};
    };
    return Unit(Cross(sub(t.y, t.x), sub(t.z, t.x)));
  }

  // Axis and half angle of the recursively merged cone (Leonard 2021, section 3.6.1).
  static std::pair<Vec, double> Cone(std::span<const Vec> normals) {
    if (normals.size() == 1) return {normals[0], 0};
    const auto [v1, a1] = Cone(normals.first(normals.size() / 2));
    const auto [v2, a2] = Cone(normals.subspan(normals.size() / 2));
    const double beta = std::acos(std::clamp(v1[0] * v2[0] + v1[1] * v2[1] + v1[2] * v2[2], -1.0, 1.0));
    const double half_angle = beta / 2 + std::max(a1, a2);
    if (half_angle >= kPi / 2) return {v1, half_angle};
    return {Unit({v1[0] + v2[0], v1[1] + v2[1], v1[2] + v2[2]}), half_angle};
  }

  // The triangles by which a contact's elements are tested.
  static std::pair<uint32_t, uint32_t> Owners(const gpu::SurfaceTopology& s, const gpu::SurfaceContact& contact) {
    const auto owner_of_edge = [&](uint32_t e) {
      for (uint32_t k = s.edge_triangle_begin[e];; ++k) {
        const uint32_t t = s.edge_triangles[k];
        const gpu::UInt4& edges = s.triangle_edges[t];
        const uint32_t bit = edges.x == e ? 8 : edges.y == e ? 16 : 32;
        if ((s.triangles[t].w & bit) != 0) return t;
      }
    };
    if (contact.kind == PALPATE_EDGE_EDGE) return {owner_of_edge(contact.a), owner_of_edge(contact.b)};
    for (uint32_t k = s.vertex_triangle_begin[contact.a];; ++k) {
      const gpu::UInt4& t = s.triangles[s.vertex_triangles[k]];
      const uint32_t bit = t.x == contact.a ? 1 : t.y == contact.a ? 2 : 4;
      if ((t.w & bit) != 0) return {s.vertex_triangles[k], contact.b};
    }
  }

#ifdef PALPATE_HAS_FCL
  // On the frame with the most contact: the pairs of triangles in range that follow from our contacts against those of libfcl. What is
  // nearer than the range by more than the rounding of float must be in both, what is farther by as much in neither. Without the exclusion
  // of what is near at rest, which libfcl does not know.
  absl::Status CompareWithFcl(const Scene& scene, const gpu::SurfaceTopology& surface,
                              const std::vector<gpu::DeviceBuffer<Float4>>& frames) {
    constexpr double kRounding = 1e-3;  // of the range
    const size_t frame = scene.self ? frames.size() - 1 : frames.size() / 2;
    PALPATE_ASSIGN_OR_RETURN(gpu::ProximityDetector detector, gpu::ProximityDetector::Create(queue_.context()));
    PALPATE_RETURN_IF_ERROR(detector.SetTopology(queue_, surface, scene.frames.front()));
    PALPATE_RETURN_IF_ERROR(detector.Run(queue_, frames[frame], scene.range_m));
    std::vector<gpu::SurfaceContact> contacts(detector.contact_count());
    PALPATE_RETURN_IF_ERROR(queue_.ReadBlocking(detector.contact_buffer(), contacts));
    // libfcl numbers the triangles of each body from 0.
    const auto first_of_b = static_cast<uint32_t>(scene.self ? 0 : scene.bodies.front().size());
    std::vector<std::array<uint32_t, 2>> own;
    const auto add = [&](uint32_t t, uint32_t u) {
      const gpu::UInt4& a = surface.triangles[t];
      const gpu::UInt4& b = surface.triangles[u];
      for (const uint32_t v : {a.x, a.y, a.z}) {
        if (v == b.x || v == b.y || v == b.z) return;
      }
      own.push_back({std::min(t, u), std::max(t, u) - first_of_b});
    };
    for (const gpu::SurfaceContact& contact : contacts) {
      if (contact.kind == PALPATE_EDGE_EDGE) {
        for (uint32_t i = surface.edge_triangle_begin[contact.a]; i < surface.edge_triangle_begin[contact.a + 1]; ++i) {
          for (uint32_t k = surface.edge_triangle_begin[contact.b]; k < surface.edge_triangle_begin[contact.b + 1]; ++k) {
            add(surface.edge_triangles[i], surface.edge_triangles[k]);
          }
        }
      } else {
        for (uint32_t i = surface.vertex_triangle_begin[contact.a]; i < surface.vertex_triangle_begin[contact.a + 1]; ++i) {
          add(surface.vertex_triangles[i], contact.b);
        }
      }
    }
    std::sort(own.begin(), own.end());
    own.erase(std::unique(own.begin(), own.end()), own.end());
    const auto fcl = FclScene::Create(FclScene::Volume::kAabb, scene.frames[frame], scene.bodies);
    fcl->Run(scene.frames[frame], scene.range_m);
    if (const uint64_t repeated = fcl->CountRepeatedVisits(scene.range_m); repeated > 0) {
      return absl::InternalError(absl::StrCat(scene.name, ": libfcl is made to look at ", repeated, " pairs of triangles again"));
    }
    const auto surely = fcl->Pairs(scene.range_m * (1 - kRounding));
    const auto perhaps = fcl->Pairs(scene.range_m * (1 + kRounding));
    const bool finds_all = std::includes(own.begin(), own.end(), surely.begin(), surely.end());
    const bool finds_no_other = std::includes(perhaps.begin(), perhaps.end(), own.begin(), own.end());
    const std::string name = absl::StrCat(scene.name, "/fcl_compared");
    report_.Add(name, "frame", static_cast<double>(frame), "count");
    report_.Add(name, "triangle_pairs", static_cast<double>(own.size()), "count");
    report_.Add(name, "triangle_pairs_of_fcl_surely", static_cast<double>(surely.size()), "count");
    report_.Add(name, "triangle_pairs_of_fcl_perhaps", static_cast<double>(perhaps.size()), "count");
    if (finds_all && finds_no_other) return absl::OkStatus();
    return absl::InternalError(absl::StrCat(name, ": ", finds_all ? "pairs that libfcl does not find" : "pairs of libfcl are missing"));
  }

  void RunFcl(const Scene& scene) {
    for (const auto volume : {FclScene::Volume::kObbRss, FclScene::Volume::kAabb}) {
      const auto fcl = FclScene::Create(volume, scene.frames.front(), scene.bodies);
      uint64_t found = 0;
      // At most 20 of the frames, spread over all: some take most of a second. The first run is a warm-up.
      const size_t stride = (scene.frames.size() + 19) / 20;
      fcl->Run(scene.frames.front(), scene.range_m);
      FrameTimes times((scene.frames.size() + stride - 1) / stride);
      for (int round = 0; round < (volume == FclScene::Volume::kAabb ? 3 : 1); ++round) {
        for (size_t f = 0; f < scene.frames.size(); f += stride) {
          const Stopwatch stopwatch;
          const uint64_t pairs = fcl->Run(scene.frames[f], scene.range_m);
          times.Add(f / stride, stopwatch);
          if (round == 0) found += pairs;
        }
      }
      const std::string name = absl::StrCat(scene.name, volume == FclScene::Volume::kObbRss ? "/fcl_obbrss" : "/fcl_aabb");
      times.AddTo(report_, name);
      report_.Add(name, "frames", static_cast<double>(times.frame_count()), "count");
      report_.Add(name, "triangle_pairs_in_range", static_cast<double>(found) / static_cast<double>(times.frame_count()), "count");
    }
  }
#endif

  gpu::Queue& queue_;
  Report& report_;
};

int Main() {
  auto context = gpu::Context::Create({.device = DeviceSelector(), .time_one_in = 1});
  absl::StatusOr<std::unique_ptr<gpu::Queue>> queue =
      context.ok() ? gpu::Queue::Create(*context) : absl::StatusOr<std::unique_ptr<gpu::Queue>>(context.status());
  Report report("proximity", context.ok() ? gpu::DescribeDevice((*context)->device()) : "none");
  if (!queue.ok()) return report.Finish(queue.status());
  Suite suite(**queue, report);
  const absl::Status status = suite.Run();
  report.Note(
      "Times are of one frame, the contacts complete on the device; counts are means over the frames. stage_*: device time by kernel.");
  report.Note("best_time: of each frame, the best of the rounds. time_cpu: of all threads.");
  report.Note(
      "fcl_*: libfcl on one thread, refitted to each frame, all pairs of triangles in range (no elements, no records), on `frames` of the "
      "frames. "
      "fcl_compared: the same pairs of triangles on one frame, ours between libfcl's at a range 1e-3 shorter and 1e-3 longer.");
#ifndef PALPATE_HAS_FCL
  report.Note("libfcl was not found when this program was built: no comparison.");
#endif
  return report.Finish(status);
}

}  // namespace
}  // namespace palpate::bench

int main(int argc, char** argv) {
  palpate::bench::Initialize(argc, argv, "Proximity contacts of triangle surfaces, next to libfcl on the same frames.");
  return palpate::bench::Main();
}
