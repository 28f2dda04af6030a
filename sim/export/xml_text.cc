#include "sim/export/xml_text.h"

#include <array>
#include <charconv>
#include <utility>

#include "absl/strings/str_cat.h"

namespace palpate::sim {
namespace {

constexpr std::array<std::pair<char, std::string_view>, 4> kEscapes = {{{'&', "&amp;"}, {'<', "&lt;"}, {'>', "&gt;"}, {'"', "&quot;"}}};

}  // namespace

std::string XmlText(std::string_view text) {
  std::string out;
  for (const char c : text) {
    std::string_view piece(&c, 1);
    if (static_cast<unsigned char>(c) < 0x20) piece = " ";
    for (const auto& [plain, escape] : kEscapes) {
      if (c == plain) piece = escape;
    }
    out.append(piece);
  }
  return out;
}

absl::StatusOr<std::string> FromXmlText(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    if (text[0] != '&') {
      out.push_back(text[0]);
      text.remove_prefix(1);
      continue;
    }
    bool is_known = false;
    for (const auto& [plain, escape] : kEscapes) {
      if (!text.starts_with(escape)) continue;
      out.push_back(plain);
      text.remove_prefix(escape.size());
      is_known = true;
      break;
    }
    if (!is_known) return absl::InvalidArgumentError("an unknown escape after \"&\"");
  }
  return out;
}

std::string RealText(double value) {
  std::array<char, 32> buffer;
  const auto [end, error] = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value);
  return {buffer.data(), end};
}

}  // namespace palpate::sim
