// Edits of a running scene: checked, performed between steps, answered when they are kept. The rest of Scene is in scene.cc.
#include <iterator>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gpu/base/status.h"
#include "server/core/scene.h"
#include "sim/scene/edit_request.h"

namespace palpate::server {
namespace {

constexpr std::chrono::milliseconds kFastEditTime{10};  ///< for edits between two steps of a scene that does not wait for the clock

}  // namespace

void Scene::Edit(const v1::EditSceneRequest& request, std::function<bool()> is_cancelled, Done<v1::EditSceneResponse> done) {
  if (is_replay()) return Answer<v1::EditSceneResponse>(std::move(done), ReplayRefuses("edits"));
  if (absl::Status status = scene::ValidateEditRequest(request); !status.ok())
    return Answer<v1::EditSceneResponse>(std::move(done), status);
  const size_t size_bytes = request.ByteSizeLong();
  auto job = std::make_shared<EditJob>();
  job->request = std::make_shared<const v1::EditSceneRequest>(request);
  job->is_cancelled = std::move(is_cancelled);
  job->done = done;
  Enqueue([this, job] { BeginEdits(std::move(*job)); },
          [this, done](const absl::Status& reason) { Answer<v1::EditSceneResponse>(done, reason); }, CommandKind::kEdit, size_bytes);
}

void Scene::BeginEdits(EditJob job) {
  if (job.is_cancelled && job.is_cancelled()) {
    return Answer<v1::EditSceneResponse>(std::move(job.done), absl::CancelledError("cancelled before the first edit"));
  }
  absl::StatusOr<std::optional<v1::EditSceneResponse>> known = edit_log_.Find(*job.request);
  if (!known.ok()) return Answer<v1::EditSceneResponse>(std::move(job.done), known.status());
  if (known->has_value()) {
    (*known)->set_is_repeat(true);
    return AnswerWhenDurable(std::move(job.done), **std::move(known));
  }
  if (absl::Status status = past_.CheckEdits(*job.request); !status.ok()) {
    return Answer<v1::EditSceneResponse>(std::move(job.done), status);
  }
  // What could be lost is not begun.
  if (absl::Status health = past_.Health(); !health.ok()) {
    NoteKept();
    if (past_.IsStateDue()) TakeState();  // a paused scene makes no step that would
    return Answer<v1::EditSceneResponse>(std::move(job.done), health);
  }
  absl::StatusOr<std::vector<sim::Edit>> edits = CheckedEdits(*job.request);
  if (!edits.ok()) return Answer<v1::EditSceneResponse>(std::move(job.done), edits.status());
  job.edits = *std::move(edits);
  edit_job_ = std::move(job);
  GoOnWithEdits();
}

absl::StatusOr<std::vector<sim::Edit>> Scene::CheckedEdits(const v1::EditSceneRequest& request) const {
  if (state_ == v1::RUN_STATE_FAILED) return NeedsReset();
  if (request.has_expected_topology_version() && request.expected_topology_version() != topology_->version) {
    return absl::FailedPreconditionError(absl::StrCat("expected_topology_version: ", request.expected_topology_version(),
                                                      ", but the scene is at version ", topology_->version));
  }
  return scene::BuildEdits(request, record::EditTargetsOf(*world_));
}

/// As many edits of the request as fit between two steps, at least one. A scene that is stepped by request has all the time, so that what
/// it computes does not depend on the machine.
void Scene::GoOnWithEdits() {
  EditJob& job = *edit_job_;
  const Clock::time_point start = Clock::now();
  const bool has_deadline = state_ == v1::RUN_STATE_PLAYING;
  const Clock::time_point end = start + (rate_.mode() == v1::RATE_MODE_REAL_TIME ? Period() : kFastEditTime);
  const auto is_cancelled = [&job] { return job.is_cancelled && job.is_cancelled(); };
  const auto is_enough = [&] { return stopping_ || is_cancelled() || (has_deadline && Clock::now() >= end); };
  absl::StatusOr<std::vector<sim::EditOutcome>> outcomes = world_->Apply(std::span(job.edits).subspan(job.outcomes.size()), is_enough);
  job.elapsed_s += std::chrono::duration<double>(Clock::now() - start).count();
  if (!outcomes.ok()) {
    EndEdits(outcomes.status());
    if (world_->has_failed()) Fail(outcomes.status());
    return;
  }
  frame_ = world_->CurrentFrame();
  past_.OnEdits(job.outcomes.empty() ? job.request.get() : nullptr, job.outcomes.size(), outcomes->size(), *frame_);
  std::move(outcomes->begin(), outcomes->end(), std::back_inserter(job.outcomes));
  UpdateBodies();  // masses may change with a material
  Publish();
  EnsureVolume();
  if (job.outcomes.size() == job.edits.size()) {
    EndEdits(absl::OkStatus());
    if (past_.IsStateDue()) TakeState();  // a paused scene may be edited for ever
  } else if (is_cancelled()) {
    EndEdits(absl::CancelledError("cancelled"));
  }
}

/// Answers the request that is under way, if there is one, and remembers what was done of it.
void Scene::EndEdits(const absl::Status& status) {
  if (!edit_job_) return;
  EditJob job = *std::move(edit_job_);
  edit_job_.reset();
  v1::EditSceneResponse response;
  response.set_topology_version(topology_->version);
  response.set_step(frame_->step);
  response.set_left_out_count(static_cast<uint32_t>(job.edits.size() - job.outcomes.size()));
  std::vector<std::string> names;
  for (const auto& body : topology_->world->bodies) names.push_back(body->name);
  job.edits.resize(job.outcomes.size());
  scene::EncodeOutcomes(job.edits, job.outcomes, names, topology_->statics->markers, response);
  if (status.ok() || !job.outcomes.empty()) {
    edit_log_.Remember(*job.request, response);
    past_.OnEditEnd(job.outcomes.empty() ? job.request.get() : nullptr, response, status);
    metrics_->OnEdits(job.edits, job.outcomes, job.elapsed_s);
  }
  if (status.ok()) return AnswerWhenDurable(std::move(job.done), std::move(response));
  if (job.outcomes.empty()) return Answer<v1::EditSceneResponse>(std::move(job.done), status);
  AnswerWhenDurable(std::move(job.done), absl::Status(status.code(), absl::StrCat(status.message(), " (after ", job.outcomes.size(), " of ",
                                                                                  job.request->edits_size(), " edits, which stay)")));
}

/// An edit that was answered is never lost, nor one that an error tells of.
void Scene::AnswerWhenDurable(Done<v1::EditSceneResponse> done, absl::StatusOr<v1::EditSceneResponse> result) {
  past_.WhenDurable([&pool = pool_, done = std::move(done), result = std::move(result)](const absl::Status& status) mutable {
    if (!done) return;
    if (!status.ok()) {
      result = absl::Status(status.code(), absl::StrCat("the edits were performed, but are not kept: ", status.message()));
    }
    pool.Post([done = std::move(done), result = std::move(result)]() mutable { done(std::move(result)); });
  });
}

}  // namespace palpate::server
