// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace lockstep {

/// Prepares this process: the first call of every main(). Descriptors 0 to 2 that are closed are taken, so
/// that no file gets their numbers; reading and writing them still fails. Writes to a pipe without a reader
/// or beyond a limit of file sizes fail with an error instead of a signal.
void begin_program();

/// Writes results to stdout at once. Throws Error if stdout does not accept them.
void write_output(std::string_view text);

/// Returns all of stdin. Throws UserError if it cannot be read.
std::string read_input();

/// Delivers what was written to stdout: the last call of every main(). If something was lost, it logs the
/// reason, and the exit code is 1 instead of 0. Returns the exit code.
int end_program(int code);

}  // namespace lockstep
