#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace palpate::sim {

/// One part of a path: `force(liver, "the probe")` is the name "force" with two arguments.
struct PathPart {
  std::string name;
  size_t position = 0;    ///< of its first byte in the path
  bool is_index = false;  ///< stood in brackets
  bool has_arguments = false;
  std::vector<std::string> arguments = {};
};

/// Splits `tool.probe.force`, `bodies[liver].material`, `body."left lobe".volume`, `contacts.force(liver, probe)`. Names consist of
/// letters, digits, `_`, `-`, `/`, `*`; all others are quoted, with `\"` and `\\` inside. Bytes above 127 may stand unquoted. In arguments
/// blanks around names are ignored. Errors: InvalidArgument naming the place in the path and what is wrong there.
absl::StatusOr<std::vector<PathPart>> ParsePath(std::string_view path);

/// A name as it stands in a path: quoted where it has to be.
std::string QuotedName(std::string_view name);

/// Whether `*` in the pattern can stand for characters so that it reads as the name. O(pattern * name).
bool MatchesPattern(std::string_view pattern, std::string_view name);

}  // namespace palpate::sim
