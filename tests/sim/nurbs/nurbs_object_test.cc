#include "sim/nurbs/nurbs_object.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numbers>
#include <random>
#include <string>
#include <vector>

#include "sim/mesh/surface_check.h"
#include "sim/nurbs/nurbs_mass_properties.h"
#include "sim/nurbs/nurbs_object_tessellation.h"
#include "sim/nurbs/nurbs_shapes.h"
#include "tests/sim/nurbs/nurbs_test_objects.h"
#include "tests/support/trimmed_sheets.h"

namespace palpate::sim::nurbs_object_test {
namespace {

using Eigen::Vector2d;
using Eigen::Vector3d;
using std::numbers::pi;
using ::testing::AllOf;
using ::testing::HasSubstr;

std::string ErrorOf(const NurbsObjectDescription& description) {
  const auto object = NurbsObject::Create(description);
  return object.ok() ? "none" : std::string(object.status().message());
}

double AreaOf(const SurfaceMesh& mesh) {
  double sum = 0;
  for (const auto& [a, b, c] : mesh.triangles) {
    sum += 0.5 * (mesh.vertices[b] - mesh.vertices[a]).cross(mesh.vertices[c] - mesh.vertices[a]).norm();
  }
  return sum;
}

double VolumeOf(const SurfaceMesh& mesh) {
  double sum = 0;
  for (const auto& [a, b, c] : mesh.triangles) sum += mesh.vertices[a].dot(mesh.vertices[b].cross(mesh.vertices[c])) / 6;
  return sum;
}

TEST(NurbsObjectTest, ShapesAreClosedAndEveryEdgeIsOfTwoPatches) {
  for (const auto& [name, shape, edges] : {std::tuple("sphere", NurbsSphere(1), 12U),
                                           {"torus", NurbsTorus(1, 0.3), 32U},
                                           {"cylinder", NurbsCylinder(0.5, 1.5), 20U},
                                           {"cone", NurbsCone(1, 1), 12U}}) {
    const auto object = NurbsObject::FromSurfaces(name, shape);
    ASSERT_TRUE(object.ok()) << object.status();
    EXPECT_TRUE(object->CheckClosed().ok()) << name << ": " << object->CheckClosed();
    size_t joined = 0;
    for (const NurbsEdge& edge : object->Edges()) {
      joined += edge.places.size() == 2 ? 1 : 0;
      EXPECT_LT(edge.gap_m, 1e-14);
    }
    EXPECT_EQ(joined, edges) << name;
    EXPECT_FALSE(object->is_trimmed());
  }
}

TEST(NurbsObjectTest, OpenEdgesAreCountedAndTheFirstIsNamed) {
  std::vector<NurbsSurface> sphere = NurbsSphere(1);
  sphere.pop_back();
  const auto object = NurbsObject::FromSurfaces("", sphere);
  const std::string error(object->CheckClosed().message());
  EXPECT_THAT(error, AllOf(HasSubstr("open: 3 edges are not joined; patches["), HasSubstr("no other patch joins it")));
  std::vector<NurbsSurface> turned = NurbsSphere(1);
  turned[2] = turned[2].Reversed();
  const std::string inside_out(NurbsObject::FromSurfaces("", turned)->CheckClosed().message());
  EXPECT_THAT(inside_out, AllOf(HasSubstr("open: 3 edges"), HasSubstr("inside out")));
}

TEST(NurbsObjectTest, ADrilledPlateIsClosedAndHasItsAreaAndVolume) {
  const double r = 0.2;
  const double h = 0.3;
  const auto plate = NurbsObject::Create(DrilledPlate(r, h));
  ASSERT_TRUE(plate.ok()) << plate.status();
  ASSERT_TRUE(plate->CheckClosed().ok()) << plate->CheckClosed();
  const auto exact = ComputeNurbsObjectMassProperties(*plate, 2);
  ASSERT_TRUE(exact.ok()) << exact.status();
  const double area = 2 * (1 - pi * r * r) + 4 * h + 2 * pi * r * h;
  const double volume = h * (1 - pi * r * r);
  EXPECT_NEAR(exact->area_m2, area, 1e-11);
  EXPECT_NEAR(exact->volume_m3, volume, 1e-12);
  EXPECT_NEAR((exact->mass.center_m - Vector3d(0, 0, h / 2)).norm(), 0, 1e-11);
  const double about_z = 2 * h * (1.0 / 6 - pi * std::pow(r, 4) / 2);
  const double about_x = 2 * h * ((1 + h * h) / 12 - pi * r * r * (3 * r * r + h * h) / 12);
  EXPECT_NEAR(exact->mass.inertia_kg_m2(2, 2), about_z, 1e-11);
  EXPECT_NEAR(exact->mass.inertia_kg_m2(0, 0), about_x, 1e-11);
  EXPECT_NEAR(exact->mass.inertia_kg_m2(0, 1), 0, 1e-12);
  double before = 1;
  for (const double tolerance_m : {1e-2, 1e-3, 1e-4}) {
    const auto mesh = TessellateNurbsObject(*plate, tolerance_m);
    ASSERT_TRUE(mesh.ok()) << mesh.status();
    EXPECT_TRUE(CheckClosedSurface(*mesh).ok()) << CheckClosedSurface(*mesh);
    const double off = std::abs(VolumeOf(*mesh) - volume);
    EXPECT_LT(off, tolerance_m * 2 * pi * r * h);
    EXPECT_LT(off, before);
    before = off;
    EXPECT_NEAR(AreaOf(*mesh), area, 20 * tolerance_m);
    for (const Vector3d& p : mesh->vertices) {
      const double from_axis = std::hypot(p.x(), p.y());
      EXPECT_TRUE(std::abs(from_axis - r) < 1e-12 || std::abs(std::max(std::abs(p.x()), std::abs(p.y())) - 0.5) < 1e-12 ||
                  std::abs(p.z()) < 1e-12 || std::abs(p.z() - h) < 1e-12);
    }
  }
}

TEST(NurbsObjectTest, TessellationsAreAsNearAsAsked) {
  for (const auto& [name, shape] : {std::pair("sphere", NurbsSphere(1)), {"torus", NurbsTorus(1, 0.3)}, {"cone", NurbsCone(1, 1)}}) {
    const auto object = NurbsObject::FromSurfaces(name, shape);
    for (const double tolerance_m : {0.05, 0.005}) {
      const auto mesh = TessellateNurbsObject(*object, tolerance_m);
      ASSERT_TRUE(mesh.ok()) << mesh.status();
      EXPECT_TRUE(CheckClosedSurface(*mesh).ok()) << name << ": " << CheckClosedSurface(*mesh);
      const double area = ComputeNurbsMassProperties(shape, 1)->area_m2;
      EXPECT_LT(std::abs(AreaOf(*mesh) - area) / area, 2 * tolerance_m) << name;
      // Vertices lie on the surface, so the middles of triangles are what is farthest: from the equations.
      double farthest = 0;
      for (const auto& t : mesh->triangles) {
        const Vector3d p = (mesh->vertices[t[0]] + mesh->vertices[t[1]] + mesh->vertices[t[2]]) / 3;
        const double from_axis = std::hypot(p.x(), p.y());
        double off = std::abs(p.norm() - 1);
        if (std::string(name) == "torus") off = std::abs(std::hypot(from_axis - 1, p.z()) - 0.3);
        if (std::string(name) == "cone") off = std::min(p.z(), std::abs(from_axis + p.z() - 1) / std::numbers::sqrt2);
        farthest = std::max(farthest, off);
      }
      EXPECT_LE(farthest, tolerance_m) << name;
      EXPECT_GT(farthest, tolerance_m / 60) << name << ": much finer than asked";
    }
  }
}

TEST(NurbsObjectTest, ATrimmedPieceOfASphereHasItsArea) {
  // The lower half of an octant's domain, and a hole in it; the areas by mid-point sums.
  const NurbsSurface octant = NurbsSphere(1)[0];
  NurbsObjectDescription description = NurbsObject::FromSurfaces("", {&octant, 1})->Describe();
  description.patches[0].loops = {PolygonTrims({{0.1, 0.2}, {0.9, 0.2}, {0.9, 0.8}, {0.1, 0.8}}), {CircleTrim({0.5, 0.5}, 0.2, true)}};
  const auto object = NurbsObject::Create(description);
  ASSERT_TRUE(object.ok()) << object.status();
  double sum = 0;
  constexpr int kCells = 200;
  const NurbsTrimRegion region(object->patches()[0], 1e-4);
  for (int i = 0; i < kCells; ++i) {
    for (int j = 0; j < kCells; ++j) {
      const Vector2d uv((i + 0.5) / kCells, (j + 0.5) / kCells);
      if (!region.Contains(uv)) continue;
      const NurbsPoint at = octant.PointWithDerivatives(uv.x(), uv.y());
      sum += at.du.cross(at.dv).norm() / (kCells * kCells);
    }
  }
  const double area = NurbsAreaOf(object->patches()[0]);
  EXPECT_NEAR(area, sum, 1e-3 * sum);
  const auto mesh = TessellateNurbsObject(*object, 1e-4);
  ASSERT_TRUE(mesh.ok()) << mesh.status();
  EXPECT_NEAR(AreaOf(*mesh), area, 1e-3 * area);
  EXPECT_THAT(std::string(object->CheckClosed().message()), HasSubstr("open: 5 edges"));
  EXPECT_THAT(std::string(ComputeNurbsObjectMassProperties(*object, 1).status().message()), HasSubstr("open: 5 edges"));
}

TEST(NurbsObjectTest, AHoleInAPlaneIsAsRoundAsAsked) {
  NurbsPatchDescription patch{"", PlaneSurface({0, 0, 0}, {1, 0, 0}, {0, 1, 0}), {}};
  patch.loops = {PolygonTrims({{0, 0}, {1, 0}, {1, 1}, {0, 1}}), {CircleTrim({0.5, 0.5}, 0.2, true)}};
  const auto object = NurbsObject::Create({"", {patch}});
  ASSERT_TRUE(object.ok()) << object.status();
  size_t before = 0;
  for (const double tolerance_m : {1e-2, 1e-4, 1e-6}) {
    const auto mesh = TessellateNurbsObject(*object, tolerance_m);
    ASSERT_TRUE(mesh.ok()) << mesh.status();
    EXPECT_NEAR(AreaOf(*mesh), 1 - pi * 0.04, 0.4 * pi * tolerance_m);
    EXPECT_GT(mesh->vertices.size(), before);
    before = mesh->vertices.size();
    for (const auto& t : mesh->triangles) {
      for (size_t i = 0; i < 3; ++i) {
        const Vector2d middle = 0.5 * (mesh->vertices[t[i]] + mesh->vertices[t[(i + 1) % 3]]).head<2>() - Vector2d(0.5, 0.5);
        EXPECT_GE(middle.norm(), 0.2 - tolerance_m);
      }
    }
  }
}

TEST(NurbsObjectTest, VerticesHavePlacesAndTrianglesAreAsSmallAsAsked) {
  const NurbsObject object =
      test::TrimmedSheet(3, 5, 1, {{test::CircleTrim({0.5, 0.5}, 0.45)}, test::PolygonTrims({{0.4, 0.4}, {0.37, 0.61}, {0.6, 0.6}})});
  const NurbsPatch& patch = object.patches()[0];
  const NurbsTrimRegion region(patch, 1e-9);
  for (const size_t cells : {1U, 3U, 4U}) {
    std::vector<NurbsGridPlace> places;
    const auto mesh = TessellateNurbsObject(object, 1e-3, 0, &places, cells);
    ASSERT_TRUE(mesh.ok()) << mesh.status();
    ASSERT_EQ(places.size(), mesh->vertices.size());
    for (size_t v = 0; v < places.size(); ++v) {
      EXPECT_LT((patch.surface.Point(places[v].u, places[v].v) - mesh->vertices[v]).norm(), 1e-15);
    }
    double longest = 0, area = 0, thinnest = 1;
    for (const auto& [a, b, c] : mesh->triangles) {
      const Vector3d &p = mesh->vertices[a], &q = mesh->vertices[b], &r = mesh->vertices[c];
      const double side = std::max({(p - q).norm(), (q - r).norm(), (r - p).norm()});
      const double twice = (q - p).cross(r - p).z();
      EXPECT_TRUE(region.Contains(Eigen::Vector2d(0.5, 0.5) + ((p + q + r) / 3).head<2>()));
      EXPECT_GT(twice, 0);
      area += twice / 2;
      longest = std::max(longest, side);
      thinnest = std::min(thinnest, twice / (side * side));
    }
    EXPECT_NEAR(area, NurbsAreaOf(patch), 2e-3);
    EXPECT_LT(longest, cells == 1 ? 0.3 : 1.8 * 0.2 / static_cast<double>(cells));
    EXPECT_GT(thinnest, 0.01);
  }
}

TEST(NurbsObjectTest, PointsAreInsideByTheWindingOfTheLoops) {
  NurbsPatchDescription patch{"", PlaneSurface({0, 0, 0}, {1, 0, 0}, {0, 1, 0}), {}};
  patch.loops = {PolygonTrims({{0, 0}, {1, 0}, {1, 1}, {0, 1}}), {CircleTrim({0.5, 0.5}, 0.25, true)}, {CircleTrim({0.5, 0.5}, 0.1)}};
  const auto object = NurbsObject::Create({"", {patch}});
  ASSERT_TRUE(object.ok()) << object.status();
  const NurbsTrimRegion region(object->patches()[0], 1e-6);
  std::mt19937 random(1);
  std::uniform_real_distribution<double> in(0, 1);
  for (int i = 0; i < 5000; ++i) {
    const Vector2d uv(in(random), in(random));
    const double from_middle = (uv - Vector2d(0.5, 0.5)).norm();
    if (std::abs(from_middle - 0.25) < 1e-6 || std::abs(from_middle - 0.1) < 1e-6) continue;
    EXPECT_EQ(region.Contains(uv), from_middle > 0.25 || from_middle < 0.1) << uv.transpose();
  }
  for (const Vector2d& on : {Vector2d(0, 0), Vector2d(1, 1), Vector2d(0.3, 0), Vector2d(1, 0.5), Vector2d(0.75, 0.5)}) {
    EXPECT_TRUE(region.Contains(on)) << on.transpose();
  }
  EXPECT_FALSE(region.Contains({-1e-300, 0.5}));
  EXPECT_FALSE(region.Contains({0.5, std::nextafter(1.0, 2.0)}));
}

TEST(NurbsObjectTest, ErrorsNamePatchAndField) {
  const NurbsObjectDescription good = DrilledPlate(0.2, 0.1);
  ASSERT_EQ(ErrorOf(good), "none");
  const auto with = [&](const auto& change) {
    NurbsObjectDescription bad = good;
    change(bad);
    return ErrorOf(bad);
  };
  EXPECT_EQ(ErrorOf({}), "patches: none");
  EXPECT_THAT(with([](auto& d) { d.patches[5].surface.knots_u[2] = 7; }), HasSubstr("patches[5] \"lid\": knots_u[3]: 1 is less than 7"));
  EXPECT_THAT(with([](auto& d) { d.patches[4].surface.weights[3] = 0; }), HasSubstr("patches[4] \"wall\": weights[3]: 0, it must be"));
  EXPECT_THAT(with([](auto& d) { d.patches[4].surface.weights[3] = NAN; }), HasSubstr("weights[3]: nan"));
  EXPECT_THAT(with([](auto& d) { d.patches[0].surface.control_m[1].x() = INFINITY; }), HasSubstr("patches[0] \"front\": control_m[1]"));
  EXPECT_THAT(with([](auto& d) { d.patches[0].surface.control_m[1].x() = 1e7; }), HasSubstr("control_m[1]: is farther than 1e+06 m"));
  EXPECT_THAT(with([](auto& d) { d.patches[0].surface.degree_v = 16; }), HasSubstr("degree of knots_v: 16"));
  EXPECT_THAT(with([](auto& d) { d.patches[5].loops[1][0].curve.weights[2] = -1; }),
              HasSubstr("patches[5] \"lid\": loops[1].curves[0]: weights[2]: -1, it must be positive"));
  EXPECT_THAT(with([](auto& d) { d.patches[5].loops[0][2].curve.control[0].x() = NAN; }), HasSubstr("loops[0].curves[2]: points[0]"));
  EXPECT_THAT(with([](auto& d) { d.patches[5].loops[0].pop_back(); }), HasSubstr("loops[0]: not closed, curves[2] ends at (0, 1)"));
  EXPECT_THAT(with([](auto& d) { d.patches[5].loops[0].clear(); }), HasSubstr("loops[0]: no curves"));
  EXPECT_THAT(with([](auto& d) {
                d.patches[5].loops[1] = {CircleTrim({0.9, 0.5}, 0.2, true)};
              }),
              HasSubstr("loops[1].curves[0]: leaves the domain"));
  EXPECT_THAT(with([](auto& d) { d.patches[5].loops = {{CircleTrim({0.5, 0.5}, 0.2, true)}}; }), HasSubstr("run the wrong way round"));
  EXPECT_THAT(with([](auto& d) {
                d.patches[5].loops[1] = {CircleTrim({0.5, 0.5}, 0.2), CircleTrim({0.5, 0.5}, 0.2, true)};
              }),
              HasSubstr("loops[1]: encloses no area"));
  EXPECT_THAT(with([](auto& d) { d.patches[5].loops[0][0].edge = d.patches[5].loops[0][1].edge = d.patches[6].loops[0][1].edge = 9; }),
              HasSubstr("patches[6] \"bottom\": loops[0].curves[1].edge: 9 has two places already"));
  EXPECT_THAT(with([](auto& d) {
                d.patches[0].name = "a\nb";
                d.patches[0].surface.degree_u = 0;
              }),
              HasSubstr("patches[0] \"a?b\": "));
  // Loops that cross are found where triangles are made.
  NurbsObjectDescription crossing = good;
  crossing.patches[5].loops.push_back({CircleTrim({0.6, 0.5}, 0.2, true)});
  const auto object = NurbsObject::Create(crossing);
  ASSERT_TRUE(object.ok()) << object.status();
  EXPECT_THAT(std::string(TessellateNurbsObject(*object, 1e-3).status().message()),
              HasSubstr("patches[5] \"lid\": loops: cross near (u, v) = ("));
  crossing.patches[5].loops.back() = {CircleTrim({0.5, 0.5}, 0.1, true)};
  EXPECT_THAT(std::string(TessellateNurbsObject(*NurbsObject::Create(crossing), 1e-3).status().message()),
              HasSubstr("patches[5] \"lid\": loops: one runs clockwise around"));
}

TEST(NurbsObjectTest, HugeCountsAndFinestTolerancesAreRefused) {
  NurbsObjectDescription many;
  many.patches.resize(kMaxNurbsPatches + 1);
  EXPECT_EQ(NurbsObject::Create(many).status().code(), absl::StatusCode::kResourceExhausted);
  const auto sphere = NurbsObject::FromSurfaces("", NurbsSphere(1));
  EXPECT_EQ(TessellateNurbsObject(*sphere, 1e-15).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(TessellateNurbsObject(*sphere, 0).status().message()), HasSubstr("tolerance_m: 0, it must be positive"));
  EXPECT_EQ(TessellateNurbsObject(*sphere, NAN).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(sphere->Refined(16).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(sphere->Refined(-1).status().code(), absl::StatusCode::kInvalidArgument);
}

// A zigzag over many lines of knots: what is kept of its crossings would be their product.
TEST(NurbsObjectTest, LoopsThatCrossTooManyLinesOfKnotsAreRefused) {
  NurbsObjectDescription description;
  NurbsPatchDescription patch;
  constexpr int kLines = 1500;
  patch.surface = {.degree_u = 1, .degree_v = 1, .knots_u = {0}, .knots_v = {0, 0, 1, 1}, .control_m = {}, .weights = {}};
  for (int i = 0; i <= kLines; ++i) {
    patch.surface.knots_u.push_back(static_cast<double>(i) / kLines);
    for (const double v : {0.0, 1.0}) patch.surface.control_m.emplace_back(static_cast<double>(i) / kLines, v, 0);
  }
  patch.surface.knots_u.push_back(1);
  NurbsCurveDescription<2> zigzag{.degree = 1, .knots = {0}, .control = {}, .weights = {}};
  constexpr int kTurns = 1000;
  for (int i = 0; i <= kTurns; ++i) {
    zigzag.knots.push_back(i);
    zigzag.control.emplace_back(i % 2 == 0 ? 0.0 : 1.0, static_cast<double>(i) / kTurns);
  }
  zigzag.knots.push_back(kTurns);
  const NurbsCurveDescription<2> back{.degree = 1, .knots = {0, 0, 1, 1}, .control = {zigzag.control.back(), {0, 0}}, .weights = {}};
  patch.loops = {{{.curve = zigzag, .is_reversed = false, .edge = 0}, {.curve = back, .is_reversed = false, .edge = 0}}};
  description.patches = {patch};
  EXPECT_THAT(ErrorOf(description), HasSubstr("patches[0]: loops[0].curves[0]: loops cross lines of knots more than 1048576 times"));
}

TEST(NurbsObjectTest, RefinedObjectsHaveTheirShapeAndTheirTrims) {
  const auto plate = NurbsObject::Create(DrilledPlate(0.2, 0.3));
  const auto finer = plate->Refined(2);
  ASSERT_TRUE(finer.ok());
  EXPECT_EQ(finer->patches()[0].surface.count(NurbsDirection::kU), 5U);
  ASSERT_TRUE(finer->CheckClosed().ok());
  EXPECT_NEAR(ComputeNurbsObjectMassProperties(*finer, 1)->volume_m3, ComputeNurbsObjectMassProperties(*plate, 1)->volume_m3, 1e-11);
  const auto mesh = TessellateNurbsObject(*finer, 1e-3);
  ASSERT_TRUE(mesh.ok()) << mesh.status();
  EXPECT_TRUE(CheckClosedSurface(*mesh).ok()) << CheckClosedSurface(*mesh);
  const auto knotted = plate->WithKnot(5, NurbsDirection::kU, 0.3, 1);
  ASSERT_TRUE(knotted.ok());
  EXPECT_EQ(knotted->patches()[5].surface.count(NurbsDirection::kU), 3U);
  EXPECT_THAT(std::string(plate->WithKnot(5, NurbsDirection::kU, 2, 1).status().message()),
              HasSubstr("patches[5] \"lid\": knot 2 is not inside"));
  EXPECT_THAT(std::string(plate->WithKnot(7, NurbsDirection::kU, 0.5, 1).status().message()), HasSubstr("patch 7: there are 7"));
}

TEST(NurbsObjectTest, DescriptionsComeBack) {
  const NurbsObjectDescription given = DrilledPlate(0.2, 0.3);
  const NurbsObjectDescription back = NurbsObject::Create(given)->Describe();
  ASSERT_EQ(back.patches.size(), given.patches.size());
  EXPECT_EQ(back.name, given.name);
  for (size_t i = 0; i < given.patches.size(); ++i) {
    EXPECT_EQ(back.patches[i].name, given.patches[i].name);
    EXPECT_EQ(back.patches[i].surface.knots_u, given.patches[i].surface.knots_u);
    EXPECT_EQ(back.patches[i].surface.weights, given.patches[i].surface.weights);
    ASSERT_EQ(back.patches[i].loops.size(), given.patches[i].loops.size());
    for (size_t c = 0; c < given.patches[i].surface.control_m.size(); ++c) {
      EXPECT_LT((back.patches[i].surface.control_m[c] - given.patches[i].surface.control_m[c]).norm(), 1e-15);
    }
  }
}

TEST(NurbsObjectTest, DegreesAndSpansAreThoseOfTheSameShape) {
  const NurbsObject cylinder = *NurbsObject::FromSurfaces("cylinder", NurbsCylinder(0.02, 0.1));
  const auto raised = cylinder.WithDegree(3);
  ASSERT_TRUE(raised.ok()) << raised.status();
  const auto fine = raised->WithSpans(0.01);
  ASSERT_TRUE(fine.ok()) << fine.status();
  for (size_t p = 0; p < cylinder.patches().size(); ++p) {
    const NurbsSurface& before = cylinder.patches()[p].surface;
    const NurbsSurface& after = fine->patches()[p].surface;
    for (const NurbsDirection d : {NurbsDirection::kU, NurbsDirection::kV}) {
      EXPECT_EQ(after.degree(d), 3);
      EXPECT_EQ(after.domain(d), before.domain(d));
    }
    const auto [u0, u1] = before.domain(NurbsDirection::kU);
    const auto [v0, v1] = before.domain(NurbsDirection::kV);
    for (double a = 0; a <= 1; a += 0.125) {
      for (double b = 0; b <= 1; b += 0.125) {
        const double u = u0 + a * (u1 - u0), v = v0 + b * (v1 - v0);
        EXPECT_LT((after.Point(u, v) - before.Point(u, v)).norm(), 1e-12);
      }
    }
    // No line between two knots is longer, and cutting it into one part less would have left one.
    size_t parts = 0;
    for (const NurbsDirection d : {NurbsDirection::kU, NurbsDirection::kV}) {
      const auto knots = after.knots(d);
      for (size_t k = 0; k + 1 < knots.size(); ++k) {
        if (knots[k] == knots[k + 1]) continue;
        ++parts;
        for (const double share : {0.0, 0.5, 1.0}) {
          const auto point = [&](double t) {
            return d == NurbsDirection::kU ? after.Point(t, v0 + share * (v1 - v0)) : after.Point(u0 + share * (u1 - u0), t);
          };
          double length = 0;
          for (int i = 0; i < 16; ++i) {
            const double width = (knots[k + 1] - knots[k]) / 16;
            length += (point(knots[k] + width * (i + 1)) - point(knots[k] + width * i)).norm();
          }
          EXPECT_LT(length, 0.0101);
        }
      }
    }
    EXPECT_LT(parts, 20U);
  }
  EXPECT_EQ(fine->WithSpans(0.01)->Describe().patches[0].surface.knots_u, fine->Describe().patches[0].surface.knots_u);
  EXPECT_EQ(std::string(cylinder.WithSpans(0).status().message()), "span: 0 m is not positive");
  EXPECT_EQ(cylinder.WithSpans(1e-9).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(std::string(cylinder.WithDegree(99).status().message()).find("degree 99 is outside"), std::string::npos);
}

}  // namespace
}  // namespace palpate::sim::nurbs_object_test
