#include "clients/cli/scene_file.h"

#include <string>

#include "absl/strings/str_format.h"
#include "clients/job/json_text.h"
#include "gpu/base/status.h"
#include "sim/mesh/mesh_io.h"
#include "sim/scene/edit_request.h"
#include "sim/scene/nurbs_file.h"
#include "sim/scene/scene_spec.h"
#include "sim/scene/shell_spec.h"

namespace palpate::cli {

absl::StatusOr<v1::SceneSpec> ReadSceneFile(const std::filesystem::path& path) {
  PALPATE_ASSIGN_OR_RETURN(const std::string text, job::ReadJsonFile(path, "a scene file"));
  return scene::ParseSceneJson(text, path.string());
}

absl::StatusOr<v1::EditSceneRequest> ReadEditFile(const std::filesystem::path& path) {
  PALPATE_ASSIGN_OR_RETURN(const std::string text, job::ReadJsonFile(path, "a file of edits"));
  return scene::ParseEditJson(text, path.string());
}

void SetInlineMesh(const sim::TetMesh& mesh, v1::BodySpec& body) {
  v1::TetMeshData& data = *body.mutable_mesh();
  data.mutable_vertices_m()->Reserve(static_cast<int>(3 * mesh.vertices.size()));
  for (const auto& vertex : mesh.vertices) {
    for (int axis = 0; axis < 3; ++axis) data.add_vertices_m(vertex[axis]);
  }
  data.mutable_tets()->Reserve(static_cast<int>(4 * mesh.tets.size()));
  for (const auto& tet : mesh.tets) {
    for (const uint32_t vertex : tet) data.add_tets(vertex);
  }
  for (const auto& place : mesh.texture_coordinates) {
    for (int k = 0; k < 2; ++k) data.add_texture_coordinates(place[k]);
  }
  const auto uses_groups = [](const v1::ZoneSpec& zone) { return zone.has_mesh_group(); };
  if (std::none_of(body.zones().begin(), body.zones().end(), uses_groups)) return;
  data.mutable_tet_groups()->Assign(mesh.tet_groups.begin(), mesh.tet_groups.end());
  for (const sim::MeshGroup& named : mesh.groups) {
    v1::MeshGroup& group = *data.add_groups();
    group.set_number(named.number);
    group.set_name(named.name);
  }
}

absl::Status InlineMeshFiles(const std::filesystem::path& folder, v1::SceneSpec& spec) {
  for (int i = 0; i < spec.bodies_size(); ++i) {
    v1::BodySpec& body = *spec.mutable_bodies(i);
    if (body.has_nurbs() && body.nurbs().has_file()) {
      const std::string name = body.nurbs().file();
      const auto text = job::ReadJsonFile((folder / name).string(), "a file of NURBS");
      if (!text.ok()) return Annotate(text.status(), absl::StrFormat("bodies[%d].nurbs.file", i));
      const auto object = scene::ParseNurbsJson(*text, name);
      if (!object.ok()) return Annotate(object.status(), absl::StrFormat("bodies[%d].nurbs.file", i));
      *body.mutable_nurbs()->mutable_object() = scene::NurbsToProto(*object);
      continue;
    }
    if (body.has_shell() && body.shell().has_mesh_file()) {
      const auto surface = sim::ReadSurfaceMesh(folder / body.shell().mesh_file());
      if (!surface.ok()) return Annotate(surface.status(), absl::StrFormat("bodies[%d].shell.mesh_file", i));
      scene::SetInlineSurface(*surface, *body.mutable_shell());
      continue;
    }
    if (body.geometry_case() != v1::BodySpec::kMeshFile) continue;
    const auto mesh = sim::ReadTetMesh(folder / body.mesh_file());
    if (!mesh.ok()) return Annotate(mesh.status(), absl::StrFormat("bodies[%d].mesh_file", i));
    SetInlineMesh(*mesh, body);
  }
  return absl::OkStatus();
}

}  // namespace palpate::cli
