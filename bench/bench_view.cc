// Continuous self-collision of one surface over the steps of an animation: the view certificate with the engine for what it leaves, the
// engine alone, and the methods that the view test was published against. Animations are closed formulas; each is run over the same steps
// by all. Hits must be the same.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <numbers>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/str_format.h"
#include "bench/bench_support.h"
#include "bench/bench_view_peers.h"
#include "bench/view_scenes.h"
#include "bench/view_shapes.h"
#include "gpu/collision/ccd.h"
#include "gpu/collision/surface_topology.h"
#include "gpu/collision/view_certificate.h"
#include "gpu/collision/view_collisions.h"
#include "gpu/runtime/context.h"
#include "gpu/runtime/queue.h"

ABSL_FLAG(int, steps, 24, "Steps of an animation.");
ABSL_FLAG(bool, peers, true, "Run the methods on the host.");
ABSL_FLAG(bool, simulated, false, "The six simulated animations in place of the formulas; all frames take hours the first time.");
ABSL_FLAG(int, frames, 0, "Frames of a simulated animation; 0: as many as the source has.");
ABSL_FLAG(std::string, frames_dir, "build/view-frames", "Where simulated frames are kept.");
ABSL_FLAG(std::string, scenes_dir, "scenes", "The scenes of the project, for simulated animations.");

namespace palpate::bench {
namespace {

using gpu::Float4;
using Triangles = std::vector<std::array<uint32_t, 3>>;
using Point = std::array<double, 3>;

struct Animation {
  std::string name;
  Triangles triangles;
  std::vector<Point> rest;
  std::function<Point(const Point& rest, double time)> at;  // time from 0 to 1

  void Take(ViewShape shape) {
    triangles = std::move(shape.triangles);
    rest = std::move(shape.points);
  }
  std::vector<Float4> Frame(double time) const {
    std::vector<Float4> positions;
    positions.reserve(rest.size());
    for (const Point& p : rest) {
      const Point q = at(p, time);
      positions.push_back({static_cast<float>(q[0]), static_cast<float>(q[1]), static_cast<float>(q[2]), 0});
    }
    return positions;
  }
};

constexpr double kTurn = 2 * std::numbers::pi;

// What two bodies that move about inside push out of a ball's skin, and what their wake draws in.
double Bulge(const Point& p, double time) {
  double radius = 1;
  for (int body = 0; body < 2; ++body) {
    const double a = kTurn * (0.15 * time + 0.5 * body), tilt = 0.6 * std::sin(kTurn * 0.3 * time + body);
    const Point way = {std::cos(a) * std::cos(tilt), std::sin(a) * std::cos(tilt), std::sin(tilt)};
    const double cosine = way[0] * p[0] + way[1] * p[1] + way[2] * p[2];
    radius += 0.45 * std::exp(-9 * (1 - cosine)) - 0.12 * std::exp(-20 * (cosine - 0.6) * (cosine - 0.6));
  }
  return radius;
}

std::vector<Animation> Animations(bool is_quick) {
  const uint32_t scale = is_quick ? 4 : 1;
  std::vector<Animation> list;
  const auto add = [&](const char* name) -> Animation& {
    list.push_back({.name = name, .triangles = {}, .rest = {}, .at = {}});
    return list.back();
  };
  {
    Animation& ball = add("ball");
    ball.Take(MakeBall(64 / scale));
    ball.at = [](const Point& p, double time) {
      const double r = Bulge(p, time);
      return Point{r * p[0], r * p[1], r * p[2] - 0.5 * time * time};
    };
  }
  {
    // The same with creases: the skin slides over itself in two belts, and turns over.
    Animation& creased = add("creased_ball");
    creased.Take(MakeBall(64 / scale));
    creased.at = [](const Point& p, double time) {
      const double r = Bulge(p, time);
      Point q = {r * p[0], r * p[1], r * p[2]};
      for (const double sign : {-1.0, 1.0}) {
        const double dx = p[0] - sign * 0.9, near = std::exp(-40 * (dx * dx + p[2] * p[2]) - 60 * (p[1] - 0.3) * (p[1] - 0.3));
        const double depth = near * (0.1 + 0.12 * time);
        q[1] -= depth * std::sin(22 * (p[1] - 0.3));
        q[0] += 0.25 * sign * depth * std::cos(22 * (p[1] - 0.3));
      }
      return q;
    };
  }
  {
    // Bulges that travel along a limb: seen from a segment.
    Animation& limb = add("limb");
    limb.Take(MakeBall(64 / scale));
    limb.at = [](const Point& p, double time) {
      const double r = 1 + 0.2 * std::sin(15 * p[0] + 4 * time);
      return Point{6 * p[0], r * p[1] + 0.4 * time * p[0] * p[0], r * p[2]};
    };
  }
  {
    Animation& sleeve = add("sleeve");
    sleeve.Take(MakeSheet(160 / scale, 240 / scale, true, false));
    sleeve.at = [](const Point& p, double time) {
      const double a = kTurn * p[0], along = 6 * p[1] - 3, bend = 0.35 * time;
      const double r = 0.5 + 0.03 * std::sin(9 * a + 5 * time) * std::sin(4 * along + 8 * time) + 0.02 * std::sin(30 * along + 3 * time);
      const double x = r * std::cos(a), turn = bend * along / 3;
      const double radius = bend > 1e-6 ? 3 / bend : 1e9;
      return Point{radius - (radius - x) * std::cos(turn), r * std::sin(a), (radius - x) * std::sin(turn)};
    };
  }
  {
    Animation& sheet = add("sheet");
    sheet.Take(MakeSheet(200 / scale, 200 / scale, false, false));
    sheet.at = [](const Point& p, double time) {
      const double x = 2 * p[0] - 1, y = 2 * p[1] - 1;
      const double edge = std::max(0.0, std::max(std::abs(x), std::abs(y)) - 0.6);
      return Point{x, y, -1.2 * edge * edge + 0.05 * edge * std::sin(14 * x + 9 * time) + 0.03 * std::sin(8 * y - 6 * time)};
    };
  }
  {
    // Never certified as a whole.
    Animation& torus = add("torus");
    torus.Take(MakeSheet(200 / scale, 120 / scale, true, true));
    torus.at = [](const Point& p, double time) {
      const double a = kTurn * p[0], b = kTurn * p[1], tube = 0.3 + 0.03 * std::sin(5 * a + 6 * time);
      return Point{(1 + tube * std::cos(b)) * std::cos(a), (1 + tube * std::cos(b)) * std::sin(a), tube * std::sin(b)};
    };
  }
  {
    // Folded in waves that lie over each other: most of it is seen from both sides.
    Animation& folds = add("folded_sheet");
    folds.Take(MakeSheet(200 / scale, 200 / scale, false, false));
    folds.at = [](const Point& p, double time) {
      const double s = 10 * p[0], wave = 0.8 + 0.5 * time;
      return Point{0.6 * s - 0.35 * wave * std::sin(2 * s * 1.57), 2 * p[1], 0.5 * std::cos(s * 1.57) + 0.1 * p[1]};
    };
  }
  return list;
}

using Uploaded = gpu::DeviceBuffer<Float4>;

struct Run {
  Samples samples;
  uint64_t hits = 0;
  std::vector<std::vector<gpu::CcdHit>> per_step;
};

// One step each; `run` finds the hits, `read` gives them. The first step is done once before, so that all is compiled and grown.
template <typename F, typename R>
absl::StatusOr<Run> OverSteps(gpu::Queue& queue, const std::vector<Uploaded>& frames, const F& run, const R& read) {
  Run result;
  PALPATE_RETURN_IF_ERROR(run(frames[0], frames[1]));
  for (size_t i = 0; i + 1 < frames.size(); ++i) {
    PALPATE_RETURN_IF_ERROR(queue.FinishBlocking());
    const Stopwatch watch;
    PALPATE_RETURN_IF_ERROR(run(frames[i], frames[i + 1]));
    PALPATE_RETURN_IF_ERROR(queue.FinishBlocking());
    result.samples.Add(watch.Elapsed());
    PALPATE_ASSIGN_OR_RETURN(result.per_step.emplace_back(), read());
    result.hits += result.per_step.back().size();
  }
  return result;
}

void AddTimes(const std::string& name, const std::string& what, const Samples& samples, Report* report) {
  report->Add(name, what + "_step_p50", Quantile(samples.wall_s, 0.5), "s");
  report->Add(name, what + "_step_p90", Quantile(samples.wall_s, 0.9), "s");
  report->Add(name, what + "_step_cpu_p50", Quantile(samples.cpu_s, 0.5), "s");
}

template <typename Detector>
auto ReadHits(gpu::Queue& queue, Detector& detector) {
  return [&]() -> absl::StatusOr<std::vector<gpu::CcdHit>> {
    std::vector<gpu::CcdHit> hits(detector.hit_count());
    if (!hits.empty()) PALPATE_RETURN_IF_ERROR(queue.ReadBlocking(detector.hit_buffer(), hits));
    return hits;
  };
}

// From each frame to the next.
absl::Status RunFrames(gpu::Queue& queue, const std::string& name, const Triangles& triangles,
                       const std::vector<std::vector<Float4>>& positions, Report* report) {
  const gpu::SurfaceBody body = {.triangles = triangles, .body = 0, .self_collision = true};
  PALPATE_ASSIGN_OR_RETURN(const gpu::SurfaceTopology topology,
                           gpu::SurfaceTopology::Build(static_cast<uint32_t>(positions[0].size()), {&body, 1}));
  const auto steps = static_cast<double>(positions.size() - 1);
  std::vector<Uploaded> frames;
  for (const std::vector<Float4>& frame : positions) {
    PALPATE_ASSIGN_OR_RETURN(frames.emplace_back(), gpu::CreateBufferFrom<Float4>(queue, frame, "frame"));
  }
  report->Add(name, "triangles", static_cast<double>(topology.triangles.size()), "count");

  PALPATE_ASSIGN_OR_RETURN(auto detector, gpu::ContinuousCollisions::Create(queue.context(), {}));
  PALPATE_RETURN_IF_ERROR(detector.SetTopology(queue, topology));
  PALPATE_ASSIGN_OR_RETURN(
      const Run packed,
      OverSteps(
          queue, frames, [&](const Uploaded& s, const Uploaded& e) { return detector.Run(queue, s, e); }, ReadHits(queue, detector)));
  AddTimes(name, "packed", packed.samples, report);
  report->Add(name, "hits", static_cast<double>(packed.hits), "count");

  PALPATE_ASSIGN_OR_RETURN(auto view, gpu::ViewCollisions::Create(queue.context(), {}));
  PALPATE_RETURN_IF_ERROR(view.SetTopology(queue, topology));
  double certified = 0, untraversed = 0, positive = 0, searched = 0;
  PALPATE_ASSIGN_OR_RETURN(const Run ours,
                           OverSteps(
                               queue, frames, [&](const Uploaded& s, const Uploaded& e) { return view.Run(queue, s, e); },
                               [&] {
                                 certified += static_cast<double>(view.statistics().certified) / view.statistics().triangles;
                                 untraversed += view.statistics().was_traversed ? 0 : 1;
                                 searched += static_cast<double>(view.statistics().searched) / view.statistics().triangles;
                                 const auto& counts = view.certificate().components()[0].counts;
                                 if (view.statistics().was_asked)
                                   positive += 1 - static_cast<double>(counts.unsure + counts.negative) / view.statistics().triangles;
                                 return ReadHits(queue, view)();
                               }));
  AddTimes(name, "view", ours.samples, report);
  report->Add(name, "certified_share", certified / steps, "ratio");
  report->Add(name, "positive_share", positive / steps, "ratio");
  report->Add(name, "searched_share", searched / steps, "ratio");
  report->Add(name, "untraversed_share", untraversed / steps, "ratio");
  report->Add(name, "packed_over_view", Quantile(packed.samples.wall_s, 0.5) / Quantile(ours.samples.wall_s, 0.5), "ratio");
  uint64_t differing = 0;
  for (size_t i = 0; i < ours.per_step.size(); ++i) {
    const auto &a = ours.per_step[i], &b = packed.per_step[i];
    differing += a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(gpu::CcdHit)) == 0) ? 0 : 1;
  }
  report->Add(name, "differing_steps", static_cast<double>(differing), "count");

  PALPATE_ASSIGN_OR_RETURN(auto certificate, gpu::ViewCertificate::Create(queue.context(), {}));
  PALPATE_RETURN_IF_ERROR(certificate.SetSurface(queue, topology));
  PALPATE_ASSIGN_OR_RETURN(const Run alone,
                           OverSteps(
                               queue, frames, [&](const Uploaded& s, const Uploaded& e) { return certificate.Run(queue, s, e); },
                               []() -> absl::StatusOr<std::vector<gpu::CcdHit>> { return std::vector<gpu::CcdHit>(); }));
  AddTimes(name, "certificate", alone.samples, report);

  if (!absl::GetFlag(FLAGS_peers)) return absl::OkStatus();
  std::vector<std::vector<float>> flat;
  for (const auto& frame : positions) {
    std::vector<float>& to = flat.emplace_back();
    for (const Float4& p : frame) to.insert(to.end(), {p.x, p.y, p.z});
  }
  using Tree = TriangleTree;
  const struct {
    const char* name;
    Tree::Volume volume;
    Tree::Culling culling;
  } kPeers[] = {{"aabb_tree", Tree::Volume::kAabb, Tree::Culling::kNone},
                {"dop16_tree", Tree::Volume::kDop16, Tree::Culling::kNone},
                {"normal_cones", Tree::Volume::kDop16, Tree::Culling::kNormalCones}};
  for (const auto& peer : kPeers) {
    Tree tree(peer.volume, peer.culling, triangles, flat[0]);
    Samples samples;
    Tree::Counts sum;
    for (size_t i = 0; i + 1 < flat.size(); ++i) {
      const Stopwatch watch;
      const Tree::Counts counts = tree.Step(flat[i], flat[i + 1]);
      samples.Add(watch.Elapsed());
      sum.overlap_tests += counts.overlap_tests;
      sum.pairs += counts.pairs;
      sum.cones += counts.cones;
    }
    AddTimes(name, peer.name, samples, report);
    report->Add(name, std::string(peer.name) + "_overlap_tests", static_cast<double>(sum.overlap_tests) / steps, "count");
    report->Add(name, std::string(peer.name) + "_pairs", static_cast<double>(sum.pairs) / steps, "count");
    // By the second of processor time: these have one thread.
    report->Add(name, std::string(peer.name) + "_over_view", Quantile(samples.cpu_s, 0.5) / Quantile(ours.samples.cpu_s, 0.5), "ratio");
  }
  return absl::OkStatus();
}

absl::Status RunAnimation(gpu::Queue& queue, const Animation& animation, Report* report) {
  const int steps = IsQuick() ? 6 : absl::GetFlag(FLAGS_steps);
  std::vector<std::vector<Float4>> positions;
  // Steps as of 100 frames a second of an animation of some seconds.
  for (int i = 0; i <= steps; ++i) positions.push_back(animation.Frame(0.3 + 0.4 * i / steps));
  return RunFrames(queue, animation.name, animation.triangles, positions, report);
}

#ifdef PALPATE_HAS_VIEW_SCENES
absl::Status RunScene(gpu::Queue& queue, const ViewScene& scene, Report* report) {
  const int wanted = absl::GetFlag(FLAGS_frames) > 0 ? absl::GetFlag(FLAGS_frames) : IsQuick() ? 40 : scene.frames;
  if (wanted < 2) return absl::InvalidArgumentError("--frames: a step needs two");
  PALPATE_ASSIGN_OR_RETURN(const SimulatedAnimation animation,
                           SimulateViewScene(queue.context(), scene, wanted, IsQuick(),
                                             {.scenes = absl::GetFlag(FLAGS_scenes_dir), .frames = absl::GetFlag(FLAGS_frames_dir)}));
  std::vector<std::vector<Float4>> positions;
  for (const std::vector<float>& frame : animation.frames) {
    std::vector<Float4>& to = positions.emplace_back();
    for (size_t i = 0; i < frame.size(); i += 3) to.push_back({frame[i], frame[i + 1], frame[i + 2], 0});
  }
  report->Add(animation.name, "frames", static_cast<double>(positions.size()), "count");
  return RunFrames(queue, animation.name, animation.triangles, positions, report);
}

absl::Status RunScenes(gpu::Queue& queue, Report* report) {
  for (const ViewScene& scene : ViewScenes()) {
    if (IsSelected(scene.name)) PALPATE_RETURN_IF_ERROR(RunScene(queue, scene, report));
  }
  return absl::OkStatus();
}
#else
absl::Status RunScenes(gpu::Queue&, Report*) { return absl::UnimplementedError("this build has no scenes to simulate"); }
#endif

int Main() {
  gpu::ContextOptions options;
  options.device = DeviceSelector();
  const auto context = gpu::Context::Create(options);
  if (!context.ok()) return Report("view", "").Finish(context.status());
  Report report("view", gpu::DescribeDevice((*context)->device()));
  const auto queue = gpu::Queue::Create(*context);
  if (!queue.ok()) return report.Finish(queue.status());
  for (const Animation& animation : Animations(IsQuick())) {
    if (absl::GetFlag(FLAGS_simulated) || !IsSelected(animation.name)) continue;
    if (const absl::Status status = RunAnimation(**queue, animation, &report); !status.ok()) return report.Finish(status);
  }
  if (absl::GetFlag(FLAGS_simulated)) {
    if (const absl::Status status = RunScenes(**queue, &report); !status.ok()) return report.Finish(status);
  }
  report.Note("aabb_tree, dop16_tree and normal_cones end at pairs of triangles: their elementary tests would come on top.");
  return report.Finish();
}

}  // namespace
}  // namespace palpate::bench

int main(int argc, char** argv) {
  palpate::bench::Initialize(argc, argv, "Continuous self-collision with the view certificate, and beside it trees and normal cones.");
  return palpate::bench::Main();
}
