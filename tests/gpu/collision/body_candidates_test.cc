// Candidates by bodies next to candidates by a tree: the detectors find the same to the bit, with less work.
#include "gpu/collision/body_candidates.h"

#include <gmock/gmock.h>

#include <cstring>
#include <limits>
#include <map>
#include <set>

#include "gpu/collision/ccd.h"
#include "gpu/collision/intersections.h"
#include "gpu/collision/proximity.h"
#include "tests/gpu/collision/surface_models.h"

namespace palpate::gpu::body_candidates_test {
namespace {

using ::testing::HasSubstr;

#ifdef PALPATE_NATIVE_KERNELS
constexpr int kHeap = 40;  // every access is checked there, which takes its time
#else
constexpr int kHeap = 150;
#endif

using Vector = std::array<double, 3>;
using Matrix = std::array<Vector, 3>;

Vector Times(const Matrix& m, const Vector& v) {
  Vector out{};
  for (size_t r = 0; r < 3; ++r) {
    for (size_t c = 0; c < 3; ++c) out[r] += m[r][c] * v[c];
  }
  return out;
}

/// A rotation by `angle` about `axis` (any length).
Matrix Rotation(Vector axis, double angle) {
  const double length = std::hypot(axis[0], axis[1], axis[2]);
  for (double& a : axis) a /= length;
  const double c = std::cos(angle);
  const double s = std::sin(angle);
  Matrix m{};
  const Matrix cross{Vector{0, -axis[2], axis[1]}, Vector{axis[2], 0, -axis[0]}, Vector{-axis[1], axis[0], 0}};
  for (size_t r = 0; r < 3; ++r) {
    for (size_t k = 0; k < 3; ++k) m[r][k] = (r == k ? c : 0) + s * cross[r][k] + (1 - c) * axis[r] * axis[k];
  }
  return m;
}

/// A box of 12 triangles.
void AddBox(Model* model, const Vector& half, const Matrix& turn, const Vector& center, bool self_collision = false) {
  std::vector<Float4> vertices;
  for (uint32_t k = 0; k < 8; ++k) {
    const Vector p =
        Times(turn, {half[0] * ((k & 1U) != 0 ? 1 : -1), half[1] * ((k & 2U) != 0 ? 1 : -1), half[2] * ((k & 4U) != 0 ? 1 : -1)});
    vertices.push_back(Point(p[0] + center[0], p[1] + center[1], p[2] + center[2]));
  }
  model->Add(
      vertices,
      {{0, 2, 1}, {1, 2, 3}, {4, 5, 6}, {5, 7, 6}, {0, 1, 4}, {1, 5, 4}, {2, 6, 3}, {3, 6, 7}, {0, 4, 2}, {2, 4, 6}, {1, 3, 5}, {3, 7, 5}},
      self_collision);
}

/// Boxes of all shapes close together, some soups that meet themselves, and one body of a single triangle.
Model Heap(uint64_t seed, double size, double spread, const Vector& origin = {}) {
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> uniform(-1, 1);
  Model model;
  for (int i = 0; i < kHeap; ++i) {
    const Vector half{size * (0.2 + std::abs(uniform(random))), size * (0.2 + std::abs(uniform(random))),
                      size * (0.2 + std::abs(uniform(random)))};
    const Matrix turn =
        i % 5 == 0 ? Rotation({0, 0, 1}, 0) : Rotation({uniform(random), uniform(random), uniform(random)}, 3 * uniform(random));
    AddBox(&model, half, turn,
           {origin[0] + spread * uniform(random), origin[1] + spread * uniform(random), origin[2] + spread * uniform(random)}, i % 7 == 0);
  }
  AddSoup(&model, 25, size, spread, seed + 1, true);
  AddSoup(&model, 1, size, spread, seed + 2, false);
  AddSoup(&model, 40, 0.3 * size, spread, seed + 3, false);
  return model;
}

class BodyCandidatesTest : public SurfaceTest {
 protected:
  template <typename Detector, typename Options>
  Detector Make(Options options, CandidateStructure structure) {
    options.candidates = structure;
    auto detector = Detector::Create(context(), options);
    EXPECT_TRUE(detector.ok()) << detector.status();
    return *std::move(detector);
  }

  std::vector<SurfaceContact> Contacts(const Model& model, float range_m, CandidateStructure structure, ProximityStats* stats = nullptr) {
    auto detector = Make<ProximityDetector>(ProximityOptions{}, structure);
    PALPATE_EXPECT_OK(detector.SetTopology(queue(), *model.Topology(), {}));
    PALPATE_EXPECT_OK(detector.Run(queue(), Upload(model.positions), range_m));
    if (stats != nullptr) *stats = detector.stats();
    return Download(detector.contact_buffer(), detector.contact_count());
  }

  std::vector<CcdHit> Hits(ContinuousCollisions& detector) { return Download(detector.hit_buffer(), detector.hit_count()); }

  /// Body pairs that are left, of those whose boxes overlap.
  uint32_t BodyPairs(const Model& model, const std::vector<Float4>& ends, float distance_m) {
    auto candidates = BodyCandidates::Create(context(), 1U << 20);
    EXPECT_TRUE(candidates.ok()) << candidates.status();
    auto surface = DeviceSurface::Upload(queue(), *model.Topology());
    EXPECT_TRUE(surface.ok()) << surface.status();
    PALPATE_EXPECT_OK((*candidates)->Begin(queue(), *surface, Upload(model.positions), Upload(ends), distance_m, {}));
    return dynamic_cast<BodyCandidates&>(**candidates).body_pair_count();
  }
};

template <typename T>
bool SameBits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

using HitKey = std::tuple<uint32_t, uint32_t, uint32_t>;

/// That `again` are the hits of `all` between bodies of which one has changed, or of a body with itself. Returns their number.
size_t ExpectHitsOfChanged(const SurfaceTopology& topology, const std::vector<CcdHit>& all, const std::vector<CcdHit>& again,
                           const std::vector<uint8_t>& is_changed) {
  const auto key = [](const CcdHit& h) { return HitKey(h.kind, h.a, h.b); };
  const auto body = [&](uint32_t vertex) { return topology.vertex_groups[vertex] & PALPATE_GROUP_MASK; };
  std::vector<CcdHit> needed;
  for (const CcdHit& h : all) {
    const uint32_t a = body(h.vertices.x);
    const uint32_t b = body(h.vertices.w);
    if (is_changed[a] != 0 || is_changed[b] != 0 || a == b) needed.push_back(h);
  }
  EXPECT_EQ(needed.size(), again.size());
  if (needed.size() != again.size()) return needed.size();
  for (size_t i = 0; i < needed.size(); ++i) {
    EXPECT_EQ(key(needed[i]), key(again[i]));
    EXPECT_EQ(std::memcmp(&needed[i], &again[i], sizeof(CcdHit)), 0);
  }
  return needed.size();
}

/// The ends of the model's vertices when each body moves and turns by itself.
std::vector<Float4> Moved(const Model& model, uint64_t seed, double way) {
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> uniform(-1, 1);
  std::vector<Float4> ends = model.positions;
  for (const Triangles& body : model.bodies) {
    const Vector move{way * uniform(random), way * uniform(random), way * uniform(random)};
    const Matrix turn = Rotation({uniform(random), uniform(random), uniform(random)}, uniform(random));
    const Float4 about = model.positions[body[0][0]];
    std::set<uint32_t> vertices;
    for (const auto& t : body) vertices.insert(t.begin(), t.end());
    for (const uint32_t v : vertices) {
      const Float4& p = model.positions[v];
      const Vector q = Times(turn, {double{p.x} - about.x, double{p.y} - about.y, double{p.z} - about.z});
      ends[v] = Point(q[0] + about.x + move[0], q[1] + about.y + move[1], q[2] + about.z + move[2]);
    }
  }
  return ends;
}

TEST_F(BodyCandidatesTest, ContactsAreThoseOfTheTree) {
  for (const uint64_t seed : {1, 2, 3}) {
    for (const double size : {1e-3, 1.0, 1e3}) {
      for (const double spread : {3.0, 8.0}) {
        const Model model = Heap(seed, size, spread * size);
        const auto range_m = static_cast<float>(0.2 * size);
        ProximityStats tree, bodies;
        const auto expected = Contacts(model, range_m, CandidateStructure::kTree, &tree);
        EXPECT_GT(expected.size(), 50U);
        EXPECT_TRUE(SameBits(Contacts(model, range_m, CandidateStructure::kBodies, &bodies), expected)) << size << ' ' << spread;
        EXPECT_LT(bodies.triangle_pairs, tree.triangle_pairs) << "no pair of bodies was dismissed";
      }
    }
  }
}

TEST_F(BodyCandidatesTest, FarFromTheOriginNothingIsLost) {
  for (const double far : {10.0, 1000.0}) {
    const Model model = Heap(4, 0.05, 0.3, {far, -far, 0.5 * far});
    const auto expected = Contacts(model, 0.01F, CandidateStructure::kTree);
    EXPECT_GT(expected.size(), 50U);
    EXPECT_TRUE(SameBits(Contacts(model, 0.01F, CandidateStructure::kBodies), expected)) << far;
  }
}

// Faces at exactly the range, a hair nearer and a hair farther, edges on edges, corners on corners, all in one place.
TEST_F(BodyCandidatesTest, BoxesAtTheRangeGiveTheContactsOfTheTree) {
  const Matrix none = Rotation({0, 0, 1}, 0);
  for (const float gap : {0.125F, std::nextafter(0.125F, 0.0F), std::nextafter(0.125F, 1.0F), 0.0F}) {
    Model model;
    for (int i = 0; i < 3; ++i) {
      for (int j = 0; j < 3; ++j) {
        for (int k = 0; k < 3; ++k) AddBox(&model, {0.5, 0.5, 0.5}, none, {i * (1.0 + gap), j * (1.0 + gap), k * (1.0 + gap)});
      }
    }
    EXPECT_TRUE(SameBits(Contacts(model, 0.125F, CandidateStructure::kBodies), Contacts(model, 0.125F, CandidateStructure::kTree))) << gap;
  }
  Model same;
  for (int i = 0; i < 6; ++i) AddBox(&same, {0.5, 0.5, 0.5}, none, {0, 0, 0}, i == 2);
  EXPECT_TRUE(SameBits(Contacts(same, 0.125F, CandidateStructure::kBodies), Contacts(same, 0.125F, CandidateStructure::kTree)));
}

TEST_F(BodyCandidatesTest, HitsAreThoseOfTheTree) {
  for (const uint64_t seed : {1, 2, 3}) {
    for (const double way : {0.02, 0.3, 3.0}) {
      for (const double separation_m : {0.0, 0.01}) {
        CcdDetectorOptions options;
        options.separation_m = separation_m;
        const Model model = Heap(seed, 0.2, 2.5);
        const auto ends = Upload(Moved(model, seed, way));
        const auto starts = Upload(model.positions);
        std::vector<CcdHit> hits[2];
        for (const CandidateStructure structure : {CandidateStructure::kTree, CandidateStructure::kBodies}) {
          auto detector = Make<ContinuousCollisions>(options, structure);
          PALPATE_ASSERT_OK(detector.SetTopology(queue(), *model.Topology()));
          PALPATE_ASSERT_OK(detector.Run(queue(), starts, ends));
          hits[structure == CandidateStructure::kBodies] = Hits(detector);
        }
        EXPECT_FALSE(hits[0].empty());
        EXPECT_TRUE(SameBits(hits[0], hits[1])) << way << ' ' << separation_m;
      }
    }
  }
}

// A second run may leave out what did not change, and nothing else.
TEST_F(BodyCandidatesTest, ChangedWaysAreLookedAtAgain) {
  const Model model = Heap(5, 0.2, 2.0);
  const auto topology = model.Topology();
  const std::vector<Float4> first = Moved(model, 6, 0.5);
  const std::vector<Float4> other = Moved(model, 7, 0.5);
  std::vector<Float4> second = first;
  std::vector<uint8_t> is_changed(model.bodies.size(), 0);
  for (size_t b = 0; b < model.bodies.size(); b += 3) {
    is_changed[b] = 1;
    for (const auto& t : model.bodies[b]) {
      for (const uint32_t v : t) second[v] = other[v];
    }
  }
  auto whole = Make<ContinuousCollisions>(CcdDetectorOptions{}, CandidateStructure::kTree);
  PALPATE_ASSERT_OK(whole.SetTopology(queue(), *topology));
  auto detector = Make<ContinuousCollisions>(CcdDetectorOptions{}, CandidateStructure::kBodies);
  PALPATE_ASSERT_OK(detector.SetTopology(queue(), *topology));
  const auto starts = Upload(model.positions);
  PALPATE_ASSERT_OK(detector.Run(queue(), starts, Upload(first)));
  PALPATE_ASSERT_OK(detector.RunAgain(queue(), starts, Upload(second)));
  PALPATE_ASSERT_OK(whole.Run(queue(), starts, Upload(second)));
  const std::vector<CcdHit> all = Hits(whole);
  const size_t needed = ExpectHitsOfChanged(*topology, all, Hits(detector), is_changed);
  EXPECT_GT(needed, 50U);
  EXPECT_LT(needed, all.size());
}

// Round after round other bodies end elsewhere: none of them at all, a few, those that did before, and in one round so many, and so far
// away, that neither the list of pairs nor the room for what is found serves any longer.
TEST_F(BodyCandidatesTest, RoundsFindWhatTheTreeFindsOfChangedBodies) {
  const Model model = Heap(12, 0.2, 2.0);
  const auto topology = model.Topology();
  const auto starts = Upload(model.positions);
  CcdDetectorOptions options;
  options.separation_m = 0.005;
  auto whole = Make<ContinuousCollisions>(options, CandidateStructure::kTree);
  auto detector = Make<ContinuousCollisions>(options, CandidateStructure::kBodies);
  PALPATE_ASSERT_OK(whole.SetTopology(queue(), *topology));
  PALPATE_ASSERT_OK(detector.SetTopology(queue(), *topology));
  for (const double way : {0.05, 0.5}) {  // the second begins with what the first left
    std::vector<Float4> ends = Moved(model, 13, way);
    PALPATE_ASSERT_OK(detector.Run(queue(), starts, Upload(ends)));
    PALPATE_ASSERT_OK(whole.Run(queue(), starts, Upload(ends)));
    EXPECT_TRUE(SameBits(Hits(detector), Hits(whole)));
    for (size_t round = 0; round < 8; ++round) {
      const std::vector<Float4> other = Moved(model, 20 + round / 2, round == 4 ? 4.0 : way);
      const size_t every = std::array<size_t, 8>{1000, 9, 9, 3, 1, 2, 40, 1000}[round];
      std::vector<uint8_t> is_changed(model.bodies.size(), 0);
      for (size_t b = round % every; b < model.bodies.size(); b += every) {
        for (const auto& t : model.bodies[b]) {
          for (const uint32_t v : t) {
            is_changed[b] |= std::memcmp(&ends[v], &other[v], sizeof(Float4)) != 0 ? 1 : 0;
            ends[v] = other[v];
          }
        }
      }
      PALPATE_ASSERT_OK(detector.RunAgain(queue(), starts, Upload(ends)));
      PALPATE_ASSERT_OK(whole.Run(queue(), starts, Upload(ends)));
      ExpectHitsOfChanged(*topology, Hits(whole), Hits(detector), is_changed);
    }
  }
}

// Bodies drift from run to run, and now and then one jumps: what the list was made of no longer holds.
// The box is wide on the side where a body is going: the body of the second jump goes on from the first, that of the third comes back.
TEST_F(BodyCandidatesTest, TheListOfPairsIsKeptWhileBodiesStayInTheirWideBoxes) {
  Model model = Heap(14, 0.2, 2.0);
  PALPATE_TEST_ASSIGN(const DeviceSurface surface, DeviceSurface::Upload(queue(), *model.Topology()));
  PALPATE_TEST_ASSIGN(const auto candidates, BodyCandidates::Create(context(), 1U << 20));
  const auto& bodies = dynamic_cast<const BodyCandidates&>(*candidates);
  auto detector = Make<ProximityDetector>(ProximityOptions{}, CandidateStructure::kBodies);
  PALPATE_ASSERT_OK(detector.SetTopology(queue(), *model.Topology(), {}));
  std::vector<uint64_t> builds;
  for (uint64_t run = 0; run < 12; ++run) {
    const std::vector<Float4> drifted = Moved(model, 30 + run, 0.004);
    // They turn by up to a radian there: of this only a share.
    for (size_t v = 0; v < drifted.size(); ++v) {
      Float4& p = model.positions[v];
      p = Point(p.x + 0.01 * (drifted[v].x - p.x), p.y + 0.01 * (drifted[v].y - p.y), p.z + 0.01 * (drifted[v].z - p.z));
    }
    if (run == 5 || run == 9) {
      for (const auto& t : model.bodies[run]) {
        for (const uint32_t v : std::set<uint32_t>(t.begin(), t.end())) model.positions[v].x += 0.002F * static_cast<float>(run);
      }
    }
    if (run == 5 || run == 6 || run == 9) {
      const std::set<uint32_t> first(model.bodies[3][0].begin(), model.bodies[3][0].end());
      for (uint32_t v = *first.begin(); v < *first.begin() + 8; ++v) model.positions[v].y += run == 9 ? -4.5F : 1.5F;  // a box has eight
    }
    PALPATE_ASSERT_OK(detector.Run(queue(), Upload(model.positions), 0.05F));
    EXPECT_TRUE(SameBits(Download(detector.contact_buffer(), detector.contact_count()), Contacts(model, 0.05F, CandidateStructure::kTree)))
        << run;
    const auto positions = Upload(model.positions);
    PALPATE_ASSERT_OK(candidates->Begin(queue(), surface, positions, positions, 0.05F, {}));
    builds.push_back(bodies.list_builds());
  }
  EXPECT_EQ(builds[4], 1U);
  EXPECT_EQ(builds[5], 2U);
  EXPECT_EQ(builds[8], 2U);
  EXPECT_EQ(builds[11], 3U);
}

// Moves of which it is known that only some bodies can meet anything; a round after it looks at what has changed, wanted before or not.
TEST_F(BodyCandidatesTest, WantedBodiesAloneAreLookedAt) {
  const Model model = Heap(15, 0.2, 2.0);
  const auto topology = model.Topology();
  const auto starts = Upload(model.positions);
  const std::vector<Float4> ends = Moved(model, 16, 0.5);
  std::vector<uint8_t> is_wanted(model.bodies.size(), 0);
  for (size_t b = 0; b < model.bodies.size(); b += 4) is_wanted[b] = 1;
  const auto wanted = Upload(std::vector<uint32_t>(is_wanted.begin(), is_wanted.end()));
  auto whole = Make<ContinuousCollisions>(CcdDetectorOptions{}, CandidateStructure::kTree);
  auto detector = Make<ContinuousCollisions>(CcdDetectorOptions{}, CandidateStructure::kBodies);
  PALPATE_ASSERT_OK(whole.SetTopology(queue(), *topology));
  PALPATE_ASSERT_OK(detector.SetTopology(queue(), *topology));
  PALPATE_ASSERT_OK(whole.Run(queue(), starts, Upload(ends)));
  const std::vector<CcdHit> all = Hits(whole);
  PALPATE_ASSERT_OK(detector.RunWanted(queue(), starts, Upload(ends), wanted));
  const size_t needed = ExpectHitsOfChanged(*topology, all, Hits(detector), is_wanted);
  EXPECT_GT(needed, 50U);
  EXPECT_LT(needed, all.size());
  PALPATE_ASSERT_OK(whole.RunWanted(queue(), starts, Upload(ends), wanted));
  EXPECT_TRUE(SameBits(Hits(whole), all)) << "a tree leaves nothing out";

  std::vector<Float4> second = ends;
  std::vector<uint8_t> is_changed(model.bodies.size(), 0);
  for (size_t b = 1; b < model.bodies.size(); b += 4) {
    is_changed[b] = 1;
    for (const auto& t : model.bodies[b]) {
      for (const uint32_t v : t) second[v] = model.positions[v];
    }
  }
  PALPATE_ASSERT_OK(whole.Run(queue(), starts, Upload(second)));
  PALPATE_ASSERT_OK(detector.RunAgain(queue(), starts, Upload(second)));
  ExpectHitsOfChanged(*topology, Hits(whole), Hits(detector), is_changed);

  const auto few = Upload(std::vector<uint32_t>(3, 1));
  EXPECT_TRUE(absl::IsInvalidArgument(detector.RunWanted(queue(), starts, Upload(second), few)));
}

using ContactKey = std::tuple<uint32_t, uint32_t, uint32_t>;
ContactKey KeyOf(const SurfaceContact& c) { return {c.kind, c.a, c.b}; }

// Few bodies go far, the others by less than their reach: what is nearer than what is left of it is known. The room for contacts grows
// once.
TEST_F(BodyCandidatesTest, ContactsAreKnownButForStaleBodies) {
  const Model model = Heap(17, 0.3, 2.0);
  const auto topology = model.Topology();
  constexpr float kRange_m = 0.2F;
  constexpr float kWay_m = 0.02F;
  std::vector<float> reaches(model.bodies.size());
  for (size_t b = 0; b < reaches.size(); ++b) reaches[b] = 0.05F + 0.01F * static_cast<float>(b % 6);
  for (const CandidateStructure structure : {CandidateStructure::kTree, CandidateStructure::kBodies}) {
    auto whole = Make<ProximityDetector>(ProximityOptions{}, structure);
    auto detector = Make<ProximityDetector>(ProximityOptions{}, structure);
    PALPATE_ASSERT_OK(whole.SetTopology(queue(), *topology, {}));
    PALPATE_ASSERT_OK(detector.SetTopology(queue(), *topology, {}));
    PALPATE_ASSERT_OK(detector.Run(queue(), Upload(model.positions), kRange_m, Upload(reaches)));
    std::vector<SurfaceContact> known = Download(detector.contact_buffer(), detector.contact_count());
    std::vector<Float4> positions = model.positions;
    std::vector<float> left = reaches;
    for (uint64_t round = 0; round < 4; ++round) {
      std::vector<uint8_t> is_stale(model.bodies.size(), 0);
      for (size_t b = 0; b < model.bodies.size(); ++b) {
        is_stale[b] = b % 9 == round || round == 2 ? 1 : 0;
        const std::set<uint32_t> vertices = [&] {
          std::set<uint32_t> all;
          for (const auto& t : model.bodies[b]) all.insert(t.begin(), t.end());
          return all;
        }();
        // In the last round all stale ones come to one place.
        const Float4 place = positions[*vertices.begin()];
        for (const uint32_t v : vertices) {
          Float4& p = positions[v];
          if (is_stale[b] == 0) {
            p.x += b % 2 == 0 ? kWay_m : -kWay_m;
          } else {
            p = round == 3 ? Point(p.x - place.x, p.y - place.y, p.z - place.z) : Point(p.x, p.y + 0.1, p.z);
          }
        }
        left[b] = is_stale[b] != 0 ? reaches[b] : left[b] - 1.0001F * kWay_m;
      }
      const auto stale = Upload(std::vector<uint32_t>(is_stale.begin(), is_stale.end()));
      PALPATE_ASSERT_OK(detector.RunAgain(queue(), Upload(positions), kRange_m, Upload(left), stale));
      PALPATE_ASSERT_OK(whole.Run(queue(), Upload(positions), kRange_m, Upload(left)));
      const auto again = Download(detector.contact_buffer(), detector.contact_count());
      const auto all = Download(whole.contact_buffer(), whole.contact_count());
      EXPECT_GT(all.size(), 50U);
      std::map<ContactKey, SurfaceContact> found;
      for (const SurfaceContact& c : again) found.emplace(KeyOf(c), c);
      EXPECT_EQ(found.size(), again.size()) << "a pair came twice";
      for (const SurfaceContact& c : all) {
        const auto at = found.find(KeyOf(c));
        ASSERT_NE(at, found.end()) << "round " << round << ": a pair was missed";
        EXPECT_EQ(std::memcmp(&at->second, &c, sizeof(c)), 0);
      }
      // Besides: what was known between bodies that are not stale, though it is beyond their reaches now.
      std::set<ContactKey> allowed;
      const auto body = [&](uint32_t vertex) { return topology->vertex_groups[vertex] & PALPATE_GROUP_MASK; };
      for (const SurfaceContact& c : all) allowed.insert(KeyOf(c));
      const bool has_grown = detector.stats().detect_launches > 1;  // then nothing is known any longer
      EXPECT_EQ(has_grown, round == 3 && kHeap > 100) << "few bodies fit in any case";
      for (const SurfaceContact& c : known) {
        if (!has_grown && is_stale[body(c.vertices.x)] == 0 && is_stale[body(c.vertices.w)] == 0) allowed.insert(KeyOf(c));
      }
      EXPECT_EQ(found.size(), allowed.size());
      for (const SurfaceContact& c : again) EXPECT_TRUE(allowed.contains(KeyOf(c)));
      known = again;
    }
    EXPECT_TRUE(absl::IsInvalidArgument(
        detector.RunAgain(queue(), Upload(positions), kRange_m, Upload(left), Upload(std::vector<uint32_t>(2, 1)))));
  }
}

TEST_F(BodyCandidatesTest, CrossingsAreThoseOfTheTree) {
  const Model model = Heap(8, 0.3, 1.5);
  PALPATE_TEST_ASSIGN(const DeviceSurface surface, DeviceSurface::Upload(queue(), *model.Topology()));
  std::vector<UInt2> crossings[2];
  std::vector<uint32_t> flags[2];
  for (const CandidateStructure structure : {CandidateStructure::kTree, CandidateStructure::kBodies}) {
    auto counter = Make<IntersectionCounter>(IntersectionOptions{}, structure);
    PALPATE_ASSERT_OK(counter.Run(queue(), surface, Upload(model.positions)));
    const size_t i = structure == CandidateStructure::kBodies;
    crossings[i] = Download(counter.crossings(), counter.crossing_count());
    flags[i] = Download(counter.triangle_flags(), surface.triangle_count);
  }
  EXPECT_GT(crossings[0].size(), 20U);
  EXPECT_TRUE(SameBits(crossings[0], crossings[1]));
  EXPECT_EQ(flags[0], flags[1]);
}

// Boxes whose boxes overlap all the time, but that a plane keeps apart.
TEST_F(BodyCandidatesTest, PlanesKeepBodiesApart) {
  const Matrix turn = Rotation({0, 0, 1}, std::numbers::pi / 4);
  const double along = std::sqrt(0.5);
  Model model;
  AddBox(&model, {1, 1, 1}, turn, {0, 0, 0});
  AddBox(&model, {1, 1, 1}, turn, {2.1 * along, 2.1 * along, 0});  // 0.1 away along a diagonal
  EXPECT_EQ(BodyPairs(model, model.positions, 0.09F), 0U);
  EXPECT_EQ(BodyPairs(model, model.positions, 0.11F), 1U);
  // One slides along the face of the other, farther than both are long.
  std::vector<Float4> ends = model.positions;
  for (size_t v = 8; v < 16; ++v) ends[v] = Point(ends[v].x - 4.2 * along, ends[v].y + 4.2 * along, 0.0 + ends[v].z);
  EXPECT_EQ(BodyPairs(model, ends, 0.09F), 0U);
  // Both fall, faster than they are large.
  for (size_t v = 0; v < 16; ++v) ends[v] = Point(model.positions[v].x, model.positions[v].y, model.positions[v].z - 10.0);
  EXPECT_EQ(BodyPairs(model, ends, 0.09F), 0U);
  // One goes through the other and is free of it at the end.
  ends = model.positions;
  for (size_t v = 8; v < 16; ++v) ends[v] = Point(ends[v].x - 4.2 * along, ends[v].y - 4.2 * along, 0.0 + ends[v].z);
  EXPECT_EQ(BodyPairs(model, ends, 0.0F), 1U);
}

TEST_F(BodyCandidatesTest, FindsNeighboursAmongMoreBodiesThanAreComparedAllWithAll) {
  // More than are compared all with all.
  const Matrix none = Rotation({0, 0, 1}, 0);
  Model model;
  for (int i = 0; i < 11; ++i) {
    for (int j = 0; j < 11; ++j) {
      for (int k = 0; k < 10; ++k) AddBox(&model, {0.5, 0.5, 0.5}, none, {1.1 * i, 1.1 * j, 1.1 * k});
    }
  }
  // Neighbours along faces (gap 0.1) and along edges (0.1414), not those at corners (0.173).
  const uint32_t faces = 10 * 11 * 10 + 11 * 10 * 10 + 11 * 11 * 9;
  const uint32_t edges = 2 * (10 * 10 * 10 + 10 * 11 * 9 + 11 * 10 * 9);
  EXPECT_EQ(BodyPairs(model, model.positions, 0.15F), faces + edges);
}

TEST_F(BodyCandidatesTest, TopologyMayChangeBetweenRuns) {
  auto detector = Make<ProximityDetector>(ProximityOptions{}, CandidateStructure::kBodies);
  for (const uint64_t seed : {9, 10}) {
    const Model model = Heap(seed, 0.3, 1.5);
    PALPATE_ASSERT_OK(detector.SetTopology(queue(), *model.Topology(), {}));
    PALPATE_ASSERT_OK(detector.Run(queue(), Upload(model.positions), 0.05F));
    EXPECT_TRUE(SameBits(Download(detector.contact_buffer(), detector.contact_count()), Contacts(model, 0.05F, CandidateStructure::kTree)));
  }
}

TEST_F(BodyCandidatesTest, BadPositionsAreNamed) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(), 1e9F}) {
    Model model = Heap(11, 0.3, 10);
    model.positions[12].y = bad;
    auto detector = Make<ProximityDetector>(ProximityOptions{}, CandidateStructure::kBodies);
    PALPATE_ASSERT_OK(detector.SetTopology(queue(), *model.Topology(), {}));
    EXPECT_THAT(detector.Run(queue(), Upload(model.positions), 0.05F).message(), HasSubstr("vertex 12"));
    auto collisions = Make<ContinuousCollisions>(CcdDetectorOptions{}, CandidateStructure::kBodies);
    PALPATE_ASSERT_OK(collisions.SetTopology(queue(), *model.Topology()));
    const absl::Status status = collisions.Run(queue(), Upload(Heap(11, 0.3, 10).positions), Upload(model.positions));
    if (bad == 1e9F) {
      PALPATE_EXPECT_OK(status);
    } else {
      EXPECT_THAT(status.message(), HasSubstr("vertex 12"));
    }
  }
}

TEST_F(BodyCandidatesTest, TooManyPairsAreRefused) {
  Model model;
  for (int i = 0; i < 40; ++i) AddBox(&model, {0.5, 0.5, 0.5}, Rotation({1, 2, 3}, i), {0, 0, 0});
  auto detector = Make<ProximityDetector>(ProximityOptions{.max_cluster_pairs = 100}, CandidateStructure::kBodies);
  PALPATE_ASSERT_OK(detector.SetTopology(queue(), *model.Topology(), {}));
  const absl::Status status = detector.Run(queue(), Upload(model.positions), 0.05F);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(status.message(), HasSubstr("max_cluster_pairs = 100"));
}

}  // namespace
}  // namespace palpate::gpu::body_candidates_test
