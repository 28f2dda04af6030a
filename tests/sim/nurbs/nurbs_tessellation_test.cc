#include "sim/nurbs/nurbs_tessellation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <string>
#include <utility>
#include <vector>

#include "sim/mesh/surface_check.h"
#include "sim/nurbs/nurbs_mass_properties.h"
#include "sim/nurbs/nurbs_shapes.h"

namespace palpate::sim::nurbs_tessellation_test {
namespace {

using Eigen::Vector3d;
using ::testing::HasSubstr;

double Volume(const SurfaceMesh& mesh) {
  double sum = 0;
  for (const auto& t : mesh.triangles) sum += mesh.vertices[t[0]].dot(mesh.vertices[t[1]].cross(mesh.vertices[t[2]])) / 6;
  return sum;
}

double DistanceToTriangle(const Vector3d& p, const Vector3d& a, const Vector3d& b, const Vector3d& c) {
  const auto to_segment = [&](const Vector3d& q, const Vector3d& r) {
    const double t = std::clamp((p - q).dot(r - q) / (r - q).squaredNorm(), 0.0, 1.0);
    return (q + t * (r - q) - p).norm();
  };
  const double edges = std::min({to_segment(a, b), to_segment(b, c), to_segment(c, a)});
  const Vector3d n = (b - a).cross(c - a);
  const bool is_above = n.dot((b - a).cross(p - a)) >= 0 && n.dot((c - b).cross(p - b)) >= 0 && n.dot((a - c).cross(p - c)) >= 0;
  return is_above ? std::min(edges, std::abs(n.dot(p - a)) / n.norm()) : edges;
}

TEST(NurbsTessellationTest, ShapesAreClosedAndAsNearAsAsked) {
  for (const auto& [name, shape] : {std::pair(std::string("sphere"), NurbsSphere(1)),
                                    {"torus", NurbsTorus(1, 0.3)},
                                    {"cylinder", NurbsCylinder(0.5, 1.5)},
                                    {"cone", NurbsCone(1, 1)}}) {
    const auto properties = ComputeNurbsMassProperties(shape, 1);
    ASSERT_TRUE(properties.ok()) << properties.status();
    for (const double tolerance_m : {0.05, 0.01}) {
      const auto mesh = TessellateNurbs(shape, tolerance_m);
      ASSERT_TRUE(mesh.ok()) << mesh.status();
      const auto closed = CheckClosedSurface(*mesh);
      EXPECT_TRUE(closed.ok()) << name << ": " << closed;
      const double off = std::abs(Volume(*mesh) - properties->volume_m3);
      EXPECT_LT(off, tolerance_m * properties->area_m2) << name;
      double farthest = 0;
      for (const NurbsSurface& patch : shape) {
        for (int i = 0; i < 20; ++i) {
          const Vector3d x = patch.Point(0.5 + 0.5 * std::sin(3.0 * i), 0.5 + 0.5 * std::cos(7.0 * i));
          double nearest = std::numeric_limits<double>::infinity();
          for (const auto& t : mesh->triangles) {
            nearest = std::min(nearest, DistanceToTriangle(x, mesh->vertices[t[0]], mesh->vertices[t[1]], mesh->vertices[t[2]]));
          }
          farthest = std::max(farthest, nearest);
        }
      }
      EXPECT_LE(farthest, tolerance_m) << name;
    }
  }
}

TEST(NurbsTessellationTest, AFlatPatchIsTwoTriangles) {
  NurbsDescription flat{.degree_u = 1,
                        .degree_v = 1,
                        .knots_u = {0, 0, 1, 1},
                        .knots_v = {0, 0, 1, 1},
                        .control_m = {{0, 0, 0}, {0, 1, 0}, {1, 0, 0}, {1, 1, 0}},
                        .weights = {}};
  const auto surface = NurbsSurface::Create(flat);
  ASSERT_TRUE(surface.ok());
  const auto mesh = TessellateNurbs({&*surface, 1}, 1e-9);
  ASSERT_TRUE(mesh.ok());
  EXPECT_EQ(mesh->triangles.size(), 2U);
  EXPECT_EQ(mesh->vertices.size(), 4U);
  flat.control_m[3].z() = 0.5;  // twisted: its triangles are far from it
  const auto twisted = NurbsSurface::Create(flat);
  ASSERT_TRUE(twisted.ok());
  EXPECT_GT(TessellateNurbs({&*twisted, 1}, 1e-2)->triangles.size(), 2U);
}

TEST(NurbsTessellationTest, BadTolerancesAreRefused) {
  const std::vector<NurbsSurface> sphere = NurbsSphere(1);
  EXPECT_THAT(std::string(TessellateNurbs(sphere, 0).status().message()), HasSubstr("tolerance_m: 0, it must be positive"));
  EXPECT_THAT(std::string(TessellateNurbs(sphere, NAN).status().message()), HasSubstr("tolerance_m: nan"));
  EXPECT_EQ(TessellateNurbs(sphere, 1e-12).status().code(), absl::StatusCode::kResourceExhausted);
  // A domain that cannot be halved.
  NurbsDescription narrow{.degree_u = 1,
                          .degree_v = 1,
                          .knots_u = {1, 1, std::nextafter(1.0, 2.0), std::nextafter(1.0, 2.0)},
                          .knots_v = {0, 0, 1, 1},
                          .control_m = {{0, 0, 0}, {0, 1, 0}, {1, 0, 0}, {1, 1, 1}},
                          .weights = {}};
  const auto surface = NurbsSurface::Create(narrow);
  ASSERT_TRUE(surface.ok());
  EXPECT_EQ(TessellateNurbs({&*surface, 1}, 1e-3).status().code(), absl::StatusCode::kResourceExhausted);
  const auto nothing = TessellateNurbs({}, 1);
  ASSERT_TRUE(nothing.ok());
  EXPECT_TRUE(nothing->triangles.empty());
}

}  // namespace
}  // namespace palpate::sim::nurbs_tessellation_test
