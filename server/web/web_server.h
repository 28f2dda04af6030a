#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/web/viewer_backend.h"

namespace palpate::server {

struct WebServerOptions {
  std::string bind_address = "127.0.0.1";  ///< numeric IPv4 address to listen on
  uint16_t port = 8080;                    ///< 0: the system picks a free one, see WebServer::port
  std::string web_root;                    ///< folder with the built viewer; empty: no pages are served
  std::string certificate_file;            ///< PEM; both files or none: with them the server speaks only TLS
  std::string private_key_file;            ///< PEM
  /// Host names (without port) that a browser may name in its Host header, besides the names of loopback and, unless bind_address is a
  /// loopback address, the names and addresses of this machine. Whatever else resolves to this server may be another site's: a page there
  /// could otherwise reach the server in the name of its visitor (DNS rebinding).
  std::vector<std::string> allowed_hosts;
  /// Whether a text is the token that a browser must present before it may open /ws; absent: none is needed. In constant time.
  std::function<bool(std::string_view)> is_token;
  /// Origins ("https://viewer.example.org") besides the server's own whose pages may open /ws.
  std::vector<std::string> allowed_origins;
  int max_connections = 32;              ///< browsers on /ws at once; range [1, 1000]
  size_t max_request_bytes = 64 * 1024;  ///< of one ViewerRequest; range [128, 16 MiB]
  size_t max_queued_messages = 64;       ///< messages that wait for one browser, besides the frame; range [1, 10000]
  size_t max_queued_bytes = 256u << 20;  ///< their size; at least 1 MiB
  int max_frames_in_flight = 4;          ///< frames that a browser has not yet taken off the network; range [1, 100]
  int write_timeout_ms = 10000;          ///< a browser that takes nothing for so long is closed; range [100, 600000]

  /// At most so many descriptors are open for connections at once.
  int max_descriptors() const;
};

/// Counts since the start.
struct WebServerStatistics {
  int connections = 0;               ///< browsers on /ws now
  uint64_t connections_total = 0;    ///< accepted on /ws
  uint64_t connections_refused = 0;  ///< by the limit, the host or the origin
  uint64_t requests_bad = 0;         ///< messages that were no ViewerRequest, or too long
  uint64_t frames_sent = 0;
  uint64_t frames_dropped = 0;
  uint64_t bytes_sent = 0;     ///< payload on /ws
  uint64_t http_requests = 0;  ///< besides /ws
};

/// Whether this machine's HTTP library can speak TLS. Debian 12's cannot: it was built for an older OpenSSL; put a reverse proxy before the
/// server there.
bool WebServerHasTls();

/// The HTTP side: GET /metrics, GET /healthz, the viewer's files, and the WebSocket /ws (proto/palpate/v1/viewer.proto).
///
/// Each browser has a reader thread and a writer thread of its own, so a slow or hostile one costs nobody else anything. A message that is
/// not a ViewerRequest (text, garbage, too long) is answered by a ViewerError with INVALID_ARGUMENT or RESOURCE_EXHAUSTED and the
/// connection is closed.
class WebServer {
 public:
  /// Where text for /metrics and the state for /healthz come from; called on HTTP threads. A health status that is not OK is answered with
  /// 503.
  struct Sources {
    std::function<std::string()> metrics_text;          ///< Prometheus text format; absent: 404
    std::function<absl::Status()> health;               ///< absent: always healthy
    std::function<void(std::string_view message)> log;  ///< errors of the HTTP library; absent: forgotten
  };

  /// Listens and serves until Stop. `backend` may be null (no /ws) and outlives the server. Errors: InvalidArgument (option out of range,
  /// bad address), NotFound (web_root, certificate), Unavailable (cannot listen), Unimplemented (TLS asked for, but the HTTP library was
  /// built without it).
  static absl::StatusOr<std::unique_ptr<WebServer>> Start(const WebServerOptions& options, ViewerBackend* backend, Sources sources);
  ~WebServer();
  WebServer(const WebServer&) = delete;
  WebServer& operator=(const WebServer&) = delete;

  /// Closes every connection, waits for the sessions to end, stops listening. Idempotent.
  void Stop();

  uint16_t port() const;    ///< the port in use
  std::string url() const;  ///< for people: "http://127.0.0.1:8080/"
  WebServerStatistics statistics() const;

 private:
  class Impl;
  explicit WebServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace palpate::server
