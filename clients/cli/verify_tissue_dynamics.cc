#include <algorithm>
#include <cmath>
#include <memory>
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

/// T1, T2: the apex of a linear tet is a spring and a mass; backward Euler has a recurrence of its own, and loses energy by a factor of
/// 1 + (omega dt)^2 each step.
absl::Status Oscillator(TissueBench& bench) {
  constexpr double kModulus_pa = 40, kDensity_kg_per_m3 = 100, kStep_s = 0.02, kSpeed_m_per_s = 0.005;
  constexpr int kSteps = 60;
  const double volume_m3 = std::sqrt(3.0) / 12;
  const double k = kModulus_pa * volume_m3;
  const double m = kDensity_kg_per_m3 * volume_m3 / 4;
  for (const auto& [mass_damping, damping] : {std::pair(0.0, 0.0), {0.1, 0.0}, {0.1, 0.1}}) {
    v1::MaterialSpec material = Elastic(v1::MATERIAL_MODEL_LINEAR, kModulus_pa, 0);
    material.set_density_kg_per_m3(kDensity_kg_per_m3);
    material.set_mass_damping_per_s(mass_damping);
    material.set_damping_s(damping);
    // Single precision is finest about the origin: the apex swings there, so that the integrator shows and not the rounding of places.
    sim::TetMesh mesh = TetOfHeightOne();
    const Vector3d apex = mesh.vertices[3];
    for (Vector3d& vertex : mesh.vertices) vertex -= apex;
    v1::SceneSpec spec = SceneOf(mesh, material);
    FixBase(spec);
    spec.set_dt_s(kStep_s);
    spec.mutable_solver()->set_iterations(4);
    spec.mutable_solver()->set_acceleration(0);
    spec.mutable_bodies(0)->mutable_velocity_m_per_s()->set_z(kSpeed_m_per_s);
    PALPATE_ASSIGN_OR_RETURN(const std::unique_ptr<TissueBench::Scene> scene, bench.Create(spec));
    double u = 0, v = kSpeed_m_per_s, worst = 0, amplitude = 0, before = 0, now = 0;
    for (int step = 0; step < kSteps; ++step) {
      PALPATE_ASSIGN_OR_RETURN(const std::vector<Vector3d> x, scene->Step(1));
      v = (m * v - kStep_s * k * u) / (m * (1 + mass_damping * kStep_s) + kStep_s * k * (kStep_s + damping));
      u += kStep_s * v;
      before = now;
      now = x[3].z();
      worst = std::max(worst, std::abs(now - u));
      amplitude = std::max(amplitude, std::abs(u));
    }
    // The viscosity is linear in Green strain, which differs from small strain by the amplitude.
    bench.Add("T1",
              absl::StrFormat("oscillator, damping %g 1/s and %g s: worst distance from the recurrence over the amplitude", mass_damping,
                              damping),
              0, worst / amplitude, damping > 0 ? 1e-3 : 2e-5);
    if (mass_damping == 0) {
      const double speed = (now - before) / kStep_s;
      const double energy = (m * speed * speed + k * now * now) / (m * kSpeed_m_per_s * kSpeed_m_per_s);
      const double expected = std::pow(1 + k / m * kStep_s * kStep_s, -kSteps);
      bench.Add("T2", "oscillator without damping: energy over that at the start", expected, energy, 0.005 * expected);
    }
  }
  return absl::OkStatus();
}

/// T6: a soft grid falls for 60 steps as backward Euler falls, and keeps its shape.
absl::Status FreeFall(TissueBench& bench) {
  PALPATE_ASSIGN_OR_RETURN(const sim::TetMesh mesh, sim::BoxMesh({5, 5, 5}, {0.4, 0.4, 0.4}));
  v1::MaterialSpec material = Elastic(v1::MATERIAL_MODEL_STABLE_NEO_HOOKEAN, 10000, 0.3);
  material.set_density_kg_per_m3(100);
  v1::SceneSpec spec = SceneOf(mesh, material);
  spec.mutable_gravity_m_per_s2()->set_z(-kStandardGravity_m_per_s2);
  spec.set_dt_s(1.0 / 300);
  PALPATE_ASSIGN_OR_RETURN(const std::vector<Vector3d> x, bench.PositionsAfter(spec, 60));
  Vector3d shift = Vector3d::Zero();
  for (size_t v = 0; v < x.size(); ++v) shift += (x[v] - mesh.vertices[v]) / static_cast<double>(x.size());
  double least = 1, most = 1;
  for (const auto& tet : mesh.tets) {
    Matrix3d rest, moved;
    for (int k = 0; k < 3; ++k) {
      rest.col(k) = mesh.vertices[tet[static_cast<size_t>(k) + 1]] - mesh.vertices[tet[0]];
      moved.col(k) = x[tet[static_cast<size_t>(k) + 1]] - x[tet[0]];
    }
    least = std::min(least, moved.determinant() / rest.determinant());
    most = std::max(most, moved.determinant() / rest.determinant());
  }
  bench.Add("T6", "soft grid: fall [m]", -kStandardGravity_m_per_s2 * 60 * 61 / (2 * 300.0 * 300.0), shift.z(), 1e-5);
  bench.Add("T6", "soft grid: drift to the side [m]", 0, shift.head<2>().norm(), 1e-5);
  bench.Add("T6", "soft grid: least volume of a tet over that at rest", 1, least, 0.01);
  bench.Add("T6", "soft grid: greatest volume of a tet over that at rest", 1, most, 0.01);
  return absl::OkStatus();
}

}  // namespace

absl::Status VerifyDynamics(TissueBench& bench) {
  PALPATE_RETURN_IF_ERROR(Oscillator(bench));
  return FreeFall(bench);
}

}  // namespace palpate::cli
