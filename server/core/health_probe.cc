#include "server/core/health_probe.h"

#include <google/protobuf/wrappers.pb.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/impl/codegen/proto_utils.h>
#include <grpcpp/security/tls_certificate_verifier.h>
#include <grpcpp/security/tls_credentials_options.h>

#include <future>
#include <utility>

#include "absl/strings/str_cat.h"

namespace palpate::server {
namespace {

constexpr std::chrono::seconds kPatience{5};
constexpr std::chrono::seconds kFresh{1};
constexpr int kServing = 1;  // of grpc.health.v1

std::shared_ptr<grpc::ChannelCredentials> Credentials(bool has_tls) {
  if (!has_tls) return grpc::InsecureChannelCredentials();
  grpc::experimental::TlsChannelCredentialsOptions options;
  options.set_verify_server_certs(false);
  options.set_check_call_host(false);
  options.set_certificate_verifier(std::make_shared<grpc::experimental::NoOpCertificateVerifier>());
  return grpc::experimental::TlsCredentials(options);
}

}  // namespace

HealthProbe::HealthProbe(std::string target, bool has_tls) : target_(std::move(target)), credentials_(Credentials(has_tls)) {}

absl::Status HealthProbe::Check() {
  const std::lock_guard lock(mutex_);
  if (!asked_ || std::chrono::steady_clock::now() - *asked_ > kFresh) {
    answer_ = Ask();
    asked_ = std::chrono::steady_clock::now();
  }
  return answer_;
}

absl::Status HealthProbe::Ask() const {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);  // a connection of its own
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  // The health messages in other words, see HealthServiceImpl.
  grpc::TemplatedGenericStub<google::protobuf::StringValue, google::protobuf::Int32Value> stub(
      grpc::CreateCustomChannel(target_, credentials_, arguments));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kPatience);
  const google::protobuf::StringValue request;
  google::protobuf::Int32Value response;
  std::promise<grpc::Status> done;
  stub.UnaryCall(&context, "/grpc.health.v1.Health/Check", grpc::StubOptions(), &request, &response,
                 [&done](grpc::Status status) { done.set_value(std::move(status)); });
  const grpc::Status status = done.get_future().get();
  if (!status.ok()) return absl::UnavailableError(absl::StrCat("the gRPC port does not answer: ", status.error_message()));
  if (response.value() != kServing) return absl::UnavailableError("the gRPC server stops");
  return absl::OkStatus();
}

}  // namespace palpate::server
