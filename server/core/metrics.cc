#include "server/core/metrics.h"

#include <prometheus/collectable.h>
#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>

#include <sstream>
#include <utility>

#include "server/core/build_info.h"
#include "sim/scene/edit_request.h"

namespace palpate::server {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;

const prometheus::Histogram::BucketBoundaries kStepBuckets = {0.0005, 0.001, 0.002, 0.004, 0.008, 0.016, 0.033,
                                                              0.066,  0.13,  0.26,  0.52,  1,     2};
const prometheus::Histogram::BucketBoundaries kStageBuckets = {0.0001, 0.00025, 0.0005, 0.001, 0.002, 0.004,
                                                               0.008,  0.016,   0.033,  0.1,   0.3,   1};
const prometheus::Histogram::BucketBoundaries kAgeBuckets = {0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5};

MetricFamily Family(const char* name, const char* help, MetricType type) {
  MetricFamily family;
  family.name = name;
  family.help = help;
  family.type = type;
  return family;
}

void AddValue(MetricFamily& family, std::vector<ClientMetric::Label> labels, double value) {
  ClientMetric metric;
  metric.label = std::move(labels);
  if (family.type == MetricType::Counter) {
    metric.counter.value = value;
  } else {
    metric.gauge.value = value;
  }
  family.metric.push_back(std::move(metric));
}

}  // namespace

/// What is asked for only when somebody reads the metrics.
class Metrics::DynamicCollector : public prometheus::Collectable {
 public:
  explicit DynamicCollector(std::shared_ptr<gpu::Context> context) : context_(std::move(context)) {}

  void SetSceneStates(SceneStates source) {
    const std::lock_guard lock(mutex_);
    scene_states_ = std::move(source);
  }
  void SetWebCounts(WebCounts source) {
    const std::lock_guard lock(mutex_);
    web_counts_ = std::move(source);
  }
  void SetConnectionCounts(ConnectionCounts source) {
    const std::lock_guard lock(mutex_);
    connection_counts_ = std::move(source);
  }

  std::vector<MetricFamily> Collect() const override {
    std::vector<MetricFamily> out;
    MetricFamily build = Family(metric::kBuildInfo, "Constant 1; the labels say what runs.", MetricType::Gauge);
    AddValue(build,
             {{"version", kVersion},
              {"commit", kBuildCommit},
              {"device", context_ ? context_->device().name : ""},
              {"driver", context_ ? context_->device().driver_version : ""}},
             1);
    out.push_back(std::move(build));
    if (context_) CollectDevice(out);
    const std::lock_guard lock(mutex_);
    if (scene_states_) {
      MetricFamily scenes = Family(metric::kScenes, "Scenes by state.", MetricType::Gauge);
      for (const auto& [state, count] : scene_states_()) AddValue(scenes, {{"state", state}}, count);
      out.push_back(std::move(scenes));
    }
    if (connection_counts_) {
      const Connections counts = connection_counts_();
      MetricFamily open = Family(metric::kConnections, "Connections to the gRPC port now.", MetricType::Gauge);
      AddValue(open, {}, counts.open);
      out.push_back(std::move(open));
      MetricFamily total = Family(metric::kConnectionsTotal, "Connections to the gRPC port, by what became of them.", MetricType::Counter);
      AddValue(total, {{"fate", "accepted"}}, static_cast<double>(counts.accepted));
      AddValue(total, {{"fate", "refused"}}, static_cast<double>(counts.refused));
      AddValue(total, {{"fate", "evicted"}}, static_cast<double>(counts.evicted));
      out.push_back(std::move(total));
    }
    if (web_counts_) {
      const auto [connections, bad_requests] = web_counts_();
      MetricFamily web = Family(metric::kWebConnections, "Browsers connected now.", MetricType::Gauge);
      AddValue(web, {}, connections);
      out.push_back(std::move(web));
      MetricFamily bad = Family(metric::kWebRequestsBad, "Messages of browsers that were no request.", MetricType::Counter);
      AddValue(bad, {}, bad_requests);
      out.push_back(std::move(bad));
    }
    return out;
  }

 private:
  void CollectDevice(std::vector<MetricFamily>& out) const {
    MetricFamily bytes = Family(metric::kDeviceBytes, "Device memory allocated now.", MetricType::Gauge);
    AddValue(bytes, {}, static_cast<double>(context_->allocated_bytes()));
    out.push_back(std::move(bytes));
    MetricFamily peak = Family(metric::kDevicePeakBytes, "Most device memory allocated so far.", MetricType::Gauge);
    AddValue(peak, {}, static_cast<double>(context_->peak_allocated_bytes()));
    out.push_back(std::move(peak));
    MetricFamily programs = Family(metric::kProgramsCompiled, "Device programs compiled, not found in a cache.", MetricType::Counter);
    AddValue(programs, {}, static_cast<double>(context_->programs_compiled()));
    out.push_back(std::move(programs));
    MetricFamily seconds = Family(metric::kKernelSeconds, "Device time by kernel.", MetricType::Counter);
    MetricFamily launches = Family(metric::kKernelLaunches, "Launches by kernel.", MetricType::Counter);
    for (const gpu::KernelTime& time : context_->KernelTimes()) {
      AddValue(seconds, {{"kernel", time.name}}, time.seconds);
      AddValue(launches, {{"kernel", time.name}}, static_cast<double>(time.launches));
    }
    out.push_back(std::move(seconds));
    out.push_back(std::move(launches));
  }

  std::shared_ptr<gpu::Context> context_;
  mutable std::mutex mutex_;
  SceneStates scene_states_;
  WebCounts web_counts_;
  ConnectionCounts connection_counts_;
};

namespace {

prometheus::Family<prometheus::Counter>& Counters(prometheus::Registry& registry, const char* name, const char* help) {
  return prometheus::BuildCounter().Name(name).Help(help).Register(registry);
}
prometheus::Family<prometheus::Gauge>& Gauges(prometheus::Registry& registry, const char* name, const char* help) {
  return prometheus::BuildGauge().Name(name).Help(help).Register(registry);
}
prometheus::Family<prometheus::Histogram>& Histograms(prometheus::Registry& registry, const char* name, const char* help) {
  return prometheus::BuildHistogram().Name(name).Help(help).Register(registry);
}

}  // namespace

Metrics::Metrics(std::shared_ptr<gpu::Context> context)
    : dynamic_(std::make_shared<DynamicCollector>(std::move(context))),
      steps_(Counters(registry_, metric::kSteps, "Steps done.")),
      step_seconds_(Histograms(registry_, metric::kStepSeconds, "Wall time of a step.")),
      stage_seconds_(Histograms(registry_, metric::kStageSeconds, "Wall time of a stage of a step.")),
      step_rate_(Gauges(registry_, metric::kStepRate, "Steps per second of wall time over the last second.")),
      overruns_(Counters(registry_, metric::kOverruns, "Steps that began late by more than one period.")),
      skipped_(Counters(registry_, metric::kSkipped, "Wall time that a scene gave up because it had fallen too far behind its schedule.")),
      contacts_(Gauges(registry_, metric::kContacts, "Contacts with tools and obstacles after the newest step.")),
      surface_contacts_(
          Gauges(registry_, metric::kSurfaceContacts, "Contacts between and within bodies that push, after the newest step.")),
      surface_pairs_(
          Gauges(registry_, metric::kSurfacePairs, "Pairs of elements of bodies within the detection range in the newest step.")),
      truncated_(Gauges(registry_, metric::kTruncated, "Vertices held back by their bound in the newest step.")),
      intersections_(Counters(registry_, metric::kIntersections, "Edges found through triangles after steps; needs check_intersections.")),
      contact_seconds_(Histograms(registry_, metric::kContactSeconds, "Wall time of the parts of contact between and within bodies.")),
      max_penetration_(Gauges(registry_, metric::kMaxPenetration, "Deepest contact after the newest step.")),
      inverted_tets_(Gauges(registry_, metric::kInvertedTets, "Inverted tetrahedra after the newest step.")),
      scene_device_bytes_(Gauges(registry_, metric::kSceneDeviceBytes, "Device memory held by a scene.")),
      model_age_(Histograms(registry_, metric::kModelAge, "Age of a local contact model when it leaves the server.")),
      models_(Counters(registry_, metric::kModels, "Local contact models sent to stations.")),
      models_dropped_(Counters(registry_, metric::kModelsDropped, "Local contact models replaced by newer ones before they left.")),
      poses_(Counters(registry_, metric::kPoses, "Tool poses received from stations.")),
      frames_(Counters(registry_, metric::kFrames, "Frames sent to readers.")),
      frames_dropped_(Counters(registry_, metric::kFramesDropped, "Frames that slow readers missed.")),
      edits_(Counters(registry_, metric::kEdits, "Edits performed by requests.")),
      edits_refused_(Counters(registry_, metric::kEditsRefused, "Edits of requests that a budget of tets stopped.")),
      edit_seconds_(Histograms(registry_, metric::kEditSeconds, "Wall time of the edits of a request.")),
      tets_removed_(Counters(registry_, metric::kTetsRemoved, "Tetrahedra removed by requests.")),
      topology_version_(Gauges(registry_, metric::kTopologyVersion, "Version of the topology.")),
      deltas_(Counters(registry_, metric::kDeltas, "Changes of the topology sent to readers.")),
      delta_bytes_(Counters(registry_, metric::kDeltaBytes, "Payload of the changes of the topology sent to readers.")),
      gap_keyframes_(Counters(registry_, metric::kGapKeyframes, "Keyframes sent in place of a change of the topology.")),
      rpc_errors_(Counters(registry_, metric::kRpcErrors, "Calls and streams that ended with an error, by canonical code.")) {
  auto& streams = Gauges(registry_, metric::kStreams, "Streams open now.");
  auto& bytes = Counters(registry_, metric::kStreamBytes, "Payload of stream messages sent.");
  for (size_t kind = 0; kind < kStreamKindNames.size(); ++kind) {
    streams_[kind] = &streams.Add({{"kind", std::string(kStreamKindNames[kind])}});
    stream_bytes_[kind] = &bytes.Add({{"kind", std::string(kStreamKindNames[kind])}});
  }
}

Metrics::~Metrics() = default;

std::shared_ptr<SceneMetrics> Metrics::AddScene(const std::string& scene_id) {
  const std::lock_guard lock(scenes_mutex_);
  SharedScene& shared = scenes_[scene_id];
  if (!shared.metrics) shared.metrics = MakeScene(scene_id);
  ++shared.holders;
  return {shared.metrics.get(), [this, scene_id](SceneMetrics*) { ReleaseScene(scene_id); }};
}

void Metrics::ReleaseScene(const std::string& scene_id) {
  const std::lock_guard lock(scenes_mutex_);
  const auto it = scenes_.find(scene_id);
  if (--it->second.holders == 0) scenes_.erase(it);
}

std::unique_ptr<SceneMetrics> Metrics::MakeScene(const std::string& scene_id) {
  const prometheus::Labels labels = {{"scene", scene_id}};
  std::unique_ptr<SceneMetrics> scene(new SceneMetrics(*this));
  scene->steps_ = &steps_.Add(labels);
  scene->step_seconds_ = &step_seconds_.Add(labels, kStepBuckets);
  for (size_t i = 0; i < sim::kStageNames.size(); ++i) {
    scene->stage_seconds_[i] = &stage_seconds_.Add({{"scene", scene_id}, {"stage", std::string(sim::kStageNames[i])}}, kStageBuckets);
  }
  scene->step_rate_ = &step_rate_.Add(labels);
  scene->overruns_ = &overruns_.Add(labels);
  scene->skipped_ = &skipped_.Add(labels);
  scene->contacts_ = &contacts_.Add(labels);
  scene->surface_contacts_ = &surface_contacts_.Add(labels);
  scene->surface_pairs_ = &surface_pairs_.Add(labels);
  scene->truncated_ = &truncated_.Add(labels);
  scene->intersections_ = &intersections_.Add(labels);
  for (size_t i = 0; i < kContactStageNames.size(); ++i) {
    scene->contact_seconds_[i] = &contact_seconds_.Add({{"scene", scene_id}, {"stage", std::string(kContactStageNames[i])}}, kStageBuckets);
  }
  scene->max_penetration_ = &max_penetration_.Add(labels);
  scene->inverted_tets_ = &inverted_tets_.Add(labels);
  scene->device_bytes_ = &scene_device_bytes_.Add(labels);
  scene->model_age_ = &model_age_.Add(labels, kAgeBuckets);
  scene->models_ = &models_.Add(labels);
  scene->models_dropped_ = &models_dropped_.Add(labels);
  scene->poses_ = &poses_.Add(labels);
  scene->frames_ = &frames_.Add(labels);
  scene->frames_dropped_ = &frames_dropped_.Add(labels);
  for (size_t i = 0; i < kEditKindCount; ++i) {
    const prometheus::Labels of_kind = {{"scene", scene_id}, {"kind", std::string(scene::kEditKindNames[i])}};
    scene->edits_[i] = &edits_.Add(of_kind);
    scene->edits_refused_[i] = &edits_refused_.Add(of_kind);
  }
  scene->edit_seconds_ = &edit_seconds_.Add(labels, kStageBuckets);
  scene->tets_removed_ = &tets_removed_.Add(labels);
  scene->topology_version_ = &topology_version_.Add(labels);
  scene->deltas_ = &deltas_.Add(labels);
  scene->delta_bytes_ = &delta_bytes_.Add(labels);
  scene->gap_keyframes_ = &gap_keyframes_.Add(labels);
  return scene;
}

SceneMetrics::~SceneMetrics() {
  owner_.steps_.Remove(steps_);
  owner_.step_seconds_.Remove(step_seconds_);
  for (prometheus::Histogram* stage : stage_seconds_) owner_.stage_seconds_.Remove(stage);
  owner_.step_rate_.Remove(step_rate_);
  owner_.overruns_.Remove(overruns_);
  owner_.skipped_.Remove(skipped_);
  owner_.contacts_.Remove(contacts_);
  owner_.surface_contacts_.Remove(surface_contacts_);
  owner_.surface_pairs_.Remove(surface_pairs_);
  owner_.truncated_.Remove(truncated_);
  owner_.intersections_.Remove(intersections_);
  for (prometheus::Histogram* stage : contact_seconds_) owner_.contact_seconds_.Remove(stage);
  owner_.max_penetration_.Remove(max_penetration_);
  owner_.inverted_tets_.Remove(inverted_tets_);
  owner_.scene_device_bytes_.Remove(device_bytes_);
  owner_.model_age_.Remove(model_age_);
  owner_.models_.Remove(models_);
  owner_.models_dropped_.Remove(models_dropped_);
  owner_.poses_.Remove(poses_);
  owner_.frames_.Remove(frames_);
  owner_.frames_dropped_.Remove(frames_dropped_);
  for (prometheus::Counter* edits : edits_) owner_.edits_.Remove(edits);
  for (prometheus::Counter* refused : edits_refused_) owner_.edits_refused_.Remove(refused);
  owner_.edit_seconds_.Remove(edit_seconds_);
  owner_.tets_removed_.Remove(tets_removed_);
  owner_.topology_version_.Remove(topology_version_);
  owner_.deltas_.Remove(deltas_);
  owner_.delta_bytes_.Remove(delta_bytes_);
  owner_.gap_keyframes_.Remove(gap_keyframes_);
}

void SceneMetrics::OnStep(const sim::Frame& frame, double steps_per_s) {
  steps_->Increment();
  step_seconds_->Observe(frame.step_ms * 1e-3);
  for (size_t i = 0; i < stage_seconds_.size(); ++i) stage_seconds_[i]->Observe(frame.stage_ms[i] * 1e-3);
  step_rate_->Set(steps_per_s);
  contacts_->Set(static_cast<double>(frame.contacts.size()));
  const sim::FrameContactStatistics& contact = frame.contact_statistics;
  surface_contacts_->Set(contact.acting_count);
  surface_pairs_->Set(contact.contact_count);
  truncated_->Set(contact.truncated_vertices);
  intersections_->Increment(contact.intersection_count);
  const std::array<double, kContactStageNames.size()> parts_ms = {contact.detect_ms, contact.filter_ms, contact.check_ms};
  for (size_t i = 0; i < parts_ms.size(); ++i) contact_seconds_[i]->Observe(parts_ms[i] * 1e-3);
  max_penetration_->Set(frame.max_penetration_m);
  inverted_tets_->Set(frame.inverted_tets);
}

void SceneMetrics::OnEdits(std::span<const sim::Edit> edits, std::span<const sim::EditOutcome> outcomes, double seconds) {
  for (size_t i = 0; i < edits.size(); ++i) {
    const size_t kind = edits[i].what.index();
    edits_[kind]->Increment();
    if (outcomes[i].is_refused) edits_refused_[kind]->Increment();
    tets_removed_->Increment(static_cast<double>(outcomes[i].removed_tets.size()));
  }
  edit_seconds_->Observe(seconds);
}

void SceneMetrics::OnDeltaSent(size_t bytes) {
  deltas_->Increment();
  delta_bytes_->Increment(static_cast<double>(bytes));
}

void SceneMetrics::OnModelSent(double age_s) {
  models_->Increment();
  model_age_->Observe(age_s);
}

void Metrics::OnRpcError(absl::StatusCode code) { rpc_errors_.Add({{"code", absl::StatusCodeToString(code)}}).Increment(); }

void Metrics::SetSceneStates(SceneStates source) { dynamic_->SetSceneStates(std::move(source)); }
void Metrics::SetConnectionCounts(ConnectionCounts source) { dynamic_->SetConnectionCounts(std::move(source)); }
void Metrics::SetWebCounts(WebCounts source) { dynamic_->SetWebCounts(std::move(source)); }

std::string Metrics::Text() const {
  std::vector<MetricFamily> families = registry_.Collect();
  for (MetricFamily& family : dynamic_->Collect()) families.push_back(std::move(family));
  std::ostringstream out;
  prometheus::TextSerializer().Serialize(out, families);
  return out.str();
}

}  // namespace palpate::server
