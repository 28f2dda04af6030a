#include "clients/cpp/watch_stream.h"

namespace palpate::client {

WatchStream::WatchStream(const Connection& connection, const v1::WatchRequest& request)
    : stub_(v1::StreamService::NewStub(connection.channel())) {
  connection.Prepare(context_);
  reader_ = stub_->Watch(&context_, request);
}

WatchStream::~WatchStream() {
  if (!finished_) (void)Finish();
}

bool WatchStream::Read(v1::WatchUpdate* update) {
  ended_ = ended_ || !reader_->Read(update);
  if (ended_ || !mismatch_.ok()) return false;
  mismatch_ = Follow(*update);
  if (!mismatch_.ok()) context_.TryCancel();
  return mismatch_.ok();
}

absl::Status WatchStream::Follow(const v1::WatchUpdate& update) {
  switch (update.update_case()) {
    case v1::WatchUpdate::kKeyframe: {
      const absl::Status status = topology_.Apply(update.keyframe());
      return status.ok() && update.keyframe().has_frame() ? topology_.Check(update.keyframe().frame()) : status;
    }
    case v1::WatchUpdate::kDelta:
      return topology_.Apply(update.delta());
    case v1::WatchUpdate::kFrame:
      return topology_.Check(update.frame());
    case v1::WatchUpdate::UPDATE_NOT_SET:
      break;
  }
  return absl::OkStatus();
}

absl::Status WatchStream::Finish() {
  finished_ = true;
  if (!ended_) {
    // A cancellation after the end would hide the server's status; a finish before the last message was read would wait for ever.
    context_.TryCancel();
    v1::WatchUpdate rest;
    while (reader_->Read(&rest)) {
    }
  }
  const absl::Status status = ToAbslStatus(reader_->Finish());
  return mismatch_.ok() ? status : mismatch_;
}

void WatchStream::Cancel() { context_.TryCancel(); }

}  // namespace palpate::client
