// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "lockstep/core/error.h"

namespace lockstep {

/// Prepares this process: the first call of every main(). Descriptors 0 to 2 that are closed are taken, so
/// that no file gets their numbers; reading and writing them still fails. Writes to a pipe without a reader
/// or beyond a limit of file sizes fail with an error instead of a signal. SIGHUP is as under
/// restore_hangup().
void begin_program();

/// Thrown if results cannot be written, for example to a full disk. The message is empty if the reader of
/// stdout is gone: then the program ends with 1 and says nothing.
class OutputLost : public Error {
 public:
  using Error::Error;
};

/// Writes results to stdout at once. Throws OutputLost if stdout does not accept them.
void write_output(std::string_view text);

/// Writes results to a path that the user named. A regular file is replaced as a whole: see write_file(). A
/// device, a FIFO or the target of a link gets the text. Throws Error, OutputLost with the path and the
/// reason.
void write_output_to(const std::string& path, std::string_view text);

/// Returns all of stdin. Throws UserError if it cannot be read.
std::string read_input();

/// Flushes stdout: the last call of every main(). Returns the exit code. If something was lost, that is 1
/// instead of 0, and the reason is logged unless the reader is gone.
int end_program(int code);

}  // namespace lockstep
