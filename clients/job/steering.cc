#include "clients/job/steering.h"

#include <algorithm>
#include <fstream>
#include <utility>

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/util/delimited_message_util.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gpu/base/status.h"
#include "sim/record/journal_entries.h"
#include "sim/scene/checker.h"
#include "sim/scene/edit_request.h"
#include "sim/scene/scene_spec.h"

namespace palpate::job {
namespace {

using scene::At;

constexpr double kTimeTolerance = 1e-6;  // as a share of a step
constexpr double kMaxToolSpeed_m_per_s = 1000;

/// Tells answers apart.
uint64_t HashOf(const v1::PolicyAnswer& answer) {
  uint64_t hash = 14695981039346656037ULL;  // FNV-1a
  for (const char c : answer.SerializeAsString()) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ULL;
  return hash;
}

absl::StatusOr<uint32_t> ToolNamed(const std::vector<sim::ToolDescription>& tools, const std::string& name, const std::string& path) {
  std::vector<std::string> there;
  for (uint32_t t = 0; t < tools.size(); ++t) {
    if (tools[t].name == name) return t;
    there.push_back(tools[t].name);
  }
  return absl::NotFoundError(
      absl::StrCat(path, ": the scene has no tool \"", name, "\"; it has: ", there.empty() ? "none" : absl::StrJoin(there, ", ")));
}

void ToProto(const sim::ToolCommand& command, v1::ToolTarget* out) {
  const Eigen::Vector3d& p = command.device_pose.position_m;
  const Eigen::Quaterniond& q = command.device_pose.rotation;
  v1::Vec3& position = *out->mutable_pose()->mutable_position_m();
  position.set_x(p.x());
  position.set_y(p.y());
  position.set_z(p.z());
  v1::Quaternion& rotation = *out->mutable_pose()->mutable_rotation();
  rotation.set_w(q.w());
  rotation.set_x(q.x());
  rotation.set_y(q.y());
  rotation.set_z(q.z());
  out->mutable_velocity_m_per_s()->set_x(command.velocity_m_per_s.x());
  out->mutable_velocity_m_per_s()->set_y(command.velocity_m_per_s.y());
  out->mutable_velocity_m_per_s()->set_z(command.velocity_m_per_s.z());
  out->set_jaw_angle_rad(command.jaw_angle_rad);
  out->set_pedal(command.pedal);
  out->set_power_w(command.power_w);
  out->set_duty(command.duty);
}

/// Bit for bit what ToProto had: nothing is normalised anew.
sim::ToolCommand FromProto(const v1::ToolTarget& target) {
  sim::ToolCommand command;
  const v1::Quaternion& q = target.pose().rotation();
  command.device_pose.position_m = scene::ToEigen(target.pose().position_m());
  command.device_pose.rotation = Eigen::Quaterniond(q.w(), q.x(), q.y(), q.z());
  command.velocity_m_per_s = scene::ToEigen(target.velocity_m_per_s());
  command.jaw_angle_rad = target.jaw_angle_rad();
  command.pedal = target.pedal();
  command.power_w = target.power_w();
  command.duty = target.duty();
  return command;
}

}  // namespace

Steering::Steering(const LoadedJob& loaded, const sim::SceneDescription& scene)
    : loaded_(&loaded),
      dt_s_(scene.dt_s),
      tools_(scene.tools),
      motions_(scene.tools.size()),
      targets_(scene.tools.size()),
      commands_(scene.tools.size()),
      pointers_(scene.tools.size()) {}

absl::StatusOr<Steering> Steering::Make(const LoadedJob& loaded, const sim::SceneDescription& scene) {
  Steering steering(loaded, scene);
  PALPATE_RETURN_IF_ERROR(steering.AddMotions(scene));
  if (loaded.job.has_policy()) PALPATE_RETURN_IF_ERROR(steering.AddControl(scene));
  return steering;
}

absl::Status Steering::AddMotions(const sim::SceneDescription& scene) {
  for (int i = 0; i < loaded_->job.tools_size(); ++i) {
    const v1::JobTool& tool = loaded_->job.tools(i);
    const std::string path = At("tools", i);
    PALPATE_ASSIGN_OR_RETURN(const uint32_t t, ToolNamed(scene.tools, tool.tool(), At(path, "tool")));
    if (tool.has_trajectory()) {
      PALPATE_ASSIGN_OR_RETURN(motions_[t], MakeTrajectory(tool.trajectory(), scene.tools[t], At(path, "trajectory")));
    } else if (tool.has_replay()) {
      PALPATE_ASSIGN_OR_RETURN(motions_[t],
                               MakeReplay(tool.replay(), loaded_->PathOf(tool.replay().file()), scene.tools[t], At(path, "replay")));
    } else {
      PALPATE_ASSIGN_OR_RETURN(
          motions_[t], MakeRecordedHand(tool.recording(), loaded_->PathOf(tool.recording().file()), scene.tools[t], At(path, "recording")));
    }
  }
  return absl::OkStatus();
}

absl::Status Steering::AddControl(const sim::SceneDescription& scene) {
  const v1::JobPolicy& policy = loaded_->job.policy();
  const std::vector<std::string> paths(policy.observations().begin(), policy.observations().end());
  auto probes = sim::ProbeSet::Parse(paths, scene);
  if (!probes.ok()) return Annotate(probes.status(), "policy.observations");
  control_.probes = *std::move(probes);
  control_.interval_steps = policy.has_interval_s() ? StepsIn(policy.interval_s(), dt_s_) : 1;
  control_.setup = {.job = NameOf(loaded_->job, loaded_->file),
                    .dt_s = dt_s_,
                    .interval_s = static_cast<double>(control_.interval_steps) * dt_s_,
                    .seed = loaded_->job.seed(),
                    .observations = control_.probes.columns(),
                    .tools = {}};
  for (int i = 0; i < policy.tools_size(); ++i) {
    PALPATE_ASSIGN_OR_RETURN(const uint32_t t, ToolNamed(scene.tools, policy.tools(i), At("policy.tools", i)));
    control_.tools.push_back(t);
    control_.setup.tools.push_back(scene.tools[t]);
  }
  return absl::OkStatus();
}

absl::Status Steering::OpenPolicy(const std::filesystem::path& folder) {
  const v1::JobPolicy& policy = loaded_->job.policy();
  if (policy.has_library()) {
    PALPATE_ASSIGN_OR_RETURN(control_.policy,
                             OpenPolicyLibrary(loaded_->PathOf(policy.library().file()), policy.library().options(), control_.setup));
  } else {
    PALPATE_ASSIGN_OR_RETURN(control_.policy, StartPolicyProgram(policy.program(), loaded_->folder, folder / "policy.log", control_.setup));
  }
  return absl::OkStatus();
}

absl::Status Steering::Begin(const std::filesystem::path& folder) {
  if (!loaded_->job.has_policy()) return absl::OkStatus();
  PALPATE_ASSIGN_OR_RETURN(control_.record, GrowingFile::Open(folder / "policy.record", 0));
  return OpenPolicy(folder);
}

absl::Status Steering::Resume(const std::filesystem::path& folder, const v1::JobState& state) {
  next_edits_ = static_cast<int>(state.next_edits());
  edit_count_ = state.edit_count();
  removed_mass_kg_ = state.removed_mass_kg();
  for (const v1::ToolTarget& target : state.targets()) {
    if (target.tool_index() >= targets_.size()) return absl::DataLossError("the checkpoint has a tool that the scene does not have");
    targets_[target.tool_index()] = FromProto(target);
  }
  if (!loaded_->job.has_policy()) return absl::OkStatus();
  const std::filesystem::path file = folder / "policy.record";
  PALPATE_ASSIGN_OR_RETURN(control_.record, GrowingFile::Open(file, state.policy_bytes()));
  PALPATE_RETURN_IF_ERROR(OpenPolicy(folder));
  // Piece by piece: of a long job it may be larger than memory.
  std::ifstream bytes(file, std::ios::binary);
  if (!bytes) return absl::DataLossError(absl::StrCat(file.string(), ": cannot be read"));
  google::protobuf::io::IstreamInputStream stream(&bytes);
  bool is_at_end = false;
  while (true) {
    v1::PolicyRecord record;
    if (!google::protobuf::util::ParseDelimitedFromZeroCopyStream(&record, &stream, &is_at_end)) break;
    const std::vector<double> observations(record.observations().begin(), record.observations().end());
    PALPATE_ASSIGN_OR_RETURN(const v1::PolicyAnswer answer, control_.policy->Decide(record.step(), record.time_s(), observations));
    if (HashOf(answer) == record.answer_hash()) continue;
    return absl::FailedPreconditionError(absl::StrCat("the policy does not answer as before at step ", record.step(),
                                                      ", so that the job cannot go on: its answers may depend on its observations and the "
                                                      "seed alone"));
  }
  return is_at_end ? absl::OkStatus() : absl::DataLossError(absl::StrCat(file.string(), ": is damaged"));
}

absl::Status Steering::Save(v1::JobState* state) {
  state->set_next_edits(static_cast<uint32_t>(next_edits_));
  state->set_edit_count(edit_count_);
  state->set_removed_mass_kg(removed_mass_kg_);
  for (uint32_t t = 0; t < targets_.size(); ++t) {
    if (!targets_[t]) continue;
    v1::ToolTarget& target = *state->add_targets();
    target.set_tool_index(t);
    ToProto(*targets_[t], &target);
  }
  if (!control_.record.is_open()) return absl::OkStatus();
  PALPATE_RETURN_IF_ERROR(control_.record.Flush(true));
  state->set_policy_bytes(control_.record.size_bytes());
  return absl::OkStatus();
}

absl::Status Steering::Perform(sim::World& world, const google::protobuf::RepeatedPtrField<v1::Edit>& edits, const std::string& where) {
  v1::EditSceneRequest request;
  *request.mutable_edits() = edits;
  PALPATE_RETURN_IF_ERROR(Annotate(scene::ValidateEditRequest(request), where));
  const auto built = scene::BuildEdits(request, record::EditTargetsOf(world));
  if (!built.ok()) return Annotate(built.status(), where);
  const auto outcomes = world.Apply(*built);
  if (!outcomes.ok()) return Annotate(outcomes.status(), where);
  edit_count_ += outcomes->size();
  for (const sim::EditOutcome& outcome : *outcomes) removed_mass_kg_ += outcome.removed_mass_kg;
  return absl::OkStatus();
}

absl::StatusOr<v1::PolicyAnswer> Steering::AskPolicy(sim::World& world) {
  const std::shared_ptr<const sim::Frame> frame = world.CurrentFrame();
  std::vector<double> observations(control_.probes.columns().size());
  control_.probes.Evaluate(*frame, observations, &world);
  PALPATE_ASSIGN_OR_RETURN(v1::PolicyAnswer answer, control_.policy->Decide(frame->step, frame->sim_time_s, observations));
  v1::PolicyRecord record;
  record.set_step(frame->step);
  record.set_time_s(frame->sim_time_s);
  record.mutable_observations()->Add(observations.begin(), observations.end());
  record.set_answer_hash(HashOf(answer));
  std::string bytes;
  google::protobuf::io::StringOutputStream stream(&bytes);
  google::protobuf::util::SerializeDelimitedToZeroCopyStream(record, &stream);
  PALPATE_RETURN_IF_ERROR(control_.record.Append(bytes));
  return answer;
}

absl::Status Steering::TakeCommands(const v1::PolicyAnswer& answer, uint64_t step) {
  for (int i = 0; i < answer.tools_size(); ++i) {
    const v1::PolicyCommand& wanted = answer.tools(i);
    const std::string path = absl::StrCat("policy, step ", step, ": ", At("tools", i));
    const auto of_policy =
        std::find_if(control_.tools.begin(), control_.tools.end(), [&](uint32_t t) { return tools_[t].name == wanted.tool(); });
    if (of_policy == control_.tools.end()) {
      return absl::InvalidArgumentError(absl::StrCat(path, ".tool: \"", wanted.tool(), "\" is none of policy.tools"));
    }
    const uint32_t t = *of_policy;
    sim::ToolCommand command = targets_[t].value_or(sim::ToolCommand{.device_pose = tools_[t].rest_pose});
    if (wanted.has_pose()) {
      PALPATE_ASSIGN_OR_RETURN(command.device_pose, scene::PoseFromProto(wanted.pose(), At(path, "pose")));
    }
    scene::Checker check;
    check.RangeVec(At(path, "velocity_m_per_s"), wanted.velocity_m_per_s(), -kMaxToolSpeed_m_per_s, kMaxToolSpeed_m_per_s);
    PALPATE_RETURN_IF_ERROR(check.status());
    command.velocity_m_per_s = scene::ToEigen(wanted.velocity_m_per_s());
    if (wanted.has_jaw_angle_rad()) command.jaw_angle_rad = wanted.jaw_angle_rad();
    command.pedal = wanted.pedal();
    command.power_w = wanted.power_w();
    command.duty = wanted.duty();
    PALPATE_RETURN_IF_ERROR(CheckCommand(command, tools_[t].instrument, path));
    targets_[t] = command;
  }
  return absl::OkStatus();
}

absl::StatusOr<std::optional<StopReason>> Steering::Prepare(sim::World& world) {
  const uint64_t step = world.CurrentFrame()->step;
  const double time_s = static_cast<double>(step) * dt_s_;
  const v1::Job& job = loaded_->job;
  for (; next_edits_ < job.edits_size() && job.edits(next_edits_).time_s() <= time_s + kTimeTolerance * dt_s_; ++next_edits_) {
    PALPATE_RETURN_IF_ERROR(Perform(world, job.edits(next_edits_).edits(), At("edits", next_edits_)));
  }
  if (control_.policy != nullptr && step % control_.interval_steps == 0) {
    PALPATE_ASSIGN_OR_RETURN(const v1::PolicyAnswer answer, AskPolicy(world));
    if (answer.edits_size() > 0) PALPATE_RETURN_IF_ERROR(Perform(world, answer.edits(), absl::StrCat("policy, step ", step)));
    PALPATE_RETURN_IF_ERROR(TakeCommands(answer, step));
    if (answer.stop()) return StopReason{"policy", answer.reason()};
  }
  // A frame shows tools where their paths are at its time: commands are those of the end of the step.
  const double end_s = static_cast<double>(step + 1) * dt_s_;
  for (size_t t = 0; t < tools_.size(); ++t) {
    std::optional<sim::ToolCommand> command = targets_[t];
    if (motions_[t] != nullptr) {
      command = motions_[t]->At(end_s);
      const auto before = motions_[t]->At(time_s);
      if (command && before && !motions_[t]->has_velocity()) {
        command->velocity_m_per_s = (command->device_pose.position_m - before->device_pose.position_m) / dt_s_;
      }
    }
    pointers_[t] = nullptr;
    if (!command) continue;
    commands_[t] = *command;
    pointers_[t] = &commands_[t];
  }
  return std::optional<StopReason>();
}

void Steering::End(const std::string& reason) {
  if (control_.policy != nullptr) control_.policy->End(reason);
}

}  // namespace palpate::job
