// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/terminal.h"

#include <algorithm>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <sys/ioctl.h>
#include <unistd.h>

#include "lockstep/core/descriptor.h"
#include "lockstep/core/environment.h"
#include "lockstep/core/error.h"
#include "lockstep/core/file.h"
#include "lockstep/core/process.h"

namespace lockstep {
namespace {

std::string place_of(pid_t process) { return concat("/proc/", process); }

bool is_launcher(pid_t process) {
  static const std::set<std::string> launchers = {"mpirun", "mpiexec", "orterun", "orted",       "prterun",
                                                  "prte",   "prted",   "lockrun", "lockrun_host"};
  std::string name;
  std::getline(std::ifstream(place_of(process) + "/comm"), name);
  return launchers.contains(name);
}

/// Returns the outermost launcher of this process on this host; 0 if none passes on every byte.
pid_t outermost_launcher() {
  pid_t outermost = 0;
  for (pid_t process = ::getppid(); process > 1 && is_launcher(process); process = parent_of(process)) {
    if (redirects_output(read_file(place_of(process) + "/cmdline").value_or(""))) return 0;
    outermost = process;
  }
  return outermost;
}

/// Returns the columns of a process's terminal at a descriptor: 0 if unknown, -1 if it is no terminal.
int columns_of(pid_t process, int descriptor) {
  const std::string path = concat(place_of(process), "/fd/", descriptor);
  std::error_code problem;
  const std::string target = std::filesystem::read_symlink(path, problem).string();
  // Opening anything else, such as a pipe, could block or have side effects.
  if (problem || !target.starts_with("/dev/")) return -1;
  const Descriptor opened(::open(path.c_str(), O_RDONLY | O_NOCTTY | O_NONBLOCK | O_CLOEXEC));
  winsize size{};
  if (!opened || ::isatty(opened.get()) != 1) return -1;
  return ::ioctl(opened.get(), TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

/// Returns the terminal that srun writes to. srun is not the parent of its tasks, so scripts/env.sh passes it
/// in LOCKSTEP_TERMINAL: the columns, and "output" if stdout is a terminal as well.
Terminal terminal_of_srun(Terminal otherwise) {
  std::istringstream words(environment("LOCKSTEP_TERMINAL"));
  int columns = 0;
  std::string output;
  if (!environment_if_set("SLURM_PROCID") || !(words >> columns)) return otherwise;
  words >> output;
  return {.shows_errors = true, .shows_output = output == "output", .columns = columns};
}

}  // namespace

bool redirects_output(const std::string& command_line) {
  static const std::set<std::string> options = {
      "tag-output", "timestamp-output",      "output-filename", "output-directory", "output", "xml",
      "xterm",      "merge-stderr-to-stdout"};
  std::istringstream words(command_line);
  for (std::string word; std::getline(words, word, '\0') && word != "--";) {
    const size_t begin = std::min(word.find_first_not_of('-'), word.size());
    const std::string name = word.substr(begin, word.find('=') - begin);
    if (begin > 0 && options.contains(name)) return true;
  }
  return false;
}

Terminal find_terminal() {
  Terminal terminal;
  if (const int columns = number_from_environment("COLUMNS"); columns > 0) terminal.columns = columns;
  if (environment("TERM") == "dumb") return terminal;
  const bool is_own = ::isatty(STDERR_FILENO) == 1;
  const pid_t writer = is_own ? ::getpid() : outermost_launcher();
  if (writer == 0) return terminal_of_srun(terminal);
  const int columns = columns_of(writer, STDERR_FILENO);
  terminal.shows_errors = is_own || columns >= 0;
  terminal.shows_output = terminal.shows_errors && columns_of(writer, STDOUT_FILENO) >= 0;
  if (columns > 0) terminal.columns = columns;
  return terminal;
}

size_t output_columns() {
  const int columns = columns_of(::getpid(), STDOUT_FILENO);
  return columns > 0 ? static_cast<size_t>(columns) : 80;
}

}  // namespace lockstep
