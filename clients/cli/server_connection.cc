#include "clients/cli/server_connection.h"

#include <chrono>
#include <fstream>
#include <sstream>

#include "absl/strings/str_format.h"

namespace palpate::cli {

absl::StatusOr<std::shared_ptr<grpc::Channel>> Connect(const ServerAddress& address) {
  std::shared_ptr<grpc::ChannelCredentials> credentials = grpc::InsecureChannelCredentials();
  if (!address.tls_ca_file.empty()) {
    std::ifstream file(address.tls_ca_file, std::ios::binary);
    std::ostringstream certificates;
    certificates << file.rdbuf();
    if (!file) return absl::NotFoundError(absl::StrFormat("%s: the file of trusted certificates cannot be read", address.tls_ca_file));
    grpc::SslCredentialsOptions options;
    options.pem_root_certs = certificates.str();
    credentials = grpc::SslCredentials(options);
  }
  grpc::ChannelArguments arguments;
  // The limits are the server's; volumes and exports may be far larger than the default of 4 MB.
  arguments.SetMaxReceiveMessageSize(-1);
  arguments.SetMaxSendMessageSize(-1);
  auto channel = grpc::CreateCustomChannel(address.target, credentials, arguments);
  const auto deadline = std::chrono::system_clock::now() +
                        std::chrono::duration_cast<std::chrono::system_clock::duration>(std::chrono::duration<double>(address.timeout_s));
  if (!channel->WaitForConnected(deadline)) {
    return absl::UnavailableError(
        absl::StrFormat("no server answers at %s within %g s%s; start one with palpate-server, or say where it is with --server HOST:PORT "
                        "or PALPATE_SERVER",
                        address.target, address.timeout_s, address.tls_ca_file.empty() ? " (without TLS)" : " (with TLS)"));
  }
  return channel;
}

absl::Status FromGrpc(const grpc::Status& status) {
  // The canonical codes are the same numbers in both libraries.
  const auto code = static_cast<absl::StatusCode>(status.error_code());
  if (code == absl::StatusCode::kUnavailable) {
    return absl::UnavailableError(absl::StrFormat("the server has gone: %s", status.error_message()));
  }
  return absl::Status(code, status.error_message());
}

}  // namespace palpate::cli
