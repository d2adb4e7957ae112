// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <optional>
#include <string>
#include <sys/types.h>
#include <vector>

#include "core/descriptor.h"

namespace lockstep {

/// How a process ended.
struct Ending {
  int exit_code = 0;
  int signal = 0;  ///< not 0 if a signal ended it

  bool is_success() const { return exit_code == 0 && signal == 0; }
  /// As a shell says it: 128 + the signal, or the exit code.
  int code() const { return signal ? 128 + signal : exit_code; }
};

/// "exit code 3", "SIGKILL (killed)".
std::string describe(const Ending& ending);

/// What of a process comes to read_output() instead of to where this one writes.
enum class Piped { nothing, errors, all };

/// What to start and how.
struct ProcessOptions {
  std::vector<std::string> command;                     ///< the first is looked up in PATH
  std::map<std::string, std::string> environment = {};  ///< besides the own one
  Piped piped = Piped::nothing;
  bool without_input = false;  ///< its stdin is empty
};

/// A child in a process group of its own. It gets SIGKILL when the thread that started it ends; what is left
/// of its group gets it when the child has ended or this object goes.
class Process {
 public:
  /// Throws UserError if the program cannot be started.
  explicit Process(const ProcessOptions& options);
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  pid_t id() const { return id_; }
  /// For poll(): readable once it has ended.
  int descriptor() const { return descriptor_.get(); }
  /// For poll(): readable while read_output() has something to say; -1 once all who could write are gone.
  int output() const { return output_.get(); }
  /// What it has written since, at most so much of it: one that never stops writing keeps nobody here.
  std::string read_output(size_t most_bytes = 65536);
  /// How it ended; nothing while it runs.
  std::optional<Ending> ending();
  /// Waits at most so long for its end.
  std::optional<Ending> wait(double seconds);
  void signal(int number);
  /// Also reaches what the process itself has started.
  void signal_group(int number);

 private:
  pid_t id_ = -1;
  Descriptor descriptor_;
  Descriptor output_;
  std::optional<Ending> ending_;
};

/// How a command ended and what it wrote, to stdout and stderr together.
struct CommandResult {
  Ending ending;  ///< exit code 127 if it cannot be started
  bool timed_out = false;
  std::string output;

  bool succeeded() const { return ending.is_success() && !timed_out; }
};

/// Runs a command to its end, without input. After `deadline_seconds` it is ended with all that it started.
CommandResult run_within(double deadline_seconds, const std::vector<std::string>& command,
                         const std::map<std::string, std::string>& environment = {});

/// The processes whose parent is this one, those that it has adopted too.
std::vector<pid_t> own_children();

/// The state of a process as /proc tells it: 'R', 'S', 'D', 'T' (stopped), 'Z'; 0 if there is none.
char process_state(pid_t process);

/// 0 if it cannot be told.
pid_t parent_of(pid_t process);

/// Signals those of a process group that have a handler for it: the others would die of it. False if none
/// has.
bool signal_catchers(pid_t group, int number);

}  // namespace lockstep
