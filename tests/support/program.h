// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <stdlib.h>
#include <string>
#include <sys/wait.h>

#include "tests/support/temporary_directory.h"

namespace lockstep {

/// The exit code and the output of a command.
struct Outcome {
  int exit_code = -1;  ///< 128 + signal if a signal ended it
  std::string out;
  std::string errors;
  double seconds = 0.0;

  std::string first_error_line() const { return errors.substr(0, errors.find('\n')); }
  /// Returns the first error line of a rank. mpirun may print its own notice of the end before it.
  std::string first_error_of_a_rank() const {
    const size_t begin = std::min(errors.find("error: "), errors.size());
    return errors.substr(begin, errors.find('\n', begin) - begin);
  }
};

/// Runs a shell command to its end. Kills it after `limit_seconds` (exit code 137).
inline Outcome run_command(const std::string& command, int limit_seconds = 120) {
  const TemporaryDirectory directory;
  write_text(directory / "command.sh", command + "\n");
  const std::string line = "timeout -k 1 -s KILL " + std::to_string(limit_seconds) + " bash " +
                           (directory / "command.sh") + " >" + (directory / "out") + " 2>" +
                           (directory / "errors") + " </dev/null";
  const auto begin = std::chrono::steady_clock::now();
  const int status = ::system(line.c_str());
  Outcome outcome;
  outcome.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  outcome.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  outcome.out = read_text(directory / "out");
  outcome.errors = read_text(directory / "errors");
  return outcome;
}

/// Returns the path of a program of this build.
inline std::string program(const std::string& name) { return std::string(LOCKSTEP_PROGRAM_DIR) + "/" + name; }

/// Returns whether there is an mpirun. Tests that need it skip otherwise.
inline bool has_mpirun() { return ::system("command -v mpirun >/dev/null") == 0; }

/// ASAN_OPTIONS of ranks. Open MPI has no frame pointers, so only a slow unwind identifies its leaks. A few
/// frames are enough to name the library.
constexpr const char* asan_options_of_ranks = "fast_unwind_on_malloc=0:malloc_context_size=8";

/// Returns the environment variables for a start of ranks by any launcher.
inline std::string launch_settings() {
  return std::string("ASAN_OPTIONS=") + asan_options_of_ranks +
         " OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 "
         "OMPI_MCA_orte_execute_quiet=1 OMPI_MCA_btl_vader_single_copy_mechanism=none OMPI_MCA_smsc=^cma ";
}

/// Returns an mpirun command for this many ranks on this machine, even if it has fewer cores.
inline std::string mpirun(int ranks) {
  return launch_settings() + "mpirun --oversubscribe --bind-to none -np " + std::to_string(ranks) + " ";
}

/// Returns a lockrun command for this many ranks on this machine.
inline std::string lockrun(int ranks) {
  return launch_settings() + program("lockrun") + " --nproc " + std::to_string(ranks) + " -- ";
}

}  // namespace lockstep
