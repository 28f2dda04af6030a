#pragma once

#include <Eigen/Dense>
#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <random>
#include <vector>

#include "gpu/dynamics/tissue_layout.h"

namespace palpate::gpu {

inline constexpr std::array kAllEnergies = {
#define PALPATE_TEST_ENERGY(name, Name, API, code, text) TissueEnergy::k##Name,
    PALPATE_ELASTIC_ENERGIES(PALPATE_TEST_ENERGY)
#undef PALPATE_TEST_ENERGY
};
inline const char* Name(TissueEnergy energy) {
  switch (energy) {
#define PALPATE_TEST_ENERGY(name, Name, API, code, text) \
  case TissueEnergy::k##Name:                            \
    return text;
    PALPATE_ELASTIC_ENERGIES(PALPATE_TEST_ENERGY)
#undef PALPATE_TEST_ENERGY
    case TissueEnergy::kShapeMatched:
      break;
  }
  return "shape-matched";
}

/// Material of a test body.
struct TestMaterial {
  double young_modulus_pa = 10000;
  double poisson_ratio = 0.4;
  double density_kg_per_m3 = 1000;
  double damping_s = 0;
  double mass_damping_per_s = 0;
  TissueEnergy energy = TissueEnergy::kStableNeoHookean;
  TissueFibers fibers{};
};

/// Coordinates of vertices, x y z one after the other as the solver has them, as vectors; and back.
inline std::vector<Eigen::Vector3d> Unpack(const std::vector<float>& flat) {
  std::vector<Eigen::Vector3d> out;
  for (size_t i = 0; i < flat.size(); i += 3) out.emplace_back(flat[i], flat[i + 1], flat[i + 2]);
  return out;
}
inline std::vector<float> Pack(const std::vector<Eigen::Vector3d>& vectors) {
  std::vector<float> flat;
  for (const Eigen::Vector3d& v : vectors) {
    for (int axis = 0; axis < 3; ++axis) flat.push_back(static_cast<float>(v[axis]));
  }
  return flat;
}

/// Triangles of exactly one tet, outward.
inline std::vector<std::array<uint32_t, 3>> BoundaryOf(const std::vector<TissueTet>& tets) {
  std::map<std::array<uint32_t, 3>, std::pair<int, std::array<uint32_t, 3>>> faces;
  constexpr int kFaces[4][3] = {{1, 2, 3}, {0, 3, 2}, {0, 1, 3}, {0, 2, 1}};
  for (const TissueTet& tet : tets) {
    for (const auto& face : kFaces) {
      const std::array<uint32_t, 3> oriented{tet.vertices[face[0]], tet.vertices[face[1]], tet.vertices[face[2]]};
      std::array<uint32_t, 3> key = oriented;
      std::sort(key.begin(), key.end());
      auto& entry = faces[key];
      ++entry.first;
      entry.second = oriented;
    }
  }
  std::vector<std::array<uint32_t, 3>> boundary;
  for (const auto& [key, entry] : faces) {
    if (entry.first == 1) boundary.push_back(entry.second);
  }
  return boundary;
}

/// A box of cells[0] x cells[1] x cells[2] cubes, six tets each, its lowest corner at `corner_m`. Vertex (i, j, k) has the index
/// i + (cells[0] + 1) * (j + (cells[1] + 1) * k).
inline TissueModel BoxModel(std::array<uint32_t, 3> cells, const Eigen::Vector3d& size_m, const Eigen::Vector3d& corner_m,
                            const TestMaterial& material) {
  TissueModel model;
  for (uint32_t k = 0; k <= cells[2]; ++k) {
    for (uint32_t j = 0; j <= cells[1]; ++j) {
      for (uint32_t i = 0; i <= cells[0]; ++i) {
        model.rest_m.push_back(
            {corner_m.x() + size_m.x() * i / cells[0], corner_m.y() + size_m.y() * j / cells[1], corner_m.z() + size_m.z() * k / cells[2]});
      }
    }
  }
  TissueTet tet{};
  const double e = material.young_modulus_pa;
  const double nu = material.poisson_ratio;
  tet.mu_pa = static_cast<float>(e / (2 * (1 + nu)));
  tet.lambda_pa = static_cast<float>(e * nu / ((1 + nu) * (1 - 2 * nu)));
  tet.damping_s = static_cast<float>(material.damping_s);
  tet.density_kg_per_m3 = static_cast<float>(material.density_kg_per_m3);
  tet.mass_damping_per_s = static_cast<float>(material.mass_damping_per_s);
  tet.energy = material.energy;
  tet.fibers = material.fibers;
  if (tet.energy == TissueEnergy::kMassSpring) tet.mu_pa = tet.lambda_pa = static_cast<float>(0.4 * e);
  // Every order of the three axes is a path from the low to the high corner of the cube: one tet each.
  constexpr int kPaths[6][3] = {{0, 1, 2}, {1, 2, 0}, {2, 0, 1}, {0, 2, 1}, {2, 1, 0}, {1, 0, 2}};
  const auto index = [&](const std::array<uint32_t, 3>& p) { return p[0] + (cells[0] + 1) * (p[1] + (cells[1] + 1) * p[2]); };
  for (uint32_t k = 0; k < cells[2]; ++k) {
    for (uint32_t j = 0; j < cells[1]; ++j) {
      for (uint32_t i = 0; i < cells[0]; ++i) {
        for (int path = 0; path < 6; ++path) {
          std::array<uint32_t, 3> at{i, j, k};
          tet.vertices[0] = index(at);
          for (int s = 0; s < 3; ++s) {
            ++at[kPaths[path][s]];
            tet.vertices[s + 1] = index(at);
          }
          if (path >= 3) std::swap(tet.vertices[2], tet.vertices[3]);
          model.tets.push_back(tet);
        }
      }
    }
  }
  model.fixed.assign(model.rest_m.size(), 0);
  model.surface_triangles = BoundaryOf(model.tets);
  return model;
}

/// Random valid tets over random points: far more neighbours per vertex than a mesh has, and vertices without any tet.
inline TissueModel TangledModel(uint32_t vertex_count, uint32_t tet_count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> coordinate(-0.1, 0.1);
  TissueModel model;
  for (uint32_t v = 0; v < vertex_count; ++v) model.rest_m.push_back({coordinate(random), coordinate(random), coordinate(random)});
  const auto at = [&](uint32_t v) { return Eigen::Vector3d(model.rest_m[v][0], model.rest_m[v][1], model.rest_m[v][2]); };
  while (model.tets.size() < tet_count) {
    std::array<uint32_t, 4> v{};
    for (uint32_t& i : v) i = static_cast<uint32_t>(random() % vertex_count);
    const double volume = (at(v[1]) - at(v[0])).cross(at(v[2]) - at(v[0])).dot(at(v[3]) - at(v[0]));
    if (std::abs(volume) < 1e-6) continue;
    if (volume < 0) std::swap(v[2], v[3]);
    TissueTet tet{};
    tet.vertices = v;
    tet.mu_pa = 1000.0F + static_cast<float>(random() % 1000);
    tet.lambda_pa = 2000;
    tet.damping_s = 0.01F;
    tet.density_kg_per_m3 = 1000;
    tet.energy = kAllEnergies[random() % kAllEnergies.size()];
    if (tet.energy == TissueEnergy::kMassSpring) tet.lambda_pa = tet.mu_pa;
    if (tet.energy == TissueEnergy::kLinear && random() % 2 == 0) tet.fibers = {{0.6F, 0, 0.8F}, 100, 3000, 200};
    model.tets.push_back(tet);
  }
  model.fixed.assign(vertex_count, 0);
  for (uint8_t& f : model.fixed) f = random() % 5 == 0;
  model.fixed[0] = 0;
  model.surface_triangles = BoundaryOf(model.tets);
  return model;
}

}  // namespace palpate::gpu
