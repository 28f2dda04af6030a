#include "server/web/origin_check.h"

#include <arpa/inet.h>
#include <unistd.h>

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace palpate::server {
namespace {

absl::string_view AbslView(std::string_view text) { return {text.data(), text.size()}; }

bool IsHostCharacter(char c) { return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '.' || c == '_'; }

// "host" or "host:port" with the default port of the scheme spelled out, so that the two spellings compare equal.
std::string WithPort(std::string_view authority, std::string_view scheme) {
  const std::string host = HostWithoutPort(authority);
  if (host.empty()) return "";
  if (authority.size() > host.size()) return absl::StrCat(host, AbslView(authority.substr(host.size())));
  return absl::StrCat(host, scheme == "https" ? ":443" : ":80");
}

}  // namespace

std::string HostWithoutPort(std::string_view authority) {
  std::string_view host = authority;
  std::string_view port;
  if (!authority.empty() && authority.front() == '[') {
    const size_t end = authority.find(']');
    if (end == std::string_view::npos) return "";
    host = authority.substr(0, end + 1);
    port = authority.substr(end + 1);
    const std::string_view inside = host.substr(1, host.size() - 2);
    if (inside.empty() || !std::all_of(inside.begin(), inside.end(), [](char c) {
          return absl::ascii_isxdigit(static_cast<unsigned char>(c)) || c == ':' || c == '.';
        })) {
      return "";
    }
  } else {
    const size_t colon = authority.find(':');
    host = authority.substr(0, colon);
    port = colon == std::string_view::npos ? std::string_view() : authority.substr(colon);
    if (host.empty() || !std::all_of(host.begin(), host.end(), IsHostCharacter)) return "";
  }
  if (!port.empty()) {
    const std::string_view digits = port.substr(1);
    int number = 0;
    if (digits.empty() || digits.size() > 5 || !std::all_of(digits.begin(), digits.end(), [](char c) { return c >= '0' && c <= '9'; }) ||
        !absl::SimpleAtoi(AbslView(digits), &number) || number < 1 || number > 65535) {
      return "";
    }
  }
  return absl::AsciiStrToLower(AbslView(host));
}

bool IsLoopbackHost(std::string_view host) {
  const absl::string_view name = AbslView(host);
  if (name == "localhost" || absl::EndsWith(name, ".localhost") || name == "[::1]" || name == "::1") return true;
  const std::vector<absl::string_view> parts = absl::StrSplit(name, '.');
  if (parts.size() != 4 || parts[0] != "127") return false;
  return std::all_of(parts.begin(), parts.end(), [](absl::string_view part) {
    int value = 0;
    return absl::SimpleAtoi(part, &value) && value >= 0 && value <= 255;
  });
}

bool IsNumericHost(std::string_view host) {
  std::string text(host);
  in6_addr address{};
  if (text.size() > 2 && text.front() == '[' && text.back() == ']') {
    return inet_pton(AF_INET6, text.substr(1, text.size() - 2).c_str(), &address) == 1;
  }
  return inet_pton(AF_INET, text.c_str(), &address) == 1;
}

absl::Status CheckHost(std::string_view host_header, const std::vector<std::string>& allowed_hosts) {
  if (host_header.empty()) return absl::OkStatus();
  const std::string host = HostWithoutPort(host_header);
  if (host.empty()) return absl::PermissionDeniedError("malformed Host header");
  if (IsLoopbackHost(host) || IsNumericHost(host)) return absl::OkStatus();
  if (std::any_of(allowed_hosts.begin(), allowed_hosts.end(),
                  [&](const std::string& name) { return absl::EqualsIgnoreCase(name, host); })) {
    return absl::OkStatus();
  }
  return absl::PermissionDeniedError(absl::StrCat("this server does not answer to the host name '", host,
                                                  "'; if it is one of its names, start it with --allowed-host ", host));
}

std::vector<std::string> MachineNames() {
  char name[256] = "";
  if (gethostname(name, sizeof(name) - 1) != 0) return {};
  const std::string host = HostWithoutPort(name);
  if (host.empty()) return {};
  return {host, absl::StrCat(host, ".local")};
}

absl::Status CheckOrigin(std::string_view origin, std::string_view host_header, const std::vector<std::string>& allowed_origins) {
  if (origin.empty()) return absl::OkStatus();
  for (const std::string& allowed : allowed_origins) {
    if (absl::EqualsIgnoreCase(allowed, AbslView(origin))) return absl::OkStatus();
  }
  const size_t colon = origin.find("://");
  const std::string scheme = absl::AsciiStrToLower(AbslView(origin.substr(0, colon == std::string_view::npos ? 0 : colon)));
  if (scheme == "http" || scheme == "https") {
    const std::string from = WithPort(origin.substr(colon + 3), scheme);
    if (!from.empty() && from == WithPort(host_header, scheme)) return absl::OkStatus();
  }
  return absl::PermissionDeniedError("pages of another origin may not open this socket");
}

}  // namespace palpate::server
