#include "gpu/dynamics/tangle_recovery.h"

#include <gtest/gtest.h>

#include "gpu/shared/dynamics_types.h"

namespace palpate::gpu::tangle_recovery_test {
namespace {

constexpr uint32_t kTets = 1000;
constexpr double kDt_s = 0.01;
constexpr TangleRecovery::Counts kTangled = {.inverted = 21, .inverted_elastic = 21};  // 2 % are 20
constexpr TangleRecovery::Counts kCalm = {};

int StepsUntilChange(TangleRecovery& recovery, const TangleRecovery::Counts& counts) {
  for (int step = 1; step <= 10000; ++step) {
    if (recovery.Update(counts, kTets, kDt_s)) return step;
  }
  return 0;
}

TEST(TangleRecovery, BeginsAboveTheShareOfInvertedElasticTets) {
  TangleRecovery recovery;
  EXPECT_FALSE(recovery.active());
  EXPECT_EQ(recovery.lambda_cap(), PALPATE_LAMBDA_UNCAPPED);
  EXPECT_FALSE(recovery.Update({.inverted = 500, .inverted_elastic = 20, .strained = 500}, kTets, kDt_s));
  EXPECT_TRUE(recovery.Update(kTangled, kTets, kDt_s));
  EXPECT_TRUE(recovery.active());
  EXPECT_LT(recovery.lambda_cap(), 10);
}

TEST(TangleRecovery, EndsAfterAQuarterOfASecondWithoutInvertedOrStrainedTets) {
  TangleRecovery recovery;
  recovery.Start();
  for (int step = 0; step < 20; ++step) EXPECT_FALSE(recovery.Update(kCalm, kTets, kDt_s));
  EXPECT_FALSE(recovery.Update({.strained = 1}, kTets, kDt_s)) << "the calm begins anew";
  EXPECT_NEAR(StepsUntilChange(recovery, kCalm), 25, 1);
  EXPECT_FALSE(recovery.active());
  EXPECT_EQ(recovery.lambda_cap(), PALPATE_LAMBDA_UNCAPPED);
}

TEST(TangleRecovery, EndsAfterTwentySecondsInAnyCaseAndMayBeginAgain) {
  TangleRecovery recovery;
  recovery.Start();
  EXPECT_NEAR(StepsUntilChange(recovery, kTangled), 2000, 1);
  EXPECT_FALSE(recovery.active());
  EXPECT_TRUE(recovery.Update(kTangled, kTets, kDt_s));
  recovery.Stop();
  EXPECT_FALSE(recovery.active());
}

}  // namespace
}  // namespace palpate::gpu::tangle_recovery_test
