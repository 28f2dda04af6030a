// palpate demo: a server, a station with a simulated hand and a streaming viewer on this machine, as child processes, until Ctrl-C or for a
// given time.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <thread>

#include <nlohmann/json.hpp>

#include "absl/strings/str_format.h"
#include "clients/cli/child_process.h"
#include "clients/cli/commands.h"
#include "clients/cli/console.h"
#include "clients/cli/demo_plan.h"
#include "clients/cli/frame_statistics.h"
#include "clients/cli/own_server.h"
#include "clients/cpp/scene_client.h"
#include "clients/cpp/watch_stream.h"
#include "gpu/base/status.h"

namespace palpate::cli {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using Clock = FrameStatistics::Clock;
using Json = nlohmann::ordered_json;

constexpr auto kAttachLimit = 30s;
constexpr auto kStopPatience = 10s;
constexpr int kDefaultHttpPort = 8080;
constexpr double kViewerRateHz = 60;

struct DemoOptions : DemoRequest {
  bool headless = false;
  double seconds = 0;
  bool fast = false;
};

/// A folder that goes away with the object.
class TemporaryFolder {
 public:
  TemporaryFolder() : path_((fs::temp_directory_path() / "palpate-demo-XXXXXX").string()) { made_ = mkdtemp(path_.data()) != nullptr; }
  ~TemporaryFolder() {
    std::error_code ignored;
    if (made_) fs::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  bool made() const { return made_; }
  std::string Path(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
  bool made_ = false;
};

absl::StatusOr<Json> ReadJson(const std::string& path) {
  std::ifstream file(path);
  Json json = Json::parse(file, nullptr, /*allow_exceptions=*/false);
  if (!file || json.is_discarded()) return absl::NotFoundError(absl::StrFormat("%s: no JSON could be read", path));
  return json;
}

absl::Status Interrupted() { return absl::CancelledError("interrupted"); }

/// Reads one stream into statistics on a thread of its own, until it ends or the object dies.
class StreamReader {
 public:
  StreamReader(const client::Connection& connection, const v1::WatchRequest& request) : stream_(connection, request) {
    thread_ = std::thread([this] {
      v1::WatchUpdate update;
      while (stream_.Read(&update)) {
        if (update.has_frame()) statistics_.Add(update.frame(), update.ByteSizeLong(), Clock::now());
      }
      end_ = stream_.Finish();
    });
  }
  ~StreamReader() { Stop().IgnoreError(); }
  StreamReader(const StreamReader&) = delete;
  StreamReader& operator=(const StreamReader&) = delete;

  /// Ends the stream. Why it ended: OK or Cancelled if by this call.
  absl::Status Stop() {
    stream_.Cancel();
    if (thread_.joinable()) thread_.join();
    return end_;
  }
  const FrameStatistics& statistics() const { return statistics_; }

 private:
  client::WatchStream stream_;
  FrameStatistics statistics_;
  absl::Status end_;  // of the thread until it is joined
  std::thread thread_;
};

class Demo {
 public:
  explicit Demo(DemoOptions options) : options_(std::move(options)) {}

  /// The whole life of a demo.
  absl::Status Run();

 private:
  absl::Status StartServer();
  absl::Status StartStation();
  absl::Status WaitForViewer();
  absl::Status WaitForHand();
  absl::Status Measure();
  absl::Status CheckAlive();
  absl::StatusOr<Json> StopStation();
  absl::Status WriteReport(const Json& station) const;
  std::string StatusLine() const;
  absl::Status StationEnded(int exit_status) const;

  DemoOptions options_;
  DemoPlan plan_;
  std::string scene_id_;
  TemporaryFolder folder_;
  std::optional<OwnServer> server_;
  std::optional<ChildProcess> station_;
  std::string url_;
  std::string device_;
  std::string commit_;
  // What a viewer gets, and every step without its positions: a viewer sees only some of the steps.
  std::optional<StreamReader> viewer_;
  std::optional<StreamReader> steps_;
};

/// What the station said last about its device loop: the rate, or nothing before its first line.
std::string HandRate(const std::string& log) {
  std::ifstream file(log);
  std::string rate;
  for (std::string line; std::getline(file, line);) {
    double rate_hz = 0;
    if (const size_t at = line.find("loop "); at != std::string::npos && std::sscanf(line.c_str() + at, "loop %lf Hz", &rate_hz) == 1) {
      rate = absl::StrFormat("%.0f Hz", rate_hz);
    }
  }
  return rate.empty() ? "starting" : rate;
}

/// Whether a server on the loopback address could have this port now.
bool IsPortFree(int port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return false;
  const int reuse = 1;  // as servers do, so that connections that linger do not count
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &reuse, sizeof(reuse));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const bool is_free = bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
  close(fd);
  return is_free;
}

absl::Status Demo::StartServer() {
  OwnServerOptions server;
  server.http = options_.http;
  if (server.http.empty()) {
    server.http = options_.headless || !IsPortFree(kDefaultHttpPort) ? "127.0.0.1:0" : absl::StrCat("127.0.0.1:", kDefaultHttpPort);
  }
  server.device = options_.device;
  // The viewer's time line needs a past; it goes with the demo.
  server.arguments = {"--scene", options_.scene, "--state-dir", folder_.Path("state")};
  if (!options_.web_root.empty()) server.arguments.insert(server.arguments.end(), {"--web-root", options_.web_root});
  const auto begin = Clock::now();
  bool patient = false;
  server.while_waiting = [&]() -> absl::Status {
    if (g_interrupted.load()) return Interrupted();
    if (!patient && Clock::now() - begin > 2s) {
      absl::FPrintF(stderr, "server: starting; the first start on a machine compiles the OpenCL kernels\n");
      patient = true;
    }
    return absl::OkStatus();
  };
  absl::StatusOr<OwnServer> started = OwnServer::Start(server);
  if (!started.ok()) return started.status();
  server_.emplace(*std::move(started));
  client::SceneClient scenes(server_->connection());
  PALPATE_ASSIGN_OR_RETURN(const v1::GetServerInfoResponse info, scenes.ServerInfo());
  PALPATE_ASSIGN_OR_RETURN(const std::vector<v1::SceneInfo> list, scenes.List());
  if (list.empty()) return absl::InternalError(absl::StrFormat("the server made no scene of %s", options_.scene));
  scene_id_ = list.front().scene_id();
  const std::string host = server.http.substr(0, server.http.rfind(':'));
  url_ = absl::StrFormat("http://%s:%d/?scene=%s", host == "0.0.0.0" ? "127.0.0.1" : host, server_->http_port(), scene_id_);
  device_ = info.device();
  commit_ = info.commit();
  if (options_.fast) {
    v1::Rate rate;
    rate.set_mode(v1::RATE_MODE_AS_FAST_AS_POSSIBLE);
    PALPATE_RETURN_IF_ERROR(scenes.SetRate(scene_id_, rate).status());
  }
  return absl::OkStatus();
}

absl::Status Demo::StartStation() {
  std::vector<std::string> arguments = {SiblingProgram("palpate-station"),
                                        "--server",
                                        server_->target(),
                                        "--scene",
                                        scene_id_,
                                        "--tool",
                                        plan_.tool,
                                        "--device",
                                        plan_.hand,
                                        "--report",
                                        folder_.Path("station.json")};
  PALPATE_ASSIGN_OR_RETURN(station_, ChildProcess::Start(arguments, folder_.Path("station.log")));
  return absl::OkStatus();
}

absl::Status Demo::StationEnded(int exit_status) const {
  return absl::InternalError(
      absl::StrFormat("palpate-station ended with status %d; its last words:%s", exit_status, TailOf(folder_.Path("station.log"))));
}

absl::Status Demo::CheckAlive() {
  PALPATE_RETURN_IF_ERROR(server_->CheckAlive());
  if (!station_) return absl::OkStatus();
  const auto status = station_->ExitStatus();
  return status ? StationEnded(*status) : absl::OkStatus();
}

/// The hand and the streams of the demo would begin the show before anybody sees it.
absl::Status Demo::WaitForViewer() {
  client::SceneClient scenes(server_->connection());
  while (true) {
    PALPATE_RETURN_IF_ERROR(CheckAlive());
    PALPATE_ASSIGN_OR_RETURN(const v1::GetSceneResponse response, scenes.Get(scene_id_));
    if (response.scene().watchers() > 0) return absl::OkStatus();
    if (g_interrupted.load()) return Interrupted();
    std::this_thread::sleep_for(50ms);
  }
}

absl::Status Demo::WaitForHand() {
  client::SceneClient scenes(server_->connection());
  const auto begin = Clock::now();
  while (true) {
    PALPATE_RETURN_IF_ERROR(CheckAlive());
    PALPATE_ASSIGN_OR_RETURN(const v1::GetSceneResponse response, scenes.Get(scene_id_));
    const auto& operated = response.scene().operated_tools();
    if (std::find(operated.begin(), operated.end(), plan_.tool) != operated.end()) return absl::OkStatus();
    if (g_interrupted.load()) return Interrupted();
    if (Clock::now() - begin > kAttachLimit) {
      return absl::DeadlineExceededError(absl::StrFormat("palpate-station holds no tool after %d s; its last words:%s",
                                                         kAttachLimit.count(), TailOf(folder_.Path("station.log"))));
    }
    std::this_thread::sleep_for(20ms);
  }
}

std::string Demo::StatusLine() const {
  const auto seen = viewer_->statistics().snapshot();
  const auto& stats = seen.last.stats();
  double force_n = 0;
  uint32_t contacts = 0;
  for (const auto& tool : seen.last.tools()) {
    force_n += std::hypot(tool.force_n().x(), tool.force_n().y(), tool.force_n().z());
    contacts += tool.contact_count();
  }
  return absl::StrFormat("step %d  %.1f steps/s  %.2f ms/step  %d late  %d contacts  %.2f N  hand %s  viewer %.0f kB/s", seen.last_step,
                         stats.steps_per_s(), stats.step_ms(), stats.overruns(), contacts, force_n,
                         station_ ? HandRate(folder_.Path("station.log")) : "none",
                         seen.span_s > 0 ? static_cast<double>(seen.bytes) / seen.span_s / 1000 : 0.0);
}

absl::Status Demo::Measure() {
  v1::WatchRequest viewer;
  viewer.set_scene_id(scene_id_);
  viewer.set_positions(v1::POSITION_ENCODING_UINT16);
  viewer.set_max_rate_hz(kViewerRateHz);
  viewer_.emplace(server_->connection(), viewer);
  v1::WatchRequest steps;
  steps.set_scene_id(scene_id_);
  steps.set_positions(v1::POSITION_ENCODING_NONE);
  steps.set_without_contacts(true);
  steps.set_without_tools(true);
  steps.set_max_rate_hz(10000);
  steps_.emplace(server_->connection(), steps);
  const auto begin = Clock::now();
  const bool live = IsTerminal(STDOUT_FILENO);
  for (int second = 1; !g_interrupted.load(); ++second) {
    // A step of 20 ms keeps Ctrl-C quick.
    while (!g_interrupted.load() && Clock::now() < begin + std::chrono::seconds(second)) {
      std::this_thread::sleep_for(20ms);
      if (options_.seconds > 0 && std::chrono::duration<double>(Clock::now() - begin).count() >= options_.seconds) {
        if (live) absl::PrintF("\n");
        return absl::OkStatus();
      }
    }
    PALPATE_RETURN_IF_ERROR(CheckAlive());
    absl::PrintF("%s%s%s", live ? "\r\x1b[K" : "", StatusLine(), live ? "" : "\n");
    std::fflush(stdout);
    if (const std::string failure = viewer_->statistics().snapshot().failure; !failure.empty()) {
      return absl::InternalError(absl::StrFormat("the scene has stopped: %s", failure));
    }
  }
  if (live) absl::PrintF("\n");
  return Interrupted();
}

absl::StatusOr<Json> Demo::StopStation() {
  if (!station_) return Json(nullptr);
  const int status = station_->Stop(kStopPatience);
  if (status != 0) return StationEnded(status);
  return ReadJson(folder_.Path("station.json"));
}

absl::Status Demo::WriteReport(const Json& station) const {
  const auto seen = viewer_->statistics().snapshot();
  Json report = {{"device", device_}, {"commit", commit_}, {"scene", scene_id_}, {"seconds", seen.span_s}};
  report["steps_per_s"] = steps_->statistics().StepsPerSecond();
  report["step_ms"] = steps_->statistics().StepTimes();
  report["station"] = station;
  report["viewer"] = {{"frames", seen.frames},
                      {"dropped", seen.dropped},
                      {"bytes_per_s", seen.span_s > 0 ? static_cast<double>(seen.bytes) / seen.span_s : 0.0}};
  if (seen.frames == 0) return absl::InternalError("the viewer has received no frame");
  return options_.report.empty() ? absl::OkStatus() : WriteFile(options_.report, report.dump(2) + "\n");
}

absl::Status Demo::Run() {
  if (!folder_.made()) return absl::InternalError("no temporary folder can be made");
  PALPATE_ASSIGN_OR_RETURN(plan_, PlanDemo(options_));
  InstallInterruptHandler();
  PALPATE_RETURN_IF_ERROR(StartServer());
  absl::PrintF("server   %s on %s\n", server_->target(), device_);
  if (plan_.waits_for_viewer && !options_.headless) {
    absl::PrintF("viewer   %s\nScene %s begins when a browser opens that address; Ctrl-C ends the demo\n", url_, scene_id_);
    std::fflush(stdout);
    PALPATE_RETURN_IF_ERROR(WaitForViewer());
  }
  if (plan_.tool.empty()) {
    absl::PrintF("station  none: scene %s has no tool\n", scene_id_);
  } else {
    PALPATE_RETURN_IF_ERROR(StartStation());
    PALPATE_RETURN_IF_ERROR(WaitForHand());
    absl::PrintF("station  hand '%s' on tool %s of scene %s\n", plan_.hand, plan_.tool, scene_id_);
  }
  absl::PrintF("viewer   %s\n", url_);
  if (!options_.headless) absl::PrintF("Ctrl-C ends the demo\n");
  std::fflush(stdout);
  const absl::Status measured = Measure();
  // The order of the end: hand, streams, server, so that nobody sees the other vanish.
  const absl::StatusOr<Json> station = StopStation();
  absl::Status result = measured;
  const bool ended_by_person = absl::IsCancelled(measured) && !options_.headless;
  if (measured.ok() || ended_by_person) result = station.ok() ? WriteReport(*station) : station.status();
  for (auto* stream : {&viewer_, &steps_}) {
    if (!stream->has_value()) continue;
    const absl::Status end = (*stream)->Stop();
    if (result.ok() && !end.ok() && !absl::IsCancelled(end)) result = Annotate(end, "a stream of the viewer ended early");
    stream->reset();
  }
  const absl::Status stopped = server_->Stop();
  return result.ok() ? stopped : result;
}

}  // namespace

void AddDemoCommand(CLI::App& app, Session& session) {
  auto options = std::make_shared<DemoOptions>();
  auto* command = app.add_subcommand("demo", "a server, a simulated hand at 1 kHz and the viewer, on this machine, until Ctrl-C");
  // What starts the demo puts its defaults first, so the last of these counts.
  command->add_option("--scene", options->scene, "scene file; a scene without a tool is shown without a hand")->required()->take_last();
  command->add_option("--web-root", options->web_root, "folder of the viewer's files")->take_last();
  command->add_option("--http", options->http,
                      "address of the viewer, ADDRESS:PORT; default: 127.0.0.1:8080, or any port if that is taken or nobody looks");
  command->add_option("--device", options->device, "OpenCL device of the server, see `palpate devices`");
  command->add_option("--tool", options->tool, "the tool that the hand holds; default: 'probe', or else the scene's first");
  command->add_option("--hand", options->hand, "the station's device, see `palpate-station --help`; default: sim, a simulated hand");
  command->add_flag("--fast", options->fast, "as many steps a second as the machine can, instead of real time");
  auto* headless = command->add_flag("--headless", options->headless,
                                     "for machines: end after --seconds; failing, stopping or being stopped early is an error");
  auto* seconds = command->add_option("--seconds", options->seconds, "end after so many seconds")->check(CLI::Range(1.0, 1e6));
  headless->needs(seconds);
  command->add_option("--report", options->report, "write a JSON report: step times, rate and jitter of the hand, viewer traffic");
  command->callback([&session, options] {
    session.action = [options]() -> absl::Status {
      const absl::Status status = Demo(*options).Run();
      // A person who ends the demo gets what they wanted; a machine did not get its report.
      return absl::IsCancelled(status) && !options->headless ? absl::OkStatus() : status;
    };
  });
}

}  // namespace palpate::cli
