#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>

#include <grpcpp/alarm.h>
#include <grpcpp/grpcpp.h>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "server/core/metrics.h"
#include "server/core/rpc.h"

namespace palpate::server {

/// Who may call, and how long a client may take to send a request.
struct CallPolicy {
  const Authenticator* authenticator = nullptr;  ///< null: anybody
  Metrics* metrics = nullptr;                    ///< null: errors are not counted
  std::chrono::milliseconds upload_timeout{30000};
};

/// Runs a function after a time, unless stopped first: either Stop returns true, or the function runs, never both.
class UploadTimer {
 public:
  ~UploadTimer() { Stop(); }

  /// Once. `on_late` runs on a thread of gRPC.
  void Start(std::chrono::milliseconds timeout, std::function<void()> on_late) {
    state_ = std::make_shared<State>();
    state_->on_late = std::move(on_late);
    alarm_.Set(std::chrono::system_clock::now() + timeout, [state = state_](bool expired) {
      const std::function<void()> late = state->Take();
      if (expired && late) late();
    });
  }

  /// True: it had not expired and never will.
  bool Stop() {
    if (!state_) return false;
    const bool stopped = state_->Take() != nullptr;
    if (stopped) alarm_.Cancel();
    return stopped;
  }

 private:
  /// Outlives the timer where gRPC still holds the alarm's callback.
  struct State {
    std::function<void()> Take() {
      const std::lock_guard lock(mutex);
      return std::exchange(on_late, nullptr);
    }
    std::mutex mutex;
    std::function<void()> on_late;
  };
  std::shared_ptr<State> state_;
  grpc::Alarm alarm_;
};

/// What a handler of a unary call answers through: exactly once, from any thread.
class UnaryReactor {
 public:
  virtual void Finish(grpc::Status status) = 0;

 protected:
  ~UnaryReactor() = default;
};

/// One unary call, read as a stream of one message. On the wire the two are the same, but gRPC starts a stream when its headers have come
/// and a unary call when all of its request is in memory. So a call without the token is refused before it can fill any, and one whose
/// request does not arrive in time is ended.
template <typename Request, typename Response>
class UnaryCall final : public grpc::ServerReadReactor<Request>, public UnaryReactor {
 public:
  using Handler = std::function<void(grpc::CallbackServerContext*, UnaryReactor*, const Request*, Response*)>;

  UnaryCall(const CallPolicy& policy, const Handler& handler, grpc::CallbackServerContext* context, Response* response)
      : policy_(policy), handler_(handler), context_(context), response_(response) {
    if (policy.authenticator != nullptr) {
      if (const absl::Status status = policy.authenticator->Check(*context); !status.ok()) {
        Refuse(status);
        return;
      }
    }
    timer_.Start(policy.upload_timeout, [this] { Refuse(UploadTooLate(policy_.upload_timeout)); });
    this->StartRead(&request_);
  }

  void Finish(grpc::Status status) override { grpc::ServerReadReactor<Request>::Finish(std::move(status)); }

  void OnReadDone(bool ok) override {
    if (!timer_.Stop()) return;  // finished already
    if (!ok) return Refuse(absl::InvalidArgumentError("the call carries no request, or one that cannot be read"));
    handler_(context_, this, &request_, response_);
  }
  void OnDone() override { delete this; }

 private:
  void Refuse(const absl::Status& status) {
    if (policy_.metrics != nullptr) policy_.metrics->OnRpcError(status.code());
    Finish(ToGrpc(status));
  }

  const CallPolicy& policy_;
  const Handler& handler_;
  grpc::CallbackServerContext* const context_;
  Response* const response_;
  Request request_;
  UploadTimer timer_;
};

/// A gRPC service whose calls all pass a policy before anything of their requests is read. Its methods are registered by name.
class GuardedService : public grpc::Service {
 protected:
  explicit GuardedService(const CallPolicy& policy) : policy_(policy) {}

  /// `method`: "/package.Service/Method", a string that lives as long as the service.
  template <typename Request, typename Response>
  void AddUnary(const char* method, typename UnaryCall<Request, Response>::Handler handler) {
    Add(method, grpc::internal::RpcMethod::CLIENT_STREAMING,
        new grpc::internal::CallbackClientStreamingHandler<Request, Response>(
            [this, handler = std::move(handler)](grpc::CallbackServerContext* context, Response* response) {
              return new UnaryCall<Request, Response>(policy_, handler, context, response);
            }));
  }

  /// A stream in both directions, or one to the client only, which is the same on the wire but for a single request. The reactor checks the
  /// token itself.
  template <typename Request, typename Response>
  void AddStream(const char* method, std::function<grpc::ServerBidiReactor<Request, Response>*(grpc::CallbackServerContext*)> make) {
    Add(method, grpc::internal::RpcMethod::BIDI_STREAMING, new grpc::internal::CallbackBidiHandler<Request, Response>(std::move(make)));
  }

  const CallPolicy& policy() const { return policy_; }

 private:
  void Add(const char* method, grpc::internal::RpcMethod::RpcType type, grpc::internal::MethodHandler* handler) {
    AddMethod(new grpc::internal::RpcServiceMethod(method, type, nullptr));
    MarkMethodCallback(count_++, handler);
  }

  const CallPolicy policy_;
  int count_ = 0;
};

}  // namespace palpate::server
