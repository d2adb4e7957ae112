// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "core/exit_code.h"

namespace lockstep {

/// How a process ended.
struct Ending {
  int exit_code = 0;
  int signal = 0;  ///< not 0 if a signal ended it

  /// From what waitpid() tells.
  static Ending of_status(int status);
  bool is_success() const { return exit_code == 0 && signal == 0; }
  /// As a shell says it: 128 + the signal, or the exit code.
  int code() const { return signal ? 128 + signal : exit_code; }
};

/// "exit code 3", "SIGKILL (killed)".
std::string describe(const Ending& ending);

}  // namespace lockstep
