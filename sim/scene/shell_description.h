#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <vector>

#include <Eigen/Core>

#include "sim/scene/driven_region.h"

namespace palpate::gpu {
struct NurbsShellModel;
}

namespace palpate::sim {

enum class BendingModel { kDiscreteShells, kQuadratic, kNone };

/// Warp and weft of a St-Venant-Kirchhoff shell; the material has the constants along the warp.
struct OrthotropicProperties {
  Eigen::Vector3d warp{1, 0, 0};           ///< at rest in W, unit
  std::optional<double> weft_modulus_pa;   ///< none: Young's modulus E of the material
  std::optional<double> shear_modulus_pa;  ///< none: E / (2 (1 + nu)) of the material
};

/// What the triangles of a shell, or of a zone of one, are besides their material.
struct ShellProperties {
  double thickness_m = 0.001;
  std::optional<OrthotropicProperties> orthotropic;
  BendingModel bending = BendingModel::kDiscreteShells;
  std::optional<double> bending_stiffness_n_m;                    ///< none: E h^3 / (12 (1 - nu^2))
  double strain_limit = std::numeric_limits<double>::infinity();  ///< stretch minus 1
};

/// Where a zone of a shell differs from the rest of it; what is not given is the shell's.
struct ShellZoneDescription {
  std::optional<double> thickness_m;
  bool is_isotropic = false;  ///< though the shell is not
  std::optional<OrthotropicProperties> orthotropic;
  std::optional<BendingModel> bending;
  std::optional<double> bending_stiffness_n_m;
  std::optional<double> strain_limit;  ///< infinity: none, though the shell has one
};

/// What makes a deformable body a shell; its vertices are those of its mesh, which has no tets. The properties are those outside all zones.
/// docs/algorithms/shells.md.
struct ShellDescription : ShellProperties {
  std::vector<std::array<uint32_t, 3>> triangles;  ///< indices into mesh.vertices; manifold and turned alike
};

/// Control points of a NURBS shell that ride in the tets of a dynamic body, each at constant shares of the four corners.
struct NurbsShellBinding {
  uint32_t body = 0;              ///< place in SceneDescription::bodies
  std::vector<uint32_t> control;  ///< of the shell's model, ascending; not held, and of one binding only
  std::vector<uint32_t> tets;     ///< [control] of that body's mesh, which hold them at rest; empty: see PlaceNurbsBinding
  bool ignores_contact = false;   ///< the surfaces of the two bodies do not meet
};

enum class NurbsSupportKind : uint8_t { kHeld, kDriven, kBound };
inline constexpr std::array<const char*, 3> kNurbsSupportKindNames = {"held", "driven", "bound"};

/// Control points of a NURBS shell that a region holds, whose forces on what holds them frames tell.
struct NurbsShellSupport {
  std::string name;     ///< of the region, or empty
  uint32_t region = 0;  ///< its place among those of the body
  NurbsSupportKind kind = NurbsSupportKind::kHeld;
  uint32_t carrier = 0;           ///< bound ones: place in SceneDescription::bodies
  std::vector<uint32_t> control;  ///< of the shell's model, ascending; of one support only: the first region that has them
};

/// What makes a deformable body with an exact surface a thin shell, whose control points move. docs/algorithms/nurbs_shells.md.
struct NurbsShellDescription {
  double thickness_m = 0.001;
  std::shared_ptr<const gpu::NurbsShellModel> model;  ///< of the body's surface and material, in W
  std::vector<uint32_t> held;                         ///< control points of the model that do not move freely, ascending, unique
  std::vector<DrivenRegion> driven;                   ///< of held ones
  std::vector<NurbsShellBinding> bound;               ///< those that tissue carries
  std::vector<NurbsShellSupport> supports;            ///< held, driven and bound ones whose forces are told

  bool IsBound(uint32_t control_point) const {
    return std::ranges::any_of(
        bound, [=](const NurbsShellBinding& binding) { return std::ranges::binary_search(binding.control, control_point); });
  }
};

}  // namespace palpate::sim
