// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "apps/tutorial/exercises/check/reference_run.h"

namespace lockstep {

/// A run of an exercise's program: its starts, one after the other in the same folder, and what they train.
struct Trial {
  std::vector<std::vector<std::string>> starts = {{}};  ///< arguments
  Job job;
};

struct Exercise {
  std::string name;  ///< of its program
  std::vector<Trial> trials;
};

/// In the order of the page.
const std::vector<Exercise>& all_exercises();

/// Those whose names begin so. Throws UserError listing all if there are none.
std::vector<Exercise> exercises_named(const std::string& beginning);

}  // namespace lockstep
