#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "clients/cpp/connection.h"
#include "palpate/v1/record.grpc.pb.h"

namespace palpate::client {

/// Blocking calls of RecordService, see proto/palpate/v1/record.proto for what they do and which errors they give. No deadlines: what they
/// do may take as long as a scene runs. Thread-safe.
class RecordClient {
 public:
  explicit RecordClient(Connection connection);

  /// Takes the next bytes of a recording's file. An error ends the recording with it.
  using Sink = std::function<absl::Status(std::string_view bytes)>;
  /// Gives the next bytes of a recording's file; nothing: that was all.
  using Source = std::function<absl::StatusOr<std::string>()>;

  /// A stream of recording that another thread may end.
  class Stream {
   public:
    /// Blocks until the recording ends. OK also when it was ended by Cancel.
    absl::Status Run(const Sink& sink);
    /// Any thread.
    void Cancel() { context_.TryCancel(); }

   private:
    friend class RecordClient;
    grpc::ClientContext context_;
    std::unique_ptr<grpc::ClientReader<v1::RecordingChunk>> reader_;
  };

  std::unique_ptr<Stream> Record(const v1::RecordSceneRequest& request);
  absl::Status Save(const std::string& scene_id, const Sink& sink);
  absl::StatusOr<v1::OpenRecordingResponse> Open(const v1::OpenRecording& open, const Source& source);
  absl::StatusOr<v1::ReplaySceneResponse> Replay(const v1::ReplaySceneRequest& request);
  absl::StatusOr<v1::SceneInfo> Seek(const v1::SeekSceneRequest& request);
  absl::StatusOr<v1::SceneInfo> Branch(const v1::BranchSceneRequest& request);
  absl::StatusOr<v1::Timeline> GetTimeline(const std::string& scene_id);
  absl::StatusOr<v1::Timeline> SetBookmark(const v1::SetBookmarkRequest& request);

 private:
  template <typename Request, typename Response>
  absl::StatusOr<Response> Call(grpc::Status (v1::RecordService::Stub::*method)(grpc::ClientContext*, const Request&, Response*),
                                const Request& request);

  Connection connection_;
  std::unique_ptr<v1::RecordService::Stub> stub_;
};

}  // namespace palpate::client
