#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "palpate/v1/control.pb.h"
#include "palpate/v1/edit.pb.h"
#include "palpate/v1/haptics.pb.h"
#include "palpate/v1/record.pb.h"
#include "server/api/encode.h"
#include "server/core/mailbox.h"
#include "server/core/metrics.h"
#include "server/core/scene_past.h"
#include "server/core/upload_file.h"
#include "server/core/worker_pool.h"
#include "sim/export/frame_export.h"
#include "sim/record/edit_log.h"
#include "sim/record/player.h"
#include "sim/record/state_folder.h"
#include "sim/scene/edit_request.h"
#include "sim/world/world.h"

namespace palpate::server {

/// Called once with the outcome. Must not own the scene (a scene may not die on its own thread).
template <typename T>
using Done = std::function<void(absl::StatusOr<T>)>;

/// A scene at one moment: immutable, read by any thread.
struct SceneSnapshot {
  uint64_t serial = 0;  ///< goes up by one with each snapshot of the scene
  std::shared_ptr<const sim::Frame> frame;
  std::shared_ptr<const SceneTopology> topology;  ///< of the frame's version
  std::shared_ptr<const std::vector<v1::BodyInfo>> bodies;
  uint64_t device_bytes = 0;
  FrameStatus status;
  v1::Rate rate;
  std::chrono::steady_clock::time_point step_end;  ///< of the newest step
  std::string reset_by;                            ///< as SceneInfo.reset_by
  uint64_t reset_count = 0;
};

/// Somebody who wants to know of every snapshot. Both calls come from the scene's thread or from the thread that adds the listener, one at
/// a time, and must return within microseconds: hand the pointer on, do no work.
class SnapshotListener {
 public:
  virtual ~SnapshotListener() = default;
  virtual void OnSnapshot(const std::shared_ptr<const SceneSnapshot>& snapshot) = 0;
  /// The last call. ABORTED: the scene was deleted. UNAVAILABLE: the server stops.
  virtual void OnSceneEnd(const absl::Status& reason) = 0;
};

class Scene;

/// What a scene starts from.
struct SceneStart {
  std::string id;
  v1::SceneSpec spec;                 ///< without inline meshes
  std::unique_ptr<sim::World> world;  ///< null in a replay: the player has it
  v1::Rate rate;                      ///< as from NormalizeRate
  bool play = false;
  ScenePast::Options past;
  v1::SceneState state;                                ///< what the scene keeps beside its world; default: a new scene
  std::unique_ptr<record::Player> player;              ///< the scene replays what it has
  std::shared_ptr<UploadFile> upload;                  ///< that the player reads
  std::unique_ptr<record::TemporaryFolder> held_past;  ///< or this
  bool is_temporary = false;                           ///< goes when nobody uses it
  size_t kept_versions = TopologyHistory::kDefaultVersions;
};

/// All that another scene needs to go on from a moment of this one.
struct BranchPoint {
  std::shared_ptr<const sim::WorldState> world;
  v1::SceneState state;
  v1::JournalHead head;
  std::shared_ptr<const record::AssetStore> assets;
  sim::SceneDescription description;
};

/// What is told to a tool, checked, and as far as the instrument goes. Errors: InvalidArgument naming `pose` and its field.
absl::StatusOr<sim::ToolCommand> CommandFromPose(const v1::ToolPose& pose, const sim::ToolDescription& tool, std::string_view path);

/// What an export is made of: a copy of what the scene's thread has.
struct SceneExport {
  v1::ExportFormat format = v1::EXPORT_FORMAT_UNSPECIFIED;
  size_t body = 0;
  bool is_whole = false;                ///< all bodies, not only that one
  sim::Frame frame;                     ///< with the positions that are needed
  std::vector<sim::BodyExtras> extras;  ///< [body]
};

/// The right to move one tool; the destructor gives it back. One thread at a time.
class ToolLease {
 public:
  ~ToolLease();
  ToolLease(const ToolLease&) = delete;
  ToolLease& operator=(const ToolLease&) = delete;

  /// The newest pose. Late ones (sequence not above the last) are ignored. Errors: InvalidArgument naming the field; nothing changes then.
  absl::Status SetPose(const v1::ToolPose& pose);

  const v1::Attached& attached() const { return attached_; }  ///< the answer to the station
  uint32_t tool_index() const { return attached_.tool_index(); }
  const std::shared_ptr<Scene>& scene() const { return scene_; }

 private:
  friend class Scene;
  ToolLease(std::shared_ptr<Scene> scene, v1::Attached attached, double max_stiffness_n_per_m, uint64_t generation)
      : scene_(std::move(scene)), attached_(std::move(attached)), max_stiffness_n_per_m_(max_stiffness_n_per_m), generation_(generation) {}

  std::shared_ptr<Scene> scene_;
  v1::Attached attached_;
  double max_stiffness_n_per_m_;
  uint64_t generation_;
  uint64_t last_sequence_ = 0;
  bool has_sequence_ = false;
  uint64_t pose_count_ = 0;
  uint64_t pedal_up_count_ = 0;  ///< number of the newest pose with the pedal up; 0: none yet
};

/// What of a station's newest command still counts after a silence, see ToolSpec.energy_hold_s: the pedal goes up after the one time, jaws
/// and blade are left alone after the other. The pose stays: a tool without a hand keeps its target. Changes `command` accordingly.
void ExpireCommand(const sim::ToolDescription& tool, double silence_s, sim::ToolCommand* command);

/// One running scene: a World and the thread that steps it. Every method may be called from any thread and returns at once; effects that
/// need the scene's thread answer through `done`, which runs on the pool. After Stop every `done` gets the reason.
///
/// Schedule in real time: step k is due at anchor + k * dt_s / speed. A step that begins late by more than one period counts as an overrun.
/// A scene that is more than kMaxBacklogSteps behind gives the backlog up: the anchor moves to now and the lost time is counted, so that
/// the scene neither hides that it is slow nor races to catch up for ever.
class Scene : public std::enable_shared_from_this<Scene> {
 public:
  static constexpr int kMaxBacklogSteps = 5;
  static constexpr uint32_t kMaxStepCount = 100000;
  static constexpr size_t kMaxQueuedCommands = 1024;  ///< beyond them, and beyond those bytes of edits: RESOURCE_EXHAUSTED
  static constexpr size_t kMaxQueuedBytes = size_t{64} << 20;

  /// Takes what it starts from over and starts the thread, paused unless `play`. `pool` and `metrics` outlive the scene.
  static std::shared_ptr<Scene> Start(SceneStart start, WorkerPool& pool, Metrics& metrics);
  ~Scene();
  Scene(const Scene&) = delete;
  Scene& operator=(const Scene&) = delete;

  const std::string& id() const { return id_; }
  const v1::SceneSpec& spec() const { return spec_; }  ///< without inline meshes
  const std::string& name() const { return name_; }
  double dt_s() const { return dt_s_; }
  SceneMetrics& metrics() { return *metrics_; }
  const TopologyHistory& topology_history() const { return topology_history_; }

  std::shared_ptr<const SceneSnapshot> Snapshot() const;
  v1::SceneInfo Info() const;
  v1::SceneInfo InfoOf(const SceneSnapshot& snapshot) const;

  void Play(Done<v1::SceneInfo> done);
  void Pause(Done<v1::SceneInfo> done);
  /// `is_cancelled` may be empty; when it turns true the remaining steps are given up with CANCELLED.
  /// `tools`: poses that hold during these steps. Errors: those of SceneService.StepScene.
  void Step(uint32_t count, const google::protobuf::RepeatedPtrField<v1::StepTool>& tools, std::function<bool()> is_cancelled,
            Done<v1::SceneInfo> done);
  /// Resets that wait together are one, of the last who asked. `client_name`: that of the request, or `peer` where it gives none.
  /// `is_cancelled` as for Step. Errors: InvalidArgument (client_name).
  void Reset(const std::string& client_name, const std::string& peer, std::function<bool()> is_cancelled, Done<v1::SceneInfo> done);
  /// `rate` as from NormalizeRate.
  void SetRate(const v1::Rate& rate, Done<v1::SceneInfo> done);
  /// Between two steps; the snapshot with the effect is out before the answer. Requests that take long go on between the next steps, one
  /// request after the other. When `is_cancelled` (may be empty) turns true, edits that have not begun are given up.
  /// Errors: those of EditService.EditScene.
  void Edit(const v1::EditSceneRequest& request, std::function<bool()> is_cancelled, Done<v1::EditSceneResponse> done);
  void Export(const std::string& body, v1::ExportFormat format, Done<v1::ExportSceneResponse> done);

  // The past; errors are those of RecordService. In a replay Reset leads to the begin, and edits and tools are refused.
  bool is_replay() const { return is_replay_; }
  bool is_temporary() const { return is_temporary_; }
  /// Goes up with everything that somebody asks of the scene. Any thread.
  uint64_t use_count() const { return use_count_.load(std::memory_order_relaxed); }
  bool has_past() const { return is_replay() || past_.is_kept(); }
  const ScenePast& past() const { return past_; }  ///< only what any thread may call
  void Seek(const v1::SeekSceneRequest& request, std::function<bool()> is_cancelled, Done<v1::SceneInfo> done);
  void GetTimeline(Done<v1::Timeline> done);
  void SetBookmark(const v1::SetBookmarkRequest& request, Done<v1::Timeline> done);
  /// The present moment, for another scene or a recording. `with_sink` (may be null) gets every entry behind it.
  void Fork(std::shared_ptr<EntrySink> with_sink, Done<BranchPoint> done);
  /// Calls when all that the scene has done so far is on disk.
  void WhenDurable(std::function<void(const absl::Status&)> done);

  /// From now on `listener` gets every snapshot, the present one first. `wants_volume`: frames shall carry all vertices; the first
  /// snapshots may still lack them. Errors: the reason of the end if the scene has ended.
  absl::Status AddListener(std::shared_ptr<SnapshotListener> listener, bool wants_volume);
  /// After the return the listener is not called any more. No-op for an unknown one. Must not be called from OnSnapshot or OnSceneEnd.
  void RemoveListener(const SnapshotListener* listener);

  /// Errors: NotFound (no such tool), AlreadyExists (operated), InvalidArgument (attach.station, attach.device_max_stiffness_n_per_m), the
  /// reason of the end if the scene has ended.
  absl::StatusOr<std::unique_ptr<ToolLease>> AcquireTool(const v1::Attach& attach);

  /// Ends all streams with `reason`, then the thread after its present step. `done` (may be empty) runs on the pool when the world and
  /// the files that only a replay reads are freed. Only the first call counts; `done` of later ones runs as well.
  void Stop(const absl::Status& reason, std::function<void()> done);

  int watcher_count() const { return watcher_count_.load(std::memory_order_relaxed); }
  void OnWatcherOpened() {
    watcher_count_.fetch_add(1, std::memory_order_relaxed);
    WakeIfAwaited();
  }
  void OnWatcherClosed() { watcher_count_.fetch_sub(1, std::memory_order_relaxed); }

 private:
  friend class ToolLease;
  using Clock = std::chrono::steady_clock;

  struct TimedCommand {
    sim::ToolCommand command;
    uint64_t generation = 0;
    uint64_t count = 0;  ///< of the lease's poses
    Clock::time_point arrival;
  };
  struct ToolSlot {
    Mailbox<TimedCommand> mailbox;
    std::atomic<uint64_t> generation{0};     ///< of the lease that may move the tool; 0 = none
    std::atomic<uint64_t> expired_count{0};  ///< TimedCommand::count of the newest whose energy was cut off
    // Of the scene's thread:
    TimedCommand newest;
    double taken_at_s = 0;     ///< simulated time when `newest` was first seen
    sim::ToolCommand command;  ///< `newest`, as far as it still counts
    // Guarded by tools_mutex_:
    std::string station;
  };
  struct StepJob {
    uint32_t count = 0;
    uint32_t done_count = 0;
    record::ToolCommands commands;  ///< of tools that nobody operates
    std::function<bool()> is_cancelled;
    Done<v1::SceneInfo> done;
  };
  /// A request for edits that has begun.
  struct EditJob {
    std::shared_ptr<const v1::EditSceneRequest> request;
    std::vector<sim::Edit> edits;
    std::vector<sim::EditOutcome> outcomes;  ///< of the first ones, which are done
    double elapsed_s = 0;
    std::function<bool()> is_cancelled;
    Done<v1::EditSceneResponse> done;
  };
  enum class CommandKind : uint8_t { kCheap, kEdit, kReset };
  struct ListenerEntry {
    std::shared_ptr<SnapshotListener> listener;
    bool wants_volume = false;
  };

  Scene(SceneStart start, WorkerPool& pool, Metrics& metrics);
  static absl::Status ReplayRefuses(const char* what);
  /// Of the present state, on the scene's thread. Errors: NotFound (body), those of the world.
  absl::StatusOr<SceneExport> CopyForExport(const std::string& body, v1::ExportFormat format);

  // Any thread:
  void Enqueue(std::function<void()> run, std::function<void(const absl::Status&)> refuse, CommandKind kind = CommandKind::kCheap,
               size_t size_bytes = 0);
  void EnqueueForInfo(std::function<absl::Status()> run, Done<v1::SceneInfo> done);
  void ReleaseTool(uint32_t tool_index);
  void WakeIfAwaited();

  // The scene's thread:
  void Run();
  bool WaitUntilDue(std::unique_lock<std::mutex>& lock);
  void GoOnWithStepJob();
  void EndRun(std::unique_lock<std::mutex>& lock);
  void TakePoses();
  double Silence_s(const ToolSlot& slot) const;
  void StepOnce();
  absl::Status StepWorld();
  absl::Status StepPlayer();
  void FollowPlayer();
  void TakeState();
  void NoteKept();
  void LogNotes();
  v1::SceneState State() const;
  void NoteRun();
  v1::Timeline TimelineNow() const;
  void Publish();
  void RunCommands(std::unique_lock<std::mutex>& lock);
  absl::Status PerformReset();
  void BeginEdits(EditJob job);
  absl::StatusOr<std::vector<sim::Edit>> CheckedEdits(const v1::EditSceneRequest& request) const;
  absl::StatusOr<record::ToolCommands> CheckedCommands(const google::protobuf::RepeatedPtrField<v1::StepTool>& tools) const;
  void GoOnWithEdits();
  void EndEdits(const absl::Status& status);
  void AnswerWhenDurable(Done<v1::EditSceneResponse> done, absl::StatusOr<v1::EditSceneResponse> result);
  void UpdateBodies();
  void EnsureVolume();
  void EndStepJobs(const absl::Status& status);
  void Fail(const absl::Status& status);
  absl::Status NeedsReset() const;
  void Anchor();
  Clock::time_point Due() const;
  bool IsStepDue() const;
  bool IsAwaitingViewer() const;
  double StepRate(Clock::time_point now) const;
  Clock::duration Period() const;
  template <typename T>
  void Answer(Done<T> done, absl::StatusOr<T> result);

  const std::string id_;
  const v1::SceneSpec spec_;
  std::string name_;
  double dt_s_ = 0;
  std::vector<std::string> tool_names_;
  std::vector<sim::ToolDescription> tools_description_;
  WorkerPool& pool_;
  std::shared_ptr<SceneMetrics> metrics_;
  std::atomic<int> watcher_count_{0};
  TopologyHistory topology_history_;  ///< the scene's thread appends

  // Of the scene's thread.
  std::unique_ptr<sim::World> own_world_;  ///< null in a replay
  const bool is_temporary_;
  const bool is_replay_;
  std::shared_ptr<UploadFile> upload_;
  std::unique_ptr<record::TemporaryFolder> held_past_;
  std::unique_ptr<record::Player> player_;  ///< of a replay
  sim::World* world_ = nullptr;             ///< its own or the player's
  ScenePast past_;
  std::shared_ptr<const sim::Frame> frame_;
  std::shared_ptr<const SceneTopology> topology_;
  std::shared_ptr<const std::vector<v1::BodyInfo>> body_infos_;
  uint64_t device_bytes_ = 0;
  record::EditLog edit_log_;
  v1::RunState state_ = v1::RUN_STATE_PAUSED;
  std::string failure_;
  v1::Rate rate_;
  Clock::time_point anchor_{};
  uint64_t steps_since_anchor_ = 0;
  uint64_t overruns_ = 0;
  uint64_t serial_ = 0;
  std::deque<Clock::time_point> step_ends_;
  std::deque<StepJob> step_jobs_;
  std::optional<EditJob> edit_job_;
  std::vector<Done<v1::SceneInfo>> resets_;  ///< that wait for the next one
  std::string reset_by_;
  uint64_t reset_count_ = 0;
  std::vector<const sim::ToolCommand*> commands_;
  bool world_gives_volume_ = false;
  bool is_failing_ = false;  ///< its state cannot be kept, which was logged
  size_t logged_notes_ = 0;  ///< of the player
  std::atomic<bool> will_note_kept_{false};
  std::atomic<uint64_t> use_count_{0};

  std::vector<std::unique_ptr<ToolSlot>> tools_;
  mutable std::mutex tools_mutex_;
  uint64_t next_generation_ = 1;  ///< guarded by tools_mutex_

  mutable std::mutex mutex_;  ///< of the command queue
  std::condition_variable wake_;
  struct Command {
    std::function<void()> run;
    std::function<void(const absl::Status&)> refuse;
    CommandKind kind = CommandKind::kCheap;
    size_t size_bytes = 0;
  };
  std::deque<Command> queue_;
  size_t queued_bytes_ = 0;
  std::atomic<bool> stopping_{false};  ///< written with the lock, so that nobody sleeps through it
  bool stopped_ = false;
  absl::Status end_reason_;
  std::vector<std::function<void()>> stop_callbacks_;

  mutable std::mutex publish_mutex_;  ///< of the two below
  std::shared_ptr<const SceneSnapshot> snapshot_;
  std::vector<ListenerEntry> listeners_;
  bool listeners_ended_ = false;
  absl::Status listeners_end_reason_;
  std::atomic<int> volume_wanted_{0};

  std::thread thread_;
};

template <typename T>
void Scene::Answer(Done<T> done, absl::StatusOr<T> result) {
  if (!done) return;
  pool_.Post([done = std::move(done), result = std::move(result)]() mutable { done(std::move(result)); });
}

/// Fills defaults in. Errors: InvalidArgument (rate.mode, rate.speed).
absl::StatusOr<v1::Rate> NormalizeRate(const v1::Rate& rate);

}  // namespace palpate::server
