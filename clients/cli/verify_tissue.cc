#include "clients/cli/verify_tissue.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <numbers>
#include <random>
#include <tuple>
#include <utility>

#include <Eigen/Dense>

#include "absl/strings/str_format.h"
#include "gpu/base/status.h"
#include "sim/mesh/generators.h"
#include "sim/mesh/mesh_io.h"
#include "sim/reference/newton.h"
#include "sim/reference/reference_body.h"

namespace palpate::cli {
namespace {

using Eigen::Matrix3d;
using Eigen::Vector3d;

constexpr double kStandardGravity_m_per_s2 = 9.81;
// Statics: light bodies and steps of a tenth of a second, in which backward Euler takes nearly all motion out; soft ones need more steps.
constexpr double kStaticDensity_kg_per_m3 = 1;
constexpr double kStaticStep_s = 0.1;

void Set(v1::Vec3& out, const Vector3d& v) {
  out.set_x(v.x());
  out.set_y(v.y());
  out.set_z(v.z());
}

/// A scene of one body without gravity.
v1::SceneSpec SceneOf(const sim::TetMesh& mesh, const v1::MaterialSpec& material) {
  v1::SceneSpec spec;
  spec.set_name("verify");
  spec.mutable_gravity_m_per_s2();
  v1::BodySpec& body = *spec.add_bodies();
  body.set_self_collision(false);
  *body.mutable_material() = material;
  for (const Vector3d& v : mesh.vertices) {
    for (int axis = 0; axis < 3; ++axis) body.mutable_mesh()->add_vertices_m(v[axis]);
  }
  for (const auto& tet : mesh.tets) {
    for (const uint32_t v : tet) body.mutable_mesh()->add_tets(v);
  }
  return spec;
}

v1::SceneSpec StaticSceneOf(const sim::TetMesh& mesh, v1::MaterialSpec material, uint32_t sweeps) {
  material.set_density_kg_per_m3(kStaticDensity_kg_per_m3);
  material.set_damping_s(0);
  v1::SceneSpec spec = SceneOf(mesh, material);
  spec.set_dt_s(kStaticStep_s);
  spec.mutable_solver()->set_iterations(sweeps);
  return spec;
}

v1::MaterialSpec Elastic(v1::MaterialModel model, double young_modulus_pa, double poisson_ratio) {
  v1::MaterialSpec material;
  material.set_model(model);
  material.set_young_modulus_pa(young_modulus_pa);
  material.set_poisson_ratio(poisson_ratio);
  return material;
}

/// Pulls the two ends of a body along z apart with a force each.
void PullEnds(const sim::TetMesh& mesh, double force_n, v1::SceneSpec& spec) {
  double low = 0, high = 0;
  for (const Vector3d& v : mesh.vertices) {
    low = std::min(low, v.z());
    high = std::max(high, v.z());
  }
  for (const double end : {low, high}) {
    v1::LoadSpec& load = *spec.mutable_bodies(0)->add_loads();
    for (size_t v = 0; v < mesh.vertices.size(); ++v) {
      if (std::abs(mesh.vertices[v].z() - end) < 1e-9) load.mutable_vertices()->add_indices(static_cast<uint32_t>(v));
    }
    load.mutable_force_n()->set_z(end == high ? force_n : -force_n);
  }
}

/// The root of a rising function.
double Root(double low, double high, const std::function<double(double)>& f) {
  for (int i = 0; i < 200; ++i) {
    const double middle = (low + high) / 2;
    (f(middle) < 0 ? low : high) = middle;
  }
  return (low + high) / 2;
}

class Verification {
 public:
  Verification(client::SceneClient& server, const std::function<void(const TissueCheck&)>& seen) : server_(server), seen_(seen) {}

  absl::Status Run() {
    PALPATE_RETURN_IF_ERROR(CylinderTraction());
    PALPATE_RETURN_IF_ERROR(AffinePatch());
    PALPATE_RETURN_IF_ERROR(OneTet());
    PALPATE_RETURN_IF_ERROR(OneCube());
    PALPATE_RETURN_IF_ERROR(Cantilever());
    PALPATE_RETURN_IF_ERROR(UniaxialStretch());
    PALPATE_RETURN_IF_ERROR(HydrostaticPressure());
    PALPATE_RETURN_IF_ERROR(Oscillator());
    return FreeFall();
  }
  std::vector<TissueCheck> checks;

 private:
  /// A scene on the server, deleted with the object.
  class Scene {
   public:
    Scene(client::SceneClient& server, std::string id) : server_(server), id_(std::move(id)) {}
    Scene(const Scene&) = delete;
    Scene& operator=(const Scene&) = delete;
    ~Scene() { server_.Delete(id_).IgnoreError(); }

    /// Positions of all vertices after `steps` more steps.
    absl::StatusOr<std::vector<Vector3d>> Step(uint32_t steps) {
      PALPATE_RETURN_IF_ERROR(server_.Step(id_, steps).status());
      v1::ExportSceneRequest request;
      request.set_scene_id(id_);
      request.set_format(v1::EXPORT_FORMAT_VTK);
      PALPATE_ASSIGN_OR_RETURN(const v1::ExportSceneResponse response, server_.Export(request));
      PALPATE_ASSIGN_OR_RETURN(sim::TetMesh mesh, sim::ParseVtk(response.data(), "the export of the server"));
      return std::move(mesh.vertices);
    }

   private:
    client::SceneClient& server_;
    std::string id_;
  };

  absl::StatusOr<std::unique_ptr<Scene>> Create(const v1::SceneSpec& spec) {
    v1::CreateSceneRequest request;
    *request.mutable_spec() = spec;
    PALPATE_ASSIGN_OR_RETURN(const v1::SceneInfo info, server_.Create(request));
    return std::make_unique<Scene>(server_, info.scene_id());
  }
  absl::StatusOr<std::vector<Vector3d>> PositionsAfter(const v1::SceneSpec& spec, uint32_t steps) {
    PALPATE_ASSIGN_OR_RETURN(const std::unique_ptr<Scene> scene, Create(spec));
    return scene->Step(steps);
  }

  void Add(std::string id, std::string what, double expected, double got, double tolerance) {
    checks.push_back({std::move(id), std::move(what), expected, got, tolerance});
    seen_(checks.back());
  }

  /// E1: linear elasticity, p/E along and -nu p/E across, whatever the size of the load.
  absl::Status CylinderTraction() {
    constexpr double kRadius_m = 0.2, kHeight_m = 1, kModulus_pa = 10000;
    constexpr uint32_t kRings = 2, kSectors = 12, kLayers = 6;
    PALPATE_ASSIGN_OR_RETURN(const sim::TetMesh mesh, sim::CylinderMesh(kRadius_m, kHeight_m, kRings, kSectors, kLayers));
    const double area_m2 = kSectors / 2.0 * std::sin(2 * std::numbers::pi / kSectors) * kRadius_m * kRadius_m;
    const size_t layer = 1 + kRings * kSectors;
    const size_t middle = kLayers / 2 * layer;
    const size_t rim = middle + 1 + (kRings - 1) * kSectors;
    for (const auto& [nu, strain] : {std::pair(0.0, 0.2), {0.3, 0.6}, {0.3, -0.2}, {0.49, 0.2}}) {
      v1::SceneSpec spec = StaticSceneOf(mesh, Elastic(v1::MATERIAL_MODEL_LINEAR, kModulus_pa, nu), 1000);
      PullEnds(mesh, strain * kModulus_pa * area_m2, spec);
      PALPATE_ASSIGN_OR_RETURN(const std::vector<Vector3d> x, PositionsAfter(spec, 30));
      const std::string name = absl::StrFormat("cylinder, nu %g, p/E %g: strain ", nu, strain);
      Add("E1", name + "along", strain, (x[kLayers * layer] - x[0]).norm() / kHeight_m - 1, 1e-4);
      Add("E1", name + "across", -nu * strain, (x[rim] - x[middle]).norm() / kRadius_m - 1, 2e-4);
    }
    return absl::OkStatus();
  }

  /// E2: boundary vertices driven to an affine map; the free ones must follow it.
  absl::Status AffinePatch() {
    PALPATE_ASSIGN_OR_RETURN(const sim::TetMesh mesh, sim::BoxMesh({5, 5, 5}, {1, 1, 1}));
    std::mt19937 random(7);
    Matrix3d change;
    for (int i = 0; i < 9; ++i) change(i / 3, i % 3) = 0.3 * (static_cast<double>(random()) / 4294967295.0 - 0.5);
    for (const auto& [model, name] : {std::pair(v1::MATERIAL_MODEL_STABLE_NEO_HOOKEAN, "neo-Hookean"),
                                      {v1::MATERIAL_MODEL_COROTATED_LINEAR, "corotated"},
                                      {v1::MATERIAL_MODEL_LINEAR, "linear"},
                                      {v1::MATERIAL_MODEL_ST_VENANT_KIRCHHOFF, "St-Venant-Kirchhoff"}}) {
      v1::SceneSpec spec = StaticSceneOf(mesh, Elastic(model, 20, 0.4), 60);
      for (uint32_t v = 0; v < mesh.vertices.size(); ++v) {
        if (mesh.vertices[v].cwiseAbs().maxCoeff() < 0.499) continue;
        v1::FixedRegion& region = *spec.mutable_bodies(0)->add_fixed();
        region.mutable_vertices()->add_indices(v);
        Set(*region.mutable_motion()->mutable_velocity_m_per_s(), change * mesh.vertices[v]);
      }
      PALPATE_ASSIGN_OR_RETURN(const std::vector<Vector3d> x, PositionsAfter(spec, 40));
      double worst = 0;
      for (size_t v = 0; v < x.size(); ++v) worst = std::max(worst, (x[v] - mesh.vertices[v] - change * mesh.vertices[v]).norm());
      Add("E2", absl::StrFormat("affine patch, %s: farthest vertex from the map [m]", name), 0, worst, 1e-5);
    }
    return absl::OkStatus();
  }

  /// A regular base of side 1 with the apex at height 1.
  static sim::TetMesh TetOfHeightOne() {
    const double h = std::sqrt(3.0) / 2;
    sim::TetMesh mesh;
    mesh.vertices = {{0, 0, 0}, {1, 0, 0}, {0.5, h, 0}, {0.5, h / 3, 1}};
    mesh.tets = {{0, 1, 2, 3}};
    return mesh;
  }
  static void FixBase(v1::SceneSpec& spec) {
    v1::VertexList& base = *spec.mutable_bodies(0)->add_fixed()->mutable_vertices();
    for (const uint32_t v : {0U, 1U, 2U}) base.add_indices(v);
  }

  /// E3: 10 sqrt(3) / 3 N draw the apex of a linear tet of E = 40, nu = 0 from height 1 to 2.
  absl::Status OneTet() {
    v1::SceneSpec spec = StaticSceneOf(TetOfHeightOne(), Elastic(v1::MATERIAL_MODEL_LINEAR, 40, 0), 5);
    FixBase(spec);
    v1::LoadSpec& load = *spec.mutable_bodies(0)->add_loads();
    load.mutable_vertices()->add_indices(3);
    load.mutable_force_n()->set_z(10 * std::sqrt(3.0) / 3);
    PALPATE_ASSIGN_OR_RETURN(const std::vector<Vector3d> x, PositionsAfter(spec, 60));
    Add("E3", "one tet: height of the apex [m]", 2, x[3].z(), 1e-5);
    return absl::OkStatus();
  }

  /// E4: a quarter of a newton at each corner stretches a unit cube of E = 10, nu = 0 by a tenth.
  absl::Status OneCube() {
    PALPATE_ASSIGN_OR_RETURN(const sim::TetMesh mesh, sim::BoxMesh({2, 2, 2}, {1, 1, 1}));
    v1::SceneSpec spec = StaticSceneOf(mesh, Elastic(v1::MATERIAL_MODEL_LINEAR, 10, 0), 60);
    PullEnds(mesh, 1, spec);
    *spec.mutable_bodies(0)->add_fixed()->mutable_vertices() = spec.bodies(0).loads(0).vertices();
    PALPATE_ASSIGN_OR_RETURN(const std::vector<Vector3d> x, PositionsAfter(spec, 200));
    for (size_t v = 4; v < 8; ++v) {
      Add("E4", absl::StrFormat("unit cube under 1 N: height of corner %d [m]", v - 4), 1.1, x[v].z() - x[0].z(), 1e-5);
    }
    return absl::OkStatus();
  }

  /// E9: a cantilever under its weight hangs as Newton's method finds it on the same mesh (which converges to beam theory:
  /// tests/vv/elasticity_vv_test.cc).
  absl::Status Cantilever() {
    PALPATE_ASSIGN_OR_RETURN(const sim::TetMesh mesh, sim::BoxMesh({9, 3, 3}, {0.08, 0.02, 0.02}));
    constexpr double kModulus_pa = 20000, kNu = 0.4, kDensity_kg_per_m3 = 1000, kDamping_s = 0.01;
    std::vector<uint8_t> fixed(mesh.vertices.size());
    for (size_t v = 0; v < fixed.size(); ++v) fixed[v] = mesh.vertices[v].x() < -0.0399;
    for (const auto& [model, energy, name] :
         {std::tuple(v1::MATERIAL_MODEL_STABLE_NEO_HOOKEAN, gpu::TissueEnergy::kStableNeoHookean, "neo-Hookean"),
          {v1::MATERIAL_MODEL_COROTATED_LINEAR, gpu::TissueEnergy::kCorotated, "corotated"}}) {
      std::vector<gpu::TissueTet> tets;
      for (const auto& tet : mesh.tets) {
        gpu::TissueTet& t = tets.emplace_back();
        t.vertices = tet;
        t.mu_pa = static_cast<float>(kModulus_pa / (2 * (1 + kNu)));
        t.lambda_pa = static_cast<float>(kModulus_pa * kNu / ((1 + kNu) * (1 - 2 * kNu)));
        t.density_kg_per_m3 = static_cast<float>(kDensity_kg_per_m3);
        t.energy = energy;
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
      PALPATE_ASSIGN_OR_RETURN(const std::vector<Vector3d> x, PositionsAfter(spec, 150));
      double expected_m = 0, sag_m = 0;
      for (size_t v = 0; v < x.size(); ++v) {
        expected_m = std::max(expected_m, mesh.vertices[v].z() - newton.x[3 * static_cast<Eigen::Index>(v) + 2]);
        sag_m = std::max(sag_m, mesh.vertices[v].z() - x[v].z());
      }
      Add("E9", absl::StrFormat("cantilever, %s: sag of the tip against Newton's method [m]", name), expected_m, sag_m, 0.005 * expected_m);
    }
    return absl::OkStatus();
  }

  /// E13: blocks of every model pulled by the force that theory asks for a stretch; near-incompressible ones keep their volume.
  absl::Status UniaxialStretch() {
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
      PALPATE_ASSIGN_OR_RETURN(const std::vector<Vector3d> x, PositionsAfter(spec, 4));
      const std::string name = absl::StrFormat("block, %s, nu %g: ", c.name, c.nu);
      const double along_got = (x[4 * 9] - x[0]).norm() / size.z();
      const double across_got = (x[2 * 9 + 2] - x[2 * 9]).norm() / size.x();
      Add("E13", name + "stretch along", s, along_got, 1e-3);
      Add("E13", name + "stretch across", across, across_got, 1e-3);
      if (c.nu > 0.49) Add("E13", name + "volume over that at rest", s * across * across, along_got * across_got * across_got, 2e-3);
    }
    return absl::OkStatus();
  }

  /// P1: a pressure all around that follows the surface, against the neo-Hookean law.
  absl::Status HydrostaticPressure() {
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
      PALPATE_ASSIGN_OR_RETURN(const std::vector<Vector3d> x, PositionsAfter(spec, 40));
      Add("P1", absl::StrFormat("block under %g Pa all around: stretch", pressure_pa), expected,
          (x[63] - x[0]).norm() / (0.1 * std::sqrt(3.0)), 1e-4);
    }
    return absl::OkStatus();
  }

  /// T1, T2: the apex of a linear tet is a spring and a mass; backward Euler has a recurrence of its own, and loses energy by a factor of
  /// 1 + (omega dt)^2 each step.
  absl::Status Oscillator() {
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
      PALPATE_ASSIGN_OR_RETURN(const std::unique_ptr<Scene> scene, Create(spec));
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
      Add("T1",
          absl::StrFormat("oscillator, damping %g 1/s and %g s: worst distance from the recurrence over the amplitude", mass_damping,
                          damping),
          0, worst / amplitude, damping > 0 ? 1e-3 : 2e-5);
      if (mass_damping == 0) {
        const double speed = (now - before) / kStep_s;
        const double energy = (m * speed * speed + k * now * now) / (m * kSpeed_m_per_s * kSpeed_m_per_s);
        const double expected = std::pow(1 + k / m * kStep_s * kStep_s, -kSteps);
        Add("T2", "oscillator without damping: energy over that at the start", expected, energy, 0.005 * expected);
      }
    }
    return absl::OkStatus();
  }

  /// T6: a soft grid falls for 60 steps as backward Euler falls, and keeps its shape.
  absl::Status FreeFall() {
    PALPATE_ASSIGN_OR_RETURN(const sim::TetMesh mesh, sim::BoxMesh({5, 5, 5}, {0.4, 0.4, 0.4}));
    v1::MaterialSpec material = Elastic(v1::MATERIAL_MODEL_STABLE_NEO_HOOKEAN, 10000, 0.3);
    material.set_density_kg_per_m3(100);
    v1::SceneSpec spec = SceneOf(mesh, material);
    spec.mutable_gravity_m_per_s2()->set_z(-kStandardGravity_m_per_s2);
    spec.set_dt_s(1.0 / 300);
    PALPATE_ASSIGN_OR_RETURN(const std::vector<Vector3d> x, PositionsAfter(spec, 60));
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
    Add("T6", "soft grid: fall [m]", -kStandardGravity_m_per_s2 * 60 * 61 / (2 * 300.0 * 300.0), shift.z(), 1e-5);
    Add("T6", "soft grid: drift to the side [m]", 0, shift.head<2>().norm(), 1e-5);
    Add("T6", "soft grid: least volume of a tet over that at rest", 1, least, 0.01);
    Add("T6", "soft grid: greatest volume of a tet over that at rest", 1, most, 0.01);
    return absl::OkStatus();
  }

  client::SceneClient& server_;
  const std::function<void(const TissueCheck&)>& seen_;
};

}  // namespace

double TissueCheck::error() const { return std::abs(got - expected); }
bool TissueCheck::pass() const { return error() <= tolerance; }

absl::StatusOr<std::vector<TissueCheck>> VerifyTissue(client::SceneClient& server, const std::function<void(const TissueCheck&)>& seen) {
  Verification verification(server, seen);
  PALPATE_RETURN_IF_ERROR(verification.Run());
  return std::move(verification.checks);
}

}  // namespace palpate::cli
