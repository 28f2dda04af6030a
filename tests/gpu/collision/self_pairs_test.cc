// Searches with lists of the pairs within bodies find what searches without them do, to the bit.
#include "gpu/collision/self_pairs.h"

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <numbers>
#include <random>

#include "gpu/collision/proximity.h"
#include "tests/gpu/collision/surface_models.h"

namespace palpate::gpu::self_pairs_test {
namespace {

using Positions = std::vector<Float4>;

/// What lists did over some searches.
struct Tally {
  uint32_t searches = 0, listed = 0, renewed = 0;
  uint64_t contacts = 0;
};

class SelfPairsTest : public SurfaceTest {
 protected:
#ifdef PALPATE_NATIVE_KERNELS
  static constexpr int kFrames = 20;  // every access is checked there, which takes its time
#else
  static constexpr int kFrames = 40;
#endif

  /// Detectors with and without lists for `model`.
  void Make(const Model& model, SelfPairsUse use, const ProximityOptions& options = {}) {
    PALPATE_TEST_ASSIGN(const SurfaceTopology surface, model.Topology());
    PALPATE_TEST_ASSIGN(with_, ProximityDetector::Create(context(), options));
    PALPATE_TEST_ASSIGN(without_, ProximityDetector::Create(context(), options));
    PALPATE_TEST_ASSIGN(pairs_, SelfPairs::Create(context(), use));
    SetSurface(surface, model);
    tally_ = {};
  }
  void SetSurface(const SurfaceTopology& surface, const Model& model) {
    PALPATE_ASSERT_OK(with_.SetTopology(queue(), surface, {}));
    PALPATE_ASSERT_OK(without_.SetTopology(queue(), surface, {}));
    std::vector<uint8_t> self, has_surface;
    for (size_t b = 0; b < model.bodies.size(); ++b) {
      self.push_back(model.self[b] ? 1 : 0);
      has_surface.push_back(model.bodies[b].empty() ? 0 : 1);
    }
    pairs_.SetBodies(self, has_surface);
  }

  /// One search both ways; expects the same contacts.
  void Search(const Positions& positions, float range_m, const std::vector<float>& reaches_m = {}) {
    const auto device = Upload(positions);
    const auto reaches = Upload(reaches_m);
    const BufferView<float> view = reaches_m.empty() ? BufferView<float>() : reaches.view();
    const auto rest = Upload(rest_m_);
    const auto spare = Upload(spare_m_);
    const ProximityRest of_rest = spare_m_.empty() ? ProximityRest{} : ProximityRest{rest.view(), spare.view()};
    PALPATE_ASSERT_OK(with_.Run(queue(), device, range_m, view, &pairs_, of_rest));
    PALPATE_ASSERT_OK(without_.Run(queue(), device, range_m, view, nullptr, of_rest));
    tally_.searches += pairs_.self_bodies();
    tally_.listed += pairs_.listed_bodies();
    tally_.renewed += pairs_.is_renewed() ? 1 : 0;
    tally_.contacts += without_.contact_count();
    ASSERT_EQ(with_.contact_count(), without_.contact_count());
    const auto a = Download(with_.contact_buffer(), with_.contact_count());
    const auto b = Download(without_.contact_buffer(), without_.contact_count());
    ASSERT_EQ(std::memcmp(a.data(), b.data(), a.size() * sizeof(SurfaceContact)), 0);
  }

  void TearDown() override {
    with_ = {};
    without_ = {};
    pairs_ = {};
    SurfaceTest::TearDown();
  }

  ProximityDetector with_, without_;
  SelfPairs pairs_;
  Tally tally_;
  Positions rest_m_;
  std::vector<float> spare_m_;  // empty: none
};

Float4 Moved(const Float4& p, double x, double y, double z) { return Point(p.x + x, p.y + y, p.z + z); }

TEST_F(SelfPairsTest, OneListServesWhileABodyMovesLittle) {
  Model model;
  AddTorus(&model, 24, 12, 1, 0.3, {0, 0, 0}, true);
  Make(model, SelfPairsUse::kAutomatic);
  for (int frame = 0; frame < kFrames; ++frame) {
    Positions at = model.positions;
    for (Float4& p : at) p = Moved(p, 0.002 * std::sin(0.3 * frame) * p.y, 0, 0);
    ASSERT_NO_FATAL_FAILURE(Search(at, 0.12F));
  }
  EXPECT_EQ(tally_.renewed, 1U);
  EXPECT_EQ(tally_.listed, static_cast<uint32_t>(kFrames) - 1);
  EXPECT_GT(tally_.contacts, 100U * kFrames);
  // Nothing but the list was looked at.
  EXPECT_EQ(with_.stats().triangle_pairs, 0U);
  EXPECT_LT(with_.stats().tests, without_.stats().tests);
}

// A body that moves as a whole keeps its list, however far it goes.
TEST_F(SelfPairsTest, ATranslationCostsNoList) {
  Model model;
  AddTrefoil(&model, 40, 8, 0.35, true);
  Make(model, SelfPairsUse::kAutomatic);  // of edges of about 0.3
  for (int frame = 0; frame < kFrames; ++frame) {
    Positions at = model.positions;
    for (Float4& p : at) p = Moved(p, 3.0 * frame, -2.0 * frame, 0.5 * frame * frame);
    ASSERT_NO_FATAL_FAILURE(Search(at, 0.6F));
  }
  EXPECT_EQ(tally_.renewed, 1U);
  EXPECT_EQ(tally_.listed, static_cast<uint32_t>(kFrames) - 1);
  EXPECT_GT(tally_.contacts, 100U);
}

// A sheet is folded until it lies on itself, and opened again: pairs come that no earlier list had, and go.
TEST_F(SelfPairsTest, AFoldingSheetLosesItsListAndGetsAnother) {
  for (const SelfPairsUse use : {SelfPairsUse::kAutomatic, SelfPairsUse::kAlways}) {
    Model model;
    AddSheet(
        &model, 24, 6, [](double u, double v) { return Point(u, v, 0); }, true);
    Make(model, use);
    uint64_t least = UINT64_MAX, most = 0;
    for (int frame = 0; frame < 2 * kFrames; ++frame) {
      // Half a turn about the middle, slower at both ends.
      const double angle = 1.56 * (1 - std::cos(std::numbers::pi * frame / kFrames));
      Positions at = model.positions;
      for (Float4& p : at) {
        const double bent = std::clamp(p.x - 0.5, 0.0, 0.02), beyond = std::max(0.0, p.x - 0.52);
        const double turn = angle * bent / 0.02;
        if (bent > 0)
          p = Point(0.5 + bent * std::cos(turn / 2) + beyond * std::cos(turn), p.y, bent * std::sin(turn / 2) + beyond * std::sin(turn));
      }
      const uint64_t before = tally_.contacts;
      ASSERT_NO_FATAL_FAILURE(Search(at, 0.06F));
      least = std::min(least, tally_.contacts - before);
      most = std::max(most, tally_.contacts - before);
    }
    EXPECT_GT(most, least + 50) << "it does not touch itself";
    EXPECT_GT(tally_.renewed, use == SelfPairsUse::kAlways ? 3U : 1U);
    EXPECT_GT(tally_.listed, 0U);
  }
}

// The same of a sheet that leaves out what is far for its distance at rest: lists know that.
TEST_F(SelfPairsTest, ListsKnowWhatIsLeftOutByItsDistanceAtRest) {
  for (const SelfPairsUse use : {SelfPairsUse::kAutomatic, SelfPairsUse::kAlways}) {
    Model model;
    AddSheet(
        &model, 24, 6, [](double u, double v) { return Point(u, v, 0); }, true);
    Make(model, use);
    rest_m_ = model.positions;
    spare_m_ = {0.012F};
    uint64_t most = 0;
    for (int frame = 0; frame < 2 * kFrames; ++frame) {
      const double angle = 1.56 * (1 - std::cos(std::numbers::pi * frame / kFrames)),
                   squeeze = 0.7 * std::sin(std::numbers::pi * frame / kFrames);
      Positions at = model.positions;
      for (Float4& p : at) {
        const double bent = std::clamp(p.x - 0.5, 0.0, 0.02), beyond = std::max(0.0, p.x - 0.52);
        const double turn = angle * bent / 0.02;
        const double y = p.y < 0.5F ? p.y * (1 - std::max(squeeze, 0.0)) : p.y;
        if (bent > 0)
          p = Point(0.5 + bent * std::cos(turn / 2) + beyond * std::cos(turn), y, bent * std::sin(turn / 2) + beyond * std::sin(turn));
      }
      const uint64_t before = tally_.contacts;
      ASSERT_NO_FATAL_FAILURE(Search(at, 0.2F));
      most = std::max(most, tally_.contacts - before);
    }
    EXPECT_GT(most, 50U);
    EXPECT_GT(tally_.listed, 0U);
  }
  spare_m_.clear();
}

// Bodies with lists, one that may not meet itself, and what lies between them; reaches differ.
TEST_F(SelfPairsTest, PairsOfDifferentBodiesAreSoughtBesideLists) {
  Model model;
  AddTorus(&model, 20, 10, 1, 0.3, {0, 0, 0}, true);
  AddTorus(&model, 20, 10, 1, 0.3, {0, 0, 0.55}, true);
  AddTorus(&model, 20, 10, 1, 0.3, {0, 0, -0.55}, false);
  for (const bool has_reaches : {false, true}) {
    Make(model, SelfPairsUse::kAutomatic);
    for (int frame = 0; frame < kFrames; ++frame) {
      Positions at = model.positions;
      for (size_t v = 0; v < at.size(); ++v) {
        // The second goes to and fro as a whole, and then deforms ever faster.
        if (v / 200 == 1) at[v] = Moved(at[v], 0.1 * std::sin(frame), 0, frame < kFrames / 2 ? 0 : 0.001 * frame * frame * at[v].x);
      }
      const std::vector<float> reaches = {0.07F, 0.05F, 0.03F};
      ASSERT_NO_FATAL_FAILURE(Search(at, 0.15F, has_reaches ? reaches : std::vector<float>{}));
    }
    EXPECT_GT(tally_.listed, static_cast<uint32_t>(kFrames));  // of both bodies
    EXPECT_LT(tally_.listed, tally_.searches - 2);             // the second lost its list
    EXPECT_GT(tally_.contacts, 100U);
  }
}

// Soups have pairs at all distances. Each vertex goes as far as the list allows, to all sides.
TEST_F(SelfPairsTest, NoPairIsMissedAtTheEdgeOfAList) {
  constexpr float kRange = 0.05F;
  constexpr double kSlack = 0.25 * kRange;  // of a first list
  std::mt19937_64 random(3);
  for (const double offset_m : {0.0, 50.0}) {
    Model model;
    AddSoup(&model, 150, 0.15, 0.5, 11, true);
    for (Float4& p : model.positions) p = Moved(p, offset_m, -offset_m, 0);
    Make(model, SelfPairsUse::kAlways);
    ASSERT_NO_FATAL_FAILURE(Search(model.positions, kRange));
    uint32_t listed = 0;
    for (int frame = 0; frame < kFrames; ++frame) {
      // Corners of a cube of this diagonal: some pairs come nearer by all of it.
      const double half = 0.5 * kSlack / std::sqrt(3.0) * (frame % 2 == 0 ? 0.97 : 1.03);
      Positions at = model.positions;
      for (Float4& p : at) {
        const uint64_t side = random();
        p = Moved(p, (side & 1U) != 0 ? half : -half, (side & 2U) != 0 ? half : -half, (side & 4U) != 0 ? half : -half);
      }
      const uint32_t before = tally_.listed;
      ASSERT_NO_FATAL_FAILURE(Search(at, kRange));
      listed += frame % 2 == 0 ? tally_.listed - before : 0;
      if (tally_.listed == before) {
        ASSERT_NO_FATAL_FAILURE(Search(model.positions, kRange));
      }
    }
    EXPECT_GT(listed, 0U);
    EXPECT_GT(tally_.renewed, 1U);
    EXPECT_GT(tally_.contacts, 1000U);
  }
}

// Two parts of a body that are far apart: either goes towards the other, along each axis, until it is just beyond the range or within.
TEST_F(SelfPairsTest, PartsThatWereFarApartMayMeet) {
  constexpr float kRange = 0.1F;
  for (int axis = 0; axis < 3; ++axis) {
    for (const bool is_first : {false, true}) {
      Model model;
      AddSheet(
          &model, 16, 16,
          [&](double u, double v) {
            const std::array<double, 3> p = {u, v, 0};
            return Point(p[(3 - axis) % 3], p[(4 - axis) % 3], p[(5 - axis) % 3]);
          },
          true);
      const size_t half = model.positions.size();
      const auto shift = [&](Float4* p, double by) { (axis == 0 ? p->z : axis == 1 ? p->x : p->y) += static_cast<float>(by); };
      for (size_t v = 0; v < half; ++v) {
        Float4 p = model.positions[v];
        shift(&p, 1);
        model.positions.push_back(p);
      }
      const Triangles one = model.bodies[0];
      for (auto t : one) {
        for (uint32_t& v : t) v += static_cast<uint32_t>(half);
        model.bodies[0].push_back(t);
      }
      Make(model, SelfPairsUse::kAlways);
      for (const double way : {0.889, 0.92, 0.95, 1.05}) {
        ASSERT_NO_FATAL_FAILURE(Search(model.positions, kRange));
        const uint32_t before = without_.contact_count();
        Positions at = model.positions;
        for (size_t v = 0; v < half; ++v) shift(&at[is_first ? v : half + v], is_first ? way : -way);
        ASSERT_NO_FATAL_FAILURE(Search(at, kRange));
        EXPECT_EQ(without_.contact_count() > before, way > 0.9) << way;
        EXPECT_EQ(pairs_.listed_bodies(), way > 0.9 ? 0U : 1U) << way;
      }
    }
  }
}

// Two triangles that were just beyond the list come towards each other, each by less than the list allows.
TEST_F(SelfPairsTest, WhatTwoPartsMoveAddsUp) {
  constexpr float kRange = 0.1F, kListRange = 1.25F * kRange;
  Model model;
  AddSoup(&model, 500, 0.02, 0.5, 21, true);
  Make(model, SelfPairsUse::kAlways);
  PALPATE_ASSERT_OK(without_.Run(queue(), Upload(model.positions), 1.02F * kListRange));
  const auto near = Download(without_.contact_buffer(), without_.contact_count());
  uint32_t tried = 0, found = 0;
  for (const SurfaceContact& contact : near) {
    if (contact.normal.w < kListRange || ++tried > 4 * kFrames) continue;
    pairs_.SetBodies({1}, {1});  // else lists grow longer
    ASSERT_NO_FATAL_FAILURE(Search(model.positions, kRange));
    const uint32_t before = without_.contact_count();
    Positions at = model.positions;
    const double way = 0.7 * (kListRange - kRange);
    for (uint32_t k = 0; k < 3; ++k) {
      Float4 &a = at[contact.vertices.x / 3 * 3 + k], &b = at[contact.vertices.w / 3 * 3 + k];
      a = Moved(a, way * contact.normal.x, way * contact.normal.y, way * contact.normal.z);
      b = Moved(b, -way * contact.normal.x, -way * contact.normal.y, -way * contact.normal.z);
    }
    ASSERT_NO_FATAL_FAILURE(Search(at, kRange));
    found += without_.contact_count() != before ? 1 : 0;
  }
  EXPECT_GT(tried, static_cast<uint32_t>(kFrames));
  EXPECT_GT(found, static_cast<uint32_t>(kFrames) / 2);
}

// Clusters with triangles of two bodies, and of three: each triangle in turn leaps to another one of its body.
TEST_F(SelfPairsTest, BodiesMayShareClusters) {
  for (const std::vector<uint32_t>& counts : {std::vector<uint32_t>{5, 29}, {5, 3, 29}}) {
    Model model;
    for (const uint32_t count : counts) {
      std::vector<Float4> vertices;
      Triangles triangles;
      const double y = 5.0 * static_cast<double>(model.bodies.size());
      for (uint32_t i = 0; i < count; ++i) {
        for (const Float4& p : {Point(i, y, 0), Point(i + 0.2, y, 0), Point(i, y + 0.2, 0)}) vertices.push_back(p);
        triangles.push_back({3 * i, 3 * i + 1, 3 * i + 2});
      }
      model.Add(vertices, triangles, true);
    }
    Make(model, SelfPairsUse::kAlways);
    uint32_t first = 0, listed = 0;
    for (const uint32_t count : counts) {
      for (uint32_t i = 0; i < count; ++i) {
        for (int repeat = 0; repeat < 2; ++repeat) ASSERT_NO_FATAL_FAILURE(Search(model.positions, 0.1F));
        listed += pairs_.listed_bodies();
        ASSERT_EQ(without_.contact_count(), 0U);
        Positions at = model.positions;
        for (uint32_t k = 0; k < 3; ++k) at[first + 3 * i + k] = Moved(at[first + 3 * i + k], i + 1 < count ? 1 : -1, 0, 0.05);
        ASSERT_NO_FATAL_FAILURE(Search(at, 0.1F));
        ASSERT_GT(without_.contact_count(), 0U);
      }
      first += 3 * count;
    }
    // A body that begins and ends within a cluster has no list that reaches.
    EXPECT_EQ(listed > 0, counts.size() == 2);
  }
}

// What moves too fast for any list is left alone for longer and longer; when it is calm again, it gets one.
TEST_F(SelfPairsTest, ListsThatDoNotLastAreMadeEverMoreRarely) {
  Model model;
  AddTorus(&model, 12, 8, 1, 0.3, {0, 0, 0}, true);
  Make(model, SelfPairsUse::kAutomatic);
  Positions at = model.positions;
  const auto shake = [&](int frame) {
    for (size_t v = 0; v < at.size(); ++v) at[v] = Moved(model.positions[v], (frame % 2 == 0 ? 0.3 : -0.3) * model.positions[v].y, 0, 0);
  };
  for (int frame = 0; frame < 100; ++frame) {
    shake(frame);
    ASSERT_NO_FATAL_FAILURE(Search(at, 0.1F));
  }
  EXPECT_GE(tally_.renewed, 5U);
  EXPECT_LE(tally_.renewed, 10U);
  EXPECT_EQ(tally_.listed, 0U);
  tally_ = {};
  for (int frame = 0; frame < 100; ++frame) ASSERT_NO_FATAL_FAILURE(Search(at, 0.1F));
  EXPECT_EQ(tally_.renewed, 1U);
  EXPECT_GT(tally_.listed, 80U);
}

TEST_F(SelfPairsTest, WithoutUseNothingIsListed) {
  Model model;
  AddTorus(&model, 12, 8, 1, 0.3, {0, 0, 0}, true);
  const auto run = [&] {
    for (int frame = 0; frame < 4; ++frame) ASSERT_NO_FATAL_FAILURE(Search(model.positions, 0.2F));
    EXPECT_EQ(tally_.listed + tally_.renewed, 0U);
    EXPECT_GT(tally_.contacts, 0U);
  };
  Make(model, SelfPairsUse::kNever);
  run();
  // Nor where candidates are found body by body, or contacts are left out.
  Make(model, SelfPairsUse::kAlways, {.candidates = CandidateStructure::kBodies});
  run();
  Make(model, SelfPairsUse::kAlways, {.reduction = ContactReduction::kNearest});
  run();
  model.self[0] = false;
  AddTorus(&model, 12, 8, 1, 0.3, {0, 0, 0.4}, false);
  Make(model, SelfPairsUse::kAlways);
  run();
}

TEST_F(SelfPairsTest, AVertexThatIsNoNumberIsNamedAsWithoutLists) {
  Model model;
  AddTorus(&model, 12, 8, 1, 0.3, {0, 0, 0}, true);
  for (const bool has_other : {false, true}) {
    if (has_other) AddTorus(&model, 12, 8, 1, 0.3, {0, 0, 2}, true);
    for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(), 2e8F}) {
      Make(model, SelfPairsUse::kAlways);
      for (int frame = 0; frame < 3; ++frame) ASSERT_NO_FATAL_FAILURE(Search(model.positions, 0.2F));
      ASSERT_GT(tally_.listed, 0U);
      Positions at = model.positions;
      at[17].y = bad;
      const absl::Status status = with_.Run(queue(), Upload(at), 0.2F, {}, &pairs_);
      EXPECT_TRUE(absl::IsInvalidArgument(status));
      EXPECT_EQ(status.message(), without_.Run(queue(), Upload(at), 0.2F).message());
      EXPECT_EQ(with_.contact_count(), 0U);
      for (int frame = 0; frame < 3; ++frame) ASSERT_NO_FATAL_FAILURE(Search(model.positions, 0.2F));
    }
  }
}

// Refresh and RunAgain go on from what a search with a list found.
TEST_F(SelfPairsTest, LaterLooksGoOnFromAList) {
  Model model;
  AddTorus(&model, 20, 10, 1, 0.3, {0, 0, 0}, true);
  AddTorus(&model, 20, 10, 1, 0.3, {0, 0, 0.6}, true);
  Make(model, SelfPairsUse::kAlways);
  for (int frame = 0; frame < 3; ++frame) ASSERT_NO_FATAL_FAILURE(Search(model.positions, 0.2F));
  ASSERT_EQ(pairs_.listed_bodies(), 2U);
  Positions at = model.positions;
  for (Float4& p : at) p = Moved(p, 0, 0.01 * p.x, 0);
  const auto device = Upload(at);
  const auto reaches = Upload(std::vector<float>{0.1F, 0.1F});
  const auto stale = Upload(std::vector<uint32_t>{0, 1});
  const auto expect_same = [&] {
    ASSERT_GT(without_.contact_count(), 0U);
    ASSERT_EQ(with_.contact_count(), without_.contact_count());
    const auto a = Download(with_.contact_buffer(), with_.contact_count());
    const auto b = Download(without_.contact_buffer(), without_.contact_count());
    EXPECT_EQ(std::memcmp(a.data(), b.data(), a.size() * sizeof(SurfaceContact)), 0);
  };
  for (ProximityDetector* detector : {&with_, &without_}) PALPATE_ASSERT_OK(detector->Refresh(queue(), device));
  expect_same();
  for (ProximityDetector* detector : {&with_, &without_}) PALPATE_ASSERT_OK(detector->RunAgain(queue(), device, 0.2F, reaches, stale));
  expect_same();
}

TEST_F(SelfPairsTest, AChangedSurfaceForgetsItsList) {
  Model model;
  AddTrefoil(&model, 40, 8, 0.35, true);
  Make(model, SelfPairsUse::kAlways);
  for (int removed = 0; removed < 4; ++removed) {
    for (int frame = 0; frame < 3; ++frame) ASSERT_NO_FATAL_FAILURE(Search(model.positions, 0.3F));
    EXPECT_EQ(tally_.renewed, static_cast<uint32_t>(removed) + 1);
    EXPECT_EQ(tally_.listed, 2U * (static_cast<uint32_t>(removed) + 1));
    model.bodies[0].erase(model.bodies[0].begin() + 31 * removed, model.bodies[0].begin() + 31 * removed + 9);
    PALPATE_TEST_ASSIGN(const SurfaceTopology surface, model.Topology());
    ASSERT_NO_FATAL_FAILURE(SetSurface(surface, model));
  }
}

// Lists and contacts outgrow their buffers in every combination.
TEST_F(SelfPairsTest, ContactsStayTheSameWhileBuffersGrow) {
  Model model;
  AddSoup(&model, 300, 0.2, 0.4, 5, true);
  AddSoup(&model, 40, 0.2, 0.4, 6, false);
  Make(model, SelfPairsUse::kAlways);
  for (const float range_m : {0.01F, 0.03F, 0.09F, 0.15F}) {
    for (int frame = 0; frame < 2; ++frame) ASSERT_NO_FATAL_FAILURE(Search(model.positions, range_m));
    EXPECT_GT(pairs_.listed_bodies(), 0U);
  }
  EXPECT_GT(without_.contact_count(), 8192U);
}

}  // namespace
}  // namespace palpate::gpu::self_pairs_test
