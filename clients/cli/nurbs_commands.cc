#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "clients/cli/child_process.h"
#include "clients/cli/commands.h"
#include "clients/cli/console.h"
#include "clients/cli/own_server.h"
#include "clients/cli/size_check.h"
#include "clients/job/json_text.h"
#include "gpu/base/status.h"
#include "sim/mesh/mesh_io.h"
#include "sim/mesh/surface_check.h"
#include "sim/nurbs/nurbs_mass_properties.h"
#include "sim/nurbs/nurbs_object.h"
#include "sim/nurbs/nurbs_object_tessellation.h"
#include "sim/nurbs/nurbs_revolution.h"
#include "sim/nurbs/nurbs_shapes.h"
#include "sim/scene/nurbs_file.h"

namespace palpate::cli {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;
using sim::NurbsDirection;

constexpr double kBoundsTolerance = 1e-3;  // of the size
constexpr size_t kShownPatches = 40;

Json ToJson(const Eigen::Vector3d& v) { return {v.x(), v.y(), v.z()}; }

std::string Dump(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

std::string Extension(const std::string& path) { return absl::AsciiStrToLower(fs::path(path).extension().string()); }

absl::Status CheckEnding(const std::string& path, const std::vector<std::string>& endings, const char* listed) {
  if (std::find(endings.begin(), endings.end(), Extension(path)) != endings.end()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat("%s: the name must end in %s, not '%s'", path, listed, Extension(path)));
}

/// Before the work begins: a wrong name must not cost the work.
absl::Status CheckOutput(const std::string& path, const std::vector<std::string>& endings, const char* listed) {
  PALPATE_RETURN_IF_ERROR(CheckEnding(path, endings, listed));
  return CheckWritable(path);
}

absl::StatusOr<sim::NurbsObject> ReadObject(const std::string& path) {
  std::error_code error;
  const uintmax_t size = fs::file_size(path, error);
  if (!error && size > scene::kMaxNurbsFileBytes) {
    return absl::ResourceExhaustedError(absl::StrFormat("%s: %d bytes, at most %d are allowed", path, size, scene::kMaxNurbsFileBytes));
  }
  PALPATE_ASSIGN_OR_RETURN(const std::string text, job::ReadJsonFile(path, "a file of NURBS"));
  return scene::ReadNurbs(text, path);
}

size_t ControlPointsOf(const sim::NurbsObject& object) {
  size_t count = 0;
  for (const sim::NurbsPatch& patch : object.patches()) count += patch.surface.control().size();
  return count;
}

/// Says what was written.
void Report(const sim::NurbsObject& object, const std::string& path, bool json) {
  const absl::Status closed = object.CheckClosed();
  if (json) {
    Json description = {
        {"file", path}, {"patches", object.patches().size()}, {"control_points", ControlPointsOf(object)}, {"closed", closed.ok()}};
    if (!closed.ok()) description["why_not"] = std::string(closed.message());
    absl::PrintF("%s\n", Dump(description));
  } else {
    absl::PrintF("%s: %d patches, %d control points, %s\n", path, object.patches().size(), ControlPointsOf(object),
                 closed.ok() ? "closed" : absl::StrCat(closed.message()));
  }
}

absl::Status WriteObject(const sim::NurbsObject& object, const std::string& path, bool json) {
  PALPATE_RETURN_IF_ERROR(WriteFile(path, scene::FormatNurbsJson(object.Describe())));
  Report(object, path, json);
  return absl::OkStatus();
}

Json Describe(const sim::NurbsPatch& patch) {
  const auto pair_of = [&](const auto& value) { return Json{value(NurbsDirection::kU), value(NurbsDirection::kV)}; };
  const bool is_rational =
      std::any_of(patch.surface.control().begin(), patch.surface.control().end(), [](const Eigen::Vector4d& p) { return p.w() != 1; });
  size_t trims = 0;
  for (const auto& loop : patch.loops) trims += loop.size();
  return {{"name", patch.name},
          {"degree", pair_of([&](NurbsDirection d) { return patch.surface.degree(d); })},
          {"control_points", pair_of([&](NurbsDirection d) { return patch.surface.count(d); })},
          {"knots", pair_of([&](NurbsDirection d) { return patch.surface.knots(d).size(); })},
          {"domain", pair_of([&](NurbsDirection d) {
             return Json{patch.surface.domain(d).first, patch.surface.domain(d).second};
           })},
          {"rational", is_rational},
          {"loops", patch.loops.size()},
          {"trim_curves", trims},
          {"area_m2", sim::NurbsAreaOf(patch)}};
}

absl::StatusOr<Json> Describe(const sim::NurbsObject& object, double density_kg_per_m3, double join_tolerance_m) {
  Json patches = Json::array();
  double area_m2 = 0;
  for (const sim::NurbsPatch& patch : object.patches()) {
    patches.push_back(Describe(patch));
    area_m2 += patches.back()["area_m2"].get<double>();
  }
  size_t joined = 0;
  size_t poles = 0;
  size_t open = 0;
  double gap_m = 0;
  for (const sim::NurbsEdge& edge : object.Edges(join_tolerance_m)) {
    ++(edge.is_point ? poles : edge.places.size() == 2 ? joined : open);
    gap_m = std::max(gap_m, edge.gap_m);
  }
  // Of triangles, since control points of what is trimmed away count for nothing.
  const double size_m = object.ControlBox_m().diagonal().norm();
  PALPATE_ASSIGN_OR_RETURN(const sim::SurfaceMesh mesh,
                           sim::TessellateNurbsObject(object, std::max(kBoundsTolerance * size_m, 1e-300), join_tolerance_m));
  Eigen::AlignedBox3d bounds_m;
  for (const Eigen::Vector3d& p : mesh.vertices) bounds_m.extend(p);
  Json out = {{"name", object.name()},
              {"patch_count", object.patches().size()},
              {"control_point_count", ControlPointsOf(object)},
              {"trimmed", object.is_trimmed()},
              {"edges", {{"joined", joined}, {"open", open}, {"poles", poles}, {"largest_gap_m", gap_m}}},
              {"area_m2", area_m2}};
  if (!bounds_m.isEmpty()) {
    out["bounds_m"] = {{"min", ToJson(bounds_m.min())}, {"max", ToJson(bounds_m.max())}, {"within_m", kBoundsTolerance * size_m}};
  }
  const auto properties = sim::ComputeNurbsObjectMassProperties(object, density_kg_per_m3, join_tolerance_m);
  out["closed"] = properties.ok();
  if (properties.ok()) {
    Json rows = Json::array();
    for (int i = 0; i < 3; ++i) rows.push_back(ToJson(properties->mass.inertia_kg_m2.row(i).transpose()));
    out["volume_m3"] = properties->volume_m3;
    out["center_m"] = ToJson(properties->mass.center_m);
    out["density_kg_per_m3"] = density_kg_per_m3;
    out["mass_kg"] = properties->mass.mass_kg;
    out["inertia_kg_m2"] = std::move(rows);
  } else {
    out["why_not"] = std::string(properties.status().message());
  }
  out["patches"] = std::move(patches);
  return out;
}

std::string Shown(const Json& p) {
  return absl::StrFormat("(%.6g, %.6g, %.6g)", p[0].get<double>(), p[1].get<double>(), p[2].get<double>());
}

void Print(const Json& d) {
  absl::PrintF("object      %s%d patches%s, %d control points\n",
               d["name"].get<std::string>().empty() ? "" : "\"" + d["name"].get<std::string>() + "\", ", d["patch_count"].get<size_t>(),
               d["trimmed"].get<bool>() ? ", trimmed" : "", d["control_point_count"].get<size_t>());
  absl::PrintF("edges       %d joined, %d open, %d poles, gaps up to %.3g m\n", d["edges"]["joined"].get<size_t>(),
               d["edges"]["open"].get<size_t>(), d["edges"]["poles"].get<size_t>(), d["edges"]["largest_gap_m"].get<double>());
  absl::PrintF("closed      %s\n", d["closed"].get<bool>() ? "yes" : "no: " + d["why_not"].get<std::string>());
  if (d.contains("bounds_m")) absl::PrintF("bounds      %s to %s m\n", Shown(d["bounds_m"]["min"]), Shown(d["bounds_m"]["max"]));
  absl::PrintF("area        %.9g m^2\n", d["area_m2"].get<double>());
  if (d["closed"].get<bool>()) {
    absl::PrintF("volume      %.9g m^3\n", d["volume_m3"].get<double>());
    absl::PrintF("centre      %s m\n", Shown(d["center_m"]));
    absl::PrintF("mass        %.9g kg at %g kg/m^3\n", d["mass_kg"].get<double>(), d["density_kg_per_m3"].get<double>());
    for (size_t i = 0; i < 3; ++i) absl::PrintF("%-12s%s kg m^2\n", i == 0 ? "inertia" : "", Shown(d["inertia_kg_m2"][i]));
  }
  Table table({"patch", "degree", "points", "domain u", "domain v", "loops", "area m^2"});
  for (size_t i = 0; i < std::min(d["patches"].size(), kShownPatches); ++i) {
    const Json& p = d["patches"][i];
    const auto range = [&](size_t axis) {
      return absl::StrFormat("%.4g..%.4g", p["domain"][axis][0].get<double>(), p["domain"][axis][1].get<double>());
    };
    const std::string name = p["name"].get<std::string>();
    table.AddRow({absl::StrCat(i, name.empty() ? "" : " " + name), absl::StrCat(p["degree"][0].get<int>(), "x", p["degree"][1].get<int>()),
                  absl::StrCat(p["control_points"][0].get<int>(), "x", p["control_points"][1].get<int>()), range(0), range(1),
                  absl::StrCat(p["loops"].get<int>()), absl::StrFormat("%.6g", p["area_m2"].get<double>())});
  }
  absl::PrintF("%s", table.ToString());
  if (d["patches"].size() > kShownPatches) absl::PrintF("and %d more; --json lists all\n", d["patches"].size() - kShownPatches);
}

void AddJoinOption(CLI::App& command, double& tolerance_m) {
  command.add_option("--join", tolerance_m, "how near edges without numbers have to be to count as one [m]; default: 1e-7 of the size")
      ->check(CLI::PositiveNumber);
}

void AddInfo(CLI::App& nurbs, Session& session) {
  struct Options {
    std::string path;
    double density_kg_per_m3 = 1000;
    double join_m = 0;
  };
  auto options = std::make_shared<Options>();
  auto* command = nurbs.add_subcommand("info", "patches, edges, size and mass properties of an object of NURBS surfaces");
  command->add_option("FILE", options->path, "object: .nurbs.json")->required();
  command->add_option("--density", options->density_kg_per_m3, "of what it is made of [kg/m^3]")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  AddJoinOption(*command, options->join_m);
  command->callback([&session, options] {
    session.action = [&session, options]() -> absl::Status {
      PALPATE_ASSIGN_OR_RETURN(const sim::NurbsObject object, ReadObject(options->path));
      const absl::StatusOr<Json> description = Describe(object, options->density_kg_per_m3, options->join_m);
      if (!description.ok()) return Annotate(description.status(), options->path);
      if (session.json) {
        absl::PrintF("%s\n", Dump(*description));
      } else {
        Print(*description);
      }
      return absl::OkStatus();
    };
  });
}

struct KnotToInsert {
  size_t patch = 0;
  NurbsDirection direction = NurbsDirection::kU;
  double t = 0;
  int times = 1;
};

template <typename Number>
bool Parse(absl::string_view text, Number* value) {
  const auto result = std::from_chars(text.data(), text.data() + text.size(), *value);
  return result.ec == std::errc() && result.ptr == text.data() + text.size();
}

absl::StatusOr<KnotToInsert> ParseInsertion(const std::string& text) {
  const std::vector<std::string> words = absl::StrSplit(text, ',');
  KnotToInsert out;
  const bool is_right = (words.size() == 3 || words.size() == 4) && Parse(words[0], &out.patch) && (words[1] == "u" || words[1] == "v") &&
                        Parse(words[2], &out.t) && (words.size() == 3 || Parse(words[3], &out.times));
  if (!is_right) {
    return absl::InvalidArgumentError(absl::StrFormat("--insert: '%s' is not PATCH,u|v,PARAMETER[,TIMES], for example 0,u,0.5", text));
  }
  out.direction = words[1] == "u" ? NurbsDirection::kU : NurbsDirection::kV;
  return out;
}

void AddRefine(CLI::App& nurbs, Session& session) {
  struct Options {
    std::string input, output;
    int degree = 1;
    double span_m = std::numeric_limits<double>::infinity();
    int levels = 0;
    std::vector<std::string> insertions;
  };
  auto options = std::make_shared<Options>();
  auto* command = nurbs.add_subcommand("refine", "the same shape with more control points");
  command->add_option("FILE", options->input, "object: .nurbs.json")->required();
  auto* degree = command->add_option("--degree", options->degree, "degrees below are raised to it; shells need 2, and 3 does not lock");
  auto* span = command->add_option("--span", options->span_m, "spans between knots are cut until none is longer [m]");
  auto* levels = command->add_option("--levels", options->levels, "how often every span between knots is halved, both ways, 0 to 16");
  command
      ->add_option("--insert", options->insertions,
                   "a knot: PATCH,u|v,PARAMETER[,TIMES], patches counted from 0; may be given several times")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  command->add_option("-o,--output", options->output, "file to write, .nurbs.json")->required();
  command->callback([&session, options, degree, span, levels] {
    const bool is_given = degree->count() + span->count() + levels->count() > 0;
    session.action = [&session, options, is_given]() -> absl::Status {
      if (!is_given && options->insertions.empty()) {
        return absl::InvalidArgumentError("one of --degree, --span, --levels or --insert is required");
      }
      PALPATE_RETURN_IF_ERROR(CheckOutput(options->output, {".json"}, ".json"));
      std::vector<KnotToInsert> insertions;
      for (const std::string& text : options->insertions) {
        PALPATE_ASSIGN_OR_RETURN(const KnotToInsert insertion, ParseInsertion(text));
        insertions.push_back(insertion);
      }
      PALPATE_ASSIGN_OR_RETURN(const sim::NurbsObject object, ReadObject(options->input));
      const auto refine = [&]() -> absl::StatusOr<sim::NurbsObject> {
        PALPATE_ASSIGN_OR_RETURN(sim::NurbsObject out, object.WithDegree(options->degree));
        PALPATE_ASSIGN_OR_RETURN(out, out.WithSpans(options->span_m));
        for (const KnotToInsert& knot : insertions) {
          PALPATE_ASSIGN_OR_RETURN(out, out.WithKnot(knot.patch, knot.direction, knot.t, knot.times));
        }
        return out.Refined(options->levels);
      };
      const absl::StatusOr<sim::NurbsObject> finer = refine();
      if (!finer.ok()) return Annotate(finer.status(), options->input);
      return WriteObject(*finer, options->output, session.json);
    };
  });
}

void AddTessellate(CLI::App& nurbs, Session& session) {
  struct Options {
    std::string input, output;
    double tolerance_m = 0;
    double join_m = 0;
  };
  auto options = std::make_shared<Options>();
  auto* command = nurbs.add_subcommand("tessellate", "triangles that no point of the surface is farther from than asked");
  command->add_option("FILE", options->input, "object: .nurbs.json")->required();
  command->add_option("--tolerance", options->tolerance_m, "farthest that a point of the surface may be from the triangles [m]")
      ->required()
      ->check(CLI::PositiveNumber);
  AddJoinOption(*command, options->join_m);
  command->add_option("-o,--output", options->output, "file to write: .obj, .stl (binary) or .ply (binary)")->required();
  command->callback([&session, options] {
    session.action = [&session, options]() -> absl::Status {
      PALPATE_RETURN_IF_ERROR(CheckOutput(options->output, {".obj", ".stl", ".ply"}, ".obj, .stl or .ply"));
      PALPATE_ASSIGN_OR_RETURN(const sim::NurbsObject object, ReadObject(options->input));
      const absl::StatusOr<sim::SurfaceMesh> mesh = sim::TessellateNurbsObject(object, options->tolerance_m, options->join_m);
      if (!mesh.ok()) return Annotate(mesh.status(), options->input);
      const std::string extension = Extension(options->output);
      PALPATE_RETURN_IF_ERROR(WriteFile(options->output, extension == ".obj"   ? sim::FormatObj(*mesh)
                                                         : extension == ".stl" ? sim::FormatStl(*mesh)
                                                                               : sim::FormatPly(*mesh)));
      const absl::Status closed = sim::CheckClosedSurface(*mesh);
      if (session.json) {
        Json description = {{"file", options->output},
                            {"vertices", mesh->vertices.size()},
                            {"triangles", mesh->triangles.size()},
                            {"bounds_a_solid", closed.ok()}};
        if (!closed.ok()) description["why_not"] = std::string(closed.message());
        absl::PrintF("%s\n", Dump(description));
      } else {
        absl::PrintF("%s: %d triangles, %d vertices, %s\n", options->output, mesh->triangles.size(), mesh->vertices.size(),
                     closed.ok() ? "bounds a solid" : absl::StrCat("bounds no solid: ", closed.message()));
      }
      return absl::OkStatus();
    };
  });
}

/// One shape as a sub-command of `nurbs shape`.
CLI::App* AddShape(CLI::App& shape, Session& session, const char* name, const char* what,
                   std::function<absl::StatusOr<std::vector<sim::NurbsSurface>>()> make) {
  auto output = std::make_shared<std::string>();
  auto* command = shape.add_subcommand(name, what);
  command->add_option("-o,--output", *output, "file to write, .nurbs.json")->required();
  command->callback([&session, output, name = std::string(name), make = std::move(make)] {
    session.action = [&session, output, name, make]() -> absl::Status {
      PALPATE_RETURN_IF_ERROR(CheckOutput(*output, {".json"}, ".json"));
      PALPATE_ASSIGN_OR_RETURN(const std::vector<sim::NurbsSurface> patches, make());
      PALPATE_ASSIGN_OR_RETURN(const sim::NurbsObject object, sim::NurbsObject::FromSurfaces(name, patches));
      return WriteObject(object, *output, session.json);
    };
  });
  return command;
}

CLI::Option* AddLength(CLI::App* command, const char* flag, double& length_m, const char* what) {
  return command->add_option(flag, length_m, what)->check(CLI::Range(1e-6, 1e3))->capture_default_str();
}

void AddShapes(CLI::App& nurbs, Session& session) {
  auto* shape = nurbs.add_subcommand("shape", "make a closed shape of exact surfaces, its axis along z");
  shape->require_subcommand(1);

  auto radius_m = std::make_shared<double>(0.05);
  auto* command =
      AddShape(*shape, session, "sphere", "a ball around the origin, of eight patches", [radius_m] { return sim::NurbsSphere(*radius_m); });
  AddLength(command, "--radius", *radius_m, "[m]");

  struct Torus {
    double major_radius_m = 0.06;
    double minor_radius_m = 0.02;
  };
  auto torus = std::make_shared<Torus>();
  command = AddShape(*shape, session, "torus", "a torus around the origin, of 16 patches",
                     [torus]() -> absl::StatusOr<std::vector<sim::NurbsSurface>> {
                       if (!(torus->major_radius_m > torus->minor_radius_m)) {
                         return absl::InvalidArgumentError(absl::StrFormat("--major-radius: %g, it must be greater than --minor-radius, %g",
                                                                           torus->major_radius_m, torus->minor_radius_m));
                       }
                       return sim::NurbsTorus(torus->major_radius_m, torus->minor_radius_m);
                     });
  AddLength(command, "--major-radius", torus->major_radius_m, "centre to the middle of the tube [m]");
  AddLength(command, "--minor-radius", torus->minor_radius_m, "of the tube [m]");

  struct Upright {
    double radius_m = 0.03;
    double height_m = 0.1;
  };
  auto cylinder = std::make_shared<Upright>();
  command = AddShape(*shape, session, "cylinder", "a cylinder that stands on the origin, of 12 patches",
                     [cylinder] { return sim::NurbsCylinder(cylinder->radius_m, cylinder->height_m); });
  AddLength(command, "--radius", cylinder->radius_m, "[m]");
  AddLength(command, "--height", cylinder->height_m, "[m]");

  auto cone = std::make_shared<Upright>();
  command = AddShape(*shape, session, "cone", "a cone that stands on the origin, of 8 patches",
                     [cone] { return sim::NurbsCone(cone->radius_m, cone->height_m); });
  AddLength(command, "--radius", cone->radius_m, "of its foot [m]");
  AddLength(command, "--height", cone->height_m, "[m]");

  auto vase = std::make_shared<Upright>();
  command = AddShape(*shape, session, "vase", "a hollow vase that stands on the origin, of 20 patches",
                     [vase] { return sim::NurbsVase(vase->radius_m, vase->height_m); });
  AddLength(command, "--radius", vase->radius_m, "where it is widest, about [m]");
  AddLength(command, "--height", vase->height_m, "[m]");
}

/// Runs palpate-cad, which alone is linked with OpenCASCADE, passes its warnings on, and gives its words as the error where it fails.
absl::Status RunConverter(const std::vector<std::string>& arguments, const std::string& input) {
  std::error_code error;
  const fs::path folder = fs::temp_directory_path(error);
  if (error) return absl::FailedPreconditionError(absl::StrCat("no folder for temporary files ($TMPDIR): ", error.message()));
  std::string log = (folder / "palpate-cad-XXXXXX").string();
  const int descriptor = mkstemp(log.data());
  if (descriptor < 0) return absl::FailedPreconditionError(absl::StrCat(log, ": cannot be made"));
  close(descriptor);
  const auto run = [&]() -> absl::Status {
    std::vector<std::string> line = {SiblingProgram("palpate-cad")};
    line.insert(line.end(), arguments.begin(), arguments.end());
    absl::StatusOr<ChildProcess> converter = ChildProcess::Start(line, log);
    if (!converter.ok()) {
      return absl::FailedPreconditionError(
          "files of CAD programs are converted by palpate-cad, which is not beside this program: it is built where OpenCASCADE is found. "
          "On Debian 12: apt-get install --no-install-recommends libocct-data-exchange-dev libocct-modeling-algorithms-dev, then build "
          "again");
    }
    InstallInterruptHandler();
    std::optional<int> status;
    while (!(status = converter->WaitFor(std::chrono::milliseconds(100)))) {
      if (g_interrupted.load()) return absl::CancelledError("interrupted");
    }
    std::ifstream file(log);
    std::string words;
    std::string last;
    constexpr std::string_view kWarning = "palpate-cad: warning: ";
    while (std::getline(file, words)) {
      if (*status == 0 && words.rfind(kWarning, 0) == 0) PrintWarning(input, words.substr(kWarning.size()));
      if (!words.empty()) last = words;
    }
    if (*status == 0) return absl::OkStatus();
    if (*status == kExitFailed && last.rfind("palpate-cad: ", 0) == 0) return absl::InvalidArgumentError(last.substr(13));
    if (*status == 128 + SIGXCPU) {
      return absl::ResourceExhaustedError(absl::StrCat(input, ": more than 600 s of processor time are needed to convert it"));
    }
    if (*status > 128) {
      return absl::InvalidArgumentError(
          absl::StrFormat("%s: OpenCASCADE cannot convert it: palpate-cad was ended by signal %d", input, *status - 128));
    }
    return absl::InternalError(absl::StrFormat("%s: palpate-cad ended with status %d%s", input, *status, TailOf(log)));
  };
  const absl::Status status = run();
  fs::remove(log, error);
  return status;
}

const std::vector<std::string> kCadEndings = {".step", ".stp", ".iges", ".igs"};
constexpr char kCadListed[] = ".step, .stp, .iges or .igs";

void AddImport(CLI::App& nurbs, Session& session) {
  struct Options {
    std::string input, output;
  };
  auto options = std::make_shared<Options>();
  auto* command = nurbs.add_subcommand("import", "read a STEP or IGES file of a CAD program; needs OpenCASCADE");
  command->add_option("FILE", options->input, "part or assembly: .step, .stp, .iges or .igs; its lengths become metres by its unit")
      ->required();
  command->add_option("-o,--output", options->output, "file to write, .nurbs.json")->required();
  command->callback([&session, options] {
    session.action = [&session, options]() -> absl::Status {
      PALPATE_RETURN_IF_ERROR(CheckEnding(options->input, kCadEndings, kCadListed));
      PALPATE_RETURN_IF_ERROR(CheckOutput(options->output, {".json"}, ".json"));
      PALPATE_RETURN_IF_ERROR(RunConverter({"import", options->input, options->output}, options->input));
      PALPATE_ASSIGN_OR_RETURN(const sim::NurbsObject object, ReadObject(options->output));
      Report(object, options->output, session.json);
      return absl::OkStatus();
    };
  });
}

void AddExport(CLI::App& nurbs, Session& session) {
  struct Options {
    std::string input, output;
  };
  auto options = std::make_shared<Options>();
  auto* command = nurbs.add_subcommand("export", "write a STEP or IGES file for CAD programs, in millimetres; needs OpenCASCADE");
  command->add_option("FILE", options->input, "object: .nurbs.json")->required();
  command->add_option("-o,--output", options->output, "file to write: .step, .stp, .iges or .igs")->required();
  command->callback([&session, options] {
    session.action = [&session, options]() -> absl::Status {
      PALPATE_RETURN_IF_ERROR(CheckOutput(options->output, kCadEndings, kCadListed));
      PALPATE_ASSIGN_OR_RETURN(const sim::NurbsObject object, ReadObject(options->input));
      PALPATE_RETURN_IF_ERROR(RunConverter({"export", options->input, options->output}, options->input));
      if (session.json) {
        absl::PrintF("%s\n", Dump(Json{{"file", options->output}, {"patches", object.patches().size()}}));
      } else {
        absl::PrintF("%s: %d patches\n", options->output, object.patches().size());
      }
      return absl::OkStatus();
    };
  });
}

}  // namespace

void AddNurbsCommands(CLI::App& app, Session& session) {
  auto* nurbs = app.add_subcommand("nurbs", "look at, make, refine and convert exact curved shapes");
  nurbs->require_subcommand(1);
  AddInfo(*nurbs, session);
  AddRefine(*nurbs, session);
  AddTessellate(*nurbs, session);
  AddShapes(*nurbs, session);
  AddImport(*nurbs, session);
  AddExport(*nurbs, session);
}

}  // namespace palpate::cli
