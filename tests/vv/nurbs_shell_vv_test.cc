// NURBS shells against the literature and closed forms, by Newton's method in double precision. The tables are those of
// docs/evidence/nurbs_shells.md; the Slow tests print them whole.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <functional>
#include <numbers>
#include <random>

#include <Eigen/Dense>

#include "sim/nurbs/gauss_quadrature.h"
#include "sim/nurbs/nurbs_basis.h"
#include "sim/nurbs/nurbs_shapes.h"
#include "sim/nurbs/nurbs_shell_builder.h"
#include "sim/nurbs/nurbs_shell_couplings.h"
#include "sim/reference/reference_nurbs_shell.h"
#include "tests/support/nurbs_shell_cases.h"
#include "tests/support/trimmed_sheets.h"

namespace palpate::sim::nurbs_shell_vv_test {
namespace {

using Eigen::Vector3d;
using Eigen::VectorXd;
using test::Elastica;
using test::NurbsShellCase;

constexpr double kPi = std::numbers::pi;
constexpr NurbsShellQuadrature kFull = NurbsShellQuadrature::kFull;
constexpr NurbsShellQuadrature kReduced = NurbsShellQuadrature::kReduced;

VectorXd Linear(const NurbsShellCase& c) {
  const ReferenceNurbsShell shell(c.model);
  // Displacements of a load so small that they are linear in it come out of one solve about the rest shape.
  NurbsShellLoad load{.dead_n = c.load_n};
  if (c.soft_n_per_m > 0) {
    load.following = [&](const VectorXd& at, VectorXd* force, std::vector<Eigen::Triplet<double>>* stiffness) {
      *force -= c.soft_n_per_m * (at - shell.Rest());
      for (int i = 0; i < at.size(); ++i) stiffness->emplace_back(i, i, c.soft_n_per_m);
    };
  }
  const auto x = SolveNurbsShell(shell, load, c.groups, shell.Rest(), 0, 1);
  EXPECT_TRUE(x.ok()) << x.status();
  return *x - shell.Rest();
}

/// Gradient and stiffness of the energy at a crumpled shape, along a random direction.
void ExpectDerivativesMatch(const gpu::NurbsShellModel& model, uint64_t seed) {
  const ReferenceNurbsShell shell(model);
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> uniform(-1, 1);
  VectorXd x = shell.Rest();
  VectorXd direction(shell.size());
  for (Eigen::Index i = 0; i < shell.size(); ++i) {
    x[i] += 0.02 * uniform(random);
    direction[i] = uniform(random);
  }
  constexpr double kStep = 1e-6;
  const VectorXd gradient = shell.Gradient(x);
  const double slope = (shell.Energy(x + kStep * direction) - shell.Energy(x - kStep * direction)) / (2 * kStep);
  EXPECT_NEAR(gradient.dot(direction), slope, 1e-6 * std::abs(slope));
  Eigen::SparseMatrix<double> k(shell.size(), shell.size());
  const auto entries = shell.Stiffness(x);
  k.setFromTriplets(entries.begin(), entries.end());
  const VectorXd change = (shell.Gradient(x + kStep * direction) - shell.Gradient(x - kStep * direction)) / (2 * kStep);
  EXPECT_LT((k * direction - change).norm(), 1e-6 * change.norm());
}

TEST(NurbsShellVvTest, GradientAndStiffnessMatchFiniteDifferences) {
  const NurbsObject object = *NurbsObject::FromSurfaces("torus", NurbsTorus(0.3, 0.1));
  const NurbsShellMaterial material{.thickness_m = 0.02, .density_kg_per_m3 = 1, .young_modulus_pa = 1e5, .poisson_ratio = 0.3};
  const auto model = BuildNurbsShell(object, material);
  ASSERT_TRUE(model.ok()) << model.status();
  ExpectDerivativesMatch(*model, 3);
}

/// Energy of patches between two shapes in the curvilinear coordinates of the parameters, from their surfaces alone.
double CurvilinearEnergy(const std::vector<NurbsSurface>& rest, const std::vector<NurbsSurface>& now, const NurbsShellMaterial& m) {
  double sum = 0;
  const GaussQuadrature& rule = GaussQuadrature::Get();
  for (size_t p = 0; p < rest.size(); ++p) {
    const auto spans = [&](NurbsDirection d) {
      std::vector<double> out;
      for (const double t : rest[p].knots(d)) {
        if (out.empty() || t != out.back()) out.push_back(t);
      }
      return out;
    };
    const auto us = spans(NurbsDirection::kU);
    const auto vs = spans(NurbsDirection::kV);
    for (size_t i = 0; i + 1 < us.size(); ++i) {
      for (size_t j = 0; j + 1 < vs.size(); ++j) {
        for (size_t a = 0; a < GaussQuadrature::kPoints; ++a) {
          for (size_t b = 0; b < GaussQuadrature::kPoints; ++b) {
            const double u = us[i] + (us[i + 1] - us[i]) * rule.places[a];
            const double v = vs[j] + (vs[j + 1] - vs[j]) * rule.places[b];
            const NurbsPoint r = rest[p].PointWithDerivatives(u, v);
            const NurbsPoint c = now[p].PointWithDerivatives(u, v);
            const auto metric = [](const NurbsPoint& s) {
              Eigen::Matrix2d g;
              g << s.du.dot(s.du), s.du.dot(s.dv), s.du.dot(s.dv), s.dv.dot(s.dv);
              return g;
            };
            const auto curvature = [](const NurbsPoint& s) {
              const Vector3d n = s.du.cross(s.dv).normalized();
              Eigen::Matrix2d k;
              k << s.duu.dot(n), s.duv.dot(n), s.duv.dot(n), s.dvv.dot(n);
              return k;
            };
            const Eigen::Matrix2d raise = metric(r).inverse();
            // (e, e) = E / (1 - nu^2) (nu (tr e)^2 + (1 - nu) e : e) with mixed components.
            const auto density = [&](const Eigen::Matrix2d& lower) {
              const Eigen::Matrix2d mixed = raise * lower;
              return m.young_modulus_pa / (1 - m.poisson_ratio * m.poisson_ratio) *
                     (m.poisson_ratio * mixed.trace() * mixed.trace() + (1 - m.poisson_ratio) * (mixed * mixed).trace());
            };
            const double h = m.thickness_m;
            const double area = r.du.cross(r.dv).norm() * (us[i + 1] - us[i]) * (vs[j + 1] - vs[j]) * rule.weights[a] * rule.weights[b];
            sum += area / 2 * (h * density((metric(c) - metric(r)) / 2) + h * h * h / 12 * density(curvature(c) - curvature(r)));
          }
        }
      }
    }
  }
  return sum;
}

TEST(NurbsShellVvTest, TheEnergyIsThatOfTheCurvilinearForm) {
  const NurbsObject object = *NurbsObject::FromSurfaces("torus", NurbsTorus(0.3, 0.1))->Refined(1);
  const NurbsShellMaterial material{.thickness_m = 0.02, .density_kg_per_m3 = 1, .young_modulus_pa = 1e5, .poisson_ratio = 0.3};
  const auto model = BuildNurbsShell(object, material, {.quadrature = kFull});
  ASSERT_TRUE(model.ok()) << model.status();
  const ReferenceNurbsShell shell(*model);
  VectorXd x = shell.Rest();
  for (Eigen::Index c = 0; c < shell.size() / 3; ++c) {
    const Vector3d p = x.segment<3>(3 * c);
    x.segment<3>(3 * c) += Vector3d(0.1 * p.z(), 0.03 * std::sin(9 * p.x()), 0.3 * p.x() * p.y());
  }
  std::vector<NurbsSurface> rest;
  for (const NurbsPatch& patch : object.patches()) rest.push_back(patch.surface);
  const double exact = CurvilinearEnergy(rest, test::MovedSurfaces(object, *model, x), material);
  EXPECT_NEAR(shell.Energy(x), exact, 1e-3 * exact);  // the rule of three points against one of twelve
  const auto reduced = BuildNurbsShell(object, material, {.quadrature = kReduced});
  EXPECT_NEAR(ReferenceNurbsShell(*reduced).Energy(x), exact, 2e-2 * exact);
  // No energy in rigid motion.
  const Eigen::Matrix3d turn = Eigen::AngleAxisd(1.1, Vector3d(1, 2, -1).normalized()).toRotationMatrix();
  for (Eigen::Index c = 0; c < shell.size() / 3; ++c) x.segment<3>(3 * c) = turn * shell.Rest().segment<3>(3 * c) + Vector3d(3, 1, 2);
  EXPECT_LT(shell.Energy(x), 1e-20);
  EXPECT_LT(shell.Gradient(x).norm(), 1e-8);
}

TEST(NurbsShellVvTest, OnlyRigidMotionsAreFree) {
  for (const int degree : {2, 3, 4}) {
    for (const int spans : {1, 2, 4}) {
      for (const auto quadrature : {kFull, kReduced}) {
        const NurbsShellCase c = test::ScordelisLoRoof(degree, spans, quadrature);
        const ReferenceNurbsShell shell(c.model);
        Eigen::MatrixXd k = Eigen::MatrixXd::Zero(shell.size(), shell.size());
        for (const auto& t : shell.Stiffness(shell.Rest())) k(t.row(), t.col()) += t.value();
        const VectorXd values = Eigen::SelfAdjointEigenSolver<Eigen::MatrixXd>(k, Eigen::EigenvaluesOnly).eigenvalues();
        const double largest = values[values.size() - 1];
        EXPECT_LT(std::abs(values[5]), 1e-9 * largest) << degree << " " << spans;
        EXPECT_GT(values[6], 1e-8 * largest) << "degree " << degree << ", " << spans << " spans, quadrature "
                                             << static_cast<int>(quadrature);
      }
    }
  }
}

TEST(NurbsShellVvTest, ClosedShapesHaveNoHinges) {
  // Poles, smooth seams and creases, where three patches meet too.
  const NurbsShellMaterial material{.thickness_m = 0.02, .density_kg_per_m3 = 1, .young_modulus_pa = 1, .poisson_ratio = 0.3};
  for (const auto& [name, surfaces] :
       {std::pair("sphere", NurbsSphere(0.2)), std::pair("torus", NurbsTorus(0.3, 0.1)), std::pair("cylinder", NurbsCylinder(0.2, 0.5))}) {
    std::vector<NurbsSurface> elevated;
    for (const NurbsSurface& surface : surfaces) elevated.push_back(test::Refine(surface, 2, 2, 2));
    const auto model = BuildNurbsShell(*NurbsObject::FromSurfaces(name, elevated), material);
    ASSERT_TRUE(model.ok()) << name << ": " << model.status();
    const ReferenceNurbsShell shell(*model);
    Eigen::MatrixXd k = Eigen::MatrixXd::Zero(shell.size(), shell.size());
    for (const auto& t : shell.Stiffness(shell.Rest())) k(t.row(), t.col()) += t.value();
    const VectorXd values = Eigen::SelfAdjointEigenSolver<Eigen::MatrixXd>(k, Eigen::EigenvaluesOnly).eigenvalues();
    const double largest = values[values.size() - 1];
    EXPECT_LT(std::abs(values[5]), 1e-10 * largest) << name;
    EXPECT_GT(values[6], 1e-8 * largest) << name;
    EXPECT_GT(values[6], 1e-6) << name;
  }
}

TEST(NurbsShellVvTest, PatchTests) {
  // A flat sheet of uneven knots, stretched and sheared evenly, and bent evenly: strains are the same everywhere.
  const NurbsShellCase c = test::UnevenSheet(3);
  const ReferenceNurbsShell shell(c.model);
  const double h = c.material.thickness_m;
  const double nu = c.material.poisson_ratio;
  const double stretch = c.material.young_modulus_pa * h / (1 - nu * nu);
  Eigen::Matrix3d f = Eigen::Matrix3d::Identity();
  f(0, 0) = 1.1;
  f(0, 1) = 0.2;
  f(1, 1) = 0.95;
  VectorXd x = shell.Rest();
  for (Eigen::Index k = 0; k < x.size() / 3; ++k) x.segment<3>(3 * k) = f * x.segment<3>(3 * k);
  const Eigen::Matrix3d e = (f.transpose() * f - Eigen::Matrix3d::Identity()) / 2;
  const double density =
      stretch / 2 * (e(0, 0) * e(0, 0) + e(1, 1) * e(1, 1) + 2 * nu * e(0, 0) * e(1, 1) + 2 * (1 - nu) * e(0, 1) * e(0, 1));
  const double area = 2.0 * 1.0;
  EXPECT_NEAR(shell.Energy(x), density * area, 1e-9 * density * area);
  // The inner control points are in balance.
  const VectorXd gradient = shell.Gradient(x);
  for (const uint32_t k : c.inner) EXPECT_LT(gradient.segment<3>(3 * static_cast<Eigen::Index>(k)).norm(), 1e-10 * stretch) << k;
  // z = a x^2 / 2 + b x y + c y^2 / 2 with small slopes: degree 2 functions are among those of the sheet.
  const Vector3d bend(0.02, 0.015, -0.03);
  const double plate = stretch * h * h / 12;
  const double bent =
      plate / 2 * (bend[0] * bend[0] + bend[2] * bend[2] + 2 * nu * bend[0] * bend[2] + 2 * (1 - nu) * bend[1] * bend[1]) * area * 1e-8;
  const VectorXd small = shell.Rest() + 1e-4 * test::BentSheet(c, bend);
  EXPECT_NEAR(shell.Energy(small), bent, 1e-3 * bent);
}

TEST(NurbsShellVvTest, GradientAndStiffnessOfATrimmedShellMatchFiniteDifferences) {
  const NurbsObject object =
      test::TrimmedSheet(3, 4, 0.3, {{test::CircleTrim({0.5, 0.5}, 0.47)}, {test::CircleTrim({0.42, 0.55}, 0.13, true)}});
  const NurbsShellMaterial material{.thickness_m = 0.02, .density_kg_per_m3 = 1, .young_modulus_pa = 1e5, .poisson_ratio = 0.3};
  const auto model = BuildNurbsShell(object, material);
  ASSERT_TRUE(model.ok()) << model.status();
  ExpectDerivativesMatch(*model, 4);
}

TEST(NurbsShellVvTest, OnlyRigidMotionsOfTrimmedShellsAreFree) {
  // Discs whose rims leave more or less of the cells that they cut.
  for (const int degree : {2, 3, 4}) {
    for (const double radius : {0.3, 0.334, 0.41, 0.4999}) {
      for (const auto quadrature : {kFull, kReduced}) {
        const NurbsObject object = test::TrimmedSheet(degree, 6, 1, {{test::CircleTrim({0.5, 0.5}, radius)}});
        const NurbsShellMaterial material{.thickness_m = 0.1, .density_kg_per_m3 = 1, .young_modulus_pa = 1, .poisson_ratio = 0.3};
        const auto model = BuildNurbsShell(object, material, {.quadrature = quadrature});
        ASSERT_TRUE(model.ok()) << model.status();
        const ReferenceNurbsShell shell(*model);
        Eigen::MatrixXd k = Eigen::MatrixXd::Zero(shell.size(), shell.size());
        for (const auto& t : shell.Stiffness(shell.Rest())) k(t.row(), t.col()) += t.value();
        const VectorXd values = Eigen::SelfAdjointEigenSolver<Eigen::MatrixXd>(k, Eigen::EigenvaluesOnly).eigenvalues();
        const double largest = values[values.size() - 1];
        EXPECT_LT(std::abs(values[5]), 1e-12 * largest) << degree << " " << radius;
        EXPECT_GT(values[6], 1e-6 * kNurbsShellCutAwayStiffness * largest) << degree << " " << radius << " " << values[6] / largest;
      }
    }
  }
}

TEST(NurbsShellVvTest, TrimmedPatchTests) {
  const NurbsObject object =
      test::TrimmedSheet(3, 16, 1, {{test::CircleTrim({0.5, 0.5}, 0.46)}, {test::CircleTrim({0.42, 0.55}, 0.13, true)}});
  const NurbsShellMaterial material{.thickness_m = 0.01, .density_kg_per_m3 = 1, .young_modulus_pa = 1e6, .poisson_ratio = 0.3};
  const auto model = BuildNurbsShell(object, material);
  ASSERT_TRUE(model.ok()) << model.status();
  const ReferenceNurbsShell shell(*model);
  const double nu = material.poisson_ratio, h = material.thickness_m;
  const double stretch = material.young_modulus_pa * h / (1 - nu * nu);
  Eigen::Matrix3d f = Eigen::Matrix3d::Identity();
  f(0, 0) = 1.1;
  f(0, 1) = 0.2;
  f(1, 1) = 0.95;
  VectorXd x = shell.Rest();
  for (Eigen::Index k = 0; k < x.size() / 3; ++k) x.segment<3>(3 * k) = f * x.segment<3>(3 * k);
  const Eigen::Matrix3d e = (f.transpose() * f - Eigen::Matrix3d::Identity()) / 2;
  const double density =
      stretch / 2 * (e(0, 0) * e(0, 0) + e(1, 1) * e(1, 1) + 2 * nu * e(0, 0) * e(1, 1) + 2 * (1 - nu) * e(0, 1) * e(0, 1));
  const double area = kPi * (0.46 * 0.46 - 0.13 * 0.13);
  double cut = 0;  // area of cells that are cut, which have some more stiffness
  for (const gpu::NurbsShellGauss& gauss : model->gauss) cut += gauss.is_surface ? 0 : gauss.area_m2;
  EXPECT_GT(cut, 0.05 * area);
  EXPECT_NEAR(shell.Energy(x), density * (area + kNurbsShellCutAwayStiffness * cut), 1e-8 * density * area);
  // Control points that no loop comes near are in balance; all together are, too.
  const VectorXd gradient = shell.Gradient(x);
  size_t inner = 0;
  Vector3d sum = Vector3d::Zero();
  for (uint32_t c = 0; c < model->control_count(); ++c) {
    const Vector3d force = gradient.segment<3>(3 * static_cast<Eigen::Index>(c));
    sum += force;
    double of_loops = 0;
    for (uint32_t k = model->control_begin[c]; k < model->control_begin[c + 1]; ++k) {
      of_loops += model->gauss[model->entries[model->control_entries[k]].gauss].is_surface ? 0 : 1;
    }
    if (of_loops > 0) continue;
    ++inner;
    EXPECT_LT(force.norm(), 1e-10 * stretch) << c;
  }
  EXPECT_GT(inner, 3U);
  EXPECT_LT(sum.norm(), 1e-10 * stretch);
}

/// Holds a flat sheet at points of a circle by springs, as clamped and simply supported rims are: against its deflection, and the slope
/// across the circle.
struct RimSprings {
  double radius = 0;      // of the sheet's parameters, which are lengths
  double deflection = 0;  // [N/m^2] per length of the rim
  double slope = 0;       // [N]
};

NurbsShellLoad WithRim(const NurbsShellCase& c, const RimSprings& rim, const VectorXd& rest) {
  constexpr int kPoints = 720;
  const NurbsSurface& surface = c.object.patches()[0].surface;
  std::vector<Eigen::Triplet<double>> springs;
  for (int i = 0; i < kPoints; ++i) {
    const double angle = 2 * kPi * (i + 0.5) / kPoints;
    const Eigen::Vector2d out(std::cos(angle), std::sin(angle));
    const Eigen::Vector2d uv = Eigen::Vector2d(0.5, 0.5) + rim.radius * (1 - 1e-9) * out;
    std::array<std::array<nurbs_basis::Basis, 3>, 2> basis;
    std::array<size_t, 2> first{};
    for (const size_t d : {0U, 1U}) {
      const auto direction = d == 0 ? NurbsDirection::kU : NurbsDirection::kV;
      const auto at = nurbs_basis::Locate(surface.knots(direction), surface.degree(direction), uv[static_cast<Eigen::Index>(d)]);
      basis[d] = nurbs_basis::BasisWithDerivatives(surface.knots(direction), surface.degree(direction), at.span, at.t);
      first[d] = at.first;
    }
    std::vector<std::array<double, 3>> rows;  // coordinate, value, slope
    for (size_t a = 0; a <= static_cast<size_t>(surface.degree(NurbsDirection::kU)); ++a) {
      for (size_t b = 0; b <= static_cast<size_t>(surface.degree(NurbsDirection::kV)); ++b) {
        const double j = 3.0 * test::ControlAt(c, 0, first[0] + a, first[1] + b) + 2;
        rows.push_back(
            {j, basis[0][0][a] * basis[1][0][b], out.x() * basis[0][1][a] * basis[1][0][b] + out.y() * basis[0][0][a] * basis[1][1][b]});
      }
    }
    const double length = 2 * kPi * rim.radius / kPoints;
    for (const auto& p : rows) {
      for (const auto& q : rows) {
        springs.emplace_back(static_cast<int>(p[0]), static_cast<int>(q[0]),
                             length * (rim.deflection * p[1] * q[1] + rim.slope * p[2] * q[2]));
      }
    }
  }
  return {.dead_n = c.load_n, .following = [springs, rest](const VectorXd& x, VectorXd* force, std::vector<Eigen::Triplet<double>>* k) {
            for (const auto& s : springs) (*force)[s.row()] -= s.value() * (x - rest)[s.col()];
            k->insert(k->end(), springs.begin(), springs.end());
          }};
}

/// Deflection at the middle of a disc that is cut out of a square of 1 m, under an even load, by that of Kirchhoff's plate. `spans`: of
/// patch 0, which has the rim; the middle is that of the last patch.
double DiscDeflection(const NurbsObject& object, size_t spans, double radius, bool is_clamped) {
  const NurbsShellMaterial material{.thickness_m = 0.01, .density_kg_per_m3 = 1, .young_modulus_pa = 1e9, .poisson_ratio = 0.3};
  NurbsShellCase c{object, material, {}, {}, {}, object.patches().size() - 1, 0.5, 0.5, Vector3d::UnitZ(), 0, {}};
  c.model = *BuildNurbsShell(c.object, material);
  const ReferenceNurbsShell shell(c.model);
  const double load_pa = 1e-3, h = 1.0 / static_cast<double>(spans);
  c.load_n = shell.AreaLoad({0, 0, load_pa});
  test::CoordinateGroups groups(c.model.control_count());
  for (uint32_t j = 0; j < c.model.control_count(); ++j) {
    groups.Fix(j, 0);
    groups.Fix(j, 1);
  }
  const double plate = material.young_modulus_pa * std::pow(material.thickness_m, 3) / (12 * (1 - 0.3 * 0.3));
  const RimSprings rim{.radius = radius, .deflection = 1e3 * plate / std::pow(h, 3), .slope = is_clamped ? 1e2 * plate / h : 0};
  const auto x = SolveNurbsShell(shell, WithRim(c, rim, shell.Rest()), groups.Numbers(), shell.Rest(), 0, 1);
  EXPECT_TRUE(x.ok()) << x.status();
  const double clamped = load_pa * std::pow(radius, 4) / (64 * plate);
  return test::DeflectionOf(c, *x - shell.Rest()) / (is_clamped ? clamped : (5 + 0.3) / (1 + 0.3) * clamped);
}

TEST(NurbsShellVvTest, ATrimmedDiscBendsAsAPlate) {
  for (const bool is_clamped : {true, false}) {
    double before = 1;
    for (const size_t spans : {6U, 12U, 24U}) {
      const NurbsObject object = test::TrimmedSheet(3, spans, 1, {{test::CircleTrim({0.5, 0.5}, 0.43)}});
      const double share = DiscDeflection(object, spans, 0.43, is_clamped);
      std::printf("| disc, %s | %zu | %.5f |\n", is_clamped ? "clamped" : "supported", spans, share);
      EXPECT_NEAR(share, 1, spans == 6 ? 0.03 : 0.01);
      EXPECT_LT(std::abs(share - 1), before) << "finer is nearer";
      before = std::abs(share - 1);
    }
  }
}

TEST(NurbsShellVvTest, ADiscOfTwoPatchesBendsAsOne) {
  // The ring and the disc inside of it have other control points and meet along a circle of trims alone.
  for (const bool is_clamped : {true, false}) {
    for (const size_t spans : {12U, 24U}) {
      const NurbsObject object = *NurbsObject::Create(test::RingAndDisc(3, spans, spans * 2 / 3 + 1, 0.43, 0.23));
      const double share = DiscDeflection(object, spans, 0.43, is_clamped);
      std::printf("| ring and disc, %s | %zu | %.5f |\n", is_clamped ? "clamped" : "supported", spans, share);
      EXPECT_NEAR(share, 1, spans == 12 ? 0.02 : 0.01);
    }
  }
}

TEST(NurbsShellVvTest, ADiscIsHeldAtItsRim) {
  // By the loop itself, against Kirchhoff's plate.
  const NurbsShellMaterial material{.thickness_m = 0.01, .density_kg_per_m3 = 1, .young_modulus_pa = 1e9, .poisson_ratio = 0.3};
  const double radius = 0.43, load_pa = 1e-3;
  const double plate = material.young_modulus_pa * std::pow(material.thickness_m, 3) / (12 * (1 - 0.3 * 0.3));
  for (const bool is_clamped : {true, false}) {
    for (const size_t spans : {6U, 12U, 24U}) {
      NurbsShellCase c{test::TrimmedSheet(3, spans, 1, {{test::CircleTrim({0.5, 0.5}, radius)}}),
                       material,
                       {},
                       {},
                       {},
                       0,
                       0.5,
                       0.5,
                       Vector3d::UnitZ(),
                       0,
                       {}};
      c.model = *BuildNurbsShell(c.object, material);
      const auto frame = NurbsShellCoupler(c.object, material, &c.model).HoldRims(0, is_clamped, [](const Vector3d&) { return true; });
      ASSERT_TRUE(frame.ok()) << frame.status();
      ASSERT_EQ(frame->size(), 4U);
      c.model.ListEntries();
      const ReferenceNurbsShell shell(c.model);
      c.load_n = shell.AreaLoad({0, 0, load_pa});
      test::CoordinateGroups groups(c.model.control_count());
      for (const uint32_t j : *frame) {
        for (int axis = 0; axis < 3; ++axis) groups.Fix(j, axis);
      }
      c.groups = groups.Numbers();
      const double clamped = load_pa * std::pow(radius, 4) / (64 * plate);
      const double share = test::DeflectionOf(c, Linear(c)) / (is_clamped ? clamped : (5 + 0.3) / (1 + 0.3) * clamped);
      std::printf("| disc, rim %s | %zu | %.5f |\n", is_clamped ? "clamped" : "hinged", spans, share);
      EXPECT_NEAR(share, 1, spans == 6 ? 0.05 : 0.02);
    }
  }
}

TEST(NurbsShellVvTest, GradientAndStiffnessOfCoupledPatchesMatchFiniteDifferences) {
  // Flat ones, and two that meet at a right angle.
  const NurbsShellMaterial material{.thickness_m = 0.02, .density_kg_per_m3 = 1, .young_modulus_pa = 1e5, .poisson_ratio = 0.3};
  for (const double angle : {0.0, kPi / 2}) {
    NurbsObjectDescription two = test::SplitSheet(3, 3, 4, 0.3, 0.5, 0.5, 0.5);
    for (Vector3d& p : two.patches[1].surface.control_m) p = Eigen::AngleAxisd(angle, Vector3d::UnitY()) * p;
    const auto model = BuildNurbsShell(*NurbsObject::Create(two), material);
    ASSERT_TRUE(model.ok()) << model.status();
    ASSERT_TRUE(std::ranges::any_of(model->gauss, [](const gpu::NurbsShellGauss& g) { return g.coupling.has_value(); }));
    ExpectDerivativesMatch(*model, 5);
  }
}

size_t FreeMotionsOf(const gpu::NurbsShellModel& model, double least) {
  const ReferenceNurbsShell shell(model);
  Eigen::MatrixXd k = Eigen::MatrixXd::Zero(shell.size(), shell.size());
  for (const auto& t : shell.Stiffness(shell.Rest())) k(t.row(), t.col()) += t.value();
  const VectorXd values = Eigen::SelfAdjointEigenSolver<Eigen::MatrixXd>(k, Eigen::EigenvaluesOnly).eigenvalues();
  return static_cast<size_t>(std::ranges::count_if(values, [&](double v) { return v < least * values[values.size() - 1]; }));
}

TEST(NurbsShellVvTest, OnlyRigidMotionsOfCoupledPatchesAreFree) {
  const NurbsShellMaterial material{.thickness_m = 0.1, .density_kg_per_m3 = 1, .young_modulus_pa = 1, .poisson_ratio = 0.3};
  for (const int degree : {2, 3, 4}) {
    const NurbsObjectDescription two = test::SplitSheet(degree, 4, 5, 1, 0.55, 0.4, 0.6);
    const auto model = BuildNurbsShell(*NurbsObject::Create(two), material);
    ASSERT_TRUE(model.ok()) << model.status();
    EXPECT_EQ(FreeMotionsOf(*model, 1e-13), 6U) << degree;
  }
  // At an angle they stay there, or turn as on a hinge.
  NurbsObjectDescription folded = test::SplitSheet(3, 4, 5, 1, 0.5, 0.5, 0.5);
  for (Vector3d& p : folded.patches[1].surface.control_m) p = Eigen::AngleAxisd(1, Vector3d::UnitY()) * p;
  const NurbsObject object = *NurbsObject::Create(folded);
  EXPECT_EQ(FreeMotionsOf(*BuildNurbsShell(object, material), 1e-13), 6U);
  EXPECT_EQ(FreeMotionsOf(*BuildNurbsShell(object, material, {.crease_stiffness = 0}), 1e-13), 7U);
}

TEST(NurbsShellVvTest, CoupledPatchTests) {
  // What is the same on both sides strains no coupling: even strain, and even curvature.
  const NurbsShellMaterial material{.thickness_m = 0.01, .density_kg_per_m3 = 1, .young_modulus_pa = 1e6, .poisson_ratio = 0.3};
  const auto model = BuildNurbsShell(*NurbsObject::Create(test::SplitSheet(3, 5, 8, 1, 0.55, 0.4, 0.6)), material);
  ASSERT_TRUE(model.ok()) << model.status();
  gpu::NurbsShellModel couplings = *model;
  double length = 0;
  for (gpu::NurbsShellGauss& gauss : couplings.gauss) {
    if (gauss.coupling) length += gauss.area_m2;
    if (!gauss.coupling) gauss.area_m2 = 0;
  }
  EXPECT_NEAR(length, 1.0212362, 1e-6) << "of the curve";
  const ReferenceNurbsShell shell(*model), held(couplings);
  Eigen::Matrix3d f = Eigen::Matrix3d::Identity();
  f(0, 0) = 1.1;
  f(0, 1) = 0.2;
  f(1, 1) = 0.95;
  VectorXd strained = shell.Rest(), bent = shell.Rest(), apart = shell.Rest();
  for (Eigen::Index k = 0; k < bent.size() / 3; ++k) strained.segment<3>(3 * k) = f * strained.segment<3>(3 * k);
  for (size_t n = 0; n < model->net_begin[1]; ++n) {
    if (model->net_part_begin[n + 1] != model->net_part_begin[n] + 1) continue;  // trimmed away
    apart[3 * static_cast<Eigen::Index>(model->net_parts[model->net_part_begin[n]].control) + 2] = 1e-3;
  }
  EXPECT_LT(held.Energy(strained), 1e-12 * shell.Energy(strained));
  // z = x^2 / 200 by the control points of a spline of degree 3 on even knots.
  for (size_t p = 0; p < 2; ++p) {
    const NurbsObject object = *NurbsObject::Create(test::SplitSheet(3, 5, 8, 1, 0.55, 0.4, 0.6));
    const auto knots = object.patches()[p].surface.knots(NurbsDirection::kU);
    const size_t columns = object.patches()[p].surface.count(NurbsDirection::kV);
    for (size_t n = model->net_begin[p]; n < model->net_begin[p + 1]; ++n) {
      if (model->net_part_begin[n + 1] != model->net_part_begin[n] + 1) continue;
      const size_t i = (n - model->net_begin[p]) / columns;
      double square = 0;  // the blossom of t^2
      for (const auto& [a, b] : {std::pair(1, 2), std::pair(1, 3), std::pair(2, 3)}) {
        square += (knots[i + static_cast<size_t>(a)] - 0.5) * (knots[i + static_cast<size_t>(b)] - 0.5) / 3;
      }
      bent[3 * static_cast<Eigen::Index>(model->net_parts[model->net_part_begin[n]].control) + 2] = square / 200;
    }
  }
  EXPECT_LT(held.Energy(bent), 1e-9 * shell.Energy(bent));
  const double gap = kNurbsCouplingStiffness * 1e6 * 0.01 / (1 - 0.09) / 0.1625;  // a span is 0.2 or 0.125 wide
  EXPECT_NEAR(held.Energy(apart), length * gap / 2 * 1e-6, 1e-2 * held.Energy(apart));
}

TEST(NurbsShellVvTest, AFoldAlongTrimsHoldsItsAngle) {
  // An L of two legs, as in ACreaseHoldsItsAngle, but of patches that go on beyond the fold, where they are trimmed.
  const double side = 10;
  NurbsObjectDescription folded = test::SplitSheet(3, 9, 11, side, 0.5, 0.5, 0.5);
  const Eigen::Affine3d up(Eigen::AngleAxisd(-kPi / 2, Vector3d::UnitY()));
  for (Vector3d& p : folded.patches[1].surface.control_m) p = up * p;
  const NurbsShellMaterial material{.thickness_m = 0.1, .density_kg_per_m3 = 1, .young_modulus_pa = 1.2e6, .poisson_ratio = 0};
  NurbsShellCase c{*NurbsObject::Create(folded), material, {}, {}, {}, 1, 1, 0.5, Vector3d::UnitX(), 0, {}};
  c.model = *BuildNurbsShell(c.object, material);
  const ReferenceNurbsShell shell(c.model);
  c.load_n = VectorXd::Zero(shell.size());
  test::CoordinateGroups groups(c.model.control_count());
  const size_t columns = test::CountOf(c.object, 0, NurbsDirection::kV);
  for (size_t j = 0; j < columns; ++j) {
    for (int axis = 0; axis < 3; ++axis) groups.Fix(test::ControlAt(c, 0, 0, j), axis);
    groups.Fix(test::ControlAt(c, 0, 1, j), 2);
  }
  const size_t last = test::CountOf(c.object, 1, NurbsDirection::kU) - 1, rows = test::CountOf(c.object, 1, NurbsDirection::kV);
  // An even line load by the widths of the basis functions.
  const auto knots = c.object.patches()[1].surface.knots(NurbsDirection::kV);
  for (size_t j = 0; j < rows; ++j) test::AddPointLoad(&c, 1, last, j, {1e-2 * (knots[j + 4] - knots[j]) / 4, 0, 0});
  c.groups = groups.Numbers();
  const double exact = 1e-3 / 100 * (125.0 / 3 + 125);  // E I = 100 by the width
  const double found = test::DeflectionOf(c, Linear(c));
  std::printf("| fold along trims | %.5f |\n", found / exact);
  EXPECT_NEAR(found, exact, 0.02 * exact);
}

/// Stress along the tension at the rim of a hole in a square sheet of 1 m, at right angles to the tension, by the tension.
double HoleStress(int degree, size_t spans, double radius) {
  const NurbsShellMaterial material{.thickness_m = 0.01, .density_kg_per_m3 = 1, .young_modulus_pa = 1e6, .poisson_ratio = 0.3};
  NurbsShellCase c{test::TrimmedSheet(degree, spans, 1, {test::WholeLoop(), {test::CircleTrim({0.5, 0.5}, radius, true)}}),
                   material,
                   {},
                   {},
                   {},
                   0,
                   0.5,
                   0.5,
                   Vector3d::UnitX(),
                   1e-4,
                   {}};
  c.model = *BuildNurbsShell(c.object, material);
  c.load_n = VectorXd::Zero(3 * static_cast<Eigen::Index>(c.model.control_count()));
  constexpr double kTension_pa = 1;
  const size_t count = test::CountOf(c.object, 0, NurbsDirection::kU);
  const auto knots = c.object.patches()[0].surface.knots(NurbsDirection::kV);
  for (size_t j = 0; j < count; ++j) {
    const double share = (knots[j + static_cast<size_t>(degree) + 1] - knots[j]) / (degree + 1);  // integral of the basis function
    const Vector3d force(kTension_pa * material.thickness_m * share, 0, 0);
    test::AddPointLoad(&c, 0, count - 1, j, force);
    test::AddPointLoad(&c, 0, 0, j, -force);
  }
  test::CoordinateGroups groups(c.model.control_count());
  for (uint32_t j = 0; j < c.model.control_count(); ++j) groups.Fix(j, 2);
  c.groups = groups.Numbers();
  const VectorXd rest = ReferenceNurbsShell(c.model).Rest();
  const NurbsPoint at = test::MovedSurfaces(c.object, c.model, rest + Linear(c))[0].PointWithDerivatives(0.5, 0.5 + radius);
  const double along = at.du.x() - 1, across = at.dv.y() - 1;
  return material.young_modulus_pa / (1 - 0.3 * 0.3) * (along + 0.3 * across) / kTension_pa;
}

TEST(NurbsShellVvTest, TensionPilesUpAtAHole) {
  // Howland 1930 for a strip with a hole of a tenth of its width: 3.03, of the stress far away; Kirsch's 3 without sides.
  double before = 2;
  for (const size_t spans : {20U, 40U, 80U}) {
    const double stress = HoleStress(3, spans, 0.05);
    std::printf("| hole | %zu | %.4f |\n", spans, stress);
    EXPECT_LT(std::abs(stress - 3.03), before) << "finer is nearer";
    before = std::abs(stress - 3.03);
  }
  EXPECT_LT(before, 0.03 * 3.03);
}

struct Row {
  int spans;
  double value;
};

void Print(const char* what, int degree, const char* rule, const std::vector<Row>& rows, double reference) {
  std::printf("| %s | %d | %s |", what, degree, rule);
  for (const Row& row : rows) std::printf(" %.4f |", row.value / reference);
  std::printf("\n");
}

using MakeCase = std::function<NurbsShellCase(int degree, int spans, NurbsShellQuadrature)>;

/// Deflections at the point of interest, with meshes of so many spans a side.
std::vector<Row> Deflections(const MakeCase& make, int degree, const std::vector<int>& spans, NurbsShellQuadrature quadrature) {
  std::vector<Row> rows;
  for (const int n : spans) {
    const NurbsShellCase c = make(degree, n, quadrature);
    rows.push_back({n, test::DeflectionOf(c, Linear(c))});
  }
  return rows;
}

TEST(NurbsShellVvTest, ScordelisLoRoof) {
  for (const auto quadrature : {kFull, kReduced}) {
    EXPECT_NEAR(Deflections(test::ScordelisLoRoof, 3, {6}, quadrature)[0].value, 0.3006, 0.02 * 0.3006);
    EXPECT_NEAR(Deflections(test::ScordelisLoRoof, 2, {10}, quadrature)[0].value, 0.3006, 0.02 * 0.3006);
  }
}

TEST(NurbsShellVvTest, PinchedCylinder) {
  for (const auto quadrature : {kFull, kReduced}) {
    EXPECT_NEAR(Deflections(test::PinchedCylinder, 3, {16}, quadrature)[0].value, 1.8248e-5, 0.02 * 1.8248e-5);
  }
}

TEST(NurbsShellVvTest, PinchedHemisphere) {
  for (const auto quadrature : {kFull, kReduced}) {
    EXPECT_NEAR(Deflections(test::PinchedHemisphere, 3, {10}, quadrature)[0].value, 0.0924, 0.02 * 0.0924);
  }
  EXPECT_NEAR(Deflections(test::PinchedHemisphere, 2, {16}, kReduced)[0].value, 0.0924, 0.02 * 0.0924);
}

TEST(NurbsShellVvTest, SlowTablesOfDeflections) {
  const std::vector<int> spans = {2, 4, 8, 12, 16, 24, 32};
  std::printf("| case | degree | rule |");
  for (const int n : spans) std::printf(" %d |", n);
  std::printf("\n");
  const std::vector<std::tuple<const char*, MakeCase, double>> cases = {{"roof", test::ScordelisLoRoof, 0.3006},
                                                                        {"cylinder", test::PinchedCylinder, 1.8248e-5},
                                                                        {"hemisphere", test::PinchedHemisphere, 0.0924},
                                                                        {"hemisphere of 4 patches", test::WholeHemisphere, 0.0924}};
  for (const auto& [name, make, reference] : cases) {
    for (const int degree : {2, 3, 4}) {
      for (const auto quadrature : {kFull, kReduced}) {
        const auto rows = Deflections(make, degree, spans, quadrature);
        Print(name, degree, quadrature == kFull ? "full" : "reduced", rows, reference);
        EXPECT_NEAR(rows.back().value, reference, (degree == 2 ? 0.06 : 0.02) * reference);
      }
    }
  }
  // Membranes of degree 2 lock; with enough spans they arrive, too.
  const auto fine = Deflections(test::PinchedCylinder, 2, {48}, kReduced);
  Print("cylinder, 48 spans", 2, "reduced", fine, 1.8248e-5);
  EXPECT_NEAR(fine[0].value, 1.8248e-5, 0.02 * 1.8248e-5);
}

TEST(NurbsShellVvTest, PatchesJoinedSmoothlyAreAsGoodAsOne) {
  const double one = Deflections(test::PinchedHemisphere, 3, {6}, kReduced)[0].value;
  const double four = Deflections(test::WholeHemisphere, 3, {6}, kReduced)[0].value;
  EXPECT_NEAR(four, one, 0.01 * one);
}

TEST(NurbsShellVvTest, ACreaseHoldsItsAngle) {
  // An L of two strips of length 5, clamped at one end, pushed at the other along the first: legs bend, the corner turns and stays square.
  for (const int degree : {2, 3}) {
    const test::Vector3d corner(5, 0, 0);
    const Eigen::Affine3d up = Eigen::Translation3d(corner) * Eigen::AngleAxisd(-kPi / 2, Vector3d::UnitY());
    const size_t along = static_cast<size_t>(degree) + 6;
    const NurbsSurface leg = test::Rectangle(5, 1, degree).Refined(along, static_cast<size_t>(degree) + 1);
    const NurbsShellMaterial material{.thickness_m = 0.1, .density_kg_per_m3 = 1, .young_modulus_pa = 1.2e6, .poisson_ratio = 0};
    NurbsShellCase c = test::MakeShellCase({leg, leg.Transformed(up)}, material, kReduced);
    test::CoordinateGroups groups(c.model.control_count());
    const size_t columns = test::CountOf(c.object, 0, NurbsDirection::kV);
    for (size_t j = 0; j < columns; ++j) {
      for (int axis = 0; axis < 3; ++axis) groups.Fix(test::ControlAt(c, 0, 0, j), axis);
      groups.Fix(test::ControlAt(c, 0, 1, j), 2);
      test::AddPointLoad(&c, 1, along - 1, j, {1e-3 / static_cast<double>(columns), 0, 0});
    }
    c.groups = groups.Numbers();
    c.patch = 1;
    c.u = 1;
    c.v = 0.5;
    c.direction = Vector3d::UnitX();
    const double exact = 1e-3 / 100 * (125.0 / 3 + 125);  // E I = 100
    EXPECT_NEAR(test::DeflectionOf(c, Linear(c)), exact, 0.02 * exact) << degree;
  }
}

TEST(NurbsShellVvTest, AStripUnderAnEndMomentIsACircle) {
  for (const int degree : {2, 3}) {
    const double turn = 2 * kPi;
    const test::BentStrip strip = test::BendStrip(degree, degree == 2 ? 24 : 12, kReduced, turn);
    ASSERT_TRUE(strip.status.ok()) << strip.status;
    EXPECT_NEAR(strip.end_angle, turn, 1e-2 * turn);
    EXPECT_LT((strip.end_m - strip.start_m).norm(), 0.02 * strip.length_m) << "the ends meet";
    EXPECT_NEAR(strip.height_m, strip.length_m / kPi, 0.01 * strip.length_m);
  }
}

TEST(NurbsShellVvTest, LargeDeflectionsOfACantileverAreThoseOfTheElastica) {
  // L = 10, E = 1.2e6, b = 1, h = 0.1, P = 4: the case of Sze, Liu, Lo 2004 with P L^2 / (E I) = 4.
  const Elastica exact(4.0);
  EXPECT_NEAR(exact.down, 0.6700, 1e-3);
  for (const auto& [degree, spans] : {std::pair(2, 16), std::pair(3, 8)}) {
    const test::LoadedCantilever c = test::LoadCantilever(degree, spans, kReduced, 4.0);
    ASSERT_TRUE(c.status.ok()) << c.status;
    EXPECT_NEAR(c.down_m / 10, exact.down, 0.01 * exact.down) << degree;
    EXPECT_NEAR(c.back_m / 10, exact.back, 0.01 * exact.back) << degree;
  }
}

TEST(NurbsShellVvTest, AnInflatedSphereFollowsTheLawOfThinShells) {
  const NurbsShellMaterial material{.thickness_m = 0.005, .density_kg_per_m3 = 1, .young_modulus_pa = 1e5, .poisson_ratio = 0.4};
  const NurbsObject object = *NurbsObject::FromSurfaces("sphere", NurbsSphere(0.1))->Refined(1);
  const auto model = BuildNurbsShell(object, material);
  ASSERT_TRUE(model.ok()) << model.status();
  const ReferenceNurbsShell shell(*model);
  // p = h E (s^2 - 1) / ((1 - nu) R s) at a stretch of s, without bending.
  const double stretch = 1.2;
  const double pressure_pa = 0.005 * 1e5 * (stretch * stretch - 1) / ((1 - 0.4) * 0.1 * stretch);
  // Rigid motions are free: a soft spring to the rest shape holds the sphere, and carries nothing of a balanced load.
  const double soft = 1e-6 * 1e5 * 0.005;
  std::vector<int> groups(static_cast<size_t>(shell.size()));
  for (size_t i = 0; i < groups.size(); ++i) groups[i] = static_cast<int>(i);
  VectorXd x = shell.Rest();
  for (int k = 0; k < 40; ++k) {
    NurbsShellLoad load{.dead_n = shell.PressureLoad(x, pressure_pa)};
    const VectorXd before = x;
    load.following = [&](const VectorXd& at, VectorXd* force, std::vector<Eigen::Triplet<double>>* stiffness) {
      *force -= soft * (at - before);
      for (int i = 0; i < at.size(); ++i) stiffness->emplace_back(i, i, soft);
    };
    const auto next = SolveNurbsShell(shell, load, groups, x, 1e-9, 60);
    ASSERT_TRUE(next.ok()) << next.status();
    x = *next;
    if ((x - before).norm() < 1e-9) break;
  }
  double sum = 0, area = 0;
  for (const NurbsSurface& surface : test::MovedSurfaces(object, *model, x)) {
    for (double u = 0.05; u < 1; u += 0.1) {
      for (double v = 0.05; v < 1; v += 0.1) {
        sum += surface.Point(u, v).norm();
        area += 1;
      }
    }
  }
  EXPECT_NEAR(sum / area / 0.1, stretch, 0.002);
}

}  // namespace
}  // namespace palpate::sim::nurbs_shell_vv_test
