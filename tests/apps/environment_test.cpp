// SPDX-License-Identifier: Apache-2.0
// scripts/env.sh: the environment of a shell that has sourced it.
#include <filesystem>
#include <gtest/gtest.h>
#include <string>
#include <unistd.h>

#include "tests/support/program.h"

namespace lockstep {
namespace {

const std::string env_sh = std::string(LOCKSTEP_SOURCE_DIR) + "/scripts/env.sh";

class Environment : public testing::Test {
 protected:
  /// Runs the commands in a shell with an empty environment, after env.sh of a tree or an installation was
  /// sourced.
  Outcome run_after(const std::string& sourced, const std::string& commands, const std::string& set = "",
                    const std::string& shell = "bash") const {
    return run_command("cd / && env -i PATH=/usr/bin:/bin " + set + " " + shell + " -c 'set -eu; source \"" +
                       (directory_ / sourced) + "\"; " + commands + "'");
  }

  /// Copies env.sh to `script` and makes `folder` a folder of programs.
  void put(const std::string& script, const std::string& folder) const {
    namespace files = std::filesystem;
    files::create_directories(files::path(directory_ / script).parent_path());
    files::copy_file(env_sh, directory_ / script);
    if (folder.empty()) return;
    files::create_directories(files::path(directory_ / folder).parent_path());
    files::create_directory_symlink(LOCKSTEP_PROGRAM_DIR, directory_ / folder);
  }

  TemporaryDirectory directory_;
};

TEST_F(Environment, StartsTheProgramsOfATreeAndOfAnInstallation) {
  put("a tree/scripts/env.sh", "a tree/build/cpu/bin");
  put("prefix/share/lockstep/env.sh", "prefix/bin");
  const bool has_zsh = run_command("command -v zsh").exit_code == 0;
  for (const std::string shell : {"bash", "zsh"}) {
    if (shell == "zsh" && !has_zsh) continue;
    for (const auto& [script, folder] : {std::pair{"a tree/scripts/env.sh", "a tree/build/cpu/bin"},
                                         std::pair{"prefix/share/lockstep/env.sh", "prefix/bin"}}) {
      const Outcome outcome = run_after(script, "train_mlp --help >/dev/null; echo $PATH", "", shell);
      EXPECT_EQ(outcome.out, directory_ / folder + ":/usr/bin:/bin\n") << shell << outcome.errors;
    }
  }
}

TEST_F(Environment, SetsWhatSrunAndMpirunNeedOnceAndKeepsWhatIsSet) {
  put("scripts/env.sh", "build/cpu/bin");
  const std::string again = "source \"" + (directory_ / "scripts/env.sh") + "\"; ";
  const std::string show = again + "echo $PATH $SLURM_MPI_TYPE ${OMPI_ALLOW_RUN_AS_ROOT_CONFIRM:-}";
  const std::string root = ::geteuid() == 0 ? "1" : "";
  const std::string path = directory_ / "build/cpu/bin:/usr/bin:/bin ";
  EXPECT_EQ(run_after("scripts/env.sh", show).out, path + "pmix " + root + "\n");
  EXPECT_EQ(run_after("scripts/env.sh", show, "SLURM_MPI_TYPE=pmix_v4").out, path + "pmix_v4 " + root + "\n");
  // The user's choice comes first, wherever PATH has it already.
  EXPECT_EQ(run_after("scripts/env.sh", again + "echo $PATH",
                      "PATH=/bin:" LOCKSTEP_PROGRAM_DIR " LOCKSTEP_BIN=" LOCKSTEP_PROGRAM_DIR)
                .out,
            LOCKSTEP_PROGRAM_DIR ":" + (directory_ / "build/cpu/bin:/bin\n"));
}

// Open MPI 4 reads variables that begin with OMPI. Version 5 reads variables that begin with PRTE.
TEST_F(Environment, LetsMpirunStartMoreRanksThanCoresOutsideOfAnAllocation) {
  put("scripts/env.sh", "build/cpu/bin");
  const std::string show =
      "echo \"${OMPI_MCA_rmaps_base_oversubscribe:-} ${PRTE_MCA_rmaps_default_mapping_policy:-} "
      "${PRTE_ALLOW_RUN_AS_ROOT_CONFIRM:-}\"";
  const std::string root = ::geteuid() == 0 ? "1\n" : "\n";
  EXPECT_EQ(run_after("scripts/env.sh", show).out, "1 :oversubscribe " + root);
  EXPECT_EQ(run_after("scripts/env.sh", show, "SLURM_JOB_ID=7").out, "  " + root);
  EXPECT_EQ(run_after("scripts/env.sh", show, "PRTE_MCA_rmaps_default_mapping_policy=package").out,
            "1 package " + root);
  if (!has_mpirun()) return;
  const Outcome many = run_after("scripts/env.sh", "mpirun -np 9 echo", "HOME=" + directory_.path());
  EXPECT_EQ(many.out, std::string(9, '\n')) << many.errors;
}

TEST_F(Environment, FindsItsTreeWhereCdIsNotPlain) {
  put("tree/scripts/env.sh", "tree/build/cpu/bin");
  std::filesystem::create_directories(directory_ / "elsewhere/scripts");
  const bool has_zsh = run_command("command -v zsh").exit_code == 0;
  for (const std::string shell : {"bash", "zsh"}) {
    if (shell == "zsh" && !has_zsh) continue;
    const Outcome outcome = run_command(
        "cd " + (directory_ / "tree") + " && env -i PATH=/usr/bin:/bin CDPATH=" + (directory_ / "elsewhere") +
        " " + shell + " -c 'chpwd() { echo moved; }; source scripts/env.sh; echo $PATH'");
    EXPECT_EQ(outcome.out, directory_ / "tree/build/cpu/bin:/usr/bin:/bin\n") << shell << outcome.errors;
  }
}

TEST_F(Environment, TakesLockstepBinWhateverProgramsItHas) {
  put("scripts/env.sh", "build/cpu/bin");
  std::filesystem::create_directories(directory_ / "own");
  EXPECT_EQ(run_after("scripts/env.sh", "echo $PATH", "LOCKSTEP_BIN=" + (directory_ / "own")).out,
            directory_ / "own:" + (directory_ / "build/cpu/bin:/usr/bin:/bin\n"));
}

TEST_F(Environment, SaysWhereNothingIsBuilt) {
  put("scripts/env.sh", "");
  const Outcome outcome = run_after("scripts/env.sh", "echo went on");
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_EQ(outcome.out, "");
  EXPECT_NE(outcome.errors.find("cmake --build --preset cpu"), std::string::npos) << outcome.errors;
}

TEST_F(Environment, TellsRanksOfSrunOfTheTerminalOnlyWhereAPersonIs) {
  put("scripts/env.sh", "build/cpu/bin");
  const std::string command = "source \"" + (directory_ / "scripts/env.sh") + "\"; type -t srun";
  EXPECT_EQ(run_command("bash --norc -ic '" + command + "'").out, "function\n");
  // A batch file passes signals on to the srun that it has started.
  EXPECT_EQ(run_command("bash --norc -c '" + command + "'").out.find("function"), std::string::npos);
}

}  // namespace
}  // namespace lockstep
