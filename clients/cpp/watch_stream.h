#pragma once

#include <memory>

#include "absl/status/status.h"
#include "clients/cpp/connection.h"
#include "palpate/v1/stream.grpc.pb.h"

namespace palpate::client {

/// A scene as it moves: first a keyframe, then frames (proto/palpate/v1/stream.proto, Watch). One thread reads; Cancel may come from any.
class WatchStream {
 public:
  /// Starts the call; errors show at the first Read.
  WatchStream(const Connection& connection, const v1::WatchRequest& request);
  ~WatchStream();
  WatchStream(const WatchStream&) = delete;
  WatchStream& operator=(const WatchStream&) = delete;

  /// Blocks for the next update. False when the stream has ended: Finish then says why.
  bool Read(v1::WatchUpdate* update);

  /// Ends the call if it still runs. OK or Cancelled when this side ended it, else the server's status. Call it once, from the reading
  /// thread.
  absl::Status Finish();

  /// Makes a blocked Read return false soon.
  void Cancel();

 private:
  std::unique_ptr<v1::StreamService::Stub> stub_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReader<v1::WatchUpdate>> reader_;
  bool ended_ = false;  // there is nothing more to read
  bool finished_ = false;
};

}  // namespace palpate::client
