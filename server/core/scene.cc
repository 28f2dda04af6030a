#include "server/core/scene.h"

#include <pthread.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "gpu/base/status.h"
#include "server/core/log.h"
#include "sim/scene/scene_spec.h"
#include "sim/scene/tool_spec.h"

namespace palpate::server {
namespace {

constexpr size_t kMaxRateSamples = 1024;
constexpr double kMaxToolSpeed_m_per_s = 1000;
constexpr size_t kMaxClientNameBytes = 64;

}  // namespace

absl::StatusOr<v1::Rate> NormalizeRate(const v1::Rate& rate) {
  if (!v1::RateMode_IsValid(rate.mode())) {
    return absl::InvalidArgumentError(absl::StrCat("rate.mode: ", static_cast<int>(rate.mode()), " is outside [0, 2]"));
  }
  v1::Rate out;
  out.set_mode(rate.mode() == v1::RATE_MODE_UNSPECIFIED ? v1::RATE_MODE_REAL_TIME : rate.mode());
  if (rate.has_speed() && !(rate.speed() >= 0.01 && rate.speed() <= 100)) {
    return absl::InvalidArgumentError(absl::StrCat("rate.speed: ", rate.speed(), " is outside [0.01, 100]"));
  }
  if (out.mode() == v1::RATE_MODE_REAL_TIME) out.set_speed(rate.has_speed() ? rate.speed() : 1);
  return out;
}

void ExpireCommand(const sim::ToolDescription& tool, double silence_s, sim::ToolCommand* command) {
  if (command->pedal && silence_s > tool.energy_hold_s) {
    command->pedal = false;
    command->is_energy_expired = true;
  }
  command->is_hold_expired = silence_s > tool.command_hold_s;
}

absl::StatusOr<sim::ToolCommand> CommandFromPose(const v1::ToolPose& pose, const sim::ToolDescription& tool, std::string_view path_view) {
  const std::string path(path_view);
  sim::ToolCommand command;
  PALPATE_ASSIGN_OR_RETURN(command.device_pose, scene::PoseFromProto(pose.pose(), path + ".pose"));
  const v1::Vec3& v = pose.velocity_m_per_s();
  for (const auto& [axis, value] : {std::pair("x", v.x()), std::pair("y", v.y()), std::pair("z", v.z())}) {
    if (!(std::abs(value) <= kMaxToolSpeed_m_per_s)) {
      return absl::InvalidArgumentError(absl::StrCat(path, ".velocity_m_per_s.", axis, ": ", value, " is outside [", -kMaxToolSpeed_m_per_s,
                                                     ", ", kMaxToolSpeed_m_per_s, "]"));
    }
  }
  const auto check = [&path](const char* field, double value, double high) -> absl::Status {
    if (value >= 0 && value <= high) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(path, ".", field, ": ", value, " is outside [0, ", high, "]"));
  };
  PALPATE_RETURN_IF_ERROR(check("jaw_angle_rad", pose.jaw_angle_rad(), scene::kMaxJawAngle_rad));
  PALPATE_RETURN_IF_ERROR(check("power_w", pose.power_w(), scene::kMaxPower_w));
  PALPATE_RETURN_IF_ERROR(check("duty", pose.duty(), 1));
  command.velocity_m_per_s = {v.x(), v.y(), v.z()};
  command.pose_sequence = pose.sequence();
  command.station_time_us = pose.station_time_us();
  // What is beyond the instrument, though not beyond all instruments, is as far as it goes.
  command.jaw_angle_rad = std::min(pose.jaw_angle_rad(), tool.instrument.max_jaw_angle_rad);
  command.pedal = pose.pedal();
  command.power_w = std::min(pose.power_w(), tool.instrument.max_power_w);
  command.duty = pose.duty();
  return command;
}

ToolLease::~ToolLease() { scene_->ReleaseTool(attached_.tool_index()); }

absl::Status ToolLease::SetPose(const v1::ToolPose& pose) {
  PALPATE_ASSIGN_OR_RETURN(const sim::ToolCommand command, CommandFromPose(pose, scene_->tools_description_[tool_index()], "pose"));
  if (has_sequence_ && pose.sequence() <= last_sequence_) return absl::OkStatus();
  has_sequence_ = true;
  last_sequence_ = pose.sequence();
  ++pose_count_;
  if (!pose.pedal()) pedal_up_count_ = pose_count_;
  Scene::ToolSlot& slot = *scene_->tools_[tool_index()];
  Scene::TimedCommand timed;
  timed.generation = generation_;
  timed.count = pose_count_;
  timed.arrival = Scene::Clock::now();
  timed.command = command;
  timed.command.device_max_stiffness_n_per_m = max_stiffness_n_per_m_;
  // After a silence, and at the begin, which may be the end of one, a foot that is down is no order to go on.
  const bool is_press_known = pedal_up_count_ > slot.expired_count.load(std::memory_order_acquire);
  timed.command.pedal = pose.pedal() && is_press_known;
  timed.command.is_energy_expired = pose.pedal() && !is_press_known;
  slot.mailbox.Write(timed);
  scene_->metrics().OnPose();
  return absl::OkStatus();
}

absl::Status Scene::ReplayRefuses(const char* what) {
  return absl::FailedPreconditionError(absl::StrCat(what, ": the scene replays a recording; branch off from it to change something"));
}

absl::Status Scene::NeedsReset() const {
  return absl::FailedPreconditionError(absl::StrCat("the scene has failed and needs a reset: ", failure_));
}

std::shared_ptr<Scene> Scene::Start(SceneStart start, WorkerPool& pool, Metrics& metrics) {
  std::shared_ptr<Scene> scene(new Scene(std::move(start), pool, metrics));
  scene->thread_ = std::thread([raw = scene.get()] { raw->Run(); });
  return scene;
}

Scene::Scene(SceneStart start, WorkerPool& pool, Metrics& metrics)
    : id_(std::move(start.id)),
      spec_(std::move(start.spec)),
      pool_(pool),
      metrics_(metrics.AddScene(id_)),
      topology_history_(start.kept_versions),
      own_world_(std::move(start.world)),
      is_temporary_(start.is_temporary),
      is_replay_(start.player != nullptr),
      upload_(std::move(start.upload)),
      held_past_(std::move(start.held_past)),
      player_(std::move(start.player)),
      world_(player_ ? &player_->world() : own_world_.get()),
      past_(std::move(start.past)),
      failure_(start.state.failure()),
      rate_(start.rate),
      reset_by_(start.state.reset_by()),
      reset_count_(start.state.reset_count()) {
  const sim::SceneDescription& description = world_->description();
  name_ = description.name;
  dt_s_ = description.dt_s;
  tools_description_ = description.tools;
  for (const sim::ToolDescription& tool : description.tools) {
    tool_names_.push_back(tool.name);
    tools_.push_back(std::make_unique<ToolSlot>());
  }
  commands_.assign(tools_.size(), nullptr);
  edit_log_.Import(start.state);
  frame_ = world_->CurrentFrame();
  topology_ = BuildTopology(description, frame_->topology);
  metrics_->SetTopologyVersion(topology_->version);
  UpdateBodies();
  if (start.play) state_ = v1::RUN_STATE_PLAYING;
  if (!failure_.empty()) state_ = v1::RUN_STATE_FAILED;
  if (player_) LogNotes();
  Publish();
  // A paused scene makes no step that would look.
  past_.SetOnProgress([this] {
    if (!will_note_kept_.exchange(true)) Enqueue([this] { NoteKept(); }, nullptr);
  });
}

Scene::~Scene() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
}

std::shared_ptr<const SceneSnapshot> Scene::Snapshot() const {
  const std::lock_guard lock(publish_mutex_);
  return snapshot_;
}

v1::SceneInfo Scene::Info() const { return InfoOf(*Snapshot()); }

v1::SceneInfo Scene::InfoOf(const SceneSnapshot& snapshot) const {
  v1::SceneInfo info;
  info.set_scene_id(id_);
  info.set_name(name_);
  info.set_state(snapshot.status.state);
  info.set_failure(snapshot.status.failure);
  *info.mutable_rate() = snapshot.rate;
  info.set_dt_s(dt_s_);
  info.set_step(snapshot.frame->step);
  info.set_sim_time_s(snapshot.frame->sim_time_s);
  info.set_state_hash(snapshot.frame->state_hash);
  info.set_overruns(snapshot.status.overruns);
  const bool is_recent = Clock::now() - snapshot.step_end < std::chrono::seconds(1);
  info.set_steps_per_s(is_recent ? snapshot.status.steps_per_s : 0);
  info.set_watchers(static_cast<uint32_t>(std::max(0, watcher_count())));
  for (size_t t = 0; t < tools_.size(); ++t) {
    if (tools_[t]->generation.load(std::memory_order_relaxed) != 0) info.add_operated_tools(tool_names_[t]);
  }
  for (const v1::BodyInfo& body : *snapshot.bodies) *info.add_bodies() = body;
  for (const std::string& tool : tool_names_) info.add_tools(tool);
  info.set_device_bytes(snapshot.device_bytes);
  if (snapshot.reset_count > 0) info.set_reset_by(snapshot.reset_by);
  info.set_resets(snapshot.reset_count);
  info.set_is_replay(is_replay());
  info.set_is_temporary(is_temporary());
  info.set_has_past(has_past());
  if (past_.is_kept()) {
    const record::SceneJournal::Progress progress = past_.progress();
    info.set_durable_step(progress.step);
    info.set_durability(progress.trouble.empty() ? progress.state_trouble : progress.trouble);
  }
  return info;
}

void Scene::Enqueue(std::function<void()> run, std::function<void(const absl::Status&)> refuse, CommandKind kind, size_t size_bytes) {
  if (refuse) use_count_.fetch_add(1, std::memory_order_relaxed);
  absl::Status reason;
  {
    const std::lock_guard lock(mutex_);
    if (stopping_) {
      reason = end_reason_;
    } else if (refuse && queue_.size() >= kMaxQueuedCommands) {  // what nobody waits for is the server's own
      reason = absl::ResourceExhaustedError(absl::StrCat("scene \"", id_, "\" has ", kMaxQueuedCommands, " requests waiting"));
    } else if (queued_bytes_ > 0 && queued_bytes_ + size_bytes > kMaxQueuedBytes) {
      reason = absl::ResourceExhaustedError(
          absl::StrCat("scene \"", id_, "\" has ", queued_bytes_, " bytes of edits waiting, at most ", kMaxQueuedBytes));
    } else {
      queue_.push_back({std::move(run), std::move(refuse), kind, size_bytes});
      queued_bytes_ += size_bytes;
    }
  }
  if (!reason.ok()) {
    if (refuse) refuse(reason);
    return;
  }
  wake_.notify_one();
}

void Scene::EnqueueForInfo(std::function<absl::Status()> run, Done<v1::SceneInfo> done) {
  Enqueue(
      [this, run = std::move(run), done] {
        if (absl::Status status = run(); !status.ok()) {
          Answer<v1::SceneInfo>(done, status);
        } else {
          Answer<v1::SceneInfo>(done, Info());
        }
      },
      [this, done](const absl::Status& reason) { Answer<v1::SceneInfo>(done, reason); });
}

void Scene::Play(Done<v1::SceneInfo> done) {
  EnqueueForInfo(
      [this]() -> absl::Status {
        if (state_ == v1::RUN_STATE_FAILED) return NeedsReset();
        if (state_ == v1::RUN_STATE_PLAYING) return absl::OkStatus();
        EndStepJobs(absl::AbortedError("the scene was set to play"));
        state_ = v1::RUN_STATE_PLAYING;
        NoteRun();
        Anchor();
        Publish();
        return absl::OkStatus();
      },
      std::move(done));
}

void Scene::Pause(Done<v1::SceneInfo> done) {
  EnqueueForInfo(
      [this] {
        EndStepJobs(absl::AbortedError("the scene was paused"));
        if (state_ == v1::RUN_STATE_PLAYING) {
          state_ = v1::RUN_STATE_PAUSED;
          NoteRun();
          metrics_->SetStepRate(0);
          Publish();
        }
        return absl::OkStatus();
      },
      std::move(done));
}

void Scene::Step(uint32_t count, const google::protobuf::RepeatedPtrField<v1::StepTool>& tools, std::function<bool()> is_cancelled,
                 Done<v1::SceneInfo> done) {
  absl::StatusOr<record::ToolCommands> commands = CheckedCommands(tools);
  if (count < 1 || count > kMaxStepCount) {
    commands = absl::InvalidArgumentError(absl::StrCat("count: ", count, " is outside [1, ", kMaxStepCount, "]"));
  }
  if (!commands.ok()) return Answer<v1::SceneInfo>(std::move(done), commands.status());
  Enqueue(
      [this, count, commands = *std::move(commands), is_cancelled = std::move(is_cancelled), done] {
        if (state_ == v1::RUN_STATE_FAILED) {
          Answer<v1::SceneInfo>(done, NeedsReset());
        } else if (state_ == v1::RUN_STATE_PLAYING) {
          Answer<v1::SceneInfo>(done, absl::FailedPreconditionError("the scene plays; pause it before stepping"));
        } else {
          step_jobs_.push_back({count, 0, commands, is_cancelled, done});
        }
      },
      [this, done](const absl::Status& reason) { Answer<v1::SceneInfo>(done, reason); });
}

/// By tool; nothing for those that are not named.
absl::StatusOr<record::ToolCommands> Scene::CheckedCommands(const google::protobuf::RepeatedPtrField<v1::StepTool>& tools) const {
  record::ToolCommands out(tools_description_.size());
  if (is_replay() && !tools.empty()) return ReplayRefuses("tools");
  for (int i = 0; i < tools.size(); ++i) {
    const std::string path = absl::StrCat("tools[", i, "]");
    const auto name = std::find(tool_names_.begin(), tool_names_.end(), tools[i].tool());
    if (name == tool_names_.end()) {
      return absl::NotFoundError(absl::StrCat(path, ".tool: scene \"", id_, "\" has no tool \"", tools[i].tool(), "\""));
    }
    const auto index = static_cast<size_t>(name - tool_names_.begin());
    if (out[index]) return absl::InvalidArgumentError(absl::StrCat(path, ".tool: \"", tools[i].tool(), "\" is named twice"));
    if (tools_[index]->generation.load(std::memory_order_acquire) != 0) {
      return absl::AlreadyExistsError(absl::StrCat(path, ".tool: \"", tools[i].tool(), "\" is operated by a station"));
    }
    PALPATE_ASSIGN_OR_RETURN(out[index], CommandFromPose(tools[i].pose(), tools_description_[index], path + ".pose"));
  }
  return out;
}

void Scene::Reset(const std::string& client_name, const std::string& peer, std::function<bool()> is_cancelled, Done<v1::SceneInfo> done) {
  if (client_name.size() > kMaxClientNameBytes || std::any_of(client_name.begin(), client_name.end(), absl::ascii_iscntrl)) {
    Answer<v1::SceneInfo>(std::move(done), absl::InvalidArgumentError(absl::StrCat("client_name: more than ", kMaxClientNameBytes,
                                                                                   " bytes, or control characters")));
    return;
  }
  Enqueue(
      [this, by = client_name.empty() ? peer : client_name, is_cancelled = std::move(is_cancelled), done] {
        if (is_cancelled && is_cancelled()) {
          Answer<v1::SceneInfo>(done, absl::CancelledError("cancelled before it began"));
        } else {
          resets_.push_back(done);
          reset_by_ = by;
        }
      },
      [this, done](const absl::Status& reason) { Answer<v1::SceneInfo>(done, reason); }, CommandKind::kReset);
}

absl::Status Scene::PerformReset() {
  EndStepJobs(absl::AbortedError("the scene was reset"));
  EndEdits(absl::AbortedError("the scene was reset"));
  if (player_) {
    const absl::Status status = player_->Seek(player_->recording().begin_position()).status();
    FollowPlayer();
    if (!status.ok()) {
      Fail(status);
      return status;
    }
    if (state_ == v1::RUN_STATE_FAILED) state_ = v1::RUN_STATE_PAUSED;
    failure_.clear();
    Anchor();
    Publish();
    return absl::OkStatus();
  }
  absl::StatusOr<std::shared_ptr<const sim::Frame>> frame = world_->Reset();
  if (!frame.ok()) {
    Fail(frame.status());
    return frame.status();
  }
  frame_ = *std::move(frame);
  past_.OnReset(reset_by_, *frame_);
  ++reset_count_;
  Log(LogLevel::kInfo, "scene reset", {{"scene", id_}, {"by", reset_by_}});
  UpdateBodies();
  if (state_ == v1::RUN_STATE_FAILED) state_ = v1::RUN_STATE_PAUSED;
  failure_.clear();
  Anchor();
  Publish();
  EnsureVolume();
  return absl::OkStatus();
}

void Scene::SetRate(const v1::Rate& rate, Done<v1::SceneInfo> done) {
  EnqueueForInfo(
      [this, rate] {
        rate_ = rate;
        NoteRun();
        Anchor();
        Publish();
        return absl::OkStatus();
      },
      std::move(done));
}

void Scene::UpdateBodies() {
  auto infos = std::make_shared<std::vector<v1::BodyInfo>>();
  for (const sim::BodyStatistics& body : world_->body_statistics()) {
    v1::BodyInfo& info = infos->emplace_back();
    info.set_name(body.name);
    info.set_vertex_count(body.vertex_count);
    info.set_tet_count(body.tet_count);
    info.set_surface_vertex_count(body.surface_vertex_count);
    info.set_surface_triangle_count(body.surface_triangle_count);
    info.set_fixed_vertex_count(body.fixed_vertex_count);
    info.set_mass_kg(body.mass_kg);
    info.set_quasi_static_tets(body.quasi_static_tets);
    info.set_volume_m3(body.volume_m3);
    info.set_volume_released(body.is_volume_released);
  }
  body_infos_ = std::move(infos);
  device_bytes_ = world_->device_bytes();
  metrics_->SetDeviceBytes(device_bytes_);
}

absl::Status Scene::AddListener(std::shared_ptr<SnapshotListener> listener, bool wants_volume) {
  {
    const std::lock_guard lock(publish_mutex_);
    if (listeners_ended_) return listeners_end_reason_;
    listener->OnSnapshot(snapshot_);
    listeners_.push_back({std::move(listener), wants_volume});
  }
  if (wants_volume) {
    volume_wanted_.fetch_add(1, std::memory_order_relaxed);
    Enqueue([this] { EnsureVolume(); }, nullptr);
  }
  return absl::OkStatus();
}

void Scene::RemoveListener(const SnapshotListener* listener) {
  bool wanted_volume = false;
  {
    const std::lock_guard lock(publish_mutex_);
    const auto it = std::find_if(listeners_.begin(), listeners_.end(),
                                 [listener](const ListenerEntry& entry) { return entry.listener.get() == listener; });
    if (it == listeners_.end()) return;
    wanted_volume = it->wants_volume;
    listeners_.erase(it);
  }
  if (wanted_volume) {
    volume_wanted_.fetch_sub(1, std::memory_order_relaxed);
    Enqueue([this] { EnsureVolume(); }, nullptr);
  }
}

absl::StatusOr<std::unique_ptr<ToolLease>> Scene::AcquireTool(const v1::Attach& attach) {
  if (is_replay()) return ReplayRefuses("attach.tool");
  if (attach.station().size() > 64) {
    return absl::InvalidArgumentError(absl::StrCat("attach.station: ", attach.station().size(), " bytes are outside [0, 64]"));
  }
  const double stiffness = attach.device_max_stiffness_n_per_m();
  if (!(stiffness >= 0 && std::isfinite(stiffness))) {
    return absl::InvalidArgumentError(absl::StrCat("attach.device_max_stiffness_n_per_m: ", stiffness, " is outside [0, inf)"));
  }
  const auto name = std::find(tool_names_.begin(), tool_names_.end(), attach.tool());
  if (name == tool_names_.end()) {
    return absl::NotFoundError(absl::StrCat("attach.tool: scene \"", id_, "\" has no tool \"", attach.tool(), "\""));
  }
  const auto index = static_cast<size_t>(name - tool_names_.begin());
  const std::shared_ptr<const SceneSnapshot> snapshot = Snapshot();
  const sim::FrameTool& tool = snapshot->frame->tools[index];

  v1::Attached attached;
  attached.set_tool_index(static_cast<uint32_t>(index));
  EncodeAttached(tools_description_[index], attached);
  attached.set_dt_s(dt_s_);
  EncodePose(tool.pose, *attached.mutable_pose());

  std::unique_ptr<ToolLease> lease;
  {
    const std::lock_guard lock(tools_mutex_);
    ToolSlot& slot = *tools_[index];
    if (slot.generation.load(std::memory_order_relaxed) != 0) {
      return absl::AlreadyExistsError(absl::StrCat("attach.tool: \"", attach.tool(), "\" is operated by station \"", slot.station, "\""));
    }
    const uint64_t generation = next_generation_++;
    slot.station = attach.station();
    // The tool keeps its place until the first pose, but the station's stiffness limit holds from the first model on.
    TimedCommand hold;
    hold.generation = generation;
    hold.arrival = Clock::now();
    hold.command.device_pose = tool.device_pose;
    hold.command.device_max_stiffness_n_per_m = stiffness;
    slot.expired_count.store(0, std::memory_order_release);
    slot.mailbox.Write(hold);
    slot.generation.store(generation, std::memory_order_release);
    lease.reset(new ToolLease(shared_from_this(), std::move(attached), stiffness, generation));
  }
  Enqueue([this] { Publish(); }, nullptr);
  return lease;
}

void Scene::ReleaseTool(uint32_t tool_index) {
  {
    const std::lock_guard lock(tools_mutex_);
    tools_[tool_index]->generation.store(0, std::memory_order_release);
    tools_[tool_index]->station.clear();
  }
  Enqueue([this] { Publish(); }, nullptr);
}

void Scene::Stop(const absl::Status& reason, std::function<void()> done) {
  {
    const std::lock_guard lock(mutex_);
    if (stopped_) {
      if (done) pool_.Post(std::move(done));
      return;
    }
    if (done) stop_callbacks_.push_back(std::move(done));
    if (stopping_) return;
    stopping_ = true;
    end_reason_ = reason;
  }
  wake_.notify_all();
  const std::lock_guard lock(publish_mutex_);
  listeners_ended_ = true;
  listeners_end_reason_ = reason;
  for (const ListenerEntry& entry : listeners_) entry.listener->OnSceneEnd(reason);
}

void Scene::Run() {
  pthread_setname_np(pthread_self(), "scene");
  Anchor();
  std::unique_lock lock(mutex_);
  bool was_costly = false;  // what was done since the last step
  while (!stopping_) {
    // However many edits and resets wait, a step that is due goes before the second of them: the models of the stations come with the
    // steps.
    const bool may_be_costly = !was_costly || !IsStepDue();
    const bool has_command = !queue_.empty();
    const bool is_next_cheap = has_command && queue_.front().kind == CommandKind::kCheap;
    const bool is_next_reset = has_command && queue_.front().kind == CommandKind::kReset;
    if (is_next_cheap || (is_next_reset && may_be_costly)) {
      was_costly |= is_next_reset;
      RunCommands(lock);
    } else if ((edit_job_ || has_command) && may_be_costly) {
      was_costly = true;
      if (edit_job_) {
        lock.unlock();
        GoOnWithEdits();
        lock.lock();
      } else {
        RunCommands(lock);
      }
    } else if (state_ == v1::RUN_STATE_PLAYING && IsAwaitingViewer()) {
      wake_.wait(lock);
      Anchor();
    } else if (state_ == v1::RUN_STATE_PLAYING) {
      if (!WaitUntilDue(lock)) continue;
      lock.unlock();
      was_costly = false;
      ++steps_since_anchor_;
      StepOnce();
      lock.lock();
    } else if (!step_jobs_.empty()) {
      lock.unlock();
      GoOnWithStepJob();
      lock.lock();
    } else {
      wake_.wait(lock);
    }
  }
  EndRun(lock);
}

/// Whether the next step is due now. If not, waits until it is or something comes. A step that is late is counted, and a backlog given up.
bool Scene::WaitUntilDue(std::unique_lock<std::mutex>& lock) {
  if (rate_.mode() != v1::RATE_MODE_REAL_TIME) return true;
  const Clock::duration period = Period();
  const Clock::time_point due = Due();
  const Clock::time_point now = Clock::now();
  if (now < due) {
    wake_.wait_until(lock, due);
    return false;
  }
  const Clock::duration late = now - due;
  if (late > period) {
    ++overruns_;
    metrics_->OnOverrun();
  }
  if (late > period * kMaxBacklogSteps) {
    metrics_->OnSkipped(std::chrono::duration<double>(late).count());
    Anchor();
  }
  return true;
}

/// One step of the request for steps at the front.
void Scene::GoOnWithStepJob() {
  StepJob& job = step_jobs_.front();
  if (job.is_cancelled && job.is_cancelled()) {
    Answer<v1::SceneInfo>(std::move(job.done), absl::CancelledError(absl::StrCat("cancelled after ", job.done_count, " steps")));
    step_jobs_.pop_front();
    return;
  }
  StepOnce();
  // StepOnce ends all jobs when the scene fails.
  if (!step_jobs_.empty() && ++step_jobs_.front().done_count == step_jobs_.front().count) {
    Answer<v1::SceneInfo>(std::move(step_jobs_.front().done), Info());
    step_jobs_.pop_front();
  }
}

/// Answers all that waits, keeps the scene as it is left, and frees the world and what a replay reads. Calls that end meanwhile may hold
/// the scene a moment longer than its thread.
void Scene::EndRun(std::unique_lock<std::mutex>& lock) {
  std::deque<Command> commands = std::move(queue_);
  queue_.clear();
  queued_bytes_ = 0;
  const absl::Status reason = end_reason_;
  lock.unlock();

  for (Command& command : commands) {
    if (command.refuse) command.refuse(reason);
  }
  EndStepJobs(reason);
  EndEdits(reason);
  // The next start of the server finds the scene as it was left.
  if (past_.is_kept() && !absl::IsAborted(reason)) TakeState();
  past_.End(reason);
  own_world_.reset();
  player_.reset();
  held_past_.reset();
  upload_.reset();

  lock.lock();
  stopped_ = true;
  std::vector<std::function<void()>> callbacks = std::move(stop_callbacks_);
  lock.unlock();
  for (std::function<void()>& callback : callbacks) pool_.Post(std::move(callback));
}

/// The command at the front; with a reset those behind it that are resets as well.
void Scene::RunCommands(std::unique_lock<std::mutex>& lock) {
  const CommandKind kind = queue_.front().kind;
  do {
    Command command = std::move(queue_.front());
    queue_.pop_front();
    queued_bytes_ -= command.size_bytes;
    lock.unlock();
    command.run();
    command = {};  // what it holds goes without the lock
    lock.lock();
  } while (kind == CommandKind::kReset && !queue_.empty() && queue_.front().kind == CommandKind::kReset);
  if (resets_.empty()) return;
  lock.unlock();
  const absl::Status status = PerformReset();
  for (Done<v1::SceneInfo>& done : resets_)
    Answer<v1::SceneInfo>(std::move(done), status.ok() ? absl::StatusOr<v1::SceneInfo>(Info()) : status);
  resets_.clear();
  lock.lock();
}

void Scene::TakePoses() {
  for (size_t t = 0; t < tools_.size(); ++t) {
    ToolSlot& slot = *tools_[t];
    const uint64_t generation = slot.generation.load(std::memory_order_acquire);
    if (slot.mailbox.Read(slot.newest)) slot.taken_at_s = frame_->sim_time_s;
    commands_[t] = nullptr;
    if (generation == 0 && !step_jobs_.empty() && state_ == v1::RUN_STATE_PAUSED && step_jobs_.front().commands[t]) {
      commands_[t] = &*step_jobs_.front().commands[t];
    }
    if (generation == 0 || slot.newest.generation != generation) continue;
    slot.command = slot.newest.command;
    commands_[t] = &slot.command;
    ExpireCommand(tools_description_[t], Silence_s(slot), &slot.command);
    if (slot.newest.command.pedal && !slot.command.pedal) slot.expired_count.store(slot.newest.count, std::memory_order_release);
  }
}

/// How long nothing newer has come. Whoever steps a paused scene has all the time of the world between two poses.
double Scene::Silence_s(const ToolSlot& slot) const {
  if (state_ != v1::RUN_STATE_PLAYING) return 0;
  if (rate_.mode() != v1::RATE_MODE_REAL_TIME) return frame_->sim_time_s - slot.taken_at_s;
  return std::chrono::duration<double>(Clock::now() - slot.newest.arrival).count();
}

void Scene::StepOnce() {
  const absl::Status status = player_ ? StepPlayer() : StepWorld();
  const Clock::time_point now = Clock::now();
  if (!status.ok()) {
    Fail(status);
    return;
  }
  step_ends_.push_back(now);
  while (step_ends_.size() > kMaxRateSamples || now - step_ends_.front() > std::chrono::seconds(1)) step_ends_.pop_front();
  Publish();
  metrics_->OnStep(*frame_, StepRate(now));
  if (past_.is_kept()) NoteKept();
  if (past_.IsStateDue() && !edit_job_) TakeState();
}

absl::Status Scene::StepWorld() {
  TakePoses();
  past_.OnStepBegin(commands_);
  PALPATE_ASSIGN_OR_RETURN(frame_, world_->Step(commands_, [this] { TakePoses(); }));
  past_.OnStepEnd(commands_, *frame_);
  return absl::OkStatus();
}

void Scene::Fail(const absl::Status& status) {
  state_ = v1::RUN_STATE_FAILED;
  failure_ = status.ToString();
  NoteRun();
  Log(LogLevel::kError, "scene failed", {{"scene", id_}, {"step", frame_->step}, {"error", failure_}});
  metrics_->SetStepRate(0);
  Publish();  // before the answers: who gets one finds the scene failed
  EndEdits(absl::DataLossError(absl::StrCat("the scene failed: ", failure_)));
  EndStepJobs(absl::DataLossError(absl::StrCat("the scene failed: ", failure_)));
}

void Scene::EndStepJobs(const absl::Status& status) {
  for (StepJob& job : step_jobs_) {
    Answer<v1::SceneInfo>(std::move(job.done), absl::Status(status.code(), absl::StrCat(status.message(), " (after ", job.done_count,
                                                                                        " of ", job.count, " steps)")));
  }
  step_jobs_.clear();
}

void Scene::EnsureVolume() {
  const bool wanted = volume_wanted_.load(std::memory_order_relaxed) > 0;
  if (wanted != world_gives_volume_) {
    world_->SetVolumeWanted(wanted);
    world_gives_volume_ = wanted;
  }
  if (!wanted || HasVolume(*frame_)) return;
  // A paused scene makes no frame of its own accord: complete the present one.
  auto complete = std::make_shared<sim::Frame>(*frame_);
  complete->volume_positions_m.clear();
  for (size_t b = 0; b < topology_->world->bodies.size(); ++b) {
    absl::StatusOr<std::vector<float>> positions_m = world_->ReadVolumePositions(b);
    if (!positions_m.ok()) {
      Log(LogLevel::kError, "volume not readable", {{"scene", id_}, {"error", positions_m.status()}});
      return;
    }
    complete->volume_positions_m.push_back(*std::move(positions_m));
  }
  frame_ = std::move(complete);
  Publish();
}

void Scene::Publish() {
  if (frame_->topology_version != topology_->version) {
    std::shared_ptr<const SceneTopology> topology = AdvanceTopology(*topology_, frame_->topology);
    topology_history_.Append(*topology_, *topology);
    topology_ = std::move(topology);
    UpdateBodies();
    metrics_->SetTopologyVersion(topology_->version);
  }
  auto snapshot = std::make_shared<SceneSnapshot>();
  snapshot->serial = ++serial_;
  snapshot->frame = frame_;
  snapshot->topology = topology_;
  snapshot->bodies = body_infos_;
  snapshot->device_bytes = device_bytes_;
  snapshot->status.state = state_;
  snapshot->status.failure = failure_;
  snapshot->status.overruns = overruns_;
  snapshot->status.steps_per_s = StepRate(Clock::now());
  snapshot->status.operated.resize(tools_.size());
  for (size_t t = 0; t < tools_.size(); ++t) {
    snapshot->status.operated[t] = tools_[t]->generation.load(std::memory_order_relaxed) != 0;
  }
  snapshot->rate = rate_;
  snapshot->reset_by = reset_by_;
  snapshot->reset_count = reset_count_;
  snapshot->step_end = step_ends_.empty() ? Clock::time_point() : step_ends_.back();

  const std::lock_guard lock(publish_mutex_);
  snapshot_ = std::move(snapshot);
  if (listeners_ended_) return;
  for (const ListenerEntry& entry : listeners_) entry.listener->OnSnapshot(snapshot_);
}

Scene::Clock::time_point Scene::Due() const { return anchor_ + Period() * static_cast<int64_t>(steps_since_anchor_); }

bool Scene::IsStepDue() const {
  return state_ == v1::RUN_STATE_PLAYING && !IsAwaitingViewer() && (rate_.mode() != v1::RATE_MODE_REAL_TIME || Clock::now() >= Due());
}

/// Whether the show has not begun, since nobody is there yet.
bool Scene::IsAwaitingViewer() const {
  return !player_ && spec_.start() == v1::START_WHEN_WATCHED && frame_->step == 0 && watcher_count() <= 0 &&
         std::all_of(tools_.begin(), tools_.end(), [](const auto& tool) { return tool->generation.load(std::memory_order_acquire) == 0; });
}

/// After somebody came. The lock keeps the scene's thread from falling asleep between its look and the notification.
void Scene::WakeIfAwaited() {
  if (spec_.start() != v1::START_WHEN_WATCHED) return;
  { const std::lock_guard lock(mutex_); }
  wake_.notify_all();
}

void Scene::Anchor() {
  anchor_ = Clock::now();
  steps_since_anchor_ = 0;
}

double Scene::StepRate(Clock::time_point now) const {
  // Steps that ended within the last second: the span between the first and the last of them holds one step less.
  const auto first =
      std::find_if(step_ends_.begin(), step_ends_.end(), [now](Clock::time_point end) { return now - end <= std::chrono::seconds(1); });
  const auto count = step_ends_.end() - first;
  if (count < 2) return static_cast<double>(count);
  const double span_s = std::chrono::duration<double>(step_ends_.back() - *first).count();
  return span_s > 0 ? static_cast<double>(count - 1) / span_s : 0;
}

Scene::Clock::duration Scene::Period() const {
  return std::max(Clock::duration(1), std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(dt_s_ / rate_.speed())));
}

}  // namespace palpate::server
