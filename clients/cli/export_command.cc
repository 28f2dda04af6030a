#include <chrono>
#include <filesystem>
#include <map>
#include <memory>
#include <string>

#include "absl/strings/str_format.h"
#include "clients/cli/commands.h"
#include "clients/cli/console.h"
#include "clients/cpp/scene_client.h"
#include "gpu/base/status.h"

namespace palpate::cli {
namespace {

// The body may be large.
constexpr std::chrono::milliseconds kNoLimit{0};

struct ExportOptions {
  std::string scene_id;
  std::string body;
  std::string output;
  v1::ExportFormat format = v1::EXPORT_FORMAT_UNSPECIFIED;
};

const std::map<std::string, v1::ExportFormat>& Formats() {
  static const auto& formats = *new std::map<std::string, v1::ExportFormat>{{"obj", v1::EXPORT_FORMAT_OBJ}, {"vtk", v1::EXPORT_FORMAT_VTK},
                                                                            {"msh", v1::EXPORT_FORMAT_MSH}, {"vtu", v1::EXPORT_FORMAT_VTU},
                                                                            {"vtp", v1::EXPORT_FORMAT_VTP}, {"glb", v1::EXPORT_FORMAT_GLB}};
  return formats;
}

absl::Status Export(const Session& session, ExportOptions options) {
  if (options.format == v1::EXPORT_FORMAT_UNSPECIFIED) {
    const std::string extension = std::filesystem::path(options.output).extension().string();
    const auto format = Formats().find(extension.empty() ? extension : extension.substr(1));
    if (format == Formats().end()) {
      return absl::InvalidArgumentError(
          absl::StrFormat("%s: ends in none of .obj, .vtk, .msh, .vtu, .vtp, .glb; say --format", options.output));
    }
    options.format = format->second;
  }
  PALPATE_ASSIGN_OR_RETURN(const client::Connection connection, Connect(session));
  v1::ExportSceneRequest request;
  request.set_scene_id(options.scene_id);
  request.set_body(options.body);
  request.set_format(options.format);
  PALPATE_ASSIGN_OR_RETURN(const auto response, client::SceneClient(connection, kNoLimit).Export(request));
  PALPATE_RETURN_IF_ERROR(WriteFile(options.output, response.data()));
  if (options.output == "-") return absl::OkStatus();
  if (session.json) {
    absl::PrintF("{\"step\":%d,\"bytes\":%d}\n", response.step(), response.data().size());
  } else {
    absl::PrintF("%s: step %d, %s\n", options.output, response.step(), FormatBytes(response.data().size()));
  }
  return absl::OkStatus();
}

}  // namespace

void AddExportCommand(CLI::App& app, Session& session) {
  auto options = std::make_shared<ExportOptions>();
  auto* command = app.add_subcommand("export", "write the current shape of a body to a file");
  command->add_option("ID", options->scene_id, "scene id, see `palpate scene list`")->required();
  command->add_option("-o,--output", options->output, "file to write, - for standard output")->required();
  command->add_option("--body", options->body, "name of the body; default: the first");
  command
      ->add_option("--format", options->format,
                   "obj, vtp, glb: surface; vtk, msh, vtu: volume; default: by the name of the file. glb without --body: all bodies")
      ->transform(CLI::CheckedTransformer(Formats()));
  command->callback([&session, options] { session.action = [&session, options] { return Export(session, *options); }; });
}

}  // namespace palpate::cli
