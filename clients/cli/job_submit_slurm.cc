// Scripts for Slurm. What they promise is tried on a real one: tests/e2e/cluster/slurm_test.py.
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "clients/cli/exit_code.h"
#include "clients/cli/job_submit.h"

namespace palpate::cli {
namespace {

/// One word of a shell, whatever is in it.
std::string ShellWord(const std::string& text) { return absl::StrCat("'", absl::StrReplaceAll(text, {{"'", "'\\''"}}), "'"); }

/// A value in a line of options, of which sbatch takes quotes away and in which % stands for something. A backslash it cannot have.
std::string SbatchPath(const std::string& path) {
  return absl::StrCat("\"", absl::StrReplaceAll(path, {{"%", "%%"}, {"\"", "\\\""}}), "\"");
}

void AddOption(std::string* text, const std::string& option, const std::string& value) {
  if (!value.empty()) absl::StrAppend(text, "#SBATCH --", option, "=", value, "\n");
}

std::string CommonOptions(const SlurmOptions& slurm) {
  std::string text;
  AddOption(&text, "partition", slurm.partition);
  AddOption(&text, "account", slurm.account);
  for (const std::string& option : slurm.more) absl::StrAppend(&text, "#SBATCH ", option, "\n");
  return text;
}

std::string ArrayOptions(const SubmitOptions& options, const SlurmOptions& slurm) {
  std::string text;
  AddOption(&text, "job-name", options.name);
  AddOption(&text, "array",
            absl::StrCat("0-", options.process_count() - 1, options.at_once > 0 ? absl::StrCat("%", options.at_once) : std::string()));
  absl::StrAppend(&text, "#SBATCH --requeue\n#SBATCH --open-mode=append\n");
  AddOption(&text, "signal", absl::StrCat("B:USR1@", options.grace_s));
  AddOption(&text, "output", SbatchPath(slurm.log_folder + "/") + "%A_%a.log");
  AddOption(&text, "ntasks", "1");
  AddOption(&text, "cpus-per-task", absl::StrCat(options.cpus));
  if (options.memory_gib > 0) AddOption(&text, "mem", absl::StrFormat("%.0fM", std::ceil(options.memory_gib * 1024)));
  AddOption(&text, "time", slurm.time);
  AddOption(&text, "gres", slurm.gres.empty() && options.gpus > 0 ? absl::StrCat("gpu:", options.gpus) : slurm.gres);
  return text + CommonOptions(slurm);
}

// `wait` also returns when a signal has come; then the program is still at work on its checkpoint. One that came just before tells nothing
// by its trap, so whether the program still runs counts too.
constexpr char kArrayBody[] = R"sh(
folder=@folder@
palpate=(@program@)
task_count=@task_count@
tasks_each=@tasks_each@
retries=@retries@

first=$((SLURM_ARRAY_TASK_ID * tasks_each))
last=$((first + tasks_each - 1))
[ $last -lt $task_count ] || last=$((task_count - 1))
export POCL_MAX_PTHREAD_COUNT=${SLURM_CPUS_PER_TASK:-1}

# USR1: the time limit is near. TERM: Slurm takes the node away, and decides whether this element comes back.
child='' signalled=0 out_of_time=0 stopped=0
ask_to_end() {
  signalled=1
  [ -z "$child" ] || kill -TERM "$child" 2>/dev/null
}
trap 'out_of_time=1; ask_to_end' USR1
trap 'stopped=1; ask_to_end' TERM

for ((attempt = 0; ; ++attempt)); do
  "${palpate[@]}" job run "$folder" --tasks "$first-$last" &
  child=$!
  [ $((out_of_time + stopped)) = 0 ] || ask_to_end
  while :; do
    signalled=0
    wait "$child"
    status=$?
    [ $signalled = 1 ] || [ -n "$(jobs -pr)" ] || break
  done
  if [ $status -le 128 ] && [ $status != @interrupted@ ]; then exit $status; fi
  # It was interrupted or killed. What it had done is kept: started again it goes on.
  if [ $stopped = 1 ]; then exit $status; fi
  if [ $out_of_time = 1 ]; then
    echo "tasks $first to $last: the time limit is near; requeued"
    scontrol requeue "$SLURM_JOB_ID" || exit $status
    # Slurm ends this script.
    sleep 300 &
    wait $!
    exit $status
  fi
  if [ $attempt -ge $retries ]; then exit $status; fi
  echo "tasks $first to $last: ended with status $status; attempt $((attempt + 2)) of $((retries + 1))"
done
)sh";

}  // namespace

std::vector<SubmitFile> SlurmScripts(const SubmitOptions& options, const SlurmOptions& slurm) {
  const std::string comment = absl::StrFormat(
      "# Written by palpate job submit --slurm: %d tasks of %s, %d in each element of the array.\n# docs/clusters.md explains it.\n",
      options.task_count, options.folder, options.tasks_each);
  const std::string body = absl::StrReplaceAll(kArrayBody, {{"@folder@", ShellWord(options.folder)},
                                                            {"@program@", slurm.program},
                                                            {"@task_count@", absl::StrCat(options.task_count)},
                                                            {"@tasks_each@", absl::StrCat(options.tasks_each)},
                                                            {"@retries@", absl::StrCat(options.retries)},
                                                            {"@interrupted@", absl::StrCat(kExitInterrupted)}});
  std::string collect =
      absl::StrCat("#!/bin/bash\n# Submitted with --dependency=afterany: on the array; names tasks that failed or are missing.\n");
  AddOption(&collect, "job-name", options.name + "-collect");
  AddOption(&collect, "output", SbatchPath(slurm.log_folder + "/collect.log"));
  absl::StrAppend(&collect, CommonOptions(slurm), "\nexec ", slurm.program, " job collect ", ShellWord(options.folder), "\n");
  return {{.name = "array.sbatch", .text = absl::StrCat("#!/bin/bash\n", comment, ArrayOptions(options, slurm), body)},
          {.name = "collect.sbatch", .text = collect}};
}

}  // namespace palpate::cli
