// palpate job submit: a folder of tasks goes to an engine that runs them.
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>

#include <nlohmann/json.hpp>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "clients/cli/commands.h"
#include "clients/cli/console.h"
#include "clients/cli/job_submit.h"
#include "clients/cli/own_server.h"
#include "clients/job/sweep.h"
#include "clients/job/tasks.h"
#include "gpu/base/status.h"

namespace palpate::cli {
namespace {

constexpr uint32_t kMaxTasks = static_cast<uint32_t>(job::kMaxTasks);
constexpr uint32_t kUsualProcesses = 1000;  ///< Slurm takes arrays of 1001 unless it is told otherwise

struct CommandOptions {
  SubmitOptions submit;
  SlurmOptions slurm;
  KubernetesOptions kubernetes;
  bool for_slurm = false;
  bool for_kubernetes = false;
  bool at_once = false;  ///< hand the files to the engine
  std::string output_folder;
};

/// What a name may be for every engine, from whatever a folder is called.
std::string NameFrom(const std::string& text) {
  std::string name;
  for (const char c : absl::AsciiStrToLower(text)) {
    const bool is_good = absl::ascii_isalnum(static_cast<unsigned char>(c));
    if (is_good) name += c;
    if (!is_good && !name.empty() && name.back() != '-') name += '-';
  }
  name.resize(std::min<size_t>(name.size(), 50));
  while (!name.empty() && name.back() == '-') name.pop_back();
  return name.empty() ? "palpate" : name;
}

/// A line of a script ends where the value would go on.
absl::Status CheckOneLine(const std::string& option, const std::string& value) {
  if (std::ranges::none_of(value, [](char c) { return absl::ascii_iscntrl(static_cast<unsigned char>(c)); })) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(option, ": holds a control character"));
}

absl::Status CheckWords(const CommandOptions& options) {
  for (const auto& [option, value] : {std::pair{"--partition", options.slurm.partition},
                                      {"--account", options.slurm.account},
                                      {"--time", options.slurm.time},
                                      {"--gres", options.slurm.gres},
                                      {"--name", options.submit.name},
                                      {"--image", options.kubernetes.image},
                                      {"--claim-path", options.kubernetes.claim_path},
                                      {"--storage", options.kubernetes.storage},
                                      {"--gpu-resource", options.kubernetes.gpu_resource}}) {
    const auto is_bad = [](char c) { return !absl::ascii_isgraph(static_cast<unsigned char>(c)) || c == '"' || c == '\'' || c == '#'; };
    if (std::ranges::any_of(value, is_bad)) {
      return absl::InvalidArgumentError(absl::StrFormat("%s: '%s' holds a character that no such value has", option, value));
    }
  }
  PALPATE_RETURN_IF_ERROR(CheckOneLine("DIR", options.submit.folder));
  PALPATE_RETURN_IF_ERROR(CheckOneLine("--output", options.output_folder));
  if (options.for_slurm && options.output_folder.find('\\') != std::string::npos) {
    return absl::InvalidArgumentError("--output: Slurm takes no folder of logs with a backslash in its name");
  }
  PALPATE_RETURN_IF_ERROR(CheckOneLine("--palpate", options.slurm.program));
  for (const std::string& option : options.slurm.more) {
    PALPATE_RETURN_IF_ERROR(CheckOneLine("--sbatch", option));
    if (!option.starts_with("--")) return absl::InvalidArgumentError(absl::StrCat("--sbatch: '", option, "' is no option like --qos=low"));
  }
  return absl::OkStatus();
}

/// Runs a program of the engine. Its standard output. Errors: FailedPrecondition (it failed or is not there; what it says is on standard
/// error).
absl::StatusOr<std::string> Run(const std::string& command) {
  std::FILE* pipe = popen(command.c_str(), "re");
  if (pipe == nullptr) return absl::InternalError(absl::StrCat("cannot run: ", command));
  std::string output;
  std::array<char, 4096> part{};
  while (const size_t size = std::fread(part.data(), 1, part.size(), pipe)) output.append(part.data(), size);
  const int status = pclose(pipe);
  if (status == 0) return output;
  return absl::FailedPreconditionError(absl::StrFormat("%s: status %d; the files are written and can be submitted by hand", command,
                                                       WIFEXITED(status) ? WEXITSTATUS(status) : -1));
}

std::string Quoted(const std::string& path) {
  std::string text = "'";
  for (const char c : path) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return text + "'";
}

void PrintSubmitted(const CommandOptions& options, const nlohmann::ordered_json& more, bool json) {
  nlohmann::ordered_json result = {
      {"folder", options.output_folder}, {"tasks", options.submit.task_count}, {"processes", options.submit.process_count()}};
  if (more.is_object()) result.update(more);
  if (json) {
    absl::PrintF("%s\n", result.dump());
    return;
  }
  absl::PrintF("%d tasks in %d processes: %s\n", options.submit.task_count, options.submit.process_count(), options.output_folder);
}

absl::Status SubmitToSlurm(const CommandOptions& options, bool json) {
  const std::string array = Quoted(options.output_folder + "/array.sbatch");
  const std::string collect = Quoted(options.output_folder + "/collect.sbatch");
  if (!options.at_once) {
    PrintSubmitted(options, {}, json);
    if (!json) absl::PrintF("next: id=$(sbatch --parsable %s) && sbatch --dependency=afterany:$id %s\n", array, collect);
    return absl::OkStatus();
  }
  const auto submit = [](const std::string& command) -> absl::StatusOr<std::string> {
    PALPATE_ASSIGN_OR_RETURN(const std::string answer, Run(command));
    // "ID" or "ID;CLUSTER"
    const std::string id = answer.substr(0, answer.find_first_not_of("0123456789"));
    if (id.empty()) return absl::FailedPreconditionError(absl::StrCat(command, ": no job id in its answer: ", answer));
    return id;
  };
  PALPATE_ASSIGN_OR_RETURN(const std::string array_id, submit(absl::StrCat("sbatch --parsable ", array)));
  PALPATE_ASSIGN_OR_RETURN(const std::string collect_id,
                           submit(absl::StrCat("sbatch --parsable --dependency=afterany:", array_id, " ", collect)));
  PrintSubmitted(options, {{"array_job", array_id}, {"collect_job", collect_id}}, json);
  if (!json) absl::PrintF("Slurm's array job %s, then job %s for the table\n", array_id, collect_id);
  return absl::OkStatus();
}

absl::Status SubmitToKubernetes(const CommandOptions& options, bool json) {
  const auto file = [&](const char* name) { return Quoted(options.output_folder + "/" + name); };
  if (options.at_once) PALPATE_RETURN_IF_ERROR(Run(absl::StrCat("kubectl apply -f ", file("job.yaml"), " >&2")).status());
  PrintSubmitted(options, {}, json);
  if (json) return absl::OkStatus();
  if (!options.at_once)
    absl::PrintF("next: the tasks have to be on the volume (docs/clusters.md), then kubectl apply -f %s\n", file("job.yaml"));
  absl::PrintF("when %s has ended: kubectl apply -f %s\n", options.submit.name, file("collect.yaml"));
  return absl::OkStatus();
}

absl::Status WriteFiles(const CommandOptions& options, const std::vector<SubmitFile>& files) {
  std::error_code error;
  std::filesystem::create_directories(options.output_folder, error);
  if (error) return absl::FailedPreconditionError(absl::StrCat(options.output_folder, ": ", error.message()));
  for (const SubmitFile& file : files) PALPATE_RETURN_IF_ERROR(WriteFile(absl::StrCat(options.output_folder, "/", file.name), file.text));
  return absl::OkStatus();
}

absl::Status Submit(CommandOptions& options, bool json) {
  if (options.for_slurm == options.for_kubernetes) return absl::InvalidArgumentError("give one of --slurm and --kubernetes");
  SubmitOptions& submit = options.submit;
  PALPATE_ASSIGN_OR_RETURN(const v1::SweepManifest manifest, job::ReadManifest(submit.folder));
  submit.task_count = static_cast<uint32_t>(manifest.tasks_size());
  if (submit.task_count == 0) return absl::InvalidArgumentError(absl::StrCat(submit.folder, ": its manifest has no tasks"));
  submit.folder = std::filesystem::canonical(submit.folder).string();
  if (submit.tasks_each == 0) submit.tasks_each = (submit.task_count + kUsualProcesses - 1) / kUsualProcesses;
  if (submit.name.empty()) submit.name = NameFrom(std::filesystem::path(submit.folder).filename().string());
  if (options.output_folder.empty()) options.output_folder = absl::StrCat(submit.folder, options.for_slurm ? "/slurm" : "/kubernetes");
  options.output_folder = std::filesystem::absolute(options.output_folder).lexically_normal().string();
  if (options.slurm.program.empty()) options.slurm.program = Quoted(SiblingProgram("palpate"));
  PALPATE_RETURN_IF_ERROR(CheckWords(options));
  if (options.for_slurm) {
    options.slurm.log_folder = options.output_folder;
    PALPATE_RETURN_IF_ERROR(WriteFiles(options, SlurmScripts(submit, options.slurm)));
    return SubmitToSlurm(options, json);
  }
  PALPATE_ASSIGN_OR_RETURN(const std::vector<SubmitFile> files, KubernetesManifests(submit, options.kubernetes));
  PALPATE_RETURN_IF_ERROR(WriteFiles(options, files));
  return SubmitToKubernetes(options, json);
}

void AddSlurmOptions(CLI::App& command, SlurmOptions& slurm) {
  constexpr char kGroup[] = "Slurm";
  command.add_option("--partition", slurm.partition, "as of sbatch")->group(kGroup);
  command.add_option("--account", slurm.account, "as of sbatch")->group(kGroup);
  command.add_option("--time", slurm.time, "as of sbatch; an element that needs longer is requeued and goes on")->group(kGroup);
  command.add_option("--gres", slurm.gres, "as of sbatch; default: gpu:N for --gpus N")->group(kGroup);
  command.add_option("--sbatch", slurm.more, "another option of sbatch, for example --sbatch=--qos=low; may be repeated")
      ->group(kGroup)
      ->allow_extra_args(false);
  command
      .add_option("--palpate", slurm.program,
                  "words of a shell that start palpate on the nodes, for example \"apptainer exec --nv palpate.sif palpate\"; default: "
                  "this program")
      ->group(kGroup);
}

void AddKubernetesOptions(CLI::App& command, KubernetesOptions& kubernetes) {
  constexpr char kGroup[] = "Kubernetes";
  kubernetes.image = "palpate-server";
  kubernetes.storage = "10Gi";
  kubernetes.gpu_resource = "nvidia.com/gpu";
  command.add_option("--image", kubernetes.image, "container image, see docs/clusters.md")->group(kGroup)->capture_default_str();
  command.add_option("--namespace", kubernetes.name_space, "default: that of kubectl")->group(kGroup);
  command.add_option("--claim", kubernetes.claim, "PersistentVolumeClaim that holds the tasks; default: one is made")->group(kGroup);
  command.add_option("--claim-path", kubernetes.claim_path, "folder of the tasks on the volume; default: its root")->group(kGroup);
  command.add_option("--storage", kubernetes.storage, "size of a claim that is made")->group(kGroup)->capture_default_str();
  command.add_option("--storage-class", kubernetes.storage_class, "of a claim that is made; default: the cluster's")->group(kGroup);
  command.add_option("--gpu-resource", kubernetes.gpu_resource, "what --gpus counts")->group(kGroup)->capture_default_str();
}

}  // namespace

void AddJobSubmitCommand(CLI::App& jobs, Session& session) {
  auto options = std::make_shared<CommandOptions>();
  options->submit.tasks_each = 0;
  SubmitOptions& submit = options->submit;
  auto* command = jobs.add_subcommand("submit", "write what runs a folder of tasks on Slurm or Kubernetes, or submit it");
  command->add_option("DIR", submit.folder, "folder that palpate job expand made")->required();
  command->add_flag("--slurm", options->for_slurm, "scripts for sbatch: an array job, then one that makes the table");
  command->add_flag("--kubernetes", options->for_kubernetes, "manifests for kubectl: an Indexed Job, then one that makes the table");
  command->add_flag("--submit", options->at_once, "hand it to sbatch or kubectl now");
  command->add_option("-o,--output", options->output_folder, "folder for what is written; default: DIR/slurm or DIR/kubernetes");
  command->add_option("--name", submit.name, "of the job; default: that of the folder");
  command
      ->add_option("--tasks-per-process", submit.tasks_each,
                   "tasks that share a process, one after the other; default: 1, more beyond 1000 tasks")
      ->check(CLI::Range(1U, kMaxTasks));
  command->add_option("--at-once", submit.at_once, "processes that may run at a time; default: as many as fit")
      ->check(CLI::Range(1U, kMaxTasks));
  command->add_option("--retries", submit.retries, "how often a process that was killed or has crashed is started again")
      ->check(CLI::Range(0U, 100U))
      ->capture_default_str();
  command->add_option("--cpus", submit.cpus, "for a process")->check(CLI::Range(1U, 1024U))->capture_default_str();
  command->add_option("--memory", submit.memory_gib, "GiB for a process; default: the engine's")->check(CLI::Range(0.01, 10000.0));
  command->add_option("--gpus", submit.gpus, "for a process")->check(CLI::Range(0U, 64U))->capture_default_str();
  command->add_option("--grace", submit.grace_s, "seconds that a process has for its checkpoint when it must end")
      ->check(CLI::Range(1U, 3600U))
      ->capture_default_str();
  AddSlurmOptions(*command, options->slurm);
  AddKubernetesOptions(*command, options->kubernetes);
  command->callback([&session, options] { session.action = [&session, options] { return Submit(*options, session.json); }; });
}

}  // namespace palpate::cli
