// Continuous collision detection of whole meshes against single queries of all pairs.
#include "gpu/collision/ccd.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <set>
#include <tuple>
#include <vector>

#include "tests/support/device_test.h"

namespace palpate::gpu {
namespace {

using Key = std::tuple<uint32_t, uint32_t, uint32_t>;
using Double3 = std::array<double, 3>;

struct Scene {
  std::vector<Float4> starts, ends;
  std::vector<std::vector<std::array<uint32_t, 3>>> bodies;
  std::vector<bool> meets_itself;

  absl::StatusOr<SurfaceTopology> Topology() const {
    std::vector<SurfaceBody> surface;
    for (size_t b = 0; b < bodies.size(); ++b) {
      surface.push_back({.triangles = bodies[b], .body = static_cast<uint32_t>(b), .self_collision = meets_itself[b]});
    }
    return SurfaceTopology::Build(static_cast<uint32_t>(starts.size()), surface);
  }
};

bool MayMeet(uint32_t group_a, uint32_t group_b) { return group_a != group_b || (group_a & PALPATE_GROUP_SELF) != 0; }

// Along one of the 9 directions of the filter, one element is below the other at both ends of the step. The sums are exact for the
// coordinates of these tests.
bool AreApart(const std::vector<Double3>& a, const std::vector<Double3>& b, const std::vector<Double3>& a_end,
              const std::vector<Double3>& b_end) {
  static constexpr int kDirections[9][3] = {{1, 0, 0}, {0, 1, 0},  {0, 0, 1}, {1, 1, 0}, {1, -1, 0},
                                            {1, 0, 1}, {1, 0, -1}, {0, 1, 1}, {0, 1, -1}};
  for (const auto& n : kDirections) {
    const auto range = [&](const std::vector<Double3>& points) {
      double low = 1e300, high = -1e300;
      for (const Double3& p : points) {
        const double x = n[0] * p[0] + n[1] * p[1] + n[2] * p[2];
        low = std::min(low, x);
        high = std::max(high, x);
      }
      return std::pair(low, high);
    };
    const auto [a0, a1] = range(a);
    const auto [b0, b1] = range(b);
    const auto [c0, c1] = range(a_end);
    const auto [d0, d1] = range(b_end);
    if ((a1 < b0 && c1 < d0) || (b1 < a0 && d1 < c0)) return true;
  }
  return false;
}

class CcdTest : public test::DeviceTest {
 protected:
  ContinuousCollisions Create(const CcdDetectorOptions& options = {}) {
    auto detector = ContinuousCollisions::Create(context(), options);
    EXPECT_TRUE(detector.ok()) << detector.status();
    return *std::move(detector);
  }

  std::vector<CcdHit> Hits(ContinuousCollisions& detector) {
    std::vector<CcdHit> hits(detector.hit_count());
    if (!hits.empty()) PALPATE_EXPECT_OK(queue().ReadBlocking(detector.hit_buffer(), hits));
    return hits;
  }

  std::vector<CcdHit> Run(ContinuousCollisions& detector, const Scene& scene) {
    const auto topology = scene.Topology();
    EXPECT_TRUE(topology.ok()) << topology.status();
    PALPATE_EXPECT_OK(detector.SetTopology(queue(), *topology));
    const auto starts = Upload(scene.starts);
    const auto ends = Upload(scene.ends);
    PALPATE_EXPECT_OK(detector.Run(queue(), starts, ends));
    return Hits(detector);
  }

  static std::set<Key> KeysOf(const std::vector<CcdHit>& hits) {
    std::set<Key> keys;
    for (const CcdHit& hit : hits) keys.insert({hit.kind, hit.a, hit.b});
    return keys;
  }

  // Compares a run with all pairs one by one.
  void ExpectSameAsAllPairs(const Scene& scene, CcdDetectorOptions options, bool expect_hits = true) {
    ContinuousCollisions detector = Create(options);
    const std::vector<CcdHit> hits = Run(detector, scene);
    const std::set<Key> found = KeysOf(hits);
    EXPECT_EQ(found.size(), hits.size()) << "a pair is reported twice";
    EXPECT_TRUE(std::is_sorted(hits.begin(), hits.end(), [](const CcdHit& x, const CcdHit& y) {
      return Key{x.kind, x.a, x.b} < Key{y.kind, y.a, y.b};
    }));
    if (expect_hits) {
      EXPECT_FALSE(hits.empty());
    }

    const SurfaceTopology topology = *scene.Topology();
    float earliest = 1;
    uint64_t candidates[2] = {};
    for (const uint32_t kind : {PALPATE_VERTEX_TRIANGLE, PALPATE_EDGE_EDGE}) {
      std::vector<double> coordinates;
      std::vector<UInt2> pairs;
      std::vector<bool> apart;
      const bool is_edges = kind == PALPATE_EDGE_EDGE;
      const size_t a_count = is_edges ? topology.edges.size() : topology.vertex_count;
      const size_t b_count = is_edges ? topology.edges.size() : topology.triangles.size();
      for (uint32_t a = 0; a < a_count; ++a) {
        for (uint32_t b = is_edges ? a + 1 : 0; b < b_count; ++b) {
          std::vector<uint32_t> va, vb;
          if (is_edges) {
            va = {topology.edges[a].x, topology.edges[a].y};
            vb = {topology.edges[b].x, topology.edges[b].y};
            if (!MayMeet(topology.edge_groups[a], topology.edge_groups[b])) continue;
          } else {
            va = {a};
            vb = {topology.triangles[b].x, topology.triangles[b].y, topology.triangles[b].z};
            if (topology.vertex_groups[a] == SurfaceTopology::kNoGroup) continue;
            if (!MayMeet(topology.vertex_groups[a], topology.groups[b])) continue;
          }
          if (std::find_first_of(va.begin(), va.end(), vb.begin(), vb.end()) != va.end()) continue;
          std::vector<Double3> points[4];
          for (size_t side = 0; side < 2; ++side) {
            const std::vector<Float4>& positions = side == 0 ? scene.starts : scene.ends;
            for (const auto* vertices : {&va, &vb}) {
              for (const uint32_t v : *vertices) {
                const Double3 p = {positions[v].x, positions[v].y, positions[v].z};
                points[2 * side + (vertices == &vb ? 1 : 0)].push_back(p);
                coordinates.insert(coordinates.end(), p.begin(), p.end());
              }
            }
          }
          pairs.push_back({a, b});
          apart.push_back(AreApart(points[0], points[1], points[2], points[3]));
          // Swept boxes.
          bool overlaps = true;
          for (size_t k = 0; k < 3; ++k) {
            double low[2] = {1e300, 1e300}, high[2] = {-1e300, -1e300};
            for (size_t i = 0; i < 4; ++i) {
              for (const Double3& p : points[i]) {
                low[i % 2] = std::min(low[i % 2], p[k]);
                high[i % 2] = std::max(high[i % 2], p[k]);
              }
            }
            overlaps = overlaps && low[0] <= high[1] && low[1] <= high[0];
          }
          candidates[kind] += overlaps ? 1 : 0;
        }
      }
      auto queries = CcdQueries::Create(context(), options);
      ASSERT_TRUE(queries.ok()) << queries.status();
      PALPATE_TEST_ASSIGN(const std::vector<CcdAnswer> answers, queries->Run(queue(), kind, coordinates));
      for (size_t i = 0; i < pairs.size(); ++i) {
        const bool is_found = found.contains({kind, pairs[i].x, pairs[i].y});
        if (answers[i].is_hit == 0) {
          EXPECT_FALSE(is_found) << "kind " << kind << " pair " << pairs[i].x << " " << pairs[i].y;
        } else if (!is_found) {
          // The filter may know better, with reason.
          EXPECT_TRUE(apart[i] && options.separation_m == 0) << "kind " << kind << " pair " << pairs[i].x << " " << pairs[i].y;
        } else {
          earliest = std::min(earliest, answers[i].toi);
        }
      }
    }
    EXPECT_EQ(detector.statistics().earliest_toi, earliest);
    EXPECT_EQ(detector.statistics().hits[0] + detector.statistics().hits[1], hits.size());
    for (size_t kind = 0; kind < 2; ++kind) {
      if (options.separation_m == 0) {
        EXPECT_EQ(detector.statistics().candidates[kind], candidates[kind]);
      }
      EXPECT_LE(detector.statistics().pairs[kind], detector.statistics().candidates[kind]);
    }
    for (const CcdHit& hit : hits) {
      const double weights = hit.kind == PALPATE_EDGE_EDGE ? hit.weights.x + hit.weights.y + hit.weights.z + hit.weights.w
                                                           : hit.weights.x + hit.weights.y + hit.weights.z;
      EXPECT_NEAR(weights, hit.kind == PALPATE_EDGE_EDGE ? 2 : 1, 1e-5);
      EXPECT_NEAR(std::hypot(hit.normal.x, hit.normal.y, hit.normal.z), 1, 1e-5);
    }
  }

  // Bodies of triangles that share vertices now and then, of sizes from tiny to everything. `grid` > 0: coordinates are multiples of it.
  Scene Soup(size_t body_count, size_t triangles_per_body, double motion, double grid = 0, double scale = 1) {
    Scene scene;
    std::uniform_real_distribution<double> uniform(-1, 1);
    const auto point = [&](const Double3& centre, double extent) {
      Float4 p;
      float* const coordinates[3] = {&p.x, &p.y, &p.z};
      for (size_t k = 0; k < 3; ++k) {
        double x = centre[k] + extent * uniform(random_);
        if (grid > 0) x = grid * std::round(x / grid);
        *coordinates[k] = static_cast<float>(scale * x);
      }
      return p;
    };
    for (size_t b = 0; b < body_count; ++b) {
      scene.bodies.emplace_back();
      scene.meets_itself.push_back(b % 2 == 0);
      const auto first = static_cast<uint32_t>(scene.starts.size());
      for (size_t t = 0; t < triangles_per_body; ++t) {
        const Double3 centre = {uniform(random_), uniform(random_), uniform(random_)};
        const double extent = t % 16 == 0 ? 1 : 0.15;
        const Double3 moved = {centre[0] + motion * uniform(random_), centre[1] + motion * uniform(random_),
                               centre[2] + motion * uniform(random_)};
        for (size_t c = 0; c < 3; ++c) {
          scene.starts.push_back(point(centre, extent));
          scene.ends.push_back(point(moved, extent));
        }
        const auto last = static_cast<uint32_t>(scene.starts.size());
        std::array<uint32_t, 3> triangle = {last - 3, last - 2, last - 1};
        if (t % 3 == 1 && last - first > 6) triangle[0] = last - 5;
        scene.bodies.back().push_back(triangle);
      }
    }
    return scene;
  }

  std::mt19937_64 random_{11};
};

#ifdef PALPATE_NATIVE_KERNELS
constexpr size_t kTriangles = 24;
#else
constexpr size_t kTriangles = 90;
#endif

TEST_F(CcdTest, FindsWhatAllPairsFind) {
  ExpectSameAsAllPairs(Soup(1, kTriangles, 0.3), {});
  ExpectSameAsAllPairs(Soup(3, kTriangles / 2, 0.3), {});
  ExpectSameAsAllPairs(Soup(2, kTriangles, 0.0), {});
}

TEST_F(CcdTest, FindsWhatAllPairsFindWithSeparation) {
  CcdDetectorOptions options;
  options.separation_m = 0.02;
  ExpectSameAsAllPairs(Soup(2, kTriangles, 0.2), options);
}

TEST_F(CcdTest, FindsWhatAllPairsFindInFloat) {
  CcdDetectorOptions options;
  options.use_double = false;
  ExpectSameAsAllPairs(Soup(2, kTriangles, 0.3), options);
}

// Points on a coarse grid: coplanar, touching, coincident and flat elements everywhere.
TEST_F(CcdTest, FindsWhatAllPairsFindOnAGrid) {
  ExpectSameAsAllPairs(Soup(2, kTriangles / 2, 0.5, 0.25), {});
  ExpectSameAsAllPairs(Soup(2, kTriangles / 2, 0.5, 0.125, 0x1p20), {});
  ExpectSameAsAllPairs(Soup(2, kTriangles / 2, 0.5, 0.125, 0x1p-20), {});
}

TEST_F(CcdTest, CoincidentGeometryAndFullLists) {
  // All triangles in one place: each pair of elements without a common vertex touches from the start.
  Scene scene;
  scene.meets_itself = {true};
  scene.bodies.resize(1);
  const uint32_t count = kTriangles / 2;
  for (uint32_t t = 0; t < count; ++t) {
    for (uint32_t c = 0; c < 3; ++c) scene.starts.push_back({c == 1 ? 1.0F : 0.0F, c == 2 ? 1.0F : 0.0F, 0, 0});
    scene.bodies[0].push_back({3 * t, 3 * t + 1, 3 * t + 2});
  }
  scene.ends = scene.starts;
  ContinuousCollisions detector = Create();
  const std::vector<CcdHit> hits = Run(detector, scene);
  const uint64_t vertex_triangle = uint64_t{3} * count * (count - 1);
  const uint64_t edge_edge = uint64_t{9} * count * (count - 1) / 2;
  EXPECT_EQ(detector.statistics().hits[0], vertex_triangle);
  EXPECT_EQ(detector.statistics().hits[1], edge_edge);
  EXPECT_EQ(hits.size(), vertex_triangle + edge_edge);
  EXPECT_EQ(KeysOf(hits).size(), hits.size());
  EXPECT_EQ(detector.statistics().earliest_toi, 0);

  CcdDetectorOptions few;
  few.max_hits = 100;
  ContinuousCollisions small = Create(few);
  PALPATE_ASSERT_OK(small.SetTopology(queue(), *scene.Topology()));
  const auto positions = Upload(scene.starts);
  const absl::Status status = small.Run(queue(), positions, positions);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(status.message().find("max_hits"), absl::string_view::npos) << status;
  EXPECT_EQ(small.hit_count(), 0U);
  few.max_hits = 1 << 20;
  few.max_pairs = 100;
  small = Create(few);
  PALPATE_ASSERT_OK(small.SetTopology(queue(), *scene.Topology()));
  EXPECT_NE(small.Run(queue(), positions, positions).message().find("max_pairs"), absl::string_view::npos);
}

TEST_F(CcdTest, NothingWhereNothingMeets) {
  Scene scene;
  scene.meets_itself = {true, true};
  scene.bodies = {{{0, 1, 2}}, {{3, 4, 5}}};
  scene.starts = {{0, 0, 0, 0}, {1, 0, 0, 0}, {0, 1, 0, 0}, {0, 0, 0.5F, 0}, {1, 0, 0.5F, 0}, {0, 1, 0.5F, 0}};
  scene.ends = scene.starts;
  // Both move far, one through the place where the other was, and never meet.
  for (Float4& p : scene.ends) p.z -= 10;
  ContinuousCollisions detector = Create();
  EXPECT_TRUE(Run(detector, scene).empty());
  EXPECT_GT(detector.statistics().candidates[0], 0U);
  EXPECT_EQ(detector.statistics().pairs[0] + detector.statistics().pairs[1], 0U) << "the filter sees that the motion is common";
  EXPECT_EQ(detector.statistics().earliest_toi, 1);
  // Without triangles there is nothing to do.
  scene.bodies = {};
  scene.meets_itself = {};
  EXPECT_TRUE(Run(detector, scene).empty());
}

TEST_F(CcdTest, DoublePositions) {
  if (!context()->device().has_fp64) GTEST_SKIP() << "the device has no double";
  // A gap that floats do not see: 1e-9 at 100 m.
  const std::vector<double> starts = {100,   100,   100,        101, 100, 100, 100,   101, 100,
                                      100.2, 100.2, 100 + 1e-9, 101, 101, 101, 100.5, 101, 102};
  const std::array<std::array<uint32_t, 3>, 2> triangles = {{{0, 1, 2}, {3, 4, 5}}};
  const SurfaceBody body = {.triangles = triangles};
  PALPATE_TEST_ASSIGN(const SurfaceTopology topology, SurfaceTopology::Build(6, std::span(&body, 1)));
  ContinuousCollisions detector = Create();
  PALPATE_ASSERT_OK(detector.SetTopology(queue(), topology));
  const auto start_buffer = Upload(starts);
  PALPATE_ASSERT_OK(detector.RunDouble(queue(), start_buffer, start_buffer));
  EXPECT_EQ(detector.hit_count(), 0U);
  std::vector<double> ends = starts;
  ends[11] = 100 - 1e-9;
  const auto end_buffer = Upload(ends);
  PALPATE_ASSERT_OK(detector.RunDouble(queue(), start_buffer, end_buffer));
  const std::vector<CcdHit> hits = Hits(detector);
  ASSERT_EQ(hits.size(), 1U);
  EXPECT_EQ(hits[0].kind, PALPATE_VERTEX_TRIANGLE);
  EXPECT_EQ(hits[0].a, 3U);
  EXPECT_NEAR(hits[0].toi, 0.5, 1e-4);
  EXPECT_LT(hits[0].toi, 0.5001);
}

TEST_F(CcdTest, BadPositionsAreNamed) {
  Scene scene = Soup(2, 8, 0.1);
  scene.starts.push_back({NAN, NAN, NAN, 0});  // of no triangle
  scene.ends.push_back({INFINITY, 0, 0, 0});
  ContinuousCollisions detector = Create();
  Run(detector, scene);
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(), -2e30F}) {
    for (const bool at_end : {false, true}) {
      Scene broken = scene;
      (at_end ? broken.ends : broken.starts)[8].y = bad;
      const auto starts = Upload(broken.starts);
      const auto ends = Upload(broken.ends);
      const absl::Status status = detector.Run(queue(), starts, ends);
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
      EXPECT_NE(status.message().find("vertex 8 "), absl::string_view::npos) << status;
      EXPECT_EQ(detector.hit_count(), 0U);
    }
  }
}

TEST_F(CcdTest, SameInputSameBits) {
  const Scene scene = Soup(2, kTriangles, 0.3);
  ContinuousCollisions detector = Create();
  const std::vector<CcdHit> first = Run(detector, scene);
  ContinuousCollisions other = Create();
  const std::vector<CcdHit> second = Run(other, scene);
  ASSERT_EQ(first.size(), second.size());
  for (size_t i = 0; i < first.size(); ++i) {
    EXPECT_EQ(first[i].toi, second[i].toi);
    EXPECT_TRUE(first[i].weights == second[i].weights && first[i].normal == second[i].normal && first[i].vertices == second[i].vertices);
  }
}

TEST_F(CcdTest, WrongUseIsRefused) {
  ContinuousCollisions detector = Create();
  const auto positions = Upload(std::vector<Float4>(3));
  EXPECT_EQ(detector.Run(queue(), positions, positions).code(), absl::StatusCode::kFailedPrecondition);
  PALPATE_ASSERT_OK(detector.SetTopology(queue(), *Soup(1, 4, 0).Topology()));
  EXPECT_EQ(detector.Run(queue(), positions, positions).code(), absl::StatusCode::kInvalidArgument);
  CcdDetectorOptions bad;
  bad.max_pairs = 0;
  EXPECT_EQ(ContinuousCollisions::Create(context(), bad).status().code(), absl::StatusCode::kInvalidArgument);
  bad = {};
  bad.max_hits = 1ULL << 32;
  EXPECT_EQ(ContinuousCollisions::Create(context(), bad).status().code(), absl::StatusCode::kInvalidArgument);
  bad = {};
  bad.tolerance = 0.5;
  EXPECT_EQ(ContinuousCollisions::Create(context(), bad).status().code(), absl::StatusCode::kInvalidArgument);
  bad = {};
  bad.use_double = false;
  ContinuousCollisions in_float = Create(bad);
  const auto doubles = Upload(std::vector<double>(36));
  EXPECT_EQ(in_float.RunDouble(queue(), doubles, doubles).code(), absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace palpate::gpu
