#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace palpate::server {

enum class LogLevel { kTrace, kDebug, kInfo, kWarning, kError, kOff };

/// One key and value of a log line. Values are text; numbers come without quotes in JSON.
struct LogField {
  LogField(std::string_view k, std::string_view v) : key(k), value(v) {}
  LogField(std::string_view k, const std::string& v) : key(k), value(v) {}
  LogField(std::string_view k, const char* v) : key(k), value(v) {}
  LogField(std::string_view k, const absl::Status& v) : key(k), value(v.ToString()) {}
  template <typename T>
  requires std::is_arithmetic_v<T> LogField(std::string_view k, T v) : key(k), value(absl::StrCat(v)), is_number(true) {}

  std::string_view key;
  std::string value;
  bool is_number = false;
};

/// Sets how this process logs to stderr. `json`: one JSON object a line, else text with key=value pairs. Not thread-safe; call it first.
void ConfigureLog(LogLevel level, bool json);

/// "trace", "debug", "info", "warning", "error" or "off". Errors: InvalidArgument listing these.
absl::Status ParseLogLevel(std::string_view text, LogLevel& level);

/// Writes one line: an event in a few fixed words, and its particulars. Thread-safe. Control characters in values are escaped.
/// Never waits: lines that stderr does not take at once, or that come too fast, are dropped and counted in a later line. Lines are cut at
/// 4,096 bytes.
void Log(LogLevel level, std::string_view event, std::initializer_list<LogField> fields = {});

/// The text after the time stamp that Log would write: for tests.
std::string FormatLogLine(LogLevel level, std::string_view event, std::initializer_list<LogField> fields, bool json);

}  // namespace palpate::server
