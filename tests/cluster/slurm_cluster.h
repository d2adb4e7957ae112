// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>
#include <filesystem>
#include <functional>
#include <signal.h>
#include <string>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lockstep/core/error.h"
#include "support/eventually.h"
#include "support/program.h"
#include "support/temporary_directory.h"

namespace lockstep {

/// Slurm's own daemons on a controller and four hosts, each in its own namespaces (slurm_cluster.sh). All
/// processes of the cluster end with this object, and with this process, however it ends.
class SlurmCluster {
 public:
  /// Returns why this machine cannot have a cluster. It is empty if it can.
  static std::string what_is_missing() {
    if (::geteuid() != 0) return "network namespaces need root";
    if (::system("unshare --net --mount --uts --pid --fork --mount-proc true 2>/dev/null") != 0)
      return "this machine allows no namespaces";
    for (const char* name : {"slurmctld", "slurmd", "munged", "ip"})
      if (::system(concat("command -v ", name, " >/dev/null").c_str()) != 0)
        return concat(name, " is not installed: scripts/install_deps.sh --cluster");
    return {};
  }

  /// Starts the cluster. Throws Error with the last lines of the daemons if they do not start.
  SlurmCluster() {
    start();
    wait_until("the nodes are idle", [&] {
      expect(::waitpid(guard_, nullptr, WNOHANG) == 0, "the cluster ended: ", read_text(directory_ / "log"));
      return std::filesystem::exists(directory_ / "ready");
    });
  }
  ~SlurmCluster() {
    ::kill(guard_, SIGKILL);
    ::waitpid(guard_, nullptr, 0);
  }
  SlurmCluster(const SlurmCluster&) = delete;
  SlurmCluster& operator=(const SlurmCluster&) = delete;

  /// Returns a path that the controller and all nodes see.
  std::string operator/(const std::string& name) const { return directory_ / name; }

  /// Runs a shell command (without single quotes) on the controller, in a directory that all nodes see.
  /// Slurm's commands find the cluster, and batch files find this build.
  Outcome run(const std::string& command) const {
    const std::string id = std::to_string(guard_);
    std::string first_process = read_text(concat("/proc/", id, "/task/", id, "/children"));
    return run_command(concat("export SLURM_CONF=", directory_ / "slurm.conf",
                              " LOCKSTEP_BIN=" LOCKSTEP_PROGRAM_DIR
                              " OMPI_MCA_btl_vader_single_copy_mechanism=none\n"
                              "exec nsenter --net --mount --uts --pid --wd=",
                              directory_.path(), " --target ", first_process, " bash -c '", command, "'"));
  }

  /// Returns a value that scontrol shows of a job, such as JobState.
  std::string job_value(const std::string& job, const std::string& key) const {
    const std::string shown = run("scontrol --oneliner show job " + job).out;
    const size_t begin = shown.find(" " + key + "=");
    if (begin == std::string::npos) return {};
    const size_t value = begin + key.size() + 2;
    return shown.substr(value, shown.find_first_of(" \n", value) - value);
  }

  /// Waits until the condition holds. Throws Error after three minutes.
  static void wait_until(const std::string& what, const std::function<bool()>& is_so) {
    expect(eventually(is_so), "waited for three minutes until ", what);
  }

 private:
  void start() {
    const std::string script = LOCKSTEP_SOURCE_DIR "/tests/cluster/slurm_cluster.sh";
    const std::string log = directory_ / "log";
    guard_ = ::fork();
    if (guard_ != 0) return;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    const int file = ::open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0644);
    ::dup2(file, STDOUT_FILENO);
    ::dup2(file, STDERR_FILENO);
    ::execlp("unshare", "unshare", "--net", "--mount", "--uts", "--pid", "--fork", "--kill-child",
             "--mount-proc", script.c_str(), directory_.path().c_str(), LOCKSTEP_SOURCE_DIR,
             LOCKSTEP_PROGRAM_DIR, nullptr);
    ::_exit(127);
  }

  TemporaryDirectory directory_;
  pid_t guard_ = 0;
};

}  // namespace lockstep
