#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace palpate::cli {

/// What any engine is told of a folder of tasks (`palpate job expand`). One process runs `tasks_each` tasks one after the other.
struct SubmitOptions {
  std::string folder{};     ///< of the tasks, an absolute path
  uint32_t task_count = 0;  ///< at least 1
  std::string name{};       ///< letters, digits and `-`
  uint32_t tasks_each = 1;  ///< at least 1
  uint32_t at_once = 0;     ///< processes that may run at a time; 0: as many as the engine will
  uint32_t retries = 3;     ///< of a process that was killed or has crashed
  uint32_t cpus = 1;        ///< for a process
  double memory_gib = 0;    ///< for a process; 0: the engine's default
  uint32_t gpus = 0;        ///< for a process
  uint32_t grace_s = 60;    ///< between the request to end and the end, for the checkpoint; seconds of wall time
  uint32_t process_count() const { return (task_count + tasks_each - 1) / tasks_each; }
};

struct SlurmOptions {
  std::string program{};               ///< of a shell: the words that start palpate on the nodes
  std::string partition{}, account{};  ///< empty: the cluster's default
  std::string time{};                  ///< as sbatch --time; empty: the partition's
  std::string gres{};                  ///< as sbatch --gres; empty: "gpu:N" where gpus are wanted
  std::vector<std::string> more{};     ///< options of sbatch as they are
  std::string log_folder{};            ///< an absolute path; it has to exist when the script starts
};

struct KubernetesOptions {
  std::string image{};
  std::string name_space{};     ///< empty: that of kubectl
  std::string claim{};          ///< an existing PersistentVolumeClaim; empty: one is made
  std::string claim_path{};     ///< of the tasks on the volume, relative, without quotes; empty: its root
  std::string storage{};        ///< size of a claim that is made
  std::string storage_class{};  ///< of a claim that is made; empty: the cluster's default
  std::string gpu_resource{};   ///< name of the resource that counts GPUs
};

/// One text that is written to a file.
struct SubmitFile {
  std::string name{};  ///< without folder
  std::string text{};
};

/// Scripts for sbatch: an array job of process_count() elements that writes checkpoints when it has to end, and comes back where its time
/// limit ended it (array.sbatch); the job that makes the table when all have ended (collect.sbatch).
std::vector<SubmitFile> SlurmScripts(const SubmitOptions& options, const SlurmOptions& slurm);

/// Manifests in YAML: an Indexed Job with a pod for each process (job.yaml), the job that makes the table (collect.yaml), a pod through
/// which files reach the volume (files.yaml), and the volume's claim where it is ours (volume.yaml). Errors: InvalidArgument (a name that
/// Kubernetes does not allow).
absl::StatusOr<std::vector<SubmitFile>> KubernetesManifests(const SubmitOptions& options, const KubernetesOptions& kubernetes);

}  // namespace palpate::cli
