// Shells of NURBS surfaces: basis functions in the axes of Gauss points, mass, joints between patches, errors.
#include "sim/nurbs/nurbs_shell_builder.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <numbers>
#include <set>

#include <Eigen/Dense>

#include "sim/nurbs/nurbs_shapes.h"
#include "sim/nurbs/nurbs_shell_joints.h"

namespace palpate::sim {
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
    EXPECT_NEAR(one, 1, 1e-12);
    EXPECT_NEAR(a1.squaredNorm(), 1, 1e-9) << "the metric at rest is the identity";
    EXPECT_NEAR(a2.squaredNorm(), 1, 1e-9);
    EXPECT_NEAR(a1.dot(a2), 0, 1e-9);
    const Vector3d n = a1.cross(a2);
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
  const NurbsSurface b = Square(o, Vector3d::UnitZ(), Vector3d::UnitY(), 3);
  EXPECT_NE(error({a, b}, kMaterial).find("patches[0], the side of the first u, meets patches[1]"), std::string::npos)
      << error({a, b}, kMaterial);
  EXPECT_NE(error({a, Square(o, Vector3d::UnitZ(), Vector3d::UnitY()), Square(o, -Vector3d::UnitX(), Vector3d::UnitY())}, kMaterial)
                .find("more than two sides"),
            std::string::npos);
  EXPECT_NE(error({Square(o, Vector3d::UnitX(), 2 * Vector3d::UnitX())}, kMaterial).find("no area"), std::string::npos);
}

}  // namespace
}  // namespace palpate::sim
