// Sweeps: products, samples and their stratification, seeds, and what is said of wrong ones.
#include "clients/job/sweep.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <string>

#include "clients/job/json_text.h"
#include "clients/job/low_discrepancy.h"
#include "tests/support/device_test.h"

namespace palpate::job::sweep_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kScene[] =
    R"("scene": {"bodies": [{"name": "box", "generator": {"slab": {}}, "material": {}}], "tools": [{"name": "probe"}]})";

v1::Job JobWith(const std::string& sweep) {
  v1::Job job;
  const absl::Status status = ParseJsonMessage(std::string("{") + kScene + ", \"seed\": 3, \"sweep\": " + sweep + "}", "job", &job);
  EXPECT_TRUE(status.ok()) << status;
  return job;
}

/// Each of `count` equal parts holds one.
void ExpectStratified(const std::vector<std::vector<double>>& points, size_t count, size_t dimension) {
  std::set<size_t> parts;
  for (size_t i = 0; i < count; ++i) {
    ASSERT_GE(points[i][dimension], 0);
    ASSERT_LT(points[i][dimension], 1);
    parts.insert(static_cast<size_t>(points[i][dimension] * static_cast<double>(count)));
  }
  EXPECT_EQ(parts.size(), count) << "dimension " << dimension;
}

TEST(LowDiscrepancyTest, LatinHypercubesHaveOneSampleInEachPart) {
  for (const size_t count : {1U, 2U, 7U, 100U, 1000U}) {
    const auto points = LatinHypercube(count, 5, 42);
    for (size_t d = 0; d < 5; ++d) ExpectStratified(points, count, d);
  }
  EXPECT_EQ(LatinHypercube(20, 3, 1), LatinHypercube(20, 3, 1));
  EXPECT_NE(LatinHypercube(20, 3, 1), LatinHypercube(20, 3, 2));
}

TEST(LowDiscrepancyTest, SobolPointsFillEachDimensionEvenly) {
  for (const uint64_t seed : {0U, 1U, 99U}) {
    const auto points = SobolPoints(1024, kMaxSobolDimensions, seed);
    for (size_t d = 0; d < kMaxSobolDimensions; ++d) {
      for (const size_t count : {1U, 2U, 4U, 64U, 1024U}) ExpectStratified(points, count, d);
    }
  }
}

/// In the first two dimensions every box of 2^-i by 2^-(k - i) holds one of 2^k points.
TEST(LowDiscrepancyTest, SobolPointsAreANetInTwoDimensions) {
  constexpr unsigned kLog = 8;
  const auto points = SobolPoints(1U << kLog, 2, 7);
  for (unsigned i = 0; i <= kLog; ++i) {
    std::set<std::pair<size_t, size_t>> boxes;
    for (const auto& point : points) {
      boxes.emplace(static_cast<size_t>(point[0] * (1U << i)), static_cast<size_t>(point[1] * (1U << (kLog - i))));
    }
    EXPECT_EQ(boxes.size(), points.size()) << i;
  }
}

/// Of a function that is a product of all coordinates the mean is known; a lattice of wrong direction numbers would miss it.
TEST(LowDiscrepancyTest, SobolPointsIntegrateBetterThanChance) {
  constexpr size_t kDimensions = 8, kCount = 4096;
  const auto error_of = [](const std::vector<std::vector<double>>& points) {
    double sum = 0;
    for (const auto& point : points) {
      double product = 1;
      for (const double u : point) product *= 1 + (u - 0.5);
      sum += product;
    }
    return std::abs(sum / static_cast<double>(points.size()) - 1);
  };
  double sobol = 0, uniform = 0;
  for (uint64_t seed = 0; seed < 8; ++seed) {
    sobol += error_of(SobolPoints(kCount, kDimensions, seed));
    uniform += error_of(UniformPoints(kCount, kDimensions, seed));
  }
  EXPECT_LT(10 * sobol, uniform);
}

TEST(SweepTest, TasksAreTheProductOfAllParts) {
  const v1::Job job = JobWith(R"({
    "seed": 5, "repeats": 2,
    "grid": [{"field": "bodies[box].material.young_modulus_pa", "values": [1000, 2000]},
             {"field": "solver.iterations", "range": {"low": 10, "high": 30, "count": 3}}],
    "lists": [{"fields": ["tools[probe].radius_m", "dt_s"], "rows": [[0.001, 0.01], [0.002, 0.005]]}]})");
  PALPATE_TEST_ASSIGN(const SweepPlan plan, PlanSweep(job, "here/job.json"));
  EXPECT_THAT(plan.fields, ElementsAre("bodies[box].material.young_modulus_pa", "solver.iterations", "tools[probe].radius_m", "dt_s"));
  ASSERT_EQ(plan.tasks.size(), 24U);
  const auto numbers = [&plan](size_t t) {
    std::vector<double> values;
    for (const auto& value : plan.tasks[t].values) values.push_back(value.number_value());
    return values;
  };
  EXPECT_THAT(numbers(0), ElementsAre(1000, 10, 0.001, 0.01));
  EXPECT_THAT(numbers(1), ElementsAre(1000, 10, 0.001, 0.01));
  EXPECT_THAT(numbers(2), ElementsAre(1000, 10, 0.002, 0.005));
  EXPECT_THAT(numbers(4), ElementsAre(1000, 20, 0.001, 0.01));
  EXPECT_THAT(numbers(23), ElementsAre(2000, 30, 0.002, 0.005));
  std::set<uint64_t> seeds;
  for (const auto& task : plan.tasks) seeds.insert(task.seed);
  EXPECT_EQ(seeds.size(), plan.tasks.size());
  const v1::Job own = JobOfTask(job, plan, 23);
  EXPECT_FALSE(own.has_sweep());
  EXPECT_EQ(own.overrides().at("solver.iterations").number_value(), 30);
  EXPECT_EQ(own.seed(), plan.tasks[23].seed);
}

TEST(SweepTest, SamplesAreInTheirRanges) {
  for (const char* method : {"SWEEP_METHOD_LATIN_HYPERCUBE", "SWEEP_METHOD_SOBOL", "SWEEP_METHOD_UNIFORM"}) {
    const v1::Job job = JobWith(std::string(R"({"samples": {"method": ")") + method + R"(", "count": 64, "dimensions": [
      {"field": "bodies[box].material.young_modulus_pa", "low": 100, "high": 1e6, "scale": "SWEEP_SCALE_LOGARITHMIC"},
      {"field": "bodies[box].material.poisson_ratio", "low": 0.1, "high": 0.4},
      {"field": "solver.iterations", "low": 1, "high": 4, "whole": true}]}})");
    PALPATE_TEST_ASSIGN(const SweepPlan plan, PlanSweep(job, "job.json"));
    ASSERT_EQ(plan.tasks.size(), 64U);
    int below = 0;
    std::map<double, int> counts;
    for (const auto& task : plan.tasks) {
      EXPECT_GE(task.values[0].number_value(), 100);
      EXPECT_LE(task.values[0].number_value(), 1e6);
      below += task.values[0].number_value() < 1e4 ? 1 : 0;
      EXPECT_GE(task.values[1].number_value(), 0.1);
      EXPECT_LE(task.values[1].number_value(), 0.4);
      ++counts[task.values[2].number_value()];
    }
    if (std::string(method) == "SWEEP_METHOD_UNIFORM") continue;
    EXPECT_EQ(below, 32) << "half of a logarithmic range";
    ASSERT_EQ(counts.size(), 4U);
    for (const auto& [number, count] : counts) EXPECT_EQ(count, 16) << number;
  }
}

TEST(SweepTest, SaysWhatIsWrong) {
  const auto complaint = [](const std::string& sweep) { return std::string(PlanSweep(JobWith(sweep), "job.json").status().message()); };
  EXPECT_THAT(complaint(R"({"grid": [{"field": "bodies[bix].scale", "values": [1]}]})"),
              HasSubstr("job.json: sweep.grid[0].field: \"bodies[bix].scale\""));
  EXPECT_THAT(complaint(R"({"grid": [{"field": "dt_s", "values": [0.01, "x"]}]})"), HasSubstr("sweep.grid[0].values[1]"));
  EXPECT_THAT(complaint(R"({"grid": [{"field": "dt_s"}]})"), HasSubstr("exactly one of values, range is needed"));
  EXPECT_THAT(complaint(R"({"grid": [{"field": "dt_s", "values": [1]}, {"field": "dt_s", "values": [1]}]})"), HasSubstr("is set twice"));
  EXPECT_THAT(complaint(R"({"grid": [{"field": "job.sweep.seed", "values": [1]}]})"), HasSubstr("cannot be set by a sweep"));
  EXPECT_THAT(complaint(R"({"grid": [{"field": "dt_s", "range": {"low": 1, "high": 1, "count": 3}}]})"), HasSubstr("is not above low"));
  EXPECT_THAT(complaint(R"({"grid": [{"field": "dt_s", "range": {"low": 1, "high": 2, "count": 1}}]})"), HasSubstr("count: 1 is outside"));
  EXPECT_THAT(complaint(R"({"lists": [{"fields": ["dt_s"], "rows": [[1, 2]]}]})"), HasSubstr("sweep.lists[0].rows[0]: 2 values"));
  EXPECT_THAT(
      complaint(R"({"samples": {"count": 4, "dimensions": [{"field": "dt_s", "low": 0, "high": 1, "scale": "SWEEP_SCALE_LOGARITHMIC"}]}})"),
      HasSubstr("is not above 0"));
  EXPECT_THAT(complaint(R"({"samples": {"count": 4}})"), HasSubstr("sweep.samples.dimensions: 0 entries"));
  EXPECT_THAT(
      complaint(R"({"samples": {"count": 4, "dimensions": [{"field": "solver.iterations", "low": 1.5, "high": 3, "whole": true}]}})"),
      HasSubstr("whole numbers"));
  EXPECT_TRUE(absl::IsResourceExhausted(
      PlanSweep(JobWith(R"({"repeats": 2, "grid": [{"field": "dt_s", "range": {"low": 0.1, "high": 1, "count": 1000000}}]})"), "job.json")
          .status()));
}

TEST(SweepTest, ListsOfTasksAreReadAndBadOnesRefused) {
  EXPECT_THAT(*ParseTaskList("3", 4), ElementsAre(3));
  EXPECT_THAT(*ParseTaskList("7,0-2,1", 8), ElementsAre(0, 1, 2, 7));
  EXPECT_THAT(*ParseTaskList("all", 3), ElementsAre(0, 1, 2));
  for (const char* bad : {"", "x", "1-", "-1", "2-1", "1-2-3", "4", "0-4", "1,,2"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(ParseTaskList(bad, 4).status())) << bad;
  }
}

}  // namespace
}  // namespace palpate::job::sweep_test
