// The main function of test programs: that of GoogleTest, and a flag that picks the tests of some files.
//
//   PROGRAM [--files=NAME_test.cc[,NAME_test.cc...]] [flags of GoogleTest]
//
// With --files only tests written in these files run, of those that --gtest_filter would run. A file may be given with folders in front.
// Exit status 2 where a flag is unknown, or where no test is left.
#include <absl/strings/str_join.h>
#include <absl/strings/str_split.h>
#include <fnmatch.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace palpate::test {
namespace {

std::vector<std::string> Split(std::string_view text, char separator) {
  return absl::StrSplit(std::string(text), separator, absl::SkipEmpty());
}

bool IsIn(std::string_view file, const std::string& path) {
  return file == path || (file.ends_with(path) && file[file.size() - path.size() - 1] == '/');
}

bool MatchesOne(const std::vector<std::string>& patterns, const std::string& name) {
  return std::any_of(patterns.begin(), patterns.end(),
                     [&](const auto& pattern) { return fnmatch(pattern.c_str(), name.c_str(), FNM_NOESCAPE) == 0; });
}

/// A filter of GoogleTest: patterns to run, and after a '-' patterns not to run.
struct Filter {
  explicit Filter(std::string_view text) {
    const size_t dash = std::min(text.find('-'), text.size());
    positive = Split(text.substr(0, dash), ':');
    if (positive.empty()) positive = {"*"};
    negative = Split(text.substr(std::min(dash + 1, text.size())), ':');
  }
  bool Wants(const std::string& name) const { return MatchesOne(positive, name) && !MatchesOne(negative, name); }

  std::vector<std::string> positive, negative;
};

/// `filter`, narrowed to tests written in one of `files`; empty where there is none.
std::string Narrowed(const std::string& filter, const std::vector<std::string>& files) {
  const Filter wanted(filter);
  std::vector<std::string> narrowed;
  const auto& unit = *testing::UnitTest::GetInstance();
  for (int s = 0; s < unit.total_test_suite_count(); ++s) {
    const testing::TestSuite& suite = *unit.GetTestSuite(s);
    std::vector<std::string> names;
    for (int t = 0; t < suite.total_test_count(); ++t) {
      const testing::TestInfo& test = *suite.GetTestInfo(t);
      const std::string name = std::string(suite.name()) + "." + test.name();
      const bool is_here = std::any_of(files.begin(), files.end(), [&](const auto& file) { return IsIn(test.file(), file); });
      if (is_here && wanted.Wants(name)) names.push_back(name);
    }
    // GoogleTest prints the filter, so it is kept short.
    if (!names.empty() && std::cmp_equal(names.size(), suite.total_test_count())) names = {std::string(suite.name()) + ".*"};
    narrowed.insert(narrowed.end(), names.begin(), names.end());
  }
  return absl::StrJoin(narrowed, ":");
}

int Main(int count, char** arguments) {
  testing::InitGoogleMock(&count, arguments);
  constexpr std::string_view kFiles = "--files=";
  std::vector<std::string> files;
  for (int i = 1; i < count; ++i) {
    const std::string_view argument = arguments[i];
    if (!argument.starts_with(kFiles)) {
      std::fprintf(stderr, "unknown: %s (known: --files=a_test.cc,b_test.cc and flags of GoogleTest)\n", arguments[i]);
      return 2;
    }
    for (auto& file : Split(argument.substr(kFiles.size()), ',')) files.push_back(std::move(file));
  }
  if (count > 1) {
    const std::string filter = GTEST_FLAG_GET(filter), narrowed = Narrowed(filter, files);
    if (narrowed.empty()) {
      std::fprintf(stderr, "no test of %s matches filter %s\n", absl::StrJoin(files, ", ").c_str(), filter.c_str());
      return 2;
    }
    GTEST_FLAG_SET(filter, narrowed);
  }
  return RUN_ALL_TESTS();
}

}  // namespace
}  // namespace palpate::test

int main(int count, char** arguments) { return palpate::test::Main(count, arguments); }
