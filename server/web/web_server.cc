#include "server/web/web_server.h"

#include <arpa/inet.h>
#include <civetweb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "server/web/frame_reader.h"
#include "server/web/guess_limiter.h"
#include "server/web/origin_check.h"
#include "server/web/static_files.h"
#include "server/web/viewer_connection.h"

namespace palpate::server {
namespace {

constexpr int kQueuedConnections = 20;  // accepted, waiting for a thread
constexpr std::string_view kImages = "/images/";
constexpr char kSubprotocol[] = "palpate.v1";        // what a browser that presents a token speaks
constexpr std::string_view kTokenPrefix = "token.";  // of the "subprotocol" that carries it, base64url
constexpr std::string_view kBearer = "Bearer ";
constexpr int kSpareThreads = 8;  // for requests besides /ws, and to refuse browsers past the limit
constexpr size_t kReadBytes = 16384;
constexpr int kReaderPollMs = 500;                                 // how soon a reader notices that its connection is to end
constexpr auto kGoodbyeTimeout = std::chrono::milliseconds(1000);  // for close frames when the server stops
constexpr auto kReaderStart = std::chrono::milliseconds(100);      // time for a reader thread to get from the handshake into its loop
constexpr auto kWakeInterval = std::chrono::milliseconds(20);

absl::string_view AbslView(std::string_view text) { return {text.data(), text.size()}; }

std::string_view Header(const mg_connection* connection, const char* name) {
  const char* value = mg_get_header(connection, name);
  return value == nullptr ? std::string_view() : std::string_view(value);
}

/// The socket behind a connection of the HTTP library, which does not tell it; -1 if it cannot be told which one it is.
int SocketOf(const mg_request_info& request, uint16_t port) {
  int out = -1;
  std::error_code error;
  for (std::filesystem::directory_iterator entry("/proc/self/fd", error), end; !error && entry != end; entry.increment(error)) {
    int fd = -1;
    if (!absl::SimpleAtoi(entry->path().filename().string(), &fd)) continue;
    sockaddr_in peer{};
    sockaddr_in own{};
    socklen_t peer_size = sizeof(peer);
    socklen_t own_size = sizeof(own);
    if (getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &peer_size) != 0 || peer.sin_family != AF_INET ||
        ntohs(peer.sin_port) != request.remote_port || getsockname(fd, reinterpret_cast<sockaddr*>(&own), &own_size) != 0 ||
        ntohs(own.sin_port) != port) {
      continue;
    }
    char address[INET_ADDRSTRLEN] = "";
    inet_ntop(AF_INET, &peer.sin_addr, address, sizeof(address));
    if (std::string_view(address) != request.remote_addr) continue;
    if (out >= 0) return -1;
    out = fd;
  }
  return out;
}

int HttpStatusOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return 204;
    case absl::StatusCode::kUnauthenticated:
      return 401;
    case absl::StatusCode::kResourceExhausted:
      return 429;
    case absl::StatusCode::kNotFound:
      return 404;
    default:
      return 403;
  }
}

absl::Status CheckRange(std::string_view name, uint64_t value, uint64_t low, uint64_t high) {
  if (value >= low && value <= high) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("web.", AbslView(name), ": ", value, " is outside [", low, ", ", high, "]"));
}

absl::Status CheckOptions(const WebServerOptions& options) {
  in_addr address{};
  if (inet_pton(AF_INET, options.bind_address.c_str(), &address) != 1) {
    return absl::InvalidArgumentError(absl::StrCat("web.bind_address: '", options.bind_address, "' is no numeric IPv4 address"));
  }
  const std::pair<const char*, std::pair<uint64_t, std::pair<uint64_t, uint64_t>>> ranges[] = {
      {"max_connections", {static_cast<uint64_t>(std::max(options.max_connections, 0)), {1, 1000}}},
      {"max_request_bytes", {options.max_request_bytes, {128, 16u << 20}}},
      {"max_queued_messages", {options.max_queued_messages, {1, 10000}}},
      {"max_queued_bytes", {options.max_queued_bytes, {1u << 20, UINT64_MAX}}},
      {"max_frames_in_flight", {static_cast<uint64_t>(std::max(options.max_frames_in_flight, 0)), {1, 100}}},
      {"write_timeout_ms", {static_cast<uint64_t>(std::max(options.write_timeout_ms, 0)), {100, 600000}}},
  };
  for (const auto& [name, value_and_range] : ranges) {
    const absl::Status status = CheckRange(name, value_and_range.first, value_and_range.second.first, value_and_range.second.second);
    if (!status.ok()) return status;
  }
  std::error_code error;
  if (!options.web_root.empty() && !std::filesystem::is_directory(options.web_root, error)) {
    return absl::NotFoundError(absl::StrCat("web.web_root: no folder '", options.web_root, "'"));
  }
  if (options.certificate_file.empty() != options.private_key_file.empty()) {
    return absl::InvalidArgumentError("web.certificate_file and web.private_key_file: give both or none");
  }
  for (const std::string& file : {options.certificate_file, options.private_key_file}) {
    if (!file.empty() && !std::filesystem::is_regular_file(file, error)) return absl::NotFoundError(absl::StrCat("no file '", file, "'"));
  }
  return absl::OkStatus();
}

}  // namespace

int WebServerOptions::max_descriptors() const {
  // Besides the connections: the listener, and a file that each thread may be reading.
  return 2 * (max_connections + kSpareThreads) + kQueuedConnections + 4;
}

bool WebServerHasTls() {
  static const bool has_tls = mg_check_feature(MG_FEATURES_TLS) != 0 && (mg_init_library(MG_FEATURES_TLS) & MG_FEATURES_TLS) != 0;
  return has_tls;
}

class WebServer::Impl {
 public:
  Impl(WebServerOptions options, ViewerBackend* backend, Sources sources)
      : options_(std::move(options)), backend_(backend), sources_(std::move(sources)), allowed_hosts_(options_.allowed_hosts) {
    if (IsLoopbackHost(options_.bind_address)) return;
    for (std::string& name : MachineNames()) allowed_hosts_.push_back(std::move(name));
  }
  ~Impl() { Stop(); }

  absl::Status Start();
  void Stop();
  uint16_t port() const { return port_; }
  std::string url() const {
    const std::string host = options_.bind_address == "0.0.0.0" ? "localhost" : options_.bind_address;
    return absl::StrCat(UsesTls() ? "https" : "http", "://", host, ":", port_, "/");
  }
  WebServerStatistics statistics() const;

 private:
  // One browser, from the handshake to the end of its reader thread.
  struct Browser {
    explicit Browser(const ViewerConnection::Limits& limits) : connection(std::make_shared<ViewerConnection>(limits)) {}
    std::shared_ptr<ViewerConnection> connection;
    std::unique_ptr<ViewerSession> session;
    std::thread writer;
    std::string partial;  // message whose last fragment has not come
    bool in_message = false;
    bool counted = false;  // takes one of max_connections

    // The reader is about to leave the HTTP library's loop, or has left it.
    void SetReaderDone() {
      const std::lock_guard lock(reader_mutex);
      reader_done = true;
      reader_changed.notify_all();
    }
    /// Nothing more will be written: ends the reading too, if it has not ended.
    void SetWriterDone(mg_connection* http) {
      std::unique_lock lock(reader_mutex);
      if (socket >= 0) {
        writer_done = true;
        if (!reader_done) shutdown(socket, SHUT_WR);  // valid until the reader is done
        return;
      }
      // Makes the reader leave the library's loop. Only while it is in there may another thread do so: it gets time to enter, and is left
      // alone once it leaves. The connection itself lives until OnWebSocketClose, which waits for this thread.
      if (!reader_changed.wait_for(lock, kReaderStart, [this] { return reader_done; })) mg_close_connection(http);
    }
    std::atomic<bool> writer_done = false;
    int socket = -1;  ///< the connection's, where this server reads it itself; owned by the HTTP library
    std::mutex reader_mutex;
    std::condition_variable reader_changed;
    bool reader_done = false;
  };
  struct Response {
    int status = 200;
    std::string content_type = "text/plain; charset=utf-8";
    std::string body;
    std::string cache_control = "no-store";
    std::string etag;
    std::string allow;
  };

  bool UsesTls() const { return !options_.certificate_file.empty(); }
  std::vector<std::string> Settings() const;
  absl::Status Listen();
  void AddHandlers();

  int OnHttp(mg_connection* http);
  Response Answer(const mg_connection* http, const mg_request_info& request);
  /// GET /auth: 204 where /ws would open, 401 where a token is missing or wrong, 429 after too many wrong ones.
  Response AnswerAuth(const mg_connection* http);
  /// GET /images/ID: a scene's picture, under the rules of /ws.
  Response AnswerImage(const mg_connection* http, std::string_view id);
  /// Whether the token that a request carries, if any, lets it open /ws. Errors: Unauthenticated, ResourceExhausted (too many guesses).
  absl::Status CheckToken(const mg_connection* http);
  Response AnswerFile(const mg_connection* http, const mg_request_info& request);
  void Write(mg_connection* http, const Response& response, bool with_body);

  int OnWebSocketConnect(const mg_connection* http);
  void OnWebSocketReady(mg_connection* http);
  /// Reads a browser's socket until it ends or is refused.
  void ReadFrames(Browser& browser);
  int OnWebSocketData(const mg_connection* http, int bits, std::string_view data);
  /// Takes what came from the browser; false ends the connection.
  bool Read(Browser& browser, int bits, std::string_view data);
  void OnWebSocketClose(const mg_connection* http);
  /// Answers with an error, lets what waits leave, and ends the connection: false.
  bool Refuse(Browser& browser, WebSocketClose code, const absl::Status& status);
  static void SendError(ViewerConnection& connection, uint32_t request_id, const absl::Status& status);

  const WebServerOptions options_;
  ViewerBackend* const backend_;
  const Sources sources_;
  std::vector<std::string> allowed_hosts_;
  GuessLimiter guesses_;
  mg_context* context_ = nullptr;
  uint16_t port_ = 0;

  mutable std::mutex mutex_;
  std::map<const mg_connection*, Browser*> browsers_;  // the library's own per-connection pointer does not survive a close by the writer
  int counted_connections_ = 0;
  WebServerStatistics totals_;  // of ended connections, and the counts that belong to none
  std::atomic<bool> stopping_ = false;
};

absl::Status WebServer::Impl::Start() {
  if (absl::Status status = CheckOptions(options_); !status.ok()) return status;
  static std::once_flag once;
  std::call_once(once, [] { mg_init_library(MG_FEATURES_DEFAULT); });
  if (UsesTls() && !WebServerHasTls()) {
    return absl::UnimplementedError(
        "web.certificate_file: the installed civetweb cannot load this machine's OpenSSL; serve TLS from a reverse proxy, or build "
        "civetweb for it");
  }
  if (absl::Status status = Listen(); !status.ok()) return status;
  AddHandlers();
  return absl::OkStatus();
}

/// For the HTTP library: names and values in turn.
std::vector<std::string> WebServer::Impl::Settings() const {
  std::vector<std::string> settings = {
      "listening_ports",
      absl::StrCat(options_.bind_address, ":", options_.port, UsesTls() ? "s" : ""),
      "num_threads",
      absl::StrCat(options_.max_connections + kSpareThreads),
      "connection_queue",
      absl::StrCat(kQueuedConnections),
      "request_timeout_ms",
      absl::StrCat(options_.write_timeout_ms),
      "websocket_timeout_ms",
      absl::StrCat(kReaderPollMs),
      "tcp_nodelay",
      "1",
      "enable_directory_listing",
      "no",
      "enable_keep_alive",
      "no",
      "enable_auth_domain_check",
      "no",
      "access_control_allow_origin",
      "",
      "access_control_allow_methods",
      "",
  };
  if (UsesTls()) {
    settings.insert(settings.end(), {"ssl_certificate", options_.private_key_file, "ssl_certificate_chain", options_.certificate_file});
  }
  return settings;
}

/// Sets context_ and port_. Errors: Unavailable (the address).
absl::Status WebServer::Impl::Listen() {
  const std::vector<std::string> settings = Settings();
  std::vector<const char*> texts;
  for (const std::string& setting : settings) texts.push_back(setting.c_str());
  texts.push_back(nullptr);

  mg_callbacks callbacks{};
  callbacks.log_message = [](const mg_connection* connection, const char* message) {
    auto* self = static_cast<Impl*>(mg_get_user_data(mg_get_context(connection)));
    if (self != nullptr && self->sources_.log) self->sources_.log(message);
    return 1;
  };
  char text[256] = "";
  unsigned code = 0;
  mg_init_data init{};
  init.callbacks = &callbacks;
  init.user_data = this;
  init.configuration_options = texts.data();
  mg_error_data error{};
  error.code = &code;
  error.text = text;
  error.text_buffer_size = sizeof(text);
  context_ = mg_start2(&init, &error);
  if (context_ == nullptr) {
    return absl::UnavailableError(absl::StrCat("cannot listen on ", options_.bind_address, ":", options_.port, ": ",
                                               text[0] != '\0' ? text : "the HTTP library gave no reason"));
  }
  mg_server_port ports[2] = {};
  if (mg_get_server_ports(context_, 2, ports) < 1) return absl::InternalError("the HTTP library does not tell its port");
  port_ = static_cast<uint16_t>(ports[0].port);
  return absl::OkStatus();
}

void WebServer::Impl::AddHandlers() {
  mg_set_request_handler(
      context_, "/", [](mg_connection* http, void* self) { return static_cast<Impl*>(self)->OnHttp(http); }, this);
  if (backend_ == nullptr) return;
  static const char* names[] = {kSubprotocol};
  static mg_websocket_subprotocols subprotocols = {1, names};
  mg_set_websocket_handler_with_subprotocols(
      context_, "/", &subprotocols,
      [](const mg_connection* http, void* self) { return static_cast<Impl*>(self)->OnWebSocketConnect(http); },
      [](mg_connection* http, void* self) { static_cast<Impl*>(self)->OnWebSocketReady(http); },
      [](mg_connection* http, int bits, char* data, size_t size, void* self) {
        return static_cast<Impl*>(self)->OnWebSocketData(http, bits, {data, size});
      },
      [](const mg_connection* http, void* self) { static_cast<Impl*>(self)->OnWebSocketClose(http); }, this);
}

void WebServer::Impl::Stop() {
  if (context_ == nullptr) return;
  stopping_ = true;
  std::vector<std::shared_ptr<ViewerConnection>> connections;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [http, browser] : browsers_) connections.push_back(browser->connection);
  }
  for (const auto& connection : connections) connection->CloseWith(WebSocketClose::kGoingAway, "the server stops");
  const auto deadline = std::chrono::steady_clock::now() + kGoodbyeTimeout;
  for (const auto& connection : connections) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    connection->WaitUntilEnded(std::max(left, std::chrono::milliseconds(0)));
  }
  // The library's accepting thread looks for the end only every two seconds, or when somebody connects.
  std::atomic<bool> stopped = false;
  std::thread waker([this, &stopped] {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port_);
    inet_pton(AF_INET, options_.bind_address == "0.0.0.0" ? "127.0.0.1" : options_.bind_address.c_str(), &address.sin_addr);
    while (!stopped) {
      const int knock = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
      if (knock >= 0) {
        connect(knock, reinterpret_cast<const sockaddr*>(&address), sizeof(address));
        std::this_thread::sleep_for(kWakeInterval);
        close(knock);
      } else {
        std::this_thread::sleep_for(kWakeInterval);
      }
    }
  });
  mg_stop(context_);
  stopped = true;
  waker.join();
  context_ = nullptr;
}

WebServerStatistics WebServer::Impl::statistics() const {
  const std::lock_guard lock(mutex_);
  WebServerStatistics sum = totals_;
  sum.connections = counted_connections_;
  for (const auto& [http, browser] : browsers_) {
    const ViewerSinkStatistics one = browser->connection->statistics();
    sum.frames_sent += one.frames_sent;
    sum.frames_dropped += one.frames_dropped;
    sum.bytes_sent += one.bytes_sent;
  }
  return sum;
}

// --- HTTP
// ---------------------------------------------------------------------------------------------------------------------------------------

int WebServer::Impl::OnHttp(mg_connection* http) {
  {
    const std::lock_guard lock(mutex_);
    ++totals_.http_requests;
  }
  const mg_request_info& request = *mg_get_request_info(http);
  const Response response = Answer(http, request);
  Write(http, response, std::string_view(request.request_method) != "HEAD");
  return response.status;
}

WebServer::Impl::Response WebServer::Impl::Answer(const mg_connection* http, const mg_request_info& request) {
  Response response;
  if (const absl::Status status = CheckHost(Header(http, "Host"), allowed_hosts_); !status.ok()) {
    response.status = 403;
    response.body = absl::StrCat(status.message(), "\n");
    return response;
  }
  const std::string_view method = request.request_method;
  if (method != "GET" && method != "HEAD") {
    response.status = 405;
    response.allow = "GET, HEAD";
    response.body = "only GET and HEAD\n";
    return response;
  }
  const std::string_view path = request.local_uri == nullptr ? std::string_view() : std::string_view(request.local_uri);
  if (path == "/metrics" && sources_.metrics_text) {
    response.content_type = "text/plain; version=0.0.4; charset=utf-8";
    response.body = sources_.metrics_text();
    return response;
  }
  if (path == "/healthz") {
    const absl::Status health = sources_.health ? sources_.health() : absl::OkStatus();
    response.status = health.ok() ? 200 : 503;
    response.body = health.ok() ? "ok\n" : absl::StrCat(health.message(), "\n");
    return response;
  }
  if (path == "/auth") return AnswerAuth(http);
  if (path.starts_with(kImages)) return AnswerImage(http, path.substr(kImages.size()));
  if (path == "/ws") {
    response.status = 426;
    response.body = "/ws is a WebSocket\n";
    return response;
  }
  return AnswerFile(http, request);
}

WebServer::Impl::Response WebServer::Impl::AnswerAuth(const mg_connection* http) {
  Response response;
  const absl::Status status = CheckToken(http);
  response.status = HttpStatusOf(status);
  if (!status.ok()) response.body = absl::StrCat(status.message(), "\n");
  return response;
}

WebServer::Impl::Response WebServer::Impl::AnswerImage(const mg_connection* http, std::string_view id) {
  Response response;
  absl::Status status = CheckToken(http);
  if (status.ok()) {
    absl::StatusOr<ViewerImage> image = backend_ == nullptr ? absl::NotFoundError("no such picture") : backend_->FindImage(id);
    if (image.ok()) {
      response.content_type = image->content_type;
      response.cache_control = "private, max-age=31536000, immutable";  // the name is that of the contents
      response.body = std::move(image->content);
      return response;
    }
    status = image.status();
  }
  response.status = HttpStatusOf(status);
  response.body = absl::StrCat(status.message(), "\n");
  return response;
}

absl::Status WebServer::Impl::CheckToken(const mg_connection* http) {
  if (!options_.is_token) return absl::OkStatus();
  const std::string peer = mg_get_request_info(http)->remote_addr;
  if (!guesses_.MayGuess(peer)) return absl::ResourceExhaustedError("too many wrong tokens from this address; try again in a minute");
  std::string token;
  if (const std::string_view authorization = Header(http, "Authorization"); authorization.substr(0, kBearer.size()) == kBearer) {
    token = authorization.substr(kBearer.size());
  }
  // A page cannot give its socket other headers than this one.
  for (const absl::string_view part : absl::StrSplit(AbslView(Header(http, "Sec-WebSocket-Protocol")), ',')) {
    absl::string_view name = absl::StripAsciiWhitespace(part);
    if (absl::ConsumePrefix(&name, AbslView(kTokenPrefix)) && !absl::WebSafeBase64Unescape(name, &token)) token.clear();
  }
  if (token.empty()) return absl::UnauthenticatedError("this server wants its token");
  if (options_.is_token(token)) return absl::OkStatus();
  guesses_.OnWrong(peer);
  return absl::UnauthenticatedError("the token is wrong");
}

WebServer::Impl::Response WebServer::Impl::AnswerFile(const mg_connection* http, const mg_request_info& request) {
  Response response;
  absl::StatusOr<StaticFile> file = absl::NotFoundError("no such page");
  // The raw path decides: the cleaned one would make "/../x" an alias of "/x".
  if (!options_.web_root.empty() && request.local_uri_raw != nullptr) file = ReadStaticFile(options_.web_root, request.local_uri_raw);
  if (!file.ok()) {
    response.status = absl::IsNotFound(file.status()) ? 404 : 500;
    response.body = absl::StrCat(file.status().message(), "\n");
    return response;
  }
  response.content_type = file->content_type;
  response.etag = file->etag;
  response.cache_control = file->immutable ? "public, max-age=31536000, immutable" : "no-cache";
  if (Header(http, "If-None-Match") == file->etag) {
    response.status = 304;
  } else {
    response.body = std::move(file->content);
  }
  return response;
}

void WebServer::Impl::Write(mg_connection* http, const Response& response, bool with_body) {
  // Browsers differ in whether 'self' covers WebSockets, so the socket's address is spelled out.
  const std::string host = absl::AsciiStrToLower(AbslView(Header(http, "Host")));
  const std::string socket = HostWithoutPort(host).empty() ? "" : absl::StrCat(" ws://", host, " wss://", host);
  std::string head = absl::StrCat("HTTP/1.1 ", response.status, " ", mg_get_response_code_text(http, response.status), "\r\n");
  absl::StrAppend(&head, "Connection: close\r\nCache-Control: ", response.cache_control, "\r\nX-Content-Type-Options: nosniff\r\n",
                  "X-Frame-Options: DENY\r\nReferrer-Policy: no-referrer\r\nCross-Origin-Resource-Policy: same-origin\r\n",
                  "Cross-Origin-Opener-Policy: same-origin\r\nContent-Security-Policy: default-src 'self'; img-src 'self' data: blob:; "
                  "connect-src 'self'",
                  socket, "; object-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'\r\n");
  if (!response.etag.empty()) absl::StrAppend(&head, "ETag: ", response.etag, "\r\n");
  if (!response.allow.empty()) absl::StrAppend(&head, "Allow: ", response.allow, "\r\n");
  if (response.status == 401) absl::StrAppend(&head, "WWW-Authenticate: Bearer\r\n");
  if (response.status != 304 && response.status != 204)
    absl::StrAppend(&head, "Content-Type: ", response.content_type, "\r\nContent-Length: ", response.body.size(), "\r\n");
  absl::StrAppend(&head, "\r\n");
  if (mg_write(http, head.data(), head.size()) <= 0 || !with_body || response.body.empty()) return;
  mg_write(http, response.body.data(), response.body.size());
}

// --- WebSocket
// ----------------------------------------------------------------------------------------------------------------------------------

int WebServer::Impl::OnWebSocketConnect(const mg_connection* http) {
  const mg_request_info& request = *mg_get_request_info(http);
  if (request.local_uri == nullptr || std::string_view(request.local_uri) != "/ws") {
    Response response;
    response.status = 404;
    response.body = "the only WebSocket here is /ws\n";
    Write(const_cast<mg_connection*>(http), response, true);
    return 1;
  }
  const std::string_view host = Header(http, "Host");
  absl::Status status = CheckHost(host, allowed_hosts_);
  if (status.ok()) status = CheckOrigin(Header(http, "Origin"), host, options_.allowed_origins);
  if (status.ok()) status = CheckToken(http);
  if (status.ok()) return 0;
  {
    const std::lock_guard lock(mutex_);
    ++totals_.connections_refused;
  }
  Response response;
  response.status = HttpStatusOf(status);
  response.body = absl::StrCat(status.message(), "\n");
  Write(const_cast<mg_connection*>(http), response, true);
  return 1;
}

void WebServer::Impl::OnWebSocketReady(mg_connection* http) {
  ViewerConnection::Limits limits;
  limits.max_queued_messages = options_.max_queued_messages;
  limits.max_queued_bytes = options_.max_queued_bytes;
  limits.max_frames_in_flight = options_.max_frames_in_flight;
  limits.stall_timeout = std::chrono::milliseconds(options_.write_timeout_ms);
  auto owned = std::make_unique<Browser>(limits);
  Browser* const browser = owned.get();
  const mg_request_info& request = *mg_get_request_info(http);
  if (!UsesTls()) browser->socket = SocketOf(request, port_);
  browser->writer = std::thread([browser, http] {
    browser->connection->Run([http](ViewerConnection::Opcode opcode, std::string_view payload) {
      const int written = mg_websocket_write(http, static_cast<int>(opcode), payload.data(), payload.size());
      return written > 0 && static_cast<size_t>(written) >= payload.size();
    });
    browser->SetWriterDone(http);
  });
  owned.release();

  absl::Status status;
  {
    const std::lock_guard lock(mutex_);
    browsers_[http] = browser;
    if (stopping_) {
      status = absl::UnavailableError("the server stops");
    } else if (counted_connections_ >= options_.max_connections) {
      status = absl::ResourceExhaustedError(absl::StrCat("the server takes ", options_.max_connections, " viewers (web.max_connections)"));
      ++totals_.connections_refused;
    } else {
      browser->counted = true;
      ++counted_connections_;
      ++totals_.connections_total;
    }
  }
  if (status.ok()) {
    absl::StatusOr<std::unique_ptr<ViewerSession>> session =
        backend_->OpenSession(browser->connection, absl::StrCat(request.remote_addr, ":", request.remote_port));
    if (session.ok()) {
      browser->session = *std::move(session);
    } else {
      status = session.status();
    }
  }
  if (!status.ok()) {
    SendError(*browser->connection, 0, status);
    browser->connection->CloseWith(WebSocketClose::kTryAgainLater, std::string(status.message()));
  }
  // Not left to the library, which takes frames of any length into memory before it shows them.
  if (browser->socket >= 0) ReadFrames(*browser);
}

void WebServer::Impl::ReadFrames(Browser& browser) {
  FrameReader reader(options_.max_request_bytes);
  std::vector<char> buffer(kReadBytes);
  // Once there is nothing more to say, what still comes is thrown away for a while: closed with unread bytes, the connection would be
  // reset, and the browser might lose the reason.
  std::optional<std::chrono::steady_clock::time_point> end;
  while (true) {
    pollfd readable{browser.socket, POLLIN, 0};
    poll(&readable, 1, kReaderPollMs);
    const auto now = std::chrono::steady_clock::now();
    if (!end && browser.writer_done) end = now;
    if (end && now - *end > kGoodbyeTimeout) break;
    const ssize_t count = recv(browser.socket, buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (count <= 0) break;
    if (end) continue;
    const absl::Status status = reader.Feed({buffer.data(), static_cast<size_t>(count)},
                                            [&](int bits, std::string_view payload) { return Read(browser, bits, payload); });
    if (status.ok()) continue;
    if (!absl::IsCancelled(status)) {
      Refuse(browser, absl::IsResourceExhausted(status) ? WebSocketClose::kTooBig : WebSocketClose::kUnsupportedData, status);
    }
    end = std::chrono::steady_clock::now();
  }
  browser.SetReaderDone();
  shutdown(browser.socket, SHUT_RD);  // what the library reads next is the end
}

int WebServer::Impl::OnWebSocketData(const mg_connection* http, int bits, std::string_view data) {
  Browser* browser = nullptr;
  {
    const std::lock_guard lock(mutex_);
    const auto found = browsers_.find(http);
    if (found == browsers_.end()) return 0;
    browser = found->second;
  }
  if (browser->socket >= 0) return 0;  // read to its end already
  if (Read(*browser, bits, data)) return 1;
  browser->SetReaderDone();
  return 0;
}

bool WebServer::Impl::Read(Browser& browser, int bits, std::string_view data) {
  constexpr int kFinalBit = 0x80;
  constexpr int kReservedBits = 0x70;
  ViewerConnection& connection = *browser.connection;
  if ((bits & kReservedBits) != 0)
    return Refuse(browser, WebSocketClose::kUnsupportedData, absl::InvalidArgumentError("unknown WebSocket extension"));
  switch (bits & 0x0f) {
    case MG_WEBSOCKET_OPCODE_PING:
      connection.OnPing(data);
      return true;
    case MG_WEBSOCKET_OPCODE_PONG:
      connection.OnPong(data);
      return true;
    case MG_WEBSOCKET_OPCODE_CONNECTION_CLOSE:
      connection.Close();
      connection.WaitUntilEnded(kGoodbyeTimeout);
      return false;
    case MG_WEBSOCKET_OPCODE_TEXT:
      return Refuse(browser, WebSocketClose::kUnsupportedData,
                    absl::InvalidArgumentError("a text message: /ws speaks binary ViewerRequest messages"));
    case MG_WEBSOCKET_OPCODE_BINARY:
      if (browser.in_message)
        return Refuse(browser, WebSocketClose::kUnsupportedData, absl::InvalidArgumentError("a message inside another"));
      browser.in_message = true;
      browser.partial.clear();
      break;
    case MG_WEBSOCKET_OPCODE_CONTINUATION:
      if (!browser.in_message)
        return Refuse(browser, WebSocketClose::kUnsupportedData, absl::InvalidArgumentError("a continuation of no message"));
      break;
    default:
      return Refuse(browser, WebSocketClose::kUnsupportedData, absl::InvalidArgumentError("unknown WebSocket message type"));
  }
  if (data.size() > options_.max_request_bytes - browser.partial.size()) {
    return Refuse(
        browser, WebSocketClose::kTooBig,
        absl::ResourceExhaustedError(absl::StrCat("message longer than ", options_.max_request_bytes, " bytes (web.max_request_bytes)")));
  }
  browser.partial.append(data);
  if ((bits & kFinalBit) == 0) return true;
  browser.in_message = false;

  v1::ViewerRequest request;
  if (!request.ParseFromString(browser.partial)) {
    return Refuse(browser, WebSocketClose::kUnsupportedData, absl::InvalidArgumentError("the message is no palpate.v1.ViewerRequest"));
  }
  if (request.request_case() == v1::ViewerRequest::REQUEST_NOT_SET) {
    // Also what a newer viewer's unknown request looks like: refuse it, but keep the connection.
    SendError(connection, request.request_id(), absl::UnimplementedError("ViewerRequest.request: absent, or unknown to this server"));
    return true;
  }
  if (browser.session == nullptr) return true;  // refused; the close frame is on its way
  browser.session->OnRequest(request);
  return true;
}

bool WebServer::Impl::Refuse(Browser& browser, WebSocketClose code, const absl::Status& status) {
  {
    const std::lock_guard lock(mutex_);
    ++totals_.requests_bad;
  }
  SendError(*browser.connection, 0, status);
  browser.connection->CloseWith(code, std::string(status.message()));
  browser.connection->WaitUntilEnded(kGoodbyeTimeout);
  return false;
}

void WebServer::Impl::SendError(ViewerConnection& connection, uint32_t request_id, const absl::Status& status) {
  v1::ViewerUpdate update;
  update.set_request_id(request_id);
  update.mutable_error()->set_code(static_cast<int>(status.code()));
  update.mutable_error()->set_message(std::string(status.message()));
  connection.Send(std::move(update));
}

void WebServer::Impl::OnWebSocketClose(const mg_connection* http) {
  std::unique_ptr<Browser> browser;
  {
    const std::lock_guard lock(mutex_);
    const auto found = browsers_.find(http);
    if (found == browsers_.end()) return;
    browser.reset(found->second);
  }
  browser->SetReaderDone();
  browser->connection->End();
  browser->writer.join();
  browser->session.reset();
  const ViewerSinkStatistics statistics = browser->connection->statistics();
  const std::lock_guard lock(mutex_);
  browsers_.erase(http);
  if (browser->counted) --counted_connections_;
  totals_.frames_sent += statistics.frames_sent;
  totals_.frames_dropped += statistics.frames_dropped;
  totals_.bytes_sent += statistics.bytes_sent;
}

// --- WebServer
// ----------------------------------------------------------------------------------------------------------------------------------

absl::StatusOr<std::unique_ptr<WebServer>> WebServer::Start(const WebServerOptions& options, ViewerBackend* backend, Sources sources) {
  auto impl = std::make_unique<Impl>(options, backend, std::move(sources));
  if (absl::Status status = impl->Start(); !status.ok()) return status;
  return std::unique_ptr<WebServer>(new WebServer(std::move(impl)));
}

WebServer::WebServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
WebServer::~WebServer() = default;
void WebServer::Stop() { impl_->Stop(); }
uint16_t WebServer::port() const { return impl_->port(); }
std::string WebServer::url() const { return impl_->url(); }
WebServerStatistics WebServer::statistics() const { return impl_->statistics(); }

}  // namespace palpate::server
