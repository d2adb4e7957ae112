// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "apps/tutorial/exercises/check/reference_run.h"

namespace lockstep {

/// A run of an exercise's program: its starts in the same folder, one after the other, and their training.
struct Trial {
  std::vector<std::vector<std::string>> starts = {{}};  ///< the arguments of each start
  Job job;
};

struct Exercise {
  std::string name;  ///< the program's name
  std::vector<Trial> trials;
};

/// Returns all exercises in the order of docs/tutorial/exercises.md.
const std::vector<Exercise>& all_exercises();

/// Returns the exercises whose names start with `beginning`. If none does, throws UserError with all names.
std::vector<Exercise> exercises_named(const std::string& beginning);

}  // namespace lockstep
