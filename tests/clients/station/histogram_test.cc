#include "clients/station/histogram.h"

#include <algorithm>
#include <atomic>
#include <limits>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace palpate::station::histogram_test {
namespace {

TEST(Histogram, IsZeroWithoutValues) {
  const Histogram<10> histogram(1.0);
  EXPECT_EQ(histogram.Percentile(0.99), 0);
  EXPECT_EQ(histogram.max(), 0);
  EXPECT_EQ(histogram.mean(), 0);
}

TEST(Histogram, AgreesWithSortingToOneBin) {
  std::mt19937 random(1);
  std::exponential_distribution<double> distribution(0.02);
  Histogram<1000> histogram(1.0);
  std::vector<double> values(20000);
  double sum = 0;
  for (double& value : values) {
    value = std::min(distribution(random), 999.0);
    histogram.Add(value);
    sum += value;
  }
  std::sort(values.begin(), values.end());
  for (const double fraction : {0.01, 0.5, 0.9, 0.99, 0.999, 1.0}) {
    const double exact = values[static_cast<size_t>(std::ceil(fraction * 20000)) - 1];
    EXPECT_NEAR(histogram.Percentile(fraction), exact, 1.0 + 1e-9) << fraction;
    EXPECT_GE(histogram.Percentile(fraction) + 1e-9, exact) << fraction;
  }
  EXPECT_DOUBLE_EQ(histogram.max(), values.back());
  EXPECT_NEAR(histogram.mean(), sum / 20000, 1e-9);
}

TEST(Histogram, TakesAnyValue) {
  Histogram<10> histogram(1.0);
  histogram.Add(-5);
  histogram.Add(1e12);
  EXPECT_EQ(histogram.count(), 2);
  EXPECT_DOUBLE_EQ(histogram.Percentile(0.5), 1);
  EXPECT_DOUBLE_EQ(histogram.Percentile(1), 1e12);
}

TEST(RaiseRelaxed, KeepsTheLargest) {
  std::atomic<double> largest{1};
  RaiseRelaxed(largest, 0.5);
  EXPECT_EQ(largest.load(), 1);
  RaiseRelaxed(largest, 2.5);
  EXPECT_EQ(largest.load(), 2.5);
  RaiseRelaxed(largest, std::numeric_limits<double>::quiet_NaN());
  EXPECT_EQ(largest.load(), 2.5);
}

}  // namespace
}  // namespace palpate::station::histogram_test
