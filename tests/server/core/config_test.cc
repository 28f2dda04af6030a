#include "server/core/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace palpate::server::config_test {
namespace {

using ::testing::HasSubstr;

TEST(Address, IsParsed) {
  const absl::StatusOr<Address> v4 = ParseAddress("127.0.0.1:50051", "--listen");
  ASSERT_TRUE(v4.ok());
  EXPECT_EQ(v4->host, "127.0.0.1");
  EXPECT_EQ(v4->port, 50051);
  EXPECT_TRUE(v4->is_loopback);
  EXPECT_TRUE(ParseAddress("[::1]:0", "--listen")->is_loopback);
  EXPECT_TRUE(ParseAddress("localhost:1", "--listen")->is_loopback);
  EXPECT_FALSE(ParseAddress("0.0.0.0:1", "--listen")->is_loopback);
  EXPECT_FALSE(ParseAddress("[::]:1", "--listen")->is_loopback);
  for (const char* text :
       {"", ":", "host", "host:", "host:x", "host:65536", "host:-1", "::1:5", ":80", "a b:1", "unix:/tmp/x", "host:+1"}) {
    const absl::Status status = ParseAddress(text, "--listen").status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(status.message()), HasSubstr("--listen")) << text;
  }
}

TEST(Config, DefaultsAreLoopbackAndSafe) {
  const absl::StatusOr<ServerOptions> options = ResolveConfig({});
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->listen.host, "127.0.0.1");
  EXPECT_EQ(options->listen.port, 50051);
  EXPECT_EQ(options->http.port, 8080);
  EXPECT_TRUE(options->has_http);
  EXPECT_FALSE(options->insecure);
  EXPECT_EQ(options->limits.max_scenes, 16U);
}

TEST(Config, OtherAddressesNeedTlsOrAnExplicitWord) {
  for (const bool http : {false, true}) {
    v1::ServerConfig config;
    http ? config.set_http("0.0.0.0:8080") : config.set_listen("0.0.0.0:50051");
    const absl::Status status = ResolveConfig(config).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr(http ? "--http" : "--listen"));
    EXPECT_THAT(std::string(status.message()), HasSubstr("--tls-cert"));
    EXPECT_THAT(std::string(status.message()), HasSubstr("--insecure"));
    config.set_insecure(true);
    EXPECT_TRUE(ResolveConfig(config).ok());
    config.set_insecure(false);
    config.set_tls_cert("c.pem");
    EXPECT_THAT(std::string(ResolveConfig(config).status().message()), HasSubstr("both are needed"));
    config.set_tls_key("k.pem");
    EXPECT_TRUE(ResolveConfig(config).ok());
  }
}

TEST(Config, FlagsOverrideTheFile) {
  const absl::StatusOr<v1::ServerConfig> file = ParseConfigJson(
      R"({"listen":"127.0.0.1:1","http":"off","scene":["a.json","b.json"],"log_json":true,"limits":{"max_scenes":3,"max_streams":5,"max_kept_versions":8}})",
      "c.json");
  ASSERT_TRUE(file.ok()) << file.status();
  v1::ServerConfig flags;
  flags.set_listen("127.0.0.1:2");
  flags.add_scene("c.json");
  flags.set_log_json(false);
  flags.mutable_limits()->set_max_scenes(4);
  const absl::StatusOr<ServerOptions> options = ResolveConfig(MergeConfig(*file, flags));
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->listen.port, 2);
  EXPECT_FALSE(options->has_http);
  EXPECT_EQ(options->scene_files, std::vector<std::string>{"c.json"});
  EXPECT_FALSE(options->log_json);
  EXPECT_EQ(options->limits.max_scenes, 4U);
  EXPECT_EQ(options->limits.max_streams, 5U);
  EXPECT_EQ(options->limits.max_kept_versions, 8U);
}

TEST(Config, MistakesAreNamed) {
  EXPECT_THAT(std::string(ParseConfigJson(R"({"lissten":"x"})", "c.json").status().message()), HasSubstr("lissten"));
  EXPECT_FALSE(ParseConfigJson("no json", "c.json").ok());
  v1::ServerConfig config;
  config.set_log_level("loud");
  EXPECT_THAT(std::string(ResolveConfig(config).status().message()), HasSubstr("--log-level"));
  config.Clear();
  config.mutable_limits()->set_max_kept_versions(1'000'001);
  EXPECT_THAT(std::string(ResolveConfig(config).status().message()),
              HasSubstr("limits.max_kept_versions: 1000001 is outside [1, 1000000]"));
  config.mutable_limits()->clear_max_kept_versions();
  config.mutable_limits()->set_max_message_bytes(10);
  EXPECT_THAT(std::string(ResolveConfig(config).status().message()),
              HasSubstr("limits.max_message_bytes: 10 is outside [65536, 1073741824]"));
  config.Clear();
  config.set_asset_root("/does/not/exist");
  EXPECT_THAT(std::string(ResolveConfig(config).status().message()), HasSubstr("--asset-root"));
}

TEST(Config, TransportLimitsAndHostsAreChecked) {
  v1::ServerConfig config;
  EXPECT_EQ(ResolveConfig(config)->max_connections, 0u);
  EXPECT_EQ(ResolveConfig(config)->upload_timeout_s, 30u);
  config.mutable_limits()->set_max_message_bytes(1 << 20);
  EXPECT_EQ(ResolveConfig(config)->max_buffer_bytes, 4u << 20);
  config.set_max_connections(7);
  config.set_upload_timeout_s(2);
  config.set_max_buffer_bytes(32 << 20);
  config.add_allowed_host("Sim.example.org");
  config.add_allowed_host("[2001:db8::1]");
  const absl::StatusOr<ServerOptions> options = ResolveConfig(config);
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->max_connections, 7u);
  EXPECT_EQ(options->upload_timeout_s, 2u);
  EXPECT_EQ(options->max_buffer_bytes, 32u << 20);
  EXPECT_EQ(options->allowed_hosts, (std::vector<std::string>{"sim.example.org", "[2001:db8::1]"}));

  const auto error = [](auto change) {
    v1::ServerConfig bad;
    change(bad);
    return std::string(ResolveConfig(bad).status().message());
  };
  EXPECT_THAT(error([](auto& c) { c.set_max_connections(100001); }), HasSubstr("--max-connections: 100001 is outside [1, 100000]"));
  EXPECT_THAT(error([](auto& c) { c.set_upload_timeout_s(3601); }), HasSubstr("--upload-timeout-s: 3601 is outside [1, 3600]"));
  EXPECT_THAT(error([](auto& c) { c.set_max_buffer_bytes(1); }), HasSubstr("--max-buffer-bytes: 1 is outside [16777216, "));
  for (const char* host : {"", "host:80", "https://host", "2001:db8::1", "*.example.org"}) {
    EXPECT_THAT(error([&](auto& c) { c.add_allowed_host(host); }), HasSubstr("--allowed-host")) << host;
  }
  v1::ServerConfig flags;
  flags.add_allowed_host("other");
  EXPECT_EQ(MergeConfig(config, flags).allowed_host_size(), 1) << "a flag replaces the list of the file";
}

TEST(Config, SceneIdsComeFromFileNames) {
  EXPECT_EQ(*SceneIdOfFile("scenes/liver.json"), "liver");
  EXPECT_EQ(*SceneIdOfFile("/a/Two Bodies_2.json"), "two-bodies-2");
  EXPECT_EQ(SceneIdOfFile(std::string(100, 'a') + ".json")->size(), 40U);
  EXPECT_FALSE(SceneIdOfFile("scenes/---.json").ok());
}

}  // namespace
}  // namespace palpate::server::config_test
