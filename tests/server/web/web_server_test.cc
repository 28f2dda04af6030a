#include "server/web/web_server.h"

#include <atomic>
#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "tests/server/web/socket_client.h"

namespace palpate::server::web_server_test {
namespace {

namespace fs = std::filesystem;
using palpate::testing::SocketClient;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr int kBinary = 2, kText = 1, kClose = 8, kPing = 9, kPong = 10;
constexpr auto kPatience = std::chrono::seconds(20);

// Answers `list` with as many scenes as connections it has seen, `server_info` with nothing at all, and everything else with an error that
// says what came. `watch` starts a thread that offers frames of `frame_bytes` as fast as it can.
class FakeBackend : public ViewerBackend {
 public:
  absl::StatusOr<std::unique_ptr<ViewerSession>> OpenSession(std::shared_ptr<ViewerSink> sink, const std::string& peer) override {
    if (refuse) return absl::UnauthenticatedError("not you");
    EXPECT_THAT(peer, StartsWith("127.0.0.1:"));
    ++opened;
    ++alive;
    return std::make_unique<Session>(*this, std::move(sink));
  }

  absl::StatusOr<ViewerImage> FindImage(std::string_view id) override {
    if (id != "0123") return absl::NotFoundError("no such picture");
    return ViewerImage{"image/png", std::string("\x89PNG\0 and more", 14)};
  }

  std::atomic<bool> refuse = false;
  std::atomic<int> opened = 0, alive = 0, requests = 0;
  std::atomic<uint64_t> frames_offered = 0;
  size_t frame_bytes = 1000;

 private:
  class Session : public ViewerSession {
   public:
    Session(FakeBackend& backend, std::shared_ptr<ViewerSink> sink) : backend_(backend), sink_(std::move(sink)) {}
    ~Session() override {
      stop_ = true;
      if (streamer_.joinable()) streamer_.join();
      sink_->Send({});  // allowed after the end, does nothing
      sink_->OfferFrame([](uint64_t, v1::ViewerUpdate&) {
        ADD_FAILURE() << "a frame was written after the end";
        return false;
      });
      --backend_.alive;
    }
    void OnRequest(const v1::ViewerRequest& request) override {
      ++backend_.requests;
      v1::ViewerUpdate update;
      update.set_request_id(request.request_id());
      switch (request.request_case()) {
        case v1::ViewerRequest::kList:
          for (int i = 0; i < backend_.opened; ++i) update.mutable_list()->add_scenes();
          sink_->Send(std::move(update));
          break;
        case v1::ViewerRequest::kWatch:
          sink_->BeginStream();
          update.mutable_watch()->mutable_keyframe()->set_topology_version(1);
          sink_->Send(std::move(update));
          if (!streamer_.joinable()) streamer_ = std::thread([this] { Stream(); });
          break;
        case v1::ViewerRequest::kReset:
          sink_->Close();
          break;
        default:
          update.mutable_error()->set_code(3);
          update.mutable_error()->set_message(absl::StrCat("case ", static_cast<int>(request.request_case())));
          sink_->Send(std::move(update));
      }
    }

   private:
    void Stream() {
      for (uint64_t step = 1; !stop_; ++step) {
        ++backend_.frames_offered;
        sink_->OfferFrame([step, bytes = backend_.frame_bytes](uint64_t dropped, v1::ViewerUpdate& update) {
          v1::Frame& frame = *update.mutable_watch()->mutable_frame();
          frame.set_step(step);
          frame.set_dropped(dropped);
          frame.add_bodies()->set_positions(std::string(bytes, 'p'));
          return false;
        });
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    }
    FakeBackend& backend_;
    std::shared_ptr<ViewerSink> sink_;
    std::atomic<bool> stop_ = false;
    std::thread streamer_;
  };
};

class WebServerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    base_ = fs::path(::testing::TempDir()) / absl::StrCat("web_server_", ::testing::UnitTest::GetInstance()->current_test_info()->name());
    fs::create_directories(base_ / "root" / "assets");
    std::ofstream(base_ / "root" / "index.html") << "<html>viewer";
    std::ofstream(base_ / "root" / "assets" / "viewer-1.js") << "let x;";
    std::ofstream(base_ / "secret.txt") << "secret";
    options_.port = 0;
    options_.web_root = base_ / "root";
    options_.max_connections = 4;
  }
  void TearDown() override {
    server_.reset();
    fs::remove_all(base_);
  }
  void Start() {
    auto server = WebServer::Start(options_, &backend_, std::move(sources_));
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    ASSERT_GT(server_->port(), 0);
  }
  std::string Host() const { return absl::StrCat("127.0.0.1:", server_->port()); }
  std::string Get(const std::string& path, const std::string& headers = "", const std::string& method = "GET") {
    SocketClient client(server_->port());
    client.SendBytes(absl::StrCat(method, " ", path, " HTTP/1.1\r\nHost: ", Host(), "\r\n", headers, "\r\n"));
    return client.ReceiveAll();
  }
  static std::string ListRequest(uint32_t id) {
    v1::ViewerRequest request;
    request.set_request_id(id);
    request.mutable_list();
    return request.SerializeAsString();
  }
  static std::string WatchRequest() {
    v1::ViewerRequest request;
    request.set_request_id(1);
    request.mutable_watch()->set_scene_id("s");
    return request.SerializeAsString();
  }
  // The next binary message; fails the test if something else comes.
  static v1::ViewerUpdate Receive(SocketClient& client) {
    v1::ViewerUpdate update;
    const auto frame = client.ReceiveFrame();
    EXPECT_TRUE(frame.has_value());
    if (!frame) return update;
    EXPECT_EQ(frame->opcode, kBinary);
    EXPECT_TRUE(update.ParseFromString(frame->payload));
    return update;
  }
  // An error, then a close frame with `close_code`, then the end.
  static void ExpectRefusal(SocketClient& client, absl::StatusCode code, int close_code) {
    const v1::ViewerUpdate update = Receive(client);
    EXPECT_EQ(update.error().code(), static_cast<int>(code)) << update.ShortDebugString();
    EXPECT_NE(update.error().message(), "");
    const auto close = client.ReceiveFrame();
    ASSERT_TRUE(close.has_value());
    EXPECT_EQ(close->opcode, kClose);
    EXPECT_EQ(close->close_code(), close_code);
    EXPECT_FALSE(client.ReceiveFrame().has_value());
  }
  template <typename Condition>
  static bool WaitFor(Condition condition) {
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    while (!condition()) {
      if (std::chrono::steady_clock::now() > deadline) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return true;
  }

  fs::path base_;
  WebServerOptions options_;
  WebServer::Sources sources_;
  FakeBackend backend_;
  std::unique_ptr<WebServer> server_;
};

TEST_F(WebServerTest, ServesTheViewer) {
  Start();
  const std::string index = Get("/");
  EXPECT_THAT(index, StartsWith("HTTP/1.1 200 "));
  EXPECT_THAT(index, HasSubstr("Content-Type: text/html; charset=utf-8\r\n"));
  EXPECT_THAT(index, HasSubstr("Cache-Control: no-cache\r\n"));
  EXPECT_THAT(index, HasSubstr("X-Content-Type-Options: nosniff\r\n"));
  EXPECT_THAT(index, HasSubstr("Content-Security-Policy: default-src 'self';"));
  EXPECT_THAT(index, HasSubstr(absl::StrCat("ws://", Host())));
  EXPECT_THAT(index, Not(HasSubstr("Access-Control-Allow-Origin")));
  EXPECT_THAT(index, HasSubstr("\r\n\r\n<html>viewer"));
  const std::string script = Get("/assets/viewer-1.js?v=1");
  EXPECT_THAT(script, HasSubstr("text/javascript"));
  EXPECT_THAT(script, HasSubstr("immutable"));
}

TEST_F(WebServerTest, AnUnchangedPageIsNotSentAgain) {
  Start();
  const std::string index = Get("/");
  const size_t begin = index.find("ETag: ") + 6;
  const std::string etag = index.substr(begin, index.find("\r\n", begin) - begin);
  const std::string again = Get("/", absl::StrCat("If-None-Match: ", etag, "\r\n"));
  EXPECT_THAT(again, StartsWith("HTTP/1.1 304 "));
  EXPECT_THAT(again, Not(HasSubstr("viewer")));
  EXPECT_THAT(Get("/", "If-None-Match: \"other\"\r\n"), StartsWith("HTTP/1.1 200 "));
}

TEST_F(WebServerTest, PicturesAreForWhomTheSocketIsFor) {
  options_.is_token = [](std::string_view token) { return token == "sesame"; };
  Start();
  EXPECT_THAT(Get("/images/0123"), StartsWith("HTTP/1.1 401 "));
  EXPECT_THAT(Get("/images/0123", "Authorization: Bearer other\r\n"), StartsWith("HTTP/1.1 401 "));
  const std::string token = "Authorization: Bearer sesame\r\n";
  const std::string picture = Get("/images/0123", token);
  EXPECT_THAT(picture, StartsWith("HTTP/1.1 200 "));
  for (const char* header : {"Content-Type: image/png\r\n", "Content-Length: 14\r\n",
                             "Cache-Control: private, max-age=31536000, immutable\r\n", "X-Content-Type-Options: nosniff\r\n"}) {
    EXPECT_THAT(picture, HasSubstr(header));
  }
  EXPECT_THAT(picture, ::testing::EndsWith(std::string("\x89PNG\0 and more", 14)));
  EXPECT_THAT(Get("/images/0124", token), StartsWith("HTTP/1.1 404 "));
  EXPECT_THAT(Get("/images/", token), StartsWith("HTTP/1.1 404 "));
  EXPECT_THAT(Get("/images/../index.html", token), Not(HasSubstr("viewer")));
}

TEST_F(WebServerTest, HeadHasNoBodyAndOtherMethodsAreRefused) {
  Start();
  const std::string head = Get("/", "", "HEAD");
  EXPECT_THAT(head, StartsWith("HTTP/1.1 200 "));
  EXPECT_THAT(head, HasSubstr("Content-Length: 12\r\n"));
  EXPECT_THAT(head, ::testing::EndsWith("\r\n\r\n"));
  for (const char* method : {"POST", "PUT", "DELETE", "OPTIONS"}) {
    const std::string answer = Get("/", "Content-Length: 0\r\n", method);
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 405 ")) << method;
    EXPECT_THAT(answer, HasSubstr("Allow: GET, HEAD\r\n")) << method;
  }
}

TEST_F(WebServerTest, RefusesOtherFilesAndTraversal) {
  Start();
  for (const char* path : {"/missing.js", "/../secret.txt", "/%2e%2e/secret.txt", "/..%2fsecret.txt", "/assets/", "/assets",
                           "/assets/../../secret.txt", "//etc/passwd", "/.git/config"}) {
    const std::string answer = Get(path);
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 4")) << path;
    EXPECT_THAT(answer, Not(HasSubstr("secret"))) << path;
  }
}

TEST_F(WebServerTest, ServesMetricsAndHealth) {
  sources_.metrics_text = [] { return std::string("palpate_up 1\n"); };
  std::atomic<bool> healthy = true;
  sources_.health = [&healthy] { return healthy ? absl::OkStatus() : absl::UnavailableError("a scene thread is stuck"); };
  Start();
  const std::string metrics = Get("/metrics");
  EXPECT_THAT(metrics, HasSubstr("Content-Type: text/plain; version=0.0.4"));
  EXPECT_THAT(metrics, HasSubstr("\r\n\r\npalpate_up 1\n"));
  EXPECT_THAT(Get("/healthz"), HasSubstr("\r\n\r\nok\n"));
  healthy = false;
  const std::string sick = Get("/healthz");
  EXPECT_THAT(sick, StartsWith("HTTP/1.1 503 "));
  EXPECT_THAT(sick, HasSubstr("a scene thread is stuck"));
  EXPECT_EQ(server_->statistics().http_requests, 3u);
}

TEST_F(WebServerTest, AHostNameThatIsNotOursIsRefused) {
  Start();
  SocketClient client(server_->port());
  client.SendBytes("GET / HTTP/1.1\r\nHost: rebound.example.org\r\n\r\n");
  EXPECT_THAT(client.ReceiveAll(), StartsWith("HTTP/1.1 403 "));
  SocketClient socket(server_->port());
  EXPECT_EQ(socket.OpenWebSocket("/ws", "rebound.example.org"), 403);
}

TEST_F(WebServerTest, RequestsReachTheSessionAndAnswersComeBackInOrder) {
  Start();
  SocketClient client(server_->port());
  ASSERT_EQ(client.OpenWebSocket("/ws", Host(), absl::StrCat("Origin: http://", Host(), "\r\n")), 101);
  for (uint32_t id = 1; id <= 50; ++id) ASSERT_TRUE(client.SendFrame(kBinary, ListRequest(id)));
  for (uint32_t id = 1; id <= 50; ++id) {
    const v1::ViewerUpdate update = Receive(client);
    EXPECT_EQ(update.request_id(), id);
    EXPECT_EQ(update.list().scenes_size(), 1);
  }
  EXPECT_EQ(server_->statistics().connections, 1);
}

TEST_F(WebServerTest, FragmentsMakeOneMessageAndPingsMayComeBetween) {
  Start();
  SocketClient client(server_->port());
  ASSERT_EQ(client.OpenWebSocket("/ws", Host()), 101);
  const std::string request = ListRequest(77);
  client.SendFrame(kBinary, request.substr(0, 1), false);
  client.SendFrame(kPing, "between");
  client.SendFrame(0, request.substr(1, 1), false);
  client.SendFrame(0, request.substr(2), true);
  const auto pong = client.ReceiveFrame();
  ASSERT_TRUE(pong.has_value());
  EXPECT_EQ(pong->opcode, kPong);
  EXPECT_EQ(pong->payload, "between");
  EXPECT_EQ(Receive(client).request_id(), 77u);
}

TEST_F(WebServerTest, PagesOfAnotherOriginAreRefused) {
  Start();
  for (const char* origin : {"http://evil.example.org", "null", "http://127.0.0.1:1"}) {
    SocketClient client(server_->port());
    EXPECT_EQ(client.OpenWebSocket("/ws", Host(), absl::StrCat("Origin: ", origin, "\r\n")), 403) << origin;
  }
  EXPECT_EQ(server_->statistics().connections_refused, 3u);
  EXPECT_EQ(backend_.opened, 0);
}

TEST_F(WebServerTest, BadMessagesAreAnsweredAndCloseOnlyThatConnection) {
  options_.max_request_bytes = 1000;
  options_.max_connections = 20;
  Start();
  SocketClient good(server_->port());
  ASSERT_EQ(good.OpenWebSocket("/ws", Host()), 101);
  struct Case {
    int opcode;
    std::string payload;
    absl::StatusCode code;
    int close_code;
  };
  const std::vector<Case> cases = {
      {kText, "hello", absl::StatusCode::kInvalidArgument, 1003},
      {kBinary, "\xff\xff\xff\xff", absl::StatusCode::kInvalidArgument, 1003},
      {kBinary, std::string(1001, 'x'), absl::StatusCode::kResourceExhausted, 1009},
      {kBinary, std::string(5000000, 'x'), absl::StatusCode::kResourceExhausted, 1009},
      {0, "continuation of nothing", absl::StatusCode::kInvalidArgument, 1003},
      {5, "unknown opcode", absl::StatusCode::kInvalidArgument, 1003},
      {0x40 | kBinary, "reserved bit", absl::StatusCode::kInvalidArgument, 1003},
  };
  for (const Case& one : cases) {
    SCOPED_TRACE(absl::StrCat("opcode ", one.opcode, ", ", one.payload.size(), " bytes"));
    SocketClient client(server_->port());
    ASSERT_EQ(client.OpenWebSocket("/ws", Host()), 101);
    ASSERT_TRUE(client.SendFrame(one.opcode, one.payload));
    ExpectRefusal(client, one.code, one.close_code);
  }
  {
    SCOPED_TRACE("fragments that add up");
    SocketClient client(server_->port());
    ASSERT_EQ(client.OpenWebSocket("/ws", Host()), 101);
    client.SendFrame(kBinary, std::string(600, 'x'), false);
    client.SendFrame(0, std::string(600, 'x'), false);
    ExpectRefusal(client, absl::StatusCode::kResourceExhausted, 1009);
  }
  {
    SCOPED_TRACE("a message inside another");
    SocketClient client(server_->port());
    ASSERT_EQ(client.OpenWebSocket("/ws", Host()), 101);
    client.SendFrame(kBinary, "x", false);
    client.SendFrame(kBinary, "x", true);
    ExpectRefusal(client, absl::StatusCode::kInvalidArgument, 1003);
  }
  EXPECT_EQ(server_->statistics().requests_bad, cases.size() + 2);
  ASSERT_TRUE(good.SendFrame(kBinary, ListRequest(5)));
  EXPECT_EQ(Receive(good).request_id(), 5u);
  EXPECT_EQ(backend_.requests, 1);
}

TEST_F(WebServerTest, ALongMessageIsRefusedByItsHeader) {
  Start();
  SocketClient client(server_->port());
  ASSERT_EQ(client.OpenWebSocket("/ws", Host()), 101);
  // A gibibyte is announced, and not a byte of it sent.
  client.SendBytes(std::string("\x82\xff\x00\x00\x00\x00\x40\x00\x00\x00mask", 14));
  ExpectRefusal(client, absl::StatusCode::kResourceExhausted, 1009);
}

TEST_F(WebServerTest, ARequestWithoutContentIsAnErrorButKeepsTheConnection) {
  Start();
  SocketClient client(server_->port());
  ASSERT_EQ(client.OpenWebSocket("/ws", Host()), 101);
  v1::ViewerRequest request;
  request.set_request_id(8);
  client.SendFrame(kBinary, request.SerializeAsString());
  const v1::ViewerUpdate update = Receive(client);
  EXPECT_EQ(update.request_id(), 8u);
  EXPECT_EQ(update.error().code(), static_cast<int>(absl::StatusCode::kUnimplemented));
  client.SendFrame(kBinary, ListRequest(9));
  EXPECT_EQ(Receive(client).request_id(), 9u);
}

TEST_F(WebServerTest, AFullServerSaysSo) {
  options_.max_connections = 2;
  Start();
  auto first = std::make_unique<SocketClient>(server_->port());
  SocketClient second(server_->port());
  SocketClient third(server_->port());
  ASSERT_EQ(first->OpenWebSocket("/ws", Host()), 101);
  ASSERT_EQ(second.OpenWebSocket("/ws", Host()), 101);
  ASSERT_EQ(third.OpenWebSocket("/ws", Host()), 101);
  ExpectRefusal(third, absl::StatusCode::kResourceExhausted, 1013);
  first.reset();
  ASSERT_TRUE(WaitFor([&] { return server_->statistics().connections == 1; }));
  SocketClient fourth(server_->port());
  ASSERT_EQ(fourth.OpenWebSocket("/ws", Host()), 101);
  fourth.SendFrame(kBinary, ListRequest(1));
  EXPECT_EQ(Receive(fourth).request_id(), 1u);
  EXPECT_EQ(server_->statistics().connections_refused, 1u);
}

TEST_F(WebServerTest, ABackendMayRefuse) {
  backend_.refuse = true;
  Start();
  SocketClient client(server_->port());
  ASSERT_EQ(client.OpenWebSocket("/ws", Host()), 101);
  client.SendFrame(kBinary, ListRequest(1));  // goes nowhere, quietly
  ExpectRefusal(client, absl::StatusCode::kUnauthenticated, 1013);
}

TEST_F(WebServerTest, AReaderThatStopsReadingLosesFramesAndIsClosedWhileOthersGoOn) {
  options_.write_timeout_ms = 400;
  backend_.frame_bytes = 300000;
  Start();
  SocketClient slow(server_->port());
  ASSERT_EQ(slow.OpenWebSocket("/ws", Host()), 101);
  slow.SendFrame(kBinary, WatchRequest());
  SocketClient quick(server_->port());
  ASSERT_EQ(quick.OpenWebSocket("/ws", Host()), 101);
  quick.SendFrame(kBinary, WatchRequest());
  EXPECT_TRUE(Receive(quick).watch().has_keyframe());
  uint64_t step = 0;
  for (int i = 0; i < 30; ++i) {
    const v1::ViewerUpdate update = Receive(quick);
    ASSERT_TRUE(update.watch().has_frame());
    EXPECT_GT(update.watch().frame().step(), step);
    step = update.watch().frame().step();
    EXPECT_LT(update.watch().frame().dropped(), step);
  }
  // The slow one is found out; the quick one, which goes on reading, is not.
  std::atomic<bool> stop = false;
  std::thread reader([&] {
    while (!stop) quick.ReceiveFrame(std::chrono::milliseconds(200));
  });
  EXPECT_TRUE(WaitFor([&] { return server_->statistics().connections == 1; }));
  EXPECT_GT(server_->statistics().frames_dropped, 0u);
  stop = true;
  reader.join();
}

TEST_F(WebServerTest, FramesInFlightAreBounded) {
  options_.max_frames_in_flight = 3;
  Start();
  SocketClient client(server_->port());
  ASSERT_EQ(client.OpenWebSocket("/ws", Host()), 101);
  client.SendFrame(kBinary, WatchRequest());
  EXPECT_TRUE(Receive(client).watch().has_keyframe());
  // Without pongs exactly three frames come, each followed by a ping.
  std::string last_ping;
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(client.ReceiveFrame(kPatience, false)->opcode, kBinary);
    const auto ping = client.ReceiveFrame(kPatience, false);
    ASSERT_TRUE(ping.has_value());
    EXPECT_EQ(ping->opcode, kPing);
    last_ping = ping->payload;
  }
  ASSERT_TRUE(WaitFor([&] { return backend_.frames_offered > 20; }));
  EXPECT_EQ(server_->statistics().frames_sent, 3u);
  client.SendFrame(kPong, last_ping);
  const v1::ViewerUpdate update = Receive(client);
  EXPECT_GT(update.watch().frame().dropped(), 0u);
}

TEST_F(WebServerTest, SessionsEndWithTheirConnections) {
  Start();
  for (int i = 0; i < 3; ++i) {
    SocketClient client(server_->port());
    ASSERT_EQ(client.OpenWebSocket("/ws", Host()), 101);
    client.SendFrame(kBinary, WatchRequest());
    Receive(client);
    if (i == 1) {
      client.SendFrame(kClose, std::string("\x03\xe8", 2));
      std::optional<SocketClient::Frame> frame;
      do {
        frame = client.ReceiveFrame();
      } while (frame && frame->opcode != kClose);
      ASSERT_TRUE(frame.has_value());
      EXPECT_EQ(frame->close_code(), 1000);
    } else if (i == 2) {
      client.SendBytes(std::string("\x82\xff\x00", 3));  // breaks off inside a frame's header
    }
  }
  EXPECT_TRUE(WaitFor([&] { return backend_.alive == 0 && server_->statistics().connections == 0; }));
  EXPECT_EQ(server_->statistics().connections_total, 3u);
}

TEST_F(WebServerTest, ASessionMayCloseItsConnection) {
  Start();
  SocketClient client(server_->port());
  ASSERT_EQ(client.OpenWebSocket("/ws", Host()), 101);
  v1::ViewerRequest request;
  request.mutable_reset();
  client.SendFrame(kBinary, request.SerializeAsString());
  const auto close = client.ReceiveFrame();
  ASSERT_TRUE(close.has_value());
  EXPECT_EQ(close->opcode, kClose);
  EXPECT_FALSE(client.ReceiveFrame().has_value());
  EXPECT_TRUE(WaitFor([&] { return backend_.alive == 0; }));
}

TEST_F(WebServerTest, StopSaysGoodbyeToEveryBrowser) {
  Start();
  SocketClient idle(server_->port());
  SocketClient watching(server_->port());
  ASSERT_EQ(idle.OpenWebSocket("/ws", Host()), 101);
  ASSERT_EQ(watching.OpenWebSocket("/ws", Host()), 101);
  watching.SendFrame(kBinary, WatchRequest());
  Receive(watching);
  ASSERT_TRUE(WaitFor([&] { return backend_.alive == 2; }));
  server_->Stop();
  server_->Stop();
  EXPECT_EQ(backend_.alive, 0);
  const auto close = idle.ReceiveFrame();
  ASSERT_TRUE(close.has_value());
  EXPECT_EQ(close->opcode, kClose);
  EXPECT_EQ(close->close_code(), 1001);
  EXPECT_FALSE(SocketClient(server_->port()).connected());
}

TEST_F(WebServerTest, RefusesPlainRequestsToTheSocketAndSocketsElsewhere) {
  Start();
  EXPECT_THAT(Get("/ws"), StartsWith("HTTP/1.1 426 "));
  SocketClient client(server_->port());
  EXPECT_EQ(client.OpenWebSocket("/elsewhere", Host()), 404);
  SocketClient garbage(server_->port());
  garbage.SendBytes(std::string("\x16\x03\x01\x02\x00garbage\r\n\r\n", 16));
  garbage.ReceiveAll();
  EXPECT_THAT(Get("/healthz"), StartsWith("HTTP/1.1 200 "));
}

TEST(WebServerStart, OptionsAreChecked) {
  const auto start = [](auto change) {
    WebServerOptions options;
    options.port = 0;
    change(options);
    return WebServer::Start(options, nullptr, {}).status();
  };
  using Options = WebServerOptions;
  const absl::StatusCode bad = absl::StatusCode::kInvalidArgument;
  EXPECT_EQ(start([](Options& o) { o.bind_address = "localhost"; }).code(), bad);
  EXPECT_EQ(start([](Options& o) { o.bind_address = "127.0.0.1,0.0.0.0:1"; }).code(), bad);
  EXPECT_EQ(start([](Options& o) { o.max_connections = 0; }).code(), bad);
  EXPECT_EQ(start([](Options& o) { o.max_connections = -5; }).code(), bad);
  EXPECT_EQ(start([](Options& o) { o.max_request_bytes = 1; }).code(), bad);
  EXPECT_EQ(start([](Options& o) { o.max_queued_messages = 0; }).code(), bad);
  EXPECT_EQ(start([](Options& o) { o.max_queued_bytes = 0; }).code(), bad);
  EXPECT_EQ(start([](Options& o) { o.max_frames_in_flight = 1000; }).code(), bad);
  EXPECT_EQ(start([](Options& o) { o.write_timeout_ms = 0; }).code(), bad);
  EXPECT_EQ(start([](Options& o) { o.certificate_file = "cert.pem"; }).code(), bad);
  EXPECT_EQ(start([](Options& o) { o.web_root = "no such folder"; }).code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(start([](Options& o) { o.certificate_file = o.private_key_file = "no such file"; }).code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(start([](Options& o) { o.write_timeout_ms = 7; }).message()),
              HasSubstr("web.write_timeout_ms: 7 is outside [100, 600000]"));
}

TEST(WebServerStart, ATakenPortIsUnavailable) {
  WebServerOptions options;
  options.port = 0;
  const auto first = WebServer::Start(options, nullptr, {});
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ((*first)->url(), absl::StrCat("http://127.0.0.1:", (*first)->port(), "/"));
  options.port = (*first)->port();
  EXPECT_EQ(WebServer::Start(options, nullptr, {}).status().code(), absl::StatusCode::kUnavailable);
}

TEST(WebServerStart, TlsThatTheLibraryCannotDoIsAClearError) {
  if (WebServerHasTls()) GTEST_SKIP() << "this civetweb can do TLS";
  const std::string file = fs::path(::testing::TempDir()) / "web_server_some.pem";
  std::ofstream(file) << "x";
  WebServerOptions options;
  options.port = 0;
  options.certificate_file = options.private_key_file = file;
  EXPECT_EQ(WebServer::Start(options, nullptr, {}).status().code(), absl::StatusCode::kUnimplemented);
  fs::remove(file);
}

}  // namespace
}  // namespace palpate::server::web_server_test
