// Edges inside flat faces: which are marked, and that what meets a body is found without them.
#include "gpu/collision/flat_edges.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include <Eigen/Geometry>

#include "gpu/collision/ccd.h"
#include "gpu/collision/proximity.h"
#include "tests/gpu/collision/surface_models.h"

namespace palpate::gpu {
namespace {

using Id = std::tuple<uint32_t, uint32_t, uint32_t>;  // kind, a, b
using Pose = Eigen::Isometry3d;

constexpr double kFlat_m = 5e-8;

Float4 ToFloat4(const Eigen::Vector3d& p) { return Point(p.x(), p.y(), p.z()); }

/// A closed box about the origin whose faces have n x n squares of two triangles.
struct Box {
  Box(const Eigen::Vector3d& size_m, uint32_t n) {
    std::map<std::array<uint32_t, 3>, uint32_t> known;
    const auto vertex = [&](std::array<uint32_t, 3> at) {
      const auto [found, is_new] = known.try_emplace(at, static_cast<uint32_t>(vertices.size()));
      if (is_new) vertices.push_back(size_m.cwiseProduct(Eigen::Vector3d(at[0], at[1], at[2]) / n - Eigen::Vector3d::Constant(0.5)));
      return found->second;
    };
    for (size_t axis = 0; axis < 3; ++axis) {
      for (const bool is_upper : {false, true}) {
        for (uint32_t i = 0; i < n; ++i) {
          for (uint32_t j = 0; j < n; ++j) {
            const auto corner = [&](uint32_t di, uint32_t dj) {
              std::array<uint32_t, 3> at{};
              at[axis] = is_upper ? n : 0;
              at[(axis + 1) % 3] = i + di;
              at[(axis + 2) % 3] = j + dj;
              return vertex(at);
            };
            const uint32_t a = corner(0, 0), b = corner(1, 0), c = corner(1, 1), d = corner(0, 1);
            triangles.push_back({a, is_upper ? b : c, is_upper ? c : b});
            triangles.push_back({a, is_upper ? c : d, is_upper ? d : c});
          }
        }
      }
    }
  }

  std::vector<Float4> At(const Pose& pose) const {
    std::vector<Float4> placed;
    for (const Eigen::Vector3d& v : vertices) placed.push_back(ToFloat4(pose * v));
    return placed;
  }

  std::vector<Eigen::Vector3d> vertices;
  Triangles triangles;
};

class Poses {
 public:
  explicit Poses(uint64_t seed) : random_(seed) {}
  double Uniform(double low, double high) { return std::uniform_real_distribution<double>(low, high)(random_); }
  Eigen::Vector3d InCube(double half) { return {Uniform(-half, half), Uniform(-half, half), Uniform(-half, half)}; }
  Pose Any(double half) {
    const Eigen::Quaterniond turn(Uniform(-1, 1), Uniform(-1, 1), Uniform(-1, 1), Uniform(-1, 1));
    return Eigen::Translation3d(InCube(half)) * turn.normalized();
  }
  /// As `from`, a little further.
  Pose Next(const Pose& from, double way_m, double angle) {
    Pose next = from;
    next.translation() += InCube(way_m);
    next.linear() = Eigen::AngleAxisd(Uniform(-angle, angle), InCube(1).normalized()) * from.linear();
    return next;
  }

 private:
  std::mt19937_64 random_;
};

/// Moves the vertices from `first` on so that a plane across `along` is all that is between them and the others, and the gap.
void Separate(size_t first, const Eigen::Vector3d& along, double gap_m, std::vector<Float4>* positions) {
  double highest = -1, lowest = 1;
  const auto height = [&](const Float4& p) { return along.dot(Eigen::Vector3d(p.x, p.y, p.z)); };
  for (size_t v = 0; v < positions->size(); ++v) {
    const double at = height((*positions)[v]);
    (v < first ? highest : lowest) = v < first ? std::max(highest, at) : std::min(lowest, at);
  }
  const Eigen::Vector3d shift = (highest - lowest + gap_m) * along;
  for (size_t v = first; v < positions->size(); ++v) {
    Float4& p = (*positions)[v];
    p = Point(p.x + shift.x(), p.y + shift.y(), p.z + shift.z());
  }
}

bool IsFlat(const SurfaceTopology& surface, uint32_t edge) { return surface.edge_groups[edge] == SurfaceTopology::kNoGroup; }

/// That both ways of marking an edge say the same, and that ownership is as it was.
void ExpectConsistent(const SurfaceTopology& marked, const SurfaceTopology& plain) {
  for (size_t t = 0; t < marked.triangles.size(); ++t) {
    const UInt4& e = marked.triangle_edges[t];
    const std::array<uint32_t, 3> edges{e.x, e.y, e.z};
    EXPECT_EQ(marked.triangles[t].w % SurfaceTopology::kFlatEdge, plain.triangles[t].w);
    for (size_t k = 0; k < 3; ++k) {
      EXPECT_EQ((marked.triangles[t].w & (SurfaceTopology::kFlatEdge << k)) != 0, IsFlat(marked, edges[k])) << "triangle " << t;
    }
  }
}

class FlatEdgesTest : public SurfaceTest {
 protected:
  /// How many edges of a scene are marked. -1: the surface is refused.
  static int Marked(const Model& model, const std::vector<uint8_t>& keeps_shape, double flat_m = kFlat_m) {
    absl::StatusOr<SurfaceTopology> surface = model.Topology();
    if (!surface.ok()) return -1;
    const SurfaceTopology plain = *surface;
    const uint32_t count = MarkFlatEdges(model.positions, keeps_shape, flat_m, &*surface);
    ExpectConsistent(*surface, plain);
    EXPECT_EQ(std::count(surface->edge_groups.begin(), surface->edge_groups.end(), SurfaceTopology::kNoGroup), count);
    return static_cast<int>(count);
  }

  std::vector<SurfaceContact> Contacts(const SurfaceTopology& surface, const std::vector<Float4>& at, float range_m,
                                       CandidateStructure structure) {
    std::vector<SurfaceContact> contacts;
    [&] {
      ProximityOptions options;
      options.candidates = structure;
      PALPATE_TEST_ASSIGN(ProximityDetector detector, ProximityDetector::Create(context(), options));
      PALPATE_ASSERT_OK(detector.SetTopology(queue(), surface, {}));
      PALPATE_ASSERT_OK(detector.Run(queue(), Upload(at), range_m));
      contacts = Download(detector.contact_buffer(), detector.contact_count());
    }();
    return contacts;
  }

  std::vector<CcdHit> Hits(const SurfaceTopology& surface, const std::vector<Float4>& starts, const std::vector<Float4>& ends) {
    std::vector<CcdHit> hits;
    [&] {
      PALPATE_TEST_ASSIGN(ContinuousCollisions detector, ContinuousCollisions::Create(context()));
      PALPATE_ASSERT_OK(detector.SetTopology(queue(), surface));
      PALPATE_ASSERT_OK(detector.Run(queue(), Upload(starts), Upload(ends)));
      hits = Download(detector.hit_buffer(), detector.hits().count);
    }();
    return hits;
  }
};

TEST_F(FlatEdgesTest, DiagonalsOfABoxAreMarkedHoweverItLies) {
  Poses poses(1);
  for (int i = 0; i < 200; ++i) {
    const uint32_t n = 1 + i % 4;
    const Box box({0.04, 0.03, 0.02}, n);
    Model model;
    model.Add(box.At(poses.Any(0.3)), box.triangles, false);
    // Of a face with n x n squares all edges but the 4 n of its outline.
    EXPECT_EQ(Marked(model, {1}), static_cast<int>(6 * (3 * n * n - 2 * n))) << i;
    EXPECT_EQ(Marked(model, {0}), 0) << "it may deform";
    EXPECT_EQ(Marked(model, {}), 0) << "nothing is known of it";
  }
}

TEST_F(FlatEdgesTest, OnlyTheBodiesThatKeepTheirShapeAreLookedAt) {
  const Box box({1, 1, 1}, 1);
  Model model;
  model.Add(box.At(Pose::Identity()), box.triangles, false);
  model.Add(box.At(Pose(Eigen::Translation3d(3, 0, 0))), box.triangles, true);
  EXPECT_EQ(Marked(model, {1, 0}), 6);
  EXPECT_EQ(Marked(model, {0, 1}), 6);
  EXPECT_EQ(Marked(model, {1, 1}), 12);
}

TEST_F(FlatEdgesTest, EdgesThatSomethingCouldReachFirstAreNotMarked) {
  // Two triangles over a square, the last corner lifted.
  const auto sheet = [](double lift) {
    Model model;
    model.Add({Point(0, 0, 0), Point(1, 0, 0), Point(1, 1, 0), Point(0, 1, lift)}, {{0, 1, 2}, {0, 2, 3}}, false);
    return model;
  };
  EXPECT_EQ(Marked(sheet(0), {1}), 1) << "four edges of the outline and a diagonal";
  EXPECT_EQ(Marked(sheet(4e-8), {1}), 1);
  EXPECT_EQ(Marked(sheet(1e-6), {1}), 0);
  EXPECT_EQ(Marked(sheet(1e-6), {1}, 1e-5), 1) << "a wider tolerance";

  Model folded;  // the second triangle lies on the first
  folded.Add({Point(0, 0, 0), Point(1, 0, 0), Point(0.5, 1, 0), Point(0.5, 0.5, 0)}, {{0, 1, 2}, {1, 0, 3}}, false);
  EXPECT_EQ(Marked(folded, {1}), 0);

  Model fins;  // three triangles share an edge, two of them in a plane
  fins.Add({Point(0, 0, 0), Point(1, 0, 0), Point(0.5, 1, 0), Point(0.5, -1, 0), Point(0.5, 0, 1)}, {{0, 1, 2}, {1, 0, 3}, {0, 1, 4}},
           false);
  EXPECT_EQ(Marked(fins, {1}), 0);

  Model sliver;  // without area there is no plane
  sliver.Add({Point(0, 0, 0), Point(1, 0, 0), Point(2, 0, 0), Point(1, 1, 0)}, {{0, 1, 2}, {0, 2, 3}}, false);
  EXPECT_EQ(Marked(sliver, {1}), 0);
}

TEST_F(FlatEdgesTest, WhatBendsLittleFromTriangleToTriangleIsNoFace) {
  // A strip that rises as a parabola: neighbours differ by less than the tolerance, the ends by far more.
  Model model;
  AddSheet(
      &model, 1000, 1, [](double u, double v) { return Point(u, 0.001 * v, 0.01 * u * u); }, false);
  PALPATE_TEST_ASSIGN(SurfaceTopology surface, model.Topology());
  const uint32_t marked = MarkFlatEdges(model.positions, std::vector<uint8_t>{1}, 1e-6, &surface);
  EXPECT_GT(marked, 900U) << "the strip is flat enough around each triangle";
  // Faces are what marked edges join; each must be flat as a whole.
  std::vector<uint32_t> face(surface.triangles.size());
  for (uint32_t t = 0; t < face.size(); ++t) face[t] = t;
  const auto root = [&](uint32_t t) {
    while (face[t] != t) t = face[t];
    return t;
  };
  for (uint32_t e = 0; e < surface.edges.size(); ++e) {
    if (!IsFlat(surface, e)) continue;
    const uint32_t begin = surface.edge_triangle_begin[e];
    const uint32_t a = root(surface.edge_triangles[begin]), b = root(surface.edge_triangles[begin + 1]);
    face[std::max(a, b)] = std::min(a, b);
  }
  std::map<uint32_t, std::array<float, 2>> spans;  // of u
  for (uint32_t t = 0; t < face.size(); ++t) {
    auto& span = spans.try_emplace(root(t), std::array<float, 2>{2, -1}).first->second;
    const UInt4& v = surface.triangles[t];
    for (const uint32_t vertex : {v.x, v.y, v.z}) {
      span[0] = std::min(span[0], model.positions[vertex].x);
      span[1] = std::max(span[1], model.positions[vertex].x);
    }
  }
  // A parabola 0.01 u^2 is off its chord or tangent by at most 0.01 (du)^2 over du.
  for (const auto& [first, span] : spans) EXPECT_LE(0.01 * (span[1] - span[0]) * (span[1] - span[0]) / 4, 4e-6) << first;
  EXPECT_GT(spans.size(), 10U);
}

// Two boxes, or a box and a soup of loose triangles, near each other: without the marked edges exactly the pairs with one are missing, and
// the least distance is the same.
TEST_F(FlatEdgesTest, LeastDistanceIsFoundWithoutThem) {
  Poses poses(2);
  int near = 0;
  size_t left_out = 0;
  for (int i = 0; i < 60; ++i) {
    Model model;
    const Box first({0.04, 0.03, 0.02}, 1 + i % 3), second({0.03, 0.05, 0.01}, 1 + i % 2);
    model.Add(first.At(poses.Any(0.02)), first.triangles, false);
    std::vector<uint8_t> keeps_shape{1};
    if (i % 3 != 2) {
      model.Add(second.At(poses.Any(0.02)), second.triangles, false);
      keeps_shape.push_back(1);
    } else {
      AddSoup(&model, 6, 0.02, 0.03, 77 + i, false);
    }
    Separate(first.vertices.size(), poses.InCube(1).normalized(), poses.Uniform(2e-4, 0.01), &model.positions);
    PALPATE_TEST_ASSIGN(const SurfaceTopology plain, model.Topology());
    SurfaceTopology marked = plain;
    ASSERT_GT(MarkFlatEdges(model.positions, keeps_shape, kFlat_m, &marked), 0U);
    for (const CandidateStructure structure : kCandidateStructures) {
      const std::vector<SurfaceContact> all = Contacts(plain, model.positions, 0.02F, structure);
      const std::vector<SurfaceContact> some = Contacts(marked, model.positions, 0.02F, structure);
      std::vector<Id> expected, found;
      double least_of_all = std::numeric_limits<double>::infinity();
      double least = least_of_all;
      for (const SurfaceContact& c : all) {
        least_of_all = std::min(least_of_all, double{c.normal.w});
        if (c.kind == PALPATE_EDGE_EDGE && (IsFlat(marked, c.a) || IsFlat(marked, c.b))) continue;
        expected.emplace_back(c.kind, c.a, c.b);
      }
      for (const SurfaceContact& c : some) {
        least = std::min(least, double{c.normal.w});
        found.emplace_back(c.kind, c.a, c.b);
      }
      ASSERT_EQ(found, expected) << i;
      if (all.empty()) continue;
      ++near;
      left_out += all.size() - found.size();
      EXPECT_NEAR(least, least_of_all, 2 * kFlat_m) << i;
    }
  }
  EXPECT_GT(near, 40);
  EXPECT_GT(left_out, 100U);
}

// The earliest impact of boxes that move and turn is found without the marked edges.
TEST_F(FlatEdgesTest, FirstImpactIsFoundWithoutThem) {
  Poses poses(3);
  int met = 0;
  int missing = 0;
  for (int i = 0; i < 120; ++i) {
    const Box first({0.04, 0.03, 0.02}, 1 + i % 3), second({0.03, 0.05, 0.01}, 1 + i % 2);
    const Pose from = poses.Any(0.005);
    const Eigen::Vector3d along = poses.InCube(1).normalized();
    const Pose other_from = Eigen::Translation3d(0.1 * along) * poses.Any(0);
    const Pose to = poses.Next(from, 0.005, 0.3), other_to = poses.Next(other_from, 0.005, 0.3);
    Model model;
    model.Add(first.At(from), first.triangles, false);
    model.Add(second.At(other_from), second.triangles, false);
    std::vector<Float4> ends = first.At(to);
    for (const Float4& p : second.At(other_to)) ends.push_back(p);
    Separate(first.vertices.size(), along, poses.Uniform(2e-4, 0.005), &model.positions);
    Separate(first.vertices.size(), along, -poses.Uniform(0, 0.01), &ends);
    PALPATE_TEST_ASSIGN(const SurfaceTopology plain, model.Topology());
    SurfaceTopology marked = plain;
    ASSERT_GT(MarkFlatEdges(model.positions, std::vector<uint8_t>{1, 1}, kFlat_m, &marked), 0U);
    const std::vector<CcdHit> all = Hits(plain, model.positions, ends);
    const std::vector<CcdHit> some = Hits(marked, model.positions, ends);
    ASSERT_EQ(all.empty(), some.empty()) << i;
    if (all.empty()) continue;
    ++met;
    missing += all.size() > some.size() ? 1 : 0;
    const auto earlier = [](const CcdHit& a, const CcdHit& b) { return a.toi < b.toi; };
    const float first_of_all = std::min_element(all.begin(), all.end(), earlier)->toi;
    const float first_found = std::min_element(some.begin(), some.end(), earlier)->toi;
    EXPECT_GE(first_found, first_of_all) << i;
    // Both are before the impact, each by as much as its own pair needs to be sure.
    EXPECT_LE(first_found, first_of_all + 1e-3) << i;
  }
  EXPECT_GT(met, 30);
  EXPECT_GT(missing, 20) << "later hits with a marked edge are left out";
}

}  // namespace
}  // namespace palpate::gpu
