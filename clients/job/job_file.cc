#include "clients/job/job_file.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <unordered_set>
#include <utility>

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "clients/job/durable_file.h"
#include "clients/job/field_path.h"
#include "clients/job/json_text.h"
#include "gpu/base/status.h"
#include "sim/probe/probe_set.h"
#include "sim/record/asset_store.h"
#include "sim/scene/asset_resolver.h"
#include "sim/scene/checker.h"
#include "sim/scene/edit_request.h"
#include "sim/scene/scene_spec.h"

namespace palpate::job {
namespace {

using scene::At;
using scene::Checker;

constexpr size_t kMaxNameBytes = 128;
constexpr int kMaxConditions = 64;
constexpr double kMaxScale = 1e3;
constexpr double kMaxPower_w = 1000;
constexpr double kMaxJawAngle_rad = 3;

/// The same message gives the same bytes.
std::string StableBytes(const google::protobuf::Message& message) {
  std::string bytes;
  google::protobuf::io::StringOutputStream stream(&bytes);
  google::protobuf::io::CodedOutputStream coded(&stream);
  coded.SetSerializationDeterministic(true);
  message.SerializeToCodedStream(&coded);
  coded.Trim();
  return bytes;
}

void CheckInterval(Checker& check, const std::string& path, bool is_given, double interval_s) {
  if (is_given) check.RangeAbove(path, interval_s, 0, kMaxTime_s);
}

void CheckPower(Checker& check, const std::string& path, double power_w, double duty) {
  check.Range(At(path, "power_w"), power_w, 0, kMaxPower_w);
  check.Range(At(path, "duty"), duty, 0, 1);
}

void CheckTrajectory(Checker& check, const std::string& path, const v1::Trajectory& trajectory) {
  check.Count(At(path, "keys"), trajectory.keys_size(), 1, kMaxKeys);
  if (!v1::Interpolation_IsValid(trajectory.interpolation())) check.Invalid(At(path, "interpolation"), "is none of the list");
  double before_s = -1;
  for (int k = 0; k < trajectory.keys_size() && check.ok(); ++k) {
    const v1::KeyPose& key = trajectory.keys(k);
    const std::string at = At(At(path, "keys"), k);
    check.Range(At(at, "time_s"), key.time_s(), 0, kMaxTime_s);
    if (key.time_s() <= before_s) {
      check.Invalid(At(at, "time_s"), absl::StrCat(key.time_s(), " is not after that of the key before, ", before_s));
    }
    before_s = key.time_s();
    if (key.has_pose()) check.Pose(At(at, "pose"), key.pose());
    if (key.has_jaw_angle_rad()) check.Range(At(at, "jaw_angle_rad"), key.jaw_angle_rad(), 0, kMaxJawAngle_rad);
    CheckPower(check, at, key.power_w(), key.duty());
  }
}

void CheckRecording(Checker& check, const std::string& path, const v1::HandRecording& recording) {
  if (recording.file().empty()) check.Invalid(At(path, "file"), "is required");
  check.Range(At(path, "start_s"), recording.start_s(), 0, kMaxTime_s);
  if (recording.has_scale()) check.Range(At(path, "scale"), recording.scale(), 1 / kMaxScale, kMaxScale);
  if (recording.has_rotation()) {
    v1::Pose pose;
    *pose.mutable_rotation() = recording.rotation();
    check.Pose(path, pose);
  }
  if (recording.has_origin_m())
    check.RangeVec(At(path, "origin_m"), recording.origin_m(), -scene::kMaxCoordinate_m, scene::kMaxCoordinate_m);
  if (recording.has_pedal_button()) check.Range(At(path, "pedal_button"), recording.pedal_button(), 0, 31);
  if (recording.has_open_jaw_angle_rad()) {
    check.RangeAbove(At(path, "open_jaw_angle_rad"), recording.open_jaw_angle_rad(), 0, kMaxJawAngle_rad);
  }
  CheckPower(check, path, recording.power_w(), recording.duty());
}

void CheckTools(Checker& check, const v1::Job& job) {
  std::unordered_set<std::string> seen;
  for (int t = 0; t < job.tools_size() && check.ok(); ++t) {
    const v1::JobTool& tool = job.tools(t);
    const std::string path = At("tools", t);
    check.RequiredName(At(path, "tool"), tool.tool(), scene::kMaxNameBytes);
    check.Unique(At(path, "tool"), tool.tool(), seen);
    if (tool.has_trajectory()) {
      CheckTrajectory(check, At(path, "trajectory"), tool.trajectory());
    } else if (tool.has_recording()) {
      CheckRecording(check, At(path, "recording"), tool.recording());
    } else if (tool.has_replay()) {
      if (tool.replay().file().empty()) check.Invalid(At(path, "replay.file"), "is required");
      check.Range(At(path, "replay.start_s"), tool.replay().start_s(), 0, kMaxTime_s);
      check.Name(At(path, "replay.tool"), tool.replay().tool(), scene::kMaxNameBytes);
    } else {
      check.Invalid(path, "no motion is given; one of trajectory, recording, replay is needed");
    }
  }
  for (int t = 0; t < job.policy().tools_size() && check.ok(); ++t) {
    const std::string path = At("policy.tools", t);
    check.RequiredName(path, job.policy().tools(t), scene::kMaxNameBytes);
    if (!seen.insert(job.policy().tools(t)).second) {
      check.Invalid(path, absl::StrCat("\"", job.policy().tools(t), "\" is moved by something else already"));
    }
  }
}

void CheckEdits(Checker& check, const v1::Job& job) {
  double before_s = 0;
  for (int e = 0; e < job.edits_size() && check.ok(); ++e) {
    const v1::JobEdits& edits = job.edits(e);
    const std::string path = At("edits", e);
    check.Range(At(path, "time_s"), edits.time_s(), 0, kMaxTime_s);
    if (edits.time_s() < before_s) {
      check.Invalid(At(path, "time_s"), absl::StrCat(edits.time_s(), " is before that of the entry before, ", before_s));
    }
    before_s = edits.time_s();
    v1::EditSceneRequest request;
    *request.mutable_edits() = edits.edits();
    check.Fail(Annotate(scene::ValidateEditRequest(request), path));
  }
}

void CheckPolicy(Checker& check, const v1::JobPolicy& policy) {
  if (policy.has_library()) {
    if (policy.library().file().empty()) check.Invalid("policy.library.file", "is required");
  } else if (policy.has_program()) {
    check.Count("policy.program.command", policy.program().command_size(), 1, 1024);
    if (policy.program().has_timeout_s()) check.Range("policy.program.timeout_s", policy.program().timeout_s(), 0.001, 86400);
  } else {
    check.Invalid("policy", "no kind is given; one of library, program is needed");
  }
  check.Count("policy.observations", policy.observations_size(), 0, static_cast<int64_t>(sim::kMaxProbes));
  CheckInterval(check, "policy.interval_s", policy.has_interval_s(), policy.interval_s());
}

void CheckStop(Checker& check, const v1::JobStop& stop) {
  if (stop.has_duration_s()) check.RangeAbove("stop.duration_s", stop.duration_s(), 0, kMaxTime_s);
  if (stop.has_steps()) check.Range("stop.steps", static_cast<double>(stop.steps()), 1, kMaxSteps);
  if (!stop.has_duration_s() && !stop.has_steps()) {
    check.Invalid("stop", "duration_s or steps is required, so that the job ends in any case");
  }
  check.Count("stop.conditions", stop.conditions_size(), 0, kMaxConditions);
  for (int c = 0; c < stop.conditions_size() && check.ok(); ++c) {
    const v1::JobCondition& condition = stop.conditions(c);
    const std::string path = At("stop.conditions", c);
    if (condition.probe().empty()) check.Invalid(At(path, "probe"), "is required");
    if (!condition.has_above() && !condition.has_below()) check.Invalid(path, "no bound is given; one of above, below is needed");
    check.Finite(At(path, "above"), condition.above());
    check.Finite(At(path, "below"), condition.below());
    check.Range(At(path, "hold_s"), condition.hold_s(), 0, kMaxTime_s);
    check.Range(At(path, "start_s"), condition.start_s(), 0, kMaxTime_s);
    check.Name(At(path, "name"), condition.name(), kMaxNameBytes);
  }
  if (!stop.has_equilibrium()) return;
  const v1::JobEquilibrium& rest = stop.equilibrium();
  if (!rest.has_max_speed_m_per_s() && !rest.has_kinetic_energy_j()) {
    check.Invalid("stop.equilibrium", "max_speed_m_per_s or kinetic_energy_j is required");
  }
  if (rest.has_max_speed_m_per_s()) check.RangeAbove("stop.equilibrium.max_speed_m_per_s", rest.max_speed_m_per_s(), 0, 1e6);
  if (rest.has_kinetic_energy_j()) check.RangeAbove("stop.equilibrium.kinetic_energy_j", rest.kinetic_energy_j(), 0, 1e9);
  check.Range("stop.equilibrium.hold_s", rest.hold_s(), 0, kMaxTime_s);
  check.Range("stop.equilibrium.start_s", rest.start_s(), 0, kMaxTime_s);
}

/// Of messages that are big: each entry of `overrides` is applied to a copy, so that an error leaves nothing behind.
absl::Status ApplyOverrides(v1::Job* job, v1::SceneSpec* scene) {
  std::vector<std::pair<std::string, google::protobuf::Value>> overrides(job->overrides().begin(), job->overrides().end());
  std::sort(overrides.begin(), overrides.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  job->clear_overrides();
  for (const auto& [path, value] : overrides) {
    absl::string_view field = path;
    const bool is_of_job = absl::ConsumePrefix(&field, "job.");
    google::protobuf::Message* message = scene;
    if (is_of_job) message = job;
    for (const char* fixed : {"scene", "overrides", "sweep", "folder"}) {
      if (!is_of_job || !absl::StartsWith(field, fixed)) continue;
      return absl::InvalidArgumentError(absl::StrCat(
          "overrides: \"", path, "\": fields of the scene are given without \"job.\", and overrides, sweep and folder cannot be"));
    }
    PALPATE_RETURN_IF_ERROR(Annotate(SetField(message, {field.data(), field.size()}, value), "overrides"));
  }
  return absl::OkStatus();
}

absl::Status AddInput(const std::string& name, const std::filesystem::path& path, std::string_view field, std::vector<InputFile>* inputs) {
  auto hash = record::Sha256OfFile(path);
  if (!hash.ok()) return Annotate(hash.status(), field);
  std::error_code error;
  inputs->push_back({name, path, std::filesystem::file_size(path, error), *std::move(hash)});
  return absl::OkStatus();
}

/// A mesh may be more than one file.
absl::Status AddMesh(const std::string& name, const std::filesystem::path& path, std::string_view field, std::vector<InputFile>* inputs) {
  const auto files = record::ReadAsset(name, path);
  if (!files.ok()) return Annotate(files.status(), field);
  for (const record::AssetFile& file : *files) {
    const std::filesystem::path of_file = path.parent_path() / std::filesystem::path(file.name).filename();
    inputs->push_back({file.name, of_file, file.content.size(), record::Sha256(file.content)});
  }
  return absl::OkStatus();
}

absl::Status ListInputs(LoadedJob* loaded, const std::string& scene_file) {
  const v1::Job& job = loaded->job;
  std::vector<InputFile>* inputs = &loaded->inputs;
  if (!scene_file.empty()) PALPATE_RETURN_IF_ERROR(AddInput(scene_file, loaded->PathOf(scene_file), "scene_file", inputs));
  const scene::SceneFolderResolver assets(loaded->scene_folder);
  for (int b = 0; b < loaded->scene.bodies_size(); ++b) {
    const v1::BodySpec& body = loaded->scene.bodies(b);
    if (body.has_nurbs() && body.nurbs().has_file()) {
      const std::string field = At(At("bodies", b), "nurbs.file");
      const auto path = assets.Resolve(body.nurbs().file());
      if (!path.ok()) return Annotate(path.status(), field);
      PALPATE_RETURN_IF_ERROR(AddInput(body.nurbs().file(), *path, field, inputs));
      continue;
    }
    const bool is_shell = body.has_shell() && body.shell().has_mesh_file();
    if (body.geometry_case() != v1::BodySpec::kMeshFile && !is_shell) continue;
    const std::string field = At(At("bodies", b), is_shell ? "shell.mesh_file" : "mesh_file");
    const std::string& file = is_shell ? body.shell().mesh_file() : body.mesh_file();
    const auto path = assets.Resolve(file);
    if (!path.ok()) return Annotate(path.status(), field);
    PALPATE_RETURN_IF_ERROR(AddMesh(file, *path, field, inputs));
  }
  for (int t = 0; t < job.tools_size(); ++t) {
    const v1::JobTool& tool = job.tools(t);
    if (!tool.has_recording() && !tool.has_replay()) continue;
    const std::string& file = tool.has_replay() ? tool.replay().file() : tool.recording().file();
    const std::string field = At(At("tools", t), tool.has_replay() ? "replay.file" : "recording.file");
    PALPATE_RETURN_IF_ERROR(AddInput(file, loaded->PathOf(file), field, inputs));
  }
  if (job.policy().has_library()) {
    const std::string& file = job.policy().library().file();
    PALPATE_RETURN_IF_ERROR(AddInput(file, loaded->PathOf(file), "policy.library.file", inputs));
  }
  // Of a program those arguments that are files: the script behind the interpreter.
  for (const std::string& argument : job.policy().program().command()) {
    const std::filesystem::path path = loaded->PathOf(argument);
    std::error_code error;
    if (std::filesystem::is_regular_file(path, error)) PALPATE_RETURN_IF_ERROR(AddInput(argument, path, "policy.program.command", inputs));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<v1::Job> ParseJobJson(std::string_view text, std::string_view display_name) {
  v1::Job job;
  PALPATE_RETURN_IF_ERROR(ParseJsonMessage(text, display_name, &job));
  return job;
}

absl::StatusOr<v1::Job> ReadJobFile(const std::filesystem::path& path) {
  PALPATE_ASSIGN_OR_RETURN(const std::string text, ReadJsonFile(path, "a job file"));
  return ParseJobJson(text, path.string());
}

absl::StatusOr<v1::SceneSpec> ResolveScene(const std::filesystem::path& file, v1::Job* job, std::filesystem::path* scene_folder) {
  v1::SceneSpec scene;
  const std::filesystem::path folder = FolderOf(*job, file);
  *scene_folder = folder;
  if (job->has_scene()) {
    scene = std::move(*job->mutable_scene());
  } else if (job->has_scene_file()) {
    const std::filesystem::path path = folder / job->scene_file();
    const auto text = ReadJsonFile(path, "a scene file");
    if (!text.ok()) return Annotate(text.status(), "scene_file");
    PALPATE_ASSIGN_OR_RETURN(scene, scene::ParseSceneJson(*text, path.string()));
    *scene_folder = path.parent_path();
  } else {
    return absl::InvalidArgumentError("no scene is given; one of scene, scene_file is needed");
  }
  job->clear_source();
  PALPATE_RETURN_IF_ERROR(ApplyOverrides(job, &scene));
  return scene;
}

absl::Status ValidateJob(const v1::Job& job) {
  Checker check;
  check.Name("name", job.name(), kMaxNameBytes);
  CheckTools(check, job);
  CheckEdits(check, job);
  if (job.has_policy()) CheckPolicy(check, job.policy());
  CheckStop(check, job.stop());
  check.Count("probes", job.probes_size(), 0, static_cast<int64_t>(sim::kMaxProbes));
  CheckInterval(check, "outputs.probe_interval_s", job.outputs().has_probe_interval_s(), job.outputs().probe_interval_s());
  const v1::JobGeometry& geometry = job.outputs().geometry();
  CheckInterval(check, "outputs.geometry.interval_s", geometry.has_interval_s(), geometry.interval_s());
  if (!v1::JobGeometryKind_IsValid(geometry.kind())) check.Invalid("outputs.geometry.kind", "is none of the list");
  const v1::JobCheckpoints& checkpoints = job.checkpoints();
  if (checkpoints.has_interval_s()) check.Range("checkpoints.interval_s", checkpoints.interval_s(), 0, 86400);
  if (checkpoints.has_interval_steps()) {
    check.Range("checkpoints.interval_steps", static_cast<double>(checkpoints.interval_steps()), 1, kMaxSteps);
  }
  check.Range("seed", static_cast<double>(job.seed()), 0, kMaxSeed);
  return check.status();
}

absl::StatusOr<LoadedJob> LoadJob(v1::Job job, const std::filesystem::path& file) {
  const auto load = [&]() -> absl::StatusOr<LoadedJob> {
    LoadedJob loaded;
    loaded.file = file;
    loaded.folder = FolderOf(job, file);
    const std::string scene_file = job.has_scene_file() ? job.scene_file() : "";
    job.clear_sweep();
    PALPATE_ASSIGN_OR_RETURN(loaded.scene, ResolveScene(file, &job, &loaded.scene_folder));
    PALPATE_RETURN_IF_ERROR(ValidateJob(job));
    PALPATE_RETURN_IF_ERROR(scene::ValidateSceneSpec(loaded.scene, scene::SceneLimits()));
    loaded.job = std::move(job);
    PALPATE_RETURN_IF_ERROR(ListInputs(&loaded, scene_file));
    // How often the job is saved does not change what comes out.
    v1::Job hashed = loaded.job;
    hashed.clear_checkpoints();
    hashed.clear_folder();
    std::string all = absl::StrCat(StableBytes(hashed), "\n", StableBytes(loaded.scene));
    for (const InputFile& input : loaded.inputs) absl::StrAppend(&all, "\n", input.name, " ", input.hash);
    loaded.hash = record::Sha256(all);
    return loaded;
  };
  auto loaded = load();
  if (!loaded.ok()) return Annotate(loaded.status(), file.string());
  return loaded;
}

absl::StatusOr<sim::SceneDescription> BuildScene(const LoadedJob& loaded) {
  return BuildScene(loaded, scene::SceneFolderResolver(loaded.scene_folder));
}

absl::StatusOr<sim::SceneDescription> BuildScene(const LoadedJob& loaded, const scene::AssetResolver& assets) {
  auto description = scene::BuildSceneDescription(loaded.scene, assets, scene::SceneLimits());
  if (!description.ok()) return Annotate(description.status(), loaded.file.string());
  return description;
}

std::filesystem::path FolderOf(const v1::Job& job, const std::filesystem::path& file) {
  return (file.parent_path() / job.folder()).lexically_normal();
}

std::string NameOf(const v1::Job& job, const std::filesystem::path& file) { return job.name().empty() ? file.stem().string() : job.name(); }

}  // namespace palpate::job
