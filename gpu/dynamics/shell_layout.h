#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "gpu/base/indexed_vector.h"
#include "gpu/base/status.h"
#include "gpu/shared/shell_types.h"
#include "gpu/shared/types.h"

namespace palpate::gpu {

enum class SolverSlot : uint32_t;
struct TissueModel;
struct TissueNurbsShell;

/// In-plane energies of shells; see docs/algorithms/shells.md.
enum class ShellMembrane : uint32_t { kStVenantKirchhoff, kStableNeoHookean };

/// What resists a change of the angle at an edge.
enum class ShellBending : uint32_t { kDiscreteShells, kQuadratic, kNone };

/// One triangle of a shell.
struct ShellTriangle {
  std::array<uint32_t, 3> vertices{};  ///< no vertex of a tet, a rigid body or of another body's shell
  float thickness_m = 0;
  float density_kg_per_m3 = 0;
  float damping_s = 0;           ///< stiffness-proportional viscosity, of quadratic bending none
  float mass_damping_per_s = 0;  ///< mass-proportional (Rayleigh)
  ShellMembrane membrane = ShellMembrane::kStableNeoHookean;
  /// At rest, of any length, not along the normal: axis a of the moduli is its direction in the triangle, b is at right angles. Zero: along
  /// the first edge.
  std::array<float, 3> warp{};
  /// c_aa, c_ab, c_bb of plane stress and the shear modulus. Stable neo-Hookean material is isotropic, these are those of small strain.
  std::array<float, 4> moduli_pa{};
  ShellBending bending = ShellBending::kDiscreteShells;
  float bending_stiffness_n_m = 0;  ///< of a plate, per width; an edge has the mean of its two triangles
  float strain_limit = 0;           ///< stretch minus 1 from which on it stiffens; 0: none
};

/// An edge that two triangles of a shell share.
struct ShellHinge {
  std::array<uint32_t, 4> vertices;  ///< x0, x1 of the edge as the first triangle runs along it, x2 its third vertex, x3 that of the other
  std::array<uint32_t, 2> triangles;
};

/// Edges of two triangles, in the order of their vertices. Errors: InvalidArgument for an edge of three triangles, or of two that run along
/// it in the same direction, and for a vertex out of range or repeated.
absl::StatusOr<std::vector<ShellHinge>> FindHinges(std::span<const ShellTriangle> triangles, size_t vertex_count);

/// Triangles and hinges around each vertex, rising.
struct ShellLists {
  std::vector<ShellHinge> hinges;
  std::vector<uint32_t> triangle_begin, hinge_begin;  ///< [vertex + 1]; empty without shells
  std::vector<uint32_t> vertex_triangles, vertex_hinges;

  bool empty() const { return triangle_begin.empty(); }
  std::span<const uint32_t> TrianglesAround(uint32_t v) const {
    return empty() ? std::span<const uint32_t>()
                   : std::span(vertex_triangles).subspan(triangle_begin[v], triangle_begin[v + 1] - triangle_begin[v]);
  }
  std::span<const uint32_t> HingesAround(uint32_t v) const {
    return empty() ? std::span<const uint32_t>() : std::span(vertex_hinges).subspan(hinge_begin[v], hinge_begin[v + 1] - hinge_begin[v]);
  }
};

/// Errors: those of FindHinges; InvalidArgument naming the triangle for one without area, for a thickness, density or moduli that are not
/// positive, a warp along the normal, quadratic bending of a surface that is not flat at rest, and a vertex of a tet or that is absent.
absl::StatusOr<ShellLists> ListShells(const TissueModel& model);

/// What shells give to a vertex.
struct ShellVertex {
  double mass_kg = 0;
  double damped_mass_kg_per_s = 0;  ///< mass times its mass damping
  /// Of contacts: the mean over its triangles of the stiffer modulus times the thickness, but at most five times mass over dt^2.
  double stiffness_n_per_m = 0;
  float half_thickness_m = 0;
};

/// Shells laid out for the device; see shell_terms.clh for the arrays. Edits never change them.
struct ShellLayout {
  uint32_t mask = 0;                               ///< bits of PALPATE_SHELL; 0: there are no shells
  std::vector<ShellVertex> vertices;               ///< [caller's vertex]; of NURBS shells the thickness alone
  std::vector<std::array<uint32_t, 3>> triangles;  ///< slots
  std::vector<UInt2> ranges;                       ///< [slot][PALPATE_SHELL_RANGES]
  std::vector<uint32_t> membrane_vertex;           ///< [block] slot
  std::vector<float> membrane_real, hinge_real, quadratic_real;
  std::vector<uint32_t> membrane_index, hinge_index, quadratic_index;
  uint32_t membrane_blocks = 0, quadratic_blocks = 0;
  double max_half_thickness_m = 0;  ///< of NURBS shells too
  double mean_edge_m = 0;
  double mean_stiffness_n_per_m = 0;  ///< of triangles: the stiffer modulus times the thickness
  double mean_modulus_pa = 0;

  bool empty() const { return mask == 0; }
  bool HasVertex(uint32_t vertex) const { return vertex < vertices.size() && vertices[vertex].mass_kg > 0; }
  bool has_thickness() const { return max_half_thickness_m > 0; }
  float HalfThickness(uint32_t vertex) const { return vertex < vertices.size() ? vertices[vertex].half_thickness_m : 0.0F; }
};

/// Of the contacts of a NURBS shell's vertices, as ShellVertex::stiffness_n_per_m; the mass of one is that with which it meets a push.
std::vector<float> NurbsVertexStiffness(const TissueNurbsShell& shell, double dt_s);

/// Precondition: `lists` are those of the model. `slot_count`: of all slots.
ShellLayout LayOutShells(const TissueModel& model, const ShellLists& lists, const IndexedVector<SolverSlot, uint32_t>& original_index,
                         const std::vector<SolverSlot>& solver_index, uint32_t lanes, double dt_s);

}  // namespace palpate::gpu
