// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "config/arguments.h"
#include "config/job_keys.h"
#include "job/job.h"

namespace lockstep {

/// Returns the keys of all rooms, in the order of --help. The first call sets the wording of this process:
/// messages name these keys instead of options.
const JobKeys<Job>& job_keys();

/// Splits the arguments of main(). Throws UserError if an option lacks its value.
Arguments split_arguments(int argc, const char* const* argv);

/// Returns the text of --help for a program with these defaults.
std::string job_help(const std::string& program, const Layer& defaults = {});

/// Returns the INI text of a job. Reading it gives the same job, also with another log.dir.
std::string to_ini(const Job& job);

}  // namespace lockstep
