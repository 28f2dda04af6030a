#include "clients/job/json_text.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>

#include <google/protobuf/util/json_util.h>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "gpu/base/status.h"

namespace palpate::job {
namespace {

/// Where the first error of syntax is. protobuf's own parser does not tell lines.
class SyntaxChecker : public nlohmann::json::json_sax_t {
 public:
  bool null() override { return true; }
  bool boolean(bool /*value*/) override { return true; }
  bool number_integer(number_integer_t /*value*/) override { return true; }
  bool number_unsigned(number_unsigned_t /*value*/) override { return true; }
  bool number_float(number_float_t /*value*/, const string_t& /*text*/) override { return true; }
  bool string(string_t& /*value*/) override { return true; }
  bool binary(binary_t& /*value*/) override { return true; }
  bool start_object(std::size_t /*size*/) override { return true; }
  bool key(string_t& /*value*/) override { return true; }
  bool end_object() override { return true; }
  bool start_array(std::size_t /*size*/) override { return true; }
  bool end_array() override { return true; }
  bool parse_error(std::size_t position, const std::string& /*token*/, const nlohmann::json::exception& error) override {
    position_ = position;
    message_ = error.what();
    return false;
  }
  std::size_t position() const { return position_; }
  const std::string& message() const { return message_; }

 private:
  std::size_t position_ = 0;
  std::string message_;
};

}  // namespace

absl::Status CheckJsonSyntax(std::string_view text, const std::string& name) {
  SyntaxChecker checker;
  if (nlohmann::json::sax_parse(text, &checker)) return absl::OkStatus();
  // The library's message begins with its own error number and the position, which our line and column repeat.
  std::string cause = checker.message();
  if (const size_t at = cause.find(": "); at != std::string::npos) cause.erase(0, at + 2);
  // It also quotes the bytes it stopped at, whatever they are.
  std::replace_if(
      cause.begin(), cause.end(), [](unsigned char c) { return c < 0x20 || c > 0x7e; }, '?');
  const std::string_view before = text.substr(0, checker.position() > 0 ? checker.position() - 1 : 0);
  const size_t line_begin = before.rfind('\n');
  const size_t column = line_begin == std::string_view::npos ? before.size() + 1 : before.size() - line_begin;
  return absl::InvalidArgumentError(
      absl::StrFormat("%s:%d:%d: not JSON: %s", name, 1 + std::count(before.begin(), before.end(), '\n'), column, cause));
}

absl::StatusOr<std::string> ReadJsonFile(const std::filesystem::path& path, const char* what) {
  std::ifstream file(path, std::ios::binary);
  const int open_error = errno;
  std::ostringstream content;
  std::error_code error;
  const std::filesystem::file_status kind = std::filesystem::status(path, error);
  if (std::filesystem::is_directory(kind)) {
    return absl::NotFoundError(absl::StrFormat("%s: is a folder, not %s", path.string(), what));
  }
  // A device might never end; a pipe is what a script hands over.
  if (std::filesystem::is_character_file(kind) || std::filesystem::is_block_file(kind)) {
    return absl::NotFoundError(absl::StrFormat("%s: is a device, not %s", path.string(), what));
  }
  if (!file) return absl::NotFoundError(absl::StrFormat("%s: cannot be read: %s", path.string(), std::strerror(open_error)));
  content << file.rdbuf();
  std::string text = content.str();
  if (absl::Status status = CheckJsonSyntax(text, path.string()); !status.ok()) return status;
  return text;
}

absl::Status ParseJsonMessage(std::string_view text, std::string_view name, google::protobuf::Message* message) {
  google::protobuf::util::JsonParseOptions options;
  options.ignore_unknown_fields = false;
  const auto status = google::protobuf::util::JsonStringToMessage({text.data(), text.size()}, message, options);
  if (status.ok()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(absl::string_view(name.data(), name.size()), ": ", std::string(status.message())));
}

std::string JsonOfMessage(const google::protobuf::Message& message) {
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  std::string text;
  // Every message of ours has a JSON form: no Any, no unknown type.
  (void)google::protobuf::util::MessageToJsonString(message, &text, options);
  auto json = nlohmann::ordered_json::parse(text);
  // The only map; protobuf gives it in another order each time.
  if (const auto overrides = json.find("overrides"); overrides != json.end()) {
    *overrides = nlohmann::ordered_json(nlohmann::json::parse(overrides->dump()));
  }
  return json.dump(2) + '\n';
}

}  // namespace palpate::job
