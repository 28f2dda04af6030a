#include "clients/cli/frame_statistics.h"

#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace palpate::cli::frame_statistics_test {
namespace {

using Clock = FrameStatistics::Clock;

v1::Frame MakeFrame(uint64_t step, double step_ms) {
  v1::Frame frame;
  frame.set_step(step);
  frame.mutable_stats()->set_step_ms(step_ms);
  for (const char* name : {"solve", "detect"}) {
    auto* stage = frame.mutable_stats()->add_stages();
    stage->set_stage(name);
    stage->set_ms(step_ms / 2);
  }
  frame.add_bodies()->set_positions("abc");
  return frame;
}

TEST(Quantile, IsTheNearestRank) {
  std::vector<double> samples(100);
  std::iota(samples.rbegin(), samples.rend(), 1);
  EXPECT_EQ(Quantile(samples, 0.0), 1);
  EXPECT_EQ(Quantile(samples, 0.5), 50);
  EXPECT_EQ(Quantile(samples, 0.99), 99);
  EXPECT_EQ(Quantile(samples, 1.0), 100);
  std::vector<double> one = {7};
  EXPECT_EQ(Quantile(one, 0.5), 7);
  std::vector<double> none;
  EXPECT_EQ(Quantile(none, 0.5), 0);
}

TEST(FrameStatistics, CountsEachStepOnceAndEachFrame) {
  FrameStatistics statistics;
  const Clock::time_point begin = Clock::now();
  statistics.Add(MakeFrame(10, 4), 100, begin);
  statistics.Add(MakeFrame(10, 4), 100, begin + std::chrono::milliseconds(500));
  v1::Frame last = MakeFrame(30, 8);
  last.set_dropped(18);
  statistics.Add(last, 50, begin + std::chrono::seconds(2));
  const auto seen = statistics.snapshot();
  EXPECT_EQ(seen.frames, 3U);
  EXPECT_EQ(seen.bytes, 250U);
  EXPECT_EQ(seen.dropped, 18U);
  EXPECT_DOUBLE_EQ(seen.span_s, 2);
  EXPECT_TRUE(seen.last.bodies(0).positions().empty());
  EXPECT_DOUBLE_EQ(statistics.StepsPerSecond(), 10);
  const auto times = statistics.StepTimes();
  EXPECT_EQ(times["samples"], 2);
  EXPECT_EQ(times["p50"], 4);
  EXPECT_EQ(times["max"], 8);
  EXPECT_EQ(times["stages"]["detect"]["max"], 4);
  std::vector<std::string> order;
  for (const auto& [name, unused] : times["stages"].items()) order.push_back(name);
  EXPECT_THAT(order, testing::ElementsAre("solve", "detect"));
}

TEST(FrameStatistics, TheRestStateIsNoStep) {
  FrameStatistics statistics;
  statistics.Add(MakeFrame(0, 0), 1, Clock::now());
  EXPECT_EQ(statistics.StepTimes()["samples"], 0);
  EXPECT_EQ(statistics.StepsPerSecond(), 0);
}

TEST(FrameStatistics, ARateIsNeverNegativeAfterAReset) {
  FrameStatistics statistics;
  const Clock::time_point begin = Clock::now();
  statistics.Add(MakeFrame(100, 1), 1, begin);
  statistics.Add(MakeFrame(3, 1), 1, begin + std::chrono::seconds(1));
  EXPECT_EQ(statistics.StepsPerSecond(), 0);
}

}  // namespace
}  // namespace palpate::cli::frame_statistics_test
