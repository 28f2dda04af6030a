#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <grpcpp/grpcpp.h>

#include "palpate/v1/haptics.grpc.pb.h"

namespace palpate::testing {

/// A haptic service inside the test: scene "scene" with tool "tool" over a flat wall. Real gRPC on a loopback port, no simulation.
class FakeHapticServer final : public v1::HapticService::Service {
 public:
  struct Options {
    double wall_z_m = -0.01;
    double stiffness_n_per_m = 300;
    double start_z_m = 0;
    double rate_hz = 120;
    int models_per_stream = 0;        ///< cancel the stream after so many; 0 = go on
    grpc::Status attach_status = {};  ///< refuses attachments if not OK
    bool broken_models = false;       ///< every second model holds a NaN
    std::string wanted_token = {};    ///< refuse calls without it
    /// The tool's instrument. Models say: touching below the wall; grasping while jaws are wanted less than half open; cutting, and 1 g
    /// gone each step, while the pedal is down.
    v1::InstrumentKind kind = v1::INSTRUMENT_KIND_PROBE;
    double max_jaw_angle_rad = 0;
    double max_power_w = 0;
  };

  explicit FakeHapticServer(const Options& options);
  ~FakeHapticServer() override;

  std::string address() const;
  int port() const { return port_; }
  void Stop();
  /// Listens again on the same port.
  void Start();

  int attachments() const { return attachments_.load(); }
  uint64_t poses() const { return poses_.load(); }
  uint64_t out_of_order_poses() const { return out_of_order_poses_.load(); }
  v1::Attach last_attach() const;
  v1::ToolPose last_pedal_pose() const;  ///< the newest with the pedal down

 private:
  grpc::Status Operate(grpc::ServerContext* context, grpc::ServerReaderWriter<v1::OperateUpdate, v1::OperateRequest>* stream) override;

  const Options options_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
  std::atomic<int> attachments_{0};
  std::atomic<uint64_t> poses_{0};
  std::atomic<uint64_t> out_of_order_poses_{0};
  mutable std::mutex mutex_;
  v1::Attach last_attach_;        // guarded by mutex_
  v1::ToolPose last_pedal_pose_;  // guarded by mutex_
};

}  // namespace palpate::testing
