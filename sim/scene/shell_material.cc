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

double ThicknessOfZone(const BodyDescription& body, size_t zone) {
  return zone == 0 ? body.shell->thickness_m : body.zones[zone - 1].shell_thickness_m.value_or(body.shell->thickness_m);
}

absl::StatusOr<gpu::ShellTriangle> ShellTriangleOf(const ShellDescription& shell, const Material& material, double thickness_m) {
  const auto outside = [](const char* field, double value, double low, double high) {
    return absl::InvalidArgumentError(absl::StrCat(field, ": ", value, " is outside [", low, ", ", high, "]"));
  };
  const double h = thickness_m;
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
    weft = shell.orthotropic->weft_modulus_pa;
    shear = shell.orthotropic->shear_modulus_pa;
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
  out.bending_stiffness_n_m = static_cast<float>(bending);
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
  if (body.volume_stiffness_pa != 0) return refuse("volume_stiffness_pa", "a shell cannot keep its volume yet; see loads");
  if (!body.texture.coordinates.empty()) return refuse("texture.coordinates", "a shell has those of the corners of its triangles");
  PALPATE_RETURN_IF_ERROR(ShellTriangleOf(*body.shell, body.material, body.shell->thickness_m).status());
  for (size_t z = 0; z < body.zones.size(); ++z) {
    const absl::Status valid = ShellTriangleOf(*body.shell, body.zones[z].material, ThicknessOfZone(body, z + 1)).status();
    if (!valid.ok()) return Annotate(valid, absl::StrCat("zones[", z, "]"));
  }
  const absl::Status sound = CheckShellSurface({body.mesh.vertices, body.shell->triangles});
  return sound.ok() ? sound : Annotate(sound, "shell");
}

ShellTotals TotalsOfShell(const BodyDescription& body) {
  ShellTotals sum;
  for (size_t t = 0; t < body.shell->triangles.size(); ++t) {
    const auto& [a, b, c] = body.shell->triangles[t];
    const Eigen::Vector3d& o = body.mesh.vertices[a];
    const size_t zone = body.tet_zones.empty() ? 0 : body.tet_zones[t];
    const double area_m2 = (body.mesh.vertices[b] - o).cross(body.mesh.vertices[c] - o).norm() / 2;
    sum.area_m2 += area_m2;
    sum.volume_m3 += area_m2 * ThicknessOfZone(body, zone);
    sum.mass_kg += area_m2 * ThicknessOfZone(body, zone) * MaterialOf(body, zone).density_kg_per_m3;
  }
  return sum;
}

}  // namespace palpate::sim
