#include "clients/cli/scene_check.h"

#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "clients/cli/scene_file.h"
#include "clients/cli/size_check.h"
#include "gpu/base/status.h"
#include "sim/scene/asset_resolver.h"
#include "sim/scene/scene_spec.h"
#include "sim/scene/solver_advice.h"
#include "sim/scene/summary.h"

namespace palpate::cli {
namespace {

/// Bodies that the scene's sweeps leave behind, once for each array.
void WarnOfFewSweeps(const std::string& path, const sim::SceneDescription& scene) {
  size_t told = 0;
  for (size_t b = 0; b < scene.bodies.size() && told < 8; ++b) {
    const sim::BodyDescription& body = scene.bodies[b];
    const int sweeps = sim::AdvisedSweeps(scene, b);
    if (sweeps <= scene.solver.iterations) continue;
    if (told > 0 && body.mesh.tets.size() == scene.bodies[b - 1].mesh.tets.size()) continue;
    absl::FPrintF(stderr,
                  "%s: warning: solver.iterations: %d are too few for the size and stiffness of bodies[%d] (%s, %d tets, %g Pa), which "
                  "will lag behind; %d are advised\n",
                  path, scene.solver.iterations, b, body.name, body.mesh.tets.size(), body.material.young_modulus_pa, sweeps);
    ++told;
  }
}

}  // namespace

absl::Status CheckScene(const std::string& path, bool json) {
  PALPATE_ASSIGN_OR_RETURN(const v1::SceneSpec spec, ReadSceneFile(path));
  const scene::SceneFolderResolver assets(std::filesystem::path(path).parent_path());
  absl::StatusOr<sim::SceneDescription> scene = scene::BuildSceneDescription(spec, assets, scene::SceneLimits());
  if (!scene.ok()) return Annotate(scene.status(), path);
  WarnOfFewSweeps(path, *scene);
  WarnOfSizes(path, spec, *scene);
  const v1::CheckSceneResponse built = scene::SummarizeScene(*scene);
  if (json) {
    PrintJson(built);
    return absl::OkStatus();
  }
  absl::PrintF("%s: valid\n", path);
  absl::PrintF("scene      \"%s\", steps of %.6g s, %d solver iterations%s\n", scene->name, scene->dt_s, scene->solver.iterations,
               sim::AreCorrected(*scene) ? " with coarse corrections" : "");
  absl::PrintF("tools      %d%s", scene->tools.size(), scene->tools.empty() ? "" : ":");
  for (const auto& tool : scene->tools) absl::PrintF(" %s", tool.name);
  absl::PrintF("\nobstacles  %d\n", scene->obstacles.size());
  absl::PrintF("memory     about %s on the device\n", FormatBytes(built.device_bytes()));
  absl::PrintF("colours    %d independent sets of vertices in the solver\n\n%s", built.color_count(), BodyTable(built.bodies()).ToString());
  return absl::OkStatus();
}

Table BodyTable(const google::protobuf::RepeatedPtrField<v1::BodyInfo>& bodies) {
  Table table({"body", "vertices", "tets", "surface vertices", "triangles", "fixed", "mass", "volume"});
  const auto figures = [](const v1::BodyInfo& body) {
    return std::vector<std::string>{absl::StrCat(body.vertex_count()),
                                    absl::StrCat(body.tet_count()),
                                    absl::StrCat(body.surface_vertex_count()),
                                    absl::StrCat(body.surface_triangle_count()),
                                    absl::StrCat(body.fixed_vertex_count()),
                                    absl::StrFormat("%.4g kg", body.mass_kg()),
                                    absl::StrFormat("%.4g l", 1000 * body.volume_m3())};
  };
  // The members of an array are alike but for a number in their names: one row tells of all.
  const auto stem = [](const std::string& name) { return name.substr(0, name.find_last_not_of("0123456789") + 1); };
  for (int begin = 0, end = 0; begin < bodies.size(); begin = end) {
    const v1::BodyInfo& first = bodies[begin];
    std::vector<std::string> row = figures(first);
    do ++end;
    while (end < bodies.size() && stem(first.name()) != first.name() && stem(bodies[end].name()) == stem(first.name()) &&
           figures(bodies[end]) == row);
    const int count = end - begin;
    row.insert(row.begin(), count == 1 ? first.name() : absl::StrFormat("%d like %s", count, first.name()));
    table.AddRow(row);
  }
  return table;
}

}  // namespace palpate::cli
