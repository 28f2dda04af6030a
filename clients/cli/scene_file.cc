#include "clients/cli/scene_file.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string_view>

#include <nlohmann/json.hpp>

#include "absl/strings/str_format.h"
#include "gpu/base/status.h"
#include "sim/mesh/mesh_io.h"
#include "sim/scene/edit_request.h"
#include "sim/scene/scene_spec.h"

namespace palpate::cli {
namespace {

/// Where the first error of syntax is. protobuf's own parser does not tell lines.
class SyntaxChecker : public nlohmann::json::json_sax_t {
 public:
  bool null() override { return true; }
  bool boolean(bool /*value*/) override { return true; }
  bool number_integer(number_integer_t /*value*/) override { return true; }
  bool number_unsigned(number_unsigned_t /*value*/) override { return true; }
  bool number_float(number_float_t /*value*/, const string_t& /*text*/) override { return true; }
  bool string(string_t& /*value*/) override { return true; }
  bool binary(binary_t& /*value*/) override { return true; }
  bool start_object(std::size_t /*size*/) override { return true; }
  bool key(string_t& /*value*/) override { return true; }
  bool end_object() override { return true; }
  bool start_array(std::size_t /*size*/) override { return true; }
  bool end_array() override { return true; }
  bool parse_error(std::size_t position, const std::string& /*token*/, const nlohmann::json::exception& error) override {
    position_ = position;
    message_ = error.what();
    return false;
  }
  std::size_t position() const { return position_; }
  const std::string& message() const { return message_; }

 private:
  std::size_t position_ = 0;
  std::string message_;
};

absl::Status CheckSyntax(std::string_view text, const std::string& name) {
  SyntaxChecker checker;
  if (nlohmann::json::sax_parse(text, &checker)) return absl::OkStatus();
  // The library's message begins with its own error number and the position, which our line and column repeat.
  std::string cause = checker.message();
  if (const size_t at = cause.find(": "); at != std::string::npos) cause.erase(0, at + 2);
  // It also quotes the bytes it stopped at, whatever they are.
  std::replace_if(
      cause.begin(), cause.end(), [](unsigned char c) { return c < 0x20 || c > 0x7e; }, '?');
  const std::string_view before = text.substr(0, checker.position() > 0 ? checker.position() - 1 : 0);
  const size_t line_begin = before.rfind('\n');
  const size_t column = line_begin == std::string_view::npos ? before.size() + 1 : before.size() - line_begin;
  return absl::InvalidArgumentError(
      absl::StrFormat("%s:%d:%d: not JSON: %s", name, 1 + std::count(before.begin(), before.end(), '\n'), column, cause));
}

/// The text of a JSON file. `what` it should be, for messages.
absl::StatusOr<std::string> ReadJson(const std::filesystem::path& path, const char* what) {
  std::ifstream file(path, std::ios::binary);
  const int open_error = errno;
  std::ostringstream content;
  std::error_code error;
  const std::filesystem::file_status kind = std::filesystem::status(path, error);
  if (std::filesystem::is_directory(kind)) {
    return absl::NotFoundError(absl::StrFormat("%s: is a folder, not %s", path.string(), what));
  }
  // A device might never end; a pipe is what a script hands over.
  if (std::filesystem::is_character_file(kind) || std::filesystem::is_block_file(kind)) {
    return absl::NotFoundError(absl::StrFormat("%s: is a device, not %s", path.string(), what));
  }
  if (!file) return absl::NotFoundError(absl::StrFormat("%s: cannot be read: %s", path.string(), std::strerror(open_error)));
  content << file.rdbuf();
  std::string text = content.str();
  if (absl::Status status = CheckSyntax(text, path.string()); !status.ok()) return status;
  return text;
}

}  // namespace

absl::StatusOr<v1::SceneSpec> ReadSceneFile(const std::filesystem::path& path) {
  PALPATE_ASSIGN_OR_RETURN(const std::string text, ReadJson(path, "a scene file"));
  return scene::ParseSceneJson(text, path.string());
}

absl::StatusOr<v1::EditSceneRequest> ReadEditFile(const std::filesystem::path& path) {
  PALPATE_ASSIGN_OR_RETURN(const std::string text, ReadJson(path, "a file of edits"));
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
    if (body.geometry_case() != v1::BodySpec::kMeshFile) continue;
    const auto mesh = sim::ReadTetMesh(folder / body.mesh_file());
    if (!mesh.ok()) return Annotate(mesh.status(), absl::StrFormat("bodies[%d].mesh_file", i));
    SetInlineMesh(*mesh, body);
  }
  return absl::OkStatus();
}

}  // namespace palpate::cli
