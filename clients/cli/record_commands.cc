// palpate record, replay, seek, branch, bookmark, timeline, diff: the past of scenes.
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "clients/cli/commands.h"
#include "clients/cli/console.h"
#include "clients/cli/own_server.h"
#include "clients/cli/recording_diff.h"
#include "clients/cpp/record_client.h"
#include "clients/cpp/scene_client.h"
#include "gpu/base/status.h"
#include "sim/record/recording.h"

namespace palpate::cli {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using client::RecordClient;
using client::SceneClient;

constexpr std::chrono::milliseconds kNoLimit{0};
constexpr size_t kUploadBytes = size_t{512} << 10;

/// Ends something when the user presses Ctrl-C, or after a time.
class Watchdog {
 public:
  Watchdog(double seconds, std::function<void()> end) {
    thread_ = std::jthread([seconds, end = std::move(end)](const std::stop_token& stop) {
      const auto limit = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
      while (!stop.stop_requested()) {
        if (g_interrupted.load() || (seconds > 0 && std::chrono::steady_clock::now() >= limit)) return end();
        std::this_thread::sleep_for(20ms);
      }
    });
  }

 private:
  std::jthread thread_;
};

// --- record -----------------------------------------------------------------------------------------------------------------------------

struct RecordOptions {
  v1::RecordSceneRequest request;
  std::string output;
  std::optional<uint64_t> from_step, until_step;
  double seconds = 0;
  bool moment = false;
  bool force = false;
};

absl::Status Record(const Session& session, RecordOptions options) {
  if (!options.force && fs::exists(options.output)) {
    return absl::AlreadyExistsError(absl::StrFormat("%s exists; --force overwrites it", options.output));
  }
  PALPATE_ASSIGN_OR_RETURN(client::Connection connection, Connect(session));
  RecordClient client(std::move(connection));
  std::ofstream file;
  uint64_t bytes = 0;
  // Written as it comes: whatever happens, the file is a recording of what was received.
  const RecordClient::Sink sink = [&](std::string_view data) -> absl::Status {
    if (!file.is_open()) file.open(options.output, std::ios::binary | std::ios::trunc);
    file.write(data.data(), static_cast<std::streamsize>(data.size()));
    file.flush();
    bytes += data.size();
    return file ? absl::OkStatus() : absl::ResourceExhaustedError(absl::StrFormat("%s cannot be written", options.output));
  };
  InstallInterruptHandler();
  if (options.moment) {
    PALPATE_RETURN_IF_ERROR(client.Save(options.request.scene_id(), sink));
  } else {
    if (options.from_step) options.request.set_from_step(*options.from_step);
    if (options.until_step) options.request.set_until_step(*options.until_step);
    const std::unique_ptr<RecordClient::Stream> stream = client.Record(options.request);
    const Watchdog watchdog(options.seconds, [&stream] { stream->Cancel(); });
    PALPATE_RETURN_IF_ERROR(stream->Run(sink));
  }
  file.close();
  PALPATE_ASSIGN_OR_RETURN(const std::shared_ptr<const record::Recording> recording, record::Recording::OpenFile(options.output));
  if (session.json) {
    absl::PrintF("{\"begin\":%d,\"end\":%d,\"bytes\":%d}\n", recording->begin_position(), recording->end_position(), bytes);
  } else {
    absl::PrintF("%s: steps %d to %d, %s\n", options.output, recording->begin_position(), recording->end_position(), FormatBytes(bytes));
  }
  return absl::OkStatus();
}

// --- replay -----------------------------------------------------------------------------------------------------------------------------

struct ReplayOptions {
  std::string file;
  std::string scene_id;
  bool fast = false;
  double speed = 1;
  std::optional<uint64_t> from;
  bool on_server = false;
  bool temporary = false;
  bool headless = false;
  std::string http = "127.0.0.1:0";
  std::string web_root;
  std::string device;
};

RecordClient::Source FileSource(const std::shared_ptr<std::ifstream>& file, const std::string& name) {
  return [file, name]() -> absl::StatusOr<std::string> {
    std::string bytes(kUploadBytes, '\0');
    file->read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    if (file->bad()) return absl::DataLossError(absl::StrFormat("%s cannot be read", name));
    bytes.resize(static_cast<size_t>(file->gcount()));
    return bytes;
  };
}

absl::StatusOr<v1::OpenRecordingResponse> Upload(RecordClient& client, const ReplayOptions& options) {
  const auto file = std::make_shared<std::ifstream>(options.file, std::ios::binary);
  if (!*file) return absl::NotFoundError(absl::StrFormat("%s cannot be opened", options.file));
  v1::OpenRecording open;
  open.set_scene_id(options.scene_id);
  open.set_temporary(options.temporary);
  open.mutable_rate()->set_mode(options.fast ? v1::RATE_MODE_AS_FAST_AS_POSSIBLE : v1::RATE_MODE_REAL_TIME);
  if (!options.fast) open.mutable_rate()->set_speed(options.speed);
  return client.Open(open, FileSource(file, options.file));
}

/// Prints what of a recording could not be read, each once.
class DamageTeller {
 public:
  /// `file`: what the user calls the recording, which servers do not know.
  explicit DamageTeller(std::string file) : file_(std::move(file)) {}
  void Tell(const std::string& damage) {
    const std::string text = absl::StrReplaceAll(damage, {{"the recording,", absl::StrCat("\"", file_, "\",")}});
    if (told_.insert(text).second) absl::FPrintF(stderr, "palpate: %s\n", text);
  }
  void Tell(const v1::Timeline& timeline) {
    for (const std::string& damage : timeline.damages()) Tell(damage);
  }

 private:
  const std::string file_;
  std::set<std::string> told_;
};

/// Plays until the end, or until the user has had enough.
absl::StatusOr<v1::Timeline> PlayToEnd(SceneClient& scenes, RecordClient& records, const std::string& id, DamageTeller& damages) {
  ProgressBar bar("replay");
  while (!g_interrupted.load()) {
    PALPATE_ASSIGN_OR_RETURN(const v1::GetSceneResponse scene, scenes.Get(id));
    PALPATE_ASSIGN_OR_RETURN(const v1::Timeline timeline, records.GetTimeline(id));
    damages.Tell(timeline);
    const double length = static_cast<double>(timeline.end() - timeline.begin());
    bar.Update(length > 0 ? static_cast<double>(timeline.position() - timeline.begin()) / length : 1);
    if (scene.scene().state() == v1::RUN_STATE_FAILED) return absl::DataLossError(scene.scene().failure());
    if (scene.scene().state() == v1::RUN_STATE_PAUSED) return timeline;
    std::this_thread::sleep_for(50ms);
  }
  return absl::CancelledError("interrupted");
}

absl::Status PrintReplay(const v1::SceneInfo& info, const v1::Timeline& timeline, bool json) {
  if (json) {
    PrintJson(timeline);
  } else {
    absl::PrintF("%s: steps %d to %d, now at %d, %.3f s\n", info.scene_id(), timeline.begin(), timeline.end(), timeline.position(),
                 static_cast<double>(timeline.position()) * timeline.dt_s());
  }
  if (timeline.divergences() == 0) return absl::OkStatus();
  return absl::DataLossError(absl::StrFormat("%d steps differ from the recording, the first is %d: another device, driver or program",
                                             timeline.divergences(), timeline.first_divergence()));
}

absl::Status ReplayOn(client::Connection connection, const Session& session, const ReplayOptions& options, const std::string& url,
                      DamageTeller& damages, const std::function<absl::Status()>& check_alive) {
  SceneClient scenes(connection, kNoLimit);
  RecordClient records(std::move(connection));
  PALPATE_ASSIGN_OR_RETURN(v1::OpenRecordingResponse opened, Upload(records, options));
  damages.Tell(opened.timeline());
  const std::string id = opened.scene().scene_id();
  if (options.from) {
    v1::SeekSceneRequest seek;
    seek.set_scene_id(id);
    seek.set_position(*options.from);
    PALPATE_ASSIGN_OR_RETURN(*opened.mutable_scene(), records.Seek(seek));
  }
  if (!session.json) {
    const std::string& source = opened.timeline().source();  // none: the end of a job
    absl::PrintF("replay   scene %s%s: steps %d to %d, %.1f s%s%s\n", id, source.empty() ? "" : absl::StrCat(" of ", source),
                 opened.timeline().begin(), opened.timeline().end(),
                 static_cast<double>(opened.timeline().end() - opened.timeline().begin()) * opened.timeline().dt_s(),
                 url.empty() ? "" : "\nviewer   ", url);
    std::fflush(stdout);
  }
  PALPATE_RETURN_IF_ERROR(scenes.Play(id).status());
  if (options.headless) {
    PALPATE_ASSIGN_OR_RETURN(const v1::Timeline end, PlayToEnd(scenes, records, id, damages));
    PALPATE_ASSIGN_OR_RETURN(const v1::GetSceneResponse scene, scenes.Get(id));
    return PrintReplay(scene.scene(), end, session.json);
  }
  if (url.empty()) return PrintReplay(opened.scene(), opened.timeline(), session.json);
  absl::PrintF("Ctrl-C ends the replay\n");
  std::fflush(stdout);
  for (int round = 0; !g_interrupted.load(); ++round) {
    PALPATE_RETURN_IF_ERROR(check_alive());
    if (round % 10 == 0) {
      // A viewer may have deleted it.
      if (const absl::StatusOr<v1::Timeline> timeline = records.GetTimeline(id); timeline.ok()) damages.Tell(*timeline);
    }
    std::this_thread::sleep_for(100ms);
  }
  return absl::OkStatus();
}

absl::Status Replay(const Session& session, const ReplayOptions& options) {
  InstallInterruptHandler();
  // What a server leaves out as damaged is named here, before one is started.
  PALPATE_ASSIGN_OR_RETURN(const std::shared_ptr<const record::Recording> recording, record::Recording::OpenFile(options.file));
  DamageTeller damages(options.file);
  for (const std::string& damage : recording->damages()) damages.Tell(damage);
  if (options.on_server) {
    PALPATE_ASSIGN_OR_RETURN(client::Connection connection, Connect(session));
    return ReplayOn(std::move(connection), session, options, "", damages, [] { return absl::OkStatus(); });
  }
  OwnServerOptions server_options;
  server_options.http = options.headless ? "off" : options.http;
  server_options.device = options.device;
  if (!options.web_root.empty()) server_options.arguments = {"--web-root", options.web_root};
  server_options.while_waiting = [] { return g_interrupted.load() ? absl::CancelledError("interrupted") : absl::OkStatus(); };
  PALPATE_ASSIGN_OR_RETURN(OwnServer server, OwnServer::Start(server_options));
  const std::string url = options.headless ? "" : absl::StrFormat("http://127.0.0.1:%d/", server.http_port());
  const absl::Status status = ReplayOn(server.connection(), session, options, url, damages, [&server] { return server.CheckAlive(); });
  const absl::Status stopped = server.Stop();
  return status.ok() ? stopped : status;
}

// --- seek, branch, bookmark, timeline ---------------------------------------------------------------------------------------------------

void PrintTimeline(const v1::Timeline& timeline) {
  absl::PrintF("steps      %d to %d (%.3f s each)%s\n", timeline.begin(), timeline.end(), timeline.dt_s(),
               timeline.is_replay() ? absl::StrCat(", replay of ", timeline.source(), " at ", timeline.position()) : "");
  absl::PrintF("durable    to step %d\n", timeline.durable());
  if (timeline.divergences() > 0) {
    absl::PrintF("differs    %d steps from the recording, the first is %d\n", timeline.divergences(), timeline.first_divergence());
  }
  Table table({"event", "step", "time", "what"});
  for (const v1::Timeline::Event& event : timeline.events()) {
    table.AddRow({event.kind(), absl::StrCat(event.position()),
                  absl::StrFormat("%.3f s", static_cast<double>(event.position()) * timeline.dt_s()), event.label()});
  }
  if (timeline.events_size() > 0) absl::PrintF("\n%s", table.ToString());
}

/// Of a scene, or of a recording's file.
absl::Status ShowTimeline(const Session& session, const std::string& name) {
  v1::Timeline timeline;
  std::error_code error;
  // No scene's id has such characters.
  if (fs::is_regular_file(name, error) || name.find_first_of("./") != std::string::npos) {
    PALPATE_ASSIGN_OR_RETURN(const std::shared_ptr<const record::Recording> recording, record::Recording::OpenFile(name));
    timeline.set_begin(recording->begin_position());
    timeline.set_end(recording->end_position());
    timeline.set_durable(recording->end_position());
    timeline.set_dt_s(recording->head().dt_s());
    timeline.set_source(recording->head().scene_id());
    for (const v1::Timeline::Event& event : recording->events().events()) *timeline.add_events() = event;
    for (const std::string& damage : recording->damages()) absl::FPrintF(stderr, "palpate: %s\n", damage);
  } else {
    PALPATE_ASSIGN_OR_RETURN(client::Connection connection, Connect(session));
    PALPATE_ASSIGN_OR_RETURN(timeline, RecordClient(std::move(connection)).GetTimeline(name));
  }
  if (session.json) {
    PrintJson(timeline);
  } else {
    PrintTimeline(timeline);
  }
  return absl::OkStatus();
}

void PrintInfo(const v1::SceneInfo& info, bool json) {
  if (json) {
    PrintJson(info);
  } else {
    absl::PrintF("%s: step %d, %.3f s, state hash %016x\n", info.scene_id(), info.step(), info.sim_time_s(), info.state_hash());
  }
}

struct SeekOptions {
  v1::SeekSceneRequest request;
  std::optional<uint64_t> step;
  std::optional<double> time_s;
  std::string bookmark;
};

absl::Status Seek(const Session& session, SeekOptions options) {
  PALPATE_ASSIGN_OR_RETURN(client::Connection connection, Connect(session));
  RecordClient client(std::move(connection));
  if (options.time_s) {
    PALPATE_ASSIGN_OR_RETURN(const v1::Timeline timeline, client.GetTimeline(options.request.scene_id()));
    options.step = static_cast<uint64_t>(*options.time_s / timeline.dt_s() + 0.5);
  }
  if (!options.bookmark.empty()) {
    options.request.set_bookmark(options.bookmark);
  } else if (options.step) {
    options.request.set_position(*options.step);
  } else {
    return absl::InvalidArgumentError("give --step, --time or --bookmark");
  }
  PALPATE_ASSIGN_OR_RETURN(const v1::SceneInfo info, client.Seek(options.request));
  PrintInfo(info, session.json);
  return absl::OkStatus();
}

// --- diff -------------------------------------------------------------------------------------------------------------------------------

nlohmann::ordered_json DiffJson(const RecordingDiff& diff) {
  nlohmann::ordered_json json = {{"same", diff.is_same()},
                                 {"begin", diff.begin},
                                 {"end", diff.end},
                                 {"compared_steps", diff.compared_steps},
                                 {"remarks", diff.remarks}};
  if (diff.first_input) json["first_input"] = {{"step", *diff.first_input}, {"what", diff.input}};
  if (diff.first_state) json["first_state"] = {{"step", *diff.first_state}, {"body", diff.body.value_or("")}};
  if (diff.measured_at) json["distance"] = {{"step", *diff.measured_at}, {"body", diff.farthest_body}, {"m", diff.farthest_m}};
  return json;
}

void PrintDiff(const RecordingDiff& diff) {
  absl::PrintF("compared   %d steps, from %d to %d\n", diff.compared_steps, diff.begin, diff.end);
  for (const std::string& remark : diff.remarks) absl::PrintF("remark     %s\n", remark);
  if (diff.first_input) absl::PrintF("input      differs first at step %d: %s\n", *diff.first_input, diff.input);
  if (diff.first_state) {
    const std::string where = diff.body              ? absl::StrCat(" in ", *diff.body)
                              : diff.has_body_hashes ? " inside a body; no surface differs yet"
                                                     : "; hashes of bodies were not recorded";
    absl::PrintF("state      parts at step %d%s\n", *diff.first_state, where);
  }
  if (diff.measured_at) {
    absl::PrintF("distance   at most %.3g m on surfaces at step %d, in %s\n", diff.farthest_m, *diff.measured_at,
                 diff.farthest_body.empty() ? "no body" : diff.farthest_body);
  }
  if (diff.is_same()) absl::PrintF("same       every input and every state\n");
}

absl::Status Diff(const Session& session, const std::string& a, const std::string& b) {
  PALPATE_ASSIGN_OR_RETURN(const std::shared_ptr<const record::Recording> first, record::Recording::OpenFile(a));
  PALPATE_ASSIGN_OR_RETURN(const std::shared_ptr<const record::Recording> second, record::Recording::OpenFile(b));
  PALPATE_ASSIGN_OR_RETURN(const RecordingDiff diff, CompareRecordings(*first, *second));
  if (session.json) {
    absl::PrintF("%s\n", DiffJson(diff).dump());
  } else {
    PrintDiff(diff);
  }
  return diff.is_same() ? absl::OkStatus() : absl::FailedPreconditionError("the recordings differ");
}

}  // namespace

void AddRecordCommand(CLI::App& app, Session& session) {
  auto options = std::make_shared<RecordOptions>();
  auto* command = app.add_subcommand("record", "write what a scene does into a file, until Ctrl-C");
  command
      ->add_option_function<std::string>(
          "ID", [options](const std::string& id) { options->request.set_scene_id(id); }, "scene id")
      ->required();
  command->add_option("-o,--output", options->output, "file to write, usually *.plrec")->required();
  auto* from = command->add_option("--from-step", options->from_step, "begin in the past, at this step; the server keeps state");
  auto* begin = command->add_flag_callback(
      "--from-begin", [options] { options->request.set_from_begin(true); }, "begin with the oldest step that the server keeps");
  from->excludes(begin);
  command->add_option("--until-step", options->until_step, "end after this step");
  command->add_option("--seconds", options->seconds, "end after so many seconds")->check(CLI::PositiveNumber);
  command->add_flag("--moment", options->moment, "only the present state")->excludes(from)->excludes(begin);
  command->add_flag("--force", options->force, "overwrite the file");
  command->callback([&session, options] { session.action = [&session, options] { return Record(session, *options); }; });
}

void AddReplayCommand(CLI::App& app, Session& session) {
  auto options = std::make_shared<ReplayOptions>();
  auto* command = app.add_subcommand("replay", "play a recording, in a viewer on this machine or on a server");
  command->add_option("FILE", options->file, "recording")->required()->check(CLI::ExistingFile);
  auto* fast = command->add_flag("--fast", options->fast, "as fast as possible instead of in real time");
  command->add_option("--speed", options->speed, "simulated seconds per second")->check(CLI::Range(0.01, 100.0))->excludes(fast);
  command->add_option("--from", options->from, "step to begin with");
  command->add_option("--id", options->scene_id, "id of the scene that replays; default: the server picks one");
  auto* on_server =
      command->add_flag("--on-server", options->on_server, "on the server of --server, which goes on with it; default: one of its own");
  command->add_flag("--temporary", options->temporary, "the server deletes it when nobody has used it for 10 minutes")->needs(on_server);
  command->add_flag("--headless", options->headless, "no viewer: play to the end, and fail where the states differ from the recorded ones");
  command->add_option("--http", options->http, "address of the viewer, ADDRESS:PORT")->capture_default_str();
  command->add_option("--web-root", options->web_root, "folder of the viewer's files")->take_last();
  command->add_option("--device", options->device, "OpenCL device of the own server, see `palpate devices`");
  command->callback([&session, options] { session.action = [&session, options] { return Replay(session, *options); }; });
}

void AddPastCommands(CLI::App& app, Session& session) {
  auto seek = std::make_shared<SeekOptions>();
  auto* seek_command = app.add_subcommand("seek", "take a scene that replays to another step");
  seek_command
      ->add_option_function<std::string>(
          "ID", [seek](const std::string& id) { seek->request.set_scene_id(id); }, "scene id")
      ->required();
  auto* step = seek_command->add_option("--step", seek->step, "steps since the scene was created");
  auto* time = seek_command->add_option("--time", seek->time_s, "the same in seconds of simulated time")->excludes(step);
  seek_command->add_option("--bookmark", seek->bookmark, "name of a bookmark")->excludes(step)->excludes(time);
  seek_command->callback([&session, seek] { session.action = [&session, seek] { return Seek(session, *seek); }; });

  auto name = std::make_shared<std::string>();
  auto* timeline = app.add_subcommand("timeline", "the past of a scene, or of a recording");
  timeline->add_option("ID_OR_FILE", *name, "scene id, or a recording's file")->required();
  timeline->callback([&session, name] { session.action = [&session, name] { return ShowTimeline(session, *name); }; });

  auto branch = std::make_shared<v1::BranchSceneRequest>();
  auto* branch_command = app.add_subcommand("branch", "make a scene that goes on from where another one is");
  branch_command
      ->add_option_function<std::string>(
          "ID", [branch](const std::string& id) { branch->set_scene_id(id); }, "scene id")
      ->required();
  branch_command->add_option_function<std::string>(
      "--id", [branch](const std::string& id) { branch->set_branch_id(id); }, "id of the new scene; default: the server picks one");
  branch_command->add_flag_callback(
      "--play", [branch] { branch->set_play(true); }, "play it at once");
  branch_command->callback([&session, branch] {
    session.action = [&session, branch]() -> absl::Status {
      PALPATE_ASSIGN_OR_RETURN(client::Connection connection, Connect(session));
      PALPATE_ASSIGN_OR_RETURN(const v1::SceneInfo info, RecordClient(std::move(connection)).Branch(*branch));
      PrintInfo(info, session.json);
      return absl::OkStatus();
    };
  });

  auto bookmark = std::make_shared<v1::SetBookmarkRequest>();
  auto* bookmark_command = app.add_subcommand("bookmark", "give a moment of a scene a name");
  bookmark_command
      ->add_option_function<std::string>(
          "ID", [bookmark](const std::string& id) { bookmark->set_scene_id(id); }, "scene id")
      ->required();
  bookmark_command
      ->add_option_function<std::string>(
          "NAME", [bookmark](const std::string& text) { bookmark->set_name(text); }, "its name")
      ->required();
  bookmark_command->add_option_function<uint64_t>(
      "--step", [bookmark](uint64_t place) { bookmark->set_position(place); }, "steps since the scene was created; default: now");
  bookmark_command->add_flag_callback(
      "--remove", [bookmark] { bookmark->set_remove(true); }, "take the name away");
  bookmark_command->callback([&session, bookmark] {
    session.action = [&session, bookmark]() -> absl::Status {
      PALPATE_ASSIGN_OR_RETURN(client::Connection connection, Connect(session));
      return RecordClient(std::move(connection)).SetBookmark(*bookmark).status();
    };
  });

  auto files = std::make_shared<std::pair<std::string, std::string>>();
  auto* diff = app.add_subcommand("diff", "where two recordings part: first input, step and body");
  diff->add_option("A", files->first, "recording")->required()->check(CLI::ExistingFile);
  diff->add_option("B", files->second, "recording")->required()->check(CLI::ExistingFile);
  diff->callback([&session, files] { session.action = [&session, files] { return Diff(session, files->first, files->second); }; });
}

}  // namespace palpate::cli
