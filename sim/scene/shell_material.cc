#include "sim/scene/shell_material.h"

#include <cmath>

#include <Eigen/Geometry>

#include "absl/strings/str_cat.h"
#include "sim/mesh/surface_generators.h"
#include "sim/scene/material.h"

namespace palpate::sim {
namespace {

constexpr double kLeastThickness_m = 1e-5;
constexpr double kMostThickness_m = 0.05;
constexpr double kMostBending_n_m = 1000;
constexpr double kLeastLimit = 0.001;
constexpr double kMostLimit = 1;
constexpr double kLeastRest = 1e-3;  // of 1 - nu_warp nu_weft

}  // namespace

ShellProperties ShellOfZone(const ShellProperties& shell, const ShellZoneDescription& zone) {
  ShellProperties out = shell;
  out.thickness_m = zone.thickness_m.value_or(shell.thickness_m);
  if (zone.is_isotropic) out.orthotropic.reset();
  if (zone.orthotropic) out.orthotropic = zone.orthotropic;
  out.bending = zone.bending.value_or(shell.bending);
  if (zone.bending_stiffness_n_m) out.bending_stiffness_n_m = zone.bending_stiffness_n_m;
  out.strain_limit = zone.strain_limit.value_or(shell.strain_limit);
  return out;
}

ShellProperties ShellOfZone(const BodyDescription& body, size_t zone) {
  return ShellOfZone(*body.shell, zone == 0 ? ShellZoneDescription{} : body.zones[zone - 1].shell);
}

absl::StatusOr<gpu::ShellTriangle> ShellTriangleOf(const ShellProperties& shell, const Material& material) {
  const auto outside = [](const char* field, double value, double low, double high) {
    return absl::InvalidArgumentError(absl::StrCat(field, ": ", value, " is outside [", low, ", ", high, "]"));
  };
  const double h = shell.thickness_m;
  if (!(h >= kLeastThickness_m && h <= kMostThickness_m)) return outside("thickness_m", h, kLeastThickness_m, kMostThickness_m);
  if (material.fibers) return absl::InvalidArgumentError("material.fibers: a shell has none; see orthotropic");
  if (material.model != MaterialModel::kStableNeoHookean && material.model != MaterialModel::kStVenantKirchhoff) {
    return absl::InvalidArgumentError("material.model: a shell is stable neo-Hookean or St-Venant-Kirchhoff");
  }
  const double e = material.young_modulus_pa;
  const double nu = material.poisson_ratio;
  gpu::ShellTriangle out;
  out.thickness_m = static_cast<float>(h);
  out.density_kg_per_m3 = static_cast<float>(material.density_kg_per_m3);
  out.damping_s = static_cast<float>(material.damping_s);
  out.mass_damping_per_s = static_cast<float>(material.mass_damping_per_s);
  out.membrane =
      material.model == MaterialModel::kStVenantKirchhoff ? gpu::ShellMembrane::kStVenantKirchhoff : gpu::ShellMembrane::kStableNeoHookean;
  double weft = e;
  double shear = e / (2 * (1 + nu));
  if (shell.orthotropic) {
    if (out.membrane != gpu::ShellMembrane::kStVenantKirchhoff) {
      return absl::InvalidArgumentError("orthotropic: needs material.model St-Venant-Kirchhoff");
    }
    weft = shell.orthotropic->weft_modulus_pa.value_or(weft);
    shear = shell.orthotropic->shear_modulus_pa.value_or(shear);
    if (!(weft > 0 && std::isfinite(weft)))
      return absl::InvalidArgumentError(absl::StrCat("orthotropic.weft_modulus_pa: ", weft, " is not positive"));
    if (!(shear > 0 && std::isfinite(shear)))
      return absl::InvalidArgumentError(absl::StrCat("orthotropic.shear_modulus_pa: ", shear, " is not positive"));
    for (int axis = 0; axis < 3; ++axis) out.warp[static_cast<size_t>(axis)] = static_cast<float>(shell.orthotropic->warp[axis]);
  }
  const double rest = 1 - nu * nu * weft / e;
  if (!(rest >= kLeastRest)) {
    return absl::InvalidArgumentError(absl::StrCat("orthotropic.weft_modulus_pa: ", weft, " leaves 1 - nu^2 E_weft / E_warp = ", rest,
                                                   ", below ", kLeastRest, ": the sheet would not resist every stretch"));
  }
  out.moduli_pa = {static_cast<float>(e / rest), static_cast<float>(nu * weft / rest), static_cast<float>(weft / rest),
                   static_cast<float>(shear)};
  out.bending = shell.bending == BendingModel::kDiscreteShells ? gpu::ShellBending::kDiscreteShells
                : shell.bending == BendingModel::kQuadratic    ? gpu::ShellBending::kQuadratic
                                                               : gpu::ShellBending::kNone;
  const double bending = shell.bending_stiffness_n_m.value_or(e * h * h * h / (12 * (1 - nu * nu)));
  if (!(bending >= 0 && bending <= kMostBending_n_m) && shell.bending_stiffness_n_m) {
    return outside("bending_stiffness_n_m", bending, 0, kMostBending_n_m);
  }
  out.bending_stiffness_n_m = shell.bending == BendingModel::kNone ? 0 : static_cast<float>(bending);
  if (std::isinf(shell.strain_limit)) return out;
  if (!(shell.strain_limit >= kLeastLimit && shell.strain_limit <= kMostLimit)) {
    return outside("strain_limit", shell.strain_limit, kLeastLimit, kMostLimit);
  }
  out.strain_limit = static_cast<float>(shell.strain_limit);
  return out;
}

absl::Status CheckShell(const BodyDescription& body) {
  const auto refuse = [](const char* field, const char* what) { return absl::InvalidArgumentError(absl::StrCat(field, ": ", what)); };
  if (body.kind != BodyKind::kDeformable) return refuse("kind", "a shell is deformable");
  if (body.simulation != Simulation::kDynamic) return refuse("simulation", "a shell is dynamic");
  if (body.nurbs != nullptr || !body.mesh.tets.empty()) return refuse("mesh", "a shell has the vertices of its triangles, and no tets");
  if (!body.tet_zones.empty() && body.tet_zones.size() != body.shell->triangles.size()) {
    return refuse("tet_zones", "not one for each triangle of the shell");
  }
  if (!body.texture.coordinates.empty()) return refuse("texture.coordinates", "a shell has those of the corners of its triangles");
  PALPATE_RETURN_IF_ERROR(ShellTriangleOf(*body.shell, body.material).status());
  for (size_t z = 0; z < body.zones.size(); ++z) {
    const absl::Status valid = ShellTriangleOf(ShellOfZone(body, z + 1), body.zones[z].material).status();
    if (!valid.ok()) return Annotate(valid, absl::StrCat("zones[", z, "]"));
  }
  const absl::Status sound = CheckShellSurface({body.mesh.vertices, body.shell->triangles});
  if (!sound.ok()) return Annotate(sound, "shell");
  if (body.volume_stiffness_pa == 0) return absl::OkStatus();
  return Annotate(CheckEnclosesVolume({body.mesh.vertices, body.shell->triangles}), "volume_stiffness_pa");
}

ShellTotals TotalsOfShell(const BodyDescription& body) {
  ShellTotals sum;
  for (size_t t = 0; t < body.shell->triangles.size(); ++t) {
    const auto& [a, b, c] = body.shell->triangles[t];
    const Eigen::Vector3d& o = body.mesh.vertices[a];
    const size_t zone = body.tet_zones.empty() ? 0 : body.tet_zones[t];
    const double area_m2 = (body.mesh.vertices[b] - o).cross(body.mesh.vertices[c] - o).norm() / 2;
    sum.area_m2 += area_m2;
    const double volume_m3 = area_m2 * ShellOfZone(body, zone).thickness_m;
    sum.volume_m3 += volume_m3;
    sum.mass_kg += volume_m3 * MaterialOf(body, zone).density_kg_per_m3;
  }
  return sum;
}

}  // namespace palpate::sim
