#include "sim/nurbs/nurbs_curve.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tests/sim/nurbs/nurbs_test_objects.h"

namespace palpate::sim::nurbs_curve_test {
namespace {

using Eigen::Vector3d;
using std::numbers::pi;
using ::testing::HasSubstr;

NurbsCurve<3> RandomCurve(std::mt19937& random, int degree, size_t count, bool is_rational) {
  std::uniform_real_distribution<double> in(0.1, 1);
  NurbsCurveDescription<3> d;
  d.degree = degree;
  d.knots.assign(static_cast<size_t>(degree) + 1, 0.0);
  for (size_t i = 0; i + static_cast<size_t>(degree) + 1 < count; ++i) {
    d.knots.push_back(i % 3 == 1 && degree > 1 ? d.knots.back() : d.knots.back() + in(random));
  }
  const double last = d.knots.back() + 1;
  d.knots.insert(d.knots.end(), static_cast<size_t>(degree) + 1, last);
  if (d.knots[static_cast<size_t>(degree) + 1] == 0) d.knots[static_cast<size_t>(degree) + 1] = 1e-3;
  for (size_t i = 0; i < count; ++i) {
    d.control.emplace_back(in(random), in(random), in(random));
    if (is_rational) d.weights.push_back(in(random));
  }
  auto curve = NurbsCurve<3>::Create(d);
  EXPECT_TRUE(curve.ok()) << curve.status();
  return *curve;
}

TEST(NurbsCurveTest, ACircleIsRoundAndHasItsLength) {
  const auto circle = NurbsCurve<2>::Create(CircleTrim({3, -1}, 2).curve);
  ASSERT_TRUE(circle.ok());
  for (int i = 0; i <= 100; ++i) {
    const auto at = circle->AtWithDerivatives(0.04 * i);
    const Eigen::Vector2d out = at.point - Eigen::Vector2d(3, -1);
    EXPECT_NEAR(out.norm(), 2, 1e-14);
    EXPECT_NEAR(out.dot(at.dt), 0, 1e-13);
    // A circle's normal acceleration is that of its speed.
    EXPECT_NEAR(out.dot(at.dtt), -at.dt.squaredNorm(), 1e-12);
  }
  EXPECT_NEAR(circle->Length(1e-12), 4 * pi, 1e-12);
}

TEST(NurbsCurveTest, DerivativesAreThoseOfDifferences) {
  std::mt19937 random(5);
  for (int degree = 1; degree <= 6; ++degree) {
    const NurbsCurve<3> curve = RandomCurve(random, degree, 12, degree % 2 == 0);
    const auto [first, last] = curve.domain();
    for (double s = 0.0123; s < 1; s += 0.1) {
      const double t = first + s * (last - first);
      const double h = 1e-5;
      const auto at = curve.AtWithDerivatives(t);
      EXPECT_LT((at.point - curve.At(t)).norm(), 1e-14);
      EXPECT_LT((at.dt - (curve.At(t + h) - curve.At(t - h)) / (2 * h)).norm(), 1e-5 * (1 + at.dt.norm()));
      EXPECT_LT((at.dtt - (curve.AtWithDerivatives(t + h).dt - curve.AtWithDerivatives(t - h).dt) / (2 * h)).norm(),
                1e-3 * (1 + at.dtt.norm()));
    }
  }
}

TEST(NurbsCurveTest, KnotsAndPartsLeaveTheCurveAsItIs) {
  std::mt19937 random(6);
  for (int degree = 1; degree <= 6; ++degree) {
    const NurbsCurve<3> curve = RandomCurve(random, degree, 12, true);
    const auto [first, last] = curve.domain();
    const double t = first + 0.37 * (last - first);
    const auto finer = curve.WithKnot(t, degree);
    ASSERT_TRUE(finer.ok()) << finer.status();
    EXPECT_EQ(finer->count(), curve.count() + static_cast<size_t>(degree));
    const auto halves = curve.Split(t);
    ASSERT_TRUE(halves.ok());
    const NurbsCurve<3> part = curve.Part(t, first + 0.81 * (last - first));
    double lengths = 0;
    for (const NurbsCurve<3>& piece : curve.BezierPieces()) {
      EXPECT_EQ(piece.count(), static_cast<size_t>(degree) + 1);
      lengths += piece.Length(1e-10);
    }
    EXPECT_NEAR(lengths, curve.Length(1e-10), 1e-9);
    for (double s = 0; s <= 1; s += 0.05) {
      const double at = first + s * (last - first);
      EXPECT_LT((finer->At(at) - curve.At(at)).norm(), 1e-13);
      EXPECT_LT(((*halves)[at < t ? 0 : 1].At(at) - curve.At(at)).norm(), 1e-13);
      if (at > t && s < 0.81) {
        EXPECT_LT((part.At(at) - curve.At(at)).norm(), 1e-13);
      }
    }
  }
}

// Many spans: cutting piece after piece off the rest would copy the square of them, minutes of it.
TEST(NurbsCurveTest, ManySpansAreCutIntoTheirPieces) {
  std::mt19937 random(9);
  std::uniform_real_distribution<double> in(-1, 1);
  constexpr int kSpans = 60000;
  NurbsCurveDescription<2> d{.degree = 2, .knots = {0, 0, 0}, .control = {}, .weights = {}};
  for (int i = 1; i < kSpans; ++i) d.knots.push_back(i);
  d.knots.insert(d.knots.end(), 3, kSpans);
  for (int i = 0; i < kSpans + 2; ++i) d.control.emplace_back(in(random), in(random));
  const auto curve = NurbsCurve<2>::Create(d);
  ASSERT_TRUE(curve.ok()) << curve.status();
  const std::vector<NurbsCurve<2>> pieces = curve->BezierPieces();
  ASSERT_EQ(pieces.size(), static_cast<size_t>(kSpans));
  for (size_t i = 0; i < pieces.size(); i += 97) {
    EXPECT_EQ(pieces[i].domain(), std::pair(static_cast<double>(i), static_cast<double>(i + 1)));
    const double t = static_cast<double>(i) + 0.3;
    EXPECT_LT((pieces[i].At(t) - curve->At(t)).norm(), 1e-13);
  }
}

TEST(NurbsCurveTest, ErrorsNameTheField) {
  const NurbsCurveDescription<2> good = CircleTrim({0, 0}, 1).curve;
  const auto error = [&](const auto& change) {
    NurbsCurveDescription<2> bad = good;
    change(bad);
    const auto curve = NurbsCurve<2>::Create(bad);
    return curve.ok() ? "none" : std::string(curve.status().message());
  };
  EXPECT_EQ(error([](auto&) {}), "none");
  EXPECT_THAT(error([](auto& d) { d.degree = 0; }), HasSubstr("degree of knots: 0"));
  EXPECT_THAT(error([](auto& d) { d.knots[4] = NAN; }), HasSubstr("knots[4]: is not finite"));
  EXPECT_THAT(error([](auto& d) { d.knots[0] = -1; }), HasSubstr("knots: not clamped"));
  EXPECT_THAT(error([](auto& d) { d.control.pop_back(); }), HasSubstr("points: 8 control points, knots and degree are for 9"));
  EXPECT_THAT(error([](auto& d) { d.weights.pop_back(); }), HasSubstr("weights: 8 of 9"));
  const auto circle = NurbsCurve<2>::Create(good);
  EXPECT_THAT(std::string(circle->WithKnot(0).status().message()), HasSubstr("knot 0 is not inside (0, 4)"));
  EXPECT_THAT(std::string(circle->WithKnot(1).status().message()), HasSubstr("knot 1: 1 more to 2, degree 2 allows"));
  EXPECT_THAT(std::string(circle->Split(4).status().message()), HasSubstr("parameter 4 to split at"));
}

}  // namespace
}  // namespace palpate::sim::nurbs_curve_test
