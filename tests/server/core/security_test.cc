#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "absl/strings/str_cat.h"
#include "palpate/v1/edit.grpc.pb.h"
#include "tests/server/core/server_fixture.h"
#include "tests/support/http_get.h"

namespace palpate::server::security_test {
namespace {

using ::testing::HasSubstr;
namespace fs = std::filesystem;

fs::path TemporaryFolder() {
  const fs::path folder = fs::path(::testing::TempDir()) / ("palpate_security_" + std::to_string(::getpid()));
  fs::create_directories(folder);
  return folder;
}

std::string ReadAll(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

class TokenTest : public ServerTest {
 protected:
  ServerOptions Options() override {
    ServerOptions options = ServerTest::Options();
    options.token_file = (TemporaryFolder() / "token").string();
    std::ofstream(options.token_file) << "open-sesame\n";
    options.has_http = true;
    options.http = {"127.0.0.1", 0, true};
    return options;
  }
  static void AddToken(grpc::ClientContext& context, const std::string& value) { context.AddMetadata("authorization", value); }
};

TEST_F(TokenTest, EveryCallWantsTheToken) {
  const auto info = [&](const char* authorization) {
    grpc::ClientContext context;
    if (authorization != nullptr) AddToken(context, authorization);
    v1::GetServerInfoResponse response;
    return scenes_->GetServerInfo(&context, {}, &response).error_code();
  };
  for (const char* wrong : {static_cast<const char*>(nullptr), "", "Bearer", "Bearer ", "Bearer open-sesam", "Bearer open-sesame2",
                            "open-sesame", "bearer open-sesame", "Bearer  open-sesame"}) {
    EXPECT_EQ(info(wrong), grpc::StatusCode::UNAUTHENTICATED) << (wrong == nullptr ? "none" : wrong);
  }
  EXPECT_EQ(info("Bearer open-sesame"), grpc::StatusCode::OK);
}

TEST_F(TokenTest, NoMethodIsForgotten) {
  const auto refused = [](const grpc::Status& status) { return status.error_code() == grpc::StatusCode::UNAUTHENTICATED; };
#define EXPECT_UNARY_REFUSED(method)                                           \
  {                                                                            \
    grpc::ClientContext context;                                               \
    v1::method##Response response;                                             \
    EXPECT_TRUE(refused(scenes_->method(&context, {}, &response))) << #method; \
  }
  EXPECT_UNARY_REFUSED(CreateScene)
  EXPECT_UNARY_REFUSED(CheckScene)
  EXPECT_UNARY_REFUSED(ListScenes)
  EXPECT_UNARY_REFUSED(GetScene)
  EXPECT_UNARY_REFUSED(DeleteScene)
  EXPECT_UNARY_REFUSED(PlayScene)
  EXPECT_UNARY_REFUSED(PauseScene)
  EXPECT_UNARY_REFUSED(StepScene)
  EXPECT_UNARY_REFUSED(ResetScene)
  EXPECT_UNARY_REFUSED(SetSceneRate)
  EXPECT_UNARY_REFUSED(ExportScene)
  EXPECT_UNARY_REFUSED(GetServerInfo)
#undef EXPECT_UNARY_REFUSED
  EXPECT_EQ(v1::SceneService::service_full_name(), std::string("palpate.v1.SceneService"));
  {
    grpc::ClientContext context;
    v1::EditSceneResponse response;
    EXPECT_TRUE(refused(v1::EditService::NewStub(NewChannel())->EditScene(&context, {}, &response)));
  }
  {
    grpc::ClientContext context;
    const auto reader = streams_->Watch(&context, {});
    v1::WatchUpdate update;
    EXPECT_FALSE(reader->Read(&update));
    EXPECT_TRUE(refused(reader->Finish()));
  }
  grpc::ClientContext context;
  const auto stream = haptics_->Operate(&context);
  v1::OperateUpdate update;
  EXPECT_FALSE(stream->Read(&update));
  EXPECT_TRUE(refused(stream->Finish()));
}

TEST_F(TokenTest, StreamsWorkWithTheToken) {
  grpc::ClientContext create_context;
  AddToken(create_context, "Bearer open-sesame");
  v1::CreateSceneRequest request;
  *request.mutable_spec() = TinyScene();
  request.set_scene_id("a");
  v1::CreateSceneResponse response;
  ASSERT_TRUE(scenes_->CreateScene(&create_context, request, &response).ok());
  grpc::ClientContext context;
  AddToken(context, "Bearer open-sesame");
  v1::WatchRequest watch;
  watch.set_scene_id("a");
  const auto reader = streams_->Watch(&context, watch);
  v1::WatchUpdate update;
  EXPECT_TRUE(reader->Read(&update));
  context.TryCancel();
  while (reader->Read(&update)) {
  }
  reader->Finish();
}

class TlsTest : public ServerTest {
 protected:
  void SetUp() override {
    folder_ = TemporaryFolder();
    const std::string command =
        "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -addext subjectAltName=DNS:localhost,IP:127.0.0.1 -keyout " +
        (folder_ / "key.pem").string() + " -out " + (folder_ / "cert.pem").string() + " 2>/dev/null";
    if (std::system("openssl version >/dev/null 2>&1") != 0) GTEST_SKIP() << "needs the openssl program to make a certificate";
    ASSERT_EQ(std::system(command.c_str()), 0);
    ServerTest::SetUp();
  }
  ServerOptions Options() override {
    ServerOptions options = ServerTest::Options();
    options.tls_cert_file = (folder_ / "cert.pem").string();
    options.tls_key_file = (folder_ / "key.pem").string();
    return options;
  }
  fs::path folder_;
};

TEST_F(TlsTest, ServesOnlyThoseWhoSpeakTls) {
  grpc::SslCredentialsOptions ssl;
  ssl.pem_root_certs = ReadAll(folder_ / "cert.pem");
  const std::string target = absl::StrCat("localhost:", server_->grpc_port());
  const auto call = [&](const std::shared_ptr<grpc::ChannelCredentials>& credentials) {
    const auto stub = v1::SceneService::NewStub(grpc::CreateChannel(target, credentials));
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
    v1::GetServerInfoResponse response;
    return stub->GetServerInfo(&context, {}, &response);
  };
  const grpc::Status trusted = call(grpc::SslCredentials(ssl));
  EXPECT_TRUE(trusted.ok()) << trusted.error_message();
  EXPECT_EQ(call(grpc::InsecureChannelCredentials()).error_code(), grpc::StatusCode::UNAVAILABLE);
  // A client that does not know the certificate does not trust it.
  EXPECT_EQ(call(grpc::SslCredentials({})).error_code(), grpc::StatusCode::UNAVAILABLE);
}

class TlsHealthTest : public TlsTest {
 protected:
  ServerOptions Options() override {
    ServerOptions options = TlsTest::Options();
    options.has_http = true;
    options.http = {"127.0.0.1", 0, true};
    return options;
  }
};

TEST_F(TlsHealthTest, TheHealthPageAsksThroughTls) {
  if (WebServerHasTls()) GTEST_SKIP() << "the page itself is behind TLS here";
  EXPECT_THAT(test::HttpGet(server_->http_port(), "/healthz"), HasSubstr("200 OK"));
}

class UploadTest : public ServerTest {
 protected:
  ServerOptions Options() override {
    ServerOptions options = ServerTest::Options();
    options.limits.max_message_bytes = 100'000;
    return options;
  }
};

TEST_F(UploadTest, CompressedAndLongRequestsAreRefused) {
  const auto create = [&](size_t name_bytes, grpc_compression_algorithm compression) {
    grpc::ClientContext context;
    context.set_compression_algorithm(compression);
    v1::CheckSceneRequest request;
    *request.mutable_spec() = TinyScene();
    request.mutable_spec()->set_name(std::string(name_bytes, 'x'));
    v1::CheckSceneResponse response;
    return scenes_->CheckScene(&context, request, &response).error_code();
  };
  EXPECT_EQ(create(10, GRPC_COMPRESS_NONE), grpc::StatusCode::OK);
  EXPECT_EQ(create(10, GRPC_COMPRESS_GZIP), grpc::StatusCode::UNIMPLEMENTED);
  EXPECT_EQ(create(200'000, GRPC_COMPRESS_NONE), grpc::StatusCode::RESOURCE_EXHAUSTED);
}

TEST(Start, SaysWhatIsWrongWithItsInput) {
  ConfigureLog(LogLevel::kOff, false);
  const fs::path folder = TemporaryFolder();
  ServerOptions options;
  options.listen = {"127.0.0.1", 0, true};
  options.has_http = false;
  const auto error = [](const ServerOptions& o) { return Server::Start(o, TestContext()).status(); };

  ServerOptions bad = options;
  bad.token_file = (folder / "none").string();
  EXPECT_EQ(error(bad).code(), absl::StatusCode::kNotFound);
  bad = options;
  bad.tls_cert_file = bad.tls_key_file = (folder / "garbage.pem").string();
  std::ofstream(bad.tls_cert_file) << "garbage";
  EXPECT_THAT(std::string(error(bad).message()), HasSubstr("--tls-cert"));
  bad = options;
  bad.scene_files = {(folder / "none.json").string()};
  EXPECT_EQ(error(bad).code(), absl::StatusCode::kNotFound);
  const std::string scene_file = (folder / "bad.json").string();
  std::ofstream(scene_file) << R"({"bodies":[{"generator":{"sphere":{"radius_m":5}}}]})";
  bad.scene_files = {scene_file};
  EXPECT_THAT(std::string(error(bad).message()), HasSubstr("bodies[0].generator.sphere.radius_m: 5 is outside [0.001, 1]"));

  // A port in use is refused, not shared.
  absl::StatusOr<std::unique_ptr<Server>> first = Server::Start(options, TestContext());
  ASSERT_TRUE(first.ok());
  bad = options;
  bad.listen.port = static_cast<uint16_t>((*first)->grpc_port());
  EXPECT_EQ(error(bad).code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace palpate::server::security_test
