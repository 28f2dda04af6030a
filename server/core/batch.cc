#include "server/core/batch.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <numeric>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "gpu/base/status.h"
#include "sim/scene/edit_request.h"

namespace palpate::server {
namespace {

constexpr std::chrono::milliseconds kSlice{20};  ///< of one environment, before others have their turn
constexpr uint32_t kMaxSteps = 100000;
constexpr int kMaxProbePaths = 256;

absl::Status Cancelled() { return absl::CancelledError("the batch was given up"); }

/// Behind a field path.
absl::Status Below(const std::string& path, const absl::Status& status) {
  return absl::Status(status.code(), absl::StrCat(path, ".", status.message()));
}

}  // namespace

absl::Status BatchBudget::Take(uint32_t count) {
  uint32_t used = used_.load();
  do {
    if (used + count > kMaxBatchEnvironments) {
      return absl::ResourceExhaustedError(
          absl::StrCat("open.count: ", count, " environments beside ", used, " others; the server has at most ", kMaxBatchEnvironments));
    }
  } while (!used_.compare_exchange_weak(used, used + count));
  return absl::OkStatus();
}

struct Batch::Task {
  std::function<bool(size_t)> job;
  std::function<void()> then;
  std::atomic<size_t> left{0};
};

Batch::~Batch() {
  // The newest first: PoCL looks for the kernels that go in lists that begin with the newest.
  while (!environments_.empty()) environments_.pop_back();
  if (options_.budget != nullptr) options_.budget->Return(taken_);
}

void Batch::ForEach(size_t count, std::function<bool(size_t)> job, std::function<void()> then) {
  if (count == 0) return then();
  auto task = std::make_shared<Task>();
  task->job = std::move(job);
  task->then = std::move(then);
  task->left = count;
  for (size_t i = 0; i < count; ++i) options_.pool->Post([self = shared_from_this(), task, i] { self->RunSlice(task, i); });
}

void Batch::RunSlice(const std::shared_ptr<Task>& task, size_t index) {
  if (!task->job(index)) {
    options_.pool->Post([self = shared_from_this(), task, index] { self->RunSlice(task, index); });
  } else if (task->left.fetch_sub(1) == 1) {
    task->then();
  }
}

void Batch::Handle(const v1::BatchRequest& request, Done<v1::BatchResponse> done) {
  options_.pool->Post([self = shared_from_this(), &request, done = std::move(done)] {
    if (self->is_cancelled_) return done(Cancelled());
    const bool is_open = !self->environments_.empty();
    switch (request.request_case()) {
      case v1::BatchRequest::kOpen:
        if (is_open) return done(absl::InvalidArgumentError("open: this batch is open already"));
        return self->Open(request.open(), done);
      case v1::BatchRequest::kStep:
      case v1::BatchRequest::kReset:
        if (!is_open) return done(absl::InvalidArgumentError("request: the first request must carry `open`"));
        return request.has_step() ? self->Step(request.step(), done) : self->Reset(request.reset(), done);
      case v1::BatchRequest::REQUEST_NOT_SET:
        break;
    }
    done(absl::InvalidArgumentError("request: neither `open` nor `step` nor `reset` is given"));
  });
}

absl::Status Batch::Prepare(const v1::BatchOpen& open) {
  if (open.count() < 1 || open.count() > kMaxBatchEnvironments) {
    return absl::InvalidArgumentError(absl::StrCat("open.count: ", open.count(), " is outside [1, ", kMaxBatchEnvironments, "]"));
  }
  if (open.probes_size() > kMaxProbePaths) {
    return absl::InvalidArgumentError(absl::StrCat("open.probes: ", open.probes_size(), " are outside [0, ", kMaxProbePaths, "]"));
  }
  PALPATE_ASSIGN_OR_RETURN(description_, scene::BuildSceneDescription(open.spec(), *options_.assets, options_.limits));
  const std::vector<std::string> paths(open.probes().begin(), open.probes().end());
  PALPATE_ASSIGN_OR_RETURN(const sim::ProbeSet probes, sim::ProbeSet::Parse(paths, description_));
  uint64_t tets = 0;
  for (const sim::BodyDescription& body : description_.bodies) tets += body.mesh.tets.size();
  if (tets * open.count() > options_.limits.max_tets_per_scene) {
    return absl::ResourceExhaustedError(absl::StrCat("open.count: ", open.count(), " environments of ", tets,
                                                     " tets exceed max_tets_per_scene = ", options_.limits.max_tets_per_scene));
  }
  PALPATE_RETURN_IF_ERROR(options_.budget->Take(open.count()));
  taken_ = open.count();
  environments_.resize(open.count());
  for (Environment& environment : environments_) {
    environment.probes = probes;
    environment.commands.resize(description_.tools.size());
  }
  return absl::OkStatus();
}

void Batch::Open(const v1::BatchOpen& open, const Done<v1::BatchResponse>& done) {
  if (const absl::Status status = Prepare(open); !status.ok()) return done(status);
  const auto create = [this](size_t i) {
    if (is_cancelled_) return true;
    absl::StatusOr<std::unique_ptr<sim::World>> world = sim::World::Create(options_.context, description_);
    environments_[i].error = world.status();
    if (world.ok()) environments_[i].world = *std::move(world);
    return true;
  };
  ForEach(environments_.size(), create, [this, done] {
    if (is_cancelled_) return done(Cancelled());
    for (const Environment& environment : environments_) {
      if (!environment.error.ok()) return done(environment.error);
    }
    v1::BatchResponse response;
    v1::BatchOpened& opened = *response.mutable_opened();
    opened.set_count(static_cast<uint32_t>(environments_.size()));
    for (const sim::ProbeColumn& column : environments_.front().probes.columns()) {
      opened.add_columns(column.name);
      opened.add_units(column.unit);
    }
    for (const sim::ToolDescription& tool : description_.tools) opened.add_tools(tool.name);
    opened.set_dt_s(description_.dt_s);
    std::vector<uint32_t> all(environments_.size());
    std::iota(all.begin(), all.end(), 0U);
    *opened.mutable_result() = ResultOf(all);
    done(std::move(response));
  });
}

absl::Status Batch::PlanTools(const v1::BatchAction& action, const std::string& path, Work& work) const {
  for (int t = 0; t < action.tools_size(); ++t) {
    const v1::BatchToolCommand& command = action.tools(t);
    const std::string at = absl::StrCat(path, ".tools[", t, "]");
    const uint32_t tool = command.tool_index();
    if (tool >= description_.tools.size()) {
      return absl::InvalidArgumentError(absl::StrCat(at, ".tool_index: ", tool, " is outside [0, ", description_.tools.size(), ")"));
    }
    if (command.release()) {
      work.commands.emplace_back(tool, std::nullopt);
      continue;
    }
    if (!command.has_pose()) return absl::InvalidArgumentError(absl::StrCat(at, ": neither `pose` nor `release` is given"));
    PALPATE_ASSIGN_OR_RETURN(sim::ToolCommand wanted, CommandFromPose(command.pose(), description_.tools[tool], absl::StrCat(at, ".pose")));
    work.commands.emplace_back(tool, wanted);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Batch::Work>> Batch::Plan(const v1::BatchStep& step) const {
  if (step.steps() < 1 || step.steps() > kMaxSteps) {
    return absl::InvalidArgumentError(absl::StrCat("step.steps: ", step.steps(), " is outside [1, ", kMaxSteps, "]"));
  }
  constexpr size_t kUnnamed = std::numeric_limits<size_t>::max();
  std::vector<size_t> places(environments_.size(), kUnnamed);
  std::vector<Work> named;
  for (int a = 0; a < step.actions_size(); ++a) {
    const v1::BatchAction& action = step.actions(a);
    const std::string path = absl::StrCat("step.actions[", a, "]");
    if (action.environment() >= environments_.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ".environment: ", action.environment(), " is outside [0, ", environments_.size(), ")"));
    }
    if (places[action.environment()] != kUnnamed) {
      return absl::InvalidArgumentError(absl::StrCat(path, ".environment: ", action.environment(), " is named twice"));
    }
    places[action.environment()] = named.size();
    Work& work = named.emplace_back(Work{action.environment(), &action});
    PALPATE_RETURN_IF_ERROR(PlanTools(action, path, work));
    if (action.edits_size() == 0) continue;
    v1::EditSceneRequest edits;
    *edits.mutable_edits() = action.edits();
    if (const absl::Status status = scene::ValidateEditRequest(edits); !status.ok()) return Below(path, status);
  }
  std::vector<Work> out;
  if (step.only_named()) {
    out = std::move(named);
  } else {
    for (uint32_t e = 0; e < environments_.size(); ++e) {
      out.push_back(places[e] == kUnnamed ? Work{e} : std::move(named[places[e]]));
    }
  }
  for (Work& work : out) work.steps_left = step.steps();
  return out;
}

absl::Status Batch::Apply(const v1::EditSceneRequest& edits, Environment& environment) {
  scene::EditTargets targets;
  const std::shared_ptr<const sim::Frame> frame = environment.world->CurrentFrame();
  for (size_t b = 0; b < frame->topology->bodies.size(); ++b) {
    targets.bodies.push_back(frame->topology->bodies[b]->name);
    targets.materials.push_back(environment.world->MaterialsOf(b));
  }
  for (const sim::ToolDescription& tool : environment.world->description().tools) targets.tools.push_back(tool.name);
  PALPATE_ASSIGN_OR_RETURN(const std::vector<sim::Edit> built, scene::BuildEdits(edits, std::move(targets)));
  return environment.world->Apply(built).status();
}

bool Batch::Advance(Work& work, Environment& environment) const {
  const auto begin = std::chrono::steady_clock::now();
  if (!work.has_begun) {
    work.has_begun = true;
    environment.error = absl::OkStatus();
    if (environment.world->has_failed()) {
      environment.error = absl::FailedPreconditionError("the environment has failed and needs a reset");
      return true;
    }
    for (const auto& [tool, command] : work.commands) environment.commands[tool] = command;
    if (work.action != nullptr && work.action->edits_size() > 0) {
      v1::EditSceneRequest edits;
      *edits.mutable_edits() = work.action->edits();
      environment.error = Apply(edits, environment);
      if (!environment.error.ok()) return true;
    }
  }
  std::vector<const sim::ToolCommand*> commands;
  for (const std::optional<sim::ToolCommand>& command : environment.commands) commands.push_back(command ? &*command : nullptr);
  while (work.steps_left > 0 && !is_cancelled_) {
    environment.error = environment.world->Step(commands).status();
    if (!environment.error.ok()) return true;
    --work.steps_left;
    if (std::chrono::steady_clock::now() - begin > kSlice) break;
  }
  return work.steps_left == 0 || is_cancelled_;
}

void Batch::Step(const v1::BatchStep& step, const Done<v1::BatchResponse>& done) {
  absl::StatusOr<std::vector<Work>> plan = Plan(step);
  if (!plan.ok()) return done(plan.status());
  auto works = std::make_shared<std::vector<Work>>(*std::move(plan));
  ForEach(
      works->size(), [this, works](size_t i) { return Advance((*works)[i], environments_[(*works)[i].environment]); },
      [this, works, done] {
        if (is_cancelled_) return done(Cancelled());
        std::vector<uint32_t> stepped;
        for (const Work& work : *works) stepped.push_back(work.environment);
        v1::BatchResponse response;
        *response.mutable_result() = ResultOf(stepped);
        done(std::move(response));
      });
}

absl::StatusOr<std::vector<uint32_t>> Batch::Resettable(const v1::BatchReset& reset) const {
  std::vector<uint32_t> out(reset.environments().begin(), reset.environments().end());
  std::vector<bool> is_named(environments_.size(), false);
  for (size_t i = 0; i < out.size(); ++i) {
    const std::string path = absl::StrCat("reset.environments[", i, "]");
    if (out[i] >= environments_.size()) {
      return absl::InvalidArgumentError(absl::StrCat(path, ": ", out[i], " is outside [0, ", environments_.size(), ")"));
    }
    if (is_named[out[i]]) return absl::InvalidArgumentError(absl::StrCat(path, ": ", out[i], " is named twice"));
    is_named[out[i]] = true;
  }
  if (out.empty()) {
    out.resize(environments_.size());
    std::iota(out.begin(), out.end(), 0U);
  }
  return out;
}

absl::StatusOr<v1::EditSceneRequest> Batch::MaterialEdits(const v1::BatchReset& reset) const {
  const std::string& body = reset.body().empty() ? description_.bodies.front().name : reset.body();
  const auto is_named = [&body](const sim::BodyDescription& known) { return known.name == body; };
  if (std::none_of(description_.bodies.begin(), description_.bodies.end(), is_named)) {
    return absl::InvalidArgumentError(absl::StrCat("reset.body: the scene has no body \"", body, "\""));
  }
  v1::EditSceneRequest out;
  for (int m = 0; m < reset.materials_size(); ++m) {
    v1::EditSceneRequest one;
    v1::Edit& edit = *one.add_edits();
    edit.set_body(body);
    *edit.mutable_material() = reset.materials(m);
    if (const absl::Status status = scene::ValidateEditRequest(one); !status.ok()) {
      // The path is that of the edit, which the request does not have.
      return absl::Status(status.code(),
                          absl::StrCat("reset.materials[", m, "].", absl::StripPrefix(status.message(), "edits[0].material.")));
    }
    *out.add_edits() = std::move(edit);
  }
  if (out.edits_size() > 0) {
    if (const absl::Status status = scene::ValidateEditRequest(out); !status.ok()) return Below("reset.materials", status);
  }
  return out;
}

void Batch::Reset(const v1::BatchReset& reset, const Done<v1::BatchResponse>& done) {
  absl::StatusOr<std::vector<uint32_t>> named = Resettable(reset);
  if (!named.ok()) return done(named.status());
  absl::StatusOr<v1::EditSceneRequest> built = MaterialEdits(reset);
  if (!built.ok()) return done(built.status());
  const auto edits = std::make_shared<const v1::EditSceneRequest>(*std::move(built));
  auto environments = std::make_shared<std::vector<uint32_t>>(*std::move(named));
  const auto job = [this, environments, edits](size_t i) {
    Environment& environment = environments_[(*environments)[i]];
    environment.commands.assign(description_.tools.size(), std::nullopt);
    environment.error = environment.world->Reset().status();
    if (environment.error.ok() && edits->edits_size() > 0) environment.error = Apply(*edits, environment);
    return true;
  };
  ForEach(environments->size(), job, [this, environments, done] {
    if (is_cancelled_) return done(Cancelled());
    v1::BatchResponse response;
    *response.mutable_result() = ResultOf(*environments);
    done(std::move(response));
  });
}

v1::BatchResult Batch::ResultOf(const std::vector<uint32_t>& environments) {
  v1::BatchResult out;
  const size_t column_count = environments_.front().probes.columns().size();
  out.mutable_observations()->Resize(static_cast<int>(environments.size() * column_count), std::numeric_limits<double>::quiet_NaN());
  for (size_t i = 0; i < environments.size(); ++i) {
    Environment& environment = environments_[environments[i]];
    const std::shared_ptr<const sim::Frame> frame = environment.world->CurrentFrame();
    environment.probes.Evaluate(*frame, std::span(out.mutable_observations()->mutable_data() + i * column_count, column_count),
                                environment.world.get());
    out.add_environments(environments[i]);
    out.add_state_hashes(frame->state_hash);
    out.add_steps(frame->step);
    if (environment.error.ok()) continue;
    v1::BatchFailure& failure = *out.add_failures();
    failure.set_environment(environments[i]);
    failure.set_code(static_cast<int>(environment.error.code()));
    failure.set_message(std::string(environment.error.message()));
    failure.set_needs_reset(environment.world->has_failed());
  }
  return out;
}

}  // namespace palpate::server
