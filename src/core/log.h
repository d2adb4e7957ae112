// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace lockstep {

/// Messages for a person, on stderr and in the log file if one is set. Thread-safe.
void log_info(const std::string& message);
void log_warning(const std::string& message);
void log_error(const std::string& message);

/// Prefixes every further warning and error with "[rank r] "; with quiet, info stays out of stderr.
void set_log_rank(int rank, bool quiet);

/// Further messages go to the log file alone.
void silence_log_console();

/// Copies every further message, with its time, to this file (appended), which is made by the first of them.
/// If it cannot be opened, a warning says so.
void set_log_file(const std::string& path);

}  // namespace lockstep
