#include "gpu/primitives/reduction.h"

#include <algorithm>
#include <numeric>

#include "tests/gpu/primitives/primitive_test.h"

namespace palpate::gpu::reduction_test {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

class ReductionTest : public test::DeviceTest {
 protected:
  template <typename T>
  T Reduce(Reduction<T>& reduction, const std::vector<T>& values) {
    const auto in = Upload(values);
    const auto out = Upload(std::vector<T>(1, T{77}));
    PALPATE_EXPECT_OK(reduction.Run(queue(), in, static_cast<uint32_t>(values.size()), out));
    EXPECT_EQ(Download(in), values);
    return Download(out)[0];
  }

  Box Bound(BoundingBox& box, const std::vector<Float4>& points) {
    const auto in = Upload(points);
    const auto out = Upload(std::vector<Box>(1, Box{{9, 9, 9, 9}, {9, 9, 9, 9}}));
    PALPATE_EXPECT_OK(box.Run(queue(), in, static_cast<uint32_t>(points.size()), out));
    return Download(out)[0];
  }
};

template <typename T>
class IntegerReductionTest : public ReductionTest {};
using Integers = ::testing::Types<uint32_t, uint64_t>;
TYPED_TEST_SUITE(IntegerReductionTest, Integers);

TYPED_TEST(IntegerReductionTest, EqualsStd) {
  using T = TypeParam;
  for (const NamedConfig& config : TestConfigs()) {
    PALPATE_TEST_ASSIGN(Reduction<T> sum, Reduction<T>::Create(this->context(), ReductionOp::kSum, config.config));
    PALPATE_TEST_ASSIGN(Reduction<T> min, Reduction<T>::Create(this->context(), ReductionOp::kMin, config.config));
    PALPATE_TEST_ASSIGN(Reduction<T> max, Reduction<T>::Create(this->context(), ReductionOp::kMax, config.config));
    for (const uint32_t size : TestSizes()) {
      for (const auto& [pattern, values] : TestPatterns<T>(size, size)) {
        const std::string where = Where(config, pattern, values);
        ASSERT_EQ(this->Reduce(sum, values), std::accumulate(values.begin(), values.end(), T{0})) << where;
        ASSERT_EQ(this->Reduce(min, values), size == 0 ? std::numeric_limits<T>::max() : *std::min_element(values.begin(), values.end()))
            << where;
        ASSERT_EQ(this->Reduce(max, values), size == 0 ? T{0} : *std::max_element(values.begin(), values.end())) << where;
      }
    }
  }
}

TEST_F(ReductionTest, FloatExtremesEqualStdAndIgnoreNans) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0, 1e3F);
  for (const NamedConfig& config : TestConfigs()) {
    PALPATE_TEST_ASSIGN(Reduction<float> min, Reduction<float>::Create(context(), ReductionOp::kMin, config.config));
    PALPATE_TEST_ASSIGN(Reduction<float> max, Reduction<float>::Create(context(), ReductionOp::kMax, config.config));
    const auto extremes = [&](const std::vector<float>& values) {
      const auto in = Upload(values);
      const auto out = Allocate<float>(1);
      PALPATE_EXPECT_OK(min.Run(queue(), in, static_cast<uint32_t>(values.size()), out));
      const float lowest = Download(out)[0];
      PALPATE_EXPECT_OK(max.Run(queue(), in, static_cast<uint32_t>(values.size()), out));
      return std::pair(lowest, Download(out)[0]);
    };
    EXPECT_EQ(extremes({}), std::pair(kInfinity, -kInfinity));
    for (const uint32_t size : TestSizes()) {
      if (size == 0) continue;
      std::vector<float> values(size);
      for (float& value : values) value = normal(random);
      const auto expected = std::pair(*std::min_element(values.begin(), values.end()), *std::max_element(values.begin(), values.end()));
      ASSERT_EQ(extremes(values), expected) << config.name << " " << size;
      values[random() % size] = 1e30F;
      values[random() % size] = -kInfinity;
      const auto wide = std::pair(*std::min_element(values.begin(), values.end()), *std::max_element(values.begin(), values.end()));
      ASSERT_EQ(extremes(values), wide) << config.name << " " << size;
      values.insert(values.begin() + random() % size, std::numeric_limits<float>::quiet_NaN());
      ASSERT_EQ(extremes(values), wide) << config.name << " " << size << " with a NaN";
    }
    EXPECT_EQ(extremes(std::vector<float>(100, std::numeric_limits<float>::quiet_NaN())), std::pair(kInfinity, -kInfinity));
  }
}

TEST_F(ReductionTest, FloatSumIsCloseAndTheSameEachTime) {
  std::mt19937 random(2);
  std::uniform_real_distribution<float> uniform(-1, 1);
  for (const NamedConfig& config : TestConfigs()) {
    PALPATE_TEST_ASSIGN(Reduction<float> sum, Reduction<float>::Create(context(), ReductionOp::kSum, config.config));
    PALPATE_TEST_ASSIGN(Reduction<float> second, Reduction<float>::Create(context(), ReductionOp::kSum, config.config));
    for (const uint32_t size : TestSizes()) {
      std::vector<float> values(size);
      double exact = 0;
      double magnitude = 0;
      for (float& value : values) {
        value = std::ldexp(uniform(random), static_cast<int>(random() % 20));
        exact += value;
        magnitude += std::abs(value);
      }
      const float result = Reduce(sum, values);
      ASSERT_NEAR(result, exact, magnitude * 6e-8 * std::sqrt(size + 1.0)) << config.name << " " << size;
      const float again = Reduce(second, values);
      ASSERT_EQ(std::bit_cast<uint32_t>(again), std::bit_cast<uint32_t>(result)) << config.name << " " << size;
    }
  }
}

TEST_F(ReductionTest, BoundingBoxEqualsASerialLoop) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal(-3, 1);
  for (const NamedConfig& config : TestConfigs()) {
    PALPATE_TEST_ASSIGN(BoundingBox box, BoundingBox::Create(context(), config.config));
    for (const uint32_t size : TestSizes()) {
      std::vector<Float4> points(size);
      Box expected = {{kInfinity, kInfinity, kInfinity, 0}, {-kInfinity, -kInfinity, -kInfinity, 0}};
      for (Float4& p : points) {
        p = {normal(random), 1e-3F * normal(random), 1e6F * normal(random), normal(random)};
        expected.lower = {std::min(expected.lower.x, p.x), std::min(expected.lower.y, p.y), std::min(expected.lower.z, p.z), 0};
        expected.upper = {std::max(expected.upper.x, p.x), std::max(expected.upper.y, p.y), std::max(expected.upper.z, p.z), 0};
      }
      const Box result = Bound(box, points);
      ASSERT_EQ(result.lower, expected.lower) << config.name << " " << size;
      ASSERT_EQ(result.upper, expected.upper) << config.name << " " << size;
    }
  }
}

TEST_F(ReductionTest, CountOnTheDeviceLimitsTheWork) {
  PALPATE_TEST_ASSIGN(Reduction<uint32_t> sum, Reduction<uint32_t>::Create(context(), ReductionOp::kSum));
  const auto in = Upload(std::vector<uint32_t>(100000, 1));
  const auto out = Allocate<uint32_t>(1);
  for (const uint32_t n : {0U, 1U, 77777U, 100000U, 200000U}) {
    const auto count = Upload(std::vector<uint32_t>{n});
    PALPATE_ASSERT_OK(sum.Run(queue(), in, {100000, count}, out));
    EXPECT_EQ(Download(out)[0], std::min(n, 100000U));
  }
}

TEST_F(ReductionTest, TooSmallBuffersAreRefused) {
  PALPATE_TEST_ASSIGN(Reduction<uint32_t> sum, Reduction<uint32_t>::Create(context(), ReductionOp::kSum));
  PALPATE_TEST_ASSIGN(BoundingBox box, BoundingBox::Create(context()));
  const auto three = Allocate<uint32_t>(3);
  const auto none = Allocate<uint32_t>(0);
  EXPECT_TRUE(absl::IsInvalidArgument(sum.Run(queue(), three, 4, three)));
  EXPECT_TRUE(absl::IsInvalidArgument(sum.Run(queue(), three, 3, none)));
  EXPECT_TRUE(absl::IsInvalidArgument(box.Run(queue(), Allocate<Float4>(2), 3, Allocate<Box>(1))));
}

TEST_F(ReductionTest, SlowSumsTenMillionValues) {
  const uint32_t size = 10'000'019;
  PALPATE_TEST_ASSIGN(Reduction<uint64_t> sum, Reduction<uint64_t>::Create(context(), ReductionOp::kSum));
  PALPATE_TEST_ASSIGN(Reduction<float> float_sum, Reduction<float>::Create(context(), ReductionOp::kSum));
  const std::vector<uint64_t> values = TestPatterns<uint64_t>(size, 1).front().second;
  EXPECT_EQ(Reduce(sum, values), std::accumulate(values.begin(), values.end(), uint64_t{0}));
  // A serial float sum would stop at 2^24.
  EXPECT_EQ(Reduce(float_sum, std::vector<float>(size, 1.0F)), static_cast<float>(size));
}

}  // namespace
}  // namespace palpate::gpu::reduction_test
