// Continuous collision detection of whole meshes against single queries of all pairs.
#include "gpu/collision/ccd.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <set>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tests/support/device_test.h"

namespace palpate::gpu::ccd_test {
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

// What a hit says about where and from which side, in units of the pair's size.
struct HitGeometry {
  double gap_m = 0;        // between the points of the weights at the reported time
  double apart_m = 0;      // least distance along the normal of a corner of B from one of A at the reported time; negative: turned round
  double size_m = 0;       // largest coordinate of a corner of B seen from one of A, at either end
  double least_share = 0;  // smallest of the weights
};

HitGeometry Measure(const CcdHit& hit, const std::vector<Float4>& starts, const std::vector<Float4>& ends) {
  const uint32_t ids[4] = {hit.vertices.x, hit.vertices.y, hit.vertices.z, hit.vertices.w};
  const bool is_edges = hit.kind == PALPATE_EDGE_EDGE;
  Double3 p[3][4];  // at the start, at the end, at the time of impact
  for (size_t i = 0; i < 4; ++i) {
    const Float4 s = starts[ids[i]], e = ends[ids[i]];
    p[0][i] = {s.x, s.y, s.z};
    p[1][i] = {e.x, e.y, e.z};
    for (size_t k = 0; k < 3; ++k) p[2][i][k] = (1 - double{hit.toi}) * p[0][i][k] + double{hit.toi} * p[1][i][k];
  }
  const double w[4] = {hit.weights.x, hit.weights.y, hit.weights.z, hit.weights.w};
  const double n[3] = {hit.normal.x, hit.normal.y, hit.normal.z};
  const size_t a_count = is_edges ? 2 : 1;
  HitGeometry g;
  g.apart_m = std::numeric_limits<double>::infinity();
  g.least_share = *std::min_element(w, w + 4);
  double gap_sq = 0;
  for (size_t k = 0; k < 3; ++k) {
    const double on_a = is_edges ? w[0] * p[2][0][k] + w[1] * p[2][1][k] : p[2][0][k];
    const double on_b = is_edges ? w[2] * p[2][2][k] + w[3] * p[2][3][k] : w[0] * p[2][1][k] + w[1] * p[2][2][k] + w[2] * p[2][3][k];
    gap_sq += (on_b - on_a) * (on_b - on_a);
  }
  g.gap_m = std::sqrt(gap_sq);
  for (size_t a = 0; a < a_count; ++a) {
    for (size_t b = a_count; b < 4; ++b) {
      double along = 0;
      for (size_t k = 0; k < 3; ++k) {
        along += n[k] * (p[2][b][k] - p[2][a][k]);
        g.size_m = std::max({g.size_m, std::abs(p[0][b][k] - p[0][a][k]), std::abs(p[1][b][k] - p[1][a][k])});
      }
      g.apart_m = std::min(g.apart_m, along);
    }
  }
  return g;
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

  // Compares a run with all pairs one by one. `expect_less`: boxes leave out pairs, and the filter leaves out some of the others.
  void ExpectSameAsAllPairs(const Scene& scene, CcdDetectorOptions options, bool expect_hits = true, bool expect_less = false) {
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
      if (expect_less) {
        EXPECT_LT(2 * detector.statistics().candidates[kind], pairs.size()) << "swept boxes";
        EXPECT_LT(detector.statistics().pairs[kind], detector.statistics().candidates[kind]) << "the filter";
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
      // Where: the points of the weights are no farther apart at the reported time than what counts as contact. From which side: along the
      // normal no corner of B is behind one of A just before. What touches at the start was never apart.
      const HitGeometry g = Measure(hit, scene.starts, scene.ends);
      const double tolerance_m = (options.use_double ? kShareOfSize : kShareOfSizeInFloat) * g.size_m;
      EXPECT_GE(g.least_share, 0);
      EXPECT_LE(g.gap_m, options.separation_m + tolerance_m) << Describe(hit);
      if (hit.toi > 0) {
        EXPECT_GE(g.apart_m, options.separation_m - tolerance_m) << Describe(hit);
      }
    }
  }

  // Shares of a pair's size: a time that is early by the tolerance of 1e-6, and the rounding of the reported time, weights and normal to
  // float. In float, pairs are given up as hits some thousand roundings apart.
  static constexpr double kShareOfSize = 4e-6;
  static constexpr double kShareOfSizeInFloat = 4e-4;

  static std::string Describe(const CcdHit& hit) {
    return absl::StrFormat("kind %d, pair %d %d, toi %.9g, weights %g %g %g %g, normal %g %g %g", hit.kind, hit.a, hit.b, hit.toi,
                           hit.weights.x, hit.weights.y, hit.weights.z, hit.weights.w, hit.normal.x, hit.normal.y, hit.normal.z);
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
  ExpectSameAsAllPairs(Soup(1, kTriangles, 0.3), {}, true, true);
  ExpectSameAsAllPairs(Soup(3, kTriangles / 2, 0.3), {}, true, true);
  ExpectSameAsAllPairs(Soup(2, kTriangles, 0.0), {}, true, true);
}

// Batches so small that each search and each list is taken up many times.
TEST_F(CcdTest, FindsWhatAllPairsFindInSmallBatches) {
  CcdDetectorOptions options;
  options.batch_pairs = 256;
  ExpectSameAsAllPairs(Soup(2, kTriangles, 0.3), options);
  ExpectSameAsAllPairs(Soup(2, kTriangles / 2, 0.5, 0.25), options);
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

// Triangles (0, 1, 2) and (3, 4, 5) of two bodies, and one hit that is known.
struct KnownHit {
  const char* name;
  std::array<Double3, 6> starts, ends;
  double separation_m;
  uint32_t kind;
  UInt4 vertices;
  double toi;
  Float4 weights;
  Double3 normal;  // zero: not known
};

TEST_F(CcdTest, FindsKnownTimesWeightsAndNormals) {
  constexpr Double3 kO = {0, 0, 0}, kX = {1, 0, 0}, kY = {0, 1, 0};  // the triangle that vertex 0 meets
  constexpr Double3 kFar0 = {-4, 4, 6}, kFar1 = {4, 4, 7};           // other corners, which meet nothing
  constexpr Double3 kTip = {0.5, 0.125, 0.25}, kSlanted = {0.25, 0.125, 0.25};
  const double turned = std::hypot(1.2, 2);
  const KnownHit cases[] = {
      // A is the vertex, which is above: the normal points down.
      {"a vertex falls on a face",
       {kTip, kFar0, kFar1, kO, kX, kY},
       {Double3{0.5, 0.125, -0.25}, kFar0, kFar1, kO, kX, kY},
       0,
       PALPATE_VERTEX_TRIANGLE,
       {0, 3, 4, 5},
       0.5,
       {0.375F, 0.5F, 0.125F, 1},
       {0, 0, -1}},
      {"a face rises to a vertex",
       {kTip, kFar0, kFar1, kO, kX, kY},
       {kTip, kFar0, kFar1, Double3{0, 0, 1}, Double3{1, 0, 1}, Double3{0, 1, 1}},
       0,
       PALPATE_VERTEX_TRIANGLE,
       {0, 3, 4, 5},
       0.25,
       {0.375F, 0.5F, 0.125F, 1},
       {0, 0, -1}},
      // From 0.25 above to 0.25 below: 0.125 is left after a quarter of the step, over another point than where it would touch.
      {"a separation",
       {kSlanted, kFar0, kFar1, kO, kX, kY},
       {Double3{0.75, 0.125, -0.25}, kFar0, kFar1, kO, kX, kY},
       0.125,
       PALPATE_VERTEX_TRIANGLE,
       {0, 3, 4, 5},
       0.25,
       {0.5F, 0.375F, 0.125F, 1},
       {0, 0, -1}},
      // One corner of the face rises with the vertex, which touches at the start, is above the face until the middle of the step and
      // passes through it there. What counts is the start.
      {"a touch before a passage",
       {Double3{0.25, 0.125, 0}, kFar0, kFar1, kO, kX, kY},
       {Double3{0.75, 0.125, 0.5}, kFar0, kFar1, kO, Double3{1, 0, 1}, kY},
       0,
       PALPATE_VERTEX_TRIANGLE,
       {0, 3, 4, 5},
       0,
       {0.625F, 0.25F, 0.125F, 1},
       {0, 0, 0}},
      // Two corners of the face are one: it is an edge, which the vertex crosses.
      {"a face without area",
       {kTip, kFar0, kFar1, Double3{0, 0.125, 0}, Double3{0, 0.125, 0}, Double3{1, 0.125, 0}},
       {Double3{0.5, 0.125, -0.25}, kFar0, kFar1, Double3{0, 0.125, 0}, Double3{0, 0.125, 0}, Double3{1, 0.125, 0}},
       0,
       PALPATE_VERTEX_TRIANGLE,
       {0, 3, 4, 5},
       0.5,
       {0.5F, 0, 0.5F, 1},
       {0, 0, 0}},
      {"edges cross",
       {Double3{-1, 0, 1}, Double3{3, 0, 1}, kFar1, Double3{0, -1, 0}, Double3{0, 1, 0}, Double3{0, 0, -5}},
       {Double3{-1, 0, -1}, Double3{3, 0, -1}, kFar1, Double3{0, -1, 0}, Double3{0, 1, 0}, Double3{0, 0, -5}},
       0,
       PALPATE_EDGE_EDGE,
       {0, 1, 3, 4},
       0.5,
       {0.75F, 0.25F, 0.5F, 0.5F},
       {0, 0, -1}},
      // B comes from above and tilts on the way: at y = 0 its height is 3 - 5 t.
      {"an edge comes down and turns",
       {Double3{-1, 0, 0}, Double3{3, 0, 0}, Double3{0, 0, -5}, Double3{0, -1, 3}, Double3{0, 1, 3}, kFar1},
       {Double3{-1, 0, 0}, Double3{3, 0, 0}, Double3{0, 0, -5}, Double3{0, -1, -1}, Double3{0, 1, -3}, kFar1},
       0,
       PALPATE_EDGE_EDGE,
       {0, 1, 3, 4},
       0.6,
       {0.75F, 0.25F, 0.5F, 0.5F},
       {0, 1.2 / turned, 2 / turned}},
  };
  for (const KnownHit& known : cases) {
    for (const bool use_double : {true, false}) {
      SCOPED_TRACE(absl::StrCat(known.name, use_double ? "" : ", in float"));
      Scene scene;
      scene.bodies = {{{0, 1, 2}}, {{3, 4, 5}}};
      scene.meets_itself = {false, false};
      for (size_t i = 0; i < 6; ++i) {
        const auto to_float = [](const Double3& p) {
          return Float4{static_cast<float>(p[0]), static_cast<float>(p[1]), static_cast<float>(p[2]), 0};
        };
        scene.starts.push_back(to_float(known.starts[i]));
        scene.ends.push_back(to_float(known.ends[i]));
      }
      CcdDetectorOptions options;
      options.separation_m = known.separation_m;
      options.use_double = use_double;
      ContinuousCollisions detector = Create(options);
      const std::vector<CcdHit> hits = Run(detector, scene);
      const auto hit =
          std::find_if(hits.begin(), hits.end(), [&](const CcdHit& h) { return h.kind == known.kind && h.vertices == known.vertices; });
      if (hit == hits.end()) {
        ADD_FAILURE() << "not among the hits";
        continue;
      }
      EXPECT_LE(hit->toi, static_cast<float>(known.toi));
      EXPECT_NEAR(hit->toi, known.toi, use_double ? 1.1e-6 : 4e-6);
      const double got[4] = {hit->weights.x, hit->weights.y, hit->weights.z, hit->weights.w};
      const double expected[4] = {known.weights.x, known.weights.y, known.weights.z, known.weights.w};
      for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(got[i], expected[i], 4e-6) << Describe(*hit);
      if (known.normal == Double3{}) continue;
      EXPECT_NEAR(hit->normal.x, known.normal[0], 1e-5);
      EXPECT_NEAR(hit->normal.y, known.normal[1], 1e-5);
      EXPECT_NEAR(hit->normal.z, known.normal[2], 1e-5);
    }
  }
}

// `count` triangles without common vertices, all in one place. Each pair of elements touches from the start.
Scene Coincident(uint32_t count) {
  Scene scene;
  scene.meets_itself = {true};
  scene.bodies.resize(1);
  for (uint32_t t = 0; t < count; ++t) {
    for (uint32_t c = 0; c < 3; ++c) scene.starts.push_back({c == 1 ? 1.0F : 0.0F, c == 2 ? 1.0F : 0.0F, 0, 0});
    scene.bodies[0].push_back({3 * t, 3 * t + 1, 3 * t + 2});
  }
  scene.ends = scene.starts;
  return scene;
}

TEST_F(CcdTest, ListsAllOfCoincidentGeometryUpToTheLimits) {
  const uint32_t count = kTriangles / 2;
  const Scene scene = Coincident(count);
  const uint64_t vertex_triangle = uint64_t{3} * count * (count - 1);
  const uint64_t edge_edge = uint64_t{9} * count * (count - 1) / 2;
  for (const uint32_t batch_pairs : {CcdDetectorOptions().batch_pairs, 256U, 1000U}) {
    CcdDetectorOptions options;
    options.batch_pairs = batch_pairs;
    ContinuousCollisions detector = Create(options);
    const std::vector<CcdHit> hits = Run(detector, scene);
    EXPECT_EQ(detector.statistics().candidates[0], vertex_triangle);
    EXPECT_EQ(detector.statistics().pairs[1], edge_edge);
    EXPECT_EQ(detector.statistics().hits[0], vertex_triangle);
    EXPECT_EQ(detector.statistics().hits[1], edge_edge);
    EXPECT_EQ(hits.size(), vertex_triangle + edge_edge);
    EXPECT_EQ(KeysOf(hits).size(), hits.size());
    EXPECT_EQ(detector.statistics().earliest_toi, 0);
    for (const CcdHit& hit : hits) EXPECT_EQ(Measure(hit, scene.starts, scene.ends).gap_m, 0) << Describe(hit);
    EXPECT_TRUE(absl::IsFailedPrecondition(detector.Candidates(queue(), 0).status()));
  }

  // Each limit, exactly: one fewer than there is is refused by name, what there is is not.
  const auto positions = Upload(scene.starts);
  const auto run = [&](const CcdDetectorOptions& options) {
    ContinuousCollisions detector = Create(options);
    PALPATE_EXPECT_OK(detector.SetTopology(queue(), *scene.Topology()));
    const absl::Status status = detector.Run(queue(), positions, positions);
    EXPECT_EQ(detector.hit_count(), status.ok() ? vertex_triangle + edge_edge : 0);
    return status;
  };
  const uint64_t clusters = (3 * count + 15) / 16;
  const struct {
    uint64_t CcdDetectorOptions::*limit;
    uint64_t enough;
    const char* name;
  } kLimits[] = {{&CcdDetectorOptions::max_hits, vertex_triangle + edge_edge, "max_hits"},
                 {&CcdDetectorOptions::max_pairs, std::max(vertex_triangle, edge_edge), "max_pairs"},
                 {&CcdDetectorOptions::max_candidates, std::max(vertex_triangle, edge_edge), "max_candidates"},
                 {&CcdDetectorOptions::max_cluster_pairs, clusters * (clusters + 1) / 2, "max_cluster_pairs"}};
  for (const auto& [limit, enough, name] : kLimits) {
    for (const uint32_t batch_pairs : {CcdDetectorOptions().batch_pairs, 256U}) {
      CcdDetectorOptions options;
      options.batch_pairs = batch_pairs;
      options.*limit = enough;
      PALPATE_EXPECT_OK(run(options));
      for (const uint64_t less : {enough - 1, uint64_t{1}}) {
        options.*limit = less;
        const absl::Status status = run(options);
        EXPECT_TRUE(absl::IsResourceExhausted(status)) << name << ": " << status;
        EXPECT_NE(status.message().find(absl::StrCat(name, " = ", less, " ")), absl::string_view::npos) << status;
      }
    }
  }
}

#ifndef PALPATE_NATIVE_KERNELS
// More hits than the list is copied for: all are counted, then found again.
TEST_F(CcdTest, FindsHalfAMillionHitsInOrder) {
  constexpr uint64_t kCount = 260;
  ContinuousCollisions detector = Create();
  const Scene scene = Coincident(kCount);
  for (int run = 0; run < 2; ++run) {
    const std::vector<CcdHit> hits = Run(detector, scene);
    ASSERT_EQ(hits.size(), 3 * kCount * (kCount - 1) + 9 * kCount * (kCount - 1) / 2);
    EXPECT_EQ(detector.statistics().hits[0] + detector.statistics().hits[1], hits.size());
    EXPECT_EQ(detector.statistics().candidates[0], detector.statistics().hits[0]);
    uint64_t out_of_order = 0;
    for (size_t i = 1; i < hits.size(); ++i) {
      const Key before = {hits[i - 1].kind, hits[i - 1].a, hits[i - 1].b};
      out_of_order += before < Key{hits[i].kind, hits[i].a, hits[i].b} ? 0 : 1;
    }
    EXPECT_EQ(out_of_order, 0U);
  }
}
#endif

TEST_F(CcdTest, ListsGrowWithTheScene) {
  // One detector through scenes with a third more hits each: all of its lists must grow, whichever is full first.
  ContinuousCollisions detector = Create();
  for (uint32_t count = 4; count < 60; count += std::max(1U, count / 7)) {
    EXPECT_EQ(Run(detector, Coincident(count)).size(), 3 * count * (count - 1) + 9 * count * (count - 1) / 2) << count;
  }
}

TEST_F(CcdTest, ListsAllCandidates) {
  const Scene scene = Soup(2, kTriangles, 0.3);
  CcdDetectorOptions options;
  ContinuousCollisions whole = Create(options);
  Run(whole, scene);
  options.candidates_only = true;
  for (const uint32_t batch_pairs : {CcdDetectorOptions().batch_pairs, 256U}) {
    options.batch_pairs = batch_pairs;
    ContinuousCollisions lister = Create(options);
    EXPECT_TRUE(Run(lister, scene).empty());
    for (const uint32_t kind : {PALPATE_VERTEX_TRIANGLE, PALPATE_EDGE_EDGE}) {
      PALPATE_TEST_ASSIGN(const std::vector<UInt2> pairs, lister.Candidates(queue(), kind));
      std::set<std::pair<uint32_t, uint32_t>> different;
      for (const UInt2 pair : pairs) different.insert({pair.x, pair.y});
      EXPECT_EQ(different.size(), pairs.size());
      EXPECT_EQ(pairs.size(), whole.statistics().candidates[kind]);
    }
  }
}

// Thousands of triangles in one place, lying still or moving together, with the limits as they are: an error that names the limit, and no
// memory for what is refused. In a context of its own, whose peak is that of the run.
TEST_F(CcdTest, SlowLargeCoincidentGeometryIsRefused) {
  constexpr size_t kMiB = size_t{1} << 20;
  const struct {
    uint32_t count;
    bool moves;
    const char* limit;
  } kCases[] = {{2'000, false, "max_hits = 16777216 "},
                {2'000, true, "max_hits = 16777216 "},
                {20'000, false, "max_hits = 16777216 "},
                {100'000, false, "max_cluster_pairs = 67108864 "}};
  for (const auto& [count, moves, limit] : kCases) {
    SCOPED_TRACE(count);
    Scene scene = Coincident(count);
    if (moves) {
      for (Float4& p : scene.ends) p.z -= 3;
    }
    ContextOptions context_options;
    context_options.device = absl::StrCat(context()->device().index);
    context_options.guard_bytes = kGuardBytes;
    PALPATE_TEST_ASSIGN(const std::shared_ptr<Context> own, Context::Create(context_options));
    PALPATE_TEST_ASSIGN(const std::unique_ptr<Queue> queue, Queue::Create(own));
    PALPATE_TEST_ASSIGN(ContinuousCollisions detector, ContinuousCollisions::Create(own));
    PALPATE_ASSERT_OK(detector.SetTopology(*queue, *scene.Topology()));
    PALPATE_TEST_ASSIGN(const auto starts, CreateBufferFrom(*queue, std::span<const Float4>(scene.starts), "starts"));
    PALPATE_TEST_ASSIGN(const auto ends, CreateBufferFrom(*queue, std::span<const Float4>(scene.ends), "ends"));
    const absl::Status status = detector.Run(*queue, starts, ends);
    EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
    EXPECT_NE(status.message().find(limit), absl::string_view::npos) << status;
    EXPECT_EQ(detector.hit_count(), 0U);
    EXPECT_LT(own->peak_allocated_bytes(), 256 * kMiB);
    PALPATE_EXPECT_OK(own->CheckGuards());
  }
}

TEST_F(CcdTest, FindsNothingWhereNothingMeets) {
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

TEST_F(CcdTest, DoublePositionsShowGapsThatFloatsDoNot) {
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

TEST_F(CcdTest, SameInputGivesTheSameBits) {
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

/// All pairs of a scene that may meet, as contacts with these normals in turn: towards the other's middle, none, any.
std::vector<SurfaceContact> AllAsContacts(const Scene& scene, const SurfaceTopology& topology) {
  std::vector<SurfaceContact> contacts;
  std::mt19937_64 random(3);
  std::uniform_real_distribution<float> uniform(-1, 1);
  const auto add = [&](uint32_t kind, uint32_t a, uint32_t b, UInt4 vertices, uint32_t corners_of_a) {
    const uint32_t ids[4] = {vertices.x, vertices.y, vertices.z, vertices.w};
    for (uint32_t i = 0; i < corners_of_a; ++i) {
      if (std::count(ids + corners_of_a, ids + 4, ids[i]) > 0) return;
    }
    std::array<float, 3> n{};
    if (contacts.size() % 3 == 0) {
      for (uint32_t i = 0; i < 4; ++i) {
        const Float4& p = scene.starts[ids[i]];
        const float weight = i < corners_of_a ? -1.0F / static_cast<float>(corners_of_a) : 1.0F / static_cast<float>(4 - corners_of_a);
        n = {n[0] + weight * p.x, n[1] + weight * p.y, n[2] + weight * p.z};
      }
    } else if (contacts.size() % 3 == 1) {
      n = {uniform(random), uniform(random), uniform(random)};
    }
    const float length = std::hypot(n[0], n[1], n[2]);
    const float scale = length > 0 ? 1 / length : 0;
    SurfaceContact contact{};
    contact.kind = kind;
    contact.a = a;
    contact.b = b;
    contact.vertices = vertices;
    contact.normal = {scale * n[0], scale * n[1], scale * n[2], 0};
    contacts.push_back(contact);
  };
  for (uint32_t v = 0; v < topology.vertex_count; ++v) {
    if (topology.vertex_groups[v] == SurfaceTopology::kNoGroup) continue;
    for (uint32_t t = 0; t < topology.triangles.size(); ++t) {
      const UInt4& c = topology.triangles[t];
      if (MayMeet(topology.vertex_groups[v], topology.groups[t])) add(PALPATE_VERTEX_TRIANGLE, v, t, {v, c.x, c.y, c.z}, 1);
    }
  }
  for (uint32_t a = 0; a < topology.edges.size(); ++a) {
    for (uint32_t b = a + 1; b < topology.edges.size(); ++b) {
      const UInt2& p = topology.edges[a];
      const UInt2& q = topology.edges[b];
      if (MayMeet(topology.edge_groups[a], topology.edge_groups[b])) add(PALPATE_EDGE_EDGE, a, b, {p.x, p.y, q.x, q.y}, 2);
    }
  }
  return contacts;
}

TEST_F(CcdTest, ListedPairsAreDecidedAsInTheWhole) {
  CcdDetectorOptions separated;
  separated.separation_m = 0.02;
  CcdDetectorOptions in_float;
  in_float.use_double = false;
  CcdDetectorOptions in_parts;
  in_parts.batch_pairs = 256;
  for (const CcdDetectorOptions& options : {CcdDetectorOptions{}, separated, in_float, in_parts}) {
    for (const Scene& scene :
         {Soup(2, kTriangles, 0.2), Soup(2, kTriangles / 2, 0.5, 0.25), Soup(2, kTriangles / 2, 0.5, 0.125, 0x1p-20)}) {
      ContinuousCollisions detector = Create(options);
      const std::vector<CcdHit> all = Run(detector, scene);
      ASSERT_FALSE(all.empty());
      std::vector<SurfaceContact> contacts = AllAsContacts(scene, *scene.Topology());
      // Once all pairs, then without every third of those that meet.
      for (const bool is_part : {false, true}) {
        std::vector<CcdHit> expected;
        std::set<Key> dropped;
        for (size_t i = 0; i < all.size(); ++i) {
          if (is_part && i % 3 == 0) {
            dropped.insert({all[i].kind, all[i].a, all[i].b});
          } else {
            expected.push_back(all[i]);
          }
        }
        std::erase_if(contacts, [&](const SurfaceContact& c) { return dropped.contains({c.kind, c.a, c.b}); });
        PALPATE_ASSERT_OK(detector.RunListed(queue(), Upload(contacts), Upload(scene.starts), Upload(scene.ends)));
        const std::vector<CcdHit> hits = Hits(detector);
        ASSERT_EQ(hits.size(), expected.size());
        EXPECT_EQ(std::memcmp(hits.data(), expected.data(), hits.size() * sizeof(CcdHit)), 0);
        const CcdStatistics& statistics = detector.statistics();
        EXPECT_EQ(statistics.hits[0] + statistics.hits[1], hits.size());
        if (hits.size() < contacts.size()) {
          EXPECT_LT(statistics.pairs[0] + statistics.pairs[1], contacts.size()) << "no normal has decided anything";
        }
      }
    }
  }
}

TEST_F(CcdTest, WrongUseIsRefused) {
  ContinuousCollisions detector = Create();
  const auto positions = Upload(std::vector<Float4>(3));
  EXPECT_EQ(detector.Run(queue(), positions, positions).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(detector.RunListed(queue(), {}, positions, positions).code(), absl::StatusCode::kFailedPrecondition);
  PALPATE_ASSERT_OK(detector.SetTopology(queue(), *Soup(1, 4, 0).Topology()));
  EXPECT_EQ(detector.Run(queue(), positions, positions).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(detector.RunListed(queue(), {}, positions, positions).code(), absl::StatusCode::kInvalidArgument);
  CcdDetectorOptions bad;
  bad.max_pairs = 0;
  EXPECT_EQ(ContinuousCollisions::Create(context(), bad).status().code(), absl::StatusCode::kInvalidArgument);
  bad = {};
  bad.max_hits = 1ULL << 32;
  EXPECT_EQ(ContinuousCollisions::Create(context(), bad).status().code(), absl::StatusCode::kInvalidArgument);
  bad = {};
  bad.max_cluster_pairs = 1ULL << 32;
  EXPECT_EQ(ContinuousCollisions::Create(context(), bad).status().code(), absl::StatusCode::kInvalidArgument);
  bad = {};
  bad.max_candidates = 0;
  EXPECT_EQ(ContinuousCollisions::Create(context(), bad).status().code(), absl::StatusCode::kInvalidArgument);
  bad = {};
  bad.batch_pairs = 255;
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
}  // namespace palpate::gpu::ccd_test
