#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "clients/cpp/scene_client.h"

namespace palpate::cli {

/// One number of the verification of tissue: what theory says and what the server simulates.
struct TissueCheck {
  std::string id;  ///< the case, as in docs/evidence/tissue.md
  std::string what;
  double expected = 0;
  double got = 0;
  double tolerance = 0;  ///< absolute

  double error() const;
  bool pass() const;  ///< false for NaN
};

/// Builds the cases as scenes, runs them and compares, all through the public API: `server` and streams of its
/// `connection`. `seen` gets each check as it is made. The server must
/// allow 1 more scene. Errors: those of the calls.
absl::StatusOr<std::vector<TissueCheck>> VerifyTissue(const client::Connection& connection, client::SceneClient& server,
                                                      const std::function<void(const TissueCheck&)>& seen);

}  // namespace palpate::cli
