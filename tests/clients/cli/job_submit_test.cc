#include "clients/cli/job_submit.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace palpate::cli::job_submit_test {
namespace {

using ::testing::HasSubstr;

TEST(SlurmScripts, PathsAreOneWordEach) {
  SubmitOptions options;
  options.folder = "/data/a b's \"c\" 100% $d";
  options.task_count = 3;
  options.name = "livers";
  SlurmOptions slurm;
  slurm.program = "'/opt/my palpate/palpate'";
  slurm.log_folder = options.folder + "/slurm";
  const std::vector<SubmitFile> files = SlurmScripts(options, slurm);
  ASSERT_EQ(files.size(), 2U);
  // sbatch takes quotes and backslashes away, and puts numbers for signs behind %.
  EXPECT_THAT(files[0].text, HasSubstr("\n#SBATCH --output=\"/data/a b's \\\"c\\\" 100%% $d/slurm/\"%A_%a.log\n"));
  EXPECT_THAT(files[1].text, HasSubstr("\n#SBATCH --output=\"/data/a b's \\\"c\\\" 100%% $d/slurm/collect.log\"\n"));
  EXPECT_THAT(files[0].text, HasSubstr("\nfolder='/data/a b'\\''s \"c\" 100% $d'\n"));
  EXPECT_THAT(files[1].text, HasSubstr("\nexec '/opt/my palpate/palpate' job collect '/data/a b'\\''s \"c\" 100% $d'\n"));
}

}  // namespace
}  // namespace palpate::cli::job_submit_test
