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
    MetricFamily build = Family("palpate_build_info", "Constant 1; the labels say what runs.", MetricType::Gauge);
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
      MetricFamily scenes = Family("palpate_scenes", "Scenes by state.", MetricType::Gauge);
      for (const auto& [state, count] : scene_states_()) AddValue(scenes, {{"state", state}}, count);
      out.push_back(std::move(scenes));
    }
    if (connection_counts_) {
      const Connections counts = connection_counts_();
      MetricFamily open = Family("palpate_connections", "Connections to the gRPC port now.", MetricType::Gauge);
      AddValue(open, {}, counts.open);
      out.push_back(std::move(open));
      MetricFamily total =
          Family("palpate_connections_total", "Connections to the gRPC port, by what became of them.", MetricType::Counter);
      AddValue(total, {{"fate", "accepted"}}, static_cast<double>(counts.accepted));
      AddValue(total, {{"fate", "refused"}}, static_cast<double>(counts.refused));
      AddValue(total, {{"fate", "evicted"}}, static_cast<double>(counts.evicted));
      out.push_back(std::move(total));
    }
    if (web_counts_) {
      const auto [connections, bad_requests] = web_counts_();
      MetricFamily web = Family("palpate_web_connections", "Browsers connected now.", MetricType::Gauge);
      AddValue(web, {}, connections);
      out.push_back(std::move(web));
      MetricFamily bad = Family("palpate_web_bad_requests_total", "Messages of browsers that were no request.", MetricType::Counter);
      AddValue(bad, {}, bad_requests);
      out.push_back(std::move(bad));
    }
    return out;
  }

 private:
  void CollectDevice(std::vector<MetricFamily>& out) const {
    MetricFamily bytes = Family("palpate_device_memory_bytes", "Device memory allocated now.", MetricType::Gauge);
    AddValue(bytes, {}, static_cast<double>(context_->allocated_bytes()));
    out.push_back(std::move(bytes));
    MetricFamily peak = Family("palpate_device_memory_peak_bytes", "Most device memory allocated so far.", MetricType::Gauge);
    AddValue(peak, {}, static_cast<double>(context_->peak_allocated_bytes()));
    out.push_back(std::move(peak));
    MetricFamily programs =
        Family("palpate_programs_compiled_total", "Device programs compiled, not found in a cache.", MetricType::Counter);
    AddValue(programs, {}, static_cast<double>(context_->programs_compiled()));
    out.push_back(std::move(programs));
    MetricFamily seconds = Family("palpate_kernel_seconds_total", "Device time by kernel.", MetricType::Counter);
    MetricFamily launches = Family("palpate_kernel_launches_total", "Launches by kernel.", MetricType::Counter);
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

Metrics::Metrics(std::shared_ptr<gpu::Context> context)
    : dynamic_(std::make_shared<DynamicCollector>(std::move(context))),
      scene_families_(registry_),
      rpc_errors_(RegisterFamily<prometheus::Counter>(registry_, "palpate_rpc_errors_total",
                                                      "Calls and streams that ended with an error, by canonical code.")) {
  auto& streams = RegisterFamily<prometheus::Gauge>(registry_, "palpate_streams", "Streams open now.");
  auto& bytes = RegisterFamily<prometheus::Counter>(registry_, "palpate_stream_bytes_total", "Payload of stream messages sent.");
  for (size_t kind = 0; kind < kStreamKindNames.size(); ++kind) {
    streams_[kind] = &streams.Add({{"kind", std::string(kStreamKindNames[kind])}});
    stream_bytes_[kind] = &bytes.Add({{"kind", std::string(kStreamKindNames[kind])}});
  }
}

Metrics::~Metrics() = default;

std::shared_ptr<SceneMetrics> Metrics::AddScene(const std::string& scene_id) {
  const std::lock_guard lock(scenes_mutex_);
  SharedScene& shared = scenes_[scene_id];
  if (!shared.metrics) shared.metrics = std::make_unique<SceneMetrics>(scene_families_, scene_id);
  ++shared.holders;
  return {shared.metrics.get(), [this, scene_id](SceneMetrics*) { ReleaseScene(scene_id); }};
}

void Metrics::ReleaseScene(const std::string& scene_id) {
  const std::lock_guard lock(scenes_mutex_);
  const auto it = scenes_.find(scene_id);
  if (--it->second.holders == 0) scenes_.erase(it);
}

void SceneMetrics::OnStep(const sim::Frame& frame, double steps_per_s) {
  steps_->Increment();
  step_seconds_->Observe(frame.step_ms * 1e-3);
  for (size_t i = 0; i < stage_seconds_.size(); ++i) stage_seconds_[i].Observe(frame.stage_ms[i] * 1e-3);
  step_rate_->Set(steps_per_s);
  contacts_->Set(static_cast<double>(frame.contacts.size()));
  const sim::FrameContactStatistics& contact = frame.contact_statistics;
  surface_contacts_->Set(contact.acting_count);
  surface_pairs_->Set(contact.contact_count);
  truncated_->Set(contact.truncated_vertices);
  intersections_->Increment(contact.intersection_count);
  self_searches_->Increment(contact.self_searches);
  listed_searches_->Increment(contact.listed_searches);
  renewed_lists_->Increment(contact.renewed_lists);
  const std::array<double, kContactStageNames.size()> parts_ms = {contact.detect_ms, contact.filter_ms, contact.check_ms};
  for (size_t i = 0; i < parts_ms.size(); ++i) contact_seconds_[i].Observe(parts_ms[i] * 1e-3);
  max_penetration_->Set(frame.max_penetration_m);
  inverted_tets_->Set(frame.inverted_tets);
}

void SceneMetrics::OnEdits(std::span<const sim::Edit> edits, std::span<const sim::EditOutcome> outcomes, double seconds) {
  for (size_t i = 0; i < edits.size(); ++i) {
    const size_t kind = edits[i].what.index();
    edits_[kind].Increment();
    if (outcomes[i].is_refused) edits_refused_[kind].Increment();
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
