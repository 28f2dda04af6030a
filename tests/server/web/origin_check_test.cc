#include "server/web/origin_check.h"

#include <gtest/gtest.h>

namespace palpate::server::origin_check_test {
namespace {

TEST(HostWithoutPort, SplitsAndLowersNames) {
  EXPECT_EQ(HostWithoutPort("LocalHost:8080"), "localhost");
  EXPECT_EQ(HostWithoutPort("viewer.example.org"), "viewer.example.org");
  EXPECT_EQ(HostWithoutPort("10.0.0.7:65535"), "10.0.0.7");
  EXPECT_EQ(HostWithoutPort("[::1]:80"), "[::1]");
}

TEST(HostWithoutPort, RefusesWhatIsNoAuthority) {
  for (const char* text : {"", ":80", "a b", "host:", "host:0", "host:65536", "host:99999999999", "host:80:80", "[::1", "[]", "[::1]x",
                           "[x]", "a/b", "user@host", "host:80/", "h\r\nx", "host:+80"}) {
    EXPECT_EQ(HostWithoutPort(text), "") << text;
  }
}

TEST(IsLoopbackHost, KnowsLoopbackNamesOnly) {
  for (const char* name : {"localhost", "a.localhost", "127.0.0.1", "127.255.0.3", "[::1]"}) EXPECT_TRUE(IsLoopbackHost(name)) << name;
  for (const char* name :
       {"", "localhost.example.org", "notlocalhost", "128.0.0.1", "127.0.0", "127.0.0.256", "127.0.0.1.example.org", "[::2]"}) {
    EXPECT_FALSE(IsLoopbackHost(name)) << name;
  }
}

TEST(CheckHost, ForeignNamesAreRefusedWhateverTheServerListensOn) {
  EXPECT_TRUE(CheckHost("localhost:8080", {}).ok());
  EXPECT_TRUE(CheckHost("", {}).ok());
  EXPECT_EQ(CheckHost("rebound.example.org:8080", {}).code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(CheckHost("bad host", {}).code(), absl::StatusCode::kPermissionDenied);
}

TEST(CheckHost, NumericAddressesCannotBeRebound) {
  for (const char* host : {"10.0.0.7:8080", "192.168.1.2", "[2001:db8::1]:80", "[fe80::1]"}) EXPECT_TRUE(CheckHost(host, {}).ok()) << host;
  for (const char* host : {"10.0.0.7.example.org", "10.0.7", "10.0.0.256", "0x0a000007", "167772167", "[::g]"}) {
    EXPECT_FALSE(CheckHost(host, {}).ok()) << host;
  }
}

TEST(CheckHost, NamesMayBeAllowed) {
  EXPECT_TRUE(CheckHost("Viewer.example.org:9", {"viewer.example.org"}).ok());
  EXPECT_TRUE(CheckHost("localhost", {"viewer.example.org"}).ok());
  EXPECT_FALSE(CheckHost("other.example.org", {"viewer.example.org"}).ok());
  EXPECT_FALSE(CheckHost("viewer.example.org.evil.example.org", {"viewer.example.org"}).ok());
}

TEST(MachineNames, AreAcceptedAsHosts) {
  const std::vector<std::string> names = MachineNames();
  for (const std::string& name : names) EXPECT_TRUE(CheckHost(name, names).ok()) << name;
}

TEST(CheckOrigin, TheServersOwnPagesAndProgramsMayConnect) {
  EXPECT_TRUE(CheckOrigin("", "localhost:8080", {}).ok());
  EXPECT_TRUE(CheckOrigin("http://localhost:8080", "localhost:8080", {}).ok());
  EXPECT_TRUE(CheckOrigin("HTTP://LOCALHOST:8080", "localhost:8080", {}).ok());
  EXPECT_TRUE(CheckOrigin("http://host", "host:80", {}).ok());
  EXPECT_TRUE(CheckOrigin("https://host", "host:443", {}).ok());
  EXPECT_TRUE(CheckOrigin("https://host:443", "host", {}).ok());
}

TEST(CheckOrigin, ForeignPagesMayNot) {
  for (const char* origin :
       {"http://evil.example.org", "http://localhost", "http://localhost:8081", "null", "file://", "http://", "://localhost:8080",
        "ftp://localhost:8080", "http://localhost:8080.evil.example.org", "http://localhost:8080@evil.example.org"}) {
    EXPECT_EQ(CheckOrigin(origin, "localhost:8080", {}).code(), absl::StatusCode::kPermissionDenied) << origin;
  }
  EXPECT_FALSE(CheckOrigin("http://", "", {}).ok());
}

TEST(CheckOrigin, NamedOriginsMay) {
  EXPECT_TRUE(CheckOrigin("https://viewer.example.org", "localhost:8080", {"https://viewer.example.org"}).ok());
  EXPECT_FALSE(CheckOrigin("http://viewer.example.org", "localhost:8080", {"https://viewer.example.org"}).ok());
}

}  // namespace
}  // namespace palpate::server::origin_check_test
