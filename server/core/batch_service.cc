#include <algorithm>
#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/core/batch.h"
#include "server/core/log.h"
#include "server/core/services.h"

namespace palpate::server {
namespace {

/// How long a client may stay silent before it says what it wants.
constexpr std::chrono::seconds kOpenTimeout{10};
/// Two threads step environments faster than one also where the driver has the same two cores: one thread's host work fills the gaps
/// between the kernels of the other's. More only wait for each other.
constexpr unsigned kMaxThreads = 8;

/// One request is read, done and answered after the other. Ends exactly once, and never while a request is worked on or an answer written:
/// who ends it then leaves the status to whoever has the turn.
class BatchReactor : public grpc::ServerBidiReactor<v1::BatchRequest, v1::BatchResponse> {
 public:
  BatchReactor(SceneManager& manager, BatchBudget& budget, WorkerPool& pool) : manager_(manager), pool_(pool) {
    Batch::Options options;
    options.context = manager.context();
    options.assets = manager.assets();
    options.limits = manager.limits().scene;
    options.budget = &budget;
    options.pool = &pool;
    batch_ = std::make_shared<Batch>(std::move(options));
  }

  /// Begins the call, or ends it with a status that is not OK.
  void Begin(const absl::Status& status) {
    if (!status.ok()) return End(status);
    absl::StatusOr<std::unique_ptr<StreamTicket>> ticket =
        manager_.OpenStream(StreamKind::kBatch, [link = link_](const absl::Status& reason) { link->End(reason); });
    if (!ticket.ok()) return End(ticket.status());
    ticket_ = *std::move(ticket);
    manager_.encode_pool().PostAt(WorkerPool::Clock::now() + kOpenTimeout, [link = link_] {
      if (!link->has_request) link->End(absl::DeadlineExceededError(absl::StrCat("no `open` came within ", kOpenTimeout.count(), " s")));
    });
    StartRead(&request_);
  }

  void OnReadDone(bool ok) override {
    if (!ok) return End(absl::OkStatus());
    {
      const std::lock_guard lock(mutex_);
      if (end_) return;  // finished already
      is_busy_ = true;
    }
    link_->has_request = true;
    batch_->Handle(request_, [this](absl::StatusOr<v1::BatchResponse> response) { Answer(std::move(response)); });
  }

  void OnWriteDone(bool ok) override {
    if (!ok) End(absl::CancelledError("the client is gone"));
    if (Rest()) StartRead(&request_);
  }
  void OnCancel() override { End(absl::CancelledError("the client is gone")); }

  void OnDone() override {
    link_->Cut();
    // Worlds wait for the device as they go.
    pool_.Post([batch = std::move(batch_)]() mutable { batch.reset(); });
    delete this;
  }

 private:
  /// Lets those who may come when the call is over find out that it is.
  struct Link {
    void End(const absl::Status& status) {
      const std::lock_guard lock(mutex);
      if (reactor != nullptr) reactor->End(status);
    }
    void Cut() {
      const std::lock_guard lock(mutex);
      reactor = nullptr;
    }
    std::mutex mutex;
    BatchReactor* reactor = nullptr;
    std::atomic<bool> has_request{false};
  };

  void Answer(absl::StatusOr<v1::BatchResponse> response) {
    if (!response.ok()) {
      End(response.status());
    } else {
      response_ = *std::move(response);
      bool is_over = false;
      {
        const std::lock_guard lock(mutex_);
        is_over = end_.has_value();
      }
      if (!is_over) {
        manager_.metrics().OnStreamBytes(StreamKind::kBatch, response_.ByteSizeLong());
        return StartWrite(&response_);
      }
    }
    Rest();
  }

  /// The turn is over. False: so is the call.
  bool Rest() {
    {
      const std::lock_guard lock(mutex_);
      is_busy_ = false;
      if (!end_) return true;
      if (std::exchange(is_finished_, true)) return false;
    }
    FinishSoon();
    return false;
  }

  /// The first status counts.
  void End(const absl::Status& status) {
    {
      const std::lock_guard lock(mutex_);
      if (end_) return;
      end_ = status;
      batch_->Cancel();
      if (is_busy_) return;
      is_finished_ = true;
    }
    FinishSoon();
  }

  /// On the pool, because the caller may hold the link. The reactor lives until Finish.
  void FinishSoon() {
    pool_.Post([this] {
      const absl::Status status = *end_;
      if (!status.ok() && status.code() != absl::StatusCode::kCancelled) manager_.metrics().OnRpcError(status.code());
      Finish(ToGrpc(status));
    });
  }

  SceneManager& manager_;
  WorkerPool& pool_;
  std::shared_ptr<Batch> batch_;
  std::unique_ptr<StreamTicket> ticket_;
  v1::BatchRequest request_;
  v1::BatchResponse response_;
  std::mutex mutex_;
  bool is_busy_ = false;  ///< a request is worked on or its answer written
  bool is_finished_ = false;
  std::optional<absl::Status> end_;
  std::shared_ptr<Link> link_ = MakeLink();

  std::shared_ptr<Link> MakeLink() {
    auto link = std::make_shared<Link>();
    link->reactor = this;
    return link;
  }
};

}  // namespace

BatchServiceImpl::BatchServiceImpl(SceneManager& manager, const CallPolicy& policy)
    : GuardedService(policy),
      manager_(manager),
      budget_(std::make_unique<BatchBudget>()),
      pool_(std::make_unique<WorkerPool>("batch", static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 2U, kMaxThreads)))) {
  AddStream<v1::BatchRequest, v1::BatchResponse>("/palpate.v1.BatchService/RunBatch",
                                                 [this](grpc::CallbackServerContext* context) { return RunBatch(context); });
}

BatchServiceImpl::~BatchServiceImpl() = default;

grpc::ServerBidiReactor<v1::BatchRequest, v1::BatchResponse>* BatchServiceImpl::RunBatch(grpc::CallbackServerContext* context) {
  auto* reactor = new BatchReactor(manager_, *budget_, *pool_);
  reactor->Begin(policy().authenticator != nullptr ? policy().authenticator->Check(*context) : absl::OkStatus());
  return reactor;
}

}  // namespace palpate::server
