// Shells of NURBS surfaces: basis functions in the axes of Gauss points, mass, joints between patches, errors.
#include "sim/nurbs/nurbs_shell_builder.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <numbers>
#include <numeric>
#include <set>

#include <Eigen/Dense>

#include "sim/nurbs/nurbs_mass_properties.h"
#include "sim/nurbs/nurbs_shapes.h"
#include "sim/nurbs/nurbs_shell_joints.h"
#include "tests/support/trimmed_sheets.h"

namespace palpate::sim::nurbs_shell_builder_test {
namespace {

using Eigen::Vector3d;

constexpr double kPi = std::numbers::pi;
const NurbsShellMaterial kMaterial{.thickness_m = 0.01, .density_kg_per_m3 = 1000, .young_modulus_pa = 1e6, .poisson_ratio = 0.3};

NurbsObject ObjectOf(const std::vector<NurbsSurface>& surfaces, int levels = 0) {
  return *NurbsObject::FromSurfaces("test", surfaces)->Refined(levels);
}

Vector3d RestOf(const gpu::NurbsShellModel& model, uint32_t control) { return Vector3d(model.rest_m[control].data()); }

double AreaOf(const gpu::NurbsShellModel& model) {
  double sum = 0;
  for (const gpu::NurbsShellGauss& gauss : model.gauss) sum += gauss.area_m2;
  return sum;
}

/// What every model must be.
void ExpectConsistent(const gpu::NurbsShellModel& model) {
  size_t next = 0;
  for (uint32_t g = 0; g < model.gauss.size(); ++g) {
    const gpu::NurbsShellGauss& gauss = model.gauss[g];
    ASSERT_EQ(gauss.begin, next);
    next = gauss.end;
    double one = 0;
    Vector3d a1 = Vector3d::Zero(), a2 = Vector3d::Zero(), a11 = Vector3d::Zero(), a22 = Vector3d::Zero(), a12 = Vector3d::Zero();
    for (uint32_t e = gauss.begin; e < gauss.end; ++e) {
      const gpu::NurbsShellEntry& entry = model.entries[e];
      EXPECT_EQ(entry.gauss, g);
      EXPECT_TRUE(e == gauss.begin || model.entries[e - 1].control < entry.control);
      one += entry.value;
      const Vector3d x = RestOf(model, entry.control);
      a1 += entry.by_1_per_m * x;
      a2 += entry.by_2_per_m * x;
      a11 += entry.by_11_per_m2 * x;
      a22 += entry.by_22_per_m2 * x;
      a12 += entry.by_12_per_m2 * x;
    }
    EXPECT_NEAR(a1.squaredNorm(), 1, 1e-9) << "the metric at rest is the identity";
    EXPECT_NEAR(a2.squaredNorm(), 1, 1e-9);
    EXPECT_NEAR(a1.dot(a2), 0, 1e-9);
    const Vector3d n = a1.cross(a2);
    if (gauss.coupling) {
      EXPECT_EQ(one, 0);
      EXPECT_NEAR(a11.squaredNorm(), 1, 1e-9);
      EXPECT_NEAR(a22.squaredNorm(), 1, 1e-9);
      EXPECT_NEAR(a11.dot(a22), 0, 1e-9);
      EXPECT_LT((a11 - a1).norm(), 1e-6) << "both run along the curve";
      EXPECT_LT(a12.norm(), 1e-9) << "no gap";
      EXPECT_NEAR(n.dot(a11.cross(a22)), gauss.coupling->rest_cosine, 1e-9);
      EXPECT_NEAR(n.cross(a1).dot(a11.cross(a22)), gauss.coupling->rest_sine, 1e-9);
      continue;
    }
    EXPECT_NEAR(one, 1, 1e-12);
    EXPECT_NEAR(a11.dot(n), gauss.rest_curvature_per_m[0], 1e-7 * (1 + a11.norm()));
    EXPECT_NEAR(a22.dot(n), gauss.rest_curvature_per_m[1], 1e-7 * (1 + a22.norm()));
    EXPECT_NEAR(a12.dot(n), gauss.rest_curvature_per_m[2], 1e-7 * (1 + a12.norm()));
  }
  EXPECT_EQ(next, model.entries.size());
  std::set<uint32_t> listed;
  for (uint32_t c = 0; c < model.control_count(); ++c) {
    EXPECT_GT(model.mass_kg[c], 0);
    for (uint32_t k = model.control_begin[c]; k < model.control_begin[c + 1]; ++k) {
      EXPECT_EQ(model.entries[model.control_entries[k]].control, c);
      EXPECT_TRUE(listed.insert(model.control_entries[k]).second);
    }
  }
  EXPECT_EQ(listed.size(), model.entries.size());
}

/// Points of the nets are where their parts put them.
void ExpectNetsAtRest(const gpu::NurbsShellModel& model, const NurbsObject& object) {
  size_t n = 0;
  for (const NurbsPatch& patch : object.patches()) {
    for (const Eigen::Vector4d& control : patch.surface.control()) {
      Vector3d sum = Vector3d::Zero();
      double one = 0;
      for (uint32_t k = model.net_part_begin[n]; k < model.net_part_begin[n + 1]; ++k) {
        sum += model.net_parts[k].weight * RestOf(model, model.net_parts[k].control);
        one += model.net_parts[k].weight;
      }
      EXPECT_NEAR(one, 1, 1e-12);
      EXPECT_LT((sum - control.hnormalized()).norm(), 1e-7) << n;
      ++n;
    }
  }
}

TEST(NurbsShellBuilderTest, ASphereOfOctantsHasItsAreaAndCurvature) {
  for (const auto quadrature : {NurbsShellQuadrature::kFull, NurbsShellQuadrature::kReduced}) {
    const NurbsObject object = ObjectOf(NurbsSphere(0.5), 2);
    const auto model = BuildNurbsShell(object, kMaterial, {.quadrature = quadrature});
    ASSERT_TRUE(model.ok()) << model.status();
    ExpectConsistent(*model);
    ExpectNetsAtRest(*model, object);
    const double area = 4 * kPi * 0.25;
    EXPECT_NEAR(AreaOf(*model), area, 5e-5 * area);
    double mass = 0;
    for (const double m : model->mass_kg) mass += m;
    EXPECT_NEAR(mass, AreaOf(*model) * 0.01 * 1000, 1e-9);
    for (const gpu::NurbsShellGauss& gauss : model->gauss) {
      EXPECT_NEAR(gauss.rest_curvature_per_m[0], -2, 1e-6);  // the normal points outwards
      EXPECT_NEAR(gauss.rest_curvature_per_m[1], -2, 1e-6);
      EXPECT_NEAR(gauss.rest_curvature_per_m[2], 0, 1e-6);
    }
  }
}

TEST(NurbsShellBuilderTest, SmoothSeamsHaveNoUnknownsAndStaySmooth) {
  const NurbsObject object = ObjectOf(NurbsTorus(0.3, 0.1), 1);
  const auto joints = JoinNurbsShell(object);
  ASSERT_TRUE(joints.ok()) << joints.status();
  EXPECT_EQ(joints->seams.size(), 32);
  for (const NurbsShellSeam& seam : joints->seams) EXPECT_TRUE(seam.is_smooth);
  // 4 x 4 points a patch, of which two rows and two columns lie inside.
  EXPECT_EQ(joints->control_count, 16 * 2 * 2);
  const auto model = BuildNurbsShell(object, kMaterial);
  ASSERT_TRUE(model.ok()) << model.status();
  ExpectConsistent(*model);
  ExpectNetsAtRest(*model, object);
  // Any positions of the unknowns give one tangential plane on both sides of a seam.
  std::vector<Vector3d> x;
  for (uint32_t c = 0; c < model->control_count(); ++c) {
    x.push_back(RestOf(*model, c) + 0.05 * Vector3d(std::sin(3.0 * c), std::cos(5.0 * c), std::sin(7.0 * c + 1)));
  }
  std::vector<NurbsSurface> moved;
  size_t n = 0;
  for (const NurbsPatch& patch : object.patches()) {
    const NurbsSurface& s = patch.surface;
    NurbsDescription description{s.degree(NurbsDirection::kU), s.degree(NurbsDirection::kV), {}, {}, {}, {}};
    description.knots_u.assign(s.knots(NurbsDirection::kU).begin(), s.knots(NurbsDirection::kU).end());
    description.knots_v.assign(s.knots(NurbsDirection::kV).begin(), s.knots(NurbsDirection::kV).end());
    for (const Eigen::Vector4d& control : s.control()) {
      Vector3d sum = Vector3d::Zero();
      for (uint32_t k = model->net_part_begin[n]; k < model->net_part_begin[n + 1]; ++k) {
        sum += model->net_parts[k].weight * x[model->net_parts[k].control];
      }
      ++n;
      description.control_m.push_back(sum);
      description.weights.push_back(control.w());
    }
    moved.push_back(*NurbsSurface::Create(description));
  }
  // Patch 4 k + quarter: the last u of a quarter is the first of the next.
  for (size_t piece = 0; piece < 4; ++piece) {
    for (size_t quarter = 0; quarter < 4; ++quarter) {
      for (const double v : {0.1, 0.5, 0.8}) {
        const NurbsSurface& a = moved[4 * piece + quarter];
        const NurbsSurface& b = moved[4 * piece + (quarter + 1) % 4];
        EXPECT_LT((a.Point(1, v) - b.Point(0, v)).norm(), 1e-9);
        EXPECT_LT((*a.Normal(1, v) - *b.Normal(0, v)).norm(), 1e-6);
      }
    }
  }
}

TEST(NurbsShellBuilderTest, LinesOfFullMultiplicityAreSides) {
  // A half cylinder of two quarters in one patch.
  const double w = std::sqrt(0.5);
  NurbsDescription d{
      .degree_u = 2, .degree_v = 1, .knots_u = {0, 0, 0, 1, 1, 2, 2, 2}, .knots_v = {0, 0, 1, 1}, .control_m = {}, .weights = {}};
  const double circle[5][2] = {{1, 0}, {1, 1}, {0, 1}, {-1, 1}, {-1, 0}};
  for (int i = 0; i < 5; ++i) {
    for (int j = 0; j < 2; ++j) {
      d.control_m.emplace_back(circle[i][0], circle[i][1], 2.0 * j);
      d.weights.push_back(i % 2 == 1 ? w : 1);
    }
  }
  const auto surface = ElevateNurbsDegree(*NurbsSurface::Create(d), NurbsDirection::kV, 3);
  ASSERT_TRUE(surface.ok()) << surface.status();
  const NurbsObject object = ObjectOf({*surface});
  const auto joints = JoinNurbsShell(object);
  ASSERT_TRUE(joints.ok()) << joints.status();
  EXPECT_EQ(joints->pieces.size(), 2);
  ASSERT_EQ(joints->seams.size(), 1);
  EXPECT_TRUE(joints->seams[0].is_smooth);
  EXPECT_EQ(joints->control_count, 4 * 4);
  const auto model = BuildNurbsShell(object, kMaterial, {.quadrature = NurbsShellQuadrature::kFull});
  ASSERT_TRUE(model.ok()) << model.status();
  ExpectConsistent(*model);
  ExpectNetsAtRest(*model, object);
  EXPECT_NEAR(AreaOf(*model), kPi * 2, 1e-3);
  for (const gpu::NurbsShellGauss& gauss : model->gauss) {
    EXPECT_NEAR(std::abs(gauss.rest_curvature_per_m[0]), 1, 1e-9);
    EXPECT_NEAR(gauss.rest_curvature_per_m[1], 0, 1e-9);
  }
}

/// A square in the plane through `corner` with sides a and b.
NurbsSurface Square(const Vector3d& corner, const Vector3d& a, const Vector3d& b, int degree = 2) {
  NurbsDescription d;
  d.degree_u = d.degree_v = degree;
  for (int i = 0; i < 2 * (degree + 1); ++i) d.knots_u.push_back(i <= degree ? 0 : 1);
  d.knots_v = d.knots_u;
  for (int i = 0; i <= degree; ++i) {
    for (int j = 0; j <= degree; ++j) d.control_m.push_back(corner + a * i / degree + b * j / degree);
  }
  return *NurbsSurface::Create(d);
}

TEST(NurbsShellBuilderTest, CreasesHaveStripsThatBendAboutThem) {
  const Vector3d o = Vector3d::Zero();
  const std::vector<NurbsSurface> folded = {Square(o, Vector3d::UnitX(), Vector3d::UnitY()),
                                            Square(o, Vector3d::UnitZ(), Vector3d::UnitY())};
  const auto model = BuildNurbsShell(ObjectOf(folded), kMaterial, {.quadrature = NurbsShellQuadrature::kFull, .crease_stiffness = 10});
  ASSERT_TRUE(model.ok()) << model.status();
  ExpectConsistent(*model);
  EXPECT_EQ(model->control_count(), 9 + 9 - 3);
  size_t strips = 0;
  for (const gpu::NurbsShellGauss& gauss : model->gauss) {
    if (gauss.membrane_per_bending_per_m2 > 0) continue;
    ++strips;
    EXPECT_NEAR(gauss.bending_n_m[0], 10 * 1e6 * 1e-6 / 12, 1e-9);
    EXPECT_EQ(gauss.bending_n_m[1] + gauss.bending_n_m[2] + gauss.bending_n_m[3], 0);
    EXPECT_GT(std::abs(gauss.rest_curvature_per_m[0]), 0.5);
    EXPECT_NEAR(gauss.rest_curvature_per_m[1], 0, 1e-12);
  }
  EXPECT_EQ(strips, 3 * 3);
  const auto free = BuildNurbsShell(ObjectOf(folded), kMaterial, {.quadrature = NurbsShellQuadrature::kFull, .crease_stiffness = 0});
  EXPECT_EQ(free->gauss.size() + strips, model->gauss.size());
}

double SurfaceAreaOf(const gpu::NurbsShellModel& model) {
  double sum = 0;
  for (const gpu::NurbsShellGauss& gauss : model.gauss) sum += gauss.is_surface ? gauss.area_m2 : 0;
  return sum;
}

TEST(NurbsShellBuilderTest, ATrimmedSheetHasTheMassOfWhatIsLeft) {
  const double radius = 0.37;
  const Eigen::Vector2d center(0.48, 0.53);
  const NurbsTrimDescription outline = test::CircleTrim(center, radius), hole = test::CircleTrim({0.55, 0.6}, 0.08, true);
  const double area = kPi * (radius * radius - 0.08 * 0.08);
  const Eigen::Vector2d middle = (radius * radius * center - 0.08 * 0.08 * Eigen::Vector2d(0.55, 0.6)) / (area / kPi);
  for (const int degree : {2, 3, 4, 5}) {
    for (const size_t spans : {1U, 3U, 10U}) {
      SCOPED_TRACE(testing::Message() << "degree " << degree << ", " << spans << " spans");
      const NurbsObject object = test::TrimmedSheet(degree, spans, 1, {{outline}, {hole}});
      const auto model = BuildNurbsShell(object, kMaterial);
      ASSERT_TRUE(model.ok()) << model.status();
      ExpectConsistent(*model);
      ExpectNetsAtRest(*model, object);
      EXPECT_NEAR(SurfaceAreaOf(*model), area, 1e-10);
      double mass = 0;
      Vector3d moment = Vector3d::Zero();
      for (uint32_t c = 0; c < model->control_count(); ++c) {
        mass += model->mass_kg[c];
        moment += model->mass_kg[c] * RestOf(*model, c);
      }
      EXPECT_NEAR(mass, area * 0.01 * 1000, 1e-9);
      EXPECT_LT((moment / mass - Vector3d(middle.x() - 0.5, middle.y() - 0.5, 0)).norm(), 1e-8);
      // Corners of the sheet act on nothing.
      const size_t whole = (spans + static_cast<size_t>(degree)) * (spans + static_cast<size_t>(degree));
      EXPECT_EQ(model->control_count() < whole, spans == 10) << model->control_count();
    }
  }
}

TEST(NurbsShellBuilderTest, ALoopAroundAllOfASheetChangesNothing) {
  const auto whole = BuildNurbsShell(test::TrimmedSheet(3, 5, 1, {}), kMaterial);
  const auto trimmed = BuildNurbsShell(test::TrimmedSheet(3, 5, 1, {test::WholeLoop()}), kMaterial);
  ASSERT_TRUE(whole.ok() && trimmed.ok()) << trimmed.status();
  EXPECT_EQ(trimmed->rest_m, whole->rest_m);
  ASSERT_EQ(trimmed->gauss.size(), whole->gauss.size());
  ASSERT_EQ(trimmed->entries.size(), whole->entries.size());
  for (size_t g = 0; g < whole->gauss.size(); ++g) EXPECT_EQ(trimmed->gauss[g].area_m2, whole->gauss[g].area_m2);
  for (size_t c = 0; c < whole->control_count(); ++c) EXPECT_NEAR(trimmed->mass_kg[c], whole->mass_kg[c], 1e-15);
}

TEST(NurbsShellBuilderTest, NextToNothingOfACellHasMassAndStiffness) {
  // A corner of a triangle that reaches so far into a cell of its own, in shares of it.
  for (const double share : {1e-1, 1e-3, 1e-5}) {
    const double tip = 0.5 + share / 8;
    const NurbsObject object = test::TrimmedSheet(3, 8, 1, {test::PolygonTrims({{0.1, 0.1}, {0.4, 0.1}, {tip, tip}, {0.1, 0.4}})});
    const auto model = BuildNurbsShell(object, kMaterial);
    ASSERT_TRUE(model.ok()) << model.status();
    ExpectConsistent(*model);
    const double mean = std::accumulate(model->mass_kg.begin(), model->mass_kg.end(), 0.0) / static_cast<double>(model->control_count());
    double stiffest = 0, softest = 1;  // trace of the membrane's blocks by that of the stiffest
    std::vector<double> trace(model->control_count(), 0);
    for (const gpu::NurbsShellEntry& e : model->entries) {
      const gpu::NurbsShellGauss& gauss = model->gauss[e.gauss];
      trace[e.control] += gauss.area_m2 * gauss.membrane_per_bending_per_m2 * gauss.bending_n_m[0] *
                          (e.by_1_per_m * e.by_1_per_m + e.by_2_per_m * e.by_2_per_m);
    }
    for (const double t : trace) stiffest = std::max(stiffest, t);
    for (const double t : trace) softest = std::min(softest, t / stiffest);
    EXPECT_GT(softest, 1e-4 * kNurbsShellCutAwayStiffness);
    for (const double mass : model->mass_kg) EXPECT_GT(mass, 0.99e-9 * mean);
    EXPECT_NEAR(SurfaceAreaOf(*model), NurbsAreaOf(object.patches()[0]), 1e-10);
  }
}

TEST(NurbsShellBuilderTest, ATrimmedTubeIsSmoothAcrossItsSeam) {
  // Patches of a quarter each; loops cut a window across one seam, and all of a patch's side at another, where nothing is joined then.
  std::vector<NurbsSurface> quarters;
  for (int q = 0; q < 4; ++q) {
    const double angle = kPi / 2 * q;
    const Vector3d first(std::cos(angle), std::sin(angle), 0), second(-std::sin(angle), std::cos(angle), 0);
    NurbsDescription d;
    d.degree_u = 2;
    d.degree_v = 1;
    d.knots_u = {0, 0, 0, 1, 1, 1};
    d.knots_v = {0, 0, 1, 1};
    for (const Vector3d& p : {first, Vector3d(first + second), second}) {
      d.control_m.push_back(p);
      d.control_m.emplace_back(p + Vector3d(0, 0, 2));
    }
    const double w = std::sqrt(0.5);
    d.weights = {1, 1, w, w, 1, 1};
    quarters.push_back(ElevateNurbsDegree(*NurbsSurface::Create(d), NurbsDirection::kV, 2)->Refined(7, 7));
  }
  NurbsObjectDescription description = NurbsObject::FromSurfaces("tube", quarters)->Describe();
  const auto whole = BuildNurbsShell(*NurbsObject::Create(description), kMaterial);
  // Loops around all of them, as CAD programs write them, change nothing.
  for (NurbsPatchDescription& patch : description.patches) patch.loops = {test::WholeLoop()};
  const auto framed = BuildNurbsShell(*NurbsObject::Create(description), kMaterial);
  ASSERT_TRUE(whole.ok() && framed.ok()) << framed.status();
  EXPECT_EQ(framed->rest_m, whole->rest_m);
  EXPECT_EQ(framed->gauss.size(), whole->gauss.size());
  for (NurbsPatchDescription& patch : description.patches) patch.loops.clear();
  description.patches[0].loops = {test::PolygonTrims({{0, 0}, {1, 0}, {1, 0.3}, {0.6, 0.4}, {0.6, 0.6}, {1, 0.7}, {1, 1}, {0, 1}})};
  description.patches[1].loops = {test::PolygonTrims({{0, 0}, {1, 0}, {1, 1}, {0, 1}, {0, 0.7}, {0.3, 0.5}, {0, 0.3}})};
  description.patches[2].loops = {test::PolygonTrims({{0, 0}, {0.45, 0}, {0.45, 1}, {0, 1}})};
  const NurbsObject object = *NurbsObject::Create(description);
  const auto model = BuildNurbsShell(object, kMaterial);
  ASSERT_TRUE(whole.ok() && model.ok()) << model.status();
  ExpectConsistent(*model);
  double area = 0;
  for (const NurbsPatch& patch : object.patches()) area += NurbsAreaOf(patch);
  EXPECT_NEAR(SurfaceAreaOf(*model), area, 1e-3 * area);  // whole cells have the Gauss points of whole shells
  EXPECT_NEAR(SurfaceAreaOf(*whole), 4 * kPi, 1e-3 * 4 * kPi);
  // Smooth seams have no unknowns. That of patches 2 and 3 is gone: patch 2 loses the row beside it, and the rim of patch 3 is free.
  const auto unknowns_at = [&](const gpu::NurbsShellModel& of, size_t patch, size_t row) {
    std::set<uint32_t> out;
    for (size_t n = of.net_begin[patch] + 7 * row; n < of.net_begin[patch] + 7 * (row + 1); ++n) {
      if (of.net_part_begin[n + 1] == of.net_part_begin[n] + 1) out.insert(of.net_parts[of.net_part_begin[n]].control);
    }
    return out.size();
  };
  EXPECT_EQ(unknowns_at(*whole, 3, 0), 0U);
  EXPECT_EQ(unknowns_at(*model, 3, 0), 7U);
  EXPECT_EQ(unknowns_at(*model, 1, 0), 0U);
  EXPECT_EQ(model->control_count(), whole->control_count());
}

TEST(NurbsShellBuilderTest, ASphereMayBeTrimmedAtAPoleAndAcrossASeam) {
  NurbsObjectDescription description = ObjectOf(NurbsSphere(0.3), 2).Describe();
  // Four octants are cut along a circle of latitude, so that a row of cells at their pole is gone; another one has a hole.
  const NurbsObject sphere = *NurbsObject::Create(description);
  const auto whole = BuildNurbsShell(sphere, kMaterial);
  size_t cut = 0;
  size_t other = 0;
  for (size_t p = 0; p < description.patches.size(); ++p) {
    const NurbsSurface& surface = sphere.patches()[p].surface;
    if ((surface.Point(0, 1) - surface.Point(1, 1)).norm() > 1e-9) {
      other = p;
      continue;
    }
    description.patches[p].loops = {test::PolygonTrims({{0, 0}, {1, 0}, {1, 0.7}, {0, 0.7}})};
    ++cut;
  }
  ASSERT_EQ(cut, 4U);
  description.patches[other].loops = {test::WholeLoop(), {test::CircleTrim({0.4, 0.4}, 0.2, true)}};
  const NurbsObject object = *NurbsObject::Create(description);
  const auto model = BuildNurbsShell(object, kMaterial);
  ASSERT_TRUE(whole.ok() && model.ok()) << model.status();
  ExpectConsistent(*model);
  double area = 0;
  for (const NurbsPatch& patch : object.patches()) area += NurbsAreaOf(patch);
  EXPECT_NEAR(SurfaceAreaOf(*model), area, 1e-3 * area);
  EXPECT_LT(area, 0.97 * SurfaceAreaOf(*whole));
  EXPECT_LT(model->control_count(), whole->control_count()) << "the pole is gone";
}

size_t CouplingsOf(const gpu::NurbsShellModel& model) {
  return static_cast<size_t>(std::ranges::count_if(model.gauss, [](const gpu::NurbsShellGauss& g) { return g.coupling.has_value(); }));
}

TEST(NurbsShellBuilderTest, PatchesAreCoupledAlongTrims) {
  const NurbsObject object = *NurbsObject::Create(test::RingAndDisc(3, 8, 5, 0.45, 0.2));
  const auto model = BuildNurbsShell(object, kMaterial);
  ASSERT_TRUE(model.ok()) << model.status();
  ExpectConsistent(*model);
  ExpectNetsAtRest(*model, object);
  double length = 0;
  for (const gpu::NurbsShellGauss& gauss : model->gauss) {
    if (gauss.coupling) length += gauss.area_m2;
  }
  EXPECT_NEAR(length, 2 * kPi * 0.2, 1e-8);
  EXPECT_NEAR(SurfaceAreaOf(*model), kPi * 0.45 * 0.45, 1e-8);
  double mass = 0;
  for (const double m : model->mass_kg) mass += m;
  EXPECT_NEAR(mass, kPi * 0.45 * 0.45 * 10, 1e-6);
  // The same edge without a number is found by its places; so is one of which the sides run against each other.
  NurbsObjectDescription found = object.Describe();
  for (NurbsPatchDescription& patch : found.patches) {
    for (auto& loop : patch.loops) loop[0].edge = 0;
  }
  EXPECT_EQ(CouplingsOf(*BuildNurbsShell(*NurbsObject::Create(found), kMaterial)), CouplingsOf(*model));
  found.patches[1].surface = test::SheetDescription(3, 5, 1, {}).patches[0].surface;
  for (Vector3d& p : found.patches[1].surface.control_m) p.y() = -p.y();  // v runs backwards, and the normal points down
  const auto turned = BuildNurbsShell(*NurbsObject::Create(found), kMaterial);
  ASSERT_TRUE(turned.ok()) << turned.status();
  ExpectConsistent(*turned);
  EXPECT_EQ(CouplingsOf(*turned), CouplingsOf(*model));
}

TEST(NurbsShellBuilderTest, SidesWithOtherControlPointsAreCoupledAndJoinedOnesAreNot) {
  const Vector3d o = Vector3d::Zero();
  const NurbsSurface a = Square(o, Vector3d::UnitX(), Vector3d::UnitY());
  const auto joined = BuildNurbsShell(ObjectOf({a, Square(o, Vector3d::UnitZ(), Vector3d::UnitY())}), kMaterial);
  const auto coupled = BuildNurbsShell(ObjectOf({a, Square(o, Vector3d::UnitZ(), Vector3d::UnitY(), 3)}), kMaterial);
  ASSERT_TRUE(joined.ok() && coupled.ok()) << coupled.status();
  EXPECT_EQ(CouplingsOf(*joined), 0U);
  EXPECT_EQ(CouplingsOf(*coupled), 4U);
  ExpectConsistent(*coupled);
  EXPECT_EQ(coupled->control_count(), 9U + 16U);
  // A patch that is joined along one side and coupled along another.
  const auto both = BuildNurbsShell(
      ObjectOf({a, Square(o, Vector3d::UnitZ(), Vector3d::UnitY()), Square(o, Vector3d::UnitX(), -Vector3d::UnitZ(), 3)}), kMaterial);
  ASSERT_TRUE(both.ok()) << both.status();
  EXPECT_EQ(both->control_count(), 9U + 9U - 3U + 16U);
  EXPECT_EQ(CouplingsOf(*both), 4U);
}

TEST(NurbsShellBuilderTest, SidesThatDoNotQuiteMeetHaveNoForceBetweenThem) {
  // As far apart as the approximations of a CAD program, in the plane and, at an angle, every way.
  for (const double angle : {0.0, 1.0}) {
    NurbsObjectDescription two = test::SplitSheet(3, 4, 5, 0.1, 0.5, 0.5, 0.5);
    for (Vector3d& p : two.patches[1].surface.control_m) {
      p = Eigen::AngleAxisd(angle, Vector3d::UnitY()) * p + Vector3d(1e-4, 5e-5, angle == 0 ? 0 : 1e-4);
    }
    const auto model = BuildNurbsShell(*NurbsObject::Create(two), kMaterial);
    ASSERT_TRUE(model.ok()) << model.status();
    EXPECT_GT(CouplingsOf(*model), 20U);
    ExpectConsistent(*model);
  }
}

TEST(NurbsShellBuilderTest, ElevationKeepsTheSurface) {
  for (const NurbsSurface& surface : NurbsTorus(0.3, 0.1)) {
    const NurbsSurface finer = surface.Refined(5, 3);
    const auto high = ElevateNurbsDegree(*ElevateNurbsDegree(finer, NurbsDirection::kU, 4), NurbsDirection::kV, 3);
    ASSERT_TRUE(high.ok()) << high.status();
    EXPECT_EQ(high->degree(NurbsDirection::kU), 4);
    for (double u = 0; u <= 1; u += 0.125) {
      for (double v = 0; v <= 1; v += 0.125) EXPECT_LT((high->Point(u, v) - surface.Point(u, v)).norm(), 1e-12);
    }
  }
  EXPECT_FALSE(ElevateNurbsDegree(NurbsTorus(0.3, 0.1)[0], NurbsDirection::kU, 1).ok());
}

TEST(NurbsShellBuilderTest, ErrorsNameWhatIsWrong) {
  const auto error = [](const std::vector<NurbsSurface>& surfaces, const NurbsShellMaterial& material) {
    return std::string(BuildNurbsShell(ObjectOf(surfaces), material).status().message());
  };
  EXPECT_NE(error(NurbsCylinder(1, 1), kMaterial).find("patches[0]: degrees 2 x 1 are outside [2, 5]"), std::string::npos)
      << error(NurbsCylinder(1, 1), kMaterial);
  NurbsShellMaterial bad = kMaterial;
  bad.thickness_m = 0;
  EXPECT_NE(error(NurbsSphere(1), bad).find("thickness_m: 0"), std::string::npos);
  bad = kMaterial;
  bad.poisson_ratio = 0.6;
  EXPECT_NE(error(NurbsSphere(1), bad).find("poisson_ratio: 0.6"), std::string::npos);
  const Vector3d o = Vector3d::Zero();
  const NurbsSurface a = Square(o, Vector3d::UnitX(), Vector3d::UnitY());
  EXPECT_NE(error({a, Square(o, Vector3d::UnitZ(), Vector3d::UnitY()), Square(o, -Vector3d::UnitX(), Vector3d::UnitY())}, kMaterial)
                .find("more than two sides"),
            std::string::npos);
  EXPECT_NE(error({Square(o, Vector3d::UnitX(), 2 * Vector3d::UnitX())}, kMaterial).find("no area"), std::string::npos);
  const auto trimmed = [](std::vector<std::vector<NurbsTrimDescription>> loops) {
    return std::string(BuildNurbsShell(test::TrimmedSheet(3, 4, 1, std::move(loops)), kMaterial).status().message());
  };
  const std::string nothing = trimmed({test::PolygonTrims({{0, 0}, {1, 0}, {1, 1e-6}, {0, 1e-6}})});
  EXPECT_NE(nothing.find("patches[0]: loops: they leave nothing of the patch"), std::string::npos) << nothing;
  const std::string crossed = trimmed({test::PolygonTrims({{0.1, 0.1}, {0.9, 0.8}, {0.9, 0.1}, {0.35, 0.9}})});
  EXPECT_NE(crossed.find("patches[0]: loops: cross"), std::string::npos) << crossed;
  // A disc in the hole of another sheet: their rims are one edge, from which the disc is too far.
  NurbsObjectDescription two = test::RingAndDisc(3, 4, 4, 0.45, 0.2);
  for (Vector3d& p : two.patches[1].surface.control_m) p.z() += 0.003;
  const std::string rims = BuildNurbsShell(*NurbsObject::Create(two), kMaterial).status().ToString();
  EXPECT_NE(rims.find("patches[0], loops[1].curves[0]: is 0.003 m from patches[1], which shares that edge"), std::string::npos) << rims;
}

}  // namespace
}  // namespace palpate::sim::nurbs_shell_builder_test
