#pragma once

#include <array>
#include <cstdint>

#include "gpu/shared/energies.h"

namespace palpate::sim {

/// Elastic energy densities, those of gpu/shared/energies.h; see docs/algorithms/tissue.md. kLinear is for small strain: right only where
/// nothing turns. kMassSpring has springs along the edges of the tets; its Poisson's ratio is 1/4.
enum class MaterialModel {
#define PALPATE_ENERGY(name, Name, api, code, text) k##Name = code,
  PALPATE_ELASTIC_ENERGIES(PALPATE_ENERGY)
#undef PALPATE_ENERGY
};

/// Whether a number that was read is one of them.
constexpr bool IsMaterialModel(MaterialModel model) {
  switch (model) {
#define PALPATE_ENERGY(name, Name, api, code, text) case MaterialModel::k##Name:
    PALPATE_ELASTIC_ENERGIES(PALPATE_ENERGY)
#undef PALPATE_ENERGY
    return true;
  }
  return false;
}

/// Fibres of a linear or St-Venant-Kirchhoff tet, for transverse isotropy with the five constants of Spencer 1984; Lame constants are then
/// those across them.
struct ElasticFibers {
  std::array<float, 3> direction{};  ///< at rest, unit
  float coupling_pa = 0;             ///< alpha, of (a . E a) tr E
  float stiffness_pa = 0;            ///< beta, of (a . E a)^2 / 2
  float shear_pa = 0;                ///< shear modulus along minus across, of 2 |E a|^2
};

/// One linear tetrahedron for elasticity on the host. Constants are rounded to float, as the solver has them.
struct ElasticTet {
  std::array<uint32_t, 4> vertices{};  ///< positive orientation
  float mu_pa = 0;                     ///< Lame constants of small strain
  float lambda_pa = 0;
  float damping_s = 0;  ///< stiffness-proportional viscosity
  float density_kg_per_m3 = 0;
  float mass_damping_per_s = 0;  ///< mass-proportional (Rayleigh)
  MaterialModel model = MaterialModel::kStableNeoHookean;
  ElasticFibers fibers{};

  template <typename Archive>
  void VisitState(Archive& archive) {
    auto& [corners, mu, lambda, damping, density, mass_damping, energy, along] = *this;
    auto& [direction, coupling, stiffness, shear] = along;
    uint32_t shape = 0, is_smoothed = 0;  // states hold tets in the solver's form, of which these are the last members
    archive(corners, mu, lambda, damping, density, mass_damping, energy, direction, coupling, stiffness, shear, shape, is_smoothed);
  }
};

}  // namespace palpate::sim
