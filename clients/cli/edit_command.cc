#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "clients/cli/commands.h"
#include "clients/cli/console.h"
#include "clients/cli/scene_file.h"
#include "clients/cpp/scene_client.h"
#include "gpu/base/status.h"
#include "gpu/shared/energies.h"

namespace palpate::cli {
namespace {

std::map<std::string, v1::MaterialModel> MaterialModels() {
  return {
#define PALPATE_ENERGY(name, Name, api, code, text) {text, v1::MATERIAL_MODEL_##api},
      PALPATE_ELASTIC_ENERGIES(PALPATE_ENERGY)
#undef PALPATE_ENERGY
  };
}

// A large edit may take long; Ctrl-C ends the wait.
constexpr std::chrono::milliseconds kNoLimit{0};

struct JointOptions {
  std::string kind = "hinge";
  std::optional<double> speed, max_effort, target;
  double stiffness = 0, damping = 0;
  std::vector<double> length;
  bool is_free = false, is_released = false;
};

struct EditOptions {
  std::string scene_id;
  std::string file;
  bool each = false;
  std::string key;
  std::optional<uint64_t> expected_version;
  v1::Edit edit;
  std::string body;
  // Numbers of one region or blade, as they stand on the line.
  std::vector<double> ball, capsule, edges;
  std::vector<uint64_t> tets, triangles;
  std::string zone;
  JointOptions joint;
};

void SetVec3(const double* values, v1::Vec3& v) {
  v.set_x(values[0]);
  v.set_y(values[1]);
  v.set_z(values[2]);
}

absl::Status FillRegion(const EditOptions& options, v1::EditRegion& region) {
  const int given = int{!options.ball.empty()} + int{!options.capsule.empty()} + int{!options.tets.empty()} +
                    int{!options.triangles.empty()} + int{!options.zone.empty()};
  if (given != 1) return absl::InvalidArgumentError("give one of --ball, --capsule, --tet, --triangle, --zone: where to edit");
  if (!options.ball.empty()) {
    SetVec3(options.ball.data(), *region.mutable_ball()->mutable_center_m());
    region.mutable_ball()->set_radius_m(options.ball[3]);
  } else if (!options.capsule.empty()) {
    SetVec3(options.capsule.data(), *region.mutable_capsule()->mutable_end0_m());
    SetVec3(options.capsule.data() + 3, *region.mutable_capsule()->mutable_end1_m());
    region.mutable_capsule()->set_radius_m(options.capsule[6]);
  } else if (!options.tets.empty()) {
    region.mutable_tets()->mutable_ids()->Add(options.tets.begin(), options.tets.end());
  } else if (!options.triangles.empty()) {
    region.mutable_triangles()->mutable_ids()->Add(options.triangles.begin(), options.triangles.end());
  } else {
    region.set_zone(options.zone);
  }
  return absl::OkStatus();
}

/// What drives a joint, by the kind that it has.
absl::Status FillJoint(const JointOptions& in, v1::JointEdit& edit) {
  const int given =
      int{in.speed.has_value()} + int{in.target.has_value()} + int{in.is_free} + int{in.is_released} + int{!in.length.empty()};
  if (given != 1)
    return absl::InvalidArgumentError("give one of --speed, --target, --free, --length, --release: what the joint does from now on");
  if (in.is_released) {
    edit.mutable_release();
    return absl::OkStatus();
  }
  if (!in.length.empty()) {
    edit.mutable_distance()->set_min_m(in.length[0]);
    edit.mutable_distance()->set_max_m(in.length[1]);
    return absl::OkStatus();
  }
  if (in.kind == "hinge") {
    v1::TurnDrive& drive = *edit.mutable_turn();
    if (in.speed) drive.mutable_motor()->set_speed_rad_per_s(*in.speed);
    if (in.speed && in.max_effort) drive.mutable_motor()->set_max_torque_n_m(*in.max_effort);
    if (!in.target) return absl::OkStatus();
    drive.mutable_spring()->set_angle_rad(*in.target);
    drive.mutable_spring()->set_stiffness_n_m_per_rad(in.stiffness);
    drive.mutable_spring()->set_damping_n_m_s_per_rad(in.damping);
  } else if (in.kind == "slider") {
    v1::ShiftDrive& drive = *edit.mutable_shift();
    if (in.speed) drive.mutable_motor()->set_speed_m_per_s(*in.speed);
    if (in.speed && in.max_effort) drive.mutable_motor()->set_max_force_n(*in.max_effort);
    if (!in.target) return absl::OkStatus();
    drive.mutable_spring()->set_position_m(*in.target);
    drive.mutable_spring()->set_stiffness_n_per_m(in.stiffness);
    drive.mutable_spring()->set_damping_n_s_per_m(in.damping);
  } else if (in.target) {
    edit.mutable_spring()->set_rest_length_m(*in.target);
    edit.mutable_spring()->set_stiffness_n_per_m(in.stiffness);
    edit.mutable_spring()->set_damping_n_s_per_m(in.damping);
  } else {
    return absl::InvalidArgumentError("a spring has --target, its length at rest, with --stiffness and --damping");
  }
  return absl::OkStatus();
}

/// The requests of a line: one, or with --each one for each edit of the file.
absl::StatusOr<std::vector<v1::EditSceneRequest>> Requests(const EditOptions& options) {
  v1::EditSceneRequest request;
  if (!options.file.empty()) {
    PALPATE_ASSIGN_OR_RETURN(request, ReadEditFile(options.file));
  } else {
    v1::Edit& edit = *request.add_edits() = options.edit;
    edit.set_body(options.body);
    if (edit.has_carve()) PALPATE_RETURN_IF_ERROR(FillRegion(options, *edit.mutable_carve()->mutable_region()));
    if (edit.has_refine()) PALPATE_RETURN_IF_ERROR(FillRegion(options, *edit.mutable_refine()->mutable_region()));
    if (edit.has_material()) edit.mutable_material()->set_zone(options.zone);
    if (edit.has_joint()) PALPATE_RETURN_IF_ERROR(FillJoint(options.joint, *edit.mutable_joint()));
    for (size_t i = 0; i + 5 < options.edges.size(); i += 6) {
      v1::BladeEdge& edge = *edit.mutable_incise()->add_edges();
      SetVec3(options.edges.data() + i, *edge.mutable_end0_m());
      SetVec3(options.edges.data() + i + 3, *edge.mutable_end1_m());
    }
  }
  request.set_scene_id(options.scene_id);
  if (!options.key.empty()) request.set_key(options.key);
  if (options.expected_version) request.set_expected_topology_version(*options.expected_version);
  if (!options.each) return std::vector<v1::EditSceneRequest>{std::move(request)};
  std::vector<v1::EditSceneRequest> requests;
  for (int i = 0; i < request.edits_size(); ++i) {
    v1::EditSceneRequest& one = requests.emplace_back(request);
    if (i > 0) one.clear_expected_topology_version();
    if (!one.key().empty()) one.set_key(absl::StrCat(request.key(), "-", i));
    *one.mutable_edits(0) = request.edits(i);
    one.mutable_edits()->DeleteSubrange(1, one.edits_size() - 1);
  }
  return requests;
}

/// What an edit did, in words that suit its kind.
std::string DescribeOutcome(const v1::Edit& edit, const v1::EditOutcome& outcome) {
  if (edit.has_grasp()) return absl::StrFormat("%s: %d vertices grasped", edit.grasp().tool(), outcome.grasped_vertices());
  if (edit.has_release()) return absl::StrFormat("%s: released", edit.release().tool());
  if (edit.has_joint()) return absl::StrFormat("%s: %s", edit.joint().joint(), edit.joint().has_release() ? "lets go" : "driven");
  if (edit.has_material()) {
    return absl::StrFormat("%s%s: material changed", outcome.body(),
                           edit.material().zone().empty() ? "" : absl::StrCat(", zone ", edit.material().zone()));
  }
  std::vector<std::string> parts;
  const bool is_shell = !outcome.removed_triangles().empty() || !outcome.added_triangles().empty();
  const char* const what = is_shell ? "triangles" : "tets";
  const int removed = is_shell ? outcome.removed_triangles_size() : outcome.removed_tets_size();
  const int added = is_shell ? outcome.added_triangles_size() : outcome.added_tets_size();
  if (removed == 0 && added == 0) {
    parts.emplace_back("nothing changed");
  } else if (edit.has_carve()) {
    parts.push_back(absl::StrFormat("%d %s removed, %.3g g", removed, what, 1e3 * outcome.removed_mass_kg()));
    if (added > 0) parts.push_back(absl::StrFormat("%d added where edges were split", added));
  } else {
    parts.push_back(absl::StrFormat("%d %s replaced by %d, least mean ratio %.2f", removed, what, added, outcome.min_mean_ratio()));
  }
  if (outcome.unchanged_count() > 0) parts.push_back(absl::StrFormat("%d stay", outcome.unchanged_count()));
  if (!outcome.new_bodies().empty()) parts.push_back(absl::StrCat("cut off: ", absl::StrJoin(outcome.new_bodies(), ", ")));
  if (!outcome.released_markers().empty()) {
    parts.push_back(absl::StrCat("markers released: ", absl::StrJoin(outcome.released_markers(), ", ")));
  }
  if (outcome.is_refused()) parts.emplace_back("stopped by a budget");
  if (!outcome.note().empty()) parts.push_back(outcome.note());
  return absl::StrCat(outcome.body(), ": ", absl::StrJoin(parts, ", "));
}

void PrintOutcomes(const v1::EditSceneRequest& request, const v1::EditSceneResponse& response) {
  absl::PrintF("topology version %d at step %d%s\n", response.topology_version(), response.step(),
               response.is_repeat() ? ", done before" : "");
  for (int i = 0; i < response.outcomes_size(); ++i) absl::PrintF("%s\n", DescribeOutcome(request.edits(i), response.outcomes(i)));
}

absl::Status Edit(const Session& session, const EditOptions& options) {
  PALPATE_ASSIGN_OR_RETURN(const std::vector<v1::EditSceneRequest> requests, Requests(options));
  PALPATE_ASSIGN_OR_RETURN(const client::Connection connection, Connect(session));
  client::SceneClient client(connection, kNoLimit);
  for (const v1::EditSceneRequest& request : requests) {
    PALPATE_ASSIGN_OR_RETURN(const v1::EditSceneResponse response, client.Edit(request));
    if (session.json) {
      PrintJson(response);
    } else {
      PrintOutcomes(request, response);
    }
  }
  return absl::OkStatus();
}

CLI::App* AddKind(CLI::App& command, const char* name, const char* what) { return command.add_subcommand(name, what)->fallthrough(); }

void AddBody(CLI::App& kind, EditOptions& options) { kind.add_option("--body", options.body, "name of the body")->required(); }

void AddRegion(CLI::App& kind, EditOptions& options) {
  kind.add_option("--ball", options.ball, "centre and radius: X Y Z R")->expected(4);
  kind.add_option("--capsule", options.capsule, "both ends and radius: X Y Z X Y Z R")->expected(7);
  kind.add_option("--tet", options.tets, "id of a tet; may be given more than once");
  kind.add_option("--zone", options.zone, "all tets of a zone");
  kind.add_option("--triangle", options.triangles, "id of a triangle of a shell; may be given more than once");
}

void AddJoint(CLI::App& command, const std::shared_ptr<EditOptions>& options) {
  auto* kind = AddKind(command, "joint", "drive a joint in another way, or let it go");
  JointOptions& joint = options->joint;
  kind->add_option_function<std::string>(
          "--joint", [options](const std::string& name) { options->edit.mutable_joint()->set_joint(name); }, "name of the joint")
      ->required();
  kind->add_option("--kind", joint.kind, "what the joint is, for --speed, --target and --free")
      ->check(CLI::IsMember({"hinge", "slider", "spring"}))
      ->capture_default_str();
  kind->add_option("--speed", joint.speed, "a motor: rad/s or m/s; 0 is a brake");
  kind->add_option("--max-effort", joint.max_effort, "most that the motor gives: N m or N; default: whatever it takes");
  kind->add_option("--target", joint.target, "a spring's rest: rad or m");
  kind->add_option("--stiffness", joint.stiffness, "of the spring: N m/rad or N/m")->capture_default_str();
  kind->add_option("--damping", joint.damping, "of the spring: N m s/rad or N s/m")->capture_default_str();
  kind->add_option("--length", joint.length, "of a distance joint: least and most, m")->expected(2);
  kind->add_flag("--free", joint.is_free, "nothing drives it");
  kind->add_flag("--release", joint.is_released, "it holds no more until the scene is reset");
}

void AddMaterial(CLI::App& command, const std::shared_ptr<EditOptions>& options) {
  auto* kind = AddKind(command, "material", "change the material of a body or of a zone; what is not given stays as it is");
  AddBody(*kind, *options);
  kind->add_option("--zone", options->zone, "zone; default: the whole body");
  const auto add = [&](const char* name, const char* what, void (v1::MaterialSpec::*set)(double)) {
    kind->add_option_function<double>(
        name, [options, set](const double& value) { (options->edit.mutable_material()->mutable_material()->*set)(value); }, what);
  };
  add("--young-modulus", "Pa", &v1::MaterialSpec::set_young_modulus_pa);
  add("--poisson-ratio", "", &v1::MaterialSpec::set_poisson_ratio);
  add("--density", "kg/m3", &v1::MaterialSpec::set_density_kg_per_m3);
  add("--damping", "s", &v1::MaterialSpec::set_damping_s);
  add("--mass-damping", "1/s", &v1::MaterialSpec::set_mass_damping_per_s);
  add("--toughness", "J/m^2", &v1::MaterialSpec::set_fracture_toughness_j_per_m2);
  kind->add_option_function<v1::MaterialModel>(
          "--model", [options](const v1::MaterialModel& model) { options->edit.mutable_material()->mutable_material()->set_model(model); },
          "elastic energy")
      ->transform(CLI::CheckedTransformer(MaterialModels()));
  kind->callback([options] { options->edit.mutable_material(); });
}

}  // namespace

void AddEditCommand(CLI::App& app, Session& session) {
  auto options = std::make_shared<EditOptions>();
  auto* command = app.add_subcommand("edit", "cut, refine or change the tissue of a scene, between two of its steps");
  command->require_subcommand(0, 1);
  command->add_option("ID", options->scene_id, "scene id, see `palpate scene list`")->required();
  auto* file = command->add_option("--file", options->file, "edits from a file: the JSON form of palpate.v1.EditSceneRequest");
  command->add_flag("--each", options->each, "a request for each edit of the file, so that steps may come between")->needs(file);
  command->add_option("--key", options->key, "a repeat with the same key is not performed again; at most 64 bytes");
  command->add_option("--expected-version", options->expected_version, "refuse if the topology has another version");

  auto* carve = AddKind(*command, "carve", "take tissue out");
  AddBody(*carve, *options);
  AddRegion(*carve, *options);
  carve->callback([options] { options->edit.mutable_carve(); });

  auto* refine = AddKind(*command, "refine", "split tets, or triangles of a shell, until no edge is longer");
  AddBody(*refine, *options);
  AddRegion(*refine, *options);
  refine
      ->add_option_function<double>(
          "--max-edge", [options](const double& value) { options->edit.mutable_refine()->set_max_edge_m(value); }, "m, at rest")
      ->required();
  refine->add_option_function<uint32_t>(
      "--tet-budget", [options](const uint32_t& value) { options->edit.mutable_refine()->set_tet_budget(value); },
      "most tets of the body afterwards");
  refine->add_option_function<uint32_t>(
      "--triangle-budget", [options](const uint32_t& value) { options->edit.mutable_refine()->set_triangle_budget(value); },
      "most triangles of a shell afterwards");

  auto* incise = AddKind(*command, "incise", "move a blade through the tissue");
  AddBody(*incise, *options);
  incise->add_option("--edge", options->edges, "where the cutting edge is, both ends: X Y Z X Y Z; two or more in turn")
      ->required()
      ->type_size(6)
      ->expected(2, 1024);
  incise->callback([options] { options->edit.mutable_incise(); });

  AddMaterial(*command, options);
  AddJoint(*command, options);

  auto* grasp = AddKind(*command, "grasp", "take hold of the tissue at the jaws of a tool");
  grasp
      ->add_option_function<std::string>(
          "--tool", [options](const std::string& tool) { options->edit.mutable_grasp()->set_tool(tool); }, "name of the tool")
      ->required();
  grasp->add_option_function<double>(
      "--radius", [options](const double& value) { options->edit.mutable_grasp()->set_radius_m(value); },
      "m around the tip; default: what lies between the jaws");
  auto* release = AddKind(*command, "release", "let go of what a tool holds");
  release
      ->add_option_function<std::string>(
          "--tool", [options](const std::string& tool) { options->edit.mutable_release()->set_tool(tool); }, "name of the tool")
      ->required();

  command->callback([&session, options, command] {
    if (options->file.empty() == command->get_subcommands().empty()) {
      throw CLI::ValidationError("edit", "give an edit (carve, refine, incise, material, grasp, release, joint) or --file");
    }
    session.action = [&session, options] { return Edit(session, *options); };
  });
}

}  // namespace palpate::cli
