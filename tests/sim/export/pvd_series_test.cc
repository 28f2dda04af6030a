#include "sim/export/pvd_series.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "tests/sim/export/samples.h"

namespace palpate::sim::pvd_series_test {
namespace {

using ::testing::HasSubstr;

std::string TextOf(const std::filesystem::path& path) {
  std::ostringstream out;
  out << std::ifstream(path).rdbuf();
  return out.str();
}

TEST(PvdSeries, IsCompleteAfterEachMoment) {
  const std::filesystem::path path = FreshFolder("pvd") / "series.pvd";
  absl::StatusOr<PvdSeries> series = PvdSeries::Create(path);
  ASSERT_TRUE(series.ok());
  EXPECT_TRUE(PvdSeries::Parse(TextOf(path), "empty")->empty());
  const std::vector<PvdPart> parts = {{"liver & \"co\" <1>", "frames/liver.vtp"}, {"gall", "frames/gall.vtp"}};
  for (int k = 0; k < 5; ++k) {
    ASSERT_TRUE(series->Add(0.1 * k, parts).ok());
    const auto entries = PvdSeries::Parse(TextOf(path), "series");
    ASSERT_TRUE(entries.ok()) << entries.status();
    ASSERT_EQ(entries->size(), 2U * (k + 1));
    EXPECT_EQ((*entries)[2 * k], (PvdSeries::Entry{0.1 * k, 0, parts[0].name, "frames/liver.vtp"}));
    EXPECT_EQ((*entries)[2 * k + 1], (PvdSeries::Entry{0.1 * k, 1, "gall", "frames/gall.vtp"}));
  }
  EXPECT_EQ(series->moment_count(), 5U);
  EXPECT_THAT(std::string(series->Add(0.4, parts).message()), HasSubstr("not above the last one"));
  EXPECT_FALSE(series->Add(NAN, parts).ok());
}

TEST(PvdSeries, GoesOnBeforeATime) {
  const std::filesystem::path path = FreshFolder("pvd") / "series.pvd";
  {
    absl::StatusOr<PvdSeries> series = PvdSeries::Create(path);
    const std::vector<PvdPart> parts = {{"a", "a.vtp"}};
    for (int k = 0; k < 10; ++k) ASSERT_TRUE(series->Add(k, parts).ok());
  }
  absl::StatusOr<PvdSeries> series = PvdSeries::Resume(path, 6);
  ASSERT_TRUE(series.ok()) << series.status();
  EXPECT_EQ(series->moment_count(), 6U);
  const std::vector<PvdPart> parts = {{"b", "b.vtp"}};
  ASSERT_TRUE(series->Add(6, parts).ok());
  const auto entries = PvdSeries::Parse(TextOf(path), "series");
  ASSERT_EQ(entries->size(), 7U);
  EXPECT_EQ(entries->back().file, "b.vtp");
  EXPECT_TRUE(absl::IsNotFound(PvdSeries::Resume(path.parent_path() / "none.pvd").status()));
}

TEST(PvdSeries, OtherFilesAreRefusedWithTheLine) {
  const std::filesystem::path path = FreshFolder("pvd") / "series.pvd";
  absl::StatusOr<PvdSeries> series = PvdSeries::Create(path);
  const std::vector<PvdPart> parts = {{"a", "a.vtp"}};
  for (int k = 0; k < 3; ++k) ASSERT_TRUE(series->Add(k, parts).ok());
  const std::string text = TextOf(path);
  const auto refusal = [&](std::string_view what, std::string_view by) {
    std::string changed = text;
    changed.replace(changed.find(what), what.size(), by);
    return std::string(PvdSeries::Parse(changed, "x.pvd").status().message());
  };
  EXPECT_THAT(refusal("timestep=\"1\"", "timestep=\"one\""), HasSubstr("x.pvd:5: timestep is not a finite number"));
  EXPECT_THAT(refusal("timestep=\"2\"", "timestep=\"-2\""), HasSubstr("x.pvd:6: timestep -2 is below"));
  EXPECT_THAT(refusal("name=\"a\"", "name=\"&x;\""), HasSubstr("x.pvd:4: an unknown escape"));
  EXPECT_THAT(refusal("Collection\"", "PolyData\""), HasSubstr("x.pvd:1: not a collection"));
  for (size_t size = 0; size < text.size(); ++size)
    EXPECT_FALSE(PvdSeries::Parse(std::string_view(text).substr(0, size), "cut").ok()) << size;
}

}  // namespace
}  // namespace palpate::sim::pvd_series_test
