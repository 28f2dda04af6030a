#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <prometheus/counter.h>
#include <prometheus/family.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include "absl/status/status.h"
#include "gpu/runtime/context.h"
#include "palpate/v1/control.pb.h"
#include "sim/scene/edit.h"
#include "sim/scene/edit_request.h"
#include "sim/world/frame.h"

namespace palpate::server {

enum class StreamKind { kWatch, kOperate, kViewer, kRecord, kBatch };
inline constexpr std::array<std::string_view, 5> kStreamKindNames = {"watch", "operate", "viewer", "record", "batch"};

/// Parts of the contact between and within bodies that are timed on their own.
inline constexpr std::array<std::string_view, 3> kContactStageNames = {"detect", "filter", "check"};

/// Bounds of the buckets of a histogram [s].
namespace buckets {
inline constexpr std::array kNone = std::to_array<double>({1});
inline constexpr std::array kStep =
    std::to_array<double>({0.0005, 0.001, 0.002, 0.004, 0.008, 0.016, 0.033, 0.066, 0.13, 0.26, 0.52, 1, 2});
inline constexpr std::array kStage =
    std::to_array<double>({0.0001, 0.00025, 0.0005, 0.001, 0.002, 0.004, 0.008, 0.016, 0.033, 0.1, 0.3, 1});
inline constexpr std::array kAge = std::to_array<double>({0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5});
}  // namespace buckets

/// A label that a metric has besides the scene, and the values it takes; or none.
struct MetricLabel {
  std::string_view name;
  std::span<const std::string_view> values;
};
inline constexpr MetricLabel kNoLabel = {};
inline constexpr MetricLabel kStageLabel = {"stage", sim::kStageNames};
inline constexpr MetricLabel kContactStageLabel = {"stage", kContactStageNames};
inline constexpr MetricLabel kEditKindLabel = {"kind", scene::kEditKindNames};

/// Every metric of a scene: METRIC(type, name in the code, exported name, label, buckets, help). Registry, the members of SceneMetrics, and
/// their end with the scene come from these rows. Durations are seconds, sizes bytes, lengths metres, as Prometheus wants base units.
// clang-format off
#define PALPATE_SCENE_METRICS(METRIC)                                                                                                      \
  METRIC(Counter, steps, "palpate_steps_total", kNoLabel, kNone, "Steps done.")                                                            \
  METRIC(Histogram, step_seconds, "palpate_step_seconds", kNoLabel, kStep, "Wall time of a step.")                                         \
  METRIC(Histogram, stage_seconds, "palpate_stage_seconds", kStageLabel, kStage, "Wall time of a stage of a step.")                        \
  METRIC(Gauge, step_rate, "palpate_steps_per_second", kNoLabel, kNone, "Steps per second of wall time over the last second.")             \
  METRIC(Counter, overruns, "palpate_overruns_total", kNoLabel, kNone, "Steps that began late by more than one period.")                   \
  METRIC(Counter, skipped, "palpate_schedule_skipped_seconds_total", kNoLabel, kNone,                                                      \
         "Wall time that a scene gave up because it had fallen too far behind its schedule.")                                              \
  METRIC(Gauge, contacts, "palpate_contacts", kNoLabel, kNone, "Contacts with tools and obstacles after the newest step.")                 \
  METRIC(Gauge, surface_contacts, "palpate_surface_contacts", kNoLabel, kNone,                                                             \
         "Contacts between and within bodies that push, after the newest step.")                                                           \
  METRIC(Gauge, surface_pairs, "palpate_surface_pairs", kNoLabel, kNone,                                                                   \
         "Pairs of elements of bodies within the detection range in the newest step.")                                                     \
  METRIC(Gauge, truncated, "palpate_truncated_vertices", kNoLabel, kNone, "Vertices held back by their bound in the newest step.")         \
  METRIC(Counter, intersections, "palpate_intersections_total", kNoLabel, kNone,                                                           \
         "Edges found through triangles after steps; needs check_intersections.")                                                          \
  METRIC(Counter, self_searches, "palpate_self_searches_total", kNoLabel, kNone,                                                           \
         "Searches of bodies for near pairs of their own.")                                                                                \
  METRIC(Counter, listed_searches, "palpate_listed_self_searches_total", kNoLabel, kNone,                                                  \
         "Those of the searches that looked at a list of known pairs only.")                                                               \
  METRIC(Counter, renewed_lists, "palpate_renewed_pair_lists_total", kNoLabel, kNone, "Lists of near pairs of bodies that were made.")     \
  METRIC(Histogram, contact_seconds, "palpate_contact_seconds", kContactStageLabel, kStage,                                                \
         "Wall time of the parts of contact between and within bodies.")                                                                   \
  METRIC(Gauge, max_penetration, "palpate_max_penetration_meters", kNoLabel, kNone, "Deepest contact after the newest step.")              \
  METRIC(Gauge, inverted_tets, "palpate_inverted_tets", kNoLabel, kNone, "Inverted tetrahedra after the newest step.")                     \
  METRIC(Gauge, device_bytes, "palpate_scene_device_bytes", kNoLabel, kNone, "Device memory held by a scene.")                             \
  METRIC(Counter, edits, "palpate_edits_total", kEditKindLabel, kNone, "Edits performed by requests.")                                     \
  METRIC(Counter, edits_refused, "palpate_edits_refused_total", kEditKindLabel, kNone, "Edits of requests that a budget of tets stopped.") \
  METRIC(Histogram, edit_seconds, "palpate_edit_seconds", kNoLabel, kStage, "Wall time of the edits of a request.")                        \
  METRIC(Counter, tets_removed, "palpate_tets_removed_total", kNoLabel, kNone, "Tetrahedra removed by requests.")                          \
  METRIC(Gauge, topology_version, "palpate_topology_version", kNoLabel, kNone, "Version of the topology.")                                 \
  METRIC(Counter, deltas, "palpate_topology_deltas_total", kNoLabel, kNone, "Changes of the topology sent to readers.")                    \
  METRIC(Counter, delta_bytes, "palpate_topology_delta_bytes_total", kNoLabel, kNone,                                                      \
         "Payload of the changes of the topology sent to readers.")                                                                        \
  METRIC(Counter, gap_keyframes, "palpate_topology_keyframes_total", kNoLabel, kNone,                                                      \
         "Keyframes sent in place of a change of the topology.")                                                                           \
  METRIC(Histogram, model_age, "palpate_haptic_model_age_seconds", kNoLabel, kAge,                                                         \
         "Age of a local contact model when it leaves the server.")                                                                        \
  METRIC(Counter, models, "palpate_haptic_models_total", kNoLabel, kNone, "Local contact models sent to stations.")                        \
  METRIC(Counter, models_dropped, "palpate_haptic_models_dropped_total", kNoLabel, kNone,                                                  \
         "Local contact models replaced by newer ones before they left.")                                                                  \
  METRIC(Counter, poses, "palpate_haptic_poses_total", kNoLabel, kNone, "Tool poses received from stations.")                              \
  METRIC(Counter, frames, "palpate_frames_total", kNoLabel, kNone, "Frames sent to readers.")                                              \
  METRIC(Counter, frames_dropped, "palpate_frames_dropped_total", kNoLabel, kNone, "Frames that slow readers missed.")                      \
  METRIC(Gauge, undurable, "palpate_undurable_steps", kNoLabel, kNone, "Steps done that a crash of the server would lose.")                \
  METRIC(Gauge, journal_failing, "palpate_journal_failing", kNoLabel, kNone, "1 while the scene's state cannot be written, else 0.")       \
  METRIC(Gauge, journal_bytes, "palpate_journal_written_bytes", kNoLabel, kNone, "Entries brought to disk since the server started.")      \
  METRIC(Gauge, checkpoints, "palpate_checkpoints_written", kNoLabel, kNone, "Checkpoints brought to disk since the server started.")
// clang-format on

template <typename T>
prometheus::Family<T>& RegisterFamily(prometheus::Registry& registry, const char* name, const char* help) {
  const auto build = [&](auto builder) -> auto& { return builder.Name(name).Help(help).Register(registry); };
  if constexpr (std::is_same_v<T, prometheus::Counter>) {
    return build(prometheus::BuildCounter());
  } else if constexpr (std::is_same_v<T, prometheus::Gauge>) {
    return build(prometheus::BuildGauge());
  } else {
    return build(prometheus::BuildHistogram());
  }
}

/// The series of a metric in one scene, one for each value of its label; they end with this.
template <typename T>
class SceneSeries {
 public:
  SceneSeries(prometheus::Family<T>& family, const std::string& scene_id, const MetricLabel& label, std::span<const double> bounds)
      : family_(family) {
    const auto add = [&](const prometheus::Labels& labels) {
      if constexpr (std::is_same_v<T, prometheus::Histogram>) {
        series_.push_back(&family_.Add(labels, prometheus::Histogram::BucketBoundaries(bounds.begin(), bounds.end())));
      } else {
        series_.push_back(&family_.Add(labels));
      }
    };
    if (label.values.empty()) add({{"scene", scene_id}});
    for (const std::string_view value : label.values) add({{"scene", scene_id}, {std::string(label.name), std::string(value)}});
  }
  ~SceneSeries() {
    for (T* series : series_) family_.Remove(series);
  }
  SceneSeries(const SceneSeries&) = delete;
  SceneSeries& operator=(const SceneSeries&) = delete;

  T* operator->() { return series_.front(); }              ///< without label
  T& operator[](size_t value) { return *series_[value]; }  ///< by the place of the label's value
  size_t size() const { return series_.size(); }

 private:
  prometheus::Family<T>& family_;
  std::vector<T*> series_;
};

/// The metrics of all scenes in a registry.
struct SceneFamilies {
  explicit SceneFamilies(prometheus::Registry& owner) : registry(owner) {}

  prometheus::Registry& registry;
#define PALPATE_METRIC(type, name, exported, label, bounds, help) \
  prometheus::Family<prometheus::type>& name = RegisterFamily<prometheus::type>(registry, exported, help);
  PALPATE_SCENE_METRICS(PALPATE_METRIC)
#undef PALPATE_METRIC
};

/// The metrics of one scene. Methods may be called from any thread; they take only the short locks of single
/// histograms, never one that a whole scrape holds.
class SceneMetrics {
 public:
  SceneMetrics(SceneFamilies& families, std::string scene_id) : families_(families), scene_id_(std::move(scene_id)) {}

  void OnStep(const sim::Frame& frame, double steps_per_s);
  void OnOverrun() { overruns_->Increment(); }
  void OnSkipped(double seconds) { skipped_->Increment(seconds); }
  void OnModelSent(double age_s);
  void OnModelDropped() { models_dropped_->Increment(); }
  void OnPose() { poses_->Increment(); }
  void OnFrameSent() { frames_->Increment(); }
  void OnFramesDropped(uint64_t count) { frames_dropped_->Increment(static_cast<double>(count)); }
  /// Edits of one request and what they did.
  void OnEdits(std::span<const sim::Edit> edits, std::span<const sim::EditOutcome> outcomes, double seconds);
  void OnDeltaSent(size_t bytes);
  void OnKeyframeForGap() { gap_keyframes_->Increment(); }
  void SetTopologyVersion(uint64_t version) { topology_version_->Set(static_cast<double>(version)); }
  void SetStepRate(double steps_per_s) { step_rate_->Set(steps_per_s); }
  void OnKept(uint64_t undurable_steps, bool is_failing, uint64_t journal_bytes, uint64_t checkpoints) {
    undurable_->Set(static_cast<double>(undurable_steps));
    journal_failing_->Set(is_failing ? 1 : 0);
    journal_bytes_->Set(static_cast<double>(journal_bytes));
    checkpoints_->Set(static_cast<double>(checkpoints));
  }
  void SetDeviceBytes(size_t bytes) { device_bytes_->Set(static_cast<double>(bytes)); }

 private:
  SceneFamilies& families_;
  std::string scene_id_;
#define PALPATE_METRIC(type, name, exported, label, bounds, help) \
  SceneSeries<prometheus::type> name##_{families_.name, scene_id_, label, buckets::bounds};
  PALPATE_SCENE_METRICS(PALPATE_METRIC)
#undef PALPATE_METRIC
};

/// The server's registry and its text form. Thread-safe. Outlives what it gives out.
class Metrics {
 public:
  /// `context` may be null (no device metrics).
  explicit Metrics(std::shared_ptr<gpu::Context> context);
  ~Metrics();
  Metrics(const Metrics&) = delete;
  Metrics& operator=(const Metrics&) = delete;

  /// The metrics of a scene; all holders of the same id share them, and the last to let go removes the labels.
  std::shared_ptr<SceneMetrics> AddScene(const std::string& scene_id);

  void OnStreamOpened(StreamKind kind) { streams_[static_cast<size_t>(kind)]->Increment(); }
  void OnStreamClosed(StreamKind kind) { streams_[static_cast<size_t>(kind)]->Decrement(); }
  void OnStreamBytes(StreamKind kind, size_t bytes) { stream_bytes_[static_cast<size_t>(kind)]->Increment(static_cast<double>(bytes)); }
  void OnRpcError(absl::StatusCode code);

  /// Where the numbers of scenes by state come from when the metrics are read; unset = none. The source must be reset before it dies.
  using SceneStates = std::function<std::vector<std::pair<std::string, int>>()>;
  void SetSceneStates(SceneStates source);

  /// Counts of the web server when the metrics are read: connections, bad requests.
  using WebCounts = std::function<std::pair<double, double>()>;
  void SetWebCounts(WebCounts source);

  /// Counts of the gRPC port's connections when the metrics are read; unset = none.
  struct Connections {
    int open = 0;
    uint64_t accepted = 0;
    uint64_t refused = 0;
    uint64_t evicted = 0;
  };
  using ConnectionCounts = std::function<Connections()>;
  void SetConnectionCounts(ConnectionCounts source);

  /// The Prometheus text format, version 0.0.4.
  std::string Text() const;

 private:
  class DynamicCollector;

  void ReleaseScene(const std::string& scene_id);

  prometheus::Registry registry_;
  std::shared_ptr<DynamicCollector> dynamic_;

  SceneFamilies scene_families_;
  prometheus::Family<prometheus::Counter>& rpc_errors_;

  struct SharedScene {
    std::unique_ptr<SceneMetrics> metrics;
    int holders = 0;
  };
  std::mutex scenes_mutex_;
  std::map<std::string, SharedScene> scenes_;
  std::array<prometheus::Gauge*, kStreamKindNames.size()> streams_{};
  std::array<prometheus::Counter*, kStreamKindNames.size()> stream_bytes_{};
};

}  // namespace palpate::server
