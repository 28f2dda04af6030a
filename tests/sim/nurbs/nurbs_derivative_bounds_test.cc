#include "sim/nurbs/nurbs_derivative_bounds.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <utility>
#include <vector>

#include "sim/nurbs/nurbs_object_tessellation.h"
#include "tests/sim/nurbs/nurbs_test_objects.h"

namespace palpate::sim::nurbs_derivative_bounds_test {
namespace {

constexpr int kSamples = 24;  // each way

/// The largest derivatives at places of the patch, its corners among them.
NurbsDerivativeBounds Sampled(const NurbsSurface& patch) {
  const auto [u0, u1] = patch.domain(NurbsDirection::kU);
  const auto [v0, v1] = patch.domain(NurbsDirection::kV);
  NurbsDerivativeBounds most;
  for (int i = 0; i <= kSamples; ++i) {
    for (int j = 0; j <= kSamples; ++j) {
      const NurbsPoint at = patch.PointWithDerivatives(u0 + (u1 - u0) * i / kSamples, v0 + (v1 - v0) * j / kSamples);
      most.u = std::max(most.u, at.du.norm());
      most.v = std::max(most.v, at.dv.norm());
      most.uu = std::max(most.uu, at.duu.norm());
      most.uv = std::max(most.uv, at.duv.norm());
      most.vv = std::max(most.vv, at.dvv.norm());
    }
  }
  return most;
}

std::vector<double> Clamped(int degree) {
  std::vector<double> knots(static_cast<size_t>(degree) + 1, -0.5);
  knots.insert(knots.end(), static_cast<size_t>(degree) + 1, 2.0);
  return knots;
}

TEST(NurbsDerivativeBoundsTest, TheyHoldAndAreNear) {
  std::mt19937 engine(7);
  const auto random = [&](double low, double high) { return std::uniform_real_distribution(low, high)(engine); };
  for (int round = 0; round < 40; ++round) {
    const int degree_u = 1 + round % 4, degree_v = 1 + round / 4 % 3;
    NurbsDescription out{degree_u, degree_v, Clamped(degree_u), Clamped(degree_v), {}, {}};
    for (int i = 0; i <= degree_u; ++i) {
      for (int j = 0; j <= degree_v; ++j) {
        // Far from the origin, where what cancels is large.
        out.control_m.emplace_back(100 + i + random(-0.3, 0.3), j + random(-0.3, 0.3), random(-1, 1));
        out.weights.push_back(round % 8 == 7 ? 0.7 : random(0.4, 2));  // some are polynomials
      }
    }
    const auto patch = NurbsSurface::Create(out);
    ASSERT_TRUE(patch.ok()) << patch.status();
    const NurbsDerivativeBounds most = Sampled(*patch);
    for (const int parts : {1, 2, 8}) {
      const NurbsDerivativeBounds bounds = BoundNurbsDerivatives(*patch, parts);
      for (const auto& [bound, sampled] : {std::pair(bounds.u, most.u), std::pair(bounds.v, most.v), std::pair(bounds.uu, most.uu),
                                           std::pair(bounds.uv, most.uv), std::pair(bounds.vv, most.vv)}) {
        EXPECT_GE(bound, sampled * (1 - 1e-9) - 1e-9) << round << ", parts " << parts;
        if (parts == 8) {
          EXPECT_LE(bound, 1.5 * sampled + 1e-9) << round;
        }
      }
    }
  }
}

TEST(NurbsDerivativeBoundsTest, AnExtrudedArcHasNoMixedDerivative) {
  for (const NurbsSurface& piece : NurbsSurface::Create(CylinderSurface(0.8, 40))->BezierPatches()) {
    const NurbsDerivativeBounds bounds = BoundNurbsDerivatives(piece, 4);
    EXPECT_LT(bounds.uv, 1e-10);
    EXPECT_LT(bounds.vv, 1e-10);
    EXPECT_NEAR(bounds.v, 40, 1e-9);
    EXPECT_LT(bounds.uu, 1.1 * Sampled(piece).uu);
  }
}

// A trimmed fillet as CAD has many: what is straight along one direction is not cut across it.
TEST(NurbsDerivativeBoundsTest, ALongFilletIsCutAlongItsAxisOnly) {
  NurbsObjectDescription fillet{"fillet", {}};
  fillet.patches.push_back({"side", CylinderSurface(0.8, 40), {}});
  const auto object = NurbsObject::Create(fillet);
  ASSERT_TRUE(object.ok()) << object.status();
  const auto mesh = TessellateNurbsObject(*object, 0.01);
  ASSERT_TRUE(mesh.ok()) << mesh.status();
  for (const Eigen::Vector3d& v : mesh->vertices) EXPECT_TRUE(v.z() == 0 || v.z() == 40) << v.transpose();
  EXPECT_GE(mesh->triangles.size(), 2 * 20U);  // a chord of 1/20 of the circle is 0.01 off
  EXPECT_LE(mesh->triangles.size(), 2 * 64U);
}

}  // namespace
}  // namespace palpate::sim::nurbs_derivative_bounds_test
