// How paths are read: names, quotes, brackets, arguments, wildcards, and what is said of wrong ones.
#include "sim/probe/probe_path.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>

namespace palpate::sim::probe_path_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> NamesIn(const std::string& path) {
  const auto parts = ParsePath(path);
  EXPECT_TRUE(parts.ok()) << parts.status();
  std::vector<std::string> names;
  if (parts.ok()) {
    for (const PathPart& part : *parts) names.push_back(part.name);
  }
  return names;
}

TEST(ProbePathTest, SplitsNamesBracketsAndQuotes) {
  EXPECT_THAT(NamesIn("time"), ElementsAre("time"));
  EXPECT_THAT(NamesIn("tool.probe.force.x"), ElementsAre("tool", "probe", "force", "x"));
  EXPECT_THAT(NamesIn("bodies[0].material"), ElementsAre("bodies", "0", "material"));
  EXPECT_THAT(NamesIn("body[left-lobe/2].volume"), ElementsAre("body", "left-lobe/2", "volume"));
  EXPECT_THAT(NamesIn("body.\"left . \\\"lobe\\\\\".volume"), ElementsAre("body", "left . \"lobe\\", "volume"));
  EXPECT_THAT(NamesIn("body.\xc3\xa4.volume"), ElementsAre("body", "\xc3\xa4", "volume"));
}

TEST(ProbePathTest, KnowsIndicesAndArguments) {
  const auto parts = ParsePath("contacts.force( liver ,\"the probe\").norm");
  ASSERT_TRUE(parts.ok()) << parts.status();
  ASSERT_EQ(parts->size(), 3U);
  EXPECT_TRUE((*parts)[1].has_arguments);
  EXPECT_THAT((*parts)[1].arguments, ElementsAre("liver", "the probe"));
  EXPECT_EQ((*parts)[2].position, 36U);
  const auto indexed = ParsePath("a[1].b");
  ASSERT_TRUE(indexed.ok());
  EXPECT_TRUE((*indexed)[1].is_index);
  EXPECT_FALSE((*indexed)[2].is_index);
}

TEST(ProbePathTest, SaysWhereAPathIsWrong) {
  const auto complaint = [](const std::string& path) { return std::string(ParsePath(path).status().message()); };
  EXPECT_THAT(complaint(""), HasSubstr("at the end: expected a name"));
  EXPECT_THAT(complaint("a..b"), HasSubstr("at byte 2: expected a name"));
  EXPECT_THAT(complaint("a.b c"), HasSubstr("at byte 3: expected '.', '[', '(' or the end"));
  EXPECT_THAT(complaint("a[1.b"), HasSubstr("at byte 3: expected ']'"));
  EXPECT_THAT(complaint("a(b"), HasSubstr("at the end: expected ',' or ')'"));
  EXPECT_THAT(complaint("a()"), HasSubstr("at byte 2: expected a name"));
  EXPECT_THAT(complaint("\"ab"), HasSubstr("expected the closing double quote"));
  EXPECT_THAT(complaint("a.\"\""), HasSubstr("a name is empty"));
  EXPECT_THAT(complaint("[0]"), HasSubstr("at byte 0"));
}

TEST(ProbePathTest, QuotedNamesAreReadBack) {
  std::mt19937 random(5);
  for (int i = 0; i < 2000; ++i) {
    std::string name;
    for (unsigned length = 1 + random() % 8; length > 0; --length) name += static_cast<char>(32 + random() % 95);
    EXPECT_THAT(NamesIn("body." + QuotedName(name) + ".volume"), ElementsAre("body", name, "volume"));
  }
}

TEST(ProbePathTest, WildcardsStandForAnyCharacters) {
  EXPECT_TRUE(MatchesPattern("*", ""));
  EXPECT_TRUE(MatchesPattern("*", "liver"));
  EXPECT_TRUE(MatchesPattern("li*r", "liver"));
  EXPECT_TRUE(MatchesPattern("*a*a*", "banana"));
  EXPECT_TRUE(MatchesPattern("", ""));
  EXPECT_FALSE(MatchesPattern("li*r", "lives"));
  EXPECT_FALSE(MatchesPattern("", "a"));
  EXPECT_FALSE(MatchesPattern("a", ""));
  EXPECT_FALSE(MatchesPattern("*a*a*a*a*", "banana"));
}

}  // namespace
}  // namespace palpate::sim::probe_path_test
