// SPDX-License-Identifier: Apache-2.0
#include "doctor/host_checks.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sys/timex.h>
#include <unistd.h>

#include "core/error.h"
#include "core/thread_pool.h"

namespace lockstep {
namespace {

/// Cores a second that the control group may use; 0 if it has no limit.
double quota_of_control_group() {
  std::string quota;
  double period = 0.0;
  std::ifstream("/sys/fs/cgroup/cpu.max") >> quota >> period;
  if (period > 0.0) return quota == "max" ? 0.0 : std::atof(quota.c_str()) / period;
  // Version 1 of control groups.
  double allowed = 0.0;
  std::ifstream("/sys/fs/cgroup/cpu/cpu.cfs_quota_us") >> allowed;
  std::ifstream("/sys/fs/cgroup/cpu/cpu.cfs_period_us") >> period;
  return allowed > 0.0 && period > 0.0 ? allowed / period : 0.0;
}

}  // namespace

Cores Cores::of_this_process() {
  return {.of_host = static_cast<int>(std::max(1L, ::sysconf(_SC_NPROCESSORS_ONLN))),
          .usable = available_cores(),
          .quota = quota_of_control_group()};
}

Finding check_binding(const Config& config, const Cores& cores, int ranks_of_host) {
  const std::string name = "binding";
  const int64_t threads = config.train.threads;
  std::string found = concat(cores.usable, " of ", cores.of_host, " cores for this process");
  if (cores.quota > 0.0) found += concat(", and a quota of ", cores.quota);
  if (threads > 0) found += concat("; train.threads = ", threads);
  if (threads > cores.usable)
    return {name, Verdict::warning, found,
            "threads will wait for each other: lower train.threads, or start ranks with --bind-to none"};
  if (cores.quota > 0.0 && cores.quota < std::max<double>(1.0, static_cast<double>(cores.usable)))
    return {name, Verdict::warning, found,
            concat("the container gets less than it sees: set train.threads so that all ranks together have ",
                   std::max(1, static_cast<int>(cores.quota)))};
  if (cores.usable * ranks_of_host < cores.of_host)
    return {
        name, Verdict::warning, found,
        concat(ranks_of_host, ranks_of_host == 1 ? " rank leaves" : " ranks leave",
               " cores idle: mpirun binds a rank to one core where there are one or two ranks; start with "
               "--bind-to none")};
  return {name, Verdict::ok, found};
}

Finding check_clock() {
  timex state{};
  const int result = ::adjtimex(&state);
  if (result < 0) return {"clock", Verdict::ok, "not known here whether it follows a time server"};
  if (result != TIME_ERROR) return {"clock", Verdict::ok, "follows a time server"};
  return {"clock", Verdict::warning, "the kernel says that it follows no time server",
          "run chrony or systemd-timesyncd; a bucket refuses requests that are 15 minutes off, and logs of "
          "several "
          "nodes cannot be put in order"};
}

Finding check_user() {
  if (::geteuid() != 0) return {"user", Verdict::ok, "not root"};
  const bool is_allowed =
      std::getenv("OMPI_ALLOW_RUN_AS_ROOT") && std::getenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM");
  if (is_allowed) return {"user", Verdict::ok, "root, and Open MPI is told to allow it"};
  return {
      "user", Verdict::warning, "root: Open MPI's mpirun refuses to start",
      "use another user, or in a container export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"};
}

}  // namespace lockstep
