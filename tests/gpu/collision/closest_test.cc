// Nearest points of elements (closest.clh) against least squares over every feature in double.
#include <Eigen/Dense>
#include <bit>
#include <limits>
#include <sstream>

#include "tests/gpu/collision/surface_models.h"

namespace palpate::gpu::closest_test {
namespace {

using Eigen::Vector3d;
using Quad = std::array<Vector3d, 4>;  // v, t0, t1, t2 or p0, p1, q0, q1

/// Distance of the hulls of two sets of points, by trying each pair of faces (subsets of corners) as a least-squares problem.
double HullDistance(const std::vector<Vector3d>& a, const std::vector<Vector3d>& b) {
  double best = std::numeric_limits<double>::max();
  for (unsigned subset_a = 1; subset_a < 1U << a.size(); ++subset_a) {
    for (unsigned subset_b = 1; subset_b < 1U << b.size(); ++subset_b) {
      std::vector<Vector3d> columns;
      std::vector<Vector3d> first;
      for (const auto& [points, subset, sign] : {std::tuple(&a, subset_a, -1.0), std::tuple(&b, subset_b, 1.0)}) {
        const Vector3d* origin = nullptr;
        for (size_t i = 0; i < points->size(); ++i) {
          if ((subset >> i & 1) == 0) continue;
          if (origin == nullptr) {
            origin = &(*points)[i];
          } else {
            columns.push_back(sign * ((*points)[i] - *origin));
          }
        }
        first.push_back(*origin);
      }
      const Vector3d constant = first[1] - first[0];
      if (columns.empty()) {
        best = std::min(best, constant.norm());
        continue;
      }
      Eigen::MatrixXd m(3, columns.size());
      for (size_t i = 0; i < columns.size(); ++i) m.col(static_cast<Eigen::Index>(i)) = columns[i];
      const Eigen::VectorXd w = m.completeOrthogonalDecomposition().solve(-constant);
      const auto count_a = static_cast<Eigen::Index>(std::popcount(subset_a) - 1);
      const bool feasible = (w.array() >= 0).all() && w.head(count_a).sum() <= 1 && w.tail(w.size() - count_a).sum() <= 1;
      if (feasible) best = std::min(best, (m * w + constant).norm());
    }
  }
  return best;
}

class ClosestTest : public SurfaceTest {
 protected:
  static Vector3d Rounded(const Vector3d& v) {
    // Through memory: gcc 12 drops the rounding of a vectorised cast to float and back.
    volatile float rounded[3] = {static_cast<float>(v.x()), static_cast<float>(v.y()), static_cast<float>(v.z())};
    return {rounded[0], rounded[1], rounded[2]};
  }
  Vector3d Random(double scale = 1) { return scale * Vector3d(uniform_(random_), uniform_(random_), uniform_(random_)); }

  /// The distance may be off by `absolute` of the size of the case and `relative` of itself.
  void Check(std::vector<Quad> quads, bool is_edge_edge, double absolute = 1e-6, double relative = 1e-5) {
    std::vector<Float4> positions;
    std::vector<UInt4> vertices;
    for (Quad& quad : quads) {
      const auto first = static_cast<uint32_t>(positions.size());
      vertices.push_back({first, first + 1, first + 2, first + 3});
      for (Vector3d& p : quad) {
        p = Rounded(p);
        positions.push_back(Point(p.x(), p.y(), p.z()));
      }
    }
    for (const int lanes : {1, 8, 16}) {
      const std::vector<ProbeResult> results = Probe(vertices, positions, is_edge_edge, lanes);
      for (size_t i = 0; i < quads.size(); ++i) {
        const Quad& x = quads[i];
        const ProbeResult& r = results[i];
        const double expected = is_edge_edge ? HullDistance({x[0], x[1]}, {x[2], x[3]}) : HullDistance({x[0]}, {x[1], x[2], x[3]});
        double size = 0;
        for (int k = 1; k < 4; ++k) size = std::max(size, (x[k] - x[0]).norm());
        const double distance = std::sqrt(static_cast<double>(r.offset.w));
        const auto where = [&] {
          std::ostringstream out;
          out.precision(9);
          for (const Vector3d& p : x) out << "(" << p.transpose() << ") ";
          out << "case " << i << ", lanes " << lanes << ", s " << r.s << ", t " << r.t << ", expected " << expected;
          return out.str();
        };
        ASSERT_NEAR(distance, expected, absolute * size + relative * expected) << where();
        ASSERT_GE(r.s, 0) << where();
        ASSERT_GE(r.t, 0) << where();
        ASSERT_LE(is_edge_edge ? std::max(r.s, r.t) : r.s + r.t, 1 + 1e-6) << where();
        const double s = r.s;
        const double t = r.t;
        const Vector3d offset = is_edge_edge ? Vector3d(x[2] + t * (x[3] - x[2]) - x[0] - s * (x[1] - x[0]))
                                             : Vector3d((1 - s - t) * x[1] + s * x[2] + t * x[3] - x[0]);
        ASSERT_NEAR((offset - Vector3d(r.offset.x, r.offset.y, r.offset.z)).norm(), 0, 1e-6 * size) << where();
      }
    }
  }

  std::mt19937_64 random_{7};
  std::uniform_real_distribution<double> uniform_{-1, 1};
#ifdef PALPATE_NATIVE_KERNELS
  static constexpr int kCases = 300;
#else
  static constexpr int kCases = 5000;
#endif
};

TEST_F(ClosestTest, RandomElementsMatchTheReference) {
  for (const bool is_edge_edge : {false, true}) {
    std::vector<Quad> quads;
    for (int i = 0; i < kCases; ++i) {
      const double scale = std::pow(10, 5 * uniform_(random_));
      const Vector3d far = i % 3 == 0 ? Random(scale * 1e3) : Vector3d(0, 0, 0);
      quads.push_back({far + Random(scale), far + Random(scale), far + Random(scale), far + Random(scale)});
    }
    Check(quads, is_edge_edge);
    ASSERT_FALSE(HasFatalFailure());
  }
}

// Needles, slivers, corners in one point or on one line.
TEST_F(ClosestTest, DegenerateTrianglesMatchTheReference) {
  std::vector<Quad> quads;
  for (int i = 0; i < kCases; ++i) {
    const Vector3d a = Random();
    const Vector3d along = Random();
    const double thin = i % 2 == 0 ? 0 : std::pow(10, -3.5 + 3.5 * uniform_(random_));
    const Vector3d b = i % 7 == 0 ? a : Vector3d(a + along);
    const Vector3d c = i % 5 == 0 ? b : Vector3d(a + uniform_(random_) * 2 * along + thin * Random());
    const Vector3d p = i % 3 == 0   ? Random()
                       : i % 3 == 1 ? Vector3d(a + 0.5 * (b - a))
                                    : Vector3d(0.2 * a + 0.3 * b + 0.5 * c + 0.1 * Random());
    quads.push_back({p, a, b, c});
  }
  Check(quads, false);
}

TEST_F(ClosestTest, VertexOnTheTriangleMatchesTheReference) {
  std::vector<Quad> quads;
  for (int i = 0; i < kCases; ++i) {
    const Vector3d a = Rounded(Random());
    const Vector3d b = Rounded(Random());
    const Vector3d c = Rounded(Random());
    const double u = 0.5 + 0.5 * uniform_(random_);
    const double v = (1 - u) * (0.5 + 0.5 * uniform_(random_));
    const std::array<Vector3d, 4> points = {a, Vector3d(a + u * (b - a)), Vector3d(c), Vector3d(a + u * (b - a) + v * (c - a))};
    quads.push_back({points[i % 4], a, b, c});
  }
  Check(quads, false);
}

TEST_F(ClosestTest, NearlyParallelEdgesMatchTheReference) {
  std::vector<Quad> quads;
  for (int i = 0; i < kCases; ++i) {
    const Vector3d p = Random();
    const Vector3d d = Random();
    const double angle = i % 4 == 0 ? 0 : std::pow(10, -5 + 4 * uniform_(random_));
    const double gap = std::pow(10, -3 + 3 * uniform_(random_));
    const Vector3d q = p + uniform_(random_) * 2 * d + gap * Random();
    const Vector3d e = (i % 2 == 0 ? 1.0 : -1.0) * (1.5 + uniform_(random_)) * d + angle * Random();
    quads.push_back({p, p + d, q, q + e});
  }
  Check(quads, true, 6e-6, 2e-4);  // what edges cost that are taken as parallel
}

// Edges without length, on one line, overlapping, end to end, equal.
TEST_F(ClosestTest, DegenerateEdgesMatchTheReference) {
  std::vector<Quad> quads;
  for (int i = 0; i < kCases; ++i) {
    const Vector3d p = Random();
    const Vector3d d = i % 3 == 0 ? Vector3d(0, 0, 0) : Random();
    const Vector3d q = i % 2 == 0 ? Random() : Vector3d(p + uniform_(random_) * 2 * d);
    const Vector3d e = i % 5 == 0 ? Vector3d(0, 0, 0) : i % 5 == 1 ? Vector3d(uniform_(random_) * d) : i % 5 == 2 ? d : Random();
    quads.push_back({p, p + d, q, q + e});
  }
  Check(quads, true, 6e-6, 2e-4);  // what edges cost that are taken as parallel
}

TEST_F(ClosestTest, ParallelEdgesMeetInTheMiddleOfWhereTheyFace) {
  const std::vector<Float4> positions = {Point(0, 0, 0), Point(1, 0, 0),   Point(0.5, 1, 0), Point(2, 1, 0),
                                         Point(2, 1, 0), Point(0.5, 1, 0), Point(1.5, 1, 0), Point(2, 1, 0)};
  // Same direction, opposite, and one past the end of the other.
  const std::vector<ProbeResult> results = Probe({{0, 1, 2, 3}, {0, 1, 4, 5}, {0, 1, 6, 7}}, positions, true, 1);
  EXPECT_FLOAT_EQ(results[0].s, 0.75F);
  EXPECT_FLOAT_EQ(results[0].t, 0.25F / 1.5F);
  EXPECT_FLOAT_EQ(results[1].s, 0.75F);
  EXPECT_FLOAT_EQ(results[1].t, 1.25F / 1.5F);
  EXPECT_FLOAT_EQ(results[2].s, 1);
  EXPECT_FLOAT_EQ(results[2].t, 0);
  for (int i = 0; i < 2; ++i) {
    EXPECT_FLOAT_EQ(results[i].offset.y, 1);
    EXPECT_FLOAT_EQ(results[i].offset.w, 1);
    EXPECT_FALSE(results[i].is_interior);  // the direction is not that of the common perpendicular
  }
  EXPECT_FLOAT_EQ(results[2].offset.w, 1.25F);
}

TEST_F(ClosestTest, FindsTheNearestPointInEachRegionOfTheTriangle) {
  const std::vector<Float4> positions = {Point(0, 0, 0),  Point(4, 0, 0),  Point(0, 4, 0),   Point(1, 1, 2),  Point(3, 3, 1),
                                         Point(-1, 5, 0), Point(-1, 2, 0), Point(-1, -1, 1), Point(2, -1, 0), Point(5, -1, 0)};
  std::vector<UInt4> vertices;
  for (uint32_t v = 3; v < 10; ++v) vertices.push_back({v, 0, 1, 2});
  // Inside; beyond the slanted edge; corner 2; edge 0-2; corner 0; edge 0-1; corner 1.
  const std::vector<std::array<float, 4>> expected = {{0.25F, 0.25F, 4, 1}, {0.5F, 0.5F, 3, 0}, {0, 1, 2, 0}, {0, 0.5F, 1, 0},
                                                      {0, 0, 3, 0},         {0.5F, 0, 1, 0},    {1, 0, 2, 0}};
  const std::vector<ProbeResult> results = Probe(vertices, positions, false, 1);
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_FLOAT_EQ(results[i].s, expected[i][0]) << i;
    EXPECT_FLOAT_EQ(results[i].t, expected[i][1]) << i;
    EXPECT_FLOAT_EQ(results[i].offset.w, expected[i][2]) << i;
    EXPECT_EQ(results[i].is_interior, expected[i][3] != 0) << i;
  }
}

}  // namespace
}  // namespace palpate::gpu::closest_test
