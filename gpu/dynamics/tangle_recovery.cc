#include "gpu/dynamics/tangle_recovery.h"

#include "gpu/shared/dynamics_types.h"

namespace palpate::gpu {
namespace {

constexpr float kLambdaCap = 1.5F;
constexpr double kCalm_s = 0.25;
constexpr double kLimit_s = 20;

}  // namespace

float TangleRecovery::lambda_cap() const { return active() ? kLambdaCap : PALPATE_LAMBDA_UNCAPPED; }

void TangleRecovery::Start() {
  left_s_ = kLimit_s;
  calm_s_ = 0;
}

void TangleRecovery::StartGivenTangled() {
  Start();
  was_given_tangled_ = true;
}

bool TangleRecovery::Update(const Counts& counts, uint32_t tet_count, double dt_s) {
  if (!active()) {
    if (counts.inverted_elastic <= kTangledShare * static_cast<double>(tet_count)) return false;
    Start();
    return true;
  }
  left_s_ -= dt_s;
  calm_s_ = counts.inverted + counts.strained == 0 ? calm_s_ + dt_s : 0;
  if (calm_s_ >= kCalm_s) left_s_ = 0;
  return !active();
}

}  // namespace palpate::gpu
