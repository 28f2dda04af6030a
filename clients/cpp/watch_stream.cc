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
  return !ended_;
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
  return ToAbslStatus(reader_->Finish());
}

void WatchStream::Cancel() { context_.TryCancel(); }

}  // namespace palpate::client
