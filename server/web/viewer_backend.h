#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "palpate/v1/viewer.pb.h"

namespace palpate::server {

/// Counts of one browser connection since it opened.
struct ViewerSinkStatistics {
  uint64_t frames_sent = 0;     ///< frames handed to the socket
  uint64_t frames_dropped = 0;  ///< frames replaced by newer ones before the socket could take them
  uint64_t bytes_sent = 0;      ///< payload of all messages
};

/// The way back to one browser. Every member may be called from any thread, never blocks on the network, and does nothing once the
/// connection has ended. Answers leave in the order of Send; a frame leaves when no answer waits and the socket can take it.
class ViewerSink {
 public:
  /// Writes one message of the watch into the empty `update`: a frame, a keyframe or a delta. `dropped` is the number of frames this
  /// connection missed since BeginStream, for Frame.dropped. True: there is another message, for which it is called again at once, so that
  /// nothing comes between. Runs on the connection's writer thread, possibly never; it keeps what it captured alive until then.
  using FrameWriter = std::function<bool(uint64_t dropped, v1::ViewerUpdate& update)>;

  virtual ~ViewerSink() = default;

  /// Queues a message that must arrive: an answer, an error, a local contact model that was asked for. Past the limit on
  /// waiting messages (WebServerOptions) the connection is closed, because the browser does not read what it asked for.
  virtual void Send(v1::ViewerUpdate update) = 0;

  /// Latest wins: puts a frame into the connection's single slot. A frame that still waits there is replaced and counted as dropped.
  virtual void OfferFrame(FrameWriter writer) = 0;

  /// Whether a frame offered now would leave at once. Advisory: spares work for a browser that is behind.
  virtual bool CanTakeFrame() const = 0;

  /// Begins a new stream: forgets a waiting frame and counts `dropped` from zero. The caller has stopped offering frames of the old stream,
  /// and offers the new keyframe next.
  virtual void BeginStream() = 0;

  /// Closes the connection after what waits has left: for errors after which nothing the browser says can make sense.
  virtual void Close() = 0;

  virtual ViewerSinkStatistics statistics() const = 0;
};

/// One browser. The destructor ends its watch and gives its tool back; it runs when the connection has ended, after the last OnRequest
/// returned.
class ViewerSession {
 public:
  virtual ~ViewerSession() = default;

  /// One request, already decoded. Calls come one at a time, in the order in which the browser sent them, on the connection's own reader
  /// thread, and must not wait for a scene: pongs and other requests would wait too. Answers go to the sink with the request's request_id,
  /// then or later, in any order; failures as ViewerError with a canonical code.
  virtual void OnRequest(const v1::ViewerRequest& request) = 0;
};

/// A picture that scenes use.
struct ViewerImage {
  std::string content_type;  ///< image/png or image/jpeg
  std::string content;
};

/// What the web server needs of the rest of the server. Outlives the WebServer; thread-safe.
class ViewerBackend {
 public:
  virtual ~ViewerBackend() = default;

  /// A browser has connected. `sink` stays valid as long as somebody holds it. `peer` is "address:port", for logs and station names. An
  /// error is sent to the browser as a ViewerError and the connection is closed.
  virtual absl::StatusOr<std::unique_ptr<ViewerSession>> OpenSession(std::shared_ptr<ViewerSink> sink, const std::string& peer) = 0;

  /// The picture that a message names by "images/ID" (SurfaceTexture.image); its contents never change. Errors: NotFound.
  virtual absl::StatusOr<ViewerImage> FindImage(std::string_view id) = 0;
};

}  // namespace palpate::server
