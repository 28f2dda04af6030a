#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "palpate/v1/config.pb.h"
#include "server/core/log.h"
#include "server/core/scene_manager.h"

namespace palpate::server {

struct Address {
  std::string host;  ///< without brackets
  uint16_t port = 0;
  bool is_loopback = false;
};

/// "HOST:PORT" or "[V6]:PORT". Errors: InvalidArgument naming `flag`.
absl::StatusOr<Address> ParseAddress(const std::string& text, const std::string& flag);

/// A configuration, checked and complete.
struct ServerOptions {
  Address listen;
  Address http;
  bool has_http = true;
  std::string web_root;
  std::vector<std::string> scene_files;
  std::string asset_root;
  std::string device;
  LogLevel log_level = LogLevel::kInfo;
  bool log_json = false;
  std::string ready_file;
  std::string tls_cert_file;
  std::string tls_key_file;
  bool insecure = false;
  std::string token_file;
  Limits limits;
  std::vector<std::string> allowed_hosts;  ///< in lower case
  uint32_t max_connections = 0;            ///< 0: kDefaultMaxConnections, or fewer where the limit on descriptors is low
  uint32_t upload_timeout_s = 30;
  uint64_t max_buffer_bytes = 4 * Limits().max_message_bytes;
  StateOptions state;
};

inline constexpr uint32_t kDefaultMaxConnections = 1024;

/// Reads the JSON form; unknown names are errors. Errors: InvalidArgument naming `display_name`.
absl::StatusOr<v1::ServerConfig> ParseConfigJson(const std::string& text, const std::string& display_name);

/// Lays `overrides` over `base`: each field that is set replaces that of the base (lists as a whole, limits one by one).
v1::ServerConfig MergeConfig(const v1::ServerConfig& base, const v1::ServerConfig& overrides);

/// Applies defaults and checks. Errors: InvalidArgument naming the flag; an address other than loopback needs TLS or `insecure`.
absl::StatusOr<ServerOptions> ResolveConfig(const v1::ServerConfig& config);

/// The scene id that a scene file gets: its stem in lower case, other characters than a-z, 0-9 as '-'. Errors: InvalidArgument (nothing is
/// left).
absl::StatusOr<std::string> SceneIdOfFile(const std::string& path);

}  // namespace palpate::server
