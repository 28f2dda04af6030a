#include "server/core/log.h"

#include <spdlog/sinks/base_sink.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <mutex>

#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "server/core/line_writer.h"

namespace palpate::server {
namespace {

struct LevelName {
  LogLevel level;
  std::string_view name;
  spdlog::level::level_enum spdlog_level;
};
constexpr std::array<LevelName, 6> kLevels = {{
    {LogLevel::kTrace, "trace", spdlog::level::trace},
    {LogLevel::kDebug, "debug", spdlog::level::debug},
    {LogLevel::kInfo, "info", spdlog::level::info},
    {LogLevel::kWarning, "warning", spdlog::level::warn},
    {LogLevel::kError, "error", spdlog::level::err},
    {LogLevel::kOff, "off", spdlog::level::off},
}};

const LevelName& Find(LogLevel level) { return kLevels[static_cast<size_t>(level)]; }

std::atomic<bool> g_json{false};

/// Writes to stderr without waiting: what nobody reads, and what comes faster than any use of a log, is dropped and counted. So neither a
/// reader that hangs nor a client that provokes errors stops the server or fills a disk.
class StderrSink final : public spdlog::sinks::base_sink<std::mutex> {
 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    if (lost_ > 0) {
      const std::string text = FormatLogLine(LogLevel::kWarning, "log lines lost", {{"count", lost_}}, g_json);
      if (Write(spdlog::details::log_msg(message.time, {}, message.logger_name, spdlog::level::warn, text))) lost_ = 0;
    }
    if (lost_ > 0 || !Write(message)) ++lost_;
  }
  void flush_() override {}

 private:
  static constexpr double kBurst_bytes = 1 << 20;
  static constexpr double kRate_bytes_per_s = 64 << 10;

  bool Write(const spdlog::details::log_msg& message) {
    spdlog::memory_buf_t line;
    formatter_->format(message, line);
    const auto now = std::chrono::steady_clock::now();
    allowance_bytes_ =
        std::min(kBurst_bytes, allowance_bytes_ + kRate_bytes_per_s * std::chrono::duration<double>(now - refilled_).count());
    refilled_ = now;
    const auto size = static_cast<double>(std::min(line.size(), LineWriter::kMaxLineBytes));
    if (size > allowance_bytes_ || !writer_.Write({line.data(), line.size()})) return false;
    allowance_bytes_ -= size;
    return true;
  }

  LineWriter writer_{STDERR_FILENO};
  double allowance_bytes_ = kBurst_bytes;
  std::chrono::steady_clock::time_point refilled_ = std::chrono::steady_clock::now();
  uint64_t lost_ = 0;
};

spdlog::logger& Logger() {
  static const std::shared_ptr<spdlog::logger> logger = [] {
    auto created = std::make_shared<spdlog::logger>("palpate", std::make_shared<StderrSink>());
    created->set_pattern("%Y-%m-%dT%H:%M:%S.%e%z %v");
    return created;
  }();
  return *logger;
}

void AppendQuoted(std::string_view text, std::string& out) {
  out.push_back('"');
  for (const char c : text) {
    const auto u = static_cast<unsigned char>(c);
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      default:
        if (u < 0x20 || u == 0x7f) {
          out += absl::StrFormat("\\u%04x", u);
        } else {
          out.push_back(c);
        }
    }
  }
  out.push_back('"');
}

bool IsPlain(std::string_view text) {
  if (text.empty()) return false;
  for (const char c : text) {
    const auto u = static_cast<unsigned char>(c);
    if (u <= 0x20 || u == 0x7f || c == '"' || c == '=' || c == '\\') return false;
  }
  return true;
}

}  // namespace

void ConfigureLog(LogLevel level, bool json) {
  g_json = json;
  spdlog::logger& logger = Logger();
  logger.set_level(Find(level).spdlog_level);
  logger.set_pattern(json ? "{\"time\":\"%Y-%m-%dT%H:%M:%S.%e%z\",%v}" : "%Y-%m-%dT%H:%M:%S.%e%z %v");
}

absl::Status ParseLogLevel(std::string_view text, LogLevel& level) {
  for (const LevelName& candidate : kLevels) {
    if (candidate.name == text) {
      level = candidate.level;
      return absl::OkStatus();
    }
  }
  return absl::InvalidArgumentError(
      absl::StrCat("log level: \"", std::string(text), "\" is none of trace, debug, info, warning, error, off"));
}

std::string FormatLogLine(LogLevel level, std::string_view event, std::initializer_list<LogField> fields, bool json) {
  std::string out;
  if (json) {
    out += "\"level\":";
    AppendQuoted(Find(level).name, out);
    out += ",\"event\":";
    AppendQuoted(event, out);
  } else {
    out += Find(level).name;
    out += ": ";
    out += event;
  }
  for (const LogField& field : fields) {
    if (json) {
      out.push_back(',');
      AppendQuoted(field.key, out);
      out.push_back(':');
      double number = 0;
      const bool is_json_number = field.is_number && absl::SimpleAtod(field.value, &number) && std::isfinite(number);
      if (is_json_number) {
        out += field.value;
      } else {
        AppendQuoted(field.value, out);
      }
    } else {
      out.push_back(' ');
      out += field.key;
      out.push_back('=');
      if (IsPlain(field.value)) {
        out += field.value;
      } else {
        AppendQuoted(field.value, out);
      }
    }
  }
  return out;
}

void Log(LogLevel level, std::string_view event, std::initializer_list<LogField> fields) {
  spdlog::logger& logger = Logger();
  if (!logger.should_log(Find(level).spdlog_level)) return;
  const std::string line = FormatLogLine(level, event, fields, g_json);
  logger.log(Find(level).spdlog_level, spdlog::string_view_t(line.data(), line.size()));
}

}  // namespace palpate::server
