// SPDX-License-Identifier: Apache-2.0
#include "elastic/ending.h"

#include <cctype>
#include <cstring>
#include <sys/wait.h>

#include "core/error.h"

namespace lockstep {

Ending Ending::of_status(int status) {
  if (WIFSIGNALED(status)) return {.exit_code = 0, .signal = WTERMSIG(status)};
  return {.exit_code = WEXITSTATUS(status), .signal = 0};
}

std::string describe(const Ending& ending) {
  if (ending.signal == 0) return concat("exit code ", ending.exit_code);
  const char* name = ::sigabbrev_np(ending.signal);
  std::string meaning = ::strsignal(ending.signal);
  meaning[0] = static_cast<char>(std::tolower(static_cast<unsigned char>(meaning[0])));
  return name ? concat("SIG", name, " (", meaning, ")") : meaning;
}

}  // namespace lockstep
