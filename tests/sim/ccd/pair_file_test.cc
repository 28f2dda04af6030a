#include "sim/ccd/pair_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace palpate::sim::pair_file_test {
namespace {

using testing::HasSubstr;

TEST(PairFile, ReadsPairs) {
  const auto pairs = ParsePairList(" [[0,1],\n [ 4294967295 , 5 ]] \n", "a.json");
  ASSERT_TRUE(pairs.ok()) << pairs.status();
  EXPECT_EQ(*pairs, (std::vector<std::array<uint32_t, 2>>{{0, 1}, {4294967295U, 5}}));
  EXPECT_TRUE(ParsePairList("[]", "a.json")->empty());
}

TEST(PairFile, ReadsTruth) {
  const auto truth = ParseTruthList("[true, false,1,0]", "a.json");
  ASSERT_TRUE(truth.ok()) << truth.status();
  EXPECT_EQ(*truth, (std::vector<bool>{true, false, true, false}));
  EXPECT_TRUE(ParseTruthList(" [ ] ", "a.json")->empty());
}

TEST(PairFile, BadFilesAreRefused) {
  for (const std::string text : {"", "[", "[[0,1]", "[[0,1],]", "[[0]]", "[[0,1,2]]", "[[-1,2]]", "[[4294967296,2]]", "[[0,1]] x", "{}",
                                 "[true]", "[[0.5,1]]", "[[0 1]]"}) {
    const auto result = ParsePairList(text, "x.json");
    EXPECT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(result.status().message()), HasSubstr("x.json:1: ")) << text;
  }
  for (const std::string text : {"", "[", "[tru]", "[true", "[true false]", "[2]", "[]]", "[[true]]", "[true,]"}) {
    EXPECT_EQ(ParseTruthList(text, "x.json").status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
  EXPECT_EQ(ReadPairList("no such file").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(ReadTruthList("no such file").status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace palpate::sim::pair_file_test
