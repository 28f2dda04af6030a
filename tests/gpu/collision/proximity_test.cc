// Proximity contacts of surfaces against every pair of elements.
#include "gpu/collision/proximity.h"

#include "tests/gpu/collision/surface_models.h"

namespace palpate::gpu {
namespace {

using Id = std::tuple<uint32_t, uint32_t, uint32_t>;  // kind, a, b

bool Shares(const UInt2& p, const UInt2& q) { return p.x == q.x || p.x == q.y || p.y == q.x || p.y == q.y; }

class ProximityTest : public SurfaceTest {
 protected:
  /// All pairs of elements that may meet, with the squared distance of closest.clh at `positions`.
  std::vector<std::pair<Id, float>> AllPairs(const SurfaceTopology& s, const std::vector<Float4>& positions) {
    std::vector<UInt4> vertices[2];
    std::vector<Id> ids[2];
    const auto may_meet = [](uint32_t a, uint32_t b) { return a != b || (a & PALPATE_GROUP_SELF) != 0; };
    for (uint32_t v = 0; v < s.vertex_count; ++v) {
      if (s.vertex_groups[v] == SurfaceTopology::kNoGroup) continue;
      for (uint32_t t = 0; t < s.triangles.size(); ++t) {
        const UInt4& c = s.triangles[t];
        if (!may_meet(s.vertex_groups[v], s.groups[t]) || v == c.x || v == c.y || v == c.z) continue;
        vertices[0].push_back({v, c.x, c.y, c.z});
        ids[0].emplace_back(PALPATE_VERTEX_TRIANGLE, v, t);
      }
    }
    for (uint32_t a = 0; a < s.edges.size(); ++a) {
      for (uint32_t b = a + 1; b < s.edges.size(); ++b) {
        if (!may_meet(s.edge_groups[a], s.edge_groups[b]) || Shares(s.edges[a], s.edges[b])) continue;
        vertices[1].push_back({s.edges[a].x, s.edges[a].y, s.edges[b].x, s.edges[b].y});
        ids[1].emplace_back(PALPATE_EDGE_EDGE, a, b);
      }
    }
    std::vector<std::pair<Id, float>> pairs;
    for (const int kind : {0, 1}) {
      const auto results = Probe(vertices[kind], positions, kind == 1, 1);
      for (size_t i = 0; i < results.size(); ++i) pairs.emplace_back(ids[kind][i], results[i].offset.w);
    }
    return pairs;
  }

  /// Expects that a run on `model` gives exactly the pairs below the range, in order, with right records. Returns how many.
  size_t Check(const Model& model, float range_m, ProximityOptions options = {}, const std::vector<Float4>& rest = {}) {
    size_t expected_count = 0;
    [&] {
      PALPATE_TEST_ASSIGN(const SurfaceTopology surface, model.Topology());
      PALPATE_TEST_ASSIGN(ProximityDetector detector, ProximityDetector::Create(context(), options));
      PALPATE_ASSERT_OK(detector.SetTopology(queue(), surface, rest));
      const auto positions = Upload(model.positions);
      PALPATE_ASSERT_OK(detector.Run(queue(), positions, range_m));
      const std::vector<SurfaceContact> contacts = Download(detector.contact_buffer(), detector.contact_count());

      std::vector<std::pair<Id, float>> expected;
      const auto pairs = AllPairs(surface, model.positions);
      const auto at_rest = options.rest_exclusion_m > 0 ? AllPairs(surface, rest) : pairs;
      uint64_t excluded = 0;
      for (size_t i = 0; i < pairs.size(); ++i) {
        if (!(pairs[i].second < range_m * range_m)) continue;
        if (options.rest_exclusion_m > 0 && at_rest[i].second < options.rest_exclusion_m * options.rest_exclusion_m &&
            SameBody(surface, pairs[i].first)) {
          ++excluded;
          continue;
        }
        expected.push_back(pairs[i]);
      }
      expected_count = expected.size();
      EXPECT_EQ(detector.stats().contacts_found, expected.size());
      EXPECT_EQ(detector.stats().rest_excluded, excluded);
      if (options.reduction == ContactReduction::kNearest) expected = Nearest(surface, expected);
      ASSERT_EQ(contacts.size(), expected.size());
      for (size_t i = 0; i < contacts.size(); ++i) {
        ASSERT_EQ(Id(contacts[i].kind, contacts[i].a, contacts[i].b), expected[i].first) << i;
        ASSERT_EQ(contacts[i].normal.w, std::sqrt(expected[i].second)) << i;
        CheckRecord(surface, model.positions, contacts[i]);
        if (HasFatalFailure()) return;
      }
    }();
    return expected_count;
  }

  static bool SameBody(const SurfaceTopology& s, const Id& id) {
    const auto& [kind, a, b] = id;
    return kind == PALPATE_VERTEX_TRIANGLE ? s.vertex_groups[a] == s.groups[b] : s.edge_groups[a] == s.edge_groups[b];
  }

  static std::vector<std::pair<Id, float>> Nearest(const SurfaceTopology& s, const std::vector<std::pair<Id, float>>& all) {
    std::vector<size_t> best(s.vertex_count + s.edges.size(), SIZE_MAX);
    const auto offer = [&](size_t element, size_t i) {
      if (best[element] == SIZE_MAX || std::sqrt(all[i].second) < std::sqrt(all[best[element]].second)) best[element] = i;
    };
    for (size_t i = 0; i < all.size(); ++i) {
      const auto& [kind, a, b] = all[i].first;
      if (kind == PALPATE_VERTEX_TRIANGLE) {
        offer(a, i);
      } else {
        offer(s.vertex_count + a, i);
        offer(s.vertex_count + b, i);
      }
    }
    std::set<size_t> kept(best.begin(), best.end());
    std::vector<std::pair<Id, float>> nearest;
    for (const size_t i : kept) {
      if (i != SIZE_MAX) nearest.push_back(all[i]);
    }
    return nearest;
  }

  /// The record's parts agree with each other and with the positions.
  static void CheckRecord(const SurfaceTopology& s, const std::vector<Float4>& positions, const SurfaceContact& c) {
    const bool is_edge = c.kind == PALPATE_EDGE_EDGE;
    const UInt4 expected = is_edge ? UInt4{s.edges[c.a].x, s.edges[c.a].y, s.edges[c.b].x, s.edges[c.b].y}
                                   : UInt4{c.a, s.triangles[c.b].x, s.triangles[c.b].y, s.triangles[c.b].z};
    ASSERT_EQ(c.vertices, expected);
    ASSERT_EQ(c.group_a, s.vertex_groups[c.vertices.x] & PALPATE_GROUP_MASK);
    const auto at = [&](uint32_t v) { return std::array<double, 3>{positions[v].x, positions[v].y, positions[v].z}; };
    const std::array<std::array<double, 3>, 4> x = {at(c.vertices.x), at(c.vertices.y), at(c.vertices.z), at(c.vertices.w)};
    const std::array<double, 4> w = {c.weights.x, c.weights.y, c.weights.z, c.weights.w};
    for (const double weight : w) ASSERT_TRUE(weight >= 0 && weight <= 1) << weight;
    std::array<double, 3> offset;
    double size = 0;
    for (int k = 0; k < 3; ++k) {
      offset[k] = is_edge ? w[2] * x[2][k] + w[3] * x[3][k] - w[0] * x[0][k] - w[1] * x[1][k]
                          : w[0] * x[1][k] + w[1] * x[2][k] + w[2] * x[3][k] - x[0][k];
      for (int i = 0; i < 4; ++i) size = std::max(size, std::abs(x[i][k] - x[0][k]));
    }
    const double distance = std::sqrt(offset[0] * offset[0] + offset[1] * offset[1] + offset[2] * offset[2]);
    const double tolerance = 2e-6 * size;
    ASSERT_NEAR(c.normal.w, distance, tolerance);
    const std::array<double, 3> n = {c.normal.x, c.normal.y, c.normal.z};
    ASSERT_NEAR(n[0] * n[0] + n[1] * n[1] + n[2] * n[2], 1, 1e-5);
    // The normal leads from one point to the other; very near it comes from the elements, with an error in its direction only.
    for (int k = 0; k < 3; ++k)
      ASSERT_NEAR(n[k] * distance, offset[k], tolerance + (distance < 2e-4 * size ? 2 * distance : 0)) << distance;
  }
};

TEST_F(ProximityTest, Soup) {
  for (const uint64_t seed : {1, 2, 3}) {
    Model model;
    AddSoup(&model, 150, 0.2, 1, seed, true);
    AddSoup(&model, 60, 0.3, 1, seed + 10, false);
    AddSoup(&model, 40, 0.1, 1, seed + 20, false);
    EXPECT_GT(Check(model, 0.05F), 100U);
    ASSERT_FALSE(HasFatalFailure());
  }
}

TEST_F(ProximityTest, TwoTori) {
  Model model;
  AddTorus(&model, 20, 10, 10, 4, {0, 0, 0}, false);
  AddTorus(&model, 20, 10, 10, 4, {9, 1, 8.05}, false);
  EXPECT_GT(Check(model, 0.6F), 10U);
}

}  // namespace
}  // namespace palpate::gpu
