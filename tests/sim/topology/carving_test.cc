#include "sim/topology/carving.h"

#include "sim/topology/mesh_attributes.h"
#include "tests/sim/topology/topology_support.h"

namespace palpate::sim::carving_test {
namespace {

// Tets that share one edge, all around it: a closed fan.
TetMesh FanAroundEdge(int count) {
  TetMesh fan{{{0, 0, -1}, {0, 0, 1}}, {}};
  for (int i = 0; i < count; ++i) {
    const double angle = 2 * 3.14159265358979 * i / count;
    fan.vertices.emplace_back(std::cos(angle), std::sin(angle), 0);
  }
  for (int i = 0; i < count; ++i) {
    fan.tets.push_back({0, static_cast<uint32_t>(2 + i), static_cast<uint32_t>(2 + (i + 1) % count), 1});
  }
  return fan;
}

// A string of tets, each sharing one face with the next: nothing but necks.
TetMesh StringOfTets(uint32_t count) {
  TetMesh mesh;
  for (uint32_t i = 0; i < count + 3; ++i) {
    // A helix of equal tets (Boerdijk and Coxeter).
    const double angle = i * std::acos(-2.0 / 3);
    mesh.vertices.emplace_back(0.5196152422706632 * std::cos(angle), 0.5196152422706632 * std::sin(angle), 0.31622776601683794 * i);
  }
  for (uint32_t i = 0; i < count; ++i) {
    std::array<uint32_t, 4> tet = {i, i + 1, i + 2, i + 3};
    mesh.tets.push_back(tet);
    if (TetVolume(mesh, i) < 0) std::swap(mesh.tets.back()[2], mesh.tets.back()[3]);
  }
  return mesh;
}

// Two blocks joined by a bridge one cell wide.
TetMesh Dumbbell() {
  const TetMesh slab = Made(BoxMesh({10, 4, 4}, {0.9, 0.3, 0.3}));
  TetMesh mesh;
  std::vector<uint32_t> index(slab.vertices.size(), UINT32_MAX);
  for (const auto& tet : slab.tets) {
    Eigen::Vector3d centre = Eigen::Vector3d::Zero();
    for (const uint32_t v : tet) centre += slab.vertices[v] / 4;
    if (std::abs(centre.x()) < 0.15 && std::max(std::abs(centre.y()), std::abs(centre.z())) > 0.05) continue;
    mesh.tets.emplace_back();
    for (size_t c = 0; c < 4; ++c) {
      if (index[tet[c]] == UINT32_MAX) {
        index[tet[c]] = static_cast<uint32_t>(mesh.vertices.size());
        mesh.vertices.push_back(slab.vertices[tet[c]]);
      }
      mesh.tets.back()[c] = index[tet[c]];
    }
  }
  return mesh;
}

struct Case {
  const char* name;
  TetMesh mesh;
};

std::vector<Case> Cases() {
  return {{"liver", Made(GenerateLiver(0.2, LiverEdgeLengthForTets(0.2, 600)))},
          {"torus", Made(GenerateTorus(0.06, 0.02, 0.02))},
          {"sheet", Made(GenerateSheet(0.2, 0.2, 0.01, 1, 0.025))},
          {"ring", RingOfCells(6, 4)},
          {"dumbbell", Dumbbell()},
          {"fan", FanAroundEdge(14)},
          {"fan of three", FanAroundEdge(3)},
          {"string", StringOfTets(40)},
          {"one tet", UnitTetMesh()}};
}

uint32_t RandomSurfaceTet(const ClosedMesh& mesh, Random* random) {
  for (;;) {
    const uint32_t t = random->Below(mesh.triangle_slot_count());
    if (mesh.IsTriangle(t)) return mesh.TriangleTet(t);
  }
}

// C1, C2, C3 and C6: erodes bodies completely in random order; before each operation the class is compared with brute force, after it the
// surface is.
TEST(CarverTest, ClassEqualsBruteForceAndEveryOperationLeavesAManifold) {
  size_t operations = 0;
  CarvingStatistics sum;
  for (const Case& c : Cases()) {
    SCOPED_TRACE(c.name);
    for (uint64_t seed = 1; seed <= 2; ++seed) {
      ClosedMesh mesh = MustBuild(c.mesh);
      ASSERT_EQ(mesh.Check(), absl::OkStatus());
      Carver carver(&mesh);
      Random random(seed);
      size_t removed = 0;
      for (size_t attempt = 0; mesh.tet_count() > 0 && attempt < 20 * c.mesh.tets.size(); ++attempt) {
        const uint32_t tet = RandomSurfaceTet(mesh, &random);
        const CarveClass carve_class = carver.Classify(tet);
        auto rest = TetsOf(mesh);
        rest.erase(std::find(rest.begin(), rest.end(), mesh.TetVertices(tet)));
        ASSERT_EQ(carve_class == CarveClass::kRemovable, IsSurfaceManifold(rest)) << "attempt " << attempt;
        int surface_faces = 0;
        int apex = 0;
        for (int f = 0; f < 4; ++f) {
          if (!mesh.IsFaceOnSurface(tet, f)) continue;
          ++surface_faces;
          apex = f;
        }
        int surface_edges = 0;
        for (int f = 0; f < 4; ++f) surface_edges += f != apex && mesh.IsEdgeOnSurface(tet, TetEdgeBetween(apex, f)) ? 1 : 0;
        const auto outcome = carver.Remove(mesh.IdOfTet(tet));
        ASSERT_TRUE(outcome.ok()) << outcome.status();
        removed += outcome->removed_tets;
        ASSERT_TRUE(IsSurfaceManifold(TetsOf(mesh))) << "attempt " << attempt;
        if (carve_class == CarveClass::kSingularEdge) {
          EXPECT_EQ(outcome->copied_vertices, 2U);
        }
        if (carve_class == CarveClass::kSingularVertexEdge) {
          // One edge: its other end twice. Two: three vertices twice. Three: the apex three times, the others twice.
          const std::array<size_t, 4> copies = {0, 1, 3, 5};
          EXPECT_EQ(outcome->copied_vertices, copies[static_cast<size_t>(surface_edges)]);
        }
        ++operations;
        if (attempt % 25 == 0) {
          ASSERT_EQ(mesh.Check(), absl::OkStatus());
        }
      }
      EXPECT_EQ(mesh.tet_count(), 0U);
      EXPECT_EQ(mesh.vertex_count(), 0U);
      EXPECT_EQ(removed, c.mesh.tets.size());
      const CarvingStatistics statistics = carver.statistics();
      EXPECT_EQ(statistics.unsolved, 0U);
      EXPECT_EQ(statistics.removed_tets, c.mesh.tets.size());
      sum.edge_problem += statistics.edge_problem;
      sum.vertex_split += statistics.vertex_split;
      sum.vertex_set += statistics.vertex_set;
      sum.vertex_heuristic += statistics.vertex_heuristic;
    }
  }
  // All ways were gone.
  EXPECT_GT(sum.edge_problem, 10U);
  EXPECT_GT(sum.vertex_split, 100U);
  EXPECT_GT(sum.vertex_set, 20U);
  EXPECT_GT(sum.vertex_heuristic, 0U);
  EXPECT_GT(operations, 3000U);
}

TEST(CarverTest, PiercesAPlate) {
  ClosedMesh mesh = MustBuild(Made(GenerateSheet(0.2, 0.2, 0.02, 2, 0.02)));
  EXPECT_EQ(mesh.Count().SurfaceChi(), 2);
  Carver carver(&mesh);
  // Wants everything in a cylinder through the plate, from above.
  for (int round = 0; round < 30; ++round) {
    std::vector<TetId> wanted;
    for (uint32_t t = 0; t < mesh.tet_slot_count(); ++t) {
      if (!mesh.IsTet(t)) continue;
      Eigen::Vector3d c = Eigen::Vector3d::Zero();
      for (const uint32_t v : mesh.TetVertices(t)) c += mesh.PositionOf(v) / 4;
      if (c.head<2>().norm() < 0.025) wanted.push_back(mesh.IdOfTet(t));
    }
    if (wanted.empty()) break;
    for (const TetId id : wanted) {
      if (mesh.Find(id) == kNoSlot) continue;
      ASSERT_TRUE(carver.Remove(id).ok());
      ASSERT_TRUE(IsSurfaceManifold(TetsOf(mesh)));
    }
    carver.RetryPending();
  }
  EXPECT_EQ(carver.statistics().unsolved, 0U);
  EXPECT_EQ(mesh.Check(), absl::OkStatus());
  EXPECT_EQ(mesh.Components().size(), 1U);
  EXPECT_EQ(mesh.Count().SurfaceChi(), 0);  // genus 1
}

TEST(CarverTest, CutsABarInTwoAndVolumeIsAccountedFor) {
  ClosedMesh mesh = MustBuild(Made(BoxMesh({13, 4, 4}, {0.4, 0.1, 0.1})));
  const double whole_m3 = TotalVolume(mesh);
  Carver carver(&mesh);
  double removed_m3 = 0;
  for (int round = 0; round < 30 && mesh.Components().size() == 1; ++round) {
    for (uint32_t t = 0; t < mesh.tet_slot_count(); ++t) {
      if (!mesh.IsTet(t)) continue;
      double x = 0;
      for (const uint32_t v : mesh.TetVertices(t)) x += mesh.PositionOf(v).x() / 4;
      if (std::abs(x) > 0.017) continue;
      const double before_m3 = TotalVolume(mesh);
      ASSERT_TRUE(carver.Remove(mesh.IdOfTet(t)).ok());
      removed_m3 += before_m3 - TotalVolume(mesh);
    }
  }
  EXPECT_GE(mesh.Components().size(), 2U);
  EXPECT_EQ(mesh.Surfaces().size(), mesh.Components().size());
  EXPECT_EQ(mesh.Check(), absl::OkStatus());
  EXPECT_NEAR(TotalVolume(mesh) + removed_m3, whole_m3, 1e-15);
}

TEST(CarverTest, InsideAndDeadTetsAreToldApart) {
  ClosedMesh mesh = MustBuild(Cube(6));
  Carver carver(&mesh);
  uint32_t inside = kNoSlot;
  uint32_t hollow = kNoSlot;
  for (uint32_t t = 0; t < mesh.tet_slot_count(); ++t) {
    bool has_face = false;
    bool touches = false;
    for (int f = 0; f < 4; ++f) {
      has_face = has_face || mesh.IsFaceOnSurface(t, f);
      touches = touches || mesh.IsVertexOnSurface(mesh.TetVertices(t)[static_cast<size_t>(f)]);
    }
    if (!has_face && touches) inside = t;
    if (!touches) hollow = t;
  }
  ASSERT_NE(inside, kNoSlot);
  ASSERT_NE(hollow, kNoSlot);
  const TetId id = mesh.IdOfTet(inside);
  EXPECT_EQ(carver.Classify(inside), CarveClass::kInside);
  EXPECT_FALSE(carver.Remove(id)->is_removed);
  EXPECT_NE(mesh.Find(id), kNoSlot);
  EXPECT_EQ(carver.statistics().operations(), 0U);
  const TetId cavity = mesh.IdOfTet(hollow);
  EXPECT_TRUE(carver.Remove(cavity)->is_removed);  // a cavity
  EXPECT_EQ(mesh.Surfaces().size(), 2U);
  EXPECT_EQ(mesh.Check(), absl::OkStatus());
  EXPECT_EQ(carver.Remove(cavity).status().code(), absl::StatusCode::kNotFound);
}

// A split takes out the mass and momentum of one tet and leaves everything else in place.
TEST(CarverTest, SplitsConserveMassMomentumAndEmbeddedPoints) {
  ClosedMesh mesh = MustBuild(Made(GenerateKidney(0.11, 0.016)));
  MeshAttributes attributes(&mesh, 1000);
  Random random(8);
  for (uint32_t v = 0; v < mesh.vertex_slot_count(); ++v)
    attributes.vertex(v).velocity_m_per_s = {random.Real(), random.Real() - 1, random.Real()};
  std::vector<Eigen::Vector3d> points;
  for (uint32_t t = 0; t < mesh.tet_slot_count(); ++t) {
    Eigen::Vector3d centre = Eigen::Vector3d::Zero();
    for (const uint32_t v : mesh.TetVertices(t)) centre += mesh.PositionOf(v) / 4;
    const auto index = attributes.points().Embed(mesh.IdOfTet(t), centre);
    ASSERT_TRUE(index.ok()) << index.status();
    points.push_back(centre);
  }
  Carver carver(&mesh);
  int splits = 0;
  for (int attempt = 0; attempt < 1000 && mesh.tet_count() > 50; ++attempt) {
    const uint32_t tet = RandomSurfaceTet(mesh, &random);
    const double mass_kg = 1000 * mesh.RestVolume(tet);
    Eigen::Vector3d tet_momentum = Eigen::Vector3d::Zero();
    for (const uint32_t v : mesh.TetVertices(tet)) tet_momentum += mass_kg / 4 * attributes.vertex(v).velocity_m_per_s;
    const double before_kg = attributes.TotalMass();
    const Eigen::Vector3d before = attributes.Momentum();
    const auto outcome = carver.Remove(mesh.IdOfTet(tet));
    ASSERT_TRUE(outcome.ok()) << outcome.status();
    const size_t released = attributes.points().TakeReleased().size();
    if (outcome->copied_vertices == 0) continue;
    ++splits;
    EXPECT_NEAR(attributes.TotalMass(), before_kg - mass_kg, 1e-12 * before_kg);
    EXPECT_LT((attributes.Momentum() - before + tet_momentum).norm(), 1e-12 * before_kg);
    EXPECT_EQ(released, 1U);
  }
  EXPECT_GT(splits, 20);
  size_t riding = 0;
  for (uint32_t i = 0; i < points.size(); ++i) {
    if (attributes.points().point(i).tet == kNoTet) continue;
    ++riding;
    ASSERT_NE(mesh.Find(attributes.points().point(i).tet), kNoSlot);
    EXPECT_LT((attributes.PointPosition(i) - points[i]).norm(), 1e-14);
  }
  EXPECT_EQ(riding, mesh.tet_count());
}

// C5 at the size of a test: a tip eats its way into a liver, and nearly every request is met in the end.
TEST(CarverTest, AlmostEveryRequestIsMet) {
  ClosedMesh mesh = MustBuild(Made(GenerateLiver(0.2, LiverEdgeLengthForTets(0.2, 4000))));
  Carver carver(&mesh);
  size_t requests = 0;
  for (int step = 0; step < 80; ++step) {
    const Eigen::Vector3d tip(-0.09 + 0.002 * step, 0, 0.05 - 0.001 * step);
    std::vector<TetId> wanted;
    for (uint32_t t = 0; t < mesh.triangle_slot_count(); ++t) {
      if (!mesh.IsTriangle(t)) continue;
      Eigen::Vector3d c = Eigen::Vector3d::Zero();
      for (const uint32_t v : mesh.TetVertices(mesh.TriangleTet(t))) c += mesh.PositionOf(v) / 4;
      const TetId id = mesh.IdOfTet(mesh.TriangleTet(t));
      if ((c - tip).norm() < 0.02 && std::find(wanted.begin(), wanted.end(), id) == wanted.end()) wanted.push_back(id);
    }
    for (const TetId id : wanted) {
      if (mesh.Find(id) != kNoSlot) {
        ASSERT_TRUE(carver.Remove(id).ok());
        ++requests;
      }
    }
    carver.RetryPending();
    ASSERT_TRUE(IsSurfaceManifold(TetsOf(mesh)));
  }
  const CarvingStatistics s = carver.statistics();
  EXPECT_GT(s.operations(), 150U);
  EXPECT_LE(s.operations(), requests);
  EXPECT_LE(static_cast<double>(s.unsolved), 0.002 * static_cast<double>(s.operations()));
  const double per_operation = static_cast<double>(s.removed_tets) / static_cast<double>(s.operations());
  EXPECT_GE(per_operation, 1);
  EXPECT_LT(per_operation, 1.6);
  EXPECT_EQ(mesh.Check(), absl::OkStatus());
}

}  // namespace
}  // namespace palpate::sim::carving_test
