#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include <grpcpp/grpcpp.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gpu/runtime/context.h"
#include "server/core/acceptor.h"
#include "server/core/config.h"
#include "server/core/health_probe.h"
#include "server/core/metrics.h"
#include "server/core/rpc.h"
#include "server/core/scene_manager.h"
#include "server/core/services.h"
#include "server/core/viewer_bridge.h"
#include "server/web/web_server.h"

namespace palpate::server {

/// A whole server: device, scenes, gRPC, HTTP. The destructor stops it.
class Server {
 public:
  /// Opens the device, binds the ports, creates and plays the scenes of the options, writes the ready file. With TLS the certificate serves
  /// gRPC; it serves HTTP too where the HTTP library can. With a token calls and the viewer's socket need it; /metrics, /healthz, the
  /// viewer's pages and the health service do not, and reflection is off. Errors: of the device, the scene files, the certificate;
  /// Unavailable (a port that cannot be bound); FailedPrecondition (too few descriptors).
  static absl::StatusOr<std::unique_ptr<Server>> Start(const ServerOptions& options);

  /// The same with a device that is open already (options.device is not looked at).
  static absl::StatusOr<std::unique_ptr<Server>> Start(const ServerOptions& options, std::shared_ptr<gpu::Context> context);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  /// Ends every stream with UNAVAILABLE, waits for running calls (a few seconds at most), frees the scenes. Idempotent; blocks.
  void Stop();

  int grpc_port() const { return grpc_port_; }
  int http_port() const { return web_ ? web_->port() : 0; }
  std::string viewer_url() const { return web_ ? web_->url() : ""; }
  SceneManager& manager() { return *manager_; }
  Metrics& metrics() { return *metrics_; }

 private:
  Server() = default;
  /// How many connections the gRPC port may hold so that the process has descriptors left for everything else.
  static absl::StatusOr<int> MaxConnections(const ServerOptions& options);
  absl::Status StartGrpc(const ServerOptions& options);
  absl::Status StartWeb(const ServerOptions& options);
  absl::Status CreateScenes(const ServerOptions& options);
  absl::Status WriteReadyFile(const std::string& path) const;

  std::shared_ptr<gpu::Context> context_;
  std::unique_ptr<Metrics> metrics_;
  std::unique_ptr<SceneManager> manager_;
  std::unique_ptr<Authenticator> authenticator_;
  std::unique_ptr<SceneServiceImpl> scene_service_;
  std::unique_ptr<EditServiceImpl> edit_service_;
  std::unique_ptr<StreamServiceImpl> stream_service_;
  std::unique_ptr<HapticServiceImpl> haptic_service_;
  std::unique_ptr<RecordServiceImpl> record_service_;
  std::unique_ptr<BatchServiceImpl> batch_service_;
  std::unique_ptr<HealthServiceImpl> health_service_;
  std::unique_ptr<Acceptor> acceptor_;
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> connections_;
  std::unique_ptr<grpc::Server> grpc_;
  std::unique_ptr<HealthProbe> probe_;
  std::unique_ptr<ViewerBridge> viewer_;
  std::unique_ptr<WebServer> web_;
  int grpc_port_ = 0;
  bool stopped_ = false;
};

}  // namespace palpate::server
