// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace lockstep {

/// Logs a message for the user on stderr, and in the log file if one is set. Thread-safe.
void log_info(const std::string& message);
void log_warning(const std::string& message);
void log_error(const std::string& message);
/// Logs a message in the log file alone, if one is set.
void log_to_file(const std::string& message);

/// Prefixes every later warning and error with "[rank r] ". With `quiet`, stderr gets no info messages.
void set_log_rank(int rank, bool quiet);

/// Sends later messages to the log file alone.
void silence_log_console();

/// Appends every later message, with its time, to a file. Logs a warning if it cannot be opened.
void set_log_file(const std::string& path);

}  // namespace lockstep
