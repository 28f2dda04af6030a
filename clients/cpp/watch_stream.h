#pragma once

#include <memory>

#include "absl/status/status.h"
#include "clients/cpp/connection.h"
#include "clients/cpp/topology_mirror.h"
#include "palpate/v1/stream.grpc.pb.h"

namespace palpate::client {

/// A scene as it moves: first a keyframe, then frames, and deltas where the topology changes (proto/palpate/v1/stream.proto, Watch). Every
/// update is checked against the copy of the arrays that the stream keeps. One thread reads; Cancel may come from any.
class WatchStream {
 public:
  /// Starts the call; errors show at the first Read.
  WatchStream(const Connection& connection, const v1::WatchRequest& request);
  ~WatchStream();
  WatchStream(const WatchStream&) = delete;
  WatchStream& operator=(const WatchStream&) = delete;

  /// Blocks for the next update. False when the stream has ended, also because an update did not fit: Finish then says why.
  bool Read(v1::WatchUpdate* update);

  /// The arrays after the newest update. Of the reading thread.
  const TopologyMirror& topology() const { return topology_; }

  /// Ends the call if it still runs. OK or Cancelled when this side ended it, DataLoss if an update did not fit the arrays, else the
  /// server's status. Call it once, from the reading thread.
  absl::Status Finish();

  /// Makes a blocked Read return false soon.
  void Cancel();

 private:
  absl::Status Follow(const v1::WatchUpdate& update);

  std::unique_ptr<v1::StreamService::Stub> stub_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReader<v1::WatchUpdate>> reader_;
  TopologyMirror topology_;
  absl::Status mismatch_;
  bool ended_ = false;  // there is nothing more to read
  bool finished_ = false;
};

}  // namespace palpate::client
