#include "sim/scene/material.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace palpate::sim {
namespace {

/// Overwrites Lame constants and fibres of `tet`.
absl::Status AddFibers(const Material& material, const FiberProperties& fibers, ElasticTet* tet) {
  if (material.model != MaterialModel::kLinear && material.model != MaterialModel::kStVenantKirchhoff) {
    return absl::InvalidArgumentError("fibers: only the linear and the St-Venant-Kirchhoff model have fibres");
  }
  // Compliance with the fibres along axis 3, inverted: Ting, Anisotropic Elasticity, 1996, section 2.4.
  const double across = material.young_modulus_pa;
  const double along = fibers.young_modulus_pa;
  const double nu = material.poisson_ratio;
  const double nu_along = fibers.poisson_ratio;
  const double rest = 1 - nu - 2 * nu_along * nu_along * across / along;
  if (!(rest > 1e-3)) {
    return absl::InvalidArgumentError(absl::StrCat("fibers.poisson_ratio: ", nu_along, " leaves 1 - nu - 2 nu_along^2 E / E_along = ", rest,
                                                   ", below 0.001: the material would not resist every change of volume"));
  }
  const double c13 = nu_along * across / rest;
  const double c33 = along * (1 - nu) / rest;
  const double mu = across / (2 * (1 + nu));
  const double lambda = across / (2 * rest) - mu;
  const double shear = fibers.shear_modulus_pa;
  tet->mu_pa = static_cast<float>(mu);
  tet->lambda_pa = static_cast<float>(lambda);
  for (int axis = 0; axis < 3; ++axis) tet->fibers.direction[static_cast<size_t>(axis)] = static_cast<float>(fibers.direction[axis]);
  tet->fibers.coupling_pa = static_cast<float>(c13 - lambda);
  tet->fibers.shear_pa = static_cast<float>(shear - mu);
  tet->fibers.stiffness_pa = static_cast<float>(c33 - 2 * c13 + lambda - 4 * shear + 2 * mu);
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckMaterialRanges(const Material& material) {
  absl::Status status;
  // NaN fails the comparison.
  const auto in = [&](const char* field, double value, double low, double high) {
    if (!status.ok() || (value >= low && value <= high)) return;
    status = absl::InvalidArgumentError(absl::StrCat(field, ": ", value, " is outside [", low, ", ", high, "]"));
  };
  in("young_modulus_pa", material.young_modulus_pa, 10, 1e9);
  in("poisson_ratio", material.poisson_ratio, 0, 0.495);
  in("density_kg_per_m3", material.density_kg_per_m3, 1, 30000);
  in("damping_s", material.damping_s, 0, 1);
  in("mass_damping_per_s", material.mass_damping_per_s, 0, 1000);
  in("fracture_toughness_j_per_m2", material.fracture_toughness_j_per_m2, 0, 1e5);
  if (!material.fibers) return status;
  in("fibers.young_modulus_pa", material.fibers->young_modulus_pa, 10, 1e9);
  in("fibers.poisson_ratio", material.fibers->poisson_ratio, 0, 1);
  in("fibers.shear_modulus_pa", material.fibers->shear_modulus_pa, 1, 1e9);
  return status;
}

gpu::TissueShape ShapeOf(const ShapeMatchingOptions& options, const Material& material) {
  gpu::TissueShape shape;
  shape.mode = options.mode == ShapeMode::kRigid    ? gpu::TissueShapeMode::kRigid
               : options.mode == ShapeMode::kLinear ? gpu::TissueShapeMode::kLinear
                                                    : gpu::TissueShapeMode::kQuadratic;
  const double nu = material.poisson_ratio;
  shape.beta = options.beta >= 0 ? options.beta : options.keeps_volume ? std::min(3 * nu / (1 + nu), kMaxShapeBeta) : 0.5;
  shape.cluster_size_m = options.cluster_size_m;
  shape.keeps_volume = options.keeps_volume;
  return shape;
}

absl::Status CheckElementFor(TetElement element, BodyKind kind, Simulation simulation, bool has_tets) {
  if (element == TetElement::kLinear) return absl::OkStatus();
  if (element != TetElement::kNodeSmoothed) return absl::InvalidArgumentError("not an element");
  if (kind == BodyKind::kDeformable && simulation == Simulation::kDynamic && has_tets) return absl::OkStatus();
  return absl::InvalidArgumentError("only a deformable body of tets with simulation SIMULATION_DYNAMIC is node-smoothed");
}

absl::Status CheckMaterialFor(Simulation simulation, TetElement element, const Material& material) {
  if (element == TetElement::kNodeSmoothed && material.fibers) {
    return absl::InvalidArgumentError("fibers: a node-smoothed body has none");
  }
  if (element == TetElement::kNodeSmoothed && material.model == MaterialModel::kMassSpring) {
    return absl::InvalidArgumentError("model: springs of a node-smoothed body would have nothing to smooth");
  }
  if (simulation != Simulation::kShapeMatched) return absl::OkStatus();
  if (material.fibers) return absl::InvalidArgumentError("fibers: a shape-matched body has none");
  if (material.model != MaterialModel::kStableNeoHookean) {
    return absl::InvalidArgumentError("model: a shape-matched body has no elastic model");
  }
  return absl::OkStatus();
}

absl::StatusOr<ElasticTet> ElasticTetOf(const Material& material) {
  const double e = material.young_modulus_pa;
  const double nu = material.model == MaterialModel::kMassSpring ? 0.25 : material.poisson_ratio;
  ElasticTet tet;
  tet.mu_pa = static_cast<float>(e / (2 * (1 + nu)));
  tet.lambda_pa = static_cast<float>(e * nu / ((1 + nu) * (1 - 2 * nu)));
  if (material.model == MaterialModel::kMassSpring) tet.lambda_pa = tet.mu_pa;  // equal but for rounding
  tet.damping_s = static_cast<float>(material.damping_s);
  tet.mass_damping_per_s = static_cast<float>(material.mass_damping_per_s);
  tet.density_kg_per_m3 = static_cast<float>(material.density_kg_per_m3);
  tet.model = material.model;
  if (material.fibers) PALPATE_RETURN_IF_ERROR(AddFibers(material, *material.fibers, &tet));
  return tet;
}

absl::StatusOr<gpu::TissueTet> TissueOf(const Material& material) {
  PALPATE_ASSIGN_OR_RETURN(const ElasticTet tet, ElasticTetOf(material));
  return TissueOf(tet);
}

}  // namespace palpate::sim
