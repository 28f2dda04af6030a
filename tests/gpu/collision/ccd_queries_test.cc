// Single queries of continuous collision detection against exact answers: contacts built from dyadic numbers, which doubles hold exactly,
// and integer geometry sampled in integer arithmetic.
#include "gpu/collision/ccd_queries.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "tests/support/device_test.h"

namespace palpate::gpu::ccd_queries_test {
namespace {

using Int3 = std::array<int64_t, 3>;
using Double3 = std::array<double, 3>;

Int3 operator-(const Int3& a, const Int3& b) { return {a[0] - b[0], a[1] - b[1], a[2] - b[2]}; }
int64_t Dot(const Int3& a, const Int3& b) { return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]; }
Int3 Cross(const Int3& a, const Int3& b) { return {a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]}; }
bool IsZero(const Int3& a) { return a == Int3{0, 0, 0}; }

bool IsOnSegment(const Int3& p, const Int3& a, const Int3& b) { return IsZero(Cross(p - a, b - a)) && Dot(p - a, p - b) <= 0; }

bool IsOnTriangle(const Int3& p, const Int3& a, const Int3& b, const Int3& c) {
  const Int3 n = Cross(b - a, c - a);
  if (IsZero(n)) return IsOnSegment(p, a, b) || IsOnSegment(p, b, c) || IsOnSegment(p, c, a);
  return Dot(n, p - a) == 0 && Dot(n, Cross(b - a, p - a)) >= 0 && Dot(n, Cross(c - b, p - b)) >= 0 && Dot(n, Cross(a - c, p - c)) >= 0;
}

bool DoSegmentsMeet(const Int3& a0, const Int3& a1, const Int3& b0, const Int3& b1) {
  const Int3 n = Cross(a1 - a0, b1 - b0);
  if (IsZero(n)) return IsOnSegment(a0, b0, b1) || IsOnSegment(a1, b0, b1) || IsOnSegment(b0, a0, a1) || IsOnSegment(b1, a0, a1);
  const int64_t nn = Dot(n, n);
  const int64_t s = Dot(n, Cross(b0 - a0, b1 - b0));
  const int64_t q = Dot(n, Cross(b0 - a0, a1 - a0));
  return Dot(n, b0 - a0) == 0 && s >= 0 && s <= nn && q >= 0 && q <= nn;
}

double Distance(const Double3& a, const Double3& b) { return std::hypot(a[0] - b[0], a[1] - b[1], a[2] - b[2]); }

Double3 Blend(const Double3& a, const Double3& b, double t) {
  return {a[0] + t * (b[0] - a[0]), a[1] + t * (b[1] - a[1]), a[2] + t * (b[2] - a[2])};
}

// Distance of two convex sets given by vertices, from above: the best of many points.
double SampledDistance(uint32_t kind, const std::array<Double3, 4>& p) {
  constexpr int kSteps = 12;
  double least = 1e300;
  for (int i = 0; i <= kSteps; ++i) {
    for (int j = 0; j <= kSteps; ++j) {
      const double s = static_cast<double>(i) / kSteps, q = static_cast<double>(j) / kSteps;
      least = std::min(least, kind == PALPATE_EDGE_EDGE ? Distance(Blend(p[0], p[1], s), Blend(p[2], p[3], q))
                                                        : Distance(p[0], Blend(p[1], Blend(p[2], p[3], q), s)));
    }
  }
  return least;
}

// Queries with what is known of them.
struct Batch {
  uint32_t kind = PALPATE_VERTEX_TRIANGLE;
  std::vector<double> coordinates;
  std::vector<double> contact_times;  // the pair meets then, and perhaps before

  void Add(const std::array<Double3, 4>& start, const std::array<Double3, 4>& end, double contact_time = 1) {
    for (const auto* points : {&start, &end}) {
      for (const Double3& p : *points) coordinates.insert(coordinates.end(), p.begin(), p.end());
    }
    contact_times.push_back(contact_time);
  }
};

class CcdQueriesTest : public test::DeviceTest {
 protected:
  std::vector<CcdAnswer> Run(const Batch& batch, const CcdOptions& options = {}, std::vector<double> errors = {}) {
    auto queries = CcdQueries::Create(context(), options);
    EXPECT_TRUE(queries.ok()) << queries.status();
    if (!queries.ok()) return {};
    auto answers = queries->Run(queue(), batch.kind, batch.coordinates, errors);
    EXPECT_TRUE(answers.ok()) << answers.status();
    return answers.ok() ? *answers : std::vector<CcdAnswer>();
  }

  // Each must be reported, not later than its known contact.
  void ExpectHits(const Batch& batch, const CcdOptions& options = {}, std::vector<double> errors = {}) {
    const std::vector<CcdAnswer> answers = Run(batch, options, std::move(errors));
    ASSERT_EQ(answers.size(), batch.contact_times.size());
    size_t missed = 0;
    size_t late = 0;
    for (size_t i = 0; i < answers.size(); ++i) {
      const bool is_late = answers[i].toi > batch.contact_times[i];
      late += is_late ? 1 : 0;
      missed += answers[i].is_hit == 0 ? 1 : 0;
      ASSERT_EQ(answers[i].is_finite, 1U);
      ASSERT_GE(answers[i].toi, 0);
      if (missed + late == 1 && (is_late || answers[i].is_hit == 0)) {
        std::string text;
        for (size_t k = 0; k < 24; ++k) text += std::to_string(batch.coordinates[24 * i + k]) + (k % 3 == 2 ? "\n" : " ");
        ADD_FAILURE() << "query " << i << " toi " << answers[i].toi << " contact " << batch.contact_times[i] << "\n" << text;
      }
    }
    EXPECT_EQ(missed, 0U);
    EXPECT_EQ(late, 0U);
  }

  int64_t Integer(int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(random_); }
  Int3 Vector(int64_t extent) { return {Integer(-extent, extent), Integer(-extent, extent), Integer(-extent, extent)}; }

  // Contacts at a known dyadic time, all numbers exact. `flatten`: share of the vectors whose z is 0, for coplanar motion.
  Batch Contacts(uint32_t kind, size_t count, double scale, int64_t offset) {
    Batch batch;
    batch.kind = kind;
    for (size_t i = 0; i < count; ++i) {
      const bool is_flat = Integer(0, 3) == 0;
      const int64_t extent = std::array<int64_t, 4>{0, 1, 4, 1000}[static_cast<size_t>(Integer(0, 3))];
      const auto vector = [&] {
        Int3 v = Vector(Integer(0, 5) == 0 ? extent : 1000);
        if (is_flat) v[2] = 0;
        return v;
      };
      // Units: 1/64 of a coordinate; weights are eighths.
      std::array<Int3, 4> contact{};
      const Int3 common = vector();
      const int64_t s = Integer(0, 8), q = Integer(0, 8 - (kind == PALPATE_VERTEX_TRIANGLE ? s : 0));
      if (kind == PALPATE_EDGE_EDGE) {
        const Int3 da = vector();
        const Int3 db = Integer(0, 4) == 0 ? da : vector();  // parallel now and then
        for (size_t k = 0; k < 3; ++k) {
          contact[0][k] = 8 * common[k] - s * da[k];
          contact[1][k] = 8 * common[k] + (8 - s) * da[k];
          contact[2][k] = 8 * common[k] - q * db[k];
          contact[3][k] = 8 * common[k] + (8 - q) * db[k];
        }
      } else {
        const Int3 e1 = vector();
        const Int3 e2 = Integer(0, 8) == 0 ? e1 : vector();
        for (size_t k = 0; k < 3; ++k) {
          contact[1][k] = 8 * common[k];
          contact[2][k] = 8 * (common[k] + e1[k]);
          contact[3][k] = 8 * (common[k] + e2[k]);
          contact[0][k] = 8 * common[k] + s * e1[k] + q * e2[k];
        }
      }
      const int64_t t8 = std::array<int64_t, 6>{0, 8, 4, 1, 3, 7}[static_cast<size_t>(Integer(0, 5))];
      const Int3 shared_motion = vector();
      const bool is_static = Integer(0, 15) == 0;
      std::array<Double3, 4> start{}, end{};
      for (size_t p = 0; p < 4; ++p) {
        Int3 motion = Integer(0, 2) == 0 ? shared_motion : vector();  // touching throughout, sliding, grazing
        if (is_static) motion = {0, 0, 0};
        for (size_t k = 0; k < 3; ++k) {
          start[p][k] = scale * static_cast<double>(8 * (contact[p][k] + offset) - t8 * motion[k]);
          end[p][k] = scale * static_cast<double>(8 * (contact[p][k] + offset) + (8 - t8) * motion[k]);
        }
      }
      batch.Add(start, end, static_cast<double>(t8) / 8);
    }
    return batch;
  }

  std::mt19937_64 random_{7};
};

#ifdef PALPATE_NATIVE_KERNELS
constexpr size_t kCases = 1000;
#else
constexpr size_t kCases = 6000;
#endif

// Millions: run by the slow tests.
TEST_F(CcdQueriesTest, SlowLargeReportsEveryExactContact) {
  for (const uint32_t kind : {PALPATE_VERTEX_TRIANGLE, PALPATE_EDGE_EDGE}) {
    for (int round = 0; round < 5; ++round) {
      ExpectHits(Contacts(kind, 200000, 1.0 / 64, 0));
      ExpectHits(Contacts(kind, 50000, 1.0 / 64, 0), {.use_double = false});
    }
  }
}

TEST_F(CcdQueriesTest, ReportsEveryExactContact) {
  for (const uint32_t kind : {PALPATE_VERTEX_TRIANGLE, PALPATE_EDGE_EDGE}) {
    for (const double scale : {1.0 / 64, 0x1p-30, 0x1p+10, 0x1p-1060, 0x1p+950, 0x1p-500}) {
      SCOPED_TRACE(testing::Message() << "kind " << kind << " scale " << scale);
      ExpectHits(Contacts(kind, kCases, scale, 0));
    }
    ExpectHits(Contacts(kind, kCases, 1.0 / 64, int64_t{1} << 40));
    ExpectHits(Contacts(kind, kCases, 0x1p-26, int64_t{1} << 20));
  }
}

TEST_F(CcdQueriesTest, FloatReportsEveryExactContact) {
  const CcdOptions options = {.use_double = false};
  for (const uint32_t kind : {PALPATE_VERTEX_TRIANGLE, PALPATE_EDGE_EDGE}) {
    for (const double scale : {1.0 / 64, 0x1p-30, 0x1p+10, 0x1p-140, 0x1p-149, 0x1p+90}) {
      SCOPED_TRACE(testing::Message() << "kind " << kind << " scale " << scale);
      ExpectHits(Contacts(kind, kCases, scale, 0), options);
      ExpectHits(Contacts(kind, kCases / 4, scale, 123457), options);  // does not fit into floats: rounding is an error of the input
    }
  }
}

TEST_F(CcdQueriesTest, ReportsContactsOfIntegerGeometry) {
  constexpr int64_t kTimes = 12;
  for (const uint32_t kind : {PALPATE_VERTEX_TRIANGLE, PALPATE_EDGE_EDGE}) {
    Batch batch;
    batch.kind = kind;
    for (size_t i = 0; i < 3 * kCases; ++i) {
      std::array<Int3, 4> start, end;
      for (size_t p = 0; p < 4; ++p) {
        start[p] = Vector(2);
        end[p] = Vector(2);
        if (i % 5 == 0) start[p][2] = end[p][2] = 0;
        if (i % 7 == 0 && p > 1) end[p] = start[p];
      }
      for (int64_t t = 0; t <= kTimes; ++t) {
        std::array<Int3, 4> now{};
        for (size_t p = 0; p < 4; ++p) {
          for (size_t k = 0; k < 3; ++k) now[p][k] = (kTimes - t) * start[p][k] + t * end[p][k];
        }
        const bool meets =
            kind == PALPATE_EDGE_EDGE ? DoSegmentsMeet(now[0], now[1], now[2], now[3]) : IsOnTriangle(now[0], now[1], now[2], now[3]);
        if (!meets) continue;
        std::array<Double3, 4> from{}, to{};
        for (size_t p = 0; p < 4; ++p) {
          for (size_t k = 0; k < 3; ++k) {
            from[p][k] = static_cast<double>(start[p][k]);
            to[p][k] = static_cast<double>(end[p][k]);
          }
        }
        batch.Add(from, to, static_cast<double>(t) / kTimes);
        break;
      }
    }
    ASSERT_GT(batch.contact_times.size(), kCases / 50) << "the generator makes too few contacts";
    ExpectHits(batch);
    ExpectHits(batch, {.use_double = false});
    ExpectHits(batch, {.max_steps = 1});  // an exhausted budget is a hit
    ExpectHits(batch, {.separation_m = 0.01});
  }
}

TEST_F(CcdQueriesTest, SaysNothingOfPairsThatStayApart) {
  constexpr int kTimes = 64;
  std::uniform_real_distribution<double> uniform(-1, 1);
  for (const uint32_t kind : {PALPATE_VERTEX_TRIANGLE, PALPATE_EDGE_EDGE}) {
    Batch batch;
    batch.kind = kind;
    for (size_t i = 0; i < 2000; ++i) {
      std::array<Double3, 4> start{}, end{};
      double speed = 0;
      double size = 0;
      for (size_t p = 0; p < 4; ++p) {
        for (size_t k = 0; k < 3; ++k) {
          start[p][k] = uniform(random_);
          end[p][k] = start[p][k] + 0.3 * uniform(random_);
        }
        speed = std::max(speed, Distance(start[p], end[p]));
      }
      for (size_t p = 0; p < 4; ++p) {
        for (size_t q = 0; q < p; ++q) size = std::max({size, Distance(start[p], start[q]), Distance(end[p], end[q])});
      }
      double least = 1e300;
      for (int t = 0; t <= kTimes; ++t) {
        std::array<Double3, 4> now{};
        for (size_t p = 0; p < 4; ++p) now[p] = Blend(start[p], end[p], static_cast<double>(t) / kTimes);
        least = std::min(least, SampledDistance(kind, now));
      }
      // Between the samples in time and in both weights the distance may be less by as much.
      if (least > 2 * speed / kTimes / 2 + 2 * size / 12 / 2 + 0.01) batch.Add(start, end);
    }
    ASSERT_GT(batch.contact_times.size(), 200U);
    for (const bool use_double : {true, false}) {
      const std::vector<CcdAnswer> answers = Run(batch, {.separation_m = 0.005, .use_double = use_double});
      EXPECT_EQ(std::count_if(answers.begin(), answers.end(), [](const CcdAnswer& a) { return a.is_hit != 0; }), 0);
      EXPECT_TRUE(std::all_of(answers.begin(), answers.end(), [](const CcdAnswer& a) { return a.toi == 1; }));
    }
  }
}

// A vertex that falls on a tilted, moving triangle; and edges that cross. The time is known.
TEST_F(CcdQueriesTest, TimeOfImpactIsWithinTheTolerance) {
  std::uniform_real_distribution<double> uniform(0.1, 0.9);
  for (const double tolerance : {1e-3, 1e-6}) {
    for (const uint32_t kind : {PALPATE_VERTEX_TRIANGLE, PALPATE_EDGE_EDGE}) {
      for (const double separation : {0.0, 0.125}) {
        Batch batch;
        batch.kind = kind;
        for (size_t i = 0; i < 500; ++i) {
          // At height h above the plane z = 0 (edges along x and y), sinking by 4; in all cases plus a common motion and rotation about z.
          const double h = 0.3 + uniform(random_);
          const double x = 0.3 * uniform(random_), y = 0.3 * uniform(random_);
          const double drift = uniform(random_);
          std::array<Double3, 4> start{}, end{};
          if (kind == PALPATE_VERTEX_TRIANGLE) {
            start = {{{x, y, h}, {-1, -1, 0}, {2, -1, 0}, {-1, 2, 0}}};
          } else {
            start = {{{x - 1, y, h}, {x + 1, y, h}, {0, -1, 0}, {0, 1, 0}}};
          }
          for (size_t p = 0; p < 4; ++p) end[p] = {start[p][0] + drift, start[p][1] - drift, start[p][2] + drift};
          const size_t upper = kind == PALPATE_VERTEX_TRIANGLE ? 1 : 2;
          for (size_t p = 0; p < upper; ++p) end[p][2] -= 4;
          batch.Add(start, end, (h - separation) / 4);
        }
        const std::vector<CcdAnswer> answers = Run(batch, {.separation_m = separation, .tolerance = tolerance});
        for (size_t i = 0; i < answers.size(); ++i) {
          ASSERT_EQ(answers[i].is_hit, 1U);
          EXPECT_LE(answers[i].toi, batch.contact_times[i] + 1e-15);
          EXPECT_GE(answers[i].toi, batch.contact_times[i] - tolerance - 1e-7);
        }
      }
    }
  }
}

TEST_F(CcdQueriesTest, InputErrorsAreCovered) {
  // Static pairs a little less apart than the points may be off.
  for (const double error : {1e-9, 1e-3, 10.0}) {
    Batch batch;
    batch.kind = PALPATE_VERTEX_TRIANGLE;
    const double gap = 1.9 * error;
    const std::array<Double3, 4> points = {{{0.2, 0.2, gap}, {0, 0, 0}, {1, 0, 0}, {0, 1, 0}}};
    batch.Add(points, points, 0);
    ExpectHits(batch, {}, {error});
    ExpectHits(batch, {.use_double = false}, {error});
    const std::vector<CcdAnswer> exact = Run(batch, {}, {error / 4});
    EXPECT_EQ(exact.at(0).is_hit, 0U);
  }
}

TEST_F(CcdQueriesTest, NumbersThatAreNotFiniteAreTold) {
  for (const double bad : {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    for (const uint32_t kind : {PALPATE_VERTEX_TRIANGLE, PALPATE_EDGE_EDGE}) {
      Batch batch;
      batch.kind = kind;
      for (size_t k = 0; k < 24; ++k) {
        batch.coordinates.insert(batch.coordinates.end(), 24, 0.5);
        batch.coordinates[24 * k + k] = bad;
      }
      for (const bool use_double : {true, false}) {
        const std::vector<CcdAnswer> answers = Run(batch, {.use_double = use_double});
        for (const CcdAnswer& answer : answers) {
          EXPECT_EQ(answer.is_finite, 0U);
          EXPECT_EQ(answer.is_hit, 1U);
          EXPECT_EQ(answer.toi, 0);
        }
      }
    }
  }
}

TEST_F(CcdQueriesTest, SameInputGivesTheSameBits) {
  const Batch batch = Contacts(PALPATE_EDGE_EDGE, 1000, 1, 0);
  const std::vector<CcdAnswer> first = Run(batch);
  const std::vector<CcdAnswer> second = Run(batch);
  ASSERT_EQ(first.size(), second.size());
  for (size_t i = 0; i < first.size(); ++i) {
    EXPECT_EQ(first[i].toi, second[i].toi);
    EXPECT_EQ(first[i].steps, second[i].steps);
  }
}

TEST_F(CcdQueriesTest, WrongArgumentsAreRefused) {
  PALPATE_TEST_ASSIGN(CcdQueries queries, CcdQueries::Create(context()));
  const std::vector<double> one(24, 0.0);
  EXPECT_EQ(queries.Run(queue(), 2, one).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(queries.Run(queue(), 0, std::span(one).first(23)).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(queries.Run(queue(), 0, one, std::vector<double>{-1}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(queries.Run(queue(), 0, one, std::vector<double>{0, 0}).status().code(), absl::StatusCode::kInvalidArgument);
  PALPATE_TEST_ASSIGN(const std::vector<CcdAnswer> none, queries.Run(queue(), 0, {}));
  EXPECT_TRUE(none.empty());
  for (const CcdOptions& options : {CcdOptions{.separation_m = -1}, CcdOptions{.separation_m = std::nan("")}, CcdOptions{.tolerance = 0},
                                    CcdOptions{.tolerance = 1}, CcdOptions{.max_steps = 0}}) {
    EXPECT_EQ(CcdQueries::Create(context(), options).status().code(), absl::StatusCode::kInvalidArgument);
  }
}

// A sphere that falls from h hits the floor after sqrt(2 h / g). Its vertices go from place to place on straight lines.
TEST_F(CcdQueriesTest, AFallingSphereHitsInTime) {
  constexpr double kGravity = 9.81;
  constexpr double kRadius_m = 0.05;
  constexpr double kStep_s = 5e-4;
  CcdOptions options;
  options.tolerance = 1e-7;
  PALPATE_TEST_ASSIGN(CcdQueries queries, CcdQueries::Create(context(), options));
  for (const double height_m : {0.05, 0.3, 1.7}) {
    const auto center_z = [&](int step) { return kRadius_m + height_m - kGravity / 2 * std::pow(step * kStep_s, 2); };
    const double expected_s = std::sqrt(2 * height_m / kGravity);
    double hit_s = -1;
    for (int step = std::max(0, static_cast<int>(expected_s / kStep_s) - 40); hit_s < 0 && step * kStep_s < 1; ++step) {
      std::vector<double> coordinates;
      for (int i = 0; i < 64; ++i) {
        const double turn = 0.1 * i;
        const double down = M_PI * i / 64;
        const Double3 arm = {kRadius_m * std::sin(down) * std::cos(turn), kRadius_m * std::sin(down) * std::sin(turn),
                             -kRadius_m * std::cos(down)};
        for (const int at : {step, step + 1}) {
          for (const Double3& p :
               {Double3{arm[0], arm[1], center_z(at) + arm[2]}, Double3{-2, -2, 0}, Double3{2, -2, 0}, Double3{0, 3, 0}}) {
            coordinates.insert(coordinates.end(), p.begin(), p.end());
          }
        }
      }
      PALPATE_TEST_ASSIGN(const std::vector<CcdAnswer> answers, queries.Run(queue(), PALPATE_VERTEX_TRIANGLE, coordinates));
      float earliest = 2;
      for (const CcdAnswer& answer : answers) {
        if (answer.is_hit != 0) earliest = std::min(earliest, answer.toi);
      }
      if (earliest <= 1) hit_s = (step + static_cast<double>(earliest)) * kStep_s;
    }
    EXPECT_NEAR(hit_s, expected_s, 1e-6) << height_m << " m";
  }
}

}  // namespace
}  // namespace palpate::gpu::ccd_queries_test
