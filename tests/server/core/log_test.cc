#include "server/core/log.h"

#include <gtest/gtest.h>

namespace palpate::server::log_test {
namespace {

TEST(Log, TextQuotesWhatNeedsIt) {
  EXPECT_EQ(
      FormatLogLine(LogLevel::kInfo, "scene created", {{"scene", "liver"}, {"tets", 25}, {"name", "a \"b\"\n"}, {"empty", ""}}, false),
      "info: scene created scene=liver tets=25 name=\"a \\\"b\\\"\\n\" empty=\"\"");
}

TEST(Log, JsonKeepsNumbersAndEscapes) {
  EXPECT_EQ(FormatLogLine(LogLevel::kWarning, "x", {{"n", 2.5}, {"s", "\x01\\"}}, true),
            "\"level\":\"warning\",\"event\":\"x\",\"n\":2.5,\"s\":\"\\u0001\\\\\"");
  // JSON has no infinity.
  EXPECT_EQ(FormatLogLine(LogLevel::kError, "x", {{"n", 1e308 * 10}}, true), "\"level\":\"error\",\"event\":\"x\",\"n\":\"inf\"");
}

TEST(Log, LevelsHaveNames) {
  LogLevel level = LogLevel::kOff;
  EXPECT_TRUE(ParseLogLevel("debug", level).ok());
  EXPECT_EQ(level, LogLevel::kDebug);
  EXPECT_EQ(ParseLogLevel("loud", level).message(), "log level: \"loud\" is none of trace, debug, info, warning, error, off");
  EXPECT_EQ(level, LogLevel::kDebug);
}

}  // namespace
}  // namespace palpate::server::log_test
