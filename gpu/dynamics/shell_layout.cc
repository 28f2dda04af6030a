#include "gpu/dynamics/shell_layout.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <tuple>

#include "gpu/dynamics/nurbs_shell_model.h"
#include "gpu/dynamics/tissue_layout.h"

namespace palpate::gpu {
namespace {

using Vec = std::array<double, 3>;

// Of the edge: what a third vertex may be off the plane of the other triangle where bending is quadratic.
constexpr double kFlatShare = 1e-4;
// Of the mass of a vertex over the square of the step, as a stiffness of its contacts: one far stiffer than inertia pushes light sheets by
// the errors of the sweeps, one far softer does not pass on what presses on them.
constexpr double kContactInertia = 5;
// Twice the area over the square of the longest edge, below which a triangle counts as without area.
constexpr double kLeastArea = 1e-7;

Vec Minus(const Vec& a, const Vec& b) { return {a[0] - b[0], a[1] - b[1], a[2] - b[2]}; }
Vec Cross(const Vec& a, const Vec& b) { return {a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]}; }
double Dot(const Vec& a, const Vec& b) { return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]; }
double Norm(const Vec& a) { return std::sqrt(Dot(a, a)); }
Vec Times(double s, const Vec& a) { return {s * a[0], s * a[1], s * a[2]}; }

double StifferModulus(const ShellTriangle& triangle) { return std::max(triangle.moduli_pa[0], triangle.moduli_pa[2]); }

struct Corners {
  std::array<Vec, 3> x;
  Vec normal;  // twice the area long
  double area_m2 = 0;
};

Corners CornersOf(const TissueModel& model, const ShellTriangle& triangle) {
  Corners c;
  for (size_t k = 0; k < 3; ++k) c.x[k] = model.rest_m[triangle.vertices[k]];
  c.normal = Cross(Minus(c.x[1], c.x[0]), Minus(c.x[2], c.x[0]));
  c.area_m2 = Norm(c.normal) / 2;
  return c;
}

/// Axis a of the triangle's moduli: a unit vector in its plane; zero where the warp is along the normal.
Vec WarpOf(const ShellTriangle& triangle, const Corners& c) {
  Vec warp = {triangle.warp[0], triangle.warp[1], triangle.warp[2]};
  if (Dot(warp, warp) == 0) warp = Minus(c.x[1], c.x[0]);
  const double length = Norm(warp);
  const Vec n = Times(1 / (2 * c.area_m2), c.normal);
  const Vec in_plane = Minus(warp, Times(Dot(warp, n), n));
  const double left = Norm(in_plane);
  return left > 1e-3 * length ? Times(1 / left, in_plane) : Vec{};
}

absl::Status CheckTriangle(const TissueModel& model, size_t t) {
  const ShellTriangle& triangle = model.shells[t];
  const auto error = [&](const auto&... what) { return absl::InvalidArgumentError(absl::StrCat("shell triangle ", t, ": ", what...)); };
  for (const uint32_t v : triangle.vertices) {
    if (v >= model.rest_m.size()) return error("vertex ", v, " is outside [0, ", model.rest_m.size(), ")");
    if (model.fixed[v] == kAbsentVertex) return error("vertex ", v, " is absent");
  }
  const Corners c = CornersOf(model, triangle);
  double longest_sq = 0;
  for (size_t k = 0; k < 3; ++k) {
    const Vec e = Minus(c.x[(k + 1) % 3], c.x[k]);
    longest_sq = std::max(longest_sq, Dot(e, e));
  }
  if (!(2 * c.area_m2 > kLeastArea * longest_sq)) return error("area ", c.area_m2, " m^2 is not positive");
  if (!(triangle.thickness_m > 0 && triangle.density_kg_per_m3 > 0)) {
    return error("thickness ", triangle.thickness_m, " m and density ", triangle.density_kg_per_m3, " kg/m^3 must be positive");
  }
  const auto& [aa, ab, bb, shear] = triangle.moduli_pa;
  if (!(aa > 0 && bb > 0 && shear > 0 && double{aa} * bb > double{ab} * ab)) return error("its moduli do not give a positive energy");
  if (!(triangle.bending_stiffness_n_m >= 0) || !(triangle.strain_limit >= 0)) {
    return error("bending stiffness ", triangle.bending_stiffness_n_m, " N m or strain limit ", triangle.strain_limit, " is negative");
  }
  if (Norm(WarpOf(triangle, c)) == 0) return error("the warp is along its normal");
  return absl::OkStatus();
}

/// Lists for each vertex the elements that name it.
template <typename Element>
void Invert(const std::vector<Element>& elements, size_t vertex_count, std::vector<uint32_t>* begin, std::vector<uint32_t>* list) {
  begin->assign(vertex_count + 1, 0);
  for (const Element& element : elements) {
    for (const uint32_t v : element.vertices) ++(*begin)[v + 1];
  }
  std::partial_sum(begin->begin(), begin->end(), begin->begin());
  list->resize(begin->back());
  std::vector<uint32_t> at(begin->begin(), begin->end() - 1);
  for (uint32_t i = 0; i < elements.size(); ++i) {
    for (const uint32_t v : elements[i].vertices) (*list)[at[v]++] = i;
  }
}

/// What a hinge is at rest.
struct HingeRest {
  double stiffness_n_m = 0;      // of the angle
  double quadratic_n_per_m = 0;  // of the squared sum of weights times positions, weights without unit
  double angle = 0;
  double damping_s = 0;
  std::array<double, 4> weights{};
};

/// The dihedral angle as hinge_of of shell_elasticity.clh has it.
double AngleOf(const std::array<Vec, 4>& x) {
  const Vec e = Minus(x[1], x[0]);
  const Vec n2 = Cross(e, Minus(x[2], x[0]));
  const Vec n3 = Cross(Minus(x[3], x[0]), e);
  return std::atan2(Dot(e, Cross(n2, n3)) / Norm(e), Dot(n2, n3));
}

double Cotangent(const Vec& a, const Vec& b) { return Dot(a, b) / Norm(Cross(a, b)); }

/// Of a plate of stiffness k that bends along any one direction, meshed by regular triangles: k |e|^2 / (A1 + A2).
/// docs/algorithms/shells.md.
HingeRest RestOf(const TissueModel& model, const ShellHinge& hinge) {
  std::array<Vec, 4> x;
  for (size_t k = 0; k < 4; ++k) x[k] = model.rest_m[hinge.vertices[k]];
  const ShellTriangle& a = model.shells[hinge.triangles[0]];
  const ShellTriangle& b = model.shells[hinge.triangles[1]];
  const double area_m2 = CornersOf(model, a).area_m2 + CornersOf(model, b).area_m2;
  const double k = (double{a.bending_stiffness_n_m} + b.bending_stiffness_n_m) / 2;
  const Vec e = Minus(x[1], x[0]);
  HingeRest rest;
  rest.quadratic_n_per_m = k / area_m2;
  rest.stiffness_n_m = k / area_m2 * Dot(e, e);
  rest.angle = AngleOf(x);
  rest.damping_s = (double{a.damping_s} + b.damping_s) / 2;
  const double at0_2 = Cotangent(e, Minus(x[2], x[0]));
  const double at0_3 = Cotangent(e, Minus(x[3], x[0]));
  const double at1_2 = Cotangent(Minus(x[0], x[1]), Minus(x[2], x[1]));
  const double at1_3 = Cotangent(Minus(x[0], x[1]), Minus(x[3], x[1]));
  rest.weights = {at1_2 + at1_3, at0_2 + at0_3, -at0_2 - at1_2, -at0_3 - at1_3};
  return rest;
}

ShellBending BendingOf(const TissueModel& model, const ShellHinge& hinge) {
  const ShellBending a = model.shells[hinge.triangles[0]].bending;
  return a == model.shells[hinge.triangles[1]].bending ? a : ShellBending::kDiscreteShells;
}

absl::Status CheckFlat(const TissueModel& model, const ShellHinge& hinge) {
  if (BendingOf(model, hinge) != ShellBending::kQuadratic) return absl::OkStatus();
  const double angle = RestOf(model, hinge).angle;
  if (std::abs(angle) <= kFlatShare) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("shell triangles ", hinge.triangles[0], " and ", hinge.triangles[1],
                                                 ": quadratic bending needs a surface that is flat at rest, and these meet at an angle of ",
                                                 angle, " rad"));
}

/// Writes blocks of `lanes` entries, [block][reals][lanes] and [block][indices][lanes].
class Blocks {
 public:
  Blocks(uint32_t reals, uint32_t indices, uint32_t lanes, std::vector<float>* real, std::vector<uint32_t>* index)
      : reals_(reals), indices_(indices), lanes_(lanes), real_(*real), index_(*index) {}

  /// Blocks of a vertex, all padding: every index is its slot.
  UInt2 Add(size_t entries, uint32_t slot) {
    const auto blocks = static_cast<uint32_t>((entries + lanes_ - 1) / lanes_);
    const UInt2 range = {count_, count_ + blocks};
    count_ += blocks;
    real_.resize(size_t{count_} * reals_ * lanes_, 0.0F);
    index_.resize(size_t{count_} * indices_ * lanes_, slot);
    return range;
  }
  void SetReal(UInt2 range, uint32_t entry, uint32_t k, double value) {
    real_[(size_t{range.x + entry / lanes_} * reals_ + k) * lanes_ + entry % lanes_] = static_cast<float>(value);
  }
  void SetIndex(UInt2 range, uint32_t entry, uint32_t k, uint32_t slot) {
    index_[(size_t{range.x + entry / lanes_} * indices_ + k) * lanes_ + entry % lanes_] = slot;
  }
  uint32_t count() const { return count_; }

 private:
  uint32_t reals_, indices_, lanes_;
  std::vector<float>& real_;
  std::vector<uint32_t>& index_;
  uint32_t count_ = 0;
};

uint32_t MaskOf(const TissueModel& model, const ShellLists& lists) {
  uint32_t mask = 0;
  for (const ShellTriangle& triangle : model.shells) {
    mask |= triangle.membrane == ShellMembrane::kStableNeoHookean ? PALPATE_SHELL_NEO_HOOKEAN : PALPATE_SHELL_ST_VENANT_KIRCHHOFF;
    if (triangle.strain_limit > 0) mask |= PALPATE_SHELL_LIMITED;
    if (triangle.damping_s > 0) mask |= PALPATE_SHELL_VISCOUS;
  }
  for (const ShellHinge& hinge : lists.hinges) {
    const ShellBending bending = BendingOf(model, hinge);
    if (bending == ShellBending::kDiscreteShells) mask |= PALPATE_SHELL_HINGES;
    if (bending == ShellBending::kQuadratic) mask |= PALPATE_SHELL_QUADRATIC;
  }
  return mask;
}

/// Before the triangles of shells.
void AddNurbsThickness(const TissueModel& model, ShellLayout* layout) {
  if (model.nurbs_shells.empty()) return;
  layout->vertices.resize(model.rest_m.size());
  for (const TissueNurbsShell& shell : model.nurbs_shells) {
    const double half_m = *std::max_element(shell.model->half_thickness_m.begin(), shell.model->half_thickness_m.end());
    for (uint32_t v = shell.vertices[0]; v < shell.vertices[1]; ++v) layout->vertices[v].half_thickness_m = static_cast<float>(half_m);
    layout->max_half_thickness_m = std::max(layout->max_half_thickness_m, half_m);
  }
}

std::vector<ShellVertex> VerticesOf(const TissueModel& model, const ShellLists& lists, double dt_s, ShellLayout* layout) {
  std::vector<ShellVertex> vertices = std::move(layout->vertices);
  vertices.resize(model.rest_m.size());
  double edge_sum = 0;
  for (const ShellTriangle& triangle : model.shells) {
    const Corners c = CornersOf(model, triangle);
    const double share = c.area_m2 * triangle.thickness_m * triangle.density_kg_per_m3 / 3;
    const double stiffness = StifferModulus(triangle) * triangle.thickness_m;
    for (const uint32_t v : triangle.vertices) {
      ShellVertex& vertex = vertices[v];
      vertex.mass_kg += share;
      vertex.damped_mass_kg_per_s += share * triangle.mass_damping_per_s;
      vertex.stiffness_n_per_m += stiffness / static_cast<double>(lists.TrianglesAround(v).size());
      vertex.half_thickness_m = std::max(vertex.half_thickness_m, triangle.thickness_m / 2);
    }
    for (size_t k = 0; k < 3; ++k) edge_sum += Norm(Minus(c.x[(k + 1) % 3], c.x[k]));
    layout->mean_stiffness_n_per_m += stiffness / static_cast<double>(model.shells.size());
    layout->mean_modulus_pa += StifferModulus(triangle) / static_cast<double>(model.shells.size());
    layout->max_half_thickness_m = std::max(layout->max_half_thickness_m, double{triangle.thickness_m} / 2);
  }
  for (ShellVertex& vertex : vertices) {
    vertex.stiffness_n_per_m = std::min(vertex.stiffness_n_per_m, kContactInertia * vertex.mass_kg / (dt_s * dt_s));
  }
  layout->mean_edge_m = edge_sum / (3.0 * static_cast<double>(model.shells.size()));
  return vertices;
}

void WriteCorner(const TissueModel& model, const ShellTriangle& triangle, uint32_t vertex, const std::vector<SolverSlot>& solver_index,
                 double dt_s, UInt2 range, uint32_t entry, Blocks* blocks) {
  const auto at = static_cast<size_t>(std::find(triangle.vertices.begin(), triangle.vertices.end(), vertex) - triangle.vertices.begin());
  const Corners c = CornersOf(model, triangle);
  const Vec warp = WarpOf(triangle, c);
  const Vec weft = Cross(Times(1 / (2 * c.area_m2), c.normal), warp);
  const Vec a = Minus(c.x[(at + 1) % 3], c.x[at]);
  const Vec b = Minus(c.x[(at + 2) % 3], c.x[at]);
  // Rows of the inverse of [a b], written along warp and weft.
  const double det = Dot(a, warp) * Dot(b, weft) - Dot(b, warp) * Dot(a, weft);
  blocks->SetReal(range, entry, 0, Dot(b, weft) / det);
  blocks->SetReal(range, entry, 1, -Dot(b, warp) / det);
  blocks->SetReal(range, entry, 2, -Dot(a, weft) / det);
  blocks->SetReal(range, entry, 3, Dot(a, warp) / det);
  const double volume_m3 = c.area_m2 * triangle.thickness_m;
  for (uint32_t k = 0; k < 4; ++k) blocks->SetReal(range, entry, 4 + k, volume_m3 * triangle.moduli_pa[k]);
  // Of plane stress c_ab = 2 mu lambda / (lambda + 2 mu), and lambda' = lambda + mu.
  const double mu = triangle.moduli_pa[3];
  const double c_ab = triangle.moduli_pa[1];
  blocks->SetReal(range, entry, 8, 1 + 2 * c_ab / (2 * mu - c_ab));
  const double limit = triangle.strain_limit;
  blocks->SetReal(range, entry, 9, limit > 0 ? ((1 + limit) * (1 + limit) - 1) / 2 : double{PALPATE_SHELL_NO_LIMIT});
  blocks->SetReal(range, entry, 10, triangle.damping_s / dt_s);
  blocks->SetReal(range, entry, 11, triangle.membrane == ShellMembrane::kStableNeoHookean ? 1 : 0);
  blocks->SetIndex(range, entry, 0, ToNumber(solver_index[triangle.vertices[(at + 1) % 3]]));
  blocks->SetIndex(range, entry, 1, ToNumber(solver_index[triangle.vertices[(at + 2) % 3]]));
}

/// Of the sides of all triangles, [3 * triangle + corner that the side begins at], the hinge; kNoHinge where there is no other triangle.
constexpr uint32_t kNoHinge = ~0U;
std::vector<uint32_t> HingesOfSides(const TissueModel& model, const ShellLists& lists) {
  std::vector<uint32_t> sides(3 * model.shells.size(), kNoHinge);
  for (uint32_t h = 0; h < lists.hinges.size(); ++h) {
    const ShellHinge& hinge = lists.hinges[h];
    for (size_t k = 0; k < 2; ++k) {  // the second triangle runs from x1 to x0
      const auto& v = model.shells[hinge.triangles[k]].vertices;
      sides[3 * size_t{hinge.triangles[k]} + static_cast<size_t>(std::find(v.begin(), v.end(), hinge.vertices[k]) - v.begin())] = h;
    }
  }
  return sides;
}

/// The hinges over v a and a b of the corner v of a triangle v a b.
void WriteHinges(const TissueModel& model, const ShellLists& lists, const std::vector<HingeRest>& rests,
                 const std::vector<uint32_t>& hinges_of_sides, uint32_t triangle, uint32_t vertex,
                 const std::vector<SolverSlot>& solver_index, double dt_s, UInt2 range, uint32_t entry, Blocks* blocks) {
  const auto& corners = model.shells[triangle].vertices;
  const auto at = static_cast<size_t>(std::find(corners.begin(), corners.end(), vertex) - corners.begin());
  for (uint32_t k = 0; k < 2; ++k) {
    const uint32_t h = hinges_of_sides[3 * size_t{triangle} + (at + k) % 3];
    if (h == kNoHinge || BendingOf(model, lists.hinges[h]) != ShellBending::kDiscreteShells) continue;
    const ShellHinge& hinge = lists.hinges[h];
    blocks->SetIndex(range, entry, k, ToNumber(solver_index[hinge.vertices[hinge.triangles[0] == triangle ? 3 : 2]]));
    blocks->SetReal(range, entry, 3 * k, rests[h].stiffness_n_m);
    blocks->SetReal(range, entry, 3 * k + 1, rests[h].angle);
    blocks->SetReal(range, entry, 3 * k + 2, rests[h].damping_s / dt_s);
  }
}

void WriteQuadraticHinge(const ShellHinge& hinge, const HingeRest& rest, uint32_t vertex, const std::vector<SolverSlot>& solver_index,
                         UInt2 range, uint32_t entry, Blocks* blocks) {
  const auto at = static_cast<size_t>(std::find(hinge.vertices.begin(), hinge.vertices.end(), vertex) - hinge.vertices.begin());
  for (uint32_t k = 0; k < 4; ++k) blocks->SetIndex(range, entry, k, ToNumber(solver_index[hinge.vertices[k]]));
  for (uint32_t k = 0; k < 3; ++k) blocks->SetReal(range, entry, k, rest.weights[k + 1]);
  blocks->SetReal(range, entry, 3, rest.quadratic_n_per_m * rest.weights[at]);
  blocks->SetReal(range, entry, 4, rest.weights[at]);
  blocks->SetReal(range, entry, 5, rest.quadratic_n_per_m);
}

}  // namespace

absl::StatusOr<std::vector<ShellHinge>> FindHinges(std::span<const ShellTriangle> triangles, size_t vertex_count) {
  struct Side {
    uint32_t low, high, triangle, corner;
    bool rises;  // the triangle runs from low to high
  };
  std::vector<Side> sides;
  sides.reserve(3 * triangles.size());
  for (uint32_t t = 0; t < triangles.size(); ++t) {
    const auto& v = triangles[t].vertices;
    for (uint32_t k = 0; k < 3; ++k) {
      const uint32_t a = v[k];
      const uint32_t b = v[(k + 1) % 3];
      if (a >= vertex_count || a == b) {
        return absl::InvalidArgumentError(absl::StrCat("shell triangle ", t, ": vertex ", a, a == b ? " is repeated" : " is out of range"));
      }
      sides.push_back({std::min(a, b), std::max(a, b), t, k, a < b});
    }
  }
  std::sort(sides.begin(), sides.end(),
            [](const Side& a, const Side& b) { return std::tie(a.low, a.high, a.triangle) < std::tie(b.low, b.high, b.triangle); });
  std::vector<ShellHinge> hinges;
  for (size_t i = 0; i < sides.size();) {
    size_t end = i + 1;
    while (end < sides.size() && sides[end].low == sides[i].low && sides[end].high == sides[i].high) ++end;
    const auto edge = [&] { return absl::StrCat("edge (", sides[i].low, ", ", sides[i].high, "): "); };
    if (end - i > 2) {
      return absl::InvalidArgumentError(absl::StrCat(edge(), end - i, " triangles share it, the first of them ", sides[i].triangle, ", ",
                                                     sides[i + 1].triangle, " and ", sides[i + 2].triangle));
    }
    if (end - i == 2) {
      const Side& a = sides[i];
      const Side& b = sides[i + 1];
      if (a.rises == b.rises) {
        return absl::InvalidArgumentError(
            absl::StrCat(edge(), "triangles ", a.triangle, " and ", b.triangle, " run along it in the same direction"));
      }
      const auto& of_a = triangles[a.triangle].vertices;
      const auto& of_b = triangles[b.triangle].vertices;
      hinges.push_back(
          {{of_a[a.corner], of_a[(a.corner + 1) % 3], of_a[(a.corner + 2) % 3], of_b[(b.corner + 2) % 3]}, {a.triangle, b.triangle}});
    }
    i = end;
  }
  return hinges;
}

absl::StatusOr<ShellLists> ListShells(const TissueModel& model) {
  ShellLists lists;
  if (model.shells.empty()) return lists;
  for (size_t t = 0; t < model.shells.size(); ++t) PALPATE_RETURN_IF_ERROR(CheckTriangle(model, t));
  PALPATE_ASSIGN_OR_RETURN(lists.hinges, FindHinges(model.shells, model.rest_m.size()));
  for (const ShellHinge& hinge : lists.hinges) PALPATE_RETURN_IF_ERROR(CheckFlat(model, hinge));
  Invert(model.shells, model.rest_m.size(), &lists.triangle_begin, &lists.vertex_triangles);
  Invert(lists.hinges, model.rest_m.size(), &lists.hinge_begin, &lists.vertex_hinges);
  for (size_t t = 0; t < model.tets.size(); ++t) {
    if (model.tets[t].vertices == kFreeTissueTet) continue;
    for (const uint32_t v : model.tets[t].vertices) {
      if (v < model.rest_m.size() && !lists.TrianglesAround(v).empty()) {
        return absl::InvalidArgumentError(absl::StrCat("tet ", t, ": vertex ", v, " is also of a shell"));
      }
    }
  }
  for (size_t r = 0; r < model.rigid.size(); ++r) {
    for (uint32_t v = model.rigid[r].vertices[0]; v < model.rigid[r].vertices[1] && v < model.rest_m.size(); ++v) {
      if (!lists.TrianglesAround(v).empty()) {
        return absl::InvalidArgumentError(absl::StrCat("rigid body ", r, ": vertex ", v, " is also of a shell"));
      }
    }
  }
  return lists;
}

std::vector<float> NurbsVertexStiffness(const TissueNurbsShell& shell, double dt_s) {
  double of_shell = 0;
  for (const NurbsShellGauss& gauss : shell.model->gauss) {
    of_shell = std::max(of_shell, gauss.membrane_per_bending_per_m2 * gauss.bending_n_m[0]);
  }
  std::vector<float> out;
  for (size_t v = 0; v + 1 < shell.begins.size(); ++v) {
    double inverse_mass = 0;
    for (uint32_t k = shell.begins[v]; k < shell.begins[v + 1]; ++k) {
      inverse_mass += double{shell.weights[k]} * shell.weights[k] / shell.model->mass_kg[shell.controls[k]];
    }
    out.push_back(static_cast<float>(std::min(of_shell, kContactInertia / (inverse_mass * dt_s * dt_s))));
  }
  return out;
}

ShellLayout LayOutShells(const TissueModel& model, const ShellLists& lists, const IndexedVector<SolverSlot, uint32_t>& original_index,
                         const std::vector<SolverSlot>& solver_index, uint32_t lanes, double dt_s) {
  ShellLayout layout;
  AddNurbsThickness(model, &layout);
  if (lists.empty()) return layout;
  layout.mask = MaskOf(model, lists);
  layout.vertices = VerticesOf(model, lists, dt_s, &layout);
  for (const ShellTriangle& triangle : model.shells) {
    layout.triangles.push_back({ToNumber(solver_index[triangle.vertices[0]]), ToNumber(solver_index[triangle.vertices[1]]),
                                ToNumber(solver_index[triangle.vertices[2]])});
  }
  std::vector<HingeRest> rests;
  for (const ShellHinge& hinge : lists.hinges) rests.push_back(RestOf(model, hinge));
  Blocks membranes(PALPATE_MEMBRANE_REALS, 2, lanes, &layout.membrane_real, &layout.membrane_index);
  Blocks hinges(PALPATE_HINGE_REALS, 2, lanes, &layout.hinge_real, &layout.hinge_index);
  Blocks quadratic(PALPATE_QUADRATIC_REALS, 4, lanes, &layout.quadratic_real, &layout.quadratic_index);
  const bool has_hinges = (layout.mask & PALPATE_SHELL_HINGES) != 0;
  const std::vector<uint32_t> hinges_of_sides = HingesOfSides(model, lists);
  layout.ranges.resize(original_index.size() * PALPATE_SHELL_RANGES);
  for (const SolverSlot slot : original_index.indices()) {
    const uint32_t v = original_index[slot];
    if (v == kNoTissueVertex || lists.TrianglesAround(v).empty()) continue;
    UInt2* const ranges = &layout.ranges[size_t{ToNumber(slot)} * PALPATE_SHELL_RANGES];
    const std::span<const uint32_t> triangles = lists.TrianglesAround(v);
    ranges[0] = membranes.Add(triangles.size(), ToNumber(slot));
    if (has_hinges) hinges.Add(triangles.size(), ToNumber(slot));
    layout.membrane_vertex.resize(membranes.count(), ToNumber(slot));
    for (uint32_t i = 0; i < triangles.size(); ++i) {
      WriteCorner(model, model.shells[triangles[i]], v, solver_index, dt_s, ranges[0], i, &membranes);
      if (has_hinges) WriteHinges(model, lists, rests, hinges_of_sides, triangles[i], v, solver_index, dt_s, ranges[0], i, &hinges);
    }
    std::vector<uint32_t> around;
    for (const uint32_t h : lists.HingesAround(v)) {
      if (BendingOf(model, lists.hinges[h]) == ShellBending::kQuadratic) around.push_back(h);
    }
    ranges[1] = quadratic.Add(around.size(), ToNumber(slot));
    for (uint32_t i = 0; i < around.size(); ++i) {
      WriteQuadraticHinge(lists.hinges[around[i]], rests[around[i]], v, solver_index, ranges[1], i, &quadratic);
    }
  }
  layout.membrane_blocks = membranes.count();
  layout.quadratic_blocks = quadratic.count();
  return layout;
}

}  // namespace palpate::gpu
