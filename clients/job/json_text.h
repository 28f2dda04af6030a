#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include <google/protobuf/message.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace palpate::job {

/// Where the first error of syntax is: protobuf's own parser does not tell lines. Errors: InvalidArgument `<name>:<line>:<column>: ...`.
absl::Status CheckJsonSyntax(std::string_view text, const std::string& name);

/// The text of a JSON file, its syntax checked. `what` it should be, for messages. Errors: NotFound (cannot be read), InvalidArgument
/// naming file, line and column.
absl::StatusOr<std::string> ReadJsonFile(const std::filesystem::path& path, const char* what);

/// Reads the JSON form of a message. Unknown names are errors. Errors: InvalidArgument that begins with `name` and names the field.
absl::Status ParseJsonMessage(std::string_view text, std::string_view name, google::protobuf::Message* message);

/// The JSON form, names of fields as in the proto, indented, with a line feed at the end. The same message gives the same bytes.
std::string JsonOfMessage(const google::protobuf::Message& message);

}  // namespace palpate::job
