#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <Eigen/Dense>

#include "absl/strings/str_format.h"
#include "clients/cli/verify_tissue_bench.h"
#include "gpu/base/status.h"
#include "sim/mesh/generators.h"

namespace palpate::cli {
namespace {

using Eigen::Matrix3d;
using Eigen::Vector3d;

constexpr uint32_t kDriveSteps = 12;  // driven regions have arrived

bool IsBoundary(const Vector3d& at, const Vector3d& size_m) { return ((size_m / 2 - at.cwiseAbs()).array() < 1e-9).any(); }

/// Runs a scene to rest and measures its energy [J].
absl::StatusOr<double> EnergyOf(TissueBench& bench, v1::SceneSpec& spec, double still_m) {
  spec.mutable_solver()->set_report_energy(true);
  PALPATE_ASSIGN_OR_RETURN(const std::unique_ptr<TissueBench::Scene> scene, bench.Create(spec));
  PALPATE_RETURN_IF_ERROR(scene->Settle(kDriveSteps, 60, still_m).status());
  return scene->ElasticEnergy();
}

/// Energy density [J/m^3] that the server measures in a centred block with the deformation gradient f, which the boundary is driven to.
/// Where its vertices are too many for the regions of a scene, the faces across z are free and the stress of f pulls at them instead.
absl::StatusOr<double> MeasuredDensity(TissueBench& bench, const sim::TetMesh& mesh, const Vector3d& size_m, const TissueLaw& law,
                                       const Matrix3d& f) {
  constexpr int kMaxRegions = 256;
  v1::SceneSpec spec = StaticSceneOf(mesh, law.Spec(), 60);
  DriveAffine(
      mesh, f, [&](const Vector3d& at) { return IsBoundary(at, size_m); }, spec);
  if (spec.bodies(0).fixed_size() > kMaxRegions) {
    spec.mutable_bodies(0)->clear_fixed();
    const Vector3d without_ends(size_m.x(), size_m.y(), 2 * size_m.z());
    DriveAffine(
        mesh, f, [&](const Vector3d& at) { return IsBoundary(at, without_ends); }, spec);
    const Vector3d pull_n = size_m.x() * size_m.y() * law.Stress(f).col(2);
    for (const double side : {-1.0, 1.0}) LoadPlane(mesh, 2, side * size_m.z() / 2, side * pull_n, spec);
  }
  PALPATE_ASSIGN_OR_RETURN(const double energy_j, EnergyOf(bench, spec, 1e-6));
  return energy_j / size_m.prod();
}

Matrix3d Root(const Matrix3d& c) { return Eigen::SelfAdjointEigenSolver<Matrix3d>(c).operatorSqrt(); }

struct Material {
  TissueLaw law;
  bool has_fibers = false;

  v1::MaterialSpec Spec() const {
    v1::MaterialSpec spec = law.Spec();
    if (has_fibers) {
      Vector3d along = Vector3d(1, -2, 3).normalized();
      spec.mutable_fibers()->mutable_direction()->set_x(along.x());
      spec.mutable_fibers()->mutable_direction()->set_y(along.y());
      spec.mutable_fibers()->mutable_direction()->set_z(along.z());
      spec.mutable_fibers()->set_young_modulus_pa(2 * law.young_modulus_pa);
    }
    return spec;
  }
};

/// E8: stress as the derivative of the energy. The server measures the energy at deformations around F; their differences give the second
/// Piola-Kirchhoff stress, which is compared with the closed form, and then pulls as loads on a free block: that must take the shape F.
absl::Status StressFromEnergy(TissueBench& bench) {
  const Vector3d size(1, 1, 1);
  PALPATE_ASSIGN_OR_RETURN(const sim::TetMesh mesh, sim::BoxMesh({3, 3, 3}, size));
  std::mt19937 random(96547);
  Matrix3d noise;
  for (int i = 0; i < 9; ++i) noise(i / 3, i % 3) = 0.12 * (static_cast<double>(random()) / 4294967295.0 - 0.5);
  // Symmetric and stretched in all directions: a block under tension does not turn. Only a little: in strong tension all around a block
  // becomes soft (the cube of Rivlin), which magnifies what floats leave of the stress.
  const Matrix3d f = 1.06 * Matrix3d::Identity() + (noise + noise.transpose()) / 2;
  constexpr double kStep = 0.01;  // of C, or of the strain
  constexpr double kModulus_pa = 1000, kNu = 0.3;
  for (const Material& material :
       {Material{{v1::MATERIAL_MODEL_STABLE_NEO_HOOKEAN, "neo-Hookean", kModulus_pa, kNu}},
        Material{{v1::MATERIAL_MODEL_COROTATED_LINEAR, "corotated", kModulus_pa, kNu}},
        Material{{v1::MATERIAL_MODEL_ST_VENANT_KIRCHHOFF, "St-Venant-Kirchhoff", kModulus_pa, kNu}},
        Material{{v1::MATERIAL_MODEL_LINEAR, "linear", kModulus_pa, kNu}},
        Material{{v1::MATERIAL_MODEL_ST_VENANT_KIRCHHOFF, "St-Venant-Kirchhoff with fibres", kModulus_pa, kNu}, true}}) {
    const bool is_linear = material.law.model == v1::MATERIAL_MODEL_LINEAR;
    const auto energy_at = [&](const Matrix3d& change) -> absl::StatusOr<double> {
      v1::SceneSpec spec = StaticSceneOf(mesh, material.Spec(), 60);
      const Matrix3d moved = is_linear ? Matrix3d(f + change) : Root(f.transpose() * f + change);
      DriveAffine(
          mesh, moved, [&](const Vector3d& at) { return IsBoundary(at, size); }, spec);
      return EnergyOf(bench, spec, 1e-7);
    };
    Matrix3d measured_pa;  // second Piola-Kirchhoff; of the linear model the only stress
    for (int i = 0; i < 3; ++i) {
      for (int j = i; j < 3; ++j) {
        Matrix3d change = Matrix3d::Zero();
        change(i, j) = change(j, i) = kStep;
        PALPATE_ASSIGN_OR_RETURN(const double more_j, energy_at(change));
        PALPATE_ASSIGN_OR_RETURN(const double less_j, energy_at(-change));
        const double slope = (more_j - less_j) / (2 * kStep) / (i == j ? 1 : 2);
        measured_pa(i, j) = measured_pa(j, i) = is_linear ? slope : 2 * slope;
      }
    }
    const std::string name = absl::StrFormat("stress of the energy, %s: ", material.law.name);
    if (!material.has_fibers) {
      const Matrix3d exact_pa = is_linear ? material.law.Stress(f) : Matrix3d(f.inverse() * material.law.Stress(f));
      bench.Add("E8", name + "worst component against the closed form, over the largest", 0,
                (measured_pa - exact_pa).cwiseAbs().maxCoeff() / exact_pa.cwiseAbs().maxCoeff(), 1e-4);
    }
    v1::SceneSpec spec = StaticSceneOf(mesh, material.Spec(), 100);
    Calm(spec);
    LoadFaces(mesh, size, is_linear ? measured_pa : Matrix3d(f * measured_pa), spec);
    PALPATE_ASSIGN_OR_RETURN(const std::unique_ptr<TissueBench::Scene> scene, bench.Create(spec));
    PALPATE_ASSIGN_OR_RETURN(const std::vector<Vector3d> x, scene->Settle(kDriveSteps, 60, 1e-7));
    Vector3d mean = Vector3d::Zero();
    for (const Vector3d& v : x) mean += v / static_cast<double>(x.size());
    Matrix3d moved = Matrix3d::Zero(), rest = Matrix3d::Zero();
    for (size_t v = 0; v < x.size(); ++v) {
      moved += (x[v] - mean) * mesh.vertices[v].transpose();
      rest += mesh.vertices[v] * mesh.vertices[v].transpose();
    }
    const Matrix3d got = moved * rest.inverse();
    const Matrix3d error = is_linear ? Matrix3d((got + got.transpose()) / 2 - f) : Matrix3d(got.transpose() * got - f.transpose() * f);
    bench.Add("E8", name + (is_linear ? "strain" : "C = F^T F") + " of a block pulled by it, worst component", 0,
              error.cwiseAbs().maxCoeff(), 2e-4);
  }
  return absl::OkStatus();
}

/// What a body does under a load and 5 % less and more of it.
struct LoadResponse {
  std::array<double, 3> force_n{}, length_m{}, energy_j{};

  /// First and second derivative of `y` by the length at the middle load, of the parabola through the three points.
  std::pair<double, double> Derivatives(const std::array<double, 3>& y) const {
    const double low = length_m[1] - length_m[0], high = length_m[2] - length_m[1];
    const double before = (y[1] - y[0]) / low, after = (y[2] - y[1]) / high;
    return {(before * high + after * low) / (low + high), 2 * (after - before) / (low + high)};
  }
};

void AddDerivatives(TissueBench& bench, const std::string& name, const LoadResponse& r) {
  const auto [force_n, stiffness_n_per_m] = r.Derivatives(r.energy_j);
  bench.Add("E8", name + "slope of the energy over the length against the load [N]", r.force_n[1], force_n, 5e-4 * r.force_n[1]);
  const double expected = r.Derivatives(r.force_n).first;
  bench.Add("E8", name + "curvature of the energy against the change of load over that of length [N/m]", expected, stiffness_n_per_m,
            1e-3 * expected);
}

/// E8: the tangent, along one path. Loads, lengths and energies are all measured.
absl::Status TangentFromEnergy(TissueBench& bench) {
  const Vector3d size(0.1, 0.1, 0.2);
  PALPATE_ASSIGN_OR_RETURN(const sim::TetMesh mesh, sim::BoxMesh({3, 3, 5}, size));
  constexpr double kModulus_pa = 10000, kNu = 0.3;
  constexpr std::array<double, 3> kShares = {0.95, 1, 1.05};
  for (const Material& material :
       {Material{{v1::MATERIAL_MODEL_STABLE_NEO_HOOKEAN, "neo-Hookean", kModulus_pa, kNu}},
        Material{{v1::MATERIAL_MODEL_COROTATED_LINEAR, "corotated", kModulus_pa, kNu}},
        Material{{v1::MATERIAL_MODEL_ST_VENANT_KIRCHHOFF, "St-Venant-Kirchhoff", kModulus_pa, kNu}},
        Material{{v1::MATERIAL_MODEL_LINEAR, "linear", kModulus_pa, kNu}},
        Material{{v1::MATERIAL_MODEL_ST_VENANT_KIRCHHOFF, "St-Venant-Kirchhoff with fibres", kModulus_pa, kNu}, true}}) {
    LoadResponse r;
    for (size_t i = 0; i < 3; ++i) {
      r.force_n[i] = kShares[i] * 0.2 * kModulus_pa * size.x() * size.y();
      v1::SceneSpec spec = StaticSceneOf(mesh, material.Spec(), 600);
      spec.mutable_solver()->set_report_energy(true);
      Calm(spec);
      PullEnds(mesh, r.force_n[i], spec);
      PALPATE_ASSIGN_OR_RETURN(const std::unique_ptr<TissueBench::Scene> scene, bench.Create(spec));
      PALPATE_ASSIGN_OR_RETURN(const std::vector<Vector3d> x, scene->Settle(4, 20, 1e-7));
      for (size_t v = 0; v < x.size(); ++v) {
        if (std::abs(mesh.vertices[v].z()) > 0.0999) r.length_m[i] += (mesh.vertices[v].z() > 0 ? 1 : -1) * x[v].z() / 9;
      }
      PALPATE_ASSIGN_OR_RETURN(r.energy_j[i], scene->ElasticEnergy());
    }
    AddDerivatives(bench, absl::StrFormat("pulled block, %s: ", material.law.name), r);
  }
  LoadResponse r;
  for (size_t i = 0; i < 3; ++i) {
    r.force_n[i] = kShares[i] * 10 * std::sqrt(3.0) / 3;
    v1::SceneSpec spec = StaticSceneOf(TetOfHeightOne(), Elastic(v1::MATERIAL_MODEL_MASS_SPRING, 40, 0.25), 5);
    spec.mutable_solver()->set_report_energy(true);
    FixBase(spec);
    v1::LoadSpec& load = *spec.mutable_bodies(0)->add_loads();
    load.mutable_vertices()->add_indices(3);
    load.mutable_force_n()->set_z(r.force_n[i]);
    PALPATE_ASSIGN_OR_RETURN(const std::unique_ptr<TissueBench::Scene> scene, bench.Create(spec));
    PALPATE_ASSIGN_OR_RETURN(const std::vector<Vector3d> x, scene->Settle(20, 80, 1e-7));
    r.length_m[i] = x[3].z();
    PALPATE_ASSIGN_OR_RETURN(r.energy_j[i], scene->ElasticEnergy());
  }
  AddDerivatives(bench, "pulled tet of springs: ", r);
  return absl::OkStatus();
}

/// E10: energies of a unit cube of E = 1000, nu = 0.49 strained alike everywhere, on three meshes.
absl::Status UnitCubeEnergies(TissueBench& bench) {
  Matrix3d shear = Matrix3d::Identity(), symmetric = Matrix3d::Identity();
  shear(0, 1) = 0.2;
  symmetric(0, 1) = symmetric(1, 0) = 0.2;
  const auto isochoric = [](double s) { return Matrix3d(Vector3d(s, 1 / std::sqrt(s), 1 / std::sqrt(s)).asDiagonal()); };
  const std::vector<std::pair<std::string, Matrix3d>> strains = {{"simple shear 0.2", shear},
                                                                 {"symmetric shear 0.2", symmetric},
                                                                 {"isochoric stretch 1.2", isochoric(1.2)},
                                                                 {"isochoric stretch 0.8", isochoric(0.8)}};
  const Vector3d size(1, 1, 1);
  for (const uint32_t nodes : {4U, 6U, 8U}) {
    PALPATE_ASSIGN_OR_RETURN(const sim::TetMesh mesh, sim::BoxMesh({nodes, nodes, nodes}, size));
    for (const TissueLaw& law : {TissueLaw{v1::MATERIAL_MODEL_ST_VENANT_KIRCHHOFF, "St-Venant-Kirchhoff", 1000, 0.49},
                                 TissueLaw{v1::MATERIAL_MODEL_STABLE_NEO_HOOKEAN, "neo-Hookean", 1000, 0.49},
                                 TissueLaw{v1::MATERIAL_MODEL_COROTATED_LINEAR, "corotated", 1000, 0.49},
                                 TissueLaw{v1::MATERIAL_MODEL_LINEAR, "linear", 1000, 0.49}}) {
      for (const auto& [strain, f] : strains) {
        PALPATE_ASSIGN_OR_RETURN(const double got, MeasuredDensity(bench, mesh, size, law, f));
        const double expected = law.EnergyDensity(f);
        bench.Add("E10", absl::StrFormat("unit cube of %d^3 vertices, %s, %s: energy [J]", nodes, law.name, strain), expected, got,
                  1e-5 * expected);
      }
    }
  }
  // Springs: a sum over the edges of each tet, in closed form where all vertices follow one map.
  PALPATE_ASSIGN_OR_RETURN(const sim::TetMesh mesh, sim::BoxMesh({4, 4, 4}, size));
  const TissueLaw springs{v1::MATERIAL_MODEL_MASS_SPRING, "mass-spring", 1000, 0.25};
  for (const auto& [strain, f] : strains) {
    double expected = 0;
    for (const auto& tet : mesh.tets) {
      std::array<Vector3d, 4> at;
      for (size_t k = 0; k < 4; ++k) at[k] = mesh.vertices[tet[k]];
      const double volume_m3 = (at[1] - at[0]).cross(at[2] - at[0]).dot(at[3] - at[0]) / 6;
      for (size_t a = 0; a < 4; ++a) {
        for (size_t b = a + 1; b < 4; ++b) {
          const double slack = (f * (at[b] - at[a])).norm() / (at[b] - at[a]).norm() - 1;
          expected += springs.young_modulus_pa * volume_m3 * slack * slack / 2;
        }
      }
    }
    PALPATE_ASSIGN_OR_RETURN(const double got, MeasuredDensity(bench, mesh, size, springs, f));
    bench.Add("E10", absl::StrFormat("unit cube of 4^3 vertices, %s, %s: energy [J]", springs.name, strain), expected, got,
              1e-5 * expected);
  }
  return absl::OkStatus();
}

/// E14: with mu = 1 and nu = 0 a solid of 8^3 vertices with the Green strain s in all directions stores 3 s^2 a volume, a sheet strained in
/// its plane 2 s^2; and one that is only turned nothing. In units of the shear modulus, which scenes do not allow to be so small.
absl::Status StretchedSolidAndSheet(TissueBench& bench) {
  const TissueLaw law{v1::MATERIAL_MODEL_ST_VENANT_KIRCHHOFF, "St-Venant-Kirchhoff", 2000, 0};
  const Vector3d solid_size(1, 1, 1), sheet_size(1, 1, 2.0 / 7);
  PALPATE_ASSIGN_OR_RETURN(const sim::TetMesh solid, sim::BoxMesh({8, 8, 8}, solid_size));
  PALPATE_ASSIGN_OR_RETURN(const sim::TetMesh sheet, sim::BoxMesh({8, 8, 3}, sheet_size));
  for (const double s : {1.0, 2.0, 3.0}) {
    const double stretch = std::sqrt(1 + 2 * s);
    PALPATE_ASSIGN_OR_RETURN(const double solid_pa, MeasuredDensity(bench, solid, solid_size, law, stretch * Matrix3d::Identity()));
    bench.Add("E14", absl::StrFormat("solid, Green strain %g in all directions: energy", s), 3 * s * s, solid_pa / law.mu_pa(),
              1e-5 * 3 * s * s);
    PALPATE_ASSIGN_OR_RETURN(const double sheet_pa,
                             MeasuredDensity(bench, sheet, sheet_size, law, Vector3d(stretch, stretch, 1).asDiagonal()));
    bench.Add("E14", absl::StrFormat("sheet, Green strain %g in its plane: energy", s), 2 * s * s, sheet_pa / law.mu_pa(),
              1e-5 * 2 * s * s);
  }
  v1::SceneSpec spec = StaticSceneOf(sheet, law.Spec(), 60);
  v1::FixedRegion& region = *spec.mutable_bodies(0)->add_fixed();
  for (uint32_t v = 0; v < sheet.vertices.size(); ++v) {
    if (IsBoundary(sheet.vertices[v], sheet_size)) region.mutable_vertices()->add_indices(v);
  }
  region.mutable_motion()->mutable_angular_velocity_rad_per_s()->set_x(0.7);
  region.mutable_motion()->mutable_angular_velocity_rad_per_s()->set_y(-0.4);
  PALPATE_ASSIGN_OR_RETURN(const double energy_j, EnergyOf(bench, spec, 1e-7));
  // Strains of some 1e-6, from the rounding of places, stand squared in the energy.
  bench.Add("E14", "sheet, flat and turned by 0.81 rad: energy", 0, energy_j / sheet_size.prod() / law.mu_pa(), 1e-11);
  return absl::OkStatus();
}

}  // namespace

absl::Status VerifyEnergies(TissueBench& bench) {
  PALPATE_RETURN_IF_ERROR(StressFromEnergy(bench));
  PALPATE_RETURN_IF_ERROR(TangentFromEnergy(bench));
  PALPATE_RETURN_IF_ERROR(UnitCubeEnergies(bench));
  return StretchedSolidAndSheet(bench);
}

}  // namespace palpate::cli
