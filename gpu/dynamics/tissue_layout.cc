#include "gpu/dynamics/tissue_layout.h"
#include "gpu/dynamics/driven_poses.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numbers>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

#include "gpu/dynamics/layout_entries.h"
#include "gpu/dynamics/nurbs_shell_model.h"
#include "gpu/dynamics/volume_keeper.h"
#include "gpu/shared/smoothing_types.h"

namespace palpate::gpu {
namespace {

constexpr float kStaticStiffness_n_per_m = 1e6F;  // more than any tissue's
constexpr uint32_t kAllAxes = 7;
constexpr double kMostRounding_m_per_s2 = 0.001;  // of accelerations: a ten-thousandth of gravity

using Vec = std::array<double, 3>;

// For each corner of a tet, an even permutation of its vertices that begins with that corner.
constexpr uint32_t kCornerOrder[4][4] = {{0, 1, 2, 3}, {1, 0, 3, 2}, {2, 3, 0, 1}, {3, 2, 1, 0}};

Vec Minus(const Vec& a, const Vec& b) { return {a[0] - b[0], a[1] - b[1], a[2] - b[2]}; }
Vec Cross(const Vec& a, const Vec& b) { return {a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]}; }
double Dot(const Vec& a, const Vec& b) { return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]; }

/// Rows of the inverse of [a b c]: the rest gradients of the shape functions of a, b and c.
std::array<Vec, 3> InverseRows(const Vec& a, const Vec& b, const Vec& c) {
  const Vec bc = Cross(b, c);
  const Vec ca = Cross(c, a);
  const Vec ab = Cross(a, b);
  const double s = 1.0 / Dot(a, bc);
  return {Vec{bc[0] * s, bc[1] * s, bc[2] * s}, Vec{ca[0] * s, ca[1] * s, ca[2] * s}, Vec{ab[0] * s, ab[1] * s, ab[2] * s}};
}

/// Tets around each vertex, rising.
struct TetLists {
  std::vector<uint32_t> begin;
  std::vector<uint32_t> tets;

  std::span<const uint32_t> Around(uint32_t v) const { return std::span(tets).subspan(begin[v], begin[v + 1] - begin[v]); }
};

TetLists ListTets(const TissueModel& model) {
  TetLists lists;
  lists.begin.assign(model.rest_m.size() + 1, 0);
  for (const TissueTet& tet : model.tets) {
    for (const uint32_t v : tet.vertices) {
      if (!LayoutEntries::IsFree(tet)) ++lists.begin[v + 1];
    }
  }
  std::partial_sum(lists.begin.begin(), lists.begin.end(), lists.begin.begin());
  lists.tets.resize(lists.begin.back());
  std::vector<uint32_t> at(lists.begin.begin(), lists.begin.end() - 1);
  for (uint32_t t = 0; t < model.tets.size(); ++t) {
    for (const uint32_t v : model.tets[t].vertices) {
      if (!LayoutEntries::IsFree(model.tets[t])) lists.tets[at[v]++] = t;
    }
  }
  return lists;
}

/// Greedy colouring of the free vertices such that no tet, no triangle of a shell and no hinge holds a colour twice; those with most
/// corners first.
std::vector<uint32_t> ColorVertices(const TissueModel& model, const TetLists& lists, const ShellLists& shells, uint32_t* color_count) {
  constexpr uint32_t kNone = 0xffffffffU;
  const size_t n = model.rest_m.size();
  std::vector<uint32_t> order(n);
  std::iota(order.begin(), order.end(), 0U);
  const auto degree = [&](uint32_t v) {
    return lists.begin[v + 1] - lists.begin[v] + shells.TrianglesAround(v).size() + shells.HingesAround(v).size();
  };
  std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return degree(a) > degree(b); });
  std::vector<uint32_t> color(n, kNone);
  std::vector<uint32_t> used_by;  // last vertex that saw each colour at a neighbour
  for (const uint32_t v : order) {
    if (model.fixed[v] != kFreeVertex) continue;
    for (const uint32_t t : lists.Around(v)) {
      for (const uint32_t other : model.tets[t].vertices) {
        if (color[other] != kNone) used_by[color[other]] = v + 1;
      }
    }
    const auto see = [&](const auto& vertices) {
      for (const uint32_t other : vertices) {
        if (color[other] != kNone) used_by[color[other]] = v + 1;
      }
    };
    for (const uint32_t t : shells.TrianglesAround(v)) see(model.shells[t].vertices);
    for (const uint32_t h : shells.HingesAround(v)) see(shells.hinges[h].vertices);
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
  if (model.rigid.empty()) return absl::OkStatus();
  std::vector<uint8_t> has_tet(model.rest_m.size(), 0);
  for (const TissueTet& tet : model.tets) {
    for (const uint32_t v : tet.vertices) {
      if (!LayoutEntries::IsFree(tet)) has_tet[v] = 1;
    }
  }
  const size_t bodies = model.self_collision.size();
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
      if (model.fixed[v] != kFixedVertex || has_tet[v]) {
        return absl::InvalidArgumentError(
            absl::StrCat("rigid body ", r, ": vertex ", v, has_tet[v] ? " is of a tet" : " is not marked as fixed"));
      }
    }
    if (rigid.body >= bodies || model.self_collision[rigid.body] != 0) {
      return absl::InvalidArgumentError(absl::StrCat("rigid body ", r, ": body ", rigid.body, " is out of range or may meet itself"));
    }
  }
  return absl::OkStatus();
}

/// What a NURBS shell has bound to tissue.
absl::Status CheckBound(const TissueModel& model, const TissueNurbsShell& shell) {
  for (size_t i = 0; i < shell.bound.size(); ++i) {
    const TissueNurbsShell::Bound& bound = shell.bound[i];
    const auto error = [&](auto... what) { return absl::InvalidArgumentError(absl::StrCat("bound[", i, "]: ", what...)); };
    if (bound.control >= shell.model->control_count() || (i > 0 && bound.control <= shell.bound[i - 1].control)) {
      return error("control point ", bound.control, " is out of range or not after the one before");
    }
    if (std::binary_search(shell.held.begin(), shell.held.end(), bound.control)) return error("control point ", bound.control, " is held");
    double sum = 0;
    for (size_t k = 0; k < 4; ++k) {
      const uint32_t v = bound.vertices[k];
      if (v >= model.rest_m.size() || model.fixed[v] == kAbsentVertex) return error("there is no vertex ", v);
      if (v >= shell.vertices[0] && v < shell.vertices[1]) return error("vertex ", v, " is of the shell itself");
      if (!(bound.weights[k] >= 0)) return error("weight ", bound.weights[k], " is below 0");
      sum += bound.weights[k];
    }
    if (!(std::abs(sum - 1) < 1e-6)) return error("weights add up to ", sum);
  }
  for (const uint32_t body : shell.apart) {
    if (body >= model.self_collision.size() || body == shell.body) {
      return absl::InvalidArgumentError(absl::StrCat("apart: body ", body, " is out of range or the shell"));
    }
  }
  return absl::OkStatus();
}

/// Likewise NURBS shells.
absl::Status CheckNurbsShells(const TissueModel& model) {
  if (model.nurbs_shells.empty()) return absl::OkStatus();
  std::vector<uint8_t> is_used(model.rest_m.size(), 0);
  for (const TissueTet& tet : model.tets) {
    for (const uint32_t v : tet.vertices) {
      if (!LayoutEntries::IsFree(tet)) is_used[v] = 1;
    }
  }
  for (const TissueRigidBody& rigid : model.rigid) {
    std::fill(is_used.begin() + rigid.vertices[0], is_used.begin() + rigid.vertices[1], 1);
  }
  uint32_t end = 0;
  for (size_t s = 0; s < model.nurbs_shells.size(); ++s) {
    const TissueNurbsShell& shell = model.nurbs_shells[s];
    const auto error = [s](auto... what) { return absl::InvalidArgumentError(absl::StrCat("nurbs shell ", s, ": ", what...)); };
    const auto [first, last] = shell.vertices;
    if (shell.model == nullptr || shell.model->empty() || shell.body >= model.self_collision.size())
      return error("no model, or body ", shell.body, " is out of range");
    if (first < end || last <= first || last > model.rest_m.size()) {
      return error("vertices [", first, ", ", last, ") are not within [", end, ", ", model.rest_m.size(), "]");
    }
    end = last;
    for (uint32_t v = first; v < last; ++v) {
      if (model.fixed[v] != kFixedVertex || is_used[v] != 0) return error("vertex ", v, " is of another body or not marked as fixed");
    }
    const size_t controls = shell.model->control_count();
    const size_t entries = shell.controls.size();
    if (shell.begins.size() != last - first + size_t{1} || shell.begins.front() != 0 || shell.begins.back() != entries ||
        shell.weights.size() != entries) {
      return error(shell.begins.size(), " begins and ", entries, " control points with ", shell.weights.size(), " weights do not fit");
    }
    for (size_t v = 0; v + 1 < shell.begins.size(); ++v) {
      if (shell.begins[v + 1] <= shell.begins[v] || shell.begins[v + 1] > entries) return error("vertex ", first + v, " follows nothing");
      double sum = 0;
      for (uint32_t k = shell.begins[v]; k < shell.begins[v + 1]; ++k) {
        if (shell.controls[k] >= controls || !(shell.weights[k] >= 0))
          return error("vertex ", first + v, " follows control point ", shell.controls[k]);
        sum += shell.weights[k];
      }
      if (!(std::abs(sum - 1) < 1e-5)) return error("weights of vertex ", first + v, " add up to ", sum);
    }
    for (size_t i = 0; i < shell.held.size(); ++i) {
      if (shell.held[i] >= controls || (i > 0 && shell.held[i] <= shell.held[i - 1])) return error("held[", i, "]: ", shell.held[i]);
    }
    std::vector<uint8_t> is_driven(controls, 0);
    for (size_t r = 0; r < shell.driven.size(); ++r) {
      for (const uint32_t j : shell.driven[r].vertices) {
        if (!std::binary_search(shell.held.begin(), shell.held.end(), j) || std::exchange(is_driven[j], 1) != 0) {
          return error("driven[", r, "]: control point ", j, " is not held or is given twice");
        }
      }
      if (!shell.driven[r].blends.empty()) return error("driven[", r, "]: control points follow no blends of regions");
    }
    const absl::Status motions = CheckMotions(shell.driven);
    if (!motions.ok()) return error(motions.message());
    if (const absl::Status bound = CheckBound(model, shell); !bound.ok()) return error(bound.message());
    std::vector<uint8_t> is_supported(controls, 0);
    for (size_t k = 0; k < shell.supports.size(); ++k) {
      for (const uint32_t j : shell.supports[k]) {
        if (j >= controls || std::exchange(is_supported[j], 1) != 0) {
          return error("supports[", k, "]: control point ", j, " is out of range or is given twice");
        }
      }
    }
  }
  return absl::OkStatus();
}

absl::Status CheckMaterial(const TissueTet& tet, size_t t, size_t shape_count) {
  if (tet.energy == TissueEnergy::kMassSpring && tet.mu_pa != tet.lambda_pa) {
    return absl::InvalidArgumentError(
        absl::StrCat("tet ", t, ": springs have a Poisson ratio of 1/4, but lambda is ", tet.lambda_pa, " Pa and mu ", tet.mu_pa));
  }
  if (tet.energy == TissueEnergy::kShapeMatched && tet.shape >= shape_count) {
    return absl::InvalidArgumentError(absl::StrCat("tet ", t, ": shape ", tet.shape, " is outside [0, ", shape_count, ")"));
  }
  const bool has_stress =
      tet.energy != TissueEnergy::kShapeMatched && (PALPATE_STRESS_ENERGIES >> static_cast<uint32_t>(tet.energy) & 1U) != 0;
  if (LayoutEntries::IsSmoothed(tet) && (!has_stress || LayoutEntries::HasFibers(tet))) {
    return absl::InvalidArgumentError(absl::StrCat("tet ", t, ": springs, fibres and matched shapes cannot be smoothed"));
  }
  if (!LayoutEntries::HasFibers(tet)) return absl::OkStatus();
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

absl::Status CheckShapes(const TissueModel& model) {
  for (size_t k = 0; k < model.shapes.size(); ++k) {
    const TissueShape& shape = model.shapes[k];
    if (!(shape.beta >= 0 && shape.beta <= 1) || !(shape.cluster_size_m >= 0 && std::isfinite(shape.cluster_size_m))) {
      return absl::InvalidArgumentError(absl::StrCat("shapes[", k, "]: beta ", shape.beta, " must be in [0, 1], the cluster size ",
                                                     shape.cluster_size_m, " m finite and not negative"));
    }
  }
  if (model.shapes.empty()) return absl::OkStatus();
  constexpr uint32_t kUnseen = 0xffffffffU;
  constexpr uint32_t kElastic = 0xfffffffeU;
  std::vector<uint32_t> shape_of(model.rest_m.size(), kUnseen);
  for (size_t t = 0; t < model.tets.size(); ++t) {
    const TissueTet& tet = model.tets[t];
    if (LayoutEntries::IsFree(tet)) continue;
    const uint32_t shape = tet.energy == TissueEnergy::kShapeMatched ? tet.shape : kElastic;
    for (const uint32_t v : tet.vertices) {
      if (shape_of[v] != kUnseen && shape_of[v] != shape) {
        return absl::InvalidArgumentError(absl::StrCat("tet ", t, ": vertex ", v, " is also of another body than this one's shape"));
      }
      shape_of[v] = shape;
    }
  }
  return absl::OkStatus();
}

absl::Status CheckBodies(const TissueModel& model) {
  const size_t triangles = model.surface_triangles.size();
  if (!model.triangle_body.empty()) {
    if (!model.body_triangle_begin.empty() || model.triangle_body.size() != triangles) {
      return absl::InvalidArgumentError(absl::StrCat("triangle_body: ", model.triangle_body.size(), " entries for ", triangles,
                                                     " triangles, and it excludes body_triangle_begin"));
    }
    for (size_t t = 0; t < triangles; ++t) {
      if (model.triangle_body[t] < model.self_collision.size()) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("triangle_body[", t, "]: ", model.triangle_body[t], " is outside [0, ", model.self_collision.size(), ")"));
    }
  } else if (!model.body_triangle_begin.empty()) {
    const auto& begin = model.body_triangle_begin;
    if (begin.front() != 0 || begin.back() != triangles || !std::is_sorted(begin.begin(), begin.end()) ||
        model.self_collision.size() + 1 != begin.size()) {
      return absl::InvalidArgumentError(absl::StrCat("body_triangle_begin must rise from 0 to ", triangles, ", with ", begin.size() - 1,
                                                     " entries in self_collision, not ", model.self_collision.size()));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckModel(const TissueModel& model, const LayoutEntries& entries) {
  const size_t n = model.rest_m.size();
  if (model.fixed.size() != n)
    return absl::InvalidArgumentError(absl::StrCat("fixed: ", model.fixed.size(), " entries for ", n, " vertices"));
  if (!model.held_axes.empty() && model.held_axes.size() != n)
    return absl::InvalidArgumentError(absl::StrCat("held_axes: ", model.held_axes.size(), " entries for ", n, " vertices"));
  for (size_t v = 0; v < model.held_axes.size(); ++v) PALPATE_RETURN_IF_ERROR(entries.CheckHeld(v));
  if (n == 0 || (model.tets.empty() && model.shells.empty() && model.rigid.empty() && model.nurbs_shells.empty() && !model.may_be_at_rest))
    return absl::InvalidArgumentError("the model has no tetrahedra");
  if (model.tets.size() >= (1U << 29) || n >= (1U << 31)) return absl::InvalidArgumentError("the model exceeds 2^29 tetrahedra");
  for (size_t t = 0; t < model.tets.size(); ++t) {
    if (!LayoutEntries::IsFree(model.tets[t])) PALPATE_RETURN_IF_ERROR(entries.CheckTet(t));
  }
  for (size_t t = 0; t < model.surface_triangles.size(); ++t) PALPATE_RETURN_IF_ERROR(entries.CheckTriangle(t));
  PALPATE_RETURN_IF_ERROR(CheckBodies(model));
  PALPATE_RETURN_IF_ERROR(CheckShapes(model));
  std::vector<uint8_t> driven(n, 0);
  for (size_t r = 0; r < model.driven.size(); ++r) {
    for (const uint32_t v : model.driven[r].vertices) {
      if (v >= n || model.fixed[v] != kFixedVertex || driven[v]) {
        return absl::InvalidArgumentError(absl::StrCat("driven region ", r, ": vertex ", v,
                                                       v >= n                           ? " is out of range"
                                                       : model.fixed[v] != kFixedVertex ? " is not fixed"
                                                                                        : " is given twice"));
      }
      driven[v] = 1;
    }
  }
  PALPATE_RETURN_IF_ERROR(CheckMotions(model.driven));
  if (model.prescribed.stiffness_n_per_m.size() != model.prescribed.vertices.size()) {
    return absl::InvalidArgumentError(absl::StrCat("prescribed: ", model.prescribed.stiffness_n_per_m.size(), " stiffnesses for ",
                                                   model.prescribed.vertices.size(), " vertices"));
  }
  for (size_t i = 0; i < model.prescribed.vertices.size(); ++i) {
    const uint32_t v = model.prescribed.vertices[i];
    if (v >= n || model.fixed[v] != kFixedVertex || driven[v]) {
      return absl::InvalidArgumentError(absl::StrCat("prescribed vertex ", v,
                                                     v >= n                           ? " is out of range"
                                                     : model.fixed[v] != kFixedVertex ? " is not fixed"
                                                                                      : " is driven or given twice"));
    }
    if (!(model.prescribed.stiffness_n_per_m[i] > 0)) {
      return absl::InvalidArgumentError(
          absl::StrCat("prescribed vertex ", v, ": stiffness ", model.prescribed.stiffness_n_per_m[i], " N/m is not positive"));
    }
    driven[v] = 1;
  }
  if (model.loads.size() > 32) return absl::InvalidArgumentError(absl::StrCat(model.loads.size(), " loads exceed the limit of 32"));
  if (!model.triangle_loads.empty() && model.triangle_loads.size() != model.surface_triangles.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("triangle_loads: ", model.triangle_loads.size(), " entries for ", model.surface_triangles.size(), " triangles"));
  }
  for (size_t k = 0; k < model.loads.size(); ++k) {
    for (const uint32_t v : model.loads[k].vertices) {
      if (v >= n || model.fixed[v] == kAbsentVertex) {
        return absl::InvalidArgumentError(absl::StrCat("load ", k, ": vertex ", v, " is absent or outside [0, ", n, ")"));
      }
    }
  }
  PALPATE_RETURN_IF_ERROR(CheckRigid(model));
  PALPATE_RETURN_IF_ERROR(CheckNurbsShells(model));
  if (!model.vertex_origin.empty() && model.vertex_origin.size() != n) {
    return absl::InvalidArgumentError(absl::StrCat("vertex_origin: ", model.vertex_origin.size(), " entries for ", n, " vertices"));
  }
  if (!model.may_be_at_rest && model.rigid.empty() && model.nurbs_shells.empty() &&
      std::all_of(model.fixed.begin(), model.fixed.end(), [](uint8_t f) { return f != kFreeVertex; })) {
    return absl::InvalidArgumentError("every vertex is fixed: nothing can move");
  }
  return absl::OkStatus();
}

}  // namespace

double LayoutEntries::YoungModulus(const TissueTet& tet) {
  return tet.mu_pa * (3.0 * tet.lambda_pa + 2.0 * tet.mu_pa) / (static_cast<double>(tet.lambda_pa) + tet.mu_pa);
}

double LayoutEntries::OwnMu(const TissueTet& tet) {
  return IsSmoothed(tet) ? PALPATE_SMOOTHING_SHARE * tet.mu_pa : static_cast<double>(tet.mu_pa);
}

double LayoutEntries::Volume(size_t t) const {
  const auto& v = model_.tets[t].vertices;
  const Vec& o = model_.rest_m[v[0]];
  return Dot(Minus(model_.rest_m[v[1]], o), Cross(Minus(model_.rest_m[v[2]], o), Minus(model_.rest_m[v[3]], o))) / 6;
}

absl::Status LayoutEntries::CheckTet(size_t t) const {
  const size_t n = model_.rest_m.size();
  for (const uint32_t v : model_.tets[t].vertices) {
    if (v >= n) return absl::InvalidArgumentError(absl::StrCat("tet ", t, ": vertex ", v, " is outside [0, ", n, ")"));
    if (model_.fixed[v] == kAbsentVertex) return absl::InvalidArgumentError(absl::StrCat("tet ", t, ": vertex ", v, " is absent"));
  }
  const double volume_m3 = Volume(t);
  if (!(volume_m3 > 0)) return absl::InvalidArgumentError(absl::StrCat("tet ", t, ": volume ", volume_m3, " m^3 is not positive"));
  return CheckMaterial(model_.tets[t], t, model_.shapes.size());
}

absl::Status LayoutEntries::CheckHeld(size_t v) const {
  if (model_.held_axes.empty() || model_.fixed[v] != kFreeVertex || model_.held_axes[v] < kAllAxes) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("held_axes[", v, "]: ", model_.held_axes[v], " is outside [0, ", kAllAxes,
                                                 "); a vertex that is held along all axes is fixed"));
}

absl::Status LayoutEntries::CheckTriangle(size_t t) const {
  const size_t n = model_.rest_m.size();
  for (const uint32_t v : model_.surface_triangles[t]) {
    if (v >= n) return absl::InvalidArgumentError(absl::StrCat("surface triangle ", t, ": vertex ", v, " is outside [0, ", n, ")"));
    if (model_.fixed[v] == kAbsentVertex) {
      return absl::InvalidArgumentError(absl::StrCat("surface triangle ", t, ": vertex ", v, " is absent"));
    }
  }
  return absl::OkStatus();
}

void LayoutEntries::WriteTet(uint32_t t) {
  const TissueTet& tet = model_.tets[t];
  if (IsFree(tet)) {
    layout_.tets[t] = {};
    layout_.tet_moduli[t] = {};
    for (size_t row = 0; row < 3; ++row) layout_.tet_rest[size_t{3} * t + row] = {};
    return;
  }
  const Vec& o = model_.rest_m[tet.vertices[0]];
  const auto rows = InverseRows(Minus(model_.rest_m[tet.vertices[1]], o), Minus(model_.rest_m[tet.vertices[2]], o),
                                Minus(model_.rest_m[tet.vertices[3]], o));
  const auto& index = layout_.solver_index;
  layout_.tets[t] = {ToNumber(index[tet.vertices[0]]), ToNumber(index[tet.vertices[1]]), ToNumber(index[tet.vertices[2]]),
                     ToNumber(index[tet.vertices[3]])};
  for (size_t row = 0; row < 3; ++row) {
    layout_.tet_rest[size_t{3} * t + row] = {static_cast<float>(rows[row][0]), static_cast<float>(rows[row][1]),
                                             static_cast<float>(rows[row][2]), 0.0F};
  }
  if (tet.energy == TissueEnergy::kShapeMatched) {
    layout_.tet_rest[size_t{3} * t].w = 1.0F;
    layout_.tet_moduli[t] = {};
    return;
  }
  const double volume_m3 = Volume(t);
  layout_.tet_moduli[t] = {static_cast<float>(volume_m3 * OwnMu(tet)), static_cast<float>(volume_m3 * OwnLambda(tet)),
                           static_cast<float>(tet.damping_s / dt_s_), static_cast<float>(tet.energy)};
}

void LayoutEntries::WriteTriangle(uint32_t t, bool is_tissue) {
  const auto& v = model_.surface_triangles[t];
  const auto& index = layout_.solver_index;
  const uint32_t kind = is_tissue ? 1U : std::bit_cast<uint32_t>(layout_.shell.HalfThickness(v[0]));
  layout_.triangles[t] = {ToNumber(index[v[0]]), ToNumber(index[v[1]]), ToNumber(index[v[2]]), kind};
}

void LayoutEntries::WriteVertex(uint32_t vertex, std::span<const uint32_t> tets) {
  const SolverSlot slot = layout_.solver_index[vertex];
  const Vec& r = model_.rest_m[vertex];
  layout_.rest_m[slot] = {static_cast<float>(r[0]), static_cast<float>(r[1]), static_cast<float>(r[2]), 0.0F};
  double mass = 0;
  double damped_mass = 0;
  double stiffness = 0;
  for (const uint32_t t : tets) {
    const TissueTet& tet = model_.tets[t];
    const double volume_m3 = Volume(t);
    const double share = volume_m3 * tet.density_kg_per_m3 / 4;
    mass += share;
    damped_mass += share * tet.mass_damping_per_s;
    stiffness += YoungModulus(tet) * std::cbrt(6 * std::numbers::sqrt2 * volume_m3);
  }
  auto counted = static_cast<double>(tets.size());
  if (layout_.shell.HasVertex(vertex)) {
    const ShellVertex& shell = layout_.shell.vertices[vertex];
    mass = shell.mass_kg;
    damped_mass = shell.damped_mass_kg_per_s;
    stiffness = shell.stiffness_n_per_m;
    counted = 1;
  }
  layout_.mass_kg[slot] = static_cast<float>(mass);
  layout_.held_axes[slot] = model_.held_axes.empty() || model_.fixed[vertex] != kFreeVertex ? 0 : model_.held_axes[vertex];
  layout_.mass_damping_per_s[slot] = damped_mass > 0 ? static_cast<float>(damped_mass / mass) : 0.0F;
  // Of a pair the softer side counts: static bodies leave it to the other.
  layout_.vertex_stiffness_n_per_m[slot] = stiffness > 0                          ? static_cast<float>(stiffness / counted)
                                           : model_.fixed[vertex] == kFixedVertex ? kStaticStiffness_n_per_m
                                                                                  : 0.0F;
  if (!layout_.vertex_origin.empty()) layout_.vertex_origin[slot] = model_.vertex_origin[vertex];
}

void LayoutEntries::WriteBlocks(uint32_t vertex, std::span<const uint32_t> tets) {
  const SolverSlot slot = layout_.solver_index[vertex];
  const uint32_t lanes = layout_.lanes;
  const UInt2 range = layout_.block_range[slot];
  for (uint32_t b = range.x; b < range.y; ++b) {
    layout_.block_vertex[b] = ToNumber(slot);
    for (uint32_t lane = 0; lane < lanes; ++lane) {
      float* const real = &layout_.corner_real[size_t{b} * layout_.corner_reals * lanes + lane];
      uint32_t* const index = &layout_.corner_index[size_t{b} * 4 * lanes + lane];
      for (uint32_t k = 0; k < layout_.corner_reals; ++k) real[k * lanes] = 0;
      const uint32_t k = (b - range.x) * lanes + lane;
      if (k >= tets.size()) {  // padding: the vertex itself, with zero gradients and moduli, so that every term vanishes
        index[0] = index[lanes] = index[2 * lanes] = ToNumber(slot);
        index[3 * lanes] = 0;
        continue;
      }
      const uint32_t t = tets[k];
      const TissueTet& tet = model_.tets[t];
      const double volume_m3 = Volume(t);
      const uint32_t* const order = kCornerOrder[std::find(tet.vertices.begin(), tet.vertices.end(), vertex) - tet.vertices.begin()];
      const Vec& o = model_.rest_m[vertex];
      const auto rows = InverseRows(Minus(model_.rest_m[tet.vertices[order[1]]], o), Minus(model_.rest_m[tet.vertices[order[2]]], o),
                                    Minus(model_.rest_m[tet.vertices[order[3]]], o));
      for (uint32_t row = 0; row < 3; ++row) {
        for (uint32_t axis = 0; axis < 3; ++axis) real[(row * 3 + axis) * lanes] = static_cast<float>(rows[row][axis]);
        index[row * lanes] = ToNumber(layout_.solver_index[tet.vertices[order[row + 1]]]);
      }
      if (tet.energy != TissueEnergy::kShapeMatched) {
        real[9 * lanes] = static_cast<float>(volume_m3 * OwnMu(tet));
        real[10 * lanes] = static_cast<float>(volume_m3 * OwnLambda(tet));
        real[11 * lanes] = static_cast<float>(tet.damping_s / dt_s_);
      }
      if (HasFibers(tet)) {
        for (uint32_t axis = 0; axis < 3; ++axis) real[(12 + axis) * lanes] = tet.fibers.direction[axis];
        real[15 * lanes] = static_cast<float>(volume_m3 * tet.fibers.coupling_pa);
        real[16 * lanes] = static_cast<float>(volume_m3 * tet.fibers.stiffness_pa);
        real[17 * lanes] = static_cast<float>(volume_m3 * tet.fibers.shear_pa);
      }
      index[3 * lanes] = t | static_cast<uint32_t>(tet.energy) << PALPATE_ENERGY_SHIFT;
    }
  }
}

void LayoutEntries::ClearSlot(TissueLayout* layout, SolverSlot slot) {
  layout->rest_m[slot] = {};
  layout->original_index[slot] = kNoTissueVertex;
  layout->mass_kg[slot] = 0;
  layout->held_axes[slot] = 0;
  layout->mass_damping_per_s[slot] = 0;
  layout->vertex_stiffness_n_per_m[slot] = 0;
  layout->block_range[slot] = {};
  layout->vertex_triangle_range[slot] = {};
  if (!layout->vertex_origin.empty()) layout->vertex_origin[slot] = 0;
  if (!layout->load_bits.empty()) layout->load_bits[slot] = 0;
}

void MarkUnderPressure(const TissueModel& model, TissueLayout* layout) {
  uint32_t pressures = 0;
  for (size_t k = 0; k < model.loads.size(); ++k) pressures |= (model.loads[k].pressure_pa != 0 ? 1U : 0U) << k;
  const bool keeps_volume = std::ranges::any_of(model.volume_stiffness_pa, [](double k) { return k != 0; });
  if (!layout->shell.has_thickness() || (pressures == 0 && !keeps_volume)) return;
  for (uint32_t t = 0; t < layout->triangle_count; ++t) {
    UInt4& triangle = layout->triangles[t];
    if (triangle.w <= 1) continue;
    uint32_t loads = model.triangle_loads.empty() ? 0 : model.triangle_loads[t];
    if (!layout->load_bits.empty()) {
      loads |=
          layout->load_bits[SolverSlot{triangle.x}] & layout->load_bits[SolverSlot{triangle.y}] & layout->load_bits[SolverSlot{triangle.z}];
    }
    const bool is_filled = keeps_volume && t < layout->triangle_body.size() && model.volume_stiffness_pa[layout->triangle_body[t]] != 0;
    if ((loads & pressures) != 0 || is_filled) triangle.w |= PALPATE_UNDER_PRESSURE;
  }
}

void ListLoadsAndDriven(const TissueModel& model, TissueLayout* layout) {
  layout->load_bits.clear();
  if (!model.loads.empty()) layout->load_bits.assign(layout->vertex_count, 0);
  for (size_t k = 0; k < model.loads.size(); ++k) {
    for (const uint32_t v : model.loads[k].vertices) layout->load_bits[layout->solver_index[v]] |= 1U << k;
  }
  layout->is_jointed.clear();
  if (!model.joint_sets.empty()) layout->is_jointed.assign(layout->vertex_count, 0);
  for (const TissueJointSet& set : model.joint_sets) {
    for (const uint32_t v : set.vertices) {
      const SolverSlot slot = v < layout->solver_index.size() ? layout->solver_index[v] : kNoSolverSlot;
      if (slot != kNoSolverSlot) layout->is_jointed[slot] = 1;
    }
  }
  layout->triangle_loads.clear();
  if (!model.loads.empty()) layout->triangle_loads = model.triangle_loads;
  layout->driven_vertices.clear();
  layout->driven_regions.clear();
  layout->driven_shares.clear();
  for (uint32_t r = 0; r < model.driven.size(); ++r) {
    const TissueDrivenRegion& region = model.driven[r];
    for (size_t i = 0; i < region.vertices.size(); ++i) {
      TissueDrivenBlend blend = {.regions = {r, TissueDrivenBlend::kRests, TissueDrivenBlend::kRests, TissueDrivenBlend::kRests},
                                 .shares = {1, 0, 0, 0}};
      if (!region.blends.empty()) blend = region.blends[i];
      layout->driven_vertices.push_back(ToNumber(layout->solver_index[region.vertices[i]]));
      layout->driven_regions.push_back({blend.regions[0], blend.regions[1], blend.regions[2], blend.regions[3]});
      layout->driven_shares.push_back({blend.shares[0], blend.shares[1], blend.shares[2], blend.shares[3]});
    }
  }
  for (const uint32_t v : model.prescribed.vertices) layout->driven_vertices.push_back(ToNumber(layout->solver_index[v]));
}

namespace {

uint32_t BlocksOf(const TetLists& lists, uint32_t v, uint32_t lanes) { return (lists.begin[v + 1] - lists.begin[v] + lanes - 1) / lanes; }

/// Slots of all vertices that are there: colour by colour, each with its room, fixed ones last. Returns the vertices in that order.
std::vector<uint32_t> PlaceVertices(const TissueModel& model, const TetLists& lists, const ShellLists& shells, const TissueSlack& slack,
                                    TissueLayout* layout) {
  const auto n = static_cast<uint32_t>(model.rest_m.size());
  uint32_t color_count = 0;
  const std::vector<uint32_t> color = ColorVertices(model, lists, shells, &color_count);
  const auto blocks_of = [&](uint32_t v) { return BlocksOf(lists, v, layout->lanes); };
  std::vector<uint32_t> order;
  for (uint32_t v = 0; v < n; ++v) {
    if (model.fixed[v] != kAbsentVertex) order.push_back(v);
  }
  // Fixed vertices carry the largest colour and so come last.
  std::stable_sort(order.begin(), order.end(),
                   [&](uint32_t a, uint32_t b) { return color[a] != color[b] ? color[a] < color[b] : blocks_of(a) > blocks_of(b); });
  std::vector<uint32_t> of_color(color_count + slack.spare_colors, 0);
  uint32_t fixed = 0;
  for (const uint32_t v : order) ++(model.fixed[v] == kFreeVertex ? of_color[color[v]] : fixed);
  layout->color_begin.push_back(0);
  for (const uint32_t count : of_color) {
    layout->color_end.push_back(layout->color_begin.back() + count);
    layout->color_begin.push_back(layout->color_begin.back() + static_cast<uint32_t>(slack.Room(count)));
  }
  layout->free_count = layout->color_begin.back();
  layout->fixed_end = layout->free_count + fixed;
  layout->vertex_count = layout->free_count + static_cast<uint32_t>(slack.Room(fixed));
  layout->solver_index.assign(n, kNoSolverSlot);
  layout->original_index.assign(layout->vertex_count, kNoTissueVertex);
  std::vector<uint32_t> next(layout->color_begin.begin(), layout->color_begin.end());  // the last: of fixed vertices
  for (const uint32_t v : order) {
    const SolverSlot slot{next[model.fixed[v] == kFreeVertex ? color[v] : of_color.size()]++};
    layout->solver_index[v] = slot;
    layout->original_index[slot] = v;
  }
  return order;
}

/// 0 where the rounding of positions is not felt: forces are of E times the edge times the rounding, masses of the density times the third
/// power of the edge. Else the low parts of displacements hold what half a bit of them is, up to the largest coordinate at rest.
int32_t DisplacementExponent(const TissueModel& model, double mean_edge_m) {
  double reach_m = 0;
  double square_speed = 0;  // of sound [m^2/s^2]
  for (const TissueTet& tet : model.tets) {
    if (LayoutEntries::IsFree(tet) || tet.energy == TissueEnergy::kShapeMatched) continue;
    square_speed = std::max(square_speed, LayoutEntries::YoungModulus(tet) / tet.density_kg_per_m3);
    for (const uint32_t v : tet.vertices) {
      for (const double coordinate : model.rest_m[v]) reach_m = std::max(reach_m, std::abs(coordinate));
    }
  }
  const double rounding_m = 0.5 * std::numeric_limits<float>::epsilon() * reach_m;
  if (!(square_speed * rounding_m > kMostRounding_m_per_s2 * mean_edge_m * mean_edge_m)) return 0;
  return std::ilogb(reach_m) - 34;
}

/// Tets by their places, and what they are together.
void PlaceTets(const TissueModel& model, size_t tet_room, LayoutEntries& entries, TissueLayout* layout) {
  layout->tet_count = static_cast<uint32_t>(model.tets.size());
  layout->tets.resize(tet_room);
  layout->tet_rest.resize(tet_room * 3);
  layout->tet_moduli.resize(tet_room);
  double edge_sum = 0;
  double modulus_sum = 0;
  for (uint32_t t = 0; t < layout->tet_count; ++t) {
    entries.WriteTet(t);
    const TissueTet& tet = model.tets[t];
    if (LayoutEntries::IsFree(tet)) continue;
    ++layout->live_tet_count;
    for (uint32_t a = 0; a < 4; ++a) {
      for (uint32_t b = a + 1; b < 4; ++b) {
        const Vec e = Minus(model.rest_m[tet.vertices[a]], model.rest_m[tet.vertices[b]]);
        edge_sum += std::sqrt(Dot(e, e));
      }
    }
    modulus_sum += LayoutEntries::YoungModulus(tet);
    layout->has_energy[static_cast<size_t>(tet.energy)] = true;
    layout->has_fibers |= LayoutEntries::HasFibers(tet);
    layout->has_viscosity |= LayoutEntries::HasViscosity(tet);
    layout->has_smoothing |= LayoutEntries::IsSmoothed(tet);
  }
  if (layout->live_tet_count > 0) {
    layout->mean_edge_m = edge_sum / (6.0 * layout->live_tet_count);
    layout->mean_young_modulus_pa = modulus_sum / layout->live_tet_count;
    if (layout->HasStresses() && !KeepsVolumes(model)) layout->displacement_exponent = DisplacementExponent(model, layout->mean_edge_m);
  } else if (!layout->shell.empty()) {
    layout->mean_edge_m = layout->shell.mean_edge_m;
    layout->mean_young_modulus_pa = layout->shell.mean_modulus_pa;
  }
}

/// One after the other. `order`: of PlaceVertices.
void PlaceBlocks(const TetLists& lists, std::span<const uint32_t> order, TissueLayout* layout) {
  layout->block_range.resize(layout->vertex_count);
  for (const uint32_t v : order) {
    const uint32_t count = BlocksOf(lists, v, layout->lanes);
    layout->block_range[layout->solver_index[v]] = {layout->block_count, layout->block_count + count};
    layout->block_count += count;
  }
}

/// Blocks of corners, which have their ranges, and what else belongs to a vertex. `order`: all vertices that are there.
void WriteVertices(const TissueModel& model, const TetLists& lists, std::span<const uint32_t> order, double dt_s, size_t block_room,
                   LayoutEntries& entries, TissueLayout* layout) {
  const uint32_t lanes = layout->lanes;
  layout->block_vertex.resize(block_room);
  layout->corner_reals = layout->has_fibers ? 18 : 12;
  layout->corner_real.resize(block_room * layout->corner_reals * lanes);
  layout->corner_index.resize(block_room * 4 * lanes);
  layout->rest_m.resize(layout->vertex_count);
  layout->mass_kg.resize(layout->vertex_count);
  layout->held_axes.resize(layout->vertex_count);
  layout->mass_damping_per_s.resize(layout->vertex_count);
  layout->vertex_stiffness_n_per_m.resize(layout->vertex_count);
  if (!model.vertex_origin.empty()) layout->vertex_origin.resize(layout->vertex_count);
  for (const uint32_t v : order) {
    entries.WriteVertex(v, lists.Around(v));
    entries.WriteBlocks(v, lists.Around(v));
  }
  for (size_t k = 0; k < model.prescribed.vertices.size(); ++k) {
    const uint32_t v = model.prescribed.vertices[k];
    if (BlocksOf(lists, v, lanes) == 0) layout->vertex_stiffness_n_per_m[layout->solver_index[v]] = model.prescribed.stiffness_n_per_m[k];
  }
  // Of a pair the softer side counts: rigid bodies bear what their inertia bears in a step.
  for (const TissueRigidBody& rigid : model.rigid) {
    for (uint32_t v = rigid.vertices[0]; v < rigid.vertices[1]; ++v) {
      layout->vertex_stiffness_n_per_m[layout->solver_index[v]] = static_cast<float>(rigid.mass_kg / (2 * dt_s * dt_s));
    }
  }
  for (const TissueNurbsShell& shell : model.nurbs_shells) {
    const std::vector<float> stiffness = NurbsVertexStiffness(shell, dt_s);
    for (uint32_t v = shell.vertices[0]; v < shell.vertices[1]; ++v) {
      layout->vertex_stiffness_n_per_m[layout->solver_index[v]] = stiffness[v - shell.vertices[0]];
    }
  }
}

/// Surface triangles. Returns how many each vertex has.
TissueLayout::BySlot<uint32_t> PlaceTriangles(const TissueModel& model, const TetLists& lists, size_t triangle_room, LayoutEntries& entries,
                                              TissueLayout* layout) {
  layout->triangle_count = static_cast<uint32_t>(model.surface_triangles.size());
  layout->triangles.resize(triangle_room);
  TissueLayout::BySlot<uint32_t> fan(layout->vertex_count, 0);
  for (uint32_t t = 0; t < layout->triangle_count; ++t) {
    entries.WriteTriangle(t, !lists.Around(model.surface_triangles[t][0]).empty());
    for (const uint32_t v : model.surface_triangles[t]) ++fan[layout->solver_index[v]];
  }
  layout->triangle_body = model.triangle_body;
  for (uint32_t b = 0; b + 1 < model.body_triangle_begin.size(); ++b) {
    layout->triangle_body.insert(layout->triangle_body.end(), model.body_triangle_begin[b + 1] - model.body_triangle_begin[b], b);
  }
  return fan;
}

/// Lists of triangles one after the other, each with its room.
void PlaceFans(const TissueLayout::BySlot<uint32_t>& fan, TissueLayout* layout) {
  layout->vertex_triangle_range.resize(layout->vertex_count);
  for (const SolverSlot i : fan.indices()) {
    layout->vertex_triangle_range[i] = {layout->vertex_triangles_end, layout->vertex_triangles_end};
    layout->vertex_triangles_end += TriangleListRoom(fan[i]);
  }
}

/// Into lists that are empty at their places.
void WriteFans(const TissueModel& model, size_t fan_room, TissueLayout* layout) {
  layout->vertex_triangles.resize(fan_room);
  for (uint32_t t = 0; t < layout->triangle_count; ++t) {
    for (const uint32_t v : model.surface_triangles[t])
      layout->vertex_triangles[layout->vertex_triangle_range[layout->solver_index[v]].y++] = t;
  }
}

void FinishLayout(const TissueModel& model, TissueLayout* layout) {
  layout->self_collision = model.self_collision;
  layout->apart = BodiesApart(model);
  layout->has_surface_contact = model.self_collision.size() > 1 ||
                                std::any_of(model.self_collision.begin(), model.self_collision.end(), [](uint8_t s) { return s != 0; });
  ListLoadsAndDriven(model, layout);
  MarkUnderPressure(model, layout);
}

}  // namespace

std::vector<uint32_t> BodiesApart(const TissueModel& model) {
  std::vector<std::set<uint32_t>> apart(model.self_collision.size());
  bool is_any = false;
  const auto body_of = [&](uint32_t end) -> std::optional<uint32_t> {
    if (end < model.rigid.size()) return model.rigid[end].body;
    const size_t set = end - model.rigid.size();
    if (set < model.joint_sets.size()) return model.joint_sets[set].body;
    const size_t of_shell = set - model.joint_sets.size();
    return of_shell < model.nurbs_joint_sets.size() ? std::optional(model.nurbs_joint_sets[of_shell].body) : std::nullopt;
  };
  for (const RigidJoint& joint : model.joints) {
    const std::optional<uint32_t> a = body_of(joint.body_a), b = body_of(joint.body_b);
    if (!joint.ignores_contact || !a || !b || *a == *b || *a >= apart.size() || *b >= apart.size()) continue;
    apart[*a].insert(*b);
    apart[*b].insert(*a);
    is_any = true;
  }
  for (const TissueNurbsShell& shell : model.nurbs_shells) {
    for (const uint32_t other : shell.apart) {
      apart[shell.body].insert(other);
      apart[other].insert(shell.body);
      is_any = true;
    }
  }
  if (!is_any) return {};
  std::vector<uint32_t> out = {static_cast<uint32_t>(apart.size())};
  auto end = static_cast<uint32_t>(apart.size() + 2);
  for (const std::set<uint32_t>& others : apart) {
    out.push_back(end);
    end += static_cast<uint32_t>(others.size());
  }
  out.push_back(end);
  for (const std::set<uint32_t>& others : apart) out.insert(out.end(), others.begin(), others.end());
  return out;
}

absl::StatusOr<TissueLayout> LayOutTissue(const TissueModel& model, double dt_s, uint32_t lanes, const TissueSlack& slack) {
  TissueLayout layout;
  LayoutEntries entries(model, dt_s, &layout);
  PALPATE_RETURN_IF_ERROR(CheckModel(model, entries));
  PALPATE_ASSIGN_OR_RETURN(const ShellLists shells, ListShells(model));
  const TetLists lists = ListTets(model);
  layout.lanes = lanes;
  const std::vector<uint32_t> order = PlaceVertices(model, lists, shells, slack, &layout);
  layout.shell = LayOutShells(model, shells, layout.original_index, layout.solver_index, lanes, dt_s);
  PlaceTets(model, slack.Room(model.tets.size()), entries, &layout);
  PlaceBlocks(lists, order, &layout);
  WriteVertices(model, lists, order, dt_s, slack.Room(layout.block_count), entries, &layout);
  PlaceFans(PlaceTriangles(model, lists, slack.Room(model.surface_triangles.size()), entries, &layout), &layout);
  WriteFans(model, slack.Room(layout.vertex_triangles_end), &layout);
  FinishLayout(model, &layout);
  return layout;
}

// --- as a skeleton says

namespace {

absl::Status OtherModel(const char* what) {
  return absl::InvalidArgumentError(absl::StrCat("the layout is that of another model: ", what));
}

/// Sizes and rooms: none that an edit could not have led to, so that what is read takes no more memory than its model deserves.
absl::Status CheckRooms(const TissueModel& model, const LayoutSkeleton& s) {
  const uint64_t vertices = model.rest_m.size();
  const uint64_t tets = model.tets.size();
  const uint64_t triangles = 4 * tets + model.surface_triangles.size();  // that there ever were
  const uint64_t colors = s.color_end.size();
  if (s.lanes == 0 || s.lanes > 64) return OtherModel("lanes");
  if (s.vertex_count > 2 * vertices + 64 * (colors + 1) || s.tet_room < tets || s.tet_room > 2 * tets + 64 ||
      s.triangle_room < model.surface_triangles.size() || s.triangle_room > 2 * triangles + 64 ||
      s.blocks.capacity() > 2 * (4 * tets + vertices) + 64 || s.fans.capacity() > 8 * (triangles + vertices) + 64) {
    return OtherModel("its room does not fit");
  }
  if (!s.blocks.IsSound() || !s.fans.IsSound()) return OtherModel("a free range is out of range");
  return absl::OkStatus();
}

/// Takes over slots, and lists the vertices that are there.
absl::StatusOr<std::vector<uint32_t>> TakeSlots(const TissueModel& model, const LayoutSkeleton& s, TissueLayout* layout) {
  const size_t colors = s.color_end.size();
  if (s.color_begin.size() != colors + 1 || s.color_begin.front() != 0 || s.color_begin.back() != s.free_count ||
      !std::is_sorted(s.color_begin.begin(), s.color_begin.end()) || s.fixed_end < s.free_count || s.fixed_end > s.vertex_count) {
    return OtherModel("its colours");
  }
  for (size_t c = 0; c < colors; ++c) {
    if (s.color_end[c] < s.color_begin[c] || s.color_end[c] > s.color_begin[c + 1]) return OtherModel("its colours");
  }
  if (s.solver_index.size() != model.rest_m.size() || s.block_begins.size() != s.vertex_count || s.fan_begins.size() != s.vertex_count) {
    return OtherModel("another number of vertices");
  }
  layout->original_index.assign(s.vertex_count, kNoTissueVertex);
  std::vector<uint32_t> vertices;
  for (uint32_t v = 0; v < s.solver_index.size(); ++v) {
    if ((s.solver_index[v] == kNoSolverSlot) != (model.fixed[v] == kAbsentVertex)) return OtherModel("a vertex has no slot, or need not");
    if (s.solver_index[v] == kNoSolverSlot) continue;
    const uint32_t slot = ToNumber(s.solver_index[v]);
    const bool is_free = model.fixed[v] == kFreeVertex;
    if (slot >= s.fixed_end || (slot < s.free_count) != is_free) return OtherModel("a vertex has a slot of another kind");
    const auto color = std::upper_bound(s.color_begin.begin(), s.color_begin.end(), slot) - s.color_begin.begin() - 1;
    if (is_free && slot >= s.color_end[static_cast<size_t>(color)]) return OtherModel("a slot is not in use");
    if (std::exchange(layout->original_index[SolverSlot{slot}], v) != kNoTissueVertex) return OtherModel("two vertices have one slot");
    vertices.push_back(v);
  }
  return vertices;
}

/// Whether ranges lie within [0, end) and apart.
class Ranges {
 public:
  explicit Ranges(uint32_t end) : is_taken_(end, 0) {}
  bool Take(uint32_t begin, uint32_t length) {
    if (begin > is_taken_.size() || length > is_taken_.size() - begin) return false;
    const auto first = is_taken_.begin() + begin;
    if (std::any_of(first, first + length, [](uint8_t taken) { return taken != 0; })) return false;
    std::fill(first, first + length, uint8_t{1});
    return true;
  }

 private:
  std::vector<uint8_t> is_taken_;
};

/// Colours of two vertices of one tet, one triangle of a shell or one hinge differ.
bool AreColored(const TissueModel& model, const ShellLists& shells, const LayoutSkeleton& s) {
  const auto differ = [&](const auto& vertices) {
    std::array<std::ptrdiff_t, 4> colors{};
    size_t count = 0;
    for (const uint32_t v : vertices) {
      const uint32_t slot = ToNumber(s.solver_index[v]);
      if (slot >= s.free_count) continue;
      const std::ptrdiff_t color = std::upper_bound(s.color_begin.begin(), s.color_begin.end(), slot) - s.color_begin.begin();
      for (size_t k = 0; k < count; ++k) {
        if (colors[k] == color) return false;
      }
      colors[count++] = color;
    }
    return true;
  };
  return std::all_of(model.tets.begin(), model.tets.end(),
                     [&](const TissueTet& tet) { return LayoutEntries::IsFree(tet) || differ(tet.vertices); }) &&
         std::all_of(model.shells.begin(), model.shells.end(), [&](const ShellTriangle& t) { return differ(t.vertices); }) &&
         std::all_of(shells.hinges.begin(), shells.hinges.end(), [&](const ShellHinge& h) { return differ(h.vertices); });
}

}  // namespace

absl::StatusOr<TissueLayout> LayOutTissueAs(const TissueModel& model, double dt_s, const LayoutSkeleton& skeleton) {
  TissueLayout layout;
  LayoutEntries entries(model, dt_s, &layout);
  PALPATE_RETURN_IF_ERROR(CheckModel(model, entries));
  PALPATE_RETURN_IF_ERROR(CheckRooms(model, skeleton));
  PALPATE_ASSIGN_OR_RETURN(const ShellLists shells, ListShells(model));
  const TetLists lists = ListTets(model);
  layout.lanes = skeleton.lanes;
  layout.vertex_count = skeleton.vertex_count;
  layout.free_count = skeleton.free_count;
  layout.fixed_end = skeleton.fixed_end;
  layout.color_begin = skeleton.color_begin;
  layout.color_end = skeleton.color_end;
  layout.solver_index = skeleton.solver_index;
  PALPATE_ASSIGN_OR_RETURN(const std::vector<uint32_t> vertices, TakeSlots(model, skeleton, &layout));
  if (!AreColored(model, shells, skeleton)) return OtherModel("two vertices of a tet have one colour");
  layout.shell = LayOutShells(model, shells, layout.original_index, layout.solver_index, layout.lanes, dt_s);
  PlaceTets(model, skeleton.tet_room, entries, &layout);
  for (size_t energy = 0; energy < layout.has_energy.size(); ++energy) {
    if (layout.has_energy[energy] && !skeleton.has_energy[energy]) return OtherModel("an energy is missing");
  }
  if ((layout.has_fibers && !skeleton.has_fibers) || (layout.has_viscosity && !skeleton.has_viscosity)) {
    return OtherModel("fibres or viscosity are missing");
  }
  layout.has_energy = skeleton.has_energy;
  layout.has_fibers = skeleton.has_fibers;
  layout.has_viscosity = skeleton.has_viscosity;
  layout.displacement_exponent = skeleton.displacement_exponent;
  if (layout.IsDisplaced() && (!layout.HasStresses() || KeepsVolumes(model) || std::abs(layout.displacement_exponent) > 100)) {
    return OtherModel("displacements are kept, or their unit");
  }
  layout.mean_edge_m = skeleton.mean_edge_m;
  layout.mean_young_modulus_pa = skeleton.mean_young_modulus_pa;
  layout.block_range.resize(layout.vertex_count);
  layout.block_count = skeleton.blocks.end();
  Ranges blocks(layout.block_count);
  for (const uint32_t v : vertices) {
    const uint32_t begin = skeleton.block_begins[ToNumber(layout.solver_index[v])];
    const uint32_t count = BlocksOf(lists, v, layout.lanes);
    if (count > 0 && !blocks.Take(begin, count)) return OtherModel("blocks of vertices overlap, or are out of range");
    layout.block_range[layout.solver_index[v]] = {begin, begin + count};
  }
  WriteVertices(model, lists, vertices, dt_s, skeleton.blocks.capacity(), entries, &layout);
  const TissueLayout::BySlot<uint32_t> fan = PlaceTriangles(model, lists, skeleton.triangle_room, entries, &layout);
  layout.vertex_triangle_range.resize(layout.vertex_count);
  layout.vertex_triangles_end = skeleton.fans.end();
  Ranges fans(layout.vertex_triangles_end);
  for (const uint32_t v : vertices) {
    const SolverSlot slot = layout.solver_index[v];
    const uint32_t begin = skeleton.fan_begins[ToNumber(slot)];
    if (fan[slot] > 0 && !fans.Take(begin, TriangleListRoom(fan[slot])))
      return OtherModel("lists of triangles overlap, or are out of range");
    layout.vertex_triangle_range[slot] = {begin, begin};
  }
  WriteFans(model, skeleton.fans.capacity(), &layout);
  FinishLayout(model, &layout);
  return layout;
}

}  // namespace palpate::gpu
