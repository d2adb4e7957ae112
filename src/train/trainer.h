// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "lockstep/comm/world.h"
#include "lockstep/job/job.h"
#include "lockstep/train/task.h"

namespace lockstep {

/// Runs a training from its newest snapshot, or from the start, to its end: steps, evaluation, metrics and
/// snapshots. RunFolder describes what happens if log.dir already holds a run. `job` is the result of
/// resolve(). `planned_bytes`: the planned peak memory of a rank; 0: no plan. Every rank calls it with its
/// own objects for the same task. Returns the exit code. Throws UserError for errors that the user can fix.
int train(const Job& job, const World& world, const TrainingTask& task, double planned_bytes = 0.0);

/// Prints a text that the user asked for, such as --version, once for all ranks. Returns the exit code 0.
int print_once(const std::string& text);
/// Prints the text of --help like print_once(), wrapped for the terminal.
int print_help(const std::string& text);

/// Joins the other ranks. Every training program calls it before resolve().
World start_world();

}  // namespace lockstep
