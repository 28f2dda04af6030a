#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace palpate::gpu {

/// What holds two sides together at a point of the curve along which they meet. Of its entries by_1 and by_2 are derivatives of the first
/// side along the curve and at right angles to it, by_11 and by_22 those of the second [1/m], and by_12 is the part in the gap [1], the
/// first side less the second. With unit normals n_a, n_b and m = n_a x (unit tangent along the curve) the energy is length / 2 times
/// gap |gap|^2 + turn ((n_a . n_b - rest_cosine)^2 + (m . n_b - rest_sine)^2) [J].
struct NurbsShellCoupling {
  double gap_n_per_m2 = 0;  ///< stiffness by the length of the curve
  double turn_n = 0;        ///< of the angle between the sides [N m / m]; 0: a hinge
  double rest_cosine = 0, rest_sine = 0;
};

/// A control point at a Gauss point: derivatives of its rational basis function by lengths along the point's orthonormal axes at rest.
struct NurbsShellEntry {
  uint32_t control = 0;     ///< control point
  uint32_t gauss = 0;       ///< Gauss point
  double value = 0;         ///< of the basis function; those of a Gauss point sum to 1
  double by_1_per_m = 0;    ///< those of a Gauss point sum to 0, also below
  double by_2_per_m = 0;    ///< at right angles to the first
  double by_11_per_m2 = 0;  ///< second derivatives with the axes held fixed
  double by_22_per_m2 = 0;
  double by_12_per_m2 = 0;
};

/// A Gauss point of a thin shell. Its axes 1 and 2 are orthonormal and tangential at rest, so that the metric is the identity there. With
/// strain E and change of curvature K its energy is area / 2 times (K, K) + `membrane_per_bending_per_m2` (E, E), where (E, E) is
/// c_11 E_11^2 + c_22 E_22^2 + 2 c_12 E_11 E_22 + 4 c_shear E_12^2 [J].
struct NurbsShellGauss {
  double area_m2 = 0;                                         ///< weight of the quadrature
  std::array<double, 3> rest_curvature_per_m{};               ///< B_11, B_22, B_12 = second derivatives along the normal a_1 x a_2
  std::array<double, 4> bending_n_m{};                        ///< c_11, c_12, c_22, c_shear, of the whole thickness
  double membrane_per_bending_per_m2 = 0;                     ///< 12 / thickness^2; 0 of strips along creases, which only bend about axis 2
  double damping_s = 0;                                       ///< stiffness-proportional viscosity of both
  bool is_surface = true;                                     ///< else of a strip, or of what is trimmed away: its area is not the shell's
  std::optional<NurbsShellCoupling> coupling = std::nullopt;  ///< then area_m2 is a length [m], and what else is above counts for nothing
  uint32_t begin = 0, end = 0;                                ///< its entries
  uint32_t patch = 0;                                         ///< of the object as it was given
  double u = 0, v = 0;                                        ///< parameters in the patch
};

/// A control point of a patch as a weighted mean of control points that are unknowns. Where patches go smoothly on into each other, those
/// of their edge are not unknowns of their own.
struct NurbsShellPart {
  uint32_t control = 0;
  double weight = 0;  ///< those of a point sum to 1
};

/// Kirchhoff-Love shells of NURBS surfaces: plain data for the solver; sim/nurbs/nurbs_shell_builder.h makes it. Rest positions are in
/// metres in the frame of the surface that was given. See docs/algorithms/nurbs_shells.md.
struct NurbsShellModel {
  std::vector<std::array<double, 3>> rest_m;  ///< [control point] those that are unknowns
  std::vector<double> mass_kg;                ///< [control point] lumped: integrals of density times thickness times the basis function
  std::vector<double> half_thickness_m;       ///< [control point]
  std::vector<double> mass_damping_per_s;     ///< [control point]
  std::vector<NurbsShellGauss> gauss;         ///< in an order in which neighbours on the surface are near each other
  std::vector<NurbsShellEntry> entries;       ///< of each Gauss point, its control points rising
  std::vector<uint32_t> control_begin;        ///< [control point + 1] into control_entries
  std::vector<uint32_t> control_entries;      ///< entries of each control point, rising

  /// So many control points are not of the surface but corners of frames that hold rims, all of them held; of a single shell they are the
  /// last.
  uint32_t frame_control_count = 0;

  /// Control points of the patches as they were given: patch p has those from net_begin[p] on, [count_u][count_v].
  std::vector<uint32_t> net_begin;       ///< [patch + 1]
  std::vector<uint32_t> net_part_begin;  ///< [point of a net + 1] into net_parts
  std::vector<NurbsShellPart> net_parts;

  bool empty() const { return rest_m.empty(); }
  size_t control_count() const { return rest_m.size(); }
  size_t surface_control_count() const { return rest_m.size() - frame_control_count; }

  /// Fills control_begin and control_entries from entries.
  void ListEntries() {
    control_begin.assign(control_count() + 1, 0);
    for (const NurbsShellEntry& entry : entries) ++control_begin[entry.control + 1];
    for (size_t c = 0; c < control_count(); ++c) control_begin[c + 1] += control_begin[c];
    control_entries.resize(entries.size());
    std::vector<uint32_t> at(control_begin.begin(), control_begin.end() - 1);
    for (uint32_t e = 0; e < entries.size(); ++e) control_entries[at[entries[e].control]++] = e;
  }
};

}  // namespace palpate::gpu
