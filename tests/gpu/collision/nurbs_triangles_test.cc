// Triangles as NURBS: hits and distances with smooth surfaces, against closed forms and known places.
#include "gpu/collision/nurbs_triangles.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "gpu/collision/nurbs_distance.h"
#include "gpu/collision/nurbs_polish.h"
#include "gpu/collision/nurbs_queries.h"
#include "sim/nurbs/nurbs_shapes.h"
#include "tests/gpu/collision/nurbs_models.h"
#include "tests/support/device_test.h"

namespace palpate::gpu::nurbs_triangles_test {
namespace {

using Eigen::Affine3d;
using Eigen::Vector2d;
using Eigen::Vector3d;
using sim::NurbsSurface;
using sim::PoseOf;
using test::kIsNative;
using ::testing::HasSubstr;
using Triangle = std::array<uint32_t, 3>;
using Vertex = std::array<double, 3>;

Vector3d ToVector(const Vertex& p) { return {p[0], p[1], p[2]}; }

// Loose triangles about points of a cube of 2 m.
struct Soup {
  std::vector<Vertex> vertices;
  std::vector<Triangle> triangles;

  Soup(size_t count, double size_m, std::mt19937* random) {
    std::uniform_real_distribution<double> uniform(-1, 1);
    for (uint32_t t = 0; t < count; ++t) {
      const Vector3d middle(uniform(*random), uniform(*random), uniform(*random));
      for (int k = 0; k < 3; ++k) {
        vertices.push_back(
            {middle.x() + size_m * uniform(*random), middle.y() + size_m * uniform(*random), middle.z() + size_m * uniform(*random)});
      }
      triangles.push_back({3 * t, 3 * t + 1, 3 * t + 2});
    }
  }
  Vector3d At(uint32_t triangle, const std::array<double, 3>& shares) const {
    Vector3d sum = Vector3d::Zero();
    for (size_t k = 0; k < 3; ++k) sum += shares[k] * ToVector(vertices[triangles[triangle][k]]);
    return sum;
  }
  // Of a point: by the plane, the three sides and the corners.
  double Distance(uint32_t triangle, const Vector3d& p) const {
    std::array<Vector3d, 3> q;
    for (size_t k = 0; k < 3; ++k) q[k] = ToVector(vertices[triangles[triangle][k]]);
    double best = 1e9;
    const Vector3d normal = (q[1] - q[0]).cross(q[2] - q[0]).normalized();
    bool is_inside = true;
    for (size_t k = 0; k < 3; ++k) {
      const Vector3d side = q[(k + 1) % 3] - q[k];
      is_inside &= normal.cross(side).dot(p - q[k]) >= 0;
      const double t = std::clamp(side.dot(p - q[k]) / side.squaredNorm(), 0.0, 1.0);
      best = std::min(best, (p - q[k] - t * side).norm());
    }
    return is_inside ? std::min(best, std::abs(normal.dot(p - q[0]))) : best;
  }
};

class NurbsTrianglesTest : public test::DeviceTest {
 protected:
  // The triangles are object 0.
  std::optional<NurbsObjects> Objects(const NurbsTriangles& triangles, const std::vector<std::vector<NurbsSurface>>& others) {
    std::vector<std::vector<NurbsNet>> nets = {triangles.Nets()};
    for (const auto& patches : others) nets.push_back(sim::NetsOf(patches));
    auto out = NurbsObjects::Create(queue(), nets);
    EXPECT_TRUE(out.ok()) << out.status();
    if (!out.ok()) return std::nullopt;
    return *std::move(out);
  }
};

TEST_F(NurbsTrianglesTest, DistancesFromASphereAreThoseOfItsCentre) {
  std::mt19937 random(1);
  const Soup soup(kIsNative ? 6 : 150, 0.3, &random);
  PALPATE_TEST_ASSIGN(const NurbsTriangles triangles, NurbsTriangles::Create(soup.vertices, soup.triangles));
  const double radius_m = 0.05;
  const auto objects = Objects(triangles, {sim::NurbsSphere(radius_m)});
  ASSERT_TRUE(objects);
  const Affine3d pose = Eigen::Translation3d(3, -2, 1) * Eigen::AngleAxisd(0.7, Vector3d(1, 2, 3).normalized()) * Affine3d::Identity();
  std::uniform_real_distribution<double> uniform(-1.5, 1.5);
  std::vector<NurbsQuery> queries;
  std::vector<Vector3d> centres;
  std::vector<double> expected;
  while (queries.size() < (kIsNative ? 2 : 40)) {
    const Vector3d centre(uniform(random), uniform(random), uniform(random));
    double nearest = 1e9;
    for (uint32_t t = 0; t < soup.triangles.size(); ++t) nearest = std::min(nearest, soup.Distance(t, centre));
    if (nearest < radius_m + 1e-3) continue;
    centres.push_back(centre);
    expected.push_back(nearest - radius_m);
    queries.push_back(
        {.object_a = 0, .object_b = 1, .pose_a = PoseOf(pose), .pose_b = PoseOf(pose * Affine3d(Eigen::Translation3d(centre)))});
  }
  PALPATE_TEST_ASSIGN(NurbsDistances search, NurbsDistances::Create(context(), {.tolerance_m = 1e-3}));
  PALPATE_TEST_ASSIGN(const std::vector<NurbsDistance> results, search.Run(queue(), *objects, queries));
  for (size_t i = 0; i < queries.size(); ++i) {
    ASSERT_EQ(results[i].minima.size(), 1U);
    const NurbsMinimum& minimum = results[i].minima[0];
    EXPECT_LE(results[i].lower_bound_m, expected[i]);
    // Of two triangles that are nearly as far either may be taken.
    EXPECT_GE(minimum.distance_m, expected[i] - 1e-10);
    EXPECT_LE(minimum.distance_m, expected[i] + 1.1e-3);
    EXPECT_NEAR(minimum.distance_m, soup.Distance(minimum.surface_a, centres[i]) - radius_m, 1e-10);
    const Vector3d at = pose * soup.At(minimum.surface_a, NurbsTriangles::Barycentric(minimum.uv_a));
    EXPECT_LT((at - ToVector(minimum.point_a_m)).norm(), 1e-12);
  }
}

// A sheet goes through a point of each triangle.
TEST_F(NurbsTrianglesTest, NoCrossingOfATriangleIsMissed) {
  std::mt19937 random(2);
  std::uniform_real_distribution<double> uniform(0, 1);
  const size_t count = kIsNative ? 4 : 60;
  const NurbsSurface sheet =
      test::Sheet({.degree_u = 3, .degree_v = 2, .inside_u = 2, .inside_v = 1, .height_m = 0.3, .weight_ratio = 3}, &random);
  Soup soup(count, 0.1, &random);
  std::vector<Vector2d> on_sheet;
  std::vector<std::array<double, 3>> shares;
  for (uint32_t t = 0; t < count; ++t) {
    on_sheet.emplace_back(uniform(random), uniform(random));
    const std::array<double, 2> uv = {uniform(random), uniform(random)};
    shares.push_back(NurbsTriangles::Barycentric(uv));
    const Vector3d by = sheet.Point(on_sheet.back().x(), on_sheet.back().y()) - soup.At(t, shares.back());
    for (const uint32_t vertex : soup.triangles[t]) {
      for (int k = 0; k < 3; ++k) soup.vertices[vertex][static_cast<size_t>(k)] += by[k];
    }
  }
  PALPATE_TEST_ASSIGN(const NurbsTriangles triangles, NurbsTriangles::Create(soup.vertices, soup.triangles));
  const auto objects = Objects(triangles, {{sheet}});
  ASSERT_TRUE(objects);
  const std::vector<NurbsQuery> queries = {{.object_a = 0, .object_b = 1, .pose_a = {}, .pose_b = {}}};
  PALPATE_TEST_ASSIGN(NurbsQueries search, NurbsQueries::Create(context(), {.tolerance_m = kIsNative ? 0.1 : 0.02}));
  PALPATE_TEST_ASSIGN(const NurbsQueryResult result, search.Run(queue(), *objects, queries));
  size_t missed = 0;
  for (uint32_t t = 0; t < count; ++t) {
    const double u = 1 - shares[t][0], v = shares[t][2] / u;
    const auto holds = [](const std::array<double, 2>& span, double x) { return x >= span[0] - 1e-12 && x <= span[1] + 1e-12; };
    const bool is_found = std::any_of(result.hits.begin(), result.hits.end(), [&](const NurbsHit& hit) {
      return hit.a.surface == t && holds(hit.a.u, u) && holds(hit.a.v, v) && holds(hit.b.u, on_sheet[t].x()) &&
             holds(hit.b.v, on_sheet[t].y());
    });
    missed += is_found ? 0 : 1;
  }
  EXPECT_EQ(missed, 0U) << "of " << count;
  PALPATE_TEST_ASSIGN(const NurbsPolishResult polished, PolishNurbsHits(*objects, queries, result.hits));
  size_t crossings = 0;
  for (const NurbsContact& contact : polished.contacts) {
    if (contact.kind != NurbsContactKind::kCrossing) continue;
    ++crossings;
    const Vector3d p = soup.At(contact.surface_a, NurbsTriangles::Barycentric(contact.uv_a));
    EXPECT_LT((p - sheet.Point(contact.uv_b[0], contact.uv_b[1])).norm(), 1e-9);
  }
  EXPECT_GT(crossings, kIsNative ? 0U : count);
}

// A closed mesh, a cube: a sphere over an edge has one minimum there and not two, and one over a face one inside it.
TEST_F(NurbsTrianglesTest, MinimaOnEdgesOfAMeshAreFoundOnce) {
  std::vector<Vertex> vertices;
  for (int i = 0; i < 8; ++i)
    vertices.push_back({static_cast<double>(i & 1), static_cast<double>(i >> 1 & 1), static_cast<double>(i >> 2)});
  const std::vector<Triangle> faces = {{0, 2, 3}, {0, 3, 1}, {4, 5, 7}, {4, 7, 6}, {0, 1, 5}, {0, 5, 4},
                                       {2, 6, 7}, {2, 7, 3}, {0, 4, 6}, {0, 6, 2}, {1, 3, 7}, {1, 7, 5}};
  PALPATE_TEST_ASSIGN(const NurbsTriangles cube, NurbsTriangles::Create(vertices, faces));
  auto objects = Objects(cube, {sim::NurbsSphere(0.1)});
  ASSERT_TRUE(objects);
  const auto query = [](const Vector3d& centre) {
    return NurbsQuery{.object_a = 0, .object_b = 1, .pose_a = {}, .pose_b = PoseOf(Affine3d(Eigen::Translation3d(centre)))};
  };
  const std::vector<NurbsQuery> queries = {query({0.4, 1.3, 1.4}), query({0.3, 0.4, 1.5}), query({1.2, 1.2, 1.1}), query({0.5, 0.5, 1.5})};
  PALPATE_TEST_ASSIGN(
      NurbsDistances search,
      NurbsDistances::Create(context(), {.mode = NurbsDistanceMode::kMinima, .range_m = 0.6, .leaf_m = kIsNative ? 0.3 : 0.1}));
  PALPATE_TEST_ASSIGN(const std::vector<NurbsDistance> results, search.Run(queue(), *objects, queries));
  const std::array<double, 4> expected = {0.4, 0.4, 0.2, 0.4};  // an edge, a face, a corner, the diagonal of a face
  for (size_t i = 0; i < queries.size(); ++i) {
    ASSERT_EQ(results[i].minima.size(), 1U) << i;
    EXPECT_NEAR(results[i].minima[0].distance_m, expected[i], 1e-11) << i;
    EXPECT_LE(results[i].lower_bound_m, expected[i]);
  }
  // Moved vertices are an upload.
  for (Vertex& vertex : vertices) vertex[2] -= 0.1;
  PALPATE_TEST_ASSIGN(const std::vector<double> control, cube.Control(vertices));
  PALPATE_ASSERT_OK(objects->SetControl(queue(), 0, control));
  PALPATE_TEST_ASSIGN(const std::vector<NurbsDistance> moved, search.Run(queue(), *objects, queries));
  ASSERT_EQ(moved[1].minima.size(), 1U);
  EXPECT_NEAR(moved[1].minima[0].distance_m, 0.5, 1e-11);
}

TEST_F(NurbsTrianglesTest, WrongInputIsRefused) {
  const std::vector<Vertex> vertices = {{0, 0, 0}, {1, 0, 0}, {0, 1, 0}};
  EXPECT_THAT(std::string(NurbsTriangles::Create(vertices, {}).status().message()), HasSubstr("triangles: there are none"));
  const std::vector<Triangle> wrong = {{0, 1, 2}, {0, 1, 3}};
  EXPECT_THAT(std::string(NurbsTriangles::Create(vertices, wrong).status().message()), HasSubstr("triangles[1]: vertex 3, there are 3"));
  PALPATE_TEST_ASSIGN(const NurbsTriangles one, NurbsTriangles::Create(vertices, std::vector<Triangle>{{0, 1, 2}}));
  EXPECT_THAT(std::string(one.Control({}).status().message()), HasSubstr("vertices_m: 0 vertices, there are 3"));
}

}  // namespace
}  // namespace palpate::gpu::nurbs_triangles_test
