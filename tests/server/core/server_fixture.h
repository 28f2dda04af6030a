#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include "palpate/v1/control.grpc.pb.h"
#include "palpate/v1/haptics.grpc.pb.h"
#include "palpate/v1/stream.grpc.pb.h"
#include "server/core/server.h"

namespace palpate::server {

/// The CPU device, opened once per process.
std::shared_ptr<gpu::Context> TestContext();

/// A coarse slab of 0.1 x 0.1 x 0.1 m around the origin, held at the bottom, with a tool "probe" above it and a tool "second" far away.
v1::SceneSpec TinyScene();

/// Waits until `condition` holds; false after two minutes, which no healthy machine needs.
bool Eventually(const std::function<bool()>& condition);

/// A server on a free port of loopback, and a client.
class ServerTest : public ::testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;

  virtual ServerOptions Options();

  void StartServer();
  void StopServer() { server_.reset(); }
  std::shared_ptr<grpc::Channel> NewChannel() const;

  /// Creates TinyScene() (or `spec`) and returns its id.
  std::string CreateScene(bool play = false, const std::string& id = "", const v1::SceneSpec& spec = TinyScene());
  grpc::Status Step(const std::string& id, uint32_t count, v1::SceneInfo* info = nullptr);
  v1::SceneInfo Get(const std::string& id);
  grpc::Status Delete(const std::string& id);
  grpc::Status SetRate(const std::string& id, v1::RateMode mode, double speed = 0);
  grpc::Status Play(const std::string& id);
  grpc::Status Pause(const std::string& id, v1::SceneInfo* info = nullptr);

  /// The value of a line of /metrics that begins with `name` (labels included), or -1.
  double Metric(const std::string& name);

  std::unique_ptr<Server> server_;
  std::unique_ptr<v1::SceneService::Stub> scenes_;
  std::unique_ptr<v1::StreamService::Stub> streams_;
  std::unique_ptr<v1::HapticService::Stub> haptics_;
};

}  // namespace palpate::server
