// Classes of moving triangles as seen from points and segments, against whole numbers and against double.
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "gpu/collision/view_certificate.h"
#include "gpu/collision/view_reference.h"
#include "tests/gpu/collision/view_models.h"
#include "tests/support/device_test.h"

namespace palpate::gpu::view_classes_test {
namespace {

__extension__ using Wide = __int128;
using Whole3 = std::array<Wide, 3>;

Whole3 Sub(const Whole3& a, const Whole3& b) { return {a[0] - b[0], a[1] - b[1], a[2] - b[2]}; }
Whole3 Cross(const Whole3& a, const Whole3& b) { return {a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]}; }
Wide Dot(const Whole3& a, const Whole3& b) { return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]; }

// A triangle with corners in whole numbers, and what it is seen from.
struct WholeCase {
  std::array<std::array<std::array<int, 3>, 3>, 2> corner = {};  // [side][corner]
  std::array<std::array<int, 3>, 2> at = {};
  std::array<int, 3> axis = {};
};

constexpr int kTimes = 16;

// Sign at all corners, each with its own check point, at kTimes + 1 times: 1, -1, or 0 where they differ or one is 0.
int ExactSign(const WholeCase& c) {
  const auto blend = [](const std::array<int, 3>& a, const std::array<int, 3>& b, int time) {
    Whole3 r;
    for (size_t k = 0; k < 3; ++k) r[k] = Wide{kTimes - time} * a[k] + Wide{time} * b[k];
    return r;
  };
  int sign = 2;
  for (int time = 0; time <= kTimes; ++time) {
    const Whole3 q = blend(c.at[0], c.at[1], time);
    std::array<Whole3, 3> p;
    for (size_t i = 0; i < 3; ++i) p[i] = blend(c.corner[0][i], c.corner[1][i], time);
    const Whole3 normal = Cross(Sub(p[1], p[0]), Sub(p[2], p[0]));
    const Whole3 axis = {Wide{kTimes} * c.axis[0], Wide{kTimes} * c.axis[1], Wide{kTimes} * c.axis[2]};
    const Wide length_sq = Dot(axis, axis);
    for (size_t i = 0; i < 3; ++i) {
      const Whole3 from = Sub(p[i], q);
      Wide value = Dot(from, normal);
      if (length_sq > 0) {
        Wide share = Dot(from, axis);  // times length_sq
        share = share < 0 ? 0 : share > length_sq ? length_sq : share;
        value = value * length_sq - share * Dot(axis, normal);
      }
      const int one = value > 0 ? 1 : value < 0 ? -1 : 0;
      sign = sign == 2 || sign == one ? one : 0;
    }
  }
  return sign;
}

class ViewClassesTest : public test::DeviceTest {
 protected:
  // Classes of triangles that have no corner in common, each with a primitive of its own.
  std::vector<uint32_t> Classes(const std::vector<MovingTriangle>& triangles, const std::vector<ViewPrimitive>& primitives) {
    std::vector<Float4> starts, ends;
    Triangles corners;
    for (const MovingTriangle& t : triangles) {
      const auto first = static_cast<uint32_t>(starts.size());
      corners.push_back({first, first + 1, first + 2});
      for (size_t c = 0; c < 3; ++c) {
        starts.push_back(Point(t.start_m[c][0], t.start_m[c][1], t.start_m[c][2]));
        ends.push_back(Point(t.end_m[c][0], t.end_m[c][1], t.end_m[c][2]));
      }
    }
    Model model;
    model.Add(starts, corners, true);
    const auto topology = model.Topology();
    EXPECT_TRUE(topology.ok()) << topology.status();
    // No rounds of holes: only the classes are wanted.
    auto certificate = ViewCertificate::Create(context(), {.least_share = 1, .max_rounds = 0});
    EXPECT_TRUE(certificate.ok()) << certificate.status();
    PALPATE_EXPECT_OK(certificate->SetSurface(queue(), *topology));
    EXPECT_EQ(certificate->components().size(), triangles.size());
    const auto device_starts = Upload(starts), device_ends = Upload(ends);
    PALPATE_EXPECT_OK(certificate->RunFrom(queue(), device_starts, device_ends, primitives));
    auto codes = certificate->Codes(queue());
    EXPECT_TRUE(codes.ok()) << codes.status();
    for (uint32_t& code : *codes) code &= PALPATE_VIEW_CLASS_MASK;
    return *std::move(codes);
  }

  // Runs cases in whole numbers of up to 2^24, which floats hold.
  void ExpectNeverWrong(const std::vector<WholeCase>& cases, size_t least_certain) {
    std::vector<MovingTriangle> triangles(cases.size());
    std::vector<ViewPrimitive> primitives(cases.size());
    for (size_t i = 0; i < cases.size(); ++i) {
      const WholeCase& c = cases[i];
      for (size_t k = 0; k < 3; ++k) {
        for (size_t corner = 0; corner < 3; ++corner) {
          triangles[i].start_m[corner][k] = c.corner[0][corner][k];
          triangles[i].end_m[corner][k] = c.corner[1][corner][k];
        }
      }
      primitives[i].start = Point(c.at[0][0], c.at[0][1], c.at[0][2]);
      primitives[i].end = Point(c.at[1][0], c.at[1][1], c.at[1][2]);
      primitives[i].axis = Point(c.axis[0], c.axis[1], c.axis[2]);
      primitives[i].axis.w = c.axis == std::array<int, 3>{} ? 0.0F : 1.0F;
    }
    const std::vector<uint32_t> classes = Classes(triangles, primitives);
    size_t wrong = 0, reference_wrong = 0, certain = 0, exactly_certain = 0;
    for (size_t i = 0; i < cases.size(); ++i) {
      const int exact = ExactSign(cases[i]);
      const auto is_wrong = [&](uint32_t found) {
        return (found == PALPATE_VIEW_POSITIVE && exact != 1) || (found == PALPATE_VIEW_NEGATIVE && exact != -1);
      };
      wrong += is_wrong(classes[i]);
      reference_wrong += is_wrong(ClassifyView(triangles[i], primitives[i]));
      certain += classes[i] != PALPATE_VIEW_UNSURE;
      exactly_certain += exact != 0;
    }
    EXPECT_EQ(wrong, 0U);
    EXPECT_EQ(reference_wrong, 0U);
    EXPECT_GE(certain, least_certain) << "of " << exactly_certain;
  }
};

// The primitive is moved into the plane of the triangle, or a few units beside it, at one end of the step or at both.
TEST_F(ViewClassesTest, PointsInThePlaneAreNeverOnASide) {
  std::mt19937_64 random(1);
  std::vector<WholeCase> cases(6000);
  size_t index = 0;
  for (WholeCase& c : cases) {
    const int range = index % 3 == 0 ? 1 << 20 : index % 3 == 1 ? 1 << 12 : 40;
    std::uniform_int_distribution<int> place(-range, range), near(-2, 2), step(-3, 3);
    for (auto& p : c.corner[0]) {
      for (int& x : p) x = place(random);
    }
    const bool turns = index % 2 == 0;
    for (size_t i = 0; i < 3; ++i) {
      for (size_t k = 0; k < 3; ++k) c.corner[1][i][k] = turns ? place(random) : c.corner[0][i][k] + step(random);
    }
    for (size_t side = 0; side < 2; ++side) {
      const int s = step(random), t = step(random);
      const auto& p = c.corner[side];
      const int lifts = index % 5 == 0 ? 100 : 1;
      for (size_t k = 0; k < 3; ++k) c.at[side][k] = p[0][k] + s * (p[1][k] - p[0][k]) + t * (p[2][k] - p[0][k]) + lifts * near(random);
    }
    ++index;
  }
  ExpectNeverWrong(cases, 100);
}

TEST_F(ViewClassesTest, RandomPointsAndSegmentsAreAsInWholeNumbers) {
  std::mt19937_64 random(2);
  std::uniform_int_distribution<int> place(-900, 900), step(-60, 60), near(-3, 3);
  std::vector<WholeCase> cases(6000);
  size_t index = 0;
  for (WholeCase& c : cases) {
    for (size_t i = 0; i < 3; ++i) {
      for (size_t k = 0; k < 3; ++k) {
        c.corner[0][i][k] = place(random);
        c.corner[1][i][k] = c.corner[0][i][k] + step(random);
      }
    }
    for (size_t k = 0; k < 3; ++k) {
      c.at[0][k] = place(random);
      c.at[1][k] = c.at[0][k] + step(random);
      if (index % 4 != 0) c.axis[k] = place(random) / 2;
    }
    // One end of the segment in the plane, or nearly.
    if (index % 4 == 1) {
      for (size_t k = 0; k < 3; ++k) c.at[0][k] = c.at[1][k] = 2 * c.corner[0][1][k] - c.corner[0][0][k] + near(random);
    }
    ++index;
  }
  ExpectNeverWrong(cases, 1500);
}

// A triangle beside a segment whose plane cuts the segment between the check points of its corners. Looked at from one corner only, the
// rule as published, it is on one side or on the other, as that corner likes.
TEST_F(ViewClassesTest, EachCornerHasItsOwnCheckPoint) {
  const MovingTriangle triangle = {{{{0, 1, 0}, {1, 0, 1}, {0, 1.1F, 0.1F}}}, {{{0, 1, 0}, {1, 0, 1}, {0, 1.1F, 0.1F}}}};
  const ViewPrimitive segment = ViewSegment({-0.5F, 0, 0, 0}, {1.5F, 0, 0, 0});
  std::array<double, 3> normal, by_corner;
  const auto& p = triangle.start_m;
  for (size_t k = 0; k < 3; ++k) {
    const size_t l = (k + 1) % 3, m = (k + 2) % 3;
    normal[k] = (p[1][l] - p[0][l]) * (p[2][m] - p[0][m]) - (p[1][m] - p[0][m]) * (p[2][l] - p[0][l]);
  }
  for (size_t c = 0; c < 3; ++c) by_corner[c] = p[c][1] * normal[1] + p[c][2] * normal[2];  // the check point has the same x
  EXPECT_LT(by_corner[0], 0) << "the published test calls it negative by its first corner";
  EXPECT_GT(by_corner[1], 0) << "and positive by its second one";
  ViewPrimitive marked = segment;
  marked.axis.w = 1;
  EXPECT_EQ(ClassifyView(triangle, marked), PALPATE_VIEW_UNSURE);
  EXPECT_EQ(Classes({triangle}, {segment}), std::vector<uint32_t>{PALPATE_VIEW_UNSURE});
}

// The normal is Ds + Dt1 t + Dt2 t^2. The published Dt2 is Bs x Ct, with the first edge at the start in the place of its change.
TEST_F(ViewClassesTest, TheNormalTurnsAsTheEdgesDo) {
  // Two edges of length 1 that turn by 60 degrees about the line of sight.
  const double c = 0.5, s = std::sqrt(0.75);
  const MovingTriangle turning = {{{{0, 0, 1}, {1, 0, 1}, {0, 1, 1}}}, {{{0, 0, 1}, {c, s, 1}, {-s, c, 1}}}};
  const double change = 2 * (c - 1);                 // Bt x Cs + Bs x Ct
  const double squared = (c - 1) * (c - 1) + s * s;  // Bt x Ct
  const double misprinted = c - 1;                   // Bs x Ct
  EXPECT_NEAR(1 + change + squared, 1, 1e-12) << "a turned triangle is as large as before";
  EXPECT_LT(1 + change + misprinted, 0) << "and not seen from behind, as the misprint has it";
  EXPECT_EQ(Classes({turning}, {ViewPoint(0, 0, 0)}), std::vector<uint32_t>{PALPATE_VIEW_POSITIVE});
  // Both edges shrink, and grow again the other way round: the normal is (1 - 2t)^2, never below 0, and 0 at half of the step.
  const MovingTriangle shrinking = {{{{0, 0, 1}, {1, 0, 1}, {0, 1, 1}}}, {{{0, 0, 1}, {-1, 0, 1}, {0, -1, 1}}}};
  EXPECT_EQ(Classes({shrinking}, {ViewPoint(0, 0, 0)}), std::vector<uint32_t>{PALPATE_VIEW_UNSURE});
}

TEST_F(ViewClassesTest, BallsAreSeenFromWithin) {
  MovingSurface ball;
  AddBall(&ball.model, 5, true);
  ball.Move([](const Point3& p) { return Point3{1.1 * p[0] + 0.2, p[1], p[2] - 0.1}; });
  std::vector<MovingTriangle> triangles, flipped;
  for (const auto& t : ball.model.bodies[0]) {
    MovingTriangle moving;
    for (size_t c = 0; c < 3; ++c) {
      const Float4 p = ball.model.positions[t[c]], q = ball.ends[t[c]];
      moving.start_m[c] = {p.x, p.y, p.z};
      moving.end_m[c] = {q.x, q.y, q.z};
    }
    triangles.push_back(moving);
    std::swap(moving.start_m[1], moving.start_m[2]);
    std::swap(moving.end_m[1], moving.end_m[2]);
    flipped.push_back(moving);
  }
  const std::vector<ViewPrimitive> points(triangles.size(), ViewPoint(0.1F, 0, 0));
  const std::vector<ViewPrimitive> segments(triangles.size(), ViewSegment({-0.2F, 0, 0, 0}, {0.4F, 0.1F, 0, 0}));
  for (const auto& primitives : {points, segments}) {
    EXPECT_EQ(Classes(triangles, primitives), std::vector<uint32_t>(triangles.size(), PALPATE_VIEW_POSITIVE));
    EXPECT_EQ(Classes(flipped, primitives), std::vector<uint32_t>(triangles.size(), PALPATE_VIEW_NEGATIVE));
  }
  // From outside, some are seen from each side.
  const std::vector<uint32_t> outside = Classes(triangles, std::vector<ViewPrimitive>(triangles.size(), ViewPoint(3, 0, 0)));
  EXPECT_GT(std::count(outside.begin(), outside.end(), PALPATE_VIEW_NEGATIVE), 10);
  EXPECT_GT(std::count(outside.begin(), outside.end(), PALPATE_VIEW_POSITIVE), 10);
}

TEST_F(ViewClassesTest, UselessCoordinatesAreUnsure) {
  const float nan = std::numeric_limits<float>::quiet_NaN(), infinity = std::numeric_limits<float>::infinity();
  std::vector<MovingTriangle> triangles;
  std::vector<ViewPrimitive> primitives;
  for (const double bad : {double{nan}, double{infinity}, 3e38, 1e-39}) {
    MovingTriangle t = {{{{0, 0, 1}, {1, 0, 1}, {0, 1, 1}}}, {{{0, 0, 1}, {1, 0, 1}, {0, 1, 1}}}};
    t.end_m[1][1] = bad;
    triangles.push_back(t);
    primitives.push_back(ViewPoint(0, 0, 0));
    triangles.push_back(t);
    primitives.push_back(ViewSegment({0, 0, -1, 0}, {0.1F, 0, 0, 0}));
  }
  // Of no size, and so small that products are lost.
  for (const double size : {0.0, 1e-20, 1e-30}) {
    triangles.push_back({{{{0, 0, size}, {size, 0, size}, {0, size, size}}}, {{{0, 0, size}, {size, 0, size}, {0, size, size}}}});
    primitives.push_back(ViewPoint(0, 0, 0));
  }
  std::vector<uint32_t> expected(triangles.size(), PALPATE_VIEW_UNSURE);
  expected[6] = expected[7] = PALPATE_VIEW_POSITIVE;  // beside 1, 1e-39 is nothing
  EXPECT_EQ(Classes(triangles, primitives), expected);
}

}  // namespace
}  // namespace palpate::gpu::view_classes_test
