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
#include <variant>
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
#include "sim/world/frame.h"

namespace palpate::server {

/// Every metric the server exports. Durations are seconds, sizes bytes, lengths metres, as Prometheus wants base units.
namespace metric {
inline constexpr char kSteps[] = "palpate_steps_total";                       // {scene}
inline constexpr char kStepSeconds[] = "palpate_step_seconds";                // {scene} histogram
inline constexpr char kStageSeconds[] = "palpate_stage_seconds";              // {scene, stage} histogram
inline constexpr char kStepRate[] = "palpate_steps_per_second";               // {scene}
inline constexpr char kOverruns[] = "palpate_overruns_total";                 // {scene}
inline constexpr char kSkipped[] = "palpate_schedule_skipped_seconds_total";  // {scene}
inline constexpr char kContacts[] = "palpate_contacts";                       // {scene}
inline constexpr char kSurfaceContacts[] = "palpate_surface_contacts";        // {scene}
inline constexpr char kSurfacePairs[] = "palpate_surface_pairs";              // {scene}
inline constexpr char kTruncated[] = "palpate_truncated_vertices";            // {scene}
inline constexpr char kIntersections[] = "palpate_intersections_total";       // {scene}
inline constexpr char kContactSeconds[] = "palpate_contact_seconds";          // {scene, stage} histogram
inline constexpr char kMaxPenetration[] = "palpate_max_penetration_meters";   // {scene}
inline constexpr char kInvertedTets[] = "palpate_inverted_tets";              // {scene}
inline constexpr char kSceneDeviceBytes[] = "palpate_scene_device_bytes";     // {scene}
inline constexpr char kEdits[] = "palpate_edits_total";                       // {scene, kind}
inline constexpr char kEditsRefused[] = "palpate_edits_refused_total";        // {scene, kind} stopped by a budget of tets
inline constexpr char kEditSeconds[] = "palpate_edit_seconds";                // {scene} histogram: of a request, in the scene's thread
inline constexpr char kTetsRemoved[] = "palpate_tets_removed_total";          // {scene} by requests
inline constexpr char kTopologyVersion[] = "palpate_topology_version";        // {scene}
inline constexpr char kDeltas[] = "palpate_topology_deltas_total";            // {scene} sent
inline constexpr char kDeltaBytes[] = "palpate_topology_delta_bytes_total";   // {scene} sent
inline constexpr char kGapKeyframes[] = "palpate_topology_keyframes_total";   // {scene} sent in place of a delta
inline constexpr char kModelAge[] = "palpate_haptic_model_age_seconds";  // {scene} histogram: end of the step to hand-over to the network
inline constexpr char kModels[] = "palpate_haptic_models_total";         // {scene} sent
inline constexpr char kModelsDropped[] = "palpate_haptic_models_dropped_total";  // {scene} replaced by a newer one before they left
inline constexpr char kPoses[] = "palpate_haptic_poses_total";                   // {scene} received
inline constexpr char kFrames[] = "palpate_frames_total";                        // {scene} sent
inline constexpr char kFramesDropped[] = "palpate_frames_dropped_total";         // {scene}
inline constexpr char kStreamBytes[] = "palpate_stream_bytes_total";             // {kind}
inline constexpr char kStreams[] = "palpate_streams";                            // {kind} open now
inline constexpr char kScenes[] = "palpate_scenes";                              // {state}
inline constexpr char kRpcErrors[] = "palpate_rpc_errors_total";                 // {code}
inline constexpr char kDeviceBytes[] = "palpate_device_memory_bytes";
inline constexpr char kDevicePeakBytes[] = "palpate_device_memory_peak_bytes";
inline constexpr char kProgramsCompiled[] = "palpate_programs_compiled_total";
inline constexpr char kKernelSeconds[] = "palpate_kernel_seconds_total";    // {kernel}
inline constexpr char kKernelLaunches[] = "palpate_kernel_launches_total";  // {kernel}
inline constexpr char kBuildInfo[] = "palpate_build_info";                  // {version, commit, device, driver} = 1
inline constexpr char kConnections[] = "palpate_connections";
inline constexpr char kConnectionsTotal[] = "palpate_connections_total";  // fate: accepted, refused, evicted
inline constexpr char kWebConnections[] = "palpate_web_connections";
inline constexpr char kWebRequestsBad[] = "palpate_web_bad_requests_total";
}  // namespace metric

enum class StreamKind { kWatch, kOperate, kViewer };
inline constexpr std::array<std::string_view, 3> kStreamKindNames = {"watch", "operate", "viewer"};

/// Parts of the contact between and within bodies that are timed on their own.
inline constexpr std::array<std::string_view, 3> kContactStageNames = {"detect", "filter", "check"};

inline constexpr size_t kEditKindCount = std::variant_size_v<decltype(sim::Edit::what)>;

class Metrics;

/// The metrics of one scene. Methods may be called from any thread; they take only the short locks of single
/// histograms, never one that a whole scrape holds.
class SceneMetrics {
 public:
  ~SceneMetrics();
  SceneMetrics(const SceneMetrics&) = delete;
  SceneMetrics& operator=(const SceneMetrics&) = delete;

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
  void SetDeviceBytes(size_t bytes) { device_bytes_->Set(static_cast<double>(bytes)); }

 private:
  friend class Metrics;
  explicit SceneMetrics(Metrics& owner) : owner_(owner) {}

  Metrics& owner_;
  prometheus::Counter* steps_ = nullptr;
  prometheus::Histogram* step_seconds_ = nullptr;
  std::array<prometheus::Histogram*, sim::kStageNames.size()> stage_seconds_{};
  prometheus::Gauge* step_rate_ = nullptr;
  prometheus::Counter* overruns_ = nullptr;
  prometheus::Counter* skipped_ = nullptr;
  prometheus::Gauge* contacts_ = nullptr;
  prometheus::Gauge* surface_contacts_ = nullptr;
  prometheus::Gauge* surface_pairs_ = nullptr;
  prometheus::Gauge* truncated_ = nullptr;
  prometheus::Counter* intersections_ = nullptr;
  std::array<prometheus::Histogram*, kContactStageNames.size()> contact_seconds_{};
  prometheus::Gauge* max_penetration_ = nullptr;
  prometheus::Gauge* inverted_tets_ = nullptr;
  prometheus::Gauge* device_bytes_ = nullptr;
  prometheus::Histogram* model_age_ = nullptr;
  prometheus::Counter* models_ = nullptr;
  prometheus::Counter* models_dropped_ = nullptr;
  prometheus::Counter* poses_ = nullptr;
  prometheus::Counter* frames_ = nullptr;
  prometheus::Counter* frames_dropped_ = nullptr;
  std::array<prometheus::Counter*, kEditKindCount> edits_{};
  std::array<prometheus::Counter*, kEditKindCount> edits_refused_{};
  prometheus::Histogram* edit_seconds_ = nullptr;
  prometheus::Counter* tets_removed_ = nullptr;
  prometheus::Gauge* topology_version_ = nullptr;
  prometheus::Counter* deltas_ = nullptr;
  prometheus::Counter* delta_bytes_ = nullptr;
  prometheus::Counter* gap_keyframes_ = nullptr;
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
  friend class SceneMetrics;
  class DynamicCollector;

  std::unique_ptr<SceneMetrics> MakeScene(const std::string& scene_id);
  void ReleaseScene(const std::string& scene_id);

  prometheus::Registry registry_;
  std::shared_ptr<DynamicCollector> dynamic_;

  prometheus::Family<prometheus::Counter>& steps_;
  prometheus::Family<prometheus::Histogram>& step_seconds_;
  prometheus::Family<prometheus::Histogram>& stage_seconds_;
  prometheus::Family<prometheus::Gauge>& step_rate_;
  prometheus::Family<prometheus::Counter>& overruns_;
  prometheus::Family<prometheus::Counter>& skipped_;
  prometheus::Family<prometheus::Gauge>& contacts_;
  prometheus::Family<prometheus::Gauge>& surface_contacts_;
  prometheus::Family<prometheus::Gauge>& surface_pairs_;
  prometheus::Family<prometheus::Gauge>& truncated_;
  prometheus::Family<prometheus::Counter>& intersections_;
  prometheus::Family<prometheus::Histogram>& contact_seconds_;
  prometheus::Family<prometheus::Gauge>& max_penetration_;
  prometheus::Family<prometheus::Gauge>& inverted_tets_;
  prometheus::Family<prometheus::Gauge>& scene_device_bytes_;
  prometheus::Family<prometheus::Histogram>& model_age_;
  prometheus::Family<prometheus::Counter>& models_;
  prometheus::Family<prometheus::Counter>& models_dropped_;
  prometheus::Family<prometheus::Counter>& poses_;
  prometheus::Family<prometheus::Counter>& frames_;
  prometheus::Family<prometheus::Counter>& frames_dropped_;
  prometheus::Family<prometheus::Counter>& edits_;
  prometheus::Family<prometheus::Counter>& edits_refused_;
  prometheus::Family<prometheus::Histogram>& edit_seconds_;
  prometheus::Family<prometheus::Counter>& tets_removed_;
  prometheus::Family<prometheus::Gauge>& topology_version_;
  prometheus::Family<prometheus::Counter>& deltas_;
  prometheus::Family<prometheus::Counter>& delta_bytes_;
  prometheus::Family<prometheus::Counter>& gap_keyframes_;
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
