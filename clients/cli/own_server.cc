#include "clients/cli/own_server.h"

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <utility>

#include <nlohmann/json.hpp>

#include "absl/strings/str_format.h"
#include "gpu/base/status.h"

namespace palpate::cli {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

constexpr auto kStartLimit = 300s;
constexpr auto kConnectLimit = 10s;
constexpr auto kStopPatience = 10s;

}  // namespace

std::string SiblingProgram(const std::string& name) {
  std::error_code error;
  const fs::path self = fs::read_symlink("/proc/self/exe", error);
  return (error ? fs::path(name) : self.parent_path() / name).string();
}

std::string TailOf(const std::string& path) {
  std::ifstream file(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(std::move(line));
  std::string text;
  for (size_t i = lines.size() > 15 ? lines.size() - 15 : 0; i < lines.size(); ++i) text += "\n  " + lines[i];
  return text.empty() ? "\n  (no output)" : text;
}

absl::StatusOr<OwnServer> OwnServer::Start(const OwnServerOptions& options) {
  OwnServer server;
  std::string folder = (fs::temp_directory_path() / "palpate-server-XXXXXX").string();
  if (mkdtemp(folder.data()) == nullptr) return absl::InternalError(absl::StrFormat("%s: cannot be made", folder));
  server.folder_ = folder;
  const std::string ready_file = folder + "/ready.json";
  std::vector<std::string> arguments = {options.program.empty() ? SiblingProgram("palpate-server") : options.program,
                                        "--listen",
                                        "127.0.0.1:0",
                                        "--http",
                                        options.http,
                                        "--ready-file",
                                        ready_file,
                                        "--log-level",
                                        "warning"};
  if (!options.device.empty()) arguments.insert(arguments.end(), {"--device", options.device});
  arguments.insert(arguments.end(), options.arguments.begin(), options.arguments.end());
  PALPATE_ASSIGN_OR_RETURN(server.process_, ChildProcess::Start(arguments, folder + "/server.log"));
  const auto begin = std::chrono::steady_clock::now();
  while (!fs::exists(ready_file)) {
    if (const auto status = server.process_->WaitFor(50ms)) return server.Ended(*status);
    if (options.while_waiting) PALPATE_RETURN_IF_ERROR(options.while_waiting());
    if (std::chrono::steady_clock::now() - begin > kStartLimit) {
      return absl::DeadlineExceededError(
          absl::StrFormat("palpate-server is not ready after %d s; its last words:%s", kStartLimit.count(), server.LastWords()));
    }
  }
  std::ifstream file(ready_file);
  const auto ready = nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false);
  if (ready.is_discarded()) return absl::InternalError(absl::StrFormat("%s holds no JSON", ready_file));
  server.target_ = absl::StrFormat("127.0.0.1:%d", ready.value("grpc_port", 0));
  server.http_port_ = ready.value("http_port", 0);
  client::ConnectionOptions connection;
  connection.target = server.target_;
  PALPATE_ASSIGN_OR_RETURN(server.connection_, client::Connection::Open(connection));
  PALPATE_RETURN_IF_ERROR(server.connection_->WaitUntilReady(kConnectLimit));
  return server;
}

OwnServer::OwnServer(OwnServer&& other) noexcept
    : folder_(std::exchange(other.folder_, {})),
      process_(std::exchange(other.process_, std::nullopt)),
      connection_(std::exchange(other.connection_, std::nullopt)),
      target_(std::exchange(other.target_, {})),
      http_port_(std::exchange(other.http_port_, 0)) {}

OwnServer::~OwnServer() {
  if (process_) process_->Stop(kStopPatience);
  std::error_code ignored;
  if (!folder_.empty()) fs::remove_all(folder_, ignored);
}

std::string OwnServer::LastWords() const { return TailOf(folder_ + "/server.log"); }

absl::Status OwnServer::Ended(int exit_status) const {
  return absl::InternalError(absl::StrFormat("palpate-server ended with status %d; its last words:%s", exit_status, LastWords()));
}

absl::Status OwnServer::CheckAlive() {
  if (const auto status = process_->ExitStatus()) return Ended(*status);
  return absl::OkStatus();
}

absl::Status OwnServer::Stop() {
  connection_.reset();
  const int status = process_->Stop(kStopPatience);
  return status == 0 ? absl::OkStatus() : Ended(status);
}

}  // namespace palpate::cli
