#include "sim/scene/nurbs_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "sim/nurbs/nurbs_shapes.h"
#include "tests/sim/nurbs/nurbs_test_objects.h"

namespace palpate::scene::nurbs_file_test {
namespace {

using ::testing::HasSubstr;

std::string ErrorOf(const std::string& text) {
  const auto object = ReadNurbs(text, "part.nurbs.json");
  return object.ok() ? "none" : std::string(object.status().message());
}

void ExpectSameBits(const std::vector<double>& a, const std::vector<double>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) EXPECT_EQ(std::memcmp(&a[i], &b[i], sizeof(double)), 0) << a[i] << " " << b[i];
}

std::vector<double> Flat(const auto& points) {
  std::vector<double> out;
  for (const auto& p : points) out.insert(out.end(), p.data(), p.data() + p.size());
  return out;
}

void ExpectSame(const sim::NurbsObjectDescription& a, const sim::NurbsObjectDescription& b) {
  EXPECT_EQ(a.name, b.name);
  ASSERT_EQ(a.patches.size(), b.patches.size());
  for (size_t i = 0; i < a.patches.size(); ++i) {
    const auto& [name, surface, loops] = a.patches[i];
    const sim::NurbsPatchDescription& other = b.patches[i];
    EXPECT_EQ(name, other.name);
    EXPECT_EQ(surface.degree_u, other.surface.degree_u);
    EXPECT_EQ(surface.degree_v, other.surface.degree_v);
    ExpectSameBits(surface.knots_u, other.surface.knots_u);
    ExpectSameBits(surface.knots_v, other.surface.knots_v);
    ExpectSameBits(surface.weights, other.surface.weights);
    ExpectSameBits(Flat(surface.control_m), Flat(other.surface.control_m));
    ASSERT_EQ(loops.size(), other.loops.size());
    for (size_t l = 0; l < loops.size(); ++l) {
      ASSERT_EQ(loops[l].size(), other.loops[l].size());
      for (size_t c = 0; c < loops[l].size(); ++c) {
        const sim::NurbsTrimDescription& trim = loops[l][c];
        const sim::NurbsTrimDescription& other_trim = other.loops[l][c];
        EXPECT_EQ(trim.is_reversed, other_trim.is_reversed);
        EXPECT_EQ(trim.edge, other_trim.edge);
        EXPECT_EQ(trim.curve.degree, other_trim.curve.degree);
        ExpectSameBits(trim.curve.knots, other_trim.curve.knots);
        ExpectSameBits(trim.curve.weights, other_trim.curve.weights);
        ExpectSameBits(Flat(trim.curve.control), Flat(other_trim.curve.control));
      }
    }
  }
}

TEST(NurbsFileTest, ObjectsComeBackToTheBit) {
  sim::NurbsObjectDescription plate = sim::DrilledPlate(0.2, 0.1);
  plate.name = "a \"plate\"\n";
  plate.patches[5].loops[1][0].edge = 4294967295U;
  // All kinds of numbers.
  std::mt19937_64 random(3);
  for (size_t i = 0; i < 4; ++i) {
    for (Eigen::Vector3d& p : plate.patches[i].surface.control_m) {
      for (double& x : p) {
        do {
          const uint64_t bits = random();
          std::memcpy(&x, &bits, sizeof(x));
        } while (!std::isfinite(x));
      }
    }
  }
  plate.patches[0].surface.control_m[0] = {-0.0, std::numeric_limits<double>::denorm_min(), std::numeric_limits<double>::max()};
  const std::string text = FormatNurbsJson(plate);
  const auto back = ParseNurbsJson(text, "part.nurbs.json");
  ASSERT_TRUE(back.ok()) << back.status();
  ExpectSame(*back, plate);
  EXPECT_EQ(FormatNurbsJson(*back), text);
}

TEST(NurbsFileTest, ShapesAreReadAsTheyAre) {
  const auto sphere = sim::NurbsObject::FromSurfaces("ball", sim::NurbsSphere(0.05));
  const auto read = ReadNurbs(FormatNurbsJson(sphere->Describe()), "ball.nurbs.json");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->name(), "ball");
  EXPECT_EQ(read->patches().size(), 8U);
  EXPECT_TRUE(read->CheckClosed().ok());
}

TEST(NurbsFileTest, ErrorsNameFilePatchAndField) {
  const std::string good = FormatNurbsJson(sim::DrilledPlate(0.2, 0.1));
  ASSERT_EQ(ErrorOf(good), "none");
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string bad = good;
    const size_t at = bad.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return ErrorOf(bad.replace(at, from.size(), to));
  };
  EXPECT_THAT(with("\"version\":1", "\"version\":2"), HasSubstr("part.nurbs.json: version: 2, this program reads 1"));
  EXPECT_THAT(with("\"version\":1,", ""), HasSubstr("version: 0"));
  EXPECT_THAT(with("\"degree_u\":1", "\"degree\":1"), HasSubstr("degree"));
  EXPECT_THAT(with("\"degree_u\":1", "\"degree_u\":\"x\""), HasSubstr("degree_u"));
  EXPECT_THAT(with("\"degree_u\":1", "\"degree_u\":4294967295"), HasSubstr("part.nurbs.json: patches[0] \"front\": degree of knots_u"));
  EXPECT_THAT(with("\"control_m\":[", "\"control_m\":[7,"), HasSubstr("patches[0].control_m: 13 numbers, 3 for each point"));
  EXPECT_THAT(with("\"points\":[", "\"points\":[7,"), HasSubstr("patches[5].loops[0].curves[0].points: 5 numbers, 2 for each"));
  EXPECT_THAT(with("\"knots_u\":[0,", "\"knots_u\":[\"NaN\","), HasSubstr("patches[0] \"front\": knots_u[0]: is not finite"));
  EXPECT_THAT(with("\"name\":\"lid\"", "\"name\":\"" + std::string(129, 'x') + "\""), HasSubstr("patches[5].name: 129 bytes"));
  EXPECT_THAT(ErrorOf("{\"version\":1}"), HasSubstr("part.nurbs.json: patches: none"));
  EXPECT_THAT(ErrorOf(""), HasSubstr("part.nurbs.json: "));
}

// Bytes changed or cut off: an error with the file's name, or an object that passes every check.
TEST(NurbsFileTest, DamagedFilesAreRefusedOrWhole) {
  const std::string good = FormatNurbsJson(sim::DrilledPlate(0.2, 0.1));
  std::mt19937 random(5);
  int refused = 0;
  for (int round = 0; round < 400; ++round) {
    std::string bad = good;
    if (round % 4 == 0) {
      bad.resize(random() % bad.size());
    } else {
      for (int i = 0; i <= round % 5; ++i) bad[random() % bad.size()] = "0123456789-.eE,[]{}\":"[random() % 21];
    }
    const auto object = ReadNurbs(bad, "part.nurbs.json");
    if (object.ok()) {
      (void)object->CheckClosed();
      continue;
    }
    ++refused;
    EXPECT_EQ(std::string(object.status().message()).rfind("part.nurbs.json: ", 0), 0U) << object.status();
  }
  EXPECT_GT(refused, 200);
}

}  // namespace
}  // namespace palpate::scene::nurbs_file_test
