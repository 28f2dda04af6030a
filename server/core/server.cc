#include "server/core/server.h"

#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/impl/server_builder_option.h>
#include <grpcpp/resource_quota.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <future>
#include <iterator>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gpu/base/status.h"
#include "server/core/build_info.h"

namespace palpate::server {
namespace {

constexpr std::chrono::seconds kStopGrace{5};
constexpr int kKeepaliveTime_ms = 20000;
constexpr int kKeepaliveTimeout_ms = 10000;
constexpr int kHandshakeTimeout_ms = 10000;
constexpr int kMaxConnectionIdle_ms = 300000;  // without a call for so long; clients come back by themselves
constexpr int kMaxSyncThreads = 32;            // of reflection, the only service that needs them
constexpr uint64_t kReservedDescriptors = 64;  // scenes, drivers, files, logs, what is on its way to be closed
constexpr uint64_t kMinConnections = 8;
constexpr const char* kServiceNames[] = {"palpate.v1.SceneService",  "palpate.v1.EditService",   "palpate.v1.StreamService",
                                         "palpate.v1.HapticService", "palpate.v1.RecordService", "palpate.v1.BatchService"};

absl::StatusOr<std::string> ReadFile(const std::string& path, const std::string& what) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return absl::NotFoundError(absl::StrCat(what, ": \"", path, "\" cannot be read"));
  return std::string((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
}

absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> Credentials(const ServerOptions& options) {
  if (options.tls_cert_file.empty()) return grpc::InsecureServerCredentials();
  grpc::SslServerCredentialsOptions ssl(GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE);
  PALPATE_ASSIGN_OR_RETURN(std::string key, ReadFile(options.tls_key_file, "--tls-key"));
  PALPATE_ASSIGN_OR_RETURN(std::string certificate, ReadFile(options.tls_cert_file, "--tls-cert"));
  if (!absl::StrContains(certificate, "BEGIN CERTIFICATE"))
    return absl::InvalidArgumentError("--tls-cert: the file holds no PEM certificate");
  if (!absl::StrContains(key, "PRIVATE KEY")) return absl::InvalidArgumentError("--tls-key: the file holds no PEM private key");
  ssl.pem_key_cert_pairs.push_back({std::move(key), std::move(certificate)});
  return grpc::SslServerCredentials(ssl);
}

std::string GrpcTarget(const Address& address) {
  const bool is_v6 = address.host.find(':') != std::string::npos;
  return is_v6 ? absl::StrCat("[", address.host, "]:", address.port) : absl::StrCat(address.host, ":", address.port);
}

/// Whether one server has reflection. The library adds it to every server of a program that it is linked with, asked or not.
class ReflectionOption : public grpc::ServerBuilderOption {
 public:
  explicit ReflectionOption(bool wanted) : wanted_(wanted) {}
  void UpdateArguments(grpc::ChannelArguments* /*arguments*/) override {}
  void UpdatePlugins(std::vector<std::unique_ptr<grpc::ServerBuilderPlugin>>* plugins) override {
    auto own = std::make_unique<grpc::reflection::ProtoServerReflectionPlugin>();
    std::erase_if(*plugins, [&own](const auto& plugin) { return plugin->name() == own->name(); });
    if (wanted_) plugins->push_back(std::move(own));
  }

 private:
  const bool wanted_;
};

/// Where this machine reaches what listens on `address`.
Address ReachedAddress(const Address& address, int port) {
  Address out = address;
  out.port = static_cast<uint16_t>(port);
  if (out.host == "0.0.0.0") out.host = "127.0.0.1";
  if (out.host == "::") out.host = "::1";
  return out;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Server>> Server::Start(const ServerOptions& options) {
  gpu::ContextOptions context_options;
  context_options.device = options.device;
  PALPATE_ASSIGN_OR_RETURN(std::shared_ptr<gpu::Context> context, gpu::Context::Create(context_options));
  return Start(options, std::move(context));
}

absl::StatusOr<std::unique_ptr<Server>> Server::Start(const ServerOptions& options, std::shared_ptr<gpu::Context> context) {
  std::string token;
  if (!options.token_file.empty()) {
    PALPATE_ASSIGN_OR_RETURN(token, Authenticator::ReadTokenFile(options.token_file));
  }
  std::unique_ptr<Server> server(new Server);
  server->context_ = std::move(context);
  Log(LogLevel::kInfo, "device opened",
      {{"device", gpu::DescribeDevice(server->context_->device())}, {"version", kVersion}, {"commit", kBuildCommit}});
  server->metrics_ = std::make_unique<Metrics>(server->context_);
  SceneManager::Options manager_options;
  manager_options.limits = options.limits;
  manager_options.assets = std::make_shared<scene::AssetRootResolver>(options.asset_root);
  manager_options.context = server->context_;
  PALPATE_ASSIGN_OR_RETURN(manager_options.store,
                           SceneStore::Open({options.state, options.limits.scene, options.limits.max_kept_versions, server->context_}));
  server->manager_ = std::make_unique<SceneManager>(std::move(manager_options), *server->metrics_);
  server->authenticator_ = std::make_unique<Authenticator>(std::move(token));

  // Scenes first: whoever reaches the ports finds them.
  server->manager_->RecoverScenes();
  PALPATE_RETURN_IF_ERROR(server->CreateScenes(options));
  PALPATE_RETURN_IF_ERROR(server->StartGrpc(options));
  if (options.has_http) PALPATE_RETURN_IF_ERROR(server->StartWeb(options));
  if (!options.ready_file.empty()) PALPATE_RETURN_IF_ERROR(server->WriteReadyFile(options.ready_file));
  Log(LogLevel::kInfo, "server ready",
      {{"grpc_port", server->grpc_port()}, {"http_port", server->http_port()}, {"viewer", server->viewer_url()}});
  return server;
}

Server::~Server() { Stop(); }

absl::StatusOr<int> Server::MaxConnections(const ServerOptions& options) {
  const uint64_t reserved = kReservedDescriptors + (options.has_http ? WebServerOptions().max_descriptors() : 0);
  const uint64_t wanted = options.max_connections != 0 ? options.max_connections : kDefaultMaxConnections;
  const uint64_t limit = RaiseDescriptorLimit(wanted + reserved);
  if (limit >= wanted + reserved) return static_cast<int>(wanted);
  if (options.max_connections != 0 || limit < reserved + kMinConnections) {
    return absl::FailedPreconditionError(absl::StrCat("--max-connections: ", wanted, " connections need a limit of ", wanted + reserved,
                                                      " open descriptors, and this process may have ", limit,
                                                      " (ulimit -H -n, LimitNOFILE of a systemd unit)"));
  }
  Log(LogLevel::kWarning, "few descriptors", {{"descriptor_limit", limit}, {"max_connections", limit - reserved}, {"default", wanted}});
  return static_cast<int>(limit - reserved);
}

absl::Status Server::StartGrpc(const ServerOptions& options) {
  CallPolicy policy;
  policy.authenticator = authenticator_.get();
  policy.metrics = metrics_.get();
  policy.upload_timeout = std::chrono::seconds(options.upload_timeout_s);
  scene_service_ = std::make_unique<SceneServiceImpl>(*manager_, policy);
  edit_service_ = std::make_unique<EditServiceImpl>(*manager_, policy);
  stream_service_ = std::make_unique<StreamServiceImpl>(*manager_, policy);
  batch_service_ = std::make_unique<BatchServiceImpl>(*manager_, policy);
  haptic_service_ = std::make_unique<HapticServiceImpl>(*manager_, *authenticator_);
  record_service_ = std::make_unique<RecordServiceImpl>(*manager_, policy);
  health_service_ =
      std::make_unique<HealthServiceImpl>(std::vector<std::string>(std::begin(kServiceNames), std::end(kServiceNames)), policy);
  PALPATE_ASSIGN_OR_RETURN(const std::shared_ptr<grpc::ServerCredentials> credentials, Credentials(options));

  Acceptor::Options acceptor_options;
  PALPATE_ASSIGN_OR_RETURN(acceptor_options.max_connections, MaxConnections(options));
  acceptor_options.max_connections_per_peer = (acceptor_options.max_connections + 1) / 2;
  const std::string target = GrpcTarget(options.listen);
  absl::StatusOr<std::unique_ptr<Acceptor>> acceptor = Acceptor::Listen(options.listen, acceptor_options);
  if (!acceptor.ok()) return Annotate(acceptor.status(), absl::StrCat("--listen: cannot serve on ", target));
  acceptor_ = *std::move(acceptor);
  grpc_port_ = acceptor_->port();

  grpc::EnableDefaultHealthCheckService(false);  // ours reads a request only so long, and only so much
  grpc::ServerBuilder builder;
  connections_ = builder.experimental().AddExternalConnectionAcceptor(
      grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD, credentials);
  builder.RegisterService(scene_service_.get());
  builder.RegisterService(edit_service_.get());
  builder.RegisterService(stream_service_.get());
  builder.RegisterService(haptic_service_.get());
  builder.RegisterService(record_service_.get());
  builder.RegisterService(batch_service_.get());
  builder.RegisterService(health_service_.get());
  builder.SetMaxReceiveMessageSize(static_cast<int>(options.limits.max_message_bytes));
  grpc::ResourceQuota quota("palpate");
  quota.Resize(options.max_buffer_bytes);
  quota.SetMaxThreads(kMaxSyncThreads);
  builder.SetResourceQuota(quota);
  // A few bytes of a compressed message may stand for as much memory as there is.
  builder.AddChannelArgument(GRPC_COMPRESSION_CHANNEL_ENABLED_ALGORITHMS_BITSET, 1 << GRPC_COMPRESS_NONE);
  builder.AddChannelArgument(GRPC_ARG_ENABLE_PER_MESSAGE_DECOMPRESSION, 0);
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, kHandshakeTimeout_ms);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS, kMaxConnectionIdle_ms);
  // Finds readers whose machine has vanished.
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveTime_ms);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeout_ms);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 5000);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, static_cast<int>(2 * options.limits.max_streams));
  // Reflection keeps a thread for each of its streams and asks nobody who they are.
  builder.SetOption(std::make_unique<ReflectionOption>(!authenticator_->enabled()));
  grpc_ = builder.BuildAndStart();
  if (!grpc_) return absl::UnavailableError(absl::StrCat("--listen: cannot serve on ", target, " (a bad certificate?)"));
  acceptor_->Start([this](int fd) {
    grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters connection;
    connection.fd = fd;
    connections_->HandleNewConnection(&connection);
  });
  metrics_->SetConnectionCounts([this] {
    const Acceptor::Statistics statistics = acceptor_->statistics();
    return Metrics::Connections{statistics.connections, statistics.accepted, statistics.refused, statistics.evicted};
  });
  const Address reached = ReachedAddress(options.listen, grpc_port_);
  probe_ = std::make_unique<HealthProbe>(GrpcTarget(reached), !options.tls_cert_file.empty());
  return absl::OkStatus();
}

absl::Status Server::StartWeb(const ServerOptions& options) {
  WebServerOptions web;
  web.bind_address = options.http.host;
  web.port = options.http.port;
  web.web_root = options.web_root;
  if (!options.tls_cert_file.empty() && WebServerHasTls()) {
    web.certificate_file = options.tls_cert_file;
    web.private_key_file = options.tls_key_file;
  } else if (!options.http.is_loopback && !options.insecure) {
    return absl::InvalidArgumentError(
        absl::StrCat("--http: ", options.http.host,
                     " is not a loopback address and the HTTP library of this machine cannot speak TLS; put a reverse "
                     "proxy before a loopback address, or give --insecure"));
  }
  viewer_ = std::make_unique<ViewerBridge>(*manager_);
  web.allowed_hosts = options.allowed_hosts;
  if (authenticator_->enabled()) web.is_token = [this](std::string_view token) { return authenticator_->IsToken(token); };
  WebServer::Sources sources;
  sources.metrics_text = [this] { return metrics_->Text(); };
  sources.health = [this] {
    absl::Status status = probe_->Check();
    if (status.ok()) return status;
    const Acceptor::Statistics statistics = acceptor_->statistics();
    return absl::UnavailableError(
        absl::StrCat(status.message(), " (", statistics.connections, " connections, ", statistics.refused, " refused)"));
  };
  sources.log = [](std::string_view message) { Log(LogLevel::kWarning, "http", {{"message", message}}); };
  PALPATE_ASSIGN_OR_RETURN(web_, WebServer::Start(web, viewer_.get(), std::move(sources)));
  metrics_->SetWebCounts([this] {
    const WebServerStatistics statistics = web_->statistics();
    return std::pair<double, double>(statistics.connections, static_cast<double>(statistics.requests_bad));
  });
  return absl::OkStatus();
}

absl::Status Server::CreateScenes(const ServerOptions& options) {
  for (const std::string& path : options.scene_files) {
    PALPATE_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, "--scene"));
    v1::CreateSceneRequest request;
    PALPATE_ASSIGN_OR_RETURN(*request.mutable_spec(), scene::ParseSceneJson(text, path));
    PALPATE_ASSIGN_OR_RETURN(*request.mutable_scene_id(), SceneIdOfFile(path));
    request.set_play(true);
    if (manager_->Find(request.scene_id()).ok()) {
      Log(LogLevel::kInfo, "scene kept", {{"scene", request.scene_id()}, {"file", path}, {"note", "delete it to start from the file"}});
      continue;
    }
    std::promise<absl::Status> created;
    manager_->Create(request, std::make_shared<scene::SceneFolderResolver>(std::filesystem::path(path).parent_path()), nullptr,
                     [&created](const absl::StatusOr<v1::SceneInfo>& info) { created.set_value(info.status()); });
    PALPATE_RETURN_IF_ERROR(Annotate(created.get_future().get(), path));
  }
  return absl::OkStatus();
}

absl::Status Server::WriteReadyFile(const std::string& path) const {
  const std::string temporary = absl::StrCat(path, ".part");
  {
    std::ofstream file(temporary, std::ios::binary | std::ios::trunc);
    file << "{\"grpc_port\":" << grpc_port() << ",\"http_port\":" << http_port() << "}\n";
    file.close();
    if (!file) return absl::UnavailableError(absl::StrCat("--ready-file: \"", temporary, "\" cannot be written"));
  }
  std::error_code error;
  std::filesystem::rename(temporary, path, error);
  if (error) return absl::UnavailableError(absl::StrCat("--ready-file: \"", path, "\": ", error.message()));
  return absl::OkStatus();
}

void Server::Stop() {
  if (stopped_) return;
  stopped_ = true;
  Log(LogLevel::kInfo, "server stops");
  if (health_service_) health_service_->Stop();
  // Streams and waiting calls end with UNAVAILABLE while the transports still carry it.
  if (manager_) manager_->ShutdownAndWait();
  if (web_) {
    metrics_->SetWebCounts(nullptr);
    web_->Stop();
  }
  if (acceptor_) {
    metrics_->SetConnectionCounts(nullptr);
    acceptor_->Stop();
  }
  if (grpc_) {
    grpc_->Shutdown(std::chrono::system_clock::now() + kStopGrace);
    grpc_->Wait();
  }
  Log(LogLevel::kInfo, "server stopped");
}

}  // namespace palpate::server
