#include "sim/ccd/query_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace palpate::sim::query_file_test {
namespace {

using testing::HasSubstr;

std::string Rows(int count, const std::string& row) {
  std::string text;
  for (int i = 0; i < count; ++i) text += row + "\n";
  return text;
}

TEST(CcdQueryFile, ReadsSixAndSevenColumns) {
  const auto six = ParseCcdQueries(Rows(16, "1,2,-3,4,5,1"), "a.csv");
  ASSERT_TRUE(six.ok()) << six.status();
  EXPECT_EQ(six->count(), 2U);
  EXPECT_TRUE(six->truth.empty());
  ASSERT_EQ(six->coordinates.size(), 48U);
  EXPECT_EQ(six->coordinates[45], 0.5);
  EXPECT_EQ(six->coordinates[46], -0.75);
  EXPECT_EQ(six->coordinates[47], 5);
  EXPECT_EQ(six->errors, (std::vector<double>{0, 0}));

  const auto seven = ParseCcdQueries(Rows(8, "1, 2 ,-3,4,5,1,0") + Rows(8, "1,3,0,1,5,1,1\r") + "\n \n", "b.csv");
  ASSERT_TRUE(seven.ok()) << seven.status();
  EXPECT_EQ(seven->truth, (std::vector<bool>{false, true}));
  EXPECT_EQ(seven->errors[0], 0);
  EXPECT_GT(seven->errors[1], 0);
}

TEST(CcdQueryFile, BadFilesAreRefusedByLine) {
  const struct {
    std::string text, what;
  } cases[] = {
      {"", "no queries"},
      {"\n\n", "no queries"},
      {Rows(7, "1,1,1,1,1,1"), "middle of a query"},
      {Rows(8, "1,1,1,1,1,1") + "1,1,1,1,1", "x.csv:9: 5 columns"},
      {Rows(3, "1,1,1,1,1,1") + Rows(5, "1,1,1,1,1,1,0"), "x.csv:4: 7 columns"},
      {Rows(8, "1,1,1,1,1,1,2"), "x.csv:1: column 7 is \"2\""},
      {Rows(4, "1,1,1,1,1,1,0") + Rows(4, "1,1,1,1,1,1,1"), "x.csv:5: column 7 differs"},
      {Rows(8, "1,1,1,0,1,1"), "x.csv:1: y: the denominator is 0"},
      {Rows(8, "1,1,1,1,0x10,1"), "x.csv:1: z: \"0x10\" is not an integer"},
      {Rows(4, "1,1,1,1,1,1") + "\n" + Rows(4, "1,1,1,1,1,1"), "x.csv:5: an empty line"},
      {Rows(8, "1,1,1,1,1,1").substr(0, 90), "x.csv:8: "},
      {Rows(8, std::string(5000, '7') + ",1,1,1,1,1"), "5000 digits"},
      {Rows(8, std::string(400, '7') + ",1,1,1,1,1"), "larger than any double"},
      {std::string("\0\xff,1", 4), "2 columns"},
  };
  for (const auto& c : cases) {
    const auto result = ParseCcdQueries(c.text, "x.csv");
    EXPECT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument) << c.what;
    EXPECT_THAT(std::string(result.status().message()), HasSubstr(c.what));
  }
}

TEST(CcdQueryFile, ReadsFiles) {
  const std::filesystem::path path = std::filesystem::path(testing::TempDir()) / "ccd_query_file_test.csv";
  std::ofstream(path) << Rows(8, "1,1,1,1,1,1");
  const auto queries = ReadCcdQueries(path);
  EXPECT_TRUE(queries.ok()) << queries.status();
  std::filesystem::remove(path);
  EXPECT_EQ(ReadCcdQueries(path).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(ReadCcdQueries(testing::TempDir()).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace palpate::sim::query_file_test
