#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>

#include <nlohmann/json.hpp>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "clients/cli/commands.h"
#include "clients/cli/console.h"
#include "clients/cli/mesh_from_labels.h"
#include "clients/cli/mesh_quality.h"
#include "clients/cli/size_check.h"
#include "gpu/base/status.h"
#include "sim/mesh/generators.h"
#include "sim/mesh/mesh_io.h"
#include "sim/mesh/signed_distance.h"
#include "sim/mesh/surface_check.h"
#include "sim/mesh/tet_mesh.h"
#include "sim/volume/label_volume.h"
#include "sim/volume/volume_file.h"

namespace palpate::cli {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

bool IsSurfaceFile(const fs::path& path) { return path.extension() == ".obj" || path.extension() == ".stl" || path.extension() == ".ply"; }

Json ToJson(const Eigen::Vector3d& v) { return {v.x(), v.y(), v.z()}; }

struct OutputOptions {
  std::string path;
  sim::MshVersion msh_version = sim::MshVersion::k41;
  bool binary = false;
};

CLI::Option* AddOutputOptions(CLI::App& command, OutputOptions& output) {
  auto* path =
      command.add_option("-o,--output", output.path, "file to write: .msh (Gmsh), .vtk (legacy VTK) or .obj (surface alone)")->required();
  command.add_option("--msh-version", output.msh_version, "version of a .msh file")
      ->transform(CLI::Transformer(std::map<std::string, sim::MshVersion>{{"2.2", sim::MshVersion::k22}, {"4.1", sim::MshVersion::k41}}))
      ->default_str("4.1");
  command.add_flag("--binary", output.binary, "write a .vtk file in binary");
  return path;
}

/// Before the work begins: a wrong name must not cost the work.
absl::Status CheckOutput(const OutputOptions& output) {
  const std::string extension = fs::path(output.path).extension().string();
  if (extension != ".msh" && extension != ".vtk" && extension != ".obj") {
    return absl::InvalidArgumentError(absl::StrFormat("%s: the output must end in .msh, .vtk or .obj, not '%s'", output.path, extension));
  }
  if (output.binary && extension != ".vtk") {
    return absl::InvalidArgumentError(absl::StrFormat("%s: --binary is for .vtk files", output.path));
  }
  const fs::path folder = fs::absolute(output.path).parent_path();
  if (access(folder.c_str(), W_OK) != 0) {
    return absl::FailedPreconditionError(
        absl::StrFormat("%s: the folder %s does not exist or cannot be written", output.path, folder.string()));
  }
  return absl::OkStatus();
}

sim::SurfaceMesh BoundaryOf(const sim::TetMesh& mesh) {
  sim::BoundarySurface boundary = sim::ExtractBoundary(mesh);
  sim::SurfaceMesh surface;
  surface.triangles = std::move(boundary.triangles);
  surface.vertices.reserve(boundary.vertices.size());
  for (const uint32_t vertex : boundary.vertices) surface.vertices.push_back(mesh.vertices[vertex]);
  return surface;
}

absl::Status Write(const sim::TetMesh& mesh, const OutputOptions& output) {
  const std::string extension = fs::path(output.path).extension().string();
  if (extension == ".msh") return WriteFile(output.path, sim::FormatMsh(mesh, output.msh_version));
  if (extension == ".vtk") {
    return WriteFile(output.path, sim::FormatVtk(mesh, output.binary ? sim::VtkEncoding::kBinary : sim::VtkEncoding::kAscii));
  }
  return WriteFile(output.path, sim::FormatObj(BoundaryOf(mesh)));
}

Json Describe(const sim::TetMesh& mesh) {
  const MeshQuality quality = MeasureQuality(mesh);
  const sim::BoundarySurface surface = sim::ExtractBoundary(mesh);
  Json shape;
  for (const ShapeMeasure& measure : quality.shape) shape[measure.name] = {{"min", measure.min}, {"mean", measure.mean}};
  return {{"kind", "volume"},
          {"vertices", mesh.vertices.size()},
          {"tets", mesh.tets.size()},
          {"surface_vertices", surface.vertices.size()},
          {"surface_triangles", surface.triangles.size()},
          {"volume_m3", quality.volume_m3},
          {"bounds_m", {{"min", ToJson(quality.bounds_m.min())}, {"max", ToJson(quality.bounds_m.max())}}},
          {"edge_m", {{"min", quality.min_edge_m}, {"mean", quality.mean_edge_m}, {"max", quality.max_edge_m}}},
          {"tet_volume_m3", {{"min", quality.min_tet_volume_m3}, {"max", quality.max_tet_volume_m3}}},
          {"dihedral_deg", {{"min", quality.min_dihedral_deg}, {"max", quality.max_dihedral_deg}}},
          {"shape", std::move(shape)}};
}

Json Describe(const sim::SurfaceMesh& surface) {
  Eigen::AlignedBox3d bounds_m;
  for (const auto& vertex : surface.vertices) bounds_m.extend(vertex);
  double volume_m3 = 0;
  double area_m2 = 0;
  for (const auto& [a, b, c] : surface.triangles) {
    const Eigen::Vector3d &x = surface.vertices[a], &y = surface.vertices[b], &z = surface.vertices[c];
    volume_m3 += x.dot(y.cross(z)) / 6;
    area_m2 += (y - x).cross(z - x).norm() / 2;
  }
  const absl::Status closed = sim::CheckClosedSurface(surface);
  Json description = {{"kind", "surface"},
                      {"vertices", surface.vertices.size()},
                      {"triangles", surface.triangles.size()},
                      {"area_m2", area_m2},
                      {"bounds_m", {{"min", ToJson(bounds_m.min())}, {"max", ToJson(bounds_m.max())}}},
                      {"bounds_a_solid", closed.ok()}};
  if (closed.ok()) {
    description["volume_m3"] = volume_m3;
  } else {
    description["why_not"] = std::string(closed.message());
  }
  return description;
}

/// The largest extent of what Describe describes.
double ExtentOf(const Json& description) {
  double extent_m = 0;
  for (size_t axis = 0; axis < 3; ++axis) {
    const Json& bounds = description["bounds_m"];
    extent_m = std::max(extent_m, bounds["max"][axis].get<double>() - bounds["min"][axis].get<double>());
  }
  return extent_m;
}

constexpr char kScaleSurface[] = "palpate mesh from-surface --scale";
constexpr char kScaleVolume[] = "palpate mesh convert --scale";

/// Says on standard error, and in the description, when the size is that of another unit. `remedy` is the flag that mends it,
/// `scale` what it was given.
void WarnOfSize(const std::string& file, const std::string& remedy, double scale, Json* description) {
  const std::string sentence = ExplainSize(ExtentOf(*description), remedy, scale);
  if (sentence.empty()) return;
  PrintWarning(file, sentence);
  (*description)["warning"] = sentence;
}

std::string Range(const Json& range, const char* unit) {
  std::string text = absl::StrFormat("%.4g", range["min"].get<double>());
  if (range.contains("mean")) absl::StrAppendFormat(&text, " (mean %.4g)", range["mean"].get<double>());
  if (range.contains("max")) absl::StrAppendFormat(&text, " to %.4g", range["max"].get<double>());
  return text + unit;
}

void Print(const Json& description, bool json) {
  if (json) {
    absl::PrintF("%s\n", description.dump());
    return;
  }
  const auto point = [](const Json& p) {
    return absl::StrFormat("(%.4g, %.4g, %.4g)", p[0].get<double>(), p[1].get<double>(), p[2].get<double>());
  };
  const bool volume = description["kind"] == "volume";
  const auto count = [&](const char* name) { return description[name].get<uint64_t>(); };
  if (volume) {
    absl::PrintF("volume      %d tets, %d vertices\n", count("tets"), count("vertices"));
    absl::PrintF("surface     %d triangles, %d vertices\n", count("surface_triangles"), count("surface_vertices"));
  } else {
    absl::PrintF("surface     %d triangles, %d vertices, %.6g m^2\n", count("triangles"), count("vertices"),
                 description["area_m2"].get<double>());
    absl::PrintF("solid       %s\n",
                 description["bounds_a_solid"].get<bool>() ? "yes" : "no: " + description["why_not"].get<std::string>());
  }
  if (description.contains("volume_m3")) absl::PrintF("content     %.6g m^3\n", description["volume_m3"].get<double>());
  absl::PrintF("bounds      %s to %s m\n", point(description["bounds_m"]["min"]), point(description["bounds_m"]["max"]));
  if (!volume) return;
  absl::PrintF("edges       %s\n", Range(description["edge_m"], " m"));
  absl::PrintF("tet volume  %s\n", Range(description["tet_volume_m3"], " m^3"));
  absl::PrintF("dihedral    %s\n", Range(description["dihedral_deg"], " degrees"));
  for (const auto& [name, range] : description["shape"].items()) absl::PrintF("%-18s%s of 1\n", name, Range(range, ""));
}

/// Says on standard output what was written. `remedy` and `scale` as in WarnOfSize.
absl::Status WriteAndReport(const sim::TetMesh& mesh, const OutputOptions& output, const std::string& remedy, double scale, bool json) {
  PALPATE_RETURN_IF_ERROR(Write(mesh, output));
  Json description = Describe(mesh);
  description["file"] = output.path;
  WarnOfSize(output.path, remedy, scale, &description);
  if (json) {
    absl::PrintF("%s\n", description.dump());
  } else {
    absl::PrintF("%s: %d tets, %d vertices, dihedral angles %s\n", output.path, mesh.tets.size(), mesh.vertices.size(),
                 Range(description["dihedral_deg"], " degrees"));
  }
  return absl::OkStatus();
}

/// A bar that also ends the work on Ctrl-C.
sim::ProgressCallback ShowProgress(ProgressBar& bar) {
  InstallInterruptHandler();
  return [&bar](double fraction) {
    bar.Update(fraction);
    return !g_interrupted.load();
  };
}

void AddScaleOption(CLI::App& command, double& scale) {
  command.add_option("--scale", scale, "metres per unit of the file, for example 0.001 for millimetres")
      ->check(CLI::Range(1e-9, 1e9))
      ->capture_default_str();
}

void AddReadOptions(CLI::App& command, sim::ReadOptions& options) {
  command.add_flag("--flip-inverted", options.flip_inverted, "turn tets of negative volume round instead of refusing the file");
  command.add_flag("--drop-unused", options.drop_unused_vertices, "leave out vertices that no tet uses instead of refusing the file");
}

/// Prints what is known of a mesh or surface of a file.
void PrintInfo(const std::string& file, Json description, bool json) {
  WarnOfSize(file, description["kind"] == "surface" ? kScaleSurface : kScaleVolume, 1, &description);
  Print(description, json);
}

void AddInfo(CLI::App& mesh, Session& session) {
  struct Options {
    std::string path;
    sim::ReadOptions read;
  };
  auto options = std::make_shared<Options>();
  auto* command = mesh.add_subcommand("info", "counts, size and quality of a mesh or a surface");
  command->add_option("FILE", options->path, "volume (.msh .vtk .node .ele) or surface (.obj .stl .ply)")->required();
  AddReadOptions(*command, options->read);
  command->callback([&session, options] {
    session.action = [&session, options]() -> absl::Status {
      if (IsSurfaceFile(options->path)) {
        PALPATE_ASSIGN_OR_RETURN(const sim::SurfaceMesh surface, sim::ReadSurfaceMesh(options->path));
        PrintInfo(options->path, Describe(surface), session.json);
      } else {
        absl::StatusOr<sim::TetMesh> volume = sim::ReadTetMesh(options->path, options->read);
        if (!volume.ok() && fs::path(options->path).extension() == ".vtk") {
          if (const auto surface = sim::ReadSurfaceMesh(options->path); surface.ok()) {
            PrintInfo(options->path, Describe(*surface), session.json);
            return absl::OkStatus();
          }
        }
        if (!volume.ok()) return volume.status();
        PrintInfo(options->path, Describe(*volume), session.json);
      }
      return absl::OkStatus();
    };
  });
}

void AddConvert(CLI::App& mesh, Session& session) {
  struct Options {
    std::string input;
    double scale = 1;
    sim::ReadOptions read;
    OutputOptions output;
  };
  auto options = std::make_shared<Options>();
  auto* command = mesh.add_subcommand("convert", "write a tetrahedral mesh in another format, or its surface");
  command->add_option("FILE", options->input, "mesh to read: .msh, .vtk, .node or .ele")->required();
  AddScaleOption(*command, options->scale);
  AddOutputOptions(*command, options->output);
  AddReadOptions(*command, options->read);
  command->callback([&session, options] {
    session.action = [&session, options]() -> absl::Status {
      PALPATE_RETURN_IF_ERROR(CheckOutput(options->output));
      PALPATE_ASSIGN_OR_RETURN(sim::TetMesh volume, sim::ReadTetMesh(options->input, options->read));
      for (auto& vertex : volume.vertices) vertex *= options->scale;
      return WriteAndReport(volume, options->output, "--scale", options->scale, session.json);
    };
  });
}

void AddFromSurface(CLI::App& mesh, Session& session) {
  struct Options {
    std::string input;
    double scale = 1;
    uint64_t max_self_intersections = 0;
    sim::StuffingOptions stuffing;
    OutputOptions output;
  };
  auto options = std::make_shared<Options>();
  auto* command = mesh.add_subcommand("from-surface", "fill a closed surface with tetrahedra");
  command->add_option("FILE", options->input, "closed surface: .obj, .stl, .ply or .vtk (polydata)")->required();
  command->add_option("--edge-length", options->stuffing.edge_length_m, "target length of the edges [m], after scaling")
      ->required()
      ->check(CLI::PositiveNumber);
  AddScaleOption(*command, options->scale);
  command
      ->add_option("--allow-self-intersections", options->max_self_intersections,
                   "fill a surface of which so many pairs of triangles meet; what overlaps becomes one solid")
      ->capture_default_str();
  command->add_option("--max-tets", options->stuffing.max_tets, "refuse to make more tetrahedra than this")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  AddOutputOptions(*command, options->output);
  command->callback([&session, options] {
    session.action = [&session, options]() -> absl::Status {
      PALPATE_RETURN_IF_ERROR(CheckOutput(options->output));
      PALPATE_ASSIGN_OR_RETURN(sim::SurfaceMesh surface, sim::ReadSurfaceMesh(options->input));
      for (auto& vertex : surface.vertices) vertex *= options->scale;
      absl::StatusOr<sim::TetMesh> volume;
      {
        ProgressBar bar("meshing");
        options->stuffing.progress = ShowProgress(bar);
        volume = sim::MeshSurface(surface, options->stuffing, options->max_self_intersections);
      }
      if (!volume.ok()) return Annotate(volume.status(), options->input);
      return WriteAndReport(*volume, options->output, "--scale", options->scale, session.json);
    };
  });
}

Json ToJson(const sim::LabelVolume& volume, const sim::LabelSummary& label) {
  const Eigen::Vector3d extent_m = sim::ExtentOf(volume, label);
  return {{"label", label.label},         {"name", label.name},        {"voxels", label.voxel_count},     {"volume_m3", label.volume_m3},
          {"extent_m", ToJson(extent_m)}, {"parts", label.part_count}, {"thickness_m", label.thickness_m}};
}

/// What a volume has, without meshing it.
absl::Status ListLabels(const std::string& file, bool json) {
  PALPATE_ASSIGN_OR_RETURN(const sim::LabelVolume volume, sim::ReadLabelVolume(file));
  const std::vector<sim::LabelSummary> labels = sim::SummarizeLabels(volume);
  if (json) {
    Json rows = Json::array();
    for (const sim::LabelSummary& label : labels) rows.push_back(ToJson(volume, label));
    absl::PrintF("%s\n", Json{{"file", file},
                              {"voxels", volume.size},
                              {"spacing_m", ToJson(volume.spacing_m)},
                              {"origin_m", ToJson(volume.origin_m)},
                              {"overlapping_voxels", volume.overlap_count},
                              {"labels", std::move(rows)}}
                             .dump(-1, ' ', false, Json::error_handler_t::replace));
    return absl::OkStatus();
  }
  const Eigen::Vector3d spacing_mm = 1000 * volume.spacing_m;
  absl::PrintF("voxels      %d x %d x %d of %.4g x %.4g x %.4g mm\n", volume.size[0], volume.size[1], volume.size[2], spacing_mm.x(),
               spacing_mm.y(), spacing_mm.z());
  if (labels.empty()) absl::PrintF("labels      none: all voxels are 0\n");
  for (const sim::LabelSummary& label : labels) {
    const Eigen::Vector3d extent_mm = 1000 * sim::ExtentOf(volume, label);
    absl::PrintF("label %-5d %-20s %10d voxels %10.4g ml  %.4g x %.4g x %.4g mm along the axes of the grid, %d part%s, %.3g mm thick\n",
                 label.label, label.name.empty() ? "-" : label.name, label.voxel_count, 1e6 * label.volume_m3, extent_mm.x(), extent_mm.y(),
                 extent_mm.z(), label.part_count, label.part_count == 1 ? "" : "s", 1000 * label.thickness_m);
  }
  return absl::OkStatus();
}

/// Writes a mesh of labels and says what became of each.
absl::Status WriteLabels(const MeshedLabels& meshed, const OutputOptions& output, bool json) {
  PALPATE_RETURN_IF_ERROR(Write(meshed.mesh, output));
  for (const std::string& warning : meshed.warnings) PrintWarning(output.path, warning);
  Json description = Describe(meshed.mesh);
  description["file"] = output.path;
  description["parts"] = meshed.part_count;
  description["interface_rms_m"] = meshed.interface_rms_m;
  description["warnings"] = meshed.warnings;
  Json rows = Json::array();
  for (const MeshedLabel& label : meshed.labels) {
    rows.push_back({{"label", label.voxels.label},
                    {"name", label.voxels.name},
                    {"tets", label.tet_count},
                    {"edge_length_m", label.edge_length_m},
                    {"volume_m3", label.volume_m3},
                    {"voxel_volume_m3", label.voxels.volume_m3},
                    {"covered", label.covered},
                    {"parts", label.part_count}});
  }
  description["labels"] = std::move(rows);
  if (json) {
    absl::PrintF("%s\n", description.dump(-1, ' ', false, Json::error_handler_t::replace));
    return absl::OkStatus();
  }
  absl::PrintF("%s: %d tets, %d vertices, dihedral angles %s\n", output.path, meshed.mesh.tets.size(), meshed.mesh.vertices.size(),
               Range(description["dihedral_deg"], " degrees"));
  for (const MeshedLabel& label : meshed.labels) {
    absl::PrintF("label %-5d %-20s %8d tets of %.3g mm, %.4g ml (%+.2f %% of its voxels), %.1f %% of its voxels inside\n",
                 label.voxels.label, label.voxels.name, label.tet_count, 1000 * label.edge_length_m, 1e6 * label.volume_m3,
                 100 * (label.volume_m3 / label.voxels.volume_m3 - 1), 100 * label.covered);
  }
  return absl::OkStatus();
}

void AddFromLabels(CLI::App& mesh, Session& session) {
  struct Options {
    FromLabelsOptions labels;
    bool list = false;
    OutputOptions output;
  };
  auto options = std::make_shared<Options>();
  auto* command = mesh.add_subcommand("from-labels", "fill the labels of a volume with tetrahedra, each a group of one mesh");
  command->add_option("FILE", options->labels.input, "labels: NIfTI (.nii .nii.gz), NRRD (.nrrd .nhdr), MetaImage (.mha .mhd) or DICOM SEG")
      ->required();
  auto* list = command->add_flag("--list", options->list, "only print the labels of the volume");
  command->add_option("--labels", options->labels.labels,
                      "which labels, and their names: 1=liver,2=tumor; default: all, with the names of the file");
  command
      ->add_option("--edge-length", options->labels.edge_length_m,
                   "longest edges of the tetrahedra [m]; default: a twentieth of the largest extent of a label")
      ->check(CLI::PositiveNumber);
  command->add_option("--edge-lengths", options->labels.edge_lengths, "those of single labels [m]: tumor=0.002,3=0.004");
  command->add_option("--smoothing", options->labels.smoothing_passes, "passes of the filter that takes the steps of the voxels away")
      ->check(CLI::Range(0, 200))
      ->capture_default_str();
  command->add_option("--max-tets", options->labels.max_tets, "refuse to make more tetrahedra than this")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  AddOutputOptions(*command, options->output)->required(false)->excludes(list);
  command->callback([&session, options] {
    session.action = [&session, options]() -> absl::Status {
      if (options->list) return ListLabels(options->labels.input, session.json);
      if (options->output.path.empty()) return absl::InvalidArgumentError("--output is required (or --list)");
      PALPATE_RETURN_IF_ERROR(CheckOutput(options->output));
      absl::StatusOr<MeshedLabels> meshed;
      {
        ProgressBar bar("meshing");
        options->labels.progress = ShowProgress(bar);
        meshed = MeshFromLabels(options->labels);
      }
      if (!meshed.ok()) return meshed.status();
      return WriteLabels(*meshed, options->output, session.json);
    };
  });
}

/// One generator as a sub-command of `mesh generate`; `make` is given the edge length (0 = default).
CLI::App* AddShape(CLI::App& generate, Session& session, const char* name, const char* what,
                   std::function<absl::StatusOr<sim::TetMesh>(double edge_length_m, const sim::ProgressCallback& progress)> make) {
  struct Options {
    double edge_length_m = 0;
    OutputOptions output;
  };
  auto options = std::make_shared<Options>();
  auto* command = generate.add_subcommand(name, what);
  command->add_option("--edge-length", options->edge_length_m, "target length of the edges [m]; default: a tenth of the largest extent")
      ->check(CLI::PositiveNumber);
  AddOutputOptions(*command, options->output);
  command->callback([&session, options, make = std::move(make)] {
    session.action = [&session, options, make]() -> absl::Status {
      PALPATE_RETURN_IF_ERROR(CheckOutput(options->output));
      absl::StatusOr<sim::TetMesh> volume;
      {
        ProgressBar bar("meshing");
        volume = make(options->edge_length_m, ShowProgress(bar));
      }
      if (!volume.ok()) return volume.status();
      return WriteAndReport(*volume, options->output, kScaleVolume, 1, session.json);
    };
  });
  return command;
}

void AddGenerate(CLI::App& mesh, Session& session) {
  auto* generate = mesh.add_subcommand("generate", "make one of the demo bodies, centred at the origin, z up");
  generate->require_subcommand(1);

  struct Liver {
    double length_m = 0.2;
    double tets = 0;
  };
  auto liver = std::make_shared<Liver>();
  auto* command = AddShape(*generate, session, "liver", "a body with the proportions of a liver",
                           [liver](double edge_length_m, const sim::ProgressCallback& progress) {
                             const double length =
                                 liver->tets > 0 ? sim::LiverEdgeLengthForTets(liver->length_m, liver->tets) : edge_length_m;
                             return sim::GenerateLiver(liver->length_m, length, progress);
                           });
  command->add_option("--length", liver->length_m, "extent along x [m], 0.01 to 1")->check(CLI::Range(0.01, 1.0))->capture_default_str();
  command->add_option("--tets", liver->tets, "about how many tetrahedra, instead of an edge length")
      ->check(CLI::Range(200.0, 5e6))
      ->excludes(command->get_option("--edge-length"));

  struct Torus {
    double major_radius_m = 0.06;
    double minor_radius_m = 0.02;
  };
  auto torus = std::make_shared<Torus>();
  command = AddShape(*generate, session, "torus", "a torus around z", [torus](double edge_length_m, const sim::ProgressCallback& progress) {
    return sim::GenerateTorus(torus->major_radius_m, torus->minor_radius_m, edge_length_m, progress);
  });
  command->add_option("--major-radius", torus->major_radius_m, "centre to the middle of the tube [m]")->capture_default_str();
  command->add_option("--minor-radius", torus->minor_radius_m, "of the tube [m]")->capture_default_str();

  auto size_m = std::make_shared<std::vector<double>>(std::vector<double>{0.1, 0.1, 0.02});
  command = AddShape(*generate, session, "slab", "a box", [size_m](double edge_length_m, const sim::ProgressCallback& /*progress*/) {
    return sim::GenerateSlab(Eigen::Vector3d((*size_m)[0], (*size_m)[1], (*size_m)[2]), edge_length_m);
  });
  command->add_option("--size", *size_m, "extents along x, y and z [m]")->expected(3)->default_str("0.1 0.1 0.02");

  auto radius_m = std::make_shared<double>(0.05);
  command = AddShape(*generate, session, "sphere", "a ball", [radius_m](double edge_length_m, const sim::ProgressCallback& progress) {
    return sim::GenerateSphere(*radius_m, edge_length_m, progress);
  });
  command->add_option("--radius", *radius_m, "[m]")->capture_default_str();

  auto length_m = std::make_shared<double>(0.11);
  command = AddShape(*generate, session, "kidney", "a bean with the proportions of a kidney",
                     [length_m](double edge_length_m, const sim::ProgressCallback& progress) {
                       return sim::GenerateKidney(*length_m, edge_length_m, progress);
                     });
  command->add_option("--length", *length_m, "extent along x [m], 0.01 to 1")->capture_default_str();

  struct Knot {
    bool is_open = false;
    double extent_m = 0.2;
    double tube_radius_m = 0;
  };
  auto knot = std::make_shared<Knot>();
  command = AddShape(*generate, session, "knot", "a tube around a trefoil; its edge length is by default, and at most, the tube's radius",
                     [knot](double edge_length_m, const sim::ProgressCallback& /*progress*/) {
                       return sim::GenerateKnot(knot->is_open ? sim::KnotEnds::kOpen : sim::KnotEnds::kClosed, knot->extent_m,
                                                knot->tube_radius_m, edge_length_m);
                     });
  command->add_flag("--open", knot->is_open, "an overhand knot with two tails");
  command->add_option("--extent", knot->extent_m, "of the centre line along x [m], 0.02 to 2")->capture_default_str();
  command->add_option("--tube-radius", knot->tube_radius_m, "[m]; default: 0.08 of the extent, open 0.025");

  struct Sheet {
    double length_m = 0.2;
    double width_m = 0.2;
    double thickness_m = 0.004;
    uint32_t layer_count = 1;
  };
  auto sheet = std::make_shared<Sheet>();
  command = AddShape(*generate, session, "sheet", "a thin box with a given number of layers of cells",
                     [sheet](double edge_length_m, const sim::ProgressCallback& /*progress*/) {
                       return sim::GenerateSheet(sheet->length_m, sheet->width_m, sheet->thickness_m, sheet->layer_count, edge_length_m);
                     });
  command->add_option("--length", sheet->length_m, "along x [m]")->capture_default_str();
  command->add_option("--width", sheet->width_m, "along y [m]")->capture_default_str();
  command->add_option("--thickness", sheet->thickness_m, "along z [m]")->capture_default_str();
  command->add_option("--layers", sheet->layer_count, "of cells across the thickness")->capture_default_str();
}

}  // namespace

void AddMeshCommands(CLI::App& app, Session& session) {
  auto* mesh = app.add_subcommand("mesh", "look at, convert and make tetrahedral meshes");
  mesh->require_subcommand(1);
  AddInfo(*mesh, session);
  AddConvert(*mesh, session);
  AddFromSurface(*mesh, session);
  AddFromLabels(*mesh, session);
  AddGenerate(*mesh, session);
}

}  // namespace palpate::cli
