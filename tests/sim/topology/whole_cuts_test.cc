// Cuts right through bodies that were carved before and are bent: nothing holds the two sides together. The oracle is a search for a way
// from tet to tet; it knows nothing of marks and fronts.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <vector>

#include <Eigen/Geometry>

#include "sim/topology/carving.h"
#include "sim/topology/incision.h"
#include "tests/sim/topology/topology_support.h"

namespace palpate::sim::whole_cuts_test {
namespace {

using Eigen::Vector3d;

class Symmetric {
 public:
  explicit Symmetric(uint64_t seed) : random_(seed) {}
  double Real() { return 2 * random_.Real() - 1; }
  Vector3d Vector() {
    const double x = Real();
    const double y = Real();
    return {x, y, Real()};
  }
  uint32_t Below(uint32_t n) { return static_cast<uint32_t>(random_.Below(n)); }

 private:
  Random random_;
};

// Where the vertices are now; new ones lie between their sources.
class Deformed : public MeshObserver {
 public:
  template <typename F>
  Deformed(ClosedMesh* mesh, const F& map) : mesh_(mesh), positions_m_(mesh->vertex_slot_count()) {
    for (uint32_t v = 0; v < positions_m_.size(); ++v) {
      if (mesh->IsVertex(v)) positions_m_[v] = map(mesh->PositionOf(v));
    }
    mesh->AddObserver(this);
  }
  ~Deformed() override { mesh_->RemoveObserver(this); }
  void OnVertexAdded(const ClosedMesh& mesh, const MeshDelta::AddedVertex& vertex) override {
    Vector3d x = Vector3d::Zero();
    for (uint32_t s = 0; s < vertex.source_count; ++s) x += vertex.sources[s].weight * positions_m_[SlotOf(vertex.sources[s].vertex)];
    positions_m_.resize(std::max<size_t>(positions_m_.size(), mesh.vertex_slot_count()), Vector3d::Zero());
    positions_m_[SlotOf(vertex.id)] = x;
  }
  const std::vector<Vector3d>& positions_m() {
    positions_m_.resize(mesh_->vertex_slot_count(), Vector3d::Zero());
    return positions_m_;
  }

 private:
  ClosedMesh* mesh_;
  std::vector<Vector3d> positions_m_;
};

// Whether a way leads through tets that share faces from one that lies beyond `depth_m` above the plane to one that far below.
bool AreSidesLinked(const ClosedMesh& mesh, const std::vector<Vector3d>& positions_m, const Vector3d& point, const Vector3d& normal,
                    double depth_m) {
  const auto is_beyond = [&](uint32_t tet, double sign) {
    const auto& v = mesh.TetVertices(tet);
    return std::all_of(v.begin(), v.end(), [&](uint32_t w) { return sign * normal.dot(positions_m[w] - point) > depth_m; });
  };
  std::vector<bool> is_seen(mesh.tet_slot_count(), false);
  std::vector<uint32_t> queue;
  for (uint32_t t = 0; t < mesh.tet_slot_count(); ++t) {
    if (!mesh.IsTet(t) || !is_beyond(t, 1)) continue;
    is_seen[t] = true;
    queue.push_back(t);
  }
  for (size_t i = 0; i < queue.size(); ++i) {
    if (is_beyond(queue[i], -1)) return true;
    for (int f = 0; f < 4; ++f) {
      const Neighbor n = mesh.TetNeighbor(queue[i], f);
      if (n.is_virtual() || is_seen[n.slot()]) continue;
      is_seen[n.slot()] = true;
      queue.push_back(n.slot());
    }
  }
  return false;
}

void CarveBall(ClosedMesh* mesh, Carver* carver, const Vector3d& center_m, double radius_m) {
  std::vector<TetId> inside;
  for (uint32_t t = 0; t < mesh->tet_slot_count(); ++t) {
    if (!mesh->IsTet(t)) continue;
    Vector3d centroid_m = Vector3d::Zero();
    for (const uint32_t v : mesh->TetVertices(t)) centroid_m += mesh->PositionOf(v) / 4;
    if ((centroid_m - center_m).norm() < radius_m) inside.push_back(mesh->IdOfTet(t));
  }
  for (const TetId id : inside) {
    if (mesh->Find(id) == kNoSlot) continue;
    EXPECT_TRUE(carver->Remove(id).ok());
  }
}

// The notches that carving leaves are where the surface would touch itself if the cut went through their tips.
TEST(WholeCutsTest, NothingHoldsTheSidesTogether) {
  size_t cuts = 0;
  size_t linked = 0;
  size_t joined = 0;
  for (uint64_t seed = 1; seed <= 150; ++seed) {
    Symmetric random(seed);
    ClosedMesh mesh = MustBuild(seed % 3 == 0   ? Made(BoxMesh({12, 5, 5}, {0.12, 0.045, 0.045}))
                                : seed % 3 == 1 ? Made(GenerateSphere(0.05, 0.012))
                                                : Made(GenerateLiver(0.15, 0.017)));
    Carver carver(&mesh);
    Incision incision(&mesh);
    for (int round = 0; round < 4; ++round, ++cuts) {
      for (int ball = 0; ball < 2; ++ball) {
        uint32_t triangle = 0;
        do {
          triangle = random.Below(mesh.triangle_slot_count());
        } while (!mesh.IsTriangle(triangle));
        CarveBall(&mesh, &carver, mesh.PositionOf(mesh.TriangleVertices(triangle)[0]), 0.012);
      }
      // Bent and twisted; of every second body each vertex is somewhere else, up to tets that are inverted.
      const double bend_per_m = 8 * random.Real();
      const double twist_rad_per_m = 6 * random.Real();
      const double noise_m = seed % 2 == 0 ? 0 : 0.0008;
      Deformed now(&mesh, [&](const Vector3d& x) -> Vector3d {
        const double angle = twist_rad_per_m * x.x();
        const Vector3d noise(std::sin(900 * x.x() + 700 * x.y()), std::sin(800 * x.y() + 600 * x.z()),
                             std::sin(1000 * x.z() + 500 * x.x()));
        return Vector3d(x.x(), std::cos(angle) * x.y() - std::sin(angle) * x.z(),
                        std::sin(angle) * x.y() + std::cos(angle) * x.z() + bend_per_m * x.x() * x.x()) +
               noise_m * noise;
      });
      uint32_t vertex = 0;
      do {
        vertex = random.Below(mesh.vertex_slot_count());
      } while (!mesh.IsVertex(vertex));
      const Vector3d point_m = now.positions_m()[vertex] + 0.004 * random.Vector();
      const Vector3d normal = random.Vector().normalized();
      const Vector3d edge_m = 0.5 * normal.unitOrthogonal();
      const Vector3d way_m = normal.cross(edge_m);
      const int calls = random.Below(2) == 0 ? 1 : 1 + static_cast<int>(random.Below(30));
      const double volume_m3 = TotalVolume(mesh);
      for (int k = 0; k < calls; ++k) {
        const auto blade_at = [&](double t) {
          const Vector3d middle_m = point_m + (2 * t - 1) * way_m;
          return std::array<Vector3d, 2>{middle_m - edge_m, middle_m + edge_m};
        };
        const std::vector<Vector3d> before_m = now.positions_m();
        const auto result =
            incision.Cut(before_m, blade_at(static_cast<double>(k) / calls), blade_at(static_cast<double>(k + 1) / calls), {});
        ASSERT_TRUE(result.ok()) << result.status();
        ASSERT_FALSE(result->is_refused);
        joined += k + 1 == calls ? result->joined_faces : 0;
      }
      incision.EndStroke();
      SCOPED_TRACE(testing::Message() << "seed " << seed << ", round " << round << ", " << calls << " calls");
      ASSERT_TRUE(mesh.Check().ok()) << mesh.Check();
      ASSERT_TRUE(IsSurfaceManifold(TetsOf(mesh)));
      ASSERT_NEAR(TotalVolume(mesh), volume_m3, 1e-12 * volume_m3);
      linked += AreSidesLinked(mesh, now.positions_m(), point_m, normal, 0.004) ? 1 : 0;
    }
  }
  std::printf("%zu of %zu cuts left the sides linked, with %zu joined faces\n", linked, cuts, joined);
  EXPECT_EQ(cuts, 600U);
  // None, as measured; in longer runs about one of a thousand, where quality leaves no way around a notch.
  EXPECT_LE(linked, 1U);
}

}  // namespace
}  // namespace palpate::sim::whole_cuts_test
