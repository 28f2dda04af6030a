#include "server/core/rpc.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <fstream>

namespace palpate::server::rpc_test {
namespace {

TEST(ToGrpc, KeepsCodeAndMessageAndBoundsTheLength) {
  EXPECT_TRUE(ToGrpc(absl::OkStatus()).ok());
  const grpc::Status status = ToGrpc(absl::NotFoundError("no scene"));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(status.error_message(), "no scene");
  EXPECT_LT(ToGrpc(absl::InternalError(std::string(100000, 'x'))).error_message().size(), 5000U);
}

TEST(TokenFile, IsTrimmedAndChecked) {
  const std::string path = (std::filesystem::path(::testing::TempDir()) / ("palpate_token_" + std::to_string(::getpid()))).string();
  const auto read = [&](const std::string& text) {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << text;
    return Authenticator::ReadTokenFile(path);
  };
  EXPECT_EQ(*read(" secret-1\n"), "secret-1");
  EXPECT_FALSE(read("").ok());
  EXPECT_FALSE(read(" \n").ok());
  EXPECT_FALSE(read("two words").ok());
  EXPECT_FALSE(read(std::string(5000, 'a')).ok());
  std::filesystem::remove(path);
  EXPECT_EQ(Authenticator::ReadTokenFile(path).status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace palpate::server::rpc_test
