#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"

namespace palpate::server {

/// Host name of a Host header or of the authority of a URL, in lower case, without the port; "[::1]" keeps its brackets. Empty if
/// malformed.
std::string HostWithoutPort(std::string_view authority);

/// Whether a name or numeric address stands for this machine: localhost, *.localhost, 127.0.0.0/8, [::1].
bool IsLoopbackHost(std::string_view host);

/// Whether a host is a numeric address: "10.0.0.7", "[2001:db8::1]".
bool IsNumericHost(std::string_view host);

/// Refuses requests that reach the server under a foreign name. A page of another site gets at a server that only its visitor can reach by
/// a name of its own that it makes resolve to that server (DNS rebinding); the browser then names the other site in the Host header. So the
/// names of loopback pass, numeric addresses, which nobody can make resolve to anything else, and `allowed_hosts`. `host_header` may be
/// empty (HTTP/1.0: no browser). PermissionDenied if refused.
absl::Status CheckHost(std::string_view host_header, const std::vector<std::string>& allowed_hosts);

/// The names under which a network may know this machine: its host name, and that with ".local"; in lower case.
std::vector<std::string> MachineNames();

/// Refuses a WebSocket handshake from a page of another site. `origin` empty: the client is no browser, allowed. Otherwise its scheme must
/// be http or https and its authority (with port) that of `host_header`, or the whole must be one of `allowed_origins`. PermissionDenied if
/// refused.
absl::Status CheckOrigin(std::string_view origin, std::string_view host_header, const std::vector<std::string>& allowed_origins);

}  // namespace palpate::server
