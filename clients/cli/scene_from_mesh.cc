#include "clients/cli/scene_from_mesh.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <set>
#include <utility>

#include <Eigen/Geometry>
#include <nlohmann/json.hpp>

#include "absl/strings/ascii.h"
#include "absl/strings/str_format.h"
#include "clients/cli/console.h"
#include "clients/cli/scene_file.h"
#include "clients/cli/size_check.h"
#include "gpu/base/status.h"
#include "sim/mesh/signed_distance.h"
#include "sim/mesh/tet_mesh.h"
#include "sim/scene/asset_resolver.h"
#include "sim/scene/scene_spec.h"

namespace palpate::cli {
namespace {

namespace fs = std::filesystem;
using Eigen::Vector3d;
using Json = nlohmann::ordered_json;

constexpr double kFixedShare = 0.1;      // of the height
constexpr double kMostFixedShare = 0.5;  // what is held by more than its lower half cannot be probed
constexpr int kLeastFixed = 4;           // vertices; fewer could let the organ turn
constexpr double kGap_m = 0.02;          // between organ and probe

Json ToJson(const Vector3d& v) { return {{"x", v.x()}, {"y", v.y()}, {"z", v.z()}}; }

template <typename Mesh>
Eigen::AlignedBox3d BoundsOf(const Mesh& mesh) {
  Eigen::AlignedBox3d bounds;
  for (const Vector3d& vertex : mesh.vertices) bounds.extend(vertex);
  return bounds;
}

/// The factor to metres, and why it is not 1.
struct Scaling {
  double factor = 1;
  std::string why;
};

Scaling ScaleOf(const FromMeshOptions& options, double extent) {
  if (options.scale > 0) return {options.scale, ""};
  const auto guess = GuessUnit(extent);
  if (!guess) return {};
  return {guess->scale, absl::StrFormat("its largest extent is %.4g: taken for %s (--scale %g); another unit needs another --scale", extent,
                                        guess->unit, guess->scale)};
}

double VolumeOf(const sim::SurfaceMesh& surface) {
  double volume = 0;
  for (const auto& [a, b, c] : surface.triangles) volume += surface.vertices[a].dot(surface.vertices[b].cross(surface.vertices[c])) / 6;
  return volume;
}

absl::StatusOr<sim::TetMesh> Fill(const FromMeshOptions& options, const sim::SurfaceMesh& surface) {
  const double volume_m3 = VolumeOf(surface);
  sim::StuffingOptions stuffing;
  // 12 tets fill a cube of the lattice. A surface that encloses nothing is refused by the mesher, by name.
  stuffing.edge_length_m = volume_m3 > 0 ? std::cbrt(12 * volume_m3 / options.tets) : BoundsOf(surface).diagonal().norm() / 10;
  InstallInterruptHandler();
  ProgressBar bar("meshing");
  stuffing.progress = [&bar](double fraction) {
    bar.Update(fraction);
    return !g_interrupted.load();
  };
  return sim::MeshSurface(surface, stuffing, options.max_self_intersections);
}

/// Reads and, where it is a surface, fills the input; in metres.
absl::StatusOr<sim::TetMesh> ReadBody(const FromMeshOptions& options, Scaling* scaling) {
  const std::string extension = absl::AsciiStrToLower(fs::path(options.input).extension().string());
  const bool may_be_volume = extension == ".msh" || extension == ".vtk" || extension == ".node" || extension == ".ele";
  absl::StatusOr<sim::TetMesh> volume = absl::NotFoundError("no volume");
  if (may_be_volume) volume = sim::ReadTetMesh(options.input, options.read);
  if (volume.ok()) {
    *scaling = ScaleOf(options, BoundsOf(*volume).sizes().maxCoeff());
    for (Vector3d& vertex : volume->vertices) vertex *= scaling->factor;
    return volume;
  }
  absl::StatusOr<sim::SurfaceMesh> surface = sim::ReadSurfaceMesh(options.input);
  // A broken volume is told as such, also where surfaces have the same extension.
  if (!surface.ok()) return may_be_volume ? volume.status() : surface.status();
  *scaling = ScaleOf(options, BoundsOf(*surface).sizes().maxCoeff());
  for (Vector3d& vertex : surface->vertices) vertex *= scaling->factor;
  volume = Fill(options, *surface);
  if (!volume.ok()) return Annotate(volume.status(), options.input);
  return volume;
}

/// The height below which the organ is fixed: its lowest tenth, or more until enough vertices are.
double FixedHeight(const sim::TetMesh& mesh, double height_m) {
  double share = kFixedShare;
  const auto count = [&] {
    return std::count_if(mesh.vertices.begin(), mesh.vertices.end(), [&](const Vector3d& v) { return v.z() <= share * height_m; });
  };
  while (count() < kLeastFixed && share < kMostFixedShare) share += 0.05;
  return share * height_m;
}

/// A zone for each named group of the mesh that has tets, with a material of its own to change and a colour that shows where it is cut.
Json ZonesOf(const sim::TetMesh& mesh, const Json& material) {
  constexpr std::array<std::array<double, 3>, 6> kColors = {
      {{0.72, 0.35, 0.3}, {0.85, 0.75, 0.45}, {0.35, 0.45, 0.7}, {0.45, 0.65, 0.4}, {0.7, 0.45, 0.65}, {0.4, 0.65, 0.65}}};
  Json zones = Json::array();
  std::set<std::string> names;
  for (const sim::MeshGroup& group : mesh.groups) {
    if (zones.size() == scene::kMaxZones) break;
    if (std::find(mesh.tet_groups.begin(), mesh.tet_groups.end(), group.number) == mesh.tet_groups.end()) continue;
    if (group.name.empty() || group.name.size() > scene::kMaxNameBytes || !names.insert(group.name).second) continue;
    const auto& color = kColors[zones.size() % kColors.size()];
    zones.push_back({{"name", group.name},
                     {"mesh_group", group.name},
                     {"material", material},
                     {"interior_color", {{"r", color[0]}, {"g", color[1]}, {"b", color[2]}}}});
  }
  return zones;
}

Json SceneOf(const FromMeshOptions& options, const std::string& name, const std::string& mesh_file, const sim::TetMesh& mesh) {
  const Eigen::AlignedBox3d bounds_m = BoundsOf(mesh);
  const double extent_m = bounds_m.sizes().maxCoeff();
  const double fixed_m = FixedHeight(mesh, bounds_m.max().z());
  const double around_m = 0.01 * extent_m;
  const double radius_m = std::clamp(extent_m / 20, 0.0005, 0.005);
  const auto top = std::max_element(mesh.vertices.begin(), mesh.vertices.end(), [](const auto& a, const auto& b) { return a.z() < b.z(); });
  Json lowest = {{"min_m", ToJson(bounds_m.min() - Vector3d::Constant(around_m))},
                 {"max_m", ToJson(Vector3d(bounds_m.max().x() + around_m, bounds_m.max().y() + around_m, fixed_m))}};
  const Json material = {{"model", "MATERIAL_MODEL_STABLE_NEO_HOOKEAN"},
                         {"young_modulus_pa", options.young_modulus_pa},
                         {"poisson_ratio", 0.45},
                         {"density_kg_per_m3", 1060},
                         {"damping_s", 0.005}};
  Json body = {{"name", name},
               {"mesh_file", mesh_file},
               {"material", material},
               {"fixed", Json::array({Json{{"box", std::move(lowest)}}})},
               {"color", {{"r", 0.46}, {"g", 0.12}, {"b", 0.09}}}};
  if (Json zones = ZonesOf(mesh, material); !zones.empty()) body["zones"] = std::move(zones);
  Json tool = {{"name", "probe"},
               {"radius_m", radius_m},
               {"length_m", 0.2},
               {"rest_pose", {{"position_m", ToJson(Vector3d(top->x(), top->y(), top->z() + radius_m + kGap_m))}}},
               {"drive", "TOOL_DRIVE_COUPLED"},
               {"mass_kg", 0.05},
               {"coupling_stiffness_n_per_m", 500}};
  return {{"name", absl::StrFormat("%s under a probe", name)},
          {"dt_s", 1.0 / 120},
          {"contact", {{"margin_m", std::min(0.001, extent_m / 100)}, {"friction", 0.1}}},
          {"bodies", Json::array({std::move(body)})},
          {"tools", Json::array({std::move(tool)})},
          {"haptics", {{"max_constraints", 16}, {"range_m", 0.01}}}};
}

}  // namespace

absl::Status MakeSceneFromMesh(const FromMeshOptions& options, bool json) {
  const fs::path input(options.input);
  const fs::path output = options.output.empty() ? fs::path(input.stem()).concat(".json") : fs::path(options.output);
  if (output.extension() != ".json") {
    return absl::InvalidArgumentError(absl::StrFormat("%s: the scene file must end in .json", output.string()));
  }
  const fs::path mesh_path = fs::path(output).replace_extension(".msh");
  std::error_code ignored;
  if (fs::equivalent(mesh_path, input, ignored)) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "%s: the scene's mesh would replace the file it is made of; give the scene another name with --output", mesh_path.string()));
  }
  for (const fs::path& path : {output, mesh_path}) PALPATE_RETURN_IF_ERROR(CheckWritable(path.string()));

  Scaling scaling;
  PALPATE_ASSIGN_OR_RETURN(sim::TetMesh mesh, ReadBody(options, &scaling));
  const Eigen::AlignedBox3d bounds_m = BoundsOf(mesh);
  const Vector3d origin_m(bounds_m.center().x(), bounds_m.center().y(), bounds_m.min().z());
  for (Vector3d& vertex : mesh.vertices) vertex -= origin_m;
  const double extent_m = bounds_m.sizes().maxCoeff();
  if (const std::string odd = ExplainSize(extent_m, "--scale", scaling.factor); !odd.empty()) PrintWarning(options.input, odd);

  // Names of bodies are short.
  const std::string name = output.stem().string().substr(0, scene::kMaxNameBytes);
  const std::string text =
      SceneOf(options, name, mesh_path.filename().string(), mesh).dump(2, ' ', true, Json::error_handler_t::replace) + "\n";
  // Checked before anything is written: what lies there already must not be lost for nothing.
  PALPATE_ASSIGN_OR_RETURN(v1::SceneSpec spec, scene::ParseSceneJson(text, output.string()));
  SetInlineMesh(mesh, *spec.mutable_bodies(0));
  const auto built = scene::BuildSceneDescription(spec, scene::SceneFolderResolver(output.parent_path()), scene::SceneLimits());
  if (!built.ok()) return Annotate(built.status(), output.string());
  PALPATE_RETURN_IF_ERROR(WriteFile(mesh_path.string(), sim::FormatMsh(mesh, sim::MshVersion::k41)));
  PALPATE_RETURN_IF_ERROR(WriteFile(output.string(), text));

  if (json) {
    absl::PrintF("%s\n", Json{{"scene", output.string()},
                              {"mesh", mesh_path.string()},
                              {"scale", scaling.factor},
                              {"tets", mesh.tets.size()},
                              {"vertices", mesh.vertices.size()},
                              {"extent_m", extent_m}}
                             .dump(-1, ' ', false, Json::error_handler_t::replace));
    return absl::OkStatus();
  }
  if (!scaling.why.empty()) absl::PrintF("size       %s\n", scaling.why);
  absl::PrintF("mesh       %s: %d tets, %d vertices, %.4g m long\n", mesh_path.string(), mesh.tets.size(), mesh.vertices.size(), extent_m);
  if (spec.bodies(0).zones_size() > 0) absl::PrintF("zones      %d, one for each group of the mesh\n", spec.bodies(0).zones_size());
  absl::PrintF("scene      %s: lowest tenth fixed, a probe %g mm above the top\n", output.string(), 1000 * kGap_m);
  absl::PrintF("try it     ./run demo --scene %s\n", output.string());
  return absl::OkStatus();
}

}  // namespace palpate::cli
