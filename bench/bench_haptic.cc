// The haptic loop beside a working server: how even it runs, how old the local models are, what is felt; on a server with one scene, on one
// with others to do, and while somebody carves and cuts the tissue that the hand presses, in scenes that step as often as surgery needs.
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <google/protobuf/util/json_util.h>
#include <nlohmann/json.hpp>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "bench/bench_support.h"
#include "clients/cpp/connection.h"
#include "clients/cpp/scene_client.h"
#include "gpu/base/status.h"

ABSL_FLAG(double, seconds, 60, "length of each case in seconds; --quick: 10");
ABSL_FLAG(std::string, scene, "scenes/liver.json", "scene file");
ABSL_FLAG(std::string, tool, "probe", "tool that the station operates");
ABSL_FLAG(std::string, hand, "sim", "device of the station, see `palpate-station --help`");
ABSL_FLAG(int, load_scenes, 2, "further scenes that run as fast as they can in the loaded case");

extern char** environ;

namespace palpate::bench {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

/// A program that is ended with its owner.
class Child {
 public:
  static absl::StatusOr<Child> Start(const std::vector<std::string>& arguments) {
    std::vector<char*> argv;
    for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
    argv.push_back(nullptr);
    pid_t pid = 0;
    const int error = posix_spawn(&pid, argv[0], nullptr, nullptr, argv.data(), environ);
    if (error != 0) return absl::NotFoundError(absl::StrCat(arguments[0], " cannot be started: ", std::strerror(error)));
    return Child(pid);
  }
  Child(Child&& other) noexcept : pid_(other.pid_) { other.pid_ = 0; }
  Child& operator=(Child&&) = delete;
  ~Child() {
    if (pid_ == 0) return;
    kill(pid_, SIGTERM);
    Wait();
  }

  bool IsRunning() {
    if (pid_ != 0 && waitpid(pid_, &status_, WNOHANG) == pid_) pid_ = 0;
    return pid_ != 0;
  }
  /// Blocks until the program has ended. Its exit status; 128 plus the signal that ended it.
  int Wait() {
    while (pid_ != 0 && waitpid(pid_, &status_, 0) < 0 && errno == EINTR) {
    }
    pid_ = 0;
    return WIFEXITED(status_) ? WEXITSTATUS(status_) : 128 + WTERMSIG(status_);
  }

 private:
  explicit Child(pid_t pid) : pid_(pid) {}
  pid_t pid_;
  int status_ = 0;
};

std::string ReadText(const fs::path& file) {
  std::ifstream stream(file);
  std::ostringstream text;
  text << stream.rdbuf();
  return text.str();
}

absl::StatusOr<nlohmann::json> ReadJson(const fs::path& file) {
  nlohmann::json json = nlohmann::json::parse(ReadText(file), nullptr, false);
  if (json.is_discarded()) return absl::DataLossError(absl::StrCat(file.string(), " is no JSON"));
  return json;
}

/// A case in which tissue is edited while the hand presses it. The scene's own rate is made for an organ that nobody cuts; here it has the
/// rate that operating on an organ of this size needs (60 steps/s at 2,500 tets, 20 at 10,000), so that a step's time is a known one.
struct EditedCase {
  const char* name;
  bool carves;
  double steps_per_s;
  double edge_length_m;  ///< of the first body's generated mesh; 0: as the scene has it
};
constexpr EditedCase kEditedCases[] = {
    {"carved", true, 60, 0},
    {"incised", false, 60, 0},
    {"carved_10k", true, 20, 0.0103},
    {"incised_10k", false, 20, 0.0103},
};

/// What a client that edits tissue has seen.
struct EditFigures {
  std::vector<double> answer_s;  ///< of each request
  double changes = 0;            ///< requests that removed or added a tet
  double removed_tets = 0, added_tets = 0;
  absl::Status status;
};

void SetPoint(double x_m, double y_m, double z_m, v1::Vec3& point) {
  point.set_x(x_m);
  point.set_y(y_m);
  point.set_z(z_m);
}

/// Programs are built into one folder.
std::string Sibling(const std::string& name) { return (fs::read_symlink("/proc/self/exe").parent_path() / name).string(); }

/// Server, scenes and station in a folder for their files.
class Setup {
 public:
  explicit Setup(fs::path folder) : folder_(std::move(folder)) {}

  /// Starts a server with the scene of --scene; a server of before ends.
  absl::Status StartServer() { return StartServerWith(absl::GetFlag(FLAGS_scene)); }
  /// The same with the rate and mesh of `edited`.
  absl::Status StartServer(const EditedCase& edited) {
    PALPATE_ASSIGN_OR_RETURN(nlohmann::json scene, ReadJson(absl::GetFlag(FLAGS_scene)));
    scene["dt_s"] = 1 / edited.steps_per_s;
    if (edited.edge_length_m > 0) {
      const nlohmann::json::json_pointer generator("/bodies/0/generator");
      if (!scene.contains(generator)) {
        return absl::InvalidArgumentError(absl::StrCat(edited.name, " needs a scene whose first body has a generator"));
      }
      scene[generator]["edge_length_m"] = edited.edge_length_m;
    }
    const std::string file = (folder_ / "scene.json").string();
    std::ofstream(file) << scene;
    return StartServerWith(file);
  }

  absl::Status AddLoad(int count) {
    v1::CreateSceneRequest request;
    const google::protobuf::util::Status parsed =
        google::protobuf::util::JsonStringToMessage(ReadText(absl::GetFlag(FLAGS_scene)), request.mutable_spec());
    if (!parsed.ok()) return absl::InvalidArgumentError(absl::StrCat(absl::GetFlag(FLAGS_scene), ": ", parsed.ToString()));
    request.set_play(true);
    request.mutable_rate()->set_mode(v1::RATE_MODE_AS_FAST_AS_POSSIBLE);
    for (int i = 0; i < count; ++i) {
      request.set_scene_id(absl::StrCat("load-", i));
      PALPATE_RETURN_IF_ERROR(scenes_->Create(request).status());
    }
    return absl::OkStatus();
  }

  /// As Measure, while another client edits the tissue beside the hand, 60 times a second: a burr goes to and fro at 2.5 cm/s, or a blade
  /// makes strokes of 0.1 m/s, one in 2 s, first one way and then across.
  absl::Status MeasureEdited(Report& report, const EditedCase& edited, double seconds) {
    const std::string name = edited.name;
    EditFigures edits;
    std::atomic<bool> stop = false;
    std::thread editor([&] { Operate(edited.carves, stop, edits); });
    const absl::Status measured = Measure(report, name, seconds);
    stop = true;
    editor.join();
    PALPATE_RETURN_IF_ERROR(measured);
    PALPATE_RETURN_IF_ERROR(edits.status);
    if (edits.removed_tets == 0) return absl::InternalError(absl::StrCat(name, ": nothing was cut, so the figures would mean nothing"));
    report.Add(name, "edits", static_cast<double>(edits.answer_s.size()), "count");
    report.Add(name, "edits_with_changes", edits.changes, "count");
    report.Add(name, "edit_answer_p50", Quantile(edits.answer_s, 0.5), "s");
    report.Add(name, "edit_answer_p99", Quantile(edits.answer_s, 0.99), "s");
    report.Add(name, "removed_tets", edits.removed_tets, "count");
    report.Add(name, "added_tets", edits.added_tets, "count");
    return absl::OkStatus();
  }

  /// Runs the station and adds its figures to `report`.
  absl::Status Measure(Report& report, const std::string& name, double seconds) {
    const fs::path file = folder_ / "station.json";
    fs::remove(file);
    PALPATE_ASSIGN_OR_RETURN(
        Child station, Child::Start({Sibling("palpate-station"), "--server", target_, "--scene", scene_id_, "--tool",
                                     absl::GetFlag(FLAGS_tool), "--device", absl::GetFlag(FLAGS_hand), "--seconds", absl::StrCat(seconds),
                                     "--report", file.string(), "--quiet", "--log-level", "warning"}));
    const int status = station.Wait();
    if (status != 0) return absl::InternalError(absl::StrCat("palpate-station ended with status ", status));
    PALPATE_ASSIGN_OR_RETURN(const nlohmann::json json, ReadJson(file));
    PALPATE_ASSIGN_OR_RETURN(const std::vector<v1::SceneInfo> scenes, scenes_->List());
    double load_steps_per_s = 0;
    for (const v1::SceneInfo& scene : scenes) {
      if (scene.scene_id() == scene_id_) {
        report.Add(name, "scene_steps", scene.steps_per_s(), "per_s");
      } else {
        load_steps_per_s += scene.steps_per_s();
      }
    }
    report.Add(name, "load_steps", load_steps_per_s, "per_s");
    const auto number = [&](const char* pointer) {
      const nlohmann::json::json_pointer path(pointer);
      return json.contains(path) && json[path].is_number() ? json[path].get<double>() : std::nan("");
    };
    struct Metric {
      const char* name;
      const char* pointer;
      double to_unit;
      const char* unit;
    };
    for (const Metric& metric : std::vector<Metric>{{"cycles", "/cycles", 1, "count"},
                                                    {"rate", "/rate_hz", 1, "per_s"},
                                                    {"jitter_p50", "/jitter_us/p50", 1e-6, "s"},
                                                    {"jitter_p99", "/jitter_us/p99", 1e-6, "s"},
                                                    {"jitter_p999", "/jitter_us/p999", 1e-6, "s"},
                                                    {"jitter_max", "/jitter_us/max", 1e-6, "s"},
                                                    {"missed", "/missed", 1, "count"},
                                                    {"cycle_p50", "/cycle_us/p50", 1e-6, "s"},
                                                    {"cycle_p99", "/cycle_us/p99", 1e-6, "s"},
                                                    {"model_age_p50", "/model_age_ms/p50", 1e-3, "s"},
                                                    {"model_age_p99", "/model_age_ms/p99", 1e-3, "s"},
                                                    {"model_age_max", "/model_age_ms/max", 1e-3, "s"},
                                                    {"model_age_in_steps_p50", "/model_age_ms/p50", 1e-3 / dt_s_, "ratio"},
                                                    {"model_age_in_steps_p99", "/model_age_ms/p99", 1e-3 / dt_s_, "ratio"},
                                                    {"model_age_in_steps_max", "/model_age_ms/max", 1e-3 / dt_s_, "ratio"},
                                                    {"models_received", "/models_received", 1, "count"},
                                                    {"stale_ticks", "/safety/stale_ticks", 1, "count"},
                                                    {"contact_cycles", "/contact_cycles", 1, "count"},
                                                    {"force_mean", "/force_n/mean", 1, "N"},
                                                    {"force_max", "/force_n/max", 1, "N"}}) {
      const double value = number(metric.pointer);
      if (std::isnan(value)) return absl::DataLossError(absl::StrCat("the station's report lacks ", metric.pointer));
      report.Add(name, metric.name, value * metric.to_unit, metric.unit);
    }
    const nlohmann::json& real_time = json["real_time"];
    report.Note(absl::StrCat(name, ": real-time priority ", real_time.value("priority", false) ? "yes" : "no", ", memory locked: ",
                             real_time.value("memory", "?"), real_time.value("priority", false) ? "" : "; " + real_time.value("note", "")));
    return absl::OkStatus();
  }

  void StopServer() { server_.reset(); }

  const std::string& device() const { return device_; }

 private:
  absl::Status StartServerWith(const std::string& scene_file) {
    server_.reset();
    const fs::path ready = folder_ / "ready.json";
    fs::remove(ready);
    std::vector<std::string> arguments = {Sibling("palpate-server"),
                                          "--listen",
                                          "127.0.0.1:0",
                                          "--http",
                                          "off",
                                          "--scene",
                                          scene_file,
                                          "--ready-file",
                                          ready.string(),
                                          "--log-level",
                                          "warning"};
    if (!DeviceSelector().empty()) {
      arguments.emplace_back("--device");
      arguments.push_back(DeviceSelector());
    }
    absl::StatusOr<Child> child = Child::Start(arguments);
    if (!child.ok()) return child.status();
    server_.emplace(*std::move(child));
    // Kernels are compiled on the first start.
    const auto until = Clock::now() + std::chrono::minutes(5);
    while (!fs::exists(ready)) {
      if (!server_->IsRunning()) return absl::UnavailableError("palpate-server ended while it started, see its messages above");
      if (Clock::now() > until) return absl::DeadlineExceededError("palpate-server was not ready within 5 minutes");
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    PALPATE_ASSIGN_OR_RETURN(const nlohmann::json json, ReadJson(ready));
    client::ConnectionOptions options;
    options.target = absl::StrCat("127.0.0.1:", json.value("grpc_port", 0));
    PALPATE_ASSIGN_OR_RETURN(client::Connection connection, client::Connection::Open(options));
    target_ = options.target;
    scenes_.emplace(connection);
    PALPATE_ASSIGN_OR_RETURN(const v1::GetServerInfoResponse info, scenes_->ServerInfo());
    device_ = info.device();
    PALPATE_ASSIGN_OR_RETURN(const std::vector<v1::SceneInfo> scenes, scenes_->List());
    if (scenes.size() != 1) return absl::InternalError(absl::StrCat("the server has ", scenes.size(), " scenes instead of one"));
    scene_id_ = scenes[0].scene_id();
    dt_s_ = scenes[0].dt_s();
    if (scenes[0].bodies().empty()) return absl::InvalidArgumentError(absl::StrCat(scene_file, ": the scene has no body"));
    body_ = scenes[0].bodies(0).name();
    return absl::OkStatus();
  }

  void Operate(bool carves, const std::atomic<bool>& stop, EditFigures& figures) {
    constexpr double kPeriod_s = 1.0 / 60;
    constexpr double kFirst_m = 0, kLength_m = 0.08;  // of a pass, along x; the hand stays on the other side
    constexpr int kPasses = 9;                        // beside each other, 1 cm apart
    const double speed_m_per_s = carves ? 0.025 : 0.1;
    const int edits_per_pass = static_cast<int>(kLength_m / (speed_m_per_s * kPeriod_s));
    const int period_of_pass = carves ? edits_per_pass : 120;
    auto next = Clock::now();
    for (int i = 0; !stop; ++i) {
      next = std::max(next + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(kPeriod_s)), Clock::now());
      std::this_thread::sleep_until(next);
      const int k = i % period_of_pass;
      if (k >= edits_per_pass) continue;
      const int pass = i / period_of_pass;
      const bool is_across = !carves && pass / kPasses % 2 == 1;
      const double depth_m = carves ? 0.02 - 0.01 * (pass / kPasses) : 0.01;  // height of the tool's end
      const double beside_m = -0.04 + 0.01 * (pass % kPasses);
      const auto at = [&](int step, v1::Vec3& low, v1::Vec3& high) {
        const double along_m = kFirst_m + kLength_m * step / edits_per_pass;
        const double x_m = is_across ? kFirst_m + kLength_m / 2 + beside_m : along_m;
        const double y_m = is_across ? along_m - kFirst_m - kLength_m / 2 : beside_m;
        SetPoint(x_m, y_m, depth_m, low);
        SetPoint(x_m, y_m, 0.1, high);
      };
      v1::EditSceneRequest request;
      request.set_scene_id(scene_id_);
      v1::Edit& edit = *request.add_edits();
      edit.set_body(body_);
      if (carves) {
        v1::CapsuleRegion& burr = *edit.mutable_carve()->mutable_region()->mutable_capsule();
        at(k, *burr.mutable_end0_m(), *burr.mutable_end1_m());
        burr.set_radius_m(0.006);
      } else {
        for (const int step : {k, k + 1}) {
          v1::BladeEdge& edge = *edit.mutable_incise()->add_edges();
          at(step, *edge.mutable_end0_m(), *edge.mutable_end1_m());
        }
      }
      const Clock::time_point begin = Clock::now();
      const absl::StatusOr<v1::EditSceneResponse> response = scenes_->Edit(request);
      if (!response.ok()) {
        figures.status = response.status();
        return;
      }
      figures.answer_s.push_back(std::chrono::duration<double>(Clock::now() - begin).count());
      for (const v1::EditOutcome& outcome : response->outcomes()) {
        figures.removed_tets += outcome.removed_tets_size();
        figures.added_tets += outcome.added_tets_size();
        if (outcome.removed_tets_size() + outcome.added_tets_size() > 0) ++figures.changes;
      }
    }
  }

  fs::path folder_;
  std::optional<Child> server_;
  std::optional<client::SceneClient> scenes_;
  std::string target_;
  std::string scene_id_;
  std::string body_;
  double dt_s_ = 1;
  std::string device_;
};

absl::Status RunCases(Setup& setup, Report& report) {
  const double seconds = IsQuick() ? std::min(10.0, absl::GetFlag(FLAGS_seconds)) : absl::GetFlag(FLAGS_seconds);
  if (!(seconds > 0 && seconds <= 1e6)) return absl::InvalidArgumentError(absl::StrCat("--seconds = ", seconds, " is not in (0, 1e6]"));
  if (IsSelected("idle_server")) PALPATE_RETURN_IF_ERROR(setup.Measure(report, "idle_server", seconds));
  if (IsSelected("loaded_server")) {
    PALPATE_RETURN_IF_ERROR(setup.AddLoad(absl::GetFlag(FLAGS_load_scenes)));
    PALPATE_RETURN_IF_ERROR(setup.Measure(report, "loaded_server", seconds));
  }
  for (const EditedCase& edited : kEditedCases) {
    if (!IsSelected(edited.name)) continue;
    PALPATE_RETURN_IF_ERROR(setup.StartServer(edited));
    PALPATE_RETURN_IF_ERROR(setup.MeasureEdited(report, edited, seconds));
  }
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  Initialize(argc, argv, "The station's 1 kHz loop beside a server with one scene, with further scenes, and while tissue is cut.");
  const fs::path folder = fs::temp_directory_path() / absl::StrCat("palpate_bench_haptic_", getpid());
  fs::create_directories(folder);
  int status = 1;
  {
    Setup setup(folder);
    const absl::Status started = setup.StartServer();
    Report report("haptic", started.ok() ? setup.device() : "none");
    const absl::Status measured = started.ok() ? RunCases(setup, report) : started;
    setup.StopServer();  // processor time of programs that still run would count as that of others
    status = report.Finish(measured);
  }
  fs::remove_all(folder);
  return status;
}

}  // namespace
}  // namespace palpate::bench

int main(int argc, char** argv) { return palpate::bench::Main(argc, argv); }
