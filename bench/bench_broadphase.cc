// The broad phase of n moving bodies beside libfcl and Bullet, over the same steps in one run: update plus pairs, one result for all.
#include <CL/cl.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "bench/bench_broadphase_peers.h"
#include "bench/bench_support.h"
#include "gpu/collision/body_broad_phase.h"
#include "gpu/collision/kdop.h"
#include "gpu/runtime/context.h"

ABSL_FLAG(std::vector<std::string>, sizes, std::vector<std::string>({"1024", "4096", "16384", "65536", "262144", "1048576"}),
          "Numbers of bodies.");
ABSL_FLAG(int, steps, 40, "Counted steps of a case.");
ABSL_FLAG(double, peer_seconds, 20, "Seconds a peer gets for a case; one that needs more is reported with what it managed.");
ABSL_FLAG(bool, peers, true, "Run the peers.");

namespace palpate::bench {
namespace {

// Boxes in a closed cube: half-extents uniform in 0.25 to 0.75 m, side cbrt(4 n / k), velocities uniform in +-0.05 m a step, reflected at
// the walls. k sets the pairs: about 0.96 k n.
class BoxWorld {
 public:
  BoxWorld(uint32_t count, double k) : side_m_(std::cbrt(4.0 * count / k)), boxes_(count) {
    std::mt19937_64 random(count * 31 + static_cast<uint64_t>(k));
    std::uniform_real_distribution<float> extent(0.25F, 0.75F);
    std::uniform_real_distribution<float> place(0, static_cast<float>(side_m_));
    std::uniform_real_distribution<float> speed(-0.05F, 0.05F);
    for (size_t i = 0; i < count; ++i) {
      for (size_t axis = 0; axis < 3; ++axis) {
        centres_.push_back(place(random));
        halves_.push_back(extent(random));
        velocities_.push_back(speed(random));
      }
    }
    Refresh();
  }

  void Step() {
    const auto side = static_cast<float>(side_m_);
    for (size_t i = 0; i < centres_.size(); ++i) {
      centres_[i] += velocities_[i];
      if (centres_[i] < 0) {
        centres_[i] = -centres_[i];
        velocities_[i] = -velocities_[i];
      } else if (centres_[i] > side) {
        centres_[i] = 2 * side - centres_[i];
        velocities_[i] = -velocities_[i];
      }
    }
    Refresh();
  }

  const std::vector<PeerBox>& boxes() const { return boxes_; }

 private:
  void Refresh() {
    for (size_t i = 0; i < boxes_.size(); ++i) {
      for (size_t axis = 0; axis < 3; ++axis) {
        boxes_[i].lower[axis] = centres_[3 * i + axis] - halves_[3 * i + axis];
        boxes_[i].upper[axis] = centres_[3 * i + axis] + halves_[3 * i + axis];
      }
    }
  }

  double side_m_;
  std::vector<float> centres_, halves_, velocities_;
  std::vector<PeerBox> boxes_;
};

absl::StatusOr<std::vector<PeerPair>> ReadPairs(gpu::Queue& queue, const gpu::BodyBroadPhase& phase) {
  std::vector<PeerPair> pairs(phase.pair_count());
  static_assert(sizeof(PeerPair) == sizeof(gpu::UInt2));
  if (!pairs.empty() && clEnqueueReadBuffer(queue.handle(), phase.pairs().handle, CL_TRUE, 0, pairs.size() * sizeof(PeerPair), pairs.data(),
                                            0, nullptr, nullptr) != CL_SUCCESS) {
    return absl::InternalError("the pairs cannot be read");
  }
  return pairs;
}

void AddTimes(const std::string& name, const std::string& what, const Samples& samples, Report* report) {
  report->Add(name, what + "_step_p50", Quantile(samples.wall_s, 0.5), "s");
  report->Add(name, what + "_step_cpu_p50", Quantile(samples.cpu_s, 0.5), "s");
  report->Add(name, what + "_step_min", Quantile(samples.wall_s, 0), "s");
  report->Add(name, what + "_step_p90", Quantile(samples.wall_s, 0.9), "s");
}

constexpr std::array<const char*, gpu::kBroadPhaseStageCount> kStageNames = {"stage_axis", "stage_structure", "stage_tests", "stage_sort"};

// This project's engine with the given method. Each step the host uploads the new boxes and the device finds the pairs.
class OwnEngine {
 public:
  static absl::StatusOr<OwnEngine> Create(gpu::Queue& queue, uint32_t count, gpu::BroadPhaseMethod method, bool measure_stages) {
    OwnEngine engine(&queue, count);
    PALPATE_ASSIGN_OR_RETURN(gpu::BodyBroadPhase phase, gpu::BodyBroadPhase::Create(queue.context(), {.volume = gpu::BoundingVolume::kDop6,
                                                                                                      .method = method,
                                                                                                      .measure_stages = measure_stages}));
    engine.phase_ = std::make_unique<gpu::BodyBroadPhase>(std::move(phase));
    PALPATE_ASSIGN_OR_RETURN(engine.volumes_, gpu::DeviceBuffer<float>::Create(queue.context(), size_t{count} * 6, "volumes"));
    return engine;
  }

  absl::Status Step(const std::vector<PeerBox>& boxes) {
    const auto* floats = reinterpret_cast<const float*>(boxes.data());
    PALPATE_RETURN_IF_ERROR(queue_->Write(volumes_, {floats, size_t{count_} * 6}));
    PALPATE_RETURN_IF_ERROR(phase_->Run(*queue_, volumes_, {}, count_));
    return queue_->FinishBlocking();
  }

  const gpu::BroadPhaseStatistics& statistics() const { return phase_->statistics(); }
  absl::StatusOr<std::vector<PeerPair>> Pairs() const { return ReadPairs(*queue_, *phase_); }

 private:
  OwnEngine(gpu::Queue* queue, uint32_t count) : queue_(queue), count_(count) {}
  gpu::Queue* queue_;
  uint32_t count_;
  std::unique_ptr<gpu::BodyBroadPhase> phase_;
  gpu::DeviceBuffer<float> volumes_;
};

// Whether every pair of `part` is in `whole`; both sorted.
bool IsSubset(const std::vector<PeerPair>& part, const std::vector<PeerPair>& whole) {
  return std::includes(whole.begin(), whole.end(), part.begin(), part.end());
}

// Whether the sorted pairs of a peer are what it promises, given ours.
bool Agree(const std::vector<PeerPair>& own, const std::vector<PeerPair>& peer, PeerPairs promise, const std::vector<PeerBox>& boxes) {
  if (promise == PeerPairs::kExact) return peer == own;
  if (promise == PeerPairs::kMore) return IsSubset(own, peer);
  std::vector<PeerPair> missing;
  std::set_difference(own.begin(), own.end(), peer.begin(), peer.end(), std::back_inserter(missing));
  return IsSubset(peer, own) && std::all_of(missing.begin(), missing.end(),
                                            [&](const PeerPair& pair) { return OnlyTouch(boxes[pair.first], boxes[pair.second]); });
}

// Stages of the automatic method, and the time of the two that it chooses from.
absl::Status MeasureMethods(gpu::Queue& queue, uint32_t count, double k, const std::string& name, Report* report) {
  for (const auto& [method, what] :
       {std::pair{gpu::BroadPhaseMethod::kAutomatic, "palpate"}, std::pair{gpu::BroadPhaseMethod::kSweep, "sweep"},
        std::pair{gpu::BroadPhaseMethod::kHierarchy, "hierarchy"}}) {
    if (method == gpu::BroadPhaseMethod::kSweep && count > 300000) continue;
    const bool measure_stages = method == gpu::BroadPhaseMethod::kAutomatic;
    PALPATE_ASSIGN_OR_RETURN(OwnEngine engine, OwnEngine::Create(queue, count, method, measure_stages));
    BoxWorld world(count, k);
    Samples samples;
    std::array<std::vector<double>, gpu::kBroadPhaseStageCount> stages;
    for (int step = 0; step < kPeerWarmSteps + (IsQuick() ? 3 : 8); ++step) {
      world.Step();
      const Stopwatch stopwatch;
      PALPATE_RETURN_IF_ERROR(engine.Step(world.boxes()));
      if (step < kPeerWarmSteps) continue;
      samples.Add(stopwatch.Elapsed());
      for (size_t s = 0; s < stages.size(); ++s) stages[s].push_back(engine.statistics().stage_s[s]);
    }
    if (!measure_stages) {
      AddTimes(name, what, samples, report);
      continue;
    }
    for (size_t s = 0; s < stages.size(); ++s) report->Add(name, kStageNames[s], Quantile(stages[s], 0.5), "s");
  }
  return absl::OkStatus();
}

// A peer that manages fewer counted steps within --peer_seconds is not run on larger worlds of the kind.
constexpr size_t kStepsToGoOn = 8;

// Such peers by name, and the case where they were too slow.
using TimedOut = std::map<std::string, std::string>;

// The peers, which take the same steps. Each one's pairs are compared with ours at the last step that it takes.
class Contenders {
 public:
  Contenders(const std::string& name, const std::vector<PeerBox>& boxes, bool resizes, TimedOut* timed_out)
      : name_(name), limit_s_(absl::GetFlag(FLAGS_peer_seconds)), timed_out_(timed_out) {
    if (!absl::GetFlag(FLAGS_peers)) return;
    for (PeerFactory& factory : Peers()) {
      Contender contender = {.factory = std::move(factory), .engine = nullptr, .samples = {}, .why_not = {}};
      const auto before = timed_out->find(contender.factory.name);
      if (resizes && !contender.factory.takes_resizing) {
        contender.why_not = "not run: its update does not end when boxes change their size";
      } else if (boxes.size() > contender.factory.max_bodies) {
        contender.why_not = absl::StrFormat("not run: above %d boxes rounding changes their size", contender.factory.max_bodies);
      } else if (before != timed_out->end()) {
        contender.why_not = absl::StrFormat("not run: it took too long in %s", before->second);
      } else {
        contender.engine = contender.factory.create(boxes);
        const Stopwatch stopwatch;
        const bool is_built = contender.engine->Build(boxes, limit_s_);
        contender.total_s = stopwatch.Elapsed().wall_s;
        if (!is_built) {
          contender.why_not = absl::StrFormat("stopped after %.3g s, before all boxes were in it", contender.total_s);
          contender.is_late = true;
          timed_out->emplace(contender.factory.name, name);
        }
      }
      contender.is_done = !contender.why_not.empty();
      contenders_.push_back(std::move(contender));
    }
  }

  // One step to `boxes`, whose pairs `own_pairs()` reads. `is_counted`: it goes into the times.
  template <typename OwnPairs>
  absl::Status Step(const std::vector<PeerBox>& boxes, bool is_counted, bool is_last, const OwnPairs& own_pairs) {
    for (Contender& contender : contenders_) {
      if (contender.is_done) continue;
      const Stopwatch stopwatch;
      contender.engine->Step(boxes);
      const Times times = stopwatch.Elapsed();
      if (is_counted) contender.samples.Add(times);
      contender.total_s += times.wall_s;
      contender.is_done = is_last || contender.total_s > limit_s_;
      if (!contender.is_done) continue;
      contender.is_late = !is_last;
      if (contender.is_late && contender.samples.count() < kStepsToGoOn) timed_out_->emplace(contender.factory.name, name_);
      PALPATE_ASSIGN_OR_RETURN(const std::vector<PeerPair> own, own_pairs());
      std::vector<PeerPair> pairs = contender.engine->Pairs();
      std::sort(pairs.begin(), pairs.end());
      contender.pair_count = pairs.size();
      contender.is_compared = true;
      if (!Agree(own, pairs, contender.factory.pairs, boxes)) {
        return absl::InternalError(absl::StrFormat("%s: the pairs of %s differ", name_, contender.factory.name));
      }
    }
    return absl::OkStatus();
  }

  // Beside ours: the wall time of a step and what it costs all cores together. Ours uses all of them, the others one.
  void AddTo(const Samples& own, Report* report) const {
    const Times own_p50 = {Quantile(own.wall_s, 0.5), Quantile(own.cpu_s, 0.5)};
    Times best_peer;
    for (const Contender& contender : contenders_) {
      const std::string& peer = contender.factory.name;
      if (contender.is_compared) report->Add(name_, "pairs_of_" + peer, static_cast<double>(contender.pair_count), "count");
      if (contender.is_late) report->Add(name_, "stopped_after_of_" + peer, contender.total_s, "s");
      if (contender.samples.count() == 0) {
        report->Note(absl::StrFormat("%s: %s %s", name_, peer,
                                     contender.is_compared
                                         ? absl::StrFormat("stopped after %.3g s in its first steps; pairs compared", contender.total_s)
                                         : contender.why_not));
        continue;
      }
      AddTimes(name_, peer, contender.samples, report);
      report->Add(name_, "counted_steps_of_" + peer, static_cast<double>(contender.samples.count()), "count");
      const Times p50 = {Quantile(contender.samples.wall_s, 0.5), Quantile(contender.samples.cpu_s, 0.5)};
      report->Add(name_, "speedup_over_" + peer, p50.wall_s / own_p50.wall_s, "ratio");
      if (best_peer.wall_s == 0 || p50.wall_s < best_peer.wall_s) best_peer.wall_s = p50.wall_s;
      if (best_peer.cpu_s == 0 || p50.cpu_s < best_peer.cpu_s) best_peer.cpu_s = p50.cpu_s;
      if (contender.is_late) {
        report->Add(name_, "stopped_after_steps_of_" + peer, static_cast<double>(contender.samples.count()), "count");
        report->Note(absl::StrFormat("%s: %s stopped after %.3g s, %d counted steps; pairs compared at the last of them", name_, peer,
                                     contender.total_s, static_cast<int>(contender.samples.count())));
      }
    }
    if (best_peer.wall_s == 0) return;
    report->Add(name_, "speedup_over_best_peer", best_peer.wall_s / own_p50.wall_s, "ratio");
    report->Add(name_, "speedup_over_best_peer_cpu", best_peer.cpu_s / own_p50.cpu_s, "ratio");
  }

 private:
  struct Contender {
    PeerFactory factory;
    std::unique_ptr<Peer> engine;
    Samples samples;
    std::string why_not;  // it was not run, or not to the end of its first step
    double total_s = 0;   // with building it
    size_t pair_count = 0;
    bool is_done = false;      // takes no more steps
    bool is_late = false;      // because it took too long
    bool is_compared = false;  // its pairs were, at its last step
  };
  std::string name_;
  double limit_s_;
  TimedOut* timed_out_;
  std::vector<Contender> contenders_;
};

// All engines take each step in turn, so that whatever else the machine does meets all of them.
absl::Status MeasureBoxes(gpu::Queue& queue, uint32_t count, double k, double* first_time_per_body, TimedOut* timed_out, Report* report) {
  const std::string name = absl::StrFormat("boxes_%d_k%g", count, k);
  if (!IsSelected(name)) return absl::OkStatus();
  PALPATE_ASSIGN_OR_RETURN(OwnEngine own, OwnEngine::Create(queue, count, gpu::BroadPhaseMethod::kAutomatic, false));
  BoxWorld world(count, k);
  Contenders contenders(name, world.boxes(), false, timed_out);
  Samples own_samples;
  const int steps = kPeerWarmSteps + (IsQuick() ? 5 : absl::GetFlag(FLAGS_steps));
  for (int step = 0; step < steps; ++step) {
    world.Step();
    const Stopwatch stopwatch;
    PALPATE_RETURN_IF_ERROR(own.Step(world.boxes()));
    if (step >= kPeerWarmSteps) own_samples.Add(stopwatch.Elapsed());
    PALPATE_RETURN_IF_ERROR(contenders.Step(world.boxes(), step >= kPeerWarmSteps, step + 1 == steps, [&] { return own.Pairs(); }));
  }

  PALPATE_ASSIGN_OR_RETURN(const std::vector<PeerPair> own_pairs, own.Pairs());
  const double own_p50 = Quantile(own_samples.wall_s, 0.5);
  const gpu::BroadPhaseStatistics& statistics = own.statistics();
  AddTimes(name, "palpate", own_samples, report);
  report->Add(name, "pairs", static_cast<double>(own_pairs.size()), "count");
  report->Add(name, "tiles", static_cast<double>(statistics.tile_count), "count");
  report->Add(name, "uses_hierarchy", statistics.method == gpu::BroadPhaseMethod::kHierarchy ? 1 : 0, "count");
  report->Add(name, "axis_changes", statistics.axis_changes, "count");
  if (*first_time_per_body == 0) *first_time_per_body = own_p50 / count;
  report->Add(name, "growth_of_time_per_body", own_p50 / count / *first_time_per_body, "ratio");
  contenders.AddTo(own_samples, report);
  return MeasureMethods(queue, count, k, name, report);
}

// Elongated bodies that drift by up to 0.25 m along each axis and turn by up to 0.1 rad about an axis of their own in a step.
class TumblingWorld {
 public:
  explicit TumblingWorld(uint32_t count) {
    std::mt19937_64 random(count);
    std::normal_distribution<float> normal;
    const float side_m = 12.0F * std::cbrt(static_cast<float>(count));
    std::uniform_real_distribution<float> place(0, side_m);
    std::uniform_real_distribution<float> speed(-0.25F, 0.25F);
    std::uniform_real_distribution<float> turn(-0.1F, 0.1F);
    for (uint32_t i = 0; i < count; ++i) {
      const Quaternion q = Unit({normal(random), normal(random), normal(random), normal(random)});
      instances_.push_back({.position = {place(random), place(random), place(random), 0},
                            .rotation = {q[1], q[2], q[3], q[0]},
                            .scale = {2, 6, 2, 0},
                            .mesh = {}});
      velocities_.push_back({speed(random), speed(random), speed(random)});
      const Quaternion axis = Unit({0, normal(random), normal(random), normal(random)});
      const float half = turn(random) / 2;
      turns_.push_back({std::cos(half), std::sin(half) * axis[1], std::sin(half) * axis[2], std::sin(half) * axis[3]});
    }
  }

  void Step() {
    for (size_t i = 0; i < instances_.size(); ++i) {
      gpu::Float4& p = instances_[i].position;
      p = {p.x + velocities_[i][0], p.y + velocities_[i][1], p.z + velocities_[i][2], 0};
      const gpu::Float4 r = instances_[i].rotation;
      const Quaternion t = turns_[i];
      const Quaternion q = Unit({t[0] * r.w - t[1] * r.x - t[2] * r.y - t[3] * r.z, t[0] * r.x + t[1] * r.w + t[2] * r.z - t[3] * r.y,
                                 t[0] * r.y - t[1] * r.z + t[2] * r.w + t[3] * r.x, t[0] * r.z + t[1] * r.y - t[2] * r.x + t[3] * r.w});
      instances_[i].rotation = {q[1], q[2], q[3], q[0]};
    }
  }

  const std::vector<gpu::RigidInstance>& instances() const { return instances_; }

 private:
  using Quaternion = std::array<float, 4>;  // w, x, y, z; RigidInstance has w last
  static Quaternion Unit(const Quaternion& q) {
    const float norm = std::sqrt(q[0] * q[0] + q[1] * q[1] + q[2] * q[2] + q[3] * q[3]);
    return {q[0] / norm, q[1] / norm, q[2] / norm, q[3] / norm};
  }

  std::vector<gpu::RigidInstance> instances_;
  std::vector<std::array<float, 3>> velocities_;
  std::vector<Quaternion> turns_;
};

// Bodies of 24 vertices, the permutations of (+-1, +-c, +-c) stretched by (2, 6, 2), that drift and tumble: the device places the vertices,
// builds the volumes and finds the pairs. The peers get the boxes (6-DOPs) of the same steps.
absl::Status MeasureElongated(gpu::Queue& queue, uint32_t count, TimedOut* timed_out, Report* report) {
  const std::string name = absl::StrFormat("elongated_%d", count);
  if (!IsSelected(name)) return absl::OkStatus();
  const std::shared_ptr<gpu::Context>& context = queue.context();
  std::vector<gpu::Float4> mesh;
  for (int axis = 0; axis < 3; ++axis) {
    for (int signs = 0; signs < 8; ++signs) {
      const float c = 0.179303F;
      std::array<float, 3> v = {signs & 1 ? c : -c, signs & 2 ? c : -c, signs & 4 ? c : -c};
      v[static_cast<size_t>(axis)] = v[static_cast<size_t>(axis)] > 0 ? 1.0F : -1.0F;
      mesh.push_back({v[0], v[1], v[2], 0});
    }
  }
  std::vector<uint32_t> begins(size_t{count} + 1);
  for (uint32_t i = 0; i < count; ++i) begins[i + 1] = begins[i] + 24;
  PALPATE_ASSIGN_OR_RETURN(const auto mesh_buffer, gpu::CreateBufferFrom<gpu::Float4>(queue, mesh, "mesh"));
  PALPATE_ASSIGN_OR_RETURN(const auto begin_buffer, gpu::CreateBufferFrom<uint32_t>(queue, begins, "begins"));
  PALPATE_ASSIGN_OR_RETURN(const auto instance_buffer, gpu::DeviceBuffer<gpu::RigidInstance>::Create(context, count, "instances"));
  PALPATE_ASSIGN_OR_RETURN(const auto world, gpu::DeviceBuffer<gpu::Float4>::Create(context, begins.back(), "world vertices"));
  PALPATE_ASSIGN_OR_RETURN(gpu::InstanceTransform transform, gpu::InstanceTransform::Create(context));
  const int steps = IsQuick() ? 3 : std::min(10, absl::GetFlag(FLAGS_steps));
  double box_pairs = 0;
  for (const gpu::BoundingVolume volume : {gpu::BoundingVolume::kDop6, gpu::BoundingVolume::kSphere, gpu::BoundingVolume::kDop14,
                                           gpu::BoundingVolume::kDop18, gpu::BoundingVolume::kDop26, gpu::BoundingVolume::kOrientedBox}) {
    const std::string what = gpu::BoundingVolumeName(volume);
    PALPATE_ASSIGN_OR_RETURN(gpu::VolumeBuilder builder, gpu::VolumeBuilder::Create(context, volume));
    PALPATE_ASSIGN_OR_RETURN(gpu::BodyBroadPhase phase, gpu::BodyBroadPhase::Create(context, {.volume = volume}));
    PALPATE_ASSIGN_OR_RETURN(const auto volumes,
                             gpu::DeviceBuffer<float>::Create(context, size_t{count} * gpu::FloatsPerVolume(volume), "volumes"));
    Samples place, build, find;
    std::vector<double> candidates;
    TumblingWorld tumbling(count);
    std::unique_ptr<Contenders> contenders;
    for (int step = 0; step < steps + 1; ++step) {
      tumbling.Step();
      Stopwatch stopwatch;
      PALPATE_RETURN_IF_ERROR(queue.Write(instance_buffer, tumbling.instances()));
      PALPATE_RETURN_IF_ERROR(transform.Run(queue, mesh_buffer, instance_buffer, begin_buffer, count, begins.back(), world));
      PALPATE_RETURN_IF_ERROR(queue.FinishBlocking());
      const Times placed = stopwatch.Elapsed();
      stopwatch = {};
      PALPATE_RETURN_IF_ERROR(builder.Build(queue, world, begin_buffer, count, begins.back(), volumes));
      PALPATE_RETURN_IF_ERROR(queue.FinishBlocking());
      const Times built = stopwatch.Elapsed();
      stopwatch = {};
      PALPATE_RETURN_IF_ERROR(phase.Run(queue, volumes, {}, count));
      PALPATE_RETURN_IF_ERROR(queue.FinishBlocking());
      const Times found = stopwatch.Elapsed();
      if (volume == gpu::BoundingVolume::kDop6) {
        static_assert(sizeof(PeerBox) == 6 * sizeof(float));
        std::vector<PeerBox> boxes(count);
        PALPATE_RETURN_IF_ERROR(queue.ReadBlocking(volumes, {reinterpret_cast<float*>(boxes.data()), size_t{count} * 6}));
        if (contenders == nullptr) contenders = std::make_unique<Contenders>(name, boxes, true, timed_out);
        PALPATE_RETURN_IF_ERROR(contenders->Step(boxes, step > 0, step == steps, [&] { return ReadPairs(queue, phase); }));
      }
      if (step == 0) continue;
      place.Add(placed);
      build.Add(built);
      find.Add(found);
      candidates.push_back(phase.pair_count());
    }
    const double mean_candidates = std::accumulate(candidates.begin(), candidates.end(), 0.0) / static_cast<double>(candidates.size());
    if (volume == gpu::BoundingVolume::kDop6) {
      box_pairs = mean_candidates;
      report->Add(name, "place_vertices_p50", Quantile(place.wall_s, 0.5), "s");
      contenders->AddTo(find, report);
    }
    report->Add(name, what + "_build_p50", Quantile(build.wall_s, 0.5), "s");
    report->Add(name, what + "_pairs_p50", Quantile(find.wall_s, 0.5), "s");
    report->Add(name, what + "_pairs_cpu_p50", Quantile(find.cpu_s, 0.5), "s");
    report->Add(name, what + "_candidates", mean_candidates, "count");
    if (box_pairs > 0) report->Add(name, what + "_candidates_over_6-dop", mean_candidates / box_pairs, "ratio");
  }
  return absl::OkStatus();
}

absl::Status Run(Report* report, const std::shared_ptr<gpu::Context>& context) {
  PALPATE_ASSIGN_OR_RETURN(const std::unique_ptr<gpu::Queue> queue, gpu::Queue::Create(context));
  std::vector<uint32_t> sizes;
  for (const std::string& text : absl::GetFlag(FLAGS_sizes)) {
    uint32_t size = 0;
    if (!absl::SimpleAtoi(text, &size) || size < 2 || size > gpu::BodyBroadPhase::kMaxBodies) {
      return absl::InvalidArgumentError(absl::StrFormat("--sizes: %s is not a number from 2 to %d", text, gpu::BodyBroadPhase::kMaxBodies));
    }
    if (!IsQuick() || size <= 4096) sizes.push_back(size);
  }
  report->Note("*_cpu_*: processor time of all threads. The other engines use one thread, ours all cores of the device.");
  if (absl::GetFlag(FLAGS_peers)) {
    for (const std::string& name : AbsentPeers())
      report->Note(name + " is not installed (packages of group [bench] in deploy/packages.txt)");
  }
  for (const double k : {1.0, 8.0}) {
    double first_time_per_body = 0;
    TimedOut timed_out;
    for (const uint32_t size : sizes) PALPATE_RETURN_IF_ERROR(MeasureBoxes(*queue, size, k, &first_time_per_body, &timed_out, report));
  }
  TimedOut timed_out;
  for (const uint32_t size : sizes) PALPATE_RETURN_IF_ERROR(MeasureElongated(*queue, size, &timed_out, report));
  return absl::OkStatus();
}

}  // namespace
}  // namespace palpate::bench

int main(int argc, char** argv) {
  palpate::bench::Initialize(argc, argv, "Broad phase of moving bodies, beside libfcl and Bullet.");
  auto context = palpate::gpu::Context::Create({.device = palpate::bench::DeviceSelector(), .time_one_in = 0});
  palpate::bench::Report report("broadphase", context.ok() ? palpate::gpu::DescribeDevice((*context)->device()) : "none");
  if (!context.ok()) return report.Finish(context.status());
  return report.Finish(palpate::bench::Run(&report, *context));
}
