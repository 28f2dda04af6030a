#include "sim/mesh/exact_predicates.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <random>

#include <gtest/gtest.h>
#include <Eigen/Geometry>

namespace palpate::sim::exact_predicates_test {
namespace {

__extension__ using Wide = __int128;
using Eigen::Vector2d;
using Eigen::Vector3d;

int SignOf(Wide value) { return (value > 0) - (value < 0); }

// Exact for integer coordinates below 2^40.
int IntegerOrient3d(const Vector3d& a, const Vector3d& b, const Vector3d& c, const Vector3d& d) {
  Wide m[3][3];
  for (int k = 0; k < 3; ++k) {
    m[0][k] = static_cast<int64_t>(b[k]) - static_cast<int64_t>(a[k]);
    m[1][k] = static_cast<int64_t>(c[k]) - static_cast<int64_t>(a[k]);
    m[2][k] = static_cast<int64_t>(d[k]) - static_cast<int64_t>(a[k]);
  }
  return SignOf((m[0][1] * m[1][2] - m[0][2] * m[1][1]) * m[2][0] + (m[0][2] * m[1][0] - m[0][0] * m[1][2]) * m[2][1] +
                (m[0][0] * m[1][1] - m[0][1] * m[1][0]) * m[2][2]);
}

TEST(ExactPredicatesTest, SignsFollowTheOrientation) {
  const Vector3d o(0, 0, 0);
  const Vector3d x(1, 0, 0);
  const Vector3d y(0, 1, 0);
  const Vector3d z(0, 0, 1);
  EXPECT_EQ(Orient3d(o, x, y, z), 1);
  EXPECT_EQ(Orient3d(o, y, x, z), -1);
  EXPECT_EQ(Orient3d(o, x, y, {0.25, 0.5, 0}), 0);
  EXPECT_EQ(Orient2d({0, 0}, {1, 0}, {0, 1}), 1);
  EXPECT_EQ(Orient2d({0, 0}, {0, 1}, {1, 0}), -1);
  EXPECT_EQ(Orient2d({0, 0}, {1, 1}, {3, 3}), 0);
}

// Points of a plane of large integers, moved by one unit or not at all: rounding alone would often give the wrong sign.
TEST(ExactPredicatesTest, AgreesWithIntegersOnNearlyCoplanarPoints) {
  std::mt19937_64 random(7);
  std::uniform_int_distribution<int64_t> coordinate(-(int64_t{1} << 36), int64_t{1} << 36);
  std::uniform_int_distribution<int> small(-3, 3);
  int zeros = 0;
  int disagreements_of_rounding = 0;
  for (int i = 0; i < 20000; ++i) {
    const auto point = [&] {
      return Vector3d(static_cast<double>(coordinate(random)), static_cast<double>(coordinate(random)),
                      static_cast<double>(coordinate(random)));
    };
    const Vector3d a = point();
    const Vector3d u = (point() / 16.0).array().round();
    const Vector3d v = (point() / 16.0).array().round();
    Vector3d d = a + small(random) * u + small(random) * v;
    if (i % 2 == 0) d += Vector3d(small(random), small(random), small(random));
    const int expected = IntegerOrient3d(a, a + u, a + v, d);
    EXPECT_EQ(Orient3d(a, a + u, a + v, d), expected);
    EXPECT_EQ(Orient3d(d, a, a + u, a + v), -expected);
    zeros += expected == 0;
    const double rounded = u.cross(v).dot(d - a);
    disagreements_of_rounding += ((rounded > 0) - (rounded < 0)) != expected;
  }
  EXPECT_GT(zeros, 1000);
  EXPECT_GT(disagreements_of_rounding, 10) << "the inputs are too easy to test anything";
}

TEST(ExactPredicatesTest, SwappingPointsSwapsTheSign) {
  std::mt19937_64 random(8);
  std::uniform_real_distribution<double> coordinate(0.1, 0.2);
  for (int i = 0; i < 20000; ++i) {
    const auto point = [&] { return Vector3d(coordinate(random), coordinate(random), coordinate(random)); };
    const Vector3d a = point();
    const Vector3d b = point();
    const Vector3d c = point();
    const Vector3d d = (a + b + c) / 3.0;  // in the plane up to rounding
    const int sign = Orient3d(a, b, c, d);
    EXPECT_EQ(Orient3d(b, c, a, d), sign);
    EXPECT_EQ(Orient3d(b, a, c, d), -sign);
    EXPECT_EQ(Orient3d(d, c, b, a), sign);
    EXPECT_EQ(Orient3d(c, d, a, b), sign);
  }
}

TEST(ExactPredicatesTest, PlaneTestSeesTheLastBit) {
  const double above = std::nextafter(0.5, 1.0);
  EXPECT_EQ(Orient2d({0.5, 0.5}, {12, 12}, {24, 24}), 0);
  EXPECT_EQ(Orient2d({0.5, above}, {12, 12}, {24, 24}), 1);
  EXPECT_EQ(Orient2d({above, 0.5}, {12, 12}, {24, 24}), -1);
}

TEST(ExactPredicatesTest, HoldsFarFromOne) {
  for (const double scale : {1e-80, 1e-30, 1e30, 1e80}) {
    EXPECT_EQ(Orient3d(Vector3d(0, 0, 0), Vector3d(1, 0, 1) * scale, Vector3d(0, 1, 1) * scale, Vector3d(1, 1, 2) * scale), 0) << scale;
    EXPECT_EQ(Orient3d(Vector3d(0, 0, 0), Vector3d(1, 0, 1) * scale, Vector3d(0, 1, 1) * scale, Vector3d(1, 1, 2 + 1e-15) * scale), 1)
        << scale;
  }
}

}  // namespace
}  // namespace palpate::sim::exact_predicates_test
