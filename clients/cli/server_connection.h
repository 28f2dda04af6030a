#pragma once

#include <functional>
#include <memory>
#include <string>

#include <grpcpp/grpcpp.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace palpate::cli {

/// Where the server is and how to speak to it; filled from the command line.
struct ServerAddress {
  std::string target = "127.0.0.1:50051";  ///< HOST:PORT
  std::string tls_ca_file;                 ///< PEM certificates to trust; empty: no TLS
  double timeout_s = 5;                    ///< to reach the server; > 0
};

/// Opens a channel and waits until it is connected. Errors: Unavailable (nobody answers in time; names the address), NotFound (certificate
/// file).
absl::StatusOr<std::shared_ptr<grpc::Channel>> Connect(const ServerAddress& address);

/// The same status, with the same code. Unavailable means that the server has gone.
absl::Status FromGrpc(const grpc::Status& status);

/// Makes one unary call and answers its response. `call` is the stub's method. Errors: those of the call.
template <typename Response, typename Stub, typename Request>
absl::StatusOr<Response> Call(Stub& stub, grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Response*),
                              const Request& request) {
  grpc::ClientContext context;
  Response response;
  const grpc::Status status = (stub.*method)(&context, request, &response);
  if (!status.ok()) return FromGrpc(status);
  return response;
}

}  // namespace palpate::cli
