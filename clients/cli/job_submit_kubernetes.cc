// Manifests for Kubernetes. tests/e2e/cluster/kubernetes_test.py checks them against the types of its API, tests/e2e/container runs what is
// in them.
#include <algorithm>
#include <cmath>
#include <optional>
#include <string_view>

#include <nlohmann/json.hpp>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "clients/cli/exit_code.h"
#include "clients/cli/job_submit.h"

namespace palpate::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kMountPath[] = "/job";  // of the volume
constexpr int kImageUser = 10001;      // of the Dockerfile

/// Whether YAML reads these characters as a string without quotes.
bool IsPlain(const std::string& text) {
  static constexpr std::string_view kWords[] = {"true", "false", "yes", "no", "on", "off", "y", "n", "null"};
  if (text.empty() || !absl::ascii_isalpha(static_cast<unsigned char>(text[0]))) return false;
  if (std::ranges::find(kWords, absl::AsciiStrToLower(text)) != std::end(kWords)) return false;
  return std::ranges::all_of(text,
                             [](char c) { return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '/' || c == '.'; });
}

std::string Scalar(const Json& value) {
  if (value.is_string() && IsPlain(value.get_ref<const std::string&>())) return value.get<std::string>();
  return value.dump();  // what is JSON is also YAML; empty lists and objects come here too
}

bool IsBlock(const Json& value) { return value.is_structured() && !value.empty(); }

/// Block style; the first line goes on where `text` ends.
void AppendYaml(const Json& value, size_t indent, std::string* text) {
  const std::string margin(indent, ' ');
  bool first = true;
  for (const auto& [key, item] : value.items()) {
    if (!std::exchange(first, false)) absl::StrAppend(text, margin);
    if (value.is_array()) {
      absl::StrAppend(text, "- ");
      if (IsBlock(item)) {
        AppendYaml(item, indent + 2, text);
        continue;
      }
    } else {
      absl::StrAppend(text, key, ":");
      if (IsBlock(item)) {
        absl::StrAppend(text, "\n", margin, "  ");
        AppendYaml(item, indent + 2, text);
        continue;
      }
      absl::StrAppend(text, " ");
    }
    absl::StrAppend(text, Scalar(item), "\n");
  }
}

SubmitFile Manifest(const std::string& name, const std::string& comment, const Json& value) {
  SubmitFile file{.name = name,
                  .text = absl::StrCat("# Written by palpate job submit --kubernetes; docs/clusters.md explains it.\n# ", comment, "\n")};
  AppendYaml(value, 0, &file.text);
  return file;
}

/// A label of DNS, as names of objects have to be. Errors: InvalidArgument.
absl::Status CheckName(const std::string& what, const std::string& name, size_t most) {
  const auto is_inner = [](char c) {
    return absl::ascii_islower(static_cast<unsigned char>(c)) || absl::ascii_isdigit(static_cast<unsigned char>(c)) || c == '-';
  };
  if (!name.empty() && name.size() <= most && std::ranges::all_of(name, is_inner) && name.front() != '-' && name.back() != '-') {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrFormat("%s: '%s' is no name for Kubernetes: 1 to %d lower-case letters, digits and inner '-'", what, name, most));
}

class Writer {
 public:
  Writer(const SubmitOptions& options, const KubernetesOptions& kubernetes) : options_(options), kubernetes_(kubernetes) {
    claim_ = kubernetes.claim.empty() ? options.name : kubernetes.claim;
  }

  Json Metadata(const std::string& name) const {
    Json metadata = {{"name", name}, {"labels", Labels()}};
    if (!kubernetes_.name_space.empty()) metadata["namespace"] = kubernetes_.name_space;
    return metadata;
  }

  Json Claim() const {
    Json spec = {{"accessModes", {"ReadWriteMany"}}, {"resources", {{"requests", {{"storage", kubernetes_.storage}}}}}};
    if (!kubernetes_.storage_class.empty()) spec["storageClassName"] = kubernetes_.storage_class;
    return {{"apiVersion", "v1"}, {"kind", "PersistentVolumeClaim"}, {"metadata", Metadata(claim_)}, {"spec", spec}};
  }

  /// Only the pods of the tasks get a GPU.
  Json PodSpec(const Json& command, bool runs_tasks) const {
    const Json mount = {{"name", "job"}, {"mountPath", kMountPath}};
    Json container = {
        {"name", "palpate"},
        {"image", kubernetes_.image},
        {"command", command},
        {"resources", Resources(runs_tasks)},
        {"securityContext", {{"allowPrivilegeEscalation", false}, {"readOnlyRootFilesystem", true}, {"capabilities", {{"drop", {"ALL"}}}}}},
        {"volumeMounts", {mount, {{"name", "cache"}, {"mountPath", "/var/cache/palpate"}}, {{"name", "tmp"}, {"mountPath", "/tmp"}}}}};
    if (runs_tasks) container["env"] = Json::array({{{"name", "POCL_MAX_PTHREAD_COUNT"}, {"value", absl::StrCat(options_.cpus)}}});
    return {{"restartPolicy", "Never"},
            {"terminationGracePeriodSeconds", options_.grace_s},
            {"automountServiceAccountToken", false},
            {"enableServiceLinks", false},
            {"securityContext",
             {{"runAsNonRoot", true},
              {"runAsUser", kImageUser},
              {"runAsGroup", kImageUser},
              {"fsGroup", kImageUser},
              {"seccompProfile", {{"type", "RuntimeDefault"}}}}},
            {"containers", Json::array({container})},
            {"volumes", Json::array({{{"name", "job"}, {"persistentVolumeClaim", {{"claimName", claim_}}}},
                                     {{"name", "cache"}, {"emptyDir", Json::object()}},
                                     {{"name", "tmp"}, {"emptyDir", Json::object()}}})}};
  }

  Json TasksJob() const {
    const uint32_t count = options_.process_count();
    // Kubernetes counts what is neither an interruption nor an error of the input, and starts it again `retries` times.
    const Json disruption = {{"action", "Ignore"}, {"onPodConditions", Json::array({{{"type", "DisruptionTarget"}, {"status", "True"}}})}};
    const auto on_status = [](const char* action, const Json& values) -> Json {
      return {{"action", action}, {"onExitCodes", {{"containerName", "palpate"}, {"operator", "In"}, {"values", values}}}};
    };
    const Json rules = {disruption, on_status("Ignore", {kExitInterrupted}), on_status("FailIndex", {kExitFailed, kExitUsage})};
    return {{"apiVersion", "batch/v1"},
            {"kind", "Job"},
            {"metadata", Metadata(options_.name)},
            {"spec",
             {{"completionMode", "Indexed"},
              {"completions", count},
              {"parallelism", options_.at_once == 0 ? count : std::min(count, options_.at_once)},
              {"backoffLimitPerIndex", options_.retries},
              // A pod that still writes its checkpoint is alone with its files.
              {"podReplacementPolicy", "Failed"},
              {"podFailurePolicy", {{"rules", rules}}},
              {"template", {{"metadata", {{"labels", Labels()}}}, {"spec", PodSpec(TasksCommand(), /*runs_tasks=*/true)}}}}}};
  }

  Json CollectJob() const {
    return {{"apiVersion", "batch/v1"},
            {"kind", "Job"},
            {"metadata", Metadata(options_.name + "-collect")},
            {"spec",
             {{"backoffLimit", 0},
              {"template",
               {{"metadata", {{"labels", Labels()}}}, {"spec", PodSpec({"palpate", "job", "collect", Folder()}, /*runs_tasks=*/false)}}}}}};
  }

  Json FilesPod() const {
    Json spec = PodSpec({"sleep", "infinity"}, /*runs_tasks=*/false);
    spec["terminationGracePeriodSeconds"] = 0;
    return {{"apiVersion", "v1"}, {"kind", "Pod"}, {"metadata", Metadata(options_.name + "-files")}, {"spec", spec}};
  }

 private:
  Json Labels() const { return {{"app.kubernetes.io/name", "palpate"}, {"app.kubernetes.io/instance", options_.name}}; }

  /// The shell only reckons; the program takes its place and gets the signals.
  Json TasksCommand() const {
    const std::string script = absl::StrFormat(
        "first=$((JOB_COMPLETION_INDEX * %1$d)); last=$((first + %1$d - 1)); [ $last -lt %2$d ] || last=%3$d; "
        "exec palpate job run '%4$s' --tasks \"$first-$last\"",
        options_.tasks_each, options_.task_count, options_.task_count - 1, Folder());
    return {"/bin/sh", "-c", script};
  }

  /// Of the tasks, in a container. Precondition: no quotes in the path on the volume.
  std::string Folder() const {
    return kubernetes_.claim_path.empty() ? std::string(kMountPath) : absl::StrCat(kMountPath, "/", kubernetes_.claim_path);
  }

  Json Resources(bool runs_tasks) const {
    Json requests = {{"cpu", absl::StrCat(runs_tasks ? options_.cpus : 1)}};
    Json limits = Json::object();
    if (options_.memory_gib > 0) {
      // More than was asked for ends the process, not its neighbours.
      limits["memory"] = requests["memory"] = absl::StrFormat("%.0fMi", std::ceil(options_.memory_gib * 1024));
    }
    if (runs_tasks && options_.gpus > 0) limits[kubernetes_.gpu_resource] = absl::StrCat(options_.gpus);
    Json resources = {{"requests", requests}};
    if (!limits.empty()) resources["limits"] = limits;
    return resources;
  }

  const SubmitOptions& options_;
  const KubernetesOptions& kubernetes_;
  std::string claim_;
};

}  // namespace

absl::StatusOr<std::vector<SubmitFile>> KubernetesManifests(const SubmitOptions& options, const KubernetesOptions& kubernetes) {
  // Names of pods and hosts get more at their end: -collect, an index.
  if (absl::Status status = CheckName("--name", options.name, 50); !status.ok()) return status;
  if (!kubernetes.claim.empty()) {
    if (absl::Status status = CheckName("--claim", kubernetes.claim, 253); !status.ok()) return status;
  }
  if (!kubernetes.name_space.empty()) {
    if (absl::Status status = CheckName("--namespace", kubernetes.name_space, 63); !status.ok()) return status;
  }
  const Writer writer(options, kubernetes);
  std::vector<SubmitFile> files;
  if (kubernetes.claim.empty())
    files.push_back(Manifest("volume.yaml", "The volume of tasks and results; every node mounts it.", writer.Claim()));
  files.push_back(Manifest("files.yaml", "A pod to copy files through, while it runs.", writer.FilesPod()));
  files.push_back(Manifest("job.yaml",
                           absl::StrFormat("%d tasks, %d in each pod. Needs Kubernetes 1.29.", options.task_count, options.tasks_each),
                           writer.TasksJob()));
  files.push_back(
      Manifest("collect.yaml", "Makes the table, once job.yaml has ended; names tasks that failed or are missing.", writer.CollectJob()));
  return files;
}

}  // namespace palpate::cli
