#include <google/protobuf/wrappers.pb.h>
#include <grpcpp/impl/codegen/proto_utils.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/core/services.h"

namespace palpate::server {
namespace {

// A request of a few bytes needs no patience.
constexpr std::chrono::milliseconds kUploadTimeout{5000};
// ServingStatus of grpc.health.v1.
constexpr int kServing = 1;
constexpr int kNotServing = 2;

CallPolicy Open(CallPolicy policy) {
  policy.authenticator = nullptr;
  policy.upload_timeout = std::min(policy.upload_timeout, kUploadTimeout);
  return policy;
}

}  // namespace

HealthServiceImpl::HealthServiceImpl(std::vector<std::string> services, const CallPolicy& policy)
    : GuardedService(Open(policy)), services_(std::move(services)) {
  // The messages of the health protocol hold one field each, number 1: a string, and an enumeration. These have the same encoding.
  AddUnary<google::protobuf::StringValue, google::protobuf::Int32Value>(
      "/grpc.health.v1.Health/Check", [this](grpc::CallbackServerContext*, UnaryReactor* reactor, const auto* request, auto* response) {
        const std::string& service = request->value();
        if (!service.empty() && std::find(services_.begin(), services_.end(), service) == services_.end()) {
          return reactor->Finish(ToGrpc(absl::NotFoundError(absl::StrCat("no service \"", service, "\" here"))));
        }
        response->set_value(is_serving_ ? kServing : kNotServing);
        reactor->Finish(grpc::Status::OK);
      });
}

}  // namespace palpate::server
