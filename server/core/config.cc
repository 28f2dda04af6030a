#include "server/core/config.h"

#include <google/protobuf/util/json_util.h>

#include <filesystem>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "gpu/base/status.h"
#include "server/web/origin_check.h"

namespace palpate::server {
namespace {

constexpr uint64_t kMinMessageBytes = 64 * 1024;
constexpr uint64_t kMaxMessageBytes = 1ULL << 30;

bool IsLoopback(const std::string& host) { return host == "localhost" || host == "::1" || absl::StartsWith(host, "127."); }

constexpr uint64_t kMinBufferBytes = 16ULL << 20;
constexpr uint64_t kMaxBufferBytes = 1ULL << 40;
constexpr uint64_t kMinStateBytes = 16ULL << 20;
constexpr uint64_t kMaxStateBytes = 1ULL << 50;

absl::Status Range(const std::string& name, uint64_t value, uint64_t low, uint64_t high) {
  if (value >= low && value <= high) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(name, ": ", value, " is outside [", low, ", ", high, "]"));
}
absl::Status Limit(const char* name, uint64_t value, uint64_t low, uint64_t high) {
  return Range(absl::StrCat("limits.", name), value, low, high);
}

absl::Status ResolveState(const v1::ServerConfig& config, StateOptions* out) {
  const auto seconds = [](const char* name, double value, double high) -> absl::Status {
    if (value >= 0 && value <= high) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(name, ": ", value, " is outside [0, ", high, "]"));
  };
  out->folder = config.state_dir();
  if (config.has_checkpoint_interval_s()) {
    PALPATE_RETURN_IF_ERROR(seconds("--checkpoint-interval-s", config.checkpoint_interval_s(), 86400));
    out->checkpoint_interval = std::chrono::duration<double>(config.checkpoint_interval_s());
  }
  if (config.has_checkpoint_steps()) out->checkpoint_steps = config.checkpoint_steps();
  if (config.has_sync_interval_s()) {
    PALPATE_RETURN_IF_ERROR(seconds("--sync-interval-s", config.sync_interval_s(), 60));
    out->sync_interval = std::chrono::duration<double>(config.sync_interval_s());
  }
  if (config.max_state_bytes() != 0) out->max_state_bytes = config.max_state_bytes();
  return Range("--max-state-bytes", out->max_state_bytes, kMinStateBytes, kMaxStateBytes);
}

}  // namespace

absl::StatusOr<Address> ParseAddress(const std::string& text, const std::string& flag) {
  const auto bad = [&](const char* why) {
    return absl::InvalidArgumentError(absl::StrCat(flag, ": \"", text, "\" ", why, "; expected HOST:PORT, for example 127.0.0.1:50051"));
  };
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos) return bad("has no port");
  Address out;
  out.host = text.substr(0, colon);
  uint32_t port = 0;
  const std::string port_text = text.substr(colon + 1);
  for (const char c : port_text) {
    if (!absl::ascii_isdigit(static_cast<unsigned char>(c))) return bad("has no number as port");
  }
  if (!absl::SimpleAtoi(port_text, &port) || port > 65535) return bad("has a port outside [0, 65535]");
  out.port = static_cast<uint16_t>(port);
  if (out.host.size() >= 2 && out.host.front() == '[' && out.host.back() == ']') {
    out.host = out.host.substr(1, out.host.size() - 2);
  } else if (out.host.find(':') != std::string::npos) {
    return bad("holds an IPv6 address without brackets");
  }
  if (out.host.empty()) return bad("has no host");
  for (const char c : out.host) {
    if (!absl::ascii_isalnum(static_cast<unsigned char>(c)) && c != '.' && c != '-' && c != ':' && c != '%' && c != '_') {
      return bad("holds a character that no host has");
    }
  }
  out.is_loopback = IsLoopback(out.host);
  return out;
}

absl::StatusOr<v1::ServerConfig> ParseConfigJson(const std::string& text, const std::string& display_name) {
  v1::ServerConfig config;
  google::protobuf::util::JsonParseOptions options;
  options.ignore_unknown_fields = false;
  const auto status = google::protobuf::util::JsonStringToMessage(text, &config, options);
  if (!status.ok()) return absl::InvalidArgumentError(absl::StrCat(display_name, ": ", std::string(status.message())));
  return config;
}

v1::ServerConfig MergeConfig(const v1::ServerConfig& base, const v1::ServerConfig& overrides) {
  v1::ServerConfig out = base;
  // MergeFrom appends to lists; a flag replaces the list of the file.
  if (!overrides.scene().empty()) out.clear_scene();
  if (!overrides.allowed_host().empty()) out.clear_allowed_host();
  out.MergeFrom(overrides);
  return out;
}

absl::StatusOr<ServerOptions> ResolveConfig(const v1::ServerConfig& config) {
  ServerOptions out;
  PALPATE_ASSIGN_OR_RETURN(out.listen, ParseAddress(config.listen().empty() ? "127.0.0.1:50051" : config.listen(), "--listen"));
  out.has_http = config.http() != "off";
  if (out.has_http) {
    PALPATE_ASSIGN_OR_RETURN(out.http, ParseAddress(config.http().empty() ? "127.0.0.1:8080" : config.http(), "--http"));
    if (out.http.host == "localhost") out.http.host = "127.0.0.1";
  }
  out.web_root = config.web_root();
  out.scene_files.assign(config.scene().begin(), config.scene().end());
  out.asset_root = config.asset_root();
  std::error_code error;
  if (!out.asset_root.empty() && !std::filesystem::is_directory(out.asset_root, error)) {
    return absl::InvalidArgumentError(absl::StrCat("--asset-root: \"", out.asset_root, "\" is not a folder"));
  }
  out.device = config.device();
  PALPATE_RETURN_IF_ERROR(Annotate(ParseLogLevel(config.log_level().empty() ? "info" : config.log_level(), out.log_level), "--log-level"));
  out.log_json = config.log_json();
  out.ready_file = config.ready_file();
  out.tls_cert_file = config.tls_cert();
  out.tls_key_file = config.tls_key();
  out.insecure = config.insecure();
  out.token_file = config.token_file();
  if (out.tls_cert_file.empty() != out.tls_key_file.empty()) {
    return absl::InvalidArgumentError("--tls-cert and --tls-key: both are needed, or none");
  }
  const bool has_tls = !out.tls_cert_file.empty();
  const auto exposed = [&](const char* flag, const Address& address) {
    return absl::InvalidArgumentError(absl::StrCat(flag, ": ", address.host,
                                                   " is not a loopback address, so anybody on the network could reach the ",
                                                   "server; give --tls-cert and --tls-key, or --insecure if that is what you want"));
  };
  if (!out.listen.is_loopback && !has_tls && !out.insecure) return exposed("--listen", out.listen);
  if (out.has_http && !out.http.is_loopback && !has_tls && !out.insecure) return exposed("--http", out.http);

  PALPATE_RETURN_IF_ERROR(ResolveState(config, &out.state));
  const v1::ServerLimits& limits = config.limits();
  if (limits.max_scenes() != 0) out.limits.max_scenes = limits.max_scenes();
  if (limits.max_bodies_per_scene() != 0) out.limits.scene.max_bodies_per_scene = limits.max_bodies_per_scene();
  if (limits.max_tets_per_scene() != 0) out.limits.scene.max_tets_per_scene = limits.max_tets_per_scene();
  if (limits.max_message_bytes() != 0) out.limits.max_message_bytes = limits.max_message_bytes();
  if (limits.max_streams() != 0) out.limits.max_streams = limits.max_streams();
  if (limits.max_kept_versions() != 0) out.limits.max_kept_versions = limits.max_kept_versions();
  PALPATE_RETURN_IF_ERROR(Limit("max_scenes", out.limits.max_scenes, 1, 10000));
  PALPATE_RETURN_IF_ERROR(Limit("max_bodies_per_scene", out.limits.scene.max_bodies_per_scene, 1, 10000));
  PALPATE_RETURN_IF_ERROR(Limit("max_tets_per_scene", out.limits.scene.max_tets_per_scene, 1, 100'000'000));
  PALPATE_RETURN_IF_ERROR(Limit("max_message_bytes", out.limits.max_message_bytes, kMinMessageBytes, kMaxMessageBytes));
  PALPATE_RETURN_IF_ERROR(Limit("max_streams", out.limits.max_streams, 1, 100000));
  PALPATE_RETURN_IF_ERROR(Limit("max_kept_versions", out.limits.max_kept_versions, 1, 1'000'000));

  for (const std::string& host : config.allowed_host()) {
    // What a browser would send for it: no port, IPv6 in brackets.
    const std::string name = HostWithoutPort(host);
    if (name.empty() || name.size() != host.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("--allowed-host: \"", host, "\" is no host name or address; expected for example sim.example.org or [2001:db8::1]"));
    }
    out.allowed_hosts.push_back(name);
  }
  out.max_connections = config.max_connections();
  if (out.max_connections != 0) PALPATE_RETURN_IF_ERROR(Range("--max-connections", out.max_connections, 1, 100'000));
  if (config.upload_timeout_s() != 0) out.upload_timeout_s = config.upload_timeout_s();
  PALPATE_RETURN_IF_ERROR(Range("--upload-timeout-s", out.upload_timeout_s, 1, 3600));
  out.max_buffer_bytes = config.max_buffer_bytes() != 0 ? config.max_buffer_bytes() : 4 * out.limits.max_message_bytes;
  if (config.max_buffer_bytes() != 0)
    PALPATE_RETURN_IF_ERROR(Range("--max-buffer-bytes", out.max_buffer_bytes, kMinBufferBytes, kMaxBufferBytes));
  return out;
}

absl::StatusOr<std::string> SceneIdOfFile(const std::string& path) {
  std::string id = absl::AsciiStrToLower(std::filesystem::path(path).stem().string());
  if (id.size() > 40) id.resize(40);
  bool any = false;
  for (char& c : id) {
    const bool keep = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
    any = any || keep;
    if (!keep) c = '-';
  }
  if (!any) return absl::InvalidArgumentError(absl::StrCat("--scene: no scene id can be made of the file name \"", path, "\""));
  return id;
}

}  // namespace palpate::server
