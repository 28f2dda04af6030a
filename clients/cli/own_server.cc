#include "clients/cli/own_server.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
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

std::string Contents(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace

absl::StatusOr<OwnServer> OwnServer::Start(const std::string& device) {
  OwnServer server;
  std::string folder = (fs::temp_directory_path() / "palpate-server-XXXXXX").string();
  if (mkdtemp(folder.data()) == nullptr) return absl::InternalError(absl::StrFormat("%s: cannot be made", folder));
  server.folder_ = folder;
  const std::string ready_file = folder + "/ready.json";
  const std::string log = folder + "/server.log";
  std::error_code error;
  const fs::path self = fs::read_symlink("/proc/self/exe", error);
  std::vector<std::string> arguments = {(error ? fs::path() : self.parent_path()) / "palpate-server",
                                        "--listen",
                                        "127.0.0.1:0",
                                        "--http",
                                        "127.0.0.1:0",
                                        "--ready-file",
                                        ready_file,
                                        "--log-level",
                                        "warning"};
  if (!device.empty()) arguments.insert(arguments.end(), {"--device", device});
  PALPATE_ASSIGN_OR_RETURN(server.process_, ChildProcess::Start(arguments, log));
  const auto begin = std::chrono::steady_clock::now();
  while (!fs::exists(ready_file)) {
    if (const auto status = server.process_->WaitFor(50ms)) {
      return absl::InternalError(absl::StrFormat("palpate-server ended with status %d:\n%s", *status, Contents(log)));
    }
    if (std::chrono::steady_clock::now() - begin > kStartLimit) {
      return absl::DeadlineExceededError(
          absl::StrFormat("palpate-server is not ready after %d s:\n%s", kStartLimit.count(), Contents(log)));
    }
  }
  const auto ready = nlohmann::json::parse(Contents(ready_file), nullptr, /*allow_exceptions=*/false);
  if (ready.is_discarded()) return absl::InternalError(absl::StrFormat("%s holds no JSON", ready_file));
  client::ConnectionOptions options;
  options.target = absl::StrFormat("127.0.0.1:%d", ready.value("grpc_port", 0));
  PALPATE_ASSIGN_OR_RETURN(server.connection_, client::Connection::Open(options));
  PALPATE_RETURN_IF_ERROR(server.connection_->WaitUntilReady(kConnectLimit));
  return server;
}

OwnServer::OwnServer(OwnServer&& other) noexcept
    : folder_(std::exchange(other.folder_, {})),
      process_(std::exchange(other.process_, std::nullopt)),
      connection_(std::exchange(other.connection_, std::nullopt)) {}

OwnServer::~OwnServer() {
  if (process_) process_->Stop(kStopPatience);
  std::error_code ignored;
  if (!folder_.empty()) fs::remove_all(folder_, ignored);
}

}  // namespace palpate::cli
