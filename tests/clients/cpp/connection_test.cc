#include "clients/cpp/connection.h"

#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace palpate::client::connection_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

/// A file with a text, gone at the end of the test.
class TextFile {
 public:
  explicit TextFile(const std::string& text) : path_(::testing::TempDir() + "palpate_connection_" + std::to_string(getpid())) {
    std::ofstream(path_) << text;
  }
  ~TextFile() { std::filesystem::remove(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

absl::Status OpenStatus(const ConnectionOptions& options) { return Connection::Open(options).status(); }

TEST(Connection, NamesTheFileThatCannotBeUsed) {
  ConnectionOptions options;
  options.token_file = "/nonexistent/token";
  EXPECT_EQ(OpenStatus(options).code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(OpenStatus(options).message()), AllOf(HasSubstr("token"), HasSubstr("/nonexistent/token")));
  options = ConnectionOptions();
  options.tls_ca_file = "/nonexistent/ca.pem";
  EXPECT_THAT(std::string(OpenStatus(options).message()), AllOf(HasSubstr("TLS CA"), HasSubstr("/nonexistent/ca.pem")));
  const TextFile no_certificate("hello");
  options.tls_ca_file = no_certificate.path();
  EXPECT_EQ(OpenStatus(options).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(OpenStatus(options).message()), HasSubstr("PEM"));
  options = ConnectionOptions();
  options.target = "";
  EXPECT_EQ(OpenStatus(options).code(), absl::StatusCode::kInvalidArgument);
}

TEST(Connection, ChecksTheToken) {
  ConnectionOptions options;
  {
    const TextFile token("\nsecond line\n");
    options.token_file = token.path();
    EXPECT_THAT(std::string(OpenStatus(options).message()), HasSubstr("empty first line"));
  }
  {
    const TextFile token("bad token\n");
    options.token_file = token.path();
    EXPECT_THAT(std::string(OpenStatus(options).message()), HasSubstr("printable ASCII"));
  }
}

TEST(Connection, SendsNoTokenOverAnOpenWire) {
  const TextFile token("secret\n");
  ConnectionOptions options;
  options.token_file = token.path();
  for (const char* away : {"example.org:1", "192.0.2.1:1", "127.example.org:1", "localhost.example.org:1"}) {
    options.target = away;
    EXPECT_EQ(OpenStatus(options).code(), absl::StatusCode::kFailedPrecondition) << away;
  }
  for (const char* here : {"127.0.0.1:1", "127.8.0.1:1", "localhost:1", "[::1]:1"}) {
    options.target = here;
    EXPECT_TRUE(OpenStatus(options).ok()) << here;
  }
}

TEST(Connection, SaysWhenNobodyAnswers) {
  ConnectionOptions options;
  options.target = "127.0.0.1:9";
  const absl::StatusOr<Connection> connection = Connection::Open(options);
  ASSERT_TRUE(connection.ok());
  const absl::Status status = connection->WaitUntilReady(std::chrono::milliseconds(200));
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("127.0.0.1:9"));
}

TEST(ToAbslStatus, KeepsCodeAndMessage) {
  const absl::Status status = ToAbslStatus(grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED, "full"));
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(std::string(status.message()), "full");
  EXPECT_TRUE(ToAbslStatus(grpc::Status::OK).ok());
}

}  // namespace
}  // namespace palpate::client::connection_test
