#include "clients/cli/verify_tissue_bench.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <utility>

#include <Eigen/Dense>

#include "clients/cpp/watch_stream.h"
#include "gpu/base/status.h"
#include "sim/mesh/mesh_io.h"

namespace palpate::cli {
namespace {

using Eigen::Matrix3d;
using Eigen::Vector3d;

constexpr double kStaticDensity_kg_per_m3 = 1;
constexpr double kStaticStep_s = 0.1;

Matrix3d PolarRotation(const Matrix3d& f) {
  const Eigen::JacobiSVD<Matrix3d> svd(f, Eigen::ComputeFullU | Eigen::ComputeFullV);
  return svd.matrixU() * svd.matrixV().transpose();
}

}  // namespace

TissueBench::Scene::~Scene() { bench_.server_.Delete(id_).IgnoreError(); }

absl::StatusOr<std::vector<Vector3d>> TissueBench::Scene::Step(uint32_t steps) {
  PALPATE_RETURN_IF_ERROR(bench_.server_.Step(id_, steps).status());
  v1::ExportSceneRequest request;
  request.set_scene_id(id_);
  request.set_format(v1::EXPORT_FORMAT_VTK);
  PALPATE_ASSIGN_OR_RETURN(const v1::ExportSceneResponse response, bench_.server_.Export(request));
  PALPATE_ASSIGN_OR_RETURN(sim::TetMesh mesh, sim::ParseVtk(response.data(), "the export of the server"));
  return std::move(mesh.vertices);
}

absl::StatusOr<std::vector<Vector3d>> TissueBench::Scene::Settle(uint32_t least, uint32_t steps, double still_m) {
  for (uint32_t done = least;; ++done) {
    PALPATE_RETURN_IF_ERROR(bench_.server_.Step(id_, done == least ? std::max(least, 1U) : 1U).status());
    PALPATE_ASSIGN_OR_RETURN(const v1::Frame frame, CurrentFrame());
    if (done >= steps || frame.stats().max_speed_m_per_s() * kStaticStep_s <= still_m) return Step(1);
  }
}

absl::StatusOr<double> TissueBench::Scene::ElasticEnergy() {
  PALPATE_ASSIGN_OR_RETURN(const v1::Frame frame, CurrentFrame());
  if (!frame.stats().has_elastic_energy_j()) return absl::FailedPreconditionError("the scene does not report its energy");
  return frame.stats().elastic_energy_j();
}

absl::StatusOr<v1::Frame> TissueBench::Scene::CurrentFrame() {
  v1::WatchRequest request;
  request.set_scene_id(id_);
  request.set_positions(v1::POSITION_ENCODING_NONE);
  client::WatchStream stream(bench_.connection_, request);
  v1::WatchUpdate update;
  while (stream.Read(&update)) {
    if (!update.has_keyframe()) continue;
    stream.Cancel();
    stream.Finish().IgnoreError();
    return std::move(*update.mutable_keyframe()->mutable_frame());
  }
  PALPATE_RETURN_IF_ERROR(stream.Finish());
  return absl::InternalError("the stream of the scene ended without a keyframe");
}

absl::StatusOr<std::unique_ptr<TissueBench::Scene>> TissueBench::Create(const v1::SceneSpec& spec) {
  v1::CreateSceneRequest request;
  *request.mutable_spec() = spec;
  PALPATE_ASSIGN_OR_RETURN(const v1::SceneInfo info, server_.Create(request));
  return std::make_unique<Scene>(*this, info.scene_id());
}

absl::StatusOr<std::vector<Vector3d>> TissueBench::PositionsAfter(const v1::SceneSpec& spec, uint32_t steps) {
  PALPATE_ASSIGN_OR_RETURN(const std::unique_ptr<Scene> scene, Create(spec));
  return scene->Step(steps);
}

void TissueBench::Add(std::string id, std::string what, double expected, double got, double tolerance) {
  checks.push_back({std::move(id), std::move(what), expected, got, tolerance});
  seen_(checks.back());
}

v1::MaterialSpec TissueLaw::Spec() const { return Elastic(model, young_modulus_pa, poisson_ratio); }

double TissueLaw::EnergyDensity(const Matrix3d& f) const {
  const double mu = mu_pa(), lambda = lambda_pa();
  const auto hooke = [&](const Matrix3d& e) { return mu * e.squaredNorm() + lambda / 2 * e.trace() * e.trace(); };
  switch (model) {
    case v1::MATERIAL_MODEL_ST_VENANT_KIRCHHOFF:
      return hooke((f.transpose() * f - Matrix3d::Identity()) / 2);
    case v1::MATERIAL_MODEL_LINEAR:
      return hooke((f + f.transpose()) / 2 - Matrix3d::Identity());
    case v1::MATERIAL_MODEL_COROTATED_LINEAR:
      return hooke(PolarRotation(f).transpose() * f - Matrix3d::Identity());
    default: {
      const double j1 = f.determinant() - 1;
      return mu / 2 * (f.squaredNorm() - 3) - mu * j1 + (lambda + mu) / 2 * j1 * j1;
    }
  }
}

Matrix3d TissueLaw::Stress(const Matrix3d& f) const {
  const double mu = mu_pa(), lambda = lambda_pa();
  const auto hooke = [&](const Matrix3d& e) { return Matrix3d(2 * mu * e + lambda * e.trace() * Matrix3d::Identity()); };
  switch (model) {
    case v1::MATERIAL_MODEL_ST_VENANT_KIRCHHOFF:
      return f * hooke((f.transpose() * f - Matrix3d::Identity()) / 2);
    case v1::MATERIAL_MODEL_LINEAR:
      return hooke((f + f.transpose()) / 2 - Matrix3d::Identity());
    case v1::MATERIAL_MODEL_COROTATED_LINEAR: {
      const Matrix3d r = PolarRotation(f);
      return r * hooke(r.transpose() * f - Matrix3d::Identity());
    }
    default: {
      const double j = f.determinant();
      return mu * f + ((lambda + mu) * (j - 1) - mu) * j * f.inverse().transpose();
    }
  }
}

void Set(v1::Vec3& out, const Vector3d& v) {
  out.set_x(v.x());
  out.set_y(v.y());
  out.set_z(v.z());
}

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

void Calm(v1::SceneSpec& spec) { spec.mutable_bodies(0)->mutable_material()->set_mass_damping_per_s(30); }

v1::MaterialSpec Elastic(v1::MaterialModel model, double young_modulus_pa, double poisson_ratio) {
  v1::MaterialSpec material;
  material.set_model(model);
  material.set_young_modulus_pa(young_modulus_pa);
  material.set_poisson_ratio(poisson_ratio);
  return material;
}

void LoadPlane(const sim::TetMesh& mesh, int axis, double coordinate_m, const Vector3d& force_n, v1::SceneSpec& spec) {
  v1::LoadSpec& load = *spec.mutable_bodies(0)->add_loads();
  for (size_t v = 0; v < mesh.vertices.size(); ++v) {
    if (std::abs(mesh.vertices[v][axis] - coordinate_m) < 1e-9) load.mutable_vertices()->add_indices(static_cast<uint32_t>(v));
  }
  Set(*load.mutable_force_n(), force_n);
}

void PullEnds(const sim::TetMesh& mesh, double force_n, v1::SceneSpec& spec, int axis) {
  double low = 0, high = 0;
  for (const Vector3d& v : mesh.vertices) {
    low = std::min(low, v[axis]);
    high = std::max(high, v[axis]);
  }
  LoadPlane(mesh, axis, low, -force_n * Vector3d::Unit(axis), spec);
  LoadPlane(mesh, axis, high, force_n * Vector3d::Unit(axis), spec);
}

void LoadFaces(const sim::TetMesh& mesh, const Vector3d& size_m, const Matrix3d& stress_pa, v1::SceneSpec& spec) {
  for (int axis = 0; axis < 3; ++axis) {
    const double area_m2 = size_m.prod() / size_m[axis];
    for (const double side : {-1.0, 1.0}) LoadPlane(mesh, axis, side * size_m[axis] / 2, side * area_m2 * stress_pa.col(axis), spec);
  }
}

void DriveAffine(const sim::TetMesh& mesh, const Matrix3d& f, const std::function<bool(const Vector3d&)>& drives, v1::SceneSpec& spec) {
  // Vertices that move alike share a region, of which there may not be many.
  std::map<std::array<int64_t, 3>, v1::FixedRegion*> regions;
  for (uint32_t v = 0; v < mesh.vertices.size(); ++v) {
    if (!drives(mesh.vertices[v])) continue;
    const Vector3d move = (f - Matrix3d::Identity()) * mesh.vertices[v];
    std::array<int64_t, 3> key{};
    for (int axis = 0; axis < 3; ++axis) key[static_cast<size_t>(axis)] = std::llround(move[axis] * 1e12);
    v1::FixedRegion*& region = regions[key];
    if (region == nullptr) {
      region = spec.mutable_bodies(0)->add_fixed();
      Set(*region->mutable_motion()->mutable_velocity_m_per_s(), move);
    }
    region->mutable_vertices()->add_indices(v);
  }
}

sim::TetMesh TetOfHeightOne() {
  const double h = std::sqrt(3.0) / 2;
  sim::TetMesh mesh;
  mesh.vertices = {{0, 0, 0}, {1, 0, 0}, {0.5, h, 0}, {0.5, h / 3, 1}};
  mesh.tets = {{0, 1, 2, 3}};
  return mesh;
}

void FixBase(v1::SceneSpec& spec) {
  v1::VertexList& base = *spec.mutable_bodies(0)->add_fixed()->mutable_vertices();
  for (const uint32_t v : {0U, 1U, 2U}) base.add_indices(v);
}

double Root(double low, double high, const std::function<double(double)>& f) {
  for (int i = 0; i < 200; ++i) {
    const double middle = (low + high) / 2;
    (f(middle) < 0 ? low : high) = middle;
  }
  return (low + high) / 2;
}

}  // namespace palpate::cli
