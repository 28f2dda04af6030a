#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace palpate::sim {

/// absl's view of the same characters: the distribution's absl::string_view is a type of its own.
inline absl::string_view ToAbsl(std::string_view text) { return {text.data(), text.size()}; }

/// A name as the value of an attribute: what XML does not allow there is escaped, and control characters, which it has no place for, become
/// spaces.
std::string XmlText(std::string_view text);
/// What XmlText made of a name without control characters. Errors: InvalidArgument (an escape that XmlText does not use).
absl::StatusOr<std::string> FromXmlText(std::string_view text);

/// The shortest number that reads as the same double, independent of the locale.
std::string RealText(double value);

}  // namespace palpate::sim
