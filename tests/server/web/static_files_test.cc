#include "server/web/static_files.h"

#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

namespace palpate::server::static_files_test {
namespace {

namespace fs = std::filesystem;

class StaticFilesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    base_ = fs::path(::testing::TempDir()) / ("static_files_" + std::to_string(::testing::UnitTest::GetInstance()->random_seed()) + "_" +
                                              ::testing::UnitTest::GetInstance()->current_test_info()->name());
    root_ = base_ / "root";
    fs::create_directories(root_ / "assets");
    Put(root_ / "index.html", "<html>");
    Put(root_ / "assets" / "viewer-ABC.js", "let x = 1;");
    Put(root_ / ".hidden", "no");
    Put(base_ / "secret.txt", "secret");
  }
  void TearDown() override { fs::remove_all(base_); }
  static void Put(const fs::path& path, const std::string& text) { std::ofstream(path, std::ios::binary) << text; }

  fs::path base_, root_;
};

TEST_F(StaticFilesTest, ReadsFilesBelowTheRoot) {
  const auto index = ReadStaticFile(root_, "/");
  ASSERT_TRUE(index.ok()) << index.status();
  EXPECT_EQ(index->content, "<html>");
  EXPECT_EQ(index->content_type, "text/html; charset=utf-8");
  EXPECT_FALSE(index->immutable);
  const auto script = ReadStaticFile(root_, "/assets/viewer-ABC.js");
  ASSERT_TRUE(script.ok()) << script.status();
  EXPECT_EQ(script->content, "let x = 1;");
  EXPECT_EQ(script->content_type, "text/javascript; charset=utf-8");
  EXPECT_TRUE(script->immutable);
}

TEST_F(StaticFilesTest, TagChangesWithTheContent) {
  const std::string before = ReadStaticFile(root_, "/index.html")->etag;
  EXPECT_EQ(ReadStaticFile(root_, "/index.html")->etag, before);
  Put(root_ / "index.html", "<HTML>");
  EXPECT_NE(ReadStaticFile(root_, "/index.html")->etag, before);
}

TEST_F(StaticFilesTest, NothingOutsideTheRootIsReachable) {
  fs::create_symlink(base_ / "secret.txt", root_ / "link.txt");
  fs::create_directory_symlink(base_, root_ / "up");
  for (const char* path : {"",
                           "index.html",
                           "/../secret.txt",
                           "/assets/../../secret.txt",
                           "//secret.txt",
                           "/..",
                           "/.",
                           "/./index.html",
                           "/.hidden",
                           "/assets",
                           "/assets/",
                           "/link.txt",
                           "/up/secret.txt",
                           "/missing",
                           "/index.html/",
                           "/index.html/x",
                           "/in\\dex.html",
                           "/\x01",
                           "/index.html%00.js",
                           "/a b"}) {
    EXPECT_EQ(ReadStaticFile(root_, path).status().code(), absl::StatusCode::kNotFound) << path;
  }
  EXPECT_EQ(ReadStaticFile(base_ / "no such folder", "/").status().code(), absl::StatusCode::kNotFound);
}

TEST_F(StaticFilesTest, LinksInsideTheRootAreFine) {
  fs::create_symlink(root_ / "index.html", root_ / "start.html");
  EXPECT_TRUE(ReadStaticFile(root_, "/start.html").ok());
}

TEST_F(StaticFilesTest, ServesEmptyFilesAndRefusesTooLargeOnes) {
  Put(root_ / "empty.css", "");
  const auto empty = ReadStaticFile(root_, "/empty.css");
  ASSERT_TRUE(empty.ok()) << empty.status();
  EXPECT_EQ(empty->content, "");
  Put(root_ / "large.bin", "");
  fs::resize_file(root_ / "large.bin", kMaxStaticFileBytes + 1);
  EXPECT_EQ(ReadStaticFile(root_, "/large.bin").status().code(), absl::StatusCode::kResourceExhausted);
}

TEST(MimeType, FollowsTheEndingOfTheName) {
  EXPECT_EQ(MimeType("a.css"), "text/css; charset=utf-8");
  EXPECT_EQ(MimeType("a.svg"), "image/svg+xml");
  EXPECT_EQ(MimeType("a"), "application/octet-stream");
  EXPECT_EQ(MimeType("html"), "application/octet-stream");
}

}  // namespace
}  // namespace palpate::server::static_files_test
