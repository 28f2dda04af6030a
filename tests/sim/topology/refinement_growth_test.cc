// How much refinement adds to what it was asked for, and what it leaves of the quality of the mesh.
#include <cmath>
#include <cstdio>

#include "sim/instrument/geometry.h"
#include "sim/topology/quality.h"
#include "sim/topology/refinement.h"
#include "tests/sim/topology/topology_support.h"

namespace palpate::sim::refinement_growth_test {
namespace {

struct Ball {
  Eigen::Vector3d centre_m;
  double radius_m = 0;
};

std::array<Eigen::Vector3d, 4> PointsOf(const ClosedMesh& mesh, uint32_t tet) {
  const auto& v = mesh.TetVertices(tet);
  return {mesh.PositionOf(v[0]), mesh.PositionOf(v[1]), mesh.PositionOf(v[2]), mesh.PositionOf(v[3])};
}

double LongestEdge(const std::array<Eigen::Vector3d, 4>& x) {
  double longest_m = 0;
  for (const auto& [i, j] : kTetEdges) longest_m = std::max(longest_m, (x[static_cast<size_t>(i)] - x[static_cast<size_t>(j)]).norm());
  return longest_m;
}

bool Meets(const std::array<Eigen::Vector3d, 4>& x, const Ball& ball) { return DistanceToTet(ball.centre_m, x) <= ball.radius_m; }

std::vector<TetId> In(const ClosedMesh& mesh, const Ball& ball) {
  std::vector<TetId> zone;
  for (uint32_t t = 0; t < mesh.tet_slot_count(); ++t) {
    if (mesh.IsTet(t) && Meets(PointsOf(mesh, t), ball)) zone.push_back(mesh.IdOfTet(t));
  }
  return zone;
}

struct Quality {
  double mean_ratio = 1, min_dihedral = 1, edge_ratio = 1;

  void Add(const Quality& other) {
    mean_ratio = std::min(mean_ratio, other.mean_ratio);
    min_dihedral = std::min(min_dihedral, other.min_dihedral);
    edge_ratio = std::min(edge_ratio, other.edge_ratio);
  }
};

Quality WorstOf(const ClosedMesh& mesh) {
  Quality worst;
  for (uint32_t t = 0; t < mesh.tet_slot_count(); ++t) {
    if (!mesh.IsTet(t)) continue;
    const TetQuality q = MeasureTet(PointsOf(mesh, t));
    worst.Add({q.mean_ratio, q.min_dihedral, q.edge_ratio});
  }
  return worst;
}

struct Source {
  const char* name;
  TetMesh mesh;
};

std::vector<Source> Sources() {
  return {{"liver", Made(GenerateLiver(0.2, LiverEdgeLengthForTets(0.2, 2500)))},
          {"box", Cube(9)},
          {"ball", Made(GenerateSphere(0.05, 0.012))}};
}

double MeanEdge(const ClosedMesh& mesh) {
  double sum_m = 0;
  for (uint32_t t = 0; t < mesh.tet_slot_count(); ++t) {
    const auto x = PointsOf(mesh, t);
    for (const auto& [i, j] : kTetEdges) sum_m += (x[static_cast<size_t>(i)] - x[static_cast<size_t>(j)]).norm() / 6;
  }
  return sum_m / static_cast<double>(mesh.tet_count());
}

Eigen::Vector3d RandomPlace(const ClosedMesh& mesh, Random* random) {
  const auto x = PointsOf(mesh, random->Below(static_cast<uint32_t>(mesh.tet_slot_count())));
  return (x[0] + x[1] + x[2] + x[3]) / 4;
}

RefineResult MustRefine(ClosedMesh* mesh, const Ball& ball, const RefineOptions& options) {
  Refiner refiner(mesh);
  const auto result = refiner.Refine(In(*mesh, ball), options, [&](TetId tet) { return Meets(PointsOf(*mesh, SlotOf(tet)), ball); });
  EXPECT_TRUE(result.ok()) << result.status();
  return result.ok() ? *result : RefineResult{};
}

void ExpectFineInside(const ClosedMesh& mesh, const Ball& ball, double max_edge_m) {
  for (const TetId tet : In(mesh, ball)) ASSERT_LE(LongestEdge(PointsOf(mesh, SlotOf(tet))), max_edge_m);
}

// Balls of a third of an edge to an edge and a half, to 0.15 to 0.7 of an edge.
TEST(RefinementGrowthTest, GrowsLittleAtRandomPlaces) {
  Random random(11);
  for (const Source& source : Sources()) {
    const ClosedMesh first = MustBuild(source.mesh);
    const double edge_m = MeanEdge(first);
    const double volume_m3 = TotalVolume(first);
    Quality worst;
    double growth = 0;
    size_t added = 0, added_without = 0, asked = 0;
    for (int i = 0; i < 10; ++i) {
      ClosedMesh mesh = MustBuild(source.mesh);
      const Ball ball = {RandomPlace(mesh, &random), edge_m * (0.3 + 1.2 * random.Real())};
      const double max_edge_m = edge_m * (0.15 + 0.55 * random.Real());
      const RefineResult result = MustRefine(&mesh, ball, {.max_edge_m = max_edge_m, .tet_budget = 1000000});
      ASSERT_TRUE(result.is_done);
      EXPECT_FALSE(result.is_closure_cut);
      ASSERT_EQ(mesh.Check(), absl::OkStatus());
      ASSERT_NO_FATAL_FAILURE(ExpectFineInside(mesh, ball, max_edge_m));
      EXPECT_NEAR(TotalVolume(mesh), volume_m3, 1e-15 * volume_m3 * static_cast<double>(mesh.tet_count()));
      worst.Add(WorstOf(mesh));
      asked += result.asked_tet_count;
      added += mesh.tet_count() - first.tet_count();
      growth = std::max(growth, static_cast<double>(mesh.tet_count() - first.tet_count()) / static_cast<double>(result.asked_tet_count));
      ClosedMesh bare = MustBuild(source.mesh);
      EXPECT_TRUE(MustRefine(&bare, ball, {.max_edge_m = max_edge_m, .closure_ratio = 0, .tet_budget = 1000000}).is_done);
      added_without += bare.tet_count() - first.tet_count();
    }
    const Quality before = WorstOf(first);
    std::printf(
        "%-5s asked %zu, added %zu (%.1f at most for each asked, %zu without closure); mean ratio %.3f of %.3f, dihedral %.3f of %.3f, "
        "edges %.3f of %.3f\n",
        source.name, asked, added, growth, added_without, worst.mean_ratio, before.mean_ratio, worst.min_dihedral, before.min_dihedral,
        worst.edge_ratio, before.edge_ratio);
    EXPECT_LT(growth, 25) << source.name;
    EXPECT_LT(added, 8 * asked) << source.name;
    EXPECT_LT(added, 1.5 * static_cast<double>(added_without)) << source.name;
    EXPECT_GT(worst.mean_ratio, 0.2) << source.name;
    EXPECT_GT(worst.min_dihedral, 0.1) << source.name;
    EXPECT_GT(worst.edge_ratio, 0.12) << source.name;
  }
}

// The same place, each time finer, the ball staying or closing in.
TEST(RefinementGrowthTest, GrowsLittleTenTimesAtTheSamePlace) {
  Random random(12);
  for (const Source& source : Sources()) {
    const ClosedMesh first = MustBuild(source.mesh);
    const double edge_m = MeanEdge(first);
    Quality worst;
    size_t added = 0, asked = 0;
    for (int i = 0; i < 6; ++i) {
      ClosedMesh mesh = MustBuild(source.mesh);
      const Ball place = {RandomPlace(mesh, &random), edge_m * (0.3 + 0.3 * random.Real())};
      const double shrink = i % 2 == 0 ? 1 : 0.75;
      const double wander = i % 3 == 0 ? 0 : 0.3;
      for (int k = 0; k < 10; ++k) {
        Ball ball = place;
        ball.radius_m *= std::pow(shrink, k);
        for (int axis = 0; axis < 3; ++axis) ball.centre_m[axis] += wander * ball.radius_m * (2 * random.Real() - 1);
        const double max_edge_m = edge_m * std::pow(shrink == 1 ? 0.82 : 0.7, k + 1);
        const size_t before = mesh.tet_count();
        const RefineResult result = MustRefine(&mesh, ball, {.max_edge_m = max_edge_m, .tet_budget = 1000000});
        ASSERT_TRUE(result.is_done);
        EXPECT_FALSE(result.is_closure_cut);
        ASSERT_NO_FATAL_FAILURE(ExpectFineInside(mesh, ball, max_edge_m));
        EXPECT_LE(mesh.tet_count() - before, 25 * result.asked_tet_count);
        asked += result.asked_tet_count;
      }
      ASSERT_EQ(mesh.Check(), absl::OkStatus());
      worst.Add(WorstOf(mesh));
      added += mesh.tet_count() - first.tet_count();
      // Nothing is asked for a second time.
      const uint64_t hash = mesh.hash();
      EXPECT_EQ(MustRefine(&mesh, {place.centre_m, 0}, {.max_edge_m = edge_m}).pass_count, 0);
      EXPECT_EQ(mesh.hash(), hash);
    }
    std::printf("%-5s asked %zu, added %zu; mean ratio %.3f, dihedral %.3f, edges %.3f\n", source.name, asked, added, worst.mean_ratio,
                worst.min_dihedral, worst.edge_ratio);
    EXPECT_LT(added, 8 * asked) << source.name;
    EXPECT_GT(worst.mean_ratio, 0.2) << source.name;
    EXPECT_GT(worst.min_dihedral, 0.1) << source.name;
    EXPECT_GT(worst.edge_ratio, 0.12) << source.name;
  }
}

// The rule of the source spreads; the bound holds it, and what it leaves is a mesh.
TEST(RefinementGrowthTest, TheBoundHoldsAClosureThatSpreads) {
  std::array<size_t, 2> added;
  for (const double closure_growth : {1e9, 1.0}) {
    ClosedMesh mesh = MustBuild(Made(GenerateLiver(0.2, LiverEdgeLengthForTets(0.2, 2500))));
    const double volume_m3 = TotalVolume(mesh);
    const double edge_m = MeanEdge(mesh);
    const size_t before = mesh.tet_count();
    const bool is_bounded = closure_growth < 1e9;
    bool is_cut = false;
    for (int k = 0; k < 6; ++k) {
      const RefineResult result = MustRefine(&mesh, {{-0.05, 0, 0.03}, 0.5 * edge_m},
                                             {.max_edge_m = edge_m * std::pow(0.8, k + 1),
                                              .closure_ratio = 2,
                                              .closure = RefineOptions::Closure::kShortestEdge,
                                              .closure_growth = closure_growth,
                                              .tet_budget = 2000000});
      ASSERT_TRUE(result.is_done);
      is_cut = is_cut || result.is_closure_cut;
    }
    ASSERT_EQ(mesh.Check(), absl::OkStatus());
    EXPECT_NEAR(TotalVolume(mesh), volume_m3, 1e-15 * volume_m3 * static_cast<double>(mesh.tet_count()));
    EXPECT_EQ(is_cut, is_bounded);
    added[is_bounded ? 1 : 0] = mesh.tet_count() - before;
  }
  std::printf("the closure of the source adds %zu tets, %zu when it is held\n", added[0], added[1]);
  EXPECT_LT(3 * added[1], added[0]);
}

TEST(RefinementGrowthTest, SameInputGivesTheSameBits) {
  std::array<uint64_t, 2> hashes;
  for (uint64_t& hash : hashes) {
    ClosedMesh mesh = MustBuild(Made(GenerateLiver(0.2, LiverEdgeLengthForTets(0.2, 2500))));
    for (const double radius_m : {0.03, 0.02, 0.01}) MustRefine(&mesh, {{-0.05, 0, 0.03}, radius_m}, {.max_edge_m = radius_m / 2});
    hash = mesh.hash();
  }
  EXPECT_EQ(hashes[0], hashes[1]);
}

}  // namespace
}  // namespace palpate::sim::refinement_growth_test
