// Lips of cuts: copies of vertices are drawn apart, and nothing passes through anything.
#include "sim/world/copy_opening.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <tuple>
#include <vector>

#include "sim/mesh/generators.h"
#include "sim/world/scene_surface.h"
#include "tests/sim/world/random_edits.h"
#include "tests/support/device_test.h"

namespace palpate::sim::copy_opening_test {
namespace {

using Eigen::Vector3d;
constexpr double kMargin_m = 5e-4;

BodyDescription Block() {
  BodyDescription body;
  body.name = "block";
  body.mesh = *BoxMesh({6, 5, 4}, {0.05, 0.04, 0.03});
  return body;
}

/// Pairs of triangles of which one passes through the other.
size_t CountCrossings(SceneSurface& surface) {
  const auto at = [&](VertexHandle handle) { return surface.PositionOf(handle); };
  std::vector<SceneSurface::Near> all;
  surface.ListNear(Eigen::AlignedBox3d(Vector3d::Constant(-1), Vector3d::Constant(1)), &all);
  std::vector<SceneSurface::Near> near;
  size_t count = 0;
  for (const SceneSurface::Near& triangle : all) {
    Eigen::AlignedBox3d box;
    for (const VertexHandle corner : triangle.corners) box.extend(at(corner));
    surface.ListNear(box, &near);
    count += static_cast<size_t>(std::count_if(near.begin(), near.end(), [&](const SceneSurface::Near& other) {
      return std::tie(triangle.body, triangle.triangle) < std::tie(other.body, other.triangle) &&
             SceneSurface::Cross(triangle.corners, other.corners, at);
    }));
  }
  return count;
}

TEST(CopyOpeningTest, LipsPartAndNothingPassesThroughAnything) {
  size_t copies = 0;
  size_t unopened = 0;
  for (uint32_t seed = 1; seed <= 8; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    SceneVertices vertices;
    PALPATE_TEST_ASSIGN(std::vector<std::unique_ptr<WorldBody>> bodies, test::MakeBodies({Block()}, &vertices));
    SceneSurface surface(bodies, vertices);
    CopyOpening opening(bodies, vertices, surface);
    opening.SetMargin(kMargin_m);
    for (int i = 0; i < 6; ++i) {
      SCOPED_TRACE(i);
      const size_t known_bodies = bodies.size();
      PALPATE_TEST_ASSIGN(const size_t edited, test::ApplyRandomEdit(&bodies, &random));
      if (bodies.size() > known_bodies) surface.Forget(static_cast<uint32_t>(edited));
      std::vector<VertexHandle> copied = bodies[edited]->TakeCopied();
      std::erase_if(copied, [&](VertexHandle handle) { return !vertices.IsAlive(handle); });
      std::vector<Vector3d> before;
      for (const VertexHandle handle : copied) before.push_back(surface.PositionOf(handle));
      opening.Open(copied, false);

      std::map<std::tuple<double, double, double>, size_t> at_place;
      for (size_t k = 0; k < copied.size(); ++k) {
        const Vector3d now = surface.PositionOf(copied[k]);
        EXPECT_LE((now - before[k]).norm(), kMargin_m) << "a lip is a share of the margin";
        ++at_place[{now.x(), now.y(), now.z()}];
      }
      copies += copied.size();
      for (const auto& [place, count] : at_place) unopened += count - 1;
      for (const auto& body : bodies) EXPECT_FALSE(body->HasInvertedTets()) << body->name();
      EXPECT_EQ(CountCrossings(surface), 0U);
      for (const auto& body : bodies) {
        if (body->has_changes()) body->UpdateArrays();
      }
      ASSERT_FALSE(::testing::Test::HasFailure());
    }
  }
  EXPECT_GT(copies, 500U);
  EXPECT_LT(unopened, copies / 100) << "of " << copies;
}

}  // namespace
}  // namespace palpate::sim::copy_opening_test
