#include <fcntl.h>
#include <gmock/gmock.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "palpate/v1/control.grpc.pb.h"
#include "palpate/v1/stream.grpc.pb.h"
#include "tests/support/http_get.h"

namespace palpate::server_test {
namespace {

using ::testing::HasSubstr;
namespace fs = std::filesystem;

std::string ReadAll(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

/// A child process with its output in a file.
class Process {
 public:
  Process(const std::vector<std::string>& arguments, const fs::path& output) {
    std::vector<char*> pointers;
    std::vector<std::string> all = {PALPATE_SERVER_BINARY};
    all.insert(all.end(), arguments.begin(), arguments.end());
    for (std::string& argument : all) pointers.push_back(argument.data());
    pointers.push_back(nullptr);
    const std::string file = output.string();
    pid_ = fork();
    if (pid_ == 0) {
      const int fd = open(file.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
      dup2(fd, 1);
      dup2(fd, 2);
      execv(pointers[0], pointers.data());
      _exit(127);
    }
  }
  ~Process() {
    if (pid_ > 0) {
      kill(pid_, SIGKILL);
      Wait();
    }
  }
  void Signal(int signal) const { kill(pid_, signal); }
  bool IsRunning() {
    int status = 0;
    if (pid_ > 0 && waitpid(pid_, &status, WNOHANG) == pid_) {
      pid_ = -1;
      exit_code_ = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
    }
    return pid_ > 0;
  }
  /// The exit code, or the negated number of the signal that ended it.
  int Wait() {
    int status = 0;
    if (pid_ > 0) {
      waitpid(pid_, &status, 0);
      pid_ = -1;
      exit_code_ = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
    }
    return exit_code_;
  }

 private:
  pid_t pid_ = -1;
  int exit_code_ = 0;
};

/// One call in bytes: its status, and the answer appended to `answer`.
grpc::StatusCode CallRaw(int grpc_port, const std::string& method, const std::string& request_bytes, std::string& answer) {
  const auto channel = grpc::CreateChannel(absl::StrCat("127.0.0.1:", grpc_port), grpc::InsecureChannelCredentials());
  grpc::GenericStub stub(channel);
  grpc::ClientContext context;
  grpc::CompletionQueue queue;
  const grpc::Slice slice(request_bytes);
  const grpc::ByteBuffer request(&slice, 1);
  grpc::ByteBuffer response;
  grpc::Status status;
  void* tag = nullptr;
  bool ok = false;
  const auto unary = stub.PrepareUnaryCall(&context, method, request, &queue);
  unary->StartCall();
  unary->Finish(&response, &status, &queue);
  queue.Next(&tag, &ok);
  std::vector<grpc::Slice> slices;
  if (status.ok() && response.Dump(&slices).ok()) {
    for (const grpc::Slice& s : slices) answer.append(reinterpret_cast<const char*>(s.begin()), s.size());
  }
  queue.Shutdown();
  while (queue.Next(&tag, &ok)) {
  }
  return status.error_code();
}

class ServerProgram : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(::testing::TempDir()) / ("palpate_e2e_server_" + std::to_string(::getpid()));
    fs::create_directories(folder_);
    std::ofstream(folder_ / "Small Slab.json") << R"({
      "name": "slab",
      "solver": {"iterations": 2},
      "bodies": [{"generator": {"slab": {"size_m": {"x": 0.1, "y": 0.1, "z": 0.1}}, "edge_length_m": 0.05}}],
      "obstacles": [{"plane": {"point_m": {"z": -0.06}}}],
      "tools": [{"name": "probe", "rest_pose": {"position_m": {"z": 0.2}}}]
    })";
  }
  void TearDown() override { fs::remove_all(folder_); }

  int Run(const std::vector<std::string>& arguments) { return Process(arguments, folder_ / "out").Wait(); }
  std::string Output() const { return ReadAll(folder_ / "out"); }

  /// Starts a server and waits for its ready file.
  std::unique_ptr<Process> Start(std::vector<std::string> arguments, int& grpc_port, int& http_port) {
    const fs::path ready = folder_ / "ready.json";
    for (const char* argument : {"--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--ready-file"}) arguments.emplace_back(argument);
    arguments.push_back(ready.string());
    auto process = std::make_unique<Process>(arguments, folder_ / "out");
    while (!fs::exists(ready)) {
      if (!process->IsRunning()) {
        ADD_FAILURE() << "the server ended: " << Output();
        return nullptr;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    EXPECT_EQ(std::sscanf(ReadAll(ready).c_str(), "{\"grpc_port\":%d,\"http_port\":%d}", &grpc_port, &http_port), 2) << ReadAll(ready);
    return process;
  }

  fs::path folder_;
};

TEST_F(ServerProgram, ServesAndEndsCleanly) {
  for (const int signal : {SIGTERM, SIGINT}) {
    int grpc_port = 0;
    int http_port = 0;
    const std::unique_ptr<Process> server = Start({"--scene", (folder_ / "Small Slab.json").string(), "--log-json"}, grpc_port, http_port);
    ASSERT_NE(server, nullptr);
    const auto channel = grpc::CreateChannel(absl::StrCat("127.0.0.1:", grpc_port), grpc::InsecureChannelCredentials());
    const auto scenes = v1::SceneService::NewStub(channel);
    {
      grpc::ClientContext context;
      v1::ListScenesResponse list;
      ASSERT_TRUE(scenes->ListScenes(&context, {}, &list).ok());
      ASSERT_EQ(list.scenes_size(), 1);
      EXPECT_EQ(list.scenes(0).scene_id(), "small-slab");
      EXPECT_EQ(list.scenes(0).state(), v1::RUN_STATE_PLAYING);
    }
    const auto streams = v1::StreamService::NewStub(channel);
    grpc::ClientContext watch_context;
    v1::WatchRequest watch;
    watch.set_scene_id("small-slab");
    const auto reader = streams->Watch(&watch_context, watch);
    v1::WatchUpdate update;
    ASSERT_TRUE(reader->Read(&update));
    ASSERT_TRUE(update.has_keyframe());
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(reader->Read(&update));
    EXPECT_GT(update.frame().step(), 0U);

    const std::string metrics = test::HttpGet(http_port, "/metrics");
    EXPECT_THAT(metrics, HasSubstr("200 OK"));
    for (const char* name :
         {"palpate_steps_total{scene=\"small-slab\"}", "palpate_step_seconds_bucket{", "palpate_stage_seconds_sum{",
          "palpate_streams{kind=\"watch\"} 1", "palpate_frames_total{", "palpate_device_memory_bytes ",
          "palpate_kernel_launches_total{kernel=", "palpate_build_info{version=", "palpate_scenes{state=\"playing\"} 1"}) {
      EXPECT_THAT(metrics, HasSubstr(name));
    }
    EXPECT_THAT(test::HttpGet(http_port, "/healthz"), HasSubstr("200"));

    server->Signal(signal);
    while (reader->Read(&update)) {
    }
    const grpc::Status status = reader->Finish();
    EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE) << status.error_message();
    EXPECT_EQ(server->Wait(), 0) << Output();
    EXPECT_THAT(Output(), HasSubstr("\"event\":\"server stopped\""));
    fs::remove(folder_ / "ready.json");
  }
}

TEST_F(ServerProgram, AnswersTheStandardHealthServiceAndReflection) {
  int grpc_port = 0;
  int http_port = 0;
  const std::unique_ptr<Process> server = Start({}, grpc_port, http_port);
  ASSERT_NE(server, nullptr);
  const auto call = [&](const std::string& method, const std::string& request, std::string& answer) {
    return CallRaw(grpc_port, method, request, answer);
  };
  // grpc.health.v1: field 1 of the request is the service, field 1 of the answer the state, 1 = SERVING.
  for (const std::string& service : {std::string(""), std::string("palpate.v1.SceneService"), std::string("palpate.v1.HapticService")}) {
    std::string answer;
    const std::string request = service.empty() ? "" : std::string("\x0a") + static_cast<char>(service.size()) + service;
    EXPECT_EQ(call("/grpc.health.v1.Health/Check", request, answer), grpc::StatusCode::OK) << service;
    EXPECT_EQ(answer, "\x08\x01") << service;
  }
  std::string answer;
  EXPECT_EQ(call("/grpc.health.v1.Health/Check", std::string("\x0a\x01x"), answer), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(call("/palpate.v1.SceneService/NoSuchMethod", "", answer), grpc::StatusCode::UNIMPLEMENTED);
  // Reflection, list_services (field 7).
  answer.clear();
  EXPECT_EQ(call("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", std::string("\x3a\x00", 2), answer),
            grpc::StatusCode::OK);
  EXPECT_THAT(answer, HasSubstr("palpate.v1.StreamService"));
  server->Signal(SIGTERM);
  EXPECT_EQ(server->Wait(), 0) << Output();
  EXPECT_THAT(Output(), Not(HasSubstr("duplicate registration")));
}

// It asks nobody who they are, and each of its streams holds a thread.
TEST_F(ServerProgram, HasNoReflectionBehindAToken) {
  std::ofstream(folder_ / "token") << "secret\n";
  int grpc_port = 0;
  int http_port = 0;
  const std::unique_ptr<Process> server = Start({"--token-file", (folder_ / "token").string()}, grpc_port, http_port);
  ASSERT_NE(server, nullptr);
  std::string answer;
  EXPECT_EQ(CallRaw(grpc_port, "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", std::string("\x3a\x00", 2), answer),
            grpc::StatusCode::UNIMPLEMENTED);
  server->Signal(SIGTERM);
  EXPECT_EQ(server->Wait(), 0) << Output();
  EXPECT_THAT(Output(), Not(HasSubstr("duplicate registration")));
}

TEST_F(ServerProgram, SaysWhatIsWrongAndHowToGetHelp) {
  EXPECT_EQ(Run({"--version"}), 0);
  EXPECT_THAT(Output(), HasSubstr("palpate-server "));
  EXPECT_EQ(Run({"--help"}), 0);
  for (const char* flag : {"--listen", "--http", "--scene", "--asset-root", "--device", "--tls-cert", "--insecure", "--token-file",
                           "--max-scenes", "--config"}) {
    EXPECT_THAT(Output(), HasSubstr(flag));
  }
  EXPECT_EQ(Run({"scene.json"}), 2);
  EXPECT_THAT(Output(), HasSubstr("unexpected argument \"scene.json\""));
  EXPECT_NE(Run({"--no-such-flag=1"}), 0);
  EXPECT_THAT(Output(), HasSubstr("no_such_flag"));
  EXPECT_EQ(Run({"--listen"}), 2);
  EXPECT_THAT(Output(), HasSubstr("--listen needs a value"));
  EXPECT_EQ(Run({"--listen", "0.0.0.0:0"}), 2);
  EXPECT_THAT(Output(), HasSubstr("--insecure"));
  EXPECT_EQ(Run({"--max-scenes", "0", "--log-level", "shout"}), 2);
  EXPECT_THAT(Output(), HasSubstr("--log-level"));
  EXPECT_EQ(Run({"--config", (folder_ / "none.json").string()}), 2);
  EXPECT_THAT(Output(), HasSubstr("none.json"));
  EXPECT_EQ(Run({"--listen", "127.0.0.1:0", "--http", "off", "--device", "no such device"}), 1);
  EXPECT_THAT(Output(), HasSubstr("no such device"));
}

TEST_F(ServerProgram, ReadsItsConfigurationFile) {
  const fs::path config = folder_ / "server.json";
  std::ofstream(config) << R"({"http": "off", "scene": [")" << (folder_ / "Small Slab.json").string()
                        << R"("], "limits": {"max_scenes": 1}})";
  const fs::path ready = folder_ / "ready.json";
  Process server({"--config", config.string(), "--listen=127.0.0.1:0", "--ready-file", ready.string()}, folder_ / "out");
  while (!fs::exists(ready) && server.IsRunning()) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  int grpc_port = 0;
  int http_port = -1;
  ASSERT_EQ(std::sscanf(ReadAll(ready).c_str(), "{\"grpc_port\":%d,\"http_port\":%d}", &grpc_port, &http_port), 2) << Output();
  EXPECT_EQ(http_port, 0);
  const auto scenes =
      v1::SceneService::NewStub(grpc::CreateChannel(absl::StrCat("127.0.0.1:", grpc_port), grpc::InsecureChannelCredentials()));
  grpc::ClientContext info_context;
  v1::GetServerInfoResponse info;
  ASSERT_TRUE(scenes->GetServerInfo(&info_context, {}, &info).ok());
  EXPECT_EQ(info.scene_count(), 1U);
  EXPECT_EQ(info.limits().max_scenes(), 1U);
  server.Signal(SIGTERM);
  EXPECT_EQ(server.Wait(), 0);
}

}  // namespace
}  // namespace palpate::server_test
