#include "gpu/dynamics/tissue_layout.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>

namespace palpate::gpu {
namespace {

constexpr float kStaticStiffness_n_per_m = 1e6F;  // more than any tissue's

using Vec = std::array<double, 3>;

// For each corner of a tet, an even permutation of its vertices that begins with that corner.
constexpr uint32_t kCornerOrder[4][4] = {{0, 1, 2, 3}, {1, 0, 3, 2}, {2, 3, 0, 1}, {3, 2, 1, 0}};

Vec Minus(const Vec& a, const Vec& b) { return {a[0] - b[0], a[1] - b[1], a[2] - b[2]}; }
Vec Cross(const Vec& a, const Vec& b) { return {a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]}; }
double Dot(const Vec& a, const Vec& b) { return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]; }

double YoungModulus(const TissueTet& tet) {
  return tet.mu_pa * (3.0 * tet.lambda_pa + 2.0 * tet.mu_pa) / (static_cast<double>(tet.lambda_pa) + tet.mu_pa);
}

/// Rows of the inverse of [a b c]: the rest gradients of the shape functions of a, b and c.
std::array<Vec, 3> InverseRows(const Vec& a, const Vec& b, const Vec& c, double* determinant) {
  const Vec bc = Cross(b, c);
  const Vec ca = Cross(c, a);
  const Vec ab = Cross(a, b);
  *determinant = Dot(a, bc);
  const double s = 1.0 / *determinant;
  return {Vec{bc[0] * s, bc[1] * s, bc[2] * s}, Vec{ca[0] * s, ca[1] * s, ca[2] * s}, Vec{ab[0] * s, ab[1] * s, ab[2] * s}};
}

struct Corner {
  uint32_t tet;
  uint32_t corner;
};

/// Corners of each vertex, in the order of the tets.
struct CornerLists {
  std::vector<uint32_t> begin;
  std::vector<Corner> corners;
};

CornerLists ListCorners(const TissueModel& model) {
  CornerLists lists;
  lists.begin.assign(model.rest_m.size() + 1, 0);
  for (const TissueTet& tet : model.tets) {
    for (const uint32_t v : tet.vertices) ++lists.begin[v + 1];
  }
  std::partial_sum(lists.begin.begin(), lists.begin.end(), lists.begin.begin());
  lists.corners.resize(model.tets.size() * 4);
  std::vector<uint32_t> at(lists.begin.begin(), lists.begin.end() - 1);
  for (uint32_t t = 0; t < model.tets.size(); ++t) {
    for (uint32_t c = 0; c < 4; ++c) lists.corners[at[model.tets[t].vertices[c]]++] = {t, c};
  }
  return lists;
}

/// Greedy colouring of the free vertices such that no tet holds a colour twice; those with most corners first.
std::vector<uint32_t> ColorVertices(const TissueModel& model, const CornerLists& lists, uint32_t* color_count) {
  constexpr uint32_t kNone = 0xffffffffU;
  const size_t n = model.rest_m.size();
  std::vector<uint32_t> order(n);
  std::iota(order.begin(), order.end(), 0U);
  const auto degree = [&](uint32_t v) { return lists.begin[v + 1] - lists.begin[v]; };
  std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return degree(a) > degree(b); });
  std::vector<uint32_t> color(n, kNone);
  std::vector<uint32_t> used_by;  // last vertex that saw each colour at a neighbour
  for (const uint32_t v : order) {
    if (model.fixed[v]) continue;
    for (uint32_t k = lists.begin[v]; k < lists.begin[v + 1]; ++k) {
      for (const uint32_t other : model.tets[lists.corners[k].tet].vertices) {
        if (color[other] != kNone) used_by[color[other]] = v + 1;
      }
    }
    uint32_t c = 0;
    while (c < used_by.size() && used_by[c] == v + 1) ++c;
    if (c == used_by.size()) used_by.push_back(0);
    color[v] = c;
  }
  *color_count = static_cast<uint32_t>(used_by.size());
  return color;
}

/// Rigid bodies need vertices of their own, in one piece of the solver's order: fixed, without tets, rising.
absl::Status CheckRigid(const TissueModel& model) {
  std::vector<uint8_t> has_tet(model.rest_m.size(), 0);
  for (const TissueTet& tet : model.tets) {
    for (const uint32_t v : tet.vertices) has_tet[v] = 1;
  }
  uint32_t end = 0;
  for (size_t r = 0; r < model.rigid.size(); ++r) {
    const TissueRigidBody& rigid = model.rigid[r];
    const auto [first, last] = rigid.vertices;
    if (first < end || last <= first || last > model.rest_m.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("rigid body ", r, ": vertices [", first, ", ", last, ") are not within [", end, ", ", model.rest_m.size(), "]"));
    }
    end = last;
    for (uint32_t v = first; v < last; ++v) {
      if (!model.fixed[v] || has_tet[v]) {
        return absl::InvalidArgumentError(
            absl::StrCat("rigid body ", r, ": vertex ", v, has_tet[v] ? " is of a tet" : " is not marked as fixed"));
      }
    }
    if (size_t{rigid.body} + 1 >= model.body_triangle_begin.size() || model.self_collision[rigid.body] != 0) {
      return absl::InvalidArgumentError(absl::StrCat("rigid body ", r, ": body ", rigid.body, " is out of range or may meet itself"));
    }
  }
  return absl::OkStatus();
}

bool HasFibers(const TissueTet& tet) { return tet.fibers.coupling_pa != 0 || tet.fibers.stiffness_pa != 0 || tet.fibers.shear_pa != 0; }

absl::Status CheckMaterial(const TissueTet& tet, size_t t) {
  if (tet.energy == TissueEnergy::kMassSpring && tet.mu_pa != tet.lambda_pa) {
    return absl::InvalidArgumentError(
        absl::StrCat("tet ", t, ": springs have a Poisson ratio of 1/4, but lambda is ", tet.lambda_pa, " Pa and mu ", tet.mu_pa));
  }
  if (!HasFibers(tet)) return absl::OkStatus();
  if (tet.energy != TissueEnergy::kLinear && tet.energy != TissueEnergy::kStVenantKirchhoff) {
    return absl::InvalidArgumentError(absl::StrCat("tet ", t, ": only linear and St-Venant-Kirchhoff tissue has fibres"));
  }
  const auto& a = tet.fibers.direction;
  const double length = std::hypot(a[0], a[1], a[2]);
  if (!(std::abs(length - 1) < 1e-4)) {
    return absl::InvalidArgumentError(absl::StrCat("tet ", t, ": the fibre direction has the length ", length, ", not 1"));
  }
  return absl::OkStatus();
}

absl::Status CheckModel(const TissueModel& model) {
  const size_t n = model.rest_m.size();
  if (model.fixed.size() != n)
    return absl::InvalidArgumentError(absl::StrCat("fixed: ", model.fixed.size(), " entries for ", n, " vertices"));
  if (n == 0 || (model.tets.empty() && model.rigid.empty() && !model.may_be_at_rest))
    return absl::InvalidArgumentError("the model has no tetrahedra");
  if (model.tets.size() >= (1U << 29) || n >= (1U << 31)) return absl::InvalidArgumentError("the model exceeds 2^29 tetrahedra");
  for (size_t t = 0; t < model.tets.size(); ++t) {
    const auto& v = model.tets[t].vertices;
    for (const uint32_t i : v) {
      if (i >= n) return absl::InvalidArgumentError(absl::StrCat("tet ", t, ": vertex ", i, " is outside [0, ", n, ")"));
    }
    const Vec& o = model.rest_m[v[0]];
    double det = 0;
    InverseRows(Minus(model.rest_m[v[1]], o), Minus(model.rest_m[v[2]], o), Minus(model.rest_m[v[3]], o), &det);
    if (!(det > 0)) return absl::InvalidArgumentError(absl::StrCat("tet ", t, ": volume ", det / 6, " m^3 is not positive"));
    PALPATE_RETURN_IF_ERROR(CheckMaterial(model.tets[t], t));
  }
  for (size_t t = 0; t < model.surface_triangles.size(); ++t) {
    for (const uint32_t i : model.surface_triangles[t]) {
      if (i >= n) return absl::InvalidArgumentError(absl::StrCat("surface triangle ", t, ": vertex ", i, " is outside [0, ", n, ")"));
    }
  }
  if (!model.body_triangle_begin.empty()) {
    const auto& begin = model.body_triangle_begin;
    if (begin.front() != 0 || begin.back() != model.surface_triangles.size() || !std::is_sorted(begin.begin(), begin.end()) ||
        model.self_collision.size() + 1 != begin.size()) {
      return absl::InvalidArgumentError(absl::StrCat("body_triangle_begin must rise from 0 to ", model.surface_triangles.size(), ", with ",
                                                     begin.size() - 1, " entries in self_collision, not ", model.self_collision.size()));
    }
  }
  std::vector<uint8_t> driven(n, 0);
  for (size_t r = 0; r < model.driven.size(); ++r) {
    for (const uint32_t v : model.driven[r].vertices) {
      if (v >= n || !model.fixed[v] || driven[v]) {
        return absl::InvalidArgumentError(absl::StrCat("driven region ", r, ": vertex ", v,
                                                       v >= n            ? " is out of range"
                                                       : !model.fixed[v] ? " is not fixed"
                                                                         : " is given twice"));
      }
      driven[v] = 1;
    }
  }
  if (model.loads.size() > 32) return absl::InvalidArgumentError(absl::StrCat(model.loads.size(), " loads exceed the limit of 32"));
  for (size_t k = 0; k < model.loads.size(); ++k) {
    for (const uint32_t v : model.loads[k].vertices) {
      if (v >= n) return absl::InvalidArgumentError(absl::StrCat("load ", k, ": vertex ", v, " is outside [0, ", n, ")"));
    }
  }
  PALPATE_RETURN_IF_ERROR(CheckRigid(model));
  if (!model.vertex_origin.empty() && model.vertex_origin.size() != n) {
    return absl::InvalidArgumentError(absl::StrCat("vertex_origin: ", model.vertex_origin.size(), " entries for ", n, " vertices"));
  }
  if (!model.may_be_at_rest && model.rigid.empty() &&
      std::all_of(model.fixed.begin(), model.fixed.end(), [](uint8_t f) { return f != 0; })) {
    return absl::InvalidArgumentError("every vertex is fixed: nothing can move");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<TissueLayout> LayOutTissue(const TissueModel& model, double dt_s, uint32_t lanes) {
  PALPATE_RETURN_IF_ERROR(CheckModel(model));
  const CornerLists lists = ListCorners(model);
  uint32_t color_count = 0;
  const std::vector<uint32_t> color = ColorVertices(model, lists, &color_count);
  const auto n = static_cast<uint32_t>(model.rest_m.size());
  const auto blocks_of = [&](uint32_t v) { return (lists.begin[v + 1] - lists.begin[v] + lanes - 1) / lanes; };

  TissueLayout layout;
  layout.lanes = lanes;
  layout.vertex_count = n;
  layout.original_index.resize(n);
  std::iota(layout.original_index.begin(), layout.original_index.end(), 0U);
  // Fixed vertices carry the largest colour and so come last.
  std::stable_sort(layout.original_index.begin(), layout.original_index.end(),
                   [&](uint32_t a, uint32_t b) { return color[a] != color[b] ? color[a] < color[b] : blocks_of(a) > blocks_of(b); });
  layout.solver_index.resize(n);
  layout.color_begin.assign(color_count + 1, 0);
  for (uint32_t i = 0; i < n; ++i) {
    const uint32_t v = layout.original_index[i];
    layout.solver_index[v] = i;
    if (!model.fixed[v]) ++layout.color_begin[color[v] + 1];
  }
  std::partial_sum(layout.color_begin.begin(), layout.color_begin.end(), layout.color_begin.begin());
  layout.free_count = layout.color_begin.back();

  layout.mass_kg.assign(n, 0.0F);
  layout.tets.reserve(model.tets.size());
  layout.tet_rest.reserve(model.tets.size() * 3);
  std::vector<double> mass(n, 0.0);
  std::vector<double> damped_mass(n, 0.0);
  std::vector<double> volume(model.tets.size());
  double edge_sum = 0;
  double modulus_sum = 0;
  for (size_t t = 0; t < model.tets.size(); ++t) {
    const TissueTet& tet = model.tets[t];
    const Vec& o = model.rest_m[tet.vertices[0]];
    double det = 0;
    const auto rows = InverseRows(Minus(model.rest_m[tet.vertices[1]], o), Minus(model.rest_m[tet.vertices[2]], o),
                                  Minus(model.rest_m[tet.vertices[3]], o), &det);
    volume[t] = det / 6;
    for (const uint32_t v : tet.vertices) {
      const double share = volume[t] * tet.density_kg_per_m3 / 4;
      mass[layout.solver_index[v]] += share;
      damped_mass[layout.solver_index[v]] += share * tet.mass_damping_per_s;
    }
    for (uint32_t a = 0; a < 4; ++a) {
      for (uint32_t b = a + 1; b < 4; ++b) {
        const Vec e = Minus(model.rest_m[tet.vertices[a]], model.rest_m[tet.vertices[b]]);
        edge_sum += std::sqrt(Dot(e, e));
      }
    }
    modulus_sum += YoungModulus(tet);
    layout.tets.push_back({layout.solver_index[tet.vertices[0]], layout.solver_index[tet.vertices[1]], layout.solver_index[tet.vertices[2]],
                           layout.solver_index[tet.vertices[3]]});
    for (const Vec& row : rows) {
      layout.tet_rest.push_back({static_cast<float>(row[0]), static_cast<float>(row[1]), static_cast<float>(row[2]), 0.0F});
    }
    layout.has_energy[static_cast<size_t>(tet.energy)] = true;
    layout.has_fibers |= HasFibers(tet);
    layout.has_viscosity |= tet.damping_s > 0;
  }
  layout.mass_damping_per_s.assign(n, 0.0F);
  for (uint32_t i = 0; i < n; ++i) {
    layout.mass_kg[i] = static_cast<float>(mass[i]);
    if (damped_mass[i] > 0) layout.mass_damping_per_s[i] = static_cast<float>(damped_mass[i] / mass[i]);
  }
  if (!model.tets.empty()) {
    layout.mean_edge_m = edge_sum / (6.0 * static_cast<double>(model.tets.size()));
    layout.mean_young_modulus_pa = modulus_sum / static_cast<double>(model.tets.size());
  }

  layout.block_begin.assign(n + 1, 0);
  for (uint32_t i = 0; i < n; ++i) layout.block_begin[i + 1] = layout.block_begin[i] + blocks_of(layout.original_index[i]);
  const size_t block_count = layout.block_begin.back();
  layout.block_vertex.resize(block_count);
  layout.corner_reals = layout.has_fibers ? 18 : 12;
  layout.corner_real.assign(block_count * layout.corner_reals * lanes, 0.0F);
  layout.corner_index.resize(block_count * 4 * lanes);
  for (uint32_t i = 0; i < n; ++i) {
    const uint32_t v = layout.original_index[i];
    const uint32_t corner_count = lists.begin[v + 1] - lists.begin[v];
    for (uint32_t b = layout.block_begin[i]; b < layout.block_begin[i + 1]; ++b) {
      layout.block_vertex[b] = i;
      for (uint32_t lane = 0; lane < lanes; ++lane) {
        float* const real = &layout.corner_real[size_t{b} * layout.corner_reals * lanes + lane];
        uint32_t* const index = &layout.corner_index[size_t{b} * 4 * lanes + lane];
        const uint32_t k = (b - layout.block_begin[i]) * lanes + lane;
        if (k >= corner_count) {  // padding: the vertex itself, with zero gradients and moduli, so that every term vanishes
          index[0] = index[lanes] = index[2 * lanes] = i;
          index[3 * lanes] = 0;
          continue;
        }
        const auto [t, corner] = lists.corners[lists.begin[v] + k];
        const TissueTet& tet = model.tets[t];
        const uint32_t* const order = kCornerOrder[corner];
        const Vec& o = model.rest_m[v];
        double det = 0;
        const auto rows = InverseRows(Minus(model.rest_m[tet.vertices[order[1]]], o), Minus(model.rest_m[tet.vertices[order[2]]], o),
                                      Minus(model.rest_m[tet.vertices[order[3]]], o), &det);
        for (uint32_t row = 0; row < 3; ++row) {
          for (uint32_t axis = 0; axis < 3; ++axis) real[(row * 3 + axis) * lanes] = static_cast<float>(rows[row][axis]);
          index[row * lanes] = layout.solver_index[tet.vertices[order[row + 1]]];
        }
        real[9 * lanes] = static_cast<float>(volume[t] * tet.mu_pa);
        real[10 * lanes] = static_cast<float>(volume[t] * tet.lambda_pa);
        real[11 * lanes] = static_cast<float>(tet.damping_s / dt_s);
        if (HasFibers(tet)) {
          for (uint32_t axis = 0; axis < 3; ++axis) real[(12 + axis) * lanes] = tet.fibers.direction[axis];
          real[15 * lanes] = static_cast<float>(volume[t] * tet.fibers.coupling_pa);
          real[16 * lanes] = static_cast<float>(volume[t] * tet.fibers.stiffness_pa);
          real[17 * lanes] = static_cast<float>(volume[t] * tet.fibers.shear_pa);
        }
        index[3 * lanes] = t | static_cast<uint32_t>(tet.energy) << PALPATE_ENERGY_SHIFT;
      }
    }
  }

  layout.vertex_triangle_begin.assign(n + 1, 0);
  for (const auto& triangle : model.surface_triangles) {
    const uint32_t is_tissue = lists.begin[triangle[0]] != lists.begin[triangle[0] + 1] ? 1 : 0;
    layout.triangles.push_back(
        {layout.solver_index[triangle[0]], layout.solver_index[triangle[1]], layout.solver_index[triangle[2]], is_tissue});
    for (const uint32_t v : triangle) ++layout.vertex_triangle_begin[layout.solver_index[v] + 1];
  }
  std::partial_sum(layout.vertex_triangle_begin.begin(), layout.vertex_triangle_begin.end(), layout.vertex_triangle_begin.begin());
  layout.vertex_triangles.resize(model.surface_triangles.size() * 3);
  std::vector<uint32_t> at(layout.vertex_triangle_begin.begin(), layout.vertex_triangle_begin.end() - 1);
  for (uint32_t t = 0; t < model.surface_triangles.size(); ++t) {
    for (const uint32_t v : model.surface_triangles[t]) layout.vertex_triangles[at[layout.solver_index[v]]++] = t;
  }

  layout.rest_m.resize(n);
  for (uint32_t i = 0; i < n; ++i) {
    const Vec& r = model.rest_m[layout.original_index[i]];
    layout.rest_m[i] = {static_cast<float>(r[0]), static_cast<float>(r[1]), static_cast<float>(r[2]), 0.0F};
  }
  layout.vertex_stiffness_n_per_m.assign(n, 0.0F);
  for (uint32_t i = 0; i < n; ++i) {
    const uint32_t v = layout.original_index[i];
    double sum = 0;
    for (uint32_t k = lists.begin[v]; k < lists.begin[v + 1]; ++k) {
      const TissueTet& tet = model.tets[lists.corners[k].tet];
      sum += YoungModulus(tet) * std::cbrt(6 * std::numbers::sqrt2 * volume[lists.corners[k].tet]);
    }
    if (sum > 0) layout.vertex_stiffness_n_per_m[i] = static_cast<float>(sum / (lists.begin[v + 1] - lists.begin[v]));
  }
  // Of a pair the softer side counts: static bodies leave it to the other, rigid ones to what their inertia bears in a step.
  for (uint32_t i = layout.free_count; i < n; ++i) {
    if (blocks_of(layout.original_index[i]) == 0) layout.vertex_stiffness_n_per_m[i] = kStaticStiffness_n_per_m;
  }
  for (const TissueRigidBody& rigid : model.rigid) {
    for (uint32_t v = rigid.vertices[0]; v < rigid.vertices[1]; ++v) {
      layout.vertex_stiffness_n_per_m[layout.solver_index[v]] = static_cast<float>(rigid.mass_kg / (2 * dt_s * dt_s));
    }
  }
  layout.body_triangle_begin = model.body_triangle_begin;
  for (size_t i = 0; i < model.vertex_origin.size(); ++i) layout.vertex_origin.push_back(model.vertex_origin[layout.original_index[i]]);
  layout.self_collision = model.self_collision;
  layout.has_surface_contact = model.self_collision.size() > 1 ||
                               std::any_of(model.self_collision.begin(), model.self_collision.end(), [](uint8_t s) { return s != 0; });
  if (!model.loads.empty()) layout.load_bits.assign(n, 0);
  for (size_t k = 0; k < model.loads.size(); ++k) {
    for (const uint32_t v : model.loads[k].vertices) layout.load_bits[layout.solver_index[v]] |= 1U << k;
  }
  for (uint32_t r = 0; r < model.driven.size(); ++r) {
    for (const uint32_t v : model.driven[r].vertices) {
      layout.driven_vertices.push_back(layout.solver_index[v]);
      layout.driven_regions.push_back(r);
    }
  }
  return layout;
}

}  // namespace palpate::gpu
