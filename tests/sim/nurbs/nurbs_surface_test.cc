#include "sim/nurbs/nurbs_surface.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "sim/nurbs/nurbs_shapes.h"

namespace palpate::sim::nurbs_surface_test {
namespace {

using Eigen::Vector3d;
using ::testing::HasSubstr;

constexpr NurbsDirection kBoth[] = {NurbsDirection::kU, NurbsDirection::kV};

class Random {
 public:
  explicit Random(unsigned seed) : engine_(seed) {}
  double operator()(double low, double high) { return std::uniform_real_distribution(low, high)(engine_); }
  int Whole(int low, int high) { return std::uniform_int_distribution(low, high)(engine_); }

  /// Clamped on [-0.5, 2], with some knots more than once.
  std::vector<double> Knots(int degree, int inside) {
    std::vector<double> knots;
    while (static_cast<int>(knots.size()) < inside) {
      const double t = (*this)(-0.4, 1.9);
      for (int k = Whole(1, degree); k > 0 && static_cast<int>(knots.size()) < inside; --k) knots.push_back(t);
    }
    std::sort(knots.begin(), knots.end());
    knots.insert(knots.begin(), static_cast<size_t>(degree) + 1, -0.5);
    knots.insert(knots.end(), static_cast<size_t>(degree) + 1, 2.0);
    return knots;
  }

  NurbsDescription Description(int degree_u, int degree_v, int inside_u, int inside_v) {
    NurbsDescription out{.degree_u = degree_u,
                         .degree_v = degree_v,
                         .knots_u = Knots(degree_u, inside_u),
                         .knots_v = Knots(degree_v, inside_v),
                         .control_m = {},
                         .weights = {}};
    for (int i = 0; i <= degree_u + inside_u; ++i) {
      for (int j = 0; j <= degree_v + inside_v; ++j) {
        out.control_m.emplace_back(i + (*this)(-0.3, 0.3), j + (*this)(-0.3, 0.3), (*this)(-1, 1));
        out.weights.push_back((*this)(0.2, 3));
      }
    }
    return out;
  }
  NurbsSurface Surface() { return *NurbsSurface::Create(Description(Whole(1, 5), Whole(1, 4), Whole(0, 6), Whole(0, 6))); }
  double Parameter(const NurbsSurface& surface, NurbsDirection direction) {
    const auto [first, last] = surface.domain(direction);
    // Also knots, and the ends.
    if (Whole(0, 9) == 0)
      return surface.knots(direction)[static_cast<size_t>(Whole(0, static_cast<int>(surface.knots(direction).size()) - 1))];
    return (*this)(first, last);
  }

 private:
  std::mt19937 engine_;
};

double Binomial(int n, int k) {
  double out = 1;
  for (int i = 1; i <= k; ++i) out = out * (n - k + i) / i;
  return out;
}

TEST(NurbsSurfaceTest, BezierIsTheSumOfBernsteinPolynomials) {
  Random random(1);
  for (int trial = 0; trial < 50; ++trial) {
    const int p = random.Whole(1, 6);
    const int q = random.Whole(1, 6);
    const NurbsDescription description = random.Description(p, q, 0, 0);
    const auto surface = NurbsSurface::Create(description);
    ASSERT_TRUE(surface.ok()) << surface.status();
    const double u = random(0, 1);
    const double v = random(0, 1);
    Vector3d sum = Vector3d::Zero();
    double weight = 0;
    for (int i = 0; i <= p; ++i) {
      for (int j = 0; j <= q; ++j) {
        const auto at = static_cast<size_t>(i * (q + 1) + j);
        const double b = description.weights[at] * Binomial(p, i) * std::pow(u, i) * std::pow(1 - u, p - i) * Binomial(q, j) *
                         std::pow(v, j) * std::pow(1 - v, q - j);
        sum += b * description.control_m[at];
        weight += b;
      }
    }
    EXPECT_LT((surface->Point(-0.5 + 2.5 * u, -0.5 + 2.5 * v) - sum / weight).norm(), 1e-13);
  }
}

TEST(NurbsSurfaceTest, ShapesLieOnTheirEquations) {
  Random random(2);
  const auto check = [&](const std::vector<NurbsSurface>& shape, const std::function<double(const Vector3d&)>& off,
                         const std::function<Vector3d(const Vector3d&)>& normal) {
    for (const NurbsSurface& patch : shape) {
      for (int i = 0; i < 200; ++i) {
        const double u = i < 4 ? i % 2 : random(0, 1);
        const double v = i < 4 ? i / 2 : random(0, 1);
        const Vector3d x = patch.Point(u, v);
        ASSERT_LT(std::abs(off(x)), 1e-14) << x.transpose();
        const auto n = patch.Normal(u, v);
        ASSERT_TRUE(n.has_value()) << u << " " << v;
        const Vector3d expected = normal(x);
        if (expected.norm() > 0.5) {
          ASSERT_LT((*n - expected).norm(), 1e-7) << x.transpose();
        }
      }
    }
  };
  const std::vector<NurbsSurface> sphere = NurbsSphere(1);
  ASSERT_EQ(sphere.size(), 8U);
  check(
      sphere, [](const Vector3d& x) { return x.norm() - 1; }, [](const Vector3d& x) { return x; });  // the poles too
  check(
      NurbsTorus(1, 0.3), [](const Vector3d& x) { return std::hypot(x.head<2>().norm() - 1, x.z()) - 0.3; },
      [](const Vector3d& x) {
        const Eigen::Vector2d away = x.head<2>().normalized() * (x.head<2>().norm() - 1);
        return Vector3d(Vector3d(away.x(), away.y(), x.z()) / 0.3);
      });
  const auto is_flat = [](double z, double at) { return std::abs(z - at) < 1e-15; };
  check(
      NurbsCylinder(1, 2), [&](const Vector3d& x) { return is_flat(x.z(), 0) || is_flat(x.z(), 2) ? 0.0 : x.head<2>().norm() - 1; },
      [&](const Vector3d& x) { return is_flat(x.z(), 0) || is_flat(x.z(), 2) ? Vector3d(0, 0, 0) : Vector3d(x.x(), x.y(), 0); });
  check(
      NurbsCone(1, 1), [&](const Vector3d& x) { return is_flat(x.z(), 0) ? 0.0 : x.head<2>().norm() + x.z() - 1; },
      [&](const Vector3d& x) {
        if (is_flat(x.z(), 0) || x.head<2>().norm() < 1e-12) return Vector3d(0, 0, 0);  // the tip has one normal for each patch parameter
        return Vector3d((Vector3d(x.x(), x.y(), 0).normalized() + Vector3d::UnitZ()).normalized());
      });
}

TEST(NurbsSurfaceTest, DerivativesAreThoseOfDifferences) {
  Random random(3);
  constexpr double kStep = 1e-5;
  for (int trial = 0; trial < 200; ++trial) {
    const NurbsSurface surface = random.Surface();
    // A little away from knots, across which they jump.
    double u = 0;
    double v = 0;
    const auto is_away = [&](NurbsDirection direction, double t) {
      for (const double knot : surface.knots(direction)) {
        if (std::abs(knot - t) < 1e-3) return false;
      }
      return true;
    };
    do u = random.Parameter(surface, NurbsDirection::kU);
    while (!is_away(NurbsDirection::kU, u));
    do v = random.Parameter(surface, NurbsDirection::kV);
    while (!is_away(NurbsDirection::kV, v));
    const NurbsPoint at = surface.PointWithDerivatives(u, v);
    EXPECT_LT((at.point_m - surface.Point(u, v)).norm(), 1e-14 * (1 + at.point_m.norm()));
    const NurbsPoint right = surface.PointWithDerivatives(u + kStep, v);
    const NurbsPoint left = surface.PointWithDerivatives(u - kStep, v);
    const NurbsPoint up = surface.PointWithDerivatives(u, v + kStep);
    const NurbsPoint down = surface.PointWithDerivatives(u, v - kStep);
    const double scale = 1e-5 * (1 + at.du.norm() + at.dv.norm() + at.duu.norm() + at.dvv.norm() + at.duv.norm()) * 10;
    EXPECT_LT((at.du - (right.point_m - left.point_m) / (2 * kStep)).norm(), scale);
    EXPECT_LT((at.dv - (up.point_m - down.point_m) / (2 * kStep)).norm(), scale);
    EXPECT_LT((at.duu - (right.du - left.du) / (2 * kStep)).norm(), 10 * scale);
    EXPECT_LT((at.dvv - (up.dv - down.dv) / (2 * kStep)).norm(), 10 * scale);
    EXPECT_LT((at.duv - (right.dv - left.dv) / (2 * kStep)).norm(), 10 * scale);
    EXPECT_LT((at.duv - (up.du - down.du) / (2 * kStep)).norm(), 10 * scale);
  }
}

TEST(NurbsSurfaceTest, AffineMapsOfControlPointsMapTheSurface) {
  Random random(4);
  for (int trial = 0; trial < 50; ++trial) {
    const NurbsSurface surface = random.Surface();
    Eigen::Affine3d map = Eigen::Affine3d::Identity();
    for (int i = 0; i < 3; ++i) {
      for (int j = 0; j < 3; ++j) map.linear()(i, j) = random(-2, 2);
      map.translation()[i] = random(-5, 5);
    }
    const double u = random.Parameter(surface, NurbsDirection::kU);
    const double v = random.Parameter(surface, NurbsDirection::kV);
    EXPECT_LT((surface.Transformed(map).Point(u, v) - map * surface.Point(u, v)).norm(), 1e-12);
    const auto [first, last] = surface.domain(NurbsDirection::kU);
    EXPECT_LT((surface.Reversed().Point(first + last - u, v) - surface.Point(u, v)).norm(), 1e-12);
  }
}

TEST(NurbsSurfaceTest, PointsLieInTheHullOfTheirControlPointsAlone) {
  Random random(5);
  for (int trial = 0; trial < 50; ++trial) {
    const NurbsDescription description = random.Description(random.Whole(1, 4), random.Whole(1, 4), 5, 4);
    const auto surface = NurbsSurface::Create(description);
    ASSERT_TRUE(surface.ok()) << surface.status();
    const size_t columns = surface->count(NurbsDirection::kV);
    for (int i = 0; i < 20; ++i) {
      const double u = random.Parameter(*surface, NurbsDirection::kU);
      const double v = random.Parameter(*surface, NurbsDirection::kV);
      const Vector3d x = surface->Point(u, v);
      const Vector3d direction = Vector3d(random(-1, 1), random(-1, 1), random(-1, 1)).normalized();
      double highest = -std::numeric_limits<double>::infinity();
      for (const Vector3d& p : description.control_m) highest = std::max(highest, direction.dot(p));
      EXPECT_LE(direction.dot(x), highest + 1e-14);
    }
    // One control point moves: nothing does outside [u_i, u_i+p+1) x [v_j, v_j+q+1).
    const auto moved = static_cast<size_t>(random.Whole(0, static_cast<int>(description.control_m.size()) - 1));
    NurbsDescription other = description;
    other.control_m[moved] += Vector3d(0, 0, 3);
    const auto changed = NurbsSurface::Create(other);
    ASSERT_TRUE(changed.ok());
    const auto begin_u = static_cast<std::ptrdiff_t>(moved / columns);
    const auto begin_v = static_cast<std::ptrdiff_t>(moved % columns);
    for (int i = 0; i < 200; ++i) {
      const double u = random(-0.5, 2);
      const double v = random(-0.5, 2);
      const bool is_inside = u > description.knots_u[static_cast<size_t>(begin_u)] &&
                             u < description.knots_u[static_cast<size_t>(begin_u + description.degree_u + 1)] &&
                             v > description.knots_v[static_cast<size_t>(begin_v)] &&
                             v < description.knots_v[static_cast<size_t>(begin_v + description.degree_v + 1)];
      const bool is_same = surface->Point(u, v) == changed->Point(u, v);
      EXPECT_TRUE(is_same || is_inside);
    }
  }
}

void ExpectSame(const NurbsSurface& a, const NurbsSurface& b, Random* random) {
  for (int i = 0; i < 30; ++i) {
    const double u = random->Parameter(b, NurbsDirection::kU);
    const double v = random->Parameter(b, NurbsDirection::kV);
    const NurbsPoint at_a = a.PointWithDerivatives(u, v);
    const NurbsPoint at_b = b.PointWithDerivatives(u, v);
    ASSERT_LT((at_a.point_m - at_b.point_m).norm(), 1e-12) << u << " " << v;
  }
}

TEST(NurbsSurfaceTest, KnotsInsertedChangeNothing) {
  Random random(6);
  for (int trial = 0; trial < 100; ++trial) {
    const NurbsSurface surface = random.Surface();
    for (const NurbsDirection direction : kBoth) {
      const auto [first, last] = surface.domain(direction);
      const double t = random.Parameter(surface, direction);
      int present = 0;
      for (const double knot : surface.knots(direction)) present += knot == t ? 1 : 0;
      const int times = random.Whole(1, surface.degree(direction));
      const auto finer = surface.WithKnot(direction, t, times);
      if (t == first || t == last || present + times > surface.degree(direction)) {
        EXPECT_EQ(finer.status().code(), absl::StatusCode::kInvalidArgument);
        continue;
      }
      ASSERT_TRUE(finer.ok()) << finer.status();
      EXPECT_EQ(finer->count(direction), surface.count(direction) + static_cast<size_t>(times));
      ExpectSame(*finer, surface, &random);
    }
  }
}

TEST(NurbsSurfaceTest, PartsAreTheSurfaceOnTheirParameters) {
  Random random(7);
  for (int trial = 0; trial < 100; ++trial) {
    const NurbsSurface surface = random.Surface();
    for (const NurbsDirection direction : kBoth) {
      const auto [first, last] = surface.domain(direction);
      double t = random.Parameter(surface, direction);
      if (trial % 2 == 0) t = 0.5 * (first + last);
      const auto parts = surface.Split(direction, t);
      if (t == first || t == last) {
        EXPECT_EQ(parts.status().code(), absl::StatusCode::kInvalidArgument);
        continue;
      }
      ASSERT_TRUE(parts.ok()) << parts.status();
      EXPECT_EQ((*parts)[0].domain(direction), (std::pair(first, t)));
      EXPECT_EQ((*parts)[1].domain(direction), (std::pair(t, last)));
      for (const NurbsSurface& part : *parts) {
        // What a file must have: clamped, no knot too often.
        NurbsDescription again{.degree_u = part.degree(NurbsDirection::kU),
                               .degree_v = part.degree(NurbsDirection::kV),
                               .knots_u = {part.knots(NurbsDirection::kU).begin(), part.knots(NurbsDirection::kU).end()},
                               .knots_v = {part.knots(NurbsDirection::kV).begin(), part.knots(NurbsDirection::kV).end()},
                               .control_m = {},
                               .weights = {}};
        for (const Eigen::Vector4d& p : part.control()) {
          again.control_m.emplace_back(p.hnormalized());
          again.weights.push_back(p.w());
        }
        const auto checked = NurbsSurface::Create(again);
        ASSERT_TRUE(checked.ok()) << checked.status();
        ExpectSame(surface, *checked, &random);
      }
    }
    const std::vector<NurbsSurface> patches = surface.BezierPatches();
    double area = 0;
    for (const NurbsSurface& patch : patches) {
      double size = 1;
      for (const NurbsDirection direction : kBoth) {
        EXPECT_EQ(patch.count(direction), static_cast<size_t>(patch.degree(direction)) + 1);
        size *= patch.domain(direction).second - patch.domain(direction).first;
      }
      area += size;
      ExpectSame(surface, patch, &random);
    }
    EXPECT_NEAR(area, 2.5 * 2.5, 1e-12);
  }
}

TEST(NurbsSurfaceTest, RefinedSurfacesAreTheSame) {
  Random random(8);
  const auto surface = NurbsSurface::Create(random.Description(3, 3, 0, 0));
  ASSERT_TRUE(surface.ok());
  for (const size_t n : {10, 15, 20}) {
    const NurbsSurface finer = surface->Refined(n, n);
    EXPECT_EQ(finer.count(NurbsDirection::kU), n);
    EXPECT_EQ(finer.count(NurbsDirection::kV), n);
    ExpectSame(finer, *surface, &random);
  }
}

TEST(NurbsSurfaceTest, BadSurfacesAreRefusedByName) {
  Random random(9);
  const NurbsDescription good = random.Description(2, 3, 2, 1);
  ASSERT_TRUE(NurbsSurface::Create(good).ok());
  const auto expect = [&](const std::function<void(NurbsDescription*)>& change, const std::string& what) {
    NurbsDescription bad = good;
    change(&bad);
    const auto surface = NurbsSurface::Create(bad);
    EXPECT_EQ(surface.status().code(), absl::StatusCode::kInvalidArgument) << what;
    EXPECT_THAT(std::string(surface.status().message()), HasSubstr(what));
  };
  expect([](NurbsDescription* d) { d->degree_u = 0; }, "degree of knots_u: 0, it must be in [1, 15]");
  expect([](NurbsDescription* d) { d->degree_v = 16; }, "degree of knots_v: 16");
  expect([](NurbsDescription* d) { d->knots_u.resize(4); }, "knots_u: 4 knots, degree 2 needs 6 at least");
  expect([](NurbsDescription* d) { d->knots_u[3] = NAN; }, "knots_u[3]: is not finite");
  expect([](NurbsDescription* d) { d->knots_v[4] = -7; }, "knots_v[4]: -7 is less than");
  expect([](NurbsDescription* d) { d->knots_u[0] = -1; }, "knots_u: not clamped, the first and the last 3 knots must be equal");
  expect([](NurbsDescription* d) { d->knots_v.assign(8, 1.0); }, "knots_v: all knots are equal");
  expect([](NurbsDescription* d) { d->knots_u[3] = -0.5; }, "is there more often than degree 2 + 1 allows at an end");
  expect(
      [](NurbsDescription* d) {
        d->degree_u = 1;
        d->knots_u = {0, 0, 0.5, 0.5, 1, 1};
      },
      "0.5 is there more often than degree 1 allows inside");
  expect([](NurbsDescription* d) { d->control_m.pop_back(); }, "control_m: 24 control points, knots and degrees are for 5 x 5");
  expect([](NurbsDescription* d) { d->weights.pop_back(); }, "weights: 24 of 25 control points");
  expect([](NurbsDescription* d) { d->weights[7] = 0; }, "weights[7]: 0, it must be positive and finite");
  expect([](NurbsDescription* d) { d->control_m[3].y() = INFINITY; }, "control_m[3]: is not finite");
  expect(
      [](NurbsDescription* d) {
        for (int i = 0; i < 2000; ++i) {
          d->knots_u.insert(d->knots_u.begin() + 3, -0.45);
          d->knots_v.insert(d->knots_v.begin() + 4, -0.45);
        }
        for (size_t i = 3; i < 2003; ++i) d->knots_u[i] = -0.5 + 1e-6 * static_cast<double>(i);
        for (size_t i = 4; i < 2004; ++i) d->knots_v[i] = -0.5 + 1e-6 * static_cast<double>(i);
      },
      "knots are for 2005 x 2005 control points, 1048576 are allowed");
}

}  // namespace
}  // namespace palpate::sim::nurbs_surface_test
