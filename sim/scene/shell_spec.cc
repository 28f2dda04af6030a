#include "sim/scene/shell_spec.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gpu/base/status.h"
#include "sim/mesh/mesh_io.h"
#include "sim/mesh/surface_generators.h"
#include "sim/scene/material_spec.h"
#include "sim/scene/shell_material.h"

namespace palpate::scene {
namespace {

double Or(bool has, double value, double fallback) { return has ? value : fallback; }

constexpr double kFigureHeight_m = 1.7;
constexpr double kDressGap_m = 0.008;
// Areas over height squared, for a first estimate.
constexpr double kFigureAreaPerHeightSq = 0.6;
constexpr double kDressAreaPerHeightSq = 0.6;

/// Sizes of a generated surface with their defaults.
struct Generated {
  double first_m = 0, second_m = 0;  // as the generator takes them
  double extent_m = 0, area_m2 = 0;
  double default_edges = sim::kDefaultEdgesPerSurface, least_edges = 1;  // per extent
};
Generated GeneratedFrom(const v1::ShellSpec& shell) {
  switch (shell.surface_case()) {
    case v1::ShellSpec::kSheet: {
      const double length_m = Or(shell.sheet().has_length_m(), shell.sheet().length_m(), 0.2);
      const double width_m = Or(shell.sheet().has_width_m(), shell.sheet().width_m(), 0.2);
      return {length_m, width_m, std::max(length_m, width_m), length_m * width_m};
    }
    case v1::ShellSpec::kDisc: {
      const double r = Or(shell.disc().has_radius_m(), shell.disc().radius_m(), 0.1);
      return {r, 0, 2 * r, std::numbers::pi * r * r};
    }
    case v1::ShellSpec::kTube: {
      const double r = Or(shell.tube().has_radius_m(), shell.tube().radius_m(), 0.02);
      const double length_m = Or(shell.tube().has_length_m(), shell.tube().length_m(), 0.1);
      return {r, length_m, std::max(length_m, 2 * r), 2 * std::numbers::pi * r * length_m};
    }
    case v1::ShellSpec::kSphere: {
      const double r = Or(shell.sphere().has_radius_m(), shell.sphere().radius_m(), 0.05);
      return {r, 0, 2 * r, 4 * std::numbers::pi * r * r};
    }
    case v1::ShellSpec::kFigure: {
      const double height_m = Or(shell.figure().has_height_m(), shell.figure().height_m(), kFigureHeight_m);
      return {height_m, 0, height_m, kFigureAreaPerHeightSq * height_m * height_m, sim::kDefaultEdgesPerFigure, sim::kMinEdgesPerFigure};
    }
    case v1::ShellSpec::kDress: {
      const v1::DressSurface& dress = shell.dress();
      const double height_m = Or(dress.has_figure_height_m(), dress.figure_height_m(), kFigureHeight_m);
      const double gap_m = Or(dress.has_gap_m(), dress.gap_m(), kDressGap_m);
      return {height_m, gap_m, height_m, kDressAreaPerHeightSq * height_m * height_m, sim::kDefaultEdgesPerFigure, sim::kMinEdgesPerFigure};
    }
    default:
      return {};
  }
}

/// Those that a shell of the size of a scene's smallest may have and the largest.
void CheckSizes(Checker& check, const std::string& path, const v1::ShellSpec& shell) {
  const Generated g = GeneratedFrom(shell);
  switch (shell.surface_case()) {
    case v1::ShellSpec::kSheet:
      check.Range(At(path, "sheet.length_m"), g.first_m, 0.001, 10);
      check.Range(At(path, "sheet.width_m"), g.second_m, 0.001, 10);
      break;
    case v1::ShellSpec::kDisc:
      check.Range(At(path, "disc.radius_m"), g.first_m, 0.001, 5);
      break;
    case v1::ShellSpec::kTube:
      check.Range(At(path, "tube.radius_m"), g.first_m, 0.001, 5);
      check.Range(At(path, "tube.length_m"), g.second_m, 0.001, 10);
      break;
    case v1::ShellSpec::kSphere:
      check.Range(At(path, "sphere.radius_m"), g.first_m, 0.001, 5);
      break;
    case v1::ShellSpec::kFigure:
      check.Range(At(path, "figure.height_m"), g.first_m, 0.1, 3);
      break;
    case v1::ShellSpec::kDress:
      check.Range(At(path, "dress.figure_height_m"), g.first_m, 0.1, 3);
      check.Range(At(path, "dress.gap_m"), g.second_m, 0.002, 0.015);
      break;
    default:
      if (shell.has_edge_length_m()) check.Invalid(At(path, "edge_length_m"), "only a generated surface has it");
      break;
  }
  if (!check.ok() || !shell.has_edge_length_m()) return;
  check.Range(At(path, "edge_length_m"), shell.edge_length_m(), g.extent_m / sim::kMaxEdgesPerSurface, g.extent_m / g.least_edges);
}

void CheckTriangleCount(Checker& check, const std::string& path, double triangles, const SceneLimits& limits) {
  if (triangles <= static_cast<double>(limits.max_tets_per_scene)) return;
  check.Fail(absl::ResourceExhaustedError(absl::StrCat(path, ": ", static_cast<uint64_t>(triangles),
                                                       " triangles exceed the limit max_tets_per_scene = ", limits.max_tets_per_scene)));
}

void CheckTriangleData(Checker& check, const std::string& path, const v1::TriangleMeshData& mesh, const SceneLimits& limits) {
  if (mesh.vertices_m_size() % 3 != 0) {
    check.Invalid(At(path, "vertices_m"), absl::StrCat(mesh.vertices_m_size(), " numbers are not a multiple of 3"));
  }
  if (mesh.triangles_size() % 3 != 0 || mesh.triangles_size() == 0) {
    check.Invalid(At(path, "triangles"), absl::StrCat(mesh.triangles_size(), " numbers are not a multiple of 3 above 0"));
  }
  CheckTriangleCount(check, At(path, "triangles"), mesh.triangles_size() / 3.0, limits);
  if (mesh.vertices_m_size() > 3 * mesh.triangles_size()) {
    check.Invalid(At(path, "vertices_m"),
                  absl::StrCat(mesh.vertices_m_size() / 3, " vertices cannot all belong to ", mesh.triangles_size() / 3, " triangles"));
  }
  if (!check.ok()) return;
  for (int i = 0; i < mesh.vertices_m_size() && check.ok(); ++i) {
    if (!(std::abs(mesh.vertices_m(i)) <= kMaxMeshCoordinate)) {
      check.Range(At(At(path, "vertices_m"), i), mesh.vertices_m(i), -kMaxMeshCoordinate, kMaxMeshCoordinate);
    }
  }
  const auto vertex_count = static_cast<uint32_t>(mesh.vertices_m_size() / 3);
  for (int i = 0; i < mesh.triangles_size() && check.ok(); ++i) {
    if (mesh.triangles(i) >= vertex_count) {
      check.Invalid(At(At(path, "triangles"), i), absl::StrCat(mesh.triangles(i), " is outside [0, ", vertex_count - 1, "]"));
    }
  }
}

sim::SurfaceMesh SurfaceFrom(const v1::TriangleMeshData& data) {
  sim::SurfaceMesh out;
  for (int i = 0; i + 2 < data.vertices_m_size(); i += 3) {
    out.vertices.emplace_back(data.vertices_m(i), data.vertices_m(i + 1), data.vertices_m(i + 2));
  }
  for (int i = 0; i + 2 < data.triangles_size(); i += 3) {
    out.triangles.push_back({data.triangles(i), data.triangles(i + 1), data.triangles(i + 2)});
  }
  return out;
}

void CheckOrthotropic(Checker& check, const std::string& path, const v1::OrthotropicSpec& cloth) {
  check.RangeVec(At(path, "warp_direction"), cloth.warp_direction(), -kMaxMeshCoordinate, kMaxMeshCoordinate);
  if (check.ok() && ToEigen(cloth.warp_direction()).isZero(0)) check.Invalid(At(path, "warp_direction"), "is zero");
  if (cloth.has_weft_modulus_pa()) check.Range(At(path, "weft_modulus_pa"), cloth.weft_modulus_pa(), 10, 1e9);
  if (cloth.has_shear_modulus_pa()) check.Range(At(path, "shear_modulus_pa"), cloth.shear_modulus_pa(), 1, 1e9);
}

/// Of a shell, or where a zone of one differs: they name these fields alike.
template <typename Spec>
void CheckProperties(Checker& check, const std::string& path, const Spec& spec) {
  if (!v1::BendingModel_IsValid(spec.bending())) {
    check.Invalid(At(path, "bending"), absl::StrCat(static_cast<int>(spec.bending()), " is outside [0, 3]"));
  }
  if (spec.has_bending_stiffness_n_m() && spec.bending() == v1::BENDING_MODEL_NONE) {
    check.Invalid(At(path, "bending_stiffness_n_m"), "nothing resists bending: see bending");
  }
  if (spec.has_strain_limit()) check.Range(At(path, "strain_limit"), spec.strain_limit(), 0.001, 1);
  if (spec.has_orthotropic()) CheckOrthotropic(check, At(path, "orthotropic"), spec.orthotropic());
}

/// What of a zone only a shell has, or has not.
void CheckZone(Checker& check, const std::string& path, const v1::ZoneSpec& zone, const v1::ShellSpec& of) {
  if (zone.has_mesh_group()) check.Invalid(At(path, "mesh_group"), "a shell has no groups; see box, ball");
  const v1::ShellZoneSpec& shell = zone.shell();
  const std::string shell_path = At(path, "shell");
  CheckProperties(check, shell_path, shell);
  if (shell.isotropic() && shell.has_orthotropic()) check.Invalid(At(shell_path, "isotropic"), "the zone has orthotropic too");
  if (shell.no_strain_limit() && shell.has_strain_limit()) {
    check.Invalid(At(shell_path, "no_strain_limit"), "the zone has strain_limit too");
  }
  if (shell.has_bending_stiffness_n_m() && shell.bending() == v1::BENDING_MODEL_UNSPECIFIED && of.bending() == v1::BENDING_MODEL_NONE) {
    check.Invalid(At(shell_path, "bending_stiffness_n_m"), "nothing resists bending: see bending");
  }
}

sim::BendingModel BendingFrom(v1::BendingModel bending) {
  return bending == v1::BENDING_MODEL_QUADRATIC ? sim::BendingModel::kQuadratic
         : bending == v1::BENDING_MODEL_NONE    ? sim::BendingModel::kNone
                                                : sim::BendingModel::kDiscreteShells;
}

sim::OrthotropicProperties OrthotropicFrom(const v1::OrthotropicSpec& cloth, const Eigen::Quaterniond& turn) {
  sim::OrthotropicProperties out;
  out.warp = turn * Direction(ToEigen(cloth.warp_direction()));
  if (cloth.has_weft_modulus_pa()) out.weft_modulus_pa = cloth.weft_modulus_pa();
  if (cloth.has_shear_modulus_pa()) out.shear_modulus_pa = cloth.shear_modulus_pa();
  return out;
}

/// What only bodies without a thickness have.
void CheckRest(Checker& check, const std::string& path, const v1::BodySpec& body) {
  const auto refuse = [&](const char* field, const char* what) { check.Invalid(At(path, field), what); };
  if (body.kind() == v1::BODY_KIND_RIGID || body.kind() == v1::BODY_KIND_STATIC) refuse("kind", "a shell is deformable");
  if (body.simulation() != v1::SIMULATION_UNSPECIFIED && body.simulation() != v1::SIMULATION_DYNAMIC) {
    refuse("simulation", "a shell is SIMULATION_DYNAMIC");
  }
}

}  // namespace

void CheckShell(Checker& check, const std::string& path, const v1::BodySpec& body, const SceneLimits& limits) {
  const v1::ShellSpec& shell = body.shell();
  const std::string spec_path = At(path, "shell");
  CheckRest(check, path, body);
  switch (shell.surface_case()) {
    case v1::ShellSpec::SURFACE_NOT_SET:
      check.Invalid(spec_path, "no surface is given; one of mesh_file, mesh, sheet, disc, tube, sphere, figure, dress is needed");
      break;
    case v1::ShellSpec::kMeshFile:
      if (shell.mesh_file().empty()) check.Invalid(At(spec_path, "mesh_file"), "the file name is empty");
      break;
    case v1::ShellSpec::kMesh:
      CheckTriangleData(check, At(spec_path, "mesh"), shell.mesh(), limits);
      break;
    default:
      break;
  }
  CheckSizes(check, spec_path, shell);
  CheckProperties(check, spec_path, shell);
  for (int z = 0; z < body.zones_size() && check.ok(); ++z) CheckZone(check, At(At(path, "zones"), z), body.zones(z), shell);
  if (!check.ok()) return;
  // What is left is checked once, for callers without a spec too. A field of the shell's is named as such.
  const sim::ShellDescription described = ShellFrom(body, Eigen::Quaterniond::Identity());
  const auto look_at = [&](const v1::MaterialSpec& spec, const sim::ShellProperties& properties, const std::string& of,
                           const std::string& of_shell) {
    const sim::Material material = MaterialFrom(spec, Eigen::Quaterniond::Identity());
    const absl::Status valid = sim::ShellTriangleOf(properties, material).status();
    if (valid.ok()) return;
    const std::string message(valid.message());
    // A zone has its thickness beside its other properties.
    const bool is_of_body = message.starts_with("material.") || (of != path && message.starts_with("thickness_m"));
    check.Fail(absl::Status(valid.code(), absl::StrCat(is_of_body ? of : of_shell, ".", message)));
  };
  look_at(body.material(), described, path, spec_path);
  for (int z = 0; z < body.zones_size() && check.ok(); ++z) {
    const v1::ZoneSpec& zone = body.zones(z);
    const std::string zone_path = At(At(path, "zones"), z);
    look_at(zone.has_material() ? zone.material() : body.material(),
            sim::ShellOfZone(described, ShellZoneFrom(zone, Eigen::Quaterniond::Identity())), zone_path, At(zone_path, "shell"));
  }
  if (!check.ok() || shell.has_mesh() || shell.has_mesh_file()) return;
  // Regular triangles of the edge length; a factor of two for what does not fit.
  const Generated g = GeneratedFrom(shell);
  const double edge_m = Or(shell.has_edge_length_m(), shell.edge_length_m(), g.extent_m / g.default_edges);
  CheckTriangleCount(check, At(spec_path, "edge_length_m"), g.area_m2 / (edge_m * edge_m), limits);
}

absl::StatusOr<sim::FigureSurface> LoadShellSurface(const v1::BodySpec& body, const std::string& path, const AssetResolver& assets) {
  const v1::ShellSpec& shell = body.shell();
  const std::string spec_path = At(path, "shell");
  const double edge_m = shell.edge_length_m();
  const Generated g = GeneratedFrom(shell);
  absl::StatusOr<sim::SurfaceMesh> surface = absl::InternalError("shell without a surface passed validation");
  sim::FigureSurface out;
  std::string field = spec_path;
  std::string name;
  switch (shell.surface_case()) {
    case v1::ShellSpec::kMeshFile: {
      field = At(spec_path, "mesh_file");
      absl::StatusOr<std::filesystem::path> file = assets.Resolve(shell.mesh_file());
      if (!file.ok()) return Annotate(file.status(), field);
      surface = sim::ReadSurfaceMesh(*file);
      name = absl::StrCat("\"", shell.mesh_file(), "\": ");
      break;
    }
    case v1::ShellSpec::kMesh:
      field = At(spec_path, "mesh");
      surface = SurfaceFrom(shell.mesh());
      break;
    case v1::ShellSpec::kSheet:
      surface = sim::GenerateSheetSurface(g.first_m, g.second_m, edge_m);
      break;
    case v1::ShellSpec::kDisc:
      surface = sim::GenerateDiscSurface(g.first_m, edge_m);
      break;
    case v1::ShellSpec::kTube:
      surface = sim::GenerateTubeSurface(g.first_m, g.second_m, edge_m);
      break;
    case v1::ShellSpec::kSphere:
      surface = sim::GenerateSphereSurface(g.first_m, edge_m);
      break;
    case v1::ShellSpec::kFigure: {
      absl::StatusOr<sim::FigureSurface> figure = sim::GenerateFigureSurface(g.first_m, edge_m);
      surface = figure.ok() ? absl::StatusOr<sim::SurfaceMesh>(std::move(figure->surface)) : figure.status();
      if (figure.ok()) out = *std::move(figure);
      break;
    }
    case v1::ShellSpec::kDress:
      surface = sim::GenerateDressSurface(g.first_m, g.second_m, edge_m);
      break;
    case v1::ShellSpec::SURFACE_NOT_SET:
      break;
  }
  if (!surface.ok()) {
    return absl::Status(surface.status().code(), absl::StrCat(field, ": ", assets.Redact(std::string(surface.status().message()))));
  }
  if (const absl::Status sound = sim::CheckShellSurface(*surface); !sound.ok()) {
    return absl::Status(sound.code(), absl::StrCat(field, ": ", name, std::string(sound.message())));
  }
  out.surface = *std::move(surface);
  return out;
}

sim::ShellDescription ShellFrom(const v1::BodySpec& body, const Eigen::Quaterniond& turn) {
  const v1::ShellSpec& shell = body.shell();
  sim::ShellDescription out;
  out.thickness_m = Or(shell.has_thickness_m(), shell.thickness_m(), out.thickness_m);
  if (shell.has_orthotropic()) out.orthotropic = OrthotropicFrom(shell.orthotropic(), turn);
  out.bending = BendingFrom(shell.bending());
  if (shell.has_bending_stiffness_n_m()) out.bending_stiffness_n_m = shell.bending_stiffness_n_m();
  if (shell.has_strain_limit()) out.strain_limit = shell.strain_limit();
  return out;
}

sim::ShellZoneDescription ShellZoneFrom(const v1::ZoneSpec& zone, const Eigen::Quaterniond& turn) {
  const v1::ShellZoneSpec& shell = zone.shell();
  sim::ShellZoneDescription out;
  if (zone.has_thickness_m()) out.thickness_m = zone.thickness_m();
  out.is_isotropic = shell.isotropic();
  if (shell.has_orthotropic()) out.orthotropic = OrthotropicFrom(shell.orthotropic(), turn);
  if (shell.bending() != v1::BENDING_MODEL_UNSPECIFIED) out.bending = BendingFrom(shell.bending());
  if (shell.has_bending_stiffness_n_m()) out.bending_stiffness_n_m = shell.bending_stiffness_n_m();
  if (shell.has_strain_limit()) out.strain_limit = shell.strain_limit();
  if (shell.no_strain_limit()) out.strain_limit = std::numeric_limits<double>::infinity();
  return out;
}

void SetInlineSurface(const sim::SurfaceMesh& surface, v1::ShellSpec& shell) {
  v1::TriangleMeshData& data = *shell.mutable_mesh();
  data.mutable_vertices_m()->Reserve(static_cast<int>(3 * surface.vertices.size()));
  for (const auto& vertex : surface.vertices) {
    for (int axis = 0; axis < 3; ++axis) data.add_vertices_m(vertex[axis]);
  }
  data.mutable_triangles()->Reserve(static_cast<int>(3 * surface.triangles.size()));
  for (const auto& triangle : surface.triangles) {
    for (const uint32_t v : triangle) data.add_triangles(v);
  }
}

}  // namespace palpate::scene
