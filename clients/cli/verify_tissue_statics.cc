#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <numbers>
#include <random>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <Eigen/Dense>

#include "absl/strings/str_format.h"
#include "clients/cli/verify_tissue_bench.h"
#include "gpu/base/status.h"
#include "sim/mesh/generators.h"
#include "sim/reference/newton.h"
#include "sim/reference/reference_body.h"
#include "sim/scene/elastic_tet.h"

namespace palpate::cli {
namespace {

using Eigen::Matrix3d;
using Eigen::Vector3d;

/// E1: linear elasticity, p/E along and -nu p/E across, whatever the size of the load. Strains are differences along the axes at rest, as
/// the linear law has them: a small turn of the body, which that law allows at no cost, does not count.
absl::Status CylinderTraction(TissueBench& bench) {
  constexpr double kRadius_m = 0.2, kHeight_m = 1;
  constexpr uint32_t kRings = 2, kSectors = 12, kLayers = 6;
  PALPATE_ASSIGN_OR_RETURN(const sim::TetMesh mesh, sim::CylinderMesh(kRadius_m, kHeight_m, kRings, kSectors, kLayers));
  const double area_m2 = kSectors / 2.0 * std::sin(2 * std::numbers::pi / kSectors) * kRadius_m * kRadius_m;
  const size_t layer = 1 + kRings * kSectors;
  const size_t middle = kLayers / 2 * layer;
  const size_t rim = middle + 1 + (kRings - 1) * kSectors;
  for (const double modulus_pa : {10000.0, 20000.0}) {
    for (const double nu : {0.0, 0.3, 0.49}) {
      for (const double pressure_pa : {2000.0, -2000.0, 6000.0, -6000.0}) {
        const double strain = pressure_pa / modulus_pa;
        v1::SceneSpec spec = StaticSceneOf(mesh, Elastic(v1::MATERIAL_MODEL_LINEAR, modulus_pa, nu), 300);
        PullEnds(mesh, pressure_pa * area_m2, spec);
        Calm(spec);
        spec.mutable_solver()->set_acceleration(0.97);
        PALPATE_ASSIGN_OR_RETURN(const std::unique_ptr<TissueBench::Scene> scene, bench.Create(spec));
        PALPATE_ASSIGN_OR_RETURN(const std::vector<Vector3d> x, scene->Settle(2, 40, 5e-7));
        const std::string name = absl::StrFormat("cylinder, E %g, nu %g, p %g Pa: strain ", modulus_pa, nu, pressure_pa);
        bench.Add("E1", name + "along", strain, (x[kLayers * layer] - x[0]).z() / kHeight_m - 1, 1e-5);
        bench.Add("E1", name + "across", -nu * strain, (x[rim] - x[middle]).x() / kRadius_m - 1, 1e-5);
      }
    }
  }
  return absl::OkStatus();
}

/// E2: boundary vertices driven by an affine and by a rigid map; the free ones must follow. Springs follow where the mesh is alike on
/// opposite sides of every free vertex, as that of a block is.
absl::Status Patch(TissueBench& bench) {
  PALPATE_ASSIGN_OR_RETURN(const sim::TetMesh mesh, sim::BoxMesh({5, 5, 5}, {1, 1, 1}));
  std::mt19937 random(7);
  Matrix3d change;
  for (int i = 0; i < 9; ++i) change(i / 3, i % 3) = 0.3 * (static_cast<double>(random()) / 4294967295.0 - 0.5);
  Vector3d turn, shift;
  for (int i = 0; i < 3; ++i) turn[i] = 2 * (static_cast<double>(random()) / 4294967295.0 - 0.5);
  for (int i = 0; i < 3; ++i) shift[i] = static_cast<double>(random()) / 4294967295.0 - 0.5;
  const auto is_boundary = [](const Vector3d& at) { return at.cwiseAbs().maxCoeff() > 0.499; };
  for (const auto& [model, name] : {std::pair(v1::MATERIAL_MODEL_STABLE_NEO_HOOKEAN, "neo-Hookean"),
                                    {v1::MATERIAL_MODEL_COROTATED_LINEAR, "corotated"},
                                    {v1::MATERIAL_MODEL_LINEAR, "linear"},
                                    {v1::MATERIAL_MODEL_ST_VENANT_KIRCHHOFF, "St-Venant-Kirchhoff"},
                                    {v1::MATERIAL_MODEL_MASS_SPRING, "mass-spring"}}) {
    const double nu = model == v1::MATERIAL_MODEL_MASS_SPRING ? 0.25 : 0.4;
    for (const bool is_rigid : {false, true}) {
      const Matrix3d f =
          is_rigid ? Eigen::AngleAxisd(turn.norm(), turn.normalized()).toRotationMatrix() : Matrix3d(Matrix3d::Identity() + change);
      v1::SceneSpec spec = StaticSceneOf(mesh, Elastic(model, 20, nu), 60);
      if (is_rigid) {
        v1::FixedRegion& region = *spec.mutable_bodies(0)->add_fixed();
        for (uint32_t v = 0; v < mesh.vertices.size(); ++v) {
          if (is_boundary(mesh.vertices[v])) region.mutable_vertices()->add_indices(v);
        }
        Set(*region.mutable_motion()->mutable_velocity_m_per_s(), shift);
        Set(*region.mutable_motion()->mutable_angular_velocity_rad_per_s(), turn);
      } else {
        DriveAffine(mesh, f, is_boundary, spec);
      }
      PALPATE_ASSIGN_OR_RETURN(const std::vector<Vector3d> x, bench.PositionsAfter(spec, 40));
      double worst = 0;
      for (size_t v = 0; v < x.size(); ++v) {
        worst = std::max(worst, (x[v] - f * mesh.vertices[v] - (is_rigid ? shift : Vector3d::Zero())).norm());
      }
      bench.Add("E2", absl::StrFormat("%s patch, %s: farthest vertex from the map [m]", is_rigid ? "rigid" : "affine", name), 0, worst,
                1e-6);
    }
  }
  return absl::OkStatus();
}

/// E3: 10 sqrt(3) / 3 N draw the apex of a linear tet of E = 40, nu = 0 from height 1 to 2.
absl::Status OneTet(TissueBench& bench) {
  const sim::TetMesh mesh = TetOfHeightOne();
  v1::SceneSpec spec = StaticSceneOf(mesh, Elastic(v1::MATERIAL_MODEL_LINEAR, 40, 0), 5);
  FixBase(spec);
  v1::LoadSpec& load = *spec.mutable_bodies(0)->add_loads();
  load.mutable_vertices()->add_indices(3);
  load.mutable_force_n()->set_z(10 * std::sqrt(3.0) / 3);
  PALPATE_ASSIGN_OR_RETURN(const std::vector<Vector3d> x, bench.PositionsAfter(spec, 60));
  bench.Add("E3", "one tet: height of the apex [m]", 2, x[3].z(), 1e-5);
  // The same force on three springs of E V / l^2.
  const Vector3d edge = mesh.vertices[3] - mesh.vertices[0];
  const double stiffness_n_per_m = 40 * std::sqrt(3.0) / 12 / edge.squaredNorm();
  const double height_m = Root(1, 10, [&](double z) {
    const double length_m = std::hypot(edge.head<2>().norm(), z);
    return 3 * stiffness_n_per_m * (length_m - edge.norm()) * z / length_m - 10 * std::sqrt(3.0) / 3;
  });
  spec.mutable_bodies(0)->mutable_material()->set_model(v1::MATERIAL_MODEL_MASS_SPRING);
  spec.mutable_bodies(0)->mutable_material()->set_poisson_ratio(0.25);
  PALPATE_ASSIGN_OR_RETURN(const std::vector<Vector3d> hung, bench.PositionsAfter(spec, 100));
  bench.Add("E3", "one tet of springs: height of the apex [m]", height_m, hung[3].z(), 1e-5);
  return absl::OkStatus();
}

/// E4: a quarter of a newton at each corner stretches a unit cube of E = 10, nu = 0 by a tenth.
absl::Status OneCube(TissueBench& bench) {
  PALPATE_ASSIGN_OR_RETURN(const sim::TetMesh mesh, sim::BoxMesh({2, 2, 2}, {1, 1, 1}));
  v1::SceneSpec spec = StaticSceneOf(mesh, Elastic(v1::MATERIAL_MODEL_LINEAR, 10, 0), 60);
  PullEnds(mesh, 1, spec);
  *spec.mutable_bodies(0)->add_fixed()->mutable_vertices() = spec.bodies(0).loads(0).vertices();
  PALPATE_ASSIGN_OR_RETURN(const std::vector<Vector3d> x, bench.PositionsAfter(spec, 200));
  for (size_t v = 4; v < 8; ++v) {
    bench.Add("E4", absl::StrFormat("unit cube under 1 N: height of corner %d [m]", v - 4), 1.1, x[v].z() - x[0].z(), 1e-5);
  }
  return absl::OkStatus();
}

/// E9: a cantilever under its weight hangs as Newton's method finds it on the same mesh (which converges to beam theory:
/// tests/vv/elasticity_vv_test.cc).
absl::Status Cantilever(TissueBench& bench) {
  PALPATE_ASSIGN_OR_RETURN(const sim::TetMesh mesh, sim::BoxMesh({9, 3, 3}, {0.08, 0.02, 0.02}));
  constexpr double kModulus_pa = 20000, kNu = 0.4, kDensity_kg_per_m3 = 1000, kDamping_s = 0.01;
  std::vector<uint8_t> fixed(mesh.vertices.size());
  for (size_t v = 0; v < fixed.size(); ++v) fixed[v] = mesh.vertices[v].x() < -0.0399;
  for (const auto& [model, energy, name] :
       {std::tuple(v1::MATERIAL_MODEL_STABLE_NEO_HOOKEAN, sim::MaterialModel::kStableNeoHookean, "neo-Hookean"),
        {v1::MATERIAL_MODEL_COROTATED_LINEAR, sim::MaterialModel::kCorotated, "corotated"}}) {
    std::vector<sim::ElasticTet> tets;
    for (const auto& tet : mesh.tets) {
      sim::ElasticTet& t = tets.emplace_back();
      t.vertices = tet;
      t.mu_pa = static_cast<float>(kModulus_pa / (2 * (1 + kNu)));
      t.lambda_pa = static_cast<float>(kModulus_pa * kNu / ((1 + kNu) * (1 - 2 * kNu)));
      t.density_kg_per_m3 = static_cast<float>(kDensity_kg_per_m3);
      t.model = energy;
    }
    PALPATE_ASSIGN_OR_RETURN(const sim::ReferenceBody body, sim::ReferenceBody::Create(mesh.vertices, std::move(tets), fixed));
    sim::NewtonProblem problem;
    problem.load_n.setZero(3 * static_cast<Eigen::Index>(fixed.size()));
    for (size_t v = 0; v < fixed.size(); ++v) {
      problem.load_n[3 * static_cast<Eigen::Index>(v) + 2] = -kStandardGravity_m_per_s2 * body.mass_kg()[v];
    }
    PALPATE_ASSIGN_OR_RETURN(const sim::NewtonResult newton, sim::MinimizeByNewton(body, problem, body.Rest(), {}));

    v1::MaterialSpec material = Elastic(model, kModulus_pa, kNu);
    material.set_density_kg_per_m3(kDensity_kg_per_m3);
    material.set_damping_s(kDamping_s);
    v1::SceneSpec spec = SceneOf(mesh, material);
    spec.mutable_gravity_m_per_s2()->set_z(-kStandardGravity_m_per_s2);
    spec.set_dt_s(1.0 / 30);
    spec.mutable_solver()->set_iterations(100);
    spec.mutable_solver()->set_acceleration(0.95);
    v1::VertexList& clamp = *spec.mutable_bodies(0)->add_fixed()->mutable_vertices();
    for (uint32_t v = 0; v < fixed.size(); ++v) {
      if (fixed[v] != 0) clamp.add_indices(v);
    }
    PALPATE_ASSIGN_OR_RETURN(const std::vector<Vector3d> x, bench.PositionsAfter(spec, 150));
    double expected_m = 0, sag_m = 0;
    for (size_t v = 0; v < x.size(); ++v) {
      expected_m = std::max(expected_m, mesh.vertices[v].z() - newton.x[3 * static_cast<Eigen::Index>(v) + 2]);
      sag_m = std::max(sag_m, mesh.vertices[v].z() - x[v].z());
    }
    bench.Add("E9", absl::StrFormat("cantilever, %s: sag of the tip against Newton's method [m]", name), expected_m, sag_m,
              0.005 * expected_m);
  }
  return absl::OkStatus();
}

// Of the cantilever below, q = 4.3164 N/m: 31.72 mm by the inextensible elastica, and 0.37 mm of shear.
constexpr double kCantileverTip_m = 0.03209;

/// How far the tip of a cantilever of 0.02 x 0.02 x 0.2 m, E = 2 MPa, sinks under its weight, with `cells` cubes across.
absl::StatusOr<double> CantileverTip(TissueBench& bench, uint32_t cells, double nu, v1::TetElement element) {
  PALPATE_ASSIGN_OR_RETURN(const sim::TetMesh mesh, sim::BoxMesh({10 * cells + 1, cells + 1, cells + 1}, {0.2, 0.02, 0.02}));
  v1::SceneSpec spec = StaticSceneOf(mesh, Elastic(v1::MATERIAL_MODEL_STABLE_NEO_HOOKEAN, 2e6, nu), 40);
  spec.mutable_bodies(0)->set_tet_element(element);
  spec.mutable_bodies(0)->mutable_material()->set_density_kg_per_m3(1100);
  // It swings to rest in converged steps, at 3.4 Hz with about the critical damping. In the large steps of other cases so slender a beam
  // turns too far for coarse corrections, without which it would need thousands of sweeps.
  spec.set_dt_s(0.02);
  spec.mutable_solver()->set_coarse_nodes(1000);
  spec.mutable_bodies(0)->mutable_material()->set_mass_damping_per_s(43);
  spec.mutable_gravity_m_per_s2()->set_z(-kStandardGravity_m_per_s2);
  v1::VertexList& clamp = *spec.mutable_bodies(0)->add_fixed()->mutable_vertices();
  std::vector<size_t> tip;
  for (size_t v = 0; v < mesh.vertices.size(); ++v) {
    if (mesh.vertices[v].x() < -0.0999) clamp.add_indices(static_cast<uint32_t>(v));
    if (mesh.vertices[v].x() > 0.0999) tip.push_back(v);
  }
  PALPATE_ASSIGN_OR_RETURN(const std::unique_ptr<TissueBench::Scene> scene, bench.Create(spec));
  PALPATE_ASSIGN_OR_RETURN(const std::vector<Vector3d> x, scene->Settle(20, 200, 1e-6));
  double sum_m = 0;
  for (const size_t v : tip) sum_m += (mesh.vertices[v].z() - x[v].z()) / static_cast<double>(tip.size());
  return sum_m;
}

/// E9 at the published nu = 0.45, on a mesh of four cells across, without extrapolation: node-smoothed tets bend as beams do.
absl::Status SmoothedCantilever(TissueBench& bench) {
  PALPATE_ASSIGN_OR_RETURN(const double tip_m, CantileverTip(bench, 4, 0.45, v1::TET_ELEMENT_NODE_SMOOTHED));
  bench.Add("E9", "cantilever of 0.2 m, nu 0.45, node-smoothed: tip with 4 cells across, against beam theory [m]", kCantileverTip_m, tip_m,
            0.02 * kCantileverTip_m);
  return absl::OkStatus();
}

/// E9: a cantilever of 0.02 x 0.02 x 0.2 m under its weight against beam theory. Linear tetrahedra are too stiff in bending, by about the
/// square of the edge length: the limit of finer meshes is extrapolated from three, by the parabola in that square.
absl::Status CantileverLimit(TissueBench& bench) {
  std::array<double, 3> h_sq{}, tip_m{};
  for (size_t i = 0; i < 3; ++i) {
    const auto cells = static_cast<uint32_t>(i + 2);
    PALPATE_ASSIGN_OR_RETURN(tip_m[i], CantileverTip(bench, cells, 0.3, v1::TET_ELEMENT_LINEAR));
    h_sq[i] = 1.0 / (cells * cells);
  }
  const double first = (tip_m[1] - tip_m[0]) / (h_sq[1] - h_sq[0]);
  const double second = ((tip_m[2] - tip_m[1]) / (h_sq[2] - h_sq[1]) - first) / (h_sq[2] - h_sq[0]);
  const double limit_m = tip_m[0] - h_sq[0] * (first - h_sq[1] * second);
  bench.Add("E9", "cantilever of 0.2 m, nu 0.3: tip in the limit of 2, 3 and 4 cells across, against beam theory [m]", kCantileverTip_m,
            limit_m, 0.03 * kCantileverTip_m);
  return absl::OkStatus();
}

/// E13: blocks of every model pulled by the force that theory asks for a stretch; near-incompressible ones keep their volume.
absl::Status UniaxialStretch(TissueBench& bench) {
  const Vector3d size(0.1, 0.1, 0.2);
  PALPATE_ASSIGN_OR_RETURN(const sim::TetMesh mesh, sim::BoxMesh({3, 3, 5}, size));
  constexpr double kModulus_pa = 10000;
  struct Case {
    v1::MaterialModel model;
    const char* name;
    double nu, stretch;
    bool has_fibers;
  };
  for (const Case& c : {Case{v1::MATERIAL_MODEL_STABLE_NEO_HOOKEAN, "neo-Hookean", 0, 1.5, false},
                        {v1::MATERIAL_MODEL_STABLE_NEO_HOOKEAN, "neo-Hookean", 0.4, 1.2, false},
                        {v1::MATERIAL_MODEL_STABLE_NEO_HOOKEAN, "neo-Hookean", 0.495, 1.2, false},
                        {v1::MATERIAL_MODEL_COROTATED_LINEAR, "corotated", 0.3, 1.2, false},
                        {v1::MATERIAL_MODEL_ST_VENANT_KIRCHHOFF, "St-Venant-Kirchhoff", 0.3, 1.2, false},
                        {v1::MATERIAL_MODEL_ST_VENANT_KIRCHHOFF, "St-Venant-Kirchhoff, fibres along", 0.3, 1.2, true},
                        {v1::MATERIAL_MODEL_LINEAR, "linear, fibres along", 0.3, 1.2, true}}) {
    v1::MaterialSpec material = Elastic(c.model, kModulus_pa, c.nu);
    double modulus_pa = kModulus_pa;
    if (c.has_fibers) {
      modulus_pa = 3 * kModulus_pa;
      material.mutable_fibers()->mutable_direction()->set_z(1);
      material.mutable_fibers()->set_young_modulus_pa(modulus_pa);
    }
    const double s = c.stretch;
    double stress_pa = 0;  // on the area at rest
    double across = 0;     // stretch
    switch (c.model) {
      case v1::MATERIAL_MODEL_STABLE_NEO_HOOKEAN: {
        const double mu = kModulus_pa / (2 * (1 + c.nu));
        const double lambda_p = kModulus_pa * c.nu / ((1 + c.nu) * (1 - 2 * c.nu)) + mu;
        across = std::sqrt((1 + mu * (1 - 1 / s) / lambda_p) / s);
        stress_pa = mu * s + (lambda_p * (s * across * across - 1) - mu) * across * across;
        break;
      }
      case v1::MATERIAL_MODEL_ST_VENANT_KIRCHHOFF:
        across = std::sqrt(1 - c.nu * (s * s - 1));
        stress_pa = modulus_pa * s * (s * s - 1) / 2;
        break;
      default:
        across = 1 - c.nu * (s - 1);
        stress_pa = modulus_pa * (s - 1);
    }
    v1::SceneSpec spec = StaticSceneOf(mesh, material, 600);
    PullEnds(mesh, stress_pa * size.x() * size.y(), spec);
    PALPATE_ASSIGN_OR_RETURN(const std::vector<Vector3d> x, bench.PositionsAfter(spec, 4));
    const std::string name = absl::StrFormat("block, %s, nu %g: ", c.name, c.nu);
    const double along_got = (x[4 * 9] - x[0]).norm() / size.z();
    const double across_got = (x[2 * 9 + 2] - x[2 * 9]).norm() / size.x();
    bench.Add("E13", name + "stretch along", s, along_got, 2e-5);
    bench.Add("E13", name + "stretch across", across, across_got, 2e-5);
    if (c.nu > 0.49) bench.Add("E13", name + "volume over that at rest", s * across * across, along_got * across_got * across_got, 2e-5);
  }
  return absl::OkStatus();
}

/// E13: the membrane of the two-dimensional neo-Hookean law stretched between clamps, as a block whose thickness does not change: pulled by
/// the stress of the closed form along and across the thickness, its area grows by (lambda' + mu) s^2 / (mu + lambda' s^2). Their Poisson
/// ratio of two dimensions is nu2 = lambda / (lambda + 2 mu), ours nu2 / (1 + nu2).
absl::Status Membrane(TissueBench& bench) {
  const Vector3d size(0.1, 0.1, 0.1);
  PALPATE_ASSIGN_OR_RETURN(const sim::TetMesh mesh, sim::BoxMesh({4, 4, 4}, size));
  for (const double flat_nu : {0.0, 0.4}) {
    const TissueLaw law{v1::MATERIAL_MODEL_STABLE_NEO_HOOKEAN, "neo-Hookean", 10000, flat_nu / (1 + flat_nu)};
    const double mu = law.mu_pa(), lambda_p = law.lambda_pa() + mu;
    for (const double s : {1.2, 2.0}) {
      const double area = (lambda_p + mu) * s * s / (mu + lambda_p * s * s);
      v1::SceneSpec spec = StaticSceneOf(mesh, law.Spec(), 300);
      Calm(spec);
      LoadFaces(mesh, size, law.Stress(Vector3d(s, area / s, 1).asDiagonal()), spec);
      PALPATE_ASSIGN_OR_RETURN(const std::unique_ptr<TissueBench::Scene> scene, bench.Create(spec));
      PALPATE_ASSIGN_OR_RETURN(const std::vector<Vector3d> x, scene->Settle(4, 40, 1e-6));
      const double along = (x[3] - x[0]).norm() / size.x(), across = (x[12] - x[0]).norm() / size.y();
      const std::string name = absl::StrFormat("membrane, nu %g, stretch %g: ", flat_nu, s);
      bench.Add("E13", name + "area over that at rest", area, along * across, 2e-5);
      bench.Add("E13", name + "thickness over that at rest", 1, (x[48] - x[0]).norm() / size.z(), 2e-5);
    }
  }
  return absl::OkStatus();
}

/// P1: a pressure all around that follows the surface, against the neo-Hookean law.
absl::Status HydrostaticPressure(TissueBench& bench) {
  PALPATE_ASSIGN_OR_RETURN(const sim::TetMesh mesh, sim::BoxMesh({4, 4, 4}, {0.1, 0.1, 0.1}));
  constexpr double kModulus_pa = 10000, kNu = 0.3;
  const double mu = kModulus_pa / (2 * (1 + kNu));
  const double lambda_p = kModulus_pa * kNu / ((1 + kNu) * (1 - 2 * kNu)) + mu;
  for (const double pressure_pa : {2000.0, -1000.0}) {
    const double expected = Root(0.8, 1.5, [&](double s) { return mu / s + lambda_p * (s * s * s - 1) - mu + pressure_pa; });
    v1::SceneSpec spec = StaticSceneOf(mesh, Elastic(v1::MATERIAL_MODEL_STABLE_NEO_HOOKEAN, kModulus_pa, kNu), 100);
    v1::LoadSpec& load = *spec.mutable_bodies(0)->add_loads();
    load.mutable_ball()->mutable_center_m();
    load.mutable_ball()->set_radius_m(1);
    load.set_pressure_pa(pressure_pa);
    PALPATE_ASSIGN_OR_RETURN(const std::vector<Vector3d> x, bench.PositionsAfter(spec, 40));
    bench.Add("P1", absl::StrFormat("block under %g Pa all around: stretch", pressure_pa), expected,
              (x[63] - x[0]).norm() / (0.1 * std::sqrt(3.0)), 1e-5);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status VerifyStatics(TissueBench& bench) {
  PALPATE_RETURN_IF_ERROR(CylinderTraction(bench));
  PALPATE_RETURN_IF_ERROR(Patch(bench));
  PALPATE_RETURN_IF_ERROR(OneTet(bench));
  PALPATE_RETURN_IF_ERROR(OneCube(bench));
  PALPATE_RETURN_IF_ERROR(Cantilever(bench));
  PALPATE_RETURN_IF_ERROR(CantileverLimit(bench));
  PALPATE_RETURN_IF_ERROR(SmoothedCantilever(bench));
  PALPATE_RETURN_IF_ERROR(UniaxialStretch(bench));
  PALPATE_RETURN_IF_ERROR(Membrane(bench));
  return HydrostaticPressure(bench);
}

}  // namespace palpate::cli
