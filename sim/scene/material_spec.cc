#include "sim/scene/material_spec.h"

#include "absl/strings/str_cat.h"
#include "sim/scene/material.h"
#include "sim/scene/scene_spec.h"

namespace palpate::scene {
namespace {

double Or(bool has, double value, double fallback) { return has ? value : fallback; }

struct ModelRow {
  sim::MaterialModel model;
  v1::MaterialModel spec;
};
constexpr ModelRow kModels[] = {
#define PALPATE_ENERGY(name, Name, api, code, text) {sim::MaterialModel::k##Name, v1::MATERIAL_MODEL_##api},
    PALPATE_ELASTIC_ENERGIES(PALPATE_ENERGY)
#undef PALPATE_ENERGY
};

v1::MaterialModel ModelOf(sim::MaterialModel model) {
  for (const ModelRow& row : kModels) {
    if (row.model == model) return row.spec;
  }
  return v1::MATERIAL_MODEL_UNSPECIFIED;
}

/// What is not said is stable neo-Hookean.
sim::MaterialModel ModelFrom(v1::MaterialModel spec) {
  for (const ModelRow& row : kModels) {
    if (row.spec == spec) return row.model;
  }
  return sim::MaterialModel::kStableNeoHookean;
}

v1::MaterialSpec SpecOf(const sim::Material& material) {
  v1::MaterialSpec spec;
  spec.set_model(ModelOf(material.model));
  spec.set_young_modulus_pa(material.young_modulus_pa);
  spec.set_poisson_ratio(material.poisson_ratio);
  spec.set_density_kg_per_m3(material.density_kg_per_m3);
  spec.set_damping_s(material.damping_s);
  spec.set_mass_damping_per_s(material.mass_damping_per_s);
  spec.set_fracture_toughness_j_per_m2(material.fracture_toughness_j_per_m2);
  if (material.fibers) {
    v1::FiberSpec& fibers = *spec.mutable_fibers();
    fibers.mutable_direction()->set_x(material.fibers->direction.x());
    fibers.mutable_direction()->set_y(material.fibers->direction.y());
    fibers.mutable_direction()->set_z(material.fibers->direction.z());
    fibers.set_young_modulus_pa(material.fibers->young_modulus_pa);
    fibers.set_poisson_ratio(material.fibers->poisson_ratio);
    fibers.set_shear_modulus_pa(material.fibers->shear_modulus_pa);
  }
  return spec;
}

bool CanHaveFibers(v1::MaterialModel model) {
  return model == v1::MATERIAL_MODEL_LINEAR || model == v1::MATERIAL_MODEL_ST_VENANT_KIRCHHOFF;
}

}  // namespace

void CheckMaterialRanges(Checker& check, const std::string& path, const v1::MaterialSpec& m) {
  if (!v1::MaterialModel_IsValid(m.model())) {
    check.Invalid(At(path, "model"), absl::StrCat(static_cast<int>(m.model()), " is outside [0, 5]"));
  }
  if (m.has_fibers()) {
    const v1::Vec3& direction = m.fibers().direction();
    check.RangeVec(At(path, "fibers.direction"), direction, -kMaxMeshCoordinate, kMaxMeshCoordinate);
    if (ToEigen(direction).isZero(0)) check.Invalid(At(path, "fibers.direction"), "is zero");
  }
  if (!check.ok()) return;
  // What is not given has its default, which lies within its range.
  if (const absl::Status status = sim::CheckMaterialRanges(MaterialFrom(m, Eigen::Quaterniond::Identity())); !status.ok()) {
    check.Fail(absl::Status(status.code(), absl::StrCat(View(path), ".", status.message())));
  }
}

void CheckMaterial(Checker& check, const std::string& path, const v1::MaterialSpec& m) {
  CheckMaterialRanges(check, path, m);
  if (m.model() == v1::MATERIAL_MODEL_MASS_SPRING && m.has_poisson_ratio() && m.poisson_ratio() != 0.25) {
    check.Invalid(At(path, "poisson_ratio"), absl::StrCat(m.poisson_ratio(), " is not 0.25, the only one that springs can have"));
  }
  if (!m.has_fibers()) return;
  if (m.model() != v1::MATERIAL_MODEL_LINEAR && m.model() != v1::MATERIAL_MODEL_ST_VENANT_KIRCHHOFF) {
    check.Invalid(At(path, "fibers"), "only the linear and the St-Venant-Kirchhoff model have fibres");
  }
  if (!check.ok()) return;
  if (absl::StatusOr<gpu::TissueTet> tissue = sim::TissueOf(MaterialFrom(m, Eigen::Quaterniond::Identity())); !tissue.ok()) {
    check.Fail(absl::Status(tissue.status().code(), absl::StrCat(View(path), ".", tissue.status().message())));
  }
}

sim::Material MaterialFrom(const v1::MaterialSpec& m, const Eigen::Quaterniond& turn) {
  sim::Material out;
  out.model = ModelFrom(m.model());
  if (out.model == sim::MaterialModel::kMassSpring) out.poisson_ratio = 0.25;
  if (m.has_young_modulus_pa()) out.young_modulus_pa = m.young_modulus_pa();
  if (m.has_poisson_ratio()) out.poisson_ratio = m.poisson_ratio();
  if (m.has_density_kg_per_m3()) out.density_kg_per_m3 = m.density_kg_per_m3();
  if (m.has_damping_s()) out.damping_s = m.damping_s();
  if (m.has_mass_damping_per_s()) out.mass_damping_per_s = m.mass_damping_per_s();
  if (m.has_fracture_toughness_j_per_m2()) out.fracture_toughness_j_per_m2 = m.fracture_toughness_j_per_m2();
  if (m.has_fibers()) {
    const v1::FiberSpec& f = m.fibers();
    sim::FiberProperties fibers;
    fibers.direction = turn * Direction(ToEigen(f.direction()));
    fibers.young_modulus_pa = Or(f.has_young_modulus_pa(), f.young_modulus_pa(), 3 * out.young_modulus_pa);
    fibers.poisson_ratio = Or(f.has_poisson_ratio(), f.poisson_ratio(), out.poisson_ratio);
    fibers.shear_modulus_pa = Or(f.has_shear_modulus_pa(), f.shear_modulus_pa(), out.young_modulus_pa / (2 * (1 + out.poisson_ratio)));
    out.fibers = fibers;
  }
  return out;
}

absl::StatusOr<sim::Material> ChangedMaterial(const sim::Material& present, const v1::MaterialSpec& change, std::string_view path) {
  v1::MaterialSpec spec = SpecOf(present);
  if (change.model() != v1::MATERIAL_MODEL_UNSPECIFIED) spec.set_model(change.model());
  if (spec.model() == v1::MATERIAL_MODEL_MASS_SPRING) spec.clear_poisson_ratio();
  if (change.has_fibers() || !CanHaveFibers(spec.model())) spec.clear_fibers();
  spec.MergeFrom(change);
  Checker check;
  CheckMaterial(check, std::string(path), spec);
  if (!check.ok()) return check.status();
  return MaterialFrom(spec, Eigen::Quaterniond::Identity());
}

}  // namespace palpate::scene
