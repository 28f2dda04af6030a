#include "sim/nurbs/nurbs_grid_tessellation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "sim/nurbs/nurbs_nearest.h"
#include "sim/nurbs/nurbs_revolution.h"
#include "sim/nurbs/nurbs_shapes.h"
#include "sim/nurbs/nurbs_tessellation.h"
#include "tests/sim/nurbs/nurbs_test_objects.h"

namespace palpate::sim::nurbs_grid_tessellation_test {
namespace {

using Eigen::Vector3d;

double ToSegment(const Vector3d& p, const Vector3d& a, const Vector3d& b) {
  const Vector3d way = b - a;
  return (p - a - std::clamp((p - a).dot(way) / way.squaredNorm(), 0.0, 1.0) * way).norm();
}

double ToTriangle(const Vector3d& p, const Vector3d& a, const Vector3d& b, const Vector3d& c) {
  const Vector3d n = (b - a).cross(c - a);
  const bool is_over = (b - a).cross(p - a).dot(n) >= 0 && (c - b).cross(p - b).dot(n) >= 0 && (a - c).cross(p - c).dot(n) >= 0;
  return is_over ? std::abs((p - a).dot(n)) / n.norm() : std::min({ToSegment(p, a, b), ToSegment(p, b, c), ToSegment(p, c, a)});
}

bool IsClosed(const SurfaceMesh& mesh) {
  std::set<std::pair<uint32_t, uint32_t>> edges;
  for (const auto& t : mesh.triangles) {
    for (size_t c = 0; c < 3; ++c) {
      if (!edges.insert({t[c], t[(c + 1) % 3]}).second) return false;
    }
  }
  return std::all_of(edges.begin(), edges.end(), [&](const auto& edge) { return edges.contains({edge.second, edge.first}); });
}

/// Both ways by samples: no farther than the tolerance, and no finer than a few times that.
void Check(const char* name, const std::vector<NurbsSurface>& surfaces, double tolerance_m, size_t at_most) {
  SCOPED_TRACE(name);
  const NurbsObject object = *NurbsObject::FromSurfaces(name, surfaces);
  const auto made = TessellateNurbsGrids(object, tolerance_m);
  ASSERT_TRUE(made.ok()) << made.status();
  ASSERT_TRUE(made->has_value());
  const SurfaceMesh& mesh = **made;
  EXPECT_TRUE(IsClosed(mesh));
  EXPECT_LE(mesh.triangles.size(), at_most);
  double farthest_m = 0;
  for (const NurbsSurface& surface : surfaces) {
    const auto [u0, u1] = surface.domain(NurbsDirection::kU);
    const auto [v0, v1] = surface.domain(NurbsDirection::kV);
    constexpr int kSamples = 23;  // no multiple of a likely count
    for (int i = 0; i <= kSamples; ++i) {
      for (int j = 0; j <= kSamples; ++j) {
        const Vector3d p = surface.Point(u0 + (u1 - u0) * i / kSamples, v0 + (v1 - v0) * j / kSamples);
        double nearest_m = 1;
        for (const auto& [a, b, c] : mesh.triangles) {
          nearest_m = std::min(nearest_m, ToTriangle(p, mesh.vertices[a], mesh.vertices[b], mesh.vertices[c]));
        }
        farthest_m = std::max(farthest_m, nearest_m);
      }
    }
  }
  EXPECT_LE(farthest_m, tolerance_m);
  const NurbsNearest nearest(object);
  double from_mesh_m = 0;
  for (const auto& [a, b, c] : mesh.triangles) {
    for (const Vector3d& w : {Vector3d(1, 1, 1), Vector3d(3, 0, 0), Vector3d(1.5, 1.5, 0), Vector3d(0, 1.5, 1.5), Vector3d(1.5, 0, 1.5)}) {
      const Vector3d p = (w[0] * mesh.vertices[a] + w[1] * mesh.vertices[b] + w[2] * mesh.vertices[c]) / 3;
      from_mesh_m = std::max(from_mesh_m, (nearest.Nearest(p).point_m - p).norm());
    }
  }
  EXPECT_LE(from_mesh_m, tolerance_m);
  EXPECT_GE(std::max(farthest_m, from_mesh_m), 0.2 * tolerance_m) << "not much finer than it must be";
}

TEST(NurbsGridTessellation, IsWithinTheToleranceBothWays) {
  Check("torus", NurbsTorus(0.03, 0.01), 1e-3, 500);
  Check("sphere", NurbsSphere(0.05), 1e-3, 600);
  Check("cylinder", NurbsCylinder(0.01, 0.1), 2.5e-4, 100);
  Check("cone", NurbsCone(0.02, 0.05), 2.5e-4, 400);
  Check("vase", NurbsVase(0.03, 0.1), 1e-3, 1300);
}

TEST(NurbsGridTessellation, PatchesOfFewSpansMeetThoseOfMany) {
  // Knots in one ring of patches only: across it nothing has to agree, along the common edges it does.
  std::vector<NurbsSurface> torus = NurbsTorus(0.03, 0.01);
  NurbsObject object = *NurbsObject::FromSurfaces("torus", torus);
  object = *object.WithKnot(0, NurbsDirection::kV, 0.3, 1);
  const auto refused = TessellateNurbsGrids(object, 1e-3);
  ASSERT_TRUE(refused.ok()) << refused.status();
  EXPECT_FALSE(refused->has_value()) << "the patch beside it in u has no knot there";
  const auto refined = TessellateNurbsGrids(*NurbsObject::FromSurfaces("torus", torus)->Refined(1), 1e-3);
  ASSERT_TRUE(refined.ok() && refined->has_value());
  EXPECT_TRUE(IsClosed(**refined));
}

TEST(NurbsGridTessellation, LeavesTrimmedPatchesToOthersAndRefusesWhatCannotBe) {
  const auto plate = NurbsObject::Create(DrilledPlate(0.2, 0.1));
  ASSERT_TRUE(plate.ok()) << plate.status();
  const auto made = TessellateNurbsGrids(*plate, 1e-3);
  ASSERT_TRUE(made.ok());
  EXPECT_FALSE(made->has_value());
  const NurbsObject ball = *NurbsObject::FromSurfaces("ball", NurbsSphere(1));
  EXPECT_EQ(TessellateNurbsGrids(ball, 0).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(TessellateNurbsGrids(ball, 1e-9).status().code(), absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace palpate::sim::nurbs_grid_tessellation_test
