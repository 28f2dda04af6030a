// Crossings of edges and triangles against every pair in exact integers.
#include "gpu/collision/intersections.h"

#include <limits>

#include "tests/gpu/collision/surface_models.h"

namespace palpate::gpu::intersections_test {
namespace {

__extension__ typedef __int128 Exact;
using Lattice = std::array<int64_t, 3>;

// Coordinates are multiples of 2^-20 below 2^3 in these tests, so that the determinant fits.
constexpr double kLatticePerUnit = 1 << 20;

Lattice OnLattice(const Float4& p) {
  const Lattice l = {std::llround(p.x * kLatticePerUnit), std::llround(p.y * kLatticePerUnit), std::llround(p.z * kLatticePerUnit)};
  EXPECT_EQ(static_cast<double>(l[0]), p.x * kLatticePerUnit);
  return l;
}

int Sign(const Lattice& a, const Lattice& b, const Lattice& c, const Lattice& d) {
  const auto sub = [](const Lattice& x, const Lattice& y) { return std::array<Exact, 3>{x[0] - y[0], x[1] - y[1], x[2] - y[2]}; };
  const auto u = sub(b, a);
  const auto v = sub(c, a);
  const auto w = sub(d, a);
  const Exact det = u[0] * (v[1] * w[2] - v[2] * w[1]) + u[1] * (v[2] * w[0] - v[0] * w[2]) + u[2] * (v[0] * w[1] - v[1] * w[0]);
  return det > 0 ? 1 : det < 0 ? -1 : 0;
}

struct Expected {
  std::vector<UInt2> crossings;
  uint32_t touching = 0;
  std::vector<uint32_t> flags;
};

Expected BruteForce(const SurfaceTopology& s, const std::vector<Float4>& positions) {
  std::vector<Lattice> x;
  for (const Float4& p : positions) x.push_back(OnLattice(p));
  Expected expected;
  expected.flags.assign(s.triangles.size(), 0);
  for (uint32_t e = 0; e < s.edges.size(); ++e) {
    for (uint32_t t = 0; t < s.triangles.size(); ++t) {
      const auto [p, q] = std::pair(s.edges[e].x, s.edges[e].y);
      const UInt4& c = s.triangles[t];
      if (s.edge_groups[e] == s.groups[t] && (s.groups[t] & PALPATE_GROUP_SELF) == 0) continue;
      if (p == c.x || p == c.y || p == c.z || q == c.x || q == c.y || q == c.z) continue;
      const int side_p = Sign(x[c.x], x[c.y], x[c.z], x[p]);
      const int side_q = Sign(x[c.x], x[c.y], x[c.z], x[q]);
      const std::array<int, 3> turn = {Sign(x[p], x[q], x[c.x], x[c.y]), Sign(x[p], x[q], x[c.y], x[c.z]),
                                       Sign(x[p], x[q], x[c.z], x[c.x])};
      const auto [low, high] = std::minmax_element(turn.begin(), turn.end());
      if (side_p == side_q || *low * *high < 0) continue;
      if (side_p * side_q < 0 && *low * *high > 0 && turn[0] * turn[1] * turn[2] != 0) {
        expected.crossings.push_back({e, t});
        expected.flags[t] |= IntersectionCounter::kPierced;
        for (uint32_t k = s.edge_triangle_begin[e]; k < s.edge_triangle_begin[e + 1]; ++k) {
          expected.flags[s.edge_triangles[k]] |= IntersectionCounter::kPiercing;
        }
      } else {
        ++expected.touching;
      }
    }
  }
  return expected;
}

class IntersectionsTest : public SurfaceTest {
 protected:
  static Float4 Snap(Float4 p, double step) {
    const auto snap = [&](float v) { return static_cast<float>(std::round(v / step) * step); };
    return {snap(p.x), snap(p.y), snap(p.z), 0};
  }

  /// Compares with brute force; returns what was expected.
  Expected Check(const Model& model) {
    Expected expected;
    [&] {
      PALPATE_TEST_ASSIGN(const SurfaceTopology surface, model.Topology());
      PALPATE_TEST_ASSIGN(const DeviceSurface device, DeviceSurface::Upload(queue(), surface));
      PALPATE_TEST_ASSIGN(IntersectionCounter counter, IntersectionCounter::Create(context()));
      const auto positions = Upload(model.positions);
      PALPATE_ASSERT_OK(counter.Run(queue(), device, positions));
      expected = BruteForce(surface, model.positions);
      ASSERT_EQ(counter.crossing_count(), expected.crossings.size());
      ASSERT_EQ(counter.touching_count(), expected.touching);
      ASSERT_EQ(Download(counter.crossings(), expected.crossings.size()), expected.crossings);
      ASSERT_EQ(Download(counter.triangle_flags(), expected.flags.size()), expected.flags);
    }();
    return expected;
  }
};

TEST_F(IntersectionsTest, SoupEqualsExactCount) {
  for (const uint64_t seed : {1, 2, 3}) {
    Model model;
    AddSoup(&model, 200, 0.5, 1, seed, true);
    AddSoup(&model, 50, 0.5, 1, seed + 10, false);
    for (Float4& p : model.positions) p = Snap(p, 1 / kLatticePerUnit);
    EXPECT_GT(Check(model).crossings.size(), 100U);
    ASSERT_FALSE(HasFatalFailure());
  }
}

// On a coarse lattice most triples are collinear or coplanar somewhere: ends on faces, edges through edges and corners, all in one plane.
TEST_F(IntersectionsTest, CoarseLatticeIsFullOfDegenerateCases) {
  for (const double step : {1.0, 0.5, 0.25}) {
    Model model;
    AddSoup(&model, 150, 1.5, 1, 5, true);
    AddSoup(&model, 50, 2, 1, 6, true);
    for (Float4& p : model.positions) p = Snap(p, step);
    const Expected expected = Check(model);
    EXPECT_GT(expected.crossings.size(), 100U);
    EXPECT_GT(expected.touching, 100U);
    ASSERT_FALSE(HasFatalFailure());
  }
}

TEST_F(IntersectionsTest, SurfaceThatPassesThroughItself) {
  Model model;
  AddTrefoil(&model, 60, 8, 1.2, true);  // strands thicker than their distance
  for (Float4& p : model.positions) p = Snap(p, 1 / kLatticePerUnit);
  EXPECT_GT(Check(model).crossings.size(), 20U);

  Model off = model;
  off.self[0] = false;
  EXPECT_EQ(Check(off).crossings.size(), 0U);

  Model thin;
  AddTrefoil(&thin, 60, 8, 0.3, true);
  for (Float4& p : thin.positions) p = Snap(p, 1 / kLatticePerUnit);
  EXPECT_EQ(Check(thin).crossings.size(), 0U);
}

TEST_F(IntersectionsTest, NeighboursWithACommonVertexCrossByTheirOppositeEdge) {
  // Two triangles that share vertex 0; the edge of the second opposite it passes through the first, or beside it.
  for (const bool crosses : {true, false}) {
    Model model;
    const double y = crosses ? 0.25 : -1;
    model.Add({Point(0, 0, 0), Point(1, 0, 0), Point(0, 1, 0), Point(0.25, y, -1), Point(0.25, y, 1)}, {{0, 1, 2}, {0, 3, 4}}, true);
    EXPECT_EQ(Check(model).crossings.size(), crosses ? 1U : 0U);
  }
}

TEST_F(IntersectionsTest, FlatSheetHasNone) {
  Model model;
  AddSheet(
      &model, 10, 10, [](double u, double v) { return Point(std::round(u * 64) / 64, std::round(v * 64) / 64, 0.125); }, true);
  const Expected expected = Check(model);
  EXPECT_EQ(expected.crossings.size(), 0U);
  EXPECT_EQ(expected.touching, 0U);
}

TEST_F(IntersectionsTest, ManyCrossingsGrowTheList) {
  Model model;
  AddSoup(&model, 300, 1, 0.25, 9, true);
  for (Float4& p : model.positions) p = Snap(p, 1 / kLatticePerUnit);
  EXPECT_GT(Check(model).crossings.size(), 4096U);
}

TEST_F(IntersectionsTest, WrongInputIsRefused) {
  Model model;
  AddSoup(&model, 300, 1, 0.25, 9, true);
  PALPATE_TEST_ASSIGN(const SurfaceTopology surface, model.Topology());
  PALPATE_TEST_ASSIGN(const DeviceSurface device, DeviceSurface::Upload(queue(), surface));
  {
    PALPATE_TEST_ASSIGN(IntersectionCounter counter, IntersectionCounter::Create(context(), {.max_crossings = 100}));
    EXPECT_TRUE(absl::IsResourceExhausted(counter.Run(queue(), device, Upload(model.positions))));
    EXPECT_EQ(counter.crossing_count(), 0U);
  }
  PALPATE_TEST_ASSIGN(IntersectionCounter counter, IntersectionCounter::Create(context()));
  EXPECT_TRUE(absl::IsInvalidArgument(counter.Run(queue(), device, Allocate<Float4>(5))));
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(), 1e9F}) {
    std::vector<Float4> positions = model.positions;
    positions[31].y = positions[17].z = bad;
    const absl::Status status = counter.Run(queue(), device, Upload(positions));
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_NE(status.message().find("vertex 17 "), absl::string_view::npos) << status;
  }
  EXPECT_TRUE(absl::IsInvalidArgument(IntersectionCounter::Create(context(), {.max_crossings = 0}).status()));
}

TEST_F(IntersectionsTest, NoTrianglesHaveNoCrossings) {
  Model model;
  PALPATE_TEST_ASSIGN(const SurfaceTopology surface, model.Topology());
  PALPATE_TEST_ASSIGN(const DeviceSurface device, DeviceSurface::Upload(queue(), surface));
  PALPATE_TEST_ASSIGN(IntersectionCounter counter, IntersectionCounter::Create(context()));
  PALPATE_ASSERT_OK(counter.Run(queue(), device, Allocate<Float4>(0)));
  EXPECT_EQ(counter.crossing_count(), 0U);
}

}  // namespace
}  // namespace palpate::gpu::intersections_test
