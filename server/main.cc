// palpate-server: runs scenes and serves them to stations, viewers and programs.
#include <google/protobuf/stubs/logging.h>
#include <grpc/support/log.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "gpu/base/status.h"
#include "gpu/runtime/driver_cache.h"
#include "server/core/build_info.h"
#include "server/core/config.h"
#include "server/core/log.h"
#include "server/core/server.h"

ABSL_FLAG(std::optional<std::string>, config, std::nullopt, "configuration file");
ABSL_FLAG(std::optional<std::string>, listen, std::nullopt, "gRPC address");
ABSL_FLAG(std::optional<std::string>, http, std::nullopt, "HTTP address");
ABSL_FLAG(std::optional<std::string>, web_root, std::nullopt, "viewer folder");
ABSL_FLAG(std::optional<std::string>, scene, std::nullopt, "scene files");
ABSL_FLAG(std::optional<std::string>, asset_root, std::nullopt, "mesh folder");
ABSL_FLAG(std::optional<std::string>, device, std::nullopt, "OpenCL device");
ABSL_FLAG(std::optional<std::string>, log_level, std::nullopt, "log level");
ABSL_FLAG(std::optional<bool>, log_json, std::nullopt, "log as JSON");
ABSL_FLAG(std::optional<std::string>, ready_file, std::nullopt, "ready file");
ABSL_FLAG(bool, stop_with_stdin, false, "stop at the end of the standard input");
ABSL_FLAG(std::optional<std::string>, tls_cert, std::nullopt, "certificate");
ABSL_FLAG(std::optional<std::string>, tls_key, std::nullopt, "private key");
ABSL_FLAG(std::optional<bool>, insecure, std::nullopt, "no TLS needed");
ABSL_FLAG(std::optional<std::string>, token_file, std::nullopt, "token file");
ABSL_FLAG(std::optional<uint32_t>, max_scenes, std::nullopt, "limit");
ABSL_FLAG(std::optional<uint32_t>, max_bodies_per_scene, std::nullopt, "limit");
ABSL_FLAG(std::optional<uint64_t>, max_tets_per_scene, std::nullopt, "limit");
ABSL_FLAG(std::optional<uint64_t>, max_message_bytes, std::nullopt, "limit");
ABSL_FLAG(std::optional<uint32_t>, max_streams, std::nullopt, "limit");
ABSL_FLAG(std::optional<uint32_t>, max_kept_versions, std::nullopt, "limit");
ABSL_FLAG(std::optional<std::string>, allowed_host, std::nullopt, "host names");
ABSL_FLAG(std::optional<uint32_t>, max_connections, std::nullopt, "limit");
ABSL_FLAG(std::optional<uint32_t>, upload_timeout_s, std::nullopt, "limit");
ABSL_FLAG(std::optional<uint64_t>, max_buffer_bytes, std::nullopt, "limit");
ABSL_FLAG(std::optional<std::string>, state_dir, std::nullopt, "folder of state");
ABSL_FLAG(std::optional<double>, checkpoint_interval_s, std::nullopt, "time between checkpoints");
ABSL_FLAG(std::optional<uint64_t>, checkpoint_steps, std::nullopt, "steps between checkpoints");
ABSL_FLAG(std::optional<uint64_t>, max_state_bytes, std::nullopt, "limit");
ABSL_FLAG(std::optional<double>, sync_interval_s, std::nullopt, "time until entries are on disk");

namespace palpate::server {
namespace {

constexpr std::chrono::seconds kStopLimit{8};

constexpr char kHelp[] = R"(palpate-server: simulates deformable scenes and serves them to stations, viewers and programs.

Usage: palpate-server [flags]

  --config FILE             JSON configuration with the same settings (palpate.v1.ServerConfig); flags override it
  --listen HOST:PORT        gRPC address (default 127.0.0.1:50051; port 0: the system picks one)
  --http HOST:PORT          browser viewer, /metrics and /healthz (default 127.0.0.1:8080); "off": none
  --web-root DIR            folder of the built viewer
  --scene FILE              scene to create and play at the start; its id is the file's stem (repeat, or separate by commas)
  --asset-root DIR          folder of mesh files that clients may name in a scene
  --device SPEC             OpenCL device: auto, gpu, cpu, an index, or a part of its name (default auto)
  --log-level LEVEL         trace, debug, info, warning, error, off (default info)
  --log-json                one JSON object a log line
  --ready-file FILE         written when the server accepts calls: {"grpc_port":N,"http_port":N}
  --stop-with-stdin         stop when the standard input ends: a program that holds its other end takes the server with it, however it dies

State (scenes outlive the process; see docs/recordings.md):
  --state-dir DIR           folder for journals and checkpoints; the next start brings every scene back from it
  --checkpoint-interval-s S wall time between checkpoints of a running scene (10; 0: none by time)
  --checkpoint-steps N      steps between them (0: none by steps)
  --max-state-bytes N       what one scene and its replays may hold on disk (1073741824); old checkpoints go, then old entries
  --sync-interval-s S       steps are on disk after this time at the latest (0.1); edits before they are answered

Security:
  --tls-cert FILE, --tls-key FILE   PEM certificate chain and private key for TLS
  --insecure                allow an address that is not loopback without TLS
  --token-file FILE         calls must carry `authorization: Bearer <text of the file>`; the browser viewer asks for it
  --allowed-host NAME       name under which browsers may reach --http, besides localhost and the names and addresses of this
                            machine (repeat, or separate by commas)

Limits (a scene or stream beyond them is refused with RESOURCE_EXHAUSTED):
  --max-scenes N (16)       --max-bodies-per-scene N (1024)   --max-tets-per-scene N (2000000)
  --max-streams N (256)     --max-message-bytes N (67108864)

  --max-connections N       of the gRPC port (1024, or fewer where the limit on descriptors is low)
  --max-buffer-bytes N      what gRPC may hold in memory for all clients together (4 times --max-message-bytes)
  --upload-timeout-s N      a request that has not arrived within this time ends its call with DEADLINE_EXCEEDED (30)

  --max-kept-versions N     readers of a scene that miss more changes of its topology than this get all of it anew (1024)

  --version                 version and commit
  --help                    this text

Exit codes: 0 after SIGINT or SIGTERM or --stop-with-stdin, 1 on a failure, 2 on a wrong flag or configuration.
)";

/// absl spells flags with underscores and keeps the last of a repeated one: dashes become underscores, repeated flags of a list one list.
/// Sets `help` or `version` when those are asked for. Errors: InvalidArgument (an argument that is no flag).
absl::StatusOr<std::vector<std::string>> NormalizeArguments(int argc, char** argv, bool& help, bool& version) {
  std::vector<std::string> out = {argv[0]};
  std::map<std::string, std::vector<std::string>> lists = {{"scene", {}}, {"allowed_host", {}}};
  for (int i = 1; i < argc; ++i) {
    std::string argument = argv[i];
    if (argument == "-h") argument = "--help";
    if (argument.size() < 3 || argument.compare(0, 2, "--") != 0) {
      return absl::InvalidArgumentError(absl::StrCat("unexpected argument \"", argument, "\"; see --help"));
    }
    const size_t equals = argument.find('=');
    std::string name = argument.substr(2, equals == std::string::npos ? equals : equals - 2);
    for (char& c : name) c = c == '-' ? '_' : c;
    if (name == "help") {
      help = true;
      continue;
    }
    if (name == "version") {
      version = true;
      continue;
    }
    std::optional<std::string> value;
    if (equals != std::string::npos) {
      value = argument.substr(equals + 1);
    } else if (name == "log_json" || name == "insecure" || name == "stop_with_stdin") {
      value = "true";
    } else if (name == "nolog_json" || name == "noinsecure" || name == "nostop_with_stdin") {
      name.erase(0, 2);
      value = "false";
    } else {
      if (i + 1 >= argc) return absl::InvalidArgumentError(absl::StrCat("--", argument.substr(2), " needs a value; see --help"));
      value = argv[++i];
    }
    if (const auto list = lists.find(name); list != lists.end()) {
      list->second.push_back(*value);
    } else {
      out.push_back(absl::StrCat("--", name, "=", *value));
    }
  }
  for (const auto& [name, values] : lists) {
    if (!values.empty()) out.push_back(absl::StrCat("--", name, "=", absl::StrJoin(values, ",")));
  }
  return out;
}

template <typename T, typename Set>
void Override(const absl::Flag<std::optional<T>>& flag, Set set) {
  if (const std::optional<T> value = absl::GetFlag(flag)) set(*value);
}

v1::ServerConfig FlagConfig() {
  v1::ServerConfig c;
  Override(FLAGS_listen, [&](const auto& v) { c.set_listen(v); });
  Override(FLAGS_http, [&](const auto& v) { c.set_http(v); });
  Override(FLAGS_web_root, [&](const auto& v) { c.set_web_root(v); });
  Override(FLAGS_scene, [&](const std::string& v) {
    for (const auto& file : absl::StrSplit(v, ',', absl::SkipEmpty())) c.add_scene(std::string(file));
  });
  Override(FLAGS_asset_root, [&](const auto& v) { c.set_asset_root(v); });
  Override(FLAGS_device, [&](const auto& v) { c.set_device(v); });
  Override(FLAGS_log_level, [&](const auto& v) { c.set_log_level(v); });
  Override(FLAGS_log_json, [&](bool v) { c.set_log_json(v); });
  Override(FLAGS_ready_file, [&](const auto& v) { c.set_ready_file(v); });
  Override(FLAGS_tls_cert, [&](const auto& v) { c.set_tls_cert(v); });
  Override(FLAGS_tls_key, [&](const auto& v) { c.set_tls_key(v); });
  Override(FLAGS_insecure, [&](bool v) { c.set_insecure(v); });
  Override(FLAGS_token_file, [&](const auto& v) { c.set_token_file(v); });
  Override(FLAGS_max_scenes, [&](uint32_t v) { c.mutable_limits()->set_max_scenes(v); });
  Override(FLAGS_max_bodies_per_scene, [&](uint32_t v) { c.mutable_limits()->set_max_bodies_per_scene(v); });
  Override(FLAGS_max_tets_per_scene, [&](uint64_t v) { c.mutable_limits()->set_max_tets_per_scene(v); });
  Override(FLAGS_max_message_bytes, [&](uint64_t v) { c.mutable_limits()->set_max_message_bytes(v); });
  Override(FLAGS_max_streams, [&](uint32_t v) { c.mutable_limits()->set_max_streams(v); });
  Override(FLAGS_allowed_host, [&](const std::string& v) {
    for (const auto& host : absl::StrSplit(v, ',', absl::SkipEmpty())) c.add_allowed_host(std::string(host));
  });
  Override(FLAGS_max_connections, [&](uint32_t v) { c.set_max_connections(v); });
  Override(FLAGS_upload_timeout_s, [&](uint32_t v) { c.set_upload_timeout_s(v); });
  Override(FLAGS_max_buffer_bytes, [&](uint64_t v) { c.set_max_buffer_bytes(v); });
  Override(FLAGS_state_dir, [&](const auto& v) { c.set_state_dir(v); });
  Override(FLAGS_checkpoint_interval_s, [&](double v) { c.set_checkpoint_interval_s(v); });
  Override(FLAGS_checkpoint_steps, [&](uint64_t v) { c.set_checkpoint_steps(v); });
  Override(FLAGS_max_state_bytes, [&](uint64_t v) { c.set_max_state_bytes(v); });
  Override(FLAGS_sync_interval_s, [&](double v) { c.set_sync_interval_s(v); });
  Override(FLAGS_max_kept_versions, [&](uint32_t v) { c.mutable_limits()->set_max_kept_versions(v); });
  return c;
}

absl::StatusOr<ServerOptions> LoadOptions() {
  v1::ServerConfig config;
  if (const std::optional<std::string> path = absl::GetFlag(FLAGS_config)) {
    std::ifstream file(*path, std::ios::binary);
    if (!file) return absl::NotFoundError(absl::StrCat("--config: \"", *path, "\" cannot be read"));
    const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    PALPATE_ASSIGN_OR_RETURN(config, ParseConfigJson(text, *path));
  }
  return ResolveConfig(MergeConfig(config, FlagConfig()));
}

/// What the libraries report, much of it caused by what clients send, goes the way of all log lines.
void CaptureLibraryLogs() {
  google::protobuf::SetLogHandler([](google::protobuf::LogLevel level, const char*, int, const std::string& message) {
    Log(level >= google::protobuf::LOGLEVEL_FATAL ? LogLevel::kError : LogLevel::kDebug, "protobuf", {{"message", message}});
  });
  gpr_set_log_function([](gpr_log_func_args* args) {
    Log(args->severity == GPR_LOG_SEVERITY_ERROR ? LogLevel::kWarning : LogLevel::kDebug, "grpc", {{"message", args->message}});
  });
}

/// Sends this process SIGTERM when its standard input ends. What comes in is dropped.
void StopWithStandardInput() {
  std::thread([] {
    char unused[256];
    ssize_t count = 0;
    do {
      count = read(STDIN_FILENO, unused, sizeof(unused));
    } while (count > 0 || (count < 0 && errno == EINTR));
    kill(getpid(), SIGTERM);
  }).detach();
}

int Main(int argc, char** argv) {
  bool help = false;
  bool version = false;
  const absl::StatusOr<std::vector<std::string>> arguments = NormalizeArguments(argc, argv, help, version);
  if (!arguments.ok()) {
    std::fprintf(stderr, "palpate-server: %s\n", std::string(arguments.status().message()).c_str());
    return 2;
  }
  if (help) {
    std::fputs(kHelp, stdout);
    return 0;
  }
  if (version) {
    std::printf("palpate-server %s (%s)\n", kVersion, kBuildCommit);
    return 0;
  }
  std::vector<char*> pointers;
  for (const std::string& argument : *arguments) pointers.push_back(const_cast<char*>(argument.c_str()));
  absl::SetProgramUsageMessage("see --help");
  absl::ParseCommandLine(static_cast<int>(pointers.size()), pointers.data());  // exits with an error text on an unknown flag

  const absl::StatusOr<ServerOptions> options = LoadOptions();
  if (!options.ok()) {
    std::fprintf(stderr, "palpate-server: %s\n", std::string(options.status().message()).c_str());
    return 2;
  }
  ConfigureLog(options->log_level, options->log_json);
  CaptureLibraryLogs();

  // Each thread would get a heap of its own, which keeps what edits and keyframes needed at their largest.
  if (std::getenv("MALLOC_ARENA_MAX") == nullptr) mallopt(M_ARENA_MAX, 1);

  // Blocked before any thread starts, so that every thread leaves these signals to sigwait below.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN);  // a file at its limit is an error of the write

  for (const std::string& note : gpu::PrepareDriverCache(/*prints_notes=*/false)) {
    Log(LogLevel::kWarning, "driver's cache", {{"found", note}});
  }
  absl::StatusOr<std::unique_ptr<Server>> server = Server::Start(*options);
  if (!server.ok()) {
    Log(LogLevel::kError, "server cannot start", {{"error", server.status()}});
    if (options->log_level == LogLevel::kOff) std::fprintf(stderr, "palpate-server: %s\n", server.status().ToString().c_str());
    return 1;
  }
  if (absl::GetFlag(FLAGS_stop_with_stdin)) StopWithStandardInput();
  int received = 0;
  sigwait(&signals, &received);
  Log(LogLevel::kInfo, "signal received", {{"signal", received}});
  // A mesh that is being made or a kernel that is being compiled cannot be interrupted, and nothing of it would outlive the program.
  std::thread([] {
    std::this_thread::sleep_for(kStopLimit);
    Log(LogLevel::kWarning, "work that cannot be interrupted was cut off", {{"waited_s", static_cast<int64_t>(kStopLimit.count())}});
    std::_Exit(0);
  }).detach();
  (*server)->Stop();
  return 0;
}

}  // namespace
}  // namespace palpate::server

int main(int argc, char** argv) { return palpate::server::Main(argc, argv); }
