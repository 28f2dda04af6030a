#include "clients/cpp/connection.h"

#include <fstream>
#include <sstream>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace palpate::client {
namespace {

absl::StatusOr<std::string> ReadFile(const std::string& path, const char* what) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  if (!file || !(text << file.rdbuf())) return absl::NotFoundError(absl::StrCat(what, " file '", path, "' cannot be read, or is empty"));
  return text.str();
}

/// Whether a target names this machine, so that its bytes cross no wire.
bool IsLoopback(const std::string& target) {
  const std::string host = target.substr(0, target.rfind(':'));
  const bool is_v4_literal = host.find_first_not_of("0123456789.") == std::string::npos;
  return (is_v4_literal && absl::StartsWith(host, "127.")) || host == "localhost" || host == "[::1]" || absl::StartsWith(target, "unix:");
}

}  // namespace

absl::StatusOr<Connection> Connection::Open(const ConnectionOptions& options) {
  if (options.target.empty()) return absl::InvalidArgumentError("server address is empty; give HOST:PORT");
  std::string token;
  if (!options.token_file.empty()) {
    absl::StatusOr<std::string> text = ReadFile(options.token_file, "token");
    if (!text.ok()) return text.status();
    token = std::string(absl::StripAsciiWhitespace(text->substr(0, text->find('\n'))));
    if (token.empty()) return absl::InvalidArgumentError(absl::StrCat("token file '", options.token_file, "' has an empty first line"));
    for (const char c : token) {
      if (!absl::ascii_isgraph(static_cast<unsigned char>(c))) {
        return absl::InvalidArgumentError(
            absl::StrCat("token file '", options.token_file, "': the token may hold printable ASCII characters only"));
      }
    }
    if (options.tls_ca_file.empty() && !IsLoopback(options.target)) {
      return absl::FailedPreconditionError(
          absl::StrCat("a token would be sent to ", options.target, " unprotected; use TLS (a CA file) as well"));
    }
  }
  std::shared_ptr<grpc::ChannelCredentials> credentials;
  if (options.tls_ca_file.empty()) {
    credentials = grpc::InsecureChannelCredentials();
  } else {
    absl::StatusOr<std::string> certificate = ReadFile(options.tls_ca_file, "TLS CA");
    if (!certificate.ok()) return certificate.status();
    if (!absl::StrContains(*certificate, "-----BEGIN CERTIFICATE-----")) {
      return absl::InvalidArgumentError(absl::StrCat("TLS CA file '", options.tls_ca_file, "' holds no PEM certificate"));
    }
    grpc::SslCredentialsOptions ssl;
    ssl.pem_root_certs = *std::move(certificate);
    credentials = grpc::SslCredentials(ssl);
  }
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(static_cast<int>(options.max_message_bytes));
  // A server that went away is tried again soon: a hand is waiting.
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 2000);
  return Connection(options.target, grpc::CreateCustomChannel(options.target, credentials, arguments), std::move(token));
}

absl::Status Connection::WaitUntilReady(std::chrono::milliseconds timeout) const {
  if (channel_->WaitForConnected(std::chrono::system_clock::now() + timeout)) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("no server answers at ", target_, " within ", timeout.count(), " ms"));
}

void Connection::Prepare(grpc::ClientContext& context, std::chrono::milliseconds timeout) const {
  if (!token_.empty()) context.AddMetadata("authorization", absl::StrCat("Bearer ", token_));
  if (timeout > std::chrono::milliseconds::zero()) context.set_deadline(std::chrono::system_clock::now() + timeout);
}

absl::Status ToAbslStatus(const grpc::Status& status) {
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
}

}  // namespace palpate::client
