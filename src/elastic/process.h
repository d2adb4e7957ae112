// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <optional>
#include <string>
#include <sys/types.h>
#include <vector>

#include "core/descriptor.h"
#include "elastic/ending.h"

namespace lockstep {

/// What to start and how.
struct ProcessOptions {
  std::vector<std::string> command;                     ///< the first is looked up in PATH
  std::map<std::string, std::string> environment = {};  ///< besides the own one
  bool pipe_errors = false;                             ///< its stderr can be read from errors()
  bool without_input = false;                           ///< its stdin is empty
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
  /// The reading end of its stderr, not blocking; -1 without pipe_errors.
  int errors() const { return errors_.get(); }
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
  Descriptor errors_;
  std::optional<Ending> ending_;
};

/// The state of a process as /proc tells it: 'R', 'S', 'D', 'T' (stopped), 'Z'; 0 if there is none.
char process_state(pid_t process);

/// Signals those of a process group that have a handler for it: the others would die of it. False if none
/// has.
bool signal_catchers(pid_t group, int number);

}  // namespace lockstep
