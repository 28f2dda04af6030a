#include "clients/cli/verify_tissue.h"

#include <cmath>
#include <utility>

#include "clients/cli/verify_tissue_bench.h"
#include "gpu/base/status.h"

namespace palpate::cli {

double TissueCheck::error() const { return std::abs(got - expected); }
bool TissueCheck::pass() const { return error() <= tolerance; }

absl::StatusOr<std::vector<TissueCheck>> VerifyTissue(const client::Connection& connection, client::SceneClient& server,
                                                      const std::function<void(const TissueCheck&)>& seen) {
  TissueBench bench(connection, server, seen);
  PALPATE_RETURN_IF_ERROR(VerifyStatics(bench));
  PALPATE_RETURN_IF_ERROR(VerifyEnergies(bench));
  PALPATE_RETURN_IF_ERROR(VerifyDynamics(bench));
  return std::move(bench.checks);
}

}  // namespace palpate::cli
