#include "clients/cli/scene_check.h"

#include <filesystem>

#include "absl/strings/str_format.h"
#include "clients/cli/scene_file.h"
#include "gpu/base/status.h"
#include "server/api/asset_resolver.h"
#include "server/api/scene_spec.h"
#include "sim/mesh/tet_mesh.h"

namespace palpate::cli {
namespace {

v1::BodyInfo Describe(const sim::BodyDescription& body) {
  v1::BodyInfo info;
  const sim::BoundarySurface surface = sim::ExtractBoundary(body.mesh);
  double volume_m3 = 0;
  for (size_t t = 0; t < body.mesh.tets.size(); ++t) volume_m3 += sim::TetVolume(body.mesh, t);
  info.set_name(body.name);
  info.set_vertex_count(static_cast<uint32_t>(body.mesh.vertices.size()));
  info.set_tet_count(static_cast<uint32_t>(body.mesh.tets.size()));
  info.set_surface_vertex_count(static_cast<uint32_t>(surface.vertices.size()));
  info.set_surface_triangle_count(static_cast<uint32_t>(surface.triangles.size()));
  info.set_fixed_vertex_count(static_cast<uint32_t>(body.fixed_vertices.size()));
  info.set_volume_m3(volume_m3);
  info.set_mass_kg(volume_m3 * body.material.density_kg_per_m3);
  return info;
}

}  // namespace

absl::Status CheckScene(const std::string& path, bool json) {
  PALPATE_ASSIGN_OR_RETURN(const v1::SceneSpec spec, ReadSceneFile(path));
  const server::SceneFolderResolver assets(std::filesystem::path(path).parent_path());
  absl::StatusOr<sim::SceneDescription> scene = server::BuildSceneDescription(spec, assets, server::SceneLimits());
  if (!scene.ok()) return Annotate(scene.status(), path);
  v1::CheckSceneResponse built;
  for (const auto& body : scene->bodies) *built.add_bodies() = Describe(body);
  if (json) {
    PrintJson(built);
    return absl::OkStatus();
  }
  absl::PrintF("%s: valid\n", path);
  absl::PrintF("scene      \"%s\", steps of %.6g s, %d solver iterations\n", scene->name, scene->dt_s, scene->solver.iterations);
  absl::PrintF("tools      %d%s", scene->tools.size(), scene->tools.empty() ? "" : ":");
  for (const auto& tool : scene->tools) absl::PrintF(" %s", tool.name);
  absl::PrintF("\nobstacles  %d\n\n%s", scene->obstacles.size(), BodyTable(built.bodies()).ToString());
  return absl::OkStatus();
}

Table BodyTable(const google::protobuf::RepeatedPtrField<v1::BodyInfo>& bodies) {
  Table table({"body", "vertices", "tets", "surface vertices", "triangles", "fixed", "mass", "volume"});
  for (const auto& body : bodies) {
    table.AddRow({body.name(), absl::StrCat(body.vertex_count()), absl::StrCat(body.tet_count()), absl::StrCat(body.surface_vertex_count()),
                  absl::StrCat(body.surface_triangle_count()), absl::StrCat(body.fixed_vertex_count()),
                  absl::StrFormat("%.4g kg", body.mass_kg()), absl::StrFormat("%.4g l", 1000 * body.volume_m3())});
  }
  return table;
}

}  // namespace palpate::cli
