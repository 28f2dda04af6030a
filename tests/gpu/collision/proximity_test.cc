// Proximity contacts of surfaces against every pair of elements.
#include "gpu/collision/proximity.h"

#include <gmock/gmock.h>

#include <cstring>
#include <limits>
#include <map>

#include "tests/gpu/collision/surface_models.h"

namespace palpate::gpu::proximity_test {
namespace {

using Id = std::tuple<uint32_t, uint32_t, uint32_t>;  // kind, a, b

bool Shares(const UInt2& p, const UInt2& q) { return p.x == q.x || p.x == q.y || p.y == q.x || p.y == q.y; }

class ProximityTest : public SurfaceTest {
 protected:
#ifdef PALPATE_NATIVE_KERNELS
  static constexpr uint32_t kScale = 2;  // every access is checked there, which takes its time
#else
  static constexpr uint32_t kScale = 4;
#endif

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

  /// Expects that a run on `model` gives exactly the pairs below the range, in order, with right records, whatever structure finds the
  /// candidates. Returns how many.
  size_t Check(const Model& model, float range_m, ProximityOptions options = {}, const std::vector<Float4>& rest = {}) {
    size_t count = 0;
    for (const CandidateStructure structure : kCandidateStructures) {
      options.candidates = structure;
      count = HasFatalFailure() ? 0 : CheckOne(model, range_m, options, rest);
    }
    return count;
  }

  size_t CheckOne(const Model& model, float range_m, const ProximityOptions& options, const std::vector<Float4>& rest) {
    size_t expected_count = 0;
    [&] {
      PALPATE_TEST_ASSIGN(const SurfaceTopology surface, model.Topology());
      PALPATE_TEST_ASSIGN(ProximityDetector detector, ProximityDetector::Create(context(), options));
      PALPATE_ASSERT_OK(detector.SetTopology(queue(), surface, rest));
      const auto positions = Upload(model.positions);
      const auto reaches = Upload(reaches_m_);
      const auto at_rest_m = Upload(spare_m_.empty() ? std::vector<Float4>() : rest);
      const auto spare = Upload(spare_m_);
      const ProximityRest of_rest = spare_m_.empty() ? ProximityRest{} : ProximityRest{at_rest_m.view(), spare.view()};
      PALPATE_ASSERT_OK(
          detector.Run(queue(), positions, range_m, reaches_m_.empty() ? BufferView<float>() : reaches.view(), nullptr, of_rest));
      const std::vector<SurfaceContact> contacts = Download(detector.contact_buffer(), detector.contact_count());

      std::vector<std::pair<Id, float>> expected;
      const auto pairs = AllPairs(surface, model.positions);
      const auto at_rest = options.rest_exclusion_m > 0 || !spare_m_.empty() ? AllPairs(surface, rest) : pairs;
      uint64_t excluded = 0;
      for (size_t i = 0; i < pairs.size(); ++i) {
        const float limit_m = RangeOf(surface, pairs[i].first, range_m);
        if (!(pairs[i].second < limit_m * limit_m)) continue;
        if (options.rest_exclusion_m > 0 && at_rest[i].second < options.rest_exclusion_m * options.rest_exclusion_m &&
            SameBody(surface, pairs[i].first)) {
          ++excluded;
          continue;
        }
        const float spare_m = spare_m_.empty() || !SameBody(surface, pairs[i].first) ? 0 : spare_m_[BodyOf(surface, pairs[i].first)];
        const float bound_m = 0.5F * std::sqrt(at_rest[i].second) + spare_m;
        if (spare_m > 0 && !(pairs[i].second < bound_m * bound_m)) continue;
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

  /// Distance below which a pair counts.
  float RangeOf(const SurfaceTopology& s, const Id& id, float range_m) const {
    if (reaches_m_.empty()) return range_m;
    const auto& [kind, a, b] = id;
    const bool is_edge = kind == PALPATE_EDGE_EDGE;
    return reaches_m_[(is_edge ? s.edge_groups[a] : s.vertex_groups[a]) & PALPATE_GROUP_MASK] +
           reaches_m_[(is_edge ? s.edge_groups[b] : s.groups[b]) & PALPATE_GROUP_MASK];
  }

  static uint32_t BodyOf(const SurfaceTopology& s, const Id& id) {
    const auto& [kind, a, b] = id;
    return (kind == PALPATE_VERTEX_TRIANGLE ? s.vertex_groups[a] : s.edge_groups[a]) & PALPATE_GROUP_MASK;
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
    // Weights sum to 1 up to rounding only, which shows far from the origin.
    const Float4 origin = positions[c.vertices.x];
    const auto at = [&](uint32_t v) {
      return std::array<double, 3>{double{positions[v].x} - origin.x, double{positions[v].y} - origin.y, double{positions[v].z} - origin.z};
    };
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

  std::vector<float> reaches_m_;  // [body], or empty
  std::vector<float> spare_m_;    // [body], or empty: see ProximityRest
};

TEST_F(ProximityTest, SoupEqualsBruteForce) {
  for (const uint64_t seed : {1, 2, 3}) {
    Model model;
    AddSoup(&model, kScale * 50, 0.2, 1, seed, true);
    AddSoup(&model, kScale * 20, 0.3, 1, seed + 10, false);
    AddSoup(&model, kScale * 13, 0.1, 1, seed + 20, false);
    for (const bool spheres : {false, true}) {
      for (const bool element_boxes : {false, true}) {
        EXPECT_GT(Check(model, 0.05F, {.spheres = spheres, .element_boxes = element_boxes}), 50U);
        ASSERT_FALSE(HasFatalFailure());
      }
    }
  }
}

// Bodies that look less far: with each other, with others, with themselves.
TEST_F(ProximityTest, PairsCountWithinTheReachesOfTheirBodies) {
  Model model;
  AddSoup(&model, kScale * 30, 0.3, 1, 7, true);
  for (const uint64_t seed : {8, 9, 10}) AddSoup(&model, kScale * 15, 0.2, 1, seed, false);
  const size_t all = Check(model, 0.1F);
  reaches_m_ = {0.03F, 0.05F, 0.01F, 0};
  for (const uint32_t lanes : {1U, 8U, 16U}) {
    const size_t fewer = Check(model, 0.1F, {.lanes = lanes});
    ASSERT_FALSE(HasFatalFailure());
    EXPECT_GT(fewer, 20U);
    EXPECT_LT(fewer, all);
  }
  // Half the range for all is as none.
  reaches_m_.assign(4, 0.05F);
  EXPECT_EQ(Check(model, 0.1F), all);
}

// The shapes of the kernels for other devices.
TEST_F(ProximityTest, AnyNumberOfLanesFindsTheSameContacts) {
  Model model;
  AddTrefoil(&model, kScale * 12, 6, 0.66, true);
  AddSoup(&model, kScale * 12, 0.5, 2, 31, true);
  Model rest;
  AddTrefoil(&rest, kScale * 12, 6, 0.3, true);
  AddSoup(&rest, kScale * 12, 0.5, 2, 31, true);
  for (const uint32_t lanes : {1U, 8U, 16U}) {
    EXPECT_GT(Check(model, 0.2F, {.rest_exclusion_m = 0.3F, .lanes = lanes}, rest.positions), 10U);
    ASSERT_FALSE(HasFatalFailure());
  }
}

// What is far apart costs no distance: clusters, triangles and elements are each left out by their boxes, and the contacts stay the same.
TEST_F(ProximityTest, BoxesLeaveOutMostOfThePairs) {
  Model model;
  AddTorus(&model, 30, 15, 10, 4, {0, 0, 0}, false);
  AddTorus(&model, 30, 15, 10, 4, {9, 1, 6.8}, false);
  PALPATE_TEST_ASSIGN(const SurfaceTopology surface, model.Topology());
  const auto positions = Upload(model.positions);
  ProximityStats stats[2];
  std::vector<SurfaceContact> contacts[2];
  for (const bool element_boxes : {false, true}) {
    PALPATE_TEST_ASSIGN(ProximityDetector detector,
                        ProximityDetector::Create(context(), {.element_boxes = element_boxes, .counts_element_pairs = true}));
    PALPATE_ASSERT_OK(detector.SetTopology(queue(), surface, {}));
    PALPATE_ASSERT_OK(detector.Run(queue(), positions, 0.6F));
    stats[element_boxes] = detector.stats();
    contacts[element_boxes] = Download(detector.contact_buffer(), detector.contact_count());
  }
  const uint64_t triangles = surface.triangles.size() / 2;  // of each torus
  const uint64_t clusters = (triangles + 15) / 16;
  EXPECT_LT(stats[1].cluster_pairs, clusters * clusters / 4);
  EXPECT_LT(stats[1].triangle_pairs, triangles * triangles / 20);
  EXPECT_EQ(stats[1].element_pairs, stats[0].element_pairs);
  EXPECT_GT(stats[1].tests, 0U);
  EXPECT_LT(2 * stats[1].tests, stats[0].tests) << "boxes of elements";
  EXPECT_FALSE(contacts[0].empty());
  ASSERT_EQ(contacts[1].size(), contacts[0].size());
  for (size_t i = 0; i < contacts[0].size(); ++i) {
    EXPECT_EQ(Id(contacts[1][i].kind, contacts[1][i].a, contacts[1][i].b), Id(contacts[0][i].kind, contacts[0][i].a, contacts[0][i].b));
  }
}

TEST_F(ProximityTest, TwoToriEqualBruteForce) {
  Model model;
  AddTorus(&model, kScale * 7, kScale * 3, 10, 4, {0, 0, 0}, false);
  AddTorus(&model, kScale * 7, kScale * 3, 10, 4, {9, 1, 6.8}, false);
  EXPECT_GT(Check(model, 0.6F), 1U);
}

TEST_F(ProximityTest, KnotWithItselfEqualsBruteForce) {
  Model model;
  AddTrefoil(&model, kScale * 20, 6, 0.66, true);
  Model rest;
  AddTrefoil(&rest, kScale * 20, 6, 0.3, true);
  EXPECT_GT(Check(model, 0.2F), 100U);
  ASSERT_FALSE(HasFatalFailure());
  EXPECT_GT(Check(model, 0.2F, {.rest_exclusion_m = 0.5F}, rest.positions), 10U);
}

// Uneven sizes: two huge triangles under many small ones.
TEST_F(ProximityTest, FloorOfTwoTrianglesEqualsBruteForce) {
  Model model;
  AddSheet(
      &model, 1, 1, [](double u, double v) { return Point(200 * u - 100, 200 * v - 100, 0); }, false);
  AddTorus(&model, kScale * 7, kScale * 4, 1, 0.3, {0, 0, 0.305}, false);
  EXPECT_GT(Check(model, 0.02F), 3U);
}

TEST_F(ProximityTest, EveryPairIsOwnedOnce) {
  Model model;
  AddTorus(&model, 40, 20, 10, 4, {0, 0, 0}, false);
  AddTorus(&model, 40, 20, 10, 4, {9, 1, 6}, false);  // they intersect: many pairs of triangles
  PALPATE_TEST_ASSIGN(const SurfaceTopology surface, model.Topology());
  PALPATE_TEST_ASSIGN(ProximityDetector detector, ProximityDetector::Create(context(), {.counts_element_pairs = true}));
  PALPATE_ASSERT_OK(detector.SetTopology(queue(), surface, {}));
  PALPATE_ASSERT_OK(detector.Run(queue(), Upload(model.positions), 0.5F));
  const ProximityStats& stats = detector.stats();
  ASSERT_GT(stats.triangle_pairs, 1000U);
  EXPECT_NEAR(static_cast<double>(stats.element_pairs) / static_cast<double>(stats.triangle_pairs), 3.25, 0.1);
  EXPECT_LE(stats.tests, stats.element_pairs);
}

// A range of two triangles: the flat sheet has no contacts with the exclusion and many without; folded, it has.
TEST_F(ProximityTest, NeighboursAtRestDoNotMeet) {
  constexpr uint32_t kCells = 4 * kScale;
  const double cell = 1.0 / kCells;
  const auto flat = [](double u, double v) { return Point(u, v, 0); };
  const auto range = static_cast<float>(2 * cell);
  const auto exclusion = static_cast<float>(3 * cell);
  Model model;
  AddSheet(&model, kCells, kCells, flat, true);
  const std::vector<Float4> rest = model.positions;
  EXPECT_GT(Check(model, range), 1000U);
  ASSERT_FALSE(HasFatalFailure());
  EXPECT_EQ(Check(model, range, {.rest_exclusion_m = exclusion}, rest), 0U);
  ASSERT_FALSE(HasFatalFailure());
  // Bent over a cylinder by 180 degrees, the halves a cell apart.
  Model folded;
  AddSheet(
      &folded, kCells, kCells,
      [&](double u, double v) {
        const double radius = 0.5 * cell;
        const double along = u - 0.5;
        const double arc = std::numbers::pi * radius;
        const double angle = std::clamp(along / arc + 0.5, 0.0, 1.0) * std::numbers::pi;
        const double straight = std::max(std::abs(along) - 0.5 * arc, 0.0);
        return Point(radius * std::sin(angle) - straight, v, radius * std::cos(angle));
      },
      true);
  EXPECT_GT(Check(folded, range, {.rest_exclusion_m = exclusion}, rest), 100U);
}

// A sheet whose range is some cells wide, folded: neighbours fall out, and come back where they are pressed together; the other body keeps
// all of its pairs, and so do pairs of both.
TEST_F(ProximityTest, PairsThatAreFarForTheirDistanceAtRestFallOut) {
  constexpr uint32_t kCells = 3 * kScale;
  const double cell = 1.0 / kCells;
  Model rest, bent;
  const auto range = static_cast<float>(2.2 * cell);
  for (const double beside : {0.0, 0.3 * cell}) {
    AddSheet(
        &rest, kCells, kCells, [&](double u, double v) { return Point(u, v, beside); }, true);
    AddSheet(
        &bent, kCells, kCells,
        [&](double u, double v) {
          // Folded at the middle, and pressed to a third near one side.
          const double along = v < 0.25 ? v / 3 : v - 0.25 + 0.25 / 3;
          return u < 0.5 ? Point(u, along, beside) : Point(1 - u, along, beside + std::min(u - 0.5, 0.9 * cell));
        },
        true);
  }
  const size_t all = Check(bent, range);
  ASSERT_FALSE(HasFatalFailure());
  size_t before = 0;
  for (const double spare : {0.1, 0.6}) {
    spare_m_ = {static_cast<float>(spare * cell), 0};
    const size_t count = Check(bent, range, {}, rest.positions);
    ASSERT_FALSE(HasFatalFailure());
    EXPECT_GT(count, before) << spare;
    EXPECT_LT(count, all) << spare;
    before = count;
  }
  EXPECT_GT(before, all / 2) << "those of the second body, and between both, are left";
  // Flat it meets itself nowhere.
  spare_m_ = {static_cast<float>(0.2 * cell), static_cast<float>(0.2 * cell)};
  Model one;
  AddSheet(
      &one, kCells, kCells, [](double u, double v) { return Point(u, v, 0); }, true);
  EXPECT_EQ(Check(one, range, {.lanes = 1}, one.positions), 0U);
}

// Where culling by normal cones loses contacts: the two sides of a V, and sheets of one body that face the same way.
TEST_F(ProximityTest, FoldsAndStackedSheetsLoseNoContact) {
  Model fold;
  AddSheet(
      &fold, 4 * kScale, 4, [](double u, double v) { return Point(std::abs(u - 0.5), v, 0.05 * (u - 0.5)); }, true);
  EXPECT_GT(Check(fold, 0.02F), 50U);
  ASSERT_FALSE(HasFatalFailure());
  Model stack;
  std::vector<Float4> vertices;
  Triangles triangles;
  for (uint32_t layer = 0; layer < 3; ++layer) {
    Model sheet;
    AddSheet(
        &sheet, 2 * kScale, 3, [&](double u, double v) { return Point(u, v, 0.01 * layer + 0.002 * u); }, true);
    for (const auto& t : sheet.bodies[0]) {
      const auto first = static_cast<uint32_t>(vertices.size());
      triangles.push_back({t[0] + first, t[1] + first, t[2] + first});
    }
    vertices.insert(vertices.end(), sheet.positions.begin(), sheet.positions.end());
  }
  stack.Add(vertices, triangles, true);
  EXPECT_GT(Check(stack, 0.015F), 50U);
}

// The same with cones that know the outline of their clusters: they leave clusters out, and no contact between folds, layers or the sides
// of a slit is lost.
TEST_F(ProximityTest, NormalConesKeepFoldsLayersAndSlits) {
  constexpr uint32_t kCells = 8 * kScale;
  const auto cell = 1.0F / static_cast<float>(kCells);
  struct Case {
    const char* name;
    float range_m;
    bool has_contacts;
    bool has_patches;  // surely: where two sheets lie in one place, clusters may have parts of both
    Model model;
  };
  std::vector<Case> cases;
  cases.push_back({"flat", 0.5F * cell, false, true, {}});
  AddSheet(
      &cases.back().model, kCells, kCells, [](double u, double v) { return Point(u, v, 0.1 * u * v); }, true);
  cases.push_back({"fold", 0.6F * cell, true, false, {}});
  AddSheet(
      &cases.back().model, kCells, 8, [](double u, double v) { return Point(std::abs(u - 0.5), v, 0.05 * (u - 0.5)); }, true);
  cases.push_back({"layers", 0.5F * cell, true, false, {}});
  std::vector<Float4> vertices;
  Triangles triangles;
  for (uint32_t layer = 0; layer < 3; ++layer) {
    Model sheet;
    AddSheet(
        &sheet, kCells, kCells, [&](double u, double v) { return Point(u, v, (0.4 * layer + 0.2 * u) * cell); }, true);
    for (const auto& t : sheet.bodies[0]) {
      const auto first = static_cast<uint32_t>(vertices.size());
      triangles.push_back({t[0] + first, t[1] + first, t[2] + first});
    }
    vertices.insert(vertices.end(), sheet.positions.begin(), sheet.positions.end());
  }
  cases.back().model.Add(vertices, triangles, true);
  // A sheet cut along a line of vertices, its sides a fifth of a cell apart: no normal tells of it, only outlines do.
  cases.push_back({"slit", 0.5F * cell, true, true, {}});
  Model whole;
  AddSheet(
      &whole, kCells, kCells, [](double u, double v) { return Point(u, v, 0); }, true);
  std::vector<Float4> cut_vertices = whole.positions;
  Triangles cut = whole.bodies[0];
  std::map<uint32_t, uint32_t> copies;
  for (auto& t : cut) {
    const float middle = (whole.positions[t[0]].y + whole.positions[t[1]].y + whole.positions[t[2]].y) / 3;
    for (uint32_t& v : t) {
      const Float4& p = whole.positions[v];
      if (middle < 0.5F || std::abs(p.y - 0.5F) > 0.01F * cell || p.x < 0.3F) continue;
      const auto [copy, is_new] = copies.try_emplace(v, static_cast<uint32_t>(cut_vertices.size()));
      if (is_new) cut_vertices.push_back(Point(p.x, p.y + 0.2F * cell, 0));
      v = copy->second;
    }
  }
  ASSERT_GT(copies.size(), 10U);
  cases.back().model.Add(cut_vertices, cut, true);

  for (const Case& test : cases) {
    SCOPED_TRACE(test.name);
    PALPATE_TEST_ASSIGN(const SurfaceTopology surface, test.model.Topology());
    const auto positions = Upload(test.model.positions);
    std::vector<std::vector<Id>> found;
    for (const bool cones : {false, true}) {
      PALPATE_TEST_ASSIGN(ProximityDetector detector, ProximityDetector::Create(context(), {.normal_cones = cones}));
      PALPATE_ASSERT_OK(detector.SetTopology(queue(), surface, {}));
      PALPATE_ASSERT_OK(detector.Run(queue(), positions, test.range_m));
      if (!cones) {
        EXPECT_EQ(detector.stats().patches, 0U);
      } else if (test.has_patches) {
        EXPECT_GT(detector.stats().patches, 0U);
      }
      found.emplace_back();
      for (const SurfaceContact& c : Download(detector.contact_buffer(), detector.contact_count())) {
        found.back().emplace_back(c.kind, c.a, c.b);
      }
    }
    EXPECT_EQ(!found[0].empty(), test.has_contacts);
    EXPECT_EQ(found[1], found[0]);
  }
}

TEST_F(ProximityTest, NearestOfEachElementAreKept) {
  for (const uint64_t seed : {4, 5}) {
    Model model;
    AddSoup(&model, kScale * 50, 0.3, 1, seed, true);
    AddSheet(
        &model, 6, 6, [](double u, double v) { return Point(2 * u - 1, 2 * v - 1, 0.1 * u); }, true);
    EXPECT_GT(Check(model, 0.1F, {.reduction = ContactReduction::kNearest}), 100U);
    ASSERT_FALSE(HasFatalFailure());
  }
}

TEST_F(ProximityTest, FindsContactsAtAnyScaleAndFarFromTheOrigin) {
  for (const double scale : {1e-6, 1e-3, 1e3, 1e6}) {
    Model model;
    AddSoup(&model, kScale * 30, 0.2, 1, 8, true);
    for (Float4& p : model.positions) {
      p = Point(scale * static_cast<double>(p.x), scale * static_cast<double>(p.y), scale * static_cast<double>(p.z));
    }
    EXPECT_GT(Check(model, static_cast<float>(0.1 * scale)), 30U) << scale;
    ASSERT_FALSE(HasFatalFailure());
  }
  Model model;
  AddSoup(&model, kScale * 30, 20, 100, 8, true);
  for (Float4& p : model.positions) p = {p.x + 1e6F, p.y - 1e6F, p.z + 1e6F, 0};
  EXPECT_GT(Check(model, 10.0F), 30U);
}

TEST_F(ProximityTest, DegenerateElementsEqualBruteForce) {
  Model model;
  AddSoup(&model, kScale * 20, 0.4, 1, 3, true);
  std::mt19937 random(4);
  for (size_t t = 0; t < model.bodies[0].size(); ++t) {
    const auto& v = model.bodies[0][t];
    if (t % 4 == 0) model.positions[v[1]] = model.positions[v[0]];                               // no edge
    if (t % 8 == 0) model.positions[v[2]] = model.positions[v[0]];                               // a point
    if (t % 4 == 1) model.positions[v[0]] = model.positions[random() % model.positions.size()];  // coincident vertices
    if (t % 4 == 2) model.positions[v[2]].x = model.positions[v[2]].y = model.positions[v[2]].z = 0;
  }
  EXPECT_GT(Check(model, 0.1F), 50U);
}

TEST_F(ProximityTest, CoincidentElementsAllMeet) {
  Model model;
  std::vector<Float4> vertices;
  Triangles triangles;
  for (uint32_t i = 0; i < 7 * kScale; ++i) {
    for (const Float4& p : {Point(0, 0, 0), Point(1, 0, 0), Point(0, 1, 0)}) vertices.push_back(p);
    triangles.push_back({3 * i, 3 * i + 1, 3 * i + 2});
  }
  model.Add(vertices, triangles, true);
  EXPECT_EQ(Check(model, 0.1F), 7U * kScale * (7 * kScale - 1) / 2 * (6 + 3 + 6));
  ASSERT_FALSE(HasFatalFailure());
  Model points = model;
  for (Float4& p : points.positions) p = {2, 3, 4, 0};
  EXPECT_EQ(Check(points, 0.1F), 7U * kScale * (7 * kScale - 1) / 2 * (6 + 9));

  PALPATE_TEST_ASSIGN(const SurfaceTopology surface, model.Topology());
  PALPATE_TEST_ASSIGN(ProximityDetector detector, ProximityDetector::Create(context(), {.max_contacts = 500}));
  PALPATE_ASSERT_OK(detector.SetTopology(queue(), surface, {}));
  const absl::Status status = detector.Run(queue(), Upload(model.positions), 0.1F);
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_EQ(detector.contact_count(), 0U);
}

// At distance zero the normal comes from the surfaces: into the body for a vertex on a face, across both for edges.
TEST_F(ProximityTest, NormalsAtNoDistanceComeFromTheSurfaces) {
  Model model;
  model.Add({Point(0, 0, 0), Point(1, 0, 0), Point(0, 1, 0)}, {{0, 1, 2}}, false);
  model.Add({Point(0.25, 0.25, 0), Point(0.3, 0.2, 1), Point(0.2, 0.3, 1)}, {{0, 1, 2}}, false);
  PALPATE_TEST_ASSIGN(const SurfaceTopology surface, model.Topology());
  PALPATE_TEST_ASSIGN(ProximityDetector detector, ProximityDetector::Create(context()));
  PALPATE_ASSERT_OK(detector.SetTopology(queue(), surface, {}));
  PALPATE_ASSERT_OK(detector.Run(queue(), Upload(model.positions), 1e-3F));
  std::vector<SurfaceContact> contacts = Download(detector.contact_buffer(), detector.contact_count());
  ASSERT_EQ(contacts.size(), 1U);
  EXPECT_EQ(contacts[0].normal, (Float4{0, 0, -1, 0}));
  EXPECT_EQ(contacts[0].group_a, 1U);

  Model edges;
  edges.Add({Point(-1, 0, 0), Point(1, 0, 0), Point(0, 0, -1)}, {{0, 1, 2}}, false);
  edges.Add({Point(0, -1, 0), Point(0, 1, 0), Point(0, 0, 1)}, {{0, 1, 2}}, false);
  PALPATE_TEST_ASSIGN(const SurfaceTopology crossing, edges.Topology());
  PALPATE_ASSERT_OK(detector.SetTopology(queue(), crossing, {}));
  PALPATE_ASSERT_OK(detector.Run(queue(), Upload(edges.positions), 1e-3F));
  contacts = Download(detector.contact_buffer(), detector.contact_count());
  ASSERT_EQ(contacts.size(), 1U);
  EXPECT_EQ(contacts[0].kind, PALPATE_EDGE_EDGE);
  EXPECT_EQ(std::abs(contacts[0].normal.z), 1);
  EXPECT_EQ(contacts[0].normal.w, 0);
}

TEST_F(ProximityTest, SameInputGivesTheSameBitsWhileBuffersGrow) {
  Model model;
  AddSoup(&model, 400, 0.3, 1, 17, true);
  PALPATE_TEST_ASSIGN(const SurfaceTopology surface, model.Topology());
  PALPATE_TEST_ASSIGN(ProximityDetector detector, ProximityDetector::Create(context()));
  PALPATE_ASSERT_OK(detector.SetTopology(queue(), surface, {}));
  const auto positions = Upload(model.positions);
  std::vector<SurfaceContact> first;
  for (const int run : {0, 1, 2}) {
    PALPATE_ASSERT_OK(detector.Run(queue(), positions, 0.1F));
    EXPECT_EQ(detector.stats().detect_launches, run == 0 ? 2U : 1U);
    const std::vector<SurfaceContact> contacts = Download(detector.contact_buffer(), detector.contact_count());
    ASSERT_GT(contacts.size(), 4096U);
    if (run == 0) first = contacts;
    ASSERT_EQ(contacts.size(), first.size());
    EXPECT_EQ(std::memcmp(contacts.data(), first.data(), contacts.size() * sizeof(SurfaceContact)), 0);
    // Something else in between: nothing of it may stay.
    PALPATE_ASSERT_OK(detector.Run(queue(), positions, 0.01F));
    EXPECT_LT(detector.contact_count(), first.size());
  }
}

TEST_F(ProximityTest, RefreshWorksKnownPairsOutAnew) {
  constexpr float kRange = 0.1F;
  constexpr double kWay = 0.02;  // of a vertex, at most
  Model model;
  AddSoup(&model, 150, 0.3, 1, 17, true);
  PALPATE_TEST_ASSIGN(const SurfaceTopology surface, model.Topology());
  PALPATE_TEST_ASSIGN(ProximityDetector detector, ProximityDetector::Create(context()));
  PALPATE_ASSERT_OK(detector.SetTopology(queue(), surface, {}));
  std::vector<Float4> moved = model.positions;
  std::mt19937_64 random(2);
  std::uniform_real_distribution<double> uniform(-kWay / std::sqrt(3), kWay / std::sqrt(3));
  for (Float4& p : moved) p = Point(p.x + uniform(random), p.y + uniform(random), p.z + uniform(random));
  const auto by_id = [&](const ProximityDetector& from) {
    std::map<Id, SurfaceContact> contacts;
    for (const SurfaceContact& c : Download(from.contact_buffer(), from.contact_count())) contacts[{c.kind, c.a, c.b}] = c;
    EXPECT_EQ(contacts.size(), from.contact_count());
    return contacts;
  };
  PALPATE_ASSERT_OK(detector.Run(queue(), Upload(moved), kRange + 2 * kWay));  // all that may have been within the range
  const std::map<Id, SurfaceContact> anew = by_id(detector);
  PALPATE_ASSERT_OK(detector.Run(queue(), Upload(model.positions), kRange));
  const std::map<Id, SurfaceContact> before = by_id(detector);
  PALPATE_ASSERT_OK(detector.Refresh(queue(), Upload(moved)));
  const std::map<Id, SurfaceContact> refreshed = by_id(detector);
  ASSERT_EQ(refreshed.size(), before.size());
  size_t beyond = 0;
  for (const auto& [id, contact] : refreshed) {
    ASSERT_TRUE(before.contains(id));
    ASSERT_TRUE(anew.contains(id));
    EXPECT_EQ(std::memcmp(&contact, &anew.at(id), sizeof contact), 0) << std::get<1>(id) << " " << std::get<2>(id);
    beyond += contact.normal.w > kRange ? 1 : 0;
  }
  EXPECT_GT(beyond, 0U);
  // None is left out that is nearer than the range less both ways.
  size_t near = 0;
  for (const auto& [id, contact] : anew) {
    if (contact.normal.w >= kRange - 2 * kWay) continue;
    ++near;
    EXPECT_TRUE(refreshed.contains(id));
  }
  EXPECT_GT(near, 100U);

  EXPECT_TRUE(absl::IsInvalidArgument(detector.Refresh(queue(), Allocate<Float4>(3))));
  PALPATE_TEST_ASSIGN(ProximityDetector reduced, ProximityDetector::Create(context(), {.reduction = ContactReduction::kNearest}));
  EXPECT_TRUE(absl::IsFailedPrecondition(reduced.Refresh(queue(), Upload(moved))));
}

TEST_F(ProximityTest, TopologyMayChangeBetweenRuns) {
  Model model;
  AddSheet(
      &model, 6, 6, [](double u, double v) { return Point(u, v, 0); }, false);
  AddSheet(
      &model, 5, 5, [](double u, double v) { return Point(u, v, 0.01 + 0.01 * u); }, false);
  PALPATE_TEST_ASSIGN(ProximityDetector reused, ProximityDetector::Create(context()));
  const auto positions = Upload(model.positions);
  for (int removed = 0; removed < 5; ++removed) {
    PALPATE_TEST_ASSIGN(const SurfaceTopology surface, model.Topology());
    PALPATE_TEST_ASSIGN(ProximityDetector fresh, ProximityDetector::Create(context()));
    std::vector<SurfaceContact> contacts[2];
    for (ProximityDetector* detector : {&reused, &fresh}) {
      PALPATE_ASSERT_OK(detector->SetTopology(queue(), surface, {}));
      PALPATE_ASSERT_OK(detector->Run(queue(), positions, 0.05F));
      contacts[detector == &fresh ? 1 : 0] = Download(detector->contact_buffer(), detector->contact_count());
    }
    ASSERT_GT(contacts[0].size(), 100U);
    ASSERT_EQ(contacts[0].size(), contacts[1].size());
    EXPECT_EQ(std::memcmp(contacts[0].data(), contacts[1].data(), contacts[0].size() * sizeof(SurfaceContact)), 0);
    model.bodies[removed % 2].erase(model.bodies[removed % 2].begin() + 7 * removed);
  }
}

TEST_F(ProximityTest, WrongInputIsRefused) {
  Model model;
  AddSoup(&model, 20, 0.5, 1, 1, true);
  model.positions.push_back(Point(std::numeric_limits<double>::quiet_NaN(), 0, 0));  // of no triangle
  PALPATE_TEST_ASSIGN(const SurfaceTopology surface, model.Topology());
  PALPATE_TEST_ASSIGN(ProximityDetector detector, ProximityDetector::Create(context(), {.rest_exclusion_m = 0.1F}));
  const auto positions = Upload(model.positions);
  EXPECT_TRUE(absl::IsFailedPrecondition(detector.Run(queue(), positions, 0.1F)));
  EXPECT_TRUE(absl::IsInvalidArgument(detector.SetTopology(queue(), surface, {})));
  PALPATE_ASSERT_OK(detector.SetTopology(queue(), surface, model.positions));
  PALPATE_ASSERT_OK(detector.Run(queue(), positions, 0.1F));
  for (const float range : {0.0F, -1.0F, std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    EXPECT_TRUE(absl::IsInvalidArgument(detector.Run(queue(), positions, range))) << range;
  }
  EXPECT_TRUE(absl::IsInvalidArgument(detector.Run(queue(), Allocate<Float4>(3), 0.1F)));
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity(), 1e9F}) {
    std::vector<Float4> broken = model.positions;
    broken[31].x = broken[17].z = bad;
    const absl::Status status = detector.Run(queue(), Upload(broken), 0.1F);
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_NE(status.message().find("vertex 17 "), absl::string_view::npos) << status;
    EXPECT_EQ(detector.contact_count(), 0U);
  }
  std::vector<Float4> broken = model.positions;
  broken[5].y = std::numeric_limits<float>::infinity();
  const absl::Status status = detector.SetTopology(queue(), surface, broken);
  EXPECT_NE(status.message().find("vertex 5 "), absl::string_view::npos) << status;
  for (const ProximityOptions& options :
       {ProximityOptions{.rest_exclusion_m = -1}, ProximityOptions{.max_contacts = 0},
        ProximityOptions{.rest_exclusion_m = std::numeric_limits<float>::infinity()}, ProximityOptions{.lanes = 4}}) {
    EXPECT_TRUE(absl::IsInvalidArgument(ProximityDetector::Create(context(), options).status()));
  }
}

TEST_F(ProximityTest, FindsNothingWhereThereIsNothing) {
  PALPATE_TEST_ASSIGN(ProximityDetector detector, ProximityDetector::Create(context()));
  for (const bool has_triangle : {false, true}) {
    Model model;
    if (has_triangle) model.Add({Point(0, 0, 0), Point(1, 0, 0), Point(0, 1, 0)}, {{0, 1, 2}}, true);
    PALPATE_TEST_ASSIGN(const SurfaceTopology surface, model.Topology());
    PALPATE_ASSERT_OK(detector.SetTopology(queue(), surface, {}));
    PALPATE_ASSERT_OK(detector.Run(queue(), Upload(model.positions), 0.1F));
    EXPECT_EQ(detector.contact_count(), 0U);
  }
}

// 100,000 triangles, too many for all pairs: candidates come from a grid on the host instead of the hierarchy.
TEST_F(ProximityTest, SlowLargeSoupEqualsTheGridOfTheHost) {
  Model model;
  AddSoup(&model, 100'000, 0.02, 1, 23, true);
  constexpr float kRange = 0.004F;
  PALPATE_TEST_ASSIGN(const SurfaceTopology s, model.Topology());
  PALPATE_TEST_ASSIGN(ProximityDetector detector, ProximityDetector::Create(context()));
  PALPATE_ASSERT_OK(detector.SetTopology(queue(), s, {}));
  PALPATE_ASSERT_OK(detector.Run(queue(), Upload(model.positions), kRange));
  const std::vector<SurfaceContact> contacts = Download(detector.contact_buffer(), detector.contact_count());

  constexpr double kCell = 0.085;  // above two extents and the range, so that partners are in neighbouring cells
  const auto cell_of = [](const Float4& p, int dx, int dy, int dz) {
    const auto index = [](float x, int d) { return static_cast<uint64_t>(std::floor(x / kCell) + 100 + d); };
    return index(p.x, dx) << 40 | index(p.y, dy) << 20 | index(p.z, dz);
  };
  std::vector<std::pair<uint64_t, uint32_t>> cells;
  for (uint32_t t = 0; t < s.triangles.size(); ++t) cells.emplace_back(cell_of(model.positions[s.triangles[t].x], 0, 0, 0), t);
  std::sort(cells.begin(), cells.end());
  const auto near = [&](const Float4& p, const Float4& q) {
    const double reach = 0.085;
    return std::abs(p.x - q.x) < reach && std::abs(p.y - q.y) < reach && std::abs(p.z - q.z) < reach;
  };
  std::vector<std::pair<Id, float>> expected;
  std::vector<UInt4> vertices[2];
  std::vector<Id> ids[2];
  const auto flush = [&] {
    for (const int kind : {0, 1}) {
      const auto results = Probe(vertices[kind], model.positions, kind == 1, 16);
      for (size_t i = 0; i < results.size(); ++i) {
        if (results[i].offset.w < kRange * kRange) expected.emplace_back(ids[kind][i], results[i].offset.w);
      }
      vertices[kind].clear();
      ids[kind].clear();
    }
  };
  for (uint32_t a = 0; a < s.triangles.size(); ++a) {
    const UInt4& t = s.triangles[a];
    for (int d = 0; d < 27; ++d) {
      const uint64_t cell = cell_of(model.positions[t.x], d % 3 - 1, d / 3 % 3 - 1, d / 9 - 1);
      for (auto c = std::lower_bound(cells.begin(), cells.end(), std::pair(cell, 0U)); c != cells.end() && c->first == cell; ++c) {
        const uint32_t b = c->second;
        const UInt4& u = s.triangles[b];
        if (a == b || !near(model.positions[t.x], model.positions[u.x])) continue;
        for (const uint32_t v : {t.x, t.y, t.z}) {
          vertices[0].push_back({v, u.x, u.y, u.z});
          ids[0].emplace_back(PALPATE_VERTEX_TRIANGLE, v, b);
        }
        for (const uint32_t e : {s.triangle_edges[a].x, s.triangle_edges[a].y, s.triangle_edges[a].z}) {
          for (const uint32_t f : {s.triangle_edges[b].x, s.triangle_edges[b].y, s.triangle_edges[b].z}) {
            if (e > f) continue;
            vertices[1].push_back({s.edges[e].x, s.edges[e].y, s.edges[f].x, s.edges[f].y});
            ids[1].emplace_back(PALPATE_EDGE_EDGE, e, f);
          }
        }
      }
    }
    if (vertices[1].size() > 1'000'000) flush();
  }
  flush();
  std::sort(expected.begin(), expected.end());
  ASSERT_GT(expected.size(), 50'000U);
  ASSERT_EQ(contacts.size(), expected.size());
  for (size_t i = 0; i < contacts.size(); ++i) {
    ASSERT_EQ(Id(contacts[i].kind, contacts[i].a, contacts[i].b), expected[i].first) << i;
    ASSERT_EQ(contacts[i].normal.w, std::sqrt(expected[i].second)) << i;
  }
}

// Five billion pairs of triangles, all in contact: refused in bounded time and memory.
TEST_F(ProximityTest, SlowLargeCoincidentGeometryIsRefusedInBoundedMemory) {
  Model model;
  std::vector<Float4> vertices;
  Triangles triangles;
  for (uint32_t i = 0; i < 100'000; ++i) {
    for (const Float4& p : {Point(0, 0, 0), Point(1, 0, 0), Point(0, 1, 0)}) vertices.push_back(p);
    triangles.push_back({3 * i, 3 * i + 1, 3 * i + 2});
  }
  model.Add(vertices, triangles, true);
  PALPATE_TEST_ASSIGN(const SurfaceTopology surface, model.Topology());
  PALPATE_TEST_ASSIGN(ProximityDetector detector, ProximityDetector::Create(context()));
  PALPATE_ASSERT_OK(detector.SetTopology(queue(), surface, {}));
  const size_t bytes_before = context()->allocated_bytes();
  const absl::Status status = detector.Run(queue(), Upload(model.positions), 0.1F);
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_LT(context()->allocated_bytes() - bytes_before, size_t{1} << 30);
}

TEST(SurfaceTopologyTest, SheetWithAFinIsConnectedAtThreeTriangles) {
  // Two triangles of a square and a third that stands on their common edge.
  const Triangles sheet = {{0, 1, 2}, {0, 2, 3}, {0, 2, 4}};
  const Triangles other = {{6, 7, 8}};
  const std::vector<SurfaceBody> bodies = {{sheet, 3, true}, {other, 0, false}};
  const auto s = SurfaceTopology::Build(9, bodies);
  ASSERT_TRUE(s.ok()) << s.status();
  const std::vector<UInt2> edges = {{0, 1}, {0, 2}, {0, 3}, {0, 4}, {1, 2}, {2, 3}, {2, 4}, {6, 7}, {6, 8}, {7, 8}};
  EXPECT_EQ(s->edges, edges);
  EXPECT_EQ(s->body_count, 4U);
  const uint32_t group = 3 | PALPATE_GROUP_SELF;
  EXPECT_EQ(s->groups, (std::vector<uint32_t>{group, group, group, 0}));
  EXPECT_EQ(s->vertex_groups, (std::vector<uint32_t>{group, group, group, group, group, SurfaceTopology::kNoGroup, 0, 0, 0}));
  EXPECT_EQ(s->edge_groups, (std::vector<uint32_t>{group, group, group, group, group, group, group, 0, 0, 0}));
  EXPECT_EQ(s->triangle_edges[1], (UInt4{1, 5, 2, group}));
  EXPECT_EQ(s->edge_triangle_begin, (std::vector<uint32_t>{0, 1, 4, 5, 6, 7, 8, 9, 10, 11, 12}));
  EXPECT_EQ(s->edge_triangles, (std::vector<uint32_t>{0, 0, 1, 2, 1, 2, 0, 1, 2, 3, 3, 3}));
  EXPECT_EQ(s->vertex_triangle_begin, (std::vector<uint32_t>{0, 3, 4, 7, 8, 9, 9, 10, 11, 12}));
  EXPECT_EQ(s->vertex_triangles, (std::vector<uint32_t>{0, 1, 2, 0, 0, 1, 2, 1, 2, 3, 3, 3}));
  EXPECT_EQ(s->vertex_edge_begin, (std::vector<uint32_t>{0, 4, 6, 10, 12, 14, 14, 16, 18, 20}));
  EXPECT_EQ(std::vector<uint32_t>(s->vertex_edges.begin() + 6, s->vertex_edges.begin() + 10), (std::vector<uint32_t>{1, 4, 5, 6}));
}

TEST(SurfaceTopologyTest, EachElementHasOneOwner) {
  Model model;
  AddTorus(&model, 12, 9, 3, 1, {0, 0, 0}, true);
  AddSoup(&model, 20, 1, 1, 1, true);
  const auto s = model.Topology();
  ASSERT_TRUE(s.ok()) << s.status();
  std::vector<int> vertex_owners(s->vertex_count, 0);
  std::vector<int> edge_owners(s->edges.size(), 0);
  for (size_t t = 0; t < s->triangles.size(); ++t) {
    const UInt4& v = s->triangles[t];
    const UInt4& e = s->triangle_edges[t];
    const std::array<uint32_t, 3> vertices = {v.x, v.y, v.z};
    const std::array<uint32_t, 3> edges = {e.x, e.y, e.z};
    for (int k = 0; k < 3; ++k) {
      EXPECT_EQ(s->edges[edges[k]], (UInt2{std::min(vertices[k], vertices[(k + 1) % 3]), std::max(vertices[k], vertices[(k + 1) % 3])}));
      vertex_owners[vertices[k]] += v.w >> k & 1;
      edge_owners[edges[k]] += v.w >> (3 + k) & 1;
    }
  }
  EXPECT_THAT(vertex_owners, ::testing::Each(1));
  EXPECT_THAT(edge_owners, ::testing::Each(1));
}

TEST(SurfaceTopologyTest, WrongSurfacesAreRefused) {
  const auto fails = [](std::vector<Triangles> triangles, std::vector<uint32_t> indices, const char* expected) {
    std::vector<SurfaceBody> bodies;
    for (size_t b = 0; b < triangles.size(); ++b) bodies.push_back({triangles[b], indices[b], true});
    const auto surface = SurfaceTopology::Build(6, bodies);
    EXPECT_TRUE(absl::IsInvalidArgument(surface.status())) << surface.status();
    EXPECT_NE(surface.status().message().find(expected), absl::string_view::npos) << surface.status();
  };
  fails({{{0, 1, 2}, {3, 4, 6}}}, {0}, "triangle 1 (3, 4, 6): there are only 6 vertices");
  fails({{{0, 1, 0}}}, {0}, "a vertex is repeated");
  fails({{{0, 1, 2}}, {{2, 3, 4}}}, {0, 5}, "vertex 2 is also of body 0");
  fails({{{0, 1, 2}}, {{3, 4, 5}}}, {1, 1}, "body 1 is given twice");
  fails({{{0, 1, 2}}}, {PALPATE_GROUP_MASK}, "is not below");
}

}  // namespace
}  // namespace palpate::gpu::proximity_test
