#include "sim/topology/incision.h"

#include <cmath>
#include <cstdio>
#include <functional>
#include <limits>
#include <numbers>

#include <Eigen/Geometry>

#include "sim/topology/carving.h"
#include "sim/topology/mesh_attributes.h"
#include "sim/topology/quality.h"
#include "tests/sim/topology/topology_support.h"

namespace palpate::sim::incision_test {
namespace {

using Blade = std::array<Eigen::Vector3d, 2>;

Eigen::Vector3d Vec(double x, double y, double z) { return {x, y, z}; }

std::vector<Eigen::Vector3d> RestPositions(const ClosedMesh& mesh) {
  std::vector<Eigen::Vector3d> positions_m(mesh.vertex_slot_count());
  for (uint32_t v = 0; v < positions_m.size(); ++v) positions_m[v] = mesh.PositionOf(v);
  return positions_m;
}

// Counts summed, states those of the last call, quality the worst.
void Accumulate(const IncisionResult& result, IncisionResult* sum) {
  sum->split_edges += result.split_edges;
  sum->split_tets += result.split_tets;
  sum->added_tets += result.added_tets;
  sum->snapped_vertices += result.snapped_vertices;
  sum->moved_crossings += result.moved_crossings;
  sum->copied_vertices += result.copied_vertices;
  sum->opened_faces += result.opened_faces;
  sum->opened_area_m2 += result.opened_area_m2;
  sum->min_mean_ratio = std::min(sum->min_mean_ratio, result.min_mean_ratio);
  sum->front_faces = result.front_faces;
  sum->joined_faces = result.joined_faces;
  sum->is_refused = sum->is_refused || result.is_refused;
}

// A sweep along `blade_at(0..1)` in equal calls, through the mesh as it is at rest.
IncisionResult SweepAlong(ClosedMesh* mesh, Incision* incision, const std::function<Blade(double)>& blade_at, int calls,
                          const IncisionOptions& options = {}) {
  IncisionResult sum;
  for (int k = 0; k < calls; ++k) {
    const auto result = incision->Cut(RestPositions(*mesh), blade_at(static_cast<double>(k) / calls),
                                      blade_at(static_cast<double>(k + 1) / calls), options);
    EXPECT_TRUE(result.ok()) << result.status();
    if (result.ok()) Accumulate(*result, &sum);
  }
  return sum;
}

IncisionResult Sweep(ClosedMesh* mesh, Incision* incision, const Blade& from, const Blade& to, int calls,
                     const IncisionOptions& options = {}) {
  const auto blade_at = [&](double t) { return Blade{(1 - t) * from[0] + t * to[0], (1 - t) * from[1] + t * to[1]}; };
  return SweepAlong(mesh, incision, blade_at, calls, options);
}

// A blade longer than any body here, in the plane through `point` with that normal, from outside to outside.
std::array<Blade, 2> WholePlane(const Eigen::Vector3d& point, const Eigen::Vector3d& normal) {
  const Eigen::Vector3d u = 0.3 * normal.unitOrthogonal();
  const Eigen::Vector3d w = normal.cross(u);
  return {Blade{point - u - w, point + u - w}, Blade{point - u + w, point + u + w}};
}

double LongestEdge(const ClosedMesh& mesh) {
  double longest_m = 0;
  for (const auto& v : TetsOf(mesh)) {
    for (const auto& [a, b] : kTetEdges) {
      longest_m = std::max(longest_m, (mesh.PositionOf(v[static_cast<size_t>(a)]) - mesh.PositionOf(v[static_cast<size_t>(b)])).norm());
    }
  }
  return longest_m;
}

double VolumeOfComponent(const ClosedMesh& mesh, ComponentId component) {
  std::vector<uint32_t> tets;
  mesh.TetsOfComponent(component, &tets);
  double volume_m3 = 0;
  for (const uint32_t tet : tets) volume_m3 += mesh.RestVolume(tet);
  return volume_m3;
}

// How far pieces reach across a plane that should separate them: the largest, over the components, of the smaller extent on either side.
double Straddle(const ClosedMesh& mesh, const std::vector<Eigen::Vector3d>& positions_m, const Eigen::Vector3d& point,
                const Eigen::Vector3d& normal) {
  double worst_m = 0;
  std::vector<uint32_t> tets;
  for (const ComponentId component : mesh.Components()) {
    double low_m = 0;
    double high_m = 0;
    mesh.TetsOfComponent(component, &tets);
    for (const uint32_t tet : tets) {
      for (const uint32_t v : mesh.TetVertices(tet)) {
        low_m = std::max(low_m, -normal.dot(positions_m[v] - point));
        high_m = std::max(high_m, normal.dot(positions_m[v] - point));
      }
    }
    worst_m = std::max(worst_m, std::min(low_m, high_m));
  }
  return worst_m;
}

// Vertices by position at rest: copies lie on their originals.
std::map<std::array<double, 3>, std::vector<uint32_t>> VerticesByPlace(const ClosedMesh& mesh) {
  std::map<std::array<double, 3>, std::vector<uint32_t>> places;
  for (uint32_t v = 0; v < mesh.vertex_slot_count(); ++v) {
    if (mesh.IsVertex(v)) places[{mesh.PositionOf(v).x(), mesh.PositionOf(v).y(), mesh.PositionOf(v).z()}].push_back(v);
  }
  return places;
}

void ExpectSound(const ClosedMesh& mesh, double volume_m3) {
  EXPECT_TRUE(mesh.Check().ok()) << mesh.Check();
  EXPECT_TRUE(IsSurfaceManifold(TetsOf(mesh)));
  EXPECT_NEAR(TotalVolume(mesh), volume_m3, 1e-12 * volume_m3);
}

// Sees each vertex and tet that edits make, and holds them against the bounds.
class Bounds : public MeshObserver {
 public:
  explicit Bounds(ClosedMesh* mesh, const IncisionOptions& options) : mesh_(mesh), options_(options) {
    for (uint32_t t = 0; t < mesh->tet_slot_count(); ++t) quality_.push_back(mesh->IsTet(t) ? QualityOf(*mesh, t) : 0);
    mesh->AddObserver(this);
  }
  ~Bounds() override { mesh_->RemoveObserver(this); }
  void OnVertexAdded(const ClosedMesh& mesh, const MeshDelta::AddedVertex& vertex) override {
    Eigen::Vector3d expected_m = Eigen::Vector3d::Zero();
    for (uint32_t s = 0; s < vertex.source_count; ++s) {
      const double weight = vertex.sources[s].weight;
      expected_m += weight * mesh.PositionOf(SlotOf(vertex.sources[s].vertex));
      if (vertex.source_count == 1) {
        EXPECT_EQ(weight, 1);
      } else {
        EXPECT_GT(weight, options_.snap * (1 - 1e-12));
      }
    }
    ASSERT_THAT(vertex.source_count, testing::AnyOf(1, 2));
    EXPECT_EQ((vertex.position_m - expected_m).norm(), 0);
  }
  void OnTetAdded(const ClosedMesh& mesh, const MeshDelta::AddedTet& tet) override {
    const uint32_t slot = SlotOf(tet.id);
    quality_.resize(std::max<size_t>(quality_.size(), slot + 1));
    quality_[slot] = QualityOf(mesh, slot);
    // One that was only rewritten is as it was.
    if (quality_[slot] < options_.min_quality) {
      EXPECT_EQ(quality_[slot], quality_[SlotOf(tet.parent)]);
    }
  }
  static double QualityOf(const ClosedMesh& mesh, uint32_t tet) {
    const auto& v = mesh.TetVertices(tet);
    return MeanRatio({mesh.PositionOf(v[0]), mesh.PositionOf(v[1]), mesh.PositionOf(v[2]), mesh.PositionOf(v[3])});
  }

 private:
  ClosedMesh* mesh_;
  IncisionOptions options_;
  std::vector<double> quality_;  // [tet slot]
};

// --- whole cuts -------------------------------------------------------------------------------------------------------------------------

TEST(IncisionTest, BarFallsInTwoAlongAPlane) {
  for (const int calls : {1, 50}) {
    ClosedMesh mesh = MustBuild(Made(BoxMesh({13, 5, 5}, {0.12, 0.04, 0.04})));
    const double volume_m3 = TotalVolume(mesh);
    Incision incision(&mesh);
    // A plane of the middle x = 8 mm, which leans by 10 mm in 60.
    const auto result = Sweep(&mesh, &incision, {Vec(0.003, -0.05, -0.03), Vec(0.013, -0.05, 0.03)},
                              {Vec(0.003, 0.05, -0.03), Vec(0.013, 0.05, 0.03)}, calls);
    ExpectSound(mesh, volume_m3);
    ASSERT_EQ(mesh.Components().size(), 2U);
    EXPECT_EQ(result.front_faces, 0U);
    EXPECT_EQ(result.joined_faces, 0U);
    EXPECT_GT(result.split_edges, 0U);
    EXPECT_GT(result.snapped_vertices, 0U);
    EXPECT_EQ(result.copied_vertices, 41U);
    EXPECT_EQ(result.added_tets, mesh.tet_count() - 960);
    // No vertex is left on the wrong side by more than the share of an edge.
    const Eigen::Vector3d normal = Vec(60, 0, -10).normalized();
    EXPECT_LE(Straddle(mesh, RestPositions(mesh), Vec(0.008, 0, 0), normal), 0.2 * std::sqrt(2.0) * 0.01);
    const double area_m2 = 0.04 * 0.04;
    std::array<double, 2> volumes_m3 = {VolumeOfComponent(mesh, mesh.Components()[0]), VolumeOfComponent(mesh, mesh.Components()[1])};
    std::sort(volumes_m3.begin(), volumes_m3.end());
    EXPECT_NEAR(volumes_m3[0], area_m2 * (0.06 - 0.008), area_m2 * 0.0005);
    EXPECT_NEAR(volumes_m3[1], area_m2 * (0.06 + 0.008), area_m2 * 0.0005);
    EXPECT_NEAR(result.opened_area_m2, area_m2 * std::sqrt(37.0) / 6, 0.03 * area_m2);
  }
}

TEST(IncisionTest, PlaneOfTheLatticeIsCutThroughItsVerticesAndFaces) {
  for (const int calls : {1, 10, 50}) {
    ClosedMesh mesh = MustBuild(Made(BoxMesh({13, 5, 5}, {0.12, 0.04, 0.04})));
    const double volume_m3 = TotalVolume(mesh);
    Incision incision(&mesh);
    const Blade from = {Vec(0.01, -0.05, -0.03), Vec(0.01, -0.05, 0.03)};
    const Blade to = {Vec(0.01, 0.05, -0.03), Vec(0.01, 0.05, 0.03)};
    const auto result = Sweep(&mesh, &incision, from, to, calls);
    ExpectSound(mesh, volume_m3);
    ASSERT_EQ(mesh.Components().size(), 2U);
    EXPECT_EQ(result.split_edges, 0U);
    EXPECT_EQ(result.copied_vertices, 25U);
    EXPECT_EQ(result.opened_faces, 32U);
    EXPECT_NEAR(result.opened_area_m2, 0.0016, 1e-12);
    EXPECT_NEAR(VolumeOfComponent(mesh, mesh.Components()[0]), 0.0016 * 0.07, 1e-12);
    // The way back finds nothing to do.
    const uint64_t hash = mesh.hash();
    Sweep(&mesh, &incision, to, from, calls);
    EXPECT_EQ(mesh.hash(), hash);
  }
}

TEST(IncisionTest, StopsOnVerticesEdgesAndFacesOfTheLattice) {
  for (const double end_m : {0.0, 0.005, 0.01, 0.02}) {
    for (const double x_m : {0.0, 0.01, 0.005}) {
      ClosedMesh mesh = MustBuild(Made(BoxMesh({13, 5, 5}, {0.12, 0.04, 0.04})));
      const double volume_m3 = TotalVolume(mesh);
      Incision incision(&mesh);
      Sweep(&mesh, &incision, {Vec(x_m, -0.02, 0), Vec(x_m, -0.02, 0.02)}, {Vec(x_m, end_m, 0), Vec(x_m, end_m, 0.02)}, 4);
      ExpectSound(mesh, volume_m3);
      EXPECT_EQ(mesh.Components().size(), 1U);
    }
  }
}

// Twelve planes through a ball: each separates every piece that it meets, whatever the others have left of the mesh.
TEST(IncisionTest, EachOfManyPlanesSeparatesAllPieces) {
  for (const uint64_t seed : {1U, 2U}) {
    ClosedMesh mesh = MustBuild(Made(GenerateSphere(0.05, 0.012)));
    const double volume_m3 = TotalVolume(mesh);
    const double edge_m = LongestEdge(mesh);
    const Bounds bounds(&mesh, {});
    Incision incision(&mesh);
    Random random(seed);
    size_t components = 1;
    for (int cut = 0; cut < 12; ++cut) {
      const Eigen::Vector3d normal = Vec(2 * random.Real() - 1, 2 * random.Real() - 1, 2 * random.Real() - 1).normalized();
      const Eigen::Vector3d point = (0.06 * random.Real() - 0.03) * normal;
      const auto [from, to] = WholePlane(point, normal);
      const auto result = Sweep(&mesh, &incision, from, to, cut % 2 == 0 ? 1 : 25);
      ExpectSound(mesh, volume_m3);
      EXPECT_EQ(result.joined_faces, 0U) << cut;
      EXPECT_EQ(result.front_faces, 0U) << cut;
      EXPECT_LE(Straddle(mesh, RestPositions(mesh), point, normal), 0.25 * edge_m) << cut;
      EXPECT_GT(mesh.Components().size(), components);
      components = mesh.Components().size();
    }
    EXPECT_GT(components, 30U);
  }
}

TEST(IncisionTest, SecondCutCrossesTheFirst) {
  ClosedMesh mesh = MustBuild(Made(BoxMesh({9, 9, 5}, {0.08, 0.08, 0.04})));
  const double volume_m3 = TotalVolume(mesh);
  Incision incision(&mesh);
  // Off the lattice, and at an angle; the first one goes on to the middle and stops there.
  Sweep(&mesh, &incision, {Vec(0.003, -0.05, -0.03), Vec(0.003, -0.05, 0.03)}, {Vec(0.004, 0.013, -0.03), Vec(0.004, 0.013, 0.03)}, 20);
  incision.EndStroke();
  ASSERT_EQ(mesh.Components().size(), 1U);
  const auto result =
      Sweep(&mesh, &incision, {Vec(-0.05, -0.006, -0.03), Vec(-0.05, -0.006, 0.03)}, {Vec(0.05, 0.004, -0.03), Vec(0.05, 0.004, 0.03)}, 20);
  ExpectSound(mesh, volume_m3);
  EXPECT_EQ(result.joined_faces, 0U);
  // The far half is whole but for a slit; the near half is in two.
  EXPECT_EQ(mesh.Components().size(), 3U);
}

// --- parts of cuts ----------------------------------------------------------------------------------------------------------------------

TEST(IncisionTest, PartialCutHasTwoLipsThatMeetAtTheFront) {
  ClosedMesh mesh = MustBuild(Made(BoxMesh({17, 9, 9}, {0.16, 0.08, 0.08})));
  const double volume_m3 = TotalVolume(mesh);
  Incision incision(&mesh);
  // Along the lattice, so that it is known where the cut is: the half z > 0 of the section x = 0, up to y = 0.01.
  const auto result = Sweep(&mesh, &incision, {Vec(0, -0.05, 0), Vec(0, -0.05, 0.05)}, {Vec(0, 0.01, 0), Vec(0, 0.01, 0.05)}, 30);
  ExpectSound(mesh, volume_m3);
  EXPECT_EQ(mesh.Components().size(), 1U);
  EXPECT_EQ(mesh.Surfaces().size(), 1U);
  EXPECT_EQ(mesh.Count().SurfaceChi(), 2);  // a slit is no hole
  EXPECT_EQ(result.joined_faces, 0U);
  // In the corner of the front a face with all its vertices on it stays closed.
  EXPECT_LE(result.front_faces, 1U);
  EXPECT_NEAR(result.opened_area_m2 + static_cast<double>(result.front_faces) * 0.5e-4, 0.05 * 0.04, 1e-12);
  for (const auto& [place, vertices] : VerticesByPlace(mesh)) {
    const bool is_cut = std::abs(place[0]) < 1e-9 && place[1] < 0.01 - 1e-9 && place[2] > 1e-9;
    ASSERT_EQ(vertices.size(), is_cut ? 2U : 1U) << place[0] << ", " << place[1] << ", " << place[2];
    if (!is_cut) continue;
    // One copy has tissue before the cut, the other behind it.
    std::array<double, 2> mean_x_m;
    for (size_t k = 0; k < 2; ++k) {
      std::vector<uint32_t> tets;
      mesh.TetsAroundVertex(vertices[k], &tets);
      mean_x_m[k] = 0;
      for (const uint32_t tet : tets) {
        for (const uint32_t v : mesh.TetVertices(tet)) {
          mean_x_m[k] += mesh.PositionOf(v).x();
        }
      }
    }
    EXPECT_LT(mean_x_m[0] * mean_x_m[1], 0);
  }
  // What was cut is surface of the interior, and the front still is one edge path: all the section's other faces hold.
  for (uint32_t t = 0; t < mesh.triangle_slot_count(); ++t) {
    if (!mesh.IsTriangle(t)) continue;
    const auto& v = mesh.TriangleVertices(t);
    if (std::none_of(v.begin(), v.end(), [&](uint32_t w) { return std::abs(mesh.PositionOf(w).x()) > 1e-9; })) {
      for (const uint32_t w : v) EXPECT_TRUE(mesh.PositionOf(w).y() <= 0.01 + 1e-9 && mesh.PositionOf(w).z() >= -1e-9);
    }
  }
}

TEST(IncisionTest, AStrokeGoesOnWhereAnotherEnded) {
  ClosedMesh mesh = MustBuild(Made(GenerateSlab({0.1, 0.06, 0.04}, 0.011)));
  const double volume_m3 = TotalVolume(mesh);
  Incision incision(&mesh);
  const auto blade_at = [](double y_m) { return Blade{Vec(0.0037, y_m, -0.05), Vec(0.0041, y_m, 0.05)}; };
  Sweep(&mesh, &incision, blade_at(-0.05), blade_at(0.004), 20);
  EXPECT_EQ(mesh.Components().size(), 1U);
  incision.EndStroke();
  // Lifted, put back into the slit and drawn to the end.
  const auto result = Sweep(&mesh, &incision, blade_at(-0.006), blade_at(0.05), 20);
  ExpectSound(mesh, volume_m3);
  EXPECT_EQ(mesh.Components().size(), 2U);
  EXPECT_EQ(result.joined_faces, 0U);
  EXPECT_EQ(result.front_faces, 0U);
}

TEST(IncisionTest, AVertexOfTheFrontIsFoundAgainFromOutside) {
  // The blade leaves the tissue between two passes: the second one, deeper, opens the same slit further and leaves no bridge.
  ClosedMesh mesh = MustBuild(Made(GenerateSlab({0.1, 0.06, 0.04}, 0.009)));
  const double volume_m3 = TotalVolume(mesh);
  Incision incision(&mesh);
  for (const double depth_m : {0.012, 0.024, 0.05}) {
    const auto result = Sweep(&mesh, &incision, {Vec(0.0037, -0.05, 0.03), Vec(0.0037, -0.05, 0.02 - depth_m)},
                              {Vec(0.0037, 0.05, 0.03), Vec(0.0037, 0.05, 0.02 - depth_m)}, 20);
    ExpectSound(mesh, volume_m3);
    EXPECT_EQ(result.joined_faces, 0U);
  }
  EXPECT_EQ(mesh.Components().size(), 2U);
}

TEST(IncisionTest, CutsASheetOfOneLayer) {
  const auto sheet = [] { return MustBuild(Made(GenerateSheet(0.2, 0.1, 0.004, 1, 0.01))); };
  {
    ClosedMesh mesh = sheet();
    const double volume_m3 = TotalVolume(mesh);
    Incision incision(&mesh);
    const auto result = Sweep(&mesh, &incision, {Vec(0.013, -0.06, -0.01), Vec(0.013, -0.06, 0.01)},
                              {Vec(-0.012, 0.06, -0.01), Vec(-0.012, 0.06, 0.01)}, 40);
    ExpectSound(mesh, volume_m3);
    EXPECT_EQ(mesh.Components().size(), 2U);
    EXPECT_EQ(result.joined_faces, 0U);
    EXPECT_EQ(result.front_faces, 0U);
  }
  {
    // A slit inside is a hole of the sheet.
    ClosedMesh mesh = sheet();
    const double volume_m3 = TotalVolume(mesh);
    Incision incision(&mesh);
    const auto result = Sweep(&mesh, &incision, {Vec(-0.043, 0.002, -0.01), Vec(-0.043, 0.002, 0.01)},
                              {Vec(0.041, 0.009, -0.01), Vec(0.041, 0.009, 0.01)}, 40);
    ExpectSound(mesh, volume_m3);
    EXPECT_EQ(mesh.Components().size(), 1U);
    EXPECT_EQ(mesh.Count().SurfaceChi(), 0);
    EXPECT_EQ(result.joined_faces, 0U);
    // A flap: from the slit's middle to the border. The sheet is whole again in the sense of topology, with a deep notch.
    Sweep(&mesh, &incision, {Vec(0.003, 0.0, -0.01), Vec(0.003, 0.0, 0.01)}, {Vec(0.004, 0.06, -0.01), Vec(0.004, 0.06, 0.01)}, 30);
    ExpectSound(mesh, volume_m3);
    EXPECT_EQ(mesh.Components().size(), 1U);
    EXPECT_EQ(mesh.Count().SurfaceChi(), 2);
  }
}

// --- independence of the path's sampling ------------------------------------------------------------------------------------------------

TEST(IncisionTest, CutDoesNotDependOnHowThePathIsSampled) {
  const TetMesh liver = Made(GenerateLiver(0.2, LiverEdgeLengthForTets(0.2, 4000)));
  const auto straight = [](double t) {
    const Eigen::Vector3d at = Vec(-0.07, -0.02, 0) + t * Vec(0.08, 0.03, 0);
    return Blade{Eigen::Vector3d(at + Vec(0, 0, 0.1)), Eigen::Vector3d(at + Vec(0.01, 0, 0.005))};
  };
  // A quarter of a circle of 5 cm, the blade leaning outwards.
  const auto curved = [](double t) {
    const double angle = (0.25 + 0.5 * t) * std::numbers::pi;
    const Eigen::Vector3d way = Vec(std::cos(angle), std::sin(angle), 0);
    return Blade{Eigen::Vector3d(Vec(-0.03, -0.04, 0.1) + 0.06 * way), Eigen::Vector3d(Vec(-0.03, -0.04, 0.005) + 0.05 * way)};
  };
  const auto area_of = [&](const std::function<Blade(double)>& path, int calls, size_t* copies, int strokes = 1) {
    ClosedMesh mesh = MustBuild(liver);
    Incision incision(&mesh);
    IncisionResult result;
    for (int s = 0; s < strokes; ++s) {
      const auto part = [&](double t) { return path((s + t) / strokes); };
      Accumulate(SweepAlong(&mesh, &incision, part, calls / strokes), &result);
      incision.EndStroke();
    }
    EXPECT_TRUE(mesh.Check().ok()) << mesh.Check();
    *copies = result.copied_vertices;
    return result.opened_area_m2;
  };
  size_t once = 0;
  size_t often = 0;
  const double area_m2 = area_of(straight, 1, &once);
  EXPECT_GT(once, 20U);
  for (const int calls : {2, 50}) {
    EXPECT_NEAR(area_of(straight, calls, &often), area_m2, 0.02 * area_m2);
    EXPECT_NEAR(static_cast<double>(often), static_cast<double>(once), 0.05 * static_cast<double>(once));
  }
  const double curved_m2 = area_of(curved, 12, &once);
  EXPECT_NEAR(area_of(curved, 100, &often), curved_m2, 0.04 * curved_m2);
  // Nor on whether the blade is said to be out in between: a stroke goes on where the one before ended.
  for (const int strokes : {2, 12, 50, 100}) {
    EXPECT_NEAR(area_of(straight, 100, &often, strokes), area_m2, 0.03 * area_m2) << strokes;
    EXPECT_NEAR(area_of(curved, 100, &often, strokes), curved_m2, 0.05 * curved_m2) << strokes;
  }
}

TEST(IncisionTest, TwoBladesTakeTurns) {
  // Along two planes of one slab, a part of the one after a part of the other: both open as far as each alone.
  const TetMesh slab = Made(GenerateSlab({0.1, 0.06, 0.04}, 0.008));
  const auto blade_at = [](double x_m, double t) { return Blade{Vec(x_m, -0.05 + 0.1 * t, 0.03), Vec(x_m, -0.05 + 0.1 * t, -0.004)}; };
  const auto open = [&](const std::vector<double>& planes_m) {
    ClosedMesh mesh = MustBuild(slab);
    const double volume_m3 = TotalVolume(mesh);
    Incision incision(&mesh);
    IncisionResult sum;
    constexpr int kParts = 40;
    for (int k = 0; k < kParts; ++k) {
      for (const double x_m : planes_m) {
        const auto part = [&](double t) { return blade_at(x_m, (k + t) / kParts); };
        Accumulate(SweepAlong(&mesh, &incision, part, 1), &sum);
      }
    }
    ExpectSound(mesh, volume_m3);
    return sum.opened_area_m2;
  };
  const double left_m2 = open({-0.0237});
  const double right_m2 = open({0.0241});
  EXPECT_GT(left_m2, 0.8 * 0.06 * 0.024);
  EXPECT_NEAR(open({-0.0237, 0.0241}), left_m2 + right_m2, 0.03 * (left_m2 + right_m2));
}

TEST(IncisionTest, ASweepAcrossAFrontLeavesItAsItIs) {
  // A slit ends inside; a shallow cut across its plane, just ahead of the front, opens only itself.
  const auto slit = [](ClosedMesh* mesh, Incision* incision) {
    Sweep(mesh, incision, {Vec(0.0037, -0.05, -0.05), Vec(0.0037, -0.05, 0.05)}, {Vec(0.0037, 0.004, -0.05), Vec(0.0037, 0.004, 0.05)}, 20);
    incision->EndStroke();
  };
  const auto across = [](ClosedMesh* mesh, Incision* incision) {
    return Sweep(mesh, incision, {Vec(-0.06, 0.012, 0.03), Vec(-0.06, 0.012, 0.005)}, {Vec(0.06, 0.012, 0.03), Vec(0.06, 0.012, 0.005)},
                 20);
  };
  const TetMesh slab = Made(GenerateSlab({0.1, 0.06, 0.04}, 0.006));
  ClosedMesh alone = MustBuild(slab);
  Incision blade(&alone);
  const double across_m2 = across(&alone, &blade).opened_area_m2;
  ClosedMesh mesh = MustBuild(slab);
  const double volume_m3 = TotalVolume(mesh);
  Incision incision(&mesh);
  slit(&mesh, &incision);
  EXPECT_NEAR(across(&mesh, &incision).opened_area_m2, across_m2, 0.08 * across_m2);
  ExpectSound(mesh, volume_m3);
}

// --- what hangs on the mesh -------------------------------------------------------------------------------------------------------------

TEST(IncisionTest, DeformedTissueIsCutWhereItIsAndKeepsMassAndMomentum) {
  ClosedMesh mesh = MustBuild(Made(BoxMesh({13, 5, 5}, {0.12, 0.04, 0.04})));
  const double volume_m3 = TotalVolume(mesh);
  MeshAttributes attributes(&mesh, 1060);
  // Bent, twisted and stretched.
  for (uint32_t v = 0; v < mesh.vertex_slot_count(); ++v) {
    const Eigen::Vector3d x = mesh.PositionOf(v);
    const double angle = 6 * x.x();
    attributes.vertex(v).position_m = {1.2 * x.x(), std::cos(angle) * x.y() - std::sin(angle) * x.z(),
                                       std::sin(angle) * x.y() + std::cos(angle) * x.z() + 4 * x.x() * x.x()};
    attributes.vertex(v).velocity_m_per_s = Vec(0.1 * x.y(), x.x(), 0.3) + 5 * x;
  }
  const auto positions_now = [&] {
    std::vector<Eigen::Vector3d> now(mesh.vertex_slot_count());
    for (uint32_t v = 0; v < now.size(); ++v) now[v] = attributes.vertex(v).position_m;
    return now;
  };
  std::vector<std::pair<uint32_t, Eigen::Vector3d>> embedded;
  for (uint32_t t = 0; t < mesh.tet_slot_count(); t += 7) {
    Eigen::Vector3d rest = Eigen::Vector3d::Zero();
    for (size_t c = 0; c < 4; ++c) rest += (0.1 + 0.1 * static_cast<double>(c)) * mesh.PositionOf(mesh.TetVertices(t)[c]);
    const auto index = attributes.points().Embed(mesh.IdOfTet(t), rest);
    ASSERT_TRUE(index.ok());
    embedded.emplace_back(*index, attributes.PointPosition(*index));
  }
  const double mass_kg = attributes.TotalMass();
  const Eigen::Vector3d momentum = attributes.Momentum();
  const std::vector<Eigen::Vector3d> before = positions_now();
  Incision incision(&mesh);
  const Eigen::Vector3d normal = Vec(1, 0.2, -0.3).normalized();
  const auto [from, to] = WholePlane(Vec(0.013, 0, 0), normal);
  for (int k = 0; k < 20; ++k) {
    const auto at = [&from = from, &to = to](double t) { return Blade{(1 - t) * from[0] + t * to[0], (1 - t) * from[1] + t * to[1]}; };
    const auto result = incision.Cut(positions_now(), at(k / 20.0), at((k + 1) / 20.0), {});
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_NEAR(attributes.TotalMass(), mass_kg, 1e-12 * mass_kg);
    EXPECT_LE((attributes.Momentum() - momentum).norm(), 1e-12 * momentum.norm());
  }
  ExpectSound(mesh, volume_m3);
  EXPECT_EQ(mesh.Components().size(), 2U);
  const std::vector<Eigen::Vector3d> after = positions_now();
  for (uint32_t v = 0; v < before.size(); ++v) EXPECT_EQ(after[v], before[v]);
  for (const auto& [index, position_m] : embedded) EXPECT_LE((attributes.PointPosition(index) - position_m).norm(), 1e-12);
  // The plane is one of now, not of rest.
  EXPECT_LE(Straddle(mesh, after, Vec(0.013, 0, 0), normal), 0.25 * 0.02);
}

TEST(IncisionTest, UncoveredFacesAreFleshAndTheSkinKeepsItsZone) {
  ClosedMesh mesh = MustBuild(Made(BoxMesh({13, 5, 5}, {0.12, 0.04, 0.04})));
  const auto flesh = mesh.AddSurfaceZone("flesh");
  ASSERT_TRUE(flesh.ok());
  mesh.SetInteriorSurfaceZone(0, *flesh);
  Incision incision(&mesh);
  const auto [from, to] = WholePlane(Vec(0.003, 0, 0), Vec(1, 0.1, 0.2).normalized());
  const auto result = Sweep(&mesh, &incision, from, to, 10);
  size_t flesh_count = 0;
  for (uint32_t t = 0; t < mesh.triangle_slot_count(); ++t) {
    if (!mesh.IsTriangle(t)) continue;
    Eigen::Vector3d centre = Eigen::Vector3d::Zero();
    for (const uint32_t v : mesh.TriangleVertices(t)) centre += mesh.PositionOf(v) / 3;
    const bool is_skin = std::abs(std::abs(centre.x()) - 0.06) < 1e-9 || std::abs(std::abs(centre.y()) - 0.02) < 1e-9 ||
                         std::abs(std::abs(centre.z()) - 0.02) < 1e-9;
    EXPECT_EQ(mesh.TriangleZoneOf(t), is_skin ? 0 : *flesh);
    flesh_count += is_skin ? 0 : 1;
  }
  EXPECT_EQ(flesh_count, 2 * result.opened_faces);
}

// --- many cuts --------------------------------------------------------------------------------------------------------------------------

TEST(IncisionTest, RandomCutsAndCarvingLeaveASoundMesh) {
  for (const bool is_liver : {false, true}) {
    ClosedMesh mesh = MustBuild(is_liver ? Made(GenerateLiver(0.2, LiverEdgeLengthForTets(0.2, 2500))) : Made(GenerateSphere(0.05, 0.012)));
    const double size_m = is_liver ? 0.08 : 0.05;
    const Bounds bounds(&mesh, {});
    Random random(is_liver ? 11 : 12);
    Incision incision(&mesh);
    Carver carver(&mesh);
    IncisionResult all;
    size_t joined = 0;
    for (int cut = 0; cut < 150; ++cut) {
      // Blades of all lengths, that start and end anywhere, in and out of the body, and turn.
      const auto point = [&](double scale) {
        return Eigen::Vector3d(scale * size_m * Vec(2 * random.Real() - 1, 2 * random.Real() - 1, 2 * random.Real() - 1));
      };
      const Eigen::Vector3d start = point(0.9);
      const Eigen::Vector3d half = point(0.6);
      const Eigen::Vector3d end = start + point(0.7);
      const double volume_m3 = TotalVolume(mesh);
      const auto result = Sweep(&mesh, &incision, {start - half, start + half}, {end - half, end + half + point(0.3)},
                                1 + static_cast<int>(random.Below(12)), {.tet_budget = 6000});
      Accumulate(result, &all);
      joined += result.joined_faces;
      if (cut % 2 == 0) incision.EndStroke();
      ASSERT_NEAR(TotalVolume(mesh), volume_m3, 1e-12 * volume_m3);
      ASSERT_TRUE(mesh.Check().ok()) << "cut " << cut << ": " << mesh.Check();
      if (cut % 10 == 0) {
        ASSERT_TRUE(IsSurfaceManifold(TetsOf(mesh))) << "cut " << cut;
      }
      for (int k = 0; k < 5; ++k) {
        const uint32_t triangle = random.Below(mesh.triangle_slot_count());
        if (!mesh.IsTriangle(triangle)) continue;
        EXPECT_TRUE(carver.Remove(mesh.IdOfTet(mesh.TriangleTet(triangle))).ok());
      }
      ASSERT_TRUE(mesh.Check().ok()) << "carving after cut " << cut << ": " << mesh.Check();
    }
    EXPECT_GT(all.opened_faces, 500U);
    std::array<int, 10> histogram = {};
    for (uint32_t t = 0; t < mesh.tet_slot_count(); ++t) {
      if (mesh.IsTet(t)) ++histogram[std::min<size_t>(9, static_cast<size_t>(10 * Bounds::QualityOf(mesh, t)))];
    }
    std::printf("%s: %zu faces opened, %zu kept closed at the ends of strokes, %zu crossings moved; %zu tets, by mean ratio in tenths:",
                is_liver ? "liver" : "ball", all.opened_faces, joined, all.moved_crossings, mesh.tet_count());
    for (const int count : histogram) std::printf(" %d", count);
    std::printf("\n");
  }
}

TEST(IncisionTest, SameCallsGiveTheSameBits) {
  std::array<uint64_t, 2> hashes;
  for (uint64_t& hash : hashes) {
    ClosedMesh mesh = MustBuild(Made(GenerateSphere(0.05, 0.015)));
    Incision incision(&mesh);
    Random random(3);
    for (int cut = 0; cut < 10; ++cut) {
      const Eigen::Vector3d normal = Vec(2 * random.Real() - 1, 2 * random.Real() - 1, 2 * random.Real() - 1).normalized();
      const auto [from, to] = WholePlane(Vec(0, 0, 0), normal);
      Sweep(&mesh, &incision, from, {Eigen::Vector3d((from[0] + to[0]) / 2), Eigen::Vector3d((from[1] + to[1]) / 2)}, 7);
    }
    hash = mesh.hash();
  }
  EXPECT_EQ(hashes[0], hashes[1]);
}

// --- limits and errors ------------------------------------------------------------------------------------------------------------------

TEST(IncisionTest, NothingToCutLeavesTheMeshAlone) {
  ClosedMesh mesh = MustBuild(Cube(5));
  const uint64_t version = mesh.version();
  Incision incision(&mesh);
  const Blade inside = {Vec(0, 0, -0.1), Vec(0, 0, 0.1)};
  const Blade along = {Vec(0, 0, -0.2), Vec(0, 0, 0.3)};
  const Blade outside = {Vec(0.2, -0.1, -0.1), Vec(0.2, -0.1, 0.1)};
  const Blade outside_to = {Vec(0.2, 0.1, -0.1), Vec(0.2, 0.1, 0.1)};
  const Blade point = {Vec(0.001, 0.002, 0), Vec(0.001, 0.002, 0)};
  const std::array<std::array<Blade, 2>, 4> sweeps = {{{inside, inside}, {inside, along}, {outside, outside_to}, {point, point}}};
  for (const auto& [from, to] : sweeps) {
    const auto result = incision.Cut(RestPositions(mesh), from, to, {});
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result->opened_faces + result->split_edges, 0U);
    EXPECT_EQ(mesh.version(), version);
  }
}

TEST(IncisionTest, ErrorsNameTheArgumentAndLeaveTheMeshAlone) {
  ClosedMesh mesh = MustBuild(Cube(5));
  const uint64_t version = mesh.version();
  Incision incision(&mesh);
  const auto [from, to] = WholePlane(Vec(0.003, 0, 0), Vec(1, 0, 0));
  const std::vector<Eigen::Vector3d> good = RestPositions(mesh);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const auto expect_invalid = [&](const absl::StatusOr<IncisionResult>& result, std::string_view name) {
    EXPECT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(result.status().message()), testing::HasSubstr(std::string(name)));
    EXPECT_EQ(mesh.version(), version);
  };
  for (const double bad : {0.0, 0.5, nan}) {
    expect_invalid(incision.Cut(good, from, to, {.snap = bad}), "snap");
    expect_invalid(incision.Cut(good, from, to, {.min_quality = bad == 0.5 ? 0.6 : bad}), "min_quality");
    expect_invalid(incision.Cut(good, from, to, {.min_edge_m = std::isnan(bad) ? bad : -1}), "min_edge_m");
  }
  Blade bad_blade = from;
  bad_blade[1].y() = nan;
  expect_invalid(incision.Cut(good, bad_blade, to, {}), "blade_from_m[1]");
  expect_invalid(incision.Cut(good, from, bad_blade, {}), "blade_to_m[1]");
  std::vector<Eigen::Vector3d> bad = good;
  bad[7].z() = std::numeric_limits<double>::infinity();
  expect_invalid(incision.Cut(bad, from, to, {}), "positions_by_slot_m[7]");
  expect_invalid(incision.Cut(std::span(good).first(good.size() - 1), from, to, {}), "vertex slots");
}

TEST(IncisionTest, BudgetRefusesTheSweep) {
  ClosedMesh mesh = MustBuild(Cube(5));
  const uint64_t version = mesh.version();
  Incision incision(&mesh);
  const auto [from, to] = WholePlane(Vec(0.012, 0, 0), Vec(1, 0.1, 0.05).normalized());
  const auto refused = incision.Cut(RestPositions(mesh), from, to, {.tet_budget = mesh.tet_count() + 10});
  ASSERT_TRUE(refused.ok());
  EXPECT_TRUE(refused->is_refused);
  EXPECT_EQ(mesh.version(), version);
  const auto result = incision.Cut(RestPositions(mesh), from, to, {});
  ASSERT_TRUE(result.ok());
  EXPECT_FALSE(result->is_refused);
  EXPECT_EQ(mesh.Components().size(), 2U);
}

TEST(IncisionTest, ShortEdgesAreNotSplit) {
  ClosedMesh mesh = MustBuild(Cube(9));
  const double volume_m3 = TotalVolume(mesh);
  Incision incision(&mesh);
  const auto [from, to] = WholePlane(Vec(0.003, 0, 0), Vec(1, 0.1, 0.05).normalized());
  // Cells of 12.5 mm: no edge can be split, so the cut goes along the faces that are there.
  const auto result = Sweep(&mesh, &incision, from, to, 10, {.min_edge_m = 0.01});
  EXPECT_EQ(result.split_edges, 0U);
  EXPECT_GT(result.moved_crossings, 0U);
  EXPECT_GT(result.opened_faces, 100U);
  ExpectSound(mesh, volume_m3);
}

}  // namespace
}  // namespace palpate::sim::incision_test
