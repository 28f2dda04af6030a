#include "server/core/rpc.h"

#include <fstream>
#include <iterator>
#include <string_view>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace palpate::server {
namespace {

constexpr size_t kMaxMessageBytes = 2000;  ///< percent-encoded it is up to three times as long; HTTP/2 peers take 8 KiB
constexpr std::string_view kBearer = "Bearer ";

}  // namespace

static_assert(static_cast<int>(absl::StatusCode::kUnauthenticated) == static_cast<int>(grpc::StatusCode::UNAUTHENTICATED));
static_assert(static_cast<int>(absl::StatusCode::kResourceExhausted) == static_cast<int>(grpc::StatusCode::RESOURCE_EXHAUSTED));
static_assert(static_cast<int>(absl::StatusCode::kDataLoss) == static_cast<int>(grpc::StatusCode::DATA_LOSS));

grpc::Status ToGrpc(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  std::string message(status.message());
  if (message.size() > kMaxMessageBytes) {
    message.resize(kMaxMessageBytes);
    message += "...";
  }
  return {static_cast<grpc::StatusCode>(status.code()), message};
}

absl::Status UploadTooLate(std::chrono::milliseconds timeout) {
  return absl::DeadlineExceededError(
      absl::StrCat("the request did not arrive within ", std::chrono::duration<double>(timeout).count(), " s (upload_timeout_s)"));
}

bool EqualInConstantTime(std::string_view given, std::string_view expected) {
  unsigned difference = given.size() == expected.size() ? 0 : 1;
  for (size_t i = 0; i < given.size(); ++i) {
    difference |= static_cast<unsigned char>(given[i]) ^ static_cast<unsigned char>(expected[i % expected.size()]);
  }
  return difference == 0;
}

absl::StatusOr<std::string> Authenticator::ReadTokenFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return absl::NotFoundError(absl::StrCat("token file \"", path, "\" cannot be read"));
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  absl::StripAsciiWhitespace(&text);
  if (text.empty() || text.size() > 4096) {
    return absl::InvalidArgumentError(absl::StrCat("token file \"", path, "\": ", text.size(), " bytes are outside [1, 4096]"));
  }
  for (const char c : text) {
    if (!absl::ascii_isgraph(static_cast<unsigned char>(c))) {
      return absl::InvalidArgumentError(absl::StrCat("token file \"", path, "\" holds a character that is not printable ASCII"));
    }
  }
  return text;
}

absl::Status Authenticator::Check(const grpc::ServerContextBase& context) const {
  if (token_.empty()) return absl::OkStatus();
  const auto& metadata = context.client_metadata();
  const auto it = metadata.find("authorization");
  if (it != metadata.end()) {
    const std::string_view value(it->second.data(), it->second.size());
    if (value.substr(0, kBearer.size()) == kBearer && EqualInConstantTime(value.substr(kBearer.size()), token_)) return absl::OkStatus();
  }
  return absl::UnauthenticatedError("this server wants the metadata `authorization: Bearer <token>` with its token");
}

}  // namespace palpate::server
