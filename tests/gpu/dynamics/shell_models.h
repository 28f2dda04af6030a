#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "gpu/dynamics/tissue_layout.h"

namespace palpate::gpu {

/// Material of a test shell.
struct TestShell {
  double young_modulus_pa = 1e5;
  double poisson_ratio = 0.3;
  double weft_ratio = 1;  ///< of the moduli of weft and warp
  double thickness_m = 0.001;
  double density_kg_per_m3 = 500;
  double damping_s = 0;
  double mass_damping_per_s = 0;
  double strain_limit = 0;
  ShellMembrane membrane = ShellMembrane::kStVenantKirchhoff;
  ShellBending bending = ShellBending::kDiscreteShells;
};

inline ShellTriangle TriangleOf(const TestShell& shell) {
  const double e = shell.young_modulus_pa;
  const double nu = shell.poisson_ratio;
  const double rest = 1 - nu * nu * shell.weft_ratio;
  ShellTriangle out;
  out.thickness_m = static_cast<float>(shell.thickness_m);
  out.density_kg_per_m3 = static_cast<float>(shell.density_kg_per_m3);
  out.damping_s = static_cast<float>(shell.damping_s);
  out.mass_damping_per_s = static_cast<float>(shell.mass_damping_per_s);
  out.membrane = shell.membrane;
  out.warp = {1, 0, 0};
  out.moduli_pa = {static_cast<float>(e / rest), static_cast<float>(nu * shell.weft_ratio * e / rest),
                   static_cast<float>(shell.weft_ratio * e / rest), static_cast<float>(e / (2 * (1 + nu)))};
  out.bending = shell.bending;
  out.bending_stiffness_n_m = static_cast<float>(e * std::pow(shell.thickness_m, 3) / (12 * (1 - nu * nu)));
  out.strain_limit = static_cast<float>(shell.strain_limit);
  return out;
}

/// Appends a sheet in the plane z = corner[2] of columns x rows cells of nearly regular triangles, its corner at `corner`, as body
/// `self_collision.size()`. Vertices are row by row; odd rows have one more. All free.
inline void AddSheet(TissueModel* model, uint32_t columns, uint32_t rows, const std::array<double, 2>& size_m,
                     const std::array<double, 3>& corner, const TestShell& shell) {
  std::vector<std::pair<uint32_t, double>> before;
  const auto first_triangle = static_cast<uint32_t>(model->surface_triangles.size());
  for (uint32_t j = 0; j <= rows; ++j) {
    std::vector<std::pair<uint32_t, double>> row;
    const auto add = [&](double column) {
      row.emplace_back(static_cast<uint32_t>(model->rest_m.size()), column);
      model->rest_m.push_back({corner[0] + column / columns * size_m[0], corner[1] + size_m[1] * j / rows, corner[2]});
      model->fixed.push_back(kFreeVertex);
    };
    add(0);
    for (uint32_t i = j % 2 == 1 ? 0 : 1; i < columns; ++i) add(j % 2 == 1 ? i + 0.5 : i);
    add(columns);
    for (size_t a = 0, b = 0; j > 0 && (a + 1 < before.size() || b + 1 < row.size());) {
      const bool on_lower = b + 1 == row.size() ||
                            (a + 1 < before.size() && before[a + 1].second - row[b].second <= row[b + 1].second - before[a].second + 1e-12);
      ShellTriangle triangle = TriangleOf(shell);
      triangle.vertices = on_lower ? std::array{before[a].first, before[a + 1].first, row[b].first}
                                   : std::array{before[a].first, row[b + 1].first, row[b].first};
      ++(on_lower ? a : b);
      model->shells.push_back(triangle);
      model->surface_triangles.push_back(triangle.vertices);
    }
    before = std::move(row);
  }
  if (model->body_triangle_begin.empty()) model->body_triangle_begin.push_back(first_triangle);
  model->body_triangle_begin.push_back(static_cast<uint32_t>(model->surface_triangles.size()));
  model->self_collision.push_back(1);
}

/// Appends a closed ball about the origin, all free, as body `self_collision.size()`: the faces of an octahedron in parts^2 triangles each,
/// pushed out onto the sphere, turned outwards.
inline void AddBall(TissueModel* model, uint32_t parts, double radius_m, const TestShell& shell) {
  const auto first_triangle = static_cast<uint32_t>(model->surface_triangles.size());
  std::map<std::array<int, 3>, uint32_t> known;
  const auto vertex = [&](std::array<int, 3> at) {
    const auto [found, is_new] = known.try_emplace(at, static_cast<uint32_t>(model->rest_m.size()));
    if (is_new) {
      const double length = std::sqrt(static_cast<double>(at[0] * at[0] + at[1] * at[1] + at[2] * at[2]));
      model->rest_m.push_back({radius_m * at[0] / length, radius_m * at[1] / length, radius_m * at[2] / length});
      model->fixed.push_back(kFreeVertex);
    }
    return found->second;
  };
  const auto n = static_cast<int>(parts);
  for (int face = 0; face < 8; ++face) {
    const std::array<int, 3> sign = {face % 2 == 0 ? 1 : -1, face / 2 % 2 == 0 ? 1 : -1, face / 4 == 0 ? 1 : -1};
    const bool is_turned = sign[0] * sign[1] * sign[2] < 0;
    const auto at = [&](int a, int b) { return vertex({sign[0] * a, sign[1] * b, sign[2] * (n - a - b)}); };
    const auto add = [&](uint32_t a, uint32_t b, uint32_t c) {
      ShellTriangle triangle = TriangleOf(shell);
      triangle.vertices = {a, is_turned ? c : b, is_turned ? b : c};
      triangle.warp = {0, 0, 0};
      model->shells.push_back(triangle);
      model->surface_triangles.push_back(triangle.vertices);
    };
    for (int a = 0; a < n; ++a) {
      for (int b = 0; a + b < n; ++b) {
        add(at(a, b), at(a + 1, b), at(a, b + 1));
        if (a + b + 2 <= n) add(at(a + 1, b), at(a + 1, b + 1), at(a, b + 1));
      }
    }
  }
  if (model->body_triangle_begin.empty()) model->body_triangle_begin.push_back(first_triangle);
  model->body_triangle_begin.push_back(static_cast<uint32_t>(model->surface_triangles.size()));
  model->self_collision.push_back(1);
}

}  // namespace palpate::gpu
