#include "clients/cpp/record_client.h"

#include <utility>

namespace palpate::client {

RecordClient::RecordClient(Connection connection)
    : connection_(std::move(connection)), stub_(v1::RecordService::NewStub(connection_.channel())) {}

template <typename Request, typename Response>
absl::StatusOr<Response> RecordClient::Call(grpc::Status (v1::RecordService::Stub::*method)(grpc::ClientContext*, const Request&,
                                                                                            Response*),
                                            const Request& request) {
  grpc::ClientContext context;
  connection_.Prepare(context);
  Response response;
  const absl::Status status = ToAbslStatus((stub_.get()->*method)(&context, request, &response));
  if (!status.ok()) return status;
  return response;
}

absl::Status RecordClient::Stream::Run(const Sink& sink) {
  v1::RecordingChunk chunk;
  absl::Status taken;
  while (taken.ok() && reader_->Read(&chunk)) taken = sink(chunk.data());
  if (!taken.ok()) context_.TryCancel();
  while (reader_->Read(&chunk)) {
  }
  const absl::Status status = ToAbslStatus(reader_->Finish());
  if (!taken.ok()) return taken;
  return absl::IsCancelled(status) ? absl::OkStatus() : status;
}

std::unique_ptr<RecordClient::Stream> RecordClient::Record(const v1::RecordSceneRequest& request) {
  auto stream = std::make_unique<Stream>();
  connection_.Prepare(stream->context_);
  stream->reader_ = stub_->RecordScene(&stream->context_, request);
  return stream;
}

absl::Status RecordClient::Save(const std::string& scene_id, const Sink& sink) {
  v1::SaveSceneRequest request;
  request.set_scene_id(scene_id);
  Stream stream;
  connection_.Prepare(stream.context_);
  stream.reader_ = stub_->SaveScene(&stream.context_, request);
  return stream.Run(sink);
}

absl::StatusOr<v1::OpenRecordingResponse> RecordClient::Open(const v1::OpenRecording& open, const Source& source) {
  grpc::ClientContext context;
  connection_.Prepare(context);
  v1::OpenRecordingResponse response;
  const std::unique_ptr<grpc::ClientWriter<v1::OpenRecordingRequest>> writer = stub_->OpenRecording(&context, &response);
  v1::OpenRecordingRequest request;
  *request.mutable_open() = open;
  absl::Status read;
  // The server may refuse before it has all; then its answer says why.
  while (writer->Write(request)) {
    absl::StatusOr<std::string> bytes = source();
    read = bytes.status();
    if (!bytes.ok() || bytes->empty()) break;
    request.clear_open();
    request.set_data(*std::move(bytes));
  }
  if (!read.ok()) context.TryCancel();
  writer->WritesDone();
  const absl::Status status = ToAbslStatus(writer->Finish());
  if (!read.ok()) return read;
  if (!status.ok()) return status;
  return response;
}

absl::StatusOr<v1::ReplaySceneResponse> RecordClient::Replay(const v1::ReplaySceneRequest& request) {
  return Call(&v1::RecordService::Stub::ReplayScene, request);
}

absl::StatusOr<v1::SceneInfo> RecordClient::Seek(const v1::SeekSceneRequest& request) {
  absl::StatusOr<v1::SeekSceneResponse> response = Call(&v1::RecordService::Stub::SeekScene, request);
  if (!response.ok()) return response.status();
  return std::move(*response->mutable_scene());
}

absl::StatusOr<v1::SceneInfo> RecordClient::Branch(const v1::BranchSceneRequest& request) {
  absl::StatusOr<v1::BranchSceneResponse> response = Call(&v1::RecordService::Stub::BranchScene, request);
  if (!response.ok()) return response.status();
  return std::move(*response->mutable_scene());
}

absl::StatusOr<v1::Timeline> RecordClient::GetTimeline(const std::string& scene_id) {
  v1::GetTimelineRequest request;
  request.set_scene_id(scene_id);
  absl::StatusOr<v1::GetTimelineResponse> response = Call(&v1::RecordService::Stub::GetTimeline, request);
  if (!response.ok()) return response.status();
  return std::move(*response->mutable_timeline());
}

absl::StatusOr<v1::Timeline> RecordClient::SetBookmark(const v1::SetBookmarkRequest& request) {
  absl::StatusOr<v1::SetBookmarkResponse> response = Call(&v1::RecordService::Stub::SetBookmark, request);
  if (!response.ok()) return response.status();
  return std::move(*response->mutable_timeline());
}

}  // namespace palpate::client
