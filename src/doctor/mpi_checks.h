// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "doctor/finding.h"

namespace lockstep {

/// The word after which a program that calls this passes its start on to answer_probe().
constexpr const char* probe_argument = "--probe";

/// What a rank that was started as a probe does: it meets the others, and rank 0 prints a line that the
/// checks below read. Returns the exit code.
int answer_probe();

/// Whether there is an mpirun, and whether it belongs to the library of this program.
Finding check_mpirun(const std::string& library);

/// Whether the ranks of a plain srun find each other; nothing where no Slurm answers.
std::vector<Finding> check_srun();

/// Whether two ranks start and exchange a text within a deadline, and how many cores a single rank would get.
/// `program` is the path of this one.
std::vector<Finding> check_ranks(const std::string& program, double deadline_seconds);

}  // namespace lockstep
