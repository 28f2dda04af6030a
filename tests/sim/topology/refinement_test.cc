#include "sim/topology/refinement.h"

#include <bit>
#include <cmath>
#include <set>

#include <Eigen/Geometry>

#include "absl/strings/str_cat.h"
#include "sim/topology/mesh_attributes.h"
#include "sim/topology/quality.h"
#include "sim/topology/subdivision.h"
#include "tests/sim/topology/topology_support.h"

namespace palpate::sim::refinement_test {
namespace {

using Points = std::array<Eigen::Vector3d, 4>;

double VolumeOf(const Points& p) { return (p[1] - p[0]).cross(p[2] - p[0]).dot(p[3] - p[0]) / 6; }

Points RandomTet(Random* random) {
  for (;;) {
    Points p;
    for (auto& x : p) x = {random->Real(), random->Real(), random->Real()};
    if (VolumeOf(p) < 0) std::swap(p[2], p[3]);
    if (VolumeOf(p) > 1e-3) return p;
  }
}

// The vertices and the middles of the edges.
std::array<Eigen::Vector3d, 10> WithMiddles(const Points& p) {
  std::array<Eigen::Vector3d, 10> all;
  for (size_t i = 0; i < 4; ++i) all[i] = p[i];
  for (size_t e = 0; e < 6; ++e) all[4 + e] = (p[static_cast<size_t>(kTetEdges[e][0])] + p[static_cast<size_t>(kTetEdges[e][1])]) / 2;
  return all;
}

TEST(TetQualityTest, RegularTetIsOneAndCornerTetAsTabulated) {
  const Points regular = {Eigen::Vector3d(1, 1, 1), Eigen::Vector3d(1, -1, -1), Eigen::Vector3d(-1, -1, 1), Eigen::Vector3d(-1, 1, -1)};
  ASSERT_GT(VolumeOf(regular), 0);
  const TetQuality q = MeasureTet(regular);
  for (const double value : {q.radius_ratio, q.mean_ratio, q.min_solid_angle, q.min_dihedral, q.edge_ratio, q.inradius_per_edge}) {
    EXPECT_NEAR(value, 1, 1e-12);
  }
  EXPECT_NEAR(MinHalfSolidAngleSine(regular), 1, 1e-12);
  const Points corner = {Eigen::Vector3d(0, 0, 0), Eigen::Vector3d(1, 0, 0), Eigen::Vector3d(0, 1, 0), Eigen::Vector3d(0, 0, 1)};
  const TetQuality c = MeasureTet(corner);
  EXPECT_NEAR(c.radius_ratio, 0.732051, 1e-6);
  EXPECT_NEAR(c.mean_ratio, 0.839947, 1e-6);
  EXPECT_NEAR(c.min_solid_angle, 0.616444, 1e-6);
  EXPECT_NEAR(c.edge_ratio, 0.707107, 1e-6);
  EXPECT_NEAR(c.inradius_per_edge, 0.732051, 1e-6);
  EXPECT_NEAR(MinHalfSolidAngleSine(corner), 0.621320, 1e-6);
  EXPECT_NEAR(c.min_dihedral, std::acos(1 / std::sqrt(3.0)) / std::acos(1.0 / 3), 1e-12);
  EXPECT_DOUBLE_EQ(MeanRatio(corner), c.mean_ratio);
  EXPECT_DOUBLE_EQ(EdgeRatio(corner), c.edge_ratio);
}

TEST(TetQualityTest, ScaleDoesNotMatterAndDegenerateTetsAreBad) {
  Random random(3);
  for (int i = 0; i < 200; ++i) {
    Points p = RandomTet(&random);
    const TetQuality q = MeasureTet(p);
    for (const double value : {q.radius_ratio, q.mean_ratio, q.min_solid_angle, q.min_dihedral, q.edge_ratio, q.inradius_per_edge}) {
      EXPECT_GT(value, 0);
      EXPECT_LE(value, 1);
    }
    for (auto& x : p) x *= 1e-3;
    EXPECT_NEAR(MeasureTet(p).radius_ratio, q.radius_ratio, 1e-9);
    EXPECT_NEAR(MeasureTet(p).min_solid_angle, q.min_solid_angle, 1e-9);
  }
  // A sliver (four points of a square) and a needle: each measure but the ones that are blind to it sees them.
  const Points sliver = {Eigen::Vector3d(1, 0, 0.001), Eigen::Vector3d(-1, 0, 0.001), Eigen::Vector3d(0, 1, 0), Eigen::Vector3d(0, -1, 0)};
  ASSERT_GT(VolumeOf(sliver), 0);
  EXPECT_LT(MeasureTet(sliver).radius_ratio, 0.01);
  EXPECT_LT(MeasureTet(sliver).mean_ratio, 0.05);
  EXPECT_LT(MeasureTet(sliver).min_solid_angle, 0.01);
  EXPECT_LT(MeasureTet(sliver).min_dihedral, 0.01);
  EXPECT_LT(MeasureTet(sliver).inradius_per_edge, 0.01);
  EXPECT_GT(MeasureTet(sliver).edge_ratio, 0.7);
  const double h = std::sqrt(3.0) / 2;
  const Points needle = {Eigen::Vector3d(0, 0, 0), Eigen::Vector3d(1, 0, 0), Eigen::Vector3d(0.5, h, 0), Eigen::Vector3d(0.5, h / 3, 1000)};
  EXPECT_LT(MeasureTet(needle).edge_ratio, 0.01);
  EXPECT_LT(MeasureTet(needle).min_solid_angle, 0.01);
  EXPECT_GT(MeasureTet(needle).min_dihedral, 0.7);
}

// Every pattern is a subdivision: children positive, volumes add up, no two children overlap (else volumes could not add up and be
// conforming), and each face falls into the triangles that the face alone decides.
TEST(SubdivisionTest, AllPatternsAreConformingSubdivisions) {
  Random random(1);
  // (which two of the three vertices in order, the split edges) -> the triangles of the face.
  std::map<uint32_t, std::set<std::array<int, 3>>> faces;
  std::map<uint32_t, int> missing;
  for (uint32_t mask = 0; mask < 64; ++mask) {
    for (uint32_t higher = 0; higher < 16; ++higher) {
      const uint32_t inner = mask == 63 ? higher % 3 : 0;
      SCOPED_TRACE(absl::StrCat(mask, " ", higher));
      const Subdivision& pattern = SubdivisionOf(mask, static_cast<InnerDiagonal>(inner), higher);
      if (pattern.count == 0) {
        ++missing[mask];
        continue;
      }
      const Points tet = RandomTet(&random);
      const auto points = WithMiddles(tet);
      double sum = 0;
      std::map<std::array<int, 3>, int> face_count;
      std::set<int> used;
      for (int k = 0; k < pattern.count; ++k) {
        const auto& child = pattern.children[static_cast<size_t>(k)];
        const double volume = VolumeOf({points[child[0]], points[child[1]], points[child[2]], points[child[3]]});
        EXPECT_GT(volume, 0);
        sum += volume;
        used.insert(child.begin(), child.end());
        for (size_t skip = 0; skip < 4; ++skip) {
          std::array<int, 3> face;
          for (size_t c = 0, n = 0; c < 4; ++c) {
            if (c != skip) face[n++] = child[c];
          }
          std::sort(face.begin(), face.end());
          ++face_count[face];
        }
      }
      EXPECT_NEAR(sum, VolumeOf(tet), 1e-15);
      // Exactly the vertices and the middles of the split edges.
      std::set<int> expected = {0, 1, 2, 3};
      for (int e = 0; e < 6; ++e) {
        if ((mask >> e & 1) != 0) expected.insert(4 + e);
      }
      EXPECT_EQ(used, expected);
      // Inner faces have two children, outer ones one and lie in a face of the tet.
      std::array<std::set<std::array<int, 3>>, 4> outer;
      for (const auto& [face, count] : face_count) {
        ASSERT_LE(count, 2);
        int on = -1;
        for (int f = 0; f < 4; ++f) {
          bool lies = true;
          for (const int p : face) {
            lies = lies && p != f &&
                   (p < 4 || (kTetEdges[static_cast<size_t>(p - 4)][0] != f && kTetEdges[static_cast<size_t>(p - 4)][1] != f));
          }
          if (lies) on = f;
        }
        EXPECT_EQ(count == 1, on >= 0);
        if (on >= 0) outer[static_cast<size_t>(on)].insert(face);
      }
      for (int f = 0; f < 4; ++f) {
        // Points of the face by its own names: 0..2 its vertices in order, 3..5 the middles of 01, 02, 12.
        std::array<int, 10> name;
        name.fill(-1);
        std::array<int, 3> corners;
        for (int v = 0, n = 0; v < 4; ++v) {
          if (v == f) continue;
          corners[static_cast<size_t>(n)] = v;
          name[static_cast<size_t>(v)] = n++;
        }
        uint32_t split = 0;
        const std::array<std::array<size_t, 2>, 3> sides = {{{0, 1}, {0, 2}, {1, 2}}};
        for (size_t s = 0; s < 3; ++s) {
          const int edge = TetEdgeBetween(corners[sides[s][0]], corners[sides[s][1]]);
          name[static_cast<size_t>(4 + edge)] = static_cast<int>(3 + s);
          split |= (mask >> edge & 1) << s;
        }
        std::set<std::array<int, 3>> named;
        for (const auto& face : outer[static_cast<size_t>(f)]) {
          std::array<int, 3> t;
          for (size_t c = 0; c < 3; ++c) t[c] = name[static_cast<size_t>(face[c])];
          std::sort(t.begin(), t.end());
          named.insert(t);
        }
        EXPECT_EQ(named.size(), static_cast<size_t>(1 + std::popcount(split)));
        const bool has_choice = std::popcount(split) == 2;
        const auto [it, is_first] = faces.try_emplace(split | (has_choice ? higher >> f & 1 : 0) << 3, named);
        EXPECT_EQ(it->second, named) << "face " << f;
      }
    }
  }
  EXPECT_EQ(faces.size(), 11U);
  EXPECT_NE(faces[3], faces[3 | 8]);
  // The choices that go round in a circle: three edges at a vertex, and a ring of four.
  EXPECT_EQ(missing, (std::map<uint32_t, int>{{7, 4}, {25, 4}, {30, 2}, {42, 4}, {45, 2}, {51, 2}, {52, 4}}));
}

// Whatever the lengths of the edges are, if the longer one of a face is split first there is a subdivision.
TEST(SubdivisionTest, AnyOrderOfTheEdgesHasASubdivision) {
  for (uint32_t mask = 0; mask < 64; ++mask) {
    std::array<int, 6> rank = {0, 1, 2, 3, 4, 5};
    do {
      uint32_t higher = 0;
      for (size_t f = 0; f < 4; ++f) {
        for (size_t i = 0; i < 3; ++i) {
          const int apex = kOppositeFaces[f][i];
          const int low = kOppositeFaces[f][i == 0 ? 1 : 0];
          const int high = kOppositeFaces[f][i == 2 ? 1 : 2];
          const auto to_low = static_cast<size_t>(TetEdgeBetween(apex, low));
          const auto to_high = static_cast<size_t>(TetEdgeBetween(apex, high));
          if ((mask >> to_low & 1) == 0 || (mask >> to_high & 1) == 0 || (mask >> TetEdgeBetween(low, high) & 1) != 0) continue;
          if (rank[to_low] < rank[to_high]) higher |= 1U << f;
        }
      }
      ASSERT_GT(SubdivisionOf(mask, InnerDiagonal::k67, higher).count, 0) << mask << " " << higher;
    } while (std::next_permutation(rank.begin(), rank.end()));
  }
}

TEST(SubdivisionTest, CountsAreThoseOfTheSource) {
  std::map<int, std::set<int>> counts;
  for (uint32_t mask = 0; mask < 64; ++mask) counts[std::popcount(mask)].insert(SubdivisionOf(mask).count);
  EXPECT_EQ(counts[0], std::set<int>({1}));
  EXPECT_EQ(counts[1], std::set<int>({2}));
  EXPECT_EQ(counts[2], std::set<int>({3, 4}));
  EXPECT_EQ(counts[3], std::set<int>({4, 5}));
  EXPECT_EQ(counts[4], std::set<int>({5, 6}));
  EXPECT_EQ(counts[5], std::set<int>({7}));
  EXPECT_EQ(counts[6], std::set<int>({8}));
}

TEST(SubdivisionTest, FullSplitKeepsHalfTheQuality) {
  Random random(9);
  double worst = 1;
  for (int i = 0; i < 3000; ++i) {
    const Points tet = RandomTet(&random);
    const auto points = WithMiddles(tet);
    const Subdivision& pattern = SubdivisionOf(63, ShortestInnerDiagonal(tet));
    ASSERT_EQ(pattern.count, 8);
    for (const auto& child : pattern.children) {
      worst = std::min(worst, MeanRatio({points[child[0]], points[child[1]], points[child[2]], points[child[3]]}) / MeanRatio(tet));
    }
  }
  EXPECT_GE(worst, 0.5);
  EXPECT_LT(worst, 0.99);  // some child is worse than its parent
}

// A tet with edges of length 1, those of `mask` 1.1.
Points TetWithLongEdges(uint32_t mask) {
  const auto length = [mask](int a, int b) { return (mask >> TetEdgeBetween(a, b) & 1) != 0 ? 1.1 : 1.0; };
  Points p;
  p[0] = Eigen::Vector3d::Zero();
  p[1] = {length(0, 1), 0, 0};
  const auto sq = [](double x) { return x * x; };
  const double x2 = (sq(length(0, 2)) - sq(length(1, 2)) + sq(p[1].x())) / (2 * p[1].x());
  p[2] = {x2, std::sqrt(sq(length(0, 2)) - sq(x2)), 0};
  const double x3 = (sq(length(0, 3)) - sq(length(1, 3)) + sq(p[1].x())) / (2 * p[1].x());
  const double y3 = (sq(length(0, 3)) - sq(length(2, 3)) + p[2].squaredNorm() - 2 * x3 * x2) / (2 * p[2].y());
  p[3] = {x3, y3, std::sqrt(sq(length(0, 3)) - sq(x3) - sq(y3))};
  return p;
}

TEST(RefinerTest, SplitsAllEdgeSetsInAllVertexOrders) {
  for (uint32_t mask = 1; mask < 64; ++mask) {
    const Points p = TetWithLongEdges(mask);
    std::array<uint32_t, 4> order = {0, 1, 2, 3};
    do {
      TetMesh single;
      single.vertices.resize(4);
      single.tets = {order};  // vertex i of the tet is number order[i] of the mesh
      for (size_t i = 0; i < 4; ++i) single.vertices[order[i]] = p[i];
      ClosedMesh mesh = MustBuild(single);
      Refiner refiner(&mesh);
      const std::vector<TetId> zone = {mesh.IdOfTet(0)};
      const auto result = refiner.Refine(zone, {.max_edge_m = 1.05, .closure_ratio = 0, .max_passes = 1});
      ASSERT_TRUE(result.ok()) << result.status();
      EXPECT_EQ(result->split_edge_count, static_cast<size_t>(std::popcount(mask)));
      ASSERT_EQ(mesh.Check(), absl::OkStatus());
      EXPECT_EQ(mesh.vertex_count(), 4U + static_cast<size_t>(std::popcount(mask)));
      EXPECT_NEAR(TotalVolume(mesh), VolumeOf(p), 1e-14);
      EXPECT_EQ(mesh.Count().SurfaceChi(), 2);
    } while (std::next_permutation(order.begin(), order.end()));
  }
}

std::vector<TetId> Near(const ClosedMesh& mesh, const Eigen::Vector3d& centre, double radius_m) {
  std::vector<TetId> zone;
  for (uint32_t t = 0; t < mesh.tet_slot_count(); ++t) {
    if (!mesh.IsTet(t)) continue;
    Eigen::Vector3d c = Eigen::Vector3d::Zero();
    for (const uint32_t v : mesh.TetVertices(t)) c += mesh.PositionOf(v) / 4;
    if ((c - centre).norm() < radius_m) zone.push_back(mesh.IdOfTet(t));
  }
  return zone;
}

TEST(RefinerTest, RefinesTheZoneDownToTheEdgeLengthAndLittleElse) {
  for (const double closure_ratio : {0.0, 3.0}) {
    ClosedMesh mesh = MustBuild(Made(GenerateLiver(0.2, LiverEdgeLengthForTets(0.2, 2500))));
    const double volume_m3 = TotalVolume(mesh);
    const size_t tets_before = mesh.tet_count();
    const auto zone = Near(mesh, {-0.05, 0, 0.03}, 0.02);
    ASSERT_GT(zone.size(), 20U);
    double before_min_ratio = 1;
    for (const TetId id : zone) {
      const auto& v = mesh.TetVertices(mesh.Find(id));
      before_min_ratio = std::min(before_min_ratio,
                                  EdgeRatio({mesh.PositionOf(v[0]), mesh.PositionOf(v[1]), mesh.PositionOf(v[2]), mesh.PositionOf(v[3])}));
    }
    // What the zone becomes: follow the descendants.
    class Follower : public MeshObserver {
     public:
      void OnTetAdded(const ClosedMesh&, const MeshDelta::AddedTet& tet) override {
        if (zone.count(tet.parent) != 0) zone.insert(tet.id);
      }
      std::set<TetId> zone;
    } follower;
    follower.zone.insert(zone.begin(), zone.end());
    mesh.AddObserver(&follower);
    Refiner refiner(&mesh);
    const RefineOptions options{.max_edge_m = 0.005, .closure_ratio = closure_ratio, .max_passes = 6};
    const auto result = refiner.Refine(zone, options);
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_TRUE(result->is_done);
    EXPECT_FALSE(result->is_refused);
    ASSERT_EQ(mesh.Check(), absl::OkStatus());
    EXPECT_TRUE(IsSurfaceManifold(TetsOf(mesh)));
    EXPECT_NEAR(TotalVolume(mesh), volume_m3, 1e-14 * volume_m3 * static_cast<double>(mesh.tet_count()));
    EXPECT_EQ(mesh.Count().SurfaceChi(), 2);
    size_t alive = 0;
    for (const TetId id : follower.zone) {
      const uint32_t t = mesh.Find(id);
      if (t == kNoSlot) continue;
      ++alive;
      for (const auto& [i, j] : kTetEdges) {
        const auto& v = mesh.TetVertices(t);
        EXPECT_LE((mesh.PositionOf(v[static_cast<size_t>(i)]) - mesh.PositionOf(v[static_cast<size_t>(j)])).norm(), options.max_edge_m);
      }
    }
    EXPECT_GT(alive, 8 * zone.size());
    EXPECT_LT(mesh.tet_count() - alive, 2 * tets_before);
    EXPECT_GT(result->min_edge_ratio, 0.1);
    EXPECT_GT(result->min_mean_ratio, 0.1);
    EXPECT_GT(before_min_ratio, 0.3);
  }
}

TEST(RefinerTest, ZonesAndTextureFollow) {
  const TetMesh source = Cube(4);
  std::vector<TetZoneId> zones(source.tets.size());
  for (size_t t = 0; t < zones.size(); ++t) zones[t] = t % 3 == 0 ? 1 : 0;
  ClosedMesh mesh = *ClosedMesh::Build(source, zones);
  const SurfaceZoneId flesh = *mesh.AddSurfaceZone("flesh");
  const SurfaceZoneId top = *mesh.AddSurfaceZone("top");
  mesh.SetInteriorSurfaceZone(0, flesh);
  mesh.SetInteriorSurfaceZone(1, flesh);
  double zone_m3 = 0;
  for (uint32_t t = 0; t < mesh.tet_slot_count(); ++t) zone_m3 += mesh.TetZoneOf(t) == 1 ? mesh.RestVolume(t) : 0;
  for (uint32_t t = 0; t < mesh.triangle_slot_count(); ++t) {
    double z = 0;
    for (const uint32_t v : mesh.TriangleVertices(t)) z += mesh.PositionOf(v).z() / 3;
    if (z > 0.0499) mesh.SetTriangleZone(t, top);
  }
  const auto coordinate = [](const Eigen::Vector3d& p) {
    return std::array<float, 2>{static_cast<float>(10 * p.x()), static_cast<float>(10 * p.y())};
  };
  for (uint32_t v = 0; v < mesh.vertex_slot_count(); ++v) {
    for (const SurfaceZoneId zone : {SurfaceZoneId{0}, top}) {
      if (mesh.FindSurfaceCorner(zone, v) != nullptr) mesh.SetTextureCoordinate(zone, v, coordinate(mesh.PositionOf(v)));
    }
  }
  Refiner refiner(&mesh);
  const auto zone = Near(mesh, {0, 0, 0.05}, 0.06);
  ASSERT_TRUE(refiner.Refine(zone, {.max_edge_m = 0.02})->is_done);
  ASSERT_EQ(mesh.Check(), absl::OkStatus());
  double top_m2 = 0;
  double after_m3 = 0;
  for (uint32_t t = 0; t < mesh.tet_slot_count(); ++t) after_m3 += mesh.IsTet(t) && mesh.TetZoneOf(t) == 1 ? mesh.RestVolume(t) : 0;
  for (uint32_t t = 0; t < mesh.triangle_slot_count(); ++t) {
    if (!mesh.IsTriangle(t)) continue;
    const auto& v = mesh.TriangleVertices(t);
    const bool is_top = mesh.PositionOf(v[0]).z() + mesh.PositionOf(v[1]).z() + mesh.PositionOf(v[2]).z() > 0.1499;
    EXPECT_EQ(mesh.TriangleZoneOf(t), is_top ? top : 0);  // nothing was uncovered
    if (is_top) top_m2 += (mesh.PositionOf(v[1]) - mesh.PositionOf(v[0])).cross(mesh.PositionOf(v[2]) - mesh.PositionOf(v[0])).norm() / 2;
    for (const uint32_t w : v) {
      const auto* corner = mesh.FindSurfaceCorner(mesh.TriangleZoneOf(t), w);
      ASSERT_TRUE(corner->texture_coordinate.has_value());
      for (size_t k = 0; k < 2; ++k) EXPECT_NEAR((*corner->texture_coordinate)[k], coordinate(mesh.PositionOf(w))[k], 1e-6);
    }
  }
  EXPECT_NEAR(top_m2, 0.01, 1e-15);
  EXPECT_NEAR(after_m3, zone_m3, 1e-17);
}

TEST(RefinerTest, MassMomentumAndEmbeddedPointsAreConserved) {
  ClosedMesh mesh = MustBuild(Made(GenerateKidney(0.11, 0.014)));
  MeshAttributes attributes(&mesh, 1060);
  EXPECT_NEAR(attributes.TotalMass(), 1060 * TotalVolume(mesh), 1e-12);
  Random random(4);
  for (uint32_t t = 0; t < mesh.tet_slot_count(); t += 3) attributes.SetDensity(t, 2000);
  // Any motion of the vertices, not an affine one: nothing may jump.
  for (uint32_t v = 0; v < mesh.vertex_slot_count(); ++v) {
    auto& vertex = attributes.vertex(v);
    vertex.position_m += 1e-3 * Eigen::Vector3d(random.Real(), random.Real(), random.Real());
    vertex.velocity_m_per_s = {random.Real(), random.Real(), random.Real() - 2};
  }
  std::vector<Eigen::Vector3d> before;
  for (uint32_t t = 0; t < mesh.tet_slot_count(); ++t) {
    Eigen::Vector3d p = Eigen::Vector3d::Zero();
    std::array<double, 4> w;
    double sum = 0;
    for (auto& x : w) sum += x = 0.01 + random.Real();
    for (size_t c = 0; c < 4; ++c) p += w[c] / sum * mesh.PositionOf(mesh.TetVertices(t)[c]);
    const auto index = attributes.points().Embed(mesh.IdOfTet(t), p);
    ASSERT_TRUE(index.ok()) << index.status();
    before.push_back(attributes.PointPosition(*index));
  }
  EXPECT_EQ(attributes.points().Embed(kNoTet, {0, 0, 0}).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(attributes.points().Embed(mesh.IdOfTet(0), {5, 5, 5}).status().code(), absl::StatusCode::kInvalidArgument);
  const double mass_kg = attributes.TotalMass();
  const Eigen::Vector3d momentum = attributes.Momentum();
  Refiner refiner(&mesh);
  const auto result = refiner.Refine(Near(mesh, {0, 0, 0}, 0.03), {.max_edge_m = 0.006});
  ASSERT_TRUE(result.ok()) << result.status();
  ASSERT_GT(result->split_edge_count, 100U);
  EXPECT_NEAR(attributes.TotalMass(), mass_kg, 1e-13 * mass_kg);
  EXPECT_LT((attributes.Momentum() - momentum).norm(), 1e-12 * momentum.norm());
  for (uint32_t i = 0; i < before.size(); ++i) {
    ASSERT_NE(attributes.points().point(i).tet, kNoTet);
    const uint32_t tet = mesh.Find(attributes.points().point(i).tet);
    ASSERT_NE(tet, kNoSlot);
    for (const double w : attributes.points().point(i).weights) EXPECT_GE(w, -1e-9);
    // The parent's map and that of its children agree, since the new vertices lie in the middle before and after the motion.
    EXPECT_LT((attributes.PointPosition(i) - before[i]).norm(), 1e-12);
  }
  // Each mass from scratch.
  std::vector<double> lumped(mesh.vertex_slot_count(), 0);
  for (uint32_t t = 0; t < mesh.tet_slot_count(); ++t) {
    if (!mesh.IsTet(t)) continue;
    for (const uint32_t v : mesh.TetVertices(t)) lumped[v] += attributes.DensityOf(t) * mesh.RestVolume(t) / 4;
  }
  for (uint32_t v = 0; v < lumped.size(); ++v) EXPECT_NEAR(attributes.vertex(v).mass_kg, lumped[v], 1e-12 * mass_kg);
  // A removed tet takes its mass and frees its points.
  const uint32_t gone = mesh.TriangleTet(mesh.Find(mesh.IdOfTriangle(0)));
  const double gone_kg = attributes.DensityOf(gone) * mesh.RestVolume(gone);
  const double now_kg = attributes.TotalMass();
  std::vector<uint32_t> riders;
  for (uint32_t i = 0; i < before.size(); ++i) {
    if (attributes.points().point(i).tet == mesh.IdOfTet(gone)) riders.push_back(i);
  }
  ASSERT_EQ(mesh.Apply({.removed = {mesh.IdOfTet(gone)}}), absl::OkStatus());
  EXPECT_NEAR(attributes.TotalMass(), now_kg - gone_kg, 1e-13 * mass_kg);
  EXPECT_EQ(attributes.points().TakeReleased(), riders);
}

TEST(RefinerTest, BudgetRefusesAndLeavesTheMeshAlone) {
  ClosedMesh mesh = MustBuild(Cube(5));
  const uint64_t hash = mesh.hash();
  Refiner refiner(&mesh);
  const auto zone = Near(mesh, {0, 0, 0}, 0.03);
  const auto refused = refiner.Refine(zone, {.max_edge_m = 0.005, .tet_budget = mesh.tet_count() + 10});
  ASSERT_TRUE(refused.ok());
  EXPECT_TRUE(refused->is_refused);
  EXPECT_FALSE(refused->is_done);
  EXPECT_EQ(refused->pass_count, 0);
  EXPECT_EQ(refiner.refused_count(), 1U);
  EXPECT_EQ(mesh.hash(), hash);
  EXPECT_EQ(mesh.version(), 1U);
  // Room for some passes: never more tets than allowed.
  const auto partly = refiner.Refine(zone, {.max_edge_m = 0.002, .max_passes = 9, .tet_budget = 20000});
  ASSERT_TRUE(partly.ok());
  EXPECT_TRUE(partly->is_refused);
  EXPECT_GT(partly->pass_count, 0);
  EXPECT_LE(mesh.tet_count(), 20000U);
  EXPECT_EQ(refiner.refused_count(), 2U);
  EXPECT_EQ(mesh.Check(), absl::OkStatus());
  // And the mesh is not used up: the same zone's descendants can be refined to what fits.
  EXPECT_EQ(refiner.Refine(zone, {.max_edge_m = 0.002}).status().code(), absl::StatusCode::kNotFound);
  const auto some = Near(mesh, {0.02, 0, 0}, 0.01);
  EXPECT_EQ(refiner.Refine(some, {.max_edge_m = 0}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(refiner.Refine(some, {.max_edge_m = 1, .closure_ratio = 0.5}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(refiner.Refine(some, {.max_edge_m = 1, .max_passes = 0}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(refiner.Refine(some, {.max_edge_m = 1, .closure_growth = -1}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(refiner.Refine(some, {.max_edge_m = 1})->is_done);
}

// R5: one edge at a time makes tets that are replaced again, and worse ones.
TEST(RefinerTest, SimultaneousSplitsWasteLessThanSequentialOnes) {
  std::array<RefineResult, 2> results;
  std::array<size_t, 2> tets;
  for (size_t i = 0; i < 2; ++i) {
    ClosedMesh mesh = MustBuild(Made(GenerateLiver(0.2, LiverEdgeLengthForTets(0.2, 2500))));
    Refiner refiner(&mesh);
    const auto zone = Near(mesh, {-0.05, 0, 0.03}, 0.015);
    const auto result = refiner.Refine(
        zone,
        {.max_edge_m = 0.008, .closure_ratio = 0, .mode = i == 0 ? RefineOptions::Mode::kSimultaneous : RefineOptions::Mode::kSequential});
    ASSERT_TRUE(result.ok()) << result.status();
    ASSERT_TRUE(result->is_done);
    EXPECT_EQ(mesh.Check(), absl::OkStatus());
    results[i] = *result;
    tets[i] = mesh.tet_count();
  }
  EXPECT_LT(results[0].created_tet_count, results[1].created_tet_count);
  EXPECT_LT(results[0].pass_count, 6);
  EXPECT_GT(results[1].pass_count, 50);
}

}  // namespace
}  // namespace palpate::sim::refinement_test
