// Paths of probes and of fields that jobs override.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "sim/probe/probe_path.h"

namespace {

void Expect(bool holds) {
  if (!holds) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace palpate::sim;
  const std::string_view path(reinterpret_cast<const char*>(data), size);
  const auto parts = ParsePath(path);
  if (!parts.ok()) {
    Expect(!parts.status().message().empty());
    return 0;
  }
  // Written again with every name quoted where it has to be, it is the same path.
  std::string again;
  for (const PathPart& part : *parts) {
    Expect(!part.name.empty() && part.position <= size);
    again += part.is_index ? "[" : again.empty() ? "" : ".";
    again += QuotedName(part.name);
    if (part.is_index) again += "]";
    if (!part.has_arguments) continue;
    for (size_t a = 0; a < part.arguments.size(); ++a) again += (a == 0 ? "(" : ", ") + QuotedName(part.arguments[a]);
    again += ")";
    Expect(MatchesPattern(part.arguments[0], part.arguments[0]));
  }
  const auto reread = ParsePath(again);
  Expect(reread.ok() && reread->size() == parts->size());
  for (size_t i = 0; i < parts->size(); ++i) {
    Expect((*reread)[i].name == (*parts)[i].name && (*reread)[i].arguments == (*parts)[i].arguments);
    Expect(MatchesPattern("*", (*parts)[i].name));
  }
  return 0;
}
