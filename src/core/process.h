// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <optional>
#include <string>
#include <sys/types.h>
#include <vector>

#include "lockstep/core/descriptor.h"

namespace lockstep {

/// How a process ended.
struct Ending {
  int exit_code = 0;
  int signal = 0;  ///< not 0 if a signal ended it

  bool is_success() const { return exit_code == 0 && signal == 0; }
  /// Returns the code that a shell reports: 128 + the signal, or the exit code.
  int code() const { return signal ? 128 + signal : exit_code; }
};

/// Describes an ending: "exit code 3", "SIGKILL (killed)".
std::string describe(const Ending& ending);

/// A pipe between processes. Throws Error if none can be made.
struct Pipe {
  explicit Pipe(int reading_flags = 0);  ///< O_NONBLOCK: reading never waits
  Descriptor reading, writing;
};

/// Options for starting a child.
struct ProcessOptions {
  std::vector<std::string> command;                     ///< the program, looked up in PATH, and its arguments
  std::map<std::string, std::string> environment = {};  ///< added to this process's own
  bool is_piped = false;                                ///< read_output() returns its stdout and stderr
  int output = -1, errors = -1;  ///< its stdout and stderr if they are not piped; -1: this process's own
  bool without_input = false;    ///< its stdin is empty
};

/// A child in a process group of its own. It gets SIGKILL when the thread that started it ends. The rest of
/// its group gets SIGKILL when the child has ended or this object is destroyed.
class Process {
 public:
  /// Throws UserError if the program cannot be started.
  explicit Process(const ProcessOptions& options);
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  pid_t id() const { return id_; }
  /// A descriptor for poll(), readable once the child has ended.
  int descriptor() const { return descriptor_.get(); }
  /// A descriptor for poll(), readable while read_output() has data; -1 once all writers are gone.
  int output() const { return output_.get(); }
  /// Returns new output, at most `most_bytes`: a child that never stops writing cannot block the caller.
  std::string read_output(size_t most_bytes = 65536);
  /// Returns how the child ended; nothing while it runs.
  std::optional<Ending> ending();
  /// Waits for the end of the child, at most `seconds`.
  std::optional<Ending> wait(double seconds);
  void signal(int number);
  /// Sends a signal to the child and to the processes that it started in its group.
  void signal_group(int number);

 private:
  pid_t id_ = -1;
  Descriptor descriptor_;
  Descriptor output_;
  std::optional<Ending> ending_;
};

/// How a command ended, and its stdout and stderr together.
struct CommandResult {
  Ending ending;  ///< exit code 127 if it cannot be started
  bool timed_out = false;
  std::string output;

  bool succeeded() const { return ending.is_success() && !timed_out; }
};

/// Runs a command to its end, without input. After `deadline_seconds` it is ended with all its processes.
CommandResult run_within(double deadline_seconds, const std::vector<std::string>& command,
                         const std::map<std::string, std::string>& environment = {});

/// Returns the state of a process from /proc: 'R', 'S', 'D', 'T' (stopped), 'Z'; 0 if there is none.
char process_state(pid_t process);

/// Returns the parent of a process; 0 if it is unknown.
pid_t parent_of(pid_t process);

/// Returns this machine's host name.
std::string host_name();

/// Returns an id that differs between machines, even with equal host names. A reboot changes it.
std::string boot_id();

/// Returns this process's mark for file names: unique across hosts and containers with equal process ids.
const std::string& process_mark();

/// Returns one character for each core of this machine: '1' if this process may run there.
std::string allowed_cores();
/// Returns the number of cores that this process may use, at least 1.
int available_cores();

}  // namespace lockstep
