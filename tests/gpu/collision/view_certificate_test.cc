// The view certificate against continuous collisions of whole meshes, and beside the rules as published, which lose contacts.
#include "gpu/collision/view_certificate.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <map>
#include <numbers>
#include <set>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "gpu/collision/ccd.h"
#include "gpu/collision/view_collisions.h"
#include "gpu/collision/view_reference.h"
#include "tests/gpu/collision/view_models.h"
#include "tests/support/device_test.h"

namespace palpate::gpu::view_certificate_test {
namespace {

using Key = std::tuple<uint32_t, uint32_t, uint32_t>;

// Triangles that have the elements of a hit: of A and of B.
std::pair<std::vector<uint32_t>, std::vector<uint32_t>> TrianglesOf(const SurfaceTopology& topology, const Key& key) {
  const auto [kind, a, b] = key;
  const auto list = [](const std::vector<uint32_t>& all, const std::vector<uint32_t>& begin, uint32_t i) {
    return std::vector<uint32_t>(all.begin() + begin[i], all.begin() + begin[i + 1]);
  };
  if (kind == PALPATE_EDGE_EDGE) {
    return {list(topology.edge_triangles, topology.edge_triangle_begin, a), list(topology.edge_triangles, topology.edge_triangle_begin, b)};
  }
  return {list(topology.vertex_triangles, topology.vertex_triangle_begin, a), {b}};
}

// The triangle that owns an element, as static assignment of features has it.
uint32_t OwnerOf(const SurfaceTopology& topology, const std::vector<uint32_t>& triangles, uint32_t element, bool is_edge) {
  for (const uint32_t t : triangles) {
    const UInt4& v = topology.triangles[t];
    const UInt4& e = topology.triangle_edges[t];
    const uint32_t corner = is_edge ? (e.x == element ? 8U : e.y == element ? 16U : 32U) : (v.x == element ? 1U : v.y == element ? 2U : 4U);
    if ((v.w & corner) != 0) return t;
  }
  return triangles.front();
}

// The published rule for closed surfaces: only these pairs of triangles are looked at.
bool IsPublishedPair(uint32_t class_a, uint32_t class_b) {
  if (class_a == PALPATE_VIEW_UNSURE || class_b == PALPATE_VIEW_UNSURE) return true;
  return class_a != class_b;
}

class ViewCertificateTest : public test::DeviceTest {
 protected:
  ViewCertificate Create(const ViewCertificateOptions& options = {}) {
    auto certificate = ViewCertificate::Create(context(), options);
    EXPECT_TRUE(certificate.ok()) << certificate.status();
    return *std::move(certificate);
  }

  std::vector<CcdHit> AllHits(const MovingSurface& surface, double separation_m = 0) {
    CcdDetectorOptions options;
    options.separation_m = separation_m;
    auto detector = ContinuousCollisions::Create(context(), options);
    EXPECT_TRUE(detector.ok()) << detector.status();
    PALPATE_EXPECT_OK(detector->SetTopology(queue(), surface.Topology()));
    const auto starts = Upload(surface.model.positions), ends = Upload(surface.ends);
    PALPATE_EXPECT_OK(detector->Run(queue(), starts, ends));
    std::vector<CcdHit> hits(detector->hit_count());
    if (!hits.empty()) PALPATE_EXPECT_OK(queue().ReadBlocking(detector->hit_buffer(), hits));
    return hits;
  }

  static std::set<Key> KeysOf(const std::vector<CcdHit>& hits) {
    std::set<Key> keys;
    for (const CcdHit& hit : hits) keys.insert({hit.kind, hit.a, hit.b});
    return keys;
  }

  // Hits of which both elements have a label in common: there must be none.
  static size_t HitsWithin(const SurfaceTopology& topology, const std::set<Key>& hits, std::span<const uint32_t> labels) {
    size_t count = 0;
    for (const Key& key : hits) {
      const auto [of_a, of_b] = TrianglesOf(topology, key);
      bool is_within = false;
      for (const uint32_t a : of_a) {
        for (const uint32_t b : of_b) is_within |= labels[a] != 0 && labels[a] == labels[b];
      }
      count += is_within ? 1 : 0;
    }
    return count;
  }

  // Runs the certificate and expects that no hit is within one. Returns the share of triangles that are certified.
  double ExpectSound(ViewCertificate& certificate, const MovingSurface& surface, const ViewPrimitive* primitive = nullptr) {
    const SurfaceTopology topology = surface.Topology();
    const auto starts = Upload(surface.model.positions), ends = Upload(surface.ends);
    PALPATE_EXPECT_OK(certificate.SetSurface(queue(), topology));
    if (primitive != nullptr) {
      const std::vector<ViewPrimitive> all(certificate.components().size(), *primitive);
      PALPATE_EXPECT_OK(certificate.RunFrom(queue(), starts, ends, all));
    } else {
      PALPATE_EXPECT_OK(certificate.Run(queue(), starts, ends));
    }
    const std::set<Key> hits = KeysOf(AllHits(surface, 0));
    EXPECT_EQ(HitsWithin(topology, hits, certificate.labels()), 0U) << hits.size() << " hits in all";
    return static_cast<double>(certificate.certified_count()) / static_cast<double>(topology.triangles.size());
  }

  // The same hits as without a certificate, to the bit.
  ViewStatistics ExpectSameHits(ViewCollisions& collisions, const MovingSurface& surface, const std::vector<CcdHit>& expected) {
    const auto starts = Upload(surface.model.positions), ends = Upload(surface.ends);
    PALPATE_EXPECT_OK(collisions.Run(queue(), starts, ends));
    std::vector<CcdHit> hits(collisions.hit_count());
    if (!hits.empty()) PALPATE_EXPECT_OK(queue().ReadBlocking(collisions.hit_buffer(), hits));
    EXPECT_EQ(hits.size(), expected.size());
    EXPECT_TRUE(hits.size() == expected.size() &&
                (hits.empty() || std::memcmp(hits.data(), expected.data(), hits.size() * sizeof(CcdHit)) == 0));
    return collisions.statistics();
  }
};

MovingSurface BallOf(uint32_t n) {
  MovingSurface surface;
  AddBall(&surface.model, n, true);
  return surface;
}

Point3 Scaled(const Point3& p, double s) { return {s * p[0], s * p[1], s * p[2]}; }

// A ball with bumps, seen from within at all times.
MovingSurface BumpyBall(uint32_t n, uint64_t seed) {
  MovingSurface surface = BallOf(n);
  surface.Shape([](const Point3& p) { return Scaled(p, 1 + 0.2 * std::sin(3 * p[0] + p[1]) * std::cos(2 * p[2])); });
  const Waves waves(seed, 4, 0.02, 3);
  surface.Move([&](const Point3& p) {
    const Point3 q = waves(p);
    return Point3{q[0] + 0.3, q[1] - 0.1, 1.1 * q[2]};
  });
  return surface;
}

// A ball part of which is turned over: `depth` from 1 on it meets itself.
MovingSurface FoldedBall(uint32_t n, double depth_start, double depth_end) {
  MovingSurface surface = BallOf(n);
  const auto fold = [](const Point3& p, double depth) {
    const double near = std::exp(-12 * ((p[0] - 1) * (p[0] - 1) + p[1] * p[1] + p[2] * p[2]));
    return Point3{p[0] - 0.3 * depth * near * p[1], p[1] - depth * near * std::sin(6 * p[1]), p[2]};
  };
  const std::vector<Float4> ball = surface.model.positions;
  surface.Shape([&](const Point3& p) { return fold(p, depth_start); });
  for (const Float4& p : ball) {
    const Point3 q = fold({p.x, p.y, p.z}, depth_end);
    surface.ends.push_back(Point(q[0], q[1], q[2]));
  }
  return surface;
}

template <typename Start, typename End>
MovingSurface Sheet(uint32_t n, uint32_t m, Start start, End end) {
  MovingSurface surface, at_end;
  AddSheet(&surface.model, n, m, start, true);
  AddSheet(&at_end.model, n, m, end, true);
  surface.ends = at_end.model.positions;
  return surface;
}

// A strip rolled up around the z axis, of `turns` turns with the given gap between them; seen from the axis, all of it shows its front.
MovingSurface Scroll(uint32_t n, double turns, double gap_start, double gap_end) {
  const auto at = [turns](double gap) {
    return [=](double u, double v) {
      const double angle = 2 * std::numbers::pi * turns * u;
      const double radius = 1 + gap * turns * u;
      return Point(radius * std::cos(angle), radius * std::sin(angle), v - 0.5);
    };
  };
  return Sheet(n, 4, at(gap_start), at(gap_end));
}

TEST_F(ViewCertificateTest, RefusesOptionsOutOfRange) {
  for (const ViewCertificateOptions& options :
       {ViewCertificateOptions{.margin_m = -1}, ViewCertificateOptions{.margin_m = std::numeric_limits<double>::quiet_NaN()},
        ViewCertificateOptions{.least_share = 0}, ViewCertificateOptions{.least_share = 1.5}, ViewCertificateOptions{.max_rounds = 17},
        ViewCertificateOptions{.max_rest_runs = 2000}}) {
    const auto certificate = ViewCertificate::Create(context(), options);
    EXPECT_EQ(certificate.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(certificate.status().message().find("ViewCertificateOptions."), std::string_view::npos);
  }
  ViewCertificate certificate = Create();
  const auto none = Upload(std::vector<Float4>(2));
  EXPECT_EQ(certificate.Run(queue(), none, none).code(), absl::StatusCode::kFailedPrecondition);
  PALPATE_EXPECT_OK(certificate.SetSurface(queue(), BallOf(2).Topology()));
  EXPECT_EQ(certificate.Run(queue(), none, none).code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(ViewCertificateTest, ClosedSurfacesThatShowTheirFrontAreFree) {
  ViewCertificate certificate = Create();
  for (uint64_t seed = 0; seed < 4; ++seed) {
    const MovingSurface ball = BumpyBall(7, seed);
    EXPECT_EQ(ExpectSound(certificate, ball), 1) << seed;
    EXPECT_TRUE(certificate.IsBodyCertified(0));
    const ViewPrimitive& point = certificate.components()[0].primitive;
    const SurfaceTopology topology = ball.Topology();
    EXPECT_NEAR(CoveringDegree(ball.model.positions, topology.triangles, {point.start.x, point.start.y, point.start.z}), 1, 1e-4);
  }
}

// Looked at again and again, the point goes with the surface, also when that jumps.
TEST_F(ViewCertificateTest, ThePointGoesWithTheSurface) {
  ViewCertificate certificate = Create();
  MovingSurface ball = BumpyBall(6, 1);
  PALPATE_EXPECT_OK(certificate.SetSurface(queue(), ball.Topology()));
  for (int step = 0; step < 12; ++step) {
    const double jump = step == 7 ? 20 : 0;
    ball.Move([&](const Point3& p) { return Point3{p[0] + 0.4 + 0.05 * p[1], p[1] - 0.03 * p[0], 0.98 * p[2] + 0.1}; });
    const auto starts = Upload(ball.model.positions), ends = Upload(ball.ends);
    PALPATE_EXPECT_OK(certificate.Run(queue(), starts, ends));
    EXPECT_TRUE(certificate.IsBodyCertified(0)) << step;
    ball.model.positions = ball.ends;
    ball.Shape([&](const Point3& p) { return Point3{p[0] + jump, p[1], p[2]}; });
  }
}

// Seen from outside, from a point that the surface passes over within the step, and from within a torus.
TEST_F(ViewCertificateTest, PointsThatDoNotServeCertifyNothing) {
  ViewCertificate certificate = Create({.least_share = 1});
  const MovingSurface ball = BumpyBall(5, 1);
  for (const ViewPrimitive& point : {ViewPoint(4, 0, 0), ViewPoint(1.15F, 0, 0), ViewPoint(0, 0, 1.25F)}) {
    EXPECT_EQ(ExpectSound(certificate, ball, &point), 0);
  }
  MovingSurface torus;
  AddTorus(&torus.model, 24, 12, 1, 0.3, {0, 0, 0}, true);
  torus.ends = torus.model.positions;
  ViewCertificate any = Create();
  EXPECT_LT(ExpectSound(any, torus), 1);
}

// Two shells around one point: each is certified by itself, and the two may still meet. Without regard to components all triangles are
// positive, and the published certificate calls the mesh free of self-collisions.
TEST_F(ViewCertificateTest, NestedShellsAreCertifiedOneByOne) {
  MovingSurface shells = BallOf(4);
  MovingSurface outer = BallOf(4);
  const auto first = static_cast<uint32_t>(shells.model.positions.size());
  for (const Float4& p : outer.model.positions) shells.model.positions.push_back(Point(1.2 * p.x, 1.2 * p.y, 1.2 * p.z));
  for (auto t : outer.model.bodies[0]) shells.model.bodies[0].push_back({t[0] + first, t[1] + first, t[2] + first});
  shells.Move([](const Point3& p) {
    const double r = std::sqrt(p[0] * p[0] + p[1] * p[1] + p[2] * p[2]);
    return Scaled(p, r < 1.1 ? 1.3 : 1);
  });
  const SurfaceTopology topology = shells.Topology();
  bool are_all_positive = true;
  for (const UInt4& t : topology.triangles) {
    MovingTriangle moving;
    for (size_t c = 0; c < 3; ++c) {
      const uint32_t v = c == 0 ? t.x : c == 1 ? t.y : t.z;
      moving.start_m[c] = {shells.model.positions[v].x, shells.model.positions[v].y, shells.model.positions[v].z};
      moving.end_m[c] = {shells.ends[v].x, shells.ends[v].y, shells.ends[v].z};
    }
    are_all_positive &= ClassifyView(moving, ViewPoint(0, 0, 0)) == PALPATE_VIEW_POSITIVE;
  }
  EXPECT_TRUE(are_all_positive);
  EXPECT_FALSE(AllHits(shells).empty());
  ViewCertificate certificate = Create();
  EXPECT_EQ(ExpectSound(certificate, shells), 1);
  EXPECT_EQ(certificate.components().size(), 2U);
  EXPECT_NE(certificate.labels().front(), certificate.labels().back());
  EXPECT_FALSE(certificate.IsBodyCertified(0));
}

// One connected closed surface that goes around its point twice, through itself: two balls, cut open from A over M to B and each sewn to
// the other. All triangles are positive, at the start and later, which is all that the published certificate asks for.
MovingSurface DoubleCover() {
  const MovingSurface ball = BallOf(4);
  const auto count = static_cast<uint32_t>(ball.model.positions.size());
  const Triangles& triangles = ball.model.bodies[0];
  // Two edges in line.
  const uint32_t m = triangles[0][0];
  std::map<uint32_t, uint32_t> next;  // around m: from each neighbour to the next one
  for (const auto& t : triangles) {
    for (size_t k = 0; k < 3; ++k) {
      if (t[k] == m) next[t[(k + 1) % 3]] = t[(k + 2) % 3];
    }
  }
  const uint32_t a = next.begin()->first;
  uint32_t b = a;
  std::set<uint32_t> left;  // first corners of the triangles of m from a to b
  for (size_t i = 0; i < next.size() / 2; ++i) {
    left.insert(b);
    b = next[b];
  }
  MovingSurface cover;
  cover.model.positions = ball.model.positions;
  for (const Float4& p : ball.model.positions) cover.model.positions.push_back(Point(1.1 * p.x, 1.1 * p.y, 1.1 * p.z));
  Triangles sewn;
  for (uint32_t sheet = 0; sheet < 2; ++sheet) {
    for (const auto& t : triangles) {
      std::array<uint32_t, 3> own;
      for (size_t k = 0; k < 3; ++k) {
        own[k] = t[k] + sheet * count;
        if (t[k] == a || t[k] == b) own[k] = t[k];
        if (t[k] == m && left.count(t[(k + 1) % 3]) != 0) own[k] = m + (1 - sheet) * count;
      }
      sewn.push_back(own);
    }
  }
  cover.model.bodies = {sewn};
  cover.model.self = {true};
  cover.ends = cover.model.positions;
  return cover;
}

TEST_F(ViewCertificateTest, SurfacesThatGoAroundTwiceAreNot) {
  MovingSurface cover = DoubleCover();
  // Vertices that no triangle has any more stay behind.
  ViewCertificate certificate = Create({.least_share = 1});
  const ViewPrimitive centre = ViewPoint(0.01F, 0.02F, -0.015F);
  EXPECT_EQ(ExpectSound(certificate, cover, &centre), 0);
  ASSERT_EQ(certificate.components().size(), 1U);
  EXPECT_TRUE(certificate.components()[0].is_fit);
  EXPECT_EQ(certificate.components()[0].hole_count, 0U);
  EXPECT_EQ(certificate.components()[0].counts.unsure + certificate.components()[0].counts.negative, 0U)
      << "the published certificate holds";
  EXPECT_EQ(certificate.components()[0].counts.ray_hits, 2U);
  const SurfaceTopology topology = cover.Topology();
  EXPECT_NEAR(CoveringDegree(cover.model.positions, topology.triangles, {0.01, 0.02, -0.015}), 2, 1e-4);
  EXPECT_FALSE(AllHits(cover).empty());
}

// Open surfaces with their boundaries capped both ways.
TEST_F(ViewCertificateTest, OpenSurfacesAreCapped) {
  for (const bool from_corner : {false, true}) {
    ViewCertificate certificate = Create({.caps_from_corner = from_corner});
    // A flat cloth that waves; its one hole is all that is behind the point.
    const MovingSurface cloth = Sheet(
        12, 9, [](double u, double v) { return Point(2 * u - 1, 2 * v - 1, 0.1 * std::sin(5 * u)); },
        [](double u, double v) { return Point(2 * u - 1, 2 * v - 0.9, 0.1 * std::sin(5 * u + 0.5)); });
    // A fan over the cloth itself does not go around the point.
    EXPECT_EQ(ExpectSound(certificate, cloth), from_corner ? 0 : 1);
    EXPECT_EQ(certificate.components()[0].hole_count, 1U);
    // A sleeve, open at both ends.
    const auto sleeve = [](double squeeze) {
      return [squeeze](double u, double v) {
        const double a = 2 * std::numbers::pi * u;
        const double r = 1 + squeeze * std::cos(2 * a) * std::sin(2 * v);
        return Point(r * std::cos(a), r * std::sin(a), 2 * v - 1);
      };
    };
    MovingSurface closed = Sheet(20, 6, sleeve(0.1), sleeve(0.15));
    // Sewn where u is 0 and 1.
    for (auto& t : closed.model.bodies[0]) {
      for (uint32_t& v : t) v = v % 21 == 20 ? v - 20 : v;
    }
    EXPECT_EQ(ExpectSound(certificate, closed), 1) << from_corner;
    EXPECT_EQ(certificate.components()[0].hole_count, 2U);
  }
}

// A strip that is rolled up shows its front all over, and its turns meet within the step. The published loop ends before it looks at
// boundaries when all triangles are positive.
TEST_F(ViewCertificateTest, RolledBoundariesAreNotCertified) {
  const MovingSurface scroll = Scroll(40, 1.6, 0.1, -0.1);
  ViewCertificate certificate = Create({.max_rounds = 0});
  const ViewPrimitive axis = ViewPoint(0, 0, 0);
  EXPECT_EQ(ExpectSound(certificate, scroll, &axis), 0);
  EXPECT_EQ(certificate.components()[0].counts.unsure + certificate.components()[0].counts.negative, 0U) << "the published exit is taken";
  EXPECT_FALSE(AllHits(scroll).empty());
  // Less than half a turn is.
  EXPECT_EQ(ExpectSound(certificate, Scroll(40, 0.4, 0.1, -0.1), &axis), 1);
  // With rounds, a part of the scroll may be.
  ViewCertificate some = Create({.least_share = 0.1});
  ExpectSound(some, scroll);
}

// What is not positive is cut out, and the rest is certified.
TEST_F(ViewCertificateTest, FoldsAreCutOut) {
  const MovingSurface folded = FoldedBall(16, 0.3, 0.33);
  ViewCertificate certificate = Create();
  const double share = ExpectSound(certificate, folded);
  EXPECT_GT(certificate.components()[0].counts.unsure + certificate.components()[0].counts.negative, 0U);
  EXPECT_GT(share, 0.8);
  EXPECT_LT(share, 1);
  // Fans from a corner seldom are positive, and are certified only where they are.
  ViewCertificate by_corner = Create({.caps_from_corner = true});
  EXPECT_LT(ExpectSound(by_corner, folded), 1);
}

// Elements of a certificate with a margin keep more than that from each other; without one, nothing is said about distance: the walls of
// a pleat come near each other while all of it is positive.
TEST_F(ViewCertificateTest, OnlyAMarginSaysSomethingAboutDistance) {
  MovingSurface pleat = BallOf(12);
  const auto fold = [](double sharp) {
    return [sharp](const Point3& p) {
      const double a = std::atan2(p[1], p[0]);
      // Radius as a steep function of the angle near a = 0: a groove with walls that are nearly seen from the side.
      return Scaled(p, 1 - 0.4 * std::exp(-sharp * a * a) * std::max(0.0, 1 - 2 * p[2] * p[2]));
    };
  };
  pleat.ends = pleat.model.positions;
  pleat.Shape(fold(30));
  const MovingSurface start = pleat;
  pleat.Move([](const Point3& p) { return p; });
  ViewCertificate certificate = Create();
  const ViewPrimitive centre = ViewPoint(0, 0, 0);
  EXPECT_EQ(ExpectSound(certificate, pleat, &centre), 1);
  // Elements that come near, found by the engine with a separation, though all is positive: the published method calls the step free of
  // contacts of that threshold.
  const double wide_m = 0.1;
  const std::set<Key> near = KeysOf(AllHits(pleat, wide_m));
  EXPECT_FALSE(near.empty());
  const SurfaceTopology topology = pleat.Topology();
  EXPECT_GT(HitsWithin(topology, near, certificate.labels()), 0U);
  size_t proven = 0;
  for (const double margin_m : {0.1, 0.03, 0.01, 0.003, 0.001, 0.0003}) {
    ViewCertificate with_margin = Create({.margin_m = margin_m});
    ViewPrimitive far = centre;
    far.end.w = 0.2F;
    const auto starts = Upload(pleat.model.positions), ends = Upload(pleat.ends);
    PALPATE_EXPECT_OK(with_margin.SetSurface(queue(), topology));
    PALPATE_EXPECT_OK(with_margin.RunFrom(queue(), starts, ends, std::vector<ViewPrimitive>(1, far)));
    EXPECT_EQ(HitsWithin(topology, KeysOf(AllHits(pleat, margin_m)), with_margin.labels()), 0U) << margin_m;
    proven += with_margin.certified_count() == topology.triangles.size() ? 1 : 0;
  }
  EXPECT_GE(proven, 1U);
  EXPECT_LT(proven, 6U);
}

// The rules as published, on steps in which a surface passes through itself: pairs of triangles of one class are not looked at, and
// elements are tested by their owners only.
TEST_F(ViewCertificateTest, PublishedPairsLoseContactsThatThisFinds) {
  size_t lost_by_pairs = 0, lost_by_owners = 0, hits_in_all = 0;
  auto collisions = ViewCollisions::Create(context());
  ASSERT_TRUE(collisions.ok()) << collisions.status();
  for (uint64_t seed = 0; seed < 3; ++seed) {
    MovingSurface ball = FoldedBall(10, 0.1, 0.1);
    const Waves waves(seed, 3, 0.35, 2);
    ball.Move([&](const Point3& p) { return p[0] > -0.2 ? waves(p) : p; });
    const SurfaceTopology topology = ball.Topology();
    std::vector<uint32_t> classes;
    for (const UInt4& t : topology.triangles) {
      MovingTriangle moving;
      for (size_t c = 0; c < 3; ++c) {
        const uint32_t v = c == 0 ? t.x : c == 1 ? t.y : t.z;
        moving.start_m[c] = {ball.model.positions[v].x, ball.model.positions[v].y, ball.model.positions[v].z};
        moving.end_m[c] = {ball.ends[v].x, ball.ends[v].y, ball.ends[v].z};
      }
      classes.push_back(ClassifyView(moving, ViewPoint(-0.3F, 0, 0)));
    }
    const std::vector<CcdHit> hits = AllHits(ball);
    hits_in_all += hits.size();
    for (const Key& key : KeysOf(hits)) {
      const auto [of_a, of_b] = TrianglesOf(topology, key);
      bool is_looked_at = false;
      for (const uint32_t a : of_a) {
        for (const uint32_t b : of_b) is_looked_at |= IsPublishedPair(classes[a], classes[b]);
      }
      lost_by_pairs += is_looked_at ? 0 : 1;
      const bool is_edge = std::get<0>(key) == PALPATE_EDGE_EDGE;
      const uint32_t owner_a = OwnerOf(topology, of_a, std::get<1>(key), is_edge);
      const uint32_t owner_b = is_edge ? OwnerOf(topology, of_b, std::get<2>(key), true) : of_b.front();
      lost_by_owners += is_looked_at && !IsPublishedPair(classes[owner_a], classes[owner_b]) ? 1 : 0;
    }
    PALPATE_ASSERT_OK(collisions->SetTopology(queue(), topology));
    ExpectSameHits(*collisions, ball, hits);
  }
  EXPECT_GT(hits_in_all, 100U);
  EXPECT_GT(lost_by_pairs, 0U) << "contacts of two positive or of two negative triangles";
  EXPECT_GT(lost_by_owners, 0U) << "contacts of elements whose owner was left out";
}

// One large triangle comes through a fine sheet: it has more partners than the 16 that published lists hold.
TEST_F(ViewCertificateTest, ListsHoldAllPartners) {
  MovingSurface scene = Sheet(
      12, 12, [](double u, double v) { return Point(2 * u - 1, 2 * v - 1, 0); },
      [](double u, double v) { return Point(2 * u - 1, 2 * v - 1, 0); });
  const auto first = static_cast<uint32_t>(scene.model.positions.size());
  for (const float z : {0.3F, -0.3F}) {
    std::vector<Float4>& to = z > 0 ? scene.model.positions : scene.ends;
    to.insert(to.end(), {{-0.9F, -0.8F, z, 0}, {0.9F, -0.85F, z, 0}, {0.05F, 0.9F, z, 0}});
  }
  scene.model.bodies[0].push_back({first, first + 1, first + 2});
  const SurfaceTopology topology = scene.Topology();
  const std::vector<CcdHit> hits = AllHits(scene);
  std::set<uint32_t> partners;
  for (const Key& key : KeysOf(hits)) {
    const auto [of_a, of_b] = TrianglesOf(topology, key);
    for (const auto* side : {&of_a, &of_b}) partners.insert(side->begin(), side->end());
  }
  EXPECT_GT(partners.size(), 2 * 16U);
  auto collisions = ViewCollisions::Create(context());
  ASSERT_TRUE(collisions.ok()) << collisions.status();
  PALPATE_ASSERT_OK(collisions->SetTopology(queue(), topology));
  EXPECT_GE(ExpectSameHits(*collisions, scene, hits).certified, topology.triangles.size() - 1) << "the sheet, and maybe the triangle";
}

// Random surfaces of all kinds, step after step: the hits of the engine, and nothing lost.
TEST_F(ViewCertificateTest, HitsAreThoseOfTheEngine) {
  std::vector<MovingSurface> shapes;
  shapes.push_back(BumpyBall(9, 5));
  shapes.push_back(FoldedBall(12, 0.3, 0.5));
  MovingSurface torus;
  AddTorus(&torus.model, 30, 10, 1, 0.3, {0.1, 0, 0}, true);
  shapes.push_back(torus);
  MovingSurface tube;
  AddTube(
      &tube.model, 24, 8, 0.15,
      [](double u) {
        return Point3{std::cos(6.283185307 * u), 0.3 * std::sin(6.283185307 * u), 0.2 * std::sin(12.56637 * u)};
      },
      true);
  shapes.push_back(tube);
  shapes.push_back(Sheet(
      16, 16, [](double u, double v) { return Point(2 * u, 2 * v, 0.2 * std::sin(4 * u)); },
      [](double, double) { return Point(0, 0, 0); }));
  shapes.push_back(Scroll(36, 1.4, 0.2, 0.2));
  auto collisions = ViewCollisions::Create(context(), {.ccd = {}, .certificate = {.max_rest_runs = 2}});
  ASSERT_TRUE(collisions.ok()) << collisions.status();
  size_t certified = 0, triangles = 0, hits_in_all = 0, untraversed = 0, parts = 0, rests = 0;
  for (size_t shape = 0; shape < shapes.size(); ++shape) {
    MovingSurface& surface = shapes[shape];
    PALPATE_ASSERT_OK(collisions->SetTopology(queue(), surface.Topology()));
    for (uint64_t step = 0; step < 5; ++step) {
      const Waves waves(10 * shape + step, 3, step == 3 ? 0.15 : step % 2 == 0 ? 0.01 : 0.03, 2.5);
      surface.Move(waves);
      const std::vector<CcdHit> hits = AllHits(surface);
      const ViewStatistics statistics = ExpectSameHits(*collisions, surface, hits);
      hits_in_all += hits.size();
      certified += statistics.certified;
      triangles += statistics.triangles;
      untraversed += statistics.was_traversed ? 0 : 1;
      rests += statistics.was_traversed && statistics.searched < statistics.triangles ? 1 : 0;
      parts += statistics.certified > 0 && statistics.certified < statistics.triangles ? 1 : 0;
      surface.model.positions = surface.ends;
    }
  }
  EXPECT_GT(hits_in_all, 50U);
  EXPECT_GT(untraversed, 3U);
  EXPECT_GE(parts, 3U);
  EXPECT_GE(rests, 1U);
  EXPECT_GT(certified, triangles / 4);
  RecordProperty("certified", static_cast<int>(certified));
}

// A limb with bulges: from any point most of it is seen from behind, from a segment along it nothing is.
TEST_F(ViewCertificateTest, LimbsAreSeenFromSegments) {
  MovingSurface limb = BallOf(14);
  const auto shape = [](double phase) {
    return [phase](const Point3& p) {
      const double r = 1 + 0.25 * std::sin(15 * p[0] + phase);
      return Point3{6 * p[0], r * p[1] + 0.2 * p[0] * p[0], r * p[2]};
    };
  };
  limb.ends = limb.model.positions;
  const std::vector<Float4> ball = limb.model.positions;
  limb.Shape(shape(0.2));
  for (size_t i = 0; i < ball.size(); ++i) {
    const Point3 q = shape(0.4)({ball[i].x, ball[i].y, ball[i].z});
    limb.ends[i] = Point(q[0] + 0.05, q[1], q[2]);
  }
  ViewCertificate by_points = Create({.uses_segments = false});
  EXPECT_LT(ExpectSound(by_points, limb), 1);
  ViewCertificate certificate = Create();
  EXPECT_EQ(ExpectSound(certificate, limb), 1);
  EXPECT_EQ(certificate.components()[0].primitive.axis.w, 1);
  // The segment serves the step after, too, and goes with the limb.
  const std::vector<Float4> moved = limb.ends;
  for (size_t i = 0; i < moved.size(); ++i) {
    limb.model.positions[i] = moved[i];
    limb.ends[i].x += 0.05F;
  }
  const auto starts = Upload(limb.model.positions), ends = Upload(limb.ends);
  PALPATE_EXPECT_OK(certificate.Run(queue(), starts, ends));
  EXPECT_TRUE(certificate.IsBodyCertified(0));
  EXPECT_EQ(certificate.components()[0].primitive.axis.w, 1);
}

// Around a fold that meets itself only what is near is looked at, with and without a separation.
TEST_F(ViewCertificateTest, OnlyTheRestIsSearched) {
  const MovingSurface folded = FoldedBall(16, 0.3, 0.6);
  for (const double separation_m : {0.0, 1e-4}) {
    ViewCollisionsOptions options;
    options.ccd.separation_m = separation_m;
    auto collisions = ViewCollisions::Create(context(), options);
    ASSERT_TRUE(collisions.ok()) << collisions.status();
    PALPATE_ASSERT_OK(collisions->SetTopology(queue(), folded.Topology()));
    const std::vector<CcdHit> hits = AllHits(folded, separation_m);
    EXPECT_FALSE(hits.empty());
    const ViewStatistics statistics = ExpectSameHits(*collisions, folded, hits);
    EXPECT_GT(statistics.certified, statistics.triangles / 2) << separation_m;
    EXPECT_LT(statistics.searched, statistics.triangles / 2) << separation_m;
  }
  // What is wrong is named by its number in the whole surface.
  MovingSurface broken = folded;
  const auto last = static_cast<uint32_t>(broken.ends.size() - 1);
  broken.ends[last].y = std::numeric_limits<float>::quiet_NaN();
  auto collisions = ViewCollisions::Create(context());
  PALPATE_ASSERT_OK(collisions->SetTopology(queue(), broken.Topology()));
  const auto starts = Upload(broken.model.positions), ends = Upload(broken.ends);
  const absl::Status status = collisions->Run(queue(), starts, ends);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("vertex " + std::to_string(last) + " "), std::string_view::npos) << status;
}

// Several bodies, with and without self-collision: what a certificate says of one does not reach another.
TEST_F(ViewCertificateTest, BodiesStillMeetEachOther) {
  MovingSurface scene = BumpyBall(5, 2);
  scene.model.Add(BallOf(4).model.positions, BallOf(4).model.bodies[0], true);
  scene.model.Add(BallOf(3).model.positions, BallOf(3).model.bodies[0], false);
  for (size_t i = 0; i < scene.model.positions.size(); ++i) {
    Float4& p = scene.model.positions[i];
    const size_t ball = i < BallOf(5).model.positions.size()                                      ? 0
                        : i < BallOf(5).model.positions.size() + BallOf(4).model.positions.size() ? 1
                                                                                                  : 2;
    p.x += static_cast<float>(ball) * 2.3F;
  }
  scene.Move([](const Point3& p) { return Point3{p[0] - (p[0] > 3.4 ? 1 : p[0] > 1.15 ? 0.5 : 0), p[1], p[2] + 0.01}; });
  const std::vector<CcdHit> hits = AllHits(scene);
  EXPECT_FALSE(hits.empty());
  auto collisions = ViewCollisions::Create(context());
  ASSERT_TRUE(collisions.ok()) << collisions.status();
  PALPATE_ASSERT_OK(collisions->SetTopology(queue(), scene.Topology()));
  const ViewStatistics statistics = ExpectSameHits(*collisions, scene, hits);
  EXPECT_EQ(statistics.certified, statistics.triangles);
  EXPECT_LT(statistics.triangles, scene.Topology().triangles.size());
  EXPECT_TRUE(statistics.was_traversed);
}

// Components with edges of three triangles, or that have no inside, are never certified.
TEST_F(ViewCertificateTest, SurfacesThatAreNotOrientedAreLeftAlone) {
  MovingSurface ball = BallOf(3);
  std::swap(ball.model.bodies[0][5][0], ball.model.bodies[0][5][1]);
  ball.ends = ball.model.positions;
  ViewCertificate certificate = Create();
  EXPECT_EQ(ExpectSound(certificate, ball), 0);
  EXPECT_FALSE(certificate.components()[0].is_fit);
  MovingSurface fin = BallOf(3);
  fin.model.positions.push_back(Point(2, 2, 2));
  const auto t = fin.model.bodies[0][0];
  fin.model.bodies[0].push_back({t[0], t[1], static_cast<uint32_t>(fin.model.positions.size() - 1)});
  fin.ends = fin.model.positions;
  EXPECT_EQ(ExpectSound(certificate, fin), 0);
  EXPECT_FALSE(certificate.components()[0].is_fit);
}

// What cannot be certified is asked less and less often; what can is asked each time.
TEST_F(ViewCertificateTest, HopelessComponentsAreLeftAlone) {
  MovingSurface torus;
  AddTorus(&torus.model, 16, 8, 1, 0.3, {0, 0, 0}, true);
  torus.ends = torus.model.positions;
  ViewCertificate certificate = Create({.least_share = 0.9, .max_rest_runs = 8});
  PALPATE_EXPECT_OK(certificate.SetSurface(queue(), torus.Topology()));
  const auto starts = Upload(torus.model.positions);
  int seen = 0;
  for (int run = 0; run < 32; ++run) {
    PALPATE_EXPECT_OK(certificate.Run(queue(), starts, starts));
    EXPECT_EQ(certificate.certified_count(), 0U);
    seen += certificate.components()[0].was_seen ? 1 : 0;
  }
  EXPECT_EQ(seen, 6);  // with rests of 1, 2, 4, 8, 8 and 8 runs in between
}

}  // namespace
}  // namespace palpate::gpu::view_certificate_test
