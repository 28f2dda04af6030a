#include <dlfcn.h>

#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "clients/job/plugin/palpate_policy.h"
#include "clients/job/policy.h"
#include "gpu/base/status.h"
#include "sim/scene/edit_request.h"

namespace palpate::job {
namespace {

struct LibraryCloser {
  void operator()(void* handle) const { dlclose(handle); }
};
using Library = std::unique_ptr<void, LibraryCloser>;

class LibraryPolicy final : public Policy {
 public:
  LibraryPolicy(std::string where, Library library, const PalpatePolicyApi* api, PolicySetup setup)
      : where_(std::move(where)), library_(std::move(library)), api_(api), setup_(std::move(setup)) {}
  ~LibraryPolicy() override {
    if (policy_ != nullptr) api_->close(policy_);
  }

  absl::Status Open(const std::string& options) {
    for (const sim::ToolDescription& tool : setup_.tools) {
      const sim::InstrumentTraits& traits = tool.instrument.traits();
      const Eigen::Quaterniond& q = tool.rest_pose.rotation;
      const Eigen::Vector3d& p = tool.rest_pose.position_m;
      tools_.push_back({.struct_size = sizeof(PalpatePolicyTool),
                        .kind = static_cast<uint32_t>(tool.instrument.kind) + 1,
                        .name = tool.name.c_str(),
                        .position_m = {p.x(), p.y(), p.z()},
                        .rotation_wxyz = {q.w(), q.x(), q.y(), q.z()},
                        .max_jaw_angle_rad = traits.has_jaws ? tool.instrument.max_jaw_angle_rad : 0,
                        .max_power_w = traits.has_power ? tool.instrument.max_power_w : 0});
      PalpatePolicyCommand command{};
      command.struct_size = sizeof(command);
      std::copy_n(tools_.back().position_m, 3, command.position_m);
      std::copy_n(tools_.back().rotation_wxyz, 4, command.rotation_wxyz);
      commands_.push_back(command);
    }
    for (const sim::ProbeColumn& column : setup_.observations) {
      names_.push_back(column.name.c_str());
      units_.push_back(column.unit.c_str());
    }
    raw_ = {.struct_size = sizeof(PalpatePolicySetup),
            .tool_count = static_cast<uint32_t>(tools_.size()),
            .observation_count = static_cast<uint32_t>(names_.size()),
            .tool_bytes = sizeof(PalpatePolicyTool),
            .dt_s = setup_.dt_s,
            .interval_s = setup_.interval_s,
            .seed = setup_.seed,
            .tools = tools_.data(),
            .observation_names = names_.data(),
            .observation_units = units_.data()};
    char error[512] = "";
    if (api_->open(options.c_str(), &raw_, &policy_, error, sizeof(error)) == PALPATE_POLICY_OK && policy_ != nullptr) {
      return absl::OkStatus();
    }
    error[sizeof(error) - 1] = '\0';
    return absl::InvalidArgumentError(absl::StrCat(where_, "cannot be opened: ", error[0] == '\0' ? "no reason given" : error));
  }

  absl::StatusOr<v1::PolicyAnswer> Decide(uint64_t step, double time_s, std::span<const double> observations) override {
    PalpatePolicyDecision decision{};
    decision.struct_size = sizeof(decision);
    decision.command_bytes = sizeof(PalpatePolicyCommand);
    decision.step = step;
    decision.time_s = time_s;
    decision.observations = observations.data();
    decision.commands = commands_.data();
    if (api_->decide(policy_, &decision) != PALPATE_POLICY_OK) {
      const char* text = api_->last_error(policy_);
      return absl::FailedPreconditionError(
          absl::StrCat(where_, "failed at step ", step, ": ", text == nullptr || *text == '\0' ? "no reason given" : text));
    }
    v1::PolicyAnswer answer;
    for (size_t t = 0; t < commands_.size(); ++t) {
      if (commands_[t].is_commanded != 0) AddCommand(setup_.tools[t].name, commands_[t], &answer);
    }
    if (decision.edits_json != nullptr) {
      PALPATE_ASSIGN_OR_RETURN(v1::EditSceneRequest request,
                               scene::ParseEditJson(decision.edits_json, absl::StrCat(where_, "edits at step ", step)));
      *answer.mutable_edits() = std::move(*request.mutable_edits());
    }
    if (decision.stop_reason != nullptr) {
      answer.set_stop(true);
      answer.set_reason(decision.stop_reason);
    }
    return answer;
  }

 private:
  static void AddCommand(const std::string& tool, const PalpatePolicyCommand& command, v1::PolicyAnswer* answer) {
    v1::PolicyCommand& out = *answer->add_tools();
    out.set_tool(tool);
    v1::Vec3& position = *out.mutable_pose()->mutable_position_m();
    position.set_x(command.position_m[0]);
    position.set_y(command.position_m[1]);
    position.set_z(command.position_m[2]);
    v1::Quaternion& rotation = *out.mutable_pose()->mutable_rotation();
    rotation.set_w(command.rotation_wxyz[0]);
    rotation.set_x(command.rotation_wxyz[1]);
    rotation.set_y(command.rotation_wxyz[2]);
    rotation.set_z(command.rotation_wxyz[3]);
    out.mutable_velocity_m_per_s()->set_x(command.velocity_m_per_s[0]);
    out.mutable_velocity_m_per_s()->set_y(command.velocity_m_per_s[1]);
    out.mutable_velocity_m_per_s()->set_z(command.velocity_m_per_s[2]);
    out.set_jaw_angle_rad(command.jaw_angle_rad);
    out.set_pedal(command.pedal != 0);
    out.set_power_w(command.power_w);
    out.set_duty(command.duty);
  }

  std::string where_;
  Library library_;
  const PalpatePolicyApi* api_;
  PolicySetup setup_;
  PalpatePolicy* policy_ = nullptr;
  PalpatePolicySetup raw_{};
  std::vector<PalpatePolicyTool> tools_;
  std::vector<const char*> names_, units_;
  std::vector<PalpatePolicyCommand> commands_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Policy>> OpenPolicyLibrary(const std::filesystem::path& library, const std::string& options,
                                                          PolicySetup setup) {
  const std::string where = absl::StrCat("policy '", library.string(), "': ");
  // A name without a folder would be looked for in those of the system.
  const std::string path = library.has_parent_path() ? library.string() : absl::StrCat("./", library.string());
  Library handle(dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL));
  if (handle == nullptr) return absl::NotFoundError(absl::StrCat(where, "cannot be loaded: ", dlerror()));
  // POSIX defines the conversion of an object pointer from dlsym to a function pointer.
  const auto entry_point = reinterpret_cast<PalpatePolicyEntryPoint>(dlsym(handle.get(), PALPATE_POLICY_ENTRY_POINT));
  if (entry_point == nullptr) {
    return absl::FailedPreconditionError(absl::StrCat(where, "exports no function ", PALPATE_POLICY_ENTRY_POINT));
  }
  const PalpatePolicyApi* api = entry_point(PALPATE_POLICY_ABI_VERSION);
  if (api == nullptr) {
    return absl::FailedPreconditionError(absl::StrCat(where, "does not work with interface version ", PALPATE_POLICY_ABI_VERSION));
  }
  if (api->abi_version != PALPATE_POLICY_ABI_VERSION || api->struct_size < sizeof(PalpatePolicyApi)) {
    return absl::FailedPreconditionError(absl::StrCat(where, "has interface version ", api->abi_version, " with a table of ",
                                                      api->struct_size, " bytes; wanted version ", PALPATE_POLICY_ABI_VERSION,
                                                      " with at least ", sizeof(PalpatePolicyApi)));
  }
  if (api->open == nullptr || api->decide == nullptr || api->last_error == nullptr || api->close == nullptr) {
    return absl::FailedPreconditionError(absl::StrCat(where, "leaves a function of its table empty"));
  }
  auto policy = std::make_unique<LibraryPolicy>(where, std::move(handle), api, std::move(setup));
  PALPATE_RETURN_IF_ERROR(policy->Open(options));
  return policy;
}

}  // namespace palpate::job
