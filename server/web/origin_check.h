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

/// Refuses requests that reach the server under a foreign name, which is how a page elsewhere gets at a loopback server (DNS rebinding).
/// `host_header` may be empty (HTTP/1.0: no browser). `allowed_hosts` empty: loopback names if `bound_to_loopback`, else any.
/// PermissionDenied if refused.
absl::Status CheckHost(std::string_view host_header, bool bound_to_loopback, const std::vector<std::string>& allowed_hosts);

/// Refuses a WebSocket handshake from a page of another site. `origin` empty: the client is no browser, allowed. Otherwise its scheme must
/// be http or https and its authority (with port) that of `host_header`, or the whole must be one of `allowed_origins`. PermissionDenied if
/// refused.
absl::Status CheckOrigin(std::string_view origin, std::string_view host_header, const std::vector<std::string>& allowed_origins);

}  // namespace palpate::server
