#include "clients/cpp/operate_stream.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace palpate::client {

OperateStream::OperateStream(Connection connection, OperateOptions options)
    : connection_(std::move(connection)), options_(std::move(options)), stub_(v1::HapticService::NewStub(connection_.channel())) {
  thread_ = std::thread([this] { Run(); });
}

OperateStream::~OperateStream() { Stop(); }

void OperateStream::Stop() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
    if (context_ != nullptr) context_->TryCancel();
  }
  stop_changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

bool OperateStream::Sleep(std::chrono::milliseconds duration) {
  std::unique_lock<std::mutex> lock(mutex_);
  return !stop_changed_.wait_for(lock, duration, [this] { return stopping_; });
}

void OperateStream::Run() {
  std::chrono::milliseconds backoff = options_.first_backoff;
  const auto begin = std::chrono::steady_clock::now();
  while (true) {
    bool attached = false;
    const absl::Status status = RunOnce(&attached);
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (stopping_) break;
    }
    if (attached) backoff = options_.first_backoff;
    bool final = false;
    if (attachments_.load() == 0) {
      switch (status.code()) {
        case absl::StatusCode::kInvalidArgument:
        case absl::StatusCode::kUnauthenticated:
        case absl::StatusCode::kPermissionDenied:
        case absl::StatusCode::kUnimplemented:
          final = true;
          break;
        case absl::StatusCode::kNotFound:
          final = std::chrono::steady_clock::now() - begin > options_.missing_scene_patience;
          break;
        default:
          break;
      }
    }
    if (final) {
      done_.store(true);
      if (options_.on_detached) options_.on_detached(status, std::chrono::milliseconds::zero());
      return;
    }
    if (options_.on_detached) options_.on_detached(status, backoff);
    if (!Sleep(backoff)) break;
    backoff = std::min(backoff * 2, options_.longest_backoff);
  }
  done_.store(true);
}

absl::Status OperateStream::RunOnce(bool* attached) {
  // In short slices, so that Stop need not wait for the timeout.
  const auto connect_until = std::chrono::steady_clock::now() + options_.connect_timeout;
  while (true) {
    const absl::Status ready = connection_.WaitUntilReady(std::chrono::milliseconds(50));
    if (ready.ok()) break;
    if (!Sleep(std::chrono::milliseconds(0))) return absl::CancelledError("stopped");
    if (std::chrono::steady_clock::now() > connect_until)
      return absl::UnavailableError(absl::StrCat("no server answers at ", connection_.target()));
  }
  grpc::ClientContext context;
  connection_.Prepare(context);
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (stopping_) return absl::CancelledError("stopped");
    context_ = &context;
  }
  std::unique_ptr<grpc::ClientReaderWriter<v1::OperateRequest, v1::OperateUpdate>> stream = stub_->Operate(&context);
  v1::OperateRequest request;
  *request.mutable_attach() = options_.attach;
  std::atomic<bool> ended{false};
  std::thread sender;
  absl::Status protocol;
  if (stream->Write(request)) {
    v1::OperateUpdate update;
    while (stream->Read(&update)) {
      if (update.has_attached()) {
        if (*attached) {
          protocol = absl::InternalError("the server attached the tool twice");
          break;
        }
        *attached = true;
        attachments_.fetch_add(1);
        if (options_.on_attached) options_.on_attached(update.attached());
        if (options_.next_pose) sender = std::thread([&] { SendPoses(stream.get(), ended); });
      } else if (update.has_model()) {
        if (!*attached) {
          protocol = absl::InternalError("the server sent a model before it attached the tool");
          break;
        }
        if (options_.on_model) options_.on_model(update.model());
      }
    }
  }
  ended.store(true);
  if (!protocol.ok()) context.TryCancel();
  if (sender.joinable()) sender.join();
  v1::OperateUpdate rest;
  while (stream->Read(&rest)) {
  }
  const absl::Status status = ToAbslStatus(stream->Finish());
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    context_ = nullptr;
  }
  if (!protocol.ok()) return protocol;
  return status.ok() ? absl::UnavailableError("the server ended the stream") : status;
}

void OperateStream::SendPoses(grpc::ClientReaderWriter<v1::OperateRequest, v1::OperateUpdate>* stream, const std::atomic<bool>& ended) {
  const auto period = std::chrono::nanoseconds(static_cast<int64_t>(1e9 / options_.send_rate_hz));
  auto next = std::chrono::steady_clock::now();
  v1::OperateRequest request;
  while (!ended.load()) {
    if (options_.next_pose(request.mutable_pose())) {
      if (!stream->Write(request)) return;  // the reader learns why
      poses_sent_.fetch_add(1);
    }
    next = std::max(next + period, std::chrono::steady_clock::now());
    std::this_thread::sleep_until(next);
  }
}

}  // namespace palpate::client
